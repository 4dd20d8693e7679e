//! Answers that go out slowly, alone and beside each other.

use super::Site;
use super::client::{Client, control, get, headers, tls};
use super::relay::Relay;

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
