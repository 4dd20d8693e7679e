//! Logins by LDAP servers of the tests' own, which answer what no honest server does, hang, end in the middle, or are many times too slow.

use super::tests_of_ldap::{ask, login, login_by, reload, result};
use super::{LoginRefusal, LoginReply, examine};
use crate::config::Loaded;
use crate::tls;
use larder_people::ber::{self, Elements};
use parking_lot::Mutex;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar};
use std::time::Duration;

const BIND: u8 = 0x60;
const SEARCH: u8 = 0x63;
const START_TLS: u8 = 0x77;
const BOUND: u8 = 0x61;
const DONE: u8 = 0x65;
const EXTENDED: u8 = 0x78;

const DIRECT: &str = "ldap_user_dn = \"uid={user},dc=example\"\n";
const SEARCHED: &str = "ldap_base = \"dc=example\"\nldap_filter = \"(uid={user})\"\n";

/// A reaction to a request.
enum Reaction {
    Send(Vec<u8>),
    SendAndClose(Vec<u8>),
    /// One byte after the other, without an end, each in time.
    Trickle(Vec<u8>),
    Silence,
}

/// The operations that a server was asked for, in their order.
type Asked = Arc<Mutex<Vec<u8>>>;

/// A server that reacts to each request by its number and operation.
fn server(react: impl Fn(u32, u8) -> Reaction + Send + Sync + 'static) -> (SocketAddr, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Asked::default());
    let (react, seen) = (Arc::new(react), Arc::clone(&asked));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (react, seen) = (Arc::clone(&react), Arc::clone(&seen));
            std::thread::spawn(move || serve(stream, &*react, &seen));
        }
    });
    (address, asked)
}

fn serve(mut stream: TcpStream, react: &dyn Fn(u32, u8) -> Reaction, asked: &Asked) -> Option<()> {
    let mut read = Vec::new();
    loop {
        let Some(length) = ber::message_bytes(&read).ok()?.filter(|length| *length <= read.len()) else {
            let mut some = [0; 4_096];
            match stream.read(&mut some).ok()? {
                0 => return None,
                length => read.extend_from_slice(&some[..length]),
            }
            continue;
        };
        let mut parts = Elements::of(Elements::of(&read[..length]).expect(ber::SEQUENCE).ok()?);
        let (id, (operation, _)) = (parts.integer().ok()?, parts.take_next().ok()??);
        read.drain(..length);
        asked.lock().push(operation);
        match react(id, operation) {
            Reaction::Send(bytes) => stream.write_all(&bytes).ok()?,
            Reaction::SendAndClose(bytes) => return stream.write_all(&bytes).ok(),
            Reaction::Trickle(bytes) => {
                for byte in bytes.into_iter().chain(std::iter::repeat(0)) {
                    stream.write_all(&[byte]).ok()?;
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            Reaction::Silence => {}
        }
    }
}

/// An entry with attributes of one value each.
fn entry(id: u32, dn: &str, attributes: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    ber::push_with(&mut out, ber::SEQUENCE, |out| {
        ber::push_integer(out, id);
        ber::push_with(out, 0x64, |out| {
            ber::push(out, ber::OCTETS, dn.as_bytes());
            ber::push_with(out, ber::SEQUENCE, |out| {
                for (name, value) in attributes {
                    ber::push_with(out, ber::SEQUENCE, |out| {
                        ber::push(out, ber::OCTETS, name.as_bytes());
                        ber::push_with(out, ber::SET, |out| ber::push(out, ber::OCTETS, value.as_bytes()));
                    });
                }
            });
        });
    });
    out
}

/// A directory whose one user has these attributes, and any password.
fn directory_with(attributes: &'static [(&str, &str)]) -> SocketAddr {
    let react = move |id, operation| match operation {
        BIND => Reaction::Send(result(id, BOUND, 0)),
        SEARCH => Reaction::Send([entry(id, "uid=ada,dc=example", attributes), result(id, DONE, 0)].concat()),
        _ => Reaction::Silence,
    };
    server(react).0
}

fn trouble() -> Option<LoginRefusal> {
    Some(LoginRefusal::Trouble("login-ldap"))
}

#[tokio::test]
async fn attributes_that_nobody_asked_for_make_no_groups() {
    let attributes = &[("description", "cn=admins,dc=example"), ("memberOf", "cn=staff,dc=example")];
    let server = format!("ldap = [\"ldap://{}\"]\n", directory_with(attributes));
    for way in [SEARCHED, DIRECT] {
        let (user, _) =
            ask(&login(&format!("{server}{way}ldap_groups = \"memberof\"\n")), "ada", "geheim").await.unwrap();
        assert_eq!(&*user.groups, [Box::from("staff")], "{way}");
        let (user, _) = ask(&login(&format!("{server}{way}")), "ada", "geheim").await.unwrap();
        assert!(user.groups.is_empty(), "{way}: {user:?}");
    }
}

#[tokio::test]
async fn an_answer_without_an_end_takes_no_more_memory_than_permitted() {
    let long = "x".repeat(64 << 10);
    let (address, asked) = server(move |id, operation| match operation {
        BIND => Reaction::Send(result(id, BOUND, 0)),
        _ => {
            let all = (0..200).map(|_| entry(id, "uid=ada,dc=example", &[("cn", &long)]));
            Reaction::Send(all.chain([result(id, DONE, 0)]).flatten().collect())
        }
    });
    let at = login(&format!("ldap = [\"ldap://{address}\"]\n{SEARCHED}ldap_timeout = \"20s\"\n"));
    assert_eq!(ask(&at, "ada", "geheim").await.err(), trouble());
    assert_eq!(*asked.lock(), [BIND, SEARCH]);
}

#[tokio::test]
async fn servers_that_end_or_hang_in_the_middle_let_nobody_in() {
    type React = fn(u32, u8) -> Reaction;
    let cases: [(&str, React); 6] = [
        ("half a message", |id, _| Reaction::SendAndClose(result(id, BOUND, 0)[..6].to_vec())),
        ("a message without an end", |_, _| Reaction::Trickle(vec![0x30, 0x83, 0x0f, 0xff, 0xff])),
        ("a length of 4 GiB", |_, _| Reaction::Send(vec![0x30, 0x84, 0xff, 0xff, 0xff, 0xff])),
        ("a length of 64 bits", |_, _| {
            Reaction::Send(vec![0x30, 0x88, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff])
        }),
        ("silence after the bind", |id, operation| match operation {
            BIND => Reaction::Send(result(id, BOUND, 0)),
            _ => Reaction::Silence,
        }),
        ("an answer to another request", |id, operation| match operation {
            BIND => Reaction::Send(result(id, BOUND, 0)),
            _ => Reaction::Send(result(id - 1, BOUND, 0)),
        }),
    ];
    for (name, react) in cases {
        let (address, _) = server(react);
        let at = login(&format!("ldap = [\"ldap://{address}\"]\n{SEARCHED}ldap_timeout = \"500ms\"\n"));
        assert_eq!(ask(&at, "ada", "geheim").await.err(), trouble(), "{name}");
    }
}

/// A server that is started anew says so on all its connections, then closes them.
#[tokio::test]
async fn a_notice_of_disconnection_on_an_idle_connection_costs_no_login() {
    let notice_behind = |id, _| {
        let notice = result(0, EXTENDED, 52);
        Reaction::SendAndClose([result(id, BOUND, 0), notice].concat())
    };
    let (address, _) = server(notice_behind);
    let at = login(&format!("ttl = \"0s\"\nldap = [\"ldap://{address}\"]\n{DIRECT}"));
    // More questions than threads, so that some thread has a connection from before.
    for number in 0..12 {
        let reply = ask(&at, "ada", "geheim").await;
        assert!(reply.is_ok(), "{number}: {reply:?}");
    }
}

#[tokio::test]
async fn no_password_goes_in_clear_where_start_tls_fails() {
    type React = fn(u32, u8) -> Reaction;
    let cases: [(&str, React); 5] = [
        ("refused", |id, _| Reaction::Send(result(id, EXTENDED, 2))),
        ("more behind the answer", |id, _| {
            Reaction::Send([result(id, EXTENDED, 0), result(id + 1, BOUND, 0)].concat())
        }),
        ("the answer of a bind", |id, _| Reaction::Send(result(id, BOUND, 0))),
        ("no TLS after it", |id, operation| match operation {
            START_TLS => Reaction::Send(result(id, EXTENDED, 0)),
            _ => Reaction::Send(result(id, BOUND, 0)),
        }),
        ("closed", |_, _| Reaction::SendAndClose(Vec::new())),
    ];
    for (name, react) in cases {
        let (address, asked) = server(react);
        let settings = "ldap_start_tls = true\nldap_timeout = \"500ms\"\n";
        let at = login(&format!("ldap = [\"ldap://{address}\"]\n{DIRECT}{settings}"));
        assert_eq!(ask(&at, "ada", "geheim").await.err(), trouble(), "{name}");
        assert_eq!(*asked.lock(), [START_TLS], "{name}");
    }
}

#[tokio::test]
async fn names_and_passwords_that_prove_nothing_are_no_question() {
    let (address, asked) = server(|id, _| Reaction::Send(result(id, BOUND, 0)));
    let at = login(&format!("ldap = [\"ldap://{address}\"]\n{DIRECT}"));
    for (user, password) in [
        ("ada", ""),
        ("", "geheim"),
        ("ada", "a\0b"),
        ("jürgen", "geheim"),
        ("ada\u{301}", "geheim"),
        ("a  b", "geheim"),
    ] {
        assert_eq!(ask(&at, user, password).await.err(), Some(LoginRefusal::Wrong), "{user:?} {password:?}");
    }
    assert!(asked.lock().is_empty(), "{:?}", asked.lock());
    // The server answers, and one spelling is one user.
    let (user, _) = ask(&at, "ADA", "geheim").await.unwrap();
    assert_eq!((&*user.name, &**asked.lock()), ("ada", &[BIND][..]));
}

#[tokio::test]
async fn a_reload_with_other_servers_asks_these() {
    let (right, _) = server(|id, _| Reaction::Send(result(id, BOUND, 0)));
    let (wrong, asked) = server(|id, _| Reaction::Send(result(id, BOUND, 49)));
    let settings = |address: SocketAddr| format!("ldap = [\"ldap://{address}\"]\n{DIRECT}");
    let (people, first) = login(&settings(right));
    let at = (people, first);
    assert!(ask(&at, "ada", "geheim").await.is_ok());
    // The password is remembered, and no longer after the reload.
    let (people, _) = at;
    let second = reload(&people, &settings(wrong));
    let at = (people, second);
    assert_eq!(ask(&at, "ada", "geheim").await.err(), Some(LoginRefusal::Wrong));
    assert_eq!(*asked.lock(), [BIND]);
}

/// The threads that check, and the checks that wait for one.
const CHECKS_MAX: usize = 4 + 256;

#[tokio::test]
async fn checks_beyond_the_queue_are_refused_at_once_and_the_others_answered() {
    let gate = Arc::new((std::sync::Mutex::new(false), Condvar::new()));
    let is_open = Arc::clone(&gate);
    let (address, _) = server(move |id, _| {
        let (open, opened) = &*is_open;
        drop(opened.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
        Reaction::Send(result(id, BOUND, 0))
    });
    let settings = "ttl = \"0s\"\nldap_timeout = \"25s\"\n";
    let (people, login) = login(&format!("{settings}ldap = [\"ldap://{address}\"]\n{DIRECT}"));
    let people = Arc::new(people);
    let mut checks = tokio::task::JoinSet::new();
    let beyond = 40;
    for number in 0..CHECKS_MAX + beyond {
        let (people, login) = (Arc::clone(&people), Arc::clone(&login));
        let client = Ipv4Addr::from_bits(0x0a00_0000 + u32::try_from(number).unwrap());
        checks.spawn(async move { login.check_password(client.into(), ("ada", "geheim"), &people.helpers).await });
    }
    let busy = |reply: &LoginReply| *reply == Err(LoginRefusal::Trouble("login-busy"));
    // Nobody is answered yet, so each of these is one that found the queue full.
    for _ in 0..beyond {
        let reply = checks.join_next().await.unwrap().unwrap();
        assert!(busy(&reply), "{reply:?}");
    }
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    let rest = checks.join_all().await;
    // Threads may have taken none of their checks when the queue was full.
    let (refused, right) =
        (rest.iter().filter(|reply| busy(reply)).count(), rest.iter().filter(|it| it.is_ok()).count());
    assert!(refused <= 4 && refused + right == CHECKS_MAX, "{refused} {right} {}", rest.len());
}

#[tokio::test]
async fn a_check_whose_client_has_left_is_not_made() {
    let is_open = Arc::new(AtomicBool::new(false));
    let gate = Arc::clone(&is_open);
    let (address, asked) = server(move |id, _| {
        while !gate.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Reaction::Send(result(id, BOUND, 0))
    });
    let (people, login) =
        login(&format!("ttl = \"0s\"\nldap_timeout = \"25s\"\nldap = [\"ldap://{address}\"]\n{DIRECT}"));
    let people = Arc::new(people);
    let check = |number: u8| {
        let (people, login) = (Arc::clone(&people), Arc::clone(&login));
        let client = Ipv4Addr::new(192, 0, 2, number);
        tokio::spawn(async move { login.check_password(client.into(), ("ada", "geheim"), &people.helpers).await })
    };
    // All threads wait for the server.
    let first: Vec<_> = (0..4).map(check).collect();
    while asked.lock().len() < 4 {
        tokio::task::yield_now().await;
    }
    let gone = check(9);
    tokio::task::yield_now().await;
    gone.abort();
    assert!(gone.await.is_err());
    is_open.store(true, Ordering::Release);
    for check in first {
        assert!(check.await.unwrap().is_ok());
    }
    // The queue is asked in its order: behind this answer the check of the client that has left was passed over.
    assert!(check(10).await.unwrap().is_ok());
    assert_eq!(asked.lock().len(), 5);
}

#[test]
fn a_password_file_that_cannot_be_used_is_named_by_check() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    let text = format!(
        "[[login]]\nname = \"office\"\nscheme = \"basic\"\nldap = [\"ldaps://a.example\"]\n{SEARCHED}\
         ldap_bind_dn = \"cn=a\"\nldap_password_file = {file:?}\n"
    );
    let config = Loaded::parse("test", &text, &[]).unwrap_or_else(|report| panic!("{report}")).config;
    let named = |wanted: &str| {
        let trouble = examine(&config).unwrap_err();
        assert!(trouble.contains("login office") && trouble.contains(&file.display().to_string()), "{trouble}");
        assert!(trouble.contains(wanted), "{trouble}");
    };
    named("No such file");
    std::fs::create_dir(&file).unwrap();
    named("cannot read");
    std::fs::remove_dir(&file).unwrap();
    for content in ["", "\n", "a\0b\n"] {
        std::fs::write(&file, content).unwrap();
        named("has no password");
    }
    std::fs::write(&file, b"\xff\xfe\n").unwrap();
    named("cannot read");
    std::fs::write(&file, "dienst\n").unwrap();
    assert_eq!(examine(&config), Ok(Vec::new()));
}

#[tokio::test]
async fn the_handshake_with_a_server_offers_no_http() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let hello = std::thread::spawn(move || {
        let (mut stream, mut hello) = (listener.accept().unwrap().0, vec![0; 16_384]);
        let length = stream.read(&mut hello).unwrap();
        hello.truncate(length);
        hello
    });
    let nobody = tls::Roots { certificates: Vec::new(), troubles: Vec::new() };
    let at =
        login_by(&format!("ldap = [\"ldaps://{address}\"]\nldap_user_dn = \"uid={{user}},dc=example\"\n"), &nobody);
    assert_eq!(ask(&at, "ada", "geheim").await.err(), Some(LoginRefusal::Trouble("login-ldap")));
    let hello = hello.join().unwrap();
    assert!(hello.starts_with(&[0x16, 3]) && !hello.windows(8).any(|part| part == b"http/1.1"));
}
