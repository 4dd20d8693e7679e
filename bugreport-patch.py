def sub(p,a,b,n=1):
    s=open(p).read(); assert a in s,(p,a); open(p,'w').write(s.replace(a,b,n))
b='crates/larder/src/'
sub(b+'cli/mod.rs','mod check;\n','mod bugreport;\nmod check;\n')
sub(b+'cli/mod.rs','''        Some(Command::Docs(flags)) => docs::docs(&flags),
''','''        Some(Command::Docs(flags)) => docs::docs(&flags),
        Some(Command::Bugreport(flags)) => bugreport::bugreport(&flags),
''')
sub(b+'cli/mod.rs','''    Docs(docs::DocsFlags),
''','''    Docs(docs::DocsFlags),
    /// Write an archive for a report of trouble: version, findings, settings, metrics, messages; no secret, URL or client
    Bugreport(bugreport::BugreportFlags),
''')
p=b+'diagnostics.rs'
sub(p,'''use std::fmt;
use std::io''','''use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::io''')
sub(p,'''static THREAD:''','''/// Warnings, errors and panics that are remembered for `larder bugreport`, and the bytes of one.
const REMEMBERED_MAX: usize = 200;
const REMEMBERED_BYTES_MAX: usize = 400;
/// A line of `tracing` has its level so early.
const LEVEL_WITHIN_BYTES: usize = 64;

static REMEMBERED: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());
static THREAD:''')
sub(p,'''/// Sends panic messages''','''/// The last warnings, errors and panics, the oldest first; of each the first line, and of a panic its place alone, for its text may have
/// something of a request. Output of scripts is not among them.
pub fn remembered() -> Vec<String> {
    REMEMBERED.lock().iter().cloned().collect()
}

fn remember(text: &str) {
    let line = text.lines().next().unwrap_or_default();
    let mut kept = line[..line.floor_char_boundary(REMEMBERED_BYTES_MAX)].to_owned();
    kept.push('\\n');
    let mut all = REMEMBERED.lock();
    if all.len() == REMEMBERED_MAX {
        all.pop_front();
    }
    all.push_back(kept);
}

/// Whether a line of `tracing` is a warning or an error.
fn is_trouble(line: &[u8]) -> bool {
    let begin = &line[..line.len().min(LEVEL_WITHIN_BYTES)];
    [&b"WARN"[..], b"ERROR"].iter().any(|level| memchr::memmem::find(begin, level).is_some())
}

/// Sends panic messages''')
sub(p,'''        say(format_args!("larder: a broken invariant in thread {name}: {panic}"));
''','''        say(format_args!("larder: a broken invariant in thread {name}: {panic}"));
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        remember(&format!("panic in thread {name} at {place}"));
''')
sub(p,'''    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        put(Stream::Error, bytes.to_vec());''','''    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if is_trouble(bytes) {
            remember(&String::from_utf8_lossy(bytes));
        }
        put(Stream::Error, bytes.to_vec());''')
s=open(p).read()
s+='''
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_remembered_by_their_first_lines() {
        assert!(is_trouble(b"2026-11-28T23:00:00.000001Z  WARN the disk is full") && is_trouble(b"ERROR x"));
        assert!(!is_trouble(b"2026-11-28T23:00:00.000001Z  INFO app: a script that says nothing of interest here, WARN") );
        for number in 0..REMEMBERED_MAX + 3 {
            remember(&format!("{number} {}\\nsecond line", "\\u{e4}".repeat(REMEMBERED_BYTES_MAX)));
        }
        let all = remembered();
        assert_eq!(all.len(), REMEMBERED_MAX);
        assert!(all.iter().all(|line| line.len() <= REMEMBERED_BYTES_MAX + 1 && !line.contains("second")));
        assert!(all.last().unwrap().starts_with(&format!("{} ", REMEMBERED_MAX + 2)), "{all:?}");
    }
}
'''
open(p,'w').write(s)
sub(b+'control/mod.rs','''    Route::of_socket_from_disk("GET", "/store/list", browse::sorted),''','''    Route::of_socket("GET", "/diagnostics", |_, _| Reply::json(200, &diagnostics::remembered())),
    Route::of_socket_from_disk("GET", "/store/list", browse::sorted),''')
sub(b+'control/mod.rs','''use crate::clock;
use crate::manager;''','''use crate::clock;
use crate::diagnostics;
use crate::manager;''')
sub(b+'run/control.rs','''    /// The lines of a stream of events''','''    /// The server's answer at a path, as text.
    pub fn text(&self, path: &str) -> io::Result<String> {
        let answer = self.ask("GET", path)?;
        Ok(String::from_utf8_lossy(body(&answer)?).into_owned())
    }

    /// The lines of a stream of events''')
p='crates/larder/tests/all/seen/mod.rs'
sub(p,'mod check;\n','mod bugreport;\nmod check;\n')
open('crates/larder/tests/all/seen/bugreport.rs','w').write('''//! `larder bugreport`: what has to be in it, and what must not.

use super::process::Running;
use super::stand;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

const SECRETS: [&str; 5] = ["token-of-the-file", "hunter2", "joe", "bearer-in-a-rule", "word-of-the-command"];

fn settings(folder: &Path) -> String {
    let at = folder.display();
    fs::write(folder.join("token"), "token-of-the-file\\n").unwrap();
    format!(
        "store = \\"{at}/store\\"\\nadmin = \\"127.0.0.1:0\\"\\nmemory = \\"16MB\\"\\ndisk = 0\\nadmin_token = \\"${{FILE:{at}/token}}\\"\\n\\
         [log]\\nto = \\"{at}/access.log\\"\\n\\
         [[listen]]\\naddress = \\"127.0.0.1:0\\"\\nintercept = true\\n\\
         [[parent]]\\nname = \\"p\\"\\nurl = \\"http://joe:hunter2@127.0.0.1:9\\"\\n\\
         [[helper]]\\nname = \\"h\\"\\nkind = \\"external_acl\\"\\nformat = \\"%SRC\\"\\ncommand = [\\"/bin/cat\\", \\"word-of-the-command\\"]\\n\\
         [[rule]]\\nwhen = {{ host = \\"a.example\\" }}\\ndo = {{ set = [\\"X-Office: bearer-in-a-rule\\"] }}\\n"
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
                    lines.extend(text.lines().filter(|line| line.len() > 30 && !line.contains("-----")).map(str::to_owned));
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
    let running = Running::start(folder.path());
    let origin = stand::origin();
    let mut client = stand::connect_from([127, 0, 0, 7], running.proxy);
    let request = format!("GET http://{origin}/fresh?of=somebody HTTP/1.1\\r\\nHost: {origin}\\r\\nConnection: close\\r\\n\\r\\n");
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    stand::wait_for("a line", || fs::read_to_string(folder.path().join("access.log")).unwrap_or_default().contains("somebody"));

    let archive = folder.path().join("r.tar.gz");
    let output = report(folder.path(), &["--out", "r.tar.gz"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("metrics.txt") && said.contains("No URL, no client and no secret is in it"), "{said}");
    assert_eq!(fs::metadata(&archive).unwrap().permissions().mode() & 0o777, 0o600);
    let text = content(&archive);
    for wanted in ["larder_requests_total{outcome=\\"miss\\"} 1", "origin=\\"origin-1\\"", "memory = 16MB", "GET 200", "open files"] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    let keys = keys(&folder.path().join("store"));
    assert!(!keys.is_empty(), "there is a CA");
    let origin = origin.to_string();
    let personal = ["127.0.0.7", "/fresh", "somebody", &origin];
    for wrong in SECRETS.into_iter().chain(personal).chain(keys.iter().map(String::as_str)) {
        assert!(!text.contains(wrong), "{wrong} in {text}");
    }

    let again = report(folder.path(), &["--out", "r.tar.gz"]);
    assert_eq!(again.status.code(), Some(1), "a file that is there is not written over");
    let output = report(folder.path(), &["--with-requests", "--out", "w.tar.gz"]);
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("names URLs and clients"));
    let text = content(&folder.path().join("w.tar.gz"));
    assert!(personal.iter().all(|word| text.contains(word)), "{text}");
    for wrong in SECRETS.into_iter().chain(keys.iter().map(String::as_str)) {
        assert!(!text.contains(wrong), "{wrong} in {text}");
    }
    running.end();
}
''')
sub('docs/watching.md','''## Shipping the log''','''## A report of trouble

`larder bugreport` writes an archive for those who look for a cause: version, the findings of `larder doctor`, settings, metrics, the last warnings and panics, and the last requests by method, status, outcome and times. It prints the list of what is in it before it writes,
into a file of mode 0600 that must not be there yet (`--out FILE`). Of settings it shows numbers, sizes, times and words of choices, and of all others that they are set: no password, token, path, host or list is in it. In messages and metrics URLs, hosts and addresses are left out, origins have numbers.
`--with-requests` adds clients, URLs and the end of the access log.

## Shipping the log''')
sub('CHANGELOG.md','''- watching: a dashboard''','''- bugreport: `larder bugreport` writes an archive for a report of trouble, without secrets, URLs and clients (docs/watching.md).
- watching: a dashboard''')
sub('README.md','''| `larder docs [NAME]` |''','''| `larder bugreport` | writes an archive for a report of trouble: version, findings, settings, metrics, messages; no secret, URL or client without `--with-requests` |
| `larder docs [NAME]` |''')
