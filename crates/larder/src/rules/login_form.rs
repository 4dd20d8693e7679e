//! The login page of a site: who is sent there, and what is done with its form. A signed cookie is the session then (RFC 6265).
//!
//! The page has the origin of its site. A form counts only from that origin and with a seal for the browser that got it, and leads back to a path
//! of the same origin alone.

use super::facts::{Asks, Facts, SESSION_FIELD};
use super::form_parts::{self, FormAction, LOGIN, LOGOUT, PageVerdict, URL_BYTES_MAX};
use super::form_parts::{forged, hidden, is_foreign, login_full, other_method, page, unreadable_form, with_field};
use super::own_cookies::{self, CookieFor, origin_of};
use super::pages::{self, login_gone};
use crate::config::{Site, SiteForm};
use crate::env::{Env, PeerFacts};
use crate::page::{Page, escape};
use crate::people::{CookieSessions, LoginRefusal, LoginState, NoSession, User};
use larder_people::digest::quoted;
use larder_people::{cookie, form};
use larder_wire::{Method, Url};
use std::sync::Arc;

/// A form of the page of a site, before its body was read.
#[derive(Clone, Debug)]
pub(super) struct SiteLoginForm {
    login: Arc<str>,
    action: FormAction,
    place: Place,
    session: Option<Box<[u8]>>,
    of_form: Option<Box<[u8]>>,
}

/// The page of a login on one site.
#[derive(Clone, Debug)]
struct Place {
    /// Scheme, host and port.
    origin: String,
    /// The path of the page, with the name of the login where it is not the site's own.
    path: String,
    session_cookie: String,
    form_cookie: String,
}

impl Place {
    fn of(facts: &Facts<'_>, url: &Url, login: &str) -> Place {
        let path = if is_own_of_page(facts, url, login) {
            LOGIN.to_owned()
        } else {
            format!("{LOGIN}?login={}", form::encoded(login))
        };
        let name = |of: CookieFor| own_cookies::name(of, login, url);
        let (session_cookie, form_cookie) = (name(CookieFor::Session), name(CookieFor::Form));
        Place { origin: origin_of(url), path, session_cookie, form_cookie }
    }

    /// The path of the page at which somebody logs out.
    fn logout(&self) -> String {
        self.path.replacen(LOGIN, LOGOUT, 1)
    }

    /// The path of the page that leads back to this path.
    fn link(&self, to: Option<&str>) -> String {
        match to {
            Some(to) => {
                format!("{}{}to={}", self.path, if self.path.contains('?') { '&' } else { '?' }, form::encoded(to))
            }
            None => self.path.clone(),
        }
    }
}

/// The verdict on a request for a login page of a site; `None` for all others.
pub(super) fn judge(facts: &Facts<'_>) -> Option<PageVerdict<SiteLoginForm>> {
    let config = facts.config();
    if config.site_forms.is_empty() || !facts.has_login_path() || facts.inside().is_some() {
        return None;
    }
    let scene = facts.people()?;
    let url = facts.url()?;
    if url.scheme != facts.connection_scheme() {
        return None;
    }
    let is_host_of = |site: &Site| site.hosts.iter().any(|pattern| pattern.matches(&url.host));
    if facts.listener_origin().is_none() && !config.sites.iter().any(is_host_of) {
        return None;
    }
    let (path, query) = url.path.split_once('?').unwrap_or((&*url.path, ""));
    let action = FormAction::of(path)?;
    let query = form::parse(query).unwrap_or_default();
    let form = form_here(facts, url, form::value(&query, "login"))?;
    let (login, name) = (scene.people.login(&form.login.name)?, &form.login.name);
    let place = Place::of(facts, url, name);
    let cookie = |name: &str| cookie::value(scene.fields.get_all(SESSION_FIELD), name).map(Box::from);
    let (session, of_form) = (cookie(&place.session_cookie), cookie(&place.form_cookie));
    Some(match facts.method() {
        Method::Get | Method::Head => {
            let back = local_path(form::value(&query, "to"), &place.origin);
            PageVerdict::Shown(match (facts.login(scene, &login, Asks::Server).ok()?, action) {
                (Ok(user), _) => logged_in(&login, &place, (&user.name, back)),
                (Err(_), FormAction::LogOut) => not_logged_in(&place),
                (Err(_), FormAction::LogIn) => form_page(&login, &place, (of_form.as_deref(), back), (200, "")),
            })
        }
        Method::Post if is_foreign(facts, &place.origin) => PageVerdict::Shown(forged()),
        Method::Post => {
            let login = Arc::clone(login.name());
            PageVerdict::Form(SiteLoginForm { login, action, place, session, of_form })
        }
        _ => PageVerdict::Shown(other_method()),
    })
}

/// The login of form of this name, or the one that has its page without a name.
fn form_here<'a>(facts: &Facts<'a>, url: &Url, name: &str) -> Option<&'a SiteForm> {
    let mut forms = facts.config().site_forms.iter();
    match name {
        "" => forms
            .clone()
            .find(|form| is_own_of_page(facts, url, &form.login.name))
            .or_else(|| forms.find(|form| form.is_by_rule)),
        name => forms.find(|form| form.login.name == name),
    }
}

/// Whether this is the login of the site to which the page belongs. Others have their name in the URL of the page: those of rules, and of parts
/// of the host.
fn is_own_of_page(facts: &Facts<'_>, url: &Url, login: &str) -> bool {
    let page = Url { path: LOGIN.into(), ..url.clone() };
    let site = facts.config().sites.find_by_every_reading(&page).ok().flatten();
    facts.listener_origin().is_none() && site.is_some_and(|(_, site)| site.login == login)
}

/// The answer to a request without a session.
pub(super) fn wanted(facts: &Facts<'_>, login: &LoginState, refusal: &LoginRefusal, asks: Asks) -> Page {
    if *refusal != LoginRefusal::Missing {
        return pages::refusal_page(login, refusal, asks);
    }
    let url = facts.client_url().filter(|_| asks == Asks::Server && facts.inside().is_none());
    let Some(url) = url.filter(|_| facts.is_of_site()) else {
        let what = "The login for this is a page of a site, and there is none here.";
        return Page::new(403, "login", what, "The administrator of this cache can name a login of another scheme.");
    };
    let name = &login.config().name;
    let place = Place::of(facts, &url, name);
    let is_read = matches!(facts.method(), Method::Get | Method::Head);
    if is_read && is_for_people(facts) {
        let to = local_path(&url.path, &place.origin);
        let what = "A login is needed here.";
        let page = Page::new(303, "login", what, "Log in; the administrator of this cache knows the users.");
        return page.with("Location", place.link(to));
    }
    // No scheme is registered for cookies, and a 401 has to have a challenge (RFC 9110 section 11.6.1).
    let challenge = format!(
        "Cookie realm={}, form-action={}, cookie-name={}",
        quoted(&login.config().realm),
        quoted(&place.path),
        quoted(&place.session_cookie)
    );
    if is_for_people(facts) {
        return with_field(not_sent(&place), "WWW-Authenticate", &challenge);
    }
    let page =
        Page::new(401, "login", "A login is needed here.", "Log in; the administrator of this cache knows the users.");
    page.with("WWW-Authenticate", challenge)
}

/// Whether the answer is shown to somebody, and not read by a program or put into a page.
fn is_for_people(facts: &Facts<'_>) -> bool {
    if let Some(mode) = facts.text("Sec-Fetch-Mode") {
        return mode == "navigate";
    }
    let takes_pages = facts.members("Accept").any(|member| {
        let (kind, weight) = member.split_at(member.iter().position(|byte| *byte == b';').unwrap_or(member.len()));
        let is_refused = weight.iter().filter(|byte| !byte.is_ascii_whitespace()).eq(b";q=0");
        kind.trim_ascii().eq_ignore_ascii_case(b"text/html") && !is_refused
    });
    takes_pages && !facts.has_field("X-Requested-With")
}

/// A path of this origin, with its query; `None` for what a browser could take for another origin, and for the login page itself.
fn local_path<'t>(text: &'t str, origin: &str) -> Option<&'t str> {
    let is_path = text.starts_with('/') && !text.starts_with("//") && text.len() <= URL_BYTES_MAX;
    let is_plain = |byte: u8| byte > b' ' && byte != b'\\' && byte != 0x7f && byte.is_ascii();
    let is_page = text.starts_with(LOGIN) || text.starts_with(LOGOUT);
    let is_whole = || Url::parse(&format!("{origin}{text}")).is_some_and(|url| origin_of(&url) == origin);
    (is_path && !is_page && text.bytes().all(is_plain) && is_whole()).then_some(text)
}

impl SiteLoginForm {
    /// The answer to the form with this body.
    pub(super) async fn answer(&self, env: &Env, peer: &PeerFacts, body: &[u8]) -> Page {
        let people = &env.common.people;
        let login = people.login(&self.login);
        let users = login.as_ref().and_then(|login| people.login(&login.config().users));
        let (Some(login), Some(users)) = (login, users) else { return login_gone() };
        let Some(sessions) = login.cookie_sessions() else { return login_gone() };
        let Some(fields) = std::str::from_utf8(body).ok().and_then(form::parse) else { return unreadable_form() };
        if self.action == FormAction::LogOut {
            if self.end(sessions) {
                login.keep_sessions().await;
                people.note_session_ended();
            }
            return logged_out(&self.place);
        }
        let back = local_path(form::value(&fields, "to"), &self.place.origin);
        let again =
            |status: u16, why: &str| form_page(&login, &self.place, (self.of_form.as_deref(), back), (status, why));
        let Some(of_form) = &self.of_form else {
            return again(
                403,
                "The browser sent no cookie back: it has to take cookies of this site. Here is a new form.",
            );
        };
        if !sessions.is_sealed(of_form, &self.place.origin, form::value(&fields, "form")) {
            return again(403, "The form was too old. Here is a new one.");
        }
        // Before the check: where files change meanwhile, it was by the old ones.
        let stamp = users.stamp();
        let (name, password) = (form::value(&fields, "user"), form::value(&fields, "password"));
        let user = match users.check_password(peer.address.ip(), (name, password), &people.helpers).await {
            Ok((user, _)) => user,
            Err(LoginRefusal::Wrong | LoginRefusal::Missing) => {
                return again(403, "The user or the password is wrong.");
            }
            Err(refusal) => return pages::refusal_page(&users, &refusal, Asks::Server),
        };
        let Some(mark) = users.mark(&user.name).filter(|_| users.stamp() == stamp) else {
            return again(403, "The users have changed meanwhile. Log in again.");
        };
        // A session that was there is none of this user: a cookie that somebody else has put there becomes nobody's.
        if self.end(sessions) {
            people.note_session_ended();
        }
        let user = Arc::new(User { login: login.name().to_string().into(), ..(*user).clone() });
        let cookie = match sessions.begin(&self.place.origin, &user, mark) {
            Ok(cookie) => cookie,
            Err(NoSession::Full) => return login_full(),
            Err(NoSession::NoKey) => return login_gone(),
        };
        login.keep_sessions().await;
        tracing::info!(
            "login {}: {:?} has logged in from {}",
            login.name(),
            user.name,
            peer.address.ip().to_canonical()
        );
        let page = Page::new(303, form_parts::WORD, "Somebody has logged in.", "Follow the link.");
        let set = (&*self.place.session_cookie, &*cookie);
        page.with("Location", format!("{}{}", self.place.origin, back.unwrap_or("/")))
            .with("Set-Cookie", own_cookies::set(set, Some(sessions.lifetime().as_secs())))
            .for_user(&user.name)
    }

    /// Ends the session that the browser had; whether there was one.
    fn end(&self, sessions: &CookieSessions) -> bool {
        self.session.as_ref().is_some_and(|cookie| sessions.end(cookie, &self.place.origin))
    }
}

fn form_page(
    login: &LoginState,
    place: &Place,
    (of_form, back): (Option<&[u8]>, Option<&str>),
    (status, why): (u16, &str),
) -> Page {
    let made = login.cookie_sessions().and_then(|sessions| {
        let cookie = sessions.form_cookie(of_form)?;
        let seal = sessions.seal(&cookie, &place.origin)?;
        Some((cookie, seal))
    });
    let Some((cookie, seal)) = made else { return login_gone() };
    let to = back.map(|to| hidden("to", to)).unwrap_or_default();
    let page =
        form_parts::form_page((status, why), &login.config().realm, (&place.path, &(hidden("form", &seal) + &to)));
    match of_form == Some(cookie.as_bytes()) {
        true => page,
        false => with_field(page, "Set-Cookie", &own_cookies::set((&place.form_cookie, &cookie), None)),
    }
}

/// The page of somebody who is logged in: the way back, and out.
fn logged_in(login: &LoginState, place: &Place, (name, back): (&Arc<str>, Option<&str>)) -> Page {
    let mut inner = "<p>".to_owned();
    escape(&login.config().realm, &mut inner);
    inner.push_str("</p>\n<p>You are ");
    escape(name, &mut inner);
    inner.push_str(".</p>\n<p class=\"next\"><a href=\"");
    escape(back.unwrap_or("/"), &mut inner);
    inner.push_str("\">Go on</a></p>\n<form method=\"post\" action=\"");
    escape(&place.logout(), &mut inner);
    inner.push_str("\">\n<p><button>Log out</button></p>\n</form>\n");
    Page { what: "Somebody is logged in.".into(), ..page(200, "Logged in", "", &inner) }.for_user(name)
}

fn not_logged_in(place: &Place) -> Page {
    let mut inner = "<p>You are not logged in here.</p>\n<p class=\"next\"><a href=\"".to_owned();
    escape(&place.path, &mut inner);
    inner.push_str("\">Log in</a></p>\n");
    Page { what: "Nobody is logged in.".into(), ..page(200, "Logged out", "", &inner) }
}

/// The page of somebody who has logged out. The browser forgets what it was given.
fn logged_out(place: &Place) -> Page {
    let page = not_logged_in(place);
    let forgotten = own_cookies::set((&place.session_cookie, ""), Some(0));
    with_field(with_field(page, "Set-Cookie", &forgotten), "Clear-Site-Data", "\"cache\"")
}

/// The page for somebody who has sent something without a session: it is not sent again by itself after the login.
fn not_sent(place: &Place) -> Page {
    let mut inner = "<p>A login is needed here, and you are not logged in, or not any more. \
                     <strong>What you have sent was not passed on.</strong></p>\n\
                     <p class=\"next\"><a target=\"_blank\" rel=\"noopener\" href=\""
        .to_owned();
    escape(&place.path, &mut inner);
    inner.push_str("\">Log in (in another tab)</a></p>\n<p>Then come back to this tab, go back to the page before, and send it again.</p>\n");
    let what = "A login is needed here, and what was sent was not passed on.";
    Page { what: what.into(), word: "login", ..page(401, "Not logged in", "", &inner) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_the_same_origin_are_led_to() {
        let local = |text: &str| local_path(text, "https://a.test").is_some();
        for path in ["/", "/a/b?c=d&e=%20", "/a:b@c", "/.larder/x", "/?//evil.test", "/a//b"] {
            assert!(local(path), "{path}");
        }
        for elsewhere in [
            "",
            "a",
            "//evil.test",
            "//evil.test/x",
            "/\\evil.test",
            "\\/evil.test",
            "/\tx",
            "/\r\nSet-Cookie: a=b",
            " /",
            "https://evil.test/",
            "javascript:alert(1)",
            "/ x",
            "/\u{e4}",
            "/.larder/login?to=/",
            "/.larder/logout",
            "@evil.test",
            ":1/x",
        ] {
            assert!(!local(elsewhere), "{elsewhere:?}");
        }
        assert!(!local(&format!("/{}", "a".repeat(URL_BYTES_MAX))));
    }
}
