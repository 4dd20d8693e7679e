//! Bearer tokens that are JSON Web Tokens (RFC 7519), checked by the public keys of a JWKS (RFC 7517).
//!
//! RS256, RS384, RS512, PS256 and so on, ES256, ES384 and EdDSA. `none` and HMAC are refused whatever the token says: with them a public
//! key would be a shared secret (RFC 8725 section 3.1).

use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, JwkSet};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::Value;

/// A longer token is refused, in bytes.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;

/// Tolerance between the clocks of this machine and the issuer's, in seconds.
const LEEWAY_SECONDS: u64 = 30;

/// Groups that are taken from one token.
const GROUPS_MAX: usize = 256;

/// The demands that a token has to meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRules {
    /// The issuer (`iss`).
    pub issuer: String,
    /// One of these has to be in the audience (`aud`).
    pub audience: Vec<String>,
    /// The claim that is the name of the user.
    pub user_claim: String,
    /// The claim that has the user's groups.
    pub groups_claim: String,
}

/// The keys of an issuer.
#[derive(Clone, Debug, PartialEq)]
pub struct Keys {
    set: Vec<Jwk>,
}

/// A token that was found to be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The user.
    pub user: String,
    /// Its groups.
    pub groups: Vec<String>,
    /// Until when it counts, in seconds since 1970.
    pub until: u64,
}

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFault {
    /// It is no token, or lacks something.
    Malformed,
    /// Its algorithm is none that is permitted, or not that of its key.
    Algorithm,
    /// No key has its name.
    Key,
    /// The signature is wrong.
    Signature,
    /// It is over, or has not begun.
    Time,
    /// It is of another issuer, or for another audience.
    Foreign,
}

impl TokenFault {
    /// A word for logs.
    pub fn as_str(self) -> &'static str {
        match self {
            TokenFault::Malformed => "malformed",
            TokenFault::Algorithm => "algorithm",
            TokenFault::Key => "unknown key",
            TokenFault::Signature => "signature",
            TokenFault::Time => "expired",
            TokenFault::Foreign => "other issuer or audience",
        }
    }
}

impl Keys {
    /// Reads a JWKS. Keys that are no public ones of a known kind are left out; `Err` where none is left.
    pub fn parse(text: &str) -> Result<Keys, String> {
        // One by one: a key of a kind that is not known yet must not take the others with it.
        let document: Value = serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
        let listed = document.get("keys").and_then(Value::as_array).ok_or("no JWKS: it lacks `keys`")?;
        let read = |key: &Value| serde_json::from_value::<Jwk>(key.clone()).ok();
        let set = JwkSet { keys: listed.iter().filter_map(read).collect() };
        let set: Vec<Jwk> = set.keys.into_iter().filter(|key| !algorithms(key).is_empty()).collect();
        if set.is_empty() {
            return Err("no public key of RSA, P-256, P-384 or Ed25519".to_owned());
        }
        Ok(Keys { set })
    }

    /// Checks a token at this time, in seconds since 1970.
    pub fn check(&self, token: &str, rules: &TokenRules, now_seconds: u64) -> Result<Claims, TokenFault> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenFault::Malformed);
        }
        let header = jsonwebtoken::decode_header(token).map_err(|_| TokenFault::Algorithm)?;
        let named = |key: &&Jwk| match &header.kid {
            Some(kid) => key.common.key_id.as_ref() == Some(kid),
            // Without a name there must be no choice.
            None => self.set.len() == 1,
        };
        let key = self.set.iter().find(named).ok_or(TokenFault::Key)?;
        if !algorithms(key).contains(&header.alg) {
            return Err(TokenFault::Algorithm);
        }
        let decoding = DecodingKey::from_jwk(key).map_err(|_| TokenFault::Key)?;
        let mut validation = Validation::new(header.alg);
        // Times, issuer and audience are judged below, by the time that the caller says.
        validation.required_spec_claims.clear();
        (validation.validate_exp, validation.validate_nbf, validation.validate_aud) = (false, false, false);
        let claims = jsonwebtoken::decode::<Value>(token, &decoding, &validation).map_err(|_| TokenFault::Signature)?;
        judge(&claims.claims, rules, now_seconds)
    }
}

/// The algorithms for which a key may be used: those of its kind, or the one that it names.
fn algorithms(key: &Jwk) -> Vec<Algorithm> {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    use jsonwebtoken::jwk::EllipticCurve;
    let of_kind: &[Algorithm] = match &key.algorithm {
        AlgorithmParameters::RSA(_) => &[RS256, RS384, RS512, PS256, PS384, PS512],
        AlgorithmParameters::EllipticCurve(curve) => match curve.curve {
            EllipticCurve::P256 => &[ES256],
            EllipticCurve::P384 => &[ES384],
            _ => &[],
        },
        AlgorithmParameters::OctetKeyPair(_) => &[EdDSA],
        _ => &[],
    };
    let named = key.common.key_algorithm.map(|name| name.to_string());
    let fits = |algorithm: &&Algorithm| named.as_ref().is_none_or(|name| *name == format!("{algorithm:?}"));
    of_kind.iter().filter(fits).copied().collect()
}

fn judge(claims: &Value, rules: &TokenRules, now_seconds: u64) -> Result<Claims, TokenFault> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    let time = |name: &str| claims.get(name).and_then(Value::as_f64).map(|seconds| seconds.max(0.0) as u64);
    if text("iss") != Some(&rules.issuer) {
        return Err(TokenFault::Foreign);
    }
    let audience: Vec<&str> = match claims.get("aud") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !rules.audience.iter().any(|wanted| audience.contains(&wanted.as_str())) {
        return Err(TokenFault::Foreign);
    }
    // A token without an end would outlive its user.
    let until = time("exp").ok_or(TokenFault::Malformed)?.saturating_add(LEEWAY_SECONDS);
    let begins = time("nbf").unwrap_or(0);
    if now_seconds >= until || begins > now_seconds.saturating_add(LEEWAY_SECONDS) {
        return Err(TokenFault::Time);
    }
    let user = text(&rules.user_claim).ok_or(TokenFault::Malformed)?;
    if user.is_empty() || user.len() > crate::authorization::USER_BYTES_MAX || user.contains(char::is_control) {
        return Err(TokenFault::Malformed);
    }
    let groups = match claims.get(&rules.groups_claim) {
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).take(GROUPS_MAX).map(str::to_owned).collect(),
        Some(Value::String(words)) => words.split_ascii_whitespace().take(GROUPS_MAX).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    Ok(Claims { user: user.to_owned(), groups, until })
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
    };
    use serde_json::json;

    const NOW: u64 = 1_800_000_000;

    fn base64url(bytes: &[u8]) -> String {
        const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut out = String::new();
        for part in bytes.chunks(3) {
            let bits = part.iter().enumerate().fold(0_u32, |bits, (at, byte)| bits | u32::from(*byte) << (16 - 8 * at));
            for at in 0..=part.len() {
                out.push(char::from(LETTERS[(bits >> (18 - 6 * at) & 63) as usize]));
            }
        }
        out
    }

    /// Signs a text.
    type Sign<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;

    fn token(header: &Value, claims: &Value, sign: Sign<'_>) -> String {
        let text = format!("{}.{}", base64url(header.to_string().as_bytes()), base64url(claims.to_string().as_bytes()));
        let signature = base64url(&sign(text.as_bytes()));
        format!("{text}.{signature}")
    }

    fn rules() -> TokenRules {
        TokenRules {
            issuer: "https://id.test".to_owned(),
            audience: vec!["cache".to_owned()],
            user_claim: "sub".to_owned(),
            groups_claim: "groups".to_owned(),
        }
    }

    fn claims() -> Value {
        json!({"iss": "https://id.test", "aud": ["other", "cache"], "sub": "ada", "groups": ["staff"], "exp": NOW + 60})
    }

    /// An Ed25519 key named `e`, its JWKS, and its signatures.
    fn ed25519() -> (Ed25519KeyPair, Value) {
        let pair = Ed25519KeyPair::generate().unwrap();
        let key = json!({"kty": "OKP", "crv": "Ed25519", "kid": "e", "x": base64url(pair.public_key().as_ref())});
        (pair, key)
    }

    #[test]
    fn tokens_of_all_kinds_of_keys() {
        let random = SystemRandom::new();
        let (pair, key) = ed25519();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let curve = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref()).unwrap();
        let point = curve.public_key().as_ref()[1..].to_vec();
        let of_curve = json!({"kty": "EC", "crv": "P-256", "kid": "c", "alg": "ES256", "x": base64url(&point[..32]), "y": base64url(&point[32..])});
        let rsa = RsaKeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
        let (modulus, exponent) = (rsa.public_key().modulus(), rsa.public_key().exponent());
        let of_rsa = json!({"kty": "RSA", "kid": "r", "n": base64url(modulus.big_endian_without_leading_zero()), "e": base64url(exponent.big_endian_without_leading_zero())});
        let shared = json!({"kty": "oct", "kid": "h", "k": "c2VjcmV0"});
        let keys = Keys::parse(&json!({"keys": [key, of_curve, of_rsa, shared, {"kty": "new"}]}).to_string()).unwrap();
        assert_eq!(keys.set.len(), 3, "a shared secret is no public key");
        let sign_rsa = |text: &[u8]| {
            let mut signature = vec![0; rsa.public_modulus_len()];
            rsa.sign(&RSA_PKCS1_SHA256, &random, text, &mut signature).unwrap();
            signature
        };
        let signers: [(&str, &str, Sign<'_>); 3] = [
            ("EdDSA", "e", &|text| pair.sign(text).as_ref().to_vec()),
            ("ES256", "c", &|text| curve.sign(&random, text).unwrap().as_ref().to_vec()),
            ("RS256", "r", &sign_rsa),
        ];
        for (algorithm, kid, sign) in signers {
            let right = token(&json!({"alg": algorithm, "kid": kid}), &claims(), sign);
            let found = keys.check(&right, &rules(), NOW);
            let wanted = Claims { user: "ada".to_owned(), groups: vec!["staff".to_owned()], until: NOW + 90 };
            assert_eq!(found, Ok(wanted), "{algorithm}");
            let other = token(&json!({"alg": algorithm, "kid": kid}), &claims(), &|_| sign(b"other"));
            assert_eq!(keys.check(&other, &rules(), NOW), Err(TokenFault::Signature), "{algorithm}");
            let confused =
                token(&json!({"alg": algorithm, "kid": if kid == "e" { "r" } else { "e" }}), &claims(), sign);
            assert_eq!(keys.check(&confused, &rules(), NOW), Err(TokenFault::Algorithm), "{algorithm}");
        }
    }

    #[test]
    fn tokens_that_are_refused() {
        let (pair, key) = ed25519();
        let public = pair.public_key().as_ref().to_vec();
        let keys = Keys::parse(&json!({"keys": [key]}).to_string()).unwrap();
        let header = json!({"alg": "EdDSA", "kid": "e"});
        let sign = |text: &[u8]| pair.sign(text).as_ref().to_vec();
        let with = |name: &str, value: Value| {
            let mut claims = claims();
            claims[name] = value;
            claims
        };
        for (what, claims, wanted) in [
            ("expired", with("exp", json!(NOW - 31)), TokenFault::Time),
            ("without an end", with("exp", Value::Null), TokenFault::Malformed),
            ("too early", with("nbf", json!(NOW + 31)), TokenFault::Time),
            ("another issuer", with("iss", json!("https://id.test.evil")), TokenFault::Foreign),
            ("another audience", with("aud", json!("other")), TokenFault::Foreign),
            ("no audience", with("aud", Value::Null), TokenFault::Foreign),
            ("no user", with("sub", json!("")), TokenFault::Malformed),
            ("a user with a line end", with("sub", json!("a\nb")), TokenFault::Malformed),
        ] {
            assert_eq!(keys.check(&token(&header, &claims, &sign), &rules(), NOW), Err(wanted), "{what}");
        }
        let within_leeway = token(&header, &with("exp", json!(NOW - 29)), &sign);
        assert!(keys.check(&within_leeway, &rules(), NOW).is_ok());
        for (what, header, wanted) in [
            ("none", json!({"alg": "none", "kid": "e"}), TokenFault::Algorithm),
            ("an HMAC with the public key", json!({"alg": "HS256", "kid": "e"}), TokenFault::Algorithm),
            ("an unknown key", json!({"alg": "EdDSA", "kid": "x"}), TokenFault::Key),
        ] {
            let hmac = |text: &[u8]| {
                let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &public);
                aws_lc_rs::hmac::sign(&key, text).as_ref().to_vec()
            };
            assert_eq!(keys.check(&token(&header, &claims(), &hmac), &rules(), NOW), Err(wanted), "{what}");
        }
        for text in ["", "a.b", "a.b.c", "....", &"a".repeat(TOKEN_BYTES_MAX + 1)] {
            assert!(keys.check(text, &rules(), NOW).is_err());
        }
    }

    #[test]
    fn a_set_without_a_public_key_is_none() {
        for text in ["", "{}", r#"{"keys": []}"#, r#"{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}"#] {
            assert!(Keys::parse(text).is_err(), "{text}");
        }
    }
}
