//! The files: sources that are read, and compiled lists that are kept. Nothing else of this crate opens one.

use crate::builder::{Builder, Fault};
use crate::compiled::{Compiled, CompiledFault, Provenance};
use crate::draft::Draft;
use crate::format::Part;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// Bytes of a line of the processor's cache.
const ALIGN_BYTES: usize = 64;
/// Files of a folder that are read.
const FILES_MAX: usize = 1_000;

/// Why a compiled list is not loaded.
#[derive(Debug)]
pub enum LoadFault {
    /// It can't be read.
    Io(io::Error),
    /// It is no compiled list.
    Compiled(CompiledFault),
}

impl std::fmt::Display for LoadFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LoadFault::Io(error) => write!(f, "{error}"),
            LoadFault::Compiled(fault) => write!(f, "{fault}"),
        }
    }
}

impl std::error::Error for LoadFault {}

/// A step of [`save`]. A test stops behind each of them, as a power cut does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The new file has some of its bytes.
    Begun,
    /// It has all of them.
    Written,
    /// They are on disk.
    Synced,
    /// It has its name.
    Renamed,
    /// The name is on disk.
    Done,
}

/// Keeps a compiled list at `path`, in place of the one that was there: whole, or not at all.
pub fn save(draft: &Draft, provenance: &Provenance, path: &Path) -> io::Result<()> {
    save_until(draft, provenance, path, Step::Done)
}

/// Stops behind a step.
pub fn save_until(draft: &Draft, provenance: &Provenance, path: &Path, last: Step) -> io::Result<()> {
    let new = draft_path(path);
    let mut file = BufWriter::with_capacity(1 << 18, File::create(&new)?);
    if last == Step::Begun {
        file.write_all(b"larderL1 and then the power was cut")?;
        return file.flush();
    }
    draft.write(provenance, &mut file)?;
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    if last == Step::Written {
        return Ok(());
    }
    file.sync_all()?;
    if last == Step::Synced {
        return Ok(());
    }
    fs::rename(&new, path)?;
    match path.parent().filter(|_| last == Step::Done) {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Where the next version of a compiled list is written.
pub fn draft_path(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// Loads a compiled list, and compares its checksum.
pub fn load(path: &Path) -> Result<Compiled, LoadFault> {
    let mut file = File::open(path).map_err(LoadFault::Io)?;
    let length = file.metadata().map_err(LoadFault::Io)?.len();
    let length = usize::try_from(length).map_err(|error| LoadFault::Io(io::Error::other(error)))?;
    let mut bytes: Vec<u8> = Vec::with_capacity(length + ALIGN_BYTES + 1);
    let begin = bytes.as_ptr().align_offset(ALIGN_BYTES).min(ALIGN_BYTES);
    bytes.resize(begin, 0);
    // Into the room that is there: a file that grew meanwhile has a wrong checksum.
    (&mut file).take(length as u64).read_to_end(&mut bytes).map_err(LoadFault::Io)?;
    Compiled::behind(bytes, begin).map_err(LoadFault::Compiled)
}

/// Reads the file or folder `path` into a builder. Of a squidGuard folder its three files are read, of any other one all files that
/// are not hidden.
pub fn read_source(builder: &mut Builder, path: &Path) -> Result<(), Fault> {
    if !fs::metadata(path)?.is_dir() {
        return read_file(builder, path, File::open(path)?);
    }
    let files = files(path)?;
    let parts: Vec<(Part, &PathBuf)> = files
        .iter()
        .filter_map(|file| Some((Part::of_file(file.file_name()?.to_str()?)?, file)))
        .filter(|_| builder.may_be_squidguard())
        .collect();
    for (part, file) in &parts {
        builder.read_part(*part, File::open(file)?, &file.display().to_string())?;
    }
    if !parts.is_empty() {
        return Ok(());
    }
    if builder.is_squidguard() || files.is_empty() {
        let message = match builder.is_squidguard() {
            true => "the folder has none of the files `domains`, `urls` and `expressions`",
            false => "the folder has no files",
        };
        let inner = folder_in(path).map_or(String::new(), |inner| {
            format!(
                ", but folders, which are not read: name one of them, as {}, or give each a [[list]]",
                inner.display()
            )
        });
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("{message}{inner}")).into());
    }
    for file in &files {
        builder.read(File::open(file)?, &file.display().to_string())?;
    }
    Ok(())
}

/// Reads the content of the file `path`, which somebody has opened, into a builder.
pub fn read_file(builder: &mut Builder, path: &Path, content: impl Read) -> Result<(), Fault> {
    let name = path.display().to_string();
    let part =
        path.file_name().and_then(|file| file.to_str()).filter(|_| builder.is_squidguard()).and_then(Part::of_file);
    match part {
        Some(part) => builder.read_part(part, content, &name),
        None => builder.read(content, &name),
    }
}

/// The first folder in a folder that is not hidden.
fn folder_in(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let is_shown = |entry: &fs::DirEntry| !entry.file_name().as_encoded_bytes().starts_with(b".");
    entries.filter(is_shown).map(|entry| entry.path()).filter(|path| path.is_dir()).min()
}

/// The files of a folder that are not hidden, in the order of their names.
pub fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !is_hidden && fs::metadata(entry.path())?.is_file() {
            files.push(entry.path());
        }
        if files.len() > FILES_MAX {
            return Err(io::Error::other(format!("the folder has more than {FILES_MAX} files")));
        }
    }
    files.sort();
    Ok(files)
}
