//! Laws of policy that hold whatever the messages are.

use super::policy_words;

use larder_cache::policy::{self, Asked, Settings, Storable, Terms, Usable, Vary};
use larder_wire::date::Stamp;
use larder_wire::{RequestHead, ResponseHead};
use policy_words::{NOW, T0, private, request, response, shared};
use proptest::prelude::*;

/// A subset of these field lines behind a start.
fn message(
    start: impl Strategy<Value = &'static str>,
    lines: &'static [&'static str],
) -> impl Strategy<Value = String> {
    let chosen = proptest::sample::subsequence(lines, 0..=lines.len().min(6));
    (start, chosen)
        .prop_map(|(start, chosen)| chosen.iter().fold(start.to_owned(), |line, field| format!("{line} | {field}")))
}

fn responses() -> impl Strategy<Value = String> {
    let status = proptest::sample::select(vec!["200", "203", "206", "301", "302", "404", "410", "500", "599"]);
    message(
        status,
        &[
            "Cache-Control: max-age=60",
            "Cache-Control: s-maxage=30",
            "Cache-Control: max-age=x",
            "Cache-Control: public",
            "Cache-Control: private",
            "Cache-Control: no-cache",
            "Cache-Control: must-revalidate",
            "Cache-Control: must-understand",
            "Cache-Control: stale-while-revalidate=20, stale-if-error=40",
            "Cache-Control: no-cache=\"X-A\"",
            "Expires: {50}",
            "Expires: 0",
            "Date: {-10}",
            "Date: {40}",
            "Age: 25",
            "ETag: \"a\"",
            "ETag: W/\"b\"",
            "Last-Modified: {-500}",
            "Vary: Accept-Encoding, X-A",
            "Set-Cookie: a=b",
            "Content-Range: bytes 0-9/20",
            "X-A: 1",
            "Connection: X-A",
        ],
    )
}

fn requests() -> impl Strategy<Value = String> {
    message(
        proptest::sample::select(vec!["GET", "GET", "GET", "HEAD", "POST"]),
        &[
            "Cache-Control: max-age=20",
            "Cache-Control: max-stale=15",
            "Cache-Control: min-fresh=5",
            "Cache-Control: no-cache",
            "Cache-Control: stale-if-error=9",
            "Authorization: x",
            "Accept-Encoding: gzip, br",
            "X-A: 1",
            "Range: bytes=0-9",
        ],
    )
}

fn either_mode() -> impl Strategy<Value = Settings> {
    prop_oneof![Just(shared()), Just(private())]
}

fn kept(asked: &RequestHead, answered: &ResponseHead, settings: &Settings) -> Option<Terms> {
    match policy::storable(asked, answered, NOW, settings) {
        Storable::Yes(terms) => Some(terms),
        Storable::No(_) => None,
    }
}

/// From best to worst: fresh, stale but served, not served.
fn rank(usable: Usable) -> u8 {
    match usable {
        Usable::Fresh => 0,
        Usable::Stale(_) | Usable::Revalidate => 1,
        Usable::Validate(_) => 2,
    }
}

proptest! {
    #[test]
    fn nothing_becomes_fresher_with_time(
        asked in requests(), answered in responses(), settings in either_mode(),
        at in 0u64..200, later in 0u64..200
    ) {
        let (asked, answered) = (request(&asked), response(&answered));
        if let Some(terms) = kept(&asked, &answered, &settings) {
            let wish = Asked::of(&asked);
            let (first, second) = (Stamp(T0 + at), Stamp(T0 + at + later));
            let usable = |now| rank(policy::usable(&terms, &wish, now, &settings));
            prop_assert!(usable(first) <= usable(second));
            prop_assert!(terms.age(second) == terms.age(first) + later);
            prop_assert_eq!(terms.is_fresh(first), terms.remaining(first) > 0);
            let on_error = |now| policy::stale_if_error(&terms, &wish, now, &settings);
            prop_assert!(on_error(first) || !on_error(second));
        }
    }

    #[test]
    fn no_store_keeps_everything_out(asked in requests(), answered in responses(), settings in either_mode()) {
        let answered = answered.replace("must-understand", "no-transform");
        let forbidden = response(&format!("{answered} | Cache-Control: no-store"));
        prop_assert!(kept(&request(&asked), &forbidden, &settings).is_none());
        let asked = request(&format!("{asked} | Cache-Control: no-store"));
        prop_assert!(kept(&asked, &response(&answered), &settings).is_none());
    }

    #[test]
    fn what_a_shared_cache_keeps_a_private_one_may_keep(asked in requests(), answered in responses()) {
        // `s-maxage` alone gives a private cache no reason and no lifetime.
        let answered = answered.replace("s-maxage=30", "no-transform");
        let (asked, answered) = (request(&asked), response(&answered));
        if kept(&asked, &answered, &shared()).is_some() {
            prop_assert!(kept(&asked, &answered, &private()).is_some());
        }
    }

    #[test]
    fn no_cache_is_never_served_unasked(asked in requests(), answered in responses(), at in 0u64..200) {
        let answered = response(&format!("{answered} | Cache-Control: no-cache"));
        if let Some(terms) = kept(&request(&asked), &answered, &shared()) {
            let (wish, now) = (Asked::of(&request(&asked)), Stamp(T0 + at));
            prop_assert_eq!(rank(policy::usable(&terms, &wish, now, &shared())), 2);
            prop_assert!(!policy::stale_if_error(&terms, &wish, now, &shared()));
            prop_assert!(!policy::disconnected(&terms, &wish, now));
        }
    }

    #[test]
    fn must_revalidate_is_never_served_stale(asked in requests(), answered in responses(), at in 0u64..200) {
        let answered = response(&format!("{answered} | Cache-Control: must-revalidate"));
        if let Some(terms) = kept(&request(&asked), &answered, &shared()) {
            let (wish, now) = (Asked::of(&request(&asked)), Stamp(T0 + at));
            prop_assert_ne!(rank(policy::usable(&terms, &wish, now, &shared())), 1);
            prop_assert!(terms.is_fresh(now) || !policy::disconnected(&terms, &wish, now));
        }
    }

    #[test]
    fn freshening_twice_is_freshening_once(held in responses(), says in responses()) {
        let (held, says) = (response(&held), response(&says));
        let once = policy::freshen(&held, &says);
        prop_assert_eq!(policy::freshen(&once, &says), once);
    }

    #[test]
    fn what_is_kept_is_kept_as_it_is(answered in responses(), settings in either_mode()) {
        let once = policy::head_to_store(&response(&answered), &settings);
        prop_assert_eq!(policy::head_to_store(&once, &settings), once);
    }

    #[test]
    fn a_renewed_response_is_as_good_as_new(held in responses(), says in responses(), settings in either_mode()) {
        let asked = request("GET | Range: bytes=0-9");
        let head = response(&held);
        if let Some(terms) = kept(&asked, &head, &settings) {
            let says = response(&says);
            if let Ok((fresh, renewed)) = policy::renew(&asked, (&head, &terms), &says, NOW, &settings) {
                prop_assert_eq!(fresh.status, head.status);
                prop_assert_eq!(renewed.received, NOW.received);
                prop_assert!(!fresh.fields.contains("Age") && !fresh.fields.contains("Connection"));
                prop_assert!(!fresh.fields.contains("Set-Cookie"));
                prop_assert!(fresh.fields.contains("Date"));
            }
        }
    }

    #[test]
    fn a_request_matches_its_own_variant(asked in requests(), answered in responses()) {
        let asked = request(&asked);
        if let Some(vary) = Vary::of(&asked, &response(&answered)) {
            prop_assert!(vary.matches(&asked));
            prop_assert_eq!(Vary::from_bytes(vary.as_bytes()), Some(vary));
        }
    }

    #[test]
    fn any_values_are_survived(
        name in proptest::sample::select(vec![
            "Cache-Control", "Expires", "Date", "Age", "ETag", "Vary", "Last-Modified", "Content-Range", "Location",
            "If-None-Match", "If-Modified-Since", "If-Range", "Range", "Pragma", "Accept-Encoding", "Connection",
        ]),
        value in proptest::collection::vec(any::<u8>(), 0..40),
        now in any::<u64>()
    ) {
        let (mut asked, mut answered) = (request("GET | Range: bytes=0-9"), response("200 | ETag: \"a\""));
        asked.fields.push(name, &value);
        answered.fields.push(name, &value);
        answered.fields.push("Vary", name);
        let times = policy::Times { requested: Stamp(now), received: Stamp(now) };
        if let Storable::Yes(terms) = policy::storable(&asked, &answered, times, &shared()) {
            policy::usable(&terms, &Asked::of(&asked), Stamp(now.wrapping_add(9)), &shared());
            terms.remaining(Stamp(u64::MAX));
            policy::named_by(&[(&answered, &terms)], &answered);
            policy::head_says(&answered, &terms, &answered);
            let _ = policy::renew(&asked, (&answered, &terms), &answered, times, &shared());
        }
        policy::precondition(&asked, &answered);
        policy::range_applies(&asked, &answered, false);
        policy::may_combine(&answered, &answered);
        policy::whole_head(&answered);
    }
}
