//! Answers of logins about the credentials of one request.

use crate::people::LoginReply;
use std::sync::Arc;

/// The answer of a login about the credential in a field. It says nothing about another login, nor about another field.
#[derive(Clone, Debug)]
pub(super) struct LoginFound {
    pub login: Arc<str>,
    pub field: &'static str,
    pub reply: LoginReply,
}
