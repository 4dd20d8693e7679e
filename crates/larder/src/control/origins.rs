//! Groups of origins: the state of their members, and what an administrator decides about them.

use super::{Admin, Reply, api};
use crate::config::OriginMember;
use crate::purge::parts;
use crate::upstream::GroupState;
use larder_balance::{Admin as OfAdmin, MemberReport};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// All groups.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Origins {
    /// In the order of their names.
    pub groups: Vec<OfGroup>,
}

/// One group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OfGroup {
    /// Its name.
    pub name: String,
    /// How a member is chosen.
    pub balance: String,
    /// Requests under way at all members.
    pub under_way: usize,
    /// Requests, without further tries and hedges; those that were refused count.
    pub requests: u64,
    /// Further tries of requests that failed.
    pub retries: u64,
    /// Second requests beside late ones.
    pub hedges: u64,
    /// Tries and hedges that the budget did not permit.
    pub budget_spent: u64,
    /// Requests for which no member could be chosen.
    pub refused: u64,
    /// Microseconds after which a request gets a hedge, where hedges are sent and enough is known.
    pub late_after_micros: Option<u64>,
    /// The members, in the order of the configuration.
    pub members: Vec<OfMember>,
}

/// One member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OfMember {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub url: String,
    /// `up`, `slow-start`, `suspect`, `ejected`, `trial`, `down`, `draining` or `maintenance`.
    pub state: String,
    /// It is a backup.
    pub backup: bool,
    /// Its weight.
    pub weight: u32,
    /// The part of its requests that it gets while it is up, in its slow start or suspect, from 0 to 1.
    pub share: f64,
    /// Milliseconds until its ejection is over.
    pub ejected_millis: Option<u64>,
    /// Failures since the last success.
    pub failures_in_a_row: u32,
    /// Requests under way at it.
    pub under_way: usize,
    /// Its average time from a request to the head of the answer, in microseconds.
    pub response_micros: Option<u64>,
    /// Requests that were sent to it.
    pub requests: u64,
    /// Those that failed.
    pub failures: u64,
    /// Its ejections.
    pub ejections: u64,
    /// Failures for which it was not ejected because too many others are.
    #[serde(default)]
    pub ejections_spared: u64,
    /// Checks that were made.
    pub checks: u64,
    /// Those that failed.
    pub checks_failed: u64,
}

/// `GET /origins`.
pub(super) fn list(admin: &Admin, query: &str) -> Reply {
    match parts(query, &[]).map(|parts| parts.first().map(|(name, _)| (*name).to_owned())) {
        Ok(None) => Reply::json(200, &all(admin)),
        Ok(Some(name)) => refused(format!("{name}: this path takes no parameters")),
        Err(error) => refused(error),
    }
}

/// The state of all groups.
pub(super) fn all(admin: &Admin) -> Origins {
    Origins { groups: admin.groups.all().iter().map(|group| of_group(group)).collect() }
}

fn of_group(group: &GroupState) -> OfGroup {
    let (config, report) = group.report();
    let member = |(config, member): (&Arc<OriginMember>, MemberReport)| OfMember {
        url: crate::config::url::show(&config.url),
        state: member.state.as_str().to_owned(),
        backup: member.is_backup,
        weight: member.weight,
        share: member.share,
        ejected_millis: member.ejected_for.map(millis),
        failures_in_a_row: member.failures_in_a_row,
        under_way: member.under_way,
        response_micros: member.response_time.map(micros),
        requests: member.counts.requests,
        failures: member.counts.failures,
        ejections: member.counts.ejections,
        ejections_spared: member.counts.ejections_spared,
        checks: member.counts.checks,
        checks_failed: member.counts.checks_failed,
        name: member.name,
    };
    OfGroup {
        name: config.name.clone(),
        balance: config.balance.as_str().to_owned(),
        under_way: report.under_way,
        requests: report.requests,
        retries: report.retries,
        hedges: report.hedges,
        budget_spent: report.budget_spent,
        refused: report.refused,
        late_after_micros: report.late_after.map(micros),
        members: config.members.iter().zip(report.members).map(member).collect(),
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// `POST /origins/member`: what becomes of a member until this server ends.
pub(super) fn change(admin: &Admin, query: &str) -> Reply {
    let (group, member, wanted) = match read(query) {
        Ok(read) => read,
        Err(error) => return refused(error),
    };
    let Some(group) = admin.groups.named(&group) else {
        let names: Vec<String> = admin.groups.all().iter().map(|group| group.config().name.clone()).collect();
        let there = if names.is_empty() { "none is configured".to_owned() } else { names.join(", ") };
        return refused(format!("group: there is no [[origin]] {group}; there is: {there}"));
    };
    if !group.set_admin(&member, wanted) {
        let config = group.config();
        let names: Vec<&str> = config.members.iter().map(|member| member.name.as_str()).collect();
        return refused(format!("member: {} has no member {member}; it has: {}", config.name, names.join(", ")));
    }
    tracing::info!("origin {}: {member} is {}, by an administrator", group.config().name, wanted.as_str());
    Reply::json(200, &of_group(&group))
}

fn read(query: &str) -> Result<(String, String, OfAdmin), String> {
    let (mut group, mut member, mut wanted) = (None, None, None);
    for (name, value) in parts(query, &[])? {
        match name {
            "group" => group = Some(value),
            "member" => member = Some(value),
            "state" => {
                let state = OfAdmin::ALL.into_iter().find(|each| each.as_str() == value);
                let words = OfAdmin::ALL.map(OfAdmin::as_str).join(", ");
                wanted = Some(state.ok_or_else(|| format!("state: {value} is none of {words}"))?);
            }
            other => return Err(format!("{other}: there is no such parameter; there are group, member and state")),
        }
    }
    let missing = |name: &str| format!("{name} is missing");
    Ok((
        group.ok_or_else(|| missing("group"))?,
        member.ok_or_else(|| missing("member"))?,
        wanted.ok_or_else(|| missing("state"))?,
    ))
}

fn refused(error: String) -> Reply {
    Reply::json(422, &api::Refused { error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_names_group_member_and_state() {
        let read = |query: &str| read(query).map(|(group, member, state)| (group, member, state.as_str()));
        assert_eq!(
            read("group=app&member=http://10.0.0.1&state=draining"),
            Ok(("app".to_owned(), "http://10.0.0.1".to_owned(), "draining"))
        );
        for (query, trouble) in [
            ("group=app&member=a", "state is missing"),
            ("member=a&state=in-use", "group is missing"),
            ("group=app&member=a&state=off", "in-use, draining, maintenance"),
            ("group=app&group=b&member=a&state=in-use", "only once"),
            ("group=app&membre=a&state=in-use", "no such parameter"),
        ] {
            assert!(read(query).is_err_and(|error| error.contains(trouble)), "{query}");
        }
    }
}
