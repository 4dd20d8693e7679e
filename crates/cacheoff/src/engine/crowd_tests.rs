use super::super::timers::Timers;
use super::*;
use crate::run::{Wanted, derive, route};
use crate::workload::Builtin;

/// What one worker asks in a scaled PolyMix-2, with the times.
fn asked(seed: u64, peak: f64) -> Vec<(Duration, Name, Kindred)> {
    let workload = Builtin::named("polymix-2").unwrap().workload(None).unwrap().scaled(0.002).workload;
    let wanted = Wanted {
        peak: Some(peak),
        seed,
        epoch: 1_800_000_000,
        route: route(None, None, 1),
        workers: 1,
        cache_bytes: None,
    };
    let (settings, phases) = derive(&workload, &wanted).unwrap();
    let schedule = Schedule::new(phases);
    let mut crowd = Crowd::new(&settings, 0);
    let (mut timers, mut asked, mut tick) = (Timers::default(), Vec::new(), Duration::ZERO);
    while schedule.phase_at(tick).is_some() {
        for wake in crowd.populate(&settings, &schedule, tick) {
            timers.set(wake.at, (wake.robot, wake.life));
        }
        tick += Duration::from_millis(50);
        while let Some((at, (robot, life))) = timers.due(tick) {
            let (due, next) = crowd.due(&settings, &schedule, &Wake { robot, life, at });
            if let Some(next) = next {
                timers.set(next.at, (next.robot, next.life));
            }
            if let Due::Asks(wish) = due {
                asked.push((wish.intended, wish.name, wish.kind));
            }
        }
    }
    asked
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
