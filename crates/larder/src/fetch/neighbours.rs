//! Neighbouring caches are asked before the origin: by one datagram each, whether they have the response, and then the first one that has it
//! by HTTP. A sibling is told to send what it has stored or nothing (`only-if-cached`), so that no two caches send a request in circles.

use super::ask::OriginAnswer;
use super::{Fetch, FetchKind};
use crate::client::Client;
use crate::clock;
use crate::config::next_hop::{HopsOrder, NextHop};
use crate::config::parent::Sibling;
use crate::config::{Config, OriginHttp2};
use crate::reach::{Asker, Reach};
use crate::record::{Peer, TakenWay, WayNote};
use crate::rules::{Ask, Route};
use crate::upstream::{
    AskedNeighbour, Call, CallEvent, NeighbourFound, NeighbourQuestion, OriginResponse, UpstreamFault,
};
use larder_cache::policy::Times;
use larder_wire::{Fields, Method, RequestHead, Scheme, Url};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::timeout;

/// A sibling that has a response sends its head within this time, its connection included. After that the origin is asked.
const HEAD_WITHIN: Duration = Duration::from_secs(2);

/// Statuses of responses that a sibling has stored. Others are the sibling's own: a refusal, or a 504 because it does not have the response.
const OF_ORIGIN: [u16; 8] = [200, 203, 204, 300, 301, 308, 404, 410];

/// Fields of a request that is for one client, or for less than the whole response, or of which a neighbour's copy may be too old.
const NOT_ASKED_WITH: [&str; 6] =
    ["Authorization", "Cookie", "Range", "If-None-Match", "If-Modified-Since", "If-Range"];

/// A sibling sent no head: it can't be reached, or takes too long.
struct Unsent;

/// Whether neighbours may know the response to a request by this method.
fn may_ask(ask: &Ask, method: &Method, config: &Config) -> bool {
    if config.siblings.is_empty() && !config.forward_parents.are_asked {
        return false;
    }
    let Route::Forward(asker) = ask.route else { return false };
    let url = &ask.url;
    asker != Asker::OfflineRun
        && *method == Method::Get
        && url.scheme == Scheme::Http
        && !url.host.is_local()
        && !config.forward_parents.is_direct(&url.host)
        // They know nothing but the URL.
        && ask.is_by_url_alone()
        && !ask.key_is_without_signature()
}

fn is_plain(fields: &Fields) -> bool {
    !NOT_ASKED_WITH.iter().any(|name| fields.contains(name))
}

/// Whether siblings may have the response that this client wants. One that wants no stored response, or a younger one, would not get it;
/// and what a neighbour asks for is not asked of the next one.
fn may_ask_siblings(asked: &Fields, client: IpAddr, config: &Config) -> bool {
    let is_of_neighbour = asked.contains("Via") && config.neighbours.from.contains(client);
    !is_of_neighbour && !asked.contains("Cache-Control") && !asked.contains("Pragma")
}

/// The neighbours that would be asked whether they have the response to a request, as `sibling second`.
pub fn neighbours_of(ask: &Ask, request: &RequestHead, client: IpAddr, config: &Config) -> Vec<String> {
    if !may_ask(ask, &request.method, config) || !is_plain(&request.fields) {
        return Vec::new();
    }
    let siblings = config.siblings.iter().filter(|_| may_ask_siblings(&request.fields, client, config));
    let hops = config.next_hops(&ask.url, ask.hops()).unwrap_or_default();
    let parents = hops.parents().filter_map(|place| config.parents.get(usize::from(place)));
    let parents = parents.filter(|parent| parent.questions.is_any()).map(|parent| format!("parent {}", parent.name));
    siblings.map(|sibling| format!("sibling {}", sibling.name)).chain(parents).collect()
}

impl Fetch {
    /// Whether neighbours may know this request's response and be told of it. Not for https: a neighbour in clear text must not see such
    /// URLs, and none could prove that its copy is the origin's.
    pub(super) fn asks_neighbours(&self) -> bool {
        self.kind == FetchKind::Share && may_ask(&self.ask, &self.request.method, &self.env.config())
    }

    /// Asks the neighbours, and then whom they name, or the origin by the usual way.
    pub(super) async fn ask_with_neighbours(&self, fields: &Fields) -> Result<OriginAnswer, UpstreamFault> {
        let (config, url) = (self.env.config(), self.ask.url.to_string());
        let is_plain = is_plain(fields);
        let may_ask = is_plain
            && may_ask_siblings(&self.request.fields, self.client.ip(), &config)
            && self.leads_to_open(&config).await;
        let siblings = if may_ask { config.siblings.as_slice() } else { &[] };
        let reach = self.ask.reach(&self.env);
        let hops = reach.next_hops(&self.ask.url).filter(|_| is_plain).unwrap_or_default();
        let parents: Vec<u8> = hops.parents().collect();
        let asked_parents = parents.iter().filter_map(|place| config.parents.get(usize::from(*place)));
        let of_parents = asked_parents.map(|parent| (&parent.name, &parent.url.host, parent.questions, true));
        let of_siblings = siblings.iter().map(|sibling| (&sibling.name, &sibling.url.host, sibling.questions, false));
        let asked: Vec<AskedNeighbour<'_>> = of_siblings
            .chain(of_parents)
            .map(|(name, host, ports, is_parent)| AskedNeighbour { name, host, ports, is_parent })
            .collect();
        let question =
            NeighbourQuestion { url: &url, fields, neighbours: &asked, wait_max: config.neighbours.wait_max };
        let healths = &self.env.common.neighbour_healths;
        let found = self.env.upstreams.ask_neighbours(healths, &question).await;
        let first = |reach: Reach, place: usize, order: HopsOrder| match parents.get(place - siblings.len()) {
            Some(parent) => reach.first_by(*parent, order),
            None => reach,
        };
        let reach = match found {
            NeighbourFound::Hit(place, address) if place < siblings.len() => {
                match self.ask_sibling((place, &siblings[place]), (&url, fields)).await {
                    Ok(Some(answer)) => return Ok(answer),
                    Ok(None) => {}
                    Err(Unsent) => healths.failed((&siblings[place].name, address), clock::instant().into()),
                }
                healths.counts.false_hits.fetch_add(1, Ordering::Relaxed);
                reach
            }
            NeighbourFound::Hit(place, _) => first(reach, place, HopsOrder::Hit),
            NeighbourFound::Miss(place) => first(reach, place, HopsOrder::FirstMiss),
            NeighbourFound::Nobody => reach,
        };
        self.send_within(&reach, (self.ask.connects_to(), &self.ask.target()), fields, None).await
    }

    /// Whether a direct request could bring a response for all clients. A sibling may have one of a host that is closed to clients here,
    /// or that would be stored for nobody. Where parents are asked, names are theirs to judge.
    async fn leads_to_open(&self, config: &Config) -> bool {
        let url = &self.ask.url;
        let reach = self.ask.reach(&self.env);
        config.siblings.is_empty()
            || reach.next_hops(url).is_some_and(|hops| !hops.hops.contains(&NextHop::Direct))
            || self.env.upstreams.leads_to_open(&url.host, url.port, &reach).await
    }

    /// Asks another cache by a GET.
    pub(super) async fn call_cache(
        &self,
        (peer, to): (Peer, &Url),
        (target, fields): (&str, &Fields),
        client: Option<Client>,
    ) -> Result<OriginResponse, UpstreamFault> {
        let on = |event| match event {
            CallEvent::Connected { at, reuse, protocol, .. } => {
                self.note(CallEvent::Connected { at, peer, reuse, protocol, header: None });
            }
            // It is the other cache's, and says nothing of the origin's.
            CallEvent::Interim(_) => {}
            event => self.note(event),
        };
        let mut call = Call {
            to,
            tls_name: None,
            method: &Method::Get,
            target,
            fields,
            body: None,
            reach: &Reach::Configured,
            client,
            priority: self.ask.priority(),
            begins: self.begin_attempt().into(),
            silent_for: None,
            http2: OriginHttp2::Off,
            proxy_protocol: None,
            proxied: None,
            on: &on,
        };
        self.env.upstreams.call(&mut call).await
    }

    /// The response as a sibling has stored it; `None` where it has not.
    async fn ask_sibling(
        &self,
        (place, sibling): (usize, &Arc<Sibling>),
        (url, fields): (&str, &Fields),
    ) -> Result<Option<OriginAnswer>, Unsent> {
        let peer = Peer::Sibling(u8::try_from(place + 1).map_err(|_| Unsent)?);
        let mut fields = fields.clone();
        fields.set("Cache-Control", "only-if-cached");
        let client = Client::if_known(self.client.ip());
        let call = self.call_cache((peer, &sibling.url), (url, &fields), client);
        let called = timeout(HEAD_WITHIN, call).await;
        let OriginResponse { head, body, requested, .. } = called
            .inspect_err(|_| tracing::debug!(sibling = sibling.name, url, "a sibling sent no head in time"))
            .map_err(|_| Unsent)?
            .inspect_err(|fault| tracing::debug!(sibling = sibling.name, url, %fault, "a sibling failed"))
            .map_err(|_| Unsent)?;
        let now = clock::instant();
        self.notes.answered(now, head.status);
        if !OF_ORIGIN.contains(&head.status) {
            return Ok(None);
        }
        let times = Times { requested: self.env.stamp_at(requested.into_std()), received: self.env.stamp_at(now) };
        let taken = Some(TakenWay::Sibling(Arc::clone(sibling)));
        self.notes.way_taken(Box::new(WayNote { taken, ..WayNote::default() }));
        Ok(Some(OriginAnswer { head, times, body, peer, followed_to: None }))
    }
}
