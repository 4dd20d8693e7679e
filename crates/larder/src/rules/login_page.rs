//! The page on which people log in, whose address is their session then: who is sent there, and what is done with its form.
//!
//! The page has an origin of its own (`login.url`), so no script of a site can read what is typed into it. A form counts only with a seal that
//! this server has given to the same address, and leads back only to a URL that is sealed as well.

use super::facts::{Asks, Facts};
use super::pages;
use crate::config::Login;
use crate::env::{Env, PeerFacts};
use crate::page::{self, Page, escape};
use crate::people::{LoginRefusal, LoginState, Sealed};
use larder_people::form;
use larder_wire::{Method, Scheme, Url};
use std::net::IpAddr;
use std::sync::Arc;

const LOGIN: &str = "/.larder/login";
const LOGOUT: &str = "/.larder/logout";

/// The body of a form: a user, a password, two seals and a URL.
pub const FORM_BYTES_MAX: usize = 16 << 10;

/// A client is not led back to a longer URL.
const URL_BYTES_MAX: usize = 2_048;

/// The word of answers for the log.
const WORD: &str = "login-page";

/// A form of a login page, before its body was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginForm {
    login: Arc<str>,
    action: FormAction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FormAction {
    LogIn,
    LogOut,
}

/// The verdict on a request for a login page.
pub(super) enum PageVerdict {
    /// This page is the answer.
    Shown(Page),
    /// The body of this form has to be read.
    Form(Box<LoginForm>),
}

/// The verdict on a request for a login page; `None` for all others.
pub(super) fn judge(facts: &Facts<'_>) -> Option<PageVerdict> {
    if facts.config().login_pages.is_empty() || !facts.has_login_path() || facts.inside().is_some() {
        return None;
    }
    let scene = facts.people()?;
    let url = facts.url()?;
    let (path, query) = url.path.split_once('?').unwrap_or((&*url.path, ""));
    let action = match path {
        LOGIN => FormAction::LogIn,
        LOGOUT => FormAction::LogOut,
        _ => return None,
    };
    let is_at = |own: &Url| (own.scheme, own.port, &own.host) == (url.scheme, url.port, &url.host);
    let config = facts.config().login_pages.iter().find(|login| login.url.as_ref().is_some_and(is_at))?;
    // A page for those who may use the proxy.
    if !facts.config().access.may_proxy(facts.client()) {
        return None;
    }
    if facts.is_passed_on() {
        return Some(PageVerdict::Shown(passed_on()));
    }
    let login = scene.people.login(&config.name)?;
    Some(match facts.method() {
        Method::Get | Method::Head => {
            let client = facts.client();
            let back = Back::of(&form::parse(query).unwrap_or_default(), &login, client);
            let users = scene.people.login(&login.config().users)?;
            PageVerdict::Shown(match login.sessions().user(client, &users.stamp()) {
                Some((user, _)) => logged_in(&login, client, (&user.name, &back)),
                None if action == FormAction::LogOut => logged_out(),
                None => form_page(&login, client, (200, ""), &back),
            })
        }
        Method::Post if is_foreign(facts, config) => PageVerdict::Shown(forged()),
        Method::Post => PageVerdict::Form(Box::new(LoginForm { login: Arc::clone(login.name()), action })),
        _ => {
            let page = Page::new(405, WORD, "The login page has a form and nothing else.", "Ask for it with GET.");
            PageVerdict::Shown(page.with("Allow", "GET, HEAD, POST"))
        }
    })
}

/// Whether a page of another origin has made the browser send the form. Programs send neither field; the seal is asked for in any case.
fn is_foreign(facts: &Facts<'_>, login: &Login) -> bool {
    let own = login.url.as_ref().map(|url| format!("{}://{}", url.scheme.as_str(), url.authority()));
    let is_other = |origin: &str| own.as_deref() != Some(origin);
    facts.text("Origin").is_some_and(is_other)
        || facts.text("Sec-Fetch-Site").is_some_and(|site| !matches!(site, "same-origin" | "none"))
}

/// The answer to a request of a client that has no session.
pub(super) fn wanted(facts: &Facts<'_>, login: &LoginState, refusal: &LoginRefusal, asks: Asks) -> Page {
    let Some(own) = login.config().url.as_ref().filter(|_| *refusal == LoginRefusal::Missing) else {
        return match refusal {
            LoginRefusal::PassedOn => passed_on(),
            _ => pages::refusal_page(login, refusal, asks),
        };
    };
    let mut link = format!("{}://{}{LOGIN}", own.scheme.as_str(), own.authority());
    let what = format!("A login is needed here. Log in at {link}, with a browser of this device.");
    let remedy = "Log in there, then ask again; the administrator of this cache knows the users.";
    if facts.authority().is_some() {
        // Browsers show no page in the place of a tunnel.
        return Page::new(403, WORD, what, remedy);
    }
    if let (Method::Get | Method::Head, Some(url)) = (facts.method(), facts.url()) {
        let to = url.to_string();
        if matches!(url.scheme, Scheme::Http | Scheme::Https) && to.len() <= URL_BYTES_MAX {
            let seal = login.sessions().seal(facts.client(), Sealed::Url(&to));
            link.push_str(&format!("?to={}&seal={seal}", form::encoded(&to)));
        }
    }
    let mut link_text = String::new();
    escape(&link, &mut link_text);
    let head = format!("<meta http-equiv=\"refresh\" content=\"0;url='{link_text}'\">");
    let inner = format!("<p>A login is needed here.</p>\n<p class=\"next\"><a href=\"{link_text}\">Log in</a></p>\n");
    // RFC 6585 section 6: programs must not take the page for the answer.
    let status = if asks == Asks::Proxy { 511 } else { 403 };
    Page { what: what.into(), remedy, ..page(status, "Log in", &head, &inner) }
}

fn passed_on() -> Page {
    let what = "The login on a page is that of an address, and this one is another proxy's, which may have many users.";
    Page::new(403, "login-passed-on", what, "Ask this cache without a proxy before it.")
}

fn forged() -> Page {
    let what = "This form was not sent by the login page.";
    Page::new(403, "login-forged", what, "Open the login page yourself, and log in there.")
}

/// The page for a form that is too long or malformed.
pub fn unreadable_form() -> Page {
    let what = "This is no form of the login page.";
    Page::new(400, WORD, what, "Open the login page, and log in there.").closing()
}

impl LoginForm {
    /// The answer to the form with this body.
    pub async fn answer(&self, env: &Env, peer: &PeerFacts, body: &[u8]) -> Page {
        let people = &env.common.people;
        let client = peer.address.ip();
        let login = people.login(&self.login);
        let users = login.as_ref().and_then(|login| people.login(&login.config().users));
        let (Some(login), Some(users)) = (login, users) else {
            // Gone with a reload, for a moment.
            let what = "Whether the login is right can't be found out.";
            return Page::new(503, "login-gone", what, "Try again.").with("Retry-After", "1");
        };
        let Some(fields) = std::str::from_utf8(body).ok().and_then(form::parse) else { return unreadable_form() };
        let back = Back::of(&fields, &login, client);
        if !login.sessions().is_sealed(client, Sealed::Form, form::value(&fields, "form")) {
            let why = "The form was too old, or from another address. Here is a new one.";
            return form_page(&login, client, (403, why), &back);
        }
        if self.action == FormAction::LogOut {
            if login.sessions().end(client) {
                people.note_session_ended();
            }
            return logged_out();
        }
        // Before the check: files that change meanwhile end the session at once.
        let stamp = users.stamp();
        let (name, password) = (form::value(&fields, "user"), form::value(&fields, "password"));
        let found = match users.check_password(client, (name, password), &people.helpers).await {
            Ok((user, _)) => {
                Arc::new(crate::people::User { login: login.name().to_string().into(), ..(*user).clone() })
            }
            Err(LoginRefusal::Wrong | LoginRefusal::Missing) => {
                return form_page(&login, client, (403, "The user or the password is wrong."), &back);
            }
            Err(refusal) => return pages::refusal_page(&users, &refusal, Asks::Server),
        };
        let had_session = login.sessions().end(client);
        if had_session {
            people.note_session_ended();
        }
        if login.sessions().begin(client, &found, stamp).is_err() {
            let what = "As many people have logged in here as may at once.";
            return Page::new(503, "login-full", what, "Try again later.").with("Retry-After", "60");
        }
        tracing::info!("login {}: {:?} has logged in from {}", login.name(), found.name, client.to_canonical());
        logged_in(&login, client, (&found.name, &back))
    }
}

/// The URL to which a client goes back, where it is sealed.
struct Back(Option<(Url, String)>);

impl Back {
    fn of(fields: &[(String, String)], login: &LoginState, client: IpAddr) -> Back {
        let (to, seal) = (form::value(fields, "to"), form::value(fields, "seal"));
        let is_sealed = login.sessions().is_sealed(client, Sealed::Url(to), seal);
        Back(Url::parse(to).filter(|_| is_sealed).map(|url| (url, seal.to_owned())))
    }

    /// Its fields in a form.
    fn fields(&self) -> String {
        self.0.as_ref().map_or_else(String::new, |(to, seal)| hidden("to", &to.to_string()) + &hidden("seal", seal))
    }
}

fn hidden(name: &str, value: &str) -> String {
    let mut out = format!("<input type=\"hidden\" name=\"{name}\" value=\"");
    escape(value, &mut out);
    out.push_str("\">\n");
    out
}

fn form_page(login: &LoginState, client: IpAddr, (status, why): (u16, &str), back: &Back) -> Page {
    let mut inner = String::new();
    if !why.is_empty() {
        inner.push_str(&format!("<p class=\"next\">{why}</p>\n"));
    }
    inner.push_str("<p>");
    escape(&login.config().realm, &mut inner);
    inner.push_str(&format!("</p>\n<form method=\"post\" action=\"{LOGIN}\">\n"));
    inner.push_str(&hidden("form", &login.sessions().seal(client, Sealed::Form)));
    inner.push_str(&back.fields());
    inner.push_str(
        "<p><label>User<br><input name=\"user\" autocomplete=\"username\" autocapitalize=\"none\" required autofocus></label></p>\n\
         <p><label>Password<br><input name=\"password\" type=\"password\" autocomplete=\"current-password\" required></label></p>\n\
         <p><button>Log in</button></p>\n</form>\n",
    );
    let what = if why.is_empty() { "The login page." } else { why };
    Page { what: what.into(), ..page(status, "Log in", "", &inner) }
}

/// The page of somebody who is logged in: the way back, and out.
fn logged_in(login: &LoginState, client: IpAddr, (name, back): (&Arc<str>, &Back)) -> Page {
    let (mut head, mut inner) = (String::new(), "<p>From this address you are ".to_owned());
    escape(name, &mut inner);
    inner.push_str(".</p>\n");
    if let Some((to, _)) = &back.0 {
        let mut link = String::new();
        escape(&to.to_string().replace('\'', "%27"), &mut link);
        head = format!("<meta http-equiv=\"refresh\" content=\"1;url='{link}'\">");
        inner.push_str(&format!("<p class=\"next\"><a href=\"{link}\">Go on</a></p>\n"));
    }
    let seal = hidden("form", &login.sessions().seal(client, Sealed::Form));
    inner.push_str(&format!(
        "<form method=\"post\" action=\"{LOGOUT}\">\n{seal}<p><button>Log out</button></p>\n</form>\n"
    ));
    Page { what: "Somebody is logged in.".into(), ..page(200, "Logged in", &head, &inner) }.for_user(name)
}

fn logged_out() -> Page {
    let inner = format!(
        "<p>Nobody is logged in from this address.</p>\n<p class=\"next\"><a href=\"{LOGIN}\">Log in</a></p>\n"
    );
    Page { what: "Nobody is logged in.".into(), ..page(200, "Logged out", "", &inner) }
}

/// A page with forms, for no frame and no cache.
fn page(status: u16, title: &str, head: &str, inner: &str) -> Page {
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
