//! A node of a cluster: several machines that hear of one another's purges by NATS (docs/cluster.md).
//!
//! A thread of its own ([`run`]) speaks to NATS: it tells the others that it lives ([`members`]), publishes purges that were made here and
//! applies those of others ([`replica`]), and keeps the gate of the cache (`larder_cache::cache::Gate`). No request passes through it; a hit
//! meets nothing of it but the gate. The store's own purge log stays the truth on each node: a purge from the stream is one more rule in it.
//!
//! Nodes ask one another for responses, too ([`homes`], [`node_key`]): workers do that, with what the thread tells them.
//!
//! [`message`], [`members`], [`node_key`], [`replica`] and [`waiting`] are values and `now` in, decisions out.

mod files;
mod homes;
mod members;
mod message;
#[cfg(feature = "cluster")]
mod nats;
#[cfg(feature = "cluster")]
mod node;
mod node_key;
mod replica;
mod status;
mod waiting;

pub use homes::{Hold, Home, HomeCounts, Homes, MayAsk, place_of};
pub use message::Refusal;
#[cfg(feature = "cluster")]
pub use node::{Surroundings, run};
pub use node_key::{Asked, FIELD as NODE_FIELD, Question, key_hash};
#[cfg(test)]
pub use status::StreamShown;
pub use status::{HomesShown, MemberShown, Status};

use crate::clock;
use crate::config::{Apart, ClusterSettings, Config, read_cluster_secret};
use files::Outbox;
use larder_cache::cache::{Cache, Gate};
use larder_cache::store::rules::{Force, Scope};
use message::PurgeMessage;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use tokio::sync::{mpsc as orders, oneshot};

/// Purges and questions that wait for the thread of the cluster; callers wait when there are more.
const ORDERS_MAX: usize = 1_024;

/// How long a question about the cluster waits for its thread.
const STATUS_WITHIN: Duration = Duration::from_secs(2);

/// The cluster as the rest of the server sees it.
pub struct Cluster {
    orders: orders::Sender<Order>,
    /// Numbers for the metrics.
    pub counts: Counts,
    /// The homes of keys, where nodes ask one another.
    pub homes: Option<Homes>,
    /// How often its thread met a broken invariant and began anew.
    pub restarts: AtomicU64,
    /// Whether the purges of others have been caught up with once.
    has_caught_up: AtomicBool,
}

/// The other end of [`Cluster`], for its thread.
pub struct Orders(orders::Receiver<Order>);

/// An order to the thread.
enum Order {
    /// Have all nodes apply a purge that is in force here already.
    Spread {
        scopes: Vec<Scope>,
        force: Force,
        durability: PurgeDurability,
        /// Until the stream has brought it back, no other node is asked.
        hold: Option<Hold>,
        reply: oneshot::Sender<Spread>,
    },
    /// Say how things are.
    Status(mpsc::Sender<Status>),
}

/// Whether a purge that is in force on its node is on its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgeDurability {
    /// It is.
    OnDisk,
    /// It is not: it is applied once more when it comes back from the stream.
    InMemory,
}

/// Counts since the start, and the last values of what changes.
#[derive(Debug, Default)]
pub struct Counts {
    /// Nodes that live, this one included.
    pub members: AtomicU64,
    /// How often it was shut.
    pub gate_shuts: AtomicU64,
    /// The number of the last purge that was applied.
    pub applied: AtomicU64,
    /// Purges of the stream that are not applied yet, as far as is known.
    pub behind: AtomicU64,
    /// Purges of the stream that were applied here.
    pub purges_applied: AtomicU64,
    /// Purges of this node that the stream took.
    pub purges_published: AtomicU64,
    /// Purges of this node that came into the outbox.
    pub purges_queued: AtomicU64,
    /// Purges of this node that were refused.
    pub purges_refused: AtomicU64,
    /// Purges in the outbox.
    pub outbox: AtomicU64,
    /// How often the stream was another one, or ran backwards.
    pub streams_anew: AtomicU64,
    /// How often the stream was read again because another node knew other purges, or the
    /// last purge that was applied here is not in it any more.
    pub readings_again: AtomicU64,
    /// Messages that were refused, by the number of their [`Refusal`].
    pub refused: [AtomicU64; Refusal::ALL.len()],
}

impl Counts {
    /// How many messages were refused for this reason.
    pub fn refused(&self, why: Refusal) -> u64 {
        self.refused[why as usize].load(Ordering::Relaxed)
    }
}

/// How far a purge came in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// `applied`, `queued` or `refused`.
    pub state: String,
    /// Its number in the stream, where it was applied.
    pub number: Option<u64>,
    /// The nodes that have applied it, this one included.
    pub applied_on: usize,
    /// The nodes that lived when it was made, this one included.
    pub nodes: usize,
    /// Nodes that are apart: they ask their origins before each use, unless their `cluster.apart` is `serve`.
    pub missing: Vec<String>,
    /// Purges in the outbox, where it was queued.
    pub waiting: usize,
    /// Why it was queued or refused.
    pub trouble: Option<String>,
}

impl Spread {
    fn queued(waiting: usize, trouble: &str) -> Spread {
        Spread { state: "queued".to_owned(), waiting, trouble: Some(trouble.to_owned()), ..Spread::default() }
    }

    fn refused(trouble: &str) -> Spread {
        Spread { state: "refused".to_owned(), trouble: Some(trouble.to_owned()), ..Spread::default() }
    }

    /// Whether it holds on this node alone.
    fn is_refused(&self) -> bool {
        self.state == "refused"
    }

    /// The same in a sentence without a full stop.
    pub fn words(&self) -> String {
        let trouble = self.trouble.as_deref().unwrap_or("for no known reason");
        match &*self.state {
            "applied" if self.missing.is_empty() => format!("applied on {} of {} nodes", self.applied_on, self.nodes),
            "applied" => format!(
                "applied on {} of {} nodes; apart: {} (each asks its origins before it uses what it has, unless its `cluster.apart` is `serve`)",
                self.applied_on,
                self.nodes,
                self.missing.join(", ")
            ),
            "queued" => format!("queued for the other nodes ({} wait in the outbox): {trouble}", self.waiting),
            _ => format!("refused by the cluster, so that it holds on this node and not surely on others: {trouble}"),
        }
    }
}

impl Cluster {
    /// A node of the configured cluster, if any, whose thread is not started yet. The gate of its cache is shut until the thread has
    /// heard of all purges.
    pub fn open(settings: &ClusterSettings, cache: &Cache) -> Option<(Arc<Cluster>, Orders)> {
        if !settings.is_on() {
            return None;
        }
        // The file was read when the settings were checked; without it nobody is asked or answered.
        let secret = settings.listen.and(settings.secret_file.as_deref()).map(read_cluster_secret).transpose();
        let secret = secret.inspect_err(|trouble| tracing::error!("keys have no homes: {trouble}")).unwrap_or_default();
        let homes = secret.map(|secret| Homes::new(node_name(settings), &secret));
        if settings.apart != Apart::Serve {
            cache.gate().shut();
        }
        let (send, receive) = orders::channel(ORDERS_MAX);
        Some((
            Arc::new(Cluster {
                orders: send,
                counts: Counts::default(),
                homes,
                restarts: AtomicU64::new(0),
                has_caught_up: AtomicBool::new(false),
            }),
            Orders(receive),
        ))
    }

    /// Whether requests may come: the purges of others have been caught up with, and stored responses are not refused now. The gate shuts
    /// by itself, also where the thread of the cluster is gone.
    pub fn is_ready(&self, gate: &Gate, apart: Apart) -> bool {
        match apart {
            Apart::Serve => true,
            Apart::Refuse if gate.is_shut(clock::now()) => false,
            Apart::Refuse | Apart::Validate => self.has_caught_up.load(Ordering::Relaxed),
        }
    }

    /// To be held from before a purge comes into force here until [`Cluster::spread`] takes it over: other nodes could bring what is
    /// purged.
    pub fn hold(&self) -> Option<Hold> {
        self.homes.as_ref().map(Homes::hold)
    }

    /// Has all other nodes apply a purge that is in force here already, and waits until they have, or have shut their gates, or until
    /// the purge lies in the outbox.
    pub async fn spread(
        &self,
        scopes: Vec<Scope>,
        force: Force,
        durability: PurgeDurability,
        hold: Option<Hold>,
    ) -> Spread {
        const ENDS: &str = "the thread of the cluster ended before it knew: the server goes down, or its log says why";
        let (reply, answer) = oneshot::channel();
        match self.orders.send(Order::Spread { scopes, force, durability, hold, reply }).await {
            Ok(()) => answer.await.unwrap_or_else(|_| Spread::refused(ENDS)),
            Err(_) => Spread::refused(ENDS),
        }
    }

    /// How things are. It waits for the thread; an error says that the thread has no time.
    pub fn status(&self) -> Result<Status, String> {
        const BUSY: &str =
            "the thread of the cluster does not answer: its log says whether it began at all; else the disk hangs";
        let (reply, answer) = mpsc::channel();
        self.orders.try_send(Order::Status(reply)).map_err(|_| BUSY.to_owned())?;
        answer.recv_timeout(STATUS_WITHIN).map_err(|_| BUSY.to_owned())
    }
}

/// The name of this node: the configured one, or that of the machine.
pub fn node_name(settings: &ClusterSettings) -> String {
    if !settings.name.is_empty() {
        return settings.name.clone();
    }
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
    let name: String = crate::machine::name().chars().map(plain).take(crate::config::CLUSTER_NAME_BYTES_MAX).collect();
    if name.is_empty() { "node".to_owned() } else { name }
}

/// Where other nodes reach this one.
pub fn node_address(config: &Config) -> String {
    let first = || config.listens.first().map_or(String::new(), |listen| listen.address.to_string());
    if config.cluster.address.is_empty() { first() } else { config.cluster.address.clone() }
}

/// Puts a purge that was made while no server runs into the outbox of this folder, for the next start. The caller holds the lock of the
/// folder, so that no server uses the outbox meanwhile.
pub fn queue_without_server(
    folder: &Path,
    settings: &ClusterSettings,
    scopes: Vec<Scope>,
    force: Force,
) -> io::Result<Spread> {
    let node = node_name(settings);
    let mut outbox = Outbox::open(folder, &node)?;
    outbox.append(&messages(scopes, force, &node))?;
    Ok(Spread::queued(outbox.len(), "no larder runs here"))
}

/// Puts purges into the outbox because of `why`, and counts them: it comes to the others when the stream takes it.
fn queue(outbox: Result<&mut Outbox, &str>, counts: &Counts, purges: &[PurgeMessage], why: &str) -> Spread {
    let appended = outbox.map_err(str::to_owned).and_then(|outbox| {
        outbox.append(purges).map_err(|error| error.to_string())?;
        Ok(outbox.len())
    });
    match appended {
        Ok(waiting) => {
            counts.purges_queued.fetch_add(purges.len() as u64, Ordering::Relaxed);
            counts.outbox.store(waiting as u64, Ordering::Relaxed);
            Spread::queued(waiting, why)
        }
        Err(error) => {
            counts.purges_refused.fetch_add(purges.len() as u64, Ordering::Relaxed);
            Spread::refused(&format!("{why}; {error}"))
        }
    }
}

/// A name that no other process and no other purge has, and that nobody can guess: by its name a node knows its own purge when it comes
/// back.
fn mark() -> String {
    let mut bytes = [0; 16];
    if aws_lc_rs::rand::fill(&mut bytes).is_err() {
        // The keys of the standard library's maps come from the kernel as well.
        use std::hash::{BuildHasher, RandomState};
        bytes[..8].copy_from_slice(&RandomState::new().hash_one(std::process::id()).to_be_bytes());
    }
    format!("{:032x}", u128::from_be_bytes(bytes))
}

/// The messages of a purge.
fn messages(scopes: Vec<Scope>, force: Force, node: &str) -> Vec<PurgeMessage> {
    let message = |scope| PurgeMessage { scope, force, from: node.to_owned(), id: mark() };
    scopes.into_iter().map(message).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_says_how_far_it_came() {
        let applied = Spread { state: "applied".to_owned(), applied_on: 3, nodes: 3, ..Spread::default() };
        assert_eq!(applied.words(), "applied on 3 of 3 nodes");
        let apart = Spread { applied_on: 2, missing: vec!["c".to_owned()], ..applied };
        assert!(apart.words().contains("2 of 3") && apart.words().contains("apart: c"));
        assert!(Spread::queued(2, "NATS is away").words().contains("2 wait"));
        assert!(Spread::refused("it is full").words().contains("not surely on others: it is full"));
    }

    #[test]
    fn the_names_of_purges_differ() {
        let first = messages(vec![Scope::All, Scope::Tag(1)], Force::Hard, "a");
        let second = messages(vec![Scope::All], Force::Hard, "a");
        let ids: std::collections::HashSet<_> = first.iter().chain(&second).map(|it| it.id.clone()).collect();
        assert_eq!(ids.len(), 3);
        let beginnings: std::collections::HashSet<_> = ids.iter().map(|id| &id[..16]).collect();
        assert_eq!(beginnings.len(), 3, "the next one follows from none of them");
    }
}
