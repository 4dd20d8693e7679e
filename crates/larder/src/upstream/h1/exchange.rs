//! A request and the head of its response on one connection. Interim heads are passed on, and the request's body is sent
//! meanwhile.

use super::super::call::{Call, CallEvent, OutgoingBody};
use super::super::fault::{UpstreamFault, UpstreamFaultKind};
use super::super::parents;
use super::connection::Connection;
use super::upload::Upload;
use crate::request_body::RequestBody;
use larder_wire::{Fault, FaultKind, Fields, ResponseHead, Version, encode, hop};

/// Sends the request and waits for the final head. The body of the response follows on the connection.
pub(in crate::upstream) async fn ask(
    mut connection: Connection,
    call: &mut Call<'_>,
) -> Result<(ResponseHead, Connection), UpstreamFault> {
    if connection.is_reused() {
        connection.acknowledge_within(call.silent_for);
    }
    let head = match call.body.take() {
        None => {
            let head = request_head(&connection, call, call.fields);
            connection.send(&head).await?;
            final_head(&mut connection, call).await?
        }
        // Boxed, as all that is large and rare here: a fetch is copied as it begins.
        Some(body) => Box::pin(ask_with_body(&mut connection, call, body)).await?,
    };
    if let Some(parent) = connection.parent() {
        parents::check(parent, &head)?;
    }
    if head.status == 101 {
        let why = "the origin switched protocols though nobody asked";
        return Err(unexpected_switch(call, "101 was not asked for", why));
    }
    Ok((head, connection))
}

/// Sends a request that offers to change to other protocols. Gives those that the origin chose, if it did. Interim heads are
/// dropped: a client that wants to leave HTTP does not wait for hints.
pub(in crate::upstream) async fn ask_upgrade(
    mut connection: Connection,
    call: &Call<'_>,
    offer: &str,
) -> Result<(ResponseHead, Connection, Option<String>), UpstreamFault> {
    let mut fields = call.fields.clone();
    fields.push("Connection", "upgrade");
    fields.push("Upgrade", offer);
    let head = request_head(&connection, call, &fields);
    connection.send(&head).await?;
    let head = loop {
        let head = connection.response(call.method).await?;
        if !head.is_interim() {
            break head;
        }
    };
    if let Some(parent) = connection.parent() {
        parents::check(parent, &head)?;
    }
    if head.status != 101 {
        return Ok((head, connection, None));
    }
    match hop::switched(&head.fields, offer) {
        Some(protocols) => Ok((head, connection, Some(protocols))),
        None => Err(unexpected_switch(
            call,
            "101 without a protocol that was offered",
            "the origin switched to a protocol that nobody offered",
        )),
    }
}

/// A 101 that does not follow from the request (RFC 9110 section 15.2.2).
fn unexpected_switch(call: &Call<'_>, fault: &'static str, detail: &str) -> UpstreamFault {
    (call.on)(CallEvent::Unexpected(101));
    UpstreamFault::new(UpstreamFaultKind::Wire(Fault::origin(FaultKind::StatusLine, fault)), detail)
}

fn request_head(connection: &Connection, call: &Call<'_>, fields: &Fields) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(512);
    if let Some(parent) = connection.parent() {
        let mut fields = fields.clone();
        if let Some(login) = parents::login(parent) {
            fields.set("Proxy-Authorization", login);
        }
        let target = parents::target(call.to, call.target);
        encode::request_head(&mut bytes, call.method, &target, Version::Http11, &fields);
        return bytes;
    }
    encode::request_head(&mut bytes, call.method, call.target, Version::Http11, fields);
    bytes
}

async fn final_head(connection: &mut Connection, call: &Call<'_>) -> Result<ResponseHead, UpstreamFault> {
    loop {
        let head = connection.response(call.method).await?;
        if !head.is_interim() {
            return Ok(head);
        }
        (call.on)(CallEvent::Interim(head));
    }
}

/// Sends the body while watching for an early response (RFC 9112 section 9.5). The rest of it is sent while the response's body
/// comes.
async fn ask_with_body(
    connection: &mut Connection,
    call: &Call<'_>,
    body: OutgoingBody,
) -> Result<ResponseHead, UpstreamFault> {
    let is_chunked = body.length == RequestBody::Unknown;
    let head = match is_chunked || body.is_gathered {
        false => request_head(connection, call, call.fields),
        true => {
            let mut fields = call.fields.clone();
            if body.is_gathered {
                fields.remove("Expect");
            }
            match body.length {
                RequestBody::Unknown => fields.push("Transfer-Encoding", "chunked"),
                RequestBody::Known(length) => fields.set("Content-Length", length.to_string()),
                RequestBody::None => {}
            }
            request_head(connection, call, &fields)
        }
    };
    let mut upload = Box::new(Upload::new(head, body.pieces, is_chunked));
    let head = send_and_watch(connection, &mut upload, call).await?;
    if !upload.is_over() {
        connection.send_rest_of(upload);
    }
    Ok(head)
}

async fn send_and_watch(
    connection: &mut Connection,
    upload: &mut Upload,
    call: &Call<'_>,
) -> Result<ResponseHead, UpstreamFault> {
    let (sender, mut receiver) = connection.split_mut();
    let mut sender = Some(sender);
    let mut broken = None;
    loop {
        tokio::select! {
            sent = upload.send(sender.as_mut()), if sender.is_some() => match sent {
                Ok(()) => {
                    if let Some(sender) = sender.take() {
                        sender.end();
                    }
                }
                Err(fault) if fault.kind == UpstreamFaultKind::ClientGone => return Err(fault),
                // An origin that refuses a body answers and then closes; its answer is worth more than this fault.
                Err(fault) => {
                    broken = Some(fault);
                    sender = None;
                }
            },
            head = receiver.response(call.method) => match head {
                Ok(head) if head.is_interim() => (call.on)(CallEvent::Interim(head)),
                Ok(head) => return Ok(head),
                Err(fault) => return Err(broken.unwrap_or(fault)),
            },
        }
    }
}
