//! The format of a line of the access log: one of the known formats, or a text with fields in braces.

use std::fmt;

/// The table of fields is their documentation too.
macro_rules! fields {
    ($($variant:ident $name:literal: $about:literal,)*) => {
        /// A field of a log line.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum LogField {
            $(#[doc = $about] $variant,)*
        }

        impl LogField {
            /// All fields, in the order of documentation and of JSON lines.
            pub const ALL: &[LogField] = &[$(LogField::$variant,)*];

            /// The name in formats and JSON lines.
            pub fn as_str(self) -> &'static str {
                match self { $(LogField::$variant => $name,)* }
            }

            /// Its description in the reference.
            pub fn about(self) -> &'static str {
                match self { $(LogField::$variant => $about,)* }
            }
        }
    };
}

fields! {
    Time "time": "When the head of the request was read: seconds since 1970 with six digits behind the point.",
    Date "date": "The same as `21/Nov/2026:04:05:06 +0000`, as web servers write it; not in JSON lines.",
    Client "client": "The address of the client.",
    User "user": "The user who has logged in; in JSON lines where there is one.",
    Certificate "certificate": "The name in the client's certificate: the common name of its subject, else the first other one; in JSON lines where there is one.",
    Method "method": "The method.",
    Url "url": "The requested URL; never with credentials.",
    Host "host": "The host in `url`; not in JSON lines.",
    Version "version": "The client's version, as `HTTP/1.1`.",
    Status "status": "The status of the answer.",
    Bytes "bytes": "Bytes of the answer's body that were sent.",
    Referer "referer": "The field `Referer`.",
    Agent "agent": "The field `User-Agent`.",
    Type "type": "The media type of the answer.",
    Outcome "outcome": "How the answer came about; the same words as in `Cache-Status` and the metrics.",
    NotStored "not_stored": "Why the answer was not stored, where that was the question.",
    Compression "compression": "The coding that Larder gave the body, as `br`; in JSON lines where it gave one.",
    Complete "complete": "Whether the answer went out to its end.",
    Micros "micros": "Microseconds from the head of the request to the end of the answer.",
    Millis "millis": "The same in milliseconds; not in JSON lines.",
    Id "id": "The name of the request, for `larder explain`.",
    Hook "hook": "The hook that decided about the request, or changed it or its answer last; where hooks were asked, as the four below.",
    HookScript "hook_script": "The file of that hook.",
    HookLine "hook_line": "The line of it that decided or changed last, or at which it failed.",
    HookMicros "hook_micros": "Microseconds that the request waited for hooks, of all stages.",
    HookRemembered "hook_remembered": "Whether all decisions of hooks were remembered ones.",
    Icap "icap": "The ICAP services that were asked about the request or its answer, with the work of each, as `av:unchanged`; where any was asked, as the one below.",
    IcapMicros "icap_micros": "Microseconds that the request waited for ICAP services.",
    Helpers "helpers": "The helpers of `external_acl`, `url_rewrite` and `store_id` that were asked, with the answer of each, as `filter:err` (`ok`, `err`, `failed`, and `passed-over` where the request went on by `on_failure`); where any was asked, as the one below.",
    HelperMicros "helper_micros": "Microseconds that the request waited for helpers; 0 where all answers were remembered.",
    Rule "rule": "The rule that decided about the request, or the last one that held, with its place; where one did, as the one below. Of a refusal also the list and the entry that covered the request.",
    Mark "mark": "The mark of the last rule that has one.",
    BandwidthMicros "bandwidth_micros": "Microseconds that the answer waited under limits of bandwidth; where any counted.",
    Way "way": "Through whom the origin was asked, as `parent office`, or the sibling or node of the cluster that sent the response, as `node b`; where parents, siblings or nodes were meant.",
    OriginVersion "origin_version": "`HTTP/2`, where the origin was asked by it; in JSON lines then alone.",
    SquidCode "squid_code": "Squid's word for `outcome`, as `TCP_MISS`; not in JSON lines.",
    SquidFrom "squid_from": "Squid's words for where the answer came from, as `HIER_DIRECT/www.example.org`; not in JSON lines.",
}

/// The format of a line of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// The format that web servers share, with outcome and microseconds behind it.
    Combined,
    /// Squid's native format.
    Squid,
    /// One JSON object.
    Json,
    /// A text with fields.
    Custom(Template),
}

/// The texts of a message that a line of the log needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextsLogged {
    /// `Referer` and `User-Agent`.
    pub of_request: bool,
    /// `Content-Type`.
    pub of_answer: bool,
}

/// A format of one's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    /// Its parts in order.
    pub parts: Vec<Part>,
}

/// A part of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Stands as it is.
    Text(String),
    /// Is filled in.
    Field(LogField),
}

impl LogFormat {
    /// Which texts its lines have.
    pub fn texts(&self) -> TextsLogged {
        match self {
            LogFormat::Combined => TextsLogged { of_request: true, of_answer: false },
            LogFormat::Squid => TextsLogged { of_request: false, of_answer: true },
            LogFormat::Json => TextsLogged { of_request: true, of_answer: true },
            LogFormat::Custom(template) => {
                let has = |field| template.parts.contains(&Part::Field(field));
                TextsLogged {
                    of_request: has(LogField::Referer) || has(LogField::Agent),
                    of_answer: has(LogField::Type),
                }
            }
        }
    }

    /// The format of a word or of a text with fields in braces. `None` when it is neither.
    pub fn parse(text: &str) -> Option<LogFormat> {
        match text {
            "combined" => Some(LogFormat::Combined),
            "squid" => Some(LogFormat::Squid),
            "json" => Some(LogFormat::Json),
            text => Template::parse(text).map(LogFormat::Custom),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LogFormat::Combined => "combined",
            LogFormat::Squid => "squid",
            LogFormat::Json => "json",
            LogFormat::Custom(template) => &template.text,
        })
    }
}

impl Template {
    /// At least one field, and no line end; `{{` and `}}` stand for a brace.
    fn parse(text: &str) -> Option<Template> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if let Some(after) = rest.strip_prefix("{{").or_else(|| rest.strip_prefix("}}")) {
                plain.push(first);
                rest = after;
            } else if let Some(after) = rest.strip_prefix('{') {
                let (name, after) = after.split_once('}')?;
                let field = LogField::ALL.iter().find(|field| field.as_str() == name)?;
                if !plain.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut plain)));
                }
                parts.push(Part::Field(*field));
                rest = after;
            } else if first == '}' || first == '\n' || first == '\r' {
                return None;
            } else {
                plain.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        let named = parts.iter().any(|part| matches!(part, Part::Field(_)));
        named.then(|| Template { text: text.to_owned(), parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_line_has_is_taken_down() {
        for (format, of_request, of_answer) in [
            ("combined", true, false),
            ("squid", false, true),
            ("json", true, true),
            ("{url}", false, false),
            ("{url} {agent}", true, false),
            ("{referer} {type}", true, true),
        ] {
            assert_eq!(LogFormat::parse(format).unwrap().texts(), TextsLogged { of_request, of_answer }, "{format}");
        }
    }

    #[test]
    fn formats_are_words_or_templates() {
        for text in ["combined", "squid", "json", "{client} {{x}} \"{method} {url}\" {status}"] {
            assert_eq!(LogFormat::parse(text).map(|format| format.to_string()).as_deref(), Some(text));
        }
        for bad in ["", "common", "{nonsense}", "{client", "{client}}", "{client}\n"] {
            assert_eq!(LogFormat::parse(bad), None, "{bad}");
        }
        let Some(LogFormat::Custom(template)) = LogFormat::parse("a{{{client}b") else { panic!() };
        assert_eq!(
            template.parts,
            [Part::Text("a{".to_owned()), Part::Field(LogField::Client), Part::Text("b".to_owned())]
        );
    }
}
