//! The rules, in the order in which they are applied.

use super::facts::{Facts, Scene};
use super::form_parts::PageVerdict;
use super::gate::{self, Refused};
use super::hooked::{self, Hooked, HookedConnect, HooksOf, is_of_one_origin, without_credentials};
use super::pages::{ambiguous, connect_port, denied, forward_off, no_ftp, other_certificates, out_of_reach};
use super::pass_through::{self, PassedThrough};
use super::{Ask, ByHook, ByPeople, ByTable, FoundFacts, HookedAnswer, Limited, Mirrored, Need, Route, SentForm};
use super::{login_form, login_page, mirror, table, transparent};
use crate::config::{HostHeader, SiteOrigin};
use crate::hook::HookNote;
use crate::page::Page;
use crate::people::User;
use crate::reach::{self, Asker, ReachByRule};
use crate::record::Rule;
use larder_people::note::HelperNote;
use larder_rules::rule::RuleNote;
use larder_wire::{Host, Method, RequestHead, Scheme, Url};
use std::rc::Rc;
use std::sync::Arc;

/// The decision about a request.
#[derive(Debug)]
pub enum Verdict {
    /// The request is looked up, and fetched if need be.
    Allow(Ask),
    /// As [`Verdict::Allow`], for a URL that stood in the path: other fields go to the origin and to the client.
    Mirror(Box<Mirrored>),
    /// A tunnel to this host and port; the listener says whether its TLS is intercepted.
    Tunnel(Host, u16, TunnelFor),
    /// An answer of Larder's own.
    Answer(Page),
    /// An answer of a hook, or the page for one that failed.
    Hooked(Box<HookedAnswer>),
    /// A purge of the responses that are stored under this request's key.
    Purge(Ask),
    /// The page of the cache manager at this path.
    Manager(String),
    /// The request's own head is the answer (TRACE with `Max-Forwards: 0`).
    Echo,
    /// A form of a login page, whose body has to be read.
    LogIn(Box<SentForm>),
    /// The rules can't decide before this fact is known; [`judge_and_wait`](super::judge_and_wait) finds it out, and goes on with the
    /// facts that were found until then.
    Needs(Need, Box<FoundFacts>),
}

impl Verdict {
    /// A verdict that needs this fact. The facts that were found until then are put in by the one who has them.
    fn needs(need: Need) -> Verdict {
        Verdict::Needs(need, Box::default())
    }
}

/// The facts that go with a tunnel.
#[derive(Debug, Default)]
pub struct TunnelFor {
    /// The user who has logged in.
    pub user: Option<Arc<User>>,
    /// The rules of the table that hold, where any do.
    pub rules: Option<Arc<RuleNote>>,
    /// The answers of helpers.
    pub helpers: Vec<HelperNote>,
    /// The work of hooks, where any was called.
    pub note: Option<Box<HookNote>>,
    /// The limits of bandwidth for that which comes out of the tunnel.
    pub limits: Option<Rc<[Limited]>>,
    /// The choice of rules through whom it goes, and how far.
    pub reach: ReachByRule,
    /// The origin of the site that passes the client's TLS through; `None` where the tunnel leads to the host that was asked for.
    pub origin: Option<Arc<SiteOrigin>>,
}

/// The route of a request that is allowed, and the rule that allowed it.
struct AllowedRoute {
    route: Route,
    rule: Rule,
}

/// The verdict of the rules about URLs.
enum UrlVerdict {
    Allowed(AllowedRoute),
    Refused(Page),
}

/// The word of the error page for a host that is no site.
const NO_SITE: &str = "no-site";

impl Scene<'_> {
    /// Judges a request that need not have been sent, as `larder explain` and `larder check` do.
    pub fn judge(&self, request: &RequestHead) -> Verdict {
        judge(&mut Facts::of(*self, request))
    }
}

/// Judges a request by its form, its client and the configuration.
pub(super) fn judge(facts: &mut Facts<'_>) -> Verdict {
    #[cfg(test)]
    if let Some(verdict) = judge_group(facts) {
        return verdict;
    }
    if let Some(page) = answer_before_rules(facts) {
        return Verdict::Answer(page);
    }
    if let (Method::Connect, Some((host, port))) = (facts.method(), facts.authority()) {
        return judge_connect(facts, host, port);
    }
    if loops(facts) {
        let what = "This request has been here before: it goes round in a loop.";
        return Verdict::Answer(Page::new(
            508,
            "loop",
            what,
            "Check that no origin or proxy setting points back at this cache.",
        ));
    }
    if *facts.method() == Method::Options && facts.is_asterisk() {
        return Verdict::Answer(options());
    }
    if let Some(fault) = facts.url_fault() {
        return Verdict::Answer(Page::new(
            fault.status(),
            fault.kind.as_str(),
            format!("The request cannot be understood: {}.", fault.detail),
            "Check the URL and the Host field.",
        ));
    }
    if let Some(verdict) = judge_login_pages(facts) {
        return verdict;
    }
    if let Some(verdict) = mirror::judge(facts) {
        return judge_mirrored(facts, verdict);
    }
    let mut by_table =
        match table::is_asked(facts).then(|| facts.url()).flatten().map(|url| table::judge(facts, url, false)) {
            Some(Err(refused)) => return refused.into(),
            Some(Ok(by_table)) => by_table.map(Box::new),
            None => None,
        };
    if let Some(by_table) = &mut by_table
        && let Some(url) = by_table.client_url.take()
    {
        let (client_url, was_of_site) = (facts.url().cloned(), facts.is_of_site());
        facts.replace_url(url);
        // The operator's sites are one house; beyond them each origin is a stranger to the others.
        let is_in_house = was_of_site && facts.is_of_site();
        let is_of_one_origin =
            facts.url().zip(client_url.as_ref()).is_some_and(|(to, from)| is_of_one_origin(to, from));
        if !is_in_house && !is_of_one_origin {
            let names = facts.fields().iter().map(|(name, _)| name);
            by_table.effects = Rc::new(without_credentials(&by_table.effects, names));
        }
        by_table.client_url = client_url;
    }
    let verdict = match facts.inside() {
        Some((host, port)) => judge_inside(facts, host, *port),
        None => judge_url(facts),
    };
    match verdict {
        UrlVerdict::Allowed(allowed) => judge_allowed(facts, allowed, by_table),
        UrlVerdict::Refused(page) if facts.forwards() && [NO_SITE, reach::REFUSED].contains(&page.word) => {
            judge_manager(facts).unwrap_or(Verdict::Answer(page))
        }
        UrlVerdict::Refused(page) => Verdict::Answer(page),
    }
}

/// The answer to an open challenge, or the page for a request that its connection does not permit, whatever it asks for.
fn answer_before_rules(facts: &Facts<'_>) -> Option<Page> {
    if let Some(answer) = facts.challenge() {
        return Some(answer);
    }
    match facts.asks_for_other_certificates() {
        true => Some(other_certificates()),
        false => transparent::refusal(facts),
    }
}

/// The verdict on a request for a login page of Larder's own.
fn judge_login_pages(facts: &Facts<'_>) -> Option<Verdict> {
    login_page::judge(facts).map(Verdict::from).or_else(|| login_form::judge(facts).map(Verdict::from))
}

impl<F: Into<SentForm>> From<PageVerdict<F>> for Verdict {
    fn from(verdict: PageVerdict<F>) -> Verdict {
        match verdict {
            PageVerdict::Shown(page) => Verdict::Answer(page),
            PageVerdict::Form(form) => Verdict::LogIn(Box::new(form.into())),
        }
    }
}

impl From<Refused> for Verdict {
    fn from(refused: Refused) -> Verdict {
        match refused {
            Refused::Page(page) => Verdict::Answer(*page),
            Refused::Needs(need) => Verdict::needs(need),
        }
    }
}

/// The gate stands before the mirror: whoever it refuses learns nothing of the mirror's own refusals.
fn judge_mirrored(facts: &Facts<'_>, verdict: Result<Box<Mirrored>, Refused>) -> Verdict {
    let by_rule = match verdict {
        Ok(ref mirrored) => mirrored.ask.people.clone(),
        Err(Refused::Needs(need)) => return Verdict::needs(need),
        Err(Refused::Page(_)) => None,
    };
    match (gate::of_mirror(facts, by_rule), verdict) {
        (Err(refused), _) | (_, Err(refused)) => refused.into(),
        (Ok(people), Ok(mut mirrored)) => {
            mirrored.ask.people = people;
            Verdict::Mirror(mirrored)
        }
    }
}

fn judge_allowed(facts: &mut Facts<'_>, mut allowed: AllowedRoute, mut by_table: Option<Box<ByTable>>) -> Verdict {
    let may_purge = match facts.method().as_str() {
        "PURGE" => facts.config().access.may_purge(facts.client()),
        _ => None,
    };
    let by_rule = by_table.as_mut().and_then(|by_table| by_table.people.take());
    let mut people = match gate::of_request(facts, allowed.rule, by_rule, may_purge == Some(true)) {
        Ok(people) => people,
        Err(refused) => return refused.into(),
    };
    let verdict = match may_purge {
        // A purge names a stored response, whichever listener stored it, so `route_refusal` does not apply.
        Some(true) => Ok(Verdict::Purge as fn(Ask) -> Verdict),
        Some(false) => Err(Verdict::Answer(denied("purge", "This client may not purge."))),
        None => match route_refusal(facts, &allowed) {
            Some(refusal) => Err(refusal),
            None => Ok(goes_no_further(facts).unwrap_or(Verdict::Allow)),
        },
    };
    if let Some(by_table) = &mut by_table {
        by_table.reroute(&mut allowed.route);
        if allowed.route.is_below_path() && facts.path_climbs() {
            return Verdict::Answer(ambiguous());
        }
    }
    let (mut by_hook, mut hook_note, mut hooked_by) = (None, None, None);
    if let Some(hooks) = hooks_of(facts, allowed.rule) {
        let judged = match (&verdict, may_purge) {
            (Ok(_), None) => {
                let set_by_rules = by_table.as_ref().map_or(&[][..], |by_table| &by_table.effects.set);
                hooked::judge(facts, HooksOf { set_by_rules, ..hooks })
            }
            _ => Ok(hooked::unasked(hooks.host)),
        };
        match judged {
            Err(need) => return Verdict::needs(need),
            Ok(Hooked::Answered(page, note)) => return answered_by_hook(facts, page, allowed.rule, note),
            Ok(Hooked::GoesOn(goes_on)) => {
                (by_hook, hook_note) = (goes_on.changed, goes_on.note.map(Box::new));
                hooked_by = Some(Box::new(goes_on.hooked_by));
                allowed.route = goes_on.route.unwrap_or(allowed.route);
                if let Some(url) = goes_on.url
                    && let Err(refused) = go_to(facts, url, &mut people)
                {
                    return refused.into();
                }
            }
        }
    }
    if let Err(need) = transparent::lead(facts, &mut allowed.route) {
        return Verdict::needs(need);
    }
    if let Some(people) = &mut people {
        people.logins = facts.found().logins();
    }
    let mut by_rule = facts.by_rule(&allowed.route);
    if let Some(by_rule) = &mut by_rule
        && (consumes_authorization(people.as_deref()) || changes_authorization(by_hook.as_deref(), by_table.as_deref()))
    {
        by_rule.credential = None;
    }
    match (verdict, facts.take_url()) {
        (Ok(verdict), Some(url)) => {
            let AllowedRoute { route, rule } = allowed;
            verdict(Ask { url, route, rule, by_rule, by_table, by_hook, hook_note, hooked_by, registry: None, people })
        }
        (Ok(_), None) => Verdict::Answer(ambiguous()),
        (Err(verdict), _) => verdict,
    }
}

/// Whether the credential says who is here, and nothing to the origin.
fn consumes_authorization(people: Option<&ByPeople>) -> bool {
    people.is_some_and(|people| people.consumes_authorization)
}

/// Whether the credential is the script's now, or none.
fn changes_authorization(by_hook: Option<&ByHook>, by_table: Option<&ByTable>) -> bool {
    let by_hook = by_hook.into_iter().map(|by_hook| &by_hook.effects);
    let mut changed = by_hook.chain(by_table.into_iter().map(|by_table| &by_table.effects));
    changed.any(|effects| effects.changes("authorization"))
}

/// Lets a request go to the URL that a hook has chosen, where the rules let it go to another origin.
fn go_to(facts: &mut Facts<'_>, url: Url, people: &mut Option<Box<ByPeople>>) -> Result<(), Refused> {
    if facts.url().is_none_or(|asked| !is_of_one_origin(asked, &url))
        && let Some(by_rule) = table::judge_elsewhere(facts, &url)?
    {
        let people = people.get_or_insert_default();
        people.consumes_authorization |= by_rule.consumes_authorization;
        people.by_cookie |= by_rule.by_cookie;
        people.user = by_rule.user.or(people.user.take());
    }
    facts.replace_url_by_hooks(url);
    Ok(())
}

fn answered_by_hook(facts: &mut Facts<'_>, page: Page, rule: Rule, note: Option<HookNote>) -> Verdict {
    match facts.take_url() {
        Some(url) => Verdict::Hooked(Box::new(HookedAnswer { page, url, rule, note })),
        None => Verdict::Answer(page),
    }
}

/// The hooks that a request which this rule allows meets, where there are any.
fn hooks_of<'a>(facts: &Facts<'a>, rule: Rule) -> Option<HooksOf<'a>> {
    match rule {
        Rule::Site(number) => {
            let number = usize::from(number);
            let site = facts.config().sites.get(number)?;
            Some(HooksOf { host: site.hooked_by.as_ref()?, site: Some((number, site)), set_by_rules: &[] })
        }
        Rule::Forward | Rule::Tunnel => {
            Some(HooksOf { host: facts.config().forward.hooked_by.as_ref()?, site: None, set_by_rules: &[] })
        }
        Rule::Listener | Rule::Mirror | Rule::Question => None,
    }
}

/// The answer in place of the route's, where it may not be taken.
fn route_refusal(facts: &Facts<'_>, allowed: &AllowedRoute) -> Option<Verdict> {
    if let Some(page) = of_another_scheme(facts, allowed.rule) {
        return Some(Verdict::Answer(page));
    }
    // An origin with a base path could resolve `..` to a path beside that base.
    if allowed.route.is_below_path() && facts.path_climbs() {
        return Some(Verdict::Answer(ambiguous()));
    }
    match allowed.route {
        Route::Forward(_) => judge_manager(facts),
        Route::Site { .. } | Route::Destination(..) => None,
    }
}

/// Squid's cache manager answers clients of this machine, and only where no other machine can connect to a listener.
fn judge_manager(facts: &Facts<'_>) -> Option<Verdict> {
    if facts.destination().is_some() {
        return None;
    }
    let path = facts.manager_path()?;
    let config = facts.config();
    let is_passed_on = facts.is_passed_on();
    let is_local = facts.client().to_canonical().is_loopback() && config.is_of_this_machine() && !is_passed_on;
    if is_local && config.admin_token.is_none() {
        return Some(Verdict::Manager(path.to_owned()));
    }
    let what = "The cache manager answers here to clients of this machine, where no others can connect to a listener, and only without an `admin_token`.";
    Some(Verdict::Answer(Page::new(403, "manager", what, "Ask at the address of the setting `admin`.")))
}

/// On a site and inside an opened tunnel, the scheme of the URL must be that of the connection (RFC 9110 section 7.4): a
/// client that could choose the scheme would store a response to one scheme under the key of the other. A forward proxy
/// accepts URLs of either scheme on any connection, and connects to the origin by the scheme of the URL.
fn of_another_scheme(facts: &Facts<'_>, rule: Rule) -> Option<Page> {
    let (of_url, of_connection) = (facts.site()?.0, facts.connection_scheme());
    if rule == Rule::Forward || of_url == of_connection {
        return None;
    }
    let what = format!("The URL begins with {}://, this connection is {}.", of_url.as_str(), of_connection.as_str());
    let remedy = "Ask for it on a connection of its own scheme, or send the path alone.";
    Some(Page::new(421, "misdirected", what, remedy))
}

/// TLS that a site passes through, as the CONNECT that it stands for.
fn judge_passed_through(facts: &Facts<'_>, host: &Host, port: u16) -> Verdict {
    match pass_through::judge(facts, host, port) {
        Ok(PassedThrough { user, rules, limits, origin }) => {
            let origin = Some(origin);
            let tunnel = TunnelFor { user, rules, limits, origin, ..TunnelFor::default() };
            Verdict::Tunnel(host.clone(), port, tunnel)
        }
        Err(refused) => refused.into(),
    }
}

fn judge_connect(facts: &Facts<'_>, host: &Host, port: u16) -> Verdict {
    if facts.is_passed_through() {
        return judge_passed_through(facts, host, port);
    }
    let access = &facts.config().access;
    if facts.inside().is_some() {
        let page = denied("nested-connect", "A tunnel inside an opened tunnel is not offered.");
        return Verdict::Answer(page.closing());
    }
    if facts.listener_origin().is_some() {
        let page = denied("connect-at-site", "This address serves one site and opens no tunnels.");
        return Verdict::Answer(page.closing());
    }
    if !facts.forwards() {
        return Verdict::Answer(forward_off().closing());
    }
    if !access.may_proxy(facts.client()) {
        return Verdict::Answer(denied("client", "This client may not use the proxy.").closing());
    }
    if !access.may_connect(port, facts.asker() != Asker::Elsewhere) {
        return Verdict::Answer(connect_port().closing());
    }
    if facts.is_out_of_reach(host, port) {
        return Verdict::Answer(out_of_reach().closing());
    }
    let url = Url { scheme: Scheme::Https, host: host.clone(), port, path: "/".into() };
    let (by_rules, rules, limits, reach) = match table::judge(facts, &url, true) {
        Ok(None) => (None, None, None, ReachByRule::default()),
        Ok(Some(ByTable { people, note, limits, reach, .. })) => {
            (people.and_then(|people| people.user), Some(note), limits, reach)
        }
        // A client that is asked for a login goes on by the same connection.
        Err(Refused::Page(page)) if page.status == 407 => return Verdict::Answer(*page),
        Err(Refused::Page(page)) => return Verdict::Answer(page.closing()),
        Err(Refused::Needs(need)) => return Verdict::needs(need),
    };
    let (user, helpers) = match gate::of_tunnel(facts, by_rules, (host, port)) {
        Ok(passed) => passed,
        Err(refused) => return refused.into(),
    };
    let hooked = hooks_of(facts, Rule::Forward).map(|hooks| hooked::judge_connect(facts, hooks, (host, port)));
    let tunnel = |note: Option<HookNote>| TunnelFor {
        user,
        rules,
        helpers,
        note: note.map(Box::new),
        limits,
        reach,
        origin: None,
    };
    match hooked {
        None => Verdict::Tunnel(host.clone(), port, tunnel(None)),
        Some(Ok(HookedConnect::GoesOn(note))) => Verdict::Tunnel(host.clone(), port, tunnel(note)),
        Some(Ok(HookedConnect::Answered(answer))) => Verdict::Hooked(answer),
        Some(Err(need)) => Verdict::needs(need),
    }
}

fn judge_url(facts: &Facts<'_>) -> UrlVerdict {
    if let Some(origin) = facts.listener_origin() {
        let route = Route::Site { origin: Arc::clone(origin), host_header: HostHeader::Client, compression: None };
        return UrlVerdict::Allowed(AllowedRoute { route, rule: Rule::Listener });
    }
    let Ok(site) = facts.find_site() else { return UrlVerdict::Refused(ambiguous()) };
    if let Some((number, site)) = site {
        let (origin, compression) = (Arc::clone(&site.origin), site.compression());
        let route = Route::Site { origin, host_header: site.host_header, compression };
        return UrlVerdict::Allowed(AllowedRoute {
            route,
            rule: Rule::Site(u16::try_from(number).unwrap_or(u16::MAX)),
        });
    }
    let Some((scheme, host, port)) = facts.site() else { return UrlVerdict::Refused(ambiguous()) };
    if !facts.is_absolute() && facts.destination().is_none() {
        return UrlVerdict::Refused(Page::new(
            404,
            NO_SITE,
            format!("This is a web cache. It has no site {host}."),
            match facts.forwards() {
                true => "Use this address as a proxy (for example `curl -x`), or configure a [[site]] for the host.",
                false => "The administrator of this cache can configure a [[site]] for the host.",
            },
        ));
    }
    if !facts.forwards() {
        return UrlVerdict::Refused(forward_off());
    }
    if !facts.config().access.may_proxy(facts.client()) {
        return UrlVerdict::Refused(denied("client", "This client may not use the proxy."));
    }
    if facts.is_out_of_reach(host, port) {
        return UrlVerdict::Refused(out_of_reach());
    }
    if scheme == Scheme::Ftp && !(cfg!(feature = "ftp") && facts.config().forward_ftp) {
        return UrlVerdict::Refused(no_ftp());
    }
    UrlVerdict::Allowed(AllowedRoute { route: Route::Forward(facts.asker()), rule: Rule::Forward })
}

/// Inside an opened tunnel a request is for the host of the tunnel and for no other: otherwise one host's certificate
/// would vouch for another's bytes.
fn judge_inside(facts: &Facts<'_>, host: &Host, port: u16) -> UrlVerdict {
    if facts.site().is_none_or(|(_, named, named_port)| named != host || named_port != port) {
        return UrlVerdict::Refused(Page::new(
            421,
            "misdirected",
            format!("This connection was opened for {host}:{port}, the request is for {}.", facts.authority_text()),
            "Open a connection of its own for the other host.",
        ));
    }
    if facts.is_out_of_reach(host, port) {
        return UrlVerdict::Refused(out_of_reach());
    }
    UrlVerdict::Allowed(AllowedRoute { route: Route::Forward(facts.asker()), rule: Rule::Tunnel })
}

fn loops(facts: &Facts<'_>) -> bool {
    let name = facts.via_name().as_bytes();
    facts.members("Via").any(|member| {
        member.split(|byte| matches!(byte, b' ' | b'\t')).filter(|part| !part.is_empty()).nth(1) == Some(name)
    })
}

/// The answer to an allowed TRACE or OPTIONS with `Max-Forwards: 0`, which may be forwarded no further (RFC 9110 section 7.6.2).
fn goes_no_further(facts: &Facts<'_>) -> Option<fn(Ask) -> Verdict> {
    let is_last = || facts.text("Max-Forwards") == Some("0");
    match facts.method() {
        Method::Trace if is_last() => Some(|_| Verdict::Echo),
        Method::Options if is_last() => Some(|_| Verdict::Answer(options())),
        _ => None,
    }
}

/// The cache's own answer to OPTIONS, for everybody: it says nothing about any URL.
fn options() -> Page {
    let page = Page::new(200, "options", "These methods are understood here.", "Ask for a URL to learn more.");
    page.with("Allow", "GET, HEAD, POST, PUT, DELETE, OPTIONS, TRACE, PATCH, CONNECT")
}

/// A rule of tests: a request with `X-Test-Group` is for clients of that group.
#[cfg(test)]
fn judge_group(facts: &Facts<'_>) -> Option<Verdict> {
    let wanted = facts.text("X-Test-Group")?;
    match facts.group() {
        Err(need) => Some(Verdict::needs(need)),
        Ok(group) if group == wanted => None,
        Ok(_) => Some(Verdict::Answer(denied("group", "This client is of another group."))),
    }
}
