//! Three and thirty members at 2,000 requests a second: one is killed, one is slow, one lies, and they recover.

use crate::play::{Play, Reply};
use larder_balance::{Balance, Checks, Group, Member, MemberState, Request, Settings, Why};
use std::time::{Duration, Instant};

const RATE: u64 = 2_000;
const QUICK: Duration = Duration::from_millis(2);
const SEED: u64 = 0x1a2d_e200;

fn group(many: usize, balance: Balance) -> Settings {
    let member = |at| Member { name: format!("m{at}"), weight: 1, is_backup: false, requests_max: 10_000 };
    let checks = Some(Checks::default());
    Settings { balance, members: (0..many).map(member).collect(), checks, ..Settings::default() }
}

/// A member that is in trouble in these seconds.
fn during(at: Duration, seconds: std::ops::Range<u64>, trouble: Reply) -> Reply {
    if seconds.contains(&at.as_secs()) { trouble } else { Reply::Good(QUICK) }
}

const BALANCES: [Balance; 3] = [Balance::P2c, Balance::LeastConnections, Balance::RoundRobin];

#[test]
fn a_killed_member_is_ejected_at_once_and_comes_back_slowly() {
    for many in [3, 30] {
        for balance in BALANCES {
            let mut play = Play::new(group(many, balance), SEED);
            let law = |member, at| if member == 0 { during(at, 5..12, Reply::Refused) } else { Reply::Good(QUICK) };
            play.run(0..60, RATE, law);
            let words = format!("{many} members, {balance:?}");
            assert_eq!(play.errors(0..60_000), 0.0, "{words}");
            let fair = 1.0 / many as f64;
            assert!((play.share(0, 0..5_000) / fair - 1.0).abs() < 0.2, "{words}: a fair share before");
            assert!(play.share(0, 6_000..15_000) < 0.001, "{words}: nothing but trials while it is out");
            // The first trial, 10 s after its ejection, succeeds; then its share grows by a tenth a second.
            let came_back = play.share(0, 15_100..16_000) / fair;
            assert!(came_back < 0.35, "{words}: {came_back} of its share in the first second");
            assert!((play.share(0, 30_000..60_000) / fair - 1.0).abs() < 0.2, "{words}: a fair share after");
            assert_eq!(play.report_at(Duration::from_secs(60)).members[0].counts.ejections, 1, "{words}");
        }
    }
}

#[test]
fn a_member_that_stays_away_is_tried_ever_more_rarely() {
    let mut play = Play::new(group(3, Balance::P2c), SEED);
    play.run(0..400, 200, |member, _| if member == 0 { Reply::Refused } else { Reply::Good(QUICK) });
    // 5 failures, and trials after 10, 30, 70, 150 and 310 s.
    assert_eq!(play.report_at(Duration::from_secs(400)).members[0].counts.requests, 10);
    assert_eq!(play.errors(0..400_000), 0.0);
}

#[test]
fn a_slow_member_gets_little_and_is_found_quick_again() {
    for many in [3, 30] {
        let mut play = Play::new(group(many, Balance::P2c), SEED);
        let slow = Reply::Good(Duration::from_millis(200));
        let law = |member, at| if member == 0 { during(at, 5..60, slow) } else { Reply::Good(QUICK) };
        play.run(0..180, RATE, law);
        assert_eq!(play.errors(0..180_000), 0.0);
        let slow_share = play.share(0, 6_000..60_000);
        assert!(slow_share < 0.005, "{many} members: {slow_share}");
        assert!(play.percentile(99, 8_000..60_000) < Duration::from_millis(5), "{many} members");
        let fair = 1.0 / many as f64;
        assert!(play.share(0, 150_000..180_000) > 0.7 * fair, "{many} members: it is used again");
    }
}

#[test]
fn a_member_that_answers_500_is_ejected_and_clients_see_nothing() {
    for many in [3, 30] {
        let mut play = Play::new(group(many, Balance::P2c), SEED);
        let lie = Reply::Bad(Duration::from_micros(500));
        let law = |member, at| if member == 0 { during(at, 5..12, lie) } else { Reply::Good(QUICK) };
        play.run(0..60, RATE, law);
        assert_eq!(play.errors(0..60_000), 0.0);
        assert!(play.share(0, 6_000..15_000) < 0.001, "quick lies don't make a member look good");
        assert!(play.share(0, 30_000..60_000) > 0.7 / many as f64);
    }
}

#[test]
fn one_killed_one_slow_one_lying_and_all_recover() {
    for (many, seed) in [(3, 1), (3, 2), (30, 3), (30, 4)] {
        let mut play = Play::new(group(many, Balance::P2c), seed);
        let law = |member, at| match member {
            0 => during(at, 5..25, Reply::Refused),
            1 => during(at, 5..25, Reply::Good(Duration::from_millis(200))),
            2 => during(at, 5..25, Reply::Bad(Duration::from_millis(1))),
            _ => Reply::Good(QUICK),
        };
        play.run(0..90, RATE, law);
        let words = format!("{many} members, seed {seed}");
        assert!(play.errors(0..90_000) < 0.001, "{words}: {} errors", play.errors(0..90_000));
        let out = play.report_at(Duration::from_secs(10)).members;
        assert!(out.iter().filter(|member| member.counts.ejections > 0).count() <= many.div_ceil(2), "{words}");
        // Of three there is only the slow one left, and what a lie or a refusal adds to it.
        let bound = Duration::from_millis(if many == 3 { 210 } else { 20 });
        assert!(play.percentile(99, 8_000..25_000) < bound, "{words}");
        assert_eq!(play.errors(30_000..90_000), 0.0, "{words}");
        for at in 0..3 {
            let share = play.share(at, 70_000..90_000) * many as f64;
            assert!((0.5..1.5).contains(&share), "{words}: member {at} has {share} of its share");
        }
    }
}

#[test]
fn at_most_half_are_ejected() {
    for many in [2, 3, 5, 30] {
        let mut play = Play::new(group(many, Balance::RoundRobin), SEED);
        play.run(0..5, RATE, |_, _| Reply::Refused);
        let members = play.report_at(Duration::from_secs(5)).members;
        let out = members.iter().filter(|member| member.state == MemberState::Ejected).count();
        assert_eq!(out, many / 2, "{many} members");
        assert!(members.iter().map(|member| member.counts.ejections_spared).sum::<u64>() > 0);
    }
    let mut play = Play::new(group(1, Balance::P2c), SEED);
    play.run(0..5, RATE, |_, _| Reply::Refused);
    assert_eq!(play.report_at(Duration::from_secs(5)).members[0].state, MemberState::Suspect, "the only one stays in");
}

#[test]
fn where_all_answer_500_to_a_request_the_request_is_to_blame() {
    let mut play = Play::new(group(3, Balance::P2c), SEED);
    play.run(0..5, 100, |_, _| Reply::Bad(QUICK));
    let report = play.report_at(Duration::from_secs(5));
    assert_eq!(play.errors(0..5_000), 1.0);
    // Those for which the budget has a second try show that it is not the member; the others count against one.
    assert!(report.members.iter().filter(|member| member.counts.ejections > 0).count() <= 1, "{report:?}");
}

#[test]
fn where_all_are_down_the_least_bad_are_tried_and_the_first_that_works_serves() {
    let mut play = Play::new(group(3, Balance::P2c), SEED);
    let law = |member, at: Duration| match member {
        2 if at >= Duration::from_secs(3) => Reply::Good(QUICK),
        _ => Reply::Refused,
    };
    play.run(0..1, RATE, law);
    for name in ["m0", "m1", "m2"] {
        (0..3).for_each(|_| _ = play.group.checked(name, false, Instant::now()));
    }
    play.run(1..30, RATE, law);
    assert!(play.refused.is_empty(), "somebody is asked always: {:?}", play.refused.first());
    assert!(play.errors(20_000..30_000) < 0.5, "{}", play.errors(20_000..30_000));
}

#[test]
fn the_budget_bounds_what_a_group_in_trouble_gets() {
    let mut play = Play::new(group(3, Balance::P2c), SEED);
    play.run(0..20, RATE, |_, _| Reply::Refused);
    let sent: usize = play.outcomes.iter().map(|outcome| outcome.sent_to.len()).sum();
    assert!(sent as f64 <= 1.21 * play.outcomes.len() as f64, "{sent} of {}", play.outcomes.len());
}

#[test]
fn a_hung_member_is_passed_over_once_its_requests_pile_up() {
    let mut play = Play::new(group(3, Balance::P2c), SEED);
    let silence = Reply::Silence(Duration::from_secs(2));
    let law = |member, at| if member == 0 { during(at, 5..10, silence) } else { Reply::Good(QUICK) };
    play.run(0..30, RATE, law);
    play.settle(law);
    let late = play.of(5_000..10_000).iter().filter(|outcome| outcome.took > Duration::from_secs(1)).count();
    assert!(late < 100, "{late} of 10,000 requests waited for it");
    assert_eq!(play.errors(0..30_000), 0.0);
}

#[test]
fn one_that_recovers_serves_while_the_others_fail_still() {
    for (many, seed) in [(2, 1), (2, 2), (3, 4), (3, 5), (3, 6), (5, 7)] {
        let mut play = Play::new(group(many, Balance::P2c), seed);
        let law = |member, at: Duration| match at.as_secs() {
            0..5 => Reply::Good(QUICK),
            14.. if member == 0 => Reply::Good(QUICK),
            _ => Reply::Refused,
        };
        play.run(0..40, RATE, law);
        // By then it was tried; its slow start, and the longer ones of others, are no reason to ask those that fail.
        let errors = play.errors(16_000..40_000);
        assert!(errors < 0.001, "{many} members, seed {seed}: {errors}");
    }
}

#[test]
fn a_request_that_may_not_be_repeated_goes_to_none_that_fails_while_another_recovers() {
    let (mut group, mut now) = (Group::new(group(3, Balance::P2c), SEED), Instant::now());
    let ask = |now, is_repeatable| Request { now, key: 0, sticky: None, is_repeatable, tried: &[] };
    // All fail until one is ejected and the others are suspect.
    for _ in 0..100 {
        let mut pick = group.pick(&ask(now, true)).unwrap();
        group.failed(&mut pick.ticket, now);
        group.end(pick.ticket, now);
    }
    now += Duration::from_secs(10);
    let mut trial = group.pick(&ask(now, true)).unwrap();
    assert_eq!(trial.why, Why::Trial);
    assert!(group.succeeded(&mut trial.ticket, Some(QUICK), now));
    let recovered = trial.at;
    group.end(trial.ticket, now);
    let mut others = 0;
    for _ in 0..1_000 {
        let post = group.pick(&ask(now, false)).unwrap();
        assert_eq!(post.at, recovered);
        group.end(post.ticket, now);
        let get = group.pick(&ask(now, true)).unwrap();
        others += u32::from(get.at != recovered);
        group.end(get.ticket, now);
    }
    assert!((1..300).contains(&others), "each that fails gets a tenth of its share: {others}");
}
