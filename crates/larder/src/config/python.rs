//! Applications in Python that this server runs itself: which interpreter, how many processes, and their limits.

use super::application::Application;
use super::setting::{Field, Setting, word};
use super::{PathPattern, SourceLine};
use larder_wire::Host;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// When the processes of an application begin anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadAt {
    /// When `larder reload` or SIGHUP asks for it.
    Reload,
    /// Also within a second after one of its files has changed.
    Change,
}

impl ReloadAt {
    /// The words of the configuration.
    pub const ALL: [ReloadAt; 2] = [ReloadAt::Reload, ReloadAt::Change];

    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            ReloadAt::Reload => "on-reload",
            ReloadAt::Change => "on-change",
        }
    }
}

/// The fate of a request whose hook fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// It is denied: a rule that can't be asked is not taken to permit.
    Deny,
    /// It goes on as if there were no hook.
    Pass,
}

impl OnFailure {
    /// The words of the configuration.
    pub const ALL: [OnFailure; 2] = [OnFailure::Deny, OnFailure::Pass];

    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            OnFailure::Deny => "deny",
            OnFailure::Pass => "pass",
        }
    }
}

/// The surroundings of an application: one `[[python]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Python {
    /// The name by which sites refer to it.
    pub name: String,
    /// The interpreter. `None`: `.venv/bin/python` in the folder, that of `VIRTUAL_ENV`, or `python3`.
    pub interpreter: Option<PathBuf>,
    /// Where modules are imported from; the processes run in it.
    pub folder: PathBuf,
    /// Processes that serve.
    pub processes: usize,
    /// Processes that are ready to take the place of one that ends.
    pub standby: usize,
    /// Requests at once in one process of a WSGI application.
    pub threads: usize,
    /// From the end of a request to the head of its answer; then 504, and the process that hangs is ended.
    pub request_time: Duration,
    /// The time that the hooks of one call may run.
    pub hook_time: Duration,
    /// The fate of a request whose hook fails.
    pub on_failure: OnFailure,
    /// Bytes of data that a process may have.
    pub memory_bytes_max: Option<u64>,
    /// Bytes of a request's body that are gathered before a process of a WSGI application gets the request.
    pub request_buffer_bytes_max: u64,
    /// Bytes of an answer that are taken from a process of a WSGI application before the client takes them.
    pub answer_buffer_bytes_max: u64,
    /// Bytes in all these buffers together.
    pub buffers_bytes_max: u64,
    /// Further folders below which the processes may write; `/` lifts the limit.
    pub write: Vec<PathBuf>,
    /// Whether the processes may use the network.
    pub network: bool,
    /// Processes that one process may have started.
    pub children_max: usize,
    /// Environment variables of the processes, as `NAME=value`.
    pub environment: Vec<String>,
    /// Variables of this server's environment that the processes have too; `*` at the end is any text.
    pub inherit: Vec<String>,
    /// When the processes begin anew.
    pub reload: ReloadAt,
    /// Files below the folder that count as files of the application, beside those that it imports: patterns of relative paths.
    pub watch: Vec<PathPattern>,
    /// Whether the page of a failed request shows its traceback to clients.
    pub debug: bool,
    /// Where it stands.
    pub place: SourceLine,
}

impl Default for Python {
    fn default() -> Python {
        Python {
            name: String::new(),
            interpreter: None,
            folder: PathBuf::from("."),
            processes: 2,
            standby: 0,
            threads: 1,
            request_time: Duration::from_secs(30),
            hook_time: Duration::from_millis(50),
            on_failure: OnFailure::Deny,
            memory_bytes_max: None,
            request_buffer_bytes_max: 64 << 20,
            answer_buffer_bytes_max: 1 << 30,
            buffers_bytes_max: 2 << 30,
            write: Vec::new(),
            network: true,
            children_max: 64,
            environment: Vec::new(),
            inherit: Vec::new(),
            reload: ReloadAt::Reload,
            watch: WATCH.iter().filter_map(|text| watched(text)).collect(),
            debug: false,
            place: SourceLine::default(),
        }
    }
}

/// An application that a site or a listener has as its origin. Sites that name the same one share its processes.
#[derive(Clone, Debug, PartialEq)]
pub struct Mount {
    /// The name of the origin.
    pub host: Host,
    /// The application.
    pub application: Application,
    /// Its surroundings.
    pub python: Arc<Python>,
    /// The routes of the sites whose hooks it runs, by name.
    pub routes: Vec<String>,
}

/// The name in `NAME=value`.
fn variable_name(text: &str) -> &str {
    text.split_once('=').map_or(text, |(name, _)| name)
}

/// Whether an environment variable can have this name. Names of the runtime's own are not for others.
pub(super) fn is_variable(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    !name.is_empty()
        && name.chars().all(is_letter)
        && !name.starts_with(|letter: char| letter.is_ascii_digit())
        && !name.starts_with("LARDER_")
}

/// The files that are watched unless the configuration names others: templates, where frameworks look for them.
const WATCH: [&str; 1] = ["**/templates/**"];

/// Reads a pattern of paths below the folder.
fn watched(text: &str) -> Option<PathPattern> {
    let climbs = text.split('/').any(|segment| matches!(segment, "" | "." | ".."));
    if climbs { None } else { PathPattern::parse(&format!("/{text}")) }
}

type OfPython = Setting<Python>;

const MB: u64 = 1 << 20;
const PB: u64 = 1 << 50;
const DAY: u64 = 86_400_000;

/// Settings of one `[[python]]`.
pub static PYTHON: &[Setting<Python>] = &[
    OfPython::new(
        "python.name",
        Field::Name(|p| &mut p.name),
    )
    .required()
    .about("The name by which sites refer to it, of letters, digits, `-`, `_` and `.`."),
    OfPython::new(
        "python.interpreter",
        Field::Text {
            form: "file",
            read: |p| p.interpreter.as_ref().map_or_else(String::new, |path| path.display().to_string()),
            write: |p, text| {
                p.interpreter = (!text.is_empty()).then(|| text.into());
                p.interpreter.is_some()
            },
        },
    )
        .default_words("`.venv/bin/python` in the folder, `$VIRTUAL_ENV/bin/python` or `python3`")
        .about("A Python of 3.9 or newer, as that of a virtual environment."),
    OfPython::new("python.folder", Field::Path(|p| &mut p.folder))
        .about("Where modules are imported from. The processes run in it."),
    OfPython::new("python.processes", Field::Count(|p| &mut p.processes))
        .between(1, 256)
        .about("Processes that serve."),
    OfPython::new("python.standby", Field::Count(|p| &mut p.standby))
        .between(0, 16)
        .about("Further processes that have imported the application and wait to take the place of one that ends."),
    OfPython::new("python.threads", Field::Count(|p| &mut p.threads))
        .between(1, 256)
        .about("Requests at once in one process of a WSGI application. One process of an ASGI application serves many."),
    OfPython::new("python.request_time", Field::Time(|p| &mut p.request_time))
        .between(10, DAY)
        .about("From the end of a request to the head of its answer. After that the client gets a 504, the stacks of the process go into the log, and the process is ended and replaced; so is a process that goes on with a request for that long after its client has left."),
    OfPython::new("python.hook_time", Field::Time(|p| &mut p.hook_time))
        .between(1, 60_000)
        .about("The time that the hooks of one call may run, from when their process begins them; the time that the call waits for others does not count. After that the call has failed, and the process is ended and replaced."),
    OfPython::new(
        "python.on_failure",
        Field::Text {
            form: "deny or pass",
            read: |p| p.on_failure.as_str().to_owned(),
            write: |p, text| {
                let choice = word(&OnFailure::ALL, OnFailure::as_str, text);
                choice.map(|choice| p.on_failure = choice).is_some()
            },
        },
    )
    .about("Whether a request whose hook fails is denied, or goes on as if there were no hook."),
    OfPython::new("python.memory", Field::SizeOrNone(|p| &mut p.memory_bytes_max))
        .between(16 * MB, PB)
        .about("Data that a process may have (`RLIMIT_DATA`); beyond, the application gets a `MemoryError`. Where Larder can make control groups (version 2 with the controller `memory`), a process with all that it started has no more than twice as much memory."),
    OfPython::new("python.request_buffer", Field::Size(|p| &mut p.request_buffer_bytes_max))
        .between(0, PB)
        .about("How much of a request's body is gathered before a process of a WSGI application gets the request, so that a slow upload holds no process. A longer body passes piece by piece from there on; `0` gathers nothing. ASGI applications get bodies as they come."),
    OfPython::new("python.answer_buffer", Field::Size(|p| &mut p.answer_buffer_bytes_max))
        .between(0, PB)
        .about("How much of an answer is taken from a process of a WSGI application ahead of its client, so that a slow download holds no process: the first 128 KiB in memory, more in a file without a name in the folder of the server. Bytes that the client can take pass at once. `0` takes nothing ahead."),
    OfPython::new("python.buffers", Field::Size(|p| &mut p.buffers_bytes_max))
        .between(0, PB)
        .about("All request and answer buffers of an application together; one client may have half of it. Beyond that, requests and answers pass at the pace of their clients."),
    OfPython::new(
        "python.write",
        Field::Texts {
            form: "folders",
            read: |p| p.write.iter().map(|path| path.display().to_string()).collect(),
            clear: |p| p.write.clear(),
            push: |p, text| {
                p.write.push(text.into());
                text.starts_with('/')
            },
        },
    )
    .about("Folders below which the processes may write, beside `folder`, `/tmp`, `/var/tmp`, `$TMPDIR` and devices (Landlock; Linux 5.19 or newer). `[\"/\"]` lifts the limit. Reading is not limited."),
    OfPython::new("python.network", Field::Flag(|p| &mut p.network))
        .about("Whether the processes may use the network. `false` refuses all sockets but Unix sockets (seccomp), and forbids TCP besides (Landlock; Linux 6.7 or newer)."),
    OfPython::new("python.children", Field::Count(|p| &mut p.children_max))
        .between(0, 100_000)
        .about("Processes that one process may have started. One that has more is ended with all of them and replaced."),
    OfPython::new(
        "python.environment",
        Field::Texts {
            form: "NAME=value",
            // The values may be secrets.
            read: |p| p.environment.iter().map(|text| format!("{}=…", variable_name(text))).collect(),
            clear: |p| p.environment.clear(),
            push: |p, text| {
                p.environment.push(text.to_owned());
                text.contains('=') && is_variable(variable_name(text)) && !text.contains('\0')
            },
        },
    )
    .about("Environment variables of the processes. Beside these and `inherit` they have `PATH`, `HOME`, `USER`, `LANG`, `LC_*`, `TZ`, `TMPDIR`, `VIRTUAL_ENV` and `PYTHON*` of the server's environment, and nothing else of it."),
    OfPython::new(
        "python.inherit",
        Field::Texts {
            form: "names of environment variables",
            read: |p| p.inherit.clone(),
            clear: |p| p.inherit.clear(),
            push: |p, text| {
                p.inherit.push(text.to_owned());
                text == "*" || is_variable(text.strip_suffix('*').unwrap_or(text))
            },
        },
    )
    .about("Further variables of the server's environment that the processes have too: `DATABASE_URL`, `DJANGO_*`, or `*` for all."),
    OfPython::new(
        "python.reload",
        Field::Text {
            form: "on-reload or on-change",
            read: |p| p.reload.as_str().to_owned(),
            write: |p, text| {
                let at = word(&ReloadAt::ALL, ReloadAt::as_str, text);
                at.map(|at| p.reload = at).is_some()
            },
        },
    )
    .about("Whether processes begin anew at `larder reload` alone, or also within a second or two after one of the application's files has changed. The old ones serve until a new one is ready; if the new ones can't load it, the old ones go on."),
    OfPython::new(
        "python.watch",
        Field::Texts {
            form: "patterns of files below `folder`",
            read: |p| p.watch.iter().map(|pattern| pattern.to_string().trim_start_matches('/').to_owned()).collect(),
            clear: |p| p.watch.clear(),
            push: |p, text| watched(text).map(|pattern| p.watch.push(pattern)).is_some(),
        },
    )
    .about("Further files of the application, beside those that it imports: when one changes, appears or goes, the processes begin anew as well. `*.html` is a file in the folder itself, `**/*.html` one anywhere below it, `locale/**` all below that one. Left out are names that begin with a dot or end with `~`, `__pycache__`, `node_modules`, `site-packages` and virtual environments."),
    OfPython::new("python.debug", Field::Flag(|p| &mut p.debug))
        .about("Whether the page of a failed request shows the traceback to clients. It is in the log in any case."),
];
