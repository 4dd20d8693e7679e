//! The metrics of a cluster; 0 where the server is in none.

use super::{Family, counter, gauge};
use crate::clock;
use crate::cluster::{Counts, HomeCounts, Refusal};
use crate::control::Admin;
use std::sync::atomic::{AtomicU64, Ordering};

fn value(admin: &Admin, of: fn(&Counts) -> &AtomicU64) -> u64 {
    admin.common.cluster.as_ref().map_or(0, |cluster| of(&cluster.counts).load(Ordering::Relaxed))
}

fn of_homes(admin: &Admin, of: fn(&HomeCounts) -> &AtomicU64) -> u64 {
    let homes = admin.common.cluster.as_ref().and_then(|cluster| cluster.homes.as_ref());
    homes.map_or(0, |homes| of(&homes.counts).load(Ordering::Relaxed))
}

macro_rules! one {
    ($name:ident) => {
        |admin, samples| samples.one(value(admin, |counts| &counts.$name))
    };
}

/// All of them.
pub(super) static FAMILIES: &[Family] = &[
    gauge("larder_cluster_members", "Nodes of the cluster that live, this one included.", one!(members)),
    gauge(
        "larder_cluster_gate_shut",
        "1 while purges of other nodes may not be known here, so that stored responses are validated before each use (`cluster.apart`).",
        |admin, samples| {
            let is_shut = admin.common.cluster.is_some() && admin.common.cache.gate().is_shut(clock::now());
            samples.one(u64::from(is_shut));
        },
    ),
    counter("larder_cluster_gate_shuts_total", "How often the gate was shut.", one!(gate_shuts)),
    gauge(
        "larder_cluster_purge_applied",
        "The number of the last purge of the cluster that is applied here.",
        one!(applied),
    ),
    gauge(
        "larder_cluster_purges_behind",
        "Purges of the cluster that are not applied here yet, as far as is known.",
        one!(behind),
    ),
    gauge(
        "larder_cluster_outbox_purges",
        "Purges of this node that wait until the cluster's stream takes them.",
        one!(outbox),
    ),
    counter(
        "larder_cluster_purges_total",
        "Purges by what became of them: applied (of other nodes, here), published, queued, refused (of this node).",
        |admin, samples| {
            samples.labelled("state", "applied", value(admin, |counts| &counts.purges_applied));
            samples.labelled("state", "published", value(admin, |counts| &counts.purges_published));
            samples.labelled("state", "queued", value(admin, |counts| &counts.purges_queued));
            samples.labelled("state", "refused", value(admin, |counts| &counts.purges_refused));
        },
    ),
    counter(
        "larder_cluster_streams_anew_total",
        "How often the stream of purges was another one than before, or had lost purges, so that everything was purged.",
        one!(streams_anew),
    ),
    counter(
        "larder_cluster_readings_again_total",
        "How often the stream of purges was read again, because another node knew other purges, or the last purge that was applied here is not in it any more.",
        one!(readings_again),
    ),
    counter(
        "larder_cluster_messages_refused_total",
        "Messages of the cluster that were refused, by reason.",
        |admin, samples| {
            for why in Refusal::ALL {
                let count = admin.common.cluster.as_ref().map_or(0, |cluster| cluster.counts.refused(why));
                samples.labelled("reason", why.as_str(), count);
            }
        },
    ),
    counter(
        "larder_cluster_homes_asked_total",
        "Other nodes that were asked for a response of whose key they are the home, by result: answered, behind (purges were missing there), refused (other rules, or no answer of the origin), failed (not reached, or no answer of a node).",
        |admin, samples| {
            samples.labelled("result", "answered", of_homes(admin, |counts| &counts.answered));
            samples.labelled("result", "behind", of_homes(admin, |counts| &counts.behind));
            samples.labelled("result", "refused", of_homes(admin, |counts| &counts.refused));
            samples.labelled("result", "failed", of_homes(admin, |counts| &counts.failed));
        },
    ),
    counter(
        "larder_cluster_homes_hedged_total",
        "How often the home of a key took longer than `cluster.home_wait`, so that the origin was asked beside it.",
        |admin, samples| samples.one(of_homes(admin, |counts| &counts.hedged)),
    ),
    counter(
        "larder_cluster_questions_total",
        "Questions of other nodes, by result: answered, behind (purges were missing here), refused (other rules, or no answer of the origin), stranger (requests at `cluster.listen` that no node made).",
        |admin, samples| {
            samples.labelled("result", "answered", of_homes(admin, |counts| &counts.served));
            samples.labelled("result", "behind", of_homes(admin, |counts| &counts.served_behind));
            samples.labelled("result", "refused", of_homes(admin, |counts| &counts.served_refused));
            samples.labelled("result", "stranger", of_homes(admin, |counts| &counts.strangers));
        },
    ),
];
