//! Answers that no fetch brought, on their way to one client: those to upgrades that were declined, and those of services.

use super::pour::{Sink, pour};
use super::{declared_length, state_length};
use crate::clock;
use crate::upstream::BodySource;
use larder_cache::cache::Writer;
use larder_cache::head::StoredHead;
use larder_cache::policy;
use larder_wire::{Method, ResponseHead, hop};

/// Passes a response on to the one reader of `writer` whose request was sent elsewhere (by `exchange::leave`).
pub fn adopt(writer: Writer, head: ResponseHead, body: BodySource, asked: &Method) {
    let stored = StoredHead::passing(head, None, clock::now());
    adopt_as(writer, stored, body, asked);
}

/// Passes on a response that takes the place of another one for one reader, and is as old as that.
pub fn adopt_instead(writer: Writer, (head, of): (ResponseHead, &StoredHead), body: BodySource, asked: &Method) {
    let mut stored = StoredHead::passing(head, of.not_stored(), of.received);
    stored.terms = of.terms.clone();
    adopt_as(writer, stored, body, asked);
}

fn adopt_as(mut writer: Writer, mut stored: StoredHead, body: BodySource, asked: &Method) {
    let (head, received) = (&mut stored.head, stored.received);
    let declared = declared_length(head, asked, &body);
    policy::dated(head, received);
    hop::strip(&mut head.fields);
    state_length(head, declared, asked);
    writer.pass(stored, declared);
    tokio::task::spawn_local(async {
        // The entry tells its reader of a fault.
        let _ = pour(Sink::Entry(writer), body, None).await;
    });
}
