//! Integers of QUIC: one, two, four or eight bytes, the first two bits saying how many (RFC 9000 section 16).

/// The largest of them.
pub const MAX: u64 = (1 << 62) - 1;
/// Bytes of the longest one.
pub const BYTES_MAX: usize = 8;

/// The integer that these bytes begin with, and its bytes; `None` where it is not whole.
pub fn read(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let len = 1 << (first >> 6);
    let rest = bytes.get(1..len)?;
    Some((rest.iter().fold(u64::from(first & 0x3f), |number, byte| number << 8 | u64::from(*byte)), len))
}

/// Appends an integer in as few bytes as it takes. One beyond [`MAX`], which has no form, is written as that.
pub fn write(out: &mut Vec<u8>, number: u64) {
    let number = number.min(MAX);
    match number {
        0..0x40 => out.push(number as u8),
        0x40..0x4000 => out.extend_from_slice(&(number as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => out.extend_from_slice(&(number as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(number | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_the_rfc() {
        // RFC 9000 appendix A.1.
        for (bytes, number) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ] {
            assert_eq!(read(bytes), Some((number, bytes.len())), "{number}");
            assert_eq!(read(&bytes[..bytes.len() - 1]), None, "{number}");
        }
    }

    proptest! {
        #[test]
        fn numbers_come_back(number in 0..=MAX, shift in 0..62, rest in prop::collection::vec(any::<u8>(), 0..3)) {
            let number = number >> shift;
            let mut bytes = Vec::new();
            write(&mut bytes, number);
            let len = bytes.len();
            bytes.extend(rest);
            prop_assert_eq!(read(&bytes), Some((number, len)));
            prop_assert!((0..len).all(|cut| read(&bytes[..cut]).is_none()));
        }
    }
}
