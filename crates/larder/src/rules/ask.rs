//! A request that the rules allow: its URL, the route to its origin, its key in the store.

use super::by_hook::{ByHook, HookedBy};
use super::by_rule::{ByRule, KeyByRule};
use super::credential::Credential;
use crate::config::{HostHeader, Mirror, SiteOrigin};
use crate::hook::HookNote;
use crate::package_index::IndexFormat;
use crate::reach::Asker;
use crate::record::Rule;
use crate::upstream::Origin;
use larder_cache::cache::Cache;
use larder_wire::{RequestHead, Url};
use std::borrow::Cow;
use std::sync::Arc;

/// A request that the rules allow.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The URL that the client asked for; the key is made of it.
    pub url: Url,
    /// How the origin is reached.
    pub route: Route,
    /// The rule that allowed the request.
    pub rule: Rule,
    /// The work of store rules on it, where there is any.
    pub by_rule: Option<Box<ByRule>>,
    /// The work of hooks on it, where there is any.
    pub by_hook: Option<Box<ByHook>>,
    /// A note of the work of `request` hooks, where any was called.
    pub hook_note: Option<Box<HookNote>>,
    /// The processes of the site's hooks, which are asked about its answers too.
    pub hooked_by: Option<Box<HookedBy>>,
    /// The container registry whose tokens and redirects Larder itself looks after.
    pub registry: Option<Arc<Mirror>>,
}

/// How an origin is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// By the URL itself (forward proxy). The asker decides which addresses it may lead to.
    Forward(Asker),
    /// By a site of the configuration, or by the listener's own origin.
    Site {
        /// The origin of the site.
        origin: Arc<SiteOrigin>,
        /// Which `Host` the origin gets.
        host_header: HostHeader,
    },
}

impl Route {
    /// Whether the site's origin lies below a path, so that a `..` may lead beside it.
    pub fn is_below_path(&self) -> bool {
        matches!(self, Route::Site { origin, .. } if &*origin.path != "/")
    }
}

impl Ask {
    /// The key under which the response is stored. The key of a site begins with its origin: listeners may have different
    /// origins for one host name, and no origin may answer for another, nor for the URL itself.
    pub fn key(&self, cache: &Cache, key: &mut Vec<u8>) {
        self.key_of_written("", cache, key);
    }

    /// Writes [`Ask::key`] where `written` is the URL as text, or empty if it was not written yet.
    pub fn key_of_written(&self, written: &str, cache: &Cache, key: &mut Vec<u8>) {
        self.begin_key(key);
        match self.shortened() {
            Some(url) => cache.key_of(url, "", key),
            None => cache.key_of(&self.url, written, key),
        }
    }

    /// The key of another URL of the same origin.
    pub fn key_for(&self, url: &Url, cache: &Cache, key: &mut Vec<u8>) {
        Ask { url: url.clone(), by_rule: None, ..self.clone() }.key(cache, key);
    }

    /// The key with the whole query, as it is while no `No-Vary-Search` of the origin is known.
    pub fn key_at_first(&self, key: &mut Vec<u8>) {
        self.begin_key(key);
        self.shortened().unwrap_or(&self.url).key_text(key);
    }

    pub(super) fn begin_key(&self, key: &mut Vec<u8>) {
        if let Route::Site { origin, .. } = &self.route {
            key.extend_from_slice(origin.key_start());
        }
        if let Some(by_hook) = &self.by_hook {
            key.extend_from_slice(by_hook.key());
        }
        if let Some(credential) = self.credential() {
            credential.begin_key(key);
        }
        if let Some(by_rule) = self.key_by_rule() {
            by_rule.begin_key(key);
        }
        if let Some(start) = self.registry.as_deref().and_then(Mirror::key_start) {
            key.extend_from_slice(start.as_bytes());
        }
    }

    /// The credential for which the answer is stored, where a store rule says so.
    pub fn credential(&self) -> Option<&Credential> {
        self.by_rule.as_ref()?.credential.as_ref()
    }

    pub(super) fn key_by_rule(&self) -> Option<&KeyByRule> {
        self.by_rule.as_ref()?.key.as_ref()
    }

    /// The URL as a store rule has it in the key.
    fn shortened(&self) -> Option<&Url> {
        self.key_by_rule().map(|by_rule| &by_rule.url)
    }

    /// Whether a rule says that this is an index of packages.
    pub fn is_index(&self) -> bool {
        self.by_rule.as_ref().is_some_and(|by_rule| by_rule.index.is_some())
    }

    /// Whether an index of packages may name the digest of what is asked for. One index names others in the archives of apt alone.
    pub fn may_be_named(&self) -> bool {
        let index = self.by_rule.as_ref().and_then(|by_rule| by_rule.index.as_ref());
        index.is_none_or(|(format, _)| *format == IndexFormat::Apt)
    }

    /// The request as hooks have changed its fields; `None` where they have not.
    pub fn changed_by_hook(&self, request: &RequestHead) -> Option<RequestHead> {
        let by_hook = self.by_hook.as_ref().filter(|_| self.has_changed_fields())?;
        let mut request = request.clone();
        by_hook.effects.change(&mut request.fields);
        Some(request)
    }

    /// Whether hooks have changed fields of the request.
    pub fn has_changed_fields(&self) -> bool {
        self.by_hook.as_ref().is_some_and(|hook| !hook.effects.set.is_empty() || !hook.effects.remove.is_empty())
    }

    /// Whether hooks have to be waited for once more before an answer can go out, or have changed fields of the request: then a
    /// stored response is not handed over at once.
    pub fn waits_for_hooks(&self) -> bool {
        self.hooked_by
            .as_ref()
            .is_some_and(|hooked| hooked.at_found || hooked.at_respond || self.passes() || self.has_changed_fields())
    }

    /// Whether hooks are asked about a stored response that is about to be used.
    pub fn asks_found(&self) -> bool {
        self.hooked_by.as_ref().is_some_and(|hooked| hooked.at_found)
    }

    /// The URL as its client asked for it: hooks may have asked for another one.
    pub fn client_url(&self) -> &Url {
        self.by_hook.as_ref().and_then(|by_hook| by_hook.client_url.as_ref()).unwrap_or(&self.url)
    }

    /// The same request as if no hook had worked on it.
    pub fn unhooked(&self) -> Ask {
        let unrouted = self.by_hook.as_ref().and_then(|by_hook| by_hook.unrouted.clone());
        let route = match (&self.route, unrouted) {
            (Route::Site { host_header, .. }, Some(origin)) => Route::Site { origin, host_header: *host_header },
            (route, _) => route.clone(),
        };
        Ask { by_hook: None, route, ..self.clone() }
    }

    /// The work of store rules, in words.
    pub fn words(&self) -> Vec<String> {
        self.by_rule.as_ref().map(|by_rule| by_rule.words()).unwrap_or_default()
    }

    /// Whether a hook says that the answer is not to be stored.
    pub fn passes(&self) -> bool {
        self.by_hook.as_ref().is_some_and(|by_hook| by_hook.effects.passes)
    }

    /// Where to connect.
    pub fn origin(&self) -> Origin {
        Origin::of(self.connects_to())
    }

    /// A URL with the scheme, host and port to connect to.
    pub fn connects_to(&self) -> &Url {
        match &self.route {
            Route::Forward(_) => &self.url,
            Route::Site { origin, .. } => origin,
        }
    }

    /// Which clients can use the forward proxy's listener; `None` where the origin is one of the configuration.
    pub fn asker(&self) -> Option<Asker> {
        match self.route {
            Route::Forward(asker) => Some(asker),
            Route::Site { .. } => None,
        }
    }

    /// The request target as the origin gets it.
    pub fn target(&self) -> Cow<'_, str> {
        match &self.route {
            Route::Site { origin, .. } if &*origin.path != "/" => {
                Cow::Owned(format!("{}{}", origin.path.trim_end_matches('/'), self.url.path))
            }
            _ => Cow::Borrowed(&self.url.path),
        }
    }

    /// The URL that the origin is asked for.
    pub fn url_at_origin(&self) -> Url {
        match &self.route {
            Route::Forward(_) => self.url.clone(),
            Route::Site { origin, .. } => Url { path: self.target().into_owned().into(), ..Url::clone(&***origin) },
        }
    }

    /// The `Host` field as the origin gets it.
    pub fn host(&self) -> String {
        self.names_host().authority()
    }

    /// Whether this is the `Host` field that the origin gets.
    pub fn is_host(&self, field: &[u8]) -> bool {
        self.names_host().has_authority(field)
    }

    fn names_host(&self) -> &Url {
        match &self.route {
            Route::Site { origin, host_header: HostHeader::Origin } => origin,
            _ => &self.url,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_behind_one_name_have_keys_of_their_own() {
        let cache = Cache::new(larder_cache::cache::Settings::default());
        let url = Url::parse("http://a.example/x?y").unwrap();
        let key = |route: Route| {
            let mut key = Vec::new();
            Ask {
                url: url.clone(),
                route,
                rule: Rule::Question,
                by_rule: None,
                by_hook: None,
                hook_note: None,
                hooked_by: None,
                registry: None,
            }
            .key(&cache, &mut key);
            String::from_utf8(key).unwrap()
        };
        let site = |origin: &str| Route::Site {
            origin: Arc::new(SiteOrigin::new(Url::parse(origin).unwrap())),
            host_header: HostHeader::Client,
        };
        assert_eq!(key(Route::Forward(Asker::Elsewhere)), "http://a.example/x?y");
        assert_eq!(key(site("http://127.0.0.1:9000/")), "http://127.0.0.1:9000/ http://a.example/x?y");
        assert_ne!(key(site("http://127.0.0.1:9000/")), key(site("http://127.0.0.1:9001/")));
    }

    #[test]
    fn an_origin_with_a_path_puts_it_first() {
        let url = Url::parse("http://a.example/x?y").unwrap();
        let route = |origin: &str| Route::Site {
            origin: Arc::new(SiteOrigin::new(Url::parse(origin).unwrap())),
            host_header: HostHeader::Origin,
        };
        let ask = |origin: &str| Ask {
            url: url.clone(),
            route: route(origin),
            rule: Rule::Question,
            by_rule: None,
            by_hook: None,
            hook_note: None,
            hooked_by: None,
            registry: None,
        };
        assert_eq!(ask("http://b.example:81/").target(), "/x?y");
        assert_eq!(ask("http://b.example:81/base/").target(), "/base/x?y");
        assert_eq!(ask("http://b.example:81/base").host(), "b.example:81");
    }
}
