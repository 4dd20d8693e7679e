//! Hashes and signatures of bundles: SHA-256 and Ed25519 (RFC 8032), with keys in the form that OpenSSL writes.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A signature, and the key that it can be checked with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// `ed25519`.
    pub algorithm: String,
    /// The public key, in hexadecimal digits.
    pub key: String,
    /// The signature of the bytes of the manifest, in hexadecimal digits.
    pub signature: String,
}

const ALGORITHM: &str = "ed25519";

/// SHA-256 in hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

/// Signs with the key of a file in PEM.
pub fn sign(file: &Path, bytes: &[u8]) -> Result<Signature, String> {
    let fail = |reason: String| format!("--sign {}: {reason}", file.display());
    let key = PrivatePkcs8KeyDer::from_pem_file(file).map_err(|error| {
        fail(format!("no private key in PEM ({error}); make one with openssl genpkey -algorithm ed25519 -out FILE"))
    })?;
    let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key.secret_pkcs8_der())
        .map_err(|error| fail(format!("no Ed25519 key ({error})")))?;
    let signature = hex(key.sign(bytes).as_ref());
    Ok(Signature { algorithm: ALGORITHM.to_owned(), key: hex(key.public_key().as_ref()), signature })
}

impl Signature {
    /// Whether the key has signed these bytes.
    pub fn is_of(&self, bytes: &[u8]) -> bool {
        let (Some(key), Some(signature)) = (unhex(&self.key), unhex(&self.signature)) else { return false };
        self.algorithm == ALGORITHM && UnparsedPublicKey::new(&ED25519, key).verify(bytes, &signature).is_ok()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.bytes().map(|byte| char::from(byte).to_digit(16)).collect::<Option<Vec<u32>>>()?;
    let whole = digits.len() % 2 == 0;
    whole.then(|| digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}
