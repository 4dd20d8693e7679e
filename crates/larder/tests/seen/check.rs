//! What a configuration would do, asked without a server.

use larder::config::Loaded;
use larder::rehearse::{Comparison, Question, Side, rehearse, replay};
use std::fmt::Write;
use std::process::Command;

fn loaded(text: &str) -> Loaded {
    Loaded::parse("larder.toml", text, &[]).unwrap_or_else(|report| panic!("{report}"))
}

fn question(request: &str) -> Question {
    Question {
        request: request.to_owned(),
        fields: Vec::new(),
        answer: Vec::new(),
        client: "127.0.0.1".parse().unwrap(),
        listener: None,
    }
}

const SITES: &str = r#"
[[listen]]
address = "127.0.0.1:3128"

[[listen]]
address = "127.0.0.1:3130"
intercept = true

[[site]]
hosts = ["www.example.org"]
origin = "http://10.0.0.5:9000"

[[site]]
hosts = ["*.example.org"]
prefix = "/images/"
origin = "http://10.0.0.6/static"
host = "origin"

[access]
clients = ["127.0.0.0/8"]
connect_ports = [443]
"#;

#[test]
fn each_decision_about_a_request_is_said() {
    let loaded = loaded(SITES);
    let cases: [(&str, &[&str], bool, &[&str]); 8] = [
        (
            "GET http://www.example.org/a?b",
            &[],
            true,
            &[
                "listener   127.0.0.1:3128 (larder.toml:2): sites and a forward proxy",
                "rule       [[site]] www.example.org with the prefix /, from http://10.0.0.5:9000/",
                "key        http://10.0.0.5:9000/ http://www.example.org/a?b",
                "store      asked, a miss is fetched once for all who wait",
                "origin     http://10.0.0.5:9000, target /a?b, Host www.example.org",
                "kept       no: no-freshness",
            ],
        ),
        (
            "http://x.example.org/images/1",
            &[],
            true,
            &["*.example.org with the prefix /images/", "target /static/images/1, Host 10.0.0.6"],
        ),
        ("GET http://other.example/", &[], true, &["rule       forward proxy, permitted by 127.0.0.0/8"]),
        ("POST http://other.example/", &[], true, &["store      not asked", "kept       no: method"]),
        ("GET http://other.example/", &["Cache-Control: no-cache"], true, &["validated first (no-cache)"]),
        ("GET http://other.example/", &["Authorization: x"], true, &["for this request alone"]),
        ("GET https://other.example/", &[], true, &["tunnel     CONNECT other.example:443", "stays closed"]),
        ("GET https://other.example:8443/", &[], false, &["answer     403 connect-port"]),
    ];
    for (request, fields, served, lines) in cases {
        let fields = fields.iter().map(|&field| field.to_owned()).collect();
        let (text, was_served) = rehearse(&Question { fields, ..question(request) }, &loaded).unwrap();
        assert_eq!(was_served, served, "{request}\n{text}");
        lines.iter().for_each(|line| assert!(text.contains(line), "{request}: {line} in\n{text}"));
    }
}

#[test]
fn answers_listeners_and_clients_may_be_given() {
    let loaded = loaded(SITES);
    let answer = vec!["Cache-Control: max-age=60".to_owned(), "Vary: Accept".to_owned()];
    let (text, _) = rehearse(&Question { answer, ..question("http://a.example/") }, &loaded).unwrap();
    assert!(
        text.contains("kept       yes: fresh for 60 s by max-age, a variant by accept")
            || text.contains("a variant by Accept"),
        "{text}"
    );
    let opened = Question { listener: Some("127.0.0.1:3130".parse().unwrap()), ..question("https://a.example/") };
    let (text, _) = rehearse(&opened, &loaded).unwrap();
    assert!(text.contains("opened     with a certificate") && text.contains("key        https://a.example/"), "{text}");
    let stranger = Question { client: "192.0.2.1".parse().unwrap(), ..question("http://a.example/") };
    let (text, served) = rehearse(&stranger, &loaded).unwrap();
    assert!(!served && text.contains("403 client"), "{text}");
    for wrong in ["GET", "GET ftp://a/", "BAD METHOD http://a.example/"] {
        assert!(rehearse(&question(wrong), &loaded).is_err(), "{wrong}");
    }
    let nowhere = Question { listener: Some("127.0.0.1:1".parse().unwrap()), ..question("http://a.example/") };
    assert!(rehearse(&nowhere, &loaded).unwrap_err().contains("there are 127.0.0.1:3128, 127.0.0.1:3130"));
}

/// Half of the requests are for `a.example`, half for `b.example`; every object is asked for twice in a row.
fn log(lines: u64) -> String {
    let mut text = String::new();
    for number in 0..lines {
        let (host, object) = (if number % 4 < 2 { "a" } else { "b" }, number / 2);
        let _ = writeln!(
            text,
            "784111777.123 5 10.0.0.1 TCP_MISS/200 1000 GET http://{host}.example/{object} - HIER_DIRECT/x text/html"
        );
    }
    text
}

fn play<'a>(log: &str, first: &'a Loaded, second: &'a Loaded) -> Comparison<'a> {
    replay(log.as_bytes(), vec![Side::new(&first.config), Side::new(&second.config)], "localhost").unwrap()
}

#[test]
fn a_replay_finds_the_changes_that_were_made() {
    let plain = loaded("memory = \"64MB\"");
    let log = log(40_000) + "nonsense\n";
    let same = play(&log, &plain, &plain);
    assert_eq!((same.lines, same.unreadable), (40_000, 1));
    let text = same.to_string();
    assert!(text.contains("hits       20000 of 40000 look-ups (50.00 %)"), "{text}");
    assert!(text.contains("no request is treated differently"), "{text}");

    let site = loaded("memory = \"64MB\"\n[[site]]\nhosts = [\"b.example\"]\norigin = \"http://10.0.0.5\"");
    let moved = play(&log, &plain, &site);
    let found = ["verdict", "upstream", "key", "hit or miss"].map(|what| moved.differing(what));
    assert_eq!(found, [20_000, 20_000, 20_000, 0], "{moved}");

    let closed = loaded("memory = \"64MB\"\n[access]\nclients = [\"127.0.0.1\"]");
    let refused = play(&log, &plain, &closed);
    assert_eq!((refused.differing("verdict"), refused.differing("hit or miss")), (40_000, 20_000), "{refused}");
    assert!(refused.to_string().contains("forward → client"), "{refused}");
}

#[test]
fn a_smaller_store_hits_less() {
    let (large, small) = (loaded("memory = \"64MB\""), loaded("memory = \"1MB\""));
    // Every object comes again after all others.
    let log = log(20_000).repeat(2);
    let compared = play(&log, &large, &small);
    assert_eq!(compared.differing("hit or miss"), 10_000, "{compared}");
    assert_eq!(compared.differing("verdict"), 0);
}

#[test]
fn the_command_tells_its_outcome_by_its_status() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (good, bad) = (write("good.toml", "memory = \"64MB\""), write("bad.toml", "memory = 1\nworkers = 0"));
    let log = write("access.log", &log(8));
    let run = |words: &[&std::ffi::OsStr]| {
        let output = Command::new(env!("CARGO_BIN_EXE_larder")).arg("check").args(words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code().unwrap(), text)
    };
    let config = std::ffi::OsStr::new("--config");
    let (status, text) = run(&[config, good.as_ref()]);
    assert!(status == 0 && text.contains("the configuration is right"), "{text}");
    let (status, text) = run(&[config, bad.as_ref()]);
    assert!(status == 2 && text.contains("2 errors"), "{text}");
    let (status, text) = run(&[config, good.as_ref(), "--request".as_ref(), "GET http://a.example/".as_ref()]);
    assert!(status == 0 && text.contains("key        http://a.example/"), "{text}");
    let (status, text) = run(&[config, good.as_ref(), "--request".as_ref(), "TRACE ftp".as_ref()]);
    assert!(status == 2, "{text}");
    let (status, text) =
        run(&[config, good.as_ref(), "--replay".as_ref(), log.as_ref(), "--against".as_ref(), good.as_ref()]);
    assert!(status == 0 && text.contains("8 requests played, 0 lines not readable"), "{text}");
}
