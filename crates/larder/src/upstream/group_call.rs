//! A request to a group of origins: a member for each try, further tries within the budget, and a second request beside a late one.

use super::call::{Call, CallEvent};
use super::exchange::{OriginResponse, Upgraded};
use super::fault::{UpstreamFault, UpstreamFaultKind};
use super::group::{GroupState, MemberRequest, Picked, judge_bad_answers, wants_key};
use super::{OutgoingBody, Upstreams};
use crate::config::origin::{BalanceKey, MemberHost};
use crate::config::{OriginGroup, OriginMember};
use crate::record::{GroupNote, TryEnd, TryNote};
use larder_balance::{Balance, MemberId, NoMember, Request, hash, hash_with};
use larder_wire::Fields;
use std::borrow::Cow;
use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use tokio::time::{Instant, sleep};

impl Upstreams {
    /// Sends a request to a member of a group, and to others where that is permitted and needed.
    pub(super) async fn call_group(
        &self,
        call: &mut Call<'_>,
        group: Arc<GroupState>,
    ) -> Result<OriginResponse, UpstreamFault> {
        Course::new(group, call).run(self, call).await
    }

    /// Sends a request that offers to leave HTTP to a member of a group: once, but that a member to which no connection came about was
    /// sent nothing.
    pub(super) async fn upgrade_group(
        &self,
        call: &mut Call<'_>,
        offer: &str,
        group: Arc<GroupState>,
    ) -> Result<Upgraded, UpstreamFault> {
        let mut course = Course::new(group, call);
        course.is_repeatable = false;
        course.upgrade(self, call, offer).await
    }
}

/// One request on its way through a group. At its end, or where it is given up, it tells which members were asked.
struct Course<'c> {
    group: Arc<GroupState>,
    config: Arc<OriginGroup>,
    key: u64,
    sticky: Option<u64>,
    /// Idempotent and without a body.
    is_repeatable: bool,
    tried: Vec<MemberId>,
    /// Safe, and without a body: to two members at once it does no more than to one.
    may_be_hedged: bool,
    /// Bad answers: whose fault they are shows when another member was asked.
    bad: Vec<BadAnswer>,
    on: &'c dyn Fn(CallEvent),
    note: GroupNote,
}

/// A request whose answer was bad, and the answer, if no later one takes its place.
struct BadAnswer {
    request: MemberRequest,
    response: Option<OriginResponse>,
}

impl Drop for Course<'_> {
    fn drop(&mut self) {
        let GroupNote { group, tries, refused, cookie } = &mut self.note;
        let (group, tries) = (std::mem::take(group), std::mem::take(tries));
        let note = GroupNote { group, tries, refused: *refused, cookie: cookie.take() };
        (self.on)(CallEvent::GroupAsked(Box::new(note)));
    }
}

/// The end of one try.
enum Tried {
    /// An answer that is no error.
    Good(OriginResponse, MemberRequest),
    /// An answer whose status counts as a failure, or lets another member be tried.
    Bad(OriginResponse, MemberRequest),
    /// No answer.
    Failed(TryFault),
}

struct TryFault {
    fault: UpstreamFault,
    /// Nothing of the request was sent.
    is_unsent: bool,
    /// The body, if it is whole still.
    body: Option<OutgoingBody>,
}

impl<'c> Course<'c> {
    fn new(group: Arc<GroupState>, call: &Call<'c>) -> Course<'c> {
        let config = group.config();
        let note = GroupNote { group: config.name.as_str().into(), tries: Vec::new(), refused: None, cookie: None };
        Course {
            key: wants_key(&config).map_or(0, |key| hash_of(key, call)),
            sticky: cookie_of(&config, call.fields),
            is_repeatable: call.method.is_idempotent() && call.body.is_none(),
            may_be_hedged: config.hedge.is_some() && call.method.is_safe() && call.body.is_none(),
            tried: Vec::new(),
            bad: Vec::new(),
            on: call.on,
            note,
            config,
            group,
        }
    }

    async fn run(&mut self, upstreams: &Upstreams, call: &mut Call<'_>) -> Result<OriginResponse, UpstreamFault> {
        let mut body = call.body.take();
        let mut fault = None;
        loop {
            let picked = match self.pick() {
                Ok(picked) => picked,
                Err(why) => {
                    fault = fault.or_else(|| Some(self.refusal(why)));
                    break;
                }
            };
            if self.tried.len() > 1 {
                (call.on)(CallEvent::Retried);
            }
            let may_go_on = match self.send_with_hedge(upstreams, call, picked, body.take()).await {
                Tried::Good(response, request) => {
                    self.judge(true);
                    return Ok(self.answer(response, request));
                }
                Tried::Bad(response, request) => {
                    let may_go_on = self.is_repeatable && self.config.retry.statuses.contains(&response.head.status);
                    self.hold(response, request);
                    may_go_on
                }
                Tried::Failed(failed) => {
                    body = failed.body;
                    let may_go_on = self.is_repeatable || failed.is_unsent;
                    fault = Some(failed.fault);
                    may_go_on
                }
            };
            if !may_go_on || self.tried.len() >= self.config.retry.tries_max || !self.group.may_retry(&self.tried) {
                break;
            }
        }
        self.judge(false);
        match (self.bad.pop(), fault) {
            // An answer that says what is wrong is worth more than a connection that failed.
            (Some(BadAnswer { request, response: Some(response) }), _) => Ok(self.answer(response, request)),
            (_, Some(fault)) => Err(self.explained(fault)),
            (_, None) => Err(self.refusal(NoMember::AllTried)),
        }
    }

    fn request(&self) -> Request<'_> {
        Request {
            now: Instant::now().into_std(),
            key: self.key,
            sticky: self.sticky,
            is_repeatable: self.is_repeatable,
            tried: &self.tried,
        }
    }

    fn pick(&mut self) -> Result<Picked, NoMember> {
        let picked = self.group.pick(&self.request());
        match &picked {
            Ok(picked) => self.note_pick(picked, false),
            Err(why) => self.note.refused = Some(why.as_str()),
        }
        picked
    }

    fn pick_hedge(&mut self) -> Option<Picked> {
        let picked = self.group.pick_hedge(&self.request())?;
        self.note_pick(&picked, true);
        Some(picked)
    }

    fn note_pick(&mut self, picked: &Picked, is_hedge: bool) {
        self.tried.extend(picked.request.id());
        self.note.tries.push(TryNote {
            member: Arc::clone(&picked.request.member),
            why: picked.why,
            passed_over: picked.passed_over.clone(),
            is_hedge,
            micros: 0,
            end: TryEnd::GivenUp,
        });
    }

    /// Keeps a bad answer, which may be the best that the client can get, in the place of one before it.
    fn hold(&mut self, response: OriginResponse, request: MemberRequest) {
        self.bad.iter_mut().for_each(|before| before.response = None);
        self.bad.push(BadAnswer { request, response: Some(response) });
    }

    fn judge(&mut self, was_good_elsewhere: bool) {
        judge_bad_answers(self.bad.iter_mut().map(|bad| &mut bad.request), was_good_elsewhere);
    }

    fn refusal(&self, why: NoMember) -> UpstreamFault {
        let kind = match why {
            NoMember::Full => UpstreamFaultKind::Busy,
            NoMember::TakenOut | NoMember::AllTried => UpstreamFaultKind::NoMember,
        };
        UpstreamFault::new(kind, format!("no member of {} may be asked: {why}", self.config.name))
    }

    /// The fault of the last try, with the members that were tried.
    fn explained(&self, fault: UpstreamFault) -> UpstreamFault {
        let members: Vec<&str> = self.note.tries.iter().map(|each| each.member.name.as_str()).collect();
        let detail = match members.as_slice() {
            [only] => format!("{only}, a member of {}: {}", self.config.name, fault.detail),
            all => format!("of {}, {} were tried; the last one: {}", self.config.name, all.join(", "), fault.detail),
        };
        UpstreamFault { detail, ..fault }
    }

    /// The response for the client, at whose end the request is over.
    fn answer(&mut self, mut response: OriginResponse, request: MemberRequest) -> OriginResponse {
        if self.config.balance == Balance::Sticky
            && let Some(value) = request.cookie_value()
            && self.sticky.is_none_or(|sticky| format!("{sticky:016x}") != value)
        {
            let cookie = format!("{}={value}; Path=/; HttpOnly; SameSite=Lax", self.config.cookie);
            self.note.cookie = Some(cookie.into());
        }
        response.body.is_of(request);
        response
    }

    /// Sends the request, and a second one beside it where the first one is late.
    async fn send_with_hedge(
        &mut self,
        upstreams: &Upstreams,
        call: &Call<'_>,
        picked: Picked,
        body: Option<OutgoingBody>,
    ) -> Tried {
        let at = self.note.tries.len() - 1;
        let config = Arc::clone(&self.config);
        let Some(late_after) = self.may_be_hedged.then(|| self.group.late_after()).flatten() else {
            let tried = send(upstreams, call, &config, (picked.request, body)).await;
            return self.noted(at, tried);
        };
        let began = picked.request.sent();
        let mut first = pin!(send(upstreams, call, &config, (picked.request, body)));
        tokio::select! {
            biased;
            tried = &mut first => return self.noted(at, tried),
            () = sleep(late_after) => {}
        }
        let Some(second) = self.pick_hedge() else {
            let tried = first.await;
            return self.noted(at, tried);
        };
        let beside = self.note.tries.len() - 1;
        let second_began = second.request.sent();
        let mut second = pin!(send(upstreams, call, &config, (second.request, None)));
        let (won, loser, loser_began, other) = tokio::select! {
            biased;
            tried = &mut first => (self.noted(at, tried), beside, second_began, Other::Second),
            tried = &mut second => (self.noted(beside, tried), at, began, Other::First),
        };
        if matches!(won, Tried::Good(..)) {
            self.note.tries[loser].end = TryEnd::Outrun;
            self.note.tries[loser].micros = micros(loser_began);
            return won;
        }
        // The one that ended first is no answer to be content with: the other one decides.
        if let Tried::Bad(response, request) = won {
            self.hold(response, request);
        }
        let tried = match other {
            Other::First => first.await,
            Other::Second => second.await,
        };
        self.noted(loser, tried)
    }

    fn noted(&mut self, at: usize, tried: Tried) -> Tried {
        let note = &mut self.note.tries[at];
        note.end = match &tried {
            Tried::Good(response, request) | Tried::Bad(response, request) => {
                note.micros = micros(request.sent());
                TryEnd::Answered(response.head.status)
            }
            Tried::Failed(failed) => TryEnd::Failed(failed.fault.as_str()),
        };
        tried
    }

    async fn upgrade(
        &mut self,
        upstreams: &Upstreams,
        call: &Call<'_>,
        offer: &str,
    ) -> Result<Upgraded, UpstreamFault> {
        loop {
            let picked = self.pick().map_err(|why| self.refusal(why))?;
            let (mut request, at) = (picked.request, self.note.tries.len() - 1);
            let (fields, connected) = (fields_for(call, &request.member.host, &request), Cell::new(false));
            let on = |event| {
                connected.set(connected.get() || matches!(event, CallEvent::Connected { .. }));
                (call.on)(event);
            };
            let member = Arc::clone(&request.member);
            let mut own = call_to(call, &member, &fields, &on);
            match upstreams.upgrade_one(&mut own, offer).await {
                Ok(Upgraded::Switched(mut switched)) => {
                    request.succeeded();
                    self.note.tries[at].end = TryEnd::Answered(switched.head.status);
                    switched.permit.is_of(request);
                    return Ok(Upgraded::Switched(switched));
                }
                Ok(Upgraded::Declined(response)) => {
                    self.note.tries[at].end = TryEnd::Answered(response.head.status);
                    match self.config.eject.statuses.contains(&response.head.status) {
                        true => request.failed("its answers are errors"),
                        false => request.succeeded(),
                    }
                    return Ok(Upgraded::Declined(Box::new(self.answer(*response, request))));
                }
                Err(fault) => {
                    blame(&mut request, &fault);
                    self.note.tries[at].end = TryEnd::Failed(fault.as_str());
                    let may_go_on = !connected.get() && self.tried.len() < self.config.retry.tries_max;
                    if !may_go_on || !self.group.may_retry(&self.tried) {
                        return Err(self.explained(fault));
                    }
                }
            }
        }
    }
}

/// Which of two requests goes on.
enum Other {
    First,
    Second,
}

/// Sends a request to one member.
async fn send(
    upstreams: &Upstreams,
    call: &Call<'_>,
    config: &OriginGroup,
    (mut request, body): (MemberRequest, Option<OutgoingBody>),
) -> Tried {
    let (member, connected) = (Arc::clone(&request.member), Cell::new(false));
    let fields = fields_for(call, &member.host, &request);
    let on = |event| {
        connected.set(connected.get() || matches!(event, CallEvent::Connected { .. }));
        (call.on)(event);
    };
    let had_body = body.is_some();
    if had_body {
        request.has_body();
    }
    let mut own = Call { body, ..call_to(call, &member, &fields, &on) };
    let answered = upstreams.call_one(&mut own).await;
    let body = own.body.take();
    match answered {
        Ok(response) => {
            let status = response.head.status;
            if config.eject.statuses.contains(&status) {
                return Tried::Bad(response, request);
            }
            request.succeeded();
            match config.retry.statuses.contains(&status) {
                true => Tried::Bad(response, request),
                false => Tried::Good(response, request),
            }
        }
        Err(fault) => {
            blame(&mut request, &fault);
            let is_unsent = !connected.get() && (!had_body || body.is_some());
            Tried::Failed(TryFault { fault, is_unsent, body })
        }
    }
}

/// Tells the group of a fault, unless it is this side's.
fn blame(request: &mut MemberRequest, fault: &UpstreamFault) {
    match fault.kind {
        UpstreamFaultKind::Busy
        | UpstreamFaultKind::ClientBusy
        | UpstreamFaultKind::Shed
        | UpstreamFaultKind::ClientGone
        | UpstreamFaultKind::OutOfReach => request.excused(),
        _ => request.failed(&fault.to_string()),
    }
}

/// The same request to a member.
fn call_to<'c>(call: &Call<'c>, member: &'c OriginMember, fields: &'c Fields, on: &'c dyn Fn(CallEvent)) -> Call<'c> {
    let OriginMember { url, sni, http2, proxy_protocol, .. } = member;
    Call {
        to: url,
        tls_name: sni.as_ref(),
        method: call.method,
        target: call.target,
        fields,
        body: None,
        reach: call.reach,
        client: call.client,
        priority: call.priority,
        begins: Instant::now(),
        silent_for: call.silent_for,
        http2: http2.unwrap_or(call.http2),
        proxy_protocol: *proxy_protocol,
        proxied: call.proxied,
        on,
    }
}

/// The fields as a member gets them.
fn fields_for<'c>(call: &Call<'c>, host: &MemberHost, request: &MemberRequest) -> Cow<'c, Fields> {
    let own = match host {
        MemberHost::Client => return Cow::Borrowed(call.fields),
        MemberHost::Own => request.member.url.authority(),
        MemberHost::Named(name) => name.clone(),
    };
    let mut fields = call.fields.clone();
    fields.set("Host", own);
    Cow::Owned(fields)
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// The hash by which a request is led to a member.
fn hash_of(key: &BalanceKey, call: &Call<'_>) -> u64 {
    match key {
        BalanceKey::Url => {
            let host = call.fields.get("Host").unwrap_or_default().to_ascii_lowercase();
            hash_with(hash(&host), call.target.as_bytes())
        }
        BalanceKey::Client => call.client.map_or(0, |client| hash(&client.octets())),
        BalanceKey::Field(name) => call.fields.get(name).map_or(0, hash),
        BalanceKey::Cookie(name) => cookie(call.fields, name).map_or(0, hash),
    }
}

/// The member that the client's cookie names, where the group is sticky.
fn cookie_of(config: &OriginGroup, fields: &Fields) -> Option<u64> {
    if config.balance != Balance::Sticky {
        return None;
    }
    let value = cookie(fields, &config.cookie).filter(|value| value.len() == 16)?;
    u64::from_str_radix(std::str::from_utf8(value).ok()?, 16).ok()
}

/// The value of a cookie of a request (RFC 6265 section 4.2).
fn cookie<'f>(fields: &'f Fields, name: &str) -> Option<&'f [u8]> {
    let pairs = fields.get_all("Cookie").flat_map(|line| line.split(|byte| *byte == b';'));
    pairs.map(<[u8]>::trim_ascii).find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}
