//! The explanation of a request that might come, against the store as it is now. It changes nothing, except that a
//! response on disk may be loaded into memory.

use super::decision::{Decision, OfVariant, OriginKind, RuleKind, Settled, by_order, made_of};
use super::past::{Places, lifetime_by};
use super::text::verdict;
use super::unasked::{hooks_of, hooks_of_connect, without_hooks};
use super::{Explanation, Summary, Tense};
use crate::cache_settings;
use crate::client::ShownAddress;
use crate::clock;
use crate::config::next_hop::{DIRECT, HopsByRule};
use crate::config::{CertificateDemand, Config, Listen, Loaded};
use crate::credential_secret::CredentialSecret;
use crate::exchange::{deliver, lookup, relay, why};
use crate::fetch::{by_table, neighbours_of};
use crate::handed_out::HandedOut;
use crate::lists::{self, ListSet};
use crate::mount::Mounts;
use crate::page::Page;
use crate::people::{self, ClientCertificate, User};
use crate::reach::OwnAddresses;
use crate::record::{Cause, ParentOrder, ProxyHeaderNote, Rule, Variant};
use crate::rehearse::{self, Form};
use crate::request_body::RequestBody;
use crate::rules::{Ask, FoundFacts, Route, Scene, TunnelFor, Verdict, store_rules};
use larder_cache::cache::{Cache, Joins, Peek};
use larder_cache::policy::{self, FreshnessFacts, NotStored, Storable, Times, Usable, ValidateWhy};
use larder_wire::date::Stamp;
use larder_wire::{Host, Method, RequestHead, ResponseHead, Scheme, Url};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// A request that nobody sent.
#[derive(Clone, Debug)]
pub struct Asking {
    /// An absolute URL.
    pub url: String,
    /// A method.
    pub method: String,
    /// Fields, as `Name: value`.
    pub fields: Vec<String>,
    /// The client that would ask.
    pub client: IpAddr,
    /// The user who would have logged in, wherever a login counts.
    pub user: Option<String>,
    /// Groups of that user, beside those in the files of logins.
    pub groups: Vec<String>,
    /// Names in the certificate that the client would show to the listener.
    pub certificate: Vec<String>,
    /// The name for which its TLS would ask; `None`: the host of the URL.
    pub sni: Option<String>,
    /// The listener; `None`: the one that the URL fits, or the first.
    pub listener: Option<SocketAddr>,
    /// Fields of the answer that the origin is assumed to give, or its status; `None`: no answer is assumed.
    pub answer: Option<Vec<String>>,
    /// Whether it would come by the own listener of a `larder run`.
    pub of_run: bool,
}

impl Default for Asking {
    fn default() -> Asking {
        let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Asking {
            url: String::new(),
            method: "GET".to_owned(),
            fields: Vec::new(),
            client,
            user: None,
            groups: Vec::new(),
            certificate: Vec::new(),
            sni: None,
            listener: None,
            answer: None,
            of_run: false,
        }
    }
}

/// Explains a request by a configuration alone, with nothing stored. `mounts` has the hooks that were loaded to be asked for their
/// filters.
pub async fn rehearse(asking: &Asking, loaded: &Loaded, mounts: Option<&Mounts>) -> Result<Explanation, String> {
    let cache = Cache::over(cache_settings::cache_settings(&loaded.config, 0), None);
    let lists = Arc::new(lists::for_rehearsal(&loaded.config).0);
    let places = Places {
        config: Arc::new(loaded.config.clone()),
        edition: 0,
        sources: loaded.sources.clone(),
        lists: Some(Arc::clone(&lists)),
    };
    ahead(asking, &cache, OfServer { mounts, lists: Some(&lists), ..OfServer::default() }, &places).await
}

/// The facts that only a running server has.
#[derive(Clone, Copy, Default)]
pub struct OfServer<'a> {
    /// Its name in `Via`.
    pub via_name: Option<&'a str>,
    /// The URLs that redirections have just handed out.
    pub handed_out: Option<&'a HandedOut>,
    /// The secret for keys by credential.
    pub credentials: Option<&'a CredentialSecret>,
    /// The applications and hooks that it runs.
    pub mounts: Option<&'a Mounts>,
    /// The lists that rules name.
    pub lists: Option<&'a ListSet>,
}

/// Explains what would become of a request now. `Err`: what is wrong with the question.
pub async fn ahead(
    asking: &Asking,
    cache: &Arc<Cache>,
    of_server: OfServer<'_>,
    places: &Places,
) -> Result<Explanation, String> {
    // A tunnel is asked for by host and port alone.
    let is_authority = asking.method == "CONNECT" && !asking.url.contains("://");
    let url =
        if is_authority { Url::parse(&format!("https://{}/", asking.url)) } else { Url::parse_asked(&asking.url) };
    let url = url.ok_or_else(|| format!("\"{}\" is not an http or https URL: write http://host/path", asking.url))?;
    let listen = listener(asking, &url, places)?;
    let answer = asking.answer.as_deref().map(rehearse::response).transpose()?;
    let supposed = match &asking.user {
        Some(user) => people::suppose(&places.config, user, &asking.groups)?,
        None => Vec::new(),
    };
    let (address, place) = match asking.of_run {
        true => ("larder run".to_owned(), "each run has a listener of its own".to_owned()),
        false => (listen.name(), places.listener(listen.address)),
    };
    let mut steps = vec![Decision::Listener { address, place }];
    if listen.transparent.is_on() {
        let text = "a transparent listener: the host is taken to lead to the address that the client had connected to; one that leads elsewhere gets that address, and nothing is stored";
        steps.push(Decision::StoreRule { text: text.to_owned() });
    }
    steps.extend(places.country(asking.client));
    let certificate = supposed_certificate(asking, listen, &mut steps)?;
    let sni = supposed_sni(asking, &url)?;
    let is_site = listen.origin.is_some() || places.config.sites.find(&url).is_some();
    let opened = url.scheme == Scheme::Https && !is_site;
    let tunnel = (url.host.clone(), url.port);
    let (own, found) = (OwnAddresses::of(&places.config), FoundFacts::default());
    // Hooks are not asked for requests that nobody sent.
    let scene = Scene {
        client: asking.client,
        scheme: if listen.is_tls() { Scheme::Https } else { Scheme::Http },
        via_name: of_server.via_name.unwrap_or("larder"),
        for_run: asking.of_run,
        handed_out: of_server.handed_out,
        credentials: of_server.credentials,
        lists: of_server.lists,
        listener: (!asking.of_run).then_some(listen.address),
        supposed: &supposed,
        certificate: certificate.as_ref(),
        // Without an opened tunnel the handshake is that with the listener.
        sni: sni.as_ref().filter(|_| listen.is_tls() && !opened),
        ..Scene::at(listen, (&places.config, &own, &found))
    };
    let at_tunnel = match opened {
        true => at_tunnel((&scene, of_server.mounts), &tunnel, listen, &mut steps)?,
        false => AtTunnel::GoesOn { user: None },
    };
    let settled = match at_tunnel {
        AtTunnel::Ends(end) => end,
        AtTunnel::GoesOn { user } => {
            let scheme = if opened { Scheme::Https } else { scene.scheme };
            // Only an absolute target can have another scheme than its connection.
            let is_path = (listen.origin.is_some() || opened) && scheme == url.scheme;
            let form = if is_path { Form::Origin } else { Form::Absolute };
            let request = rehearse::request(&asking.method, &url, form, &asking.fields)?;
            // Inside a tunnel the user of the CONNECT counts.
            let supposed = if opened { user.as_slice() } else { scene.supposed };
            let sni = if opened { sni.as_ref() } else { scene.sni };
            let scene = Scene { inside: opened.then_some(&tunnel), scheme, supposed, sni, ..scene };
            judge(&scene, &request, listen, (cache, of_server.mounts), (places, answer.as_ref()), &mut steps).await
        }
    };
    Ok(explanation(asking, &url, steps, settled))
}

/// The name for which the client's TLS is supposed to ask: the one that is said, else the host of the URL, as browsers do.
fn supposed_sni(asking: &Asking, url: &Url) -> Result<Option<Host>, String> {
    match &asking.sni {
        Some(name) => Host::parse(name).map(Some).ok_or_else(|| format!("--sni: {name:?} is no host")),
        None => Ok(Some(url.host.clone()).filter(|host| host.ip().is_none())),
    }
}

/// The certificate that the client is supposed to show.
fn supposed_certificate(
    asking: &Asking,
    listen: &Listen,
    steps: &mut Vec<Decision>,
) -> Result<Option<ClientCertificate>, String> {
    if !asking.certificate.is_empty() && listen.clients.demand == CertificateDemand::None {
        return Err(format!(
            "the listener {} ({}) asks for no certificate: leave --certificate out, or name another one with --at",
            listen.name(),
            listen.place
        ));
    }
    let certificate = ClientCertificate::suppose(&asking.certificate, listen.clients.user);
    match (&certificate, listen.clients.demand) {
        (Some(_), _) => {
            let text = format!("of {}, taken to be shown", asking.certificate.join(", "));
            steps.push(Decision::Certificate { text });
        }
        (None, CertificateDemand::Require) => {
            let text = "demanded here, and the handshake fails without one: --certificate NAME says whose".to_owned();
            steps.push(Decision::Certificate { text });
        }
        (None, _) => {}
    }
    Ok(certificate)
}

/// The fate of a tunnel.
enum AtTunnel {
    /// It stays closed, or is refused.
    Ends(End),
    /// It is intercepted, and the requests inside are judged.
    GoesOn { user: Option<Arc<User>> },
}

/// A client asks for https through a proxy by CONNECT.
fn at_tunnel(
    (scene, mounts): (&Scene<'_>, Option<&Mounts>),
    (host, port): &(Host, u16),
    listen: &Listen,
    steps: &mut Vec<Decision>,
) -> Result<AtTunnel, String> {
    let connect = rehearse::connect(host, *port)?;
    let is_passed_through = listen.pass_through && scene.config.sites.passed_through(host).is_some();
    let scene = &Scene { is_passed_through, ..*scene };
    let (user, hops) = match scene.judge(&connect) {
        Verdict::Answer(page) => return Ok(AtTunnel::Ends(refused(steps, &page))),
        Verdict::Tunnel(.., tunnel) => {
            rules_of(&tunnel, steps);
            steps.extend(supposed_of(tunnel.user.as_ref(), scene));
            if let Some(origin) = &tunnel.origin {
                let text = format!("a tunnel to {}:{}: the site passes TLS through unopened", origin.host, origin.port);
                return Ok(AtTunnel::Ends(own(steps, &text, "tunnel")));
            }
            helpers_of(Rule::Forward, &connect, scene, steps);
            (tunnel.user, tunnel.reach.hops)
        }
        _ => (None, None),
    };
    if let Some(page) = hooks_of_connect(host, &connect, (scene, mounts), steps) {
        return Ok(AtTunnel::Ends(refused(steps, &page)));
    }
    let passed = || scene.config.intercept.pass.iter().any(|pattern| pattern.matches(host));
    let closed = match listen.intercept {
        false => {
            Some("a tunnel, which stays closed here (`intercept = true` would open it; `larder run` opens its own)")
        }
        true if passed() => Some("a tunnel, which stays closed by intercept.pass"),
        true => None,
    };
    if let Some(text) = closed {
        let end = own(steps, text, "tunnel");
        let url = Url { scheme: Scheme::Https, host: host.clone(), port: *port, path: "/".into() };
        steps.extend(way_of(&url, hops.as_deref(), Vec::new(), scene.config));
        return Ok(AtTunnel::Ends(end));
    }
    let text = format!("{}; it is opened with a certificate of the local CA", tunnel_words(host, *port));
    steps.push(Decision::Rule { rule: RuleKind::Tunnel, place: String::new(), text });
    Ok(AtTunnel::GoesOn { user })
}

/// Those through whom the origin would be asked, where parents or siblings are meant at all.
fn way_of(url: &Url, by_rule: Option<&HopsByRule>, asked: Vec<String>, config: &Config) -> Option<Decision> {
    if !config.forward_parents.is_any && asked.is_empty() {
        return None;
    }
    let hops = config.next_hops(url, by_rule);
    let by = hops.as_ref().and_then(|hops| by_order(ParentOrder::By(hops.order)));
    Some(Decision::Way {
        taken: None,
        hops: hops.map_or_else(|| vec![DIRECT.to_owned()], |hops| hops.words(config)),
        asked,
        by: by.map(str::to_owned),
        failed: Vec::new(),
        left_out: Vec::new(),
    })
}

/// The rules of the table that hold for a tunnel.
fn rules_of(tunnel: &TunnelFor, steps: &mut Vec<Decision>) {
    let words = tunnel.rules.iter().flat_map(|rules| rules.words.iter());
    steps.extend(words.map(|text| Decision::StoreRule { text: text.to_string() }));
}

fn listener<'a>(asking: &Asking, url: &Url, places: &'a Places) -> Result<&'a Listen, String> {
    let listens = &places.config.listens;
    let found = match asking.listener {
        Some(wanted) => listens.iter().find(|listen| listen.address == wanted),
        None => fitting(url, &places.config),
    };
    found.ok_or_else(|| {
        let all: Vec<String> = listens.iter().map(Listen::name).collect();
        format!("there is no such listener: there are {}", all.join(", "))
    })
}

/// The listener that a client with this URL would use: for a site the one at its port, or one with TLS for https; for
/// all else the first listener that is a proxy.
fn fitting<'a>(url: &Url, config: &'a Config) -> Option<&'a Listen> {
    if url.scheme == Scheme::Https && config.sites.passed_through(&url.host).is_some() {
        return config.listens.iter().find(|listen| listen.pass_through);
    }
    let speaks = |listen: &&Listen| listen.is_tls() == (url.scheme == Scheme::Https);
    let is_served = |listen: &&Listen| listen.origin.is_some() || config.sites.find(url).is_some();
    let fits = || config.listens.iter().filter(speaks).filter(is_served);
    let at_port = fits().find(|listen| listen.address.port() == url.port);
    let forwards = || config.listens.iter().find(|listen| listen.forwarding().beside(&config.sites));
    at_port.or_else(|| fits().find(|_| url.scheme == Scheme::Https)).or_else(forwards).or(config.listens.first())
}

/// How it would end.
struct End {
    outcome: &'static str,
    cause: Option<Cause>,
    /// The status of an answer of Larder's own making.
    status: Option<u16>,
}

/// Larder answers by itself.
fn refused(steps: &mut Vec<Decision>, page: &Page) -> End {
    let user = page.people.as_ref().and_then(|people| people.user.as_ref());
    steps.extend(user.map(|user| Decision::User { text: format!("{user}, taken to have logged in") }));
    let by_table = page.by_rule.iter().flat_map(|note| note.words.iter());
    steps.extend(by_table.map(|text| Decision::StoreRule { text: text.to_string() }));
    let text = format!("{} {}: {} {}", page.status, page.word, page.what, page.remedy);
    End { status: Some(page.status), ..own(steps, &text, "own") }
}

fn own(steps: &mut Vec<Decision>, text: &str, outcome: &'static str) -> End {
    steps.push(Decision::Rule { rule: RuleKind::Own, place: String::new(), text: text.to_owned() });
    End { outcome, cause: None, status: None }
}

async fn judge(
    scene: &Scene<'_>,
    request: &RequestHead,
    listen: &Listen,
    (cache, mounts): (&Arc<Cache>, Option<&Mounts>),
    (places, answer): (&Places, Option<&ResponseHead>),
    steps: &mut Vec<Decision>,
) -> End {
    match scene.judge(request) {
        Verdict::Allow(ask) => {
            steps.push(places.rule(ask.rule, Some(listen.address), places.edition));
            steps.extend(supposed_of(ask.user(), scene));
            steps.extend(login_of(&ask, scene));
            helpers_of(ask.rule, request, scene, steps);
            icap_of(&ask, request, &places.config, steps);
            let end = store(&ask, request, (cache, mounts), steps).await;
            if ask.asker().is_some() && end.cause.is_some() {
                let asked = match end.outcome {
                    // A validation is for the origin.
                    "miss" if !ask.passes() => neighbours_of(&ask, request, scene.client, &places.config),
                    _ => Vec::new(),
                };
                steps.extend(way_of(&ask.url, ask.hops(), asked, &places.config));
            }
            if let (Some(answer), Some(_)) = (answer, end.cause) {
                let (decision, rule) = foretold(answer, request, &ask, scene);
                steps.push(decision);
                steps.extend(rule.as_deref().map(lifetime_by));
            }
            end
        }
        Verdict::Mirror(mirrored) => {
            steps.push(places.rule(mirrored.ask.rule, Some(listen.address), places.edition));
            steps.extend(supposed_of(mirrored.ask.user(), scene));
            steps.extend(login_of(&mirrored.ask, scene));
            helpers_of(mirrored.ask.rule, request, scene, steps);
            icap_of(&mirrored.ask, request, &places.config, steps);
            store(&mirrored.ask, request, (cache, mounts), steps).await
        }
        Verdict::Answer(page) => refused(steps, &page),
        Verdict::Hooked(answer) => refused(steps, &answer.page),
        Verdict::Purge(_) => own(steps, "what is stored is forgotten, by access.purge", "own"),
        Verdict::Manager(_) => own(steps, "a page of the cache manager, for clients of this machine", "own"),
        Verdict::LogIn(_) => own(steps, "the form of a login page is read", "own"),
        Verdict::Echo => own(steps, "the request itself comes back (TRACE)", "own"),
        Verdict::Tunnel(host, port, tunnel) => {
            rules_of(&tunnel, steps);
            steps.extend(supposed_of(tunnel.user.as_ref(), scene));
            helpers_of(Rule::Forward, request, scene, steps);
            if let Some(page) = hooks_of_connect(&host, request, (scene, mounts), steps) {
                return refused(steps, &page);
            }
            let end = own(steps, &tunnel_words(&host, port), "tunnel");
            let url = Url { scheme: Scheme::Https, host, port, path: "/".into() };
            steps.extend(way_of(&url, tunnel.reach.hops.as_deref(), Vec::new(), &places.config));
            end
        }
        Verdict::Needs(..) => {
            own(steps, "the rules first find out a fact about the request, which only the server does", "own")
        }
    }
}

/// The user who is taken to have logged in, or that nobody is asked to.
fn supposed_of(user: Option<&Arc<User>>, scene: &Scene<'_>) -> Option<Decision> {
    let text = match user {
        None if scene.supposed.is_empty() => return None,
        None => "no login counts here, so rules see no user".to_owned(),
        Some(user) => {
            let groups = if user.groups.is_empty() {
                "in no group".to_owned()
            } else {
                format!("of {}", user.groups.join(", "))
            };
            match &*user.login {
                "" => format!("{}, {groups}, by the certificate", user.name),
                login => format!("{}, {groups}, taken to have logged in by [[login]] {login}", user.name),
            }
        }
    };
    Some(Decision::User { text })
}

/// The helpers that would be asked about a real request.
fn helpers_of(rule: Rule, request: &RequestHead, scene: &Scene<'_>, steps: &mut Vec<Decision>) {
    let (access, forward) = (&scene.config.access, &scene.config.forward_helpers);
    let (external, url_rewrite, store_id) = match rule {
        _ if scene.for_run => return,
        Rule::Site(number) => match scene.config.sites.get(usize::from(number)) {
            Some(site) => (&site.external, &*site.url_rewrite, &*site.store_id),
            None => return,
        },
        Rule::Forward | Rule::Tunnel => (&access.external, &*forward.url_rewrite, &*forward.store_id),
        Rule::Mirror => (&access.external, "", ""),
        Rule::Listener | Rule::Question => return,
    };
    // Only what is read has a key.
    let store_id = if matches!(request.method, Method::Get | Method::Head) { store_id } else { "" };
    let names = external.iter().map(String::as_str).chain([url_rewrite, store_id]).filter(|name| !name.is_empty());
    let helpers = names.filter_map(|name| scene.config.helpers.iter().find(|helper| helper.name == name));
    steps.extend(helpers.map(|helper| Decision::Helper {
        helper: helper.name.clone(),
        helper_kind: helper.kind.as_str().to_owned(),
        helper_did: None,
        helper_micros: None,
        helper_remembered: false,
        helper_text: String::new(),
    }));
}

/// The login that a real request would have to pass; nobody is asked here.
fn login_of(ask: &Ask, scene: &Scene<'_>) -> Option<Decision> {
    let config = scene.config;
    let login = match ask.rule {
        _ if scene.for_run => return None,
        Rule::Site(number) => config.sites.get(usize::from(number)).map(|site| &site.login)?,
        Rule::Forward | Rule::Tunnel | Rule::Mirror => &config.access.login,
        Rule::Listener | Rule::Question => return None,
    };
    let known = ask.user().is_some();
    let login = (!known && !login.is_empty()).then(|| format!("anybody who logs in by [[login]] {login}"));
    // Nobody logs in here, so a user is one whom a rule requires.
    let by_rule = ask.people.as_ref().filter(|_| !known).map(|_| "anybody who logs in as a rule wants it".to_owned());
    let words: Vec<String> = login.into_iter().chain(by_rule).collect();
    let text = format!("{}; not asked here", words.join(", "));
    (!words.is_empty()).then_some(Decision::User { text })
}

/// Whether the answer that the origin is assumed to give would be stored, and the store rule that says for how long.
fn foretold(answer: &ResponseHead, request: &RequestHead, ask: &Ask, scene: &Scene<'_>) -> (Decision, Option<String>) {
    let config = scene.config;
    let settings = cache_settings::policy_settings(&config.policy);
    let settings = match ask.route {
        Route::Forward(_) if scene.for_run => cache_settings::run_policy(config, settings),
        Route::Forward(_) | Route::Destination(..) => settings,
        Route::Site { .. } => cache_settings::site_policy(settings),
    };
    let storing = ask.by_table.as_ref().and_then(|by_table| by_table.storing.as_ref());
    let mut answer = answer.clone();
    storing.iter().for_each(|storing| by_table::apply(storing, &mut answer, request.fields.contains("Authorization")));
    let answer = &answer;
    let found = store_rules(config, &ask.route, scene.for_run).lifetime(&ask.url, request, answer);
    let by_table = storing.and_then(|storing| by_table::policy(storing, &settings));
    let found = found.filter(|_| by_table.is_none());
    let rule = found.map(|(rule, _)| rule.to_string());
    let by_rule = policy::Settings { rule: found.map(|(_, terms)| terms), ..settings };
    let settings = by_table.unwrap_or(by_rule);
    let now = clock::now();
    let decision = match policy::storable(request, answer, Times { requested: now, received: now }, &settings) {
        Storable::No(why) => Decision::Stored {
            stored: false,
            why: Some(why.as_str().to_owned()),
            numbers: None,
            on_disk: None,
            disk_is_behind: false,
            vary: Vec::new(),
        },
        Storable::Yes(terms) => Decision::Stored {
            stored: true,
            why: None,
            numbers: Some(FreshnessFacts::of(&terms, now).into()),
            on_disk: None,
            disk_is_behind: false,
            vary: terms.vary.names().map(str::to_owned).collect(),
        },
    };
    (decision, rule)
}

fn tunnel_words(host: &Host, port: u16) -> String {
    format!("a tunnel to {host}:{port}, by access.clients and access.connect_ports")
}

/// The services of ICAP that would be asked about the request and its answer, by host and method.
fn icap_of(ask: &Ask, request: &RequestHead, config: &Config, steps: &mut Vec<Decision>) {
    let meant = config.icaps.iter().filter(|icap| icap.is_for(&request.method, &ask.url.host));
    steps.extend(meant.map(|icap| Decision::Icap {
        icap: icap.name.clone(),
        icap_method: icap.stage.vector().as_str().to_owned(),
        icap_did: String::new(),
        icap_micros: None,
        icap_trouble: None,
    }));
}

async fn store(
    ask: &Ask,
    request: &RequestHead,
    (cache, mounts): (&Arc<Cache>, Option<&Mounts>),
    steps: &mut Vec<Decision>,
) -> End {
    let mut key = Vec::new();
    ask.key(cache, &mut key);
    let text = String::from_utf8_lossy(&key).into_owned();
    steps.push(Decision::Key { made: made_of(&text, &ask.url.to_string(), None), key: text });
    if let Some(page) = hooks_of(ask, request, mounts, steps) {
        return refused(steps, &page);
    }
    let by_table = ask.by_table.iter().flat_map(|by_table| by_table.note.words.iter());
    steps.extend(by_table.map(|text| Decision::StoreRule { text: text.to_string() }));
    let by_rule = ask.by_rule.iter().flat_map(|by_rule| by_rule.words());
    steps.extend(by_rule.map(|text| Decision::StoreRule { text }));
    let body = match RequestBody::of(request) {
        Ok(body) => body,
        Err(fault) => return own(steps, fault.detail, "own"),
    };
    if ask.passes() {
        return match relay::wants_stored_only(request) {
            true => only_if_cached(steps),
            false => to_origin(ask, relay::unasked(request), "relay", Revalidates::No, steps),
        };
    }
    let shorter = ask.as_looked_up(request);
    let request = shorter.as_ref().unwrap_or(request);
    let Some((asked, joins)) = lookup::wants(request, body) else {
        if relay::wants_stored_only(request) {
            return only_if_cached(steps);
        }
        return to_origin(ask, relay::unasked(request), "relay", Revalidates::No, steps);
    };
    steps.push(Decision::Directives { asked: asked.into() });
    let asked = ask.weigh(asked);
    let before = cache.peek(&key, request, clock::now());
    if before.may_be_on_disk {
        cache.take_up(&key).await;
    }
    let now = clock::now();
    let peek = cache.peek(&key, request, now);
    let (variants, more) = Variant::all_of(&peek, now);
    let variants = variants.iter().map(OfVariant::from).collect();
    steps.push(Decision::Variants { variants, more, taken_up: before.variants.is_empty() });
    let settings = &cache.settings().policy;
    let terms = peek.selected().and_then(|stored| stored.head.terms.as_ref());
    let is_apart = cache.gate().is_shut(now);
    let usable = terms.map(|terms| match policy::usable(terms, &asked, now, settings) {
        usable if !is_apart || matches!(usable, Usable::Validate(_)) => usable,
        _ => Usable::Validate(ValidateWhy::Apart),
    });
    let joins = if is_apart && joins == Joins::Yes { Joins::Apart } else { joins };
    if let (Some(terms), Some(usable)) = (terms, usable) {
        let numbers = FreshnessFacts::of(terms, now).into();
        steps.push(Decision::Freshness { numbers, usable: usable.as_str().to_owned() });
        steps.extend(terms.coded.map(Decision::coded_as));
    } else {
        steps.push(absent(&peek));
    }
    Weighing { ask, asked: &asked, joins, peek: &peek, usable, now, settings }.end(request, steps)
}

fn absent(peek: &Peek) -> Decision {
    Decision::Absent {
        fate: peek.fate.map(|(fate, _)| fate.as_str().to_owned()),
        since: peek.fate.map(|(_, at)| at.0),
        not_stored_before: peek.not_stored.map(|why| why.as_str().to_owned()),
    }
}

/// Whether the request would name a stored response, to validate it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Revalidates {
    Yes,
    No,
}

struct Weighing<'a> {
    ask: &'a Ask,
    asked: &'a policy::Asked,
    joins: Joins,
    peek: &'a Peek,
    usable: Option<Usable>,
    now: Stamp,
    settings: &'a policy::Settings,
}

impl Weighing<'_> {
    fn end(&self, request: &RequestHead, steps: &mut Vec<Decision>) -> End {
        let stored = self.peek.selected();
        let hit = |outcome| End { outcome, cause: None, status: None };
        match self.usable {
            Some(Usable::Fresh) if stored.is_some_and(|stored| stored.filling) => return hit("collapsed"),
            Some(Usable::Validate(_)) | None => {}
            Some(_) if self.lacks_bytes(request) => {
                return match self.asked.only_if_cached() {
                    true => only_if_cached(steps),
                    false => to_origin(self.ask, Cause::Partial, "hole", Revalidates::No, steps),
                };
            }
            Some(Usable::Fresh) => return hit("hit"),
            Some(Usable::Stale(_)) => return hit("hit-stale"),
            Some(Usable::Revalidate) => return hit("hit-revalidating"),
        }
        if self.asked.only_if_cached() {
            return only_if_cached(steps);
        }
        let for_one = self.peek.not_stored.is_some_and(|why| why != NotStored::Authorization);
        let apart = self.usable == Some(Usable::Validate(ValidateWhy::NoCache)) || for_one;
        if self.joins == Joins::Yes && self.peek.followed && !apart {
            steps.push(Decision::Followed { looks: 1 });
            return hit("collapsed");
        }
        let cause = match self.usable {
            Some(Usable::Validate(ValidateWhy::Apart)) => Cause::Apart,
            _ => why::of(self.peek, self.asked, self.now, self.settings),
        };
        let terms = stored.and_then(|stored| stored.head.terms.as_ref());
        let revalidates = match terms.is_some_and(|terms| terms.has_validator()) && self.joins != Joins::No {
            true => Revalidates::Yes,
            false => Revalidates::No,
        };
        let kind = if self.joins == Joins::No { "relay" } else { "whole" };
        to_origin(self.ask, cause, kind, revalidates, steps)
    }

    /// Whether bytes that the request needs are missing.
    fn lacks_bytes(&self, request: &RequestHead) -> bool {
        let stored = self.peek.selected().filter(|stored| !stored.filling);
        stored.is_some_and(|stored| {
            let needed = deliver::needed(request, &stored.head, stored.length);
            needed.iter().any(|range| !stored.has(range))
        })
    }
}

fn only_if_cached(steps: &mut Vec<Decision>) -> End {
    let text = "504 only-if-cached: the request wants a stored answer only, and none can be used";
    End { status: Some(504), ..own(steps, text, "own") }
}

fn to_origin(ask: &Ask, cause: Cause, kind: &str, revalidates: Revalidates, steps: &mut Vec<Decision>) -> End {
    steps.push(Decision::Upstream {
        cause: cause.as_str().to_owned(),
        about: cause.about().to_owned(),
        kind: kind.to_owned(),
        origin: Some(ask.origin().to_string()),
        origin_kind: OriginKind::of(&ask.origin().host),
        asks: Some(format!("{} of {}", ask.target(), ask.host())),
        reused: None,
        by_http2: false,
        proxy_header: ask.proxy_protocol().map(|version| ProxyHeaderNote { version, names_client: true }.to_string()),
        attempts: 0,
        conditional: revalidates == Revalidates::Yes,
        status: None,
        connected_micros: None,
        answered_micros: None,
        trouble: None,
        digest: None,
        parallel: None,
    });
    let outcome = if revalidates == Revalidates::Yes { "validate" } else { "miss" };
    End { outcome, cause: Some(cause), status: None }
}

fn explanation(asking: &Asking, url: &Url, mut steps: Vec<Decision>, end: End) -> Explanation {
    let cause = end.cause.map(|cause| cause.as_str().to_owned());
    steps.push(Decision::Answer(Settled {
        outcome: end.outcome.to_owned(),
        cause: cause.clone(),
        status: end.status,
        bytes: None,
        micros: None,
        complete: None,
    }));
    let request = Summary {
        id: String::new(),
        at_millis: u64::try_from(clock::wall().as_millis()).unwrap_or(u64::MAX),
        client: ShownAddress(asking.client).to_string(),
        method: asking.method.clone(),
        url: url.to_string(),
        host: url.host.to_string(),
        status: end.status.unwrap_or(0),
        bytes: 0,
        outcome: end.outcome.to_owned(),
        cause,
        not_stored: None,
        micros: 0,
        complete: false,
    };
    let (says, steps) = without_hooks(verdict(end.outcome, end.cause, Tense::Ahead), steps, end.status);
    Explanation { request, tense: Tense::Ahead, says, steps }
}
