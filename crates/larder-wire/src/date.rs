//! HTTP dates and the time they are measured in.
//!
//! Reading knows the three forms that RFC 9110 section 5.6.7 requires, byte for byte, and with letters in any case (RFC 9111
//! section 4.2). Anything else is no date: where one decides about freshness, a guess at what was meant would keep an
//! answer for years that its origin meant to be stale (RFC 9111 section 5.3). Writing knows one form.

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

/// 2069-12-31T23:59:59Z.
const LAST_OF_2069: Stamp = Stamp(3_155_759_999);

/// Reads a date of any of the three forms (RFC 9110 section 5.6.7). A two-digit year means one from 1970 to
/// 2069; who knows the time asks [`parse_date_at`]. A date before 1970 is none.
pub fn parse_date(value: &[u8]) -> Option<Stamp> {
    parse_until(value, LAST_OF_2069)
}

/// Reads a date like [`parse_date`]; a two-digit year means the latest that is not more than 50 years after `now`.
pub fn parse_date_at(value: &[u8], now: Stamp) -> Option<Stamp> {
    let now = now.0.min(LAST_SECOND);
    let (year, month, day) = civil(now / DAY_SECONDS);
    let days = days_since_epoch(year + 50, month, day.min(month_days(year + 50, month)));
    parse_until(value, Stamp(days * DAY_SECONDS + now % DAY_SECONDS))
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

/// Writes a time as RFC 3339 has it, in UTC: `2026-11-28T16:48:00Z`; one past year 9999 is written as its last second.
pub fn timestamp(stamp: Stamp) -> String {
    let seconds = stamp.0.min(LAST_SECOND);
    let (year, month, day) = civil(seconds / DAY_SECONDS);
    let of_day = seconds % DAY_SECONDS;
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", of_day / 3600, of_day / 60 % 60, of_day % 60)
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

/// `latest` is the latest time that a two-digit year may mean.
fn parse_until(value: &[u8], latest: Stamp) -> Option<Stamp> {
    imf_fixdate(value).or_else(|| rfc850_date(value, latest)).or_else(|| asctime_date(value))
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
fn imf_fixdate(value: &[u8]) -> Option<Stamp> {
    let value: &[u8; 29] = value.try_into().ok()?;
    let is_laid_out = value[3..5] == *b", " && [7, 11, 16].iter().all(|&at| value[at] == b' ') && is_gmt(&value[25..]);
    if !is_laid_out || !is_short_weekday(&value[..3]) {
        return None;
    }
    let date = Date { day: &value[5..7], month: &value[8..11] };
    at(date.days(digits(&value[12..16])?)?, &value[17..25])
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`: the weekday in full, the year with two digits.
fn rfc850_date(value: &[u8], latest: Stamp) -> Option<Stamp> {
    let (weekday, rest) = value.split_at(value.iter().position(|&byte| byte == b',')?);
    let rest: &[u8; 24] = rest.try_into().ok()?;
    let is_laid_out = rest[..2] == *b", " && rest[4] == b'-' && rest[8] == b'-' && rest[11] == b' ';
    if !is_laid_out || !is_gmt(&rest[20..]) || !is_long_weekday(weekday) {
        return None;
    }
    let date = Date { day: &rest[2..4], month: &rest[5..8] };
    let in_year = |year| at(date.days(year)?, &rest[12..20]);
    let latest_year = civil(latest.0.min(LAST_SECOND) / DAY_SECONDS).0;
    let year = latest_year - (latest_year + 100 - digits(&rest[9..11])?) % 100;
    // In the last of the years it may still be too late.
    in_year(year).filter(|&stamp| stamp <= latest).or_else(|| in_year(year.checked_sub(100)?))
}

/// `Sun Nov  6 08:49:37 1994`
fn asctime_date(value: &[u8]) -> Option<Stamp> {
    let value: &[u8; 24] = value.try_into().ok()?;
    if ![3, 7, 10, 19].iter().all(|&at| value[at] == b' ') || !is_short_weekday(&value[..3]) {
        return None;
    }
    let day = if value[8] == b' ' { &value[9..10] } else { &value[8..10] };
    let date = Date { day, month: &value[4..7] };
    at(date.days(digits(&value[20..])?)?, &value[11..19])
}

fn at(days: u64, time: &[u8]) -> Option<Stamp> {
    Some(Stamp(days * DAY_SECONDS + seconds_of_day(time)?))
}

fn is_gmt(zone: &[u8]) -> bool {
    zone.eq_ignore_ascii_case(b" GMT")
}

fn is_short_weekday(word: &[u8]) -> bool {
    DAYS.iter().any(|day| word.eq_ignore_ascii_case(&day.as_bytes()[..3]))
}

fn is_long_weekday(word: &[u8]) -> bool {
    DAYS.iter().any(|day| word.eq_ignore_ascii_case(day.as_bytes()))
}

/// Day and month of a calendar date, not yet judged.
struct Date<'a> {
    day: &'a [u8],
    month: &'a [u8],
}

impl Date<'_> {
    /// Days from 1970-01-01 to this day of a year.
    fn days(&self, year: u64) -> Option<u64> {
        let month = 1 + month_of(self.month)?;
        let day = digits(self.day)?;
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

/// Year, month and day of the month, both from 1, of a day since 1970-01-01.
pub fn civil(days: u64) -> (u64, u64, u64) {
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
            ("Sun Nov 06 08:49:37 1994", SAMPLE),
            // The grammar does not tie the weekday to the date.
            ("Mon, 06 Nov 1994 08:49:37 GMT", SAMPLE),
            // No form has the year with two digits between spaces, or with four between dashes, a day of one digit before a
            // month, the weekday of another form, more spaces, or anything around it.
            ("Sun, 06 Nov 94 08:49:37 GMT", None),
            ("Sun, 06-Nov-94 08:49:37 GMT", None),
            ("Sun, 06-Nov-1994 08:49:37 GMT", None),
            ("Sunday, 06-Nov-1994 08:49:37 GMT", None),
            ("Sunday, 06 Nov 1994 08:49:37 GMT", None),
            ("Sunday Nov  6 08:49:37 1994", None),
            ("Sun, 6 Nov 1994 08:49:37 GMT", None),
            ("Sun,  6 Nov 1994 08:49:37 GMT", None),
            ("Sun,  06 Nov 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994  08:49:37 GMT", None),
            ("Sun, 06  Nov 1994 08:49:37 GMT", None),
            ("Sun,06 Nov 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 08:49:37  GMT", None),
            ("Sun, 06 Nov 1994 08:49:37 GMT ", None),
            ("Sun, 06\tNov 1994 08:49:37 GMT", None),
            ("Sunday, 06-Nov-94  08:49:37 GMT", None),
            ("Sunday,06-Nov-94 08:49:37 GMT", None),
            ("Sunday, 6-Nov-94 08:49:37 GMT", None),
            ("Sun Nov 6 08:49:37 1994", None),
            ("Sun Nov  6  08:49:37 1994", None),
            ("Sun Nov  6 08:49:37 94", None),
            ("Sun Nov  6 08:49:37 1994 GMT", None),
            ("Sun, 06 Nov 1994 08.49.37 GMT", None),
            ("Sun, 06 Nov +994 08:49:37 GMT", None),
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
        let year = |date: &str, now: (u64, u64, u64)| {
            let now = Stamp(days_since_epoch(now.0, now.1, now.2) * DAY_SECONDS);
            parse_date_at(format!("Sunday, {date} 08:49:37 GMT").as_bytes(), now)
                .map(|stamp| civil(stamp.0 / DAY_SECONDS).0)
        };
        let june = |year| (year, 6, 1);
        assert_eq!(year("06-Nov-94", june(2026)), Some(1994));
        assert_eq!(year("06-May-76", june(2026)), Some(2076));
        // Fifty years and some months.
        assert_eq!(year("06-Nov-76", june(2026)), Some(1976));
        assert_eq!(year("06-Nov-77", june(2026)), Some(1977));
        assert_eq!(year("06-Nov-05", june(1999)), Some(2005));
        assert_eq!(year("06-Nov-26", june(2026)), Some(2026));
        assert_eq!(year("01-Jun-76", june(2026)), Some(1976), "more by hours");
        // 2000 had a leap day, 2100 has none.
        assert_eq!(year("29-Feb-00", june(2055)), Some(2000));
        assert_eq!(year("28-Feb-20", (1970, 3, 1)), Some(2020));
        assert_eq!(year("29-Feb-20", (1970, 2, 28)), None, "of 2020 it is too late, of 1920 too early");
    }

    #[test]
    fn writes_timestamps() {
        let rows = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_884_480, "2026-11-28T16:48:00Z"),
            (u64::MAX, "9999-12-31T23:59:59Z"),
        ];
        for (second, text) in rows {
            assert_eq!(timestamp(Stamp(second)), text);
        }
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
