//! Requests to a container registry for clients of its mirror: tokens are got, redirects to storage are followed, and what a
//! digest names is kept for long (OCI distribution specification; the token flow is that of the reference registry).

use super::Fetch;
use super::ask::OriginAnswer;
use crate::clock;
use crate::config::Mirror;
use crate::tokens::{Challenge, Token, basic};
use crate::upstream::{BodySource, Call, UpstreamFault};
use larder_wire::target::resolve;
use larder_wire::{Fields, Method, ResponseHead, Scheme, Url};
use std::sync::Arc;

/// Redirects that are followed for one request.
const REDIRECTS_MAX: usize = 5;

/// The answer of a token server is not longer.
const TOKEN_ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The lifetime of content that its digest names: other content would have another name.
const IMMUTABLE: &str = "public, max-age=31536000, immutable";

impl Fetch {
    /// Sends the request to the registry, with a token where the registry wants one, and follows its redirects.
    pub(super) async fn ask_registry(
        &mut self,
        registry: &Mirror,
        fields: &Fields,
    ) -> Result<OriginAnswer, UpstreamFault> {
        let scope = scope(registry, &self.ask.url);
        let url = self.ask.url.clone();
        let mut authorized = fields.clone();
        let known = self.env.common.tokens.get(&scope, clock::instant());
        if let Some(token) = &known {
            authorized.set("Authorization", &**token);
        }
        let mut answer = self.send(&url, &url.path, &authorized, None).await?;
        if answer.head.status == 401 {
            self.env.common.tokens.forget(&scope);
            let Some(value) = self.authorization(registry, scope, &answer.head).await else { return Ok(answer) };
            authorized.set("Authorization", &*value);
            drop(answer);
            self.begin_attempt();
            answer = self.send(&url, &url.path, &authorized, None).await?;
        }
        let mut answer = self.follow(url, &authorized, answer).await?;
        settle(&self.ask.url, &mut answer.head);
        Ok(answer)
    }

    /// The value of `Authorization` that the registry asks for; `None` where there is none to be had.
    async fn authorization(&self, registry: &Mirror, scope: String, refusal: &ResponseHead) -> Option<Arc<str>> {
        let credentials = registry.credentials.as_ref().map(|secret| basic(secret.reveal()));
        let realm = match Challenge::of(refusal.fields.get_all("WWW-Authenticate"))? {
            Challenge::Basic => return credentials.map(Arc::from),
            Challenge::Bearer(realm) => realm,
        };
        // A token for a registry that is asked in the clear may go in the clear, no other.
        if realm.scheme == Scheme::Http && registry.origin.scheme == Scheme::Https {
            return None;
        }
        let mut fields = Fields::new();
        fields.push("Host", realm.authority());
        fields.push("Accept", "application/json");
        if let Some(credentials) = credentials {
            fields.push("Authorization", credentials);
        }
        let mut call = Call {
            to: &realm,
            tls_name: None,
            method: &Method::Get,
            target: &realm.path,
            fields: &fields,
            body: None,
            reach: &self.ask.reach(&self.env),
            client: None,
            priority: self.ask.priority(),
            begins: self.begin_attempt().into(),
            silent_for: None,
            http2: self.env.config().upstream.http2,
            proxy_protocol: None,
            proxied: None,
            on: &|_| {},
        };
        let response = self.env.upstreams.call(&mut call).await.ok().filter(|response| response.head.status == 200)?;
        let token = Token::read(&whole(response.body).await?)?;
        Some(self.env.common.tokens.put(scope, &token, clock::instant()))
    }

    /// Follows redirects, as the registry's clients would: the blob is then stored under the URL that has its digest, not under
    /// a signed one. Credentials stay at the registry.
    async fn follow(
        &self,
        mut url: Url,
        fields: &Fields,
        mut answer: OriginAnswer,
    ) -> Result<OriginAnswer, UpstreamFault> {
        let mut fields = fields.clone();
        for _ in 0..REDIRECTS_MAX {
            let next = match answer.head.status {
                301 | 302 | 303 | 307 | 308 => answer.head.fields.text("Location").and_then(|text| resolve(&url, text)),
                _ => None,
            };
            let Some(next) = next.filter(|next| next.scheme == Scheme::Https || url.scheme == Scheme::Http) else {
                break;
            };
            if (next.scheme, &next.host, next.port) != (url.scheme, &url.host, url.port) {
                fields.remove("Authorization");
                // A rule has set them for the registry.
                self.ask.names_set().for_each(|name| _ = fields.remove(name));
                fields.set("Host", next.authority());
            }
            drop(answer);
            self.begin_attempt();
            answer = self.send(&next, &next.path, &fields, None).await?;
            answer.followed_to = Some(next.host.clone());
            url = next;
        }
        Ok(answer)
    }
}

/// The name under which a token is kept: registry, user and repository.
fn scope(registry: &Mirror, url: &Url) -> String {
    let user = registry.credentials.as_ref().map_or("", |secret| secret.reveal());
    let repository = ["/manifests/", "/blobs/", "/tags/", "/referrers/"].iter().find_map(|part| {
        let at = url.path.rfind(part)?;
        url.path.get(..at)
    });
    format!("{} {user} {}", *registry.origin, repository.unwrap_or(&url.path))
}

/// Whether a path names its content by a digest.
fn is_by_digest(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let is_digest = |text: &str| {
        let hex = text.strip_prefix("sha256:").filter(|hex| hex.len() == 64);
        let hex = hex.or_else(|| text.strip_prefix("sha512:").filter(|hex| hex.len() == 128));
        hex.is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    ["/blobs/", "/manifests/"].iter().any(|part| path.rsplit_once(part).is_some_and(|(_, digest)| is_digest(digest)))
}

/// Gives the answer the lifetime that its name has. Content with a digest for its name can't change, whatever storage says of it. The
/// answer to a tag depends on the types that the client accepts, which few registries say.
fn settle(url: &Url, head: &mut ResponseHead) {
    if is_by_digest(&url.path) && matches!(head.status, 200 | 206) {
        ["Expires", "Pragma", "Vary", "Set-Cookie", "Age"].iter().for_each(|name| _ = head.fields.remove(name));
        head.fields.set("Cache-Control", IMMUTABLE);
    } else if url.path.contains("/manifests/") && !head.fields.has_member("Vary", "Accept") {
        head.fields.push("Vary", "Accept");
    }
}

async fn whole(mut body: BodySource) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(piece) = body.next().await.ok()? {
        if all.len() + piece.len() > TOKEN_ANSWER_BYTES_MAX {
            return None;
        }
        all.extend_from_slice(&piece);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_that_a_digest_names_is_kept() {
        let digest = "sha256:".to_owned() + &"0a".repeat(32);
        let head = |path: &str| {
            let mut head = ResponseHead::new(200);
            head.fields.push("Cache-Control", "private, no-store");
            settle(&Url::parse(&format!("https://r.test/v2/a/{path}")).unwrap(), &mut head);
            format!("{} {}", head.fields.text("Cache-Control").unwrap(), head.fields.text("Vary").unwrap_or_default())
        };
        assert_eq!(head(&format!("blobs/{digest}")), format!("{IMMUTABLE} "));
        assert_eq!(head(&format!("manifests/{digest}?x")), format!("{IMMUTABLE} "));
        assert_eq!(head("manifests/latest"), "private, no-store Accept");
        assert_eq!(head(&format!("manifests/{digest}0")), "private, no-store Accept");
        assert_eq!(head("blobs/sha256:zz"), "private, no-store ");
    }
}
