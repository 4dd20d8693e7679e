//! Squid's cache manager: its client and what scripts look for.

use super::stand;
use std::net::SocketAddr;

fn ask(to: SocketAddr, target: &str) -> String {
    stand::exchange(to, &format!("GET {target} HTTP/1.0\r\nHost: {to}\r\n\r\n"))
}

#[test]
fn squidclient_reads_the_pages() {
    let Some(_) = stand::program("squidclient") else { return };
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), "");
    let (proxy, admin, origin) = (server.addresses()[0], server.admin().unwrap(), stand::origin());
    for path in ["fresh", "fresh", "none"] {
        stand::get(proxy, &format!("http://{origin}/{path}"));
    }
    let mgr = |to: SocketAddr, page: &str| {
        let mut client = stand::program("squidclient").unwrap();
        let output =
            client.args(["-h", "127.0.0.1", "-p", &to.port().to_string(), &format!("mgr:{page}")]).output().unwrap();
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    stand::wait_for("clients", || mgr(proxy, "info").contains("Number of clients accessing cache:\t1\n"));
    for to in [proxy, admin] {
        let info = mgr(to, "info");
        let received = info.lines().find_map(|line| line.trim().strip_prefix("Number of HTTP requests received:"));
        assert!(received.is_some_and(|many| many.trim().parse::<u64>().unwrap() >= 3), "{info}");
        for words in ["Squid Object Cache: Version", "Hits as % of all requests:\t5min: ", "Cache Hits:", "UP Time:"] {
            assert!(info.contains(words), "{words} in {info}");
        }
        let menu = mgr(to, "menu");
        for page in menu
            .lines()
            .filter_map(|line| line.split('\t').next())
            .map(str::trim)
            .filter(|page| !page.contains(' ') && !page.is_empty())
        {
            let said = mgr(to, page);
            assert!(!said.lines().next().is_some_and(|first| first.contains(" 404")), "{page}: {said}");
        }
    }
    stand::wait_for("requests", || mgr(proxy, "client_list").contains("Address: 127.0.0.1\nName:    127.0.0.1\n"));
    let counters = mgr(proxy, "counters");
    assert!(counters.contains("client_http.hits = 1\n") && counters.contains("server.all.requests = "), "{counters}");
    assert!(mgr(proxy, "utilization").contains("Last 5 minutes:\nsample_start_time = "));
    assert!(mgr(proxy, "5min").contains("client_http.all_median_svc_time = "));
    assert!(mgr(proxy, "nonsense").contains("404"));
}

#[test]
fn the_manager_answers_this_machine_and_nobody_with_a_token_set() {
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), "");
    let (proxy, admin) = (server.addresses()[0], server.admin().unwrap());
    let newer = format!("http://{proxy}/squid-internal-mgr/info");
    for answer in [
        ask(proxy, "/squid-internal-mgr/info"),
        ask(proxy, &newer),
        ask(proxy, "cache_object://localhost/info@any"),
        ask(admin, "cache_object://localhost/info"),
        ask(admin, "/squid-internal-mgr/info"),
    ] {
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("Content-Type: text/plain"), "{answer}");
    }
    assert!(ask(proxy, "/squid-internal-mgr/shutdown").starts_with("HTTP/1.1 404"));
    let rebound = stand::exchange(proxy, "GET /squid-internal-mgr/info HTTP/1.0\r\nHost: evil.example\r\n\r\n");
    assert!(rebound.starts_with("HTTP/1.1 404"), "DNS rebinding: {rebound}");
    let other = tempfile::tempdir().unwrap();
    let closed = stand::server(other.path(), "admin_token = \"correct horse\"");
    assert!(ask(closed.addresses()[0], "/squid-internal-mgr/info").starts_with("HTTP/1.1 403"));
    assert!(ask(closed.admin().unwrap(), "/squid-internal-mgr/info").starts_with("HTTP/1.1 401"));
    assert!(!ask(proxy, "/squid-internal-mgr/config").contains("correct"));
}
