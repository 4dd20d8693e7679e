//! The index of the search: the text of each section, which a script of the page looks through.

use super::{html, pages};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use serde::Serialize;

/// A heading with the text below it, up to the next heading.
#[derive(Default, Serialize)]
struct Section {
    page: &'static str,
    title: String,
    heading: String,
    anchor: String,
    text: String,
}

/// All sections of all pages, as JSON.
pub fn index() -> String {
    let sections: Vec<Section> = pages().flat_map(sections).collect();
    // Texts and names always become JSON.
    serde_json::to_string(&sections).unwrap_or_default()
}

fn sections(page: &'static super::Page) -> Vec<Section> {
    let mut headings = html::render(page).headings.into_iter();
    let new = || Section { page: page.name, title: page.title(), ..Section::default() };
    let (mut all, mut open, mut in_heading) = (Vec::new(), new(), false);
    for event in Parser::new_ext(page.text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { .. }) => {
                in_heading = true;
                all.push(std::mem::replace(&mut open, new()));
                if let Some(heading) = headings.next() {
                    (open.heading, open.anchor) = (heading.text, heading.id);
                }
            }
            Event::End(TagEnd::Heading(_)) => in_heading = false,
            Event::Text(text) | Event::Code(text) | Event::Html(text) | Event::InlineHtml(text) if !in_heading => {
                open.text.push_str(&text);
            }
            Event::End(TagEnd::Paragraph | TagEnd::TableCell | TagEnd::Item | TagEnd::CodeBlock)
            | Event::SoftBreak
            | Event::HardBreak => open.text.push(' '),
            _ => {}
        }
    }
    all.push(open);
    all.retain(|section| !(section.heading.is_empty() && section.text.trim().is_empty()));
    for section in &mut all {
        section.text = section.text.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    all
}
