//! Another configuration for a server that runs: all of it or nothing, and no connection or object is lost.
//!
//! Everything that can fail (reading, binding, certificates, the log's file) is done first; only then is anything put in
//! force. A connection that is open keeps the listener it came through; sites, access, limits and timeouts are looked up
//! by each request. Settings that only a restart can change keep their values, and the answer names them.

use crate::background;
use crate::bind::{self, SocketFile};
use crate::config::setting::ChangesAt;
use crate::config::{Config, ListSource, Listen, Loaded, Log, LogTo, ValueSource, manual};
use crate::diagnostics::in_one_line;
use crate::lists::PreparedLists;
use crate::log::Sink;
use crate::people::PreparedLogins;
use crate::record::Query;
use crate::run::control::Reloaded;
use crate::sandbox;
use crate::shared::{OpenListener, Shared, StartError, ValueSources, listener};
use crate::tls::served::CertificateStamp;
use crate::tls::site_certificates::SiteCertificates;
use std::collections::HashSet;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;

mod upkeep;

pub use upkeep::keep_up;

/// Settings of before that wait for their last user; further ones are freed by that user.
const RETIRED_MAX: usize = 16;

impl Shared {
    /// Reads the configuration again and puts it in force, or says why not and leaves all as it was.
    pub fn reload(&self) -> Result<Reloaded, String> {
        let mut listeners = self.listeners.lock();
        let result = self
            .prepare_beside(&listeners)
            .map_err(sandbox::with_remedy)
            .map(|prepared| self.put_in_force(prepared, &mut listeners));
        let count = if result.is_ok() { &self.reloads.done } else { &self.reloads.refused };
        count.fetch_add(1, Ordering::Relaxed);
        result
    }

    /// Prepares on a thread that leaves the cores to the workers: a table of a thousand rules takes some milliseconds.
    fn prepare_beside(&self, listeners: &[OpenListener]) -> Result<Prepared, String> {
        let work = || {
            background::lower_priority();
            self.prepare(listeners)
        };
        std::thread::scope(|scope| match std::thread::Builder::new().name("reload".into()).spawn_scoped(scope, work) {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            // No thread can be had now.
            Err(_) => self.prepare(listeners),
        })
    }

    fn prepare(&self, listeners: &[OpenListener]) -> Result<Prepared, String> {
        let reread = self.reread.as_ref().ok_or("this server has no configuration that could be read again")?;
        let Loaded { config: mut wanted, sources, files, .. } = reread()?;
        let old = self.common.live.value();
        let (mut reloaded, mut from) = (Reloaded::default(), Config::clone(&old));
        for setting in manual::differences(&old, &wanted) {
            // A value that is computed anew from what is free today is no change that a person asked for.
            let is_computed = matches!(sources.get(setting.name), Some(ValueSource::Computed(_)));
            match setting.changes_at {
                ChangesAt::Restart if is_computed => setting.copy(&mut from, &mut wanted),
                ChangesAt::Reload => reloaded.changed.push(setting.name.to_owned()),
                ChangesAt::Restart => {
                    setting.copy(&mut from, &mut wanted);
                    reloaded.needs_restart.push(setting.name.to_owned());
                }
            }
        }
        if old.listens != wanted.listens {
            reloaded.changed.push("listen".to_owned());
        }
        if old.sites != wanted.sites {
            reloaded.changed.push("site".to_owned());
        }
        if old.mirrors != wanted.mirrors {
            reloaded.changed.push("mirror".to_owned());
        }
        if old.origins != wanted.origins {
            reloaded.changed.push("origin".to_owned());
        }
        if old.mounts != wanted.mounts {
            reloaded.changed.push("python".to_owned());
        }
        if old.lists != wanted.lists {
            reloaded.changed.push("list".to_owned());
        }
        if old.rules != wanted.rules {
            reloaded.changed.push("rule".to_owned());
        }
        if old.parents != wanted.parents {
            reloaded.changed.push("parent".to_owned());
        }
        if old.siblings != wanted.siblings {
            reloaded.changed.push("sibling".to_owned());
        }
        if old.bandwidths != wanted.bandwidths {
            reloaded.changed.push("bandwidth".to_owned());
        }
        if old.icaps != wanted.icaps {
            reloaded.changed.push("icap".to_owned());
        }
        if old.store_rules != wanted.store_rules {
            reloaded.changed.push("store_rule".to_owned());
        }
        if old.helpers != wanted.helpers {
            reloaded.changed.push("helper".to_owned());
        }
        if old.logins != wanted.logins {
            reloaded.changed.push("login".to_owned());
        }
        sandbox::covers(&wanted, &files)?;
        reloaded.read_again = read_again(&wanted);
        let people = self.common.people.prepare(&wanted)?;
        let log = new_log(&old, &wanted)?;
        let of_sites = &self.common.site_certificates;
        let new_listeners = new_listeners(&wanted, listeners, of_sites).map_err(|error| in_one_line(&error))?;
        // Last, for it may take as long as reading a list does.
        let lists = self.list_keeper.prepare(&wanted.lists, wanted.access.country_file.as_deref())?;
        Ok(Prepared { config: wanted, sources, log, people, lists, new_listeners, reloaded })
    }

    /// Nothing in here fails.
    fn put_in_force(&self, prepared: Prepared, listeners: &mut Vec<OpenListener>) -> Reloaded {
        let Prepared { config, sources, log, people, lists, mut new_listeners, reloaded } = prepared;
        self.interception.pass.configure(config.intercept.pass.clone());
        let query = Query::hidden_if(config.log_hides_query);
        match log {
            NewLog::Same => {}
            NewLog::Off => self.common.log.change(None, query),
            NewLog::Of(log, sink) => self.common.log.change(Some((&log, sink)), query),
        }
        let mut old: Vec<Option<OpenListener>> = listeners.drain(..).map(Some).collect();
        // The listeners change before the settings: a memo of a judgement by an old listener and the new settings would count as
        // one by the new settings alone. New listeners open last.
        for new in &mut new_listeners {
            if let ListenerChange::Replaces(number) = new.change
                && let Some(old) = old[number].take()
            {
                old.listener.replace_by(Arc::clone(&new.open.listener));
                new.open.file = old.file;
                if let Some(file) = &new.open.file
                    && let Err(error) = file.change_mode(new.mode)
                {
                    tracing::error!("the mode of {} stays as it was: {error}", file.path().display());
                }
            }
        }
        let closing = old.iter().flatten();
        self.note_own_addresses(new_listeners.iter().map(|new| &new.open).chain(closing));
        if let Err(error) = self.nursery.have(&config.mounts) {
            tracing::error!("the applications of [[python]] cannot be started: {error}");
        }
        self.nursery.reload();
        // Before the settings: rules that name a new list find it.
        if let Err(error) = self.list_keeper.have(&config.lists, lists) {
            tracing::error!("the lists of [[list]] cannot be kept: {error}");
        }
        if let Err(error) = self.acme.have(&config) {
            tracing::error!("certificates of sites cannot be kept: {error}");
        }
        self.groups.have(&config.origins);
        if let Err(error) = self.common.people.have(people, &config) {
            tracing::error!("the helpers cannot be started: {error}");
        }
        let rules: HashSet<String> = config.rule_table.table.rules().iter().map(ToString::to_string).collect();
        let before = self.common.live.replace(config);
        let mut retired = self.retired.lock();
        if retired.len() < RETIRED_MAX {
            retired.push(before);
        }
        drop(retired);
        self.common.counters.refused.lock().keep(|rule| rules.contains(rule));
        *self.sources.lock() = sources;
        for (number, new) in new_listeners.into_iter().enumerate() {
            if let ListenerChange::Opens(sockets) = new.change {
                self.open_on_workers(sockets, &new.open.listener);
            }
            if let Some(socket) = new.quic {
                self.open_quic_on_worker(socket, &new.open.listener, number);
            }
            listeners.push(new.open);
        }
        old.into_iter().flatten().for_each(|open| open.listener.close());
        self.note_own_addresses(listeners.iter());
        reloaded
    }
}

/// The files of a configuration that are read at each reload, whether a setting has changed or not.
fn read_again(wanted: &Config) -> Vec<String> {
    let certificates = wanted.listens.iter().filter(|listen| !listen.tls.is_empty());
    let certificates = certificates.map(|listen| format!("the certificates of {}", listen.name()));
    let logins = wanted.logins.iter().filter(|login| login.file.is_some() || login.groups.is_some());
    let logins = logins.map(|login| format!("the files of login {}", login.name));
    let lists = wanted.lists.iter().filter(|list| matches!(list.source, ListSource::Path(_)));
    let lists = lists.map(|list| format!("the list {}, where it has changed", list.name));
    certificates.chain(logins).chain(lists).collect()
}

/// All that is ready to be put in force.
struct Prepared {
    config: Config,
    sources: ValueSources,
    log: NewLog,
    people: PreparedLogins,
    lists: PreparedLists,
    new_listeners: Vec<NewListener>,
    reloaded: Reloaded,
}

enum NewLog {
    Same,
    Off,
    Of(Log, Sink),
}

/// A listener of the new configuration.
struct NewListener {
    open: OpenListener,
    change: ListenerChange,
    /// The mode of the file of its Unix socket.
    mode: u32,
    /// A socket for HTTP/3, which the listener before it did not speak.
    quic: Option<UdpSocket>,
}

enum ListenerChange {
    /// The sockets of the old listener with this number stay; certificates and all other settings are new.
    Replaces(usize),
    /// These sockets are new.
    Opens(Vec<TcpListener>),
}

fn new_log(old: &Config, wanted: &Config) -> Result<NewLog, String> {
    match &wanted.log {
        log if *log == old.log && wanted.log_hides_query == old.log_hides_query => Ok(NewLog::Same),
        None => Ok(NewLog::Off),
        Some(log) => match Sink::open(&log.to) {
            Ok(sink) => Ok(NewLog::Of(log.clone(), sink)),
            Err(error) => Err(format!("log.to: cannot open {}: {error}", log_place(&log.to))),
        },
    }
}

fn log_place(to: &LogTo) -> String {
    match to {
        LogTo::Stdout => "standard output".to_owned(),
        LogTo::Stderr => "standard error".to_owned(),
        LogTo::File(path) | LogTo::Syslog(path) => path.display().to_string(),
    }
}

/// Certificates are read anew even when nothing else changed: that is how renewed ones come in force.
fn new_listeners(
    wanted: &Config,
    listeners: &[OpenListener],
    of_sites: &Arc<SiteCertificates>,
) -> Result<Vec<NewListener>, StartError> {
    let mut taken = vec![false; listeners.len()];
    let mut new_listeners = Vec::new();
    for listen in &wanted.listens {
        let files = CertificateStamp::of(listen);
        let new = listener(listen, of_sites)?;
        let number =
            (0..listeners.len()).find(|&number| !taken[number] && listeners[number].configured == listen.address);
        let (bound, change) = match number {
            Some(number) if listeners[number].listener.transparent != listen.transparent => {
                let error =
                    io::Error::other("`transparent` has changed, which its sockets can't follow: restart Larder");
                return Err(StartError::Listen(listen.name(), error));
            }
            Some(number) => {
                taken[number] = true;
                (listeners[number].bound, ListenerChange::Replaces(number))
            }
            None => {
                let sockets = bind(listen, wanted.workers)?;
                let bound = bind::address_of(&sockets, listen);
                (bound, ListenerChange::Opens(sockets))
            }
        };
        let has_quic_socket = number.is_some_and(|number| listeners[number].has_quic_socket);
        let quic = (listen.http3 && !has_quic_socket).then(|| bind::bind_quic(bound)).transpose();
        let quic = quic.map_err(|error| StartError::ListenUdp(bound, error))?;
        new.note_bound(bound, has_quic_socket);
        let has_quic_socket = has_quic_socket || listen.http3;
        // That of sockets which stay is taken over from the listener before.
        let file = if matches!(change, ListenerChange::Opens(_)) { SocketFile::of(listen) } else { None };
        new_listeners.push(NewListener {
            open: OpenListener { configured: listen.address, bound, files, listener: new, file, has_quic_socket },
            change,
            mode: listen.mode,
            quic,
        });
    }
    Ok(new_listeners)
}

fn bind(listen: &Listen, workers: usize) -> Result<Vec<TcpListener>, StartError> {
    if listen.activation.is_some() {
        let error = io::Error::other("a socket for `activation` is passed at the start alone: restart Larder");
        return Err(StartError::Listen(listen.name(), error));
    }
    bind::bind_listener(listen, workers).map_err(|error| StartError::Listen(listen.name(), error))
}
