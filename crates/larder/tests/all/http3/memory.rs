//! Memory of a server whose clients send and get much.

use super::client::{Client, data, get, headers, tls};
use super::{start, write_certificate};
use aws_lc_rs::digest::{Context, SHA256, digest};
use larder_wire::h3::message::{MessageReader, Step};

const BYTES: usize = 100_000_000;
/// More memory than before the bodies: windows, buffers of sockets, what the allocator keeps. Less than a body by far.
const MORE_BYTES_MAX: u64 = 16_000_000;

#[test]
fn long_bodies_take_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = write_certificate(folder.path()).cert.der().clone();
    let running = start(folder.path(), "");
    let client = Client::with(running.proxy, tls(&certificate, None)).unwrap();
    assert_eq!(client.get("/fresh").status(), "200");
    let before = running.resident_bytes_max();
    // Down: the digest is made while the bytes come.
    let (_send, mut receive) = client.begin(&headers(&get(&format!("/big/{BYTES}"))), true);
    let (mut message, mut came) = (MessageReader::new(1 << 16), Context::new(&SHA256));
    while let Some(chunk) = client.wait(receive.read_chunk(1 << 16, true)).unwrap() {
        let mut rest = &chunk.bytes[..];
        while !rest.is_empty() {
            let (step, taken) = message.read(rest).unwrap();
            if step == Step::Data {
                came.update(&rest[..taken]);
            }
            rest = &rest[taken..];
        }
    }
    assert_eq!(came.finish().as_ref(), digest(&SHA256, &vec![b'b'; BYTES]).as_ref());
    // Up: the origin sums.
    let mut fields = get("/sum");
    fields[0].1 = "PUT";
    let (mut send, mut receive) = client.begin(&headers(&fields), false);
    let piece: Vec<u8> = (0..1_000_000).map(|at| (at % 251) as u8).collect();
    let mut sum = 0_u64;
    for _ in 0..BYTES / piece.len() {
        client.wait(send.write_all(&data(&piece))).unwrap();
        sum = piece.iter().fold(sum, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    }
    send.finish().unwrap();
    assert_eq!(client.answer(&mut receive).text(), format!("{BYTES} {sum}"));
    let more = running.resident_bytes_max() - before;
    println!("{more} bytes more than {before} were resident");
    assert!(more <= MORE_BYTES_MAX, "{more} bytes more than {before}");
    drop(client);
    running.end();
}
