//! Markdown becomes HTML. Markup in a page is text: nothing that stands in one becomes a tag of its own.

use super::{OPENAPI_NAME, Page, page};
use crate::page::escape;
use pulldown_cmark::{Alignment, CodeBlockKind, CowStr, Event, Options, Parser, Tag, TagEnd, html};
use std::collections::BTreeMap;

/// A page in HTML.
pub struct Rendered {
    /// Its headings, in their order.
    pub headings: Vec<Heading>,
    /// Its content, without a frame.
    pub html: String,
}

/// A heading of a page.
#[derive(Debug)]
pub struct Heading {
    /// 1 to 6.
    pub level: u8,
    /// Its anchor.
    pub id: String,
    /// Its text, without marks.
    pub text: String,
    /// The place of its line in the Markdown, in bytes.
    pub offset: usize,
}

/// The destination of a link in a page.
#[derive(Debug, PartialEq, Eq)]
pub enum Link {
    /// A place that the admin listener serves.
    Here(String),
    /// A page of the web.
    Web(String),
    /// A file of the source tree that is not in the program, by its path.
    Source(String),
}

/// Where a link of a page leads to.
pub fn link(destination: &str) -> Link {
    if destination.starts_with("https://") || destination.starts_with("http://") {
        return Link::Web(destination.to_owned());
    }
    let (path, anchor) = match destination.split_once('#') {
        Some((path, anchor)) => (path, format!("#{anchor}")),
        None => (destination, String::new()),
    };
    match page(path) {
        _ if path.is_empty() => Link::Here(anchor),
        Some(page) if path.ends_with(".md") => Link::Here(format!("/docs/{}{anchor}", page.name)),
        _ if path == OPENAPI_NAME => Link::Here(format!("/docs/{OPENAPI_NAME}")),
        _ => Link::Source(path.strip_prefix("../").map_or_else(|| format!("docs/{path}"), str::to_owned)),
    }
}

/// The HTML of a page.
pub fn render(page: &Page) -> Rendered {
    let parser = Parser::new_ext(page.text, Options::ENABLE_TABLES);
    let mut rewriting = Rewriting { headings: headings(page.text), heading: 0, is_anchor: false };
    let events: Vec<Event<'_>> = parser.flat_map(|event| rewriting.rewrite(event)).collect();
    // Markdown of tables grows by its tags.
    let mut text = String::with_capacity(page.text.len() * 2);
    html::push_html(&mut text, events.into_iter());
    Rendered { headings: rewriting.headings, html: text }
}

/// The headings of a text, with anchors by the rule of the forges that show these files: letters and digits in lower case,
/// hyphens for spaces, a number behind those that repeat.
fn headings(text: &str) -> Vec<Heading> {
    let (mut found, mut open): (Vec<Heading>, Option<Heading>) = (Vec::new(), None);
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { level, .. }) => {
                let (id, text) = Default::default();
                open = Some(Heading { level: level as u8, id, text, offset: range.start });
            }
            Event::End(TagEnd::Heading(_)) => {
                let Some(mut heading) = open.take() else { continue };
                let id = anchor(&heading.text);
                let many = seen.entry(id.clone()).or_default();
                heading.id = if *many == 0 { id } else { format!("{id}-{many}") };
                *many += 1;
                found.push(heading);
            }
            Event::Text(piece) | Event::Code(piece) => {
                if let Some(heading) = &mut open {
                    heading.text.push_str(&piece);
                }
            }
            _ => {}
        }
    }
    found
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

/// The state between the events of one page.
struct Rewriting {
    headings: Vec<Heading>,
    /// The number of the heading that comes next.
    heading: usize,
    /// Whether the link under way is one that can be followed.
    is_anchor: bool,
}

impl Rewriting {
    /// The events in place of one.
    fn rewrite<'t>(&mut self, event: Event<'t>) -> Vec<Event<'t>> {
        let tag = |text: String| vec![Event::Html(CowStr::from(text))];
        match event {
            Event::Html(text) | Event::InlineHtml(text) => vec![Event::Text(text)],
            Event::Start(Tag::Heading { level, .. }) => {
                let id = self.headings.get(self.heading).map_or("", |heading| &heading.id);
                tag(format!("<h{} id=\"{id}\">", level as u8))
            }
            Event::End(TagEnd::Heading(level)) => {
                let id = self.headings.get(self.heading).map_or("", |heading| &heading.id);
                let text = format!(
                    " <a class=\"anchor\" href=\"#{id}\" aria-label=\"Link to this section\">#</a></h{}>\n",
                    level as u8
                );
                self.heading += 1;
                tag(text)
            }
            Event::Start(Tag::Link { dest_url, .. }) => tag(self.begin_link(&dest_url)),
            Event::End(TagEnd::Link) => tag(if self.is_anchor { "</a>".to_owned() } else { "</span>".to_owned() }),
            // Nothing is loaded from elsewhere; the text in place of an image stays.
            Event::Start(Tag::Image { .. }) | Event::End(TagEnd::Image) => Vec::new(),
            Event::Start(Tag::CodeBlock(kind)) => tag(begin_code(&kind)),
            Event::End(TagEnd::CodeBlock) => tag("</code></pre>\n".to_owned()),
            // Alignments would become attributes of style, which the policy of the page forbids.
            Event::Start(Tag::Table(columns)) => {
                let plain = Tag::Table(vec![Alignment::None; columns.len()]);
                vec![Event::Html("<div class=\"wide-table\" tabindex=\"0\">".into()), Event::Start(plain)]
            }
            Event::End(TagEnd::Table) => vec![event, Event::Html("</div>\n".into())],
            other => vec![other],
        }
    }

    fn begin_link(&mut self, destination: &str) -> String {
        let link = link(destination);
        self.is_anchor = !matches!(link, Link::Source(_));
        let (before, value, after) = match &link {
            Link::Here(url) => ("<a href=\"", url, "\">"),
            Link::Web(url) => ("<a rel=\"noreferrer\" href=\"", url, "\">"),
            Link::Source(path) => ("<span class=\"elsewhere\" title=\"In the source tree: ", path, "\">"),
        };
        let mut tag = before.to_owned();
        escape(value, &mut tag);
        tag + after
    }
}

fn begin_code(kind: &CodeBlockKind<'_>) -> String {
    let language = match kind {
        CodeBlockKind::Fenced(info) => info.split([' ', ',']).next().unwrap_or_default(),
        CodeBlockKind::Indented => "",
    };
    let mut tag = "<pre tabindex=\"0\" data-language=\"".to_owned();
    escape(language, &mut tag);
    tag + "\"><code>"
}
