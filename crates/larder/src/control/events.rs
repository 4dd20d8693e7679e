//! Live figures as server-sent events (HTML defines them): once a second the numbers, and some of the requests that
//! ended. The page and `larder top` read them.

use super::Admin;
use super::{EVENTS, policy_fields};
use crate::clock;
use crate::explain::{self, Summary};
use crate::record::{Number, Record};
use larder_wire::{ResponseHead, encode};
use serde::Serialize;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Requests in one event; of more, the last ones.
const REQUESTS_MAX: usize = 20;

/// A client that takes nothing for so long is closed.
const WRITE_WITHIN: Duration = Duration::from_secs(5);

/// Sends events until the client leaves, or the server goes down.
pub(super) async fn stream<S: AsyncWrite + Unpin>(admin: &Arc<Admin>, mut stream: S) -> io::Result<()> {
    let mut head = ResponseHead::new(200);
    head.fields.push("Content-Type", EVENTS);
    head.fields.push("Cache-Control", "no-store");
    policy_fields(&mut head);
    // nginx and proxies like it are not to buffer the stream.
    head.fields.push("X-Accel-Buffering", "no");
    head.fields.push("Connection", "close");
    let mut out = Vec::with_capacity(8 * 1024);
    encode::response_head(&mut out, &head);
    let mut since = clock::wall();
    loop {
        event(&mut out, "now", &admin.pulse.now(admin))?;
        let until = clock::wall();
        for request in ended(admin, since, until).await {
            event(&mut out, "request", &request)?;
        }
        since = until;
        tokio::time::timeout(WRITE_WITHIN, stream.write_all(&out)).await??;
        out.clear();
        admin.pulse.next().await;
    }
}

fn event(out: &mut Vec<u8>, name: &str, value: &impl Serialize) -> io::Result<()> {
    out.extend_from_slice(format!("event: {name}\ndata: ").as_bytes());
    serde_json::to_writer(&mut *out, value)?;
    out.extend_from_slice(b"\n\n");
    Ok(())
}

/// The last requests that ended between two moments.
async fn ended(admin: &Arc<Admin>, since: Duration, until: Duration) -> Vec<Summary> {
    let names = admin.common.names.clone();
    let pick = move |record: &Record| {
        let end = record.at + Duration::from_micros(record.micros());
        (since < end && end <= until).then(|| (record.number, explain::summary(record, &names)))
    };
    let found = admin.look(move |ring| ring.pick(REQUESTS_MAX, &pick)).await;
    let mut found: Vec<(Number, Summary)> = found.into_iter().flatten().collect();
    found.sort_by_key(|(_, request)| request.at_millis);
    let surplus = found.len().saturating_sub(REQUESTS_MAX);
    found.into_iter().skip(surplus).map(|(_, request)| request).collect()
}
