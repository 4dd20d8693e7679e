//! Configurations of Squid, nginx and Varnish as a `larder.toml`, with a word for each line of the source.
//!
//! Text goes in, text comes out: there is no file, no clock and no network here. Files that a source includes come through [`Files`].
//! Nothing is dropped in silence: each directive ends as a [`Note`] with its [`Fate`]. Access rules fail closed: of a rule that Larder
//! can't express, a wider one denies and a narrower one allows ([`bound`]).
//!
//! Read in this order: [`note`], [`bound`] (conditions of rules), `draft` (the configuration as it comes about, and its text), then one of the
//! readers `squid`, `nginx`, `varnish`.

// `println!` and its kin panic where nobody reads them.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod bound;
mod draft;
mod formats;
mod networks;
mod nginx;
pub mod note;
mod squid;
mod value;
mod varnish;

pub use formats::{Format, guess};
pub use note::{Counts, Fate, Note};

/// A source with all that it includes is no longer than this.
pub const SOURCE_BYTES_MAX: usize = 16 << 20;
/// Files that include one another, and blocks that stand in one another, are nested no deeper.
pub const DEPTH_MAX: usize = 32;
/// A source with all that it includes has no more directives.
pub const DIRECTIVES_MAX: usize = 100_000;

/// The files that a source names.
pub trait Files {
    /// The text of a file. `Err` says why it can't be read.
    fn read(&mut self, path: &str) -> Result<String, String>;
    /// The paths that a pattern with `*` and `?` means, in the order of their names. A path without either is itself.
    fn matching(&mut self, pattern: &str) -> Vec<String>;
    /// Whether a file can be read, without reading it.
    fn is_there(&mut self, path: &str) -> bool;
}

/// No file at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&mut self, _: &str) -> Result<String, String> {
        Err("files are not read here".to_owned())
    }

    fn matching(&mut self, _: &str) -> Vec<String> {
        Vec::new()
    }

    fn is_there(&mut self, _: &str) -> bool {
        false
    }
}

/// The surroundings of an import.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The format of the source.
    pub format: Format,
    /// The name of the source in comments: `squid.conf`.
    pub name: String,
    /// The time zone of the machine, for rules about times, as `Europe/Berlin`.
    pub zone: Option<String>,
}

/// The outcome of an import.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// The text of the `larder.toml`.
    pub toml: String,
    /// A note for each directive of the source, in its order.
    pub notes: Vec<Note>,
    /// Whether there may be passwords in it: nobody but its owner should read it.
    pub has_secrets: bool,
}

impl Imported {
    /// How many directives had which fate.
    pub fn counts(&self) -> Counts {
        Counts::of(&self.notes)
    }

    /// The notes whose directives decide who may do what, and which Larder does not do as the source did.
    pub fn guards_to_look_at(&self) -> impl Iterator<Item = &Note> {
        self.notes.iter().filter(|note| note.is_open_question())
    }

    /// All that is not the same, as a table.
    pub fn report(&self) -> String {
        note::report(&self.notes)
    }
}

/// Networks as sources write them; `None` where a text is none.
fn network_texts(text: &str) -> Option<Vec<String>> {
    networks::parse(text).map(|nets| nets.iter().map(ToString::to_string).collect())
}

/// Translates a configuration.
pub fn import(text: &str, settings: &Settings, files: &mut dyn Files) -> Imported {
    let draft = match settings.format {
        Format::Squid => squid::read(text, settings, files),
        Format::Nginx => nginx::read(text, settings, files),
        Format::Varnish => varnish::read(text, settings),
    };
    draft.finish(settings)
}
