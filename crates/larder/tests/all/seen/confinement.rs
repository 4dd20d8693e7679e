//! Applications that would harm others: each is bounded, and a healthy one beside it goes on.

use super::mounts::{status, with};
use super::reload::{Steered, base};
use super::stand::{body, exchange, wait_for};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// An application that tries what its paths say, and a healthy one.
const APPLICATION: &str = r#"
import os, socket, subprocess, sys, time
COMMAND = """
import socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect(sys.argv[1])
    asked.sendall(b"POST /purge?all HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 0\\r\\n\\r\\n")
    print(asked.recv(100).decode()[9:12], end="")
"""
def attempt(work):
    try:
        work()
    except BaseException as error:
        return type(error).__name__
    return "done"
def application(environ, start_response):
    path, query = environ["PATH_INFO"], environ["QUERY_STRING"]
    start_response("200 OK", [])
    if path == "/environment":
        return ["\n".join(sorted(os.environ)).encode()]
    if path == "/write":
        return [attempt(lambda: open(query, "w").close()).encode()]
    if path == "/rename":
        os.makedirs("one", exist_ok=True)
        open("one/file", "w").close()
        return [attempt(lambda: os.replace("one/file", "file")).encode()]
    if path == "/connect":
        kinds = [(family, kind) for family in (socket.AF_INET, socket.AF_INET6) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)]
        return [" ".join(attempt(lambda: socket.socket(*kind).close()) for kind in kinds).encode()]
    if path == "/pair":
        return [attempt(lambda: [each.close() for each in socket.socketpair()]).encode()]
    if path == "/signal":
        return [attempt(lambda: os.kill(os.getppid(), 0)).encode()]
    if path == "/children":
        for _ in range(int(query)):
            subprocess.Popen(["sleep", "600"], start_new_session=True)
        time.sleep(20)
    if path == "/leave":
        subprocess.Popen(["sh", "-c", "setsid sleep 600 & sleep 600"], start_new_session=True)
        time.sleep(0.6)
    if path == "/leave-and-exit":
        # All that is left of them has no parent but the reaper.
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                subprocess.Popen(["sleep", "600"])
                for _ in range(2000):
                    run = subprocess.run([sys.executable, "-c", COMMAND, query], stdout=subprocess.PIPE)
                    with open("said", "ab") as file:
                        file.write(run.stdout + b" ")
                os._exit(0)
            os._exit(0)
        time.sleep(0.01)
        os._exit(7)
    if path == "/leave-and-hang":
        subprocess.Popen(["sh", "-c", "setsid sleep 600 & sleep 600"], start_new_session=True)
        while True:
            pass
    if path == "/eat":
        held = []
        while True:
            held.append(bytearray(1 << 24))
    if path == "/exit":
        os._exit(7)
    if path == "/command":
        program = [sys.executable, "-c", COMMAND, query]
        below = [program, ["sh", "-c", '"$@"; true', "sh"] + program]
        runs = [subprocess.run(each, stdout=subprocess.PIPE, start_new_session=True) for each in below]
        return [b" ".join(each.stdout for each in runs)]
    return [b"%d" % os.getpid()]
"#;

fn started(folder: &Path, python: &str) -> (Steered, SocketAddr) {
    fs::write(folder.join("app.py"), APPLICATION).unwrap();
    let place = folder.display();
    let site =
        |name: &str| format!("[[site]]\nhosts = [\"{name}.example\"]\norigin = \"wsgi:app\"\npython = \"{name}\"\n");
    let text = format!(
        "{}[[listen]]\naddress = \"127.0.0.1:0\"\n{}{}[[python]]\nname = \"healthy\"\nfolder = \"{place}\"\n\
         [[python]]\nname = \"app\"\nfolder = \"{place}\"\nenvironment = [\"MARK={place}\"]\n{python}",
        base(folder),
        site("app"),
        site("healthy")
    );
    let steered = Steered::start(folder, &text);
    let proxy = steered.server.addresses()[0];
    assert_eq!((status(&ask(proxy, "/")), status(&healthy(proxy))), ("200", "200"));
    (steered, proxy)
}

fn ask(proxy: SocketAddr, path: &str) -> String {
    with(proxy, &format!("GET {path}"), "", "")
}

fn healthy(proxy: SocketAddr) -> String {
    exchange(proxy, "GET / HTTP/1.1\r\nHost: healthy.example\r\nConnection: close\r\n\r\n")
}

/// The commands of the processes that the application or its children are: they have a mark in their environment.
fn processes_of(folder: &Path) -> Vec<String> {
    let mark = format!("MARK={}", folder.display());
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let is_marked = |path: &Path| {
        let environment = fs::read(path.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    let marked = entries.filter(|entry| is_marked(&entry.path()));
    marked.map(|entry| fs::read_to_string(entry.path().join("comm")).unwrap_or_default()).collect()
}

fn sleepers(folder: &Path) -> usize {
    processes_of(folder).iter().filter(|command| command.trim() == "sleep").count()
}

fn lacks(steered: &Steered, what: &str) -> bool {
    let mounts = steered.server.shared().nursery.mounts();
    mounts.all().iter().any(|state| state.report().lacks.iter().any(|lacking| lacking.contains(what)))
}

/// A folder that is not below those for temporary files, where everybody may write; the tree itself may lie below one.
fn folder_outside() -> tempfile::TempDir {
    let home = std::env::var("HOME").unwrap_or_default();
    let temporary = ["/tmp", "/var/tmp", "/dev/shm"];
    let places = [env!("CARGO_TARGET_TMPDIR"), &home, "/var/lib", "/opt"];
    let outside =
        places.into_iter().filter(|place| !temporary.iter().any(|folder| Path::new(place).starts_with(folder)));
    outside.filter(|place| place.starts_with('/')).find_map(|place| tempfile::tempdir_in(place).ok()).unwrap_or_else(
        || {
            panic!(
                "this user can write in none of {places:?} that is not for temporary files: set HOME to such a folder"
            )
        },
    )
}

#[test]
fn a_process_has_none_of_the_servers_secrets_and_writes_where_it_may() {
    let folder = tempfile::tempdir().unwrap();
    let outside = folder_outside();
    let further = outside.path().join("further");
    fs::create_dir(&further).unwrap();
    let (steered, proxy) = started(folder.path(), &format!("write = [\"{}\"]\n", further.display()));
    let names = ask(proxy, "/environment");
    let names: Vec<&str> = body(&names).lines().collect();
    assert!(names.contains(&"PATH") && names.contains(&"MARK"), "{names:?}");
    // An interpreter that is a script of a shell sets some of its own.
    let passed_on =
        ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_", "TZ", "TMPDIR", "VIRTUAL_ENV", "PY", "LD_LIBRARY_PATH"];
    let of_shells = ["PWD", "OLDPWD", "SHLVL", "_", "_PYENV_INSTALL_PREFIX"];
    let is_secret = |name: &String| {
        !of_shells.contains(&name.as_str()) && !passed_on.iter().any(|beginning| name.starts_with(beginning))
    };
    let secrets = std::env::vars().map(|(name, _)| name).filter(is_secret);
    let told: Vec<String> = secrets.filter(|name| names.contains(&name.as_str())).collect();
    assert!(told.is_empty() && !names.iter().any(|name| name.starts_with("LARDER")), "{told:?} in {names:?}");
    let write = |path: &Path| body(&ask(proxy, &format!("/write?{}", path.display()))).to_owned();
    for path in [folder.path().join("data.db"), further.join("x"), "/dev/null".into(), "/tmp/larder-test-writes".into()]
    {
        assert_eq!(write(&path), "done", "{}", path.display());
    }
    let _ = fs::remove_file("/tmp/larder-test-writes");
    assert_eq!(body(&ask(proxy, "/rename")), "done");
    if !lacks(&steered, "limits of writing") {
        assert_eq!(write(&outside.path().join("x")), "PermissionError");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }
    let mounts = steered.server.shared().nursery.mounts();
    let held: Vec<String> = mounts.all().iter().flat_map(|state| state.report().confined).collect();
    if held.iter().any(|bound| bound.starts_with("signals")) {
        assert_eq!(body(&ask(proxy, "/signal")), "PermissionError", "the server is out of its reach");
    }
}

#[test]
fn a_script_without_a_network_has_unix_sockets_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (steered, proxy) = started(folder.path(), "network = false\n");
    if !lacks(&steered, "network") {
        assert_eq!(body(&ask(proxy, "/connect")), ["PermissionError"; 4].join(" "));
    }
    assert_eq!(body(&ask(proxy, "/pair")), "done");
    let open = exchange(proxy, "GET /connect HTTP/1.1\r\nHost: healthy.example\r\nConnection: close\r\n\r\n");
    assert!(body(&open).starts_with("done done"), "{open}");
}

#[test]
fn children_end_with_their_process_even_in_sessions_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let (steered, proxy) = started(folder.path(), "processes = 1\nrequest_time = \"700ms\"\n");
    assert_eq!(status(&ask(proxy, "/leave-and-hang")), "504");
    wait_for("those of one that hung", || sleepers(folder.path()) == 0);
    wait_for("it is replaced", || status(&ask(proxy, "/")) == "200");
    assert_eq!(status(&ask(proxy, "/leave")), "200");
    assert_eq!(sleepers(folder.path()), 2, "they live as long as their process");
    assert_eq!(status(&ask(proxy, "/exit")), "502");
    wait_for("those of one that ended by itself", || sleepers(folder.path()) == 0);
    drop(steered);
    wait_for("nobody is left", || processes_of(folder.path()).is_empty());
}

#[test]
fn a_process_with_too_many_children_is_ended_with_all_of_them_and_others_are_served() {
    let folder = tempfile::tempdir().unwrap();
    let (steered, proxy) = started(folder.path(), "children = 8\n");
    let bomb = std::thread::spawn(move || ask(proxy, "/children?60"));
    let mut answered = 0;
    while !bomb.is_finished() {
        assert_eq!(status(&healthy(proxy)), "200");
        answered += 1;
    }
    assert_eq!(status(&bomb.join().unwrap()), "502");
    assert!(answered > 0);
    wait_for("all children are ended", || sleepers(folder.path()) == 0);
    wait_for("it serves again", || status(&ask(proxy, "/")) == "200");
    let mounts = steered.server.shared().nursery.mounts();
    let ended: u64 = mounts.all().iter().map(|state| state.counts.ended.load(Ordering::Relaxed)).sum();
    // A request on a kept connection whose process ends is sent to another one, once.
    assert!((1..=2).contains(&ended), "{ended}");
}

#[test]
fn a_script_that_eats_memory_gets_an_exception_and_others_are_served() {
    let folder = tempfile::tempdir().unwrap();
    let (_steered, proxy) = started(folder.path(), "memory = \"256MiB\"\nprocesses = 1\n");
    let before = ask(proxy, "/");
    for _ in 0..3 {
        let failed = ask(proxy, "/eat");
        assert_eq!(status(&failed), "500", "{failed}");
        assert_eq!(status(&healthy(proxy)), "200");
    }
    assert_eq!(body(&ask(proxy, "/")), body(&before), "the process goes on");
}

/// A process that hangs, with a standby: the next request is served while it is still being ended.
#[test]
fn a_process_that_hangs_costs_one_request_and_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let (_steered, proxy) = started(folder.path(), "processes = 1\nstandby = 1\nrequest_time = \"500ms\"\n");
    let began = std::time::Instant::now();
    assert_eq!(status(&ask(proxy, "/leave-and-hang")), "504");
    let took = began.elapsed();
    // Loosely, for a busy machine; the figures are those of docs/results.
    assert!(took >= Duration::from_millis(500) && took < Duration::from_secs(2), "{took:?}");
    let again = std::time::Instant::now();
    assert_eq!(status(&ask(proxy, "/")), "200");
    assert!(again.elapsed() < Duration::from_secs(1), "{:?}", again.elapsed());
}

/// Without a look between its beginning and the end of its process.
#[test]
fn what_a_process_has_left_behind_ends_and_has_no_say_either() {
    let folder = tempfile::tempdir().unwrap();
    let (steered, proxy) = started(folder.path(), "processes = 1\n");
    let socket = larder::run::control::socket(steered.server.shared().folder().path());
    for _ in 0..3 {
        assert_eq!(status(&ask(proxy, &format!("/leave-and-exit?{}", socket.display()))), "502");
        wait_for("nothing is left of it", || sleepers(folder.path()) == 0);
        wait_for("it is replaced", || status(&ask(proxy, "/")) == "200");
    }
    let said = fs::read_to_string(folder.path().join("said")).unwrap_or_default();
    assert!(said.split_whitespace().all(|status| status == "403"), "{said}");
    // Nor are those that have ended left, which would use up the numbers of processes.
    let own = std::process::id();
    let is_zombie_of_script = |stat: &str| {
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap_or_default().1.split(' ').collect();
        fields.first() == Some(&"Z") && fields.get(1) == Some(&own.to_string().as_str()) && stat.contains("(python")
    };
    wait_for("they are waited for", || {
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let stats = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
        !stats.into_iter().any(|stat| is_zombie_of_script(&stat))
    });
}

/// Neither a script nor anything below it has a say in the server, whose user it has; a person has.
#[test]
fn a_script_does_not_command_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let (steered, proxy) = started(folder.path(), "network = false\n");
    let socket = larder::run::control::socket(steered.server.shared().folder().path());
    let answer = ask(proxy, &format!("/command?{}", socket.display()));
    assert_eq!(body(&answer), "403 403", "{answer}");
    let mut person = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    std::io::Write::write_all(&mut person, b"POST /purge?all HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        .unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut person, &mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
}
