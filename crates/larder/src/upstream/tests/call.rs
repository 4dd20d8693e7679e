//! A request as a whole: when it is sent a second time, both bodies at once, and what becomes of the connection.

use super::play::*;
use crate::record::Reuse;
use crate::request_body::{Piece, RequestBody};
use crate::upstream::{Call, CallEvent, Origin, OutgoingBody, Upgraded, UpstreamFault, UpstreamFaultKind, Upstreams};
use bytes::Bytes;
use larder_wire::{Fields, Method};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

const EMPTY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// The behaviour of an origin towards a request.
#[derive(Clone, Copy, Debug)]
enum Habit {
    Answers(&'static str),
    /// Sends these bytes and closes the connection.
    Closes(&'static str),
    /// Closes the connection so that unread bytes reset it.
    Resets,
    Waits,
}
use Habit::{Answers, Closes, Resets, Waits};

/// An origin that answers the first request of its first connection, does as the first habit says with the second one, and as
/// the other says with the first one of each further connection. Counts the requests of the habits.
async fn with_habits(on_kept: Habit, on_new: Habit) -> (Origin, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let address = origin(move |mut peer| {
        let asked = Arc::clone(&asked);
        async move {
            let mut habit = on_new;
            if peer.number == 0 {
                peer.request().await;
                peer.say(EMPTY).await;
                habit = on_kept;
            }
            let resets = matches!(habit, Resets);
            if resets {
                // The first byte of the head is here, and the rest stays unread.
                let _ = tokio::io::AsyncReadExt::read_u8(&mut peer.stream).await;
            } else if peer.request().await.is_none() {
                return;
            }
            asked.fetch_add(1, Ordering::SeqCst);
            match habit {
                Answers(bytes) => {
                    peer.say(bytes).await;
                    peer.wait_for_close().await;
                }
                Closes(bytes) => peer.say(bytes).await,
                Resets => {}
                Waits => peer.wait_for_close().await,
            }
        }
    })
    .await;
    (at(address), counted)
}

/// Sends a request; gives the status or the fault, and how often it was retried.
async fn outcome(upstreams: &Upstreams, origin: &Origin, method: &str, body: Option<&'static [u8]>) -> (String, usize) {
    let (to, mut fields, method) = (url(origin), Fields::new(), Method::from_token(method));
    fields.push("Host", "a.example");
    let body = body.map(|bytes| {
        fields.push("Content-Length", bytes.len().to_string());
        let (pieces, taken) = mpsc::channel(2);
        pieces.try_send(Piece::Data(Bytes::from_static(bytes))).unwrap();
        pieces.try_send(Piece::End(Fields::new())).unwrap();
        OutgoingBody { pieces: taken.into(), length: RequestBody::Known(bytes.len() as u64), is_gathered: false }
    });
    let retries = Cell::new(0);
    let on = |event| {
        if let CallEvent::Retried = event {
            retries.set(retries.get() + 1);
        }
    };
    let mut call = Call { method: &method, body, on: &on, ..call(&to, &fields) };
    let answered = patiently(upstreams.call(&mut call)).await;
    let said = match answered {
        Ok(response) => response.head.status.to_string(),
        Err(fault) => fault.as_str().to_owned(),
    };
    (said, retries.get())
}

/// A request is sent a second time only if it is idempotent and has no body, and an idle connection ended without a byte of an
/// answer to it (RFC 9110 section 9.2.2, RFC 9112 section 9.3.1). All others never meet an idle connection that may be stale.
#[tokio::test]
async fn a_request_is_sent_again_where_that_is_safe_and_nowhere_else() {
    let ok = Answers(EMPTY);
    let body: Option<&[u8]> = Some(b"abc");
    // method, body, habit on the idle connection, habit on a new one, outcome, retries, requests that the habits saw
    let table = [
        ("GET", None, ok, ok, "200", 0, 1),
        ("GET", None, Closes(""), ok, "200", 1, 2),
        ("GET", None, Resets, ok, "200", 1, 2),
        ("HEAD", None, Closes(""), ok, "200", 1, 2),
        ("OPTIONS", None, Closes(""), ok, "200", 1, 2),
        ("PUT", None, Closes(""), ok, "200", 1, 2),
        ("DELETE", None, Closes(""), ok, "200", 1, 2),
        ("GET", None, Closes(""), Closes(""), "reset", 1, 2),
        ("GET", None, Closes("HTTP/1.1 200 O"), ok, "truncated", 0, 1),
        ("GET", None, Closes("HTTP/1.1 103 Early Hints\r\n\r\n"), ok, "truncated", 0, 1),
        ("GET", None, Closes("nonsense\r\n\r\n"), ok, "malformed", 0, 1),
        ("GET", None, Waits, ok, "first-byte-timeout", 0, 1),
        ("POST", None, Closes(""), ok, "200", 0, 1),
        ("POST", None, Closes(""), Closes(""), "reset", 0, 1),
        ("PATCH", None, Closes(""), ok, "200", 0, 1),
        ("UNHEARD-OF", None, Closes(""), Closes(""), "reset", 0, 1),
        ("PUT", body, Closes(""), Closes(""), "reset", 0, 1),
        ("GET", body, Closes(""), ok, "200", 0, 1),
    ];
    for row in table {
        let (method, body, on_kept, on_new, wanted, retries, seen) = row;
        let (origin, asked) = with_habits(on_kept, on_new).await;
        let upstreams = upstreams(|settings| settings.first_byte_timeout = Duration::from_millis(100));
        exchange(&upstreams, &origin, GET).await.unwrap();
        let outcome = outcome(&upstreams, &origin, method, body).await;
        assert_eq!((outcome, asked.load(Ordering::SeqCst)), ((wanted.to_owned(), retries), seen), "{row:?}");
    }
}

#[tokio::test]
async fn a_new_connection_that_ends_unanswered_is_asked_once() {
    let origin = at(says_and_closes("").await);
    let upstreams = upstreams(|_| ());
    assert_eq!(outcome(&upstreams, &origin, "GET", None).await, ("reset".to_owned(), 0));
    assert_eq!(upstreams.stats().total().opened, 1);
}

#[tokio::test]
async fn events_tell_the_connection_and_interim_heads() {
    let answer = "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
    let address = answers(answer).await;
    let (to, fields, upstreams) = (url(&at(address)), Fields::new(), upstreams(|_| ()));
    for wanted in [Reuse::New, Reuse::Again] {
        let events = RefCell::new(Vec::new());
        let on = |event| events.borrow_mut().push(event);
        let mut call = Call { on: &on, ..call(&to, &fields) };
        assert_eq!(patiently(upstreams.call(&mut call)).await.unwrap().head.status, 204);
        let mut events = events.into_inner();
        // Only a connection that has to be made is announced.
        let is_announced = matches!(events.first(), Some(CallEvent::Connecting));
        assert_eq!(is_announced, wanted == Reuse::New, "{events:?}");
        events.drain(..usize::from(is_announced));
        let [CallEvent::Connected { peer, reuse, .. }, CallEvent::Interim(head)] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!((peer.address(), *reuse, head.status), (Some(address), wanted, 103));
    }
}

/// The permit is back before anybody asks for a piece of a body that is not there, and with the last piece of one that is.
#[tokio::test]
async fn a_connection_is_given_back_when_the_body_is_over() {
    let large = "x".repeat(100_000);
    let table = [
        (EMPTY.to_owned(), 0),
        ("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n".to_owned(), 0),
        (format!("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{large}"), 100_000),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nDigest: abc\r\n\r\n".to_owned(), 2),
    ];
    for (answer, length) in table {
        let origin = at(answers(answer.leak()).await);
        let (to, fields, upstreams) = (url(&origin), Fields::new(), upstreams(|_| ()));
        let mut response = patiently(upstreams.call(&mut call(&to, &fields))).await.unwrap();
        let idle = || upstreams.stats().origins[0].idle;
        assert_eq!(idle(), usize::from(length == 0));
        let mut read = 0;
        while read < length {
            assert_eq!(idle(), 0);
            read += patiently(response.body.next()).await.unwrap().unwrap().len();
        }
        assert_eq!(idle(), 1);
        assert_eq!(patiently(response.body.next()).await.unwrap(), None, "the end");
        let trailers = response.body.trailers();
        assert_eq!(trailers.is_some_and(|fields| fields.text("Digest") == Some("abc")), length == 2);
    }
}

#[tokio::test]
async fn a_body_that_is_dropped_closes_its_connection() {
    let origin = at(answers("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await);
    let (to, fields, upstreams) = (url(&origin), Fields::new(), upstreams(|_| ()));
    let response = patiently(upstreams.call(&mut call(&to, &fields))).await.unwrap();
    assert_eq!((response.body.length(), upstreams.stats().origins[0].open), (Some(5), 1));
    drop(response);
    assert_eq!(upstreams.stats().origins[0].open, 0);
}

/// The origin answers at once, reads the whole request nevertheless, and only then ends its response.
#[tokio::test]
async fn the_rest_of_a_request_goes_out_while_the_response_comes() {
    let size: usize = 4 << 20;
    for waits_beside in [false, true] {
        let origin = at(origin(move |mut peer| async move {
            peer.request().await;
            peer.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nearly\r\n").await;
            let mut rest = vec![0; size];
            let whole = tokio::io::AsyncReadExt::read_exact(&mut peer.stream, &mut rest).await.is_ok();
            peer.say(if whole { "4\r\nlate\r\n0\r\n\r\n" } else { "x" }).await;
            peer.wait_for_close().await;
        })
        .await);
        let (to, mut fields, upstreams) = (url(&origin), Fields::new(), upstreams(|_| ()));
        fields.push("Content-Length", size.to_string());
        let (pieces, taken) = mpsc::channel(1);
        let body = OutgoingBody { pieces: taken.into(), length: RequestBody::Known(size as u64), is_gathered: false };
        let mut call = Call { method: &Method::Put, body: Some(body), ..call(&to, &fields) };
        let mut response = patiently(upstreams.call(&mut call)).await.unwrap();
        let sends = async {
            for _ in 0..size >> 16 {
                pieces.send(Piece::Data(vec![7; 1 << 16].into())).await.unwrap();
            }
            pieces.send(Piece::End(Fields::new())).await.unwrap();
        };
        let reads = async {
            let mut read = Vec::new();
            loop {
                assert!(read.len() < 9);
                // A reader that waits for something else must not keep the request from going on.
                if waits_beside && response.body.works_beside() {
                    let sent = until(|| pieces.capacity() == 1);
                    response.body.work_beside(sent).await;
                }
                match response.body.next().await.unwrap() {
                    Some(piece) => read.extend_from_slice(&piece),
                    None => return read,
                }
                if read.len() == 9 {
                    assert_eq!(response.body.next().await.unwrap(), None);
                    return read;
                }
            }
        };
        let (read, ()) = patiently(async { tokio::join!(reads, sends) }).await;
        assert_eq!(read, b"earlylate");
        assert_eq!(
            upstreams.stats().origins[0].open,
            0,
            "a connection whose request was answered early serves no other"
        );
    }
}

#[tokio::test]
async fn a_body_of_unknown_length_is_chunked() {
    let origin = at(origin(|mut peer| async move {
        let head = peer.request().await.unwrap();
        let body = peer.request().await.unwrap();
        let echo = format!("{}{body}", if head.contains("Transfer-Encoding: chunked\r\n") { "chunked " } else { "" });
        peer.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{echo}", echo.len())).await;
        peer.wait_for_close().await;
    })
    .await);
    let (to, fields, upstreams) = (url(&origin), Fields::new(), upstreams(|_| ()));
    let (pieces, taken) = mpsc::channel(2);
    pieces.try_send(Piece::Data(Bytes::from_static(b"hello"))).unwrap();
    pieces.try_send(Piece::End(Fields::new())).unwrap();
    let body = OutgoingBody { pieces: taken.into(), length: RequestBody::Unknown, is_gathered: false };
    let mut call = Call { method: &Method::Post, body: Some(body), ..call(&to, &fields) };
    let mut response = patiently(upstreams.call(&mut call)).await.unwrap();
    assert_eq!(patiently(response.body.next()).await.unwrap().unwrap(), "chunked 5\r\nhello\r\n0\r\n\r\n");
    assert_eq!(upstreams.stats().origins[0].idle, 1);
}

#[tokio::test]
async fn a_client_that_leaves_within_its_request_ends_the_call() {
    let (origin, _) = with_habits(Waits, Waits).await;
    let (to, fields, upstreams) = (url(&origin), Fields::new(), upstreams(|_| ()));
    let (pieces, taken) = mpsc::channel(1);
    drop(pieces);
    let body = OutgoingBody { pieces: taken.into(), length: RequestBody::Known(5), is_gathered: false };
    let mut call = Call { method: &Method::Put, body: Some(body), ..call(&to, &fields) };
    let fault = patiently(upstreams.call(&mut call)).await.err().unwrap();
    assert_eq!(fault.kind, UpstreamFaultKind::ClientGone);
    assert_eq!(upstreams.stats().origins[0].open, 0);
}

#[tokio::test]
async fn an_offer_to_upgrade_is_taken_declined_or_met_by_nonsense() {
    let switches = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: chat/1\r\n\r\nfirst";
    let other = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n";
    let unexpected = Cell::new(None);
    let on = |event| {
        if let CallEvent::Unexpected(status) = event {
            unexpected.set(Some(status));
        }
    };
    let upgrade = async |answer: &'static str| -> (Result<Upgraded, UpstreamFault>, Upstreams) {
        let (to, fields, upstreams) = (url(&at(answers(answer).await)), Fields::new(), upstreams(|_| ()));
        let mut call = Call { on: &on, ..call(&to, &fields) };
        (patiently(upstreams.upgrade(&mut call, "chat/1, chat/2")).await, upstreams)
    };
    let (upgraded, upstreams) = upgrade(switches).await;
    let Ok(Upgraded::Switched(switched)) = upgraded else { panic!("the origin switched") };
    assert_eq!((switched.protocols.as_str(), switched.head.status), ("chat/1", 101));
    assert!(b"first".starts_with(&switched.read[..]));
    assert_eq!(upstreams.stats().origins[0].open, 1, "a tunnel holds its permit");
    drop(switched);
    assert_eq!(upstreams.stats().origins[0].open, 0);

    let (upgraded, upstreams) = upgrade("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let Ok(Upgraded::Declined(mut response)) = upgraded else { panic!("the origin declined") };
    assert_eq!(patiently(response.body.next()).await.unwrap().unwrap(), "ok");
    assert_eq!(upstreams.stats().origins[0].idle, 1);

    for answer in [other, "HTTP/1.1 101 Switching Protocols\r\n\r\n"] {
        assert_eq!(unexpected.take(), None);
        let fault = upgrade(answer).await.0.err().unwrap();
        assert!(matches!(fault.kind, UpstreamFaultKind::Wire(_)), "{fault}");
        assert_eq!(unexpected.take(), Some(101), "the record says what came");
    }
    // A 101 to a request that offers nothing.
    let origin = at(answers(switches).await);
    let fault = exchange(&super::play::upstreams(|_| ()), &origin, GET).await.unwrap_err();
    assert!(matches!(fault.kind, UpstreamFaultKind::Wire(_)), "{fault}");
}

#[tokio::test]
async fn an_origin_with_another_name_on_its_certificate_is_heard_from_again() {
    let to = url(&at(answers(EMPTY).await));
    let name = larder_wire::Host::parse("certificate.example").unwrap();
    let (upstreams, fields) = (upstreams(|_| {}), Fields::new());
    let origin = Origin::named(&to, Some(&name));
    let outages = &upstreams.shared.settings.memory.outages;
    for _ in 0..2 {
        let mut call = Call { tls_name: Some(&name), ..call(&to, &fields) };
        let mut response = patiently(upstreams.call(&mut call)).await.unwrap();
        assert!(patiently(response.body.next()).await.unwrap().is_none());
        let now = tokio::time::Instant::now();
        assert!(!outages.is_known(&origin, now));
        outages.failed(&origin, now);
    }
    assert_eq!(upstreams.stats().total().reused, 1);
}
