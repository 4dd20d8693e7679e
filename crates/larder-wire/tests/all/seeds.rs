//! Runs every check of `checks` over the seeds of its fuzz target and mutations of them.

use super::{checks, mutations};

/// Pieces that a mutation splices in: what separates, what declares, what counts.
const MORSELS: [&[u8]; 24] = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b",",
    b";",
    b"0\r\n\r\n",
    b"\r\n\r\n",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Host: a\r\n",
    b"chunked",
    b"HTTP/1.0",
    b"ffffffffffffffff",
    b"%2e%2E/",
    b"../",
    b"[::1]",
    b"@",
    b"#",
    b"\xff",
    b"Connection: close, x\r\n",
];

#[test]
fn every_check_holds_for_every_seed_and_its_mutations() {
    mutations::play(&checks::ALL, &MORSELS);
}
