//! Listeners on Unix sockets: curl and programs that speak through them, nginx and HAProxy before them, and their files.

use super::{free, haproxy, nginx};
use crate::seen::reload::{Steered, base};
use crate::seen::stand;
use larder::server::Server;
use std::fs;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A server that listens on `socket` in a folder, with a site and a log.
struct Stage {
    folder: TempDir,
    server: Server,
}

impl Stage {
    fn with(listen: &str, text: &str) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let origin = stand::origin();
        let at = folder.path().display();
        let text = format!(
            "[[listen]]\naddress = \"unix:{at}/socket\"\n{listen}\n\
             [[site]]\nhosts = [\"a.test\"]\norigin = \"http://{origin}\"\n\
             [log]\nto = \"{at}/log\"\nformat = \"{{client}} {{url}} {{outcome}}\"\n{text}"
        );
        let server = stand::server(&folder.path().join("store"), &text);
        Stage { folder, server }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn log(self) -> Vec<String> {
        self.server.stop();
        fs::read_to_string(self.folder.path().join("log")).unwrap().lines().map(str::to_owned).collect()
    }
}

/// Sends these bytes and reads to the end.
fn exchange(socket: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
}

#[test]
fn curl_asks_by_the_socket_and_the_log_has_no_address() {
    let stage = Stage::with("mode = \"0600\"", "");
    let mode = fs::metadata(stage.socket()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let Some(mut curl) = stand::program("curl") else { return };
    let url = "http://a.test/fresh";
    let output = curl.args(["-sS", "--max-time", "10", "--noproxy", "*", "--unix-socket"]).arg(stage.socket());
    let output = output.args([url, url, url]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "/fresh".repeat(3), "{output:?}");
    let socket = stage.socket();
    let log = stage.log();
    assert!(log.iter().all(|line| line.starts_with("unix http://a.test/fresh ")) && log.len() == 3, "{log:?}");
    assert!(log[2].ends_with(" hit"), "{log:?}");
    assert!(!socket.exists(), "the file goes with the server");
}

/// A forward proxy on a socket serves no programs of this machine: anybody's connections may be passed on there.
#[test]
fn a_proxy_on_a_socket_has_clients_in_the_network_unix() {
    let forward = |access: &str| {
        let stage = Stage::with("forward = true", access);
        let origin = stand::origin();
        let request = format!("GET http://{origin}/fresh HTTP/1.1\r\nHost: {origin}\r\nConnection: close\r\n\r\n");
        exchange(&stage.socket(), &request)
    };
    let open = "[access]\ndestinations = [\"127.0.0.0/8\"]\n";
    assert!(forward(open).starts_with("HTTP/1.1 200 "));
    let closed = forward("");
    assert!(closed.starts_with("HTTP/1.1 403 ") && closed.contains("access.destinations"), "{closed}");
    for clients in ["unix", "::/0"] {
        let answer = forward(&format!("{open}clients = [\"{clients}\"]\n"));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{clients}: {answer}");
    }
    let others = forward(&format!("{open}clients = [\"127.0.0.0/8\", \"::1\", \"0.0.0.0/0\"]\n"));
    assert!(others.starts_with("HTTP/1.1 403 "), "{others}");
    let denied = forward(&format!("{open}[[rule]]\nwhen = {{ client = \"unix\" }}\ndo = {{ deny = true }}\n"));
    assert!(denied.starts_with("HTTP/1.1 403 ") && denied.contains("rule"), "{denied}");
}

/// Requests through a pipeline, over keep-alive, and a body that has to wait for the client.
#[test]
fn a_socket_serves_as_a_port_does() {
    let stage = Stage::with("", "[limits]\nconnections_per_client_max = 1\n");
    let socket = stage.socket();
    // All clients of the socket are no one client.
    let held: Vec<UnixStream> = (0..3).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    for mut stream in &held {
        let two = format!("{}{}", get("/fresh/1").replace("close", "keep-alive"), get("/fresh/2"));
        stream.write_all(two.as_bytes()).unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        assert_eq!(answers.matches("HTTP/1.1 200 ").count(), 2, "{answers}");
    }
    assert!(exchange(&socket, "GET\r\n\r\n").starts_with("HTTP/1.1 400 "));
}

/// The origin's part: it tells the addresses that it was told.
fn tells_forwarded(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    let head = stand::read_head(&mut lines)?;
    let told: Vec<&str> = head.lines().filter_map(|line| line.strip_prefix("X-Forwarded-For: ")).collect();
    let told = told.join(", ");
    (&*stream).write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{told}", told.len()).as_bytes()).ok()
}

/// The last entry is Larder's own: an origin that believes it finds nothing there that the client has written.
#[test]
fn an_origin_is_told_that_the_address_is_not_known() {
    let origin = stand::origin_that(tells_forwarded);
    let stage = Stage::with("", &format!("[[site]]\nhosts = [\"b.test\"]\norigin = \"http://{origin}\"\n"));
    let named = "GET / HTTP/1.1\r\nHost: b.test\r\nX-Forwarded-For: 10.0.0.1\r\nConnection: close\r\n\r\n";
    let answer = exchange(&stage.socket(), named);
    assert_eq!(stand::body(&answer), "10.0.0.1, unknown", "{answer}");
}

#[test]
fn nginx_and_haproxy_pass_requests_on_to_the_socket() {
    let stage = Stage::with("mode = \"0666\"\nproxy_protocol = \"unix\"", "");
    let plain = Stage::with("mode = \"0666\"", "");
    // The folders of tests are their owner's alone, and programs before a socket may run as somebody else.
    for folder in [&stage.folder, &plain.folder] {
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let (front, balancer) = (free(), free());
    let server = format!(
        "server {{ listen {front}; location / {{ proxy_pass http://unix:{}:; proxy_set_header Host $host; }} }}",
        plain.socket().display()
    );
    let Some(_nginx) = nginx(&plain.folder.path().join("nginx"), front, &server) else { return };
    assert!(stand::exchange(front, &get("/fresh")).ends_with("/fresh"));
    let Some(_haproxy) = haproxy(
        &stage.folder.path().join("haproxy"),
        balancer,
        &format!(
            "listen larder\n  mode tcp\n  bind {balancer}\n  server larder unix@{} send-proxy-v2\n",
            stage.socket().display()
        ),
    ) else {
        return;
    };
    let mut stream = stand::connect_from([127, 0, 0, 7], balancer);
    stream.write_all(get("/fresh").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("/fresh"), "{answer}");
    assert!(plain.log()[0].starts_with("unix http://a.test/fresh "));
    // Besides, HAProxy has looked at nothing: the header alone says whose the connection is.
    let log = stage.log();
    assert!(log.iter().any(|line| line.starts_with("127.0.0.7 http://a.test/fresh ")), "{log:?}");
}

#[test]
fn no_header_names_a_client_without_an_address_and_none_is_let_in_without_a_header() {
    let stage = Stage::with("proxy_protocol = \"unix\"", "");
    let socket = stage.socket();
    for (header, is_served) in [
        ("PROXY TCP4 192.0.2.7 198.51.100.1 51000 443\r\n", true),
        ("PROXY UNKNOWN\r\n", true),
        ("PROXY TCP6 :: 2001:db8::1 51000 443\r\n", false),
        ("PROXY TCP4 0.0.0.0 198.51.100.1 51000 443\r\n", false),
        ("", false),
    ] {
        let mut stream = UnixStream::connect(&socket).unwrap();
        let _ = stream.write_all(format!("{header}{}", get("/fresh")).as_bytes());
        let mut answer = Vec::new();
        // One that is closed with bytes unread ends by a reset.
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert_eq!(answer.starts_with("HTTP/1.1 200 "), is_served, "{header:?}: {answer}");
        assert!(is_served || answer.is_empty(), "{header:?}: {answer}");
    }
    let mut clients: Vec<String> =
        stage.log().iter().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect();
    clients.sort_unstable();
    assert_eq!(clients, ["192.0.2.7", "unix", "unix", "unix", "unix"]);
}

fn start(path: &Path) -> Result<Server, String> {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("[[listen]]\naddress = \"unix:{}\"\n", path.display());
    let config = stand::config(folder.path(), &text);
    Server::start(config).map_err(|error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        format!("{error}: {cause}")
    })
}

#[test]
fn an_abandoned_socket_is_replaced_and_all_else_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    // One of a program that was killed.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let server = start(&path).unwrap();
    assert!(UnixStream::connect(&path).is_ok());
    // One that is served.
    let trouble = start(&path).err().unwrap();
    assert!(trouble.contains("is in use"), "{trouble}");
    assert!(UnixStream::connect(&path).is_ok());
    // Another program has taken the path: its file is not removed.
    fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    server.stop();
    assert!(UnixStream::connect(&path).is_ok());
    let file = folder.path().join("file");
    fs::write(&file, "precious").unwrap();
    let trouble = start(&file).err().unwrap();
    assert!(trouble.contains("no socket"), "{trouble}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    let trouble = start(&folder.path().join("absent/socket")).err().unwrap();
    assert!(trouble.contains("cannot listen on unix:"), "{trouble}");
}

#[test]
fn a_reload_keeps_a_socket_opens_one_and_closes_one() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let origin = stand::origin();
    let text = |sockets: &[(&str, &str)]| {
        let listens: String = sockets
            .iter()
            .map(|(name, mode)| format!("[[listen]]\naddress = \"unix:{}\"\nmode = \"{mode}\"\n", at(name).display()))
            .collect();
        format!("{}{listens}[[site]]\nhosts = [\"a.test\"]\norigin = \"http://{origin}\"\n", base(folder.path()))
    };
    let steered = Steered::start(folder.path(), &text(&[("one", "0600"), ("two", "0600")]));
    let mut kept = UnixStream::connect(at("one")).unwrap();
    let (_, needs_restart) = steered.reload(&text(&[("one", "0640"), ("three", "0600")])).unwrap();
    assert!(needs_restart.is_empty(), "{needs_restart:?}");
    assert_eq!(fs::metadata(at("one")).unwrap().permissions().mode() & 0o777, 0o640);
    for name in ["one", "three"] {
        assert!(exchange(&at(name), &get("/fresh")).ends_with("/fresh"), "{name}");
    }
    assert!(!at("two").exists());
    kept.write_all(get("/fresh").as_bytes()).unwrap();
    let mut answer = String::new();
    kept.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("/fresh"), "{answer}");
    // Another program has taken the path of one, and a reload that is refused changes no mode.
    fs::remove_file(at("one")).unwrap();
    let _other = std::os::unix::net::UnixListener::bind(at("one")).unwrap();
    fs::set_permissions(at("one"), fs::Permissions::from_mode(0o600)).unwrap();
    let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
    steered.reload(&text(&[("one", "0666"), ("three", "0660")])).unwrap();
    assert_eq!((mode("one"), mode("three")), (0o600, 0o660));
    steered.reload(&text(&[("three", "0666"), ("absent/four", "0600")])).unwrap_err();
    assert_eq!(mode("three"), 0o660);
    steered.server.stop();
    assert!(at("one").exists() && !at("three").exists());
}
