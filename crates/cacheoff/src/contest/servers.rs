//! The needs of entries that make pages, beside their program: an interpreter, other programs, and the database of the
//! board.

use super::entry::EntrySpec;
use super::post::Servers;
use super::programs::{find_program, is_program, run_to_end};
use crate::board::Board;
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

/// The Python of the virtual environment, or the one of the system.
pub(super) fn interpreter(servers: &Servers) -> Result<PathBuf, String> {
    let Some(folder) = &servers.python else {
        let package = "apt-get install python3: it makes the database of the board";
        return find_program("python3", package, []);
    };
    let folder = std::path::absolute(folder).map_err(|error| format!("--python {}: {error}", folder.display()))?;
    let own = folder.join("bin/python");
    match is_program(&own) {
        true => Ok(own),
        false => {
            Err(format!("--python {}: there is no bin/python in it; name a virtual environment", folder.display()))
        }
    }
}

/// The program that makes the board's database, and the files in the entry's own folder that it reads.
const MAKER: &str = include_str!("../../entries/applications/make_board.py");
const MAKER_FILE: &str = "make_board.py";
const STATEMENTS_FILE: &str = "board.sql";

/// Says what an entry needs beside its program and has not.
pub(super) fn check_needs(needs: &[[String; 2]]) -> Result<(), String> {
    for [wanted, package] in needs {
        let is_there = match wanted.contains('/') {
            true => Path::new(wanted).exists(),
            false => find_program(wanted, package, []).is_ok(),
        };
        if !is_there {
            return Err(format!("{wanted} is not installed ({package})"));
        }
    }
    Ok(())
}

/// The database of the board, to be made before the first start.
#[derive(Debug)]
pub(super) struct Database {
    /// Its file.
    pub path: PathBuf,
    /// The Python that makes it.
    pub interpreter: PathBuf,
    /// The user and the group that it belongs to, if not to this process's.
    pub owner: Option<(u32, u32)>,
}

impl Database {
    /// Makes it anew, in the entry's own folder or where it is to lie.
    pub fn make(&self, spec: &EntrySpec, folder: &Path) -> Result<(), String> {
        let fail =
            |error: std::io::Error| format!("entry {}: the database {}: {error}", spec.name, self.path.display());
        fs::write(folder.join(MAKER_FILE), MAKER).map_err(fail)?;
        fs::write(folder.join(STATEMENTS_FILE), Board::new().statements()).map_err(fail)?;
        if self.path.exists() {
            fs::remove_file(&self.path).map_err(fail)?;
        }
        let words = [&*self.interpreter, Path::new(MAKER_FILE), &*self.path, Path::new(STATEMENTS_FILE)];
        run_to_end(&spec.name, &words.map(|word| word.display().to_string()), folder)?;
        match self.owner {
            Some((user, group)) => chown(&self.path, Some(user), Some(group)).map_err(fail),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_interpreter_or_program_is_said_with_its_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let servers = Servers { python: Some(folder.path().to_owned()), ..Servers::default() };
        assert!(interpreter(&servers).unwrap_err().contains("there is no bin/python in it"));
        let need = |wanted: &str| check_needs(&[[wanted.to_owned(), "apt-get install wanted".to_owned()]]);
        assert_eq!(
            need("/nowhere/at-all.so").unwrap_err(),
            "/nowhere/at-all.so is not installed (apt-get install wanted)"
        );
        assert!(need("no-such-program").unwrap_err().contains("(apt-get install wanted)"));
        assert!(need("sh").is_ok() && need("/proc/self").is_ok());
    }
}
