//! Ports, limits, memory, clock, names and trust.

use super::Finding;
use crate::acme;
use crate::bind;
use crate::clock;
use crate::config::units::show_size;
use crate::config::{Config, container, descriptors};
use crate::run::control;
use crate::tls;
use crate::tls::ca::Authority;
use larder_wire::Host;
use parking_lot::Mutex;
use std::fs;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Connections that may wait to be accepted; the kernel may cut it.
const BACKLOG: u64 = 4_096;

/// How long the look-ups of all names may take together.
const NAMES_WITHIN: Duration = Duration::from_secs(5);

/// Names that are looked up at once.
const LOOKUPS_MAX: usize = 64;

/// 2026-01-01: a clock before it is wrong.
const EARLIEST_SECONDS: u64 = 1_767_225_600;

pub(super) fn ports(config: &Config) -> Vec<Finding> {
    let runs = config.store_folder().is_some_and(|folder| UnixStream::connect(control::socket(&folder)).is_ok());
    // A socket that is passed was opened before the start, and its port is in use for that reason.
    let opened = config.listens.iter().filter(|listen| listen.socket.is_none() && listen.activation.is_none());
    let listens = opened.map(|listen| ("listen", listen.address));
    let all = listens.chain(config.admin.map(|address| ("admin", address)));
    all.map(|(setting, address)| port(setting, address, runs)).collect()
}

fn port(setting: &str, address: SocketAddr, runs: bool) -> Finding {
    let what = format!("{setting} {address}");
    match bind::bind_for(address, 1) {
        Ok(_) => Finding::well(what, "free"),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && runs => {
            Finding::well(what, "in use; a larder runs with this store")
        }
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let remedy = format!("stop the other program (`ss -ltnp` names it), or set another `{setting}`");
            Finding::bad(what, "in use by another program", remedy)
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let remedy = "give the right: `setcap cap_net_bind_service=+ep`, AmbientCapabilities in systemd, or a port above 1023";
            Finding::bad(what, "ports below 1024 need a right", remedy)
        }
        Err(error) => Finding::bad(what, format!("cannot be listened on: {error}"), format!("set another `{setting}`")),
    }
}

/// The page answers nobody where others can connect and there is no token.
pub(super) fn page(config: &Config) -> Option<Finding> {
    let address = config.admin.filter(|_| config.page_is_closed())?;
    let remedy = "set `admin_token`, or `admin = \"none\"`; the commands ask by the control socket";
    let says = "answers nobody without a token, for others can connect to a listener";
    Some(Finding::poor(format!("page {address}"), says, remedy))
}

pub(super) fn open_files(config: &Config) -> Finding {
    let mut fitted = config.clone();
    match descriptors::fit(&mut fitted) {
        None => Finding::well("open files", format!("enough for {} connections", config.limits.connections_max)),
        Some(note) => {
            let (says, remedy) = note.split_once(": ").unwrap_or((&note, "raise the limit"));
            Finding::poor("open files", says, remedy)
        }
    }
}

pub(super) fn backlog() -> Finding {
    let path = "/proc/sys/net/core/somaxconn";
    match fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok()) {
        Some(most) if most < BACKLOG => {
            let says = format!("{most} connections may wait to be accepted");
            Finding::poor("backlog", says, format!("sysctl -w net.core.somaxconn={BACKLOG}"))
        }
        Some(_) => Finding::well("backlog", format!("{BACKLOG} connections may wait to be accepted")),
        None => Finding::poor("backlog", format!("{path} cannot be read"), "mount /proc"),
    }
}

pub(super) fn memory(config: &Config) -> Finding {
    let budget = config.memory_bytes;
    let Some(available) = available_memory() else {
        return Finding::poor("memory", "/proc/meminfo cannot be read", "mount /proc");
    };
    let says =
        format!("{} available, the budget is {}", show_size(available / 1_000_000 * 1_000_000), show_size(budget));
    match budget > available {
        true => Finding::bad("memory", says, "lower `memory`"),
        false => Finding::well("memory", says),
    }
}

fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let free = line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024;
    Some(container::limit_bytes().map_or(free, |limit| limit.min(free)))
}

pub(super) fn clock() -> Finding {
    let now = clock::now();
    let says = String::from_utf8_lossy(&larder_wire::date::format_date(now)).into_owned();
    match now.0 < EARLIEST_SECONDS {
        true => Finding::bad("clock", says, "set it: freshness and certificates are judged by it"),
        false => Finding::well("clock", says),
    }
}

/// Whether the names of configured origins are found.
pub(super) fn names(config: &Config) -> Vec<Finding> {
    let mut findings = vec![servers()];
    let listens = config.listens.iter().filter_map(|listen| listen.origin.as_ref());
    let origins = config.sites.iter().map(|site| &site.origin).chain(listens);
    let mut hosts: Vec<&Host> = origins.map(|origin| &origin.host).filter(|host| host.ip().is_none()).collect();
    hosts.sort();
    hosts.dedup();
    findings.extend(look_up(&hosts));
    findings
}

fn servers() -> Finding {
    let text = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let servers: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("nameserver")?.split_whitespace().next()).collect();
    match servers.is_empty() {
        true => Finding::poor(
            "DNS",
            "/etc/resolv.conf names no server: only the hosts file is known",
            "name one there, or set `upstream.resolver = \"system\"`",
        ),
        false => Finding::well("DNS", format!("servers {}", servers.join(", "))),
    }
}

type Addresses = io::Result<Vec<String>>;

/// Looks all names up at once: name servers that do not answer cost one wait, however many names there are.
fn look_up(hosts: &[&Host]) -> Vec<Finding> {
    let names: Vec<(usize, String)> = hosts.iter().map(|host| format!("{host}:80")).enumerate().collect();
    let many = names.len().min(LOOKUPS_MAX);
    let queue = Arc::new(Mutex::new(names.into_iter()));
    let (tell, told) = mpsc::channel();
    for _ in 0..many {
        let (queue, tell) = (queue.clone(), tell.clone());
        let work = move || {
            while let Some((index, name)) = take(&queue) {
                let found = name.to_socket_addrs().map(|all| all.map(|one| one.ip().to_string()).collect());
                // Nobody hears what comes after the deadline.
                if tell.send((index, found)).is_err() {
                    return;
                }
            }
        };
        // Where there is no room for more threads, those that are there have all names.
        let _ = std::thread::Builder::new().name("name".into()).spawn(work);
    }
    drop(tell);
    let mut found: Vec<Option<Addresses>> = hosts.iter().map(|_| None).collect();
    let deadline = Instant::now() + NAMES_WITHIN;
    while let Ok((index, addresses)) = told.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        found[index] = Some(addresses);
    }
    hosts.iter().zip(found).map(|(host, found)| name(host, found)).collect()
}

/// The next name. The lock is not held during its look-up.
fn take(queue: &Mutex<std::vec::IntoIter<(usize, String)>>) -> Option<(usize, String)> {
    queue.lock().next()
}

/// `found` is `None` where the look-up did not end in time.
fn name(host: &Host, found: Option<Addresses>) -> Finding {
    let what = format!("name {host}");
    match found {
        Some(Ok(mut addresses)) if !addresses.is_empty() => {
            addresses.dedup();
            Finding::well(what, addresses.join(", "))
        }
        Some(Err(error)) => Finding::bad(what, error.to_string(), "correct the site's `origin`, or the name's records"),
        _ => Finding::bad(what, "not found in time", "look at the servers in /etc/resolv.conf"),
    }
}

pub(super) fn trust(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let roots = match tls::roots(&config.upstream.extra_roots) {
        Ok(roots) => roots,
        Err(error) => return vec![Finding::bad("roots", error.to_string(), "correct `upstream.extra_roots`")],
    };
    findings.push(match roots.certificates.len() {
        0 => Finding::bad(
            "roots",
            "there are none: no origin can be verified",
            "install ca-certificates, or set SSL_CERT_FILE",
        ),
        many => Finding::well("roots", format!("{many} certificates are trusted for origins")),
    });
    let Some(folder) = config.authority_folder().filter(|folder| Authority::exists(folder)) else {
        let intercepts = config.listens.iter().any(|listen| listen.intercept);
        if intercepts {
            let remedy = "`larder ca` makes it and shows what clients must trust";
            findings.push(Finding::poor("local CA", "not made yet", remedy));
        }
        return findings;
    };
    findings.push(match Authority::open(&folder, clock::now()) {
        Err(error) => Finding::bad("local CA", error.to_string(), format!("look at {}", folder.display())),
        Ok(authority) if roots.certificates.contains(authority.certificate()) => {
            Finding::well("local CA", "trusted by this machine")
        }
        Ok(authority) => Finding::poor(
            "local CA",
            "not trusted by this machine; `larder run` needs no such trust",
            format!("for interception copy {} to /usr/local/share/ca-certificates/larder.crt and run update-ca-certificates", authority.certificate_path().display()),
        ),
    });
    findings
}

/// The certificates that sites have by ACME.
pub(super) fn certificates(config: &Config) -> Vec<Finding> {
    let many = config.acme_certificates().len();
    let notes = acme::notes(config);
    let remedy = "the log and the page of the running Larder say how its orders go";
    match (many, notes.is_empty()) {
        (0, _) => Vec::new(),
        (_, true) => vec![Finding::well("certificates", format!("{many} by ACME, none of them late"))],
        (_, false) => notes.into_iter().map(|note| Finding::poor("certificates", note, remedy)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    #[test]
    fn a_port_in_use_is_bad_unless_a_larder_has_it() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        assert_eq!(port("listen", address, false).state, State::Bad);
        assert_eq!(port("listen", address, true).state, State::Well);
        drop(taken);
        assert_eq!(port("listen", address, false).state, State::Well);
    }

    #[test]
    fn a_port_whose_socket_is_passed_is_not_tried() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let listen = crate::config::Listen::at(address);
        let mut config = Config { listens: vec![listen], admin: None, ..Config::default() };
        config.store = Some("/nonexistent".into());
        assert_eq!(ports(&config)[0].state, State::Bad);
        config.listens[0].activation = Some("web".into());
        assert_eq!(ports(&config), []);
    }

    #[test]
    fn a_name_that_is_not_there_is_bad() {
        // The name is too long for a label, so that no name server is asked.
        let nowhere = Host::parse(&format!("{}.invalid", "x".repeat(64))).unwrap();
        let localhost = Host::parse("localhost").unwrap();
        // More than are looked up at once, each with its own finding.
        let many = LOOKUPS_MAX + 10;
        let hosts: Vec<&Host> = (0..many).map(|index| if index % 2 == 0 { &localhost } else { &nowhere }).collect();
        let findings = look_up(&hosts);
        assert_eq!(findings.len(), many);
        for (index, finding) in findings.iter().enumerate() {
            let expected = if index % 2 == 0 { State::Well } else { State::Bad };
            assert_eq!(finding.state, expected, "{index}: {finding:?}");
        }
        assert_eq!(look_up(&[]), []);
    }

    #[test]
    fn names_that_are_not_found_in_time_are_said() {
        let host = Host::parse("slow.example").unwrap();
        let finding = name(&host, None);
        assert!(finding.state == State::Bad && finding.says.contains("not found in time"), "{finding:?}");
    }

    #[test]
    fn a_budget_beyond_the_memory_is_bad() {
        let config = Config { memory_bytes: 1 << 60, ..Config::default() };
        assert_eq!(memory(&config).state, State::Bad);
        assert_eq!(clock().state, State::Well);
    }
}
