//! From names to streams: hosts file, name servers, and the race between addresses.

use super::play::*;
use crate::config::Config;
use crate::live::{self, Live};
use crate::reach::{Asker, OwnAddresses, Reach, Way};
use crate::upstream::{DnsTrouble, Memory, ResolverChoice, UpstreamFaultKind, Upstreams};
use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use larder_wire::Host;
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

const EMPTY: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// Upstreams that know the names of these lines, and those that `resolver` knows.
fn with_hosts(lines: &str, resolver: ResolverChoice) -> (Upstreams, tempfile::NamedTempFile) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(lines.as_bytes()).unwrap();
    let path = file.path().to_owned();
    let upstreams = upstreams(|settings| {
        settings.hosts_file = path;
        settings.resolver = resolver;
        settings.connect_timeout = Duration::from_secs(2);
    });
    (upstreams, file)
}

/// An address that neither accepts nor refuses: its queue of new connections is full.
struct Blackhole {
    address: SocketAddr,
    _listener: socket2::Socket,
    _fillers: Vec<TcpStream>,
}

fn blackhole(address: SocketAddr) -> Blackhole {
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    listener.bind(&address.into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let fill = || TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok();
    let fillers = std::iter::from_fn(fill).take(16).collect();
    Blackhole { address, _listener: listener, _fillers: fillers }
}

#[tokio::test]
async fn a_name_of_the_hosts_file_needs_no_server() {
    let address = answers(EMPTY).await;
    let (upstreams, _file) = with_hosts("127.0.0.1 First.Example second.example # x\n", ResolverChoice::System);
    for name in ["first.example", "SECOND.example", "first.example."] {
        let connection = lease(&upstreams, &named(name, address.port())).await.unwrap();
        assert_eq!(connection.peer().address(), Some(address), "{name}");
    }
}

#[tokio::test]
async fn localhost_and_what_lies_below_it_is_this_machine() {
    let address = answers(EMPTY).await;
    let (upstreams, _file) = with_hosts("", ResolverChoice::Servers(vec!["127.0.0.1:9".parse().unwrap()]));
    for name in ["localhost", "a.localhost", "LOCALHOST.", "127.0.0.1"] {
        let connection = lease(&upstreams, &named(name, address.port())).await.unwrap();
        assert_eq!(connection.peer().address(), Some(address), "{name}");
    }
}

#[tokio::test]
async fn a_refusing_address_gives_way_at_once() {
    let address = answers(EMPTY).await;
    let mut quickest = Duration::MAX;
    for _ in 0..5 {
        let (upstreams, _file) = with_hosts("::1 both.example\n127.0.0.1 both.example\n", ResolverChoice::System);
        let start = Instant::now();
        let connection = lease(&upstreams, &named("both.example", address.port())).await.unwrap();
        quickest = quickest.min(start.elapsed());
        assert_eq!(connection.peer().address(), Some(address));
    }
    assert!(quickest < Duration::from_millis(240), "{quickest:?}");
}

#[tokio::test]
async fn a_silent_address_is_overtaken_and_the_winner_remembered() {
    let address = answers(EMPTY).await;
    let hole = blackhole(SocketAddr::new("127.0.0.2".parse().unwrap(), address.port()));
    let (upstreams, _file) = with_hosts("127.0.0.2 slow.example\n127.0.0.1 slow.example\n", ResolverChoice::System);
    let origin = named("slow.example", address.port());
    let start = Instant::now();
    assert_eq!(lease(&upstreams, &origin).await.unwrap().peer().address(), Some(address));
    let first = start.elapsed();
    assert!(first >= Duration::from_millis(250), "{first:?}");
    let mut quickest = Duration::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        assert_eq!(lease(&upstreams, &origin).await.unwrap().peer().address(), Some(address));
        quickest = quickest.min(start.elapsed());
    }
    assert!(quickest < Duration::from_millis(240), "{quickest:?}");
    drop(hole);
}

#[tokio::test]
async fn silence_everywhere_is_a_connect_timeout() {
    let hole = blackhole("127.0.0.3:0".parse().unwrap());
    let upstreams = upstreams(|settings| settings.connect_timeout = Duration::from_millis(100));
    let fault = lease(&upstreams, &at(hole.address)).await.err().unwrap();
    assert_eq!((fault.kind.clone(), fault.status()), (UpstreamFaultKind::ConnectTimeout, 504), "{fault}");
    let tunnel = patiently(upstreams.tunnel(
        &Host::parse("127.0.0.3").unwrap(),
        hole.address.port(),
        &Reach::Configured,
        &|_| (),
    ))
    .await;
    assert_eq!(tunnel.err().unwrap().kind, UpstreamFaultKind::ConnectTimeout);
}

/// Workers share what they learned, so that not each of them, nor each request, waits for the same silent address.
#[tokio::test]
async fn a_silent_address_is_left_alone_by_all_workers_until_its_pause_is_over() {
    let hole = blackhole("127.0.0.4:0".parse().unwrap());
    let memory = Arc::new(Memory::default());
    let worker = || {
        upstreams(|settings| {
            settings.connect_timeout = Duration::from_secs(4);
            settings.memory = Arc::clone(&memory);
        })
    };
    let (first, second) = (worker(), worker());
    let fault = lease(&first, &at(hole.address)).await.err().unwrap();
    assert!(fault.detail.contains("within 4 s"), "{fault}");
    let host = Host::parse("127.0.0.4").unwrap();
    let leased = lease(&second, &at(hole.address)).await.err().unwrap();
    let tunnel = patiently(second.tunnel(&host, hole.address.port(), &Reach::Configured, &|_| ())).await.err().unwrap();
    for fault in [leased, tunnel] {
        assert_eq!((fault.kind.clone(), fault.status()), (UpstreamFaultKind::ConnectTimeout, 504), "{fault}");
        assert!(fault.detail.contains("no answer to the last attempt; the next one in"), "{fault}");
    }
    // Others at the same address are other targets.
    let other = answers_at("127.0.0.4:0".parse().unwrap(), EMPTY).await;
    assert_eq!(lease(&second, &at(other)).await.unwrap().peer().address(), Some(other));
    // After the pause one request tries again, and what answers is used by all.
    let address = hole.address;
    drop(hole);
    let _back = answers_at(address, EMPTY).await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    for upstreams in [&second, &first] {
        assert_eq!(lease(upstreams, &at(address)).await.unwrap().peer().address(), Some(address));
    }
}

/// Many requests that wait at once are one failure, and those that come later don't wait at all.
#[tokio::test]
async fn of_two_addresses_the_silent_one_is_passed_over() {
    let address = answers(EMPTY).await;
    let hole = blackhole(SocketAddr::new("127.0.0.5".parse().unwrap(), address.port()));
    let (upstreams, _file) = with_hosts("127.0.0.5 half.example\n127.0.0.1 half.example\n", ResolverChoice::System);
    let alone = lease(&upstreams, &at(hole.address)).await.err().unwrap();
    assert!(alone.detail.contains("within 2 s"), "{alone}");
    let mut quickest = Duration::MAX;
    for name in ["half.example", "half.example."] {
        let start = Instant::now();
        assert_eq!(lease(&upstreams, &named(name, address.port())).await.unwrap().peer().address(), Some(address));
        quickest = quickest.min(start.elapsed());
    }
    assert!(quickest < Duration::from_millis(240), "it was tried again: {quickest:?}");
}

#[tokio::test]
async fn a_tunnel_is_a_plain_stream() {
    let address = answers(EMPTY).await;
    let (upstreams, _file) = with_hosts("127.0.0.1 far.example\n", ResolverChoice::System);
    let stream =
        patiently(upstreams.tunnel(&Host::parse("far.example").unwrap(), address.port(), &Reach::Configured, &|_| ()))
            .await
            .unwrap();
    let stream = stream.into_tcp().unwrap();
    assert_eq!(stream.peer_addr().unwrap(), address);
    assert!(stream.nodelay().unwrap());
}

/// A sibling is asked about hosts that all clients may reach, and whose responses would be stored for all.
#[tokio::test]
async fn a_name_that_leads_to_a_closed_address_is_known_before_siblings_are_asked() {
    let lines =
        "192.0.2.1 open.example\n127.0.0.1 closed.example\n192.0.2.1 both.example\n169.254.169.254 both.example\n";
    let (upstreams, _file) = with_hosts(lines, ResolverChoice::Servers(vec!["127.0.0.1:9".parse().unwrap()]));
    for asker in [Asker::Elsewhere, Asker::ThisMachine] {
        let (config, own) = (Live::new(Config::default()), Live::new(OwnAddresses::default()));
        let (config, own) = (live::Copy::default().of(&config), live::Copy::default().of(&own));
        let reach = Reach::Asked { asker, config, own, way: Way::default() };
        for (name, wanted) in
            [("open.example", true), ("closed.example", false), ("both.example", false), ("192.0.2.1", true)]
        {
            let found = patiently(upstreams.leads_to_open(&Host::parse(name).unwrap(), 80, &reach)).await;
            assert_eq!(found, wanted, "{name} for {asker:?}");
        }
    }
}

/// A name server that knows `names` with their addresses and refuses all others; counts the questions.
async fn name_server(names: &'static [(&'static str, &'static str)], ttl: u32) -> (SocketAddr, Arc<AtomicU32>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let questions = Arc::new(AtomicU32::new(0));
    let counted = questions.clone();
    tokio::spawn(async move {
        let mut buffer = [0; 1024];
        while let Ok((len, from)) = socket.recv_from(&mut buffer).await {
            counted.fetch_add(1, Ordering::SeqCst);
            let asked = Message::from_vec(&buffer[..len]).unwrap();
            let answer = reply(&asked, names, ttl);
            let _ = socket.send_to(&answer.to_vec().unwrap(), from).await;
        }
    });
    (address, questions)
}

fn reply(asked: &Message, names: &[(&str, &str)], ttl: u32) -> Message {
    let query = asked.queries[0].clone();
    let wanted = query.name().to_string().to_lowercase();
    let known: Vec<IpAddr> =
        names.iter().filter(|(name, _)| *name == wanted).map(|(_, ip)| ip.parse().unwrap()).collect();
    let code = if known.is_empty() { ResponseCode::NXDomain } else { ResponseCode::NoError };
    let mut reply = Message::error_msg(asked.metadata.id, asked.metadata.op_code, code);
    for ip in known.into_iter().filter(|ip| ip.is_ipv6() == (query.query_type() == RecordType::AAAA)) {
        reply.add_answer(Record::from_rdata(query.name().clone(), ttl, RData::from(ip)));
    }
    reply.add_query(query);
    reply
}

#[tokio::test]
async fn a_name_servers_answer_is_kept_for_its_time() {
    let address = answers(EMPTY).await;
    let names = &[("short.example.", "127.0.0.1")];
    let (server, questions) = name_server(names, 1).await;
    let (upstreams, _file) = with_hosts("", ResolverChoice::Servers(vec![server]));
    let origin = named("short.example", address.port());
    for _ in 0..3 {
        assert_eq!(lease(&upstreams, &origin).await.unwrap().peer().address(), Some(address));
    }
    let asked = questions.load(Ordering::SeqCst);
    assert!((1..=2).contains(&asked), "{asked} questions for one name");
    tokio::time::sleep(Duration::from_millis(1200)).await;
    lease(&upstreams, &origin).await.unwrap();
    assert!(questions.load(Ordering::SeqCst) > asked, "its time was over");
}

/// A name of very many addresses: what is kept of it is little, and what is kept of many such names is bounded.
#[tokio::test]
async fn very_many_addresses_of_very_many_names_are_little_memory() {
    if !is_alone("upstream::tests::connect::very_many_addresses_of_very_many_names_are_little_memory") {
        return;
    }
    let (server, questions) = large_name_server(1000).await;
    let (upstreams, _file) = with_hosts("", ResolverChoice::Servers(vec![server]));
    let before = resident_bytes();
    for number in 0..200 {
        // Nobody listens at its addresses, which refuse at once. A machine with much to do may not get through all of them in time.
        let fault = lease(&upstreams, &named(&format!("n{number}.example"), 9)).await.err().unwrap();
        assert!(matches!(fault.kind, UpstreamFaultKind::Refused | UpstreamFaultKind::ConnectTimeout), "{fault}");
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(questions.load(Ordering::SeqCst) >= 400);
    assert!(grown < 24_000_000, "{grown} bytes for 200 names");
}

/// Whether this process plays one test alone, so that its memory is that test's. If not, such a process plays it, and has to succeed.
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "LARDER_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut process = std::process::Command::new(std::env::current_exe().unwrap());
    let played = process.args([test, "--exact"]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&played.stdout);
    assert!(played.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&played.stderr));
    false
}

/// A name server over TCP (its answers over UDP are cut) that knows so many addresses of every name.
async fn large_name_server(addresses: u16) -> (SocketAddr, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let socket = UdpSocket::bind(address).await.unwrap();
    let questions = Arc::new(AtomicU32::new(0));
    let counted = questions.clone();
    tokio::spawn(async move {
        let mut buffer = [0; 1024];
        while let Ok((len, from)) = socket.recv_from(&mut buffer).await {
            let asked = Message::from_vec(&buffer[..len]).unwrap();
            let mut cut = reply(&asked, &[], 60);
            cut.metadata.response_code = ResponseCode::NoError;
            cut.metadata.truncation = true;
            let _ = socket.send_to(&cut.to_vec().unwrap(), from).await;
        }
    });
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let counted = counted.clone();
            tokio::spawn(async move {
                while let Ok(len) = stream.read_u16().await {
                    let mut question = vec![0; len.into()];
                    stream.read_exact(&mut question).await.unwrap();
                    let asked = Message::from_vec(&question).unwrap();
                    let mut reply = reply(&asked, &[], 60);
                    reply.metadata.response_code = ResponseCode::NoError;
                    let query = asked.queries[0].clone();
                    for number in 0..addresses {
                        let [high, low] = number.to_be_bytes();
                        let v4 = IpAddr::from([127, 1, high, low]);
                        let v6 = IpAddr::from([0, 0, 0, 0, 0, 0xffff, 0x7f01, number]);
                        let ip = if query.query_type() == RecordType::A { v4 } else { v6 };
                        reply.add_answer(Record::from_rdata(query.name().clone(), 60, RData::from(ip)));
                    }
                    let bytes = reply.to_vec().unwrap();
                    counted.fetch_add(1, Ordering::SeqCst);
                    let _ = stream.write_u16(bytes.len().try_into().unwrap()).await;
                    let _ = stream.write_all(&bytes).await;
                }
            });
        }
    });
    (address, questions)
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[tokio::test]
async fn an_unknown_name_and_a_silent_server_are_told_apart() {
    let (server, questions) = name_server(&[], 60).await;
    let (upstreams, _file) = with_hosts("", ResolverChoice::Servers(vec![server]));
    for name in ["nowhere.example", "no!domain$name"] {
        let fault = lease(&upstreams, &named(name, 80)).await.err().unwrap();
        let wanted = UpstreamFaultKind::Dns(DnsTrouble::NotFound);
        assert_eq!((fault.kind.clone(), fault.status()), (wanted, 502), "{fault}");
    }
    assert!(questions.load(Ordering::SeqCst) > 0);

    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (upstreams, _file) = with_hosts("", ResolverChoice::Servers(vec![silent.local_addr().unwrap()]));
    let fault = lease(&upstreams, &named("nowhere.example", 80)).await.err().unwrap();
    assert_eq!((fault.kind.clone(), fault.status()), (UpstreamFaultKind::Dns(DnsTrouble::Timeout), 504), "{fault}");
    // It is not asked for again at once.
    let fault = lease(&upstreams, &named("nowhere.example", 80)).await.err().unwrap();
    assert_eq!((fault.kind.clone(), fault.status()), (UpstreamFaultKind::Dns(DnsTrouble::Timeout), 504), "{fault}");
    assert!(fault.detail.contains("no answer to the last attempt"), "{fault}");
}

#[tokio::test]
async fn the_systems_resolver_is_asked_when_told_so() {
    let address = answers(EMPTY).await;
    let (upstreams, _file) = with_hosts("", ResolverChoice::System);
    // An old way to write 127.0.0.1, which only `getaddrinfo` knows: no name server is asked.
    let connection = lease(&upstreams, &named("127.1", address.port())).await;
    assert_eq!(connection.unwrap().peer().address(), Some(address));
}
