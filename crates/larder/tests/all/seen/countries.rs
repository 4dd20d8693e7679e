//! Rules about the countries of clients: by a file that is written here, replaced while the server runs, and broken.

#[path = "../../../../larder-lists/src/countries/tests/mmdb.rs"]
mod mmdb;

use super::reload::{Steered, base};
use super::stand;
use larder::config::Loaded;
use larder::explain::{Asking, rehearse};
use mmdb::Mmdb;
use std::path::Path;

/// Writes a file by which this machine is in a country, as programs do that keep one up to date: whole or not at all.
pub fn write(path: &Path, country: &str) {
    let networks = [("127.0.0.0/8", country), ("192.0.2.0/24", "FR"), ("2001:db8::/32", "SE")];
    let new = path.with_extension("new");
    std::fs::write(&new, Mmdb { networks: &networks, ..Mmdb::default() }.write()).unwrap();
    std::fs::rename(new, path).unwrap();
}

#[test]
fn the_country_of_a_client_is_that_of_the_file_as_it_is_now() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("countries.mmdb");
    write(&path, "DE");
    let text = |file: &Path| {
        format!(
            "{}[access]\ncountry_file = {file:?}\n[[listen]]\naddress = \"127.0.0.1:0\"\norigin = \"http://{}\"\n\
             [[rule]]\nwhen = {{ country = \"de\", path = \"/de/**\" }}\ndo = {{ deny = true, status = 410 }}\n\
             [[rule]]\nwhen = {{ not = {{ country = [\"DE\", \"SE\"] }}, path = \"/mine/**\" }}\n\
             do = {{ deny = true, status = 451 }}\n\
             [[rule]]\nwhen = {{ country = \"ZZ\", path = \"/unknown/**\" }}\ndo = {{ deny = true, status = 404 }}\n",
            base(folder.path()),
            stand::origin()
        )
    };
    let steered = Steered::start(folder.path(), &text(&path));
    let mut kept = stand::Kept::to(steered.server.addresses()[0]);
    let mut status = |path: &str| {
        let (head, _) = kept.ask(&format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n"));
        head[9..12].to_owned()
    };
    let mut all = || ["/de/fresh", "/mine/fresh", "/unknown/fresh"].map(&mut status).join(" ");
    for _ in 0..3 {
        assert_eq!(all(), "410 200 200");
    }
    // The file is replaced while the connection is open.
    write(&path, "US");
    stand::wait_for("the file is taken up", || all() == "200 451 200");
    // A file that can't be read changes nothing.
    std::fs::write(&path, "nothing").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    assert_eq!(all(), "200 451 200");
    let trouble = steered.reload(&text(&path)).unwrap_err();
    assert!(trouble.contains("access.country_file") && trouble.contains("no MMDB file"), "{trouble}");
    assert_eq!(all(), "200 451 200");
    // An address that the file does not have is of no country, so `not` holds for it.
    let empty = folder.path().join("others.mmdb");
    std::fs::write(&empty, Mmdb { networks: &[("192.0.2.0/24", "DE")], ..Mmdb::default() }.write()).unwrap();
    steered.reload(&text(&empty)).unwrap();
    for _ in 0..3 {
        assert_eq!(all(), "200 451 404");
    }
    steered.server.stop();
}

#[test]
fn a_question_shows_the_country() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("countries.mmdb");
    write(&path, "DE");
    let text = format!(
        "[access]\nclients = [\"0.0.0.0/0\", \"::/0\"]\ncountry_file = {path:?}\n\
         [[rule]]\nname = \"french\"\nwhen = {{ country = \"FR\" }}\ndo = {{ deny = true, status = 410 }}\n"
    );
    let loaded = Loaded::parse("larder.toml", &text, &[]).unwrap_or_else(|report| panic!("{report}"));
    let ask = |client: &str| {
        let client = client.parse().unwrap();
        let asking = Asking { url: "http://a.test/".to_owned(), client, ..Asking::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(rehearse(&asking, &loaded, None)).unwrap().to_string()
    };
    let french = ask("::ffff:192.0.2.7");
    assert!(french.contains("192.0.2.7 is of FR") && french.contains("410"), "{french}");
    let swede = ask("2001:db8::7");
    assert!(swede.contains("2001:db8::7 is of SE") && !swede.contains("410"), "{swede}");
    assert!(ask("203.0.113.1").contains("203.0.113.1 is of ZZ, for the file has no country for it"));
}
