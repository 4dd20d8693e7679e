//! Services of ICAP that look at an origin's answer before it is stored (`respmod-store`): the store has what they gave.

use super::ask::OriginAnswer;
use super::{Fetch, Keepable};
use crate::config::python::OnFailure;
use crate::config::{Icap, IcapStage};
use crate::env::Env;
use crate::icap::{self, AuthorizationFor, Body, Carried, Judged, Origin, Question, Service, Trouble, Word};
use crate::record::IcapDid;
use crate::rules::Ask;
use crate::upstream::{BodySource, UpstreamFault, UpstreamFaultKind};
use larder_cache::policy::Storable;
use larder_wire::credential::is_credential;
use larder_wire::{Method, RequestHead, ResponseHead};
use std::sync::Arc;
use tokio::time::Instant;

/// The services of one stage for requests of this method to this host.
pub fn icap_services(env: &Env, stage: IcapStage, method: &Method, ask: &Ask) -> Vec<Arc<Icap>> {
    let config = env.config();
    let is_meant = |icap: &&Arc<Icap>| icap.stage == stage && icap.is_for(method, &ask.url.host);
    config.icaps.iter().filter(is_meant).cloned().collect()
}

/// Whether a service looks at the answers to such requests: then wholes are fetched, and no parts. A service can't judge a part,
/// and nobody may put parts of an original to parts of a changed body.
pub fn is_judged(env: &Env, method: &Method, ask: &Ask) -> bool {
    let config = env.config();
    let is_meant = |icap: &Arc<Icap>| icap.stage != IcapStage::Reqmod && icap.is_for(method, &ask.url.host);
    !config.icaps.is_empty() && config.icaps.iter().any(is_meant)
}

/// The fate of a message that a service was not asked about.
pub enum WithoutService {
    /// It goes on: the service is not for it.
    NotMeant,
    /// It goes on, and is longer than the service takes.
    TooLong,
    /// It goes on unjudged.
    Passes,
    /// It is denied.
    Denied(UpstreamFault),
}

/// Whether a service is to be asked about a body of this type and length.
pub fn before_question(icap: &Icap, content_type: Option<&[u8]>, length: Option<u64>) -> Result<(), WithoutService> {
    if !icap.is_for_type(content_type) {
        return Err(WithoutService::NotMeant);
    }
    match length.is_some_and(|length| icap.is_too_long(length)) {
        false => Ok(()),
        true if icap.on_longer_body == OnFailure::Pass => Err(WithoutService::TooLong),
        true => Err(WithoutService::Denied(fault_of(icap, &Trouble::TooLong.to_string()))),
    }
}

/// A fault of the service, as a fetch has it.
pub fn fault_of(icap: &Icap, trouble: &str) -> UpstreamFault {
    UpstreamFault::new(UpstreamFaultKind::Icap, format!("icap service {}: {trouble}", icap.name))
}

/// A request as services see it, which was judged so. Credentials that rules and hooks give an origin are none of the client's, and
/// no matter of a service.
pub fn request_for_service(request: &RequestHead, ask: &Ask) -> RequestHead {
    let authorization = match ask.consumes_authorization() {
        true => AuthorizationFor::Larder,
        false => AuthorizationFor::Origin,
    };
    let mut seen = icap::request_for_service(request, authorization);
    for name in ask.names_set().filter(|name| is_credential(name)) {
        seen.fields.remove(name);
    }
    seen
}

/// The body of an answer that a service looked at, for the one who takes it.
pub fn source_of(body: Body) -> BodySource {
    let Body { held, origin, end, length, fault } = body;
    let mut source = match origin {
        Origin::Answer(source) => *source,
        Origin::Pieces(pieces) if end.is_none() => BodySource::of_pieces(pieces, fault.unwrap_or_default(), length),
        Origin::Pieces(_) | Origin::None => BodySource::of_length(length),
    };
    source.put_back(held, end);
    source
}

/// The body of a service's answer to a request or response of this method; `None` where such an answer has none.
pub fn source_of_reply(head: &ResponseHead, method: &Method, carried: Option<Carried>) -> BodySource {
    let carried = carried.filter(|_| *method != Method::Head && !matches!(head.status, 204 | 304));
    match carried {
        None => BodySource::empty(),
        Some(Carried { pieces, fault }) => BodySource::of_pieces(pieces, fault, icap::content_length(&head.fields)),
    }
}

/// The result of asking all services about an answer.
struct Outcome {
    keepable: Keepable,
    is_changed: bool,
    /// A service gave its word about this answer: no other answer may take its place.
    is_judged: bool,
    /// The marks of the servers that looked at it.
    marks: Vec<Box<str>>,
}

/// How the services go on after one of them.
enum Next {
    /// With the one behind it.
    Service,
    /// From the first one on, but for it: the answer is another one now.
    NewAnswer,
}

impl Fetch {
    /// Whether a service looks at answers to this request.
    pub(super) fn is_judged(&self) -> bool {
        is_judged(&self.env, &self.request.method, &self.ask)
    }

    /// Lets the services look at an answer. Gives whether it may be stored, and whether its body is another one now.
    pub(super) async fn past_icap(
        &mut self,
        answer: &mut OriginAnswer,
        keepable: Keepable,
    ) -> Result<(Keepable, bool), UpstreamFault> {
        if self.env.config().icaps.is_empty() {
            return Ok((keepable, false));
        }
        // Boxed, because it is rare.
        let Outcome { keepable, is_changed, .. } = Box::pin(self.ask_services(answer, keepable)).await?;
        Ok((keepable, is_changed))
    }

    async fn ask_services(&mut self, answer: &mut OriginAnswer, keepable: Keepable) -> Result<Outcome, UpstreamFault> {
        let mut outcome = Outcome { keepable, is_changed: false, is_judged: false, marks: Vec::new() };
        // Without a body there is nothing to look at, and a 304 is about a response that was looked at.
        if self.request.method == Method::Head || answer.head.status == 304 {
            return Ok(outcome);
        }
        let mut services = icap_services(&self.env, IcapStage::RespmodStore, &self.request.method, &self.ask);
        let mut at = 0;
        while let Some(icap) = services.get(at) {
            let service = self.env.common.icap.of(icap);
            match self.ask_service(&service, answer, &mut outcome).await? {
                Next::Service => at += 1,
                Next::NewAnswer if answer.head.status == 304 => break,
                Next::NewAnswer => {
                    services.remove(at);
                    at = 0;
                }
            }
        }
        if self.kind.is_shared() {
            // Pushed at the end: the head that a service gives need not have the marks of others.
            outcome.marks.iter().for_each(|mark| answer.head.fields.push(icap::MARK_FIELD, &**mark));
        }
        Ok(outcome)
    }

    async fn ask_service(
        &mut self,
        service: &Service,
        answer: &mut OriginAnswer,
        outcome: &mut Outcome,
    ) -> Result<Next, UpstreamFault> {
        let (icap, began) = (&*service.settings, Instant::now());
        let wanted = match answer.head.status {
            206 => Err(unjudged(icap, "a part of an object can't be judged")),
            _ => before_question(icap, answer.head.fields.get("Content-Type"), answer.body.length()),
        };
        if let Err(without) = wanted {
            return self.goes_on_without(service, without, began, outcome).map(|()| Next::Service);
        }
        let (request, target) = (request_for_service(&self.request, &self.ask), self.ask.url.to_string());
        let response = icap::response_for_service(&answer.head);
        let question = Question { request: &request, target: &target, response: Some(&response), client: None };
        let body = Body::of_answer(std::mem::replace(&mut answer.body, BodySource::empty()));
        let (note, word) = service.ask(&self.env.upstreams, &question, body).await;
        self.notes.by_icap.borrow_mut().push(note);
        let Word { judged, by } = match word {
            Ok(word) => word,
            Err(failed) => return self.after_failure(service, failed, answer, outcome).await,
        };
        match judged {
            Judged::Unchanged(body) => answer.body = source_of(body),
            Judged::Response(mut head, carried) => {
                icap::mend_response(&answer.head, &mut head);
                if !self.is_storable(&answer.head, answer) {
                    // The service may have left out that the answer is for one client alone.
                    outcome.keepable = outcome.keepable.or(Keepable::NotByIcap);
                }
                answer.body = source_of_reply(&head, &self.request.method, carried);
                answer.head = *head;
                outcome.is_changed = true;
            }
            Judged::Request(..) => return Err(fault_of(icap, "it gave a request for a response")),
        }
        outcome.is_judged = true;
        outcome.marks.push(by.mark().into());
        Ok(Next::Service)
    }

    /// The answer goes on as it came, where the settings say so and it is still here or can be had again. That would be another answer, so the
    /// origin is not asked again where a service has given its word about this one.
    async fn after_failure(
        &mut self,
        service: &Service,
        failed: icap::Failed,
        answer: &mut OriginAnswer,
        outcome: &mut Outcome,
    ) -> Result<Next, UpstreamFault> {
        let icap = &*service.settings;
        let is_of_message = matches!(failed.trouble, Trouble::Source(_) | Trouble::TooLong);
        if icap.on_failure == OnFailure::Deny || is_of_message {
            return Err(failed.into_fault(&icap.name));
        }
        let next = match failed.body {
            Some(body) => {
                answer.body = source_of(*body);
                Next::Service
            }
            None if !outcome.is_judged && self.may_ask_anew() => {
                *answer = self.ask_anew().await?;
                outcome.keepable = self.keepable_after_hooks(answer).await;
                Next::NewAnswer
            }
            None => return Err(fault_of(icap, &failed.trouble.to_string())),
        };
        self.goes_on_without(service, WithoutService::Passes, Instant::now(), outcome).map(|()| next)
    }

    fn goes_on_without(
        &self,
        service: &Service,
        without: WithoutService,
        began: Instant,
        outcome: &mut Outcome,
    ) -> Result<(), UpstreamFault> {
        let why = match without {
            WithoutService::NotMeant => return Ok(()),
            WithoutService::Denied(fault) => return Err(fault),
            WithoutService::TooLong => "its body is longer than `body_bytes_max`",
            WithoutService::Passes => {
                outcome.keepable = outcome.keepable.or(Keepable::NotByIcap);
                "it goes on unjudged, and is not stored"
            }
        };
        let note = service.note(IcapDid::Bypassed, began, true, Some(why));
        self.notes.by_icap.borrow_mut().push(note);
        Ok(())
    }

    /// Whether the origin can be asked a second time, because the first answer went into a service that failed.
    fn may_ask_anew(&self) -> bool {
        self.request.method.is_safe() && self.body.is_none() && self.posted.is_none()
    }

    /// Whether the origin's own answer might be stored.
    fn is_storable(&self, head: &ResponseHead, answer: &OriginAnswer) -> bool {
        let mut head = head.clone();
        larder_cache::policy::dated(&mut head, answer.times.received);
        let by_rule = self.policy_by_rule(&head);
        let settings = by_rule.as_ref().unwrap_or_else(|| self.policy());
        matches!(self.storable(&mut head, answer.times, settings), Storable::Yes(_))
    }
}

impl Keepable {
    /// This, unless there is another reason already.
    fn or(self, why: Keepable) -> Keepable {
        if self == Keepable::Yes { why } else { self }
    }
}

/// The fate of an answer that the service can't judge.
fn unjudged(icap: &Icap, why: &str) -> WithoutService {
    match icap.on_failure {
        OnFailure::Pass => WithoutService::Passes,
        OnFailure::Deny => WithoutService::Denied(fault_of(icap, why)),
    }
}

/// Takes the range off a request whose answer is judged as a whole.
pub(super) fn ask_judged_whole(request: &RequestHead, fields: &mut larder_wire::Fields) {
    if request.fields.contains("Range") {
        fields.remove("Range");
        fields.remove("If-Range");
    }
}
