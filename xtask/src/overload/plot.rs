//! The picture of a run over time: one panel for each series, phases as bands behind it.

use std::fmt::Write as _;

/// Units of a panel and of the room around it.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 130.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 12.0;
const TITLE: f64 = 34.0;
const BOTTOM: f64 = 24.0;
/// Lines across a panel, above the lowest.
const LINES: u32 = 2;

const STYLE: &str = ":root{--paper:#fff;--ink:#1b1f24;--soft:#59636e;--grid:#dfe3e8;--band:#f3f5f7;--line:#0072b2}\
    @media (prefers-color-scheme:dark){:root{--paper:#14181d;--ink:#e8ebee;--soft:#9aa5b1;--grid:#303841;--band:#1b2127;--line:#5bb8f0}}\
    svg{font:11px system-ui,sans-serif;font-variant-numeric:tabular-nums}text{fill:var(--soft)}.title{fill:var(--ink);font-weight:600}\
    .paper{fill:var(--paper)}.band{fill:var(--band)}.grid{stroke:var(--grid)}.line{fill:none;stroke:var(--line);stroke-width:1.5}";

/// One series with its axis.
pub struct Panel {
    /// Its title, with the unit.
    pub title: String,
    /// Points in the order of time: seconds, value.
    pub points: Vec<(f64, f64)>,
}

/// A stretch of time with a name.
pub struct Band {
    /// Its name.
    pub name: &'static str,
    /// Seconds at its beginning and at its end.
    pub from: f64,
    /// See `from`.
    pub to: f64,
}

/// The picture as SVG, for a page beside it; it is light or dark as its reader is.
pub fn svg(panels: &[Panel], bands: &[Band]) -> String {
    let panel_height = TITLE + HEIGHT + BOTTOM;
    let height = panel_height * panels.len() as f64;
    let ends = bands.iter().map(|band| band.to).fold(1.0, f64::max);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\
         <style>{STYLE}</style><rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>\n"
    );
    for (number, panel) in panels.iter().enumerate() {
        draw(&mut out, panel, bands, panel_height * number as f64 + TITLE, ends);
    }
    out.push_str("</svg>\n");
    out
}

fn draw(out: &mut String, panel: &Panel, bands: &[Band], top: f64, ends: f64) {
    let x = |at: f64| LEFT + at / ends * (WIDTH - LEFT - RIGHT);
    let step = step(panel.points.iter().map(|point| point.1).fold(0.0, f64::max) / f64::from(LINES));
    let high = step * f64::from(LINES);
    let bottom = top + HEIGHT;
    let y = |value: f64| bottom - value / high * HEIGHT;
    let _ = writeln!(out, "<text class=\"title\" x=\"4\" y=\"{}\">{}</text>", top - 20.0, panel.title);
    for (number, band) in bands.iter().enumerate() {
        let (from, to) = (x(band.from), x(band.to));
        if number % 2 == 1 {
            let wide = to - from;
            let _ = writeln!(
                out,
                "<rect class=\"band\" x=\"{from:.1}\" y=\"{top}\" width=\"{wide:.1}\" height=\"{HEIGHT}\"/>"
            );
        }
        let (middle, above) = (f64::midpoint(from, to), top - 5.0);
        let _ = writeln!(out, "<text text-anchor=\"middle\" x=\"{middle:.1}\" y=\"{above}\">{}</text>", band.name);
        let seconds = format!("{:.0} s", band.from);
        let _ = writeln!(out, "<text x=\"{from:.1}\" y=\"{}\">{seconds}</text>", bottom + 14.0);
    }
    for line in 0..=LINES {
        let value = step * f64::from(line);
        let at = y(value);
        let right = WIDTH - RIGHT;
        let _ = writeln!(out, "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right}\"/>");
        let _ = writeln!(out, "<text text-anchor=\"end\" x=\"{}\" y=\"{:.1}\">{value}</text>", LEFT - 6.0, at + 4.0);
    }
    let mut path = String::new();
    for (number, (at, value)) in panel.points.iter().enumerate() {
        let _ = write!(path, "{}{:.1} {:.1}", if number == 0 { 'M' } else { 'L' }, x(*at), y(*value));
    }
    let _ = writeln!(out, "<path class=\"line\" d=\"{path}\"/>");
}

/// The least of 1, 2 and 5 times a power of ten that is no less than the value.
fn step(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|times| times * power).find(|step| *step >= value).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_no_less() {
        for (value, wanted) in [(1.0, 1.0), (1.1, 2.0), (4.9, 5.0), (51.0, 100.0), (200.0, 200.0), (0.3, 0.5)] {
            assert!((step(value) - wanted).abs() < 1e-9, "{value}: {}", step(value));
        }
    }

    #[test]
    fn points_lie_where_their_values_are() {
        let panel = Panel { title: "requests/s".to_owned(), points: vec![(0.0, 0.0), (5.0, 4.0), (10.0, 2.0)] };
        let bands = [Band { name: "quiet", from: 0.0, to: 10.0 }];
        let picture = svg(&[panel], &bands);
        // The highest value at the top, the middle of the time in the middle.
        assert!(picture.contains("d=\"M48.0 164.0L378.0 34.0L708.0 99.0\""), "{picture}");
    }
}
