//! The filters of hooks: which of them are called for a request is decided here, without a hop to their process.

use crate::config::{HostPattern, PathPattern};
use larder_wire::{Fields, Host};
use serde::Deserialize;
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

/// A hook: when it is called.
#[derive(Clone, Debug)]
pub struct Hook {
    /// For an answer, and not for a request.
    pub is_of_answers: bool,
    /// Where it stands, for people: `cart (policy.py:12)`.
    pub place: String,
    hosts: Vec<HostPattern>,
    paths: Vec<PathPattern>,
    methods: Vec<String>,
    statuses: Vec<u16>,
    fields: Vec<String>,
    /// How long its decisions hold.
    pub remember: Option<Duration>,
}

/// The longest time that a decision is remembered.
const REMEMBER_MAX: Duration = Duration::from_secs(86_400);

impl Hook {
    /// A hook by its declaration; the error is for the author of the script.
    pub fn of(declared: &Declared) -> Result<Hook, String> {
        let is_of_answers = match declared.stage.as_str() {
            "request" | "page" => false,
            "fetched" => true,
            other => return Err(format!("there is no stage {other:?}")),
        };
        let file = declared.file.rsplit('/').next().unwrap_or_default();
        let place = format!("{} ({file}:{})", declared.name, declared.line);
        let wrong = |what: &str, text: &str| format!("{place}: {text:?} is no {what}");
        let hosts = declared.hosts.iter().map(|text| HostPattern::parse(text).ok_or_else(|| wrong("host", text)));
        let paths =
            declared.paths.iter().map(|text| PathPattern::parse(text).ok_or_else(|| wrong("path pattern", text)));
        Ok(Hook {
            is_of_answers,
            hosts: hosts.collect::<Result<_, _>>()?,
            paths: paths.collect::<Result<_, _>>()?,
            methods: declared.methods.clone(),
            statuses: declared.statuses.clone(),
            fields: declared.fields.clone(),
            remember: declared.remember_ms.map(Duration::from_millis).map(|time| time.min(REMEMBER_MAX)),
            place,
        })
    }

    /// Whether the filter lets this request, or an answer with this status to it, through.
    pub fn takes(&self, asked: &Asked<'_>) -> bool {
        self.is_of_answers == asked.status.is_some()
            && (self.methods.is_empty() || self.methods.iter().any(|method| method == asked.method))
            && (self.hosts.is_empty() || self.hosts.iter().any(|host| host.matches(asked.host)))
            && (self.paths.is_empty()
                || self.paths.iter().any(|path| asked.paths.iter().flatten().any(|asked| path.matches(asked))))
            && (self.fields.is_empty() || self.fields.iter().any(|field| asked.fields.contains(field)))
            && (self.statuses.is_empty() || asked.status.is_some_and(|status| self.statuses.contains(&status)))
    }
}

/// The facts that filters look at.
pub struct Asked<'a> {
    /// The method.
    pub method: &'a str,
    /// The host.
    pub host: &'a Host,
    /// The path without the query: as it was received, and as an origin may read it. A filter takes what it finds in either, so
    /// that no spelling of a path goes past a hook.
    pub paths: [Option<&'a str>; 2],
    /// The fields of the request.
    pub fields: &'a Fields,
    /// The status of the answer, for hooks of answers.
    pub status: Option<u16>,
}

/// The hooks of one generation of processes, in the order in which they run.
#[derive(Debug, Default)]
pub struct Hooks(Vec<Hook>);

impl Hooks {
    /// The hooks that a process declares.
    pub fn of(declared: &[Declared]) -> Result<Hooks, String> {
        /// Places are numbers of 16 bits on the wire, and so many are not a little logic any more.
        const HOOKS_MAX: usize = 256;
        if declared.len() > HOOKS_MAX {
            return Err(format!("{} hooks are more than {HOOKS_MAX}", declared.len()));
        }
        declared.iter().map(Hook::of).collect::<Result<_, _>>().map(Hooks)
    }

    /// The places of those that are called for a request or an answer.
    pub fn called_for(&self, asked: &Asked<'_>) -> Vec<u16> {
        let called = (0_u16..).zip(&self.0).filter(|(_, hook)| hook.takes(asked));
        called.map(|(place, _)| place).collect()
    }

    /// Whether any of them is for this stage.
    pub fn has(&self, of_answers: bool) -> bool {
        self.0.iter().any(|hook| hook.is_of_answers == of_answers)
    }

    /// The hook at this place.
    pub fn at(&self, place: u16) -> Option<&Hook> {
        self.0.get(usize::from(place))
    }

    /// How long a decision of these hooks together may be remembered: `None` where one of them says nothing of it.
    pub fn remember(&self, called: &[u16]) -> Option<Duration> {
        let times = called.iter().map(|place| self.at(*place).and_then(|hook| hook.remember));
        times.collect::<Option<Vec<_>>>()?.into_iter().min()
    }
}
