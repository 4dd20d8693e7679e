//! Debian's package: an `ar` archive of two compressed tar archives, as deb(5) says. It is written here, so that its
//! bytes depend on its content alone, and that it can be made where no Debian is.

use super::Release;
use super::archive::{Entry, ar, complete, gzip, hex, tar};
use super::binary::Linkage;
use crate::shell::Trouble;
use md5::{Digest, Md5};

/// The package's name and its bytes.
pub fn package(release: &Release) -> Result<(String, Vec<u8>), Trouble> {
    let architecture = match &*release.architecture {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => return Err(format!("Debian's name of the architecture {other} is not known here")),
    };
    let files = complete(content(release)?);
    let control = complete(control(release, architecture, &files)?);
    let packed = |entries: &[Entry]| tar(entries, "./", release.seconds).map(|archive| gzip(&archive));
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", packed(&with_root(control))?),
        ("data.tar.gz", packed(&with_root(files))?),
    ];
    Ok((format!("larder_{}_{architecture}.deb", release.version), ar(&members, release.seconds)))
}

/// Archives of packages begin with the folder that all is in.
fn with_root(entries: Vec<Entry>) -> Vec<Entry> {
    std::iter::once(Entry::folder("", 0o755, 0)).chain(entries).collect()
}

fn content(release: &Release) -> Result<Vec<Entry>, Trouble> {
    let packaging = |name: &str| release.text(&format!("packaging/{name}"));
    let doc = |name: &str| format!("usr/share/doc/larder/{name}");
    let mut entries = vec![
        Entry::program("usr/bin/larder", release.program.clone()),
        Entry::file("etc/larder/larder.toml", packaging("larder.toml")?),
        Entry::file("etc/logrotate.d/larder", packaging("larder.logrotate")?),
        Entry::file("lib/systemd/system/larder.service", packaging("larder.service")?),
        Entry::file("lib/systemd/system/larder.socket", packaging("larder.socket")?),
        Entry::file("usr/lib/sysusers.d/larder.conf", packaging("larder.sysusers")?),
        Entry::file("usr/share/lintian/overrides/larder", packaging("debian/lintian-overrides")?),
        Entry::file("usr/share/bash-completion/completions/larder", release.papers.completion("bash")?),
        Entry::file("usr/share/zsh/vendor-completions/_larder", release.papers.completion("zsh")?),
        Entry::file("usr/share/fish/vendor_completions.d/larder.fish", release.papers.completion("fish")?),
        Entry::file(doc("copyright"), packaging("debian/copyright")?),
        Entry::file(doc("changelog.gz"), gzip(changelog(release).as_bytes())),
        Entry::file(doc("NEWS.md.gz"), gzip(release.text("CHANGELOG.md")?.as_bytes())),
        Entry::file(doc("THIRD-PARTY.txt.gz"), gzip(release.licences.as_bytes())),
        Entry::file(doc("larder.cdx.json"), release.bill.clone()),
    ];
    for (name, path) in super::WATCHING {
        entries.push(Entry::file(doc(name), release.text(path)?));
    }
    for (name, page) in &release.papers.manual {
        entries.push(Entry::file(format!("usr/share/man/man1/{name}.gz"), gzip(page)));
    }
    Ok(entries)
}

fn control(release: &Release, architecture: &str, files: &[Entry]) -> Result<Vec<Entry>, Trouble> {
    let sizes = files.iter().map(|file| file.bytes.as_ref().map_or(1, |bytes| bytes.len().div_ceil(1_024)));
    let text = format!(
        "Package: larder\n\
         Version: {}\n\
         Architecture: {architecture}\n\
         Maintainer: {MAINTAINER}\n\
         Installed-Size: {}\n\
         Depends: {}\n\
         Recommends: logrotate\n\
         Suggests: python3\n\
         Section: web\n\
         Priority: optional\n\
         Description: web cache: forward proxy, reverse proxy and interceptor\n\
        \x20Everything that is downloaded twice (packages, images, models, pages) comes\n\
        \x20from the own disk the second time, over HTTPS too, after a power cut too, and\n\
        \x20Larder can tell why it did or did not.\n\
        \x20.\n\
        \x20The service is a forward proxy on 127.0.0.1:3128 until its settings in\n\
        \x20/etc/larder/larder.toml say otherwise.\n",
        release.version,
        sizes.sum::<usize>(),
        depends(&release.linkage)
    );
    let sums = files.iter().filter_map(|file| Some((&file.path, file.bytes.as_ref()?)));
    // Files of settings have their sums in dpkg's own list.
    let sums = sums.filter(|(path, _)| !path.starts_with("etc/"));
    let sums: String = sums.map(|(path, bytes)| format!("{}  {path}\n", hex(&Md5::digest(bytes)))).collect();
    let read = |name: &str| release.text(&format!("packaging/debian/{name}"));
    let script = |name: &str| read(name).map(|text| Entry::program(name, text));
    Ok(vec![
        Entry::file("control", text),
        Entry::file("conffiles", release.text("packaging/debian/conffiles")?),
        Entry::file("md5sums", sums),
        script("postinst")?,
        script("prerm")?,
        script("postrm")?,
    ])
}

/// Name and address in packages.
pub const MAINTAINER: &str = "The Larder authors <authors@larder.invalid>";

fn depends(linkage: &Linkage) -> String {
    let libraries = match linkage {
        Linkage::Static => String::new(),
        Linkage::Glibc(major, minor) => format!("libc6 (>= {major}.{minor}), libgcc-s1, "),
    };
    format!("{libraries}ca-certificates, systemd | systemd-standalone-sysusers | systemd-sysusers")
}

/// In the form that Debian's tools read; what changed is told by `NEWS.md`.
fn changelog(release: &Release) -> String {
    format!(
        "larder ({}) unstable; urgency=medium\n\n  * The changes are in NEWS.md.gz.\n\n -- {MAINTAINER}  {}\n",
        release.version,
        super::archive::mail_date(release.seconds)
    )
}
