//! The access log of a running server, read by others.

use super::stand;
use std::fs;
use std::process::Stdio;

#[test]
fn a_log_analyser_reads_squid_s_format() {
    let Some(mut calamaris) = stand::program("calamaris") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let server = stand::server(folder.path(), &format!("[log]\nto = \"{}\"\nformat = \"squid\"", path.display()));
    let (proxy, origin) = (server.addresses()[0], stand::origin());
    for _ in 0..3 {
        stand::get(proxy, &format!("http://{origin}/fresh"));
        stand::get(proxy, &format!("http://{origin}/none"));
    }
    stand::exchange(proxy, "GET /no/such/site HTTP/1.1\r\nHost: a b\r\n\r\n");
    server.stop();
    let log = fs::read_to_string(&path).unwrap();
    assert_eq!(log.lines().count(), 7, "{log}");
    for code in ["TCP_MISS/200", "TCP_MEM_HIT/200", "NONE/400", "HIER_DIRECT/127.0.0.1", "text/plain"] {
        assert!(log.contains(code), "{code} in {log}");
    }
    let output = calamaris.args(["-a"]).stdin(fs::File::open(&path).unwrap()).stderr(Stdio::piped()).output().unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    let trouble = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && trouble.is_empty(), "{trouble}\n{report}");
    let number = |label: &str| report.lines().find_map(|line| Some(line.strip_prefix(label)?.trim().to_owned()));
    assert_eq!(
        number("Total amount:").as_deref().map(|text| text.split_whitespace().last().unwrap()),
        Some("7"),
        "{report}"
    );
    let row = |word: &str| report.lines().find(|line| line.trim_start().starts_with(word)).map(str::to_owned);
    assert!(row("HIT").is_some_and(|row| row.split_whitespace().nth(1) == Some("2")), "{report}");
    assert!(report.contains("text/plain"), "{report}");
}

#[test]
fn a_format_of_one_s_own_is_written_as_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let text =
        format!("[log]\nto = \"{}\"\nformat = \"{{method}} {{url}} {{status}} {{outcome}} {{type}}\"", path.display());
    let server = stand::server(folder.path(), &text);
    let (proxy, origin) = (server.addresses()[0], stand::origin());
    let url = format!("http://{origin}/fresh");
    stand::get(proxy, &url);
    stand::get(proxy, &url);
    stand::exchange(proxy, "GET http://me:secret@a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n");
    stand::exchange(proxy, "GET /there HTTP/1.1\r\nHost: b.example\r\nConnection: close\r\n\r\n");
    server.stop();
    let log = fs::read_to_string(&path).unwrap();
    // Each worker hands over its own lines.
    for line in [
        format!("GET {url} 200 uri-miss text/plain"),
        format!("GET {url} 200 hit text/plain"),
        "- - 400 ".to_owned(),
        "GET http://b.example/there 404 no-site".to_owned(),
    ] {
        assert!(log.lines().any(|found| found.starts_with(&line)), "{line} in {log}");
    }
    assert!(!log.contains("secret"), "{log}");
}
