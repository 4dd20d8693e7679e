//! Hooks that work on the head of an origin's answer, before the caching rules see it.

use super::ask::OriginAnswer;
use super::{Fetch, Keepable};
use crate::hook::{AnswerFacts, Decided, FailedCall, FetchedEffects, change_fields};
use crate::rules::{HookedBy, Route};
use larder_cache::policy::HookTerms;
use larder_cache::store::rules::{Force, Scope};
use larder_cache::tags;
use larder_wire::{Fields, ResponseHead};
use std::time::Duration;

/// The word of hooks about an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hooked {
    /// The caching rules decide.
    GoesOn,
    /// It is for this client alone.
    NotStored,
}

impl Fetch {
    /// Whether the answer may be stored, after the hooks of the site have worked on its head.
    pub(super) async fn keepable_after_hooks(&self, answer: &mut OriginAnswer) -> Keepable {
        self.apply_rules(&mut answer.head);
        // Boxed, because it is rare.
        if let Some(hooked) = &self.ask.hooked_by
            && Box::pin(self.ask_hooks(hooked, &mut answer.head)).await == Hooked::NotStored
        {
            return Keepable::NotByHook;
        }
        self.keepable(answer)
    }

    /// Lets the hooks of the site work on the head of an answer. Where one fails, the answer goes to its client as it came, and is
    /// not stored: what the script would have said of its lifetime is not known.
    async fn ask_hooks(&self, hooked: &HookedBy, head: &mut ResponseHead) -> Hooked {
        // A rule that is gone, at a reload for a moment, is not taken to say nothing.
        let Some(mount) = self.env.upstreams.mounts().find(&hooked.host) else { return Hooked::NotStored };
        let name = self.notes.request.get().map(|number| self.env.common.names.name(number).to_string());
        let about = AnswerFacts {
            request: &self.request,
            url: &self.ask.url,
            client: self.client.ip(),
            name: name.as_deref().unwrap_or_default(),
            answer: (head.status, &head.fields),
            hit: None,
        };
        match self.env.hooks.ask_about::<FetchedEffects>(&mount, &about).await {
            Ok(None) => Hooked::GoesOn,
            Ok(Some(Decided { effects, note, .. })) => {
                self.notes.by_hook.replace(Some(Box::new(note)));
                let is_authorized = self.request.fields.contains("Authorization");
                let speaks_for = match self.ask.route {
                    Route::Site { .. } => SpeaksFor::Origin,
                    Route::Forward(_) | Route::Destination(..) => SpeaksFor::Clients,
                };
                self.terms_by_hook.set(apply(&effects, head, (speaks_for, is_authorized)));
                self.purge_tags(&effects.purge_tags).await;
                if effects.passes { Hooked::NotStored } else { Hooked::GoesOn }
            }
            Err(FailedCall { note, .. }) => {
                let did = format!("{}: not stored", note.did);
                self.notes.by_hook.replace(Some(Box::new(note.did(&did))));
                Hooked::NotStored
            }
        }
    }

    /// Forgets the stored responses with these tags. That is on disk before the answer goes to its client, who may look at once for
    /// what it changed.
    async fn purge_tags(&self, named: &[String]) {
        if !named.is_empty() {
            let scopes = named.iter().map(|tag| Scope::Tag(tags::hash(tag.as_bytes())));
            let cache = &self.env.common.cache;
            let purged = cache.purge(scopes, Force::Hard).finish().await;
            if !purged.durable && cache.disk().is_some() {
                tracing::warn!("a purge of {} by a hook holds, but a power cut may undo it", named.join(", "));
            }
        }
    }
}

/// Whom the operator speaks for by a hook.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SpeaksFor {
    /// For the origin, at a site.
    Origin,
    /// For the clients, at the forward proxy.
    Clients,
}

/// Changes a head. On a site a lifetime is said in a field for caches that act for the origin (RFC 9213), so that browsers go on by
/// what the origin says, and it counts for no answer that the origin keeps to one client: a script that wants that has to take off what
/// the origin said. At the forward proxy it is given back, for the store alone, which looks at who asked and what the origin said.
pub(super) fn apply(
    effects: &FetchedEffects,
    head: &mut ResponseHead,
    (speaks_for, is_authorized): (SpeaksFor, bool),
) -> Option<HookTerms> {
    change_fields(&mut head.fields, &effects.set, &effects.remove);
    for tag in &effects.tags {
        head.fields.push("Surrogate-Key", tag);
    }
    if effects.ttl.is_none() && effects.grace.is_none() {
        return None;
    }
    if speaks_for == SpeaksFor::Clients {
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs());
        return Some(HookTerms { ttl_seconds: seconds(effects.ttl), grace_seconds: seconds(effects.grace) });
    }
    if is_authorized || is_kept_to_one(&head.fields) {
        return None;
    }
    let mut said = Vec::new();
    match effects.ttl {
        Some(ttl) => said.push(format!("max-age={}", ttl.as_secs())),
        None => said.extend(lifetime(&head.fields)),
    }
    if let Some(grace) = effects.grace {
        let seconds = grace.as_secs();
        said.push(format!("stale-while-revalidate={seconds}, stale-if-error={seconds}"));
    }
    head.fields.set(TARGETED, said.join(", "));
    None
}

/// The field that a cache of sites obeys before `Cache-Control`.
pub(super) const TARGETED: &str = "CDN-Cache-Control";

/// Whether the origin says that the answer is for one client, or not to be stored.
fn is_kept_to_one(fields: &Fields) -> bool {
    let forbids = |member: &[u8]| {
        let name = member.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii();
        ["private", "no-store", "no-cache"].iter().any(|word| name.eq_ignore_ascii_case(word.as_bytes()))
    };
    fields.contains("Set-Cookie") || ["Cache-Control", TARGETED].iter().any(|name| fields.members(name).any(forbids))
}

/// The lifetime that the origin gives, where only the grace is changed.
fn lifetime(fields: &Fields) -> Option<String> {
    let value = |wanted: &str| {
        ["Cache-Control"].iter().flat_map(|name| fields.members(name)).find_map(|member| {
            let text = std::str::from_utf8(member).ok()?;
            let (name, value) = text.split_once('=')?;
            name.trim().eq_ignore_ascii_case(wanted).then(|| value.trim().trim_matches('"').parse::<u64>().ok())?
        })
    };
    value("s-maxage").or_else(|| value("max-age")).map(|seconds| format!("max-age={seconds}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(effects: &FetchedEffects, fields: &[(&str, &str)], is_authorized: bool) -> String {
        let mut head = ResponseHead::new(200);
        fields.iter().for_each(|(name, value)| head.fields.push(name, value));
        assert_eq!(apply(effects, &mut head, (SpeaksFor::Origin, is_authorized)), None);
        let lines = head.fields.iter().map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value)));
        lines.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn a_lifetime_is_said_to_caches_and_never_against_the_word_of_the_origin() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let ttl = FetchedEffects { ttl: seconds(30), ..FetchedEffects::default() };
        let both = FetchedEffects { grace: seconds(300), ..ttl.clone() };
        let grace = FetchedEffects { grace: seconds(9), ..FetchedEffects::default() };
        let said = "CDN-Cache-Control: max-age=30";
        assert_eq!(applied(&ttl, &[], false), said);
        assert_eq!(applied(&both, &[], false), format!("{said}, stale-while-revalidate=300, stale-if-error=300"));
        assert_eq!(applied(&ttl, &[("CDN-Cache-Control", "max-age=1")], false), said);
        let kept =
            "Cache-Control: max-age=60; CDN-Cache-Control: max-age=60, stale-while-revalidate=9, stale-if-error=9";
        assert_eq!(applied(&grace, &[("Cache-Control", "max-age=60")], false), kept);
        assert_eq!(applied(&ttl, &[], true), "", "an answer to somebody who logged in");
        for (name, value) in [
            ("Cache-Control", "private"),
            ("Cache-Control", "max-age=5, No-Store"),
            ("Cache-Control", "no-cache"),
            ("Cache-Control", "private=\"x\""),
            ("CDN-Cache-Control", "no-store"),
            ("Set-Cookie", "a=b"),
        ] {
            assert_eq!(applied(&ttl, &[(name, value)], false), format!("{name}: {value}"));
        }
        let explicit = FetchedEffects { remove: vec!["cache-control".into(), "set-cookie".into()], ..ttl };
        assert_eq!(applied(&explicit, &[("Cache-Control", "private"), ("Set-Cookie", "a=b")], false), said);
    }

    #[test]
    fn at_the_forward_proxy_a_lifetime_is_for_the_store_alone() {
        let (ttl, grace) = (Some(Duration::from_secs(30)), Some(Duration::from_secs(300)));
        let effects = FetchedEffects { ttl, grace, ..FetchedEffects::default() };
        let given = |name: &str, value: &str, is_authorized| {
            let mut head = ResponseHead::new(200);
            head.fields.push(name, value);
            let terms = apply(&effects, &mut head, (SpeaksFor::Clients, is_authorized));
            assert_eq!(head.fields.iter().count(), 1, "the client sees what the origin said");
            terms
        };
        let terms = Some(HookTerms { ttl_seconds: Some(30), grace_seconds: Some(300) });
        assert_eq!(given("Cache-Control", "max-age=5", false), terms);
        // The store cuts a life short whoever asked, and prolongs none that is for one client.
        assert_eq!(given("Cache-Control", "max-age=5", true), terms);
        assert_eq!(given("Cache-Control", "private", false), terms);
        assert_eq!(given("Set-Cookie", "a=b", false), terms);
    }

    #[test]
    fn fields_and_tags_are_changed() {
        let effects = FetchedEffects {
            tags: vec!["api".into(), "news".into()],
            set: vec![("x-a".into(), b"1".to_vec()), ("x-a".into(), b"2".to_vec())],
            remove: vec!["server".into()],
            ..FetchedEffects::default()
        };
        let head = applied(&effects, &[("Server", "s"), ("X-A", "0"), ("Surrogate-Key", "own")], false);
        assert_eq!(head, "Surrogate-Key: own; x-a: 1; x-a: 2; Surrogate-Key: api; Surrogate-Key: news");
    }
}
