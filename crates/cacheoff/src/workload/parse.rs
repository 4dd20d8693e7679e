//! A TOML file to a [`Workload`], with everything that is wrong collected on the way.

use super::draft::{ContentDraft, PhaseDraft};
use super::knob::{Knob, Refusal, section_of, text_of};
use super::report::{Problem, Report};
use super::table::{CONTENT, KNOBS, PHASE};
use super::{Embeds, Workload, sense};
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Reads the text of a file that is called `name`, in a variant of it if one is named, with changes `knob = value` on
/// top. `Err` has everything that is wrong.
pub fn load(name: &str, text: &str, variant: Option<&str>, changes: &[(String, String)]) -> Result<Workload, Report> {
    let mut parser = Parser::default();
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        parser.problem(error.span(), error.message().to_owned(), None);
    }
    let table = document.get_ref();
    parser.file(table);
    parser.variant(table, variant);
    for (knob, value) in changes {
        parser.change(knob, value, None);
    }
    let workload = parser.assemble(text, variant);
    match parser.problems.is_empty() {
        true => Ok(workload),
        false => Err(Report::new(name, text, parser.problems)),
    }
}

/// Names and descriptions of the variants in a file, as far as it can be read.
pub fn variants(text: &str) -> Vec<(String, String)> {
    let (document, _) = DeTable::parse_recoverable(text);
    let each = tables(document.get_ref(), "variant").into_iter().map(|(variant, _)| {
        let word = |key: &str| variant.get(key).and_then(|value| text_of(value.get_ref())).unwrap_or_default();
        (word("name"), word("about"))
    });
    each.collect()
}

struct Parser {
    workload: Workload,
    contents: Vec<ContentDraft>,
    phases: Vec<PhaseDraft>,
    problems: Vec<Problem>,
    /// Where values stand, by knob, for what is found wrong with several of them.
    spans: BTreeMap<String, Range<usize>>,
}

impl Default for Parser {
    fn default() -> Self {
        let (contents, phases, problems, spans) = Default::default();
        Self { workload: Workload::empty(), contents, phases, problems, spans }
    }
}

impl Parser {
    fn file(&mut self, table: &DeTable<'_>) {
        for (key, value) in table {
            match (&**key.get_ref(), value.get_ref()) {
                ("content" | "phase" | "variant", DeValue::Array(_)) => {}
                ("content" | "phase" | "variant", _) => {
                    let hint = format!("write [[{0}]] before the knobs of each {0}", key.get_ref());
                    self.problem(Some(value.span()), format!("{} is a list of tables", key.get_ref()), Some(hint));
                }
                (section, DeValue::Table(inner)) if is_section(section) => self.section(section, inner),
                (name, inner) => self.whole(name, key.span(), value.span(), inner),
            }
        }
        for knob in KNOBS.iter().filter(|knob| knob.required) {
            if !self.spans.contains_key(knob.name) {
                self.problem(None, format!("`{}` is missing", knob.name), Some(knob.about.to_owned()));
            }
        }
        for (each, span) in tables(table, "content") {
            let draft = self.item("content", CONTENT, ContentDraft::empty(), each, span);
            self.contents.push(draft);
        }
        for (each, span) in tables(table, "phase") {
            let draft = self.item("phase", PHASE, PhaseDraft::empty(), each, span);
            self.phases.push(draft);
        }
    }

    fn section(&mut self, section: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            self.whole(&format!("{section}.{}", key.get_ref()), key.span(), value.span(), value.get_ref());
        }
    }

    fn whole(&mut self, name: &str, key: Range<usize>, span: Range<usize>, value: &DeValue<'_>) {
        let Some(knob) = KNOBS.iter().find(|knob| knob.name == name) else {
            let hint = unknown(name);
            return self.problem(Some(key), format!("there is no knob {name}"), hint);
        };
        self.spans.insert(name.to_owned(), span.clone());
        let taken = knob.take(&mut self.workload, value);
        self.taken(name, Some(span), taken);
    }

    fn item<T: Clone + 'static>(
        &mut self,
        section: &str,
        knobs: &'static [Knob<T>],
        mut draft: T,
        table: &DeTable<'_>,
        whole: Range<usize>,
    ) -> T {
        let name = table.get("name").and_then(|value| text_of(value.get_ref())).unwrap_or_default();
        self.spans.insert(format!("{section}.{name}"), whole.clone());
        for (key, value) in table {
            let word = &**key.get_ref();
            match knobs.iter().find(|knob| knob.name == word) {
                Some(knob) => {
                    self.spans.insert(format!("{section}.{name}.{word}"), value.span());
                    let taken = knob.take(&mut draft, value.get_ref());
                    self.taken(&format!("{section}.{name}.{word}"), Some(value.span()), taken);
                }
                None => {
                    let near = closest(word, knobs.iter().map(|knob| knob.name));
                    let hint = near.map(|near| format!("did you mean {near}?")).or_else(|| elsewhere(word));
                    self.problem(Some(key.span()), format!("a {section} has no knob {word}"), hint);
                }
            }
        }
        for knob in knobs.iter().filter(|knob| knob.required && !table.contains_key(knob.name)) {
            self.problem(Some(whole.clone()), format!("`{}` is missing", knob.name), Some(knob.about.to_owned()));
        }
        draft
    }

    fn variant(&mut self, table: &DeTable<'_>, wanted: Option<&str>) {
        let mut names = Vec::new();
        for (each, span) in tables(table, "variant") {
            let word = |key: &str| each.get(key).and_then(|value| text_of(value.get_ref()));
            let (Some(name), Some(_)) = (word("name"), word("about")) else {
                self.problem(Some(span), "a variant needs `name`, `about` and `set`".to_owned(), None);
                continue;
            };
            for key in each.keys().filter(|key| !["name", "about", "set"].contains(&&**key.get_ref())) {
                self.problem(Some(key.span()), format!("a variant has no {}", key.get_ref()), None);
            }
            if wanted == Some(&name) {
                self.set(each);
            }
            names.push(name);
        }
        if let Some(wanted) = wanted.filter(|wanted| !names.iter().any(|name| name == wanted)) {
            let hint = match names.is_empty() {
                true => "this workload has none".to_owned(),
                false => format!("there are {}", names.join(", ")),
            };
            self.problem(None, format!("there is no variant {wanted}"), Some(hint));
        }
    }

    fn set(&mut self, variant: &DeTable<'_>) {
        let Some(DeValue::Table(set)) = variant.get("set").map(Spanned::get_ref) else { return };
        for (key, value) in set {
            match text_of(value.get_ref()) {
                Some(text) => self.change(key.get_ref(), &text, Some(value.span())),
                None => self.problem(Some(value.span()), format!("{} takes a plain value", key.get_ref()), None),
            }
        }
    }

    /// Changes a knob after the fact.
    fn change(&mut self, path: &str, text: &str, span: Option<Range<usize>>) {
        if let Some(span) = &span {
            self.spans.insert(path.to_owned(), span.clone());
        } else {
            self.spans.remove(path);
        }
        let taken = match path.split('.').collect::<Vec<_>>()[..] {
            ["content", name, word] => {
                let draft = self.contents.iter_mut().find(|draft| draft.content.name == name);
                take_in(CONTENT, word, draft, text)
            }
            ["phase", name, word] => {
                let draft = self.phases.iter_mut().find(|draft| draft.phase.name == name);
                take_in(PHASE, word, draft, text)
            }
            _ => take_in(KNOBS, path, Some(&mut self.workload), text),
        };
        match taken {
            Some(taken) => self.taken(path, span, taken),
            None => self.problem(span, format!("there is no knob {path}"), unknown(path)),
        }
    }

    /// Puts the parts together and looks whether they make sense.
    fn assemble(&mut self, text: &str, variant: Option<&str>) -> Workload {
        let mut workload = self.workload.clone();
        workload.text = text.to_owned();
        workload.variant = variant.map(str::to_owned);
        let names: Vec<String> = self.contents.iter().map(|draft| draft.content.name.clone()).collect();
        for draft in std::mem::take(&mut self.contents) {
            let embeds = self.embeds(&draft, &names);
            workload.contents.push(super::Content { embeds, ..draft.content });
        }
        for draft in std::mem::take(&mut self.phases) {
            let phase = draft.settle(workload.phases.last());
            workload.phases.push(phase);
        }
        if workload.contents.iter().any(|content| content.direct.is_some()) {
            workload.contents.iter_mut().for_each(|content| content.direct = content.direct.or(Some(0.0)));
        }
        if self.problems.is_empty() {
            for trouble in sense::troubles(&workload) {
                let span = trouble.knobs.iter().find_map(|knob| self.spans.get(knob).cloned());
                self.problem(span, trouble.message, trouble.hint);
            }
        }
        workload
    }

    fn embeds(&mut self, draft: &ContentDraft, names: &[String]) -> Option<Embeds> {
        let of = format!("content.{}.embeds_of", draft.content.name);
        let Some(count) = draft.embeds else {
            if !draft.embeds_of.is_empty() {
                let span = self.spans.get(&of).cloned();
                self.problem(span, format!("{of} without `embeds`"), Some("say how many with embeds".to_owned()));
            }
            return None;
        };
        let mut contents = Vec::new();
        for (name, share) in &draft.embeds_of {
            match names.iter().position(|each| each == name) {
                Some(number) => contents.push((number as u8, *share)),
                None => {
                    let hint = closest(name, names.iter().map(String::as_str));
                    let hint = hint.map(|near| format!("did you mean {near}?"));
                    let span = self.spans.get(&of).cloned();
                    self.problem(span, format!("{of}: there is no content {name}"), hint);
                }
            }
        }
        if draft.embeds_of.is_empty() {
            let span = self.spans.get(&format!("content.{}.embeds", draft.content.name)).cloned();
            self.problem(span, format!("`{of}` is missing"), Some("say of which types with embeds_of".to_owned()));
        }
        Some(Embeds { count, contents })
    }

    fn taken(&mut self, name: &str, span: Option<Range<usize>>, taken: Result<(), Refusal>) {
        if let Err(refusal) = taken {
            self.problem(span, format!("{name}: {}", refusal.message), refusal.hint);
        }
    }

    fn problem(&mut self, at: Option<Range<usize>>, message: String, hint: Option<String>) {
        self.problems.push(Problem { at, message, hint });
    }
}

/// Takes a text for one of these knobs; `None` if there is no such knob or nothing that has it.
fn take_in<T: Clone>(knobs: &[Knob<T>], name: &str, to: Option<&mut T>, text: &str) -> Option<Result<(), Refusal>> {
    let knob = knobs.iter().find(|knob| knob.name == name)?;
    Some(knob.take_text(to?, text))
}

/// The tables of a list, and where each stands.
fn tables<'t, 'i>(table: &'t DeTable<'i>, key: &str) -> Vec<(&'t DeTable<'i>, Range<usize>)> {
    let Some(DeValue::Array(items)) = table.get(key).map(Spanned::get_ref) else { return Vec::new() };
    let each = items.iter().filter_map(|item| match item.get_ref() {
        DeValue::Table(inner) => Some((inner, item.span())),
        _ => None,
    });
    each.collect()
}

fn is_section(name: &str) -> bool {
    KNOBS.iter().any(|knob| section_of(knob.name) == name && !name.is_empty())
}

fn unknown(name: &str) -> Option<String> {
    let near = closest(name, KNOBS.iter().map(|knob| knob.name));
    let near = near.map(|near| format!("did you mean {near}?"));
    near.or_else(|| elsewhere(name.rsplit('.').next().unwrap_or(name)))
        .or_else(|| Some("docs/workloads.md lists all knobs".to_owned()))
}

/// The same word in another table.
fn elsewhere(word: &str) -> Option<String> {
    let whole = KNOBS.iter().map(|knob| knob.name.to_owned());
    let content = CONTENT.iter().map(|knob| format!("content.NAME.{}", knob.name));
    let phase = PHASE.iter().map(|knob| format!("phase.NAME.{}", knob.name));
    let found = whole.chain(content).chain(phase).find(|name| name.rsplit('.').next() == Some(word))?;
    Some(format!("did you mean {found}?"))
}

/// The candidate that takes the fewest changes of letters, when these are few for the word's length.
fn closest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > 64 {
        return None;
    }
    let (distance, candidate) = candidates.map(|each| (distance(word, each), each)).min_by_key(|(each, _)| *each)?;
    (distance <= 1 + word.len() / 4).then_some(candidate)
}

/// Letters to insert, delete or replace.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in right.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}
