//! `larder demo`: the same downloads twice through `larder run`, the second time without a network.
//!
//! The origin is one of the demo's own (`origin`), so that it works anywhere. Both runs are `larder run` in processes of their own,
//! as a person would call it, with a store in a temporary folder: the second one finds what lies on disk. Everything that is printed
//! was measured or comes from the records of the runs.

mod client;
mod origin;
mod package;
mod screen;

pub use client::download;

use crate::run::control::RunStats;
use crate::run::folder::Temporary;
use origin::Origin;
use screen::Screen;
use serde::Deserialize;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

/// No download of the demo takes longer.
const RUN_WITHIN: Duration = Duration::from_secs(60);

type AnyError = Box<dyn Error + Send + Sync>;

/// The parts to play.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Without the package from a real registry.
    pub local: bool,
}

/// Whether something was as promised, for the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All of it was.
    Kept,
    /// Something was not.
    Broken,
}

impl From<Verdict> for u8 {
    fn from(verdict: Verdict) -> u8 {
        u8::from(verdict == Verdict::Broken)
    }
}

/// Plays the demo and prints what happens.
pub fn play(options: &Options) -> Result<Verdict, AnyError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let stage = Stage::new()?;
    let screen = Screen::new();
    runtime.block_on(async {
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let mut hang_up = signal(SignalKind::hangup())?;
        tokio::select! {
            outcome = stage.play(&screen, options) => outcome,
            _ = terminate.recv() => Err("stopped by a signal".into()),
            _ = hang_up.recv() => Err("the terminal is gone".into()),
            _ = interrupt.recv() => Err("stopped by a signal".into()),
        }
    })
}

/// The folder of one demo, and how its commands are called.
struct Stage {
    folder: Temporary,
    program: PathBuf,
}

/// A run as it told of itself.
#[derive(Deserialize)]
struct Told {
    status: u8,
    seconds: f64,
    #[serde(flatten)]
    stats: RunStats,
}

/// Files by name, with the URLs of the origin that they come from.
const DOWNLOADS: [(&str, &str); 3] =
    [("notes.txt", "/notes.txt"), ("index.json", "/index.json"), ("tool.tar", "/latest")];

impl Stage {
    fn new() -> Result<Stage, AnyError> {
        Ok(Stage { folder: Temporary::new()?, program: std::env::current_exe()? })
    }

    async fn play(&self, screen: &Screen, options: &Options) -> Result<Verdict, AnyError> {
        let origin = Origin::start(&self.path("origin"))?;
        let address = origin.address();
        screen.begin(address);
        let config = self.path("larder.toml");
        fs::write(&config, format!("[upstream]\nextra_roots = [{:?}]\n", origin.certificate().display().to_string()))?;

        let words = self.downloads(address, "first");
        screen.command(1, "larder run --", &shown(&words));
        let first = self.run(&config, &[], &words).await?;
        let asked = origin.asked();
        screen.fetched(&first);

        let refused = origin.stop() && TcpStream::connect(address).is_err();
        screen.stopped(refused);
        let words = self.downloads(address, "second");
        screen.command(2, "larder run --offline --", &[" (the same command)".to_owned()]);
        let second = self.run(&config, &["--offline"], &words).await?;
        screen.offline(&second);

        let checks = [
            (
                asked == first.stats.requests && asked > 0,
                format!("every one of {asked} requests reached the origin the first time"),
            ),
            (refused, "the origin was gone the second time, its port closed".to_owned()),
            (self.same_files()?, format!("{} files, the same bytes both times", DOWNLOADS.len())),
            (
                second.status == 0 && second.stats.hits == second.stats.requests && second.stats.bytes_fetched == 0,
                "everything came from the store".to_owned(),
            ),
        ];
        let kept = screen.checks(&checks);
        screen.saved(&first, &second);
        if !options.local {
            self.package(screen).await;
        }
        screen.next(&self.program);
        Ok(if kept { Verdict::Kept } else { Verdict::Broken })
    }

    /// A download by curl, or by this program where there is none.
    fn downloads(&self, origin: SocketAddr, into: &str) -> Vec<OsString> {
        let url = |path: &str| format!("https://localhost:{}{path}", origin.port());
        let file = |name: &str| self.path(into).join(name);
        let curl = find_program("curl");
        let mut words: Vec<OsString> = match curl {
            Some(_) => ["curl", "-q", "-sSfL", "--compressed", "--create-dirs"].map(OsString::from).into(),
            None => vec![self.program.clone().into(), "demo".into(), "--download".into()],
        };
        for (name, path) in DOWNLOADS {
            match curl {
                Some(_) => words.extend(["-o".into(), file(name).into(), url(path).into()]),
                None => words.extend([url(path).into(), file(name).into()]),
            }
        }
        words
    }

    /// `larder run` with a store of the demo's own, in a process of its own.
    async fn run(&self, config: &Path, flags: &[&str], words: &[OsString]) -> Result<Told, AnyError> {
        let told = self.path("told.json");
        let mut command = Command::new(&self.program);
        command.arg("run").arg("--quiet").args(flags).arg("--config").arg(config);
        command.arg("--store").arg(self.path("store")).arg("--json").arg(&told).arg("--").args(words);
        // All that a run leaves behind when it is killed lies in the demo's folder, which goes.
        command.env("TMPDIR", self.folder.path());
        // An exception for localhost would lead around Larder.
        command.env_remove("NO_PROXY").env_remove("no_proxy").stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::piped()).kill_on_drop(true);
        let output = match tokio::time::timeout(RUN_WITHIN, command.output()).await {
            Ok(output) => output?,
            Err(_) => return Err(format!("the download was not done within {} s", RUN_WITHIN.as_secs()).into()),
        };
        let said = String::from_utf8_lossy(&output.stderr);
        if !said.trim().is_empty() {
            return Err(format!("the download said: {}", said.trim()).into());
        }
        let text = fs::read(&told).map_err(|error| format!("the run told nothing: {error}"))?;
        let _ = fs::remove_file(&told);
        Ok(serde_json::from_slice(&text)?)
    }

    fn same_files(&self) -> Result<bool, AnyError> {
        for (name, _) in DOWNLOADS {
            let [first, second] = ["first", "second"].map(|folder| fs::read(self.path(folder).join(name)));
            let (first, second) = (first?, second?);
            if first != second || !origin::is_whole(name, &first) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// A command as people would type it, a line for each download; folders of the demo are left out.
fn shown(words: &[OsString]) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words {
        let word = word.to_string_lossy();
        let name = match Path::new(&*word) {
            path if path.is_absolute() => path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default(),
            _ => word.clone(),
        };
        match &*word {
            "-q" | "--create-dirs" => continue,
            "-o" => lines.push(name.into_owned()),
            _ => {
                let line = lines.last_mut().into_iter();
                line.for_each(|line| line.push_str(&format!(" {name}")));
            }
        }
    }
    lines
}

/// A program in the folders of `PATH`.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}
