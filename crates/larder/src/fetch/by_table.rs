//! The word of the table of rules about how an answer is stored, put into its head before the caching rules see it.

use super::hooked::{self, SpeaksFor, TARGETED};
use crate::hook::FetchedEffects;
use crate::rules::Storing;
use larder_cache::policy;
use larder_wire::ResponseHead;

/// Says in the head what the rules say of storing. A lifetime stands in a field for caches that act for the origin (RFC 9213), so that
/// browsers go on by what the origin says; that field counts before `Cache-Control`, so that with `public` in it nothing else does.
pub fn apply(storing: &Storing, head: &mut ResponseHead, is_authorized: bool) {
    let effects = FetchedEffects {
        ttl: storing.lifetime.filter(|_| !storing.even_if_private),
        grace: storing.grace.filter(|_| !storing.even_if_private),
        tags: storing.tags.iter().map(ToString::to_string).collect(),
        ..FetchedEffects::default()
    };
    // Said in the field, which `policy` has read for this answer, wherever it was asked for.
    let _ = hooked::apply(&effects, head, (SpeaksFor::Origin, is_authorized));
    if let Some(lifetime) = storing.lifetime.filter(|_| storing.even_if_private) {
        let mut said = format!("public, max-age={}", lifetime.as_secs());
        if let Some(grace) = storing.grace {
            let seconds = grace.as_secs();
            said.push_str(&format!(", stale-while-revalidate={seconds}, stale-if-error={seconds}"));
        }
        head.fields.set(TARGETED, said);
    }
}

/// The caching rules for an answer of which rules say how long it is fresh.
pub fn policy(storing: &Storing, usual: &policy::Settings) -> Option<policy::Settings> {
    let says = storing.lifetime.is_some() || storing.grace.is_some();
    says.then(|| policy::Settings { targeted: vec![TARGETED.to_owned()], ..usual.clone() })
}
