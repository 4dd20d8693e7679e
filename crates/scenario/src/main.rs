//! `scenario`: plays scripts against a proxy that is running already.

use clap::{Parser, Subcommand};
use scenario::{Script, Setting, Target, Way};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Plays scripted clients and origins around any proxy.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Play scripts; a directory stands for all `.scn` files below it.
    Play(Play),
    /// List scripts with the first line of what each shows.
    List {
        /// Scripts or directories.
        paths: Vec<PathBuf>,
    },
    /// Show what scripts are about, in full.
    Explain {
        /// Scripts or directories.
        paths: Vec<PathBuf>,
    },
}

#[derive(clap::Args)]
struct Play {
    /// The proxy listens here as a forward proxy.
    #[arg(long, value_name = "ADDR:PORT")]
    forward: Option<SocketAddr>,
    /// The proxy listens here as a reverse proxy: host NAME.test stands for origin NAME, see --origin-ports.
    #[arg(long, value_name = "ADDR:PORT")]
    reverse: Option<SocketAddr>,
    /// Play without a proxy, clients talking to the first origin.
    #[arg(long)]
    direct: bool,
    /// Ports for the origins in order (s1, s2, …), so that a reverse proxy can be configured before.
    #[arg(long, value_delimiter = ',', value_name = "PORT")]
    origin_ports: Vec<u16>,
    /// Play scripts that ask for settings too: the proxy is said to have them.
    #[arg(long)]
    config_ok: bool,
    /// Play scripts that need this (`larder`); may be repeated.
    #[arg(long = "with", value_name = "WORD")]
    with: Vec<String>,
    /// Stop at the first script that fails.
    #[arg(long)]
    first: bool,
    /// Say nothing of the conversation of failed scripts.
    #[arg(long)]
    brief: bool,
    /// Scripts or directories.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Play(play) => run(&play),
        Command::List { paths } => describe(&paths, |script| {
            println!("{}: {}", script.path(), script.about().lines().next().unwrap_or(""));
        }),
        Command::Explain { paths } => describe(&paths, |script| {
            println!("{}\n{}\n", script.path(), script.about());
        }),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("scenario: {error}");
            ExitCode::from(2)
        }
    }
}

fn describe(paths: &[PathBuf], show: impl Fn(&Script)) -> Result<bool, Box<dyn std::error::Error>> {
    for path in scripts(paths)? {
        show(&Script::load(&path)?);
    }
    Ok(true)
}

fn scripts(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Box<dyn std::error::Error>> {
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() { below(path, &mut found)? } else { found.push(path.clone()) }
    }
    found.sort();
    Ok(found)
}

fn below(directory: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            below(&path, found)?;
        } else if path.extension().is_some_and(|e| e == "scn") {
            found.push(path);
        }
    }
    Ok(())
}

#[derive(Default)]
struct Tally {
    good: usize,
    bad: usize,
    skipped: usize,
}

fn run(play: &Play) -> Result<bool, Box<dyn std::error::Error>> {
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let targets: Vec<Target> = [
        play.forward.map(|proxy| Target { way: Way::Forward, proxy }),
        play.reverse.map(|proxy| Target { way: Way::Reverse, proxy }),
        play.direct.then_some(Target { way: Way::Direct, proxy: nowhere }),
    ]
    .into_iter()
    .flatten()
    .collect();
    if targets.is_empty() {
        return Err("name the proxy: --forward ADDR:PORT, --reverse ADDR:PORT, or --direct for none".into());
    }
    let mut tally = Tally::default();
    for path in scripts(&play.paths)? {
        let script = Script::load(&path)?;
        for target in &targets {
            one(play, &script, target, &mut tally)?;
            if play.first && tally.bad > 0 {
                return Ok(false);
            }
        }
    }
    println!("{} played as written, {} did not, {} skipped", tally.good, tally.bad, tally.skipped);
    Ok(tally.bad == 0)
}

fn one(play: &Play, script: &Script, target: &Target, tally: &mut Tally) -> std::io::Result<()> {
    let name = format!("{:<7} {}", target.way.as_str(), script.path());
    if let Some(why) = skipped(play, script, target.way) {
        tally.skipped += 1;
        println!("skip {name} ({why})");
        return Ok(());
    }
    let begun = Instant::now();
    let stage = script.open_with(Setting { ports: play.origin_ports.clone(), root: unique_root(tally) })?;
    let result = stage.play(target);
    let took = begun.elapsed().as_millis();
    match result {
        Ok(()) => {
            tally.good += 1;
            println!("ok   {name} ({took} ms)");
        }
        Err(failure) => {
            tally.bad += 1;
            println!("FAIL {name} ({took} ms)");
            match play.brief {
                true => println!("  line {}, {}, {}: {}", failure.line, failure.party, failure.step, failure.what),
                false => println!("{failure}"),
            }
        }
    }
    Ok(())
}

fn skipped(play: &Play, script: &Script, way: Way) -> Option<String> {
    if way != Way::Direct && !script.ways().contains(&way) {
        return Some(format!("not for the {} way", way.as_str()));
    }
    if script.config().is_some() && !play.config_ok {
        return Some("asks for settings; --config-ok plays it".into());
    }
    let missing = script.needs().iter().find(|need| !play.with.contains(need))?;
    Some(format!("needs {missing}; --with {missing} plays it"))
}

/// Plays share the proxy's store: each gets paths of its own.
fn unique_root(tally: &Tally) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros());
    format!("/k{now:x}-{}", tally.good + tally.bad)
}
