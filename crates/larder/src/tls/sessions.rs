//! TLS sessions with origins, to be resumed. An origin chooses how long its tickets are (up to 64 kB each, and they keep its
//! chain of certificates), so there are few of each origin and of few origins: at worst 16 MB, mostly less than one.

use super::recent::Recent;
use parking_lot::Mutex;
use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;
use std::fmt;

/// Origins remembered.
const ORIGINS_MAX: usize = 128;
/// Sessions of one origin; each is used once, and a handshake mostly brings two.
const SESSIONS_PER_ORIGIN_MAX: usize = 2;

/// The sessions of all origins, of all workers.
pub(super) struct Sessions(Mutex<Recent<ServerName<'static>, OfOrigin>>);

#[derive(Default)]
struct OfOrigin {
    group: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    /// The youngest at the end.
    tls13: Vec<Tls13ClientSessionValue>,
}

impl Sessions {
    /// None yet.
    pub(super) fn new() -> Sessions {
        Sessions(Mutex::new(Recent::new(ORIGINS_MAX)))
    }

    fn change<T>(&self, name: ServerName<'static>, change: impl FnOnce(&mut OfOrigin) -> T) -> T {
        let mut all = self.0.lock();
        if let Some(known) = all.find(&name) {
            return change(known);
        }
        let mut new = OfOrigin::default();
        let changed = change(&mut new);
        all.insert(name, new);
        changed
    }

    fn look<T>(&self, name: &ServerName<'_>, look: impl FnOnce(&mut OfOrigin) -> Option<T>) -> Option<T> {
        self.0.lock().find(&name.to_owned()).and_then(look)
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.change(name, |origin| origin.group = Some(group));
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.look(name, |origin| origin.group)
    }

    fn set_tls12_session(&self, name: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.change(name, |origin| origin.tls12 = Some(session));
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.look(name, |origin| origin.tls12.clone())
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        self.look(name, |origin| origin.tls12.take());
    }

    fn insert_tls13_ticket(&self, name: ServerName<'static>, session: Tls13ClientSessionValue) {
        self.change(name, |origin| {
            if origin.tls13.len() >= SESSIONS_PER_ORIGIN_MAX {
                origin.tls13.remove(0);
            }
            origin.tls13.push(session);
        });
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.look(name, |origin| origin.tls13.pop())
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("origins", &self.0.lock().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_few_and_the_last_ones() {
        let sessions = Sessions::new();
        let name = |number: usize| ServerName::try_from(format!("h{number}.example")).unwrap();
        for number in 0..1_000 {
            sessions.set_kx_hint(name(number), NamedGroup::X25519);
            assert_eq!(sessions.kx_hint(&name(number)), Some(NamedGroup::X25519));
            assert!(sessions.0.lock().len() <= ORIGINS_MAX);
        }
        assert_eq!(sessions.kx_hint(&name(1)), None);
        assert!(sessions.tls12_session(&name(999)).is_none() && sessions.take_tls13_ticket(&name(999)).is_none());
    }
}
