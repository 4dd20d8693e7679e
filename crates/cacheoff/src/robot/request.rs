//! Requests as bytes.

use super::{Kindred, Route, Wish, server_name};
use crate::ledger::Mode;
use crate::object::{Body, Law};
use crate::random::Seal;
use crate::wire::{Burden, ECHO, Tag, Xact, cookie_of, decimal, field, proxy_login_of};
use larder_wire::Version;
use larder_wire::date::{Stamp, format_date};
use std::io::Write;

/// Writes a request. `now` is in seconds since 1970.
pub fn write_request(
    law: &Law,
    (route, seal): (&Route, &Seal),
    version: Version,
    wish: &Wish,
    xact: Xact,
    now: u64,
    out: &mut Vec<u8>,
) {
    let method = match wish.kind {
        Kindred::Head => "HEAD",
        Kindred::Post(_) => "POST",
        Kindred::Put(_) => "PUT",
        Kindred::Purge => &route.purge,
        _ => "GET",
    };
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    if route.mode == Mode::Forward && !route.tls {
        out.extend_from_slice(b"http://");
        write_server(route, wish.name.server, out);
    }
    law.path(&wish.name, &wish.facts, out);
    out.push(b' ');
    out.extend_from_slice(version.as_str().as_bytes());
    out.extend_from_slice(b"\r\nHost: ");
    match route.mode {
        Mode::Reverse if !route.host.is_empty() && !route.names => out.extend_from_slice(route.host.as_bytes()),
        _ => write_server(route, wish.name.server, out),
    }
    out.extend_from_slice(b"\r\nAccept: */*\r\n");
    let cookie = wish.client.cookie.then(|| cookie_of(wish.client.number));
    let authorization = wish.client.logged_in.then(|| format!("Bearer robot-{:x}", wish.client.number));
    let digest = |value: &Option<String>| value.as_ref().map_or(0, |value| seal.digest(value.as_bytes()));
    let body_bytes = wish.kind.upload_bytes();
    out.extend_from_slice(ECHO.as_bytes());
    out.extend_from_slice(b": ");
    xact.write(Burden { cookie: digest(&cookie), authorization: digest(&authorization), body_bytes }, out);
    out.extend_from_slice(b"\r\n");
    // Through a tunnel the CONNECT has it.
    let at_proxy = wish.client.at_proxy && route.mode == Mode::Forward && !route.tls;
    let login = at_proxy.then(|| proxy_login_of(wish.client.number));
    for (name, value) in [("Cookie", cookie), ("Authorization", authorization), ("Proxy-Authorization", login)] {
        if let Some(value) = value {
            field(name, value.as_bytes(), out);
        }
    }
    // A part is one of the body as it is.
    if wish.variant > 0 && !wish.kind.is_partial() {
        field("Accept-Encoding", b"gzip", out);
    }
    if version == Version::Http10 {
        field("Connection", b"keep-alive", out);
    }
    if wish.expects {
        field("Expect", b"100-continue", out);
    }
    special(law, wish, xact, now, out);
}

/// Writes the authority of a visible server.
fn write_server(route: &Route, server: u32, out: &mut Vec<u8>) {
    let _ = match route.names {
        true => write!(out, "{}:{}", server_name(server), route.origin_port),
        false => write!(out, "{}:{}", route.server(server), route.origin_port),
    };
}

/// Writes the request for a tunnel to the origin of a server (RFC 9110 section 9.3.6).
pub fn write_connect(route: &Route, wish: &Wish, out: &mut Vec<u8>) {
    let end = route.end(wish.name.server);
    let _ = write!(out, "CONNECT {end} HTTP/1.1\r\nHost: {end}\r\n");
    if wish.client.at_proxy {
        field("Proxy-Authorization", proxy_login_of(wish.client.number).as_bytes(), out);
    }
    out.extend_from_slice(b"\r\n");
}

fn special(law: &Law, wish: &Wish, xact: Xact, now: u64, out: &mut Vec<u8>) {
    let modified = || law.version(&wish.name, &wish.facts, now).modified;
    match wish.kind {
        Kindred::ModifiedBefore => field("If-Modified-Since", &format_date(Stamp(modified().saturating_sub(1))), out),
        Kindred::ModifiedAfter => field("If-Modified-Since", &format_date(Stamp(modified() + 1)), out),
        Kindred::Reload => {
            field("Cache-Control", b"no-cache", out);
            field("Pragma", b"no-cache", out);
        }
        Kindred::Part(part) => {
            let _ = match part.suffix {
                true => write!(out, "Range: bytes=-{}\r\n", part.end - part.start),
                false => write!(out, "Range: bytes={}-{}\r\n", part.start, part.end - 1),
            };
        }
        Kindred::Parts(parts) => {
            out.extend_from_slice(b"Range: bytes=");
            for (number, range) in parts.ranges().enumerate() {
                let _ = write!(out, "{}{}-{}", if number == 0 { "" } else { "," }, range.start, range.end - 1);
            }
            out.extend_from_slice(b"\r\n");
        }
        Kindred::TagMatch => {
            let variant = if law.content(&wish.name).variants > 1 { wish.variant } else { 0 };
            let generation = law.version(&wish.name, &wish.facts, now).generation;
            out.extend_from_slice(b"If-None-Match: ");
            let seed = law.body(&wish.facts, generation, wish.user(law)).seed;
            Tag { seed, generation, variant }.write(out);
            out.extend_from_slice(b"\r\n");
        }
        Kindred::Post(bytes) | Kindred::Put(bytes) => {
            out.extend_from_slice(b"Content-Length: ");
            decimal(u64::from(bytes), out);
            out.extend_from_slice(b"\r\n");
        }
        Kindred::Basic | Kindred::Head | Kindred::Purge => {}
    }
    out.extend_from_slice(b"\r\n");
    if let Some(bytes) = wish.kind.upload_bytes() {
        let begins = out.len();
        out.resize(begins + bytes as usize, 0);
        Body::of_upload(xact.number, u64::from(bytes)).fill(0, &mut out[begins..]);
    }
}
