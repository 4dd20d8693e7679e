//! Horizontal bars: one number per entry, with the spread of its rounds.

use super::scale::{Scale, Span};
use super::svg::{WIDTH, escaped, n, opening, text_width};
use super::{Tone, Unit};
use std::fmt::Write;

const ROW: f64 = 24.0;
const TOP: f64 = 42.0;

/// A figure that compares one number of several entries.
#[derive(Clone, Debug)]
pub struct Bars {
    /// Its title.
    pub title: String,
    /// The meaning of the number, and which direction is good.
    pub remark: String,
    /// How it is written.
    pub unit: Unit,
    /// Entries in order.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Name of the entry.
    pub name: String,
    /// Its colour.
    pub tone: Tone,
    /// The median of its rounds.
    pub value: f64,
    /// Lowest and highest round.
    pub spread: Option<(f64, f64)>,
}

impl Bars {
    /// The figure for a page that has [`STYLE`](super::STYLE).
    pub fn svg(&self) -> String {
        self.draw("")
    }

    /// The figure as a file of its own.
    #[cfg(test)]
    pub fn file(&self) -> String {
        self.draw(super::STYLE)
    }

    fn draw(&self, style: &str) -> String {
        let height = TOP + ROW * self.bars.len() as f64 + 4.0;
        let mut out = opening(&self.title, height, style);
        let _ = write!(out, "<text x=\"2\" y=\"31\">{}</text>", escaped(&self.remark));
        let left = self.bars.iter().map(|bar| text_width(&bar.name)).fold(20.0, f64::max) + 10.0;
        let right = self.bars.iter().map(|bar| text_width(&self.unit.text(bar.value))).fold(20.0, f64::max) + 10.0;
        let ends = self.bars.iter().flat_map(|bar| [bar.value, bar.spread.map_or(bar.value, |spread| spread.1)]);
        let high = ends.filter(|value| value.is_finite()).fold(0.0, f64::max);
        let span = Span::over(Scale::Linear, [0.0, high].into_iter(), (Some(0.0), Some(high.max(1e-9))));
        let x = |value: f64| left + span.place(value) * (WIDTH - left - right);
        for (index, bar) in self.bars.iter().enumerate() {
            self.row(&mut out, bar, TOP + ROW * index as f64, left, &x);
        }
        out.push_str("</svg>");
        out
    }

    fn row(&self, out: &mut String, bar: &Bar, y: f64, left: f64, x: &impl Fn(f64) -> f64) {
        let middle = y + ROW / 2.0;
        let (name, class) = (escaped(&bar.name), bar.tone.class());
        let _ = write!(out, "<text class=\"name end\" x=\"{}\" y=\"{}\">{name}</text>", n(left - 8.0), n(middle + 4.0));
        let mut end = left;
        if bar.value.is_finite() {
            let width = n((x(bar.value) - left).max(1.0));
            let _ = write!(
                out,
                "<rect class=\"solid {class}\" x=\"{}\" y=\"{}\" width=\"{width}\" height=\"14\"/>",
                n(left),
                n(middle - 7.0)
            );
            end = x(bar.value);
        }
        if let Some((low, high)) = bar.spread.filter(|(low, high)| high > low) {
            let (a, b) = (n(x(low)), n(x(high)));
            let (over, under) = (n(middle - 4.0), n(middle + 4.0));
            let at = n(middle);
            let _ = write!(out, "<path class=\"whisker\" d=\"M{a} {at}H{b}M{a} {over}V{under}M{b} {over}V{under}\"/>");
            end = end.max(x(high));
        }
        let text = self.unit.text(bar.value);
        let _ = write!(out, "<text class=\"value\" x=\"{}\" y=\"{}\">{text}</text>", n(end + 6.0), n(middle + 4.0));
    }
}
