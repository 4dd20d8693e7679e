//! VCL: backends become origins, and the usual statements of its subroutines become rules. Code beyond these is shown as missing, with its line.

mod answers;
mod backends;
mod condition;
mod parse;
mod requests;

use crate::Settings;
use crate::bound::Cond;
use crate::draft::{Draft, NoteId, Ruling};
use crate::note::Fate;
use crate::value::{Table, Value};
use condition::Acls;
use parse::{Declaration, Statement};
use std::collections::BTreeMap;

/// Reads a source.
pub fn read(text: &str, settings: &Settings) -> Draft {
    let declarations = parse::parse(text);
    let mut reader = Reader { name: settings.name.clone(), ..Reader::default() };
    for declaration in &declarations {
        reader.declaration(declaration);
    }
    reader.finish();
    reader.draft
}

/// A statement with its note.
#[derive(Clone, Debug)]
struct Noted {
    statement: Statement,
    body: Option<Vec<Noted>>,
    note: NoteId,
}

impl Noted {
    fn word(&self) -> &str {
        self.statement.word()
    }

    fn inner(&self) -> &[Noted] {
        self.body.as_deref().unwrap_or_default()
    }
}

#[derive(Default)]
struct Reader {
    draft: Draft,
    name: String,
    acls: Acls,
    backends: Vec<backends::Backend>,
    probes: BTreeMap<String, Table>,
    directors: Vec<backends::Director>,
    /// Subroutines by name; of several parts one behind the other.
    subs: BTreeMap<String, Vec<Noted>>,
    effects: Vec<Ruling>,
    verdicts: Vec<Ruling>,
    /// Sites by host, with the name of their backend.
    sites: Vec<(Vec<String>, String, NoteId)>,
    default_backend: Option<String>,
    /// Conditions under which the field Cookie is taken off the request.
    cookieless: Vec<Cond>,
    purgers: Vec<Cond>,
}

/// Subroutines that call one another are nested no deeper.
const CALLS_MAX: usize = 8;

impl Reader {
    fn declaration(&mut self, declaration: &Declaration) {
        let text = format!("{} {}", declaration.kind, declaration.words.join(" "));
        let note = self.draft.note(&self.name.clone(), declaration.line, text.trim());
        let name = declaration.words.first().cloned().unwrap_or_default();
        match declaration.kind.as_str() {
            "vcl" => self.draft.fate(note, Fate::NotNeeded, "VCL 4.0 and 4.1 are read"),
            "import" => match name.as_str() {
                "std" | "directors" => {
                    self.draft.fate(note, Fate::NotNeeded, "what it is used for is said at each place")
                }
                _ => self.draft.fate(
                    note,
                    Fate::Missing,
                    "there are no such modules; a hook in Python does more (docs/python.md)",
                ),
            },
            "include" => self.draft.fate(
                note,
                Fate::Missing,
                "files that are included are not read: give the whole, as `varnishd -C` or `vcl.show` print it",
            ),
            "acl" => self.acl(&name, declaration, note),
            "backend" => self.backend(&name, declaration, note),
            "probe" => {
                let inner = self.noted(&declaration.body);
                let probe = self.probe(&inner);
                self.draft.translated(note);
                self.probes.insert(name, probe);
            }
            "director" => self.old_director(&name, declaration, note),
            "sub" => {
                let body = self.noted(&declaration.body);
                self.draft.translated(note);
                self.subs.entry(name).or_default().extend(body);
            }
            _ => {
                self.draft.fate(
                    note,
                    Fate::Missing,
                    "code beyond VCL 4.1: a hook in Python may do it (docs/recipes.md)",
                );
                let inner = self.noted(&declaration.body);
                self.say_all(&inner, Fate::Missing, "a part of the above");
            }
        }
    }

    fn noted(&mut self, statements: &[Statement]) -> Vec<Noted> {
        let mut all = Vec::new();
        for statement in statements {
            let note = self.draft.note(&self.name.clone(), statement.line, &statement.text());
            let body = statement.body.as_ref().map(|inner| self.noted(inner));
            all.push(Noted { statement: statement.clone(), body, note });
        }
        all
    }

    fn say_all(&mut self, statements: &[Noted], fate: Fate, text: &str) {
        for one in statements {
            if !self.draft.is_decided(one.note) {
                self.draft.fate(one.note, fate, text);
            }
            self.say_all(one.inner(), fate, text);
        }
    }

    /// `acl purge { "localhost"; "10.0.0.0"/8; !"10.0.0.1"; }`
    fn acl(&mut self, name: &str, declaration: &Declaration, note: NoteId) {
        self.draft.guards(note);
        let (mut nets, mut not) = (Vec::new(), Vec::new());
        for statement in &declaration.body {
            let text = statement.text().replace(['"', ' ', '(', ')'], "");
            let id = self.draft.note(&self.name.clone(), statement.line, &statement.text());
            let (is_negated, text) = text.strip_prefix('!').map_or((false, text.as_str()), |rest| (true, rest));
            let found = match text {
                "localhost" => Some(vec!["127.0.0.0/8".to_owned(), "::1/128".to_owned()]),
                text => crate::network_texts(text),
            };
            match found {
                Some(found) if is_negated => not.extend(found),
                Some(found) => nets.extend(found),
                None => {
                    self.draft.guards(id);
                    self.draft.fate(id, Fate::Missing, "no name is looked up: such a client is not let in");
                    continue;
                }
            }
            self.draft.translated(id);
        }
        self.draft.translated(note);
        let cond = Cond::all([Cond::atom("client", nets), Cond::atom("client", not).negated()]);
        self.acls.insert(name.to_owned(), cond);
    }

    fn finish(&mut self) {
        self.find_directors();
        let subs = std::mem::take(&mut self.subs);
        let body = |name: &str| subs.get(name).cloned().unwrap_or_default();
        let reach = self.request_body(&body("vcl_recv"), condition::Known::exact(Cond::True), &subs, 0);
        self.built_in_recv(&reach);
        for name in ["vcl_backend_response", "vcl_fetch"] {
            self.answer_body(&body(name), Some(Cond::True), &subs, 0);
        }
        self.deliver_body(&body("vcl_deliver"), Some(Cond::True));
        self.hash_body(&body("vcl_hash"));
        for (name, statements) in &subs {
            let (fate, text) = match name.as_str() {
                "vcl_synth" | "vcl_backend_error" | "vcl_error" => {
                    (Fate::Missing, "pages are Larder's own; rule.do.page takes one for a refusal")
                }
                "vcl_pipe" => (Fate::NotNeeded, "tunnels and upgrades pass"),
                "vcl_hit" | "vcl_miss" | "vcl_pass" | "vcl_purge" | "vcl_init" | "vcl_fini" => {
                    (Fate::Different, "Larder does what is usual there")
                }
                "vcl_backend_fetch" => (Fate::Missing, "requests go to origins as rules leave them"),
                _ => (Fate::Missing, "code that could not be translated; a hook in Python may do it (docs/recipes.md)"),
            };
            self.say_all(statements, fate, text);
        }
        self.write_sites();
        self.write_purge();
        for ruling in std::mem::take(&mut self.effects).into_iter().chain(std::mem::take(&mut self.verdicts)) {
            if !self.draft.rule("", &ruling.cond, ruling.does, &ruling.notes, Vec::new()) {
                for id in ruling.notes {
                    self.draft.fate(id, Fate::Different, "its condition never holds here, or is nested too deep");
                }
            }
        }
    }

    fn write_purge(&mut self) {
        if self.purgers.is_empty() {
            return;
        }
        let mut networks: Vec<String> = Vec::new();
        for cond in std::mem::take(&mut self.purgers) {
            match networks_of(&cond) {
                Some(of_cond) => networks.extend(of_cond),
                None => networks.extend(["0.0.0.0/0".to_owned(), "::/0".to_owned()]),
            }
        }
        networks.dedup();
        self.draft.set("access.purge", Value::from(networks), &[]);
    }
}

/// The networks without which a condition does not hold.
fn networks_of(cond: &Cond) -> Option<Vec<String>> {
    match cond {
        Cond::Atom(atom) if atom.key == "client" => Some(atom.values.clone()),
        Cond::And(all) => all.iter().find_map(networks_of),
        Cond::Or(each) => each.iter().map(networks_of).collect::<Option<Vec<_>>>().map(|all| all.concat()),
        _ => None,
    }
}

/// `1h`, `120s`, `2.5m` in seconds.
fn seconds(text: &str) -> Option<u64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    let factor = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        "w" => 604_800.0,
        "y" => 31_536_000.0,
        _ => return None,
    };
    let seconds = number * factor;
    (seconds < 3.2e8).then_some(seconds.ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, wanted) in
            [("1h", Some(3_600)), ("120s", Some(120)), ("0.5s", Some(1)), ("0s", Some(0)), ("5", None), ("x", None)]
        {
            assert_eq!(seconds(text), wanted, "{text}");
        }
    }
}
