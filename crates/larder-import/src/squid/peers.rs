//! Parents and siblings: lines of `cache_peer` without `originserver`, and who is asked through them.
//!
//! Squid's lines about who is asked through which parent become rules with `parents` and `parents_except`. Where a condition can't be said exactly,
//! more goes through the parents than before, and never less.

use super::lines::Line;
use super::{Effect, FirstMatch, Reader};
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
    /// Lines that say whether origins are asked themselves where either would do, and whether they say what Larder does.
    preferred: Vec<(NoteId, Preferred)>,
}

/// A line about origins that may be asked themselves or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Preferred {
    /// Parents go before the origin for methods that are not stored too.
    NonhierarchicalOff,
    /// Parents go before the origin.
    PreferDirectOff,
    /// The origin goes before parents.
    Direct,
}

#[derive(Clone, Debug)]
struct Parent {
    /// Its name in Squid.
    name: String,
    table: Table,
    /// It is for requests that no other one takes.
    is_last: bool,
    /// It belongs to the array of CARP.
    is_carp: bool,
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
const DIFFERENT: [(&str, &str); 15] = [
    ("round-robin", "parents are tried in their order"),
    ("weighted-round-robin", "parents are tried in their order"),
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
    ("connect-fail-limit", "a parent is left out after three failures in a row"),
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
        let is_of_tls = |option: &&&str| option.starts_with("ssl") || option.starts_with("tls");
        let of_tls: Vec<&str> = options.iter().filter(is_of_tls).copied().collect();
        if is_sibling && !of_tls.is_empty() {
            let text = "siblings are spoken to in clear text, so this one is left out";
            return self.draft.fate(id, Fate::Missing, text);
        }
        // Another one asks for other authorities, names or certificates than a parent is verified by.
        if let Some(other) = of_tls.iter().find(|option| !["tls", "ssl"].contains(*option)) {
            let text = format!(
                "of TLS to parents `tls` alone is known, and not {other}; upstream.extra_roots names authorities"
            );
            return self.draft.fate(id, Fate::Missing, &text);
        }
        let Some(url) = url_of(host, line.word(3)) else {
            return self.draft.fate(id, Fate::Missing, "it is no host with a port");
        };
        let url = if of_tls.is_empty() { url } else { url.replacen("http:", "https:", 1) };
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
                None if ["name", "login", "htcp", "carp", "tls", "ssl"].contains(&key) => {}
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
        let is_carp = options.contains(&"carp");
        self.traffic.neighbours.parents.push(Parent { name, table, is_last, is_carp, note: id });
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
            name => {
                let preferred = match (name, line.word(1)) {
                    ("nonhierarchical_direct", "off") => Preferred::NonhierarchicalOff,
                    ("prefer_direct", "off") => Preferred::PreferDirectOff,
                    _ => Preferred::Direct,
                };
                return self.traffic.neighbours.preferred.push((id, preferred));
            }
        };
        let acls: Vec<String> = line.rest(2).map(str::to_owned).collect();
        lines.push(FirstMatch { allows: line.word(1) == "allow", acls, note: id });
    }

    pub(super) fn finish_peers(&mut self) {
        let Peers { mut parents, never_direct, always_direct, preferred } =
            std::mem::take(&mut self.traffic.neighbours);
        parents.sort_by_key(|parent| parent.is_last);
        let mut names = Vec::new();
        let mut denied: Vec<(String, Vec<FirstMatch>)> = Vec::new();
        let (mut carp, mut carp_notes, mut are_renamed) = (0, Vec::new(), false);
        for parent in parents {
            let lines = ended(self.traffic.peer_access.remove(&parent.name).unwrap_or_default());
            let of_domains = self.traffic.peer_domains.remove(&parent.name).is_some();
            if self.decided(&lines, false).0.must == Cond::True {
                lines.iter().for_each(|line| self.draft.translated(line.note));
                self.draft.fate(parent.note, Fate::NotNeeded, "cache_peer_access denies it all requests");
                continue;
            }
            if of_domains {
                self.draft.fate(
                    parent.note,
                    Fate::Different,
                    "cache_peer_domain is not translated: it is for all hosts",
                );
            }
            let name = self.draft.free_name("parent", &parent.name);
            are_renamed |= name != parent.name;
            if parent.is_carp {
                carp += 1;
                carp_notes.push(parent.note);
            }
            let mut table = Table::default().with("name", name.as_str());
            table.0.extend(parent.table.0);
            self.draft.push("parent", table, &[parent.note]);
            names.push(name.clone());
            denied.push((name, lines));
        }
        if names.is_empty() {
            let preferred: Vec<NoteId> = preferred.into_iter().map(|(id, _)| id).collect();
            return self.without_parents(&never_direct, &always_direct, &preferred);
        }
        self.carp((carp, names.len()), &carp_notes, are_renamed);
        let is_strict = self.decided(&never_direct, true).0.must == Cond::True;
        let notes: Vec<NoteId> = never_direct.iter().map(|line| line.note).collect();
        let hops = names.iter().cloned().chain((!is_strict).then(|| "direct".to_owned()));
        self.draft.set("forward.parents", hops.collect::<Vec<_>>(), &notes);
        self.preferred(&preferred, is_strict);
        let always = self.always_direct(&always_direct);
        self.never_direct(&never_direct, is_strict, always);
        denied.into_iter().for_each(|(name, lines)| self.access_of_parent(&name, &lines));
    }

    /// Parents that are chosen by CARP, where all of them are.
    fn carp(&mut self, (carp, all): (usize, usize), notes: &[NoteId], are_renamed: bool) {
        if carp == 0 {
            return;
        }
        if carp < all {
            let text = "some parents have `carp` and others have not: they are tried in their order";
            return notes.iter().for_each(|id| self.draft.fate(*id, Fate::Different, text));
        }
        self.draft.set("forward.parents_by", "carp", notes);
        if are_renamed {
            let text = "names of parents begin with a letter here, and CARP counts by names: URLs have other parents than before";
            notes.iter().for_each(|id| self.draft.fate(*id, Fate::Different, text));
        }
    }

    /// Lines about origins that may be asked themselves or not.
    fn preferred(&mut self, preferred: &[(NoteId, Preferred)], is_strict: bool) {
        for (id, line) in preferred {
            match line {
                Preferred::Direct if !is_strict => {
                    let text = "parents go before the origin, which is asked where none of them can be connected to";
                    self.draft.fate(*id, Fate::Different, text);
                }
                _ => self.draft.translated(*id),
            }
        }
        if !is_strict && !preferred.iter().any(|(_, line)| *line == Preferred::NonhierarchicalOff) {
            let notes: Vec<NoteId> = self.draft.items("parent").iter().flat_map(|item| item.notes.clone()).collect();
            let text = "parents go before the origin for methods that are not stored and for tunnels too, as with `nonhierarchical_direct off`";
            notes.iter().for_each(|id| self.draft.fate(*id, Fate::Different, text));
        }
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

    /// `always_direct`: hosts are those of `forward.direct`, all else is a rule. Gives the condition under which requests are direct.
    fn always_direct(&mut self, lines: &[FirstMatch]) -> Cond {
        let (bound, _, mut notes) = self.decided(lines, true);
        notes.sort_unstable();
        notes.dedup();
        for line in lines {
            match bound.is_exact() {
                true => self.draft.translated(line.note),
                false => self.draft.fate(line.note, Fate::Different, "fewer requests are direct than before"),
            }
        }
        match &bound.must {
            Cond::False => {}
            Cond::Atom(atom) if atom.key == "host" => {
                self.draft.add_texts("forward.direct", atom.values.clone(), &notes);
            }
            cond => {
                let does = Table::default().with("parents", "direct");
                self.effects.push(Effect { cond: cond.clone(), does, notes });
            }
        }
        bound.must
    }

    /// `never_direct`: in doubt a request is not direct. `always_direct` goes before.
    fn never_direct(&mut self, lines: &[FirstMatch], is_strict: bool, always: Cond) {
        let (bound, _, mut notes) = self.decided(lines, true);
        notes.sort_unstable();
        notes.dedup();
        for line in lines {
            match is_strict || bound.is_exact() {
                true => self.draft.translated(line.note),
                false => {
                    self.draft.fate(line.note, Fate::Different, "more requests go through parents alone than before")
                }
            }
        }
        if is_strict || bound.may == Cond::False {
            return;
        }
        let cond = Cond::all([bound.may, always.negated()]);
        self.effects.push(Effect { cond, does: Table::default().with("parents_except", "direct"), notes });
    }

    /// `cache_peer_access` of a parent: only what Squid is sure to refuse it goes past it.
    fn access_of_parent(&mut self, name: &str, lines: &[FirstMatch]) {
        let (bound, _, mut notes) = self.decided(lines, false);
        notes.sort_unstable();
        notes.dedup();
        for line in lines {
            match bound.is_exact() {
                true => self.draft.translated(line.note),
                false => {
                    self.draft.fate(line.note, Fate::Different, "more requests go through this parent than before")
                }
            }
        }
        if bound.must != Cond::False {
            let does = Table::default().with("parents_except", name);
            self.effects.push(Effect { cond: bound.must, does, notes });
        }
    }
}

/// The lines with the one that Squid adds: the opposite of the last one, for all that no line is about.
fn ended(mut lines: Vec<FirstMatch>) -> Vec<FirstMatch> {
    if let Some(last) = lines.last().filter(|last| last.allows && last.acls != ["all"]) {
        let note = last.note;
        lines.push(FirstMatch { allows: false, acls: vec!["all".to_owned()], note });
    }
    lines
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
