//! The user by whom a question is supposed to be asked, known without a credential where a login counts. Requests that came have
//! users by `gate`.

use super::by_people::ByPeople;
use super::facts::{Asks, Facts};
use crate::people::User;
use crate::record::Rule;
use std::sync::Arc;

/// The supposed user as this login knows them.
pub(super) fn by_login(facts: &Facts<'_>, login: &str) -> Option<Arc<User>> {
    facts.supposed().iter().find(|user| &*user.login == login).map(Arc::clone)
}

/// The supposed user of the opened tunnel through which the request comes.
pub(super) fn of_tunnel(facts: &Facts<'_>) -> Option<Arc<User>> {
    facts.inside().and(facts.supposed().first()).map(Arc::clone)
}

/// The work of a login that the supposed user has passed, on a request that this rule allows.
pub(super) fn people(
    facts: &Facts<'_>,
    (login, asks): (&str, Asks),
    rule: Rule,
    by_rule: Option<Box<ByPeople>>,
) -> Option<Box<ByPeople>> {
    let user = if rule == Rule::Tunnel { of_tunnel(facts) } else { by_login(facts, login) };
    let by_certificate = facts.user_by_certificate();
    if user.is_none() && by_certificate.is_none() {
        return by_rule;
    }
    let has_logged_in = user.is_some() && rule != Rule::Tunnel;
    let consumes_authorization = has_logged_in && consumes_authorization(facts, login, asks);
    let user = user.or(by_certificate);
    let mut people = ByPeople { user, consumes_authorization, ..ByPeople::default() };
    people.take_over(by_rule);
    Some(Box::new(people))
}

/// Whether `Authorization` is for this login, and not for the origin.
pub(super) fn consumes_authorization(facts: &Facts<'_>, login: &str, asks: Asks) -> bool {
    let known = facts.config().logins.iter().find(|known| known.name == login);
    asks == Asks::Server && known.is_none_or(|known| known.takes_authorization())
}
