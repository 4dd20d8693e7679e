//! The state of the cluster as this node sees it, for the API and `larder cluster status`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The name of this node.
    pub name: String,
    /// `open` or `shut`; `off` where `cluster.apart` is `serve`.
    pub gate: String,
    /// `cluster.apart`.
    pub apart: String,
    /// How long ago it was known that all purges are applied; null: never since the start.
    pub contact_millis: Option<u64>,
    /// Whether purges of before the start have been caught up with.
    pub ready: bool,
    /// The connection to NATS: `connected`, `disconnected` or `pending`.
    pub nats: String,
    /// The server of NATS that it leads to.
    pub nats_server: Option<String>,
    /// The last trouble with NATS, until it is over.
    pub trouble: Option<String>,
    /// The stream of purges, once it was seen.
    pub stream: Option<StreamShown>,
    /// The number of the last purge that is applied here.
    pub applied: u64,
    /// Purges that wait for the stream.
    pub outbox: usize,
    /// Callers that wait until their purge is applied everywhere.
    pub awaited: usize,
    /// The nodes, this one first.
    pub members: Vec<MemberShown>,
    /// Messages that were refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// The questions of nodes to one another, where keys have homes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub homes: Option<HomesShown>,
}

/// The questions of nodes to one another, since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HomesShown {
    /// Whether this node asks others now.
    pub asks: bool,
    /// Whether it answers others now.
    pub answers: bool,
    /// Answers of homes that were taken.
    pub answered: u64,
    /// Homes that lacked purges.
    pub behind: u64,
    /// Homes that refused.
    pub refused: u64,
    /// Homes that gave no answer.
    pub failed: u64,
    /// Homes beside which the origin was asked.
    pub hedged: u64,
    /// Answers that were given to other nodes.
    pub served: u64,
    /// Questions for which purges were missing here.
    pub served_behind: u64,
    /// Questions that were refused.
    pub served_refused: u64,
    /// Requests of strangers.
    pub strangers: u64,
}

/// The stream of purges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamShown {
    /// Its name.
    pub name: String,
    /// Which incarnation it is.
    pub incarnation: String,
    /// The number of its last purge.
    pub last: u64,
    /// Scopes of which it holds a purge.
    pub purges: u64,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberShown {
    /// Its name.
    pub name: String,
    /// `alive`, `dead` or `left`; `self` for the one that was asked.
    pub state: String,
    /// Where it is reached.
    pub address: String,
    /// Its zone.
    pub zone: String,
    /// Its version.
    pub version: String,
    /// Seconds since it was first heard of.
    pub since_seconds: u64,
    /// Milliseconds since it was last heard of.
    pub heard_millis: u64,
    /// The number of the last purge that it has applied.
    pub applied: u64,
    /// Purges that it has not applied yet, as far as is known here.
    pub behind: u64,
    /// Whether it knows the same purges, where that can be told.
    pub agrees: Option<bool>,
    /// Its use of stored responses while it is apart.
    pub apart: String,
    /// How often its settings were read.
    pub settings: u64,
    /// Requests that it answers a second.
    pub requests_per_second: u64,
    /// Where it is asked for responses; nothing while it does not answer.
    #[serde(default)]
    pub home: String,
    /// The thousandths of the keys that it is the home of, as the node that was asked sees it.
    #[serde(default)]
    pub keys_permille: Option<u32>,
    /// The sixteenths of its keys that it hands on.
    #[serde(default)]
    pub spill: u8,
    /// How far its clock is ahead of the one here, in milliseconds, the way of the message included.
    pub clock_millis: i64,
}
