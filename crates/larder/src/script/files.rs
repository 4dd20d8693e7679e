//! The runtime that processes import, which stands in the program and is written into the server's folder.

use crate::mount::FILE_EXTENSION;
use crate::run::folder::Temporary;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The package `larder`.
const RUNTIME: &[(&str, &str)] = &[
    ("__init__.py", include_str!("../../../../python/larder/__init__.py")),
    ("_answers.py", include_str!("../../../../python/larder/_answers.py")),
    ("_asserting.py", include_str!("../../../../python/larder/_asserting.py")),
    ("_asgi.py", include_str!("../../../../python/larder/_asgi.py")),
    ("_calls.py", include_str!("../../../../python/larder/_calls.py")),
    ("_checks.py", include_str!("../../../../python/larder/_checks.py")),
    ("_children.py", include_str!("../../../../python/larder/_children.py")),
    ("_confine.py", include_str!("../../../../python/larder/_confine.py")),
    ("_decisions.py", include_str!("../../../../python/larder/_decisions.py")),
    ("_definitions.py", include_str!("../../../../python/larder/_definitions.py")),
    ("_hooks.py", include_str!("../../../../python/larder/_hooks.py")),
    ("_http.py", include_str!("../../../../python/larder/_http.py")),
    ("_messages.py", include_str!("../../../../python/larder/_messages.py")),
    ("_peers.py", include_str!("../../../../python/larder/_peers.py")),
    ("_poll.py", include_str!("../../../../python/larder/_poll.py")),
    ("_runner.py", include_str!("../../../../python/larder/_runner.py")),
    ("_runtime.py", include_str!("../../../../python/larder/_runtime.py")),
    ("_views.py", include_str!("../../../../python/larder/_views.py")),
    ("_websocket.py", include_str!("../../../../python/larder/_websocket.py")),
    ("_wsgi.py", include_str!("../../../../python/larder/_wsgi.py")),
    // Its types are for checkers and editors (PEP 561).
    ("py.typed", include_str!("../../../../python/larder/py.typed")),
    ("testing.py", include_str!("../../../../python/larder/testing.py")),
];

/// The longest path of a folder in which sockets have names that the system takes (108 bytes with the last one 0).
const FOLDER_BYTES_MAX: usize = 80;

/// The folder of versions of hooks that are kept.
const KEPT: &str = "kept";

/// Where the runtime and the sockets of processes are.
pub(super) struct ScriptFolder {
    path: PathBuf,
    /// In place of a folder whose path is too long for a socket.
    _temporary: Option<Temporary>,
}

/// Writes the package `larder` into a folder, readable by its owner alone: for processes, and for authors' tests and editors.
pub fn write_library(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder.join("larder"))?;
    RUNTIME.iter().try_for_each(|(name, text)| fs::write(folder.join("larder").join(name), text))
}

/// Whether the package imports a module of this name. A file of an author's with that name would be imported in its place.
pub fn imports(module: &str) -> bool {
    let is_it = |line: &str| {
        let named = ["import ", "from "].into_iter().find_map(|word| line.trim_start().strip_prefix(word));
        named.is_some_and(|rest| rest.split([' ', '.', ',']).next() == Some(module))
    };
    RUNTIME.iter().any(|(_, text)| text.lines().any(is_it))
}

impl ScriptFolder {
    /// Writes the runtime below the server's folder, readable by its owner alone.
    pub fn below(store: &Path) -> io::Result<ScriptFolder> {
        let (path, temporary) = match store.join("python") {
            path if path.as_os_str().len() <= FOLDER_BYTES_MAX => (path, None),
            _ => {
                let temporary = Temporary::new()?;
                (temporary.path().join("python"), Some(temporary))
            }
        };
        write_library(&path.join("lib"))?;
        let _ = fs::remove_dir_all(path.join(KEPT));
        // Sockets of a server that was killed, and files of buffers that it had just made.
        let is_left = |path: &Path| path.extension().is_some_and(|end| end == "sock" || end == FILE_EXTENSION);
        for entry in fs::read_dir(&path)?.flatten() {
            if is_left(&entry.path()) {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(ScriptFolder { path: path.canonicalize()?, _temporary: temporary })
    }

    /// The folder itself: the server's own, for files that nobody else sees.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder that stands first in the path of modules.
    pub fn library(&self) -> PathBuf {
        self.path.join("lib")
    }

    /// The folder of a version that was first loaded by the process with this number.
    pub fn kept(&self, number: u64) -> PathBuf {
        self.path.join(KEPT).join(number.to_string())
    }

    /// The socket of the process with this number.
    pub fn socket(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number}.sock"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_package_is_in_the_program() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/larder");
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let is_module =
            |path: &PathBuf| path.extension().is_some_and(|extension| extension == "py" || extension == "typed");
        let mut there: Vec<_> = files.filter(is_module).map(|path| path.file_name().unwrap().to_owned()).collect();
        there.sort();
        let mut here: Vec<_> = RUNTIME.iter().map(|(name, _)| std::ffi::OsString::from(name)).collect();
        here.sort();
        assert_eq!(there, here);
    }

    #[test]
    fn a_folder_for_sockets_has_a_short_path() {
        let store = tempfile::tempdir().unwrap();
        fs::create_dir_all(store.path().join("python")).unwrap();
        fs::write(store.path().join("python/7.sock"), "").unwrap();
        let folder = ScriptFolder::below(store.path()).unwrap();
        assert!(!folder.socket(7).exists(), "sockets of an earlier server are removed");
        assert!(folder.library().join("larder/_runtime.py").exists());
        let deep = store.path().join("x".repeat(90));
        let folder = ScriptFolder::below(&deep).unwrap();
        assert!(folder.socket(1_000_000).as_os_str().len() < 108 && !folder.socket(1).starts_with(&deep));
    }
}
