//! The package of RPM, made by `rpmbuild` where that is installed; its host, time and payload are fixed.

use super::Release;
use super::archive::{Entry, complete, gzip, mail_date, tar};
use super::binary::Linkage;
use crate::shell::{self, Trouble};
use std::fs;
use std::process::Command;

/// The package's name and its bytes; `None` where rpmbuild is not installed, which is said.
pub fn package(release: &Release) -> Result<Option<(String, Vec<u8>)>, Trouble> {
    let Some(rpmbuild) = shell::find_program("rpmbuild") else {
        println!("left out: rpmbuild is not installed (the package rpm of Debian, rpm-build of Fedora, has it)");
        return Ok(None);
    };
    let folder = tempfile::tempdir().map_err(|error| format!("making a folder: {error}"))?;
    let top = folder.path();
    let trouble = |error: std::io::Error| format!("writing to {}: {error}", top.display());
    fs::create_dir_all(top.join("SOURCES")).map_err(trouble)?;
    let source = tar(&complete(content(release)?), "", release.seconds)?;
    fs::write(top.join(format!("SOURCES/larder-{}.tar", release.version)), source).map_err(trouble)?;
    fs::write(top.join("larder.spec"), release.text("packaging/larder.spec")?).map_err(trouble)?;
    // As `Sat Nov 28 2026`, which stands in lists of changes.
    let date = mail_date(release.seconds).replace(',', "");
    let words: Vec<&str> = date.split(' ').collect();
    let [week, day, month, year, ..] = words[..] else { return Err(format!("{date} is no date")) };
    let mut command = Command::new(rpmbuild);
    command.env("SOURCE_DATE_EPOCH", release.seconds.to_string()).env("LC_ALL", "C");
    command.args(["-bb", "--quiet", "--target", &release.architecture]);
    for (name, value) in [
        ("_topdir", &*top.to_string_lossy()),
        ("larder_version", release.version),
        ("larder_date", &format!("{week} {month} {day} {year}")),
        ("_buildhost", "localhost"),
        ("use_source_date_epoch_as_buildtime", "1"),
        ("clamp_mtime_to_source_date_epoch", "1"),
        ("_dbpath", &*top.join("db").to_string_lossy()),
    ] {
        command.args(["--define", &format!("{name} {value}")]);
    }
    // RPM would find them itself where the package is built on a system of RPM (`AutoReqProv`).
    if let Linkage::Glibc(major, minor) = release.linkage {
        let libraries = format!("libc.so.6(GLIBC_{major}.{minor})(64bit) libgcc_s.so.1()(64bit)");
        command.args(["--define", &format!("larder_libraries {libraries}")]);
    }
    shell::ask(command.arg(top.join("larder.spec")))?;
    let name = format!("larder-{}-1.{}.rpm", release.version, release.architecture);
    let path = top.join("RPMS").join(&release.architecture).join(&name);
    let bytes = fs::read(&path).map_err(|error| format!("reading {}: {error}", path.display()))?;
    Ok(Some((name, bytes)))
}

fn content(release: &Release) -> Result<Vec<Entry>, Trouble> {
    let packaging = |name: &str| release.text(&format!("packaging/{name}"));
    let doc = |name: &str| format!("usr/share/doc/larder/{name}");
    let licence = |name: &str| format!("usr/share/licenses/larder/{name}");
    let mut entries = vec![
        Entry::program("usr/bin/larder", release.program.clone()),
        Entry::file("etc/larder/larder.toml", packaging("larder.toml")?),
        Entry::file("etc/logrotate.d/larder", packaging("larder.logrotate")?),
        Entry::file("usr/lib/systemd/system/larder.service", packaging("larder.service")?),
        Entry::file("usr/lib/systemd/system/larder.socket", packaging("larder.socket")?),
        Entry::file("usr/lib/sysusers.d/larder.conf", packaging("larder.sysusers")?),
        Entry::folder("var/lib/larder", 0o750, 0),
        Entry::folder("var/log/larder", 0o750, 0),
        Entry::file("usr/share/bash-completion/completions/larder", release.papers.completion("bash")?),
        Entry::file("usr/share/zsh/site-functions/_larder", release.papers.completion("zsh")?),
        Entry::file("usr/share/fish/vendor_completions.d/larder.fish", release.papers.completion("fish")?),
        Entry::file(doc("CHANGELOG.md"), release.text("CHANGELOG.md")?),
        Entry::file(doc("larder.cdx.json"), release.bill.clone()),
        Entry::file(licence("LICENSE-APACHE"), release.text("LICENSE-APACHE")?),
        Entry::file(licence("LICENSE-MIT"), release.text("LICENSE-MIT")?),
        Entry::file(licence("THIRD-PARTY.txt"), release.licences.clone()),
    ];
    for (name, path) in super::WATCHING {
        entries.push(Entry::file(doc(name), release.text(path)?));
    }
    for (name, page) in &release.papers.manual {
        entries.push(Entry::file(format!("usr/share/man/man1/{name}.gz"), gzip(page)));
    }
    Ok(entries)
}
