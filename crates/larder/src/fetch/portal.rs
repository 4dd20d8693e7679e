//! Captive portals: networks that answer each request over plain HTTP with a page of their own until somebody has logged in (RFC 8952, RFC 6585
//! section 6). Over TLS they can't: there the certificate is wrong.
//!
//! Where a store rule knows that a URL never has HTML (`never_html`), a page in its place is not stored. A `larder run` gets the stored
//! file instead, once a second question has shown that the network answers everything so: a site that really has put a page in the
//! place of a file answers another thing for a path that it does not have (decision 049).

use super::Fetch;
use super::ask::OriginAnswer;
use crate::clock;
use crate::upstream::{Call, UpstreamFault, UpstreamFaultKind};
use larder_cache::policy::{self, Asked, Terms};
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
    /// A redirection to another host and another file.
    Elsewhere(Host),
    /// The status that RFC 6585 has for portals alone.
    LoginRequired,
}

impl Look {
    /// The look of an answer for a URL that never has HTML.
    fn of(head: &ResponseHead, url: &Url) -> Option<Look> {
        match head.status {
            200 if is_html(head) => Some(Look::Page),
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
        let look = Look::of(head, &self.ask.url)?;
        (look == Look::LoginRequired || self.is_never_html()).then_some(look)
    }

    async fn judge_portal(&self, answer: OriginAnswer, look: Look) -> Result<OriginAnswer, UpstreamFault> {
        if look != Look::LoginRequired && !self.probe_looks_so(&look).await {
            return Ok(answer);
        }
        let permits = |terms: &Terms, asked: &Asked, now: Stamp, _: &policy::Settings| {
            let overdue = terms.age(now).saturating_sub(terms.lifetime);
            overdue <= STALE_SECONDS_MAX && policy::disconnected(terms, &asked.without_network(), now)
        };
        if self.stale_instead(permits).is_none() {
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
            method: &Method::Get,
            target: PROBE,
            fields: &fields,
            body: None,
            reach: &self.env.reach(self.ask.asker()),
            client: None,
            begins: clock::instant().into(),
            silent_for: None,
            on: &|_| {},
        };
        let answer = tokio::time::timeout(PROBE_WITHIN, self.env.upstreams.call(&mut call)).await;
        let look_of_probe = answer.ok().and_then(Result::ok).and_then(|answer| Look::of(&answer.head, &url));
        look_of_probe.is_some_and(|found| found == *look || found == Look::LoginRequired)
    }
}

fn is_html(head: &ResponseHead) -> bool {
    let value = head.fields.get("Content-Type").unwrap_or_default();
    let essence = trim(value.split(|&byte| byte == b';').next().unwrap_or_default());
    [b"text/html".as_slice(), b"application/xhtml+xml"].iter().any(|html| essence.eq_ignore_ascii_case(html))
}

fn last_segment(url: &Url) -> &str {
    let path = url.path.split('?').next().unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default()
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
            Look::of(&head, &url)
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
}
