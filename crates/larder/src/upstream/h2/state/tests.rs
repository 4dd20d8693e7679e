//! The state against frames of an origin, lawful ones and others.

use super::*;
use larder_wire::h2::frame::HEAD_BYTES;
use proptest::prelude::*;
use std::task::Waker;

/// A state whose origin has said these SETTINGS; the frames until then are gone.
fn ready_with(settings: &Settings) -> State {
    let limits = Limits { heads: HeadLimits::default(), interim_heads_max: 4 };
    let mut state = State::new(limits);
    receive(&mut state, |out| frame::write_settings(out, settings)).unwrap();
    assert!(state.has_settings());
    sent(&mut state);
    state
}

fn ready() -> State {
    ready_with(&Settings::default())
}

fn receive(state: &mut State, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Trouble> {
    let mut out = Vec::new();
    write(&mut out);
    state.inbox.extend_from_slice(&out);
    state.read_frames()
}

/// The frames that wait to be written, by their types, streams and payloads.
fn sent(state: &mut State) -> Vec<(u8, u32, Vec<u8>)> {
    let mut bytes = Vec::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        while !state.outbox.is_empty() {
            state.outbox.write_some(&mut bytes).await.unwrap();
        }
    });
    let mut rest = bytes.strip_prefix(PREFACE).unwrap_or(&bytes);
    let mut frames = Vec::new();
    while let Some(length) = frame::frame_len(rest) {
        let stream = u32::from_be_bytes([rest[5], rest[6], rest[7], rest[8]]);
        frames.push((rest[3], stream, rest[HEAD_BYTES..length].to_vec()));
        rest = &rest[length..];
    }
    assert!(rest.is_empty());
    frames
}

fn block(out: &mut Vec<u8>, stream: u32, ends_stream: bool, fields: &[(&str, &str)]) {
    let mut block = Vec::new();
    fields.iter().for_each(|(name, value)| hpack::write_field(&mut block, name.as_bytes(), value.as_bytes(), false));
    frame::write_block(out, stream, &block, ends_stream, 16_384);
}

fn data(out: &mut Vec<u8>, stream: u32, bytes: &[u8], ends_stream: bool) {
    frame::write_data_head(out, stream, bytes.len(), ends_stream);
    out.extend_from_slice(bytes);
}

fn get(state: &mut State) -> u32 {
    state.begin(&Method::Get, true, |out| hpack::write_field(out, b":method", b"GET", false)).unwrap()
}

fn head(state: &mut State, number: u32) -> Poll<Result<ResponseHead, UpstreamFault>> {
    state.poll_head(number, &Context::from_waker(Waker::noop()))
}

fn piece(state: &mut State, number: u32) -> Poll<Result<Option<Bytes>, UpstreamFault>> {
    state.poll_piece(number, &Context::from_waker(Waker::noop()))
}

fn fault_of<T>(polled: Poll<Result<T, UpstreamFault>>) -> UpstreamFault {
    match polled {
        Poll::Ready(Err(fault)) => fault,
        Poll::Ready(Ok(_)) => panic!("no fault"),
        Poll::Pending => panic!("nothing yet"),
    }
}

/// The code of the fault that ends the connection.
fn code_of(taken: Result<(), Trouble>) -> ErrorCode {
    match taken.unwrap_err() {
        Trouble::Fault(H2Fault { scope: Scope::Connection, code, .. }) => code,
        other => panic!("{other:?}"),
    }
}

const OK: &[(&str, &str)] = &[(":status", "200")];

#[test]
fn a_connection_begins_with_preface_and_settings() {
    let limits = Limits { heads: HeadLimits::default(), interim_heads_max: 4 };
    let mut state = State::new(limits);
    let frames = sent(&mut state);
    assert_eq!(frames.iter().map(|(kind, ..)| *kind).collect::<Vec<_>>(), [4, 8]);
    let mut bytes = Vec::new();
    frame::write_settings(&mut bytes, &Settings { takes_pushes: Some(false), ..Settings::default() });
    assert!(frames[0].2.starts_with(&bytes[HEAD_BYTES..]), "pushes are switched off");
    // Another frame than SETTINGS, or another protocol.
    assert_eq!(code_of(receive(&mut state, |out| frame::write_ping(out, [0; 8]))), ErrorCode::Protocol);
    let mut state = State::new(limits);
    assert_eq!(
        code_of(receive(&mut state, |out| out.extend(b"HTTP/1.1 400 Bad Request\r\n\r\n"))),
        ErrorCode::FrameSize
    );
}

#[test]
fn responses_come_in_any_order_with_interim_heads_and_trailers() {
    let mut state = ready();
    let (first, second) = (get(&mut state), get(&mut state));
    assert_eq!((first, second), (1, 3));
    receive(&mut state, |out| {
        block(out, second, false, &[(":status", "103"), ("link", "</a>")]);
        block(out, second, false, &[(":status", "200"), ("content-length", "5")]);
        data(out, second, b"hel", false);
        block(out, first, true, &[(":status", "204")]);
        data(out, second, b"lo", false);
        block(out, second, true, &[("x-sum", "7")]);
    })
    .unwrap();
    assert!(matches!(head(&mut state, second), Poll::Ready(Ok(head)) if head.status == 103));
    assert!(matches!(head(&mut state, second), Poll::Ready(Ok(head)) if head.status == 200));
    assert_eq!(state.expected_bytes(second), Some(5));
    assert!(!state.is_over(second));
    assert!(matches!(piece(&mut state, second), Poll::Ready(Ok(Some(bytes))) if bytes == "hello"));
    assert!(state.is_over(second));
    assert_eq!(state.take_trailers(second).unwrap().text("x-sum"), Some("7"));
    assert!(matches!(head(&mut state, first), Poll::Ready(Ok(head)) if head.status == 204));
    assert!(state.is_over(first));
    assert_eq!(state.expected_bytes(first), Some(0));
    sent(&mut state);
    state.end(first);
    state.end(second);
    assert!(sent(&mut state).is_empty(), "a response that is over needs no reset");
    assert!(state.is_idle());
}

#[test]
fn a_body_has_the_length_that_the_head_says() {
    let length = [(":status", "200"), ("content-length", "3")];
    let cases: [(&[&[u8]], bool, bool); 5] = [
        (&[b"ab", b"c"], true, true),
        (&[b"ab"], true, false),
        (&[b"abcd"], false, false),
        (&[b"abc", b"d"], true, false),
        (&[b"abc", b""], true, true),
    ];
    for (pieces, ends, is_lawful) in cases {
        let mut state = ready();
        let number = get(&mut state);
        receive(&mut state, |out| {
            block(out, number, false, &length);
            for (at, bytes) in pieces.iter().enumerate() {
                data(out, number, bytes, ends && at + 1 == pieces.len());
            }
        })
        .unwrap();
        assert!(matches!(head(&mut state, number), Poll::Ready(Ok(_))));
        if is_lawful {
            assert!(matches!(piece(&mut state, number), Poll::Ready(Ok(Some(bytes))) if bytes == "abc"));
            assert!(state.is_over(number));
            continue;
        }
        while matches!(piece(&mut state, number), Poll::Ready(Ok(Some(_)))) {}
        let fault = fault_of(piece(&mut state, number));
        assert_eq!((fault.as_str(), fault.retry), ("malformed", Retry::No), "{pieces:?}");
        let reset = sent(&mut state).into_iter().find(|(kind, ..)| *kind == 3).unwrap();
        assert_eq!((reset.1, reset.2[3]), (number, ErrorCode::Protocol as u8));
        // The other streams of the connection go on.
        let other = get(&mut state);
        receive(&mut state, |out| block(out, other, true, OK)).unwrap();
        assert!(matches!(head(&mut state, other), Poll::Ready(Ok(_))));
    }
}

#[test]
fn a_response_without_a_body_has_none() {
    for (method, status, is_lawful) in [
        (Method::Head, "200", true),
        (Method::Get, "304", true),
        (Method::Get, "204", false),
        (Method::Get, "200", false),
    ] {
        let mut state = ready();
        let number = state.begin(&method, true, |_| {}).unwrap();
        let length = [(":status", status), ("content-length", "9")];
        receive(&mut state, |out| block(out, number, true, &length)).unwrap();
        match is_lawful || status == "204" {
            true => {
                assert!(matches!(head(&mut state, number), Poll::Ready(Ok(_))), "{method:?} {status}");
                assert!(state.is_over(number));
            }
            false => assert_eq!(fault_of(head(&mut state, number)).as_str(), "malformed"),
        }
        // DATA where there is none.
        let mut state = ready();
        let number = state.begin(&Method::Head, true, |_| {}).unwrap();
        receive(&mut state, |out| {
            block(out, number, false, OK);
            data(out, number, b"x", true);
        })
        .unwrap();
        assert!(matches!(head(&mut state, number), Poll::Ready(Ok(_))));
        assert_eq!(fault_of(piece(&mut state, number)).as_str(), "malformed");
    }
}

#[test]
fn malformed_messages_end_their_stream_alone() {
    type Case<'a> = &'a [(bool, &'a [(&'a str, &'a str)])];
    let cases: [Case<'_>; 9] = [
        &[(true, &[(":status", "101")])],
        &[(true, &[(":status", "103")])],
        &[(true, &[(":status", "200"), ("connection", "close")])],
        &[(true, &[(":status", "200"), ("transfer-encoding", "chunked")])],
        &[(true, &[("x-first", "1"), (":status", "200")])],
        &[(true, &[(":status", "200"), ("content-length", "0"), ("content-length", "0")])],
        &[(true, &[(":status", "200"), ("content-length", "+0")])],
        &[(false, OK), (false, OK)],
        &[(false, OK), (true, &[(":status", "200")])],
    ];
    for blocks in cases {
        let mut state = ready();
        let number = get(&mut state);
        receive(&mut state, |out| blocks.iter().for_each(|(ends, fields)| block(out, number, *ends, fields))).unwrap();
        let fault = match head(&mut state, number) {
            Poll::Ready(Ok(_)) => fault_of(piece(&mut state, number)),
            other => fault_of(other),
        };
        assert_eq!((fault.as_str(), fault.status(), fault.retry), ("malformed", 502, Retry::No), "{blocks:?}");
    }
    let mut state = ready();
    let number = get(&mut state);
    receive(&mut state, |out| data(out, number, b"x", true)).unwrap();
    assert_eq!(fault_of(head(&mut state, number)).as_str(), "malformed");
    let mut state = ready();
    let number = get(&mut state);
    receive(&mut state, |out| (0..5).for_each(|_| block(out, number, false, &[(":status", "102")]))).unwrap();
    (0..4).for_each(|_| assert!(matches!(head(&mut state, number), Poll::Ready(Ok(_)))));
    assert_eq!(fault_of(head(&mut state, number)).kind, UpstreamFaultKind::TooManyInterim);
}

#[test]
fn a_reset_says_whether_the_request_may_be_sent_again() {
    for (code, retry) in [
        (ErrorCode::RefusedStream, Retry::Unprocessed),
        (ErrorCode::Http11Required, Retry::Unprocessed),
        (ErrorCode::Cancel, Retry::No),
        (ErrorCode::NoError, Retry::No),
        (ErrorCode::Internal, Retry::No),
    ] {
        let mut state = ready();
        let number = get(&mut state);
        receive(&mut state, |out| frame::write_reset(out, number, code)).unwrap();
        let fault = fault_of(head(&mut state, number));
        assert_eq!((fault.kind.clone(), fault.retry), (UpstreamFaultKind::Reset, retry), "{code:?}");
        assert_eq!(state.needs_http11, code == ErrorCode::Http11Required);
        // In the middle of a body it is a truncated answer, whatever the code.
        let mut state = ready();
        let number = get(&mut state);
        receive(&mut state, |out| {
            block(out, number, false, OK);
            data(out, number, b"half", false);
            frame::write_reset(out, number, code);
        })
        .unwrap();
        assert!(matches!(head(&mut state, number), Poll::Ready(Ok(_))));
        assert!(matches!(piece(&mut state, number), Poll::Ready(Ok(Some(bytes))) if bytes == "half"));
        let fault = fault_of(piece(&mut state, number));
        assert_eq!((fault.kind, fault.retry), (UpstreamFaultKind::Truncated, Retry::No), "{code:?}");
        // Behind the end it stops the request alone.
        let mut state = ready();
        let number = state.begin(&Method::Post, false, |_| {}).unwrap();
        receive(&mut state, |out| {
            block(out, number, true, OK);
            frame::write_reset(out, number, code);
        })
        .unwrap();
        assert!(matches!(head(&mut state, number), Poll::Ready(Ok(_))));
        assert!(state.is_over(number));
        assert!(matches!(state.poll_room(number, &Context::from_waker(Waker::noop())), Poll::Ready(false)));
    }
}

#[test]
fn an_origin_that_leaves_serves_what_it_has_begun() {
    let mut state = ready();
    let (first, second) = (get(&mut state), get(&mut state));
    receive(&mut state, |out| frame::write_go_away(out, first, ErrorCode::NoError, "")).unwrap();
    assert_eq!(fault_of(head(&mut state, second)).retry, Retry::Unprocessed);
    assert_eq!((state.streams_max(), state.is_leaving()), (0, true));
    assert_eq!(state.begin(&Method::Get, true, |_| {}).unwrap_err().retry, Retry::Unprocessed);
    receive(&mut state, |out| block(out, first, true, OK)).unwrap();
    assert!(matches!(head(&mut state, first), Poll::Ready(Ok(_))));
}

#[test]
fn a_connection_that_ends_says_what_may_be_sent_again() {
    let trouble = || Trouble::Closed;
    let mut state = ready();
    let (first, second, third) = (get(&mut state), get(&mut state), get(&mut state));
    receive(&mut state, |out| {
        block(out, second, false, OK);
        block(out, third, true, OK);
    })
    .unwrap();
    state.end_streams(&trouble());
    // It was the first of its connection: the origin has read it, as far as is known.
    assert_eq!(fault_of(head(&mut state, first)).retry, Retry::No);
    assert!(matches!(head(&mut state, second), Poll::Ready(Ok(_))));
    assert_eq!(fault_of(piece(&mut state, second)).kind, UpstreamFaultKind::Truncated);
    assert!(matches!(head(&mut state, third), Poll::Ready(Ok(_))));
    assert!(state.is_over(third));
    let mut state = ready();
    let (_, second) = (get(&mut state), get(&mut state));
    state.end_streams(&trouble());
    assert_eq!(fault_of(head(&mut state, second)).retry, Retry::IfIdempotent);
}

#[test]
fn faults_of_the_origin_end_the_connection() {
    type Case = (fn(&mut Vec<u8>), ErrorCode);
    let hostile: [Case; 12] = [
        (|out| out.extend([0, 0, 4, 5, 4, 0, 0, 0, 1, 0, 0, 0, 2]), ErrorCode::Protocol),
        (
            |out| frame::write_settings(out, &Settings { takes_pushes: Some(true), ..Settings::default() }),
            ErrorCode::Protocol,
        ),
        (|out| block(out, 3, true, OK), ErrorCode::Protocol),
        (|out| block(out, 2, true, OK), ErrorCode::Protocol),
        (|out| data(out, 3, b"x", true), ErrorCode::Protocol),
        (|out| frame::write_reset(out, 3, ErrorCode::Cancel), ErrorCode::Protocol),
        (|out| frame::write_window_update(out, 5, 1), ErrorCode::Protocol),
        (|out| frame::write_window_update(out, 0, WINDOW_MAX), ErrorCode::FlowControl),
        (
            |out| {
                block(out, 1, true, OK);
                data(out, 1, b"x", false);
            },
            ErrorCode::StreamClosed,
        ),
        (
            |out| {
                block(out, 1, true, OK);
                block(out, 1, true, OK);
            },
            ErrorCode::StreamClosed,
        ),
        (|out| out.extend([0, 0, 1, 9, 4, 0, 0, 0, 1, 0x88]), ErrorCode::Protocol),
        (|out| frame::write_block(out, 1, &[0xff, 0xff, 0xff], true, 16_384), ErrorCode::Compression),
    ];
    for (at, (write, code)) in hostile.into_iter().enumerate() {
        let mut state = ready();
        get(&mut state);
        assert_eq!(code_of(receive(&mut state, write)), code, "{at}");
    }
    // A frame within a field block, and a frame that is too long.
    let mut state = ready();
    let number = get(&mut state);
    let taken = receive(&mut state, |out| {
        frame::write_block(out, number, &[0x88; 20], true, 10);
        out.truncate(HEAD_BYTES + 10);
        frame::write_ping(out, [0; 8]);
    });
    assert_eq!(code_of(taken), ErrorCode::Protocol);
    assert_eq!(code_of(receive(&mut ready(), |out| out.extend([1, 0, 1, 0, 0, 0, 0, 0, 1]))), ErrorCode::FrameSize);
}

#[test]
fn floods_end_the_connection() {
    let flood = |taken: Result<(), Trouble>| match taken {
        Err(Trouble::Flood(flood)) => flood,
        other => panic!("{other:?}"),
    };
    let control: [fn(&mut Vec<u8>); 5] = [
        |out| frame::write_ping(out, [0; 8]),
        |out| frame::write_settings(out, &Settings::default()),
        |out| frame::write_go_away(out, 1, ErrorCode::NoError, ""),
        |out| out.extend([0, 0, 0, 0xfe, 0, 0, 0, 0, 0]),
        |out| data(out, 1, b"", false),
    ];
    for write in control {
        let mut state = ready();
        get(&mut state);
        let taken = receive(&mut state, |out| {
            block(out, 1, false, OK);
            (0..1_001).for_each(|_| write(out));
        });
        assert_eq!(flood(taken), Flood::Control);
    }
    let mut state = ready();
    get(&mut state);
    let taken = receive(&mut state, |out| (0..20_001).for_each(|_| frame::write_window_update(out, 1, 1)));
    assert_eq!(flood(taken), Flood::WindowUpdate);
    let mut state = ready();
    get(&mut state);
    let taken = receive(&mut state, |out| {
        frame::write_block(out, 1, &[0x88; 17], true, 1);
    });
    assert_eq!(flood(taken), Flood::FieldBlock);
    // A block longer than any list may be.
    let mut state = ready();
    get(&mut state);
    let bytes = HeadLimits::default().head_bytes_max + 1;
    let taken = receive(&mut state, |out| frame::write_block(out, 1, &vec![0x88; bytes], true, 16_384));
    assert_eq!(flood(taken), Flood::FieldBlock);
    // A bomb: a long line in the table, which is asked for again and again.
    let mut state = ready();
    let number = get(&mut state);
    let mut bomb = vec![0x88, 0x40, 1, b'a', 0x7f, 0xbd, 0x1e];
    bomb.extend(vec![b'b'; 4_028]);
    bomb.extend(vec![0xbe; 10_000]);
    receive(&mut state, |out| frame::write_block(out, number, &bomb, true, 16_384)).unwrap();
    assert_eq!(fault_of(head(&mut state, number)).as_str(), "malformed");
}

#[test]
fn a_body_that_nobody_takes_holds_up_no_other() {
    let mut state = ready();
    let (slow, fast) = (get(&mut state), get(&mut state));
    let chunk = vec![b'x'; 16_384];
    receive(&mut state, |out| {
        block(out, slow, false, OK);
        block(out, fast, false, OK);
        (0..STREAM_WINDOW_BYTES / 16_384).for_each(|_| data(out, slow, &chunk, false));
    })
    .unwrap();
    let mut taken = 0;
    for _ in 0..3_000 {
        receive(&mut state, |out| data(out, fast, &chunk, false)).unwrap();
        while let Poll::Ready(Ok(Some(bytes))) = piece(&mut state, fast) {
            taken += bytes.len();
        }
    }
    assert_eq!(taken, 3_000 * chunk.len());
    // The window of the stream that is taken has grown, that of the other not; one byte more is beyond it.
    assert_eq!(state.streams[&fast].window_bytes, STREAM_WINDOW_BYTES_MAX);
    assert_eq!(state.streams[&slow].window_bytes, STREAM_WINDOW_BYTES);
    assert_eq!(state.spare_bytes, SPARE_BYTES - (STREAM_WINDOW_BYTES_MAX - STREAM_WINDOW_BYTES));
    assert_eq!(code_of(receive(&mut state, |out| data(out, slow, b"x", false))), ErrorCode::FlowControl);
    state.end(fast);
    assert_eq!(state.spare_bytes, SPARE_BYTES, "its part is given back");
}

#[test]
fn a_request_keeps_within_the_windows_of_the_origin() {
    let settings = Settings { window: Some(10), ..Settings::default() };
    let mut state = ready_with(&settings);
    let (first, second) =
        (state.begin(&Method::Post, false, |_| {}).unwrap(), state.begin(&Method::Post, false, |_| {}).unwrap());
    sent(&mut state);
    let data_sent = |state: &mut State| {
        state.pump();
        let frames = sent(state).into_iter().filter(|(kind, ..)| *kind == 0);
        frames.map(|(_, stream, bytes)| (stream, bytes.len())).collect::<Vec<_>>()
    };
    state.queue(first, Bytes::from(vec![b'a'; 25]));
    state.queue(second, Bytes::from_static(b"bb"));
    state.end_body(second, Fields::new());
    assert_eq!(data_sent(&mut state), [(first, 10), (second, 2)]);
    assert!(data_sent(&mut state).is_empty());
    receive(&mut state, |out| frame::write_window_update(out, first, 5)).unwrap();
    assert_eq!(data_sent(&mut state), [(first, 5)]);
    // A larger window for all streams, then one that is smaller than what was sent.
    receive(&mut state, |out| frame::write_settings(out, &Settings { window: Some(12), ..settings })).unwrap();
    assert_eq!(data_sent(&mut state), [(first, 2)]);
    receive(&mut state, |out| frame::write_settings(out, &Settings { window: Some(0), ..settings })).unwrap();
    receive(&mut state, |out| frame::write_window_update(out, first, 12)).unwrap();
    assert!(data_sent(&mut state).is_empty());
    receive(&mut state, |out| frame::write_window_update(out, first, 100)).unwrap();
    assert_eq!(data_sent(&mut state), [(first, 8)]);
    let mut trailers = Fields::new();
    trailers.push("X-Sum", "7");
    state.end_body(first, trailers);
    state.pump();
    let frames = sent(&mut state);
    assert_eq!(frames.iter().map(|(kind, stream, _)| (*kind, *stream)).collect::<Vec<_>>(), [(1, first)]);
    assert!(matches!(state.poll_sent(first, &Context::from_waker(Waker::noop())), Poll::Ready(())));
}

#[test]
fn frames_for_a_stream_that_was_given_up_are_passed_over() {
    let mut state = ready();
    let number = get(&mut state);
    state.end(number);
    let frames = sent(&mut state);
    assert_eq!(frames.last().map(|(kind, stream, bytes)| (*kind, *stream, bytes[3])), Some((3, number, 8)));
    receive(&mut state, |out| {
        block(out, number, false, OK);
        (0..8).for_each(|_| data(out, number, &[b'x'; 16_384], false));
    })
    .unwrap();
    // No more than its window.
    assert_eq!(code_of(receive(&mut state, |out| data(out, number, b"x", false))), ErrorCode::FlowControl);
}

#[test]
fn numbers_of_streams_end() {
    let mut state = ready();
    state.next = WINDOW_MAX;
    assert_eq!(get(&mut state), WINDOW_MAX);
    assert_eq!(state.streams_max(), 0);
    assert!(state.begin(&Method::Get, true, |_| {}).is_err());
}

#[test]
fn small_pieces_are_put_together_in_their_order() {
    let mut state = ready();
    let number = get(&mut state);
    let large = vec![b'L'; 5_000];
    receive(&mut state, |out| {
        block(out, number, false, OK);
        data(out, number, b"a", false);
        data(out, number, b"b", false);
        data(out, number, &large, false);
        data(out, number, b"c", true);
    })
    .unwrap();
    assert!(matches!(head(&mut state, number), Poll::Ready(Ok(_))));
    let mut pieces = Vec::new();
    while let Poll::Ready(Ok(Some(bytes))) = piece(&mut state, number) {
        pieces.push(bytes);
    }
    assert_eq!(pieces, [&b"ab"[..], &large, b"c"]);
    let sizes: Vec<usize> = pieces.iter().map(Bytes::len).collect();
    assert_eq!(sizes, [2, 5_000, 1]);
}

/// A step of an origin and of the requests to it.
#[derive(Clone, Debug)]
enum Step {
    Begin(bool),
    Send(u32, usize),
    EndRequest(u32),
    Take(u32),
    Drop(u32),
    Head(u32, u8, bool),
    Data(u32, usize, bool),
    Reset(u32, u32),
    Window(u32, u32),
    Settings(u32, u32),
    Leave(u32),
    Bytes(Vec<u8>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let stream = || (0_u32..8).prop_map(|at| 2 * at + 1);
    let step = prop_oneof![
        4 => any::<bool>().prop_map(Step::Begin),
        2 => (stream(), 0_usize..100_000).prop_map(|(stream, bytes)| Step::Send(stream, bytes)),
        1 => stream().prop_map(Step::EndRequest),
        4 => stream().prop_map(Step::Take),
        1 => stream().prop_map(Step::Drop),
        4 => (stream(), 0_u8..4, any::<bool>()).prop_map(|(stream, kind, ends)| Step::Head(stream, kind, ends)),
        6 => (stream(), 0_usize..20_000, any::<bool>()).prop_map(|(stream, bytes, ends)| Step::Data(stream, bytes, ends)),
        1 => (stream(), 0_u32..15).prop_map(|(stream, code)| Step::Reset(stream, code)),
        2 => (0_u32..9, 1_u32..100_000).prop_map(|(stream, bytes)| Step::Window(stream, bytes)),
        1 => (0_u32..200, 0_u32..200_000).prop_map(|(streams, window)| Step::Settings(streams, window)),
        1 => stream().prop_map(Step::Leave),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Step::Bytes),
    ];
    prop::collection::vec(step, 0..120)
}

fn play(state: &mut State, step: &Step) -> Result<(), Trouble> {
    match step {
        Step::Begin(ends) => {
            let _ = state.begin(&Method::Get, *ends, |_| {});
        }
        Step::Send(stream, bytes) => state.queue(*stream, Bytes::from(vec![0; *bytes])),
        Step::EndRequest(stream) => state.end_body(*stream, Fields::new()),
        Step::Take(stream) => {
            let _ = head(state, *stream);
            let _ = piece(state, *stream);
        }
        Step::Drop(stream) => state.end(*stream),
        Step::Head(stream, kind, ends) => {
            let fields: &[(&str, &str)] = match kind {
                0 => &[(":status", "103")],
                1 => &[(":status", "200"), ("content-length", "30000")],
                2 => &[("x-trailer", "1")],
                _ => OK,
            };
            return receive(state, |out| block(out, *stream, *ends, fields));
        }
        Step::Data(stream, bytes, ends) => return receive(state, |out| data(out, *stream, &vec![1; *bytes], *ends)),
        Step::Reset(stream, code) => {
            return receive(state, |out| frame::write_reset(out, *stream, ErrorCode::of(*code)));
        }
        Step::Window(stream, bytes) => return receive(state, |out| frame::write_window_update(out, *stream, *bytes)),
        Step::Settings(streams, window) => {
            let settings = Settings { streams_max: Some(*streams), window: Some(*window), ..Settings::default() };
            return receive(state, |out| frame::write_settings(out, &settings));
        }
        Step::Leave(last) => return receive(state, |out| frame::write_go_away(out, *last, ErrorCode::NoError, "")),
        Step::Bytes(bytes) => return receive(state, |out| out.extend_from_slice(bytes)),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// An origin that sends anything makes no panic, no more bytes held than the windows permit, and a fault that stays.
    #[test]
    fn an_origin_may_send_anything(steps in steps()) {
        let mut state = ready();
        for step in &steps {
            let played = play(&mut state, step);
            state.pump();
            if state.outbox.len() > OUTBOX_BYTES_MAX {
                sent(&mut state);
            }
            let more: u32 = state.streams.values().map(|stream| stream.window_bytes - STREAM_WINDOW_BYTES).sum();
            prop_assert_eq!(state.spare_bytes + more, SPARE_BYTES);
            for stream in state.streams.values() {
                prop_assert!(stream.held_bytes() <= u64::from(stream.window_bytes));
                prop_assert!(stream.fault.is_none() || stream.is_sent);
                prop_assert!(stream.window.room() <= WINDOW_MAX);
            }
            prop_assert!(state.ended.len() <= ENDED_STREAMS_MAX);
            if let Err(trouble) = played {
                state.end_streams(&trouble);
                let open: Vec<u32> = state.streams.keys().copied().collect();
                for number in open {
                    while let Poll::Ready(Ok(_)) = head(&mut state, number) {}
                    while let Poll::Ready(Ok(Some(_))) = piece(&mut state, number) {}
                    // Each response is whole or has a fault.
                    prop_assert!(state.is_over(number) || matches!(piece(&mut state, number), Poll::Ready(Err(_))));
                }
                break;
            }
        }
    }
}
