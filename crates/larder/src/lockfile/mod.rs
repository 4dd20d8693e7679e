//! Lists of downloads: lock files of package tools, and plain lists of URLs. A file in, values out; nothing is looked up here.
//!
//! Some formats hold URLs, others names and versions, which need the index of their registry (`run::gather` asks it). Entries that lie
//! in no registry (a repository of git, a folder) are [`LeftOut`] with the reason.

mod cargo;
mod go;
mod npm;
mod pnpm;
mod poetry;
pub mod python;
mod requirements;
mod urls;
mod uv;
mod yarn;

pub use cargo::{file_url as crate_url, is_plain as is_plain_in_crate_url, place as crate_place};
pub use go::escaped;
pub use npm::{page as npm_page, tarball};

use std::fmt;
use std::path::Path;

/// One thing to download.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Download {
    /// A URL that the list holds, as a client of this kind asks for it.
    Url(Tool, String),
    /// Files of a Python package that an index has to name.
    Python(python::Wanted),
    /// A tarball of an npm registry, by its usual path.
    Npm {
        /// The name, with its scope.
        name: String,
        /// The version.
        version: String,
        /// Whether the tool reads the page of the package too.
        page: NpmPage,
    },
    /// A crate and its entry in the index.
    Crate {
        /// The name.
        name: String,
        /// The version.
        version: String,
        /// SHA-256, where the lock file has it.
        checksum: Option<String>,
        /// The index; `None`: the one that the tool uses where nothing else is said.
        index: Option<String>,
    },
    /// A module of Go: its description, and the module itself where that is used.
    Go {
        /// The path.
        path: String,
        /// The version.
        version: String,
        /// Whether only `go.mod` is used.
        part: GoPart,
    },
}

/// Whether a tool reads the page of a package in a registry before it downloads a tarball.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NpmPage {
    /// npm does where its lock file has no URL.
    Read,
    /// pnpm and Yarn know the usual path.
    Unread,
}

/// The parts of a module of Go that a build uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GoPart {
    /// `go.mod` alone.
    Mod,
    /// All files.
    Zip,
}

/// The client whose requests are imitated: variants are chosen by their fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tool {
    /// Any downloader.
    Plain,
    /// pip, uv, poetry.
    Python,
    /// npm, pnpm, yarn.
    Node,
    /// cargo.
    Cargo,
    /// go.
    Go,
}

/// An entry that is not downloaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The entry in words.
    pub what: String,
    /// The reason.
    pub why: &'static str,
}

/// The entries of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Entries to download, each once.
    pub downloads: Vec<Download>,
    /// Entries that lie elsewhere.
    pub left_out: Vec<LeftOut>,
    /// The index that the file itself names.
    pub index: Option<String>,
}

impl Listed {
    fn add(&mut self, download: Download) {
        self.downloads.push(download);
    }

    fn leave_out(&mut self, what: impl Into<String>, why: &'static str) {
        self.left_out.push(LeftOut { what: what.into(), why });
    }
}

/// A repository of git is fetched by git itself.
const FROM_GIT: &str = "it comes from a git repository: fetch that with git through `larder run`";
/// The entry names no version, so that nobody knows which file it would be.
const NO_VERSION: &str = "it names no single version";

/// The format of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A URL a line.
    Urls,
    /// pip.
    Requirements,
    /// uv.
    Uv,
    /// Poetry.
    Poetry,
    /// npm.
    Npm,
    /// pnpm.
    Pnpm,
    /// Yarn, both formats.
    Yarn,
    /// cargo.
    Cargo,
    /// go.
    Go,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 9] = [
        Format::Urls,
        Format::Requirements,
        Format::Uv,
        Format::Poetry,
        Format::Npm,
        Format::Pnpm,
        Format::Yarn,
        Format::Cargo,
        Format::Go,
    ];

    /// The word of the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Urls => "urls",
            Format::Requirements => "requirements",
            Format::Uv => "uv",
            Format::Poetry => "poetry",
            Format::Npm => "npm",
            Format::Pnpm => "pnpm",
            Format::Yarn => "yarn",
            Format::Cargo => "cargo",
            Format::Go => "go",
        }
    }

    /// The format of a word.
    pub fn of_word(word: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.as_str() == word)
    }

    /// The format of a file, by its name, or by its first line where the name says nothing.
    pub fn of_file(path: &Path, text: &str) -> Option<Format> {
        let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
        Some(match &*name {
            "uv.lock" => Format::Uv,
            "poetry.lock" => Format::Poetry,
            "package-lock.json" | "npm-shrinkwrap.json" => Format::Npm,
            "pnpm-lock.yaml" => Format::Pnpm,
            "yarn.lock" => Format::Yarn,
            "cargo.lock" => Format::Cargo,
            "go.sum" => Format::Go,
            _ => {
                let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
                let first = lines.next()?;
                match first.starts_with("http://") || first.starts_with("https://") {
                    true => Format::Urls,
                    false if name.ends_with(".txt") || name.ends_with(".in") => Format::Requirements,
                    false => return None,
                }
            }
        })
    }

    /// Reads a list.
    pub fn read(self, text: &str) -> Result<Listed, Wrong> {
        let mut listed = match self {
            Format::Urls => urls::read(text),
            Format::Requirements => requirements::read(text),
            Format::Uv => uv::read(text),
            Format::Poetry => poetry::read(text),
            Format::Npm => npm::read(text),
            Format::Pnpm => pnpm::read(text),
            Format::Yarn => yarn::read(text),
            Format::Cargo => cargo::read(text),
            Format::Go => go::read(text),
        }?;
        let mut seen = std::collections::HashSet::new();
        listed.downloads.retain(|download| seen.insert(download.clone()));
        Ok(listed)
    }
}

/// Why a list could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong(String);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

fn wrong(what: impl fmt::Display) -> Wrong {
    Wrong(what.to_string())
}

/// The text of a value in a table of TOML.
fn text<'t>(table: &'t toml::Table, name: &str) -> Option<&'t str> {
    table.get(name)?.as_str()
}

/// The tables of an array in a file of TOML.
fn tables(text: &str, name: &str) -> Result<Vec<toml::Table>, Wrong> {
    let mut all: toml::Table = text.parse().map_err(wrong)?;
    match all.remove(name) {
        Some(toml::Value::Array(values)) => Ok(values
            .into_iter()
            .filter_map(|value| match value {
                toml::Value::Table(table) => Some(table),
                _ => None,
            })
            .collect()),
        _ => Ok(Vec::new()),
    }
}

#[cfg(test)]
fn urls_of(listed: &Listed) -> Vec<&str> {
    listed
        .downloads
        .iter()
        .filter_map(|download| match download {
            Download::Url(_, url) => Some(&**url),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_known_by_the_names_of_files() {
        for (name, text, format) in [
            ("a/uv.lock", "", Some(Format::Uv)),
            ("Cargo.lock", "", Some(Format::Cargo)),
            ("requirements-dev.txt", "six==1.16.0\n", Some(Format::Requirements)),
            ("list.txt", "# mine\n\nhttps://a.example/x\n", Some(Format::Urls)),
            ("-", "http://a.example/x\n", Some(Format::Urls)),
            ("-", "six==1.0\n", None),
            ("notes.md", "hello", None),
        ] {
            assert_eq!(Format::of_file(Path::new(name), text), format, "{name}");
        }
        for format in Format::ALL {
            assert_eq!(Format::of_word(format.as_str()), Some(format));
        }
    }

    /// Any text is read or refused.
    #[test]
    fn no_text_breaks_a_reader() {
        let texts = [
            "",
            "{",
            "[",
            "\0",
            "a:\n  b",
            "[[package]]",
            "{\"packages\": 3}",
            "packages:\n  x",
            "==",
            "-r\n-i\n--hash",
            "\u{1F980} v1",
        ];
        for format in Format::ALL {
            for text in texts {
                let _ = format.read(text);
            }
        }
    }
}
