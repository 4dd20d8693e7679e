//! Programs of tests, which cargo builds and which are run without it: some at a time, or those alone that are new.

use crate::shell::{self, Trouble};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;

/// A program of tests that was built.
#[derive(Debug)]
pub struct TestProgram {
    /// The name of its target: that of the library, or of the file of tests.
    pub name: String,
    /// Where it lies.
    pub path: PathBuf,
    /// The folder of its crate, where cargo runs it.
    pub folder: PathBuf,
}

impl TestProgram {
    /// From a line that cargo prints for each part that it built or found built.
    fn read(line: &str) -> Option<TestProgram> {
        let built: Value = serde_json::from_str(line).ok()?;
        let is_test = built["profile"]["test"].as_bool()?;
        Some(TestProgram {
            name: built["target"]["name"].as_str().filter(|_| is_test)?.to_owned(),
            path: built["executable"].as_str()?.into(),
            folder: Path::new(built["manifest_path"].as_str()?).parent()?.to_owned(),
        })
    }

    /// A call of it, as cargo calls it.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }

    /// When it was linked, in nanoseconds since 1970.
    pub fn linked(&self) -> Option<u128> {
        let modified = self.path.metadata().ok()?.modified().ok()?;
        Some(modified.duration_since(UNIX_EPOCH).ok()?.as_nanos())
    }
}

/// The programs of tests in the workspace that these arguments of cargo select, built now.
pub fn built(root: &Path, selected: &[&str]) -> Result<Vec<TestProgram>, Trouble> {
    let flags = ["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"];
    let said = shell::ask(shell::cargo(root, &flags).args(selected))?;
    Ok(said.lines().filter_map(TestProgram::read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_of_tests_are_read() {
        let line = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/a/Cargo.toml","target":{{"name":"n"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let program = TestProgram::read(&line(true, "\"/t/n-1\"")).unwrap();
        assert_eq!((program.name.as_str(), program.folder), ("n", PathBuf::from("/a")));
        assert!(TestProgram::read(&line(false, "\"/t/n\"")).is_none());
        assert!(TestProgram::read(&line(true, "null")).is_none());
        assert!(TestProgram::read("Compiling n").is_none());
    }
}
