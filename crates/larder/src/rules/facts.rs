//! The facts that rules may read. Each accessor notes that its fact was read, so that the memo of a verdict can be derived
//! from what the verdict depended on: a rule that is added later reads by these accessors too, and no memo skips it.

use self::field_names::FieldNames;
use super::{ByRule, FoundFacts, Route, store_rules};
use crate::client::has_address;
use crate::clock;
use crate::config::{Ambiguous, Config, Listen, Mirroring, Site, SiteOrigin, StoreRule, StoreRules};
use crate::credential_secret::CredentialSecret;
use crate::handed_out::HandedOut;
use crate::hook::{HookLines, HooksRead, RequestEffects};
use crate::lists::ListSet;
use crate::manager;
use crate::mount::Mounts;
use crate::package_index::IndexFormat;
use crate::people::{ClientCertificate, ConnectionLogin, People, User};
use crate::rates::Rates;
use crate::reach::{self, Asker, OwnAddresses};
use crate::tls::site_certificates::SiteCertificates;
use larder_lists::Subject;
use larder_lists::countries::{Countries, Country};
use larder_rules::{Matched, Slots};
use larder_wire::reading::Reading;
use larder_wire::{Fault, Fields, Host, Method, RequestHead, Scheme, Target, Url};
use std::cell::{Cell, OnceCell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

/// The paths of login pages.
pub(super) const LOGIN_PATHS: &str = "/.larder/";

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
    /// The address that the client has connected to, where the kernel brought the connection here instead.
    pub destination: Option<SocketAddr>,
    /// Whether the connection is TLS that a site passes through.
    pub is_passed_through: bool,
    /// The client.
    pub client: IpAddr,
    /// The certificate that the client has shown to the listener.
    pub certificate: Option<&'a ClientCertificate>,
    /// The name for which the client's TLS asked.
    pub sni: Option<&'a Host>,
    /// Whether the listener asks for other certificates since a reload than when it accepted the connection.
    pub asks_for_other_certificates: bool,
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
    /// Lists of hosts and URLs that rules name, and countries of addresses; `None` where a configuration is asked without its server.
    pub lists: Option<&'a ListSet>,
    /// The decisions of hooks that the worker remembers.
    pub hook_lines: Option<&'a HookLines>,
    /// The listener's address in the configuration; `None` for that of a `larder run`.
    pub listener: Option<SocketAddr>,
    /// Open challenges of the authority of certificates; `None` where a configuration is asked without its server.
    pub challenges: Option<&'a SiteCertificates>,
    /// Requests counted by rules with a rate; `None` where they are not counted.
    pub rates: Option<&'a Rates>,
    /// Logins and helpers; `None` where a configuration is asked without its server, which then lets all through.
    pub people: Option<PeopleScene<'a>>,
    /// The user by whom a question is supposed to be asked, as each login knows them; inside a tunnel that of the CONNECT. Empty where
    /// nobody has logged in, and for requests that came.
    pub supposed: &'a [Arc<User>],
}

/// Which side asks for a credential (RFC 9110 sections 11.6 and 11.7).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    /// The proxy: 407, `Proxy-Authenticate`, `Proxy-Authorization`.
    Proxy,
    /// The server: 401, `WWW-Authenticate`, `Authorization`.
    Server,
}

impl Asks {
    pub(super) fn field(self) -> &'static str {
        match self {
            Asks::Proxy => "Proxy-Authorization",
            Asks::Server => "Authorization",
        }
    }
}

/// Logins and helpers, and the facts of a connection that they need.
#[derive(Clone, Copy)]
pub struct PeopleScene<'a> {
    /// The logins and helpers of the server.
    pub people: &'a People,
    /// The user of the opened tunnel through which the request came.
    pub user: Option<&'a Arc<User>>,
    /// The login of the connection.
    pub connection: &'a OnceCell<Arc<ConnectionLogin>>,
    /// The client's address and port.
    pub client: SocketAddr,
    /// The listener's address.
    pub listener: SocketAddr,
    /// The fields with the cookies of logins.
    pub fields: &'a Fields,
}

impl<'a> Scene<'a> {
    /// A request in clear text by this machine at a listener of a configuration, without a server: nothing is handed out, nobody
    /// has logged in, nothing is counted, and no hook is asked.
    pub fn at(listen: &'a Listen, (config, own, found): (&'a Config, &'a OwnAddresses, &'a FoundFacts)) -> Scene<'a> {
        Scene {
            config,
            origin: listen.origin.as_ref(),
            forwards: listen.forwarding().beside(&config.sites),
            mirroring: listen.mirroring().beside(&config.sites),
            mirror_hosts: &listen.mirror_hosts,
            asker: Asker::at(listen),
            own,
            inside: None,
            destination: None,
            is_passed_through: false,
            client: IpAddr::from([127, 0, 0, 1]),
            certificate: None,
            sni: None,
            asks_for_other_certificates: false,
            scheme: Scheme::Http,
            via_name: "larder",
            found,
            for_run: false,
            handed_out: None,
            credentials: None,
            mounts: None,
            lists: None,
            hook_lines: None,
            listener: Some(listen.address),
            challenges: None,
            rates: None,
            people: None,
            supposed: &[],
        }
    }
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
    /// Whether the path is one of a login page.
    IsLoginPath,
    /// The whole request, by hooks: their verdict holds for the same fields and the same path, where [`FactsRead::hooks`] says so.
    ByHooks,
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
    slots: Cell<Slots>,
    minute: Cell<Option<i64>>,
    matched: RefCell<Matched>,
    until: Cell<Option<Instant>>,
    users: RefCell<Vec<Arc<User>>>,
    hooks: RefCell<Option<HooksRead>>,
}

/// The facts that a verdict depended on.
#[derive(Clone)]
pub struct FactsRead {
    facts: FactSet,
    fields: FieldNames,
    /// The slots of the table of rules that were read.
    pub(super) slots: Slots,
    /// The time that the table of rules was told, in minutes since 1970.
    pub(super) minute: Option<i64>,
    /// The rules of the table that hold.
    pub(super) matched: Matched,
    /// Until when they hold, where somebody has logged in.
    pub(super) until: Option<Instant>,
    /// Those who have logged in; more than one where rules require another login than the one that counts here.
    pub(super) users: Vec<Arc<User>>,
    /// The hooks on which it depended, where all of it is the same for each request with the same fields and path.
    pub(super) hooks: Option<HooksRead>,
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
    /// Of the lists that rules name, and of countries.
    pub(super) lists: u64,
    /// Of what is known of people.
    pub(super) people: u64,
    /// Ends of sessions of login pages.
    pub(super) sessions_ended: u64,
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

impl<'a> Facts<'a> {
    /// Nothing was read yet.
    pub fn of(scene: Scene<'a>, request: &'a RequestHead) -> Facts<'a> {
        let (url, fault) = match request.url(scene.scheme) {
            Ok(url) => (Some(url), None),
            Err(fault) => (None, Some(fault)),
        };
        Facts {
            scene,
            request,
            url,
            fault,
            read: Cell::default(),
            fields: Cell::default(),
            until: Cell::default(),
            users: RefCell::default(),
            hooks: RefCell::default(),
            slots: Cell::default(),
            minute: Cell::default(),
            matched: RefCell::default(),
        }
    }

    fn note(&self, fact: Fact) {
        self.read.set(self.read.get().with(fact));
    }

    /// The facts that were read, of values of these editions.
    pub(super) fn read(&self, editions: Editions) -> FactsRead {
        FactsRead {
            facts: self.read.get(),
            fields: self.fields.get(),
            until: self.until.get(),
            users: self.users.borrow().clone(),
            hooks: self.hooks.borrow().clone(),
            slots: self.slots.get(),
            minute: self.minute.get(),
            matched: self.matched.borrow().clone(),
            editions,
        }
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

    /// Whether the connection is TLS that a site passes through.
    pub(super) fn is_passed_through(&self) -> bool {
        self.scene.is_passed_through
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

    /// The certificate that the client has shown to the listener.
    pub(super) fn certificate(&self) -> Option<&'a ClientCertificate> {
        self.scene.certificate
    }

    /// The name for which the client's TLS asked.
    pub(super) fn sni(&self) -> Option<&'a Host> {
        self.scene.sni
    }

    /// Whether the connection was accepted under other demands of certificates than those that are in force.
    pub(super) fn asks_for_other_certificates(&self) -> bool {
        self.scene.asks_for_other_certificates
    }

    /// The user by that certificate.
    pub(super) fn user_by_certificate(&self) -> Option<Arc<User>> {
        self.scene.certificate.and_then(ClientCertificate::user).map(Arc::clone)
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

    /// The address that the client has connected to, where the kernel brought the connection here instead. No memo holds for another such
    /// connection.
    pub(super) fn destination(&self) -> Option<SocketAddr> {
        if self.scene.destination.is_some() {
            self.note(Fact::Path);
        }
        self.scene.destination
    }

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

    /// Whether a site of the configuration serves the URL, or the listener serves one site alone.
    pub(super) fn is_of_site(&self) -> bool {
        self.listener_origin().is_some() || matches!(self.find_site(), Ok(Some(_)))
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

    /// The whole request, for hooks: whatever they look at, no memo of the verdict holds for a request with another path or other
    /// fields. Decisions that are remembered have a memo of their own.
    pub(super) fn for_hooks(&self) -> Option<(Scene<'a>, &'a RequestHead, &Url)> {
        self.note(Fact::ByHooks);
        Some((self.scene, self.request, self.url.as_ref()?))
    }

    /// Notes that the verdict holds for each request with these fields and this path, for as long as these hooks decide the same.
    pub(super) fn note_hooks(&self, read: HooksRead) {
        self.hooks.replace(Some(read));
    }

    /// The whole CONNECT, for hooks.
    pub(super) fn for_hooks_of_connect(&self) -> (Scene<'a>, &'a RequestHead) {
        self.note(Fact::Path);
        (self.scene, self.request)
    }

    /// Whether the form of the host (an address, `localhost`) is out of reach for the client. That is refused before the lookup,
    /// because a response that a client of this machine had stored is not for clients elsewhere. The addresses of a name are
    /// checked when it is connected to (`reach`).
    pub(super) fn is_out_of_reach(&self, host: &Host, port: u16) -> bool {
        reach::refuses_form(self.asker(), &self.config().access.destinations, self.own_addresses(), host, port)
    }

    /// Logins and helpers, where they count: a `larder run` is its user's own.
    pub(super) fn people(&self) -> Option<PeopleScene<'a>> {
        self.scene.people.filter(|_| !self.scene.for_run)
    }

    /// The user by whom a question is supposed to be asked, as each login knows them.
    pub(super) fn supposed(&self) -> &'a [Arc<User>] {
        if self.scene.for_run { &[] } else { self.scene.supposed }
    }

    /// The facts that were found out because an earlier verdict needed them.
    pub(super) fn found(&self) -> &'a FoundFacts {
        self.scene.found
    }

    /// The whole request, for helpers. No memo of the verdict holds for another request.
    pub(super) fn whole(&self) -> &'a RequestHead {
        self.note(Fact::Path);
        self.request
    }

    /// The URL, for helpers. No memo of the verdict holds for another request.
    pub(super) fn whole_url(&self) -> Option<&Url> {
        self.note(Fact::Path);
        self.url.as_ref()
    }

    /// Whether another proxy has passed the request on: the connection is that proxy's, and not its client's alone. A connection without an
    /// address may be anybody's, and most often is such a proxy's.
    pub(super) fn is_passed_on(&self) -> bool {
        !has_address(self.client()) || ["Via", "Forwarded", "X-Forwarded-For"].iter().any(|name| self.has_field(name))
    }

    /// Whether the list of this name covers the URL; a list that there is not covers nothing.
    pub(super) fn in_list(&self, name: &str, subject: Subject<'_>) -> bool {
        self.scene.lists.is_some_and(|lists| lists.covers(name, subject))
    }

    /// The countries of addresses; `None` where no file of them is configured.
    pub(super) fn countries(&self) -> Option<&Arc<Countries>> {
        self.scene.lists?.countries()
    }

    /// The country of the client's address; `None` where no file of countries is configured. A memo compares the address and the edition.
    pub(super) fn country(&self) -> Option<Country> {
        self.scene.lists?.country_of(self.scene.client)
    }

    /// Whether the path of the URL counts for the list of this name.
    pub(super) fn list_asks_path(&self, name: &str) -> bool {
        self.scene.lists.is_some_and(|lists| lists.asks_path(name))
    }

    /// The list of this name and its entry that covers the URL, in words.
    pub(super) fn cite_list(&self, name: &str, subject: Subject<'_>) -> Option<String> {
        self.scene.lists?.cite(name, subject)
    }

    /// Whether the path is one of those that login pages have.
    pub(super) fn has_login_path(&self) -> bool {
        self.note(Fact::IsLoginPath);
        self.url.as_ref().is_some_and(|url| url.path.starts_with(LOGIN_PATHS))
    }

    /// Another URL takes the place of the request's own.
    pub(super) fn replace_url(&mut self, url: Url) {
        self.note(Fact::Path);
        self.url = Some(url);
    }

    /// The URL that hooks have chosen takes the place of the request's own.
    pub(super) fn replace_url_by_hooks(&mut self, url: Url) {
        self.note(Fact::ByHooks);
        self.url = Some(url);
    }

    // Facts for the table of rules, whose engine notes what it reads by slots.

    /// The judgement depends on the facts of these slots of the table.
    pub(super) fn note_slots(&self, slots: Slots) {
        self.slots.set(self.slots.get().and(slots));
    }

    /// These rules of the table hold.
    pub(super) fn note_matched(&self, matched: &Matched) {
        self.matched.replace(matched.clone());
    }

    /// Whether this rule of the table holds for the URL that the client asked for.
    pub(super) fn has_matched(&self, rule: u16) -> bool {
        self.matched.borrow().iter().any(|number| number == rule)
    }

    /// Whether the URL has the scheme, host and port that the client's own had.
    pub(super) fn asks_for_own_host(&self) -> bool {
        let own = self.request.url(self.scene.scheme).ok();
        own.zip(self.url.as_ref())
            .is_some_and(|(own, url)| (own.scheme, &own.host, own.port) == (url.scheme, &url.host, url.port))
    }

    /// The URL that the request asks for.
    pub(super) fn url(&self) -> Option<&Url> {
        let _ = self.site();
        self.url.as_ref()
    }

    /// The fields of the request.
    pub(super) fn fields(&self) -> &'a Fields {
        &self.request.fields
    }

    /// The listener's address in the configuration.
    pub(super) fn listener(&self) -> Option<SocketAddr> {
        self.scene.listener
    }

    /// Minutes since 1970: one reading of the clock for the whole judgement, so that a memo has the minute that was judged by.
    pub(super) fn minute(&self) -> i64 {
        let minute = self.minute.get().unwrap_or_else(clock::minute);
        self.minute.set(Some(minute));
        minute
    }

    /// Requests counted by rules with a rate.
    pub(super) fn rates(&self) -> Option<&'a Rates> {
        self.scene.rates
    }

    /// The parts of a key that effects make. Without a server nothing is stored, and without a secret nothing can be.
    pub(super) fn key_of_effects(&self, effects: &RequestEffects) -> Option<Vec<u8>> {
        let hash = |value: &[u8]| match self.scene.credentials {
            Some(secret) => secret.hash(value),
            None => Some("of-the-server".into()),
        };
        effects.key(hash)
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

mod challenge;
mod field_names;
mod logins;

pub(super) use logins::SESSION_FIELD;

#[cfg(test)]
mod tests;
