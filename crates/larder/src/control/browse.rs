//! Answers of the API about stored objects.

use super::Admin;
use super::{Reply, api};
use crate::clock;
use crate::purge;
use crate::store::browse;

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

fn refused(error: String) -> Reply {
    Reply::json(422, &api::Refused { error })
}
