//! Everything that is shipped: an archive, a package of Debian, one of RPM, a wheel and a container image, with the
//! list of their sums. The same commit gives the same bytes (docs/decisions/117).

mod archive;
mod binary;
mod crates;
mod deb;
mod image;
mod papers;
mod rpm;
mod wheel;

use crate::shell::{self, Trouble};
use archive::{Entry, complete, gzip, sha256, tar};
use binary::Linkage;
use crates::Crates;
use papers::Papers;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Parts of a release, for `--only`.
const PARTS: [&str; 5] = ["archive", "deb", "rpm", "wheel", "image"];

/// Files for those that watch a server, by their names in archives and packages.
const WATCHING: [(&str, &str); 2] = [
    ("grafana/larder.json", "packaging/grafana/larder.json"),
    ("prometheus/larder.rules.yml", "packaging/prometheus/larder.rules.yml"),
];

/// The program, and the forms in which it is shipped.
#[derive(clap::Args)]
pub struct Args {
    /// The target that is built; the musl of this architecture where its library is installed, else glibc. That of
    /// `--binary` is read from the program
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
    /// A program that is built already
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// The folder for what is made; else `dist-packages` where cargo puts what it builds
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// These alone: archive, deb, rpm, wheel, image
    #[arg(long, value_name = "PARTS", value_delimiter = ',', value_parser = PARTS)]
    only: Vec<String>,
    /// Certificates (PEM) that the container image trusts
    #[arg(long, value_name = "FILE", default_value = "/etc/ssl/certs/ca-certificates.crt")]
    roots: PathBuf,
}

/// The content that all parts are made of.
struct Release {
    root: PathBuf,
    version: &'static str,
    /// As in targets: `x86_64`.
    architecture: String,
    /// The time of everything: `SOURCE_DATE_EPOCH`, else that of the commit.
    seconds: u64,
    /// Stripped.
    program: Vec<u8>,
    linkage: Linkage,
    papers: Papers,
    bill: String,
    licences: String,
}

impl Release {
    /// A file of the tree.
    fn text(&self, path: &str) -> Result<String, Trouble> {
        let path = self.root.join(path);
        fs::read_to_string(&path).map_err(|error| format!("reading {}: {error}", path.display()))
    }
}

/// Makes the parts and prints their sums.
pub fn run(args: &Args) -> Result<(), Trouble> {
    let root = shell::workspace()?;
    let folder = args.out.clone().unwrap_or_else(|| shell::target_folder(&root).join("dist-packages"));
    let named = args.target.as_deref();
    let release = match &args.binary {
        Some(program) => release(root, named, program)?,
        None => {
            let target = named.map_or_else(|| binary::default_target(&root), |named| Ok(named.to_owned()))?;
            let program = binary::build(&root, &target)?;
            release(root, Some(&target), &program)?
        }
    };
    let sums = make(&release, args, &folder)?;
    print!("{sums}");
    println!("written to {}, with SHA256SUMS", folder.display());
    Ok(())
}

/// `named` is the target that the program is said to be of.
fn release(root: PathBuf, named: Option<&str>, program: &Path) -> Result<Release, Trouble> {
    let version = env!("CARGO_PKG_VERSION");
    let seconds = seconds(&root)?;
    let linkage = binary::linkage(program)?;
    // The list of parts and the licences are those of the target: they must not be of another one than the program.
    let target = binary::target_of(program, &linkage, named)?;
    let architecture = target.split('-').next().unwrap_or_default().to_owned();
    let crates = Crates::of_larder(&root, &target)?;
    let bytes = binary::stripped(program)?;
    match linkage {
        Linkage::Static => println!("{}: static, {} bytes, {} crates", program.display(), bytes.len(), crates.count()),
        Linkage::Glibc(major, minor) => println!(
            "{}: needs glibc {major}.{minor} or newer, {} bytes, {} crates",
            program.display(),
            bytes.len(),
            crates.count()
        ),
    }
    Ok(Release {
        papers: Papers::of(program, version)?,
        bill: crates.bill_of_materials(version, &sha256(&bytes), seconds)?,
        licences: crates.licences()?,
        program: bytes,
        root,
        version,
        architecture,
        seconds,
        linkage,
    })
}

/// Writes the parts that are wanted; gives the lines of `SHA256SUMS`.
fn make(release: &Release, args: &Args, folder: &Path) -> Result<String, Trouble> {
    let trouble = |error: std::io::Error| format!("writing to {}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(trouble)?;
    let mut sums = BTreeMap::new();
    for part in PARTS {
        if !args.only.is_empty() && !args.only.iter().any(|wanted| wanted == part) {
            continue;
        }
        let made = match part {
            "archive" => archive_of(release).map(Some),
            "deb" => deb::package(release).map(Some),
            "rpm" => rpm::package(release),
            "wheel" => wheel::wheel(release).map(Some),
            _ if release.linkage != Linkage::Static && args.only.is_empty() => {
                println!("left out: a container image needs a static program (--target *-linux-musl)");
                continue;
            }
            _ => image::image(release, &args.roots).map(Some),
        };
        if let Some((name, bytes)) = made? {
            fs::write(folder.join(&name), &bytes).map_err(trouble)?;
            sums.insert(name, sha256(&bytes));
        }
    }
    // The form that `sha256sum --check` reads.
    let sums: String = sums.iter().map(|(name, sum)| format!("{sum}  {name}\n")).collect();
    fs::write(folder.join("SHA256SUMS"), &sums).map_err(trouble)?;
    Ok(sums)
}

/// The archive for systems without packages.
fn archive_of(release: &Release) -> Result<(String, Vec<u8>), Trouble> {
    let name = format!("larder-{}-{}-linux", release.version, release.architecture);
    let mut entries = vec![
        Entry::program("larder", release.program.clone()),
        Entry::file("README.md", release.text("packaging/README.md")?),
        Entry::file("THIRD-PARTY.txt", release.licences.clone()),
        Entry::file("larder.cdx.json", release.bill.clone()),
        Entry::file("completions/larder.bash", release.papers.completion("bash")?),
        Entry::file("completions/_larder", release.papers.completion("zsh")?),
        Entry::file("completions/larder.fish", release.papers.completion("fish")?),
    ];
    for file in ["LICENSE", "LICENSE-APACHE", "LICENSE-MIT", "CHANGELOG.md"] {
        entries.push(Entry::file(file, release.text(file)?));
    }
    for file in ["larder.toml", "larder.logrotate"] {
        entries.push(Entry::file(file, release.text(&format!("packaging/{file}"))?));
    }
    for (name, path) in WATCHING {
        entries.push(Entry::file(name, release.text(path)?));
    }
    for file in ["larder.service", "larder.socket", "larder.sysusers"] {
        entries.push(Entry::file(format!("systemd/{file}"), release.text(&format!("packaging/{file}"))?));
    }
    for (page, text) in &release.papers.manual {
        entries.push(Entry::file(format!("man/{page}"), text.clone()));
    }
    entries.iter_mut().for_each(|entry| entry.path = format!("{name}/{}", entry.path));
    Ok((format!("{name}.tar.gz"), gzip(&tar(&complete(entries), "", release.seconds)?)))
}

/// <https://reproducible-builds.org/specs/source-date-epoch/>
fn seconds(root: &Path) -> Result<u64, Trouble> {
    let said = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(said) => said,
        Err(_) => shell::ask(Command::new("git").current_dir(root).args(["log", "-1", "--format=%ct"]))?,
    };
    said.trim().parse().map_err(|error| format!("SOURCE_DATE_EPOCH={}: {error}", said.trim()))
}

#[cfg(test)]
mod tests;
