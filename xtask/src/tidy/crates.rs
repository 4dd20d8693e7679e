//! Which crate of the workspace may know which: the table is exact, so an arrow that is no longer drawn must be taken
//! out of it too.

use super::{Finding, Tree};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Crates of the workspace that a crate may depend on.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Uses {
    uses: BTreeSet<String>,
    #[serde(default)]
    dev: BTreeSet<String>,
}

const TABLE: &str = "xtask/tidy.toml";

/// A crate of the tree.
pub struct Package<'a> {
    pub name: String,
    /// Where its manifest lies, with a `/` at the end.
    pub folder: &'a str,
    file: &'a str,
    manifest: toml::Table,
}

/// All crates by the paths of their manifests.
pub fn packages(tree: &Tree) -> Vec<Package<'_>> {
    let mut found = Vec::new();
    for (file, text) in &tree.texts {
        let Some(folder) = file.strip_suffix("Cargo.toml") else { continue };
        let Ok(manifest) = text.parse::<toml::Table>() else { continue };
        // The manifest of the workspace has no name.
        let name = manifest.get("package").and_then(|package| package.get("name")).and_then(|name| name.as_str());
        if let Some(name) = name.map(str::to_owned) {
            found.push(Package { name, folder, file, manifest });
        }
    }
    found
}

/// Compares the dependency tables of all manifests with the permitted arrows.
pub fn check(tree: &Tree, permitted: &BTreeMap<String, Uses>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for Package { name, file, manifest, .. } in packages(tree) {
        let Some(arrows) = permitted.get(&name) else {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let whats: Vec<String> = check(&tree, &permitted).into_iter().map(|finding| finding.what).collect();
        assert_eq!(
            whats,
            [
                "cache has no wire in dependencies: take it out of xtask/tidy.toml",
                "cache must not depend on wire (dev-dependencies)",
                "crate new has no row in xtask/tidy.toml",
                "wire must not depend on cache (dependencies)",
            ]
        );
    }
}
