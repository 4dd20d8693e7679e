//! `cacheoff proof`: a workload is played without a proxy and through caches, each time with a seed of its own, and one
//! table says what was declared, what follows from it and what was measured. Published tables are made with this
//! command.

mod spread;

use crate::contest::{Discipline, EntrySpec, Event, Heat, Plan, Players, Post, contest};
use crate::engine::Partner;
use crate::ledger::{Class, Ledger, MissCause, Mode, Outcome, Target, Trouble};
use crate::robot::Route;
use crate::run::command::{facts, heat, read};
use crate::run::{Row, Wanted, derive, logged, route, rows};
use crate::stop;
use crate::workload::Workload;
use larder_wire::date::{Stamp, format_date};
use spread::{ALARMS, Bounds, Rehearsed, SEEDS, Spread, by_formula, each};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Hits may be missing without a known cause in so many of a hundred replies.
const POINTS_MAX: f64 = 1.0;
/// So far, in points or as a share of it, a figure may be from what the same seed draws in a rehearsal.
const OWN_MAX: (f64, f64) = (1.0, 0.05);
/// So far the mean of many rehearsals may be from the ideal, beside chance: pages that a robot repeats to itself slow it
/// down, which the formulas leave out.
const LAW_MAX: (f64, f64) = (1.0, 0.02);
/// Clocks and the ends of phases move a figure that no chance spreads by this share.
const EXACT_MAX: f64 = 0.005;
/// A miss may differ from think time and link by this share.
const MISS_SHARE_MAX: f64 = 0.05;
/// Seconds of think time and links beside which the time that a cache itself takes is little.
const DELAY_S_MIN: f64 = 0.05;

/// Proves that the referee plays what a workload declares.
#[derive(clap::Args, Debug)]
pub struct ProofArgs {
    /// The workload, as the contest writes it
    #[arg(default_value = "polymix-2")]
    workload: String,
    /// Caches that it is played through as well
    #[arg(long, value_delimiter = ',', default_value = "squid,nginx")]
    entries: Vec<String>,
    /// Requests per second at peak
    #[arg(long, default_value_t = 200.0)]
    peak: f64,
    /// How the caches are asked: forward or reverse, where they can be
    #[arg(long, default_value = "forward")]
    mode: String,
    /// Phases are so many times as long
    #[arg(long, default_value_t = 0.002)]
    scale: f64,
    /// Seed of the first run, the next ones follow it; the clock gives one if nothing is said
    #[arg(long)]
    seed: Option<u64>,
    /// Budget of the caches in MB of memory
    #[arg(long, default_value_t = 1_024)]
    memory_mb: u64,
    /// Cores of the caches
    #[arg(long, value_delimiter = ',', default_value = "0")]
    cache_cores: Vec<usize>,
    /// Cores of the referee
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
    /// Port of the caches; 0 takes a free one
    #[arg(long, default_value_t = 24_128)]
    port: u16,
    /// Port of the origins; 0 takes a free one
    #[arg(long, default_value_t = 24_180)]
    origin_port: u16,
    /// Folder for the ledgers
    #[arg(long, default_value = "proof")]
    folder: PathBuf,
    /// Write the table into this file too
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl ProofArgs {
    /// Plays everything, prints the table; it fails if one of the figures does not hold.
    pub fn run(mut self) -> Result<ExitCode, String> {
        // Caches and robots are told the ports before anything listens there.
        for port in [&mut self.port, &mut self.origin_port] {
            *port = free_unless_named(*port)?;
        }
        self.prove()
    }

    fn prove(&self) -> Result<ExitCode, String> {
        let discipline = Discipline::parse(&self.workload)?;
        let mut seed = self.seed.unwrap_or_else(seed_of_now);
        let mut play = |one: &Heat<'_>| {
            eprintln!("proof: {}, seed {seed}", one.label);
            seed += 1;
            heat(one, Some(self.peak), self.scale, seed - 1, &self.cores)
        };
        std::fs::create_dir_all(&self.folder)
            .map_err(|error| format!("the folder {} cannot be made: {error}", self.folder.display()))?;
        let mut ledgers = vec![play(&self.bare(&discipline))?];
        let plan = self.plan(&discipline)?;
        let facts = |discipline: &Discipline| facts(discipline, Some(self.peak), self.scale);
        let mut kill = |_: &Discipline, _: &EntrySpec, _: &Post, _: u32| Ledger::default();
        let mut tell = |event: Event<'_>| {
            if let Event::Failed { label, reason } = event {
                eprintln!("proof: {label} failed: {reason}");
            }
        };
        if !plan.entries.is_empty() {
            let mut players = Players { play: &mut play, kill: &mut kill, facts: &facts };
            ledgers.extend(contest(&plan, &mut players, &mut tell)?);
        }
        if stop::is_asked() {
            return Err(format!("stopped: nothing is proven of {}", discipline.title()));
        }
        let (text, holds) = self.table(&discipline, &ledgers)?;
        println!("{text}");
        if let Some(file) = &self.out {
            std::fs::write(file, &text).map_err(|error| format!("{} cannot be written: {error}", file.display()))?;
        }
        Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The run without a proxy.
    fn bare<'a>(&self, discipline: &'a Discipline) -> Heat<'a> {
        Heat {
            discipline,
            round: 1,
            repeats: Vec::new(),
            label: "no proxy",
            target: Target { mode: Mode::NoProxy, ..Target::default() },
            address: self.origin(),
            origin: self.origin(),
            pid: None,
            purge: None,
            ledger: self.folder.join("no-proxy.ledger"),
            // A fill lasts as long without a cache.
            cache_bytes: Some(self.memory_mb << 20),
            price: None,
            watts: None,
            processes: None,
            authority: None,
        }
    }

    fn origin(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.origin_port))
    }

    fn plan(&self, discipline: &Discipline) -> Result<Plan, String> {
        Ok(Plan {
            entries: EntrySpec::chosen(&self.entries, &[])?,
            disciplines: vec![discipline.clone()],
            rounds: 1,
            post: Post {
                mode: self.mode.clone(),
                store: "memory".to_owned(),
                port: self.port,
                origin: self.origin(),
                memory_mb: self.memory_mb,
                disk_mb: self.memory_mb,
                cores: self.cache_cores.clone(),
                servers: crate::contest::Servers::default(),
                listener: crate::ledger::Listener::Http,
            },
            any_mode: true,
            folder: self.folder.clone(),
            time_max: None,
        })
    }

    fn table(&self, discipline: &Discipline, ledgers: &[Ledger]) -> Result<(String, bool), String> {
        let scale = discipline.scale.unwrap_or(self.scale);
        let workload = read(discipline, scale)?.workload;
        let route: Route = route(None, None, self.origin_port);
        let wanted = Wanted {
            peak: discipline.peak.or(Some(self.peak)),
            seed: 1,
            epoch: 0,
            route,
            workers: self.cores.len().max(1) as u16,
            cache_bytes: Some(self.memory_mb << 20),
            log: None,
            tls: None,
        };
        let (settings, _) = derive(&workload, &wanted)?;
        let rehearsed = Rehearsed { workload: &workload, wanted };
        let chances = Chances::of(&rehearsed, ledgers)?;
        let all: Vec<Vec<Row>> = ledgers.iter().map(|ledger| rows(ledger, &workload, &settings)).collect();
        let mut holds = ledgers.iter().all(|ledger| ledger.end.outcome == Outcome::Complete);
        let mut text = self.heading(discipline, ledgers);
        holds &= chances.table(ledgers, &all, &mut text);
        for ledger in ledgers.iter().filter(|ledger| ledger.run.target.mode != Mode::NoProxy) {
            holds &= through(ledger, &workload, &mut text);
        }
        Ok((text, holds))
    }

    fn heading(&self, discipline: &Discipline, ledgers: &[Ledger]) -> String {
        let first = &ledgers[0].run;
        let day = format_date(Stamp(first.started_unix));
        let day = String::from_utf8_lossy(&day[5..16]).into_owned();
        let products: Vec<String> = ledgers
            .iter()
            .map(|ledger| format!("{} seed {} {}", ledger.run.label, ledger.run.seed, ledger.run.target.product))
            .map(|text| text.trim_end().to_owned())
            .collect();
        let scale = discipline.scale.unwrap_or(self.scale);
        let machine = &first.machine;
        format!(
            "# {}: declared, ideal, measured, {day}\n\nMade by `cacheoff proof {} --peak {} --scale {scale}`; {}.\n\
             Machine: {} cores of {}, {}{}. Over all logged phases.\n\n",
            discipline.title(),
            self.workload,
            discipline.peak.unwrap_or(self.peak),
            products.join("; "),
            machine.cores,
            machine.processor,
            machine.kernel,
            if machine.virtual_machine { ", virtual" } else { "" },
        )
    }
}

/// Ports that systems give to nobody by themselves: one of those that they give may be taken by any connection meanwhile.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// This port, or in place of 0 one at which nobody listens, on any address.
fn free_unless_named(port: u16) -> Result<u16, String> {
    if port != 0 {
        return Ok(port);
    }
    let first = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_micros());
    let count = u32::from(PORTS.end - PORTS.start);
    let mut ports = (0..count).map(|step| PORTS.start + (first.wrapping_add(step) % count) as u16);
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok();
    ports.find(is_free).ok_or_else(|| format!("no port of {} to {} is free: name one", PORTS.start, PORTS.end))
}

/// The spread of the figures by chance.
struct Chances {
    /// Over many seeds, of what is drawn; empty if nothing was rehearsed.
    drawn: BTreeMap<String, Spread>,
    /// Of each run: the spread of the figures that are counted.
    counted: Vec<BTreeMap<String, Spread>>,
    /// The figures that the seed of each run gives; empty if replies decide what is asked.
    own: Vec<Vec<Row>>,
}

impl Chances {
    fn of(rehearsed: &Rehearsed<'_>, ledgers: &[Ledger]) -> Result<Self, String> {
        let (mut counted, mut own) = (Vec::new(), Vec::new());
        if !rehearsed.is_possible()? {
            return Ok(Self { drawn: BTreeMap::new(), counted, own });
        }
        let mut known: BTreeMap<Partner, BTreeMap<String, Spread>> = BTreeMap::new();
        for ledger in ledgers {
            let partner = match ledger.run.target.mode {
                Mode::NoProxy => Partner::Origins,
                Mode::Forward | Mode::Reverse | Mode::Pages => Partner::Cache,
            };
            let spreads = match known.entry(partner) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => place.insert(rehearsed.spreads(partner)?),
            };
            counted.push(spreads.clone());
            if rehearsed.is_its_seed() {
                own.push(rehearsed.once(ledger.run.seed, partner)?);
            }
        }
        Ok(Self { drawn: rehearsed.spreads(rehearsed.nobody())?, counted, own })
    }

    /// Writes the table and what it means; says whether all of it holds.
    fn table(&self, ledgers: &[Ledger], all: &[Vec<Row>], text: &mut String) -> bool {
        let names: Vec<&str> = ledgers.iter().map(|ledger| ledger.run.label.as_str()).collect();
        let _ = writeln!(text, "| what | declared | ideal | drawn | {} |", names.join(" | "));
        let _ = writeln!(text, "|---|---|---|---|{}", "---|".repeat(names.len()));
        let outside = each(all.iter().map(Vec::len).sum());
        let mut holds = true;
        // A run that got no reply to a kind of request lacks the rows about it.
        for row in all.iter().max_by_key(|rows| rows.len()).into_iter().flatten() {
            let _ = write!(text, "| {} | {:.2} {} | {:.2} {} |", row.what, row.declared, row.unit, row.ideal, row.unit);
            match self.drawn.get(&row.what) {
                Some(spread) => {
                    let is_law = is_law(row, spread, outside);
                    holds &= is_law;
                    let _ = write!(text, " {:.2}{} |", spread.mean(), mark(is_law));
                }
                None => text.push_str(" |"),
            }
            for (run, rows) in all.iter().enumerate() {
                match rows.iter().find(|other| other.what == row.what) {
                    Some(row) => holds &= self.cell(run, row, outside, text),
                    None => {
                        text.push_str(" **not measured** |");
                        holds = false;
                    }
                }
            }
            text.push('\n');
        }
        text.push_str(&self.meaning());
        holds
    }

    fn cell(&self, run: usize, row: &Row, outside: f64, text: &mut String) -> bool {
        let spread = self.counted.get(run).and_then(|spreads| spreads.get(&row.what));
        let Bounds { low, high } = spread.map_or_else(|| by_formula(row, outside), |spread| spread.bounds(outside));
        let exact = spread.is_some_and(|spread| row.unit != "%" && is_near(row.measured, spread.mean()));
        let within = exact || Bounds { low, high }.hold(row.measured);
        let _ = write!(text, " {:.2}{} in {low:.2} to {high:.2}", row.measured, mark(within));
        let own = self.own.get(run).and_then(|rows| rows.iter().find(|own| own.what == row.what));
        let is_own = own.is_none_or(|own| is_own(own, row.measured));
        if let Some(own) = own {
            let _ = write!(text, ", its seed {:.2}{}", own.measured, mark(is_own));
        }
        text.push_str(" |");
        within && is_own
    }

    fn meaning(&self) -> String {
        let all = format!(
            "\nThe intervals are so wide that in {:.0} % of proofs not one figure of the whole table lies outside its own, if \
             nothing is wrong (Bonferroni).",
            100.0 * (1.0 - ALARMS)
        );
        if self.drawn.is_empty() {
            return all + " They are by formula: the workload was not rehearsed.\n";
        }
        let ((own_points, own_share), (law_points, law_share)) = (OWN_MAX, LAW_MAX);
        let own = match self.own.is_empty() {
            true => "Replies decide when robots ask or when phases end, so that no run is held against its own seed."
                .to_owned(),
            false => format!(
                "\"Its seed\" is a rehearsal with the seed of the run: at most {own_points} point or {:.0} % from it.",
                100.0 * own_share
            ),
        };
        format!(
            "{all} They are those of {SEEDS} rehearsals with other seeds: the same robots without a network, whose replies take \
             think time and link, or, through a cache, nothing if an ideal one has them. {own} \"Drawn\" is the mean of {SEEDS} \
             rehearsals that nothing delays: at most {law_points} point or {:.0} % from the ideal, beside chance.\n",
            100.0 * law_share,
        )
    }
}

fn mark(holds: bool) -> &'static str {
    if holds { "" } else { " **outside**" }
}

/// Whether a figure that no chance spreads, such as a constant rate, is as measured.
fn is_near(measured: f64, exact: f64) -> bool {
    (measured - exact).abs() <= EXACT_MAX * exact.abs()
}

/// So many points of a percentage, or a share of any other figure.
fn allowed(row: &Row, (points, share): (f64, f64)) -> f64 {
    if row.unit == "%" { points } else { share * row.ideal }
}

/// Whether what was measured is what its seed gives.
fn is_own(own: &Row, measured: f64) -> bool {
    (measured - own.measured).abs() <= allowed(own, OWN_MAX)
}

/// Whether seeds draw what is declared, on the average.
fn is_law(row: &Row, drawn: &Spread, outside: f64) -> bool {
    let Bounds { low, high } = drawn.bounds_of_mean(outside);
    let around = allowed(row, LAW_MAX);
    (low - around..=high + around).contains(&row.ideal)
}

fn seed_of_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs())
}

/// Hits and misses through a cache, and whether they are what they should be.
fn through(ledger: &Ledger, workload: &Workload, text: &mut String) -> bool {
    let (whole, _) = logged(ledger);
    let basic = whole.class(Class::Basic);
    let of = |part: u64| 100.0 * part as f64 / basic.replies.max(1) as f64;
    let unknown = |cause: &MissCause| matches!(cause, MissCause::Evicted | MissCause::Unknown);
    let classed: u64 = whole.missing.iter().filter(|(cause, _)| !unknown(cause)).map(|(_, count)| count).sum();
    let causes: Vec<String> =
        whole.missing.iter().map(|(cause, count)| format!("{count} {}", cause.as_str())).collect();
    let (offered, hits, classed) = (of(basic.offered), of(basic.hits), of(classed));
    let gap = offered - hits - classed;
    let think = whole.origin.think.mean().unwrap_or(0.0) / 1e6;
    let links = whole.service.alone_links.mean().unwrap_or(0.0) / 1e6;
    let served = whole.origin.service.mean().unwrap_or(0.0) / 1e6 + links;
    let miss = whole.service.alone.mean().unwrap_or(0.0) / 1e6;
    // Robots that wait for their replies ask as fast as the cache can: then a miss waits for others.
    let delayed = workload.robots.pace.rate_per_s().is_some() && served > DELAY_S_MIN;
    let share = miss / served.max(1e-9) - 1.0;
    let (hits_hold, misses_hold) = (gap.abs() <= POINTS_MAX, !delayed || share.abs() <= MISS_SHARE_MAX);
    let compared = match delayed {
        true => format!("{:+.2} %, {}", 100.0 * share, if misses_hold { "holds" } else { "**does not hold**" }),
        false => "not compared: no time is modelled, or replies pace the robots".to_owned(),
    };
    let word = |holds: bool| if holds { "holds" } else { "**does not hold**" };
    let lies = whole.errors.lies();
    let errors: Vec<String> = Trouble::ALL
        .iter()
        .filter(|trouble| whole.errors.of(**trouble) > 0)
        .map(|trouble| format!("{} {}", whole.errors.of(*trouble), trouble.as_str()))
        .collect();
    let listed = |all: Vec<String>| if all.is_empty() { "none".to_owned() } else { all.join(", ") };
    let _ = write!(
        text,
        "\n## Through {}\n\n| what | figure |\n|---|---|\n\
         | replies to basic requests | {} |\n| offered hits | {offered:.2} % |\n| hits | {hits:.2} % |\n\
         | missing hits by cause | {} |\n| offered less hits and classed ones (at most {POINTS_MAX} point) | {gap:.2} points, {} |\n\
         | think time, mean | {think:.3} s |\n| think time and links, mean, at the origins and to the robots | {served:.3} s |\n\
         | miss that nobody else was asking for, mean, from its first byte sent | {miss:.3} s |\n\
         | miss against think time and links (at most {:.0} %) | {compared} |\n| median of hits | {} µs |\n\
         | wrong answers | {lies} |\n| errors | {} |\n",
        ledger.run.label,
        basic.replies,
        listed(causes),
        word(hits_hold),
        100.0 * MISS_SHARE_MAX,
        whole.service.hit.quantile(0.5).unwrap_or(0),
        listed(errors),
    );
    hits_hold && misses_hold && lies == 0
}

#[cfg(test)]
mod tests;
