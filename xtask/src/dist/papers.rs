//! Manual pages and completions, as the program that is packaged writes them.

use crate::shell::{self, Trouble};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The papers of one program.
pub struct Papers {
    /// Name of the file (`larder.1`) and its text.
    pub manual: BTreeMap<String, Vec<u8>>,
    completions: BTreeMap<&'static str, String>,
}

impl Papers {
    /// Has the program write them. Its version has to be the one that is packaged.
    pub fn of(program: &Path, version: &str) -> Result<Papers, Trouble> {
        let said = shell::ask(Command::new(program).arg("--version"))?;
        if said.split_whitespace().nth(1) != Some(version) {
            return Err(format!("{} is {}, and {version} is packaged", program.display(), said.trim()));
        }
        let folder = tempfile::tempdir().map_err(|error| format!("making a folder: {error}"))?;
        shell::ask(Command::new(program).arg("man").arg(folder.path()))?;
        let mut manual = BTreeMap::new();
        for entry in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            let page = fs::read(entry.path()).map_err(|error| format!("reading a manual page: {error}"))?;
            manual.insert(entry.file_name().to_string_lossy().into_owned(), page);
        }
        let mut completions = BTreeMap::new();
        for shell in ["bash", "zsh", "fish"] {
            completions.insert(shell, shell::ask(Command::new(program).args(["completions", shell]))?);
        }
        Ok(Papers { manual, completions })
    }

    /// The completions for a shell.
    pub fn completion(&self, shell: &str) -> Result<String, Trouble> {
        self.completions.get(shell).cloned().ok_or_else(|| format!("no completions for {shell}"))
    }
}
