use super::*;
use crate::distribution::Distribution::*;
use crate::ledger::Kind;

fn standard(name: &str) -> Workload {
    Builtin::named(name).unwrap().workload(None).unwrap_or_else(|report| panic!("{report}"))
}

fn near(found: f64, wanted: f64, tolerance: f64) {
    assert!((found - wanted).abs() <= tolerance, "{found} is not {wanted} within {tolerance}");
}

#[test]
fn every_workload_and_variant_that_comes_with_the_program_is_sound() {
    for builtin in BUILTIN {
        let workload = standard(builtin.name);
        assert_eq!(workload.name, builtin.name);
        for (variant, about) in variants(builtin.text) {
            assert!(!about.is_empty());
            builtin.workload(Some(&variant)).unwrap_or_else(|report| panic!("{}:{variant}\n{report}", builtin.name));
        }
    }
}

#[test]
fn polymix_2_is_that_of_the_cache_off() {
    let workload = standard("polymix-2");
    let shares: Vec<f64> = workload.real_shares();
    for (found, wanted) in shares.iter().zip([0.6562, 0.1473, 0.0049, 0.1915]) {
        near(*found, wanted, 0.00006);
    }
    let direct = workload.direct_shares();
    for (found, wanted) in direct.iter().zip([0.0, 0.4286, 0.0143, 0.5571]) {
        near(*found, wanted, 0.00006);
    }
    near(workload.cachable_share(), 0.800, 0.0005);
    assert_eq!(workload.robots.pace, Pace::Poisson { rate_per_s: 0.4 });
    near(workload.interest.recurrence, 0.6875, 1e-12);
    assert_eq!(workload.servers.think, Normal(2.5, 1.0));
    assert_eq!((workload.robots.connection_uses, workload.servers.connection_uses), (Zipf(64.0), Zipf(16.0)));
    assert_eq!(workload.contents[0].size, Exponential(4_608.0));
    assert_eq!(workload.contents[2].size, LogNormal(307_200.0, 307_200.0));
    assert!(workload.contents.iter().all(|content| content.life.cycle.is_none()));
    assert_eq!(workload.server_link.delay, Duration::from_millis(40));
    near(workload.server_link.loss, 0.0005, 1e-12);
    let length: Duration = workload.phases.iter().filter_map(|phase| phase.length).sum();
    assert_eq!(length, Duration::from_secs(14 * 3600 + 4 * 60));
    near(workload.peak_seconds(4.0 * 3600.0), 12_618.0, 0.5);
}

#[test]
fn the_other_standards_have_their_numbers() {
    let fill = standard("polyfill-2");
    for (found, wanted) in fill.real_shares().iter().zip([0.809, 0.182, 0.0015, 0.008]) {
        near(*found, wanted, 0.0005);
    }
    near(fill.body_mean() / 1024.0, 5.8, 0.06);
    near(fill.cachable_share(), 1.0, 1e-9);
    let third = standard("polymix-3");
    near(third.interest.recurrence, 0.7237, 0.00005);
    assert_eq!(third.interest.working_set, WorkingSet::CapPerRate(4_860.0));
    near(1.0 - third.requests.ims_200 - third.requests.ims_304 - third.requests.reload, 0.8, 1e-9);
    assert_eq!(third.contents[1].life.cycle, Some(LogNormal(7.0 * 86_400.0, 86_400.0)));
    let fourth = standard("polymix-4");
    assert_eq!(fourth.interest.working_set, WorkingSet::CapPerRate(5_184.0));
    let timed: Duration = fourth.phases.iter().filter_map(|phase| phase.length).sum();
    near(timed.as_secs_f64() / 3600.0, 10.0 + 1.0 / 3.0, 1e-9);
    let axe = standard("webaxe-4");
    near(axe.interest.recurrence * axe.cachable_share(), 0.76, 0.0005);
    assert_eq!(axe.interest.working_set, WorkingSet::Cap(95_325));
    assert!(axe.server_link == Link::default() && axe.client_link.delay == Duration::from_millis(40));
    let down = standard("downtime-2");
    assert_eq!(down.robots.pace, Pace::Constant { rate_per_s: 3.0 });
    assert_eq!(down.phases.iter().filter(|phase| phase.dark).count(), 1);
}

#[test]
fn what_a_page_embeds_has_its_marks() {
    let shares = |name: &str, variant: Option<&str>| {
        let workload = Builtin::named(name).unwrap().workload(variant).unwrap();
        (workload.mix(1.0), workload.mix(0.1))
    };
    let (full, tenth) = shares("polymix-3", None);
    near(full.of(Kind::Validation), 0.15, 1e-9);
    near(full.of(Kind::Reload), 0.05, 1e-9);
    near(tenth.of(Kind::Validation), 0.015, 1e-9);
    near(full.contents[0], 0.6562, 0.00006);
    near(full.basic[0], 0.6562, 0.00006);
    // Without children of pages that were answered 304: 0.1 / (0.1 + 0.9 * 2.909), and 0.05 * 2.909 of the same.
    let (read, _) = shares("polymix-3", Some("as-read"));
    near(read.of(Kind::Validation), 0.0903, 0.0005);
    near(read.of(Kind::Reload), 0.0535, 0.0005);
    near(read.contents[0], 0.632, 0.001);
    let (fourth, _) = shares("polymix-4", None);
    // Embedded objects are never sent as POST, nor asked for by a HEAD.
    near(fourth.of(Kind::Upload), 0.015 / 2.907, 0.0001);
    near(fourth.of(Kind::Head), 0.001 / 2.907, 0.0001);
    near(fourth.of(Kind::Validation), 0.15, 0.001);
}

#[test]
fn factors_go_on_where_the_phase_before_ended() {
    let workload = standard("polymix-4");
    let populus = |name: &str| workload.phases.iter().find(|phase| phase.name == name).unwrap().populus;
    assert_eq!(populus("fill"), Factor::flat(0.5));
    assert!(populus("fexit").from == 0.5 && populus("fexit").to < 1e-6);
    assert_eq!(populus("inc1").to, 1.0);
    assert_eq!(populus("top1"), Factor::flat(1.0));
}

#[test]
fn a_scaled_run_ramps_its_population() {
    let scaled = standard("polymix-2").scaled(0.01);
    let inc = scaled.workload.phases.iter().find(|phase| phase.name == "inc1").unwrap();
    assert_eq!((inc.load, inc.populus), (Factor::flat(1.0), Factor { from: 0.1, to: 1.0 }));
    assert_eq!(inc.length, Some(Duration::from_secs(36)));
    assert_eq!(scaled.workload.interest.working_set, WorkingSet::FreezeAt(Duration::from_secs(144)));
    near(scaled.workload.peak_seconds(144.0), 126.18, 0.01);
    assert_eq!(scaled.notes.len(), 3, "{:?}", scaled.notes);
    assert!(standard("polymix-2").scaled(1.0).notes.is_empty());
}

const SMALL: &str = r#"name = "mine"
about = "A test."
[[content]]
name = "page"
share = "100%"
size = "1KB"
[[phase]]
name = "all"
length = "1min"
"#;

fn wrong(text: &str) -> String {
    load("mine.toml", text, None, &[]).expect_err(text).to_string()
}

#[test]
fn all_that_is_wrong_is_shown_at_once_with_its_lines() {
    let text = SMALL.replace("1KB", "1kilo").replace("length", "lenght") + "[robot]\npace = \"fast\"\ncuont = 3\n";
    let shown = wrong(&text);
    for part in ["mine.toml:6:8", "did you mean length?", "robot.pace", "did you mean robot.count?", "5 | share"] {
        assert_eq!(shown.contains(part), part != "5 | share", "{part}\n{shown}");
    }
    assert!(shown.contains("^^^^^^^"), "{shown}");
    assert!(shown.ends_with("4 errors in mine.toml\n"), "{shown}");
}

#[test]
fn nonsense_is_refused() {
    let cases = [
        (SMALL.replace("100%", "90%"), "add up to 90.00 %"),
        (SMALL.replace("100%", "110%"), "is not a share"),
        (SMALL.replace("length = \"1min\"\n", ""), "never ends"),
        (SMALL.replace("size = \"1KB\"", ""), "`size` is missing"),
        (SMALL.replace("1KB", "exp(0)"), "no numbers for exp"),
        (SMALL.to_owned() + "[[phase]]\nname = \"all\"\nlength = \"1s\"\n", "two phases are called"),
        (SMALL.to_owned() + "[rules]\nreport_phase = \"top2\"\n", "no logged phase \"top2\""),
        (SMALL.to_owned() + "[interest]\npopularity = \"zipf(0.8)\"\n", "needs a fixed working set"),
        (
            SMALL.to_owned()
                + "[interest]\nrecurrence = 0.9\n[[phase]]\nname = \"b\"\nlength = \"1s\"\nrecurrence = 2\n",
            "recurrence reaches 180.0 %",
        ),
        (SMALL.to_owned() + "[requests]\nreload = 0.6\nrange = 0.6\n", "add up to 120.0 %"),
        (SMALL.replace("size = \"1KB\"", "size = \"1KB\"\nembeds = 3\nembeds_of = { pgae = 1 }"), "did you mean page?"),
        (SMALL.replace("[[content]]", "[content]"), "content is a list of tables"),
        (SMALL.replace("share = ", "share "), "mine.toml:5"),
        (String::new(), "`name` is missing"),
    ];
    for (text, part) in cases {
        let shown = wrong(&text);
        assert!(shown.contains(part), "{part}\n{shown}");
    }
}

#[test]
fn knobs_change_by_variants_and_flags() {
    let change = |knob: &str, value: &str| [(knob.to_owned(), value.to_owned())];
    let changed = load("m", SMALL, None, &change("content.page.size", "2KB")).unwrap();
    assert_eq!(changed.contents[0].size, Constant(2_048.0));
    assert!(load("m", SMALL, None, &change("content.pgae.size", "2KB")).is_err());
    assert!(load("m", SMALL, None, &change("phase.all.length", "5")).is_err());
    assert!(load("m", SMALL, Some("none"), &[]).unwrap_err().to_string().contains("this workload has none"));
    let close = Builtin::named("hammer").unwrap().workload(Some("close")).unwrap();
    assert_eq!(close.robots.connection_uses, Constant(1.0));
}

#[test]
fn the_reference_in_the_tree_is_the_one_that_is_made() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/workloads.md");
    let made = markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(file, &made).unwrap();
    }
    let found = std::fs::read_to_string(file).unwrap_or_default();
    assert!(found == made, "docs/workloads.md is out of date: UPDATE_DOCS=1 cargo test -p cacheoff the_reference");
}

proptest::proptest! {
    #[test]
    fn no_text_of_a_file_is_too_strange(which in 0..BUILTIN.len(), cut in 0.0..1.0f64, put in "[ -~\\n]{0,12}|\"|é|1e400|-1|\\[\\[phase\\]\\]\\n") {
        let text = BUILTIN[which].text;
        let at = text.floor_char_boundary((text.len() as f64 * cut) as usize);
        let strange = format!("{}{put}{}", &text[..at], &text[at..]);
        if let Err(report) = load("strange.toml", &strange, None, &[]) {
            proptest::prop_assert!(!report.problems().is_empty() && report.to_string().contains("strange.toml"));
        }
        let _ = load("cut.toml", &text[..at], Some("paced"), &[]);
    }
}
