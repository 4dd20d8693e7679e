//! The home of a key is asked before the origin: the node of the cluster that fetches for all (decisions 119, 120). No answer of it is the
//! same as none: the next node is asked, then the origin.

use super::ask::OriginAnswer;
use super::{Fetch, FetchKind};
use crate::clock;
use crate::cluster::{Asked, Home, Homes, MayAsk, NODE_FIELD, NODE_VOID_FIELD, Question, key_hash, place_of};
use crate::mount::REQUEST_NAME;
use crate::reach::Asker;
use crate::record::{OriginProtocol, Peer, Reuse, TakenWay, WayNote};
use crate::rules::{Ask, Route};
use crate::upstream::{BodySource, OriginResponse, UpstreamFault, UpstreamFaultKind};
use bytes::Bytes;
use larder_cache::policy::Times;
use larder_wire::{Fields, Method, ResponseHead, Scheme};
use std::cell::Cell;
use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::time::timeout;

/// A body of a home that is not longer is here before its head counts, so that a home that dies meanwhile breaks no answer.
const WHOLE_BYTES_MAX: u64 = 64 << 10;

/// Fields of a request that is for one client, or for less than the whole response.
const NOT_ASKED_WITH: [&str; 4] = ["Authorization", "Cookie", "Proxy-Authorization", "Range"];

/// A question about one response, as each node is asked it.
struct HomeQuestion<'a> {
    may: &'a MayAsk,
    /// The place of the key, by which it has its home.
    place: u64,
    key: String,
    url: String,
    fields: Fields,
    is_hot: bool,
    /// The mark that a request by way of this node made the key void.
    void: Option<u64>,
}

/// Why a node gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoAnswer {
    /// It lacks purges that are in force here.
    Behind,
    /// It has other rules, takes no request of this length, or the origin gave it no answer.
    Refused,
    /// It can't be reached, or sent nothing that is an answer of a node.
    Failed,
    /// There is no place for a further question, or its answer broke off or is none that this node reads: that may be the origin's doing,
    /// and says nothing of other questions.
    Unusable,
}

impl NoAnswer {
    fn as_str(self) -> &'static str {
        match self {
            NoAnswer::Behind => "behind",
            NoAnswer::Refused => "refused",
            NoAnswer::Failed | NoAnswer::Unusable => "failed",
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
        // A parent is asked in an order that only this node knows.
        let is_direct = || self.ask.reach(&self.env).next_hops(&self.ask.url).is_none();
        may_have_home(&self.ask) && (!matches!(self.ask.route, Route::Forward(_)) || is_direct())
    }

    /// Asks the home of the key, the node that stands in for it, and then the origin.
    pub(super) async fn ask_with_home(&self, fields: &Fields) -> Result<OriginAnswer, UpstreamFault> {
        let Some((homes, may)) = self.homes().and_then(|homes| Some((homes, homes.may_ask()?))) else {
            return self.ask_beyond_homes(fields).await;
        };
        let mut key = Vec::with_capacity(128);
        self.ask.key_at_first(&mut key);
        let place = place_of(&key);
        let asked_homes = may.table.homes_of(place, clock::since_boot());
        if asked_homes.is_empty() || !self.leads_all_to_open().await {
            return self.ask_beyond_homes(fields).await;
        }
        let question = self.question((homes, &may), (&key, place), fields);
        let mut note = WayNote::default();
        for home in asked_homes {
            let connected = Cell::default();
            let mut asked = pin!(self.ask_home(homes, home, &question, &connected));
            let no_answer = match timeout(self.env.config().cluster.home_wait, &mut asked).await {
                Ok(Ok(answer)) => return Ok(self.taken(homes, (home, note, &connected), &question, answer)),
                Ok(Err(no_answer)) => no_answer,
                Err(_) => {
                    let home = (home, note, &connected);
                    return self.ask_beside(homes, home, &question, asked, fields).await;
                }
            };
            gave_no_answer(homes, home, no_answer);
            note.homes_failed.push((Arc::clone(&home.name), no_answer.as_str()));
        }
        let answered = self.ask_beyond_homes(fields).await;
        self.went_to_origin(note);
        answered
    }

    /// Asks the origin beside a home that takes long; the first answer counts.
    async fn ask_beside(
        &self,
        homes: &Homes,
        (home, mut note, connected): (&Home, WayNote, &Cell<Option<Reuse>>),
        question: &HomeQuestion<'_>,
        mut asked: Pin<&mut impl Future<Output = Result<OriginAnswer, NoAnswer>>>,
        fields: &Fields,
    ) -> Result<OriginAnswer, UpstreamFault> {
        add(&homes.counts.hedged);
        let mut origin = pin!(self.ask_beyond_homes(fields));
        let mut no_answer = None;
        let answered = loop {
            tokio::select! {
                biased;
                answer = &mut asked, if no_answer.is_none() => match answer {
                    Ok(answer) => return Ok(self.taken(homes, (home, note, connected), question, answer)),
                    Err(why) => no_answer = Some(why),
                },
                // An origin that this node cannot reach may be in reach of the home, which is still at work.
                answered = &mut origin => match (answered, no_answer) {
                    (Err(fault), None) => match asked.await {
                        Ok(answer) => return Ok(self.taken(homes, (home, note, connected), question, answer)),
                        Err(why) => {
                            no_answer = Some(why);
                            break Err(fault);
                        }
                    },
                    (answered, _) => break answered,
                },
            }
        };
        match no_answer {
            Some(no_answer) => gave_no_answer(homes, home, no_answer),
            None if connected.get().is_none() => home.pause(clock::since_boot()),
            // The response may take long at its origin: one client that asks for such ones must not stop the questions of all.
            None => {}
        }
        note.homes_failed.push((Arc::clone(&home.name), no_answer.map_or("slow", NoAnswer::as_str)));
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
        (home, note, connected): (&Home, WayNote, &Cell<Option<Reuse>>),
        question: &HomeQuestion<'_>,
        answer: OriginAnswer,
    ) -> OriginAnswer {
        add(&homes.counts.answered);
        if let Some(reuse) = connected.get() {
            // The origin may have been connected to meanwhile, which the answer does not come from.
            self.notes.peer.set(Some((Peer::Home, reuse)));
            self.notes.protocol.set(OriginProtocol::default());
            self.notes.proxy_header.set(None);
        }
        self.notes.way_taken(Box::new(WayNote { taken: Some(TakenWay::Home(Arc::clone(&home.name))), ..note }));
        let is_home = |first: &Home| first.name == home.name;
        if let Some(mark) = question.void
            && question.may.table.home_of(question.place).is_some_and(is_home)
        {
            // One that stands in for the home is told again: the home itself has what is void.
            homes.void_is_told(question.place, mark);
        }
        // The home keeps it. A second copy is worth its memory where it is asked for again and again.
        self.is_cold_copy.set(!question.is_hot);
        answer
    }

    /// Whether a direct request could bring a response for all clients: a home says nothing of the address that it has the response from.
    async fn leads_all_to_open(&self) -> bool {
        let url = &self.ask.url;
        !matches!(self.ask.route, Route::Forward(_))
            || self.env.upstreams.leads_to_open(&url.host, url.port, &self.ask.reach(&self.env)).await
    }

    /// The question for other nodes about this key, which has its home at this place.
    fn question<'a>(
        &self,
        (homes, may): (&Homes, &'a MayAsk),
        (key, place): (&[u8], u64),
        fields: &Fields,
    ) -> HomeQuestion<'a> {
        let void = homes.void_mark(place);
        let mut fields = self.fields_for_home(fields);
        if void.is_some() {
            fields.push(NODE_VOID_FIELD, "1");
        }
        let is_hot = homes.is_hot(place, clock::instant());
        HomeQuestion { may, place, key: key_hash(key), url: self.ask.url.to_string(), fields, is_hot, void }
    }

    /// The fields that another node gets: those for the origin, with the client's own where the origin gets others.
    fn fields_for_home(&self, fields: &Fields) -> Fields {
        let mut fields = fields.clone();
        fields.set("Host", self.ask.url.authority());
        fields.remove(NODE_FIELD);
        fields.remove(NODE_VOID_FIELD);
        fields.remove(REQUEST_NAME);
        if self.ask.compression().is_some() {
            fields.remove("Accept-Encoding");
            self.request.fields.get_all("Accept-Encoding").for_each(|value| fields.push("Accept-Encoding", value));
        }
        fields
    }

    /// The answer of one node.
    async fn ask_home(
        &self,
        homes: &Homes,
        home: &Home,
        question: &HomeQuestion<'_>,
        connected: &Cell<Option<Reuse>>,
    ) -> Result<OriginAnswer, NoAnswer> {
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
        let OriginResponse { mut head, body, requested, .. } = self.call_home(home, (url, &fields), connected).await?;
        let now = clock::instant();
        self.notes.answered(now, head.status);
        if !homes.key.is_answer(&head.fields, &proof) {
            return Err(self.no_answer(&head, body).await);
        }
        head.fields.remove(NODE_FIELD);
        let body = whole(body).await.map_err(|fault| {
            tracing::debug!(node = &*home.name, url, %fault, "another node broke off");
            NoAnswer::Unusable
        })?;
        let times = Times { requested: self.env.stamp_at(requested.into_std()), received: self.env.stamp_at(now) };
        Ok(OriginAnswer { head, times, body, peer: Peer::Home, followed_to: None })
    }

    async fn call_home(
        &self,
        home: &Home,
        (target, fields): (&str, &Fields),
        connected: &Cell<Option<Reuse>>,
    ) -> Result<OriginResponse, NoAnswer> {
        let to = home.url.as_ref().ok_or(NoAnswer::Failed)?;
        let called = self.call_cache((Peer::Home, to), (target, fields), (None, connected)).await;
        called.map_err(|fault| {
            tracing::debug!(node = &*home.name, target, %fault, "another node gave no answer");
            match fault.kind {
                UpstreamFaultKind::Busy | UpstreamFaultKind::ClientBusy | UpstreamFaultKind::Shed => NoAnswer::Unusable,
                UpstreamFaultKind::FirstByteTimeout | UpstreamFaultKind::IdleTimeout => NoAnswer::Unusable,
                UpstreamFaultKind::Wire(_) | UpstreamFaultKind::TooManyInterim => NoAnswer::Unusable,
                _ => NoAnswer::Failed,
            }
        })
    }

    /// Why a node refused. The page is read, so that the connection can be used again.
    async fn no_answer(&self, head: &ResponseHead, body: BodySource) -> NoAnswer {
        let said = head.fields.text(NODE_FIELD).map(str::to_owned);
        let _ = whole(body).await;
        match said.as_deref() {
            Some(BEHIND) => NoAnswer::Behind,
            Some(REFUSED) => NoAnswer::Refused,
            // It refuses such a request before it reads the question: with that, its head is longer than the client's.
            _ if matches!(head.status, 414 | 431) => NoAnswer::Refused,
            _ => NoAnswer::Failed,
        }
    }
}

/// Whether any node is asked about such keys.
pub(super) fn may_have_home(ask: &Ask) -> bool {
    match ask.route {
        Route::Site { .. } => true,
        Route::Destination(..) => false,
        // Nodes speak in clear text.
        Route::Forward(asker) => asker != Asker::OfflineRun && ask.url.scheme == Scheme::Http,
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

/// Counts a node that gave no answer, and leaves one alone for a while that can't be asked.
fn gave_no_answer(homes: &Homes, home: &Home, no_answer: NoAnswer) {
    add(match no_answer {
        NoAnswer::Behind => &homes.counts.behind,
        NoAnswer::Refused => &homes.counts.refused,
        NoAnswer::Failed | NoAnswer::Unusable => &homes.counts.failed,
    });
    if no_answer == NoAnswer::Failed {
        home.pause(clock::since_boot());
    }
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}
