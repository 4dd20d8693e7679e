//! The documentation that the program carries: the pages of `docs/`, their HTML, and the index of their search. They are the same in
//! every installation of this version, and tell nothing of a server.

mod html;
mod search;

pub use html::{Heading, Link, Rendered, link, render};
pub use search::index;

/// One page.
#[derive(Debug)]
pub struct Page {
    /// The name of its file without `.md`, which is its place in URLs and on the command line.
    pub name: &'static str,
    /// Its Markdown.
    pub text: &'static str,
}

/// Pages of one subject.
pub struct Chapter {
    /// Its subject.
    pub title: &'static str,
    /// In the order in which they are read.
    pub pages: &'static [Page],
}

macro_rules! pages {
    ($($name:literal),+ $(,)?) => {
        &[$(Page { name: $name, text: include_str!(concat!("../../../../docs/", $name, ".md")) }),+]
    };
}

/// All pages, by subject.
pub static CHAPTERS: &[Chapter] = &[
    Chapter { title: "To begin with", pages: pages!["installing", "page", "errors", "explain", "settings"] },
    Chapter {
        title: "Proxy and mirror",
        pages: pages!["offline", "presets", "mirror", "ftp", "socks", "transparent", "neighbours"],
    },
    Chapter {
        title: "In front of sites",
        pages: pages![
            "origins",
            "compression",
            "acme",
            "pass-through",
            "http2",
            "http3",
            "proxy-protocol",
            "unix-sockets",
            "activation",
            "sandbox",
            "overload",
            "cluster",
        ],
    },
    Chapter { title: "Rules and people", pages: pages!["rules", "lists", "people", "helpers", "icap"] },
    Chapter { title: "Python", pages: pages!["python", "recipes", "hook-objects"] },
    Chapter { title: "Watching", pages: pages!["watching", "logs", "metrics", "traces"] },
    Chapter {
        title: "Coming from others",
        pages: pages!["coming-from-squid", "squid", "coming-from-nginx", "coming-from-varnish"],
    },
    Chapter {
        title: "Cacheoff",
        pages: pages!["cacheoff", "workloads", "referee", "official", "agents", "ledger", "disclosure"],
    },
    Chapter {
        title: "Development",
        pages: pages!["developing", "style", "scenarios", "conformance", "simulation", "dependencies"],
    },
];

/// The description of the API, which is no page.
pub const OPENAPI: &str = include_str!("../../../../docs/openapi.yaml");

/// The name of its file.
pub const OPENAPI_NAME: &str = "openapi.yaml";

/// All pages in the order of their chapters.
pub fn pages() -> impl Iterator<Item = &'static Page> {
    CHAPTERS.iter().flat_map(|chapter| chapter.pages)
}

/// The page of this name, which may end with `.md`.
pub fn page(name: &str) -> Option<&'static Page> {
    let name = name.strip_suffix(".md").unwrap_or(name);
    pages().find(|page| page.name == name)
}

impl Page {
    /// Its first heading, without marks.
    pub fn title(&self) -> String {
        let line = self.text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or(self.name);
        line.replace('`', "")
    }

    /// The Markdown of the section whose heading has this anchor, up to the next heading that is not below it.
    pub fn section(&self, anchor: &str) -> Option<&'static str> {
        let headings = render(self).headings;
        let at = headings.iter().position(|heading| heading.id == anchor)?;
        let end = headings[at + 1..].iter().find(|next| next.level <= headings[at].level);
        let text = self.text;
        text.get(headings[at].offset..end.map_or(text.len(), |next| next.offset)).map(str::trim_end)
    }
}

#[cfg(test)]
mod tests;
