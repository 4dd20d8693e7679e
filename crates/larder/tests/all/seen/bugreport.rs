//! `larder bugreport`: what has to be in it, and what must not.

use super::process::Running;
use super::stand;
use larder::{diagnostics, panics};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// Secrets and names of the configuration.
const SECRETS: [&str; 8] = [
    "token-of-the-file",
    "hunter2",
    "joe",
    "bearer-in-a-rule",
    "word-of-the-command",
    "basement",
    "cellar",
    "value-of-the-environment",
];

fn settings(folder: &Path) -> String {
    let at = folder.display();
    fs::write(folder.join("token"), "token-of-the-file\n").unwrap();
    format!(
        "store = \"{at}/store\"\nadmin = \"127.0.0.1:0\"\nmemory = \"16MB\"\ndisk = 0\nadmin_token = \"${{FILE:{at}/token}}\"\n\
         [log]\nto = \"{at}/access.log\"\n\
         [[listen]]\naddress = \"127.0.0.1:0\"\nintercept = true\n\
         [[parent]]\nname = \"cellar\"\nurl = \"http://joe:hunter2@127.0.0.1:9\"\n\
         [[origin]]\nname = \"basement\"\nmembers = [{{ url = \"http://127.0.0.1:9\" }}]\n\
         [[helper]]\nname = \"h\"\nkind = \"external_acl\"\nformat = \"%SRC\"\ncommand = [\"/bin/cat\", \"word-of-the-command\"]\n\
         environment = [\"A=value-of-the-environment\"]\n\
         [[rule]]\nwhen = {{ host = \"a.example\" }}\ndo = {{ set = [\"X-Office: bearer-in-a-rule\"] }}\n"
    )
}

fn report(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_larder")).arg("bugreport").args(words).current_dir(folder).output().unwrap()
}

/// All files of the archive, one after the other.
fn content(archive: &Path) -> String {
    let told = Command::new("tar").arg("-xzOf").arg(archive).output().unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    String::from_utf8(told.stdout).unwrap()
}

/// Lines of the keys that lie in the store folder.
fn keys(folder: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match fs::read_to_string(&path) {
                _ if path.is_dir() => folders.push(path),
                Ok(text) if text.contains("PRIVATE KEY") => {
                    let long = text.lines().filter(|line| line.len() > 30 && !line.contains("-----"));
                    lines.extend(long.map(str::to_owned));
                }
                _ => {}
            }
        }
    }
    lines
}

#[test]
fn a_report_has_no_secret_and_without_being_asked_no_url_and_no_client() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("larder.toml"), settings(folder.path())).unwrap();
    let ca = Command::new(env!("CARGO_BIN_EXE_larder")).arg("ca").current_dir(folder.path()).output().unwrap();
    assert!(ca.status.success(), "{}", String::from_utf8_lossy(&ca.stderr));
    let running = Running::start(folder.path());
    let origin = stand::origin();
    let mut client = stand::connect_from([127, 0, 0, 7], running.proxy);
    let request =
        format!("GET http://{origin}/fresh?of=somebody HTTP/1.1\r\nHost: {origin}\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let log = folder.path().join("access.log");
    stand::wait_for("a line", || fs::read_to_string(&log).unwrap_or_default().contains("somebody"));
    let panics = folder.path().join("store/panics");
    fs::create_dir(&panics).unwrap();
    let panic = "{\"version\":\"1\",\"at\":1,\"thread\":\"worker 0\",\"place\":\"src/a.rs:1:2\",\"message\":\"of /fresh?of=somebody\",\"backtrace\":null}";
    fs::write(panics.join("1.json"), panic).unwrap();

    let archive = folder.path().join("r.tar.gz");
    let output = report(folder.path(), &["--out", "r.tar.gz"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("metrics.txt") && said.contains("No URL, no client and no secret is in it"), "{said}");
    assert_eq!(fs::metadata(&archive).unwrap().permissions().mode() & 0o777, 0o600);
    let text = content(&archive);
    for wanted in [
        "larder_requests_total{outcome=\"miss\"} 1",
        "origin=\"origin-",
        "memory = \"16MB\"",
        "admin_token = (set)",
        " GET 200 miss ",
        "open files",
        "worker 0 src/a.rs:1:2",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    let keys = keys(&folder.path().join("store"));
    assert!(!keys.is_empty(), "there is a CA");
    let origin = origin.to_string();
    let place = folder.path().display().to_string();
    let personal = ["127.0.0.7", "/fresh", "somebody", &origin];
    for wrong in SECRETS.into_iter().chain(personal).chain([&*place]).chain(keys.iter().map(String::as_str)) {
        assert!(!text.contains(wrong), "{wrong} in {text}");
    }

    let before = fs::read(&archive).unwrap();
    let again = report(folder.path(), &["--out", "r.tar.gz"]);
    assert_eq!(again.status.code(), Some(1), "a file that is there is not written over");
    assert!(fs::read(&archive).unwrap() == before);
    let output = report(folder.path(), &["--with-requests", "--out", "w.tar.gz"]);
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("names URLs and clients"));
    let text = content(&folder.path().join("w.tar.gz"));
    for wanted in personal {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    assert!(text.contains("\nof /fresh?of=somebody\n"), "the message of the panic: {text}");
    for wrong in SECRETS.into_iter().chain(keys.iter().map(String::as_str)) {
        assert!(!text.contains(wrong), "{wrong} in {text}");
    }
    running.end();

    let output = report(folder.path(), &["--out", "silent.tar.gz"]);
    let text = content(&folder.path().join("silent.tar.gz"));
    assert!(output.status.success() && text.contains("no larder answers"), "{text}");
}

/// In a process of its own, for the folder of the reports is one of the whole process.
#[test]
fn panics_are_reported_in_the_store_but_not_without_end() {
    const STORE: &str = "LARDER_TEST_STORE_OF_PANICS";
    if let Some(store) = std::env::var_os(STORE) {
        diagnostics::tell_panics();
        panics::report_into(Path::new(&store));
        for number in 0..25 {
            let named = std::thread::Builder::new().name("of a test".to_owned());
            named.spawn(move || panic!("number {number}")).unwrap().join().unwrap_err();
        }
        return;
    }
    let store = tempfile::tempdir().unwrap();
    let name = "seen::bugreport::panics_are_reported_in_the_store_but_not_without_end";
    let mut again = Command::new(std::env::current_exe().unwrap());
    let done = again.args(["--exact", name]).env(STORE, store.path()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let reports = panics::all(store.path());
    assert_eq!(reports.len(), 20, "{reports:?}");
    let (newest, oldest) = (&reports[0], &reports[19]);
    assert_eq!((newest.message.as_str(), oldest.message.as_str()), ("number 19", "number 0"));
    assert!(newest.thread == "of a test" && newest.place.contains("bugreport.rs:"), "{newest:?}");
}
