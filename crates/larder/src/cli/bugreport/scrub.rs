//! Takes out of texts what may tell of people, hosts and secrets. In doubt a word goes.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;

/// Ends of names that are files of the program's own world, and no hosts.
const FILES: [&str; 10] = ["rs", "toml", "md", "py", "log", "sock", "pem", "conf", "txt", "service"];

/// The value of a setting as the report shows it: numbers, sizes, times and plain words of lower-case letters. Everything else, a text
/// that somebody wrote, is only said to be set.
pub(super) fn value(shown: &str) -> String {
    let word = shown.trim_matches('"');
    let unit = word.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let is_number = unit.len() < word.len() && UNITS.contains(&unit);
    match word {
        "" | "[]" | "{}" => "none".to_owned(),
        _ if WORDS.contains(&word) || is_number => word.to_owned(),
        _ => "(set)".to_owned(),
    }
}

const UNITS: [&str; 16] =
    ["", "%", "B", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB", "ms", "s", "m", "h", "d"];

/// Words of choices; another word may be a name or a password.
const WORDS: [&str; 24] = [
    "true", "false", "none", "auto", "off", "on", "all", "default", "allow", "deny", "refuse", "serve", "validate", "system",
    "dns", "json", "combined", "squid", "stdout", "stderr", "redirect", "tproxy", "client", "origin",
];

/// Text of diagnostics: URLs, addresses, hosts and quoted texts become what they are.
pub(super) fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for piece in text.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end_matches(char::is_whitespace);
        out.push_str(&self::word(word));
        out.push_str(&piece[word.len()..]);
    }
    out
}

fn word(word: &str) -> String {
    let bare = word.trim_matches(|letter: char| "()[]{},;:.'\"`<>".contains(letter));
    // `field=value`, as tracing writes it.
    let value = bare.rsplit_once('=').map_or(bare, |(_, value)| value.trim_matches('"'));
    let replaced = [bare, value].into_iter().find_map(|part| Some((part, kind(part)?)));
    match replaced {
        Some((part, kind)) => word.replace(part, kind),
        None => word.to_owned(),
    }
}

/// The kind of a word that is not shown.
fn kind(word: &str) -> Option<&'static str> {
    if word.contains("://") || word.contains('?') && word.contains('/') {
        return Some("(url)");
    }
    if word.contains('@') {
        return Some("(name)");
    }
    let host = word.rsplit_once(':').map_or(word, |(host, port)| if port.bytes().all(|it| it.is_ascii_digit()) { host } else { word });
    if [word, host].iter().any(|part| part.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()) {
        return Some("(address)");
    }
    let is_name = |letter: char| letter.is_alphanumeric() || matches!(letter, '.' | '-' | '_' | '*');
    let (_, end) = host.rsplit_once('.')?;
    let is_host = host.chars().all(is_name) && end.len() > 1 && end.chars().all(char::is_alphabetic);
    (is_host && !FILES.contains(&end)).then_some("(host)")
}

/// Labels whose values name hosts.
const LABELS: [&str; 4] = ["origin", "certificate", "member", "rule"];

/// The metrics, in which hosts are numbers: the same one for the same host.
pub(super) fn metrics(text: &str) -> String {
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let mut line = line.to_owned();
        for label in LABELS {
            // A comment has no labels.
            let begin = format!("{label}=\"");
            let Some(at) = line.find(&begin).filter(|_| !line.starts_with('#')).map(|at| at + begin.len()) else { continue };
            let end = end_of_value(&line[at..]).map_or(line.len(), |length| at + length);
            let value = line[at..end].to_owned();
            if value == "other" {
                continue;
            }
            let next = numbers.len() + 1;
            let number = *numbers.entry(value).or_insert(next);
            line.replace_range(at..end, &format!("{label}-{number}"));
        }
        let _ = writeln!(out, "{line}");
    }
    out
}

/// The length of a label's value up to the quotation mark that ends it.
fn end_of_value(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_numbers_and_words_of_choices() {
        for (shown, wanted) in [
            ("\"256MB\"", "256MB"),
            ("4", "4"),
            ("\"250ms\"", "250ms"),
            ("true", "true"),
            ("\"none\"", "none"),
            ("[]", "none"),
            ("\"hunter\"", "(set)"),
            ("\"12ab34cd\"", "(set)"),
            ("\"1234secret\"", "(set)"),
            ("\"127.0.0.1:3129\"", "(set)"),
            ("[\"10.0.0.0/8\"]", "(set)"),
            ("\"http://joe:x@a.example/?token=t\"", "(set)"),
            ("do = { request = { Authorization = \"Bearer x\" } }", "(set)"),
        ] {
            assert_eq!(value(shown), wanted, "{shown}");
        }
    }

    #[test]
    fn texts_lose_urls_addresses_and_hosts() {
        let said = "WARN a request from 10.1.2.3:5555 for http://joe:pw@a.example/x?t=1 failed: no tls session with www.example.org: \
                    peer=\"[::1]:80\" url=https://b.example/ (192.0.2.7) at src/a.rs:12 in larder.toml, joe@example 1.5 seconds\n";
        let shown = text(said);
        for secret in ["10.1.2.3", "example", "joe", "pw", "::1", "192.0.2.7"] {
            assert!(!shown.contains(secret), "{secret} in {shown}");
        }
        for kept in ["WARN a request from (address) for (url) failed:", "src/a.rs:12", "larder.toml", "1.5 seconds\n"] {
            assert!(shown.contains(kept), "{kept} in {shown}");
        }
    }

    #[test]
    fn metrics_have_numbers_for_hosts() {
        let shown = metrics(
            "# HELP larder_x origin=\"a\"\nlarder_x{origin=\"https://a.example\"} 1\nlarder_y{origin=\"https://a.example\"} 2\n\
             larder_x{origin=\"other\"} 3\nlarder_z{rule=\"a \\\"b\\\" c\"} 4\nlarder_m{group=\"g\",member=\"http://10.0.0.1\"} 5\n",
        );
        assert!(!shown.contains("example") && !shown.contains("10.0.0.1") && !shown.contains("\\\"b"), "{shown}");
        assert_eq!(shown.matches("origin=\"origin-1\"").count(), 2, "{shown}");
        assert!(shown.contains("larder_x{origin=\"other\"} 3\n") && shown.contains("larder_z{rule=\"rule-2\"} 4\n"), "{shown}");
    }
}
