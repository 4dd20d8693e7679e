//! HTTP dates, read as strictly as RFC 9110 section 5.6.7 writes them, and written in right and wrong spellings.

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const FIFTY_YEARS: i64 = 50 * 31_556_952;

/// The meaning of a text as a date. Times are seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// A date by every reading.
    Valid(i64),
    /// A date for some caches: lower case and `UTC`, which RFC 9111 section 4.2 leaves to them.
    Either(i64),
    /// No date.
    Invalid,
}

/// Reads a date; `now` decides the century of a year of two digits.
pub fn read(text: &str, now: i64) -> Read {
    let parsed = imf_fixdate(text).or_else(|| rfc850(text, now)).or_else(|| asctime(text));
    match parsed {
        Some((at, true)) => Read::Valid(at),
        Some((at, false)) => Read::Either(at),
        None => Read::Invalid,
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
fn imf_fixdate(text: &str) -> Option<(i64, bool)> {
    let (day_name, rest) = text.split_once(", ")?;
    let mut parts = rest.split(' ');
    let [day, month, year, clock, zone] = [parts.next()?, parts.next()?, parts.next()?, parts.next()?, parts.next()?];
    let names = [is_day(day_name, 3)?, zone_is_gmt(zone)?];
    assemble(parts.next().is_none(), (digits(year, 4)?, month, digits(day, 2)?), clock, &names)
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`
fn rfc850(text: &str, now: i64) -> Option<(i64, bool)> {
    let (day_name, rest) = text.split_once(", ")?;
    let mut parts = rest.split(' ');
    let [date, clock, zone] = [parts.next()?, parts.next()?, parts.next()?];
    let mut numbers = date.split('-');
    let [day, month, year] = [numbers.next()?, numbers.next()?, numbers.next()?];
    let ends = parts.next().is_none() && numbers.next().is_none();
    let (day, short_year) = (digits(day, 2)?, digits(year, 2)?);
    let names = [is_day(day_name, 9)?, zone_is_gmt(zone)?];
    // A year that seems to be more than 50 years ahead is of the past.
    let mut year = civil(now).0 / 100 * 100 + 100 + short_year;
    while assemble(ends, (year, month, day), clock, &names)?.0 > now + FIFTY_YEARS {
        year -= 100;
    }
    assemble(ends, (year, month, day), clock, &names)
}

/// `Sun Nov  6 08:49:37 1994`
fn asctime(text: &str) -> Option<(i64, bool)> {
    if text.len() != 24 || !text.is_ascii() {
        return None;
    }
    let blanks = [3, 7, 10, 19].iter().all(|&at| text.as_bytes()[at] == b' ');
    let day = text[8..10].strip_prefix(' ').map_or_else(|| digits(&text[8..10], 2), |one| digits(one, 1))?;
    let names = [is_day(&text[..3], 3)?];
    assemble(blanks, (digits(&text[20..], 4)?, &text[4..7], day), &text[11..19], &names)
}

fn assemble(ends: bool, (year, month, day): (i64, &str, i64), clock: &str, names: &[bool]) -> Option<(i64, bool)> {
    let number = MONTHS.iter().position(|name| name.eq_ignore_ascii_case(month))?;
    let exact = names.iter().all(|exact| *exact) && MONTHS[number] == month;
    let mut parts = clock.split(':');
    let mut part = || digits(parts.next()?, 2);
    let [hour, minute, second] = [part()?, part()?, part()?];
    let days = days_of(year, number as i64 + 1, day);
    let at = days * 86_400 + hour * 3_600 + minute * 60 + second;
    let is_right = ends && parts.next().is_none() && hour < 24 && minute < 60 && second <= 60;
    (is_right && civil(days * 86_400) == (year, number as i64 + 1, day)).then_some((at, exact))
}

fn digits(text: &str, count: usize) -> Option<i64> {
    (text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

/// Whether it is the name of a day, `None` if not, and whether in the right case.
fn is_day(text: &str, letters_max: usize) -> Option<bool> {
    let cut = |name: &'static str| if letters_max == 3 { &name[..3] } else { name };
    DAYS.iter().map(|name| cut(name)).find(|name| name.eq_ignore_ascii_case(text)).map(|name| name == text)
}

fn zone_is_gmt(text: &str) -> Option<bool> {
    let is_zone = ["GMT", "UTC"].iter().any(|zone| zone.eq_ignore_ascii_case(text));
    is_zone.then_some(text == "GMT")
}

/// Days since 1970 of a date of the Gregorian calendar.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day of a time.
fn civil(at: i64) -> (i64, i64, i64) {
    let days = at.div_euclid(86_400) + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// How a time is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// As it should be.
    Imf,
    /// The obsolete form with a year of two digits.
    Rfc850,
    /// The form of the C library.
    Asctime,
    /// Two digits for the year where four belong.
    TwoDigits,
    /// Two blanks before the year.
    TwoBlanks,
    /// All in lower case.
    Lower,
    /// Without a zone.
    NoZone,
    /// `18-Aug-2050`.
    Dashes,
    /// The zone `UTC`.
    Utc,
    /// Another zone.
    Est,
    /// A number: `0`.
    Zero,
    /// No date at all.
    Words,
}

impl Spelling {
    /// All of them.
    pub const ALL: [Spelling; 12] = {
        use Spelling::*;
        [Imf, Rfc850, Asctime, TwoDigits, TwoBlanks, Lower, NoZone, Dashes, Utc, Est, Zero, Words]
    };

    /// Writes a time.
    pub fn write(self, at: i64) -> String {
        let (year, month, day) = civil(at);
        let name = DAYS[(at.div_euclid(86_400) + 4).rem_euclid(7) as usize];
        let (short, month) = (&name[..3], MONTHS[month as usize - 1]);
        let seconds = at.rem_euclid(86_400);
        let clock = format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60);
        let two = year.rem_euclid(100);
        match self {
            Spelling::Imf => format!("{short}, {day:02} {month} {year} {clock} GMT"),
            Spelling::Rfc850 => format!("{name}, {day:02}-{month}-{two:02} {clock} GMT"),
            Spelling::Asctime => format!("{short} {month} {day:2} {clock} {year}"),
            Spelling::TwoDigits => format!("{short}, {day:02} {month} {two:02} {clock} GMT"),
            Spelling::TwoBlanks => format!("{short}, {day:02} {month}  {year} {clock} GMT"),
            Spelling::Lower => format!("{short}, {day:02} {month} {year} {clock} GMT").to_lowercase(),
            Spelling::NoZone => format!("{short}, {day:02} {month} {year} {clock}"),
            Spelling::Dashes => format!("{short}, {day:02}-{month}-{year} {clock} GMT"),
            Spelling::Utc => format!("{short}, {day:02} {month} {year} {clock} UTC"),
            Spelling::Est => format!("{short}, {day:02} {month} {year} {clock} EST"),
            Spelling::Zero => "0".to_owned(),
            Spelling::Words => "tomorrow".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_the_rfc_and_no_others() {
        let at = 784_111_777;
        for text in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(read(text, 1_700_000_000), Read::Valid(at), "{text}");
        }
        for (spelling, wanted) in [
            (Spelling::Imf, Read::Valid(at)),
            (Spelling::Rfc850, Read::Valid(at)),
            (Spelling::Asctime, Read::Valid(at)),
            (Spelling::TwoDigits, Read::Invalid),
            (Spelling::TwoBlanks, Read::Invalid),
            (Spelling::Lower, Read::Either(at)),
            (Spelling::NoZone, Read::Invalid),
            (Spelling::Dashes, Read::Invalid),
            (Spelling::Utc, Read::Either(at)),
            (Spelling::Est, Read::Invalid),
            (Spelling::Zero, Read::Invalid),
            (Spelling::Words, Read::Invalid),
        ] {
            assert_eq!(read(&spelling.write(at), 1_700_000_000), wanted, "{spelling:?} {}", spelling.write(at));
        }
        assert_eq!(read("Sun, 31 Feb 1994 08:49:37 GMT", 0), Read::Invalid);
        assert_eq!(read("Thu, 18 Aug 50 02:01:18 GMT", 0), Read::Invalid);
    }

    #[test]
    fn a_year_of_two_digits_is_at_most_fifty_years_ahead() {
        let now = 1_795_000_000;
        for years in [-40, -1, 0, 1, 40] {
            let at = now + years * 31_556_952;
            assert_eq!(read(&Spelling::Rfc850.write(at), now), Read::Valid(at), "{years}");
        }
    }
}
