//! Answers that only a HEAD asks for. A client of a hub asks by HEAD where a file is, and then for the signed URL that the redirection
//! leads to; one of a container registry asks by HEAD which digest a tag has, and then for the manifest by its digest. No GET ever brings
//! these answers, which a store rule wants stored. The answer to a HEAD may be stored for later ones (RFC 9110 section 9.3.2); it stands
//! under a key of its own, so that it never answers a GET.

use super::relay::key_of;
use super::stream::ClientStream;
use crate::clock;
use crate::fetch;
use crate::rules::{self, Ask, Route};
use larder_cache::policy;
use larder_wire::{Method, RequestHead};

/// The key of the answer to this HEAD, where a rule has it or its redirections stored and nothing is stored for a GET, which would answer it.
pub fn key<S: ClientStream>(stream: &S, request: &RequestHead, ask: &Ask) -> Option<Vec<u8>> {
    if request.method != Method::Head || !matches!(ask.route, Route::Forward(_)) {
        return None;
    }
    let (env, for_run) = (stream.env(), stream.peer().listener.run.is_some());
    let config = env.config();
    let rules = rules::store_rules(&config, &ask.route, for_run);
    let keeps = rules.keeps_redirects(&ask.url, request) || fetch::keeps_heads(ask, rules, request);
    if !keeps || policy::may_say_who_asks(&request.fields) || policy::Asked::of(request).no_store() {
        return None;
    }
    let cache = &env.common.cache;
    let mut key = key_of(ask, cache);
    let stored = cache.peek(&key, request, env.stamp_at(clock::instant()));
    if stored.may_be_on_disk || !stored.variants.is_empty() {
        return None;
    }
    key.extend_from_slice(fetch::HEAD_ALONE);
    Some(key)
}
