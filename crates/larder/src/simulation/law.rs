//! Bodies that describe themselves: each block of 16 bytes says of which object, version and variant it is, and which block.

use super::plan::Object;

/// A body: an object, its version and its variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body {
    /// The number of the object.
    pub object: usize,
    /// The version.
    pub version: u32,
    /// The variant; `-` where the object has none.
    pub variant: char,
}

const BLOCK_BYTES: u64 = 16;

impl Body {
    /// Its length: two versions of an object have two lengths.
    pub fn length(&self, object: &Object) -> u64 {
        match object.length {
            0 => 0,
            length => length + u64::from(self.version) * 7 + u64::from(self.variant == 'b') * 3,
        }
    }

    /// Its bytes from one place to another.
    pub fn bytes(&self, from: u64, to: u64) -> Vec<u8> {
        let mut text = Vec::with_capacity((to - from) as usize + 2 * BLOCK_BYTES as usize);
        let first = from / BLOCK_BYTES;
        for block in first..to.div_ceil(BLOCK_BYTES) {
            let Body { object, version, variant } = self;
            text.extend_from_slice(format!("{object:03}.{version:03}{variant}{:07}\n", block % 10_000_000).as_bytes());
        }
        text.drain(..(from - first * BLOCK_BYTES) as usize);
        text.truncate((to - from) as usize);
        text
    }

    /// The first place, from `at` on, where these bytes are not its own.
    pub fn differs(&self, at: u64, bytes: &[u8]) -> Option<u64> {
        let own = self.bytes(at, at + bytes.len() as u64);
        own.iter().zip(bytes).position(|(own, byte)| own != byte).map(|place| at + place as u64)
    }

    /// Its entity tag.
    pub fn tag(&self) -> String {
        format!("\"{}.{}.{}\"", self.object, self.version, self.variant)
    }
}

/// A sum of an upload's bytes, which its origin sends back.
pub fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_body_is_that_part() {
        let body = Body { object: 3, version: 2, variant: 'a' };
        let whole = body.bytes(0, 100);
        assert_eq!(&whole[..17], b"003.002a0000000\n0");
        assert_eq!(body.bytes(33, 70), &whole[33..70]);
        assert_eq!((body.differs(33, &whole[33..70]), body.differs(32, &whole[33..70])), (None, Some(33)));
    }
}
