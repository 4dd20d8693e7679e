//! Pages of Larder's own, such as error pages: short, readable, and with the next step.

use larder_people::note::HelperNote;
use larder_rules::rule::RuleNote;
use larder_wire::encode::Decimal;
use larder_wire::{Fields, head};
use memchr::{memchr2, memchr3, memmem};
use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

/// An answer that comes from no origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The status.
    pub status: u16,
    /// One word for logs and `Cache-Status`.
    pub word: &'static str,
    /// The explanation, a sentence.
    pub what: Box<str>,
    /// The remedy, for the reader.
    pub remedy: &'static str,
    /// Further fields, such as `Allow`.
    pub fields: Vec<(&'static str, String)>,
    /// The connection ends with this answer.
    pub closes: bool,
    /// For programs: this text in place of a page.
    pub text: Option<Arc<String>>,
    /// The answer of a script in place of a page.
    pub script: Option<Box<ScriptPage>>,
    /// The rules that gave the answer.
    pub by_rule: Option<Arc<RuleNote>>,
    /// The user to whom it is sent and the answers of helpers, for the log.
    pub people: Option<Box<PagePeople>>,
    /// It reads the same for each request that is judged by the same facts, but for the name of the request at [`REQUEST`].
    pub is_repeatable: bool,
    /// It names the entry of a list that covers the URL, so that it is repeatable for the same path alone.
    pub cites_entry: bool,
    /// The body, where it was written before for pages that are sent again.
    pub written: Option<Arc<Vec<u8>>>,
}

/// Stands in the text of a page for the name of the request, which is known when it goes out.
pub const REQUEST: &str = "{request}";

/// The part of people in a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PagePeople {
    /// The user to whom it is sent.
    pub user: Option<Arc<str>>,
    /// The answers of helpers to which it came.
    pub helpers: Vec<HelperNote>,
}

/// An answer that a script gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptPage {
    /// Its fields, which are clean.
    pub fields: Vec<(String, Vec<u8>)>,
    /// Its body.
    pub body: Vec<u8>,
}

impl Page {
    /// A page without further fields.
    pub fn new(status: u16, word: &'static str, what: impl Into<String>, remedy: &'static str) -> Page {
        Page {
            status,
            word,
            what: what.into().into_boxed_str(),
            remedy,
            fields: Vec::new(),
            closes: false,
            text: None,
            script: None,
            by_rule: None,
            people: None,
            is_repeatable: false,
            cites_entry: false,
            written: None,
        }
    }

    /// A text for programs.
    pub fn text(word: &'static str, text: String) -> Page {
        Page { text: Some(Arc::new(text)), ..Page::new(200, word, "", "") }
    }

    /// The answer of the script at this place.
    pub fn of_script(status: u16, fields: Vec<(String, Vec<u8>)>, body: Vec<u8>, place: String) -> Page {
        let script = Some(Box::new(ScriptPage { fields, body }));
        Page { script, ..Page::new(status, "script", place, "") }
    }

    /// This page, after which the connection ends.
    pub fn closing(self) -> Page {
        Page { closes: true, ..self }
    }

    /// This page with its body, to be sent again and again.
    pub fn written(self) -> Page {
        let body = Arc::new(self.body().into_owned());
        Page { written: Some(body), ..self }
    }

    /// This page with the name of its request where its text wants that; `None` where it does not.
    pub fn named(&self, name: impl Fn() -> String) -> Option<Page> {
        let script = self.script.as_ref()?;
        memmem::find(&script.body, REQUEST.as_bytes())?;
        let body = String::from_utf8_lossy(&script.body).replace(REQUEST, &name()).into_bytes();
        let script = ScriptPage { fields: script.fields.clone(), body };
        Some(Page { script: Some(Box::new(script)), written: None, ..self.clone() })
    }

    /// This page, as an answer of these rules.
    pub fn by_rule(self, note: Arc<RuleNote>) -> Page {
        Page { by_rule: Some(note), ..self }
    }

    /// This page, as one for this user.
    pub fn for_user(mut self, user: &Arc<str>) -> Page {
        self.people.get_or_insert_default().user = Some(Arc::clone(user));
        self
    }

    /// The same with one more field.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Page {
        self.fields.push((name, value.into()));
        self
    }

    /// The fields that a page has wherever it is sent.
    pub fn each_field(&self, mut field: impl FnMut(&str, &[u8])) {
        if let Some(script) = &self.script {
            // A script says itself what may be done with its answer.
            return script.fields.iter().for_each(|(name, value)| field(name, value));
        }
        let kind: &[u8] = match self.text {
            Some(_) => b"text/plain; charset=utf-8",
            None => b"text/html; charset=utf-8",
        };
        field("Content-Type", kind);
        field("Cache-Control", b"no-store");
        field("Content-Security-Policy", b"default-src 'none'; style-src 'unsafe-inline'");
        if !self.fields.is_empty() {
            let mut further = Fields::new();
            for (name, value) in &self.fields {
                further.push(name, value);
            }
            further.iter().for_each(|(name, value)| field(name, value));
        }
    }

    /// The page itself. All that came from outside is escaped.
    pub fn body(&self) -> Cow<'_, [u8]> {
        match (&self.written, &self.script, &self.text) {
            (Some(written), ..) => Cow::Borrowed(written.as_slice()),
            (None, Some(script), _) => Cow::Borrowed(&script.body),
            (None, None, Some(text)) => Cow::Borrowed(text.as_bytes()),
            (None, None, None) => Cow::Owned(self.html().into_bytes()),
        }
    }

    /// The page, with a link to what the documentation says of its cause where its reader can open the admin listener.
    pub fn body_with_docs(&self, admin: impl FnOnce() -> Option<SocketAddr>) -> Cow<'_, [u8]> {
        let body = self.body();
        if self.status < 400 || self.script.is_some() || self.text.is_some() {
            return body;
        }
        let (Some(admin), Some(before)) = (admin(), body.strip_suffix(END.as_bytes())) else { return body };
        let link = format!(" · <a href=\"http://{admin}/docs/errors#{}\">about this error</a>{END}", self.word);
        Cow::Owned([before, link.as_bytes()].concat())
    }

    fn html(&self) -> String {
        let (reason, status) = (head::reason(self.status), Decimal::of(self.status.into()));
        let mut out = String::with_capacity(STYLE.len() + FRAME_BYTES + self.what.len() + self.remedy.len());
        out.push_str("<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">");
        out.push_str("<meta name=\"viewport\" content=\"width=device-width\">\n<title>");
        status.push_to(&mut out);
        out.push(' ');
        out.push_str(reason);
        out.push_str("</title>\n<style>");
        out.push_str(STYLE);
        out.push_str("</style>\n<main>\n<h1>");
        status.push_to(&mut out);
        out.push_str(" <span>");
        out.push_str(reason);
        out.push_str("</span></h1>\n<p>");
        escape(&self.what, &mut out);
        out.push_str("</p>\n<p class=\"next\">");
        escape(self.remedy, &mut out);
        out.push_str("</p>\n<p class=\"by\">larder: ");
        out.push_str(self.word);
        out.push_str(END);
        out
    }
}

/// A document in the style of these pages; `head` and `inner` are HTML.
pub fn document(title: &str, head: &str, inner: &str) -> String {
    let frame = "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\
                 <meta name=\"viewport\" content=\"width=device-width\">\n";
    format!(
        "{frame}{head}<title>{title}</title>\n<style>{STYLE}{FORM_STYLE}</style>\n<main>\n<h1>{title}</h1>\n{inner}\
         <p class=\"by\">larder</p>\n</main></html>\n"
    )
}

/// The end of an error page.
const END: &str = "</p>\n</main></html>\n";

/// Bytes of a page around its texts, about.
const FRAME_BYTES: usize = 384;

const STYLE: &str = ":root{color-scheme:light dark}body{font:1rem/1.5 system-ui,sans-serif;margin:0;display:grid;\
min-height:90vh;place-items:center}main{max-width:34rem;padding:1.5rem}h1{font-size:2.2rem;margin:0 0 .5rem}\
h1 span{font-weight:400;opacity:.75}p{margin:.6rem 0;overflow-wrap:anywhere}.next{font-weight:600}\
.by{opacity:.6;font-size:.85rem}";

const FORM_STYLE: &str = ":root{--line:#77746b;--act:#235c9e;--on-act:#fff;--bad:#b5362d}\
@media(prefers-color-scheme:dark){:root{--line:#8d897e;--act:#8cb8f0;--on-act:#131311;--bad:#f27b70}}\
main{box-sizing:border-box;width:min(26rem,100%)}h1{font-size:1.8rem}\
label{display:block;font-weight:600;margin-bottom:.25rem}form p{margin:1rem 0}\
input,button{font:inherit;min-height:2.75rem;border-radius:.4rem;box-sizing:border-box}\
input:not([type=hidden]){display:block;width:100%;padding:.5rem .75rem;border:1px solid var(--line);background:Field;color:FieldText}\
button{padding:.5rem 1.25rem;border:0;background:var(--act);color:var(--on-act);font-weight:600;cursor:pointer}\
a{color:var(--act)}:focus-visible{outline:3px solid var(--act);outline-offset:2px}\
.why{border-left:.25rem solid var(--bad);padding-left:.75rem}";

/// The first byte that HTML would take for markup.
fn telling_byte(text: &[u8]) -> Option<usize> {
    let tag = memchr3(b'&', b'<', b'>', text);
    memchr2(b'"', b'\'', &text[..tag.unwrap_or(text.len())]).or(tag)
}

/// Appends text that is safe between tags.
pub fn escape(text: &str, out: &mut String) {
    let mut rest = text;
    while let Some(at) = telling_byte(rest.as_bytes()) {
        out.push_str(&rest[..at]);
        out.push_str(match rest.as_bytes()[at] {
            b'&' => "&amp;",
            b'<' => "&lt;",
            b'>' => "&gt;",
            b'"' => "&quot;",
            _ => "&#39;",
        });
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_from_outside_is_escaped() {
        let page = Page::new(502, "dns-not-found", "no host <script>\"x\"</script>", "check the name");
        assert!(page.html().contains("&lt;script&gt;&quot;x&quot;"));
        assert!(!page.html().contains("<script"));
    }

    #[test]
    fn errors_link_to_the_documentation_where_it_can_be_opened() {
        let admin = "127.0.0.1:3129".parse().unwrap();
        let body = |page: &Page, admin| String::from_utf8(page.body_with_docs(|| admin).into_owned()).unwrap();
        let page = Page::new(502, "dns-not-found", "no host", "check the name");
        let link = "dns-not-found · <a href=\"http://127.0.0.1:3129/docs/errors#dns-not-found\">about this error</a></p>\n</main></html>\n";
        assert!(body(&page, Some(admin)).ends_with(link));
        assert!(body(&page.clone().written(), Some(admin)).ends_with(link));
        assert_eq!(body(&page, None).as_bytes(), &*page.body());
        let text = Page { status: 404, ..Page::text("registry", "{}".to_owned()) };
        assert_eq!(body(&text, Some(admin)), "{}");
    }
}
