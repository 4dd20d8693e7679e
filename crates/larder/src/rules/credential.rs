//! Answers that are stored for one credential (`by_credential` of a store rule): shared by all who present it, and by nobody else.
//!
//! The key of such an answer begins with a hash of the value of `Authorization`, made with a secret of the store. Within that key the
//! credential makes no difference any more, so look-up and policy see the request without it, and origins get it back.

use crate::credential_secret::CredentialSecret;
use larder_wire::{Fields, RequestHead};
use std::fmt;

const FIELD: &str = "Authorization";

/// The value of `Authorization`. Nothing shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    value: Box<[u8]>,
    /// The hash in hexadecimal digits.
    hash: Box<str>,
    /// The rule, as people find it.
    pub(super) rule: Box<str>,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credential({})", self.hash)
    }
}

impl Credential {
    /// The credential of a request that has one, and no other field that may say who asks. Without `secret`, where a configuration is asked
    /// without its server, the hash is not known; with a secret that can't be had there is no such key.
    pub(super) fn of(request: &RequestHead, rule: Box<str>, secret: Option<&CredentialSecret>) -> Option<Credential> {
        let value = request.fields.get(FIELD).filter(|_| request.fields.count(FIELD) == 1)?;
        if larder_cache::policy::may_say_who_asks(&without(request).fields) {
            return None;
        }
        let hash = match secret {
            None => "of-the-server".into(),
            Some(secret) => secret.hash(value)?,
        };
        Some(Credential { value: value.into(), hash, rule })
    }

    /// Writes what stands before the URL in the key. No URL has a space.
    pub(super) fn begin_key(&self, key: &mut Vec<u8>) {
        key.extend_from_slice(b"credential:");
        key.extend_from_slice(self.hash.as_bytes());
        key.extend_from_slice(b" => ");
    }

    /// Puts the credential into the fields for an origin.
    pub fn put_into(&self, fields: &mut Fields) {
        fields.set(FIELD, &*self.value);
    }
}

/// A request without its credential.
pub(super) fn without(request: &RequestHead) -> RequestHead {
    let mut request = request.clone();
    request.fields.remove(FIELD);
    request
}
