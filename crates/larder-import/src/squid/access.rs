//! `http_access` and its relatives, which say who may do what, as rules.

use super::lines::Line;
use super::people::Login;
use super::translated::Translated;
use super::{Effect, FirstMatch, Reader, acl};
use crate::bound::{Bound, Cond};
use crate::draft::NoteId;
use crate::note::Fate;
use crate::value::{Table, Value};

/// The lines of the access lists.
#[derive(Default)]
pub struct Lines {
    http: Vec<FirstMatch>,
    reply: Vec<FirstMatch>,
    follow: Vec<FirstMatch>,
    cache: Vec<FirstMatch>,
    icp: Vec<FirstMatch>,
    pub(super) bump: Vec<FirstMatch>,
    /// Lines of `proxy_protocol_access`.
    proxy_protocol: Vec<FirstMatch>,
    /// Lines of `ssl_bump` that end tunnels, and those before them that do not.
    pub(super) ended: Vec<FirstMatch>,
    /// By the name of an ACL: the page or URL of a refusal.
    deny_info: Vec<(String, String, NoteId)>,
}

/// A rule with a verdict, before it is written.
struct Ruling {
    name: String,
    cond: Cond,
    allows: bool,
    does: Table,
    notes: Vec<NoteId>,
    remarks: Vec<String>,
}

const NO_BALANCERS: &str = "name the balancers in proxy_protocol of this listener: until then their connections are refused as malformed (docs/proxy-protocol.md)";

const ANYBODY: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// The name of an ACL without the `!` before it.
fn bare(word: &str) -> &str {
    word.trim_start_matches('!')
}

impl Lines {
    /// The lines of `http_access`.
    pub fn http_lines_now(&self) -> Vec<FirstMatch> {
        self.http.clone()
    }
}

impl Reader<'_> {
    /// Takes the lines of the access lists; they are read when all else is known.
    pub(super) fn access(&mut self, line: &Line, id: NoteId) -> bool {
        if line.name() == "deny_info" {
            for acl in line.rest(2) {
                self.access.deny_info.push((acl.to_owned(), line.word(1).to_owned(), id));
            }
            self.draft.fate(id, Fate::Translated, "");
            return true;
        }
        let acls: Vec<String> = line.rest(2).map(str::to_owned).collect();
        let allows = line.word(1).eq_ignore_ascii_case("allow");
        let is_word = allows || line.word(1).eq_ignore_ascii_case("deny");
        let first_match = FirstMatch { allows, acls, note: id };
        let list = match line.name() {
            "http_access" | "http_access2" | "adapted_http_access" => &mut self.access.http,
            "http_reply_access" => &mut self.access.reply,
            "follow_x_forwarded_for" => &mut self.access.follow,
            "cache" | "no_cache" | "store_miss" => &mut self.access.cache,
            "icp_access" | "htcp_access" => &mut self.access.icp,
            "proxy_protocol_access" => &mut self.access.proxy_protocol,
            _ => return false,
        };
        self.draft.guards(id);
        if is_word && !first_match.acls.is_empty() {
            list.push(first_match);
        } else if is_word {
            self.draft.fate(id, Fate::NotNeeded, "it names no acl, so that Squid passes it over");
        } else {
            self.draft.fate(id, Fate::Missing, "neither allow nor deny stands in it, so that it says nothing");
        }
        true
    }

    pub(super) fn finish_access(&mut self) {
        self.cache_lines();
        self.follow_lines();
        self.icp_lines();
        self.proxy_protocol_lines();
        let mut rulings = self.ended_tunnels();
        rulings.extend(self.reply_lines());
        let has_auth = self.login_mode();
        let (of_lines, default_login) = self.http_lines(has_auth);
        rulings.extend(of_lines);
        self.finish_bandwidth();
        self.default_of_access(&mut rulings, default_login);
        self.clients_and_rules(rulings);
        let unused: Vec<NoteId> = self.access.deny_info.iter().map(|(.., id)| *id).collect();
        let used: Vec<&str> = self.access.http.iter().filter_map(|line| Some(bare(line.acls.last()?))).collect();
        for ((acl, ..), id) in self.access.deny_info.iter().zip(unused) {
            if !used.contains(&acl.as_str()) {
                self.draft.fate(id, Fate::NotNeeded, "no line of http_access ends with its acl");
            }
        }
    }

    /// How the login counts: for all who use the proxy, or for single lines.
    fn login_mode(&mut self) -> Login {
        let mut after_deny = false;
        let (mut uses, mut all_covered, mut lines_can) = (false, true, true);
        for line in self.access.http.clone() {
            let others: Vec<String> = line.acls.iter().filter(|word| !self.is_about_users(word)).cloned().collect();
            // Where a line that asks for a login is narrower here, a request could pass it by without one.
            lines_can &= others.len() == line.acls.len() || self.all_of(&others).0.is_exact();
            let is_auth = |word: &String| self.is_about_users(word);
            let is_required = |word: &String| self.acls.get(bare(word)).is_some_and(acl::Acl::asks_for_anybody);
            let auth: Vec<&String> = line.acls.iter().filter(|word| is_auth(word)).collect();
            uses |= !auth.is_empty();
            let is_pure_deny = !line.allows && line.acls.len() == 1 && auth.iter().any(|word| word.starts_with('!'));
            if line.allows {
                let is_covered = after_deny || auth.iter().any(|word| !word.starts_with('!'));
                all_covered &= is_covered;
                let is_last = auth.is_empty() || (auth.len() == 1 && line.acls.last().is_some_and(is_auth));
                lines_can &= is_last && auth.iter().all(|word| !word.starts_with('!') && is_required(word));
            } else if is_pure_deny {
                lines_can &= auth.iter().all(|word| is_required(word));
                after_deny = true;
            } else {
                lines_can &= auth.is_empty();
            }
        }
        let asks_elsewhere = self.people.asks_user();
        match (uses || asks_elsewhere, self.people.login_name().is_some()) {
            (false, _) => Login::None,
            (true, false) => Login::Unknown,
            (true, true) if !all_covered && lines_can && !asks_elsewhere => Login::OfLines,
            (true, true) => Login::OfAll { is_stricter: !all_covered },
        }
    }

    /// The rules of the lines, and the login that all need whom no line is about.
    fn http_lines(&mut self, login: Login) -> (Vec<Ruling>, Option<&'static str>) {
        self.people.set_mode(login);
        let lines = self.access.http.clone();
        let mut rulings = Vec::new();
        let (mut has_allowed, mut after_auth) = (false, false);
        if let (Login::OfAll { .. }, Some(name)) = (login, self.people.login_name()) {
            self.draft.set("access.login", name, &[]);
        }
        for (number, line) in lines.iter().enumerate() {
            if self.is_about_manager(line) || self.is_setting(line, has_allowed) {
                continue;
            }
            let is_pure_auth = match line.acls.as_slice() {
                [only] => only.starts_with('!') && self.acls.get(bare(only)).is_some_and(|acl| acl.asks_for_anybody()),
                _ => false,
            };
            if is_pure_auth && !line.allows && matches!(login, Login::OfAll { .. } | Login::OfLines) {
                let (_, _, notes) = self.all_of(&line.acls);
                notes.iter().for_each(|id| self.draft.translated(*id));
                let how =
                    if login == Login::OfLines { "the lines behind it ask for the login" } else { "access.login" };
                self.draft.fate(line.note, Fate::Translated, how);
                after_auth = true;
                continue;
            }
            has_allowed |= line.allows;
            rulings.extend(self.ruling(line, number, login, after_auth));
        }
        (rulings, self.people.login_name().filter(|_| after_auth && login == Login::OfLines))
    }

    fn is_about_users(&self, word: &str) -> bool {
        self.acls.get(bare(word)).is_some_and(|acl| self.people.is_about_users(acl))
    }

    /// The rule of one line; `None` where it never holds.
    fn ruling(&mut self, line: &FirstMatch, number: usize, login: Login, after_auth: bool) -> Option<Ruling> {
        let destinations = self.destinations_of(line);
        let (bound, mut whys, mut notes) = self.bound_of(line, destinations.as_ref().map(|(word, _)| word.as_str()));
        notes.push(line.note);
        let cond = if line.allows { bound.must.clone() } else { bound.may.clone() };
        let is_about_users = line.acls.iter().any(|word| self.is_about_users(word));
        let is_never = cond.when().is_none() && cond != Cond::True;
        // A condition that is too deep for a rule: nothing is allowed by it, and everything denied.
        let too_deep = is_never && cond != Cond::False;
        let cond = if too_deep && !line.allows { Cond::True } else { cond };
        if too_deep {
            whys.push("it is nested too deep for a rule".to_owned());
        }
        let closed = destinations.map(|(_, networks)| Cond::atom("destination", networks));
        let cond = Cond::all([cond].into_iter().chain(closed));
        if let (Login::OfAll { is_stricter: true }, true, false) = (login, line.allows, is_about_users || after_auth) {
            self.draft.fate(line.note, Fate::Different, "everybody has to log in, these too (access.login)");
        }
        if whys.is_empty() {
            let text = if is_never { "it never holds" } else { "" };
            self.draft.fate(line.note, Fate::Translated, text);
        } else {
            let what = match (line.allows, &cond) {
                (true, Cond::False) => "what it would have allowed is denied",
                (true, _) => "less is allowed than before",
                (false, Cond::True) => "ALL IS DENIED here, for it can't be told what is meant",
                (false, _) => "more is denied than before",
            };
            let fate = if cond == Cond::False || cond == Cond::True { Fate::Missing } else { Fate::Different };
            self.draft.fate(line.note, fate, &format!("{what} ({})", whys.join("; ")));
        }
        if is_never && (line.allows || !too_deep) {
            return None;
        }
        let asks = line.allows && login == Login::OfLines && (is_about_users || after_auth);
        let mut does = match (line.allows, self.people.login_name().filter(|_| asks)) {
            (true, Some(name)) => Table::default().with("login", name),
            (true, None) => Table::default().with("allow", true),
            (false, _) => self.refusal(line),
        };
        if !line.allows && !whys.is_empty() {
            does.set("mark", "import");
        }
        if line.allows && is_purge(&cond) {
            let networks = networks_of(&cond).unwrap_or_else(|| ANYBODY.map(str::to_owned).to_vec());
            self.draft.add_texts("access.purge", networks, &[]);
        }
        let name = format!("http_access {}: {}", number + 1, line.acls.join(" "));
        let name = name.chars().take(80).collect();
        Some(Ruling { name, cond, allows: line.allows, does, notes, remarks: Vec::new() })
    }

    /// The networks of the ACL about destinations in a line that denies, and its word.
    fn destinations_of(&mut self, line: &FirstMatch) -> Option<(String, Vec<String>)> {
        let mut words = line.acls.iter().filter(|_| !line.allows);
        let (name, acl, networks) = words.find_map(|word| {
            let acl = self.acls.get(word).cloned().or_else(|| acl::built_in(word))?;
            let networks = acl::destinations_of(&acl).filter(|_| !self.is_closed_by_itself(&acl))?;
            Some((word.clone(), acl, networks))
        })?;
        let (fate, text) = match self.draft.items("parent").is_empty() {
            true => (Fate::Translated, "by the address that is connected to (rule.when.destination)"),
            false => (
                Fate::Different,
                "by the address that is connected to (rule.when.destination): a name that is asked for through a parent is not looked up",
            ),
        };
        acl.notes.iter().for_each(|id| self.draft.fate(*id, Fate::Translated, text));
        self.draft.fate(line.note, fate, text);
        // Its other lines say for themselves how they differ.
        self.known.entry(name.clone()).or_insert_with(|| acl::translate(&acl, None));
        Some((name, networks))
    }

    fn bound_of(&mut self, line: &FirstMatch, apart: Option<&str>) -> (Bound, Vec<String>, Vec<NoteId>) {
        // No request of a client of the proxy is one of the cache manager.
        let is_asked = |word: &&String| word.as_str() != "!manager" && Some(word.as_str()) != apart;
        let acls: Vec<String> = line.acls.iter().filter(is_asked).cloned().collect();
        self.all_of(&acls)
    }

    /// The page or the redirection of a refusal.
    fn refusal(&mut self, line: &FirstMatch) -> Table {
        let deny = Table::default().with("deny", true);
        let last = line.acls.last().map_or("", |word| bare(word));
        let Some((_, what, id)) = self.access.deny_info.iter().rev().find(|(acl, ..)| acl == last).cloned() else {
            return deny;
        };
        let (status, url) = match what.split_once(':') {
            Some((status, rest)) if status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit()) => {
                (status.parse::<u64>().ok(), rest.to_owned())
            }
            _ => (None, what.clone()),
        };
        if url.contains("://") {
            let url = placeholders(&url);
            let status = status.filter(|status| [301, 302, 303, 307, 308].contains(status));
            let redirect = Table::default().with("redirect", url);
            return status.map_or(redirect.clone(), |status| redirect.with("status", status));
        }
        self.draft.fate(id, Fate::Different, "Larder's own page is shown; rule.do.page takes a file with another one");
        match status.filter(|status| (400..600).contains(status)) {
            Some(status) => deny.with("status", status),
            None => deny,
        }
    }

    /// Lines about the cache manager, which Larder answers to its own machine alone.
    fn is_about_manager(&mut self, line: &FirstMatch) -> bool {
        let names_it = line.acls.iter().any(|word| word == "manager");
        if !names_it {
            return false;
        }
        for id in self.acls.get("manager").map(|acl| acl.notes.clone()).unwrap_or_default() {
            self.draft.fate(id, Fate::NotNeeded, "the cache manager is known by itself (docs/squid.md)");
        }
        self.known
            .entry("manager".to_owned())
            .or_insert_with(|| Translated { bound: Bound::exact(Cond::False), why: None });
        self.draft.fate(line.note, Fate::NotNeeded, "the cache manager answers clients of this machine alone");
        true
    }

    /// Lines that are a setting and no rule.
    fn is_setting(&mut self, line: &FirstMatch, has_allowed: bool) -> bool {
        if line.allows {
            return false;
        }
        match line.acls.as_slice() {
            [only] => {
                let Some(acl) = self.acls.get(only.as_str()).cloned().or_else(|| acl::built_in(only)) else {
                    return false;
                };
                if self.is_closed_by_itself(&acl) {
                    self.known_as_closed(only, &acl.notes);
                    self.draft.fate(
                        line.note,
                        Fate::Translated,
                        "closed by itself to all clients (access.destinations)",
                    );
                    return true;
                }
                if acl.kind == "maxconn" {
                    return self.connections_per_client(only, &acl, line.note);
                }
                false
            }
            [first, second] if !has_allowed && self.settings_of_connect(first, second, line.note) => true,
            _ => false,
        }
    }

    fn known_as_closed(&mut self, name: &str, notes: &[NoteId]) {
        notes
            .iter()
            .for_each(|id| self.draft.fate(*id, Fate::Translated, "access.destinations is closed for these by itself"));
        self.known.entry(name.to_owned()).or_insert(Translated::exact(Cond::False));
    }

    fn connections_per_client(&mut self, name: &str, acl: &acl::Acl, id: NoteId) -> bool {
        let Some(count) =
            acl.values.first().and_then(|value| value.text.parse::<u64>().ok()).filter(|count| *count > 0)
        else {
            return false;
        };
        let notes: Vec<NoteId> = acl.notes.iter().copied().chain([id]).collect();
        self.draft.set("limits.connections_per_client_max", count, &notes);
        let text = "the connections of one client, whatever they ask for: 503 beyond";
        notes.iter().for_each(|id| self.draft.fate(*id, Fate::Different, text));
        // No more is permitted than before, so it is no open question.
        self.known.insert(name.to_owned(), Translated { bound: Bound::unknown(), why: None });
        self.draft.not_a_guard(&notes);
        true
    }

    /// `http_access deny CONNECT !SSL_ports` before anything is allowed.
    fn settings_of_connect(&mut self, first: &str, second: &str, id: NoteId) -> bool {
        let port = match (first, second) {
            ("CONNECT", other) | (other, "CONNECT") if other.starts_with('!') => bare(other).to_owned(),
            _ => return false,
        };
        let (connect, _) = self.cond("CONNECT");
        let (ports, _) = self.cond(&port);
        let Bound { must: Cond::Atom(atom), .. } = &ports else { return false };
        let numbers: Vec<u64> = atom.values.iter().filter_map(|value| value.parse().ok()).collect();
        let is_plain = ports.is_exact() && atom.key == "port" && numbers.len() == atom.values.len();
        if !is_plain || connect != Bound::exact(Cond::atom("method", ["CONNECT"])) || !self.is_first_connect() {
            return false;
        }
        let mut notes: Vec<NoteId> = self.acls.get(&port).map(|acl| acl.notes.clone()).unwrap_or_default();
        notes.extend(self.acls.get("CONNECT").map(|acl| acl.notes.clone()).unwrap_or_default());
        notes.push(id);
        let ports = Value::List(numbers.into_iter().map(Value::Number).collect());
        self.draft.set("access.connect_ports", ports, &notes);
        self.draft.translated(id);
        true
    }

    fn is_first_connect(&self) -> bool {
        self.draft.setting("access.connect_ports").is_none()
    }

    /// The verdict where no line holds: the opposite of the last one.
    fn default_of_access(&mut self, rulings: &mut Vec<Ruling>, login: Option<&'static str>) {
        let last_allows = self.access.http.last().map(|line| line.allows);
        let ends = rulings.last().is_some_and(|ruling| ruling.cond == Cond::True);
        if ends || (last_allows.is_none() && self.traffic.is_reverse_alone()) {
            return;
        }
        let (allows, remark) = match last_allows {
            None => (false, "Squid allows nothing where no line of http_access says so."),
            Some(true) => (false, "No line holds: the opposite of the last one, which allows."),
            Some(false) => (true, "No line holds: the opposite of the last one, which denies."),
        };
        let does = match (allows, login) {
            (true, Some(login)) => Table::default().with("login", login),
            (true, None) => Table::default().with("allow", true),
            (false, _) => Table::default().with("deny", true),
        };
        rulings.push(Ruling {
            name: "http_access: the default".to_owned(),
            cond: Cond::True,
            allows,
            does,
            notes: Vec::new(),
            remarks: vec![remark.to_owned()],
        });
    }

    /// Writes `access.clients` and the rules. Lines at the end that say no more than `access.clients` become no rules.
    fn clients_and_rules(&mut self, mut rulings: Vec<Ruling>) {
        if let Some(last) = rulings.iter().position(|ruling| ruling.cond == Cond::True) {
            for ruling in rulings.drain(last + 1..) {
                ruling
                    .notes
                    .last()
                    .into_iter()
                    .for_each(|id| self.draft.fate(*id, Fate::Translated, "a line before it holds for all"));
            }
        }
        let clients = clients_of(&rulings);
        let mut folded: Vec<NoteId> = Vec::new();
        if let (Some(clients), false) = (&clients, self.traffic.has_sites()) {
            let tail = rulings.iter().rev().take_while(|ruling| match ruling.allows {
                true => {
                    networks_of(&ruling.cond).is_some_and(|_| is_client_alone(&ruling.cond))
                        && ruling.does.find("login").is_none()
                }
                false => ruling.cond == Cond::True && ruling.does.0.len() == 1,
            });
            let count = tail.count();
            let tail_has: Vec<String> = rulings[rulings.len() - count..]
                .iter()
                .filter(|ruling| ruling.allows)
                .filter_map(|ruling| networks_of(&ruling.cond))
                .flatten()
                .collect();
            if count > 0 && clients.iter().all(|client| tail_has.contains(client)) {
                for ruling in rulings.drain(rulings.len() - count..) {
                    folded.extend(ruling.notes);
                }
            }
        }
        match clients {
            Some(clients) => self.draft.set("access.clients", clients, &folded),
            None => self.draft.set("access.clients", ANYBODY.map(str::to_owned).to_vec(), &[]),
        }
        if self.draft.setting("access.connect_ports").is_none() {
            self.draft.set("access.connect_ports", Value::List(Vec::new()), &[]);
        }
        for ruling in rulings {
            self.draft.rule(&ruling.name, &ruling.cond, ruling.does, &ruling.notes, ruling.remarks);
        }
    }

    /// `ssl_bump terminate`: tunnels are known by the host that the client asks for, which is mostly the server name too.
    fn ended_tunnels(&mut self) -> Vec<Ruling> {
        let lines = std::mem::take(&mut self.access.ended);
        if lines.iter().all(|line| line.allows) {
            return Vec::new();
        }
        let names: Vec<String> =
            lines.iter().flat_map(|line| line.acls.iter().map(|word| bare(word).to_owned())).collect();
        let mut lent = Vec::new();
        for name in names {
            let Some(acl) = self.acls.get(&name).cloned() else { continue };
            let as_if = match acl.kind.as_str() {
                "ssl::server_name" => acl::translate(&acl::Acl { kind: "dstdomain".to_owned(), ..acl }, None),
                "at_step" => Translated::exact(Cond::True),
                _ => continue,
            };
            self.known.insert(name.clone(), as_if);
            lent.push(name);
        }
        let (bound, whys, notes) = self.decided(&lines, false);
        // In other lines they are what they were.
        for name in lent {
            for id in self.acls.get(&name).map(|acl| acl.notes.clone()).unwrap_or_default() {
                self.draft.fate(id, Fate::Translated, "by the host that the client asks for");
            }
        }
        let tunnel = Cond::atom("method", ["CONNECT"]);
        let cond = Cond::all([tunnel.clone(), bound.may]);
        if cond == Cond::False {
            return Vec::new();
        }
        let cond = if cond.when().is_some() { cond } else { tunnel };
        for line in lines.iter().filter(|line| !line.allows) {
            let text = match whys.is_empty() {
                true => "such a tunnel is denied, by the host that the client asks for".to_owned(),
                false => format!("tunnels that may be meant are denied ({})", whys.join("; ")),
            };
            self.draft.fate(line.note, Fate::Different, &text);
        }
        let does = Table::default().with("deny", true);
        vec![Ruling { name: "ssl_bump terminate".to_owned(), cond, allows: false, does, notes, remarks: Vec::new() }]
    }

    /// `http_reply_access`: rules see requests alone, so each request whose answer may be refused is.
    fn reply_lines(&mut self) -> Vec<Ruling> {
        let lines = self.access.reply.clone();
        if lines.is_empty() {
            return Vec::new();
        }
        let (bound, whys, notes) = self.decided(&lines, false);
        if bound.may == Cond::False {
            lines.iter().for_each(|line| self.draft.fate(line.note, Fate::Translated, "nothing is refused by it"));
            return Vec::new();
        }
        for line in &lines {
            match line.allows || whys.is_empty() {
                true => self.draft.fate(line.note, Fate::Translated, "judged by the request"),
                false => {
                    let text = format!("each request whose answer it may be about is denied ({})", whys.join("; "));
                    self.draft.fate(line.note, Fate::Missing, &text);
                }
            }
        }
        let cond = if bound.may.when().is_some() { bound.may } else { Cond::True };
        let does = Table::default().with("deny", true).with("mark", "import");
        vec![Ruling { name: "http_reply_access".to_owned(), cond, allows: false, does, notes, remarks: Vec::new() }]
    }

    /// `cache deny`: what may be meant is not stored.
    fn cache_lines(&mut self) {
        let lines = self.access.cache.clone();
        if lines.is_empty() {
            return;
        }
        let (bound, whys, notes) = self.decided(&lines, false);
        let cond = if bound.may.when().is_some() || bound.may == Cond::False { bound.may } else { Cond::True };
        for line in &lines {
            self.draft.not_a_guard(&[line.note]);
            match whys.is_empty() {
                true => self.draft.translated(line.note),
                false => self.draft.fate(
                    line.note,
                    Fate::Different,
                    &format!("more is not stored than before ({})", whys.join("; ")),
                ),
            }
        }
        if cond != Cond::False {
            self.effects.push(Effect { cond, does: Table::default().with("never", true), notes });
            // These rules are written before those with a verdict.
            self.flush_effects();
        }
    }

    fn flush_effects(&mut self) {
        for Effect { cond, does, notes } in std::mem::take(&mut self.effects) {
            self.draft.rule("", &cond, does, &notes, Vec::new());
        }
    }

    /// `follow_x_forwarded_for`: Larder takes the address of the connection, so nobody may come through such a proxy as if he were it.
    fn follow_lines(&mut self) {
        let lines = self.access.follow.clone();
        let (bound, _, notes) = self.decided(&lines, true);
        if bound.may == Cond::False {
            lines.iter().for_each(|line| self.draft.fate(line.note, Fate::Translated, "no field is believed"));
            return;
        }
        for line in &lines {
            let text = "Larder judges by the address of the connection: requests that such a proxy passes on (X-Forwarded-For) are denied";
            self.draft.fate(line.note, if line.allows { Fate::Missing } else { Fate::Translated }, text);
        }
        let passed_on = Cond::atom_of("field", "X-Forwarded-For", ["*"]);
        let cond = Cond::all([bound.may, passed_on.clone()]);
        let cond = if cond.when().is_some() { cond } else { passed_on };
        let does = Table::default().with("deny", true).with("mark", "import");
        self.draft.rule("follow_x_forwarded_for", &cond, does, &notes, Vec::new());
    }

    fn icp_lines(&mut self) {
        let lines = self.access.icp.clone();
        let (bound, _, notes) = self.decided(&lines, true);
        let asked = self.traffic.is_asked();
        if !asked {
            lines.iter().for_each(|line| {
                self.draft.fate(
                    line.note,
                    Fate::NotNeeded,
                    "nobody is answered where there is no icp_port or htcp_port",
                )
            });
            return;
        }
        let networks = match &bound.must {
            Cond::True => Some(ANYBODY.map(str::to_owned).to_vec()),
            Cond::False => Some(Vec::new()),
            cond => networks_of(cond).filter(|_| is_client_alone(cond)),
        };
        match networks {
            Some(networks) => {
                self.draft.set("neighbours.from", networks, &notes);
                lines.iter().for_each(|line| self.draft.translated(line.note));
            }
            None => lines.iter().for_each(|line| {
                self.draft.fate(
                    line.note,
                    Fate::Missing,
                    "neighbours are networks (neighbours.from); none is answered",
                );
            }),
        }
    }
}

impl Reader<'_> {
    /// Names the balancers at the listeners whose connections begin with a header.
    fn proxy_protocol_lines(&mut self) {
        let lines = self.access.proxy_protocol.clone();
        let (ports, (bound, _, notes)) = (self.traffic.with_proxy_header(), self.decided(&lines, true));
        let networks = match &bound.must {
            Cond::True => Some(ANYBODY.map(str::to_owned).to_vec()),
            cond => networks_of(cond).filter(|networks| !networks.is_empty() && is_client_alone(cond)),
        };
        let (fate, text) = match &networks {
            _ if ports.is_empty() => (Fate::NotNeeded, "no port has require-proxy-header"),
            Some(_) => (Fate::Translated, ""),
            None => (
                Fate::Missing,
                "balancers are networks (listen.proxy_protocol): until they are named, their connections are refused as malformed",
            ),
        };
        lines.iter().map(|line| line.note).for_each(|note| self.draft.fate(note, fate, text));
        let Some(networks) = networks else {
            return ports.into_iter().for_each(|port| self.draft.fate(port, Fate::Missing, NO_BALANCERS));
        };
        for item in self.draft.items_mut("listen") {
            if item.notes.iter().any(|note| ports.contains(note)) {
                item.table.set("proxy_protocol", networks.clone());
                item.notes.extend(&notes);
            }
        }
    }
}

/// The networks from which any ruling allows something; `None` where some of them allows from anywhere.
fn clients_of(rulings: &[Ruling]) -> Option<Vec<String>> {
    let mut clients: Vec<String> = Vec::new();
    for ruling in rulings.iter().filter(|ruling| ruling.allows) {
        for network in networks_of(&ruling.cond)? {
            if !clients.contains(&network) {
                clients.push(network);
            }
        }
    }
    Some(clients)
}

/// The networks without which a condition does not hold.
fn networks_of(cond: &Cond) -> Option<Vec<String>> {
    match cond {
        Cond::Atom(atom) if atom.key == "client" => Some(atom.values.clone()),
        Cond::And(all) => all.iter().find_map(networks_of),
        Cond::Or(each) => each.iter().map(networks_of).collect::<Option<Vec<_>>>().map(|all| all.concat()),
        Cond::False => Some(Vec::new()),
        _ => None,
    }
}

/// Whether a condition is about PURGE alone.
fn is_purge(cond: &Cond) -> bool {
    match cond {
        Cond::Atom(atom) => atom.key == "method" && atom.values == ["PURGE"],
        Cond::And(all) => all.iter().any(is_purge),
        _ => false,
    }
}

fn is_client_alone(cond: &Cond) -> bool {
    matches!(cond, Cond::Atom(atom) if atom.key == "client")
}

/// `%u` and its like of a `deny_info` URL as placeholders.
fn placeholders(url: &str) -> String {
    let mut letters = url.replace('{', "{{").replace('}', "}}");
    for (code, placeholder) in [
        ("%u", "{url}"),
        ("%U", "{url}"),
        ("%H", "{host}"),
        ("%i", "{client}"),
        ("%a", "{user}"),
        ("%R", "{path}"),
        ("%p", "{port}"),
        ("%o", ""),
        ("%s", ""),
    ] {
        letters = letters.replace(code, placeholder);
    }
    letters
}
