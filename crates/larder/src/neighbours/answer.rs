//! The answer to a neighbour, whatever the protocol: is the answer to this request stored here, and fresh?

use crate::config::{Config, Icap, IcapStage};
use crate::explain::{self, Asking, Decision, Explanation, OfServer, Places};
use crate::purge::{self, PurgeRequest, Selection};
use crate::shared::{Shared, ValueSources};
use larder_cache::store::rules::Force;
use larder_wire::Url;
use std::net::IpAddr;
use std::sync::Arc;

/// A question with more fields is answered as a miss: one that is left out could be the one that counts.
const FIELDS_MAX: usize = 64;

/// A question of a neighbour.
pub(super) struct Asked<'a> {
    /// An absolute URL.
    pub url: &'a str,
    /// The method.
    pub method: &'a str,
    /// The fields of the request, each with its line end.
    pub fields: &'a [u8],
    /// The neighbour.
    pub client: IpAddr,
}

/// The answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answered {
    /// The response is stored and fresh.
    Stored {
        /// The age of the response.
        age_seconds: Option<u64>,
    },
    /// No fresh response is stored, or whether this neighbour gets it is not known beforehand.
    Missing,
    /// The neighbour may not have it.
    Denied,
    /// The question makes no sense.
    Misunderstood,
}

/// Whether datagrams from this address are answered.
pub(super) fn is_neighbour(shared: &Shared, address: IpAddr) -> bool {
    shared.common.live.value().neighbours.from.contains(address)
}

/// Judges the request that the neighbour would send. A stale response counts as missing: the neighbour could ask the origin as
/// well.
pub(super) async fn of(shared: &Shared, asked: &Asked<'_>) -> Answered {
    let common = &shared.common;
    let lines = asked.fields.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let lines = lines.map(std::str::from_utf8).filter(|line| line.is_ok_and(|line| !line.is_empty()) || line.is_err());
    let Ok(lines) = lines.map(|line| line.map(str::to_owned)).collect::<Result<Vec<String>, _>>() else {
        return Answered::Missing;
    };
    if lines.len() > FIELDS_MAX {
        return Answered::Missing;
    }
    let asking = Asking {
        url: asked.url.to_owned(),
        method: asked.method.to_owned(),
        fields: lines,
        client: asked.client,
        ..Asking::default()
    };
    let lists = common.lists.live().value();
    let of_server = OfServer {
        lists: Some(&lists),
        via_name: Some(&common.via_name),
        handed_out: Some(&common.handed_out),
        credentials: Some(&common.credential_secret),
        mounts: Some(shared.nursery.mounts()),
    };
    let (edition, config) = (common.live.edition(), common.live.value());
    let places = Places { edition, config, sources: ValueSources::new(), lists: Some(Arc::clone(&lists)) };
    let Ok(explanation) = explain::ahead(&asking, &common.cache, of_server, &places).await else {
        return Answered::Misunderstood;
    };
    if asks_others(shared, &places.config, &explanation) {
        return Answered::Missing;
    }
    let age_seconds = explanation.steps.iter().find_map(|step| match &step.values {
        Decision::Freshness { numbers, .. } => Some(numbers.age),
        _ => None,
    });
    match (explanation.request.outcome.as_str(), explanation.request.status) {
        ("hit", _) => Answered::Stored { age_seconds },
        (_, 401 | 403 | 407) => Answered::Denied,
        _ => Answered::Missing,
    }
}

/// Whether the request would be asked about where nobody is asked for a datagram: a login, a helper, a hook, a service of ICAP that sees
/// hits. The neighbour has no credentials, and hooks and services may decide otherwise than rules.
fn asks_others(shared: &Shared, config: &Config, explanation: &Explanation) -> bool {
    let meets = |wanted: fn(&Decision) -> bool| explanation.steps.iter().any(|step| wanted(&step.values));
    let hooked = config.sites.iter().filter_map(|site| site.hooked_by.as_ref()).chain(&config.forward.hooked_by);
    let is_unknown = |name| shared.nursery.mounts().find(name).and_then(|mount| mount.hooks()).is_none();
    let sees_hits = |icap: &Icap| icap.stage != IcapStage::RespmodStore;
    !config.logins.is_empty()
        || !config.helpers.is_empty()
        || meets(|step| matches!(step, Decision::Hook { .. } | Decision::User { .. }))
        || hooked.into_iter().any(is_unknown)
        || (config.icaps.iter().any(|icap| sees_hits(icap)) && meets(|step| matches!(step, Decision::Icap { .. })))
}

/// Purges a URL for a neighbour that may purge (`access.purge`); gives whether something was stored, `None` where it may not.
pub(super) async fn clear(shared: &Shared, url: &str, client: IpAddr) -> Option<bool> {
    let config = shared.common.live.value();
    let url = Url::parse(url).filter(|_| config.access.may_purge(client) == Some(true))?;
    let wanted = PurgeRequest { selection: Selection::Url(url), force: Force::Hard };
    let report = purge::purge(&shared.common, &wanted).await;
    Some(report.count != Some(0))
}
