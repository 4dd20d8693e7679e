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
use std::sync::Arc;

/// The key of the answer to this HEAD, where a rule has it or its redirections stored and nothing is stored for a GET, which would answer it.
pub async fn key<S: ClientStream>(stream: &mut S, request: &RequestHead, ask: &Ask) -> Option<Vec<u8>> {
    if request.method != Method::Head || !is_kept(stream, request, ask) {
        return None;
    }
    let cache = Arc::clone(&stream.env().common.cache);
    let mut key = key_of(ask, &cache);
    let mut stored = cache.peek(&key, request, stream.env().stamp_at(clock::instant()));
    if stored.may_be_on_disk {
        // As is said of every key while the index is read at a start: else the first answers would not be kept, nor found.
        let _ = stream.flush().await;
        cache.take_up(&key).await;
        stored = cache.peek(&key, request, stream.env().stamp_at(clock::instant()));
    }
    if stored.may_be_on_disk || !stored.variants.is_empty() {
        return None;
    }
    key.extend_from_slice(fetch::HEAD_ALONE);
    Some(key)
}

fn is_kept<S: ClientStream>(stream: &S, request: &RequestHead, ask: &Ask) -> bool {
    let (config, for_run) = (stream.env().config(), stream.peer().listener.run.is_some());
    let rules = rules::store_rules(&config, &ask.route, for_run);
    let keeps = || rules.keeps_redirects(&ask.url, request) || fetch::keeps_heads(ask, rules, request);
    let is_for_one = policy::may_say_who_asks(&request.fields) || policy::Asked::of(request).no_store();
    matches!(ask.route, Route::Forward(_)) && !is_for_one && keeps()
}
