//! The expectations of a step, each a short text: read once when the cases are loaded, judged later.

use super::wire::{Asked, Fields, Reply};
use std::fmt;
use std::time::Duration;

/// One expectation: it holds when any of its alternatives does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    text: String,
    alternatives: Vec<Claim>,
}

/// One alternative of an expectation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Claim {
    /// The stored response was used: nothing reached the origin, and the response is one of the origin's.
    Store,
    /// Something reached the origin.
    Asked,
    /// Nothing reached the origin.
    NotAsked,
    /// The origin got a conditional request.
    Validated,
    /// So many requests reached the origin.
    Requests(usize),
    /// So many responses reached the client.
    Replies(usize),
    /// The status of the response is one of these; `4xx` stands for a class.
    Status(Vec<String>),
    /// An interim response with this status came; `None`: no interim response came.
    Interim(Option<u16>),
    /// The response was there within so many milliseconds.
    Within(u128),
    /// Of a field of the response.
    Got(String, Test),
    /// Of a trailer field of the response.
    Trailer(String, Test),
    /// Of a field of the last request that reached the origin.
    AskedField(String, Test),
    /// The method of that request.
    AskedMethod(String),
    /// The target of that request, behind the path of the case.
    AskedTarget(String),
    /// The version of that request.
    AskedVersion(String),
    /// The content of that request.
    AskedContent(String),
    /// The version of the response.
    Version(String),
    /// The response has the content that the origin gave in that step.
    ContentOf(usize),
    /// The response has this content.
    Content(Test),
    /// The proxy closed the connection.
    Closed,
    /// The proxy kept the connection open.
    Open,
    /// The response is whole, as its framing says.
    Whole,
    /// The response broke off, so that a client can see it.
    Cut,
    /// An error and the end of the connection, or the latter alone.
    Refused,
}

/// A test of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Present,
    Absent,
    Equals(String),
    Contains(String),
    Lacks(String),
    AtLeast(i64),
    AtMost(i64),
}

/// How the connection to the proxy was after a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ended {
    /// Nobody looked.
    #[default]
    Unknown,
    /// The proxy closed it.
    Closed,
    /// It stayed open while it was watched.
    Open,
}

/// The messages of a step on both sides of the proxy.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Which step it is, from 1.
    pub step: usize,
    /// Final responses that the client read.
    pub replies: Vec<Reply>,
    /// The connection afterwards.
    pub ended: Ended,
    /// The error that kept the client from reading a response.
    pub trouble: Option<String>,
    /// Until the response was there.
    pub took: Duration,
    /// Requests that reached the origin.
    pub asked: Vec<Asked>,
}

/// The field by which the origin says in which step it made a response.
pub const MARK: &str = "From-Step";

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Expectation {
    /// Reads the text of an expectation.
    pub fn read(text: &str) -> Result<Expectation, String> {
        let alternatives = text.split(" or ").map(|part| read_claim(part.trim())).collect::<Result<_, _>>()?;
        Ok(Expectation { text: text.to_owned(), alternatives })
    }

    /// Whether the end of the connection matters, so that it must be waited for.
    pub fn watches_the_end(&self) -> bool {
        self.alternatives.iter().any(|claim| matches!(claim, Claim::Closed | Claim::Open | Claim::Refused | Claim::Cut))
    }

    /// The steps whose contents it names.
    pub fn steps_named(&self) -> impl Iterator<Item = usize> {
        self.alternatives.iter().filter_map(|claim| match claim {
            Claim::ContentOf(step) => Some(*step),
            _ => None,
        })
    }

    /// Whether it holds; the error says what was seen instead. `contents` are those of the origin by step.
    pub fn judge(&self, seen: &Seen, path: &str, contents: &[Vec<u8>]) -> Result<(), String> {
        let scene = Scene { seen, path, contents };
        let mut found = Vec::new();
        for claim in &self.alternatives {
            match scene.holds(claim) {
                Ok(()) => return Ok(()),
                Err(instead) if found.contains(&instead) => {}
                Err(instead) => found.push(instead),
            }
        }
        Err(format!("expected {}, found {}", self.text, found.join("; ")))
    }
}

fn read_claim(text: &str) -> Result<Claim, String> {
    let fixed = [
        ("store", Claim::Store),
        ("asked", Claim::Asked),
        ("not asked", Claim::NotAsked),
        ("validated", Claim::Validated),
        ("closed", Claim::Closed),
        ("open", Claim::Open),
        ("whole", Claim::Whole),
        ("cut", Claim::Cut),
        ("refused", Claim::Refused),
        ("got no content", Claim::Content(Test::Equals(String::new()))),
    ];
    if let Some((_, claim)) = fixed.into_iter().find(|(name, _)| *name == text) {
        return Ok(claim);
    }
    let unknown = || format!("not an expectation: {text:?}");
    let number = |text: &str| text.parse().map_err(|_| unknown());
    let (word, rest) = text.split_once(' ').ok_or_else(unknown)?;
    match (word, rest.split_once(' ')) {
        ("requests", _) => Ok(Claim::Requests(number(rest)?)),
        ("replies", _) => Ok(Claim::Replies(number(rest)?)),
        ("interim", _) if rest == "none" => Ok(Claim::Interim(None)),
        ("interim", _) => Ok(Claim::Interim(Some(rest.parse().map_err(|_| unknown())?))),
        ("within", _) => Ok(Claim::Within(rest.parse().map_err(|_| unknown())?)),
        ("got", Some(("content", what))) => read_content(what).ok_or_else(unknown),
        ("got", Some(("version", version))) => Ok(Claim::Version(version.to_owned())),
        ("got", _) if rest.starts_with(|c: char| c.is_ascii_digit()) => read_statuses(rest).ok_or_else(unknown),
        ("got", _) => read_test(rest).map(|(name, test)| Claim::Got(name, test)).ok_or_else(unknown),
        ("trailer", _) => read_test(rest).map(|(name, test)| Claim::Trailer(name, test)).ok_or_else(unknown),
        ("asked", Some(("method", method))) => Ok(Claim::AskedMethod(method.to_owned())),
        ("asked", Some(("target", target))) => Ok(Claim::AskedTarget(target.trim_matches('"').to_owned())),
        ("asked", Some(("version", version))) => Ok(Claim::AskedVersion(version.to_owned())),
        ("asked", Some(("content", content))) => Ok(Claim::AskedContent(content.trim_matches('"').to_owned())),
        ("asked", _) => read_test(rest).map(|(name, test)| Claim::AskedField(name, test)).ok_or_else(unknown),
        _ => Err(unknown()),
    }
}

fn read_statuses(text: &str) -> Option<Claim> {
    let statuses: Vec<String> = text.split(',').map(|part| part.trim().to_owned()).collect();
    let is_status = |part: &String| part.len() == 3 && part.bytes().all(|byte| byte.is_ascii_digit() || byte == b'x');
    statuses.iter().all(is_status).then_some(Claim::Status(statuses))
}

/// `3` (the content of step 3), `"text"`, `~ text`, `!~ text`.
fn read_content(text: &str) -> Option<Claim> {
    if let Ok(step) = text.parse() {
        return Some(Claim::ContentOf(step));
    }
    let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let test = quoted.map(|text| Test::Equals(text.to_owned()));
    let test = test.or_else(|| text.strip_prefix("~ ").map(|text| Test::Contains(text.to_owned())));
    Some(Claim::Content(test.or_else(|| text.strip_prefix("!~ ").map(|text| Test::Lacks(text.to_owned())))?))
}

/// `Name`, `no Name`, `Name: value`, `Name ~ part`, `Name !~ part`, `Name >= 5`, `Name <= 5`.
fn read_test(text: &str) -> Option<(String, Test)> {
    let (name, test) = if let Some(name) = text.strip_prefix("no ") {
        (name, Test::Absent)
    } else if let Some((name, value)) = text.split_once(": ") {
        (name, Test::Equals(value.to_owned()))
    } else if let Some((name, rest)) = text.split_once(' ') {
        let (sign, value) = rest.split_once(' ')?;
        let test = match sign {
            "~" => Test::Contains(value.to_owned()),
            "!~" => Test::Lacks(value.to_owned()),
            ">=" => Test::AtLeast(value.parse().ok()?),
            "<=" => Test::AtMost(value.parse().ok()?),
            _ => return None,
        };
        (name, test)
    } else {
        (text, Test::Present)
    };
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    // Names of fields are written as in the RFCs, so that a misspelled keyword is no field.
    (is_name && name.starts_with(|c: char| c.is_ascii_uppercase())).then(|| (name.to_owned(), test))
}

struct Scene<'a> {
    seen: &'a Seen,
    path: &'a str,
    contents: &'a [Vec<u8>],
}

type Held = Result<(), String>;

impl Scene<'_> {
    fn holds(&self, claim: &Claim) -> Held {
        let seen = self.seen;
        match claim {
            Claim::Store | Claim::Asked | Claim::NotAsked | Claim::Validated | Claim::Requests(_) => {
                self.reached(claim)
            }
            Claim::AskedField(..) | Claim::AskedMethod(_) | Claim::AskedTarget(_) => self.request(claim),
            Claim::AskedVersion(_) | Claim::AskedContent(_) => self.request(claim),
            Claim::Replies(count) => that(seen.replies.len() == *count, || format!("{} responses", seen.replies.len())),
            Claim::Closed => that(seen.ended == Ended::Closed, || "a connection that stayed open".into()),
            Claim::Open => that(seen.ended == Ended::Open, || "a closed connection".into()),
            Claim::Refused => self.refused(),
            // A client that got nothing at all sees that there is no whole response.
            Claim::Cut if seen.replies.is_empty() => that(seen.ended == Ended::Closed, || self.no_reply()),
            _ => self.reply(claim),
        }
    }

    fn reached(&self, claim: &Claim) -> Held {
        let count = self.seen.asked.len();
        let reached =
            || if count == 0 { "nothing at the origin".to_owned() } else { format!("{count} requests at the origin") };
        match claim {
            Claim::Requests(wanted) => that(count == *wanted, reached),
            Claim::Asked => that(count > 0, reached),
            Claim::NotAsked => that(count == 0, reached),
            Claim::Validated => {
                let conditional = |asked: &Asked| {
                    asked.fields.joined("if-none-match").is_some() || asked.fields.joined("if-modified-since").is_some()
                };
                let instead = || if count == 0 { reached() } else { "an unconditional request".to_owned() };
                that(self.seen.asked.iter().any(conditional), instead)
            }
            _ => {
                let reply = self.first_reply()?;
                let is_origins = reply.fields.joined(MARK).is_some() || matches!(reply.status, 304 | 412 | 416);
                that(count == 0, reached)?;
                that(is_origins, || format!("status {} of the proxy's own", reply.status))
            }
        }
    }

    fn request(&self, claim: &Claim) -> Held {
        let asked = self.seen.asked.last().ok_or("nothing at the origin")?;
        match claim {
            Claim::AskedField(name, test) => field(&asked.fields, name, test, "at the origin "),
            Claim::AskedMethod(method) => that(asked.method == *method, || format!("method {}", asked.method)),
            Claim::AskedVersion(version) => that(asked.version == *version, || format!("version {}", asked.version)),
            Claim::AskedContent(content) => {
                let came = String::from_utf8_lossy(&asked.content).into_owned();
                that(came == *content, || format!("content {came:?} at the origin"))
            }
            Claim::AskedTarget(behind) => {
                let wanted = format!("{}{behind}", self.path);
                that(asked.target == wanted, || format!("target {}", asked.target))
            }
            _ => Err("no claim about a request".to_owned()),
        }
    }

    fn reply(&self, claim: &Claim) -> Held {
        let reply = self.first_reply()?;
        match claim {
            Claim::Status(statuses) => {
                let came = reply.status.to_string();
                let fits = |wanted: &String| {
                    came.len() == 3 && wanted.trim_end_matches('x') == &came[..wanted.trim_end_matches('x').len()]
                };
                that(statuses.iter().any(fits), || format!("status {came}"))
            }
            Claim::Interim(status) => {
                let holds = status.map_or(reply.interim.is_empty(), |status| reply.interim.contains(&status));
                that(holds, || format!("interim responses {:?}", reply.interim))
            }
            Claim::Within(millis) => {
                let took = self.seen.took.as_millis();
                that(took <= *millis, || format!("a response after {took} ms"))
            }
            Claim::Got(name, test) => field(&reply.fields, name, test, ""),
            Claim::Trailer(name, test) => field(&reply.trailers, name, test, "trailer "),
            Claim::Version(version) => that(reply.version == *version, || reply.version.clone()),
            Claim::ContentOf(step) => {
                let wanted = self.contents.get(step - 1).map(Vec::as_slice).unwrap_or_default();
                that(reply.content == wanted, || shown_content(reply))
            }
            Claim::Content(test) => {
                let came = String::from_utf8_lossy(&reply.content).into_owned();
                value(Some(&came), test).map_err(|()| shown_content(reply))
            }
            Claim::Whole => that(reply.whole, || "a response that broke off".into()),
            Claim::Cut => that(!reply.whole, || "a response that looks whole".into()),
            _ => Err("no claim about a response".to_owned()),
        }
    }

    fn refused(&self) -> Held {
        let Some(reply) = self.seen.replies.first() else {
            return that(self.seen.ended == Ended::Closed, || self.no_reply());
        };
        that((400..600).contains(&reply.status), || format!("status {}", reply.status))?;
        that(self.seen.replies.len() == 1, || format!("{} responses", self.seen.replies.len()))?;
        that(self.seen.ended == Ended::Closed, || format!("status {} on a connection that stayed open", reply.status))
    }

    fn first_reply(&self) -> Result<&Reply, String> {
        self.seen.replies.first().ok_or_else(|| self.no_reply())
    }

    fn no_reply(&self) -> String {
        self.seen.trouble.clone().unwrap_or_else(|| "no response".to_owned())
    }
}

fn that(holds: bool, instead: impl FnOnce() -> String) -> Held {
    if holds { Ok(()) } else { Err(instead()) }
}

fn shown_content(reply: &Reply) -> String {
    let text = String::from_utf8_lossy(&reply.content);
    let short: String = text.chars().take(60).collect();
    format!("status {} with content {short:?}", reply.status)
}

fn field(fields: &Fields, name: &str, test: &Test, place: &str) -> Held {
    let came = fields.joined(name);
    value(came.as_deref(), test).map_err(|()| match came {
        Some(came) => format!("{place}{name}: {came}"),
        None => format!("{place}no {name}"),
    })
}

fn value(came: Option<&str>, test: &Test) -> Result<(), ()> {
    let number = || came.and_then(|text| text.trim().parse::<i64>().ok());
    let holds = match test {
        Test::Present => came.is_some(),
        Test::Absent => came.is_none(),
        Test::Equals(wanted) => came == Some(wanted),
        Test::Contains(part) => came.is_some_and(|text| text.contains(part)),
        Test::Lacks(part) => came.is_none_or(|text| !text.contains(part)),
        Test::AtLeast(least) => number().is_some_and(|number| number >= *least),
        Test::AtMost(most) => number().is_some_and(|number| number <= *most),
    };
    if holds { Ok(()) } else { Err(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Seen {
        let fields = |list: &[(&str, &str)]| {
            Fields(list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
        };
        let reply = Reply {
            version: "HTTP/1.1".to_owned(),
            status: 200,
            fields: fields(&[("age", "7"), ("ETag", "\"a\""), ("From-Step", "1")]),
            content: b"one".to_vec(),
            whole: true,
            interim: vec![103],
            ..Reply::default()
        };
        let asked = Asked {
            method: "GET".to_owned(),
            target: "/x?q".to_owned(),
            version: "HTTP/1.1".to_owned(),
            fields: fields(&[("If-None-Match", "\"a\"")]),
            content: Vec::new(),
        };
        Seen {
            step: 2,
            replies: vec![reply],
            ended: Ended::Open,
            trouble: None,
            took: Duration::from_millis(50),
            asked: vec![asked],
        }
    }

    fn holds(text: &str, seen: &Seen) -> bool {
        Expectation::read(text).unwrap().judge(seen, "/x", &[b"one".to_vec(), b"two".to_vec()]).is_ok()
    }

    #[test]
    fn each_claim_can_hold_and_can_fail() {
        let seen = seen();
        let pairs = [
            ("asked", "not asked"),
            ("validated", "store"),
            ("requests 1", "requests 0"),
            ("replies 1", "replies 2"),
            ("got 200", "got 304"),
            ("got 2xx", "got 3xx,404"),
            ("interim 103", "interim 100"),
            ("interim 103", "interim none"),
            ("within 50", "within 49"),
            ("got Age >= 7", "got Age >= 8"),
            ("got Age <= 7", "got Age <= 6"),
            ("got ETag: \"a\"", "got ETag: \"b\""),
            ("got ETag ~ a", "got ETag !~ a"),
            ("got Age", "got no Age"),
            ("got no Warning", "got Warning"),
            ("trailer no T", "trailer T: 1"),
            ("asked If-None-Match: \"a\"", "asked no If-None-Match"),
            ("asked method GET", "asked method HEAD"),
            ("asked target \"?q\"", "asked target \"\""),
            ("asked version HTTP/1.1", "asked version HTTP/1.0"),
            ("asked content \"\"", "asked content \"x\""),
            ("got version HTTP/1.1", "got version HTTP/1.0"),
            ("got content 1", "got content 2"),
            ("got content \"one\"", "got no content"),
            ("got content ~ on", "got content !~ on"),
            ("whole", "cut"),
            ("open", "closed"),
            ("got 404 or got 200", "got 404 or refused"),
        ];
        for (right, wrong) in pairs {
            assert!(holds(right, &seen), "{right}");
            assert!(!holds(wrong, &seen), "{wrong}");
        }
    }

    #[test]
    fn a_response_of_the_proxy_itself_is_not_from_the_store() {
        let mut seen = Seen { asked: Vec::new(), ..seen() };
        assert!(holds("store", &seen) && holds("not asked", &seen));
        seen.replies[0].fields = Fields::default();
        assert!(!holds("store", &seen));
        seen.replies[0].status = 304;
        assert!(holds("store", &seen));
    }

    #[test]
    fn a_refusal_is_an_error_and_the_end_or_the_end_alone() {
        let mut seen = Seen { ended: Ended::Closed, ..seen() };
        assert!(!holds("refused", &seen));
        seen.replies[0].status = 400;
        assert!(holds("refused", &seen));
        seen.ended = Ended::Open;
        assert!(!holds("refused", &seen));
        let nothing = |ended| Seen { ended, ..Seen::default() };
        assert!(holds("refused", &nothing(Ended::Closed)) && holds("cut", &nothing(Ended::Closed)));
        assert!(!holds("refused", &nothing(Ended::Open)) && !holds("got 200", &nothing(Ended::Closed)));
    }

    #[test]
    fn what_is_not_understood_is_told() {
        for text in [
            "",
            "stored",
            "got",
            "got age",
            "asked etag: x",
            "requests many",
            "got 20",
            "got Age = 5",
            "got content",
            "aksed Via",
        ] {
            assert!(Expectation::read(text).is_err(), "{text}");
        }
        let trouble = Expectation::read("got 304 or got Age >= 9").unwrap().judge(&seen(), "/x", &[]).unwrap_err();
        assert_eq!(trouble, "expected got 304 or got Age >= 9, found status 200; Age: 7");
    }
}
