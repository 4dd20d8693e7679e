//! Times of the week in a time zone: `Mon-Fri 08:00-17:00`.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::fmt;

const DAY_MINUTES: u16 = 24 * 60;
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// Days of the week, and a time of day on each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// A bit for each day, Monday's first.
    days: u8,
    /// The first minute of the day.
    from: u16,
    /// The minute behind the last one; not above `from` where it lies on the day after.
    until: u16,
}

impl Window {
    /// `Mon-Fri 08:00-17:00`, `Sat,Sun`, `22:00-06:00`: days, or a time, or both. A time that ends before it begins ends on the day after.
    pub fn parse(text: &str) -> Option<Window> {
        let mut window = Window { days: 0x7f, from: 0, until: DAY_MINUTES };
        let mut parts = text.split_whitespace().peekable();
        if parts.peek()?.starts_with(|letter: char| letter.is_ascii_alphabetic()) {
            window.days = days(parts.next()?)?;
        }
        if let Some(time) = parts.next() {
            let (from, until) = time.split_once('-')?;
            (window.from, window.until) = (minute(from)?, minute(until)?);
            if window.from >= DAY_MINUTES || window.from == window.until {
                return None;
            }
        }
        parts.next().is_none().then_some(window)
    }

    /// Whether a minute of a day (0 is Monday) lies in it.
    pub fn has(&self, day: u8, minute: u16) -> bool {
        let on = |day: u8| self.days & 1 << (day % 7) != 0;
        match self.from < self.until {
            true => on(day) && (self.from..self.until).contains(&minute),
            false => (on(day) && minute >= self.from) || (on(day + 6) && minute < self.until),
        }
    }
}

fn days(text: &str) -> Option<u8> {
    let day = |text: &str| DAYS.iter().position(|day| text.eq_ignore_ascii_case(day));
    let mut bits = 0;
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (mut at, last) = (day(first)?, day(last)?);
        bits |= 1 << at;
        while at != last {
            at = (at + 1) % DAYS.len();
            bits |= 1 << at;
        }
    }
    Some(bits)
}

/// `24:00` is the end of a day.
fn minute(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let is_number = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(hour) || !is_number(minute) {
        return None;
    }
    let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
    let all = hour * 60 + minute;
    (minute < 60 && all <= DAY_MINUTES).then_some(all)
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = DAYS.iter().enumerate().filter(|(day, _)| self.days & 1 << day != 0).map(|(_, name)| *name);
        write!(f, "{} ", named.collect::<Vec<_>>().join(","))?;
        let time = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
        write!(f, "{}-{}", time(self.from), time(self.until))
    }
}

/// A time zone.
#[derive(Clone, Debug, PartialEq)]
pub struct Zone {
    name: Box<str>,
    zone: TimeZone,
}

impl Default for Zone {
    fn default() -> Zone {
        Zone { name: "UTC".into(), zone: TimeZone::UTC }
    }
}

impl Zone {
    /// The zone of this name in the system's time zone data, or `UTC`. `Err` says why there is none.
    pub fn find(name: &str) -> Result<Zone, String> {
        if name == "UTC" {
            return Ok(Zone::default());
        }
        let zone = TimeZone::get(name).map_err(|_| match TimeZone::get("Europe/London") {
            Ok(_) => format!("there is no time zone {name:?}"),
            Err(_) => "this system has no time zone data: install the package tzdata, or use UTC".to_owned(),
        })?;
        Ok(Zone { name: name.into(), zone })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The day of the week (0 is Monday) and the minute of that day, at a minute since 1970.
    pub fn day_and_minute(&self, minute: i64) -> (u8, u16) {
        let at = Timestamp::from_second(minute.saturating_mul(60)).unwrap_or_default();
        let local = self.zone.to_datetime(at);
        let day = u8::try_from(local.weekday().to_monday_zero_offset()).unwrap_or_default();
        let part = |part: i8| u16::try_from(part).unwrap_or_default();
        (day, part(local.hour()) * 60 + part(local.minute()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_have_their_minutes() {
        let has = |text: &str, day: u8, time: &str| Window::parse(text).unwrap().has(day, minute(time).unwrap());
        for (window, day, time, wanted) in [
            ("Mon-Fri 08:00-17:00", 0, "08:00", true),
            ("Mon-Fri 08:00-17:00", 0, "17:00", false),
            ("Mon-Fri 08:00-17:00", 5, "09:00", false),
            ("Sat,Sun", 6, "23:59", true),
            ("sat,sun", 0, "00:00", false),
            ("Fri-Mon 22:00-06:00", 0, "23:00", true),
            ("Fri 22:00-06:00", 5, "05:59", true),
            ("Fri 22:00-06:00", 4, "05:59", false),
            ("22:00-06:00", 0, "00:00", true),
            ("00:00-24:00", 3, "12:00", true),
        ] {
            assert_eq!(has(window, day, time), wanted, "{window} {day} {time}");
        }
        for wrong in
            ["", "Mon-Xyz", "8:00-17:00", "08:00", "25:00-26:00", "08:60-09:00", "Mon 08:00-09:00 x", "08:00-08:00"]
        {
            assert_eq!(Window::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Window::parse("Mon-Tue 08:00-17:00").unwrap().to_string(), "Mon,Tue 08:00-17:00");
    }

    #[test]
    fn a_zone_has_its_summer() {
        // 2026-07-01 10:30 UTC is a Wednesday, 2026-01-01 10:30 UTC a Thursday.
        assert_eq!(Zone::default().day_and_minute(1_782_901_800 / 60), (2, 630));
        let Ok(berlin) = Zone::find("Europe/Berlin") else {
            assert!(Zone::find("Europe/Berlin").unwrap_err().contains("tzdata"));
            return;
        };
        assert_eq!(berlin.day_and_minute(1_782_901_800 / 60), (2, 750));
        assert_eq!(berlin.day_and_minute(1_767_263_400 / 60), (3, 690));
        assert!(Zone::find("Europe/Nowhere").unwrap_err().contains("Nowhere"));
    }
}
