//! The troubles: how each is made, and how it is mended again.

use super::Subject;
use super::names::Mood;
use crate::shell;
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::Command;

/// One kind of failure.
pub struct Trouble {
    /// Its name.
    pub name: &'static str,
    /// Makes it fail; the error says why that could not be played.
    pub begin: fn(&Subject) -> Result<(), shell::Trouble>,
    /// Mends it.
    pub end: fn(&Subject),
}

/// All of them, in turn.
pub const TROUBLES: &[Trouble] = &[
    Trouble { name: "standard error has no reader, and a reload writes to it", begin: reload, end: |_| () },
    Trouble { name: "the log's disk is full", begin: full_log, end: empty_log },
    Trouble { name: "the log is a FIFO without a reader", begin: fifo_log, end: file_log },
    Trouble { name: "the log's folder is gone", begin: no_log_folder, end: log_folder },
    Trouble { name: "the name server is silent", begin: |s| mood(s, Mood::Silent), end: names_right },
    Trouble { name: "the name server fails", begin: |s| mood(s, Mood::Fails), end: names_right },
    Trouble { name: "names with 200 addresses", begin: |s| mood(s, Mood::Floods), end: names_right },
    Trouble { name: "the store's disk is full", begin: full_store, end: empty_store },
    Trouble { name: "the store's files are cut to half under it", begin: cut_store, end: |_| () },
    Trouble { name: "the clock is a day ahead", begin: |s| clock(s, "+1d"), end: clock_right },
    Trouble { name: "the clock is a day behind", begin: |s| clock(s, "-1d"), end: clock_right },
];

fn reload(subject: &Subject) -> Result<(), shell::Trouble> {
    for _ in 0..5 {
        subject.signal(Signal::HUP);
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    Ok(())
}

fn full_log(subject: &Subject) -> Result<(), shell::Trouble> {
    fill(&subject.seen.join("log/ballast"))?;
    subject.signal(Signal::USR1);
    Ok(())
}

fn empty_log(subject: &Subject) {
    fs::remove_file(subject.seen.join("log/ballast")).ok();
    // Moves the log away and has it opened anew, as log rotation does.
    fs::remove_file(subject.seen.join("log/access.log")).ok();
    subject.signal(Signal::USR1);
}

fn fifo_log(subject: &Subject) -> Result<(), shell::Trouble> {
    // In place at once: the server could make its log anew where a file is taken away first.
    let (log, fifo) = (subject.seen.join("log/access.log"), subject.seen.join("log/fifo"));
    fs::remove_file(&fifo).ok();
    shell::call(Command::new("mkfifo").arg(&fifo))?;
    fs::rename(&fifo, &log).map_err(|error| error.to_string())?;
    subject.signal(Signal::USR1);
    Ok(())
}

fn file_log(subject: &Subject) {
    fs::remove_file(subject.seen.join("log/access.log")).ok();
    subject.signal(Signal::USR1);
}

fn no_log_folder(subject: &Subject) -> Result<(), shell::Trouble> {
    fs::remove_file(subject.seen.join("log/access.log")).ok();
    in_its_mounts(subject, &["umount", "-l"], "log")?;
    fs::remove_dir(subject.seen.join("log")).ok();
    subject.signal(Signal::USR1);
    Ok(())
}

fn log_folder(subject: &Subject) {
    fs::create_dir_all(subject.seen.join("log")).ok();
    in_its_mounts(subject, &["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs"], "log").ok();
    subject.signal(Signal::USR1);
}

fn mood(subject: &Subject, mood: Mood) -> Result<(), shell::Trouble> {
    subject.names.be(mood);
    Ok(())
}

fn names_right(subject: &Subject) {
    subject.names.be(Mood::Right);
}

fn full_store(subject: &Subject) -> Result<(), shell::Trouble> {
    fill(&subject.seen.join("store/ballast"))
}

fn empty_store(subject: &Subject) {
    fs::remove_file(subject.seen.join("store/ballast")).ok();
}

/// As a device that loses what was written to it: whoever reads finds an end where bytes were.
fn cut_store(subject: &Subject) -> Result<(), shell::Trouble> {
    cut(&subject.seen.join("store/disk"))
}

fn cut(folder: &Path) -> Result<(), shell::Trouble> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            cut(&path)?;
        } else if let Ok(file) = fs::OpenOptions::new().write(true).open(&path) {
            let length = file.metadata().map_or(0, |data| data.len());
            file.set_len(length / 2).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(())
}

fn clock(subject: &Subject, offset: &str) -> Result<(), shell::Trouble> {
    let file = subject.clock.as_ref().ok_or("libfaketime is not installed")?;
    fs::write(file, format!("{offset}\n")).map_err(|error| format!("the clock: {error}"))
}

fn clock_right(subject: &Subject) {
    clock(subject, "+0").ok();
}

/// Writes until nothing more fits.
fn fill(path: &Path) -> Result<(), shell::Trouble> {
    use std::io::Write;
    let mut file = fs::File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let block = vec![0; 64 * 1024];
    while file.write_all(&block).is_ok() {}
    let byte = [0];
    while file.write_all(&byte).is_ok() {}
    Ok(())
}

/// Runs a command on one of the subject's folders, among its mounts.
fn in_its_mounts(subject: &Subject, words: &[&str], folder: &str) -> Result<(), shell::Trouble> {
    let seen = subject.seen.to_string_lossy();
    let own = seen.strip_prefix(&format!("/proc/{}/root", subject.id)).unwrap_or(&seen);
    let mut command = Command::new("nsenter");
    command.args(["-t", &subject.id.to_string(), "-m"]).args(words).arg(format!("{own}/{folder}"));
    shell::call(&mut command)
}
