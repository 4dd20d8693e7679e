//! Plays the scenario library through servers of this process: one server, with its own store, for each
//! script and way, once in memory and once on disk with so little memory that nothing stays there.
//!
//! `SCENARIO=word` plays only the scripts whose path contains the word. A script's own settings stand in it
//! after `config`; a line `#site KEY = VALUE` there is a setting of each `[[site]]`.
//!
//! `SANDBOX=1` plays them through processes of their own with `--sandbox`.

use larder::config::{Config, Loaded};
use larder::server::Server;
use scenario::{Script, Stage, Target, Way};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most of a play is waiting for a peer, so more of them than cores go at once.
const AT_ONCE: usize = 8;

#[test]
fn the_library_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut scripts = Vec::new();
    collect(&folder, &mut scripts);
    let word = std::env::var("SCENARIO").unwrap_or_default();
    scripts.retain(|path| path.to_string_lossy().contains(&word));
    scripts.sort();
    assert!(!scripts.is_empty(), "no script below {} has `{word}` in its path", folder.display());
    let (next, played) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(path) = scripts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for (way, tier, result) in play(path) {
                        played.fetch_add(1, Ordering::Relaxed);
                        if let Err(why) = result {
                            failures.lock().unwrap().push(format!("{} ({way:?}, {tier:?})\n{why}", path.display()));
                        }
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap();
    failures.sort();
    let total = played.into_inner();
    println!("{} of {total} plays of {} scripts failed", failures.len(), scripts.len());
    let text = failures.iter().fold(String::new(), |mut text, failure| {
        let _ = writeln!(text, "{failure}\n");
        text
    });
    assert!(failures.is_empty(), "{} of {total} plays failed:\n\n{text}", failures.len());
}

fn collect(folder: &Path, scripts: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, scripts);
        } else if path.extension().is_some_and(|ending| ending == "scn") {
            scripts.push(path);
        }
    }
}

/// Where answers are kept.
#[derive(Clone, Copy, Debug)]
enum Tier {
    Memory,
    Disk,
}

fn play(path: &Path) -> Vec<(Way, Tier, Result<(), String>)> {
    let script = match Script::load(path) {
        Ok(script) => script,
        Err(error) => return vec![(Way::Forward, Tier::Memory, Err(error.to_string()))],
    };
    let ways = script.ways().iter().flat_map(|&way| [(way, Tier::Memory), (way, Tier::Disk)]);
    ways.map(|(way, tier)| (way, tier, play_once(&script, way, tier))).collect()
}

fn play_once(script: &Script, way: Way, tier: Tier) -> Result<(), String> {
    let stage = script.open().map_err(|error| error.to_string())?;
    let store = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut text = script.config().unwrap_or_default().to_owned();
    let of_sites: Vec<String> =
        text.lines().filter_map(|line| line.trim().strip_prefix("#site ").map(str::to_owned)).collect();
    for (name, address) in stage.origins() {
        text = text.replace(&format!("${name}.address"), &address.to_string());
    }
    for (name, address) in stage.origins() {
        // A script may have a group of origins in the place of one.
        let is_group = text.contains(&format!("[[origin]]\nname = \"{name}\"\n"));
        let origin = if is_group { name.to_string() } else { format!("http://{address}") };
        let _ = write!(text, "\n[[site]]\nhosts = [\"{name}.test\"]\norigin = \"{origin}\"\n");
        text.push_str(&of_sites.join("\n"));
    }
    match std::env::var_os("SANDBOX") {
        Some(_) => play_confined(stage, way, tier, &text, store.path()),
        None => play_here(stage, way, tier, &text, store.path()),
    }
}

/// Whether the disk is what a script is played with; one that says how much memory there is is about that.
fn is_on_disk(tier: Tier, text: &str) -> bool {
    matches!(tier, Tier::Disk) && !text.contains("memory") && !text.contains("object_bytes_max")
}

/// Through a server of this process.
fn play_here(stage: Stage, way: Way, tier: Tier, text: &str, store: &Path) -> Result<(), String> {
    let loaded = Loaded::parse("script", text, &[]).map_err(|report| report.to_string())?;
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut config = Config { admin: None, store: Some(store.to_owned()), workers: 2, ..loaded.config };
    for listen in &mut config.listens {
        listen.address = free;
        if way == Way::Forward {
            // The sites of the reverse way are there too, and beside sites this has to be said.
            listen.forward.get_or_insert(true);
        }
    }
    if is_on_disk(tier, text) {
        config.memory_bytes = 200_000;
        config.memory_object_bytes_max = 50_000;
        config.disk_bytes = Some(64_000_000);
        config.disk.free_bytes_min = 0;
    }
    let server = Server::start(config).map_err(|error| error.to_string())?;
    let target = Target { way, proxy: server.addresses()[0] };
    let result = stage.play(&target).map_err(|failure| failure.to_string());
    let panics = server.shared().common.counters.panics.load(Ordering::Relaxed);
    drop(server);
    match panics {
        0 => result,
        some => Err(format!("{some} panics\n{}", result.err().unwrap_or_default())),
    }
}

/// Through a process with a sandbox, which has the same settings.
fn play_confined(stage: Stage, way: Way, tier: Tier, text: &str, store: &Path) -> Result<(), String> {
    let in_words = |error: std::io::Error| error.to_string();
    let listen = match way {
        Way::Forward => "[[listen]]\naddress = \"127.0.0.1:0\"\nforward = true\n",
        Way::Reverse | Way::Direct => "[[listen]]\naddress = \"127.0.0.1:0\"\n",
    };
    let mut text = match text.contains("[[listen]]") {
        // The address of each is that one already.
        true => text.replace("[[listen]]\naddress = \"127.0.0.1:0\"\n", listen),
        false => format!("{text}\n{listen}"),
    };
    if is_on_disk(tier, &text) {
        let of_disk = "memory = \"200kB\"\nmemory_object_bytes_max = \"50kB\"\ndisk = \"64MB\"\ndisk_free_min = 0\nobject_bytes_max = \"1000GB\"\n";
        text.insert_str(0, of_disk);
    } else {
        // No setting of a script is about the disk in this tier; a process without the setting would make one.
        text.insert_str(0, if text.contains("disk") { "" } else { "disk = 0\n" });
    }
    let file = store.join("larder.toml");
    fs::write(&file, text).map_err(in_words)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.args(["serve", "--sandbox", "--admin", "none", "--workers", "2"]).env_remove("LARDER_LOG");
    command.arg("--config").arg(&file).arg("--store").arg(store.join("store"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(in_words)?;
    let mut said = String::new();
    child.stdout.take().map_or(Ok(0), |out| BufReader::new(out).read_line(&mut said)).map_err(in_words)?;
    let address =
        said.strip_prefix("larder listens on ").and_then(|rest| rest.split([',', ';', '\n']).next()?.parse().ok());
    let played = address.map(|proxy| stage.play(&Target { way, proxy }).map_err(|failure| failure.to_string()));
    child.kill().and_then(|()| child.wait()).map_err(in_words)?;
    let mut complaints = String::new();
    child.stderr.take().map_or(Ok(0), |mut text| text.read_to_string(&mut complaints)).map_err(in_words)?;
    match played {
        None => Err(format!("it does not start: {complaints}")),
        Some(_) if complaints.contains("panicked") || complaints.contains("not in force") => Err(complaints),
        Some(result) => result,
    }
}
