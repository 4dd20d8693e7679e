//! A name a line, as Squid's `dstdomain` files, squidGuard's `domains`, and lists for DNS filters have them.

use super::{Verdict, name_or_address, without_comment};
use crate::entry::{Entry, NameReach, Side};

pub fn line(line: &[u8], names: NameReach, take: &mut dyn FnMut(Side, Entry)) -> Verdict {
    if line.starts_with(b"//") || line.starts_with(b"!") || line.starts_with(b";") {
        return Verdict::Nothing;
    }
    let word = without_comment(line, b"#;");
    if word.is_empty() {
        return Verdict::Nothing;
    }
    match name_or_address(word, names) {
        Ok(entry) => {
            take(Side::Covers, entry);
            Verdict::Taken
        }
        Err(why) => Verdict::Malformed(why),
    }
}
