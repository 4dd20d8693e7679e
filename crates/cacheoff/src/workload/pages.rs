//! The workloads of application servers, `page` and `board`. They have no origin and no hits, so that none of the knobs of
//! a cache's workload would mean anything; the few that they have bear the same names.

use super::units::{Unit, number};
use std::time::Duration;

/// A workload that application servers are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageWorkload {
    /// Its name.
    pub name: &'static str,
    /// The pages that it asks for.
    pub asks: PageKind,
    /// The system that it models, in a sentence or two.
    pub about: &'static str,
    /// Its variants, the usual one first.
    pub variants: &'static [PageVariant],
}

/// Which pages are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// The hello page.
    Hello,
    /// The pages of the board, by their mix.
    Board,
}

/// A variant: how many connections there are, and whether they are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageVariant {
    /// Its name.
    pub name: &'static str,
    /// The load that it makes, in a sentence.
    pub about: &'static str,
    /// Connections at a time.
    pub connections: u32,
    /// Whether a connection serves more than one request.
    pub kept: bool,
}

/// How a workload is played, with all that was changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PagePlan {
    /// The pages that are asked for.
    pub asks: PageKind,
    /// Connections at a time, at most.
    pub connections: u32,
    /// Requests that a connection serves; `None` is no limit.
    pub connection_uses: Option<u64>,
    /// The phase before the measurement.
    pub warm: Duration,
    /// The measurement.
    pub measure: Duration,
    /// Requests per second that are due, whatever the replies do; without it each connection asks again when it has its reply.
    pub rate_per_s: Option<f64>,
}

/// Both of them.
pub static PAGE_WORKLOADS: &[PageWorkload] = &[
    PageWorkload {
        name: "page",
        asks: PageKind::Hello,
        about: "Application servers make a page of 14 bytes, asked for as ab does, in HTTP/1.1. Without a variant a contest plays all four.",
        variants: &[
            variant("15-kept", "15 clients at a time on connections that are kept (as ab -k -c15).", 15, true),
            variant("15-close", "15 clients at a time, a connection for each request (as ab -c15).", 15, false),
            variant(
                "1-kept",
                "One client on one connection that is kept (as ab -k -c1): the latency of a page.",
                1,
                true,
            ),
            variant("1-close", "One client, a connection for each request (as ab -c1).", 1, false),
        ],
    },
    PageWorkload {
        name: "board",
        asks: PageKind::Board,
        about: "Application servers make the pages of a board out of SQLite: 70 % threads, 20 % lists, 5 % threads for a user who is signed in, 5 % posts, each followed by the page that must show it.",
        variants: &[variant("15-kept", "15 clients at a time on connections that are kept.", 15, true)],
    },
];

const fn variant(name: &'static str, about: &'static str, connections: u32, kept: bool) -> PageVariant {
    PageVariant { name, about, connections, kept }
}

/// Connections at a time, at most: one thread plays them all.
const CONNECTIONS_MAX: f64 = 10_000.0;
const WARM: Duration = Duration::from_secs(2);
const MEASURE: Duration = Duration::from_secs(10);
/// No phase is longer than this many seconds.
const PHASE_S_MAX: f64 = 1e6;

impl PageWorkload {
    /// The one with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        PAGE_WORKLOADS.iter().find(|workload| workload.name == name)
    }

    /// The plan of a variant with changed knobs.
    pub fn plan(&self, variant: Option<&str>, changes: &[(String, String)]) -> Result<PagePlan, String> {
        let known = || self.variants.iter().map(|variant| variant.name).collect::<Vec<_>>().join(", ");
        let found = match variant {
            Some(name) => self.variants.iter().find(|variant| variant.name == name),
            None => self.variants.first(),
        };
        let found = found.ok_or_else(|| {
            let wanted = variant.unwrap_or_default();
            format!("workload {} has no variant {wanted:?}; there are {}", self.name, known())
        })?;
        let mut plan = PagePlan {
            asks: self.asks,
            connections: found.connections,
            connection_uses: (!found.kept).then_some(1),
            warm: WARM,
            measure: MEASURE,
            rate_per_s: None,
        };
        changes.iter().try_for_each(|(knob, value)| plan.change(self.name, knob, value))?;
        Ok(plan)
    }
}

/// The knobs that may be changed.
const KNOBS: &str = "robot.count, robot.connection_uses, phase.warm.length and phase.measure.length";

impl PagePlan {
    fn change(&mut self, workload: &str, knob: &str, value: &str) -> Result<(), String> {
        let wrong = |takes: &str| format!("workload {workload}: {knob} takes {takes}, not {value:?}");
        let whole = |limit: f64| number(value).filter(|n| n.fract() == 0.0 && (1.0..=limit).contains(n));
        let time = || {
            let seconds = Unit::Time.parse(value).filter(|seconds| *seconds > 0.0 && *seconds <= PHASE_S_MAX);
            let seconds = seconds.ok_or_else(|| wrong("a time such as 10s"))?;
            Ok::<_, String>(Duration::from_secs_f64(seconds))
        };
        match knob {
            "robot.count" => {
                let count = whole(CONNECTIONS_MAX).ok_or_else(|| wrong("a whole number from 1 to 10000"))?;
                self.connections = count as u32;
            }
            "robot.connection_uses" if value == "none" => self.connection_uses = None,
            "robot.connection_uses" => {
                let uses = whole(1e15).ok_or_else(|| wrong("a whole number from 1, or none for no limit"))?;
                self.connection_uses = Some(uses as u64);
            }
            "phase.warm.length" => self.warm = time()?,
            "phase.measure.length" => self.measure = time()?,
            _ => return Err(format!("workload {workload} has no knob {knob}; there are {KNOBS}")),
        }
        Ok(())
    }

    /// The plan at a scale: phases are so many times as long.
    pub fn scaled(self, scale: f64) -> Self {
        Self { warm: self.warm.mul_f64(scale), measure: self.measure.mul_f64(scale), ..self }
    }

    /// The plan in words, as ledgers keep it.
    pub fn text(&self) -> String {
        let asks = match self.asks {
            PageKind::Hello => "the hello page",
            PageKind::Board => {
                "the board: 70 % threads, 20 % lists, 5 % threads for a user, 5 % posts and the page after each"
            }
        };
        let uses = match self.connection_uses {
            None => "kept".to_owned(),
            Some(1) => "closed after each request".to_owned(),
            Some(uses) => format!("closed after {uses} requests"),
        };
        let pace = self.rate_per_s.map_or_else(
            || "the next request when the reply is there".to_owned(),
            |rate| format!("{rate} requests per second, at times that are drawn (Poisson)"),
        );
        format!(
            "asks for {asks}\n{} connections at a time, {uses}\n{pace}\nwarm {} s, measure {} s\n",
            self.connections,
            self.warm.as_secs_f64(),
            self.measure.as_secs_f64()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(name: &str, variant: Option<&str>, changes: &[(&str, &str)]) -> Result<PagePlan, String> {
        let changes: Vec<_> = changes.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        PageWorkload::named(name).unwrap().plan(variant, &changes)
    }

    #[test]
    fn a_plan_is_that_of_its_variant_with_what_is_changed() {
        let close = plan("page", Some("1-close"), &[("phase.measure.length", "500ms")]).unwrap();
        assert_eq!((close.connections, close.connection_uses, close.measure.as_millis()), (1, Some(1), 500));
        let usual = plan("page", None, &[("robot.count", "3")]).unwrap().scaled(0.5);
        assert_eq!((usual.connections, usual.connection_uses, usual.warm), (3, None, Duration::from_secs(1)));
        assert!(close.text().contains("closed after each request") && usual.text().contains("kept"));
        let some = plan("board", None, &[("robot.connection_uses", "7")]).unwrap();
        assert_eq!((some.connection_uses, some.asks), (Some(7), PageKind::Board));
    }

    #[test]
    fn nonsense_is_refused_with_what_there_is() {
        for (variant, knob, value, reason) in [
            (Some("2-kept"), "robot.count", "1", "no variant \"2-kept\"; there are 15-kept"),
            (None, "robot.speed", "1", "no knob robot.speed; there are robot.count"),
            (None, "robot.count", "0", "takes a whole number from 1 to 10000, not \"0\""),
            (None, "robot.count", "1e99", "takes a whole number"),
            (None, "robot.connection_uses", "1.5", "takes a whole number"),
            (None, "phase.warm.length", "-1s", "takes a time such as 10s"),
            (None, "phase.measure.length", "10", "takes a time such as 10s"),
        ] {
            let error = plan("page", variant, &[(knob, value)]).unwrap_err();
            assert!(error.contains(reason), "{knob} {value}: {error}");
        }
    }
}
