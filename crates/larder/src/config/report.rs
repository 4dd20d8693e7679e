//! All that is wrong with a configuration, shown with the places where it stands.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A file of the configuration, or a text that stands for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// Its name in messages.
    pub(super) name: Arc<str>,
    pub(super) text: String,
    /// Where each line ends, in bytes: a file of a thousand rules asks for a thousand lines.
    ends: Vec<usize>,
}

impl Source {
    pub(super) fn new(name: &str, text: String) -> Source {
        let ends = text.bytes().enumerate().filter_map(|(at, byte)| (byte == b'\n').then_some(at)).collect();
        Source { name: name.into(), text, ends }
    }

    /// The line of a byte, counted from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        1 + self.ends.partition_point(|&end| end < at)
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file that it is about, in the order of reading.
    pub source: usize,
    /// Bytes of the file that it is about; `None` for a flag.
    pub at: Option<Range<usize>>,
    /// The fault, in a sentence.
    pub message: String,
    /// The remedy.
    pub hint: Option<String>,
}

/// Everything wrong with the files and the flags beside them, in the order of the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    sources: Vec<Arc<Source>>,
    problems: Vec<Problem>,
}

impl Report {
    pub(super) fn new(sources: Vec<Arc<Source>>, mut problems: Vec<Problem>) -> Report {
        let last = (usize::MAX, 0, 0);
        problems.sort_by_key(|each| each.at.as_ref().map_or(last, |at| (each.source, at.start, at.end)));
        Report { sources, problems }
    }

    /// A report of one thing that stands in no file.
    pub(super) fn of(message: String, hint: &str) -> Report {
        Report::new(Vec::new(), vec![Problem { source: 0, at: None, message, hint: Some(hint.to_owned()) }])
    }

    /// With further things that are wrong, which stand in no file.
    pub fn and(report: Option<Report>, messages: Vec<String>) -> Option<Report> {
        if messages.is_empty() {
            return report;
        }
        let further = messages.into_iter().map(|message| Problem { source: 0, at: None, message, hint: None });
        let (sources, mut problems) = report.map_or_else(Default::default, |report| (report.sources, report.problems));
        problems.extend(further);
        Some(Report { sources, problems })
    }

    /// The problems; at least one.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    fn show(&self, problem: &Problem, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(at), Some(source)) = (&problem.at, self.sources.get(problem.source)) else {
            writeln!(f, "error: {}", problem.message)?;
            return hint(problem, "", f);
        };
        let place = Excerpt::of(&source.text, at);
        let margin = " ".repeat(place.line.to_string().len());
        writeln!(f, "error: {}", problem.message)?;
        writeln!(f, "{margin}--> {}:{}:{}", source.name, place.line, place.column)?;
        writeln!(f, "{margin} |")?;
        writeln!(f, "{} | {}", place.line, super::secret::without_login(place.content))?;
        writeln!(f, "{margin} | {}{}", " ".repeat(place.column - 1), "^".repeat(place.carets))?;
        hint(problem, &margin, f)
    }
}

fn hint(problem: &Problem, margin: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match &problem.hint {
        Some(hint) => writeln!(f, "{margin} = {hint}"),
        None => Ok(()),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            self.show(problem, f)?;
            writeln!(f)?;
        }
        match self.problems.len() {
            1 => writeln!(f, "1 error: nothing was changed"),
            count => writeln!(f, "{count} errors: nothing was changed"),
        }
    }
}

impl std::error::Error for Report {}

/// Where something stands, for people: counted from 1, in characters.
struct Excerpt<'a> {
    line: usize,
    column: usize,
    carets: usize,
    content: &'a str,
}

impl<'a> Excerpt<'a> {
    fn of(text: &'a str, at: &Range<usize>) -> Excerpt<'a> {
        let begin = floor(text, at.start);
        let end = floor(text, at.end).max(begin);
        let from = text[..begin].rfind('\n').map_or(0, |newline| newline + 1);
        let to = text[begin..].find('\n').map_or(text.len(), |newline| begin + newline);
        Excerpt {
            line: 1 + text[..from].matches('\n').count(),
            column: 1 + text[from..begin].chars().count(),
            carets: text[begin..end.min(to)].chars().count().max(1),
            content: text[from..to].trim_end_matches('\r'),
        }
    }
}

/// The nearest border of a character at or before `at`.
fn floor(text: &str, at: usize) -> usize {
    text.floor_char_boundary(at.min(text.len()))
}
