//! The text of `/metrics`, held against the rules of Prometheus' text format (version 0.0.4) and of its linter.

use super::stand::{self, ask, body};
use std::collections::{BTreeMap, BTreeSet};

/// One family as it was read.
#[derive(Default)]
struct Family<'a> {
    help: &'a str,
    kind: &'a str,
    samples: Vec<Sample<'a>>,
}

struct Sample<'a> {
    name: &'a str,
    labels: BTreeMap<&'a str, String>,
    value: f64,
}

type Families<'a> = BTreeMap<&'a str, Family<'a>>;

/// Reads a text, or says what is wrong with it.
fn read(text: &str) -> Result<Families<'_>, String> {
    if !text.ends_with('\n') {
        return Err("the last line has no end".to_owned());
    }
    let mut families = Families::new();
    let mut current = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').ok_or(format!("no help: {line}"))?;
            if families.insert(name, Family { help, ..Family::default() }).is_some() {
                return Err(format!("HELP twice, or a family in two places: {line}"));
            }
            current = name;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or(format!("no type: {line}"))?;
            let family = families.get_mut(name).filter(|_| name == current).ok_or(format!("no HELP before: {line}"))?;
            if !family.kind.is_empty() || !family.samples.is_empty() {
                return Err(format!("TYPE twice or too late: {line}"));
            }
            family.kind = kind;
        } else if !line.starts_with('#') {
            let sample = sample(line).ok_or(format!("no sample: {line:?}"))?;
            let family = families.get_mut(current).ok_or(format!("no family: {line}"))?;
            if !belongs(current, family.kind, sample.name) {
                return Err(format!("a sample of another family than {current}: {line}"));
            }
            family.samples.push(sample);
        }
    }
    Ok(families)
}

fn belongs(family: &str, kind: &str, name: &str) -> bool {
    match (kind, name.strip_prefix(family)) {
        ("counter" | "gauge", Some(rest)) => rest.is_empty(),
        ("histogram", Some(rest)) => ["_bucket", "_sum", "_count"].contains(&rest),
        _ => false,
    }
}

/// `name{label="value",…} value`
fn sample(line: &str) -> Option<Sample<'_>> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            if !is_label(label) || labels.insert(label, value).is_some() {
                return None;
            }
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = rest.strip_prefix('}')?;
    }
    let value = rest.strip_prefix(' ')?;
    let plain = !value.is_empty() && !value.contains(' ') && is_name(name);
    Some(Sample { name, labels, value: value.parse().ok().filter(|_| plain)? })
}

/// The value of a label up to its quotation mark; only `\\`, `\"` and `\n` are escapes.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match letters.next()?.1 {
                'n' => '\n',
                same @ ('\\' | '"') => same,
                _ => return None,
            }),
            letter => value.push(letter),
        }
    }
    None
}

fn is_name(text: &str) -> bool {
    let proper = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':';
    text.bytes().all(proper) && !text.is_empty() && !text.as_bytes()[0].is_ascii_digit()
}

fn is_label(text: &str) -> bool {
    is_name(text) && !text.contains(':') && !text.starts_with("__")
}

/// All that is wrong with the families, one line each.
fn faults(families: &Families<'_>) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, family) in families {
        let mut say = |what: String| faults.push(format!("{name}: {what}"));
        if !is_name(name) || name.contains(':') || name.chars().any(|letter| letter.is_ascii_uppercase()) {
            say("not a name in snake_case".to_owned());
        }
        if family.help.is_empty() || !family.help.ends_with('.') {
            say("no sentence of help".to_owned());
        }
        if (family.kind == "counter") != name.ends_with("_total") {
            say(format!("a {} with this ending", family.kind));
        }
        for ending in ["_count", "_sum", "_bucket", "_info_total", "_gauge", "_counter", "_histogram"] {
            if name.ends_with(ending) {
                say(format!("ends in {ending}"));
            }
        }
        for unit in ["milliseconds", "millis", "micros", "minutes", "kilobytes", "megabytes", "kb", "percent", "kib"] {
            if name.split('_').any(|part| part == unit) {
                say(format!("{unit} is no base unit"));
            }
        }
        let series: BTreeSet<_> = family.samples.iter().map(|sample| (sample.name, &sample.labels)).collect();
        if series.len() != family.samples.len() {
            say("a series twice".to_owned());
        }
        let names: BTreeSet<(&str, Vec<&&str>)> =
            family.samples.iter().map(|sample| (sample.name, sample.labels.keys().collect())).collect();
        if names.len() > if family.kind == "histogram" { 3 } else { 1 } {
            say("samples with different labels".to_owned());
        }
        for sample in &family.samples {
            if !(sample.value.is_finite() && (family.kind == "gauge" || sample.value >= 0.0)) {
                say(format!("the value {}", sample.value));
            }
            if sample.labels.values().any(String::is_empty) {
                say("an empty label".to_owned());
            }
        }
        if family.kind == "histogram" {
            histogram(name, family).into_iter().for_each(say);
        }
    }
    faults
}

/// The faults of a histogram: each of its series needs rising bounds, rising counts, `+Inf`, `_sum` and `_count`.
fn histogram(name: &str, family: &Family<'_>) -> Vec<String> {
    let mut faults = Vec::new();
    let mut buckets: BTreeMap<BTreeMap<&str, String>, Vec<(f64, f64)>> = BTreeMap::new();
    for sample in family.samples.iter().filter(|sample| sample.name.ends_with("_bucket")) {
        let mut labels = sample.labels.clone();
        match labels.remove("le").as_deref().map(str::parse) {
            Some(Ok(bound)) => buckets.entry(labels).or_default().push((bound, sample.value)),
            _ => faults.push("a bucket without a bound".to_owned()),
        }
    }
    let one = |ending: &str, labels: &BTreeMap<&str, String>| {
        let wanted = format!("{name}{ending}");
        family.samples.iter().find(|sample| sample.name == wanted && sample.labels == *labels).map(|found| found.value)
    };
    for (labels, bounds) in &buckets {
        if !bounds.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1) {
            faults.push(format!("buckets that do not rise: {labels:?}"));
        }
        let last = bounds.last().filter(|(bound, _)| *bound == f64::INFINITY).map(|(_, many)| *many);
        if last.is_none() || one("_count", labels) != last || one("_sum", labels).is_none() {
            faults.push(format!("no +Inf, _sum or _count that fits: {labels:?}"));
        }
    }
    let others = family.samples.iter().filter(|sample| !sample.name.ends_with("_bucket"));
    if others.clone().any(|sample| sample.labels.contains_key("le")) || others.count() != 2 * buckets.len() {
        faults.push("sums without buckets".to_owned());
    }
    faults
}

/// The samples of a text that must be without fault: the name with its labels as written, and the value.
pub fn samples(text: &str) -> BTreeMap<String, f64> {
    let families = read(text).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(faults(&families), [""; 0]);
    let lines = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
    lines.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
}

#[test]
fn the_rules_find_what_they_are_for() {
    let head = "# HELP a_total Sentence.\n# TYPE a_total counter\n";
    let histogram = "# HELP h_seconds Sentence.\n# TYPE h_seconds histogram\n";
    for (text, wrong) in [
        (format!("{head}a_total 1\n"), ""),
        (format!("{head}a_total{{b=\"x\\\\y\\\"z\\n\"}} 1\n"), ""),
        (format!("{head}a_total{{b=\"1\"}} 1\na_total{{b=\"2\"}} 1\n"), ""),
        (
            format!(
                "{histogram}h_seconds_bucket{{le=\"0.1\"}} 1\nh_seconds_bucket{{le=\"+Inf\"}} 2\nh_seconds_sum 1\nh_seconds_count 2\n"
            ),
            "",
        ),
        (format!("{head}a_total 1"), "no end"),
        (format!("{head}a_total -1\n"), "the value"),
        (format!("{head}a_total NaN\n"), "the value"),
        (format!("{head}a_total  1\n"), "no sample"),
        (format!("{head}a_total 1 1 1\n"), "no sample"),
        (format!("{head}a_total{{b=\"\\x\"}} 1\n"), "no sample"),
        (format!("{head}a_total{{b=\"1\",b=\"2\"}} 1\n"), "no sample"),
        (format!("{head}a_total{{__b=\"1\"}} 1\n"), "no sample"),
        (format!("{head}a_total{{b=\"\"}} 1\n"), "empty label"),
        (format!("{head}a_total 1\na_total 1\n"), "twice"),
        (format!("{head}a_total 1\na_total{{b=\"1\"}} 1\n"), "different labels"),
        (format!("{head}b_total 1\n"), "another family"),
        (format!("{head}{head}a_total 1\n"), "twice"),
        ("a_total 1\n".to_owned(), "no family"),
        ("# TYPE a_total counter\na_total 1\n".to_owned(), "no HELP"),
        ("# HELP a_total Sentence.\na_total 1\n".to_owned(), "another family"),
        ("# HELP a_total Words\n# TYPE a_total counter\na_total 1\n".to_owned(), "sentence"),
        ("# HELP a Sentence.\n# TYPE a counter\na 1\n".to_owned(), "this ending"),
        ("# HELP a_total Sentence.\n# TYPE a_total gauge\na_total 1\n".to_owned(), "this ending"),
        ("# HELP a_millis Sentence.\n# TYPE a_millis gauge\na_millis 1\n".to_owned(), "base unit"),
        (
            format!(
                "{histogram}h_seconds_bucket{{le=\"0.1\"}} 3\nh_seconds_bucket{{le=\"+Inf\"}} 2\nh_seconds_sum 1\nh_seconds_count 2\n"
            ),
            "do not rise",
        ),
        (format!("{histogram}h_seconds_bucket{{le=\"0.1\"}} 1\nh_seconds_sum 1\nh_seconds_count 1\n"), "+Inf"),
        (format!("{histogram}h_seconds_bucket{{le=\"+Inf\"}} 2\nh_seconds_sum 1\nh_seconds_count 1\n"), "that fits"),
        (format!("{histogram}h_seconds_bucket{{le=\"+Inf\"}} 2\nh_seconds_count 2\n"), "_sum"),
        (format!("{histogram}h_seconds_sum 1\nh_seconds_count 1\n"), "without buckets"),
    ] {
        let found = read(&text).map_or_else(|wrong| vec![wrong], |families| faults(&families)).join("\n");
        assert!(
            if wrong.is_empty() { found.is_empty() } else { found.contains(wrong) },
            "{text}{found:?}, not {wrong:?}"
        );
    }
}

#[test]
fn the_text_is_without_fault_before_and_after_requests() {
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), "disk = \"64MB\"");
    let (proxy, admin, origin) = (server.addresses()[0], server.admin().unwrap(), stand::origin());
    let before = samples(body(&ask(admin, "/metrics")));
    for path in ["fresh", "fresh", "none", "none", "none"] {
        stand::get(proxy, &format!("http://{origin}/{path}"));
    }
    let upstream = format!("larder_upstream_connections_opened_total{{origin=\"http://{origin}\"}}");
    stand::wait_for("counts", || {
        let now = samples(body(&ask(admin, "/metrics")));
        now["larder_requests_total{outcome=\"miss\"}"] == 4.0 && now.get(&upstream).is_some_and(|&opened| opened > 0.0)
    });
    let answer = ask(admin, "/metrics");
    assert!(
        answer.contains("\r\nContent-Type: text/plain; version=0.0.4"),
        "{}",
        answer.split("\r\n\r\n").next().unwrap()
    );
    let samples = samples(body(&answer));
    assert_eq!(samples["larder_requests_total{outcome=\"hit\"}"], 1.0);
    let causes = samples.iter().filter(|(name, _)| name.starts_with("larder_misses_total"));
    assert_eq!(causes.map(|(_, many)| many).sum::<f64>(), 4.0);
    assert_eq!(samples["larder_response_body_bytes_total{outcome=\"hit\"}"], "/fresh".len() as f64);
    assert_eq!(samples["larder_request_duration_seconds_count{outcome=\"miss\"}"], 4.0);
    assert_eq!(samples["larder_request_duration_seconds_bucket{outcome=\"miss\",le=\"+Inf\"}"], 4.0);
    assert!(samples["larder_request_duration_seconds_sum{outcome=\"miss\"}"] > 0.0);
    assert_eq!(samples["larder_workers"], 2.0);
    assert!(samples["process_open_fds"] > 0.0);
    assert!(samples.len() < 600, "label sets are bounded: {}", samples.len());
    // A series that comes with the first request would be missed by `rate()`.
    let born = samples.keys().filter(|name| !before.contains_key(*name) && !name.contains("{origin="));
    assert_eq!(born.collect::<Vec<_>>(), [""; 0]);
    let fallen = before.iter().filter(|(name, old)| name.contains("_total") && samples[*name] < **old);
    assert_eq!(fallen.count(), 0);
}
