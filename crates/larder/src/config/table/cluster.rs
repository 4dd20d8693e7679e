//! The settings of `[cluster]` about the homes of keys (docs/cluster.md).

use super::{SECOND, Whole};
use crate::config::is_reachable;
use crate::config::setting::Field;

pub(super) const LISTEN: Whole = Whole::new(
    "cluster.listen",
    Field::Text {
        form: "ADDR:PORT or none",
        read: |c| c.cluster.listen.map_or("none".to_owned(), |address| address.to_string()),
        write: |c, text| {
            c.cluster.listen = text.parse().ok();
            c.cluster.listen.is_some() || text == "none"
        },
    },
)
.default_words("none")
.at_restart()
.about("Address and port at which other nodes ask this one for responses, in a network that nodes alone are in: with it each key has a home, one node that asks the origin for all ([cluster.md](cluster.md)). It serves nobody without `cluster.secret_file`. None: no homes.");

pub(super) const ADVERTISE: Whole = Whole::new(
    "cluster.advertise",
    Field::Text {
        form: "HOST:PORT",
        read: |c| c.cluster.advertise.clone(),
        write: |c, text| {
            c.cluster.advertise = text.to_owned();
            is_reachable(text)
        },
    },
)
.default_words("`cluster.listen`")
.at_restart()
.about("Where other nodes come to `cluster.listen`, where that is another address, or `0.0.0.0`.");

pub(super) const SECRET_FILE: Whole = Whole::new("cluster.secret_file", Field::PathIfAny(|c| &mut c.cluster.secret_file))
    .default_words("none")
    .at_restart()
    .about("A file with the secret of the cluster, the same on all nodes: 32 bytes or more, as `openssl rand -hex 32` prints. Questions of nodes are signed with it; all others that come to `cluster.listen` are refused.");

pub(super) const HOME_WAIT: Whole = Whole::new("cluster.home_wait", Field::Time(|c| &mut c.cluster.home_wait))
    .between(10, 60 * SECOND)
    .about("How long the home of a key may take for the head of its answer. After that the origin is asked as well, and the first answer counts.");
