//! The compiled table and the memo by path against the law of the table, on random tables and requests.
//!
//! `cargo test -p larder-rules --test against_model` plays a small number; `RULES_TABLES=100 RULES_REQUESTS=1000000 cargo test --release
//! -p larder-rules --test against_model` plays them all. `RULES_SEED` draws others; a failure names its seed.

use larder_rules::facts::{Facts, Slots, Stop};
use larder_rules::memo::PathMemo;
use larder_rules::values::{FieldTest, ListenerPattern, MediaPattern, Pattern, PortRange, QueryPattern};
use larder_rules::week::Window;
use larder_rules::{HostPattern, Matched, NamePattern, PathPattern, Rule, Table, Verdict, When, model};
use larder_wire::{Host, Method, Scheme};
use std::cell::Cell;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// Random numbers by a seed (SplitMix64).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    /// One to three of these, each read by `parse`.
    fn some<T>(&mut self, all: &[&str], parse: impl Fn(&str) -> Option<T>) -> Vec<T> {
        (0..1 + self.below(3)).map(|_| parse(self.of(all)).expect("a good pattern")).collect()
    }
}

const HOSTS: [&str; 8] =
    ["a.test", "www.a.test", "x.y.a.test", "b.test", "ads.example", "tracker.ads.example", "10.0.0.1", "c.test"];
const HOST_PATTERNS: [&str; 8] =
    ["a.test", "*.a.test", "*.y.a.test", "b.test", "*.example", "*.ads.example", "10.0.0.1", "*"];
const PATHS: [&str; 12] = [
    "/",
    "/a",
    "/a/",
    "/a/b",
    "/a/b.exe",
    "/ab",
    "/admin",
    "/admin/x",
    "/download/1/x.iso",
    "/a/b/c/d",
    "/api/v1/x",
    "/api/v2/x",
];
const PATH_PATTERNS: [&str; 13] = [
    "/",
    "/a",
    "/a/**",
    "/**",
    "/*.exe",
    "/**/*.exe",
    "/admin/**",
    "/admin",
    "/a*",
    "/*/b/**",
    "/download/{digit}/*",
    "/api/v*/x",
    "/ab",
];
const REGEXES: [&str; 6] = ["^/a", "[.]exe$", "v[12]", "^/$", "(?i)ADMIN", "x"];
const QUERIES: [&str; 7] = ["a=1", "a=2&b", "utm_source=x", "%61=1", "id=77&a=1", "", "q=a+b"];
const QUERY_PATTERNS: [&str; 6] = ["a", "a=1", "utm_*", "id=7*", "b", "q=a b"];
const NETS: [&str; 8] =
    ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "192.168.0.0/16", "0.0.0.0/0", "2001:db8::/32", "::/0", "10.1.2.3/32"];
const CLIENTS: [&str; 7] = ["10.1.2.3", "10.1.9.9", "10.9.9.9", "192.168.1.1", "2001:db8::1", "::1", "::ffff:10.1.2.3"];
const FIELDS: [&str; 4] = ["X-A", "Accept", "Cookie", "x-a"];
const LINES: [&str; 7] = ["1", "gzip, br", "text/html;q=0.9, Application/JSON", "a=b", "", "GZIP", "11"];
const FIELD_TESTS: [&str; 7] = ["*", "gzip", "application/*", "~^1+$", "1", "~b", "a=b"];
const AGENTS: [&str; 4] = ["curl/8.0", "Mozilla/5.0 (X11) Firefox", "pip/24", ""];
const AGENT_PARTS: [&str; 5] = ["CURL", "mozilla", "fire", "Fox", "/"];
const METHODS: [Method; 4] = [Method::Get, Method::Post, Method::Connect, Method::Head];
const LISTS: [&str; 3] = ["ads", "work", "malware"];
const WINDOWS: [&str; 4] = ["Mon-Fri 08:00-17:00", "Sat,Sun", "22:00-06:00", "Wed"];
const PEOPLE: [&str; 4] = ["anna", "bob", "*", "carl"];
const GROUPS: [&str; 3] = ["staff", "guests", "admins"];

fn draw_when(draw: &mut Draw, depth: usize) -> When {
    let mut when = When::default();
    for _ in 0..draw.below(4) {
        match draw.below(if depth == 0 { 23 } else { 21 }) {
            0 => when.method = (0..1 + draw.below(2)).map(|_| draw.of(&METHODS)).collect(),
            1 => when.scheme = vec![draw.of(&[Scheme::Http, Scheme::Https])],
            2 => when.listener = draw.some(&[":3128", "127.0.0.1:8080", "127.0.0.1:3128"], ListenerPattern::parse),
            3 => when.port = draw.some(&["80", "443", "8000-8999"], PortRange::parse),
            4 => when.host = draw.some(&HOST_PATTERNS, HostPattern::parse),
            5 if draw.one_in(2) => {
                when.host_regex = draw.some(&["^ads[.]", "test$", "[0-9]"], |regex| Pattern::parse(regex).ok());
            }
            5 => when.host = draw.some(&HOST_PATTERNS, HostPattern::parse),
            6 => when.client = draw.some(&NETS, |net| net.parse().ok()).into_iter().collect(),
            7 => when.time = draw.some(&WINDOWS, Window::parse),
            8 => when.sni = draw.some(&HOST_PATTERNS, HostPattern::parse),
            9 => when.certificate = draw.some(&["anna", "bob", "an*", "*"], NamePattern::parse),
            10 => when.user_agent = draw.some(&AGENT_PARTS, |text| Some(text.into())),
            11 => when.content_type = draw.some(&["text/*", "text/html", "image/*"], MediaPattern::parse),
            12 => (when.size_min, when.size_max) = (Some(10), (draw.one_in(2)).then_some(100)),
            13 => {
                let tests = draw.some(&FIELD_TESTS, |test| FieldTest::parse(test).ok());
                when.fields.push((draw.of(&FIELDS).into(), tests));
                when.fields.dedup_by(|one, other| one.0.eq_ignore_ascii_case(&other.0));
            }
            14 | 15 => when.path = draw.some(&PATH_PATTERNS, PathPattern::parse),
            16 if draw.one_in(3) => when.target_regex = draw.some(&REGEXES, |regex| Pattern::parse(regex).ok()),
            16 if draw.one_in(2) => {
                let urls = ["^http://ads", "[.]exe$", ":8", "q=a", ":443$"];
                when.url_regex = draw.some(&urls, |regex| Pattern::parse(regex).ok());
            }
            16 => when.path_regex = draw.some(&REGEXES, |regex| Pattern::parse(regex).ok()),
            17 => when.query = draw.some(&QUERY_PATTERNS, QueryPattern::parse),
            18 => when.list = draw.some(&LISTS, |list| Some(list.into())),
            19 => when.user = draw.some(&PEOPLE, |user| Some(user.into())),
            20 => match draw.below(4) {
                0 => when.group = draw.some(&GROUPS, |group| Some(group.into())),
                1 => when.country = vec![draw.of(&[*b"DE", *b"FR"])],
                2 => when.destination_country = vec![draw.of(&[*b"DE", *b"FR"])],
                _ => when.destination = draw.some(&NETS, |net| net.parse().ok()).into_iter().collect(),
            },
            21 => when.not.push(draw_when(draw, depth + 1)),
            _ => when.any = (0..2).map(|_| draw_when(draw, depth + 1)).collect(),
        }
    }
    // Two names that differ in case alone are one matcher.
    let mut seen: Vec<String> = Vec::new();
    when.fields.retain(|(name, _)| {
        let name = name.to_ascii_lowercase();
        let is_new = !seen.contains(&name);
        seen.push(name);
        is_new
    });
    when
}

fn draw_rules(draw: &mut Draw) -> Vec<Rule> {
    let len = draw.of(&[1, 3, 10, 40, 130]);
    (0..len)
        .map(|_| {
            let mut rule = Rule { when: draw_when(draw, 0).into(), ..Rule::default() };
            rule.does.verdict = match draw.below(4) {
                0 => Some(Verdict::Deny { status: 403, page: None }),
                1 => Some(Verdict::Allow),
                _ => None,
            };
            rule
        })
        .collect()
}

/// A request, all of whose facts are known but those in `unknown`.
#[derive(Clone, Debug)]
struct Request {
    method: Method,
    scheme: Scheme,
    listener: SocketAddr,
    port: u16,
    host: Host,
    client: IpAddr,
    minute: i64,
    sni: Option<&'static str>,
    certificate: Option<&'static str>,
    lines: Vec<(&'static str, &'static str)>,
    path: &'static str,
    is_ambiguous: bool,
    query: Option<&'static str>,
    country: Option<[u8; 2]>,
    user: Result<Option<&'static str>, Stop>,
    group: &'static str,
    destination: Result<IpAddr, Stop>,
    read: Cell<u64>,
    depends_on: Cell<Slots>,
}

/// Facts that were read, as bits: the path, and everything else.
const PATH: u64 = 1;
const QUERY: u64 = 1 << 1;
const CLIENT: u64 = 1 << 2;
const MINUTE: u64 = 1 << 3;
const LINES_READ: u64 = 1 << 4;
const OTHERS: u64 = 1 << 5;

impl Request {
    fn draw(draw: &mut Draw) -> Request {
        let mut lines = vec![("Content-Length", draw.of(&["5", "50", "500", "x"]))];
        for name in ["User-Agent", "Content-Type", "X-A", "Accept", "Cookie"] {
            if !draw.one_in(3) {
                let line = match name {
                    "User-Agent" => draw.of(&AGENTS),
                    "Content-Type" => draw.of(&["text/html; charset=x", "IMAGE/png", "x"]),
                    _ => draw.of(&LINES),
                };
                lines.push((name, line));
            }
        }
        if draw.one_in(5) {
            lines.push(("X-A", draw.of(&LINES)));
        }
        Request {
            method: draw.of(&METHODS),
            scheme: draw.of(&[Scheme::Http, Scheme::Https]),
            listener: draw.of(&["127.0.0.1:3128", "127.0.0.1:8080"]).parse().expect("an address"),
            port: draw.of(&[80, 443, 8080]),
            host: Host::parse(draw.of(&HOSTS)).expect("a host"),
            client: draw.of(&CLIENTS).parse().expect("an address"),
            minute: 29_715_030 + draw.below(7 * 24 * 60) as i64,
            sni: draw.of(&[None, Some("a.test"), Some("WWW.a.test")]),
            certificate: draw.of(&[None, Some("anna"), Some("bob")]),
            lines,
            path: draw.of(&PATHS),
            is_ambiguous: draw.one_in(20),
            query: draw.one_in(2).then(|| draw.of(&QUERIES)),
            country: draw.of(&[None, Some(*b"DE"), Some(*b"FR")]),
            user: match draw.below(8) {
                0 => Err(Stop::NeedsUser),
                1..=3 => Ok(None),
                _ => Ok(Some(draw.of(&["anna", "bob"]))),
            },
            group: draw.of(&GROUPS),
            destination: match draw.one_in(8) {
                true => Err(Stop::NeedsDestination),
                false => Ok(draw.of(&CLIENTS).parse().expect("an address")),
            },
            read: Cell::new(0),
            depends_on: Cell::default(),
        }
    }

    fn note(&self, bit: u64) {
        self.read.set(self.read.get() | bit);
    }

    /// Path and query as one text.
    fn target(&self) -> String {
        let ambiguous = if self.is_ambiguous { "%" } else { "" };
        format!("{ambiguous}{}{}", self.path, self.query.map(|query| format!("?{query}")).unwrap_or_default())
    }
}

impl Facts for Request {
    fn method(&self) -> &Method {
        &self.method
    }
    fn scheme(&self) -> Scheme {
        self.scheme
    }
    fn listener(&self) -> SocketAddr {
        self.listener
    }
    fn port(&self) -> u16 {
        self.port
    }
    fn host(&self) -> &Host {
        &self.host
    }
    fn client(&self) -> IpAddr {
        self.note(CLIENT);
        self.client
    }
    fn minute(&self) -> i64 {
        self.note(MINUTE);
        self.minute
    }
    fn sni(&self) -> Option<&str> {
        self.note(OTHERS);
        self.sni
    }
    fn each_certificate_name(&self, each: &mut dyn FnMut(&str)) {
        self.note(OTHERS);
        self.certificate.iter().for_each(|name| each(name));
    }
    fn each_line(&self, name: &str, each: &mut dyn FnMut(&[u8])) {
        self.note(LINES_READ);
        let lines = self.lines.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        lines.for_each(|(_, line)| each(line.as_bytes()));
    }
    fn path(&self) -> Result<Option<&[u8]>, Stop> {
        self.note(PATH);
        match (self.method == Method::Connect, self.is_ambiguous) {
            (true, _) => Ok(None),
            (false, true) => Err(Stop::AmbiguousPath),
            (false, false) => Ok(Some(self.path.as_bytes())),
        }
    }
    fn sent_path(&self) -> Result<Option<&str>, Stop> {
        self.note(PATH);
        Ok((self.method != Method::Connect).then_some(self.path))
    }
    fn query(&self) -> Option<&str> {
        self.note(QUERY);
        self.query
    }
    fn in_list(&self, name: &str) -> bool {
        self.note(PATH);
        match name {
            "ads" => self.host.as_str().contains("ads"),
            "work" => self.path.starts_with("/a"),
            _ => false,
        }
    }
    fn country(&self) -> Option<[u8; 2]> {
        self.note(OTHERS);
        self.country
    }
    fn user(&self) -> Result<Option<&str>, Stop> {
        self.note(OTHERS);
        self.user
    }
    fn each_group(&self, each: &mut dyn FnMut(&str)) -> Result<(), Stop> {
        if self.user()?.is_some() {
            each(self.group);
        }
        Ok(())
    }
    fn country_of(&self, address: IpAddr) -> Option<[u8; 2]> {
        self.country.map(|_| if address.is_ipv4() { *b"DE" } else { *b"FR" })
    }
    fn each_destination(&self, each: &mut dyn FnMut(IpAddr)) -> Result<(), Stop> {
        self.note(OTHERS);
        self.destination.map(each)
    }
    fn depends_on(&self, slots: Slots) {
        self.depends_on.set(self.depends_on.get().and(slots));
    }
}

/// Contexts by the values that they stand for.
#[derive(Default)]
struct Contexts(HashMap<String, u64>);

impl Contexts {
    /// The context of a request: the values of all facts beside its path that were read, or that the verdict on another path could
    /// depend on.
    fn of(&mut self, request: &Request) -> u64 {
        let (read, on) = (request.read.get(), request.depends_on.get());
        let mut text = format!(
            "{:?} {:?} {} {} {} {on:?}",
            request.method, request.scheme, request.listener, request.port, request.host
        );
        let all = on != Slots::default();
        let mut add = |bit: u64, value: String| {
            if all || read & bit != 0 {
                text.push_str(&format!(" {bit}:{value}"));
            }
        };
        add(CLIENT, request.client.to_string());
        add(MINUTE, request.minute.to_string());
        add(LINES_READ, format!("{:?}", request.lines));
        let others =
            (request.sni, request.certificate, request.country, request.user, request.group, request.destination);
        add(OTHERS, format!("{others:?}"));
        let next = self.0.len() as u64;
        *self.0.entry(text).or_insert(next)
    }
}

/// With more of them the memo begins anew, so that a long play has bounded memory.
const CONTEXTS_MAX: usize = 50_000;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn the_compiled_table_and_its_memo_say_what_the_rules_say() {
    let (seed, tables, requests) =
        (number("RULES_SEED", 22), number("RULES_TABLES", 100), number("RULES_REQUESTS", 300));
    let (mut matches, mut stops, mut remembered, mut judged) = (0u64, 0u64, 0u64, 0u64);
    for table_number in 0..tables {
        let seed = seed.wrapping_mul(1_000_003).wrapping_add(table_number);
        let mut draw = Draw(seed);
        let rules = draw_rules(&mut draw);
        let table = Table::new(rules.clone()).expect("a good table");
        let (mut memo, mut contexts) = (PathMemo::new(seed), Contexts::default());
        let mut earlier = Request::draw(&mut draw);
        for _ in 0..requests {
            let mut request = Request::draw(&mut draw);
            if draw.one_in(2) {
                // Another path in the context of an earlier request, or that request again.
                request =
                    Request { path: draw.of(&PATHS[..6]), query: draw.of(&[None, Some("a=1")]), ..earlier.clone() };
                request.read.set(0);
                request.depends_on.set(Slots::default());
            }
            let wanted = model::judge(&rules, &request);
            (request.read, request.depends_on) = (Cell::new(0), Cell::default());
            let given = table.judge(&request);
            assert_eq!(given, wanted, "seed {seed}: {request:?}\n{rules:#?}");
            judged += 1;
            match &given {
                Err(_) => stops += 1,
                Ok(matched) => {
                    matches += u64::from(!matched.is_empty());
                    let (context, target) = (contexts.of(&request), request.target());
                    if let Some(known) = memo.find(context, &target) {
                        assert_eq!(known, matched, "the memo, seed {seed}: {request:?}\n{rules:#?}");
                        remembered += 1;
                    }
                    memo.remember_rules(context, &target, matched);
                }
            }
            earlier = request;
            if contexts.0.len() > CONTEXTS_MAX {
                (memo, contexts) = (PathMemo::new(seed), Contexts::default());
            }
        }
    }
    println!("{judged} requests: {matches} with a rule, {stops} stopped, {remembered} remembered");
    // The draw has to reach all of it.
    assert!(matches * 5 > judged && stops * 200 > judged && remembered * 50 > judged);
}

/// Rules that hold, as text.
fn held(rules: Vec<Rule>, request: &Request) -> Result<Vec<u16>, Stop> {
    let table = Table::new(rules).expect("a good table");
    table.judge(request).map(|matched: Matched| matched.iter().collect())
}

#[test]
fn the_first_verdict_ends_the_table_and_effects_add_up() {
    let rule = |host: &str, verdict: Option<Verdict>| {
        let when = When { host: vec![HostPattern::parse(host).unwrap()], ..When::default() };
        let mut rule = Rule { when: when.into(), ..Rule::default() };
        rule.does.verdict = verdict;
        rule
    };
    let mut request = Request::draw(&mut Draw(1));
    request.host = Host::parse("a.test").unwrap();
    let rules = vec![
        rule("*", None),
        rule("b.test", Some(Verdict::Allow)),
        rule("a.test", Some(Verdict::Allow)),
        rule("*", None),
    ];
    assert_eq!(held(rules, &request), Ok(vec![0, 2]));
}

#[test]
fn not_and_any_nest() {
    let host = |text: &str| When { host: vec![HostPattern::parse(text).unwrap()], ..When::default() };
    let port = |text: &str| When { port: vec![PortRange::parse(text).unwrap()], ..When::default() };
    let mut request = Request::draw(&mut Draw(1));
    (request.host, request.port) = (Host::parse("a.test").unwrap(), 80);
    for (when, wanted) in [
        (When { not: vec![host("a.test")], ..When::default() }, false),
        (When { not: vec![host("b.test")], ..When::default() }, true),
        (When { any: vec![host("b.test"), port("80")], ..When::default() }, true),
        (When { any: vec![host("b.test"), port("81")], ..When::default() }, false),
        (When { any: vec![host("a.test")], not: vec![port("80")], ..When::default() }, false),
        (When { not: vec![When { not: vec![host("a.test")], ..When::default() }], ..When::default() }, true),
        (When { not: vec![When { any: vec![host("b.test")], ..port("80") }], ..When::default() }, true),
    ] {
        let rules = vec![Rule { when: when.clone().into(), ..Rule::default() }];
        assert_eq!(held(rules, &request), Ok(if wanted { vec![0] } else { vec![] }), "{when:?}");
    }
}
