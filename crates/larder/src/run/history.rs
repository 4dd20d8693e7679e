//! The runs of the last days: a line for each, in a file of the store folder that its owner alone can read. `larder stats` sums them
//! up, and the summary of a run takes from them how fast a host was when it was fetched from.
//!
//! A line has hosts and numbers: no URL, no command, no field.

use super::control::{RunHost, RunMiss, RunStats};
use super::locked::locked;
use crate::record::Network;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A longer file loses its older half: some thousand runs.
const FILE_BYTES_MAX: u64 = 2 << 20;
/// Hosts and reasons in a line.
const HOSTS_MAX: usize = 32;
const MISSES_MAX: usize = 16;

/// The facts of one run that ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PastRun {
    /// When it ended: seconds since 1970.
    pub at: u64,
    /// How long it took.
    pub millis: u64,
    /// Whether it left the network alone.
    pub offline: bool,
    /// How much longer it would have taken without the store, as its summary said.
    pub saved_millis: u64,
    /// Sums over all of it.
    pub requests: u64,
    /// Requests that the store answered.
    pub hits: u64,
    /// Bytes that came from the store.
    pub bytes_from_store: u64,
    /// Bytes that came from origins.
    pub bytes_fetched: u64,
    /// Its hosts, those with the most bytes.
    pub hosts: Vec<RunHost>,
    /// Why origins were asked.
    pub misses: Vec<RunMiss>,
}

impl PastRun {
    /// The line of a run that ended.
    pub fn of(stats: &RunStats, took: Duration, saved: Option<Duration>, network: Network, at: u64) -> PastRun {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        PastRun {
            at,
            millis: millis(took),
            offline: network == Network::Untouched,
            saved_millis: saved.map_or(0, millis),
            requests: stats.requests,
            hits: stats.hits,
            bytes_from_store: stats.bytes_from_store,
            bytes_fetched: stats.bytes_fetched,
            hosts: stats.hosts.iter().take(HOSTS_MAX).cloned().collect(),
            misses: stats.misses.iter().take(MISSES_MAX).cloned().collect(),
        }
    }
}

/// The file.
pub struct History(PathBuf);

impl History {
    /// The one of a store folder.
    pub fn of(folder: &Path) -> History {
        History(folder.join("runs.jsonl"))
    }

    /// The runs, the oldest first. Lines that are none are left out.
    pub fn read(&self) -> io::Result<Vec<PastRun>> {
        let file = match File::open(&self.0) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let text = read_text(file)?;
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// Adds a run. A file that became too long loses its older half.
    pub fn add(&self, run: &PastRun) -> io::Result<()> {
        let mut file = self.open()?;
        let mut line = serde_json::to_string(run).map_err(io::Error::other)?;
        line.push('\n');
        let length = file.seek(SeekFrom::End(0))?;
        if length + line.len() as u64 > FILE_BYTES_MAX {
            file.seek(SeekFrom::Start(0))?;
            let text = read_text(file.try_clone()?)?;
            let half = text.len() / 2;
            let from = text.bytes().skip(half).position(|byte| byte == b'\n').map_or(text.len(), |at| half + at + 1);
            line.insert_str(0, text.get(from..).unwrap_or_default());
            file.set_len(0)?;
            file.seek(SeekFrom::Start(0))?;
        }
        file.write_all(line.as_bytes())
    }

    /// Forgets all runs.
    pub fn clear(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Held by one run at a time until it is closed. A run does not wait for long at its end.
    fn open(&self) -> io::Result<File> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&self.0)?;
        locked(file)
    }
}

fn read_text(file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX * 2).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// How much longer a run would have taken without the store: for each host the bytes that the store gave, at the pace at which they
/// were fetched from there in this run and in earlier ones, less the time that the store took. `None` where no host with hits was
/// ever fetched from.
pub fn saved_time(stats: &RunStats, before: &[PastRun]) -> Option<Duration> {
    let mut fetched: HashMap<&str, Fetched> = HashMap::new();
    for host in before.iter().flat_map(|run| &run.hosts).chain(&stats.hosts) {
        fetched.entry(&host.host).or_default().add(host);
    }
    let with_hits = stats.hosts.iter().filter(|host| host.hits > 0);
    let saved: Vec<u64> = with_hits.filter_map(|host| fetched.get(&*host.host)?.would_take(host)).collect();
    (!saved.is_empty()).then(|| Duration::from_micros(saved.iter().sum()))
}

#[derive(Default)]
struct Fetched {
    requests: u64,
    bytes: u64,
    micros: u64,
}

impl Fetched {
    fn add(&mut self, host: &RunHost) {
        if host.fetch_micros > 0 {
            self.requests += host.requests - host.hits.min(host.requests);
            self.bytes += host.bytes_fetched;
            self.micros += host.fetch_micros;
        }
    }

    fn would_take(&self, host: &RunHost) -> Option<u64> {
        // Redirections and validations have no bytes: such a host is known by its requests.
        let (part, whole) = match (host.bytes_from_store, self.bytes) {
            (0, _) | (_, 0) => (host.hits, self.requests),
            bytes => bytes,
        };
        if whole == 0 {
            return None;
        }
        let micros = u128::from(self.micros) * u128::from(part) / u128::from(whole);
        Some(u64::try_from(micros).unwrap_or(u64::MAX).saturating_sub(host.store_micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn host(name: &str, from_store: u64, fetched: u64, fetch_micros: u64) -> RunHost {
        RunHost {
            host: name.to_owned(),
            requests: 2,
            hits: u64::from(from_store > 0),
            bytes_from_store: from_store,
            bytes_fetched: fetched,
            store_micros: 1_000 * u64::from(from_store > 0),
            fetch_micros,
        }
    }

    #[test]
    fn time_saved_follows_the_pace_of_each_host() {
        let before = [PastRun { hosts: vec![host("a.example", 0, 1_000_000, 2_000_000)], ..PastRun::default() }];
        let stats = |hosts: Vec<RunHost>| RunStats { hosts, ..RunStats::default() };
        let saved = |hosts| saved_time(&stats(hosts), &before);
        assert_eq!(saved(vec![host("a.example", 500_000, 0, 0)]), Some(Duration::from_micros(999_000)));
        assert_eq!(saved(vec![host("b.example", 500_000, 0, 0)]), None, "nothing is known of that host");
        assert_eq!(saved(vec![host("a.example", 0, 9, 9)]), None, "nothing came from the store");
        assert_eq!(saved(vec![host("a.example", 1, 0, 0)]), Some(Duration::ZERO), "the store took longer");
    }

    #[test]
    fn the_file_is_bounded_and_belongs_to_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::of(folder.path());
        assert_eq!(history.read().unwrap(), []);
        let hosts: Vec<RunHost> = (0..HOSTS_MAX).map(|n| host(&format!("{n}.example"), 1, 1, 1)).collect();
        let line = serde_json::to_string(&PastRun { hosts: hosts.clone(), ..PastRun::default() }).unwrap().len() as u64;
        let many = FILE_BYTES_MAX / line + 20;
        for at in 0..many {
            history.add(&PastRun { at, hosts: hosts.clone(), ..PastRun::default() }).unwrap();
        }
        let read = history.read().unwrap();
        assert_eq!(read.last().map(|run| run.at), Some(many - 1));
        assert!(read.windows(2).all(|two| two[1].at == two[0].at + 1) && (read.len() as u64) < many, "{}", read.len());
        let meta = std::fs::metadata(&history.0).unwrap();
        assert!(meta.len() <= FILE_BYTES_MAX);
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
        std::fs::write(&history.0, "no json\n{\"at\":7}\n").unwrap();
        assert_eq!(history.read().unwrap().iter().map(|run| run.at).collect::<Vec<_>>(), [7]);
        history.clear().unwrap();
        history.clear().unwrap();
        assert_eq!(history.read().unwrap(), []);
    }
}
