//! TLS handshakes with clients.

use crate::env::Env;
use crate::ticker::Wait;
use crate::tls::HandshakeTrouble;
use crate::wire::{Rewound, Wire};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// Does the TLS handshake with a client, within `timeouts.head`.
pub async fn shake_hands(
    env: &Env,
    config: Arc<rustls::ServerConfig>,
    stream: Rewound,
) -> Result<Wire, HandshakeTrouble> {
    // The first answer follows the handshake's own last write, and must not wait until that is acknowledged.
    stream.wire().send_at_once();
    let timer = env.ticker.timer();
    let limit = env.config().timeouts.head;
    let accept = TlsAcceptor::from(config).accept(stream);
    match timer.limit(limit, Wait::Busy, accept).await {
        Ok(Ok(stream)) => Ok(Wire::TlsServer(Box::new(stream))),
        Ok(Err(error)) => {
            env.tally.handshakes_failed.add(1);
            Err(HandshakeTrouble::of_client(&error))
        }
        Err(_) => {
            env.tally.handshakes_failed.add(1);
            Err(HandshakeTrouble::Late)
        }
    }
}
