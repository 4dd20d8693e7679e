//! Parents by the variables of the environment that other programs know: `http_proxy`, `https_proxy`, `all_proxy`, and `no_proxy` for hosts that are
//! asked themselves. Read as curl reads them: the lower case goes first, and `HTTP_PROXY` counts only where `REQUEST_METHOD` is not set, for in a
//! CGI program the field `Proxy` of a request has that name.

use super::Config;
use super::next_hop::NextHop;
use super::parent::{DirectHosts, Parent, ParentSchemes};
use larder_rules::network;
use std::collections::HashMap;
use std::sync::Arc;

/// The word for the parents of the environment among the names of parents.
pub const ENVIRONMENT: &str = "environment";

/// The variables, by their names in lower case.
#[derive(Clone, Debug, Default)]
pub struct ProxyVariables(HashMap<&'static str, String>);

const HTTP: &str = "http_proxy";
const HTTPS: &str = "https_proxy";
const ALL: &str = "all_proxy";
const NO: &str = "no_proxy";

impl ProxyVariables {
    /// Those of this process.
    pub fn of_this_process() -> ProxyVariables {
        ProxyVariables::read(|name| std::env::var(name).ok())
    }

    /// Those that `variable` gives.
    fn read(variable: impl Fn(&str) -> Option<String>) -> ProxyVariables {
        let is_cgi = variable("REQUEST_METHOD").is_some();
        let found = |name: &'static str| {
            let upper = || variable(&name.to_ascii_uppercase()).filter(|_| !(name == HTTP && is_cgi));
            Some((name, variable(name).or_else(upper)?.trim().to_owned()))
        };
        ProxyVariables([HTTP, HTTPS, ALL, NO].into_iter().filter_map(found).collect())
    }

    /// The value of a variable that names a parent; an empty one says that there is none.
    fn named(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The parents. `Err` names a variable that names none; its value, which may have a password, is left out.
    fn parents(&self) -> Result<Vec<Parent>, String> {
        let has = |name: &str| self.0.contains_key(name);
        let others = ParentSchemes::Others { has_http: has(HTTP), has_https: has(HTTPS) };
        let mut parents = Vec::new();
        for (name, schemes) in [(HTTP, ParentSchemes::Http), (HTTPS, ParentSchemes::Https), (ALL, others)] {
            let Some(value) = self.named(name) else { continue };
            let with_scheme = if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
            let mut parent = Parent { name: name.to_owned(), schemes, ..Parent::default() };
            if !parent.read_url(&with_scheme) {
                return Err(format!(
                    "the variable {name} of the environment names no proxy of the form http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT"
                ));
            }
            if let Some((user, password)) = parent.login_in_url.take() {
                (parent.user, parent.password) = (user, Some(password));
            }
            parents.push(parent);
        }
        Ok(parents)
    }

    /// The hosts that are asked themselves; `None`: all. A name means the host and all below it, a port behind it is left out.
    fn direct(&self) -> Option<DirectHosts> {
        let mut direct = DirectHosts::default();
        let entries = self.named(NO).unwrap_or_default().split([',', ' ', '\t']).filter(|entry| !entry.is_empty());
        for entry in entries {
            if entry == "*" {
                return None;
            }
            if network(entry).is_some() {
                direct.push(entry);
                continue;
            }
            let name = match entry.rsplit_once(':') {
                Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
                _ => entry,
            };
            let bare = name.trim_start_matches('[').trim_end_matches(']');
            if network(bare).is_some() {
                direct.push(bare);
                continue;
            }
            let name = name.strip_prefix('*').unwrap_or(name);
            // A text that is no host excepts none, as with other programs.
            direct.push(&format!(".{}", name.trim_matches('.')));
        }
        Some(direct)
    }
}

impl Config {
    /// Adds the parents that these variables name, once.
    pub fn take_parents_of_environment(&mut self, variables: &ProxyVariables) -> Result<(), String> {
        let Some(direct) = variables.direct() else { return Ok(()) };
        let parents = variables.parents()?;
        if let Some(taken) = parents.iter().find(|new| self.parents.iter().any(|known| known.name == new.name)) {
            return Err(format!("there is a parent {} already, which is the name of the environment's", taken.name));
        }
        self.forward_parents.direct_by_environment = direct;
        self.parents.extend(parents.into_iter().map(Arc::new));
        Ok(())
    }

    /// The hops that the parents of the environment are.
    pub(super) fn hops_of_environment(&self) -> Vec<NextHop> {
        let is_of_environment = |parent: &Parent| parent.schemes != ParentSchemes::All;
        let places = self.parents.iter().enumerate().filter(|(_, parent)| is_of_environment(parent));
        let hops = places.filter_map(|(place, _)| u8::try_from(place).ok()).map(NextHop::Parent);
        hops.chain([NextHop::DirectIfNone]).collect()
    }

    /// Requests of the forward proxy go through the parents of these variables, where the configuration names none, nor `direct`.
    pub fn with_parents_of_environment(mut self, variables: &ProxyVariables) -> Result<Config, String> {
        if !self.forward_parents.names.is_empty() {
            return Ok(self);
        }
        self.take_parents_of_environment(variables)?;
        let hops = self.hops_of_environment();
        if hops.len() > 1 {
            self.forward_parents.names = vec![ENVIRONMENT.to_owned()];
            self.forward_parents.hops = hops.into();
            self.forward_parents.is_any = true;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_wire::Url;

    fn variables(all: &[(&str, &str)]) -> ProxyVariables {
        let all: HashMap<String, String> =
            all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        ProxyVariables::read(|name| all.get(name).cloned())
    }

    /// The hops of a URL by these variables: names of parents, or `direct`.
    fn hops(all: &[(&str, &str)], url: &str) -> String {
        let config = Config::default().with_parents_of_environment(&variables(all)).unwrap();
        let found = config.next_hops(&Url::parse_asked(url).unwrap(), None);
        found.map_or("direct".to_owned(), |hops| hops.words(&config).join(" "))
    }

    const BOTH: [(&str, &str); 2] = [("http_proxy", "http://a.example:1"), ("https_proxy", "b.example:2")];
    const ONE: [(&str, &str); 1] = [("ALL_PROXY", "socks5h://c.example")];

    #[test]
    fn each_scheme_has_its_variable() {
        for (all, url, wanted) in [
            (&[][..], "http://far.example/", "direct"),
            (&BOTH, "http://far.example/", "http_proxy"),
            (&BOTH, "https://far.example/", "https_proxy"),
            (&BOTH, "ftp://far.example/", "direct"),
            (&BOTH[..1], "https://far.example/", "direct"),
            (&ONE, "http://far.example/", "all_proxy"),
            (&ONE, "ftp://far.example/", "all_proxy"),
            (&[BOTH[0], ONE[0]], "http://far.example/", "http_proxy"),
            (&[BOTH[0], ONE[0]], "https://far.example/", "all_proxy"),
            (&[("http_proxy", ""), ONE[0]], "http://far.example/", "direct"),
            (&[("HTTP_PROXY", "d.example")], "http://far.example/", "http_proxy"),
            (&[("HTTP_PROXY", "d.example"), ("REQUEST_METHOD", "GET")], "http://far.example/", "direct"),
            (&BOTH, "http://localhost/", "direct"),
            (&BOTH, "http://127.0.0.1:8080/", "direct"),
        ] {
            assert_eq!(hops(all, url), wanted, "{all:?} {url}");
        }
    }

    #[test]
    fn hosts_are_excepted() {
        for (no_proxy, host, wanted) in [
            ("corp.example", "corp.example", "direct"),
            ("corp.example", "x.corp.example", "direct"),
            (".corp.example", "corp.example", "direct"),
            ("*.corp.example", "x.corp.example", "direct"),
            ("corp.example", "xcorp.example", "http_proxy"),
            ("other.example, corp.example", "corp.example", "direct"),
            ("other.example corp.example:8080", "corp.example", "direct"),
            ("*", "far.example", "direct"),
            ("10.0.0.0/8", "10.1.2.3", "direct"),
            ("10.0.0.1", "10.0.0.1", "direct"),
            ("10.0.0.1:80", "10.0.0.1", "direct"),
            ("[2001:db8::1]", "[2001:db8::1]", "direct"),
            ("10.0.0.1", "10.0.0.2", "http_proxy"),
            ("a b/c", "far.example", "http_proxy"),
        ] {
            let all = [BOTH[0], ("no_proxy", no_proxy)];
            assert_eq!(hops(&all, &format!("http://{host}/")), wanted, "{no_proxy} {host}");
        }
    }

    #[test]
    fn a_login_is_taken_and_a_wrong_value_is_not_shown() {
        let config = Config::default();
        let all = variables(&[("http_proxy", "http://joe:p%20ear@a.example:1/")]);
        let config = config.with_parents_of_environment(&all).unwrap();
        let parent = &config.parents[0];
        assert_eq!((parent.shown_url().as_str(), parent.user.as_str()), ("http://a.example:1", "joe"));
        assert_eq!(parent.password.as_ref().unwrap().reveal(), "p ear");
        for wrong in
            ["ftp://joe:secret@a.example", "socks4://joe:secret@a.example", "http://joe:secret@a b", "joe:secret@"]
        {
            let trouble =
                Config::default().with_parents_of_environment(&variables(&[("https_proxy", wrong)])).unwrap_err();
            assert!(trouble.contains("https_proxy") && !trouble.contains("secret"), "{wrong}: {trouble}");
        }
        // The configuration goes before.
        let mut said = Config::default();
        said.forward_parents.names = vec!["direct".to_owned()];
        assert!(said.with_parents_of_environment(&all).unwrap().parents.is_empty());
    }
}
