//! A request that the rules allow: its URL, the route to its origin, its key in the store.

use super::by_hook::{ByHook, HookedBy};
use super::by_people::ByPeople;
use super::by_rule::{ByRule, KeyByRule};
use super::by_table::{ByTable, Limited};
use super::credential::Credential;
pub use super::route::Route;
use crate::config::compression::Compression;
use crate::config::next_hop::HopsByRule;
use crate::config::{Config, HostHeader, Mirror, OriginHttp2};
use crate::env::Env;
use crate::hook::{HookNote, RequestEffects};
use crate::package_index::IndexFormat;
use crate::people::User;
use crate::reach::{Asker, Reach};
use crate::record::Rule;
use crate::upstream::Origin;
use larder_cache::cache::Cache;
use larder_rules::rule::Priority;
use larder_wire::proxy_protocol::ProxyVersion;
use larder_wire::{Fields, Host, RequestHead, Url};
use std::borrow::Cow;
use std::rc::Rc;
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
    /// The work of the table of rules on it, where there is any.
    pub by_table: Option<Box<ByTable>>,
    /// The work of hooks on it, where there is any.
    pub by_hook: Option<Box<ByHook>>,
    /// A note of the work of `request` hooks, where any was called.
    pub hook_note: Option<Box<HookNote>>,
    /// The processes of the site's hooks, which are asked about its answers too.
    pub hooked_by: Option<Box<HookedBy>>,
    /// The container registry whose tokens and redirects Larder itself looks after.
    pub registry: Option<Arc<Mirror>>,
    /// The work of a login and of helpers on it, where there is any.
    pub people: Option<Box<ByPeople>>,
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

    /// The same about another URL of the same origin, of which no store rule has said anything.
    pub fn of_url(&self, url: &Url) -> Ask {
        Ask { url: url.clone(), by_rule: None, people: None, ..self.clone() }
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
        if let Some(by_table) = &self.by_table {
            key.extend_from_slice(&by_table.key);
        }
        if let Some(by_hook) = &self.by_hook {
            key.extend_from_slice(by_hook.key());
        }
        if let Some(credential) = self.credential() {
            credential.begin_key(key);
        }
        if self.store_id().is_some() {
            // No URL has a space: what is stored for this one can't be taken for the answer of the URL that it looks like.
            key.extend_from_slice(b"store-id => ");
        }
        if let Some(by_rule) = self.key_by_rule() {
            by_rule.begin_key(key);
        }
        if let Some(start) = self.registry.as_deref().and_then(Mirror::key_start) {
            key.extend_from_slice(start.as_bytes());
        }
    }

    /// Whether the answer follows from the URL and the client's own fields: no rule, hook or helper adds to the key, or changes what the origin
    /// is told.
    pub fn is_by_url_alone(&self) -> bool {
        let mut start = Vec::new();
        self.begin_key(&mut start);
        start.is_empty() && !self.has_changed_fields()
    }

    /// Whether another node that is told the URL and the client's fields would do the same with the request: no login, hook or helper works
    /// on it, no rule changes what the origin is told, and the answer is for all.
    pub fn is_same_on_all_nodes(&self) -> bool {
        let is_unchanged = self.by_hook.is_none() && self.hooked_by.is_none() && !self.has_changed_fields();
        let is_by_same_rules = matches!(self.rule, Rule::Site(_) | Rule::Forward)
            && self.by_table.as_ref().is_none_or(|by_table| by_table.unrouted.is_none());
        let is_for_all = self.people.is_none() && self.credential().is_none() && !self.key_is_without_signature();
        is_unchanged
            && is_by_same_rules
            && is_for_all
            && self.registry.is_none()
            && !self.passes()
            && *self.client_url() == self.url
    }

    /// The credential for which the answer is stored, where a store rule says so.
    pub fn credential(&self) -> Option<&Credential> {
        self.by_rule.as_ref()?.credential.as_ref()
    }

    /// The store rule's key. A helper's goes before it.
    pub(super) fn key_by_rule(&self) -> Option<&KeyByRule> {
        self.by_rule.as_ref()?.key.as_ref().filter(|_| self.store_id().is_none())
    }

    fn store_id(&self) -> Option<&Url> {
        self.people.as_ref()?.store_id.as_ref()
    }

    /// The user who has logged in.
    pub fn user(&self) -> Option<&Arc<User>> {
        self.people.as_ref()?.user.as_ref()
    }

    /// Whether `Authorization` was for Larder alone. A rule or a hook may have set another one since, for the origin.
    pub fn consumes_authorization(&self) -> bool {
        let is_set = || self.names_set().any(|name| name.eq_ignore_ascii_case("Authorization"));
        self.people.as_ref().is_some_and(|people| people.consumes_authorization) && !is_set()
    }

    /// Whether the user is known by a cookie.
    pub fn is_by_cookie(&self) -> bool {
        self.people.as_ref().is_some_and(|people| people.by_cookie)
    }

    /// The request without cookies of logins, where it has any: all that follows works on that one.
    pub fn without_cookies(&self) -> Option<Rc<RequestHead>> {
        self.people.as_ref()?.without_cookies.clone()
    }

    /// The URL as a helper or a store rule has it in the key.
    fn shortened(&self) -> Option<&Url> {
        self.store_id().or_else(|| self.key_by_rule().map(|by_rule| &by_rule.url))
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

    /// The request as rules and hooks have changed its fields; `None` where they have not.
    pub fn changed_by_hook(&self, request: &RequestHead) -> Option<RequestHead> {
        if !self.has_changed_fields() {
            return None;
        }
        let mut request = request.clone();
        self.change_fields(&mut request.fields);
        Some(request)
    }

    /// The limits of bandwidth under which its client gets the answer.
    pub fn limits(&self) -> Option<Rc<[Limited]>> {
        self.by_table.as_ref()?.limits.clone()
    }

    /// The class in which the request waits where something is overloaded.
    pub fn priority(&self) -> Priority {
        self.by_table.as_ref().map_or(Priority::Normal, |by_table| by_table.priority)
    }

    /// Changes fields of the request as rules and hooks want them.
    pub fn change_fields(&self, fields: &mut Fields) {
        self.effects().for_each(|effects| effects.change(fields));
    }

    /// The names of the fields that rules and hooks have set.
    pub fn names_set(&self) -> impl Iterator<Item = &str> {
        self.effects().flat_map(|effects| effects.set.iter().map(|(name, _)| &**name))
    }

    /// The effects of rules, then those of hooks.
    fn effects(&self) -> impl Iterator<Item = &RequestEffects> {
        let by_table = self.by_table.iter().map(|by_table| &*by_table.effects);
        by_table.chain(self.by_hook.iter().map(|by_hook| &*by_hook.effects))
    }

    /// Whether rules or hooks have changed fields of the request.
    pub fn has_changed_fields(&self) -> bool {
        if self.by_table.as_ref().is_some_and(|by_table| by_table.has_changed_fields()) {
            return true;
        }
        self.by_hook.as_ref().is_some_and(|hook| !hook.effects.set.is_empty() || !hook.effects.remove.is_empty())
    }

    /// Whether rules or hooks have to do with the answer once more before it goes out: then a stored response is not handed over at once.
    pub fn waits_for_hooks(&self) -> bool {
        if self.by_table.as_ref().is_some_and(|by| by.is_waited_for())
            || self.people.as_ref().is_some_and(|people| people.by_cookie || people.without_cookies.is_some())
        {
            return true;
        }
        self.hooked_by.as_ref().is_some_and(|hooked| hooked.at_found || hooked.at_respond || self.passes())
    }

    /// Whether hooks are asked about a stored response that is about to be used.
    pub fn asks_found(&self) -> bool {
        self.hooked_by.as_ref().is_some_and(|hooked| hooked.at_found)
    }

    /// The URL as its client asked for it: hooks may have asked for another one.
    pub fn client_url(&self) -> &Url {
        let by_table = self.by_table.as_ref().and_then(|by_table| by_table.client_url.as_ref());
        let by_people = || self.people.as_ref()?.client_url.as_ref();
        let by_hook = || self.by_hook.as_ref()?.client_url.as_ref();
        by_table.or_else(by_people).or_else(by_hook).unwrap_or(&self.url)
    }

    /// The same request as if no hook had worked on it.
    pub fn unhooked(&self) -> Ask {
        let unrouted = self.by_hook.as_ref().and_then(|by_hook| by_hook.unrouted.clone());
        let route = match (&self.route, unrouted) {
            (Route::Site { host_header, compression, .. }, Some(origin)) => {
                Route::Site { origin, host_header: *host_header, compression: compression.clone() }
            }
            (route, _) => route.clone(),
        };
        let by_table = self.by_table.clone();
        let route = by_table.and_then(|by_table| by_table.unrouted).unwrap_or(route);
        Ask { by_hook: None, by_table: None, route, ..self.clone() }
    }

    /// The work of store rules, in words.
    pub fn words(&self) -> Vec<String> {
        self.by_rule.as_ref().map(|by_rule| by_rule.words()).unwrap_or_default()
    }

    /// Whether a rule or a hook says that the answer is not to be stored, or it comes from elsewhere than the URL says.
    pub fn passes(&self) -> bool {
        if self.route.is_to_destination() {
            return true;
        }
        if self.by_table.as_ref().is_some_and(|by_table| by_table.effects.passes) {
            return true;
        }
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
            Route::Destination(_, to) => to,
            Route::Site { origin, .. } => origin,
        }
    }

    /// Whether the origin may be asked by HTTP/2.
    pub fn http2(&self, config: &Config) -> OriginHttp2 {
        match &self.route {
            Route::Site { origin, .. } => origin.http2.unwrap_or(config.upstream.http2),
            Route::Forward(_) | Route::Destination(..) => config.upstream.http2,
        }
    }

    /// The codings that responses of the site get, where they get any.
    pub fn compression(&self) -> Option<&Arc<Compression>> {
        match &self.route {
            Route::Site { compression, .. } => compression.as_ref(),
            Route::Forward(_) | Route::Destination(..) => None,
        }
    }

    /// The version of the PROXY protocol by which the origin is told of the client, where it is.
    pub fn proxy_protocol(&self) -> Option<ProxyVersion> {
        match &self.route {
            Route::Site { origin, .. } => origin.proxy_protocol,
            Route::Forward(_) | Route::Destination(..) => None,
        }
    }

    /// The name for SNI and certificate, where it is another one than the host to connect to.
    pub fn tls_name(&self) -> Option<&Host> {
        self.route.is_to_destination().then_some(&self.url.host)
    }

    /// Which clients can use the forward proxy's listener; `None` where the origin is one of the configuration.
    pub fn asker(&self) -> Option<Asker> {
        match self.route {
            Route::Forward(asker) | Route::Destination(asker, _) => Some(asker),
            Route::Site { .. } => None,
        }
    }

    /// How far, and through whom, the origin may be asked.
    pub fn reach(&self, env: &Env) -> Reach {
        let by_rule = self.by_table.as_ref().map(|by_table| by_table.reach.clone());
        env.reach(self.asker()).by_rule(by_rule.unwrap_or_default())
    }

    /// The choice of rules of those through whom the origin is asked.
    pub fn hops(&self) -> Option<&HopsByRule> {
        self.by_table.as_ref()?.reach.hops.as_deref()
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
            Route::Forward(_) | Route::Destination(..) => self.url.clone(),
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
            Route::Site { origin, host_header: HostHeader::Origin, .. } => origin,
            _ => &self.url,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SiteOrigin;

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
                by_table: None,
                by_hook: None,
                hook_note: None,
                hooked_by: None,
                registry: None,
                people: None,
            }
            .key(&cache, &mut key);
            String::from_utf8(key).unwrap()
        };
        let site = |origin: &str| Route::Site {
            origin: Arc::new(SiteOrigin::new(Url::parse(origin).unwrap())),
            host_header: HostHeader::Client,
            compression: None,
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
            compression: None,
        };
        let ask = |origin: &str| Ask {
            url: url.clone(),
            route: route(origin),
            rule: Rule::Question,
            by_rule: None,
            by_table: None,
            by_hook: None,
            hook_note: None,
            hooked_by: None,
            registry: None,
            people: None,
        };
        assert_eq!(ask("http://b.example:81/").target(), "/x?y");
        assert_eq!(ask("http://b.example:81/base/").target(), "/base/x?y");
        assert_eq!(ask("http://b.example:81/base").host(), "b.example:81");
    }
}
