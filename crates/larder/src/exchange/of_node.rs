//! A request of another node of the cluster, of whose key this node is the home (decisions 119, 120). It is looked up as any other, so
//! that all nodes follow one fetch; and it is refused where an answer could be another one than the asker's own.
//!
//! A node proves each question with the secret of the cluster. It sends its own key along: where rules, sites or settings here make
//! another key of the URL, nothing is looked up, let alone stored. Nothing is asked of a further node.

use super::deliver::{self, AnswerSource, Ended, Manner};
use super::leave::LeaveOutcome;
use super::relay::key_of;
use super::stream::ClientStream;
use super::{icap, lookup, note, within_limits};
use crate::clock;
use crate::cluster::{Asked, Homes, NODE_FIELD, Question, key_hash};
use crate::env::{PeerFacts, RecordGuard};
use crate::fetch::{self, BEHIND, REFUSED};
use crate::page::Page;
use crate::record::Record;
use crate::request_body::RequestBody;
use crate::rules::{self, Ask, Verdict};
use larder_cache::head::StoredHead;
use larder_wire::target::Target;
use larder_wire::{Method, RequestHead, Url};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A question waits no longer for purges that the asker has and this node lacks. Most come within ten milliseconds.
const PURGES_WAIT_MAX: Duration = Duration::from_millis(50);

/// How often it is looked whether they have come.
const PURGES_LOOK: Duration = Duration::from_millis(2);

/// Answers a request that came to the address for nodes.
pub async fn answer<S: ClientStream>(stream: &mut S, request: RequestHead, mut record: RecordGuard) -> Ended {
    let request = Rc::new(request);
    let work = async |stream: &mut S, record: &mut Record| {
        LeaveOutcome::Answered(answer_within_limits(stream, &request, record).await)
    };
    let outcome = within_limits(stream, &request, &mut record, work).await;
    record.finish();
    match outcome {
        LeaveOutcome::Answered(ended) => ended,
        LeaveOutcome::Tunnel { .. } | LeaveOutcome::Intercept(..) => Ended::Broken,
    }
}

async fn answer_within_limits<S: ClientStream>(
    stream: &mut S,
    request: &Rc<RequestHead>,
    record: &mut Record,
) -> Ended {
    let common = Arc::clone(&stream.env().common);
    let Some(homes) = common.cluster.as_ref().and_then(|cluster| cluster.homes.as_ref()) else {
        return deliver::deliver_page(stream, request, &stranger("keys have no homes here"), record);
    };
    let (url, proof) = match admit(stream, homes, request).await {
        Ok(admitted) => admitted,
        Err(page) => return deliver::deliver_page(stream, request, &page, record),
    };
    let (ask, request) = match judge(stream, request, &url, record).await {
        Ok(allowed) => allowed,
        Err(why) => return deliver::deliver_page(stream, request, &refusal(homes, why), record),
    };
    note(stream.env(), &ask, record);
    let key = key_of(&ask, &common.cache);
    let answer = lookup::look_up(stream, &request, ask, Some(key), RequestBody::None, &mut None, record).await;
    let (answer, given) = match answer {
        AnswerSource::Page(page) => {
            // The asker goes to the origin itself: no error of this node is one of its client.
            add(&homes.counts.served_refused);
            (AnswerSource::Page(page.with(NODE_FIELD, REFUSED)), Vec::new())
        }
        answer => {
            add(&homes.counts.served);
            (proved(answer, homes.key.answer(&proof)), vec![NODE_FIELD.to_owned()])
        }
    };
    let manner = Manner { given: &given, limits: None };
    deliver::deliver(stream, &request, (answer, manner), &mut None, record).await
}

/// Whether the request is a node's, and may be answered now; gives its URL and its proof.
async fn admit<S: ClientStream>(stream: &S, homes: &Homes, request: &RequestHead) -> Result<(Url, String), Page> {
    let url = match &request.target {
        Target::Absolute(url) if request.method == Method::Get => url,
        _ => return Err(counted_stranger(homes, "it is no GET of a whole URL")),
    };
    let target = url.to_string();
    let asked = Asked { target: &target, fields: &request.fields };
    let now = clock::wall().as_secs();
    let (question, proof) = match homes.key.check(asked, &homes.name, now) {
        Ok(proved) => proved,
        Err(why) => return Err(counted_stranger(homes, why.as_str())),
    };
    let (url, proof) = (url.clone(), proof.to_owned());
    let is_shut = |stream: &S| {
        let env = stream.env();
        env.common.cache.gate().is_shut(env.stamp_at(clock::instant()))
    };
    // By the clock: a process that was stopped finds its gate shut before the thread of the cluster does.
    if is_shut(stream) || !has_purges(stream, homes, &question).await || is_shut(stream) {
        add(&homes.counts.served_behind);
        let what = "Purges that are in force at the node that asks may not be known here.";
        return Err(Page::new(504, "behind", what, "Ask the origin.").with(NODE_FIELD, BEHIND));
    }
    Ok((url, proof))
}

/// Waits for the purges that the asker has, for a short while.
async fn has_purges<S: ClientStream>(stream: &S, homes: &Homes, question: &Question<'_>) -> bool {
    let Some(cluster) = &stream.env().common.cluster else { return false };
    let began = clock::instant();
    loop {
        // The number is counted before there is a table of its stream, and the table is taken away before numbers get another meaning.
        let is_same_stream = || homes.table().is_some_and(|table| *table.stream == *question.stream);
        if !is_same_stream() {
            return false;
        }
        if cluster.counts.applied.load(Ordering::SeqCst) >= question.applied {
            return is_same_stream();
        }
        if clock::instant().saturating_duration_since(began) >= PURGES_WAIT_MAX {
            return false;
        }
        tokio::time::sleep(PURGES_LOOK).await;
    }
}

/// Judges the request as one that came on a connection of its URL's scheme, and compares the key with the asker's.
async fn judge<S: ClientStream>(
    stream: &S,
    request: &Rc<RequestHead>,
    url: &Url,
    record: &Record,
) -> Result<(Ask, Rc<RequestHead>), &'static str> {
    let named =
        request.fields.text(NODE_FIELD).and_then(|words| words.split(' ').nth(6)).unwrap_or_default().to_owned();
    let mut bare = (**request).clone();
    bare.fields.remove(NODE_FIELD);
    let bare = Rc::new(bare);
    let peer = PeerFacts { scheme: url.scheme, ..stream.peer().clone() };
    let verdict = rules::judge_and_wait(stream.env(), &peer, (&bare, record.number), None).await;
    let Verdict::Allow(ask) = verdict else { return Err("the rules here do not allow it") };
    let is_judged =
        icap::is_asked(stream.env(), &bare.method, &ask) || fetch::is_judged(stream.env(), &bare.method, &ask);
    if !ask.is_same_on_all_nodes() || is_judged {
        return Err("rules, hooks or services here have more to do with it");
    }
    let mut key = Vec::with_capacity(128);
    ask.key_at_first(&mut key);
    if key_hash(&key) != named {
        return Err("it has another key here: sites, rules or settings of the nodes differ");
    }
    Ok((ask, bare))
}

/// The answer with the proof that it is one to this question.
fn proved(answer: AnswerSource, value: String) -> AnswerSource {
    let AnswerSource::Entry { reader, stored, outcome, verbatim, refill } = answer else { return answer };
    let mut own = deliver::head_for_client(&stored, outcome).clone();
    own.fields.set(NODE_FIELD, value);
    let own = StoredHead::new(own, stored.terms.clone(), stored.received).with_reason(stored.not_stored());
    AnswerSource::Entry { reader, stored: Arc::new(own), outcome, verbatim, refill }
}

fn refusal(homes: &Homes, why: &'static str) -> Page {
    add(&homes.counts.served_refused);
    Page::new(403, "node-refused", format!("This node does not answer for the asker: {why}."), "Ask the origin.")
        .with(NODE_FIELD, REFUSED)
}

fn counted_stranger(homes: &Homes, why: &'static str) -> Page {
    if homes.counts.strangers.fetch_add(1, Ordering::Relaxed).is_power_of_two() {
        tracing::warn!("a request at `cluster.listen` is refused: {why} (docs/cluster.md)");
    }
    stranger(why)
}

/// All that somebody without the secret gets.
fn stranger(why: &'static str) -> Page {
    tracing::debug!("refused at `cluster.listen`: {why}");
    let what = "This address is for the nodes of a cluster.";
    Page::new(403, "stranger", what, "Ask at an address for clients.").closing()
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}
