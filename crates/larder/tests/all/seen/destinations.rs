//! Rules about destinations: each address is judged when it is connected to, so that no name leads past them.

use super::countries::write;
use super::parents::nowhere;
use super::stand;
use super::ways::{connect, echo};

#[test]
fn a_rule_closes_destinations_to_some_and_nothing_stored_leads_past_it() {
    let (folder, open, closed) = (tempfile::tempdir().unwrap(), nowhere(), nowhere());
    let port = closed.port();
    let text = format!(
        "[[listen]]\naddress = \"{open}\"\n[[listen]]\naddress = \"{closed}\"\n[access]\nconnect_ports = []\n\
         [upstream]\nresolver = \"system\"\n\
         [[rule]]\nwhen = {{ host = \"localhost\" }}\ndo = {{ allow = true }}\n\
         [[rule]]\nname = \"inner\"\nwhen = {{ listener = \":{port}\", destination = [\"127.0.0.0/8\", \"::1\"] }}\ndo = {{ deny = true }}\n"
    );
    let server = stand::server(folder.path(), &text);
    let origin = stand::origin();
    // A name by its form: the resolver of the system makes an address of it.
    let by_name = format!("http://127.1:{}/fresh", origin.port());
    for round in ["first", "again"] {
        let answer = stand::get(open, &by_name);
        assert!(answer.ends_with("\r\n\r\n/fresh") && !answer.contains("; hit"), "{round}: {answer}");
        let answer = stand::get(closed, &by_name);
        assert!(answer.starts_with("HTTP/1.1 403"), "{round}: {answer}");
    }
    // An address in the URL is judged before anything is looked up, so its answer is stored for those who may have it.
    let by_address = format!("http://{origin}/fresh-2");
    for (round, is_hit) in [("first", false), ("again", true)] {
        let answer = stand::get(open, &by_address);
        assert!(answer.ends_with("\r\n\r\n/fresh-2"), "{round}: {answer}");
        assert_eq!(answer.contains("; hit"), is_hit, "{round}: {answer}");
        let answer = stand::get(closed, &by_address);
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("inner (test:"), "{round}: {answer}");
    }
    // An earlier rule has a verdict.
    let allowed = stand::get(closed, &format!("http://localhost:{}/fresh-3", origin.port()));
    assert!(allowed.ends_with("\r\n\r\n/fresh-3"), "{allowed}");
    // Tunnels.
    let echoing = stand::origin_that(echo);
    for (proxy, host, is_open) in
        [(open, "127.1", true), (closed, "127.1", false), (open, "127.0.0.1", true), (closed, "127.0.0.1", false)]
    {
        let answer = connect(proxy, &format!("{host}:{}", echoing.port()));
        assert_eq!(answer.ends_with("\r\n\r\nb"), is_open, "{host}: {answer}");
        assert_eq!(answer.starts_with("HTTP/1.1 403"), !is_open, "{host}: {answer}");
    }
    drop(server);
}

/// The country of an address is asked where its network is: when it is connected to.
#[test]
fn a_rule_closes_countries_to_some_and_follows_the_file() {
    let (folder, open, closed) = (tempfile::tempdir().unwrap(), nowhere(), nowhere());
    let (port, path) = (closed.port(), folder.path().join("countries.mmdb"));
    write(&path, "FR");
    let text = format!(
        "[[listen]]\naddress = \"{open}\"\n[[listen]]\naddress = \"{closed}\"\n\
         [access]\nconnect_ports = []\ncountry_file = {path:?}\n[upstream]\nresolver = \"system\"\n\
         [[rule]]\nname = \"abroad\"\nwhen = {{ listener = \":{port}\", destination_country = [\"FR\", \"SE\"] }}\ndo = {{ deny = true }}\n\
         [[rule]]\nname = \"elsewhere\"\nwhen = {{ listener = \":{port}\", destination = \"192.0.2.0/24\", destination_country = \"DE\" }}\n\
         do = {{ deny = true }}\n"
    );
    let server = stand::server(folder.path(), &text);
    let (origin, echoing) = (stand::origin(), stand::origin_that(echo));
    let urls = [format!("http://127.1:{}/fresh", origin.port()), format!("http://{origin}/fresh-2")];
    let is_denied = |answer: &str| answer.starts_with("HTTP/1.1 403");
    for (url, is_by_name) in urls.iter().zip([true, false]) {
        for round in ["first", "again"] {
            let answer = stand::get(open, url);
            assert!(answer.starts_with("HTTP/1.1 200"), "{round} {url}: {answer}");
            // Stored answers are found by their URL: one that a name brings from a closed country is stored for nobody.
            assert_eq!(answer.contains("; hit"), round == "again" && !is_by_name, "{round} {url}: {answer}");
            assert!(is_denied(&stand::get(closed, url)), "{round} {url}");
        }
    }
    for host in ["127.1", "127.0.0.1"] {
        let target = format!("{host}:{}", echoing.port());
        assert!(connect(open, &target).ends_with("\r\n\r\nb") && is_denied(&connect(closed, &target)), "{host}");
    }
    // By another file the same addresses are somewhere else; the network of the second rule does not have them.
    write(&path, "DE");
    let by_name = format!("http://127.1:{}/fresh-3", origin.port());
    stand::wait_for("the file is taken up", || !is_denied(&stand::get(closed, &by_name)));
    assert!(stand::get(closed, &urls[1]).starts_with("HTTP/1.1 200"));
    write(&path, "SE");
    stand::wait_for("the file is taken up", || is_denied(&stand::get(closed, &urls[1])));
    drop(server);
}
