//! The work of a login and of helpers on a request. How it comes about is in `gate`.

use super::login_found::LoginFound;
use crate::people::User;
use larder_people::note::HelperNote;
use larder_wire::{RequestHead, Url};
use std::rc::Rc;
use std::sync::Arc;

/// The work of a login and of helpers on a request.
#[derive(Clone, Debug, Default)]
pub struct ByPeople {
    /// The user.
    pub user: Option<Arc<User>>,
    /// `Authorization` was for Larder: the origin does not get it, and it says nothing of the answer.
    pub consumes_authorization: bool,
    /// The URL that the client asked for, where a helper asks for another one.
    pub client_url: Option<Url>,
    /// The URL that stands in the key, where a helper says so.
    pub store_id: Option<Url>,
    /// The answers of helpers.
    pub helpers: Vec<HelperNote>,
    /// The user is by a cookie: no field of the request says to caches between the client and this one that the answer is for somebody.
    pub by_cookie: bool,
    /// The request without cookies of logins, where it has any.
    pub without_cookies: Option<Rc<RequestHead>>,
    /// The answers of logins.
    pub(super) logins: Vec<LoginFound>,
}

impl ByPeople {
    /// Takes over the user by the login of a rule, who goes before the one that is known.
    pub(super) fn take_over(&mut self, by_rule: Option<Box<ByPeople>>) {
        let Some(by_rule) = by_rule else { return };
        self.consumes_authorization |= by_rule.consumes_authorization;
        self.by_cookie |= by_rule.by_cookie;
        self.user = by_rule.user.or(self.user.take());
    }

    /// Says what came of the last answer of a helper.
    pub(super) fn say(&mut self, words: &str) {
        if let Some(note) = self.helpers.last_mut() {
            note.say(words);
        }
    }

    /// Whether it leaves the request as it is, and nothing is to be said.
    pub(super) fn is_nothing(&self) -> bool {
        let ByPeople { user, consumes_authorization, client_url, store_id, helpers, .. } = self;
        user.is_none() && !consumes_authorization && client_url.is_none() && store_id.is_none() && helpers.is_empty()
    }
}
