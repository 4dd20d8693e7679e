//! A form that a client has sent to a login page: that of its address, or that of a site.

use super::login_form::SiteLoginForm;
use super::login_page::LoginForm;
use crate::env::{Env, PeerFacts};
use crate::page::Page;

/// A form, before its body was read.
#[derive(Clone, Debug)]
pub struct SentForm(FormOf);

#[derive(Clone, Debug)]
enum FormOf {
    Address(LoginForm),
    Site(SiteLoginForm),
}

impl From<LoginForm> for SentForm {
    fn from(form: LoginForm) -> SentForm {
        SentForm(FormOf::Address(form))
    }
}

impl From<SiteLoginForm> for SentForm {
    fn from(form: SiteLoginForm) -> SentForm {
        SentForm(FormOf::Site(form))
    }
}

impl SentForm {
    /// The answer to the form with this body.
    pub async fn answer(&self, env: &Env, peer: &PeerFacts, body: &[u8]) -> Page {
        match &self.0 {
            FormOf::Address(form) => form.answer(env, peer, body).await,
            FormOf::Site(form) => form.answer(env, peer, body).await,
        }
    }
}
