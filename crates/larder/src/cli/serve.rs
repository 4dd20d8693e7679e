//! `larder serve`: from the configuration to the last request, and the signals between.

use super::AnyError;
use crate::config::Config;
use crate::diagnostics;
use crate::notify::{self, ServiceState};
use crate::sandbox::Sandbox;
use crate::server::{Plan, Server};
use std::path::Path;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Serves until a signal ends it: the first lets requests end, the second does not wait. SIGUSR1 opens the log anew,
/// SIGHUP reads the configuration again.
pub(super) fn until_signal(plan: Plan, file: Option<&Path>, sandbox: Option<Sandbox>) -> Result<(), AnyError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Signals are caught before the server starts: a SIGUSR1 sent as soon as it is up must not end it.
    let mut signals = runtime.block_on(async { Signals::new() })?;
    let server = Server::start(plan)?;
    // Everything is open, and all threads are there.
    if let Some(sandbox) = sandbox {
        sandbox.close();
    }
    server.shared().common.cache.disk().into_iter().for_each(|disk| super::tell_notices(disk));
    diagnostics::announce(welcome(&server, file));
    notify::tell(ServiceState::Ready);
    runtime.block_on(async {
        loop {
            match signals.next().await {
                SignalAction::End => return,
                SignalAction::Reopen => server.shared().common.log.reopen(),
                SignalAction::Reload => reload(&server),
            }
        }
    });
    notify::tell(ServiceState::Stopping);
    diagnostics::say(format_args!("larder: letting requests end; a second signal does not wait"));
    let (stopped, wait) = tokio::sync::oneshot::channel();
    let stop = move || {
        server.stop();
        let _ = stopped.send(());
    };
    // Where no thread can be had the server was dropped with its work, which ends it at once.
    let _ = std::thread::Builder::new().name("stop".into()).spawn(stop);
    runtime.block_on(async {
        tokio::select! {
            _ = wait => {}
            () = async { while signals.next().await != SignalAction::End {} } => {}
        }
    });
    Ok(())
}

fn reload(server: &Server) {
    match server.shared().reload() {
        Ok(reloaded) => diagnostics::say(format_args!("larder: {}", super::reload::summary(&reloaded))),
        Err(trouble) => {
            diagnostics::say(format_args!("larder: the configuration is not taken, the last one holds\n{trouble}"))
        }
    }
}

/// The action that a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SignalAction {
    /// SIGTERM or SIGINT.
    End,
    /// SIGUSR1.
    Reopen,
    /// SIGHUP.
    Reload,
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    user1: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            user1: signal(SignalKind::user_defined1())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> SignalAction {
        tokio::select! {
            _ = self.terminate.recv() => SignalAction::End,
            _ = self.interrupt.recv() => SignalAction::End,
            _ = self.user1.recv() => SignalAction::Reopen,
            _ = self.hangup.recv() => SignalAction::Reload,
        }
    }
}

/// Where things are, and what to do next.
fn welcome(server: &Server, file: Option<&Path>) -> String {
    let addresses: Vec<String> = server.addresses().iter().map(ToString::to_string).collect();
    let mut text = format!("larder listens on {}", addresses.join(", "));
    if let Some(admin) = server.admin() {
        text += &match server.shared().common.live.value().page_is_closed() {
            true => format!(", its page at http://{admin}/ needs `admin_token`, for others can connect to a listener"),
            false => format!(", its page is http://{admin}/"),
        };
    }
    let proxy = server.addresses().first().map(ToString::to_string).unwrap_or_default();
    text += &match file {
        Some(file) => format!("; configured by {}", file.display()),
        None => "; no configuration file, so all defaults".to_owned(),
    };
    text + &format!("\nnext: {}\n", next_step(&server.shared().common.live.value(), &proxy))
}

/// A line to try: the origin of a listener, or the first site where there is one, else the proxy.
fn next_step(config: &Config, address: &str) -> String {
    if let Some(listen) = config.listens.first().filter(|listen| listen.origin.is_some()) {
        let scheme = if listen.is_tls() { "https" } else { "http" };
        return format!("`curl -i {scheme}://{address}/` twice, then `larder explain {scheme}://{address}/`");
    }
    let hosts = config.sites.iter().flat_map(|site| &site.hosts).map(ToString::to_string);
    let host = hosts.into_iter().find(|host| !host.contains('*'));
    match (host, config.listens.first()) {
        (Some(host), Some(listen)) if !listen.is_tls() => {
            format!("`curl -I -H 'Host: {host}' http://{address}/`, then `larder explain http://{host}/`")
        }
        (Some(host), Some(_)) => {
            format!("`curl -I --connect-to ::{address} https://{host}/`, then `larder explain https://{host}/`")
        }
        _ => format!("`larder run -- COMMAND` in another terminal, or `curl -x http://{address} URL`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Loaded;

    #[test]
    fn the_line_to_try_is_one_for_what_the_listener_is() {
        let next = |text: &str| next_step(&Loaded::parse("test", text, &[]).unwrap().config, "127.0.0.1:8080");
        let reverse = next("[[listen]]\naddress = \"127.0.0.1:8080\"\norigin = \"http://127.0.0.1:9000\"\n");
        assert!(reverse.contains("`curl -i http://127.0.0.1:8080/`") && !reverse.contains("-x"), "{reverse}");
        let site = next("[[site]]\nhosts = [\"a.example\"]\norigin = \"http://127.0.0.1:9000\"\n");
        assert!(site.contains("-H 'Host: a.example'") && !site.contains("-x"), "{site}");
        assert!(next("").contains("curl -x http://127.0.0.1:8080"));
    }
}
