//! An entry as data: its `entry.toml`, its templates, and the text they become for one start.

use super::applications::application;
use super::post::Post;
use super::tuning::Setting;
use crate::ledger::Listener;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A value may hold placeholders whose values hold placeholders; deeper than this is a circle.
const NESTING_MAX: usize = 5;
/// The file beside `entry.toml` in which the maker of a product comments on the entry and its results.
const COMMENTS: &str = "comments.txt";
/// A value of a mode or a store that is no placeholder: commands before the start.
const PREPARE: &str = "prepare";
/// Values of a listener that are none: commands that run beside the program, and what it needs beside it.
const BESIDE: &str = "beside";
const NEEDS: &str = "needs";

/// Entries that come with the program.
macro_rules! builtin {
    ($all:ident: $($name:literal: $($file:literal)*;)+) => {
        static $all: &[(&str, &[(&str, &str)])] = &[$((
            $name,
            &[
                ("entry.toml", include_str!(concat!("../../entries/", $name, "/entry.toml"))),
                $(($file, include_str!(concat!("../../entries/", $name, "/", $file))),)*
            ],
        ),)+];
    };
}

builtin! {
    CACHES:
    "larder": "larder.toml" "comments.txt";
    "squid": "squid.conf";
    "nginx": "nginx.conf";
    "varnish": "entry.vcl" "terminator.cfg";
    "trafficserver": "records.config" "remap.config" "storage.config" "plugin.config" "ip_allow.yaml" "runroot.yaml" "ssl_multicert.config";
    "haproxy": "haproxy.cfg";
    "apache": "apache.conf";
    "h2o": "h2o.conf";
}

builtin! {
    SERVERS:
    "larder-wsgi": "larder.toml";
    "larder-asgi": "larder.toml";
    "larder-hook": "larder.toml";
    "granian":;
    "uvicorn":;
    "uwsgi": "uwsgi.ini";
    "apache-wsgi": "apache.conf";
    "nginx-perl": "nginx.conf";
    "nginx-php": "nginx.conf" "fpm.conf";
    "lighttpd-php": "lighttpd.conf" "fpm.conf";
    "puma": "puma.rb";
}

/// An entry before it is started.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EntrySpec {
    /// Its name in tables.
    pub name: String,
    /// The product.
    pub product: String,
    /// The program.
    pub program: String,
    /// Where the program comes from, for the reason when it is absent.
    pub package: String,
    /// Arguments that print the version.
    pub version: Vec<String>,
    /// Arguments to start it in the foreground.
    pub start: Vec<String>,
    /// Where it listens, if nothing is started or not on the given port.
    pub address: String,
    /// Commands before the start.
    pub prepare: Vec<Vec<String>>,
    /// Commands that run beside the program, as its children, from its start to its end.
    pub beside: Vec<Vec<String>>,
    /// Users to run as when started by root.
    pub users: Vec<String>,
    /// Folders in its own folder.
    pub folders: Vec<String>,
    /// Applications that come with the program, written into its own folder.
    pub applications: Vec<String>,
    /// Programs and files that it needs beside its program, each with the package that brings it.
    pub needs: Vec<[String; 2]>,
    /// Whether the program is looked for in the virtual environment of `--python` first.
    pub virtual_environment: bool,
    /// Variables.
    pub environment: BTreeMap<String, String>,
    /// Signal that ends it.
    pub stop: Stop,
    /// Statuses that mean "not ready".
    pub ready_refuses: Vec<u16>,
    /// Seconds until it must be ready; 0 is the default of [`EntrySpec::READY_S`].
    pub ready_s: u64,
    /// The method by which it forgets a URL, such as `PURGE`.
    pub purge: Option<String>,
    /// Remarks on the tuning.
    pub notes: Vec<String>,
    /// Price, for the normalised figures.
    pub price: Option<f64>,
    /// Its currency.
    pub currency: Option<String>,
    /// Power drawn in watts.
    pub watts: Option<f64>,
    /// Files to write.
    #[serde(rename = "file")]
    pub files: Vec<FileSpec>,
    /// More placeholders.
    pub values: BTreeMap<String, String>,
    /// Ways it can be asked.
    pub mode: BTreeMap<String, Variation>,
    /// Stores it has.
    pub store: BTreeMap<String, Variation>,
    /// Protocols that its listener speaks, by the words of [`Listener`]; if none is said, HTTP/1 in the clear.
    pub listener: BTreeMap<String, Variation>,
    /// The `/etc/hosts` that it sees; that of the machine if this is empty.
    #[serde(skip)]
    pub hosts: String,
    /// Whether, as a forward proxy, it cannot find the names of sites in `/etc/hosts`.
    pub ignores_hosts: bool,
    /// Whether it wants a folder in memory for more than its store: `@memory_dir@`.
    pub memory_dir: bool,
    /// Its tunings, if it has several: `stock` as the product is shipped, `expert` as its manual advises for speed.
    #[serde(rename = "tuning")]
    pub tuning_values: BTreeMap<String, Variation>,
    /// The reasons for all of its settings.
    #[serde(rename = "setting")]
    pub settings: Vec<Setting>,
    /// The tuning that was chosen; empty where there is one alone.
    #[serde(skip)]
    pub tuning: String,
    /// The maker's words on the entry: the text of `comments.txt` beside `entry.toml`.
    #[serde(skip)]
    pub comments: String,
    /// The folder that it was read from, if it is the user's own.
    #[serde(skip)]
    pub source: Option<PathBuf>,
    #[serde(skip)]
    pub(super) templates: BTreeMap<String, String>,
}

/// A file that is written before the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSpec {
    /// Below the entry's own folder.
    pub path: String,
    /// Beside `entry.toml`.
    pub template: String,
}

/// Placeholders of a mode or a store; `prepare` holds commands.
pub type Variation = BTreeMap<String, toml::Value>;

/// The signal that ends an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Stop {
    /// SIGTERM.
    #[default]
    Term,
    /// SIGINT.
    Int,
    /// SIGQUIT.
    Quit,
}

impl EntrySpec {
    /// Seconds until an entry must be ready, if it does not say.
    pub const READY_S: u64 = 20;

    /// Names of the caches that come with the program.
    pub fn builtin_names() -> impl Iterator<Item = &'static str> {
        CACHES.iter().map(|(name, _)| *name)
    }

    /// Names of the servers that come with the program and make pages.
    pub fn server_names() -> impl Iterator<Item = &'static str> {
        SERVERS.iter().map(|(name, _)| *name)
    }

    /// The tuning that is meant where none is named.
    const USUAL_TUNING: &str = "expert";

    /// An entry that comes with the program, as `NAME` or `NAME/TUNING`.
    pub fn builtin(name: &str) -> Result<Self, String> {
        match name.split_once('/') {
            Some((name, tuning)) => Self::builtin_entry(name)?.tuned(tuning),
            None => Self::builtin_entry(name),
        }
    }

    fn builtin_entry(name: &str) -> Result<Self, String> {
        let known = || Self::builtin_names().chain(Self::server_names()).collect::<Vec<_>>().join(", ");
        let name = if name == "ats" { "trafficserver" } else { name };
        let (_, files) =
            CACHES.iter().chain(SERVERS).find(|(each, _)| *each == name).ok_or_else(|| {
                format!("unknown entry {name:?}; there are {}, and --entry FOLDER for your own", known())
            })?;
        let templates = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let comments = files.iter().find(|(name, _)| *name == COMMENTS).map_or("", |(_, text)| text).to_owned();
        let spec = Self::parse(files[0].1, templates).map_err(|error| format!("entry {name}: {error}"))?;
        Ok(Self { comments, ..spec })
    }

    /// The entries that flags name: those that come with the program, then folders of the user's. Empty names are none.
    pub fn chosen(names: &[String], folders: &[PathBuf]) -> Result<Vec<Self>, String> {
        let builtin = names.iter().filter(|name| !name.is_empty()).map(|name| Self::builtin(name));
        builtin.chain(folders.iter().map(|folder| Self::folder(folder))).collect()
    }

    /// An entry of the user's.
    pub fn folder(folder: &Path) -> Result<Self, String> {
        let file = folder.join("entry.toml");
        let read = |path: &Path| {
            fs::read_to_string(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))
        };
        let text = read(&file)?;
        let spec = Self::parse(&text, BTreeMap::new()).map_err(|error| format!("{}: {error}", file.display()))?;
        let templates = spec.files.iter().map(|file| Ok((file.template.clone(), read(&folder.join(&file.template))?)));
        let templates = templates.collect::<Result<_, String>>()?;
        // Most entries have none.
        let comments = fs::read_to_string(folder.join(COMMENTS)).unwrap_or_default();
        Ok(Self { templates, comments, source: Some(folder.to_owned()), ..spec })
    }

    /// The names of its tunings; an empty one where there is one alone.
    pub fn tunings(&self) -> Vec<String> {
        match self.tuning_values.is_empty() {
            true => vec![String::new()],
            false => self.tuning_values.keys().cloned().collect(),
        }
    }

    /// The entry with another tuning; one that is not the usual one stands in its name, so that both are shown.
    pub fn tuned(&self, tuning: &str) -> Result<Self, String> {
        if !self.tunings().iter().any(|known| known == tuning) {
            let known: Vec<String> = self.tuning_values.keys().cloned().collect();
            let known = if known.is_empty() { "it has one alone".to_owned() } else { known.join(", ") };
            return Err(format!("entry {} has no tuning {tuning:?}: {known}", self.name));
        }
        let plain = self.name.split('/').next().unwrap_or_default();
        let name = match tuning {
            "" | Self::USUAL_TUNING => plain.to_owned(),
            other => format!("{plain}/{other}"),
        };
        Ok(Self { name, tuning: tuning.to_owned(), ..self.clone() })
    }

    /// An entry that a shell command starts in the foreground.
    pub fn command(start: &str, address: &str) -> Self {
        Self {
            product: start.to_owned(),
            program: "/bin/sh".to_owned(),
            start: vec!["-c".to_owned(), start.to_owned()],
            ..Self::address("command", address)
        }
    }

    /// An entry that is only asked, never started.
    pub fn address(name: &str, address: &str) -> Self {
        Self {
            name: name.to_owned(),
            product: address.to_owned(),
            address: address.to_owned(),
            mode: ["forward", "reverse", Post::PAGES].map(|mode| (mode.to_owned(), Variation::new())).into(),
            purge: Some("PURGE".to_owned()),
            notes: vec!["Started and configured by somebody else: its tuning is not known.".to_owned()],
            ..Self::default()
        }
    }

    fn parse(text: &str, templates: BTreeMap<String, String>) -> Result<Self, String> {
        let spec: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        let usual = spec.tuning_values.contains_key(Self::USUAL_TUNING).then_some(Self::USUAL_TUNING);
        let tuning = usual.or(spec.tuning_values.keys().next().map(String::as_str)).unwrap_or_default().to_owned();
        let spec = Self { templates, tuning, ..spec };
        let problem = match &spec {
            spec if spec.name.is_empty() => Some("it has no name"),
            spec if spec.program.is_empty() && spec.address.is_empty() => {
                Some("it has neither a program to start nor an address to ask")
            }
            spec if spec.mode.is_empty() => Some("it has no [mode.forward], no [mode.reverse] and no [mode.pages]"),
            spec if spec.files.iter().any(|file| escapes(&file.path) || escapes(&file.template)) => {
                Some("a path of a [[file]] leaves the entry's folder")
            }
            spec if spec.folders.iter().any(|folder| escapes(folder)) => Some("a folder leaves the entry's folder"),
            _ => None,
        };
        spec.applications.iter().try_for_each(|name| application(name).map(drop))?;
        problem.map_or(Ok(spec), |problem| Err(problem.to_owned()))
    }

    /// Whether it can be asked in this way, with this store.
    pub fn can(&self, mode: &str, store: &str) -> Result<(), String> {
        let listed = |all: &BTreeMap<String, Variation>| all.keys().cloned().collect::<Vec<_>>().join(" or ");
        if mode == Post::PAGES && !self.makes_pages() {
            return Err(format!("{} makes no pages: it is a cache. {}", self.name, pages_are_made_by()));
        }
        if mode != Post::PAGES && self.makes_pages() && self.mode.len() == 1 {
            return Err(format!("{} makes pages and is no cache: it plays the workloads page and board", self.name));
        }
        if !self.mode.contains_key(mode) {
            return Err(format!("{} cannot be asked as a {mode} proxy, only {}", self.name, listed(&self.mode)));
        }
        if !self.store.is_empty() && !self.store.contains_key(store) {
            return Err(format!("{} has no {store} store, only {}", self.name, listed(&self.store)));
        }
        Ok(())
    }

    /// Whether its listener speaks this protocol. One that somebody else has started is believed, as far as nobody must sign for it.
    pub fn speaks(&self, listener: Listener) -> Result<(), String> {
        let usual = self.listener.is_empty() && listener == Listener::Http;
        let believed = self.program.is_empty() && !listener.is_secure();
        if usual || believed || self.listener.contains_key(listener.as_str()) {
            return Ok(());
        }
        let known = match self.listener.is_empty() {
            true => Listener::Http.as_str().to_owned(),
            false => self.listener.keys().cloned().collect::<Vec<_>>().join(" or "),
        };
        Err(format!("the entry of {} has no listener for {}, only for {known}", self.name, listener.as_str()))
    }

    /// Whether it makes pages.
    pub fn makes_pages(&self) -> bool {
        self.mode.contains_key(Post::PAGES)
    }

    /// Commands before the start, those of the mode and the store included.
    pub(super) fn preparations(&self, mode: &str, store: &str) -> Vec<Vec<String>> {
        let of = |variation| lists(variation, PREPARE);
        [self.prepare.clone(), of(self.mode.get(mode)), of(self.store.get(store))].concat()
    }

    /// Commands beside the program, those of the listener included.
    pub(super) fn companions(&self, listener: Listener) -> Vec<Vec<String>> {
        [self.beside.clone(), lists(self.listener.get(listener.as_str()), BESIDE)].concat()
    }

    /// Programs and files that it needs, each with its package, those of the listener included.
    pub(super) fn needed(&self, listener: Listener) -> Vec<[String; 2]> {
        let of_listener = lists(self.listener.get(listener.as_str()), NEEDS);
        let pairs = of_listener.into_iter().filter_map(|words| <[String; 2]>::try_from(words).ok());
        self.needs.iter().cloned().chain(pairs).collect()
    }

    /// Placeholders of one start: those of the entry, of the mode, the store, the tuning, the listener, and what the contest gives.
    pub(super) fn values(
        &self,
        (mode, store, listener): (&str, &str, Listener),
        given: BTreeMap<String, String>,
    ) -> Values {
        let mut all = self.values.clone();
        let variations = [
            self.mode.get(mode),
            self.store.get(store),
            self.tuning_values.get(&self.tuning),
            self.listener.get(listener.as_str()),
        ];
        for variation in variations.into_iter().flatten() {
            let texts = variation.iter().filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
            all.extend(texts);
        }
        all.extend(given);
        Values(all)
    }

    /// The files as they are written: path and text.
    pub(super) fn written(&self, values: &Values) -> Result<Vec<(String, String)>, String> {
        let write = |file: &FileSpec| {
            let template = self.templates.get(&file.template);
            let template = template.ok_or_else(|| format!("entry {}: no template {}", self.name, file.template))?;
            let text =
                values.fill(template).map_err(|error| format!("entry {}, {}: {error}", self.name, file.template))?;
            Ok((file.path.clone(), text))
        };
        self.files.iter().map(write).collect()
    }
}

/// Lists of words that a mode, a store or a listener has under this name.
fn lists(variation: Option<&Variation>, name: &str) -> Vec<Vec<String>> {
    let lists = variation.and_then(|v| v.get(name)).and_then(toml::Value::as_array);
    let words = |list: &toml::Value| {
        let words = list.as_array().into_iter().flatten();
        words.filter_map(|word| word.as_str().map(str::to_owned)).collect()
    };
    lists.into_iter().flatten().map(words).collect()
}

/// The entries to be named where pages are asked for.
fn pages_are_made_by() -> String {
    let names: Vec<&str> = EntrySpec::server_names().collect();
    format!("The workloads page and board are for {}", names.join(", "))
}

fn escapes(path: &str) -> bool {
    path.starts_with('/') || path.split('/').any(|part| part == "..")
}

/// Placeholders with their values.
pub(super) struct Values(BTreeMap<String, String>);

impl Values {
    /// A text with all its placeholders filled.
    pub fn fill(&self, text: &str) -> Result<String, String> {
        let mut text = text.to_owned();
        for _ in 0..NESTING_MAX {
            let filled = self.fill_once(&text)?;
            if filled == text {
                return Ok(filled);
            }
            text = filled;
        }
        Err("placeholders stand for each other in a circle".to_owned())
    }

    /// Each in a list.
    pub fn fill_all(&self, texts: &[String]) -> Result<Vec<String>, String> {
        texts.iter().map(|text| self.fill(text)).collect()
    }

    fn fill_once(&self, text: &str) -> Result<String, String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some(start) = rest.find('@') {
            let after = &rest[start + 1..];
            let length = after.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(after.len());
            out.push_str(&rest[..start]);
            if length == 0 || !after[length..].starts_with('@') {
                out.push('@');
                rest = after;
                continue;
            }
            let name = &after[..length];
            out.push_str(self.0.get(name).ok_or_else(|| format!("unknown placeholder @{name}@"))?);
            rest = &after[length + 1..];
        }
        out.push_str(rest);
        Ok(out)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A value for each placeholder.
    pub fn given() -> BTreeMap<String, String> {
        let names = [
            "dir",
            "port",
            "origin",
            "origin_host",
            "origin_port",
            "memory_mb",
            "disk_mb",
            "workers",
            "user",
            "group",
            "program",
            "cache_dir",
            "connections_max",
            "memory_dir",
            "object_bytes_max",
            "processes",
            "interpreter",
            "database",
            "chain",
            "key",
            "chain_and_key",
        ];
        names.map(|name| (name.to_owned(), format!("<{name}>"))).into()
    }

    #[test]
    fn every_entry_fills_every_template_in_every_mode_and_store() {
        for name in EntrySpec::builtin_names().chain(EntrySpec::server_names()) {
            let spec = EntrySpec::builtin(name).unwrap();
            assert_eq!((spec.name.as_str(), spec.makes_pages()), (name, EntrySpec::server_names().any(|n| n == name)));
            assert!(!spec.notes.is_empty() && !spec.package.is_empty(), "{name} must explain itself");
            let specs = spec.tunings().into_iter().map(|tuning| spec.tuned(&tuning).unwrap());
            for (spec, mode, store, listener) in specs.flat_map(every_place) {
                let (mode, store) = (mode.as_str(), store.as_str());
                spec.can(mode, store).unwrap();
                let values = spec.values((mode, store, listener), given());
                let files = spec.written(&values).unwrap();
                let all: String = files.iter().map(|(_, text)| text.as_str()).collect();
                let start = values.fill_all(&spec.start).unwrap();
                assert!(all.contains("<port>") || start.iter().any(|word| word.contains("<port>")), "{name}");
                let has_processes =
                    all.contains("<processes>") || start.iter().any(|word| word.contains("<processes>"));
                assert_eq!(has_processes, spec.makes_pages(), "{name}: the number of processes is that of the contest");
                spec.companions(listener).iter().for_each(|command| drop(values.fill_all(command).unwrap()));
                spec.preparations(mode, store).iter().for_each(|command| drop(values.fill_all(command).unwrap()));
            }
        }
    }

    /// The protocols that an entry's listener speaks.
    pub fn listeners(spec: &EntrySpec) -> Vec<Listener> {
        Listener::ALL.into_iter().filter(|listener| spec.speaks(*listener).is_ok()).collect()
    }

    /// An entry in every mode with every store and protocol.
    fn every_place(spec: EntrySpec) -> Vec<(EntrySpec, String, String, Listener)> {
        // A server that makes pages has no store.
        let none = [(String::new(), Variation::new())].into();
        let all = if spec.store.is_empty() { &none } else { &spec.store };
        let stores = |mode: &String| all.keys().map(|s| (mode.clone(), s.clone())).collect::<Vec<_>>();
        let places = spec.mode.keys().flat_map(stores);
        let spoken = |(mode, store): (String, String)| {
            listeners(&spec).into_iter().map(move |each| (mode.clone(), store.clone(), each)).collect::<Vec<_>>()
        };
        let all = places.flat_map(spoken);
        all.map(|(mode, store, listener)| (spec.clone(), mode, store, listener)).collect()
    }

    #[test]
    fn a_tuning_stands_in_the_name_unless_it_is_the_usual_one() {
        let squid = EntrySpec::builtin("squid").unwrap();
        assert_eq!((squid.name.as_str(), squid.tuning.as_str()), ("squid", "expert"));
        let stock = EntrySpec::builtin("squid/stock").unwrap();
        assert_eq!((stock.name.as_str(), stock.tuning.as_str()), ("squid/stock", "stock"));
        assert_eq!(stock.tuned("expert").unwrap().name, "squid");
        assert!(EntrySpec::builtin("squid/best").unwrap_err().contains("has no tuning \"best\": expert, stock"));
        assert!(EntrySpec::builtin("h2o/stock").unwrap_err().contains("it has one alone"));
    }

    #[test]
    fn placeholders_nest_and_circles_and_unknown_ones_are_errors() {
        let values = Values(
            [("a", "1 @b@"), ("b", "2"), ("x", "@y@"), ("y", "@x@")].map(|(n, v)| (n.to_owned(), v.to_owned())).into(),
        );
        assert_eq!(values.fill("me@example @a@, @ and @@").unwrap(), "me@example 1 2, @ and @@");
        assert_eq!(values.fill("@c@").unwrap_err(), "unknown placeholder @c@");
        assert!(values.fill("@x@").unwrap_err().contains("circle"));
    }

    #[test]
    fn nonsense_is_refused_with_its_reason() {
        for (text, reason) in [
            ("", "no name"),
            ("name = \"a\"", "neither a program"),
            ("name = \"a\"\nprogram = \"a\"", "no [mode.forward]"),
            ("name = \"a\"\nprogram = \"a\"\napplications = [\"x.py\"]\n[mode.pages]", "no application \"x.py\""),
            ("name = \"a\"\nspeed = 9", "unknown field `speed`"),
            ("name = \"a\"\nprogram = \"a\"\nfolders = [\"../up\"]\n[mode.forward]", "leaves the entry's folder"),
        ] {
            let error = EntrySpec::parse(text, BTreeMap::new()).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert!(
            EntrySpec::builtin("polipo").unwrap_err().contains("unknown entry \"polipo\"; there are larder, squid")
        );
        for (name, mode, reason) in [
            ("varnish", "forward", "only reverse"),
            (
                "squid",
                "pages",
                "squid makes no pages: it is a cache. The workloads page and board are for larder-wsgi, ",
            ),
            ("puma", "reverse", "puma makes pages and is no cache"),
        ] {
            let error = EntrySpec::builtin(name).unwrap().can(mode, "memory").unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_folder_is_an_entry() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(
            folder.path().join("entry.toml"),
            "name = \"mine\"\nprogram = \"mine\"\n[[file]]\npath = \"m.conf\"\ntemplate = \"m.conf\"\n[mode.forward]\n",
        )
        .unwrap();
        assert!(EntrySpec::folder(folder.path()).unwrap_err().contains("m.conf cannot be read"));
        fs::write(folder.path().join("m.conf"), "port @port@").unwrap();
        let spec = EntrySpec::folder(folder.path()).unwrap();
        let values = spec.values(("forward", "memory", Listener::Http), given());
        assert_eq!(spec.written(&values).unwrap(), [("m.conf".to_owned(), "port <port>".to_owned())]);
    }
}
