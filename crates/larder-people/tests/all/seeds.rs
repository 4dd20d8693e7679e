//! Runs every check of `checks` over the seeds of its fuzz target and mutations of them.

use super::{checks, mutations};

/// Pieces that a mutation splices in: lengths, tags, and syntax of filters and names.
const MORSELS: [&[u8]; 16] = [
    b"\x30\x84\xff\xff\xff\xff",
    b"\x30\x82",
    b"\x04\x00",
    b"\x0a\x01\x00",
    b"\x80",
    b"\xff",
    b"\0",
    b"(",
    b")",
    b"(|",
    b"*",
    b"\\2a",
    b"{user}",
    b"{dn}",
    b",ou=admins",
    b"\xc3\xbc",
];

#[test]
fn every_check_holds_for_every_seed_and_its_mutations() {
    mutations::play(&checks::ALL, &MORSELS);
}
