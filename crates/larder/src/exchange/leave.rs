//! Requests that want to leave HTTP: CONNECT, WebSocket and other upgrades. The connection to the origin is made here, while
//! the client can still get an error page; `tunnel` then copies the bytes.

use super::Ended;
use super::deliver::{self, AnswerSource, Manner};
use super::hooked::{Responded, Responding};
use super::icap;
use super::offline;
use super::relay::key_of;
use super::stream::ClientStream;
use super::{by_table, by_verdict, note, note_answer};
use crate::client::Client;
use crate::clock;
use crate::config::OriginHttp2;
use crate::env::{Env, PeerFacts};
use crate::fetch;
use crate::page::Page;
use crate::people::User;
use crate::reach::{Reach, ReachByRule};
use crate::record::{Cause, Notes, Outcome, ProxyHeaderNote, Record};
use crate::request_body::RequestBody;
use crate::rules::{self, Ask, Limited, TunnelFor, Verdict};
use crate::upstream::{
    Call, CallEvent, HeldPermit, OriginResponse, Switched, Upgraded, UpstreamFault, UpstreamFaultKind,
};
use crate::wire::Wire;
use bytes::BytesMut;
use larder_cache::entry::Arrival;
use larder_wire::{Fault, FaultKind, Host, RequestHead, hop};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// The result of a request that wanted to leave HTTP.
pub enum LeaveOutcome {
    /// It got an answer, and no tunnel.
    Answered(Ended),
    /// A tunnel to an origin begins.
    Tunnel {
        /// The connection to the origin.
        origin: Wire,
        /// Bytes that were read from the origin already.
        read: BytesMut,
        /// Counts the tunnel among the requests of the origin until it ends.
        held: Option<HeldPermit>,
        /// The limits of bandwidth towards the client.
        limits: Option<Rc<[Limited]>>,
    },
    /// The client gets a tunnel to this host and port; its first bytes decide whether TLS is intercepted.
    Intercept(Host, u16, Intercepted),
}

/// A tunnel whose TLS may be intercepted.
pub struct Intercepted {
    /// The user who asked for it.
    pub user: Option<Arc<User>>,
    /// The limits of bandwidth that count where it stays closed: inside, each request has its own.
    pub limits: Option<Rc<[Limited]>>,
    /// The choice of rules through whom it goes, and how far, where it stays closed.
    pub reach: ReachByRule,
}

/// Serves a CONNECT for as long as the client can still get an error page: up to the connection to its origin, or to the 200
/// after which its TLS may be intercepted.
pub async fn connect<S: ClientStream>(
    stream: &mut S,
    request: &RequestHead,
    verdict: Verdict,
    body: &Result<RequestBody, Fault>,
    record: &mut Record,
) -> LeaveOutcome {
    let (host, port, user, limits, by_rule, site_origin) = match verdict {
        Verdict::Tunnel(host, port, TunnelFor { user, rules, helpers, note, limits, reach, origin }) => {
            record.note_helpers(&helpers);
            rules.iter().for_each(|rules| record.note_rules(rules));
            note.into_iter().for_each(|note| record.note_hook(*note));
            (host, port, user, limits, reach, origin)
        }
        Verdict::Answer(page) => return answer(stream, request, page, record),
        Verdict::Hooked(hooked) => {
            let authority = format!("{}:{}", hooked.url.host, hooked.url.port);
            let page = note_answer(stream.env(), *hooked, record);
            record.url = authority;
            return answer(stream, request, page, record);
        }
        Verdict::Allow(_)
        | Verdict::Mirror(_)
        | Verdict::Purge(_)
        | Verdict::Manager(_)
        | Verdict::LogIn(_)
        | Verdict::Echo
        | Verdict::Needs(..) => {
            let page = rules::fault_page(FaultKind::Target, "a CONNECT names a host and a port");
            return answer(stream, request, page, record);
        }
    };
    record.url = format!("{host}:{port}");
    if let Some(user) = &user {
        record.note_user(&user.name);
    }
    if !matches!(body, Ok(RequestBody::None)) {
        let page = Page::new(400, "connect-body", "A CONNECT has no body.", "Send the bytes once the tunnel is open.");
        return answer(stream, request, page, record);
    }
    if stream.env().config().icaps.iter().any(|icap| icap.is_for_tunnel(&host))
        && let Some(ended) = Box::pin(icap::tunnel(stream, request, (&host, port), record)).await
    {
        return LeaveOutcome::Answered(ended);
    }
    if site_origin.is_none() && stream.opens_tunnel(&host) {
        return LeaveOutcome::Intercept(host, port, Intercepted { user, limits, reach: by_rule });
    }
    if stream.peer().listener.is_offline() {
        return answer(stream, request, offline::not_opened(), record);
    }
    // Answers to earlier pipelined requests go out before the wait for the origin.
    let _ = stream.flush().await;
    let opened = match site_origin {
        Some(origin) => {
            let env = Rc::clone(stream.env());
            env.upstreams.pass_through(&origin, stream.peer().proxied(), &Reach::NotHere(env.own_addresses())).await
        }
        None => far_end(stream, (&host, port), by_rule, record).await,
    };
    match opened {
        Ok(origin) => {
            record.status = 200;
            stream.open_tunnel();
            LeaveOutcome::Tunnel { origin, read: BytesMut::new(), held: None, limits }
        }
        Err(fault) => answer(stream, request, page_of(&fault, record), record),
    }
}

/// Connects to the far end of a tunnel, as far and through whom rules permit.
async fn far_end<S: ClientStream>(
    stream: &S,
    (host, port): (&Host, u16),
    by_rule: ReachByRule,
    record: &mut Record,
) -> Result<Wire, UpstreamFault> {
    let reach = stream.env().reach(Some(stream.peer().listener.asker)).by_rule(by_rule);
    let env = Rc::clone(stream.env());
    let way = Cell::new(None);
    let (to, to_port) = stream.peer().tunnel_end(host, port);
    let opened = env.upstreams.tunnel(&to, to_port, &reach, &|note| way.set(Some(note))).await;
    way.take().into_iter().for_each(|note| record.note_way(note));
    opened
}

/// Asks the origin of a request that wants to leave HTTP (RFC 9110 section 7.8).
pub async fn upgrade<S: ClientStream>(
    stream: &mut S,
    request: &Rc<RequestHead>,
    verdict: Verdict,
    record: &mut Record,
) -> LeaveOutcome {
    let Verdict::Allow(ask) = verdict else {
        // Any other verdict is served like a request without an offer.
        return answer(stream, request, rules::fault_page(FaultKind::Target, "there is nothing to upgrade"), record);
    };
    if stream.peer().listener.is_offline() {
        return answer(stream, request, offline::not_a_download(), record);
    }
    note(stream.env(), &ask, record);
    let without_cookies = ask.without_cookies();
    let request = without_cookies.as_ref().unwrap_or(request);
    if icap::is_request_asked(stream.env(), &request.method, &ask) {
        // Boxed, because it is rare.
        let asked = Box::pin(icap::reqmod(stream, request, &ask, RequestBody::None, &mut None, record)).await;
        if !matches!(asked, icap::Asked::Unchanged) {
            let answered = Box::pin(icap::after_change(stream, request, (asked, &ask), (None, record))).await;
            return LeaveOutcome::Answered(answered);
        }
    }
    if !request.method.is_safe() && fetch::is_judged(stream.env(), &request.method, &ask) {
        // A service looks at the answer. One that declines the offer would pass it by, and could not be asked for again.
        return without_offer(stream, request, ask, record).await;
    }
    let asked_for = request;
    let changed = ask.changed_by_hook(request).map(Rc::new);
    let request = changed.as_ref().unwrap_or(request);
    let _ = stream.flush().await;
    let notes = record.notes();
    record.leads(&notes);
    let (env, peer) = (Rc::clone(stream.env()), stream.peer().clone());
    let asked = ask_upgrade(&env, &peer, request, &ask, &notes).await;
    if let Some(traces) = &env.common.traces {
        traces.end_fetch(&request.method, &ask.url_at_origin(), &notes, &env.tally.spans);
    }
    match asked {
        Err(fault) => answer(stream, request, page_of(&fault, record), record),
        Ok(upgraded) if !stream.may_pass_on(upgraded.head()) => answer(stream, request, opens_nothing(), record),
        Ok(Upgraded::Switched(switched)) => switch(stream, *switched, ask.limits(), record),
        Ok(Upgraded::Declined(_)) if fetch::is_judged(&env, &request.method, &ask) => {
            // A service looks at answers, and this one passed it by: the request is sent without the offer.
            without_offer(stream, asked_for, ask, record).await
        }
        Ok(Upgraded::Declined(mut response)) => {
            if let Some(cookie) = notes.member_cookie() {
                response.head.fields.push("Set-Cookie", &*cookie);
            }
            stay(stream, request, ask, *response, record).await
        }
    }
}

/// Answers a request, about which services have been asked, as if it made no offer.
async fn without_offer<S: ClientStream>(
    stream: &mut S,
    request: &Rc<RequestHead>,
    ask: Ask,
    record: &mut Record,
) -> LeaveOutcome {
    let key = Some(key_of(&ask, &stream.env().common.cache));
    let verdict = (Verdict::Allow(ask), key);
    // Boxed, because it is rare.
    let answered = Box::pin(by_verdict(stream, request, verdict, RequestBody::None, (None, record)));
    LeaveOutcome::Answered(answered.await)
}

fn opens_nothing() -> Page {
    let what = "The origin has not opened the protocol that was asked for.";
    Page::new(502, "upgrade", what, "Ask its operator whether it speaks this protocol at this path.")
}

fn switch<S: ClientStream>(
    stream: &mut S,
    switched: Switched,
    limits: Option<Rc<[Limited]>>,
    record: &mut Record,
) -> LeaveOutcome {
    let Switched { mut head, protocols, stream: origin, read, permit } = switched;
    hop::strip(&mut head.fields);
    head.fields.push("Upgrade", protocols);
    record.status = stream.switch_protocols(&mut head);
    LeaveOutcome::Tunnel { origin, read, held: Some(permit), limits }
}

/// Sends the request as a fetch does, with the client's offer of protocols.
async fn ask_upgrade(
    env: &Env,
    peer: &PeerFacts,
    request: &RequestHead,
    ask: &Ask,
    notes: &Notes,
) -> Result<Upgraded, UpstreamFault> {
    let offer = hop::upgrade(&request.fields).unwrap_or_default();
    let mut call = Call {
        to: ask.connects_to(),
        tls_name: ask.tls_name(),
        method: &request.method,
        target: &ask.target(),
        fields: &fetch::forwarded(env, request, ask, peer.address, notes),
        body: None,
        reach: &ask.reach(env),
        client: Client::if_known(peer.address.ip()),
        priority: ask.priority(),
        begins: notes.attempt().into(),
        silent_for: None,
        // An upgrade is of HTTP/1.1.
        http2: OriginHttp2::Off,
        proxy_protocol: ask.proxy_protocol(),
        proxied: peer.proxied(),
        on: &|event| match event {
            CallEvent::Connected { at, peer, reuse, header, .. } => {
                notes.connected(at.into_std(), peer, reuse);
                notes.proxy_header.set(header.map(ProxyHeaderNote::of));
            }
            CallEvent::Unexpected(status) => notes.answered(clock::instant(), status),
            CallEvent::GroupAsked(note) => notes.group_asked(note),
            CallEvent::WayTaken(note) => notes.way_taken(note),
            CallEvent::Connecting | CallEvent::Accepted | CallEvent::Retried | CallEvent::Interim(_) => {}
        },
    };
    let upgraded = env.upstreams.upgrade(&mut call, &offer).await?;
    notes.answered(clock::instant(), upgraded.head().status);
    Ok(upgraded)
}

/// Passes on the answer of an origin that stays with HTTP. The client's connection can serve further requests.
async fn stay<S: ClientStream>(
    stream: &mut S,
    request: &RequestHead,
    ask: Ask,
    response: OriginResponse,
    record: &mut Record,
) -> LeaveOutcome {
    let common = std::sync::Arc::clone(&stream.env().common);
    let mut key = Vec::new();
    ask.key(&common.cache, &mut key);
    let (mut reader, writer) = common.cache.alone(&key);
    fetch::invalidate_changed(&common, &request.method, &ask, &response.head);
    fetch::adopt(writer, response.head, response.body, &request.method);
    let answer = match reader.arrival().await {
        Arrival::Head(stored) => {
            AnswerSource::Entry { reader, stored, outcome: Outcome::Miss(Cause::Upgrade), verbatim: true, refill: None }
        }
        Arrival::Failed(failure) => AnswerSource::Page(deliver::failed(&failure, record)),
        Arrival::Use(..) | Arrival::Alone => {
            let what = "The origin's answer to an offer to change the protocol can't be passed on.";
            AnswerSource::Page(Page::new(502, "upgrade", what, "Ask without `Upgrade`.").closing())
        }
    };
    let (limits, is_by_cookie) = (ask.limits(), ask.is_by_cookie());
    let Responded { answer, given } = match Responding::of(&ask) {
        None => answer.into(),
        Some(responding) => Box::pin(responding.respond(stream, request, answer, record)).await,
    };
    let answer = if is_by_cookie { by_table::for_person(answer) } else { answer };
    LeaveOutcome::Answered(
        deliver::deliver(stream, request, (answer, Manner { given: &given, limits }), &mut None, record).await,
    )
}

/// The error page for an origin that could not be connected to.
pub fn page_of(fault: &UpstreamFault, record: &mut Record) -> Page {
    let failure = fetch::failure(fault);
    record.outcome = Outcome::Failed(failure.word);
    if fault.kind == UpstreamFaultKind::OutOfReach {
        return rules::out_of_reach().closing();
    }
    if failure.word == UpstreamFaultKind::Parent.as_str() {
        return deliver::no_way_on(&failure.detail, failure.status).closing();
    }
    let what = format!("No way to the origin: {}.", failure.detail);
    Page::new(failure.status, failure.word, what, "Check the name and the port, or try again.").closing()
}

fn answer<S: ClientStream>(stream: &mut S, request: &RequestHead, page: Page, record: &mut Record) -> LeaveOutcome {
    // A client that has to log in answers on the same connection: a handshake of NTLM is bound to it.
    let page = if page.status == 407 { page } else { page.closing() };
    LeaveOutcome::Answered(deliver::deliver_page(stream, request, &page, record))
}
