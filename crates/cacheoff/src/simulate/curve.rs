//! Miss ratios by size and policy: as a table, as CSV, as a figure.

use super::policy::{Hits, Policy, replay};
use super::trace::Trace;
use crate::chart::{Axis, Chart, Scale, Shape, Tone, Unit};
use std::fmt::Write;

/// The hits of one policy at one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Size of the cache in bytes.
    pub capacity_bytes: u64,
    /// Share of the requests that miss.
    pub misses: f64,
    /// Share of the bytes that miss.
    pub byte_misses: f64,
}

/// One policy at all sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The policy.
    pub policy: Policy,
    /// In the order of sizes.
    pub points: Vec<Point>,
}

/// Replays a trace through all policies at all sizes.
pub fn curves(trace: &Trace, policies: &[Policy], sizes: &[u64]) -> Vec<Curve> {
    let (count, bytes) =
        (trace.requests.len() as f64, trace.requests.iter().map(|each| each.bytes as f64).sum::<f64>());
    let point = |policy, capacity_bytes| {
        let Hits { requests, bytes: hit } = replay(policy, capacity_bytes, &trace.requests);
        let misses = |hits: u64, all: f64| if all > 0.0 { 1.0 - hits as f64 / all } else { 1.0 };
        Point { capacity_bytes, misses: misses(requests, count), byte_misses: misses(hit, bytes) }
    };
    let curve =
        |policy: &Policy| Curve { policy: *policy, points: sizes.iter().map(|size| point(*policy, *size)).collect() };
    policies.iter().map(curve).collect()
}

/// Sizes from a thousandth of the footprint to all of it, each half as large again as the last but one.
pub fn sizes(footprint_bytes: u64) -> Vec<u64> {
    const STEPS: [f64; 13] = [0.001, 0.002, 0.003, 0.006, 0.01, 0.02, 0.03, 0.06, 0.1, 0.2, 0.3, 0.6, 1.0];
    let mut sizes: Vec<u64> = STEPS.iter().map(|step| (step * footprint_bytes as f64).ceil() as u64).collect();
    sizes.dedup();
    sizes
}

/// A table for the terminal, by requests or by bytes.
pub fn text(curves: &[Curve], by_bytes: bool) -> String {
    let mut out = format!("{:>12}", "cache");
    curves.iter().for_each(|curve| out += &format!("{:>10}", curve.policy.as_str()));
    out.push('\n');
    let rows = curves.first().map_or(0, |curve| curve.points.len());
    for row in 0..rows {
        let _ = write!(out, "{:>12}", Unit::Bytes.text(curves[0].points[row].capacity_bytes as f64));
        for curve in curves {
            let _ = write!(out, "{:>9.2}%", 100.0 * ratio(&curve.points[row], by_bytes));
        }
        out.push('\n');
    }
    out
}

/// Rows of policy, size, miss ratio, byte miss ratio.
pub fn csv(curves: &[Curve]) -> String {
    let mut out = String::from("policy,cache_bytes,miss_ratio,byte_miss_ratio\n");
    for curve in curves {
        for point in &curve.points {
            let Point { capacity_bytes, misses, byte_misses } = point;
            let _ = writeln!(out, "{},{capacity_bytes},{misses:.6},{byte_misses:.6}", curve.policy.as_str());
        }
    }
    out
}

/// The curves as a figure.
pub fn figure(curves: &[Curve], by_bytes: bool) -> Chart {
    let what = if by_bytes { "bytes that miss" } else { "requests that miss" };
    let x = Axis::new("size of the cache", Unit::Bytes).scaled(Scale::Log);
    let chart = Chart::new("Misses by size", x, Axis::new(what, Unit::Share).up_to(1.0));
    let points = |curve: &Curve| {
        curve.points.iter().map(|point| (point.capacity_bytes as f64, ratio(point, by_bytes))).collect::<Vec<_>>()
    };
    curves.iter().enumerate().fold(chart, |chart, (number, curve)| {
        let tone = if curve.policy == Policy::Belady { Tone::Ideal } else { Tone::Nth(number) };
        chart.with(curve.policy.as_str(), Shape::Line, tone, points(curve))
    })
}

fn ratio(point: &Point, by_bytes: bool) -> f64 {
    if by_bytes { point.byte_misses } else { point.misses }
}

#[cfg(test)]
mod tests {
    use super::super::Form;
    use super::*;

    #[test]
    fn curves_fall_and_are_shown_in_every_form() {
        let text_of_log = include_bytes!("../../tests/data/small.trace");
        let trace = Trace::read(Form::Columns, &text_of_log[..], 1_000_000).unwrap();
        let sizes = sizes(trace.footprint_bytes());
        let curves = curves(&trace, &[Policy::Lru, Policy::Belady], &sizes);
        for curve in &curves {
            assert!(curve.points.windows(2).all(|pair| pair[1].misses <= pair[0].misses), "{:?}", curve.policy);
        }
        let last = curves[0].points.last().unwrap();
        assert!((last.misses - f64::from(trace.objects) / trace.requests.len() as f64).abs() < 1e-12);
        assert_eq!(text(&curves, false).lines().count(), 1 + sizes.len());
        assert_eq!(csv(&curves).lines().count(), 1 + 2 * sizes.len());
        let svg = figure(&curves, true).file();
        assert!(svg.starts_with("<svg") && svg.contains("belady"), "{svg}");
    }
}
