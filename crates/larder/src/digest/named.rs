//! Where digests are named: in URLs that are made of them, and in fields of responses.
//!
//! Protocols are known by their paths, not by names of hosts, so that mirrors and private registries are checked like the large
//! ones. A path is read only where it can't mean anything else: a digest of the right length at the place where its protocol has
//! it.

use super::{Algorithm, DigestSource, ExpectedDigest};
use larder_wire::structured::byte_sequence;
use larder_wire::{Fields, Method, ResponseHead};

/// The digest that a path names.
///
/// | path | protocol |
/// |---|---|
/// | `…/v2/NAME/blobs/sha256:HEX`, `…/v2/NAME/manifests/sha256:HEX` | OCI distribution |
/// | `…/blobs/sha256/HE/HEX/data` | the storage behind an OCI registry |
/// | `…/by-hash/SHA256/HEX` | indexes of apt repositories |
pub fn in_url(path: &str) -> Option<ExpectedDigest> {
    let path = path.split('?').next()?;
    let (folder, last) = path.rsplit_once('/')?;
    let (above, parent) = folder.rsplit_once('/')?;
    match (parent, last) {
        ("blobs" | "manifests", digest) if above.contains("/v2/") => {
            let (name, hex) =
                digest.split_once(':').or_else(|| digest.split_once("%3A")).or_else(|| digest.split_once("%3a"))?;
            ExpectedDigest::of_hex(oci_algorithm(name)?, hex.as_bytes(), DigestSource::Url)
        }
        (hex, "data") => {
            let (above, start) = above.rsplit_once('/')?;
            let (above, name) = above.rsplit_once('/')?;
            let is_storage = above.ends_with("/blobs") && start.len() == 2 && hex.starts_with(start);
            ExpectedDigest::of_hex(oci_algorithm(name).filter(|_| is_storage)?, hex.as_bytes(), DigestSource::Url)
        }
        ("SHA256", hex) if above.ends_with("/by-hash") => {
            ExpectedDigest::of_hex(Algorithm::Sha256, hex.as_bytes(), DigestSource::Url)
        }
        ("SHA512", hex) if above.ends_with("/by-hash") => {
            ExpectedDigest::of_hex(Algorithm::Sha512, hex.as_bytes(), DigestSource::Url)
        }
        _ => None,
    }
}

fn oci_algorithm(name: &str) -> Option<Algorithm> {
    match name {
        "sha256" => Some(Algorithm::Sha256),
        "sha384" => Some(Algorithm::Sha384),
        "sha512" => Some(Algorithm::Sha512),
        _ => None,
    }
}

/// The digests that the body after this head must have, as the URL and the head name them; none for a body that is not sent.
///
/// `Content-Digest` is about the bytes of the message, and so of the part in a 206; all others are about the whole. Content that
/// is coded (`Content-Encoding`) has the digests of its fields, which are about coded content too, but not the one of its URL,
/// which names the file.
pub fn of_response(method: &Method, path: &str, head: &ResponseHead) -> Vec<ExpectedDigest> {
    let mut all = Vec::new();
    if *method == Method::Head {
        return all;
    }
    let fields = &head.fields;
    all.extend(in_field(fields, "Content-Digest", DigestSource::ContentDigest));
    if head.status == 200 {
        all.extend(of_whole(path, head));
    }
    all
}

/// The digests that the whole representation must have whose head this is.
fn of_whole(path: &str, head: &ResponseHead) -> impl Iterator<Item = ExpectedDigest> {
    let fields = &head.fields;
    let plain = is_plain(head);
    let url = if plain { in_url(path) } else { None };
    let repr = in_field(fields, "Repr-Digest", DigestSource::ReprDigest);
    let docker = if plain && path.contains("/v2/") { docker(fields) } else { None };
    url.into_iter().chain(repr).chain(docker)
}

/// Whether the body is the file itself, and not a coded form of it.
pub fn is_plain(head: &ResponseHead) -> bool {
    !head.fields.contains("Content-Encoding") || head.fields.has_member("Content-Encoding", "identity")
}

/// The digest of a field of RFC 9530. The algorithms that it calls insecure are passed over.
fn in_field(fields: &Fields, name: &str, source: DigestSource) -> Option<ExpectedDigest> {
    if !fields.contains(name) {
        return None;
    }
    let (key, bytes) = byte_sequence(fields, name, &["sha-256", "sha-512"])?;
    let algorithm = if key == "sha-256" { Algorithm::Sha256 } else { Algorithm::Sha512 };
    ExpectedDigest::new(algorithm, bytes, source)
}

fn docker(fields: &Fields) -> Option<ExpectedDigest> {
    let (name, hex) = fields.text("Docker-Content-Digest")?.trim().split_once(':')?;
    ExpectedDigest::of_hex(oci_algorithm(name)?, hex.as_bytes(), DigestSource::DockerContentDigest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn digests_in_urls() {
        let cases = [
            ("/v2/library/x/blobs/sha256:HEX", true),
            ("/v2/a/b/c/manifests/sha256:HEX", true),
            ("/v2/library/x/blobs/sha256%3AHEX?ns=a", true),
            ("/v2/library/x/manifests/latest", false),
            ("/v2/x/blobs/uploads/sha256:HEX", false),
            ("/v2/x/referrers/sha256:HEX", false),
            ("/artifacts/api/v2/x/blobs/sha256:HEX", true),
            ("/other/x/blobs/sha256:HEX", false),
            ("/v2/x/blobs/md5:HEX", false),
            ("/v2/x/blobs/sha512:HEX", false),
            ("/docker/registry/v2/blobs/sha256/ba/HEX/data?X-Amz-Signature=1", true),
            ("/docker/registry/v2/blobs/sha256/bb/HEX/data", false),
            ("/docker/registry/v2/blobs/sha256/ba/HEX/link", false),
            ("/debian/dists/stable/main/binary-amd64/by-hash/SHA256/HEX", true),
            ("/debian/dists/stable/main/by-hash/SHA256/HEX0", false),
            ("/debian/dists/stable/main/by-hash/MD5Sum/HEX", false),
            ("/?/by-hash/SHA256/HEX", false),
            ("/HEX", false),
            ("*", false),
        ];
        for (path, is_named) in cases {
            let named = in_url(&path.replace("HEX", HEX));
            assert_eq!(named.is_some(), is_named, "{path}");
            assert!(named.is_none_or(|digest| digest.bytes[0] == 0xba && digest.source == DigestSource::Url), "{path}");
        }
    }

    #[test]
    fn digests_in_fields() {
        const REPR: (&str, &str) = ("Repr-Digest", "sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:");
        const CONTENT: (&str, &str) = (
            "Content-Digest",
            "md5=:AAAAAAAAAAAAAAAAAAAAAA==:, sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:",
        );
        const MD5: (&str, &str) = ("Repr-Digest", "md5=:AAAAAAAAAAAAAAAAAAAAAA==:");
        const SHORT: (&str, &str) = ("Repr-Digest", "sha-256=:AAAA:");
        const WRONG: (&str, &str) = ("Repr-Digest", "sha-256=ungW");
        const GZIP: (&str, &str) = ("Content-Encoding", "gzip");
        let docker = format!("sha256:{HEX}");
        let docker = ("Docker-Content-Digest", docker.as_str());
        let url = format!("/v2/x/blobs/sha256:{HEX}");
        /// A row: its purpose, status, path, fields, and the sources of the digests that are found.
        type Case<'a> = (&'a str, u16, &'a str, &'a [(&'a str, &'a str)], &'a [&'a str]);
        let cases: &[Case<'_>] = &[
            ("nothing is named", 200, "/x", &[], &[]),
            ("a field", 200, "/x", &[REPR], &["Repr-Digest"]),
            ("both fields", 200, "/x", &[REPR, CONTENT], &["Content-Digest", "Repr-Digest"]),
            ("a part has its own digest alone", 206, "/x", &[REPR, CONTENT], &["Content-Digest"]),
            ("of an error only its content", 404, &url, &[REPR, CONTENT], &["Content-Digest"]),
            ("insecure algorithms", 200, "/x", &[MD5], &[]),
            ("another length", 200, "/x", &[SHORT], &[]),
            ("another type", 200, "/x", &[WRONG], &[]),
            ("the URL names the file, not a coding of it", 200, &url, &[GZIP, REPR, docker], &["Repr-Digest"]),
            ("the URL and the registry", 200, &url, &[docker], &["the URL", "Docker-Content-Digest"]),
            ("only a registry speaks so", 200, "/x", &[docker], &[]),
        ];
        for (what, status, path, fields, sources) in cases {
            let mut head = ResponseHead::new(*status);
            fields.iter().for_each(|(name, value)| head.fields.push(name, value));
            let named: Vec<&str> =
                of_response(&Method::Get, path, &head).iter().map(|digest| digest.source.as_str()).collect();
            assert_eq!(named, *sources, "{what}");
            assert!(of_response(&Method::Head, path, &head).is_empty(), "{what}");
        }
    }
}
