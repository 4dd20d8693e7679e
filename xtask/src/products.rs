//! The newest versions of the caches that a contest compares, built from sources that are at hand.
//!
//! Nothing is fetched: a folder holds unpacked sources, archives or bare clones of public repositories, each named after
//! its product and version (`nginx-1.31.1`, `haproxy-3.4.tar.gz`). Of several versions the newest is built. The programs
//! lie in one folder, which is put in front of `PATH` for `cacheoff contest`, and have the day of their newest source
//! file, so that reports show how old a version is.

use crate::shell::{self, Trouble};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Which sources, and where the programs go.
#[derive(clap::Args)]
pub struct Args {
    /// Folder with the sources.
    #[arg(long)]
    sources: PathBuf,
    /// Folder of the programs.
    #[arg(long, default_value = "target/products")]
    out: PathBuf,
    /// Products to build; all that are at hand if nothing is said.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Commands of a build at the same time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

/// A product: how it is built and where its program is then.
struct Recipe {
    /// As sources and entries are named.
    name: &'static str,
    /// Commands in the folder of the source; `@out@` is where it is installed, `@jobs@` how much at once.
    build: &'static [&'static str],
    /// The program below `@out@`, under the name that its entry asks for.
    program: &'static str,
    /// Arguments that print the version.
    version: &'static str,
}

const RECIPES: [Recipe; 4] = [
    Recipe {
        name: "nginx",
        build: &[
            "$(test -x configure && echo ./configure || echo auto/configure) --prefix=@out@ --without-http_gzip_module",
            "make -j@jobs@",
            "make install",
        ],
        program: "sbin/nginx",
        version: "-v",
    },
    Recipe {
        name: "haproxy",
        build: &["make -j@jobs@ TARGET=linux-glibc", "make install PREFIX=@out@"],
        program: "sbin/haproxy",
        version: "-v",
    },
    Recipe {
        name: "squid",
        build: &[
            "test -x configure || ./bootstrap.sh",
            "./configure --prefix=@out@ --disable-arch-native --without-gnutls --without-openssl",
            "make -j@jobs@",
            "make install",
        ],
        program: "sbin/squid",
        version: "-v",
    },
    Recipe {
        name: "varnish",
        build: &["test -x configure || ./autogen.sh", "./configure --prefix=@out@", "make -j@jobs@", "make install"],
        program: "sbin/varnishd",
        version: "-V",
    },
];

/// Builds each product whose source is there.
pub fn run(args: &Args) -> Result<(), Trouble> {
    if let Some(unknown) = args.only.iter().find(|name| !RECIPES.iter().any(|recipe| recipe.name == name.as_str())) {
        let known: Vec<&str> = RECIPES.iter().map(|recipe| recipe.name).collect();
        return Err(format!("no recipe for {unknown}; there are {}", known.join(", ")));
    }
    let names = names_in(&args.sources)?;
    let programs = absolute(&args.out.join("bin"))?;
    let mut built = 0;
    for recipe in RECIPES.iter().filter(|recipe| args.only.is_empty() || args.only.iter().any(|n| n == recipe.name)) {
        let Some(source) = newest(recipe.name, &names) else {
            println!("{}: no source in {}", recipe.name, args.sources.display());
            continue;
        };
        println!("{}: {source}", recipe.name);
        let said = build(recipe, &args.sources.join(source), args, &programs)?;
        println!("{}: {said}", recipe.name);
        built += 1;
    }
    if built == 0 {
        return Err(format!("{} has no source of a product that is known", args.sources.display()));
    }
    println!("PATH={}:$PATH cacheoff contest …", programs.display());
    Ok(())
}

fn names_in(folder: &Path) -> Result<Vec<String>, Trouble> {
    let fail = |error: std::io::Error| format!("{} cannot be read: {error}", folder.display());
    let entries = fs::read_dir(folder).map_err(fail)?;
    entries.map(|entry| Ok(entry.map_err(fail)?.file_name().to_string_lossy().into_owned())).collect()
}

/// The source with the highest version: `nginx-1.31.1` before `nginx-1.9.2`, any number before a name without one.
fn newest<'n>(product: &str, names: &'n [String]) -> Option<&'n str> {
    let of_product = |name: &&String| {
        name.strip_prefix(product).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_', '.']))
    };
    let version = |name: &str| -> Vec<u64> {
        let numbers = name[product.len()..].split(|c: char| !c.is_ascii_digit());
        numbers.filter_map(|number| number.parse().ok()).collect()
    };
    names.iter().filter(of_product).max_by_key(|name| version(name)).map(String::as_str)
}

/// Builds one in a folder that is removed afterwards, and says its version and day.
fn build(recipe: &Recipe, source: &Path, args: &Args, programs: &Path) -> Result<String, Trouble> {
    let workshop = tempfile::tempdir().map_err(|error| format!("no folder to build in: {error}"))?;
    let folder = unpack(source, workshop.path())?;
    let day = newest_file(&folder)?;
    let out = absolute(&args.out.join(recipe.name))?;
    for line in recipe.build {
        let line = line.replace("@out@", &out.display().to_string()).replace("@jobs@", &args.jobs.to_string());
        shell::ask(Command::new("sh").args(["-c", &line]).current_dir(&folder))?;
    }
    let program = out.join(recipe.program);
    let file = fs::File::open(&program).map_err(|error| format!("{} was not built: {error}", program.display()))?;
    file.set_modified(day).map_err(|error| format!("{}: {error}", program.display()))?;
    make_readable(&out)?;
    let link = programs.join(program.file_name().ok_or("a recipe without a program")?);
    let _ = fs::remove_file(&link);
    symlink(&program, &link).map_err(|error| format!("{}: {error}", link.display()))?;
    let said = Command::new(&program).arg(recipe.version).output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
    Ok(said.lines().next().unwrap_or_default().to_owned())
}

/// An unpacked source is copied, so that it stays as it was; an archive is unpacked, a bare clone checked out.
fn unpack(source: &Path, into: &Path) -> Result<PathBuf, Trouble> {
    let folder = into.join("source");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let (from, to) = (source.display().to_string(), folder.display().to_string());
    if source.join("HEAD").is_file() && source.join("objects").is_dir() {
        let script = "git --git-dir=\"$1\" archive HEAD | tar -x -C \"$2\"";
        shell::ask(Command::new("sh").args(["-c", script, "sh", &from, &to]))?;
    } else if source.is_dir() {
        shell::ask(Command::new("cp").args(["-a", &format!("{from}/."), &to]))?;
    } else {
        shell::ask(Command::new("tar").args(["--strip-components=1", "-xf", &from, "-C", &to]))?;
    }
    Ok(folder)
}

/// The day of the newest file: that of the version, as archives and checkouts keep it.
fn newest_file(folder: &Path) -> Result<SystemTime, Trouble> {
    let fail = |error: std::io::Error| format!("{}: {error}", folder.display());
    let (mut folders, mut newest) = (vec![folder.to_owned()], SystemTime::UNIX_EPOCH);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let kind = entry.file_type().map_err(fail)?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                newest = newest.max(entry.metadata().and_then(|facts| facts.modified()).map_err(fail)?);
            }
        }
    }
    Ok(newest)
}

/// Caches change their user when root starts them.
fn make_readable(folder: &Path) -> Result<(), Trouble> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(|error| error.to_string())
}

fn absolute(folder: &Path) -> Result<PathBuf, Trouble> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    folder.canonicalize().map_err(|error| format!("{}: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_newest_version_of_a_product_is_taken() {
        let names: Vec<String> = ["nginx-1.9.2", "nginx-1.31.1.tar.gz", "nginx", "nginxx-9", "haproxy-3.4.tar.gz"]
            .map(str::to_owned)
            .to_vec();
        assert_eq!(newest("nginx", &names), Some("nginx-1.31.1.tar.gz"));
        assert_eq!(newest("haproxy", &names), Some("haproxy-3.4.tar.gz"));
        assert_eq!(newest("squid", &names), None);
    }

    /// A source whose build is a copy: the program is where it belongs, as old as the source, which stays as it was.
    #[test]
    fn a_source_becomes_a_program_of_its_day() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("sources/thing-2.1");
        fs::create_dir_all(&source).unwrap();
        fs::write(source.join("thing"), "#!/bin/sh\necho thing 2.1\n").unwrap();
        let day = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        fs::File::open(source.join("thing")).unwrap().set_modified(day).unwrap();
        let recipe = Recipe {
            name: "thing",
            build: &["mkdir -p @out@/sbin && cp thing @out@/sbin/ && chmod 755 @out@/sbin/thing && touch built"],
            program: "sbin/thing",
            version: "-v",
        };
        let args =
            Args { sources: folder.path().join("sources"), out: folder.path().join("out"), only: vec![], jobs: 1 };
        let programs = absolute(&args.out.join("bin")).unwrap();
        assert_eq!(build(&recipe, &source, &args, &programs).unwrap(), "thing 2.1");
        assert_eq!(fs::metadata(programs.join("thing")).unwrap().modified().unwrap(), day);
        assert!(!source.join("built").exists());
        let failing = Recipe { build: &["echo no compiler >&2; exit 3"], ..recipe };
        assert!(build(&failing, &source, &args, &programs).unwrap_err().contains("no compiler"));
    }
}
