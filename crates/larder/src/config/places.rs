//! Where configuration files lie: the usual places, and the files that a pattern means.

use std::path::{Path, PathBuf};

/// The file that is read when none is named: the first of these that exists.
pub fn usual(here: Here) -> Vec<PathBuf> {
    let own = super::user_folder("XDG_CONFIG_HOME", ".config").map(|folder| folder.join("larder.toml"));
    let local = (here == Here::Looked).then(|| PathBuf::from("./larder.toml"));
    local.into_iter().chain(own).chain([PathBuf::from("/etc/larder/larder.toml")]).collect()
}

/// Whether the current folder is a usual place. For `larder run` it is not: a source tree that somebody else wrote
/// does not configure the way of its own downloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Here {
    /// It is.
    Looked,
    /// It is not.
    PassedOver,
}

/// The first of `places` that exists.
pub fn first(places: &[PathBuf]) -> Option<&Path> {
    places.iter().map(PathBuf::as_path).find(|path| path.is_file())
}

/// The files that a pattern of `include` means, in the order of their names. Without a `*` the file is taken to be
/// there; a pattern may mean none.
pub(super) fn matching(folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let path = folder.join(pattern);
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return Err(format!("\"{pattern}\" names no file"));
    };
    let inside = path.parent().unwrap_or(Path::new(""));
    if inside.to_string_lossy().contains('*') {
        return Err(format!("\"{pattern}\" has a `*` in the name of a folder"));
    }
    if !name.contains('*') {
        return Ok(vec![path]);
    }
    let read = match std::fs::read_dir(if inside.as_os_str().is_empty() { Path::new(".") } else { inside }) {
        Ok(read) => read,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("cannot list {}: {error}", inside.display())),
    };
    let names = read.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|each| !each.starts_with('.') && fits(name, each)).collect();
    names.sort();
    Ok(names.into_iter().map(|name| inside.join(name)).collect())
}

/// Whether a name fits a pattern in which each `*` stands for any letters.
fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_letters() {
        for (pattern, name, wanted) in [
            ("*.toml", "a.toml", true),
            ("*.toml", "a.toml.old", false),
            ("a*b*c", "abc", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "ac", false),
            ("ab*ba", "aba", false),
            ("*", "anything", true),
            ("a", "a", true),
            ("a", "ab", false),
        ] {
            assert_eq!(fits(pattern, name), wanted, "{pattern} {name}");
        }
    }

    #[test]
    fn a_run_does_not_read_the_current_folder() {
        assert!(usual(Here::Looked).contains(&PathBuf::from("./larder.toml")));
        assert!(!usual(Here::PassedOver).contains(&PathBuf::from("./larder.toml")));
    }
}
