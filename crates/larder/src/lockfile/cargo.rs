//! `Cargo.lock`: names, versions and digests; the registry by its index.

use super::{Download, FROM_GIT, Listed, Wrong, tables, text};

pub(super) fn read(file: &str) -> Result<Listed, Wrong> {
    let mut listed = Listed::default();
    for package in tables(file, "package")? {
        let (Some(name), Some(version)) = (text(&package, "name"), text(&package, "version")) else { continue };
        // A package without a source lies in the folder itself.
        let Some(source) = text(&package, "source") else { continue };
        if !(is_plain(name) && is_plain(version)) {
            listed.leave_out(
                name.chars().take(CHARACTERS_MAX).collect::<String>(),
                "it is no name and version of a crate",
            );
            continue;
        }
        let index = match source.split_once('+') {
            Some(("sparse", index)) => Some(index.trim_end_matches('/').to_owned()),
            Some(("registry", index)) if index.ends_with(COMMON_INDEX) => None,
            Some(("registry", _)) => {
                listed.leave_out(
                    format!("{name} {version}"),
                    "its index is a git repository: fetch it with cargo through `larder run`",
                );
                continue;
            }
            _ => {
                listed.leave_out(format!("{name} {version}"), FROM_GIT);
                continue;
            }
        };
        let checksum = text(&package, "checksum").map(str::to_owned);
        listed.add(Download::Crate { name: name.to_owned(), version: version.to_owned(), checksum, index });
    }
    Ok(listed)
}

/// Whether this may be the name or version of a crate. An index says how URLs are made of them, so that they must not hold what it
/// replaces, nor be long.
pub fn is_plain(text: &str) -> bool {
    (1..=CHARACTERS_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte))
}

/// Registries take names of 64 characters at most.
const CHARACTERS_MAX: usize = 128;

/// The end of the name that lock files have for the common registry, whose sparse index the tool knows by itself.
const COMMON_INDEX: &str = "/crates.io-index";

/// The place of a crate in an index.
pub fn place(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    match name.len() {
        0 => name,
        1 => format!("1/{name}"),
        2 => format!("2/{name}"),
        3 => format!("3/{}/{name}", name.chars().next().unwrap_or_default()),
        _ => format!("{}/{name}", prefix(&name)),
    }
}

/// The two folders of a name with more than three letters.
fn prefix(name: &str) -> String {
    let mut letters = name.chars();
    let first: String = letters.by_ref().take(2).collect();
    let second: String = letters.take(2).collect();
    format!("{first}/{second}")
}

/// The URL of a crate's file, from the `dl` of the index.
pub fn file_url(dl: &str, name: &str, version: &str, checksum: &str) -> String {
    if !dl.contains('{') {
        return format!("{}/{name}/{version}/download", dl.trim_end_matches('/'));
    }
    let folders = |name: &str| place(name).rsplit_once('/').map(|(folders, _)| folders.to_owned()).unwrap_or_default();
    let of_name: String = if name.len() > 3 { prefix(name) } else { folders(name) };
    dl.replace("{crate}", name)
        .replace("{version}", version)
        .replace("{prefix}", &of_name)
        .replace("{lowerprefix}", &folders(name))
        .replace("{sha256-checksum}", checksum)
}

#[cfg(test)]
mod tests {
    use super::super::{Download, Format};
    use super::*;

    #[test]
    fn crates_of_registries_and_nothing_else() {
        let file = "version = 4\n[[package]]\nname = \"mine\"\nversion = \"0.1.0\"\n\
            [[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"registry+https://a.example/crates.io-index\"\nchecksum = \"ff\"\n\
            [[package]]\nname = \"b\"\nversion = \"2.0.0\"\nsource = \"sparse+https://b.example/index/\"\n\
            [[package]]\nname = \"c\"\nversion = \"3.0.0\"\nsource = \"git+https://c.example/c#0123\"\n";
        let listed = Format::Cargo.read(file).unwrap();
        let one = |name: &str, version: &str, checksum: Option<&str>, index: Option<&str>| Download::Crate {
            name: name.to_owned(),
            version: version.to_owned(),
            checksum: checksum.map(str::to_owned),
            index: index.map(str::to_owned),
        };
        assert_eq!(
            listed.downloads,
            [one("a", "1.0.0", Some("ff"), None), one("b", "2.0.0", None, Some("https://b.example/index"))]
        );
        assert_eq!(listed.left_out[0].what, "c 3.0.0");
    }

    #[test]
    fn places_and_files() {
        for (name, at) in [("a", "1/a"), ("ab", "2/ab"), ("abc", "3/a/abc"), ("Serde", "se/rd/serde"), ("", "")] {
            assert_eq!(place(name), at);
        }
        assert_eq!(file_url("https://a.example/dl/", "x", "1.0.0", ""), "https://a.example/dl/x/1.0.0/download");
        let template = "https://a.example/{prefix}|{lowerprefix}/{crate}-{version}-{sha256-checksum}";
        assert_eq!(file_url(template, "Serde", "1.0.0", "ff"), "https://a.example/Se/rd|se/rd/Serde-1.0.0-ff");
    }
}
