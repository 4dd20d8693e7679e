//! Names to addresses: literal addresses, `localhost`, the hosts file, and then either name servers that
//! Larder asks itself (answers kept for their TTL) or the system's own resolver. No connection is made here.
//!
//! The resolver library keeps nothing: its cache counts answers, whatever their length. See [`super::dns_cache`].

use super::dns_cache::{ADDRESSES_PER_ANSWER_MAX, DnsAnswer};
use super::fault::{DnsTrouble, UpstreamFault, UpstreamFaultKind};
use super::memory::Memory;
use super::unreachable::{Addresses, Target};
#[cfg(test)]
use crate::in_memory::network;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError, NoRecords};
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{IntoName, Name, Record, RecordType};
use hickory_resolver::{Hosts, TokioResolver};
use larder_wire::Host;
use std::borrow::Cow;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// The source of addresses of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ResolverChoice {
    /// The name servers of `/etc/resolv.conf`, asked by ourselves, answers kept for their TTL.
    #[default]
    Dns,
    /// These name servers, asked by ourselves.
    Servers(Vec<SocketAddr>),
    /// The system's resolver (`getaddrinfo`), which also knows mDNS and directory services but tells no TTL.
    System,
}

const RESOLV_CONF: &str = "/etc/resolv.conf";
/// An answer is kept at least and at most this long, whatever its TTL says.
const POSITIVE_TTL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));
/// The least and the most time for which "there is no such name" is kept.
const NEGATIVE_TTL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// The system's answers carry no TTL: kept this long.
const SYSTEM_KEEP: Duration = Duration::from_secs(30);
const SYSTEM_KEEP_NEGATIVE: Duration = Duration::from_secs(2);
/// Questions to name servers at once, per worker: an answer may have 64 kB while it arrives.
const LOOKUPS_MAX: usize = 256;
/// Calls of `getaddrinfo` at once; each blocks a thread.
const SYSTEM_CALLS_MAX: usize = 8;
/// How often a file is looked at for changes.
const FILE_CHECK: Duration = Duration::from_secs(5);

/// The way from names to addresses, one per worker.
pub(super) struct Dns {
    memory: Arc<Memory>,
    /// How long an answer is waited for; the caller ends the wait.
    limit: Duration,
    asker: RefCell<Asker>,
    resolv_conf: Option<RefCell<Watched>>,
    hosts: RefCell<Hosts>,
    hosts_file: RefCell<Watched>,
}

#[derive(Clone)]
enum Asker {
    Direct(Box<TokioResolver>, Rc<Semaphore>),
    System(Rc<Semaphore>),
    /// The simulated network.
    #[cfg(test)]
    Simulated(Rc<dyn network::Network>),
}

/// Addresses, or why there are none.
pub(super) type Answer = Result<Vec<IpAddr>, UpstreamFault>;
type Asked = Pin<Box<dyn Future<Output = Answer>>>;

/// The answers to one question as they come in: IPv6 and IPv4 are asked at once and answered apart.
#[derive(Default)]
pub(super) struct Answers {
    ready: Vec<Answer>,
    asked: Vec<Asked>,
}

impl Dns {
    /// A resolver of that kind. When `resolv.conf` can't be used, the system's resolver takes its place.
    pub fn new(choice: &ResolverChoice, hosts_file: &Path, memory: &Arc<Memory>, limit: Duration) -> Dns {
        let asker = match choice {
            #[cfg(test)]
            ResolverChoice::Servers(_) if let Some(network) = network::current() => Asker::Simulated(network),
            ResolverChoice::Dns => direct_or_system(),
            ResolverChoice::Servers(servers) => with_servers(servers),
            ResolverChoice::System => system(),
        };
        let watched = matches!(choice, ResolverChoice::Dns).then(|| RefCell::new(Watched::new(RESOLV_CONF.as_ref())));
        Dns {
            memory: Arc::clone(memory),
            limit,
            asker: RefCell::new(asker),
            resolv_conf: watched,
            hosts: RefCell::new(read_hosts(hosts_file)),
            hosts_file: RefCell::new(Watched::new(hosts_file)),
        }
    }

    /// Asks for the addresses of a host.
    pub fn ask(&self, host: &Host) -> Answers {
        if let Some(ip) = host.ip() {
            return Answers::ready(Ok(vec![ip]));
        }
        if is_localhost(host.as_str()) {
            return Answers::ready(Ok(vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()]));
        }
        let Ok(name) = host.as_str().into_name() else {
            return Answers::ready(Err(fault(DnsTrouble::NotFound, host.as_str(), "it is no domain name")));
        };
        self.reread_changed_files();
        let known = self.in_hosts_file(&name);
        if !known.is_empty() {
            return Answers::ready(Ok(known));
        }
        self.ask_for(&name, host.as_str().into())
    }

    /// A known answer is given at once; a question that was not answered of late is not asked again so soon.
    fn ask_for(&self, name: &Name, text: Arc<str>) -> Answers {
        let asker = self.asker.borrow();
        let questions: &[Addresses] = match &*asker {
            Asker::Direct(..) => &[Addresses::V6, Addresses::V4],
            #[cfg(test)]
            Asker::Simulated(_) => &[Addresses::V6, Addresses::V4],
            Asker::System(_) => &[Addresses::All],
        };
        let (mut answers, now) = (Answers::default(), Instant::now());
        for &which in questions {
            if let Some(told) = self.memory.answers.find(&text, which, now) {
                answers.ready.push(told.map_err(|trouble| fault(trouble, &text, said_by(trouble))));
                continue;
            }
            let target = Target::Name(Arc::clone(&text), which);
            let attempt = match self.memory.unreachable.attempt(target, self.limit, now) {
                Ok(attempt) => attempt,
                Err(avoided) => {
                    answers.ready.push(Err(fault(DnsTrouble::Timeout, &text, &avoided.to_string())));
                    continue;
                }
            };
            let (asker, name, text, memory) =
                (asker.clone(), name.clone(), Arc::clone(&text), Arc::clone(&self.memory));
            answers.asked.push(Box::pin(async move {
                let found = match asker {
                    Asker::Direct(resolver, lookups) => ask_servers(&resolver, &lookups, name, which).await,
                    Asker::System(calls) => ask_system(&calls, &memory, &text).await,
                    #[cfg(test)]
                    Asker::Simulated(network) => ask_simulated(&*network, &text, which).await,
                };
                match &found.told {
                    Err(DnsTrouble::Failed | DnsTrouble::Timeout) => attempt.failed(Instant::now()),
                    Ok(_) | Err(DnsTrouble::NotFound) => attempt.answered(),
                }
                if let Some(time) = found.holds {
                    memory.answers.insert(&text, which, &found.told, Instant::now() + time);
                }
                found.told.map_err(|trouble| fault(trouble, &text, &found.said))
            }));
        }
        answers
    }

    /// A name that stands in the hosts file has the addresses of that file and no others, as with `getaddrinfo`.
    fn in_hosts_file(&self, name: &Name) -> Vec<IpAddr> {
        let hosts = self.hosts.borrow();
        [RecordType::AAAA, RecordType::A]
            .into_iter()
            .filter_map(|kind| hosts.lookup_static_host(&Query::query(name.to_lowercase(), kind)))
            .flat_map(|lookup| addresses_of(lookup.answers()))
            .collect()
    }

    fn reread_changed_files(&self) {
        let mut hosts_file = self.hosts_file.borrow_mut();
        if hosts_file.changed() {
            self.hosts.replace(read_hosts(&hosts_file.path));
        }
        if self.resolv_conf.as_ref().is_some_and(|file| file.borrow_mut().changed()) {
            self.asker.replace(direct_or_system());
            self.memory.answers.clear();
        }
    }
}

impl Answers {
    fn ready(answer: Answer) -> Answers {
        Answers { ready: vec![answer], asked: Vec::new() }
    }

    /// True when no further answer will come.
    pub fn is_done(&self) -> bool {
        self.ready.is_empty() && self.asked.is_empty()
    }

    /// The next answer, in the order of arrival; pends for ever when all were taken. Cancel-safe.
    pub async fn next(&mut self) -> Answer {
        if !self.ready.is_empty() {
            return self.ready.remove(0);
        }
        poll_fn(|cx| {
            for at in 0..self.asked.len() {
                if let Poll::Ready(answer) = self.asked[at].as_mut().poll(cx) {
                    drop(self.asked.remove(at));
                    return Poll::Ready(answer);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// `localhost` and all names below it mean this machine (RFC 6761 section 6.3).
fn is_localhost(host: &str) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host);
    name == "localhost" || name.ends_with(".localhost")
}

/// The result of a question.
struct Found {
    told: DnsAnswer,
    /// One fact about a failure.
    said: Cow<'static, str>,
    /// How long it may be kept; `None` for what says nothing about the name.
    holds: Option<Duration>,
}

impl Found {
    fn addresses(addresses: Vec<IpAddr>, holds: Duration) -> Found {
        Found { told: Ok(addresses), said: Cow::Borrowed(""), holds: Some(holds) }
    }

    fn not_found(holds: Duration) -> Found {
        let said = Cow::Borrowed(said_by(DnsTrouble::NotFound));
        Found { told: Err(DnsTrouble::NotFound), said, holds: Some(holds) }
    }

    fn trouble(trouble: DnsTrouble, said: String) -> Found {
        Found { told: Err(trouble), said: Cow::Owned(said), holds: None }
    }
}

fn said_by(trouble: DnsTrouble) -> &'static str {
    match trouble {
        DnsTrouble::NotFound => "the name does not exist or has no address",
        DnsTrouble::Failed => "no name server gave a usable answer",
        DnsTrouble::Timeout => "no name server answered in time",
    }
}

async fn ask_servers(resolver: &TokioResolver, lookups: &Semaphore, name: Name, which: Addresses) -> Found {
    let _lookup = lookups.acquire().await;
    let kind = if which == Addresses::V6 { RecordType::AAAA } else { RecordType::A };
    match resolver.lookup(name, kind).await {
        Ok(lookup) => {
            let time = lookup.valid_until().saturating_duration_since(std::time::Instant::now());
            Found::addresses(addresses_of(lookup.answers()), time.clamp(POSITIVE_TTL.0, POSITIVE_TTL.1))
        }
        Err(NetError::Dns(DnsError::NoRecordsFound(NoRecords { negative_ttl, .. }))) => {
            let time = Duration::from_secs(negative_ttl.unwrap_or(0).into());
            Found::not_found(time.clamp(NEGATIVE_TTL.0, NEGATIVE_TTL.1))
        }
        Err(error) if error.is_nx_domain() => Found::not_found(NEGATIVE_TTL.0),
        Err(error @ NetError::Timeout) => Found::trouble(DnsTrouble::Timeout, error.to_string()),
        Err(error) => Found::trouble(DnsTrouble::Failed, error.to_string()),
    }
}

#[cfg(test)]
async fn ask_simulated(network: &dyn network::Network, name: &str, which: Addresses) -> Found {
    match network.resolve(name, which == Addresses::V6).await {
        network::NameAnswer::Addresses(addresses) => Found::addresses(addresses, POSITIVE_TTL.0),
        network::NameAnswer::NotFound => Found::not_found(NEGATIVE_TTL.0),
        network::NameAnswer::Failed => Found::trouble(DnsTrouble::Failed, "the name server says so".to_owned()),
    }
}

/// The addresses of an answer that are used.
fn addresses_of(records: &[Record]) -> Vec<IpAddr> {
    records.iter().filter_map(|record| record.data.ip_addr()).take(ADDRESSES_PER_ANSWER_MAX).collect()
}

fn fault(trouble: DnsTrouble, name: &str, said: &str) -> UpstreamFault {
    UpstreamFault::new(UpstreamFaultKind::Dns(trouble), format!("no address for {name}: {said}"))
}

fn direct_or_system() -> Asker {
    let built = hickory_resolver::system_conf::read_system_conf().and_then(|(config, options)| {
        TokioResolver::builder_with_config(config, provider()).with_options(bounded(options)).build()
    });
    match built {
        Ok(resolver) => Asker::Direct(Box::new(resolver), Rc::new(Semaphore::new(LOOKUPS_MAX))),
        Err(error) => {
            tracing::warn!(%error, "{RESOLV_CONF} can't be used; names are looked up by the system's resolver");
            system()
        }
    }
}

fn with_servers(servers: &[SocketAddr]) -> Asker {
    let servers = servers.iter().map(|server| {
        let on_port = |mut connection: ConnectionConfig| {
            connection.port = server.port();
            connection
        };
        let both = vec![on_port(ConnectionConfig::udp()), on_port(ConnectionConfig::tcp())];
        NameServerConfig::new(server.ip(), true, both)
    });
    let config = ResolverConfig::from_parts(None, Vec::new(), servers.collect());
    match TokioResolver::builder_with_config(config, provider()).with_options(bounded(ResolverOpts::default())).build()
    {
        Ok(resolver) => Asker::Direct(Box::new(resolver), Rc::new(Semaphore::new(LOOKUPS_MAX))),
        Err(error) => {
            tracing::warn!(%error, "the configured name servers can't be used; names are looked up by the system's resolver");
            system()
        }
    }
}

fn system() -> Asker {
    Asker::System(Rc::new(Semaphore::new(SYSTEM_CALLS_MAX)))
}

fn provider() -> TokioRuntimeProvider {
    TokioRuntimeProvider::default()
}

/// Answers and the hosts file are our own business.
fn bounded(mut options: ResolverOpts) -> ResolverOpts {
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options
}

fn read_hosts(path: &Path) -> Hosts {
    let mut hosts = Hosts::default();
    match std::fs::File::open(path).and_then(|file| hosts.read_hosts_conf(file)) {
        Ok(()) => hosts,
        Err(error) => {
            tracing::debug!(%error, path = %path.display(), "the hosts file can't be read and counts as empty");
            Hosts::default()
        }
    }
}

/// A file that is read again when its time stamp changes.
struct Watched {
    path: PathBuf,
    modified: Option<SystemTime>,
    check_at: Instant,
}

impl Watched {
    fn new(path: &Path) -> Watched {
        Watched { path: path.into(), modified: modified(path), check_at: Instant::now() + FILE_CHECK }
    }

    fn changed(&mut self) -> bool {
        let now = Instant::now();
        if now < self.check_at {
            return false;
        }
        self.check_at = now + FILE_CHECK;
        let before = std::mem::replace(&mut self.modified, modified(&self.path));
        before != self.modified
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|data| data.modified()).ok()
}

/// `getaddrinfo` on the blocking pool.
async fn ask_system(calls: &Semaphore, memory: &Memory, name: &Arc<str>) -> Found {
    let _call = calls.acquire().await;
    // Another call may have brought the answer while this one waited for its turn.
    if let Some(told) = memory.answers.find(name, Addresses::All, Instant::now()) {
        let said = Cow::Borrowed(told.as_ref().map_or_else(|trouble| said_by(*trouble), |_| ""));
        return Found { told, said, holds: None };
    }
    let asked = Arc::clone(name);
    match tokio::task::spawn_blocking(move || (&*asked, 0u16).to_socket_addrs()).await {
        Ok(Ok(addresses)) => {
            let mut unique: Vec<IpAddr> = Vec::new();
            for ip in addresses.map(|address| address.ip()) {
                if unique.len() < 2 * ADDRESSES_PER_ANSWER_MAX && !unique.contains(&ip) {
                    unique.push(ip);
                }
            }
            Found::addresses(unique, SYSTEM_KEEP)
        }
        Ok(Err(error)) => from_system(&error),
        Err(error) => Found::trouble(DnsTrouble::Failed, error.to_string()),
    }
}

fn from_system(error: &std::io::Error) -> Found {
    // The library tells the two apart only in its text (EAI_AGAIN, EAI_FAIL against EAI_NONAME, EAI_NODATA).
    let text = error.to_string();
    let passing =
        text.contains("Temporary failure") || text.contains("Non-recoverable") || text.contains("System error");
    match passing {
        true => Found::trouble(DnsTrouble::Failed, text),
        false => Found { said: Cow::Owned(text), ..Found::not_found(SYSTEM_KEEP_NEGATIVE) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(dns: &Dns, name: &str) -> Vec<IpAddr> {
        dns.in_hosts_file(&name.into_name().unwrap())
    }

    #[test]
    fn a_changed_hosts_file_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts");
        let dns = Dns::new(&ResolverChoice::System, &path, &Arc::default(), Duration::from_secs(1));
        assert!(addresses(&dns, "a.example").is_empty(), "a file that is not there counts as empty");
        std::fs::write(&path, "10.0.0.1 a.example\n::9 a.example\n").unwrap();
        dns.reread_changed_files();
        assert!(addresses(&dns, "a.example").is_empty(), "it is not looked at for each request");
        dns.hosts_file.borrow_mut().check_at = Instant::now();
        dns.reread_changed_files();
        let wanted: [IpAddr; 2] = ["::9".parse().unwrap(), "10.0.0.1".parse().unwrap()];
        assert_eq!(addresses(&dns, "A.Example."), wanted);
    }

    #[test]
    fn names_of_this_machine() {
        for (name, is) in [("localhost", true), ("a.localhost.", true), ("notlocalhost", false), ("localhost.a", false)]
        {
            assert_eq!(is_localhost(name), is, "{name}");
        }
    }
}
