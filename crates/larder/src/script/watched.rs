//! Files of an application that it does not import, as templates: found below its folder by patterns, and looked at again.

use super::process::changed_at;
use crate::clock;
use crate::config::PathPattern;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Files of one application that are watched; further ones are not.
const FILES_MAX: usize = 4_096;

/// Folders that are looked into; below a folder with more than that nothing else is found.
const FOLDERS_MAX: usize = 1_024;

/// Entries that are read in one look, whatever they are: the thread of the nursery does nothing else meanwhile. Of the folder where they
/// are used up nothing is found, for its entries have no order in which a part of them would stay the same.
const ENTRIES_MAX: usize = 65_536;

/// Folders below one another that are looked into.
const DEPTH_MAX: usize = 16;

/// Folders in which no application has files of its own.
const NOT_OWN: [&str; 4] = ["__pycache__", "node_modules", "site-packages", "dist-packages"];

/// The file by which a folder is known as a virtual environment.
const OF_ENVIRONMENT: &str = "pyvenv.cfg";

/// The files below a folder that match patterns, and the folders in which others may appear, each with its time of change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Watched {
    files: BTreeMap<PathBuf, Option<SystemTime>>,
    folders: BTreeMap<PathBuf, Option<SystemTime>>,
    /// There are more than are watched.
    is_cut: bool,
}

/// A search under way.
struct Search<'a> {
    patterns: &'a [PathPattern],
    /// Entries that may be read still.
    entries_left: usize,
    found: Watched,
}

impl Watched {
    /// The files as they are now.
    pub fn look(folder: &Path, patterns: &[PathPattern]) -> Watched {
        Watched::look_within(folder, patterns, ENTRIES_MAX)
    }

    fn look_within(folder: &Path, patterns: &[PathPattern], entries_max: usize) -> Watched {
        let mut search = Search { patterns, entries_left: entries_max, found: Watched::default() };
        if !patterns.is_empty() {
            search.add_folder(folder, "", DEPTH_MAX);
        }
        search.found
    }

    /// Whether a file has changed, appeared or gone since the look. Costs a look at each file and folder that is known, and a new
    /// search only where a folder has changed.
    pub fn has_changed(&mut self, folder: &Path, patterns: &[PathPattern]) -> bool {
        let changed = |(path, before): (&PathBuf, &Option<SystemTime>)| changed_at(path) != *before;
        if self.files.iter().any(changed) {
            return true;
        }
        if !self.folders.iter().any(changed) {
            return false;
        }
        // A file that no pattern matches has come or gone, most likely: an upload, or a database's journal.
        let now = Watched::look(folder, patterns);
        let has_changed = now.files != self.files;
        *self = now;
        has_changed
    }

    /// Whether there are more files, folders or entries than are watched.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }
}

impl Search<'_> {
    fn add_folder(&mut self, folder: &Path, relative: &str, depth: usize) {
        if self.found.folders.len() >= FOLDERS_MAX || depth == 0 {
            self.found.is_cut = true;
            return;
        }
        // Before its entries are read: one that appears meanwhile is seen at the next look.
        self.found.folders.insert(folder.to_owned(), settled_at(folder));
        let Ok(entries) = fs::read_dir(folder) else { return };
        let (mut files, mut below) = (Vec::new(), Vec::new());
        for entry in entries {
            let Some(left) = self.entries_left.checked_sub(1) else {
                self.found.is_cut = true;
                return;
            };
            self.entries_left = left;
            let Ok(entry) = entry else { continue };
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| is_own(name)) else { continue };
            let (path, relative) = (entry.path(), format!("{relative}/{name}"));
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                below.push((path, relative));
                continue;
            }
            // A link to a file counts as that file; one to a folder could lead round in a circle.
            let is_file = kind.is_file() || (kind.is_symlink() && path.is_file());
            if is_file && self.patterns.iter().any(|pattern| pattern.matches(&relative)) {
                files.push(path);
            }
        }
        files.into_iter().for_each(|path| self.add_file(path));
        below.sort();
        for (path, relative) in below {
            let may_match = self.patterns.iter().any(|pattern| pattern.may_match_below(&relative));
            if may_match && !path.join(OF_ENVIRONMENT).exists() {
                self.add_folder(&path, &relative, depth - 1);
            }
        }
    }

    fn add_file(&mut self, path: PathBuf) {
        if self.found.files.len() >= FILES_MAX {
            self.found.is_cut = true;
            return;
        }
        let at = changed_at(&path);
        self.found.files.insert(path, at);
    }
}

/// Whether an entry may be a file or folder of an application: none that is hidden, an editor's copy, or a tool's.
fn is_own(name: &str) -> bool {
    !name.starts_with('.') && !name.ends_with('~') && !NOT_OWN.contains(&name)
}

/// Times of change have steps of several milliseconds: what changes twice in one has one time.
const STEP_MAX: Duration = Duration::from_millis(50);

/// When a folder was changed; `None`, which makes the next look a search, where that was just now. A time that is yet to come is not
/// now: the next change gives the folder another one.
fn settled_at(folder: &Path) -> Option<SystemTime> {
    let now = SystemTime::UNIX_EPOCH + clock::wall();
    changed_at(folder).filter(|at| *at + STEP_MAX < now || now + STEP_MAX < *at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(texts: &[&str]) -> Vec<PathPattern> {
        texts.iter().map(|text| PathPattern::parse(&format!("/{text}")).unwrap()).collect()
    }

    fn write(folder: &Path, names: &[&str]) {
        for name in names {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, *name).unwrap();
        }
    }

    fn found(watched: &Watched, folder: &Path) -> Vec<String> {
        let relative = |path: &PathBuf| path.strip_prefix(folder).unwrap().display().to_string();
        watched.files.keys().map(relative).collect()
    }

    #[test]
    fn patterns_find_files_below_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        write(
            folder,
            &["a.html", "templates/a.html", "templates/.a.swp", "templates/a.html~", "shop/templates/deep/b.txt"],
        );
        write(
            folder,
            &["venv/pyvenv.cfg", "venv/templates/a", "node_modules/templates/a", ".git/templates/a", "data/x/y"],
        );
        for (texts, wanted) in [
            (&["**/templates/**"][..], &["shop/templates/deep/b.txt", "templates/a.html"][..]),
            (&["*.html"], &["a.html"]),
            (&["**/*.html"], &["a.html", "templates/a.html"]),
            (&["shop/**", "data/x/y"], &["data/x/y", "shop/templates/deep/b.txt"]),
            (&["nothing/**"], &[]),
            (&[], &[]),
        ] {
            let watched = Watched::look(folder, &patterns(texts));
            assert_eq!(found(&watched, folder), wanted, "{texts:?}");
            assert!(!watched.is_cut());
        }
        let watched = Watched::look(folder, &patterns(&["shop/templates/*"]));
        assert!(watched.folders.keys().all(|path| !path.ends_with("data")), "nothing there can match: {watched:?}");
    }

    #[test]
    fn what_changes_appears_or_goes_is_seen_and_what_matches_nothing_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (folder, patterns) = (folder.path(), patterns(&["**/templates/**"]));
        write(folder, &["templates/a.html", "uploads/x"]);
        let mut watched = Watched::look(folder, &patterns);
        let mut sees = |what: &str, wanted: bool, change: &dyn Fn()| {
            assert!(!watched.has_changed(folder, &patterns), "before: {what}");
            change();
            assert_eq!(watched.has_changed(folder, &patterns), wanted, "{what}");
            watched = Watched::look(folder, &patterns);
        };
        let touch = |name: &str| {
            let file = fs::File::options().write(true).open(folder.join(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + clock::wall() + Duration::from_secs(5)).unwrap();
        };
        sees("changed", true, &|| touch("templates/a.html"));
        sees("an upload", false, &|| write(folder, &["uploads/y"]));
        sees("an upload changed", false, &|| touch("uploads/y"));
        sees("appeared", true, &|| write(folder, &["templates/b/c.html"]));
        sees("a new folder", true, &|| write(folder, &["blog/templates/c.html"]));
        sees("renamed", true, &|| fs::rename(folder.join("templates/b"), folder.join("templates/d")).unwrap());
        sees("gone", true, &|| fs::remove_file(folder.join("templates/a.html")).unwrap());
    }

    #[test]
    fn a_look_reads_so_many_entries_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        write(folder, &["a/1", "a/2", "b/1", "b/2", "b/3", "c/1", "top"]);
        for (entries_max, wanted, is_cut) in [
            (3, &[][..], true),
            (4, &["top"], true),
            (6, &["a/1", "a/2", "top"], true),
            // Nothing of a folder that is not read to its end.
            (8, &["a/1", "a/2", "top"], true),
            (9, &["a/1", "a/2", "b/1", "b/2", "b/3", "top"], true),
            (10, &["a/1", "a/2", "b/1", "b/2", "b/3", "c/1", "top"], false),
        ] {
            let watched = Watched::look_within(folder, &patterns(&["**"]), entries_max);
            assert_eq!(
                (found(&watched, folder), watched.is_cut()),
                (wanted.iter().map(|it| (*it).to_owned()).collect(), is_cut)
            );
        }
    }

    #[test]
    fn a_folder_whose_time_is_yet_to_come_is_not_searched_at_each_look() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        write(folder, &["a.html"]);
        let at = SystemTime::UNIX_EPOCH + clock::wall() + Duration::from_secs(3600);
        fs::File::open(folder).unwrap().set_modified(at).unwrap();
        assert_eq!(settled_at(folder), changed_at(folder));
        let mut watched = Watched::look(folder, &patterns(&["*.html"]));
        write(folder, &["b.html"]);
        assert!(watched.has_changed(folder, &patterns(&["*.html"])));
    }

    #[test]
    fn what_is_watched_has_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::create_dir(folder.join("templates")).unwrap();
        (0..FILES_MAX + 3).for_each(|at| fs::write(folder.join(format!("templates/{at}")), "").unwrap());
        let watched = Watched::look(folder, &patterns(&["templates/*"]));
        assert!(watched.is_cut() && watched.files.len() == FILES_MAX);
        let deep = (0..DEPTH_MAX + 2).map(|_| "d").collect::<Vec<_>>().join("/");
        write(folder, &[&format!("{deep}/a.html")]);
        let watched = Watched::look(folder, &patterns(&["d/**"]));
        assert!(watched.is_cut() && watched.files.is_empty());
    }
}
