//! A POST that only asks something: its body is read, and becomes a part of its key (decision 043).

use super::deliver::{self, AnswerSource};
use super::stream::{BodyEnd, ClientStream};
use crate::clock;
use crate::fetch::{self, Posted};
use crate::git;
use crate::request_body::{Piece, RequestBody};
use crate::rules::Ask;
use aws_lc_rs::digest::{Context, SHA256};
use bytes::{Bytes, BytesMut};
use larder_cache::cache::Cache;
use larder_cache::policy::{self, Asked};
use larder_wire::{RequestHead, Url};
use std::fmt::Write;
use std::rc::Rc;

/// Whether this request, with a body of this length, is one whose answer may be stored although it is a POST.
pub fn is_question<S: ClientStream>(stream: &S, request: &RequestHead, ask: &Ask, body: RequestBody) -> bool {
    let is_short = match body {
        RequestBody::None => false,
        RequestBody::Known(length) => length <= git::BODY_BYTES_MAX,
        RequestBody::Unknown => true,
    };
    let policy = fetch::policy_of(&stream.env().common, &ask.route, stream.peer().listener.run.is_some());
    is_short
        && git::is_upload_pack(request, &ask.url.path)
        && policy.git
        && deliver::is_plain(&request.fields)
        && !policy::may_say_who_asks(&request.fields)
}

/// A body that was read.
pub enum ReadBody {
    /// All of it.
    Whole(Rc<Posted>),
    /// It is longer than is kept, or has trailers: these pieces of it are here, and the rest comes.
    Begun(Vec<Piece>),
}

/// Reads the body of such a request.
pub async fn read<S: ClientStream>(stream: &mut S, request: &RequestHead) -> Result<ReadBody, AnswerSource> {
    let _ = stream.flush().await;
    let (mut pieces, mut bytes) = (Vec::new(), 0);
    loop {
        let piece =
            stream.next_body_piece().await.map_err(|end: BodyEnd| AnswerSource::Page(deliver::page_for_body(&end)))?;
        match &piece {
            Piece::Data(data) => bytes += data.len() as u64,
            Piece::End(trailers) if trailers.is_empty() => break,
            Piece::End(_) => bytes = u64::MAX,
        }
        pieces.push(piece);
        if bytes > git::BODY_BYTES_MAX || pieces.len() > PIECES_MAX {
            return Ok(ReadBody::Begun(pieces));
        }
    }
    let body = joined(&pieces);
    let decoded = git::decoded(request.fields.get("Content-Encoding"), &body);
    let question = decoded.and_then(|decoded| git::question(&decoded));
    Ok(ReadBody::Whole(Rc::new(Posted { body, question })))
}

/// A body that comes in more pieces than this comes in very small ones.
const PIECES_MAX: usize = 4096;

fn joined(pieces: &[Piece]) -> Bytes {
    let mut body = BytesMut::new();
    for piece in pieces {
        if let Piece::Data(data) = piece {
            body.extend_from_slice(data);
        }
    }
    body.freeze()
}

/// The key of an answer to this body. No URL has a `#`, so it is nobody's who asks for the URL.
pub fn key(ask: &Ask, cache: &Cache, request: &RequestHead, posted: &Posted) -> Vec<u8> {
    let mut key = Vec::with_capacity(256);
    ask.key(cache, &mut key);
    let mut hash = Context::new(&SHA256);
    // A length before each part: no two lists of parts read the same.
    for part in [request.fields.get("Content-Encoding").unwrap_or_default(), &posted.body] {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let mut text = String::from("#POST-sha256=");
    hash.finish().as_ref().iter().for_each(|byte| {
        let _ = write!(text, "{byte:02x}");
    });
    key.extend_from_slice(text.as_bytes());
    key
}

/// The demands of such a request. Objects that are stored are used only where the origin was asked for the refs of their repository of
/// late, by anybody without credentials: an origin that has closed the repository says so there.
pub fn asked<S: ClientStream>(stream: &S, request: &RequestHead, ask: &Ask, posted: &Posted) -> Asked {
    // Git says `Pragma: no-cache` whatever it asks for.
    let asked = Asked { no_cache: false, ..Asked::of(request) };
    match posted.question {
        Some(git::Question::Pack) if !refs_are_known(stream, request, ask) => Asked { no_cache: true, ..asked },
        _ => asked,
    }
}

/// Seconds for which an answer with the refs of a repository speaks for its objects: git asks for both within a moment.
const REFS_SECONDS_MAX: u64 = 300;

fn refs_are_known<S: ClientStream>(stream: &S, request: &RequestHead, ask: &Ask) -> bool {
    let env = stream.env();
    let cache = &env.common.cache;
    let Some(path) = git::refs_path(&ask.url.path) else { return false };
    let refs = Url { path: path.into(), ..ask.url.clone() };
    let mut key = Vec::new();
    ask.of_url(&refs).key(cache, &mut key);
    let stored = cache.stored(&key, request);
    let terms = stored.as_ref().and_then(|(_, head)| head.terms.as_ref());
    let now = env.stamp_at(clock::instant());
    terms.is_some_and(|terms| !terms.is_from_the_future(now) && now.since(terms.received) <= REFS_SECONDS_MAX)
}
