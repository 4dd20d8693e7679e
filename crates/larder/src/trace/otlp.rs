//! Spans in the JSON of OTLP 1.x: names in hexadecimal digits, 64-bit numbers as texts, enums as numbers.

use super::span::{Kind, Span, Value};
use serde_json::{Value as Json, json};

/// The name of the instrumentation scope.
const SCOPE: &str = "larder";

/// The body of one `POST /v1/traces`.
pub(super) fn body(resource: &[(&'static str, Value)], spans: &[Span]) -> Vec<u8> {
    let spans: Vec<Json> = spans.iter().map(span).collect();
    let body = json!({
        "resourceSpans": [{
            "resource": { "attributes": attributes(resource) },
            "scopeSpans": [{
                "scope": { "name": SCOPE, "version": env!("CARGO_PKG_VERSION") },
                "spans": spans,
            }],
        }],
    });
    body.to_string().into_bytes()
}

fn span(span: &Span) -> Json {
    let mut json = json!({
        "traceId": span.place.trace.to_string(),
        "spanId": span.place.span.to_string(),
        "name": span.name,
        "kind": match span.kind {
            Kind::Server => 2,
            Kind::Client => 3,
        },
        "startTimeUnixNano": span.began.as_nanos().to_string(),
        "endTimeUnixNano": span.ended.as_nanos().to_string(),
        "attributes": attributes(&span.attributes),
        // 0 is "unset": a server's 404 is no error of its own.
        "status": { "code": if span.trouble.is_some() { 2 } else { 0 } },
    });
    if let Some(parent) = span.place.parent {
        json["parentSpanId"] = parent.to_string().into();
    }
    json
}

fn attributes(all: &[(&'static str, Value)]) -> Vec<Json> {
    let each = all.iter().map(|(name, value)| {
        let value = match value {
            Value::Text(text) => json!({ "stringValue": text }),
            Value::Number(number) => json!({ "intValue": number.to_string() }),
        };
        json!({ "key": name, "value": value })
    });
    each.collect()
}
