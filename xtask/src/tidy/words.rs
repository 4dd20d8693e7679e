//! Words that must not be in the tree, and names that belong to a few files only (the clock, `unsafe`).

use super::code::has_word;
use super::{Finding, Tree};
use serde::Deserialize;

/// Words of unfinished work and folders of one machine.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Words {
    /// Found in any text file, as whole words.
    unfinished: Vec<String>,
    /// Folders that exist on one machine only: forbidden with anything below them.
    machine_folders: Vec<String>,
}

/// A name that may stand in the code (comments and tests left out) of some files only.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    names: Vec<String>,
    under: Vec<String>,
    #[serde(default)]
    except: Vec<String>,
    why: String,
}

/// The file that lists the words must not find itself.
const TABLE: &str = "xtask/tidy.toml";

/// Looks for forbidden words in every text file.
pub fn forbidden(tree: &Tree, words: &Words) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, text) in tree.texts.iter().filter(|(name, _)| *name != TABLE) {
        for (at, line) in text.lines().enumerate() {
            let unfinished = words.unfinished.iter().filter(|word| has_word(line, word));
            let said = unfinished.map(|word| format!("the word {word} stands for unfinished work"));
            let folders = words.machine_folders.iter().filter(|folder| has_folder(line, folder));
            let said = said.chain(folders.map(|folder| format!("a folder of one machine: {folder}/…")));
            findings.extend(said.map(|what| Finding::new(name, at + 1, what)));
        }
    }
    findings
}

fn has_folder(line: &str, folder: &str) -> bool {
    let is_path = |c: char| c.is_alphanumeric() || "/._-".contains(c);
    line.match_indices(folder).any(|(at, _)| {
        line[at + folder.len()..].starts_with('/') && !line[..at].chars().next_back().is_some_and(is_path)
    })
}

/// Looks for names outside their place.
pub fn out_of_place(tree: &Tree, places: &[Place]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for place in places {
        let below = |name: &str, folders: &[String]| folders.iter().any(|folder| name.starts_with(folder.as_str()));
        let files = tree.codes.iter().filter(|(name, _)| below(name, &place.under) && !below(name, &place.except));
        for (name, code) in files {
            for (number, line) in code.plain_lines() {
                let found = place.names.iter().filter(|word| has_word(line, word));
                let said = found.map(|word| format!("{word} out of its place: {}", place.why));
                findings.extend(said.map(|what| Finding::new(name, number, what)));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_folders_are_found_in_any_text() {
        let words = toml::from_str("unfinished = [\"LATER\"]\nmachine_folders = [\"/mine\"]\n").unwrap();
        let tree = Tree::sample(&[
            ("a.md", "fine\nLATER: more\nLATERAL\n"),
            ("b.rs", "// see /mine/x\n// and /mines or /not/mine/x\n"),
            (TABLE, "LATER /mine/x"),
        ]);
        let found = forbidden(&tree, &words);
        let places: Vec<_> = found.iter().map(|f| (f.file.as_str(), f.line)).collect();
        assert_eq!(places, [("a.md", 2), ("b.rs", 1)]);
    }

    #[test]
    fn a_clock_read_outside_the_clock_is_found() {
        let places: Vec<Place> = vec![
            toml::from_str(
                "names = [\"SystemTime::now\"]\nunder = [\"src/\"]\nexcept = [\"src/clock.rs\"]\nwhy = \"time is an argument\"\n",
            )
            .unwrap(),
        ];
        let read = "fn a() { SystemTime::now(); }\n";
        let in_test = "#[cfg(test)]\nmod tests { fn a() { SystemTime::now(); } }\n";
        let tree = Tree::sample(&[("src/clock.rs", read), ("src/b.rs", read), ("src/c.rs", in_test), ("d.rs", read)]);
        let found = out_of_place(&tree, &places);
        assert_eq!(found, [Finding::new("src/b.rs", 1, "SystemTime::now out of its place: time is an argument")]);
    }
}
