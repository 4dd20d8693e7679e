//! The tags that an origin gives its responses, by which they are invalidated together.
//!
//! `Surrogate-Key` and `xkey` hold tags with spaces between them, `Cache-Tag` with commas. Tags are compared as bytes and
//! kept as hashes: two tags that collide are invalidated together, which costs a fetch and nothing else.

use larder_wire::Fields;
use xxhash_rust::xxh3::xxh3_64;

/// More tags of one response than this are not kept; purges by the others do not find it.
pub const TAGS_MAX: usize = 1_024;

/// The hash under which a tag is kept.
pub fn hash(tag: &[u8]) -> u64 {
    xxh3_64(tag)
}

/// The hashes of all tags of a response.
pub fn of(fields: &Fields) -> Box<[u64]> {
    let mut hashes: Vec<u64> = names(fields).take(TAGS_MAX).map(hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    hashes.into()
}

/// All tags of a response, in the order of the fields that hold them.
pub fn names(fields: &Fields) -> impl Iterator<Item = &[u8]> {
    let spaced = ["Surrogate-Key", "xkey"].into_iter().flat_map(|name| fields.get_all(name));
    let spaced = spaced.flat_map(|value| value.split(|byte| matches!(byte, b' ' | b'\t')));
    let listed = fields.get_all("Cache-Tag").flat_map(|value| value.split(|&byte| byte == b','));
    spaced.chain(listed).map(<[u8]>::trim_ascii).filter(|tag| !tag.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_all_three_fields() {
        let mut fields = Fields::new();
        assert!(of(&fields).is_empty());
        fields.push("Surrogate-Key", "a  b");
        fields.push("xkey", "c");
        fields.push("Cache-Tag", "d, e f ,a");
        let mut expected: Vec<u64> = ["a", "b", "c", "d", "e f"].iter().map(|tag| hash(tag.as_bytes())).collect();
        expected.sort_unstable();
        assert_eq!(*of(&fields), *expected);
    }
}
