//! HTTP/2 to origins over sockets: which connections requests share, what is sent again, and what hostile origins get.

use super::h2_play::*;
use super::play::*;
use crate::config::OriginHttp2;
use crate::record::OriginProtocol;
use crate::request_body::{Piece, RequestBody};
use crate::upstream::{Call, CallEvent, OutgoingBody, UpstreamFaultKind};
use larder_wire::h2::frame::{self, Settings};
use larder_wire::h2::{ErrorCode, PREFACE};
use larder_wire::{Fields, Method};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

fn body_of(bytes: &'static [u8]) -> OutgoingBody {
    let (to, pieces) = mpsc::channel(2);
    to.try_send(Piece::Data(bytes.into())).unwrap();
    to.try_send(Piece::End(Fields::new())).unwrap();
    OutgoingBody { pieces: pieces.into(), length: RequestBody::Known(bytes.len() as u64), is_gathered: false }
}

#[tokio::test]
async fn requests_share_a_connection() {
    let (origin, accepted) = h2_origin(Settings::default(), |mut peer| async move { peer.echo_all().await }).await;
    let upstreams = upstreams(|_| ());
    locally(async {
        let asked = (0..20).map(|at| {
            let (upstreams, origin) = (upstreams.clone(), origin.clone());
            tokio::task::spawn_local(async move { get_h2(&upstreams, &origin, &format!("/{at}")).await })
        });
        for (at, asked) in asked.collect::<Vec<_>>().into_iter().enumerate() {
            assert_eq!(asked.await.unwrap().unwrap(), (200, format!("/{at}").into_bytes()));
        }
    })
    .await;
    let stats = upstreams.stats();
    assert_eq!(accepted.load(Ordering::SeqCst), 1);
    assert_eq!((stats.total().opened, stats.total().reused, stats.total().http2_requests), (1, 19, 20));
}

#[tokio::test]
async fn the_protocol_is_told_and_the_head_is_that_of_http2() {
    let (origin, _) = h2_origin(Settings::default(), |mut peer| async move {
        while let Some((stream, fields)) = peer.request().await {
            peer.answer(stream, fields.as_bytes()).await;
        }
    })
    .await;
    locally(async {
        let (to, mut fields) = (url(&origin), Fields::new());
        fields.push("Host", "a.example");
        fields.push("X-Upper", "Value");
        let told = RefCell::new(Vec::new());
        let on = |event| {
            if let CallEvent::Connected { reuse, protocol, .. } = event {
                told.borrow_mut().push((reuse, protocol));
            }
        };
        let mut call = Call { http2: OriginHttp2::PriorKnowledge, target: "/a", on: &on, ..call(&to, &fields) };
        let mut response = upstreams(|_| ()).call(&mut call).await.unwrap();
        let mut text = Vec::new();
        while let Some(piece) = response.body.next().await.unwrap() {
            text.extend_from_slice(&piece);
        }
        let wanted = ":method: GET\n:scheme: http\n:authority: a.example\n:path: /a\nx-upper: Value\n";
        assert_eq!(String::from_utf8(text).unwrap(), wanted);
        assert_eq!(*told.borrow(), [(crate::record::Reuse::New, OriginProtocol::Http2)]);
    })
    .await;
}

#[tokio::test]
async fn an_origin_gets_no_more_streams_than_it_permits() {
    let open = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (counted, noted) = (Arc::clone(&open), Arc::clone(&most));
    let settings = Settings { streams_max: Some(2), ..Settings::default() };
    let (origin, accepted) = h2_origin(settings, move |mut peer| {
        let (open, most) = (Arc::clone(&counted), Arc::clone(&noted));
        async move {
            let mut held = Vec::new();
            loop {
                // Two requests are held until nothing more comes for a while.
                match tokio::time::timeout(Duration::from_millis(50), peer.request()).await {
                    Ok(Some((stream, _))) => {
                        held.push(stream);
                        open.fetch_add(1, Ordering::SeqCst);
                        most.fetch_max(held.len(), Ordering::SeqCst);
                    }
                    Ok(None) => return,
                    Err(_) => {
                        for stream in held.drain(..) {
                            peer.answer(stream, b"ok").await;
                        }
                    }
                }
            }
        }
    })
    .await;
    let upstreams = upstreams(|_| ());
    locally(async {
        let asked = (0..6).map(|_| {
            let (upstreams, origin) = (upstreams.clone(), origin.clone());
            tokio::task::spawn_local(async move { get_h2(&upstreams, &origin, "/").await })
        });
        for asked in asked.collect::<Vec<_>>() {
            assert_eq!(asked.await.unwrap().unwrap().1, b"ok");
        }
    })
    .await;
    assert_eq!((open.load(Ordering::SeqCst), most.load(Ordering::SeqCst)), (6, 2));
    assert!(accepted.load(Ordering::SeqCst) >= 2, "a further connection where one is full");
}

#[tokio::test]
async fn requests_that_were_not_processed_are_sent_again_with_their_bodies() {
    // The first connection leaves without the request, or refuses it; the second one answers with the body.
    for refusal in [ErrorCode::NoError, ErrorCode::RefusedStream] {
        let (origin, accepted) = h2_origin(Settings::default(), move |mut peer| async move {
            let mut refused = 0;
            let mut body = Vec::new();
            while let Some(seen) = peer.next().await {
                match seen {
                    Seen::Data(stream, bytes, ends) if stream != refused && (peer.number > 0 || refused > 0) => {
                        body.extend(bytes);
                        if ends {
                            peer.answer(stream, &body).await;
                        }
                    }
                    Seen::Head(stream, ..) if peer.number == 0 && refused == 0 => {
                        refused = stream;
                        match refusal {
                            ErrorCode::NoError => peer.say(|out| frame::write_go_away(out, 0, refusal, "")).await,
                            _ => peer.say(|out| frame::write_reset(out, stream, refusal)).await,
                        }
                    }
                    _ => {}
                }
            }
        })
        .await;
        let upstreams = upstreams(|_| ());
        let answered = locally(async {
            ask_h2(&upstreams, &origin, &Method::Post, "/", Some(body_of(b"a body that is whole"))).await
        });
        let (status, body) = answered.await.unwrap();
        assert_eq!((status, String::from_utf8(body).unwrap().as_str()), (200, "a body that is whole"), "{refusal:?}");
        assert_eq!(upstreams.stats().total().http2_unprocessed, 1);
        assert_eq!(accepted.load(Ordering::SeqCst), if refusal == ErrorCode::NoError { 2 } else { 1 });
    }
}

#[tokio::test]
async fn an_origin_that_refuses_for_ever_is_asked_four_times() {
    let (origin, _) = h2_origin(Settings::default(), |mut peer| async move {
        while let Some((stream, _)) = peer.request().await {
            peer.say(|out| frame::write_reset(out, stream, ErrorCode::RefusedStream)).await;
        }
    })
    .await;
    let upstreams = upstreams(|_| ());
    let fault = locally(get_h2(&upstreams, &origin, "/")).await.unwrap_err();
    assert_eq!((fault.kind, fault.detail.as_str()), (UpstreamFaultKind::Reset, "the origin refused the stream"));
    assert_eq!(upstreams.stats().total().http2_requests, 4);
}

#[tokio::test]
async fn a_connection_that_closed_is_no_reason_to_ask_twice_but_for_idempotent_requests() {
    for (method, is_answered) in [(Method::Get, true), (Method::Post, false)] {
        // The first connection answers once, then closes in the middle of the second request.
        let (origin, _) = h2_origin(Settings::default(), |mut peer| async move {
            let Some((stream, _)) = peer.request().await else { return };
            peer.answer(stream, b"ok").await;
            match peer.number {
                0 => drop(peer.request().await),
                _ => peer.echo_all().await,
            }
        })
        .await;
        let upstreams = upstreams(|_| ());
        locally(async {
            get_h2(&upstreams, &origin, "/").await.unwrap();
            let body = (method == Method::Post).then(|| body_of(b"x"));
            let again = ask_h2(&upstreams, &origin, &method, "/", body).await;
            match is_answered {
                true => assert_eq!(again.unwrap().1, b"ok"),
                false => assert_eq!(again.unwrap_err().kind, UpstreamFaultKind::Reset),
            }
        })
        .await;
    }
}

#[tokio::test]
async fn an_origin_that_wants_http11_gets_it_from_then_on() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = at(listener.local_addr().unwrap());
    let by_h2 = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&by_h2);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                let mut first = vec![0; PREFACE.len()];
                stream.read_exact(&mut first).await.unwrap();
                if first == PREFACE {
                    counted.fetch_add(1, Ordering::SeqCst);
                    let mut peer = H2Peer::on(stream, 0, Vec::new());
                    peer.say(|out| frame::write_settings(out, &Settings::default())).await;
                    while let Some((stream, _)) = peer.request().await {
                        peer.say(|out| frame::write_reset(out, stream, ErrorCode::Http11Required)).await;
                    }
                    return;
                }
                // A head is longer than the preface.
                let mut peer = Peer { stream, number: 0 };
                peer.answer_all("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nold").await;
            });
        }
    });
    let upstreams = upstreams(|_| ());
    locally(async {
        for _ in 0..3 {
            assert_eq!(get_h2(&upstreams, &origin, "/").await.unwrap(), (200, b"old".to_vec()));
        }
    })
    .await;
    assert_eq!(by_h2.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_slow_reader_holds_up_no_other_stream() {
    let (origin, accepted) = h2_origin(Settings::default(), |mut peer| async move {
        while let Some((stream, fields)) = peer.request().await {
            if fields.contains("/fast") {
                peer.answer(stream, b"ok").await;
                continue;
            }
            // As much as the window of the stream holds, and no end.
            peer.say(|out| {
                head(out, stream, &[(":status", "200")], false);
                (0..8).for_each(|_| data(out, stream, &[b's'; 16_384], false));
            })
            .await;
        }
    })
    .await;
    let upstreams = upstreams(|_| ());
    locally(async {
        let (to, mut fields) = (url(&origin), Fields::new());
        fields.push("Host", "a.example");
        let mut call = Call { http2: OriginHttp2::PriorKnowledge, target: "/slow", ..call(&to, &fields) };
        let _slow = upstreams.call(&mut call).await.unwrap();
        for _ in 0..10 {
            assert_eq!(get_h2(&upstreams, &origin, "/fast").await.unwrap().1, b"ok");
        }
    })
    .await;
    assert_eq!(accepted.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn answers_that_break_off_are_truncated() {
    for closes in [false, true] {
        let (origin, _) = h2_origin(Settings::default(), move |mut peer| async move {
            while let Some((stream, _)) = peer.request().await {
                peer.say(|out| {
                    head(out, stream, &[(":status", "200")], false);
                    data(out, stream, b"half", false);
                    if !closes {
                        frame::write_reset(out, stream, ErrorCode::Internal);
                    }
                })
                .await;
                if closes {
                    return;
                }
            }
        })
        .await;
        let fault = locally(get_h2(&upstreams(|_| ()), &origin, "/")).await.unwrap_err();
        assert_eq!(fault.kind, UpstreamFaultKind::Truncated, "{fault}");
    }
}

#[tokio::test]
async fn a_server_that_speaks_no_http2_fails_the_connection() {
    for bytes in ["HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", ""] {
        let origin = at(says_and_closes(bytes).await);
        let upstreams = upstreams(|_| ());
        let fault = locally(get_h2(&upstreams, &origin, "/")).await.unwrap_err();
        assert_eq!((fault.status(), upstreams.stats().total().failed), (502, 1), "{fault}");
        assert!(fault.detail.contains("HTTP/2"), "{fault}");
    }
    // One that says nothing at all.
    let origin = at(super::play::origin(|mut peer| async move { peer.wait_for_close().await }).await);
    let upstreams = upstreams(|settings| settings.connect_timeout = Duration::from_millis(200));
    let fault = locally(get_h2(&upstreams, &origin, "/")).await.unwrap_err();
    assert_eq!((fault.kind.clone(), fault.status()), (UpstreamFaultKind::ConnectTimeout, 504), "{fault}");
}

#[tokio::test]
async fn a_fault_of_the_origin_ends_its_connection_with_the_reason() {
    let (origin, _) = h2_origin(Settings::default(), |mut peer| async move {
        let Some((stream, _)) = peer.request().await else { return };
        // PUSH_PROMISE of stream 2.
        peer.say(|out| out.extend([0, 0, 4, 5, 4, 0, 0, 0, stream as u8, 0, 0, 0, 2])).await;
        loop {
            match peer.next().await {
                Some(Seen::GoAway(code)) => return assert_eq!(code, ErrorCode::Protocol),
                Some(_) => {}
                None => panic!("no GOAWAY"),
            }
        }
    })
    .await;
    let upstreams = upstreams(|_| ());
    let fault = locally(async {
        let fault = get_h2(&upstreams, &origin, "/").await.unwrap_err();
        until_local(|| upstreams.stats().origins[0].http2_connections == 0).await;
        fault
    });
    let fault = fault.await;
    assert_eq!((fault.as_str(), fault.status()), ("malformed", 502));
    assert_eq!(upstreams.stats().total().http2_faults, 1);
}

async fn until_local(mut seen: impl FnMut() -> bool) {
    while !seen() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_with_a_goodbye() {
    let (said, mut heard) = mpsc::unbounded_channel();
    let (origin, _) = h2_origin(Settings::default(), move |mut peer| {
        let said = said.clone();
        async move {
            while let Some(seen) = peer.next().await {
                match seen {
                    Seen::Head(stream, ..) => peer.answer(stream, b"ok").await,
                    Seen::GoAway(code) => drop(said.send(code)),
                    _ => {}
                }
            }
        }
    })
    .await;
    let upstreams = upstreams(|settings| settings.keep_alive = Duration::from_millis(100));
    locally(async {
        get_h2(&upstreams, &origin, "/").await.unwrap();
        assert_eq!(upstreams.stats().origins[0].http2_connections, 1);
        assert_eq!(heard.recv().await, Some(ErrorCode::NoError));
        until_local(|| upstreams.stats().origins[0].open == 0).await;
    })
    .await;
}

#[tokio::test]
async fn a_request_that_is_given_up_resets_its_stream() {
    let (said, mut heard) = mpsc::unbounded_channel();
    let (origin, _) = h2_origin(Settings::default(), move |mut peer| {
        let said = said.clone();
        async move {
            while let Some(seen) = peer.next().await {
                match seen {
                    Seen::Head(stream, fields, _) if fields.contains("/quick") => peer.answer(stream, b"ok").await,
                    seen => drop(said.send(seen)),
                }
            }
        }
    })
    .await;
    let upstreams = upstreams(|settings| settings.first_byte_timeout = Duration::from_millis(100));
    locally(async {
        let fault = get_h2(&upstreams, &origin, "/silent").await.unwrap_err();
        assert_eq!(fault.kind, UpstreamFaultKind::FirstByteTimeout);
        assert!(matches!(heard.recv().await, Some(Seen::Head(1, ..))));
        assert_eq!(heard.recv().await, Some(Seen::Reset(1, ErrorCode::Cancel)));
        assert_eq!(get_h2(&upstreams, &origin, "/quick").await.unwrap().1, b"ok");
    })
    .await;
    assert_eq!(upstreams.stats().total().opened, 1, "the connection serves on");
}

#[tokio::test]
async fn a_large_upload_goes_through_small_windows() {
    const BYTES: usize = 3 << 20;
    let (origin, _) = h2_origin(Settings::default(), |mut peer| async move {
        let mut received = 0;
        while let Some(seen) = peer.next().await {
            if let Seen::Data(stream, bytes, ends) = seen {
                received += bytes.len();
                let many = bytes.len() as u32;
                if ends {
                    peer.answer(stream, received.to_string().as_bytes()).await;
                } else if many > 0 {
                    peer.say(|out| {
                        frame::write_window_update(out, 0, many);
                        frame::write_window_update(out, stream, many);
                    })
                    .await;
                }
            }
        }
    })
    .await;
    let (to, pieces) = mpsc::channel(1);
    let body = OutgoingBody { pieces: pieces.into(), length: RequestBody::Unknown, is_gathered: false };
    let feed = async move {
        for _ in 0..BYTES / 10_240 {
            to.send(Piece::Data(vec![b'u'; 10_240].into())).await.unwrap();
        }
        to.send(Piece::End(Fields::new())).await.unwrap();
    };
    let upstreams = upstreams(|_| ());
    let (answered, ()) =
        locally(async { tokio::join!(ask_h2(&upstreams, &origin, &Method::Post, "/", Some(body)), feed) }).await;
    assert_eq!(answered.unwrap().1, (BYTES / 10_240 * 10_240).to_string().into_bytes());
}

#[tokio::test]
async fn an_early_answer_stops_the_upload() {
    let (origin, _) = h2_origin(Settings::default(), |mut peer| async move {
        let Some((stream, _)) = peer.request().await else { return };
        peer.say(|out| {
            head(out, stream, &[(":status", "413")], true);
            frame::write_reset(out, stream, ErrorCode::NoError);
        })
        .await;
        peer.echo_all().await;
    })
    .await;
    let (to, pieces) = mpsc::channel(1);
    to.try_send(Piece::Data(b"the beginning of a body that does not end".as_slice().into())).unwrap();
    let body = OutgoingBody { pieces: pieces.into(), length: RequestBody::Known(1 << 30), is_gathered: false };
    let upstreams = upstreams(|_| ());
    locally(async {
        assert_eq!(ask_h2(&upstreams, &origin, &Method::Post, "/", Some(body)).await.unwrap().0, 413);
        assert_eq!(get_h2(&upstreams, &origin, "/next").await.unwrap().1, b"/next");
    })
    .await;
    assert_eq!(upstreams.stats().total().opened, 1);
}

#[tokio::test]
async fn a_connection_on_which_nothing_comes_any_more_is_given_up() {
    let (origin, accepted) = h2_origin(Settings::default(), |mut peer| async move {
        let Some((stream, _)) = peer.request().await else { return };
        peer.answer(stream, b"ok").await;
        // Once the second request is here, neither it nor its PING is answered.
        match peer.number {
            0 => tokio::time::sleep(Duration::from_secs(60)).await,
            _ => peer.echo_all().await,
        }
    })
    .await;
    let upstreams = upstreams(|settings| settings.connect_timeout = Duration::from_millis(300));
    locally(async {
        get_h2(&upstreams, &origin, "/").await.unwrap();
        tokio::time::sleep(Duration::from_millis(1_050)).await;
        assert_eq!(get_h2(&upstreams, &origin, "/").await.unwrap().1, b"ok");
    })
    .await;
    assert_eq!(accepted.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn without_the_setting_nothing_changes() {
    let origin = at(answers("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await);
    let upstreams = upstreams(|_| ());
    assert_eq!(exchange(&upstreams, &origin, GET).await.unwrap(), b"ok");
    let (to, fields) = (url(&origin), Fields::new());
    // `auto` is nothing in clear text.
    let mut call = Call { http2: OriginHttp2::Auto, ..call(&to, &fields) };
    assert_eq!(patiently(upstreams.call(&mut call)).await.unwrap().head.status, 200);
    assert_eq!(upstreams.stats().total().http2_requests, 0);
}
