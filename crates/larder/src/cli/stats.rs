//! `larder stats`: the runs of the last days together, by host, and the reasons for fetching that keep coming back.

use super::{Flags, Here, TROUBLE, WRONG, print};
use crate::clock;
use crate::diagnostics;
use crate::run::control::{RunHost, RunMiss};
use crate::run::history::{History, PastRun};
use crate::run::summary::{counted, percent, reason, share, size, span};
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

const DAY_SECONDS: u64 = 86_400;
/// Lines of each table.
const LINES_MAX: usize = 12;

#[derive(Args)]
pub(super) struct StatsFlags {
    #[command(flatten)]
    flags: Flags,
    /// Runs of so many days
    #[arg(long, value_name = "N", default_value_t = 30)]
    days: u64,
    /// Write the sums as JSON
    #[arg(long)]
    json: bool,
    /// Forget all runs; what is stored stays
    #[arg(long, conflicts_with = "json")]
    clear: bool,
}

pub(super) fn stats(flags: &StatsFlags) -> u8 {
    diagnostics::begin();
    let config = match flags.flags.read(Here::PassedOver) {
        Ok(loaded) => loaded.config,
        Err(report) => {
            diagnostics::say_text(format_args!("{report}"));
            return WRONG;
        }
    };
    let Some(folder) = config.store_folder() else {
        diagnostics::say("error: there is no store folder, and so no history: name one with --store DIR");
        return TROUBLE;
    };
    let history = History::of(&folder);
    let runs = match if flags.clear { history.clear().map(|()| Vec::new()) } else { history.read() } {
        Ok(_) if flags.clear => return 0,
        Ok(runs) => runs,
        Err(error) => {
            diagnostics::say(format_args!("error: the file runs.jsonl in the store folder can't be used: {error}"));
            return TROUBLE;
        }
    };
    let since = clock::now().0.saturating_sub(flags.days.saturating_mul(DAY_SECONDS));
    let sums = Sums::of(runs.iter().filter(|run| run.at >= since));
    if flags.json {
        return print(serde_json::to_string_pretty(&sums).unwrap_or_default() + "\n");
    }
    print(sums.text(flags.days))
}

/// All runs together.
#[derive(Default, Serialize)]
struct Sums {
    runs: u64,
    requests: u64,
    hits: u64,
    bytes_from_store: u64,
    bytes_fetched: u64,
    saved_seconds: f64,
    /// Those with the most bytes first.
    hosts: Vec<HostSums>,
    /// By reason and host, those with the most bytes first.
    misses: Vec<RunMiss>,
}

#[derive(Default, Serialize)]
struct HostSums {
    runs: u64,
    #[serde(flatten)]
    sums: RunHost,
}

impl Sums {
    fn of<'r>(runs: impl Iterator<Item = &'r PastRun>) -> Sums {
        let mut all = Sums::default();
        let mut hosts: BTreeMap<&str, HostSums> = BTreeMap::new();
        let mut misses: BTreeMap<(&str, Option<&str>, &str), RunMiss> = BTreeMap::new();
        for run in runs {
            all.runs += 1;
            all.requests += run.requests;
            all.hits += run.hits;
            all.bytes_from_store += run.bytes_from_store;
            all.bytes_fetched += run.bytes_fetched;
            all.saved_seconds += run.saved_millis as f64 / 1e3;
            for host in &run.hosts {
                let sums = hosts.entry(&host.host).or_default();
                sums.runs += 1;
                sums.add(host);
            }
            for miss in &run.misses {
                let sums = misses.entry((&miss.cause, miss.not_stored.as_deref(), &miss.host)).or_insert_with(|| {
                    let (cause, not_stored, host) = (miss.cause.clone(), miss.not_stored.clone(), miss.host.clone());
                    RunMiss { cause, not_stored, host, ..RunMiss::default() }
                });
                sums.requests += miss.requests;
                sums.bytes += miss.bytes;
            }
        }
        all.hosts = hosts.into_values().collect();
        all.hosts.sort_by_key(|host| std::cmp::Reverse(host.sums.bytes_from_store + host.sums.bytes_fetched));
        all.misses = misses.into_values().collect();
        all.misses.sort_by_key(|miss| std::cmp::Reverse((miss.bytes, miss.requests)));
        all
    }

    fn text(&self, days: u64) -> String {
        let days = counted(days, "day");
        if self.runs == 0 {
            return format!("no `larder run` in the last {days}\n");
        }
        let saved = match self.saved_seconds {
            seconds if seconds < 0.05 => String::new(),
            seconds => format!(", about {} saved", span(Duration::from_secs_f64(seconds))),
        };
        let mut text = format!(
            "{} in the last {days}: {} from the store{}, {} fetched{saved}\n",
            counted(self.runs, "run"),
            size(self.bytes_from_store),
            share(self.bytes_from_store, self.bytes_fetched),
            size(self.bytes_fetched),
        );
        self.write_hosts(&mut text);
        self.write_misses(&mut text);
        text
    }

    fn write_hosts(&self, text: &mut String) {
        if self.hosts.is_empty() {
            return;
        }
        let told = self.hosts.iter().take(LINES_MAX);
        let width = told.clone().map(|host| host.sums.host.len()).chain([4]).max().unwrap_or(4);
        let _ = writeln!(
            text,
            "\n{:width$}  {:>5}  {:>10}  {:>8}  {:>9}",
            "host", "runs", "from store", "fetched", "share"
        );
        for HostSums { runs, sums } in told {
            let part = match sums.bytes_from_store + sums.bytes_fetched {
                0 => "-".to_owned(),
                all => percent(sums.bytes_from_store, all),
            };
            let (from_store, fetched) = (size(sums.bytes_from_store), size(sums.bytes_fetched));
            let _ = writeln!(text, "{:width$}  {runs:>5}  {from_store:>10}  {fetched:>8}  {part:>9}", sums.host);
        }
        more(self.hosts.len(), "host", text);
    }

    fn write_misses(&self, text: &mut String) {
        if self.misses.is_empty() {
            return;
        }
        text.push_str("\nwhat was fetched, and why\n");
        let told = self.misses.iter().take(LINES_MAX);
        let width = told.clone().map(|miss| miss.host.len()).max().unwrap_or(0);
        for miss in told {
            let (bytes, many, why) = (size(miss.bytes), counted(miss.requests, "request"), reason(miss, true));
            let _ = writeln!(text, "{:width$}  {bytes:>7}  {many:>12}  {why}", miss.host);
        }
        more(self.misses.len(), "reason", text);
    }
}

fn more(all: usize, what: &str, text: &mut String) {
    if let Some(rest) = all.checked_sub(LINES_MAX).filter(|rest| *rest > 0) {
        let _ = writeln!(text, "and {}; --json has them all", counted(rest as u64, &format!("more {what}")));
    }
}

impl HostSums {
    fn add(&mut self, host: &RunHost) {
        host.host.clone_into(&mut self.sums.host);
        self.sums.requests += host.requests;
        self.sums.hits += host.hits;
        self.sums.bytes_from_store += host.bytes_from_store;
        self.sums.bytes_fetched += host.bytes_fetched;
        self.sums.store_micros += host.store_micros;
        self.sums.fetch_micros += host.fetch_micros;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_summed_by_host_and_reason() {
        let host = |name: &str, from_store, fetched| RunHost {
            host: name.to_owned(),
            requests: 3,
            bytes_from_store: from_store,
            bytes_fetched: fetched,
            ..RunHost::default()
        };
        let miss = |cause: &str, bytes| RunMiss {
            cause: cause.to_owned(),
            bytes,
            requests: 1,
            host: "deb.example".to_owned(),
            ..RunMiss::default()
        };
        let run = |from_store, fetched, cause: &str| PastRun {
            bytes_from_store: from_store,
            bytes_fetched: fetched,
            saved_millis: 1_500,
            hosts: vec![host("deb.example", from_store, fetched), host("a.example", 0, 0)],
            misses: vec![miss(cause, fetched)],
            ..PastRun::default()
        };
        let runs = [run(0, 2_000_000, "uri-miss"), run(1_000_000, 1_000_000, "stale"), run(1_000_000, 5, "stale")];
        let text = Sums::of(runs.iter()).text(7);
        for line in [
            "3 runs in the last 7 days: 2.00 MB from the store (40 % of all bytes), 3.00 MB fetched, about 4.5 s saved\n",
            "deb.example      3     2.00 MB   3.00 MB       40 %\n",
            "a.example        3         0 B       0 B          -\n",
            "deb.example  1.00 MB    2 requests  were too old",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert_eq!(Sums::of([].iter()).text(1), "no `larder run` in the last 1 day\n");
    }
}
