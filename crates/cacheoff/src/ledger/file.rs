//! The ledger's file: one JSON object a line, so that it streams, can be read after a kill, and any tool can read it.

use super::{Ledger, Record, Run};
use std::fmt;
use std::io::{self, BufRead, Write};

/// The mark at the beginning of a ledger's first line.
const FORMAT: &str = "cacheoff-ledger-1";
/// A longer line is not one of ours.
const LINE_BYTES_MAX: usize = 64 << 20;

/// Writes records as they come; each is flushed, so that a kill costs at most the line under way.
pub struct Writer<W: Write> {
    out: W,
}

impl<W: Write> Writer<W> {
    /// Begins a ledger.
    pub fn begin(out: W, run: &Run) -> io::Result<Self> {
        let mut writer = Self { out };
        writeln!(writer.out, "{{\"format\":\"{FORMAT}\"}}")?;
        writer.append(&Record::Run(Box::new(run.clone())))?;
        Ok(writer)
    }

    /// Goes on behind the end of a ledger that was written before.
    pub fn resume(out: W) -> Self {
        Self { out }
    }

    /// The end that was written to.
    #[cfg(test)]
    pub fn into_inner(self) -> W {
        self.out
    }

    /// Appends one record.
    pub fn append(&mut self, record: &Record) -> io::Result<()> {
        let mut line = serde_json::to_vec(record).map_err(io::Error::other)?;
        line.push(b'\n');
        self.out.write_all(&line)?;
        self.out.flush()
    }
}

/// Why a ledger could not be read.
#[derive(Debug)]
pub enum LedgerFault {
    /// The file could not be read.
    Io(io::Error),
    /// It is something else.
    NotALedger,
    /// A line in the middle is damaged.
    Line {
        /// Its number, counted from 1.
        number: usize,
        /// The fault.
        reason: String,
    },
}

impl fmt::Display for LedgerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(_) => f.write_str("the ledger cannot be read"),
            Self::NotALedger => write!(f, "this is not a ledger: its first line does not name the format {FORMAT}"),
            Self::Line { number, reason } => write!(f, "line {number} of the ledger is damaged: {reason}"),
        }
    }
}

impl std::error::Error for LedgerFault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl Ledger {
    /// Reads a ledger. A last line without its end is left out: the writer was killed while writing it.
    pub fn read(mut from: impl BufRead) -> Result<Self, LedgerFault> {
        let mut line = Vec::new();
        if !whole_line(&mut from, &mut line)? || !is_head(&line) {
            return Err(LedgerFault::NotALedger);
        }
        let mut ledger = Self::default();
        for number in 2.. {
            if !whole_line(&mut from, &mut line)? {
                break;
            }
            let record: Record = serde_json::from_slice(&line)
                .map_err(|error| LedgerFault::Line { number, reason: error.to_string() })?;
            ledger.push(record);
        }
        Ok(ledger)
    }

    /// Writes a whole ledger.
    pub fn write(&self, out: impl Write) -> io::Result<()> {
        let mut writer = Writer::begin(out, &self.run)?;
        for record in self.records() {
            writer.append(&record)?;
        }
        Ok(())
    }

    /// Everything but the head as records, in the order of time.
    fn records(&self) -> Vec<Record> {
        let mut timed: Vec<(u64, u8, Record)> = Vec::new();
        timed.extend(self.phases.iter().map(|phase| (phase.at_us, 0, Record::Phase(*phase))));
        let intervals = self.intervals.iter();
        timed.extend(intervals.map(|interval| (interval.at_us, 1, Record::Interval(Box::new(interval.clone())))));
        timed.extend(self.notes.iter().map(|note| (note.at_us, 2, Record::Note(note.clone()))));
        timed.sort_by_key(|(at_us, order, _)| (*at_us, *order));
        let mut records: Vec<Record> = timed.into_iter().map(|(_, _, record)| record).collect();
        records.extend(self.totals.iter().map(|total| Record::Total(Box::new(total.clone()))));
        records.extend(self.downtimes.iter().cloned().map(Record::Downtime));
        records.push(Record::End(self.end.clone()));
        records.extend(self.verdict.clone().map(Record::Verdict));
        records
    }
}

/// Reads a line that has its end; says whether there was one.
fn whole_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> Result<bool, LedgerFault> {
    line.clear();
    let limit = LINE_BYTES_MAX as u64;
    io::Read::take(&mut *from, limit).read_until(b'\n', line).map_err(LedgerFault::Io)?;
    Ok(line.pop_if(|byte| *byte == b'\n').is_some())
}

fn is_head(line: &[u8]) -> bool {
    let head: Option<serde_json::Value> = serde_json::from_slice(line).ok();
    head.is_some_and(|head| head["format"] == FORMAT)
}
