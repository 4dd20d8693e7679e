//! `squid.conf`: lines and ACLs are read first, then each group of directives becomes settings; the access rules come last, because all else
//! that they name has to be known.

mod access;
mod acl;
mod bandwidth;
mod directives;
mod directory;
pub(crate) mod expression;
mod lines;
mod peers;
mod people;
mod store;
mod traffic;
mod translated;

use crate::bound::{Bound, Cond};
use crate::draft::{Draft, NoteId};
use crate::note::Fate;
use crate::value::Table;
use crate::{DIRECTIVES_MAX, Files, Settings};
use acl::{Acl, AclValue};
use lines::Line;
use std::collections::BTreeMap;
use translated::{LIST, Translated};

/// Reads a source.
pub fn read(text: &str, settings: &Settings, files: &mut dyn Files) -> Draft {
    let lines = lines::logical(text, &settings.name, files);
    let mut reader = Reader {
        draft: Draft::default(),
        settings,
        files,
        acls: BTreeMap::new(),
        known: BTreeMap::new(),
        values: 0,
        traffic: traffic::Traffic::default(),
        people: people::People::default(),
        access: access::Lines::default(),
        bandwidth: bandwidth::Pools::default(),
        effects: Vec::new(),
        store: store::Store::default(),
        closes_own_machine: lines.iter().any(is_port) && lines.iter().all(closes_own_machine),
    };
    let noted: Vec<(Line, NoteId)> = lines
        .into_iter()
        .map(|line| {
            let id = reader.draft.note(&line.file, line.number, &line.text);
            (line, id)
        })
        .collect();
    // An ACL may stand behind a directive that names it in a file which is read later; all are known before any is used.
    for (line, id) in &noted {
        if let Some(trouble) = &line.trouble {
            reader.draft.guards(*id);
            reader.draft.fate(*id, Fate::Missing, trouble);
        } else if line.name() == "acl" {
            reader.acl(line, *id);
        }
    }
    for (line, id) in noted.iter().filter(|(line, _)| line.trouble.is_none() && line.name() != "acl") {
        reader.directive(line, *id);
    }
    reader.finish();
    reader.draft
}

/// The state of a reading.
struct Reader<'a> {
    draft: Draft,
    settings: &'a Settings,
    files: &'a mut dyn Files,
    acls: BTreeMap<String, Acl>,
    known: BTreeMap<String, Translated>,
    /// Values of ACLs so far.
    values: usize,
    traffic: traffic::Traffic,
    people: people::People,
    access: access::Lines,
    bandwidth: bandwidth::Pools,
    /// Rules without a verdict, which stand before those with one.
    effects: Vec<Effect>,
    store: store::Store,
    /// Clients of all listeners are kept from this machine and its link, whatever name leads there.
    closes_own_machine: bool,
}

/// A rule without a verdict.
struct Effect {
    cond: Cond,
    does: Table,
    notes: Vec<NoteId>,
}

/// One line of a directive whose first line that holds decides.
#[derive(Clone, Debug)]
struct FirstMatch {
    allows: bool,
    acls: Vec<String>,
    note: NoteId,
}

/// Values of all ACLs together.
const VALUES_MAX: usize = DIRECTIVES_MAX;

impl Reader<'_> {
    fn acl(&mut self, line: &Line, id: NoteId) {
        let (name, kind) = (line.word(1).to_owned(), line.word(2).to_ascii_lowercase());
        if name.is_empty() || kind.is_empty() {
            self.draft.fate(id, Fate::Missing, "an acl has a name and a kind");
            return;
        }
        let mut acl = match self.acls.remove(&name) {
            Some(acl) => acl,
            None => Acl { kind: kind.clone(), ..acl::built_in(&name).unwrap_or_default() },
        };
        if acl.kind == "manager" || name == "manager" {
            acl.kind = "manager".to_owned();
        } else if acl.kind != kind {
            acl.trouble = Some(format!("the acl {name} has two kinds"));
        }
        acl.notes.push(id);
        let mut folds_case = false;
        for word in line.words.iter().skip(3) {
            let file = match (word.is_quoted, word.text.strip_prefix("parameters(")) {
                (true, _) => Some(word.text.as_str()),
                (false, Some(inner)) => Some(inner.trim_end_matches(')').trim_matches('"')),
                _ => None,
            };
            match (word.text.as_str(), file) {
                (_, Some(file)) => self.acl_file(&mut acl, file, folds_case),
                ("-i", _) => folds_case = true,
                ("+i", _) => folds_case = false,
                ("-n", _) if acl.kind.starts_with("dst") => acl.names_are_not_looked_up = true,
                (text, _) if self.values < VALUES_MAX => {
                    self.values += 1;
                    acl.values.push(AclValue { text: text.to_owned(), folds_case });
                }
                _ => acl.trouble = Some(format!("there are more than {VALUES_MAX} values")),
            }
        }
        self.acls.insert(name, acl);
    }

    fn acl_file(&mut self, acl: &mut Acl, file: &str, folds_case: bool) {
        let gone = |error: &str| format!("{file} can't be read ({error}), so that its values are not known");
        if acl.kind == "dstdomain" {
            match self.files.is_there(file) {
                true => acl.list_files.push(file.to_owned()),
                false => acl.trouble = Some(gone("it is not there")),
            }
            return;
        }
        let text = match self.files.read(file) {
            Ok(text) => text,
            Err(error) => {
                acl.trouble = Some(gone(&error));
                return;
            }
        };
        let mut folds_case = folds_case;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            // Expressions may have blanks in them, other values do not. Behind a blank `#` begins a comment.
            let is_expression = acl.kind.contains("regex") || acl.kind == "browser";
            let comment = line.match_indices('#').find(|(at, _)| line[..*at].ends_with(char::is_whitespace));
            let values: Vec<&str> = match is_expression {
                true => vec![comment.map_or(line, |(at, _)| line[..at].trim_end())],
                false => line.split_whitespace().take_while(|word| !word.starts_with('#')).collect(),
            };
            for text in values {
                match text {
                    "-i" => folds_case = true,
                    "+i" => folds_case = false,
                    _ if self.values >= VALUES_MAX => acl.trouble = Some(gone("it is too long")),
                    text => {
                        self.values += 1;
                        acl.values.push(AclValue { text: text.to_owned(), folds_case });
                    }
                }
            }
        }
    }

    /// The condition of an ACL, with the notes of its lines; lists that it needs are made.
    fn cond(&mut self, name: &str) -> (Bound, Option<String>) {
        if let Some(known) = self.known.get(name) {
            return (known.bound.clone(), known.why.clone());
        }
        let translated = self.translated(name, 0);
        self.known.insert(name.to_owned(), translated.clone());
        (translated.bound, translated.why)
    }

    fn translated(&mut self, name: &str, depth: usize) -> Translated {
        let Some(acl) = self.acls.get(name).cloned().or_else(|| acl::built_in(name)) else {
            let why = Some(format!("there is no acl {name}"));
            return Translated { bound: Bound::unknown(), why };
        };
        if ["any-of", "all-of"].contains(&acl.kind.as_str()) && acl.trouble.is_none() && depth < 4 {
            return self.group(&acl, depth);
        }
        let mut translated = match self.people.cond(&acl) {
            Some(translated) => translated,
            None if self.is_closed_by_itself(&acl) => Translated {
                why: Some("access.destinations is closed for these by itself".to_owned()),
                ..Translated::exact(Cond::False)
            },
            None => acl::translate(&acl, self.settings.zone.as_deref()),
        };
        let lists = self.lists(name, &acl);
        replace_lists(&mut translated.bound.must, &lists);
        replace_lists(&mut translated.bound.may, &lists);
        let caution = acl.caution();
        for id in acl.notes {
            match (&translated.why, translated.bound.is_exact()) {
                (Some(why), false) => {
                    self.draft.guards(id);
                    let fate = if translated.bound.may == Cond::True { Fate::Missing } else { Fate::Different };
                    self.draft.fate(id, fate, why);
                }
                (Some(why), true) => self.draft.fate(id, Fate::Translated, why),
                (None, _) => self.draft.fate(id, Fate::Translated, caution),
            }
        }
        translated
    }

    /// Whether an ACL is about destinations that Larder closes by itself at each listener of this configuration.
    fn is_closed_by_itself(&self, acl: &Acl) -> bool {
        self.closes_own_machine && acl::is_closed_already(acl)
    }

    fn group(&mut self, acl: &Acl, depth: usize) -> Translated {
        let (mut bounds, mut whys) = (Vec::new(), Vec::new());
        for value in &acl.values {
            let (is_negated, name) =
                value.text.strip_prefix('!').map_or((false, value.text.as_str()), |name| (true, name));
            let inner = self.translated(name, depth + 1);
            whys.extend(inner.why);
            bounds.push(if is_negated { inner.bound.negated() } else { inner.bound });
        }
        let bound = if acl.kind == "any-of" { Bound::any(bounds) } else { Bound::all(bounds) };
        acl.notes.iter().for_each(|id| self.draft.translated(*id));
        Translated { bound, why: (!whys.is_empty()).then(|| whys.join("; ")) }
    }

    /// Makes the lists of an ACL; gives their names.
    fn lists(&mut self, name: &str, acl: &Acl) -> Vec<String> {
        let mut lists = Vec::new();
        for file in &acl.list_files {
            let list = self.draft.free_name("list", name);
            let table = Table::default()
                .with("name", list.as_str())
                .with("source", file.as_str())
                .with("format", "domains")
                .with("refresh", "1m");
            self.draft.push("list", table, &acl.notes);
            lists.push(list);
        }
        lists
    }

    /// The condition of the ACLs of one line, all of which have to hold.
    fn all_of(&mut self, acls: &[String]) -> (Bound, Vec<String>, Vec<NoteId>) {
        let (mut bounds, mut whys, mut notes) = (Vec::new(), Vec::new(), Vec::new());
        for word in acls {
            let (is_negated, name) = word.strip_prefix('!').map_or((false, word.as_str()), |name| (true, name));
            let (bound, why) = self.cond(name);
            notes.extend(self.acls.get(name).map(|acl| acl.notes.clone()).unwrap_or_default());
            if !bound.is_exact() {
                // The reason stands at the acl, where it has a line.
                match (why, self.acls.contains_key(name)) {
                    (Some(why), false) => whys.push(format!("{name}: {why}")),
                    _ => whys.push(name.to_owned()),
                }
            }
            bounds.push(if is_negated { bound.negated() } else { bound });
        }
        (Bound::all(bounds), whys, notes)
    }

    /// The condition under which a directive whose first line that holds decides says `deny`, or `allow`.
    fn decided(&mut self, lines: &[FirstMatch], allows: bool) -> (Bound, Vec<String>, Vec<NoteId>) {
        let (mut any, mut before, mut whys, mut notes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for line in lines {
            let (bound, why, of_acls) = self.all_of(&line.acls);
            if line.allows == allows {
                any.push(Bound::all(before.iter().cloned().chain([bound])));
            } else {
                before.push(bound.negated());
            }
            whys.extend(why);
            notes.extend(of_acls);
            notes.push(line.note);
        }
        (Bound::any(any), whys, notes)
    }

    fn directive(&mut self, line: &Line, id: NoteId) {
        let is_taken = self.access(line, id)
            || self.of_traffic(line, id)
            || self.of_people(line, id)
            || self.of_store(line, id)
            || self.of_bandwidth(line, id);
        if is_taken {
            return;
        }
        match directives::find(line) {
            Some((fate, text)) => self.draft.fate(id, fate, text),
            None => self.draft.fate(id, Fate::Missing, "Larder's import does not know this directive of Squid"),
        }
    }

    fn finish(&mut self) {
        self.finish_people();
        self.finish_traffic();
        self.finish_store();
        if self.draft.items("listen").is_empty() {
            // A listener that nobody wrote would have a mirror, which asks no rules.
            let listen =
                Table::default().with("address", "127.0.0.1:3128").with("mirror", "none").with("forward", true);
            self.draft.push("listen", listen, &[]);
        }
        let effects = std::mem::take(&mut self.effects);
        for Effect { cond, does, notes } in effects {
            if !self.draft.rule("", &cond, does, &notes, Vec::new()) {
                for id in notes {
                    self.draft.fate(id, Fate::Missing, "its condition never holds here, or is nested too deep");
                }
            }
        }
        self.finish_access();
        let unused: Vec<NoteId> = self
            .acls
            .iter()
            .filter(|(name, _)| !self.known.contains_key(*name))
            .flat_map(|(_, acl)| acl.notes.clone())
            .collect();
        for id in unused {
            self.draft.fate(id, Fate::NotNeeded, "no directive that was translated names it");
        }
    }
}

/// Puts the names of lists where their place is held.
fn replace_lists(cond: &mut Cond, lists: &[String]) {
    match cond {
        Cond::Atom(atom) if atom.key == "list" => {
            if let Some(at) = atom.values.iter().position(|value| value == LIST) {
                atom.values.splice(at..=at, lists.iter().cloned());
            }
        }
        Cond::Not(inner) => replace_lists(inner, lists),
        Cond::And(all) | Cond::Or(all) => all.iter_mut().for_each(|cond| replace_lists(cond, lists)),
        _ => {}
    }
}

fn is_port(line: &Line) -> bool {
    ["http_port", "https_port"].contains(&line.name())
}

/// Whether clients are kept from this machine as far as a line says: clients of a listener of `127.0.0.1` are not, and a parent looks names up
/// by itself.
fn closes_own_machine(line: &Line) -> bool {
    let at = line.word(1);
    let is_open = |at: &str| at.parse::<std::net::SocketAddr>().is_ok_and(|at| !at.ip().to_canonical().is_loopback());
    let is_parent =
        line.name() == "cache_peer" && line.word(2) == "parent" && line.rest(3).all(|word| word != "originserver");
    !is_parent && (!is_port(line) || at.parse::<u16>().is_ok() || is_open(at))
}

/// `on`, `off`, or neither.
fn flag(word: &str) -> Option<bool> {
    match word.to_ascii_lowercase().as_str() {
        "on" | "yes" | "true" | "enable" => Some(true),
        "off" | "no" | "false" | "disable" | "none" => Some(false),
        _ => None,
    }
}

/// `10 MB` in bytes; a number alone has the unit that the directive has.
fn size(words: &[&str], usual: u64) -> Option<u64> {
    let first = words.first()?;
    let digits = first.len() - first.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, unit) = first.split_at(digits);
    let unit = if unit.is_empty() { words.get(1).copied().unwrap_or_default() } else { unit };
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" => usual,
        "b" | "bytes" => 1,
        "kb" | "kbytes" => 1 << 10,
        "mb" | "mbytes" => 1 << 20,
        "gb" | "gbytes" => 1 << 30,
        _ => return None,
    };
    match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(factor),
        Err(_) => {
            let number: f64 = number.parse().ok()?;
            (number < 1e9).then_some((number * factor as f64) as u64)
        }
    }
}

/// The shortest spelling of a size.
fn size_text(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, shift)| bytes > 0 && bytes.trailing_zeros() >= *shift) {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => format!("{bytes}B"),
    }
}

/// `30 seconds` in milliseconds; a number alone is so many seconds, or of the unit that the directive has.
fn time(words: &[&str], usual_millis: u64) -> Option<u64> {
    let first = words.first()?;
    let digits = first.len() - first.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, unit) = first.split_at(digits);
    let unit = if unit.is_empty() { words.get(1).copied().unwrap_or_default() } else { unit };
    let lower = unit.to_ascii_lowercase();
    let factor = match lower.strip_suffix('s').filter(|one| one.len() > 1).unwrap_or(&lower) {
        "" => usual_millis,
        "m" if lower == "ms" => 1,
        "millisecond" | "msec" => 1,
        "s" | "second" | "sec" => 1_000,
        "m" | "minute" | "min" => 60_000,
        "h" | "hour" => 3_600_000,
        "d" | "day" => 86_400_000,
        "w" | "week" => 7 * 86_400_000,
        "fortnight" => 14 * 86_400_000,
        "month" => 30 * 86_400_000,
        "y" | "year" => 365 * 86_400_000,
        _ => usual_millis,
    };
    let number: f64 = number.parse().ok()?;
    let millis = number * factor as f64;
    (millis < 1e15).then_some(millis as u64)
}

/// The shortest spelling of a duration.
fn time_text(millis: u64) -> String {
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
    match units.into_iter().find(|(_, factor)| millis > 0 && millis.is_multiple_of(*factor)) {
        Some((unit, factor)) => format!("{}{unit}", millis / factor),
        None if millis == 0 => "0s".to_owned(),
        None => format!("{millis}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times() {
        for (words, wanted) in [
            (&["8", "MB"][..], Some("8MiB")),
            (&["4096", "KB"], Some("4MiB")),
            (&["10"], Some("10KiB")),
            (&["1.5", "GB"], Some("1536MiB")),
            (&["0"], Some("0B")),
            (&["x"], None),
            (&["5", "stones"], None),
        ] {
            assert_eq!(size(words, 1 << 10).map(size_text).as_deref(), wanted, "{words:?}");
        }
        for (words, wanted) in [
            (&["30", "seconds"][..], Some("30s")),
            (&["1", "minute"], Some("1m")),
            (&["2", "hours"], Some("2h")),
            (&["1440"], Some("1d")),
            (&["1", "month"], Some("30d")),
            (&["1.5", "minutes"], Some("90s")),
            (&["soon"], None),
        ] {
            assert_eq!(time(words, 60_000).map(time_text).as_deref(), wanted, "{words:?}");
        }
        assert_eq!((flag("ON"), flag("off"), flag("maybe")), (Some(true), Some(false), None));
    }
}
