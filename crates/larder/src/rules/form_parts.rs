//! The parts that the login pages of addresses and those of sites have in common: their paths, the form, and the pages for forms that are none.

use super::facts::Facts;
use crate::page::{self, Page, escape};

/// The path of the page on which people log in.
pub(super) const LOGIN: &str = "/.larder/login";

/// The path at which they log out.
pub(super) const LOGOUT: &str = "/.larder/logout";

/// The body of a form: a user, a password, two seals and a URL.
pub const FORM_BYTES_MAX: usize = 16 << 10;

/// A client is not led back to a longer URL.
pub(super) const URL_BYTES_MAX: usize = 2_048;

/// The word of answers for the log.
pub(super) const WORD: &str = "login-page";

/// The purpose of a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FormAction {
    LogIn,
    LogOut,
}

impl FormAction {
    /// By the path.
    pub(super) fn of(path: &str) -> Option<FormAction> {
        match path {
            LOGIN => Some(FormAction::LogIn),
            LOGOUT => Some(FormAction::LogOut),
            _ => None,
        }
    }
}

/// The verdict on a request for a login page.
pub(super) enum PageVerdict<F> {
    /// This page is the answer.
    Shown(Page),
    /// The body of this form has to be read.
    Form(F),
}

/// Whether a page of another origin than this one has made the browser send the form. Programs send neither field; the seal is asked for in any
/// case.
pub(super) fn is_foreign(facts: &Facts<'_>, own: &str) -> bool {
    facts.text("Origin").is_some_and(|origin| origin != own)
        || facts.text("Sec-Fetch-Site").is_some_and(|site| !matches!(site, "same-origin" | "none"))
}

/// The page for a form that another page has sent.
pub(super) fn forged() -> Page {
    let what = "This form was not sent by the login page.";
    Page::new(403, "login-forged", what, "Open the login page yourself, and log in there.")
}

/// The page for a form that is too long or malformed.
pub fn unreadable_form() -> Page {
    let what = "This is no form of the login page.";
    Page::new(400, WORD, what, "Open the login page, and log in there.").closing()
}

/// The page for another method.
pub(super) fn other_method() -> Page {
    let page = Page::new(405, WORD, "The login page has a form and nothing else.", "Ask for it with GET.");
    page.with("Allow", "GET, HEAD, POST")
}

/// The page for a login beyond the limit of sessions.
pub(super) fn login_full() -> Page {
    let what = "As many people have logged in here as may at once.";
    Page::new(503, "login-full", what, "Try again later.").with("Retry-After", "60")
}

/// A field that people don't see.
pub(super) fn hidden(name: &str, value: &str) -> String {
    let mut out = format!("<input type=\"hidden\" name=\"{name}\" value=\"");
    escape(value, &mut out);
    out.push_str("\">\n");
    out
}

/// The page with the form for a user and a password, which is sent to this path with these hidden fields; `why` says what came of the last one.
pub(super) fn form_page((status, why): (u16, &str), realm: &str, (path, hidden): (&str, &str)) -> Page {
    let mut inner = "<p>".to_owned();
    escape(realm, &mut inner);
    inner.push_str("</p>\n");
    let mut marks = "";
    if !why.is_empty() {
        marks = " aria-describedby=\"why\"";
        inner.push_str(&format!("<p id=\"why\" class=\"why\" role=\"alert\">{why}</p>\n"));
    }
    let mut action = String::new();
    escape(path, &mut action);
    inner.push_str(&format!(
        "<form method=\"post\" action=\"{action}\">\n{hidden}\
         <p><label for=\"user\">User</label><input id=\"user\" name=\"user\" autocomplete=\"username\" autocapitalize=\"none\" spellcheck=\"false\" required autofocus{marks}></p>\n\
         <p><label for=\"password\">Password</label><input id=\"password\" name=\"password\" type=\"password\" autocomplete=\"current-password\" required{marks}></p>\n\
         <p><button>Log in</button></p>\n</form>\n",
    ));
    let what = if why.is_empty() { "The login page." } else { why };
    Page { what: what.into(), ..page(status, "Log in", "", &inner) }
}

/// A page with forms, for no frame and no cache.
pub(super) fn page(status: u16, title: &str, head: &str, inner: &str) -> Page {
    let policy =
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
    let fields = [
        ("Content-Type", "text/html; charset=utf-8"),
        ("Cache-Control", "no-store"),
        ("Content-Security-Policy", policy),
        ("X-Frame-Options", "DENY"),
        ("X-Content-Type-Options", "nosniff"),
        // With another one browsers send no `Origin` with the form.
        ("Referrer-Policy", "same-origin"),
    ];
    let fields = fields.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec())).into();
    let body = page::document(title, head, inner).into_bytes();
    let script = Some(Box::new(page::ScriptPage { fields, body }));
    Page { script, ..Page::new(status, WORD, "", "") }
}

/// Such a page with one more field.
pub(super) fn with_field(mut page: Page, name: &str, value: &str) -> Page {
    if let Some(script) = &mut page.script {
        script.fields.push((name.to_owned(), value.as_bytes().to_vec()));
    }
    page
}
