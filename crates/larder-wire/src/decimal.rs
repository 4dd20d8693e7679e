//! Numbers in decimal digits: ports, lengths, ages, statuses.

/// A number in decimal digits. Heads and log lines have several each, and the formatting of the standard library costs
/// each of them more than its digits.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    digits: [u8; 20],
    first: usize,
}

impl Decimal {
    /// The digits of a number.
    pub fn of(mut value: u64) -> Decimal {
        let mut decimal = Decimal { digits: [b'0'; 20], first: 20 };
        // Two at a time: the division is what takes the time.
        while value >= 10 {
            decimal.first -= 2;
            let pair = PAIRS[(value % 100) as usize];
            decimal.digits[decimal.first..decimal.first + 2].copy_from_slice(&pair);
            value /= 100;
        }
        if value > 0 || decimal.first == 20 {
            decimal.first -= 1;
            decimal.digits[decimal.first] = b'0' + value as u8;
        }
        decimal
    }

    /// They are ASCII.
    pub fn as_bytes(&self) -> &[u8] {
        &self.digits[self.first..]
    }

    /// Appends them to a text.
    pub fn push_to(&self, out: &mut String) {
        self.as_bytes().iter().for_each(|&digit| out.push(char::from(digit)));
    }
}

/// All numbers of two digits.
static PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

/// Appends a number in decimal digits. Most are short: a status, an age, a part of an address.
pub fn decimal(out: &mut Vec<u8>, value: u64) {
    match u32::try_from(value) {
        Ok(value @ 0..100_000_000) => {
            let (digits, len) = up_to_eight(value);
            // A copy of a known length is an instruction, any other a call.
            out.extend_from_slice(&digits);
            out.truncate(out.len() - digits.len() + len);
        }
        _ => many_digits(out, value),
    }
}

#[cold]
fn many_digits(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(Decimal::of(value).as_bytes());
}

/// The digits of a number below 100,000,000, and how many they are.
fn up_to_eight(mut value: u32) -> ([u8; 8], usize) {
    let (mut digits, mut len) = (0, 0);
    while value >= 10 {
        digits = digits << 16 | u64::from(u16::from_le_bytes(PAIRS[(value % 100) as usize]));
        value /= 100;
        len += 2;
    }
    if value > 0 || len == 0 {
        digits = digits << 8 | u64::from(b'0' + value as u8);
        len += 1;
    }
    (digits.to_le_bytes(), len)
}
