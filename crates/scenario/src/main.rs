//! The player.
fn main() {}
