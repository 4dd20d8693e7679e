//! Applications in Python as origins, with a real interpreter; servers behind a Unix socket.

use super::reload::{Steered, base};
use super::stand::{self, body, exchange, wait_for};
use larder::mount::MountState;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

/// An application that does what its paths say.
const APPLICATION: &str = r#"
import os, time
VERSION = "one"
def application(environ, start_response):
    path = environ["PATH_INFO"]
    headers = [("Content-Type", "text/plain")]
    if path.startswith("/cached"):
        headers.append(("Cache-Control", "max-age=60"))
    if path == "/raise":
        raise ValueError("the secret of the day")
    if path == "/hang":
        while True:
            pass
    if path == "/exit":
        os._exit(7)
    if path == "/held":
        while not os.path.exists("go"):
            time.sleep(0.01)
    if path == "/slow":
        time.sleep(0.2)
    if path == "/length":
        start_response("200 OK", headers)
        return [b"%d" % len(environ["wsgi.input"].read())]
    if path == "/stream":
        start_response("200 OK", headers)
        return (b"%d," % number for number in range(1000))
    if path == "/endless":
        start_response("200 OK", headers)
        return iter(lambda: b"x" * 65536, None)
    if path == "/said":
        start_response("200 OK", headers)
        names = ["REMOTE_ADDR", "HTTP_X_A", "HTTP_X_B", "larder.request", "wsgi.url_scheme", "HTTP_LARDER_REQUEST"]
        return ["\n".join("%s=%s" % (name, environ.get(name, "-")) for name in names).encode()]
    start_response("200 OK", headers)
    return [("%s %d" % (VERSION, os.getpid())).encode()]
"#;

pub fn settings(folder: &Path, python: &str) -> String {
    let site = "[[listen]]\naddress = \"127.0.0.1:0\"\n[[site]]\nhosts = [\"app.example\"]\norigin = \"wsgi:app\"\n";
    let folder_text = folder.display();
    format!("{}{site}[[python]]\nname = \"app\"\nfolder = \"{folder_text}\"\n{python}", base(folder))
}

/// A server with the application, which is ready.
pub fn started(folder: &Path, python: &str) -> (Steered, SocketAddr) {
    fs::write(folder.join("app.py"), APPLICATION).unwrap();
    let steered = Steered::start(folder, &settings(folder, python));
    let proxy = steered.server.addresses()[0];
    let answer = get(proxy, "/");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    (steered, proxy)
}

pub fn get(to: SocketAddr, path: &str) -> String {
    with(to, &format!("GET {path}"), "", "")
}

pub fn with(to: SocketAddr, line: &str, fields: &str, body: &str) -> String {
    let head = format!("{line} HTTP/1.1\r\nHost: app.example\r\nConnection: close\r\n{fields}\r\n");
    exchange(to, &(head + body))
}

pub fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or_default()
}

#[test]
fn an_application_is_an_origin_whose_answers_are_cached_by_the_ordinary_rules() {
    let folder = tempfile::tempdir().unwrap();
    let (_steered, proxy) = started(folder.path(), "");
    let (first, second) = (get(proxy, "/cached"), get(proxy, "/cached"));
    assert!(first.contains("uri-miss") && second.contains("; hit"), "{first}\n{second}");
    assert_eq!(body(&first), body(&second));
    let streamed = get(proxy, "/stream");
    let numbers: String = (0..1000).map(|number| format!("{number},")).collect();
    assert!(streamed.to_ascii_lowercase().contains("transfer-encoding: chunked"), "{streamed}");
    let content: String = body(&streamed).split("\r\n").skip(1).step_by(2).collect();
    assert_eq!(content, numbers);
    let length = "Content-Length: 300000\r\nExpect: 100-continue\r\n";
    assert!(with(proxy, "POST /length", length, &"z".repeat(300_000)).ends_with("300000"));
    let chunks = format!("{:x}\r\n{}\r\n0\r\n\r\n", 70_000, "z".repeat(70_000));
    assert!(with(proxy, "POST /length", "Transfer-Encoding: chunked\r\n", &chunks).ends_with("70000"));
}

#[test]
fn an_application_knows_the_client_and_its_request_by_no_word_of_the_client() {
    let folder = tempfile::tempdir().unwrap();
    let (_steered, proxy) = started(folder.path(), "");
    let fields =
        "X-Forwarded-For: 9.9.9.9\r\nX-Forwarded-Proto: https\r\nLarder-Request: forged\r\nX-A: a\r\nX_B: b\r\n";
    let said = with(proxy, "GET /said", fields, "");
    let name = said.lines().find_map(|line| line.strip_prefix("Larder-Request: ")).map(str::to_owned);
    for line in ["REMOTE_ADDR=127.0.0.1", "HTTP_X_A=a", "HTTP_X_B=-", "wsgi.url_scheme=http", "HTTP_LARDER_REQUEST=-"] {
        assert!(said.contains(line), "{line}\n{said}");
    }
    assert!(!said.contains("forged"), "{said}");
    if let Some(name) = name {
        assert!(said.contains(&format!("larder.request={name}")), "{said}");
    }
}

#[test]
fn an_exception_is_one_answer_and_its_traceback_is_not_the_client_s() {
    let folder = tempfile::tempdir().unwrap();
    let (_steered, proxy) = started(folder.path(), "processes = 1\n");
    let before = get(proxy, "/");
    let failed = get(proxy, "/raise");
    assert_eq!(status(&failed), "500");
    assert!(!failed.contains("secret") && failed.contains("no-store"), "{failed}");
    assert_eq!(body(&before), body(&get(proxy, "/")), "the process goes on");
}

#[test]
fn a_request_that_hangs_is_answered_504_and_others_are_served() {
    let folder = tempfile::tempdir().unwrap();
    let (steered, proxy) = started(folder.path(), "request_time = \"300ms\"\nstandby = 1\n");
    let hangs = std::thread::spawn(move || get(proxy, "/hang"));
    for _ in 0..20 {
        assert_eq!(status(&get(proxy, "/")), "200");
    }
    assert_eq!(status(&hangs.join().unwrap()), "504");
    let mounts = steered.server.shared().nursery.mounts();
    let state = &mounts.all()[0];
    wait_for("the process that hung is ended and replaced", || {
        state.counts.hung.load(std::sync::atomic::Ordering::Relaxed) == 1 && state.processes().len() == 2
    });
    // It is among the failures, with the place at which it hung.
    let failures = || state.report().failures.into_iter().find(|failure| failure.target == "/hang");
    wait_for("its place", || {
        failures().is_some_and(|failure| failure.traceback.contains("it was here: app.py, line "))
    });
    let failure = failures().unwrap();
    assert!(failure.method == "GET" && !failure.request.is_empty(), "{failure:?}");
    assert!(failure.traceback.starts_with("no answer began within 0.3 s (`request_time`)\n"), "{failure:?}");
    assert_eq!(status(&get(proxy, "/")), "200");
}

#[test]
fn no_request_waits_behind_one_that_does_not_end() {
    let folder = tempfile::tempdir().unwrap();
    // On a busy machine the many requests take longer than the time that one request has by default.
    let (_steered, proxy) = started(folder.path(), "processes = 2\nrequest_time = \"10m\"\n");
    let ask_many = move || {
        let mut own = BufReader::new(TcpStream::connect(proxy).unwrap());
        for _ in 0..100 {
            own.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: app.example\r\n\r\n").unwrap();
            let head: Vec<String> =
                own.by_ref().lines().map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
            assert_eq!(head.first().map(|line| status(line)), Some("200"), "{head:?}");
            let length =
                head.iter().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            own.read_exact(&mut vec![0; length.unwrap()]).unwrap();
        }
    };
    let together = || {
        let askers: Vec<_> = (0..12).map(|_| std::thread::spawn(ask_many)).collect();
        askers.into_iter().for_each(|asker| asker.join().unwrap());
    };
    // The processes are quick, and get requests ahead.
    together();
    let held = std::thread::spawn(move || get(proxy, "/held"));
    together();
    together();
    assert!(!held.is_finished());
    fs::write(folder.path().join("go"), "").unwrap();
    assert_eq!(status(&held.join().unwrap()), "200");
}

#[test]
fn a_client_that_leaves_gives_its_place_back() {
    let folder = tempfile::tempdir().unwrap();
    let (steered, proxy) = started(folder.path(), "processes = 1\n");
    for path in ["/endless", "/slow", "/stream"] {
        let mut client = TcpStream::connect(proxy).unwrap();
        client.write_all(format!("GET {path} HTTP/1.1\r\nHost: app.example\r\n\r\n").as_bytes()).unwrap();
        if path == "/endless" {
            client.read_exact(&mut [0; 100_000]).unwrap();
        }
        drop(client);
        assert_eq!(status(&get(proxy, "/")), "200", "after {path}");
    }
    let mounts = steered.server.shared().nursery.mounts();
    wait_for("all places are free", || mounts.all()[0].processes().iter().all(|process| process.under_way() == 0));
    let hung = mounts.all()[0].counts.hung.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(hung, 0, "nobody was taken for one that hangs");
}

#[test]
fn a_process_that_ends_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (steered, proxy) = started(folder.path(), "processes = 2\n");
    assert_eq!(status(&with(proxy, "POST /exit", "Content-Length: 0\r\n", "")), "502");
    let mounts = steered.server.shared().nursery.mounts();
    wait_for("two processes serve again", || mounts.all()[0].processes().len() == 2);
    assert_eq!(status(&get(proxy, "/")), "200");
}

#[test]
fn a_request_that_ends_its_process_does_not_end_the_next_one_too() {
    let folder = tempfile::tempdir().unwrap();
    let (steered, proxy) = started(folder.path(), "processes = 2\n");
    let mounts = steered.server.shared().nursery.mounts();
    let processes = || -> Vec<u32> { mounts.all()[0].processes().iter().map(|process| process.pid).collect() };
    wait_for("two processes serve", || processes().len() == 2);
    // The connections to both are kept: a request on one of them that ends may be sent again where it was not read.
    for _ in 0..20 {
        assert_eq!(status(&get(proxy, "/")), "200");
    }
    let before = processes();
    assert_eq!(status(&get(proxy, "/exit")), "502");
    wait_for("two processes serve again", || processes().len() == 2 && processes() != before);
    let left = processes().iter().filter(|pid| before.contains(pid)).count();
    assert_eq!(left, 1, "{before:?}, then {:?}", processes());
}

#[test]
fn changed_files_are_taken_up_all_or_nothing_and_no_request_fails() {
    let folder = tempfile::tempdir().unwrap();
    let (steered, proxy) = started(folder.path(), "reload = \"on-change\"\n");
    let version = || body(&get(proxy, "/")).split(' ').next().unwrap_or_default().to_owned();
    let write = |text: String| fs::write(folder.path().join("app.py"), text).unwrap();
    let state = &steered.server.shared().nursery.mounts().all()[0];
    write(APPLICATION.replace("\"one\"", "\"two\""));
    wait_for("the new version serves", || {
        let version = version();
        assert!(["one", "two"].contains(&version.as_str()), "{version}");
        // Each worker takes it up by itself.
        version == "two" && (0..20).all(|_| self::body(&get(proxy, "/")).starts_with("two "))
    });
    write("import no_such_module\n".to_owned());
    wait_for("the broken version is refused", || {
        assert_eq!(version(), "two");
        state.report().load_failure.is_some()
    });
    assert_eq!(version(), "two");
    write(APPLICATION.replace("\"one\"", "\"three\""));
    wait_for("the mended version serves", || version() == "three");
    assert_eq!(state.report().load_failure, None);
}

/// Frameworks import the modules of views at the first request for them.
#[test]
fn a_module_that_a_request_imported_is_watched_too() {
    let folder = tempfile::tempdir().unwrap();
    let lazy = "def application(environ, start_response):\n    import views\n    start_response('200 OK', [])\n    return [views.TEXT]\n";
    fs::write(folder.path().join("app.py"), lazy).unwrap();
    let views = folder.path().join("views.py");
    fs::write(&views, "TEXT = b'one'\n").unwrap();
    let steered = Steered::start(folder.path(), &settings(folder.path(), "reload = \"on-change\"\nprocesses = 1\n"));
    let proxy = steered.server.addresses()[0];
    assert_eq!(body(&get(proxy, "/")), "one");
    // Longer than the grain of the clock of files.
    std::thread::sleep(std::time::Duration::from_millis(50));
    fs::write(&views, "TEXT = b'two'\n").unwrap();
    wait_for("the new view is served", || body(&get(proxy, "/")) == "two");
}

#[test]
fn an_application_that_cannot_be_loaded_says_why_and_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("app.py"), "import no_such_module\n").unwrap();
    let steered = Steered::start(folder.path(), &settings(folder.path(), ""));
    let proxy = steered.server.addresses()[0];
    let failed = get(proxy, "/");
    assert_eq!(status(&failed), "502", "{failed}");
    assert!(failed.contains("application-failed") && !failed.contains("no_such_module"), "{failed}");
    let trouble = steered.server.shared().nursery.mounts().all()[0].trouble().unwrap_or_default();
    assert!(trouble.contains("no_such_module"), "{trouble}");
    fs::write(folder.path().join("app.py"), APPLICATION).unwrap();
    steered.server.shared().reload().unwrap();
    wait_for("the mended application serves", || status(&get(proxy, "/")) == "200");
}

#[test]
fn without_an_interpreter_the_server_starts_and_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("app.py"), APPLICATION).unwrap();
    let python = "interpreter = \"/nowhere/bin/python\"\n";
    let steered = Steered::start(folder.path(), &settings(folder.path(), python));
    let failed = get(steered.server.addresses()[0], "/");
    let trouble = steered.server.shared().nursery.mounts().all()[0].trouble().unwrap_or_default();
    assert!(status(&failed) == "502" && trouble.contains("/nowhere/bin/python"), "{failed}{trouble}");
}

#[test]
fn applications_come_and_go_at_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let (steered, proxy) = started(folder.path(), "");
    let (changed, _) = steered.reload(&settings(folder.path(), "processes = 3\n")).unwrap();
    assert!(changed.contains(&"python".to_owned()), "{changed:?}");
    let mounts = steered.server.shared().nursery.mounts();
    wait_for("three processes serve", || {
        assert_eq!(status(&get(proxy, "/")), "200");
        mounts.all()[0].processes().len() == 3
    });
    let origin = stand::origin();
    let other = settings(folder.path(), "").replace("wsgi:app", &format!("http://{origin}"));
    steered.reload(&other).unwrap();
    wait_for("it is forgotten", || mounts.all().is_empty());
    assert_eq!(body(&get(proxy, "/none")), "/none");
}

#[test]
fn a_server_behind_a_socket_is_an_origin() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.sock");
    let text = format!(
        "{}[[listen]]\naddress = \"127.0.0.1:0\"\norigin = \"http+unix:{}\"\n",
        base(folder.path()),
        path.display()
    );
    let steered = Steered::start(folder.path(), &text);
    let proxy = steered.server.addresses()[0];
    let absent = get(proxy, "/fresh");
    assert!(status(&absent) == "502" && absent.contains("app.sock"), "{absent}");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut lines = BufReader::new(&stream);
                while let Some(first) = stand::read_request(&mut lines) {
                    let path = first.split(' ').nth(1).unwrap_or_default();
                    let length = path.len();
                    let head =
                        format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {length}\r\n\r\n");
                    (&stream).write_all((head + path).as_bytes()).unwrap();
                }
            });
        }
    });
    wait_for("the socket is asked", || status(&get(proxy, "/x?y")) == "200");
    let (first, second) = (get(proxy, "/b"), get(proxy, "/b"));
    assert!(body(&first) == "/b" && second.contains("; hit"), "{first}\n{second}");
}

/// A program in the place of an interpreter, which does what the name of the application says.
const HOSTILE: &str = r#"#!/usr/bin/env python3
import json, os, random, signal, socket, sys, time
name = json.loads(os.environ["LARDER_SCRIPT"])["app"].split(":")[1]
listener = socket.socket(fileno=0)
listener.setblocking(True)
noise = random.Random(7)
def say(message):
    os.write(1, json.dumps(message).encode() + b"\n")
def ready():
    say({"ready": {"python": "3.99", "files": ["/dev/null", "\0"]}})
if name == "noise":
    os.write(1, noise.randbytes(200000) + b"\n")
    for _ in range(2000):
        os.write(1, b'{"ready": {"python": 3}}\n{"error": {"traceback": "\\u001b[2J"}}\n[[[[\n')
        os.write(2, b"\x1b[2J" + noise.randbytes(100) + b"\n")
ready()
ready()
if name == "closed":
    listener.close()
    os.close(0)
    time.sleep(60)
if name == "stopped":
    os.kill(os.getpid(), signal.SIGSTOP)
def answer(connection):
    if name == "early":
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nearly" * 3)
    head = b""
    while b"\r\n\r\n" not in head:
        data = connection.recv(65536)
        if not data:
            return
        head += data
    if name.startswith("seed"):
        chance = random.Random(int(name[4:]) * 1000 + os.getpid() % 1000)
        print("seed", name, os.getpid() % 1000, file=sys.stderr, flush=True)
        fields = [b"Content-Length: %d" % chance.randrange(3000), b"Transfer-Encoding: chunked", b"Content-Length: -1",
                  b"Transfer-Encoding: gzip, chunked", b"Connection: close", b"X: " + chance.randbytes(30), b"Trailer: x", b"Keep-Alive: timeout=9"]
        parts = [b"HTTP/1.1 %d OK\r\n" % chance.choice([100, 103, 200, 204, 206, 304, 99, 1000]),
                 b"\r\n".join(chance.sample(fields, chance.randrange(4))) + b"\r\n\r\n",
                 b"%x\r\n" % chance.randrange(1 << 40), b"0\r\n\r\n", b"\0" * chance.randrange(9000), chance.randbytes(200), b"of others"]
        said = b"".join(part for part in parts if chance.random() < 0.8) + chance.choice([b"", b"of others" * 500])
        for at in range(0, len(said), 997):
            connection.sendall(said[at:at + 997])
        if chance.random() < 0.1:
            time.sleep(0.4)
    elif name == "random":
        connection.sendall(noise.randbytes(noise.randrange(1, 5000)))
    elif name == "heads":
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            connection.sendall(b"X-Field: " + b"x" * 1000 + b"\r\n")
    elif name == "short":
        connection.sendall(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 1000\r\n\r\nshort")
    elif name == "long":
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nof others")
    elif name == "split":
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-A: b\nSet-Cookie: x\r\nContent-Length: 2\r\n\r\nok")
    elif name == "two":
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nokk")
    else:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
while True:
    connection, _ = listener.accept()
    try:
        answer(connection)
    except OSError:
        pass
    connection.close()
"#;

/// A server with an application, and beside it sites of these names, whose process is [`HOSTILE`]. How long a request waits for a process is
/// less than how long the tests wait for an answer.
fn hostile(folder: &Path, names: &[impl AsRef<str>], request_time: &str) -> Steered {
    use std::os::unix::fs::PermissionsExt;
    let program = folder.join("hostile");
    fs::write(&program, HOSTILE).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(folder.join("app.py"), APPLICATION).unwrap();
    let sites = names.iter().map(AsRef::as_ref).map(|name| {
        format!("[[site]]\nhosts = [\"{name}.example\"]\norigin = \"wsgi:{name}\"\npython = \"hostile\"\n")
    });
    let text = settings(folder, "processes = 1\n")
        .replace("origin = \"wsgi:app\"", "origin = \"wsgi:app\"\npython = \"app\"")
        + "[timeouts]\nconnect = \"4s\"\n"
        + &sites.collect::<String>()
        + &format!(
            "[[python]]\nname = \"hostile\"\nfolder = \"{}\"\ninterpreter = \"{}\"\nprocesses = 1\nrequest_time = \"{request_time}\"\n",
            folder.display(),
            program.display()
        );
    Steered::start(folder, &text)
}

#[test]
fn a_hostile_process_harms_its_own_answers_alone() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["noise", "closed", "stopped", "early", "random", "heads", "short", "long", "split", "two"];
    let steered = hostile(folder.path(), &names, "1s");
    let proxy = steered.server.addresses()[0];
    let mounts = steered.server.shared().nursery.mounts();
    // A machine that is slow to start processes is not what is tested.
    let serves = |name: &str| {
        let of_name = |state: &&Arc<MountState>| state.mount().application.name.ends_with(name);
        let processes = mounts.all().iter().find(of_name).unwrap().processes();
        processes.iter().any(|process| process.under_way() == 0)
    };
    let ask =
        |name: &str| exchange(proxy, &format!("GET /x HTTP/1.1\r\nHost: {name}.example\r\nConnection: close\r\n\r\n"));
    for round in 0..3 {
        for name in names {
            if matches!(name, "noise" | "stopped" | "long" | "early") {
                wait_for("a process serves", || serves(name));
            }
            let answer = ask(name);
            let statuses: &[&str] = match name {
                "noise" => &["200"],
                "stopped" => &["504"],
                "long" | "early" => &["200"],
                "short" => &["200", "502"],
                _ => &["502", "503", "504"],
            };
            assert!(statuses.contains(&status(&answer)), "{name}, round {round}: {answer}");
            for foreign in ["of others", "Set-Cookie", "earlyHTTP"] {
                assert!(!answer.contains(foreign), "{name}, round {round}: {answer}");
            }
            if name == "short" {
                assert!(!answer.contains("; hit"), "a truncated answer is not stored: {answer}");
            }
        }
        assert_eq!(status(&get(proxy, "/")), "200", "the others are served");
    }
}

/// Random fragments of answers, wrong lengths, ends in the middle: whatever a process says, other requests get their own answers, no
/// place is lost, and the server goes on.
#[test]
fn random_answers_of_a_hostile_process_reach_nobody_else() {
    const SEEDS: usize = 8;
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..SEEDS).map(|seed| format!("seed{seed}")).collect();
    let steered = hostile(folder.path(), &names, "300ms");
    let proxy = steered.server.addresses()[0];
    let clients = (0..SEEDS).map(|seed| {
        std::thread::spawn(move || {
            for number in 0..25 {
                let fields = "Connection: close\r\n\r\n";
                let answer =
                    exchange(proxy, &format!("GET /{number} HTTP/1.1\r\nHost: seed{seed}.example\r\n{fields}"));
                // One answer, framed as its head says, or none.
                assert!(answer.matches("\r\nVia: ").count() <= 1, "seed {seed}, request {number}: {answer}");
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    while !clients.iter().all(std::thread::JoinHandle::is_finished) {
        let answer = get(proxy, "/");
        assert!(status(&answer) == "200" && body(&answer).starts_with("one "), "{answer}");
        assert!(!answer.contains("of others"), "{answer}");
    }
    clients.into_iter().for_each(|client| client.join().unwrap());
    let mounts = steered.server.shared().nursery.mounts();
    wait_for("no place is lost", || {
        mounts.all().iter().flat_map(|state| state.processes()).all(|process| process.under_way() == 0)
    });
    assert!(mounts.all().iter().all(|state| state.buffers.bytes() == 0));
}

/// A program in the place of an interpreter that runs hooks: it answers calls with frames that are random, cut, of others, or none.
const HOSTILE_HOOKS: &str = r#"#!/usr/bin/env python3
import json, os, random, signal, socket, struct, threading, time
listener = socket.socket(fileno=0)
listener.setblocking(True)
hook = {"stage": "request", "name": "h", "file": "p.py", "line": 1}
os.write(1, json.dumps({"ready": {"python": "3.99", "files": [], "hooks": [hook]}}).encode() + b"\n")
def serve(connection, seed):
    chance = random.Random(seed)
    while True:
        calls = connection.recv(1 << 20)
        if not calls:
            return
        number = struct.unpack_from("<I", calls, 4)[0] if len(calls) >= 8 else 0
        payload = chance.choice([b"", b"{}", b"[]", b'{"query": "of others"}', chance.randbytes(chance.randrange(300)), b"{" * 5000])
        number = chance.choice([number, number, number + 1, 0, 0xFFFFFFFF])
        length = chance.choice([len(payload)] * 4 + [len(payload) + 7, 1 << 31, 0])
        frame = struct.pack("<IIBBBB", length, number, 0, chance.randrange(8), 0, chance.choice([0, 0, 0, 9])) + payload
        act = chance.randrange(10)
        if act == 0:
            return connection.close()
        if act == 1:
            os.kill(os.getpid(), chance.choice([signal.SIGSTOP, signal.SIGKILL]))
        for at in range(0, len(frame), 100):
            connection.sendall(frame[at:at + 100])
seed = os.getpid()
while True:
    connection, _ = listener.accept()
    seed += 1
    threading.Thread(target=lambda: serve(connection, seed), daemon=True).start()
"#;

#[test]
fn random_frames_of_hostile_hooks_end_their_own_requests_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("hostile");
    fs::write(&program, HOSTILE_HOOKS).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(folder.path().join("app.py"), APPLICATION).unwrap();
    let text = settings(folder.path(), "").replace("origin = \"wsgi:app\"", "origin = \"wsgi:app\"\npython = \"app\"")
        + "[[site]]\nhosts = [\"hooked.example\"]\norigin = \"wsgi:app\"\npython = \"hostile\"\nhooks = [\"p.py\"]\n"
        + &format!(
            "[[python]]\nname = \"hostile\"\nfolder = \"{}\"\ninterpreter = \"{}\"\nprocesses = 2\nhook_time = \"100ms\"\n",
            folder.path().display(),
            program.display()
        );
    let text = text
        .replace("wsgi:app\"\npython = \"hostile\"", &format!("http://{}\"\npython = \"hostile\"", stand::origin()));
    let steered = Steered::start(folder.path(), &text);
    let proxy = steered.server.addresses()[0];
    let clients: Vec<_> = (0..4)
        .map(|client| {
            std::thread::spawn(move || {
                for number in 0..30 {
                    let path = format!("/{client}/{number}");
                    let fields = "Host: hooked.example\r\nConnection: close\r\n\r\n";
                    let answer = exchange(proxy, &format!("GET {path} HTTP/1.1\r\n{fields}"));
                    match status(&answer) {
                        // A reply that is right by chance.
                        "200" => assert!(body(&answer).starts_with(&path), "{path}: {answer}"),
                        status => assert!(["500", "502", "503", "504"].contains(&status), "{path}: {answer}"),
                    }
                }
            })
        })
        .collect();
    while !clients.iter().all(std::thread::JoinHandle::is_finished) {
        assert_eq!(status(&get(proxy, "/")), "200", "the others are served");
    }
    clients.into_iter().for_each(|client| client.join().unwrap());
}
