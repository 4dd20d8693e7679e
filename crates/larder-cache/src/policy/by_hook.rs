//! Lifetimes by hooks of the forward proxy: the operator's word about answers of origins that are not his.
//!
//! It counts against the lifetime that the origin gives, longer or shorter, and takes nothing back that the origin says of who may have
//! an answer. To the answer to a request that may say who asks ([`may_say_who_asks`]) it gives no longer life and no grace: of foreign
//! origins nobody here knows which answers are for one user. A shorter life counts whoever asks, so that no client makes an answer live
//! longer for all than the operator wants. (On a site the operator speaks for the origin, and a hook's lifetime is a targeted field.)

use super::freshness::LifetimeSource;
use super::{Grace, Settings, Terms, may_say_who_asks};
use larder_wire::directives::CacheControl;
use larder_wire::{RequestHead, ResponseHead};
use std::borrow::Cow;

/// The terms that hooks give to an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HookTerms {
    /// Seconds from its arrival on for which it is fresh.
    pub ttl_seconds: Option<u64>,
    /// Seconds after that for which it serves while it is validated, and in place of an error.
    pub grace_seconds: Option<u64>,
}

/// The settings for another answer about a stored response: terms that hooks gave hold until hooks say others.
pub(super) fn go_on<'a>(settings: &'a Settings, stored: &Terms) -> Cow<'a, Settings> {
    match stored.grace.as_ref().and_then(|grace| grace.hook()) {
        Some(hook) if settings.hook.is_none() => Cow::Owned(Settings { hook: Some(hook), ..settings.clone() }),
        _ => Cow::Borrowed(settings),
    }
}

/// Puts the terms of hooks in force, where the origin and the request permit it.
pub(super) fn give(
    terms: &mut Terms,
    asked: Option<&RequestHead>,
    response: &ResponseHead,
    control: &CacheControl,
    settings: &Settings,
) {
    let Some(mut hook) = settings.hook else { return };
    let lifetime = hook.ttl_seconds.map(|ttl| terms.initial_age.saturating_add(ttl));
    if is_for_all(asked, response, control) {
        if let Some(lifetime) = lifetime {
            terms.lifetime = lifetime;
            terms.source = LifetimeSource::Hook;
        }
    } else {
        let Some(shorter) = lifetime.filter(|it| *it < terms.lifetime) else { return };
        terms.lifetime = shorter;
        hook.grace_seconds = None;
    }
    // Kept beside them: a validation about which hooks say nothing leaves them in force.
    terms.grace = Some(Grace::with_hook(terms.grace.as_deref(), hook));
}

fn is_for_all(asked: Option<&RequestHead>, response: &ResponseHead, control: &CacheControl) -> bool {
    let is_kept_to_one = control.private.is_some() || control.no_store || control.no_cache.is_some();
    !is_kept_to_one
        && !response.fields.contains("Set-Cookie")
        && asked.is_some_and(|asked| !may_say_who_asks(&asked.fields))
}

#[cfg(test)]
mod tests {
    use super::super::{Storable, Times, completed, renew, storable};
    use super::*;
    use larder_wire::date::Stamp;
    use larder_wire::{Fields, Method, Target, Version};

    const BEGIN: Stamp = Stamp(1_000_000_000);

    fn request(asks: &[(&str, &str)]) -> RequestHead {
        let mut fields = Fields::new();
        asks.iter().for_each(|(name, value)| fields.push(name, *value));
        RequestHead::new(Method::Get, Target::Origin("/x".into()), Version::Http11, fields)
    }

    fn response(status: u16, says: &[(&str, &str)]) -> ResponseHead {
        let mut response = ResponseHead::new(status);
        says.iter().for_each(|(name, value)| response.fields.push(name, *value));
        response
    }

    fn hooked(ttl_seconds: Option<u64>, grace_seconds: Option<u64>) -> Settings {
        Settings { hook: Some(HookTerms { ttl_seconds, grace_seconds }), ..Settings::default() }
    }

    fn kept(settings: &Settings, asks: &[(&str, &str)], status: u16, says: &[(&str, &str)]) -> Option<Terms> {
        let times = Times { requested: BEGIN, received: BEGIN };
        match storable(&request(asks), &response(status, says), times, settings) {
            Storable::Yes(terms) => Some(terms),
            Storable::No(_) => None,
        }
    }

    #[test]
    fn a_hook_gives_lifetimes_and_takes_back_nothing_that_the_origin_says() {
        let minute = hooked(Some(60), None);
        let control = |value| [("Cache-Control", value)];
        for (asks, status, says, wanted) in [
            (&[][..], 200, &[][..], Some((60, "hook"))),
            (&[], 200, &control("max-age=3600"), Some((60, "hook"))),
            (&[], 200, &control("max-age=1"), Some((60, "hook"))),
            (&[], 200, &control("s-maxage=1"), Some((60, "hook"))),
            (&[], 404, &[], Some((60, "hook"))),
            (&[], 302, &[("Location", "/y")], Some((60, "hook"))),
            (&[], 503, &[], Some((60, "hook"))),
            // An age on arrival is not taken off: the hook speaks of the time from here on.
            (&[], 200, &[("Age", "500")], Some((560, "hook"))),
            (&[], 304, &[], None),
            (&[], 200, &control("private"), None),
            (&[], 200, &control("no-store, max-age=60"), None),
            (&[], 200, &control("no-cache"), None),
            (&[], 200, &[("Set-Cookie", "a=b")], None),
            (&[], 200, &[("Vary", "*")], None),
            (&[("Authorization", "Bearer x")], 200, &[], None),
            (&[("Cookie", "a=b")], 200, &[], None),
            (&[("X-Api-Key", "x")], 200, &control("max-age=5"), Some((5, "max-age"))),
            // A shorter life takes nothing from anybody.
            (&[("X-Api-Key", "x")], 200, &control("max-age=86400"), Some((60, "max-age"))),
            (&[("Cookie", "a=b")], 200, &control("max-age=86400"), Some((60, "max-age"))),
            (&[("Cookie", "a=b")], 200, &[("Age", "500"), ("Cache-Control", "max-age=86400")], Some((560, "max-age"))),
            (&[("Authorization", "Bearer x")], 200, &control("public, max-age=86400"), Some((60, "max-age"))),
            (&[("Authorization", "Bearer x")], 200, &control("public, max-age=5"), Some((5, "max-age"))),
        ] {
            let terms = kept(&minute, asks, status, says);
            let told = terms.map(|terms| (terms.lifetime, terms.source.as_str()));
            assert_eq!(told, wanted, "{asks:?} {status} {says:?}");
        }
        // Nobody who may say who he is gets what only the hook made fresh.
        let terms = kept(&minute, &[], 200, &[]).unwrap();
        assert!(terms.answers(&request(&[])) && !terms.answers(&request(&[("Cookie", "a=b")])));
        let never = kept(&hooked(Some(0), None), &[], 200, &control("max-age=60"));
        assert_eq!(never, None, "it is stale at once, and nothing can validate it");
    }

    #[test]
    fn a_client_who_may_say_who_he_is_gets_no_grace_of_a_hook_and_keeps_its_shorter_life() {
        let (cookie, tag) = (("Cookie", "a=b"), ("ETag", "\"a\""));
        let says = [tag, ("Cache-Control", "max-age=86400, stale-if-error=9")];
        let terms = kept(&hooked(Some(60), Some(300)), &[cookie], 200, &says).unwrap();
        assert_eq!((terms.lifetime, terms.stale_if_error(), terms.stale_while_revalidate()), (60, Some(9), None));
        let later = BEGIN.plus(100);
        let times = Times { requested: later, received: later };
        for (asks, source) in [(&[cookie][..], "max-age"), (&[], "hook")] {
            let stored = (&response(200, &says), &terms);
            let (_, again) =
                renew(&request(asks), stored, &response(304, &[tag]), times, &Settings::default()).unwrap();
            assert_eq!((again.lifetime, again.source.as_str()), (60, source), "hooks say nothing at the validation");
        }
    }

    #[test]
    fn a_part_that_fills_a_hole_keeps_the_time_that_a_hook_gave() {
        let says = [("ETag", "\"a\""), ("Age", "500"), ("Cache-Control", "max-age=1"), ("Content-Length", "9")];
        let stored = response(200, &says[..1]);
        let part_says = |age| [says[0], ("Content-Range", "bytes 0-3/9"), ("Cache-Control", "max-age=1"), ("Age", age)];
        let settings = hooked(Some(60), None);
        let terms = kept(&settings, &[], 200, &says).unwrap();
        assert_eq!((terms.lifetime, terms.remaining(BEGIN)), (560, 60));
        let later = BEGIN.plus(10);
        let times = Times { requested: later, received: later };
        // The part may say any age: the oldest part had 60 s, of which ten are over.
        for (settings, age, left) in [
            (&Settings::default(), "500", 50),
            (&Settings::default(), "0", 50),
            (&Settings::default(), "7000", 50),
            (&hooked(Some(5), None), "0", 5),
            (&hooked(Some(600), None), "0", 50),
        ] {
            let part = response(206, &part_says(age));
            let (_, filled) = completed(&request(&[]), (&stored, &terms), &part, times, settings).unwrap();
            assert_eq!((filled.remaining(later), filled.source.as_str()), (left, "hook"), "Age: {age}");
            // A validation about which hooks say nothing gives the whole time again.
            let whole = settings.hook.and_then(|hook| hook.ttl_seconds).unwrap_or(60);
            let renewed =
                renew(&request(&[]), (&stored, &filled), &response(304, &says[..1]), times, &Settings::default());
            assert_eq!(renewed.unwrap().1.remaining(later), i64::try_from(whole).unwrap());
        }
        // The first part came without a word of hooks: they count from here on.
        let own = kept(&Settings::default(), &[], 200, &[says[0], ("Cache-Control", "max-age=900")]).unwrap();
        let part = response(206, &part_says("0"));
        let (_, filled) = completed(&request(&[]), (&stored, &own), &part, times, &settings).unwrap();
        assert_eq!(filled.remaining(later), 60);
        // Nobody's life becomes longer by a hook who may say who he is.
        let cookie = request(&[("Cookie", "a=b")]);
        let (_, filled) = completed(&cookie, (&stored, &own), &part, times, &settings).unwrap();
        assert!(filled.remaining(later) < 0 && filled.source == LifetimeSource::MaxAge);
    }

    #[test]
    fn the_terms_of_a_hook_survive_a_validation_about_which_hooks_say_nothing() {
        let settings = hooked(Some(60), Some(300));
        let says = [("ETag", "\"a\""), ("Age", "7"), ("Cache-Control", "max-age=1, stale-if-error=1")];
        let terms = kept(&settings, &[], 200, &says).unwrap();
        assert_eq!(
            (terms.lifetime, terms.stale_if_error(), terms.stale_while_revalidate()),
            (67, Some(300), Some(300))
        );
        let later = BEGIN.plus(100);
        let times = Times { requested: later, received: later };
        let renewed = |settings: &Settings, says: &[(&str, &str)]| {
            let stored = (&response(200, &[("ETag", "\"a\"")]), &terms);
            renew(&request(&[]), stored, &response(304, says), times, settings).map(|(_, terms)| terms)
        };
        let (tag, own) = (("ETag", "\"a\""), Settings::default());
        let again = renewed(&own, &[tag, ("Age", "2"), ("Cache-Control", "max-age=1")]).unwrap();
        assert_eq!((again.lifetime, again.source.as_str(), again.stale_if_error()), (62, "hook", Some(300)));
        let changed = renewed(&hooked(Some(5), None), &[tag]).unwrap();
        assert_eq!((changed.lifetime, changed.stale_if_error()), (5, None), "hooks that speak decide alone");
        // A soft purge ends the lifetime that it had, and not the one that it gets.
        let mut purged = terms.clone();
        purged.expire(BEGIN.plus(1));
        let stored = (&response(200, &[("ETag", "\"a\"")]), &purged);
        let (_, again) = renew(&request(&[]), stored, &response(304, &[tag]), times, &own).unwrap();
        assert_eq!((again.lifetime, again.source.as_str()), (60, "hook"));
        // The origin has become strict meanwhile.
        assert!(renewed(&own, &[tag, ("Cache-Control", "private")]).is_err());
        assert_eq!(renewed(&own, &[tag, ("Cache-Control", "no-cache")]).unwrap().source.as_str(), "none");
    }
}
