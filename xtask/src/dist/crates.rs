//! The crates that are linked into the program: the list of its parts (CycloneDX) and their licences.

use super::archive::sha256;
use crate::shell::{self, Trouble};
use larder_wire::date::{Stamp, timestamp};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A crate that is linked.
#[derive(Deserialize)]
pub struct Linked {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    description: Option<String>,
    repository: Option<String>,
    manifest_path: PathBuf,
    /// `None` for a crate of this workspace.
    source: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Linked>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    dependencies: Vec<String>,
}

/// The crates in a program for one target.
pub struct Crates {
    linked: Vec<Linked>,
    needs: BTreeMap<String, Vec<String>>,
    checksums: BTreeMap<(String, String), String>,
    target: String,
}

impl Crates {
    /// Asks cargo. Procedural macros and build scripts run at the build and are not linked.
    pub fn of_larder(root: &Path, target: &str) -> Result<Crates, Trouble> {
        let edges = ["-e", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}", "--target", target];
        let tree = shell::ask(shell::cargo(root, &["tree", "--locked", "-p", "larder"]).args(edges))?;
        let is_linked: BTreeSet<(&str, &str)> = tree.lines().filter_map(named).collect();
        let metadata = ["metadata", "--locked", "--format-version", "1", "--filter-platform", target];
        let metadata: Metadata = serde_json::from_str(&shell::ask(&mut shell::cargo(root, &metadata))?)
            .map_err(|error| format!("reading cargo's metadata: {error}"))?;
        let mut linked = metadata.packages;
        linked.retain(|package| is_linked.contains(&(&*package.name, &*package.version)));
        linked.sort_by(|one, other| (&one.name, &one.version).cmp(&(&other.name, &other.version)));
        let needs = metadata.resolve.nodes.into_iter().map(|node| (node.id, node.dependencies)).collect();
        Ok(Crates { linked, needs, checksums: checksums(root)?, target: target.to_owned() })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.linked.len()
    }

    /// The list of parts as CycloneDX 1.5 in JSON. `program` is its SHA-256.
    pub fn bill_of_materials(&self, version: &str, program: &str, seconds: u64) -> Result<String, Trouble> {
        let is_root = |package: &&Linked| package.name == "larder";
        let root = self.linked.iter().find(is_root).ok_or("cargo names no crate larder")?;
        let others = self.linked.iter().filter(|package| !is_root(package));
        let components: Vec<Value> =
            others.map(|package| self.component(package)).chain(system_parts(&self.target)).collect();
        let names: BTreeMap<&str, String> =
            self.linked.iter().map(|package| (&*package.id, package.reference())).collect();
        let dependencies: Vec<Value> = self
            .linked
            .iter()
            .map(|package| {
                let needs = self.needs.get(&package.id).into_iter().flatten();
                let needs: BTreeSet<&String> = needs.filter_map(|id| names.get(&**id)).collect();
                json!({ "ref": package.reference(), "dependsOn": needs })
            })
            .collect();
        let mut top = self.component(root);
        top["type"] = json!("application");
        top["hashes"] = json!([{ "alg": "SHA-256", "content": program }]);
        let bill = json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {
                "timestamp": timestamp(Stamp(seconds)),
                "tools": { "components": [{ "type": "application", "name": "cargo xtask dist", "version": version }] },
                "component": top,
                "properties": [{ "name": "larder:target", "value": self.target }],
            },
            "components": components,
            "dependencies": dependencies,
        });
        serde_json::to_string_pretty(&bill)
            .map(|text| text + "\n")
            .map_err(|error| format!("writing the bill: {error}"))
    }

    fn component(&self, package: &Linked) -> Value {
        let mut component = json!({
            "type": "library",
            "bom-ref": package.reference(),
            "name": package.name,
            "version": package.version,
            "purl": package.reference(),
            "scope": "required",
        });
        if let Some(license) = &package.license {
            // Older manifests write `MIT/Apache-2.0`.
            component["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
        }
        if let Some(text) = &package.description {
            component["description"] = json!(text.split_whitespace().collect::<Vec<_>>().join(" "));
        }
        if let Some(checksum) = self.checksums.get(&(package.name.clone(), package.version.clone())) {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
        }
        if let Some(url) = &package.repository {
            component["externalReferences"] = json!([{ "type": "vcs", "url": url }]);
        }
        component
    }

    /// The licences of all crates of others, each text once, with the crates that have it.
    pub fn licences(&self) -> Result<String, Trouble> {
        let others: Vec<&Linked> = self.linked.iter().filter(|package| package.source.is_some()).collect();
        let mut texts: BTreeMap<String, (String, BTreeSet<String>)> = BTreeMap::new();
        let (mut list, mut bare) = (String::new(), Vec::new());
        for package in others {
            let name = format!("{} {}", package.name, package.version);
            list += &format!("  {name}: {}\n", package.license.as_deref().unwrap_or("see its text"));
            let folder = package.manifest_path.parent().ok_or("a manifest lies in no folder")?;
            let files = licence_files(folder, 0)?;
            if files.is_empty() {
                bare.push(name.clone());
            }
            for file in files {
                let bytes = fs::read(&file).map_err(|error| format!("reading {}: {error}", file.display()))?;
                let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n").trim().to_owned();
                let place = texts.entry(sha256(text.as_bytes())).or_insert_with(|| (text, BTreeSet::new()));
                place.1.insert(name.clone());
            }
        }
        let mut all = format!("Larder is linked with these crates, under these licences:\n\n{list}\n");
        all += "With them are linked Rust's standard library (MIT OR Apache-2.0; its parts and their licences are listed\n\
                at https://doc.rust-lang.org/stable/COPYRIGHT.html)";
        all += if self.target.ends_with("-musl") {
            " and musl, the C library (MIT; its text is the last).\n"
        } else {
            ".\n"
        };
        if !bare.is_empty() {
            all += &format!("\nThese have the licence of the list and bring no text of it: {}.\n", bare.join(", "));
        }
        let mut sections: Vec<(String, BTreeSet<String>)> = texts.into_values().collect();
        sections.sort_by(|one, other| one.1.cmp(&other.1).then_with(|| one.0.cmp(&other.0)));
        for (text, names) in sections {
            let names: Vec<String> = names.into_iter().collect();
            all += &format!("\n{}\n{}\n\n{text}\n", "=".repeat(80), names.join(", "));
        }
        if self.target.ends_with("-musl") {
            all += &format!("\n{}\nmusl\n\n{}\n", "=".repeat(80), MUSL.trim());
        }
        Ok(all)
    }
}

impl Linked {
    /// The package's URL, the name by which parts refer to each other.
    fn reference(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version.replace('+', "%2B"))
    }
}

const MUSL: &str = include_str!("musl.txt");

/// Parts that no crate is.
fn system_parts(target: &str) -> Vec<Value> {
    let mut parts = vec![json!({
        "type": "library", "name": "rust-std", "scope": "required",
        "licenses": [{ "expression": "MIT OR Apache-2.0" }],
        "purl": "pkg:generic/rust-std",
    })];
    if target.ends_with("-musl") {
        parts.push(json!({
            "type": "library", "name": "musl", "scope": "required", "licenses": [{ "expression": "MIT" }],
            "purl": "pkg:generic/musl",
        }));
    }
    parts
}

/// `bytes v1.11.0 (…)`: name and version.
fn named(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split(' ');
    Some((words.next()?, words.next()?.strip_prefix('v')?))
}

fn checksums(root: &Path) -> Result<BTreeMap<(String, String), String>, Trouble> {
    #[derive(Deserialize)]
    struct Lock {
        package: Vec<Locked>,
    }
    #[derive(Deserialize)]
    struct Locked {
        name: String,
        version: String,
        checksum: Option<String>,
    }
    let text = fs::read_to_string(root.join("Cargo.lock")).map_err(|error| format!("reading Cargo.lock: {error}"))?;
    let lock: Lock = toml::from_str(&text).map_err(|error| format!("reading Cargo.lock: {error}"))?;
    let known = lock.package.into_iter().filter_map(|one| Some(((one.name, one.version), one.checksum?)));
    Ok(known.collect())
}

/// Folders below a crate's own that are looked through: sources in C lie there, with licences of their own.
const DEPTH_MAX: usize = 4;

fn licence_files(folder: &Path, depth: usize) -> Result<Vec<PathBuf>, Trouble> {
    let trouble = |error: std::io::Error| format!("reading {}: {error}", folder.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(trouble)? {
        let entry = entry.map_err(trouble)?;
        let (name, kind) = (entry.file_name().to_string_lossy().to_uppercase(), entry.file_type().map_err(trouble)?);
        let is_source = [".RS", ".PY", ".SH", ".GO", ".C", ".H"].iter().any(|ending| name.ends_with(ending));
        if kind.is_file()
            && !is_source
            && ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"].iter().any(|word| name.starts_with(word))
        {
            found.push(entry.path());
        } else if kind.is_dir() && depth < DEPTH_MAX {
            found.extend(licence_files(&entry.path(), depth + 1)?);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_cargo_tree_are_read() {
        assert_eq!(named("bytes v1.11.0 (*)"), Some(("bytes", "1.11.0")));
        assert_eq!(named(""), None);
    }
}
