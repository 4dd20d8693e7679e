//! Bundles of invented ledgers: made, checked, tampered with.

use super::*;
use crate::ledger::{End, Entry, Mode, Outcome, Run, Target, WorkloadFacts};
use std::process::Command;

fn ledger(label: &str, round: u32) -> Ledger {
    let entry = Entry {
        name: label.to_owned(),
        commands: vec![format!("{label} -f DIR/x.conf")],
        files: vec![("x.conf".to_owned(), "memory 256 MB\n".to_owned())],
        notes: vec!["Access log off.".to_owned()],
        ..Entry::default()
    };
    let workload = WorkloadFacts {
        name: "mine".to_owned(),
        text: "name = \"mine\"\n".to_owned(),
        scale: 1.0,
        ..WorkloadFacts::default()
    };
    let target = Target {
        mode: Mode::Reverse,
        address: "127.0.0.1:1".to_owned(),
        product: format!("{label} 1.2"),
        entry: Some(entry),
    };
    let run = Run {
        cacheoff: "0.1.0".to_owned(),
        label: label.to_owned(),
        round,
        seed: u64::from(round),
        started_unix: u64::from(round),
        workload,
        target,
        machine: crate::proc::machine("1"),
        ..Run::default()
    };
    Ledger { run, end: End { outcome: Outcome::Complete, ..End::default() }, ..Ledger::default() }
}

fn bytes(ledger: &Ledger) -> Vec<u8> {
    let mut out = Vec::new();
    ledger.write(&mut out).unwrap();
    out
}

fn three_rounds() -> Vec<(String, Vec<u8>)> {
    (1..=3).map(|round| (format!("mine-squid-{round}.ledger"), bytes(&ledger("squid", round)))).collect()
}

fn broken(bundle: &[u8], key: Option<&str>) -> Vec<&'static str> {
    check(bundle, key).unwrap().into_iter().filter(|each| each.broken.is_some()).map(|each| each.rule).collect()
}

#[test]
fn a_bundle_is_whole_until_something_in_it_is_changed() {
    let bundle = make(three_rounds(), None).unwrap();
    // These ledgers have no replies; what a bundle must tell, they tell.
    assert_eq!(broken(&bundle, None), ["signature", "valid"]);
    let files = tar::read(&bundle).unwrap();
    let paths: Vec<&str> = files.keys().map(String::as_str).collect();
    assert!(paths.contains(&"report.html") && paths.contains(&"machines.json"), "{paths:?}");
    assert!(paths.iter().any(|path| path.starts_with("entries/squid-") && path.ends_with("/x.conf")), "{paths:?}");
    for path in files.keys().filter(|path| *path != MANIFEST) {
        let mut changed = files.clone();
        changed.get_mut(path).unwrap().extend(b"\n ");
        let changed = tar::write(&changed).unwrap();
        match check(&changed, None) {
            Ok(all) => assert!(all[0].broken.as_deref().is_some_and(|reason| reason.contains(path)), "{path}"),
            // A ledger that cannot be read any more.
            Err(reason) => assert!(path.starts_with(LEDGERS) && reason.contains(path), "{path}: {reason}"),
        }
        let mut fewer = files.clone();
        fewer.remove(path);
        assert!(broken(&tar::write(&fewer).unwrap(), None).contains(&"hashes"), "{path}");
    }
    let mut more = files;
    more.insert("more.txt".to_owned(), Vec::new());
    assert!(broken(&tar::write(&more).unwrap(), None).contains(&"hashes"));
}

#[test]
fn files_whose_names_become_equal_lie_beside_each_other() {
    let mut one = ledger("squid", 1);
    let long = "x".repeat(40);
    let names = ["a/b", "a_b", "a b", "entry.json", &format!("{long}1"), &format!("{long}2"), ".", ""];
    let files = names.iter().map(|name| ((*name).to_owned(), format!("text of {name}")));
    one.run.target.entry.as_mut().unwrap().files = files.collect();
    let bundle = make(vec![("one.ledger".to_owned(), bytes(&one))], None).unwrap();
    assert!(!broken(&bundle, None).contains(&"report"));
    let inside = tar::read(&bundle).unwrap();
    for name in names {
        let text = format!("text of {name}").into_bytes();
        let found = inside.iter().filter(|(path, bytes)| path.starts_with("entries/") && **bytes == text).count();
        assert_eq!(found, 1, "{name:?}");
    }
    assert_eq!(inside.keys().filter(|path| path.starts_with("entries/")).count(), names.len() + 1);
}

#[test]
fn a_report_that_does_not_follow_from_the_ledgers_is_found_though_its_hash_is_right() {
    let mut files = tar::read(&make(three_rounds(), None).unwrap()).unwrap();
    let report = b"<p>twice as fast".to_vec();
    let mut manifest: Manifest = serde_json::from_slice(&files[MANIFEST]).unwrap();
    manifest.files.insert("report.html".to_owned(), sha256(&report));
    files.insert("report.html".to_owned(), report);
    files.insert(MANIFEST.to_owned(), serde_json::to_vec(&manifest).unwrap());
    let found = broken(&tar::write(&files).unwrap(), None);
    assert!(found.contains(&"report") && !found.contains(&"hashes"), "{found:?}");
}

#[test]
fn a_signature_is_that_of_the_manifest_and_of_the_right_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.pem");
    // As openssl genpkey writes it: PKCS#8, version 1 (RFC 8410 section 10.3).
    let pem = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n";
    std::fs::write(&file, pem).unwrap();
    let bundle = make(three_rounds(), Some(&file)).unwrap();
    // The public key of RFC 8410 section 10.1.
    let key = "19bf44096984cdfe8541bac167dc3b96c85086aa30b6b6cb0c5c38ad703166e1";
    assert_eq!(broken(&bundle, Some(key)), ["valid"]);
    assert_eq!(signer(&bundle).unwrap().as_deref(), Some(key));
    assert_eq!(signer(&make(three_rounds(), None).unwrap()).unwrap(), None);
    assert_eq!(broken(&bundle, Some(&"0".repeat(64))), ["signature", "valid"]);
    let mut files = tar::read(&bundle).unwrap();
    let other = String::from_utf8(files[MANIFEST].clone()).unwrap().replace("0.1.0", "9.9.9");
    files.insert(MANIFEST.to_owned(), other.into_bytes());
    let changed = tar::write(&files).unwrap();
    assert!(broken(&changed, None).contains(&"signature") && signer(&changed).unwrap().is_none());
    std::fs::write(&file, "nonsense").unwrap();
    assert!(make(three_rounds(), Some(&file)).unwrap_err().contains("openssl genpkey"));
}

#[test]
fn each_rule_is_broken_by_name() {
    type Change = fn(&mut Ledger);
    let with = |change: Change| {
        let mut all: Vec<Ledger> = (1..=3).map(|round| ledger("squid", round)).collect();
        change(&mut all[1]);
        let of = |rule: &rules::Rule| (rule.broken)(&all).map(|reason| (rule.name, reason));
        RULES.iter().filter_map(of).filter(|(name, _)| *name != "valid").collect::<Vec<_>>()
    };
    assert_eq!(with(|_| {}), []);
    let cases: [(Change, &str); 9] = [
        (|l| l.end.outcome = Outcome::Unfinished, "ended"),
        (|l| l.run.workload.text.clear(), "workload"),
        (|l| l.run.workload.scale = 0.5, "standard-length"),
        (|l| l.run.target.product = "squid".to_owned(), "versions"),
        (|l| l.run.target.entry = None, "configuration"),
        (|l| l.run.target.entry.as_mut().unwrap().notes.clear(), "reasons"),
        (|l| l.run.machine.kernel.clear(), "machine"),
        (|l| l.run.round = 1, "rounds"),
        (|l| l.run.seed = 1, "seeds"),
    ];
    for (change, name) in cases {
        let found = with(change);
        assert!(found.iter().any(|(rule, reason)| *rule == name && !reason.is_empty()), "{name}: {found:?}");
    }
    let document = include_str!("../../../../docs/disclosure.md");
    for rule in &RULES {
        assert!(document.contains(&format!("| `{}` | {} |", rule.name, rule.sentence)), "{}", rule.name);
    }
}

/// The command line: a folder becomes a bundle, a hostile file is refused with its place.
#[test]
fn a_file_that_is_no_bundle_is_refused_with_place_and_remedy() {
    let mut files = Files::from([("a.txt".to_owned(), b"x".to_vec())]);
    assert!(check(&tar::write(&files).unwrap(), None).unwrap_err().contains("no manifest.json"));
    files.insert(MANIFEST.to_owned(), b"{\"format\":\"cacheoff-bundle-9\",\"cacheoff\":\"9\",\"files\":{}}".to_vec());
    assert!(check(&tar::write(&files).unwrap(), None).unwrap_err().contains("this program knows cacheoff-bundle-1"));
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("d")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("d/link")).unwrap();
    let tarred = Command::new("tar").args(["cf", "x.tar", "d/link"]).current_dir(folder.path()).status();
    let Ok(true) = tarred.map(|status| status.success()) else { return };
    let hostile = std::fs::read(folder.path().join("x.tar")).unwrap();
    assert!(check(&hostile, None).unwrap_err().contains("links and devices are refused"));
}
