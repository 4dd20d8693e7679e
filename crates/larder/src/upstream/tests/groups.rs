//! Groups of origins over sockets: which member gets a request, what is sent again, and what the group learns.

use super::play::*;
use crate::config::Loaded;
use crate::record::{GroupNote, TryEnd};
use crate::request_body::{Piece, RequestBody};
use crate::upstream::{Call, CallEvent, GroupState, OutgoingBody, UpstreamFault, Upstreams, check_members};
use bytes::Bytes;
use larder_balance::{Admin, GroupReport, MemberState};
use larder_wire::{Fields, Method, Url};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const BROKEN: &str = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 3\r\n\r\nno\n";

/// An address where nobody listens.
async fn nobody() -> SocketAddr {
    tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// An origin that answers so, and counts requests.
async fn counted(answer: &'static str) -> (SocketAddr, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&count);
    let address = origin(move |mut peer| {
        let counts = Arc::clone(&counts);
        async move {
            while peer.request().await.is_some() {
                counts.fetch_add(1, Ordering::SeqCst);
                peer.say(answer).await;
            }
        }
    })
    .await;
    (address, count)
}

/// Upstreams with the group `app` of these members; `more` is further TOML of the group.
fn grouped(members: &[SocketAddr], more: &str) -> (Upstreams, Arc<GroupState>) {
    let members: Vec<String> =
        members.iter().enumerate().map(|(at, to)| format!("{{ name = \"m{at}\", url = \"http://{to}\" }}")).collect();
    grouped_as(&members.join(", "), more)
}

fn grouped_as(members: &str, more: &str) -> (Upstreams, Arc<GroupState>) {
    let text = format!("[[origin]]\nname = \"app\"\nmembers = [{members}]\n{more}");
    let loaded = Loaded::parse("larder.toml", &text, &[]).unwrap_or_else(|trouble| panic!("{trouble}"));
    let upstreams = upstreams(|settings| {
        settings.groups.have(&loaded.config.origins);
        settings.first_byte_timeout = Duration::from_secs(5);
    });
    let group = upstreams.groups().named("app").unwrap();
    (upstreams, group)
}

struct Asked {
    /// The status or the word of the fault.
    end: String,
    fault: Option<UpstreamFault>,
    note: GroupNote,
    cookie: Option<String>,
    body: Vec<u8>,
}

impl Asked {
    fn members(&self) -> Vec<&str> {
        self.note.tries.iter().map(|each| each.member.name.as_str()).collect()
    }
}

async fn ask(upstreams: &Upstreams, method: &str, body: Option<&'static [u8]>) -> Asked {
    ask_with(upstreams, method, body, &[]).await
}

async fn ask_with(upstreams: &Upstreams, method: &str, body: Option<&'static [u8]>, more: &[(&str, &str)]) -> Asked {
    let (to, mut fields, method) = (group_url(), Fields::new(), Method::from_token(method));
    fields.push("Host", "a.example");
    more.iter().for_each(|(name, value)| fields.push(name, value));
    let body = body.map(|bytes| {
        fields.push("Content-Length", bytes.len().to_string());
        let (pieces, taken) = mpsc::channel(2);
        pieces.try_send(Piece::Data(Bytes::from_static(bytes))).unwrap();
        pieces.try_send(Piece::End(Fields::new())).unwrap();
        OutgoingBody { pieces: taken.into(), length: RequestBody::Known(bytes.len() as u64), is_gathered: false }
    });
    let note = RefCell::new(None);
    let on = |event| {
        if let CallEvent::GroupAsked(asked) = event {
            note.replace(Some(*asked));
        }
    };
    let mut call = Call { method: &method, body, on: &on, ..call(&to, &fields) };
    let answered = patiently(upstreams.call(&mut call)).await;
    let note = note.take().expect("a note of the members");
    match answered {
        Ok(mut response) => {
            let mut body = Vec::new();
            while let Ok(Some(piece)) = patiently(response.body.next()).await {
                body.extend_from_slice(&piece);
            }
            let cookie = note.cookie.clone().map(String::from);
            Asked { end: response.head.status.to_string(), fault: None, note, cookie, body }
        }
        Err(fault) => {
            Asked { end: fault.as_str().to_owned(), fault: Some(fault), note, cookie: None, body: Vec::new() }
        }
    }
}

fn group_url() -> Url {
    crate::config::url::parse_origin("app").unwrap()
}

fn report(group: &GroupState) -> GroupReport {
    group.report().1
}

fn states(group: &GroupState) -> Vec<MemberState> {
    report(group).members.iter().map(|member| member.state).collect()
}

fn nothing_is_under_way(group: &GroupState) {
    let report = report(group);
    assert_eq!(report.under_way, 0);
    assert!(report.members.iter().all(|member| member.under_way == 0), "{report:?}");
}

#[tokio::test]
async fn a_dead_member_costs_no_client_anything_and_is_ejected() {
    let members = [answers(OK).await, nobody().await, answers(OK).await];
    let (upstreams, group) = grouped(&members, "balance = \"round-robin\"");
    for _ in 0..60 {
        for (method, body) in [("GET", None), ("POST", Some(&b"abc"[..]))] {
            // Nothing of a request reaches a member that refuses the connection, so another one may be sent it.
            let asked = ask(&upstreams, method, body).await;
            assert_eq!(asked.end, "200", "{method}: {:?}", asked.note);
        }
    }
    let report = report(&group);
    assert_eq!(states(&group), [MemberState::Up, MemberState::Ejected, MemberState::Up]);
    assert_eq!((report.members[1].counts.requests, report.members[1].counts.failures), (5, 5));
    assert_eq!((report.requests, report.retries), (120, 5));
    nothing_is_under_way(&group);
}

#[tokio::test]
async fn a_get_that_is_answered_500_is_sent_to_another_member_and_a_post_is_not() {
    let ((good, asked_good), (bad, asked_bad)) = (counted(OK).await, counted(BROKEN).await);
    let (upstreams, group) = grouped(&[bad, good], "balance = \"round-robin\"\neject = { failures = 3 }");
    let get = ask(&upstreams, "GET", None).await;
    assert_eq!((get.end.as_str(), get.members()), ("200", vec!["m0", "m1"]));
    assert_eq!(get.note.tries[0].end, TryEnd::Answered(500));
    let post = ask(&upstreams, "POST", Some(b"abc")).await;
    assert_eq!((post.end.as_str(), post.members()), ("200", vec!["m1"]), "a further try takes no turn");
    let post = ask(&upstreams, "POST", Some(b"abc")).await;
    assert_eq!((post.end.as_str(), post.members(), post.body.as_slice()), ("500", vec!["m0"], &b"no\n"[..]));
    assert_eq!((asked_bad.load(Ordering::SeqCst), asked_good.load(Ordering::SeqCst)), (2, 2));
    while report(&group).members[0].state == MemberState::Up {
        ask(&upstreams, "GET", None).await;
    }
    assert_eq!(report(&group).members[0].counts.failures, 3);
    let post = ask(&upstreams, "POST", Some(b"abc")).await;
    assert_eq!((post.end.as_str(), post.members()), ("200", vec!["m1"]));
    assert_eq!(post.note.tries[0].passed_over.len(), 1);
    nothing_is_under_way(&group);
}

#[tokio::test]
async fn a_post_that_was_sent_is_never_sent_again() {
    let silent = says_and_closes("").await;
    let (good, asked) = counted(OK).await;
    let (upstreams, group) = grouped(&[silent, good], "balance = \"round-robin\"");
    let post = ask(&upstreams, "POST", Some(b"abc")).await;
    assert_eq!((post.end.as_str(), post.members()), ("reset", vec!["m0"]));
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    let get = ask(&upstreams, "GET", None).await;
    assert_eq!(get.end, "200");
    nothing_is_under_way(&group);
}

#[tokio::test]
async fn an_error_that_all_members_give_is_the_requests_own() {
    let members = [answers(BROKEN).await, answers(BROKEN).await];
    let (upstreams, group) = grouped(&members, "eject = { failures = 1 }");
    for _ in 0..5 {
        let asked = ask(&upstreams, "GET", None).await;
        assert_eq!((asked.end.as_str(), asked.members().len(), asked.body.as_slice()), ("500", 2, &b"no\n"[..]));
    }
    assert_eq!(states(&group), [MemberState::Up, MemberState::Up]);
    nothing_is_under_way(&group);
}

#[tokio::test]
async fn where_no_member_answers_the_fault_names_them() {
    let members = [nobody().await, nobody().await, nobody().await];
    let (upstreams, group) = grouped(&members, "");
    let asked = ask(&upstreams, "GET", None).await;
    let fault = asked.fault.unwrap();
    assert_eq!((fault.as_str(), fault.status()), ("refused", 502));
    assert!(["m0", "m1", "m2", "app"].iter().all(|name| fault.detail.contains(name)), "{}", fault.detail);
    for name in ["m0", "m1", "m2"] {
        assert!(group.set_admin(name, Admin::Maintenance));
    }
    let asked = ask(&upstreams, "GET", None).await;
    assert_eq!((asked.end.as_str(), asked.fault.unwrap().status()), ("no-member", 503));
    assert_eq!(asked.note.refused, Some("taken-out"));
    nothing_is_under_way(&group);
}

#[tokio::test]
async fn a_member_that_is_drained_gets_no_new_clients() {
    let ((first, asked_first), (second, asked_second)) = (counted(OK).await, counted(OK).await);
    let (upstreams, group) = grouped(&[first, second], "balance = \"sticky\"");
    let cookie = loop {
        let asked = ask(&upstreams, "GET", None).await;
        if asked.members() == ["m0"] {
            break asked.cookie.unwrap();
        }
    };
    let pair = cookie.split(';').next().unwrap().to_owned();
    assert!(cookie.starts_with("larder_member=") && cookie.ends_with("; Path=/; HttpOnly; SameSite=Lax"), "{cookie}");
    group.set_admin("m0", Admin::Draining);
    let (before, others_before) = (asked_first.load(Ordering::SeqCst), asked_second.load(Ordering::SeqCst));
    for _ in 0..10 {
        assert_eq!(ask(&upstreams, "GET", None).await.members(), ["m1"]);
        let known = ask_with(&upstreams, "GET", None, &[("Cookie", &format!("a=b; {pair}"))]).await;
        assert_eq!((known.members(), &known.cookie), (vec!["m0"], &None));
    }
    let (after, others_after) = (asked_first.load(Ordering::SeqCst), asked_second.load(Ordering::SeqCst));
    assert_eq!((after - before, others_after - others_before), (10, 10));
    group.set_admin("m0", Admin::Maintenance);
    let moved = ask_with(&upstreams, "GET", None, &[("Cookie", &pair)]).await;
    assert_eq!(moved.members(), ["m1"]);
    assert!(moved.cookie.is_some_and(|cookie| !cookie.starts_with(&pair)), "the client is led to its new member");
}

#[tokio::test]
async fn each_member_gets_its_own_host() {
    let echo = || async {
        origin(|mut peer| async move {
            while let Some(head) = peer.request().await {
                let host = head.lines().find_map(|line| line.strip_prefix("Host: ")).unwrap_or_default().to_owned();
                peer.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{host}", host.len())).await;
            }
        })
        .await
    };
    let [a, b, c] = [echo().await, echo().await, echo().await];
    let members = format!(
        "{{ url = \"http://{a}\" }}, {{ url = \"http://{b}\", host = \"origin\" }}, {{ url = \"http://{c}\", host = \"app.internal:8080\" }}"
    );
    let (upstreams, _) = grouped_as(&members, "balance = \"round-robin\"");
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(String::from_utf8(ask(&upstreams, "GET", None).await.body).unwrap());
    }
    assert_eq!(seen, ["a.example".to_owned(), b.to_string(), "app.internal:8080".to_owned()]);
}

#[tokio::test]
async fn a_late_request_gets_a_second_one_beside_it() {
    let is_slow = Arc::new(AtomicBool::new(false));
    let slow = Arc::clone(&is_slow);
    let dawdler = origin(move |mut peer| {
        let slow = Arc::clone(&slow);
        async move {
            while peer.request().await.is_some() {
                if slow.load(Ordering::SeqCst) {
                    return peer.wait_for_close().await;
                }
                peer.say(OK).await;
            }
        }
    })
    .await;
    let hedge = "balance = \"round-robin\"\nhedge = { percentile = 90, time_min = \"20ms\" }";
    let (upstreams, group) = grouped(&[dawdler, answers(OK).await], hedge);
    for _ in 0..200 {
        ask(&upstreams, "GET", None).await;
    }
    let before = report(&group).members[0].response_time;
    is_slow.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        let asked = ask(&upstreams, "GET", None).await;
        assert_eq!(asked.end, "200");
        if asked.members() == ["m0", "m1"] {
            assert_eq!((asked.note.tries[0].end, asked.note.tries[1].is_hedge), (TryEnd::Outrun, true));
        }
    }
    assert_eq!(report(&group).hedges, 1);
    assert!(report(&group).members[0].response_time > before, "{before:?} {:?}", report(&group));
    nothing_is_under_way(&group);
}

#[tokio::test]
async fn a_request_is_under_way_until_the_end_of_its_body_and_fails_if_that_breaks_off() {
    let broken = says_and_closes("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf").await;
    let (upstreams, group) = grouped(&[broken], "");
    let (to, mut fields) = (group_url(), Fields::new());
    fields.push("Host", "a.example");
    let mut response = patiently(upstreams.call(&mut call(&to, &fields))).await.unwrap();
    assert_eq!(report(&group).members[0].under_way, 1);
    while let Ok(Some(_)) = patiently(response.body.next()).await {}
    let member = &report(&group).members[0];
    assert_eq!((member.under_way, member.counts.failures), (0, 1));
}

#[tokio::test]
async fn checks_take_a_member_out_and_bring_it_back() {
    let is_well = Arc::new(AtomicBool::new(false));
    let well = Arc::clone(&is_well);
    let ill = origin(move |mut peer| {
        let well = Arc::clone(&well);
        async move {
            while let Some(head) = peer.request().await {
                assert!(head.starts_with("GET /up HTTP/1.1\r\n") && head.contains("Host: check.example\r\n"), "{head}");
                peer.say(if well.load(Ordering::SeqCst) { OK } else { BROKEN }).await;
            }
        }
    })
    .await;
    let check = "check = { path = \"/up\", every = \"100ms\", timeout = \"100ms\", host = \"check.example\" }";
    let (upstreams, group) = grouped(&[ill], check);
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async {
            let checks = tokio::task::spawn_local(check_members(upstreams.clone()));
            until(|| states(&group) == [MemberState::Down]).await;
            assert!(report(&group).members[0].counts.checks >= 3);
            is_well.store(true, Ordering::SeqCst);
            until(|| states(&group) == [MemberState::SlowStart]).await;
            checks.abort();
        })
        .await;
}

#[tokio::test]
async fn a_reload_keeps_what_is_known_of_members() {
    let (good, dead) = (answers(OK).await, nobody().await);
    let (upstreams, group) = grouped(&[good, dead], "balance = \"round-robin\"");
    for _ in 0..20 {
        ask(&upstreams, "GET", None).await;
    }
    assert_eq!(states(&group)[1], MemberState::Ejected);
    group.set_admin("m0", Admin::Draining);
    let text = format!(
        "[[origin]]\nname = \"app\"\nmembers = [{{ name = \"m1\", url = \"http://{dead}\" }}, {{ name = \"m0\", url = \"http://{good}\" }}]\n"
    );
    upstreams.groups().have(&Loaded::parse("larder.toml", &text, &[]).unwrap().config.origins);
    assert_eq!(states(&upstreams.groups().named("app").unwrap()), [MemberState::Ejected, MemberState::Draining]);
    upstreams.groups().have(&[]);
    assert!(upstreams.groups().named("app").is_none());
}

#[tokio::test]
async fn the_time_of_a_body_that_the_client_sends_is_none_of_the_members() {
    let (upstreams, group) = grouped(&[answers(OK).await], "");
    assert_eq!(ask(&upstreams, "POST", Some(b"abc")).await.end, "200");
    assert_eq!(report(&group).members[0].response_time, None);
    assert_eq!(ask(&upstreams, "GET", None).await.end, "200");
    assert!(report(&group).members[0].response_time.is_some());
}

/// A member that answers until it is to hang.
async fn hangs_once(is_to: &Arc<AtomicBool>) -> SocketAddr {
    let is_to = Arc::clone(is_to);
    origin(move |mut peer| {
        let is_to = Arc::clone(&is_to);
        async move {
            while peer.request().await.is_some() {
                if is_to.load(Ordering::SeqCst) {
                    return peer.wait_for_close().await;
                }
                peer.say(OK).await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_request_that_is_given_up_tells_whom_it_asked_and_one_that_changes_something_gets_no_hedge() {
    let hangs = Arc::new(AtomicBool::new(false));
    let members = [hangs_once(&hangs).await, hangs_once(&hangs).await];
    let (upstreams, group) = grouped(&members, "hedge = { percentile = 50, time_min = \"1ms\" }");
    for _ in 0..100 {
        ask(&upstreams, "GET", None).await;
    }
    let before = report(&group).hedges;
    hangs.store(true, Ordering::SeqCst);
    for (method, asked) in [("DELETE", 1), ("GET", 2)] {
        let (to, mut fields, method) = (group_url(), Fields::new(), Method::from_token(method));
        fields.push("Host", "a.example");
        let note = RefCell::new(None);
        let on = |event| {
            if let CallEvent::GroupAsked(asked) = event {
                note.replace(Some(*asked));
            }
        };
        let mut call = Call { method: &method, on: &on, ..call(&to, &fields) };
        let given_up = tokio::time::timeout(Duration::from_millis(500), upstreams.call(&mut call)).await;
        assert!(given_up.is_err(), "{method:?} was answered");
        let ends: Vec<TryEnd> = note.take().expect("a note").tries.iter().map(|each| each.end).collect();
        assert_eq!(ends, vec![TryEnd::GivenUp; asked], "{method:?}");
    }
    assert_eq!(report(&group).hedges, before + 1);
    nothing_is_under_way(&group);
}

#[tokio::test]
async fn a_bad_answer_is_kept_where_the_request_beside_it_gets_none() {
    // Of two members one answers 500 once both are asked, and then the other one closes.
    let stage = Arc::new(AtomicUsize::new(0));
    let member = |is_broken: bool| {
        let stage = Arc::clone(&stage);
        origin(move |mut peer| {
            let stage = Arc::clone(&stage);
            async move {
                let reached = async |wanted| {
                    while stage.load(Ordering::SeqCst) < wanted {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                };
                while peer.request().await.is_some() {
                    if stage.load(Ordering::SeqCst) == 0 {
                        peer.say(OK).await;
                        continue;
                    }
                    let asked = stage.fetch_add(1, Ordering::SeqCst);
                    assert!(asked <= 2, "a third request");
                    reached(3).await;
                    if is_broken {
                        peer.say(BROKEN).await;
                        stage.fetch_add(1, Ordering::SeqCst);
                        return peer.wait_for_close().await;
                    }
                    reached(4).await;
                    return tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        })
    };
    let members = [member(true).await, member(false).await];
    let (upstreams, group) = grouped(&members, "hedge = { percentile = 50, time_min = \"1ms\" }");
    for _ in 0..100 {
        ask(&upstreams, "GET", None).await;
    }
    stage.store(1, Ordering::SeqCst);
    let asked = ask(&upstreams, "GET", None).await;
    assert_eq!((asked.end.as_str(), asked.body.as_slice()), ("500", &b"no\n"[..]), "{:?}", asked.note);
    let failures: Vec<u64> = report(&group).members.iter().map(|member| member.counts.failures).collect();
    assert_eq!(failures, [1, 1]);
    nothing_is_under_way(&group);
}

#[tokio::test]
async fn a_member_whose_connections_are_all_in_use_is_not_checked() {
    let hangs = Arc::new(AtomicBool::new(true));
    let member = hangs_once(&hangs).await;
    let text = format!(
        "[[origin]]\nname = \"app\"\nmembers = [{{ url = \"http://{member}\" }}]\n\
         check = {{ every = \"100ms\", timeout = \"100ms\", fall = 1 }}\n"
    );
    let loaded = Loaded::parse("larder.toml", &text, &[]).unwrap();
    let upstreams = upstreams(|settings| {
        settings.groups.have(&loaded.config.origins);
        settings.connections_per_origin_max = 1;
    });
    let group = upstreams.groups().named("app").unwrap();
    let (to, mut fields) = (group_url(), Fields::new());
    fields.push("Host", "a.example");
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async {
            let mut call = call(&to, &fields);
            let mut under_way = Box::pin(upstreams.call(&mut call));
            assert!(tokio::time::timeout(Duration::from_millis(100), &mut under_way).await.is_err());
            let checks = tokio::task::spawn_local(check_members(upstreams.clone()));
            assert!(tokio::time::timeout(Duration::from_millis(600), &mut under_way).await.is_err());
            assert_eq!((states(&group), report(&group).members[0].counts.checks), (vec![MemberState::Up], 0));
            hangs.store(false, Ordering::SeqCst);
            drop(under_way);
            until(|| report(&group).members[0].counts.checks > 0).await;
            assert_eq!(states(&group), [MemberState::Up]);
            checks.abort();
        })
        .await;
}

#[tokio::test]
async fn a_group_that_is_gone_is_named() {
    let (upstreams, _) = grouped(&[answers(OK).await], "");
    upstreams.groups().have(&[]);
    let (to, fields) = (group_url(), Fields::new());
    let fault = patiently(upstreams.call(&mut call(&to, &fields))).await.err().unwrap();
    assert_eq!((fault.as_str(), fault.status()), ("no-member", 503));
    assert!(fault.detail.contains("group app "), "{}", fault.detail);
    let fault = patiently(upstreams.upgrade(&mut call(&to, &fields), "websocket")).await.err().unwrap();
    assert_eq!(fault.as_str(), "no-member");
}
