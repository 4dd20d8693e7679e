//! Archives of stored responses in WARC 1.1 (ISO 28500): one `response` record each, with the whole HTTP message, as
//! other tools read it.

use super::Object;
use crate::clock;
use larder_cache::policy::{self, Storable, Times};
use larder_cache::store::rules::Verdict;
use larder_cache::store::{HeadToStore, INLINE_BYTES_MAX, Put, Store, meta};
use larder_cache::{entry::Kept, key::Key};
use larder_wire::date::Stamp;
use larder_wire::parse::{self, HeadLimits, Parsed};
use larder_wire::{Method, RequestHead, Url, encode, hop};
use std::io::{self, BufRead, Read, Write};
use std::ops::ControlFlow;
use std::sync::Arc;

/// What became of an export or an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Responses that were taken over.
    pub done: u64,
    /// Those that were left out: not whole, stale by a purge, not cachable, not understood.
    pub left_out: u64,
}

/// Writes every whole response.
pub fn export(store: &Arc<Store>, out: &mut dyn Write) -> io::Result<Counts> {
    let mut counts = Counts::default();
    let mut result = Ok(());
    store.for_each_head(|head| {
        let written = match Object::of(head).filter(|_| head.verdict == Verdict::Valid) {
            Some(object) => export_one(store, &object, out),
            None => Ok(false),
        };
        match written {
            Ok(true) => counts.done += 1,
            Ok(false) => counts.left_out += 1,
            Err(error) => {
                result = Err(error);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    });
    result.map(|()| counts)
}

fn export_one(store: &Arc<Store>, object: &Object, out: &mut dyn Write) -> io::Result<bool> {
    // A look first: a record says its length before its bytes.
    let mut length = 0;
    let whole = object.body(store, |piece| {
        length += piece.len() as u64;
        Ok(())
    })?;
    if !whole {
        return Ok(false);
    }
    let mut head = object.kept.head.clone();
    head.fields.set("Content-Length", length.to_string());
    let mut message = Vec::new();
    encode::response_head(&mut message, &head);
    write!(
        out,
        "WARC/1.1\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{}>\r\nWARC-Date: {}\r\nWARC-Target-URI: {}\r\nContent-Type: application/http;msgtype=response\r\nContent-Length: {}\r\n\r\n",
        uuid(object.head.id.0, object.kept.received.0),
        timestamp(object.kept.received),
        object.url(),
        message.len() as u64 + length
    )?;
    out.write_all(&message)?;
    object.body(store, |piece| out.write_all(piece))?;
    out.write_all(b"\r\n\r\n")?;
    Ok(true)
}

/// A name that is the same for the same stored response (version 8: of one's own making, RFC 9562).
fn uuid(id: u64, received: u64) -> String {
    let low = received.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (a, b, c) = (id >> 28 & 0xffff_ffff, id >> 12 & 0xffff, id & 0xfff);
    format!("{a:08x}-{b:04x}-8{c:03x}-{:04x}-{:012x}", 0x8000 | low >> 50, low & 0xffff_ffff_ffff)
}

/// `2026-11-21T08:00:00Z`, from the days since 1970 (by the algorithm for the proleptic Gregorian calendar).
fn timestamp(stamp: Stamp) -> String {
    let (days, seconds) = ((stamp.0 / 86_400) as i64, stamp.0 % 86_400);
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Reads `response` records and stores those that may be stored, as if they had just been fetched by a plain GET; their
/// own `Date` says how old they are.
pub fn import(store: &Arc<Store>, settings: &policy::Settings, from: &mut dyn BufRead) -> io::Result<Counts> {
    let mut counts = Counts::default();
    while let Some(record) = Record::read(from)? {
        match import_one(store, settings, &record) {
            true => counts.done += 1,
            false => counts.left_out += 1,
        }
    }
    store.sync().wait();
    Ok(counts)
}

struct Record {
    target: String,
    is_response: bool,
    is_truncated: bool,
    content: Vec<u8>,
}

/// Longer records are no single responses of a cache.
const RECORD_BYTES_MAX: u64 = 4 << 30;

impl Record {
    fn read(from: &mut dyn BufRead) -> io::Result<Option<Record>> {
        let mut first = String::new();
        loop {
            first.clear();
            if from.read_line(&mut first)? == 0 {
                return Ok(None);
            }
            if !first.trim().is_empty() {
                break;
            }
        }
        let wrong =
            |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("{what}: is it a WARC file, unpacked?"));
        if !first.starts_with("WARC/1.") {
            return Err(wrong("a record does not begin with WARC/1.x"));
        }
        let mut record = Record { target: String::new(), is_response: false, is_truncated: false, content: Vec::new() };
        let mut length = None;
        loop {
            let mut line = String::new();
            if from.read_line(&mut line)? == 0 {
                return Err(wrong("a record's head is cut off"));
            }
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| wrong("a field without a colon"))?;
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "warc-type" => record.is_response = value == "response",
                "warc-truncated" => record.is_truncated = true,
                "warc-target-uri" => record.target = value.trim_matches(['<', '>']).to_owned(),
                "content-length" => length = value.parse().ok().filter(|&length: &u64| length <= RECORD_BYTES_MAX),
                _ => {}
            }
        }
        let length = length.ok_or_else(|| wrong("a record without a usable Content-Length"))?;
        if from.take(length).read_to_end(&mut record.content)? as u64 != length {
            return Err(wrong("the last record is cut off"));
        }
        Ok(Some(record))
    }
}

const PIECE_BYTES: usize = 256 * 1024;

fn import_one(store: &Arc<Store>, settings: &policy::Settings, record: &Record) -> bool {
    let Some(url) = Url::parse(&record.target).filter(|_| record.is_response) else { return false };
    let limits = HeadLimits::default();
    let Ok(Parsed::Complete { mut head, len: consumed }) = parse::response(&record.content, &limits) else {
        return false;
    };
    // A coding of the transfer would have to be undone first; and what is cut off would be stored as the whole.
    let length = (record.content.len() - consumed).to_string();
    let whole =
        !record.is_truncated && head.fields.members("Content-Length").all(|declared| declared == length.as_bytes());
    if head.fields.contains("Transfer-Encoding") || head.status != 200 || !whole {
        return false;
    }
    let body = bytes::Bytes::copy_from_slice(&record.content[consumed..]);
    let now = clock::now();
    policy::dated(&mut head, now);
    let target = larder_wire::Target::Absolute(url.clone());
    let request = RequestHead::new(Method::Get, target, larder_wire::Version::Http11, Default::default());
    let times = Times { requested: now, received: now };
    let Storable::Yes(terms) = policy::storable(&request, &head, times, settings) else { return false };
    let mut kept_head = policy::kept_head(&head, settings);
    hop::strip(&mut kept_head.fields);
    kept_head.fields.remove("Content-Length");
    let kept = Kept::new(kept_head, Some(terms), now);
    let key = Key::of_url(&url);
    let (id, length) = (store.new_id(), body.len() as u64);
    let inline = body.len() <= INLINE_BYTES_MAX;
    let head = HeadToStore {
        key: bytes::Bytes::copy_from_slice(key.text()),
        variant: kept.variant(),
        id,
        epoch: store.current_epoch(),
        length: Some(length),
        tags: kept.tags().to_vec(),
        meta: meta::encode(&kept),
        body: inline.then(|| Vec::from([body.clone()])),
    };
    let mut stored = store.put_head(head).wait() == Put::Stored;
    // In pieces that the queue before the disk takes.
    let mut at = 0;
    while !inline && stored && at < body.len() {
        let end = body.len().min(at + PIECE_BYTES);
        let piece = Vec::from([body.slice(at..end)]);
        stored = store.put_extent(id, key.text(), at as u64, piece).wait() == Put::Stored;
        at = end;
    }
    stored
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_cache::store::{Admission, Settings};

    #[test]
    fn times_are_written_as_the_standard_wants() {
        assert_eq!(timestamp(Stamp(0)), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(Stamp(951_782_400)), "2000-02-29T00:00:00Z");
        assert_eq!(timestamp(Stamp(1_795_248_896)), "2026-11-21T08:14:56Z");
    }

    #[test]
    fn what_is_no_archive_is_refused_with_a_remedy() {
        let read = |text: &str| Record::read(&mut text.as_bytes()).map(|record| record.is_some());
        assert_eq!(read("").ok(), Some(false));
        for wrong in [
            "GIF89a\n",
            "WARC/1.0\r\nno colon\r\n\r\n",
            "WARC/1.0\r\nContent-Length: 9\r\n\r\nshort",
            "WARC/1.0\r\n\r\n",
        ] {
            let error = read(wrong).unwrap_err();
            assert!(error.to_string().contains("WARC"), "{wrong}: {error}");
        }
    }

    #[test]
    fn no_two_stored_responses_have_one_name() {
        let names: std::collections::HashSet<String> = (0..0x2_0000).map(|id| uuid(id, 1_800_000_000)).collect();
        assert_eq!(names.len(), 0x2_0000);
    }

    #[test]
    fn what_was_cut_off_is_not_stored_as_whole() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            disk_bytes: 64_000_000,
            free_bytes_min: 0,
            index_bytes_max: 1 << 20,
            write_block_bytes: 256 << 10,
            queue_bytes_max: 4 << 20,
            sync_seconds: 1,
            readers: 1,
            admission: Admission::All,
        };
        let store = Store::open(&[folder.path().to_path_buf()], &settings).unwrap();
        for (more, length, done) in [
            ("", "Content-Length: 4\r\n", 1),
            ("", "", 1),
            ("", "Content-Length: 5\r\n", 0),
            ("", "Content-Length: 3\r\n", 0),
            ("", "Content-Length: 4\r\nContent-Length: 5\r\n", 0),
            ("WARC-Truncated: length\r\n", "", 0),
        ] {
            let message = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n{length}\r\nbody");
            let archive = format!(
                "WARC/1.1\r\nWARC-Type: response\r\nWARC-Target-URI: http://a.example/x\r\n{more}Content-Length: {}\r\n\r\n{message}\r\n\r\n",
                message.len()
            );
            let counts = import(&store, &policy::Settings::default(), &mut archive.as_bytes()).unwrap();
            assert_eq!(counts, Counts { done, left_out: 1 - done }, "{more}{length}");
        }
    }
}
