//! `package-lock.json` and `npm-shrinkwrap.json`, versions 1 to 3.

use super::{Download, FROM_GIT, LeftOut, Listed, NpmPage, Tool, Wrong, wrong};
use serde_json::{Map, Value};

pub(super) fn read(file: &str) -> Result<Listed, Wrong> {
    let root: Value = serde_json::from_str(file).map_err(wrong)?;
    let mut listed = Listed::default();
    if let Some(packages) = root["packages"].as_object() {
        for (place, package) in packages {
            let Some((_, name)) = place.rsplit_once("node_modules/") else { continue };
            add(&mut listed, package["name"].as_str().unwrap_or(name), package);
        }
    } else if let Some(packages) = root["dependencies"].as_object() {
        // In the first version packages lie within the packages that use them.
        let mut rest: Vec<&Map<String, Value>> = Vec::from([packages]);
        while let Some(packages) = rest.pop() {
            for (name, package) in packages {
                add(&mut listed, name, package);
                rest.extend(package["dependencies"].as_object());
            }
        }
    }
    Ok(listed)
}

/// One package. Links and packages that lie inside others are no downloads.
fn add(listed: &mut Listed, name: &str, package: &Value) {
    let is = |what: &str| package[what].as_bool() == Some(true);
    if is("link") || is("inBundle") || is("bundled") {
        return;
    }
    let version = package["version"].as_str().unwrap_or_default();
    let resolved = package["resolved"].as_str().unwrap_or_default();
    match source(resolved, version) {
        Source::Url(url) => listed.add(Download::Url(Tool::Node, url)),
        Source::Registry => {
            listed.add(Download::Npm { name: name.to_owned(), version: version.to_owned(), page: NpmPage::Read })
        }
        Source::Git => listed.left_out.push(LeftOut { what: format!("{name} {resolved}"), why: FROM_GIT }),
        Source::Here => {}
    }
}

/// Where a package of a Node lock file comes from.
pub(super) enum Source {
    Url(String),
    /// By the usual path of the registry.
    Registry,
    Git,
    /// A folder or file of this machine.
    Here,
}

/// The source of a package by the words for its place and its version.
pub(super) fn source(resolved: &str, version: &str) -> Source {
    let of_web = |text: &str| text.starts_with("https://") || text.starts_with("http://");
    // Yarn writes the digest behind the URL.
    let resolved = resolved.split('#').next().unwrap_or_default();
    match resolved {
        _ if of_web(resolved) && !resolved.ends_with(".git") => Source::Url(resolved.to_owned()),
        _ if resolved.starts_with("git") || resolved.ends_with(".git") || version.starts_with("git") => Source::Git,
        "" if of_web(version) => Source::Url(version.to_owned()),
        "" if version.starts_with(|first: char| first.is_ascii_digit()) => Source::Registry,
        _ => Source::Here,
    }
}

/// The URL of a tarball in a registry.
pub fn tarball(registry: &str, name: &str, version: &str) -> String {
    let base = name.rsplit('/').next().unwrap_or(name);
    // Registries leave out the name of a build, which stands behind a plus.
    let version = version.split('+').next().unwrap_or(version);
    format!("{}/{name}/-/{base}-{version}.tgz", registry.trim_end_matches('/'))
}

/// The URL of the page of a package in a registry.
pub fn page(registry: &str, name: &str) -> String {
    format!("{}/{}", registry.trim_end_matches('/'), name.replace('/', "%2f"))
}

#[cfg(test)]
mod tests {
    use super::super::{Format, urls_of};
    use super::*;

    #[test]
    fn urls_where_the_file_has_them_else_names() {
        let file = r#"{"lockfileVersion": 3, "packages": {
            "": {"name": "mine"},
            "lib": {"version": "1.0.0"},
            "node_modules/lib": {"resolved": "lib", "link": true},
            "node_modules/a": {"version": "1.0.0", "resolved": "https://r.example/a/-/a-1.0.0.tgz"},
            "node_modules/a/node_modules/@s/b": {"version": "2.0.0"},
            "node_modules/alias": {"name": "real", "version": "3.0.0"},
            "node_modules/in": {"version": "1.0.0", "inBundle": true},
            "node_modules/g": {"version": "1.0.0", "resolved": "git+ssh://git@h.example/g.git#0123"}
        }}"#;
        let listed = Format::Npm.read(file).unwrap();
        let npm = |name: &str, version: &str| Download::Npm {
            name: name.to_owned(),
            version: version.to_owned(),
            page: NpmPage::Read,
        };
        assert_eq!(urls_of(&listed), ["https://r.example/a/-/a-1.0.0.tgz"]);
        assert_eq!(listed.downloads.len(), 3);
        assert!(listed.downloads.contains(&npm("@s/b", "2.0.0")) && listed.downloads.contains(&npm("real", "3.0.0")));
        assert_eq!(listed.left_out.len(), 1);
        assert_eq!(tarball("https://r.example/", "@s/b", "2.0.0+7"), "https://r.example/@s/b/-/b-2.0.0.tgz");
        assert_eq!(page("https://r.example/", "@s/b"), "https://r.example/@s%2fb");
    }

    #[test]
    fn the_first_version_nests() {
        let file = r#"{"lockfileVersion": 1, "dependencies": {
            "a": {"version": "1.0.0", "resolved": "https://r.example/a.tgz", "dependencies": {
                "b": {"version": "2.0.0", "resolved": "https://r.example/b.tgz"}}},
            "c": {"version": "file:../c"}}}"#;
        let mut urls = urls_of(&Format::Npm.read(file).unwrap()).join(" ");
        urls.make_ascii_lowercase();
        assert_eq!(urls, "https://r.example/a.tgz https://r.example/b.tgz");
        assert!(Format::Npm.read("not json").is_err());
    }
}
