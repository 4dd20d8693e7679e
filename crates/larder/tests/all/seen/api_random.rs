//! Questions drawn at random, for every path that `docs/openapi.yaml` describes: each answer is one that it describes.

use super::admin::{DESCRIPTION, described_so, json_of, status};
use super::stand::{self, exchange};
use serde_json::Value;
use std::net::SocketAddr;
use yaml_rust2::YamlLoader;

const SEED: u64 = 20_261_121;
const QUESTIONS_PER_PATH: usize = 60;

/// Values for the parameters of the description.
const VALUES: &[&str] = &[
    "",
    "0",
    "1",
    "50",
    "500",
    "501",
    "-1",
    "1e9",
    "18446744073709551616",
    "true",
    "no",
    "hit",
    "uri-miss",
    "GET",
    "get",
    "BREW",
    "127.0.0.1",
    "::1",
    "[::1]:80",
    "127.0.0.1:3128",
    "localhost",
    "http://127.0.0.1/fresh",
    "http://a.example/x?q=1%262",
    "https://[::1]:8443/",
    "http://",
    "http://user@a.example/",
    "//a.example",
    "*",
    "Accept:%20text/html",
    "X:%0d%0aY:%20z",
    ":",
    "a",
    "%00",
    "%ff%fe",
    "%",
    "%4",
    "%e2%82%ac",
    "+",
    "a=b",
    "%26",
    "../../etc/passwd",
    "%2e%2e%2f",
    "'\"<>;--",
    "0000000000000",
];

/// SplitMix64: the same questions for one seed.
struct Draws(u64);

impl Draws {
    fn below(&mut self, many: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((value ^ value >> 31) % many as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    /// A value of the list, twice one, or one that is long.
    fn value(&mut self) -> String {
        match self.below(20) {
            0 => "x".repeat(1 + self.below(6_000)),
            1 => format!("{}{}", self.pick(VALUES), self.pick(VALUES)),
            _ => self.pick(VALUES).to_owned(),
        }
    }

    /// A question for a path: its parameters, here and there one twice, left out or unknown.
    fn target(&mut self, path: &str, operation: &Value) -> String {
        let mut path = path.to_owned();
        let mut query = Vec::new();
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let Some(name) = parameter["name"].as_str() else { continue };
            match parameter["in"].as_str() {
                Some("path") => {
                    let value = self.value().replace(['/', '?', '#', '"', '<', '>'], "");
                    path = path.replace(&format!("{{{name}}}"), &value);
                }
                _ if self.below(3) > 0 => {
                    for _ in 0..1 + self.below(8) / 7 {
                        query.push(format!("{name}={}", self.value().replace(['#', '"', '<', '>'], "")));
                    }
                }
                _ => {}
            }
        }
        if self.below(10) == 0 {
            query.push(format!("{}={}", self.pick(&["unknown", "", "limit", "%"]), self.pick(&["", "1", "%zz"])));
        }
        if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) }
    }
}

fn ask(admin: SocketAddr, method: &str, target: &str) -> String {
    exchange(admin, &format!("{method} {target} HTTP/1.1\r\nHost: {admin}\r\nX-Larder: 1\r\nContent-Length: 0\r\n\r\n"))
}

#[test]
fn every_answer_to_a_random_question_is_one_that_is_described() {
    let description = json_of(&YamlLoader::load_from_str(DESCRIPTION).unwrap()[0]);
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), "disk = \"64MB\"");
    let (proxy, admin, origin) = (server.addresses()[0], server.admin().unwrap(), stand::origin());
    for path in ["fresh", "fresh", "none"] {
        stand::get(proxy, &format!("http://{origin}/{path}"));
    }
    stand::wait_for("ready", || server.shared().is_ready());
    let mut draws = Draws(SEED);
    for (path, methods) in description["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let method = method.to_uppercase();
            // It would not end.
            let asked = if path == "/events" { "HEAD" } else { &method };
            for _ in 0..QUESTIONS_PER_PATH {
                let target = draws.target(path, operation);
                let answer = ask(admin, asked, &target);
                let at = format!("seed {SEED}: {asked} {target}");
                assert!(!answer.is_empty() && !status(&answer).starts_with('5'), "{at}\n{answer}");
                match status(&answer) {
                    // Requests that are no HTTP, and those that lead to another path.
                    "400" | "414" | "431" => {}
                    "404" if path.contains('{') => {}
                    _ if asked == "HEAD" => assert!(matches!(status(&answer), "200" | "422"), "{at}"),
                    _ => described_so(&answer, operation, &description, &at),
                }
            }
            let other = draws.pick(&["DELETE", "PATCH", "TRACE", "OPTIONS", "BREW"]);
            let answer = ask(admin, other, &path.replace(['{', '}'], ""));
            assert!(
                status(&answer) == "405" && answer.contains("\r\nAllow: "),
                "seed {SEED}: {other} {path}\n{answer}"
            );
        }
    }
    stand::wait_for("still there", || ask(admin, "GET", "/healthz").starts_with("HTTP/1.1 200"));
}
