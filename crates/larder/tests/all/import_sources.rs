//! `larder import`, as users call it: sources become files that Larder takes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn larder(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_larder")).args(words).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const SQUID: &str = r#"
http_port 127.0.0.1:3128
acl localnet src 10.0.0.0/8
acl blocked dstdomain "blocked.txt"
acl media urlpath_regex -i \.(mp3|mp4)$
acl words url_regex casino
acl bank url_regex ^bank\.example:443$
acl there dst 127.0.0.3
acl inside dst 10.20.0.0/16
acl SSL_ports port 443
http_access deny CONNECT !SSL_ports
http_access deny blocked
http_access deny media
http_access deny words
http_access deny bank
http_access deny there
http_access deny inside
http_access allow localnet
http_access deny all
cache_mem 64 MB
memory_pools on
"#;

#[test]
fn squid_becomes_a_file_that_starts() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("squid.conf"), SQUID.replace("blocked.txt", &path("blocked.txt"))).unwrap();
    fs::write(path("blocked.txt"), ".bad.example\nworse.example\n").unwrap();
    let (source, out) = (path("squid.conf"), path("larder.toml"));
    let imported = larder(&["import", &source, "--out", &out]);
    let said = text(&imported.stderr);
    assert_eq!(imported.status.code(), Some(0), "{said}");
    assert!(said.contains("translated") && !said.contains("0600"), "{said}");
    // Nobody else reads the passwords.
    let (peers, secret) = (path("peers.conf"), path("peers.toml"));
    fs::write(&peers, "http_port 3128\ncache_peer 10.0.0.9 parent 3128 0 login=ada:secret\nhttp_access deny all\n")
        .unwrap();
    let said = text(&larder(&["import", &peers, "--from", "squid", "--out", &secret]).stderr);
    assert!(said.contains("peers.toml may have passwords in it") && said.contains("0600"), "{said}");
    assert_eq!(fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&secret).unwrap().contains("password = \"secret\""));
    let checked = larder(&["check", "--config", &out]);
    assert!(checked.status.success(), "{}{}", text(&checked.stdout), text(&checked.stderr));
    for (request, client, wanted) in [
        ("GET http://www.bad.example/", "10.0.0.1", false),
        ("GET http://worse.example/", "10.0.0.1", false),
        ("GET http://good.example/a.MP3", "10.0.0.1", false),
        ("GET http://good.example/a.%6dp3", "10.0.0.1", false),
        ("GET http://good.example/", "10.0.0.1", true),
        ("GET http://good.example/casino", "10.0.0.1", false),
        ("GET http://good.example/;%63asino", "10.0.0.1", false),
        ("GET http://good.example/CASINO", "10.0.0.1", true),
        ("CONNECT bank.example:443", "10.0.0.1", false),
        ("CONNECT good.example:443", "10.0.0.1", true),
        ("CONNECT casino.example:443", "10.0.0.1", false),
        ("GET http://127.0.0.3/", "10.0.0.1", false),
        ("GET http://10.20.3.4/", "10.0.0.1", false),
        ("GET http://good.example/", "192.168.0.1", false),
        ("CONNECT good.example:22", "10.0.0.1", false),
    ] {
        let asked = larder(&["check", "--config", &out, "--client", client, "--request", request]);
        let said = format!("{}{}", text(&asked.stdout), text(&asked.stderr));
        assert_eq!(asked.status.success(), wanted, "{request} {client}\n{said}");
    }
    let again = larder(&["import", &source, "--out", &out]);
    assert!(again.status.code() == Some(1) && text(&again.stderr).contains("there is a"), "{}", text(&again.stderr));
    let report = larder(&["import", &source, "--report"]);
    assert!(
        text(&report.stdout).contains("| squid.conf:21 | `memory_pools on` | not needed |"),
        "{}",
        text(&report.stdout)
    );
}

#[test]
fn the_source_is_guessed_or_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("site.conf");
    fs::write(
        &file,
        "server { listen 127.0.0.1:8080; server_name a.example; location / { proxy_pass http://127.0.0.1:9000; } }",
    )
    .unwrap();
    let imported = larder(&["import", &file.display().to_string()]);
    assert_eq!(imported.status.code(), Some(0), "{}", text(&imported.stderr));
    assert!(text(&imported.stdout).contains("[[site]]\nhosts = [\"a.example\"]"), "{}", text(&imported.stdout));
    fs::write(&file, "hello\n").unwrap();
    let unknown = larder(&["import", &file.display().to_string()]);
    assert!(unknown.status.code() == Some(2) && text(&unknown.stderr).contains("--from"), "{}", text(&unknown.stderr));
    let gone = larder(&["import", "/nowhere/squid.conf"]);
    assert_eq!(gone.status.code(), Some(1));
}

/// The files that Debian's packages install. A package that is not there is passed over; where the variable `CI` is set, nginx and Squid have
/// to be there.
#[test]
fn files_of_packages_start() {
    let folder = tempfile::tempdir().unwrap();
    for (name, source, is_needed) in [
        ("squid", "/etc/squid/squid.conf", true),
        ("nginx", "/etc/nginx/nginx.conf", true),
        ("varnish", "/etc/varnish/default.vcl", false),
    ] {
        if !Path::new(source).is_file() {
            assert!(!is_needed || std::env::var_os("CI").is_none(), "{source} is not there: install {name}");
            println!("{source} is not there: passed over");
            continue;
        }
        let out = folder.path().join(name).with_extension("toml").display().to_string();
        let imported = larder(&["import", source, "--from", name, "--out", &out]);
        assert!([Some(0), Some(3)].contains(&imported.status.code()), "{source}: {}", text(&imported.stderr));
        let checked = larder(&["check", "--config", &out]);
        assert!(checked.status.success(), "{source}: {}{}", text(&checked.stdout), text(&checked.stderr));
    }
}

/// The file that the page for people of Squid has them write, with its files in this folder.
fn file_of_the_page(folder: &Path) -> String {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/coming-from-squid.md")).unwrap();
    let part = page.split("## Four things by hand").nth(1).unwrap();
    let file = part.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    fs::write(folder.join("blocked.txt"), ".ads.example\nbad.test\n").unwrap();
    fs::write(
        folder.join("users"),
        "ada:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\nbob:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n",
    )
    .unwrap();
    file.replace("/etc/larder", &folder.display().to_string())
}

#[test]
fn four_things_by_hand_do_as_the_page_says() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("larder.toml");
    let check = |text: &str, words: &[&str]| {
        fs::write(&file, text).unwrap();
        let checked = larder(&[&["check", "--config", &file.display().to_string()], words].concat());
        (checked.status.code(), self::text(&checked.stdout) + &self::text(&checked.stderr))
    };
    let right = file_of_the_page(folder.path());
    let (status, said) = check(&right, &[]);
    assert!(
        status == Some(0) && !said.contains("is asked for nowhere") && !said.contains("for no rule names"),
        "{said}"
    );
    for (url, user, status, wanted) in [
        ("http://www.ads.example/", "bob", 1, "list 'blocked' entry 'ads.example' (covers www.ads.example): deny"),
        ("http://www.example.org/", "bob", 0, "bandwidth each"),
        ("http://www.example.org/", "ada", 0, "user       ada"),
    ] {
        let request = format!("GET {url}");
        let (code, said) = check(&right, &["--client", "10.9.0.7", "--user", user, "--request", &request]);
        assert!(code == Some(status) && said.contains(wanted), "{url} {user}: {said}");
        assert_eq!(said.contains("bandwidth each"), user == "bob" && status == 0, "{url} {user}: {said}");
        assert!(!said.contains("as nobody's"), "{said}");
    }
    let (_, said) = check(&right, &["--request", "GET http://www.example.org/"]);
    assert!(said.contains("judged as nobody's: --user NAME"), "{said}");
    // Without the lines that name them, the tables are noted, and nobody is let believe that they count.
    let nowhere =
        right.replace("login = \"office\"", "").replace("[[rule]]", "[[rule]]\nwhen = { host = \"a.test\" }\n#");
    let without =
        nowhere.lines().filter(|line| !line.starts_with("when = { list") && !line.starts_with("when = { client"));
    let without: Vec<&str> = without.filter(|line| !line.starts_with("do = { bandwidth")).collect();
    let without = without.join("\n") + "\n";
    let without = without.replace("name = \"slow\"", "name = \"slow\"\ndo = { mark = \"m\" }");
    let (status, said) = check(&without, &[]);
    assert_eq!(status, Some(0), "{said}");
    for wanted in ["[[login]] office", "[[list]] blocked", "[[bandwidth]] each"] {
        let note = said.lines().find(|line| line.starts_with("note: ") && line.contains(wanted));
        assert!(
            note.is_some_and(|note| note.contains("larder.toml:")
                && (note.contains("write a [[rule]]") || note.contains("set access.login"))),
            "{wanted}: {said}"
        );
    }
}
