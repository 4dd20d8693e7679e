//! Charts as SVG text: lines, steps, areas, histograms, percentile curves, bars with their spread.
//!
//! No script and no font file. Colours are told apart by people with any colour vision, on white, on dark and, by
//! the dash patterns, on a grey print. Text is sized for a figure of 400 units, which is a phone's width and a third
//! of a desk's. The colours are CSS variables ([`STYLE`]), so that a page can be light or dark around its figures.

mod bars;
mod scale;
mod svg;
mod unit;

pub use bars::{Bar, Bars};
pub use scale::Scale;
pub use unit::{Unit, grouped, three_digits};

/// Variables and rules that the figures need, for a page or for a figure that stands alone.
pub const STYLE: &str = include_str!("style.css");

/// A figure with two axes.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Its title.
    pub title: String,
    /// Left to right.
    pub x: Axis,
    /// Bottom to top.
    pub y: Axis,
    /// The lines, in drawing order.
    pub series: Vec<Series>,
    /// Stretches of the x axis with a name, such as phases.
    pub bands: Vec<Band>,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The quantity.
    pub label: String,
    /// How its numbers are written.
    pub unit: Unit,
    /// How it is divided.
    pub scale: Scale,
    /// Where it begins, if not where the values do.
    pub low: Option<f64>,
    /// Where it ends, if not where the values do.
    pub high: Option<f64>,
}

impl Axis {
    /// An even axis from zero.
    pub fn new(label: &str, unit: Unit) -> Self {
        Self { label: label.to_owned(), unit, scale: Scale::Linear, low: None, high: None }
    }

    /// The same by powers of ten, or by nines.
    pub fn scaled(self, scale: Scale) -> Self {
        Self { scale, ..self }
    }

    /// The same with a given end.
    pub fn up_to(self, high: f64) -> Self {
        Self { high: Some(high), ..self }
    }
}

/// One thing that is drawn.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// How it is drawn.
    pub shape: Shape,
    /// Its colour and dash pattern.
    pub tone: Tone,
    /// Points in the order of x. A value that is no number interrupts a line.
    pub points: Vec<(f64, f64)>,
}

/// How points are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// From point to point.
    Line,
    /// Each value holds until the next point.
    Step,
    /// A line with the space below it filled.
    Area,
    /// A bar from each point to the next one.
    Histogram,
    /// Unconnected.
    Points,
}

/// Colour and dash pattern: the n-th of the palette, or the quiet ink of ideals and totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// The n-th colour; after the eighth they begin again with other dashes.
    Nth(usize),
    /// Ink, solid.
    Ink,
    /// Ink, dotted: what was asked or would be ideal.
    Ideal,
}

impl Tone {
    /// The cache answered.
    pub const HIT: Self = Self::Nth(0);
    /// The origin answered.
    pub const MISS: Self = Self::Nth(1);

    fn class(self) -> String {
        match self {
            Self::Nth(number) => format!("c{}", number % PALETTE),
            Self::Ink | Self::Ideal => "ci".to_owned(),
        }
    }

    fn dashes(self) -> &'static str {
        const DASHES: [&str; PALETTE] = ["", "7 3", "2 2.5", "9 3 2 3", "4 2", "12 4", "5 2 1 2 1 2", "1.5 4"];
        match self {
            Self::Nth(number) => DASHES[(number + number / PALETTE) % PALETTE],
            Self::Ink => "",
            Self::Ideal => "1.5 3",
        }
    }
}

const PALETTE: usize = 8;

/// A named stretch of the x axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// Its name.
    pub name: String,
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
}

impl Chart {
    /// A chart without anything drawn yet.
    pub fn new(title: &str, x: Axis, y: Axis) -> Self {
        Self { title: title.to_owned(), x, y, series: Vec::new(), bands: Vec::new() }
    }

    /// Adds a series, unless it is empty.
    pub fn with(mut self, name: &str, shape: Shape, tone: Tone, points: Vec<(f64, f64)>) -> Self {
        if points.iter().any(|(_, y)| y.is_finite()) {
            self.series.push(Series { name: name.to_owned(), shape, tone, points });
        }
        self
    }

    /// Adds named stretches.
    pub fn banded(mut self, bands: &[Band]) -> Self {
        self.bands = bands.to_vec();
        self
    }

    /// Whether there is nothing to see.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// The figure for a page that has [`STYLE`].
    pub fn svg(&self) -> String {
        svg::draw(self, "")
    }

    /// The figure as a file of its own.
    pub fn file(&self) -> String {
        svg::draw(self, STYLE)
    }
}

#[cfg(test)]
mod tests;
