//! The program that is packaged: built so that its bytes do not depend on where it is built, stripped, and asked for
//! the libraries that it needs of the system.

use crate::shell::{self, Trouble};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The way in which a program finds the C library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// It brings everything.
    Static,
    /// It needs a glibc of this version or a newer one.
    Glibc(u32, u32),
}

/// The target that is built where none is named: a static program where Rust's library for it is installed.
pub fn default_target(root: &Path) -> Result<String, Trouble> {
    let architecture = std::env::consts::ARCH;
    let musl = format!("{architecture}-unknown-linux-musl");
    if has_library(root, &musl)? {
        return Ok(musl);
    }
    println!(
        "note: no Rust library for {musl} (`rustup target add {musl}` installs it): the program will need the system's glibc"
    );
    Ok(format!("{architecture}-unknown-linux-gnu"))
}

fn has_library(root: &Path, target: &str) -> Result<bool, Trouble> {
    let mut rustc = Command::new("rustc");
    let folder = shell::ask(rustc.current_dir(root).args(["--print", "target-libdir", "--target", target]))?;
    let files = std::fs::read_dir(folder.trim()).into_iter().flatten().flatten();
    Ok(files.into_iter().any(|file| file.file_name().to_string_lossy().starts_with("libstd-")))
}

/// Builds `larder` for a target with the profile `dist`; gives its path.
pub fn build(root: &Path, target: &str) -> Result<PathBuf, Trouble> {
    if target.ends_with("-musl") && shell::find_program("musl-gcc").is_none() {
        return Err("musl-gcc is not installed: the package musl-tools has it".into());
    }
    let mut cargo = shell::cargo(root, &["build", "--locked", "--profile", "dist", "-p", "larder", "--bin", "larder"]);
    cargo.args(["--target", target]);
    // Paths of sources stand in messages of panics and in debug information; those of this machine would make each
    // clone's program another one.
    let folders = [(cargo_home()?, "cargo"), (root.to_path_buf(), "larder")];
    let of_rust = folders.iter().map(|(folder, name)| format!("--remap-path-prefix={}={name}", folder.display()));
    let of_c = folders.iter().map(|(folder, name)| format!("-ffile-prefix-map={}={name}", folder.display()));
    cargo.env("RUSTFLAGS", of_rust.collect::<Vec<_>>().join(" "));
    cargo.env(format!("CFLAGS_{}", target.replace('-', "_")), of_c.collect::<Vec<_>>().join(" "));
    shell::call(&mut cargo)?;
    Ok(shell::target_folder(root).join(target).join("dist/larder"))
}

fn cargo_home() -> Result<PathBuf, Trouble> {
    let home = || std::env::home_dir().map(|home| home.join(".cargo"));
    std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home).ok_or_else(|| "no CARGO_HOME and no home".into())
}

/// The program without symbols; a script as it is.
pub fn stripped(program: &Path) -> Result<Vec<u8>, Trouble> {
    let read = |path: &Path| std::fs::read(path).map_err(|error| format!("reading {}: {error}", path.display()));
    let bytes = read(program)?;
    if !is_elf(&bytes) {
        return Ok(bytes);
    }
    let folder = tempfile::tempdir().map_err(|error| format!("making a folder: {error}"))?;
    let short = folder.path().join("larder");
    shell::call(Command::new(shell::need_program("strip")?).args(["--strip-all", "-o"]).arg(&short).arg(program))?;
    read(&short)
}

fn is_elf(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF")
}

/// The target that a program was built for; trouble where it cannot be the one that is `named`. A static program is taken for one
/// of musl, a script for one of this machine.
pub fn target_of(program: &Path, linkage: &Linkage, named: Option<&str>) -> Result<String, Trouble> {
    let bytes = std::fs::read(program).map_err(|error| format!("reading {}: {error}", program.display()))?;
    let found = match &bytes[..] {
        bytes if !is_elf(bytes) => std::env::consts::ARCH,
        // `e_machine` of the header.
        [_, _, _, _, _, 1, _, _, _, _, _, _, _, _, _, _, _, _, 0x3e, 0, ..] => "x86_64",
        [_, _, _, _, _, 1, _, _, _, _, _, _, _, _, _, _, _, _, 0xb7, 0, ..] => "aarch64",
        _ => return Err(format!("{} is of a processor that is not known here", program.display())),
    };
    let library = if *linkage == Linkage::Static { "musl" } else { "gnu" };
    let Some(named) = named else { return Ok(format!("{found}-unknown-linux-{library}")) };
    // glibc can be linked statically too.
    let is_right = named.split('-').next() == Some(found) && (library == "musl" || !named.ends_with("-musl"));
    match is_right {
        true => Ok(named.to_owned()),
        false => Err(format!("{} is not of {named}, but of {found}-unknown-linux-{library}", program.display())),
    }
}

/// The libraries that a program needs; a script needs none.
pub fn linkage(program: &Path) -> Result<Linkage, Trouble> {
    let bytes = std::fs::read(program).map_err(|error| format!("reading {}: {error}", program.display()))?;
    if !is_elf(&bytes) {
        return Ok(Linkage::Static);
    }
    read_linkage(&shell::ask(Command::new(shell::need_program("objdump")?).arg("-p").arg(program))?)
}

fn read_linkage(told: &str) -> Result<Linkage, Trouble> {
    if !told.lines().any(|line| line.trim_start().starts_with("NEEDED")) {
        return Ok(Linkage::Static);
    }
    let versions = told.split_whitespace().filter_map(|word| word.strip_prefix("GLIBC_")?.split_once('.'));
    // A third number is of versions before 2.4.
    let versions =
        versions.filter_map(|(major, minor)| Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?)));
    let newest: Option<(u32, u32)> = versions.max();
    newest.map(|(major, minor)| Linkage::Glibc(major, minor)).ok_or_else(|| {
        "the program needs libraries, and none of them is glibc: build it for *-linux-gnu or *-linux-musl".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_the_target_that_it_was_built_for() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("larder");
        let glibc = Linkage::Glibc(2, 34);
        let target = |machine: u8, linkage: &Linkage, named: Option<&str>| {
            let header = [&b"\x7fELF\x02\x01\x01"[..], &[0; 9], &[3, 0, machine, 0]].concat();
            std::fs::write(&program, header).unwrap();
            target_of(&program, linkage, named)
        };
        assert_eq!(target(0x3e, &Linkage::Static, None).unwrap(), "x86_64-unknown-linux-musl");
        assert_eq!(target(0xb7, &glibc, None).unwrap(), "aarch64-unknown-linux-gnu");
        let named = Some("x86_64-unknown-linux-musl");
        assert_eq!(target(0x3e, &Linkage::Static, named).unwrap(), "x86_64-unknown-linux-musl");
        assert!(target(0x3e, &glibc, named).unwrap_err().contains("x86_64-unknown-linux-gnu"));
        assert!(target(0xb7, &Linkage::Static, named).unwrap_err().contains("aarch64-unknown-linux-musl"));
        assert!(target(0x03, &Linkage::Static, None).unwrap_err().contains("processor"));
    }

    #[test]
    fn the_newest_symbol_says_which_glibc_is_needed() {
        let told = "Dynamic Section:\n  NEEDED   libc.so.6\n\nVersion References:\n  required from libc.so.6:\n\
                    \x20   0x06969194 0x00 15 GLIBC_2.34\n    0x09691a75 0x00 02 GLIBC_2.2.5\n    0x1 0x00 3 GLIBC_2.9\n";
        assert_eq!(read_linkage(told), Ok(Linkage::Glibc(2, 34)));
        assert_eq!(read_linkage("Dynamic Section:\n  FLAGS_1  0x08000000\n"), Ok(Linkage::Static));
        assert!(read_linkage("  NEEDED   libc.musl-x86_64.so.1\n").is_err());
    }
}
