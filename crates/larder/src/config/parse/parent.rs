//! Reads the tables `[[parent]]`, and finds those that the forward proxy names.

use super::Parser;
use crate::config::forward::ParentsBy;
use crate::config::next_hop::{DIRECT, NextHop};
use crate::config::parent::{PARENT, Parent, ParentProtocol, SIBLING, Sibling};
use crate::config::proxy_variables::{ENVIRONMENT, ProxyVariables};
use larder_balance::Carp;
use larder_wire::socks;
use std::ops::Range;
use std::sync::Arc;
use toml::Spanned;
use toml::de::DeValue;

/// Parents of one configuration.
const PARENTS_MAX: usize = 64;
/// Siblings of one configuration: each is asked about each miss.
const SIBLINGS_MAX: usize = 32;
/// Names that no parent may have, with their meaning.
const RESERVED: [(&str, &str); 2] = [(DIRECT, "the origin itself"), (ENVIRONMENT, "the parents of the environment")];

impl Parser {
    pub(super) fn parents(&mut self, value: &Spanned<DeValue<'_>>) {
        self.said_in_file("parent", value);
        for (span, table) in self.tables("parent", value) {
            let mut parent = Parent::default();
            let missing = self.entry("parent", PARENT, &span, table, &mut parent, &[]);
            parent.place = self.place(&span);
            if missing {
                continue;
            }
            if let Some((user, password)) = parent.login_in_url.take() {
                if !parent.user.is_empty() || parent.password.is_some() {
                    let hint = Some("write it in `url`, or as `user` and `password`".to_owned());
                    self.problem(span.clone(), format!("the parent {} has two logins", parent.name), hint);
                }
                (parent.user, parent.password) = (user, Some(password));
            }
            if parent.protocol == ParentProtocol::Socks5 {
                self.check_socks(&span, &parent);
            }
            if parent.user.is_empty() != parent.password.is_none() {
                let hint = Some("write `user` and `password`, or neither".to_owned());
                self.problem(span.clone(), format!("the parent {} has half a login", parent.name), hint);
            }
            if self.loaded.config.parents.iter().any(|other| other.name == parent.name) {
                self.problem(span.clone(), format!("there is a parent {} already", parent.name), None);
            }
            if let Some((_, means)) = RESERVED.iter().find(|(name, _)| *name == parent.name) {
                let hint = "give it another name".to_owned();
                self.problem(span.clone(), format!("`{}` stands for {means}", parent.name), Some(hint));
            }
            if self.loaded.config.parents.len() == PARENTS_MAX {
                self.problem(span, format!("there are more than {PARENTS_MAX} parents"), None);
            }
            self.loaded.config.parents.push(Arc::new(parent));
        }
    }

    /// A parent that speaks SOCKS answers no questions, and its logins are short.
    fn check_socks(&mut self, span: &Range<usize>, parent: &Parent) {
        let mut wrong = |message: &str, hint: &str| {
            self.problem(span.clone(), format!("the parent {} {message}", parent.name), Some(hint.to_owned()));
        };
        if parent.questions.is_any() {
            wrong("speaks SOCKS and is no cache", "take `icp_port` and `htcp_port` out");
        }
        let is_long = |text: &str| text.is_empty() || text.len() > socks::TEXT_BYTES_MAX;
        if parent.password.as_ref().is_some_and(|password| is_long(&parent.user) || is_long(password.reveal())) {
            wrong("has a login that SOCKS can't carry", "user and password have from 1 to 255 bytes each");
        }
    }

    pub(super) fn siblings(&mut self, value: &Spanned<DeValue<'_>>) {
        self.said_in_file("sibling", value);
        for (span, table) in self.tables("sibling", value) {
            let mut sibling = Sibling::default();
            let missing = self.entry("sibling", SIBLING, &span, table, &mut sibling, &[]);
            sibling.place = self.place(&span);
            if missing {
                continue;
            }
            if !sibling.questions.is_any() {
                let hint = Some("write `icp_port = 3130` or `htcp_port = 4827`, as it has them".to_owned());
                self.problem(span.clone(), format!("the sibling {} can't be asked", sibling.name), hint);
            }
            if self.loaded.config.siblings.iter().any(|other| other.name == sibling.name) {
                self.problem(span.clone(), format!("there is a sibling {} already", sibling.name), None);
            }
            if self.loaded.config.siblings.len() == SIBLINGS_MAX {
                self.problem(span, format!("there are more than {SIBLINGS_MAX} siblings"), None);
            }
            self.loaded.config.siblings.push(Arc::new(sibling));
        }
    }

    /// Finds the parents that `forward.parents` names.
    pub(super) fn forward_parents(&mut self) {
        let of_rules =
            self.table_rules.iter().flat_map(|(_, rule)| rule.does.parents.iter().chain(&rule.does.parents_except));
        let is_meant = |name: &str| name == ENVIRONMENT;
        let names = self.loaded.config.forward_parents.names.clone();
        let takes = names.iter().any(|name| is_meant(name)) || of_rules.into_iter().any(|name| is_meant(name));
        if takes
            && let Err(message) = self.loaded.config.take_parents_of_environment(&ProxyVariables::of_this_process())
        {
            let hint = "correct the variable, or name other parents in `forward.parents`";
            self.conflict("forward.parents", &message, Some(hint));
        }
        let hops = match self.hops(&names) {
            Ok(hops) => hops,
            Err((message, hint)) => {
                self.conflict("forward.parents", &message, Some(&hint));
                Vec::new()
            }
        };
        let config = &mut self.loaded.config;
        let forward = &mut config.forward_parents;
        let parent = |hop: &NextHop| match hop {
            NextHop::Parent(place) => config.parents.get(usize::from(*place)),
            NextHop::Direct | NextHop::DirectIfNone => None,
        };
        let array = || Carp::new(&hops.iter().filter_map(parent).map(|it| (&*it.name, 1)).collect::<Vec<_>>());
        forward.carp = (forward.by == ParentsBy::Carp).then(array);
        forward.hops = hops.into();
        forward.is_any = !forward.hops.is_empty();
        forward.are_asked = forward.is_any && config.parents.iter().any(|parent| parent.questions.is_any());
    }

    /// The hops of these names; `Err` has a message and a hint.
    pub(super) fn hops(&self, names: &[String]) -> Result<Vec<NextHop>, (String, String)> {
        let mut hops = Vec::new();
        for name in names {
            if hops.last() == Some(&NextHop::Direct) {
                let message = format!("nothing is tried behind `{DIRECT}`");
                return Err((message, format!("write `{DIRECT}` as the last name")));
            }
            let known = self.loaded.config.parents.iter().position(|parent| parent.name == *name);
            match known.and_then(|place| u8::try_from(place).ok()) {
                _ if name == DIRECT => hops.push(NextHop::Direct),
                _ if name == ENVIRONMENT => hops.extend(self.loaded.config.hops_of_environment()),
                Some(place) if hops.contains(&NextHop::Parent(place)) => {
                    return Err((format!("the parent {name} is named twice"), "name it once".to_owned()));
                }
                Some(place) => hops.push(NextHop::Parent(place)),
                None if self.is_faulty("parent", name) => {}
                None => {
                    let hint = format!("write a [[parent]] with `name = \"{name}\"`");
                    return Err((format!("there is no parent {name}"), hint));
                }
            }
        }
        Ok(hops)
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Loaded;
    use crate::config::next_hop::{HopsByRule, HopsOrder, NextHop};
    use larder_wire::Url;

    #[test]
    fn parents_are_read_and_wrong_ones_are_named() {
        let read = |text: &str| Loaded::parse("p.toml", text, &[]).map_err(|report| report.to_string());
        let one = "[[parent]]\nname = \"a\"\nurl = \"http://proxy.example:8080\"\n";
        let loaded = read(&format!("{one}user = \"u\"\npassword = \"p\"\n[forward]\nparents = [\"a\"]\n")).unwrap();
        assert_eq!(*loaded.config.forward_parents.hops, [NextHop::Parent(0)]);
        let parent = &loaded.config.parents[0];
        assert_eq!((parent.url.host.as_str(), parent.url.port, parent.user.as_str()), ("proxy.example", 8080, "u"));
        let ports = format!("{one}icp_port = 3130\n{}htcp_port = 4827\n", one.replace("parent", "sibling"));
        let loaded = read(&ports).unwrap();
        let (parent, sibling) = (&loaded.config.parents[0], &loaded.config.siblings[0]);
        assert_eq!((parent.questions.icp, parent.questions.htcp), (Some(3130), None));
        assert_eq!((sibling.questions.icp, sibling.questions.htcp), (None, Some(4827)));
        for (text, wanted) in [
            (format!("{one}{one}"), "there is a parent a already"),
            (format!("{one}user = \"u\"\n"), "half a login"),
            (format!("{one}user = \"u:v\"\npassword = \"p\"\n"), "u:v"),
            (one.replace("http:", "ftp:"), "http://HOST:PORT"),
            (one.replace("8080", "8080/x"), "http://HOST:PORT"),
            (format!("{}icp_port = 3130\n", one.replace("http:", "socks5:")), "speaks SOCKS and is no cache"),
            (one.replace("http://", "http://u:p@") + "user = \"u\"\npassword = \"p\"\n", "has two logins"),
            (one.replace("http://", "socks5://u@"), "a login that SOCKS can't carry"),
            (one.replace("http://", "socks5://u:%zz@"), "socks5://HOST:PORT"),
            (one.replace("http://", "socks4://"), "socks5://HOST:PORT"),
            (one.replace("\"a\"", "\"environment\""), "stands for the parents of the environment"),
            (format!("{one}icp_port = 0\n"), "between 1 and 65535"),
            (one.replace("parent", "sibling"), "the sibling a can't be asked"),
            (one.replace("parent", "sibling").replace("8080\"", "8080\"\nhtcp_port = 70000"), "70000 is out of range"),
            ("[[parent]]\nname = \"a\"\n".to_owned(), "url"),
            ("[forward]\nparents = [\"b\"]\n".to_owned(), "there is no parent b"),
            (format!("{one}[forward]\nparents = [\"direct\", \"a\"]\n"), "nothing is tried behind `direct`"),
            (format!("{one}[forward]\nparents = [\"a\", \"a\"]\n"), "the parent a is named twice"),
            (one.replace("\"a\"", "\"direct\""), "stands for the origin itself"),
            ("[forward]\ndirect = [\"a b\"]\n".to_owned(), "a b"),
        ] {
            let report = read(&text).unwrap_err();
            assert!(report.contains(wanted) && report.contains("p.toml"), "{text}:\n{report}");
        }
    }

    #[test]
    fn urls_of_parents_have_protocols_ports_and_logins() {
        let read = |url: &str| {
            let text = format!("[[parent]]\nname = \"a\"\nurl = \"{url}\"\n");
            let loaded = Loaded::parse("p.toml", &text, &[]).unwrap_or_else(|report| panic!("{url}: {report}"));
            let parent = loaded.config.parents[0].clone();
            let password = parent.password.as_ref().map_or(String::new(), |password| password.reveal().to_owned());
            (parent.shown_url(), parent.user.clone(), password)
        };
        for (url, shown, user, password) in [
            ("http://proxy.example", "http://proxy.example:80", "", ""),
            ("https://joe:pear@proxy.example", "https://proxy.example:443", "joe", "pear"),
            ("http://proxy.example:80/", "http://proxy.example:80", "", ""),
            ("HTTP://proxy.example:8080", "http://proxy.example:8080", "", ""),
            ("socks5://proxy.example", "socks5://proxy.example:1080", "", ""),
            ("socks5h://proxy.example:1081", "socks5://proxy.example:1081", "", ""),
            ("socks5://joe:p%40ear@[::1]:9", "socks5://[::1]:9", "joe", "p@ear"),
            ("http://joe:a:b@proxy.example:1", "http://proxy.example:1", "joe", "a:b"),
            ("http://joe@[::1]", "http://[::1]:80", "joe", ""),
        ] {
            assert_eq!(read(url), (shown.to_owned(), user.to_owned(), password.to_owned()), "{url}");
        }
    }

    #[test]
    fn a_wrong_url_is_reported_without_its_login() {
        let text = "[[parent]]\nname = \"a\"\nurl = \"ftp://joe:pear@proxy.example\"\n";
        let report = Loaded::parse("p.toml", text, &[]).map_err(|report| report.to_string()).unwrap_err();
        assert!(report.contains("ftp://********@proxy.example") && !report.contains("joe:"), "{report}");
    }

    /// Which hops a URL has, by `forward` and by rules.
    #[test]
    fn hops_follow_rules_then_direct_hosts_then_the_list() {
        let table = |name: &str| format!("[[parent]]\nname = \"{name}\"\nurl = \"http://{name}.example:3128\"\n");
        let text = format!(
            "{}{}{}[forward]\nparents = [\"b\", \"a\", \"direct\"]\ndirect = [\"*.corp.example\"]\n",
            table("a"),
            table("b"),
            table("c")
        );
        let config = Loaded::parse("p.toml", &text, &[]).unwrap_or_else(|report| panic!("{report}")).config;
        let hops = |url: &str, by_rule: Option<&HopsByRule>| {
            let found = config.next_hops(&Url::parse(url).unwrap(), by_rule);
            found.map(|found| found.words(&config).join(" "))
        };
        let rule = |instead: Option<&[NextHop]>, without: &[NextHop]| HopsByRule {
            instead: instead.map(Into::into),
            without: without.into(),
        };
        let (a, b, c) = (NextHop::Parent(0), NextHop::Parent(1), NextHop::Parent(2));
        let (far, near) = ("http://far.example/", "https://x.corp.example/");
        let only_c = rule(Some(&[c]), &[]);
        for (url, by_rule, wanted) in [
            (far, None, Some("b a direct")),
            (near, None, None),
            ("http://localhost/", None, None),
            ("http://[::ffff:127.0.0.1]/", Some(&only_c), None),
            (far, Some(&only_c), Some("c")),
            (near, Some(&only_c), Some("c")),
            (far, Some(&rule(Some(&[NextHop::Direct]), &[])), None),
            (far, Some(&rule(None, &[NextHop::Direct])), Some("b a")),
            (near, Some(&rule(None, &[NextHop::Direct])), Some("b a")),
            (near, Some(&rule(None, &[b])), None),
            (far, Some(&rule(None, &[a, b])), None),
            (far, Some(&rule(None, &[a, b, NextHop::Direct])), Some("")),
            (far, Some(&rule(None, &[a]).and(&only_c)), Some("c")),
            (far, Some(&only_c.and(&rule(None, &[c]))), Some("")),
        ] {
            assert_eq!(hops(url, by_rule).as_deref(), wanted, "{url} {by_rule:?}");
        }
        let found = config.next_hops(&Url::parse(far).unwrap(), None).unwrap();
        let led = found.clone().with_first(0, HopsOrder::Hit);
        assert_eq!((led.words(&config).join(" ").as_str(), led.order), ("a b direct", HopsOrder::Hit));
        assert_eq!(found.clone().with_first(2, HopsOrder::Hit), found, "no other hop than those that are meant");
    }
}
