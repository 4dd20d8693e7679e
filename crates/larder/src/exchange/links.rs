//! Links in indexes, made to lead to the mirror (decision 041). A link `https://host/path` gets the mirror's address in front of
//! it and stays as it is behind that, escapes included; so a body is rewritten as it passes, however long it is.

use crate::config::{Mirror, Mirroring};
use larder_wire::Url;
use std::sync::Arc;

/// Where links stand in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkFormat {
    /// HTML: the values of `href`.
    Html,
    /// JSON: the strings that are values of this key.
    Json(&'static str),
}

impl LinkFormat {
    /// By the type of the body and its path; `None` for all that has no absolute links or is not known.
    pub fn of(content_type: &str, path: &str) -> Option<LinkFormat> {
        let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let path = path.split('?').next().unwrap_or_default();
        if path.ends_with("/config.json") {
            return Some(LinkFormat::Json("dl")); // of a sparse index of crates, whatever its type
        }
        match &*kind {
            "text/html" | "application/xhtml+xml" | "application/vnd.pypi.simple.v1+html" => Some(LinkFormat::Html),
            "application/vnd.pypi.simple.v1+json" => Some(LinkFormat::Json("url")),
            "application/json" | "application/vnd.npm.install-v1+json" => Some(LinkFormat::Json("tarball")),
            _ => None,
        }
    }
}

/// How a link leads to the mirror.
pub struct References<'a> {
    /// The URL of the index.
    pub url: &'a Url,
    /// The mirror's scheme and authority.
    pub base: &'a str,
    /// Upstreams that have a name.
    pub mirrors: &'a [Arc<Mirror>],
    /// Whether others are mirrored as well.
    pub mirroring: Mirroring,
}

impl References<'_> {
    /// The mirror's URL for a URL; `None` where it is not mirrored.
    pub fn of_url(&self, url: &Url) -> Option<String> {
        for mirror in self.mirrors.iter().filter(|mirror| !mirror.registry) {
            if let Some(path) = mirror.path_of(url) {
                return Some(format!("{}/{}{path}", self.base, mirror.name));
            }
        }
        (self.mirroring == Mirroring::All).then(|| format!("{}/{url}", self.base))
    }
}

/// Replaces the beginnings of links.
pub struct LinkRewriter {
    format: LinkFormat,
    /// Beginnings of links and what takes their place, the longest first.
    beginnings: Vec<(Vec<u8>, Vec<u8>)>,
    /// The longest beginning.
    longest: usize,
    state: State,
    /// Bytes that can't be judged before more have come.
    held: Vec<u8>,
}

/// The place in the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Between links.
    Outside,
    /// In a string of JSON that is no link.
    InString,
    /// Behind the key or the name of the attribute, before the value.
    BeforeValue,
    /// At the first byte of a link.
    AtLink,
}

/// A key or a name of an attribute that goes with a link is not longer with the white space behind it. Further white space ends
/// the search for its value, so the bytes that are held are few.
const GAP_BYTES_MAX: usize = 64;

impl LinkRewriter {
    /// For the links of one answer.
    pub fn new(format: LinkFormat, references: &References<'_>) -> LinkRewriter {
        let References { url, base, mirrors, mirroring } = references;
        let mut beginnings: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut add = |from: String, to: String| {
            if format != LinkFormat::Html {
                beginnings.push((from.replace('/', "\\/").into_bytes(), to.clone().into_bytes()));
            }
            beginnings.push((from.into_bytes(), to.into_bytes()));
        };
        for mirror in mirrors.iter().filter(|mirror| !mirror.registry) {
            let origin = mirror.origin.to_string();
            let origin = origin.trim_end_matches('/');
            add(format!("{origin}/"), format!("{base}/{}/", mirror.name));
        }
        if *mirroring == Mirroring::All {
            for scheme in ["https://", "http://"] {
                add(scheme.to_owned(), format!("{base}/{scheme}"));
            }
        }
        // Relative to the scheme or the host: of the original, not of the mirror.
        let through = if *mirroring == Mirroring::All { format!("{base}/") } else { String::new() };
        add("//".to_owned(), format!("{through}{}://", url.scheme.as_str()));
        let root = Url { path: "/".into(), ..(*url).clone() };
        if let Some(to) =
            references.of_url(&root).or_else(|| (*mirroring == Mirroring::Named).then(|| root.to_string()))
        {
            add("/".to_owned(), to);
        }
        beginnings.sort_by_key(|(from, _)| std::cmp::Reverse(from.len()));
        let longest = beginnings.first().map_or(0, |(from, _)| from.len());
        LinkRewriter { format, beginnings, longest, state: State::Outside, held: Vec::new() }
    }

    /// Takes the next bytes of the body; gives those that can be sent.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        let mut out = Vec::with_capacity(all.len() + all.len() / 8);
        let at = self.rewrite(&all, &mut out, false);
        self.held = all.split_off(at);
        out
    }

    /// The bytes that were held when the body ended.
    pub fn finish(mut self) -> Vec<u8> {
        let all = std::mem::take(&mut self.held);
        let mut out = Vec::with_capacity(all.len());
        let at = self.rewrite(&all, &mut out, true);
        out.extend_from_slice(&all[at..]);
        out
    }

    /// Rewrites as far as the bytes allow it; gives the number of those that were used.
    fn rewrite(&mut self, all: &[u8], out: &mut Vec<u8>, is_end: bool) -> usize {
        let mut at = 0;
        while at < all.len() {
            let rest = &all[at..];
            let step = match self.state {
                State::Outside => self.outside(rest, is_end),
                State::InString => in_string(rest, is_end),
                State::BeforeValue => self.before_value(rest, is_end),
                State::AtLink => {
                    let Some(used) = self.at_link(rest, out, is_end) else { break };
                    at += used;
                    self.state = if self.format == LinkFormat::Html { State::Outside } else { State::InString };
                    continue;
                }
            };
            out.extend_from_slice(&rest[..step.used]);
            at += step.used;
            match step.next {
                Some(state) => self.state = state,
                None => break,
            }
        }
        at
    }

    fn outside(&self, rest: &[u8], is_end: bool) -> Step {
        match self.format {
            LinkFormat::Html => outside_html(rest, is_end),
            LinkFormat::Json(key) => outside_json(rest, key.as_bytes(), is_end),
        }
    }

    /// White space, `=` or `:`, white space and a quote.
    fn before_value(&self, rest: &[u8], is_end: bool) -> Step {
        let sign = if self.format == LinkFormat::Html { b'=' } else { b':' };
        let gap = |from: usize| from + rest[from..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let behind = gap(0);
        let value = match rest.get(behind) {
            Some(byte) if *byte == sign => gap(behind + 1),
            Some(_) => return Step::to(0, State::Outside),
            None => rest.len(),
        };
        match (rest.get(value), self.format) {
            (None, _) if is_end || value > GAP_BYTES_MAX => Step::to(rest.len(), State::Outside),
            (None, _) => Step::wait(0),
            (Some(b'"'), _) | (Some(b'\''), LinkFormat::Html) => Step::to(value + 1, State::AtLink),
            // A value without quotes.
            (Some(_), LinkFormat::Html) => Step::to(value, State::AtLink),
            (Some(_), LinkFormat::Json(_)) => Step::to(value, State::Outside),
        }
    }

    fn at_link(&self, rest: &[u8], out: &mut Vec<u8>, is_end: bool) -> Option<usize> {
        let blank = match self.format {
            LinkFormat::Html => rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count().min(GAP_BYTES_MAX),
            LinkFormat::Json(_) => 0,
        };
        let link = &rest[blank..];
        let begins = |from: &[u8]| link.len() >= from.len() && link[..from.len()].eq_ignore_ascii_case(from);
        let found = self.beginnings.iter().find(|(from, _)| begins(from));
        // A longer beginning may still come.
        let is_whole = link.len() >= self.longest || link.iter().any(|byte| matches!(byte, b'"' | b'\'' | b'>'));
        if !is_whole && !is_end {
            return None;
        }
        match found {
            Some((from, to)) => {
                out.extend_from_slice(to);
                Some(blank + from.len())
            }
            None => {
                out.extend_from_slice(&rest[..blank]);
                Some(blank)
            }
        }
    }
}

/// Bytes that are passed on as they are, and the state behind them; without one, more bytes are needed.
struct Step {
    used: usize,
    next: Option<State>,
}

impl Step {
    fn to(used: usize, state: State) -> Step {
        Step { used, next: Some(state) }
    }

    fn wait(used: usize) -> Step {
        Step { used, next: None }
    }
}

/// Looks for the next `href` that stands behind white space.
fn outside_html(rest: &[u8], is_end: bool) -> Step {
    const NAME: &[u8] = b"href";
    let mut from = 0;
    while let Some(found) = memchr::memchr2(b'h', b'H', &rest[from..]) {
        let at = from + found;
        let Some(word) = rest.get(at..at + NAME.len()) else {
            return Step::wait(if is_end { rest.len() } else { at.saturating_sub(1) });
        };
        let is_name = word.eq_ignore_ascii_case(NAME) && at > 0 && rest[at - 1].is_ascii_whitespace();
        if is_name {
            return Step::to(at + NAME.len(), State::BeforeValue);
        }
        from = at + 1;
    }
    // The white space before a name that comes next is needed then.
    Step::wait(if is_end { rest.len() } else { rest.len().saturating_sub(1) })
}

/// Looks for the next string; if it is the key, its value comes next.
fn outside_json(rest: &[u8], key: &[u8], is_end: bool) -> Step {
    let Some(quote) = memchr::memchr(b'"', rest) else { return Step::wait(rest.len()) };
    let inside = &rest[quote + 1..];
    if inside.len() <= key.len() && !is_end && !inside.contains(&b'"') {
        return Step::wait(quote);
    }
    match inside.strip_prefix(key) {
        Some([b'"', ..]) => Step::to(quote + key.len() + 2, State::BeforeValue),
        _ => Step::to(quote + 1, State::InString),
    }
}

/// Looks for the end of a string.
fn in_string(rest: &[u8], is_end: bool) -> Step {
    let mut from = 0;
    while let Some(found) = memchr::memchr2(b'"', b'\\', &rest[from..]) {
        let at = from + found;
        if rest[at] == b'"' {
            return Step::to(at + 1, State::Outside);
        }
        if at + 1 == rest.len() {
            return Step::wait(if is_end { rest.len() } else { at });
        }
        from = at + 2;
    }
    Step::wait(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::url;

    /// The body as it is rewritten, in whatever pieces it comes.
    fn rewritten(format: LinkFormat, mirroring: Mirroring, body: &str) -> String {
        let index = Url::parse("https://idx.test/simple/x/").unwrap();
        let named = Arc::new(Mirror::of("py".to_owned(), url::parse("https://py.test/base").unwrap()));
        let references = References { url: &index, base: "http://m:1", mirrors: &[named], mirroring };
        let play = |pieces: &mut dyn Iterator<Item = &[u8]>| {
            let mut rewriter = LinkRewriter::new(format, &references);
            let mut out: Vec<u8> = pieces.flat_map(|piece| rewriter.feed(piece)).collect();
            out.extend(rewriter.finish());
            String::from_utf8(out).unwrap()
        };
        let whole = play(&mut std::iter::once(body.as_bytes()));
        assert_eq!(play(&mut body.as_bytes().chunks(1)), whole, "byte by byte");
        for at in 0..body.len() {
            let (a, b) = body.as_bytes().split_at(at);
            assert_eq!(play(&mut [a, b].into_iter()), whole, "cut at {at}");
        }
        whole
    }

    #[test]
    fn links_in_html() {
        let html = |body: &str| rewritten(LinkFormat::Html, Mirroring::All, body);
        for (body, wanted) in [
            (r#"<a href="https://f.test/x#s">x</a>"#, r#"<a href="http://m:1/https://f.test/x#s">x</a>"#),
            ("<A\nHREF = 'HTTP://f.test/x'>", "<A\nHREF = 'http://m:1/http://f.test/x'>"),
            ("<a href=https://f.test/x>", "<a href=http://m:1/https://f.test/x>"),
            (r#"<a href="//f.test/x">"#, r#"<a href="http://m:1/https://f.test/x">"#),
            (r#"<a href="/x">"#, r#"<a href="http://m:1/https://idx.test/x">"#),
            (r#"<a href="https://py.test/base/x">"#, r#"<a href="http://m:1/py/x">"#),
            (r#"<a href="https://py.test/based">"#, r#"<a href="http://m:1/https://py.test/based">"#),
            (r#"<a href="../x"><a data-href="https://f.test/">"#, r#"<a href="../x"><a data-href="https://f.test/">"#),
            (r#"<a href="ftp://f.test/"> https://f.test/"#, r#"<a href="ftp://f.test/"> https://f.test/"#),
            (r#"<a href="">"#, r#"<a href="">"#),
            ("<a href", "<a href"),
            ("<a href=", "<a href="),
            ("<a href=\"https:/", "<a href=\"https:/"),
        ] {
            assert_eq!(html(body), wanted, "{body}");
        }
    }

    #[test]
    fn links_in_json() {
        let json = |body: &str| rewritten(LinkFormat::Json("tarball"), Mirroring::All, body);
        for (body, wanted) in [
            (r#"{"tarball":"https://f.test/x.tgz"}"#, r#"{"tarball":"http://m:1/https://f.test/x.tgz"}"#),
            (r#"{"tarball" : "https:\/\/f.test\/x"}"#, r#"{"tarball" : "http://m:1/https://f.test\/x"}"#),
            (r#"{"tarball":"https:\/\/py.test\/base\/x"}"#, r#"{"tarball":"http://m:1/py/x"}"#),
            (r#"{"x":"tarball","y":"https://f.test/"}"#, r#"{"x":"tarball","y":"https://f.test/"}"#),
            (r#"{"x":"a\"tarball\":\"https://f.test/"}"#, r#"{"x":"a\"tarball\":\"https://f.test/"}"#),
            (r#"{"tarballs":"https://f.test/"}"#, r#"{"tarballs":"https://f.test/"}"#),
            (
                r#"{"tarball":null,"a":"\\","tarball":"http://a/"}"#,
                r#"{"tarball":null,"a":"\\","tarball":"http://m:1/http://a/"}"#,
            ),
            (r#"{"tarball"#, r#"{"tarball"#),
            (r#"{"tarball":"htt"#, r#"{"tarball":"htt"#),
        ] {
            assert_eq!(json(body), wanted, "{body}");
        }
    }

    #[test]
    fn links_to_others_stay_where_only_named_upstreams_are_mirrored() {
        let html = |body: &str| rewritten(LinkFormat::Html, Mirroring::Named, body);
        for (body, wanted) in [
            (r#"<a href="https://f.test/x">"#, r#"<a href="https://f.test/x">"#),
            (r#"<a href="https://py.test/base/x">"#, r#"<a href="http://m:1/py/x">"#),
            (r#"<a href="/x">"#, r#"<a href="https://idx.test/x">"#),
            (r#"<a href="//f.test/x">"#, r#"<a href="https://f.test/x">"#),
        ] {
            assert_eq!(html(body), wanted, "{body}");
        }
    }

    #[test]
    fn few_bytes_are_held() {
        let index = Url::parse("https://idx.test/").unwrap();
        let references = References { url: &index, base: "http://m:1", mirrors: &[], mirroring: Mirroring::All };
        for (format, bytes) in [
            (LinkFormat::Html, &b"<a href"[..]),
            (LinkFormat::Html, b" "),
            (LinkFormat::Json("tarball"), b"{\"tarball\""),
            (LinkFormat::Json("tarball"), b"\"\\"),
        ] {
            let mut rewriter = LinkRewriter::new(format, &references);
            rewriter.feed(bytes);
            (0..10_000).for_each(|_| _ = rewriter.feed(b"          "));
            assert!(rewriter.held.len() < 200, "{format:?} {}", rewriter.held.len());
        }
    }
}
