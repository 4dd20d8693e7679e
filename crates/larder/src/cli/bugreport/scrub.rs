//! Takes out of texts all that may tell of hosts, people and secrets. In doubt a word goes.

use crate::config::manual::InForce;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;

/// Ends of names that are files of the program's own world, and no hosts.
const FILES: [&str; 8] = ["rs", "toml", "md", "sock", "conf", "crt", "tmp", "service"];

/// Parts of values that stand in many texts and name nothing.
const COMMON: [&str; 12] =
    ["http", "https", "unix", "wsgi", "asgi", "certificates", "page", "name", "open", "files", "disk", "memory"];

/// The words of a configuration that are not for a report: parts of the values of settings that it does not show.
pub(super) struct Words {
    hidden: BTreeSet<String>,
    /// Names of settings, which look like hosts.
    settings: BTreeSet<String>,
}

impl Words {
    pub(super) fn of(in_force: &[InForce]) -> Words {
        let bare = |value: &str| value.trim_matches('"').to_owned();
        let is_hidden =
            |setting: &&InForce| setting.said != "default" && bare(&setting.value) != bare(&setting.reported.1);
        let is_end = |letter: char| letter.is_whitespace() || "\",".contains(letter);
        let pieces = in_force.iter().filter(is_hidden).flat_map(|setting| setting.value.split(is_end));
        // Paths are known by their first letter, and have common words in them.
        let words = pieces.filter(|piece| !piece.starts_with('/')).flat_map(parts);
        let hidden = words.filter(|word| word.len() > 1 && !COMMON.contains(&word.as_str())).collect();
        Words { hidden, settings: in_force.iter().map(|setting| setting.reported.0.clone()).collect() }
    }

    /// A text, in which URLs, paths, addresses, hosts and these words became what they are.
    pub(super) fn strike(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for piece in text.split_inclusive(char::is_whitespace) {
            let word = piece.trim_end_matches(char::is_whitespace);
            match self.kind(word) {
                Some(kind) => out.push_str(kind),
                None => out.push_str(word),
            }
            out.push_str(&piece[word.len()..]);
        }
        out
    }

    /// The kind of a word that is not shown.
    fn kind(&self, word: &str) -> Option<&'static str> {
        let bare = word.trim_matches(|letter: char| "()[]{},;:.'\"`<>=".contains(letter));
        if self.settings.contains(bare) {
            return None;
        }
        if bare.contains("://") {
            return Some("(url)");
        }
        if bare.contains('@') {
            return Some("(name)");
        }
        let is_of_system = ["/proc/", "/etc/resolv.conf", "/usr/local/share/ca-certificates"];
        if bare.starts_with('/') && !is_of_system.iter().any(|path| bare.starts_with(path)) {
            return Some("(path)");
        }
        // Colons and brackets at the ends are parts of addresses.
        let address = word.trim_matches(|letter: char| "(){},;'\"`<>=".contains(letter)).trim_end_matches(['.', ':']);
        if is_address(address) || is_address(bare) {
            return Some("(address)");
        }
        if is_host(bare) {
            return Some("(host)");
        }
        parts(bare).any(|part| self.hidden.contains(&part)).then_some("(set)")
    }
}

/// The parts of a value or a word: runs of letters that names are made of, in lower case; numbers are left out.
fn parts(text: &str) -> impl Iterator<Item = String> + '_ {
    let is_name = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.' | '$' | '%');
    let runs = text.split(move |letter| !is_name(letter)).map(|run| run.trim_matches('.'));
    runs.filter(|run| run.chars().any(char::is_alphabetic)).map(str::to_lowercase)
}

/// An address, with or without a port.
fn is_address(word: &str) -> bool {
    let without_port = word.rsplit_once(':').map_or(word, |(host, _)| host);
    // Behind an address there may be its zone or the length of a network.
    let is_ip = |part: &str| part.split(['%', '/']).next().is_some_and(|ip| ip.parse::<IpAddr>().is_ok());
    [word, without_port].iter().any(|part| is_ip(part.trim_matches(['[', ']'])))
}

/// A name with a dot in it that is no number and no file of the program.
fn is_host(word: &str) -> bool {
    let host = word.rsplit_once(':').map_or(word, |(host, _)| host);
    let is_name = |letter: char| letter.is_alphanumeric() || matches!(letter, '.' | '-' | '_' | '*');
    let Some((_, end)) = host.rsplit_once('.') else { return false };
    host.chars().all(is_name) && end.chars().any(char::is_alphabetic) && !FILES.contains(&end)
}

/// Labels whose values are words of the program. All others name hosts, files or what somebody called something.
const LABELS: [&str; 13] = [
    "answer",
    "cause",
    "coding",
    "direction",
    "le",
    "limit",
    "outcome",
    "reason",
    "result",
    "stage",
    "state",
    "thread",
    "version",
];

/// The metrics, with numbers in place of names: the same one for the same name.
pub(super) fn metrics(text: &str) -> String {
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        match line.split_once('{') {
            // A comment has no labels.
            Some((name, rest)) if !line.starts_with('#') => {
                let _ = writeln!(out, "{name}{{{}", labels(rest, &mut numbers));
            }
            _ => {
                let _ = writeln!(out, "{line}");
            }
        }
    }
    out
}

/// The labels of a sample, and what stands behind them.
fn labels(mut rest: &str, numbers: &mut BTreeMap<String, usize>) -> String {
    let mut out = String::new();
    while let Some((label, value)) = rest.split_once("=\"") {
        let Some(end) = end_of_value(value) else { break };
        let (value, behind) = value.split_at(end);
        let label_name = label.trim_start_matches([',', ' ']);
        let _ = match LABELS.contains(&label_name) {
            true => write!(out, "{label}=\"{value}\""),
            false => {
                let next = numbers.len() + 1;
                let number = numbers.entry(value.to_owned()).or_insert(next);
                write!(out, "{label}=\"{label_name}-{number}\"")
            }
        };
        rest = &behind[1..];
    }
    out + rest
}

/// The length of a label's value, up to the quotation mark that ends it.
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
    fn texts_lose_urls_paths_addresses_hosts_and_words_of_the_configuration() {
        let set = |value: &str, reported: &str| InForce {
            name: "limits.connections_max".to_owned(),
            value: value.to_owned(),
            said: "larder.toml:1".to_owned(),
            changes_at: "reload",
            reported: ("limits.connections_max".to_owned(), reported.to_owned()),
        };
        let words = Words::of(&[
            set("\"http://intranet:8080/app\"", "(set)"),
            set("[\"db1\"]", "[(set)]"),
            set("\"auto\"", "auto"),
            set("\"64MB\"", "\"64MB\""),
        ]);
        let said = "BAD   name intranet          not found: http://joe:pw@a.example/x?t=1 or www.example.org: \
                    10.1.2.3:5555 [::1]:80 (192.0.2.7) fe80::2a%eth0 10.7.0.0/16 DB1. /srv/joe/x in larder.toml, joe@example auto 64MB 1.5 seconds, raise `limits.connections_max`\n";
        let shown = words.strike(said);
        for secret in
            ["intranet", "10.1.2.3", "example", "joe", "pw", "::1", "192.0.2.7", "fe80", "eth0", "10.7", "DB1", "srv"]
        {
            assert!(!shown.contains(secret), "{secret} in {shown}");
        }
        for kept in [
            "BAD   name (set)          not found: (url) or (host)",
            "larder.toml,",
            "auto 64MB 1.5 seconds, raise `limits.connections_max`\n",
        ] {
            assert!(shown.contains(kept), "{kept} in {shown}");
        }
    }

    #[test]
    fn metrics_have_numbers_for_names() {
        let shown = metrics(
            "# HELP larder_x origin=\"a\" {b=\"c\"}\nlarder_x{origin=\"https://a.example\"} 1\nlarder_y{origin=\"https://a.example\",result=\"ok\"} 2\n\
             larder_z{rule=\"a \\\"b\\\" {c}=\\\"d\\\"\",le=\"+Inf\"} 4\nlarder_m{group=\"g\",member=\"http://10.0.0.1\"} 5\nlarder_n 6\n",
        );
        assert_eq!(
            shown,
            "# HELP larder_x origin=\"a\" {b=\"c\"}\nlarder_x{origin=\"origin-1\"} 1\nlarder_y{origin=\"origin-1\",result=\"ok\"} 2\n\
             larder_z{rule=\"rule-2\",le=\"+Inf\"} 4\nlarder_m{group=\"group-3\",member=\"member-4\"} 5\nlarder_n 6\n"
        );
    }
}
