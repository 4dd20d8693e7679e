//! README's snippet for CI, played: jobs on machines that share nothing but an archive of Larder's folder. Other archives are
//! played too: the folder of a job that was killed, one that was packed while a job was at work, and those of damage and of another version.

use super::saved::Saved;
use super::{Bench, SHARE_FROM_STORE_MIN, read_files};
use crate::shell::{self, Bounded, Trouble};
use crate::tally::Tally;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const JOB_SECONDS_MAX: u64 = 60;

/// A job downloads like this: many short files, a repository, and a long file, the last one slowly where it is to be interrupted.
const DOWNLOADS: &str = "\
    mkdir got && cd got
    wget -q -r -np -nH $HTTPS/tree/index.html
    git clone -q $HTTPS/repository.git clone && git -C clone rev-parse HEAD > head && rm -rf clone/.git
    curl -fsS ${PACE:+-A $PACE} -O $HTTPS/tree/big.bin";

/// The name by which a client has files slowly from the origin of the lab: the long one takes some seconds.
const SLOW: &str = "slow";

/// The file whose length says how far a job is.
const LONG_FILE: &str = "got/big.bin";

/// The snippet of README.
struct Snippet {
    /// The folder that stays between jobs.
    folder: String,
    /// The command, up to the one that downloads.
    command: String,
}

impl Snippet {
    fn read(readme: &str) -> Result<Snippet, Trouble> {
        let between = |before: &str, after: &str| {
            let (_, rest) = readme.split_once(before)?;
            Some(rest.split_once(after)?.0.trim().to_owned())
        };
        let folder = between("paths: [", "]").ok_or("README names no folder to keep between jobs")?;
        let command = between("script:\n  - ", " -- ").ok_or("README has no script of a job")?;
        Ok(Snippet { folder, command })
    }
}

/// A machine that ran nothing before: a home and a checkout of its own, at paths of its own.
struct Machine {
    home: PathBuf,
    project: PathBuf,
}

/// The end of a job that went well.
struct Job {
    files: BTreeMap<PathBuf, Vec<u8>>,
    saved: Saved,
    said: String,
}

/// The machines of one play, and the archives between them.
struct Jobs<'a> {
    bench: &'a Bench,
    snippet: Snippet,
    folder: PathBuf,
    wanted: BTreeMap<PathBuf, Vec<u8>>,
}

/// A case, and how it is played.
type Case = (&'static str, fn(&Jobs<'_>) -> Result<String, Trouble>);

const CASES: [Case; 5] = [
    ("CI: two jobs", two_jobs),
    ("CI: a job was killed", after_a_killed_job),
    ("CI: packed at work", packed_at_work),
    ("CI: a damaged archive", damaged_archive),
    ("CI: of a later version", of_a_later_version),
];

/// Plays the cases whose name contains `only`; each one counts as a check.
pub(super) fn play(bench: &Bench, only: Option<&str>) -> Tally {
    let mut tally = Tally::default();
    let mut cases = CASES.iter().filter(|(name, _)| only.is_none_or(|only| name.contains(only))).peekable();
    if cases.peek().is_none() {
        return tally;
    }
    let jobs = match Jobs::begin(bench) {
        Ok(jobs) => jobs,
        Err(trouble) => {
            println!("jobs of a CI: {trouble}");
            return Tally::of(&Err(trouble));
        }
    };
    for (name, case) in cases {
        let outcome = case(&jobs);
        match &outcome {
            Ok(said) => println!("{name:26} ok      {said}"),
            Err(trouble) => println!("{name:26} FAILED  {trouble}"),
        }
        tally.add(Tally::of(&outcome.map(drop)));
    }
    tally
}

impl<'a> Jobs<'a> {
    fn begin(bench: &'a Bench) -> Result<Jobs<'a>, Trouble> {
        let readme = shell::workspace()?.join("README.md");
        let text = fs::read_to_string(&readme).map_err(|error| format!("reading {}: {error}", readme.display()))?;
        let folder = bench.folder.join("jobs");
        let mut jobs = Jobs { bench, snippet: Snippet::read(&text)?, folder, wanted: BTreeMap::new() };
        let machine = jobs.machine("bare")?;
        let mut command = jobs.command(&machine, "sh -e download.sh");
        command.envs(super::TRUST.map(|name| (name, bench.variable("LAB_TRUST"))));
        command.env("WGETRC", bench.variable("LAB_WGETRC"));
        finished(&shell::bounded(&mut command, JOB_SECONDS_MAX)?)?;
        jobs.wanted = read_files(&machine.project.join("got"))?;
        Ok(jobs)
    }

    fn machine(&self, name: &str) -> Result<Machine, Trouble> {
        let at = self.folder.join(name);
        // Paths of different lengths: nothing in the folder may depend on where it lay.
        let machine = Machine { home: at.join("home"), project: at.join(format!("builds/{name}/project")) };
        let made = [machine.home.join(".config/larder"), at.join("bin"), machine.project.clone()];
        let trouble = |error| format!("making the machine {name}: {error}");
        made.iter().try_for_each(fs::create_dir_all).map_err(trouble)?;
        symlink(&self.bench.larder, at.join("bin/larder")).map_err(trouble)?;
        fs::copy(&self.bench.config, machine.home.join(".config/larder/larder.toml")).map_err(trouble)?;
        fs::write(machine.project.join("download.sh"), DOWNLOADS).map_err(trouble)?;
        Ok(machine)
    }

    /// A machine that begins with what an archive has.
    fn machine_with(&self, name: &str, archive: &Path) -> Result<Machine, Trouble> {
        let machine = self.machine(name)?;
        let mut tar = Command::new("tar");
        shell::ask(tar.current_dir(&machine.project).arg("-xf").arg(archive))?;
        Ok(machine)
    }

    /// A line of a job's script, with nothing of this desk's environment but the search path.
    fn command(&self, machine: &Machine, line: &str) -> Command {
        let mut command = Command::new("sh");
        let path = std::env::var("PATH").unwrap_or_default();
        let own = machine.home.with_file_name("bin");
        command.current_dir(&machine.project).args(["-ec", line]).env_clear();
        command.env("HOME", &machine.home).env("PATH", format!("{}:{path}", own.display()));
        command.env("HTTPS", self.bench.variable("HTTPS"));
        command
    }

    fn downloads(&self) -> String {
        format!("{} -- sh -e download.sh", self.snippet.command)
    }

    /// Plays the job to its end. It has to bring the right files and a summary that can be read, with any store that it began with.
    fn job(&self, machine: &Machine) -> Result<Job, Trouble> {
        let ran = shell::bounded(&mut self.command(machine, &self.downloads()), JOB_SECONDS_MAX)?;
        finished(&ran)?;
        self.ended(machine, ran.said)
    }

    fn ended(&self, machine: &Machine, said: String) -> Result<Job, Trouble> {
        let files = read_files(&machine.project.join("got"))?;
        if files != self.wanted {
            return Err(format!("other files than without Larder: {said}"));
        }
        Ok(Job { files, saved: Saved::read(&machine.project.join("saved.json"))?, said })
    }

    /// Begins the job with a slow line and gives it when so many bytes of the long file are there.
    fn at_work(&self, machine: &Machine, bytes: u64) -> Result<Running, Trouble> {
        let mut command = self.command(machine, &self.downloads());
        let command = command.env("PACE", SLOW).process_group(0).stdin(Stdio::null());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut running = Running(child.map_err(|error| format!("starting a job: {error}"))?);
        running.wait_for(&machine.project.join(LONG_FILE), bytes)?;
        Ok(running)
    }

    /// Packs Larder's folder, as the end of a job does.
    fn pack(&self, machine: &Machine, name: &str) -> Result<PathBuf, Trouble> {
        let archive = self.folder.join(format!("{name}.tar"));
        let mut tar = Command::new("tar");
        tar.current_dir(&machine.project).arg("-cf").arg(&archive).arg(&self.snippet.folder);
        let ran = shell::bounded(&mut tar, JOB_SECONDS_MAX)?;
        // 1: a file changed while it was read.
        match ran.status {
            Some(0 | 1) => Ok(archive),
            _ => Err(format!("tar: {}", ran.said)),
        }
    }

    /// The job after these, on a machine of its own: nearly all comes from the store.
    fn last_job(&self, before: &Machine, name: &str) -> Result<Job, Trouble> {
        let archive = self.pack(before, name)?;
        let job = self.job(&self.machine_with(name, &archive)?)?;
        if job.saved.share_from_store() < SHARE_FROM_STORE_MIN {
            return Err(format!("too little from the store: {}\n{}", job.saved, job.saved.exchanges()));
        }
        Ok(job)
    }
}

/// A job under way, in a process group of its own, which is killed when this is dropped.
struct Running(Child);

impl Running {
    fn wait_for(&mut self, file: &Path, bytes: u64) -> Result<(), Trouble> {
        let began = Instant::now();
        while fs::metadata(file).map_or(0, |file| file.len()) < bytes {
            if !matches!(self.0.try_wait(), Ok(None)) || began.elapsed() > Duration::from_secs(JOB_SECONDS_MAX) {
                return Err(format!("{} did not come to {bytes} bytes while the job ran", file.display()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn end(mut self) -> Result<(), Trouble> {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(JOB_SECONDS_MAX) {
            match self.0.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("the job that was packed at work ended with {status}")),
                _ => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        Err("the job that was packed at work did not end".to_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        shell::end_group(&mut self.0);
    }
}

fn finished(ran: &Bounded) -> Result<(), Trouble> {
    match ran.status {
        Some(0) => Ok(()),
        Some(status) => Err(format!("status {status}: {}", ran.said)),
        None => Err(format!("not done within {JOB_SECONDS_MAX} s: {}", ran.said)),
    }
}

fn two_jobs(jobs: &Jobs<'_>) -> Result<String, Trouble> {
    let first = jobs.machine("first")?;
    let began = jobs.job(&first)?;
    if !began.saved.keeps || began.saved.share_from_store() > 0.0 {
        return Err(format!("the first job: {}", began.saved));
    }
    let second = jobs.last_job(&first, "second")?;
    Ok(format!("{} files; the second job: {}", second.files.len(), second.saved))
}

/// All that was whole when the job was killed comes from the store.
fn after_a_killed_job(jobs: &Jobs<'_>) -> Result<String, Trouble> {
    let killed = jobs.machine("killed")?;
    drop(jobs.at_work(&killed, 6_000_000)?);
    let after = jobs.machine_with("after-killed", &jobs.pack(&killed, "killed")?)?;
    let next = jobs.job(&after)?;
    if next.saved.requests > next.saved.hits + 1 {
        return Err(format!("the next job: {}\n{}", next.saved, next.saved.exchanges()));
    }
    let last = jobs.last_job(&after, "two-after-killed")?;
    Ok(format!("the next job: {}; the one after it: {}", next.saved, last.saved))
}

/// The files of the store were read at different moments, so that they do not fit each other.
fn packed_at_work(jobs: &Jobs<'_>) -> Result<String, Trouble> {
    let working = jobs.machine("working")?;
    let mut running = jobs.at_work(&working, 1_000_000)?;
    let mut archives = Vec::new();
    for at in [1_000_000, 5_000_000, 9_000_000, 14_000_000] {
        running.wait_for(&working.project.join(LONG_FILE), at)?;
        archives.push(jobs.pack(&working, &format!("at-{at}"))?);
    }
    running.end()?;
    jobs.ended(&working, String::new())?;
    let mut shares = Vec::new();
    for (number, archive) in archives.iter().enumerate() {
        let machine = jobs.machine_with(&format!("from-work-{number}"), archive)?;
        let next = jobs.job(&machine)?;
        let last = jobs.last_job(&machine, &format!("after-work-{number}"))?;
        shares.push(format!("{:.0} %, then {:.0} %", percent(&next), percent(&last)));
    }
    Ok(format!("of four archives: {}", shares.join("; ")))
}

/// A file of the store, and what becomes of its bytes.
type Damage = (&'static str, fn(&[u8]) -> Vec<u8>);

/// An archive that was cut short or changed on its way: what is left of the store is not trusted beyond its checksums.
fn damaged_archive(jobs: &Jobs<'_>) -> Result<String, Trouble> {
    let sound = jobs.machine("sound")?;
    jobs.job(&sound)?;
    let archive = jobs.pack(&sound, "sound")?;
    let mut shares = Vec::new();
    let damages: [Damage; 4] = [
        ("larder.store", |_| b"nothing that a store has".to_vec()),
        ("larder.numbers", |_| Vec::new()),
        ("data-000", |bytes| bytes[..9_000_000].to_vec()),
        ("data-000", |bytes| {
            bytes.iter().enumerate().map(|(at, byte)| if at % 999_983 == 0 { !byte } else { *byte }).collect()
        }),
    ];
    for (number, (name, damage)) in damages.into_iter().enumerate() {
        let machine = jobs.machine_with(&format!("damaged-{number}"), &archive)?;
        let file = machine.project.join(&jobs.snippet.folder).join("disk").join(name);
        let bytes = fs::read(&file).map_err(|error| format!("reading {}: {error}", file.display()))?;
        fs::write(&file, damage(&bytes)).map_err(|error| format!("writing {}: {error}", file.display()))?;
        let next = jobs.job(&machine).map_err(|trouble| format!("{name} damaged: {trouble}"))?;
        let last = jobs.last_job(&machine, &format!("after-damaged-{number}"))?;
        shares.push(format!("{name} {:.0} %, then {:.0} %", percent(&next), percent(&last)));
    }
    Ok(shares.join("; "))
}

/// The format of a store that this program does not know: the job goes on without it, says so, and leaves it as it is.
fn of_a_later_version(jobs: &Jobs<'_>) -> Result<String, Trouble> {
    let later = jobs.machine("later")?;
    jobs.job(&later)?;
    let machine = jobs.machine_with("earlier", &jobs.pack(&later, "later")?)?;
    let disk = machine.project.join(&jobs.snippet.folder).join("disk");
    let file = disk.join("larder.store");
    let trouble = |error| format!("changing {}: {error}", file.display());
    let mut bytes = fs::read(&file).map_err(trouble)?;
    bytes[8] += 1;
    let sum = crc32c(&bytes[..60]).to_le_bytes();
    bytes[60..64].copy_from_slice(&sum);
    fs::write(&file, bytes).map_err(trouble)?;
    let before = read_files(&disk)?;
    let job = jobs.job(&machine)?;
    if !job.said.contains("has format 2") || job.saved.keeps || job.saved.share_from_store() > 0.0 {
        return Err(format!("it does not say so: {}\n{}", job.saved, job.said));
    }
    if read_files(&disk)? != before {
        return Err("the store of the later version was changed".to_owned());
    }
    Ok("nothing from the store, which stays as it is".to_owned())
}

fn percent(job: &Job) -> f64 {
    job.saved.share_from_store() * 100.0
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_of_the_standard() {
        // RFC 3720 appendix B.4: 32 bytes of zeros.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn the_snippet_is_read() {
        let snippet = Snippet::read(include_str!("../../../README.md")).unwrap();
        assert_eq!(snippet.folder, ".larder");
        assert_eq!(snippet.command, "larder run --store .larder --json saved.json");
        assert!(Snippet::read("").is_err());
    }
}
