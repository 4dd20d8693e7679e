//! The choice of a member by each balance, and the reasons against the others.

use larder_balance::{
    Admin, Balance, Checks, Group, Hedge, Member, MemberReport, MemberState, NoMember, PassedOver, Request, Settings,
    Why, hash,
};
use proptest::prelude::*;
use std::time::{Duration, Instant};

fn member(name: &str, weight: u32) -> Member {
    Member { name: name.to_owned(), weight, is_backup: false, requests_max: 1_000 }
}

fn group(balance: Balance, members: Vec<Member>) -> Group {
    Group::new(Settings { balance, members, checks: Some(Checks::default()), ..Settings::default() }, 11)
}

fn request(now: Instant) -> Request<'static> {
    Request { now, key: 0, sticky: None, is_repeatable: true, tried: &[] }
}

/// Sends requests one after another, each of which succeeds, and counts them by member.
fn counts(group: &mut Group, requests: usize, now: Instant) -> Vec<usize> {
    let mut counts = vec![0; group.settings().members.len()];
    for _ in 0..requests {
        let mut pick = group.pick(&request(now)).unwrap();
        counts[pick.at] += 1;
        group.succeeded(&mut pick.ticket, Some(Duration::from_millis(1)), now);
        group.end(pick.ticket, now);
    }
    counts
}

fn fail(group: &mut Group, at: usize, times: u32, now: Instant) {
    let mut failed = 0;
    while failed < times {
        let mut pick = group.pick(&request(now)).unwrap();
        if pick.at == at {
            group.failed(&mut pick.ticket, now);
            failed += 1;
        }
        group.end(pick.ticket, now);
    }
}

#[test]
fn shares_follow_weights() {
    let now = Instant::now();
    for balance in [Balance::P2c, Balance::LeastConnections, Balance::RoundRobin, Balance::Sticky] {
        let mut group = group(balance, vec![member("a", 2), member("b", 1), member("c", 1)]);
        let counts = counts(&mut group, 4_000, now);
        for (count, share) in counts.iter().zip([2_000, 1_000, 1_000]) {
            assert!(count.abs_diff(share) < share / 8, "{balance:?}: {counts:?}");
        }
    }
}

#[test]
fn a_turn_is_spread_evenly() {
    let now = Instant::now();
    let mut group = group(Balance::RoundRobin, vec![member("a", 5), member("b", 1), member("c", 1)]);
    let turn: Vec<usize> = (0..7)
        .map(|_| {
            let pick = group.pick(&request(now)).unwrap();
            let at = pick.at;
            group.end(pick.ticket, now);
            at
        })
        .collect();
    assert_eq!(turn, [0, 0, 1, 0, 2, 0, 0]);
}

#[test]
fn least_connections_fill_up_the_idle_ones() {
    let now = Instant::now();
    let mut group = group(Balance::LeastConnections, vec![member("a", 1), member("b", 1), member("c", 2)]);
    let tickets: Vec<_> = (0..40).map(|_| group.pick(&request(now)).unwrap()).collect();
    let of = |at| tickets.iter().filter(|pick| pick.at == at).count();
    assert_eq!((of(0), of(1), of(2)), (10, 10, 20));
    tickets.into_iter().for_each(|pick| group.end(pick.ticket, now));
}

#[test]
fn a_key_leads_to_one_member_while_that_may_be_asked() {
    let now = Instant::now();
    let mut group = group(Balance::RingHash, (0..5).map(|at| member(&format!("m{at}"), 1)).collect());
    let owner = |group: &mut Group, key: u64| {
        let pick = group.pick(&Request { key: hash(&key.to_le_bytes()), ..request(now) }).unwrap();
        let at = pick.at;
        group.end(pick.ticket, now);
        at
    };
    let before: Vec<usize> = (0..500).map(|key| owner(&mut group, key)).collect();
    assert_eq!(before, (0..500).map(|key| owner(&mut group, key)).collect::<Vec<_>>());
    group.set_admin("m3", Admin::Maintenance);
    for (key, was) in before.iter().enumerate() {
        let is = owner(&mut group, key as u64);
        assert!(is == *was || *was == 3 && is != 3, "{key}");
    }
}

#[test]
fn a_cookie_leads_to_its_member_even_while_that_runs_dry() {
    let now = Instant::now();
    let mut group = group(Balance::Sticky, vec![member("a", 1), member("b", 1)]);
    let of_b = Request { sticky: Some(hash(b"b")), ..request(now) };
    let asks = |group: &mut Group, request: &Request<'_>| {
        let pick = group.pick(request).unwrap();
        let found = (pick.at, pick.why);
        group.end(pick.ticket, now);
        found
    };
    assert_eq!(asks(&mut group, &of_b), (1, Why::Cookie));
    group.set_admin("b", Admin::Draining);
    assert_eq!(asks(&mut group, &of_b), (1, Why::Cookie));
    assert_eq!(asks(&mut group, &request(now)), (0, Why::Balance));
    group.set_admin("b", Admin::Maintenance);
    assert_eq!(asks(&mut group, &of_b), (0, Why::Balance));
    let unknown = Request { sticky: Some(7), ..request(now) };
    assert_eq!(asks(&mut group, &unknown), (0, Why::Balance));
}

#[test]
fn a_backup_serves_where_no_other_may() {
    let now = Instant::now();
    let backup = Member { is_backup: true, ..member("backup", 1) };
    let mut group = group(Balance::P2c, vec![member("a", 1), member("b", 1), backup]);
    assert_eq!(counts(&mut group, 100, now)[2], 0);
    group.set_admin("a", Admin::Maintenance);
    (0..3).for_each(|_| _ = group.checked("b", false, now));
    let pick = group.pick(&request(now)).unwrap();
    assert_eq!((pick.at, pick.why), (2, Why::Backup));
    assert_eq!(pick.passed_over, [(0, PassedOver::Maintenance), (1, PassedOver::Down)]);
    group.end(pick.ticket, now);
    (0..2).for_each(|_| _ = group.checked("b", true, now));
    assert_eq!(counts(&mut group, 100, now), [0, 100, 0]);
}

#[test]
fn a_trial_is_one_request_and_of_those_that_may_be_repeated() {
    let now = Instant::now();
    let mut group = group(Balance::P2c, vec![member("a", 1), member("b", 1)]);
    fail(&mut group, 0, 5, now);
    let due = now + Duration::from_secs(10);
    let post = Request { is_repeatable: false, ..request(due) };
    let by_post = group.pick(&post).unwrap();
    assert_eq!((by_post.at, by_post.why), (1, Why::Balance));
    let trial = group.pick(&request(due)).unwrap();
    assert_eq!((trial.at, trial.why), (0, Why::Trial));
    let beside = group.pick(&request(due)).unwrap();
    assert_eq!((beside.at, beside.passed_over.as_slice()), (1, &[(0, PassedOver::TrialDue)][..]));
    // A trial that was given up shows nothing: the next request tries.
    group.end(trial.ticket, due);
    let mut trial = group.pick(&request(due)).unwrap();
    assert_eq!(trial.why, Why::Trial);
    group.failed(&mut trial.ticket, due);
    let passed = group.pick(&request(due)).unwrap();
    assert_eq!(passed.passed_over, [(0, PassedOver::Ejected(Duration::from_secs(20)))]);
    // Where nobody else asks, a request that may not be repeated tries in the end.
    let late = group.pick(&Request { now: due + Duration::from_secs(30), ..post }).unwrap();
    assert_eq!((late.at, late.why), (0, Why::Trial));
    [by_post, beside, trial, passed, late].into_iter().for_each(|pick| group.end(pick.ticket, due));
    assert_eq!(group.report(due).under_way, 0);
}

#[test]
fn limits_refuse_what_is_too_much() {
    let now = Instant::now();
    let few = |name: &str| Member { requests_max: 2, ..member(name, 1) };
    let settings = Settings { members: vec![few("a"), few("b")], requests_max: 3, ..Settings::default() };
    let mut group = Group::new(settings, 1);
    let picks: Vec<_> = (0..3).map(|_| group.pick(&request(now)).unwrap()).collect();
    assert_eq!(group.pick(&request(now)).unwrap_err(), NoMember::Full);
    picks.into_iter().for_each(|pick| group.end(pick.ticket, now));
    group.reconfigure(Settings { requests_max: 100, ..group.settings().clone() });
    let picks: Vec<_> = (0..4).map(|_| group.pick(&request(now)).unwrap()).collect();
    assert!([0, 1].iter().all(|at| picks.iter().filter(|pick| pick.at == *at).count() == 2));
    assert_eq!(group.pick(&request(now)).unwrap_err(), NoMember::Full);
    picks.into_iter().for_each(|pick| group.end(pick.ticket, now));
    for name in ["a", "b"] {
        assert!(group.set_admin(name, Admin::Maintenance));
    }
    assert_eq!(group.pick(&request(now)).unwrap_err(), NoMember::TakenOut);
    assert!(!group.set_admin("c", Admin::InUse));
}

#[test]
fn other_settings_keep_the_state_of_members_by_their_names() {
    let now = Instant::now();
    let mut group = group(Balance::P2c, vec![member("a", 1), member("b", 1)]);
    fail(&mut group, 0, 5, now);
    let at_b = group.pick(&request(now)).unwrap();
    group
        .reconfigure(Settings { members: vec![member("c", 1), member("b", 1), member("a", 3)], ..Settings::default() });
    let members = group.report(now).members;
    assert_eq!(members[2].counts.ejections, 1);
    assert_eq!((members[0].under_way, members[1].under_way, members[2].under_way), (0, 1, 0));
    group.end(at_b.ticket, now);
    // A request may end after its member has gone.
    let at_c = loop {
        let pick = group.pick(&request(now)).unwrap();
        if pick.at == 0 {
            break pick;
        }
        group.end(pick.ticket, now);
    };
    group.reconfigure(Settings { members: vec![member("b", 1)], ..Settings::default() });
    group.end(at_c.ticket, now);
    let report = group.report(now);
    assert_eq!((report.under_way, report.members[0].under_way), (0, 0));
}

#[test]
fn a_request_is_late_by_what_others_took() {
    let now = Instant::now();
    let hedge = Some(Hedge { percentile: 95, time_min: Duration::from_millis(3) });
    let mut group = Group::new(Settings { hedge, members: vec![member("a", 1)], ..Settings::default() }, 1);
    assert_eq!(group.late_after(), None);
    for at in 0..200 {
        let mut pick = group.pick(&request(now)).unwrap();
        let time = Duration::from_millis(if at % 10 == 0 { 100 } else { 1 });
        group.succeeded(&mut pick.ticket, Some(time), now);
        group.end(pick.ticket, now);
    }
    assert!(group.late_after().unwrap() >= Duration::from_millis(100));
    let hedge = Some(Hedge { percentile: 80, time_min: Duration::from_millis(3) });
    group.reconfigure(Settings { hedge, ..group.settings().clone() });
    assert_eq!(group.late_after(), Some(Duration::from_millis(3)));
}

#[test]
fn a_request_that_was_outrun_counts_as_slow() {
    let now = Instant::now();
    let mut group = group(Balance::P2c, vec![member("a", 1), member("b", 1)]);
    counts(&mut group, 100, now);
    let mut late = group.pick(&request(now)).unwrap();
    let at = late.at;
    group.outrun(&mut late.ticket, Duration::from_millis(500), now + Duration::from_millis(500));
    group.end(late.ticket, now);
    let report = group.report(now).members;
    assert!(report[at].response_time > Some(Duration::from_millis(100)), "{report:?}");
    assert_eq!((report[at].counts.failures, report[at].under_way), (0, 0));
}

#[test]
fn a_time_that_depends_on_the_client_is_none_of_the_members() {
    let now = Instant::now();
    let hedge = Some(Hedge { percentile: 95, time_min: Duration::from_millis(3) });
    let mut group = Group::new(Settings { hedge, members: vec![member("a", 1)], ..Settings::default() }, 1);
    counts(&mut group, 100, now);
    let before = (group.late_after(), group.report(now).members[0].response_time);
    for _ in 0..100 {
        let mut post = group.pick(&Request { is_repeatable: false, ..request(now) }).unwrap();
        group.succeeded(&mut post.ticket, None, now);
        group.end(post.ticket, now);
    }
    assert_eq!((group.late_after(), group.report(now).members[0].response_time), before);
}

#[test]
fn a_group_that_is_checked_no_more_has_none_that_is_down() {
    let now = Instant::now();
    let mut group = group(Balance::RoundRobin, vec![member("a", 1), member("b", 1)]);
    (0..3).for_each(|_| _ = group.checked("a", false, now));
    (0..2).for_each(|_| _ = group.checked("b", false, now));
    assert_eq!(counts(&mut group, 10, now), [0, 10]);
    let checked = group.settings().clone();
    group.reconfigure(Settings { checks: None, ..checked.clone() });
    assert_eq!(counts(&mut group, 10, now), [5, 5]);
    // One that was under way ends.
    (0..5).for_each(|_| assert!(!group.checked("b", false, now)));
    assert_eq!(group.report(now).members[1].counts.checks, 2);
    // Checks begin anew.
    group.reconfigure(checked);
    (0..2).for_each(|_| assert!(!group.checked("b", false, now)));
    assert!(group.checked("b", false, now));
}

#[test]
fn of_the_least_bad_that_fail_those_that_are_down_come_last() {
    let now = Instant::now();
    let mut group = group(Balance::P2c, vec![member("a", 1), member("b", 1)]);
    fail(&mut group, 1, 5, now);
    (0..3).for_each(|_| _ = group.checked("a", false, now));
    // No request of it failed, whatever checks say.
    let mut first = group.pick(&request(now)).unwrap();
    assert_eq!((first.at, first.why), (0, Why::LeastBad));
    group.failed(&mut first.ticket, now);
    group.end(first.ticket, now);
    for _ in 0..20 {
        let next = group.pick(&request(now)).unwrap();
        assert_eq!((next.at, next.why), (1, Why::LeastBad));
        group.end(next.ticket, now);
    }
}

#[test]
fn a_hedge_goes_to_one_that_may_be_asked_or_costs_nothing() {
    let now = Instant::now();
    let mut group = group(Balance::P2c, vec![member("a", 1), Member { requests_max: 1, ..member("b", 1) }]);
    group.set_admin("b", Admin::Maintenance);
    let first = group.pick(&request(now)).unwrap();
    group.set_admin("b", Admin::InUse);
    let tried = [first.ticket.member()];
    let beside = Request { tried: &tried, ..request(now) };
    let hedge = group.pick_hedge(&beside).unwrap();
    assert_eq!((hedge.at, hedge.why, group.report(now).hedges), (1, Why::Balance, 1));
    // It is full now; then it is down, which a further try would ask all the same.
    assert!(group.pick_hedge(&beside).is_none());
    group.end(hedge.ticket, now);
    (0..3).for_each(|_| _ = group.checked("b", false, now));
    assert!(group.pick_hedge(&beside).is_none());
    let further = group.pick(&beside).unwrap();
    assert_eq!(further.why, Why::LeastBad);
    group.end(further.ticket, now);
    let report = group.report(now);
    assert_eq!((report.hedges, report.budget_spent, report.members[1].counts.requests), (1, 0, 2));
    // Then the budget is spent.
    (0..2).for_each(|_| _ = group.checked("b", true, now));
    let sent = (0..100).filter_map(|_| group.pick_hedge(&beside).map(|hedge| group.end(hedge.ticket, now))).count();
    assert!(sent < 20, "{sent}");
    let report = group.report(now);
    assert_eq!((report.hedges, report.budget_spent), (1 + sent as u64, 100 - sent as u64));
    group.end(first.ticket, now);
}

#[test]
fn a_trial_that_was_late_is_not_repeated_at_once() {
    let now = Instant::now();
    let hedge = Some(Hedge { percentile: 95, time_min: Duration::from_millis(3) });
    let mut group = group(Balance::P2c, vec![member("a", 1), member("b", 1)]);
    group.reconfigure(Settings { hedge, ..group.settings().clone() });
    counts(&mut group, 100, now);
    fail(&mut group, 0, 5, now);
    let mut due = now + Duration::from_secs(10);
    for (took, again) in
        [(Duration::from_millis(1), Duration::ZERO), (Duration::from_millis(5), Duration::from_secs(10))]
    {
        let mut trial = group.pick(&request(due)).unwrap();
        assert_eq!((trial.at, trial.why), (0, Why::Trial));
        group.outrun(&mut trial.ticket, took, due);
        group.end(trial.ticket, due);
        let left = group.report(due).members[0].ejected_for;
        assert_eq!(left.unwrap_or_default(), again, "{took:?}");
        due += again;
    }
    // The time doubles for a trial that fails, once: those that were late have not made it longer.
    let mut trial = group.pick(&request(due)).unwrap();
    assert_eq!(trial.why, Why::Trial);
    group.failed(&mut trial.ticket, due);
    group.end(trial.ticket, due);
    assert_eq!(group.report(due).members[0].ejected_for, Some(Duration::from_secs(20)));
}

/// An event of a random history.
#[derive(Clone, Debug)]
enum Event {
    Pick { repeatable: bool, key: u64, sticky: Option<usize> },
    Succeed(usize),
    Fail(usize),
    End(usize),
    Check(usize, bool),
    Admin(usize, usize),
    Wait(u64),
    Members(usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (any::<bool>(), any::<u64>(), prop::option::of(0..6_usize))
            .prop_map(|(repeatable, key, sticky)| Event::Pick { repeatable, key, sticky }),
        4 => (0..8_usize).prop_map(Event::Succeed),
        6 => (0..8_usize).prop_map(Event::Fail),
        4 => (0..8_usize).prop_map(Event::End),
        2 => (0..6_usize, any::<bool>()).prop_map(|(at, good)| Event::Check(at, good)),
        1 => (0..6_usize, 0..3_usize).prop_map(|(at, admin)| Event::Admin(at, admin)),
        4 => (0..20_000_u64).prop_map(Event::Wait),
        1 => (1..6_usize).prop_map(Event::Members),
    ]
}

proptest! {
    /// In any history a pick names a member that is there and in no maintenance, counts come out right, at most the permitted
    /// part is ejected, and a group with a member in use and room refuses nobody.
    #[test]
    fn invariants_hold_in_any_history(
        balance in 0..5_usize,
        many in 1..6_usize,
        seed in any::<u64>(),
        events in prop::collection::vec(event(), 1..300),
    ) {
        let members = |many| (0..many).map(|at| Member { is_backup: at == 4, ..member(&format!("m{at}"), 1 + at as u32) }).collect::<Vec<_>>();
        let checks = Some(Checks::default());
        let settings = Settings { balance: Balance::ALL[balance], members: members(many), checks, ..Settings::default() };
        let mut group = Group::new(settings.clone(), seed);
        let (mut now, mut open) = (Instant::now(), Vec::new());
        let ejections = |members: &[MemberReport]| members.iter().map(|member| member.counts.ejections).sum::<u64>();
        let is_out = |member: &MemberReport| matches!(member.state, MemberState::Ejected | MemberState::Trial);
        for event in events {
            let before = group.report(now).members;
            match event {
                Event::Pick { repeatable, key, sticky } => {
                    let sticky = sticky.map(|at| hash(format!("m{at}").as_bytes()));
                    match group.pick(&Request { now, key, sticky, is_repeatable: repeatable, tried: &[] }) {
                        Ok(pick) => {
                            prop_assert!(before[pick.at].admin != Admin::Maintenance);
                            prop_assert!(before[pick.at].admin == Admin::InUse || pick.why == Why::Cookie);
                            prop_assert!(pick.passed_over.iter().all(|(at, _)| *at != pick.at && *at < before.len()));
                            open.push(pick.ticket);
                        }
                        Err(why) => {
                            prop_assert_eq!(why, NoMember::TakenOut);
                            prop_assert!(before.iter().all(|member| member.admin != Admin::InUse));
                        }
                    }
                }
                Event::Succeed(at) if at < open.len() => _ = group.succeeded(&mut open[at], Some(Duration::from_millis(1)), now),
                Event::Fail(at) if at < open.len() => _ = group.failed(&mut open[at], now),
                Event::End(at) if at < open.len() => group.end(open.swap_remove(at), now),
                Event::Succeed(_) | Event::Fail(_) | Event::End(_) => {}
                Event::Check(at, good) => _ = group.checked(&format!("m{at}"), good, now),
                Event::Admin(at, admin) => _ = group.set_admin(&format!("m{at}"), Admin::ALL[admin]),
                Event::Wait(millis) => now += Duration::from_millis(millis),
                Event::Members(many) => group.reconfigure(Settings { members: members(many), ..settings.clone() }),
            }
            let report = group.report(now);
            // Ejected members may become a larger part when others leave; the next ejection is what is bounded.
            if ejections(&report.members) > ejections(&before) {
                let counted = report.members.iter().filter(|member| !member.is_backup && member.admin == Admin::InUse);
                let (all, out) = counted.fold((0, 0), |(all, out), member| (all + 1, out + usize::from(is_out(member))));
                prop_assert!(all >= 2 && out <= (all / 2).max(1), "{:?}", report);
            }
            prop_assert_eq!(report.under_way, open.len());
            prop_assert!(report.members.iter().map(|member| member.under_way).sum::<usize>() <= open.len());
        }
        open.into_iter().for_each(|ticket| group.end(ticket, now));
        let report = group.report(now);
        prop_assert_eq!((report.under_way, report.members.iter().map(|member| member.under_way).sum::<usize>()), (0, 0));
    }
}
