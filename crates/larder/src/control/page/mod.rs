//! The page: its files, which are in the program. They ask the API for everything that they show.

/// One file of the page.
#[derive(Clone, Copy)]
pub(super) struct File {
    name: &'static str,
    pub(super) content_type: &'static str,
    pub(super) text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

/// The file that `/` answers with.
pub(super) const INDEX: File = File { name: "index.html", content_type: HTML, text: include_str!("index.html") };

static FILES: &[File] = &[
    File { name: "larder.svg", content_type: IMAGE, text: include_str!("larder.svg") },
    File { name: "page.css", content_type: STYLE, text: include_str!("page.css") },
    File { name: "docs.css", content_type: STYLE, text: include_str!("docs.css") },
    File { name: "docs.js", content_type: SCRIPT, text: include_str!("docs.js") },
    File { name: "theme.js", content_type: SCRIPT, text: include_str!("theme.js") },
    File { name: "page.js", content_type: SCRIPT, text: include_str!("page.js") },
    File { name: "api.js", content_type: SCRIPT, text: include_str!("api.js") },
    File { name: "words.js", content_type: SCRIPT, text: include_str!("words.js") },
    File { name: "charts.js", content_type: SCRIPT, text: include_str!("charts.js") },
    File { name: "now.js", content_type: SCRIPT, text: include_str!("now.js") },
    File { name: "requests.js", content_type: SCRIPT, text: include_str!("requests.js") },
    File { name: "applications.js", content_type: SCRIPT, text: include_str!("applications.js") },
    File { name: "store.js", content_type: SCRIPT, text: include_str!("store.js") },
    File { name: "settings.js", content_type: SCRIPT, text: include_str!("settings.js") },
];

/// The folder of all files but the first.
const FOLDER: &str = "/page/";

/// The file at a path below `/page/`.
pub(super) fn file(path: &str) -> Option<File> {
    let name = path.strip_prefix(FOLDER)?;
    FILES.iter().find(|file| file.name == name).copied()
}

/// Whether this path is one of the page's own files or of the documentation, which are the same everywhere and tell nothing of
/// this server.
pub(super) fn is_at(path: &str) -> bool {
    path == "/" || path.starts_with(FOLDER) || path == "/docs" || path.starts_with("/docs/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::Condition;
    use crate::record::{CLASSES, Cause};

    /// The policy of the page forbids both; a browser would only say so to its console.
    #[test]
    fn nothing_comes_from_elsewhere_or_stands_inline() {
        for File { name, text, .. } in FILES.iter().chain([&INDEX]) {
            for wrong in ["https://", "<style", "style=\"", "onclick=", "javascript:", "eval("] {
                assert!(!text.contains(wrong), "{name} has {wrong}");
            }
        }
    }

    /// Texts of strangers stand in lists and tracebacks.
    #[test]
    fn no_text_becomes_markup() {
        for File { name, text, .. } in FILES {
            for wrong in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "setHTML", "srcdoc", "DOMParser", "document.write"]
            {
                assert!(!text.contains(wrong), "{name} has {wrong}");
            }
        }
    }

    #[test]
    fn the_page_knows_all_states_of_an_application() {
        let words = file("/page/applications.js").unwrap().text;
        for word in Condition::ALL.map(Condition::as_str) {
            let is_known =
                [format!("\n  {word}: ["), format!("\n  \"{word}\": [")].iter().any(|line| words.contains(line));
            assert!(is_known, "applications.js does not say what {word} means");
        }
    }

    #[test]
    fn the_page_knows_all_words_of_the_log() {
        let words = file("/page/words.js").unwrap().text;
        let knows =
            |word: &str| words.contains(&format!("\n  {word}: ")) || words.contains(&format!("\n  \"{word}\": "));
        let causes = Cause::ALL.iter().map(|cause| cause.as_str());
        for word in causes.chain(CLASSES) {
            assert!(knows(word), "words.js does not say what {word} means");
        }
    }

    #[test]
    fn whatever_a_file_names_is_there() {
        for File { name, text, .. } in FILES.iter().chain([&INDEX]) {
            for named in text.split(['"', '\'']).filter(|part| part.starts_with("/page/") || part.starts_with("./")) {
                let path = named.replacen("./", FOLDER, 1);
                assert!(file(&path).is_some(), "{name} names {named}");
            }
        }
    }
}
