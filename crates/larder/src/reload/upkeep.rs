//! Beside the workers, every few seconds: certificates of listeners are read again when their files have changed, without a reload,
//! which is how renewed ones come in force; and settings of before a reload are freed once no worker uses them.

use crate::background;
use crate::clock;
use crate::diagnostics::in_one_line;
use crate::shared::{OpenListener, Shared, listener};
use crate::tls::served::CertificateStamp;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often.
const EVERY: Duration = Duration::from_secs(2);

/// An end that comes near is told again so often.
const TOLD_EVERY: Duration = Duration::from_secs(86_400);

/// Does all of it until `ended` has no sender any more.
pub fn keep_up(shared: &Weak<Shared>, ended: &Receiver<()>) {
    background::lower_priority();
    let mut told = clock::instant();
    while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
        let Some(shared) = shared.upgrade() else { return };
        shared.renew_certificates();
        shared.free_retired();
        if clock::instant().saturating_duration_since(told) >= TOLD_EVERY {
            told = clock::instant();
            shared.listeners.lock().iter().for_each(|open| open.listener.tell_ends());
        }
    }
}

impl Shared {
    /// Frees the settings of before that no worker holds any more. A table of a thousand rules takes milliseconds to free, which no
    /// request should wait for.
    fn free_retired(&self) {
        let mut retired = self.retired.lock();
        let unused = retired.extract_if(.., |settings| Arc::strong_count(settings) == 1).collect::<Vec<_>>();
        drop(retired);
        drop(unused);
    }

    /// Takes up the certificates whose files have changed. Where they can't be used (the key is not written yet, say) the old ones count
    /// on, and the files are tried again once they change further.
    fn renew_certificates(&self) {
        // A reload holds the listeners until its settings are in force: older settings must not take the place of newer ones.
        let mut listeners = self.listeners.lock();
        let config = self.common.live.value();
        for open in listeners.iter_mut().filter(|open| open.files.has_files()) {
            let Some(listen) = config.listens.iter().find(|listen| listen.address == open.configured) else { continue };
            let files = CertificateStamp::of(listen);
            if files == open.files {
                continue;
            }
            open.files = files;
            let OpenListener { configured, bound, listener: old, has_quic_socket, .. } = open;
            match listener(listen, &self.common.site_certificates) {
                Ok(new) => {
                    new.note_bound(*bound, *has_quic_socket);
                    old.replace_by(Arc::clone(&new));
                    *old = new;
                    tracing::info!("listen {configured}: its certificates have changed, and count now");
                }
                Err(trouble) => {
                    let trouble = in_one_line(&trouble);
                    tracing::warn!(
                        "listen {configured}: its certificates have changed, and the old ones count on: {trouble}"
                    );
                }
            }
        }
    }
}
