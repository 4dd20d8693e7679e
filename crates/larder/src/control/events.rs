//! The stream of events that the page and `larder top` follow (server-sent events, as HTML defines them).

use super::policy_fields;
use crate::server::Shared;
use larder_wire::{ResponseHead, encode};
use serde::Serialize;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Streams at a time.
pub(super) const FOLLOWING_MAX: usize = 32;

/// A follower that takes nothing for so long is let go.
const WRITE_WITHIN: Duration = Duration::from_secs(10);

/// Sends events until the follower leaves or the server ends.
pub(super) async fn stream<S: AsyncWrite + Unpin>(shared: &Shared, mut stream: S) -> io::Result<()> {
    let mut head = ResponseHead::new(200);
    head.fields.push("Content-Type", "text/event-stream");
    policy_fields(&mut head);
    head.fields.push("Connection", "close");
    let mut out = Vec::with_capacity(4096);
    encode::response_head(&mut out, &head);
    loop {
        event(&mut out, "now", &shared.pulse.now(shared))?;
        tokio::time::timeout(WRITE_WITHIN, stream.write_all(&out)).await??;
        out.clear();
        shared.pulse.next().await;
    }
}

fn event(out: &mut Vec<u8>, name: &str, value: &impl Serialize) -> io::Result<()> {
    out.extend_from_slice(format!("event: {name}\ndata: ").as_bytes());
    serde_json::to_writer(&mut *out, value)?;
    out.extend_from_slice(b"\n\n");
    Ok(())
}
