//! Rules: what is done with a request, decided before anything is looked up. A rule reads `Facts` and nothing else; the facts
//! note which of them were read, and a [`JudgeMemo`] or [`RefusalMemo`] holds for a later request only where all of these are the same.

mod ask;
mod by_hook;
mod by_people;
mod by_rule;
mod by_table;
mod credential;
mod facts;
mod form_parts;
mod gate;
mod handing_out;
mod hooked;
mod judge;
mod login_form;
mod login_found;
mod login_page;
mod memo;
mod mirror;
mod need;
mod own_cookies;
mod pages;
mod pass_through;
mod route;
mod sent_form;
mod supposed;
mod table;
#[cfg(test)]
mod tests_of_people;
mod transparent;

use crate::record::Number;
pub use crate::record::Rule;
pub use ask::{Ask, Route};
pub use by_hook::{ByHook, HookedAnswer, HookedBy};
pub use by_people::ByPeople;
pub use by_rule::ByRule;
pub use by_table::{AnswerChanges, ByTable, Limited, Storing};
use facts::{Editions, Facts};
pub use facts::{FactsRead, PeopleScene, Scene};
pub use form_parts::{FORM_BYTES_MAX, unreadable_form};

pub use handing_out::{leads_to, store_rules};
pub use hooked::{denied as denied_by_hook, may_go_on, page as page_of_hook};
pub use judge::{TunnelFor, Verdict};
pub use memo::{JudgeMemo, NotRemembered, RefusalMemo};
pub use mirror::{Mirrored, REGISTRY, goes_to_origin};
pub use need::{FoundFacts, Need};
pub use pages::{fault_page, out_of_reach};
pub use sent_form::SentForm;

use crate::env::{Env, PeerFacts};
use crate::hook::{CallEnd, MadeCall};
use larder_wire::RequestHead;
use need::NEEDS_MAX;
use pages::undecided;

/// Judges a request that came on this connection by the settings in force; gives the verdict with the facts that it depended on.
pub fn judge_noting(env: &Env, peer: &PeerFacts, request: &RequestHead) -> (Verdict, FactsRead) {
    judge_keeping(env, peer, request, FoundFacts::default())
}

/// Judges a request by these facts, which go on with the verdict where that needs a further one.
fn judge_keeping(env: &Env, peer: &PeerFacts, request: &RequestHead, found: FoundFacts) -> (Verdict, FactsRead) {
    let (verdict, read) = judge_with(env, peer, request, &found);
    match verdict {
        Verdict::Needs(need, _) => (Verdict::Needs(need, Box::new(found)), read),
        verdict => (verdict, read),
    }
}

/// Judges a request that came on this connection by the settings in force.
pub fn judge(env: &Env, peer: &PeerFacts, request: &RequestHead) -> Verdict {
    judge_noting(env, peer, request).0
}

/// Judges a request and waits for the facts that the verdict needs; `verdict` is one that was given before, `number` that of the
/// request. Other requests of the worker are served meanwhile. Never gives [`Verdict::Needs`].
pub async fn judge_and_wait(
    env: &Env,
    peer: &PeerFacts,
    (request, number): (&RequestHead, Number),
    verdict: Option<Verdict>,
) -> Verdict {
    let verdict = verdict.unwrap_or_else(|| judge(env, peer, request));
    let Verdict::Needs(mut need, mut found) = verdict else { return verdict };
    let name = env.common.names.name(number).to_string();
    let without_cookies = own_cookies::without(env, peer, request);
    let seen = without_cookies.as_deref().unwrap_or(request);
    for _ in 0..NEEDS_MAX {
        // Boxed, because it is rare and large.
        Box::pin(need.find_out((env, peer), (seen, &name), &mut found)).await;
        match judge_with(env, peer, request, &found).0 {
            Verdict::Needs(next, _) => need = next,
            verdict => return verdict,
        }
    }
    Verdict::Answer(undecided())
}

/// [`judge_and_wait`] for a request that takes the place of one that was allowed as `before`: its rates have counted, and its logins were
/// asked.
pub async fn judge_changed_and_wait(
    env: &Env,
    peer: &PeerFacts,
    (request, number): (&RequestHead, Number),
    before: &Ask,
) -> Verdict {
    let (verdict, _) = judge_keeping(env, peer, request, FoundFacts::after(before.people.as_deref()));
    judge_and_wait(env, peer, (request, number), Some(verdict)).await
}

/// Asks hooks for the decision that a verdict needs, without a wait; `None` where it needs anything else, or they can't be asked at once.
pub fn ask_at_once(
    env: &Env,
    peer: &PeerFacts,
    (request, number): (&RequestHead, Number),
    verdict: &mut Verdict,
) -> Option<MadeCall> {
    let Verdict::Needs(Need::Hooks(need), found) = verdict else { return None };
    found.request = env.common.names.name(number).to_string();
    need.ask_at_once(env, peer.address.ip(), (request, &found.request))
}

/// Judges a request again whose hooks were asked by [`ask_at_once`]. Without facts it is the verdict of before: they have to be asked again.
pub fn judge_replied(
    env: &Env,
    peer: &PeerFacts,
    request: &RequestHead,
    (verdict, end): (Verdict, CallEnd),
) -> (Verdict, Option<FactsRead>) {
    let Verdict::Needs(Need::Hooks(mut need), mut found) = verdict else { return (verdict, None) };
    match need.take_reply(env, peer.address.ip(), (request, &found.request), end) {
        None => (Verdict::Needs(Need::Hooks(need), found), None),
        reply => {
            found.hook = reply;
            let (verdict, read) = judge_keeping(env, peer, request, *found);
            (verdict, Some(read))
        }
    }
}

fn judge_with(env: &Env, peer: &PeerFacts, request: &RequestHead, found: &FoundFacts) -> (Verdict, FactsRead) {
    let (config, own) = (env.config(), env.own_addresses());
    let lists = env.lists();
    let editions = Editions {
        settings: env.edition(),
        own_addresses: env.own_addresses_edition(),
        people: env.common.people.edition(),
        sessions_ended: env.common.people.sessions_ended(),
        lists: env.lists_edition(),
    };
    let listener = &peer.listener;
    let scene = Scene {
        config: &config,
        origin: listener.origin.as_ref(),
        forwards: listener.in_force().forwarding.beside(&config.sites),
        mirroring: listener.in_force().mirroring.beside(&config.sites),
        mirror_hosts: &listener.in_force().mirroring.names,
        asker: listener.asker,
        own: &own,
        inside: peer.inside.as_deref(),
        destination: peer.destination(),
        is_passed_through: peer.is_passed_through,
        client: peer.address.ip(),
        certificate: peer.certificate.as_deref(),
        sni: peer.sni.as_deref(),
        asks_for_other_certificates: listener.asks_for_other_certificates(),
        scheme: peer.scheme,
        via_name: &env.common.via_name,
        found,
        for_run: listener.run.is_some(),
        handed_out: Some(&env.common.handed_out),
        credentials: Some(&env.common.credential_secret),
        mounts: Some(env.upstreams.mounts()),
        hook_lines: Some(&env.hooks),
        lists: Some(&**lists),
        listener: listener.address,
        challenges: Some(&env.common.site_certificates),
        rates: Some(&env.common.rates),
        supposed: &[],
        people: Some(PeopleScene {
            people: &env.common.people,
            user: peer.tunnel_user(),
            connection: &peer.login,
            client: peer.address,
            listener: listener.address.unwrap_or(peer.address),
            fields: &request.fields,
        }),
    };
    let without_cookies = own_cookies::without(env, peer, request);
    let mut facts = Facts::of(scene, without_cookies.as_deref().unwrap_or(request));
    facts.note_cookies();
    let mut verdict = judge::judge(&mut facts);
    let read = facts.read(editions);
    if let (Some(without), Verdict::Allow(ask)) = (without_cookies, &mut verdict) {
        ask.people.get_or_insert_default().without_cookies = Some(without);
    }
    (verdict, read)
}
