//! Files that are written as a whole: such a file has its name once all of it is there, so that no reader and no crash meets a part of one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The part of a file that a power cut leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The file of before, or this one.
    Either,
    /// Either as well, and this one is never a part of itself.
    Content,
    /// This one, by its name.
    Name,
}

/// Writes a file beside `path` and puts it in place in one step; the mode does not depend on the umask. Two at a time in one process must
/// not have the same path.
pub fn replace(path: &Path, content: &[u8], mode: u32, durability: Durability) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let temporary = PathBuf::from(name);
    let _ = fs::remove_file(&temporary);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    let written = file
        .write_all(content)
        .and_then(|()| file.set_permissions(PermissionsExt::from_mode(mode)))
        .and_then(|()| if durability == Durability::Either { Ok(()) } else { file.sync_all() })
        .and_then(|()| fs::rename(&temporary, path));
    written.inspect_err(|_| _ = fs::remove_file(&temporary))?;
    if durability == Durability::Name { sync_name(path) } else { Ok(()) }
}

/// Has the name of a file outlast a power cut.
pub fn sync_name(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        for (text, mode, durability) in
            [("one", 0o600, Durability::Either), ("two", 0o644, Durability::Content), ("3", 0o600, Durability::Name)]
        {
            replace(&path, text.as_bytes(), mode, durability).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        }
        fs::create_dir(folder.path().join("y")).unwrap();
        assert!(replace(&folder.path().join("y"), b"", 0o600, Durability::Either).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left behind");
    }
}
