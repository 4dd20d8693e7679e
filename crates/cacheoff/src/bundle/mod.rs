//! Result bundles: the ledgers of a contest or a sequence, and everything that others need to judge them, in one tar file
//! whose contents are hashed and signed. The report inside is made of the ledgers inside; the check makes it again.

pub mod command;
mod rules;
mod sign;
mod tar;
#[cfg(test)]
mod tests;

use crate::ledger::Ledger;
use crate::report::command::html;
use crate::report::markdown;
use rules::RULES;
use serde::{Deserialize, Serialize};
use sign::{Signature, sha256, sign};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tar::Files;

const FORMAT: &str = "cacheoff-bundle-1";
const MANIFEST: &str = "manifest.json";
const SIGNATURE: &str = "signature.json";
const LEDGERS: &str = "ledgers/";

/// The table of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    format: String,
    /// Version of the referee that made the report.
    cacheoff: String,
    /// SHA-256 of each file but this one and the signature, in hexadecimal digits.
    files: BTreeMap<String, String>,
}

/// A finding of the check: the rule, whether it is held, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The name of the rule.
    pub rule: &'static str,
    /// The reason against it; `None` if it is held.
    pub broken: Option<String>,
}

/// The bundle of some ledgers (name of the file and its bytes), signed if there is a key.
pub fn make(ledgers: Vec<(String, Vec<u8>)>, key: Option<&Path>) -> Result<Vec<u8>, String> {
    let mut files = Files::new();
    for (name, bytes) in ledgers {
        let path = format!("{LEDGERS}{name}");
        if files.insert(path, bytes).is_some() {
            return Err(format!("two ledgers are called {name}: give the folder of one contest"));
        }
    }
    let read = read_ledgers(&files)?;
    files.extend(derived(&read)?);
    let hashes = files.iter().map(|(path, bytes)| (path.clone(), sha256(bytes))).collect();
    let manifest =
        Manifest { format: FORMAT.to_owned(), cacheoff: env!("CARGO_PKG_VERSION").to_owned(), files: hashes };
    let manifest = serde_json::to_vec_pretty(&manifest).map_err(|error| error.to_string())?;
    if let Some(key) = key {
        let signature = serde_json::to_vec_pretty(&sign(key, &manifest)?).map_err(|error| error.to_string())?;
        files.insert(SIGNATURE.to_owned(), signature);
    }
    files.insert(MANIFEST.to_owned(), manifest);
    tar::write(&files)
}

/// Everything in a bundle that follows from its ledgers: reports, workloads, configurations, machines.
fn derived(ledgers: &[Ledger]) -> Result<Files, String> {
    let mut files = Files::from([
        ("report.html".to_owned(), html(ledgers).into_bytes()),
        ("report.md".to_owned(), markdown(ledgers).into_bytes()),
    ]);
    let mut machines = Vec::new();
    for ledger in ledgers {
        let run = &ledger.run;
        if !run.workload.text.is_empty() {
            let text = run.workload.text.clone().into_bytes();
            files.insert(format!("workloads/{}.toml", named(&run.workload.name, &text)), text);
        }
        if let Some(entry) = &run.target.entry {
            let text = serde_json::to_vec_pretty(&(&run.target.product, entry)).map_err(|error| error.to_string())?;
            let folder = format!("entries/{}", named(&entry.name, &text));
            let own = [("entry.json".to_owned(), text)];
            let given = entry.files.iter().map(|(name, text)| (safe(name), text.clone().into_bytes()));
            let mut taken = BTreeSet::new();
            for (name, bytes) in own.into_iter().chain(given) {
                files.insert(format!("{folder}/{}", free(&name, &mut taken)), bytes);
            }
        }
        let machine = (&run.machine, &run.tuning);
        if !machines.contains(&machine) {
            machines.push(machine);
        }
    }
    let machines = serde_json::to_vec_pretty(&machines).map_err(|error| error.to_string())?;
    files.insert("machines.json".to_owned(), machines);
    Ok(files)
}

/// A name for some bytes: two versions of a thing of the same name lie beside each other.
fn named(name: &str, bytes: &[u8]) -> String {
    format!("{}-{}", safe(name), &sha256(bytes)[..8])
}

/// The name, or the first one behind it that is not taken: two names may be equal once they are safe. It follows from the
/// order, which is that of the entry.
fn free(name: &str, taken: &mut BTreeSet<String>) -> String {
    let numbered = (2..).map(|number: u32| format!("{number}-{name}"));
    let free = std::iter::once(name.to_owned()).chain(numbered).find(|name| !taken.contains(name)).unwrap_or_default();
    taken.insert(free.clone());
    free
}

/// A name without anything that a path takes amiss.
fn safe(name: &str) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() || ".-".contains(c) { c } else { '_' };
    let text: String = name.chars().map(kept).take(40).collect();
    match text.trim_start_matches('.') {
        "" => "unnamed".to_owned(),
        named => named.to_owned(),
    }
}

fn read_ledgers(files: &Files) -> Result<Vec<Ledger>, String> {
    let inside = files.iter().filter(|(path, _)| path.starts_with(LEDGERS));
    let read = inside.map(|(path, bytes)| Ledger::read(&bytes[..]).map_err(|fault| format!("{path}: {fault}")));
    let mut ledgers = read.collect::<Result<Vec<_>, _>>()?;
    // The order of a report that is made of the folder.
    ledgers.sort_by_key(|ledger| ledger.run.started_unix);
    Ok(ledgers)
}

/// Checks a bundle: hashes, signature, that all else follows from the ledgers, and the rules of disclosure. An error is a file
/// that is no bundle. `key`: the public key that must have signed it.
pub fn check(bytes: &[u8], key: Option<&str>) -> Result<Vec<Checked>, String> {
    let mut files = tar::read(bytes)?;
    let manifest_bytes = files.remove(MANIFEST).ok_or_else(|| format!("no {MANIFEST} in it: this is no bundle"))?;
    let manifest: Manifest =
        serde_json::from_slice(&manifest_bytes).map_err(|error| format!("{MANIFEST} cannot be read: {error}"))?;
    if manifest.format != FORMAT {
        return Err(format!("{MANIFEST} is of the format {:?}; this program knows {FORMAT}", manifest.format));
    }
    let signature = files.remove(SIGNATURE);
    let mut all = vec![
        Checked { rule: "hashes", broken: hashes(&manifest, &files) },
        Checked { rule: "signature", broken: signed(signature.as_deref(), &manifest_bytes, key) },
    ];
    let ledgers = read_ledgers(&files)?;
    all.push(Checked { rule: "report", broken: follows(&manifest, &files, &ledgers)? });
    all.extend(RULES.iter().map(|rule| Checked { rule: rule.name, broken: (rule.broken)(&ledgers) }));
    Ok(all)
}

/// The public key that a bundle names as its signer's, in hexadecimal digits, if it has a signature that is the manifest's.
pub fn signer(bytes: &[u8]) -> Result<Option<String>, String> {
    let files = tar::read(bytes)?;
    let (Some(manifest), Some(signature)) = (files.get(MANIFEST), files.get(SIGNATURE)) else { return Ok(None) };
    let signature = serde_json::from_slice::<Signature>(signature).ok();
    Ok(signature.filter(|signature| signature.is_of(manifest)).map(|signature| signature.key))
}

fn hashes(manifest: &Manifest, files: &Files) -> Option<String> {
    if let Some(path) = files.keys().find(|path| !manifest.files.contains_key(*path)) {
        return Some(format!("{path} is not in the manifest"));
    }
    manifest.files.iter().find_map(|(path, hash)| match files.get(path) {
        None => Some(format!("{path} is missing")),
        Some(bytes) if sha256(bytes) != *hash => Some(format!("{path} was changed")),
        Some(_) => None,
    })
}

fn signed(signature: Option<&[u8]>, manifest: &[u8], key: Option<&str>) -> Option<String> {
    let Some(bytes) = signature else { return Some("it is not signed: make it with --sign KEY".to_owned()) };
    let Ok(signature) = serde_json::from_slice::<Signature>(bytes) else {
        return Some(format!("{SIGNATURE} cannot be read"));
    };
    if let Some(other) = key.filter(|key| !key.eq_ignore_ascii_case(&signature.key)) {
        return Some(format!("it was signed with the key {}, not with {other}", signature.key));
    }
    (!signature.is_of(manifest)).then(|| "the signature is not that of the manifest".to_owned())
}

/// Whether everything beside the ledgers is what follows from them.
fn follows(manifest: &Manifest, files: &Files, ledgers: &[Ledger]) -> Result<Option<String>, String> {
    if ledgers.is_empty() {
        return Ok(Some("there is no ledger in it".to_owned()));
    }
    let made = derived(ledgers)?;
    let (own, other) = (env!("CARGO_PKG_VERSION"), &manifest.cacheoff);
    let differs = |path: &str| {
        let hint =
            if other == own { String::new() } else { format!("; it is of version {other}, check it with that one") };
        Some(format!("{path} does not follow from the ledgers{hint}"))
    };
    let given = files.iter().filter(|(path, _)| !path.starts_with(LEDGERS));
    if let Some((path, _)) = given.into_iter().find(|(path, bytes)| made.get(*path) != Some(bytes)) {
        return Ok(differs(path));
    }
    Ok(made.keys().find(|path| !files.contains_key(*path)).and_then(|path| differs(path)))
}
