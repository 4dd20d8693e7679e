//! The configuration as it comes about: settings and tables, each with the notes of the lines that it comes from, and its text.

use crate::bound::Cond;
use crate::note::{Fate, Note};
use crate::value::{Table, Value, key_text};
use crate::{Imported, Settings};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A rule, before it is written.
#[derive(Clone, Debug)]
pub(crate) struct Ruling {
    pub(crate) cond: Cond,
    pub(crate) does: Table,
    pub(crate) notes: Vec<NoteId>,
}

/// The number of a note.
pub type NoteId = usize;

/// Tables that may come any number of times, in the order of the text.
const TABLES: [&str; 12] = [
    "listen",
    "origin",
    "site",
    "parent",
    "sibling",
    "login",
    "helper",
    "icap",
    "list",
    "bandwidth",
    "rule",
    "store_rule",
];
/// Tables that come once, in the order of the text.
const SECTIONS: [&str; 10] =
    ["access", "limits", "timeouts", "upstream", "policy", "neighbours", "intercept", "forward", "log", "records"];

/// A configuration.
#[derive(Debug, Default)]
pub struct Draft {
    notes: Vec<Note>,
    /// Notes whose fate is known.
    decided: Vec<bool>,
    settings: BTreeMap<&'static str, Setting>,
    tables: BTreeMap<&'static str, Vec<Item>>,
}

#[derive(Debug)]
struct Setting {
    value: Value,
    notes: Vec<NoteId>,
}

/// A table, and what is said above it.
#[derive(Clone, Debug, Default)]
pub struct Item {
    /// The values.
    pub table: Table,
    /// The lines that it comes from.
    pub notes: Vec<NoteId>,
    /// Further lines of the comment.
    pub remarks: Vec<String>,
}

impl Draft {
    /// Notes a directive.
    pub fn note(&mut self, file: &str, line: usize, source: &str) -> NoteId {
        self.notes.push(Note::new(file, line, source));
        self.decided.push(false);
        self.notes.len() - 1
    }

    /// Says what became of a directive. Of several fates the worst counts, and all that was said stands in the note.
    pub fn fate(&mut self, id: NoteId, fate: Fate, text: &str) {
        let (Some(note), Some(decided)) = (self.notes.get_mut(id), self.decided.get_mut(id)) else { return };
        note.fate = if *decided { note.fate.max(fate) } else { fate };
        *decided = true;
        if !text.is_empty() && !note.text.contains(text) {
            if !note.text.is_empty() {
                note.text.push_str("; ");
            }
            note.text.push_str(text);
        }
    }

    /// Whether something was said of it.
    pub fn is_decided(&self, id: NoteId) -> bool {
        self.decided.get(id).copied().unwrap_or(true)
    }

    /// It is a setting that says the same.
    pub fn translated(&mut self, id: NoteId) {
        self.fate(id, Fate::Translated, "");
    }

    /// It decides who may do what.
    pub fn guards(&mut self, id: NoteId) {
        if let Some(note) = self.notes.get_mut(id) {
            note.is_guard = true;
        }
    }

    /// It decides nothing about who may do what, or less is permitted than before.
    pub fn not_a_guard(&mut self, ids: &[NoteId]) {
        for id in ids {
            if let Some(note) = self.notes.get_mut(*id) {
                note.is_guard = false;
            }
        }
    }

    /// Sets a setting. A later line goes over an earlier one.
    pub fn set(&mut self, name: &'static str, value: impl Into<Value>, notes: &[NoteId]) {
        let value = value.into();
        let setting = self.settings.entry(name).or_insert_with(|| Setting { value: value.clone(), notes: Vec::new() });
        setting.value = value;
        setting.notes.extend(notes);
    }

    /// Adds texts to a setting that is a list.
    pub fn add_texts(&mut self, name: &'static str, texts: impl IntoIterator<Item = String>, notes: &[NoteId]) {
        let mut table = Table::default();
        if let Some(setting) = self.settings.get(name) {
            table.set(name, setting.value.clone());
        }
        table.add_texts(name, texts);
        if let Some(value) = table.find(name).cloned() {
            self.set(name, value, notes);
        }
    }

    /// The value of a setting.
    pub fn setting(&self, name: &str) -> Option<&Value> {
        self.settings.get(name).map(|setting| &setting.value)
    }

    /// Adds a table; gives its place among those of its name.
    pub fn push(&mut self, name: &'static str, table: Table, notes: &[NoteId]) -> usize {
        self.push_item(name, Item { table, notes: notes.to_vec(), remarks: Vec::new() })
    }

    /// Adds a table with remarks.
    pub fn push_item(&mut self, name: &'static str, item: Item) -> usize {
        let items = self.tables.entry(name).or_default();
        items.push(item);
        items.len() - 1
    }

    /// The tables of a name.
    pub fn items(&self, name: &str) -> &[Item] {
        self.tables.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// The tables of a name, to be changed.
    pub fn items_mut(&mut self, name: &'static str) -> &mut Vec<Item> {
        self.tables.entry(name).or_default()
    }

    /// Whether a table of this kind has this name.
    pub fn is_named(&self, table: &str, name: &str) -> bool {
        self.items(table).iter().any(|item| item.table.find("name") == Some(&Value::from(name)))
    }

    /// A name that no table of this kind has: of letters, digits, `-`, `_` and `.`, a letter first.
    pub fn free_name(&self, table: &str, wanted: &str) -> String {
        let mut name: String = wanted
            .chars()
            .map(|letter| if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '-' })
            .take(48)
            .collect();
        if !name.starts_with(|letter: char| letter.is_ascii_alphabetic()) {
            name.insert(0, 'n');
        }
        let mut free = name.clone();
        let mut number = 2;
        while self.is_named(table, &free) {
            free = format!("{name}-{number}");
            number += 1;
        }
        free
    }

    /// Adds a rule; says whether its condition can be written.
    pub fn rule(&mut self, name: &str, cond: &Cond, does: Table, notes: &[NoteId], remarks: Vec<String>) -> bool {
        let Some(when) = cond.when() else { return false };
        let mut table = Table::default();
        if !name.is_empty() {
            table.set("name", name);
        }
        if !when.0.is_empty() {
            table.set("when", when);
        }
        table.set("do", does);
        self.push_item("rule", Item { table, notes: notes.to_vec(), remarks });
        true
    }

    /// The text, with a comment for each line of the source.
    pub fn finish(mut self, settings: &Settings) -> Imported {
        for (note, decided) in self.notes.iter_mut().zip(&self.decided) {
            if !decided {
                note.fate = Fate::Missing;
                note.text = "nothing of the configuration uses it".to_owned();
            }
        }
        let mut printed = vec![false; self.notes.len()];
        let mut out = format!("# From {} by `larder import`.\n", one_line(&settings.name));
        self.write_open_questions(&mut out);
        for (name, setting) in self.settings.iter().filter(|(name, _)| !name.contains('.')) {
            self.write_setting(&mut out, name, setting, &mut printed);
        }
        for name in TABLES {
            for item in self.items(name) {
                out.push('\n');
                self.write_notes(&mut out, &item.notes, &mut printed);
                item.remarks.iter().for_each(|remark| _ = writeln!(out, "# {}", one_line(remark)));
                _ = writeln!(out, "[[{name}]]");
                for (key, value) in &item.table.0 {
                    _ = writeln!(out, "{} = {value}", key_text(key));
                }
            }
        }
        for section in SECTIONS {
            let mut of_section = self
                .settings
                .iter()
                .filter_map(|(name, setting)| Some((name.strip_prefix(section)?.strip_prefix('.')?, setting)))
                .peekable();
            if of_section.peek().is_none() {
                continue;
            }
            _ = writeln!(out, "\n[{section}]");
            for (key, setting) in of_section {
                self.write_setting(&mut out, key, setting, &mut printed);
            }
        }
        self.write_rest(&mut out, &printed);
        let has_secrets = self.has_secrets();
        Imported { toml: out, notes: self.notes, has_secrets }
    }

    /// Whether there may be passwords in it: of a parent, in the words of a program that somebody else wrote, in a field of requests.
    fn has_secrets(&self) -> bool {
        let items = self.tables.values().flatten().map(|item| &item.table);
        items
            .clone()
            .any(|table| table.find("password").is_some() || table.find("command").is_some_and(is_secret_command))
            || items.flat_map(|table| &table.0).any(|(_, value)| has_credential(value))
    }

    /// The lines that decide who may do what and are not the same stand first.
    fn write_open_questions(&self, out: &mut String) {
        let open: Vec<&Note> = self.notes.iter().filter(|note| note.is_open_question()).collect();
        if open.is_empty() {
            return;
        }
        out.push_str("#\n# LOOK AT THESE LINES. They say who may do what, and Larder does not do it as the source did; where it could\n");
        out.push_str("# not be translated, what it would have allowed is denied:\n");
        open.iter().for_each(|note| _ = writeln!(out, "#   {}", note.comment()));
        out.push('\n');
    }

    fn write_setting(&self, out: &mut String, key: &str, setting: &Setting, printed: &mut [bool]) {
        self.write_notes(out, &setting.notes, printed);
        _ = writeln!(out, "{} = {}", key_text(key), setting.value);
    }

    /// Each note stands once, above the first that came of it.
    fn write_notes(&self, out: &mut String, notes: &[NoteId], printed: &mut [bool]) {
        for &id in notes {
            let (Some(note), Some(printed)) = (self.notes.get(id), printed.get_mut(id)) else { continue };
            if !std::mem::replace(printed, true) {
                _ = writeln!(out, "# {}", note.comment());
            }
        }
    }

    /// The lines of which no setting came.
    fn write_rest(&self, out: &mut String, printed: &[bool]) {
        let left =
            |fate: Fate| self.notes.iter().zip(printed).filter(move |(note, printed)| note.fate == fate && !**printed);
        for (fate, title) in [
            (Fate::Missing, "Missing: Larder can't do these"),
            (Fate::Different, "Different, and without a setting of their own"),
            (Fate::NotNeeded, "Not needed"),
            (Fate::Translated, "The default of Larder, or a part of the above"),
        ] {
            for (number, (note, _)) in left(fate).enumerate() {
                if number == 0 {
                    _ = writeln!(out, "\n# {title}:");
                }
                _ = writeln!(out, "# {}", note.comment());
            }
        }
    }
}

/// Whether a command has words beside its program that are no path and no flag.
fn is_secret_command(command: &Value) -> bool {
    let Value::List(words) = command else { return false };
    let is_open = |word: &Value| matches!(word, Value::Text(word) if word.starts_with('/'));
    words.iter().skip(1).any(|word| !is_open(word))
}

/// Whether a field with a credential stands somewhere in a value.
fn has_credential(value: &Value) -> bool {
    const FIELDS: [&str; 3] = ["authorization:", "proxy-authorization:", "cookie:"];
    match value {
        Value::Text(text) => FIELDS.iter().any(|field| text.to_ascii_lowercase().starts_with(field)),
        Value::List(values) => values.iter().any(has_credential),
        Value::Table(table) => table.0.iter().any(|(_, value)| has_credential(value)),
        Value::Number(_) | Value::Flag(_) => false,
    }
}

/// A text that ends no comment.
fn one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    fn settings() -> Settings {
        Settings { format: Format::Squid, name: "squid.conf".to_owned(), zone: None }
    }

    #[test]
    fn each_note_stands_once_above_what_came_of_it() {
        let mut draft = Draft::default();
        let (first, second) = (draft.note("s", 1, "cache_mem 8 MB"), draft.note("s", 2, "memory_pools on"));
        let third = draft.note("s", 3, "http_access allow x");
        draft.set("memory", "8MiB", &[first]);
        draft.set("memory_object_bytes_max", "1MiB", &[first]);
        draft.translated(first);
        draft.fate(second, Fate::NotNeeded, "no pools");
        draft.guards(third);
        draft.fate(third, Fate::Missing, "no x");
        draft.set("access.login", "a", &[]);
        draft.rule("x", &Cond::True, Table::default().with("deny", true), &[third], Vec::new());
        let text = draft.finish(&settings()).toml;
        assert_eq!(text.matches("cache_mem").count(), 1, "{text}");
        assert!(text.contains("# s:1  cache_mem 8 MB\nmemory = \"8MiB\"\n"), "{text}");
        assert!(
            text.contains("# LOOK AT") && text.contains("\n[[rule]]\nname = \"x\"\ndo = { deny = true }\n"),
            "{text}"
        );
        assert!(text.contains("# Not needed:\n# s:2  memory_pools on: not needed: no pools\n"), "{text}");
        text.parse::<toml::Table>().unwrap();
    }

    #[test]
    fn names_are_free_and_have_their_form() {
        let mut draft = Draft::default();
        draft.push("list", Table::default().with("name", "a-b"), &[]);
        assert_eq!(draft.free_name("list", "a b"), "a-b-2");
        assert_eq!(draft.free_name("list", "1"), "n1");
    }

    #[test]
    fn the_worst_fate_counts_and_what_is_not_looked_at_is_said() {
        let mut draft = Draft::default();
        let (id, forgotten) = (draft.note("s", 1, "a"), draft.note("s", 2, "b"));
        draft.fate(id, Fate::Different, "x");
        draft.fate(id, Fate::Translated, "y");
        let notes = draft.finish(&settings()).notes;
        assert_eq!((notes[id].fate, notes[id].text.as_str()), (Fate::Different, "x; y"));
        assert_eq!(notes[forgotten].fate, Fate::Missing);
    }
}
