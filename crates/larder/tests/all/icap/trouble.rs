//! Services that are wrong, slow or gone.

use super::service::{Does, OPTIONS, Service};
use super::{Stage, body_of};
use crate::seen::stand::{self, wait_for};
use std::sync::atomic::Ordering;
use std::time::Duration;

const BAD: [Does; 8] = [
    Does::ClosesAtOnce,
    Does::Garbage,
    Does::WrongOffsets,
    Does::Silent,
    Does::Status(404),
    Does::Status(500),
    Does::ContinuesWrongly,
    Does::ClosesAtOnce,
];

const SHORT: &str = "answer_timeout = \"300ms\"\nsilence_timeout = \"300ms\"\nconnect_timeout = \"300ms\"\n";

#[test]
fn a_service_in_trouble_denies_within_its_timeouts() {
    for stage_of in ["reqmod", "respmod-store", "respmod-send"] {
        for does in BAD {
            let service = Service::start(does);
            let stage = Stage::new(&service, &format!("stage = \"{stage_of}\"\n{SHORT}"));
            let answer = stage.get("/200000");
            assert_eq!(answer.status, 503, "{stage_of} {does:?}: {}", answer.head);
            assert!(answer.body.contains("icap") && answer.body.contains("s0"), "{}", answer.body);
            assert_eq!((stage.counted("failed"), stage.counted("bypassed")), (1, 0), "{stage_of} {does:?}");
            service.does(Does::UnchangedAfterPreview);
        }
    }
}

#[test]
fn a_service_in_trouble_lets_pass_where_that_is_said_and_nothing_unjudged_is_stored() {
    for stage_of in ["reqmod", "respmod-store", "respmod-send"] {
        for does in BAD {
            let service = Service::start(does);
            let stage = Stage::new(&service, &format!("stage = \"{stage_of}\"\non_failure = \"pass\"\n{SHORT}"));
            for _ in 0..2 {
                let answer = stage.get("/200000");
                assert_eq!((answer.status, answer.body.len()), (200, 200_000), "{stage_of} {does:?}: {}", answer.head);
                assert!(!answer.is_hit() || stage_of != "respmod-store", "{stage_of} {does:?}");
            }
            assert_eq!(stage.counted("bypassed"), 2, "{stage_of} {does:?}");
        }
    }
}

#[test]
fn uploads_pass_a_service_in_trouble_too() {
    for does in [Does::ClosesAtOnce, Does::Garbage, Does::Status(500), Does::Silent] {
        let service = Service::start(does);
        let stage = Stage::new(&service, &format!("stage = \"reqmod\"\non_failure = \"pass\"\n{SHORT}"));
        let body = body_of(100_000);
        let answer = stage.ask("POST", "/20", "", &body);
        assert_eq!(answer.status, 200, "{does:?}: {}", answer.body);
        assert!(stage.origin.last().ends_with(&body), "{does:?}");
    }
}

#[test]
fn a_reply_that_breaks_off_is_no_whole_answer() {
    for does in [Does::ClosesInReply, Does::WrongLength] {
        let service = Service::start(does);
        let stage = Stage::new(&service, SHORT);
        for _ in 0..2 {
            let answer = stage.get("/1000");
            let length = answer.field("Content-Length").map(|length| length.parse::<usize>().unwrap());
            assert!(
                answer.status == 503 || length != Some(answer.body.len()),
                "{does:?} {}\n{}",
                answer.head,
                answer.body
            );
            assert!(!answer.is_hit(), "{does:?}");
        }
    }
}

#[test]
fn the_next_server_is_asked_where_one_is_out_of_reach() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let service = Service::start(Does::Upper);
    let urls = format!("icap://{gone}/test\", \"{}", service.url());
    let stage = Stage::with(&[(&urls, SHORT)], "");
    assert_eq!(stage.get("/100").body, body_of(100).to_ascii_uppercase());
    assert_eq!(stage.get("/101").body, body_of(101).to_ascii_uppercase());
    assert_eq!((stage.counted("changed"), stage.counted("failed")), (2, 0));
}

#[test]
fn a_service_that_failed_is_left_alone_for_a_while() {
    let service = Service::start(Does::UnchangedAfterPreview);
    service.options_status.store(500, Ordering::SeqCst);
    let stage = Stage::new(&service, SHORT);
    assert_eq!(stage.get("/100").status, 503);
    // On a slow machine the rest may be over before it is looked at; each failure doubles it.
    wait_for("it is left alone", || {
        let answer = stage.get("/101");
        let state = stand::ask(stage.server.admin().unwrap(), "/icap");
        let state: serde_json::Value = serde_json::from_str(stand::body(&state)).unwrap();
        let (service, server) = (&state["services"][0], &state["services"][0]["servers"][0]);
        assert!(service["name"] == "s0" && service["messages"]["failed"].as_u64() > Some(0), "{state}");
        let rests = server["rests_millis"].is_u64() && server["trouble"].is_string();
        rests && answer.status == 503 && answer.body.contains("failed a moment ago")
    });
    service.options_status.store(200, Ordering::SeqCst);
    wait_for("it is asked again", || stage.get("/102").status == 200);
}

#[test]
fn a_service_that_does_not_offer_the_method_is_of_no_use() {
    let service = Service::start(Does::Upper);
    *service.options.lock().unwrap() = OPTIONS.replace("RESPMOD, ", "");
    let stage = Stage::new(&service, "");
    let answer = stage.get("/100");
    assert!(answer.status == 503 && answer.body.contains("does not offer RESPMOD"), "{}", answer.body);
}

/// The service goes away under load: with `pass` no client sees an error, with `deny` each error is one of the service's, in time.
#[test]
fn a_service_that_is_killed_under_load() {
    for (on_failure, may_fail) in [("pass", false), ("deny", true)] {
        let service = Service::start(Does::Upper);
        let stage = Stage::new(&service, &format!("on_failure = \"{on_failure}\"\n{SHORT}"));
        let ends = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..4)
                .map(|client| {
                    let stage = &stage;
                    scope.spawn(move || {
                        (0..60)
                            .map(|at| stage.get(&format!("/none-{}", 20_000 + client * 100 + at)))
                            .collect::<Vec<_>>()
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_millis(100));
            service.does(Does::ClosesAtOnce);
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect::<Vec<_>>()
        });
        let failed = ends.iter().filter(|answer| answer.status != 200).count();
        assert!(may_fail || failed == 0, "{on_failure}: {failed} of {}", ends.len());
        for answer in &ends {
            match answer.status {
                200 => assert!(answer.body.len() >= 20_000, "{}", answer.head),
                503 => assert!(answer.body.contains("icap"), "{}", answer.body),
                status => panic!("{status}: {}", answer.body),
            }
        }
    }
}

#[test]
fn one_message_without_a_reply_says_nothing_of_the_others() {
    for stage_of in ["reqmod", "respmod-store", "respmod-send"] {
        let service = Service::start(Does::Silent);
        let stage = Stage::new(&service, &format!("stage = \"{stage_of}\"\n{SHORT}"));
        assert_eq!(stage.get("/100").status, 503, "{stage_of}");
        service.does(Does::UnchangedAfterPreview);
        let next = stage.get("/101");
        assert_eq!(next.status, 200, "{stage_of}: {}", next.body);
        // At the start, and now.
        assert_eq!(service.asked("OPTIONS").len(), 2, "{stage_of}: whether it is well is asked first");
    }
}

#[test]
fn an_answer_that_a_service_has_judged_gives_way_to_no_other() {
    let (first, second) = (Service::start(Does::UnchangedAfterPreview), Service::start(Does::ClosesAtOnce));
    *second.options.lock().unwrap() = "Methods: RESPMOD\r\n".to_owned();
    let pass = format!("on_failure = \"pass\"\nkept = 0\n{SHORT}");
    let stage = Stage::with(&[(&first.url(), ""), (&second.url(), &pass)], "");
    let answer = stage.get("/200000");
    assert_eq!((answer.status, stage.origin.asked()), (503, 1), "{}", answer.head);
    // Where it was not judged before, another one is requested, and the services that are left look at it.
    let stage = Stage::with(&[(&second.url(), &pass), (&first.url(), "")], "");
    let answer = stage.get("/200000");
    assert_eq!((answer.status, stage.origin.asked()), (200, 2), "{}", answer.head);
    assert_eq!(first.asked("RESPMOD").len(), 2);
}
