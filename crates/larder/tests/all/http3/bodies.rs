//! Answers and bodies, and streams beside each other.

use super::Site;
use super::client::{Client, code, data, get, headers};
use larder_wire::h3::ErrorCode;

/// The origin's answer to a body at `/sum`.
fn sum(body: &[u8]) -> String {
    let sum = body.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    format!("{} {sum}", body.len())
}

#[test]
fn answers_are_those_of_other_versions() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path());
    let client = Client::to(&site);
    for outcome in ["fwd=uri-miss", "hit"] {
        let answer = client.get("/fresh");
        assert_eq!((answer.status(), &*answer.text()), ("200", "bytes"), "{answer:?}");
        assert!(answer.field("cache-status").contains(outcome), "{answer:?}");
        assert_eq!(answer.field("alt-svc"), format!("h3=\":{}\"; ma=86400", site.address.port()));
        assert!(answer.heads[0].iter().all(|(name, _)| name != "connection" && name != "transfer-encoding"));
    }
    let mut head = get("/fresh");
    head[0].1 = "HEAD";
    let answer = client.ask(&head);
    assert_eq!((answer.status(), answer.field("content-length"), &*answer.text()), ("200", "5", ""), "{answer:?}");
    let early = client.get("/early");
    assert_eq!(early.heads[0][0].1, "103", "{early:?}");
    assert_eq!((early.heads.len(), early.status(), &*early.text()), (2, "200", "ok"));
    let trailers = client.get("/trailers");
    assert_eq!(trailers.trailers, [("x-sum".to_owned(), "7".to_owned())], "{trailers:?}");
    // An answer that breaks off ends by a reset, as no proper end does.
    let broken = client.get("/half");
    assert_eq!(broken.reset, Some(ErrorCode::Internal.number()), "{broken:?}");
    assert_eq!(client.get("/fresh").status(), "200");
    let log = site.log(folder.path());
    assert!(log.contains("\"GET https://site.test/fresh HTTP/3.0\" 200 5"), "{log}");
}

#[test]
fn large_bodies_go_both_ways() {
    const BYTES: usize = 100_000_000;
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path());
    let client = Client::to(&site);
    let answer = client.get(&format!("/big/{BYTES}"));
    assert_eq!(answer.status(), "200");
    assert!(answer.body.len() == BYTES && answer.body.iter().all(|byte| *byte == b'b'));
    drop(answer);
    let body: Vec<u8> = (0..BYTES as u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut fields = get("/sum");
    fields[0].1 = "PUT";
    let (mut send, mut receive) = client.begin(&headers(&fields), false);
    client.wait(async {
        for piece in body.chunks(1_000_000) {
            send.write_all(&data(piece)).await.unwrap();
        }
        send.finish().unwrap();
    });
    assert_eq!(client.answer(&mut receive).text(), sum(&body));
    let mut short = get("/sum");
    (short[0].1, short[3].1) = ("POST", "/sum?2");
    short.push(("content-length", "3"));
    assert_eq!(client.play(&[headers(&short), data(b"abc")].concat()).text(), sum(b"abc"));
}

#[test]
fn a_body_that_is_not_taken_holds_up_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path());
    let client = Client::to(&site);
    // The origin takes nothing of these bodies.
    let mut stuck = Vec::new();
    for _ in 0..20 {
        let mut fields = get("/stuck");
        fields[0].1 = "POST";
        let (mut send, receive) = client.begin(&headers(&fields), false);
        let piece = data(&vec![b'u'; 200_000]);
        let sent = client.runtime.block_on(async {
            tokio::time::timeout(std::time::Duration::from_millis(100), send.write_all(&piece)).await
        });
        drop(sent);
        stuck.push((send, receive));
    }
    // Answers that the client does not read.
    let unread: Vec<_> = (0..20).map(|_| client.begin(&headers(&get("/big/50000000")), true)).collect();
    for _ in 0..3 {
        assert_eq!(client.get("/fresh").text(), "bytes");
        let mut fields = get("/sum");
        fields[0].1 = "POST";
        let body = vec![7; 1_000_000];
        assert_eq!(client.play(&[headers(&fields), data(&body)].concat()).text(), sum(&body));
    }
    drop((stuck, unread));
}

#[test]
fn a_client_that_gives_up_ends_its_exchange_alone() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path());
    let client = Client::to(&site);
    let (_send, mut receive) = client.begin(&headers(&get("/big/50000000")), true);
    client.wait(async { receive.read_chunk(1_000, true).await.unwrap().unwrap() });
    receive.stop(code(ErrorCode::RequestCancelled)).unwrap();
    // A request that is cut off has no answer, for nobody knows what it was (RFC 9114 section 4.1).
    let mut fields = get("/echo");
    fields[0].1 = "POST";
    let (mut send, mut receive) = client.begin(&[headers(&fields), data(b"half")].concat(), false);
    client.pause(200);
    send.reset(code(ErrorCode::RequestCancelled)).unwrap();
    let answer = client.answer(&mut receive);
    assert_eq!(answer.reset, Some(ErrorCode::RequestIncomplete.number()), "{answer:?}");
    assert_eq!(client.get("/fresh").status(), "200");
    drop(client);
    let log = site.log(folder.path());
    assert_eq!(log.lines().count(), 3, "{log}");
}

/// The time limits of slow clients hold for each stream.
#[test]
fn a_client_that_does_not_read_loses_its_stream_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::with(folder.path(), "", "[timeouts]\nwrite = \"300ms\"\nbody = \"300ms\"\n");
    let client = Client::to(&site);
    let (_send, mut receive) = client.begin(&headers(&get("/big/50000000")), true);
    let reset = client.wait(receive.received_reset()).unwrap();
    assert_eq!(reset, Some(code(ErrorCode::RequestCancelled)));
    assert_eq!(client.get("/echo").status(), "200");
    // A request whose body does not come to its end.
    let mut fields = get("/echo");
    fields[0].1 = "POST";
    let (_send, mut receive) = client.begin(&[headers(&fields), data(b"half")].concat(), false);
    assert_eq!(client.answer(&mut receive).status(), "408");
}
