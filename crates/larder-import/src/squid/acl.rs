//! ACLs of Squid as conditions of rules.

use super::expression::{self, Reach};
use super::translated::{LIST, Translated};
use crate::bound::{Bound, Cond};
use crate::networks;
use ipnet::IpNet;
use larder_rules::HostPattern;
use larder_rules::values::{FieldTest, PortRange, is_field_name};
use std::net::IpAddr;

/// An ACL: all lines of one name.
#[derive(Clone, Debug, Default)]
pub struct Acl {
    /// Its kind, in small letters.
    pub kind: String,
    /// Its values.
    pub values: Vec<AclValue>,
    /// The notes of its lines.
    pub notes: Vec<usize>,
    /// Files of values that lists read themselves.
    pub list_files: Vec<String>,
    /// Why its values are not all known.
    pub trouble: Option<String>,
    /// `-n` stood among its words.
    pub names_are_not_looked_up: bool,
}

impl Acl {
    /// A word about what it sees otherwise than Larder, where it is translated.
    pub fn caution(&self) -> &'static str {
        match self.kind.as_str() {
            "dstdomain" | "dstdom_regex" if !self.names_are_not_looked_up => {
                "of an address in a URL, Squid looks up the name, and Larder does not"
            }
            _ => "",
        }
    }

    /// Whether it holds for anybody who has logged in.
    pub fn asks_for_anybody(&self) -> bool {
        self.kind == "proxy_auth" && self.values.iter().all(|value| value.text == "REQUIRED")
    }
}

/// A value, and whether letters count in both cases.
#[derive(Clone, Debug, PartialEq)]
pub struct AclValue {
    /// The text.
    pub text: String,
    /// `-i` stood before it.
    pub folds_case: bool,
}

/// Values of one ACL; Larder's rules are for some, lists for many.
const HOSTS_MAX: usize = 2_000;

/// The ACLs that every Squid has.
pub fn built_in(name: &str) -> Option<Acl> {
    let (kind, values): (&str, &[&str]) = match name {
        "all" => ("src", &["all"]),
        "localhost" => ("src", &["127.0.0.1/32", "::1"]),
        "to_localhost" => ("dst", &["127.0.0.0/8", "0.0.0.0/32", "::1/128", "::/128"]),
        "to_linklocal" => ("dst", &["169.254.0.0/16", "fe80::/10"]),
        "CONNECT" => ("method", &["CONNECT"]),
        "manager" => ("manager", &[]),
        _ => return None,
    };
    let values = values.iter().map(|text| AclValue { text: (*text).to_owned(), folds_case: false }).collect();
    Some(Acl { kind: kind.to_owned(), values, ..Acl::default() })
}

/// The condition of an ACL that looks at nothing but the request and the time. `zone` is that of the machine.
pub fn translate(acl: &Acl, zone: Option<&str>) -> Translated {
    let mut translated = by_kind(acl, zone);
    if !acl.list_files.is_empty() {
        let listed = Bound::exact(Cond::atom("list", [LIST]));
        translated.bound = Bound::any([translated.bound, listed]);
    }
    if let Some(trouble) = &acl.trouble {
        translated.bound.may = Cond::True;
        translated.why = Some(trouble.clone());
    }
    translated
}

fn by_kind(acl: &Acl, zone: Option<&str>) -> Translated {
    let values = || acl.values.iter().map(|value| value.text.as_str());
    match acl.kind.as_str() {
        "src" => clients(values()),
        "dst" => destinations(values()),
        "dstdomain" => hosts(values()),
        "port" => ports(values()),
        "localport" | "myport" => listeners(values()),
        "method" => Translated::exact(Cond::atom("method", values().map(str::to_ascii_uppercase))),
        "proto" => protocols(values()),
        "time" => times(values(), zone),
        "browser" => fields("User-Agent", acl),
        "referer_regex" => fields("Referer", acl),
        "req_mime_type" => fields("Content-Type", acl),
        "req_header" => match acl.values.split_first() {
            Some((name, values)) if is_field_name(&name.text) => {
                fields(&name.text, &Acl { values: values.to_vec(), ..Acl::default() })
            }
            _ => Translated::unknown("it names no field"),
        },
        "dstdom_regex" | "url_regex" | "urlpath_regex" => expressions(acl),
        // No client's request is one that Squid makes by itself.
        "transaction_initiator" if !values().any(|value| value == "client" || value == "all") => {
            Translated::exact(Cond::False)
        }
        other => Translated::unknown(unknown_kind(other)),
    }
}

fn unknown_kind(kind: &str) -> &'static str {
    match kind {
        "srcdomain" | "srcdom_regex" => "Larder does not look up the names of clients: name their networks",
        "rep_mime_type" | "rep_header" | "rep_mime_type_regex" | "http_status" => {
            "rules see requests and not answers: a [[icap]] or a hook of answers can (docs/icap.md, docs/python.md)"
        }
        "arp" | "eui64" => "Larder does not know hardware addresses",
        "ident" | "ident_regex" => "Larder does not ask by ident",
        "proxy_auth_regex" => "users are named one by one, or by groups (rule.when.user, rule.when.group)",
        "max_user_ip" => "Larder does not count the addresses of a user",
        "random" => "nothing in Larder is decided by chance",
        "snmp_community" => "there is no SNMP; Larder has metrics",
        "ssl::server_name" | "ssl::server_name_regex" => "rules know the host of a tunnel, not its server name",
        _ => "Larder has no such matcher",
    }
}

fn clients<'a>(values: impl Iterator<Item = &'a str>) -> Translated {
    let (mut nets, mut wrong, mut is_all) = (Vec::new(), Vec::new(), false);
    for value in values {
        match value {
            "all" | "0.0.0.0/0" | "0/0" | "0.0.0.0/0.0.0.0" | "0.0.0.0" | "::/0" => is_all = true,
            "ipv4" => nets.push("0.0.0.0/0".to_owned()),
            "ipv6" => nets.push("::/0".to_owned()),
            "none" => {}
            value => match networks::parse(value) {
                Some(parsed) => nets.extend(parsed.iter().map(IpNet::to_string)),
                None => wrong.push(value.to_owned()),
            },
        }
    }
    if is_all {
        return Translated::exact(Cond::True);
    }
    match wrong.is_empty() {
        true => Translated::exact(Cond::atom("client", nets)),
        false => {
            let why = format!("{} is no network: Larder looks up no names for these", wrong.join(", "));
            Translated::partly(Cond::atom("client", nets), Cond::True, &why)
        }
    }
}

/// Networks that Larder closes by itself at each listener but those of `127.0.0.1` and `::1`.
const CLOSED: [&str; 9] = [
    "127.0.0.0/8",
    "0.0.0.0/8",
    "::1/128",
    "::/128",
    "169.254.0.0/16",
    "fe80::/10",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "ff00::/8",
];

/// The networks of an ACL about destinations, where all of its values are networks.
pub fn destinations_of(acl: &Acl) -> Option<Vec<String>> {
    if acl.kind != "dst" || acl.trouble.is_some() || acl.values.is_empty() {
        return None;
    }
    let nets = acl.values.iter().map(|value| networks::parse(&value.text));
    Some(nets.collect::<Option<Vec<_>>>()?.iter().flatten().map(IpNet::to_string).collect())
}

/// Whether an ACL is about destinations that Larder closes by itself (`access.destinations`).
pub fn is_closed_already(acl: &Acl) -> bool {
    let is_closed = |value: &AclValue| {
        let closed =
            |net: &IpNet| CLOSED.iter().any(|closed| closed.parse::<IpNet>().is_ok_and(|closed| closed.contains(net)));
        networks::parse(&value.text).is_some_and(|nets| nets.iter().all(closed))
    };
    acl.kind == "dst" && acl.trouble.is_none() && !acl.values.is_empty() && acl.values.iter().all(is_closed)
}

fn destinations<'a>(values: impl Iterator<Item = &'a str>) -> Translated {
    let mut literal = Vec::new();
    for value in values {
        if ["all", "0.0.0.0/0", "::/0"].contains(&value) {
            return Translated::exact(Cond::True);
        }
        if let Some([net]) = networks::parse(value).as_deref()
            && net.prefix_len() == net.max_prefix_len()
        {
            literal.push(match net.addr() {
                IpAddr::V4(address) => address.to_string(),
                IpAddr::V6(address) => format!("[{address}]"),
            });
        }
    }
    let why = "of destinations, a rule can but deny networks, in a line of its own (rule.when.destination): here the addresses that a name leads to are not known";
    Translated::partly(Cond::atom("host", literal), Cond::True, why)
}

fn hosts<'a>(values: impl Iterator<Item = &'a str>) -> Translated {
    let (mut patterns, mut wrong) = (Vec::new(), Vec::new());
    for value in values {
        let name = value.to_ascii_lowercase();
        let name = name.trim_end_matches('.');
        let both = match name.strip_prefix('.') {
            Some(rest) => vec![rest.to_owned(), format!("*.{rest}")],
            None if name.contains(':') && !name.starts_with('[') => vec![format!("[{name}]")],
            None => vec![name.to_owned()],
        };
        match both.iter().all(|pattern| HostPattern::parse(pattern).is_some() && !pattern.ends_with('*')) {
            true => patterns.extend(both),
            false => wrong.push(value.to_owned()),
        }
    }
    if patterns.len() > HOSTS_MAX {
        return Translated::unknown(
            "so many names belong into a file: acl NAME dstdomain \"/path\" becomes a [[list]]",
        );
    }
    match wrong.is_empty() {
        true => Translated::exact(Cond::atom("host", patterns)),
        // Such a value is no name, so that no host ever is it.
        false if wrong.iter().all(|value| value.contains(['/', '*', '@'])) => {
            let mut translated = Translated::exact(Cond::atom("host", patterns));
            translated.why =
                Some(format!("{} is no name of a host, and holds for none in Squid either", wrong.join(", ")));
            translated
        }
        false => {
            let why = format!("{} is no name of a host", wrong.join(", "));
            Translated::partly(Cond::atom("host", patterns), Cond::True, &why)
        }
    }
}

fn ports<'a>(values: impl Iterator<Item = &'a str>) -> Translated {
    let (mut ranges, mut wrong) = (Vec::new(), Vec::new());
    for value in values {
        let value = if value == "0-65535" { "1-65535" } else { value };
        match PortRange::parse(value) {
            Some(range) => ranges.push(range.to_string()),
            None if value == "0" => {}
            None => wrong.push(value.to_owned()),
        }
    }
    match wrong.is_empty() {
        true => Translated::exact(Cond::atom("port", ranges)),
        false => {
            let why = format!("{} is no port", wrong.join(", "));
            Translated::partly(Cond::atom("port", ranges), Cond::True, &why)
        }
    }
}

fn listeners<'a>(values: impl Iterator<Item = &'a str>) -> Translated {
    let mut listeners = Vec::new();
    for value in values {
        match PortRange::parse(value).filter(|range| range.last - range.first < 64) {
            Some(range) => listeners.extend((range.first..=range.last).map(|port| format!(":{port}"))),
            None => return Translated::unknown("it is no port of a listener"),
        }
    }
    Translated::exact(Cond::atom("listener", listeners))
}

fn protocols<'a>(values: impl Iterator<Item = &'a str>) -> Translated {
    let connect = || Cond::atom("method", ["CONNECT"]);
    let bounds = values.map(|value| match value.to_ascii_lowercase().as_str() {
        "http" => Bound::exact(Cond::atom("scheme", ["http"])),
        "https" => Bound {
            must: Cond::all([Cond::atom("scheme", ["https"]), connect().negated()]),
            may: Cond::atom("scheme", ["https"]),
        },
        "none" => Bound { must: Cond::False, may: connect() },
        // A request for any other scheme is refused before a rule is asked.
        _ => Bound::exact(Cond::False),
    });
    Translated { bound: Bound::any(bounds), why: None }
}

const DAYS: [(char, &str); 7] =
    [('M', "Mon"), ('T', "Tue"), ('W', "Wed"), ('H', "Thu"), ('F', "Fri"), ('A', "Sat"), ('S', "Sun")];

/// `MTWHF 08:00-17:00`: a line of an ACL has days, or times, or both; the values of all lines stand here one behind the other.
fn times<'a>(values: impl Iterator<Item = &'a str>, zone: Option<&str>) -> Translated {
    let mut windows: Vec<String> = Vec::new();
    let mut days: Option<String> = None;
    for value in values {
        if value.starts_with(|first: char| first.is_ascii_digit()) {
            let Some(hours) = hours(value) else { return Translated::unknown("it is no time of the day") };
            windows.push(days.take().map_or(hours.clone(), |days| format!("{days} {hours}")));
        } else {
            windows.extend(days.take());
            let Some(named) = weekdays(value) else { return Translated::unknown("these are no days of the week") };
            days = Some(named);
        }
    }
    windows.extend(days);
    let cond = Cond::atom_of("time", zone.unwrap_or_default(), windows);
    match zone {
        Some(_) => Translated::exact(cond),
        None => Translated {
            why: Some(
                "the time zone of the machine is not known, so that times are UTC: write rule.when.zone".to_owned(),
            ),
            bound: Bound::unknown(),
        },
    }
}

fn weekdays(text: &str) -> Option<String> {
    let mut named = Vec::new();
    for letter in text.chars() {
        match letter {
            'D' => named.extend(DAYS.iter().take(5).map(|(_, day)| *day)),
            letter => named.push(DAYS.iter().find(|(known, _)| *known == letter)?.1),
        }
    }
    (!named.is_empty()).then(|| named.join(","))
}

/// The last minute belongs to a time in Squid.
fn hours(text: &str) -> Option<String> {
    let (from, until) = text.split_once('-')?;
    let minutes = |text: &str| {
        let (hour, minute) = text.split_once(':')?;
        let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
        (hour <= 24 && minute < 60).then(|| hour * 60 + minute)
    };
    let (from, until) = (minutes(from)?, (minutes(until)? + 1).min(24 * 60));
    (from < until).then(|| format!("{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, until / 60, until % 60))
}

fn fields(name: &str, acl: &Acl) -> Translated {
    let mut tests = Vec::new();
    for value in &acl.values {
        let folds_case = if value.folds_case { "(?i)" } else { "" };
        match expression::same(&value.text).map(|same| format!("~{folds_case}{same}")) {
            Some(test) if FieldTest::parse(&test).is_ok() => tests.push(test),
            _ => return Translated::unknown("an expression that can't be said in Larder's syntax"),
        }
    }
    Translated::exact(Cond::atom_of("field", name, tests))
}

/// Expressions that one ACL may have: all of a table are held against a text at once, in memory that has a bound.
const EXPRESSIONS_MAX: usize = 2_000;

fn expressions(acl: &Acl) -> Translated {
    if acl.values.len() > EXPRESSIONS_MAX {
        return Translated::unknown(
            "so many expressions belong into a list: a [[list]] of the format squidguard with a file `expressions` (docs/lists.md)",
        );
    }
    let reach = match acl.kind.as_str() {
        "dstdom_regex" => Reach::Host,
        "url_regex" => Reach::Url,
        _ => Reach::Path,
    };
    let (mut bounds, mut whys) = (Vec::new(), Vec::new());
    for value in &acl.values {
        let translated = expression::translate(&value.text, value.folds_case, reach);
        bounds.push(translated.bound);
        whys.extend(translated.why);
    }
    whys.sort();
    whys.dedup();
    let why = (!whys.is_empty()).then(|| whys.join("; "));
    Translated { bound: Bound::any(bounds), why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

    fn acl(kind: &str, values: &str) -> Acl {
        let values =
            values.split_whitespace().map(|text| AclValue { text: text.to_owned(), folds_case: false }).collect();
        Acl { kind: kind.to_owned(), values, ..Acl::default() }
    }

    fn shown(cond: &Cond) -> String {
        cond.when().map_or("never".to_owned(), |when| Value::from(when).to_string())
    }

    #[test]
    fn kinds_that_are_said_exactly() {
        for (kind, values, wanted) in [
            ("src", "10.0.0.0/8 192.168.1.7", "{ client = [\"10.0.0.0/8\", \"192.168.1.7/32\"] }"),
            ("src", "10.1.2.3/255.255.0.0", "{ client = \"10.1.0.0/16\" }"),
            ("src", "10.0.0.4-10.0.0.7", "{ client = \"10.0.0.4/30\" }"),
            ("src", "all", "{ }"),
            ("dstdomain", ".Example.com a.test", "{ host = [\"example.com\", \"*.example.com\", \"a.test\"] }"),
            ("port", "80 1025-65535", "{ port = [\"80\", \"1025-65535\"] }"),
            ("myport", "3128", "{ listener = \":3128\" }"),
            ("method", "get POST", "{ method = [\"GET\", \"POST\"] }"),
            ("proto", "HTTP", "{ scheme = \"http\" }"),
            ("proto", "FTP", "never"),
            ("time", "MTWHF 08:00-17:00", "{ time = \"Mon,Tue,Wed,Thu,Fri 08:00-17:01\", zone = \"UTC\" }"),
            ("time", "D 00:00-24:00", "{ time = \"Mon,Tue,Wed,Thu,Fri 00:00-24:00\", zone = \"UTC\" }"),
            ("time", "SA", "{ time = \"Sun,Sat\", zone = \"UTC\" }"),
            ("browser", "^Curl", "{ field = { User-Agent = \"~^Curl\" } }"),
            ("req_header", "X-A b+", "{ field = { X-A = \"~b+\" } }"),
            ("urlpath_regex", "", "never"),
            ("url_regex", "casino ^bank:443$", "{ url_regex = [\"casino\", \"^bank:443$\"] }"),
            ("urlpath_regex", "^/a[.]mp3", "{ target_regex = \"^/a[.]mp3\" }"),
            ("dstdom_regex", "^ads", "{ host_regex = \"^ads\" }"),
        ] {
            let translated = translate(&acl(kind, values), Some("UTC"));
            assert!(translated.bound.is_exact(), "{kind} {values}: {translated:?}");
            assert_eq!(shown(&translated.bound.must), wanted, "{kind} {values}");
        }
    }

    #[test]
    fn the_rest_is_in_doubt() {
        for (kind, values, must) in [
            ("src", "10.0.0.0/8 pc.example", "{ client = \"10.0.0.0/8\" }"),
            ("dst", "10.1.2.3 10.0.0.0/8", "{ host = \"10.1.2.3\" }"),
            ("dstdomain", "a&b%zz.test [x", "never"),
            ("port", "http", "never"),
            ("time", "25:00-26:00", "never"),
            ("time", "Q", "never"),
            ("browser", "(", "never"),
            ("req_header", "", "never"),
            ("arp", "00:11:22:33:44:55", "never"),
            ("rep_mime_type", "video", "never"),
        ] {
            let translated = translate(&acl(kind, values), Some("UTC"));
            assert_eq!(translated.bound.may, Cond::True, "{kind} {values}");
            assert!(translated.why.is_some(), "{kind} {values}");
            if kind != "dstdomain" {
                assert_eq!(shown(&translated.bound.must), must, "{kind} {values}");
            }
        }
        let no_zone = translate(&acl("time", "MTW"), None);
        assert!(!no_zone.bound.is_exact() && no_zone.why.unwrap().contains("UTC"));
        let broken = Acl { trouble: Some("gone".to_owned()), ..acl("port", "80") };
        assert_eq!(translate(&broken, None).bound.may, Cond::True);
    }

    #[test]
    fn destinations_that_are_closed_in_any_case() {
        assert!(is_closed_already(&built_in("to_localhost").unwrap()));
        assert!(is_closed_already(&built_in("to_linklocal").unwrap()));
        assert!(is_closed_already(&acl("dst", "127.0.0.0/8 0.0.0.0/32")));
        assert!(!is_closed_already(&acl("dst", "127.0.0.0/8 10.0.0.0/8")) && !is_closed_already(&acl("dst", "")));
    }
}
