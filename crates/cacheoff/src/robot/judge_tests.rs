//! Tests of the judge: faults of a cache and things that are none, by heads and bodies alone.

use super::*;
use crate::distribution::Distribution;
use crate::journal::Journal;
use crate::object::{Content, Law, Life, Name, Version, World};
use crate::random::Seal;
use crate::robot::Wish;
use crate::wire::HEAD_LIMITS;
use larder_wire::date::{Stamp, format_date};
use larder_wire::parse::{HeadScan, Parsed};

const NOW: u64 = 1_800_000_000;
const SIZE: u64 = 1_000;
const MINE: Xact = Xact { tag: 1, number: 9 };
const OTHER: Xact = Xact { tag: 1, number: 4 };

fn law(life: Life, cache_control: &str) -> Law {
    let content = Content {
        life,
        cache_control: cache_control.into(),
        ..Content::plain("page", "text/html", Distribution::Constant(SIZE as f64), SIZE)
    };
    Law { seed: 7, tag: 1, epoch: NOW - 1_000, contents: vec![content], ..Law::default() }
}

/// A page that changes each 100 s.
fn changing() -> Life {
    Life::Cycle { length: Distribution::Constant(100.0), variance: 0.0, with_modified: 1.0, expires_after: 0.0 }
}

/// An answer that was made so many seconds ago.
struct Told {
    kind: Kindred,
    repeat: bool,
    purged_ago: Option<u64>,
    status: u16,
    echo: Option<Xact>,
    made_ago: u64,
    /// Seconds that `Age` says more.
    aged: u64,
    /// Seconds that another request has waited.
    waited: u64,
    fault: Option<Fault>,
    body: u64,
    aborts: bool,
}

const HIT: Told = Told {
    kind: Kindred::Basic,
    repeat: true,
    purged_ago: None,
    status: 200,
    echo: Some(OTHER),
    made_ago: 0,
    aged: 0,
    waited: 0,
    fault: None,
    body: SIZE,
    aborts: false,
};

impl Told {
    fn judged(&self, law: &Law) -> Option<Trouble> {
        self.verdict(law).findings.wrong.map(|(trouble, _)| trouble)
    }

    fn verdict(&self, law: &Law) -> Verdict {
        let name = Name { server: 0, content: 0, world: World::Public { worker: 0 }, number: 1, embedded: false };
        let facts = law.facts(&name);
        let wish = Wish { kind: self.kind, ..Wish::of(name, facts, self.repeat) };
        let journal = Journal::new(Seal::random(), 0, false);
        journal.waited(self.waited);
        let case = Case {
            law,
            wish: &wish,
            journal: &journal,
            gateway: false,
            xact: MINE,
            turns: &[],
            deeds: None,
            first: true,
            asked: NOW,
            purged: self.purged_ago.map(|ago| NOW - ago),
            now: NOW,
            expected: None,
            delay_s_max: journal.longest_wait_s().max(1),
        };
        let version = law.version(&name, &facts, NOW - self.made_ago);
        let head = self.head(law, &journal.seal, facts.seed, &version);
        let Ok(Parsed::Complete { head, .. }) = HeadScan::new().response(&head, &HEAD_LIMITS) else {
            panic!("a head that cannot be read")
        };
        let mut judge = Judge::head(&case, &head);
        let began = judge.begins_at();
        let mut body = vec![0; self.body as usize];
        law.body(&facts, version.generation, 0).fill(0, &mut body);
        judge.body(&body);
        if self.aborts {
            judge.break_off();
        }
        if self.status == 304 || self.kind == Kindred::Head {
            judge.no_body();
        }
        judge.finish(began, true)
    }

    fn head(&self, law: &Law, seal: &Seal, seed: u64, version: &Version) -> Vec<u8> {
        let content = &law.contents[0];
        let made = NOW - self.made_ago;
        let mut head = format!(
            "HTTP/1.1 {} X\r\nAge: {}\r\nContent-Type: {}\r\nCache-Control: {}",
            self.status,
            self.made_ago + self.aged,
            content.media,
            content.cache_control
        )
        .into_bytes();
        for (name, unix) in [("Date", made), ("Expires", version.expires), ("Last-Modified", version.modified)] {
            head.extend(format!("\r\n{name}: ").into_bytes());
            head.extend(format_date(Stamp(unix)));
        }
        head.extend(b"\r\nETag: ");
        Tag { seed, generation: version.generation, variant: 0 }.write(&mut head);
        if let Some(xact) = self.echo {
            head.extend(b"\r\nX-Xact: ");
            Echo { xact, at_us: (made - law.epoch) * 1_000_000, fault: self.fault }.write(seal, &mut head);
        }
        if let Some(fault) = self.fault {
            head.extend(format!("\r\nX-Fault: {}", fault.as_str()).into_bytes());
        }
        head.extend(b"\r\n\r\n");
        head
    }
}

#[test]
fn a_lifetime_in_seconds_counts_before_expires() {
    let stale = Told { made_ago: 250, ..HIT };
    for (cache_control, expected) in [
        ("public", Some(Trouble::StaleHit)),
        ("public, max-age=20", Some(Trouble::StaleHit)),
        ("public, max-age=300", None),
        ("public, max-age=300, s-maxage=20", Some(Trouble::StaleHit)),
        ("public, max-age=20, stale-while-revalidate=300", None),
        ("public, max-age=20, stale-if-error=300", None),
        ("public, max-age=20, stale-if-error=300, must-revalidate", Some(Trouble::StaleHit)),
    ] {
        assert_eq!(stale.judged(&law(changing(), cache_control)), expected, "{cache_control}");
    }
}

#[test]
fn a_not_modified_of_the_cache_itself_is_no_hit_that_must_not_be() {
    let law = law(Life::Static, "public");
    for kind in [Kindred::TagMatch, Kindred::ModifiedAfter] {
        let new = Told { kind, repeat: false, status: 304, echo: None, body: 0, ..HIT };
        assert_eq!(new.judged(&law), None, "{kind:?}");
        assert_eq!(Told { echo: Some(OTHER), ..new }.judged(&law), Some(Trouble::FalseHit), "{kind:?}");
        assert_eq!(Told { kind, echo: Some(MINE), ..HIT }.judged(&law), None, "the whole for {kind:?}");
    }
}

#[test]
fn not_modified_since_before_the_last_change_is_right_only_as_long_as_that_may_be_fresh() {
    let before = Told { kind: Kindred::ModifiedBefore, status: 304, made_ago: 101, body: 0, ..HIT };
    assert_eq!(before.judged(&law(changing(), "public, max-age=200")), None);
    assert_eq!(before.judged(&law(Life::Static, "public, max-age=200")), Some(Trouble::WrongStatus));
}

#[test]
fn a_spoilt_answer_may_be_given_on_as_what_it_is_and_never_as_a_whole_one() {
    let law = law(Life::Static, "public");
    let (cut, kept) = (SIZE / 2, Some(Trouble::Truncated));
    for (fault, body, aborts, expected) in [
        (Fault::Truncate, cut, false, kept),
        (Fault::Truncate, cut, true, None),
        // A cache that has fetched the missing part has the whole, under the head of the first answer.
        (Fault::Truncate, SIZE, false, None),
        (Fault::LongLength, SIZE, false, kept),
        (Fault::LongLength, cut, true, None),
        (Fault::Unavailable, 0, false, None),
    ] {
        let status = if fault == Fault::Unavailable { 503 } else { 200 };
        let told = Told { fault: Some(fault), status, body, aborts, ..HIT };
        assert_eq!(told.judged(&law), expected, "{fault:?} {body} {aborts}");
    }
    let head = Told { kind: Kindred::Head, fault: Some(Fault::LongLength), body: 0, ..HIT };
    assert_eq!(head.judged(&law), None);
}

#[test]
fn what_is_older_than_its_purge_must_not_be_served() {
    let law = law(Life::Static, "public");
    for (made_ago, purged_ago, expected) in
        [(10, Some(5), Some(Trouble::PurgedHit)), (5, Some(5), None), (4, Some(5), None), (10, None, None)]
    {
        assert_eq!(Told { made_ago, purged_ago, ..HIT }.judged(&law), expected, "{made_ago} {purged_ago:?}");
    }
    let miss = Told { echo: Some(MINE), made_ago: 1, purged_ago: Some(0), ..HIT };
    assert_eq!(miss.judged(&law), None);
}

#[test]
fn a_reload_must_get_what_the_origin_said_since() {
    let law = law(Life::Static, "public");
    for (made_ago, expected) in [(1, Some(Remark::HitOnReload)), (0, None)] {
        let reload = Told { kind: Kindred::Reload, made_ago, ..HIT };
        let verdict = reload.verdict(&law);
        assert_eq!((verdict.findings.wrong, verdict.findings.remark), (None, expected), "{made_ago}");
    }
}

#[test]
fn a_purge_is_done_or_had_nothing_to_do() {
    let law = law(Life::Static, "public");
    for (status, echo, expected) in [
        (200, None, None),
        (204, None, None),
        (404, None, None),
        (403, None, Some(Trouble::Refused)),
        (501, None, Some(Trouble::Refused)),
        (200, Some(MINE), Some(Trouble::WrongStatus)),
    ] {
        let told = Told { kind: Kindred::Purge, status, echo, body: 4, ..HIT };
        assert_eq!(told.judged(&law), expected, "{status} {echo:?}");
    }
}

/// A cache may add to `Age` what the origin took to answer (RFC 9111 section 4.2.3): Squid does.
#[test]
fn an_age_may_have_the_time_that_an_origin_took() {
    let law = law(changing(), "public");
    for (aged, waited, expected) in
        [(3, 0, None), (4, 0, Some(Trouble::WrongAge)), (9, 7, None), (10, 7, Some(Trouble::WrongAge))]
    {
        let answer = Told { made_ago: 5, aged, waited, ..HIT };
        assert_eq!(answer.judged(&law), expected, "{aged} s more where a request waited {waited} s");
    }
}
