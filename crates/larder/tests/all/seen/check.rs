//! Tests of rehearsals: a configuration is asked without a server.

use larder::config::Loaded;
use larder::explain::{Asking, Explanation, rehearse};
use larder::rehearse::{Comparison, LineTrouble, Side, replay};
use std::fmt::Write;
use std::process::Command;

fn loaded(text: &str) -> Loaded {
    Loaded::parse("larder.toml", text, &[]).unwrap_or_else(|report| panic!("{report}"))
}

fn asking(method: &str, url: &str) -> Asking {
    Asking { url: url.to_owned(), method: method.to_owned(), answer: Some(Vec::new()), ..Asking::default() }
}

fn rehearsed(asking: &Asking, loaded: &Loaded) -> Result<Explanation, String> {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(rehearse(asking, loaded, None))
}

const SITES: &str = r#"
[[listen]]
address = "127.0.0.1:3128"
forward = true

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
    /// Method, URL, fields, status of an answer of Larder's own making, and what is said.
    type Case<'a> = (&'a str, &'a str, &'a [&'a str], u16, &'a [&'a str]);
    let cases: [Case; 9] = [
        (
            "GET",
            "http://www.example.org/a?b",
            &[],
            0,
            &[
                "listener   127.0.0.1:3128 (larder.toml:2)",
                "rule       [[site]] www.example.org / from http://10.0.0.5:9000/ (larder.toml:10)",
                "key        http://10.0.0.5:9000/ http://www.example.org/a?b",
                "stored     nothing under this key",
                "At http://10.0.0.5:9000, for /a?b of www.example.org.",
                "kept       no: it has neither a lifetime nor a validator",
                "answer     miss (uri-miss)",
            ],
        ),
        (
            "GET",
            "http://x.example.org/images/1",
            &[],
            0,
            &["[[site]] *.example.org /images/", "for /static/images/1 of 10.0.0.6."],
        ),
        ("GET", "http://other.example/", &[], 0, &["rule       forward proxy, by access.clients (larder.toml:21)"]),
        ("POST", "http://other.example/", &[], 0, &["asked because method", "kept       no: only answers to GET"]),
        ("GET", "http://other.example/", &["Cache-Control: no-cache"], 0, &["asks       no-cache"]),
        ("GET", "http://other.example/", &["Cache-Control: only-if-cached"], 504, &["504 only-if-cached"]),
        ("GET", "http://other.example/", &["Authorization: x"], 0, &["answer     miss (uri-miss)"]),
        ("GET", "https://other.example/", &[], 0, &["a tunnel, which stays closed", "answer     tunnel"]),
        ("GET", "https://other.example:8443/", &[], 403, &["rule       403 connect-port", "own, status 403"]),
    ];
    for (method, url, fields, status, lines) in cases {
        let fields = fields.iter().map(|&field| field.to_owned()).collect();
        let explanation = rehearsed(&Asking { fields, ..asking(method, url) }, &loaded).unwrap();
        let text = explanation.to_string();
        assert_eq!(explanation.request.status, status, "{method} {url}\n{text}");
        lines.iter().for_each(|line| assert!(text.contains(line), "{method} {url}: {line} in\n{text}"));
    }
}

/// Nobody is asked in a rehearsal, but those who would be are named.
#[test]
fn helpers_and_neighbours_that_would_be_asked_are_named() {
    let helper = |name: &str, kind: &str, more: &str| {
        format!("[[helper]]\nname = \"{name}\"\nkind = \"{kind}\"\ncommand = [\"sh\"]\n{more}")
    };
    let text = helper("quota", "external_acl", "format = \"%SRC\"\n")
        + &helper("filter", "url_rewrite", "")
        + &helper("mirrors", "store_id", "")
        + "[[parent]]\nname = \"far\"\nurl = \"http://10.0.0.8:3128\"\n\
           [[sibling]]\nname = \"second\"\nurl = \"http://10.0.0.9:3128\"\nicp_port = 3130\n\
           [access]\nexternal = [\"quota\"]\n\
           [forward]\nurl_rewrite = \"filter\"\nstore_id = \"mirrors\"\nparents = [\"far\", \"direct\"]\n";
    let loaded = loaded(&text);
    let explanation = rehearsed(&asking("GET", "http://a.test/x"), &loaded).unwrap();
    let said = explanation.to_string();
    for line in [
        "helper     quota (external_acl): would be asked, and its answer is not known here",
        "helper     filter (url_rewrite): would be asked",
        "helper     mirrors (store_id): would be asked",
        "way        sibling second would be asked first whether the response is there; if not, far would be tried, then direct",
    ] {
        assert!(said.contains(line), "{line} in\n{said}");
    }
    let json = serde_json::to_string(&explanation).unwrap();
    assert!(json.contains(r#""helper":"filter""#) && json.contains(r#""asked":["sibling second"]"#), "{json}");
    let post = rehearsed(&asking("POST", "http://a.test/x"), &loaded).unwrap().to_string();
    assert!(!post.contains("sibling") && !post.contains("mirrors") && post.contains("filter"), "{post}");
}

#[test]
fn answers_listeners_and_clients_may_be_given() {
    let loaded = loaded(SITES);
    let answer = Some(vec!["Cache-Control: max-age=60".to_owned(), "Vary: Accept".to_owned()]);
    let text = rehearsed(&Asking { answer, ..asking("GET", "http://a.example/") }, &loaded).unwrap().to_string();
    assert!(
        text.contains("kept       yes, fresh for 60 s by max-age") && text.contains("a variant by accept"),
        "{text}"
    );
    let listener = Some("127.0.0.1:3130".parse().unwrap());
    let opened = Asking { listener, ..asking("GET", "https://a.example/") };
    let text = rehearsed(&opened, &loaded).unwrap().to_string();
    assert!(text.contains("with a certificate") && text.contains("key        https://a.example/"), "{text}");
    let stranger = Asking { client: "192.0.2.1".parse().unwrap(), ..asking("GET", "http://a.example/") };
    let refused = rehearsed(&stranger, &loaded).unwrap();
    assert!(refused.request.status == 403 && refused.to_string().contains("403 client"), "{refused}");
    for (method, url) in [("GET", "GET"), ("GET", "gopher://a/"), ("BAD METHOD", "http://a.example/")] {
        assert!(rehearsed(&asking(method, url), &loaded).is_err(), "{method} {url}");
    }
    for field in ["bad name: x", "4o4", "99", "a: b\r\nc d: e", ": x"] {
        let answer = Some(vec![field.to_owned()]);
        let refused = rehearsed(&Asking { answer, ..asking("GET", "http://a.example/") }, &loaded).unwrap_err();
        assert!(refused.starts_with("the answer is no proper HTTP: "), "{field}: {refused}");
    }
    let elsewhere = Asking { listener: Some("127.0.0.1:1".parse().unwrap()), ..asking("GET", "http://a.example/") };
    assert!(rehearsed(&elsewhere, &loaded).unwrap_err().contains("127.0.0.1:3130"));
}

const PEOPLE: &str = r#"
[[listen]]
address = "127.0.0.1:3128"
forward = true

[[listen]]
address = "127.0.0.1:3130"
intercept = true

[[login]]
name = "staff"
scheme = "basic"
file = "/nonexistent/users"
groups = "GROUPS"

[[login]]
name = "partners"
scheme = "basic"
file = "/nonexistent/partners"

[access]
clients = ["127.0.0.0/8"]
login = "staff"

[[site]]
hosts = ["open.example"]
origin = "http://10.0.0.5"

[[rule]]
name = "admins"
when = { path = "/admin/**", not = { group = "admins" } }
do = { deny = true }

[[rule]]
name = "no tunnels"
when = { host = "tunnel.example", not = { user = "ann" } }
do = { deny = true }

[[rule]]
name = "partners"
when = { host = "partner.example" }
do = { login = "partners" }
"#;

/// User, groups, listener and URL asked for, status of an answer of Larder's own making, what is said.
type UserCase<'a> = (Option<&'a str>, &'a [&'a str], &'a str, &'a str, u16, &'a [&'a str]);

#[test]
fn a_user_may_be_taken_to_have_logged_in() {
    let folder = tempfile::tempdir().unwrap();
    let groups = folder.path().join("groups");
    std::fs::write(&groups, "admins: root\nwriters: ann\n").unwrap();
    let loaded = loaded(&PEOPLE.replace("GROUPS", groups.to_str().unwrap()));
    let (plain, opening) = ("127.0.0.1:3128", "127.0.0.1:3130");
    let cases: [UserCase; 13] = [
        (None, &[], plain, "http://a.example/admin/x", 403, &["rule       403 rule", "by rule    admins (larder.toml"]),
        (Some("ann"), &[], plain, "http://a.example/admin/x", 403, &["user       ann"]),
        (Some("ann"), &["admins"], plain, "http://a.example/admin/x", 0, &["ann, of admins, writers, taken to have"]),
        (
            Some("root"),
            &[],
            plain,
            "http://a.example/admin/x",
            0,
            &["root, of admins, taken to have logged in by [[login]] staff"],
        ),
        (Some("eve"), &[], plain, "http://a.example/", 0, &["eve, in no group, taken to"]),
        // A site without a login asks nobody.
        (Some("root"), &[], plain, "http://open.example/admin/x", 403, &["by rule    admins (larder.toml"]),
        (Some("root"), &[], plain, "http://open.example/", 0, &["no login counts here, so rules see no user"]),
        // The groups of a login are in its own file alone.
        (
            Some("ann"),
            &[],
            plain,
            "http://partner.example/",
            0,
            &["ann, in no group, taken to have logged in by [[login]] partners"],
        ),
        (None, &[], plain, "http://partner.example/", 0, &["anybody who logs in by [[login]] staff"]),
        (Some("ann"), &[], plain, "https://tunnel.example/", 0, &["user       ann, of writers", "answer     tunnel"]),
        (Some("eve"), &[], plain, "https://tunnel.example/", 403, &["by rule    no tunnels ("]),
        (Some("root"), &[], opening, "https://a.example/admin/x", 0, &["with a certificate", "root, of admins"]),
        (Some("eve"), &["admin"], opening, "https://a.example/admin/x", 403, &["by rule    admins (larder.toml"]),
    ];
    for (user, groups, at, url, status, lines) in cases {
        let asking = Asking {
            user: user.map(str::to_owned),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            listener: Some(at.parse().unwrap()),
            ..asking("GET", url)
        };
        let explanation = rehearsed(&asking, &loaded).unwrap();
        let text = explanation.to_string();
        assert_eq!(explanation.request.status, status, "{user:?} {groups:?} {url}\n{text}");
        lines.iter().for_each(|line| assert!(text.contains(line), "{user:?} {groups:?} {url}: {line} in\n{text}"));
    }
    std::fs::write(&groups, "no colon\n").unwrap();
    let asking = Asking { user: Some("ann".to_owned()), ..asking("GET", "http://a.example/") };
    let trouble = rehearsed(&asking, &loaded).unwrap_err();
    assert!(trouble.contains("login staff") && trouble.contains("groups"), "{trouble}");
    assert!(rehearsed(&asking, &self::loaded("")).unwrap_err().contains("no [[login]]"));
}

#[test]
fn a_refusal_names_the_entry_of_the_list() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        format!("{path:?}")
    };
    let (names, urls) = (write("ads", "||tracker.example^\n||ads.example^\n"), write("urls", "paths.example/a%20b\n"));
    let (nets, regexes) = (write("nets", "192.0.2.0/24\n"), folder.path().join("regexes"));
    std::fs::create_dir(&regexes).unwrap();
    std::fs::write(regexes.join("expressions"), "\\.exe$\n").unwrap();
    let loaded = loaded(&format!(
        "[[listen]]\naddress = \"127.0.0.1:3128\"\n\
         [[list]]\nname = \"ads\"\nsource = {names}\n\
         [[list]]\nname = \"urls\"\nformat = \"urls\"\nsource = {urls}\n\
         [[list]]\nname = \"nets\"\nformat = \"networks\"\nsource = {nets}\n\
         [[list]]\nname = \"regexes\"\nformat = \"squidguard\"\nsource = {regexes:?}\n\
         [[rule]]\nname = \"block\"\nwhen = {{ list = [\"urls\", \"ads\"] }}\ndo = {{ deny = true }}\n\
         [[rule]]\nname = \"deep\"\nwhen = {{ any = [{{ method = \"PUT\", list = \"nets\" }}, {{ list = \"nets\" }}], not = {{ list = \"ads\" }} }}\n\
         do = {{ redirect = \"http://safe.example/\" }}\n\
         [[rule]]\nwhen = {{ list = \"regexes\" }}\ndo = {{ deny = true }}\n\
         [[rule]]\nname = \"plain\"\nwhen = {{ host = \"plain.example\" }}\ndo = {{ deny = true }}\n"
    ));
    let block = |because: &str| format!("block (larder.toml:18){because}");
    for (url, wanted) in [
        ("http://a.b.tracker.example/", block(", list 'ads' entry 'tracker.example' (covers a.b.tracker.example)")),
        ("http://ads.example/", block(", list 'ads' entry 'ads.example'")),
        ("https://a.tracker.example/", block(", list 'ads' entry 'tracker.example' (covers a.tracker.example)")),
        ("http://paths.example/a%20b/c", block(", list 'urls' entry 'paths.example/a%20b'")),
        (
            "http://192.0.2.7/",
            "deep (larder.toml:22), list 'nets' entry '192.0.2.0 to 192.0.2.255' (covers 192.0.2.7)".into(),
        ),
        ("http://x.example/a.exe", "rule (larder.toml:26), list 'regexes' entry '\\.exe$'".into()),
        ("http://plain.example/", "plain (larder.toml:29)".into()),
    ] {
        let text = rehearsed(&asking("GET", url), &loaded).unwrap().to_string();
        let verdict = if wanted.starts_with("deep") { "redirect" } else { "deny" };
        assert!(text.contains(&format!("by rule    {wanted}: {verdict}\n")), "{url}: {wanted} in\n{text}");
        assert!(text.contains(&format!(": {wanted}. ")), "{url}: {wanted} in\n{text}");
    }
}

#[test]
fn a_site_is_asked_where_its_scheme_is_spoken() {
    let tls = "tls = [{ chain = \"a\", key = \"b\" }]";
    let loaded = loaded(&format!(
        "[[listen]]\naddress = \"127.0.0.1:80\"\n[[listen]]\naddress = \"127.0.0.1:443\"\n{tls}\n\
         [[listen]]\naddress = \"127.0.0.1:8443\"\n{tls}\n[[site]]\nhosts = \"a.example\"\norigin = \"http://10.0.0.1\""
    ));
    for (url, at) in [
        ("http://a.example/", "127.0.0.1:80 "),
        ("http://a.example:9/", "127.0.0.1:80 "),
        ("https://a.example/", "127.0.0.1:443 "),
        ("https://a.example:8443/", "127.0.0.1:8443 "),
        ("https://a.example:9/", "127.0.0.1:443 "),
        ("https://b.example/", "127.0.0.1:80 "),
    ] {
        let text = rehearsed(&asking("GET", url), &loaded).unwrap().to_string();
        assert!(text.contains(&format!("listener   {at}")), "{url}: {text}");
    }
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
    assert_eq!(same.troubles, [(40_001, LineTrouble::Format("nonsense".to_owned()))]);
    let text = same.to_string();
    assert!(text.contains("hits       20000 of 40000 look-ups (50.00 %)"), "{text}");
    assert!(text.contains("no request is treated differently"), "{text}");

    let site = loaded(
        "memory = \"64MB\"\n[[listen]]\naddress = \"127.0.0.1:3128\"\nforward = true\n[[site]]\nhosts = [\"b.example\"]\norigin = \"http://10.0.0.5\"",
    );
    let moved = play(&log, &plain, &site);
    let found = ["verdict", "upstream", "key", "hit or miss"].map(|what| moved.differing(what));
    assert_eq!(found, [20_000, 20_000, 20_000, 0], "{moved}");

    let closed = loaded("memory = \"64MB\"\n[access]\nclients = [\"127.0.0.1\"]");
    let refused = play(&log, &plain, &closed);
    assert_eq!((refused.differing("verdict"), refused.differing("hit or miss")), (40_000, 20_000), "{refused}");
    assert!(refused.to_string().contains("forward → client"), "{refused}");
}

#[test]
fn a_replay_is_judged_for_the_users_of_its_lines() {
    let folder = tempfile::tempdir().unwrap();
    let groups = folder.path().join("groups");
    std::fs::write(&groups, "admins: root\n").unwrap();
    let before = loaded(&PEOPLE.replace("GROUPS", groups.to_str().unwrap()));
    let more = folder.path().join("more");
    std::fs::write(&more, "admins: root ann\n").unwrap();
    let after = loaded(&PEOPLE.replace("GROUPS", more.to_str().unwrap()));
    let log: String = ["root", "ann", "eve", "-"]
        .map(|user| format!("1.5 5 127.0.0.1 TCP_MISS/200 10 GET http://a.example/admin/x {user} HIER_NONE/- -\n"))
        .concat();
    let compared = play(&log, &before, &after);
    assert_eq!((compared.lines, compared.differing("verdict")), (4, 1), "{compared}");
    let text = compared.to_string();
    assert!(text.contains("forward 1, rule 3") && text.contains("forward 2, rule 2"), "{text}");
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
    // A listener of localhost looks as if it let programs of this machine through.
    let users = write("users", "ada:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n");
    let login =
        format!("[[login]]\nname = \"office\"\nscheme = \"basic\"\nfile = {users:?}\n[access]\nlogin = \"office\"\n");
    for (at, is_noted) in [("127.0.0.1:3128", true), ("0.0.0.0:3128", false)] {
        let file = write("login.toml", &format!("[[listen]]\naddress = \"{at}\"\nforward = true\n{login}"));
        let (status, text) = run(&[config, file.as_ref()]);
        let note = "note: programs of this machine have to log in by [[login]] office too, at 127.0.0.1:3128 (";
        assert!(status == 0 && text.contains(note) == is_noted, "{at}: {text}");
    }
    let rules = write(
        "rules.toml",
        "[[rule]]\nname = \"open\"\nwhen = { host = [\"a.example\", \"b.example\"] }\ndo = { allow = true }\n\
         [[rule]]\nname = \"late\"\nwhen = { host = \"b.example\", method = \"PUT\" }\ndo = { deny = true }\n\
         [[rule]]\nname = \"none\"\nwhen = { port = 80, not = { port = 80 } }\ndo = { deny = true }\n\
         [[rule]]\nname = \"other\"\nwhen = { host = \"c.example\" }\ndo = { deny = true }\n",
    );
    let (status, text) = run(&[config, rules.as_ref()]);
    assert!(status == 0 && text.contains("rules.toml:5) never holds: open ("), "{text}");
    assert!(text.contains("none (") && text.contains("never holds: what its `not` excludes is all"), "{text}");
    assert!(text.matches("never holds").count() == 2, "{text}");
    let files = write(
        "files.toml",
        "log = { to = \"/nonexistent/x.log\" }\n[[listen]]\naddress = \"127.0.0.1:1\"\n\
         tls = [{ chain = \"/nonexistent/a.pem\", key = \"b.pem\" }]\n",
    );
    let (status, text) = run(&[config, files.as_ref()]);
    assert!(status == 2 && text.contains("files.toml:2): cannot read a certificate from /nonexistent/a.pem"), "{text}");
    assert!(text.contains("files.toml:1): there is no folder /nonexistent"), "{text}");
    let (status, text) = run(&[config, good.as_ref(), "--request".as_ref(), "GET http://a.example/".as_ref()]);
    assert!(status == 0 && text.contains("key        http://a.example/"), "{text}");
    let (status, text) = run(&[config, good.as_ref(), "--request".as_ref(), "TRACE ftp".as_ref()]);
    assert!(status == 2, "{text}");
    let (status, text) =
        run(&[config, good.as_ref(), "--replay".as_ref(), log.as_ref(), "--against".as_ref(), good.as_ref()]);
    assert!(status == 0 && text.contains("8 requests played, 0 lines not readable"), "{text}");
    let (status, text) = run(&["--request".as_ref(), "http://a.example/".as_ref(), "--group".as_ref(), "g".as_ref()]);
    assert!(status == 2 && text.contains("--user"), "{text}");
}

#[test]
fn lines_of_a_log_that_cannot_be_read_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let replayed = |log: &[u8]| {
        std::fs::write(&path, log).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        let output = command.args(["check", "--replay"]).arg(&path).current_dir(&folder).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.code().unwrap(), out.into_owned(), err.into_owned())
    };
    let (good, bad) = (log(2), "784111777.123 5 10.0.0.1 TCP_MISS/200 1 GET http://a\u{1b}[2J/ - - -\n");
    let (status, out, err) = replayed(format!("{good}\nnonsense\n{bad}{good}").as_bytes());
    assert_eq!(status, 0, "{err}");
    assert!(out.contains("4 requests played, 2 lines not readable"), "{out}");
    assert!(
        err.contains("access.log:4: in none of the formats that are read (combined, Squid's, JSON): \"nonsense\""),
        "{err}"
    );
    assert!(err.contains("access.log:5: no proper request: \"GET http://a") && !err.contains('\u{1b}'), "{err}");

    let (status, out, err) = replayed("x\n".repeat(25).as_bytes());
    assert!(status == 1 && out.contains("0 requests played, 25 lines not readable"), "{out}");
    assert!(err.contains("access.log:10: ") && !err.contains("access.log:11: "), "{err}");
    assert!(err.contains("15 more lines that can't be read"), "{err}");

    let (status, _, err) = replayed(b"");
    assert_eq!((status, &*err), (0, ""));
    let (status, _, err) = replayed(b"\x1f\x8b\x08\0");
    assert!(status == 1 && err.contains("it is compressed: zcat FILE | larder check --replay -"), "{err}");
}

#[test]
fn origins_of_one_tree_have_the_key_of_the_first() {
    let loaded = loaded("[[store_rule]]\nsame_tree = [\"http://a.example\", \"http://b.example:444\"]\n");
    let said = |url: &str| rehearsed(&asking("GET", url), &loaded).unwrap().to_string();
    let told = said("http://b.example:444/x?y");
    for wanted in [
        "key        http://a.example/x?y",
        "the key has http://a.example/, whose paths are the same, by [[store_rule]] (larder.toml:1)",
    ] {
        assert!(told.contains(wanted), "{told}");
    }
    for other in ["http://b.example/x", "https://a.example/x", "http://sub.a.example/x"] {
        assert!(!said(other).contains("the key has"), "{other}");
    }
    for wrong in [
        "same_tree = [\"https://a.example\"]",
        "same_tree = [\"https://a.example\", \"http://b.example\"]",
        "same_tree = [\"https://a.example\", \"https://b.example/path\"]",
        "same_tree = [\"https://a.example\", \"b.example\"]",
    ] {
        assert!(Loaded::parse("larder.toml", &format!("[[store_rule]]\n{wrong}\n"), &[]).is_err(), "{wrong}");
    }
}
