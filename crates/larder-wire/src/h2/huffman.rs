//! The Huffman code of field strings (RFC 7541 section 5.2 and appendix B).
//!
//! The code is canonical: codes of one length count up in the order of their symbols, and longer ones go on from there.
//! The lengths alone say all of it, and the tables are made of them when this crate is compiled.

/// Bits of the code of each byte, and of the end of the string (RFC 7541 appendix B).
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, //
    28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, //
    10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, //
    15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, //
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, //
    6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, //
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, //
    23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, //
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, //
    23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, //
    26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, //
    28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, //
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

const SYMBOLS: usize = 257;
/// The symbol that ends a string: its beginning is the padding, and it never stands in one whole.
const END: u16 = 256;
const LENGTH_MAX: usize = 30;
/// Codes of so many bits are found by one look.
const SHORT_BITS: u32 = 9;

/// The code of each symbol, at the low end.
const CODES: [u32; SYMBOLS] = codes();
/// Symbols in the order of their codes.
const ORDER: [u16; SYMBOLS] = order();
/// By length: the first code, left-aligned in 32 bits, and its place in `ORDER`.
const FIRST: [(u32, u16); LENGTH_MAX + 2] = first();
/// By the next bits: the symbol and its length, 0 where the code is longer.
static SHORT: [(u8, u8); 1 << SHORT_BITS] = short();

const fn order() -> [u16; SYMBOLS] {
    let (mut order, mut next, mut length) = ([0; SYMBOLS], 0, 0);
    while length <= LENGTH_MAX {
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                order[next] = symbol as u16;
                next += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    order
}

const fn codes() -> [u32; SYMBOLS] {
    let (order, mut codes) = (order(), [0; SYMBOLS]);
    let (mut code, mut length, mut place) = (0, 0, 0);
    while place < SYMBOLS {
        let symbol = order[place] as usize;
        code <<= LENGTHS[symbol] - length;
        length = LENGTHS[symbol];
        codes[symbol] = code;
        code += 1;
        place += 1;
    }
    codes
}

const fn first() -> [(u32, u16); LENGTH_MAX + 2] {
    let (order, codes) = (order(), codes());
    // Beyond the last length stands a code that none reaches.
    let mut first = [(u32::MAX, SYMBOLS as u16); LENGTH_MAX + 2];
    let mut place = SYMBOLS;
    while place > 0 {
        place -= 1;
        let symbol = order[place] as usize;
        let length = LENGTHS[symbol] as usize;
        first[length] = (codes[symbol] << (32 - length as u32), place as u16);
    }
    // A length without codes begins where the next one does.
    let mut length = LENGTH_MAX + 1;
    while length > 0 {
        length -= 1;
        if first[length].1 == SYMBOLS as u16 {
            first[length] = first[length + 1];
        }
    }
    first
}

const fn short() -> [(u8, u8); 1 << SHORT_BITS] {
    let (codes, mut table) = (codes(), [(0, 0); 1 << SHORT_BITS]);
    let mut symbol = 0;
    while symbol < END as usize {
        let length = LENGTHS[symbol] as u32;
        if length <= SHORT_BITS {
            let begins = codes[symbol] << (SHORT_BITS - length);
            let mut at = 0;
            while at < 1 << (SHORT_BITS - length) {
                table[(begins + at) as usize] = (symbol as u8, length as u8);
                at += 1;
            }
        }
        symbol += 1;
    }
    table
}

/// Appends the decoded string. False for what no encoder makes: the end symbol within, padding that is longer than 7 bits
/// or not the beginning of the end symbol (RFC 7541 section 5.2).
#[must_use]
pub fn decode(coded: &[u8], out: &mut Vec<u8>) -> bool {
    // The shortest codes have 5 bits.
    out.reserve(coded.len() * 8 / 5);
    let (mut bits, mut held) = (0_u64, 0_u32);
    let mut rest = coded;
    loop {
        while held <= 56 {
            let Some((byte, behind)) = rest.split_first() else { break };
            bits |= u64::from(*byte) << (56 - held);
            held += 8;
            rest = behind;
        }
        let (symbol, length) = match SHORT[(bits >> (64 - SHORT_BITS)) as usize] {
            (_, 0) => match long((bits >> 32) as u32) {
                Some(found) => found,
                None => return is_padding(bits, held),
            },
            (symbol, length) => (symbol, u32::from(length)),
        };
        if length > held {
            return is_padding(bits, held);
        }
        out.push(symbol);
        bits <<= length;
        held -= length;
        if held == 0 && rest.is_empty() {
            return true;
        }
    }
}

/// A code of more than `SHORT_BITS` at the high end; `None` is the end symbol.
fn long(bits: u32) -> Option<(u8, u32)> {
    let mut length = SHORT_BITS as usize + 1;
    while length < LENGTH_MAX && bits >= FIRST[length + 1].0 {
        length += 1;
    }
    let (code, place) = FIRST[length];
    let symbol = ORDER.get(place as usize + ((bits - code) >> (32 - length)) as usize)?;
    u8::try_from(*symbol).ok().map(|symbol| (symbol, length as u32))
}

/// The bits that are left are the beginning of the end symbol, which is all ones, and fewer than a byte.
fn is_padding(bits: u64, held: u32) -> bool {
    held < 8 && (held == 0 || bits >> (64 - held) == (1 << held) - 1)
}

/// The bytes that a string takes when it is coded.
pub fn coded_len(text: &[u8]) -> usize {
    text.iter().map(|byte| usize::from(LENGTHS[usize::from(*byte)])).sum::<usize>().div_ceil(8)
}

/// Appends the coded string.
pub fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut held) = (0_u64, 0_u32);
    for byte in text {
        let length = u32::from(LENGTHS[usize::from(*byte)]);
        bits = bits << length | u64::from(CODES[usize::from(*byte)]);
        held += length;
        // No code is longer than 30 bits, so that 64 hold these and one more.
        if held >= 32 {
            held -= 32;
            out.extend_from_slice(&((bits >> held) as u32).to_be_bytes());
        }
    }
    while held >= 8 {
        held -= 8;
        out.push((bits >> held) as u8);
    }
    if held > 0 {
        out.push((bits << (8 - held)) as u8 | (0xff >> held));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(coded: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        decode(coded, &mut out).then_some(out)
    }

    #[test]
    fn the_examples_of_the_rfc() {
        // RFC 7541 appendices C.4 and C.6.
        for (text, coded) in [
            ("www.example.com", "f1e3c2e5f23a6ba0ab90f4ff"),
            ("no-cache", "a8eb10649cbf"),
            ("custom-key", "25a849e95ba97d7f"),
            ("custom-value", "25a849e95bb8e8b4bf"),
            ("302", "6402"),
            ("private", "aec3771a4b"),
            ("Mon, 21 Oct 2013 20:13:21 GMT", "d07abe941054d444a8200595040b8166e082a62d1bff"),
            ("https://www.example.com", "9d29ad171863c78f0b97c8e9ae82ae43d3"),
            ("307", "640eff"),
            ("gzip", "9bd9ab"),
            (
                "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
                "94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
            ),
            ("", ""),
        ] {
            let wanted: Vec<u8> =
                (0..coded.len()).step_by(2).map(|at| u8::from_str_radix(&coded[at..at + 2], 16).unwrap()).collect();
            let mut out = Vec::new();
            encode(text.as_bytes(), &mut out);
            assert_eq!(out, wanted, "{text}");
            assert_eq!(coded_len(text.as_bytes()), wanted.len(), "{text}");
            assert_eq!(decoded(&wanted).as_deref(), Some(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn every_byte_and_every_pair_comes_back() {
        for first in 0..=255_u8 {
            for second in 0..=255_u8 {
                let text = [first, second, b'a'];
                let mut out = Vec::new();
                encode(&text, &mut out);
                assert_eq!(decoded(&out).as_deref(), Some(&text[..]));
            }
        }
    }

    #[test]
    fn no_other_end_is_taken() {
        // A whole byte of padding, the end symbol, zeros for padding, a code that is not whole.
        for coded in
            [&[0xff][..], &[0xff, 0xff, 0xff, 0xff], &[0x1f, 0xff], &[0x18], &[0xff, 0xff, 0xff, 0xfc], &[0xf8, 0xff]]
        {
            assert_eq!(decoded(coded), None, "{coded:x?}");
        }
        // `a` and three ones.
        assert_eq!(decoded(&[0x1f]).as_deref(), Some(&b"a"[..]));
    }
}
