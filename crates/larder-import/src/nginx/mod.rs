//! nginx: servers and their locations become sites, and rules for what is said of them.

mod bandwidth;
mod caching;
mod compression;
pub(crate) mod condition;
mod directives;
mod flow;
mod parse;
pub(crate) mod serve;

use crate::bound::Cond;
use crate::draft::{Draft, NoteId, Ruling};
use crate::note::Fate;
use crate::value::{Table, Value};
use crate::{Files, Settings};
use larder_rules::HostPattern;
use parse::Directive;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Reads a source.
pub fn read(text: &str, settings: &Settings, files: &mut dyn Files) -> Draft {
    let parsed = parse::parse(text, &settings.name, files);
    let mut reader = Reader::default();
    let root = reader.noted(parsed);
    reader.find_parts(&root, &[]);
    let servers = std::mem::take(&mut reader.servers);
    let named: Vec<Vec<String>> = servers.iter().map(|server| server.hosts.clone()).collect();
    for (number, server) in servers.iter().enumerate() {
        let others: Vec<String> = named
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != number)
            .flat_map(|(_, hosts)| hosts.clone())
            .collect();
        reader.server(server, &others);
    }
    reader.finish(&root);
    reader.draft
}

/// A directive with its note.
#[derive(Clone, Debug)]
struct Noted {
    name: String,
    words: Vec<String>,
    block: Option<Vec<Noted>>,
    note: NoteId,
}

impl Noted {
    fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }

    fn inner(&self) -> &[Noted] {
        self.block.as_deref().unwrap_or_default()
    }
}

/// A `server`, with the levels that it stands in, the outermost first.
struct Server {
    levels: Vec<Vec<Noted>>,
    hosts: Vec<String>,
    listeners: Vec<Listener>,
    note: NoteId,
}

#[derive(Clone, Debug)]
struct Listener {
    address: SocketAddr,
    is_tls: bool,
    speaks_http3: bool,
    is_default: bool,
    /// Whether its connections begin with a header of the PROXY protocol.
    has_proxy_header: bool,
    /// The networks whose headers are believed.
    balancers: Vec<String>,
    note: NoteId,
}

/// A group of servers.
struct Upstream {
    name: String,
    table: Table,
    notes: Vec<NoteId>,
    is_used: bool,
    only: Option<String>,
}

#[derive(Default)]
struct Reader {
    draft: Draft,
    servers: Vec<Server>,
    upstreams: Vec<Upstream>,
    /// Rates by the name of their zone.
    rates: Vec<(String, String, String, NoteId)>,
    /// Rules without a verdict come before those with one.
    effects: Vec<Ruling>,
    verdicts: Vec<Ruling>,
    disk_bytes: u64,
    body_bytes: Option<u64>,
}

impl Reader {
    fn noted(&mut self, directives: Vec<Directive>) -> Vec<Noted> {
        let mut all = Vec::new();
        for directive in directives {
            let note = self.draft.note(&directive.file, directive.line, &directive.text());
            if let Some(trouble) = &directive.trouble {
                self.draft.guards(note);
                self.draft.fate(note, Fate::Missing, trouble);
            }
            let block = directive.block.map(|inner| self.noted(inner));
            all.push(Noted { name: directive.name, words: directive.words, block, note });
        }
        all
    }

    /// Finds servers, groups and zones.
    fn find_parts(&mut self, directives: &[Noted], outer: &[Vec<Noted>]) {
        let plain = |all: &[Noted]| all.iter().filter(|one| one.name != "server").cloned().collect::<Vec<_>>();
        let mut levels = outer.to_vec();
        levels.push(plain(directives));
        for directive in directives {
            match directive.name.as_str() {
                "http" => {
                    self.draft.translated(directive.note);
                    self.find_parts(directive.inner(), &levels);
                }
                "server" if directive.block.is_some() => self.find_server(directive, &levels),
                "upstream" => self.upstream(directive),
                "proxy_cache_path" => self.cache_path(directive),
                "limit_req_zone" => self.rate_zone(directive),
                "stream" | "mail" => {
                    self.draft.fate(directive.note, Fate::Missing, "Larder speaks HTTP alone");
                    self.drop_all(directive.inner(), "Larder speaks HTTP alone");
                }
                "events" => {
                    self.draft.fate(directive.note, Fate::NotNeeded, "there is a worker for each core");
                    for inner in directive.inner() {
                        self.draft.fate(inner.note, Fate::NotNeeded, "limits.connections_max bounds connections");
                    }
                }
                "map" | "geo" | "split_clients" | "types" => {
                    let (fate, text) = match directive.name.as_str() {
                        "types" => (Fate::NotNeeded, "Larder serves no files"),
                        "map" if directive.word(0) == "$http_upgrade" => (Fate::NotNeeded, "upgrades pass"),
                        _ => (
                            Fate::Missing,
                            "there are no variables: a hook in Python decides by more (docs/recipes.md)",
                        ),
                    };
                    self.draft.fate(directive.note, fate, text);
                    self.drop_all(directive.inner(), "a part of the above");
                }
                _ => {}
            }
        }
    }

    fn drop_all(&mut self, directives: &[Noted], text: &str) {
        for directive in directives {
            self.draft.fate(directive.note, Fate::NotNeeded, text);
            self.drop_all(directive.inner(), text);
        }
    }

    fn find_server(&mut self, directive: &Noted, outer: &[Vec<Noted>]) {
        let mut levels = outer.to_vec();
        levels.push(directive.inner().to_vec());
        let mut listeners = Vec::new();
        let mut names = Vec::new();
        for inner in directive.inner() {
            match inner.name.as_str() {
                "listen" => listeners.extend(self.listen(inner)),
                "server_name" => {
                    let (hosts, wrong) = condition::hosts(inner.words.iter().map(String::as_str));
                    names.extend(hosts);
                    match wrong.is_empty() {
                        true => self.draft.translated(inner.note),
                        false => {
                            let text = format!("{}: hosts are names and *.name, and no expressions", wrong.join(" "));
                            self.draft.fate(inner.note, Fate::Missing, &text);
                        }
                    }
                }
                _ => {}
            }
        }
        let is_default = listeners.iter().any(|listener: &Listener| listener.is_default);
        if listeners.is_empty() {
            let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 80));
            listeners.push(Listener {
                address,
                is_tls: false,
                speaks_http3: false,
                is_default: false,
                has_proxy_header: false,
                balancers: Vec::new(),
                note: directive.note,
            });
        }
        self.balancers(&levels, &mut listeners);
        if names.is_empty() || is_default {
            names.push("*".to_owned());
        }
        self.draft.translated(directive.note);
        self.servers.push(Server { levels, hosts: names, listeners, note: directive.note });
    }

    fn listen(&mut self, directive: &Noted) -> Option<Listener> {
        let text = directive.word(0);
        if text.starts_with("unix:") {
            self.draft.fate(
                directive.note,
                Fate::Missing,
                "write it as address = \"unix:/PATH\" of a [[listen]] (docs/unix-sockets.md)",
            );
            return None;
        }
        let address = match (text.parse::<u16>(), text.parse::<SocketAddr>(), text.parse::<IpAddr>()) {
            (Ok(port), ..) if port > 0 => Some(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))),
            (_, Ok(address), _) => Some(address),
            (.., Ok(host)) => Some(SocketAddr::new(host, 80)),
            _ => text
                .rsplit_once(':')
                .and_then(|(_, port)| port.parse().ok())
                .map(|port: u16| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))),
        };
        let Some(address) = address.filter(|address| address.port() > 0) else {
            self.draft.fate(directive.note, Fate::Missing, "it is no address and no port");
            return None;
        };
        let has = |word: &str| directive.words.iter().any(|known| known == word);
        self.draft.translated(directive.note);
        Some(Listener {
            address,
            is_tls: has("ssl") || has("quic"),
            speaks_http3: has("quic"),
            is_default: has("default_server") || has("default"),
            has_proxy_header: has("proxy_protocol"),
            balancers: Vec::new(),
            note: directive.note,
        })
    }

    /// Names the balancers at listeners whose connections begin with a header: those whose word nginx takes for the client's address.
    fn balancers(&mut self, levels: &[Vec<Noted>], listeners: &mut [Listener]) {
        let innermost = |name: &str| {
            let of_level =
                |level: &Vec<Noted>| level.iter().filter(|one| one.name == name).cloned().collect::<Vec<_>>();
            levels.iter().rev().map(of_level).find(|found| !found.is_empty()).unwrap_or_default()
        };
        let (field, named) = (innermost("real_ip_header"), innermost("set_real_ip_from"));
        let networks: Vec<String> = named.iter().map(|one| one.word(0).to_owned()).collect();
        let is_believed = field.iter().any(|one| one.word(0) == "proxy_protocol")
            && !networks.is_empty()
            && networks.iter().all(|text| larder_rules::network(text).is_some());
        for listener in listeners.iter_mut().filter(|listener| listener.has_proxy_header) {
            if is_believed {
                listener.balancers.clone_from(&networks);
                field.iter().chain(&named).for_each(|one| self.draft.translated(one.note));
                continue;
            }
            self.draft.guards(listener.note);
            self.draft.fate(
                listener.note,
                Fate::Missing,
                "name the balancers in proxy_protocol of this listener: until then their connections are refused as malformed (docs/proxy-protocol.md)",
            );
        }
    }

    fn upstream(&mut self, directive: &Noted) {
        let name = self.draft.free_name("origin", directive.word(0));
        let mut members: Vec<Value> = Vec::new();
        let (mut eject, mut notes) = (Table::default(), vec![directive.note]);
        let mut table = Table::default().with("name", name).with("balance", "round-robin");
        let mut urls: Vec<String> = Vec::new();
        for inner in directive.inner() {
            notes.push(inner.note);
            self.draft.translated(inner.note);
            match inner.name.as_str() {
                "server" => match self.member(inner, &mut eject) {
                    Some((url, member)) if !urls.contains(&url) => {
                        urls.push(url);
                        members.push(member.into());
                    }
                    Some(_) => self.draft.fate(inner.note, Fate::Different, "it is a member already"),
                    None => {}
                },
                "least_conn" => table.set("balance", "least-connections"),
                "random" => table.set("balance", "p2c"),
                "ip_hash" => {
                    table.set("balance", "ring-hash");
                    table.set("key", "client");
                }
                "hash" => {
                    table.set("balance", "ring-hash");
                    let key = match inner.word(0) {
                        "$remote_addr" | "$binary_remote_addr" => "client".to_owned(),
                        key if key.starts_with("$cookie_") => format!("cookie:{}", &key["$cookie_".len()..]),
                        key if key.starts_with("$http_") => {
                            format!("field:{}", condition::capitals(&key["$http_".len()..].replace('_', "-")))
                        }
                        _ => "url".to_owned(),
                    };
                    table.set("key", key);
                }
                "keepalive" => match inner.word(0).parse::<u64>() {
                    Ok(count) => self.draft.set("upstream.idle_per_origin_max", count.min(1_000_000), &[inner.note]),
                    Err(_) => self.draft.fate(inner.note, Fate::Missing, "it is no number"),
                },
                "zone" | "keepalive_timeout" | "keepalive_requests" | "keepalive_time" => {
                    self.draft.fate(inner.note, Fate::NotNeeded, "all workers share the state of a group");
                }
                _ => self.draft.fate(inner.note, Fate::Missing, "groups have no such setting"),
            }
        }
        if !eject.0.is_empty() {
            table.set("eject", eject);
        }
        let is_plain = members.len() == 1 && table.find("eject").is_none();
        table.set("members", Value::List(members));
        let only = urls.first().filter(|_| is_plain).cloned();
        self.upstreams.push(Upstream { name: directive.word(0).to_owned(), table, notes, is_used: false, only });
    }

    fn member(&mut self, inner: &Noted, eject: &mut Table) -> Option<(String, Table)> {
        let Some(url) = serve::origin_url("http", inner.word(0)) else {
            self.draft.fate(inner.note, Fate::Missing, "it is no host with a port and no socket");
            return None;
        };
        let mut member = Table::default().with("url", url.as_str());
        for word in inner.words.iter().skip(1) {
            let number = || word.split_once('=').and_then(|(_, value)| value.trim_end_matches('s').parse::<u64>().ok());
            match word.split('=').next().unwrap_or_default() {
                "weight" => number().into_iter().for_each(|weight| member.set("weight", weight.clamp(1, 1_000))),
                "max_conns" => number()
                    .filter(|count| *count > 0)
                    .into_iter()
                    .for_each(|count| member.set("requests", count.min(1_000_000))),
                "max_fails" => number().into_iter().for_each(|count| {
                    eject.set("failures", count.min(1_000_000));
                    self.draft.fate(inner.note, Fate::Different, "failures in a row count, for the whole group");
                }),
                "fail_timeout" => number()
                    .filter(|count| *count > 0)
                    .into_iter()
                    .for_each(|seconds| eject.set("time", format!("{}s", seconds.min(300)))),
                "backup" => member.set("backup", true),
                "down" => {
                    self.draft.fate(
                        inner.note,
                        Fate::Translated,
                        "left out; `larder origin drain` takes a member out for a while",
                    );
                    return None;
                }
                _ => self.draft.fate(inner.note, Fate::Different, &format!("{word} is not said of a member")),
            }
        }
        Some((url, member))
    }

    fn cache_path(&mut self, directive: &Noted) {
        let size = directive.words.iter().find_map(|word| bytes(word.strip_prefix("max_size=")?));
        match size {
            Some(size) => {
                self.disk_bytes = self.disk_bytes.saturating_add(size);
                self.draft.fate(
                    directive.note,
                    Fate::Translated,
                    "the budget of the disk; keys are in memory, and what is not used makes room",
                );
            }
            None => self.draft.fate(directive.note, Fate::Different, "the disk has its default budget"),
        }
    }

    fn rate_zone(&mut self, directive: &Noted) {
        let value = |name: &str| directive.words.iter().find_map(|word| word.strip_prefix(name)).unwrap_or_default();
        let zone = value("zone=").split(':').next().unwrap_or_default().to_owned();
        let rate = value("rate=").to_owned();
        let by = match directive.word(0) {
            "$binary_remote_addr" | "$remote_addr" => "client",
            "$server_name" | "$host" | "$http_host" => "host",
            _ => "",
        };
        let rate = rate.replace("r/", "/");
        if by.is_empty() || larder_rules::rate::RateLimit::parse(&rate).is_none() {
            return self.draft.fate(directive.note, Fate::Missing, "rates are counted by client, user or host");
        }
        self.draft.translated(directive.note);
        self.rates.push((zone, rate, by.to_owned(), directive.note));
    }

    /// The name or URL for `origin` of what `proxy_pass` names.
    fn origin(&mut self, scheme: &str, name: &str) -> Option<String> {
        if let Some(upstream) = self.upstreams.iter_mut().find(|upstream| upstream.name == name) {
            if let Some(only) = &upstream.only {
                upstream.is_used = true;
                let url = only.clone();
                let notes = upstream.notes.clone();
                notes.iter().for_each(|id| self.draft.translated(*id));
                return Some(if scheme == "https" { url.replacen("http://", "https://", 1) } else { url });
            }
            if !upstream.is_used {
                upstream.is_used = true;
                let mut table = upstream.table.clone();
                if scheme == "https" {
                    secure(&mut table);
                }
                let notes = upstream.notes.clone();
                if members_len(&table) == 0 {
                    return None;
                }
                self.draft.push("origin", table, &notes);
            }
            return match upstream.table.find("name") {
                Some(Value::Text(name)) => Some(name.clone()),
                _ => None,
            };
        }
        serve::origin_url(scheme, name)
    }

    fn finish(&mut self, root: &[Noted]) {
        if self.disk_bytes > 0 {
            self.draft.set("disk", format!("{}MiB", (self.disk_bytes >> 20).clamp(1, 1 << 30)), &[]);
        }
        if let Some(bytes) = self.body_bytes.filter(|bytes| *bytes > 0) {
            self.draft.set("limits.body_bytes_max", format!("{bytes}B"), &[]);
        }
        for upstream in std::mem::take(&mut self.upstreams).into_iter().filter(|upstream| !upstream.is_used) {
            for id in upstream.notes {
                self.draft.fate(id, Fate::NotNeeded, "no proxy_pass that was translated names it");
            }
        }
        for ruling in std::mem::take(&mut self.effects).into_iter().chain(std::mem::take(&mut self.verdicts)) {
            if !self.draft.rule("", &ruling.cond, ruling.does, &ruling.notes, Vec::new()) {
                for id in ruling.notes {
                    self.draft.fate(id, Fate::Translated, "its condition never holds here");
                }
            }
        }
        self.decide_rest(root);
    }

    fn decide_rest(&mut self, directives: &[Noted]) {
        for directive in directives {
            if !self.draft.is_decided(directive.note) {
                let (fate, text, is_guard) = directives::find(&directive.name);
                if is_guard {
                    self.draft.guards(directive.note);
                }
                self.draft.fate(directive.note, fate, text);
            }
            self.decide_rest(directive.inner());
        }
    }
}

fn members_len(table: &Table) -> usize {
    match table.find("members") {
        Some(Value::List(members)) => members.len(),
        _ => 0,
    }
}

/// Members that are asked by TLS.
fn secure(table: &mut Table) {
    let Some(Value::List(members)) = table.find("members").cloned() else { return };
    let members = members.into_iter().map(|member| match member {
        Value::Table(mut member) => {
            if let Some(Value::Text(url)) = member.find("url").cloned() {
                member.set("url", url.replacen("http://", "https://", 1));
            }
            Value::Table(member)
        }
        other => other,
    });
    let members = Value::List(members.collect());
    table.set("members", members);
}

/// `10g` in bytes.
fn bytes(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let (number, factor) = match lower.strip_suffix(['k', 'm', 'g']) {
        Some(number) if lower.ends_with('k') => (number, 1 << 10),
        Some(number) if lower.ends_with('m') => (number, 1 << 20),
        Some(number) => (number, 1 << 30),
        None => (lower.as_str(), 1),
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// `1d12h` in seconds.
fn seconds(text: &str) -> Option<u64> {
    let (mut total, mut number) = (0_u64, String::new());
    for letter in text.chars() {
        if letter.is_ascii_digit() {
            number.push(letter);
            continue;
        }
        let factor = match letter {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            'w' => 7 * 86_400,
            'M' => 30 * 86_400,
            'y' => 365 * 86_400,
            _ => return None,
        };
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(factor)?)?;
        number.clear();
    }
    match number.is_empty() {
        true => Some(total),
        false => total.checked_add(number.parse().ok()?),
    }
}

/// Hosts that a server has for itself: those of another one go before `*`.
fn host_cond(hosts: &[String], others: &[String]) -> Cond {
    if !hosts.contains(&"*".to_owned()) {
        return Cond::atom("host", hosts.to_vec());
    }
    let named: Vec<String> = others
        .iter()
        .filter(|host| *host != "*" && !hosts.contains(host) && HostPattern::parse(host).is_some())
        .cloned()
        .collect();
    Cond::atom("host", named).negated()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) struct Gone;

    impl Files for Gone {
        fn read(&mut self, _: &str) -> Result<String, String> {
            Err("no such file".to_owned())
        }

        fn matching(&mut self, pattern: &str) -> Vec<String> {
            vec![pattern.to_owned()]
        }

        fn is_there(&mut self, _: &str) -> bool {
            false
        }
    }

    #[test]
    fn sizes_and_times() {
        assert_eq!(
            (bytes("10g"), bytes("512k"), bytes("7"), bytes("x")),
            (Some(10 << 30), Some(512 << 10), Some(7), None)
        );
        assert_eq!((seconds("1d12h"), seconds("30"), seconds("1x")), (Some(129_600), Some(30), None));
    }
}
