//! The sessions of a login of page: an address is the user who has logged in from it. And the seals of its forms: what a client sends back is
//! what this server has given to the same address, and not long ago.

use super::User;
use super::files::FileStamp;
use crate::clock;
use crate::config::Login;
use aws_lc_rs::hmac;
use larder_people::sessions::{SessionLimits, Sessions, SessionsFull};
use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// Sessions of one login, of 200 bytes about.
const SESSIONS_MAX: usize = 65_536;

/// Addresses of one user.
const OF_USER_MAX: usize = 64;

/// A seal is good for so long, and as long again at most.
const SEAL_SECONDS: u64 = 3_600;

/// The text that a seal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sealed<'a> {
    /// A form: nobody else has made the client's browser send it.
    Form,
    /// The URL that the client has asked for, to which it goes back.
    Url(&'a str),
}

/// The sessions of one login of page.
pub struct PageSessions {
    /// Drawn at the start: nobody else makes seals.
    secret: hmac::Key,
    table: Mutex<Sessions<IpAddr, Arc<User>, FileStamp>>,
}

impl PageSessions {
    /// No sessions yet; `secret` is nobody's.
    pub(super) fn new(secret: &[u8; 32], login: &Login) -> PageSessions {
        let limits = SessionLimits {
            lifetime: login.session,
            idle: login.idle,
            sessions_max: SESSIONS_MAX,
            of_user_max: OF_USER_MAX,
        };
        PageSessions { secret: hmac::Key::new(hmac::HMAC_SHA256, secret), table: Mutex::new(Sessions::new(limits)) }
    }

    /// The user of an address, and until when that may be remembered; `stamp` is that of the files of users in force.
    pub fn user(&self, client: IpAddr, stamp: &FileStamp) -> Option<(Arc<User>, Instant)> {
        let found = self.table.lock().find(client.to_canonical(), |_, of| of == stamp, clock::instant())?;
        Some((found.user, found.until))
    }

    /// Begins the session of an address, in the place of one that it has.
    pub fn begin(&self, client: IpAddr, user: &Arc<User>, stamp: FileStamp) -> Result<(), SessionsFull> {
        let user = (&*user.name, Arc::clone(user));
        self.table.lock().begin(client.to_canonical(), user, stamp, clock::instant()).map(drop)
    }

    /// Ends the session of an address; whether it had one.
    pub fn end(&self, client: IpAddr) -> bool {
        self.table.lock().end(client.to_canonical())
    }

    /// A seal for this address.
    pub fn seal(&self, client: IpAddr, of: Sealed<'_>) -> String {
        let tag = hmac::sign(&self.secret, &message(client, of, clock::wall().as_secs() / SEAL_SECONDS));
        super::hex(tag.as_ref())
    }

    /// Whether a seal is one for this address and this text.
    pub fn is_sealed(&self, client: IpAddr, of: Sealed<'_>, seal: &str) -> bool {
        let Some(tag) = super::bytes_of(seal) else { return false };
        let now = clock::wall().as_secs() / SEAL_SECONDS;
        [now, now.saturating_sub(1)]
            .into_iter()
            .any(|hour| hmac::verify(&self.secret, &message(client, of, hour), &tag).is_ok())
    }
}

/// Kind, hour and address have a fixed length, so no text is read for another one.
fn message(client: IpAddr, of: Sealed<'_>, hour: u64) -> Vec<u8> {
    let address = match client.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    let (kind, text) = match of {
        Sealed::Form => (b'f', ""),
        Sealed::Url(url) => (b'u', url),
    };
    [&[kind][..], &hour.to_be_bytes(), &address, text.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_for_one_address_and_one_text() {
        let sessions = PageSessions::new(&[7; 32], &Login::default());
        let (here, there): (IpAddr, IpAddr) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let mapped: IpAddr = "::ffff:192.0.2.1".parse().unwrap();
        let url = Sealed::Url("http://a.test/");
        let seal = sessions.seal(here, url);
        assert!(sessions.is_sealed(here, url, &seal) && sessions.is_sealed(mapped, url, &seal));
        assert!(!sessions.is_sealed(there, url, &seal) && !sessions.is_sealed(here, Sealed::Form, &seal));
        assert!(!sessions.is_sealed(here, Sealed::Url("http://b.test/"), &seal));
        for forged in ["", "f", "zz", &seal[2..], &seal.replace('a', "b").replace('0', "1"), &format!("{seal}00")] {
            assert!(!sessions.is_sealed(here, url, forged), "{forged}");
        }
        let other = PageSessions::new(&[8; 32], &Login::default());
        assert!(!other.is_sealed(here, url, &seal));
    }
}
