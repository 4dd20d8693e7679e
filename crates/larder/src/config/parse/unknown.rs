//! Settings that there are none of, and what was probably meant.

use super::Parser;
use crate::config::foreign;
use crate::config::names::{self, TABLES, in_a_row, in_brackets};
use crate::config::setting::Setting;
use crate::config::spelling::{closest, within};
use crate::config::table::SETTINGS;
use toml::Spanned;
use toml::de::DeString;

/// Settings of the same name that a hint lists at most.
const LISTED_MAX: usize = 3;

/// Words of people for settings of another table.
const MEANT: [(&str, &str); 4] =
    [("users", "login.file"), ("passwords", "login.file"), ("password_file", "login.file"), ("htpasswd", "login.file")];

/// Words of people for settings of the table in which they stand.
const MEANT_HERE: [(&str, &str, &str); 11] = [
    ("rule.when", "domain", "host"),
    ("rule.when", "domains", "host"),
    ("rule.when", "hosts", "host"),
    ("rule.when", "ip", "client"),
    ("rule.when", "network", "client"),
    ("rule.do", "block", "deny"),
    ("rule.do", "reject", "deny"),
    ("list", "file", "source"),
    ("list", "path", "source"),
    ("list", "url", "source"),
    ("bandwidth", "limit", "rate"),
];

/// Tables whose settings are looked for in another one first, which they name.
const RELATED: [(&str, &str); 1] = [("login", "helper")];

impl Parser {
    /// Reports a key of a table that has no such setting; gives the setting of that table that was probably meant.
    pub(super) fn unknown<T: Clone>(
        &mut self,
        section: &str,
        settings: &'static [Setting<T>],
        key: &Spanned<DeString<'_>>,
    ) -> Option<&'static str> {
        let word = &**key.get_ref();
        let name = if section.is_empty() { word.to_owned() } else { format!("{section}.{word}") };
        let meant = nearest(word, &name, settings.iter().map(|setting| setting.name));
        let foreign = foreign::hint(word);
        // A word that is a setting of another table as it stands is more likely that one than a third spelling of one of this table.
        let is_close =
            |meant: &&str| meant.rsplit('.').next().is_some_and(|key| within(1, word, [key].into_iter()).is_some());
        let here = MEANT_HERE.iter().find(|(table, known, _)| *table == section && *known == word);
        let here = here.map(|(table, _, setting)| format!("did you mean {table}.{setting}?"));
        let hint = here.or(foreign).or_else(|| meant.filter(is_close).map(|meant| format!("did you mean {meant}?")));
        let hint = hint.or_else(|| elsewhere(section, word));
        let hint = hint.or_else(|| meant.map(|meant| format!("did you mean {meant}?")));
        let hint = hint.or_else(|| section.is_empty().then(|| nearest_section(word)).flatten());
        let hint = hint.unwrap_or_else(|| "`larder config` lists all settings".to_owned());
        self.problem(key.span(), format!("there is no setting {name}"), Some(hint));
        meant
    }
}

/// A setting of the same table that is spelled nearly so.
fn nearest(word: &str, name: &str, mut names: impl Iterator<Item = &'static str> + Clone) -> Option<&'static str> {
    let section = name.strip_suffix(word)?;
    let keys = names.clone().filter_map(|candidate| candidate.strip_prefix(section)).filter(|key| !key.contains('.'));
    let key = closest(word, keys)?;
    names.find(|candidate| candidate.strip_prefix(section) == Some(key))
}

/// The same key in another table.
fn elsewhere(section: &str, word: &str) -> Option<String> {
    let related = RELATED.iter().find(|(from, _)| *from == section).map(|(_, to)| format!("{to}.{word}"));
    if let Some(name) = related.filter(|name| names::all().any(|each| each == name)) {
        let (table, _) = name.split_once('.')?;
        return Some(format!("{name} is a setting of the {} that `{section}.{table}` names", in_brackets(table)));
    }
    if let Some((_, name)) = MEANT.iter().find(|(known, _)| *known == word) {
        let table = name.rsplit_once('.').map_or("", |(table, _)| table);
        return Some(format!("did you mean {name}, a setting of {}?", in_brackets(table)));
    }
    let mut found: Vec<String> =
        names::all().filter(|name| name.rsplit('.').next() == Some(word)).map(str::to_owned).collect();
    found.truncate(LISTED_MAX);
    (!found.is_empty()).then(|| format!("did you mean {}?", in_a_row(&found, "or")))
}

fn nearest_section(word: &str) -> Option<String> {
    let sections = SETTINGS.iter().filter_map(|setting| setting.name.split_once('.')).map(|(section, _)| section);
    let section = closest(word, sections.chain(TABLES))?;
    Some(format!("did you mean {}?", in_brackets(section)))
}

#[cfg(test)]
mod tests {
    use crate::config::Loaded;

    fn messages(text: &str) -> Vec<String> {
        let report = Loaded::parse("x.toml", text, &[]).map(|_| ()).unwrap_err();
        report.problems().iter().map(|problem| problem.message.clone()).collect()
    }

    #[test]
    fn words_of_people_lead_to_the_setting_of_the_table() {
        for (text, wanted) in [
            ("[[rule]]\nwhen = { domain = \"a\" }\ndo = { deny = true }", "did you mean rule.when.host?"),
            ("[[rule]]\nwhen = { ip = \"10.0.0.1\" }\ndo = { deny = true }", "did you mean rule.when.client?"),
            ("[[rule]]\nwhen = { host = \"a\" }\ndo = { block = true }", "did you mean rule.do.deny?"),
            ("[[list]]\nname = \"a\"\nfile = \"/x\"", "did you mean list.source?"),
            (
                "[[rule]]\nwhen = { list = \"/etc/bad\" }\ndo = { deny = true }",
                "write [[list]] with name = \"blocked\" and source",
            ),
            (
                "[[login]]\nname = \"a\"\nscheme = \"basic\"\nhelper = \"/usr/lib/squid/basic_ncsa_auth /etc/passwd\"",
                "command = [\"PROGRAM\", \"WORD\"]",
            ),
            ("[access]\nlogin = true", "write login = \"NAME\""),
        ] {
            let report = Loaded::parse("x.toml", text, &[]).map(|_| ()).unwrap_err().to_string();
            assert!(report.contains(wanted), "{text}:\n{report}");
        }
    }

    #[test]
    fn what_only_follows_from_another_error_is_left_out() {
        for (text, wanted) in [
            ("[[listen]]\nadress = \"0.0.0.0:80\"", &["there is no setting listen.adress"][..]),
            ("[[login]]\nname = \"a\"\nscheme = \"basic\"\nfiel = \"/x\"", &["there is no setting login.fiel"]),
            (
                "[[login]]\nname = \"a\"\nscheme = \"bearer\"\nfile = 3",
                &["login.file of a: a file is expected, not a number"],
            ),
            ("[[store_rule]]\nhosts = \"a.example\"\nlifetme = \"1h\"", &["there is no setting store_rule.lifetme"]),
            ("[[origin]]\nname = \"a\"\nmembrs = []", &["there is no setting origin.membrs"]),
            (
                "[[bandwidth]]\nname = \"guests\"\nrate = \"1MB\"\n[[rule]]\ndo = { bandwidth = \"guests\" }",
                &["bandwidth.rate of guests: \"1MB\" is not a bandwidth"],
            ),
            ("[[bandwidth]]\nname = \"guests\"", &["`rate` is missing in bandwidth guests"]),
            (
                "[[list]]\nname = \"ads\"\nsourc = \"/x\"\n[[rule]]\nwhen = { list = \"ads\" }\ndo = { deny = true }",
                &["there is no setting list.sourc"],
            ),
            (
                "[[site]]\nhosts = \"a\"\norigin = \"a:80\"\npython = \"p\"",
                &[
                    "site.origin: \"a:80\" is not an http or https URL, a socket (http+unix:/…) or an application (wsgi:…, asgi:…)",
                ],
            ),
            // A fault of one table hides none of another.
            (
                "[[site]]\nhosts = \"a\"\norigin = 3\n[[site]]\nhosts = \"b\"\norigin = \"http://b\"\npython = \"p\"",
                &[
                    "site.origin: an http or https URL, a socket (http+unix:/…) or an application (wsgi:…, asgi:…) is expected, not a number",
                    "site: x.toml:4: `python` is for an origin that is an application, and for hooks",
                ],
            ),
            (
                "[[parent]]\nname = \"up\"\nurl = 3\n[forward]\nparents = [\"up\", \"down\"]",
                &[
                    "parent.url of up: http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT is expected, not a number",
                    "forward.parents: there is no parent down",
                ],
            ),
        ] {
            assert_eq!(messages(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_key_of_another_table_is_found_there() {
        let hint = |text: &str| {
            let report = Loaded::parse("x.toml", text, &[]).map(|_| ()).unwrap_err();
            report.problems().iter().find_map(|problem| problem.hint.clone()).unwrap_or_default()
        };
        let login = "[[login]]\nname = \"a\"\nscheme = \"basic\"\nfile = \"/x\"\n";
        for (text, wanted) in [
            (
                format!("{login}children = 5"),
                "helper.children is a setting of the [[helper]] that `login.helper` names",
            ),
            (format!("{login}prefix = 5"), "did you mean site.prefix?"),
            ("[access]\nusers = \"/etc/users\"".to_owned(), "did you mean login.file, a setting of [[login]]?"),
            ("[access]\nscheme = \"basic\"".to_owned(), "did you mean rule.when.scheme or login.scheme?"),
            (
                "[[helper]]\nname = \"h\"\nkind = \"basic\"\ncommand = \"/bin/sh -c x\"".to_owned(),
                "write command = [\"/bin/sh\", \"-c\", \"x\"]: no shell divides it into words",
            ),
            ("children = 5".to_owned(), "did you mean python.children or helper.children?"),
        ] {
            assert_eq!(hint(&text), wanted, "{text}");
        }
    }
}
