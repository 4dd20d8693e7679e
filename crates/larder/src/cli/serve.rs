//! `larder serve`: from the configuration to the last request, and the signals between.

use super::AnyError;
use crate::config::Config;
use crate::server::Server;
use std::path::Path;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Serves until a signal ends it: the first lets requests end, the second does not wait. SIGUSR1 opens the log anew.
pub(super) fn until_signal(config: Config, file: Option<&Path>) -> Result<(), AnyError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Whoever moves the log away as soon as the server is up must not end it.
    let mut signals = runtime.block_on(async { Signals::new() })?;
    let server = Server::start(config)?;
    super::print(welcome(&server, file));
    runtime.block_on(async {
        while let Told::Reopen = signals.next().await {
            server.shared().reopen_log();
        }
    });
    eprintln!("larder: letting requests end; a second signal does not wait");
    let (stopped, wait) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        server.stop();
        let _ = stopped.send(());
    });
    runtime.block_on(async {
        tokio::select! {
            _ = wait => {}
            () = async { while signals.next().await != Told::End {} } => {}
        }
    });
    Ok(())
}

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// SIGTERM or SIGINT.
    End,
    /// SIGUSR1.
    Reopen,
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    user1: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            user1: signal(SignalKind::user_defined1())?,
        })
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::End,
            _ = self.interrupt.recv() => Told::End,
            _ = self.user1.recv() => Told::Reopen,
        }
    }
}

/// Where things are, and what to do next.
fn welcome(server: &Server, file: Option<&Path>) -> String {
    let addresses: Vec<String> = server.addresses().iter().map(ToString::to_string).collect();
    let mut text = format!("larder listens on {}", addresses.join(", "));
    if let Some(admin) = server.admin() {
        text += &format!(", its page is http://{admin}/");
    }
    let proxy = server.addresses().first().map(ToString::to_string).unwrap_or_default();
    text += &match file {
        Some(file) => format!("; configured by {}", file.display()),
        None => "; no configuration file, so all defaults".to_owned(),
    };
    text + &format!("\nnext: `larder run -- COMMAND` in another terminal, or `curl -x http://{proxy} URL`\n")
}
