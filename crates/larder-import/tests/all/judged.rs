//! Larder's judgement by the text of an imported configuration: as the server does it, without the server.

use larder_import::Imported;
use larder_rules::rule::Verdict;
use larder_rules::template::Template;
use larder_rules::values::{FieldTest, ListenerPattern, Pattern, PortRange, QueryPattern};
use larder_rules::week::{Window, Zone};
use larder_rules::{Do, Facts, HostPattern, Networks, PathPattern, Rule, Slots, Stop, Table, When, network};
use larder_wire::{Host, Method, Scheme};
use std::net::{IpAddr, SocketAddr};
use toml::Value;

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    pub client: IpAddr,
    pub method: &'static str,
    pub scheme: &'static str,
    pub host: String,
    pub port: u16,
    /// The address to which the name of the host leads.
    pub address: Option<IpAddr>,
    /// Path with query; a CONNECT has none.
    pub path: String,
    pub fields: Vec<(&'static str, String)>,
    /// Minutes since 1970.
    pub minute: i64,
    pub listener: SocketAddr,
    /// The user, where the request has a credential that is right.
    pub user: Option<&'static str>,
}

/// An imported configuration, read as Larder reads it.
pub struct Judge {
    table: Table,
    rules: Vec<Rule>,
    clients: Networks,
    connect_ports: Vec<u16>,
    login: bool,
}

impl Judge {
    pub fn of(imported: &Imported) -> Judge {
        let config: toml::Table = imported.toml.parse().unwrap_or_else(|error| panic!("{error}\n{}", imported.toml));
        let rules: Vec<Rule> = tables(config.get("rule")).map(rule).collect();
        let access = config.get("access").and_then(Value::as_table).cloned().unwrap_or_default();
        Judge {
            table: Table::new(rules.clone()).unwrap_or_else(|trouble| panic!("{trouble}\n{}", imported.toml)),
            rules,
            clients: texts(access.get("clients")).iter().map(|text| network(text).unwrap()).collect(),
            connect_ports: access
                .get("connect_ports")
                .and_then(Value::as_array)
                .map(|ports| ports.iter().map(|port| u16::try_from(port.as_integer().unwrap()).unwrap()).collect())
                .unwrap_or_default(),
            login: access.contains_key("login"),
        }
    }

    /// Whether the request goes on through the forward proxy.
    pub fn allows(&self, request: &Request) -> bool {
        let seen = Seen::of(request, self);
        let is_connect = request.method == "CONNECT";
        if !self.clients.contains(request.client) {
            return false;
        }
        if is_connect && !self.connect_ports.is_empty() && !self.connect_ports.contains(&request.port) {
            return false;
        }
        let Ok(matched) = self.table.judge(&seen) else { return false };
        let verdict =
            matched.iter().filter_map(|number| self.rules[usize::from(number)].does.verdict.clone()).next_back();
        match verdict {
            Some(Verdict::Deny { .. } | Verdict::Redirect { .. }) => return false,
            Some(Verdict::Login(_)) if request.user.is_none() => return false,
            _ => {}
        }
        // The connection leads to this address, which each rule that holds but for it may close.
        let Ok(closed) = self.table.by_destination(&seen, &matched) else { return false };
        let leads_to = request.address.or_else(|| request.host.parse().ok());
        if closed.iter().any(|number| {
            leads_to.is_some_and(|address| self.rules[usize::from(*number)].when.destination.contains(address))
        }) {
            return false;
        }
        !self.login || request.user.is_some()
    }

    /// The effects of all rules that hold, as words.
    pub fn effects(&self, request: &Request) -> Vec<String> {
        let seen = Seen::of(request, self);
        let matched = self.table.judge(&seen).unwrap();
        matched.iter().flat_map(|number| self.rules[usize::from(number)].does.words()).collect()
    }
}

fn tables(value: Option<&Value>) -> impl Iterator<Item = &toml::Table> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_table)
}

fn texts(value: Option<&Value>) -> Vec<String> {
    match value {
        None => Vec::new(),
        Some(Value::Array(items)) => items.iter().map(|item| item.as_str().unwrap().to_owned()).collect(),
        Some(other) => vec![other.as_str().unwrap().to_owned()],
    }
}

fn rule(table: &toml::Table) -> Rule {
    let does = table["do"].as_table().unwrap();
    let flag = |key: &str| does.get(key).and_then(Value::as_bool) == Some(true);
    let status = does.get("status").and_then(Value::as_integer).unwrap_or(403) as u16;
    let verdict = if flag("allow") {
        Some(Verdict::Allow)
    } else if flag("deny") {
        Some(Verdict::Deny { status, page: None })
    } else if let Some(to) = does.get("redirect") {
        Some(Verdict::Redirect { status, to: Template::parse(to.as_str().unwrap()).unwrap() })
    } else {
        does.get("login").map(|name| Verdict::Login(name.as_str().unwrap().into()))
    };
    let mut effects = Do { verdict, never: flag("never"), ..Do::default() };
    effects.request.remove = texts(does.get("remove")).into_iter().map(Into::into).collect();
    effects.route = does.get("route").map(|route| route.as_str().unwrap().into());
    effects.parents = texts(does.get("parents")).into_iter().map(Into::into).collect();
    effects.parents_except = texts(does.get("parents_except")).into_iter().map(Into::into).collect();
    effects.bandwidth = texts(does.get("bandwidth")).into_iter().map(Into::into).collect();
    effects.mark = does.get("mark").map(|mark| mark.as_str().unwrap().into());
    let when = table.get("when").map(|when| condition(when.as_table().unwrap())).unwrap_or_default();
    Rule { when: when.into(), does: effects, ..Rule::default() }
}

fn condition(table: &toml::Table) -> When {
    let mut when = When::default();
    for (key, value) in table {
        let values = || texts(Some(value));
        match key.as_str() {
            "method" => when.method = values().iter().map(|text| Method::from_token(text)).collect(),
            "scheme" => {
                let scheme = |text: &String| if text == "https" { Scheme::Https } else { Scheme::Http };
                when.scheme = values().iter().map(scheme).collect();
            }
            "listener" => when.listener = values().iter().map(|text| ListenerPattern::parse(text).unwrap()).collect(),
            "port" => when.port = values().iter().map(|text| PortRange::parse(text).unwrap()).collect(),
            "host" => when.host = values().iter().map(|text| HostPattern::parse(text).unwrap()).collect(),
            "client" => when.client = values().iter().map(|text| network(text).unwrap()).collect(),
            "time" => when.time = values().iter().map(|text| Window::parse(text).unwrap()).collect(),
            "zone" => when.zone = Zone::find(value.as_str().unwrap()).unwrap(),
            "path" => when.path = values().iter().map(|text| PathPattern::parse(text).unwrap()).collect(),
            "path_regex" => when.path_regex = values().iter().map(|text| Pattern::parse(text).unwrap()).collect(),
            "target_regex" => when.target_regex = values().iter().map(|text| Pattern::parse(text).unwrap()).collect(),
            "url_regex" => when.url_regex = values().iter().map(|text| Pattern::parse(text).unwrap()).collect(),
            "host_regex" => when.host_regex = values().iter().map(|text| Pattern::parse(text).unwrap()).collect(),
            "destination" => when.destination = values().iter().map(|text| network(text).unwrap()).collect(),
            "query" => when.query = values().iter().map(|text| QueryPattern::parse(text).unwrap()).collect(),
            "list" => when.list = values().into_iter().map(Into::into).collect(),
            "user" => when.user = values().into_iter().map(Into::into).collect(),
            "group" => when.group = values().into_iter().map(Into::into).collect(),
            "field" => {
                for (name, value) in value.as_table().unwrap() {
                    let tests = texts(Some(value)).iter().map(|text| FieldTest::parse(text).unwrap()).collect();
                    when.fields.push((name.as_str().into(), tests));
                }
            }
            "not" | "any" => {
                let nested: Vec<When> = match value {
                    Value::Array(items) => items.iter().map(|item| condition(item.as_table().unwrap())).collect(),
                    other => vec![condition(other.as_table().unwrap())],
                };
                assert!(nested.iter().all(|when| !when.is_empty()), "a condition without a matcher: {table:?}");
                *(if key == "not" { &mut when.not } else { &mut when.any }) = nested;
            }
            other => panic!("there is no matcher {other}"),
        }
    }
    when
}

/// A request as rules see it.
struct Seen<'a> {
    request: &'a Request,
    judge: &'a Judge,
    method: Method,
    host: Host,
    path: &'a str,
    query: Option<&'a str>,
}

impl<'a> Seen<'a> {
    fn of(request: &'a Request, judge: &'a Judge) -> Seen<'a> {
        let (path, query) =
            request.path.split_once('?').map_or((request.path.as_str(), None), |(path, query)| (path, Some(query)));
        Seen {
            request,
            judge,
            method: Method::from_token(request.method),
            host: Host::parse(&request.host).unwrap(),
            path,
            query,
        }
    }
}

impl Facts for Seen<'_> {
    fn method(&self) -> &Method {
        &self.method
    }
    fn scheme(&self) -> Scheme {
        if self.request.scheme == "https" { Scheme::Https } else { Scheme::Http }
    }
    fn listener(&self) -> SocketAddr {
        self.request.listener
    }
    fn port(&self) -> u16 {
        self.request.port
    }
    fn host(&self) -> &Host {
        &self.host
    }
    fn client(&self) -> IpAddr {
        self.request.client
    }
    fn minute(&self) -> i64 {
        self.request.minute
    }
    fn sni(&self) -> Option<&str> {
        None
    }
    fn each_certificate_name(&self, _: &mut dyn FnMut(&str)) {}
    fn each_line(&self, name: &str, each: &mut dyn FnMut(&[u8])) {
        let lines = self.request.fields.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        lines.for_each(|(_, line)| each(line.as_bytes()));
    }
    fn path(&self) -> Result<Option<&[u8]>, Stop> {
        Ok((self.method != Method::Connect).then_some(self.path.as_bytes()))
    }
    fn sent_path(&self) -> Result<Option<&str>, Stop> {
        Ok((self.method != Method::Connect).then_some(self.path))
    }
    fn query(&self) -> Option<&str> {
        self.query
    }
    fn in_list(&self, _: &str) -> bool {
        false
    }
    fn country(&self) -> Option<[u8; 2]> {
        None
    }
    fn user(&self) -> Result<Option<&str>, Stop> {
        match (self.judge.login, self.request.user) {
            // Where no login counts, a rule about users does not hold.
            (false, _) => Ok(None),
            (true, None) => Err(Stop::NeedsUser),
            (true, user) => Ok(user),
        }
    }
    fn each_group(&self, _: &mut dyn FnMut(&str)) -> Result<(), Stop> {
        Ok(())
    }
    fn country_of(&self, _: IpAddr) -> Option<[u8; 2]> {
        None
    }

    fn each_destination(&self, each: &mut dyn FnMut(IpAddr)) -> Result<(), Stop> {
        self.host.ip().into_iter().for_each(each);
        Ok(())
    }
    fn depends_on(&self, _: Slots) {}
}
