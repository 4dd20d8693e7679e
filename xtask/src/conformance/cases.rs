//! The cases: `conformance/*.toml`, a file per RFC (docs/conformance.md has the language). Everything that can be
//! wrong with a case is found here, before anything is started.

use super::expect::Expectation;
use crate::shell::Trouble;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// The cases of one file.
#[derive(Clone, Debug)]
pub struct Set {
    /// Number and title of the RFC.
    pub title: String,
    /// Titles of sections, in the order of the RFC.
    pub sections: Vec<(String, String)>,
    /// In the order of the file.
    pub cases: Vec<Case>,
}

/// How much an RFC demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// MUST, MUST NOT, REQUIRED.
    Must,
    /// SHOULD, SHOULD NOT, RECOMMENDED.
    Should,
    /// The RFC permits it; products may do it or not.
    May,
    /// The RFC leaves it open; it is good to know what a product does.
    Behaviour,
}

impl Level {
    /// The word in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Must => "MUST",
            Level::Should => "SHOULD",
            Level::May => "MAY",
            Level::Behaviour => "behaviour",
        }
    }

    /// Its row in the summary.
    pub fn summary_row(self) -> &'static str {
        if self.binds() { self.as_str() } else { "optional" }
    }

    /// Whether a product can fail such a case.
    pub fn binds(self) -> bool {
        matches!(self, Level::Must | Level::Should)
    }
}

/// One thing that an RFC says, and a conversation that shows whether a cache does it.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name, and the path that it uses.
    pub id: String,
    /// The section of the RFC.
    pub section: String,
    /// How much the RFC demands.
    pub level: Level,
    /// The requirement, as a sentence.
    pub says: String,
    /// Where it is documented that Larder chose otherwise.
    pub choice: Option<String>,
    /// Requests, one after the other.
    pub steps: Vec<Step>,
}

/// A request, what the origin answers if it gets it, and what must come of it.
#[derive(Clone, Debug)]
pub struct Step {
    /// The client's request.
    pub request: Request,
    /// The origin's answer.
    pub answer: Answer,
    /// The pause before the origin answers.
    pub delay: Duration,
    /// The pause before the client sends.
    pub after: Duration,
    /// Conditions without which the case shows nothing.
    pub given: Vec<Expectation>,
    /// The requirements of the RFC.
    pub expect: Vec<Expectation>,
}

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A method, what stands behind the path of the case, fields and content.
    Message { method: String, behind: String, fields: Vec<String>, content: Option<String> },
    /// These bytes.
    Raw(String),
}

/// An origin's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A status, fields (`no Date` leaves out what is added by itself) and content.
    Message { status: u16, honours_ranges: bool, fields: Vec<String>, content: String },
    /// These bytes and the end of the connection.
    Raw(String),
}

impl Answer {
    /// The content, to compare with.
    pub fn content(&self) -> &str {
        match self {
            Answer::Message { content, .. } => content,
            Answer::Raw(_) => "",
        }
    }
}

impl Case {
    /// The pauses in it, together.
    pub fn pauses(&self) -> Duration {
        self.steps.iter().map(|step| step.after + step.delay).sum()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSet {
    title: String,
    sections: Vec<(String, String)>,
    case: Vec<RawCase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCase {
    id: String,
    section: String,
    level: Level,
    says: String,
    choice: Option<String>,
    steps: Vec<RawStep>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStep {
    #[serde(default)]
    request: Vec<String>,
    body: Option<String>,
    raw: Option<String>,
    #[serde(default)]
    origin: Vec<String>,
    content: Option<String>,
    origin_raw: Option<String>,
    #[serde(default)]
    delay: f64,
    #[serde(default)]
    after: f64,
    #[serde(default)]
    given: Vec<String>,
    #[serde(default)]
    expect: Vec<String>,
}

/// The longest pause of a step, so that a run stays short.
const PAUSE_SECONDS_MAX: f64 = 5.0;

/// Reads all cases of the workspace, and tells all that is wrong with them.
pub fn load(root: &Path) -> Result<Vec<Set>, Trouble> {
    let folder = root.join("conformance");
    let listed = std::fs::read_dir(&folder).map_err(|error| format!("reading {}: {error}", folder.display()))?;
    let mut files: Vec<_> = listed.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
    files.sort();
    let (mut sets, mut wrong, mut ids) = (Vec::new(), Vec::new(), BTreeSet::new());
    for path in &files {
        let text = std::fs::read_to_string(path).map_err(|error| format!("reading {}: {error}", path.display()))?;
        match read(&text) {
            Ok(set) => sets.push(set),
            Err(found) => wrong.extend(found.into_iter().map(|trouble| format!("{}: {trouble}", path.display()))),
        }
    }
    for case in sets.iter().flat_map(|set: &Set| &set.cases) {
        if !ids.insert(case.id.clone()) {
            wrong.push(format!("two cases have the id {}", case.id));
        }
    }
    if wrong.is_empty() { Ok(sets) } else { Err(wrong.join("\n")) }
}

/// Reads a file of cases.
fn read(text: &str) -> Result<Set, Vec<Trouble>> {
    let raw: RawSet = toml::from_str(text).map_err(|error| vec![error.to_string()])?;
    let (mut cases, mut wrong) = (Vec::new(), Vec::new());
    for case in raw.case {
        let id = case.id.clone();
        if !raw.sections.iter().any(|(number, _)| *number == case.section) {
            wrong.push(format!("{id}: `sections` has no {}", case.section));
        }
        match read_case(case) {
            Ok(case) => cases.push(case),
            Err(trouble) => wrong.push(format!("{id}: {trouble}")),
        }
    }
    let set = Set { title: raw.title, sections: raw.sections, cases };
    if wrong.is_empty() { Ok(set) } else { Err(wrong) }
}

fn read_case(raw: RawCase) -> Result<Case, Trouble> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if raw.id.is_empty() || !raw.id.chars().all(is_name) {
        return Err("an id is made of small letters, digits and hyphens".to_owned());
    }
    if !raw.says.ends_with('.') {
        return Err("`says` is no sentence".to_owned());
    }
    let (id, count) = (raw.id.clone(), raw.steps.len());
    let step = |(at, step)| read_step(&id, at + 1, step).map_err(|trouble| format!("step {}: {trouble}", at + 1));
    let steps = raw.steps.into_iter().enumerate().map(step).collect::<Result<Vec<Step>, Trouble>>()?;
    let expectations = || steps.iter().flat_map(|step| step.expect.iter().chain(&step.given));
    if steps.iter().all(|step| step.expect.is_empty()) {
        return Err("nothing is expected".to_owned());
    }
    if expectations().flat_map(Expectation::steps_named).any(|named| named == 0 || named > count) {
        return Err("a step is named that there is not".to_owned());
    }
    Ok(Case { id: raw.id, section: raw.section, level: raw.level, says: raw.says, choice: raw.choice, steps })
}

fn read_step(id: &str, number: usize, raw: RawStep) -> Result<Step, Trouble> {
    let pause = |seconds: f64| {
        let fits = (0.0..=PAUSE_SECONDS_MAX).contains(&seconds);
        fits.then(|| Duration::from_secs_f64(seconds)).ok_or_else(|| format!("a pause of {seconds} s"))
    };
    let expectations = |texts: &[String]| texts.iter().map(|text| Expectation::read(text)).collect::<Result<_, _>>();
    let content = raw.content.unwrap_or_else(|| format!("content of {id} in step {number}"));
    Ok(Step {
        request: read_request(raw.request, raw.body, raw.raw)?,
        answer: read_answer(raw.origin, content, raw.origin_raw)?,
        delay: pause(raw.delay)?,
        after: pause(raw.after)?,
        given: expectations(&raw.given)?,
        expect: expectations(&raw.expect)?,
    })
}

fn read_request(lines: Vec<String>, content: Option<String>, raw: Option<String>) -> Result<Request, Trouble> {
    if let Some(raw) = raw {
        let alone = lines.is_empty() && content.is_none();
        return if alone { Ok(Request::Raw(raw)) } else { Err("`raw` stands beside `request` or `body`".to_owned()) };
    }
    let (first, fields) = split_first(lines);
    let first = first.unwrap_or_else(|| "GET".to_owned());
    let (method, behind) = first.split_once(' ').unwrap_or((&first, ""));
    if !behind.is_empty() && !behind.starts_with(['?', '/']) {
        return Err(format!("behind the path stands {behind:?}, not ?… or /…"));
    }
    Ok(Request::Message { method: method.to_owned(), behind: behind.to_owned(), fields, content })
}

/// `["200 ranges", "Cache-Control: …"]`: the status may be left out.
fn read_answer(lines: Vec<String>, content: String, raw: Option<String>) -> Result<Answer, Trouble> {
    if let Some(raw) = raw {
        return if lines.is_empty() {
            Ok(Answer::Raw(raw))
        } else {
            Err("`origin_raw` stands beside `origin`".to_owned())
        };
    }
    let (first, fields) = split_first(lines);
    let first = first.unwrap_or_else(|| "200".to_owned());
    let (status, rest) = first.split_once(' ').unwrap_or((&first, ""));
    let honours_ranges = match rest {
        "" => false,
        "ranges" => true,
        _ => return Err(format!("behind the status stands {rest:?}, not \"ranges\"")),
    };
    let status = status.parse().map_err(|_| format!("no status: {status:?}"))?;
    Ok(Answer::Message { status, honours_ranges, fields, content })
}

/// The first line, unless it is a field already.
fn split_first(mut lines: Vec<String>) -> (Option<String>, Vec<String>) {
    let is_field = |line: &String| line.contains(':') || line.starts_with("no ");
    if lines.first().is_some_and(|line| !is_field(line)) {
        let first = lines.remove(0);
        return (Some(first), lines);
    }
    (None, lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "title = \"RFC 1: One\"\nsections = [[\"1\", \"First\"]]\n";

    fn case(rest: &str) -> Result<Set, Vec<Trouble>> {
        let steps = if rest.contains("steps") { "" } else { "steps = [{ expect = [\"asked\"] }]\n" };
        let says = if rest.contains("says") { "" } else { "says = \"It holds.\"\n" };
        let section = if rest.contains("section =") { "" } else { "section = \"1\"\n" };
        let id = if rest.contains("id =") { "" } else { "id = \"a\"\n" };
        read(&format!("{HEAD}[[case]]\nlevel = \"must\"\n{id}{section}{says}{steps}{rest}\n"))
    }

    #[test]
    fn a_step_is_read_with_its_defaults() {
        let set = case("steps = [{}, { request = [\"POST /b\", \"A: b\"], body = \"x\", origin = [\"206 ranges\", \"no Date\"], after = 1.5, expect = [\"got content 1\"] }]").unwrap();
        let steps = &set.cases[0].steps;
        let get = Request::Message { method: "GET".into(), behind: String::new(), fields: Vec::new(), content: None };
        assert_eq!(steps[0].request, get);
        assert_eq!(steps[0].answer.content(), "content of a in step 1");
        let fields = vec!["A: b".to_owned()];
        let post = Request::Message { method: "POST".into(), behind: "/b".into(), fields, content: Some("x".into()) };
        assert_eq!(steps[1].request, post);
        let Answer::Message { status, honours_ranges, fields, .. } = &steps[1].answer else { panic!("{steps:?}") };
        assert_eq!((*status, *honours_ranges, fields.len()), (206, true, 1));
        assert_eq!(set.cases[0].pauses(), Duration::from_millis(1500));
    }

    #[test]
    fn what_is_wrong_with_a_case_is_told() {
        for (rest, part) in [
            ("id = \"A b\"", "an id is made of"),
            ("section = \"2\"", "has no 2"),
            ("says = \"half\"", "no sentence"),
            ("steps = [{ origin = [\"200\"] }]", "nothing is expected"),
            ("steps = [{ expect = [\"stored\"] }]", "step 1: not an expectation"),
            ("steps = [{ expect = [\"got content 2\"] }]", "a step is named"),
            ("steps = [{ after = 60.0, expect = [\"asked\"] }]", "a pause of 60"),
            ("steps = [{ raw = \"x\", body = \"y\", expect = [\"asked\"] }]", "beside"),
            ("steps = [{ origin = [\"200 fast\"], expect = [\"asked\"] }]", "behind the status"),
            ("steps = [{ request = [\"GET b\"], expect = [\"asked\"] }]", "behind the path"),
            ("steps = [{ orign = [], expect = [\"asked\"] }]", "orign"),
            ("other = 1", "other"),
        ] {
            let found = case(rest).unwrap_err().join("\n");
            assert!(found.contains(part), "{rest}: {found}");
        }
    }

    #[test]
    fn the_cases_of_the_tree_are_sound() {
        let root = crate::shell::workspace().unwrap();
        let sets = load(&root).unwrap();
        let count: usize = sets.iter().map(|set| set.cases.len()).sum();
        assert!(count >= 250, "{count} cases");
        for set in &sets {
            for (number, _) in &set.sections {
                assert!(set.cases.iter().any(|case| case.section == *number), "{}: no case of {number}", set.title);
            }
        }
    }
}
