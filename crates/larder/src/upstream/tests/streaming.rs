//! Bytes in both directions at once, futures that are dropped half-way, and peers that are slow.

use super::play::*;
use crate::upstream::UpstreamFaultKind;
use bytes::{Buf, Bytes};
use larder_wire::Method;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(60);

#[tokio::test]
async fn an_early_answer_is_seen_while_the_body_is_sent() {
    let origin = at(origin(|mut peer| async move {
        peer.request().await;
        peer.say("HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").await;
        // Reads nothing: the sender must not be what we wait for.
        tokio::time::sleep(Duration::from_secs(5)).await;
    })
    .await);
    let upstreams = upstreams(|_| ());
    let mut connection = lease(&upstreams, &origin).await.unwrap();
    let (mut sender, mut receiver) = connection.split_mut();
    sender.send(&mut &b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n"[..]).await.unwrap();
    let head = patiently(async {
        let mut piece = Bytes::new();
        loop {
            if piece.is_empty() {
                piece = Bytes::from(vec![b'x'; 256 * 1024]);
            }
            tokio::select! {
                sent = sender.send(&mut piece) => sent.unwrap(),
                head = receiver.response(&Method::Put) => return head.unwrap(),
            }
        }
    })
    .await;
    assert_eq!(head.status, 413);
    drop(sender);
    connection.release();
    assert_eq!(upstreams.stats().origins[0].open, 0, "the request was not sent to its end");
}

#[tokio::test]
async fn a_body_waits_for_100_continue_and_arrives_in_one_piece() {
    let origin = at(origin(|mut peer| async move {
        peer.request().await;
        peer.say("HTTP/1.1 100 Continue\r\n\r\n").await;
        let body = peer.request().await.unwrap();
        peer.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())).await;
        peer.wait_for_close().await;
    })
    .await);
    let upstreams = upstreams(|_| ());
    let mut connection = lease(&upstreams, &origin).await.unwrap();
    let (mut sender, mut receiver) = connection.split_mut();
    let head = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n";
    sender.send(&mut head.as_bytes()).await.unwrap();
    assert_eq!(patiently(receiver.response(&Method::Post)).await.unwrap().status, 100);
    let mut chunk = (&b"5\r\n"[..]).chain(&b"hello"[..]).chain(&b"\r\n0\r\n\r\n"[..]);
    sender.send(&mut chunk).await.unwrap();
    sender.end();
    assert_eq!(patiently(receiver.response(&Method::Post)).await.unwrap().status, 200);
    assert_eq!(patiently(receiver.body()).await.unwrap().unwrap(), "5\r\nhello\r\n0\r\n\r\n");
    assert_eq!(patiently(receiver.body()).await.unwrap(), None);
    connection.release();
    assert!(lease(&upstreams, &origin).await.unwrap().is_reused());
}

/// Small numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % sides
    }
}

/// Polls a future a few times and drops it if it is not done by then.
async fn a_few_polls<T>(work: impl Future<Output = T>, mut polls: u64) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending if polls == 0 => Poll::Ready(None),
        Poll::Pending => {
            polls -= 1;
            Poll::Pending
        }
    })
    .await
}

#[tokio::test]
async fn dropped_futures_lose_no_byte() {
    for seed in 0..30 {
        let mut dice = Dice(seed);
        let content: Vec<u8> = (0..3000).map(|_| b'a' + dice.roll(26) as u8).collect();
        let mut answer = b"HTTP/1.1 103 Early Hints\r\nX: 1\r\n\r\nHTTP/1.1 200 OK\r\n".to_vec();
        if seed % 2 == 0 {
            answer.extend_from_slice(b"Content-Length: 3000\r\n\r\n");
            answer.extend_from_slice(&content);
        } else {
            answer.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            for piece in content.chunks(1 + dice.roll(200) as usize) {
                answer.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                answer.extend_from_slice(piece);
                answer.extend_from_slice(b"\r\n");
            }
            answer.extend_from_slice(b"0\r\n\r\n");
        }
        let origin = at(origin(move |mut peer| {
            let (answer, mut dice) = (answer.clone(), Dice(seed + 1000));
            async move {
                peer.request().await;
                let mut rest = &answer[..];
                while !rest.is_empty() {
                    let (now, later) = rest.split_at(rest.len().min(1 + dice.roll(100) as usize));
                    peer.say(now).await;
                    tokio::task::yield_now().await;
                    rest = later;
                }
                peer.wait_for_close().await;
            }
        })
        .await);
        let upstreams = upstreams(|_| ());
        let mut connection = lease(&upstreams, &origin).await.unwrap();
        connection.send(GET.as_bytes()).await.unwrap();
        let received = patiently(async {
            let mut statuses = Vec::new();
            while statuses.last() != Some(&200) {
                match a_few_polls(connection.response(&Method::Get), dice.roll(3)).await {
                    Some(head) => statuses.push(head.unwrap().status),
                    None => tokio::task::yield_now().await,
                }
            }
            assert_eq!(statuses, [103, 200], "seed {seed}");
            let mut received = Vec::new();
            loop {
                match a_few_polls(connection.receiver().body(), dice.roll(3)).await {
                    Some(Ok(Some(piece))) => received.extend_from_slice(&piece),
                    Some(Ok(None)) => return received,
                    Some(Err(fault)) => panic!("seed {seed}: {fault}"),
                    None => tokio::task::yield_now().await,
                }
            }
        })
        .await;
        assert!(received == content, "seed {seed}");
        connection.release();
        assert_eq!(upstreams.stats().origins[0].idle, 1, "seed {seed}");
    }
}

#[tokio::test]
async fn a_dropped_send_leaves_the_rest() {
    let size = 8 << 20;
    let origin = at(origin(move |mut peer| async move {
        peer.request().await;
        let mut taken = vec![0; size];
        let read = tokio::io::AsyncReadExt::read_exact(&mut peer.stream, &mut taken).await;
        let whole = read.is_ok() && taken.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8);
        peer.say(if whole { "HTTP/1.1 204 No Content\r\n\r\n" } else { "HTTP/1.1 500 No\r\n\r\n" }).await;
    })
    .await);
    let mut connection = lease(&upstreams(|_| ()), &origin).await.unwrap();
    let (mut sender, mut receiver) = connection.split_mut();
    let head = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n");
    sender.send(&mut head.as_bytes()).await.unwrap();
    let mut body = Bytes::from((0..size).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
    patiently(async {
        while !body.is_empty() {
            match a_few_polls(sender.send(&mut body), 0).await {
                Some(sent) => sent.unwrap(),
                None => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    sender.end();
    assert_eq!(patiently(receiver.response(&Method::Put)).await.unwrap().status, 204);
}

#[tokio::test]
async fn slow_origins_are_given_up_on() {
    let table = [
        ("", UpstreamFaultKind::FirstByteTimeout),
        ("HTTP/1.1 100 Continue\r\n\r\n", UpstreamFaultKind::FirstByteTimeout),
        ("HTTP/1.1 200 O", UpstreamFaultKind::IdleTimeout),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhel", UpstreamFaultKind::IdleTimeout),
    ];
    for (answer, kind) in table {
        let origin = at(origin(move |mut peer| async move {
            peer.request().await;
            peer.say(answer).await;
            peer.wait_for_close().await;
        })
        .await);
        let upstreams = upstreams(|settings| (settings.first_byte_timeout, settings.idle_timeout) = (SHORT, SHORT));
        let mut connection = lease(&upstreams, &origin).await.unwrap();
        let fault = match ask(&mut connection, GET).await {
            Ok(_) => whole_body(&mut connection).await.unwrap_err(),
            Err(fault) => fault,
        };
        assert_eq!((fault.kind.clone(), fault.status()), (kind, 504), "{answer}");
    }
}

#[tokio::test]
async fn an_origin_that_takes_nothing_is_given_up_on() {
    let origin = at(origin(|peer| async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        drop(peer);
    })
    .await);
    let upstreams = upstreams(|settings| settings.idle_timeout = SHORT);
    let mut connection = lease(&upstreams, &origin).await.unwrap();
    let fault = patiently(connection.send(&vec![b'x'; 64 << 20])).await.unwrap_err();
    assert_eq!(fault.kind, UpstreamFaultKind::IdleTimeout);
}

#[tokio::test]
async fn the_first_byte_is_not_waited_for_while_the_request_is_on_its_way() {
    let origin = at(answers("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await);
    let upstreams = upstreams(|settings| settings.first_byte_timeout = SHORT);
    let mut connection = lease(&upstreams, &origin).await.unwrap();
    let (mut sender, mut receiver) = connection.split_mut();
    let (first, last) = GET.split_at(10);
    sender.send(&mut first.as_bytes()).await.unwrap();
    assert!(tokio::time::timeout(SHORT * 4, receiver.response(&Method::Get)).await.is_err(), "it still waits");
    sender.send(&mut last.as_bytes()).await.unwrap();
    sender.end();
    assert_eq!(patiently(receiver.response(&Method::Get)).await.unwrap().status, 200);
}

#[tokio::test]
async fn nothing_is_read_that_nobody_asked_for() {
    let size: usize = 64 << 20;
    let (sent, seen) = tokio::sync::watch::channel(0usize);
    let origin = at(origin(move |mut peer| {
        let sent = sent.clone();
        async move {
            peer.request().await;
            peer.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n")).await;
            for _ in 0..size >> 16 {
                peer.say([7; 1 << 16]).await;
                sent.send_modify(|sent| *sent += 1 << 16);
            }
            peer.wait_for_close().await;
        }
    })
    .await);
    let mut connection = lease(&upstreams(|_| ()), &origin).await.unwrap();
    ask(&mut connection, GET).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(*seen.borrow() < size / 2, "only the kernel's buffers fill: {}", *seen.borrow());
    let (mut total, mut largest) = (0, 0);
    while let Some(piece) = patiently(connection.receiver().body()).await.unwrap() {
        total += piece.len();
        largest = largest.max(piece.len());
    }
    assert_eq!(total, size);
    assert!(largest <= 64 << 10);
}

#[tokio::test]
async fn a_body_in_tiny_chunks_comes_in_fewer_pieces() {
    let origin = at(origin(|mut peer| async move {
        peer.request().await;
        let chunks = "1\r\nx\r\n".repeat(10_000);
        peer.say(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")).await;
        peer.wait_for_close().await;
    })
    .await);
    let mut connection = lease(&upstreams(|_| ()), &origin).await.unwrap();
    ask(&mut connection, GET).await.unwrap();
    let (mut total, mut pieces) = (0, 0);
    while let Some(piece) = patiently(connection.receiver().body()).await.unwrap() {
        (total, pieces) = (total + piece.len(), pieces + 1);
    }
    assert_eq!(total, 10_000);
    assert!(pieces < 200, "{pieces}");
}
