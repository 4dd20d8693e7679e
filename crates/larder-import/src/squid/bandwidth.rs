//! Delay pools as `[[bandwidth]]`, and `delay_access` as rules that say for whom each of them counts.
//!
//! A request is in the first pool that allows it. No request is limited that Squid leaves alone: where a condition can't be said exactly the
//! limit counts for fewer requests.

use super::lines::Line;
use super::translated::Translated;
use super::{FirstMatch, Reader, size_text};
use crate::bound::{Bound, Cond};
use crate::draft::NoteId;
use crate::note::Fate;
use crate::value::Table;
use larder_rules::bandwidth::{RATE_MAX, show_rate};
use std::collections::BTreeMap;

/// All that is known of delay pools.
#[derive(Default)]
pub struct Pools {
    /// How many there are, as `delay_pools` says.
    count: u64,
    notes: Vec<NoteId>,
    pools: BTreeMap<u64, Pool>,
}

/// One pool.
#[derive(Clone, Default)]
struct Pool {
    class: Option<(u64, NoteId)>,
    parameters: Option<(Vec<String>, NoteId)>,
    access: Vec<FirstMatch>,
}

/// A pool that requests may be in before a later one is looked at.
struct Earlier {
    number: u64,
    bound: Bound,
    is_limited: bool,
}

/// The limits of a pool, as tables without a name.
type Limits = Vec<(&'static str, Table)>;

/// `[[bandwidth]]` tables of one configuration; Larder's own limit.
const BANDWIDTHS_MAX: usize = 256;
/// The largest `burst`, in bytes.
const BURST_MAX: u64 = 1 << 40;

/// The buckets of a class: the clients that share each.
fn buckets(class: u64) -> &'static [&'static str] {
    match class {
        1 => &["all"],
        2 => &["all", "client"],
        3 => &["all", "network", "client"],
        4 => &["all", "network", "client", "user"],
        _ => &[],
    }
}

impl Reader<'_> {
    /// Takes the lines of delay pools; they are read when it is known how people log in.
    pub(super) fn of_bandwidth(&mut self, line: &Line, id: NoteId) -> bool {
        if line.name() == "delay_pools" {
            self.bandwidth.count = line.word(1).parse().unwrap_or_default();
            self.bandwidth.notes.push(id);
            return true;
        }
        if !["delay_class", "delay_parameters", "delay_access"].contains(&line.name()) {
            return false;
        }
        let Some(number) = line.word(1).parse::<u64>().ok().filter(|number| *number > 0) else {
            self.draft.fate(id, Fate::Missing, "it names no pool");
            return true;
        };
        let pool = self.bandwidth.pools.entry(number).or_default();
        let replaced = match line.name() {
            "delay_class" => pool.class.replace((line.word(2).parse().unwrap_or_default(), id)).map(|(_, old)| old),
            "delay_parameters" => {
                let words = line.rest(2).map(str::to_owned).collect();
                pool.parameters.replace((words, id)).map(|(_, old)| old)
            }
            _ => {
                let acls: Vec<String> = line.rest(3).map(str::to_owned).collect();
                let allows = line.word(2).eq_ignore_ascii_case("allow");
                if !allows && !line.word(2).eq_ignore_ascii_case("deny") {
                    self.draft.fate(id, Fate::Missing, "neither allow nor deny stands in it, so that it says nothing");
                } else if acls.is_empty() {
                    self.draft.fate(id, Fate::NotNeeded, "it names no acl, so that Squid passes it over");
                } else {
                    pool.access.push(FirstMatch { allows, acls, note: id });
                }
                None
            }
        };
        if let Some(old) = replaced {
            self.draft.fate(old, Fate::NotNeeded, "a later line says it again");
        }
        true
    }

    /// Writes the limits and their rules, which stand before those with a verdict.
    pub(super) fn finish_bandwidth(&mut self) {
        let Pools { count, notes, pools } = std::mem::take(&mut self.bandwidth);
        let known: Vec<String> = self.known.keys().cloned().collect();
        let (mut earlier, mut is_any): (Vec<Earlier>, bool) = (Vec::new(), false);
        for (number, pool) in pools {
            if number <= count {
                is_any |= self.pool(number, &pool, &mut earlier);
                continue;
            }
            let of_access = pool.access.iter().map(|line| line.note);
            let of_others = [pool.class.map(|(_, id)| id), pool.parameters.map(|(_, id)| id)];
            for id in of_access.chain(of_others.into_iter().flatten()) {
                self.draft.fate(id, Fate::NotNeeded, "delay_pools counts fewer pools, so that Squid passes it over");
            }
        }
        for id in notes {
            match (count, is_any) {
                (0, _) => self.draft.fate(id, Fate::NotNeeded, "there are none"),
                (_, true) => self.draft.fate(id, Fate::Translated, "each is a rule with its [[bandwidth]]"),
                (_, false) => self.draft.fate(id, Fate::NotNeeded, "no limit came of its pools"),
            }
        }
        // A limit decides nothing about who may do what, and neither do ACLs that nothing else names.
        let new: Vec<NoteId> = self
            .acls
            .iter()
            .filter(|(name, _)| self.known.contains_key(*name) && !known.contains(name))
            .flat_map(|(_, acl)| acl.notes.clone())
            .collect();
        self.draft.not_a_guard(&new);
    }

    /// Writes one pool; says whether there is a limit.
    fn pool(&mut self, number: u64, pool: &Pool, earlier: &mut Vec<Earlier>) -> bool {
        let limits = self.limits_of(number, pool);
        let (bound, mut whys, mut notes) = self.in_pool(&pool.access);
        let before = earlier.iter().map(|one| {
            // In doubt between two pools with limits the later one counts.
            let cond = if one.is_limited { &one.bound.must } else { &one.bound.may };
            cond.clone().negated()
        });
        let cond = Cond::all(before.chain([bound.must.clone()]));
        let doubts = earlier.iter().filter(|one| !one.bound.is_exact());
        whys.extend(doubts.map(|one| format!("pool {} is not told exactly", one.number)));
        earlier.push(Earlier { number, bound, is_limited: !limits.is_empty() });
        let room = self.draft.items("bandwidth").len() + limits.len() <= BANDWIDTHS_MAX;
        let is_written = !limits.is_empty() && room && cond.when().is_some();
        let why = whys.join("; ");
        let (fate, text) = match (limits.is_empty(), is_written) {
            (true, _) => (Fate::Translated, "its requests have no limit".to_owned()),
            (_, true) if why.is_empty() => (Fate::Translated, String::new()),
            (_, true) => (Fate::Different, format!("fewer requests are limited than before ({why})")),
            _ if !room => (Fate::Missing, format!("there are more than {BANDWIDTHS_MAX} limits: this one is left out")),
            _ if cond == Cond::False && why.is_empty() => (Fate::Translated, "no request is in this pool".to_owned()),
            _ if cond == Cond::False => (Fate::Missing, format!("the limit is left out ({why})")),
            _ => (Fate::Missing, "the limit is left out: its condition is nested too deep for a rule".to_owned()),
        };
        pool.access.iter().for_each(|line| self.draft.fate(line.note, fate, &text));
        let of_pool: Vec<NoteId> =
            pool.class.iter().map(|(_, id)| *id).chain(pool.parameters.iter().map(|(_, id)| *id)).collect();
        if !is_written {
            if !limits.is_empty() {
                of_pool.iter().for_each(|id| self.draft.fate(*id, fate, &text));
            }
            return false;
        }
        let mut names = Vec::new();
        for (by, limit) in limits {
            let name = self.draft.free_name("bandwidth", &format!("delay-pool-{number}-{by}"));
            let mut table = Table::default().with("name", name.as_str());
            table.0.extend(limit.0);
            self.draft.push("bandwidth", table, &of_pool);
            names.push(name);
        }
        notes.extend(pool.access.iter().map(|line| line.note));
        self.draft.rule(
            &format!("delay_access {number}"),
            &cond,
            Table::default().with("bandwidth", names),
            &notes,
            Vec::new(),
        )
    }

    /// The limits of a pool; says what became of its class and its parameters.
    fn limits_of(&mut self, number: u64, pool: &Pool) -> Limits {
        let (class, of_class) = match pool.class {
            Some((class, id)) => (class, Some(id)),
            None => (0, None),
        };
        let (fate, text) = match class {
            1..=4 => (Fate::Translated, ""),
            5 => (Fate::Missing, "Larder has no tags of helpers: the limit is left out"),
            _ => (Fate::Missing, "there is no such class: the limit is left out"),
        };
        of_class.into_iter().for_each(|id| self.draft.fate(id, fate, text));
        let Some((words, of_parameters)) = &pool.parameters else {
            of_class.into_iter().for_each(|id| {
                self.draft.fate(id, Fate::NotNeeded, &format!("pool {number} has no delay_parameters, so no limit"));
            });
            return Vec::new();
        };
        if buckets(class).is_empty() {
            self.draft.fate(*of_parameters, Fate::Missing, "the limit is left out, as its class is none of 1 to 4");
            return Vec::new();
        }
        let mut limits: Limits = Vec::new();
        for (at, by) in buckets(class).iter().enumerate() {
            match pace(words.get(at).map_or("", String::as_str)) {
                Ok(None) => {}
                Ok(Some(_)) if *by == "user" && !self.people.logs_everybody_in() => {
                    // A limit by users would ask everybody for a login.
                    let text = "not all have to log in, so that the limit of each user is left out";
                    self.draft.fate(*of_parameters, Fate::Missing, text);
                }
                Ok(Some((rate, burst))) => {
                    let mut table = Table::default().with("rate", show_rate(rate));
                    if burst != rate {
                        table.set("burst", size_text(burst));
                    }
                    if *by != "all" {
                        table.set("by", *by);
                    }
                    limits.push((by, table.with("hits_are_free", true)));
                }
                Err(why) => self.draft.fate(*of_parameters, Fate::Missing, &format!("{by}: {why}; it is left out")),
            }
        }
        let text = if limits.is_empty() { "there is no limit" } else { "" };
        self.draft.fate(*of_parameters, Fate::Translated, text);
        if let (Some(id), Some(text)) = (of_class, differs(class, &limits)) {
            self.draft.fate(id, Fate::Different, text);
        }
        limits
    }

    /// The condition of the requests that the lines of a pool allow. Without lines there are none.
    fn in_pool(&mut self, lines: &[FirstMatch]) -> (Bound, Vec<String>, Vec<NoteId>) {
        let mut lines = lines.to_vec();
        if let Some(last) = lines.last().filter(|last| !last.allows) {
            // No line holds: the opposite of the last one.
            let rest = FirstMatch { allows: true, acls: Vec::new(), note: last.note };
            lines.push(rest);
        }
        let lent = if self.people.logs_everybody_in() { Vec::new() } else { self.lend_users(&lines) };
        let (mut bound, mut whys, notes) = self.decided(&lines, true);
        for (name, old) in lent {
            if let Some(old) = old {
                self.known.insert(name, old);
            }
        }
        if !self.people.logs_everybody_in() && (bound.must.has("user") || bound.may.has("user")) {
            bound = Bound::unknown();
            whys.push("not all have to log in".to_owned());
        }
        whys.dedup();
        (bound, whys, notes)
    }

    /// Nothing is known of users where not all have to log in, for a rule that names them would ask everybody for a login. Gives what was
    /// known of these ACLs.
    fn lend_users(&mut self, lines: &[FirstMatch]) -> Vec<(String, Option<Translated>)> {
        let why = "not all have to log in, and a limit asks nobody to";
        let mut lent: Vec<(String, Option<Translated>)> = Vec::new();
        for word in lines.iter().flat_map(|line| &line.acls) {
            let name = word.trim_start_matches('!');
            let Some(acl) = self.acls.get(name).filter(|acl| acl.kind.starts_with("proxy_auth")) else { continue };
            if lent.iter().any(|(known, _)| known == name) {
                continue;
            }
            let old = self.known.insert(name.to_owned(), Translated::unknown(why));
            if old.is_none() {
                acl.notes.iter().for_each(|id| self.draft.fate(*id, Fate::Missing, why));
            }
            lent.push((name.to_owned(), old));
        }
        lent
    }
}

/// The bytes a second and the burst of `restore/maximum`; `None` where there is no limit.
fn pace(word: &str) -> Result<Option<(u64, u64)>, &'static str> {
    if word.eq_ignore_ascii_case("none") {
        return Ok(None);
    }
    let parsed = word
        .split_once('/')
        .and_then(|(restore, maximum)| Some((restore.parse::<i64>().ok()?, maximum.parse::<i64>().ok()?)));
    let (restore, maximum) = parsed.ok_or("it is no restore/maximum")?;
    if restore < 0 {
        return Ok(None);
    }
    match (u64::try_from(restore), u64::try_from(maximum)) {
        // The bucket is filled once a second, and holds no more than its maximum.
        (Ok(restore @ 1..), Ok(maximum @ 1..)) => {
            Ok(Some((restore.min(maximum).min(RATE_MAX), maximum.min(BURST_MAX))))
        }
        _ => Err("nothing would ever come through it"),
    }
}

/// How the buckets of a class differ from Larder's.
fn differs(class: u64, limits: &Limits) -> Option<&'static str> {
    if limits.iter().all(|(by, _)| *by == "all" || *by == "user") {
        return None;
    }
    match class {
        2 => Some(
            "each client address has a bucket; in Squid all that end with the same octet share one, and IPv6 has none",
        ),
        _ => Some(
            "each network of 24 bits and each client address has a bucket; in Squid the third octet alone tells networks apart, the last two clients, and IPv6 has none",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Imported, NoFiles, Settings, import};

    fn imported(text: &str) -> Imported {
        let settings = Settings { format: Format::Squid, name: "s".to_owned(), zone: Some("UTC".to_owned()) };
        import(text, &settings, &mut NoFiles)
    }

    fn fate(imported: &Imported, source: &str) -> (Fate, String) {
        let note = imported.notes.iter().find(|note| note.source == source);
        note.map(|note| (note.fate, note.text.clone())).unwrap_or_else(|| panic!("{source}"))
    }

    /// The tables `[[bandwidth]]` and the rules with one, each on a line of JSON's kind.
    fn written(imported: &Imported) -> Vec<String> {
        let config: toml::Table = imported.toml.parse().unwrap_or_else(|error| panic!("{error}\n{}", imported.toml));
        let all = |name: &str| config.get(name).and_then(toml::Value::as_array).cloned().unwrap_or_default();
        let limits = all("bandwidth").into_iter().map(|table| {
            let text = |key: &str| table.get(key).and_then(toml::Value::as_str).unwrap_or("-").to_owned();
            assert_eq!(table.get("hits_are_free").and_then(toml::Value::as_bool), Some(true));
            format!("{} {} {} {}", text("name"), text("rate"), text("burst"), text("by"))
        });
        let rules = all("rule").into_iter().filter(|rule| rule["do"].get("bandwidth").is_some());
        let rules = rules.map(|rule| match rule.get("when") {
            Some(when) => format!("{} when {when}", rule["do"]["bandwidth"]),
            None => rule["do"]["bandwidth"].to_string(),
        });
        limits.chain(rules).collect()
    }

    #[test]
    fn pairs_of_parameters() {
        for (word, wanted) in [
            ("none", Ok(None)),
            ("-1/-1", Ok(None)),
            ("8000/8000", Ok(Some((8_000, 8_000)))),
            ("16000/64000", Ok(Some((16_000, 64_000)))),
            ("64000/16000", Ok(Some((16_000, 16_000)))),
            ("0/0", Err("nothing would ever come through it")),
            ("5/-1", Err("nothing would ever come through it")),
            ("", Err("it is no restore/maximum")),
            ("8000", Err("it is no restore/maximum")),
        ] {
            assert_eq!(pace(word), wanted, "{word}");
        }
    }

    #[test]
    fn classes_and_their_buckets() {
        for (class, parameters, wanted, of_class, of_parameters) in [
            (1, "64000/128000", &["delay-pool-1-all 64kB/s 125KiB -"][..], Fate::Translated, Fate::Translated),
            (2, "none 8000/8000", &["delay-pool-1-client 8kB/s - client"], Fate::Different, Fate::Translated),
            (2, "8000/8000 -1/-1", &["delay-pool-1-all 8kB/s - -"], Fate::Translated, Fate::Translated),
            (
                3,
                "32000/32000 8000/8000 600/64000",
                &[
                    "delay-pool-1-all 32kB/s - -",
                    "delay-pool-1-network 8kB/s - network",
                    "delay-pool-1-client 600B/s 64000B client",
                ],
                Fate::Different,
                Fate::Translated,
            ),
            (4, "7000/7000 none none 500/500", &["delay-pool-1-all 7kB/s - -"], Fate::Translated, Fate::Missing),
            (5, "8000/8000", &[], Fate::Missing, Fate::Missing),
            (2, "8000/8000", &["delay-pool-1-all 8kB/s - -"], Fate::Translated, Fate::Missing),
            (1, "none", &[], Fate::Translated, Fate::Translated),
        ] {
            let (class, parameters) = (format!("delay_class 1 {class}"), format!("delay_parameters 1 {parameters}"));
            let text =
                format!("delay_pools 1\n{class}\n{parameters}\ndelay_access 1 allow all\nhttp_access allow all\n");
            let imported = imported(&text);
            let mut limits = written(&imported);
            let rule = limits.pop_if(|last| last.starts_with('['));
            assert_eq!(limits, wanted, "{text}{}", imported.toml);
            assert_eq!(rule.is_some(), !wanted.is_empty(), "{text}");
            let fates = (fate(&imported, &class).0, fate(&imported, &parameters).0);
            assert_eq!(fates, (of_class, of_parameters), "{text}{}", imported.toml);
            assert_eq!(imported.guards_to_look_at().count(), 0, "{}", imported.toml);
        }
    }

    #[test]
    fn users_have_limits_where_all_log_in() {
        let text = "auth_param basic program /usr/lib/squid/basic_ncsa_auth /etc/squid/users\nacl users proxy_auth REQUIRED\nacl ada proxy_auth ada\nacl lan src 10.0.0.0/8\ndelay_pools 2\ndelay_class 1 4\ndelay_parameters 1 none none none 500/500\ndelay_access 1 allow ada\ndelay_class 2 1\ndelay_parameters 2 9/9\ndelay_access 2 allow all\n";
        let of_all = imported(&format!("{text}http_access allow users\nhttp_access deny all\n"));
        assert_eq!(
            written(&of_all),
            [
                "delay-pool-1-user 500B/s - user",
                "delay-pool-2-all 9B/s - -",
                "[\"delay-pool-1-user\"] when { user = \"ada\" }",
                "[\"delay-pool-2-all\"] when { not = { user = \"ada\" } }",
            ],
            "{}",
            of_all.toml
        );
        let of_some =
            imported(&format!("{text}http_access allow lan\nhttp_access allow users\nhttp_access deny all\n"));
        // Some of those that Squid leaves to a pool without a limit here may be in the second one: it is left out too.
        assert_eq!(written(&of_some), [""; 0], "{}", of_some.toml);
        assert_eq!(fate(&of_some, "delay_access 1 allow ada").0, Fate::Translated);
        assert_eq!(fate(&of_some, "delay_access 2 allow all").0, Fate::Missing);
        assert_eq!(fate(&of_some, "delay_parameters 2 9/9").0, Fate::Missing);
    }

    #[test]
    fn a_request_is_in_the_first_pool_that_allows_it() {
        let head = "acl lan src 10.0.0.0/8\nacl vip src 10.0.0.7\nacl media rep_mime_type video/mp4\nacl big dstdomain .big.test\ndelay_pools 2\ndelay_class 1 1\ndelay_class 2 1\ndelay_parameters 2 2000/2000\n";
        let (one, none) = ("delay_parameters 1 1000/1000\n", "delay_parameters 1 none\n");
        let first = "[\"delay-pool-1-all\"]";
        let second = "[\"delay-pool-2-all\"]";
        for (parameters, lines, wanted) in [
            (
                one,
                "delay_access 1 deny vip\ndelay_access 1 allow lan\ndelay_access 1 deny all\ndelay_access 2 allow big\n",
                &[
                    format!("{first} when {{ client = \"10.0.0.0/8\", not = {{ client = \"10.0.0.7/32\" }} }}"),
                    format!(
                        "{second} when {{ host = [\"big.test\", \"*.big.test\"], not = {{ client = \"10.0.0.0/8\", not = {{ client = \"10.0.0.7/32\" }} }} }}"
                    ),
                ][..],
            ),
            // A pool without a limit takes its requests out of the later ones.
            (
                none,
                "delay_access 1 allow vip\ndelay_access 2 allow all\n",
                &[format!("{second} when {{ not = {{ client = \"10.0.0.7/32\" }} }}")],
            ),
            // The opposite of the last line.
            (one, "delay_access 1 deny vip\n", &[format!("{first} when {{ not = {{ client = \"10.0.0.7/32\" }} }}")]),
            (one, "", &[]),
            // In doubt the later limit, and none where the first pool has none.
            (one, "delay_access 1 allow media\ndelay_access 2 allow all\n", &[second.to_owned()]),
            (none, "delay_access 1 allow media\ndelay_access 2 allow all\n", &[]),
            (one, "delay_access 1 deny media\ndelay_access 1 allow lan\n", &[]),
        ] {
            let imported = imported(&format!("{head}{parameters}{lines}http_access allow lan\n"));
            let rules: Vec<String> = written(&imported).into_iter().filter(|line| line.starts_with('[')).collect();
            assert_eq!(rules, wanted, "{parameters}{lines}{}", imported.toml);
            assert_eq!(imported.guards_to_look_at().count(), 0, "{}", imported.toml);
        }
    }

    #[test]
    fn pools_that_are_not_counted_say_nothing() {
        for count in ["", "delay_pools 0\n"] {
            let text = "delay_class 1 1\ndelay_parameters 1 8/8\ndelay_access 1 allow all\nhttp_access allow all\n";
            let imported = imported(&format!("{count}{text}"));
            assert_eq!(written(&imported), [""; 0]);
            assert!(imported.notes.iter().take(3).all(|note| note.fate == Fate::NotNeeded), "{}", imported.toml);
        }
    }
}
