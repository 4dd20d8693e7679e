//! `poetry.lock`: names, versions and the digests of files; an index has the URLs.

use super::python::{Wanted, normal};
use super::{Download, FROM_GIT, Listed, Tool, Wrong, tables, text};

pub(super) fn read(file: &str) -> Result<Listed, Wrong> {
    let mut listed = Listed::default();
    for package in tables(file, "package")? {
        let (Some(name), Some(version)) = (text(&package, "name"), text(&package, "version")) else { continue };
        let source = package.get("source").and_then(|source| source.as_table());
        let at = |name: &str| source.and_then(|source| text(source, name)).map(str::to_owned);
        match at("type").as_deref() {
            Some("git") => {
                listed.leave_out(format!("{name} {version}"), FROM_GIT);
                continue;
            }
            Some("url") => {
                at("url").into_iter().for_each(|url| listed.add(Download::Url(Tool::Python, url)));
                continue;
            }
            Some("directory" | "file") => continue,
            _ => {}
        }
        let files = package.get("files").and_then(|files| files.as_array()).into_iter().flatten();
        let hashes = files.filter_map(|file| text(file.as_table()?, "hash")).map(str::to_owned).collect();
        listed.add(Download::Python(Wanted {
            name: normal(name),
            version: version.to_owned(),
            hashes,
            index: at("url"),
        }));
    }
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use super::super::python::Wanted;
    use super::super::{Download, Format};

    #[test]
    fn names_digests_and_sources() {
        let file = "[[package]]\nname = \"Six\"\nversion = \"1.16.0\"\nfiles = [{file = \"six.whl\", hash = \"sha256:aa\"}]\n\
            [[package]]\nname = \"p\"\nversion = \"1.0\"\nfiles = []\n[package.source]\ntype = \"legacy\"\nurl = \"https://i.example/simple\"\n\
            [[package]]\nname = \"g\"\nversion = \"1.0\"\n[package.source]\ntype = \"git\"\nurl = \"https://h.example/g.git\"\n\
            [[package]]\nname = \"d\"\nversion = \"1.0\"\n[package.source]\ntype = \"directory\"\nurl = \"../d\"\n";
        let listed = Format::Poetry.read(file).unwrap();
        let six =
            Wanted { name: "six".into(), version: "1.16.0".into(), hashes: ["sha256:aa".into()].into(), index: None };
        let p = Wanted {
            name: "p".into(),
            version: "1.0".into(),
            hashes: [].into(),
            index: Some("https://i.example/simple".into()),
        };
        assert_eq!(listed.downloads, [Download::Python(six), Download::Python(p)]);
        assert_eq!(listed.left_out.len(), 1);
    }
}
