//! Siblings and parents that are asked by ICP and HTCP on a miss: ones that the tests play, and a real Squid.

use super::neighbours::free_port;
use super::parents::{dated, squid};
use super::stand;
use larder_wire::htcp::{self, Envelope};
use larder_wire::icp::{self, Message, Opcode};
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// How a played neighbour answers a question by datagram.
#[derive(Clone, Copy, PartialEq)]
enum Says {
    Hit,
    Miss,
    Nothing,
    /// Wrong answers first: of another number, of another URL, from another port; then twice that it has nothing.
    ForgedHits,
}

/// A cache that is asked by ICP, and answers requests with its name.
struct Neighbour {
    http: SocketAddr,
    icp: u16,
    questions: Arc<AtomicUsize>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Neighbour {
    fn start(name: &'static str, says: Says, status: &'static str) -> Neighbour {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let icp = socket.local_addr().unwrap().port();
        let questions = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&questions);
        std::thread::spawn(move || answer_questions(&socket, says, &counted));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let http = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&heads);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let noted = Arc::clone(&noted);
                std::thread::spawn(move || serve(&stream, &noted, (name, status)));
            }
        });
        Neighbour { http, icp, questions, heads }
    }

    fn table(&self, kind: &str, name: &str) -> String {
        format!("[[{kind}]]\nname = \"{name}\"\nurl = \"http://{}\"\nicp_port = {}\n", self.http, self.icp)
    }

    fn questions(&self) -> usize {
        self.questions.load(Ordering::SeqCst)
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn answer_questions(socket: &UdpSocket, says: Says, counted: &AtomicUsize) -> Option<()> {
    let mut buffer = [0; icp::DATAGRAM_BYTES_MAX];
    loop {
        let (len, from) = socket.recv_from(&mut buffer).ok()?;
        let asked = icp::message(&buffer[..len]).filter(|message| message.opcode == Opcode::Query)?;
        counted.fetch_add(1, Ordering::SeqCst);
        let send = |socket: &UdpSocket, opcode, number, url| {
            let mut out = Vec::new();
            assert!(Message { opcode, number, url }.write_to(&mut out));
            socket.send_to(&out, from).unwrap();
        };
        let (number, url) = (asked.number, asked.url);
        match says {
            Says::Hit => send(socket, Opcode::Hit, number, url),
            Says::Miss => send(socket, Opcode::Miss, number, url),
            Says::Nothing => {}
            Says::ForgedHits => {
                send(socket, Opcode::Hit, number.wrapping_add(1), url);
                send(socket, Opcode::Hit, number, "http://other.example/");
                send(&UdpSocket::bind("127.0.0.1:0").unwrap(), Opcode::Hit, number, url);
                let mut found = Vec::new();
                let message = htcp::Message::Found { response: b"", entity: b"", cache: b"" };
                assert!(Envelope { transaction: number, wants_answer: false, message }.write_to(&mut found));
                socket.send_to(&found, from).unwrap();
                socket.send_to(b"nonsense", from).unwrap();
                send(socket, Opcode::Miss, number, url);
                send(socket, Opcode::Hit, number, url);
            }
        }
    }
}

fn serve(stream: &TcpStream, noted: &Mutex<Vec<String>>, (name, status): (&str, &str)) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let head = stand::read_head(&mut lines)?;
        noted.lock().unwrap().push(head);
        let text = format!("by {name}");
        let length = text.len();
        let head = format!("HTTP/1.1 {status}\r\nCache-Control: max-age=60\r\nContent-Length: {length}\r\n\r\n{text}");
        (&*stream).write_all(head.as_bytes()).ok()?;
    }
}

fn answers(admin: SocketAddr, answer: &str) -> u64 {
    let metrics = stand::ask(admin, "/metrics");
    let start = format!("larder_neighbour_answers_total{{answer=\"{answer}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&start)).expect("no such count").parse().unwrap()
}

/// The records of the last requests, each with its explanation.
fn ways(admin: SocketAddr) -> String {
    let listed: serde_json::Value = serde_json::from_str(stand::body(&stand::ask(admin, "/requests"))).unwrap();
    let ids = listed["requests"].as_array().unwrap().iter().map(|request| request["id"].as_str().unwrap());
    ids.map(|id| stand::ask(admin, &format!("/requests/{id}"))).collect()
}

#[test]
fn a_sibling_that_has_it_is_asked_for_what_it_stored_and_the_parent_is_not() {
    let sibling = Neighbour::start("sibling", Says::Hit, "200 OK");
    let parent = Neighbour::start("parent", Says::Miss, "200 OK");
    let folder = tempfile::tempdir().unwrap();
    let text =
        sibling.table("sibling", "beside") + &parent.table("parent", "above") + "[forward]\nparents = [\"above\"]\n";
    let server = stand::server(folder.path(), &text);
    let (proxy, admin) = (server.addresses()[0], server.admin().unwrap());
    for round in ["first", "again"] {
        let answer = stand::get(proxy, "http://far.example/a?b");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("by sibling"), "{round}: {answer}");
        assert_eq!(answer.contains("; hit"), round == "again", "{round}: {answer}");
    }
    assert_eq!((sibling.questions(), sibling.heads().len(), parent.heads().len()), (1, 1, 0));
    let head = &sibling.heads()[0];
    assert!(head.starts_with("GET http://far.example/a?b HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("Cache-Control: only-if-cached\r\n") && head.contains("Host: far.example\r\n"), "{head}");
    assert_eq!(answers(admin, "hit"), 1);
    let ways = ways(admin);
    assert!(ways.contains("At sibling beside") && !ways.contains("parent above"), "{ways}");
}

#[test]
fn after_a_false_hit_and_after_forged_ones_the_origin_s_way_is_taken() {
    let lying = Neighbour::start("sibling", Says::Hit, "504 Not here");
    let parent = Neighbour::start("parent", Says::Nothing, "200 OK");
    let forged = Neighbour::start("sibling", Says::ForgedHits, "200 OK");
    // A parent that is not asked by datagram.
    let above =
        format!("[[parent]]\nname = \"above\"\nurl = \"http://{}\"\n[forward]\nparents = [\"above\"]\n", parent.http);
    for (sibling, count) in [(&lying, "false-hit"), (&forged, "unexpected")] {
        let folder = tempfile::tempdir().unwrap();
        let server = stand::server(folder.path(), &(sibling.table("sibling", "beside") + &above));
        let answer = stand::get(server.addresses()[0], "http://far.example/a");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("by parent"), "{answer}");
        assert!(answers(server.admin().unwrap(), count) >= 1, "{count}");
        assert_eq!(sibling.questions(), 1);
    }
    assert_eq!((lying.heads().len(), forged.heads().len(), parent.heads().len()), (1, 0, 2));
    assert_eq!(parent.questions(), 0);
}

#[test]
fn what_is_for_one_client_alone_or_wanted_anew_is_asked_of_no_sibling() {
    let sibling = Neighbour::start("sibling", Says::Hit, "200 OK");
    let parent = Neighbour::start("parent", Says::Miss, "200 OK");
    let folder = tempfile::tempdir().unwrap();
    let text = sibling.table("sibling", "beside")
        + &format!("[[parent]]\nname = \"above\"\nurl = \"http://{}\"\n", parent.http)
        + "[forward]\nparents = [\"above\"]\ndirect = [\"near.example\"]\n[neighbours]\nfrom = [\"127.0.0.1\"]\n"
        + "[[rule]]\nwhen = { path = \"/key/**\" }\ndo = { key = \"{client}\" }\n"
        + "[[rule]]\nwhen = { path = \"/told/**\" }\ndo = { set = \"X-Api-Key: secret\" }\n";
    let server = stand::server(folder.path(), &text);
    let proxy = server.addresses()[0];
    let ask = |method: &str, path: &str, fields: &str| {
        let head = format!(
            "{method} http://far.example/{path} HTTP/1.1\r\nHost: far.example\r\n{fields}Connection: close\r\n\r\n"
        );
        stand::exchange(proxy, &head)
    };
    for (number, (method, fields)) in [
        ("GET", "Authorization: Basic eDp5\r\n"),
        ("GET", "Cookie: a=b\r\n"),
        ("GET", "Cache-Control: no-cache\r\n"),
        ("GET", "Pragma: no-cache\r\n"),
        ("GET", "Via: 1.1 other-cache\r\n"),
        ("HEAD", ""),
        ("POST", "Content-Length: 0\r\n"),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = ask(method, &number.to_string(), fields);
        assert!(answer.starts_with("HTTP/1.1 200") && !answer.contains("by sibling"), "{method} {fields}: {answer}");
    }
    // A sibling is asked by the URL alone: it knows nothing of keys and fields that rules make.
    for path in ["key/a", "told/a"] {
        assert!(ask("GET", path, "").ends_with("by parent"), "{path}");
    }
    assert_eq!((sibling.questions(), sibling.heads().len()), (0, 0));
    // The test itself would find such a question.
    assert!(ask("GET", "plain", "").ends_with("by sibling"));
    assert_eq!(sibling.questions(), 1);
}

#[test]
fn the_parent_that_answers_is_taken_before_the_first_of_the_list() {
    let silent = Neighbour::start("silent", Says::Nothing, "200 OK");
    let quick = Neighbour::start("quick", Says::Miss, "200 OK");
    let folder = tempfile::tempdir().unwrap();
    let text = silent.table("parent", "silent")
        + &quick.table("parent", "quick")
        + "[forward]\nparents = [\"silent\", \"quick\"]\n[neighbours]\nwait_max = \"100ms\"\n";
    let server = stand::server(folder.path(), &text);
    let (proxy, admin) = (server.addresses()[0], server.admin().unwrap());
    for number in 0..14 {
        let answer = stand::get(proxy, &format!("http://far.example/{number}"));
        assert!(answer.ends_with("by quick"), "{number}: {answer}");
    }
    // After ten questions without an answer it is dead, and not asked for a while.
    assert_eq!((silent.questions(), quick.questions(), silent.heads().len()), (10, 14, 0));
    assert_eq!((answers(admin, "silent"), answers(admin, "dead"), answers(admin, "miss")), (10, 4, 14));
}

/// The access log of a Squid.
fn log(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("access.log")).unwrap_or_default()
}

#[test]
fn a_squid_is_asked_as_a_sibling_and_as_a_parent() {
    for is_htcp in [false, true] {
        let (folder, of_sibling, of_parent) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (sibling_port, parent_port) = (free_port(), free_port());
        let (squid_setting, setting) = if is_htcp { ("htcp", "htcp_port") } else { ("icp", "icp_port") };
        let more = |port: u16| format!("{squid_setting}_port {port}\n{squid_setting}_access allow all\n");
        let Some(sibling) = squid(of_sibling.path(), &more(sibling_port)) else { return };
        let Some(parent) = squid(of_parent.path(), &more(parent_port)) else { return };
        let port = stand::origin_that(dated).port();
        let text = format!(
            "[[sibling]]\nname = \"beside\"\nurl = \"http://{}\"\n{setting} = {sibling_port}\n\
             [[parent]]\nname = \"above\"\nurl = \"http://{}\"\n{setting} = {parent_port}\n\
             [forward]\nparents = [\"above\"]\n",
            sibling.address, parent.address
        );
        let server = stand::server(folder.path(), &text);
        let (proxy, admin) = (server.addresses()[0], server.admin().unwrap());
        let url = |path: &str| format!("http://far.example:{port}/{path}");
        let stored = stand::get(sibling.address, &url("at-sibling"));
        assert!(stored.ends_with("/at-sibling"), "{setting}: {stored}");
        for round in ["the sibling's", "Larder's own"] {
            let answer = stand::get(proxy, &url("at-sibling"));
            assert_eq!(stand::body(&answer), stand::body(&stored), "{setting}, {round}: {answer}");
        }
        assert_eq!((answers(admin, "hit"), answers(admin, "false-hit")), (1, 0), "{setting}");
        // Of the first question the parent's answer may have come before the hit.
        let without = || answers(admin, "miss") + answers(admin, "silent");
        let before = without();
        let answer = stand::get(proxy, &url("nowhere"));
        assert!(answer.ends_with("/nowhere"), "{setting}: {answer}");
        assert_eq!((answers(admin, "hit"), without() - before), (1, 2), "{setting}: two do not have it");
        let gets = |log: &str| log.lines().filter(|line| line.contains(" GET ")).count();
        stand::wait_for("the parent's log", || gets(&log(of_parent.path())) >= 1);
        stand::wait_for("the sibling's log", || gets(&log(of_sibling.path())) >= 2);
        let (of_sibling, of_parent) = (log(of_sibling.path()), log(of_parent.path()));
        assert!(of_sibling.contains("_HIT/200"), "{of_sibling}");
        assert_eq!(gets(&of_sibling), 2, "{of_sibling}");
        assert!(gets(&of_parent) == 1 && of_parent.contains("nowhere"), "{of_parent}");
        let ways = ways(admin);
        assert!(ways.contains("At sibling beside") && ways.contains("At parent above"), "{ways}");
    }
}
