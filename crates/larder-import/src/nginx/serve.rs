//! A server and its locations: sites, and the rules about them.

use super::condition::{self, template};
use super::{Listener, Noted, Reader, Ruling, Server, bytes, host_cond, seconds};
use crate::bound::{Bound, Cond};
use crate::draft::NoteId;
use crate::network_texts;
use crate::note::Fate;
use crate::value::{Table, Value};
use larder_rules::HostPattern;
use larder_rules::values::is_field_name;

/// A place in the configuration for which something is said: the condition of its requests, and its levels, the outermost first.
pub struct Scope<'a> {
    pub(super) cond: Cond,
    pub(super) hosts: &'a [String],
    /// The prefix of the location, where it has one.
    pub(super) prefix: Option<String>,
    pub(super) levels: Vec<&'a [Noted]>,
}

impl Scope<'_> {
    /// The directives of a name at the innermost level that has any.
    pub(super) fn find(&self, name: &str) -> Vec<&Noted> {
        for level in self.levels.iter().rev() {
            let found: Vec<&Noted> = level.iter().filter(|directive| directive.name == name).collect();
            if !found.is_empty() {
                return found;
            }
        }
        Vec::new()
    }

    /// The directives of its own level.
    pub(super) fn own(&self) -> &[Noted] {
        self.levels.last().copied().unwrap_or_default()
    }
}

impl Reader {
    pub(super) fn server(&mut self, server: &Server, others: &[String]) {
        for listener in &server.listeners {
            self.write_listener(server, listener);
        }
        let mut ports: Vec<String> =
            server.listeners.iter().map(|listener| format!(":{}", listener.address.port())).collect();
        ports.dedup();
        let all_hosts = host_cond(&server.hosts, others);
        let cond = Cond::all([all_hosts, Cond::atom("listener", ports)]);
        let outer: Vec<&[Noted]> = server.levels.iter().map(Vec::as_slice).collect();
        let scope = Scope { cond: cond.clone(), hosts: &server.hosts, prefix: None, levels: outer.clone() };
        let mut locations = Vec::new();
        find_locations(scope.own(), &mut locations);
        self.flow(&scope);
        let mut paths = Vec::new();
        // In the order in which nginx looks: whole paths, then expressions, then the longest beginnings.
        locations.sort_by_key(|location| order(location));
        for (number, location) in locations.iter().enumerate() {
            let Some(path) = condition::location(&location.words) else {
                let text = match location.word(0).starts_with('@') {
                    true => "a named location is for requests that are sent on inside nginx: nothing leads there",
                    false => "a location that paths and expressions of Larder can't say",
                };
                self.draft.guards(location.note);
                self.draft.fate(location.note, Fate::Missing, text);
                continue;
            };
            let before = locations.iter().take(number).filter_map(|earlier| condition::location(&earlier.words));
            let not_before = Cond::any(before.filter(|earlier| *earlier != Cond::True)).negated();
            // Paths of an earlier one are not this one's; without that a rule could hold for too much.
            let own = Cond::all([path.clone(), not_before]);
            let own = if own.when().is_some() { own } else { path.clone() };
            let mut levels = outer.clone();
            levels.push(location.inner());
            let prefix = match location.words.as_slice() {
                [only] | [_, only] if only.starts_with('/') && !location.word(0).starts_with('~') => Some(only.clone()),
                _ => None,
            };
            let scope = Scope { cond: Cond::all([cond.clone(), own]), hosts: &server.hosts, prefix, levels };
            self.draft.translated(location.note);
            if self.location(&scope, location.note, paths.is_empty()) {
                paths.push(path);
            }
        }
        if paths.is_empty() && scope.own().iter().any(|one| one.name == "root") {
            self.draft.fate(server.note, Fate::Missing, "Larder serves no files: a web server behind it does");
        }
        // Paths that lead nowhere in nginx lead nowhere here, whatever sites there are.
        let known = Cond::any(paths);
        if known != Cond::True && known != Cond::False {
            let not_found = Table::default().with("deny", true).with("status", 404);
            self.verdicts.push(Ruling { cond: Cond::all([cond, known.negated()]), does: not_found, notes: Vec::new() });
        }
    }

    fn write_listener(&mut self, server: &Server, listener: &Listener) {
        let address = Value::from(listener.address.to_string());
        let mut tls = Table::default();
        if listener.is_tls {
            let level = server.levels.iter().rev();
            let find = |name: &str| level.clone().find_map(|level| level.iter().find(|one| one.name == name));
            if let (Some(chain), Some(key)) = (find("ssl_certificate"), find("ssl_certificate_key")) {
                tls = Table::default().with("chain", chain.word(0)).with("key", key.word(0));
                for id in [chain.note, key.note] {
                    self.draft.translated(id);
                }
            } else {
                self.draft.fate(
                    listener.note,
                    Fate::Missing,
                    "a listener of TLS needs ssl_certificate and ssl_certificate_key",
                );
                return;
            }
        }
        let tls = (!tls.0.is_empty()).then_some(Value::Table(tls));
        let known = self.draft.items_mut("listen").iter_mut().find(|item| item.table.find("address") == Some(&address));
        match (known, tls) {
            (Some(item), Some(tls)) => {
                item.notes.push(listener.note);
                let mut all = match item.table.find("tls") {
                    Some(Value::List(all)) => all.clone(),
                    _ => return,
                };
                if !all.contains(&tls) {
                    all.push(tls);
                }
                item.table.set("tls", Value::List(all));
            }
            (Some(item), None) => item.notes.push(listener.note),
            (None, tls) => {
                let mut listen =
                    Table::default().with("address", address).with("forward", false).with("mirror", "none");
                if let Some(tls) = tls {
                    listen.set("tls", Value::List(vec![tls]));
                }
                self.draft.push("listen", listen, &[listener.note]);
            }
        }
        self.write_listener_protocols(listener);
    }

    /// HTTP/3 and the balancers of a listener that is written, which nginx has for all servers at its address.
    fn write_listener_protocols(&mut self, listener: &Listener) {
        let address = Value::from(listener.address.to_string());
        let written =
            self.draft.items_mut("listen").iter_mut().find(|item| item.table.find("address") == Some(&address));
        let Some(table) = written.map(|item| &mut item.table) else { return };
        let known = table.find("proxy_protocol").cloned();
        if !listener.balancers.is_empty() {
            table.add_texts("proxy_protocol", listener.balancers.iter().cloned());
        }
        let is_joined = known.is_some() && known.as_ref() != table.find("proxy_protocol");
        let has_header = table.find("proxy_protocol").is_some();
        let speaks_http3 = listener.speaks_http3 || table.find("http3").is_some();
        if speaks_http3 && !has_header {
            table.set("http3", true);
        } else if speaks_http3 {
            table.0.retain(|(key, _)| key != "http3");
            let text = "a listener behind balancers has no HTTP/3: give it an address of its own";
            self.draft.fate(listener.note, Fate::Different, text);
        }
        if is_joined {
            let text = "balancers are named for a listener: those of all servers at this address are believed in each";
            self.draft.fate(listener.note, Fate::Different, text);
        }
    }

    /// A location; says whether something is served there.
    fn location(&mut self, scope: &Scope<'_>, id: NoteId, is_first: bool) -> bool {
        self.guards(scope);
        let is_answered = self.flow(scope);
        let served = self.pass(scope, id, is_first);
        if !served && !is_answered {
            let what = ["fastcgi_pass", "uwsgi_pass", "scgi_pass", "grpc_pass", "memcached_pass"];
            let other = scope.own().iter().find(|one| what.contains(&one.name.as_str()));
            let text = match other {
                Some(other) => {
                    self.draft.fate(
                        other.note,
                        Fate::Missing,
                        "origins speak HTTP (http+unix:/SOCKET too), or are applications in Python",
                    );
                    "nothing is served here"
                }
                None => "Larder serves no files: a web server behind it does",
            };
            self.draft.fate(id, Fate::Missing, text);
            let not_found = Table::default().with("deny", true).with("status", 404);
            self.verdicts.push(Ruling { cond: scope.cond.clone(), does: not_found, notes: vec![id] });
        }
        served || is_answered
    }

    /// `proxy_pass`, and what is said of its answers.
    fn pass(&mut self, scope: &Scope<'_>, id: NoteId, _is_first: bool) -> bool {
        let Some(pass) = find_pass(scope.own()) else { return false };
        let url = pass.word(0);
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        let (authority, uri) = match rest.strip_prefix("unix:") {
            Some(socket) => match socket.split_once(':') {
                Some((path, uri)) => (format!("unix:{path}"), Some(uri)),
                None => (rest.to_owned(), None),
            },
            None => match rest.find('/') {
                Some(at) => (rest[..at].to_owned(), Some(&rest[at..])),
                None => (rest.to_owned(), None),
            },
        };
        let Some(origin) = self.origin(scheme, &authority) else {
            self.draft.fate(
                pass.note,
                Fate::Missing,
                "an origin has a fixed host: a hook in Python leads requests elsewhere (docs/recipes.md)",
            );
            return false;
        };
        self.draft.translated(pass.note);
        let prefix = scope.prefix.clone().unwrap_or_else(|| "/".to_owned());
        let uri = uri.filter(|uri| *uri != prefix && !uri.is_empty());
        match (&scope.prefix, uri) {
            (Some(_), None) => self.site(scope, if prefix == "/" { "/" } else { &prefix }, &origin, id),
            (Some(_), Some(uri)) => {
                // The path changes on its way, so that the site is the one of the new path.
                let target = template(uri).map(|uri| format!("{uri}{{1}}"));
                // Where one of both ends with a slash, the path gets no second one.
                let slash = if uri.ends_with('/') && !prefix.ends_with('/') { "/?" } else { "" };
                let regex = format!("^{}{slash}(.*)$", escaped(&prefix));
                match target {
                    Some(target) if target.starts_with('/') => {
                        let does = Table::default().with("path", target).with("route", origin.as_str());
                        let cond = Cond::all([scope.cond.clone(), Cond::atom("path_regex", [regex])]);
                        self.effects.push(Ruling { cond, does, notes: vec![pass.note] });
                        self.site(scope, "/", &origin, id);
                    }
                    _ => self.draft.fate(pass.note, Fate::Missing, "the path that it gives can't be said"),
                }
            }
            (None, _) => {
                let does = Table::default().with("route", origin.as_str());
                self.effects.push(Ruling { cond: scope.cond.clone(), does, notes: vec![pass.note] });
                self.site(scope, "/", &origin, id);
            }
        }
        if let Some(login) = self.login(scope) {
            let does = Table::default().with("login", login);
            self.verdicts.push(Ruling { cond: scope.cond.clone(), does, notes: Vec::new() });
        }
        self.cache(scope);
        self.fields(scope);
        true
    }

    /// A site, where the host has none with this prefix yet.
    fn site(&mut self, scope: &Scope<'_>, prefix: &str, origin: &str, id: NoteId) {
        let prefix = match is_prefix(prefix) {
            true => prefix.to_owned(),
            false => {
                let does = Table::default().with("route", origin);
                self.effects.push(Ruling { cond: scope.cond.clone(), does, notes: vec![id] });
                "/".to_owned()
            }
        };
        let wanted = Value::from(prefix.as_str());
        let same = |known: &Value| match (known, &wanted) {
            (Value::Text(known), Value::Text(wanted)) => known.trim_end_matches('/') == wanted.trim_end_matches('/'),
            _ => false,
        };
        let taken: Vec<Value> = self
            .draft
            .items("site")
            .iter()
            .filter(|item| item.table.find("prefix").map_or(prefix == "/", same))
            .filter_map(|item| match item.table.find("hosts") {
                Some(Value::List(hosts)) => Some(hosts.clone()),
                _ => None,
            })
            .flatten()
            .collect();
        let hosts: Vec<String> =
            scope.hosts.iter().filter(|host| !taken.contains(&Value::from(host.as_str()))).cloned().collect();
        if hosts.is_empty() {
            return;
        }
        let mut site = Table::default().with("hosts", hosts);
        if prefix != "/" {
            site.set("prefix", prefix);
        }
        site.set("origin", origin);
        let host = scope.find("proxy_set_header").into_iter().find(|one| one.word(0).eq_ignore_ascii_case("host"));
        let is_url = origin.contains("://");
        match host.map(|host| (host.word(1), host.note)) {
            // nginx sends the host of proxy_pass unless it is told otherwise.
            None | Some(("$proxy_host", _)) if is_url => site.set("host", "origin"),
            Some((_, note)) => self.draft.translated(note),
            None => {}
        }
        self.compression(scope, &mut site);
        self.draft.push("site", site, &[id]);
    }

    fn login(&mut self, scope: &Scope<'_>) -> Option<String> {
        let realm = scope.find("auth_basic").first().map(|one| (one.word(0).to_owned(), one.note));
        let (realm, note) = realm.filter(|(realm, _)| realm != "off")?;
        let file = scope.find("auth_basic_user_file").first().map(|one| (one.word(0).to_owned(), one.note))?;
        self.draft.guards(note);
        let known = self
            .draft
            .items("login")
            .iter()
            .find(|item| item.table.find("file") == Some(&Value::from(file.0.as_str())));
        if let Some(Value::Text(name)) = known.and_then(|item| item.table.find("name")) {
            return Some(name.clone());
        }
        let name = self.draft.free_name("login", "nginx");
        let realm = template(&realm).unwrap_or_else(|| "Larder".to_owned());
        let login = Table::default()
            .with("name", name.as_str())
            .with("scheme", "basic")
            .with("realm", realm)
            .with("file", file.0.as_str())
            .with("forward", true);
        self.draft.push("login", login, &[note, file.1]);
        self.draft.translated(note);
        self.draft.fate(file.1, Fate::Translated, "passwords in DES or in clear are not taken (htpasswd -B)");
        Some(name)
    }

    /// Fields of requests; gives them, with their notes.
    fn request_fields(&mut self, scope: &Scope<'_>) -> (Vec<String>, Vec<NoteId>) {
        let is_stored = scope.find("proxy_cache").first().is_some_and(|one| one.word(0) != "off");
        let (mut set, mut notes) = (Vec::new(), Vec::new());
        for one in scope.find("proxy_set_header") {
            let (name, value) = (one.word(0), one.word(1));
            if ["host", "upgrade", "connection"].contains(&name.to_ascii_lowercase().as_str()) {
                if !self.draft.is_decided(one.note) {
                    let is_client = ["$host", "$http_host"].contains(&value)
                        || name.eq_ignore_ascii_case("upgrade")
                        || name.eq_ignore_ascii_case("connection");
                    let (fate, text) = if is_client {
                        (Fate::NotNeeded, "Larder does so by itself")
                    } else {
                        (Fate::Missing, "`host` of a member of an [[origin]] says another one")
                    };
                    self.draft.fate(one.note, fate, text);
                }
                continue;
            }
            let line = template(value).filter(|_| is_field_name(name)).map(|value| format!("{name}: {value}"));
            let is_of_client =
                value.contains("remote_addr") || value.contains("forwarded_for") || value.contains("remote_user");
            match line {
                Some(_) if value.is_empty() => {
                    self.draft.fate(one.note, Fate::Missing, "fields are taken off by rule.do.remove")
                }
                Some(_) if is_stored && is_of_client => {
                    self.draft.fate(one.note, Fate::Missing, "a field that differs from client to client would keep their answers apart: origins are not told, but where nothing is stored");
                }
                Some(line) => {
                    set.push(line);
                    notes.push(one.note);
                    self.draft.translated(one.note);
                }
                None => self.draft.fate(
                    one.note,
                    Fate::Missing,
                    "a value with other variables can't be said; a hook sets it (docs/recipes.md)",
                ),
            }
        }
        (set, notes)
    }

    /// Fields of requests and answers.
    fn fields(&mut self, scope: &Scope<'_>) {
        let (set, mut notes) = self.request_fields(scope);
        let (mut answer_set, mut answer_remove) = (Vec::new(), Vec::new());
        for one in scope.find("add_header") {
            let (name, value) = (one.word(0), one.word(1));
            if value.contains("$upstream_cache_status") {
                self.draft.fate(one.note, Fate::NotNeeded, "Cache-Status says how each answer came about (RFC 9211)");
                continue;
            }
            match template(value).filter(|_| {
                is_field_name(name) && !["age", "via", "connection"].contains(&name.to_ascii_lowercase().as_str())
            }) {
                Some(value) => {
                    answer_set.push(format!("{name}: {value}"));
                    notes.push(one.note);
                    self.draft.translated(one.note);
                }
                None => self.draft.fate(one.note, Fate::Missing, "a value with other variables can't be said"),
            }
        }
        for one in scope.find("proxy_hide_header") {
            if is_field_name(one.word(0))
                && !["age", "via", "connection"].contains(&one.word(0).to_ascii_lowercase().as_str())
            {
                answer_remove.push(one.word(0).to_owned());
                notes.push(one.note);
                self.draft.translated(one.note);
            }
        }
        if let Some(expires) = scope.find("expires").first()
            && let Some(time) = seconds(expires.word(0))
        {
            answer_set.push(format!("Cache-Control: max-age={time}"));
            notes.push(expires.note);
            self.draft.fate(expires.note, Fate::Different, "as max-age in the answers that clients get");
        }
        let mut does = Table::default();
        for (key, lines) in [("set", set), ("answer_set", answer_set), ("answer_remove", answer_remove)] {
            if !lines.is_empty() {
                does.set(key, lines);
            }
        }
        if !does.0.is_empty() {
            self.effects.push(Ruling { cond: scope.cond.clone(), does, notes });
        }
    }

    /// `allow`, `deny`, and what guards a place in another way.
    fn guards(&mut self, scope: &Scope<'_>) {
        self.networks(scope);
        for name in [
            "auth_request",
            "auth_jwt",
            "ssl_verify_client",
            "secure_link",
            "valid_referers",
            "limit_except",
            "internal",
        ] {
            for one in scope.find(name) {
                if one.word(0) == "off" || self.draft.is_decided(one.note) {
                    self.draft.translated(one.note);
                    continue;
                }
                self.draft.guards(one.note);
                let mut cond = scope.cond.clone();
                if name == "limit_except"
                    && one.inner().iter().any(|inner| inner.name == "deny" && inner.word(0) == "all")
                    && one.inner().len() == 1
                {
                    let methods: Vec<String> = one
                        .words
                        .iter()
                        .flat_map(|method| {
                            if method == "GET" {
                                vec!["GET".to_owned(), "HEAD".to_owned()]
                            } else {
                                vec![method.clone()]
                            }
                        })
                        .collect();
                    cond = Cond::all([cond, Cond::atom("method", methods).negated()]);
                    self.draft.translated(one.note);
                    one.inner().iter().for_each(|inner| self.draft.translated(inner.note));
                } else if name == "internal" {
                    self.draft.translated(one.note);
                } else {
                    self.draft.fate(one.note, Fate::Missing, "it can't be asked here, so ALL IS DENIED that it guarded: a hook in Python can ask (recipe signed_urls)");
                }
                let does = Table::default().with("deny", true).with("mark", "import");
                self.verdicts.push(Ruling { cond, does, notes: vec![one.note] });
            }
        }
        self.rates(scope);
        self.bandwidth(scope);
    }

    /// Rates of requests, and the length of their bodies.
    fn rates(&mut self, scope: &Scope<'_>) {
        for one in scope.find("limit_req") {
            let value = |name: &str| one.words.iter().find_map(|word| word.strip_prefix(name)).map(str::to_owned);
            let zone = value("zone=").unwrap_or_default();
            let Some((_, rate, by, note)) = self.rates.iter().find(|(name, ..)| *name == zone).cloned() else {
                self.draft.fate(one.note, Fate::Missing, "its zone can't be said");
                continue;
            };
            let mut does = Table::default().with("rate", rate).with("rate_by", by);
            if let Some(burst) = value("burst=").and_then(|burst| burst.parse::<u64>().ok()) {
                does.set("burst", (burst + 1).min(1_000_000));
            }
            self.effects.push(Ruling { cond: scope.cond.clone(), does, notes: vec![note, one.note] });
            self.draft.fate(one.note, Fate::Translated, "429 beyond it; none waits");
        }
        for one in scope.find("client_max_body_size") {
            match bytes(one.word(0)) {
                Some(size) => {
                    self.body_bytes = Some(match (self.body_bytes, size) {
                        (_, 0) | (Some(0), _) => 0,
                        (Some(known), size) => known.max(size),
                        (None, size) => size,
                    });
                    self.draft.fate(one.note, Fate::Translated, "the largest of all is limits.body_bytes_max");
                }
                None => self.draft.fate(one.note, Fate::Missing, "it is no size"),
            }
        }
    }

    fn networks(&mut self, scope: &Scope<'_>) {
        let lines: Vec<&Noted> = scope
            .levels
            .iter()
            .rev()
            .map(|level| level.iter().filter(|one| one.name == "allow" || one.name == "deny").collect::<Vec<_>>())
            .find(|lines| !lines.is_empty())
            .unwrap_or_default();
        if lines.is_empty() {
            return;
        }
        let (mut denied, mut allowed, mut notes) = (Vec::new(), Vec::new(), Vec::new());
        for one in lines {
            self.draft.guards(one.note);
            notes.push(one.note);
            let bound = match one.word(0) {
                "all" => Bound::exact(Cond::True),
                text => match network_texts(text) {
                    Some(nets) => Bound::exact(Cond::atom("client", nets)),
                    None => {
                        self.draft.fate(one.note, Fate::Missing, "it is no network: in doubt it is denied");
                        Bound::unknown()
                    }
                },
            };
            self.draft.translated(one.note);
            if one.name == "deny" {
                let not_allowed = Cond::any(allowed.iter().cloned()).negated();
                denied.push(Cond::all([bound.may, not_allowed]));
            } else {
                allowed.push(bound.must);
            }
        }
        let cond = Cond::all([scope.cond.clone(), Cond::any(denied)]);
        self.verdicts.push(Ruling { cond, does: Table::default().with("deny", true), notes });
    }
}

/// `proxy_pass` of a level, or of an `if` or `limit_except` in it.
fn find_pass(level: &[Noted]) -> Option<&Noted> {
    level.iter().find(|one| one.name == "proxy_pass")
}

fn find_locations<'a>(level: &'a [Noted], out: &mut Vec<&'a Noted>) {
    for one in level.iter().filter(|one| one.name == "location") {
        find_locations(one.inner(), out);
        out.push(one);
    }
}

/// Whole paths first, then `^~`, expressions, and the longest beginnings.
fn order(location: &Noted) -> (u8, std::cmp::Reverse<usize>) {
    let length = std::cmp::Reverse(location.words.last().map_or(0, String::len));
    match location.word(0) {
        "=" => (0, length),
        "^~" => (1, length),
        "~" | "~*" => (2, std::cmp::Reverse(0)),
        _ => (3, length),
    }
}

/// Whether Larder takes it as the prefix of a site.
fn is_prefix(prefix: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/-_.".contains(letter);
    let inner = prefix.strip_prefix('/').map(|rest| rest.strip_suffix('/').unwrap_or(rest));
    let is_good = |segment: &str| !segment.is_empty() && !segment.ends_with('.');
    prefix == "/" || (prefix.chars().all(is_plain) && inner.is_some_and(|inner| inner.split('/').all(is_good)))
}

/// A text that an expression finds as it is.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        if !letter.is_ascii_alphanumeric() && !"/-_".contains(letter) {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

/// The URL of an origin: `host:port`, or `unix:/path`.
pub fn origin_url(scheme: &str, authority: &str) -> Option<String> {
    if let Some(path) = authority.strip_prefix("unix:") {
        let path = path.trim_end_matches(':');
        let is_good = path.starts_with('/') && path.len() < 108 && !path.contains([' ', '#', '$']);
        return is_good.then(|| format!("http+unix:{path}"));
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let is_host = HostPattern::parse(host).is_some() && !host.contains(['*', '$']);
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    (is_host && is_port && ["http", "https"].contains(&scheme)).then(|| format!("{scheme}://{authority}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_and_prefixes() {
        for (authority, wanted) in [
            ("a.test:8080", Some("http://a.test:8080")),
            ("unix:/run/a.sock", Some("http+unix:/run/a.sock")),
            ("$backend", None),
            ("a.test:x", None),
        ] {
            assert_eq!(origin_url("http", authority).as_deref(), wanted, "{authority}");
        }
        for (prefix, wanted) in
            [("/", true), ("/api/", true), ("/a//b", false), ("/a./", false), ("/%61", false), ("x", false)]
        {
            assert_eq!(is_prefix(prefix), wanted, "{prefix}");
        }
        assert_eq!(escaped("/a.b/"), "/a\\.b/");
    }
}
