//! The proxy of an office: a hundred users who log in, a group with rules of its own, a list, a limit of bandwidth, a helper and an ICAP
//! service in one configuration, played by the referee's workload `office`; beside it the same load without any of these.

use crate::icap_echo::{self, Echo};
use crate::lab::{self, Lab};
use crate::processes::Cpu;
use crate::results;
use crate::shell::{self, Trouble};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;

/// How long, and of what.
#[derive(clap::Args)]
pub struct Args {
    /// The `larder` to test; without it the published build (`--profile dist`) of this workspace is made and taken.
    #[arg(long)]
    larder: Option<PathBuf>,
    /// The `cacheoff` that plays; without it the published build is made and taken.
    #[arg(long)]
    cacheoff: Option<PathBuf>,
    /// The workload's day is so many times ten minutes.
    #[arg(long, default_value_t = 0.2)]
    scale: f64,
    /// Requests a second.
    #[arg(long, default_value_t = 200)]
    peak: u32,
    /// Pairs of runs, with the configuration and without.
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// Show the table only; otherwise it is written to docs/results/.
    #[arg(long)]
    dry: bool,
}

/// Users, of whom the first half are trainees. The workload draws one of them for each request.
const USERS: u32 = 100;
/// Names of the list, beside the expression that adverts meet.
const NAMES: u32 = 100_000;
/// The helper of Squid's package that permits users by their addresses.
const HELPER: &str = "/usr/lib/squid/ext_file_userip_acl";
/// Bytes per second that each trainee gets of videos.
const VIDEO_RATE: u32 = 1_000_000;

/// Plays all, and publishes the page.
pub fn run(args: &Args) -> Result<(), Trouble> {
    let root = shell::workspace()?;
    shell::need_program("openssl")?;
    let larder = shell::given_or_published_larder(&root, args.larder.as_ref())?;
    let cacheoff = match &args.cacheoff {
        Some(program) => program.clone(),
        None => {
            shell::build_published(&root, "cacheoff", &["cacheoff"])?;
            shell::published(&root, "cacheoff")
        }
    };
    let has_helper = Path::new(HELPER).exists();
    let has_icap = icap_echo::is_installed();
    for (has, what) in [(has_helper, HELPER), (has_icap, "c-icap with its echo")] {
        if !has {
            println!("left out: {what} is not installed");
        }
    }
    let mut rounds = Vec::new();
    for round in 0..args.rounds {
        // In turns, so that neither is always the first.
        let both = if round % 2 == 0 { [true, false] } else { [false, true] };
        for office in both {
            let seed = 1 + round;
            let stand = Stand::start(&larder, office, (has_helper, has_icap))?;
            let played = stand.play(args, &cacheoff, seed)?;
            println!("round {}, {}: {played:?}", round + 1, if office { "office" } else { "plain" });
            rounds.push((office, played));
        }
    }
    let version = shell::ask(Command::new(&larder).arg("--version"))?;
    let page = page(args, version.trim(), (has_helper, has_icap), &rounds);
    println!("{page}");
    if !args.dry {
        results::publish(&root, "office", &page)?;
    }
    let wrong: u64 = rounds.iter().map(|(_, played)| played.errors).sum();
    let is_refused = rounds.iter().all(|(office, played)| !office || played.refused > 0);
    match (wrong, is_refused) {
        (0, true) => Ok(()),
        (0, false) => Err("nothing was refused".to_owned()),
        (wrong, _) => Err(format!("{wrong} answers were wrong or failed")),
    }
}

/// The figures of one run.
#[derive(Clone, Copy, Debug, Default)]
struct Played {
    replies: u64,
    hits: u64,
    /// Replies with 403.
    refused: u64,
    errors: u64,
    hit_ms: f64,
    miss_ms: f64,
    refused_ms: f64,
    /// CPU of the cache per reply in microseconds.
    cpu_us: f64,
}

/// A cache with all that it asks.
struct Stand {
    lab: Lab,
    port: u16,
    id: u32,
    office: bool,
}

impl Stand {
    fn start(program: &Path, office: bool, (has_helper, has_icap): (bool, bool)) -> Result<Stand, Trouble> {
        let mut lab = Lab::new()?;
        let port = lab::free_port()?;
        let mut text = format!(
            "store = {:?}\nadmin = \"none\"\nmemory = \"256MB\"\ndisk = \"0\"\nworkers = 1\n[[listen]]\naddress = \"127.0.0.1:{port}\"\n\
             [limits]\nconnections_per_client_max = \"none\"\norigin_share_percent = 100\n",
            lab.folder("store")?.display().to_string(),
        );
        if office {
            text += &people_and_rules(&lab, has_helper)?;
            if has_icap {
                text += &icap(&mut lab)?;
            }
        }
        let file = lab.write("larder.toml", text)?;
        let id = lab.start("larder", Command::new(program).arg("--config").arg(file), port)?;
        Ok(Stand { lab, port, id, office })
    }

    fn play(&self, args: &Args, cacheoff: &Path, seed: u64) -> Result<Played, Trouble> {
        let ledger = self.lab.path().join("office.ledger");
        let mut command = Command::new(cacheoff);
        command.args(["run", "office", "--proxy", &format!("127.0.0.1:{}", self.port)]);
        command.args(["--scale", &args.scale.to_string(), "--peak", &args.peak.to_string()]);
        command.args(["--seed", &seed.to_string(), "--pid", &self.id.to_string(), "--label", "larder"]);
        if !self.office {
            command.args(["--variant", "permitted"]);
        }
        let before = Cpu::of_tree(self.id)?;
        let seconds = 670.0 * args.scale + 120.0;
        let played = shell::bounded(command.arg("--ledger").arg(&ledger), seconds as u64)?;
        let cpu = Cpu::of_tree(self.id)?.since(before);
        let found = read(&ledger, cpu).map_err(|reason| format!("{reason}\n{}", played.said))?;
        if found.errors > 0 {
            println!("{}\n{}", played.said, exhibits(&ledger)?.join("\n"));
        }
        Ok(found)
    }
}

/// Logins, groups, the list, rules and the limit.
fn people_and_rules(lab: &Lab, has_helper: bool) -> Result<String, Trouble> {
    let passwords: String = (0..USERS).map(|user| format!("cacheoff-{user}\n")).collect();
    let passwords = lab.write("passwords", passwords)?;
    let hashes =
        shell::ask(Command::new("openssl").args(["passwd", "-apr1", "-salt", "office", "-in"]).arg(passwords))?;
    let users: String =
        hashes.lines().enumerate().fold(String::new(), |text, (user, hash)| text + &format!("robot{user}:{hash}\n"));
    let trainees: String = (0..USERS / 2).map(|user| format!(" robot{user}")).collect();
    lab.folder("list")?;
    let names: String = (0..NAMES).map(|number| format!("adverts{number}.example\n")).collect();
    lab.write("list/domains", names)?;
    lab.write("list/expressions", "\\.advert(\\?|$)\n")?;
    let (users, groups) = (lab.write("users", users)?, lab.write("groups", format!("trainees:{trainees}\n"))?);
    let shown = |path: &Path| path.display().to_string();
    let external = if has_helper { "external = [\"by-address\"]\n" } else { "" };
    let mut text = format!(
        "[[login]]\nname = \"office\"\nscheme = \"basic\"\nrealm = \"The office\"\nfile = {:?}\ngroups = {:?}\n\
         [access]\nlogin = \"office\"\n{external}\
         [[list]]\nname = \"adverts\"\nsource = {:?}\nformat = \"squidguard\"\n\
         [[bandwidth]]\nname = \"videos\"\nrate = \"{VIDEO_RATE}B/s\"\nburst = \"2MB\"\nby = \"user\"\n\
         [[rule]]\nname = \"no adverts\"\nwhen = {{ list = \"adverts\" }}\ndo = {{ deny = true }}\n\
         [[rule]]\nname = \"no games for trainees\"\nwhen = {{ group = \"trainees\", path = \"/**/*.game\" }}\ndo = {{ deny = true }}\n\
         [[rule]]\nname = \"videos of trainees\"\nwhen = {{ group = \"trainees\", path = \"/**/*.video\" }}\ndo = {{ bandwidth = [\"videos\"] }}\n",
        shown(&users),
        shown(&groups),
        shown(&lab.path().join("list")),
    );
    if has_helper {
        // The helper understands masks alone: of `/8` it makes another network.
        let rules = lab.write("userip", "127.0.0.0/255.0.0.0 ALL\n")?;
        text += &format!(
            "[[helper]]\nname = \"by-address\"\nkind = \"external_acl\"\ncommand = [{HELPER:?}, \"-f\", {:?}]\nformat = \"%SRC %LOGIN\"\n",
            shown(&rules)
        );
    }
    Ok(text)
}

/// Starts c-icap, whose echo looks at each request. It would give answers back as changed ones, which have no tag then.
fn icap(lab: &mut Lab) -> Result<String, Trouble> {
    let url = Echo::start(lab)?.url();
    Ok(format!("[[icap]]\nname = \"echo\"\nurls = [\"{url}\"]\nstage = \"reqmod\"\n"))
}

/// Reads the figures of all logged phases.
fn read(ledger: &Path, cpu: Cpu) -> Result<Played, Trouble> {
    let file = File::open(ledger).map_err(|error| format!("{}: {error}", ledger.display()))?;
    let (mut played, mut sums) = (Played::default(), [0.0; 3]);
    let mut misses = 0;
    for line in BufReader::new(file).lines().map_while(Result::ok) {
        let Ok(record) = serde_json::from_str::<serde_json::Value>(&line) else { continue };
        let interval = &record["interval"];
        let count = |class: &str| interval["classes"][class]["replies"].as_u64().unwrap_or(0);
        played.replies += count("all");
        played.hits += count("hit");
        misses += count("miss");
        played.refused += count("status:403");
        let counts = interval["errors"]["counts"].as_object();
        played.errors += counts.map_or(0, |counts| counts.values().filter_map(serde_json::Value::as_u64).sum());
        for (sum, class) in sums.iter_mut().zip(["hit", "miss", "status:403"]) {
            // The text of a histogram begins with the sum of its values.
            let response = interval["classes"][class]["response"].as_str().and_then(|text| text.split(':').next());
            *sum += response.and_then(|sum| sum.parse::<f64>().ok()).unwrap_or(0.0) / 1e3;
        }
    }
    if played.replies == 0 {
        return Err(format!("{} has no replies", ledger.display()));
    }
    let mean = |sum: f64, count: u64| sum / count.max(1) as f64;
    // Refused ones are misses of the referee, for no store gave them.
    let fetched = misses.saturating_sub(played.refused);
    (played.hit_ms, played.miss_ms) = (mean(sums[0], played.hits), mean(sums[1] - sums[2], fetched));
    (played.refused_ms, played.cpu_us) = (mean(sums[2], played.refused), mean(cpu.total() * 1e6, played.replies));
    Ok(played)
}

/// The first ten answers that were wrong, as the referee shows them.
fn exhibits(ledger: &Path) -> Result<Vec<String>, Trouble> {
    let text = std::fs::read_to_string(ledger).map_err(|error| format!("{}: {error}", ledger.display()))?;
    let records = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let all = records.filter_map(|record| record["interval"]["errors"]["exhibits"].as_array().cloned()).flatten();
    let shown = |it: serde_json::Value| {
        let [trouble, url, detail] = ["trouble", "url", "detail"].map(|key| it[key].as_str().unwrap_or("").to_owned());
        format!("{trouble}: {url}: {detail}")
    };
    Ok(all.map(shown).take(10).collect())
}

fn page(args: &Args, version: &str, (has_helper, has_icap): (bool, bool), rounds: &[(bool, Played)]) -> String {
    let mut text = format!(
        "# An office\n\n`cargo xtask office`: {version}, one worker, memory store, the referee's workload `office` at {} requests/s, a day of {:.0} s, {} rounds. \
         Beside it the same load without logins and refusals (variant `permitted`) through a proxy with no such settings. Times are means in ms from the moment at which a request was due; \
         CPU is that of the process and its helpers over the whole run, for each reply of the logged phase. No core is reserved for anybody.\n\n\
         The configuration: {USERS} users in a file (apr1), half of them in a group; a list of {NAMES} names and an expression, by which adverts are refused to all; games are \
         refused to the group; videos of the group have {} KB/s for each user; {}; {}.\n\n",
        args.peak,
        600.0 * args.scale,
        args.rounds,
        VIDEO_RATE / 1_000,
        if has_helper {
            "`ext_file_userip_acl` of Squid's package permits each user by its address"
        } else {
            "**no helper: Squid's package is not installed**"
        },
        if has_icap { "c-icap's echo looks at each request" } else { "**no ICAP: c-icap is not installed**" },
    );
    text += "| run | replies | refused | wrong or failed | hits | hit | miss | refusal | CPU a reply, µs |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n";
    for (office, played) in rounds {
        let name = if *office { "office" } else { "plain" };
        let hits = 100.0 * played.hits as f64 / played.replies as f64;
        let Played { replies, refused, errors, hit_ms, miss_ms, refused_ms, cpu_us, .. } = played;
        let _ = writeln!(
            text,
            "| {name} | {replies} | {refused} | {errors} | {hits:.1} % | {hit_ms:.2} | {miss_ms:.1} | {refused_ms:.2} | {cpu_us:.0} |"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_no_fetches() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("l");
        let line = |miss: &str| {
            format!(
                "{{\"interval\":{{\"classes\":{{\"all\":{{\"replies\":10}},\"hit\":{{\"replies\":4,\"response\":\"8000:\"}},\
                 \"miss\":{{\"replies\":6,\"response\":\"{miss}:\"}},\"status:403\":{{\"replies\":2,\"response\":\"2000:\"}}}},\
                 \"errors\":{{\"counts\":{{\"wrong-status\":1}}}}}}}}\n"
            )
        };
        std::fs::write(&file, line("402000")).unwrap();
        let played = read(&file, Cpu { user: 1e-3, system: 0.0 }).unwrap();
        assert_eq!((played.replies, played.hits, played.refused, played.errors), (10, 4, 2, 1));
        assert_eq!((played.hit_ms, played.miss_ms, played.refused_ms, played.cpu_us), (2.0, 100.0, 1.0, 100.0));
    }
}
