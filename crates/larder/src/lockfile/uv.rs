//! `uv.lock`: the URL of each file stands in it.

use super::python::Machine;
use super::{Download, FROM_GIT, Listed, Tool, Wrong, tables, text};
use toml::Table;

pub(super) fn read(file: &str) -> Result<Listed, Wrong> {
    read_for(file, &Machine::here(None))
}

fn read_for(file: &str, machine: &Machine) -> Result<Listed, Wrong> {
    let mut listed = Listed::default();
    for package in tables(file, "package")? {
        let what = format!("{} {}", text(&package, "name").unwrap_or("?"), text(&package, "version").unwrap_or("?"));
        let source = package.get("source").and_then(|source| source.as_table());
        if source.is_some_and(|source| source.contains_key("git")) {
            listed.leave_out(what, FROM_GIT);
            continue;
        }
        let wheels = package.get("wheels").and_then(|wheels| wheels.as_array()).into_iter().flatten();
        let sdist = package.get("sdist").into_iter();
        let files: Vec<&str> = wheels.chain(sdist).filter_map(|file| url(file.as_table()?)).collect();
        for url in machine.choose(&files, |url| name_of(url)) {
            listed.add(Download::Url(Tool::Python, (*url).to_owned()));
        }
    }
    Ok(listed)
}

fn url(file: &Table) -> Option<&str> {
    text(file, "url").filter(|url| url.starts_with("http://") || url.starts_with("https://"))
}

/// The last part of a URL's path.
fn name_of(url: &str) -> &str {
    let path = url.split(['?', '#']).next().unwrap_or(url);
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::super::urls_of;
    use super::*;

    #[test]
    fn the_files_for_this_machine() {
        let machine = Machine { python: None, system: "linux", processor: "x86_64" };
        let file = "version = 1\n[[package]]\nname = \"mine\"\nversion = \"0.1.0\"\nsource = { virtual = \".\" }\n\
            [[package]]\nname = \"n\"\nversion = \"1.0\"\nsource = { registry = \"https://i.example/simple\" }\n\
            sdist = { url = \"https://f.example/n-1.0.tar.gz\", hash = \"sha256:aa\" }\n\
            wheels = [\n  { url = \"https://f.example/n-1.0-cp311-cp311-manylinux_2_17_x86_64.whl\" },\n  { url = \"https://f.example/n-1.0-cp311-cp311-win_amd64.whl\" },\n]\n\
            [[package]]\nname = \"s\"\nversion = \"1.0\"\nsdist = { url = \"https://f.example/s-1.0.tar.gz\" }\n\
            [[package]]\nname = \"g\"\nversion = \"1.0\"\nsource = { git = \"https://h.example/g?rev=ff#ff\" }\n";
        let listed = read_for(file, &machine).unwrap();
        assert_eq!(
            urls_of(&listed),
            ["https://f.example/n-1.0-cp311-cp311-manylinux_2_17_x86_64.whl", "https://f.example/s-1.0.tar.gz"]
        );
        assert_eq!(listed.left_out.len(), 1);
    }
}
