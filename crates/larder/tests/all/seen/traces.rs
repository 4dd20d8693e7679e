//! Traces as a collector gets them: OTLP over HTTP in JSON, against a collector and an origin that are played here.

use super::stand::{self, body, exchange};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

/// Reads one message: its lines, and a body of the length that it says.
fn message(stream: &TcpStream) -> Option<(Vec<String>, String)> {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|&read| read > 0)?;
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let length = lines.iter().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((lines, String::from_utf8(body).ok()?))
}

/// Answers with these statuses, the last one for ever, and hands on what it was sent.
fn collector(statuses: &'static [u16]) -> (SocketAddr, Receiver<(Vec<String>, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for (number, mut stream) in listener.incoming().flatten().enumerate() {
            let Some((lines, body)) = message(&stream) else { continue };
            let status = statuses[number.min(statuses.len() - 1)];
            let _ = write!(stream, "HTTP/1.1 {status} Said\r\nContent-Length: 2\r\n\r\n{{}}");
            let body = serde_json::from_str(&body).unwrap_or(Value::Null);
            if tell.send((lines, body)).is_err() {
                return;
            }
        }
    });
    (address, told)
}

/// An origin whose answers are the trace fields that it got; `/none…` may not be kept, `/bad` is a 500.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                while let Some((lines, _)) = message(&stream) {
                    let path = lines[0].split(' ').nth(1).unwrap_or_default();
                    let status = if path == "/bad" { 500 } else { 200 };
                    let control = if path.starts_with("/none") { "no-store" } else { "max-age=60" };
                    let told: Vec<&str> =
                        lines.iter().filter(|line| line.starts_with("trace")).map(String::as_str).collect();
                    let told = told.join("\n");
                    let head = format!("HTTP/1.1 {status} Said\r\nCache-Control: {control}\r\nContent-Length: ");
                    let _ = write!(stream, "{head}{}\r\n\r\n{told}", told.len());
                }
            });
        }
    });
    address
}

fn get(proxy: SocketAddr, url: &str, fields: &str) -> String {
    let host = url.split('/').nth(2).unwrap();
    exchange(proxy, &format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n"))
}

/// A span, its attributes by name.
struct Told {
    span: Value,
    attributes: BTreeMap<String, String>,
}

impl Told {
    fn text(&self, name: &str) -> &str {
        self.span[name].as_str().unwrap_or_default()
    }

    fn says(&self, wanted: &[(&str, &str)]) {
        for (name, value) in wanted {
            assert_eq!(self.attributes.get(*name).map(String::as_str), Some(*value), "{name} in {}", self.span);
        }
    }
}

/// All spans of a body, which is as OTLP wants it.
fn spans(body: &Value) -> Vec<Told> {
    let resource = body["resourceSpans"][0]["resource"]["attributes"].to_string();
    assert!(resource.contains("{\"key\":\"service.name\",\"value\":{\"stringValue\":\"edge\"}}"), "{resource}");
    let scope = &body["resourceSpans"][0]["scopeSpans"][0];
    assert_eq!(scope["scope"]["name"], "larder");
    scope["spans"].as_array().unwrap().iter().map(told).collect()
}

fn told(span: &Value) -> Told {
    let hex = |name: &str, length: usize| {
        let text = span[name].as_str().unwrap();
        let digits = text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        assert!(text.len() == length && digits && text.bytes().any(|byte| byte != b'0'), "{name} of {span}");
    };
    hex("traceId", 32);
    hex("spanId", 16);
    let nanos = |name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
    assert!(nanos("startTimeUnixNano") <= nanos("endTimeUnixNano"), "{span}");
    assert!(nanos("startTimeUnixNano") > 1_600_000_000_000_000_000, "{span}");
    let attributes = span["attributes"].as_array().unwrap().iter().map(|attribute| {
        let value = &attribute["value"];
        assert_eq!(value.as_object().unwrap().len(), 1, "{span}");
        // 64-bit numbers are texts in the JSON of protocol buffers.
        let text = value["stringValue"].as_str().or(value["intValue"].as_str()).unwrap();
        (attribute["key"].as_str().unwrap().to_owned(), text.to_owned())
    });
    let all: Vec<_> = attributes.collect();
    let attributes: BTreeMap<String, String> = all.iter().cloned().collect();
    assert_eq!(attributes.len(), all.len(), "an attribute twice in {span}");
    Told { span: span.clone(), attributes }
}

fn settings(collector: SocketAddr, more: &str) -> String {
    format!("[tracing]\notlp = \"http://{collector}\"\nservice = \"edge\"\n{more}")
}

/// As many spans as are expected, however they were bundled.
fn gather(told: &Receiver<(Vec<String>, Value)>, many: usize) -> Vec<Told> {
    let mut all = Vec::new();
    while all.len() < many {
        let (lines, body) = told.recv_timeout(stand::WITHIN).unwrap();
        assert_eq!(lines[0], "POST /v1/traces HTTP/1.1");
        assert!(lines.iter().any(|line| line == "Content-Type: application/json"), "{lines:?}");
        all.extend(spans(&body));
    }
    assert_eq!(all.len(), many);
    // Each worker hands over its own.
    all.sort_by_key(|told| told.text("startTimeUnixNano").to_owned());
    all
}

fn of_kind(all: &[Told], kind: u64) -> Vec<&Told> {
    all.iter().filter(|told| told.span["kind"] == kind).collect()
}

#[test]
fn a_sampled_miss_has_a_span_for_the_request_and_one_for_the_fetch() {
    let (collector, sent) = collector(&[200]);
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), &settings(collector, "sample = 0"));
    let (proxy, origin) = (server.addresses()[0], origin());
    let url = format!("http://{origin}/fresh?q=1");
    let parent = format!("traceparent: 00-{TRACE}-{SPAN}-01\r\ntracestate: vendor=1\r\n");
    let answer = get(proxy, &url, &parent);
    get(proxy, &url, &parent);
    // Neither is sampled: the sender says no, and the share is 0.
    get(proxy, &url, &format!("traceparent: 00-{TRACE}-{SPAN}-00\r\n"));
    get(proxy, &url, "");
    let all = gather(&sent, 3);
    let (server_spans, client_spans) = (of_kind(&all, 2), of_kind(&all, 3));
    let [miss, hit] = &server_spans[..] else { panic!("{} spans of requests", server_spans.len()) };
    let [fetch] = &client_spans[..] else { panic!("{} spans of fetches", client_spans.len()) };
    let port = origin.port().to_string();
    for span in [miss, hit] {
        assert_eq!((span.text("traceId"), span.text("parentSpanId"), span.text("name")), (TRACE, SPAN, "GET"));
        span.says(&[
            ("http.request.method", "GET"),
            ("http.response.status_code", "200"),
            ("url.scheme", "http"),
            ("url.path", "/fresh"),
            ("url.query", "q=1"),
            ("server.address", "127.0.0.1"),
            ("server.port", &port),
            ("client.address", "127.0.0.1"),
            ("network.protocol.version", "1.1"),
        ]);
        assert_eq!(span.span["status"]["code"], 0);
    }
    miss.says(&[("larder.cache.outcome", "miss"), ("larder.cache.cause", "uri-miss")]);
    hit.says(&[("larder.cache.outcome", "hit")]);
    assert!(!hit.attributes.contains_key("larder.cache.cause"));
    assert_eq!((fetch.text("traceId"), fetch.text("parentSpanId")), (TRACE, miss.text("spanId")));
    fetch.says(&[
        ("url.full", &url),
        ("http.response.status_code", "200"),
        ("network.peer.address", "127.0.0.1"),
        ("network.peer.port", &port),
        ("larder.fetch.kind", "whole"),
        ("larder.fetch.connection", "new"),
    ]);
    let told = format!("tracestate: vendor=1\ntraceparent: 00-{TRACE}-{}-01", fetch.text("spanId"));
    assert_eq!(body(&answer), told, "the origin is told of the fetch");
}

#[test]
fn without_a_parent_a_share_is_sampled_and_trouble_is_told() {
    let (collector, sent) = collector(&[200]);
    let folder = tempfile::tempdir().unwrap();
    let text = settings(collector, "sample = 1\n[records]\nhide_query = true\nrequests_max = 0");
    let server = stand::server(folder.path(), &text);
    let (proxy, origin) = (server.addresses()[0], origin());
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // A parent that can't be read is none, and what vendors said beside it is void.
    let answer =
        get(proxy, &format!("http://{origin}/none?token=s3cret"), "traceparent: 00-x\r\ntracestate: vendor=1\r\n");
    assert!(body(&answer).starts_with("traceparent: 00-") && !answer.contains("vendor"), "{answer}");
    get(proxy, &format!("http://{origin}/bad"), "");
    get(proxy, &format!("http://{gone}/"), "");
    server.stop();
    let all = gather(&sent, 6);
    assert!(all.iter().all(|told| !told.span.to_string().contains("s3cret")));
    let at = |kind: u64, path: &str| {
        let found = of_kind(&all, kind).into_iter().find(|told| told.span.to_string().contains(path));
        found
            .unwrap_or_else(|| panic!("no span of {path}: {:?}", all.iter().map(|told| &told.span).collect::<Vec<_>>()))
    };
    let none = at(2, "\"/none\"");
    assert!(none.span.get("parentSpanId").is_none(), "it is the first of its trace");
    none.says(&[("url.query", "token=…"), ("larder.cache.not_stored", "no-store")]);
    for (kind, path, word) in [(2, "\"/bad\"", "500"), (3, "/bad\"", "500"), (3, &format!("{gone}"), "refused")] {
        let span = at(kind, path);
        assert_eq!(span.span["status"]["code"], 2, "{}", span.span);
        assert!(span.attributes["error.type"].contains(word), "{}", span.span);
    }
    let servers = of_kind(&all, 2);
    let traces: std::collections::BTreeSet<&str> = servers.iter().map(|told| told.text("traceId")).collect();
    assert_eq!(traces.len(), 3);
}

#[test]
fn a_collector_in_trouble_costs_spans_and_no_request() {
    let (collector, sent) = collector(&[503, 200, 400]);
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), &settings(collector, "sample = 1\nqueue_spans_max = 4"));
    let (proxy, admin, url) = (server.addresses()[0], server.admin().unwrap(), format!("http://{}/fresh", origin()));
    let metric = |name: &str| {
        let text = stand::ask(admin, "/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned));
        line.unwrap_or_else(|| panic!("no {name}")).parse::<u64>().unwrap()
    };
    assert!(get(proxy, &url, "").starts_with("HTTP/1.1 200"));
    // 503 is tried again.
    stand::wait_for("exported", || metric("larder_trace_spans_exported_total") == 2);
    for _ in 0..20 {
        assert!(get(proxy, &url, "").starts_with("HTTP/1.1 200"));
    }
    // 400 is not.
    stand::wait_for("dropped", || {
        let queue = metric("larder_trace_spans_dropped_total{reason=\"queue\"}");
        let refused = metric("larder_trace_spans_dropped_total{reason=\"collector\"}");
        queue > 0 && refused > 0 && queue + refused == 20
    });
    assert!(sent.try_iter().count() >= 3);
}

#[test]
fn without_a_collector_the_fields_pass_as_they_came() {
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), "");
    let fields = format!("traceparent: 00-{TRACE}-{SPAN}-01\r\ntracestate: vendor=1\r\n");
    let answer = get(server.addresses()[0], &format!("http://{}/none", origin()), &fields);
    assert_eq!(body(&answer), fields.trim_end().replace("\r\n", "\n"));
}
