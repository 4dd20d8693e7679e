//! `pnpm-lock.yaml`. Of YAML as much is read as pnpm writes: entries of two blanks below `packages:`, with `resolution: {…}`.

use super::{Download, FROM_GIT, Listed, NpmPage, Tool, Wrong};

pub(super) fn read(text: &str) -> Result<Listed, Wrong> {
    let mut listed = Listed::default();
    let (mut section, mut entry) = ("", None::<Entry>);
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#')) {
        let indent = line.len() - line.trim_start().len();
        let line = line.trim();
        match indent {
            0 => {
                section = line.trim_end_matches(':');
                take(&mut listed, entry.take());
            }
            2 if section == "packages" => {
                take(&mut listed, entry.take());
                entry = Some(Entry { key: unquoted(line.trim_end_matches(':')).to_owned(), ..Entry::default() });
            }
            _ => entry.iter_mut().for_each(|entry| entry.look_at(line)),
        }
    }
    take(&mut listed, entry);
    Ok(listed)
}

#[derive(Default)]
struct Entry {
    /// `name@version`, or `/name/version` in older files, with what the package was resolved against in brackets.
    key: String,
    tarball: Option<String>,
    is_from_git: bool,
    is_here: bool,
}

impl Entry {
    /// A line below the key. The resolution stands on one line, or each part on its own.
    fn look_at(&mut self, line: &str) {
        let inner =
            line.strip_prefix("resolution:").unwrap_or(line).trim().trim_start_matches('{').trim_end_matches('}');
        for part in inner.split(", ") {
            let Some((name, value)) = part.split_once(": ") else { continue };
            let value = unquoted(value.trim());
            match name.trim() {
                "tarball" if value.starts_with("http") => self.tarball = Some(value.to_owned()),
                "tarball" | "directory" => self.is_here = true,
                "type" if value == "git" => self.is_from_git = true,
                "type" if value == "directory" => self.is_here = true,
                _ => {}
            }
        }
    }
}

fn take(listed: &mut Listed, entry: Option<Entry>) {
    let Some(entry) = entry else { return };
    let key = entry.key.split('(').next().unwrap_or_default().trim_start_matches('/');
    if entry.is_from_git {
        return listed.leave_out(key, FROM_GIT);
    }
    if let Some(url) = entry.tarball {
        return listed.add(Download::Url(Tool::Node, url));
    }
    // `@scope/name@1.0.0`, and `@scope/name/1.0.0_peer@2.0.0` of old files.
    let is_version = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
    let by = |sign: char| {
        let at = key.match_indices(sign).map(|(at, _)| at).find(|&at| at > 0 && is_version(&key[at + 1..]))?;
        Some((&key[..at], &key[at + 1..]))
    };
    let Some((name, version)) = by('@')
        .filter(|(name, _)| !name.contains('/') || name.starts_with('@') && name.matches('/').count() == 1)
        .or_else(|| by('/'))
    else {
        return;
    };
    if !entry.is_here {
        let version = version.split('_').next().unwrap_or(version);
        listed.add(Download::Npm { name: name.to_owned(), version: version.to_owned(), page: NpmPage::Unread });
    }
}

fn unquoted(text: &str) -> &str {
    text.trim_matches(['\'', '"'])
}

#[cfg(test)]
mod tests {
    use super::super::{Download, Format, NpmPage, urls_of};

    #[test]
    fn new_and_old_keys() {
        let file = "lockfileVersion: '9.0'\n\nimporters:\n\n  .:\n    dependencies:\n      a:\n        specifier: ^1\n        version: 1.0.0\n\npackages:\n\n\
              \x20 '@s/a@1.0.0':\n    resolution: {integrity: sha512-x==}\n    engines: {node: '>=6'}\n\n\
              \x20 b@2.0.0:\n    resolution: {integrity: sha512-y==, tarball: https://r.example/b.tgz}\n\n\
              \x20 /c/3.0.0_peer@1.0.0:\n    resolution: {integrity: sha512-z==}\n\n\
              \x20 /@s/d@4.0.0(peer@1.0.0):\n    resolution: {integrity: sha512-z==}\n\n\
              \x20 g@https://h.example/g:\n    resolution: {type: git, repo: https://h.example/g, commit: ff}\n\n\
              \x20 h@file:h:\n    resolution: {directory: h, type: directory}\n\n\
            snapshots:\n\n  '@s/a@1.0.0': {}\n";
        let listed = Format::Pnpm.read(file).unwrap();
        let npm = |name: &str, version: &str| Download::Npm {
            name: name.to_owned(),
            version: version.to_owned(),
            page: NpmPage::Unread,
        };
        let named: Vec<&Download> =
            listed.downloads.iter().filter(|download| matches!(download, Download::Npm { .. })).collect();
        assert_eq!(named, [&npm("@s/a", "1.0.0"), &npm("c", "3.0.0"), &npm("@s/d", "4.0.0")]);
        assert_eq!((urls_of(&listed), listed.left_out.len()), (Vec::from(["https://r.example/b.tgz"]), 1));
    }
}
