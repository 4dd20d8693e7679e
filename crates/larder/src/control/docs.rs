//! The documentation in the admin listener: `/docs/`, its pages, and the index of their search.
//!
//! It is the same in every installation of a version and tells nothing of the server, so it is served as the page's own files are.

use super::Reply;
use crate::docs::{self, CHAPTERS, OPENAPI, OPENAPI_NAME, Page};
use crate::page::escape;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use larder_cache::policy::{Coding, Offer};
use larder_wire::etag::{ETag, ETagList};
use larder_wire::{Fields, RequestHead};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hasher};
use std::io::{Read, Write as _};
use std::sync::{LazyLock, OnceLock};

/// The index of the search.
const INDEX: &str = "search.json";

/// A request for a part of the documentation.
pub(super) struct Wanted {
    name: String,
    fields: Fields,
}

impl Wanted {
    /// Of this request for a path below `/docs`.
    pub(super) fn of(request: &RequestHead, path: &str) -> Wanted {
        let name = path.strip_prefix("/docs").unwrap_or_default();
        let name = name.strip_prefix('/').unwrap_or(name).to_owned();
        Wanted { name, fields: request.fields.clone() }
    }

    fn takes_gzip(&self) -> bool {
        let mut offer = Offer::default();
        offer.push(Coding::Gzip);
        offer.chosen(&self.fields) == Some(Coding::Gzip)
    }

    /// Whether the client has the representation of this name (RFC 9110 section 13.1.2).
    fn has(&self, etag: &str) -> bool {
        let etag = ETag::parse(etag.as_bytes());
        ETagList::of(&self.fields, "If-None-Match").is_some_and(|list| list.matches_weak(etag.as_ref()))
    }
}

/// A part of the documentation as it is sent, made when it is first asked for.
struct Stored {
    content_type: &'static str,
    /// Of its bytes without a coding.
    sum: u64,
    gzip: Vec<u8>,
}

/// All parts by their names in URLs. Readers need no token, so a part costs its rendering once and not for each request: they are less
/// than a megabyte together.
static PARTS: LazyLock<BTreeMap<String, OnceLock<Stored>>> = LazyLock::new(|| {
    let pages = docs::pages().flat_map(|page| [page.name.to_owned(), format!("{}.md", page.name)]);
    pages.chain(["", INDEX, OPENAPI_NAME].map(str::to_owned)).map(|name| (name, OnceLock::new())).collect()
});

impl Stored {
    fn of(name: &str) -> Stored {
        let (content_type, text) = match (name, docs::page(name)) {
            (_, Some(page)) if name.ends_with(".md") => (TEXT, page.text.to_owned()),
            (_, Some(page)) => (HTML, document(page)),
            (INDEX, _) => ("application/json", docs::index()),
            (OPENAPI_NAME, _) => ("application/yaml", OPENAPI.to_owned()),
            _ => (HTML, contents()),
        };
        let mut sum = DefaultHasher::new();
        sum.write(text.as_bytes());
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        // A vector takes everything.
        let _ = encoder.write_all(text.as_bytes());
        Stored { content_type, sum: sum.finish(), gzip: encoder.finish().unwrap_or_default() }
    }

    fn plain(&self) -> Vec<u8> {
        let mut plain = Vec::new();
        // These bytes were coded here.
        let _ = GzDecoder::new(self.gzip.as_slice()).read_to_end(&mut plain);
        plain
    }
}

/// The answer. The first one for a name takes milliseconds, and so does the index without a coding.
pub(super) fn reply(wanted: &Wanted) -> Reply {
    let Some(part) = PARTS.get(&wanted.name) else {
        return Reply::text(404, "the documentation has no such page: /docs/ lists all");
    };
    let part = part.get_or_init(|| Stored::of(&wanted.name));
    let takes_gzip = wanted.takes_gzip();
    let coding = if takes_gzip { "-gzip" } else { "" };
    let etag = format!("\"{:016x}{coding}\"", part.sum);
    let is_known = wanted.has(&etag);
    let mut reply = Reply::of(if is_known { 304 } else { 200 }, part.content_type, String::new());
    if !is_known && takes_gzip {
        reply.body.clone_from(&part.gzip);
        reply.further.push(("Content-Encoding", "gzip".to_owned()));
    } else if !is_known {
        reply.body = part.plain();
    }
    reply.further.push(("ETag", etag));
    reply.further.push(("Vary", "Accept-Encoding".to_owned()));
    // A browser may keep it, and asks each time whether it is still the one.
    Reply { cache_control: "no-cache", ..reply }
}

const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/markdown; charset=utf-8";

/// The first page: all pages by chapter, with the sentence that each begins with.
fn contents() -> String {
    let mut inner =
        "<h1>Documentation</h1>\n<p class=\"lead\">Of this version, out of the program: it needs no network. \
                     <code>larder docs NAME</code> prints a page in a terminal.</p>\n<div class=\"chapters\">\n"
            .to_owned();
    for chapter in CHAPTERS {
        let _ = write!(inner, "<section class=\"chapter\"><h2>{}</h2>\n<ul>\n", chapter.title);
        for page in chapter.pages {
            let _ = writeln!(inner, "<li>{}</li>", link_to(page, ""));
        }
        inner.push_str("</ul></section>\n");
    }
    let _ = write!(
        inner,
        "<section class=\"chapter\"><h2>For programs</h2>\n<ul>\n<li><a href=\"/docs/{OPENAPI_NAME}\">The API of this listener</a></li>\n</ul></section>\n</div>\n"
    );
    frame("Documentation", "", "", &inner)
}

fn link_to(page: &Page, current: &str) -> String {
    let mut link = format!("<a href=\"/docs/{}\"", page.name);
    link.push_str(if page.name == current { " aria-current=\"page\">" } else { ">" });
    escape(&page.title(), &mut link);
    link + "</a>"
}

/// A page in its frame.
fn document(page: &Page) -> String {
    let rendered = docs::render(page);
    let mut sections = String::new();
    for heading in rendered.headings.iter().filter(|heading| matches!(heading.level, 2 | 3)) {
        let _ = write!(sections, "<li class=\"level-{}\"><a href=\"#{}\">", heading.level, heading.id);
        escape(&heading.text, &mut sections);
        sections.push_str("</a></li>\n");
    }
    frame(&page.title(), page.name, &sections, &rendered.html)
}

/// The list of all pages beside a page.
fn chapters(current: &str) -> String {
    let mut list = String::new();
    for chapter in CHAPTERS {
        let _ = write!(list, "<h2>{}</h2>\n<ul>\n", chapter.title);
        for page in chapter.pages {
            let _ = writeln!(list, "<li>{}</li>", link_to(page, current));
        }
        list.push_str("</ul>\n");
    }
    list
}

/// `sections` and `inner` are HTML. Identifiers of the frame have a full stop in them, which no anchor of a heading has. Wide windows have both lists beside the page, narrow ones have them folded above it.
fn frame(title: &str, current: &str, sections: &str, inner: &str) -> String {
    let mut name = String::new();
    escape(title, &mut name);
    let list = chapters(current);
    let (folded_sections, beside) = match sections {
        "" => (String::new(), String::new()),
        _ => (
            format!("<details class=\"folded of-page\"><summary>On this page</summary><ul>{sections}</ul></details>\n"),
            format!(
                "<nav class=\"of-page beside\" aria-label=\"On this page\"><h2>On this page</h2><ul>{sections}</ul></nav>\n"
            ),
        ),
    };
    let folded =
        format!("<details class=\"folded of-all\"><summary>All pages</summary>{list}</details>\n{folded_sections}");
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{name} · Larder</title>\n\
         <link rel=\"icon\" type=\"image/svg+xml\" href=\"/page/larder.svg\">\n\
         <link rel=\"stylesheet\" href=\"/page/page.css\">\n<link rel=\"stylesheet\" href=\"/page/docs.css\">\n\
         <script src=\"/page/theme.js\"></script>\n<script type=\"module\" src=\"/page/docs.js\"></script>\n</head>\n\
         <body class=\"docs\">\n<a class=\"skip\" href=\"#docs.main\">Skip to the content</a>\n{TOP}\
         <div class=\"library\">\n<nav class=\"of-all beside\" aria-label=\"All pages\">{list}</nav>\n\
         <main id=\"docs.main\" tabindex=\"-1\">\n{SEARCH}{folded}<article>\n{inner}</article>\n</main>\n{beside}</div>\n\
         <footer class=\"foot\"><p>Larder {version}</p></footer>\n</body>\n</html>\n"
    )
}

const TOP: &str = "<header class=\"top\">\n\
    <a class=\"brand\" href=\"/\"><img src=\"/page/larder.svg\" alt=\"\" width=\"26\" height=\"26\">Larder</a>\n\
    <nav aria-label=\"Views\"><a href=\"/#now\">Now</a> <a href=\"/#requests\">Requests</a> <a href=\"/#store\">Store</a> \
    <a href=\"/#upstreams\">Upstreams</a> <a href=\"/#settings\">Settings</a> \
    <a href=\"/docs/\" aria-current=\"true\">Docs</a></nav>\n\
    <button id=\"theme\" class=\"quiet\" type=\"button\">Theme</button>\n</header>\n";

const SEARCH: &str = "<form id=\"docs.find\" class=\"find\" role=\"search\" hidden>\n\
    <label class=\"unseen\" for=\"docs.words\">Search the documentation</label>\n\
    <input id=\"docs.words\" type=\"search\" autocomplete=\"off\" autocapitalize=\"off\" spellcheck=\"false\" \
    placeholder=\"Search the documentation\" aria-controls=\"docs.hits\">\n\
    <p id=\"docs.count\" class=\"note\" role=\"status\"></p>\n<ol id=\"docs.hits\" class=\"hits\" hidden></ol>\n</form>\n";

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn asked(name: &str, etags: &str, takes_gzip: bool) -> Reply {
        asked_with(name, etags, if takes_gzip { "br, gzip;q=0.5" } else { "br" })
    }

    fn asked_with(name: &str, etags: &str, codings: &str) -> Reply {
        let mut fields = Fields::default();
        fields.push("Accept-Encoding", codings);
        if !etags.is_empty() {
            fields.push("If-None-Match", etags);
        }
        reply(&Wanted { name: name.to_owned(), fields })
    }

    fn etag(reply: &Reply) -> &str {
        &reply.further.iter().find(|(name, _)| *name == "ETag").unwrap().1
    }

    #[test]
    fn a_page_is_compressed_for_those_that_take_it_and_known_by_its_etag() {
        let plain = asked("page", "", false);
        let text = String::from_utf8(plain.body.clone()).unwrap();
        assert!(
            text.contains("<h1 id=\"the-page-and-larder-top\">") && text.contains("href=\"/docs/metrics\""),
            "{text}"
        );
        let coded = asked("page", "", true);
        let mut read = String::new();
        flate2::read::GzDecoder::new(coded.body.as_slice()).read_to_string(&mut read).unwrap();
        assert_eq!(read, text);
        assert_ne!(etag(&plain), etag(&coded), "bytes that differ have one name");
        for (etags, takes_gzip) in
            [(format!("\"other\", W/{}", etag(&plain)), false), (etag(&coded).to_owned(), true), ("*".to_owned(), true)]
        {
            let known = asked("page", &etags, takes_gzip);
            assert_eq!((known.status, known.body.len()), (304, 0), "{etags}");
        }
        assert_eq!(asked("page", etag(&coded), false).status, 200);
        assert_eq!(asked("page", "\"other\"", false).status, 200);
    }

    #[test]
    fn codings_are_read_with_their_weights() {
        for (codings, wanted) in [
            ("", false),
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip; q=0.0", false),
            ("gzip;Q=0", false),
            // No weight of RFC 9110 section 12.4.2 has a space in it.
            ("gzip; q = 1", false),
            ("gzip;q=x", false),
            // The same coding by its old name (RFC 9110 section 8.4.1.3).
            ("x-gzip", true),
        ] {
            let is_coded = asked_with("page", "", codings).further.contains(&("Content-Encoding", "gzip".to_owned()));
            assert_eq!(is_coded, wanted, "{codings}");
        }
    }

    /// Each file that the frame names is served, and nothing stands inline that the policy forbids.
    #[test]
    fn frames_name_what_is_there() {
        let all = docs::pages().map(document).chain([contents()]);
        let mut urls = BTreeSet::new();
        for text in all.map(|text| outside_code(&text)) {
            for wrong in ["<style", " style=", "<script>", "javascript:", "onclick="] {
                assert!(!text.contains(wrong), "{wrong}");
            }
            let named = text.split("=\"/").skip(1).filter_map(|rest| rest.split(['"', '#']).next());
            urls.extend(named.map(str::to_owned));
        }
        assert!(urls.len() > docs::pages().count());
        for path in urls {
            let is_there = match path.split_once('/') {
                Some(("page", _)) => super::super::page::file(&format!("/{path}")).is_some(),
                Some(("docs", name)) => asked(name, "", false).status == 200,
                _ => path.is_empty(),
            };
            assert!(is_there, "/{path}");
        }
    }

    /// A heading that has the identifier of an element of the frame could not be reached, and would take the search away.
    #[test]
    fn identifiers_are_there_once() {
        for (name, text) in docs::pages().map(|page| (page.name, document(page))).chain([("", contents())]) {
            let mut seen = BTreeSet::new();
            for id in outside_code(&text).split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                assert!(seen.insert(id.to_owned()), "{id} is there twice in {name}");
            }
            assert!(seen.contains("docs.words") && seen.contains("docs.main"), "{name}");
        }
    }

    /// Text that is shown says such words in escaped form or between tags of code.
    fn outside_code(html: &str) -> String {
        let mut rest = html;
        let mut out = String::new();
        while let Some((before, after)) = rest.split_once("<code>") {
            out.push_str(before);
            rest = after.split_once("</code>").map_or("", |(_, after)| after);
        }
        out + rest
    }

    #[test]
    fn other_names_are_no_pages() {
        for name in [
            "nothing",
            "../README",
            "decisions",
            "settings/x",
            "..",
            "%2e%2e",
            "settings%2emd",
            "settings.md.md",
            "/page",
        ] {
            assert_eq!(asked(name, "", false).status, 404, "{name}");
        }
        assert_eq!(asked("settings.md", "", false).body, docs::page("settings").unwrap().text.as_bytes());
        assert_eq!(asked(OPENAPI_NAME, "", false).status, 200);
        assert_eq!(asked(INDEX, "", false).status, 200);
    }
}
