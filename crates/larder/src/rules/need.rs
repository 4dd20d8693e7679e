//! Facts that must be found out before the rules can decide: the verdict waits for them, and the worker does not.

use super::by_hook::{HookNeed, HookReply};
use super::by_people::ByPeople;
use super::login_found::LoginFound;
use crate::clock;
use crate::config::EXTERNAL_MAX;
use crate::env::{Env, PeerFacts};
use crate::helper::{HelperTrouble, Helpers, Pool};
use crate::people::{LoginQuestion, LoginReply};
use larder_people::answer::Answer;
use larder_wire::{Host, RequestHead};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// A fact that a rule asked for and that is not known.
#[derive(Clone, Debug)]
pub enum Need {
    /// The decision of the site's hooks.
    Hooks(Box<HookNeed>),
    /// Whether a credential is right.
    Login(Box<LoginNeed>),
    /// The answer of a helper.
    Helper(Box<HelperNeed>),
    /// Whether this host leads to the address that the client has connected to.
    Destination(Box<(Host, IpAddr)>),
    /// The group of the client, for tests of the wait.
    #[cfg(test)]
    Group,
}

/// A question to the login of this name about the credential in this field.
#[derive(Clone, Debug)]
pub struct LoginNeed {
    pub(super) login: Arc<str>,
    pub(super) field: &'static str,
    pub(super) question: LoginQuestion,
}

/// A helper that has to be asked, and the line for it.
#[derive(Clone)]
pub struct HelperNeed {
    pub(super) name: String,
    pub(super) pool: Arc<Pool>,
    pub(super) line: Vec<u8>,
}

impl fmt::Debug for HelperNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HelperNeed({})", self.name)
    }
}

/// The answer of a helper to one line, or why there is none.
#[derive(Clone)]
pub(super) struct HelperFound {
    name: String,
    line: Vec<u8>,
    answer: Result<Arc<Answer>, HelperTrouble>,
    /// How long it took, in microseconds.
    micros: u64,
}

impl fmt::Debug for HelperFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HelperFound({})", self.name)
    }
}

/// The facts that were found out for one request.
#[derive(Clone, Debug, Default)]
pub struct FoundFacts {
    pub(super) hook: Option<HookReply>,
    /// The name of the request, where hooks were asked about it.
    pub(super) request: String,
    /// Rules with a rate have counted the request.
    pub(super) is_counted: Cell<bool>,
    /// Those of them that hold for the URL that a hook has chosen.
    pub(super) is_counted_elsewhere: Cell<bool>,
    /// Answers of logins, those that were known at once too: each login is asked once, for a proof counts once.
    logins: RefCell<Vec<LoginFound>>,
    helpers: Vec<HelperFound>,
    /// A host, and whether it leads to the address that the client has connected to.
    pub(super) destination: Option<(Host, bool)>,
    #[cfg(test)]
    pub(super) group: Option<&'static str>,
}

/// A request is judged at most so often: each time with one more fact. These are the helpers that have to permit it, and beside them the
/// logins of its place and of a rule, the helpers for its URL and its key, its hooks, and the address that the client has connected to.
pub(super) const NEEDS_MAX: usize = EXTERNAL_MAX + 6;

impl FoundFacts {
    /// The facts that still hold for a request which takes the place of one that was allowed, after this work of people on that.
    pub(super) fn after(people: Option<&ByPeople>) -> FoundFacts {
        let logins = people.map(|people| people.logins.clone()).unwrap_or_default();
        FoundFacts { is_counted: Cell::new(true), logins: RefCell::new(logins), ..FoundFacts::default() }
    }

    /// The answers of all logins that were asked.
    pub(super) fn logins(&self) -> Vec<LoginFound> {
        self.logins.borrow().clone()
    }

    /// The answer of the login of this name about the credential in this field, where it was asked.
    pub(super) fn login(&self, login: &str, field: &str) -> Option<LoginReply> {
        let logins = self.logins.borrow();
        let found = logins.iter().find(|found| &*found.login == login && found.field == field)?;
        Some(found.reply.clone())
    }

    /// Keeps such an answer.
    pub(super) fn keep_login(&self, login: &Arc<str>, field: &'static str, reply: LoginReply) {
        self.logins.borrow_mut().push(LoginFound { login: Arc::clone(login), field, reply });
    }

    pub(super) async fn ask_login(&mut self, need: LoginNeed, helpers: &Helpers) {
        let LoginNeed { login, field, question } = need;
        let reply = question.find_out(helpers).await;
        self.keep_login(&login, field, reply);
    }

    pub(super) async fn ask_helper(&mut self, need: HelperNeed) {
        let HelperNeed { name, pool, line } = need;
        let began = clock::instant();
        let answer = pool.ask(line.clone()).await;
        let micros = u64::try_from((clock::instant() - began).as_micros()).unwrap_or(u64::MAX);
        self.helpers.push(HelperFound { name, line, answer, micros });
    }

    /// The answer of a helper to this line, where it was asked, and the microseconds that it took.
    pub(super) fn helper(&self, name: &str, line: &[u8]) -> Option<(Result<Arc<Answer>, HelperTrouble>, u64)> {
        let found = self.helpers.iter().find(|found| found.name == name && found.line == line)?;
        Some((found.answer.clone(), found.micros))
    }
}

impl Need {
    /// Finds the fact out. Cancel-safe: nothing is kept of a search that is given up.
    pub(super) async fn find_out(
        self,
        (env, peer): (&Env, &PeerFacts),
        (request, name): (&RequestHead, &str),
        found: &mut FoundFacts,
    ) {
        match self {
            Need::Hooks(need) => {
                name.clone_into(&mut found.request);
                found.hook = need.find_out(env, peer.address.ip(), (request, name)).await;
            }
            Need::Login(need) => found.ask_login(*need, &env.common.people.helpers).await,
            Need::Helper(need) => found.ask_helper(*need).await,
            Need::Destination(need) => {
                let (host, ip) = *need;
                let leads_there = env.upstreams.leads_to(&host, ip).await;
                found.destination = Some((host, leads_there));
            }
            #[cfg(test)]
            Need::Group => {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                found.group = Some("friends");
            }
        }
    }
}
