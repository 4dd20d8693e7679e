//! The simple API of Python indexes, as HTML and as JSON.
//! Source: <https://packaging.python.org/en/latest/specifications/simple-repository-api/>.

use super::found::{Found, by_name};
use super::{Body, Unread, json};
use crate::digest::ExpectedDigest;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use std::fmt;
use std::io::Read;

/// A longer page is not read: it is held as a whole. The longest that is known has 3 MB.
const PAGE_BYTES_MAX: u64 = 32 * 1024 * 1024;

pub(super) fn read(body: Body, media_type: Option<&[u8]>, found: &mut Found<'_>) -> Result<(), Unread> {
    let media_type = media_type.unwrap_or_default().to_ascii_lowercase();
    let essence = media_type.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
    match essence.ends_with(b"json") {
        true => json::each_in(body, "files", |file: File| {
            found.file(&file.url, file.hashes.0)?;
            found.file(&metadata_of(&file.url), file.metadata.0.or(file.older_metadata.0))
        }),
        false => page(body, found),
    }
}

fn metadata_of(url: &str) -> String {
    format!("{}.metadata", url.split('#').next().unwrap_or_default())
}

#[derive(Deserialize)]
struct File {
    url: String,
    #[serde(default)]
    hashes: Hashes,
    #[serde(default, rename = "core-metadata")]
    metadata: Hashes,
    #[serde(default, rename = "dist-info-metadata")]
    older_metadata: Hashes,
}

/// The best of some digests by their names; none where `true` or `false` stands in their place.
#[derive(Default)]
struct Hashes(Option<ExpectedDigest>);

impl<'de> Deserialize<'de> for Hashes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Hashes, D::Error> {
        deserializer.deserialize_any(HashesVisitor)
    }
}

struct HashesVisitor;

impl<'de> Visitor<'de> for HashesVisitor {
    type Value = Hashes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("digests by their names, true or false")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Hashes, E> {
        Ok(Hashes::default())
    }

    fn visit_unit<E>(self) -> Result<Hashes, E> {
        Ok(Hashes::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Hashes, A::Error> {
        let mut best = None;
        while let Some(name) = map.next_key::<String>()? {
            match &*name {
                "sha256" => best = by_name(&name, &map.next_value::<String>()?),
                "sha384" | "sha512" if best.is_none() => best = by_name(&name, &map.next_value::<String>()?),
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(Hashes(best))
    }
}

fn page(body: Body, found: &mut Found<'_>) -> Result<(), Unread> {
    let mut page = Vec::new();
    body.take(PAGE_BYTES_MAX).read_to_end(&mut page)?;
    if page.len() as u64 == PAGE_BYTES_MAX {
        return Err(Unread::TooMany);
    }
    let mut rest = &page[..];
    while let Some(at) = memchr::memchr(b'<', rest) {
        rest = &rest[at + 1..];
        if rest.get(..3).is_some_and(|start| start == b"!--") {
            let Some(end) = memchr::memmem::find(rest, b"-->") else { return Ok(()) };
            rest = &rest[end..];
            continue;
        }
        let name = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
        match &*rest[..name].to_ascii_lowercase() {
            b"a" => rest = anchor(&rest[name..], found)?,
            // Links are relative to another URL then.
            b"base" => return Err(Unread::Malformed("a page with <base>".to_owned())),
            _ => rest = &rest[name..],
        }
    }
    Ok(())
}

/// Reads the attributes of a link; gives what follows them.
fn anchor<'a>(mut rest: &'a [u8], found: &mut Found<'_>) -> Result<&'a [u8], Unread> {
    let (mut link, mut metadata) = (None, None);
    loop {
        rest = rest.trim_ascii_start();
        let name = rest.iter().take_while(|byte| !byte.is_ascii_whitespace() && !b"=>".contains(byte)).count();
        let (named, after) = rest.split_at(name);
        rest = after.trim_ascii_start();
        let value = match rest {
            [b'=', after @ ..] => {
                let (value, after) = value(after.trim_ascii_start());
                rest = after;
                Some(value)
            }
            _ if name == 0 => break,
            _ => None,
        };
        match &*named.to_ascii_lowercase() {
            b"href" => link = value,
            b"data-core-metadata" | b"data-dist-info-metadata" if metadata.is_none() => metadata = value,
            _ => {}
        }
    }
    if let Some(link) = link.and_then(|link| std::str::from_utf8(link).ok()) {
        let link = link.trim().replace("&amp;", "&");
        found.file(&link, link.split_once('#').and_then(|(_, fragment)| of_fragment(fragment)))?;
        let metadata = metadata.and_then(|text| std::str::from_utf8(text).ok());
        found.file(&metadata_of(&link), metadata.and_then(of_fragment))?;
    }
    Ok(rest)
}

/// The value of an attribute, and what follows it.
fn value(text: &[u8]) -> (&[u8], &[u8]) {
    match text {
        [quote @ (b'"' | b'\''), inside @ ..] => {
            let end = memchr::memchr(*quote, inside).unwrap_or(inside.len());
            (&inside[..end], inside.get(end + 1..).unwrap_or_default())
        }
        _ => text.split_at(text.iter().take_while(|byte| !byte.is_ascii_whitespace() && **byte != b'>').count()),
    }
}

/// The digest of `sha256=…`, alone or among other members of a fragment.
fn of_fragment(fragment: &str) -> Option<ExpectedDigest> {
    fragment.split('&').find_map(|member| member.split_once('=').and_then(|(name, hex)| by_name(name, hex)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{named, named_by, stored};
    use super::super::{IndexFormat, Unread};

    const URL: &str = "https://i.test/simple/a/";

    fn hex(two: &str) -> String {
        two.repeat(32)
    }

    #[test]
    fn links_of_a_page() {
        let body = format!(
            "<!DOCTYPE html><head><title>a</title></head><body><!-- <a href=\"c.whl#sha256={a}\"> -->\n\
             <a href=\"https://f.test/a-1.whl#sha256={a}\" data-requires-python=\"&gt;=3\" data-core-metadata=\"sha256={b}\">a-1.whl</a><br>\n\
             <A data-yanked class=x HREF='../../f/a-2.tar.gz#md5=1&sha256={b}'>\n<a href=/p/a%201.whl?x=1&amp;y=2#sha256={a}>\n\
             <a href=\"d.whl\">d</a> <a>e</a> <a href=\"f.whl#sha256=12\"> <abbr href=\"g.whl#sha256={a}\">\n<a href=\"h.whl#sha256={a}",
            a = hex("aa"),
            b = hex("bb")
        );
        let of = [
            "https://f.test/a-1.whl",
            "https://f.test/a-1.whl.metadata",
            "https://i.test/f/a-2.tar.gz",
            "https://i.test/p/a%201.whl?x=1&y=2",
            "https://i.test/simple/a/c.whl",
            "https://i.test/simple/a/d.whl",
            "https://i.test/simple/a/f.whl",
            "https://i.test/simple/a/g.whl",
        ];
        let wanted = ["sha-256 aaa", "sha-256 bbb", "sha-256 bbb", "sha-256 aaa", "none", "none", "none", "none"];
        assert_eq!(named(IndexFormat::Python, URL, "text/html; charset=utf-8", body.as_bytes(), &of), wanted);
        for cut in 0..body.len() {
            named(IndexFormat::Python, URL, "text/html", &body.as_bytes()[..cut], &of);
        }
        let based = stored(IndexFormat::Python, URL, "text/html", b"<base href=\"https://b.test/\"><a href=x>");
        assert!(matches!(named_by(based, &[]), Err(Unread::Malformed(_))));
    }

    #[test]
    fn files_of_an_answer_in_json() {
        let body = format!(
            r#"{{"meta":{{"api-version":"1.1"}},"name":"a","files":[
              {{"filename":"a-1.whl","url":"https://f.test/a-1.whl","hashes":{{"md5":"1","sha256":"{a}"}},"core-metadata":{{"sha256":"{b}"}},"yanked":false}},
              {{"filename":"b","url":"../b.tar.gz","hashes":{{"sha512":"{a}{a}","sha256":"{b}"}},"core-metadata":false,"dist-info-metadata":true}},
              {{"filename":"c","url":"c","hashes":{{}}}}],"versions":["1"]}}"#,
            a = hex("aa"),
            b = hex("bb")
        );
        let of = [
            "https://f.test/a-1.whl",
            "https://f.test/a-1.whl.metadata",
            "https://i.test/simple/b.tar.gz",
            "https://i.test/simple/b.tar.gz.metadata",
            "https://i.test/simple/a/c",
        ];
        let wanted = ["sha-256 aaa", "sha-256 bbb", "sha-256 bbb", "none", "none"];
        let media_type = "application/vnd.pypi.simple.v1+json";
        assert_eq!(named(IndexFormat::Python, URL, media_type, body.as_bytes(), &of), wanted);
    }
}
