//! Captive portals: networks that answer each request over plain HTTP with a page of their own until somebody has logged in (RFC 8952, RFC 6585
//! section 6). Over TLS they can't: there the certificate is wrong.
//!
//! Where a store rule knows that a URL never has HTML (`never_html`), a page in its place is not stored. A `larder run` gets the stored
//! file instead, once a second question has shown that the network answers everything so: a site that really has put a page in the
//! place of a file answers another thing for a path that it does not have (decision 049). An index that is HTML itself is told from a page by
//! that too: it has another length than the answer for such a path.

use super::Fetch;
use super::ask::OriginAnswer;
use crate::clock;
use crate::config::OriginHttp2;
use crate::upstream::{Call, UpstreamFault, UpstreamFaultKind};
use larder_cache::policy::{self, Asked, Terms};
use larder_rules::rule::Priority;
use larder_wire::date::Stamp;
use larder_wire::fields::trim;
use larder_wire::target::resolve;
use larder_wire::{Fields, Host, Method, ResponseHead, Scheme, Url};
use std::time::Duration;

/// The path of the second question. No site has it, and its operator finds in his log why he was asked.
const PROBE: &str = "/larder-looks-for-a-captive-portal";
/// How long the answer to it may take.
const PROBE_WITHIN: Duration = Duration::from_secs(1);
/// For so long past its lifetime a stored file is used behind a portal. A site that answers all paths with one page can't be told from a
/// portal, and what it says has to arrive some day.
const STALE_SECONDS_MAX: u64 = 30 * 86_400;

/// Ways in which an answer looks like a portal's.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Look {
    /// A page, where there is never one.
    Page,
    /// A page in the place of an index that is HTML itself: its length and its tag.
    PageOf(u64, Option<Box<[u8]>>),
    /// A redirection to another host and another file.
    Elsewhere(Host),
    /// The status that RFC 6585 has for portals alone.
    LoginRequired,
}

/// Whether a URL has HTML of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Html {
    Never,
    AsIndex,
}

impl Look {
    /// The look of an answer for such a URL.
    fn of(head: &ResponseHead, url: &Url, html: Html) -> Option<Look> {
        match head.status {
            200 if is_html(head) && html == Html::Never => Some(Look::Page),
            200 if is_html(head) => {
                let length = head.fields.text("Content-Length")?.parse().ok()?;
                Some(Look::PageOf(length, head.fields.get("ETag").map(Box::from)))
            }
            // A portal's redirection is not for ever; one for ever is a site that has moved.
            302 | 303 | 307 => {
                let to = resolve(url, head.fields.text("Location")?)?;
                let is_elsewhere = to.host != url.host && last_segment(&to) != last_segment(url);
                is_elsewhere.then_some(Look::Elsewhere(to.host))
            }
            511 => Some(Look::LoginRequired),
            _ => None,
        }
    }
}

impl Fetch {
    /// The answer, or a fault where it is that of a portal and a stored response can be used.
    pub(super) async fn past_portal(&self, answer: OriginAnswer) -> Result<OriginAnswer, UpstreamFault> {
        if !self.for_run || !self.kind.is_for_whole() || self.posted.is_some() {
            return Ok(answer);
        }
        match self.portal_look(&answer.head) {
            None => Ok(answer),
            Some(look) => Box::pin(self.judge_portal(answer, look)).await,
        }
    }

    /// Whether this is a page in the place of a file, which is not stored there.
    pub(super) fn is_page_instead(&self, head: &ResponseHead) -> bool {
        self.notes.portal.get() || self.portal_look(head) == Some(Look::Page)
    }

    fn portal_look(&self, head: &ResponseHead) -> Option<Look> {
        if self.ask.connects_to().scheme != Scheme::Http || self.ask.registry.is_some() {
            return None;
        }
        let is_index = || self.ask.by_rule.as_ref().is_some_and(|by_rule| by_rule.index.is_some());
        let html = || match () {
            () if self.is_never_html() => Some(Html::Never),
            () => is_index().then_some(Html::AsIndex),
        };
        match Look::of(head, &self.ask.url, Html::Never)? {
            Look::LoginRequired => Some(Look::LoginRequired),
            _ => Look::of(head, &self.ask.url, html()?),
        }
    }

    async fn judge_portal(&self, answer: OriginAnswer, look: Look) -> Result<OriginAnswer, UpstreamFault> {
        let permits = |terms: &Terms, asked: &Asked, now: Stamp, _: &policy::Settings| {
            let overdue = terms.age(now).saturating_sub(terms.lifetime);
            overdue <= STALE_SECONDS_MAX && policy::disconnected(terms, &asked.without_network(), now)
        };
        let has_stale = || self.stale_instead(permits).is_some();
        // Each index in HTML is a page: where nothing else is to be had, it is no reason for a second question.
        let is_as_usual = matches!(look, Look::PageOf(..)) && !has_stale();
        if is_as_usual || look != Look::LoginRequired && !self.probe_looks_so(&look).await {
            return Ok(answer);
        }
        if !has_stale() {
            self.notes.portal.set(true);
            return Ok(answer);
        }
        self.env.upstreams.is_behind_portal(self.ask.connects_to());
        let detail = "the network answers with a page of its own, as before a login";
        Err(UpstreamFault::new(UpstreamFaultKind::Portal, detail))
    }

    /// Whether a path that no site has is answered in the same way.
    async fn probe_looks_so(&self, look: &Look) -> bool {
        let url = Url { path: PROBE.into(), ..self.ask.connects_to().clone() };
        let mut fields = Fields::new();
        fields.push("Host", url.authority());
        fields.push("Accept", "*/*");
        fields.push("Cache-Control", "no-cache");
        let mut call = Call {
            to: &url,
            tls_name: None,
            method: &Method::Get,
            target: PROBE,
            fields: &fields,
            body: None,
            reach: &self.ask.reach(&self.env),
            client: None,
            priority: Priority::default(),
            begins: clock::instant().into(),
            silent_for: None,
            http2: OriginHttp2::Off,
            proxy_protocol: None,
            proxied: None,
            on: &|_| {},
        };
        let answer = tokio::time::timeout(PROBE_WITHIN, self.env.upstreams.call(&mut call)).await;
        let html = if matches!(look, Look::PageOf(..)) { Html::AsIndex } else { Html::Never };
        let look_of_probe = answer.ok().and_then(Result::ok).and_then(|answer| Look::of(&answer.head, &url, html));
        look_of_probe.is_some_and(|found| found == *look || found == Look::LoginRequired)
    }
}

fn is_html(head: &ResponseHead) -> bool {
    let value = head.fields.get("Content-Type").unwrap_or_default();
    let essence = trim(value.split(|&byte| byte == b';').next().unwrap_or_default());
    [b"text/html".as_slice(), b"application/xhtml+xml"].iter().any(|html| essence.eq_ignore_ascii_case(html))
}

/// The name of a file or of a folder.
fn last_segment(url: &Url) -> &str {
    let path = url.path.split('?').next().unwrap_or_default();
    path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_portal_s_answer_looks_like() {
        let url = Url::parse("http://deb.example/pool/x_1.0_amd64.deb").unwrap();
        let look = |status: u16, name: &'static str, value: &str| {
            let mut head = ResponseHead::new(status);
            head.fields.push(name, value);
            Look::of(&head, &url, Html::Never)
        };
        let portal = Some(Look::Elsewhere(Url::parse("http://login.example/").unwrap().host));
        for (status, name, value, wanted) in [
            (200, "Content-Type", "text/html; charset=utf-8", Some(Look::Page)),
            (200, "Content-Type", "TEXT/HTML", Some(Look::Page)),
            (200, "Content-Type", "application/vnd.debian.binary-package", None),
            (200, "X", "y", None),
            (404, "Content-Type", "text/html", None),
            (206, "Content-Type", "text/html", None),
            (302, "Location", "http://login.example/?to=http://deb.example/pool/x_1.0_amd64.deb", portal.clone()),
            (307, "Location", "https://login.example/hotel", portal.clone()),
            (302, "Location", "//login.example/", portal),
            // A moved tree, a signed storage that keeps the name, another path of the same host, nonsense.
            (302, "Location", "http://other.example/debian/pool/x_1.0_amd64.deb", None),
            (302, "Location", "https://storage.example/a/x_1.0_amd64.deb?signature=1", None),
            (302, "Location", "https://deb.example/login", None),
            (302, "Location", "ftp://x", None),
            (302, "X", "y", None),
            (301, "Location", "http://login.example/", None),
            (511, "X", "y", Some(Look::LoginRequired)),
        ] {
            assert_eq!(look(status, name, value), wanted, "{status} {name}: {value}");
        }
    }

    #[test]
    fn a_portal_s_answer_for_an_index_looks_like_this() {
        let url = Url::parse("http://pypi.example/simple/six/").unwrap();
        let look = |status: u16, fields: &[(&'static str, &str)]| {
            let mut head = ResponseHead::new(status);
            fields.iter().for_each(|(name, value)| head.fields.push(name, *value));
            Look::of(&head, &url, Html::AsIndex)
        };
        const HTML: (&str, &str) = ("Content-Type", "text/html");
        assert_eq!(look(200, &[HTML, ("Content-Length", "7")]), Some(Look::PageOf(7, None)));
        let tagged = look(200, &[HTML, ("Content-Length", "7"), ("ETag", "\"a\"")]);
        assert_eq!(tagged, Some(Look::PageOf(7, Some(Box::from(&b"\"a\""[..])))));
        assert_eq!(look(200, &[HTML]), None, "of unknown length");
        assert_eq!(
            look(200, &[("Content-Type", "application/vnd.pypi.simple.v1+json"), ("Content-Length", "7")]),
            None
        );
        let to = |url: &str| look(302, &[("Location", url)]);
        assert!(matches!(to("http://login.example/"), Some(Look::Elsewhere(_))));
        assert_eq!((to("http://other.example/pypi/simple/six/"), to("https://other.example/six")), (None, None));
    }
}
