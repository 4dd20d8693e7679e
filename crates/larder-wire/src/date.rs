//! HTTP dates and the time they are measured in.
//!
//! Reading is generous as RFC 9110 section 5.6.7 asks (all three forms, two-digit years) and RFC 9111
//! section 4.2 adds (letters in any case, but no zone other than GMT). Writing knows one form.

/// Whole seconds since 1970-01-01T00:00:00Z. HTTP knows no finer time (RFC 9110 section 5.6.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(pub u64);

impl Stamp {
    /// Seconds from `earlier` to here; 0 when it is not earlier.
    pub fn since(self, earlier: Stamp) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This many seconds later.
    pub fn plus(self, seconds: u64) -> Stamp {
        Stamp(self.0.saturating_add(seconds))
    }
}

/// The largest delta-seconds: what a greater number is taken for (RFC 9111 section 1.2.2).
pub const DELTA_SECONDS_MAX: u64 = 1 << 31;

/// 9999-12-31T23:59:59Z, the last time that a four-digit year can write.
const LAST_SECOND: u64 = 253_402_300_799;
const DAY_SECONDS: u64 = 86_400;

/// Reads a date of any of the three forms (RFC 9110 section 5.6.7). A two-digit year means one from 1970 to
/// 2069; who knows the time asks [`parse_date_at`]. A date before 1970 is none.
pub fn parse_date(value: &[u8]) -> Option<Stamp> {
    parse_until(value, 2069)
}

/// Reads a date like [`parse_date`]; a two-digit year means the latest that is not more than 50 years after `now`.
pub fn parse_date_at(value: &[u8], now: Stamp) -> Option<Stamp> {
    let (year, _, _) = civil(now.0.min(LAST_SECOND) / DAY_SECONDS);
    parse_until(value, year + 50)
}

/// Writes the one form that may be sent, IMF-fixdate; a time past year 9999 is written as its last second.
pub fn format_date(stamp: Stamp) -> [u8; 29] {
    let seconds = stamp.0.min(LAST_SECOND);
    let (days, of_day) = (seconds / DAY_SECONDS, seconds % DAY_SECONDS);
    let (year, month, day) = civil(days);
    let mut out = *b"Thu, 00 Jan 0000 00:00:00 GMT";
    // 1970-01-01 was a Thursday.
    out[..3].copy_from_slice(&DAYS[((days + 3) % 7) as usize].as_bytes()[..3]);
    two_digits(&mut out[5..7], day);
    out[8..11].copy_from_slice(MONTHS[(month - 1) as usize].as_bytes());
    two_digits(&mut out[12..14], year / 100);
    two_digits(&mut out[14..16], year % 100);
    two_digits(&mut out[17..19], of_day / 3600);
    two_digits(&mut out[20..22], of_day / 60 % 60);
    two_digits(&mut out[23..25], of_day % 60);
    out
}

/// Reads delta-seconds: digits only, at most [`DELTA_SECONDS_MAX`] (RFC 9111 section 1.2.2).
pub fn delta_seconds(text: &[u8]) -> Option<u64> {
    digits(text).map(|seconds| seconds.min(DELTA_SECONDS_MAX))
}

/// A number of decimal digits alone; one that overflows is the largest.
pub(crate) fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(text.iter().fold(0u64, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'))))
}

const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

fn parse_until(value: &[u8], latest_year: u64) -> Option<Stamp> {
    usual_form(value).or_else(|| parse_words(value, latest_year))
}

/// The one form that may be sent, with the letters as they are usually written: where each part lies is known.
fn usual_form(value: &[u8]) -> Option<Stamp> {
    let value: &[u8; 29] = value.try_into().ok()?;
    let is_laid_out =
        value[3..5] == *b", " && [7, 11, 16].iter().all(|&at| value[at] == b' ') && value[25..] == *b" GMT";
    let is_weekday = || DAYS.iter().any(|day| day.as_bytes()[..3] == value[..3]);
    if !is_laid_out || !is_weekday() {
        return None;
    }
    let date = Date { day: &value[5..7], month: &value[8..11], year: &value[12..16] };
    // The year has four digits, so nobody asks which century is meant.
    Some(Stamp(date.days(0)? * DAY_SECONDS + seconds_of_day(&value[17..25])?))
}

fn parse_words(value: &[u8], latest_year: u64) -> Option<Stamp> {
    let mut words = value.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let mut word = || words.next();
    let weekday = word()?;
    let (date, time, zone);
    match weekday.strip_suffix(b",") {
        // Sun Nov  6 08:49:37 1994
        None => {
            is_weekday(weekday).then_some(())?;
            let (month, day) = (word()?, word()?);
            time = word()?;
            date = Date { day, month, year: word()? };
            zone = &b"GMT"[..];
        }
        Some(weekday) => {
            is_weekday(weekday).then_some(())?;
            date = Date::read(word()?, &mut word)?;
            time = word()?;
            zone = word()?;
        }
    }
    let complete = word().is_none() && zone.eq_ignore_ascii_case(b"GMT");
    if !complete {
        return None;
    }
    Some(Stamp(date.days(latest_year)? * DAY_SECONDS + seconds_of_day(time)?))
}

/// The three words of a calendar date, not yet judged.
struct Date<'a> {
    day: &'a [u8],
    month: &'a [u8],
    year: &'a [u8],
}

impl<'a> Date<'a> {
    /// `06-Nov-94`, or `06` with `Nov` and `1994` in the words that follow.
    fn read(first: &'a [u8], word: &mut impl FnMut() -> Option<&'a [u8]>) -> Option<Date<'a>> {
        let mut parts = first.splitn(3, |&byte| byte == b'-');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(day), Some(month), Some(year)) => Some(Date { day, month, year }),
            (Some(day), None, None) => Some(Date { day, month: word()?, year: word()? }),
            _ => None,
        }
    }

    /// Days since 1970-01-01.
    fn days(&self, latest_year: u64) -> Option<u64> {
        let year = match self.year.len() {
            4 => digits(self.year)?,
            2 => latest_year - (latest_year + 100 - digits(self.year)?) % 100,
            _ => return None,
        };
        let month = 1 + month_of(self.month)?;
        let day = digits(self.day).filter(|_| self.day.len() <= 2)?;
        let valid = year >= 1970 && day >= 1 && day <= month_days(year, month);
        valid.then(|| days_since_epoch(year, month, day))
    }
}

/// The number of a month, from 0.
fn month_of(word: &[u8]) -> Option<u64> {
    let as_written = MONTHS.iter().position(|name| name.as_bytes() == word);
    let month = as_written.or_else(|| MONTHS.iter().position(|name| name.as_bytes().eq_ignore_ascii_case(word)))?;
    Some(month as u64)
}

fn is_weekday(word: &[u8]) -> bool {
    DAYS.iter().any(|day| word.eq_ignore_ascii_case(day.as_bytes()) || word.eq_ignore_ascii_case(&day.as_bytes()[..3]))
}

/// `08:49:37`; second 60 is a leap second (RFC 9110 section 5.6.7).
fn seconds_of_day(time: &[u8]) -> Option<u64> {
    let &[h1, h2, b':', m1, m2, b':', s1, s2] = time else { return None };
    let (hour, minute, second) = (digits(&[h1, h2])?, digits(&[m1, m2])?, digits(&[s1, s2])?);
    (hour < 24 && minute < 60 && second <= 60).then_some(hour * 3600 + minute * 60 + second)
}

fn month_days(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// Years are counted from March, so that the leap day is the last of its year.
fn days_since_epoch(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_year = (153 * month + 2) / 5 + day - 1;
    365 * year + year / 4 - year / 100 + year / 400 + of_year - EPOCH_DAYS
}

/// Year, month and day of a day since 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + EPOCH_DAYS;
    let (era, of_era) = (days / ERA_DAYS, days % ERA_DAYS);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year_of_era;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

/// Days from 0000-03-01 to 1970-01-01, and in 400 years.
const EPOCH_DAYS: u64 = 719_468;
const ERA_DAYS: u64 = 146_097;

fn two_digits(out: &mut [u8], number: u64) {
    out[0] = b'0' + (number / 10 % 10) as u8;
    out[1] = b'0' + (number % 10) as u8;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 1994-11-06T08:49:37Z, the time of RFC 9110's own example.
    const SAMPLE: Option<u64> = Some(784_111_777);

    #[test]
    fn reads_dates() {
        // Date text, its second; RFC 9110 section 5.6.7 unless another is named.
        let rows: &[(&str, Option<u64>)] = &[
            ("Sun, 06 Nov 1994 08:49:37 GMT", SAMPLE),
            ("Sunday, 06-Nov-94 08:49:37 GMT", SAMPLE),
            ("Sun Nov  6 08:49:37 1994", SAMPLE),
            // RFC 9111 section 4.2: letters in any case.
            ("SUN, 06 NOV 1994 08:49:37 gmt", SAMPLE),
            ("sunday, 06-nov-94 08:49:37 gmt", SAMPLE),
            // Robust reading: the year in full, a short day name, a wrong day name, more spaces.
            ("Sun, 06-Nov-1994 08:49:37 GMT", SAMPLE),
            ("Mon, 06 Nov 1994 08:49:37 GMT", SAMPLE),
            ("Sun,  6 Nov  1994  08:49:37 GMT", SAMPLE),
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Tue, 29 Feb 2000 00:00:00 GMT", Some(951_782_400)),
            ("Sat, 31 Dec 2016 23:59:60 GMT", Some(1_483_228_800)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(LAST_SECOND)),
            // RFC 9111 section 4.2: no zone but GMT.
            ("Sun, 06 Nov 1994 08:49:37 EST", None),
            ("Sun, 06 Nov 1994 08:49:37 UTC", None),
            ("Sun, 06 Nov 1994 08:49:37 +0000", None),
            ("Sun, 06 Nov 1994 08:49:37", None),
            ("Sun, 06 Nov 1994 08:49:37 GMT 1", None),
            ("Sun, 06 Nov 1994 8:49:37 GMT", None),
            ("Sun, 06 Nov 1994 08:49 GMT", None),
            ("Sun, 06 Nov 1994 24:00:00 GMT", None),
            ("Sun, 06 Nov 1994 08:60:00 GMT", None),
            ("Sun, 30 Feb 2000 00:00:00 GMT", None),
            ("Mon, 29 Feb 2100 00:00:00 GMT", None),
            ("Sun, 00 Nov 1994 08:49:37 GMT", None),
            ("Sun, 06 Foo 1994 08:49:37 GMT", None),
            ("Foo, 06 Nov 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 19940 08:49:37 GMT", None),
            ("Wed, 31 Dec 1969 23:59:59 GMT", None),
            ("06 Nov 1994 08:49:37 GMT", None),
            ("784111777", None),
            ("0", None),
            ("-1", None),
            ("", None),
        ];
        for (text, expected) in rows {
            assert_eq!(parse_date(text.as_bytes()).map(|stamp| stamp.0), *expected, "{text}");
        }
    }

    #[test]
    fn two_digit_years_lie_within_fifty_years_ahead() {
        let year = |text: &str, now: u64| {
            let now = Stamp(days_since_epoch(now, 6, 1) * DAY_SECONDS);
            parse_date_at(format!("Sunday, 06-Nov-{text} 08:49:37 GMT").as_bytes(), now)
                .map(|stamp| civil(stamp.0 / DAY_SECONDS).0)
        };
        assert_eq!(year("94", 2026), Some(1994));
        assert_eq!(year("76", 2026), Some(2076));
        assert_eq!(year("77", 2026), Some(1977));
        assert_eq!(year("05", 1999), Some(2005));
        assert_eq!(year("26", 2026), Some(2026));
    }

    #[test]
    fn reads_delta_seconds() {
        // RFC 9111 section 1.2.2.
        let rows: &[(&str, Option<u64>)] = &[
            ("0", Some(0)),
            ("60", Some(60)),
            ("0060", Some(60)),
            ("2147483647", Some(2_147_483_647)),
            ("2147483649", Some(DELTA_SECONDS_MAX)),
            ("99999999999999999999999999", Some(DELTA_SECONDS_MAX)),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.0", None),
            (" 1", None),
            ("1s", None),
            ("0x1", None),
        ];
        for (text, expected) in rows {
            assert_eq!(delta_seconds(text.as_bytes()), *expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn writes_what_it_reads(second in 0..=LAST_SECOND) {
            let text = format_date(Stamp(second));
            prop_assert_eq!(parse_date(&text), Some(Stamp(second)));
            let other = httpdate::parse_http_date(std::str::from_utf8(&text).unwrap()).unwrap();
            prop_assert_eq!(other.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs(), second);
        }

        #[test]
        fn never_panics(text in "\\PC{0,40}", now in any::<u64>()) {
            parse_date_at(text.as_bytes(), Stamp(now));
            format_date(Stamp(now));
        }

        #[test]
        fn never_panics_on_nearly_dates(
            text in "(Sun|Sunday|Sun,|Sunday,) ?[0-9]{0,3}[ -](Nov|Feb|x)[ -][0-9]{0,5} [0-9:]{0,9} (GMT)?"
        ) {
            parse_date(text.as_bytes());
        }
    }
}
