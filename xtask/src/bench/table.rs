//! The whole table: all cells, all contestants, in rounds. The contestants of a stage run at once, each idle while
//! another one has its turn; within a round each cell is played by all of them one after the other, so that a drift
//! of the machine meets all.

use super::cells::{CELLS, Cell, Goal};
use super::field::{self, Contestant, Kind, Stage};
use super::proof;
use super::tool::Sample;
use crate::lab::{self, Lab};
use crate::shell::{self, Trouble};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The ratio to the figure before beyond which a cell has got worse.
const LOST_MAX: f64 = 1.03;

/// The cells and contestants of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The rows.
    pub cells: Vec<Cell>,
    /// Alternated rounds.
    pub rounds: usize,
    /// Length of each run.
    pub seconds: u64,
    /// An earlier build, if that is one of those who play.
    pub before: Option<PathBuf>,
}

/// The results of a run.
#[derive(Default)]
pub struct Results {
    /// By cell (its place in the plan) and contestant, in rounds; a run that failed is `None`.
    pub samples: BTreeMap<(usize, Kind), Vec<Option<Sample>>>,
    /// The results of the proofs, or why a contestant could not play a cell.
    pub proofs: BTreeMap<(usize, Kind), Result<String, Trouble>>,
    /// Names and versions.
    pub versions: BTreeMap<Kind, String>,
    /// Those that could not be started, and why.
    pub absent: Vec<(Kind, Trouble)>,
}

/// An origin and what it takes to ask it.
pub struct Origin {
    /// Its process.
    pub id: u32,
    /// Its port.
    pub port: u16,
}

impl Plan {
    /// The cells of these keys, or all, with no more contestants than `only`.
    pub fn of(keys: &[String], only: Option<&'static [Kind]>, rounds: usize, seconds: u64) -> Result<Plan, Trouble> {
        let known = || CELLS.iter().map(|cell| cell.key).collect::<Vec<_>>().join(" ");
        if let Some(wrong) = keys.iter().find(|key| !CELLS.iter().any(|cell| cell.key == key.as_str())) {
            return Err(format!("no cell {wrong:?}: there are {}", known()));
        }
        let mut cells: Vec<Cell> =
            CELLS.into_iter().filter(|cell| keys.is_empty() || keys.iter().any(|key| key == cell.key)).collect();
        if let Some(only) = only {
            cells.iter_mut().for_each(|cell| cell.field = only);
        }
        Ok(Plan { cells, rounds, seconds, before: None })
    }

    /// Larder beside an earlier build of itself and nobody else, in the same rounds: no cell may be lost by more than 3 %.
    pub fn against(mut self, before: PathBuf) -> Plan {
        for cell in &mut self.cells {
            cell.field = &[Kind::Larder, Kind::Before];
            cell.goal = Goal { peer: Some(LOST_MAX), ..Goal::default() };
        }
        Plan { before: Some(before), ..self }
    }

    /// The plan in words, with the time it should take.
    pub fn said(&self) -> String {
        let mut text = String::new();
        for cell in &self.cells {
            let field: Vec<&str> = cell.field.iter().map(|kind| kind.as_str()).collect();
            text += &format!("{:12} {}: {}\n", cell.key, cell.name, field.join(", "));
        }
        let runs: usize = self.cells.iter().map(|cell| cell.field.len()).sum::<usize>() * (self.rounds + 1);
        let fills: usize = self.cells.iter().filter(|cell| cell.objects().is_some()).map(|cell| cell.field.len()).sum();
        let seconds = runs as f64 * (self.seconds as f64 + RUN_EXTRA_SECONDS) + fills as f64 * FILL_SECONDS;
        text + &format!("{runs} runs (a warm-up and {} rounds), about {:.0} minutes\n", self.rounds, seconds / 60.0)
    }

    /// Plays it.
    pub fn play(&self, root: &Path) -> Result<Results, Trouble> {
        field::build(root)?;
        let mut results = Results::default();
        for stage in [Stage::Memory, Stage::Disk] {
            let cells: Vec<usize> = (0..self.cells.len()).filter(|at| self.cells[*at].stage == stage).collect();
            if !cells.is_empty() {
                self.play_stage(stage, &cells, root, &mut results)?;
            }
        }
        Ok(results)
    }

    fn play_stage(&self, stage: Stage, cells: &[usize], root: &Path, results: &mut Results) -> Result<(), Trouble> {
        let mut lab = Lab::new()?;
        field::make_certificate(&lab)?;
        let origin = Origin::start(&mut lab)?;
        let contestants = self.start_all(stage, cells, root, &mut lab, &origin, results);
        self.prepare(cells, &contestants, &lab, &origin, results);
        for round in 0..=self.rounds {
            for at in cells {
                let mut order: Vec<&Contestant> = contestants.iter().filter(|c| results.plays(*at, c.kind)).collect();
                turn(&mut order, round);
                for contestant in order {
                    let load = self.cells[*at].load(contestant, origin.port);
                    let seed = seed(round, *at, contestant.kind);
                    let sample = load.sample(&lab, contestant.id, origin.id, self.seconds, seed);
                    contestant.empty_log();
                    // The first one warms up.
                    if round > 0 {
                        results.keep(*at, contestant.kind, sample);
                    }
                }
            }
            println!("{} round {round} of {}", if round == 0 { "warm-up," } else { "played" }, self.rounds);
        }
        for (at, contestant) in pairs(cells, &contestants) {
            if results.plays(at, contestant.kind) {
                let proof = proof::prove(&self.cells[at], contestant, &lab, origin.port);
                results.check_again(at, contestant.kind, proof);
            }
        }
        Ok(())
    }

    fn start_all(
        &self,
        stage: Stage,
        cells: &[usize],
        root: &Path,
        lab: &mut Lab,
        origin: &Origin,
        results: &mut Results,
    ) -> Vec<Contestant> {
        let mut kinds: Vec<Kind> = cells.iter().flat_map(|at| self.cells[*at].field).copied().collect();
        kinds.sort();
        kinds.dedup();
        let mut contestants = Vec::new();
        for kind in kinds {
            match Contestant::start(kind, stage, root, lab, origin.port, self.before.as_deref()) {
                Ok(contestant) => {
                    results.versions.insert(kind, contestant.version.clone());
                    contestants.push(contestant);
                }
                Err(trouble) => {
                    println!("{} does not start: {trouble}", kind.as_str());
                    results.absent.push((kind, trouble));
                }
            }
        }
        contestants
    }

    /// Puts the objects there and proves every cell at every contestant.
    fn prepare(&self, cells: &[usize], contestants: &[Contestant], lab: &Lab, origin: &Origin, results: &mut Results) {
        for (at, contestant) in pairs(cells, contestants) {
            let cell = &self.cells[at];
            if !cell.field.contains(&contestant.kind) {
                continue;
            }
            let hosts = (cell.key == "zipf").then_some(super::cells::ZIPF.2);
            let filled = cell
                .objects()
                .map_or(Ok(()), |(folder, count)| proof::fill(contestant.doors.plain, folder, count, hosts));
            let proof = filled.and_then(|()| proof::prove(cell, contestant, lab, origin.port));
            println!("{:12} {:14} {}", cell.key, contestant.kind.as_str(), said(&proof));
            results.proofs.insert((at, contestant.kind), proof);
        }
    }
}

/// Seconds that a run takes beyond its load, and that filling a set takes.
const RUN_EXTRA_SECONDS: f64 = 0.25;
const FILL_SECONDS: f64 = 8.0;

impl Results {
    fn plays(&self, cell: usize, kind: Kind) -> bool {
        matches!(self.proofs.get(&(cell, kind)), Some(Ok(_)))
    }

    fn keep(&mut self, cell: usize, kind: Kind, sample: Result<Sample, Trouble>) {
        if let Err(trouble) = &sample {
            println!("{}: {trouble}", kind.as_str());
        }
        self.samples.entry((cell, kind)).or_default().push(sample.ok());
    }

    /// A proof that fails after the rounds spoils them.
    fn check_again(&mut self, cell: usize, kind: Kind, proof: Result<String, Trouble>) {
        if let Err(trouble) = proof {
            let trouble = format!("after the rounds: {trouble}");
            println!("{}: {trouble}", kind.as_str());
            self.proofs.insert((cell, kind), Err(trouble));
            self.samples.remove(&(cell, kind));
        }
    }
}

impl Origin {
    /// A lab with its certificate, and an origin in it.
    pub fn in_a_new_lab() -> Result<(Lab, Origin), Trouble> {
        let mut lab = Lab::new()?;
        field::make_certificate(&lab)?;
        let origin = Origin::start(&mut lab)?;
        Ok((lab, origin))
    }

    /// nginx on core 1 with the bodies of the cells.
    pub fn start(lab: &mut Lab) -> Result<Origin, Trouble> {
        for (path, body) in proof::contents() {
            lab.write(&format!("origin/root{path}"), body)?;
        }
        let port = lab::free_port()?;
        let root = lab.path().join("origin/root");
        let fill = [("port", port.to_string()), ("root", root.display().to_string())];
        let conf = lab::configuration(lab, "origin", include_str!("../../peers/bench-origin.conf"), &fill)?;
        let id = lab.start("origin", field::on_core(1, "nginx")?.arg("-c").arg(conf), port)?;
        Ok(Origin { id, port })
    }
}

fn pairs<'a>(cells: &'a [usize], contestants: &'a [Contestant]) -> impl Iterator<Item = (usize, &'a Contestant)> {
    cells.iter().flat_map(move |at| contestants.iter().map(move |contestant| (*at, contestant)))
}

/// Another one begins each round, and every second round goes backwards.
pub fn turn<T>(order: &mut [T], round: usize) {
    if order.is_empty() {
        return;
    }
    order.rotate_left(round % order.len());
    if round % 2 == 1 {
        order.reverse();
    }
}

/// The samples of each cell at each server.
pub type Played<S> = BTreeMap<(usize, S), Vec<Option<Sample>>>;

/// Plays cells at servers that run already, each idle while another one has its turn. The first round warms up, and fills the
/// stores.
pub fn play_cells<R, S: Ord>(
    name: &str,
    rounds: usize,
    cells: usize,
    running: &[R],
    server: impl Fn(&R) -> S,
    sample: impl Fn(usize, &R, u64) -> Result<Sample, Trouble>,
) -> Result<Played<S>, Trouble> {
    let mut samples = Played::new();
    for round in 0..=rounds {
        for cell in 0..cells {
            let mut order: Vec<&R> = running.iter().collect();
            turn(&mut order, round);
            for each in order {
                let sample = sample(cell, each, round as u64)?;
                if round > 0 {
                    samples.entry((cell, server(each))).or_insert_with(Vec::new).push(Some(sample));
                }
            }
        }
        println!("{name}, round {round} of {rounds}");
    }
    Ok(samples)
}

/// No two runs of a process draw the same addresses, nor two of this command within a cache's life.
fn seed(round: usize, cell: usize, kind: Kind) -> u64 {
    let process = u64::from(std::process::id()) << 24;
    process | (round as u64) << 16 | (cell as u64) << 8 | kind as u64
}

fn said(proof: &Result<String, Trouble>) -> String {
    proof.clone().unwrap_or_else(|trouble| format!("does not play: {trouble}"))
}

/// Programs that runs need, beside those that are compared.
pub fn need_tools() -> Result<(), Trouble> {
    for tool in ["wrk", "ab", "taskset", "chrt", "nginx", "curl", "openssl"] {
        shell::need_program(tool)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_turn_in_each_round() {
        for round in 0..5 {
            let mut order = vec![0, 1, 2, 3];
            turn(&mut order, round);
            order.sort();
            assert_eq!(order, [0, 1, 2, 3]);
        }
    }

    #[test]
    fn an_unknown_cell_is_named_with_the_known_ones() {
        let trouble = Plan::of(&["hit-601".into()], None, 1, 1).unwrap_err();
        assert!(trouble.contains("hit-601") && trouble.contains("hit-600"), "{trouble}");
        let plan = Plan::of(&["hit-600".into()], Some(&[Kind::Limit]), 7, 1).unwrap();
        assert!(plan.said().contains("limit") && !plan.said().contains("nginx"));
    }
}
