//! A group of members: chooses one for each request, and learns from what becomes of it.

use crate::budget::Budget;
use crate::hash::{Random, hash};
use crate::health::{Health, SHARE_MIN};
use crate::pick::{NoMember, PassedOver, Pick, Request, Why};
use crate::report::{Counts, GroupReport, MemberReport, MemberState};
use crate::response_time::ResponseTime;
use crate::ring::Ring;
use crate::settings::{Admin, Balance, Member, Settings};
use crate::threshold::Threshold;
use crate::ticket::{Errand, MemberId, Ticket};
use std::time::{Duration, Instant};

/// The second of two drawn members is asked where its cost is below this part of the first one's: small differences are chance,
/// and weights count more than them.
const CLEARLY_LESS: f64 = 0.7;
/// The response time of members of which nothing is known, where nothing is known of others either.
const UNKNOWN_SECONDS: f64 = 0.01;

/// A group of members.
#[derive(Clone, Debug)]
pub struct Group {
    settings: Settings,
    states: Vec<State>,
    ring: Ring,
    random: Random,
    budget: Budget,
    times: Threshold,
    under_way: usize,
    ids: u64,
    requests: u64,
    retries: u64,
    hedges: u64,
    budget_spent: u64,
    refused: u64,
    /// Room for the members that a choice is among.
    candidates: Vec<usize>,
}

/// The state of one member.
#[derive(Clone, Debug)]
struct State {
    id: MemberId,
    tag: u64,
    admin: Admin,
    health: Health,
    time: ResponseTime,
    under_way: usize,
    /// For [`Balance::RoundRobin`]: how much it is owed.
    owed: f64,
    counts: Counts,
}

impl Group {
    /// A group whose members have just become known. Equal seeds and equal calls give equal choices.
    pub fn new(settings: Settings, seed: u64) -> Group {
        let mut group = Group {
            ring: Ring::default(),
            random: Random::new(seed),
            budget: Budget::new(settings.retry.percent),
            settings: Settings::default(),
            states: Vec::new(),
            times: Threshold::default(),
            under_way: 0,
            ids: 0,
            requests: 0,
            retries: 0,
            hedges: 0,
            budget_spent: 0,
            refused: 0,
            candidates: Vec::new(),
        };
        group.reconfigure(settings);
        group
    }

    /// Takes other settings. Members keep their state by their names.
    pub fn reconfigure(&mut self, settings: Settings) {
        let mut before: Vec<(String, State)> =
            self.settings.members.drain(..).map(|member| member.name).zip(self.states.drain(..)).collect();
        for member in &settings.members {
            let known = before.iter().position(|(name, _)| *name == member.name);
            let state = known.map(|at| before.swap_remove(at).1);
            self.states.push(state.unwrap_or_else(|| {
                self.ids += 1;
                State::new(MemberId(self.ids), &member.name)
            }));
        }
        self.ring = if settings.balance == Balance::RingHash { Ring::new(&settings.members) } else { Ring::default() };
        self.budget.set_percent(settings.retry.percent);
        if settings.checks.is_none() {
            // Nothing would ever say that a member is up again.
            self.states.iter_mut().for_each(|state| state.health.forget_checks());
        }
        self.settings = settings;
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Chooses a member. The request is under way at it until [`Group::end`].
    pub fn pick(&mut self, request: &Request<'_>) -> Result<Pick, NoMember> {
        if request.tried.is_empty() {
            self.requests += 1;
            self.budget.earn();
        }
        let chosen = self.choose(request);
        if chosen.is_err() && request.tried.is_empty() {
            self.refused += 1;
        }
        let (at, why) = chosen?;
        let passed_over = (0..self.states.len())
            .filter(|other| *other != at)
            .filter_map(|other| Some((other, self.obstacle(other, request)?)))
            .collect();
        let state = &mut self.states[at];
        let errand = match why {
            Why::Trial => Errand::Trial,
            Why::LeastBad => Errand::LeastBad,
            Why::Balance | Why::Cookie | Why::Backup => Errand::Plain,
        };
        if errand == Errand::Trial {
            state.health.begin_trial();
        }
        state.under_way += 1;
        state.counts.requests += 1;
        self.under_way += 1;
        Ok(Pick { at, why, passed_over, ticket: Ticket { member: state.id, errand } })
    }

    fn choose(&mut self, request: &Request<'_>) -> Result<(usize, Why), NoMember> {
        if self.under_way >= self.settings.requests_max {
            return Err(NoMember::Full);
        }
        if let Some(at) = request.sticky.and_then(|tag| self.named_by(tag, request)) {
            return Ok((at, Why::Cookie));
        }
        for is_backup in [false, true] {
            if let Some(at) = self.trial(is_backup, request) {
                return Ok((at, Why::Trial));
            }
            let mut candidates = std::mem::take(&mut self.candidates);
            candidates.clear();
            let class = (0..self.states.len()).filter(|at| self.settings.members[*at].is_backup == is_backup);
            candidates.extend(class.filter(|at| self.obstacle(*at, request).is_none()));
            self.leave_out_some(&mut candidates, request);
            let chosen = self.balance(&candidates, request);
            self.candidates = candidates;
            if let Some(at) = chosen {
                return Ok((at, if is_backup { Why::Backup } else { Why::Balance }));
            }
        }
        self.least_bad(request).map(|at| (at, Why::LeastBad))
    }

    /// Leaves out members in their slow start, each in so many choices as its share is less than the largest, and likewise those that
    /// fail but are not ejected because too many are. All of the latter together are there in a tenth of the choices at most, so that the
    /// budget of further tries covers them, and get no request that could not be repeated. Of nothing but members that fail none is left out.
    fn leave_out_some(&mut self, candidates: &mut Vec<usize>, request: &Request<'_>) {
        let (states, settings) = (&self.states, &self.settings);
        let is_suspect = |at: usize| states[at].health.is_suspect(&settings.eject);
        let begun = |at: usize| states[at].health.share(settings.slow_start, request.now);
        // Where nobody has a whole share the one that has most is asked as if it had: what it does not get would go to those that fail.
        let well = candidates.iter().filter(|at| !is_suspect(**at));
        let Some(most) = well.map(|at| begun(*at)).max_by(f64::total_cmp) else { return };
        let of_suspect = SHARE_MIN / candidates.iter().filter(|at| is_suspect(**at)).count().max(1) as f64;
        let share = |at: usize| match is_suspect(at) {
            true if request.is_repeatable => of_suspect,
            true => 0.0,
            false => begun(at) / most,
        };
        let random = &mut self.random;
        candidates.retain(|at| {
            let share = share(*at);
            share >= 1.0 || random.share() < share
        });
    }

    /// The member that a client's cookie names, if it may be asked. One that runs dry serves such clients on.
    fn named_by(&self, tag: u64, request: &Request<'_>) -> Option<usize> {
        let at = self.states.iter().position(|state| state.tag == tag)?;
        self.obstacle(at, request).is_none_or(|obstacle| obstacle == PassedOver::Draining).then_some(at)
    }

    /// The reason why a member may not be asked; `None` where it may.
    fn obstacle(&self, at: usize, request: &Request<'_>) -> Option<PassedOver> {
        let state = &self.states[at];
        if request.tried.contains(&state.id) {
            return Some(PassedOver::Tried);
        }
        match state.admin {
            Admin::Maintenance => return Some(PassedOver::Maintenance),
            // A member that fails does not serve those on whose cookie names it.
            Admin::Draining if state.health.is_in() && !state.health.is_down() => return Some(PassedOver::Draining),
            Admin::Draining | Admin::InUse => {}
        }
        if state.health.is_down() {
            return Some(PassedOver::Down);
        }
        if let Some(until) = state.health.ejected_until() {
            let left = until.saturating_duration_since(request.now);
            return Some(if left.is_zero() { PassedOver::TrialDue } else { PassedOver::Ejected(left) });
        }
        if state.health.is_on_trial() {
            return Some(PassedOver::TrialDue);
        }
        (state.under_way >= self.settings.members[at].requests_max).then_some(PassedOver::Full)
    }

    /// A member whose ejection is over and that this request tries. One that may not be repeated does so only where for another
    /// such time no other request did.
    fn trial(&self, is_backup: bool, request: &Request<'_>) -> Option<usize> {
        let class = (0..self.states.len()).filter(|at| self.settings.members[*at].is_backup == is_backup);
        class.into_iter().find(|at| self.may_try(*at, request))
    }

    fn may_try(&self, at: usize, request: &Request<'_>) -> bool {
        let patience = if request.is_repeatable { Duration::ZERO } else { self.settings.eject.time };
        let state = &self.states[at];
        state.health.ejected_until().is_some_and(|until| request.now >= until + patience)
            && state.admin == Admin::InUse
            && !state.health.is_down()
            && state.under_way < self.settings.members[at].requests_max
            && !request.tried.contains(&state.id)
    }

    /// Where none may be asked: one that could answer all the same. Those whose last request succeeded come first, then those of which
    /// checks don't say that they are down, then members that are no backups.
    fn least_bad(&mut self, request: &Request<'_>) -> Result<usize, NoMember> {
        let mut rest: Vec<usize> = (0..self.states.len()).filter(|at| self.states[*at].admin == Admin::InUse).collect();
        if rest.is_empty() {
            return Err(NoMember::TakenOut);
        }
        rest.retain(|at| !request.tried.contains(&self.states[*at].id));
        if rest.is_empty() {
            return Err(NoMember::AllTried);
        }
        rest.retain(|at| self.states[*at].under_way < self.settings.members[*at].requests_max);
        let badness = |at: &usize| {
            let health = &self.states[*at].health;
            let fails = !health.is_in() || health.failures_in_a_row() > 0;
            (fails, health.is_down(), self.settings.members[*at].is_backup)
        };
        let best = rest.iter().map(badness).min().ok_or(NoMember::Full)?;
        let best: Vec<usize> = rest.iter().copied().filter(|at| badness(at) == best).collect();
        self.balance(&best, request).ok_or(NoMember::Full)
    }

    fn balance(&mut self, candidates: &[usize], request: &Request<'_>) -> Option<usize> {
        match (candidates, self.settings.balance) {
            ([], _) => None,
            ([only], _) => Some(*only),
            (_, Balance::P2c | Balance::Sticky) => self.better_of_two(candidates, request.now),
            (_, Balance::LeastConnections) => self.fewest_under_way(candidates),
            (_, Balance::RoundRobin) => self.next_in_turn(candidates),
            (_, Balance::RingHash) => self.ring.find(request.key, |at| candidates.contains(&at)),
        }
    }

    fn weight(&self, at: usize) -> f64 {
        f64::from(self.settings.members[at].weight.max(1))
    }

    /// Draws one by weight.
    fn draw(&mut self, candidates: impl Iterator<Item = usize> + Clone) -> Option<usize> {
        let total: f64 = candidates.clone().map(|at| self.weight(at)).sum();
        let mut left = self.random.share() * total;
        let mut last = None;
        for at in candidates {
            last = Some(at);
            left -= self.weight(at);
            if left < 0.0 {
                break;
            }
        }
        last
    }

    fn better_of_two(&mut self, candidates: &[usize], now: Instant) -> Option<usize> {
        let first = self.draw(candidates.iter().copied())?;
        let second = self.draw(candidates.iter().copied().filter(|at| *at != first))?;
        let known: Vec<f64> = candidates.iter().filter_map(|at| self.states[*at].time.faded(now)).collect();
        let typical = match known.len() {
            0 => UNKNOWN_SECONDS,
            many => known.iter().sum::<f64>() / many as f64,
        };
        let mean = candidates.iter().map(|at| self.weight(*at)).sum::<f64>() / candidates.len() as f64;
        let cost = |at: usize| {
            let load = self.states[at].under_way as f64 * mean / self.weight(at);
            self.states[at].time.faded(now).unwrap_or(typical) * (1.0 + load)
        };
        Some(if cost(second) < CLEARLY_LESS * cost(first) { second } else { first })
    }

    fn fewest_under_way(&mut self, candidates: &[usize]) -> Option<usize> {
        let load = |at: usize| self.states[at].under_way as f64 / self.weight(at);
        let least = candidates.iter().map(|at| load(*at)).fold(f64::INFINITY, f64::min);
        let equal: Vec<usize> = candidates.iter().copied().filter(|at| load(*at) <= least).collect();
        self.draw(equal.into_iter())
    }

    /// Each is owed its weight, the one that is owed most is chosen and owes what all got: a turn is spread evenly (as in nginx's
    /// smooth weighted round robin).
    fn next_in_turn(&mut self, candidates: &[usize]) -> Option<usize> {
        let mut total = 0.0;
        for at in candidates {
            let weight = self.weight(*at);
            total += weight;
            self.states[*at].owed += weight;
        }
        let most = |one: &&usize, other: &&usize| self.states[**one].owed.total_cmp(&self.states[**other].owed);
        // Of equals the first: `max_by` would take the last.
        let chosen = *candidates.iter().rev().max_by(most)?;
        self.states[chosen].owed -= total;
        Some(chosen)
    }

    /// A good answer's head came, after this time. Where the time depends on the client too, as that of a body which it sends does, it
    /// says nothing of the member and is `None`. True where the member recovers by that.
    pub fn succeeded(&mut self, ticket: &mut Ticket, time: Option<Duration>, now: Instant) -> bool {
        if let Some(time) = time {
            self.times.add(time);
        }
        let errand = std::mem::take(&mut ticket.errand);
        let Some(at) = self.place_of(ticket.member) else { return false };
        let state = &mut self.states[at];
        let recovers = state.health.succeeded(errand, &self.settings.eject, now);
        if recovers {
            // The response times of the time before its failure say nothing of now.
            state.time.forget();
        }
        if let Some(time) = time {
            state.time.add(time, now);
        }
        recovers
    }

    /// The request failed, and the member is to blame. True where it is ejected for that.
    pub fn failed(&mut self, ticket: &mut Ticket, now: Instant) -> bool {
        let errand = std::mem::take(&mut ticket.errand);
        let Some(at) = self.place_of(ticket.member) else { return false };
        let is_ejectable = self.may_eject_one_more();
        let eject = &self.settings.eject;
        let state = &mut self.states[at];
        state.counts.failures += 1;
        let is_due = state.health.failed(errand, eject, now);
        match (is_due, is_ejectable) {
            (true, true) => {
                state.health.eject(eject, now);
                state.counts.ejections += 1;
            }
            (true, false) => state.counts.ejections_spared += 1,
            (false, _) => {}
        }
        is_due && is_ejectable
    }

    /// The request was given up after this time, because another member had answered it by then or the client left: so long at least
    /// its answer would have taken. A trial that was late is not repeated at once: to a member that hangs each request would be a trial.
    pub fn outrun(&mut self, ticket: &mut Ticket, time: Duration, now: Instant) {
        let is_late = time >= self.late_after().unwrap_or(self.settings.eject.time);
        let errand = std::mem::take(&mut ticket.errand);
        let Some(at) = self.place_of(ticket.member) else { return };
        let state = &mut self.states[at];
        if errand == Errand::Trial {
            let again = if is_late { now + self.settings.eject.time } else { now };
            state.health.trial_showed_nothing(again);
        }
        if state.time.average().is_none_or(|average| average < time) {
            state.time.add(time, now);
        }
    }

    /// Nothing follows from the request for the member.
    pub fn excused(&mut self, ticket: &mut Ticket, now: Instant) {
        if std::mem::take(&mut ticket.errand) != Errand::Trial {
            return;
        }
        if let Some(at) = self.place_of(ticket.member) {
            self.states[at].health.trial_showed_nothing(now);
        }
    }

    /// The request is over, or was given up.
    pub fn end(&mut self, mut ticket: Ticket, now: Instant) {
        // A trial of which nothing was told has shown nothing.
        self.excused(&mut ticket, now);
        self.under_way = self.under_way.saturating_sub(1);
        if let Some(at) = self.place_of(ticket.member) {
            let state = &mut self.states[at];
            state.under_way = state.under_way.saturating_sub(1);
        }
    }

    /// Whether there is a member in use to which a request was not sent yet.
    pub fn has_another(&self, tried: &[MemberId]) -> bool {
        self.states.iter().any(|state| state.admin == Admin::InUse && !tried.contains(&state.id))
    }

    /// The hash of a member's name, as [`Request::sticky`] has it; `None` where the group has no such member any more.
    pub fn tag(&self, member: MemberId) -> Option<u64> {
        self.place_of(member).map(|at| self.states[at].tag)
    }

    /// Takes a further try of a request out of the budget; false where there is none.
    pub fn may_retry(&mut self, now: Instant) -> bool {
        let may = self.spend(now);
        self.retries += u64::from(may);
        may
    }

    /// Chooses a member for a second request beside a late one, and takes it out of the budget; `None` where the budget is spent or no
    /// member may be asked. The least bad get none.
    pub fn pick_hedge(&mut self, request: &Request<'_>) -> Option<Pick> {
        let is_able = |at| self.obstacle(at, request).is_none() || self.may_try(at, request);
        let has_able = self.under_way < self.settings.requests_max && (0..self.states.len()).any(is_able);
        if !has_able || !self.spend(request.now) {
            return None;
        }
        self.hedges += 1;
        self.pick(request).ok()
    }

    fn spend(&mut self, now: Instant) -> bool {
        let may = self.budget.spend(now);
        self.budget_spent += u64::from(!may);
        may
    }

    /// When a request gets a hedge; `None` where none are sent, or too little is known.
    pub fn late_after(&self) -> Option<Duration> {
        let hedge = self.settings.hedge.as_ref()?;
        Some(self.times.percentile(hedge.percentile)?.max(hedge.time_min))
    }

    /// A check of a member ended. True where that changed its state. One that ends after the settings know no checks any more changes
    /// nothing.
    pub fn checked(&mut self, name: &str, is_good: bool, now: Instant) -> bool {
        let Some(at) = self.named(name) else { return false };
        let Some(checks) = &self.settings.checks else { return false };
        let state = &mut self.states[at];
        state.counts.checks += 1;
        state.counts.checks_failed += u64::from(!is_good);
        let is_changed = state.health.checked(is_good, checks, now);
        if is_changed && is_good {
            state.time.forget();
        }
        is_changed
    }

    /// Notes an administrator's decision; false where there is no member of this name.
    pub fn set_admin(&mut self, name: &str, admin: Admin) -> bool {
        let Some(at) = self.named(name) else { return false };
        self.states[at].admin = admin;
        true
    }

    /// The state of all, for people.
    pub fn report(&self, now: Instant) -> GroupReport {
        GroupReport {
            under_way: self.under_way,
            requests: self.requests,
            retries: self.retries,
            hedges: self.hedges,
            budget_spent: self.budget_spent,
            refused: self.refused,
            late_after: self.late_after(),
            members: self.settings.members.iter().zip(&self.states).map(|each| self.member_report(each, now)).collect(),
        }
    }

    fn member_report(&self, (member, state): (&Member, &State), now: Instant) -> MemberReport {
        let share = match state.health.is_suspect(&self.settings.eject) {
            true => SHARE_MIN,
            false => state.health.share(self.settings.slow_start, now),
        };
        let left = state.health.ejected_until().map(|until| until.saturating_duration_since(now));
        let of_service = match left {
            Some(left) if left.is_zero() => MemberState::Trial,
            Some(_) => MemberState::Ejected,
            None if state.health.is_on_trial() => MemberState::Trial,
            None if state.health.is_suspect(&self.settings.eject) => MemberState::Suspect,
            None if share < 1.0 => MemberState::SlowStart,
            None => MemberState::Up,
        };
        let of_health = if state.health.is_down() { MemberState::Down } else { of_service };
        MemberReport {
            name: member.name.clone(),
            state: match state.admin {
                Admin::InUse => of_health,
                Admin::Draining => MemberState::Draining,
                Admin::Maintenance => MemberState::Maintenance,
            },
            admin: state.admin,
            is_backup: member.is_backup,
            weight: member.weight,
            share,
            ejected_for: left.filter(|left| !left.is_zero()),
            failures_in_a_row: state.health.failures_in_a_row(),
            under_way: state.under_way,
            response_time: state.time.average(),
            counts: state.counts,
        }
    }

    /// Whether one more member may be ejected: of those that an administrator left in use and that are no backups, not more than
    /// the permitted part is out then.
    fn may_eject_one_more(&self) -> bool {
        let counted = || {
            let each = self.settings.members.iter().zip(&self.states);
            each.filter(|(member, state)| !member.is_backup && state.admin == Admin::InUse).map(|(_, state)| state)
        };
        let (all, out) = (counted().count(), counted().filter(|state| !state.health.is_in()).count());
        let percent = usize::try_from(self.settings.eject.out_percent_max).unwrap_or(100);
        let out_max = (all * percent / 100).max(usize::from(all >= 2 && percent > 0));
        out < out_max
    }

    fn place_of(&self, id: MemberId) -> Option<usize> {
        self.states.iter().position(|state| state.id == id)
    }

    fn named(&self, name: &str) -> Option<usize> {
        self.settings.members.iter().position(|member| member.name == name)
    }
}

impl State {
    fn new(id: MemberId, name: &str) -> State {
        State {
            id,
            tag: hash(name.as_bytes()),
            admin: Admin::default(),
            health: Health::default(),
            time: ResponseTime::default(),
            under_way: 0,
            owed: 0.0,
            counts: Counts::default(),
        }
    }
}
