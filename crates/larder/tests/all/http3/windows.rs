//! Answers that go out slowly, alone and beside each other.

use super::Site;
use super::client::{Client, control, get, headers, tls};
use super::relay::Relay;
use crate::seen::stand;

fn client_by(relay: &Relay, site: &Site) -> Client {
    let mut client = Client::with(relay.address, tls(&site.certificate, None)).unwrap();
    client.uni(&control());
    client
}

/// Three answers share what QUIC may hold for the connection: none of them waits for `timeouts.write` while the others go on.
#[test]
fn long_answers_beside_each_other_all_go_on() {
    const BYTES_OF_EACH: usize = 3_000_000;
    let folder = tempfile::tempdir().unwrap();
    let site = Site::with(folder.path(), "", "[timeouts]\nwrite = \"1s\"\n");
    let relay = Relay::to(site.address, Some(2_000_000));
    let client = client_by(&relay, &site);
    let answers: Vec<_> = (0..3).map(|_| client.begin(&headers(&get("/big/50000000")), true)).collect();
    client.wait(async {
        let mut reading = tokio::task::JoinSet::new();
        for (number, (send, mut receive)) in answers.into_iter().enumerate() {
            reading.spawn(async move {
                let mut bytes = 0;
                while bytes < BYTES_OF_EACH {
                    let chunk = receive.read_chunk(1 << 16, true).await;
                    let chunk = chunk.unwrap_or_else(|error| panic!("answer {number} after {bytes} bytes: {error}"));
                    bytes += chunk.expect("more bytes").bytes.len();
                }
                (send, receive)
            });
        }
        reading.join_all().await
    });
}

/// The end of an answer that QUIC has taken comes at the client's pace too.
#[test]
fn a_slow_client_gets_the_end_of_its_answer() {
    const BYTES: usize = 600_000;
    let folder = tempfile::tempdir().unwrap();
    let site = Site::with(folder.path(), "", "[timeouts]\ndownload_stall = \"1s\"\nwrite = \"1s\"\n");
    let relay = Relay::to(site.address, Some(150_000));
    let client = client_by(&relay, &site);
    let answer = client.get(&format!("/big/{BYTES}"));
    assert_eq!((answer.reset, answer.body.len()), (None, BYTES));
}

/// All answers to a client that is gone are late at once: what QUIC held of one of them is no sign of life for the others.
#[test]
fn a_client_that_vanishes_loses_all_its_answers_at_once() {
    const ANSWERS: u64 = 50;
    let folder = tempfile::tempdir().unwrap();
    let limits = "[timeouts]\nidle = \"1s\"\nwrite = \"1s\"\ndownload_stall = \"1s\"\n";
    let site = Site::with(folder.path(), "", limits);
    let client = Client::to(&site);
    // One half QUIC takes whole, or nearly; the others wait for room.
    let answers: Vec<_> = (0..2 * ANSWERS - 1)
        .map(|number| client.begin(&headers(&get(if number % 2 == 0 { "/big/5000" } else { "/big/50000000" })), true))
        .collect();
    // Its runtime sends them all before this one is answered.
    assert_eq!(client.get("/big/10").body.len(), 10);
    assert_ne!(site.server.shared().connections.count(), 0);
    // From here on the client takes no packet: its runtime stands still.
    stand::wait_for("the ends of all answers, and of their connection", || {
        site.server.shared().connections.count() == 0
    });
    drop(answers);
    let log = site.log(folder.path());
    assert_eq!(log.lines().count() as u64, 2 * ANSWERS, "{log}");
}

/// A client that is slow, and not slower than `limits.download_bytes_per_second_min`, gets the end too: each packet counts.
#[test]
fn a_client_at_the_least_rate_gets_the_end_of_its_answer() {
    const BYTES: usize = 40_000;
    let folder = tempfile::tempdir().unwrap();
    let limits =
        "[timeouts]\ndownload_stall = \"2s\"\nwrite = \"2s\"\n[limits]\ndownload_bytes_per_second_min = \"1KB\"\n";
    let site = Site::with(folder.path(), "", limits);
    let relay = Relay::to(site.address, Some(6_000));
    let client = client_by(&relay, &site);
    let answer = client.get(&format!("/big/{BYTES}"));
    assert_eq!((answer.reset, answer.body.len()), (None, BYTES));
}
