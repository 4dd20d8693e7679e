use super::*;
use crate::config::Loaded;
use crate::rules::{Verdict, judge};
use larder_wire::parse::{self, HeadLimits, Parsed};

/// The facts that the verdict on a request depends on, by name.
fn read(settings: &str, request: &str) -> (Verdict, Vec<&'static str>) {
    let loaded = Loaded::parse("test", settings, &[]).unwrap_or_else(|report| panic!("{report}"));
    let Ok(Parsed::Complete { head, .. }) = parse::request(request.as_bytes(), &HeadLimits::default()) else {
        panic!("{request}")
    };
    let (config, own) = (&loaded.config, OwnAddresses::of(&loaded.config));
    let found = FoundFacts::default();
    let scene = Scene { listener: None, ..Scene::at(&config.listens[0], (config, &own, &found)) };
    let mut facts = Facts::of(scene, &head);
    let verdict = judge::judge(&mut facts);
    let read = facts.read(Editions::default());
    let all = [
        (Fact::Client, "client"),
        (Fact::OwnAddresses, "own addresses"),
        (Fact::Path, "path"),
        (Fact::IsManagerPath, "is manager path"),
        (Fact::PathClimbs, "path climbs"),
        (Fact::HasQuery, "has query"),
    ];
    let facts = all.into_iter().filter(|(fact, _)| read.has(*fact)).map(|(_, name)| name);
    // The rule of tests reads a field that no other one reads.
    let fields = read.fields().unwrap().filter(|name| *name != "X-Test-Group");
    (verdict, facts.chain(fields).collect())
}

#[test]
fn a_verdict_names_the_facts_that_it_depends_on() {
    let forward = "[[listen]]\naddress = \"127.0.0.1:3128\"\n";
    let one = "[[listen]]\naddress = \"127.0.0.1:8080\"\norigin = \"http://127.0.0.1:9000\"\n";
    let below = "[[listen]]\naddress = \"127.0.0.1:8080\"\norigin = \"http://127.0.0.1:9000/base\"\n";
    let sites = |prefix: &str| {
        format!(
            "[[site]]\nhosts = [\"a.test\"]\norigin = \"http://127.0.0.1:9000\"\nprefix = \"{prefix}\"\n{forward}forward = true\n"
        )
    };
    let absolute = "GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let origin = "GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let index = "GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\nPacote-Req-Type: packument\r\n\r\n";
    let npm = format!("presets = [\"npm\"]\n{forward}");
    let four = "presets = [\"apt\", \"cargo\", \"npm\", \"python\"]\n";
    let by_rules = |further: &[&'static str], fields: &[&'static str]| {
        let start = [&["client", "own addresses"][..], further, &["is manager path", "has query", "Via"]];
        [&start.concat()[..], fields, &["Cache-Control"]].concat()
    };
    let of_npm = ["Accept", "Pacote-Req-Type"];
    for (settings, request, wanted) in [
        (forward, absolute, vec!["client", "own addresses", "is manager path", "Via"]),
        (one, origin, vec!["Via", "Host"]),
        (below, origin, vec!["path climbs", "Via", "Host"]),
        (&sites("/"), origin, vec!["Via", "Host"]),
        (&npm, absolute, by_rules(&[], &of_npm)),
        (&npm, index, by_rules(&["path"], &of_npm)),
        (
            &format!("{four}{}", sites("/").replace("a.test", "b.test")),
            absolute,
            by_rules(&[], &["User-Agent", "Cargo-Protocol", "Accept", "Pacote-Req-Type"]),
        ),
        (&sites("/y"), absolute, vec!["client", "own addresses", "path", "is manager path", "Via"]),
    ] {
        let (verdict, read) = read(settings, request);
        assert!(matches!(verdict, Verdict::Allow(_)), "{settings}{request}{verdict:?}");
        assert_eq!(read, wanted, "{settings}{request}");
    }
}
