//! Base64 for URLs (RFC 4648 section 5), without padding.

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let bits = part.iter().enumerate().fold(0_u32, |bits, (at, byte)| bits | u32::from(*byte) << (16 - 8 * at));
        (0..=part.len()).for_each(|at| text.push(char::from(LETTERS[(bits >> (18 - 6 * at) & 63) as usize])));
    }
    text
}

pub fn decode(text: &str) -> Vec<u8> {
    let (mut out, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for byte in text.bytes() {
        let value = LETTERS.iter().position(|letter| *letter == byte).expect("a letter of the alphabet");
        bits = bits << 6 | value as u32;
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
    }
    out
}
