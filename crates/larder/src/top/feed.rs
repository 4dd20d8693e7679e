//! The stream of events of a running Larder, read by a thread of its own.

use super::{Recent, Refusals};
use crate::control::{Hot, Now, Second};
use crate::run::control::Client;
use serde::Deserialize;
use std::io::{self, BufRead};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Seconds between questions for the URLs asked for most.
const HOT_EVERY: u64 = 5;

/// How long after a broken stream another one is asked for.
const AGAIN: Duration = Duration::from_secs(1);

/// An event from a server.
#[derive(Debug)]
pub(super) enum Event {
    /// A second is over.
    Now(Box<Now>),
    /// The seconds before the first event.
    Before(Vec<Second>),
    /// A request was answered.
    Request(Box<Recent>),
    /// The URLs asked for most, and the hosts that miss.
    Hot(Hot),
    /// The rules that refused requests.
    Refused(Vec<Refusals>),
    /// The server does not answer; it is tried again.
    Lost(String),
}

/// The answer at `/now`.
#[derive(Deserialize)]
struct Lately {
    seconds: Vec<Second>,
}

/// The part of the answer at `/stats` that is shown.
#[derive(Deserialize)]
struct Stats {
    #[serde(default)]
    refused_by_rule: Vec<Refusals>,
}

/// Begins to follow the server behind a control socket; an error when there is none.
pub(super) fn follow(client: Client) -> io::Result<Receiver<Event>> {
    let (tell, told) = channel();
    let lately: Lately = client.read("/now")?;
    let _ = tell.send(Event::Before(lately.seconds));
    std::thread::Builder::new().name("events".into()).spawn(move || {
        loop {
            let trouble = match read(&client, &tell) {
                Ok(()) => "the server has closed".to_owned(),
                Err(error) => error.to_string(),
            };
            // Nobody listens any more.
            if tell.send(Event::Lost(trouble)).is_err() {
                return;
            }
            std::thread::sleep(AGAIN);
        }
    })?;
    Ok(told)
}

fn read(client: &Client, tell: &Sender<Event>) -> io::Result<()> {
    let mut name = String::new();
    for line in client.events("/events")?.lines() {
        let line = line?;
        if let Some(named) = line.strip_prefix("event:") {
            named.trim().clone_into(&mut name);
        }
        let Some(data) = line.strip_prefix("data:") else { continue };
        let Some(event) = parsed(&name, data)? else { continue };
        let asks = matches!(&event, Event::Now(now) if now.uptime_seconds.is_multiple_of(HOT_EVERY));
        if tell.send(event).is_err() {
            return Ok(());
        }
        if asks {
            let stats: Stats = client.read("/stats")?;
            let told = [Event::Hot(client.read("/hot")?), Event::Refused(stats.refused_by_rule)];
            if told.into_iter().any(|event| tell.send(event).is_err()) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Events with unknown names are ignored.
fn parsed(name: &str, data: &str) -> io::Result<Option<Event>> {
    Ok(match name {
        "now" => Some(Event::Now(serde_json::from_str(data)?)),
        "request" => Some(Event::Request(serde_json::from_str(data)?)),
        _ => None,
    })
}
