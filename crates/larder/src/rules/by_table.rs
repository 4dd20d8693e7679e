//! The work of the table of rules on a request that goes on: what its answer is stored under, which origin is asked, what changes.

use super::by_people::ByPeople;
use super::route::Route;
use crate::config::{HostHeader, SiteOrigin};
use crate::hook::RequestEffects;
use crate::reach::ReachByRule;
use larder_rules::bandwidth::Bandwidth;
use larder_rules::rule::{Do, Priority, RuleNote};
use larder_wire::{Fields, Url};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The work of rules on a request.
#[derive(Clone, Debug)]
pub struct ByTable {
    /// The rules that hold, for people.
    pub note: Arc<RuleNote>,
    /// Changes of the request.
    pub(super) effects: Rc<RequestEffects>,
    /// The parts that they add to the key.
    pub(super) key: Box<[u8]>,
    /// The URL that the client asked for, where they ask for another one.
    pub(super) client_url: Option<Url>,
    /// The origin that is asked, in place of the site's or the URL's own.
    pub(super) origin: Option<Arc<SiteOrigin>>,
    /// The route without that.
    pub(super) unrouted: Option<Route>,
    /// Changes of the answer's fields, for this client.
    pub answer: Option<Rc<AnswerChanges>>,
    /// The word of the rules about how the answer is stored.
    pub storing: Option<Rc<Storing>>,
    /// The class in which the request waits where something is overloaded.
    pub priority: Priority,
    /// The login that a rule required.
    pub(super) people: Option<Box<ByPeople>>,
    /// The limits of bandwidth under which the client gets the answer.
    pub limits: Option<Rc<[Limited]>>,
    /// Through whom, and how far, the origin is asked.
    pub reach: ReachByRule,
    /// The effects are for this request alone, so that no memo takes them over.
    pub(super) is_of_one_request: bool,
}

/// A limit of bandwidth, for one client.
#[derive(Clone, Debug)]
pub struct Limited {
    /// The limit.
    pub limit: Arc<Bandwidth>,
    /// The bucket that the client shares with others.
    pub key: Box<[u8]>,
}

/// Changes of the fields of an answer, in the order: remove, set, add.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerChanges {
    pub(super) remove: Vec<Box<str>>,
    pub(super) set: Vec<(Box<str>, String)>,
    pub(super) add: Vec<(Box<str>, String)>,
}

/// How an answer is stored, by rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Storing {
    /// How long it is fresh.
    pub lifetime: Option<Duration>,
    /// How long past that it may be used.
    pub grace: Option<Duration>,
    /// It is stored for all, whatever its origin says.
    pub even_if_private: bool,
    /// Tags that purges may name.
    pub tags: Vec<Box<str>>,
}

impl AnswerChanges {
    /// Changes the fields of an answer.
    pub fn change(&self, fields: &mut Fields) {
        for name in self.remove.iter().chain(self.set.iter().map(|(name, _)| name)) {
            fields.remove(name);
        }
        self.set.iter().chain(&self.add).for_each(|(name, value)| fields.push(name, value));
    }

    /// The names of fields that the answer gets.
    pub fn given(&self) -> impl Iterator<Item = String> {
        self.set.iter().chain(&self.add).map(|(name, _)| name.to_ascii_lowercase())
    }
}

impl ByTable {
    /// Whether another origin is asked.
    pub(super) fn changes_route(&self) -> bool {
        self.origin.is_some()
    }

    /// The route by which the request goes, where the rules name an origin.
    pub(super) fn reroute(&mut self, route: &mut Route) {
        let Some(origin) = self.origin.clone() else { return };
        // The rest belongs to the site that the client asked for, whichever origin is asked.
        let (host_header, compression) = match route {
            Route::Site { host_header, compression, .. } => (*host_header, compression.clone()),
            Route::Forward(_) | Route::Destination(..) => (HostHeader::Client, None),
        };
        self.unrouted = Some(std::mem::replace(route, Route::Site { origin, host_header, compression }));
    }

    /// Whether a stored response can't be handed over at once.
    pub(super) fn is_waited_for(&self) -> bool {
        self.answer.is_some() || self.limits.is_some() || self.effects.passes || self.has_changed_fields()
    }

    /// Whether fields of the request are changed.
    pub(super) fn has_changed_fields(&self) -> bool {
        !self.effects.set.is_empty() || !self.effects.remove.is_empty()
    }
}

impl Storing {
    /// The word of a later rule counts where it has one.
    pub(super) fn add(&mut self, does: &Do) {
        self.lifetime = does.lifetime.or(self.lifetime);
        self.grace = does.grace.or(self.grace);
        self.even_if_private |= does.even_if_private;
        self.tags.extend(does.tags.iter().cloned());
    }
}
