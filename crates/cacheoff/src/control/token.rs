//! The token that coordinator and agents share, and the proof that an end of a TLS connection has it.
//!
//! The certificates of the control connections are made for the day and signed by nobody. The token is trusted instead: each
//! end sends HKDF-Expand over its role and the exporter of this very connection (RFC 5705, RFC 8446 section 7.5), keyed by
//! the token. Somebody between the two has two connections with two exporters, and can make neither proof from the other.

use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use std::fmt;
use std::fs::Metadata;
use std::hint::black_box;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Shorter tokens can be guessed from a proof.
const CHARACTERS_MIN: usize = 32;
/// A longer file is something else.
const CHARACTERS_MAX: usize = 4096;
/// Bytes of a proof, and of the exporter that it is over.
pub(super) const PROOF_BYTES: usize = 32;

/// The shared secret.
#[derive(Clone)]
pub struct Token(Vec<u8>);

/// The end of a connection that makes a proof.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    /// The one that connected.
    Coordinator,
    /// The one that listens.
    Agent,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// The token in a file that nobody else may read.
    pub fn read(path: &Path) -> Result<Self, String> {
        let place = path.display();
        let unreadable = |error| format!("the token file {place} cannot be read: {error}");
        let facts: Metadata = std::fs::metadata(path).map_err(unreadable)?;
        if facts.mode() & 0o077 != 0 {
            return Err(format!("the token file {place} can be read by others: chmod 600 it"));
        }
        if facts.len() > CHARACTERS_MAX as u64 {
            return Err(format!("the token file {place} has more than {CHARACTERS_MAX} bytes: it is no token"));
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Self::new(text.trim()).map_err(|reason| format!("the token file {place}: {reason}"))
    }

    /// A token of these characters.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.len() < CHARACTERS_MIN {
            return Err(format!(
                "a token has {CHARACTERS_MIN} characters and more: make one with `head -c 32 /dev/urandom | base64`"
            ));
        }
        Ok(Self(text.as_bytes().to_vec()))
    }

    /// The proof of one end of a connection with this exporter.
    pub(super) fn proof(&self, role: Role, exporter: &[u8; PROOF_BYTES]) -> Result<[u8; PROOF_BYTES], String> {
        let suite = TLS13_AES_128_GCM_SHA256.tls13().ok_or("this build has no TLS 1.3")?;
        let name: &[u8] = match role {
            Role::Coordinator => b"cacheoff control, coordinator",
            Role::Agent => b"cacheoff control, agent",
        };
        let key = suite.hkdf_provider.extract_from_secret(None, &self.0);
        let mut proof = [0; PROOF_BYTES];
        key.expand_slice(&[name, exporter], &mut proof).map_err(|_| "no proof of this length can be made")?;
        Ok(proof)
    }
}

/// Whether two proofs are the same, in a time that does not tell where they differ.
pub(super) fn is_same(one: &[u8; PROOF_BYTES], other: &[u8; PROOF_BYTES]) -> bool {
    black_box(one.iter().zip(other).fold(0, |found, (one, other)| found | (one ^ other))) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_proof_depends_on_token_role_and_connection() {
        let [one, other] = ["x", "y"].map(|letter| Token::new(&letter.repeat(32)).unwrap());
        let proof = one.proof(Role::Agent, &[7; 32]).unwrap();
        assert!(is_same(&proof, &one.proof(Role::Agent, &[7; 32]).unwrap()));
        for differs in [
            one.proof(Role::Coordinator, &[7; 32]),
            one.proof(Role::Agent, &[8; 32]),
            other.proof(Role::Agent, &[7; 32]),
        ] {
            assert!(!is_same(&proof, &differs.unwrap()));
        }
    }

    #[test]
    fn a_token_that_is_short_or_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let read = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            Token::read(&path).map(|_| ())
        };
        assert_eq!(read(&format!("{}\n", "x".repeat(32)), 0o600), Ok(()));
        assert!(read(&"x".repeat(31), 0o600).unwrap_err().contains("32 characters"));
        assert!(read(&"x".repeat(32), 0o640).unwrap_err().contains("chmod 600"));
        assert!(read(&"x".repeat(5000), 0o600).unwrap_err().contains("no token"));
        assert!(Token::read(&folder.path().join("none")).unwrap_err().contains("cannot be read"));
    }
}
