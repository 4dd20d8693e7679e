//! Reads the steps of a party and their details. One table of words for both sides; a word that only one side can
//! use is refused on the other.

use crate::lines::{Numbered, Wrong, duration};
use crate::script::{Action, Ask, Check, Expect, Message, Reaction, Reply, Standing, Statuses, Step};
use crate::text::{Payload, Text};
use std::time::Duration;

/// The party that a step belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Client,
    Origin,
}

/// How long `quiet` and `no-request` listen when the script names no time.
const QUIET_DEFAULT: Duration = Duration::from_millis(100);

/// Reads all steps of a section.
pub fn read(lines: &[Numbered], side: Side, names: &[String]) -> Result<Vec<Step>, Wrong> {
    let mut steps = Vec::new();
    let mut rest = lines;
    while let Some((head, tail)) = rest.split_first() {
        if head.indent != 2 {
            return Err((head.number, "a detail without a step: steps are indented by two spaces".into()));
        }
        let end = tail.iter().position(|l| l.indent == 2).unwrap_or(tail.len());
        let mut reader = Reader { names, side, details: Details { lines: &tail[..end], at: 0 } };
        let what = reader.step(head.text).map_err(|e| (head.number + reader.details.offset(head.number), e))?;
        if let Some(line) = reader.details.next() {
            return Err((line.number, format!("`{}` takes no detail like this", head.text)));
        }
        steps.push(Step { line: head.number, text: head.text.to_string(), what });
        rest = &tail[end..];
    }
    Ok(steps)
}

struct Details<'a> {
    lines: &'a [Numbered<'a>],
    at: usize,
}

impl<'a> Details<'a> {
    fn next(&mut self) -> Option<Numbered<'a>> {
        let line = self.lines.get(self.at).copied();
        self.at += usize::from(line.is_some());
        line
    }

    /// How far below the step the detail stands that was read last, for error messages.
    fn offset(&self, step: usize) -> usize {
        self.at.checked_sub(1).map_or(0, |last| self.lines[last].number - step)
    }
}

/// The words of a line; quoted ones keep their escapes until they are read as text.
struct Words<'a> {
    rest: &'a str,
}

enum Word<'a> {
    Plain(&'a str),
    Quoted(&'a str),
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Result<Option<Word<'a>>, String> {
        self.rest = self.rest.trim_start();
        if self.rest.is_empty() {
            return Ok(None);
        }
        if let Some(inside) = self.rest.strip_prefix('"') {
            let end = closing_quote(inside).ok_or("a quoted text lacks its closing quote")?;
            self.rest = &inside[end + 1..];
            return Ok(Some(Word::Quoted(&inside[..end])));
        }
        let end = self.rest.find(char::is_whitespace).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        Ok(Some(Word::Plain(word)))
    }

    fn plain(&mut self, what: &str) -> Result<&'a str, String> {
        match self.next()? {
            Some(Word::Plain(word)) => Ok(word),
            _ => Err(format!("{what} is missing")),
        }
    }

    fn optional(&mut self) -> Result<Option<&'a str>, String> {
        match self.next()? {
            Some(Word::Plain(word)) => Ok(Some(word)),
            Some(Word::Quoted(text)) => Err(format!("\"{text}\" is not understood here")),
            None => Ok(None),
        }
    }

    fn number<N: std::str::FromStr>(&mut self, what: &str) -> Result<N, String> {
        let word = self.plain(what)?;
        word.parse().map_err(|_| format!("`{word}` is no number: {what} is expected"))
    }

    fn all(&mut self) -> Vec<&'a str> {
        std::mem::take(&mut self.rest).split_whitespace().collect()
    }

    fn done(&mut self) -> Result<(), String> {
        match self.rest.trim() {
            "" => Ok(()),
            rest => Err(format!("`{rest}` is not understood here")),
        }
    }
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(i, c)| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends.then_some(i)
    })
}

struct Reader<'a> {
    names: &'a [String],
    side: Side,
    details: Details<'a>,
}

impl<'a> Reader<'a> {
    fn step(&mut self, line: &str) -> Result<Action, String> {
        let mut words = Words { rest: line };
        let word = words.plain("a step")?;
        let own = match self.side {
            Side::Client => self.client_step(word, &mut words)?,
            Side::Origin => self.origin_step(word, &mut words)?,
        };
        let what = match own {
            Some(what) => what,
            None => self.common_step(word, &mut words)?,
        };
        words.done()?;
        Ok(what)
    }

    fn client_step(&mut self, word: &str, words: &mut Words) -> Result<Option<Action>, String> {
        Ok(Some(match word {
            "get" | "head" | "post" | "put" | "delete" | "options" | "patch" | "trace" => {
                self.ask(&word.to_uppercase(), words)?
            }
            "request" => {
                let method = words.plain("a method")?.to_string();
                self.ask(&method, words)?
            }
            "connect" => {
                let origin = self.origin(words.plain("an origin")?)?;
                let path = Text::literal(b"");
                Action::Ask(Ask { method: "CONNECT".into(), path, origin, target: None, message: self.message()?.0 })
            }
            "got" => Action::Got(statuses(words.plain("a status")?)?, self.checks()?),
            "got-head" => Action::GotHead(statuses(words.plain("a status")?)?, self.checks()?),
            "refused" => {
                let statuses = statuses(words.plain("a status")?)?;
                let or_closed = words.all().join(" ");
                if !["", "or closed"].contains(&or_closed.as_str()) {
                    return Err("write `refused STATUSES` or `refused STATUSES or closed`".into());
                }
                Action::Refused { statuses, or_closed: !or_closed.is_empty() }
            }
            "failed" => Action::Failed(statuses(words.optional()?.unwrap_or("500|502|503|504"))?),
            "failed-aloud" => Action::FailedAloud(statuses(words.optional()?.unwrap_or("500|502|503|504"))?),
            "reconnect" => Action::Reconnect,
            _ => return Ok(None),
        }))
    }

    fn origin_step(&mut self, word: &str, words: &mut Words) -> Result<Option<Action>, String> {
        Ok(Some(match word {
            "expect" => {
                let mut expect = self.expect(words)?;
                (expect.checks, expect.body_later) = self.checks_or_later()?;
                if words.rest.trim_start().starts_with("as ") {
                    words.plain("as")?;
                    expect.label = Some(words.plain("a label")?.to_string());
                }
                Action::Expect(expect)
            }
            "whenever" => {
                let Expect { method, path, .. } = self.expect(words)?;
                let reaction = match words.plain("`reply STATUS`, `close` or `cut`")? {
                    "reply" => Reaction::Reply(Box::new(self.reply(words)?)),
                    "close" => Reaction::Close,
                    "cut" => Reaction::Cut,
                    other => {
                        return Err(format!("`{other}`: write `whenever METHOD PATH reply STATUS`, or close, or cut"));
                    }
                };
                Action::Whenever(Standing { method, path, reaction })
            }
            "accept" => Action::Accept,
            "reply" => Action::Reply(self.reply(words)?),
            "begin" => Action::Begin(self.reply(words)?),
            "with" => Action::With(words.plain("a label")?.to_string()),
            "down" => Action::Down,
            "unreachable" => Action::Unreachable,
            "no-request" => Action::NoRequest(time(words)?),
            "requests" | "connections" => {
                let (least, most) = range(words.plain("a number")?)?;
                Action::Count { requests: word == "requests", least, most }
            }
            _ => return Ok(None),
        }))
    }

    fn common_step(&mut self, word: &str, words: &mut Words) -> Result<Action, String> {
        Ok(match word {
            "send" => Action::Send(self.raw(words)?),
            "dribble" => Action::Dribble(duration(words.plain("a time between bytes")?)?, self.raw(words)?),
            "chunk" => Action::Chunk(self.payloads(words)?),
            "last-chunk" => Action::LastChunk(self.message()?.0.trailers),
            "piece" => Action::Piece(self.payloads(words)?),
            "rest" => {
                let payloads = self.payloads(words)?;
                Action::Rest((!payloads.is_empty()).then_some(payloads), self.checks()?)
            }
            "cut" => Action::Cut,
            "receive" => Action::Receive(self.raw(words)?),
            "closed" => Action::Closed,
            "quiet" => Action::Quiet(time(words)?),
            "close" => Action::Close,
            "reset" => Action::Reset,
            "half-close" => Action::HalfClose,
            "barrier" => Action::Barrier(words.plain("a barrier's name")?.to_string()),
            "pause" => Action::Pause(duration(words.plain("a time")?)?),
            "stop-reading" => Action::Reading(false),
            "go-on-reading" => Action::Reading(true),
            _ => {
                let side = if self.side == Side::Client { "a client" } else { "an origin" };
                return Err(format!("`{word}` is no step of {side}; docs/scenarios.md lists them"));
            }
        })
    }

    fn origin(&self, name: &str) -> Result<String, String> {
        match self.names.iter().any(|n| n == name) {
            true => Ok(name.to_string()),
            false => Err(format!("no origin is called `{name}`: there are {}", self.names.join(", "))),
        }
    }

    fn text(&self, source: &str, escapes: bool) -> Result<Text, String> {
        Text::parse(source, escapes, self.names)
    }

    fn ask(&mut self, method: &str, words: &mut Words) -> Result<Action, String> {
        let path = self.text(words.plain("a path")?, false)?;
        let mut origin = self.names.first().cloned().unwrap_or_default();
        if words.rest.trim_start().starts_with("at ") {
            words.plain("at")?;
            origin = self.origin(words.plain("an origin")?)?;
        }
        let (message, target) = self.message()?;
        Ok(Action::Ask(Ask { method: method.to_string(), path, origin, target, message }))
    }

    fn expect(&mut self, words: &mut Words) -> Result<Expect, String> {
        let method = words.plain("a method")?.to_string();
        let path = self.text(words.plain("a path")?, false)?;
        Ok(Expect { method, path, label: None, body_later: false, checks: Vec::new() })
    }

    fn reply(&mut self, words: &mut Words) -> Result<Reply, String> {
        let status = words.number("a status")?;
        let reason = words.all().join(" ");
        let message = self.message()?.0;
        Ok(Reply { status, reason: (!reason.is_empty()).then_some(reason), message })
    }

    /// The payloads of a raw step: in its line, and as `| lines` below, each ended by CR LF unless it ends in `\`.
    fn raw(&mut self, words: &mut Words) -> Result<Vec<Payload>, String> {
        let mut payloads = self.payloads(words)?;
        while let Some(line) = self.details.next() {
            let text = line.text.strip_prefix('|').ok_or("lines of raw bytes are written as `| text`")?;
            let text = text.strip_prefix(' ').unwrap_or(text);
            let is_open = text.ends_with('\\') && !text.ends_with("\\\\");
            let text = if is_open { &text[..text.len() - 1] } else { text };
            let mut text = self.text(text, true)?;
            if !is_open {
                text.join(Text::literal(b"\r\n"));
            }
            payloads.push(Payload::Text(text));
        }
        Ok(payloads)
    }

    fn payloads(&self, words: &mut Words) -> Result<Vec<Payload>, String> {
        match &mut self.alternatives(words)?[..] {
            [only] => Ok(std::mem::take(only)),
            _ => Err("`or` is for checks of a whole body".into()),
        }
    }

    /// Payloads with `or` between them.
    fn alternatives(&self, words: &mut Words) -> Result<Vec<Vec<Payload>>, String> {
        let (mut done, mut payloads) = (Vec::new(), Vec::new());
        while let Some(word) = words.next()? {
            payloads.push(match word {
                Word::Plain("or") => {
                    done.push(std::mem::take(&mut payloads));
                    continue;
                }
                Word::Quoted(text) => Payload::Text(self.text(text, true)?),
                Word::Plain("bytes") => pattern(words)?,
                Word::Plain(other) => return Err(format!("`{other}`: write \"text\", `bytes N` or `bytes FROM-TO`")),
            });
        }
        done.push(payloads);
        Ok(done)
    }

    fn message(&mut self) -> Result<(Message, Option<Text>), String> {
        let (mut message, mut target) = (Message::default(), None);
        while let Some(line) = self.details.next() {
            if let Some((name, value)) = field(line.text) {
                message.fields.push((self.text(name, false)?, self.text(value, false)?));
                continue;
            }
            let mut words = Words { rest: line.text };
            match words.plain("a detail")? {
                "body" if words.rest.trim() == "later" => {
                    words.all();
                    message.body_later = true;
                }
                "body" => message.body = Some(self.payloads(&mut words)?),
                "chunks" => message.chunks = Some(self.chunks(&mut words)?),
                "trailer" => {
                    let (name, value) = field(words.rest.trim()).ok_or("write `trailer Name: value`")?;
                    message.trailers.push((self.text(name, false)?, self.text(value, false)?));
                    words.all();
                }
                "version" => message.version = Some(words.plain("a version")?.to_string()),
                "without" => message.without = words.all().iter().map(|w| w.to_string()).collect(),
                "until-close" => message.until_close = true,
                "ranges" => message.honours_range = true,
                "target" => match words.next()? {
                    Some(Word::Quoted(text)) => target = Some(self.text(text, true)?),
                    _ => return Err("write `target \"…\"`".into()),
                },
                other => {
                    return Err(format!(
                        "`{other}`: a message has `Name: value`, body, chunks, trailer, version, without, until-close, ranges, target"
                    ));
                }
            }
            words.done()?;
        }
        Ok((message, target))
    }

    fn chunks(&self, words: &mut Words) -> Result<Vec<Vec<Payload>>, String> {
        let (mut chunks, mut from) = (Vec::new(), 0);
        while let Some(word) = words.next()? {
            chunks.push(vec![match word {
                Word::Quoted(text) => Payload::Text(self.text(text, true)?),
                Word::Plain("bytes") => pattern(words)?,
                Word::Plain(size) => {
                    let size: u64 = size.parse().map_err(|_| format!("`{size}`: chunks are sizes or \"texts\""))?;
                    let to = from + size;
                    Payload::Pattern { number: 0, from: std::mem::replace(&mut from, to), to }
                }
            }]);
        }
        Ok(chunks)
    }

    fn checks(&mut self) -> Result<Vec<Check>, String> {
        match self.checks_or_later()? {
            (_, true) => Err("`body later` is for `expect`; use `got-head` for an answer".into()),
            (checks, false) => Ok(checks),
        }
    }

    fn checks_or_later(&mut self) -> Result<(Vec<Check>, bool), String> {
        let (mut checks, mut later) = (Vec::new(), false);
        while let Some(line) = self.details.next() {
            if line.text.trim() == "body later" {
                later = true;
                continue;
            }
            checks.extend(self.check(line.text)?);
        }
        Ok((checks, later))
    }

    fn check(&self, line: &str) -> Result<Vec<Check>, String> {
        if let Some((name, value)) = field(line) {
            return Ok(vec![Check::Is(name.to_string(), vec![self.text(value, false)?])]);
        }
        let mut words = Words { rest: line };
        let word = words.plain("a check")?;
        let check = match word {
            "header" => self.header_check(&mut words)?,
            "has" => return Ok(words.all().iter().map(|n| Check::Has(n.to_string())).collect()),
            "lacks" => return Ok(words.all().iter().map(|n| Check::Lacks(n.to_string())).collect()),
            "order" => Check::Order(words.all().iter().map(|n| n.to_string()).collect()),
            "no" if words.all() == ["body"] => Check::Body(vec![Vec::new()]),
            "body" => match words.rest.split_whitespace().next() {
                Some("length") => {
                    words.plain("length")?;
                    Check::BodyLength(words.number("a length")?)
                }
                Some("contains") => {
                    words.plain("contains")?;
                    Check::BodyContains(self.quoted(&mut words)?)
                }
                Some("lacks") => {
                    words.plain("lacks")?;
                    Check::BodyLacks(self.quoted(&mut words)?)
                }
                _ => Check::Body(self.alternatives(&mut words)?),
            },
            "framing" => Check::Framed(words.plain("none, length, chunked or close")?.to_string()),
            "trailer" => {
                let (name, value) = field(words.rest.trim()).ok_or("write `trailer Name: value`")?;
                words.all();
                Check::Trailer(name.to_string(), self.text(value, false)?)
            }
            "parts" => Check::Parts(words.number("a number of parts")?),
            "part" => {
                let (number, range) = (words.number("a part's number")?, words.plain("a range")?);
                Check::Part(number, range.to_string(), self.payloads(&mut words)?)
            }
            "raw" => match words.plain("contains or lacks")? {
                "contains" => Check::RawContains(self.quoted(&mut words)?),
                "lacks" => Check::RawLacks(self.quoted(&mut words)?),
                other => return Err(format!("`raw {other}`: write `raw contains \"…\"` or `raw lacks \"…\"`")),
            },
            "version" => Check::Version(words.plain("a version")?.to_string()),
            "reason" => Check::Reason(words.all().join(" ")),
            "lenient" => Check::Lenient,
            other => return Err(format!("`{other}` is no check; docs/scenarios.md lists them")),
        };
        words.done()?;
        Ok(vec![check])
    }

    fn header_check(&self, words: &mut Words) -> Result<Check, String> {
        let name = words.plain("a field name")?.to_string();
        let verb = words.plain("is, matches, contains, lacks, within or lines")?;
        if verb == "lines" {
            return Ok(Check::Lines(name, words.number("a number of lines")?));
        }
        let value = std::mem::take(&mut words.rest).trim();
        Ok(match verb {
            "is" => {
                let values: Result<Vec<Text>, String> = value.split(" or ").map(|v| self.text(v, false)).collect();
                Check::Is(name, values?)
            }
            "matches" => Check::Matches(name, self.text(value, false)?),
            "contains" => Check::Contains(name, self.text(value, false)?),
            "lacks" => Check::Excludes(name, self.text(value, false)?),
            "within" => {
                let (low, high) = range(value)?;
                let most = i64::try_from(high).unwrap_or(i64::MAX);
                Check::Within(name, i64::try_from(low).unwrap_or(0), most)
            }
            other => {
                return Err(format!("`header {name} {other}`: there are is, matches, contains, lacks, within, lines"));
            }
        })
    }

    fn quoted(&self, words: &mut Words) -> Result<Text, String> {
        match words.next()? {
            Some(Word::Quoted(text)) => self.text(text, true),
            _ => Err("a quoted text is expected".into()),
        }
    }
}

fn time(words: &mut Words) -> Result<Duration, String> {
    words.optional()?.map_or(Ok(QUIET_DEFAULT), duration)
}

/// `Name: value`, when the line is one.
fn field(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    (!name.is_empty() && !name.contains([' ', '"'])).then_some((name, value.trim()))
}

/// `3` or `3..5`.
fn range(word: &str) -> Result<(usize, usize), String> {
    let (low, high) = word.split_once("..").unwrap_or((word, word));
    match (low.parse(), high.parse()) {
        (Ok(low), Ok(high)) if low <= high => Ok((low, high)),
        _ => Err(format!("`{word}`: write a number or LOW..HIGH")),
    }
}

/// After `bytes`: a length, or an inclusive range as in HTTP, and perhaps `#2` for another generated body.
fn pattern(words: &mut Words) -> Result<Payload, String> {
    let word = words.plain("a length or FROM-TO")?;
    let bounds = match word.split_once('-') {
        None => word.parse().ok().map(|to: u64| (0, to)),
        Some((from, to)) => from.parse().ok().zip(to.parse().ok().map(|to: u64| to + 1)),
    };
    let (from, to) =
        bounds.filter(|(f, t)| f <= t).ok_or(format!("`bytes {word}`: write `bytes 100` or `bytes 5-9`"))?;
    let mut number = 0;
    if words.rest.trim_start().starts_with('#') {
        let word = words.plain("#N")?;
        number = word[1..].parse().map_err(|_| format!("`{word}`: write `#2`"))?;
    }
    Ok(Payload::Pattern { number, from, to })
}

fn statuses(word: &str) -> Result<Statuses, String> {
    let one = |w: &str| match w.strip_suffix("xx") {
        Some(class) => class.parse::<u16>().ok().map(|c| (c * 100, c * 100 + 99)),
        None => w.parse().ok().map(|s| (s, s)),
    };
    let all: Option<Vec<_>> = word.split('|').map(one).collect();
    all.map(Statuses).ok_or(format!("`{word}`: write a status, or several as `200|206|4xx`"))
}
