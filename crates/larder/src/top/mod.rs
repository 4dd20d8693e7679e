//! `larder top`: the page's first view in the terminal, fed by the same events; plain lines where there is no terminal.

mod feed;
mod view;

use crate::config::units::rounded_size;
use crate::control::{Hot, Now, Second, Window};
use crate::run::control::Client;
use feed::Event;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event as Input, KeyCode, KeyEventKind, KeyModifiers};
use serde::Deserialize;
use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

/// The state of the screen: all that is drawn is a function of this.
#[derive(Debug, Default)]
struct Screen {
    now: Now,
    seconds: VecDeque<Second>,
    recent: VecDeque<Recent>,
    hot: Hot,
    refused: Vec<Refusals>,
    shown: Shown,
    state: State,
}

/// One request, as the events tell it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Recent {
    method: String,
    url: String,
    status: u16,
    outcome: String,
    bytes: u64,
    micros: u64,
}

/// The requests that one rule refused.
#[derive(Clone, Debug, Default, Deserialize)]
struct Refusals {
    rule: String,
    count: u64,
    /// Seconds since 1970.
    last: u64,
}

/// The list in the lower half of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Shown {
    #[default]
    Hot,
    Misses,
    Requests,
    Refused,
}

impl Shown {
    fn next(self) -> Shown {
        match self {
            Shown::Hot => Shown::Misses,
            Shown::Misses => Shown::Requests,
            Shown::Requests => Shown::Refused,
            Shown::Refused => Shown::Hot,
        }
    }
}

/// Whether the figures on the screen are live.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Live,
    /// The person wants to read.
    Paused,
    /// The server does not answer.
    Lost(String),
}

/// Seconds and requests that are remembered: more than fit a screen are of no use.
const SECONDS_MAX: usize = 300;
const RECENT_MAX: usize = 200;

/// How long the keyboard is waited for before the events are looked at.
const GLANCE: Duration = Duration::from_millis(100);

impl Screen {
    fn take(&mut self, event: Event) {
        if self.state == State::Paused {
            return;
        }
        self.state = State::Live;
        match event {
            Event::Before(seconds) => self.seconds = seconds.into(),
            Event::Now(now) => {
                self.seconds.push_back(now.second.clone());
                self.now = *now;
            }
            Event::Request(recent) => self.recent.push_front(*recent),
            Event::Hot(hot) => self.hot = hot,
            Event::Refused(refused) => self.refused = refused,
            Event::Lost(why) => self.state = State::Lost(why),
        }
        while self.seconds.len() > SECONDS_MAX {
            self.seconds.pop_front();
        }
        self.recent.truncate(RECENT_MAX);
    }

    /// Does what a key says; false when it ends the view.
    fn press(&mut self, key: KeyCode, modifiers: KeyModifiers) -> bool {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char('h') => self.shown = Shown::Hot,
            KeyCode::Char('m') => self.shown = Shown::Misses,
            KeyCode::Char('r') => self.shown = Shown::Requests,
            KeyCode::Char('d') => self.shown = Shown::Refused,
            KeyCode::Tab => self.shown = self.shown.next(),
            KeyCode::Char('p' | ' ') => {
                self.state = if self.state == State::Paused { State::Live } else { State::Paused };
            }
            _ => {}
        }
        true
    }
}

/// Shows what the server behind the control socket does until somebody presses `q`, or for so many seconds.
pub fn top(client: Client, seconds_max: Option<u64>) -> io::Result<()> {
    let events = feed::follow(client)?;
    if io::stdout().is_terminal() && io::stdin().is_terminal() {
        let mut terminal = ratatui::try_init()?;
        let outcome = show(&mut terminal, &events, seconds_max);
        ratatui::try_restore()?;
        return outcome;
    }
    lines(&events, &mut io::stdout().lock(), seconds_max)
}

fn show(terminal: &mut DefaultTerminal, events: &Receiver<Event>, seconds_max: Option<u64>) -> io::Result<()> {
    let mut screen = Screen::default();
    let mut left = seconds_max;
    loop {
        loop {
            match events.try_recv() {
                Ok(event) => {
                    left = left.map(|left| left.saturating_sub(u64::from(matches!(event, Event::Now(_)))));
                    screen.take(event);
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
        terminal.draw(|frame| view::draw(frame, &screen))?;
        if left == Some(0) {
            return Ok(());
        }
        if event::poll(GLANCE)?
            && let Input::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
            && !screen.press(key.code, key.modifiers)
        {
            return Ok(());
        }
    }
}

/// One line a second, for pipes and logs.
fn lines(events: &Receiver<Event>, out: &mut impl Write, seconds_max: Option<u64>) -> io::Result<()> {
    let mut left = seconds_max;
    while let Ok(event) = events.recv() {
        let line = match event {
            Event::Now(now) => line(&now),
            Event::Lost(why) => format!("no answer: {why}"),
            Event::Before(_) | Event::Request(_) | Event::Hot(_) | Event::Refused(_) => continue,
        };
        match writeln!(out, "{line}").and_then(|()| out.flush()) {
            // The reader has closed the pipe and needs no more lines.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            other => other?,
        }
        left = left.map(|left| left.saturating_sub(1));
        if left == Some(0) {
            return Ok(());
        }
    }
    Ok(())
}

fn line(now: &Now) -> String {
    let Second { from_store, fetched, other, failed, .. } = now.second;
    let Window { requests, median_micros, p99_micros, .. } = now.window;
    format!(
        "{} req/s  from the store {}  saved {}  median {}  99 % {}  failed {failed}/s  memory {} of {}",
        from_store + fetched + other + failed,
        view::percent(now.window.from_store, requests),
        rounded_size(now.bytes_from_store),
        view::within(median_micros),
        view::within(p99_micros),
        rounded_size(now.memory_bytes),
        rounded_size(now.memory_bytes_max),
    )
}

#[cfg(test)]
mod tests;
