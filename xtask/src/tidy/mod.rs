//! House rules that the compiler does not know. Each rule is a function from a [`Tree`] and its table in
//! `xtask/tidy.toml` to findings, so that a test can hand it a bad sample.

mod arrows;
mod code;
mod crates;
mod decisions;
mod floors;
mod lengths;
mod sentences;
mod strays;
mod words;

use crate::shell::{self, Trouble};
use code::Code;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The table of house rules, `xtask/tidy.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    /// Crate → crates of the workspace it may depend on; `dev` for tests only.
    crates: BTreeMap<String, crates::Uses>,
    /// Crate → its modules, floor by floor.
    floors: BTreeMap<String, floors::Floors>,
    lengths: lengths::Limits,
    words: words::Words,
    sentences: sentences::Sentences,
    /// Calls and names that belong to a few files only.
    place: Vec<words::Place>,
}

/// One broken rule, at a place.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    file: String,
    line: usize,
    what: String,
}

impl Finding {
    fn new(file: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { file: file.to_owned(), line, what: what.into() }
    }
}

/// The files of the workspace by path, relative and with `/`.
struct Tree {
    texts: BTreeMap<String, String>,
    /// Rust files, with comments and literals blanked out.
    codes: BTreeMap<String, Code>,
}

impl Tree {
    fn read(root: &Path) -> Result<Tree, Trouble> {
        let mut texts = BTreeMap::new();
        for name in shell::tree_files(root)? {
            let bytes = std::fs::read(root.join(&name)).map_err(|error| format!("reading {name}: {error}"))?;
            // A file that is not text (a recorded trace, a picture) has no words to look for.
            if let Ok(text) = String::from_utf8(bytes) {
                texts.insert(name, text);
            }
        }
        Ok(Tree::of(texts))
    }

    fn of(texts: BTreeMap<String, String>) -> Tree {
        let rust = texts.iter().filter(|(name, _)| name.ends_with(".rs"));
        let codes = rust.map(|(name, text)| (name.clone(), Code::of(text))).collect();
        Tree { texts, codes }
    }

    #[cfg(test)]
    fn sample(files: &[(&str, &str)]) -> Tree {
        Tree::of(files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect())
    }
}

/// Output besides the findings.
#[derive(clap::Args, Default)]
pub struct Args {
    /// Print the arrows between modules with their floors, and those that break the rule in the form of the table.
    #[arg(long)]
    arrows: bool,
}

/// Checks the whole tree and prints each finding as `file:line: what`.
pub fn run(args: &Args) -> Result<(), Trouble> {
    let root = shell::workspace()?;
    let tree = Tree::read(&root)?;
    let table = tree.texts.get("xtask/tidy.toml").ok_or("xtask/tidy.toml is missing")?;
    let rules: Rules = toml::from_str(table).map_err(|error| format!("xtask/tidy.toml: {error}"))?;
    if args.arrows {
        print!("{}", floors::as_drawn(&tree, &rules.floors));
        return Ok(());
    }
    let findings = check(&tree, &rules);
    for finding in &findings {
        println!("{}:{}: {}", finding.file, finding.line, finding.what);
    }
    if !findings.is_empty() {
        return Err(format!("tidy: {} findings; the rules stand in xtask/tidy.toml", findings.len()));
    }
    println!("tidy: {} files, nothing found", tree.texts.len());
    Ok(())
}

fn check(tree: &Tree, rules: &Rules) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(crates::check(tree, &rules.crates));
    findings.extend(floors::check(tree, &rules.floors));
    findings.extend(lengths::check(tree, &rules.lengths));
    findings.extend(words::forbidden(tree, &rules.words));
    findings.extend(words::out_of_place(tree, &rules.place));
    findings.extend(sentences::check(tree, &rules.sentences));
    findings.extend(decisions::check(tree));
    findings.extend(strays::check(tree));
    findings.sort();
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_table_can_be_read() {
        let rules: Result<Rules, _> = toml::from_str(include_str!("../../tidy.toml"));
        assert!(rules.is_ok(), "{:?}", rules.err());
    }
}
