//! Gathers the entries of a list, as hashes, and compiles them.

use crate::draft::{Draft, Gathered, Sample, Tally};
use crate::entry::{Entry, NameReach, Side};
use crate::expressions::{EXPRESSION_MACHINE_BYTES_MAX, machine, machine_bytes};
use crate::format::{Format, LineParser, Part, Verdict, guess, is_web_page};
use crate::hash::HashKey;
use crate::input::{Input, each_file};
use crate::lines::{self, Next};
use crate::network::AddressRange;
use std::fmt;
use std::io::{self, BufRead, Read};

/// Malformed lines that are remembered, for people.
const SAMPLES_MAX: usize = 5;
/// Characters of a malformed line that are remembered.
const SAMPLE_CHARS_MAX: usize = 80;
/// Expressions of one list, and their characters: each of them costs time in every lookup of a URL.
const EXPRESSIONS_MAX: usize = 5_000;
const EXPRESSION_BYTES_MAX: usize = 1 << 20;
/// An expression that is too costly by itself counts as much of the machine of all: some are malformed lines, many are none.
const COSTLY_BYTES: usize = EXPRESSION_MACHINE_BYTES_MAX / 8;
/// Bytes of filters for web browsers in one list: their engine takes several times as much.
const FILTER_BYTES_MAX: usize = 64 << 20;
/// The entries that a range of addresses counts as: it has 8 or 32 bytes in the file, which stay in memory, and as many to be looked up,
/// where a name has 8.
const V4_RANGE_WEIGHT: usize = 2;
const V6_RANGE_WEIGHT: usize = 8;
/// So many lines are read before their share of malformed ones says something.
const JUDGED_FROM_LINES: u64 = 20;

/// How a list is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Its format.
    pub format: Format,
    /// Whether names that do not say it cover the names below them too.
    pub subdomains: bool,
    /// More entries are an error. A range of IPv4 addresses counts as two of them, one of IPv6 as eight: they take as much more memory.
    pub entries_max: usize,
    /// More bytes, unpacked, are an error.
    pub bytes_max: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { format: Format::Auto, subdomains: false, entries_max: 30_000_000, bytes_max: 2_000_000_000 }
    }
}

/// Why a source is no list.
#[derive(Debug)]
pub enum Fault {
    /// It can't be read.
    Io(io::Error),
    /// It is a web page.
    WebPage,
    /// Most of its lines are malformed: so many of so many.
    Malformed(Box<Tally>),
    /// It has more entries than this.
    TooMany(usize),
    /// Its expressions are too many, too long or too costly together.
    Expressions,
    /// Its filters for web browsers are too many.
    Filters,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Io(error) => write!(f, "{error}"),
            Fault::WebPage => {
                f.write_str("it is a web page, not a list: is the address right, and is a portal in the way?")
            }
            Fault::Malformed(tally) => {
                write!(f, "{} of {} lines are malformed; is `format` right?", tally.malformed, tally.lines)?;
                tally.samples.first().map_or(Ok(()), |sample| write!(f, " {sample}"))
            }
            Fault::TooMany(most) => write!(
                f,
                "it has more than {most} entries, which is the limit of one list (a range of IPv4 addresses counts as two, one of IPv6 as eight)"
            ),
            Fault::Expressions => write!(
                f,
                "its expressions are too costly together: at most {EXPRESSIONS_MAX} of {EXPRESSION_BYTES_MAX} bytes are taken"
            ),
            Fault::Filters => write!(f, "its filters for web browsers have more than {FILTER_BYTES_MAX} bytes"),
        }
    }
}

impl std::error::Error for Fault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Fault::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::Io(error)
    }
}

/// Gathers the entries of one list.
pub struct Builder {
    options: Options,
    key: HashKey,
    sides: [Gathered; 2],
    /// Entries, as [`Options::entries_max`] counts them.
    taken: usize,
    expressions: Spent,
    /// More was added than a list may have.
    excess: Option<Fault>,
    format: Option<Format>,
    tally: Tally,
}

/// The costs of the expressions so far, with those that were malformed: each was compiled.
#[derive(Default)]
struct Spent {
    number: usize,
    bytes: usize,
    machine_bytes: usize,
}

impl Builder {
    /// An empty list, whose hashes have this key.
    pub fn new(options: Options, key: HashKey) -> Builder {
        Builder {
            options,
            key,
            sides: Default::default(),
            taken: 0,
            expressions: Spent::default(),
            excess: None,
            format: None,
            tally: Tally::default(),
        }
    }

    /// Reads a source, which is called `name` in reports: text, gzip or an archive.
    pub fn read(&mut self, from: impl Read, name: &str) -> Result<(), Fault> {
        let input = Input::of(from, self.options.bytes_max)?;
        if !input.is_archive() {
            let part = self.part_of(&input.sample)?;
            return self.lines(&mut input.reader(), part, name);
        }
        let mut fault = None;
        let read = each_file(input.reader(), |path, content| {
            let file = path.rsplit('/').next().unwrap_or(path);
            let part = match (self.options.format, Part::of_file(file)) {
                (Format::Auto | Format::Squidguard, Some(part)) => part,
                (Format::Auto | Format::Squidguard, None) => return Ok(()),
                (format, _) => Part::Whole(format),
            };
            self.format.get_or_insert(if let Part::Whole(format) = part { format } else { Format::Squidguard });
            let read = self.lines(&mut io::BufReader::new(content), part, &format!("{name}:{path}"));
            read.map_err(|trouble| {
                fault = Some(trouble);
                io::ErrorKind::Other.into()
            })
        });
        match fault {
            Some(fault) => Err(fault),
            None => Ok(read?),
        }
    }

    /// Reads a file of a squidGuard folder.
    pub fn read_part(&mut self, part: Part, from: impl Read, name: &str) -> Result<(), Fault> {
        self.format = Some(Format::Squidguard);
        let input = Input::of(from, self.options.bytes_max)?;
        self.lines(&mut input.reader(), part, name)
    }

    /// Adds one name, URL, address or network that a person wrote. An error says what is wrong with it.
    pub fn read_exception(&mut self, text: &str) -> Result<(), &'static str> {
        let is_network = AddressRange::parse(text).is_some();
        let part = if text.contains('/') && !is_network { Part::Urls } else { Part::Whole(Format::Domains) };
        let mut bad = None;
        let verdict = LineParser::new(part, NameReach::Exact)
            .line(text.as_bytes(), &mut |side, entry| bad = bad.or(self.add(side, entry).err()));
        match (bad, verdict) {
            (None, Verdict::Taken) => Ok(()),
            (Some(why), _) | (None, Verdict::Malformed(why)) => Err(why),
            (None, Verdict::Nothing | Verdict::LeftOut) => Err("it is no name, URL or network"),
        }
    }

    /// Whether the source is said to be a squidGuard folder.
    pub(crate) fn is_squidguard(&self) -> bool {
        self.options.format == Format::Squidguard
    }

    /// Whether the source may be one.
    pub(crate) fn may_be_squidguard(&self) -> bool {
        matches!(self.options.format, Format::Squidguard | Format::Auto)
    }

    fn part_of(&mut self, sample: &[u8]) -> Result<Part, Fault> {
        if is_web_page(sample) {
            return Err(Fault::WebPage);
        }
        let format = match self.options.format {
            Format::Auto => guess(sample),
            // A single file of a folder that was meant.
            Format::Squidguard => return Ok(Part::Domains),
            format => format,
        };
        self.format = Some(format);
        Ok(Part::Whole(format))
    }

    fn lines(&mut self, from: &mut impl BufRead, part: Part, name: &str) -> Result<(), Fault> {
        let names = if self.options.subdomains { NameReach::Tree } else { NameReach::Exact };
        let mut parser = LineParser::new(part, names);
        let mut line = Vec::new();
        for number in 1_u64.. {
            let next = lines::next(from, &mut line)?;
            if next == Next::End {
                break;
            }
            self.tally.lines += 1;
            let mut bad = None;
            let verdict = match next {
                Next::TooLong => Verdict::Malformed("it is too long"),
                _ => parser.line(&line, &mut |side, entry| bad = bad.or(self.add(side, entry).err())),
            };
            match (bad, verdict) {
                (Some(why), _) | (None, Verdict::Malformed(why)) => self.malformed(name, number, &line, why),
                (None, Verdict::LeftOut) => self.tally.left_out += 1,
                (None, Verdict::Taken | Verdict::Nothing) => {}
            }
            if self.taken > self.options.entries_max {
                return Err(Fault::TooMany(self.options.entries_max));
            }
            if let Some(excess) = self.excess.take() {
                return Err(excess);
            }
        }
        Ok(())
    }

    fn malformed(&mut self, name: &str, number: u64, line: &[u8], why: &'static str) {
        self.tally.malformed += 1;
        if self.tally.samples.len() < SAMPLES_MAX {
            let text = String::from_utf8_lossy(line).trim().chars().take(SAMPLE_CHARS_MAX).collect();
            self.tally.samples.push(Sample { place: format!("{name}:{number}"), text, why });
        }
    }

    /// Adds an entry; an error says what is wrong with it.
    fn add(&mut self, side: Side, entry: Entry) -> Result<(), &'static str> {
        let to = &mut self.sides[side as usize];
        let mut weight = 1;
        match entry {
            Entry::Name(name, reach) => push(&mut to.names[reach as usize], self.key.hash(name.as_bytes())),
            Entry::Url(url) => push(&mut to.urls, self.key.hash(&url)),
            Entry::Addresses(AddressRange::V4(first, last)) => {
                push(&mut to.ranges.v4, (first, last));
                weight = V4_RANGE_WEIGHT;
            }
            Entry::Addresses(AddressRange::V6(first, last)) => {
                push(&mut to.ranges.v6, (first, last));
                weight = V6_RANGE_WEIGHT;
            }
            Entry::Filter(text, is_name) => {
                to.filters.push_str(&text);
                to.filters.push('\n');
                to.filters_alone += usize::from(!is_name);
                if to.filters.len() > FILTER_BYTES_MAX {
                    self.excess = Some(Fault::Filters);
                }
            }
            Entry::Expression(text) => {
                if self.expressions.add(&text, &mut self.excess)? {
                    to.expressions.push(text);
                }
            }
        }
        self.taken += weight;
        Ok(())
    }

    /// Sorts what was gathered. A source most of whose lines are malformed is none.
    pub fn finish(mut self) -> Result<Draft, Fault> {
        let Tally { lines, malformed, .. } = self.tally;
        if lines >= JUDGED_FROM_LINES && malformed > lines / 2 {
            return Err(Fault::Malformed(Box::new(self.tally)));
        }
        if let Some(excess) = self.excess.take() {
            return Err(excess);
        }
        for side in &mut self.sides {
            side.settle();
            if machine(&side.expressions).is_err() {
                return Err(Fault::Expressions);
            }
        }
        Ok(Draft {
            key: self.key,
            sides: self.sides,
            format: self.format.unwrap_or(self.options.format),
            tally: self.tally,
        })
    }
}

impl Spent {
    /// Whether an expression may be taken, or the fault of its line. Nothing is compiled behind the first one that is too many.
    fn add(&mut self, text: &str, excess: &mut Option<Fault>) -> Result<bool, &'static str> {
        self.number += 1;
        self.bytes += text.len();
        let mut is_bad = false;
        if self.number <= EXPRESSIONS_MAX && self.bytes <= EXPRESSION_BYTES_MAX {
            let cost = machine_bytes(text);
            is_bad = cost.is_err();
            self.machine_bytes += cost.unwrap_or_else(|error| error.size_limit().map_or(0, |_| COSTLY_BYTES));
        }
        // The machine of all has a limit of its own, and may share parts that each would have alone.
        let is_costly = self.machine_bytes > 2 * EXPRESSION_MACHINE_BYTES_MAX;
        if self.number > EXPRESSIONS_MAX || self.bytes > EXPRESSION_BYTES_MAX || is_costly {
            *excess = Some(Fault::Expressions);
            return Ok(false);
        }
        if is_bad {
            return Err("it is no expression that can be matched in bounded time");
        }
        Ok(true)
    }
}

/// Growth by a quarter: with doubling, the old and the new block of five million hashes would be 100 MB together.
fn push<T>(to: &mut Vec<T>, entry: T) {
    if to.len() == to.capacity() {
        to.reserve_exact((to.len() / 4).max(1_024));
    }
    to.push(entry);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builder(format: Format) -> Builder {
        Builder::new(Options { format, ..Options::default() }, HashKey::of([7; 16]))
    }

    /// A source of expressions without an end, which notes how much of it was read.
    struct Endless<'e>(&'e str, &'e mut usize);

    impl Read for Endless<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let text = self.0.as_bytes();
            to.iter_mut().enumerate().for_each(|(at, byte)| *byte = text[(*self.1 + at) % text.len()]);
            *self.1 += to.len();
            Ok(to.len())
        }
    }

    #[test]
    fn expressions_are_counted_before_they_are_compiled() {
        let long = format!("{}\n", "a".repeat(8_000));
        for (line, read_max) in
            [("(a|b)\n", 200_000), ("(unclosed\n", 200_000), (&long, 2 << 20), ("(a{900}){900}\n", 200_000)]
        {
            let mut read = 0;
            let fault = builder(Format::Squidguard).read_part(Part::Expressions, Endless(line, &mut read), "test");
            assert!(matches!(fault, Err(Fault::Expressions)), "{line}");
            assert!(read <= read_max, "{read} bytes of {line:?}");
        }
        // One that is too costly by itself is a malformed line.
        let mut one = builder(Format::Squidguard);
        one.read_part(Part::Expressions, &b"(a{900}){900}\n(a|b)\n"[..], "test").unwrap();
        assert_eq!((one.tally.malformed, one.finish().unwrap().entries()), (1, 1));
    }

    #[test]
    fn a_list_with_too_many_filters_is_refused_whole() {
        let mut builder = builder(Format::Adblock);
        let filter = "x".repeat(8 << 10);
        while builder.excess.is_none() {
            builder.add(Side::Covers, Entry::Filter(filter.clone(), false)).unwrap();
            assert!(builder.sides[0].filters.len() <= FILTER_BYTES_MAX + filter.len() + 1);
        }
        let fault = builder.read(&b"||ads.example^\n"[..], "test").unwrap_err();
        assert!(matches!(fault, Fault::Filters), "{fault}");
    }

    #[test]
    fn ranges_count_by_the_memory_they_take() {
        for (line, weight) in
            [("ads.example", 1), ("192.0.2.1-192.0.2.9", V4_RANGE_WEIGHT), ("2001:db8::/32", V6_RANGE_WEIGHT)]
        {
            for (entries_max, fits) in [(weight, true), (weight - 1, false)] {
                let options = Options { entries_max, ..Options::default() };
                let read = Builder::new(options, HashKey::of([7; 16])).read(line.as_bytes(), "test");
                assert_eq!(read.is_ok(), fits, "{line} of {entries_max}");
            }
        }
    }
}
