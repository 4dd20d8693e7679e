use super::*;
use std::collections::BTreeSet;
use std::path::Path;

fn of(text: &'static str) -> Rendered {
    render(&Page { name: "test", text })
}

#[test]
fn no_page_is_missing() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let names = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let there: BTreeSet<String> = names.filter_map(|name| name.strip_suffix(".md").map(str::to_owned)).collect();
    let here: BTreeSet<String> = pages().map(|page| page.name.to_owned()).collect();
    assert_eq!(there, here);
    assert_eq!(here.len(), pages().count(), "a page stands in two chapters");
}

/// Every anchor and every file that a link names is there.
#[test]
fn each_link_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let anchors = |page: &Page| render(page).headings.into_iter().map(|heading| heading.id).collect::<BTreeSet<_>>();
    let mut followed = 0;
    for page in pages() {
        for destination in destinations(page.text) {
            let place = format!("docs/{}.md links to {destination}", page.name);
            match link(&destination) {
                Link::Here(url) => {
                    let (path, anchor) = url.split_once('#').unwrap_or((&url, ""));
                    let target = match path.strip_prefix("/docs/") {
                        Some(OPENAPI_NAME) => continue,
                        Some(name) => super::page(name).unwrap(),
                        None => page,
                    };
                    assert!(
                        anchor.is_empty() || anchors(target).contains(anchor),
                        "{place}, which has no such heading"
                    );
                    followed += 1;
                }
                Link::Source(path) => assert!(root.join(&path).exists(), "{place}, and there is no {path}"),
                Link::Web(_) => {}
            }
        }
    }
    assert!(followed > 100, "{followed} links");
}

fn destinations(text: &str) -> Vec<String> {
    use pulldown_cmark::{Event, Options, Parser, Tag};
    let of_event = |event| match event {
        Event::Start(Tag::Link { dest_url, .. }) => Some(dest_url.to_string()),
        _ => None,
    };
    Parser::new_ext(text, Options::ENABLE_TABLES).filter_map(of_event).collect()
}

/// Markup of a page is text, wherever it stands.
#[test]
fn markup_is_text() {
    let text = "# A <script>alert(1)</script> `<b>`\n\nInline <img src=x onerror=y> and\n\n<script>evil()</script>\n\n\
                ```html <x\n<script>\"&\"</script>\n```\n\n| <i> |\n|---|\n| `<u>` |\n\n[x](https://a/\"><script>) ![y](z.png)\n";
    let html = of(text).html;
    for wrong in ["<script", "<img", "<b>", "<i>", "<u>", "onerror=y>"] {
        assert!(!html.contains(wrong), "{wrong} in {html}");
    }
    assert!(html.contains("&lt;script&gt;evil()&lt;/script&gt;"), "{html}");
    assert!(html.contains("&lt;img src=x onerror=y&gt;"), "{html}");
}

#[test]
fn links_and_headings_become_anchors() {
    let rendered = of(
        "# The `x` of y: z!\n\n[a](settings.md#x) [b](#here) [c](decisions/001-own-http1-codec.md) [d](https://e/)\n\n## Same\n\n## Same\n",
    );
    let ids: Vec<&str> = rendered.headings.iter().map(|heading| heading.id.as_str()).collect();
    assert_eq!(ids, ["the-x-of-y-z", "same", "same-1"]);
    for wanted in [
        "<a href=\"/docs/settings#x\">a</a>",
        "<a href=\"#here\">b</a>",
        "<span class=\"elsewhere\" title=\"In the source tree: docs/decisions/001-own-http1-codec.md\">c</span>",
        "<a rel=\"noreferrer\" href=\"https://e/\">d</a>",
        "<h2 id=\"same-1\">",
    ] {
        assert!(rendered.html.contains(wanted), "{wanted} in {}", rendered.html);
    }
}

#[test]
fn a_section_ends_where_the_next_begins() {
    let page = Page { name: "test", text: "# T\n\nintro\n\n## A\n\none\n\n### B\n\ntwo\n\n## C\n\nthree\n" };
    assert_eq!(page.section("a"), Some("## A\n\none\n\n### B\n\ntwo"));
    assert_eq!(page.section("b"), Some("### B\n\ntwo"));
    assert_eq!(page.section("c"), Some("## C\n\nthree"));
    assert_eq!(page.section("d"), None);
}

#[test]
fn the_index_has_the_text_of_all_pages() {
    let index: serde_json::Value = serde_json::from_str(&index()).unwrap();
    let sections = index.as_array().unwrap();
    for page in pages() {
        assert!(sections.iter().any(|section| section["page"] == page.name), "{} is not in the index", page.name);
    }
    let found = sections.iter().find(|section| section["anchor"] == "the-page-and-larder-top").unwrap();
    assert!(found["text"].as_str().unwrap().contains("strict content security policy"), "{found}");
}

/// Each word that an error page may have is a heading of `docs/errors.md`. Words are looked for in the sources: most stand beside the
/// page that has them.
#[test]
fn each_cause_of_an_error_page_has_a_section() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut words = BTreeSet::new();
    let mut folders = vec![root.join("src")];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match path.extension() {
                _ if path.is_dir() => folders.push(path),
                Some(end) if end == "rs" => words_of_pages(&std::fs::read_to_string(path).unwrap(), &mut words),
                _ => {}
            }
        }
    }
    for file in ["src/upstream/fault.rs", "src/helper/pool.rs", "../larder-wire/src/fault.rs"] {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        let shown = text.lines().filter_map(|line| line.split_once("=> \"")?.1.strip_suffix("\","));
        words.extend(shown.filter(|word| !word.contains(' ')).map(str::to_owned));
    }
    // A side of a fault, and a rule of tests.
    for word in ["origin", "group"] {
        words.remove(word);
    }
    let headings = render(page("errors").unwrap()).headings;
    let there: BTreeSet<String> = headings.into_iter().filter(|heading| heading.level == 3).map(|it| it.id).collect();
    let missing: Vec<_> = words.difference(&there).collect();
    assert!(missing.is_empty(), "docs/errors.md says nothing of {missing:?}");
    assert!(words.len() > 80, "{} words were found", words.len());
}

/// The literals beside the calls that make pages, without those of tests.
fn words_of_pages(source: &str, words: &mut BTreeSet<String>) {
    let source = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    for (call, before) in [("Page::new(", 1), ("denied(", 0), ("LoginRefusal::Trouble(", 0)] {
        for (at, _) in source.match_indices(call) {
            let rest = &source[at + call.len()..];
            let argument = rest.splitn(before + 2, ',').nth(before).unwrap_or_default().trim();
            let word = argument.trim_end_matches(')').strip_prefix('"').and_then(|rest| rest.split('"').next());
            words.extend(word.filter(|word| !word.is_empty() && !word.contains(' ')).map(str::to_owned));
        }
    }
}

/// Settings that the page of errors names are settings.
#[test]
fn settings_that_errors_name_exist() {
    let text = page("errors").unwrap().text;
    let named = text.split('`').skip(1).step_by(2).filter(|word| {
        ["limits.", "timeouts.", "access.", "upstream.", "cluster.", "forward."]
            .iter()
            .any(|table| word.starts_with(table))
    });
    let named: Vec<_> = named.collect();
    assert!(named.len() > 10);
    for name in named {
        assert_eq!(crate::config::manual::nearest(name), Some(name), "there is no such setting");
    }
}
