//! Squid's programs for LDAP (`basic_ldap_auth`, `ext_ldap_group_acl` and their older names) as the settings `ldap…` of a login.

use crate::value::Table;

/// The options of such a program that take a value; `basic_ldap_auth` and `ext_ldap_group_acl` share them.
const WITH_VALUE: &str = "bBfFsDwWuhHpctav";

/// Options without a value that ask for nothing which Larder does not do: a connection that stays, no referrals, more in the log.
const WITHOUT_VALUE: &str = "PRd";

/// A program for LDAP, as its command says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Directory {
    values: Vec<(char, String)>,
    start_tls: bool,
    hosts: Vec<String>,
}

/// Settings of groups, and whether the program's search was narrower.
type GroupSettings = Vec<(&'static str, String)>;

/// Whether a program is one that asks LDAP servers about passwords.
pub fn is_login(command: &[String]) -> bool {
    is_program(command, &["basic_ldap_auth", "squid_ldap_auth", "ldap_auth"])
}

/// Whether a program is one that asks LDAP servers about groups.
pub fn is_groups(command: &[String]) -> bool {
    is_program(command, &["ext_ldap_group_acl", "squid_ldap_group"])
}

fn is_program(command: &[String], names: &[&str]) -> bool {
    let name = command.first().map_or("", |path| path.rsplit('/').next().unwrap_or(path));
    names.contains(&name)
}

impl Directory {
    /// Reads a command; the error says what Larder has no setting for.
    pub fn read(command: &[String]) -> Result<Directory, String> {
        let mut found = Directory::default();
        let mut words = command.iter().skip(1).map(|word| word.trim_matches('"'));
        while let Some(word) = words.next() {
            let Some(option) = word.strip_prefix('-').and_then(|rest| rest.chars().next()) else {
                found.hosts.push(word.to_owned());
                continue;
            };
            let attached = word.get(1 + option.len_utf8()..).unwrap_or_default();
            match option {
                'Z' => found.start_tls = true,
                option if WITHOUT_VALUE.contains(option) => {}
                option if WITH_VALUE.contains(option) => {
                    let value = if attached.is_empty() { words.next().unwrap_or_default() } else { attached };
                    found.values.push((option, value.trim_matches('"').to_owned()));
                }
                option => return Err(format!("Larder has nothing for its option -{option}")),
            }
        }
        match () {
            () if found.find('w').is_some() => {
                Err("its password stands in the command (-w): put it into a file, and give that with -W".to_owned())
            }
            () if found.find('D').is_some() != found.find('W').is_some() => Err("-D and -W belong together".to_owned()),
            () if found.find('v').is_some_and(|version| version != "3") => Err("it asks by LDAP 2".to_owned()),
            () if found.find('s').is_some_and(|scope| scope != "sub") => {
                Err("it searches in a part of what is below its base (-s), and Larder in all of it".to_owned())
            }
            () if found.find('a').is_some_and(|when| when != "never") => Err("it follows aliases (-a)".to_owned()),
            () if found.find('b').is_none_or(str::is_empty) => Err("it has no base (-b)".to_owned()),
            () => Ok(found),
        }
    }

    fn find(&self, option: char) -> Option<&str> {
        self.values.iter().rev().find(|(of, _)| *of == option).map(|(_, value)| value.as_str())
    }

    /// The URLs of its servers, as in its own order of precedence.
    fn servers(&self) -> Vec<String> {
        let named = self.find('H').or(self.find('h')).map(|text| text.split_whitespace().map(str::to_owned).collect());
        let all: Vec<String> = named.unwrap_or_else(|| self.hosts.clone());
        let all = if all.is_empty() { vec!["localhost".to_owned()] } else { all };
        let port = self.find('p').map_or_else(String::new, |port| format!(":{port}"));
        let url = |host: String| match host.contains("://") {
            true => host.trim_end_matches('/').to_owned(),
            false if host.contains(':') => format!("ldap://{host}"),
            false => format!("ldap://{host}{port}"),
        };
        all.into_iter().map(url).collect()
    }

    /// A server to which passwords go as they are, over a network.
    fn exposed(&self) -> bool {
        let is_here = |url: &String| {
            let host = url.trim_start_matches("ldap://").split([':', '/']).next().unwrap_or_default();
            host == "localhost" || host.starts_with("127.")
        };
        !self.start_tls && self.servers().iter().any(|url| url.starts_with("ldap://") && !is_here(url))
    }

    /// The settings by which users log in, without those of groups, and a word of caution.
    pub fn login(&self) -> Result<(Table, &'static str), String> {
        let servers = self.servers();
        if servers.len() > 8 || servers.iter().any(|url| !url.starts_with("ldap://") && !url.starts_with("ldaps://")) {
            return Err("its servers are no URLs of ldap:// or ldaps://, or more than 8".to_owned());
        }
        let mut settings = Table::default().with("ldap", servers);
        let base = self.find('b').unwrap_or_default();
        match self.find('f') {
            None => {
                let attribute = self.find('u').unwrap_or("uid");
                settings.set("ldap_user_dn", format!("{attribute}={{user}},{base}"));
            }
            Some(filter) => {
                settings.set("ldap_base", base);
                settings.set("ldap_filter", filter_of(filter, &[("%s", "{user}")], "{user}")?);
            }
        }
        if let (Some(name), Some(file)) = (self.find('D'), self.find('W')) {
            settings.set("ldap_bind_dn", name);
            settings.set("ldap_password_file", file);
        }
        if self.start_tls {
            settings.set("ldap_start_tls", true);
        }
        if let Some(seconds) =
            self.find('c').and_then(|text| text.parse::<u64>().ok()).filter(|it| (1..=60).contains(it))
        {
            settings.set("ldap_timeout", format!("{seconds}s"));
        }
        let mut caution = "names of users are ASCII in small letters; referrals are not followed";
        if self.exposed() {
            settings.set("ldap_cleartext", true);
            caution = "PASSWORDS GO TO THE SERVER AS THEY ARE, as before: write ldaps:// and leave ldap_cleartext out; \
                       names of users are ASCII in small letters";
        }
        Ok((settings, caution))
    }

    /// The settings by which the groups of a user are found, for the login by this other program.
    pub fn groups(&self, login: &Directory) -> Result<GroupSettings, String> {
        let is_same = self.servers() == login.servers()
            && self.start_tls == login.start_tls
            && self.find('D') == login.find('D')
            && self.find('W') == login.find('W');
        if !is_same {
            return Err("it asks other servers than the login does, or by another name".to_owned());
        }
        let filter = self.find('f').ok_or("it has no filter (-f)")?;
        let by_dn = self.find('F').is_some() || self.find('u').is_some();
        let user = if by_dn { "{dn}" } else { "{user}" };
        let names = [("%u", user), ("%v", user), ("%g", "{group}"), ("%a", "{group}")];
        let filter = filter_of(filter, &names, "{group}")?;
        let items = conjuncts(&filter).ok_or("the parts of its filter do not all have to hold")?;
        let (of_group, rest): (Vec<&str>, Vec<&str>) = items.into_iter().partition(|item| item.contains("{group}"));
        let (Some((attribute, value)), 1) = (of_group.first().and_then(|item| item.split_once('=')), of_group.len())
        else {
            return Err("its filter has the group in several places".to_owned());
        };
        let is_plain = |attribute: &str| attribute.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let base = self.find('b').unwrap_or_default();
        match value.split_once(',') {
            _ if !is_plain(attribute) => Err("its filter has no plain comparison with the group".to_owned()),
            // The group is an entry: the name of the entry is what counts.
            None if value == "{group}"
                && attribute.eq_ignore_ascii_case("cn")
                && rest.iter().any(|it| it.contains(user)) =>
            {
                let rest: String = rest.iter().map(|item| format!("({item})")).collect();
                let filter = if rest.matches('(').count() > 1 { format!("(&{rest})") } else { rest };
                Ok(vec![("ldap_groups_base", base.to_owned()), ("ldap_groups_filter", filter)])
            }
            // The group is a value of the user's entry.
            Some((first, above)) if first.eq_ignore_ascii_case("cn={group}") && !above.contains(['{', '*']) => {
                Ok(vec![("ldap_groups", attribute.to_owned()), ("ldap_groups_base", above.to_owned())])
            }
            _ => Err("its filter compares the group with something else than the name of a group".to_owned()),
        }
    }
}

/// A filter with Larder's words for names, in parentheses; one of them has to be there.
fn filter_of(filter: &str, names: &[(&str, &str)], wanted: &str) -> Result<String, String> {
    if filter.contains(['{', '}']) {
        return Err("its filter has braces".to_owned());
    }
    let mut text = filter.trim().to_owned();
    for (theirs, ours) in names {
        text = text.replace(theirs, ours);
    }
    let depth = text.bytes().try_fold(0_i32, |depth, byte| match byte {
        b'(' => Some(depth + 1),
        b')' if depth == 0 => None,
        b')' => Some(depth - 1),
        _ => Some(depth),
    });
    let has_star = text.split(['(', ')']).any(|item| item.contains('{') && item.contains('*'));
    match () {
        () if text.contains('%') => Err("its filter has a code that is none of a name".to_owned()),
        () if depth != Some(0) => Err("the parentheses of its filter do not fit".to_owned()),
        () if has_star => Err("its filter has a star beside a name".to_owned()),
        () if !text.contains(wanted) => Err("its filter has no name in it".to_owned()),
        () if text.starts_with('(') => Ok(text),
        () => Ok(format!("({text})")),
    }
}

/// The comparisons that all have to hold, without their parentheses; `None` where a filter is of another form.
fn conjuncts(filter: &str) -> Option<Vec<&str>> {
    let inner = filter.strip_prefix('(')?.strip_suffix(')')?;
    let Some(all) = inner.strip_prefix('&') else {
        return (!inner.contains(['(', ')']) && !inner.starts_with(['|', '!'])).then(|| vec![inner]);
    };
    let items: Vec<&str> = all.trim().strip_prefix('(')?.strip_suffix(')')?.split(")(").collect();
    (!items.iter().any(|item| item.contains(['(', ')']) || item.starts_with(['|', '!', '&']))).then_some(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(command: &str) -> Result<Directory, String> {
        // Words in quotation marks come as one from the reader of lines.
        let words = command.split('"').enumerate().flat_map(|(number, part)| match number % 2 {
            1 => vec![part.to_owned()],
            _ => part.split_whitespace().map(str::to_owned).collect(),
        });
        Directory::read(&words.collect::<Vec<_>>())
    }

    fn settings(command: &str) -> String {
        let found = read(command).and_then(|directory| directory.login());
        found.map_or_else(|error| error, |(table, _)| crate::value::Value::Table(table).to_string())
    }

    #[test]
    fn logins_by_ldap() {
        for (command, wanted) in [
            (
                "basic_ldap_auth -b ou=people,dc=a ldap.a.test",
                "{ ldap = [\"ldap://ldap.a.test\"], ldap_user_dn = \"uid={user},ou=people,dc=a\", ldap_cleartext = true }",
            ),
            (
                "/usr/lib/squid/basic_ldap_auth -R -b \"dc=a, dc=b\" -D cn=x,dc=a -W /etc/squid/pw -f sAMAccountName=%s -H ldaps://one.a",
                "{ ldap = [\"ldaps://one.a\"], ldap_base = \"dc=a, dc=b\", ldap_filter = \"(sAMAccountName={user})\", ldap_bind_dn = \"cn=x,dc=a\", ldap_password_file = \"/etc/squid/pw\" }",
            ),
            (
                "basic_ldap_auth -Z -bdc=a -ucn -c 2 -h one -p 390",
                "{ ldap = [\"ldap://one:390\"], ldap_user_dn = \"cn={user},dc=a\", ldap_start_tls = true, ldap_timeout = \"2s\" }",
            ),
            ("basic_ldap_auth -b dc=a", "{ ldap = [\"ldap://localhost\"], ldap_user_dn = \"uid={user},dc=a\" }"),
            ("basic_ldap_auth -b dc=a -D cn=x -w secret", "(-w)"),
            ("basic_ldap_auth -b dc=a -v 2 h", "LDAP 2"),
            ("basic_ldap_auth -b dc=a -s one h", "-s"),
            ("basic_ldap_auth -b dc=a -a always h", "-a"),
            ("basic_ldap_auth -b dc=a -f uid=%s*", "star"),
            ("basic_ldap_auth -b dc=a -f (uid=%s", "parentheses"),
            ("basic_ldap_auth -b dc=a -f uid=ada", "no name"),
            ("basic_ldap_auth -b dc=a -X", "-X"),
            ("basic_ldap_auth ldap.a.test", "no base"),
        ] {
            let found = settings(command);
            assert!(
                if wanted.starts_with('{') { found == wanted } else { found.contains(wanted) },
                "{command}: {found}"
            );
        }
    }

    #[test]
    fn groups_by_ldap() {
        let login = read("basic_ldap_auth -b dc=a -f uid=%s -H ldaps://h").unwrap();
        for (options, wanted) in [
            (
                "-b ou=g,dc=a -f (&(cn=%g)(memberUid=%u)) -H ldaps://h",
                "ldap_groups_base=ou=g,dc=a;ldap_groups_filter=(memberUid={user})",
            ),
            (
                "-b dc=a -f (&(objectClass=groupOfNames)(cn=%a)(member=%v)) -F uid=%s -H ldaps://h",
                "ldap_groups_base=dc=a;ldap_groups_filter=(&(objectClass=groupOfNames)(member={dn}))",
            ),
            (
                "-b dc=a -f (&(objectclass=person)(sAMAccountName=%v)(memberof=cn=%a,ou=g,dc=a)) -H ldaps://h",
                "ldap_groups=memberof;ldap_groups_base=ou=g,dc=a",
            ),
            ("-b dc=a -f (&(cn=%g)(memberUid=%u)) -H ldaps://other", "other servers"),
            ("-b dc=a -f (|(cn=%g)(memberUid=%u)) -H ldaps://h", "all have to hold"),
            ("-b dc=a -f (&(cn=%g)(!(memberUid=%u))) -H ldaps://h", "all have to hold"),
            ("-b dc=a -f (cn=%g) -H ldaps://h", "something else"),
            ("-b dc=a -f (&(memberOf=%g)(uid=%u)) -H ldaps://h", "something else"),
            ("-b dc=a -f (&(cn=%g)(ou=%g)(uid=%u)) -H ldaps://h", "several"),
        ] {
            let found = read(&format!("ext_ldap_group_acl {options}")).and_then(|groups| groups.groups(&login));
            let found =
                found.map(|all| all.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(";"));
            let found = found.unwrap_or_else(|error| error);
            assert!(found == wanted || (!wanted.contains('=') && found.contains(wanted)), "{options}: {found}");
        }
    }
}
