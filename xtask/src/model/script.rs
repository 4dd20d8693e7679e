//! A conversation about one URL, drawn from a seed: what is asked, and what the origin would say at each step.
//!
//! A step says what the origin has at that moment whether it is asked or not, so that a conversation means the same
//! with steps left out, which is how a trace is made short.

use super::date::Spelling;
use crate::law;

/// A stream of draws.
pub struct Draw(u64);

impl Draw {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Draw {
        Draw(law::mix(seed))
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = law::mix(self.0);
        (self.0 >> 11) % end.max(1)
    }

    /// True in `percent` of 100 draws.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// Where a request goes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// The forward proxy.
    Forward,
    /// The reverse proxy of the origin: targeted fields count.
    Site,
    /// The same with hardly any memory and a disk.
    SiteOnDisk,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 3] = [Way::Forward, Way::Site, Way::SiteOnDisk];

    /// The words of the report.
    pub fn as_str(self) -> &'static str {
        match self {
            Way::Forward => "forward proxy",
            Way::Site => "site",
            Way::SiteOnDisk => "site on disk",
        }
    }
}

/// A time, relative to the beginning of the conversation, and how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Seconds after the beginning of the conversation.
    pub offset: i64,
    /// How it is written.
    pub spelling: Spelling,
}

/// A value of a field of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// As it stands.
    Text(String),
    /// A date.
    Date(Moment),
}

/// A client's request.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The method.
    pub method: &'static str,
    /// Its fields besides `Host`.
    pub fields: Vec<(&'static str, Value)>,
}

/// How an origin ends a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Content-Length.
    Length,
    /// Chunks.
    Chunked,
    /// The end of the connection.
    Close,
}

/// A fault in an answer of the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection ends within the body.
    CutBody,
    /// The connection ends within the head.
    CutHead,
    /// The connection ends without an answer.
    Silence,
}

/// The origin's treatment of `Range`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// The range that was asked for.
    Exact,
    /// The whole.
    Ignored,
    /// The first half of what was asked for.
    Shorter,
    /// Some bytes more on both sides.
    Wider,
    /// The range that was asked for, without the length of the whole.
    UnknownLength,
}

/// The kind of entity tag that an answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagKind {
    /// None.
    None,
    /// One that changes with each byte.
    Strong,
    /// One per version, weak.
    Weak,
    /// One for all versions, and weak: they mean the same, though their bytes differ.
    WeakForAll,
}

/// The origin's answer if it is asked during a step.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Whether the resource has changed since the step before.
    pub changes: bool,
    /// The status of an answer to a request without conditions.
    pub status: u16,
    /// Lines of `Cache-Control`.
    pub control: Vec<String>,
    /// Whether its members get one more that tells which answer they are of.
    pub numbers_control: bool,
    /// `CDN-Cache-Control`.
    pub targeted: Option<String>,
    /// `Expires`.
    pub expires: Option<Moment>,
    /// `Date`.
    pub date: Option<Moment>,
    /// `Age`.
    pub age: Option<&'static str>,
    /// `ETag`.
    pub tag: TagKind,
    /// How `Last-Modified` is written.
    pub modified: Option<Spelling>,
    /// `Vary`.
    pub vary: Option<&'static str>,
    /// Whether the bytes differ by `Accept-Language`.
    pub by_language: bool,
    /// Whether the bytes differ by who asks.
    pub by_user: bool,
    /// Whether it sets a cookie.
    pub sets_cookie: bool,
    /// Which of the marked fields it has.
    pub marks: u8,
    /// Whether it has a field of this hop.
    pub has_hop: bool,
    /// How the body ends.
    pub framing: Framing,
    /// The fault, if any.
    pub fault: Option<Fault>,
    /// The treatment of `Range`.
    pub ranges: Ranges,
    /// Whether `If-None-Match` and `If-Modified-Since` are answered by 304.
    pub validates: bool,
    /// Whether a 304 has no more than its validator and a date.
    pub sparse: bool,
}

/// A step of a conversation.
#[derive(Clone, Debug)]
pub struct Step {
    /// How long nothing happens before it.
    pub pause_seconds: u64,
    /// The client's request.
    pub ask: Ask,
    /// The origin's answer, if it is asked.
    pub turn: Turn,
}

/// A conversation.
#[derive(Clone, Debug)]
pub struct Case {
    /// The seed that it is drawn from.
    pub seed: u64,
    /// Where it goes in.
    pub way: Way,
    /// Whether requests carry their number, so that requests to the origin can be told apart even when they come later.
    pub numbers_steps: bool,
    /// Bytes of each version.
    pub length: u64,
    /// The steps of the conversation.
    pub steps: Vec<Step>,
}

/// The main subject of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Theme {
    Plain,
    Users,
    Directives,
    Dates,
    Ages,
    Stale,
    Conditions,
    Ranges,
    Vary,
    Faults,
    Changes,
    Targeted,
    Clock,
}

const THEMES: [Theme; 13] = {
    use Theme::*;
    [Plain, Users, Directives, Dates, Ages, Stale, Conditions, Ranges, Vary, Faults, Changes, Targeted, Clock]
};

/// Seconds between two versions, and of the first one before the beginning.
pub const VERSION_SECONDS: i64 = 1_000;
/// When the first version was made.
pub const FIRST_VERSION: i64 = -1_000_000;

impl Case {
    /// The conversation of a seed.
    pub fn draw(seed: u64) -> Case {
        Case::drawn(seed, None)
    }

    /// One of so many steps, for several clients that play it together.
    pub fn of_many(seed: u64, steps: u64) -> Case {
        Case { numbers_steps: true, ..Case::drawn(seed, Some(steps)) }
    }

    fn drawn(seed: u64, steps: Option<u64>) -> Case {
        let mut draw = Draw::new(seed);
        let way = draw.pick(&Way::ALL);
        let theme = draw.pick(&THEMES);
        let length = match draw.below(12) {
            0 => 0,
            1 => draw.below(200_000),
            2 => draw.below(40_000),
            _ => 1 + draw.below(3_000),
        };
        let mut painter = Painter { theme, draw };
        let base = painter.turn();
        let count = steps.unwrap_or_else(|| 3 + painter.draw.below(8));
        let steps: Vec<Step> = (0..count).map(|at| painter.step(at, &base)).collect();
        let numbers_steps = painter.draw.chance(50);
        Case { seed, way, numbers_steps, length, steps }
    }
}

struct Painter {
    theme: Theme,
    draw: Draw,
}

impl Painter {
    fn step(&mut self, at: u64, base: &Turn) -> Step {
        let mut turn = base.clone();
        let changes = match self.draw.below(10) {
            0..5 => 0,
            5..8 => 1,
            _ => 3,
        };
        (0..changes).for_each(|_| self.change(&mut turn));
        turn.changes = at > 0 && self.draw.chance(if self.theme == Theme::Changes { 30 } else { 12 });
        let is_faulty = self.theme == Theme::Faults && self.draw.chance(35) || self.draw.chance(2);
        turn.fault =
            is_faulty.then(|| self.draw.pick(&[Fault::CutBody, Fault::CutBody, Fault::CutHead, Fault::Silence]));
        if self.draw.chance(if matches!(self.theme, Theme::Faults | Theme::Stale) { 20 } else { 3 }) && at > 0 {
            turn.status = self.draw.pick(&[500, 502, 503, 504, 404]);
        }
        if turn.fault == Some(Fault::CutBody) && turn.framing == Framing::Close {
            turn.framing = Framing::Length;
        }
        let pauses = self.theme == Theme::Clock && at > 0 && self.draw.chance(30);
        let pause_seconds = if pauses { 1 + self.draw.below(3) } else { 0 };
        Step { pause_seconds, ask: self.ask(), turn }
    }

    fn turn(&mut self) -> Turn {
        let tag = self.draw.pick(&[TagKind::Strong, TagKind::Strong, TagKind::Strong, TagKind::Weak, TagKind::None]);
        let mut turn = Turn {
            changes: false,
            status: 200,
            control: Vec::new(),
            numbers_control: self.draw.chance(50),
            targeted: None,
            expires: None,
            date: Some(Moment { offset: 0, spelling: Spelling::Imf }),
            age: None,
            tag,
            modified: (tag == TagKind::None || self.draw.chance(50)).then_some(Spelling::Imf),
            vary: None,
            by_language: false,
            by_user: self.theme == Theme::Users && self.draw.chance(30),
            sets_cookie: self.draw.chance(10),
            marks: self.draw.below(8) as u8,
            has_hop: self.draw.chance(10),
            framing: self.draw.pick(&[Framing::Length, Framing::Length, Framing::Chunked, Framing::Close]),
            fault: None,
            ranges: Ranges::Exact,
            validates: true,
            sparse: self.draw.chance(15),
        };
        if self.draw.chance(10) {
            turn.status = self.draw.pick(&[203, 204, 299, 301, 302, 307, 404, 410, 500]);
        }
        turn.control = self.control();
        match self.theme {
            Theme::Dates => self.dates(&mut turn),
            Theme::Ages => turn.age = self.age(),
            Theme::Vary => self.vary(&mut turn),
            Theme::Targeted => turn.targeted = self.targeted(),
            Theme::Ranges => turn.ranges = self.ranges(),
            _ => {}
        }
        turn
    }

    /// Draws one thing anew.
    fn change(&mut self, turn: &mut Turn) {
        match self.draw.below(15) {
            0..4 => turn.control = self.control(),
            4 | 5 => turn.age = self.age(),
            6 => self.dates(turn),
            7 => turn.marks = self.draw.below(8) as u8,
            8 => turn.framing = self.draw.pick(&[Framing::Length, Framing::Chunked, Framing::Close]),
            9 => turn.ranges = self.ranges(),
            10 => turn.sparse = !turn.sparse,
            11 => turn.sets_cookie = !turn.sets_cookie,
            12 => turn.tag = self.draw.pick(&[TagKind::None, TagKind::Strong, TagKind::Weak, TagKind::WeakForAll]),
            13 if self.theme == Theme::Vary => self.vary(turn),
            13 if self.theme == Theme::Targeted => turn.targeted = self.targeted(),
            13 => turn.has_hop = !turn.has_hop,
            _ => turn.validates = !turn.validates,
        }
    }

    fn vary(&mut self, turn: &mut Turn) {
        turn.vary = self.draw.pick(&[
            Some("Accept-Language"),
            Some("Accept-Language"),
            Some("accept-language, X-Kind"),
            Some("Cookie"),
            Some("*"),
            None,
        ]);
        turn.by_language = turn.vary.is_some() && self.draw.chance(70);
        turn.by_user = turn.vary == Some("Cookie");
    }

    fn age(&mut self) -> Option<&'static str> {
        self.draw
            .pick(&[None, None, Some("0"), Some("4"), Some("50"), Some("58"), Some("62"), Some("62"), Some("4000")])
            .or_else(|| self.draw.chance(15).then(|| self.draw.pick(&["abc", "62, 3", "-1", "1.5", ""])))
    }

    fn ranges(&mut self) -> Ranges {
        use Ranges::*;
        self.draw.pick(&[Exact, Exact, Exact, Ignored, Shorter, Wider, UnknownLength])
    }

    fn dates(&mut self, turn: &mut Turn) {
        let odd = |draw: &mut Draw| if draw.chance(50) { Spelling::Imf } else { draw.pick(&Spelling::ALL) };
        let year = 31_556_952;
        let offsets = [0, 30, 3_600, -30, 20 * year, 30 * year];
        if self.draw.chance(80) {
            turn.expires = Some(Moment { offset: self.draw.pick(&offsets), spelling: odd(&mut self.draw) });
            if self.draw.chance(80) {
                turn.control.clear();
            }
        }
        let date = Moment { offset: self.draw.pick(&[0, 0, 0, -10, -62, -4_000, 30]), spelling: odd(&mut self.draw) };
        turn.date = self.draw.chance(85).then_some(date);
        turn.modified = self.draw.chance(60).then(|| odd(&mut self.draw));
    }

    fn seconds(&mut self) -> u64 {
        match self.theme {
            Theme::Clock => self.draw.pick(&[1, 2, 2, 3, 60]),
            Theme::Stale | Theme::Users | Theme::Changes => self.draw.pick(&[0, 0, 60, 60, 3_600]),
            _ => self.draw.pick(&[0, 60, 60, 60, 3_600]),
        }
    }

    /// Lines of `Cache-Control`.
    fn control(&mut self) -> Vec<String> {
        let (l, m, s) = (self.seconds(), self.seconds(), self.draw.pick(&[0, 2, 5, 60, 600]));
        let usual = self.draw.below(100);
        let line = match self.theme {
            _ if usual < 35 => format!("max-age={l}"),
            Theme::Users if usual < 65 => self.draw.pick(USERS_CONTROL).to_owned(),
            Theme::Stale | Theme::Faults if usual < 75 => self.draw.pick(STALE_CONTROL).to_owned(),
            _ => self.draw.pick(CONTROL).to_owned(),
        };
        let line = line.replace("{l}", &l.to_string()).replace("{m}", &m.to_string()).replace("{s}", &s.to_string());
        match line.split_once('|') {
            _ if line.is_empty() => Vec::new(),
            Some((first, second)) => vec![first.to_owned(), second.to_owned()],
            None => vec![line],
        }
    }

    fn targeted(&mut self) -> Option<String> {
        let (l, m) = (self.seconds(), self.seconds());
        let text = self.draw.pick(TARGETED).replace("{l}", &l.to_string()).replace("{m}", &m.to_string());
        (text != "none").then_some(text)
    }

    fn ask(&mut self) -> Ask {
        let unsafe_share = if self.theme == Theme::Changes { 25 } else { 4 };
        let method = if self.draw.chance(unsafe_share) {
            self.draw.pick(&["POST", "PUT", "DELETE", "OPTIONS"])
        } else if self.draw.chance(12) {
            "HEAD"
        } else {
            "GET"
        };
        let mut fields: Vec<(&'static str, Value)> = Vec::new();
        let mut add = |name, text: &str| fields.push((name, Value::Text(text.to_owned())));
        if self.draw.chance(if self.theme == Theme::Users { 60 } else { 8 }) {
            let (name, value) = self.draw.pick(WHO);
            add(name, value);
        }
        if self.theme == Theme::Vary {
            let language = self.draw.pick(&[None, Some("de"), Some("de"), Some("en"), Some("de, en"), Some("de,en")]);
            language.into_iter().for_each(|language| add("Accept-Language", language));
            let kind = self.draw.pick(&[None, None, Some("a"), Some("b")]);
            kind.into_iter().for_each(|kind| add("X-Kind", kind));
        }
        if self.draw.chance(15) {
            add("Cache-Control", self.draw.pick(ASKS));
        }
        if self.draw.chance(if self.theme == Theme::Ranges { 65 } else { 6 }) {
            add("Range", self.draw.pick(RANGES));
            if self.draw.chance(20) {
                let (name, value) = self.condition("If-Range");
                fields.push((name, value));
            }
        }
        if self.draw.chance(if self.theme == Theme::Conditions { 60 } else { 6 }) {
            let name = self.draw.pick(&[
                "If-None-Match",
                "If-None-Match",
                "If-None-Match",
                "If-Modified-Since",
                "If-Modified-Since",
                "If-Match",
                "If-Unmodified-Since",
            ]);
            fields.push(self.condition(name));
        }
        Ask { method, fields }
    }

    fn condition(&mut self, name: &'static str) -> (&'static str, Value) {
        let version = i64::try_from(self.draw.below(3)).unwrap_or(0);
        let is_date = match name {
            "If-Range" => self.draw.chance(40),
            _ => name.ends_with("Since"),
        };
        if is_date {
            let offset = FIRST_VERSION + version * VERSION_SECONDS + self.draw.pick(&[0, 0, 0, 500, -500, 2_000_000]);
            let spelling = if self.draw.chance(80) { Spelling::Imf } else { self.draw.pick(&Spelling::ALL) };
            return (name, Value::Date(Moment { offset, spelling }));
        }
        let tag = format!("\"v{version}\"");
        let text = match self.draw.below(8) {
            0 => format!("W/{tag}"),
            1 if name != "If-Range" => format!("\"x,y\", {tag}"),
            2 if name != "If-Range" => "*".to_owned(),
            3 => "W/\"all\"".to_owned(),
            4 => format!("v{version}"),
            _ => tag,
        };
        (name, Value::Text(text))
    }
}

/// Credentials of users: `Authorization` or a cookie.
const WHO: &[(&str, &str)] = &[
    ("Authorization", "Basic alice"),
    ("Authorization", "Basic bob"),
    ("Cookie", "user=alice"),
    ("Cookie", "user=bob"),
];

const RANGES: &[&str] = &[
    "bytes=0-99",
    "bytes=100-199",
    "bytes=0-0",
    "bytes=500-",
    "bytes=0-",
    "bytes=-100",
    "bytes=-1",
    "bytes=50-149",
    "bytes=30000-30999",
    "bytes=0-9,20-29",
    "bytes=0-9,-10",
    "bytes=999999-",
    "bytes=9-2",
    "bytes=a-b",
    "lines=1-2",
];

/// Directives of requests.
const ASKS: &[&str] = &[
    "no-cache",
    "max-age=0",
    "max-age=60",
    "max-age=10",
    "no-store",
    "max-stale",
    "max-stale=10",
    "max-stale=100",
    "min-fresh=10",
    "min-fresh=100",
    "only-if-cached",
    "no-transform",
    "max-age=3, max-stale=100",
    "stale-if-error=600",
    "Max-Age=0",
];

/// `{l}`, `{m}` are lifetimes, `{s}` the seconds of staleness; `|` begins a second line.
const CONTROL: &[&str] = &[
    "",
    "public, max-age={l}",
    "s-maxage={l}",
    "s-maxage={l}, max-age={m}",
    "max-age={l}, must-revalidate",
    "max-age={l}, proxy-revalidate",
    "no-cache",
    "max-age={l}, no-cache",
    "no-cache=\"X-A\", max-age={l}",
    "no-cache=\"X-A, X-B\", max-age={l}",
    "no-cache=\"Set-Cookie\", max-age={l}",
    "private=\"X-B\", max-age={l}",
    "private=\"set-cookie, x-user\", max-age={l}",
    "private",
    "private, max-age={l}",
    "private, s-maxage={l}",
    "no-store",
    "no-store, max-age={l}",
    "No-Store, max-age={l}",
    "max-age={l}|no-store",
    "max-age={l}|private",
    "must-understand, no-store, max-age={l}",
    "must-understand, max-age={l}",
    "max-age={l}, stale-while-revalidate={s}",
    "max-age={l}, stale-if-error={s}",
    "s-maxage={l}, stale-while-revalidate={s}",
    "max-age={l}, must-revalidate, stale-if-error={s}",
    "max-age={l}, immutable",
    "max-age={l}, max-age={m}",
    "max-age={l}|max-age={m}",
    "max-age=\"{l}\"",
    "max-age=abc",
    "max-age=-5",
    "max-age={l}.5",
    "max-age=",
    "max-age",
    "s-maxage=abc, max-age={l}",
    "MAX-AGE={l}",
    "max-age={l};s-maxage={m}",
    " , ,max-age={l}",
    "max-age=99999999999999999999",
    "public",
    "unknown-word, x=\"no-store, max-age=5\"",
    "no-cache=X-A, max-age={l}",
    "max-age = {l}",
];

const USERS_CONTROL: &[&str] = &[
    "",
    "public, max-age={l}",
    "s-maxage={l}",
    "max-age={l}, must-revalidate",
    "private, max-age={l}",
    "private=\"X-User\", max-age={l}",
    "no-cache",
    "public",
    "no-store",
    "no-cache=\"set-cookie\", max-age={l}",
];

const STALE_CONTROL: &[&str] = &[
    "max-age={l}, stale-while-revalidate={s}",
    "max-age={l}, stale-if-error={s}",
    "max-age={l}, stale-while-revalidate={s}, stale-if-error={s}",
    "max-age={l}, must-revalidate",
    "max-age={l}, proxy-revalidate, stale-if-error={s}",
    "max-age={l}, must-revalidate, stale-while-revalidate={s}",
    "s-maxage={l}, stale-if-error={s}",
    "no-cache, stale-if-error={s}",
];

const TARGETED: &[&str] = &[
    "none",
    "max-age={l}",
    "max-age={l}, max-age={m}",
    "no-store",
    "no-store=?0, max-age={l}",
    "private",
    "no-cache",
    "s-maxage={l}, max-age={m}",
    "max-age=\"{l}\"",
    "max-age={l}.5",
    "MAX-AGE={l}",
    "max-age={l},,x",
    "max-age={l}, must-revalidate",
    "",
    "x-unknown",
    "max-age={l}, stale-if-error=600",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_conversation_and_seeds_differ() {
        let text = |seed| format!("{:?}", Case::draw(seed));
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
        assert!((0..500).all(|seed| Case::draw(seed).steps.len() >= 3));
    }
}
