//! Whether a request says who sends it.
//!
//! Where an origin says how long an answer lives, it has said who may have it, and only `Authorization` counts
//! ([`super::audience`]). Where it says nothing at all and we give a lifetime of our own, we must know that the answer does
//! not depend on who asked. No list of the fields that carry credentials is complete (`X-Api-Key`, `PRIVATE-TOKEN`, whatever
//! the next service calls it), so the rule is the other way round: any field counts that is not known to be harmless.

use larder_wire::Fields;

/// Fields of which it is known that they say nothing of who asks: those of RFC 9110 to 9112 for negotiation, conditions,
/// ranges, connections, caches and the form of a body; what browsers tell of the fetch; what proxies add; what package tools tell of themselves.
/// In lower case, sorted. `Proxy-Authorization` is for us, not for the origin.
const HARMLESS: [&str; 58] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "alt-used",
    "available-dictionary",
    "cache-control",
    "cargo-protocol",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "date",
    "disable-module-fetch",
    "dnt",
    "docker-distribution-api-version",
    "expect",
    "forwarded",
    "git-protocol",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "max-forwards",
    "npm-auth-type",
    "npm-command",
    "npm-in-ci",
    "npm-scope",
    "npm-session",
    "pacote-integrity",
    "pacote-pkg-id",
    "pacote-req-type",
    "pacote-version",
    "pragma",
    "priority",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "referer",
    "save-data",
    "te",
    "traceparent",
    "tracestate",
    "transfer-encoding",
    "upgrade-insecure-requests",
    "user-agent",
    "via",
    "want-digest",
    "x-amzn-trace-id",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-hf-download-counter",
];

/// Beginnings of fields with which browsers describe a fetch and the device.
const HARMLESS_STARTS: [&str; 2] = ["sec-fetch-", "sec-ch-"];

/// The longest of the names above is shorter.
const NAME_BYTES_MAX: usize = 48;

/// True when some field may say who asks.
pub fn may_say_who_asks(fields: &Fields) -> bool {
    fields.iter().any(|(name, _)| may_be_credential(name))
}

/// True when a field of this name may say who asks.
pub fn may_be_credential(name: &str) -> bool {
    !is_harmless(name)
}

fn is_harmless(name: &str) -> bool {
    let mut lower = [0; NAME_BYTES_MAX];
    let Some(lower) = lower.get_mut(..name.len()) else { return false };
    lower.copy_from_slice(name.as_bytes());
    lower.make_ascii_lowercase();
    let lower = std::str::from_utf8(lower).unwrap_or_default();
    HARMLESS.binary_search(&lower).is_ok() || HARMLESS_STARTS.iter().any(|start| lower.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_is_not_known_counts() {
        assert!(HARMLESS.is_sorted());
        assert!(HARMLESS.iter().all(|name| name.len() < NAME_BYTES_MAX && *name == name.to_ascii_lowercase()));
        let who = |names: &[&str]| {
            let mut fields = Fields::new();
            names.iter().for_each(|name| fields.push(name, "x"));
            may_say_who_asks(&fields)
        };
        assert!(!who(&[]));
        assert!(!who(&[
            "Host",
            "User-Agent",
            "Accept",
            "ACCEPT-ENCODING",
            "Sec-Fetch-Mode",
            "Cargo-Protocol",
            "X-Amzn-Trace-Id"
        ]));
        for name in [
            "Authorization",
            "Cookie",
            "X-Api-Key",
            "X-Auth-Token",
            "PRIVATE-TOKEN",
            "X-Vault-Token",
            "From",
            "X-User",
            "Unheard-Of",
            "X-Amz-Security-Token",
            "A-name-that-is-longer-than-any-that-is-known-to-be-harmless",
        ] {
            assert!(who(&["Host", name]) && may_be_credential(name), "{name}");
        }
    }
}
