//! Indexes of archives as apt reads them: `Release` and `InRelease` name the other indexes, `Packages` the packages.
//! Source: the Debian repository format (<https://wiki.debian.org/DebianRepository/Format>).

use super::found::{Found, by_name};
use super::{Body, Unread};
use crate::digest::ExpectedDigest;
use std::io::{BufRead, BufReader, Read};

/// A longer line is not read.
const LINE_BYTES_MAX: u64 = 1024 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `Release` or `InRelease`.
    Release,
    /// `Packages`, compressed or not.
    Packages,
}

/// The kind of index by its path.
pub(super) fn kind(path: &str) -> Option<Kind> {
    let path = path.split('?').next()?;
    let (folder, name) = path.rsplit_once('/')?;
    let of_packages = |folder: &str| folder.rsplit('/').next().is_some_and(|last| last.starts_with("binary-"));
    match name {
        "Release" | "InRelease" => Some(Kind::Release),
        "Packages" | "Packages.gz" | "Packages.xz" => Some(Kind::Packages),
        // By its digest; folders of other indexes have other names.
        _ => {
            let (above, _) = folder.rsplit_once("/by-hash/")?;
            of_packages(above).then_some(Kind::Packages)
        }
    }
}

/// The folder to which the names of files in `Packages` are relative: of the archive, or of the index where there is no `dists`.
fn root(path: &str) -> &str {
    let folder = &path[..path.rfind('/').map_or(0, |slash| slash + 1)];
    folder.find("/dists/").map_or(folder, |at| &folder[..=at])
}

pub(super) fn read(body: Body, found: &mut Found<'_>) -> Result<(), Unread> {
    let path = &found.url().path;
    match kind(path) {
        Some(Kind::Release) => release(body, found),
        Some(Kind::Packages) => packages(body, root(path), found),
        None => Ok(()),
    }
}

/// Shows each line, without its end.
fn each_line(body: Body, mut show: impl FnMut(&[u8]) -> Result<(), Unread>) -> Result<(), Unread> {
    let (mut body, mut line) = (BufReader::with_capacity(64 * 1024, body), Vec::new());
    loop {
        line.clear();
        if (&mut body).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        show(line.trim_ascii_end())?;
    }
}

/// Below `SHA256:` each line has the digest, the length and the name of an index.
fn release(body: Body, found: &mut Found<'_>) -> Result<(), Unread> {
    let mut is_within = false;
    each_line(body, |line| {
        if !line.starts_with(b" ") {
            is_within = line == b"SHA256:";
            return Ok(());
        }
        let Some(line) = std::str::from_utf8(line).ok().filter(|_| is_within) else { return Ok(()) };
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some(hex), Some(_), Some(name)) => below("./", name, by_name("sha256", hex), found),
            _ => Ok(()),
        }
    })
}

/// Paragraphs with `Filename` and `SHA256`.
fn packages(body: Body, root: &str, found: &mut Found<'_>) -> Result<(), Unread> {
    let mut file: (Option<String>, Option<ExpectedDigest>) = (None, None);
    each_line(body, |line| {
        if let Some(name) = line.strip_prefix(b"Filename:") {
            file.0 = std::str::from_utf8(name).ok().map(|name| name.trim().to_owned());
        } else if let Some(hex) = line.strip_prefix(b"SHA256:") {
            file.1 = std::str::from_utf8(hex).ok().and_then(|hex| by_name("sha256", hex.trim()));
        } else if line.is_empty()
            && let (Some(name), digest) = std::mem::take(&mut file)
        {
            return below(root, &name, digest, found);
        }
        Ok(())
    })?;
    match file {
        (Some(name), digest) => below(root, &name, digest, found),
        (None, _) => Ok(()),
    }
}

/// Takes the digest of a file below a folder. Its name may hold signs that have a meaning in URLs.
fn below(folder: &str, name: &str, digest: Option<ExpectedDigest>, found: &mut Found<'_>) -> Result<(), Unread> {
    let name = name.trim_start_matches("./").replace('%', "%25").replace('#', "%23").replace('?', "%3f");
    found.file(&format!("{folder}{name}"), digest)
}

#[cfg(test)]
mod tests {
    use super::super::IndexFormat;
    use super::super::tests::named;
    use super::*;
    use std::io::Write;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    #[test]
    fn kinds_by_their_paths() {
        for (path, wanted) in [
            ("/debian/dists/stable/InRelease", Some(Kind::Release)),
            ("/flat/Release", Some(Kind::Release)),
            ("/debian/dists/stable/main/binary-amd64/Packages.xz", Some(Kind::Packages)),
            ("/debian/dists/stable/main/binary-amd64/by-hash/SHA256/ab", Some(Kind::Packages)),
            ("/debian/dists/stable/main/i18n/by-hash/SHA256/ab", None),
            ("/debian/pool/main/a/a_1_all.deb", None),
            ("/debian/dists/stable/Release.gpg", None),
        ] {
            assert_eq!(kind(path), wanted, "{path}");
        }
    }

    fn packages_of(a: &str, b: &str) -> String {
        format!(
            "Package: a\nVersion: 1\nFilename: pool/a_1_all.deb\nSize: 3\nSHA256: {a}\nDescription: x\n Filename: no\n\n\
             Package: b\nSHA256: {b}\nFilename: ./pool/b+_2~1_all.deb\n\nPackage: c\nFilename: pool/c.deb\n\nSHA256: {b}\n"
        )
    }

    #[test]
    fn packages_below_the_archive() {
        let of = [
            "http://d.test/debian/pool/a_1_all.deb",
            "http://d.test/debian/pool/b%2b_2%7e1_all.deb",
            "http://d.test/debian/pool/b+_2~1_all.deb",
            "http://d.test/debian/pool/c.deb",
        ];
        let wanted = ["sha-256 aaa", "sha-256 bbb", "sha-256 bbb", "none"];
        let plain = packages_of(A, B).into_bytes();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&plain).unwrap();
        let gzip = gzip.finish().unwrap();
        let folder = "http://d.test/debian/dists/stable/main/binary-all/";
        for (name, body) in [("Packages", &plain), ("Packages.gz", &gzip), ("by-hash/SHA256/ab", &gzip)] {
            let url = format!("{folder}{name}");
            assert_eq!(named(IndexFormat::Apt, &url, "application/gzip", body, &of), wanted, "{name}");
        }
        let of = of.map(|url| url.replace("debian", "flat"));
        let of = of.each_ref().map(|url| &**url);
        assert_eq!(named(IndexFormat::Apt, "http://d.test/flat/Packages", "", &plain, &of), wanted);
    }

    /// `printf 'Filename: a.deb\nSHA256: aa…\n' | xz -9e`.
    #[test]
    fn packages_in_xz() {
        let xz = include_bytes!("testdata/packages.xz");
        let of = ["http://d.test/flat/a.deb"];
        assert_eq!(named(IndexFormat::Apt, "http://d.test/flat/Packages.xz", "", xz, &of), ["sha-256 aaa"]);
        let mut broken = xz.to_vec();
        broken[40] ^= 1;
        let index = super::super::tests::stored(IndexFormat::Apt, "http://d.test/flat/Packages.xz", "", &broken);
        assert!(super::super::tests::named_by(index, &[]).is_err());
    }

    #[test]
    fn indexes_of_a_release() {
        let body = format!(
            "-----BEGIN PGP SIGNED MESSAGE-----\n\nOrigin: x\nMD5Sum:\n {A} 3 main/md5\nSHA256:\n {A} 3 main/binary-all/Packages\n {B}   12 main/a.xz\nSHA512:\n {A} 3 main/sha512\n"
        );
        let folder = "http://d.test/debian/dists/stable/";
        let of =
            ["main/binary-all/Packages", "main/a.xz", "main/md5", "main/sha512"].map(|name| format!("{folder}{name}"));
        let of = of.each_ref().map(|url| &**url);
        let url = format!("{folder}InRelease");
        assert_eq!(
            named(IndexFormat::Apt, &url, "", body.as_bytes(), &of),
            ["sha-256 aaa", "sha-256 bbb", "none", "none"]
        );
    }
}
