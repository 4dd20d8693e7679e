//! Where the tools of this machine look names up, as they say it themselves: no registry is built into this program.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The first line that a program prints; `None` where it is not there or fails. The folder may be somebody else's: Go must not
/// fetch and start the toolchain that it names.
fn ask(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    let output =
        command.args(arguments).env("GOTOOLCHAIN", "local").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

fn variable(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| std::env::var(name).ok()).filter(|value| !value.is_empty())
}

/// Python takes no module from the current folder, which may be somebody else's, nor from the environment.
const ISOLATED: &str = "-I";

/// The index of pip: by variables, by its configuration, else the one that is built into pip.
pub(super) fn python_index() -> Option<String> {
    variable(&["PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"])
        .or_else(|| ask("pip", &["config", "get", "global.index-url"]))
        .or_else(|| {
            ask("python3", &[ISOLATED, "-c", "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"])
        })
        .filter(|url| url.starts_with("http"))
}

/// The version of `python3`.
pub(super) fn python_version() -> Option<(u32, u32)> {
    super::python_of(&ask("python3", &[ISOLATED, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])?).ok()
}

/// The registry of npm.
pub(super) fn npm_registry() -> Option<String> {
    variable(&["npm_config_registry"])
        .or_else(|| ask("npm", &["config", "get", "registry"]))
        .filter(|url| url.starts_with("http"))
}

/// The first proxy of Go modules.
pub(super) fn go_proxy() -> Option<String> {
    let all = variable(&["GOPROXY"]).or_else(|| ask("go", &["env", "GOPROXY"]))?;
    all.split([',', '|']).map(str::trim).find(|entry| entry.starts_with("http")).map(str::to_owned)
}

/// The sparse index of cargo: what its configuration replaces the common registry by, else the one whose folder lies in cargo's home.
pub(super) fn cargo_index(folder: &Path) -> Option<String> {
    let home = variable(&["CARGO_HOME"]).map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(variable(&["HOME"])?).join(".cargo")));
    let here = std::path::absolute(folder).ok();
    let folders = here.iter().flat_map(|here| here.ancestors()).map(|folder| folder.join(".cargo"));
    let configs: Vec<toml::Table> = folders.chain(home.clone()).filter_map(|folder| config(&folder)).collect();
    replaced(&configs).or_else(|| known(&home?.join("registry/index")))
}

fn config(folder: &Path) -> Option<toml::Table> {
    let text = ["config.toml", "config"].iter().find_map(|name| std::fs::read_to_string(folder.join(name)).ok())?;
    text.parse().ok()
}

/// The index that stands in for the common registry, as `[source]` tables say it.
fn replaced(configs: &[toml::Table]) -> Option<String> {
    let source = |name: &str| configs.iter().find_map(|config| config.get("source")?.get(name)?.as_table());
    let (mut name, mut seen) = ("crates-io", HashSet::new());
    while seen.insert(name) {
        let table = source(name)?;
        match table.get("replace-with").and_then(|next| next.as_str()) {
            Some(next) => name = next,
            None => return table.get("registry")?.as_str()?.strip_prefix("sparse+").map(str::to_owned),
        }
    }
    None
}

/// The index that cargo has used: the only folder with the configuration of a sparse index, which is called as its host with a digest
/// behind it.
fn known(indexes: &Path) -> Option<String> {
    let folders = std::fs::read_dir(indexes).ok()?.flatten();
    let sparse =
        folders.filter(|folder| folder.path().join("config.json").is_file() && !folder.path().join(".git").exists());
    let names: Vec<String> = sparse.filter_map(|folder| folder.file_name().into_string().ok()).collect();
    // Where there are several, the common registry's is called so.
    let name = match &names[..] {
        [only] => only,
        several => several.iter().find(|name| name.starts_with("index."))?,
    };
    let (host, _) = name.rsplit_once('-')?;
    Some(format!("https://{host}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_of_cargo_may_be_replaced() {
        let config = |text: &str| text.parse::<toml::Table>().unwrap();
        let chain = config("[source.crates-io]\nreplace-with = \"a\"\n[source.a]\nreplace-with = \"b\"\n");
        let end = config("[source.b]\nregistry = \"sparse+https://i.example/index/\"\n");
        assert_eq!(replaced(&[chain.clone(), end]).as_deref(), Some("https://i.example/index/"));
        assert_eq!(replaced(&[chain]), None);
        assert_eq!(replaced(&[config("[source.crates-io]\nreplace-with = \"crates-io\"\n")]), None);
        assert_eq!(replaced(&[]), None);
    }

    #[test]
    fn an_index_that_was_used_is_known_by_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let index = folder.path().join("i.example-0123456789abcdef");
        assert_eq!(known(folder.path()), None);
        std::fs::create_dir(&index).unwrap();
        assert_eq!(known(folder.path()), None);
        std::fs::write(index.join("config.json"), "{}").unwrap();
        assert_eq!(known(folder.path()).as_deref(), Some("https://i.example"));
    }
}
