//! The facts that rules may read. Each accessor notes that its fact was read, so that the memo of a verdict can be derived
//! from what the verdict depended on: a rule that is added later reads by these accessors too, and no memo skips it.

use super::{ByRule, FoundFacts, Route, store_rules};
use crate::clock;
use crate::config::{Ambiguous, Config, Mirroring, Site, SiteOrigin, StoreRule, StoreRules};
use crate::credential_secret::CredentialSecret;
use crate::handed_out::HandedOut;
use crate::hook::HookLines;
use crate::manager;
use crate::mount::Mounts;
use crate::package_index::IndexFormat;
use crate::reach::{Asker, OwnAddresses};
use larder_wire::reading::Reading;
use larder_wire::{Fault, Host, Method, RequestHead, Scheme, Target, Url};
use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;

/// Fields by which requests for indexes of packages are known.
const FIELDS_OF_INDEXES: [&str; 4] = ["Accept", "Pacote-Req-Type", "Cargo-Protocol", "User-Agent"];

/// The facts that are known before a request is read: its connection, its listener and the settings.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// The settings in force.
    pub config: &'a Config,
    /// The origin of the listener, where the listener serves one site.
    pub origin: Option<&'a Arc<SiteOrigin>>,
    /// Whether the listener is a forward proxy.
    pub forwards: bool,
    /// Which URLs clients may ask for in the path.
    pub mirroring: Mirroring,
    /// Further names of this server that clients of its mirror may use.
    pub mirror_hosts: &'a [Host],
    /// Which clients can connect to the listener.
    pub asker: Asker,
    /// The addresses on which this server listens.
    pub own: &'a OwnAddresses,
    /// The host and port of the opened tunnel through which the request came.
    pub inside: Option<&'a (Host, u16)>,
    /// The client.
    pub client: IpAddr,
    /// The scheme of the connection: TLS or clear text.
    pub scheme: Scheme,
    /// The name of this server in `Via`.
    pub via_name: &'a str,
    /// The facts that were found out because an earlier verdict needed them.
    pub found: &'a FoundFacts,
    /// Whether the listener is that of a `larder run`.
    pub for_run: bool,
    /// The URLs that redirections have just handed out; `None` where nothing is known of them.
    pub handed_out: Option<&'a HandedOut>,
    /// The secret for keys by credential; `None` where a configuration is asked without its server.
    pub credentials: Option<&'a CredentialSecret>,
    /// The applications that the server runs; `None` where a configuration is asked without its server.
    pub mounts: Option<&'a Mounts>,
    /// The decisions of hooks that the worker remembers.
    pub hook_lines: Option<&'a HookLines>,
}

/// A fact that a verdict may depend on. Facts of the connection and of the settings' edition are not listed: a memo compares
/// them in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    /// The client's address.
    Client,
    /// The addresses on which this server listens.
    OwnAddresses,
    /// The path, as a whole or by its beginning.
    Path,
    /// Whether the path is one of the cache manager's.
    IsManagerPath,
    /// Whether `..` in the path, by any reading of it, could lead out of the site's base path.
    PathClimbs,
    /// Whether the target has a query.
    HasQuery,
}

/// A set of facts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FactSet(u8);

impl FactSet {
    fn with(self, fact: Fact) -> FactSet {
        FactSet(self.0 | 1 << fact as u8)
    }

    /// Whether the fact is among them.
    fn has(self, fact: Fact) -> bool {
        self.0 & 1 << fact as u8 != 0
    }
}

/// The facts about one request.
pub struct Facts<'a> {
    scene: Scene<'a>,
    request: &'a RequestHead,
    url: Option<Url>,
    fault: Option<Fault>,
    read: Cell<FactSet>,
    fields: Cell<FieldNames>,
}

/// The facts that a verdict depended on.
#[derive(Clone, Copy)]
pub struct FactsRead {
    facts: FactSet,
    fields: FieldNames,
    /// The editions that the facts are of.
    pub(super) editions: Editions,
}

/// Editions of values that a reload replaces.
#[derive(Clone, Copy, Default)]
pub(super) struct Editions {
    /// Of the settings.
    pub(super) settings: u64,
    /// Of the addresses on which this server listens.
    pub(super) own_addresses: u64,
}

impl FactsRead {
    /// Whether this fact was read.
    pub(super) fn has(&self, fact: Fact) -> bool {
        self.facts.has(fact)
    }

    /// The fields that were read; `None` when there were too many.
    pub(super) fn fields(&self) -> Option<impl Iterator<Item = &'static str>> {
        self.fields.all()
    }
}

/// Names of fields that were read, each once.
#[derive(Clone, Copy, Default)]
struct FieldNames {
    names: [Option<&'static str>; FIELDS_MAX],
    /// There were more than fit.
    has_more: bool,
}

/// A verdict that depends on more fields has no memo.
const FIELDS_MAX: usize = 8;

impl FieldNames {
    fn with(mut self, name: &'static str) -> FieldNames {
        for place in &mut self.names {
            match place {
                Some(known) if *known == name => return self,
                Some(_) => {}
                None => {
                    *place = Some(name);
                    return self;
                }
            }
        }
        self.has_more = true;
        self
    }

    /// All of them; `None` when there were more than fit.
    fn all(&self) -> Option<impl Iterator<Item = &'static str>> {
        (!self.has_more).then(|| self.names.into_iter().flatten())
    }
}

impl<'a> Facts<'a> {
    /// Nothing was read yet.
    pub fn of(scene: Scene<'a>, request: &'a RequestHead) -> Facts<'a> {
        let (url, fault) = match request.url(scene.scheme) {
            Ok(url) => (Some(url), None),
            Err(fault) => (None, Some(fault)),
        };
        Facts { scene, request, url, fault, read: Cell::default(), fields: Cell::default() }
    }

    fn note(&self, fact: Fact) {
        self.read.set(self.read.get().with(fact));
    }

    /// The facts that were read, of values of these editions.
    pub(super) fn read(&self, editions: Editions) -> FactsRead {
        FactsRead { facts: self.read.get(), fields: self.fields.get(), editions }
    }

    /// Takes the URL out for the `Ask`, once the verdict stands; rules read its parts by the accessors. The memo keeps the
    /// URL up to its path, which depends on the field `Host` even where no rule read that.
    pub(super) fn take_url(&mut self) -> Option<Url> {
        if !self.is_absolute() {
            self.note_field("Host");
        }
        self.url.take()
    }

    // Facts of the connection and its listener. A memo compares them in any case, so they are not noted.

    /// The settings in force.
    pub(super) fn config(&self) -> &'a Config {
        self.scene.config
    }

    /// The origin of the listener, where the listener serves one site.
    pub(super) fn listener_origin(&self) -> Option<&'a Arc<SiteOrigin>> {
        self.scene.origin
    }

    /// Whether the listener is a forward proxy.
    pub(super) fn forwards(&self) -> bool {
        self.scene.forwards
    }

    /// Which URLs clients may ask for in the path.
    pub(super) fn mirroring(&self) -> Mirroring {
        self.scene.mirroring
    }

    /// Which clients can connect to the listener.
    pub(super) fn asker(&self) -> Asker {
        self.scene.asker
    }

    /// The host and port of the opened tunnel through which the request came.
    pub(super) fn inside(&self) -> Option<&'a (Host, u16)> {
        self.scene.inside
    }

    /// The scheme of the connection.
    pub(super) fn connection_scheme(&self) -> Scheme {
        self.scene.scheme
    }

    /// The name of this server in `Via`.
    pub(super) fn via_name(&self) -> &'a str {
        self.scene.via_name
    }

    // Facts of the request that a memo compares in any case: its method, the form of its target, scheme, host and port.

    /// The method.
    pub(super) fn method(&self) -> &'a Method {
        &self.request.method
    }

    /// Whether the target is in absolute form, as a client sends it to a forward proxy.
    pub(super) fn is_absolute(&self) -> bool {
        matches!(self.request.target, Target::Absolute(_))
    }

    /// Whether the target is `*`.
    pub(super) fn is_asterisk(&self) -> bool {
        self.request.target == Target::Asterisk
    }

    /// The host and port of a target in authority form.
    pub(super) fn authority(&self) -> Option<(&'a Host, u16)> {
        match &self.request.target {
            Target::Authority(host, port) => Some((host, *port)),
            _ => None,
        }
    }

    /// Why the request has no URL.
    pub(super) fn url_fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// The scheme, host and port of the URL.
    pub(super) fn site(&self) -> Option<(Scheme, &Host, u16)> {
        // An origin-form target has its host from this field.
        if !self.is_absolute() {
            self.note_field("Host");
        }
        self.url.as_ref().map(|url| (url.scheme, &url.host, url.port))
    }

    /// The URL's authority in words.
    pub(super) fn authority_text(&self) -> String {
        self.url.as_ref().map(Url::authority).unwrap_or_default()
    }

    // Facts that a memo compares only where they were read: each accessor notes that.

    /// The client's address.
    pub(super) fn client(&self) -> IpAddr {
        self.note(Fact::Client);
        self.scene.client
    }

    /// The addresses on which this server listens.
    pub(super) fn own_addresses(&self) -> &'a OwnAddresses {
        self.note(Fact::OwnAddresses);
        self.scene.own
    }

    /// The values of a field's list.
    pub(super) fn members(&self, name: &'static str) -> impl Iterator<Item = &'a [u8]> {
        self.note_field(name);
        self.request.fields.members(name)
    }

    /// The value of a field as text.
    pub(super) fn text(&self, name: &'static str) -> Option<&'a str> {
        self.note_field(name);
        self.request.fields.text(name)
    }

    /// Whether there is such a field.
    pub(super) fn has_field(&self, name: &'static str) -> bool {
        self.note_field(name);
        self.request.fields.contains(name)
    }

    fn note_field(&self, name: &'static str) {
        self.fields.set(self.fields.get().with(name));
    }

    /// The site of the configuration that the URL belongs to by every reading of its path, with its number in the list.
    pub(super) fn find_site(&self) -> Result<Option<(usize, &'a Site)>, Ambiguous> {
        let Some(url) = &self.url else { return Ok(None) };
        let _ = self.site();
        if self.scene.config.sites.look_at_paths() {
            self.note(Fact::Path);
        }
        self.scene.config.sites.find_by_every_reading(url)
    }

    /// The path, where it is one of the cache manager's pages asked for at this machine: at an address of the proxy, or through
    /// the proxy at a port of this machine.
    pub(super) fn manager_path(&self) -> Option<&'a str> {
        self.note(Fact::IsManagerPath);
        let path = match &self.request.target {
            Target::Origin(path) => &**path,
            Target::Absolute(url) => &url.path,
            _ => return None,
        };
        if !path.starts_with(manager::PREFIX) {
            return None;
        }
        let is_here = match &self.request.target {
            Target::Absolute(url) => {
                let host = &url.host;
                host.as_str() == "localhost" || host.ip().is_some_and(|address| address.is_loopback())
            }
            _ => {
                self.note_field("Host");
                manager::names_an_address(self.request)
            }
        };
        is_here.then_some(path)
    }

    /// The work of store rules on the request. For one without a query and without `Cache-Control` that is nothing (unless its origin is one of
    /// several that are one tree), so a memo holds for all such requests; what it is for others depends on the whole path and further fields, and they have no memo.
    pub(super) fn by_rule(&self, route: &Route) -> Option<Box<ByRule>> {
        self.by_rules(route, self.url.as_ref())
    }

    /// [`Facts::by_rule`] for a URL that the request's own path names. Its credential is for the mirror, so it makes no key.
    pub(super) fn by_rule_of(&self, route: &Route, url: &Url) -> Option<Box<ByRule>> {
        let mut by_rule = self.by_rules(route, Some(url))?;
        by_rule.credential = None;
        Some(by_rule)
    }

    fn by_rules(&self, route: &Route, url: Option<&Url>) -> Option<Box<ByRule>> {
        let rules = store_rules(self.scene.config, route, self.scene.for_run);
        if rules.is_empty() {
            return None;
        }
        let index = self.index(rules, url);
        let by_rule = self.by_rule_without_index(rules, url);
        match index {
            Some((rule, format)) => Some(ByRule::with_index(by_rule, rule, format)),
            None => by_rule,
        }
    }

    /// The rule by which an index of packages is asked for. Fields decide first, so that a memo of other requests holds for other paths.
    fn index<'r>(&self, rules: StoreRules<'r>, url: Option<&Url>) -> Option<(&'r StoreRule, IndexFormat)> {
        rules.indexes().find(|(rule, format)| {
            let has_fields = rule.fields.iter().all(|field| {
                match FIELDS_OF_INDEXES.iter().find(|name| field.name().eq_ignore_ascii_case(name)) {
                    Some(name) => self.note_field(name),
                    None => self.note(Fact::Path),
                }
                field.matches(self.request)
            });
            has_fields && {
                self.note(Fact::Path);
                self.request.method == Method::Get && url.is_some_and(|url| rule.is_about(url) && format.is_index(url))
            }
        })
    }

    fn by_rule_without_index(&self, rules: StoreRules<'_>, url: Option<&Url>) -> Option<Box<ByRule>> {
        self.note(Fact::HasQuery);
        let names_age = self.has_field("Cache-Control");
        let has_credential = rules.know_credentials() && self.has_field("Authorization");
        let is_known = |url: &&Url| names_age || has_credential || url.path.contains('?') || rules.is_in_tree(url);
        let url = url.filter(is_known)?;
        self.note(Fact::Path);
        let handed_out = self.scene.handed_out.map(|table| (table, clock::instant()));
        ByRule::of(rules, url, self.request, handed_out, self.scene.credentials)
    }

    /// The whole request, for hooks: whatever they look at, no memo of the verdict holds for another request. Decisions that are
    /// remembered have a memo of their own.
    pub(super) fn for_hooks(&self) -> Option<(Scene<'a>, &'a RequestHead, &Url)> {
        self.note(Fact::Path);
        Some((self.scene, self.request, self.url.as_ref()?))
    }

    /// Another URL takes the place of the request's own.
    pub(super) fn replace_url(&mut self, url: Url) {
        self.note(Fact::Path);
        self.url = Some(url);
    }

    /// The path of a request in origin form.
    pub(super) fn origin_form(&self) -> Option<&'a str> {
        match &self.request.target {
            Target::Origin(path) => {
                self.note(Fact::Path);
                Some(path)
            }
            _ => None,
        }
    }

    /// Whether `Host` names this server so that no page of another name can have made a browser do it.
    pub(super) fn names_mirror(&self) -> bool {
        self.note_field("Host");
        manager::names_an_address(self.request) || manager::names_one_of(self.request, self.scene.mirror_hosts)
    }

    /// Whether a reader of the path could go up by a `..`.
    pub(super) fn path_climbs(&self) -> bool {
        self.note(Fact::PathClimbs);
        self.url.as_ref().is_some_and(|url| Reading::of(&url.path) == Reading::Climbs)
    }
}

#[cfg(test)]
impl Facts<'_> {
    /// The group of the client, which has to be found out.
    pub fn group(&self) -> Result<&'static str, super::Need> {
        self.scene.found.group.ok_or(super::Need::Group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Loaded;
    use crate::rules::{Verdict, judge};
    use larder_wire::parse::{self, HeadLimits, Parsed};

    /// The facts that the verdict on a request depends on, by name.
    fn read(settings: &str, request: &str) -> (Verdict, Vec<&'static str>) {
        let loaded = Loaded::parse("test", settings, &[]).unwrap_or_else(|report| panic!("{report}"));
        let Ok(Parsed::Complete { head, .. }) = parse::request(request.as_bytes(), &HeadLimits::default()) else {
            panic!("{request}")
        };
        let (config, own) = (&loaded.config, OwnAddresses::of(&loaded.config));
        let scene = Scene {
            config,
            origin: config.listens[0].origin.as_ref(),
            forwards: config.listens[0].forwarding().beside(&config.sites),
            mirroring: config.listens[0].mirroring().beside(&config.sites),
            mirror_hosts: &config.listens[0].mirror_hosts,
            asker: Asker::ThisMachine,
            own: &own,
            inside: None,
            client: IpAddr::from([127, 0, 0, 1]),
            scheme: Scheme::Http,
            via_name: "larder-test",
            found: &FoundFacts::default(),
            for_run: false,
            handed_out: None,
            credentials: None,
            mounts: None,
            hook_lines: None,
        };
        let mut facts = Facts::of(scene, &head);
        let verdict = judge::judge(&mut facts);
        let read = facts.read(Editions::default());
        let all = [
            (Fact::Client, "client"),
            (Fact::OwnAddresses, "own addresses"),
            (Fact::Path, "path"),
            (Fact::IsManagerPath, "is manager path"),
            (Fact::PathClimbs, "path climbs"),
            (Fact::HasQuery, "has query"),
        ];
        let facts = all.into_iter().filter(|(fact, _)| read.has(*fact)).map(|(_, name)| name);
        // The rule of tests reads a field that no other one reads.
        let fields = read.fields().unwrap().filter(|name| *name != "X-Test-Group");
        (verdict, facts.chain(fields).collect())
    }

    #[test]
    fn a_verdict_names_the_facts_that_it_depends_on() {
        let forward = "[[listen]]\naddress = \"127.0.0.1:3128\"\n";
        let one = "[[listen]]\naddress = \"127.0.0.1:8080\"\norigin = \"http://127.0.0.1:9000\"\n";
        let below = "[[listen]]\naddress = \"127.0.0.1:8080\"\norigin = \"http://127.0.0.1:9000/base\"\n";
        let sites = |prefix: &str| {
            format!(
                "[[site]]\nhosts = [\"a.test\"]\norigin = \"http://127.0.0.1:9000\"\nprefix = \"{prefix}\"\n{forward}forward = true\n"
            )
        };
        let absolute = "GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n";
        let origin = "GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n";
        let index = "GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\nPacote-Req-Type: packument\r\n\r\n";
        let npm = format!("presets = [\"npm\"]\n{forward}");
        let four = "presets = [\"apt\", \"cargo\", \"npm\", \"python\"]\n";
        let by_rules = |further: &[&'static str], fields: &[&'static str]| {
            let start = [&["client", "own addresses"][..], further, &["is manager path", "has query", "Via"]];
            [&start.concat()[..], fields, &["Cache-Control"]].concat()
        };
        let of_npm = ["Accept", "Pacote-Req-Type"];
        for (settings, request, wanted) in [
            (forward, absolute, vec!["client", "own addresses", "is manager path", "Via"]),
            (one, origin, vec!["Via", "Host"]),
            (below, origin, vec!["path climbs", "Via", "Host"]),
            (&sites("/"), origin, vec!["Via", "Host"]),
            (&npm, absolute, by_rules(&[], &of_npm)),
            (&npm, index, by_rules(&["path"], &of_npm)),
            (
                &format!("{four}{}", sites("/").replace("a.test", "b.test")),
                absolute,
                by_rules(&[], &["User-Agent", "Cargo-Protocol", "Accept", "Pacote-Req-Type"]),
            ),
            (&sites("/y"), absolute, vec!["client", "own addresses", "path", "is manager path", "Via"]),
        ] {
            let (verdict, read) = read(settings, request);
            assert!(matches!(verdict, Verdict::Allow(_)), "{settings}{request}{verdict:?}");
            assert_eq!(read, wanted, "{settings}{request}");
        }
    }
}
