//! Reads indexes of packages that clients got, so that files can be held against the digests that they name.
//!
//! An index is read from the store once its client has it: a reader beside the client would hold back the fetch, and would be taken for
//! somebody who follows it. It is understood on a thread that serves nobody (decision 050).

use super::deliver::{AnswerSource, Ended};
use super::stream::ClientStream;
use crate::clock;
use crate::env::Env;
use crate::package_index::{INDEX_BYTES_MAX, IndexFormat, IndexId, Learning, StoredIndex, config_url};
use crate::rules::Ask;
use bytes::Bytes;
use larder_cache::cache::Hit;
use larder_cache::entry::PinnedEntry;
use larder_cache::head::StoredHead;
use larder_wire::{RequestHead, Url};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

/// A request for an index.
pub(super) struct Lesson {
    url: Url,
    format: IndexFormat,
    client: IpAddr,
    /// The stored index that answers it.
    index: Option<(PinnedEntry, Arc<StoredHead>)>,
}

impl Lesson {
    /// `None` where no rule says that this is an index, and for a browser: a page may make it ask for anything.
    pub(super) fn of<S: ClientStream>(stream: &S, request: &RequestHead, ask: &Ask) -> Option<Box<Lesson>> {
        let by_rule = ask.by_rule.as_ref().filter(|_| !ask.route.is_to_destination())?;
        let (format, _) = by_rule.index.as_ref()?;
        let client = stream.peer().address.ip();
        // A part names a part of the files.
        let is_for_whole = !request.fields.contains("Range");
        (!is_of_browser(request) && is_for_whole)
            .then(|| Box::new(Lesson { url: ask.url.clone(), format: *format, client, index: None }))
    }

    /// Notes the answer before it is delivered.
    pub(super) fn answered_by(&mut self, answer: &AnswerSource) {
        if let AnswerSource::Entry { reader, stored, .. } = answer
            && stored.terms.is_some()
            && stored.head.status == 200
        {
            self.index = Some((reader.entry().clone(), Arc::clone(stored)));
        }
    }

    /// Begins to read the index, now that its client has it, unless the client was given the same of late.
    pub(super) fn begin(mut self, env: &Rc<Env>, ended: Ended) {
        let Some((entry, stored)) = self.index.take().filter(|_| ended == Ended::Whole) else { return };
        let (indexes, now) = (&env.common.index_digests, clock::instant());
        // One entry may be renewed, and another one may come to lie in its place.
        let state = (Arc::as_ptr(&entry) as usize, stored.received, stored.head.fields.get("ETag"));
        let id = indexes.id(&self.url, state);
        let Some(learning) = indexes.begin((id, &self.url), (self.format, self.client), now) else { return };
        let Some(hit) = env.common.cache.open(&entry) else { return };
        tokio::task::spawn_local(learn(Rc::clone(env), self, (id, learning), hit));
    }
}

/// Whether a page may have made its browser send this.
pub(super) fn is_of_browser(request: &RequestHead) -> bool {
    let is_of_browser = |name: &str| {
        let start = name.get(..4).unwrap_or_default();
        start.eq_ignore_ascii_case("Sec-") || ["Origin", "Referer"].iter().any(|it| name.eq_ignore_ascii_case(it))
    };
    request.fields.iter().any(|(name, _)| is_of_browser(name))
}

async fn learn(env: Rc<Env>, lesson: Lesson, (id, mut learning): (IndexId, Learning), mut hit: Hit) {
    let Some(body) = collect(&mut hit, &mut learning).await else { return };
    let (indexes, now) = (Arc::clone(&env.common.index_digests), clock::instant());
    let template = match config_url(lesson.format, &lesson.url) {
        None => None,
        Some(config) => match indexes.template(&config, lesson.client, now).await {
            // It says nothing to anybody until its client gets these settings.
            None => return,
            template => template,
        },
    };
    let index = index_of(lesson, &hit.stored, body, template);
    drop(hit);
    let Some(turn) = learning.turn().await else { return };
    let url = index.url.clone();
    let read = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        indexes.learn(id, index, learning, now)
    });
    match read.await {
        Ok(Ok(())) => env.tally.indexes_read.add(1),
        Ok(Err(why)) => {
            env.tally.indexes_unread.add(1);
            tracing::debug!(%url, ?why, "an index of packages was not read");
        }
        Err(_) => env.tally.panics.add(1),
    }
}

fn index_of(lesson: Lesson, stored: &StoredHead, body: Vec<Bytes>, template: Option<String>) -> StoredIndex {
    let field = |name: &str| stored.head.fields.get(name).map(<[u8]>::to_vec);
    let (media_type, coding) = (field("Content-Type"), field("Content-Encoding"));
    StoredIndex { format: lesson.format, url: lesson.url, media_type, coding, body, template }
}

/// The whole body; `None` where it does not come, or is too long.
async fn collect(hit: &mut Hit, learning: &mut Learning) -> Option<Vec<Bytes>> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let read = hit.reader.read(at..at + READ_BYTES, &mut body).await.ok()?;
        if read == 0 {
            return Some(body);
        }
        at += read;
        if at > INDEX_BYTES_MAX as u64 || !learning.holds(usize::try_from(read).ok()?) {
            return None;
        }
    }
}

/// Bytes that are asked for at once.
const READ_BYTES: u64 = 256 * 1024;
