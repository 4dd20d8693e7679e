//! Applications in Python that this server runs itself: which interpreter, how many processes, and their limits.

use super::application::Application;
use super::setting::{Field, Setting, word};
use super::{SourceLine, mirrors};
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
    /// When the processes begin anew.
    pub reload: ReloadAt,
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
            reload: ReloadAt::Reload,
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
}

type OfPython = Setting<Python>;

const MB: u64 = 1 << 20;
const PB: u64 = 1 << 50;
const DAY: u64 = 86_400_000;

/// Settings of one `[[python]]`.
pub static PYTHON: &[Setting<Python>] = &[
    OfPython::new(
        "python.name",
        Field::Text {
            form: "name",
            read: |p| p.name.clone(),
            write: |p, text| {
                text.clone_into(&mut p.name);
                mirrors::is_name(text)
            },
        },
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
        .about("The time that the hooks of one call may run. After that the call has failed, and the process is ended and replaced."),
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
        .about("Data that a process may have (`RLIMIT_DATA`); beyond, the application gets a `MemoryError`."),
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
    .about("Whether processes begin anew at `larder reload` alone, or also within a second after one of the application's files has changed. The old ones serve until a new one is ready; if the new ones can't load it, the old ones go on."),
    OfPython::new("python.debug", Field::Flag(|p| &mut p.debug))
        .about("Whether the page of a failed request shows the traceback to clients. It is in the log in any case."),
];
