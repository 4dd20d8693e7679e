//! Features of workloads besides plain GETs, played against the origins themselves: nothing of it is an error.

use super::*;
use crate::distribution::Distribution;
use crate::ledger::Class;
use crate::origin::Fault;
use crate::robot::{Line, Pace, Popularity, Ranges, RobotSettings, Special};
use larder_wire::Version;

/// A second or two of a changed run without a proxy.
fn seen(change: impl FnOnce(&mut Settings)) -> Interval {
    let mut order = tests::order(None, tests::Lie::None);
    change(&mut order.settings);
    let seen = tests::whole(&run(order).unwrap());
    assert!(seen.replies() > 50, "{} replies, {:?}", seen.replies(), seen.errors);
    seen
}

fn quiet(seen: &Interval) {
    assert_eq!(seen.errors.total(), 0, "{:?}", seen.errors);
}

#[test]
fn replies_without_a_length_are_whole_by_their_last_chunk_or_by_the_end() {
    for version in [Version::Http11, Version::Http10] {
        let seen = seen(|settings| {
            settings.origins.chunked = true;
            settings.robots.version = version;
        });
        quiet(&seen);
        assert!(seen.class(Class::All).size.mean().unwrap() > 1000.0);
    }
}

#[test]
fn a_redirection_is_followed() {
    let seen = seen(|settings| settings.law.redirect = 0.5);
    quiet(&seen);
    let (moved, basic) = (seen.class(Class::Redirect).replies, seen.class(Class::Basic).replies);
    assert!(moved > 20 && basic >= moved, "{moved} {basic}");
}

#[test]
fn aborts_of_both_sides_are_no_errors() {
    let seen = seen(|settings| {
        settings.robots.abort = 0.3;
        settings.robots.kinds = vec![(Special::Post, 0.3), (Special::Head, 0.1)];
        settings.origins.faults = vec![(Fault::Abort, 0.3)];
    });
    quiet(&seen);
    assert!(seen.class(Class::Aborted).replies > 20 && seen.origin.faults > 20);
}

#[test]
fn conditions_parts_and_users_get_what_they_ask_for() {
    let seen = seen(|settings| {
        settings.robots = RobotSettings {
            kinds: vec![(Special::TagMatch, 0.3), (Special::Part, 0.3), (Special::Post, 0.1), (Special::Head, 0.1)],
            ranges: Ranges { bytes: Distribution::Uniform(1.0, 9000.0), suffix: 0.5, ..settings.robots.ranges },
            post_bytes: Distribution::Uniform(0.0, 2000.0),
            cookie: 0.5,
            logged_in: 0.5,
            ..settings.robots.clone()
        };
        settings.law.query = 0.5;
    });
    quiet(&seen);
    assert!(seen.class(Class::Status(304)).replies > 10 && seen.class(Class::Status(206)).replies > 10);
}

#[test]
fn several_parts_come_in_one_answer() {
    let seen = seen(|settings| {
        settings.robots.kinds = vec![(Special::Part, 0.5)];
        settings.robots.ranges.bytes = Distribution::Uniform(1.0, 900.0);
        settings.robots.ranges.parts = Distribution::Uniform(1.0, 5.0);
        settings.origins.faults = vec![(Fault::Abort, 0.05)];
    });
    quiet(&seen);
    let parts = seen.class(Class::Range);
    assert!(parts.replies > 50 && parts.size.mean().unwrap() > 500.0, "{}", parts.replies);
}

#[test]
fn a_body_is_held_back_until_the_origin_wants_it() {
    let seen = seen(|settings| {
        settings.robots.kinds = vec![(Special::Post, 0.3), (Special::Put, 0.3)];
        settings.robots.post_bytes = Distribution::Uniform(1.0, 200_000.0);
        settings.robots.expect_continue = 1.0;
    });
    quiet(&seen);
    let uploads = seen.class(Class::Upload);
    let slowest = uploads.response.quantile(0.9).unwrap();
    assert!(uploads.replies > 50 && slowest < 900_000, "{} uploads, {slowest} µs", uploads.replies);
}

#[test]
fn an_error_goal_ends_the_run_and_says_why() {
    let mut order = tests::order(None, tests::Lie::None);
    order.settings.robots.expected = Some(403);
    order.phases =
        vec![Phase { errors: Some(20.0), ..Phase::flat("top", crate::schedule::Goal::Time(Duration::from_secs(60))) }];
    let ledger = run(order).unwrap();
    let Outcome::Failed(reason) = &ledger.end.outcome else { panic!("{:?}", ledger.end) };
    assert!(reason.contains("phase top") && ledger.end.at_us < 20_000_000, "{reason}");
}

#[test]
fn a_thermostat_raises_the_rate_while_replies_are_fast() {
    let thermostat = |low, high| crate::schedule::Thermostat {
        low: Duration::from_millis(low),
        high: Duration::from_millis(high),
        step: 0.5,
    };
    let rate = |thermostat| {
        let mut order = tests::order(None, tests::Lie::None);
        let phase = Phase::flat("top", crate::schedule::Goal::Time(Duration::from_secs(5)));
        order.phases = vec![Phase { thermostat, ..phase }];
        order.settings.robots.pace = Pace::Poisson(10.0);
        tests::whole(&run(order).unwrap()).due
    };
    let plain = rate(None);
    assert!(rate(Some(thermostat(500, 1_000))) > plain * 5 / 4);
    assert!(rate(Some(thermostat(0, 1))) <= plain * 11 / 10);
}

#[test]
fn an_object_is_asked_for_in_parallel_parts() {
    let seen = seen(|settings| settings.robots.ranges.parallel = Distribution::Constant(4.0));
    quiet(&seen);
    assert_eq!(seen.class(Class::Range).replies, seen.class(Class::Status(206)).replies);
    assert!(seen.class(Class::Range).replies > 100);
}

#[test]
fn a_slow_reader_takes_its_time() {
    let seen = seen(|settings| {
        settings.robots.read_bytes_per_s = 20_000;
        settings.robots.connections_max = 16;
    });
    quiet(&seen);
    let mean = seen.service.all.mean().unwrap();
    assert!((100_000.0..700_000.0).contains(&mean), "{mean} µs for 4.8 KB at 20 KB/s");
}

#[test]
fn refusals_come_in_bursts() {
    let seen = seen(|settings| {
        settings.origins.faults = vec![(Fault::Unavailable, 0.5)];
        settings.origins.burst = Duration::from_secs(1);
    });
    quiet(&seen);
    let (refused, right) = (seen.class(Class::Status(503)).replies, seen.class(Class::Status(200)).replies);
    assert!(refused > 50 && right > 50, "{refused} {right}");
}

#[test]
fn who_must_be_denied_and_is_not_is_an_error() {
    let seen = seen(|settings| settings.robots.expected = Some(403));
    assert_eq!(seen.errors.of(crate::ledger::Trouble::WrongStatus), seen.replies());
}

#[test]
fn robots_wait_between_two_requests_and_start_together() {
    let seen = seen(|settings| {
        settings.robots.pace = Pace::Closed(Distribution::Constant(0.1));
        settings.robots.together = true;
        settings.preset = Some(50);
        settings.robots.popularity = Popularity::Sequence;
    });
    quiet(&seen);
    assert!((150..=200).contains(&seen.replies()), "{} replies of 10 robots in 2 s", seen.replies());
}

#[test]
fn a_log_is_asked_in_its_order_at_its_times_with_its_sizes() {
    let line = |number: u64| Line {
        at: Duration::from_millis(10 * number),
        object: number as u32 % 40 + 1,
        repeat: number >= 40,
    };
    let seen = seen(|settings| {
        settings.robots.pace = Pace::Log;
        settings.log = (0..100).map(line).collect();
        settings.law.sizes = (1..=40).map(|number| number * 100).collect();
    });
    quiet(&seen);
    let basic = seen.class(Class::Basic);
    assert_eq!((seen.replies(), seen.due, seen.repeats, seen.fresh_urls), (100, 100, 60, 40));
    // Twice all forty and once the first twenty.
    assert_eq!(basic.size.sum(), 100 * (2 * 820 + 210));
}

#[test]
fn the_power_goes_and_comes_and_nobody_asks_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let touch = |name: &str| format!("touch {}/{name}", folder.path().display());
    let mut order = tests::order(None, tests::Lie::None);
    let phase = |name: &str, millis, dark| {
        let goal = crate::schedule::Goal::Time(Duration::from_millis(millis));
        Phase { dark, ..Phase::flat(name, goal) }
    };
    order.phases = vec![phase("load", 1500, false), phase("dark", 1500, true), phase("meas", 1500, false)];
    order.power = Some(Power { cut: touch("cut"), again: touch("again") });
    let ledger = run(order).unwrap();
    assert!(folder.path().join("cut").exists() && folder.path().join("again").exists());
    let found = &ledger.downtimes[0];
    assert!((1_400_000..1_700_000).contains(&found.dark_us), "{found:?}");
    assert!(found.first_miss_us.is_some_and(|after| after <= 2_000_000) && found.first_hit_us.is_none(), "{found:?}");
    assert_eq!(ledger.phase(1).due, 0);
}

#[test]
fn a_dark_phase_without_a_switch_is_refused() {
    let mut order = tests::order(None, tests::Lie::None);
    order.phases[0].dark = true;
    assert!(run(order).err().unwrap().contains("--cut"));
}
