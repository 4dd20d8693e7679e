//! The cost of a table of rules: `cargo bench -p larder-rules --bench rules [-- RULES]`.
//!
//! A first judgement of 1,000 rules of mixed matchers, for a request that no rule is about and for one that a late rule denies; a verdict
//! that is remembered by its path; the law of the table beside them; and how long the table takes to compile.

use larder_rules::facts::{Facts, Stop};
use larder_rules::memo::PathMemo;
use larder_rules::values::{FieldTest, Pattern, PortRange, QueryPattern};
use larder_rules::week::Window;
use larder_rules::{HostPattern, PathPattern, Rule, Table, Verdict, When, model, network};
use larder_wire::{Host, Method, Scheme};
use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

struct Request {
    method: Method,
    host: Host,
    client: IpAddr,
    path: String,
    query: Option<&'static str>,
}

impl Facts for Request {
    fn method(&self) -> &Method {
        &self.method
    }
    fn scheme(&self) -> Scheme {
        Scheme::Http
    }
    fn listener(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 3128))
    }
    fn port(&self) -> u16 {
        80
    }
    fn host(&self) -> &Host {
        &self.host
    }
    fn client(&self) -> IpAddr {
        self.client
    }
    fn minute(&self) -> i64 {
        29_715_030
    }
    fn sni(&self) -> Option<&str> {
        None
    }
    fn each_certificate_name(&self, _: &mut dyn FnMut(&str)) {}
    fn each_line(&self, name: &str, each: &mut dyn FnMut(&[u8])) {
        match name {
            "User-Agent" => {
                each(b"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130 Safari/537.36")
            }
            "Accept" => each(b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
            _ => {}
        }
    }
    fn path(&self) -> Result<Option<&[u8]>, Stop> {
        Ok(Some(self.path.as_bytes()))
    }
    fn sent_path(&self) -> Result<Option<&str>, Stop> {
        Ok(Some(&self.path))
    }
    fn query(&self) -> Option<&str> {
        self.query
    }
    fn in_list(&self, _: &str) -> bool {
        false
    }
    fn country(&self) -> Option<[u8; 2]> {
        None
    }
    fn user(&self) -> Result<Option<&str>, Stop> {
        Ok(None)
    }
    fn each_group(&self, _: &mut dyn FnMut(&str)) -> Result<(), Stop> {
        Ok(())
    }
    fn country_of(&self, _: IpAddr) -> Option<[u8; 2]> {
        None
    }

    fn each_destination(&self, _: &mut dyn FnMut(IpAddr)) -> Result<(), Stop> {
        Ok(())
    }
}

/// A rule of one of ten kinds.
fn rule(number: usize) -> Option<Rule> {
    let mut when = When::default();
    let host = || HostPattern::parse(&format!("*.site{number}.example")).into_iter().collect();
    match number % 10 {
        0 | 1 => when.host = host(),
        2 => when.client = [network(&format!("10.{}.{}.0/24", number / 250, number % 250))?].into_iter().collect(),
        3 => when.path = vec![PathPattern::parse(&format!("/folder{number}/**"))?],
        4 => when.path = vec![PathPattern::parse(&format!("/**/file{number}-*.exe"))?],
        5 => when.path_regex = vec![Pattern::parse(&format!("/item{number}/[0-9]+[.]html$")).ok()?],
        6 => when.fields = vec![("User-Agent".into(), vec![FieldTest::parse(&format!("~Robot{number}")).ok()?])],
        7 => when.user_agent = vec![format!("crawler{number}").into()],
        8 => when.query = vec![QueryPattern::parse(&format!("parameter{number}=1"))?],
        _ => {
            when.host = host();
            when.time = vec![Window::parse("Mon-Fri 08:00-17:00")?];
            when.port = vec![PortRange::parse("80")?];
        }
    }
    let mut rule = Rule { when: when.into(), ..Rule::default() };
    rule.does.verdict = Some(Verdict::Deny { status: 403, page: None });
    Some(rule)
}

const TIMES: usize = 1_000;

/// The least time of fifty short series, in nanoseconds a call: one that nothing interrupts is among them on a busy machine too.
fn measure(times: usize, mut call: impl FnMut()) -> f64 {
    let series = (0..50).map(|_| {
        let began = Instant::now();
        (0..times).for_each(|_| call());
        began.elapsed().as_nanos() as f64 / times as f64
    });
    series.fold(f64::MAX, f64::min)
}

fn main() {
    let rules: usize = std::env::args().skip(1).find_map(|text| text.parse().ok()).unwrap_or(1_000);
    let rules: Vec<Rule> = (0..rules).filter_map(rule).collect();
    let began = Instant::now();
    let Ok(table) = Table::new(rules.clone()) else { return };
    println!("{} rules compiled in {:.1} ms", rules.len(), began.elapsed().as_secs_f64() * 1e3);
    let Some(host) = Host::parse("www.example.org") else { return };
    let request = |path: &str, query| Request {
        method: Method::Get,
        host: host.clone(),
        client: IpAddr::from([192, 168, 7, 9]),
        path: path.to_owned(),
        query,
    };
    let none = request("/articles/2026/11/24/a-page-of-some-length.html", Some("page=2&sort=date"));
    let late = request(&format!("/item{}/7.html", rules.len().saturating_sub(5) / 10 * 10 + 5), None);
    for (name, request) in [("no rule holds", &none), ("a late rule denies", &late)] {
        assert_eq!(table.judge(request), model::judge(&rules, request));
        let nanos = measure(TIMES, || _ = black_box(table.judge(black_box(request))));
        println!("{name}: {nanos:.0} ns a judgement");
        let nanos = measure(TIMES / 100, || _ = black_box(model::judge(&rules, black_box(request))));
        println!("{name}: {nanos:.0} ns rule by rule");
    }
    for kind in 0..10 {
        let some: Vec<Rule> = rules.iter().skip(kind).step_by(10).cloned().collect();
        let Ok(table) = Table::new(some) else { return };
        let nanos = measure(TIMES, || _ = black_box(table.judge(black_box(&none))));
        println!("rules {kind} of ten alone: {nanos:.0} ns a judgement");
    }
    let mut memo = PathMemo::new(7);
    let matched = table.judge(&none).unwrap_or_default();
    let paths: Vec<String> = (0..4_096).map(|number| format!("/articles/2026/11/24/page-{number}.html")).collect();
    paths.iter().for_each(|path| memo.remember_rules(1, path, &matched));
    let mut at = 0;
    let nanos = measure(TIMES, || {
        at = (at + 1_031) % paths.len();
        _ = black_box(paths.get(at).and_then(|path| memo.find(1, path)));
    });
    println!("remembered by path, over {} paths: {nanos:.0} ns", paths.len());
}
