//! Listeners, peers, fields of messages, time limits, the log.

use super::lines::Line;
use super::peers::Peers;
use super::{Effect, FirstMatch, Reader, flag, size, size_text, time, time_text};
use crate::bound::Cond;
use crate::draft::NoteId;
use crate::note::Fate;
use crate::value::{Table, Value};
use larder_rules::HostPattern;
use larder_rules::values::may_change;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// All that is known of listeners and peers.
#[derive(Default)]
pub struct Traffic {
    listeners: Vec<Listener>,
    peers: Vec<Peer>,
    pub(super) peer_access: BTreeMap<String, Vec<FirstMatch>>,
    pub(super) peer_domains: BTreeMap<String, Vec<String>>,
    /// Lines of `request_header_access` and `reply_header_access`, by the field.
    fields: BTreeMap<(bool, String), Vec<FirstMatch>>,
    bumps: bool,
    asked: bool,
    /// Parents and siblings.
    pub(super) neighbours: Peers,
}

#[derive(Clone, Debug, Default)]
struct Listener {
    is_reverse: bool,
    /// Its connections begin with a header of the PROXY protocol.
    has_proxy_header: bool,
    note: NoteId,
}

#[derive(Clone, Debug, Default)]
struct Peer {
    name: String,
    url: String,
    weight: Option<u64>,
    check_host: Option<String>,
    note: NoteId,
}

/// Time limits: the directive, the setting, and the most that it takes, in milliseconds.
const TIMES: [(&str, &str, u64); 14] = [
    ("connect_timeout", "timeouts.connect", 86_400_000),
    ("forward_timeout", "timeouts.connect", 86_400_000),
    ("read_timeout", "timeouts.first_byte", 86_400_000),
    ("write_timeout", "timeouts.write", 86_400_000),
    ("request_timeout", "timeouts.head", 86_400_000),
    ("request_start_timeout", "timeouts.head", 86_400_000),
    ("client_idle_pconn_timeout", "timeouts.idle", 86_400_000),
    ("persistent_request_timeout", "timeouts.idle", 86_400_000),
    ("server_idle_pconn_timeout", "upstream.idle", 86_400_000),
    ("pconn_timeout", "upstream.idle", 86_400_000),
    ("shutdown_lifetime", "timeouts.drain", 86_400_000),
    ("client_lifetime", "timeouts.request", 365 * 86_400_000),
    ("half_closed_time", "timeouts.half_closed", 86_400_000),
    ("peer_connect_timeout", "timeouts.connect", 86_400_000),
];

impl Traffic {
    /// Whether origins are configured, for which requests need no `access.clients`.
    pub fn has_sites(&self) -> bool {
        self.listeners.iter().any(|listener| listener.is_reverse) || !self.peers.is_empty()
    }

    /// Whether nobody may use it as a forward proxy.
    pub fn is_reverse_alone(&self) -> bool {
        self.listeners.iter().all(|listener| listener.is_reverse) && !self.listeners.is_empty()
    }

    /// The lines of ports whose connections begin with a header of the PROXY protocol.
    pub(super) fn with_proxy_header(&self) -> Vec<NoteId> {
        self.listeners.iter().filter(|listener| listener.has_proxy_header).map(|listener| listener.note).collect()
    }

    /// Whether neighbours may ask it.
    pub fn is_asked(&self) -> bool {
        self.asked
    }
}

impl Reader<'_> {
    pub(super) fn of_traffic(&mut self, line: &Line, id: NoteId) -> bool {
        let words: Vec<&str> = line.rest(1).collect();
        if let Some((_, setting, most)) = TIMES.iter().find(|(name, ..)| *name == line.name()) {
            match time(&words, 1_000).filter(|millis| *millis > 0) {
                Some(millis) => {
                    self.draft.set(setting, time_text(millis.clamp(1_000, *most)), &[id]);
                    self.draft.translated(id);
                }
                None => self.draft.fate(id, Fate::Different, "no time: Larder's default counts"),
            }
            return true;
        }
        match line.name() {
            "http_port" | "https_port" => self.listener(line, id),
            "cache_peer" => self.peer(line, id),
            "never_direct" | "always_direct" | "prefer_direct" | "nonhierarchical_direct" => self.direct(line, id),
            "cache_peer_access" => {
                let acls = line.rest(3).map(str::to_owned).collect();
                let lines = self.traffic.peer_access.entry(line.word(1).to_owned()).or_default();
                lines.push(FirstMatch { allows: line.word(2) == "allow", acls, note: id });
            }
            "cache_peer_domain" => {
                let domains = line.rest(2).map(str::to_owned);
                self.traffic.peer_domains.entry(line.word(1).to_owned()).or_default().extend(domains);
                self.draft.translated(id);
            }
            "request_header_access" | "header_access" => self.field_access(true, line, id),
            "reply_header_access" => self.field_access(false, line, id),
            "request_header_add" | "reply_header_add" | "request_header_replace" | "reply_header_replace" => {
                self.field_change(line, id)
            }
            "ssl_bump" => self.bump(line, id),
            "icp_port" | "htcp_port" => self.neighbours(line, id),
            "access_log" | "cache_access_log" => self.access_log(line, id),
            "forwarded_for" => self.forwarded_for(line, id),
            "via" => match flag(line.word(1)) {
                Some(false) => {
                    self.draft.fate(id, Fate::Different, "Larder always says Via, as RFC 9110 section 7.6.3 has it")
                }
                _ => self.draft.fate(id, Fate::Translated, "Larder always does"),
            },
            "client_ip_max_connections" => match line.word(1).parse::<u64>().ok().filter(|count| *count > 0) {
                Some(count) => {
                    self.draft.set("limits.connections_per_client_max", count.min(10_000_000), &[id]);
                    self.draft.translated(id);
                }
                None => self.draft.fate(
                    id,
                    Fate::NotNeeded,
                    "no limit of Squid's; Larder has one (limits.connections_per_client_max)",
                ),
            },
            "request_header_max_size" => self.limit("limits.head_bytes_max", &words, (1 << 10, 16 << 20), id),
            "request_body_max_size" => match size(&words, 1 << 10) {
                Some(0) => self.draft.fate(id, Fate::Translated, "no limit is the default"),
                _ => self.limit("limits.body_bytes_max", &words, (1, 1 << 50), id),
            },
            _ => return false,
        }
        true
    }

    fn limit(&mut self, setting: &'static str, words: &[&str], (least, most): (u64, u64), id: NoteId) {
        match size(words, 1 << 10) {
            Some(bytes) => {
                self.draft.set(setting, size_text(bytes.clamp(least, most)), &[id]);
                self.draft.translated(id);
            }
            None => self.draft.fate(id, Fate::Missing, "it is no size"),
        }
    }

    fn listener(&mut self, line: &Line, id: NoteId) {
        let is_tls = line.name() == "https_port";
        let options: Vec<&str> = line.rest(2).collect();
        let has = |names: &[&str]| options.iter().any(|option| names.contains(option));
        let value = |names: &[&str]| {
            options.iter().find_map(|option| {
                let (key, value) = option.split_once('=')?;
                names.contains(&key).then(|| value.to_owned())
            })
        };
        let Some((address, remark)) = address(line.word(1)) else {
            return self.draft.fate(id, Fate::Missing, "it is no address and no port");
        };
        let transparent = match has(&["tproxy"]) {
            true => Some("tproxy"),
            false => has(&["intercept", "transparent"]).then_some("redirect"),
        };
        let is_reverse = has(&["accel", "vhost", "vport"]) || value(&["defaultsite", "vport"]).is_some();
        let certificate = value(&["cert", "tls-cert"]);
        let mut listen = Table::default().with("address", address.to_string()).with("mirror", "none");
        // A transparent listener opens TLS by certificates of the local CA.
        if let (true, Some(chain), None) = (is_tls, &certificate, transparent) {
            let key = value(&["key", "tls-key"]).unwrap_or_else(|| chain.clone());
            listen
                .set("tls", Value::List(vec![Table::default().with("chain", chain.as_str()).with("key", key).into()]));
        } else if is_tls && transparent.is_none() {
            return self.draft.fate(id, Fate::Missing, "it names no certificate");
        }
        let bumps = has(&["ssl-bump", "sslBump"]) && !is_reverse;
        listen.set("forward", !is_reverse);
        if let Some(way) = transparent {
            listen.set("transparent", way);
        }
        if bumps {
            listen.set("intercept", true);
            self.traffic.bumps = true;
        }
        if self.draft.items("listen").iter().any(|item| item.table.find("address") == listen.find("address")) {
            return self.draft.fate(id, Fate::Different, "there is a listener at this address already");
        }
        self.draft.push("listen", listen, &[id]);
        let listener = Listener { is_reverse, has_proxy_header: has(&["require-proxy-header"]), note: id };
        self.traffic.listeners.push(listener);
        if transparent.is_some() {
            let text = "rules of the firewall stay as they are; HTTP and TLS are told apart, so one listener can take both (docs/transparent.md)";
            self.draft.fate(id, Fate::Different, text);
        } else if bumps {
            self.draft.fate(
                id,
                Fate::Different,
                "certificates are made by Larder's own CA (`larder ca`), which clients must trust",
            );
        } else {
            self.draft.fate(id, Fate::Translated, remark);
        }
    }

    fn peer(&mut self, line: &Line, id: NoteId) {
        let (host, port) = (line.word(1), line.word(3));
        let options: Vec<&str> = line.rest(5).collect();
        let value = |name: &str| {
            options.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
        };
        let is_origin = options.contains(&"originserver");
        if !is_origin {
            return self.neighbour(line, id);
        }
        let is_tls = options.iter().any(|option| ["ssl", "tls"].contains(option));
        let scheme = if is_tls { "https" } else { "http" };
        let is_usual = port == if is_tls { "443" } else { "80" };
        let shown = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let is_good = HostPattern::parse(&shown).is_some()
            && !shown.contains('*')
            && port.parse::<u16>().is_ok_and(|port| port > 0);
        if !is_good {
            return self.draft.fate(id, Fate::Missing, "it is no host with a port");
        }
        let url = if is_usual { format!("{scheme}://{shown}") } else { format!("{scheme}://{shown}:{port}") };
        let peer = Peer {
            name: value("name").unwrap_or_else(|| host.to_owned()),
            url,
            weight: value("weight")
                .and_then(|weight| weight.parse().ok())
                .filter(|weight| (1..=1_000).contains(weight)),
            check_host: value("forceddomain"),
            note: id,
        };
        if options.iter().any(|option| option.starts_with("login=")) {
            self.draft.fate(
                id,
                Fate::Different,
                "its login is not sent: a [[rule]] with set = \"Authorization: …\" sends one",
            );
        }
        self.draft.translated(id);
        self.traffic.peers.push(peer);
    }

    pub(super) fn finish_traffic(&mut self) {
        self.finish_fields();
        self.finish_bump();
        self.finish_peers();
        let peers = self.traffic.peers.clone();
        // Peers that are for the same hosts are one group.
        let mut groups: Vec<(Vec<String>, Vec<Peer>)> = Vec::new();
        for peer in peers {
            let hosts = self.hosts_of_peer(&peer);
            match groups.iter_mut().find(|(known, _)| *known == hosts) {
                Some((_, group)) => group.push(peer),
                None => groups.push((hosts, vec![peer])),
            }
        }
        let lines: Vec<FirstMatch> = std::mem::take(&mut self.traffic.peer_access).into_values().flatten().collect();
        lines.iter().for_each(|line| self.draft.fate(line.note, Fate::NotNeeded, "there is no such cache_peer"));
        let mut taken: Vec<String> = Vec::new();
        for (hosts, group) in groups {
            let hosts: Vec<String> = hosts.into_iter().filter(|host| !taken.contains(host)).collect();
            taken.extend(hosts.iter().cloned());
            let notes: Vec<NoteId> = group.iter().map(|peer| peer.note).collect();
            if hosts.is_empty() {
                notes
                    .iter()
                    .for_each(|id| self.draft.fate(*id, Fate::Different, "its hosts are those of an earlier one"));
                continue;
            }
            let origin = self.origin(&group);
            let mut site = Table::default().with("hosts", hosts).with("origin", origin);
            if let Some(name) = self.draft.setting("forward.url_rewrite").cloned() {
                site.set("url_rewrite", name);
            }
            self.draft.push("site", site, &notes);
        }
        let reverse: Vec<Listener> =
            self.traffic.listeners.iter().filter(|listener| listener.is_reverse).cloned().collect();
        if self.traffic.peers.is_empty() {
            for listener in reverse {
                self.draft.fate(
                    listener.note,
                    Fate::Missing,
                    "it accelerates sites, and no cache_peer with originserver says where they come from",
                );
            }
        }
        if self.traffic.is_reverse_alone() {
            self.draft.set("access.clients", Vec::<String>::new(), &[]);
        }
    }

    /// The URL of a peer, or the name of the group that they are.
    fn origin(&mut self, group: &[Peer]) -> String {
        if let [only] = group
            && only.check_host.is_none()
        {
            return only.url.clone();
        }
        let name = self.draft.free_name("origin", &group.first().map_or("peers".to_owned(), |peer| peer.name.clone()));
        let mut members: Vec<Value> = Vec::new();
        let mut urls: Vec<&str> = Vec::new();
        for peer in group.iter() {
            if urls.contains(&peer.url.as_str()) {
                continue;
            }
            urls.push(&peer.url);
            let mut member = Table::default().with("url", peer.url.as_str());
            if let Some(weight) = peer.weight {
                member.set("weight", weight);
            }
            if let Some(host) = peer.check_host.as_deref().filter(|host| HostPattern::parse(host).is_some()) {
                member.set("host", host);
            }
            members.push(member.into());
        }
        let origin = Table::default()
            .with("name", name.as_str())
            .with("balance", "round-robin")
            .with("members", Value::List(members));
        self.draft.push("origin", origin, &[]);
        name
    }

    /// The hosts for which a peer is asked.
    fn hosts_of_peer(&mut self, peer: &Peer) -> Vec<String> {
        let mut hosts: Vec<String> = Vec::new();
        let mut add = |host: &str| {
            let host = host.to_ascii_lowercase();
            if HostPattern::parse(&host).is_some() && !hosts.contains(&host) {
                hosts.push(host);
            }
        };
        for domain in self.traffic.peer_domains.get(&peer.name).cloned().unwrap_or_default() {
            match domain.strip_prefix('.') {
                Some(rest) => {
                    add(rest);
                    add(&format!("*.{rest}"));
                }
                None => add(domain.trim_start_matches('!')),
            }
        }
        for line in self.traffic.peer_access.remove(&peer.name).unwrap_or_default() {
            let (bound, ..) = self.all_of(&line.acls);
            match &bound.must {
                Cond::Atom(atom) if atom.key == "host" && line.allows => {
                    atom.values.iter().for_each(|host| add(host));
                    self.draft.translated(line.note);
                }
                _ if !line.allows && line.acls == ["all"] => self.draft.fate(line.note, Fate::Translated, ""),
                _ if line.allows && bound.must == Cond::True => self.draft.translated(line.note),
                _ => self.draft.fate(
                    line.note,
                    Fate::Different,
                    "a site is chosen by its hosts alone; a [[rule]] with `route` chooses by more",
                ),
            }
        }
        if hosts.is_empty() {
            hosts.push("*".to_owned());
        }
        hosts
    }

    fn field_access(&mut self, is_request: bool, line: &Line, id: NoteId) {
        let name = line.word(1).to_owned();
        if name.eq_ignore_ascii_case("all") || name.eq_ignore_ascii_case("other") {
            let text = match line.word(2) {
                "allow" => return self.draft.fate(id, Fate::NotNeeded, "fields pass unless a rule takes them off"),
                _ => "rules take fields off by name: those that are not named pass",
            };
            return self.draft.fate(id, Fate::Missing, text);
        }
        if !may_change(&name) {
            let text = match name.to_ascii_lowercase().as_str() {
                "via" => "Larder always says Via",
                "proxy-authorization" | "proxy-connection" | "connection" | "keep-alive" => {
                    return self.draft.fate(id, Fate::NotNeeded, "fields of a connection go no further than Larder");
                }
                _ => "this field says what other bytes of the message mean, and stays",
            };
            return self.draft.fate(id, Fate::Missing, text);
        }
        let acls = line.rest(3).map(str::to_owned).collect();
        let lines = self.traffic.fields.entry((is_request, name)).or_default();
        lines.push(FirstMatch { allows: line.word(2) == "allow", acls, note: id });
    }

    fn finish_fields(&mut self) {
        let mut by_cond: Vec<(Cond, bool, Vec<String>, Vec<NoteId>)> = Vec::new();
        for ((is_request, name), lines) in std::mem::take(&mut self.traffic.fields) {
            let (bound, whys, notes) = self.decided(&lines, false);
            for line in &lines {
                match whys.is_empty() {
                    true => self.draft.translated(line.note),
                    false => self.draft.fate(
                        line.note,
                        Fate::Different,
                        &format!("it is taken off more often than before ({})", whys.join("; ")),
                    ),
                }
            }
            match by_cond.iter_mut().find(|(cond, of_request, ..)| *cond == bound.may && *of_request == is_request) {
                Some((.., names, known)) => {
                    names.push(name);
                    known.extend(notes);
                }
                None => by_cond.push((bound.may, is_request, vec![name], notes)),
            }
        }
        for (cond, is_request, names, notes) in by_cond.into_iter().filter(|(cond, ..)| *cond != Cond::False) {
            let does = Table::default().with(if is_request { "remove" } else { "answer_remove" }, names);
            self.effects.push(Effect { cond, does, notes });
        }
    }

    fn field_change(&mut self, line: &Line, id: NoteId) {
        let name = line.word(1).trim_end_matches(':').to_owned();
        let is_add = line.name().ends_with("add");
        let is_request = line.name().starts_with("request");
        let (value, acls): (String, Vec<String>) = match line.words.get(2) {
            Some(word) if is_add || word.is_quoted => (word.text.clone(), line.rest(3).map(str::to_owned).collect()),
            _ => (line.rest(2).collect::<Vec<_>>().join(" "), Vec::new()),
        };
        if !may_change(&name) || value.contains('%') {
            let text = "this field or a code of its value can't be said";
            return self.draft.fate(id, Fate::Missing, text);
        }
        let (bound, ..) = self.all_of(&acls);
        let key = match (is_request, is_add) {
            (true, true) => "add",
            (true, false) => "set",
            (false, true) => "answer_add",
            (false, false) => "answer_set",
        };
        let text = format!("{name}: {}", value.replace('{', "{{").replace('}', "}}"));
        self.effects.push(Effect { cond: bound.must, does: Table::default().with(key, text), notes: vec![id] });
        self.draft.translated(id);
    }

    fn bump(&mut self, line: &Line, id: NoteId) {
        let allows = matches!(line.word(1), "bump" | "server-first" | "client-first" | "allow");
        let splices = matches!(line.word(1), "splice" | "none" | "deny");
        let acls: Vec<String> = line.rest(2).map(str::to_owned).collect();
        if allows || splices {
            self.access.bump.push(FirstMatch { allows, acls: acls.clone(), note: id });
            self.access.ended.push(FirstMatch { allows: true, acls, note: id });
        } else if line.word(1) == "terminate" {
            self.draft.guards(id);
            self.access.ended.push(FirstMatch { allows: false, acls, note: id });
        } else {
            let (fate, text) = match line.word(1) {
                "peek" | "stare" => (Fate::NotNeeded, "Larder reads the server name by itself"),
                _ => (Fate::Missing, "tunnels are opened, passed or denied, and nothing else"),
            };
            self.draft.fate(id, fate, text);
        }
    }

    /// Hosts whose tunnels stay closed; without a line that opens any, none is opened.
    fn finish_bump(&mut self) {
        let lines = std::mem::take(&mut self.access.bump);
        if !self.traffic.bumps {
            lines.iter().for_each(|line| self.draft.fate(line.note, Fate::NotNeeded, "no listener opens tunnels"));
            return;
        }
        let opens = lines.iter().any(|line| line.allows);
        let mut behind_all = false;
        for line in &lines {
            let is_all = line.acls.iter().all(|acl| acl == "all" || acl.starts_with("step"));
            let names: Vec<String> = line
                .acls
                .iter()
                .filter_map(|acl| self.acls.get(acl.as_str()))
                .filter(|acl| {
                    ["ssl::server_name", "dstdomain"].contains(&acl.kind.as_str()) && acl.list_files.is_empty()
                })
                .flat_map(|acl| acl.values.iter().map(|value| value.text.to_ascii_lowercase()))
                .collect();
            match (line.allows, is_all, names.is_empty()) {
                (true, true, _) => {
                    self.draft.fate(line.note, Fate::Translated, "all tunnels are opened but those of intercept.pass")
                }
                (true, false, _) => {
                    self.draft.fate(line.note, Fate::Different, "all tunnels are opened but those of intercept.pass")
                }
                (false, true, _) => {
                    behind_all = true;
                    self.draft.fate(line.note, Fate::Translated, "");
                }
                (false, false, false) => {
                    let hosts = names.iter().flat_map(|name| match name.strip_prefix('.') {
                        Some(rest) => vec![rest.to_owned(), format!("*.{rest}")],
                        None => vec![name.clone()],
                    });
                    let hosts: Vec<String> = hosts.filter(|host| HostPattern::parse(host).is_some()).collect();
                    self.draft.add_texts("intercept.pass", hosts, &[line.note]);
                    self.draft.translated(line.note);
                }
                (false, false, true) => self.draft.fate(
                    line.note,
                    Fate::Missing,
                    "tunnels stay closed by host alone (intercept.pass): these are opened",
                ),
            }
        }
        if !opens && (behind_all || lines.is_empty()) {
            for item in self.draft.items_mut("listen") {
                item.table.0.retain(|(key, _)| key != "intercept");
            }
        }
    }

    fn neighbours(&mut self, line: &Line, id: NoteId) {
        let port = line.word(1).parse::<u16>().ok().filter(|port| *port > 0);
        let setting = if line.name() == "icp_port" { "neighbours.icp" } else { "neighbours.htcp" };
        match port {
            Some(port) => {
                self.traffic.asked = true;
                self.draft.set(setting, format!("0.0.0.0:{port}"), &[id]);
                self.draft.translated(id);
            }
            None => self.draft.fate(id, Fate::Translated, "none is the default"),
        }
    }

    fn access_log(&mut self, line: &Line, id: NoteId) {
        let to = line.word(1);
        let path = ["daemon:", "stdio:", "file:"].iter().find_map(|module| to.strip_prefix(module)).unwrap_or(to);
        let format = match line.word(2).trim_start_matches("logformat=") {
            "" | "squid" | "all" => "squid",
            "combined" | "common" => "combined",
            _ => {
                self.draft.fate(
                    id,
                    Fate::Different,
                    "in Squid's own format; log.format takes one with fields in braces (docs/logs.md)",
                );
                "squid"
            }
        };
        let target = match path {
            "none" => {
                self.draft.set("log.to", "none", &[id]);
                return self.draft.translated(id);
            }
            path if path.starts_with('/') => path.to_owned(),
            path if path.starts_with("syslog") => "syslog".to_owned(),
            _ => return self.draft.fate(id, Fate::Missing, "the log goes to a file, standard output or syslog"),
        };
        if self.draft.setting("log.to").is_some() {
            return self.draft.fate(id, Fate::Missing, "there is one access log: the first one");
        }
        self.draft.set("log.to", target, &[id]);
        self.draft.set("log.format", format, &[]);
        self.draft.translated(id);
        if line.words.len() > 3 && !line.rest(3).eq(["all"]) {
            self.draft.fate(id, Fate::Different, "every request is logged");
        }
    }

    fn forwarded_for(&mut self, line: &Line, id: NoteId) {
        match line.word(1) {
            "on" | "" => self.draft.fate(id, Fate::Missing, "Larder tells origins nothing of its clients; a [[rule]] with set = \"X-Forwarded-For: {client}\" does, and stores answers apart for each"),
            "off" | "delete" | "truncate" => {
                let does = Table::default().with("remove", "X-Forwarded-For");
                self.effects.push(Effect { cond: Cond::True, does, notes: vec![id] });
                self.draft.translated(id);
            }
            _ => self.draft.fate(id, Fate::Translated, "Larder adds none, and those of clients pass"),
        }
    }
}

/// `3128`, `127.0.0.1:3128`, `[::1]:3128`, `proxy.example:3128`.
fn address(text: &str) -> Option<(SocketAddr, &'static str)> {
    if let Ok(port) = text.parse::<u16>() {
        let remark = "IPv4; [::]:PORT is both";
        return (port > 0).then(|| (SocketAddr::from(([0, 0, 0, 0], port)), remark));
    }
    if let Ok(address) = text.parse() {
        return Some((address, ""));
    }
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse::<u16>().ok().filter(|port| *port > 0)?;
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(host) => Some((SocketAddr::new(host, port), "")),
        Err(_) => {
            Some((SocketAddr::from(([0, 0, 0, 0], port)), "all addresses of the machine, for no name is looked up"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, wanted) in [
            ("3128", Some("0.0.0.0:3128")),
            ("127.0.0.1:3128", Some("127.0.0.1:3128")),
            ("[::1]:80", Some("[::1]:80")),
            ("proxy.example:8080", Some("0.0.0.0:8080")),
            ("0", None),
            ("x", None),
        ] {
            assert_eq!(address(text).map(|(address, _)| address.to_string()).as_deref(), wanted, "{text}");
        }
    }
}
