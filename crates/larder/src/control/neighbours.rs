//! Parents and siblings: whether they can be connected to, and what came of it.

use super::{Admin, Reply};
use crate::config::parent::Parent;
use crate::upstream::ParentReport;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::time::Instant;

/// All neighbouring caches that requests may go to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NeighboursShown {
    /// The parents, in the order of the configuration.
    pub parents: Vec<OfParent>,
    /// The siblings, in the order of the configuration.
    pub siblings: Vec<OfSibling>,
}

/// One parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OfParent {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub url: String,
    /// Where it stands in the configuration.
    pub place: String,
    /// `up` or `left-out`.
    pub state: String,
    /// Connections that did not come about since the last one that did.
    pub failures_in_a_row: u32,
    /// Milliseconds until a request tries it again.
    pub rests_millis: Option<u64>,
    /// Ways to origins that it opened.
    pub opened: u64,
    /// Connections to it that did not come about.
    pub failed: u64,
    /// Origins that it did not connect to.
    pub refused: u64,
    /// Requests that left it out, because it had failed of late.
    pub left_out: u64,
}

/// One sibling.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OfSibling {
    /// Its name.
    pub name: String,
    /// Where it serves HTTP.
    pub url: String,
    /// Where it stands in the configuration.
    pub place: String,
}

/// `GET /neighbours`.
pub(super) fn list(admin: &Admin) -> Reply {
    let config = admin.common.live.value();
    let sibling = |sibling: &Arc<crate::config::parent::Sibling>| OfSibling {
        name: sibling.name.clone(),
        url: format!("http://{}", sibling.url.authority()),
        place: sibling.place.to_string(),
    };
    let parents = all(admin).into_iter().map(|(parent, report)| of_parent(&parent, report)).collect();
    Reply::json(200, &NeighboursShown { parents, siblings: config.siblings.iter().map(sibling).collect() })
}

/// The parents of the settings in force.
pub(super) fn all(admin: &Admin) -> Vec<(Arc<Parent>, ParentReport)> {
    let (healths, now) = (&admin.common.parent_healths, Instant::now());
    let report = |parent: &Arc<Parent>| (Arc::clone(parent), healths.report(parent, now));
    admin.common.live.value().parents.iter().map(report).collect()
}

fn of_parent(parent: &Parent, report: ParentReport) -> OfParent {
    let ParentReport { counts, failures_in_a_row, rests_for } = report;
    OfParent {
        name: parent.name.clone(),
        url: parent.shown_url(),
        place: parent.place.to_string(),
        state: if rests_for.is_some() { "left-out" } else { "up" }.to_owned(),
        failures_in_a_row,
        rests_millis: rests_for.map(|rests| u64::try_from(rests.as_millis()).unwrap_or(u64::MAX)),
        opened: counts.opened,
        failed: counts.failed,
        refused: counts.refused,
        left_out: counts.left_out,
    }
}
