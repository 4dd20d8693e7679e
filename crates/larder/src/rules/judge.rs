//! The rules, in the order in which they are applied.

use super::facts::{Facts, Scene};
use super::hooked::{self, Hooked};
use super::pages::{ambiguous, connect_port, denied, forward_off, out_of_reach};
use super::{Ask, HookedAnswer, Mirrored, Need, Route, mirror};
use crate::config::{HostHeader, Site};
use crate::hook::HookNote;
use crate::page::Page;
use crate::reach::{self, Asker};
use crate::record::Rule;
use larder_wire::{Host, Method, RequestHead};
use std::sync::Arc;

/// The decision about a request.
#[derive(Debug)]
pub enum Verdict {
    /// The request is looked up, and fetched if need be.
    Allow(Ask),
    /// As [`Verdict::Allow`], for a URL that stood in the path: other fields go to the origin and to the client.
    Mirror(Box<Mirrored>),
    /// A tunnel to this host and port; the listener says whether its TLS is intercepted.
    Tunnel(Host, u16),
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
    /// The rules can't decide before this fact is known; [`judge_and_wait`](super::judge_and_wait) finds it out.
    Needs(Need),
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
    if let (Method::Connect, Some((host, port))) = (facts.method(), facts.authority()) {
        return judge_connect(facts, host, port);
    }
    if loops(facts) {
        return Verdict::Answer(Page::new(
            508,
            "loop",
            "This request has been here before: it goes round in a loop.",
            "Check that no origin or proxy setting points back at this cache.",
        ));
    }
    if let Some(verdict) = judge_max_forwards(facts) {
        return verdict;
    }
    if let Some(fault) = facts.url_fault() {
        return Verdict::Answer(Page::new(
            fault.status(),
            fault.kind.as_str(),
            format!("The request cannot be understood: {}.", fault.detail),
            "Check the URL and the Host field.",
        ));
    }
    if let Some(verdict) = mirror::judge(facts) {
        return verdict.map_or_else(Verdict::Answer, Verdict::Mirror);
    }
    let verdict = match facts.inside() {
        Some((host, port)) => judge_inside(facts, host, *port),
        None => judge_url(facts),
    };
    match verdict {
        UrlVerdict::Allowed(allowed) => judge_allowed(facts, allowed),
        UrlVerdict::Refused(page) if facts.forwards() && [NO_SITE, reach::REFUSED].contains(&page.word) => {
            judge_manager(facts).unwrap_or(Verdict::Answer(page))
        }
        UrlVerdict::Refused(page) => Verdict::Answer(page),
    }
}

fn judge_allowed(facts: &mut Facts<'_>, mut allowed: AllowedRoute) -> Verdict {
    let may_purge = match facts.method().as_str() {
        "PURGE" => facts.config().access.may_purge(facts.client()),
        _ => None,
    };
    let verdict = match may_purge {
        // A purge names a stored response, whichever listener stored it, so `check_route` does not apply.
        Some(true) => Ok(Verdict::Purge as fn(Ask) -> Verdict),
        Some(false) => Err(Verdict::Answer(denied("purge", "This client may not purge."))),
        None => check_route(facts, &allowed).map(|()| Verdict::Allow as fn(Ask) -> Verdict),
    };
    let (mut by_hook, mut hook_note, mut hooked_by) = (None, None, None);
    if let Some((number, site, host)) = hooked_site(facts, &allowed) {
        let judged = match (&verdict, may_purge) {
            (Ok(_), None) => hooked::judge(facts, (number, site, host)),
            _ => Ok(hooked::unasked(host)),
        };
        match judged {
            Err(need) => return Verdict::Needs(need),
            Ok(Hooked::Answered(page, note)) => return answered_by_hook(facts, page, allowed.rule, note),
            Ok(Hooked::GoesOn(goes_on)) => {
                (by_hook, hook_note) = (goes_on.changed, goes_on.note.map(Box::new));
                hooked_by = Some(Box::new(goes_on.hooked_by));
                allowed.route = goes_on.route.unwrap_or(allowed.route);
                goes_on.url.into_iter().for_each(|url| facts.replace_url(url));
            }
        }
    }
    let mut by_rule = facts.by_rule(&allowed.route);
    if let (Some(by_rule), Some(by_hook)) = (&mut by_rule, &by_hook) {
        let is_credential = |name: &str| name == "authorization";
        let effects = &by_hook.effects;
        if effects.set.iter().any(|(name, _)| is_credential(name)) || effects.remove.iter().any(|it| is_credential(it))
        {
            // The credential is the script's now, or none.
            by_rule.credential = None;
        }
    }
    match (verdict, facts.take_url()) {
        (Ok(verdict), Some(url)) => {
            let AllowedRoute { route, rule } = allowed;
            verdict(Ask { url, route, rule, by_rule, by_hook, hook_note, hooked_by, registry: None })
        }
        (Ok(_), None) => Verdict::Answer(ambiguous()),
        (Err(verdict), _) => verdict,
    }
}

fn answered_by_hook(facts: &mut Facts<'_>, page: Page, rule: Rule, note: Option<HookNote>) -> Verdict {
    match facts.take_url() {
        Some(url) => Verdict::Hooked(Box::new(HookedAnswer { page, url, rule, note })),
        None => Verdict::Answer(page),
    }
}

/// The site that a request is for, with its number and the processes of its hooks, where it has hooks.
fn hooked_site<'a>(facts: &Facts<'a>, allowed: &AllowedRoute) -> Option<(usize, &'a Site, &'a Host)> {
    let Rule::Site(number) = allowed.rule else { return None };
    let site = facts.config().sites.get(usize::from(number))?;
    Some((usize::from(number), site, site.hooked_by.as_ref()?))
}

fn check_route(facts: &Facts<'_>, allowed: &AllowedRoute) -> Result<(), Verdict> {
    if let Some(page) = of_another_scheme(facts, allowed.rule) {
        return Err(Verdict::Answer(page));
    }
    // An origin with a base path could resolve `..` to a path beside that base.
    if allowed.route.is_below_path() && facts.path_climbs() {
        return Err(Verdict::Answer(ambiguous()));
    }
    match allowed.route {
        Route::Forward(_) => judge_manager(facts).map_or(Ok(()), Err),
        Route::Site { .. } => Ok(()),
    }
}

/// Squid's cache manager answers clients of this machine, and only where no other machine can connect to a listener.
fn judge_manager(facts: &Facts<'_>) -> Option<Verdict> {
    let path = facts.manager_path()?;
    let config = facts.config();
    let is_passed_on = ["Via", "Forwarded", "X-Forwarded-For"].iter().any(|name| facts.has_field(name));
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

fn judge_connect(facts: &Facts<'_>, host: &Host, port: u16) -> Verdict {
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
    if is_out_of_reach(facts, host, port) {
        return Verdict::Answer(out_of_reach().closing());
    }
    Verdict::Tunnel(host.clone(), port)
}

fn judge_url(facts: &Facts<'_>) -> UrlVerdict {
    if let Some(origin) = facts.listener_origin() {
        let route = Route::Site { origin: Arc::clone(origin), host_header: HostHeader::Client };
        return UrlVerdict::Allowed(AllowedRoute { route, rule: Rule::Listener });
    }
    let Ok(site) = facts.find_site() else { return UrlVerdict::Refused(ambiguous()) };
    if let Some((number, site)) = site {
        let route = Route::Site { origin: Arc::clone(&site.origin), host_header: site.host_header };
        return UrlVerdict::Allowed(AllowedRoute {
            route,
            rule: Rule::Site(u16::try_from(number).unwrap_or(u16::MAX)),
        });
    }
    let Some((_, host, port)) = facts.site() else { return UrlVerdict::Refused(ambiguous()) };
    if !facts.is_absolute() {
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
    if is_out_of_reach(facts, host, port) {
        return UrlVerdict::Refused(out_of_reach());
    }
    UrlVerdict::Allowed(AllowedRoute { route: Route::Forward(facts.asker()), rule: Rule::Forward })
}

/// Whether the form of the host (an address, `localhost`) is out of reach for the client. That is refused before the lookup,
/// because a response that a client of this machine had stored is not for clients elsewhere. The addresses of a name are
/// checked when it is connected to (`reach`).
fn is_out_of_reach(facts: &Facts<'_>, host: &Host, port: u16) -> bool {
    reach::refuses_form(facts.asker(), &facts.config().access.destinations, facts.own_addresses(), host, port)
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
    if is_out_of_reach(facts, host, port) {
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

/// Answers TRACE and OPTIONS with `Max-Forwards: 0`: they may be forwarded no further (RFC 9110 section 7.6.2).
fn judge_max_forwards(facts: &Facts<'_>) -> Option<Verdict> {
    let last = || facts.text("Max-Forwards") == Some("0");
    match facts.method() {
        Method::Trace if last() => Some(Verdict::Echo),
        Method::Options if facts.is_asterisk() || last() => {
            let page = Page::new(200, "options", "These methods are understood here.", "Ask for a URL to learn more.");
            Some(Verdict::Answer(page.with("Allow", "GET, HEAD, POST, PUT, DELETE, OPTIONS, TRACE, PATCH, CONNECT")))
        }
        _ => None,
    }
}

/// A rule of tests: a request with `X-Test-Group` is for clients of that group.
#[cfg(test)]
fn judge_group(facts: &Facts<'_>) -> Option<Verdict> {
    let wanted = facts.text("X-Test-Group")?;
    match facts.group() {
        Err(need) => Some(Verdict::Needs(need)),
        Ok(group) if group == wanted => None,
        Ok(_) => Some(Verdict::Answer(denied("group", "This client is of another group."))),
    }
}
