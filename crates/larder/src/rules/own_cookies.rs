//! The cookies of logins of form: their names, and requests without them. They are for Larder alone, so no rule, hook, helper, service, key or
//! origin meets them, also on those parts of a site that ask nobody for a login.

use crate::config::{Config, SiteForm};
use crate::env::{Env, PeerFacts};
use larder_people::cookie;
use larder_wire::{RequestHead, Scheme, Url};
use memchr::memmem;
use std::rc::Rc;

const FIELD: &str = "Cookie";

/// Browsers take a cookie with this name from nobody but the host itself, over TLS (RFC 6265bis section 4.1.3.2).
const OF_HOST: &str = "__Host-";

/// The purpose of a cookie of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CookieFor {
    /// A session.
    Session,
    /// A form, for as long as it is open.
    Form,
}

impl CookieFor {
    fn start(self) -> &'static str {
        match self {
            CookieFor::Session => "larder-login.",
            CookieFor::Form => "larder-form.",
        }
    }
}

/// The name of the cookie of a login on the site of this URL. Cookies of a host are those of all its ports, so the port is in the name.
pub(super) fn name(of: CookieFor, login: &str, url: &Url) -> String {
    let host = if url.scheme == Scheme::Https { OF_HOST } else { "" };
    let (start, port) = (of.start(), port_of(url));
    format!("{host}{start}{login}{port}")
}

fn port_of(url: &Url) -> String {
    match url.scheme.default_port() == url.port {
        true => String::new(),
        false => format!(".{}", url.port),
    }
}

/// Scheme, host and port of a URL, as `Origin` has them (RFC 6454 section 6.2).
pub(super) fn origin_of(url: &Url) -> String {
    format!("{}://{}", url.scheme.as_str(), url.authority())
}

/// The field that gives a browser this cookie, for so many seconds; with 0 the browser forgets it. `None`: as long as the browser is open.
pub(super) fn set((name, value): (&str, &str), seconds: Option<u64>) -> String {
    let secure = if name.starts_with(OF_HOST) { "; Secure" } else { "" };
    let age = seconds.map(|seconds| format!("; Max-Age={seconds}")).unwrap_or_default();
    format!("{name}={value}; Path=/{age}; HttpOnly; SameSite=Lax{secure}")
}

/// A request that came on this connection without the cookies of logins, where it is for a site and has any.
pub(super) fn without(env: &Env, peer: &PeerFacts, request: &RequestHead) -> Option<Rc<RequestHead>> {
    let config = env.config();
    if config.site_forms.is_empty() || peer.inside.is_some() || !may_have_some(request) {
        return None;
    }
    let is_of_site = || {
        let url = request.url(peer.scheme).ok();
        url.is_some_and(|url| matches!(config.sites.find_by_every_reading(&url), Ok(Some(_))))
    };
    // Through the forward proxy, a cookie of such a name is that of another Larder.
    if peer.listener.origin.is_none() && !is_of_site() {
        return None;
    }
    taken_off(&config, request).map(Rc::new)
}

fn may_have_some(request: &RequestHead) -> bool {
    request.fields.get_all(FIELD).any(|line| memmem::find(line, b"larder-").is_some())
}

fn taken_off(config: &Config, request: &RequestHead) -> Option<RequestHead> {
    let (mut lines, mut has_any) = (Vec::new(), false);
    for line in request.fields.get_all(FIELD) {
        match cookie::without(line, |name| is_own(&config.site_forms, name)) {
            None => lines.push(line.to_vec()),
            Some(left) => {
                has_any = true;
                lines.push(left);
            }
        }
    }
    if !has_any {
        return None;
    }
    let mut request = request.clone();
    request.fields.remove(FIELD);
    lines.into_iter().filter(|line| !line.is_empty()).for_each(|line| request.fields.push(FIELD, line));
    Some(request)
}

/// Whether this is the name of a cookie of one of the logins, at whichever port.
fn is_own(forms: &[SiteForm], name: &[u8]) -> bool {
    let name = name.strip_prefix(OF_HOST.as_bytes()).unwrap_or(name);
    let starts = [CookieFor::Session, CookieFor::Form].map(CookieFor::start);
    let Some(rest) = starts.iter().find_map(|start| name.strip_prefix(start.as_bytes())) else { return false };
    forms.iter().any(|form| match rest.strip_prefix(form.login.name.as_bytes()) {
        Some([]) => true,
        Some([b'.', port @ ..]) => !port.is_empty() && port.iter().all(u8::is_ascii_digit),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Login;
    use std::sync::Arc;

    #[test]
    fn names_are_known_again_at_each_port() {
        let form = |name: &str| SiteForm {
            login: Arc::new(Login { name: name.to_owned(), ..Login::default() }),
            is_by_rule: false,
        };
        let forms = [form("web"), form("a.b")];
        for (url, wanted) in [
            ("https://a.test/", "__Host-larder-login.web"),
            ("https://a.test:8443/", "__Host-larder-login.web.8443"),
            ("http://a.test/", "larder-login.web"),
            ("http://a.test:443/", "larder-login.web.443"),
        ] {
            let url = Url::parse(url).unwrap();
            let name = name(CookieFor::Session, "web", &url);
            assert_eq!(name, wanted);
            assert!(is_own(&forms, name.as_bytes()));
            assert!(is_own(&forms, super::name(CookieFor::Form, "a.b", &url).as_bytes()));
        }
        // Those of others, such as a Larder behind this one, stay.
        for other in [
            "larder-login.other",
            "larder-login.web.x",
            "larder-login.web.",
            "larder-login.Web",
            "larder_member",
            "web",
        ] {
            assert!(!is_own(&forms, other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn fields_keep_scripts_and_other_sites_away() {
        let of_host = set(("__Host-larder-login.web", "1"), Some(60));
        assert_eq!(of_host, "__Host-larder-login.web=1; Path=/; Max-Age=60; HttpOnly; SameSite=Lax; Secure");
        let clear = set(("larder-form.web", "1"), None);
        assert_eq!(clear, "larder-form.web=1; Path=/; HttpOnly; SameSite=Lax");
    }
}
