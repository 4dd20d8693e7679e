//! Cacheoff on several machines, tried in network namespaces: four agents with robots and origins around a cache of the
//! workspace, over links of 20 ms and 0.1 % loss, measure what one process with the same links in user space does; an agent
//! that is killed is named; a clock that is 5 ms ahead is refused.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::shell::{self, Trouble};

/// How long, and with which programs.
#[derive(clap::Args)]
pub struct Args {
    /// Seconds of each run.
    #[arg(long, default_value_t = 30)]
    seconds: u32,
    /// Seeds of the runs of one process, whose spread is the interval.
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// A `cacheoff` instead of that of this workspace.
    #[arg(long)]
    cacheoff: Option<PathBuf>,
    /// A `larder` instead of that of this workspace.
    #[arg(long)]
    larder: Option<PathBuf>,
}

/// Agents.
const AGENTS: u8 = 4;
/// The last number of the cache's address, and of the coordinator's.
const CACHE: u8 = 8;
const LEAD: u8 = 9;
/// Each end of a link does this to the packets that it sends.
const SHAPE: [&str; 5] = ["netem", "delay", "20ms", "loss", "0.1%"];
/// The hit ratio may lie so far outside the spread of the seeds.
const MARGIN: f64 = 0.01;

/// Plays all of it.
pub fn run(args: &Args) -> Result<(), Trouble> {
    if !rustix::process::geteuid().is_root() {
        println!("left out: network namespaces need root");
        return Ok(());
    }
    for program in ["ip", "tc"] {
        shell::need_program(program)?;
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
    let alone = (1..=args.seeds.max(1)).map(|seed| lab.alone(seed)).collect::<Result<Vec<_>, _>>()?;
    let network = match Network::new() {
        Ok(network) => network,
        Err(reason) => {
            println!("left out: this kernel gives no shaped namespaces ({reason})");
            return Ok(());
        }
    };
    lab.reproduces(&network, &alone)?;
    lab.names_the_dead(&network)?;
    lab.refuses_a_clock(&network)
}

/// Namespaces on a bridge; gone when this is.
struct Network {
    mark: String,
}

impl Network {
    fn new() -> Result<Self, Trouble> {
        let network = Self { mark: format!("cacheoff{}", std::process::id()) };
        ip(&["netns", "add", &network.name(0)])?;
        network.inside(0, "ip", &["link", "add", "br0", "type", "bridge"])?;
        network.inside(0, "ip", &["link", "set", "br0", "up"])?;
        for place in (1..=AGENTS).chain([CACHE, LEAD]) {
            network.join(place)?;
        }
        Ok(network)
    }

    fn name(&self, place: u8) -> String {
        format!("{}-{place}", self.mark)
    }

    fn join(&self, place: u8) -> Result<(), Trouble> {
        let (own, bridge) = (self.name(place), self.name(0));
        let port = format!("p{place}");
        ip(&["netns", "add", &own])?;
        ip(&["link", "add", "eth0", "netns", &own, "type", "veth", "peer", "name", &port, "netns", &bridge])?;
        self.inside(0, "ip", &["link", "set", &port, "master", "br0", "up"])?;
        self.inside(place, "ip", &["link", "set", "lo", "up"])?;
        self.inside(place, "ip", &["addr", "add", &format!("10.99.0.{place}/24"), "dev", "eth0"])?;
        self.inside(place, "ip", &["link", "set", "eth0", "up"])?;
        let shape = [&["qdisc", "add", "dev", "eth0", "root"][..], &SHAPE[..]].concat();
        self.inside(place, "tc", &shape)
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
        let agents = (1..=AGENTS).map(|place| {
            let own = format!("10.99.0.{place}");
            format!("[[agent]]\nname = \"n{place}\"\ncontrol = \"{own}:7400\"\nrobots = [\"{own}\"]\norigins = [\"{own}\"]\n")
        });
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
            ("agents.toml", "token_file = \"token\"\n".to_owned() + &agents.collect::<String>()),
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
        let found = figures(&ledger).map_err(|reason| format!("{reason}\n{}", said.said))?;
        println!("one process, seed {seed}: {found:?}");
        Ok(found)
    }

    fn patience(&self) -> u64 {
        u64::from(self.seconds) + 60
    }

    /// The agents, the last of which has a clock that is ahead.
    fn agents(&self, network: &Network, shift_us: u32) -> Result<Vec<Running>, Trouble> {
        let agent = |place: u8| {
            let shift = if place == AGENTS { shift_us } else { 0 };
            let mut command = network.command(place, &self.cacheoff);
            command
                .args(["agent", "--listen", &format!("10.99.0.{place}:7400"), "--token-file"])
                .arg(self.file("token"));
            Running::start(command.args(["--clock-shift-us", &shift.to_string()]))
        };
        let all = (1..=AGENTS).map(agent).collect();
        sleep(Duration::from_secs(2));
        all
    }

    fn coordinate(&self, network: &Network, proxied: bool, ledger: &Path) -> Command {
        let mut command = network.command(LEAD, &self.cacheoff);
        command.arg("run").arg(self.file("spread.toml")).arg("--agents").arg(self.file("agents.toml"));
        if proxied {
            command.args(["--proxy", &format!("10.99.0.{CACHE}:3128")]);
        }
        command.arg("--ledger").arg(ledger);
        command
    }

    fn reproduces(&self, network: &Network, alone: &[Figures]) -> Result<(), Trouble> {
        let far = self.file("far.toml");
        let _cache = Running::start(network.command(CACHE, &self.larder).arg("--config").arg(far))?;
        let _agents = self.agents(network, 0)?;
        let ledger = self.file("agents.ledger");
        let said = shell::bounded(&mut self.coordinate(network, true, &ledger), self.patience())?;
        let found = figures(&ledger).map_err(|reason| format!("{reason}\n{}", said.said))?;
        println!("{AGENTS} agents: {found:?}");
        let ratios = alone.iter().map(|figures| figures.hit_ratio);
        let (low, high) = ratios.fold((1.0_f64, 0.0_f64), |(low, high), ratio| (low.min(ratio), high.max(ratio)));
        if found.hit_ratio < low - MARGIN || found.hit_ratio > high + MARGIN {
            return Err(format!("the agents' hit ratio {:.3} is not within {low:.3} to {high:.3}", found.hit_ratio));
        }
        if found.errors > 0 {
            return Err(format!("{} errors\n{}", found.errors, said.said));
        }
        Ok(())
    }

    fn names_the_dead(&self, network: &Network) -> Result<(), Trouble> {
        let mut agents = self.agents(network, 0)?;
        let ledger = self.file("dead.ledger");
        let mut play = Running::start(&mut self.coordinate(network, false, &ledger))?;
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
        println!("killed: {line}");
        match line.contains("agent n4 died") {
            true => Ok(()),
            false => Err(format!("the dead agent is not named: {line}")),
        }
    }

    fn refuses_a_clock(&self, network: &Network) -> Result<(), Trouble> {
        let _agents = self.agents(network, 5_000)?;
        let ledger = self.file("clock.ledger");
        let said = shell::bounded(&mut self.coordinate(network, false, &ledger), self.patience())?;
        match said.status != Some(0) && said.said.contains("the clock of agent n4") {
            true => Ok(()),
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
        let response = &interval["classes"]["basic"]["response"];
        found.response_ms += response["sum"].as_f64().unwrap_or(0.0) / 1e3;
    }
    if found.replies == 0 {
        return Err(format!("{} has no replies", ledger.display()));
    }
    found.hit_ratio = hits as f64 / found.replies as f64;
    found.response_ms /= found.replies as f64;
    Ok(found)
}
