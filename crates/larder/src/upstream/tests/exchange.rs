//! One exchange after another: what is used again, what is not, and what may be asked twice.

use super::play::*;
use crate::upstream::UpstreamFaultKind;
use crate::upstream::fault::Retry;
use crate::wire::Wire;
use larder_wire::{Fields, Method};
use std::time::Duration;

#[tokio::test]
async fn a_connection_serves_again() {
    let origin = at(answers("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await);
    let upstreams = upstreams(|_| ());
    for round in 0..3 {
        let mut connection = lease(&upstreams, &origin).await.unwrap();
        assert_eq!(connection.is_reused(), round > 0);
        assert_eq!(ask(&mut connection, GET).await.unwrap().status, 200);
        assert_eq!(whole_body(&mut connection).await.unwrap(), b"hello");
        connection.release();
    }
    let stats = upstreams.stats();
    assert_eq!((stats.total().opened, stats.total().reused), (1, 2));
    assert_eq!((stats.origins[0].open, stats.origins[0].idle), (1, 1));
}

#[tokio::test]
async fn what_may_serve_again_and_what_may_not() {
    let table: [(&str, &str, bool); 14] = [
        (GET, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", true),
        (GET, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true),
        (GET, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", true),
        (GET, "HTTP/1.1 204 No Content\r\n\r\n", true),
        (GET, "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", true),
        ("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", true),
        (GET, "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", true),
        (GET, "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", true),
        (GET, "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", false),
        (GET, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", false),
        (GET, "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n", false),
        (GET, "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=0\r\nContent-Length: 2\r\n\r\nok", false),
        (GET, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n", false),
        ("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false),
    ];
    for (request, answer, again) in table {
        let origin = at(answers(answer).await);
        let upstreams = upstreams(|_| ());
        exchange(&upstreams, &origin, request).await.unwrap();
        let connection = lease(&upstreams, &origin).await.unwrap();
        assert_eq!(connection.is_reused(), again, "{answer}");
    }
}

#[tokio::test]
async fn bytes_behind_the_end_are_counted() {
    let origin = at(answers("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok-and-more").await);
    let upstreams = upstreams(|_| ());
    assert_eq!(exchange(&upstreams, &origin, GET).await.unwrap(), b"ok");
    let stats = upstreams.stats();
    assert_eq!((stats.total().desynchronised, stats.origins[0].open), (1, 0));
}

#[tokio::test]
async fn an_answer_half_read_or_a_request_half_sent_is_not_used_again() {
    let origin = at(answers("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await);
    let upstreams = upstreams(|_| ());
    let mut connection = lease(&upstreams, &origin).await.unwrap();
    ask(&mut connection, GET).await.unwrap();
    connection.release();
    let mut connection = lease(&upstreams, &origin).await.unwrap();
    assert!(!connection.is_reused());
    let (mut sender, mut receiver) = connection.split_mut();
    sender.send(&mut GET.as_bytes()).await.unwrap();
    drop(sender);
    patiently(receiver.response(&Method::Get)).await.unwrap();
    while patiently(receiver.body()).await.unwrap().is_some() {}
    connection.release();
    assert_eq!(upstreams.stats().origins[0].open, 0);
}

#[tokio::test]
async fn a_new_connection_that_ends_without_an_answer_is_no_reason_to_ask_again() {
    let origin = at(says_and_closes("").await);
    let mut connection = lease(&upstreams(|_| ()), &origin).await.unwrap();
    let fault = ask(&mut connection, GET).await.unwrap_err();
    assert_eq!((fault.kind.clone(), fault.retry, fault.status()), (UpstreamFaultKind::Reset, Retry::No, 502));
}

#[tokio::test]
async fn an_idle_connection_that_speaks_or_closes_is_dropped() {
    for garbage in ["HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", ""] {
        let origin = at(origin(move |mut peer| async move {
            peer.request().await;
            peer.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
            tokio::time::sleep(Duration::from_millis(10)).await;
            peer.say(garbage).await;
            if !garbage.is_empty() {
                peer.wait_for_close().await;
            }
        })
        .await);
        let upstreams = upstreams(|_| ());
        exchange(&upstreams, &origin, GET).await.unwrap();
        assert_eq!(upstreams.stats().origins[0].idle, 1);
        tokio::time::sleep(Duration::from_millis(250)).await;
        assert!(!lease(&upstreams, &origin).await.unwrap().is_reused());
        upstreams.sweep();
        assert_eq!(upstreams.stats().origins[0].open, 0);
    }
}

#[tokio::test]
async fn truncated_answers_are_truncated_and_never_complete() {
    let table = [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhello",
    ];
    for answer in table {
        let origin = at(says_and_closes(answer).await);
        let mut connection = lease(&upstreams(|_| ()), &origin).await.unwrap();
        ask(&mut connection, GET).await.unwrap();
        let fault = whole_body(&mut connection).await.unwrap_err();
        assert_eq!((fault.kind, fault.retry), (UpstreamFaultKind::Truncated, Retry::No), "{answer}");
        let again = connection.receiver().body().await.unwrap_err();
        assert_eq!(again.kind, UpstreamFaultKind::Truncated, "a fault stays");
    }
    let origin = at(says_and_closes("HTTP/1.1 200 OK\r\nContent-Le").await);
    let mut connection = lease(&upstreams(|_| ()), &origin).await.unwrap();
    assert_eq!(ask(&mut connection, GET).await.unwrap_err().kind, UpstreamFaultKind::Truncated);
}

#[tokio::test]
async fn a_body_until_the_close_ends_there() {
    let origin = at(says_and_closes("HTTP/1.0 200 OK\r\n\r\nall of it").await);
    let upstreams = upstreams(|_| ());
    assert_eq!(exchange(&upstreams, &origin, GET).await.unwrap(), b"all of it");
    assert_eq!(upstreams.stats().origins[0].open, 0);
}

#[tokio::test]
async fn malformed_answers_are_the_origins_fault() {
    let table = [
        "SSH-2.0-OpenSSH\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 1\n\na",
    ];
    for answer in table {
        let origin = at(says_and_closes(answer).await);
        let mut connection = lease(&upstreams(|_| ()), &origin).await.unwrap();
        let fault = ask(&mut connection, GET).await.unwrap_err();
        assert!(matches!(fault.kind, UpstreamFaultKind::Wire(_)), "{answer}: {fault}");
        assert_eq!(fault.status(), 502);
    }
}

#[tokio::test]
async fn trailers_come_with_the_end() {
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nDigest: abc\r\n\r\n";
    let origin = at(answers(answer).await);
    let mut connection = lease(&upstreams(|_| ()), &origin).await.unwrap();
    ask(&mut connection, GET).await.unwrap();
    assert_eq!(connection.trailers(), None);
    assert_eq!(whole_body(&mut connection).await.unwrap(), b"ok");
    let mut wanted = Fields::new();
    wanted.push("Digest", "abc");
    assert_eq!(connection.trailers().map(|fields| fields.text("digest").map(str::to_owned)), Some(Some("abc".into())));
}

#[tokio::test]
async fn interim_heads_are_handed_out_and_counted() {
    let origin = at(origin(|mut peer| async move {
        peer.request().await;
        for _ in 0..1000 {
            peer.say("HTTP/1.1 102 Processing\r\n\r\n").await;
        }
    })
    .await);
    let mut connection = lease(&upstreams(|_| ()), &origin).await.unwrap();
    connection.send(GET.as_bytes()).await.unwrap();
    for _ in 0..32 {
        assert_eq!(patiently(connection.response(&Method::Get)).await.unwrap().status, 102);
    }
    let fault = patiently(connection.response(&Method::Get)).await.unwrap_err();
    assert_eq!(fault.kind, UpstreamFaultKind::TooManyInterim);
}

#[tokio::test]
async fn a_switched_connection_becomes_a_tunnel() {
    let origin = at(origin(|mut peer| async move {
        peer.request().await;
        peer.say("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nfirst").await;
        peer.wait_for_close().await;
    })
    .await);
    let upstreams = upstreams(|_| ());
    let mut connection = lease(&upstreams, &origin).await.unwrap();
    assert_eq!(ask(&mut connection, GET).await.unwrap().status, 101);
    let (wire, read, held) = connection.into_tunnel();
    assert!(matches!(wire, Wire::Tcp(_)));
    assert!(b"first".starts_with(&read[..]));
    assert_eq!(upstreams.stats().origins[0].open, 1, "it is the origin's until its tunnel ends");
    drop(held);
    assert_eq!(upstreams.stats().origins[0].open, 0);
}
