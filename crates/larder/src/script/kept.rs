//! The last good version of hooks: the files that its processes have loaded, as they were. A process that takes the place of another
//! one of that version begins with them, whatever has become of the files since.

use super::files::ScriptFolder;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// All files of a version together, at most.
const BYTES_MAX: u64 = 16 << 20;

/// The files of one generation of processes, in a folder of the server's that goes with this value.
pub(super) struct KeptVersion {
    /// The generation.
    pub generation: u64,
    folder: PathBuf,
}

impl KeptVersion {
    /// Keeps these files as they are at this moment.
    pub fn of(generation: u64, files: &[PathBuf], folder: &ScriptFolder, number: u64) -> io::Result<KeptVersion> {
        let kept = KeptVersion { generation, folder: folder.kept(number) };
        let _ = fs::remove_dir_all(&kept.folder);
        DirBuilder::new().recursive(true).mode(0o700).create(&kept.folder)?;
        let mut room = BYTES_MAX;
        for (number, path) in files.iter().enumerate() {
            let mut bytes = Vec::new();
            File::open(path)?.take(room + 1).read_to_end(&mut bytes)?;
            room = room.checked_sub(bytes.len() as u64).ok_or_else(|| {
                io::Error::new(io::ErrorKind::FileTooLarge, format!("they are longer than {BYTES_MAX} bytes"))
            })?;
            fs::write(kept.folder.join(number.to_string()), bytes)?;
        }
        let names = serde_json::to_vec(&files)?;
        fs::write(kept.folder.join("files.json"), names)?;
        Ok(kept)
    }

    /// The folder: its `files.json` has the paths of the files, which lie in it by their numbers there.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for KeptVersion {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_kept_as_they_were_and_go_with_the_version() {
        let store = tempfile::tempdir().unwrap();
        let folder = ScriptFolder::below(store.path()).unwrap();
        let files = ["a.py", "b.py"].map(|name| store.path().join(name));
        files.iter().for_each(|path| fs::write(path, path.display().to_string()).unwrap());
        let kept = KeptVersion::of(3, &files, &folder, 7).unwrap();
        fs::write(&files[0], "changed").unwrap();
        let named: Vec<PathBuf> = serde_json::from_slice(&fs::read(kept.folder().join("files.json")).unwrap()).unwrap();
        assert_eq!(named, files);
        for (number, path) in files.iter().enumerate() {
            let text = fs::read_to_string(kept.folder().join(number.to_string())).unwrap();
            assert_eq!(text, path.display().to_string());
        }
        let at = kept.folder().to_owned();
        drop(kept);
        assert!(!at.exists());
        let too_long = store.path().join("long.py");
        File::create(&too_long).unwrap().set_len(BYTES_MAX + 1).unwrap();
        assert!(KeptVersion::of(3, &[too_long], &folder, 8).is_err());
        assert!(KeptVersion::of(3, &[store.path().join("absent.py")], &folder, 8).is_err() && !folder.kept(8).exists());
    }
}
