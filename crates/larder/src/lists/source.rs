//! Reads the source of a list and keeps it compiled: a file in the folder of lists for each, whole or not at all.

use super::country_file::CountryFile;
use super::download::{self, Downloaded, Validators};
use super::{ListSet, LoadedList};
use crate::clock;
use crate::config::list::Sha256;
use crate::config::{Config, List, ListSource};
use aws_lc_rs::digest;
use larder_lists::{Builder, Compiled, Draft, HashKey, Options, Provenance, disk};
use parking_lot::Mutex;
use rustls::ClientConfig;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// Bytes of a download, and of a source when it is unpacked.
const SOURCE_BYTES_MAX: u64 = 2_000_000_000;
/// Entries of one list, where a range of addresses counts as two or eight: 240 MB in memory.
const ENTRIES_MAX: usize = 30_000_000;
/// A list that had so many entries is not replaced by one that has a tenth of them.
const GUARDED_FROM_ENTRIES: u64 = 100;
const SHRINKS_TO: u64 = 10;

/// Whether a list that has become much shorter is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shrinking {
    /// It is kept back.
    Refused,
    /// A person said that it is right.
    Accepted,
}

/// The result of a look at a source.
pub enum Look {
    /// It is as it was.
    Same,
    /// This is in force from now on.
    New(Box<Compiled>),
}

/// A list for a configuration that is not in force yet.
pub struct PreparedList {
    /// The list.
    pub compiled: Compiled,
    /// When its source was last found to be so, since 1970.
    pub checked_at: Duration,
    /// Where it was written, if it was not kept already.
    file: Option<PreparedFile>,
}

/// A compiled list that has not taken the place of the one before. It is removed where it never does.
struct PreparedFile {
    path: PathBuf,
    to: PathBuf,
}

impl Drop for PreparedFile {
    fn drop(&mut self) {
        // There is none once it was renamed, and a file that stays is removed by `ListFolder::settle`.
        let _ = fs::remove_file(&self.path);
    }
}

/// The folder where compiled lists are kept.
#[derive(Debug)]
pub struct ListFolder {
    path: PathBuf,
    /// Held while a file is written: a reload and the thread of the lists may write at the same time.
    writing: Mutex<()>,
}

impl ListFolder {
    /// The folder below a store; it is made when something is written.
    pub fn below(store: &Path) -> ListFolder {
        ListFolder { path: store.join("lists"), writing: Mutex::new(()) }
    }

    fn file(&self, name: &str, kind: &str) -> PathBuf {
        self.path.join(format!("{name}.{kind}"))
    }

    /// Makes the folder.
    pub fn make(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.path)
    }

    /// Makes the folder, and removes the files of lists that are not configured, and what a crash has left behind.
    pub fn settle(&self, lists: &[Arc<List>]) -> io::Result<()> {
        if lists.is_empty() && !self.path.exists() {
            return Ok(());
        }
        self.make()?;
        let _writing = self.writing.lock();
        let wanted: Vec<PathBuf> = lists.iter().map(|list| self.file(&list.name, "list")).collect();
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            let is_ours = path
                .extension()
                .is_some_and(|kind| ["list", "new", "prepared", "download"].iter().any(|ours| kind == *ours));
            if is_ours && !wanted.contains(&path) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// The list as it was compiled before with the same settings, and when its source was last found to be so; `None` where there is none.
    pub fn load(&self, list: &List) -> Option<(Compiled, Duration)> {
        let path = self.file(&list.name, "list");
        let compiled = match disk::load(&path) {
            Ok(compiled) => compiled,
            Err(disk::LoadFault::Io(error)) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(fault) => {
                tracing::warn!("list {}: {} is not used: {fault}; the source is read again", list.name, path.display());
                return None;
            }
        };
        let checked =
            fs::metadata(&path).and_then(|metadata| metadata.modified()).ok()?.duration_since(UNIX_EPOCH).ok()?;
        (compiled.about().provenance.settings == list.compiled_settings()).then_some((compiled, checked))
    }

    /// Notes that a source was found to be as it is kept.
    fn checked(&self, list: &List) {
        let file = File::options().write(true).open(self.file(&list.name, "list"));
        let noted = file.and_then(|file| file.set_modified(UNIX_EPOCH + clock::wall()));
        if let Err(error) = noted {
            tracing::debug!(%error, "a list has no time of its last look");
        }
    }

    /// Has a list ready that is not in force: as it was kept with the same settings, or else read from its file. `None`: it is a URL that was
    /// never downloaded. The list in force keeps its file until [`ListFolder::keep`].
    pub fn prepare(&self, list: &List) -> Result<Option<PreparedList>, String> {
        if let Some((compiled, checked_at)) = self.load(list) {
            return Ok(Some(PreparedList { compiled, checked_at, file: None }));
        }
        let ListSource::Path(source) = &list.source else { return Ok(None) };
        let stamp = stamp(source).map_err(|error| format!("{}: {error}", source.display()))?;
        let draft = read_path(list, source)?;
        let validators = Validators { last_modified: stamp, ..Validators::default() };
        let file = PreparedFile { path: self.file(&list.name, "prepared"), to: self.file(&list.name, "list") };
        let compiled = self.compile(list, draft, validators, &file.path)?;
        Ok(Some(PreparedList { compiled, checked_at: clock::wall(), file: Some(file) }))
    }

    /// Keeps a prepared list from now on, in place of the one that was there.
    pub fn keep(&self, list: &mut PreparedList) -> io::Result<()> {
        let Some(file) = list.file.take() else { return Ok(()) };
        let _writing = self.writing.lock();
        fs::rename(&file.path, &file.to)?;
        File::open(&self.path)?.sync_all()
    }

    /// Looks at the source of a list. `old` is what is in force with the same settings.
    pub fn look(
        &self,
        list: &List,
        old: Option<&Compiled>,
        shrinking: Shrinking,
        tls: &Arc<ClientConfig>,
    ) -> Result<Look, String> {
        let look = match &list.source {
            ListSource::Path(path) => self.look_at_path(list, path, old, shrinking),
            ListSource::Url(_) => self.look_at_url(list, old, shrinking, tls),
        };
        if matches!(look, Ok(Look::Same)) {
            self.checked(list);
        }
        look
    }

    fn look_at_path(
        &self,
        list: &List,
        path: &Path,
        old: Option<&Compiled>,
        shrinking: Shrinking,
    ) -> Result<Look, String> {
        let stamp = stamp(path).map_err(|error| format!("{}: {error}", path.display()))?;
        if old.is_some_and(|old| old.about().provenance.last_modified == stamp) {
            return Ok(Look::Same);
        }
        let draft = read_path(list, path)?;
        let validators = Validators { last_modified: stamp, ..Validators::default() };
        self.take(list, draft, validators, old, shrinking)
    }

    fn look_at_url(
        &self,
        list: &List,
        old: Option<&Compiled>,
        shrinking: Shrinking,
        tls: &Arc<ClientConfig>,
    ) -> Result<Look, String> {
        let ListSource::Url(url) = &list.source else { return Ok(Look::Same) };
        let old_validators = old.filter(|_| shrinking == Shrinking::Refused).map(|old| {
            let provenance = &old.about().provenance;
            Validators { etag: provenance.etag.clone(), last_modified: provenance.last_modified.clone() }
        });
        let path = self.file(&list.name, "download");
        let file = Unnamed::create(&path).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        let mut to = io::BufWriter::new(&file.0);
        let fetched = download::fetch(
            download::DOWNLOAD_WITHIN,
            url,
            &old_validators.unwrap_or_default(),
            tls,
            SOURCE_BYTES_MAX,
            &mut to,
        );
        let written = fetched.and_then(|fetched| io::Write::flush(&mut to).map(|()| fetched));
        drop(to);
        let (validators, sha256) = match written.map_err(|error| error.to_string())? {
            Downloaded::NotModified => return Ok(Look::Same),
            Downloaded::Content { validators, sha256, fresh_for: _ } => (validators, sha256),
        };
        if let Some(wanted) = &list.sha256 {
            compare(&sha256, wanted)?;
        }
        let mut builder = builder(list)?;
        let content = file.again().map_err(|error| error.to_string())?;
        builder.read(content, &url.to_string()).map_err(|fault| fault.to_string())?;
        let draft = builder.finish().map_err(|fault| fault.to_string())?;
        self.take(list, draft, validators, old, shrinking)
    }

    /// Compiles what was read and keeps it, unless it looks like an accident.
    fn take(
        &self,
        list: &List,
        draft: Draft,
        validators: Validators,
        old: Option<&Compiled>,
        shrinking: Shrinking,
    ) -> Result<Look, String> {
        if draft.entries() == 0 && list.is_remote() {
            return Err(no_entry(&draft));
        }
        let before = old.map_or(0, |old| old.about().entries);
        let is_small = before >= GUARDED_FROM_ENTRIES && draft.entries() < before / SHRINKS_TO;
        if is_small && shrinking == Shrinking::Refused && list.sha256.is_none() {
            return Err(format!(
                "it has {} entries, and {before} before: it is kept back, and the one before stays in force; \
                 `larder list refresh {} --accept` takes it",
                draft.entries(),
                list.name
            ));
        }
        let compiled = self.compile(list, draft, validators, &self.file(&list.name, "list"))?;
        Ok(Look::New(Box::new(compiled)))
    }

    /// Writes a compiled list and loads it.
    fn compile(&self, list: &List, draft: Draft, validators: Validators, path: &Path) -> Result<Compiled, String> {
        let provenance = Provenance {
            settings: list.compiled_settings(),
            etag: validators.etag,
            last_modified: validators.last_modified,
            read_at_seconds: clock::wall().as_secs(),
        };
        let _writing = self.writing.lock();
        let saved = disk::save(&draft, &provenance, path);
        let loaded = saved.map_err(disk::LoadFault::Io).and_then(|()| {
            drop(draft);
            disk::load(path)
        });
        loaded.map_err(|fault| format!("it can't be kept in {}: {fault}", path.display()))
    }
}

/// The lists of a configuration as a rehearsal has them, which asks no network: files as they are now, downloads as a server has kept them. The
/// second value names those that can't be had, and why.
pub fn for_rehearsal(config: &Config) -> (ListSet, Vec<String>) {
    let folder = config.store_folder().map(|store| ListFolder::below(&store));
    let (mut lists, mut notes) = (BTreeMap::new(), Vec::new());
    for list in &config.lists {
        let kept = folder.as_ref().and_then(|folder| folder.load(list)).map(|(compiled, _)| compiled);
        let compiled = match &list.source {
            ListSource::Url(_) => kept.ok_or_else(|| "no server has downloaded it".to_owned()),
            ListSource::Path(path) => {
                let stamp = stamp(path).unwrap_or_default();
                let newest = kept.filter(|kept| kept.about().provenance.last_modified == stamp);
                newest.map_or_else(|| read_path(list, path).map(Draft::compile), Ok)
            }
        };
        match compiled {
            Ok(compiled) => _ = lists.insert(list.name.clone(), Arc::new(LoadedList::new(Arc::new(compiled), list))),
            Err(trouble) => notes.push(format!("list {} ({}) covers nothing: {trouble}", list.name, list.place)),
        }
    }
    let countries = config.access.country_file.as_deref().and_then(|path| match CountryFile::read(path) {
        Ok(file) => Some(Arc::clone(file.countries())),
        Err(trouble) => {
            notes.push(trouble);
            None
        }
    });
    (ListSet { lists, countries }, notes)
}

/// Reads the file or folder of a list.
fn read_path(list: &List, path: &Path) -> Result<Draft, String> {
    let mut builder = builder(list)?;
    let unread = |error: io::Error| format!("{}: {error}", path.display());
    let read = match &list.sha256 {
        None => disk::read_source(&mut builder, path),
        // In one read: another one could get another content than the one that was summed.
        Some(wanted) => {
            let mut content = Summed::new(File::open(path).map_err(unread)?);
            let read = disk::read_file(&mut builder, path, &mut content);
            compare(&content.finish(SOURCE_BYTES_MAX).map_err(unread)?, wanted)?;
            read
        }
    };
    read.map_err(|fault| format!("{}: {fault}", path.display()))?;
    builder.finish().map_err(|fault| format!("{}: {fault}", path.display()))
}

/// The fault of the file or folder of a list, and notes for a person on one that is right. A URL is not asked.
pub fn examine(list: &List) -> (Option<String>, Vec<String>) {
    let ListSource::Path(path) = &list.source else { return (None, Vec::new()) };
    let draft = match read_path(list, path) {
        Ok(draft) => draft,
        Err(trouble) => return (Some(trouble), Vec::new()),
    };
    let tally = draft.tally();
    let mut notes = Vec::new();
    if draft.entries() == 0 {
        notes.push(no_entry(&draft));
    }
    if tally.malformed > 0 {
        let first: Vec<String> = tally.samples.iter().map(|sample| format!("\n  {sample}")).collect();
        notes.push(format!(
            "malformed lines, which cover nothing: {}; the first of them:{}",
            tally.malformed,
            first.concat()
        ));
    }
    if tally.left_out > 0 {
        notes.push(format!("lines left out, for a proxy can't decide them: {}", tally.left_out));
    }
    (None, notes)
}

fn no_entry(draft: &Draft) -> String {
    let tally = draft.tally();
    match tally.left_out {
        0 => format!("there is no entry in its {} lines; is `format` right?", tally.lines),
        many => format!("a proxy can decide none of its {many} entries; is `format` right?"),
    }
}

fn builder(list: &List) -> Result<Builder, String> {
    let mut key = [0; 16];
    aws_lc_rs::rand::fill(&mut key).map_err(|_| "cannot draw random bytes".to_owned())?;
    let options = Options {
        format: list.format,
        subdomains: list.subdomains,
        entries_max: ENTRIES_MAX,
        bytes_max: SOURCE_BYTES_MAX,
    };
    Ok(Builder::new(options, HashKey::of(key)))
}

fn compare(found: &Sha256, wanted: &Sha256) -> Result<(), String> {
    let show = |sum: &Sha256| sum.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    match found == wanted {
        true => Ok(()),
        false => Err(format!("its SHA-256 is {}, not {}", show(found), show(wanted))),
    }
}

/// Content of which a SHA-256 is made while it is read.
struct Summed<R> {
    from: R,
    sum: digest::Context,
    bytes: u64,
}

impl<R: Read> Summed<R> {
    fn new(from: R) -> Summed<R> {
        Summed { from, sum: digest::Context::new(&digest::SHA256), bytes: 0 }
    }

    /// The sum of the whole, with what nobody has read yet. A content of more than `bytes_max` bytes is an error.
    fn finish(mut self, bytes_max: u64) -> io::Result<Sha256> {
        let mut piece = vec![0; 256 << 10];
        while self.bytes <= bytes_max {
            if self.read(&mut piece)? == 0 {
                let mut sha256 = [0; 32];
                sha256.copy_from_slice(self.sum.finish().as_ref());
                return Ok(sha256);
            }
        }
        let too_long = format!("it is longer than {bytes_max} bytes, the limit of a list");
        Err(io::Error::new(io::ErrorKind::FileTooLarge, too_long))
    }
}

impl<R: Read> Read for Summed<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let length = self.from.read(to)?;
        self.sum.update(to.get(..length).unwrap_or_default());
        self.bytes += length as u64;
        Ok(length)
    }
}

/// Times and lengths of a file, or of the files of a folder: another text says that something has changed.
fn stamp(path: &Path) -> io::Result<String> {
    let metadata = fs::metadata(path)?;
    let files = if metadata.is_dir() { disk::files(path)? } else { vec![path.to_owned()] };
    let mut stamp = String::new();
    for file in files {
        let metadata = fs::metadata(&file)?;
        let modified = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        stamp += &format!("{}:{}:{} ", file.display(), metadata.len(), modified.as_nanos());
    }
    Ok(stamp)
}

/// A file that has no name any more once it is made: a crash leaves nothing behind.
struct Unnamed(File);

impl Unnamed {
    fn create(path: &Path) -> io::Result<Unnamed> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        fs::remove_file(path)?;
        Ok(Unnamed(file))
    }

    /// Its content from the beginning.
    fn again(mut self) -> io::Result<File> {
        io::Seek::rewind(&mut self.0)?;
        Ok(self.0)
    }
}
