//! Cacheoff on several machines, tried in network namespaces: four agents with robots and origins around a cache of the
//! workspace, over links of 20 ms and 0.1 % loss, measure what one agent in place of them does, and a process on loopback whose
//! links are modelled stands beside them; an agent that is killed is named; a clock that is 5 ms ahead is refused. Links are
//! shaped by the kernel where it has netem, else by a switch in user space.

mod switch;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use self::switch::Switch;
use crate::shell::{self, Trouble};

/// How long, and with which programs.
#[derive(clap::Args)]
pub struct Args {
    /// Seconds of each run.
    #[arg(long, default_value_t = 30)]
    seconds: u32,
    /// Seeds of the runs of each kind, whose spread is the interval.
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// A `cacheoff` instead of that of this workspace.
    #[arg(long)]
    cacheoff: Option<PathBuf>,
    /// A `larder` instead of that of this workspace.
    #[arg(long)]
    larder: Option<PathBuf>,
    /// Where the figures are written, as Markdown.
    #[arg(long)]
    write: Option<PathBuf>,
}

/// Agents.
const AGENTS: u8 = 4;
/// The last number of the cache's address, and of the coordinator's.
const CACHE: u8 = 8;
const LEAD: u8 = 9;
/// Each end of a link does this to the packets that it sends.
const SHAPE: [&str; 5] = ["netem", "delay", "20ms", "loss", "0.1%"];
/// Student's t for an interval of 95 %, by the number of seeds, from two on.
const T: [f64; 9] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26];

/// Plays all of it.
pub fn run(args: &Args) -> Result<(), Trouble> {
    if !rustix::process::geteuid().is_root() {
        println!("left out: network namespaces need root");
        return Ok(());
    }
    for program in ["ip", "tc"] {
        shell::need_program(program)?;
    }
    if !(2..=10).contains(&args.seeds) {
        return Err("--seeds: 2 to 10, for their spread is the interval".to_owned());
    }
    let root = shell::workspace()?;
    if args.cacheoff.is_none() || args.larder.is_none() {
        shell::build(&root)?;
    }
    let debug = |name: &str| shell::target_folder(&root).join("debug").join(name);
    let cacheoff = args.cacheoff.clone().unwrap_or_else(|| debug("cacheoff"));
    let larder = args.larder.clone().unwrap_or_else(|| shell::built_larder(&root));
    let folder = tempfile::tempdir().map_err(|error| format!("making a folder: {error}"))?;
    let lab = Lab { cacheoff, larder, folder: folder.path().to_owned(), seconds: args.seconds };
    lab.write_files()?;
    let network = match Network::new(folder.path()) {
        Ok(network) => network,
        Err(reason) => {
            println!("left out: no shaped namespaces ({reason})");
            return Ok(());
        }
    };
    let links = network.links();
    println!("{links}");
    let each = |what: &str, play: &dyn Fn(u64) -> Result<Figures, Trouble>| {
        let found = (1..=args.seeds).map(play).collect::<Result<Vec<_>, _>>()?;
        found.iter().zip(1..).for_each(|(figures, seed): (&Figures, u64)| println!("{what}, seed {seed}: {figures:?}"));
        Ok::<_, Trouble>(found)
    };
    let modelled = each("one process, links modelled", &|seed| lab.alone(seed))?;
    let one = each("one agent", &|seed| lab.together(&network, "one.toml", 1, seed))?;
    let four = each("four agents", &|seed| lab.together(&network, "agents.toml", AGENTS, seed))?;
    let found = report(&[("one process, links modelled", modelled), ("one agent", one), ("four agents", four)]);
    let dead = lab.names_the_dead(&network)?;
    let clock = lab.refuses_a_clock(&network)?;
    let text = format!(
        "{links}\n{} s a run, {} seeds.\n\n{}\nOne of the four killed: {dead}\n\nA clock that is 5 ms ahead: {clock}\n",
        args.seconds, args.seeds, found.text
    );
    println!("{text}");
    if let Some(file) = &args.write {
        fs::write(file, &text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    found.fault.map_or(Ok(()), Err)
}

/// The figures of all runs, side by side.
struct Comparison {
    text: String,
    /// Why the four agents do not reproduce the one.
    fault: Option<String>,
}

/// A figure of a run, by its name.
type Row = (&'static str, fn(&Figures) -> f64);

/// Compares the last runs, those of four agents, with the ones of one agent on the same links. Each mean lies in the interval
/// in which one more run would, or the difference is a fault. One seed asks for one thing whatever plays it, so that the
/// largest difference of a seed says more; it is shown.
fn report(runs: &[(&str, Vec<Figures>)]) -> Comparison {
    let rows: [Row; 4] = [
        ("replies", |figures| figures.replies as f64),
        ("hit ratio, %", |figures| 100.0 * figures.hit_ratio),
        ("mean response, ms", |figures| figures.response_ms),
        ("errors", |figures| figures.errors as f64),
    ];
    let heads: Vec<&str> = runs.iter().map(|(name, _)| *name).collect();
    let mut text = format!(
        "| | {} | four agents in place of one, largest difference of a seed | mean |\n|---|{}---:|---|\n",
        heads.join(" | "),
        "---:|".repeat(heads.len())
    );
    let mut fault = None;
    for (name, figure) in rows {
        let intervals: Vec<(f64, f64)> = runs.iter().map(|(_, runs)| interval(runs, figure)).collect();
        let shown: Vec<String> = intervals.iter().map(|(mean, half)| format!("{mean:.2} ± {half:.2}")).collect();
        let ([.., (mean, half), (four, _)], [.., (_, one_runs), (_, four_runs)]) = (&intervals[..], runs) else {
            continue;
        };
        let largest = one_runs.iter().zip(four_runs).map(|(one, four)| figure(four) - figure(one));
        let largest = largest.max_by(|one, other| one.abs().total_cmp(&other.abs())).unwrap_or_default();
        let is_within = (four - mean).abs() <= *half;
        let word = if is_within { "within" } else { "**not within**" };
        text += &format!("| {name} | {} | {largest:+.2} | {word} |\n", shown.join(" | "));
        if !is_within {
            fault.get_or_insert(format!("{name}: {four:.2} of four agents is not within {mean:.2} ± {half:.2} of one"));
        }
    }
    Comparison { text, fault }
}

/// The mean of some runs, and how far from it one more run lies in 19 of 20 cases.
fn interval(runs: &[Figures], figure: fn(&Figures) -> f64) -> (f64, f64) {
    let count = runs.len() as f64;
    let mean = runs.iter().map(figure).sum::<f64>() / count;
    let squares: f64 = runs.iter().map(|run| (figure(run) - mean).powi(2)).sum();
    let t = T.get(runs.len().saturating_sub(2)).copied().unwrap_or(T[T.len() - 1]);
    (mean, t * (squares / (count - 1.0)).sqrt() * (1.0 + 1.0 / count).sqrt())
}

/// Namespaces on a bridge, or on a switch in user space; gone when this is.
struct Network {
    mark: String,
    /// The switch, and why the kernel does not shape the links itself.
    switch: Option<(Switch, Trouble)>,
    joints: Vec<Running>,
}

impl Network {
    fn new(folder: &Path) -> Result<Self, Trouble> {
        let mut network = Self { mark: format!("cacheoff{}", std::process::id()), switch: None, joints: Vec::new() };
        ip(&["netns", "add", &network.name(0)])?;
        let shape = [&["qdisc", "add", "dev", "lo", "root"][..], &SHAPE[..]].concat();
        if let Err(reason) = network.inside(0, "tc", &shape) {
            if !Switch::is_possible() {
                return Err(format!("{reason}; without netem it needs socat and /dev/net/tun"));
            }
            network.switch = Some((Switch::new(folder), reason));
        } else {
            network.inside(0, "ip", &["link", "add", "br0", "type", "bridge"])?;
            network.inside(0, "ip", &["link", "set", "br0", "up"])?;
        }
        for place in (1..=AGENTS).chain([CACHE, LEAD]) {
            network.join(place)?;
        }
        Ok(network)
    }

    fn name(&self, place: u8) -> String {
        format!("{}-{place}", self.mark)
    }

    /// How the links are shaped, in a sentence.
    fn links(&self) -> String {
        match &self.switch {
            None => "Links: netem, 20 ms and 0.1 % loss at each end.".to_owned(),
            Some((_, reason)) => format!(
                "Links: TAP devices on a switch in user space, which holds each frame for 20 ms and loses 0.1 % of them, at each end; the kernel has no netem ({}).",
                reason.trim().rsplit(": ").next().unwrap_or_default().trim_end_matches('.')
            ),
        }
    }

    fn join(&mut self, place: u8) -> Result<(), Trouble> {
        let (own, bridge) = (self.name(place), self.name(0));
        ip(&["netns", "add", &own])?;
        self.inside(place, "ip", &["link", "set", "lo", "up"])?;
        if let Some((switch, _)) = &self.switch {
            let joint = switch.open(place)?;
            self.joints.push(Running::start(self.command(place, Path::new("socat")).args(joint))?);
            let appears = (0..50).any(|_| {
                sleep(Duration::from_millis(100));
                self.inside(place, "ip", &["link", "set", "eth0", "up"]).is_ok()
            });
            if !appears {
                return Err(format!("socat makes no device in {own}"));
            }
        } else {
            let port = format!("p{place}");
            ip(&["link", "add", "eth0", "netns", &own, "type", "veth", "peer", "name", &port, "netns", &bridge])?;
            self.inside(0, "ip", &["link", "set", &port, "master", "br0", "up"])?;
            self.inside(place, "ip", &["link", "set", "eth0", "up"])?;
            let shape = [&["qdisc", "add", "dev", "eth0", "root"][..], &SHAPE[..]].concat();
            self.inside(place, "tc", &shape)?;
        }
        self.inside(place, "ip", &["addr", "add", &format!("10.99.0.{place}/24"), "dev", "eth0"])
    }

    fn command(&self, place: u8, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(place)]).arg(program);
        command
    }

    fn inside(&self, place: u8, program: &str, args: &[&str]) -> Result<(), Trouble> {
        shell::ask(self.command(place, Path::new(program)).args(args)).map(|_| ())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some((switch, _)) = &self.switch {
            let (carried, lost) = switch.counts();
            println!("the switch carried {carried} frames and lost {lost}");
        }
        self.joints.clear();
        for place in (0..=AGENTS).chain([CACHE, LEAD]) {
            let _ = ip(&["netns", "del", &self.name(place)]);
        }
    }
}

fn ip(args: &[&str]) -> Result<(), Trouble> {
    shell::ask(Command::new("ip").args(args)).map(|_| ())
}

/// A process that ends with this.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Result<Self, Trouble> {
        let shown = format!("{command:?}");
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        quiet.spawn().map(Self).map_err(|error| format!("cannot start {shown}: {error}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The figures of a run.
#[derive(Clone, Copy, Debug)]
struct Figures {
    replies: u64,
    hit_ratio: f64,
    response_ms: f64,
    errors: u64,
}

struct Lab {
    cacheoff: PathBuf,
    larder: PathBuf,
    folder: PathBuf,
    seconds: u32,
}

impl Lab {
    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn write_files(&self) -> Result<(), Trouble> {
        let link = "delay = \"20ms\"\nloss = \"0.1%\"\n";
        let workload = format!(
            "name = \"spread\"\nabout = \"Robots of four agents.\"\npeak = 100\n[robot]\npace = \"poisson(0.5)\"\n\
             connection_uses = \"zipf(16)\"\n[interest]\nrecurrence = \"60%\"\npopularity = \"uniform\"\n[server]\ncount = 8\n\
             LINKS[rules]\nerrors_max = \"3%\"\n[[content]]\nname = \"object\"\nshare = \"100%\"\nmedia = \"image/gif\"\n\
             size = \"exp(8KB)\"\ncachable = \"80%\"\n[[phase]]\nname = \"all\"\nlength = \"{}s\"\n",
            self.seconds
        );
        let modelled = format!("[client_link]\n{link}[server_link]\n{link}");
        let agent = |place: u8, workers: u8| {
            let own = format!("10.99.0.{place}");
            format!(
                "[[agent]]\nname = \"n{place}\"\ncontrol = \"{own}:7400\"\nworkers = {workers}\nrobots = [\"{own}\"]\norigins = [\"{own}\"]\n"
            )
        };
        let fleet = |agents: String| format!("token_file = \"token\"\n{agents}");
        let larder = |address: &str, store: &str| {
            format!(
                "store = {:?}\nadmin = \"none\"\nmemory = \"64MB\"\ndisk = \"0\"\n[[listen]]\naddress = \"{address}:3128\"\n\
                 [limits]\nconnections_per_client_max = \"none\"\norigin_share_percent = 100\n\
                 [access]\nclients = [\"10.99.0.0/24\", \"127.0.0.0/8\"]\n",
                self.file(store)
            )
        };
        let files = [
            ("spread.toml", workload.replace("LINKS", "")),
            ("alone.toml", workload.replace("LINKS", &modelled)),
            ("token", "0123456789".repeat(4)),
            ("agents.toml", fleet((1..=AGENTS).map(|place| agent(place, 1)).collect())),
            ("one.toml", fleet(agent(1, AGENTS))),
            ("near.toml", larder("127.0.0.1", "near")),
            ("far.toml", larder(&format!("10.99.0.{CACHE}"), "far")),
        ];
        for (name, text) in files {
            fs::write(self.file(name), text).map_err(|error| format!("writing {name}: {error}"))?;
        }
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(self.file("token"), mode).map_err(|error| format!("the token file: {error}"))
    }

    /// One process with as many workers, around a cache on loopback.
    fn alone(&self, seed: u64) -> Result<Figures, Trouble> {
        let _cache = Running::start(Command::new(&self.larder).arg("--config").arg(self.file("near.toml")))?;
        sleep(Duration::from_secs(2));
        let ledger = self.file(&format!("alone-{seed}.ledger"));
        let mut play = Command::new(&self.cacheoff);
        play.arg("run").arg(self.file("alone.toml")).args(["--proxy", "127.0.0.1:3128", "--cores", "0,1,0,1"]);
        let said = shell::bounded(play.args(["--seed", &seed.to_string(), "--ledger"]).arg(&ledger), self.patience())?;
        figures(&ledger).map_err(|reason| format!("{reason}\n{}", said.said))
    }

    fn patience(&self) -> u64 {
        u64::from(self.seconds) + 60
    }

    /// So many agents, of which the fourth has a clock that is ahead.
    fn agents(&self, network: &Network, count: u8, shift_us: u32) -> Result<Vec<Running>, Trouble> {
        let agent = |place: u8| {
            let shift = if place == AGENTS { shift_us } else { 0 };
            let mut command = network.command(place, &self.cacheoff);
            command
                .args(["agent", "--listen", &format!("10.99.0.{place}:7400"), "--token-file"])
                .arg(self.file("token"));
            Running::start(command.args(["--clock-shift-us", &shift.to_string()]))
        };
        let all = (1..=count).map(agent).collect();
        sleep(Duration::from_secs(2));
        all
    }

    fn coordinate(&self, network: &Network, fleet: &str, proxied: bool, ledger: &Path) -> Command {
        let mut command = network.command(LEAD, &self.cacheoff);
        command.arg("run").arg(self.file("spread.toml")).arg("--agents").arg(self.file(fleet));
        if proxied {
            command.args(["--proxy", &format!("10.99.0.{CACHE}:3128")]);
        }
        command.arg("--ledger").arg(ledger);
        command
    }

    /// The agents of a file, around a cache in a namespace of its own.
    fn together(&self, network: &Network, fleet: &str, count: u8, seed: u64) -> Result<Figures, Trouble> {
        let far = self.file("far.toml");
        let _cache = Running::start(network.command(CACHE, &self.larder).arg("--config").arg(far))?;
        let _agents = self.agents(network, count, 0)?;
        let ledger = self.file(&format!("{fleet}-{seed}.ledger"));
        let mut play = self.coordinate(network, fleet, true, &ledger);
        let said = shell::bounded(play.args(["--seed", &seed.to_string()]), self.patience())?;
        figures(&ledger).map_err(|reason| format!("{reason}\n{}", said.said))
    }

    fn names_the_dead(&self, network: &Network) -> Result<String, Trouble> {
        let mut agents = self.agents(network, AGENTS, 0)?;
        let ledger = self.file("dead.ledger");
        let mut play = Running::start(&mut self.coordinate(network, "agents.toml", false, &ledger))?;
        // The run has begun when the ledger has an interval.
        await_line(&ledger, "\"interval\"")?;
        agents.truncate(usize::from(AGENTS) - 1);
        let until = Instant::now() + Duration::from_secs(self.patience());
        while play.0.try_wait().map_err(|error| error.to_string())?.is_none() {
            if Instant::now() > until {
                return Err("the run without one agent does not end".to_owned());
            }
            sleep(Duration::from_millis(100));
        }
        let line = await_line(&ledger, "\"end\"")?;
        let end: serde_json::Value = serde_json::from_str(&line).map_err(|error| format!("{line}: {error}"))?;
        let reasons: Vec<&str> =
            end["end"]["invalid"].as_array().into_iter().flatten().filter_map(|reason| reason.as_str()).collect();
        // The killed one, and it alone: others that seem dead because of it are a fault.
        match reasons.iter().filter(|reason| reason.contains(" died ")).collect::<Vec<_>>()[..] {
            [reason] if reason.contains("agent n4 died") => Ok((*reason).to_owned()),
            _ => Err(format!("the dead agent is not named, or not alone: {line}")),
        }
    }

    fn refuses_a_clock(&self, network: &Network) -> Result<String, Trouble> {
        let _agents = self.agents(network, AGENTS, 5_000)?;
        let ledger = self.file("clock.ledger");
        let said = shell::bounded(&mut self.coordinate(network, "agents.toml", false, &ledger), self.patience())?;
        match said.status != Some(0) && said.said.contains("the clock of agent n4") {
            true => {
                let line = said.said.lines().find(|line| line.contains("the clock of agent n4"));
                Ok(line.unwrap_or_default().trim().to_owned())
            }
            false => Err(format!("a clock that is 5 ms ahead was not refused: {}", said.said)),
        }
    }
}

/// The first line of a ledger with these words, as soon as it is there.
fn await_line(ledger: &Path, words: &str) -> Result<String, Trouble> {
    for _ in 0..600 {
        let text = fs::read_to_string(ledger).unwrap_or_default();
        if let Some(line) = text.lines().find(|line| line.starts_with('{') && line[1..].starts_with(words)) {
            return Ok(line.chars().take(2_000).collect());
        }
        sleep(Duration::from_millis(100));
    }
    Err(format!("{} has no line with {words}", ledger.display()))
}

fn figures(ledger: &Path) -> Result<Figures, Trouble> {
    let file = File::open(ledger).map_err(|error| format!("{}: {error}", ledger.display()))?;
    let mut found = Figures { replies: 0, hit_ratio: 0.0, response_ms: 0.0, errors: 0 };
    let mut hits = 0;
    for line in BufReader::new(file).lines().map_while(Result::ok) {
        let Ok(record) = serde_json::from_str::<serde_json::Value>(&line) else { continue };
        let interval = &record["interval"];
        found.replies += interval["classes"]["basic"]["replies"].as_u64().unwrap_or(0);
        hits += interval["classes"]["basic"]["hits"].as_u64().unwrap_or(0);
        let counts = interval["errors"]["counts"].as_object();
        found.errors += counts.map_or(0, |counts| {
            let errors = counts.iter().filter(|(name, _)| *name != "missing-age");
            errors.filter_map(|(_, count)| count.as_u64()).sum()
        });
        // The text of a histogram begins with the sum of its values.
        let response = interval["classes"]["basic"]["response"].as_str().and_then(|text| text.split(':').next());
        found.response_ms += response.and_then(|sum| sum.parse::<f64>().ok()).unwrap_or(0.0) / 1e3;
    }
    if found.replies == 0 {
        return Err(format!("{} has no replies", ledger.display()));
    }
    found.hit_ratio = hits as f64 / found.replies as f64;
    found.response_ms /= found.replies as f64;
    Ok(found)
}
