//! Groups of origins as all workers share them: the settings of each, and its balance, which chooses a member for each request
//! and learns from what becomes of it. Sending the request is `group_call`'s.

use super::fault::UpstreamFault;
use crate::config::origin::BalanceKey;
use crate::config::{OriginGroup, OriginMember};
use larder_balance::{
    Admin, Balance, Group, GroupReport, MemberId, NoMember, PassedOver, Pick, Request, Ticket, Why, hash,
    is_request_to_blame,
};
use larder_wire::Host;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// All groups of a server, by the hosts of the URLs that stand for them.
#[derive(Default)]
pub struct Groups {
    by_host: RwLock<HashMap<Host, Arc<GroupState>>>,
    /// The groups are others now.
    pub(super) changed: Notify,
}

impl Groups {
    /// Takes the groups of a configuration. One that was there keeps the state of its members by their names.
    pub fn have(&self, wanted: &[Arc<OriginGroup>]) {
        let mut by_host = self.by_host.write();
        by_host.retain(|host, _| wanted.iter().any(|group| OriginGroup::host_of(&group.name) == *host));
        for group in wanted {
            match by_host.get(&OriginGroup::host_of(&group.name)) {
                Some(state) => state.reconfigure(group),
                None => {
                    let state = Arc::new(GroupState::new(Arc::clone(group)));
                    by_host.insert(OriginGroup::host_of(&group.name), state);
                }
            }
        }
        drop(by_host);
        self.changed.notify_one();
    }

    /// The group that this host stands for.
    pub fn find(&self, host: &Host) -> Option<Arc<GroupState>> {
        self.by_host.read().get(host).cloned()
    }

    /// The group of this name.
    pub fn named(&self, name: &str) -> Option<Arc<GroupState>> {
        self.find(&OriginGroup::host_of(name))
    }

    /// All of them, in the order of their names.
    pub fn all(&self) -> Vec<Arc<GroupState>> {
        let mut all: Vec<_> = self.by_host.read().values().cloned().collect();
        all.sort_by_key(|state| state.config().name.clone());
        all
    }
}

impl fmt::Debug for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.by_host.read().keys()).finish()
    }
}

/// One group.
pub struct GroupState {
    inner: Mutex<Inner>,
}

struct Inner {
    config: Arc<OriginGroup>,
    balance: Group,
}

/// A member for a request.
pub(super) struct Picked {
    pub why: Why,
    pub passed_over: Vec<(Arc<OriginMember>, PassedOver)>,
    pub request: MemberRequest,
}

impl GroupState {
    fn new(config: Arc<OriginGroup>) -> GroupState {
        // Servers beside this one draw other members than this one does.
        let seed = hash(config.name.as_bytes()) ^ u64::from(std::process::id());
        let balance = Group::new(config.balance_settings(), seed);
        GroupState { inner: Mutex::new(Inner { config, balance }) }
    }

    fn reconfigure(&self, config: &Arc<OriginGroup>) {
        let inner = &mut *self.inner.lock();
        if inner.config != *config {
            inner.balance.reconfigure(config.balance_settings());
        }
        inner.config = Arc::clone(config);
    }

    /// The settings in force.
    pub fn config(&self) -> Arc<OriginGroup> {
        Arc::clone(&self.inner.lock().config)
    }

    /// Its settings and its state, for people. The members of both are the same, in one order.
    pub fn report(&self) -> (Arc<OriginGroup>, GroupReport) {
        let Inner { config, balance } = &*self.inner.lock();
        (Arc::clone(config), balance.report(Instant::now().into_std()))
    }

    /// Notes an administrator's decision about a member; false where there is none of this name.
    pub fn set_admin(&self, member: &str, admin: Admin) -> bool {
        self.inner.lock().balance.set_admin(member, admin)
    }

    pub(super) fn pick(self: &Arc<GroupState>, request: &Request<'_>) -> Result<Picked, NoMember> {
        let Inner { config, balance } = &mut *self.inner.lock();
        balance.pick(request).map(|pick| self.picked(config, pick, request))
    }

    /// A member for a second request beside a late one, where there is one that may have it.
    pub(super) fn pick_hedge(self: &Arc<GroupState>, request: &Request<'_>) -> Option<Picked> {
        let Inner { config, balance } = &mut *self.inner.lock();
        balance.pick_hedge(request).map(|pick| self.picked(config, pick, request))
    }

    fn picked(self: &Arc<GroupState>, config: &OriginGroup, pick: Pick, request: &Request<'_>) -> Picked {
        let member = |at: usize| Arc::clone(&config.members[at]);
        Picked {
            why: pick.why,
            passed_over: pick.passed_over.into_iter().map(|(at, why)| (member(at), why)).collect(),
            request: MemberRequest {
                member: member(pick.at),
                group: Arc::clone(self),
                ticket: Some(pick.ticket),
                is_judged: false,
                is_timed: true,
                sent: request.now.into(),
            },
        }
    }

    /// Whether a request that failed may be sent to another member.
    pub(super) fn may_retry(&self, tried: &[MemberId]) -> bool {
        let balance = &mut self.inner.lock().balance;
        balance.has_another(tried) && balance.may_retry(Instant::now().into_std())
    }

    /// When a request counts as late.
    pub(super) fn late_after(&self) -> Option<Duration> {
        self.inner.lock().balance.late_after()
    }

    /// A check of a member ended. Tells the log where that changes its state.
    pub(super) fn checked(&self, member: &str, trouble: Option<&str>) {
        let Inner { config, balance } = &mut *self.inner.lock();
        if !balance.checked(member, trouble.is_none(), Instant::now().into_std()) {
            return;
        }
        match trouble {
            None => tracing::info!("origin {}: {member} is up: its checks are good again", config.name),
            Some(trouble) => tracing::warn!("origin {}: {member} is down: its checks fail: {trouble}", config.name),
        }
    }
}

/// Judges the bad answers of one request, whose other tries have ended too.
pub(super) fn judge_bad_answers<'r>(
    bad: impl ExactSizeIterator<Item = &'r mut MemberRequest>,
    was_good_elsewhere: bool,
) {
    let is_to_blame = is_request_to_blame(bad.len(), was_good_elsewhere);
    for request in bad {
        match is_to_blame {
            true => request.excused(),
            false => request.failed("its answers are errors"),
        }
    }
}

/// A request at a member, under way until this is dropped.
pub struct MemberRequest {
    group: Arc<GroupState>,
    pub(super) member: Arc<OriginMember>,
    /// `None` once its end was told.
    ticket: Option<Ticket>,
    /// It was told what the request says of the member.
    is_judged: bool,
    /// Its time is the member's alone.
    is_timed: bool,
    sent: Instant,
}

impl MemberRequest {
    pub(super) fn id(&self) -> Option<MemberId> {
        self.ticket.as_ref().map(Ticket::member)
    }

    /// Since when it is under way.
    pub(super) fn sent(&self) -> Instant {
        self.sent
    }

    /// It has a body, which the client sends as fast as it can: its time says nothing of the member.
    pub(super) fn has_body(&mut self) {
        self.is_timed = false;
    }

    /// Tells what the request says of the member, once.
    fn tell<T>(&mut self, news: impl FnOnce(&mut Inner, &mut Ticket, std::time::Instant) -> T) -> Option<T> {
        if std::mem::replace(&mut self.is_judged, true) {
            return None;
        }
        let ticket = self.ticket.as_mut()?;
        Some(news(&mut self.group.inner.lock(), ticket, Instant::now().into_std()))
    }

    /// A good head came.
    pub(super) fn succeeded(&mut self) {
        let time = self.is_timed.then(|| self.sent.elapsed());
        let recovers = self
            .tell(|inner, ticket, now| inner.balance.succeeded(ticket, time, now).then(|| Arc::clone(&inner.config)));
        if let Some(config) = recovers.flatten() {
            tracing::info!(
                "origin {}: {} works again and gets its share little by little",
                config.name,
                self.member.name
            );
        }
    }

    /// The member is to blame for this trouble.
    pub(super) fn failed(&mut self, trouble: &str) {
        let ejected =
            self.tell(|inner, ticket, now| inner.balance.failed(ticket, now).then(|| Arc::clone(&inner.config)));
        if let Some(config) = ejected.flatten() {
            let failures = config.eject.failures;
            tracing::warn!(
                "origin {}: {} gets no requests for a while: {failures} of them failed in a row, the last one: {trouble}",
                config.name,
                self.member.name
            );
        }
    }

    /// Nothing follows from it for the member.
    pub(super) fn excused(&mut self) {
        let _ = self.tell(|inner, ticket, now| inner.balance.excused(ticket, now));
    }

    /// The answer, whose head was good, broke off.
    pub(super) fn broke_off(&mut self, fault: &UpstreamFault) {
        self.is_judged = false;
        self.failed(&fault.to_string());
    }

    /// The value of the cookie that leads to this member.
    pub(super) fn cookie_value(&self) -> Option<String> {
        let tag = self.group.inner.lock().balance.tag(self.id()?)?;
        Some(format!("{tag:016x}"))
    }
}

impl Drop for MemberRequest {
    fn drop(&mut self) {
        // Another member was quicker, or the client left.
        match self.is_timed {
            true => {
                let time = self.sent.elapsed();
                let _ = self.tell(|inner, ticket, now| inner.balance.outrun(ticket, time, now));
            }
            false => self.excused(),
        }
        if let Some(ticket) = self.ticket.take() {
            self.group.inner.lock().balance.end(ticket, Instant::now().into_std());
        }
    }
}

/// Whether the choice of a member depends on a key.
pub(super) fn wants_key(config: &OriginGroup) -> Option<&BalanceKey> {
    (config.balance == Balance::RingHash).then_some(&config.key)
}
