//! The plays of a contest of application servers.

use super::ask::Ask;
use super::play::{Order, play};
use crate::contest::{Discipline, Heat};
use crate::ledger::{Ledger, PhasePlan, Run, Tuning, WorkloadFacts};
use crate::proc::{Watched, machine, own_command, system_tuning};
use crate::run::bind_to;
use crate::stop;
use crate::workload::PagePlan;
use std::fs::File;
use std::time::{SystemTime, UNIX_EPOCH};

/// Names of the phases, in order.
const PHASES: [&str; 2] = ["warm", "measure"];
/// More errors than this share: the result does not count.
const ERRORS_MAX: f64 = 0.001;
/// Rates and scales above this are mistakes.
const RATE_MAX: f64 = 1e7;
const SCALE_MAX: f64 = 100.0;

/// Whether a discipline can be played.
pub fn check(discipline: &Discipline, peak: Option<f64>, scale: f64) -> Result<(), String> {
    plan(discipline, peak, scale).map(drop)
}

/// The facts of a discipline, without playing it.
pub fn facts(discipline: &Discipline, peak: Option<f64>, scale: f64) -> WorkloadFacts {
    let scale = discipline.scale.unwrap_or(scale);
    WorkloadFacts {
        name: discipline.title(),
        text: plan(discipline, peak, scale).map_or_else(|reason| reason, |plan| plan.text()),
        peak: discipline.peak.or(peak),
        scale,
        report_phase: PHASES[1].to_owned(),
        errors_max: Some(ERRORS_MAX),
        ..WorkloadFacts::default()
    }
}

/// Plays one heat on the first of some cores.
pub fn heat(heat: &Heat<'_>, peak: Option<f64>, scale: f64, seed: u64, cores: &[usize]) -> Result<Ledger, String> {
    let plan = plan(heat.discipline, peak, scale)?;
    let core = cores.first().copied();
    let order = Order {
        plan,
        address: heat.address,
        seed,
        head: head(heat, &plan, facts(heat.discipline, peak, scale), seed, core),
        watched: heat.pid.map_or(Watched::Port(heat.address.port()), Watched::Tree),
        stop: stop::flag(),
    };
    let played = std::thread::scope(|scope| {
        let player = scope.spawn(|| {
            bind_to(core);
            play(order)
        });
        player.join().unwrap_or_else(|_| Err("the player of pages panicked".to_owned()))
    });
    let ledger = played?;
    File::create(&heat.ledger)
        .and_then(|file| ledger.write(file))
        .map_err(|error| format!("the ledger {} cannot be written: {error}", heat.ledger.display()))?;
    Ok(ledger)
}

fn plan(discipline: &Discipline, peak: Option<f64>, scale: f64) -> Result<PagePlan, String> {
    let name = &discipline.workload;
    let workload = discipline.pages().ok_or_else(|| format!("{name} asks for no pages"))?;
    let (peak, scale) = (discipline.peak.or(peak), discipline.scale.unwrap_or(scale));
    let within = |value: f64, max: f64| value > 0.0 && value <= max;
    if !within(scale, SCALE_MAX) {
        return Err(format!("--scale {scale}: give a number above 0, such as 0.1"));
    }
    if let Some(peak) = peak.filter(|peak| !within(*peak, RATE_MAX)) {
        return Err(format!("workload {name}: a peak of {peak} per second is no rate; give a number above 0"));
    }
    for (is_given, what) in [(discipline.log.is_some(), "log"), (discipline.store.is_some(), "store")] {
        if is_given {
            return Err(format!("workload {name}: it has no {what}"));
        }
    }
    let plan = workload.plan(discipline.variant.as_deref(), &discipline.changes)?;
    Ok(PagePlan { rate_per_s: peak, ..plan.scaled(scale) })
}

fn head(heat: &Heat<'_>, plan: &PagePlan, workload: WorkloadFacts, seed: u64, core: Option<usize>) -> Run {
    let phases = PHASES.into_iter().zip([(plan.warm, false), (plan.measure, true)]);
    let phases = phases.map(|(name, (length, logged))| PhasePlan {
        name: name.to_owned(),
        length_us: u64::try_from(length.as_micros()).ok(),
        logged,
        rate_end: plan.rate_per_s,
        goal: format!("{} s", length.as_secs_f64()),
    });
    let processes = heat.processes.map(|processes| Tuning {
        whose: "cache".to_owned(),
        name: "processes of the application".to_owned(),
        value: processes.to_string(),
    });
    Run {
        cacheoff: env!("CARGO_PKG_VERSION").to_owned(),
        label: heat.label.to_owned(),
        round: heat.round,
        repeats: heat.repeats.clone(),
        started_unix: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        command: own_command(),
        workload,
        seed,
        target: heat.target.clone(),
        contents: Ask::CONTENTS.map(str::to_owned).to_vec(),
        phases: phases.collect(),
        tuning: system_tuning().into_iter().chain(processes).collect(),
        machine: machine(&core.map_or_else(String::new, |core| core.to_string())),
        price: heat.price.clone(),
        watts: heat.watts,
        ..Run::default()
    }
}
