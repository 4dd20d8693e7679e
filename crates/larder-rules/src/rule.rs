//! One rule as it is written: when it holds, and what it does.

use crate::facts::{Facts, Slot, Slots, Stop, field_slot};
use crate::once_decoded;
use crate::rate::RateLimit;
use crate::template::Template;
use crate::values::{FieldTest, ListenerPattern, MediaPattern, Pattern, PortRange, QueryPattern};
use crate::week::{Window, Zone};
use crate::{HostPattern, NamePattern, Networks, PathPattern};
use larder_wire::{Method, Scheme};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// One rule of the table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// Its name, if it has one.
    pub name: Box<str>,
    /// Where it stands.
    pub place: Place,
    /// When it holds; the settings that it was compiled from share it.
    pub when: Arc<When>,
    /// Its verdict and its effects.
    pub does: Do,
}

/// How people find a rule: `block ads (larder.toml:12)`, or `rule (larder.toml:12)`.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() { "rule" } else { &self.name };
        write!(f, "{name} ({})", self.place.0)
    }
}

impl Rule {
    /// The lists by which a rule holds that does, looked up again.
    pub fn lists_that_cover(&self, facts: &impl Facts) -> Vec<&str> {
        let mut found = Vec::new();
        self.when.lists_that_cover(facts, &mut found);
        found
    }
}

/// File and line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place(pub Box<str>);

/// The matchers of a rule. All of them have to hold; of the values of one, any suffices. An empty one holds always.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct When {
    /// Methods.
    pub method: Vec<Method>,
    /// Schemes of the URL.
    pub scheme: Vec<Scheme>,
    /// Listeners.
    pub listener: Vec<ListenerPattern>,
    /// Ports of the URL.
    pub port: Vec<PortRange>,
    /// Hosts of the URL.
    pub host: Vec<HostPattern>,
    /// Expressions that are found in the host.
    pub host_regex: Vec<Pattern>,
    /// Networks of the client.
    pub client: Networks,
    /// Times of the week, in `zone`.
    pub time: Vec<Window>,
    /// The time zone of `time`.
    pub zone: Zone,
    /// Server names of the client's TLS handshake.
    pub sni: Vec<HostPattern>,
    /// Names in the client's certificate.
    pub certificate: Vec<NamePattern>,
    /// Texts that the field `User-Agent` has in it, in any case.
    pub user_agent: Vec<Box<str>>,
    /// Media types of the request's body.
    pub content_type: Vec<MediaPattern>,
    /// The least size that the request gives for its body.
    pub size_min: Option<u64>,
    /// The greatest size that the request gives for its body.
    pub size_max: Option<u64>,
    /// Values of fields; each name is a matcher of its own.
    pub fields: Vec<(Box<str>, Vec<FieldTest>)>,
    /// Forms of the path.
    pub path: Vec<PathPattern>,
    /// Expressions that are found in the path.
    pub path_regex: Vec<Pattern>,
    /// Expressions that are found in path and query with their encodings undone once.
    pub target_regex: Vec<Pattern>,
    /// Expressions that are found in the whole URL with its encodings undone once; for a CONNECT in `host:port`.
    pub url_regex: Vec<Pattern>,
    /// Parameters of the query.
    pub query: Vec<QueryPattern>,
    /// Lists that cover the host or the URL.
    pub list: Vec<Box<str>>,
    /// Countries of the client's address, by their two letters.
    pub country: Vec<[u8; 2]>,
    /// Users; `*` is anybody who has logged in.
    pub user: Vec<Box<str>>,
    /// Groups of the user.
    pub group: Vec<Box<str>>,
    /// Networks of the destination's addresses.
    pub destination: Networks,
    /// Countries of the destination's addresses: one address has to be in one of these and in one of the networks, where there are both.
    pub destination_country: Vec<[u8; 2]>,
    /// None of these may hold.
    pub not: Vec<When>,
    /// One of these has to hold, where there are any.
    pub any: Vec<When>,
}

/// The work of a rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Do {
    /// It ends the table, with this verdict.
    pub verdict: Option<Verdict>,
    /// Another path for the URL.
    pub rewrite_path: Option<Template>,
    /// Another query; an empty one takes it off.
    pub rewrite_query: Option<Template>,
    /// Another host, with a port behind a `:` where it has one.
    pub rewrite_host: Option<Template>,
    /// The name of the origin that is asked.
    pub route: Option<Box<str>>,
    /// Changes of the request's fields, before an origin gets it.
    pub request: FieldChanges,
    /// Changes of the answer's fields, before the client gets it.
    pub answer: FieldChanges,
    /// Tags that purges may name.
    pub tags: Vec<Box<str>>,
    /// Parts that the key gets.
    pub key: Vec<Template>,
    /// How long the answer is fresh.
    pub lifetime: Option<Duration>,
    /// How long past that it may be used while it is validated, or where that fails.
    pub grace: Option<Duration>,
    /// It is not stored.
    pub never: bool,
    /// It is stored although its origin keeps it to one client.
    pub even_if_private: bool,
    /// Requests beyond this rate are refused.
    pub rate: Option<RateLimit>,
    /// The names of the limits of bandwidth under which the answer is sent.
    pub bandwidth: Vec<Box<str>>,
    /// The names of the parents through which the origin is asked, in place of the usual ones.
    pub parents: Vec<Box<str>>,
    /// The names of parents that are left out.
    pub parents_except: Vec<Box<str>>,
    /// The class in which the request waits where something is overloaded.
    pub priority: Option<Priority>,
    /// A word for the log.
    pub mark: Option<Box<str>>,
}

/// The class of a request where something is overloaded: higher ones come first, and the lowest one is refused first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// It is refused while others wait for too long.
    Low,
    /// It waits for its turn.
    #[default]
    Normal,
    /// It comes before others.
    High,
}

impl Priority {
    /// All classes, the lowest one first.
    pub const ALL: [Priority; 3] = [Priority::Low, Priority::Normal, Priority::High];

    /// The word of settings and pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Priority::Low => "low",
            Priority::Normal => "normal",
            Priority::High => "high",
        }
    }
}

/// Changes of fields, in the order: remove, set, add.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldChanges {
    /// Names of fields that are taken off.
    pub remove: Vec<Box<str>>,
    /// Fields that take the place of all of their name.
    pub set: Vec<(Box<str>, Template)>,
    /// Fields beside others of their name.
    pub add: Vec<(Box<str>, Template)>,
}

impl FieldChanges {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }
}

/// A verdict, which ends the table.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The request goes on; the limits of listeners, clients and destinations hold all the same.
    Allow,
    /// It is refused.
    Deny {
        /// The status, from 400 to 599.
        status: u16,
        /// The page in place of Larder's own, with placeholders.
        page: Option<Template>,
    },
    /// The client is sent elsewhere.
    Redirect {
        /// 301, 302, 303, 307 or 308.
        status: u16,
        /// The URL.
        to: Template,
    },
    /// The client has to log in first, by the login of this name.
    Login(Box<str>),
}

impl Verdict {
    /// The word of logs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Verdict::Allow => "allow",
            Verdict::Deny { .. } => "deny",
            Verdict::Redirect { .. } => "redirect",
            Verdict::Login(_) => "login",
        }
    }
}

impl Do {
    /// Whether it has effects or a verdict.
    pub fn does_anything(&self) -> bool {
        *self != Do::default()
    }

    /// Whether its effects are a part of keys.
    pub fn makes_keys(&self) -> bool {
        !self.key.is_empty() || !self.request.set.is_empty() || !self.request.add.is_empty() || self.route.is_some()
    }

    /// Whether its effects depend on the path, the query or the time beyond whether the rule holds, so that no other request may take
    /// them over.
    pub fn is_of_one_request(&self) -> bool {
        let changes =
            |changes: &FieldChanges| changes.set.iter().chain(&changes.add).any(|(_, value)| value.reads_request());
        self.rewrite_path.is_some()
            || self.rewrite_query.is_some()
            || self.rewrite_host.is_some()
            || self.rate.is_some()
            || self.key.iter().any(Template::reads_request)
            || changes(&self.request)
            || changes(&self.answer)
    }
}

impl When {
    /// Whether it has no matcher.
    pub fn is_empty(&self) -> bool {
        self.slots(0).is_empty() && self.not.is_empty() && self.any.is_empty()
    }

    /// The slots of its matchers; those of named fields begin at `first_field`.
    pub(crate) fn slots(&self, first_field: usize) -> Slots {
        let all = [
            (Slot::METHOD, self.method.is_empty()),
            (Slot::SCHEME, self.scheme.is_empty()),
            (Slot::LISTENER, self.listener.is_empty()),
            (Slot::PORT, self.port.is_empty()),
            (Slot::HOST, self.host.is_empty()),
            (Slot::HOST_REGEX, self.host_regex.is_empty()),
            (Slot::CLIENT, self.client.is_empty()),
            (Slot::TIME, self.time.is_empty()),
            (Slot::SNI, self.sni.is_empty()),
            (Slot::CERTIFICATE, self.certificate.is_empty()),
            (Slot::USER_AGENT, self.user_agent.is_empty()),
            (Slot::CONTENT_TYPE, self.content_type.is_empty()),
            (Slot::SIZE, self.size_min.is_none() && self.size_max.is_none()),
            (Slot::PATH, self.path.is_empty()),
            (Slot::PATH_REGEX, self.path_regex.is_empty()),
            (Slot::TARGET_REGEX, self.target_regex.is_empty()),
            (Slot::URL_REGEX, self.url_regex.is_empty()),
            (Slot::QUERY, self.query.is_empty()),
            (Slot::LIST, self.list.is_empty()),
            (Slot::COUNTRY, self.country.is_empty()),
            (Slot::USER, self.user.is_empty()),
            (Slot::GROUP, self.group.is_empty()),
            (Slot::DESTINATION, self.destination.is_empty() && self.destination_country.is_empty()),
        ];
        let slots = all
            .into_iter()
            .filter(|(_, is_empty)| !is_empty)
            .fold(Slots::default(), |slots, (slot, _)| slots.with(slot));
        (0..self.fields.len()).fold(slots, |slots, field| slots.with(field_slot(first_field + field)))
    }

    /// Whether this matcher holds; `field` is the number of a named field among those of this `when`.
    pub(crate) fn test(&self, slot: Slot, field: usize, facts: &impl Facts) -> Result<bool, Stop> {
        Ok(match slot {
            Slot::METHOD => self.method.contains(facts.method()),
            Slot::SCHEME => self.scheme.contains(&facts.scheme()),
            Slot::LISTENER => self.listener.iter().any(|listener| listener.matches(facts.listener())),
            Slot::PORT => self.port.iter().any(|range| range.has(facts.port())),
            Slot::HOST => self.host.iter().any(|host| host.matches(facts.host())),
            Slot::HOST_REGEX => {
                self.host_regex.iter().any(|regex| regex.is_in(once_decoded::written(facts.host()).as_bytes()))
            }
            Slot::CLIENT => self.client.contains(facts.client()),
            Slot::TIME => {
                let (day, minute) = self.zone.day_and_minute(facts.minute());
                self.time.iter().any(|window| window.has(day, minute))
            }
            Slot::SNI => {
                let name = facts.sni().and_then(larder_wire::Host::parse);
                name.is_some_and(|name| self.sni.iter().any(|host| host.matches(&name)))
            }
            Slot::CERTIFICATE => {
                let mut is_named = false;
                facts.each_certificate_name(&mut |name| {
                    is_named |= self.certificate.iter().any(|wanted| wanted.matches(name));
                });
                is_named
            }
            Slot::USER_AGENT => any_line(facts, "User-Agent", |line| {
                let line = line.to_ascii_lowercase();
                self.user_agent.iter().any(|text| contains(&line, text.to_ascii_lowercase().as_bytes()))
            }),
            Slot::CONTENT_TYPE => {
                any_line(facts, "Content-Type", |line| self.content_type.iter().any(|media| media.matches(line)))
            }
            Slot::SIZE => size(facts).is_some_and(|size| self.has_size(size)),
            Slot::PATH => match facts.path()? {
                Some(path) => self.path.iter().any(|pattern| pattern.matches_bytes(path)),
                None => false,
            },
            Slot::PATH_REGEX => is_found(&self.path_regex, facts.path()?),
            Slot::TARGET_REGEX => is_found(&self.target_regex, once_decoded::target(facts)?.as_deref()),
            Slot::URL_REGEX => is_found(&self.url_regex, Some(&once_decoded::url(facts)?)),
            Slot::QUERY => facts.query().is_some_and(|query| self.query.iter().any(|pattern| pattern.matches(query))),
            Slot::LIST => self.list.iter().any(|list| facts.in_list(list)),
            Slot::COUNTRY => facts.country().is_some_and(|country| self.country.contains(&country)),
            Slot::USER => match facts.user()? {
                Some(user) => self.user.iter().any(|wanted| &**wanted == "*" || &**wanted == user),
                None => false,
            },
            Slot::GROUP => {
                let mut is_member = false;
                facts.each_group(&mut |group| is_member |= self.group.iter().any(|wanted| &**wanted == group))?;
                is_member
            }
            Slot::DESTINATION => {
                let mut leads_there = false;
                facts.each_destination(&mut |address| leads_there |= self.leads_to(address, facts))?;
                leads_there
            }
            _ => match self.fields.get(field) {
                Some((name, tests)) => any_line(facts, name, |line| tests.iter().any(|test| test.matches_line(line))),
                None => true,
            },
        })
    }

    fn has_size(&self, size: u64) -> bool {
        self.size_min.is_none_or(|min| size >= min) && self.size_max.is_none_or(|max| size <= max)
    }

    /// Whether all of it holds, asked matcher by matcher.
    pub(crate) fn holds(&self, facts: &impl Facts) -> Result<bool, Stop> {
        self.hold_in(self.slots(0), facts)
    }

    /// Whether an address is a destination of it.
    pub(crate) fn leads_to(&self, address: IpAddr, facts: &impl Facts) -> bool {
        let is_there = |country: [u8; 2]| self.destination_country.contains(&country);
        (self.destination.is_empty() || self.destination.contains(address))
            && (self.destination_country.is_empty() || facts.country_of(address).is_some_and(is_there))
    }

    /// Whether all of it holds but for the destination.
    pub(crate) fn holds_but_for_destination(&self, facts: &impl Facts) -> Result<bool, Stop> {
        self.hold_in(self.slots(0).without(Slots::default().with(Slot::DESTINATION)), facts)
    }

    fn hold_in(&self, slots: Slots, facts: &impl Facts) -> Result<bool, Stop> {
        for slot in slots.iter() {
            if !self.test(slot, usize::from(slot.0.saturating_sub(Slot::FIELDS.0)), facts)? {
                return Ok(false);
            }
        }
        self.nested_hold(facts)
    }

    /// The lists by which it holds, one of each condition; asked only where it holds, to say why.
    fn lists_that_cover<'w>(&'w self, facts: &impl Facts, found: &mut Vec<&'w str>) {
        found.extend(self.list.iter().find(|list| facts.in_list(list)).map(|list| &**list));
        if let Some(any) = self.any.iter().find(|any| any.holds(facts).unwrap_or(false)) {
            any.lists_that_cover(facts, found);
        }
    }

    /// Whether `not` and `any` hold.
    pub(crate) fn nested_hold(&self, facts: &impl Facts) -> Result<bool, Stop> {
        for not in &self.not {
            if not.holds(facts)? {
                return Ok(false);
            }
        }
        for any in &self.any {
            if any.holds(facts)? {
                return Ok(true);
            }
        }
        Ok(self.any.is_empty())
    }
}

/// The size that a request gives for its body. A body of unknown length has none.
fn size(facts: &impl Facts) -> Option<u64> {
    let mut size = None;
    facts.each_line("Content-Length", &mut |line| {
        size = std::str::from_utf8(line).ok().and_then(|text| text.trim().parse().ok());
    });
    size
}

/// Whether one of these expressions is found in a text, where there is one.
fn is_found(expressions: &[Pattern], text: Option<&[u8]>) -> bool {
    text.is_some_and(|text| expressions.iter().any(|regex| regex.is_in(text)))
}

fn any_line(facts: &impl Facts, name: &str, holds: impl Fn(&[u8]) -> bool) -> bool {
    let mut found = false;
    facts.each_line(name, &mut |line| found = found || holds(line));
    found
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    part.is_empty() || text.windows(part.len()).any(|window| window == part)
}

/// Rules that are named in a note; of more the number.
const NOTED_MAX: usize = 16;

/// The rules that held for one request, as people read it: for the log, for explanations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleNote {
    /// The rule that decided, or the last one that held: its name and place.
    pub rule: Box<str>,
    /// The bytes of `rule` that are name and place; behind them stands why it holds.
    own_bytes: usize,
    /// The mark of the last rule that has one.
    pub mark: Option<Box<str>>,
    /// Each rule that held, with its work.
    pub words: Box<[Box<str>]>,
}

impl RuleNote {
    /// Of these rules, in their order.
    pub fn of<'r>(rules: impl Iterator<Item = &'r Rule>) -> RuleNote {
        RuleNote::with(rules, |_| String::new())
    }

    /// Of these rules, each with what `because` says after its name.
    pub fn with<'r>(rules: impl Iterator<Item = &'r Rule>, because: impl Fn(&Rule) -> String) -> RuleNote {
        let mut note = RuleNote::default();
        let mut words = Vec::new();
        let mut more = 0;
        for rule in rules {
            let mut text = rule.to_string();
            note.own_bytes = text.len();
            text.push_str(&because(rule));
            note.rule = text.as_str().into();
            note.mark = rule.does.mark.clone().or(note.mark.take());
            if words.len() == NOTED_MAX {
                more += 1;
                continue;
            }
            text.push_str(": ");
            for (number, word) in rule.does.words().iter().enumerate() {
                text.push_str(if number == 0 { "" } else { ", " });
                text.push_str(word);
            }
            words.push(text.into());
        }
        if more > 0 {
            words.push(format!("{more} further rules, the last one {}", note.rule).into());
        }
        note.words = words.into();
        note
    }

    /// Name and place of the rule, without why it holds.
    pub fn rule_alone(&self) -> &str {
        self.rule.get(..self.own_bytes).unwrap_or(&self.rule)
    }

    /// Bytes that it refers to.
    pub fn heap_bytes(&self) -> usize {
        let words: usize = self.words.iter().map(|text| text.len() + size_of::<Box<str>>()).sum();
        words + self.rule.len() + self.mark.as_ref().map_or(0, |mark| mark.len())
    }
}

impl Do {
    /// Its work, in words. Values of fields may be credentials, and stay out.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        let mut say = |is_said: bool, text: &str| words.extend(is_said.then(|| text.to_owned()));
        say(self.rewrite_host.is_some(), "changes the host");
        say(self.rewrite_path.is_some(), "changes the path");
        say(self.rewrite_query.is_some(), "changes the query");
        say(self.never, "not stored");
        say(self.even_if_private, "STORED FOR ALL ALTHOUGH IT IS PRIVATE");
        for (what, changes) in [("", &self.request), (" of the answer", &self.answer)] {
            words.extend(changes.remove.iter().map(|name| format!("removes {name}{what}")));
            words.extend(changes.set.iter().map(|(name, _)| format!("sets {name}{what}")));
            words.extend(changes.add.iter().map(|(name, _)| format!("adds {name}{what}")));
        }
        words.extend(self.route.as_ref().map(|route| format!("route {route}")));
        words.extend(self.key.iter().map(|part| format!("key part {part}")));
        words.extend(self.tags.iter().map(|tag| format!("tag {tag}")));
        words.extend(self.lifetime.map(|time| format!("lifetime {} s", time.as_secs())));
        words.extend(self.grace.map(|time| format!("grace {} s", time.as_secs())));
        words.extend(self.rate.map(|rate| format!("rate {rate} by {}", rate.by.as_str())));
        words.extend(self.bandwidth.iter().map(|name| format!("bandwidth {name}")));
        if !self.parents.is_empty() {
            words.push(format!("parents {}", self.parents.join(", ")));
        }
        words.extend(self.parents_except.iter().map(|name| format!("without parent {name}")));
        words.extend(self.priority.map(|priority| format!("priority {}", priority.as_str())));
        words.extend(self.mark.as_ref().map(|mark| format!("mark {mark}")));
        words.extend(self.verdict.as_ref().map(|verdict| verdict.as_str().to_owned()));
        words
    }
}
