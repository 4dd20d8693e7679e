//! `cacheoff contest`.

use super::bench::{BenchArgs, Budget, no_twins};
use super::{Discipline, EntrySpec, Event, Plan, Players, Post, Servers, contest};
use crate::workload::PageKind;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// The disciplines that the project publishes. Five entries take about 40 minutes: 7 for `hammer`, 2 for `tree`, 20 for
/// PolyMix-2, 10 for the kill.
const STANDARD: [&str; 4] =
    ["hammer:rounds=3", "tree:rounds=5", "polymix-2:peak=300:scale=0.002:rounds=2", "kill:rounds=2"];

/// Entries of a contest that names none.
const ENTRIES: [&str; 5] = ["larder", "squid", "nginx", "varnish", "trafficserver"];

/// Plays workloads against several caches in alternation and reports them side by side.
#[derive(clap::Args, Debug)]
pub struct ContestArgs {
    /// Entries, and the machine that they share with the referee
    #[command(flatten)]
    bench: BenchArgs,
    /// How servers that make pages are started
    #[command(flatten)]
    servers: Servers,
    /// Tunings of the entries that have several: expert, stock (as the product is shipped), or both beside each other;
    /// one entry alone is named with its tuning, such as squid/stock
    #[arg(long, default_value = "expert", value_parser = ["expert", "stock", "both"])]
    tuning: String,
    /// A cache that runs already
    #[arg(long, value_name = "NAME=ADDR:PORT")]
    ask: Vec<String>,
    /// Workloads by name or file, each with what differs: hammer:variant=16kb:rounds=2, polymix-2:peak=100:scale=0.002,
    /// tree:store=disk:robot.count=2, replay:log=access.log; `kill` kills a cache with a disk
    /// store, `power-cut` cuts the power of its device (power-cut:load_s=30:objects=500); `page` and `board` ask servers that make
    /// pages, such as granian and nginx-php
    #[arg(long, value_delimiter = ',', default_value = "hammer")]
    workload: Vec<String>,
    /// Play what the project publishes, in less than 45 minutes: hammer, tree, PolyMix-2 and the kill
    #[arg(long, conflicts_with = "workload")]
    standard: bool,
    /// Rounds of each workload that does not say
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// How entries are asked: forward, reverse, or as the workload was meant (PolyMix forward, others reverse), and in
    /// the other way where an entry knows nothing else
    #[arg(long, default_value = "any", value_parser = ["forward", "reverse", "any"])]
    mode: String,
    /// Store of the entries
    #[arg(long, default_value = "memory", value_parser = ["memory", "disk", "pass"])]
    store: String,
    /// No play begins after this many minutes
    #[arg(long, value_name = "MINUTES")]
    time_max: Option<u64>,
}

impl ContestArgs {
    /// Plays everything and gives the report.
    pub fn run(
        &self,
        players: &mut Players<'_>,
        check: &dyn Fn(&Discipline) -> Result<(), String>,
    ) -> Result<ExitCode, String> {
        let plan = self.plan()?;
        // A wrong flag is refused now, not when the plays are over.
        self.bench.outputs.check()?;
        plan.disciplines.iter().try_for_each(check)?;
        let ledgers = contest(&plan, players, &mut tell)?;
        self.bench.outputs.give(&ledgers)
    }

    /// Cores that are left to the referee.
    pub fn own_cores(&self) -> Vec<usize> {
        self.bench.own_cores()
    }

    /// The plan of the contest, in full.
    pub fn plan(&self) -> Result<Plan, String> {
        let disciplines = self.disciplines()?;
        let servers: Vec<&str> = EntrySpec::server_names().collect();
        let usual = if disciplines.iter().all(Discipline::asks_for_pages) { &servers[..] } else { &ENTRIES };
        let builtin = self.bench.names(usual).into_iter();
        let builtin = builtin.map(|name| Ok((EntrySpec::builtin(&name)?, name.contains('/'))));
        let own = self.bench.folders().iter().map(|folder| Ok((EntrySpec::folder(folder)?, false)));
        let started = builtin.chain(own).map(|spec: Result<_, String>| {
            let (spec, is_chosen) = spec?;
            if is_chosen { Ok(vec![spec]) } else { self.tunings(&spec) }
        });
        let started = started.collect::<Result<Vec<_>, String>>()?.concat();
        let asked = self.ask.iter().map(|given| {
            let (name, address) =
                given.split_once('=').ok_or_else(|| format!("--ask {given}: write NAME=ADDR:PORT"))?;
            Ok(EntrySpec::address(name, address))
        });
        let entries: Vec<EntrySpec> = started.into_iter().map(Ok).chain(asked).collect::<Result<_, String>>()?;
        no_twins(&entries)?;
        if entries.is_empty() {
            return Err("no entries: give --entries, --entry or --ask".to_owned());
        }
        refuse_strangers(&entries, &disciplines)?;
        let post = self.bench.post(if self.mode == "any" { "reverse" } else { &self.mode }, &self.store, Budget::USUAL);
        Ok(Plan {
            entries,
            disciplines,
            rounds: self.rounds.max(1),
            post: Post { servers: self.servers.clone(), ..post },
            any_mode: self.mode == "any",
            folder: self.bench.folder().map_or_else(|| "contest".into(), Path::to_owned),
            time_max: self.time_max.map(|minutes| Duration::from_secs(minutes * 60)),
        })
    }

    /// The entry with each wanted tuning; one that has a single tuning plays with it.
    fn tunings(&self, spec: &EntrySpec) -> Result<Vec<EntrySpec>, String> {
        let known = spec.tunings();
        let wanted = ["expert", "stock"].into_iter().filter(|word| self.tuning == *word || self.tuning == "both");
        let wanted: Vec<&str> = wanted.filter(|word| known.iter().any(|each| each == word)).collect();
        match wanted.is_empty() {
            true => Ok(vec![spec.clone()]),
            false => wanted.into_iter().map(|word| spec.tuned(word)).collect(),
        }
    }

    fn disciplines(&self) -> Result<Vec<Discipline>, String> {
        let found = self.words().into_iter().map(|text| Ok(Discipline::parse(&text)?.spread()));
        Ok(found.collect::<Result<Vec<_>, String>>()?.concat())
    }

    fn words(&self) -> Vec<String> {
        match self.standard {
            true => STANDARD.map(str::to_owned).to_vec(),
            false => self.workload.clone(),
        }
    }
}

/// Refuses a cache where pages are asked for, and a server that makes pages where a cache is.
fn refuse_strangers(entries: &[EntrySpec], disciplines: &[Discipline]) -> Result<(), String> {
    for discipline in disciplines {
        for spec in entries {
            let (asks, makes) = (discipline.asks_for_pages(), spec.makes_pages());
            let mode = if asks { Post::PAGES } else { discipline.usual_mode() };
            let is_server_alone = makes && spec.mode.len() == 1;
            if asks != makes && (asks || is_server_alone) {
                let reason = spec.can(mode, "memory").err().unwrap_or_default();
                return Err(format!("workload {}: {reason}", discipline.workload));
            }
            let asks_board = discipline.pages().is_some_and(|workload| workload.asks == PageKind::Board);
            if asks_board && spec.program.is_empty() {
                return Err(format!(
                    "workload {}: {} runs already, and each play begins with a new database; ask it for page, or write an entry that is started",
                    discipline.workload, spec.name
                ));
            }
        }
    }
    Ok(())
}

fn tell(event: Event<'_>) {
    match event {
        Event::Begins { label, workload, round } => eprintln!("contest: {label}, {workload}, round {round}"),
        Event::Failed { label, reason } => eprintln!("contest: {label} failed: {reason}"),
        Event::Repeated { label, reason } => eprintln!("contest: {label} plays this round again: {reason}"),
        Event::Stopped => eprintln!("contest: stopped, the rounds that are left are not played"),
        Event::TimeIsOver => eprintln!("contest: time is over, the rounds that are left are not played"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Whole {
        #[command(flatten)]
        contest: ContestArgs,
    }

    fn plan_of(words: &[&str]) -> Result<Plan, String> {
        Whole::try_parse_from([&["contest"], words].concat()).map_err(|error| error.to_string())?.contest.plan()
    }

    #[test]
    fn words_become_a_plan() {
        let plan =
            plan_of(&["--entries", "ats,squid", "--ask", "mine=127.0.0.1:1", "--cache-cores", "0", "--rounds", "0"])
                .unwrap();
        let names: Vec<&str> = plan.entries.iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(names, ["trafficserver", "squid", "mine"]);
        assert_eq!((plan.rounds, plan.post.cores, plan.any_mode), (1, vec![0], true));
    }

    #[test]
    fn pages_are_asked_of_all_servers_if_none_is_named_and_of_one_that_runs_already() {
        let plan = plan_of(&["--workload", "page,board", "--processes", "3"]).unwrap();
        let names: Vec<&str> = plan.entries.iter().map(|spec| spec.name.as_str()).collect();
        assert!(names.len() > 8 && names[0] == "larder-wsgi" && !names.contains(&"squid"), "{names:?}");
        let titles: Vec<String> = plan.disciplines.iter().map(Discipline::title).collect();
        assert_eq!((titles.len(), titles[4].as_str(), plan.post.servers.processes), (5, "board (15-kept)", 3));
        let asked = plan_of(&["--entries", "", "--ask", "mine=127.0.0.1:1", "--workload", "page"]).unwrap();
        assert_eq!(asked.entries[0].name, "mine");
    }

    #[test]
    fn tunings_stand_beside_each_other() {
        let names = |words: &[&str]| -> Vec<String> {
            plan_of(words).unwrap().entries.iter().map(|spec| spec.name.clone()).collect()
        };
        assert_eq!(names(&["--entries", "larder,squid", "--tuning", "both"]), ["larder", "squid", "squid/stock"]);
        assert_eq!(names(&["--entries", "larder,squid", "--tuning", "stock"]), ["larder", "squid/stock"]);
        assert_eq!(names(&["--entries", "nginx/stock,nginx"]), ["nginx/stock", "nginx"]);
    }

    #[test]
    fn the_standard_contest_is_four_disciplines() {
        let names: Vec<String> = plan_of(&["--standard"]).unwrap().disciplines.iter().map(Discipline::title).collect();
        assert_eq!(names, ["hammer", "tree", "polymix-2", "kill"]);
    }

    #[test]
    fn nonsense_is_refused() {
        for (words, reason) in [
            (&["--entries", "polipo"][..], "unknown entry"),
            (&["--entries", "squid,squid"], "two entries are called"),
            (&["--entries", ""], "no entries"),
            (&["--ask", "x"], "write NAME=ADDR:PORT"),
            (&["--entry", "/nowhere"], "cannot be read"),
            (&["--entries", "squid", "--workload", "page"], "workload page: squid makes no pages"),
            (&["--entries", "granian"], "workload hammer: granian makes pages and is no cache"),
            (&["--entries", "squid,puma", "--workload", "tree"], "workload tree: puma makes pages"),
            (&["--processes", "0"], "invalid value"),
            (&["--entries", "", "--ask", "mine=127.0.0.1:1", "--workload", "board"], "begins with a new database"),
            (&["--mode", "sideways"], "invalid value"),
        ] {
            let error = plan_of(words).err().unwrap();
            assert!(error.contains(reason), "{words:?}: {error}");
        }
    }
}
