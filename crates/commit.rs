//! The build script of both programs: tells a release the commit that it is built from, so that `--version` and reports can name it. Other
//! builds do without: they would be compiled anew with each commit.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=../commit.rs");
    println!("cargo::rerun-if-env-changed=BUILT_FROM");
    if let Some(commit) = std::env::var("BUILT_FROM").ok().or_else(commit) {
        println!("cargo::rustc-env=BUILT_FROM={commit}");
        println!(
            "cargo::rustc-env=VERSION_AND_COMMIT={} ({commit})",
            std::env::var("CARGO_PKG_VERSION").unwrap_or_default()
        );
    }
}

fn commit() -> Option<String> {
    if std::env::var("PROFILE").as_deref() != Ok("release") {
        return None;
    }
    // Sources in an archive may lie within another project's tree, whose commit is not theirs.
    git(&["ls-files", "--error-unmatch", "Cargo.toml"])?;
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["describe", "--always", "--dirty", "--abbrev=12"])
}

fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}
