//! The store: memory, disk, sizes, and how long answers are fresh.

use super::lines::Line;
use super::{Reader, size, size_text, time, time_text};
use crate::draft::NoteId;
use crate::note::Fate;
use crate::value::Table;
use larder_rules::PathPattern;

/// All that is known of the store.
#[derive(Default)]
pub struct Store {
    disk_bytes: Option<u64>,
    disk_notes: Vec<NoteId>,
    memory_bytes: Option<u64>,
    object: Option<(u64, NoteId)>,
    memory_object: Option<(u64, NoteId)>,
    has_default_pattern: bool,
}

/// Alternatives of one expression that become patterns of paths.
const PATTERNS_MAX: usize = 200;

impl Reader<'_> {
    pub(super) fn of_store(&mut self, line: &Line, id: NoteId) -> bool {
        let words: Vec<&str> = line.rest(1).collect();
        match line.name() {
            "cache_mem" => match size(&words, 1) {
                Some(bytes) => {
                    let bytes = bytes.max(1 << 20);
                    self.store.memory_bytes = Some(bytes);
                    self.draft.set("memory", size_text(bytes), &[id]);
                    self.draft.translated(id);
                }
                None => self.draft.fate(id, Fate::Missing, "it is no size; memory = \"256MB\" is the default"),
            },
            "cache_dir" => self.cache_dir(line, id),
            "maximum_object_size" => match size(&words, 1 << 10) {
                Some(bytes) => self.store.object = Some((bytes, id)),
                None => self.draft.fate(id, Fate::Missing, "it is no size"),
            },
            "maximum_object_size_in_memory" => match size(&words, 1 << 10) {
                Some(bytes) => self.store.memory_object = Some((bytes, id)),
                None => self.draft.fate(id, Fate::Missing, "it is no size"),
            },
            "refresh_pattern" => self.refresh_pattern(line, id),
            _ => return false,
        }
        true
    }

    fn cache_dir(&mut self, line: &Line, id: NoteId) {
        self.store.disk_notes.push(id);
        let megabytes = if line.word(1) == "null" { Some(0) } else { line.word(3).parse::<u64>().ok() };
        match megabytes.and_then(|megabytes| megabytes.checked_mul(1 << 20)) {
            Some(bytes) => {
                self.store.disk_bytes = Some(self.store.disk_bytes.unwrap_or(0).saturating_add(bytes));
                let text = "the budget of the disk; files lie in the folder of `store`, and Squid's are not read (disk_folders names others)";
                self.draft.fate(id, Fate::Translated, text);
            }
            None => self.draft.fate(id, Fate::Different, "its size is not known: the disk has its default"),
        }
    }

    pub(super) fn finish_store(&mut self) {
        let notes = std::mem::take(&mut self.store.disk_notes);
        match self.store.disk_bytes {
            Some(bytes) => self.draft.set("disk", size_text(bytes.min(1 << 50)), &notes),
            // Without a cache_dir Squid keeps all in memory.
            None if notes.is_empty() => self.draft.set("disk", "0B", &[]),
            None => {}
        }
        let memory = self.store.memory_bytes.unwrap_or(256 << 20);
        if self.store.memory_bytes.is_none() {
            self.draft.set("memory", size_text(memory), &[]);
        }
        if let Some((bytes, id)) = self.store.memory_object {
            let fits = bytes.min(memory / 2);
            self.draft.set("memory_object_bytes_max", size_text(fits), &[id]);
            self.draft.fate(
                id,
                if fits == bytes { Fate::Translated } else { Fate::Different },
                if fits == bytes { "" } else { "at most half of `memory`" },
            );
        }
        if let Some((bytes, id)) = self.store.object {
            let most = self.store.disk_bytes.filter(|disk| *disk > 0).unwrap_or(memory);
            let fits = bytes.min(most);
            self.draft.set("object_bytes_max", size_text(fits), &[id]);
            self.draft.fate(
                id,
                if fits == bytes { Fate::Translated } else { Fate::Different },
                if fits == bytes { "" } else { "no more than the store holds" },
            );
        }
    }

    /// `refresh_pattern [-i] REGEX MIN PERCENT MAX OPTIONS`.
    fn refresh_pattern(&mut self, line: &Line, id: NoteId) {
        let mut words: Vec<&str> = line.rest(1).collect();
        if words.first() == Some(&"-i") {
            words.remove(0);
        }
        let [regex, min, percent, max, options @ ..] = words.as_slice() else {
            return self.draft.fate(id, Fate::Missing, "it has too few words");
        };
        let (Some(min), Some(max)) = (time(&[min], 60_000), time(&[max], 60_000)) else {
            return self.draft.fate(id, Fate::Missing, "its times are no numbers");
        };
        let percent: u64 = percent.trim_end_matches('%').parse().unwrap_or(20);
        if [".", ".*", "^.", "^.*$"].contains(regex) && min == 0 && !self.store.has_default_pattern {
            self.store.has_default_pattern = true;
            self.draft.set("policy.heuristic_percent", percent.min(100), &[id]);
            self.draft.set("policy.heuristic_max", time_text(max.min(365 * 86_400_000)), &[]);
            self.draft.translated(id);
            return self.refresh_options(options, id);
        }
        if regex.starts_with("^ftp:") || regex.starts_with("^gopher:") {
            return self.draft.fate(id, Fate::NotNeeded, "Larder asks for http and https alone");
        }
        if max == 0 || (min == 0 && percent == 0) {
            self.refresh_options(options, id);
            let text = "an answer without a lifetime and without Last-Modified is not used without asking in any case";
            return self.draft.fate(id, Fate::NotNeeded, text);
        }
        let mut rule = Table::default();
        let has = |name: &str| options.contains(&name);
        if min > 0 {
            let key = if has("override-expire") { "lifetime_min" } else { "lifetime" };
            rule.set(key, time_text(min.min(3_650 * 86_400_000)));
        }
        if has("ignore-reload") || has("reload-into-ims") {
            rule.set("any_age", true);
        }
        if has("ignore-reload") {
            rule.set("drop_no_cache", true);
        }
        if !["lifetime", "lifetime_min", "any_age", "drop_no_cache"].iter().any(|key| rule.find(key).is_some()) {
            let text = "the percentage and the longest time are one setting for all (policy.heuristic_percent, policy.heuristic_max)";
            return self.draft.fate(id, Fate::Different, text);
        }
        let is_all = [".", ".*"].contains(regex);
        let Some((hosts, paths)) = patterns(regex).or_else(|| is_all.then(Default::default)) else {
            let text = "a store rule has patterns and no expressions: answers have the lifetime that their origin says, or the general heuristic";
            return self.draft.fate(id, Fate::Missing, text);
        };
        if !paths.is_empty() {
            rule.0.insert(0, ("paths".to_owned(), paths.into()));
        }
        if !hosts.is_empty() {
            rule.0.insert(0, ("hosts".to_owned(), hosts.into()));
        }
        self.draft.push("store_rule", rule, &[id]);
        self.draft.fate(
            id,
            Fate::Different,
            "the shortest time; the percentage and the longest time are one setting for all (policy.heuristic_*)",
        );
        self.refresh_options(options, id);
    }

    fn refresh_options(&mut self, options: &[&str], id: NoteId) {
        for option in options {
            let text = match option.split('=').next().unwrap_or_default() {
                "ignore-private" | "ignore-no-store" | "ignore-no-cache" | "ignore-auth" => {
                    "answers for one user are not stored for others; a [[rule]] with even_if_private does that, if it is really meant"
                }
                "ignore-must-revalidate" => "must-revalidate counts",
                "max-stale" | "store-stale" => "stale_if_error and stale_while_revalidate of a [[store_rule]] say that",
                _ => continue,
            };
            self.draft.fate(id, Fate::Different, &format!("{option}: {text}"));
        }
    }
}

/// The hosts and paths that an expression over URLs means, where patterns can say it: `\.(gif|png)$`, `^http://host/`, `/folder/`.
fn patterns(regex: &str) -> Option<(Vec<String>, Vec<String>)> {
    for start in ["^https?://", "^http://", "^http(s)?://", "^https?:\\/\\/"] {
        if let Some(rest) = regex.strip_prefix(start) {
            let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
            let host = plain(host)?;
            let path = match path {
                "" | ".*" | ".*$" => Vec::new(),
                path => vec![format!("/{}/**", plain(path.trim_end_matches(['*', '.', '$']).trim_end_matches('/'))?)],
            };
            let ok = larder_rules::HostPattern::parse(&host).is_some()
                && path.iter().all(|path| PathPattern::parse(path).is_some());
            return ok.then(|| (vec![host], path));
        }
    }
    let body = regex
        .strip_suffix("(\\?.*)?$")
        .or_else(|| regex.strip_suffix("(\\?.*|$)"))
        .or_else(|| regex.strip_suffix("(\\?|$)"))
        .or_else(|| regex.strip_suffix('$'))?;
    let body = body.strip_prefix(".*").unwrap_or(body);
    let dotted = ["\\.", "[.]", "."].into_iter().find_map(|dot| body.strip_prefix(dot));
    let (body, dot) = dotted.map_or((body, ""), |body| (body, "."));
    let endings = match body.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) {
        Some(inner) => inner.trim_start_matches("?:").split('|').map(endings).collect::<Option<Vec<_>>>()?.concat(),
        None => endings(body)?,
    };
    if endings.is_empty() || endings.len() > PATTERNS_MAX {
        return None;
    }
    let paths: Vec<String> = endings.iter().map(|ending| format!("/**/*{dot}{ending}")).collect();
    paths.iter().all(|path| PathPattern::parse(path).is_some()).then_some((Vec::new(), paths))
}

/// The texts of `jpe?g`, `mp[34]`, `gif`.
fn endings(text: &str) -> Option<Vec<String>> {
    let mut all = vec![String::new()];
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let choices: Vec<String> = match letter {
            '[' => {
                let mut class = Vec::new();
                loop {
                    match letters.next()? {
                        ']' => break,
                        member if member.is_ascii_alphanumeric() && letters.peek() != Some(&'-') => {
                            class.push(member.to_string())
                        }
                        _ => return None,
                    }
                }
                class
            }
            '\\' => vec![letters.next().filter(|letter| !letter.is_ascii_alphanumeric())?.to_string()],
            letter if letter.is_ascii_alphanumeric() || "-_.".contains(letter) => vec![letter.to_string()],
            _ => return None,
        };
        let is_optional = letters.next_if_eq(&'?').is_some();
        let mut next = Vec::new();
        for start in &all {
            next.extend(is_optional.then(|| start.clone()));
            next.extend(choices.iter().map(|choice| format!("{start}{choice}")));
        }
        if next.len() > PATTERNS_MAX {
            return None;
        }
        all = next;
    }
    Some(all)
}

/// A text without operators.
fn plain(text: &str) -> Option<String> {
    let text = text.replace("\\.", ".").replace("\\/", "/").replace("\\-", "-");
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
    (!text.is_empty() && text.chars().all(is_plain)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_that_patterns_can_say() {
        for (regex, hosts, paths) in [
            ("\\.(gif|png)$", &[][..], &["/**/*.gif", "/**/*.png"][..]),
            ("\\.jpe?g(\\?.*)?$", &[], &["/**/*.jpg", "/**/*.jpeg"]),
            ("\\.mp[34]$", &[], &["/**/*.mp3", "/**/*.mp4"]),
            ("tar.gz$", &[], &["/**/*tar.gz"]),
            (".(jar|pom)$", &[], &["/**/*.jar", "/**/*.pom"]),
            ("^http://deb.example/", &["deb.example"], &[]),
            ("^https?://a\\.test/pool/.*", &["a.test"], &["/pool/**"]),
        ] {
            let found = patterns(regex).unwrap_or_else(|| panic!("{regex}"));
            assert_eq!(
                found,
                (hosts.iter().map(|it| (*it).to_owned()).collect(), paths.iter().map(|it| (*it).to_owned()).collect()),
                "{regex}"
            );
        }
        for regex in ["gif", "(/cgi-bin/|\\?)", "\\.(a*b)$", "\\.[a-z]$", "^http://a.*b/", "\\.(a|b", ""] {
            assert_eq!(patterns(regex), None, "{regex}");
        }
    }
}
