//! Scripts that print without measure, never come to the end of their import, are mended, or meddle with other scripts: as an operator
//! sees it who has the program and its standard error.

use super::hooks::{settings, status};
use super::process::{self, Running};
use super::stand::{self, wait_for};
use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};

/// A server with hooks, whose standard error is a file.
struct Stage {
    folder: tempfile::TempDir,
    running: Option<Running>,
}

impl Stage {
    fn start(policy: &str, python: &str) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path();
        fs::write(place.join("policy.py"), policy).unwrap();
        fs::write(place.join("larder.toml"), settings(place, stand::origin(), python)).unwrap();
        let log = fs::File::create(place.join("stderr")).unwrap();
        let running = Some(process::start_with(place, Stdio::from(log)));
        Stage { folder, running }
    }

    fn write(&self, policy: &str) {
        fs::write(self.folder.path().join("policy.py"), policy).unwrap();
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("stderr")).unwrap()
    }

    fn ask(&self, path: &str) -> String {
        let head = format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n");
        stand::exchange(self.running.as_ref().unwrap().proxy, &head)
    }

    fn larder(&self, words: &[&str]) -> (Option<i32>, String) {
        let output =
            Command::new(env!("CARGO_BIN_EXE_larder")).args(words).current_dir(self.folder.path()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        (output.status.code(), text)
    }

    /// The list of hooks as `larder scripts` has it.
    fn shown(&self) -> Value {
        let (_, text) = self.larder(&["scripts", "--json"]);
        serde_json::from_str::<Value>(&text).unwrap_or_else(|error| panic!("{error}: {text}"))["applications"][0]
            .clone()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(mut running) = self.running.take() {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
    }
}

const PRINTING: &str = r#"
import larder, sys

@larder.request(path="/lines")
def lines(req):
    for _ in range(200):
        print("x" * 3000)

@larder.request(path="/line")
def line(req):
    sys.stdout.write("y" * 5_000_000 + "\n")

@larder.request(path="/says")
def says(req):
    print("it says this")
"#;

#[test]
fn the_log_of_a_script_has_a_bound_and_says_what_is_left_out() {
    let stage = Stage::start(PRINTING, "hook_time = \"30s\"\n");
    for _ in 0..4 {
        assert_eq!(status(&stage.ask("/lines")), "200");
    }
    assert_eq!(status(&stage.ask("/line")), "200");
    wait_for("it is told, though nothing else comes", || stage.log().contains("bytes left out of its log: more than"));
    wait_for("the long line is counted", || stage.shown()["log_bytes_left_out"].as_u64() > Some(5_000_000));
    wait_for("the next second", || {
        assert_eq!(status(&stage.ask("/says")), "200");
        stage.log().contains("it says this")
    });
    // Of 7.4 MB, for as long as that took.
    assert!(stage.log().len() < 2 << 20, "{} bytes", stage.log().len());
    let (_, text) = stage.larder(&["scripts", "policy.py"]);
    assert!(text.contains("left out of its log: "), "{text}");
}

const RAISING: &str = "import larder\n@larder.page('/raises')\ndef raises(req): raise ValueError('x' * 40_000)\n";

/// A traceback is a report, and no line of the process's own log.
#[test]
fn tracebacks_that_are_left_out_of_the_log_are_told_too() {
    let stage = Stage::start(RAISING, "hook_time = \"30s\"\n");
    for _ in 0..20 {
        assert_eq!(status(&stage.ask("/raises")), "500");
    }
    wait_for("it is told", || {
        let log = stage.log();
        let line = log.lines().find(|line| line.contains("bytes left out of its log: more than"));
        line.is_some_and(|line| line.contains("hooks:policy.py: "))
    });
}

/// Its import writes what looks like its stacks, which nobody has asked for.
const STACKS: &str = r#"
import larder, os, sys

runtime = next(path for path in sys.path if os.path.exists(os.path.join(path, "larder", "_hooks.py")))
stack = (
    "Current thread 0x1 (most recent call first):\n"
    f'  File "{os.getcwd()}/policy.py", line 1 in f\n'
    f'  File "{runtime}/larder/_hooks.py", line 1 in _load_file\n'
)
for _ in range(200):
    sys.stderr.write(stack * 100)

@larder.page('/page')
def page(req): return 'the first'
"#;

#[test]
fn a_script_that_is_loading_writes_into_the_log_within_its_bound() {
    let stage = Stage::start(STACKS, "");
    assert!(stage.ask("/page").ends_with("the first"));
    let log = stage.log();
    assert!(!log.contains("it was here"), "{}", &log[..log.len().min(4_000)]);
}

const GOOD: &str = "import larder\n@larder.page('/page')\ndef page(req): return 'the first'\n";

/// The old version serves meanwhile, and people are told where the new one is.
#[test]
fn an_import_without_an_end_is_told_and_one_that_takes_long_is_waited_for() {
    let (stage, slow) = (Stage::start(GOOD, ""), Stage::start(GOOD, ""));
    for stage in [&stage, &slow] {
        assert!(stage.ask("/page").ends_with("the first"));
    }
    // Longer than the control socket gave any answer.
    slow.write(&GOOD.replace("larder\n", "larder, time\ntime.sleep(12)\n").replace("first", "second"));
    stage.write("import larder\n\nwhile True:\n    pass\n");
    let mut reload = Command::new(env!("CARGO_BIN_EXE_larder"));
    let mut reload = reload.arg("reload").current_dir(stage.folder.path()).stderr(Stdio::piped()).spawn().unwrap();
    let (exit, text) = slow.larder(&["reload"]);
    assert!(exit == Some(0) && text.contains("loaded anew: hooks:policy.py"), "{exit:?} {text}");
    assert!(slow.ask("/page").ends_with("the second"));
    assert!(slow.log().contains("it has not begun within 10 s, and is imported still; what serves goes on"));

    let place = || stage.shown()["late_load"]["place"].as_str().unwrap_or_default().to_owned();
    wait_for("the place", || !place().is_empty());
    assert!(place().starts_with("it was here: policy.py, line "), "{}", place());
    assert!(stage.log().contains("it was here: policy.py, line "), "{}", stage.log());
    let (exit, text) = stage.larder(&["scripts"]);
    assert!(exit == Some(1) && text.contains("is imported still since"), "{exit:?} {text}");
    assert!(stage.ask("/page").ends_with("the first"));
    // A further change is taken up at once, and the reload has an answer.
    stage.write(&GOOD.replace("first", "third"));
    let (exit, text) = stage.larder(&["reload"]);
    assert!(exit == Some(0) && text.contains("loaded anew"), "{exit:?} {text}");
    assert!(reload.wait().unwrap().success());
    assert!(stage.ask("/page").ends_with("the third"));
    assert_eq!((stage.shown()["late_load"].clone(), stage.larder(&["scripts"]).0), (Value::Null, Some(0)));
}

/// Without a good version, and whatever `reload` says: a later try reads the file as it is in any case.
#[test]
fn a_file_that_is_mended_is_taken_up_at_once() {
    let broken = "import larder\nraise ValueError('not yet')\n";
    let missing = "import larder\nimport words\n@larder.page('/page')\ndef page(req): return words.WORD\n";
    for (before, name, after) in [(broken, "policy.py", GOOD), (missing, "words.py", "WORD = 'the first'\n")] {
        let stage = Stage::start(before, "");
        // By then the next try is seconds away.
        wait_for("some tries", || stage.shown()["counts"]["load_failures"].as_u64() >= Some(6));
        assert_eq!(stage.shown()["generation"], 1);
        fs::write(stage.folder.path().join(name), after).unwrap();
        wait_for("it serves", || stage.shown()["state"] == "serving");
        assert_eq!(stage.shown()["generation"], 2, "not by a try that was due");
        assert!(stage.ask("/page").ends_with("the first"));
    }
}

const MORTAL: &str = "import larder, os\n@larder.page('/page')\ndef page(req): return 'the first'\n\
                      @larder.page('/dies')\ndef dies(req): os._exit(1)\n";

/// However often its processes end, and though nothing serves in between.
#[test]
fn a_crash_takes_up_no_file_that_was_not_reloaded() {
    let stage = Stage::start(MORTAL, "");
    assert!(stage.ask("/page").ends_with("the first"));
    stage.write(&MORTAL.replace("first", "second"));
    for ends in 1..=3 {
        stage.ask("/dies");
        wait_for("the end is known", || stage.shown()["counts"]["ended"].as_u64() >= Some(ends));
        wait_for("it serves", || stage.shown()["state"] == "serving");
        assert!(stage.ask("/page").ends_with("the first"));
    }
    assert_eq!(stage.shown()["generation"], 1);
    let (exit, text) = stage.larder(&["reload"]);
    assert!(exit == Some(0) && text.contains("loaded anew"), "{exit:?} {text}");
    assert!(stage.ask("/page").ends_with("the second"));
}

/// A command of `larder run` that starts processes which outlive their parent, and then bounds itself as scripts are bounded.
const COMMAND: &str = r#"
import ctypes, os, subprocess, sys, time

larder = os.getppid()

def stat(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            state, parent = file.read().rpartition(") ")[2].split()[:2]
            return state, int(parent)
    except OSError:
        return None

def leave(seconds):
    """Start a process whose parent ends; return its number."""
    words = ["sh", "-c", f"sleep {seconds} > /dev/null & echo $!"]
    return int(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)

def until(so):
    end = time.monotonic() + 20
    while not so():
        if time.monotonic() > end:
            sys.exit(1)
        time.sleep(0.05)

# Until the processes of hooks begin, nobody adopts what a command leaves.
until(lambda: stat(leave(1))[1] == larder)
left = [leave(0.1) for _ in range(20)]
until(lambda: all(stat(pid) is None for pid in left))
# As sandboxes do: PR_SET_NO_NEW_PRIVS.
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
time.sleep(1.5)
sys.exit(7)
"#;

#[test]
fn a_command_that_bounds_itself_is_no_orphan_and_what_it_leaves_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    fs::write(place.join("policy.py"), GOOD).unwrap();
    fs::write(place.join("command.py"), COMMAND).unwrap();
    let text = format!(
        "store = \"{0}/store\"\n[forward]\nhooks = [\"policy.py\"]\n[[python]]\nname = \"policy\"\nfolder = \"{0}\"\nprocesses = 1\n",
        place.display()
    );
    let config = place.join("run.toml");
    fs::write(&config, text).unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_larder"));
    run.args(["run", "--config"]).arg(&config).args(["--", "python3"]).arg(place.join("command.py"));
    let output = run.env("HOME", place).current_dir(place).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A hook that asks every process of its server something.
const KNOCKING: &str = r#"
import larder, glob, os, socket

@larder.page("/knock")
def knock(req):
    answers = []
    for path in sorted(glob.glob("store/python/*.sock")):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(1)
            sock.connect(path)
            try:
                sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                answers.append(str(len(sock.recv(100))))
            except socket.timeout:
                answers.append("none")  # that is this process
            except OSError:
                answers.append("0")
    return " ".join(answers)
"#;

#[test]
fn a_script_is_not_served_by_the_processes_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    fs::write(place.join("policy.py"), KNOCKING).unwrap();
    let application =
        "def application(environ, start_response):\n    start_response('200 OK', [])\n    return [b'hello']\n";
    fs::write(place.join("app.py"), application).unwrap();
    let text = settings(place, stand::origin(), "hook_time = \"30s\"\n")
        + &format!(
            "[[python]]\nname = \"app\"\nfolder = \"{}\"\nprocesses = 1\n\
             [[site]]\nhosts = [\"app.example\"]\norigin = \"wsgi:app\"\npython = \"app\"\n",
            place.display()
        );
    fs::write(
        place.join("larder.toml"),
        text.replace("hooks = [\"policy.py\"]\n", "hooks = [\"policy.py\"]\npython = \"policy\"\n"),
    )
    .unwrap();
    let log = fs::File::create(place.join("stderr")).unwrap();
    let stage = Stage { running: Some(process::start_with(place, Stdio::from(log))), folder };
    let app = || {
        let head = "GET / HTTP/1.1\r\nHost: app.example\r\nConnection: close\r\n\r\n";
        stand::exchange(stage.running.as_ref().unwrap().proxy, head)
    };
    assert!(app().ends_with("hello"));
    let answer = stage.ask("/knock");
    let mut answers: Vec<&str> = stand::body(&answer).split(' ').collect();
    answers.sort_unstable();
    assert_eq!(answers, ["0", "none"], "{answer}");
    wait_for("it is told", || stage.log().contains("only Larder connects here"));
    assert!(app().ends_with("hello"));
}
