//! The state of a connection without a socket: whatever comes, each request is told of once, and nothing makes it panic.

use super::state::{End, Event, State};
use super::{StreamSettings, head};
use crate::distribution::Distribution;
use crate::journal::Journal;
use crate::ledger::{Beside, Mode, Trouble};
use crate::object::{Content, Law, Name, World};
use crate::origin::Hosts;
use crate::random::{Seal, Stream};
use crate::robot::{Ask, Company, Desk, Job, Kindred, Multiplexed, Outcome, RobotSettings, Route, StreamOutcome, Wish};
use crate::wire::{Clock, Xact};
use larder_wire::h2::frame::{self, Frame};
use larder_wire::h2::hpack::{Decoder, FieldList, write_field};
use larder_wire::h2::{ErrorCode, PREFACE};
use proptest::prelude::*;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

const NOW: u64 = 1_800_000_000;

/// The surroundings of a connection.
struct Around {
    law: Law,
    settings: RobotSettings,
    route: Route,
    journal: Journal,
    clock: Clock,
}

impl Around {
    fn new(bytes: f64) -> Self {
        let content = Content::plain("page", "text/html", Distribution::Constant(bytes), bytes as u64);
        Self {
            law: Law { seed: 7, tag: 1, epoch: NOW, contents: vec![content], ..Law::default() },
            settings: RobotSettings::default(),
            route: Route {
                mode: Mode::Reverse,
                address: Some("127.0.0.1:1".parse().unwrap()),
                host: "site.test".to_owned(),
                origin_port: 80,
                hosts: Hosts::default(),
                names: false,
                tls: false,
                purge: String::new(),
            },
            journal: Journal::new(Seal::random(), 1, false),
            clock: Clock::at(NOW),
        }
    }

    fn with<T>(&self, act: impl FnOnce(&Desk<'_>) -> T) -> T {
        act(&self.desk(&mut []))
    }

    fn desk<'a>(&'a self, buffer: &'a mut [u8]) -> Desk<'a> {
        let Self { law, settings, route, journal, clock } = self;
        Desk { law, settings, route, journal, clock, now: Duration::from_secs(1), buffer }
    }

    fn job(&self, number: u64, kind: Kindred) -> Box<Job> {
        let name = Name { server: 0, content: 0, world: World::Public { worker: 0 }, number, embedded: false };
        let wish = Wish { kind, ..Wish::of(name, self.law.facts(&name), true) };
        Job::new(wish, Xact { tag: 1, number }, Company::default(), false, Duration::ZERO)
    }
}

fn settings_frame() -> Vec<u8> {
    let mut out = Vec::new();
    frame::write_settings(&mut out, &frame::Settings::default());
    out
}

fn is_request(event: &Event) -> bool {
    !matches!(event, Event::Accused(_))
}

/// Requests are begun, bytes come, the connection ends; the number of requests that were told of.
fn told(requests: usize, bytes: &[u8], cuts: usize) -> usize {
    let around = Around::new(500.0);
    let mut state = State::new(StreamSettings::default(), false);
    around.with(|desk| {
        for number in 0..requests {
            let kind = if number % 3 == 2 { Kindred::Post(700) } else { Kindred::Basic };
            state.begin(around.job(number as u64 + 1, kind), desk);
        }
        let mut end = End { trouble: Trouble::Reset, detail: "closed".to_owned(), code: None };
        for piece in bytes.chunks(bytes.len().div_ceil(cuts).max(1)) {
            state.pump(desk.now);
            if let Err(found) = state.receive(piece, desk) {
                end = found;
                break;
            }
        }
        state.end(&end, desk.now);
    });
    assert!(state.streams.is_empty());
    state.events.iter().filter(|event| is_request(event)).count()
}

#[test]
fn the_preface_and_a_request_are_those_that_a_server_reads() {
    let around = Around::new(500.0);
    let mut state = State::new(StreamSettings::default(), true);
    around.with(|desk| state.begin(around.job(1, Kindred::Basic), desk));
    let rest = state.out.strip_prefix(PREFACE).unwrap();
    let (first, len) = frame::read(rest, 1 << 14).unwrap().unwrap();
    let Frame::Settings(own) = first else { panic!("{first:?}") };
    assert_eq!((own.takes_pushes, own.window), (Some(false), Some(6 << 20)));
    let (second, more) = frame::read(&rest[len..], 1 << 14).unwrap().unwrap();
    assert_eq!(second, Frame::WindowUpdate { stream: 0, bytes: (15 << 20) - 65_535 });
    let (third, _) = frame::read(&rest[len + more..], 1 << 14).unwrap().unwrap();
    let Frame::Headers { stream: 1, fragment, ends_stream: true, ends_headers: true } = third else {
        panic!("{third:?}")
    };
    let mut list = FieldList::default();
    Decoder::new().decode(fragment, 1 << 16, &mut list).unwrap();
    let names: Vec<_> = list.iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect();
    assert_eq!(names[..4], [":method", ":scheme", ":authority", ":path"]);
    assert!(names.iter().all(|name| name.bytes().all(|byte| !byte.is_ascii_uppercase())), "{names:?}");
    assert!(
        list.iter().any(|line| line == (&b":authority"[..], &b"site.test"[..])) && !names.contains(&"host".to_owned())
    );
    assert!(list.iter().any(|line| line == (&b":scheme"[..], &b"https"[..])));
}

#[test]
fn fields_of_a_connection_are_named_and_other_nonsense_is_refused() {
    let list = |lines: &[(&str, &str)]| {
        let mut block = Vec::new();
        for (name, value) in lines {
            write_field(&mut block, name.as_bytes(), value.as_bytes(), false);
        }
        let mut list = FieldList::default();
        Decoder::new().decode(&block, 1 << 16, &mut list).unwrap();
        list
    };
    let (head, field) = head::reply(&list(&[(":status", "200"), ("upgrade", "h3"), ("x-a", "b")])).unwrap();
    assert_eq!((head.status, field.as_deref()), (200, Some("upgrade: h3")));
    assert!(head.fields.contains("X-A") && !head.fields.contains("Upgrade"));
    assert_eq!(
        head::trailers(&list(&[("transfer-encoding", "chunked")])),
        Ok(Some("transfer-encoding: chunked".into()))
    );
    for lines in [
        &[("x-a", "b")][..],
        &[(":status", "20")],
        &[(":status", "101")],
        &[(":status", "200"), (":status", "200")],
        &[(":status", "200"), ("x-a", " b")],
        &[(":status", "200"), ("content-length", "1"), ("content-length", "2")],
        &[],
    ] {
        let read = head::reply(&list(lines)).and_then(|(head, _)| {
            let framing = larder_wire::framing::of_response(&head, &larder_wire::Method::Get);
            framing.map(|_| ()).map_err(|fault| fault.to_string())
        });
        assert!(read.is_err(), "{lines:?}");
    }
    assert!(head::trailers(&list(&[(":status", "200")])).is_err());
}

/// A small object is alone until another request begins; beside a large one it is beside that.
#[test]
fn a_small_request_is_alone_or_beside_a_large_one() {
    let (small, large) = (Around::new(500.0), Around::new(2e6));
    let mut state = State::new(StreamSettings::default(), false);
    let began = |state: &mut State, around: &Around, number| {
        around.with(|desk| state.begin(around.job(number, Kindred::Basic), desk));
    };
    let beside = |state: &State, number: u32| state.streams[&number].job.beside;
    began(&mut state, &small, 1);
    assert_eq!(beside(&state, 1), Some(Beside::Nothing));
    began(&mut state, &small, 2);
    assert_eq!((beside(&state, 1), beside(&state, 3)), (None, None));
    began(&mut state, &large, 3);
    began(&mut state, &small, 4);
    assert_eq!((beside(&state, 5), beside(&state, 7)), (None, Some(Beside::Large)));
}

/// The head of a large object is no large reply, and that of a small one no small one that is alone.
#[test]
fn replies_that_are_no_whole_objects_are_neither_small_nor_large() {
    let (small, large) = (Around::new(500.0), Around::new(2e6));
    for kind in [Kindred::Head, Kindred::ModifiedAfter, Kindred::Post(9)] {
        let mut state = State::new(StreamSettings::default(), false);
        large.with(|desk| state.begin(large.job(1, kind), desk));
        small.with(|desk| state.begin(small.job(2, Kindred::Basic), desk));
        assert_eq!(state.streams[&3].job.beside, None, "{kind:?}");
        let mut state = State::new(StreamSettings::default(), false);
        small.with(|desk| state.begin(small.job(1, kind), desk));
        assert_eq!(state.streams[&1].job.beside, None, "{kind:?}");
    }
}

/// All that is read in a turn counts as read at one time. In a longer one the small reply behind a film would take no time.
#[test]
fn a_turn_reads_a_buffer_at_most() {
    const BODY_BYTES: usize = 40_000;
    const BUFFER_BYTES: usize = 1_000;
    let body = vec![b'a'; BODY_BYTES];
    let old = [format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n").as_bytes(), &body].concat();
    let mut new = settings_frame();
    new.extend(head_frame(1, false));
    for piece in body.chunks(16_000) {
        frame::write_data_head(&mut new, 1, piece.len(), false);
        new.extend_from_slice(piece);
    }
    frame::write_data_head(&mut new, 1, 0, true);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut around = Around::new(BODY_BYTES as f64);
    around.route.address = listener.local_addr().ok();
    let (mut buffer, mut stream) = (vec![0; BUFFER_BYTES], Stream::named(7, "turns"));
    let mut desk = around.desk(&mut buffer);
    // Replies that lie in the socket before the first turn.
    let answered = |reply: &[u8]| -> TcpStream {
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(reply).unwrap();
        peer
    };
    let (from, job) = (Ipv4Addr::LOCALHOST, || around.job(1, Kindred::Basic));
    let mut link = Multiplexed::connect(0, from, None, job(), &desk, &mut stream).map_err(|(_, error)| error).unwrap();
    let _peer = answered(&new);
    link.ready(true, true, false);
    let mut reads = 0;
    loop {
        match link.step(&mut desk) {
            StreamOutcome::Read => reads += 1,
            StreamOutcome::Open => {}
            StreamOutcome::Done(report) => break assert_eq!(report.verdict.body_bytes, BODY_BYTES as u64),
            _ => panic!("after {reads} turns"),
        }
    }
    assert!(reads >= BODY_BYTES / BUFFER_BYTES - 2, "{reads} turns over HTTP/2");
    let mut ask = Ask::connect(0, from, None, job(), &desk, &mut stream).map_err(|(_, error)| error).unwrap();
    let _peer = answered(&old);
    let (mut reads, mut outcome) = (0, ask.ready(true, true, false, &mut desk));
    while matches!(outcome, Outcome::Read) {
        (reads, outcome) = (reads + 1, ask.step(&mut desk));
    }
    assert!(matches!(outcome, Outcome::Done(..)), "{outcome:?}");
    assert!(reads >= BODY_BYTES / BUFFER_BYTES - 2, "{reads} turns over HTTP/1.1");
}

/// The head of a reply with status 200.
fn head_frame(stream: u32, ends: bool) -> Vec<u8> {
    let (mut out, mut block) = (Vec::new(), Vec::new());
    write_field(&mut block, b":status", b"200", false);
    frame::write_block(&mut out, stream, &block, ends, 1 << 14);
    out
}

/// A peer may permit frames of 16 MB; a robot that sent one would hold more than it may for a peer that reads nothing.
#[test]
fn frames_of_uploads_are_no_larger_than_all_peers_take() {
    let around = Around::new(500.0);
    let mut state = State::new(StreamSettings::default(), false);
    let generous = frame::Settings { window: Some(1 << 30), payload_bytes_max: Some(16_777_215), ..Default::default() };
    let mut bytes = Vec::new();
    frame::write_settings(&mut bytes, &generous);
    frame::write_window_update(&mut bytes, 0, 1 << 30);
    let mut ping = vec![0, 0, 8, 6, 0, 0, 0, 0, 0];
    ping.extend([0; 8]);
    around.with(|desk| {
        state.receive(&bytes, desk).map_err(|end| end.detail).unwrap();
        state.begin(around.job(1, Kindred::Post(6_000_000)), desk);
        state.pump(desk.now);
        assert!(state.out.len() > 100_000 && state.out.len() < 1 << 20, "{}", state.out.len());
        state.receive(&ping, desk).map_err(|end| end.detail).unwrap();
    });
}

#[test]
fn a_wrong_answer_that_stalls_is_no_timeout_alone() {
    let around = Around::new(5_000.0);
    // The head lacks the fields of an answer that the origin gave.
    for (head, expected) in [(Vec::new(), None), (head_frame(1, false), Some(Trouble::WrongHeader))] {
        let mut state = State::new(StreamSettings::default(), false);
        let bytes = [settings_frame(), head].concat();
        around.with(|desk| {
            state.begin(around.job(1, Kindred::Basic), desk);
            state.receive(&bytes, desk).map_err(|end| end.detail).unwrap();
        });
        assert!(state.events.is_empty());
        state.expire(Duration::from_secs(2), Duration::from_secs(1));
        let wrong = match state.events.pop_front() {
            Some(Event::Done(report)) => report.verdict.findings.wrong.map(|(trouble, _)| trouble),
            // Nothing came that could be judged.
            other => {
                assert!(other.is_some(), "it has ended");
                None
            }
        };
        assert_eq!(wrong, expected);
    }
}

/// No WINDOW_UPDATE of nothing, which is an error (RFC 9113 section 6.9).
#[test]
fn the_smallest_window_is_opened_by_what_came() {
    let around = Around::new(500.0);
    let mut state = State::new(StreamSettings { stream_window_bytes: 1, ..StreamSettings::default() }, false);
    let mut bytes = [settings_frame(), head_frame(1, false)].concat();
    frame::write_data_head(&mut bytes, 1, 0, false);
    frame::write_data_head(&mut bytes, 1, 1, false);
    bytes.push(b'a');
    around.with(|desk| {
        state.begin(around.job(1, Kindred::Basic), desk);
        state.out.clear();
        state.receive(&bytes, desk).map_err(|end| end.detail).unwrap();
    });
    let (mut rest, mut opened) = (&state.out[..], Vec::new());
    while let Some((frame, len)) = frame::read(rest, 1 << 14).unwrap() {
        if let Frame::WindowUpdate { stream, bytes } = frame {
            opened.push((stream, bytes));
        }
        rest = &rest[len..];
    }
    assert_eq!(opened, [(1, 1)]);
}

#[test]
fn goaway_gives_back_what_was_not_taken() {
    let around = Around::new(500.0);
    let mut state = State::new(StreamSettings::default(), false);
    let mut bytes = settings_frame();
    frame::write_go_away(&mut bytes, 3, ErrorCode::NoError, "");
    around.with(|desk| {
        (1..=4).for_each(|number| state.begin(around.job(number, Kindred::Basic), desk));
        state.receive(&bytes, desk).map_err(|end| end.detail).unwrap();
    });
    let again = |event: &Event| matches!(event, Event::Again(_, Trouble::StreamRefused, _));
    assert_eq!((state.streams.len(), state.events.iter().filter(|event| again(event)).count()), (2, 2));
    assert!(!state.is_open());
}

proptest! {
    #[test]
    fn each_request_is_told_of_once(
        requests in 0usize..6,
        frames in prop::collection::vec((0u8..12, any::<u8>(), 0u32..14, prop::collection::vec(any::<u8>(), 0..40)), 0..30),
        cuts in 1usize..5,
        begins: bool,
    ) {
        let mut bytes = if begins { settings_frame() } else { Vec::new() };
        for (kind, flags, stream, payload) in frames {
            bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
            bytes.extend_from_slice(&[kind, flags]);
            bytes.extend_from_slice(&stream.to_be_bytes());
            bytes.extend_from_slice(&payload);
        }
        prop_assert_eq!(told(requests, &bytes, cuts), requests);
    }

    #[test]
    fn any_bytes_can_be_read(requests in 0usize..4, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert_eq!(told(requests, &bytes, 2), requests);
    }
}
