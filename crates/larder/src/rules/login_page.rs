//! The page on which people log in, whose address is their session then: who is sent there, and what is done with its form.
//!
//! The page has an origin of its own (`login.url`), so no script of a site can read what is typed into it. A form counts only with a seal that
//! this server has given to the same address, and leads back only to a URL that is sealed as well.

use super::facts::{Asks, Facts};
use super::form_parts::{self, FormAction, LOGIN, LOGOUT, PageVerdict, URL_BYTES_MAX, WORD};
use super::form_parts::{forged, hidden, is_foreign, login_full, other_method, page, unreadable_form};
use super::own_cookies::origin_of;
use super::pages::{self, login_gone};
use crate::env::{Env, PeerFacts};
use crate::page::{Page, escape};
use crate::people::{LoginRefusal, LoginState, Sealed};
use larder_people::form;
use larder_wire::{Method, Scheme, Url};
use std::net::IpAddr;
use std::sync::Arc;

/// A form of the page of an address, before its body was read.
#[derive(Clone, Debug)]
pub(super) struct LoginForm {
    login: Arc<str>,
    action: FormAction,
}

/// The verdict on a request for a login page; `None` for all others.
pub(super) fn judge(facts: &Facts<'_>) -> Option<PageVerdict<LoginForm>> {
    if facts.config().login_pages.is_empty() || !facts.has_login_path() || facts.inside().is_some() {
        return None;
    }
    let scene = facts.people()?;
    let url = facts.url()?;
    let (path, query) = url.path.split_once('?').unwrap_or((&*url.path, ""));
    let action = FormAction::of(path)?;
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
        Method::Post if is_foreign(facts, &origin_of(url)) => PageVerdict::Shown(forged()),
        Method::Post => PageVerdict::Form(LoginForm { login: Arc::clone(login.name()), action }),
        _ => PageVerdict::Shown(other_method()),
    })
}

/// The answer to a request of a client that has no session.
pub(super) fn wanted(facts: &Facts<'_>, login: &LoginState, refusal: &LoginRefusal, asks: Asks) -> Page {
    let Some(own) = login.config().url.as_ref().filter(|_| *refusal == LoginRefusal::Missing) else {
        return match refusal {
            LoginRefusal::PassedOn => passed_on(),
            _ => pages::refusal_page(login, refusal, asks),
        };
    };
    let mut link = format!("{}{LOGIN}", origin_of(own));
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

impl LoginForm {
    /// The answer to the form with this body.
    pub(super) async fn answer(&self, env: &Env, peer: &PeerFacts, body: &[u8]) -> Page {
        let people = &env.common.people;
        let client = peer.address.ip();
        let login = people.login(&self.login);
        let users = login.as_ref().and_then(|login| people.login(&login.config().users));
        let (Some(login), Some(users)) = (login, users) else {
            return login_gone();
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
            return login_full();
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

fn form_page(login: &LoginState, client: IpAddr, (status, why): (u16, &str), back: &Back) -> Page {
    let hidden = hidden("form", &login.sessions().seal(client, Sealed::Form)) + &back.fields();
    form_parts::form_page((status, why), &login.config().realm, (LOGIN, &hidden))
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
