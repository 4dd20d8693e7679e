//! Servers that lie are caught at each lie by its name, and one that does not is accused of nothing, however it frames its
//! replies.

use super::*;
use crate::board::page::threads_of;
use crate::board::{Board, PAGES};
use crate::ledger::{Class, Interval, Ledger, Outcome, Run, Trouble};
use crate::proc::Watched;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How a double deviates from a right server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    // No lie among these.
    Honest,
    Chunked,
    UntilClose,
    /// Connections end after each reply, and the reply does not say so.
    Closes,
    /// Headers with other letters, an interim head, an absolute place.
    Spelling,
    // Lies.
    OtherThread,
    OtherUser,
    ForgetsUser,
    /// A page for somebody comes to one who is nobody.
    LeaksUser,
    /// Posts are acknowledged and dropped.
    DropsPosts,
    /// The page of a thread is always that of its first request, as from a cache.
    KeepsPages,
    DoublesPosts,
    OtherList,
    OneByte,
    Short,
    Surplus,
    NotHttp,
    Fails,
    NotFound,
    LosesNoStore,
    SetsCookie,
    OtherPlace,
    OtherMedia,
    OtherHello,
    ClosesUnasked,
}

struct Double {
    way: Way,
    board: Mutex<Board>,
    replies: AtomicU64,
    stop: AtomicBool,
}

struct Request {
    method: String,
    path: String,
    session: String,
    body: String,
    closes: bool,
}

fn read_request(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        match stream.read(&mut piece) {
            Ok(length) if length > 0 => bytes.extend_from_slice(&piece[..length]),
            _ => return None,
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let field = |name: &str| {
        head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned)).unwrap_or_default()
    };
    let length: usize = field("Content-Length").parse().unwrap_or(0);
    while bytes.len() < end + length {
        match stream.read(&mut piece) {
            Ok(length) if length > 0 => bytes.extend_from_slice(&piece[..length]),
            _ => return None,
        }
    }
    let mut words = head.split(' ');
    Some(Request {
        method: words.next()?.to_owned(),
        path: words.next()?.to_owned(),
        session: field("Cookie").trim_start_matches("session=").to_owned(),
        body: String::from_utf8_lossy(&bytes[end..]).into_owned(),
        closes: field("Connection") == "close",
    })
}

/// A form as it was typed.
fn decoded(form: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = form.trim_start_matches("text=").bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            other => other,
        });
    }
    String::from_utf8(bytes).unwrap()
}

/// Status, further fields, body.
type Answer = (u16, String, Vec<u8>);

const NO_STORE: &str = "Cache-Control: no-store\r\n";

impl Double {
    fn start(way: Way) -> (SocketAddr, Arc<Self>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let board = Mutex::new(Board::new());
        let double = Arc::new(Self { way, board, replies: AtomicU64::new(0), stop: AtomicBool::new(false) });
        let shared = Arc::clone(&double);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if shared.stop.load(Relaxed) {
                    return;
                }
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || shared.serve(stream));
            }
        });
        (address, double)
    }

    fn serve(&self, mut stream: TcpStream) {
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream.set_nodelay(true).unwrap();
        while let Some(request) = read_request(&mut stream) {
            let lies = self.replies.fetch_add(1, Relaxed) % 3 == 2;
            if lies && self.way == Way::ClosesUnasked {
                return;
            }
            let reply = self.framed(self.answer(&request, lies), lies, &request);
            let ends =
                request.closes || matches!(self.way, Way::UntilClose | Way::Closes) || lies && self.way == Way::Short;
            if stream.write_all(&reply).is_err() || ends {
                return;
            }
        }
    }

    fn answer(&self, request: &Request, lies: bool) -> Answer {
        let fields = |media: &str| format!("Content-Type: {media}\r\n{NO_STORE}");
        match self.way {
            Way::Fails if lies => return (500, fields("text/plain"), b"no\n".to_vec()),
            Way::NotFound if lies => return (404, fields("text/plain"), b"no\n".to_vec()),
            _ => {}
        }
        if request.path == "/hello" {
            let body = if lies && self.way == Way::OtherHello { b"Hello, world!\n" } else { b"Hello, World!\n" };
            return (200, fields("text/plain"), body.to_vec());
        }
        let number: u32 = request.path.rsplit('/').next().unwrap().parse().unwrap();
        let mut board = self.board.lock().unwrap();
        let reader = (0..crate::board::USERS).find(|user| board.user(*user).token == request.session);
        let mut page = Vec::new();
        if request.method == "POST" {
            let times = match self.way {
                Way::DropsPosts if lies => 0,
                Way::DoublesPosts if lies => 2,
                _ => 1,
            };
            (0..times).for_each(|_| board.add_post(number, reader.unwrap(), decoded(&request.body)));
            let place = match self.way {
                Way::OtherPlace if lies => "/thread/1x".to_owned(),
                Way::Spelling => format!("http://127.0.0.1:80/thread/{number}"),
                _ => format!("/thread/{number}"),
            };
            return (303, fields("text/html") + &format!("Location: {place}\r\n"), Vec::new());
        }
        if request.path.starts_with("/list/") {
            let number = if lies && self.way == Way::OtherList { (number + 1) % PAGES } else { number };
            let counts: Vec<usize> = threads_of(number).map(|thread| board.posts(thread)).collect();
            board.list_page(number, &counts, &mut page);
        } else {
            let thread = if lies && self.way == Way::OtherThread { number % 1_000 + 1 } else { number };
            let reader = match self.way {
                Way::OtherUser if lies => reader.map(|user| user + 1),
                Way::ForgetsUser if lies => None,
                Way::LeaksUser if lies => Some(reader.unwrap_or(9)),
                _ => reader,
            };
            let posts = if self.way == Way::KeepsPages { 20 } else { board.posts(thread) };
            board.thread_page(thread, posts, reader, &mut page);
        }
        if lies && self.way == Way::OneByte {
            // In the heading: a damaged number of posts, or a post without its beginning, would be a post that is lost.
            let heading = page.windows(5).position(|five| five == b"</h1>").unwrap();
            page[heading - 1] ^= 1;
        }
        let media = if lies && self.way == Way::OtherMedia { "text/plain" } else { "text/html; charset=utf-8" };
        let other = match self.way {
            Way::LosesNoStore if lies => format!("Content-Type: {media}\r\nCache-Control: max-age=9\r\n"),
            Way::SetsCookie if lies => fields(media) + "Set-Cookie: session=1\r\n",
            Way::Spelling => "CONTENT-TYPE: Text/HTML;charset=UTF-8\r\ncache-control: private, NO-STORE\r\n".to_owned(),
            _ => fields(media),
        };
        (200, other, page)
    }

    fn framed(&self, (status, fields, body): Answer, lies: bool, request: &Request) -> Vec<u8> {
        let length = body.len();
        let head = |more: &str| format!("HTTP/1.1 {status} x\r\n{fields}{more}\r\n").into_bytes();
        match self.way {
            Way::Chunked => {
                let (one, two) = body.split_at(length / 3);
                let chunk = |piece: &[u8]| match piece.is_empty() {
                    true => Vec::new(),
                    false => [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat(),
                };
                [head("Transfer-Encoding: chunked\r\n"), chunk(one), chunk(two), b"0\r\n\r\n".to_vec()].concat()
            }
            Way::UntilClose => [head("Connection: close\r\n"), body].concat(),
            Way::Spelling if request.method == "POST" => {
                [b"HTTP/1.1 103 Early Hints\r\n\r\n".to_vec(), head("content-length: 0\r\n")].concat()
            }
            Way::Short if lies && length > 9 => [&head(&format!("Content-Length: {length}\r\n")), &body[9..]].concat(),
            Way::Surplus if lies => [head(&format!("Content-Length: {length}\r\n")), body, b"more".to_vec()].concat(),
            Way::NotHttp if lies => b"HELLO\r\n\r\n".to_vec(),
            _ => [head(&format!("Content-Length: {length}\r\n")), body].concat(),
        }
    }
}

fn play_with(way: Way, name: &str, changes: &[(&str, &str)], rate: Option<f64>) -> Ledger {
    let (address, double) = Double::start(way);
    let times = [("phase.warm.length", "50ms"), ("phase.measure.length", "700ms"), ("robot.count", "4")];
    let changes = times.iter().chain(changes).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<Vec<_>>();
    let plan = PageWorkload::named(name).unwrap().plan(None, &changes).unwrap();
    let order = Order {
        plan: PagePlan { rate_per_s: rate, ..plan },
        address,
        seed: 7,
        head: Run::default(),
        watched: Watched::Nobody,
        stop: Arc::default(),
    };
    let ledger = play(order).unwrap();
    double.stop.store(true, Relaxed);
    drop(TcpStream::connect(address));
    assert_eq!(ledger.end.outcome, Outcome::Complete);
    ledger
}

fn whole(ledger: &Ledger) -> Interval {
    let mut whole = Interval::default();
    ledger.intervals.iter().for_each(|interval| whole.extend(interval));
    whole
}

fn caught(way: Way, name: &str, expected: Trouble) {
    let seen = whole(&play_with(way, name, &[], None));
    assert!(seen.errors.of(expected) > 0, "{way:?} was not caught: {:?}", seen.errors);
    assert_eq!(seen.errors.total(), seen.errors.of(expected), "{way:?}: {:?}", seen.errors);
    assert!(seen.errors.exhibits.iter().all(|exhibit| !exhibit.detail.is_empty() && exhibit.url.starts_with('/')));
}

#[test]
fn a_page_of_another_thread_or_of_the_list_is_caught() {
    caught(Way::OtherThread, "board", Trouble::ForeignReply);
    caught(Way::OtherList, "board", Trouble::ForeignReply);
}

#[test]
fn a_page_for_another_user_is_caught_and_so_is_one_that_forgets_its_user() {
    caught(Way::OtherUser, "board", Trouble::MixedUsers);
    caught(Way::LeaksUser, "board", Trouble::MixedUsers);
    caught(Way::ForgetsUser, "board", Trouble::LostCredentials);
}

#[test]
fn a_post_that_is_lost_or_made_twice_is_caught() {
    caught(Way::DropsPosts, "board", Trouble::LostPost);
    caught(Way::KeepsPages, "board", Trouble::LostPost);
    caught(Way::DoublesPosts, "board", Trouble::RepeatedPost);
}

#[test]
fn wrong_bytes_fields_and_statuses_are_caught() {
    for (way, name, expected) in [
        (Way::OneByte, "board", Trouble::WrongBytes),
        (Way::OtherHello, "page", Trouble::WrongBytes),
        (Way::Short, "page", Trouble::Truncated),
        (Way::Surplus, "page", Trouble::SurplusBytes),
        (Way::NotHttp, "page", Trouble::Malformed),
        (Way::Fails, "page", Trouble::Refused),
        (Way::NotFound, "page", Trouble::WrongStatus),
        (Way::LosesNoStore, "board", Trouble::LostField),
        (Way::SetsCookie, "board", Trouble::InjectedCookie),
        (Way::OtherPlace, "board", Trouble::WrongHeader),
        (Way::OtherMedia, "board", Trouble::WrongHeader),
    ] {
        caught(way, name, expected);
    }
}

/// However the replies are framed: both workloads, connections that are kept and others.
#[test]
fn a_right_server_is_accused_of_nothing() {
    for way in [Way::Honest, Way::Chunked, Way::UntilClose, Way::Spelling] {
        for uses in ["none", "1", "3"] {
            let seen = whole(&play_with(way, "board", &[("robot.connection_uses", uses)], None));
            assert!(seen.errors.is_empty(), "{way:?}, {uses}: {:?}", seen.errors);
            let count = |content| seen.class(Class::Content(content)).replies;
            assert!((1..6).all(|content| count(content) > 0), "{way:?}: {:?}", seen.classes.keys());
            assert!(count(3).abs_diff(count(4)) <= 4, "each post is followed by its page: {} {}", count(3), count(4));
            let client = seen.connections[&crate::ledger::Side::Client];
            assert_eq!(client.reused > 0, uses != "1" && way != Way::UntilClose, "{way:?}, {uses}: {client:?}");
        }
    }
    let hello = whole(&play_with(Way::Honest, "page", &[("robot.count", "1")], None));
    assert!(hello.errors.is_empty() && hello.class(Class::Page).replies == hello.replies() && hello.replies() > 50);
    assert_eq!(hello.class(Class::Basic).replies, 0, "a page is neither a hit nor a miss");
}

/// A server that ends a kept connection without a word is asked once more for what may be repeated; a POST may not be, and its
/// fate is then unknown, which is never held against the pages that follow.
#[test]
fn a_kept_connection_that_has_ended_is_no_error_of_a_page() {
    let seen = whole(&play_with(Way::Closes, "page", &[], None));
    assert!(seen.errors.is_empty(), "{:?}", seen.errors);
    assert!(seen.connections[&crate::ledger::Side::Client].retried > 0);
    let seen = whole(&play_with(Way::ClosesUnasked, "board", &[], None));
    let lies = seen.errors.lies();
    assert_eq!((lies, seen.errors.total()), (0, seen.errors.of(Trouble::Reset)), "{:?}", seen.errors);
}

#[test]
fn an_open_loop_asks_at_its_rate_and_counts_from_the_time_at_which_a_request_was_due() {
    let ledger = play_with(Way::Honest, "page", &[], Some(500.0));
    let measured = ledger.phase(1);
    assert!(measured.errors.is_empty(), "{:?}", measured.errors);
    assert!((200..=500).contains(&measured.due), "{}", measured.due);
    assert!(measured.replies().abs_diff(measured.due) <= 10, "{} of {}", measured.replies(), measured.due);
    // A server that is slower than the rate: requests wait for a connection, and what never gets one is told.
    let slow = play_with(Way::Honest, "page", &[("robot.count", "1"), ("robot.connection_uses", "1")], Some(200_000.0));
    let slow = slow.phase(1);
    assert!(slow.errors.of(Trouble::GaveUp) > 0 && slow.errors.lies() == 0, "{:?}", slow.errors);
    assert!(slow.wait.mean().unwrap() > 1_000.0, "the wait is part of the response time");
}

#[test]
fn a_server_that_is_not_there_is_said_and_is_not_asked_without_end() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let times = [("phase.warm.length", "50ms"), ("phase.measure.length", "300ms")];
    let changes = times.map(|(k, v)| (k.to_owned(), v.to_owned()));
    let plan = PageWorkload::named("page").unwrap().plan(Some("1-kept"), &changes).unwrap();
    let (watched, stop) = (Watched::Nobody, Arc::default());
    let ledger = play(Order { plan, address: free, seed: 1, head: Run::default(), watched, stop }).unwrap();
    let refused = whole(&ledger).errors.of(Trouble::ConnectRefused);
    assert!((1..=5).contains(&refused), "{refused}");
}
