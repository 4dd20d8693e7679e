//! The child process of `larder run`: its start, the signals that are passed on to it, its exit status.

use crate::children::OwnChild;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as Incoming, SignalKind, signal};

/// Runs `words` with `variables` and returns its exit status, 128 + n when signal n ended it.
pub(super) fn run(words: &[OsString], variables: &[(&'static str, OsString)]) -> io::Result<u8> {
    let Some((program, arguments)) = words.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no command given"));
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // The handlers are installed before the child exists: a signal that came in between would end Larder and leave
        // the child running.
        let mut signals = Signals::new()?;
        let envs = variables.iter().map(|(name, value)| (name, value));
        // A server in this process is not to take it for one that a script has left: it may be bounded as scripts are.
        let spawn = || Command::new(program).args(arguments).envs(envs).spawn();
        let (mut child, _own) = OwnChild::start(spawn, Child::id)?;
        loop {
            tokio::select! {
                status = child.wait() => return status.map(exit_status),
                signal = signals.next() => pass_on(&child, signal),
            }
        }
    })
}

fn exit_status(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| 128 + signal);
    u8::try_from(status.code().or(signal).unwrap_or(1)).unwrap_or(1)
}

/// A child that has ended meanwhile needs no signal.
fn pass_on(child: &Child, signal: Option<Signal>) {
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let (Some(pid), Some(signal)) = (pid, signal) {
        let _ = kill_process(pid, signal);
    }
}

/// The signals that must not end us before the child.
struct Signals {
    terminate: Incoming,
    hang_up: Incoming,
    interrupt: Incoming,
    quit: Incoming,
    window: Incoming,
    /// The terminal sends the last three to its whole foreground group, the child included: they would come twice.
    terminal: bool,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            window: signal(SignalKind::window_change())?,
            terminal: std::fs::File::open("/dev/tty").is_ok(),
        })
    }

    /// The next signal to pass on; `None` for one that the child has got already.
    async fn next(&mut self) -> Option<Signal> {
        let of_terminal = |signal| (!self.terminal).then_some(signal);
        tokio::select! {
            _ = self.terminate.recv() => Some(Signal::TERM),
            _ = self.hang_up.recv() => Some(Signal::HUP),
            _ = self.interrupt.recv() => of_terminal(Signal::INT),
            _ = self.quit.recv() => of_terminal(Signal::QUIT),
            _ = self.window.recv() => of_terminal(Signal::WINCH),
        }
    }
}
