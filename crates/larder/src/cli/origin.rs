//! `larder origin`: groups of origins as the running Larder has them, and which of their members get requests.

use super::running::Running;
use super::{Flags, TROUBLE, WRONG, columns::columns};
use crate::control::{OfGroup, OfMember, Origins};
use crate::diagnostics;
use crate::explain::Harmless;
use clap::{Args, Subcommand};
use larder_people::form::encoded;
use std::fmt::Write;

#[derive(Subcommand)]
pub(super) enum OriginCommand {
    /// List the members of all groups: state, requests under way, response time, failures
    Ls(LsFlags),
    /// Let a member run dry: it gets no new requests, but those of clients that a cookie leads to it
    Drain(DrainFlags),
    /// Let a member serve again
    Undrain(MemberFlags),
}

#[derive(Args)]
pub(super) struct LsFlags {
    #[command(flatten)]
    flags: Flags,
    /// This group alone
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// The values, as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(super) struct MemberFlags {
    #[command(flatten)]
    flags: Flags,
    /// The group
    #[arg(value_name = "NAME")]
    name: String,
    /// The member, by its name
    #[arg(value_name = "MEMBER")]
    member: String,
}

#[derive(Args)]
pub(super) struct DrainFlags {
    #[command(flatten)]
    of: MemberFlags,
    /// No requests at all, not even those of clients that a cookie leads to it
    #[arg(long)]
    maintenance: bool,
}

pub(super) fn origin(command: &OriginCommand) -> u8 {
    match command {
        OriginCommand::Ls(flags) => list(flags),
        OriginCommand::Drain(flags) => change(&flags.of, if flags.maintenance { "maintenance" } else { "draining" }),
        OriginCommand::Undrain(flags) => change(flags, "in-use"),
    }
}

fn list(flags: &LsFlags) -> u8 {
    let running = match Running::of(&flags.flags) {
        Ok(running) => running,
        Err(status) => return status,
    };
    let mut origins = match running.client().ask_for::<Origins>("/origins") {
        Ok(Ok(origins)) => origins,
        Ok(Err(trouble)) => {
            diagnostics::say(format_args!("error: {trouble}"));
            return TROUBLE;
        }
        Err(error) => return running.gave_no_answer(&error),
    };
    if let Some(name) = &flags.name {
        let names: Vec<String> = origins.groups.iter().map(|group| group.name.clone()).collect();
        origins.groups.retain(|group| group.name == *name);
        if origins.groups.is_empty() {
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            diagnostics::say(format_args!("error: there is no [[origin]] {}; there is {there}", Harmless(name)));
            return WRONG;
        }
    }
    match flags.json {
        true => super::print(serde_json::to_string_pretty(&origins).unwrap_or_default() + "\n"),
        false => super::print(text(&origins.groups)),
    }
}

fn change(flags: &MemberFlags, state: &str) -> u8 {
    let running = match Running::of(&flags.flags) {
        Ok(running) => running,
        Err(status) => return status,
    };
    let (group, member) = (encoded(&flags.name), encoded(&flags.member));
    match running.client().change::<OfGroup>(&format!("/origins/member?group={group}&member={member}&state={state}")) {
        Ok(Ok(group)) => super::print(text(&[group])),
        Ok(Err(trouble)) => {
            diagnostics::say(format_args!("error: {trouble}"));
            WRONG
        }
        Err(error) => running.gave_no_answer(&error),
    }
}

fn text(groups: &[OfGroup]) -> String {
    if groups.is_empty() {
        return "no group is configured: [[origin]] has name and members, and a site names it by origin = \"NAME\"\n"
            .to_owned();
    }
    let mut out = String::new();
    for group in groups {
        let gap = if out.is_empty() { "" } else { "\n" };
        let OfGroup { balance, requests, retries, hedges, refused, budget_spent, .. } = group;
        let _ = writeln!(out, "{gap}{}: {balance}, {requests} requests", Harmless(&group.name));
        let heads = ["member", "state", "weight", "under way", "response", "requests", "failures", "ejections"];
        out += &columns(&heads, &group.members.iter().map(row).collect::<Vec<_>>(), 2);
        let _ = writeln!(
            out,
            "retries {retries}, hedges {hedges}, beyond the budget {budget_spent}, without a member {refused}"
        );
    }
    out
}

fn row(member: &OfMember) -> [String; 8] {
    let state = match (member.state.as_str(), member.ejected_millis) {
        ("ejected", Some(left)) => format!("ejected for {} s", left.div_ceil(1_000)),
        ("slow-start", _) => format!("slow-start, {:.0} %", member.share * 100.0),
        (state, _) => state.to_owned(),
    };
    [
        if member.backup { format!("{} (backup)", member.name) } else { member.name.clone() },
        state,
        member.weight.to_string(),
        member.under_way.to_string(),
        member.response_micros.map_or("-".to_owned(), |micros| format!("{:.1} ms", micros as f64 / 1e3)),
        member.requests.to_string(),
        member.failures.to_string(),
        member.ejections.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_stand_below_each_other() {
        let member = |name: &str, state: &str| OfMember {
            name: name.to_owned(),
            url: String::new(),
            state: state.to_owned(),
            backup: name == "c",
            weight: 2,
            share: 0.25,
            ejected_millis: (state == "ejected").then_some(7_200),
            failures_in_a_row: 0,
            under_way: 3,
            response_micros: (state != "ejected").then_some(1_240),
            requests: 10,
            failures: 5,
            ejections: 1,
            ejections_spared: 0,
            checks: 0,
            checks_failed: 0,
        };
        let group = OfGroup {
            name: "app".to_owned(),
            balance: "p2c".to_owned(),
            under_way: 9,
            requests: 30,
            retries: 4,
            hedges: 0,
            budget_spent: 0,
            refused: 0,
            late_after_micros: None,
            members: vec![member("a", "slow-start"), member("b", "ejected"), member("c", "up")],
        };
        let expected = "app: p2c, 30 requests
member      state             weight  under way  response  requests  failures  ejections
a           slow-start, 25 %       2          3    1.2 ms        10         5          1
b           ejected for 8 s        2          3         -        10         5          1
c (backup)  up                     2          3    1.2 ms        10         5          1
retries 4, hedges 0, beyond the budget 0, without a member 0
";
        assert_eq!(text(&[group]), expected);
    }
}
