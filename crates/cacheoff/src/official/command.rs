//! `cacheoff official`.

use super::Sequence;
use crate::contest::bench::{BenchArgs, Budget, no_twins};
use crate::kill;
use crate::ledger::{Ledger, Outcome};
use crate::report::command::Normalisers;
use crate::report::{Weight, cache_ages};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Shorter runs than the standard watch TIME-WAIT for so long.
const TIME_WAIT_SCALED: Duration = Duration::from_secs(10);
const TIME_WAIT: Duration = Duration::from_secs(90);
/// Stores gather for some seconds before they write (`disk_sync` of Larder: 5 s); this is twice as long.
const KILL_LOAD_SCALED: Duration = Duration::from_secs(10);
/// The kill counts the objects kept so long after the start; 30 s in the standard.
const SETTLE_SCALED: Duration = Duration::from_secs(10);
/// The kill waits so long for a hit; 60 s in the standard.
const HIT_MAX_SCALED: Duration = Duration::from_secs(30);
/// A kill needs so many objects: half of them are asked for one by one until the first hit.
const KILL_OBJECTS_MIN: u32 = 200;
/// A store that takes nothing must not keep a sequence from ending.
const FILL_MAX_SCALED: Duration = Duration::from_secs(20 * 60);
const FILL_MAX: Duration = Duration::from_secs(240 * 60);

/// Plays the sequence of a cache-off: calibration, no proxy, and for each entry, on one living cache, TIME-WAIT, PolyFill-2
/// (twice its store), PolyMix-2 through all phases, and a kill. One report with the pages of the 2000 cache-off.
#[derive(clap::Args, Debug)]
pub struct OfficialArgs {
    /// Entries, and the machine that they share with the referee
    #[command(flatten)]
    bench: BenchArgs,
    /// Requests per second at peak
    #[arg(long, default_value_t = 100.0)]
    peak: f64,
    /// Phases are so many times as long: 1 plays PolyMix-2 in 14 hours, 0.002 in 100 seconds
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Seed of all that is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Requests per second of the fill; as fast as the cache takes it if nothing is said, which is the standard
    #[arg(long, value_name = "RATE")]
    fill_peak: Option<f64>,
    /// A fill ends after so many minutes even if the store is not filled twice; 240, or 20 where the phases are shorter than the standard
    #[arg(long, value_name = "MINUTES")]
    fill_max: Option<u64>,
    /// Seconds of watching TIME-WAIT; 90, or 10 where the phases are shorter than the standard
    #[arg(long)]
    time_wait_s: Option<u64>,
    /// Seconds of load before the kill; 30, or 10 where the phases are shorter than the standard
    #[arg(long)]
    kill_load_s: Option<u64>,
    /// An entry whose fill or load the machine spoilt (noise, a late referee) lives anew from its start, at most so often
    #[arg(long, default_value_t = 0, value_name = "TIMES", value_parser = clap::value_parser!(u8).range(..=9))]
    repeats: u8,
    /// Seconds of the calibration
    #[arg(long, default_value_t = 10)]
    ceiling_s: u64,
    /// How entries are asked, where they know it; the others are asked the other way
    #[arg(long, default_value = "forward", value_parser = ["forward", "reverse"])]
    mode: String,
    /// Store of the entries; those without a disk store have theirs in memory
    #[arg(long, default_value = "disk", value_parser = ["memory", "disk"])]
    store: String,
    /// Price and power of the entries
    #[command(flatten)]
    normalisers: Normalisers,
}

impl OfficialArgs {
    /// Plays everything and gives the report.
    pub fn run(&self) -> Result<ExitCode, String> {
        let sequence = self.sequence()?;
        self.bench.outputs.check()?;
        self.normalisers.check(sequence.entries.iter().map(|spec| spec.name.as_str()))?;
        let mut ledgers = sequence.play(&mut |text| eprintln!("official: {text}"))?;
        self.normalisers.apply(&mut ledgers)?;
        for (label, age) in cache_ages(&ledgers) {
            println!("{label}: the cache holds {age} of peak fill");
        }
        let done = self.bench.outputs.give(&ledgers)?;
        Ok(if ledgers.iter().any(is_broken) { ExitCode::FAILURE } else { done })
    }

    fn sequence(&self) -> Result<Sequence, String> {
        let entries = self.bench.specs()?;
        if entries.is_empty() {
            return Err("no entries: give --entries or --entry".to_owned());
        }
        no_twins(&entries)?;
        if let Some(asked) = entries.iter().find(|spec| spec.program.is_empty()) {
            return Err(format!("{} is not started by its entry, so that it cannot be killed", asked.name));
        }
        let is_rate = |rate: f64| rate > 0.0 && rate.is_finite();
        if !is_rate(self.peak) || !self.fill_peak.is_none_or(is_rate) {
            return Err("--peak and --fill-peak are requests per second above 0".to_owned());
        }
        if !(self.scale > 0.0 && self.scale <= 100.0) {
            return Err(format!("--scale {}: give a number above 0, such as 0.002", self.scale));
        }
        let (time_wait, fill_max) =
            if self.scale < 1.0 { (TIME_WAIT_SCALED, FILL_MAX_SCALED) } else { (TIME_WAIT, FILL_MAX) };
        Ok(Sequence {
            entries,
            post: self.bench.post(&self.mode, &self.store, Budget::USUAL),
            cores: self.bench.own_cores(),
            peak: self.peak,
            scale: self.scale,
            seed: self.seed,
            fill_peak: self.fill_peak,
            fill_max: self.fill_max.map_or(fill_max, |minutes| Duration::from_secs(minutes.max(1) * 60)),
            time_wait: self.time_wait_s.map_or(time_wait, Duration::from_secs),
            ceiling_s: self.ceiling_s.max(1),
            repeats_max: usize::from(self.repeats),
            kill: kill_settings(self.scale, self.kill_load_s),
            folder: self.bench.folder().map_or_else(|| "official".into(), Path::to_owned),
            by: self.bench.outputs.by.clone().unwrap_or_default(),
        })
    }
}

/// The kill of a scaled sequence has fewer objects. Its load is not scaled below the time in which stores hand over what they
/// gathered, or else it would say that they keep nothing.
fn kill_settings(scale: f64, load_s: Option<u64>) -> kill::Settings {
    let share = (scale * 50.0).clamp(0.02, 1.0);
    let standard = kill::Settings::default();
    kill::Settings {
        objects: ((f64::from(standard.objects) * share) as u32).max(KILL_OBJECTS_MIN),
        load: load_s.map_or(if scale < 1.0 { KILL_LOAD_SCALED } else { standard.load }, Duration::from_secs),
        dark: standard.dark.mul_f64(share),
        meas_max: if scale < 1.0 { HIT_MAX_SCALED } else { standard.meas_max },
        settle: if scale < 1.0 { SETTLE_SCALED } else { standard.settle },
        ..standard
    }
}

/// Whether a stage could not be played, or a cache answered wrongly in it.
fn is_broken(ledger: &Ledger) -> bool {
    let lies = ledger.intervals.iter().any(|interval| interval.errors.lies() > 0);
    lies || matches!(ledger.end.outcome, Outcome::Failed(_) | Outcome::Unfinished)
        || crate::report::Summary::of(ledger).findings.iter().any(|finding| finding.weight == Weight::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Whole {
        #[command(flatten)]
        official: OfficialArgs,
    }

    fn sequence_of(words: &[&str]) -> Result<Sequence, String> {
        Whole::try_parse_from([&["official"], words].concat()).map_err(|error| error.to_string())?.official.sequence()
    }

    #[test]
    fn a_scaled_sequence_is_short_and_the_standard_one_is_whole() {
        let whole = sequence_of(&["--entries", "larder,squid"]).unwrap();
        assert_eq!((whole.kill.objects, whole.kill.load.as_secs(), whole.time_wait.as_secs()), (2_000, 30, 90));
        let scaled = sequence_of(&["--entries", "larder", "--scale", "0.0003"]).unwrap();
        assert_eq!((scaled.kill.objects, scaled.time_wait.as_secs()), (200, 10));
        assert_eq!((whole.kill.settle.as_secs(), scaled.kill.settle.as_secs()), (30, 10));
        assert_eq!((whole.kill.meas_max.as_secs(), scaled.kill.meas_max.as_secs()), (60, 30));
        assert_eq!((whole.fill_max, scaled.fill_max), (FILL_MAX, FILL_MAX_SCALED));
        assert_eq!(whole.repeats_max, 0, "14 hours are not repeated unasked");
        assert_eq!(sequence_of(&["--entries", "larder", "--repeats", "2"]).unwrap().repeats_max, 2);
        assert!(scaled.kill.load == KILL_LOAD_SCALED && scaled.post.mode == "forward" && scaled.post.store == "disk");
    }

    #[test]
    fn nonsense_is_refused() {
        for (words, reason) in [
            (&[][..], "no entries"),
            (&["--entries", "polipo"], "unknown entry"),
            (&["--entries", "squid,squid"], "two entries are called"),
            (&["--entries", "squid", "--peak", "0"], "above 0"),
            (&["--entries", "squid", "--fill-peak", "-1"], "unexpected argument"),
            (&["--entries", "squid", "--scale", "0"], "--scale 0"),
        ] {
            let error = sequence_of(words).err().unwrap();
            assert!(error.contains(reason), "{words:?}: {error}");
        }
    }
}
