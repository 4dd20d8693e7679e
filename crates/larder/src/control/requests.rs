//! Questions about requests: the last ones, one of them, and one that might come.

use super::Admin;
use super::Reply;
use super::api::Refused;
use super::hot::{Hot, Sums};
use crate::config::listen_address;
use crate::explain::{self, Asking, Explanation, OfServer, Places, Summary};
use crate::purge::parts;
use crate::record::{Id, Record};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;

/// So many requests are listed when nothing else is said, and at most.
const LISTED: usize = 50;
const LISTED_MAX: usize = 1_000;

/// The last requests.
#[derive(Serialize)]
struct Listed {
    /// How many are kept at this moment.
    kept: usize,
    /// How many are kept at most.
    kept_max: usize,
    /// Those that were asked for, the last first.
    requests: Vec<Summary>,
}

/// Which requests are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ListQuery {
    host: Option<String>,
    url: Option<String>,
    cause: Option<String>,
    outcome: Option<String>,
    limit: usize,
}

impl ListQuery {
    fn of_query(query: &str) -> Result<ListQuery, String> {
        let mut wanted = ListQuery { limit: LISTED, ..ListQuery::default() };
        for (name, value) in parts(query, &[])? {
            match name {
                "host" => wanted.host = Some(value.to_ascii_lowercase()),
                "url" => wanted.url = Some(value),
                "cause" => wanted.cause = Some(value),
                "outcome" => wanted.outcome = Some(value),
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=LISTED_MAX).contains(limit));
                    wanted.limit = limit.ok_or_else(|| format!("limit: a number from 1 to {LISTED_MAX} is needed"))?;
                }
                other => return Err(format!("{other}: only host, url, cause, outcome and limit are known")),
            }
        }
        Ok(wanted)
    }

    fn fits(&self, summary: &Summary) -> bool {
        let is = |wanted: &Option<String>, has: &str| wanted.as_deref().is_none_or(|wanted| wanted == has);
        is(&self.host, &summary.host)
            && is(&self.outcome, &summary.outcome)
            && is(&self.cause, summary.cause.as_deref().unwrap_or_default())
            && self.url.as_deref().is_none_or(|part| summary.url.contains(part))
    }
}

/// `GET /requests`.
pub(super) async fn list(admin: &Arc<Admin>, query: &str) -> Reply {
    let wanted = match ListQuery::of_query(query) {
        Ok(wanted) => wanted,
        Err(error) => return Reply::json(422, &Refused { error }),
    };
    let (names, limit) = (admin.common.names.clone(), wanted.limit);
    let pick = move |record: &Record| Some(explain::summary(record, &names)).filter(|summary| wanted.fits(summary));
    let of_workers = admin.look(move |ring| (ring.len(), ring.pick(limit, &pick))).await;
    let kept = of_workers.iter().map(|(kept, _)| kept).sum();
    let mut requests: Vec<Summary> = of_workers.into_iter().flat_map(|(_, requests)| requests).collect();
    requests.sort_by_key(|request| std::cmp::Reverse(request.at_millis));
    requests.truncate(limit);
    Reply::json(200, &Listed { kept, kept_max: admin.common.config.requests_kept_max(), requests })
}

/// `GET /hot`.
pub(super) async fn hot(admin: &Arc<Admin>) -> Hot {
    let of_workers = admin.look(|ring| {
        let mut sums = Sums::default();
        ring.each(|record| sums.count(record.at, &record.url, record.outcome, record.bytes));
        sums
    });
    let mut all = Sums::default();
    of_workers.await.into_iter().for_each(|sums| all.add(sums));
    all.hot()
}

/// `GET /requests/ID`.
pub(super) async fn one(admin: &Arc<Admin>, path: &str) -> Reply {
    let Some(id) = path.strip_prefix("/requests/").and_then(Id::parse) else {
        return Reply::json(404, &Refused { error: "a request's name has 13 letters and digits".to_owned() });
    };
    match find(admin, id).await {
        Some(explanation) => Reply::json(200, &explanation),
        None => Reply::json(
            404,
            &Refused {
                error: format!(
                    "nothing is kept of the request {id}: it was too long ago, or before the start (`records.requests_max` says how many are kept)"
                ),
            },
        ),
    }
}

async fn find(admin: &Arc<Admin>, id: Id) -> Option<Explanation> {
    let (names, places) = (admin.common.names.clone(), places(admin));
    let number = names.number(id);
    let found = admin.look(move |ring| ring.find(number, |record| explain::past(record, &names, &places))).await;
    found.into_iter().flatten().next()
}

/// Where the rules in force stand.
pub(super) fn places(admin: &Admin) -> Places {
    Places {
        edition: admin.common.live.edition(),
        config: admin.common.live.value(),
        sources: admin.sources.lock().clone(),
        lists: Some(admin.common.lists.live().value()),
    }
}

/// `GET /explain`.
pub(super) async fn ahead(admin: &Arc<Admin>, query: &str) -> Reply {
    match asking(query) {
        Ok(asking) => {
            let common = &admin.common;
            let lists = common.lists.live().value();
            let of_server = OfServer {
                lists: Some(&lists),
                via_name: Some(&*common.via_name),
                handed_out: Some(&common.handed_out),
                credentials: Some(&common.credential_secret),
                mounts: Some(admin.nursery.mounts()),
            };
            match explain::ahead(&asking, &common.cache, of_server, &places(admin)).await {
                Ok(explanation) => Reply::json(200, &explanation),
                Err(error) => Reply::json(422, &Refused { error }),
            }
        }
        Err(error) => Reply::json(422, &Refused { error }),
    }
}

fn asking(query: &str) -> Result<Asking, String> {
    let mut asking = Asking::default();
    let mut once: HashMap<&str, String> = HashMap::new();
    for (name, value) in parts(query, &["header"])? {
        match name {
            "header" => asking.fields.push(value),
            "url" | "method" | "client" | "listener" => {
                if once.insert(name, value).is_some() {
                    return Err(format!("{name}: only once"));
                }
            }
            other => return Err(format!("{other}: only url, method, header, client and listener are known")),
        }
    }
    asking.url = once.remove("url").ok_or("say what: url=http://…")?;
    asking.method = once.remove("method").unwrap_or_else(|| "GET".to_owned());
    if let Some(client) = once.remove("client") {
        asking.client = client.parse().map_err(|_| format!("client: {client} is no address"))?;
    }
    if let Some(listener) = once.remove("listener") {
        let parsed = listen_address(&listener);
        asking.listener = Some(parsed.ok_or_else(|| format!("listener: {listener} is not ADDR:PORT or unix:/PATH"))?);
    }
    Ok(asking)
}
