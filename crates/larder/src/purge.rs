//! Purges: by the API, by `larder purge`, and by the method `PURGE`.

use crate::cluster::{PurgeDurability, Spread};
use crate::config::{HostHeader, Presets, StoreRules};
use crate::env::Common;
use crate::fetch;
use crate::page::Page;
use crate::reach::Asker;
use crate::rules::{Ask, Route, Rule};
use larder_cache::cache::{Purged, Purging};
use larder_cache::store::rules::{self, Force, Scope};
use larder_cache::tags;
use larder_people::form::{decoded, encoded};
use larder_wire::{Host, RequestHead, Scheme, Url, target};
use serde::Serialize;
use std::collections::HashSet;
use std::sync::Arc;

/// The responses that a purge makes void.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All variants of a URL.
    Url(Url),
    /// All URLs that begin so.
    Prefix(String),
    /// All responses that carry this tag (`Surrogate-Key`, `Cache-Tag`, `xkey`).
    Tag(String),
    /// All URLs of a host, by any scheme and port.
    Host(Host),
    /// Everything.
    All,
}

impl Selection {
    /// The word of the answer.
    pub fn as_str(&self) -> &'static str {
        match self {
            Selection::Url(_) => "url",
            Selection::Prefix(_) => "prefix",
            Selection::Tag(_) => "tag",
            Selection::Host(_) => "host",
            Selection::All => "all",
        }
    }

    /// The rules by which a store voids it.
    pub fn scopes(&self) -> Vec<Scope> {
        let prefix = |text: &[u8]| Scope::Prefix(rules::beginning(text));
        Vec::from([match self {
            Selection::Url(url) => Scope::Prefix(rules::whole(&text_of(url)).into()),
            Selection::Prefix(text) => {
                let text = Url::parse_asked(text).map_or_else(|| text.clone().into_bytes(), |url| text_of(&url));
                prefix(&text)
            }
            Selection::Tag(tag) => Scope::Tag(tags::hash(tag.as_bytes())),
            Selection::Host(host) => {
                let schemes = Scheme::ALL.into_iter().map(Scheme::as_str);
                let beginnings = schemes.flat_map(|scheme| ["/", ":"].map(|end| format!("{scheme}://{host}{end}")));
                return beginnings.map(|beginning| prefix(beginning.as_bytes())).collect();
            }
            Selection::All => Scope::All,
        }])
    }
}

fn text_of(url: &Url) -> Vec<u8> {
    let mut text = Vec::new();
    url.key_text(&mut text);
    text
}

/// A purge as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeRequest {
    /// The responses.
    pub selection: Selection,
    /// Whether the responses are forgotten, or only to be validated.
    pub force: Force,
}

impl PurgeRequest {
    /// Reads the query of an API request: one of `url`, `prefix`, `tag`, `host`, `all`, and `soft`. An error names the remedy.
    pub fn of_query(query: &str) -> Result<PurgeRequest, String> {
        let mut selection = None;
        let mut force = Force::Hard;
        for (name, value) in parts(query, &[])? {
            let found = match name {
                "soft" => {
                    force = if flag(name, &value)? { Force::Soft } else { Force::Hard };
                    continue;
                }
                "url" => {
                    Selection::Url(Url::parse_asked(&value).ok_or("url: an absolute http, https or ftp URL is needed")?)
                }
                "host" => {
                    Selection::Host(Host::parse(&value).ok_or("host: a name or an address is needed, without a port")?)
                }
                "prefix" | "tag" if value.is_empty() => return Err(format!("{name}: a text is needed")),
                "prefix" => Selection::Prefix(value),
                "tag" => Selection::Tag(value),
                "all" if flag(name, &value)? => Selection::All,
                "all" => continue,
                other => return Err(format!("{other}: only url, prefix, tag, host, all and soft are known")),
            };
            if selection.replace(found).is_some() {
                return Err("one of url, prefix, tag, host and all at a time".to_owned());
            }
        }
        let selection = selection.ok_or("say what: url=…, prefix=…, tag=…, host=… or all")?;
        Ok(PurgeRequest { selection, force })
    }

    /// The same as a query.
    pub fn query(&self) -> String {
        let what = match &self.selection {
            Selection::Url(url) => format!("url={}", encoded(&url.to_string())),
            Selection::Prefix(text) => format!("prefix={}", encoded(text)),
            Selection::Tag(text) => format!("tag={}", encoded(text)),
            Selection::Host(host) => format!("host={}", encoded(host.as_str())),
            Selection::All => "all".to_owned(),
        };
        if self.force == Force::Soft { what + "&soft" } else { what }
    }
}

/// The value of a parameter that is on or off. Alone it is on; any other value is refused, for a guess could purge too
/// much.
fn flag(name: &str, value: &str) -> Result<bool, String> {
    match value {
        "" | "true" | "yes" | "1" => Ok(true),
        "false" | "no" | "0" => Ok(false),
        other => Err(format!("{name}: {other} is neither true nor false")),
    }
}

/// The names and values of a query; only those of `many` may be there more than once.
pub fn parts<'q>(query: &'q str, many: &[&str]) -> Result<Vec<(&'q str, String)>, String> {
    let parts = parts_as_they_are(query)?;
    let mut seen = HashSet::new();
    match parts.iter().find(|(name, _)| !seen.insert(*name) && !many.contains(name)) {
        Some((name, _)) => Err(format!("{name}: only once")),
        None => Ok(parts),
    }
}

fn parts_as_they_are(query: &str) -> Result<Vec<(&str, String)>, String> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    let parts = parts.map(|part| part.split_once('=').unwrap_or((part, "")));
    let read = |(name, value)| {
        let value = decoded(value).ok_or_else(|| format!("{name}: a % needs two hexadecimal digits behind it"))?;
        Ok((name, value))
    };
    parts.map(read).collect()
}

/// The result of a purge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Report {
    /// The kind of selection: url, prefix, tag or all.
    pub scope: String,
    /// hard or soft.
    pub force: String,
    /// The number of stored responses that it matched; null where counting them would have taken long.
    pub count: Option<usize>,
    /// On disk, so that it holds after a power cut; false without a disk store, which forgets everything anyway.
    pub durable: bool,
    /// How far it came in the cluster, where this server is a node of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Spread>,
}

/// More stored responses than this are not counted one by one for a rule.
const COUNTED_MAX: u64 = 100_000;

/// A count that takes more comparisons than this is given up: some 50 ms.
const COUNT_STEPS_MAX: u64 = 4_000_000;

/// Purges the selected responses; the purge is on disk when this returns. In a cluster the other nodes have applied it then, or it is
/// said how far it came.
pub async fn purge(common: &Common, wanted: &PurgeRequest) -> Report {
    let hold = common.cluster.as_ref().and_then(|cluster| cluster.hold());
    let purged = match (&wanted.selection, wanted.force) {
        (Selection::Url(url), Force::Hard) => purge_url(common, url).await,
        (Selection::Url(url), Force::Soft) => {
            let first = first_of_tree(common, url);
            let scopes = std::iter::once(url).chain(&first).map(scope_of).collect();
            purge_scopes(common, scopes, Force::Soft).await
        }
        (selection, force) => purge_scopes(common, selection.scopes(), force).await,
    };
    let cluster = match &common.cluster {
        Some(cluster) => {
            let scopes = everywhere(common, &wanted.selection);
            Some(cluster.spread(scopes, wanted.force, durability(purged), hold).await)
        }
        None => None,
    };
    Report {
        scope: wanted.selection.as_str().to_owned(),
        force: wanted.force.as_str().to_owned(),
        count: purged.count,
        durable: purged.durable,
        cluster,
    }
}

fn durability(purged: Purged) -> PurgeDurability {
    if purged.durable { PurgeDurability::OnDisk } else { PurgeDurability::InMemory }
}

/// The rules by which other nodes purge it: each knows its own keys, so that they are given URLs.
fn everywhere(common: &Common, selection: &Selection) -> Vec<Scope> {
    match selection {
        Selection::Url(url) => std::iter::once(url).chain(&first_of_tree(common, url)).map(scope_of).collect(),
        other => other.scopes(),
    }
}

/// Answers a request with the method `PURGE`: by the tags that it names, otherwise by its URL.
pub async fn of_request(common: &Common, request: &RequestHead, ask: &Ask) -> Page {
    let hold = common.cluster.as_ref().and_then(|cluster| cluster.hold());
    let named = tags::of(&request.fields);
    let by_tag = || named.iter().copied().map(Scope::Tag).collect();
    let (scope, purged) = match named.is_empty() {
        false => ("tag", purge_scopes(common, by_tag(), Force::Hard).await),
        true => {
            let mut keys = Vec::new();
            add_keys(common, ask.clone(), &mut keys);
            let by_key = purge_keys(common, keys).await;
            match &ask.hooked_by {
                Some(_) => ("url", and_by_url(common, by_key, &ask.url).await),
                None => ("url", by_key),
            }
        }
    };
    let spread = match &common.cluster {
        Some(cluster) => {
            let url = || everywhere(common, &Selection::Url(ask.url.clone()));
            let scopes = if named.is_empty() { url() } else { by_tag() };
            Some(cluster.spread(scopes, Force::Hard, durability(purged), hold).await)
        }
        None => None,
    };
    let Purged { count, durable } = purged;
    let count = count.map_or("some".to_owned(), |count| count.to_string());
    let durable = if durable { " That is on disk." } else { "" };
    let in_cluster =
        spread.as_ref().map_or(String::new(), |spread| format!(" In the cluster it is {}.", spread.words()));
    let remedy = "The next request asks the origin.";
    // A script that purges by this method looks at the status alone.
    let status = match spread.as_ref().map(|spread| &*spread.state) {
        Some("queued") => 202,
        Some("refused") => 503,
        _ => 200,
    };
    let text = format!("Purged by {scope}: {count} stored responses.{durable}{in_cluster}");
    Page::new(status, "purge-done", text, remedy)
}

/// Puts rules for some scopes in force together, counts the responses that they match, and waits until the rules are on
/// disk.
async fn purge_scopes(common: &Common, scopes: Vec<Scope>, force: Force) -> Purged {
    let purging = common.cache.purge(scopes.iter().cloned(), force);
    let count = counted(common, scopes).await;
    Purged { count, ..purging.finish().await }
}

/// The number of stored responses that some scopes match. All responses are compared, on a thread of its own, so that
/// no worker is held up.
async fn counted(common: &Common, scopes: Vec<Scope>) -> Option<usize> {
    let cache = Arc::clone(&common.cache);
    if cache.stats().objects + cache.disk().map_or(0, |disk| disk.stats().heads) > COUNTED_MAX {
        return None;
    }
    // Counts at the same time follow one another, so that they take one core, not all.
    let counting = common.purge_counting.acquire().await;
    let count = tokio::task::spawn_blocking(move || cache.count(&scopes, COUNT_STEPS_MAX)).await;
    drop(counting);
    count.ok().flatten()
}

/// A URL may be stored as a proxy's, and as that of each site that it can be of; and under the first of several origins that are one tree.
async fn purge_url(common: &Common, url: &Url) -> Purged {
    let mut keys = Vec::new();
    let first = first_of_tree(common, url);
    for url in std::iter::once(url).chain(&first) {
        keys_of_url(common, url, &mut keys);
    }
    let by_key = purge_keys(common, keys).await;
    let config = common.live.value();
    let of_sites = config.sites.iter().filter_map(|site| site.hooked_by.as_ref());
    let has_hooks = of_sites.chain(&config.forward.hooked_by).next().is_some();
    let has_hooks = has_hooks || config.rule_table.table.rules().iter().any(|rule| rule.does.makes_keys());
    if !has_hooks && !StoreRules::of(&config.store_rules, Presets::None).know_credentials() {
        return by_key;
    }
    and_by_url(common, by_key, first.as_ref().unwrap_or(url)).await
}

/// Begins to purge a URL that another node has purged, by all keys that a URL has here. Each node is told the URL as a rule has it, which
/// does not match a key with a part of the URL alone (`No-Vary-Search`).
pub fn begin_by_keys(common: &Common, whole: &[u8]) -> Vec<Purging> {
    let text = whole.strip_suffix(b"\n").and_then(|text| std::str::from_utf8(text).ok());
    let Some(url) = text.and_then(Url::parse_asked) else { return Vec::new() };
    let mut keys = Vec::new();
    keys_of_url(common, &url, &mut keys);
    keys.iter().map(|key| common.cache.purge_key(key)).collect()
}

/// Also purges what has this URL in a key that nobody can make here: those of all credentials, and those with parts that hooks
/// add.
async fn and_by_url(common: &Common, by_key: Purged, url: &Url) -> Purged {
    let by_rule = purge_scopes(common, vec![scope_of(url)], Force::Hard).await;
    let count = by_key.count.zip(by_rule.count).map(|(one, other)| one + other);
    Purged { count, durable: by_key.durable && by_rule.durable }
}

/// All responses of a URL, whatever stands before it in their keys.
fn scope_of(url: &Url) -> Scope {
    Scope::Prefix(rules::whole(&text_of(url)).into())
}

fn first_of_tree(common: &Common, url: &Url) -> Option<Url> {
    StoreRules::of(&common.live.value().store_rules, Presets::None).at_first_of_tree(url)
}

fn keys_of_url(common: &Common, url: &Url, keys: &mut Vec<Vec<u8>>) {
    let config = common.live.value();
    let listens = config.listens.iter().filter_map(|listen| listen.origin.clone());
    let sites = config.sites.iter().filter(|site| site.hosts.iter().any(|host| host.matches(&url.host)));
    let origins = listens.chain(sites.map(|site| site.origin.clone()));
    let of_site = |origin| Route::Site { origin, host_header: HostHeader::Client, compression: None };
    // Answers that were fetched with the credentials of a mirror have keys of their own.
    for mirror in config.mirrors.iter().filter(|mirror| mirror.registry && mirror.path_of(url).is_some()) {
        let (route, registry) = (Route::Forward(Asker::Elsewhere), Some(Arc::clone(mirror)));
        add_keys(
            common,
            Ask {
                url: url.clone(),
                route,
                rule: Rule::Question,
                by_rule: None,
                by_table: None,
                by_hook: None,
                hook_note: None,
                hooked_by: None,
                registry,
                people: None,
            },
            keys,
        );
    }
    for route in std::iter::once(Route::Forward(Asker::Elsewhere)).chain(origins.map(of_site)) {
        add_keys(
            common,
            Ask {
                url: url.clone(),
                route,
                rule: Rule::Question,
                by_rule: None,
                by_table: None,
                by_hook: None,
                hook_note: None,
                hooked_by: None,
                registry: None,
                people: None,
            },
            keys,
        );
    }
}

/// Adds the key of a request, and the key of the spelling which most clients use for its URL.
fn add_keys(common: &Common, ask: Ask, keys: &mut Vec<Vec<u8>>) {
    let spelled = target::common_spelling(ask.url.path.as_bytes());
    let spelled = std::str::from_utf8(&spelled).map_or_else(|_| ask.url.path.clone(), Box::from);
    for path in [ask.url.path.clone(), spelled] {
        let mut key = Vec::new();
        ask.of_url(&Url { path, ..ask.url.clone() }).key(&common.cache, &mut key);
        // A redirection that only a HEAD asked for stands beside it.
        let of_head = [&*key, fetch::HEAD_ALONE].concat();
        for key in [key, of_head] {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
    }
}

async fn purge_keys(common: &Common, keys: Vec<Vec<u8>>) -> Purged {
    let mut all = Purged { count: Some(0), durable: true };
    // All purges are in force before the first is waited for, and share the disk's syncs.
    let purging: Vec<_> = keys.iter().map(|key| common.cache.purge_key(key)).collect();
    for purging in purging {
        let purged = purging.finish().await;
        all.count = all.count.zip(purged.count).map(|(sum, more)| sum + more);
        all.durable &= purged.durable;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_says_one_thing() {
        let what = |query: &str| {
            PurgeRequest::of_query(query).map(|wanted| (wanted.selection.as_str(), wanted.force.as_str()))
        };
        assert_eq!(what("url=http%3A%2F%2Fa.example%2Fx"), Ok(("url", "hard")));
        assert_eq!(what("prefix=http://a.example/&soft"), Ok(("prefix", "soft")));
        assert_eq!(what("tag=a+b&soft=no"), Ok(("tag", "hard")));
        assert_eq!(what("host=A.example&soft"), Ok(("host", "soft")));
        assert_eq!(what("all"), Ok(("all", "hard")));
        assert_eq!(what("tag=a&all=false&soft=false"), Ok(("tag", "hard")));
        assert_eq!(what("all=true&soft=yes"), Ok(("all", "soft")));
        for wrong in [
            "",
            "soft",
            "url=/x",
            "host=",
            "host=a.example:81",
            "host=a/b",
            "url=%zz",
            "tag=",
            "tag=a&all",
            "tags=a",
            "all=false",
            "all=0",
            "all=maybe",
            "all&soft=perhaps",
            "tag=a&tag=b",
            "tag=a&soft&soft=no",
            "all&dry-run",
            "url=http://a/&prefix=http://a/",
        ] {
            assert!(what(wrong).is_err(), "{wrong}");
        }
        let wanted = PurgeRequest { selection: Selection::Tag("a b/ü&%".to_owned()), force: Force::Soft };
        assert_eq!(PurgeRequest::of_query(&wanted.query()), Ok(wanted));
    }
}
