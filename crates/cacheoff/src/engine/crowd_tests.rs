#![cfg(test)]

use super::super::timers::Timers;
use super::*;
use crate::robot::Kindred;
use crate::run::{Wanted, derive, route};
use crate::workload::Builtin;

/// The requests that one worker makes in a scaled workload where none is answered, with the times.
fn asked_of(name: &str, scale: f64, seed: u64, peak: f64) -> Vec<(Duration, Wish)> {
    let workload = Builtin::named(name).unwrap().workload(None).unwrap().scaled(scale).workload;
    let wanted = Wanted {
        peak: Some(peak),
        seed,
        epoch: 1_800_000_000,
        route: route(None, None, 1),
        workers: 1,
        cache_bytes: Some(1 << 20),
        log: None,
        tls: None,
    };
    let (settings, phases) = derive(&workload, &wanted).unwrap();
    let schedule = Schedule::new(phases, 1);
    let mut crowd = Crowd::new(&settings, 0);
    let (mut timers, mut asked, mut tick) = (Timers::default(), Vec::new(), Duration::ZERO);
    while schedule.phase_at(tick).is_some() && asked.len() < 20_000 {
        for wake in crowd.populate(&settings, &schedule, tick) {
            timers.set(wake.at, (wake.robot, wake.life));
        }
        tick += Duration::from_millis(50);
        // Phases that count replies end as if all had come.
        schedule.advance(tick);
        while let Some((at, (robot, life))) = timers.due(tick) {
            let (due, next) = crowd.due(&settings, &schedule, &Wake { robot, life, at });
            if let Some(next) = next.or(crowd.again(&settings, robot, at + Duration::from_millis(1))) {
                timers.set(next.at, (next.robot, next.life));
            }
            if let Due::Asks(wish) = due {
                schedule.count(at, 1, wish.facts.size);
                asked.push((wish.intended, wish));
            }
        }
    }
    asked
}

fn asked(seed: u64, peak: f64) -> Vec<(Duration, Name, Kindred)> {
    asked_of("polymix-2", 0.002, seed, peak).into_iter().map(|(at, wish)| (at, wish.name, wish.kind)).collect()
}

#[test]
fn every_workload_that_is_played_asks_the_same_with_the_same_seed() {
    for (name, scale, peak) in [
        ("hammer", 0.1, 10.0),
        ("tree", 1.0, 10.0),
        ("polymix-3", 0.002, 50.0),
        ("flash", 0.05, 50.0),
        ("live", 0.02, 50.0),
    ] {
        let (once, again, other) =
            (asked_of(name, scale, 1, peak), asked_of(name, scale, 1, peak), asked_of(name, scale, 2, peak));
        assert!(once.len() > 20, "{name}: {}", once.len());
        assert_eq!(once, again, "{name}");
        assert!(once != other || name == "tree", "{name}");
    }
}

#[test]
fn the_same_seed_asks_the_same_at_the_same_times() {
    let once = asked(1, 50.0);
    assert!(once.len() > 500, "{}", once.len());
    assert_eq!(once, asked(1, 50.0));
    assert_ne!(once, asked(2, 50.0));
}

#[test]
fn the_share_of_repeats_is_that_of_the_workload() {
    let names: Vec<Name> = asked(3, 1000.0).into_iter().map(|(_, name, _)| name).collect();
    let half = names.len() / 2;
    let before: std::collections::HashSet<Name> = names[..half].iter().copied().collect();
    let mut known = before;
    let repeats = names[half..].iter().filter(|name| !known.insert(**name)).count();
    let share = repeats as f64 / (names.len() - half) as f64;
    assert!((share - 0.6875).abs() < 0.02, "{share}");
}

#[test]
fn a_hit_is_offered_only_on_a_variant_that_somebody_asked_for() {
    let (mut known, mut first) = (HashSet::new(), 0);
    for (_, wish) in asked_of("cms", 0.1, 1, 50.0) {
        let new = known.insert((wish.name, wish.variant));
        assert_eq!(wish.new_variant, new, "{wish:?}");
        assert!(!(new && wish.offered()), "{wish:?}");
        first += u32::from(new && wish.repeat);
    }
    assert!(first > 5, "{first} first requests for another variant");
}

#[test]
fn what_a_page_embeds_is_paid_for_only_if_it_is_asked_for() {
    let workload = Builtin::named("web").unwrap().workload(None).unwrap();
    let wanted = Wanted {
        peak: Some(2.0),
        seed: 1,
        epoch: 1_800_000_000,
        route: route(None, None, 1),
        workers: 1,
        cache_bytes: None,
        log: None,
        tls: None,
    };
    let (settings, _) = derive(&workload, &wanted).unwrap();
    let mut crowd = Crowd::new(&settings, 0);
    let name = |number| Name {
        server: 0,
        content: 0,
        world: crate::object::World::Public { worker: 0 },
        number,
        embedded: number > 1,
    };
    let page = Wish { children: (2..5).map(name).collect(), ..Wish::of(name(1), settings.law.facts(&name(1)), false) };
    crowd.robots[0].debt = 5;
    crowd.forgo(0, &page);
    assert_eq!(crowd.robots[0].debt, 2);
    assert_eq!(crowd.pending.cause(name(2).fingerprint()), crate::ledger::MissCause::FirstFailed);
}

#[test]
fn robots_keep_to_their_rate_from_their_first_second_on() {
    // Phases of seconds: a robot has two or three turns in one, and a page embeds up to 13 objects.
    let (peak, scale) = (1_000.0, 0.0005);
    let (mut asked, seconds) = (0, 7.2);
    for (at, wish) in asked_of("polymix-2", scale, 1, peak) {
        // The plateau behind warm (1 s) and inc1 (1.8 s).
        if at >= Duration::from_secs_f64(2.8) && at < Duration::from_secs_f64(2.8 + seconds) {
            asked += 1 + wish.children.len();
        }
    }
    let share = asked as f64 / (peak * seconds);
    assert!((share - 1.0).abs() < 0.08, "{share}");
}
