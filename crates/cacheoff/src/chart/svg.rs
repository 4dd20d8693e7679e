//! Drawing of a [`Chart`].

use super::scale::Span;
use super::{Chart, Series, Shape, Tone};
use std::fmt::Write;

pub(super) const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 250.0;
const LINE_HEIGHT: f64 = 15.0;
const RIGHT: f64 = 20.0;
const BOTTOM: f64 = 34.0;
/// Points of a line beyond twice this are thinned to the extremes of each column.
const COLUMNS: usize = 200;

/// Rectangle of the plot and the two axes.
struct Frame {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
    x: Span,
    y: Span,
}

impl Frame {
    fn of(chart: &Chart, top: f64) -> Self {
        let points = || chart.series.iter().flat_map(|series| series.points.iter());
        let x_values = points().map(|point| point.0).chain(chart.bands.iter().map(|band| band.to));
        let x = Span::over(chart.x.scale, x_values, (chart.x.low, chart.x.high.or_else(|| last_x(chart))));
        let y = Span::over(chart.y.scale, points().map(|point| point.1), (chart.y.low, chart.y.high));
        let widest = y.ticks(chart.y.unit).iter().map(|(_, text)| text_width(text)).fold(24.0, f64::max);
        let left = (widest + 12.0).round();
        Self { left, top, width: WIDTH - left - RIGHT, height: HEIGHT - top - BOTTOM, x, y }
    }

    fn x(&self, value: f64) -> f64 {
        self.left + self.x.place(value) * self.width
    }

    fn y(&self, value: f64) -> f64 {
        self.top + (1.0 - self.y.place(value)) * self.height
    }

    fn bottom(&self) -> f64 {
        self.top + self.height
    }
}

/// Time does not go on after the last point: such an axis is not rounded outwards.
fn last_x(chart: &Chart) -> Option<f64> {
    if chart.x.unit != super::Unit::Elapsed {
        return None;
    }
    let points = chart.series.iter().flat_map(|series| series.points.last()).map(|point| point.0);
    points.chain(chart.bands.iter().map(|band| band.to)).reduce(f64::max)
}

pub(super) fn draw(chart: &Chart, style: &str) -> String {
    let mut out = opening(&chart.title, HEIGHT, style);
    let top = legend(&mut out, chart) + if chart.bands.is_empty() { 10.0 } else { 18.0 };
    let frame = Frame::of(chart, top);
    bands(&mut out, chart, &frame);
    axes(&mut out, chart, &frame);
    for series in &chart.series {
        one(&mut out, series, &frame);
    }
    out.push_str("</svg>");
    out
}

/// Opening tag, accessible name, title.
pub(super) fn opening(title: &str, height: f64, style: &str) -> String {
    let title = escaped(title);
    let style = if style.is_empty() { String::new() } else { format!("<style>{style}</style>") };
    let sheet = if style.is_empty() { "" } else { " xmlns=\"http://www.w3.org/2000/svg\"" };
    let paper = if style.is_empty() {
        String::new()
    } else {
        format!("<rect width=\"{WIDTH}\" height=\"{height}\" style=\"fill:var(--paper)\"/>")
    };
    format!(
        "<svg{sheet} class=\"chart\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">{style}{paper}\
         <text class=\"title\" x=\"2\" y=\"14\">{title}</text>"
    )
}

/// Names with samples below the title, in as many rows as they need; returns the y below them.
fn legend(out: &mut String, chart: &Chart) -> f64 {
    let mut row = 31.0;
    let mut x = 2.0;
    let _ = write!(out, "<text x=\"2\" y=\"{row}\">{}</text>", escaped(&chart.y.label));
    if chart.series.len() < 2 {
        return row;
    }
    row += LINE_HEIGHT;
    for series in &chart.series {
        let width = 26.0 + text_width(&series.name) + 12.0;
        if x + width > WIDTH && x > 2.0 {
            (x, row) = (2.0, row + LINE_HEIGHT);
        }
        sample(out, series, x, row - 4.0);
        let _ = write!(out, "<text class=\"name\" x=\"{}\" y=\"{row}\">{}</text>", n(x + 26.0), escaped(&series.name));
        x += width;
    }
    row
}

fn sample(out: &mut String, series: &Series, x: f64, y: f64) {
    let class = series.tone.class();
    match series.shape {
        Shape::Histogram => {
            let _ = write!(
                out,
                "<rect class=\"solid {class}\" x=\"{}\" y=\"{}\" width=\"20\" height=\"8\"/>",
                n(x),
                n(y - 4.0)
            );
        }
        Shape::Points => {
            let _ = write!(out, "<circle class=\"dot {class}\" cx=\"{}\" cy=\"{}\" r=\"2.5\"/>", n(x + 10.0), n(y));
        }
        _ => path(out, series.tone, &format!("M{} {}h20", n(x), n(y))),
    }
}

fn bands(out: &mut String, chart: &Chart, frame: &Frame) {
    for (index, band) in chart.bands.iter().enumerate() {
        let (from, to) = (frame.x(band.from), frame.x(band.to));
        if index % 2 == 0 {
            let _ = write!(
                out,
                "<rect class=\"band\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
                n(from),
                n(frame.top),
                n(to - from),
                n(frame.height)
            );
        }
        if text_width(&band.name) * 0.9 + 4.0 <= to - from {
            let (x, y) = (n((from + to) / 2.0), n(frame.top - 3.0));
            let _ = write!(out, "<text class=\"phase mid\" x=\"{x}\" y=\"{y}\">{}</text>", escaped(&band.name));
        }
    }
}

fn axes(out: &mut String, chart: &Chart, frame: &Frame) {
    let right = frame.left + frame.width;
    for (value, text) in frame.y.ticks(chart.y.unit) {
        let y = frame.y(value);
        let class = if value == frame.y.low() { "base" } else { "grid" };
        let _ = write!(out, "<path class=\"{class}\" d=\"M{} {}H{}\"/>", n(frame.left), n(y), n(right));
        let _ = write!(out, "<text class=\"end\" x=\"{}\" y=\"{}\">{text}</text>", n(frame.left - 6.0), n(y + 3.5));
    }
    let mut free = f64::NEG_INFINITY;
    for (value, text) in frame.x.ticks(chart.x.unit) {
        let x = frame.x(value);
        let half = text_width(&text) / 2.0;
        let middle = x.clamp(half, WIDTH - half);
        let bottom = frame.bottom();
        let _ = write!(out, "<path class=\"base\" d=\"M{} {}v4\"/>", n(x), n(bottom));
        if middle - half > free {
            let _ = write!(out, "<text class=\"mid\" x=\"{}\" y=\"{}\">{text}</text>", n(middle), n(bottom + 16.0));
            free = middle + half + 4.0;
        }
    }
    let _ = write!(out, "<path class=\"base\" d=\"M{} {}H{}\"/>", n(frame.left), n(frame.bottom()), n(right));
    let label = escaped(&chart.x.label);
    let _ = write!(out, "<text class=\"end\" x=\"{}\" y=\"{}\">{label}</text>", n(right), n(HEIGHT - 4.0));
}

fn one(out: &mut String, series: &Series, frame: &Frame) {
    let points = thinned(&series.points);
    match series.shape {
        Shape::Line => path(out, series.tone, &line(&points, frame)),
        Shape::Step => path(out, series.tone, &line(&steps(&points), frame)),
        Shape::Area => {
            let d = area(&points, frame);
            let _ = write!(out, "<path class=\"fill {}\" d=\"{d}\"/>", series.tone.class());
            path(out, series.tone, &line(&points, frame));
        }
        Shape::Histogram => {
            let d = area(&steps(&series.points), frame);
            let _ = write!(out, "<path class=\"solid {}\" d=\"{d}\"/>", series.tone.class());
        }
        Shape::Points => {
            for (x, y) in points.iter().filter(|(_, y)| y.is_finite()) {
                let (x, y) = (n(frame.x(*x)), n(frame.y(*y)));
                let _ = write!(out, "<circle class=\"dot {}\" cx=\"{x}\" cy=\"{y}\" r=\"2.5\"/>", series.tone.class());
            }
        }
    }
}

fn path(out: &mut String, tone: Tone, d: &str) {
    let dashes = match tone.dashes() {
        "" => String::new(),
        dashes => format!(" stroke-dasharray=\"{dashes}\""),
    };
    let _ = write!(out, "<path class=\"line {}\"{dashes} d=\"{d}\"/>", tone.class());
}

fn line(points: &[(f64, f64)], frame: &Frame) -> String {
    let mut d = String::new();
    let mut pen = 'M';
    for &(x, y) in points {
        if !y.is_finite() {
            pen = 'M';
            continue;
        }
        let _ = write!(d, "{pen}{} {}", n(frame.x(x)), n(frame.y(y)));
        pen = 'L';
    }
    d
}

fn area(points: &[(f64, f64)], frame: &Frame) -> String {
    let mut d = String::new();
    for run in points.split(|(_, y)| !y.is_finite()).filter(|run| !run.is_empty()) {
        let (first, last) = (run[0].0, run[run.len() - 1].0);
        let _ = write!(d, "M{} {}", n(frame.x(first)), n(frame.bottom()));
        for &(x, y) in run {
            let _ = write!(d, "L{} {}", n(frame.x(x)), n(frame.y(y)));
        }
        let _ = write!(d, "L{} {}Z", n(frame.x(last)), n(frame.bottom()));
    }
    d
}

fn steps(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut stepped = Vec::with_capacity(points.len() * 2);
    for pair in points.windows(2) {
        stepped.extend([pair[0], (pair[1].0, pair[0].1)]);
    }
    stepped.extend(points.last());
    stepped
}

/// Keeps the smallest and the largest value of each column of the figure, so that no peak is lost.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= 2 * COLUMNS {
        return points.to_vec();
    }
    let size = points.len().div_ceil(COLUMNS);
    points.chunks(size).flat_map(extremes).collect()
}

fn extremes(chunk: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let by_y = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
    let finite = || chunk.iter().filter(|(_, y)| y.is_finite());
    match (finite().min_by(by_y), finite().max_by(by_y)) {
        (Some(low), Some(high)) if low.0 <= high.0 => vec![*low, *high],
        (Some(low), Some(high)) => vec![*high, *low],
        _ => chunk[..1].to_vec(),
    }
}

/// A coordinate: one place is a tenth of a pixel.
pub(super) fn n(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Width of a text in the figures' font, a little too wide rather than too narrow.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars()
        .map(|c| {
            if "il.,:|' ".contains(c) {
                3.4
            } else if c.is_uppercase() || "mw%×".contains(c) {
                8.2
            } else {
                6.3
            }
        })
        .sum()
}

/// Text that is safe in markup.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
