//! Requests that a service looks at before they are looked up.

use super::service::{Does, Service};
use super::{Origin, Stage, body_of};
use crate::seen::stand;

const REQMOD: &str = "stage = \"reqmod\"\n";

#[test]
fn requests_go_on_as_they_are_and_hits_are_asked_about_too() {
    let service = Service::start(Does::UnchangedAfterPreview);
    let stage = Stage::new(&service, &format!("{REQMOD}send_client = true"));
    stage.get("/100");
    let hit = stage.ask("GET", "/100", "Proxy-Authorization: Basic eDp5\r\nTE: x\r\n", "");
    assert!(hit.is_hit() && hit.body == body_of(100), "{}", hit.head);
    let asked = service.asked("REQMOD");
    assert_eq!(asked.len(), 2);
    assert!(
        asked[1].http.starts_with(&format!("GET http://{}/100 HTTP/1.1\r\n", stage.origin.address)),
        "{}",
        asked[1].http
    );
    assert!(asked[1].icap.contains("X-Client-IP: 127.0.0.1\r\n") && asked[1].icap.contains("null-body="));
    assert!(!asked[1].http.contains("Proxy-Auth") && !asked[1].http.contains("TE:"), "{}", asked[1].http);
}

#[test]
fn bodies_of_requests_pass_through() {
    for does in [Does::UnchangedAfterPreview, Does::UnchangedAfterAll, Does::Upper, Does::UpperLate] {
        let service = Service::start(does);
        let stage = Stage::new(&service, &format!("{REQMOD}kept = \"1MB\""));
        for bytes in [1, 16, 17, 400_000] {
            let body = body_of(bytes);
            let answer = stage.ask("POST", "/20", "", &body);
            assert_eq!(answer.status, 200, "{does:?} {bytes}: {}", answer.body);
            let unchanged = matches!(does, Does::UnchangedAfterPreview | Does::UnchangedAfterAll);
            let wanted = if unchanged { body } else { body.to_ascii_uppercase() };
            let got = stage.origin.last();
            assert!(stand::body(&got) == wanted, "{does:?} {bytes}: {}", &got[..got.len().min(400)]);
        }
    }
}

#[test]
fn a_long_upload_streams_through_a_service_that_changes_it() {
    let service = Service::start(Does::UpperAsItComes);
    *service.options.lock().unwrap() = "Methods: REQMOD\r\n".to_owned();
    let stage = Stage::new(&service, &format!("{REQMOD}kept = 0"));
    let body = body_of(3_000_000);
    let answer = stage.ask("PUT", "/20", "", &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(stand::body(&stage.origin.last()) == body.to_ascii_uppercase());
}

#[test]
fn a_changed_request_has_the_key_and_the_fields_of_what_it_asks_for() {
    let service = Service::start(Does::Redirects);
    service.replaces(&[("/from", "/to"), ("X-Who: client", "X-Who: service")]);
    let stage = Stage::with(&[(&service.url(), REQMOD)], "[records]\nname_answers = true");
    let moved = stage.ask("GET", "/from-100", "X-Who: client\r\n", "");
    assert_eq!(moved.body, body_of(100));
    assert!(stage.origin.last().starts_with("GET /to-100 ") && stage.origin.last().contains("X-Who: service\r\n"));
    let same = stage.get("/to-100");
    assert!(same.is_hit() && stage.origin.asked() == 1, "{}", same.head);
    let name = moved.field("Larder-Request").unwrap_or_else(|| panic!("{}", moved.head));
    let shown = stand::ask(stage.server.admin().unwrap(), &format!("/requests/{name}"));
    assert!(shown.contains("/to-100"), "the record has what was asked for: {shown}");
}

#[test]
fn a_changed_request_leads_nowhere_where_its_client_may_not_go() {
    // The service sends everybody to another port of this machine, which a listener for others does not lead to.
    let service = Service::start(Does::Redirects);
    service.replaces(&[("/from", "/to")]);
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "disk = 0\n[[listen]]\naddress = \"0.0.0.0:0\"\nforward = true\n[[icap]]\nname = \"s0\"\nurls = [\"{}\"]\n{REQMOD}hosts = [\"host.from\"]\n[access]\nclients = [\"127.0.0.0/8\"]\n",
        service.url()
    );
    let server = stand::server(folder.path(), &format!("admin = \"none\"\n{text}"));
    let proxy = std::net::SocketAddr::from(([127, 0, 0, 1], server.addresses()[0].port()));
    let answer =
        stand::exchange(proxy, "GET http://host.from/from HTTP/1.1\r\nHost: host.from\r\nConnection: close\r\n\r\n");
    assert_eq!(service.asked("REQMOD").len(), 1, "{answer}");
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn an_answer_in_the_place_of_a_request_is_for_its_client_alone() {
    let service = Service::start(Does::Forbids);
    let stage = Stage::new(&service, REQMOD);
    for (method, body) in [("GET", String::new()), ("POST", body_of(100_000))] {
        let answer = stage.ask(method, "/100", "", &body);
        assert_eq!((answer.status, &*answer.body), (403, "a virus!"), "{method}: {}", answer.head);
    }
    service.does(Does::UnchangedAfterPreview);
    assert_eq!((stage.get("/100").body.len(), stage.origin.asked()), (100, 1));
    assert_eq!((stage.counted("answered"), stage.counted("unchanged")), (2, 1));
}

#[test]
fn tunnels_are_asked_about_where_that_is_said() {
    let service = Service::start(Does::Forbids);
    let (with, without) = (Stage::new(&service, &format!("{REQMOD}connect = true")), Stage::new(&service, REQMOD));
    let connect = |stage: &Stage| {
        let origin = stage.origin.address;
        let inside = format!("GET /10 HTTP/1.1\r\nHost: {origin}\r\nConnection: close\r\n\r\n");
        stand::exchange(stage.proxy(), &format!("CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\n\r\n{inside}"))
    };
    let refused = connect(&with);
    assert!(refused.starts_with("HTTP/1.1 403 Forbidden"), "{refused}");
    assert!(service.asked("REQMOD")[0].http.starts_with(&format!("CONNECT {} HTTP/1.1\r\n", with.origin.address)));
    assert!(connect(&without).starts_with("HTTP/1.1 200"), "nobody is asked");
    service.does(Does::UnchangedAfterPreview);
    assert!(connect(&with).starts_with("HTTP/1.1 200"));
}

#[test]
fn a_service_opens_no_tunnel_of_its_own() {
    let service = Service::start(Does::Answers);
    let stage = Stage::new(&service, &format!("{REQMOD}connect = true"));
    let origin = stage.origin.address;
    let answer = stand::exchange(stage.proxy(), &format!("CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\n\r\n"));
    assert!(answer.starts_with("HTTP/1.1 503"), "a client would take it for a tunnel: {answer}");
}

#[test]
fn a_request_does_not_become_a_head_nor_a_head_another_request() {
    let service = Service::start(Does::Redirects);
    let stage = Stage::new(&service, REQMOD);
    for (method, other) in [("GET ", "HEAD "), ("HEAD ", "GET ")] {
        service.replaces(&[(method, other)]);
        let answer = stage.ask(method.trim(), "/100", "", "");
        assert_eq!(answer.status, 503, "{method}: {}", answer.head);
    }
    assert_eq!(stage.origin.asked(), 0);
    service.replaces(&[("GET ", "OPTIONS ")]);
    assert_eq!(stage.get("/100").status, 200);
    assert!(stage.origin.last().starts_with("OPTIONS "), "{}", stage.origin.last());
}

#[test]
fn the_version_of_a_request_stays_that_of_its_client() {
    let service = Service::start(Does::Redirects);
    service.replaces(&[("HTTP/1.0\r\n", "HTTP/1.1\r\n")]);
    let stage = Stage::new(&service, REQMOD);
    let origin = stage.origin.address;
    let answer =
        stand::exchange(stage.proxy(), &format!("GET http://{origin}/chunked-100 HTTP/1.0\r\nHost: {origin}\r\n\r\n"));
    assert!(service.asked("REQMOD")[0].http.contains("HTTP/1.0\r\n"), "{}", service.asked("REQMOD")[0].http);
    assert!(!answer.to_lowercase().contains("chunked\r\n"), "{answer}");
    assert!(answer.ends_with(&body_of(100)), "{answer}");
}

/// `ada:secret`, by `openssl passwd -apr1`.
const USERS: &str = "ada:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n";
const ADA: &str = "Basic YWRhOnNlY3JldA==";

fn login(folder: &tempfile::TempDir) -> String {
    let users = folder.path().join("users");
    std::fs::write(&users, USERS).unwrap();
    format!("disk = 0\n[[login]]\nname = \"office\"\nscheme = \"basic\"\nrealm = \"office\"\nfile = {users:?}\n")
}

#[test]
fn a_changed_request_has_the_login_of_its_client() {
    let service = Service::start(Does::Redirects);
    service.replaces(&[("/from", "/to")]);
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{}[access]\nlogin = \"office\"\n", login(&folder));
    let server = Stage::server(&folder, &[(&service.url(), REQMOD), (&service.url(), REQMOD)], &text);
    let stage = Stage { server, origin: Origin::start(), folder };
    assert_eq!(stage.get("/from-100").status, 407);
    let login = format!("Proxy-Authorization: {ADA}\r\n");
    let answer = stage.ask("GET", "/from-100", &login, "");
    assert_eq!((answer.status, answer.body), (200, body_of(100)), "{}", answer.head);
    assert!(stage.origin.last().starts_with("GET /to-100 "), "{}", stage.origin.last());
    assert_eq!(service.asked("REQMOD").len(), 2, "both services");
    let sent = [stage.origin.last(), service.asked("REQMOD")[1].http.clone()].concat();
    assert!(!sent.contains("Authorization"), "{sent}");
}

#[test]
fn a_changed_request_needs_no_second_answer_to_a_challenge() {
    if stand::program("curl").is_none() {
        return;
    }
    let service = Service::start(Does::Redirects);
    service.replaces(&[("/from", "/to")]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("digests");
    let hash = larder_people::digest::Algorithm::Sha256.hash(&["ada:office:secret"]);
    std::fs::write(&file, format!("ada:office:{hash}\n")).unwrap();
    let text = format!(
        "[[login]]\nname = \"office\"\nscheme = \"digest\"\nrealm = \"office\"\nfile = {file:?}\n[access]\nlogin = \"office\"\n"
    );
    let server = Stage::server(&folder, &[(&service.url(), REQMOD)], &text);
    let origin = Origin::start();
    let asked = std::process::Command::new("curl")
        .args(["-sS", "--noproxy", "", "--proxy-digest", "--proxy-user", "ada:secret", "-w", " %{http_code}"])
        .args(["-x", &format!("http://{}", server.addresses()[0]), &format!("http://{}/from-100", origin.address)])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&asked.stdout), format!("{} 200", body_of(100)));
    assert!(origin.last().starts_with("GET /to-100 "), "{}", origin.last());
}

#[test]
fn a_login_at_a_site_is_no_matter_of_services_and_leads_to_no_other_site() {
    let service = Service::start(Does::Redirects);
    let (one, other) = (Origin::start(), Origin::start());
    let folder = tempfile::tempdir().unwrap();
    let mut text = login(&folder);
    text += &format!("[[site]]\nhosts = [\"one.test\"]\norigin = \"http://{}\"\nlogin = \"office\"\n", one.address);
    text += &format!("[[site]]\nhosts = [\"two.test\"]\norigin = \"http://{}\"\n", other.address);
    let respmod = Service::start(Does::UnchangedAfterPreview);
    let server = Stage::server(&folder, &[(&service.url(), REQMOD), (&respmod.url(), "")], &text);
    let get = |path: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: one.test\r\nAuthorization: {ADA}\r\n");
        stand::exchange(server.addresses()[0], &format!("{head}Connection: close\r\n\r\n"))
    };
    service.replaces(&[("/from", "/to")]);
    let same = get("/from-10");
    assert!(same.starts_with("HTTP/1.1 200") && one.last().starts_with("GET /to-10 "), "{same}");
    service.replaces(&[("one.test", "two.test")]);
    let elsewhere = get("/20");
    assert!(elsewhere.starts_with("HTTP/1.1 200") && other.asked() == 1, "{elsewhere}");
    let mut sent = vec![one.last(), other.last()];
    sent.extend(service.asked("REQMOD").into_iter().chain(respmod.asked("RESPMOD")).map(|seen| seen.http));
    assert!(sent.len() == 6 && !sent.concat().contains("Authorization"), "{sent:?}");
}

#[test]
fn a_body_that_a_service_breaks_off_is_no_fault_of_the_client() {
    let service = Service::start(Does::WrongLength);
    let stage = Stage::new(&service, &format!("{REQMOD}kept = 0"));
    let answer = stage.ask("POST", "/20", "", &body_of(100_000));
    assert!(answer.status >= 500 && answer.body.contains("icap"), "{}\n{}", answer.head, answer.body);
}

#[test]
fn an_upgrade_is_asked_about_once_and_done_once() {
    let service = Service::start(Does::UnchangedAfterPreview);
    let stage = Stage::with(&[(&service.url(), REQMOD), (&service.url(), "")], "");
    let offer = |method: &str, length: &str| {
        let origin = stage.origin.address;
        let head = format!("{method} http://{origin}/none-100 HTTP/1.1\r\nHost: {origin}\r\n{length}");
        stand::exchange(stage.proxy(), &format!("{head}Connection: close, upgrade\r\nUpgrade: other\r\n\r\n"))
    };
    let posted = offer("POST", "Content-Length: 0\r\n");
    assert!(posted.starts_with("HTTP/1.1 200") && posted.ends_with(&body_of(100)), "{posted}");
    assert_eq!(stage.origin.asked(), 1, "a POST is not sent twice");
    assert!(!stage.origin.last().contains("Upgrade:"), "{}", stage.origin.last());
    assert_eq!((service.asked("REQMOD").len(), service.asked("RESPMOD").len()), (1, 1));
    let got = offer("GET", "");
    assert!(got.starts_with("HTTP/1.1 200") && got.ends_with(&body_of(100)), "{got}");
    assert_eq!((service.asked("REQMOD").len(), service.asked("RESPMOD").len()), (2, 2));
}
