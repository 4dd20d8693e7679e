//! Answers of the API about stored objects.

use super::Admin;
use super::{Reply, api};
use crate::clock;
use crate::purge;
use crate::store::gc::{self, By, GcRules};
use crate::store::{self, browse};

/// Responses of one list, unless less is asked for.
const LISTED_MAX: usize = 500;
const LISTED: usize = 50;

/// Stored responses whose URL begins with `prefix`.
pub(super) fn objects(admin: &Admin, query: &str) -> Reply {
    let (mut prefix, mut most) = (String::new(), LISTED);
    let parts = match purge::parts(query, &[]) {
        Ok(parts) => parts,
        Err(trouble) => return refused(trouble),
    };
    for (name, value) in parts {
        match name {
            "prefix" => prefix = value,
            "limit" => match value.parse() {
                Ok(limit) if (1..=LISTED_MAX).contains(&limit) => most = limit,
                _ => return refused(format!("limit: a number from 1 to {LISTED_MAX} is needed")),
            },
            other => return refused(format!("{other}: only prefix and limit are known")),
        }
    }
    Reply::json(200, &browse::search(&admin.common.cache, &prefix, most, clock::now()))
}

/// All variants under one key with their heads.
pub(super) fn object(admin: &Admin, query: &str) -> Reply {
    match purge::parts(query, &[]).as_deref() {
        Ok([("key", key)]) => Reply::json(200, &browse::open(&admin.common.cache, key, clock::now())),
        Err(trouble) => refused(trouble.clone()),
        Ok(_) => refused("say which: key=…, as /store/objects writes it".to_owned()),
    }
}

/// All stored responses that lie on disk, in an order, or the sums of hosts. The answer stays below what a client reads of it.
pub(super) fn sorted(admin: &Admin, query: &str) -> Reply {
    let (mut prefix, mut by) = (String::new(), By::Size);
    let parts = match purge::parts(query, &[]) {
        Ok(parts) => parts,
        Err(trouble) => return refused(trouble),
    };
    for (name, value) in parts {
        match (name, By::of_word(&value)) {
            ("prefix", _) => prefix = value,
            ("by", Some(order)) => by = order,
            _ => return refused(format!("{name}: only prefix and by (size, age, host) are known")),
        }
    }
    let Some(disk) = admin.common.cache.disk() else { return refused(NO_DISK.to_owned()) };
    let mut items = store::list(disk, &prefix, SORTED_MAX);
    if by == By::Host {
        return Reply::json(200, &gc::hosts(&items));
    }
    gc::sort(&mut items, by);
    items.truncate(SHOWN_MAX);
    Reply::json(200, &items)
}

/// Objects that are put in an order.
const SORTED_MAX: usize = 1_000_000;
/// Objects of one answer in an order.
const SHOWN_MAX: usize = 10_000;
const NO_DISK: &str = "there is no disk store: `disk` is 0";

/// Whether housekeeping is done, or only planned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Housekeeping {
    Choose,
    Collect,
}

/// Gives up stored responses by the rules of the query.
pub(super) fn collect(admin: &Admin, query: &str, housekeeping: Housekeeping) -> Reply {
    let rules = purge::parts(query, &[]).and_then(|parts| GcRules::of_parts(&parts));
    let rules = match rules {
        Ok(rules) => rules,
        Err(trouble) => return refused(trouble),
    };
    let cache = &admin.common.cache;
    let Some(disk) = cache.disk() else { return refused(NO_DISK.to_owned()) };
    let (keys, collected) = gc::choose(disk, &rules, clock::now());
    if housekeeping == Housekeeping::Collect {
        let runtime = tokio::runtime::Handle::current();
        for some in keys.chunks(REMOVALS_AT_ONCE) {
            // All are in force before the first is waited for, and share the disk's syncs.
            let purging: Vec<_> = some.iter().map(|key| cache.purge_key(key)).collect();
            for purging in purging {
                runtime.block_on(purging.finish());
            }
        }
    }
    Reply::json(200, &collected)
}

/// Removals that are under way at a time.
const REMOVALS_AT_ONCE: usize = 1_000;

fn refused(error: String) -> Reply {
    Reply::json(422, &api::Refused { error })
}
