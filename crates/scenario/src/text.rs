//! Texts of a script: literal bytes, escapes and variables; and the generated bodies (`bytes 1000`), whose every
//! byte follows from its offset so that any slice of them can be checked.

use crate::target::Way;
use std::net::SocketAddr;

/// A text with variables in it, to be rendered when the script is played.
#[derive(Debug, Clone, Default)]
pub struct Text {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone)]
enum Piece {
    Bytes(Vec<u8>),
    Variable { name: String, argument: Option<i64> },
}

/// The values of variables in one play.
#[derive(Debug, Clone)]
pub struct Scope {
    /// How the proxy is used.
    pub way: Way,
    /// The origins and where they listen, in the order of the script.
    pub origins: Vec<(String, SocketAddr)>,
    /// Put before every path, so that plays of one proxy do not meet in its store.
    pub root: String,
    /// The Unix time at which the play began.
    pub now: i64,
    /// Which of many equal clients this is.
    pub index: usize,
}

impl Scope {
    /// The host of an origin as a client names it.
    pub fn host(&self, origin: &str) -> String {
        if self.way == Way::Reverse {
            return format!("{origin}.test");
        }
        self.address(origin)
    }

    /// The address of an origin as the proxy dials it.
    pub fn address(&self, origin: &str) -> String {
        self.origins.iter().find(|(name, _)| name == origin).map(|(_, a)| a.to_string()).unwrap_or_default()
    }

    /// The part before the path in a request line: the absolute form's start for a forward proxy, else nothing.
    pub fn site(&self, origin: &str) -> String {
        match self.way {
            Way::Forward => format!("http://{}", self.address(origin)),
            Way::Reverse | Way::Direct => String::new(),
        }
    }

    fn first(&self) -> &str {
        self.origins.first().map_or("", |(name, _)| name)
    }
}

impl Text {
    /// A text without variables.
    pub fn literal(bytes: &[u8]) -> Text {
        Text { pieces: vec![Piece::Bytes(bytes.to_vec())] }
    }

    /// Reads `source`, with `\r`, `\x00` and the like when `escapes`; `known` are the names of the origins.
    pub fn parse(source: &str, escapes: bool, known: &[String]) -> Result<Text, String> {
        let mut text = Text::default();
        let mut plain = Vec::new();
        let mut rest = source.as_bytes();
        while let Some((&b, tail)) = rest.split_first() {
            rest = tail;
            match b {
                b'\\' if escapes => plain.push(escape(&mut rest)?),
                b'$' if rest.first() == Some(&b'$') => {
                    plain.push(b'$');
                    rest = &rest[1..];
                }
                b'$' => {
                    let piece = variable(&mut rest, known)?;
                    text.pieces.push(Piece::Bytes(std::mem::take(&mut plain)));
                    text.pieces.push(piece);
                }
                _ => plain.push(b),
            }
        }
        text.pieces.push(Piece::Bytes(plain));
        Ok(text)
    }

    /// The bytes, with every variable replaced.
    pub fn render(&self, scope: &Scope) -> Vec<u8> {
        let mut out = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Bytes(bytes) => out.extend_from_slice(bytes),
                Piece::Variable { name, argument } => out.extend(value(name, *argument, scope)),
            }
        }
        out
    }

    /// The bytes as text, for what is text by nature (paths, field values to compare).
    pub fn render_str(&self, scope: &Scope) -> String {
        String::from_utf8_lossy(&self.render(scope)).into_owned()
    }

    /// Appends another text.
    pub fn join(&mut self, other: Text) {
        self.pieces.extend(other.pieces);
    }
}

fn escape(rest: &mut &[u8]) -> Result<u8, String> {
    let Some((&b, tail)) = rest.split_first() else {
        return Err("a text ends in the middle of an escape: write \\\\ for a backslash".into());
    };
    *rest = tail;
    Ok(match b {
        b'r' => b'\r',
        b'n' => b'\n',
        b't' => b'\t',
        b'0' => 0,
        b'\\' | b'"' => b,
        b'x' => {
            let digits = tail.get(..2).and_then(|d| std::str::from_utf8(d).ok());
            let byte = digits.and_then(|d| u8::from_str_radix(d, 16).ok());
            *rest = tail.get(2..).unwrap_or_default();
            byte.ok_or("after \\x come two hexadecimal digits")?
        }
        other => {
            return Err(format!("unknown escape \\{}: there are \\r \\n \\t \\0 \\\\ \\\" \\xHH", char::from(other)));
        }
    })
}

fn variable(rest: &mut &[u8], known: &[String]) -> Result<Piece, String> {
    let is_name = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_';
    let mut length = rest.iter().take_while(|b| is_name(b)).count();
    if rest.get(length) == Some(&b'.') {
        let more = rest[length + 1..].iter().take_while(|b| is_name(b)).count();
        let longer = String::from_utf8_lossy(&rest[..length + 1 + more]).into_owned();
        if more > 0 && is_known(&longer, known) {
            length += 1 + more;
        }
    }
    let name = String::from_utf8_lossy(&rest[..length]).into_owned();
    if !is_known(&name, known) {
        return Err(format!(
            "unknown variable ${name}: there are $ORIGIN $ORIGIN.address $site $site.ORIGIN $root $date(N) $rfc850(N) \
             $asctime(N) $fill(N) $i, and $$ for a dollar sign"
        ));
    }
    *rest = &rest[length..];
    let mut argument = None;
    if rest.first() == Some(&b'(') {
        let end = rest.iter().position(|&b| b == b')').ok_or(format!("${name}(… lacks its closing parenthesis"))?;
        let digits = String::from_utf8_lossy(&rest[1..end]).into_owned();
        argument = Some(digits.parse().map_err(|_| format!("${name}({digits}) needs a whole number"))?);
        *rest = &rest[end + 1..];
    }
    Ok(Piece::Variable { name, argument })
}

fn is_known(name: &str, origins: &[String]) -> bool {
    let is_origin = |n: &str| origins.iter().any(|o| o == n);
    match name {
        "site" | "root" | "date" | "rfc850" | "asctime" | "fill" | "i" => true,
        _ => {
            is_origin(name)
                || name.strip_suffix(".address").is_some_and(is_origin)
                || name.strip_prefix("site.").is_some_and(is_origin)
        }
    }
}

fn value(name: &str, argument: Option<i64>, scope: &Scope) -> Vec<u8> {
    let number = argument.unwrap_or(0);
    let text = match name {
        "site" => scope.site(scope.first()),
        "root" => scope.root.clone(),
        "date" => Date::of(scope.now + number).imf(),
        "rfc850" => Date::of(scope.now + number).rfc850(),
        "asctime" => Date::of(scope.now + number).asctime(),
        "fill" => "a".repeat(usize::try_from(number).unwrap_or(0)),
        "i" => scope.index.to_string(),
        _ => match (name.strip_suffix(".address"), name.strip_prefix("site.")) {
            (Some(origin), _) => scope.address(origin),
            (_, Some(origin)) => scope.site(origin),
            _ => scope.host(name),
        },
    };
    text.into_bytes()
}

/// A part of a body: a text, or a slice of a generated one.
#[derive(Debug, Clone)]
pub enum Payload {
    /// As written.
    Text(Text),
    /// The bytes `from..to` of generated body `number`.
    Pattern { number: u64, from: u64, to: u64 },
}

/// The bytes of several payloads after each other.
pub fn render_payloads(payloads: &[Payload], scope: &Scope) -> Vec<u8> {
    let mut out = Vec::new();
    for payload in payloads {
        match payload {
            Payload::Text(text) => out.extend(text.render(scope)),
            Payload::Pattern { number, from, to } => out.extend((*from..*to).map(|i| pattern_byte(*number, i))),
        }
    }
    out
}

/// The byte at `offset` of generated body `number`: letters, with a period that no buffer size divides.
pub fn pattern_byte(number: u64, offset: u64) -> u8 {
    let step = offset.wrapping_mul(7).wrapping_add(offset / 251).wrapping_add(number.wrapping_mul(11));
    b'a' + u8::try_from(step % 26).unwrap_or(0)
}

/// `*` stands for any bytes, everything else for itself.
pub fn glob(pattern: &str, value: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == value,
        Some((start, rest)) => {
            let Some(tail) = value.strip_prefix(start) else { return false };
            tail.char_indices().map(|(i, _)| i).chain([tail.len()]).any(|i| glob(rest, &tail[i..]))
        }
    }
}

/// A Unix time as HTTP writes it today.
pub fn imf_date(unix_seconds: i64) -> String {
    Date::of(unix_seconds).imf()
}

struct Date {
    year: i64,
    month: usize,
    day: i64,
    weekday: usize,
    clock: String,
}

const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

impl Date {
    fn of(unix_seconds: i64) -> Date {
        let (mut left, seconds) = (unix_seconds.div_euclid(86_400), unix_seconds.rem_euclid(86_400));
        let weekday = usize::try_from(left.rem_euclid(7)).unwrap_or(0);
        let is_leap = |y: i64| (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
        let mut year = 1970;
        loop {
            let length = if is_leap(year) { 366 } else { 365 };
            if left < length {
                break;
            }
            left -= length;
            year += 1;
        }
        let february = if is_leap(year) { 29 } else { 28 };
        let mut month = 0;
        for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
            if left < length {
                break;
            }
            left -= length;
            month += 1;
        }
        let clock = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
        Date { year, month, day: left + 1, weekday, clock }
    }

    fn imf(&self) -> String {
        let Date { year, month, day, weekday, clock } = self;
        format!("{}, {day:02} {} {year} {clock} GMT", &DAYS[*weekday][..3], MONTHS[*month])
    }

    fn rfc850(&self) -> String {
        let Date { year, month, day, weekday, clock } = self;
        format!("{}, {day:02}-{}-{:02} {clock} GMT", DAYS[*weekday], MONTHS[*month], year % 100)
    }

    fn asctime(&self) -> String {
        let Date { year, month, day, weekday, clock } = self;
        format!("{} {} {day:2} {clock} {year}", &DAYS[*weekday][..3], MONTHS[*month])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(way: Way) -> Scope {
        let address = SocketAddr::from(([127, 0, 0, 1], 81));
        Scope { way, origins: vec![("s1".into(), address)], root: String::new(), now: 784_111_777, index: 3 }
    }

    #[test]
    fn variables_and_escapes() {
        let known = ["s1".to_string()];
        let table = [
            ("$site/a", "http://127.0.0.1:81/a", "/a"),
            ("$s1.", "127.0.0.1:81.", "s1.test."),
            ("$s1.address", "127.0.0.1:81", "127.0.0.1:81"),
            ("$date", "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("$rfc850(0)", "Sunday, 06-Nov-94 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT"),
            ("$asctime(-1)", "Sun Nov  6 08:49:36 1994", "Sun Nov  6 08:49:36 1994"),
            ("$$5$i$fill(3)", "$53aaa", "$53aaa"),
            ("a\\x0db", "a\rb", "a\rb"),
        ];
        for (source, forward, reverse) in table {
            let text = Text::parse(source, true, &known).expect(source);
            assert_eq!(text.render_str(&scope(Way::Forward)), forward);
            assert_eq!(text.render_str(&scope(Way::Reverse)), reverse);
        }
        for wrong in ["$s2", "$nope", "\\q", "\\x4", "$date(x)", "$date(1", "a\\"] {
            assert!(Text::parse(wrong, true, &known).is_err(), "{wrong}");
        }
    }

    #[test]
    fn globs() {
        assert!(glob("1.1 *", "1.1 proxy"));
        assert!(glob("*larder*", "1.1 larder"));
        assert!(glob("*", ""));
        assert!(!glob("a*b", "acd"));
    }
}
