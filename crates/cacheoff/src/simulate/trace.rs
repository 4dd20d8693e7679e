//! Logs and traces as requests: squid's native log, the combined log, JSON lines, oracleGeneral, columns.

use super::lines::{Columns, Form, Line, LoggedRequest};
use std::collections::HashMap;
use std::io::{self, BufRead, Read};

/// One request. Objects are numbered in the order in which they are first asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Number of the object.
    pub object: u32,
    /// Bytes of the reply; at least 1.
    pub bytes: u64,
    /// Microseconds after the first request of the log; a log that goes back in time stands still.
    pub at_us: u64,
}

/// A log that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Requests in order.
    pub requests: Vec<Request>,
    /// Objects asked for.
    pub objects: u32,
    /// Lines that are no requests for an object: other methods, failures, other text.
    pub skipped: u64,
    /// Seconds for which answers stay fresh, by the object's number: what the first request for it says that says something.
    /// Empty if the log says nothing of that.
    pub lifetimes_s: Vec<Option<f64>>,
    /// Seconds from the first to the last request.
    pub span_s: f64,
    /// The requests go on behind the limit.
    pub cut: bool,
}

/// Lines longer than this are no requests.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// A record of oracleGeneral: u32 time, u64 object, u32 size, i64 next use, little-endian.
const RECORD_BYTES: usize = 24;

impl Trace {
    /// Reads a log, at most `requests_max` requests of it.
    pub fn read(form: Form, mut from: impl BufRead, requests_max: usize) -> io::Result<Self> {
        let mut reading = Reading::default();
        while reading.trace.requests.len() < requests_max {
            let more = match form {
                Form::Oracle => reading.record(&mut from)?,
                _ => reading.line(form, &mut from)?,
            };
            if !more {
                return Ok(reading.end());
            }
        }
        reading.trace.cut = !from.fill_buf()?.is_empty();
        Ok(reading.end())
    }

    /// Bytes of all objects, each counted once, at its first size.
    pub fn footprint_bytes(&self) -> u64 {
        let mut seen = 0;
        let firsts = self.requests.iter().filter(|request| {
            let first = request.object == seen;
            seen += u32::from(first);
            first
        });
        firsts.map(|request| request.bytes).sum()
    }
}

#[derive(Default)]
struct Reading {
    trace: Trace,
    /// Names of objects by a 128-bit hash; two that meet there by chance are not to be expected.
    numbers: HashMap<u128, u32>,
    first_s: Option<f64>,
    last_s: f64,
    columns: Columns,
    buffer: Vec<u8>,
}

impl Reading {
    fn line(&mut self, form: Form, from: &mut impl BufRead) -> io::Result<bool> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let len = from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut buffer)?;
        let text = String::from_utf8_lossy(&buffer);
        let line = Line::new(text.trim());
        let named = Columns::named(&text).filter(|_| form == Form::Columns && self.trace.requests.is_empty());
        match line.read(form, &self.columns) {
            Some(logged) => self.add(&logged),
            None if named.is_some() => self.columns = named.unwrap_or_default(),
            None if !text.trim().is_empty() && !text.starts_with('#') => self.trace.skipped += 1,
            None => {}
        }
        self.buffer = buffer;
        Ok(len > 0)
    }

    fn record(&mut self, from: &mut impl BufRead) -> io::Result<bool> {
        let mut record = [0; RECORD_BYTES];
        match from.read_exact(&mut record) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            done => done?,
        }
        let word = |at: usize| u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
        let object = record[4..12].to_vec();
        let (at_s, bytes) = (f64::from(word(0)), u64::from(word(12)));
        self.add(&LoggedRequest { at_s, object: object.into(), bytes, lifetime_s: None });
        Ok(true)
    }

    fn add(&mut self, logged: &LoggedRequest<'_>) {
        let next = self.trace.objects;
        let object = *self.numbers.entry(hash(&logged.object)).or_insert(next);
        self.trace.objects += u32::from(object == next);
        let first_s = *self.first_s.get_or_insert(logged.at_s);
        self.last_s = logged.at_s;
        let before = self.trace.requests.last().map_or(0, |last| last.at_us);
        let at_us = (((logged.at_s - first_s) * 1e6) as u64).max(before);
        if let Some(seconds) = logged.lifetime_s {
            let (lifetimes, place) = (&mut self.trace.lifetimes_s, object as usize);
            lifetimes.resize(lifetimes.len().max(place + 1), None);
            lifetimes[place].get_or_insert(seconds);
        }
        self.trace.requests.push(Request { object, bytes: logged.bytes.max(1), at_us });
    }

    fn end(mut self) -> Trace {
        self.trace.span_s = (self.last_s - self.first_s.unwrap_or(self.last_s)).max(0.0);
        self.trace
    }
}

/// 128 bits of FNV-1a.
fn hash(bytes: &[u8]) -> u128 {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013B;
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    bytes.iter().fold(BASIS, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> (Form, Trace) {
        let form = Form::of(text).expect("a known form");
        (form, Trace::read(form, text, 1_000).unwrap())
    }

    fn pairs(trace: &Trace) -> Vec<(u32, u64)> {
        trace.requests.iter().map(|request| (request.object, request.bytes)).collect()
    }

    #[test]
    fn each_form_is_known_and_read() {
        let squid =
            b"1066036250.603   310 192.0.2.7 TCP_MISS/200 1500 GET http://a.example/x - DIRECT/192.0.2.1 text/html\n\
            1066036251.000     1 192.0.2.7 TCP_MEM_HIT/200 1500 GET http://a.example/x - NONE/- text/html\n\
            1066036252.500     1 192.0.2.7 TCP_TUNNEL/200 99 CONNECT b.example:443 - DIRECT/- -\n\
            1066036253.603     9 192.0.2.8 TCP_MISS/404 300 GET http://a.example/y - DIRECT/192.0.2.1 text/html\n";
        let (form, trace) = read(squid);
        assert_eq!((form, pairs(&trace), trace.skipped), (Form::Squid, vec![(0, 1500), (0, 1500)], 2));
        let combined = b"192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] \"GET /a HTTP/1.0\" 200 2326 \"-\" \"Mozilla\"\n\
            192.0.2.7 - bob [10/Oct/2000:13:55:46 -0700] \"GET /b?x=1 HTTP/1.1\" 206 10\n\
            192.0.2.7 - - [10/Oct/2000:13:55:47 -0700] \"POST /a HTTP/1.0\" 200 26\n";
        let (form, trace) = read(combined);
        assert_eq!((form, pairs(&trace), trace.skipped), (Form::Combined, vec![(0, 2326), (1, 10)], 1));
        assert_eq!(trace.span_s, 10.0);
        let json = br#"{"ts": 1.5, "method": "GET", "url": "/a", "status": 200, "bytes": 7}
            {"ts": 2.5, "method": "GET", "uri": "/b", "status": "200", "size": "8"}
            {"ts": 3.5, "method": "HEAD", "uri": "/b"}"#;
        let (form, trace) = read(json);
        assert_eq!((form, pairs(&trace), trace.skipped), (Form::Json, vec![(0, 7), (1, 8)], 1));
        for columns in [&b"# time id size\n0 a 5\n1 b 6\n2 a 5\n"[..], b"0,a,5\n1,b,6\n2,a,5\n"] {
            let (form, trace) = read(columns);
            assert_eq!((form, pairs(&trace), trace.span_s), (Form::Columns, vec![(0, 5), (1, 6), (0, 5)], 2.0));
        }
    }

    #[test]
    fn a_column_of_lifetimes_decides_by_object() {
        let (form, trace) = read(b"time,id,size,ttl\n0,a,5,60\n1,b,6,\n2,a,5,99\n3,c,7,0.5\n4,d,8,soon\n");
        assert_eq!((form, pairs(&trace), trace.skipped), (Form::Columns, vec![(0, 5), (1, 6), (0, 5), (2, 7)], 1));
        assert_eq!(trace.lifetimes_s, [Some(60.0), None, Some(0.5)]);
        let (form, json) = read(
            b"{\"ts\": 1, \"url\": \"/a\", \"bytes\": 7, \"ttl\": 30}\n{\"ts\": 2, \"url\": \"/b\", \"bytes\": 7}\n",
        );
        assert_eq!((form, json.lifetimes_s), (Form::Json, vec![Some(30.0)]));
    }

    #[test]
    fn binary_traces_are_read() {
        let mut bytes = Vec::new();
        for (time, object, size) in [(1u32, 77u64, 100u32), (2, 78, 200), (5, 77, 100)] {
            bytes.extend(time.to_le_bytes());
            bytes.extend(object.to_le_bytes());
            bytes.extend(size.to_le_bytes());
            bytes.extend((-1i64).to_le_bytes());
        }
        bytes.extend([1, 2, 3]);
        let (form, trace) = read(&bytes);
        assert_eq!((form, pairs(&trace)), (Form::Oracle, vec![(0, 100), (1, 200), (0, 100)]));
        assert_eq!((trace.objects, trace.footprint_bytes(), trace.span_s), (2, 300, 4.0));
    }

    #[test]
    fn a_limit_cuts_and_nonsense_is_no_log() {
        let trace = Trace::read(Form::Columns, &b"0 a 5\n1 b 6\n2 a 5\n"[..], 2).unwrap();
        assert!(trace.cut && trace.requests.len() == 2);
        assert_eq!(Form::of(b"hello\nworld\n"), None);
        assert_eq!(Form::of(b""), None);
    }
}
