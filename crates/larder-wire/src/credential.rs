//! Which fields may hold what shows who somebody is, or lets somebody act as another: by their names, for nobody knows the
//! names of all programs. A field too many is hidden rather than one too few.

/// Words of a name that say it: a part between hyphens, underscores or dots.
const WORDS: [&str; 22] = [
    "key",
    "keys",
    "pwd",
    "pass",
    "sig",
    "sid",
    "cert",
    "certificate",
    "ticket",
    "otp",
    "totp",
    "pin",
    "dpop",
    "saml",
    "sso",
    "bearer",
    "auth",
    "nonce",
    "hmac",
    "oauth",
    "oauth2",
    "sess",
];

/// Parts of a name that mark a credential wherever in the name they stand.
const PARTS: [&str; 16] = [
    "authoriz",
    "authentic",
    "authtok",
    "cookie",
    "token",
    "secret",
    "passw",
    "passphrase",
    "credential",
    "session",
    "jwt",
    "signature",
    "assertion",
    "csrf",
    "xsrf",
    "apikey",
];

/// Names that sound like it and say what is public: what answers are filed under.
const PUBLIC: [&str; 4] = ["surrogate-key", "cache-key", "x-cache-key", "x-surrogate-key"];

/// Whether a field of this name may hold credentials.
pub fn is_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let mut words = name.split(['-', '_', '.']);
    !PUBLIC.contains(&&*name)
        && (words.any(|word| WORDS.contains(&word)) || PARTS.iter().any(|part| name.contains(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_known_by_their_names() {
        for name in [
            "Authorization",
            "Proxy-Authorization",
            "Authentication-Info",
            "WWW-Authenticate",
            "Proxy-Authenticate",
            "Cookie",
            "Cookie2",
            "Set-Cookie",
            "X-Api-Key",
            "Api-Key",
            "apikey",
            "X-ApiKey",
            "X-Auth-Token",
            "X-Auth",
            "PRIVATE-TOKEN",
            "Job-Token",
            "X-Amz-Security-Token",
            "X-Amz-Credential",
            "X-Amz-Signature",
            "Signature",
            "Signature-Input",
            "X-Hub-Signature-256",
            "Ocp-Apim-Subscription-Key",
            "X-CSRF-Token",
            "X-XSRF-TOKEN",
            "X-Session-Id",
            "X-SID",
            "X-Vault-Token",
            "X-JWT-Assertion",
            "DPoP",
            "X-Forwarded-Access-Token",
            "X-Client-Cert",
            "Ssl-Client-Cert",
            "X-Password",
            "X-Passwd",
            "X_Secret_Thing",
            "client.secret",
            "X-OTP",
            "X-Goog-Iam-Authorization-Token",
            "Sec-WebSocket-Key",
        ] {
            assert!(is_credential(name), "{name}");
        }
    }

    #[test]
    fn other_fields_stay_open() {
        for name in [
            "Host",
            "Accept",
            "Accept-Encoding",
            "User-Agent",
            "Cache-Control",
            "Content-Type",
            "Content-Security-Policy",
            "Date",
            "ETag",
            "If-None-Match",
            "Surrogate-Key",
            "xkey",
            "Cache-Tag",
            "Via",
            "Forwarded",
            "X-Forwarded-For",
            "X-Request-Id",
            "traceparent",
            "Keep-Alive",
            "Upgrade",
            "Max-Forwards",
            "Author",
            "X-Authority",
            "X-Compass",
            "Monkey",
            "X-Cache-Key",
            "Vary",
            "Age",
            "",
        ] {
            assert!(!is_credential(name), "{name}");
        }
    }
}
