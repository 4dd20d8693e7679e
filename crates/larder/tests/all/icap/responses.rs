//! Responses that a service looks at before they are stored, or before each client gets them.

use super::service::{Does, OPTIONS, Service};
use super::{Stage, body_of};
use crate::seen::stand::{self, wait_for};
use std::sync::atomic::Ordering;
use std::time::Instant;

#[test]
fn a_service_is_asked_once_and_hits_cost_nothing() {
    let service = Service::start(Does::UnchangedAfterPreview);
    let stage = Stage::new(&service, "");
    let (first, second) = (stage.get("/100000"), stage.get("/100000"));
    assert_eq!((first.status, first.body), (200, body_of(100_000)));
    assert!(second.is_hit() && second.body == body_of(100_000), "{}", second.head);
    // The service replies first, and notes what it has read then.
    wait_for("the preview", || !service.asked("RESPMOD")[0].body.is_empty());
    let asked = service.asked("RESPMOD");
    assert_eq!((asked.len(), stage.origin.asked()), (1, 1));
    assert_eq!(asked[0].body, body_of(16).as_bytes(), "the preview alone");
    assert!(asked[0].icap.contains("Preview: 16\r\n") && asked[0].icap.contains("Allow: 204\r\n"), "{}", asked[0].icap);
    assert!(asked[0].http.starts_with(&format!("GET http://{}/100000 HTTP/1.1\r\n", stage.origin.address)));
    assert_eq!(service.asked("OPTIONS").len(), 1);
    assert_eq!((stage.counted("unchanged"), stage.counted("failed")), (1, 0));
}

/// A credential that a rule gives the origin is the operator's: the origin gets it, and no service.
#[test]
fn credentials_of_rules_are_no_matter_of_a_service() {
    for stage in ["respmod-store", "respmod-send"] {
        let service = Service::start(Does::UnchangedAfterPreview);
        let rule = "set = [\"X-Api-Key: s3cret\", \"X-Office: north\"]";
        let rules = format!("[[rule]]\nwhen = {{ path = \"/**\" }}\ndo = {{ {rule} }}\n");
        let stage = Stage::with(&[(&service.url(), &format!("stage = \"{stage}\"\n"))], &rules);
        assert_eq!(stage.get("/100").status, 200);
        assert!(stage.origin.last().to_lowercase().contains("x-api-key: s3cret"), "{}", stage.origin.last());
        let seen = service.asked("RESPMOD").remove(0).http.to_lowercase();
        assert!(seen.contains("x-office: north") && !seen.contains("s3cret"), "{seen}");
    }
}

#[test]
fn bodies_pass_as_the_service_gives_them() {
    for does in [Does::Upper, Does::UpperLate, Does::UnchangedAfterAll] {
        let service = Service::start(does);
        let stage = Stage::new(&service, "kept = \"1MB\"\n");
        for path in ["/0", "/1", "/16", "/17", "/300000", "/chunked-300000", "/chunked-16", "/none-5000"] {
            let bytes = path.trim_start_matches(|letter: char| !letter.is_ascii_digit()).parse().unwrap();
            let original = body_of(bytes);
            let wanted = if does == Does::UnchangedAfterAll { original } else { original.to_ascii_uppercase() };
            let is_kept = !path.contains("chunked") || bytes <= 16;
            for _ in 0..2 {
                let answer = stage.get(path);
                match does == Does::UnchangedAfterAll && !is_kept {
                    // Only a body of declared length is kept, and 204 is not offered for others; a service that says it all the same
                    // is understood, because the body is here.
                    true => assert_eq!((answer.status, answer.body.len()), (200, bytes), "{does:?} {path}"),
                    false => assert_eq!((answer.status, &answer.body), (200, &wanted), "{does:?} {path}"),
                }
            }
        }
    }
}

#[test]
fn a_reply_may_begin_before_the_question_ends() {
    let service = Service::start(Does::UpperAsItComes);
    *service.options.lock().unwrap() = "Methods: RESPMOD\r\nAllow: 204\r\n".to_owned();
    let stage = Stage::new(&service, "kept = 0\n");
    let large = stage.get("/3000000");
    assert!(large.body == body_of(3_000_000).to_ascii_uppercase(), "{}", large.head);
    let again = stage.get("/3000000");
    assert!(again.is_hit() && again.body.len() == 3_000_000);
    assert_eq!(service.connections.load(Ordering::SeqCst), 1, "one connection serves one question after the other");
    stage.get("/chunked-200000");
    assert_eq!(service.connections.load(Ordering::SeqCst), 1);
}

#[test]
fn a_page_in_the_place_of_an_answer_is_not_stored_and_stops_the_download() {
    let service = Service::start(Does::Forbids);
    let stage = Stage::new(&service, "");
    for _ in 0..2 {
        let answer = stage.get("/3000000");
        assert_eq!((answer.status, &*answer.body), (403, "a virus!"), "{}", answer.head);
    }
    assert_eq!((stage.origin.asked(), stage.counted("changed")), (2, 2));
}

#[test]
fn validators_of_a_changed_body_are_weak_and_a_304_keeps_it() {
    let service = Service::start(Does::Upper);
    let stage = Stage::new(&service, "");
    let first = stage.get("/etag-100");
    assert_eq!((first.field("ETag"), first.field("Last-Modified")), (Some("W/\"strong\""), None), "{}", first.head);
    let again = stage.ask("GET", "/etag-100", "Cache-Control: no-cache\r\n", "");
    assert!(stage.origin.last().contains("If-None-Match: W/\"strong\""), "{}", stage.origin.last());
    assert_eq!(again.body, body_of(100).to_ascii_uppercase());
    assert_eq!(service.asked("RESPMOD").len(), 1, "a 304 has nothing to look at");
    let hit = stage.get("/etag-100");
    for answer in [again, hit] {
        // The 304 has both of the original.
        let validators = (answer.field("ETag"), answer.field("Last-Modified"));
        assert_eq!(validators, (Some("W/\"strong\""), None), "{}", answer.head);
    }
    let mixed = stage.ask("GET", "/etag-100", "Range: bytes=0-9\r\nIf-Range: \"strong\"\r\n", "");
    assert_eq!((mixed.status, mixed.body.len()), (200, 100), "no part for one who has parts of the original");
}

#[test]
fn parts_are_taken_of_wholes() {
    let service = Service::start(Does::Upper);
    let stage = Stage::new(&service, "");
    let part = stage.ask("GET", "/1000", "Range: bytes=5-9\r\n", "");
    assert_eq!((part.status, &*part.body), (206, &body_of(10).to_ascii_uppercase()[5..]), "{}", part.head);
    assert!(!stage.origin.last().contains("Range:"), "{}", stage.origin.last());
    assert_eq!(service.asked("RESPMOD")[0].body.len(), 1000);
    let unstored = stage.ask("GET", "/none-1000", "Range: bytes=5-9\r\n", "");
    assert!(matches!(unstored.status, 200 | 206), "{}", unstored.head);
    assert!(!stage.origin.last().contains("Range:"), "{}", stage.origin.last());
}

#[test]
fn an_answer_that_breaks_off_is_not_whole_behind_a_service_either() {
    let service = Service::start(Does::UpperAsItComes);
    *service.options.lock().unwrap() = "Methods: RESPMOD\r\n".to_owned();
    let stage = Stage::new(&service, "");
    for _ in 0..2 {
        let answer = stage.get("/broken-5000");
        assert!(answer.status != 200 || answer.body.len() < 5_010, "{}", answer.head);
        assert!(!answer.is_hit());
    }
    assert_eq!(stage.origin.asked(), 2, "nothing of it is stored");
}

#[test]
fn another_istag_lets_judged_responses_go() {
    let service = Service::start(Does::UnchangedAfterPreview);
    *service.options.lock().unwrap() = format!("{OPTIONS}Options-TTL: 0\r\n");
    let stage = Stage::with(&[(&service.url(), "")], "disk = \"50MB\"");
    stage.get("/100");
    assert!(stage.get("/100").is_hit());
    *service.istag.lock().unwrap() = "two".to_owned();
    stage.get("/another");
    let anew = stage.get("/100");
    assert!(!anew.is_hit(), "{}", anew.head);
    assert_eq!(service.asked("RESPMOD").len(), 3);
    let kept = std::fs::read_to_string(stage.folder.path().join("icap.tags")).unwrap();
    assert!(kept.starts_with("icap:s0:") && kept.ends_with(" two\n"), "{kept}");
    // After a restart the stored response is one that this tag judged, and a third tag lets it go.
    let Stage { server, origin, folder } = stage;
    server.stop();
    let server = Stage::server(&folder, &[(&service.url(), "")], "disk = \"50MB\"");
    let stage = Stage { server, origin, folder };
    assert!(stage.get("/100").is_hit(), "judged before the restart");
    *service.istag.lock().unwrap() = "three".to_owned();
    stage.get("/yet-another");
    assert!(!stage.get("/100").is_hit());
    let kept = std::fs::read_to_string(stage.folder.path().join("icap.tags")).unwrap();
    assert!(kept.ends_with(" three\n"), "{kept}");
}

#[test]
fn each_client_s_answer_is_looked_at_where_that_is_said() {
    let service = Service::start(Does::Upper);
    let stage = Stage::new(&service, "stage = \"respmod-send\"\nsend_client = true\n");
    let (first, second) = (stage.get("/1000"), stage.get("/1000"));
    let wanted = body_of(1000).to_ascii_uppercase();
    assert_eq!((&first.body, &second.body), (&wanted, &wanted));
    assert!(second.is_hit() && stage.origin.asked() == 1, "{}", second.head);
    assert_eq!(service.asked("RESPMOD").len(), 2);
    assert!(service.asked("RESPMOD")[0].icap.contains("X-Client-IP: 127.0.0.1\r\n"));
    service.does(Does::UnchangedAfterPreview);
    let part = stage.ask("GET", "/1000", "Range: bytes=5-9\r\n", "");
    assert_eq!((part.status, &*part.body), (206, &body_of(10)[5..]), "{}", part.head);
    service.does(Does::Upper);
    wait_for("a changed hit is as old as the stored one", || {
        stage.get("/1000").field("Age").is_some_and(|age| age.parse::<u64>().unwrap() > 0)
    });
    service.does(Does::Forbids);
    assert_eq!(stage.get("/1000").status, 403);
    assert_eq!(stage.ask("HEAD", "/1000", "", "").status, 200, "nothing to look at");
}

#[test]
fn types_hosts_and_lengths_are_left_out() {
    let service = Service::start(Does::Forbids);
    for icap in
        ["except_types = [\"text/*\"]", "except_hosts = [\"127.0.0.1\"]", "methods = [\"POST\"]", "body_bytes_max = 99"]
    {
        let stage = Stage::new(&service, icap);
        assert_eq!(stage.get("/100").status, 200, "{icap}");
        assert!(stage.get("/100").is_hit(), "{icap}: it is not meant, and stored as any other");
    }
    assert_eq!(service.asked("RESPMOD").len(), 0);
    let stage = Stage::new(&service, "body_bytes_max = 99\non_longer_body = \"deny\"");
    let denied = stage.get("/100");
    assert_eq!(denied.status, 503);
    assert!(denied.body.contains("body_bytes_max"), "{}", denied.body);
}

#[test]
fn one_welcome_connection_serves_all() {
    let service = Service::start(Does::UpperLate);
    *service.options.lock().unwrap() = format!("{OPTIONS}Max-Connections: 1\r\n");
    let stage = Stage::new(&service, "connect_timeout = \"20s\"");
    let began = Instant::now();
    std::thread::scope(|scope| {
        for at in 0..4 {
            let stage = &stage;
            scope.spawn(move || assert_eq!(stage.get(&format!("/{}", 100 + at)).body.len(), 100 + at));
        }
    });
    assert!(began.elapsed().as_millis() >= 2_000, "half a second for each, one after the other");
    assert_eq!(service.most_at_once.load(Ordering::SeqCst), 1);
}

#[test]
fn explanations_log_and_store_name_the_service() {
    let service = Service::start(Does::Upper);
    let stage = Stage::with(&[(&service.url(), "")], "[records]\nname_answers = true");
    let answer = stage.get("/100");
    let name = answer.field("Larder-Request").unwrap_or_else(|| panic!("{}", answer.head));
    let shown = stand::ask(stage.server.admin().unwrap(), &format!("/requests/{name}"));
    let shown: serde_json::Value = serde_json::from_str(stand::body(&shown)).unwrap();
    let steps = shown["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["step"] == "icap").unwrap_or_else(|| panic!("{shown}"));
    let said = &step["values"]["icap"];
    assert_eq!(
        (&said["icap"], &said["icap_method"], &said["icap_did"]),
        (&"s0".into(), &"RESPMOD".into(), &"changed".into()),
        "{step}"
    );
    assert!(said["icap_micros"].as_u64() > Some(0), "{step}");
}

#[test]
fn another_istag_is_noticed_although_nothing_is_fetched() {
    let service = Service::start(Does::UnchangedAfterPreview);
    *service.options.lock().unwrap() = format!("{OPTIONS}Options-TTL: 1\r\n");
    let stage = Stage::with(&[(&service.url(), "")], "disk = \"50MB\"");
    stage.get("/100");
    assert!(stage.get("/100").is_hit());
    *service.istag.lock().unwrap() = "two".to_owned();
    wait_for("what the older rules judged goes", || !stage.get("/100").is_hit());
    wait_for("what the newer rules judged stays", || stage.get("/100").is_hit());
    // Without the file nothing is known of the tag by which the stored responses were judged.
    let Stage { server, origin, folder } = stage;
    server.stop();
    std::fs::remove_file(folder.path().join("icap.tags")).unwrap();
    *service.options.lock().unwrap() = OPTIONS.to_owned();
    let server = Stage::server(&folder, &[(&service.url(), "")], "disk = \"50MB\"");
    let stage = Stage { server, origin, folder };
    wait_for("a response that nobody knows the rules of goes", || !stage.get("/100").is_hit());
}

#[test]
fn marks_of_all_services_stay_through_validations() {
    let (first, second) = (Service::start(Does::UnchangedAfterPreview), Service::start(Does::Redirects));
    second.replaces(&[("Surrogate-Key", "X-Gone")]);
    let stage = Stage::with(&[(&first.url(), ""), (&second.url(), "")], "");
    let marked = |answer: &super::Answer| {
        let marks = ["icap:s0:", "icap:s1:"].map(|mark| answer.head.matches(mark).count());
        assert_eq!(marks, [1, 1], "{}", answer.head);
    };
    marked(&stage.get("/etag-tagged-100"));
    let validated = stage.ask("GET", "/etag-tagged-100", "Cache-Control: no-cache\r\n", "");
    marked(&validated);
    marked(&stage.get("/etag-tagged-100"));
    // The answer to a HEAD freshens too.
    assert_eq!(first.asked("RESPMOD").len(), 1);
    let asked = stage.origin.asked();
    stage.ask("HEAD", "/etag-tagged-100", "Cache-Control: no-cache\r\n", "");
    assert_eq!(stage.origin.asked(), asked + 1);
    marked(&stage.get("/etag-tagged-100"));
}

#[test]
fn a_change_that_the_service_hides_from_its_client_is_a_change_all_the_same() {
    let service = Service::start(Does::UnchangedAfterPreview);
    let stage = Stage::new(&service, "");
    stage.get("/100");
    assert!(stage.get("/100").is_hit());
    service.does(Does::Forbids);
    assert_eq!(stage.ask("POST", "/100", "", "x").status, 403);
    service.does(Does::ClosesAtOnce);
    assert_eq!(stage.ask("POST", "/100", "", "x").status, 503);
    service.does(Does::UnchangedAfterPreview);
    assert!(!stage.get("/100").is_hit(), "the origin has done what the POST said");
}

#[test]
fn a_body_of_unknown_length_is_too_long_in_the_preview_too() {
    let service = Service::start(Does::UnchangedAfterPreview);
    let stage = Stage::new(&service, "body_bytes_max = 10");
    let answer = stage.get("/chunked-100");
    assert!(answer.status == 503 && answer.body.contains("body_bytes_max"), "{}\n{}", answer.head, answer.body);
    assert_eq!(service.asked("RESPMOD").len(), 0, "it got none of it");
}
