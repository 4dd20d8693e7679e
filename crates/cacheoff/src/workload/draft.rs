//! The values of a file before its parts are put together: defaults, and values that others decide.

use super::units::{number, show_share};
use super::{
    Content, Expires, Factor, Faults, Interest, Life, Link, Pace, Phase, Popularity, Protocol, Requests, Robots, Rules,
    Servers, WorkingSet, Workload,
};
use crate::distribution::Distribution;
use std::time::Duration;

/// The share that stands for a single robot.
const ONE_ROBOT: f64 = 1e-9;
/// Web Polygraph's only limit to sizes.
const SIZE_BYTES_MAX: u64 = 2 << 30;

/// A content type, with what it embeds by name.
#[derive(Clone)]
pub(super) struct ContentDraft {
    pub(super) content: Content,
    pub(super) embeds: Option<Distribution>,
    pub(super) embeds_of: Vec<(String, f64)>,
}

/// A phase, with factors as said.
#[derive(Clone)]
pub(super) struct PhaseDraft {
    pub(super) phase: Phase,
    pub(super) populus: FactorDraft,
    pub(super) load: FactorDraft,
    pub(super) recurrence: FactorDraft,
    pub(super) special: FactorDraft,
    pub(super) hot: FactorDraft,
}

/// A factor as said: what is missing follows from the phase before, and the end from the beginning.
#[derive(Clone, Copy, Default)]
pub(super) struct FactorDraft {
    from: Option<f64>,
    to: Option<f64>,
}

impl FactorDraft {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let value = |text: &str| match text.trim() {
            "one" => Some(ONE_ROBOT),
            text => number(text).filter(|value| (0.0..=1_000.0).contains(value)),
        };
        match text.split_once("->") {
            None => Some(Self { from: Some(value(text)?), to: None }),
            Some((from, to)) if from.trim().is_empty() => Some(Self { from: None, to: Some(value(to)?) }),
            Some((from, to)) => Some(Self { from: Some(value(from)?), to: Some(value(to)?) }),
        }
    }

    pub(super) fn show(&self) -> String {
        let each = |value: Option<f64>| value.map_or_else(String::new, show_share);
        match self {
            Self { from: None, to: None } => "as the phase before ended".to_owned(),
            Self { from, to: None } => each(*from),
            Self { from, to } => format!("{} -> {}", each(*from), each(*to)).trim().to_owned(),
        }
    }

    /// The factor, after a phase that ended at `before`.
    fn after(&self, before: f64) -> Factor {
        let from = self.from.unwrap_or(before);
        Factor { from, to: self.to.unwrap_or(from) }
    }
}

impl PhaseDraft {
    pub(super) fn empty() -> Self {
        let one = Factor::flat(1.0);
        let phase = Phase {
            name: String::new(),
            length: None,
            replies: None,
            fill_bytes: None,
            fill_caches: None,
            until_frozen: false,
            errors: None,
            thermostat: None,
            logged: true,
            dark: false,
            populus: one,
            load: one,
            recurrence: one,
            special: one,
            hot: one,
        };
        let none = FactorDraft::default();
        Self { phase, populus: none, load: none, recurrence: none, special: none, hot: none }
    }

    /// Fills in what follows from the phase before.
    pub(super) fn settle(self, before: Option<&Phase>) -> Phase {
        let after =
            |draft: FactorDraft, of: fn(&Phase) -> Factor| draft.after(before.map_or(1.0, |phase| of(phase).to));
        Phase {
            populus: after(self.populus, |phase| phase.populus),
            load: after(self.load, |phase| phase.load),
            recurrence: after(self.recurrence, |phase| phase.recurrence),
            special: after(self.special, |phase| phase.special),
            hot: after(self.hot, |phase| phase.hot),
            ..self.phase
        }
    }
}

impl ContentDraft {
    pub(super) fn empty() -> Self {
        let life = Life {
            cycle: None,
            variance: 0.0,
            with_modified: 1.0,
            expires: Expires::NextChange,
            expires_after: Distribution::Constant(0.0),
        };
        let content = Content {
            name: String::new(),
            share: 0.0,
            direct: None,
            media: "application/octet-stream".to_owned(),
            size: Distribution::Constant(0.0),
            size_bytes_max: SIZE_BYTES_MAX,
            cachable: 1.0,
            refused: crate::object::Refused::default(),
            endings: Vec::new(),
            embeds: None,
            life,
            checksum: 0.0,
            variants: 1,
            etag: false,
            personal: false,
            cache_control: "public".to_owned(),
        };
        Self { content, embeds: None, embeds_of: Vec::new() }
    }
}

impl Workload {
    /// A workload that has all defaults and nothing to ask for.
    pub(super) fn empty() -> Self {
        let once = Distribution::Constant(1.0);
        Self {
            name: String::new(),
            variant: None,
            about: String::new(),
            text: String::new(),
            peak_per_s: None,
            robots: Robots {
                pace: Pace::Poisson { rate_per_s: 0.4 },
                count: 1,
                protocol: Protocol::Http11,
                tls: false,
                connection_uses: once,
                connections_max: 0,
                embed_recurrence: 1.0,
                embeds_of_304: false,
                pipeline: 1,
                streams_max: 100,
                stream_window_bytes: 6 << 20,
                connection_window_bytes: 15 << 20,
                abort: 0.0,
                read_bytes_per_s: 0,
                per_address: 1,
                together: false,
                proxy_login: false,
            },
            requests: no_requests(),
            interest: Interest {
                recurrence: 0.0,
                public: 1.0,
                popularity: Popularity::Uniform,
                hot_set: 0.0,
                hot_probability: 0.0,
                bhr_discrimination: 0.0,
                working_set: WorkingSet::Unlimited,
            },
            servers: Servers {
                count: 1,
                per_robot: 0.0,
                think: Distribution::Constant(0.0),
                connection_uses: once,
                idle: Duration::from_secs(15),
                abort: 0.0,
                names: false,
                chunked: false,
                ranges: Default::default(),
                redirect: 0.0,
                faults: Faults::default(),
            },
            client_link: Link::default(),
            server_link: Link::default(),
            contents: Vec::new(),
            phases: Vec::new(),
            rules: Rules { errors_max: 0.03, dhr_min: None, report_phase: String::new() },
            replay: None,
        }
    }
}

/// Plain GETs.
fn no_requests() -> Requests {
    let once = Distribution::Constant(1.0);
    Requests {
        ims_200: 0.0,
        ims_304: 0.0,
        if_none_match: 0.0,
        reload: 0.0,
        range: 0.0,
        range_bytes: Distribution::Constant(65_536.0),
        range_suffix: 0.0,
        range_parts: once,
        parallel_ranges: once,
        post: 0.0,
        put: 0.0,
        post_bytes: Distribution::Constant(0.0),
        expect_continue: 0.0,
        head: 0.0,
        cookie: 0.0,
        query: 0.0,
        accept_gzip: 0.0,
        logged_in: 0.0,
        purges: 0.0,
        expected_status: 0,
    }
}
