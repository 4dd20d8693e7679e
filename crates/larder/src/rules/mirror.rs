//! The prefix mirror: a URL that stands in the path, as `/https://host/path`, `/NAME/path` or `/v2/…` of a container registry
//! (decision 041). The meaning is an ordinary request of the forward proxy; these rules say who may ask so.

use super::facts::Facts;
use super::gate::Refused;
use super::pages::{denied, out_of_reach};
use super::{Ask, Route, table};
use crate::config::{Mirror, Mirroring};
use crate::page::Page;
use crate::reach;
use crate::record::Rule;
use larder_wire::reading::Reading;
use larder_wire::{Fields, Method, Url};
use std::sync::Arc;

/// A request through the mirror that the rules allow.
#[derive(Clone, Debug)]
pub struct Mirrored {
    /// The request as the forward proxy would get it.
    pub ask: Ask,
    /// The mirror by whose name the client asked.
    pub named: Option<Arc<Mirror>>,
}

/// Fields of a request that are for one host, or that only pages in a browser send: they go to no origin behind the mirror.
const KEPT_FROM_ORIGIN: [&str; 6] = ["Cookie", "Cookie2", "Referer", "Origin", "Upgrade-Insecure-Requests", "Upgrade"];

/// Whether a field of the mirror's client goes to the origin.
pub fn goes_to_origin(name: &str, passes_credentials: bool) -> bool {
    let is_of_browser = name.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("Sec-"));
    let is_credential = name.eq_ignore_ascii_case("Authorization") && !passes_credentials;
    !is_of_browser && !is_credential && !KEPT_FROM_ORIGIN.iter().any(|kept| kept.eq_ignore_ascii_case(name))
}

/// The fields of the mirror's client that go to the origin.
fn passed_on(fields: &Fields, passes_credentials: bool) -> Fields {
    let mut fields = fields.clone();
    fields.retain(|name, _| goes_to_origin(name, passes_credentials));
    fields
}

fn passes_credentials(is_named: bool, is_registry: bool) -> bool {
    is_named && !is_registry
}

impl Mirrored {
    /// Whether credentials of the client go to the origin: it asked by a name that the configuration has, and tools are given their
    /// credentials together with that name.
    pub fn passes_credentials(&self) -> bool {
        passes_credentials(self.named.is_some(), self.ask.registry.is_some())
    }
}

/// The path of a registry's API.
pub const REGISTRY: &str = "/v2/";

/// The verdict on a request through the mirror, which may be a page of Larder's own; `None` where the request is none such.
pub(super) fn judge(facts: &Facts<'_>) -> Option<Result<Box<Mirrored>, Refused>> {
    let mirroring = facts.mirroring();
    if mirroring == Mirroring::None || facts.inside().is_some() {
        return None;
    }
    let path = facts.origin_form()?;
    if !matches!(facts.find_site(), Ok(None)) {
        return None;
    }
    let meant = meant(facts.config().mirrors.as_slice(), path)?;
    Some(judge_meant(facts, mirroring, meant))
}

/// The meaning of a path.
enum Meant {
    /// A URL, by whatever form, with the mirror by whose name it was asked.
    Url(Url, Option<Arc<Mirror>>),
    /// A blob or manifest of the registry on this host, which has no `[[mirror]]`.
    OtherRegistry(Mirror, Url),
    /// The question whether this is a registry.
    Ping,
    /// A URL, but not one that can be asked for.
    Unreadable,
}

fn meant(mirrors: &[Arc<Mirror>], path: &str) -> Option<Meant> {
    if let Some(text) = url_in(path) {
        return Some(Url::parse(&text).map_or(Meant::Unreadable, |url| Meant::Url(url, None)));
    }
    if path.starts_with(REGISTRY) || path == "/v2" {
        return registry(mirrors, path);
    }
    let (name, rest) = first_segment(path)?;
    let mirror = mirrors.iter().find(|mirror| mirror.name == name)?;
    let rest = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
    Some(Meant::Url(mirror.url(&rest), Some(Arc::clone(mirror))))
}

/// The URL that a path is. Some tools (pip) encode each `:` of a path, and the brackets of an IPv6 address; others (Go) make one
/// slash of two.
fn url_in(path: &str) -> Option<String> {
    let rest = path.strip_prefix('/')?;
    let (scheme, rest) = ["https", "http"].into_iter().find_map(|scheme| {
        let rest = rest.strip_prefix(scheme)?;
        let rest = [":", "%3A", "%3a"].into_iter().find_map(|colon| rest.strip_prefix(colon))?;
        let rest = rest.strip_prefix('/')?;
        Some((scheme, rest.strip_prefix('/').unwrap_or(rest)))
    })?;
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let spellings = [("%3A", ":"), ("%3a", ":"), ("%5B", "["), ("%5b", "["), ("%5D", "]"), ("%5d", "]")];
    let authority = spellings.iter().fold(authority.to_owned(), |text, (from, to)| text.replace(from, to));
    Some(format!("{scheme}://{authority}{path}"))
}

/// The first segment of a path, and the rest from the slash or question mark behind it.
fn first_segment(path: &str) -> Option<(&str, &str)> {
    let path = path.strip_prefix('/')?;
    Some(path.split_at(path.find(['/', '?']).unwrap_or(path.len())))
}

/// A registry is named by `ns` (containerd), by the first segment behind `/v2/` (podman), or it is the first one (Docker).
fn registry(mirrors: &[Arc<Mirror>], path: &str) -> Option<Meant> {
    let (only_path, query) = path.split_once('?').unwrap_or((path, ""));
    let ns = query.split('&').find_map(|pair| pair.strip_prefix("ns="));
    let mut registries = mirrors.iter().filter(|mirror| mirror.registry);
    if only_path.len() <= REGISTRY.len() {
        return (ns.is_some() || registries.next().is_some()).then_some(Meant::Ping);
    }
    let rest = &only_path[REGISTRY.len() - 1..];
    let query: Vec<&str> = query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("ns=")).collect();
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    let at = |mirror: &Mirror, rest: &str| mirror.url(&format!("/v2{rest}{query}"));
    if let Some(ns) = ns {
        let ns = ns.replace("%3A", ":").replace("%3a", ":");
        if let Some(mirror) = registries.find(|mirror| mirror.name == ns || mirror.origin.authority() == ns) {
            return Some(Meant::Url(at(mirror, rest), Some(Arc::clone(mirror))));
        }
        let Some(origin) = Url::parse(&format!("https://{ns}/")).filter(|url| &*url.path == "/") else {
            return Some(Meant::Unreadable);
        };
        let mirror = Mirror::registry(origin);
        let url = at(&mirror, rest);
        return Some(Meant::OtherRegistry(mirror, url));
    }
    let (name, behind) = first_segment(rest)?;
    let mut named = registries.clone();
    if let Some(mirror) = named.find(|mirror| mirror.name == name && behind.len() > 1) {
        return Some(Meant::Url(at(mirror, behind), Some(Arc::clone(mirror))));
    }
    let first = registries.next()?;
    Some(Meant::Url(at(first, rest), Some(Arc::clone(first))))
}

fn no_upstream(url: &Url) -> Page {
    let what = format!("This mirror has no upstream for {}.", url.authority());
    Page::new(403, "mirror-named", what, "The administrator of this cache can configure a [[mirror]].")
}

fn judge_meant(facts: &Facts<'_>, mirroring: Mirroring, meant: Meant) -> Result<Box<Mirrored>, Refused> {
    refuse_browsers(facts)?;
    let (url, named) = match meant {
        Meant::Unreadable => {
            let what = "The path of this request begins like a URL, but it is none.";
            return Err(Page::new(400, "mirror-url", what, "Write http://this-server/https://host/path.").into());
        }
        Meant::Ping => {
            // Older clients believe this field alone.
            let page = Page::text("registry", "{}".to_owned());
            return Err(page.with("Docker-Distribution-Api-Version", "registry/2.0").into());
        }
        Meant::OtherRegistry(mirror, url) => (url, Some((Arc::new(mirror), false))),
        Meant::Url(url, named) => (url, named.map(|mirror| (mirror, true))),
    };
    let is_configured = named.as_ref().is_some_and(|(_, is_configured)| *is_configured)
        || facts.config().mirrors.iter().any(|mirror| mirror.path_of(&url).is_some());
    if !matches!(facts.method(), Method::Get | Method::Head) {
        let page = Page::new(405, "mirror-method", "A mirror is read only.", "Send this request to the origin itself.");
        return Err(page.with("Allow", "GET, HEAD").into());
    }
    if mirroring == Mirroring::Named && !is_configured {
        return Err(no_upstream(&url).into());
    }
    if !facts.config().access.may_proxy(facts.client()) {
        return Err(denied("client", "This client may not use the proxy.").into());
    }
    // A `..` would lead out of the base path of the origin, or to another host for who resolves it first.
    if Reading::of(&url.path) == Reading::Climbs {
        return Err(super::pages::ambiguous().into());
    }
    let destinations = &facts.config().access.destinations;
    if reach::refuses_form(facts.asker(), destinations, facts.own_addresses(), &url.host, url.port) {
        return Err(out_of_reach().into());
    }
    let registry = named.as_ref().filter(|(mirror, _)| mirror.registry).map(|(mirror, _)| Arc::clone(mirror));
    let passes_credentials = passes_credentials(named.is_some(), registry.is_some());
    let fields = || passed_on(facts.fields(), passes_credentials);
    let mut by_table = table::judge_changing(facts, (&url, false), &fields)?.map(Box::new);
    if by_table.as_mut().is_some_and(|by_table| by_table.client_url.is_some() || by_table.changes_route()) {
        let what = "A rule changes the URL or the origin of this request, which is not done for a mirror.";
        return Err(Page::new(403, table::BY_RULE, what, "Tell the administrator of this cache.").into());
    }
    let mut people = by_table.as_mut().and_then(|by_table| by_table.people.take());
    if let Some(people) = &mut people {
        // The proof of a client of the mirror is for Larder, and nothing to the origin of a named mirror.
        people.consumes_authorization = true;
    }
    let route = Route::Forward(facts.asker());
    // Larder itself follows a registry's redirects, and the digest is the key of what they lead to.
    let by_rule = if registry.is_some() { None } else { facts.by_rule_of(&route, &url) };
    let ask = Ask {
        url,
        route,
        rule: Rule::Mirror,
        by_rule,
        by_table,
        by_hook: None,
        hook_note: None,
        hooked_by: None,
        registry,
        people,
    };
    Ok(Box::new(Mirrored { ask, named: named.map(|(mirror, _)| mirror) }))
}

/// A page in a browser must not read through the mirror what the browser's user can reach: all hosts behind the mirror are
/// one origin to the browser. Tools send none of these fields. By a name that leads here (DNS rebinding) a page would be of the
/// mirror's own origin, so only addresses and configured names are served.
fn refuse_browsers(facts: &Facts<'_>) -> Result<(), Page> {
    if !facts.names_mirror() {
        let what = "The mirror answers only where it is asked by an address, as localhost or by a configured name.";
        return Err(Page::new(421, "mirror-host", what, "The name can be added to `mirror_hosts` of the [[listen]]."));
    }
    let is_of_page = facts.text("Sec-Fetch-Site").is_some_and(|site| site != "none");
    if is_of_page || facts.has_field("Origin") {
        return Err(denied("mirror-browser", "The mirror does not answer requests that a page in a browser makes."));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::url;

    fn text(mirrors: &[Arc<Mirror>], path: &str) -> String {
        match meant(mirrors, path) {
            None => "none".to_owned(),
            Some(Meant::Ping) => "ping".to_owned(),
            Some(Meant::Unreadable) => "unreadable".to_owned(),
            Some(Meant::OtherRegistry(_, url)) => format!("other {url}"),
            Some(Meant::Url(url, named)) => match named {
                Some(mirror) => format!("{} {url}", mirror.name),
                None => url.to_string(),
            },
        }
    }

    #[test]
    fn paths_and_what_they_mean() {
        let mirror = |name: &str, origin: &str, registry: bool| {
            Arc::new(Mirror { registry, ..Mirror::of(name.to_owned(), url::parse(origin).unwrap()) })
        };
        let mirrors = [
            mirror("py", "https://py.test/base/", false),
            mirror("one.test", "https://r1.test", true),
            mirror("two", "http://127.0.0.1:5000", true),
        ];
        for (path, wanted) in [
            ("/https://a.test/x?y", "https://a.test/x?y"),
            ("/http://a.test", "http://a.test/"),
            ("/https%3A//a.test/x%3Ay", "https://a.test/x%3Ay"),
            ("/http%3a//a.test%3A81/x", "http://a.test:81/x"),
            ("/http://%5B::1%5D:81", "http://[::1]:81/"),
            ("/https://a.test%2F@b.test/x", "unreadable"),
            ("/https://user:secret@a.test/x", "unreadable"),
            ("/https:///x", "unreadable"),
            ("/https:/a.test/x", "https://a.test/x"),
            ("/https%3A/a.test%3A81/x", "https://a.test:81/x"),
            ("/https:a.test/x", "none"),
            ("/https:////a.test/x", "unreadable"),
            ("/http:/", "unreadable"),
            ("/http://a.test:0/", "unreadable"),
            ("/http://a.test:65536/", "unreadable"),
            ("/http://a.test\\@b.test/", "unreadable"),
            ("/http://[::1/", "unreadable"),
            ("/http://%5B::1%5D%3A0/", "unreadable"),
            ("/http://a.test//x/", "http://a.test//x/"),
            ("/http://a.test/%2F%3A/", "http://a.test/%2F%3A/"),
            ("/ftp://a.test/x", "none"),
            ("/py/simple/x/", "py https://py.test/base/simple/x/"),
            ("/py", "py https://py.test/base/"),
            ("/py?a", "py https://py.test/base/?a"),
            ("/pyx/simple", "none"),
            ("/", "none"),
            ("/v2/", "ping"),
            ("/v2", "ping"),
            ("/v2/lib/a/manifests/1", "one.test https://r1.test/v2/lib/a/manifests/1"),
            ("/v2/two/a/manifests/1", "two http://127.0.0.1:5000/v2/a/manifests/1"),
            ("/v2/a/manifests/1?ns=two", "two http://127.0.0.1:5000/v2/a/manifests/1"),
            ("/v2/a/tags/list?n=3&ns=r1.test&last=b", "one.test https://r1.test/v2/a/tags/list?n=3&last=b"),
            ("/v2/a/manifests/1?ns=c.test%3A81", "other https://c.test:81/v2/a/manifests/1"),
            ("/v2/a/manifests/1?ns=c.test/evil", "unreadable"),
            ("/v2/a/manifests/1?ns=u@c.test", "unreadable"),
        ] {
            assert_eq!(text(&mirrors, path), wanted, "{path}");
        }
        assert_eq!(text(&mirrors[..1], "/v2/a/manifests/1"), "none");
        assert_eq!(text(&mirrors[..1], "/v2/"), "none");
    }
}
