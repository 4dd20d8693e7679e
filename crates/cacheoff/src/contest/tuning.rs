//! The tuning of an entry as data: which settings it has, why, and where the product's manual says so; and the
//! advantages that a product must not have alone.

use serde::Deserialize;

/// One reason for one or several lines of an entry's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Setting {
    /// How the lines begin, in the files or among the arguments of the start.
    pub lines: Vec<String>,
    /// The only tuning that has them; empty for all.
    pub tuning: String,
    /// Advantages that these lines give.
    pub gives: Vec<Advantage>,
    /// Advantages that the product has without a setting.
    pub built_in: Vec<Advantage>,
    /// Advantages that the product cannot have.
    pub lacks: Vec<Advantage>,
    /// The reason, in a sentence.
    pub why: String,
    /// The manual's section.
    pub manual: String,
}

/// Something that makes a cache score better and that many products have: one that can have it, has it in the contest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Advantage {
    /// Requests for an object that is being fetched wait for this fetch.
    Collapsing,
    /// A reload of a client (RFC 9111 section 5.2.1.4) is taken to the origin, and renews what is stored.
    Reload,
    /// Expired objects are validated and kept.
    Validation,
    /// Variants are stored beside each other (RFC 9111 section 4.1).
    Variants,
    /// Objects up to 64 MB are stored, or as much as the product can.
    LargeObjects,
    /// With a store in memory, no device is written: files and shared memory are in memory as well.
    MemoryStore,
    /// As many workers as cores.
    Workers,
    /// As many connections as the limit of open files allows.
    Connections,
    /// Connections of clients stay open between requests.
    ClientKeepAlive,
    /// Connections to origins stay open between requests.
    OriginKeepAlive,
    /// No access log.
    NoAccessLog,
    /// As many processes of the application as all entries have.
    Processes,
    /// The connection to the database stays open from one request to the next.
    OpenDatabase,
    /// The application is read and compiled once, not for each request.
    CompiledOnce,
}

impl Advantage {
    /// Those of servers that make pages: each of these says of each whether it has it.
    pub const OF_SERVERS: [Self; 5] =
        [Self::Processes, Self::ClientKeepAlive, Self::NoAccessLog, Self::OpenDatabase, Self::CompiledOnce];

    /// Those of caches: each of these says of each whether it has it.
    pub const OF_CACHES: [Self; 11] = [
        Self::Collapsing,
        Self::Reload,
        Self::Validation,
        Self::Variants,
        Self::LargeObjects,
        Self::MemoryStore,
        Self::Workers,
        Self::Connections,
        Self::ClientKeepAlive,
        Self::OriginKeepAlive,
        Self::NoAccessLog,
    ];

    /// The words of reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Collapsing => "collapsing",
            Self::Reload => "reloads",
            Self::Validation => "validation",
            Self::Variants => "variants",
            Self::LargeObjects => "large objects",
            Self::MemoryStore => "a store in memory alone",
            Self::Workers => "workers",
            Self::Connections => "connections",
            Self::ClientKeepAlive => "keep-alive to clients",
            Self::OriginKeepAlive => "keep-alive to origins",
            Self::NoAccessLog => "no access log",
            Self::Processes => "processes",
            Self::OpenDatabase => "an open database",
            Self::CompiledOnce => "an application that is compiled once",
        }
    }
}

impl Setting {
    /// Whether a tuning has it.
    pub(super) fn is_of(&self, tuning: &str) -> bool {
        self.tuning.is_empty() || self.tuning == tuning
    }

    /// A remark for the report: lines, reason, manual.
    pub(super) fn remark(&self) -> String {
        let list = |all: &[Advantage]| all.iter().map(|each| each.as_str()).collect::<Vec<_>>().join(", ");
        let mut parts = Vec::new();
        if !self.lines.is_empty() {
            parts.push(self.lines.join("; "));
        }
        if !self.built_in.is_empty() {
            parts.push(format!("built in: {}", list(&self.built_in)));
        }
        if !self.lacks.is_empty() {
            parts.push(format!("not to be had: {}", list(&self.lacks)));
        }
        format!("{}: {} ({})", parts.join("; "), self.why, self.manual)
    }
}

/// Fairness of the entries that come with the program.
#[cfg(test)]
mod tests {
    use super::super::entry::{self, EntrySpec};
    use super::*;
    use crate::ledger::Listener;

    /// An entry with one of its tunings.
    fn all() -> Vec<EntrySpec> {
        let names = EntrySpec::builtin_names().chain(EntrySpec::server_names());
        let entries = names.map(|name| EntrySpec::builtin(name).unwrap());
        entries.flat_map(|spec| spec.tunings().into_iter().map(move |word| spec.tuned(&word).unwrap())).collect()
    }

    /// Lines of all files, arguments with `=` and commands beside the program, as they are written for a mode and a store.
    fn lines(spec: &EntrySpec, mode: &str, store: &str) -> Vec<String> {
        let all = entry::tests::listeners(spec).into_iter();
        all.flat_map(|listener| spoken(spec, mode, store, listener)).collect()
    }

    fn spoken(spec: &EntrySpec, mode: &str, store: &str, listener: Listener) -> Vec<String> {
        let given = entry::tests::given().into_keys().map(|name| (name.clone(), format!("/{name}"))).collect();
        let values = spec.values((mode, store, listener), given);
        let texts = spec.written(&values).unwrap().into_iter().map(|(_, text)| text);
        let files = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
        let arguments = values.fill_all(&spec.start).unwrap().into_iter().filter(|word| word.contains('='));
        let beside = spec.companions(listener).into_iter().map(|words| values.fill_all(&words).unwrap().join(" "));
        let bare =
            |line: &String| line.is_empty() || line.starts_with('#') || line.chars().all(|c| "{}[];".contains(c));
        files.chain(arguments).chain(beside).map(|line| line.trim().to_owned()).filter(|line| !bare(line)).collect()
    }

    /// Each mode and each store that caches.
    fn places(spec: &EntrySpec) -> Vec<(String, String)> {
        let stores = || spec.store.keys().filter(|store| *store != "pass" || spec.store.len() == 1);
        if spec.store.is_empty() {
            return spec.mode.keys().map(|mode| (mode.clone(), String::new())).collect();
        }
        spec.mode.keys().flat_map(|mode| stores().map(move |store| (mode.clone(), store.clone()))).collect()
    }

    #[test]
    fn every_line_of_every_entry_has_its_reason() {
        let mut bare = Vec::new();
        for spec in all() {
            for (mode, store) in places(&spec) {
                let known: Vec<&String> =
                    spec.settings.iter().filter(|s| s.is_of(&spec.tuning)).flat_map(|s| &s.lines).collect();
                let lines = lines(&spec, &mode, &store);
                let unknown = lines.iter().filter(|line| !known.iter().any(|start| line.starts_with(*start)));
                bare.extend(unknown.map(|line| format!("{} {}: {line}", spec.name, spec.tuning)));
            }
        }
        bare.sort();
        bare.dedup();
        assert!(bare.is_empty(), "no reason for\n{}", bare.join("\n"));
    }

    #[test]
    fn every_reason_says_why_and_where_and_its_lines_exist() {
        for spec in all() {
            let written: Vec<String> =
                places(&spec).iter().flat_map(|(mode, store)| lines(&spec, mode, store)).collect();
            for setting in spec.settings.iter().filter(|setting| setting.is_of(&spec.tuning)) {
                assert!(setting.why.ends_with('.') && !setting.manual.is_empty(), "{}: {setting:?}", spec.name);
                for start in &setting.lines {
                    assert!(written.iter().any(|line| line.starts_with(start)), "{}: no line {start}", spec.name);
                }
            }
        }
    }

    /// An advantage that one product is given is given to each that can have it.
    #[test]
    fn every_entry_has_each_advantage_or_cannot_have_it() {
        let names = EntrySpec::builtin_names().chain(EntrySpec::server_names());
        for spec in names.map(|name| EntrySpec::builtin(name).unwrap()) {
            let wanted = if spec.makes_pages() { &Advantage::OF_SERVERS[..] } else { &Advantage::OF_CACHES };
            for advantage in wanted.iter().copied() {
                let of = |pick: fn(&Setting) -> &Vec<Advantage>| {
                    let rows = spec.settings.iter().filter(|setting| setting.is_of(&spec.tuning));
                    rows.filter(|setting| pick(setting).contains(&advantage)).collect::<Vec<_>>()
                };
                let (given, built_in, lacking) = (of(|s| &s.gives), of(|s| &s.built_in), of(|s| &s.lacks));
                assert_eq!(
                    given.len() + built_in.len() + lacking.len(),
                    1,
                    "{}: {} must be given once, built in or lacking",
                    spec.name,
                    advantage.as_str()
                );
                assert!(given.iter().all(|setting| !setting.lines.is_empty()), "{}: {given:?}", spec.name);
            }
        }
    }

    #[test]
    fn a_shipped_state_has_nothing_of_the_experts() {
        for spec in all().into_iter().filter(|spec| spec.tuning == "stock") {
            let experts: Vec<&String> =
                spec.settings.iter().filter(|setting| setting.tuning == "expert").flat_map(|s| &s.lines).collect();
            for (mode, store) in places(&spec) {
                for line in lines(&spec, &mode, &store) {
                    assert!(!experts.iter().any(|start| line.starts_with(*start)), "{}: {line}", spec.name);
                }
            }
        }
    }
}
