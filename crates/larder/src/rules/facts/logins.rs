//! The users of a request, by the logins that rules and gates ask for.

use super::{Asks, Fact, Facts, PeopleScene};
use crate::config::LoginScheme;
use crate::people::{Attempt, Checked, LoginRefusal, LoginState, User};
use crate::rules::need::{LoginNeed, Need};
use crate::rules::own_cookies::{self, CookieFor, origin_of};
use larder_people::cookie;
use larder_wire::Url;
use std::sync::Arc;
use std::time::Instant;

/// The field with the cookies of logins.
pub(in crate::rules) const SESSION_FIELD: &str = "Cookie";

impl Facts<'_> {
    /// The URL as its client asked for it.
    pub(in crate::rules) fn client_url(&self) -> Option<Url> {
        self.note_field("Host");
        self.request.url(self.scene.scheme).ok()
    }

    /// The judgement holds for requests with the same cookies, where any may be one of a login.
    pub(in crate::rules) fn note_cookies(&self) {
        if !self.scene.config.site_forms.is_empty() {
            self.note_field(SESSION_FIELD);
        }
    }

    /// The user by this login. A memo of the verdict holds for the same field, as long as that is right; where each request has a proof of
    /// its own, or a connection has logged in, there is no memo.
    pub(in crate::rules) fn login(
        &self,
        scene: PeopleScene<'_>,
        login: &Arc<LoginState>,
        asks: Asks,
    ) -> Result<Result<Arc<User>, LoginRefusal>, Need> {
        let scheme = login.config().scheme;
        match scheme {
            LoginScheme::Page => return Ok(self.login_by_page(scene, login)),
            LoginScheme::Form => return Ok(self.login_by_form(scene, login)),
            _ => {}
        }
        let is_of_connection = matches!(scheme, LoginScheme::Negotiate | LoginScheme::Ntlm);
        if is_of_connection || scheme == LoginScheme::Digest {
            self.note(Fact::Path);
        }
        let name = asks.field();
        self.note_field(name);
        let reply = match self.scene.found.login(login.name(), name) {
            Some(reply) => reply,
            None => {
                if is_of_connection && self.is_passed_on() {
                    return Ok(Err(LoginRefusal::PassedOn));
                }
                let mut target = String::new();
                if scheme == LoginScheme::Digest {
                    self.request.target.write_to(&mut target);
                }
                // Of several credentials none counts.
                let field = match self.request.fields.count(name) {
                    0 => None,
                    1 => Some(self.request.fields.text(name).unwrap_or_default()),
                    _ => Some(""),
                };
                let checked = login.check(&Attempt {
                    field,
                    method: self.request.method.as_str(),
                    target: &target,
                    path: self.url.as_ref().map_or("", |url| &url.path),
                    client: self.client(),
                    connection: is_of_connection.then(|| scene.connection.get_or_init(Arc::default)),
                    edition: scene.people.edition(),
                });
                let reply = match checked {
                    Checked::User(user, until) => Ok((user, until)),
                    Checked::Refused(refusal) => Err(refusal),
                    Checked::Question(question) => {
                        let login = Arc::clone(login.name());
                        return Err(Need::Login(Box::new(LoginNeed { login, field: name, question })));
                    }
                };
                self.scene.found.keep_login(login.name(), name, reply.clone());
                reply
            }
        };
        Ok(reply.map(|(user, until)| self.note_user(user, until)))
    }

    /// The user of the client's address, by the session that a login of page has for it.
    fn login_by_page(&self, scene: PeopleScene<'_>, login: &LoginState) -> Result<Arc<User>, LoginRefusal> {
        // The address is that proxy's, and all its clients share it.
        if self.is_passed_on() {
            return Err(LoginRefusal::PassedOn);
        }
        let users = scene.people.login(&login.config().users).ok_or(LoginRefusal::Missing)?;
        let found = login.sessions().user(self.client(), &users.stamp()).ok_or(LoginRefusal::Missing)?;
        Ok(self.note_user(found.0, found.1))
    }

    /// The user of a cookie, by the session that a login of form has for it at this origin. The answer is kept: a request that a service has
    /// changed has no such cookie any more.
    fn login_by_form(&self, scene: PeopleScene<'_>, login: &LoginState) -> Result<Arc<User>, LoginRefusal> {
        self.note_cookies();
        let reply = self.scene.found.login(login.name(), SESSION_FIELD).unwrap_or_else(|| {
            let found = self.session(scene, login).ok_or(LoginRefusal::Missing);
            self.scene.found.keep_login(login.name(), SESSION_FIELD, found.clone());
            found
        });
        reply.map(|(user, until)| self.note_user(user, until))
    }

    fn session(&self, scene: PeopleScene<'_>, login: &LoginState) -> Option<(Arc<User>, Instant)> {
        let url = self.client_url()?;
        let name = own_cookies::name(CookieFor::Session, login.name(), &url);
        let cookie = cookie::value(scene.fields.get_all(SESSION_FIELD), &name)?;
        let users = scene.people.login(&login.config().users)?;
        login.cookie_sessions()?.user((cookie, &origin_of(&url)), |user| users.mark(user))
    }

    fn note_user(&self, user: Arc<User>, until: Instant) -> Arc<User> {
        self.until.set(Some(self.until.get().map_or(until, |earlier| earlier.min(until))));
        let mut users = self.users.borrow_mut();
        if !users.contains(&user) {
            users.push(Arc::clone(&user));
        }
        user
    }
}
