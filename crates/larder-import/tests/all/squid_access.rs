//! Squid's judgement of `http_access`, as a naive evaluation of a random configuration, against Larder's judgement by the rules that come of
//! it: nothing is allowed that Squid denies, and where all ACLs of a configuration can be said, both are the same.

use crate::judged::{Judge, Request};
use larder_import::{Format, NoFiles, Settings, import};
use proptest::prelude::*;
use std::fmt::Write;
use std::net::IpAddr;

/// The ACLs from which configurations are drawn: name, text, and whether Larder says it exactly.
const ACLS: [(&str, &str, bool); 16] = [
    ("lan", "src 10.0.0.0/8 192.168.1.0/255.255.255.0", true),
    ("pc", "src 10.1.2.3-10.1.2.5", true),
    ("good", "dstdomain .good.test www.fine.test", true),
    ("bad", "dstdomain .bad.test", true),
    ("safe", "port 80 443 1025-65535", true),
    ("ssl", "port 443", true),
    ("post", "method POST PUT", true),
    ("hours", "time MTWHF 08:00-17:00", true),
    ("curl", "browser -i ^curl", true),
    ("plain", "proto HTTP", true),
    ("server", "dst 10.9.9.9 172.16.0.0/12", false),
    ("media", "urlpath_regex -i \\.(mp3|mp4)$", true),
    ("words", "url_regex -i casino|:8080", true),
    ("shops", "dstdom_regex (^|\\.)shop\\.test$", true),
    ("ads", "dstdom_regex ^ads", true),
    ("machine", "arp 00:11:22:33:44:55", false),
];

/// Whether an ACL holds for a request, read off the text above. The addresses of the hosts are those of `address_of`.
fn holds(name: &str, request: &Request) -> bool {
    let in_net = |text: &str, address: IpAddr| larder_rules::network(text).unwrap().contains(&address);
    let below = |host: &str, domain: &str| host == domain || host.ends_with(&format!(".{domain}"));
    let host = request.host.as_str();
    let is_connect = request.method == "CONNECT";
    // Squid undoes encodings once before it looks for expressions.
    let path = if is_connect { "" } else { &request.path.replace("%63", "c").replace("%6D", "m").replace("%25", "%") };
    let usual = if request.scheme == "http" { 80 } else { 443 };
    let url = match (is_connect, request.port == usual) {
        (true, _) => format!("{host}:{}", request.port),
        (false, true) => format!("{}://{host}{path}", request.scheme),
        (false, false) => format!("{}://{host}:{}{path}", request.scheme, request.port),
    };
    match name {
        "all" => true,
        "CONNECT" => is_connect,
        "localhost" => request.client.is_loopback(),
        "lan" => in_net("10.0.0.0/8", request.client) || in_net("192.168.1.0/24", request.client),
        "pc" => ["10.1.2.3", "10.1.2.4", "10.1.2.5"].iter().any(|text| text.parse() == Ok(request.client)),
        "good" => below(host, "good.test") || host == "www.fine.test",
        "bad" => below(host, "bad.test"),
        "safe" => [80, 443].contains(&request.port) || request.port >= 1025,
        "ssl" => request.port == 443,
        "post" => ["POST", "PUT"].contains(&request.method),
        "hours" => {
            // 1970-01-01 was a Thursday; the last minute belongs to the time.
            let (day, minute) = ((request.minute / 1_440 + 3) % 7, request.minute % 1_440);
            day < 5 && (8 * 60..=17 * 60).contains(&minute)
        }
        "curl" => {
            request.fields.iter().any(|(name, value)| *name == "User-Agent" && value.to_lowercase().starts_with("curl"))
        }
        "plain" => !is_connect && request.scheme == "http",
        "server" => {
            let address = address_of(host);
            address == "10.9.9.9".parse::<IpAddr>().unwrap() || in_net("172.16.0.0/12", address)
        }
        "media" => path.to_lowercase().ends_with(".mp3") || path.to_lowercase().ends_with(".mp4"),
        "words" => url.to_lowercase().contains("casino") || url.contains(":8080"),
        "shops" => below(host, "shop.test"),
        "ads" => host.starts_with("ads"),
        // Squid knows the client's hardware address: half of the clients have this one.
        "machine" => request.client.to_string().ends_with('3'),
        other => panic!("{other}"),
    }
}

fn address_of(host: &str) -> IpAddr {
    host.parse().unwrap_or_else(|_| if host.contains("good") { "172.16.5.5" } else { "203.0.113.9" }.parse().unwrap())
}

/// A line: whether it allows, and its ACLs, negated or not.
type Line = (bool, Vec<(bool, String)>);

/// Squid: the first line of which all ACLs hold decides; otherwise the opposite of the last one.
fn squid_allows(lines: &[Line], request: &Request) -> bool {
    for (allows, acls) in lines {
        let mut all = true;
        for (is_negated, name) in acls {
            let holds = match name.as_str() {
                // Without a credential the client is asked for one, and not served.
                "users" if request.user.is_none() => return false,
                "users" => true,
                "bosses" if request.user.is_none() => return false,
                "bosses" => request.user == Some("ada"),
                name => holds(name, request),
            };
            if holds == *is_negated {
                all = false;
                break;
            }
        }
        if all {
            return *allows;
        }
    }
    lines.last().is_some_and(|(allows, _)| !allows)
}

fn config(lines: &[Line], with_login: bool) -> String {
    let mut text = "http_port 3128\n".to_owned();
    for (name, acl, _) in ACLS {
        _ = writeln!(text, "acl {name} {acl}");
    }
    if with_login {
        text += "auth_param basic program /usr/lib/squid/basic_ncsa_auth /etc/squid/users\n";
        text += "acl users proxy_auth REQUIRED\nacl bosses proxy_auth ada\n";
    }
    for (allows, acls) in lines {
        let acls: Vec<String> =
            acls.iter().map(|(is_negated, name)| format!("{}{name}", if *is_negated { "!" } else { "" })).collect();
        _ = writeln!(text, "http_access {} {}", if *allows { "allow" } else { "deny" }, acls.join(" "));
    }
    text
}

fn lines(names: Vec<&'static str>) -> impl Strategy<Value = Vec<Line>> {
    let acl = (any::<bool>(), prop::sample::select(names).prop_map(str::to_owned));
    prop::collection::vec((any::<bool>(), prop::collection::vec(acl, 1..4)), 0..7)
}

fn request() -> impl Strategy<Value = Request> {
    let clients = ["10.1.2.3", "10.1.2.9", "192.168.1.7", "8.8.8.8", "127.0.0.1", "172.16.1.3"];
    let hosts = [
        "good.test",
        "a.good.test",
        "www.fine.test",
        "bad.test",
        "x.bad.test",
        "10.9.9.9",
        "ads.test",
        "casino.test",
        "my.shop.test",
        "notshop.test",
    ];
    let paths = [
        "/",
        "/a.MP3",
        "/a.mp3?x=1",
        "/get?f=a.mp4",
        "/casino",
        "/x?q=casino",
        "/;%63asino",
        "/%2563asino",
        "/x?f=a.%6Dp3",
    ];
    let ports = [80_u16, 443, 22, 8080, 563];
    (
        prop::sample::select(clients.to_vec()),
        prop::sample::select(hosts.to_vec()),
        prop::sample::select(paths.to_vec()),
        prop::sample::select(ports.to_vec()),
        prop::sample::select(vec!["GET", "POST", "CONNECT"]),
        prop::sample::select(vec!["http", "https"]),
        prop::sample::select(vec!["curl/8", "Mozilla/5.0"]),
        0_i64..20_160,
        prop::sample::select(vec![None, Some("ada"), Some("bob")]),
    )
        .prop_map(|(client, host, path, port, method, scheme, agent, minute, user)| Request {
            client: client.parse().unwrap(),
            method,
            scheme: if method == "CONNECT" { "https" } else { scheme },
            host: host.to_owned(),
            address: Some(address_of(host)),
            port,
            path: path.to_owned(),
            fields: vec![("User-Agent", agent.to_owned())],
            minute,
            listener: "0.0.0.0:3128".parse().unwrap(),
            user,
        })
}

fn judge(text: &str) -> (Judge, String) {
    let settings = Settings { format: Format::Squid, name: "squid.conf".to_owned(), zone: Some("UTC".to_owned()) };
    let imported = import(text, &settings, &mut NoFiles);
    (Judge::of(&imported), imported.toml)
}

fn names_of(exact_alone: bool, with_login: bool) -> Vec<&'static str> {
    let mut names: Vec<&str> =
        ACLS.iter().filter(|(_, _, exact)| *exact || !exact_alone).map(|(name, ..)| *name).collect();
    names.extend(["all", "CONNECT", "localhost"]);
    if with_login {
        names.extend(["users", "users", "bosses"]);
    }
    names
}

fn cases() -> u32 {
    std::env::var("IMPORT_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(400)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    /// Where every ACL can be said, the verdicts are the same.
    #[test]
    fn exact_configurations_are_judged_alike(
        lines in lines(names_of(true, false)),
        requests in prop::collection::vec(request(), 60),
    ) {
        let text = config(&lines, false);
        let (judge, toml) = judge(&text);
        for request in &requests {
            prop_assert_eq!(judge.allows(request), squid_allows(&lines, request), "{}\n{:?}\n{}", text, request, toml);
        }
    }

    /// Nothing is allowed that Squid denies, whatever can't be said.
    #[test]
    fn nothing_is_allowed_that_squid_denies(
        lines in lines(names_of(false, false)),
        requests in prop::collection::vec(request(), 60),
    ) {
        let text = config(&lines, false);
        let (judge, toml) = judge(&text);
        for request in &requests {
            prop_assert!(!judge.allows(request) || squid_allows(&lines, request), "{}\n{:?}\n{}", text, request, toml);
        }
    }

    /// The same with logins, of all who use the proxy or of single lines.
    #[test]
    fn no_login_is_lost(
        lines in lines(names_of(false, true)),
        requests in prop::collection::vec(request(), 60),
    ) {
        let text = config(&lines, true);
        let (judge, toml) = judge(&text);
        for request in &requests {
            prop_assert!(!judge.allows(request) || squid_allows(&lines, request), "{}\n{:?}\n{}", text, request, toml);
        }
    }
}
