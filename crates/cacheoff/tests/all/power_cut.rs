//! The power cut on this kernel: a cache that syncs keeps its objects, one that does not loses them, none of them leaves a
//! mount or a loop device behind. Where a power cut cannot be played, the command says why and nothing else is tested.

use super::official::free_port;
use cacheoff::ledger::{Downtime, Ledger, Outcome};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Each test looks at the mounts of all power cuts on this machine.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
const BOUND: Duration = Duration::from_secs(120);

/// A cache in perl, one request after the other: files in its folder, synced or not.
const CACHE: &str = r#"
use strict; use IO::Socket::INET; my ($dir, $port, $origin, $syncs) = @ARGV;
my $listen = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 64, ReuseAddr => 1) or die;
while (my $client = $listen->accept) {
  my ($head, $line) = ('', ''); while ($line = <$client>) { last if $line eq "\r\n"; $head .= $line }
  my ($path) = $head =~ m{^GET (/\S*)} or next; (my $name = $path) =~ s{/}{_}g; local $/ = undef;
  if (open my $file, '<', "$dir/$name" and -s "$dir/$name") { print {$client} <$file>; }
  else { my $server = IO::Socket::INET->new(PeerAddr => $origin) or next; print $server "GET $path HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    my $answer = <$server>; open my $file, '>', "$dir/.new"; print $file $answer; close $file; rename "$dir/.new", "$dir/$name";
    system 'sync', '-f', "$dir/$name" if $syncs; print $client $answer }
  close $client; $/ = "\n";
}
"#;

fn entry(folder: &Path, name: &str, syncs: &str) {
    let folder = folder.join(name);
    fs::create_dir(&folder).unwrap();
    let toml = format!(
        "name = \"{name}\"\nprogram = \"perl\"\nfolders = [\"store\"]\nstart = [\"@dir@/cache.pl\", \"@dir@/store\", \"@port@\", \"@origin@\", \"{syncs}\"]\n\
         [[file]]\npath = \"cache.pl\"\ntemplate = \"cache.pl\"\n[mode.reverse]\n[store.disk]\n"
    );
    fs::write(folder.join("entry.toml"), toml).unwrap();
    fs::write(folder.join("cache.pl"), CACHE).unwrap();
}

fn command(folder: &Path, port: u16, names: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cacheoff"));
    command.args(["power-cut", "--objects", "30", "--load-s", "2", "--dark-s", "1", "--settle-s", "2"]);
    command.args(["--port", &port.to_string(), "--origin-port", &free_port().to_string()]);
    for name in names {
        command.arg("--entry").arg(folder.join(name));
    }
    command.arg("--folder").arg(folder.join("out")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Runs it, handing over each line of its errors, and gives all of them with its status.
fn play(mut command: Command, mut see: impl FnMut(u32, &str)) -> (Option<i32>, String) {
    let mut child = command.spawn().unwrap();
    let (id, begun, mut all) = (child.id(), Instant::now(), String::new());
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        see(id, &line);
        all += &(line + "\n");
        assert!(begun.elapsed() < BOUND, "{all}");
    }
    (child.wait().unwrap().code(), all)
}

/// The process that plays: the child of unshare(1), which is the child of the command.
fn first_of_namespace(command: u32) -> u32 {
    *cacheoff::proc::tree(command).get(2).expect("it plays in a namespace")
}

fn nothing_is_left(port: u16, before: &BTreeSet<String>) {
    // The kernel needs a moment where nobody ended things in order.
    let begun = Instant::now();
    while mounts_and_loops().difference(before).next().is_some() && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let left: Vec<String> = mounts_and_loops().difference(before).cloned().collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err(), "the cache is gone");
}

/// Mounts that others see, and files under loop devices, of any power cut on this machine.
fn mounts_and_loops() -> BTreeSet<String> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let disks = fs::read_dir("/sys/block").unwrap().map(|disk| disk.unwrap().path().join("loop/backing_file"));
    let files = disks.filter_map(|file| fs::read_to_string(file).ok());
    files.chain(mounts.lines().map(str::to_owned)).filter(|text| text.contains("cacheoff-power-")).collect()
}

fn found(folder: &Path, name: &str) -> Downtime {
    let file = fs::File::open(folder.join(format!("out/power-cut-{name}.ledger"))).unwrap();
    let ledger = Ledger::read(BufReader::new(file)).unwrap();
    assert_eq!(ledger.end.outcome, Outcome::Complete, "{name}");
    assert!(ledger.notes.iter().any(|note| note.text.contains("writes of the device were not synced")), "{name}");
    ledger.downtimes[0].clone()
}

/// A cut in a contest is that of the command, with the contest's label and round.
#[test]
fn a_contest_cuts_the_power_of_each_entry() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    entry(folder.path(), "syncs", "1");
    entry(folder.path(), "hopes", "");
    let (port, before) = (free_port(), mounts_and_loops());
    let contest = |discipline: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cacheoff"));
        command.args(["contest", "--entries", "", "--rounds", "1", "--workload", discipline]);
        command.args(["--port", &port.to_string(), "--origin-port", &free_port().to_string()]);
        for name in ["syncs", "hopes"] {
            command.arg("--entry").arg(folder.path().join(name));
        }
        command.arg("--folder").arg(folder.path().join("contest")).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::piped());
        play(command, |_, _| {})
    };
    let (status, said) = contest("power-cut:lode_s=2");
    assert!(status == Some(2) && said.contains("it has objects, load_s, dark_s, settle_s, seed"), "{said}");
    let (status, said) = contest("power-cut:objects=30:load_s=2:dark_s=1:settle_s=2");
    if said.contains("cannot be simulated here") {
        assert_eq!(status, Some(2), "{said}");
        return;
    }
    assert_eq!(status, Some(0), "{said}");
    let found = ["syncs", "hopes"].map(|name| {
        let mut files = fs::read_dir(folder.path().join("contest")).unwrap().map(|file| file.unwrap().path());
        let path = files.find(|path| path.to_string_lossy().contains(&format!("-{name}-1."))).expect(name);
        let ledger = Ledger::read(BufReader::new(fs::File::open(path).unwrap())).unwrap();
        assert_eq!((ledger.end.outcome, ledger.run.label.as_str(), ledger.run.round), (Outcome::Complete, name, 1));
        assert!(ledger.run.workload.name.starts_with("power-cut ("), "{}", ledger.run.workload.name);
        assert!(ledger.downtimes[0].cut.contains("seed 1"), "{:?}", ledger.downtimes[0]);
        ledger.downtimes[0].clone()
    });
    assert!(found[0].probed >= 10 && found[0].kept == found[0].probed, "{found:?}");
    assert!(found[1].kept < found[1].probed, "{found:?}");
    nothing_is_left(port, &before);
}

#[test]
fn a_cache_keeps_what_it_synced_and_an_end_by_hand_leaves_nothing_behind() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    entry(folder.path(), "syncs", "1");
    entry(folder.path(), "hopes", "");
    let (port, before) = (free_port(), mounts_and_loops());
    let (status, said) = play(command(folder.path(), port, &["syncs", "hopes"]), |_, _| {});
    if said.contains("cannot be simulated here") {
        assert_eq!(status, Some(2), "{said}");
        return;
    }
    assert_eq!(status, Some(0), "{said}");
    let syncs = found(folder.path(), "syncs");
    assert_eq!((syncs.kept, syncs.wrong), (syncs.probed, 0), "{syncs:?}");
    assert!(syncs.probed >= 10 && syncs.late_probed >= 5 && syncs.late_kept == syncs.late_probed, "{syncs:?}");
    assert!(syncs.first_hit_us.is_some());
    let hopes = found(folder.path(), "hopes");
    assert!(hopes.kept < hopes.probed && hopes.late_kept * 2 < hopes.late_probed && hopes.wrong == 0, "{hopes:?}");
    nothing_is_left(port, &before);
    // Ctrl-C in the middle of the load, and a death without a word.
    let signal = |signal: Signal, whom: fn(u32) -> u32| {
        play(command(folder.path(), port, &["hopes"]), move |id, line| {
            if line.ends_with("hopes: load") {
                kill_process(Pid::from_raw(whom(id) as i32).unwrap(), signal).unwrap();
            }
        })
    };
    let (status, said) = signal(Signal::INT, |id| id);
    assert!(status.is_some() && said.contains("stopping"), "{said}");
    nothing_is_left(port, &before);
    let (status, said) = signal(Signal::KILL, first_of_namespace);
    assert_ne!(status, Some(0), "{said}");
    nothing_is_left(port, &before);
}
