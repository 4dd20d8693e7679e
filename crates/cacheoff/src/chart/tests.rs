//! Golden figures: what a chart draws is compared with a committed file. `BLESS=1 cargo test -p cacheoff chart` writes them
//! anew; look at them in a browser before they are committed.

use super::*;
use std::path::Path;

fn wave(count: usize, scale: f64) -> Vec<(f64, f64)> {
    (0..count).map(|i| (i as f64, scale * (1.2 + (i as f64 / 9.0).sin() + 0.15 * (i as f64 * 1.7).cos()))).collect()
}

fn trace() -> Chart {
    let bands = [("warm", 0.0, 12.0), ("top1", 12.0, 80.0), ("dec1", 80.0, 120.0)].map(|(name, from, to)| Band {
        name: name.to_owned(),
        from,
        to,
    });
    let hole = wave(120, 300.0).into_iter().map(|(x, y)| (x, if (50.0..56.0).contains(&x) { f64::NAN } else { y }));
    Chart::new("Load", Axis::new("time", Unit::Elapsed), Axis::new("requests/s", Unit::PerSecond))
        .with("asked", Shape::Step, Tone::Ideal, vec![(0.0, 100.0), (12.0, 600.0), (80.0, 300.0), (120.0, 300.0)])
        .with("all", Shape::Area, Tone::Ink, wave(120, 280.0))
        .with("hits & <misses>", Shape::Line, Tone::HIT, hole.collect())
        .with("errors", Shape::Points, Tone::MISS, vec![(20.0, 30.0), (90.0, 60.0)])
        .banded(&bands)
}

fn percentiles() -> Chart {
    let curve = |scale: f64| -> Vec<(f64, f64)> {
        (0..=40)
            .map(|i| f64::from(i) / 10.0)
            .map(|nines| (1.0 - 10_f64.powf(-nines), scale * 1.9_f64.powf(nines)))
            .collect()
    };
    let names = ["larder", "squid", "nginx", "varnish", "trafficserver", "haproxy", "apache", "h2o", "another"];
    let empty = Chart::new(
        "Response time by percentile",
        Axis::new("percentile", Unit::Share).scaled(Scale::Nines),
        Axis::new("response time", Unit::Micros).scaled(Scale::Log),
    );
    names.iter().enumerate().fold(empty, |chart, (i, name)| {
        chart.with(name, Shape::Line, Tone::Nth(i), curve(90.0 * 1.4_f64.powi(i as i32)))
    })
}

fn distribution() -> Chart {
    let bump = |centre: f64| -> Vec<(f64, f64)> {
        (0..=60)
            .map(|i| (10_f64.powf(f64::from(i) / 10.0), 0.1 * (-(f64::from(i) / 10.0 - centre).powi(2) * 3.0).exp()))
            .collect()
    };
    Chart::new(
        "Response times",
        Axis::new("response time", Unit::Micros).scaled(Scale::Log),
        Axis::new("share of replies", Unit::Share),
    )
    .with("hits", Shape::Histogram, Tone::HIT, bump(2.2))
    .with("misses", Shape::Histogram, Tone::MISS, bump(5.0))
}

fn bars() -> Bars {
    let rows = [
        ("larder", 97_412.0, Some((95_000.0, 98_100.0))),
        ("squid", 38_000.0, Some((30_000.0, 39_900.0))),
        ("failed", f64::NAN, None),
    ];
    Bars {
        title: "Throughput".to_owned(),
        remark: "replies/s, more is better; whiskers: lowest and highest round".to_owned(),
        unit: Unit::PerSecond,
        bars: rows
            .into_iter()
            .enumerate()
            .map(|(i, (name, value, spread))| Bar { name: name.to_owned(), tone: Tone::Nth(i), value, spread })
            .collect(),
    }
}

fn golden(name: &str, drawn: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, drawn).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == drawn, "{name} is drawn differently; if the new one is right: BLESS=1");
}

#[test]
fn figures_are_drawn_as_committed() {
    golden("trace.svg", &trace().file());
    golden("percentiles.svg", &percentiles().file());
    golden("distribution.svg", &distribution().file());
    golden("bars.svg", &bars().file());
}

#[test]
fn text_is_escaped_and_nothing_runs() {
    let drawn = trace().svg();
    assert!(drawn.contains("hits &amp; &lt;misses&gt;") && !drawn.contains("<misses>"));
    assert!(!drawn.contains("<script") && !drawn.contains("NaN") && !drawn.contains("inf"));
}

#[test]
fn a_long_trace_keeps_its_peak() {
    let mut points = wave(20_000, 1.0);
    points[12_345].1 = 99.0;
    let chart = |points| {
        Chart::new("t", Axis::new("x", Unit::Count), Axis::new("y", Unit::Count)).with(
            "s",
            Shape::Line,
            Tone::Ink,
            points,
        )
    };
    let drawn = chart(points).svg();
    assert!(drawn.len() < 40_000, "{}", drawn.len());
    let top =
        drawn.split(['L', 'M']).filter_map(|p| p.split([' ', '"']).nth(1)?.parse::<f64>().ok()).fold(999.0, f64::min);
    assert!(top < 60.0, "{top}");
}

#[test]
fn nothing_to_draw_is_drawn_as_an_empty_frame() {
    let chart = Chart::new("none", Axis::new("x", Unit::Count), Axis::new("y", Unit::Micros).scaled(Scale::Log));
    assert!(chart.is_empty() && !chart.svg().contains("NaN"));
}
