//! Backends, probes and directors as origins, and the sites that they serve.

use super::parse::{Declaration, Token};
use super::{Noted, Reader, seconds};
use crate::draft::NoteId;
use crate::note::Fate;
use crate::value::{Table, Value};

/// A backend.
#[derive(Clone, Debug)]
pub struct Backend {
    name: String,
    url: String,
    requests: Option<u64>,
    probe: Option<Table>,
    notes: Vec<NoteId>,
}

/// A director.
#[derive(Clone, Debug)]
pub struct Director {
    name: String,
    balance: &'static str,
    is_fallback: bool,
    /// Names of backends, with their weights.
    members: Vec<(String, Option<u64>)>,
    notes: Vec<NoteId>,
}

/// The value of `.name = value`.
fn value(tokens: &[Token]) -> String {
    match tokens.get(2) {
        Some(Token::Text(text)) => text.clone(),
        Some(Token::Name(name)) => name.clone(),
        _ => String::new(),
    }
}

impl Reader {
    pub(super) fn backend(&mut self, name: &str, declaration: &Declaration, note: NoteId) {
        if declaration.words.get(1).is_some_and(|word| word == "none") {
            return self.draft.fate(
                note,
                Fate::Missing,
                "there is no origin that refuses all: requests for it are answered 404 or 502",
            );
        }
        let inner = self.noted(&declaration.body);
        let mut backend =
            Backend { name: name.to_owned(), url: String::new(), requests: None, probe: None, notes: vec![note] };
        let (mut host, mut port) = (String::new(), "80".to_owned());
        for one in &inner {
            backend.notes.push(one.note);
            self.draft.translated(one.note);
            let text = value(&one.statement.tokens);
            match one.word() {
                ".host" => host = text,
                ".port" => port = text,
                ".path" => host = format!("unix:{text}"),
                ".probe" => {
                    backend.probe = match &one.body {
                        Some(body) => Some(self.probe(body)),
                        None => self.probes.get(&text).cloned(),
                    };
                }
                ".max_connections" => backend.requests = text.parse().ok().filter(|count| *count > 0),
                ".connect_timeout" => self.time("timeouts.connect", &text, one.note),
                ".first_byte_timeout" => self.time("timeouts.first_byte", &text, one.note),
                ".between_bytes_timeout" => self.time("timeouts.origin_idle", &text, one.note),
                ".host_header" => {
                    self.draft.fate(one.note, Fate::Different, "`host` of a member of an [[origin]] says that")
                }
                _ => self.draft.fate(one.note, Fate::Missing, "origins have no such setting"),
            }
        }
        if let Some((inner_host, inner_port)) =
            host.clone().rsplit_once(':').filter(|_| !host.starts_with("unix:") && !host.contains('['))
        {
            (host, port) = (inner_host.to_owned(), inner_port.to_owned());
        }
        if port == "http" {
            port = "80".to_owned();
        }
        let authority = if port == "80" || host.starts_with("unix:") { host } else { format!("{host}:{port}") };
        match crate::nginx::serve::origin_url("http", &authority) {
            Some(url) => {
                self.draft.translated(note);
                backend.url = url;
                self.default_backend.get_or_insert_with(|| name.to_owned());
                if name == "default" {
                    self.default_backend = Some(name.to_owned());
                }
                self.backends.push(backend);
            }
            None => self.draft.fate(
                note,
                Fate::Missing,
                "its host is no name, no address and no socket: requests for it have no origin",
            ),
        }
    }

    fn time(&mut self, setting: &'static str, text: &str, note: NoteId) {
        match seconds(text) {
            Some(seconds) => {
                self.draft.set(setting, format!("{}s", seconds.clamp(1, 86_400)), &[note]);
                self.draft.fate(note, Fate::Translated, "for all origins");
            }
            None => self.draft.fate(note, Fate::Missing, "it is no time"),
        }
    }

    pub(super) fn probe(&mut self, statements: &[Noted]) -> Table {
        let mut check = Table::default();
        for one in statements {
            self.draft.translated(one.note);
            let text = value(&one.statement.tokens);
            let time = || seconds(&text).map(|seconds| format!("{}s", seconds.clamp(1, 86_400)));
            match one.word() {
                ".url" if text.starts_with('/') && !text.contains([' ', '#']) => check.set("path", text),
                ".interval" => time().into_iter().for_each(|time| check.set("every", time)),
                ".timeout" => time().into_iter().for_each(|time| check.set("timeout", time)),
                ".expected_response" if text.parse::<u16>().is_ok_and(|status| (100..600).contains(&status)) => {
                    check.set("statuses", vec![text]);
                }
                ".threshold" | ".window" | ".initial" => {
                    self.draft.fate(
                        one.note,
                        Fate::Different,
                        "three bad checks in a row are down, two good ones up (fall, rise)",
                    );
                }
                _ => self.draft.fate(one.note, Fate::Missing, "a check is a GET of a path"),
            }
        }
        // A check ends before the next one begins.
        let number = |key: &str, usual: u64| match check.find(key) {
            Some(Value::Text(text)) => text.trim_end_matches('s').parse().unwrap_or(usual),
            _ => usual,
        };
        let (every, timeout) = (number("every", 5), number("timeout", 2));
        if timeout > every {
            check.set("timeout", format!("{every}s"));
        }
        check
    }

    /// `director NAME round-robin { { .backend = a; } }` of VCL 3.
    pub(super) fn old_director(&mut self, name: &str, declaration: &Declaration, note: NoteId) {
        let inner = self.noted(&declaration.body);
        let kind = declaration.words.get(1).map_or("", String::as_str);
        let mut director = Director {
            name: name.to_owned(),
            balance: balance(kind),
            is_fallback: kind == "fallback",
            members: Vec::new(),
            notes: vec![note],
        };
        for one in inner.iter().flat_map(Noted::inner).filter(|one| one.word() == ".backend") {
            director.members.push((value(&one.statement.tokens), None));
        }
        self.say_all(&inner, Fate::Translated, "");
        self.draft.translated(note);
        self.directors.push(director);
    }

    /// `new d = directors.round_robin(); d.add_backend(a, 2.0);`
    pub(super) fn find_directors(&mut self) {
        let init = self.subs.get("vcl_init").cloned().unwrap_or_default();
        for one in &init {
            let tokens = &one.statement.tokens;
            match (one.word(), tokens.get(1), tokens.get(3)) {
                ("new", Some(Token::Name(name)), Some(Token::Name(made))) => {
                    let kind = made.strip_prefix("directors.").unwrap_or_default().replace('_', "-");
                    if kind.is_empty() {
                        self.draft.fate(one.note, Fate::Missing, "there are no such modules");
                        continue;
                    }
                    let director = Director {
                        name: name.clone(),
                        balance: balance(&kind),
                        is_fallback: kind == "fallback",
                        members: Vec::new(),
                        notes: vec![one.note],
                    };
                    self.directors.push(director);
                    self.draft.translated(one.note);
                }
                (word, ..) => {
                    let Some((name, call)) = word.rsplit_once('.') else { continue };
                    let Some(director) = self.directors.iter_mut().find(|director| director.name == name) else {
                        continue;
                    };
                    if call == "add_backend"
                        && let Some(Token::Name(backend)) = tokens.get(2)
                    {
                        let weight = tokens.iter().skip(3).find_map(|token| match token {
                            Token::Name(number) => number.parse::<f64>().ok(),
                            _ => None,
                        });
                        director
                            .members
                            .push((backend.clone(), weight.map(|weight| (weight.round() as u64).clamp(1, 1_000))));
                        director.notes.push(one.note);
                        self.draft.translated(one.note);
                    }
                }
            }
        }
    }

    /// The URL, or the name of a group, for what `req.backend_hint` names.
    pub(super) fn origin_of(&mut self, name: &str) -> Option<String> {
        if let Some(director) = self.directors.iter().find(|director| director.name == name).cloned() {
            return self.group(&director);
        }
        let backend = self.backends.iter().find(|backend| backend.name == name)?.clone();
        if backend.probe.is_none() && backend.requests.is_none() {
            return Some(backend.url);
        }
        let director = Director {
            name: backend.name.clone(),
            balance: "p2c",
            is_fallback: false,
            members: vec![(backend.name.clone(), None)],
            notes: Vec::new(),
        };
        self.group(&director)
    }

    fn group(&mut self, director: &Director) -> Option<String> {
        let name = self.draft.free_name("origin", &director.name);
        let written = name.trim_end_matches("-2");
        if self.draft.is_named("origin", written) && name != written {
            return Some(written.to_owned());
        }
        let (mut members, mut urls, mut check, mut notes) = (Vec::new(), Vec::new(), None, director.notes.clone());
        for (number, (member, weight)) in director.members.iter().enumerate() {
            let Some(backend) = self.backends.iter().find(|backend| backend.name == *member) else { continue };
            notes.extend(&backend.notes);
            check = check.or_else(|| backend.probe.clone());
            if urls.contains(&backend.url) {
                continue;
            }
            urls.push(backend.url.clone());
            let mut table = Table::default().with("url", backend.url.as_str());
            if let Some(weight) = weight {
                table.set("weight", *weight);
            }
            if let Some(requests) = backend.requests {
                table.set("requests", requests);
            }
            if director.is_fallback && number > 0 {
                table.set("backup", true);
            }
            members.push(Value::Table(table));
        }
        if members.is_empty() {
            return None;
        }
        let mut table = Table::default()
            .with("name", name.as_str())
            .with("balance", director.balance)
            .with("members", Value::List(members));
        if let Some(check) = check {
            table.set("check", check);
        }
        self.draft.push("origin", table, &notes);
        Some(name)
    }

    pub(super) fn write_sites(&mut self) {
        let listen = Table::default().with("address", "0.0.0.0:6081").with("forward", false).with("mirror", "none");
        let remarks =
            vec!["VCL does not say where clients are served: 6081 is the port of varnishd without -a.".to_owned()];
        self.draft.push_item("listen", crate::draft::Item { table: listen, notes: Vec::new(), remarks });
        let mut taken: Vec<String> = Vec::new();
        let sites = std::mem::take(&mut self.sites);
        let default = self.default_backend.clone().map(|name| (vec!["*".to_owned()], name, usize::MAX));
        for (hosts, backend, note) in sites.into_iter().chain(default) {
            let hosts: Vec<String> = hosts.into_iter().filter(|host| !taken.contains(host)).collect();
            let Some(origin) = self.origin_of(&backend).filter(|_| !hosts.is_empty()) else {
                self.draft.fate(note, Fate::Missing, "there is no such backend");
                continue;
            };
            taken.extend(hosts.iter().cloned());
            let notes: Vec<NoteId> = self
                .backends
                .iter()
                .find(|known| known.name == backend)
                .map(|known| known.notes.clone())
                .unwrap_or_default();
            let site = Table::default().with("hosts", hosts).with("origin", origin);
            self.draft.push("site", site, &[vec![note], notes].concat());
        }
    }
}

fn balance(kind: &str) -> &'static str {
    match kind {
        "random" => "p2c",
        "hash" | "shard" | "client" => "ring-hash",
        _ => "round-robin",
    }
}
