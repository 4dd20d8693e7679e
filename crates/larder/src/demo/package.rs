//! A package from a real registry, where there is a network and a tool that downloads one. The demo promises nothing here: a registry
//! may be out of reach, and may forbid to keep what it sends.

use super::screen::Screen;
use super::{AnyError, Stage, Told, find_program};
use std::ffi::OsString;
use std::path::Path;
use std::{fs, io};

/// Programs and the words for a package without dependencies; the folder for it comes behind them.
const TOOLS: [(&str, &[&str]); 2] = [
    (
        "pip3",
        &[
            "download",
            "-q",
            "--no-deps",
            "--no-cache-dir",
            "--disable-pip-version-check",
            "--retries=0",
            "--timeout=5",
            "six",
            "-d",
        ],
    ),
    ("npm", &["pack", "--silent", "--fetch-retries=0", "--fetch-timeout=5000", "is-number", "--pack-destination"]),
];

impl Stage {
    pub(super) async fn package(&self, screen: &Screen) {
        for (program, words) in TOOLS.into_iter().filter(|(program, _)| find_program(program).is_some()) {
            let package = words.iter().rev().nth(1).copied().unwrap_or_default();
            if let Ok([first, second]) = self.package_twice(program, words).await {
                return screen.package(&format!("{program} {} {package}", words[0]), &first, &second);
            }
        }
        screen.no_package();
    }

    async fn package_twice(&self, program: &str, words: &[&str]) -> Result<[Told; 2], AnyError> {
        let config = self.path("plain.toml");
        fs::write(&config, "")?;
        let mut told = Vec::new();
        for (name, flags) in [("online", &[][..]), ("offline", &["--offline"])] {
            let folder = self.path(&format!("{program}-{name}"));
            fs::create_dir_all(&folder)?;
            let own_cache =
                OsString::from(format!("npm_config_cache={}", self.path(&format!("cache-{name}")).display()));
            let mut all: Vec<OsString> = vec!["env".into(), own_cache, program.into()];
            all.extend(words.iter().map(OsString::from));
            all.push(folder.clone().into());
            let run = self.run(&config, flags, &all).await?;
            if run.status != 0 || run.stats.requests == 0 {
                return Err(format!("{program} ended with {}", run.status).into());
            }
            told.push((run, files(&folder)?));
        }
        let [(first, one), (second, other)] = <[_; 2]>::try_from(told).map_err(|_| "no two runs")?;
        if one != other || one.is_empty() { Err("other files".into()) } else { Ok([first, second]) }
    }
}

fn files(folder: &Path) -> io::Result<Vec<(OsString, Vec<u8>)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        files.push((entry.file_name(), fs::read(entry.path())?));
    }
    files.sort();
    Ok(files)
}
