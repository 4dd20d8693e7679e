//! The description of a package for npm and its like: `versions` has for each version where its archive is, and its digest.
//! Source: <https://github.com/npm/registry/blob/main/docs/responses/package-metadata.md>.

use super::found::{Found, by_integrity};
use super::{Body, Unread, json};
use crate::digest::{Algorithm, DigestSource, ExpectedDigest};
use larder_wire::Url;
use serde::Deserialize;

#[derive(Deserialize)]
struct Version {
    dist: Option<Dist>,
}

#[derive(Deserialize)]
struct Dist {
    tarball: String,
    integrity: Option<String>,
    shasum: Option<String>,
}

pub(super) fn read(body: Body, found: &mut Found<'_>) -> Result<(), Unread> {
    json::each_in(body, "versions", |version: Version| {
        let Some(dist) = version.dist else { return Ok(()) };
        let digest = dist.integrity.as_deref().and_then(by_integrity).or_else(|| {
            let hex = dist.shasum.as_deref()?.as_bytes();
            ExpectedDigest::of_hex(Algorithm::Sha1, hex, DigestSource::Index)
        });
        // Clients of a mirror ask the mirror for what the description has at its origin (`replace-registry-host` of npm).
        if let Some(path) = Url::parse(&dist.tarball).map(|url| url.path) {
            found.file(&path, digest.clone())?;
        }
        found.file(&dist.tarball, digest)
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{named, named_by, stored};
    use super::super::{IndexFormat, Unread};
    use crate::package_index::found::DIGESTS_MAX;

    const URL: &str = "https://r.test/a";

    #[test]
    fn archives_of_versions() {
        let a = "q".repeat(86) + "==";
        let body = format!(
            r#"{{"name":"a","versions":{{
              "1.0.0":{{"name":"a","dist":{{"shasum":"{sha1}","tarball":"https://r.test/a/-/a-1.0.0.tgz","integrity":"sha1-x sha512-{a}"}}}},
              "1.1.0":{{"dist":{{"tarball":"https://files.test/a/-/a-1.1.0.tgz","shasum":"{sha1}"}}}},
              "1.2.0":{{"dist":{{"tarball":"https://r.test/none.tgz","integrity":"sha512-short"}}}},
              "1.3.0":{{}}}},"readme":"{{\"versions\":3}}"}}"#,
            sha1 = "0a".repeat(20)
        );
        let of = [
            "https://r.test/a/-/a-1.0.0.tgz",
            "https://files.test/a/-/a-1.1.0.tgz",
            "https://r.test/a/-/a-1.1.0.tgz",
            "https://r.test/none.tgz",
        ];
        let wanted = ["sha-512 aaa", "sha-1 0a0a0", "sha-1 0a0a0", "none"];
        assert_eq!(named(IndexFormat::Npm, URL, "application/json", body.as_bytes(), &of), wanted);
    }

    #[test]
    fn what_is_no_description_teaches_nothing() {
        for body in ["", "[]", "{\"versions\":3}", "{\"versions\":{\"1\":{\"dist\":{}}}}", "{} x", "{\"versions\":{"] {
            let index = stored(IndexFormat::Npm, URL, "application/json", body.as_bytes());
            assert!(matches!(named_by(index, &[]), Err(Unread::Malformed(_))), "{body}");
        }
        let deep = "[".repeat(100_000);
        let index = stored(IndexFormat::Npm, URL, "application/json", format!("{{\"a\":{deep}").as_bytes());
        assert!(matches!(named_by(index, &[]), Err(Unread::Malformed(_))));
        let mut many = "{\"versions\":{".to_owned();
        for number in 0..=DIGESTS_MAX {
            let sha1 = format!("{number:040x}");
            many += &format!(
                "\"{number}\":{{\"dist\":{{\"tarball\":\"https://r.test/{number}\",\"shasum\":\"{sha1}\"}}}},"
            );
        }
        many += "\"x\":{}}}";
        let index = stored(IndexFormat::Npm, URL, "application/json", many.as_bytes());
        assert!(matches!(named_by(index, &[]), Err(Unread::TooMany)));
    }
}
