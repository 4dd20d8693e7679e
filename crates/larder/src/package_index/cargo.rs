//! The sparse index of cargo: `config.json` says where the crates lie, and a file for each crate has a line for each version, with the digest.
//! Source: <https://doc.rust-lang.org/cargo/reference/registry-index.html>.

use super::found::{Found, by_name};
use super::{Body, Unread};
use crate::lockfile;
use larder_wire::Url;
use serde::Deserialize;
use std::io::{BufRead, BufReader, Read};

const CONFIG: &str = "/config.json";

/// A longer line of an index is not read: those that are known have some kB.
const LINE_BYTES_MAX: u64 = 1024 * 1024;

#[derive(Deserialize)]
struct Config {
    dl: String,
}

#[derive(Deserialize)]
struct Version {
    name: String,
    vers: String,
    cksum: String,
}

/// `None` for one that is itself a `config.json`, or no place of a crate.
pub(super) fn config_url(url: &Url) -> Option<Url> {
    let name = url.path.rsplit('/').next()?;
    let root = url.path.strip_suffix(&*format!("/{}", lockfile::crate_place(name)))?;
    Some(Url { path: format!("{root}{CONFIG}").into(), ..url.clone() })
}

pub(super) fn read(body: Body, template: Option<&str>, found: &mut Found<'_>) -> Result<(), Unread> {
    if found.url().path.ends_with(CONFIG) {
        let config: Config = serde_json::from_reader(body.take(LINE_BYTES_MAX))?;
        found.template(&config.dl);
        return Ok(());
    }
    let Some(template) = template else { return Ok(()) };
    let (mut body, mut line) = (BufReader::new(body), Vec::new());
    loop {
        line.clear();
        let read = (&mut body).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        let Version { name, vers, cksum } = serde_json::from_slice(&line)?;
        let digest = by_name("sha256", &cksum);
        // A template makes URLs of these words, and must not be made to lead elsewhere.
        if digest.is_some() && [&name, &vers].into_iter().all(|word| lockfile::is_plain_in_crate_url(word)) {
            found.file(&lockfile::crate_url(template, &name, &vers, &cksum), digest)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{named_by, stored};
    use super::super::{IndexFormat, StoredIndex, Unread};
    use super::*;
    use std::hash::RandomState;

    #[test]
    fn crates_lie_where_the_registry_says() {
        let config = stored(IndexFormat::Cargo, "https://i.test/x/config.json", "", br#"{"dl":"https://dl.test/c"}"#);
        let content = config.read(&RandomState::new()).unwrap();
        assert_eq!(content.template.as_deref(), Some("https://dl.test/c"));
        let sha = "ab".repeat(32);
        let lines = format!(
            "{{\"name\":\"Abcd\",\"vers\":\"1.0.0\",\"deps\":[],\"cksum\":\"{sha}\",\"yanked\":false}}\n\
             {{\"name\":\"Abcd\",\"vers\":\"1.1.0\",\"cksum\":\"{sha}\"}}\n\
             {{\"name\":\"../b\",\"vers\":\"1\",\"cksum\":\"{sha}\"}}"
        );
        let file = |template: &str| StoredIndex {
            template: Some(template.to_owned()),
            ..stored(IndexFormat::Cargo, "https://i.test/x/ab/cd/abcd", "text/plain", lines.as_bytes())
        };
        let of = ["https://dl.test/c/Abcd/1.1.0/download", "https://dl.test/b/1/download"];
        assert_eq!(named_by(file("https://dl.test/c"), &of).unwrap(), ["sha-256 aba", "none"]);
        let of = ["https://dl.test/ab/cd/Abcd-1.0.0.crate"];
        let template = "https://dl.test/{lowerprefix}/{crate}-{version}.crate";
        assert_eq!(named_by(file(template), &of).unwrap(), ["sha-256 aba"]);
        let broken = stored(IndexFormat::Cargo, "https://i.test/x/ab/cd/abcd", "", b"{}\n");
        let broken = StoredIndex { template: Some("https://dl.test/c".to_owned()), ..broken };
        assert!(matches!(named_by(broken, &[]), Err(Unread::Malformed(_))));
    }

    #[test]
    fn the_settings_of_a_registry_lie_at_its_root() {
        for (url, wanted) in [
            ("https://i.test/se/rd/serde", Some("https://i.test/config.json")),
            ("https://i.test/x/y/3/a/abc", Some("https://i.test/x/y/config.json")),
            ("https://i.test/1/a", Some("https://i.test/config.json")),
            ("https://i.test/config.json", None),
            ("https://i.test/aa/bb/serde", None),
        ] {
            let found = config_url(&Url::parse(url).unwrap());
            assert_eq!(found.map(|url| url.to_string()).as_deref(), wanted, "{url}");
        }
    }
}
