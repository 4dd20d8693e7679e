//! `sandbox = true`: a reload takes what the server has kept and refuses the rest, and its neighbours go on with their work. Orders of an
//! intruder are those of `tests/confined.rs`.

use super::process::Running;
use super::stand;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

struct Stage {
    folder: tempfile::TempDir,
    elsewhere: tempfile::TempDir,
    running: Running,
    first: String,
}

impl Stage {
    /// With these further lines of settings.
    fn start(sandbox: bool, further: &str) -> Stage {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(folder.path().join("names.txt"), "ads.example\n").unwrap();
        fs::write(elsewhere.path().join("names.txt"), "ads.example\n").unwrap();
        fs::create_dir(folder.path().join("log")).unwrap();
        let first = settings(folder.path(), sandbox) + further;
        fs::write(folder.path().join("larder.toml"), &first).unwrap();
        let running = Running::start(folder.path());
        Stage { folder, elsewhere, running, first }
    }

    /// A reload of other settings; its exit status and words.
    fn reload(&self, text: &str) -> (i32, String) {
        let folder = self.folder.path();
        fs::write(folder.join("new.toml"), text).unwrap();
        fs::rename(folder.join("new.toml"), folder.join("larder.toml")).unwrap();
        self.command(&["reload"])
    }

    fn command(&self, words: &[&str]) -> (i32, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        let output = command.args(words).current_dir(self.folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code().unwrap(), said)
    }
}

fn settings(folder: &Path, sandbox: bool) -> String {
    let folder = folder.display();
    format!(
        "store = \"{folder}/store\"\nadmin = \"none\"\nmemory = \"16MB\"\ndisk = \"32MB\"\ndisk_free_min = 0\nsandbox = {sandbox}\n\
         [log]\nto = \"{folder}/log/access.log\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n"
    )
}

fn list_in(folder: &Path) -> String {
    format!("[[list]]\nname = \"ads\"\nsource = \"{}\"\n", folder.join("names.txt").display())
}

fn helper(words: &str) -> String {
    format!(
        "[[helper]]\nname = \"users\"\nkind = \"basic\"\ncommand = [{words}]\n\
         [[login]]\nname = \"people\"\nscheme = \"basic\"\nhelper = \"users\"\n[access]\nlogin = \"people\"\n"
    )
}

fn hits(proxy: SocketAddr, origin: SocketAddr) {
    stand::get(proxy, &format!("http://{origin}/fresh"));
    let again = stand::get(proxy, &format!("http://{origin}/fresh"));
    assert!(again.contains("; hit"), "{again}");
}

/// Landlock of the kernel that this runs on; older ones bound less, which the server says in its log.
fn is_bounded(said: &str) -> bool {
    let lacks = said.contains("not in force");
    if lacks {
        println!("skipped in part, for this system lacks bounds: {said}");
    }
    !lacks
}

#[test]
fn a_reload_takes_what_was_kept_and_refuses_more_as_a_whole() {
    let origin = stand::origin();
    for sandbox in [false, true] {
        let stage = Stage::start(sandbox, "");
        hits(stage.running.proxy, origin);
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let moved = stage.elsewhere.path().join("access.log");
        let other_log = stage
            .first
            .replace(&format!("{}/log/access.log", stage.folder.path().display()), &moved.display().to_string());
        // A file that is a secret and settings as well.
        let secret = stage.elsewhere.path().join("secret");
        fs::write(&secret, "# further settings\n").unwrap();
        let more = |further: &str| format!("{}{further}", stage.first);
        let inside = more(&list_in(stage.folder.path()));
        for (text, needs) in [
            (more(&list_in(stage.elsewhere.path())), "reading below"),
            (more(&format!("[[listen]]\naddress = \"{port}\"\n")), "listening on TCP port"),
            (other_log, "writing below"),
            (more(&helper("\"/bin/cat\"")), "programs for [[helper]] users"),
            (
                format!("admin_token = \"${{FILE:{}}}\"\n{}", secret.display(), stage.first),
                "hint: the sandbox has given up",
            ),
            // Files of the settings themselves are read before anybody knows what they need.
            (format!("include = [\"{}\"]\n{}", secret.display(), stage.first), "hint: the sandbox has given up"),
        ] {
            let (status, said) = stage.reload(&text);
            match sandbox {
                true => {
                    assert!(status == 2 && said.contains(needs) && said.contains("restart Larder"), "{needs}: {said}")
                }
                false => assert!(!said.contains("sandbox"), "{said}"),
            }
            if sandbox {
                hits(stage.running.proxy, origin);
            }
        }
        assert_eq!(moved.exists(), !sandbox);
        let (status, said) = stage.reload(&inside);
        assert!(status == 0, "{said}");
        stage.running.end();
    }
}

#[test]
fn the_log_is_rotated_and_commands_work() {
    let origin = stand::origin();
    let stage = Stage::start(true, "");
    let (proxy, log) = (stage.running.proxy, stage.folder.path().join("log/access.log"));
    hits(proxy, origin);
    stand::wait_for("a line", || fs::read_to_string(&log).unwrap_or_default().contains("/fresh"));
    fs::rename(&log, stage.folder.path().join("log/access.log.1")).unwrap();
    stage.running.signal("USR1");
    stand::wait_for("the log is opened anew", || log.exists());
    let url = format!("http://{origin}/fresh");
    for words in [&["explain", &url][..], &["purge", &url], &["store", "stat"], &["config"], &["list"]] {
        let (status, said) = stage.command(words);
        assert_eq!(status, 0, "{words:?}: {said}");
    }
    assert!(!stand::get(proxy, &url).contains("; hit"), "it was purged");
    let (_, said) = stage.command(&["doctor"]);
    let line = said.lines().find(|line| line.contains(" sandbox ")).unwrap();
    for part in ["no core dumps", "no programs"] {
        assert!(line.contains(part), "{part} in {said}");
    }
    let said = stage.running.end();
    assert!(said.contains("sandbox: no new privileges"), "{said}");
}

#[test]
fn helpers_and_scripts_do_their_work_and_leave_other_bounds_in_force() {
    let origin = stand::origin();
    // It answers OK to each line.
    let stage = Stage::start(true, &helper("\"/bin/sed\", \"-u\", \"s/.*/OK/\""));
    let answer = stand::exchange(
        stage.running.proxy,
        &format!(
            "GET http://{origin}/fresh HTTP/1.1\r\nHost: {origin}\r\nProxy-Authorization: Basic dTpw\r\nConnection: close\r\n\r\n"
        ),
    );
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let said = stage.running.end();
    assert!(said.contains("more files are open, for [[helper]] users"), "{said}");
}

/// An intruder with a whole language at hand: the application that the server has started.
const INTRUDER: &str = r#"
import ctypes, os, socket

libc = ctypes.CDLL(None, use_errno=True)

def call(*arguments):
    ctypes.set_errno(0)
    done = libc.syscall(*[ctypes.c_long(it) for it in arguments])
    return done if done >= 0 else os.strerror(ctypes.get_errno())

def tried(act):
    try:
        return act()
    except OSError as error:
        return os.strerror(error.errno)

def app(environ, start_response):
    server = int(environ["QUERY_STRING"])
    ptrace, unshare, keyctl, setns = {"x86_64": (101, 272, 250, 308), "aarch64": (117, 97, 219, 268)}[os.uname().machine]
    said = {
        "ptrace": call(ptrace, 16, os.getppid(), 0, 0),
        "unshare": call(unshare, 0x10000000),
        "keyctl": call(keyctl, 0, -3, 0),
        "signal": tried(lambda: os.kill(server, 0)),
        "own": tried(lambda: open(os.path.join(os.getcwd(), "own"), "w").close()),
        "packet": tried(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()),
        "privileges": [line for line in open("/proc/self/status") if line.startswith("NoNewPrivs")][0].split()[1],
    }
    start_response("200 OK", [("Content-Type", "text/plain"), ("Cache-Control", "no-store")])
    return ["\n".join(f"{name}: {said[name]}" for name in said).encode() + b"\n"]
"#;

#[test]
fn an_application_is_refused_the_calls_that_its_server_is_refused() {
    let python = Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|said| said.status.success()) {
        return println!("skipped: there is no python3");
    }
    let folder = tempfile::tempdir().unwrap();
    let application = folder.path().join("application");
    fs::create_dir(&application).unwrap();
    fs::write(application.join("intruder.py"), INTRUDER).unwrap();
    let of_python = format!(
        "[[python]]\nname = \"app\"\nfolder = \"{}\"\n[[site]]\nhosts = [\"a.example\"]\norigin = \"wsgi:intruder:app\"\npython = \"app\"\n",
        application.display()
    );
    let stage = Stage::start(true, &of_python);
    let request = format!("GET /?{} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n", std::process::id());
    let answer = stand::exchange(stage.running.proxy, &request);
    for refused in ["ptrace", "unshare", "keyctl", "packet"] {
        assert!(answer.contains(&format!("{refused}: Operation not permitted")), "{answer}");
    }
    assert!(answer.contains("own: None") && answer.contains("privileges: 1"), "{answer}");
    let said = stage.running.end();
    assert!(said.contains("for wsgi:intruder:app"), "{said}");
    if is_bounded(&said) {
        assert!(answer.contains("signal: Operation not permitted"), "{answer}");
    }
}
