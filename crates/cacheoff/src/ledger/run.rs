//! The head and the end of a ledger: who was tested, with which workload, on which machine, tuned how; and how the run
//! ended.

use super::{Histogram, Side};
use serde::{Deserialize, Serialize};

/// The head of a ledger: everything that is known before the first request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// Version of the referee that wrote it.
    pub cacheoff: String,
    /// Name under which reports list it: the entry's name or what the user gave.
    pub label: String,
    /// Number of the round in a contest, counted from 1; 0 outside.
    pub round: u32,
    /// Why earlier plays of the same round were not valid, if it was repeated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub repeats: Vec<String>,
    /// Wall clock at the start, in seconds since 1970 (UTC).
    pub started_unix: u64,
    /// The command that made it.
    pub command: String,
    /// The maker, in their own words, if they said so.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// The workload.
    pub workload: WorkloadFacts,
    /// Seed of all random streams.
    pub seed: u64,
    /// The tested system.
    pub target: Target,
    /// Names of the content types; [`super::Class::Content`] counts into this list.
    pub contents: Vec<String>,
    /// Phases in order, as planned.
    pub phases: Vec<PhasePlan>,
    /// The scores of an ideal cache of unlimited size, as planned.
    pub ideal: Ideal,
    /// The links between robots, cache and origins.
    pub links: Vec<Link>,
    /// The protocol of the robots in the word of workloads: `http/1.0`, `http/1.1`, `h2c` or `h2`; empty in ledgers of before, whose
    /// robots spoke HTTP/1.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub protocol: String,
    /// The limits of robots that speak HTTP/2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<StreamFacts>,
    /// How robots speak TLS, if they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsFacts>,
    /// Settings of both sides that change figures, as read from the system.
    pub tuning: Vec<Tuning>,
    /// Where it ran.
    pub machine: Machine,
    /// Price of the entry with its network gear, if it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// Power drawn in the test in watts, if it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watts: Option<f64>,
    /// Budget of the cache's store in bytes, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_bytes: Option<u64>,
    /// The stage of an official sequence that this is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// The agents that played it, if it was a run on several machines; in the ledger of one agent that one alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentPart>,
}

impl Run {
    /// How robots speak to the entry: the protocol, and TLS where it does not say so by itself. Empty where it is not known.
    pub fn protocol_in_words(&self) -> String {
        match (self.protocol.as_str(), self.tls) {
            ("h2c", _) => "HTTP/2 in the clear (h2c)".to_owned(),
            ("h2", _) => "HTTP/2 over TLS (h2)".to_owned(),
            ("", None) => String::new(),
            ("", Some(_)) => "HTTP/1 over TLS".to_owned(),
            (other, None) => other.to_uppercase(),
            (other, Some(_)) => format!("{} over TLS", other.to_uppercase()),
        }
    }

    /// Whether robots speak HTTP/2.
    pub fn is_http2(&self) -> bool {
        matches!(self.protocol.as_str(), "h2c" | "h2")
    }
}

/// Limits of robots that speak HTTP/2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamFacts {
    /// Requests under way at once on a connection.
    pub streams_max: u32,
    /// Bytes of a body that may come unread.
    pub stream_window_bytes: u32,
    /// Bytes of all bodies of a connection that may come unread.
    pub connection_window_bytes: u32,
}

/// The part of one agent in a run on several machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentPart {
    /// Its name.
    pub name: String,
    /// The mark of the run, which is in its URLs: parts of one run have one.
    pub run: u32,
    /// Its first worker.
    pub first: u16,
    /// Its workers.
    pub own: u16,
    /// The workers of the whole run that have robots; those behind them have origins alone.
    pub of: u16,
    /// All workers of the run.
    pub all: u16,
    /// Addresses of its origins.
    pub origins: u32,
    /// Its machine.
    pub machine: Machine,
}

/// A stage of an official sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The generator alone, against a fixed responder.
    Ceiling,
    /// The load without a cache.
    NoProxy,
    /// How long the cache's machine remembers a connection that the cache closed.
    TimeWait,
    /// The store is filled twice.
    Fill,
    /// The load through all its phases.
    Load,
    /// The cache is killed and started again.
    Kill,
}

/// Which workload, to the letter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkloadFacts {
    /// Its name.
    pub name: String,
    /// Its file, word for word.
    pub text: String,
    /// Requests per second at peak, if the workload has a peak.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak: Option<f64>,
    /// The factor by which phases were shortened; 1 is the standard.
    pub scale: f64,
    /// The changes that the scale makes, in sentences.
    pub scale_notes: Vec<String>,
    /// The phase whose figures the report uses; the busiest logged one if empty.
    pub report_phase: String,
    /// Largest share of errors with which the result counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors_max: Option<f64>,
    /// Lowest DHR with which the result counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhr_min: Option<f64>,
    /// Names of the visible servers in the form of `/etc/hosts`, if URLs have names: those who start a cache tell it. It is
    /// not written down, for it follows from the number of servers.
    #[serde(skip)]
    pub names: String,
    /// The protocol of the robots, as [`Run::protocol`] has it.
    #[serde(skip)]
    pub protocol: String,
    /// The protocol that the listener of an entry must speak, which follows from the workload.
    #[serde(skip)]
    pub listener: Listener,
}

/// The protocol of an entry's listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listener {
    /// HTTP/1 in the clear.
    #[default]
    Http,
    /// HTTP/1 over TLS.
    Https,
    /// HTTP/2 in the clear, by prior knowledge.
    H2c,
    /// HTTP/2 over TLS, by ALPN.
    H2,
}

impl Listener {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Http, Self::Https, Self::H2c, Self::H2];

    /// The word of entries and reasons.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::H2c => "h2c",
            Self::H2 => "h2",
        }
    }

    /// Whether it speaks TLS.
    pub fn is_secure(self) -> bool {
        matches!(self, Self::Https | Self::H2)
    }
}

/// The system between robots and origins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Target {
    /// How it is asked.
    pub mode: Mode,
    /// Its address: `ADDR:PORT` or a URL; empty without a proxy.
    pub address: String,
    /// The product and its version, as it names itself.
    pub product: String,
    /// How it was started, if the referee started it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<Entry>,
}

/// How the target is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Robots speak to the origins.
    #[default]
    NoProxy,
    /// Forward proxy: absolute form.
    Forward,
    /// Reverse proxy: origin form.
    Reverse,
    /// A server that makes the pages itself: there is no origin behind it.
    Pages,
}

impl Mode {
    /// How robots speak to the entry, for reports.
    pub fn in_words(self) -> &'static str {
        match self {
            Mode::NoProxy => "no cache",
            Mode::Forward => "forward proxy",
            Mode::Reverse => "reverse proxy",
            Mode::Pages => "maker of pages",
        }
    }

    /// The word of ledgers and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoProxy => "no-proxy",
            Self::Forward => "forward",
            Self::Reverse => "reverse",
            Self::Pages => "pages",
        }
    }
}

/// An entry of a contest: the product as it was configured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// The tuning, if it has several: `stock`, `expert`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tuning: String,
    /// Store mode: `memory`, `disk`, `pass`.
    pub store: String,
    /// Where the store lies: in the processes, or in files on a file system; empty if that is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub store_at: String,
    /// Commands, in order of use.
    pub commands: Vec<String>,
    /// Configuration files as they were written: name and text.
    pub files: Vec<(String, String)>,
    /// Remarks on the tuning, for experts to dispute.
    pub notes: Vec<String>,
    /// Whether a reload goes to the origin, by the entry's own word.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub honours_reload: bool,
    /// The maker's words on the entry, as they stand beside it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub comments: String,
    /// Cores it was bound to, as the kernel writes lists; empty if not bound.
    pub cores: String,
}

/// A phase as planned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhasePlan {
    /// Its name.
    pub name: String,
    /// Planned length in microseconds, if time is its goal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length_us: Option<u64>,
    /// Whether its figures are reported.
    pub logged: bool,
    /// Rate asked at its end, in requests per second, if paced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_end: Option<f64>,
    /// Its goal in words.
    pub goal: String,
}

/// The scores of an ideal cache in the reported phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ideal {
    /// Document hit ratio, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhr: Option<f64>,
    /// Byte hit ratio, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bhr: Option<f64>,
    /// Mean response time in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_us: Option<f64>,
    /// Bytes of cachable misses per second at peak.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill_bytes_per_s: Option<f64>,
    /// Size of the working set in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_set_bytes: Option<f64>,
    /// Cache size in bytes that gives 99 % of the hits under LRU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lru_99_bytes: Option<f64>,
}

/// A link as modelled and as calibrated before the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Link {
    /// Which side, `client` or `server`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side: Option<Side>,
    /// The kind of model: `none`, `user-space`, `netem`.
    pub model: String,
    /// Delay each way in microseconds.
    pub delay_us: u64,
    /// Jitter in microseconds.
    pub jitter_us: u64,
    /// Bits per second; 0 is unlimited.
    pub bits_per_s: u64,
    /// Loss per packet, 0 to 1.
    pub loss: f64,
    /// Round trips that the calibration measured.
    #[serde(skip_serializing_if = "Histogram::is_empty")]
    pub measured: Histogram,
}

/// One setting that changes figures, as the system told it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tuning {
    /// The owner: `referee`, `cache` or `system`.
    pub whose: String,
    /// Its name, such as `net.core.somaxconn`.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// The machine of the referee.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Model of the processor.
    pub processor: String,
    /// Cores that the system has.
    pub cores: u32,
    /// Cores that the referee used, as the kernel writes lists; empty for all.
    pub own_cores: String,
    /// Bytes of memory.
    pub memory: u64,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Whether a core runs several threads (SMT), as the kernel writes it: `1` or `0`; empty where it does not tell.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub smt: String,
    /// The distribution with its version; empty where none is named.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub system: String,
    /// Whether it is a virtual machine, as far as it can be told.
    pub virtual_machine: bool,
    /// Where its power comes from: `mains` or `battery`; empty where the system does not tell.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub power: String,
    /// Counters of energy that can be read, such as `package-0, dram`; empty where there are none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub energy: String,
}

/// TLS of the robots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TlsFacts {
    /// The certificate of the other end is verified.
    Verified,
    /// Any certificate is taken (`--insecure`).
    Unverified,
}

impl TlsFacts {
    /// The word of ledgers and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Unverified => "unverified",
        }
    }
}

/// A price.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Price {
    /// Amount.
    pub amount: f64,
    /// Currency, such as `USD`.
    pub currency: String,
}

/// Said when a phase begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseStart {
    /// Its number in [`Run::phases`].
    pub phase: u16,
    /// Microseconds since the run began.
    pub at_us: u64,
}

/// Something that happened to the run as a whole, with its time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Microseconds since the run began.
    pub at_us: u64,
    /// The event, in a sentence.
    pub text: String,
}

/// The result of a kill or a power cut. Times count from the command that started the cache again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Downtime {
    /// How the cache was stopped.
    pub cut: String,
    /// Time to the first connection that was accepted, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_accept_us: Option<u64>,
    /// Time to the first miss that was answered, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_miss_us: Option<u64>,
    /// Time to the first hit on what was stored before the stop, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_hit_us: Option<u64>,
    /// Gap between two probes in microseconds: what the times are exact to.
    pub resolution_us: u64,
    /// How long the cache stayed without power, in microseconds.
    pub dark_us: u64,
    /// Objects stored before the stop that were asked for afterwards.
    pub probed: u64,
    /// Of those, served from the store.
    pub kept: u64,
    /// Objects asked for the first time in the last seconds before the stop that were asked for afterwards.
    pub late_probed: u64,
    /// Of those, served from the store.
    pub late_kept: u64,
    /// Answers after the start whose bytes were not those of the object.
    pub wrong: u64,
}

/// The last record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct End {
    /// Microseconds since the run began.
    pub at_us: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Why the figures must not be used, one sentence each; empty when they may.
    pub invalid: Vec<String>,
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// All phases were played.
    Complete,
    /// The run was stopped by hand; figures until then stand.
    Interrupted,
    /// It could not go on.
    Failed(String),
    /// The ledger ends without a last record: the referee was killed or its disk was full.
    #[default]
    Unfinished,
}
