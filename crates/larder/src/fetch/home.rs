//! The home of a key is asked before the origin: the node of the cluster that fetches for all (decisions 119, 120). No answer of it is the
//! same as none: the next node is asked, then the origin.

use super::ask::OriginAnswer;
use super::{Fetch, FetchKind};
use crate::clock;
use crate::cluster::{Asked, Home, Homes, MayAsk, NODE_FIELD, Question, key_hash, place_of};
use crate::mount::REQUEST_NAME;
use crate::reach::Asker;
use crate::record::{Peer, TakenWay, WayNote};
use crate::rules::Route;
use crate::upstream::{BodySource, OriginResponse, UpstreamFault};
use bytes::Bytes;
use larder_cache::cache::Fate;
use larder_cache::policy::Times;
use larder_wire::{Fields, Method, ResponseHead, Scheme};
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::time::timeout;

/// A body of a home that is not longer is here before its head counts, so that a home that dies meanwhile breaks no answer.
const WHOLE_BYTES_MAX: u64 = 64 << 10;

/// Fields of a request that is for one client, or for less than the whole response.
const NOT_ASKED_WITH: [&str; 4] = ["Authorization", "Cookie", "Proxy-Authorization", "Range"];

/// A question about one response, as each node is asked it.
struct HomeQuestion {
    may: MayAsk,
    key: String,
    url: String,
    fields: Fields,
    is_hot: bool,
}

/// Why a node gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoAnswer {
    /// It lacks purges that are in force here.
    Behind,
    /// It has other rules, or the origin gave it no answer.
    Refused,
    /// It can't be reached, or sent nothing that is an answer of a node.
    Failed,
}

impl NoAnswer {
    fn as_str(self) -> &'static str {
        match self {
            NoAnswer::Behind => "behind",
            NoAnswer::Refused => "refused",
            NoAnswer::Failed => "failed",
        }
    }
}

/// The value of the field by which a node refuses a question for lack of purges.
pub const BEHIND: &str = "behind";

/// Its value where a node refuses for any other reason.
pub const REFUSED: &str = "refused";

impl Fetch {
    fn homes(&self) -> Option<&Homes> {
        self.env.common.cluster.as_ref()?.homes.as_ref()
    }

    /// Whether the home of the key may be asked. A node passes no other one's question on.
    pub(super) fn asks_home(&self, fields: &Fields) -> bool {
        self.homes().is_some()
            && !self.for_node
            && !self.for_run
            && self.kind == FetchKind::Share
            && self.posted.is_none()
            && self.request.method == Method::Get
            && self.ask.is_same_on_all_nodes()
            && !self.is_judged()
            && !NOT_ASKED_WITH.iter().any(|name| fields.contains(name) || self.request.fields.contains(name))
            && self.is_open_to_homes()
    }

    fn is_open_to_homes(&self) -> bool {
        match self.ask.route {
            Route::Site { .. } => true,
            Route::Destination(..) => false,
            // Nodes speak in clear text, and a parent is asked in an order that only this node knows.
            Route::Forward(asker) => {
                asker != Asker::OfflineRun
                    && self.ask.url.scheme == Scheme::Http
                    && self.ask.reach(&self.env).next_hops(&self.ask.url).is_none()
            }
        }
    }

    /// Asks the home of the key, the node that stands in for it, and then the origin.
    pub(super) async fn ask_with_home(&self, fields: &Fields) -> Result<OriginAnswer, UpstreamFault> {
        let Some(homes) = self.homes() else { return self.ask_beyond_homes(fields).await };
        let Some((question, place)) = self.question(homes, fields).await else {
            return self.ask_beyond_homes(fields).await;
        };
        let mut note = WayNote::default();
        for home in question.may.table.homes_of(place, clock::since_boot()) {
            let mut asked = pin!(self.ask_home(homes, home, &question));
            let no_answer = match timeout(self.env.config().cluster.home_wait, &mut asked).await {
                Ok(Ok(answer)) => return Ok(self.taken(homes, (home, note), &question, answer)),
                Ok(Err(no_answer)) => no_answer,
                Err(_) => {
                    add(&homes.counts.hedged);
                    let mut origin = pin!(self.ask_beyond_homes(fields));
                    tokio::select! {
                        biased;
                        Ok(answer) = &mut asked => return Ok(self.taken(homes, (home, note), &question, answer)),
                        answered = &mut origin => {
                            home.pause(clock::since_boot());
                            note.homes_failed.push((Arc::clone(&home.name), "slow"));
                            self.went_to_origin(note);
                            return answered;
                        }
                    }
                }
            };
            add(match no_answer {
                NoAnswer::Behind => &homes.counts.behind,
                NoAnswer::Refused => &homes.counts.refused,
                NoAnswer::Failed => &homes.counts.failed,
            });
            if no_answer == NoAnswer::Failed {
                home.pause(clock::since_boot());
            }
            note.homes_failed.push((Arc::clone(&home.name), no_answer.as_str()));
        }
        let answered = self.ask_beyond_homes(fields).await;
        self.went_to_origin(note);
        answered
    }

    async fn ask_beyond_homes(&self, fields: &Fields) -> Result<OriginAnswer, UpstreamFault> {
        if self.asks_neighbours() {
            return Box::pin(self.ask_with_neighbours(fields)).await;
        }
        self.send(self.ask.connects_to(), &self.ask.target(), fields, None).await
    }

    fn went_to_origin(&self, note: WayNote) {
        if !note.homes_failed.is_empty() && self.notes.way.borrow().is_none() {
            self.notes.way_taken(Box::new(WayNote { taken: Some(TakenWay::Direct), ..note }));
        }
    }

    fn taken(
        &self,
        homes: &Homes,
        (home, note): (&Home, WayNote),
        question: &HomeQuestion,
        answer: OriginAnswer,
    ) -> OriginAnswer {
        add(&homes.counts.answered);
        self.notes.way_taken(Box::new(WayNote { taken: Some(TakenWay::Home(Arc::clone(&home.name))), ..note }));
        // The home keeps it. A second copy is worth its memory where it is asked for again and again.
        self.is_cold_copy.set(!question.is_hot);
        answer
    }

    /// The question for other nodes, and the place of its key; `None` where this node is its home, or nobody is to be asked.
    async fn question(&self, homes: &Homes, fields: &Fields) -> Option<(HomeQuestion, u64)> {
        let may = homes.may_ask()?;
        let mut key = Vec::with_capacity(128);
        self.ask.key_at_first(&mut key);
        let place = place_of(&key);
        if may.table.homes_of(place, clock::since_boot()).is_empty() {
            return None;
        }
        let url = &self.ask.url;
        if matches!(self.ask.route, Route::Forward(_))
            && !self.env.upstreams.leads_to_open(&url.host, url.port, &self.ask.reach(&self.env)).await
        {
            return None;
        }
        let fields = self.fields_for_home(fields);
        let is_hot = homes.is_hot(place, clock::instant());
        Some((HomeQuestion { may, key: key_hash(&key), url: url.to_string(), fields, is_hot }, place))
    }

    /// The fields that another node gets: those for the origin, with the client's own where the origin gets others.
    fn fields_for_home(&self, fields: &Fields) -> Fields {
        let mut fields = fields.clone();
        fields.set("Host", self.ask.url.authority());
        fields.remove(NODE_FIELD);
        fields.remove(REQUEST_NAME);
        if self.ask.compression().is_some() {
            fields.remove("Accept-Encoding");
            self.request.fields.get_all("Accept-Encoding").for_each(|value| fields.push("Accept-Encoding", value));
        }
        let now = self.env.stamp_at(clock::instant());
        let fate = self.env.common.cache.peek(self.writer.key().text(), &self.request, now).fate;
        if fate.is_some_and(|(fate, _)| fate == Fate::Invalidated) {
            // A request that changes things went by this node, and the home knows nothing of it.
            fields.push("Cache-Control", "no-cache");
        }
        fields
    }

    /// The answer of one node.
    async fn ask_home(&self, homes: &Homes, home: &Home, question: &HomeQuestion) -> Result<OriginAnswer, NoAnswer> {
        let HomeQuestion { may, key, url, fields, .. } = question;
        let asking = Question {
            from: &homes.name,
            to: &home.name,
            at: clock::wall().as_secs(),
            stream: &may.table.stream,
            applied: may.applied,
            key,
        };
        let (value, proof) = homes.key.ask(&asking, Asked { target: url, fields });
        let mut fields = fields.clone();
        fields.push(NODE_FIELD, value);
        let OriginResponse { mut head, body, requested, .. } = self.call_home(home, url, &fields).await?;
        let now = clock::instant();
        self.notes.answered(now, head.status);
        if !homes.key.is_answer(&head.fields, &proof) {
            return Err(self.no_answer(&head, body).await);
        }
        head.fields.remove(NODE_FIELD);
        let body = whole(body).await.map_err(|fault| {
            tracing::debug!(node = &*home.name, url, %fault, "another node broke off");
            NoAnswer::Failed
        })?;
        let times = Times { requested: self.env.stamp_at(requested.into_std()), received: self.env.stamp_at(now) };
        Ok(OriginAnswer { head, times, body, peer: Peer::Home, followed_to: None })
    }

    async fn call_home(&self, home: &Home, target: &str, fields: &Fields) -> Result<OriginResponse, NoAnswer> {
        let to = home.url.as_ref().ok_or(NoAnswer::Failed)?;
        let called = self.call_cache((Peer::Home, to), (target, fields), None).await;
        called.map_err(|fault| {
            tracing::debug!(node = &*home.name, target, %fault, "another node gave no answer");
            NoAnswer::Failed
        })
    }

    /// Why a node refused. The page is read, so that the connection can be used again.
    async fn no_answer(&self, head: &ResponseHead, body: BodySource) -> NoAnswer {
        let said = head.fields.text(NODE_FIELD).map(str::to_owned);
        let _ = whole(body).await;
        match said.as_deref() {
            Some(BEHIND) => NoAnswer::Behind,
            Some(REFUSED) => NoAnswer::Refused,
            _ => NoAnswer::Failed,
        }
    }
}

/// The same body, all of which is here where it is short.
async fn whole(mut body: BodySource) -> Result<BodySource, UpstreamFault> {
    let Some(length) = body.length().filter(|length| *length <= WHOLE_BYTES_MAX) else { return Ok(body) };
    let mut pieces: VecDeque<Bytes> = VecDeque::new();
    while let Some(piece) = body.next().await? {
        pieces.push_back(piece);
    }
    let trailers = body.trailers();
    let mut read = BodySource::of_length(Some(length));
    read.put_back(pieces, trailers);
    Ok(read)
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}
