//! That the intervals are what they say, and that what is wrong is found all the same.

use super::*;
use crate::run::route;
use crate::workload::Builtin;

fn workload() -> Workload {
    Builtin::named("polymix-2").unwrap().workload(None).unwrap().scaled(0.001).workload
}

fn rehearsed(workload: &Workload) -> Rehearsed<'_> {
    let wanted = Wanted {
        peak: Some(100.0),
        seed: 0,
        epoch: 1_800_000_000,
        route: route(None, None, 1),
        workers: 1,
        cache_bytes: None,
        log: None,
        tls: None,
    };
    Rehearsed { workload, wanted }
}

fn outside(all: &[Vec<Row>], spreads: &BTreeMap<String, Spread>, share: f64) -> (usize, usize) {
    let bounds: BTreeMap<&str, Bounds> =
        spreads.iter().map(|(what, spread)| (what.as_str(), spread.bounds(share))).collect();
    let alarms = |rows: &Vec<Row>| rows.iter().filter(|row| !bounds[row.what.as_str()].hold(row.measured)).count();
    let counts: Vec<usize> = all.iter().map(alarms).collect();
    (counts.iter().sum(), counts.iter().filter(|count| **count > 0).count())
}

/// Seeds that had no part in the intervals fall out of them as often as is said: each figure, and a table as a whole.
#[test]
fn figures_of_other_seeds_fall_outside_as_often_as_is_said() {
    let workload = workload();
    let rehearsed = rehearsed(&workload);
    for partner in [Partner::Origins, Partner::Cache] {
        let spreads = rehearsed.spreads(partner).unwrap();
        let all = rehearsed.many(1..401, partner).unwrap();
        let cells = 400 * spreads.len();
        // Of 3,600 cells 180 are expected at 5 %, fewer of those whose intervals are on the safe side; figures of a seed
        // hang together.
        let (cells_outside, _) = outside(&all, &spreads, 0.05);
        assert!((cells / 40..cells / 13).contains(&cells_outside), "{partner:?}: {cells_outside} of {cells}");
        // Of 400 tables 4 are expected at most; 12 or more would come up once in a thousand times.
        let (_, tables) = outside(&all, &spreads, each(spreads.len()));
        assert!(tables < 12, "{partner:?}: {tables} of 400 tables");
    }
}

/// The law that is drawn from is the one that is declared.
#[test]
fn seeds_draw_what_is_declared_on_the_average() {
    let workload = workload();
    let rehearsed = rehearsed(&workload);
    let rows = rehearsed.once(1, Partner::Nobody).unwrap();
    let spreads = rehearsed.spreads(Partner::Nobody).unwrap();
    assert_eq!(rows.len(), spreads.len());
    for (row, spread) in rows.iter().map(|row| (row, spreads[&row.what])) {
        assert!(super::super::is_law(row, &spread, 1e-3), "{}: {} instead of {}", row.what, spread.mean(), row.ideal);
    }
}

/// Seeds of a test that looks at many workloads.
const FEW: u64 = 16;

/// All standard workloads draw what they declare: the means of a few seeds lie near the ideals.
#[test]
fn every_standard_workload_draws_what_it_declares() {
    for (name, variant, scale, cache_mb) in [
        ("polymix-1", None, 0.02, 8),
        ("polymix-3", None, 0.001, 8),
        ("polymix-3", Some("as-read"), 0.001, 8),
        ("polymix-4", None, 0.001, 8),
        ("webaxe-4", None, 0.001, 8),
        ("polyfill-2", None, 0.002, 64),
        ("downtime-2", None, 0.2, 8),
    ] {
        let workload = Builtin::named(name).unwrap().workload(variant).unwrap().scaled(scale).workload;
        let mut rehearsed = rehearsed(&workload);
        rehearsed.wanted.cache_bytes = Some(cache_mb << 20);
        let all = rehearsed.many(1..1 + FEW, rehearsed.nobody()).unwrap();
        for (number, row) in all[0].iter().enumerate() {
            let mean = all.iter().map(|rows| rows[number].measured).sum::<f64>() / FEW as f64;
            let ideal = all.iter().map(|rows| rows[number].ideal).sum::<f64>() / FEW as f64;
            let around = if row.unit == "%" { 2.5 } else { 0.1 * ideal };
            assert!((mean - ideal).abs() <= around, "{name} {variant:?}, {}: {mean} instead of {ideal}", row.what);
        }
        let has = |what: &str| all[0].iter().any(|row| row.what == what);
        let marks = name == "polymix-3" || name.ends_with("-4");
        assert_eq!((has("validations"), has("reloads")), (marks, marks), "{name}");
    }
}

/// Robots that ask for a few points more pages than is declared: their figures are no longer those of their seed, and on
/// the average not those that are declared.
#[test]
fn a_share_that_is_off_by_a_few_points_is_found() {
    let workload = workload();
    let mut wrong = workload.clone();
    for content in &mut wrong.contents {
        content.direct = match content.name.as_str() {
            "html" => Some(0.50),
            "other" => Some(0.4857),
            _ => content.direct,
        };
    }
    let (right, wrong) = (rehearsed(&workload), rehearsed(&wrong));
    let rows = right.once(7, Partner::Origins).unwrap();
    let played = wrong.once(7, Partner::Origins).unwrap();
    let found = rows.iter().zip(&played).any(|(row, played)| !super::super::is_own(row, played.measured));
    assert!(found, "by its seed");
    let spreads = wrong.spreads(Partner::Nobody).unwrap();
    let found = rows.iter().any(|row| !super::super::is_law(row, &spreads[&row.what], 1e-3));
    assert!(found, "by the mean of many");
}

#[test]
fn quantiles_are_those_of_the_tables() {
    for (above, degrees, value) in [(0.025, 30.0, 2.042), (0.005, 60.0, 2.660), (0.0005, 120.0, 3.373)] {
        assert!((student(above, degrees) - value).abs() < 0.002, "{above} {degrees}: {}", student(above, degrees));
    }
    assert!((normal(0.00135) - 3.0).abs() < 0.001, "{}", normal(0.00135));
    assert!((each(27) - 0.01 / 27.0).abs() < 1e-12);
}
