//! One process: how it is started, and what it says until it ends.

use super::control::{self, LINE_BYTES_MAX, Message};
use super::environment;
use super::files::ScriptFolder;
use super::stacks::{Frame, StackFinder};
use crate::children::OwnChild;
use crate::config::Mount;
use crate::config::application::Interface;
use crate::mount::{LOG_BYTES_PER_SECOND_MAX, LogBudget, MountState, RunningNote};
use serde_json::json;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// Lines of the log of one process that are passed on at once; of further ones only their number.
const LOG_LINES_MAX: u32 = 500;

/// Messages of one process a second that are taken at full speed.
const MESSAGES_MAX: u32 = 100;

/// The longest line of its log, in bytes.
const LOG_LINE_BYTES_MAX: usize = 4_096;

/// Bytes that are passed over at full speed: a process that writes without an end is not to keep the nursery from the others.
const PASSED_OVER_BYTES_MAX: u64 = 1 << 20;

/// The pause after so many bytes.
const PASSED_OVER_PAUSE: Duration = Duration::from_millis(50);

/// An event of the process with this number.
pub(super) struct Event {
    pub number: u64,
    pub what: Happened,
}

/// An event in a process.
pub(super) enum Happened {
    /// It sent a message.
    Said(Message),
    /// It wrote the stack of a thread that serves a request into its log, the innermost frame first.
    WasAt(Vec<Frame>),
    /// It ended; the children that it left have been ended too.
    Ended(Result<ExitStatus, io::Error>),
}

/// A process that was started.
pub(super) struct Started {
    pub number: u64,
    pub pid: u32,
    pub socket: PathBuf,
    /// Its note of the call that it runs, where it serves hooks and the system has memory to share.
    pub running: Option<RunningNote>,
}

/// The interpreter for an application.
pub fn interpreter(mount: &Mount) -> PathBuf {
    let own = mount.python.folder.join(".venv/bin/python");
    let of_environment = || {
        let folder = std::env::var_os("VIRTUAL_ENV").map(PathBuf::from)?;
        Some(folder.join("bin/python")).filter(|path| path.exists())
    };
    match &mount.python.interpreter {
        Some(interpreter) => interpreter.clone(),
        None if own.exists() => std::path::absolute(&own).unwrap_or(own),
        None => of_environment().unwrap_or_else(|| "python3".into()),
    }
}

/// Why the processes of an application can't be started, as far as that is known without the application.
pub fn trouble(mount: &Mount) -> Option<String> {
    let (folder, program) = (&mount.python.folder, interpreter(mount));
    if !folder.is_dir() {
        return Some(format!(
            "there is no folder {}: set `folder` to where {} is",
            folder.display(),
            mount.application.name
        ));
    }
    if mount.application.interface == Interface::Hooks {
        let (_, files) = mount.application.name.split_once(':').unwrap_or_default();
        if let Some(file) = files.split(',').find(|file| !folder.join(file).is_file()) {
            return Some(format!(
                "there is no file {}: `hooks` names files below `folder`",
                folder.join(file).display()
            ));
        }
    }
    let asks = ["-I", "-c", "import sys; print('%d %d' % sys.version_info[:2])"];
    let said = std::process::Command::new(&program).args(asks).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let version = match said {
        Err(error) => return Some(format!("cannot start {}: {error}; set `interpreter`", program.display())),
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
    };
    let parts: Vec<u32> = version.split_whitespace().filter_map(|part| part.parse().ok()).collect();
    match parts[..] {
        [3, minor] if minor >= PYTHON_MINOR_MIN => None,
        [major, minor] => Some(format!(
            "{} is Python {major}.{minor}, and 3.{PYTHON_MINOR_MIN} or newer is needed; set `interpreter`",
            program.display()
        )),
        _ => Some(format!("{} does not tell its version as a Python does; set `interpreter`", program.display())),
    }
}

/// A line about the bounds of the processes of an application, as they are configured.
pub fn bounds(mount: &Mount) -> String {
    let python = &mount.python;
    let memory =
        python.memory_bytes_max.map_or("memory without a limit".to_owned(), |bytes| format!("memory {bytes} bytes"));
    let writes = match python.write.iter().any(|path| path.as_os_str() == "/") {
        true => "may write everywhere".to_owned(),
        false => {
            let folders = [&python.folder].into_iter().chain(&python.write).map(|path| path.display().to_string());
            format!("may write below {} and folders for temporary files", folders.collect::<Vec<_>>().join(", "))
        }
    };
    let network = if python.network { "may use the network" } else { "no network" };
    format!("{}: {writes}; {network}; {memory}; at most {} children\n", mount.application.name, python.children_max)
}

/// The oldest Python 3 that the runtime works with.
const PYTHON_MINOR_MIN: u32 = 9;

/// The guard that lets a process start no more than `children` others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildGuard {
    /// A process beside it, its keeper, which it starts itself and without which nothing below it can fork.
    Keeper,
    /// Its control group.
    ControlGroup,
}

/// The files that a process begins with.
pub(super) struct Source<'a> {
    /// Where the runtime and the sockets are.
    pub folder: &'a ScriptFolder,
    /// The folder of a version that is kept; without it the files of the application are read as they are.
    pub kept: Option<&'a Path>,
}

/// Starts a process of an application. Its events come on `events`, the last one is its end.
pub(super) fn start(
    state: &Arc<MountState>,
    (number, guard): (u64, ChildGuard),
    source: &Source<'_>,
    events: mpsc::Sender<Event>,
) -> io::Result<Started> {
    let (mount, folder) = (&*state.mount(), source.folder);
    let socket = folder.socket(number);
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket)?;
    let python = &mount.python;
    let is_of_hooks = mount.application.interface == Interface::Hooks;
    let (running, inherited) = is_of_hooks.then(RunningNote::make).and_then(Result::ok).unzip();
    let order = json!({
        "app": mount.application.name,
        "folder": std::path::absolute(&python.folder)?,
        "threads": python.threads,
        "memory_bytes": python.memory_bytes_max,
        "body_bytes_max": null,
        "debug": python.debug,
        "write": python.write,
        "network": python.network,
        "children_max": (guard == ChildGuard::Keeper).then_some(python.children_max),
        "kept": source.kept.map(Path::to_string_lossy),
        "running": inherited.as_ref().map(OwnedFd::as_raw_fd),
        "server": own_name(),
    });
    let library = folder.library();
    let stacks = StackFinder::new(&library);
    let mut command = Command::new(interpreter(mount));
    command
        .args(["-c", "import os, sys; sys.path.insert(0, os.environ.pop('LARDER_LIBRARY')); from larder._runtime import main; main()"])
        .current_dir(&python.folder)
        .env_clear()
        .envs(environment::of_process(python, std::env::vars_os()))
        .env("LARDER_SCRIPT", order.to_string())
        .env("LARDER_LIBRARY", library)
        // The socket that it accepts connections on, its control channel, and its log.
        .stdin(OwnedFd::from(listener))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let (mut child, own) = OwnChild::start_script(|| command.spawn(), Child::id).inspect_err(|_| {
        let _ = std::fs::remove_file(&socket);
    })?;
    let pid = child.id().unwrap_or_default();
    let log = child.stderr.take();
    let said = child.stdout.take();
    let label = format!("{}[{pid}]", mount.application.name);
    let passing = log.map(|log| {
        let events = events.clone();
        let look = Looking { stacks, number, events };
        let state = Arc::clone(state);
        let pass = async move {
            // The group tells what is left out, tracebacks included.
            pass_on(log, label, Budget { budget: &state.log, teller: None }, Some(look)).await;
        };
        tokio::task::spawn_local(pass)
    });
    tokio::task::spawn_local(watch((child, own), said, (number, passing), socket.clone(), events));
    Ok(Started { number, pid, socket, running })
}

/// This process, as others know it: its number, and the name space in which it has that number.
fn own_name() -> serde_json::Value {
    let space = std::fs::read_link("/proc/self/ns/pid").ok();
    json!({ "pid": std::process::id(), "pid_space": space.as_deref().map(Path::to_string_lossy) })
}

/// Tells the events of a process until it has ended.
async fn watch(
    (mut child, own): (Child, Option<OwnChild>),
    said: Option<impl AsyncRead + Unpin>,
    (number, passing): (u64, Option<JoinHandle<()>>),
    socket: PathBuf,
    events: mpsc::Sender<Event>,
) {
    let pid = child.id();
    let listen = async {
        let Some(said) = said else { return };
        let mut lines = BufReader::new(said);
        let mut rate = Rate::default();
        while let Ok(Some((line, _))) = next_line(&mut lines, LINE_BYTES_MAX).await {
            // A process that talks without an end is not to keep the nursery from the others.
            if rate.is_exceeded(MESSAGES_MAX) && rate.count.is_multiple_of(MESSAGES_MAX) {
                sleep(Duration::from_millis(20)).await;
            }
            let message = control::parse(&line);
            if let Some(message) =
                message.filter(|said| rate.count <= MESSAGES_MAX || !matches!(said, Message::Error(_)))
            {
                let _ = events.send(Event { number, what: Happened::Said(message) }).await;
            }
        }
    };
    let mut listen = std::pin::pin!(listen);
    let mut is_heard = false;
    // A child of the process may keep the channel open, so the end of the process is waited for beside it.
    let ended = loop {
        tokio::select! {
            biased;
            () = &mut listen, if !is_heard => is_heard = true,
            ended = child.wait() => break ended,
        }
    };
    if !is_heard {
        // Messages from before its end that are still in the pipe.
        let _ = timeout(Duration::from_millis(50), listen).await;
    }
    if let Some(group) = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw) {
        // The number can't be another group's yet: a group keeps its number for as long as one of it lives, and where none does
        // nobody is left to be hit but a group that began within the same microseconds.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    drop(own);
    let _ = std::fs::remove_file(&socket);
    if let Some(passing) = passing {
        // The stacks of a process that hung may be the last lines of its log.
        let _ = timeout(Duration::from_millis(50), passing).await;
    }
    let _ = events.send(Event { number, what: Happened::Ended(ended) }).await;
}

/// A line without its end; a longer one is cut, and the rest of it, whose bytes are counted, is passed over. `None` at the end.
async fn next_line(from: &mut (impl AsyncBufReadExt + Unpin), bytes_max: usize) -> io::Result<Option<(Vec<u8>, u64)>> {
    let mut line = Vec::new();
    if (&mut *from).take(bytes_max as u64).read_until(b'\n', &mut line).await? == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        return Ok(Some((line, 0)));
    }
    let (mut passed_over, mut pause_at) = (0_u64, PASSED_OVER_BYTES_MAX);
    loop {
        let rest = from.fill_buf().await?;
        let (used, is_over) = match memchr::memchr(b'\n', rest) {
            Some(at) => (at + 1, true),
            None => (rest.len(), rest.is_empty()),
        };
        from.consume(used);
        passed_over += used as u64;
        if is_over {
            return Ok(Some((line, passed_over)));
        }
        if passed_over >= pause_at {
            pause_at += PASSED_OVER_BYTES_MAX;
            sleep(PASSED_OVER_PAUSE).await;
        }
    }
}

/// Passes what a process of the named helper writes on to the log of the program: a bounded number of lines a second, and of bytes of all
/// processes that share the budget. Says how many bytes were left out of these.
pub async fn pass_log_on(log: impl AsyncRead + Unpin, name: &str, label: String, budget: &LogBudget) {
    pass_on(log, label, Budget { budget, teller: Some(name) }, None).await;
    if let Some(bytes) = budget.rest_to_tell() {
        tell_left_out(name, bytes);
    }
}

/// Says how many bytes were left out of a log.
pub(super) fn tell_left_out(name: &str, bytes: u64) {
    let kib = LOG_BYTES_PER_SECOND_MAX >> 10;
    tracing::warn!(
        "{name}: {bytes} bytes left out of its log: more than {LOG_LINES_MAX} lines of a process, or {kib} KiB of all its processes, in a second"
    );
}

/// The bytes that may be passed on.
struct Budget<'a> {
    budget: &'a LogBudget,
    /// The name under which it is told here that bytes were left out; `None` where somebody else tells it.
    teller: Option<&'a str>,
}

impl Budget<'_> {
    fn tell(&self) {
        if let Some(name) = self.teller
            && let Some(bytes) = self.budget.to_tell(Instant::now())
        {
            tell_left_out(name, bytes);
        }
    }
}

/// Looks for stacks in the log of the process of this number.
struct Looking {
    stacks: StackFinder,
    number: u64,
    events: mpsc::Sender<Event>,
}

async fn pass_on(log: impl AsyncRead + Unpin, label: String, budget: Budget<'_>, mut looking: Option<Looking>) {
    let mut lines = BufReader::new(log);
    let (mut rate, mut flood) = (Rate::default(), Flood::default());
    loop {
        let mut next = std::pin::pin!(next_line(&mut lines, LOG_LINE_BYTES_MAX));
        let read = loop {
            budget.tell();
            // Told also where nothing comes any more.
            match budget.teller.is_some() && budget.budget.has_to_tell() {
                true => match timeout(TELL_AFTER, &mut next).await {
                    Ok(read) => break read,
                    Err(_) => continue,
                },
                false => break next.await,
            }
        };
        let Ok(Some((line, cut))) = read else { break };
        if let Some(Looking { stacks, number, events }) = &mut looking
            && let Some(frames) = stacks.take(&line)
        {
            // A queue that is full has events of more weight.
            let _ = events.try_send(Event { number: *number, what: Happened::WasAt(frames) });
        }
        let bytes = line.len() as u64 + 1;
        if rate.is_exceeded(LOG_LINES_MAX) || !budget.budget.take(bytes, Instant::now()) {
            budget.budget.leave_out(bytes + cut);
            // Reading on at full speed would take a core from the requests.
            if flood.is_pause_due(bytes + cut) {
                sleep(PASSED_OVER_PAUSE).await;
            }
            continue;
        }
        flood = Flood::default();
        budget.budget.cut_off(cut);
        match cut {
            0 => tracing::info!("{label}: {}", printable(&line)),
            _ => tracing::info!("{label}: {}… ({cut} bytes left out)", printable(&line)),
        }
    }
}

/// How long a line is waited for before it is told that others were left out.
const TELL_AFTER: Duration = Duration::from_secs(1);

/// Lines that were not passed on, one behind the other.
#[derive(Default)]
struct Flood {
    lines: u64,
    bytes: u64,
}

impl Flood {
    /// Counts a line; whether the next one is to be read after a pause.
    fn is_pause_due(&mut self, bytes: u64) -> bool {
        let before = self.bytes / PASSED_OVER_BYTES_MAX;
        self.lines += 1;
        self.bytes += bytes;
        self.lines.is_multiple_of(LOG_LINES_MAX.into()) || self.bytes / PASSED_OVER_BYTES_MAX > before
    }
}

/// Things within the present second.
struct Rate {
    second: Instant,
    count: u32,
}

impl Default for Rate {
    fn default() -> Rate {
        Rate { second: Instant::now(), count: 0 }
    }
}

impl Rate {
    /// Counts one more; whether it is one more than may be in a second.
    fn is_exceeded(&mut self, max: u32) -> bool {
        if self.second.elapsed() >= Duration::from_secs(1) {
            *self = Rate::default();
        }
        self.count = self.count.saturating_add(1);
        self.count > max
    }
}

/// A line as text; control characters could be commands to a terminal.
fn printable(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    text.chars().map(|letter| if letter.is_control() && letter != '\t' { '·' } else { letter }).collect()
}

/// When a file was changed last.
pub(super) fn changed_at(path: &Path) -> Option<std::time::SystemTime> {
    std::fs::metadata(path).and_then(|facts| facts.modified()).ok()
}

/// Requests that one process may have at once.
pub(super) fn requests_max(mount: &Mount) -> usize {
    /// More would wait in the loop of the process anyway.
    const ASGI_REQUESTS_MAX: usize = 1_024;
    match mount.application.interface {
        Interface::Wsgi => mount.python.threads,
        Interface::Asgi | Interface::Hooks => ASGI_REQUESTS_MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn long_lines_are_cut_and_do_not_swallow_the_next() {
        let mut from = BufReader::with_capacity(4, &b"short\n0123456789abcdef\nnext\nlast"[..]);
        let mut lines = Vec::new();
        while let Some(line) = next_line(&mut from, 10).await.unwrap() {
            lines.push((String::from_utf8(line.0).unwrap(), line.1));
        }
        // The rest of the long one is counted with the end of its line.
        let expected = [("short", 0), ("0123456789", 7), ("next", 0), ("last", 0)];
        assert_eq!(lines, expected.map(|(line, cut)| (line.to_owned(), cut)));
    }

    #[test]
    fn a_log_has_no_commands_for_a_terminal() {
        assert_eq!(printable(b"a\x1b[31mb\tc\xff\r"), "a·[31mb\tc\u{fffd}·");
    }
}
