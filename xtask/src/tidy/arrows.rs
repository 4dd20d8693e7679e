//! Which crate may know which, and which module of a crate may use which: the table is exact, so an
//! arrow that is no longer drawn must be taken out of it too.

use super::code::Code;
use super::{Finding, Tree};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Crates of the workspace that a crate may depend on.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrateArrows {
    uses: BTreeSet<String>,
    #[serde(default)]
    dev: BTreeSet<String>,
}

const TABLE: &str = "xtask/tidy.toml";

/// Compares the dependency tables of all manifests with the permitted arrows.
pub fn between_crates(tree: &Tree, permitted: &BTreeMap<String, CrateArrows>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let manifests: Vec<(&String, toml::Table)> = tree
        .texts
        .iter()
        .filter(|(name, _)| name.ends_with("Cargo.toml") && *name != "Cargo.toml")
        .filter_map(|(name, text)| Some((name, text.parse().ok()?)))
        .collect();
    for (file, manifest) in &manifests {
        let Some(name) = manifest.get("package").and_then(|package| package.get("name")).and_then(|name| name.as_str())
        else {
            continue;
        };
        let Some(arrows) = permitted.get(name) else {
            findings.push(Finding::new(file, 1, format!("crate {name} has no row in {TABLE}")));
            continue;
        };
        for (section, allowed) in [("dependencies", &arrows.uses), ("dev-dependencies", &arrows.dev)] {
            let listed = manifest.get(section).and_then(|table| table.as_table());
            let drawn: BTreeSet<String> =
                listed.into_iter().flatten().map(|(k, _)| k.clone()).filter(|k| permitted.contains_key(k)).collect();
            for extra in drawn.difference(allowed) {
                findings.push(Finding::new(file, 1, format!("{name} must not depend on {extra} ({section})")));
            }
            for unused in allowed.difference(&drawn) {
                findings.push(Finding::new(
                    file,
                    1,
                    format!("{name} has no {unused} in {section}: take it out of {TABLE}"),
                ));
            }
        }
    }
    findings
}

/// Compares `crate::…` and `super::…` paths of each crate with the permitted arrows between its modules.
pub fn between_modules(tree: &Tree, permitted: &BTreeMap<String, BTreeMap<String, Vec<String>>>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, table) in permitted {
        let drawn = drawn_arrows(tree, &format!("crates/{name}/src/"));
        for ((from, to), (file, line)) in &drawn {
            if !table.get(from).is_some_and(|allowed| allowed.contains(to)) {
                findings.push(Finding::new(file, *line, format!("{name}: module {from} may not use {to} ({TABLE})")));
            }
        }
        for (from, allowed) in table {
            for to in allowed.iter().filter(|to| !drawn.contains_key(&(from.clone(), (*to).clone()))) {
                let what = format!("{name}: no arrow {from} → {to} in the code: take it out of the table");
                findings.push(Finding::new(TABLE, 1, what));
            }
        }
    }
    findings
}

/// The arrows as they are drawn, in the form of the table.
pub fn drawn_table<'a>(tree: &Tree, crates: impl Iterator<Item = &'a String>) -> String {
    let mut text = String::new();
    for name in crates {
        let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (from, to) in drawn_arrows(tree, &format!("crates/{name}/src/")).into_keys() {
            rows.entry(from).or_default().push(to);
        }
        text.push_str(&format!("[modules.{name}]\n"));
        for (from, to) in rows {
            text.push_str(&format!("{from} = {to:?}\n"));
        }
        text.push('\n');
    }
    text
}

/// (from, to) → the first place where the arrow is drawn.
type Drawn = BTreeMap<(String, String), (String, usize)>;

fn drawn_arrows(tree: &Tree, source_folder: &str) -> Drawn {
    let files: Vec<(&String, &Code)> = tree.codes.iter().filter(|(name, _)| name.starts_with(source_folder)).collect();
    let modules: BTreeSet<String> = files.iter().filter_map(|(name, _)| top_module(name, source_folder)).collect();
    let lib = tree.codes.get(&format!("{source_folder}lib.rs"));
    let exported = lib.map(|code| re_exports(code, &modules)).unwrap_or_default();
    let mut drawn = Drawn::new();
    for (name, code) in files {
        let Some(from) = top_module(name, source_folder) else { continue };
        let is_top_file = is_top_file(name, source_folder);
        for (line, to) in used_names(code, is_top_file) {
            let to = exported.get(&to).cloned().unwrap_or(to);
            if to != from && modules.contains(&to) {
                drawn.entry((from.clone(), to)).or_insert_with(|| (name.clone(), line));
            }
        }
    }
    drawn
}

/// The module directly below the crate that a file belongs to; `main` and `lib` hold the crate together
/// and have no row.
fn top_module(file: &str, source_folder: &str) -> Option<String> {
    let inside = file.strip_prefix(source_folder)?;
    let first = inside.split('/').next()?.trim_end_matches(".rs");
    (!["lib", "main", "bin"].contains(&first)).then(|| first.to_owned())
}

fn is_top_file(file: &str, source_folder: &str) -> bool {
    let inside = file.strip_prefix(source_folder).unwrap_or(file);
    !inside.contains('/') || (inside.ends_with("/mod.rs") && inside.matches('/').count() == 1)
}

/// `pub use module::{A, B}` in lib.rs: A and B stand for the module.
fn re_exports(lib: &Code, modules: &BTreeSet<String>) -> BTreeMap<String, String> {
    let text = lib.lines.join(" ");
    let mut exported = BTreeMap::new();
    for statement in text.split(';') {
        let Some((_, path)) = statement.split_once("pub use ") else { continue };
        let Some((module, names)) = path.trim().trim_start_matches("crate::").split_once("::") else { continue };
        if !modules.contains(module.trim()) {
            continue;
        }
        for name in names.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty()) {
            exported.insert(name.to_owned(), module.trim().to_owned());
        }
    }
    exported
}

/// First path segments after `crate::`, and after `super::` where that is the crate; groups in braces opened.
fn used_names(code: &Code, super_is_crate: bool) -> Vec<(usize, String)> {
    let mut text = String::new();
    let mut starts = Vec::new();
    for (number, line) in code.plain_lines() {
        starts.push((text.len(), number));
        text.push_str(line);
        text.push('\n');
    }
    let line_of = |at: usize| starts[starts.partition_point(|(start, _)| *start <= at) - 1].1;
    let roots: &[&str] = if super_is_crate { &["crate::", "super::"] } else { &["crate::"] };
    let mut names = Vec::new();
    for root in roots {
        for (at, _) in text.match_indices(root) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$' || c == ':') {
                continue;
            }
            let after = &text[at + root.len()..];
            names.extend(first_segments(after).into_iter().map(|name| (line_of(at), name)));
        }
    }
    names
}

fn first_segments(path: &str) -> Vec<String> {
    let name_of = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = path.strip_prefix('{') else { return vec![name_of(path)] };
    let (mut depth, mut start, mut names) = (0_usize, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' | ',' if depth == 0 => {
                names.push(name_of(group[start..at].trim_start()));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &str) -> BTreeMap<String, BTreeMap<String, Vec<String>>> {
        toml::from_str(rows).unwrap()
    }

    fn whats(findings: Vec<Finding>) -> Vec<String> {
        findings.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn an_arrow_that_is_not_in_the_table_is_found() {
        let tree = Tree::sample(&[
            ("crates/a/src/lib.rs", "pub mod x; pub mod y; pub mod z; pub use y::{Y, Why};"),
            ("crates/a/src/x.rs", "// crate::z\nuse crate::{\n    Y,\n    z::{self, Z},\n};\n"),
            ("crates/a/src/y.rs", "#[cfg(test)]\nmod tests {\n    use crate::x;\n}\n"),
            ("crates/a/src/z/mod.rs", "use super::y;\n"),
            ("crates/a/src/z/inner.rs", "use super::y;\nuse crate::x::X;\n"),
        ]);
        let found = between_modules(&tree, &table("[a]\nx = [\"y\"]\nz = [\"x\", \"y\"]\n"));
        assert_eq!(found, [Finding::new("crates/a/src/x.rs", 2, "a: module x may not use z (xtask/tidy.toml)")]);
        let unused = between_modules(&tree, &table("[a]\nx = [\"y\", \"z\"]\ny = [\"z\"]\nz = [\"x\", \"y\"]\n"));
        assert_eq!(whats(unused), ["a: no arrow y → z in the code: take it out of the table"]);
    }

    #[test]
    fn a_crate_that_knows_too_much_is_found() {
        let tree = Tree::sample(&[
            (
                "crates/wire/Cargo.toml",
                "[package]\nname = \"wire\"\n[dependencies]\ncache.workspace = true\nbytes = \"1\"\n",
            ),
            ("crates/cache/Cargo.toml", "[package]\nname = \"cache\"\n[dev-dependencies]\nwire.workspace = true\n"),
            ("crates/new/Cargo.toml", "[package]\nname = \"new\"\n"),
        ]);
        let permitted = toml::from_str("[wire]\nuses = []\n[cache]\nuses = [\"wire\"]\n").unwrap();
        assert_eq!(
            whats(between_crates(&tree, &permitted)),
            [
                "cache has no wire in dependencies: take it out of xtask/tidy.toml",
                "cache must not depend on wire (dev-dependencies)",
                "crate new has no row in xtask/tidy.toml",
                "wire must not depend on cache (dependencies)",
            ]
        );
    }
}
