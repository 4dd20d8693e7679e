//! Whether an answer is a file: something that is published for everybody, and not an answer to one program or person.
//!
//! Looked at where an origin says nothing and `larder run` keeps the answer all the same. A response counts that is known to be a file by its
//! media type, or by its name where the type says nothing; so does an index of packages whose protocol is known by
//! the request, the type or the shape of the path. No host is known by its name. Text, JSON, HTML and XML of any other
//! kind never count: a status that is polled, a page and an API look like that.

use larder_wire::fields::trim;
use larder_wire::{RequestHead, ResponseHead, Target};

/// The kinds of files whose lifetimes differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    /// Its name has a version or a digest: another content would have another name.
    Named,
    /// It may change: an index, a picture, a package that is called `latest`.
    Changing,
}

/// The kind of file that an answer is; `None` when it may be anything else. An answer to a query is none.
pub(super) fn of(request: &RequestHead, response: &ResponseHead) -> Option<FileKind> {
    let path = match &request.target {
        Target::Origin(path) => path,
        Target::Absolute(url) => &url.path,
        _ => return None,
    };
    if path.contains('?') {
        return None;
    }
    let path = path.to_ascii_lowercase();
    let media = media_type(response);
    if let Some(kind) = index(request, &path, &media) {
        return Some(kind);
    }
    let says_nothing = NO_TYPES.contains(&&*media);
    let is_file = is_file_type(&media) || (says_nothing && (has_file_ending(&path) || digest_segment(&path)));
    let is_named = is_named(&path);
    is_file.then_some(if is_named { FileKind::Named } else { FileKind::Changing })
}

/// Type and subtype in lower case; empty when there is none, or several.
fn media_type(response: &ResponseHead) -> String {
    let value = response.fields.get("Content-Type").filter(|_| response.fields.count("Content-Type") == 1);
    let essence = value.unwrap_or_default().split(|&byte| byte == b';').next().unwrap_or_default();
    String::from_utf8_lossy(trim(essence)).to_ascii_lowercase()
}

/// Types that say nothing of the content.
const NO_TYPES: [&str; 4] = ["", "application/octet-stream", "binary/octet-stream", "application/binary"];

/// Types of files alone. SVG is left out: badges that change from hour to hour are sent as that.
fn is_file_type(media: &str) -> bool {
    const TOP: [&str; 4] = ["audio/", "font/", "image/", "video/"];
    const STARTS: [&str; 3] = ["application/vnd.oci.image.", "application/vnd.docker.image.", "application/x-git-"];
    const TYPES: [&str; 37] = [
        "application/epub+zip",
        "application/gzip",
        "application/java-archive",
        "application/pdf",
        "application/vnd.android.package-archive",
        "application/vnd.debian.binary-package",
        "application/vnd.flatpak",
        "application/vnd.ms-cab-compressed",
        "application/vnd.nix.nar",
        "application/vnd.rar",
        "application/wasm",
        "application/x-7z-compressed",
        "application/x-apple-diskimage",
        "application/x-bzip",
        "application/x-bzip2",
        "application/x-compress",
        "application/x-cpio",
        "application/x-deb",
        "application/x-debian-package",
        "application/x-executable",
        "application/x-gtar",
        "application/x-gzip",
        "application/x-iso9660-image",
        "application/x-java-archive",
        "application/x-lzma",
        "application/x-msdownload",
        "application/x-msi",
        "application/x-raw-disk-image",
        "application/x-redhat-package-manager",
        "application/x-rpm",
        "application/x-sharedlib",
        "application/x-tar",
        "application/x-tgz",
        "application/x-xz",
        "application/x-zip-compressed",
        "application/zip",
        "application/zstd",
    ];
    let is_of = |starts: &[&str]| starts.iter().any(|start| media.starts_with(start));
    media != "image/svg+xml" && (is_of(&TOP) || is_of(&STARTS) || TYPES.binary_search(&media).is_ok())
}

/// Endings of archives, packages, images of disks, programs and models.
const ENDINGS: [&str; 58] = [
    "7z",
    "apk",
    "appimage",
    "bin",
    "bz2",
    "cab",
    "conda",
    "crate",
    "crx",
    "dat",
    "deb",
    "dll",
    "dmg",
    "dylib",
    "egg",
    "exe",
    "flatpak",
    "gem",
    "gguf",
    "gz",
    "h5",
    "img",
    "ipk",
    "iso",
    "jar",
    "lz4",
    "lzma",
    "msi",
    "msix",
    "nar",
    "npz",
    "nupkg",
    "onnx",
    "pack",
    "parquet",
    "phar",
    "pkg",
    "pt",
    "pth",
    "qcow2",
    "rpm",
    "run",
    "safetensors",
    "snap",
    "so",
    "tar",
    "tbz2",
    "tgz",
    "txz",
    "udeb",
    "vmdk",
    "vsix",
    "war",
    "wasm",
    "whl",
    "xz",
    "zip",
    "zst",
];

fn last_segment(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

fn has_file_ending(path: &str) -> bool {
    let name = last_segment(path);
    name.rsplit_once('.').is_some_and(|(stem, ending)| !stem.is_empty() && ENDINGS.binary_search(&ending).is_ok())
}

/// A name that another content would not have.
fn is_named(path: &str) -> bool {
    let stem = last_segment(path).rsplit_once('.').map_or("", |(stem, _)| stem);
    digest_segment(path) || (has_file_ending(path) && has_version(stem))
}

/// The last segment, or the folder that it lies in by itself, is a digest, with or without the name of its algorithm or an
/// ending: `sha256:9f86…`, `by-hash/SHA256/9f86…`, `9f86….tar.gz`.
fn digest_segment(path: &str) -> bool {
    let is_digest = |word: &str| {
        word.len() >= DIGEST_DIGITS_MIN
            && word.len() <= DIGEST_DIGITS_MAX
            && word.bytes().all(|byte| byte.is_ascii_hexdigit())
            && word.bytes().any(|byte| byte.is_ascii_alphabetic())
    };
    let name = last_segment(path);
    // A folder of a digest, as index servers of packages have them, is cut in three: the last piece is what is long.
    let folder = path.len().checked_sub(name.len() + 1).map_or("", |end| last_segment(&path[..end]));
    let in_name = name.split(['.', ':', '-', '_', '%']).any(is_digest);
    in_name || (is_digest(folder) && has_file_ending(path))
}

/// Of SHA-1, and of SHA-512.
const DIGEST_DIGITS_MIN: usize = 40;
const DIGEST_DIGITS_MAX: usize = 128;

/// `six-1.16.0-py2.py3-none-any.whl`, `hostname_3.23_amd64.deb`: digits, a dot and digits at the begin of a word, and no word
/// that means the newest one.
fn has_version(name: &str) -> bool {
    const MOVING: [&str; 10] =
        ["latest", "nightly", "snapshot", "current", "master", "main", "head", "dev", "canary", "daily"];
    let mut words = name.split(['-', '_', '+', '~', '@']);
    let moves = name.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| MOVING.contains(&word));
    !moves && words.any(is_version)
}

fn is_version(word: &str) -> bool {
    let word = word.strip_prefix('v').unwrap_or(word);
    let mut parts = word.split('.');
    let mut number = || parts.next().is_some_and(|part| part.starts_with(|c: char| c.is_ascii_digit()));
    number() && number()
}

/// An index of packages, or one of its parts, whose protocol is known.
fn index(request: &RequestHead, path: &str, media: &str) -> Option<FileKind> {
    let asks_for = |media: &[u8]| request.fields.members("Accept").any(|member| member.starts_with(media));
    let is_plain = NO_TYPES.contains(&media) || ["text/plain", "application/json"].contains(&media);
    // Python: the simple index, in its own types, or as a page for one that asks for those types.
    let is_python = media.starts_with("application/vnd.pypi.simple.")
        || (media == "text/html"
            && path.contains("/simple/")
            && path.ends_with('/')
            && asks_for(b"application/vnd.pypi.simple."));
    // npm: the short description of a package, in its own type, or as JSON for one that asks for that type; the long one
    // for one that says that it asks for a package's description.
    let is_npm = media == "application/vnd.npm.install-v1+json"
        || (media == "application/json"
            && (asks_for(b"application/vnd.npm.install-v1+json")
                || request.fields.text("Pacote-Req-Type") == Some("packument")));
    if is_python || is_npm {
        return Some(FileKind::Changing);
    }
    if is_plain && request.fields.contains("Cargo-Protocol") && is_sparse_index(path) {
        return Some(FileKind::Changing);
    }
    if let Some((_, name)) = path.rsplit_once("/@v/") {
        return of_go_module(name).filter(|_| is_plain || is_file_type(media));
    }
    let is_list = match last_segment(path) {
        "maven-metadata.xml" | "repomd.xml" => media.ends_with("/xml") || is_plain,
        "repodata.json" => is_plain,
        name => path.contains("/dists/") && is_plain && is_debian_index(name),
    };
    is_list.then_some(FileKind::Changing)
}

/// A registry's settings, or `/1/a`, `/2/ab`, `/3/a/abc`, `/ab/cd/abcdef`: the folders follow from the name.
fn is_sparse_index(path: &str) -> bool {
    let mut segments = path.rsplit('/');
    let (Some(name), first, second) = (segments.next(), segments.next(), segments.next()) else { return false };
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    match name.len() {
        _ if name == "config.json" => true,
        _ if !is_name => false,
        1 => first == Some("1"),
        2 => first == Some("2"),
        3 => first == Some(&name[..1]) && second == Some("3"),
        _ => first == Some(&name[2..4]) && second == Some(&name[..2]),
    }
}

/// The kind of a file under `@v/` of a module: the list of its versions, or what one version is.
fn of_go_module(name: &str) -> Option<FileKind> {
    if name == "list" {
        return Some(FileKind::Changing);
    }
    let (version, ending) = name.rsplit_once('.')?;
    let is_part = ["info", "mod", "zip", "ziphash"].contains(&ending);
    (is_part && version.starts_with('v') && is_version(version)).then_some(FileKind::Named)
}

/// The files of a Debian archive's index that have no ending.
fn is_debian_index(name: &str) -> bool {
    ["inrelease", "release", "release.gpg", "packages", "sources"].contains(&name)
        || ["contents-", "translation-"].iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_wire::{Fields, Method, Version};

    fn kind(path: &str, asks: &str, media: &str) -> Option<FileKind> {
        let mut fields = Fields::new();
        if let Some((name, value)) = asks.split_once(": ") {
            fields.push(name, value);
        }
        let request = RequestHead::new(Method::Get, Target::Origin(path.into()), Version::Http11, fields);
        let mut response = ResponseHead::new(200);
        if !media.is_empty() {
            response.fields.push("Content-Type", media);
        }
        of(&request, &response)
    }

    #[test]
    fn files_are_known_by_type_and_name() {
        assert!(ENDINGS.is_sorted());
        const NAMED: Option<FileKind> = Some(FileKind::Named);
        const CHANGING: Option<FileKind> = Some(FileKind::Changing);
        let digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        let rows = [
            // Packages and archives.
            ("/six-1.16.0-py2.py3-none-any.whl", "", "application/octet-stream", NAMED),
            ("/is-odd/-/is-odd-3.0.1.tgz", "", "application/octet-stream", NAMED),
            ("/pool/main/h/hostname_3.23_amd64.deb", "", "application/x-debian-package", NAMED),
            ("/crates/itoa/itoa-1.0.1.crate", "", "application/gzip", NAMED),
            ("/x/app-v2.1.tar.gz", "", "", NAMED),
            ("/x/app-latest.tar.gz", "", "application/gzip", CHANGING),
            ("/x/app-1.2-SNAPSHOT.jar", "", "application/java-archive", CHANGING),
            ("/x/app-20.tar.gz", "", "application/gzip", CHANGING),
            ("/x/app-1.7z", "", "application/x-7z-compressed", CHANGING),
            ("/x/app.zip", "", "application/zip", CHANGING),
            ("/x/download", "", "application/octet-stream", None),
            ("/x/photo-1.2.png", "", "image/png", CHANGING),
            ("/badge.svg", "", "image/svg+xml", None),
            (&format!("/v2/x/blobs/sha256:{digest}"), "", "application/octet-stream", NAMED),
            (&format!("/by-hash/SHA256/{digest}"), "", "", NAMED),
            (&format!("/packages/ab/cd/{digest}/six.tar.gz"), "", "application/x-tar", NAMED),
            (&format!("/session/{digest}/status"), "", "application/octet-stream", None),
            // A digest makes no file of what is none; nor do digits alone.
            (&format!("/status/{digest}"), "", "application/json", None),
            (&format!("/status/{digest}"), "", "text/html", None),
            ("/x/1234567890123456789012345678901234567890", "", "", None),
            // Answers of an API.
            ("/api/status", "", "application/json", None),
            ("/api/status.zip", "", "application/json", None),
            ("/", "", "text/html; charset=utf-8", None),
            ("/feed", "", "application/rss+xml", None),
            ("/x.txt", "", "text/plain", None),
            ("/app.js", "", "text/javascript", None),
            ("/x/app.zip?token=1", "", "application/zip", None),
            ("/x/app.zip?", "", "application/zip", None),
            // Indexes.
            ("/simple/six/", "", "application/vnd.pypi.simple.v1+json", CHANGING),
            ("/simple/six/", "Accept: application/vnd.pypi.simple.v1+json, text/html;q=0.01", "text/html", CHANGING),
            ("/simple/six/", "Accept: text/html", "text/html", None),
            ("/is-odd", "Accept: application/vnd.npm.install-v1+json; q=1.0, */*", "application/json", CHANGING),
            ("/is-odd", "", "application/vnd.npm.install-v1+json", CHANGING),
            ("/is-odd", "pacote-req-type: packument", "application/json", CHANGING),
            ("/is-odd", "Accept: application/json", "application/json", None),
            ("/it/oa/itoa", "cargo-protocol: version=1", "text/plain", CHANGING),
            ("/3/r/ryu", "cargo-protocol: version=1", "text/plain", CHANGING),
            ("/config.json", "cargo-protocol: version=1", "application/json", CHANGING),
            ("/it/oa/itoa", "", "text/plain", None),
            ("/xx/oa/itoa", "cargo-protocol: version=1", "text/plain", None),
            ("/golang.org/x/text/@v/list", "", "text/plain", CHANGING),
            ("/golang.org/x/text/@v/v0.3.0.info", "", "application/json", NAMED),
            ("/golang.org/x/text/@v/v0.3.0.zip", "", "application/zip", NAMED),
            ("/golang.org/x/text/@v/master.info", "", "application/json", None),
            ("/debian/dists/stable/InRelease", "", "", CHANGING),
            ("/InRelease", "", "text/plain", None),
            ("/org/x/maven-metadata.xml", "", "application/xml", CHANGING),
        ];
        for (path, asks, media, expected) in rows {
            assert_eq!(kind(path, asks, media), expected, "{path} ({asks}) {media}");
        }
    }
}
