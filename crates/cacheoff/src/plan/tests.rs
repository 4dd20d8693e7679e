use super::*;
use crate::workload::{BUILTIN, Builtin, load};

fn plan(name: &str, peak: f64) -> Plan {
    let workload = Builtin::named(name).unwrap().workload(None).unwrap();
    Plan::of(&workload, &Asked { peak_per_s: Some(peak), cache_bytes: None })
}

fn near(found: f64, wanted: f64, tolerance: f64) {
    assert!((found - wanted).abs() <= tolerance, "{found} is not {wanted} within {tolerance}");
}

const KB: f64 = 1024.0;

#[test]
fn the_plan_of_polymix_2_has_the_figures_of_its_report() {
    let plan = plan("polymix-2", 1.0);
    near(plan.size_mean / KB, 10.47, 0.01);
    near(plan.cachable, 0.800, 0.0005);
    near(plan.dhr.unwrap(), 0.55, 0.0005);
    near(plan.bhr.unwrap(), 0.548, 0.0005);
    near(plan.fill.unwrap(), 0.25, 0.0005);
    let set = plan.working_set.unwrap();
    near(set.objects, 3_943.0, 1.0);
    near(set.cachable_objects, 3_154.0, 2.0);
    near(set.cachable_bytes / KB / KB, 32.1, 0.1);
    near(set.cachable_bytes / set.cachable_objects / KB, 10.42, 0.01);
    let (kept, fresh) = plan.response_s.unwrap();
    assert!(kept < 1.2 && (1.19..1.3).contains(&fresh), "{kept} to {fresh}");
    assert_eq!(plan.miss_s, (2.58, 2.66));
    assert_eq!(plan.phases.last().unwrap().begins, Some(Duration::from_secs(14 * 3600 + 3 * 60)));
    assert_eq!(plan.how, How::Formula);
}

#[test]
fn a_thousand_requests_a_second_need_what_the_report_says() {
    let plan = plan("polymix-2", 1_000.0);
    assert_eq!((plan.robots, plan.servers), (2_500, 750));
    let set = plan.working_set.unwrap();
    near(set.cachable_objects / 1e6, 3.2, 0.05);
    near(set.cachable_bytes / 1e9, 33.6, 0.2);
    let lru = plan.lru_99_bytes.unwrap();
    assert!(lru > set.cachable_bytes && lru < 1.7 * set.cachable_bytes, "{lru} of {}", set.cachable_bytes);
}

#[test]
fn the_other_standards_are_planned() {
    let third = plan("polymix-3", 10.0);
    near(third.dhr.unwrap(), 0.579, 0.02);
    assert!(matches!(third.how, How::Sampling { .. }));
    let fourth = plan("polymix-4", 10.0);
    near(fourth.dhr.unwrap(), 0.55, 0.04);
    assert!(fourth.bhr.unwrap() < fourth.dhr.unwrap() - 0.05, "popular objects are small");
    let fill = plan("polyfill-2", 100.0);
    near(fill.dhr.unwrap(), 0.05, 1e-9);
    assert_eq!(fill.peak_per_s, None);
    near(plan("webaxe-4", 10.0).dhr.unwrap(), 0.76, 0.05);
}

#[test]
fn every_workload_is_explained() {
    for builtin in BUILTIN {
        let workload = builtin.workload(None).unwrap();
        let plan = Plan::of(&workload, &Asked { peak_per_s: None, cache_bytes: Some(1 << 30) });
        let text = explain(&workload, &plan);
        for part in [builtin.name, "who asks", "origins", "phase "] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        assert!(plan.dhr.is_none_or(|dhr| (0.0..=1.0).contains(&dhr)), "{}", builtin.name);
    }
}

#[test]
fn one_object_is_hit_by_all_but_the_first() {
    let text = "name = \"one\"\nabout = \"One object.\"\npeak = 100\n[robot]\npace = \"constant(1)\"\n\
        [interest]\nworking_set = \"fixed(1)\"\n[[content]]\nname = \"page\"\nshare = 1\nsize = \"1KB\"\n\
        [[phase]]\nname = \"all\"\nlength = \"100s\"\n";
    let workload = load("one", text, None, &[]).unwrap();
    let plan = Plan::of(&workload, &Asked::default());
    near(plan.dhr.unwrap(), 1.0 - 1.0 / 10_000.0, 1e-9);
    assert_eq!((plan.lru_99_bytes, plan.requests), (Some(1024.0), Some(10_000.0)));
}

#[test]
fn no_hit_is_planned_on_what_is_personal_or_expired_nor_for_users_who_are_logged_in() {
    let dhr = |robots: &str, content: &str| {
        let text = format!(
            "name = \"one\"\nabout = \"One object.\"\npeak = 1\n[robot]\npace = \"constant(1)\"\n{robots}\
             [interest]\nworking_set = \"fixed(1)\"\n[[content]]\nname = \"page\"\nshare = 1\nsize = \"1KB\"\n{content}\
             [[phase]]\nname = \"all\"\nlength = \"10000s\"\n"
        );
        let workload = load("one", &text, None, &[]).unwrap_or_else(|report| panic!("{report}"));
        Plan::of(&workload, &Asked::default()).dhr.unwrap()
    };
    near(dhr("", ""), 1.0, 0.001);
    near(dhr("", "personal = true\n"), 0.0, 1e-9);
    near(dhr("[requests]\nlogged_in = \"20%\"\n", ""), 0.8, 0.02);
    // One request a second: one of ten fetches it, or, with a grace, one of many.
    near(dhr("", "cache_control = \"public, max-age=10\"\n"), 0.9, 0.01);
    near(dhr("", "cache_control = \"public, max-age=10, stale-while-revalidate=10\"\n"), 1.0, 0.01);
    near(dhr("", "cycle = \"20s\"\n"), 0.95, 0.01);
    near(dhr("[requests]\nreload = \"50%\"\n", ""), 1.0, 0.001);
}

#[test]
fn a_tree_that_is_walked_twice_is_hit_by_half() {
    for variant in [None, Some("three")] {
        let workload = Builtin::named("tree").unwrap().workload(variant).unwrap();
        let plan = Plan::of(&workload, &Asked::default());
        near(plan.dhr.unwrap(), 0.5, 1e-3);
        near(plan.lru_99_bytes.unwrap() / plan.working_set.unwrap().cachable_bytes, 1.0, 0.1);
    }
}
