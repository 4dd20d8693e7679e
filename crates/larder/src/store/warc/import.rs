//! Imports the records of an archive as stored responses.

use super::records::{Head, Kind, Records};
use super::{Counts, names_credentials};
use crate::clock;
use bytes::Bytes;
use larder_cache::head::StoredHead;
use larder_cache::policy::{self, Storable, Times};
use larder_cache::store::{HeadToStore, INLINE_BYTES_MAX, Put, Store};
use larder_wire::credential::is_credential;
use larder_wire::parse::{self, HeadLimits, Parsed};
use larder_wire::{Fields, Method, RequestHead, ResponseHead, Url, hop};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// An import under way.
pub(super) struct Import<'a> {
    pub(super) store: &'a Arc<Store>,
    pub(super) settings: &'a policy::Settings,
    pub(super) counts: Counts,
    /// The last requests whose responses may follow.
    requests: VecDeque<Request>,
    /// A response whose request may be the next record.
    held: Option<Response>,
}

/// A request of the archive.
struct Request {
    id: Vec<u8>,
    concurrent_to: Vec<u8>,
    /// `None` where the request is not understood.
    fields: Option<Fields>,
}

/// A response of the archive, its block behind the head not read yet, or read.
struct Response {
    record: Head,
    head: ResponseHead,
    /// The body, or as much of it as came with the head.
    body: Bytes,
    body_bytes: u64,
}

/// Requests kept for responses that follow; each is at most as long as a request's head.
const REQUESTS_MAX: usize = 64;
/// The longest response that is held until the next record is read, which may be its request. A longer one needs its
/// request before it.
const HELD_BYTES_MAX: u64 = 8 << 20;
const PIECE_BYTES: usize = 256 * 1024;

/// Why a response is not stored.
enum LeftOut {
    /// It is none that may be stored, or not understood.
    Unfit,
    /// It varies by fields of a request that the archive does not hold.
    VariantUnknown,
    /// It was made for one client.
    Private,
    /// The site that it was stored for is not understood.
    SiteUnknown,
}

impl<'a> Import<'a> {
    pub(super) fn new(store: &'a Arc<Store>, settings: &'a policy::Settings) -> Import<'a> {
        Import { store, settings, counts: Counts::default(), requests: VecDeque::new(), held: None }
    }

    pub(super) fn run(&mut self, records: &mut Records<'_>) -> io::Result<()> {
        while let Some(record) = records.next_head()? {
            match record.kind {
                Kind::Request => {
                    let request = Request::read(record, records)?;
                    self.pair(request);
                }
                Kind::Response => {
                    self.settle_held()?;
                    self.respond(record, records)?;
                }
                Kind::Other => self.settle_held()?,
            }
        }
        self.settle_held()
    }

    /// A request for the response before it, or for one to come.
    fn pair(&mut self, request: Request) {
        if let Some(held) = self.held.take_if(|held| request.belongs_to(&held.record)) {
            let outcome = self.keep(held, Some(&request), None);
            // Nothing of it is read from the archive any more, so nothing can fail there.
            self.count(outcome.unwrap_or(Err(LeftOut::Unfit)));
            return;
        }
        if self.requests.len() == REQUESTS_MAX {
            self.requests.pop_front();
        }
        self.requests.push_back(request);
    }

    fn respond(&mut self, record: Head, records: &mut Records<'_>) -> io::Result<()> {
        let Some(response) = Response::read(record, records)? else {
            self.count(Err(LeftOut::Unfit));
            return Ok(());
        };
        let place = self.requests.iter().position(|request| request.belongs_to(&response.record));
        let request = place.and_then(|place| self.requests.remove(place));
        if request.is_none() && response.is_read() {
            self.held = Some(response);
            return Ok(());
        }
        let outcome = self.keep(response, request.as_ref(), Some(records))?;
        self.count(outcome);
        Ok(())
    }

    /// The record behind a response is not its request: stores the response without one.
    fn settle_held(&mut self) -> io::Result<()> {
        if let Some(held) = self.held.take() {
            let outcome = self.keep(held, None, None)?;
            self.count(outcome);
        }
        Ok(())
    }

    fn count(&mut self, outcome: Result<(), LeftOut>) {
        let counter = match outcome {
            Ok(()) => &mut self.counts.done,
            Err(LeftOut::Unfit) => &mut self.counts.left_out,
            Err(LeftOut::VariantUnknown) => &mut self.counts.variant_unknown,
            Err(LeftOut::Private) => &mut self.counts.private,
            Err(LeftOut::SiteUnknown) => &mut self.counts.site_unknown,
        };
        *counter += 1;
    }

    /// Stores a response as if it had just been fetched for that request.
    fn keep(
        &self,
        mut response: Response,
        request: Option<&Request>,
        records: Option<&mut Records<'_>>,
    ) -> io::Result<Result<(), LeftOut>> {
        let now = clock::now();
        policy::dated(&mut response.head, now);
        let (url, key) = match response.key() {
            Ok(found) => found,
            Err(why) => return Ok(Err(why)),
        };
        let asked = match response.asked(url, request) {
            Ok(asked) => asked,
            Err(why) => return Ok(Err(why)),
        };
        let times = Times { requested: now, received: now };
        let Storable::Yes(terms) = policy::storable(&asked, &response.head, times, self.settings) else {
            return Ok(Err(LeftOut::Unfit));
        };
        let mut head = policy::head_to_store(&response.head, self.settings);
        hop::strip(&mut head.fields);
        head.fields.remove("Content-Length");
        let stored_head = StoredHead::new(head, Some(terms), now);
        let stored = self.put(&response, &key, &stored_head, records)?;
        Ok(if stored { Ok(()) } else { Err(LeftOut::Unfit) })
    }

    fn put(
        &self,
        response: &Response,
        key: &[u8],
        stored_head: &StoredHead,
        records: Option<&mut Records<'_>>,
    ) -> io::Result<bool> {
        let id = self.store.new_id();
        let inline = response.body_bytes <= INLINE_BYTES_MAX as u64;
        let head = HeadToStore {
            key: Bytes::copy_from_slice(key),
            variant: stored_head.variant(),
            id,
            epoch: self.store.current_epoch(),
            length: Some(response.body_bytes),
            tags: stored_head.tags().to_vec(),
            meta: stored_head.encode(),
            body: inline.then(|| Vec::from([response.body.clone()])),
        };
        let mut stored = self.store.put_head(head).wait() == Put::Stored;
        if inline {
            return Ok(stored);
        }
        // The body is handed over in pieces that fit the queue before the disk.
        let (mut at, mut here) = (0, response.body.clone());
        let mut records = records;
        while stored && at < response.body_bytes {
            let piece = match (here.is_empty(), records.as_deref_mut()) {
                (false, _) => here.split_to(here.len().min(PIECE_BYTES)),
                (true, Some(records)) => Bytes::from(records.piece(PIECE_BYTES)?),
                (true, None) => return Ok(false),
            };
            let bytes = piece.len() as u64;
            stored = bytes > 0 && self.store.put_extent(id, key, at, Vec::from([piece])).wait() == Put::Stored;
            at += bytes;
        }
        Ok(stored)
    }
}

impl Request {
    fn read(record: Head, records: &mut Records<'_>) -> io::Result<Request> {
        let limits = HeadLimits::default();
        let block = records.piece(limits.head_bytes_max)?;
        let fields = match parse::request(&block, &limits) {
            Ok(Parsed::Complete { head, .. }) => Some(head.fields),
            _ => None,
        };
        Ok(Request { id: record.id, concurrent_to: record.concurrent_to, fields })
    }

    fn belongs_to(&self, response: &Head) -> bool {
        let same = |one: &[u8], other: &[u8]| !one.is_empty() && one == other;
        same(&self.concurrent_to, &response.id) || same(&self.id, &response.concurrent_to)
    }
}

impl Response {
    /// `None` for what is no whole response with status 200. A short one is read to its end.
    fn read(record: Head, records: &mut Records<'_>) -> io::Result<Option<Response>> {
        let limits = HeadLimits::default();
        let mut block = records.piece(limits.head_bytes_max)?;
        let Ok(Parsed::Complete { head, len: consumed }) = parse::response(&block, &limits) else { return Ok(None) };
        let body_bytes = record.length - consumed as u64;
        let declared = body_bytes.to_string();
        // A body with a transfer coding would have to be decoded first, and a truncated one would be stored as the
        // whole.
        let whole =
            !record.is_truncated && head.fields.members("Content-Length").all(|length| length == declared.as_bytes());
        if head.fields.contains("Transfer-Encoding") || head.status != 200 || !whole {
            return Ok(None);
        }
        if record.length <= HELD_BYTES_MAX {
            let rest = record.length - block.len() as u64;
            block.extend_from_slice(&records.piece(rest as usize)?);
        }
        let body = Bytes::from(block).slice(consumed..);
        Ok(Some(Response { record, head, body, body_bytes }))
    }

    fn is_read(&self) -> bool {
        self.body.len() as u64 == self.body_bytes
    }

    /// The URL, and the key under which it is looked for: of the site, where the record names one.
    fn key(&self) -> Result<(Url, Vec<u8>), LeftOut> {
        let url = Url::parse(&self.record.target).ok_or(LeftOut::Unfit)?;
        let mut key = Vec::new();
        if !self.record.site.is_empty() {
            let site = std::str::from_utf8(&self.record.site).ok().and_then(Url::parse);
            site.ok_or(LeftOut::SiteUnknown)?.key_text(&mut key);
            if key != self.record.site {
                return Err(LeftOut::SiteUnknown);
            }
            key.push(b' ');
        }
        url.key_text(&mut key);
        Ok((url, key))
    }

    /// The request that it answers: a plain GET with the fields that `Vary` names.
    fn asked(&self, url: Url, request: Option<&Request>) -> Result<RequestHead, LeftOut> {
        let vary: Vec<&[u8]> = self.head.fields.members("Vary").collect();
        if names_credentials(&vary) {
            return Err(LeftOut::Private);
        }
        let mut fields = Fields::new();
        match request {
            None if !vary.is_empty() => return Err(LeftOut::VariantUnknown),
            None => {}
            Some(request) => {
                let asked = request.fields.as_ref().ok_or(LeftOut::Unfit)?;
                if asked.iter().any(|(name, _)| is_credential(name)) {
                    return Err(LeftOut::Private);
                }
                let named = |name: &str| vary.iter().any(|member| member.eq_ignore_ascii_case(name.as_bytes()));
                let chosen = asked.iter().filter(|(name, _)| named(name));
                chosen.for_each(|(name, value)| fields.push(name, value));
            }
        }
        let target = larder_wire::Target::Absolute(url);
        Ok(RequestHead::new(Method::Get, target, larder_wire::Version::Http11, fields))
    }
}
