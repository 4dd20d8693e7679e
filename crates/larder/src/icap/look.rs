//! A look at the servers of `respmod-store` beside all messages: one that judges by new rules says so in its answer to OPTIONS, and what it
//! judged before is purged although nothing is fetched.

use super::server::LOOK_AFTER_MAX;
use super::{Server, Service};
use crate::config::IcapStage;
use crate::upstream::Upstreams;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// A server is asked at most so often, whatever its `Options-TTL`.
const LOOK_AFTER_MIN: Duration = Duration::from_secs(1);

/// Asks the servers of these services for OPTIONS at the start, and when an answer does not hold any longer; for as long as the worker
/// lives.
pub async fn look(services: impl Fn() -> Vec<Arc<Service>>, upstreams: Upstreams) {
    loop {
        let now = Instant::now();
        let mut next = now + LOOK_AFTER_MAX;
        let judges = services().into_iter().filter(|service| service.settings.stage == IcapStage::RespmodStore);
        for server in judges.flat_map(|service| service.servers.clone()) {
            let at = server.look_due().unwrap_or(now);
            if at <= now {
                let upstreams = upstreams.clone();
                tokio::task::spawn_local(async move { Server::look(&server, &upstreams).await });
            }
            next = next.min(at.max(now + LOOK_AFTER_MIN));
        }
        sleep_until(next).await;
    }
}
