//! Names to addresses: literal addresses, `localhost`, the hosts file, and then either name servers that
//! we ask ourselves (answers kept for their TTL) or the system's own resolver. No connection is made here.

use super::fault::{DnsTrouble, UpstreamFault, UpstreamFaultKind};
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{IntoName, Name, RecordType};
use hickory_resolver::{Hosts, TokioResolver};
use larder_wire::Host;
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, SystemTime};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Who is asked for the address of a name.
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
/// Answers kept, per worker.
const ANSWERS_MAX: u64 = 4096;
/// An answer is kept at least and at most this long, whatever its TTL says.
const POSITIVE_TTL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));
/// The same for "there is no such name".
const NEGATIVE_TTL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// The system's answers carry no TTL: kept this long, and so many.
const SYSTEM_KEEP: Duration = Duration::from_secs(30);
const SYSTEM_KEEP_NEGATIVE: Duration = Duration::from_secs(2);
const SYSTEM_ANSWERS_MAX: usize = 256;
/// Calls of `getaddrinfo` at once; each blocks a thread.
const SYSTEM_CALLS_MAX: usize = 8;
/// How often a file is looked at for changes.
const FILE_CHECK: Duration = Duration::from_secs(5);

/// The way from names to addresses, one per worker.
pub(super) struct Dns {
    asker: RefCell<Asker>,
    resolv_conf: Option<RefCell<Watched>>,
    hosts: RefCell<Hosts>,
    hosts_file: RefCell<Watched>,
}

#[derive(Clone)]
enum Asker {
    Direct(Box<TokioResolver>),
    System(Rc<System>),
}

/// Addresses, or why there are none.
pub(super) type Answer = Result<Vec<IpAddr>, UpstreamFault>;
type Asked = Pin<Box<dyn Future<Output = Answer>>>;

/// The answers to one question as they come in: IPv6 and IPv4 are asked at once and answered apart.
pub(super) struct Answers {
    ready: Option<Answer>,
    asked: Vec<Asked>,
}

impl Dns {
    /// A resolver of that kind. When `resolv.conf` can't be used, the system's resolver takes its place.
    pub fn new(choice: &ResolverChoice, hosts_file: &Path) -> Dns {
        let asker = match choice {
            ResolverChoice::Dns => direct_or_system(),
            ResolverChoice::Servers(servers) => with_servers(servers),
            ResolverChoice::System => Asker::System(Rc::new(System::new())),
        };
        let watched = matches!(choice, ResolverChoice::Dns).then(|| RefCell::new(Watched::new(RESOLV_CONF.as_ref())));
        Dns {
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
        match &*self.asker.borrow() {
            Asker::Direct(resolver) => Answers::waiting(
                [RecordType::AAAA, RecordType::A]
                    .map(|kind| Box::pin(ask_servers((**resolver).clone(), name.clone(), kind)) as Asked)
                    .into(),
            ),
            Asker::System(system) => Answers::waiting(vec![Box::pin(ask_system(system.clone(), host.as_str().into()))]),
        }
    }

    /// A name that stands in the hosts file has the addresses of that file and no others, as with `getaddrinfo`.
    fn in_hosts_file(&self, name: &Name) -> Vec<IpAddr> {
        let hosts = self.hosts.borrow();
        [RecordType::AAAA, RecordType::A]
            .into_iter()
            .filter_map(|kind| hosts.lookup_static_host(&Query::query(name.to_lowercase(), kind)))
            .flat_map(|lookup| lookup.answers().iter().filter_map(|record| record.data.ip_addr()).collect::<Vec<_>>())
            .collect()
    }

    fn reread_changed_files(&self) {
        let mut hosts_file = self.hosts_file.borrow_mut();
        if hosts_file.changed() {
            self.hosts.replace(read_hosts(&hosts_file.path));
        }
        if self.resolv_conf.as_ref().is_some_and(|file| file.borrow_mut().changed()) {
            self.asker.replace(direct_or_system());
        }
    }
}

impl Answers {
    fn ready(answer: Answer) -> Answers {
        Answers { ready: Some(answer), asked: Vec::new() }
    }

    fn waiting(asked: Vec<Asked>) -> Answers {
        Answers { ready: None, asked }
    }

    /// True when no further answer will come.
    pub fn is_done(&self) -> bool {
        self.ready.is_none() && self.asked.is_empty()
    }

    /// The next answer, in the order of arrival; pends for ever when all were taken. Cancel-safe.
    pub async fn next(&mut self) -> Answer {
        if let Some(answer) = self.ready.take() {
            return answer;
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

async fn ask_servers(resolver: TokioResolver, name: Name, kind: RecordType) -> Answer {
    let lookup = resolver.lookup(name.clone(), kind).await.map_err(|error| from_servers(&error, &name))?;
    Ok(lookup.answers().iter().filter_map(|record| record.data.ip_addr()).collect())
}

fn from_servers(error: &NetError, name: &Name) -> UpstreamFault {
    let trouble = match error {
        _ if error.is_nx_domain() || error.is_no_records_found() => DnsTrouble::NotFound,
        NetError::Timeout => DnsTrouble::Timeout,
        _ => DnsTrouble::Failed,
    };
    let said = match trouble {
        DnsTrouble::NotFound => "the name does not exist or has no address".to_owned(),
        _ => error.to_string(),
    };
    fault(trouble, &name.to_string(), &said)
}

fn fault(trouble: DnsTrouble, name: &str, said: &str) -> UpstreamFault {
    UpstreamFault::new(UpstreamFaultKind::Dns(trouble), format!("no address for {name}: {said}"))
}

fn direct_or_system() -> Asker {
    let built = hickory_resolver::system_conf::read_system_conf().and_then(|(config, options)| {
        TokioResolver::builder_with_config(config, provider()).with_options(bounded(options)).build()
    });
    match built {
        Ok(resolver) => Asker::Direct(Box::new(resolver)),
        Err(error) => {
            tracing::warn!(%error, "{RESOLV_CONF} can't be used; names are looked up by the system's resolver");
            Asker::System(Rc::new(System::new()))
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
        Ok(resolver) => Asker::Direct(Box::new(resolver)),
        Err(error) => {
            tracing::warn!(%error, "the configured name servers can't be used; names are looked up by the system's resolver");
            Asker::System(Rc::new(System::new()))
        }
    }
}

fn provider() -> TokioRuntimeProvider {
    TokioRuntimeProvider::default()
}

/// Keeps TTLs within our bounds; the hosts file is our own business.
fn bounded(mut options: ResolverOpts) -> ResolverOpts {
    options.cache_size = ANSWERS_MAX;
    options.use_hosts_file = ResolveHosts::Never;
    (options.positive_min_ttl, options.positive_max_ttl) = (Some(POSITIVE_TTL.0), Some(POSITIVE_TTL.1));
    (options.negative_min_ttl, options.negative_max_ttl) = (Some(NEGATIVE_TTL.0), Some(NEGATIVE_TTL.1));
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

/// `getaddrinfo` on the blocking pool, with a small memory.
struct System {
    kept: RefCell<HashMap<Box<str>, (Instant, Answer)>>,
    calls: Semaphore,
}

impl System {
    fn new() -> System {
        System { kept: RefCell::default(), calls: Semaphore::new(SYSTEM_CALLS_MAX) }
    }

    fn recall(&self, name: &str) -> Option<Answer> {
        let kept = self.kept.borrow();
        kept.get(name).filter(|(until, _)| Instant::now() < *until).map(|(_, answer)| answer.clone())
    }

    fn keep(&self, name: Box<str>, answer: &Answer) {
        let now = Instant::now();
        let mut kept = self.kept.borrow_mut();
        if kept.len() >= SYSTEM_ANSWERS_MAX {
            kept.retain(|_, (until, _)| now < *until);
        }
        if kept.len() >= SYSTEM_ANSWERS_MAX {
            kept.clear();
        }
        let time = if answer.is_ok() { SYSTEM_KEEP } else { SYSTEM_KEEP_NEGATIVE };
        kept.insert(name, (now + time, answer.clone()));
    }
}

async fn ask_system(system: Rc<System>, name: Box<str>) -> Answer {
    if let Some(answer) = system.recall(&name) {
        return answer;
    }
    let _call = system.calls.acquire().await;
    // Another call may have brought the answer while this one waited for its turn.
    if let Some(answer) = system.recall(&name) {
        return answer;
    }
    let asked = name.clone();
    let answer = match tokio::task::spawn_blocking(move || (&*asked, 0u16).to_socket_addrs()).await {
        Ok(Ok(addresses)) => {
            let mut unique: Vec<IpAddr> = Vec::new();
            addresses.map(|address| address.ip()).for_each(|ip| {
                if !unique.contains(&ip) {
                    unique.push(ip);
                }
            });
            Ok(unique)
        }
        Ok(Err(error)) => Err(from_system(&error, &name)),
        Err(error) => Err(fault(DnsTrouble::Failed, &name, &error.to_string())),
    };
    system.keep(name, &answer);
    answer
}

fn from_system(error: &std::io::Error, name: &str) -> UpstreamFault {
    // The library tells the two apart only in its text (EAI_AGAIN, EAI_FAIL against EAI_NONAME, EAI_NODATA).
    let text = error.to_string();
    let passing =
        text.contains("Temporary failure") || text.contains("Non-recoverable") || text.contains("System error");
    fault(if passing { DnsTrouble::Failed } else { DnsTrouble::NotFound }, name, &text)
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
        let dns = Dns::new(&ResolverChoice::System, &path);
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
    fn the_systems_answers_are_few() {
        let system = System::new();
        for number in 0..3 * SYSTEM_ANSWERS_MAX {
            system.keep(number.to_string().into(), &Ok(Vec::new()));
            assert!(system.kept.borrow().len() <= SYSTEM_ANSWERS_MAX);
            assert!(system.recall(&number.to_string()).is_some());
        }
    }

    #[test]
    fn names_of_this_machine() {
        for (name, is) in [("localhost", true), ("a.localhost.", true), ("notlocalhost", false), ("localhost.a", false)]
        {
            assert_eq!(is_localhost(name), is, "{name}");
        }
    }
}
