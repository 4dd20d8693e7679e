//! Rules that name lists, users and logins: each request is judged by the facts of its own, also where a connection has a memo of an
//! earlier verdict.

use super::stand;
use larder::config::Loaded;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

/// `ada:secret` and `bob:secret`, by `openssl passwd -apr1`.
const USERS: &str = "ada:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\nbob:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n";
const ADA: &str = "Proxy-Authorization: Basic YWRhOnNlY3JldA==\r\n";
const BOB: &str = "Proxy-Authorization: Basic Ym9iOnNlY3JldA==\r\n";

/// One connection, so that its memo of verdicts counts.
struct Connection(TcpStream);

impl Connection {
    fn to(address: SocketAddr) -> Connection {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(stand::WITHIN)).unwrap();
        Connection(stream)
    }

    /// The status of an answer with a length.
    fn get(&mut self, target: &str, fields: &str) -> String {
        self.exchange(target, fields).0
    }

    /// The status and the body of an answer with a length.
    fn exchange(&mut self, target: &str, fields: &str) -> (String, String) {
        let host = target.split('/').nth(2).unwrap_or("a.test");
        write!(self.0, "GET {target} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n").unwrap();
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            self.0.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split('\r').next()).unwrap();
        let mut body = String::new();
        (&self.0).take(length.parse().unwrap()).read_to_string(&mut body).unwrap();
        (head[9..12].to_owned(), body)
    }
}

fn login(folder: &Path) -> String {
    let (users, groups) = (folder.join("users"), folder.join("groups"));
    std::fs::write(&users, USERS).unwrap();
    std::fs::write(&groups, "staff: ada\n").unwrap();
    format!("[[login]]\nname = \"office\"\nscheme = \"basic\"\nfile = {users:?}\ngroups = {groups:?}\n")
}

#[test]
fn page_program_and_log_name_the_entry_that_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (names, log) = (folder.path().join("names"), folder.path().join("access.log"));
    std::fs::write(&names, "||tracker.test^\n").unwrap();
    let settings = format!(
        "[log]\nto = {log:?}\nformat = \"{{status}} {{rule}}\"\n\
         [[list]]\nname = \"ads\"\nsource = {names:?}\n\
         [[rule]]\nname = \"block\"\nwhen = {{ list = \"ads\" }}\ndo = {{ deny = true }}\n"
    );
    let server = stand::server(folder.path(), &settings);
    let wanted = "list 'ads' entry 'tracker.test' (covers a.tracker.test)";
    let asked = |fields: &str| {
        let request = "GET http://a.tracker.test/%3Cb%3E HTTP/1.1\r\nHost: a.tracker.test\r\nConnection: close\r\n";
        stand::exchange(server.addresses()[0], &format!("{request}{fields}\r\n"))
    };
    let (page, program) = (asked(""), asked("Accept: application/json\r\n"));
    // A page for people escapes its text.
    assert!(page.starts_with("HTTP/1.1 403") && page.replace("&#39;", "'").contains(wanted), "{page}");
    assert!(program.contains("\"error\":\"rule\"") && program.contains(wanted), "{program}");
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    stand::wait_for("two lines of the log", || read().lines().filter(|line| line.contains(wanted)).count() == 2);
    assert!(read().lines().all(|line| line.starts_with("403") && line.contains("block (")), "{}", read());
}

/// A refusal is remembered, but not for a URL that another entry covers.
#[test]
fn a_repeated_refusal_names_the_entry_of_its_own_url() {
    let folder = tempfile::tempdir().unwrap();
    let names = folder.path().join("names");
    std::fs::write(&names, "a.test/one\na.test/two\n").unwrap();
    let settings = format!(
        "workers = 1\n[[list]]\nname = \"ads\"\nsource = {names:?}\nformat = \"urls\"\n\
         [[rule]]\nname = \"block\"\nwhen = {{ list = \"ads\" }}\ndo = {{ deny = true }}\n"
    );
    let server = stand::server(folder.path(), &settings);
    let mut client = Connection::to(server.addresses()[0]);
    for path in ["one", "one", "one", "two", "two", "one", "two/x", "two", "two", "one"] {
        let (status, body) = client.exchange(&format!("http://a.test/{path}"), "");
        let entry = format!("a.test/{}", path.split('/').next().unwrap());
        assert!(status == "403" && body.contains(&format!("{entry}&#39;")), "{path}: {status} {body}");
    }
}

#[test]
fn a_list_decides_and_a_new_one_ends_memos() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("names");
    std::fs::write(&file, "127.0.0.1/fresh-bad\n").unwrap();
    let settings = format!(
        "[[list]]\nname = \"bad\"\nformat = \"urls\"\nsource = {file:?}\n[[rule]]\nwhen = {{ list = \"bad\" }}\ndo = {{ deny = true }}\n"
    );
    let server = stand::server(folder.path(), &settings);
    let (origin, admin) = (stand::origin(), server.admin().unwrap());
    let mut client = Connection::to(server.addresses()[0]);
    let url = |path: &str| format!("http://{origin}/{path}");
    for (path, wanted) in [
        ("fresh", "200"),
        ("fresh", "200"),
        ("fresh", "200"),
        ("fresh-bad", "403"),
        ("fresh", "200"),
        ("fresh-bad/x", "403"),
    ] {
        assert_eq!(client.get(&url(path), ""), wanted, "{path}");
    }
    std::fs::write(&file, "127.0.0.1/fresh\n").unwrap();
    let refreshed = stand::exchange(
        admin,
        &format!("POST /lists/refresh HTTP/1.1\r\nHost: {admin}\r\nX-Larder: 1\r\nConnection: close\r\n\r\n"),
    );
    assert!(refreshed.starts_with("HTTP/1.1 2"), "{refreshed}");
    stand::wait_for("the new list", || client.get(&url("fresh"), "") == "403");
    assert_eq!(client.get(&url("fresh-bad"), ""), "200");
}

#[test]
fn rules_about_users_ask_for_the_login_and_tell_users_apart() {
    let folder = tempfile::tempdir().unwrap();
    let settings = login(folder.path())
        + "[access]\nlogin = \"office\"\n\
           [[rule]]\nwhen = { path = \"/fresh-staff/**\", group = \"staff\" }\ndo = { allow = true }\n\
           [[rule]]\nwhen = { path = \"/fresh-staff/**\" }\ndo = { deny = true }\n\
           [[rule]]\nwhen = { user = \"bob\", path = \"/fresh-ada\" }\ndo = { deny = true }\n";
    let server = stand::server(folder.path(), &settings);
    let origin = stand::origin();
    let (mut client, mut other) = (Connection::to(server.addresses()[0]), Connection::to(server.addresses()[0]));
    let (staff, ada, all) = (
        format!("http://{origin}/fresh-staff/x"),
        format!("http://{origin}/fresh-ada"),
        format!("http://{origin}/fresh"),
    );
    // Twice each, so that the second one may be judged by memos; users take turns on two connections.
    for _ in 0..3 {
        for (url, fields, wanted) in [
            (&staff, ADA, "200"),
            (&staff, BOB, "403"),
            (&staff, "", "407"),
            (&ada, ADA, "200"),
            (&ada, BOB, "403"),
            (&all, BOB, "200"),
            (&all, "", "407"),
        ] {
            for connection in [&mut client, &mut other] {
                assert_eq!(connection.get(url, fields), wanted, "{url} {fields}");
                assert_eq!(connection.get(url, fields), wanted, "{url} {fields}");
            }
        }
    }
    // The record says who was refused.
    assert_eq!(client.get(&format!("{ada}?last"), BOB), "403");
    let admin = server.admin().unwrap();
    let last = || {
        let told = stand::ask(admin, "/requests?limit=1");
        let told: serde_json::Value = serde_json::from_str(stand::body(&told)).unwrap();
        told["requests"][0].clone()
    };
    stand::wait_for("the record", || last()["url"].as_str().is_some_and(|url| url.ends_with("?last")));
    let told = stand::ask(admin, &format!("/requests/{}", last()["id"].as_str().unwrap()));
    assert!(told.contains("bob, who has logged in"), "{told}");
    let tunnel = stand::ask(admin, "/explain?method=CONNECT&url=a.example:443");
    assert!(tunnel.starts_with("HTTP/1.1 200") && tunnel.contains("tunnel"), "{tunnel}");
}

#[test]
fn a_rate_that_counts_clients_asks_nobody_for_a_login() {
    let folder = tempfile::tempdir().unwrap();
    let settings = login(folder.path())
        + "[access]\nlogin = \"office\"\n\
           [[rule]]\ndo = { rate = \"1000/s\" }\n\
           [[rule]]\nwhen = { path = \"/fresh-closed\" }\ndo = { deny = true }\n";
    let server = stand::server(folder.path(), &settings);
    let origin = stand::origin();
    let mut client = Connection::to(server.addresses()[0]);
    // The rule refuses everybody, so nobody has to say who asks.
    assert_eq!(client.get(&format!("http://{origin}/fresh-closed"), ""), "403");
    assert_eq!(client.get(&format!("http://{origin}/fresh"), ""), "407");
    assert_eq!(client.get(&format!("http://{origin}/fresh"), ADA), "200");
}

#[test]
fn a_rule_requires_a_login_where_nothing_else_does() {
    let folder = tempfile::tempdir().unwrap();
    let settings =
        login(folder.path()) + "[[rule]]\nwhen = { path = \"/fresh-closed/**\" }\ndo = { login = \"office\" }\n";
    let server = stand::server(folder.path(), &settings);
    let origin = stand::origin();
    let mut client = Connection::to(server.addresses()[0]);
    let (closed, open) = (format!("http://{origin}/fresh-closed/x"), format!("http://{origin}/fresh"));
    for _ in 0..3 {
        assert_eq!(client.get(&open, ""), "200");
        assert_eq!(client.get(&closed, ""), "407");
        assert_eq!(client.get(&closed, ADA), "200");
        assert_eq!(client.get(&closed, "Proxy-Authorization: Basic eDp5\r\n"), "407");
        assert_eq!(client.get(&open, ""), "200");
    }
}

#[test]
fn a_request_that_came_is_explained_by_the_rules_that_held() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "[records]\nname_answers = true\n[[rule]]\nname = \"marked\"\nwhen = { path = \"/fresh/**\" }\ndo = { mark = \"m\" }\n\
                    [[rule]]\nname = \"closed\"\nwhen = { path = \"/fresh-closed\" }\ndo = { deny = true }\n";
    let server = stand::server(folder.path(), settings);
    let (origin, proxy) = (stand::origin(), server.addresses()[0]);
    // A miss, a hit, a hit by a memo, and a refusal.
    for (path, rule) in
        [("fresh/x", "marked"), ("fresh/x", "marked"), ("fresh/x", "marked"), ("fresh-closed", "closed")]
    {
        let answer = stand::get(proxy, &format!("http://{origin}/{path}"));
        let name = answer.lines().find_map(|line| line.strip_prefix("Larder-Request: ")).unwrap().trim();
        let explained = stand::ask(server.admin().unwrap(), &format!("/requests/{name}"));
        assert!(explained.contains(rule), "{path}: {explained}");
    }
}

#[test]
fn a_tunnel_stands_in_the_log_with_its_rules() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let settings = format!(
        "[[rule]]\nname = \"tunnels\"\nwhen = {{ method = \"CONNECT\" }}\ndo = {{ mark = \"m\" }}\n[log]\nto = {:?}\nformat = \"{{method}} {{rule}} {{mark}} {{status}}\"\n",
        log.display().to_string()
    );
    let server = stand::server(folder.path(), &settings);
    let origin = stand::origin();
    let mut tunnel = TcpStream::connect(server.addresses()[0]).unwrap();
    write!(tunnel, "CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\n\r\n").unwrap();
    let mut start = [0; 12];
    tunnel.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
    drop(tunnel);
    server.stop();
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(log.contains("CONNECT tunnels") && log.contains(" m 200"), "{log}");
}

#[test]
fn users_are_counted_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let settings = login(folder.path())
        + "[access]\nlogin = \"office\"\n[[rule]]\ndo = { rate = \"1/h\", rate_by = \"user\", burst = 2 }\n";
    let server = stand::server(folder.path(), &settings);
    let url = format!("http://{}/fresh", stand::origin());
    let mut client = Connection::to(server.addresses()[0]);
    for (fields, wanted) in
        [(ADA, "200"), ("", "407"), (ADA, "200"), (ADA, "429"), (BOB, "200"), (BOB, "200"), (BOB, "429")]
    {
        assert_eq!(client.get(&url, fields), wanted, "{fields}");
    }
}

#[test]
fn groups_that_a_helper_takes_back_count_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let group = folder.path().join("group");
    std::fs::write(&group, "staff\n").unwrap();
    let script = format!("while read -r line; do echo \"OK group=$(cat {})\"; done", group.display());
    let settings = format!(
        "workers = 1\n[[helper]]\nname = \"h\"\nkind = \"basic\"\ncommand = [\"sh\", \"-c\", {script:?}]\nttl = \"1s\"\n\
         [[login]]\nname = \"office\"\nscheme = \"basic\"\nhelper = \"h\"\nttl = \"1s\"\n[access]\nlogin = \"office\"\n\
         [[rule]]\nwhen = {{ path = \"/fresh-staff/**\", not = {{ group = \"staff\" }} }}\ndo = {{ deny = true }}\n\
         [[rule]]\nwhen = {{ path = \"/fresh-guest/**\", not = {{ group = \"guest\" }} }}\ndo = {{ deny = true }}\n"
    );
    let server = stand::server(folder.path(), &settings);
    let origin = stand::origin();
    let (staff, guest) = (format!("http://{origin}/fresh-staff/x"), format!("http://{origin}/fresh-guest/x"));
    let mut client = Connection::to(server.addresses()[0]);
    for _ in 0..3 {
        assert_eq!(client.get(&staff, ADA), "200");
    }
    std::fs::write(&group, "guest\n").unwrap();
    // The worker remembers paths for all of its connections.
    let mut other = Connection::to(server.addresses()[0]);
    stand::wait_for("the other group", || other.get(&guest, ADA) == "200");
    for _ in 0..3 {
        assert_eq!((other.get(&guest, ADA), other.get(&staff, ADA)), ("200".to_owned(), "403".to_owned()));
    }
}

#[test]
fn rules_that_name_nothing_are_refused_together() {
    let text = "[[rule]]\nwhen = { not = { list = \"ads\" } }\ndo = { deny = true }\n[[rule]]\nwhen = { group = \"staff\" }\ndo = { login = \"x\" }\n\
                [[rule]]\nwhen = { host = \"a.test\" }\ndo = { route = \"app\" }\n";
    let report = Loaded::parse("r.toml", text, &[]).unwrap_err().to_string();
    for words in [
        "there is no list \"ads\"",
        "there is no login \"x\"",
        "a rule that names users or groups needs a login",
        "there is no origin \"app\"",
        "r.toml:1:",
        "r.toml:4:",
        "r.toml:7:",
    ] {
        assert!(report.contains(words), "{words} in {report}");
    }
}
