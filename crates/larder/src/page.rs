//! Answers of our own making: short, readable, and with the next step.

use larder_wire::{ResponseHead, head};

/// An answer that comes from no origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The status.
    pub status: u16,
    /// One word for logs and `Cache-Status`.
    pub word: &'static str,
    /// What happened, as a sentence.
    pub what: String,
    /// What the reader may do about it.
    pub remedy: &'static str,
    /// Further fields, such as `Allow`.
    pub fields: Vec<(&'static str, String)>,
    /// The connection ends with this answer.
    pub closes: bool,
    /// For programs: this text in place of a page.
    pub text: Option<String>,
}

impl Page {
    /// A page without further fields.
    pub fn new(status: u16, word: &'static str, what: impl Into<String>, remedy: &'static str) -> Page {
        Page { status, word, what: what.into(), remedy, fields: Vec::new(), closes: false, text: None }
    }

    /// A text for programs.
    pub fn text(word: &'static str, text: String) -> Page {
        Page { text: Some(text), ..Page::new(200, word, "", "") }
    }

    /// The same, and the connection ends.
    pub fn closing(self) -> Page {
        Page { closes: true, ..self }
    }

    /// The same with one more field.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Page {
        self.fields.push((name, value.into()));
        self
    }

    /// The head; the body is [`Page::body`].
    pub fn head(&self) -> ResponseHead {
        let mut head = ResponseHead::new(self.status);
        let kind = if self.text.is_some() { "text/plain; charset=utf-8" } else { "text/html; charset=utf-8" };
        head.fields.push("Content-Type", kind);
        head.fields.push("Cache-Control", "no-store");
        head.fields.push("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'");
        for (name, value) in &self.fields {
            head.fields.push(name, value);
        }
        head
    }

    /// The page itself. All that came from outside is escaped.
    pub fn body(&self) -> String {
        if let Some(text) = &self.text {
            return text.clone();
        }
        let reason = head::reason(self.status);
        format!(
            "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n\
             <title>{status} {reason}</title>\n<style>{STYLE}</style>\n<main>\n<h1>{status} <span>{reason}</span></h1>\n\
             <p>{what}</p>\n<p class=\"next\">{remedy}</p>\n<p class=\"by\">larder: {word}</p>\n</main></html>\n",
            status = self.status,
            what = escape(&self.what),
            remedy = escape(self.remedy),
            word = self.word,
        )
    }
}

const STYLE: &str = ":root{color-scheme:light dark}body{font:1rem/1.5 system-ui,sans-serif;margin:0;display:grid;\
min-height:90vh;place-items:center}main{max-width:34rem;padding:1.5rem}h1{font-size:2.2rem;margin:0 0 .5rem}\
h1 span{font-weight:400;opacity:.75}p{margin:.6rem 0;overflow-wrap:anywhere}.next{font-weight:600}\
.by{opacity:.6;font-size:.85rem}";

/// Text that is safe between tags.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_from_outside_is_escaped() {
        let page = Page::new(502, "dns-not-found", "no host <script>\"x\"</script>", "check the name");
        assert!(page.body().contains("&lt;script&gt;&quot;x&quot;"));
        assert!(!page.body().contains("<script"));
    }
}
