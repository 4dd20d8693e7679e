//! Parents that speak SOCKS: one that the tests play, with all that it may do wrong.

use super::hooks_forward::tls_origin;
use super::parents::nowhere;
use super::stand;
use super::ways::{connect, echo};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The conduct of a played server.
#[derive(Clone, Copy)]
enum Manner {
    /// It connects to this address, whoever is asked for.
    Leads(SocketAddr),
    /// It does so for joe with the password pear alone.
    LeadsJoe(SocketAddr),
    /// It refuses with this code.
    Refuses(u8),
    /// It answers with these bytes and closes.
    Says(&'static [u8]),
    /// It never answers.
    Silent,
    /// It has connected, and the far end greets at once.
    Greets,
}

struct Socks {
    address: SocketAddr,
    /// The hosts and ports that were asked for.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Socks {
    fn start(manner: Manner) -> Socks {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let noted = Arc::clone(&noted);
                std::thread::spawn(move || serve(&stream, manner, &noted));
            }
        });
        Socks { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn bytes(mut stream: &TcpStream, len: usize) -> Option<Vec<u8>> {
    let mut read = vec![0; len];
    stream.read_exact(&mut read).ok().map(|()| read)
}

fn text(stream: &TcpStream) -> Option<String> {
    let len = bytes(stream, 1)?[0];
    String::from_utf8(bytes(stream, usize::from(len))?).ok()
}

fn serve(mut stream: &TcpStream, manner: Manner, noted: &Mutex<Vec<String>>) -> Option<()> {
    let methods = bytes(stream, 2)?;
    assert_eq!(methods[0], 5);
    let methods = bytes(stream, usize::from(methods[1]))?;
    match manner {
        Manner::Says(said) => return stream.write_all(said).ok(),
        Manner::Silent => {
            let _ = stream.read(&mut [0]);
            return None;
        }
        Manner::LeadsJoe(_) if !methods.contains(&2) => return stream.write_all(&[5, 0xff]).ok(),
        Manner::LeadsJoe(_) => {
            stream.write_all(&[5, 2]).ok()?;
            bytes(stream, 1)?;
            let is_joe = (text(stream)?, text(stream)?) == ("joe".to_owned(), "pear".to_owned());
            stream.write_all(&[1, u8::from(!is_joe)]).ok()?;
            is_joe.then_some(())?;
        }
        _ => stream.write_all(&[5, 0]).ok()?,
    }
    let head = bytes(stream, 4)?;
    let host = match head[3] {
        1 => std::net::Ipv4Addr::from(<[u8; 4]>::try_from(bytes(stream, 4)?).ok()?).to_string(),
        _ => text(stream)?,
    };
    let port = bytes(stream, 2)?;
    noted.lock().unwrap().push(format!("{host}:{}", u16::from_be_bytes([port[0], port[1]])));
    let connected = [5, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    match manner {
        Manner::Refuses(code) => stream.write_all(&[5, code, 0, 1, 0, 0, 0, 0, 0, 0]).ok(),
        Manner::Greets => stream.write_all(&[&connected[..], b"SSH-2.0-banner\r\n"].concat()).ok(),
        Manner::Leads(to) | Manner::LeadsJoe(to) => {
            let far = TcpStream::connect(to).ok()?;
            stream.write_all(&connected).ok()?;
            let (from, mut back) = (stream.try_clone().ok()?, far.try_clone().ok()?);
            std::thread::spawn(move || stand::pass_on(&mut back, &from));
            stand::pass_on(&mut stream, &far)
        }
        Manner::Says(_) | Manner::Silent => None,
    }
}

fn tables(parents: &[(&str, &str, SocketAddr)], more: &str) -> String {
    let tables: String = parents
        .iter()
        .map(|(name, login, address)| format!("[[parent]]\nname = \"{name}\"\nurl = \"socks5://{login}{address}\"\n"))
        .collect();
    let names: Vec<&str> = parents.iter().map(|(name, ..)| *name).collect();
    format!("{tables}[forward]\nparents = {names:?}\n{more}")
}

const PORTS: &str = "[access]\nconnect_ports = []\n";

#[test]
fn requests_of_every_scheme_go_through_and_the_parent_looks_names_up() {
    let origin = stand::origin();
    let socks = Socks::start(Manner::LeadsJoe(origin));
    let folder = tempfile::tempdir().unwrap();
    let text = tables(&[("office", "joe:pear@", socks.address)], PORTS);
    let server = stand::server(folder.path(), &text);
    let proxy = server.addresses()[0];
    for (round, is_hit) in [("first", false), ("again", true)] {
        // The origin sees a path, as without a parent.
        let answer = stand::get(proxy, "http://far.example:8080/fresh");
        assert!(answer.ends_with("\r\n\r\n/fresh"), "{round}: {answer}");
        assert_eq!(answer.contains("; hit"), is_hit, "{round}: {answer}");
    }
    assert!(stand::get(proxy, "http://10.9.8.7/none").ends_with("\r\n\r\n/none"));
    assert!(stand::get(proxy, "http://10.9.8.7/none").ends_with("\r\n\r\n/none"));
    // The second request has the kept connection, unless another worker has it.
    let mut asked = socks.asked();
    asked.dedup();
    assert_eq!(asked, ["far.example:8080", "10.9.8.7:80"]);
    let shown = stand::ask(server.admin().unwrap(), "/neighbours");
    assert!(shown.contains("socks5://127.0.0.1") && !shown.contains("pear") && !shown.contains("joe"), "{shown}");
    // A tunnel that stays closed, and a server that speaks first.
    let (echoing, greeting) = (Socks::start(Manner::Leads(stand::origin_that(echo))), Socks::start(Manner::Greets));
    for (socks, wanted) in [(echoing, "\r\n\r\nb"), (greeting, "\r\n\r\nSSH-2.0-banner\r\n")] {
        let folder = tempfile::tempdir().unwrap();
        let server = stand::server(folder.path(), &tables(&[("office", "", socks.address)], PORTS));
        let answer = connect(server.addresses()[0], "far.example:22");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(wanted), "{answer}");
        assert_eq!(socks.asked(), ["far.example:22"]);
    }
}

#[test]
fn tls_to_the_origin_is_spoken_through_it_and_verified() {
    let (folder, certificates) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (origin, _) = tls_origin(certificates.path(), "far.example");
    let socks = Socks::start(Manner::Leads(origin));
    let text = format!(
        "{}[[listen]]\naddress = \"127.0.0.1:0\"\nmirror = \"all\"\nforward = true\n[upstream]\nextra_roots = [{:?}]\n",
        tables(&[("office", "", socks.address)], ""),
        certificates.path().join("chain.pem")
    );
    let server = stand::server(folder.path(), &text);
    let proxy = server.addresses()[0];
    let ask = |path: &str| {
        stand::exchange(proxy, &format!("GET {path} HTTP/1.1\r\nHost: {proxy}\r\nConnection: close\r\n\r\n"))
    };
    assert!(ask("/https://far.example/x").ends_with("far.example /x"));
    let misnamed = ask("/https://near.example/x");
    assert!(misnamed.starts_with("HTTP/1.1 502") && misnamed.contains("certificate"), "{misnamed}");
    assert_eq!(socks.asked(), ["far.example:443", "near.example:443"]);
}

#[test]
fn a_login_that_is_not_taken_is_named_and_all_other_trouble_leads_to_the_next_parent() {
    for (login, wanted) in [("", "takes no client without a login"), ("joe:plum@", "does not take the login")] {
        let (office, other) = (Socks::start(Manner::LeadsJoe(nowhere())), Socks::start(Manner::Greets));
        let folder = tempfile::tempdir().unwrap();
        let text = tables(&[("office", login, office.address), ("other", "", other.address)], PORTS);
        let server = stand::server(folder.path(), &text);
        let answer = connect(server.addresses()[0], "far.example:22");
        assert!(answer.starts_with("HTTP/1.1 502") && answer.contains(wanted), "{answer}");
        assert!(!answer.contains("plum") && other.asked().is_empty(), "{answer}");
    }
    for (what, manner) in [
        ("refused", Manner::Refuses(5)),
        ("an unknown code", Manner::Refuses(200)),
        ("an older version", Manner::Says(&[0, 0x5a, 0, 0, 0, 0, 0, 0])),
        ("HTTP", Manner::Says(b"HTTP/1.1 400 Bad Request\r\n\r\n")),
        ("truncated", Manner::Says(&[5])),
        ("truncated later", Manner::Says(&[5, 0, 5, 0, 0, 1, 1])),
        ("nothing", Manner::Says(&[])),
        ("another method", Manner::Says(&[5, 1])),
        ("silent", Manner::Silent),
    ] {
        let (first, good) = (Socks::start(manner), Socks::start(Manner::Leads(stand::origin_that(echo))));
        let folder = tempfile::tempdir().unwrap();
        let parents = [("first", "", first.address), ("good", "", good.address)];
        let text = tables(&parents, PORTS) + "[timeouts]\nconnect = \"2s\"\n";
        let server = stand::server(folder.path(), &text);
        let answer = connect(server.addresses()[0], "far.example:22");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nb"), "{what}: {answer}");
        // Alone it is an error, and none of its bytes are shown.
        let folder = tempfile::tempdir().unwrap();
        let text = tables(&parents[..1], PORTS) + "[timeouts]\nconnect = \"1s\"\n";
        let server = stand::server(folder.path(), &text);
        let answer = connect(server.addresses()[0], "far.example:22");
        assert!(answer.starts_with("HTTP/1.1 50") && answer.contains("the parent first"), "{what}: {answer}");
    }
}
