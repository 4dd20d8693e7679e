//! A list between its source and its compiled form: hashes in order, and counts of its lines.

use crate::format::Format;
use crate::hash::HashKey;
use crate::network::Ranges;
use std::fmt;

/// Counts of the lines of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Lines that were read.
    pub lines: u64,
    /// Lines that are right, but that a proxy can't decide.
    pub left_out: u64,
    /// Lines that are not right.
    pub malformed: u64,
    /// The first of these.
    pub samples: Vec<Sample>,
}

/// A malformed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The file or URL, and the line, from 1.
    pub place: String,
    /// Its beginning.
    pub text: String,
    /// The fault.
    pub why: &'static str,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}: {}", self.place, self.text, self.why)
    }
}

/// The entries of one side of a list.
#[derive(Default)]
pub(crate) struct Gathered {
    /// Names, in the order of [`NameReach::ALL`].
    pub(crate) names: [Vec<u64>; 3],
    pub(crate) urls: Vec<u64>,
    pub(crate) ranges: Ranges,
    pub(crate) expressions: Vec<String>,
    /// Filters for web browsers, one a line, and how many of them no name says.
    pub(crate) filters: String,
    pub(crate) filters_alone: usize,
}

impl Gathered {
    pub(crate) fn settle(&mut self) {
        for hashes in self.names.iter_mut().chain([&mut self.urls]) {
            hashes.sort_unstable();
            hashes.dedup();
        }
        self.ranges.settle();
        self.expressions.dedup();
    }

    pub(crate) fn entries(&self) -> usize {
        let names: usize = self.names.iter().map(Vec::len).sum();
        names + self.urls.len() + self.ranges.len() + self.expressions.len() + self.filters_alone
    }
}

/// A list that was read, sorted and not written yet.
pub struct Draft {
    pub(crate) key: HashKey,
    pub(crate) sides: [Gathered; 2],
    pub(crate) format: Format,
    pub(crate) tally: Tally,
}

impl Draft {
    /// The entries, exceptions included; doublets count once.
    pub fn entries(&self) -> u64 {
        self.sides.iter().map(|side| side.entries() as u64).sum()
    }

    /// Counts of its lines.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The format that the list has.
    pub fn format(&self) -> Format {
        self.format
    }
}
