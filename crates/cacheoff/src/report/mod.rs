//! The report: a pure function of ledgers. Nothing is measured here, and nothing is left out that a reader would need to
//! dispute a figure.
//!
//! [`text()`] is for a terminal, [`page()`] one HTML page that needs no network, [`csv`] and [`prometheus`] are for machines,
//! [`Threshold`]s turn a run into pass or fail. All of them show the same [metrics](metric::METRICS) of the same [`Summary`].

pub mod command;
mod compare;
mod export;
mod figures;
mod markdown;
mod markup;
mod metric;
mod official;
mod page;
mod past;
mod provenance;
mod reading;
mod sections;
mod summary;
mod text;
mod threshold;
mod verdict;

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use compare::compare;
pub use export::{csv, json, prometheus};
pub use markdown::markdown;
#[cfg(test)]
use metric::{Group, METRICS, Metric};
pub use official::cache_ages;
pub use page::{history_page, page};
pub use provenance::date;
pub use summary::Summary;
pub use text::text;
pub use threshold::Threshold;
pub use verdict::Weight;
