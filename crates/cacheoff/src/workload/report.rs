//! All that is wrong with a workload, shown with the lines where it stands.

use std::fmt;
use std::ops::Range;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Bytes of the file that it is about; `None` if it is about none.
    pub at: Option<Range<usize>>,
    /// The fault, in a sentence.
    pub message: String,
    /// The remedy.
    pub hint: Option<String>,
}

/// Everything wrong with one file, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    name: String,
    text: String,
    problems: Vec<Problem>,
}

impl Report {
    pub(super) fn new(name: &str, text: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| problem.at.as_ref().map_or(usize::MAX, |at| at.start));
        Self { name: name.to_owned(), text: text.to_owned(), problems }
    }

    /// The problems; at least one.
    #[cfg(test)]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    fn show(&self, problem: &Problem, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", problem.message)?;
        let mut margin = String::new();
        if let Some(at) = &problem.at {
            let begin = self.text.floor_char_boundary(at.start.min(self.text.len()));
            let end = self.text.floor_char_boundary(at.end.min(self.text.len())).max(begin);
            let from = self.text[..begin].rfind('\n').map_or(0, |newline| newline + 1);
            let to = self.text[begin..].find('\n').map_or(self.text.len(), |newline| begin + newline);
            let line = 1 + self.text[..from].matches('\n').count();
            let indent = self.text[from..begin].chars().count();
            let carets = self.text[begin..end.min(to)].chars().count().max(1);
            margin = " ".repeat(line.to_string().len());
            writeln!(f, "{margin}--> {}:{line}:{}", self.name, indent + 1)?;
            writeln!(f, "{margin} |")?;
            writeln!(f, "{line} | {}", self.text[from..to].trim_end_matches('\r'))?;
            writeln!(f, "{margin} | {}{}", " ".repeat(indent), "^".repeat(carets))?;
        }
        match &problem.hint {
            Some(hint) => writeln!(f, "{margin} = {hint}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            self.show(problem, f)?;
            writeln!(f)?;
        }
        let plural = if self.problems.len() == 1 { "" } else { "s" };
        writeln!(f, "{} error{plural} in {}", self.problems.len(), self.name)
    }
}

impl std::error::Error for Report {}
