//! Parents and siblings: lines of `cache_peer` without `originserver`, and who is asked through them.
//!
//! Larder's parents are for all hosts but those of `forward.direct`, and nothing goes past them. Where Squid's lines say that exactly, they
//! are translated; where they don't, more goes through the parents than before, and never less.

use super::lines::Line;
use super::{FirstMatch, Reader};
use crate::bound::Cond;
use crate::draft::NoteId;
use crate::note::Fate;
use crate::value::Table;
use larder_rules::HostPattern;

/// All that is known of parents and siblings.
#[derive(Default)]
pub(super) struct Peers {
    parents: Vec<Parent>,
    never_direct: Vec<FirstMatch>,
    always_direct: Vec<FirstMatch>,
    /// Lines that say whether origins are asked themselves where either would do.
    preferred: Vec<NoteId>,
}

#[derive(Clone, Debug)]
struct Parent {
    /// Its name in Squid.
    name: String,
    table: Table,
    /// It is for requests that no other one takes.
    is_last: bool,
    note: NoteId,
}

/// Options that say no more than Larder does in any case.
const NOTHING_TO_SAY: [&str; 9] = [
    "default",
    "no-query",
    "no-digest",
    "no-netdb-exchange",
    "no-delay",
    "no-tproxy",
    "allow-miss",
    "htcp",
    "connection-auth=off",
];

/// Options by which Squid chooses among parents, and others that make a difference.
const DIFFERENT: [(&str, &str); 16] = [
    ("round-robin", "parents are tried in their order"),
    ("weighted-round-robin", "parents are tried in their order"),
    ("carp", "parents are tried in their order"),
    ("userhash", "parents are tried in their order"),
    ("sourcehash", "parents are tried in their order"),
    ("weight", "parents are tried in their order"),
    ("basetime", "parents are tried in their order"),
    ("ttl", "nobody is asked by multicast"),
    ("closest-only", "parents are tried in their order"),
    ("multicast-responder", "nobody is asked by multicast"),
    ("multicast-siblings", "nobody is asked by multicast"),
    ("proxy-only", "responses are stored here too"),
    ("background-ping", "a neighbour is asked about requests alone"),
    ("max-conn", "upstream.connections_per_origin_max counts"),
    ("connect-timeout", "timeouts.connect counts"),
    ("connect-fail-limit", "the next parent is tried after one failure"),
];

impl Reader<'_> {
    /// A line of `cache_peer` that names no origin.
    pub(super) fn neighbour(&mut self, line: &Line, id: NoteId) {
        let (host, kind) = (line.word(1), line.word(2));
        let options: Vec<&str> = line.rest(5).collect();
        let value = |name: &str| options.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('='));
        let is_sibling = kind == "sibling";
        if !is_sibling && kind != "parent" {
            return self.draft.fate(id, Fate::Missing, "there are parents and siblings, and no groups of multicast");
        }
        if options.iter().any(|option| option.starts_with("ssl") || option.starts_with("tls")) {
            let text = "neighbours are spoken to in clear text, so this one is left out";
            return self.draft.fate(id, Fate::Missing, text);
        }
        let Some(url) = url_of(host, line.word(3)) else {
            return self.draft.fate(id, Fate::Missing, "it is no host with a port");
        };
        let name = value("name").unwrap_or(host).to_owned();
        let mut table = Table::default().with("url", url);
        if let Some(login) = value("login") {
            self.login_of_peer(login, is_sibling, &mut table, id);
        }
        let asked = question_port(line.word(4), &options);
        if let Ok(Some((key, port))) = asked {
            table.set(key, u64::from(port));
        }
        let is_plain = |option: &&&str| !NOTHING_TO_SAY.contains(*option);
        for option in options.iter().filter(is_plain) {
            let key = option.split('=').next().unwrap_or_default();
            match DIFFERENT.iter().find(|(known, _)| *known == key) {
                Some((_, text)) => self.draft.fate(id, Fate::Different, text),
                None if ["name", "login", "htcp"].contains(&key) => {}
                None => self.draft.fate(id, Fate::Different, &format!("{key} is not known here")),
            }
        }
        match asked {
            Err(text) if is_sibling => return self.draft.fate(id, Fate::Missing, text),
            Ok(None) if is_sibling => {
                let text = "a sibling without questions is asked by cache digests, which are not spoken";
                return self.draft.fate(id, Fate::Missing, text);
            }
            Err(text) => self.draft.fate(id, Fate::Different, text),
            Ok(_) => {}
        }
        self.draft.translated(id);
        if is_sibling {
            let name = self.draft.free_name("sibling", &name);
            let mut sibling = Table::default().with("name", name);
            sibling.0.extend(table.0);
            self.draft.push("sibling", sibling, &[id]);
            return;
        }
        let is_last = options.contains(&"default");
        self.traffic.neighbours.parents.push(Parent { name, table, is_last, note: id });
    }

    /// `login=USER:PASSWORD`; all other forms pass on what the client said.
    fn login_of_peer(&mut self, login: &str, is_sibling: bool, table: &mut Table, id: NoteId) {
        let pair = login.split_once(':').filter(|(user, password)| {
            let is_plain = |text: &str| !text.is_empty() && !text.contains(['%', '$']);
            is_plain(user) && is_plain(password) && *user != "*"
        });
        match pair {
            Some((user, password)) if !is_sibling => {
                table.set("user", user);
                table.set("password", password);
            }
            Some(_) => self.draft.fate(id, Fate::Different, "siblings get no login"),
            None => self.draft.fate(
                id,
                Fate::Different,
                "a parent gets one login for all, as user and password: what clients said goes to no parent",
            ),
        }
    }

    /// Takes the lines that say who is asked through parents.
    pub(super) fn direct(&mut self, line: &Line, id: NoteId) {
        let lines = match line.name() {
            "never_direct" => &mut self.traffic.neighbours.never_direct,
            "always_direct" => &mut self.traffic.neighbours.always_direct,
            _ => return self.traffic.neighbours.preferred.push(id),
        };
        let acls: Vec<String> = line.rest(2).map(str::to_owned).collect();
        lines.push(FirstMatch { allows: line.word(1) == "allow", acls, note: id });
    }

    pub(super) fn finish_peers(&mut self) {
        let Peers { mut parents, never_direct, always_direct, preferred } =
            std::mem::take(&mut self.traffic.neighbours);
        parents.sort_by_key(|parent| parent.is_last);
        let mut names = Vec::new();
        let mut denied: Vec<(Cond, Vec<FirstMatch>)> = Vec::new();
        for parent in parents {
            let lines = self.traffic.peer_access.remove(&parent.name).unwrap_or_default();
            let of_domains = self.traffic.peer_domains.remove(&parent.name).is_some();
            let (refused, ..) = self.decided(&lines, false);
            if refused.must == Cond::True {
                lines.iter().for_each(|line| self.draft.translated(line.note));
                self.draft.fate(parent.note, Fate::NotNeeded, "cache_peer_access denies it all requests");
                continue;
            }
            if of_domains {
                self.draft.fate(parent.note, Fate::Different, "parents are for all hosts but forward.direct");
            }
            let name = self.draft.free_name("parent", &parent.name);
            let mut table = Table::default().with("name", name.as_str());
            table.0.extend(parent.table.0);
            self.draft.push("parent", table, &[parent.note]);
            names.push(name);
            denied.push((refused.must, lines));
        }
        if names.is_empty() {
            return self.without_parents(&never_direct, &always_direct, &preferred);
        }
        let is_strict = self.decided(&never_direct, true).0.must == Cond::True;
        let notes: Vec<NoteId> = never_direct.iter().map(|line| line.note).collect();
        self.draft.set("forward.parents", names, &notes);
        for line in &never_direct {
            match is_strict {
                true => self.draft.translated(line.note),
                false => self.draft.fate(
                    line.note,
                    Fate::Different,
                    "all hosts are asked through the parents but those of forward.direct",
                ),
            }
        }
        if !is_strict {
            let notes: Vec<NoteId> = self.draft.items("parent").iter().flat_map(|item| item.notes.clone()).collect();
            let text = "nothing goes past the parents: where none can be connected to, origins are not asked";
            notes.iter().for_each(|id| self.draft.fate(*id, Fate::Different, text));
        }
        for id in preferred {
            self.draft.fate(id, Fate::Different, "all requests go through the parents");
        }
        self.direct_hosts(&always_direct);
        self.access_of_parents(denied, is_strict);
    }

    /// There is no parent that could be asked. Where nothing may go past parents, nothing goes.
    fn without_parents(&mut self, never_direct: &[FirstMatch], always_direct: &[FirstMatch], preferred: &[NoteId]) {
        let text = "there are no parents: origins are asked in any case";
        let unneeded = always_direct.iter().map(|line| line.note).chain(preferred.iter().copied());
        unneeded.for_each(|id| self.draft.fate(id, Fate::NotNeeded, text));
        let (bound, ..) = self.decided(never_direct, true);
        let is_reverse = self.traffic.is_reverse_alone();
        for line in never_direct {
            if !line.allows || is_reverse {
                self.draft.fate(line.note, Fate::NotNeeded, text);
                continue;
            }
            self.draft.guards(line.note);
            let text = "origins may not be asked, and no parent could be translated: these requests are denied";
            self.draft.fate(line.note, Fate::Different, text);
        }
        if bound.may != Cond::False && !is_reverse {
            let notes: Vec<NoteId> = never_direct.iter().map(|line| line.note).collect();
            let deny = || Table::default().with("deny", true);
            if !self.draft.rule("no-parent", &bound.may, deny(), &notes, Vec::new()) {
                self.draft.rule("no-parent", &Cond::True, deny(), &notes, Vec::new());
            }
        }
    }

    /// Hosts of `always_direct`: those of lines that are about hosts alone, before the first line that denies.
    fn direct_hosts(&mut self, lines: &[FirstMatch]) {
        let mut is_behind_deny = false;
        for line in lines {
            let (bound, ..) = self.all_of(&line.acls);
            match &bound.must {
                _ if !line.allows && line.acls == ["all"] => self.draft.translated(line.note),
                _ if !line.allows => {
                    is_behind_deny = true;
                    self.draft.fate(line.note, Fate::Different, "the lines behind it are left out: their hosts are asked through the parents");
                }
                Cond::Atom(atom) if atom.key == "host" && !is_behind_deny => {
                    self.draft.add_texts("forward.direct", atom.values.clone(), &[line.note]);
                    match bound.is_exact() {
                        true => self.draft.translated(line.note),
                        false => {
                            self.draft.fate(line.note, Fate::Different, "fewer hosts are asked without a parent")
                        }
                    }
                }
                _ => self.draft.fate(
                    line.note,
                    Fate::Different,
                    "forward.direct knows hosts, and networks for URLs with an address: these are asked through the parents",
                ),
            }
        }
    }

    /// `cache_peer_access` of parents. The hosts that the only parent does not take are asked themselves, where they may be.
    fn access_of_parents(&mut self, denied: Vec<(Cond, Vec<FirstMatch>)>, is_strict: bool) {
        let is_only = denied.len() == 1;
        for (refused, lines) in denied {
            // Squid takes the opposite of the last line for all that no line is about.
            let ends_open = lines.last().is_none_or(|line| !line.allows || line.acls == ["all"]);
            let hosts = match &refused {
                Cond::Atom(atom) if atom.key == "host" && is_only && !is_strict && ends_open => atom.values.clone(),
                _ => Vec::new(),
            };
            for line in &lines {
                match (line.allows, line.acls == ["all"], hosts.is_empty()) {
                    (true, true, _) | (false, _, false) => self.draft.translated(line.note),
                    _ => self.draft.fate(
                        line.note,
                        Fate::Different,
                        "parents are tried in their order, for all hosts but those of forward.direct",
                    ),
                }
            }
            let notes: Vec<NoteId> = lines.iter().filter(|line| !line.allows).map(|line| line.note).collect();
            if !hosts.is_empty() {
                self.draft.add_texts("forward.direct", hosts, &notes);
            }
        }
    }
}

/// The URL of a neighbour.
fn url_of(host: &str, port: &str) -> Option<String> {
    let shown = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let port: u16 = port.parse().ok().filter(|port| *port > 0)?;
    let is_good = HostPattern::parse(&shown).is_some() && !shown.contains('*');
    is_good.then(|| format!("http://{shown}:{port}"))
}

/// The setting and the port by which a neighbour is asked what it has stored; `None` where it is not.
fn question_port(port: &str, options: &[&str]) -> Result<Option<(&'static str, u16)>, &'static str> {
    if options.contains(&"no-query") {
        return Ok(None);
    }
    let htcp = options.iter().find(|option| **option == "htcp" || option.starts_with("htcp="));
    let key = if htcp.is_some() { "htcp_port" } else { "icp_port" };
    match (port.parse::<u16>(), htcp) {
        (Ok(0), _) => Ok(None),
        (Ok(7), None) => Err("the echo port says nothing about responses: it is not asked"),
        (Ok(_), Some(option)) if option.contains("oldsquid") => {
            Err("HTCP of old Squids is not spoken: it is not asked")
        }
        (Ok(_), Some(option)) if option.contains("only-clr") || option.contains("forward-clr") => {
            Err("purges are not passed on to neighbours, and it is not asked")
        }
        (Ok(port), _) => Ok(Some((key, port))),
        (Err(_), _) => Err("its port for questions is no port: it is not asked"),
    }
}
