//! The filters of hooks: which of them are called for a request is decided here, without a hop to their process.

use super::hook_counts::{HookBook, HookCounts, HookName};
use super::stage::Stage;
use crate::config::{HostPattern, PathPattern};
use larder_wire::{Fields, Host};
use serde::Deserialize;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A hook as its process declares it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Declared {
    stage: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    file: String,
    #[serde(default)]
    line: u32,
    #[serde(default)]
    hosts: Vec<String>,
    #[serde(default)]
    paths: Vec<String>,
    #[serde(default)]
    methods: Vec<String>,
    #[serde(default)]
    statuses: Vec<u16>,
    #[serde(default)]
    fields: Vec<String>,
    #[serde(default)]
    remember_ms: Option<u64>,
}

/// A route that a file of hooks names in so many words.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct NamedRoute {
    name: String,
    #[serde(default)]
    file: String,
    #[serde(default)]
    line: u32,
}

/// Where a hook stands; shown as `cart (policy.py:12)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookPlace {
    /// The name of the function.
    pub name: String,
    /// The name of its file.
    pub script: String,
    /// The line where it begins.
    pub line: u32,
}

impl fmt::Display for HookPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}:{})", self.name, self.script, self.line)
    }
}

/// A hook: when it is called.
#[derive(Clone, Debug)]
pub struct Hook {
    /// When it is called.
    pub stage: Stage,
    /// Where it stands.
    pub place: Arc<HookPlace>,
    hosts: Vec<HostPattern>,
    paths: Vec<PathPattern>,
    methods: Vec<String>,
    statuses: Vec<u16>,
    fields: Vec<String>,
    /// How long its decisions hold.
    pub remember: Option<Duration>,
    /// Counts of its calls, which those of its earlier versions are in.
    pub counts: Arc<HookCounts>,
}

/// The longest time that a decision is remembered.
const REMEMBER_MAX: Duration = Duration::from_secs(86_400);

impl Hook {
    /// A hook by its declaration, counted in this book; the error is for the author of the script.
    pub fn of(declared: &Declared, book: &HookBook) -> Result<Hook, String> {
        let stage = Stage::of_decorator(&declared.stage);
        let stage = stage.ok_or_else(|| format!("there is no stage {:?}", declared.stage))?;
        let script = file_name(&declared.file).to_owned();
        let place = HookPlace { name: declared.name.clone(), script, line: declared.line };
        let wrong = |what: &str, text: &str| format!("{place}: {text:?} is no {what}");
        let hosts = declared.hosts.iter().map(|text| HostPattern::parse(text).ok_or_else(|| wrong("host", text)));
        let paths =
            declared.paths.iter().map(|text| PathPattern::parse(text).ok_or_else(|| wrong("path pattern", text)));
        let named = HookName { script: place.script.clone(), name: place.name.clone(), stage };
        Ok(Hook {
            stage,
            hosts: hosts.collect::<Result<_, _>>()?,
            paths: paths.collect::<Result<_, _>>()?,
            methods: declared.methods.clone(),
            statuses: declared.statuses.clone(),
            fields: declared.fields.clone(),
            remember: declared.remember_ms.map(Duration::from_millis).map(|time| time.min(REMEMBER_MAX)),
            counts: book.counts_of(named),
            place: Arc::new(place),
        })
    }

    /// Whether the filter lets this request, or an answer with this status to it, through. An answer whose status is not known
    /// yet may be let through.
    pub fn takes(&self, asked: &Asked<'_>) -> bool {
        self.takes_whatever_path(asked)
            && (self.paths.is_empty()
                || self.paths.iter().any(|path| asked.paths.iter().flatten().any(|asked| path.matches(asked))))
    }

    fn takes_whatever_path(&self, asked: &Asked<'_>) -> bool {
        self.stage == asked.stage
            && (self.methods.is_empty() || self.methods.iter().any(|method| method == asked.method))
            && (self.hosts.is_empty() || self.hosts.iter().any(|host| host.matches(asked.host)))
            && (self.fields.is_empty() || self.fields.iter().any(|field| asked.fields.contains(field)))
            && (self.statuses.is_empty() || asked.status.is_none_or(|status| self.statuses.contains(&status)))
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// The facts that filters look at.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// When the hooks would be called.
    pub stage: Stage,
    /// The method.
    pub method: &'a str,
    /// The host.
    pub host: &'a Host,
    /// The path without the query: as it was received, and as an origin may read it. A filter takes what it finds in either, so
    /// that no spelling of a path goes past a hook.
    pub paths: [Option<&'a str>; 2],
    /// The fields of the request.
    pub fields: &'a Fields,
    /// The status of the answer, where there is one.
    pub status: Option<u16>,
}

/// The hooks of one generation of processes, in the order in which they run.
#[derive(Debug, Default)]
pub struct Hooks {
    list: Vec<Hook>,
    /// Which stages have any, in the order of [`Stage::ALL`].
    stages: [bool; Stage::ALL.len()],
}

impl Hooks {
    /// The hooks that a process declares, counted in this book.
    pub fn of(declared: &[Declared], book: &HookBook) -> Result<Hooks, String> {
        /// Places are numbers of 16 bits on the wire, and so many are not a little logic any more.
        const HOOKS_MAX: usize = 256;
        if declared.len() > HOOKS_MAX {
            return Err(format!("{} hooks are more than {HOOKS_MAX}", declared.len()));
        }
        let list = declared.iter().map(|hook| Hook::of(hook, book)).collect::<Result<Vec<_>, _>>()?;
        let stages = Stage::ALL.map(|stage| list.iter().any(|hook| hook.stage == stage));
        Ok(Hooks { list, stages })
    }

    /// Refuses routes that no site with these hooks has; a name that a hook makes as it runs is looked up at the request.
    pub fn check_routes(named: &[NamedRoute], known: &[String]) -> Result<(), String> {
        let Some(unknown) = named.iter().find(|route| !known.contains(&route.name)) else { return Ok(()) };
        let (file, line) = (file_name(&unknown.file), unknown.line);
        let known = match known {
            [] => "no site with these hooks has a [[site.route]]".to_owned(),
            known => format!("the sites with these hooks have {}", known.join(", ")),
        };
        Err(format!("{file}:{line}: there is no route {:?}: {known}", unknown.name))
    }

    /// The places of those that are called for a request or an answer.
    pub fn called_for(&self, asked: &Asked<'_>) -> Vec<u16> {
        let called = (0_u16..).zip(&self.list).filter(|(_, hook)| hook.takes(asked));
        called.map(|(place, _)| place).collect()
    }

    /// Whether any of them is called for a request or an answer.
    pub fn takes(&self, asked: &Asked<'_>) -> bool {
        self.has(asked.stage) && self.list.iter().any(|hook| hook.takes(asked))
    }

    /// Whether any of them could be called for a request, if its path were another one.
    pub fn may_take(&self, asked: &Asked<'_>) -> bool {
        self.has(asked.stage) && self.list.iter().any(|hook| hook.takes_whatever_path(asked))
    }

    /// Whether any of them is for this stage.
    pub fn has(&self, stage: Stage) -> bool {
        self.stages[stage as usize]
    }

    /// Counts a call of the hooks at these places, of which so many ran as there are times.
    pub fn took(&self, called: &[u16], nanos: &[u64]) {
        for (place, nanos) in called.iter().zip(nanos) {
            if let Some(hook) = self.at(*place) {
                hook.counts.took(*nanos);
            }
        }
    }

    /// All of them, in the order in which they run.
    pub fn iter(&self) -> impl Iterator<Item = &Hook> {
        self.list.iter()
    }

    /// The hook at this place.
    pub fn at(&self, place: u16) -> Option<&Hook> {
        self.list.get(usize::from(place))
    }

    /// How long a decision of these hooks together may be remembered: `None` where one of them says nothing of it.
    pub fn remember(&self, called: &[u16]) -> Option<Duration> {
        let mut times = called.iter().map(|place| self.at(*place).and_then(|hook| hook.remember));
        let first = times.next()??;
        times.try_fold(first, |shortest, time| Some(shortest.min(time?)))
    }
}
