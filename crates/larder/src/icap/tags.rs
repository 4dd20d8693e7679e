//! The ISTags of servers (RFC 3507 section 4.7): by which version of its rules and signatures a service answers. They are
//! remembered beside the store, so that what an older version judged is not taken for the newer one's word after a restart.

use larder_cache::cache::Cache;
use larder_cache::store::rules::{Force, Scope};
use larder_cache::tags;
use larder_wire::icap::Service;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The file in the store folder: a line for each server, its mark and its ISTag.
const FILE: &str = "icap.tags";

/// Lines that are remembered; those of servers that are configured no more are of no use, and do no harm.
const LINES_MAX: usize = 1_000;

/// The beginning of all marks.
pub const MARK: &str = "icap:";

/// The tag of the store that all responses have which this server looked at.
pub(super) fn mark(name: &str, url: &Service) -> Box<str> {
    format!("{MARK}{name}:{:016x}", tags::hash(url.to_string().as_bytes())).into()
}

/// The ISTags of all servers, by mark.
pub(super) struct Tags {
    file: Option<PathBuf>,
    known: Mutex<Option<BTreeMap<Box<str>, Box<str>>>>,
    /// Held while a change is put in force.
    changing: tokio::sync::Mutex<()>,
}

impl Tags {
    pub(super) fn new(folder: Option<PathBuf>) -> Tags {
        let file = folder.map(|folder| folder.join(FILE));
        Tags { file, known: Mutex::default(), changing: tokio::sync::Mutex::default() }
    }

    /// The tag of a server.
    pub(super) fn known(&self, mark: &str) -> Option<String> {
        let mut known = self.known.lock();
        known.get_or_insert_with(|| self.read()).get(mark).map(ToString::to_string)
    }

    /// Takes note of a server's tag. Where it is another one than before, the responses with the server's mark in `cache` are
    /// purged before this returns. So are they where no tag is remembered, and the store may have some all the same.
    pub(super) async fn note(&self, mark: &str, istag: &str, cache: Option<&Cache>) {
        let is_known = |known: Option<String>| known.as_deref() == Some(istag);
        if is_known(self.known(mark)) {
            return;
        }
        let _changing = self.changing.lock().await;
        let before = self.known(mark);
        if is_known(before.clone()) {
            return;
        }
        if let Some(cache) = cache.filter(|cache| before.is_some() || may_have_judged(cache)) {
            let before = before.as_deref().unwrap_or("(not known)");
            tracing::info!("{mark}: the ISTag {before} became {istag}; responses that were judged before are purged");
            let scope = Scope::Tag(tags::hash(mark.as_bytes()));
            let purged = cache.purge([scope], Force::Hard).finish().await;
            if !purged.durable && cache.disk().is_some() {
                tracing::warn!("the purge of {mark} holds, but a power cut may undo it");
            }
        }
        self.remember(mark, istag).await;
    }

    /// The purge comes first, the file second: a crash between them purges again.
    async fn remember(&self, mark: &str, istag: &str) {
        let text = {
            let mut known = self.known.lock();
            let known = known.get_or_insert_with(|| self.read());
            if known.len() >= LINES_MAX && !known.contains_key(mark) {
                known.pop_first();
            }
            known.insert(mark.into(), istag.into());
            known.iter().map(|(mark, istag)| format!("{mark} {istag}\n")).collect::<String>()
        };
        let Some(file) = self.file.clone() else { return };
        let name = file.display().to_string();
        let written = tokio::task::spawn_blocking(move || write(&file, &text)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!("cannot write {name}: {error}; after a restart an older ISTag may count");
        }
    }

    fn read(&self) -> BTreeMap<Box<str>, Box<str>> {
        let text = self.file.as_ref().and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.split_once(' ')).take(LINES_MAX);
        lines.map(|(mark, istag)| (mark.into(), istag.into())).collect()
    }
}

/// Whether responses of an earlier process may be here. A store that is empty needs no purge, which would count for what comes just now.
fn may_have_judged(cache: &Cache) -> bool {
    cache.disk().is_some_and(|disk| disk.stats().heads > 0)
}

/// Makes the file whole, on the disk too, before it has its name.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let draft = file.with_extension("tags.new");
    let mut written = fs::File::create(&draft)?;
    written.write_all(text.as_bytes())?;
    written.sync_all()?;
    fs::rename(&draft, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tags_are_remembered_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let new = || Tags::new(Some(folder.path().to_owned()));
        let (first, second) = (new(), new());
        first.note("icap:a:1", "one", None).await;
        first.note("icap:a:1", "two words", None).await;
        assert_eq!(second.known("icap:a:1").as_deref(), Some("two words"));
        assert_eq!(second.known("icap:b:1"), None);
    }

    #[test]
    fn servers_have_marks_of_their_own() {
        let url = |text| Service::parse(text).unwrap();
        assert_ne!(mark("a", &url("icap://a/x")), mark("a", &url("icap://b/x")));
        assert_ne!(mark("a", &url("icap://a/x")), mark("b", &url("icap://a/x")));
        assert!(!mark("a", &url("icap://a/x?y=z")).contains([' ', ',']));
    }
}
