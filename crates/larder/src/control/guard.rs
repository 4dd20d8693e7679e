//! Access control of requests that come over TCP.

use super::Admin;
use super::{Reply, Through, page};
use crate::base64;
use crate::config::Secret;
use crate::manager::names_an_address;
use larder_wire::RequestHead;
use subtle::ConstantTimeEq;

/// Probes of a load balancer know no token, and learn nothing but that the server is there.
pub(super) const OPEN: [&str; 2] = ["/healthz", "/readyz"];

const TOKEN_NEEDED: &str = "others can connect to a listener of this server, so its page needs a token: set `admin_token`; \
                            the commands need none, for they ask by the control socket";

/// Admits a request, or gives the answer that refuses it.
///
/// Without a token nobody elsewhere can connect to anything of this server, and the question must name it by an address: a
/// web page elsewhere can make a browser send requests here under its own name (DNS rebinding). With a token the token
/// decides, and the files of the page, which say nothing, are for everybody: it asks for the token itself. A request
/// that came through a proxy is refused: its sender is unknown, and so is the cache that would get the answer.
pub(super) fn admit(admin: &Admin, request: &RequestHead, path: &str, through: Through) -> Result<(), Reply> {
    if through == Through::Socket {
        return Ok(());
    }
    if request.fields.contains("Via") {
        return Err(Reply::text(403, "this comes through a proxy: ask at the admin address itself"));
    }
    if is_of_another_page(request) && !page::is_at(path) {
        return Err(Reply::text(403, "a web page elsewhere asks this: open the page at its own address"));
    }
    let config = admin.common.live.value();
    match &config.admin_token {
        _ if OPEN.contains(&path) && names_an_address(request) => Ok(()),
        Some(_) if page::is_at(path) => Ok(()),
        Some(token) if is_sent(token, request) => Ok(()),
        Some(_) => Err(Reply::text(401, "send the admin token: `Authorization: Bearer …`, or as the password")),
        None if !config.is_of_this_machine() => Err(Reply::text(403, TOKEN_NEEDED)),
        None if names_an_address(request) => Ok(()),
        None => Err(Reply::text(403, "ask for this page by an address of this machine")),
    }
}

/// Whether the request's fields show that a web page elsewhere made a browser send it. Such a page cannot read the
/// answer, but it could take all permits for events, or keep the workers busy. Browsers say it in `Sec-Fetch-Site` (W3C
/// Fetch Metadata), older ones in `Origin` (RFC 6454 section 7); programs say neither. A link to the page itself is
/// welcome.
fn is_of_another_page(request: &RequestHead) -> bool {
    match (request.fields.text("Sec-Fetch-Site"), request.fields.text("Origin")) {
        (Some(site), _) => !matches!(site, "same-origin" | "none"),
        (None, Some(origin)) => {
            let here = request.fields.text("Host").unwrap_or_default();
            origin.split_once("://").is_none_or(|(_, authority)| !authority.eq_ignore_ascii_case(here))
        }
        (None, None) => false,
    }
}

/// Whether the request was made by a program and not by a form of some web page: a field of this name cannot be sent
/// across origins without a question that is not answered here.
pub(super) fn is_meant(request: &RequestHead) -> bool {
    request.fields.contains("X-Larder")
}

/// Compared in constant time, so that its letters cannot be found one after another.
fn is_sent(token: &Secret, request: &RequestHead) -> bool {
    let Some(value) = request.fields.text("Authorization") else { return false };
    let Some((scheme, credentials)) = value.split_once(' ') else { return false };
    let sent = match scheme {
        _ if scheme.eq_ignore_ascii_case("Bearer") => Some(credentials.trim().as_bytes().to_vec()),
        _ if scheme.eq_ignore_ascii_case("Basic") => password(credentials.trim()),
        _ => None,
    };
    sent.is_some_and(|sent| sent.ct_eq(token.reveal().as_bytes()).into())
}

/// The part behind the colon of `user:password` in Base64 (RFC 7617 section 2).
fn password(credentials: &str) -> Option<Vec<u8>> {
    let decoded = base64::decode(credentials)?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    Some(decoded[colon + 1..].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_stands_behind_the_first_colon() {
        assert_eq!(password("dTpwOnE="), Some(b"p:q".to_vec()));
        assert_eq!(password("dQ=="), None);
    }
}
