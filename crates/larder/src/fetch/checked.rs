//! Holds a body against the digests that were named for it, on its way from the origin into the entry (decision 042).
//!
//! Readers get the body as it comes, less its last piece, which waits until the digest of the whole is known. So no client ever
//! has a complete body with a wrong digest, and none waits for more than one piece.

use crate::clock;
use crate::digest::{self, BodyHash, DigestSource, ExpectedDigest, Mismatch};
use crate::env::Env;
use crate::git::{AnswerEnd, GitAnswer};
use crate::record::Notes;
use bytes::Bytes;
use larder_cache::entry::{Failure, FailureKind, PinnedEntry};
use larder_wire::{Method, ResponseHead, Url};
use std::net::IpAddr;
use std::ops::Range;
use std::rc::Rc;

/// The check of one body.
pub(super) struct Checked {
    env: Rc<Env>,
    notes: Rc<Notes>,
    test: Test,
    /// Bytes from the start on that the hash has taken.
    hashed: u64,
    /// The length of the whole, where it is known.
    length: Option<u64>,
    /// The last piece that came, of a body whose length is not known.
    held: Option<Bytes>,
    /// The digest was compared.
    is_settled: bool,
    /// It is put together of parts.
    is_of_parts: bool,
    /// The client for whom it is fetched reads it.
    is_for_reader: bool,
    /// The body is good for its readers, and for nobody else.
    is_for_readers: bool,
}

/// A file as a client asked for it: who, and where.
pub(super) struct AskedFile<'a> {
    pub(super) url: &'a Url,
    pub(super) client: IpAddr,
    /// The client waits for it.
    pub(super) is_for_reader: bool,
}

impl AskedFile<'_> {
    /// The digest that an index names for it which this client got, or the URL from which this client was sent on to it.
    fn by_index(&self, env: &Env, head: &ResponseHead) -> Option<ExpectedDigest> {
        let indexes = &env.common.index_digests;
        indexes.digest_of(self.url, self.client, clock::instant()).filter(|_| digest::is_plain(head))
    }
}

/// The property that a body must have.
enum Test {
    Digest(BodyHash),
    Git(Box<GitAnswer>),
}

impl Test {
    fn anew(&self) -> Test {
        match self {
            Test::Digest(hash) => Test::Digest(hash.anew()),
            Test::Git(_) => Test::Git(Box::default()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Test::Digest(hash) => hash.update(bytes),
            Test::Git(answer) => answer.update(bytes),
        }
    }
}

/// Why a body is not used.
#[derive(Debug)]
pub(super) enum BadBody {
    /// It has another digest than was named.
    Wrong(Mismatch),
    /// It holds a pack of git with another checksum than the pack names.
    DamagedPack,
    /// It was put together of parts, and some of them can't be read any more.
    Unread,
}

impl BadBody {
    /// The status, word and detail that a client and the record get.
    pub(super) fn failure(&self) -> Failure {
        let (word, detail) = match self {
            BadBody::Wrong(mismatch) => ("digest", mismatch.to_string()),
            BadBody::DamagedPack => ("digest", "the checksum of the pack is not the one at its end".to_owned()),
            BadBody::Unread => {
                ("unverified", "parts of the body left the store before its digest was known".to_owned())
            }
        };
        Failure { status: 502, word, detail: detail.into(), kind: FailureKind::Answer }
    }
}

impl Checked {
    /// The check of the body after this head; `None` where no digest is named. `declared` is its length.
    pub(super) fn of_answer(
        (env, notes): (&Rc<Env>, &Rc<Notes>),
        (method, asked): (&Method, &AskedFile<'_>),
        head: &ResponseHead,
        declared: Option<u64>,
    ) -> Option<Box<Checked>> {
        let by_index = if head.status == 200 && *method == Method::Get { asked.by_index(env, head) } else { None };
        let named = digest::of_response(method, &asked.url.path, head);
        let hash = BodyHash::of(named.into_iter().chain(by_index))?;
        let mut checked = Checked::new((env, notes), Test::Digest(hash), declared);
        checked.is_for_reader = asked.is_for_reader;
        Some(checked)
    }

    /// The check of an answer of git's.
    pub(super) fn of_git(env_and_notes: (&Rc<Env>, &Rc<Notes>), declared: Option<u64>) -> Box<Checked> {
        Checked::new(env_and_notes, Test::Git(Box::default()), declared)
    }

    /// The check of a body that is put together of parts; `head` is the one of the whole, with `Content-Digest` only where a 200 named it.
    pub(super) fn of_parts(
        (env, notes): (&Rc<Env>, &Rc<Notes>),
        asked: &AskedFile<'_>,
        head: &ResponseHead,
        length: Option<u64>,
    ) -> Option<Box<Checked>> {
        let named = digest::of_response(&Method::Get, &asked.url.path, head);
        let hash = BodyHash::of(named.into_iter().chain(asked.by_index(env, head)))?;
        let mut checked = Checked::new((env, notes), Test::Digest(hash), Some(length?));
        (checked.is_of_parts, checked.is_for_reader) = (true, asked.is_for_reader);
        Some(checked)
    }

    fn new((env, notes): (&Rc<Env>, &Rc<Notes>), test: Test, length: Option<u64>) -> Box<Checked> {
        let (env, notes) = (Rc::clone(env), Rc::clone(notes));
        Box::new(Checked {
            env,
            notes,
            test,
            hashed: 0,
            length,
            held: None,
            is_settled: false,
            is_of_parts: false,
            is_for_reader: true,
            is_for_readers: false,
        })
    }

    /// Compares the digest of an empty body, of which no piece can be held back.
    pub(super) fn of_empty(&mut self, entry: &PinnedEntry) -> Result<(), BadBody> {
        if self.length == Some(0) { self.settle(entry, self.test.anew()) } else { Ok(()) }
    }

    /// Takes the next piece of the body, which begins at `at`; gives what may go on to the readers.
    pub(super) async fn piece(&mut self, entry: &PinnedEntry, at: u64, piece: Bytes) -> Result<Option<Bytes>, BadBody> {
        let range = at..at + piece.len() as u64;
        if self.hashed == at {
            self.test.update(&piece);
            self.hashed = range.end;
        }
        match self.length {
            None => return Ok(self.held.replace(piece)),
            Some(length) if self.hashed == length => self.settle_stream(entry)?,
            Some(length) if entry.lacks_only(&range) => self.read_back(entry, length, (range, &piece)).await?,
            Some(_) => {}
        }
        Ok(Some(piece))
    }

    /// Gives the piece that was held back, now that the body is over.
    pub(super) fn last_piece(&mut self, entry: &PinnedEntry) -> Result<Option<Bytes>, BadBody> {
        if self.length.is_none() {
            self.settle_stream(entry)?;
        }
        Ok(self.held.take())
    }

    /// Two fetches that bring the last missing parts in the same moment each take the part of the other one for missing: such a
    /// body is compared when they are over.
    pub(super) async fn afterwards(&mut self, entry: &PinnedEntry) -> Result<(), BadBody> {
        match self.length.filter(|length| !self.is_settled && entry.lacks_only(&(*length..*length))) {
            Some(length) => self.read_back(entry, length, (length..length, &Bytes::new())).await,
            None => Ok(()),
        }
    }

    fn settle_stream(&mut self, entry: &PinnedEntry) -> Result<(), BadBody> {
        if self.is_settled {
            return Ok(());
        }
        let anew = self.test.anew();
        let test = std::mem::replace(&mut self.test, anew);
        self.settle(entry, test)
    }

    /// Reads the body from its start: all that is here, and the piece that is about to come.
    async fn read_back(&mut self, entry: &PinnedEntry, length: u64, last: (Range<u64>, &Bytes)) -> Result<(), BadBody> {
        let mut hit = self.env.common.cache.open(entry).ok_or(BadBody::Unread)?;
        let (mut test, mut at, mut pieces) = (self.test.anew(), 0, Vec::new());
        let (range, piece) = last;
        while at < length {
            if range.contains(&at) {
                test.update(piece);
                at = range.end;
                continue;
            }
            let end = if at < range.start { range.start } else { length };
            let part = at..end.min(at + READ_BYTES);
            // Bytes that have left the store may be waited for in vain: this very fetch might be the one that brings them.
            if !hit.reader.is_ready(&part) {
                return Err(BadBody::Unread);
            }
            match hit.reader.read(part, &mut pieces).await {
                Ok(read) if read > 0 => at += read,
                Ok(_) | Err(_) => return Err(BadBody::Unread),
            }
            pieces.drain(..).for_each(|piece: Bytes| test.update(&piece));
            tokio::task::yield_now().await;
        }
        // It counts as a reader.
        drop(hit);
        self.settle(entry, test)
    }

    fn settle(&mut self, entry: &PinnedEntry, test: Test) -> Result<(), BadBody> {
        self.is_settled = true;
        let result = match test {
            Test::Digest(hash) => match hash.finish() {
                // One client heard of it. Others, to whom it says nothing, get what the origin sent.
                Err(wrong) if wrong.named_by().is_of_one_client() && self.is_read_by_others(entry) => {
                    self.env.tally.digests_wrong.add(1);
                    self.is_for_readers = true;
                    Ok(None)
                }
                finished => finished.map(Some).map_err(BadBody::Wrong),
            },
            Test::Git(answer) => match answer.finish() {
                AnswerEnd::Pack => Ok(Some(DigestSource::Pack)),
                AnswerEnd::Text => Ok(None),
                AnswerEnd::OfOne => {
                    self.is_for_readers = true;
                    Ok(None)
                }
                AnswerEnd::Damaged => Err(BadBody::DamagedPack),
            },
        };
        match &result {
            Ok(None) => {}
            Ok(source) => {
                self.env.tally.digests_matched.add(1);
                self.notes.digest.set(*source);
            }
            Err(_) => self.env.tally.digests_wrong.add(1),
        }
        result.map(|_| ())
    }

    /// Whether somebody reads the body beside the client for whom it is fetched. Before the last hole of an object is filled, the same client
    /// may have read other parts of it.
    fn is_read_by_others(&self, entry: &PinnedEntry) -> bool {
        let readers = if self.is_of_parts { entry.readers() } else { entry.readers_ever() };
        readers > usize::from(self.is_for_reader)
    }

    /// Whether only those who read the body already may have it.
    pub(super) fn is_for_readers(&self) -> bool {
        self.is_for_readers
    }
}

/// Bytes that are read back before other tasks of the worker have their turn.
const READ_BYTES: u64 = 256 * 1024;
