//! Helpers that decide about requests: rewriters, keys, access rules, and logins by Squid's own programs.

use super::stand;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

/// An origin whose body is the path that it was asked for.
fn serve(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let first = stand::read_request(&mut lines)?;
        let body = format!("path {}", first.split(' ').nth(1)?);
        let length = body.len();
        let answer = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {length}\r\n\r\n{body}");
        (&*stream).write_all(answer.as_bytes()).ok()?;
    }
}

fn get(to: SocketAddr, target: &str, fields: &str) -> String {
    stand::exchange(to, &format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n{fields}Connection: close\r\n\r\n"))
}

fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or(answer)
}

/// A `[[helper]]` named `h` that is a script for `sh`.
fn helper(kind: &str, script: &str, further: &str) -> String {
    format!("[[helper]]\nname = \"h\"\nkind = \"{kind}\"\ncommand = [\"sh\", \"-c\", {script:?}]\n{further}\n")
}

#[test]
fn a_rewriter_changes_urls_redirects_and_fails_closed() {
    let (folder, origin) = (tempfile::tempdir().unwrap(), stand::origin_that(serve));
    let script = "while read -r url rest; do case $url in \
        */old) echo \"OK rewrite-url=\\\"${url%old}new\\\"\";; \
        */ancient) echo \"${url%ancient}new 127.0.0.1/- - GET\";; \
        */moved) echo 'OK status=307 url=\"http://elsewhere.test/\"';; \
        */gone) echo '302:http://elsewhere.test/';; \
        */bad) echo BH;; */nonsense) echo nonsense;; *:1) echo 'OK rewrite-url=\"other.test:443\"';; *) echo ERR;; esac; done";
    for (on_failure, of_failure) in [("deny", "503"), ("allow", "200")] {
        let settings = helper("url_rewrite", script, &format!("on_failure = \"{on_failure}\""))
            + "[forward]\nurl_rewrite = \"h\"\n[access]\nconnect_ports = []\n"
            + &format!("[log]\nto = {:?}\nformat = \"{{helpers}} {{url}}\"\n", folder.path().join(on_failure));
        let server = stand::server(folder.path(), &settings);
        let proxy = server.addresses()[0];
        let ask = |path: &str| get(proxy, &format!("http://{origin}{path}"), "");
        assert_eq!(stand::body(&ask("/plain")), "path /plain");
        assert_eq!(stand::body(&ask("/old")), "path /new");
        // The key is that of the new URL.
        let old_form = ask("/ancient");
        assert!(old_form.contains("; hit") && stand::body(&old_form) == "path /new", "{old_form}");
        for (path, wanted) in [("/moved", "307"), ("/gone", "302")] {
            let answer = ask(path);
            assert!(status(&answer) == wanted && answer.contains("Location: http://elsewhere.test/\r\n"), "{answer}");
        }
        assert_eq!((status(&ask("/bad")), status(&ask("/nonsense"))), (of_failure, of_failure), "{on_failure}");
        let tunnel = stand::exchange(proxy, &format!("CONNECT {}:1 HTTP/1.1\r\nHost: x\r\n\r\n", origin.ip()));
        assert_eq!(status(&tunnel), "403", "{tunnel}");
        // The explanation says which helper gave no answer, and that the request went on without it.
        let requests = stand::ask(server.admin().unwrap(), "/requests");
        let requests: serde_json::Value = serde_json::from_str(stand::body(&requests)).unwrap();
        let bad =
            requests["requests"].as_array().unwrap().iter().find(|it| it["url"].as_str().unwrap().ends_with("/bad"));
        let told = stand::ask(server.admin().unwrap(), &format!("/requests/{}", bad.unwrap()["id"].as_str().unwrap()));
        let end = if on_failure == "allow" { "the request goes on without it" } else { "the request is refused" };
        assert!(told.contains("h (url_rewrite)") && told.contains("(BH ") && told.contains(end), "{told}");
        server.stop();
        let log = std::fs::read_to_string(folder.path().join(on_failure)).unwrap();
        let of_bad = if on_failure == "allow" { "h:passed-over http" } else { "h:failed http" };
        assert!(log.contains(of_bad) && log.contains("h:ok http") && log.contains("h:err http"), "{log}");
    }
}

#[test]
fn a_rewriter_cannot_lead_out_of_a_site() {
    let (folder, origin) = (tempfile::tempdir().unwrap(), stand::origin_that(serve));
    let script = "while read -r url rest; do case $url in \
        */in) echo 'OK rewrite-url=\"http://a.test/inside\"';; \
        */up) echo 'OK rewrite-url=\"http://a.test/../x\"';; */other) echo 'OK rewrite-url=\"http://b.test/x\"';; *) echo ERR;; esac; done";
    let settings = helper("url_rewrite", script, "")
        + &format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\n[[site]]\nhosts = [\"a.test\"]\norigin = \"http://{origin}\"\nurl_rewrite = \"h\"\n"
        );
    let server = stand::server(folder.path(), &settings);
    let ask = |path: &str| get(server.addresses()[0], path, "");
    assert_eq!(stand::body(&ask("/in")), "path /inside");
    assert_eq!((status(&ask("/up")), status(&ask("/other")), status(&ask("/"))), ("503", "503", "200"));
}

#[test]
fn a_store_id_changes_the_key_alone() {
    let (folder, origin) = (tempfile::tempdir().unwrap(), stand::origin_that(serve));
    let script = "while read -r url rest; do case $url in \
        */m[0-9]/*) echo \"OK store-id=http://m.internal/${url##*/}\";; */plain) echo 'OK store-id=no-url';; *) echo ERR;; esac; done";
    let settings = helper("store_id", script, "") + "[forward]\nstore_id = \"h\"\n";
    let server = stand::server(folder.path(), &settings);
    let ask = |path: &str, fields: &str| get(server.addresses()[0], &format!("http://{origin}{path}"), fields);
    assert_eq!(stand::body(&ask("/m1/file", "")), "path /m1/file");
    let other = ask("/m2/file", "");
    assert!(other.contains("; hit") && stand::body(&other) == "path /m1/file", "{other}");
    assert_eq!(stand::body(&ask("/m2/other", "")), "path /m2/other");
    assert_eq!(stand::body(&ask("/plain", "")), "path /plain");
    // For one who authenticates to the origin, keys are those of URLs.
    assert_eq!(stand::body(&ask("/m3/file", "Authorization: Bearer x\r\n")), "path /m3/file");
    // The URL that a key looks like has a key of its own: it was never asked for.
    let url = get(server.addresses()[0], "http://m.internal/file", "Cache-Control: only-if-cached\r\n");
    assert_eq!(status(&url), "504", "{url}");
}

#[test]
fn an_access_helper_permits_and_refuses() {
    let (folder, origin) = (tempfile::tempdir().unwrap(), stand::origin_that(serve));
    let script = "while read -r src path agent data; do [ \"$agent\" = evil ] && echo 'ERR message=\"not with this\"' || echo \"OK user=guest tag=$data\"; done";
    let log = folder.path().join("access.log");
    let settings = helper("external_acl", script, "format = \"%SRC %PATH %{User-Agent}\"\narguments = [\"staff\"]")
        + &format!(
            "[access]\nexternal = [\"h\"]\n[log]\nto = {:?}\nformat = \"{{user}} {{status}} {{helpers}}\"\n",
            log.display().to_string()
        );
    let server = stand::server(folder.path(), &settings);
    let ask = |fields: &str| get(server.addresses()[0], &format!("http://{origin}/acl"), fields);
    assert_eq!(status(&ask("User-Agent: good\r\n")), "200");
    let refused = ask("User-Agent: evil\r\n");
    assert!(status(&refused) == "403" && refused.contains("not with this"), "{refused}");
    // Stored, and judged each time.
    assert_eq!((status(&ask("User-Agent: good\r\n")), status(&ask("User-Agent: evil\r\n"))), ("200", "403"));
    server.stop();
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(log.contains("guest 200 h:ok") && log.contains("- 403 h:err"), "{log}");
}

/// The user of `basic_ncsa_auth` goes to `ext_file_userip_acl` as `%LOGIN`.
#[test]
fn squid_s_programs_log_in_and_permit() {
    let (ncsa, userip) = ("/usr/lib/squid/basic_ncsa_auth", "/usr/lib/squid/ext_file_userip_acl");
    if !Path::new(ncsa).is_file() || !Path::new(userip).is_file() {
        println!("skipped: Squid's helpers are not installed");
        return;
    }
    let (folder, origin) = (tempfile::tempdir().unwrap(), stand::origin_that(serve));
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let hash = "$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/";
    let users = file("users", &format!("ada:{hash}\nbob:{hash}\n"));
    let table = file("table", "127.0.0.1 ada\n");
    let settings = format!(
        "[[helper]]\nname = \"ncsa\"\nkind = \"basic\"\ncommand = [{ncsa:?}, {users:?}]\n\
         [[helper]]\nname = \"userip\"\nkind = \"external_acl\"\ncommand = [{userip:?}, \"-f\", {table:?}]\nformat = \"%SRC %LOGIN\"\n\
         [[login]]\nname = \"office\"\nscheme = \"basic\"\nhelper = \"ncsa\"\n\
         [access]\nlogin = \"office\"\nexternal = [\"userip\"]\n"
    );
    let server = stand::server(folder.path(), &settings);
    let ask = |credential: &str| {
        let field = format!("Proxy-Authorization: Basic {credential}\r\n");
        get(server.addresses()[0], &format!("http://{origin}/squid"), &field)
    };
    assert_eq!(status(&ask("YWRhOnNlY3JldA==")), "200", "ada");
    assert_eq!(status(&ask("YWRhOndyb25n")), "407", "ada with a wrong password");
    assert_eq!(status(&ask("Ym9iOnNlY3JldA==")), "403", "bob is not in the table");
}

/// Asks with a token of NTLM, or without one; gives the head of the answer.
fn ask_with_token(stream: &TcpStream, origin: SocketAddr, token: &str) -> String {
    let field = if token.is_empty() { String::new() } else { format!("Proxy-Authorization: NTLM {token}\r\n") };
    let mut writer = stream;
    writer.write_all(format!("GET http://{origin}/ntlm HTTP/1.1\r\nHost: {origin}\r\n{field}\r\n").as_bytes()).unwrap();
    let mut lines = BufReader::new(stream);
    let head = stand::read_head(&mut lines).unwrap();
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    lines.read_exact(&mut vec![0; length.unwrap_or(0)]).unwrap();
    head
}

/// A handshake of NTLM with Squid's `ntlm_fake_auth`: three messages on one connection, which then has its user.
#[test]
fn a_handshake_logs_a_connection_in() {
    let program = "/usr/lib/squid/ntlm_fake_auth";
    if !Path::new(program).is_file() {
        println!("skipped: {program} is not installed");
        return;
    }
    let (folder, origin) = (tempfile::tempdir().unwrap(), stand::origin_that(serve));
    let log = folder.path().join("access.log");
    let settings = format!(
        "[[helper]]\nname = \"fake\"\nkind = \"ntlm\"\ncommand = [{program:?}]\n\
         [[login]]\nname = \"office\"\nscheme = \"ntlm\"\nhelper = \"fake\"\n[access]\nlogin = \"office\"\n\
         [log]\nto = {:?}\nformat = \"{{user}} {{status}}\"\n",
        log.display().to_string()
    );
    let server = stand::server(folder.path(), &settings);
    let proxy = server.addresses()[0];
    let connect = || {
        let stream = TcpStream::connect(proxy).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    };
    let ask = |stream: &TcpStream, token: &str| ask_with_token(stream, origin, token);
    // `NTLMSSP`, the third message, user `ada` of the domain `OFFICE`.
    let third = "TlRMTVNTUAADAAAAAAAAAEAAAAAAAAAAQAAAAAYABgBAAAAAAwADAEYAAAAAAAAASQAAAAAAAABJAAAAAgAAAE9GRklDRWFkYQ==";
    let first = "TlRMTVNTUAABAAAAB7IIAAAAAAAAAAAAAAAAAAAAAAA=";
    let stream = connect();
    let challenge = ask(&stream, "");
    assert!(status(&challenge) == "407" && challenge.contains("Proxy-Authenticate: NTLM\r\n"), "{challenge}");
    let second = ask(&stream, first);
    assert!(status(&second) == "407" && second.contains("Proxy-Authenticate: NTLM TlRMTVNTUAAC"), "{second}");
    assert_eq!(status(&ask(&stream, third)), "200");
    // The connection has its user now; another one has not.
    assert_eq!(status(&ask(&stream, "")), "200");
    assert_eq!(status(&ask(&connect(), "")), "407");
    // A third message without the first two is worth nothing.
    assert_ne!(status(&ask(&connect(), third)), "200");
    drop(stream);
    server.stop();
    let log = std::fs::read_to_string(&log).unwrap().to_lowercase();
    assert_eq!(log.lines().filter(|line| line.ends_with("ada 200")).count(), 2, "{log}");
}

/// A client that begins handshakes and leaves them has half of the helper's processes at most, and such a handshake counts as failed.
#[test]
fn unfinished_handshakes_leave_processes_to_others() {
    let (folder, origin) = (tempfile::tempdir().unwrap(), stand::origin_that(serve));
    let script = "while read -r step token; do case $step in YR) echo 'TT go-on';; *) echo 'AF ada';; esac; done";
    let settings = helper("ntlm", script, "children = 2\ntimeout = \"3s\"")
        + "[[login]]\nname = \"office\"\nscheme = \"ntlm\"\nhelper = \"h\"\n[access]\nlogin = \"office\"\n";
    let server = stand::server(folder.path(), &settings);
    let proxy = server.addresses()[0];
    let said = |from: [u8; 4], tokens: &[&str]| {
        let stream = stand::connect_from(from, proxy);
        let answers: Vec<String> =
            tokens.iter().map(|token| status(&ask_with_token(&stream, origin, token)).to_owned()).collect();
        (stream, answers.join(" "))
    };
    let (held, first) = said([127, 0, 0, 1], &["Zmlyc3Q="]);
    assert_eq!(first, "407");
    std::thread::scope(|scope| {
        let second = scope.spawn(|| said([127, 0, 0, 1], &["Zmlyc3Q=", "c2Vjb25k"]).1);
        assert_eq!(said([127, 0, 0, 2], &["Zmlyc3Q=", "c2Vjb25k"]).1, "407 200", "another client");
        assert_eq!(second.join().unwrap(), "407 200", "the next of the client, after the first was left");
    });
    drop(held);
    let metrics = stand::ask(server.admin().unwrap(), "/metrics");
    assert!(metrics.contains("larder_logins_total{result=\"wrong\"} 1\n"), "{metrics}");
}

/// squidGuard, unmodified: without channels it blocks its list; asked with channels it answers `ERR` without the channel for each line, a
/// bad URL included, and that must let nothing pass.
#[test]
fn squidguard_blocks_its_list_and_fails_closed_with_channels() {
    if stand::program("squidGuard").is_none() {
        return;
    }
    let (folder, origin) = (tempfile::tempdir().unwrap(), stand::origin_that(serve));
    let home = folder.path().join("guard");
    std::fs::create_dir(&home).unwrap();
    std::fs::write(home.join("bad"), "bad.test\n").unwrap();
    let path = home.display();
    let guard = format!(
        "dbhome {path}\nlogdir {path}\ndest bad {{\n domainlist bad\n}}\nacl {{\n default {{\n  pass !bad all\n  redirect http://{origin}/blocked\n }}\n}}\n"
    );
    let file = home.join("squidGuard.conf").display().to_string();
    std::fs::write(&file, guard).unwrap();
    for (concurrency, good, bad) in [(0, "200", "200"), (8, "503", "503")] {
        let settings = format!(
            "[[helper]]\nname = \"guard\"\nkind = \"url_rewrite\"\ncommand = [\"squidGuard\", \"-c\", {file:?}]\nconcurrency = {concurrency}\n[forward]\nurl_rewrite = \"guard\"\n"
        );
        let server = stand::server(folder.path(), &settings);
        let ask = |url: &str| get(server.addresses()[0], url, "");
        let answer = ask(&format!("http://{origin}/fine"));
        assert_eq!(status(&answer), good, "{concurrency}: {answer}");
        let blocked = ask("http://bad.test/x");
        assert_eq!(status(&blocked), bad, "{concurrency}: {blocked}");
        assert!(concurrency > 0 || stand::body(&blocked) == "path /blocked", "{blocked}");
        server.stop();
    }
}
