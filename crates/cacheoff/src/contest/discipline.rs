//! One discipline of a contest, as it is written on the command line: `hammer:variant=16kb:rounds=2`.

use super::post::Post;
use crate::workload::{PageVariant, PageWorkload};
use std::path::{Path, PathBuf};

/// A workload with what is changed in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Discipline {
    /// The workload by name or file; [`Discipline::KILL`] and [`Discipline::POWER_CUT`] are tests of
    /// their own.
    pub workload: String,
    /// A variant of it.
    pub variant: Option<String>,
    /// Requests per second at peak, if not those of all disciplines.
    pub peak: Option<f64>,
    /// Length of phases, if not that of all disciplines.
    pub scale: Option<f64>,
    /// Rounds, if not those of all disciplines.
    pub rounds: Option<u32>,
    /// Store of the entries, if not that of all disciplines.
    pub store: Option<String>,
    /// The log or trace that is replayed, for workloads that do.
    pub log: Option<PathBuf>,
    /// Knobs of the workload with their values.
    pub changes: Vec<(String, String)>,
}

impl Discipline {
    /// The name of the test that kills the cache, which is no workload.
    pub const KILL: &str = "kill";

    /// The name of the test that cuts the power under the store, which is no workload.
    pub const POWER_CUT: &str = "power-cut";

    /// A workload as it is.
    pub fn of(workload: &str) -> Self {
        Self { workload: workload.to_owned(), ..Self::default() }
    }

    /// Reads `WORKLOAD[:variant=NAME][:peak=RATE][:scale=FACTOR][:rounds=N][:store=NAME][:log=FILE][:KNOB=VALUE]…`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let mut found = Self::of(parts.next().unwrap_or_default().trim());
        if found.workload.is_empty() {
            return Err(format!("--workload {text:?}: write NAME or NAME:KNOB=VALUE"));
        }
        for part in parts {
            let (knob, value) =
                part.split_once('=').ok_or_else(|| format!("--workload {text}: write {part:?} as KNOB=VALUE"))?;
            let (knob, value) = (knob.trim(), value.trim());
            let positive = || {
                let number = value.parse().ok().filter(|number: &f64| *number > 0.0 && number.is_finite());
                number.ok_or_else(|| format!("--workload {text}: {knob} must be a number above 0, not {value:?}"))
            };
            match knob {
                "variant" => found.variant = Some(value.to_owned()),
                "peak" => found.peak = Some(positive()?),
                "scale" => found.scale = Some(positive()?),
                "rounds" => found.rounds = Some(positive()?.ceil() as u32),
                "store" => found.store = Some(value.to_owned()),
                "log" => found.log = Some(value.into()),
                _ => found.changes.push((knob.to_owned(), value.to_owned())),
            }
        }
        Ok(found)
    }

    /// Its name in reports: two disciplines with the same one are compared with each other.
    pub fn title(&self) -> String {
        let stem = |path: &Path| path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        let name = stem(Path::new(&self.workload));
        let log = self.log.as_deref().map(stem);
        let changes = self.changes.iter().map(|(knob, value)| format!("{knob} {value}"));
        let all: Vec<String> = self.variant.iter().cloned().chain(log).chain(changes).collect();
        if all.is_empty() { name } else { format!("{name} ({})", all.join(", ")) }
    }

    /// How a cache is asked where nobody says: the mixes of Polygraph were made for forward proxies.
    pub fn usual_mode(&self) -> &'static str {
        if self.asks_for_pages() {
            return Post::PAGES;
        }
        let is_mix = ["polymix-", "polyfill-", "datacomm-"].iter().any(|start| self.title().starts_with(start));
        if is_mix { "forward" } else { "reverse" }
    }

    /// Whether it is played against servers that make pages.
    pub fn asks_for_pages(&self) -> bool {
        self.pages().is_some()
    }

    /// The workload of such servers that it is.
    pub fn pages(&self) -> Option<&'static PageWorkload> {
        PageWorkload::named(&self.workload)
    }

    /// The disciplines that are meant: a workload for such servers without a variant is one of each variant.
    pub fn spread(self) -> Vec<Self> {
        match self.pages().filter(|_| self.variant.is_none()) {
            None => vec![self],
            Some(workload) => {
                let of = |variant: &PageVariant| Self { variant: Some(variant.name.to_owned()), ..self.clone() };
                workload.variants.iter().map(of).collect()
            }
        }
    }

    /// Whether the cache is killed, by a signal or with its power.
    pub fn kills(&self) -> bool {
        self.workload == Self::KILL || self.cuts_power()
    }

    /// Whether the device under its store loses its power.
    pub fn cuts_power(&self) -> bool {
        self.workload == Self::POWER_CUT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discipline_says_what_differs() {
        let found = Discipline::parse("hammer:variant=16kb:rounds=2:robot.count=4").unwrap();
        assert_eq!((found.variant.as_deref(), found.rounds), (Some("16kb"), Some(2)));
        assert_eq!(found.title(), "hammer (16kb, robot.count 4)");
        assert_eq!(Discipline::parse("dir/mine.toml:peak=9").unwrap().title(), "mine");
        let replay = Discipline::parse("replay:log=traces/monday.bin:replay.speed=2").unwrap();
        assert_eq!(replay.log.as_deref(), Some(Path::new("traces/monday.bin")));
        assert_eq!(replay.title(), "replay (monday, replay.speed 2)");
        for (workload, mode) in
            [("polymix-4:peak=9", "forward"), ("polyfill-2", "forward"), ("webaxe-4", "reverse"), ("board", "pages")]
        {
            assert_eq!(Discipline::parse(workload).unwrap().usual_mode(), mode, "{workload}");
        }
        let ends = |text: &str| Discipline::parse(text).map(|found| (found.kills(), found.cuts_power())).unwrap();
        assert_eq!(["kill", "power-cut:load_s=2", "tree"].map(ends), [(true, false), (true, true), (false, false)]);
    }

    #[test]
    fn a_workload_for_servers_without_a_variant_is_one_of_each() {
        let titles = |text: &str| -> Vec<String> {
            Discipline::parse(text).unwrap().spread().iter().map(Discipline::title).collect()
        };
        let of_page = ["page (15-kept)", "page (15-close)", "page (1-kept)", "page (1-close)"];
        assert_eq!(titles("page:rounds=2"), of_page);
        assert_eq!(titles("page:variant=1-kept"), ["page (1-kept)"]);
        assert_eq!(
            (titles("board"), titles("hammer")),
            (vec!["board (15-kept)".to_owned()], vec!["hammer".to_owned()])
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for (text, reason) in [("", "write NAME"), ("tree:peak", "as KNOB=VALUE"), ("tree:scale=-1", "above 0")] {
            let error = Discipline::parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
