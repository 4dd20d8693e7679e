//! `larder cluster`: the other nodes as the running Larder sees them.

use super::columns::columns;
use super::running::Running;
use super::{Flags, TROUBLE, print};
use crate::cluster::{HomesShown, MemberShown, Status};
use crate::diagnostics;
use crate::explain::Harmless;
use crate::run::summary::span;
use clap::{Args, Subcommand};
use std::fmt::Write;
use std::time::Duration;

#[derive(Subcommand)]
pub(super) enum ClusterCommand {
    /// Show the nodes, how far behind they are, the connection to NATS and the gate; exit status 1 while the gate is shut
    Status(StatusFlags),
}

#[derive(Args)]
pub(super) struct StatusFlags {
    #[command(flatten)]
    flags: Flags,
    /// The values, as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn cluster(command: &ClusterCommand) -> u8 {
    let ClusterCommand::Status(flags) = command;
    let running = match Running::of(&flags.flags) {
        Ok(running) => running,
        Err(status) => return status,
    };
    let status = match running.client().ask_for::<Status>("/cluster") {
        Ok(Ok(status)) => status,
        Ok(Err(trouble)) => {
            diagnostics::say(format_args!("error: {}", Harmless(&trouble)));
            return TROUBLE;
        }
        Err(error) => return running.gave_no_answer(&error),
    };
    let printed = match flags.json {
        true => print(serde_json::to_string_pretty(&status).unwrap_or_default() + "\n"),
        false => print(text(&status)),
    };
    if status.gate == "shut" { TROUBLE } else { printed }
}

fn text(status: &Status) -> String {
    let mut out = String::new();
    let contact = status.contact_millis.map_or("never".to_owned(), |millis| format!("{} ago", shown(millis)));
    let gate = match &*status.gate {
        "shut" => format!("shut ({}): purges of other nodes may not be known here", status.apart),
        "off" => "off (serve): stored responses are used whatever other nodes purge".to_owned(),
        _ => "open: all purges are known here".to_owned(),
    };
    let nats = status.nats_server.as_ref().map_or(String::new(), |server| format!(" to {}", Harmless(server)));
    let _ = writeln!(out, "gate     {gate}; last known: {contact}");
    let _ = writeln!(out, "nats     {}{nats}", Harmless(&status.nats));
    if let Some(trouble) = &status.trouble {
        let _ = writeln!(out, "trouble  {}", Harmless(trouble));
    }
    match &status.stream {
        Some(stream) => {
            let (name, last, purges) = (Harmless(&stream.name), stream.last, stream.purges);
            let _ = writeln!(
                out,
                "stream   {name}: purge {last} is the newest, {} is applied here, {purges} scopes",
                status.applied
            );
        }
        None => out.push_str("stream   was not seen yet\n"),
    }
    if status.outbox > 0 {
        let _ = writeln!(out, "outbox   {} purges wait for the stream", status.outbox);
    }
    for (why, count) in &status.refused {
        let _ = writeln!(out, "refused  {count} messages: {}", Harmless(why));
    }
    if let Some(homes) = &status.homes {
        out.push_str(&homes_text(homes));
    }
    out.push('\n');
    let rows: Vec<[String; 10]> = status.members.iter().map(row).collect();
    let heads = &["node", "state", "address", "zone", "version", "keys", "since", "heard", "behind", "requests/s"];
    out + &columns(heads, &rows, 5)
}

/// The questions of nodes to one another.
fn homes_text(homes: &HomesShown) -> String {
    let asks = match (homes.asks, homes.answers) {
        (true, _) => "asked and answered",
        (false, true) => "answered, not asked: purges of this node are on their way",
        (false, false) => "neither asked nor answered: purges may not be known here",
    };
    let HomesShown { answered, behind, refused, failed, hedged, .. } = homes;
    let mut text = format!("homes    {asks}\n");
    let _ = writeln!(
        text,
        "asked    {answered} answered, {behind} behind, {refused} refused, {failed} failed, {hedged} late"
    );
    let HomesShown { served, served_behind, served_refused, strangers, .. } = homes;
    let _ = writeln!(
        text,
        "was asked  {served} answered, {served_behind} behind, {served_refused} refused, {strangers} strangers"
    );
    text
}

fn row(member: &MemberShown) -> [String; 10] {
    let state = if member.agrees == Some(false) { "differs" } else { &member.state };
    let zone = if member.zone.is_empty() { "-" } else { &member.zone };
    let keys = member.keys_permille.map_or("-".to_owned(), |share| format!("{}.{} %", share / 10, share % 10));
    [
        member.name.clone(),
        state.to_owned(),
        member.address.clone(),
        zone.to_owned(),
        member.version.clone(),
        keys,
        span(Duration::from_secs(member.since_seconds)),
        shown(member.heard_millis),
        member.behind.to_string(),
        member.requests_per_second.to_string(),
    ]
}

fn shown(millis: u64) -> String {
    if millis < 10_000 { format!("{millis} ms") } else { span(Duration::from_millis(millis)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::StreamShown;

    #[test]
    fn a_status_says_what_is_wrong() {
        let member = |name: &str, state: &str| MemberShown {
            name: name.to_owned(),
            state: state.to_owned(),
            address: "127.0.0.1:8080".to_owned(),
            version: "0.1.0".to_owned(),
            ..MemberShown::default()
        };
        let status = Status {
            gate: "shut".to_owned(),
            apart: "validate".to_owned(),
            nats: "disconnected".to_owned(),
            trouble: Some("the connection to NATS is lost\u{1b}[2J".to_owned()),
            stream: Some(StreamShown {
                name: "larder-purges".to_owned(),
                last: 9,
                purges: 4,
                ..StreamShown::default()
            }),
            applied: 7,
            outbox: 2,
            homes: Some(HomesShown { answers: true, answered: 5, strangers: 3, ..HomesShown::default() }),
            members: vec![member("a", "self"), MemberShown { agrees: Some(false), ..member("b", "alive") }],
            ..Status::default()
        };
        let said = text(&status);
        for part in [
            "gate     shut (validate)",
            "last known: never",
            "purge 9 is the newest, 7 is applied",
            "2 purges wait",
            "answered, not asked",
            "5 answered, 0 behind",
            "3 strangers",
            "differs",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!said.contains('\u{1b}'), "{said}");
    }
}
