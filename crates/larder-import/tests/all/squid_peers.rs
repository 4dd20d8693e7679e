//! Parents and siblings of a Squid.

use larder_import::{Fate, Format, Imported, NoFiles, Settings, import};

const HEAD: &str = "http_port 3128\nacl lan src 10.0.0.0/8\nacl inner dstdomain .corp.test\nacl near dst 10.0.0.0/8\nhttp_access allow lan\n";

fn imported(lines: &str) -> Imported {
    let settings = Settings { format: Format::Squid, name: "source".to_owned(), zone: None };
    let imported = import(&format!("{HEAD}{lines}"), &settings, &mut NoFiles);
    imported.toml.parse::<toml::Table>().unwrap_or_else(|error| panic!("{error}\n{}", imported.toml));
    imported
}

fn fate(imported: &Imported, directive: &str) -> Fate {
    imported.notes.iter().find(|note| note.source.starts_with(directive)).map(|note| note.fate).unwrap()
}

#[test]
fn parents_and_siblings_become_tables() {
    let imported = imported(
        "cache_peer far.test parent 8080 0 no-query default name=last\ncache_peer 10.0.0.7 parent 3128 3130 no-digest login=joe:pear\n\
         cache_peer 10.0.0.8 sibling 3128 4827 htcp no-digest\nnever_direct allow all\nalways_direct allow inner\n",
    );
    let toml: toml::Table = imported.toml.parse().unwrap();
    let text = |value: &toml::Value| value.to_string();
    let parents: Vec<String> = toml["parent"].as_array().unwrap().iter().map(text).collect();
    assert_eq!(parents.len(), 2, "{}", imported.toml);
    for part in ["url = \"http://10.0.0.7:3128\"", "icp_port = 3130", "user = \"joe\"", "password = \"pear\""] {
        assert!(parents[0].contains(part), "{part}: {}", parents[0]);
    }
    assert!(parents[1].contains("http://far.test:8080") && !parents[1].contains("port"), "{}", parents[1]);
    let sibling = text(&toml["sibling"][0]);
    assert!(sibling.contains("http://10.0.0.8:3128") && sibling.contains("htcp_port = 4827"), "{sibling}");
    assert_eq!(text(&toml["forward"]["parents"]), "[\"n10.0.0.7\", \"last\"]", "the default is the last one");
    assert_eq!(text(&toml["forward"]["direct"]), "[\"corp.test\", \"*.corp.test\"]");
    for directive in ["cache_peer far", "cache_peer 10.0.0.7", "cache_peer 10.0.0.8", "never_direct", "always_direct"] {
        assert_eq!(fate(&imported, directive), Fate::Translated, "{directive}\n{}", imported.toml);
    }
    let comments = imported.toml.lines().filter(|line| line.starts_with('#'));
    assert!(!comments.into_iter().any(|line| line.contains("pear")), "{}", imported.toml);
}

#[test]
fn lines_that_say_more_than_larder_does_are_named() {
    const PARENT: &str = "cache_peer p.test parent 3128 0 no-query\n";
    for (lines, directive, wanted) in [
        // Squid asks the origin where the parent is away.
        (PARENT, "cache_peer", Fate::Different),
        ("cache_peer p.test parent 3128 0 no-query carp\nnever_direct allow all\n", "cache_peer", Fate::Translated),
        ("cache_peer 10.0.0.1 parent 3128 0 no-query carp\nnever_direct allow all\n", "cache_peer", Fate::Different),
        (
            "cache_peer p.test parent 3128 0 no-query carp\ncache_peer q.test parent 3128 0 no-query\nnever_direct allow all\n",
            "cache_peer p",
            Fate::Different,
        ),
        (
            "cache_peer p.test parent 3128 0 no-query carp weight=2\nnever_direct allow all\n",
            "cache_peer",
            Fate::Different,
        ),
        ("cache_peer p.test parent 3128 0 no-query\nnonhierarchical_direct off\n", "cache_peer", Fate::Translated),
        ("cache_peer p.test parent 3128 0 no-query tls\nnever_direct allow all\n", "cache_peer", Fate::Translated),
        ("cache_peer p.test parent 3128 0 no-query ssl sslflags=DONT_VERIFY_PEER\n", "cache_peer", Fate::Missing),
        ("cache_peer p.test sibling 3128 3130 tls\n", "cache_peer", Fate::Missing),
        ("cache_peer p.test parent 0 0 no-query\n", "cache_peer", Fate::Missing),
        ("cache_peer p.test multicast 3128 3130 ttl=16\n", "cache_peer", Fate::Missing),
        ("cache_peer p.test sibling 3128 0 no-query\n", "cache_peer", Fate::Missing),
        ("cache_peer p.test sibling 3128 4827 htcp=oldsquid\n", "cache_peer", Fate::Missing),
        ("cache_peer p.test parent 3128 7 \nnever_direct allow all\n", "cache_peer", Fate::Different),
        ("cache_peer p.test parent 3128 0 login=PASSTHRU\nnever_direct allow all\n", "cache_peer", Fate::Different),
        ("prefer_direct on\n", "prefer_direct", Fate::NotNeeded),
        ("always_direct allow inner\n", "always_direct", Fate::NotNeeded),
    ] {
        let imported = imported(lines);
        assert_eq!(fate(&imported, directive), wanted, "{lines}\n{}", imported.toml);
    }
    for (line, wanted) in [
        ("prefer_direct on\n", Fate::Different),
        ("prefer_direct off\n", Fate::Translated),
        ("never_direct allow inner\n", Fate::Translated),
        ("never_direct allow near\n", Fate::Different),
        ("always_direct allow near\n", Fate::Different),
        ("always_direct deny inner\nalways_direct allow all\n", Fate::Translated),
        ("cache_peer_access p.test allow inner\ncache_peer_access p.test deny all\n", Fate::Translated),
        ("cache_peer_access p.test deny inner\n", Fate::Translated),
        ("cache_peer_access p.test deny near\n", Fate::Different),
        ("cache_peer_access q.test deny inner\n", Fate::NotNeeded),
    ] {
        let imported = imported(&format!("{PARENT}{line}"));
        let directive = line.lines().next().unwrap();
        assert_eq!(fate(&imported, directive), wanted, "{line}\n{}", imported.toml);
        assert!(imported.toml.contains("parents = [\"p.test\", \"direct\"]"), "{}", imported.toml);
    }
    let unused = imported(&format!("{PARENT}cache_peer_access p.test deny all\n"));
    assert!(!unused.toml.contains("[[parent]]"), "{}", unused.toml);
}

#[test]
fn nothing_goes_past_parents_that_could_not_be_translated() {
    use crate::judged::Judge;
    let request = |host: &str| request("10.0.0.1", "GET", host);
    let all = imported("cache_peer p.test parent 3128 0 tls tls-cafile=/etc/ca.pem\nnever_direct allow all\n");
    assert!(!Judge::of(&all).allows(&request("a.test")), "{}", all.toml);
    assert!(all.toml.contains("LOOK AT THESE LINES"), "{}", all.toml);
    let some = imported("cache_peer p.test parent 3128 0 tls tls-cafile=/etc/ca.pem\nnever_direct allow inner\n");
    let judge = Judge::of(&some);
    assert!(!judge.allows(&request("www.corp.test")) && judge.allows(&request("a.test")), "{}", some.toml);
    let usable = imported("cache_peer p.test parent 3128 0\nnever_direct allow all\n");
    assert!(Judge::of(&usable).allows(&request("a.test")), "{}", usable.toml);
}

fn request(client: &str, method: &'static str, host: &str) -> crate::judged::Request {
    crate::judged::Request {
        client: client.parse().unwrap(),
        method,
        scheme: "http",
        host: host.to_owned(),
        port: 80,
        path: "/".to_owned(),
        fields: Vec::new(),
        minute: 0,
        address: None,
        listener: "0.0.0.0:3128".parse().unwrap(),
        user: None,
    }
}

/// Which ways each request has left, as the rules of the configuration say it.
#[test]
fn lines_with_acls_become_rules_about_parents() {
    let text = "cache_peer a.test parent 3128 0 no-query\ncache_peer b.test parent 3128 0 no-query\n\
        acl post method POST\nacl office src 10.1.0.0/16\n\
        cache_peer_access a.test deny inner\ncache_peer_access a.test allow all\n\
        cache_peer_access b.test allow office\n\
        never_direct allow post\nalways_direct allow office post\n";
    let imported = imported(text);
    let judge = crate::judged::Judge::of(&imported);
    let ways = |client: &str, method: &'static str, host: &str| {
        let mut words = judge.effects(&request(client, method, host));
        words.retain(|word| word.contains("parent"));
        words.sort();
        words.join("; ")
    };
    let toml = &imported.toml;
    for (client, method, host, wanted) in [
        ("10.1.0.1", "GET", "far.test", ""),
        ("10.2.0.1", "GET", "far.test", "without parent b.test"),
        ("10.1.0.1", "GET", "x.corp.test", "without parent a.test"),
        ("10.2.0.1", "GET", "x.corp.test", "without parent a.test; without parent b.test"),
        ("10.2.0.1", "POST", "far.test", "without parent b.test; without parent direct"),
        ("10.1.0.1", "POST", "far.test", "parents direct"),
    ] {
        assert_eq!(ways(client, method, host), wanted, "{client} {method} {host}\n{toml}");
    }
    for directive in ["cache_peer_access a.test deny", "cache_peer_access b.test", "never_direct", "always_direct"] {
        assert_eq!(fate(&imported, directive), Fate::Translated, "{directive}\n{toml}");
    }
}

/// The lines of a port and of `proxy_protocol_access`, and what becomes of them.
#[test]
fn balancers_are_named_where_their_connections_begin_with_a_header() {
    let port = "http_port 8080 require-proxy-header\nacl balancers src 10.0.0.0/28\nacl posts method POST\n";
    for (access, networks, fates) in [
        ("proxy_protocol_access allow balancers", Some("[\"10.0.0.0/28\"]"), [Fate::Translated; 2]),
        (
            "proxy_protocol_access allow balancers\nproxy_protocol_access deny all",
            Some("[\"10.0.0.0/28\"]"),
            [Fate::Translated; 2],
        ),
        ("proxy_protocol_access allow all", Some("[\"0.0.0.0/0\", \"::/0\"]"), [Fate::Translated; 2]),
        ("proxy_protocol_access allow posts", None, [Fate::Missing; 2]),
        ("proxy_protocol_access deny all", None, [Fate::Missing; 2]),
    ] {
        let imported = imported(&format!("{port}{access}\n"));
        let toml: toml::Table = imported.toml.parse().unwrap();
        let listens = toml["listen"].as_array().unwrap();
        let named: Vec<String> =
            listens.iter().filter_map(|listen| Some(listen.get("proxy_protocol")?.to_string())).collect();
        assert_eq!(named.first().map(String::as_str), networks, "{access}\n{}", imported.toml);
        let found = [fate(&imported, "http_port 8080"), fate(&imported, "proxy_protocol_access")];
        assert_eq!(found, fates, "{access}");
    }
    let imported = imported("acl balancers src 10.0.0.0/28\nproxy_protocol_access allow balancers\n");
    assert_eq!(fate(&imported, "proxy_protocol_access"), Fate::NotNeeded);
}

#[test]
fn ports_of_a_firewall_become_transparent_listeners() {
    let imported =
        imported("http_port 3129 intercept\nhttps_port 3130 tproxy ssl-bump cert=/etc/ca.pem\nssl_bump bump all\n");
    let toml: toml::Table = imported.toml.parse().unwrap();
    let listens: Vec<String> = toml["listen"].as_array().unwrap().iter().map(|listen| listen.to_string()).collect();
    let of =
        |port: &str| listens.iter().find(|listen| listen.contains(port)).unwrap_or_else(|| panic!("{}", imported.toml));
    assert!(of(":3129").contains("transparent = \"redirect\""), "{}", imported.toml);
    let both = of(":3130");
    assert!(
        both.contains("transparent = \"tproxy\"") && both.contains("intercept = true") && !both.contains("tls"),
        "{both}"
    );
    assert_eq!(fate(&imported, "http_port 3129"), Fate::Different);
}
