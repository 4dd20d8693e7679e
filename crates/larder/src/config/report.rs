//! All that is wrong with a configuration, shown with the places where it stands.

use std::fmt;
use std::ops::Range;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Bytes of the file that it is about; `None` for a flag.
    pub at: Option<Range<usize>>,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

/// Everything wrong with a file and the flags beside it, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    name: String,
    text: String,
    problems: Vec<Problem>,
}

impl Report {
    pub(super) fn new(name: &str, text: &str, mut problems: Vec<Problem>) -> Report {
        problems.sort_by_key(|problem| problem.at.as_ref().map_or((usize::MAX, 0), |at| (at.start, at.end)));
        Report { name: name.to_owned(), text: text.to_owned(), problems }
    }

    /// The problems; at least one.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    fn show(&self, problem: &Problem, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(at) = &problem.at else {
            writeln!(f, "error: {}", problem.message)?;
            return hint(problem, "", f);
        };
        let place = Place::of(&self.text, at);
        let margin = " ".repeat(place.line.to_string().len());
        writeln!(f, "error: {}", problem.message)?;
        writeln!(f, "{margin}--> {}:{}:{}", self.name, place.line, place.column)?;
        writeln!(f, "{margin} |")?;
        writeln!(f, "{} | {}", place.line, place.content)?;
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
            1 => writeln!(f, "1 error: nothing was started"),
            count => writeln!(f, "{count} errors: nothing was started"),
        }
    }
}

impl std::error::Error for Report {}

/// Where something stands, for people: counted from 1, in characters.
struct Place<'a> {
    line: usize,
    column: usize,
    carets: usize,
    content: &'a str,
}

impl<'a> Place<'a> {
    fn of(text: &'a str, at: &Range<usize>) -> Place<'a> {
        let begin = floor(text, at.start);
        let end = floor(text, at.end).max(begin);
        let from = text[..begin].rfind('\n').map_or(0, |newline| newline + 1);
        let to = text[begin..].find('\n').map_or(text.len(), |newline| begin + newline);
        Place {
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
