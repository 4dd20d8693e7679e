//! Where the tools of this machine look names up, as they say it themselves: no registry is built into this program.

use crate::run::mirrored::ToolIndex;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The first line that a program prints; `None` where it is not there or fails. The current folder may be somebody else's: Go must not
/// fetch and start the toolchain that it names.
fn ask(program: &str, arguments: &[&str]) -> Option<String> {
    let text = ask_all(program, arguments)?;
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

fn ask_all(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    let output =
        command.args(arguments).env("GOTOOLCHAIN", "local").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    String::from_utf8(output.stdout).ok().filter(|_| output.status.success())
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
pub(super) fn python_version() -> Option<String> {
    ask("python3", &[ISOLATED, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
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

/// The indexes of the tools on this machine that can be told of a mirror by a variable. Left out is uv: it would write the mirror
/// into its lock file.
pub(super) fn mirrorable() -> Vec<ToolIndex> {
    let index = |tool, urls| ToolIndex { tool, urls };
    let pip = ask_all("pip", &["config", "list"]).map(|list| index("pip", pip(&list)));
    let npm = ask("npm", &["config", "get", "registry"]).filter(|url| url.starts_with("http"));
    let npm = npm.map(|url| {
        let list = ask_all("npm", &["config", "list"]).unwrap_or_default();
        index("npm", npm_variables(&variable(&["npm_config_registry"]).unwrap_or(url), &list))
    });
    let go = ask("go", &["env", "GOPROXY"]).map(|all| index("go", Ok(vec![("GOPROXY", all)])));
    let cargo = ask("cargo", &["--version"]).map(|_| index("cargo", Err("no variable names its index")));
    let found = [pip, npm, go, cargo].into_iter().flatten();
    let netrc = netrc().unwrap_or_default();
    found.map(|index| without_login(index, &netrc)).collect()
}

/// The variables of pip, from what `pip config list` prints: `global.index-url='https://…'`, with `:env:` in place of the section for
/// a variable, which counts before all files.
fn pip(list: &str) -> Result<Vec<(&'static str, String)>, &'static str> {
    let value = |key: &str| {
        let lines = list.lines().filter_map(|line| line.split_once('='));
        let said: Vec<(&str, String)> = lines
            .filter_map(|(name, value)| Some((name.strip_suffix(key)?.strip_suffix('.')?, plain(value))))
            .collect();
        let of_variable = said.iter().find(|(section, _)| *section == ":env:");
        let first = of_variable.or(said.first()).map(|(_, value)| value.clone());
        let differs = of_variable.is_none() && said.iter().any(|(_, value)| Some(value) != first.as_ref());
        if differs { Err("its sections name several indexes") } else { Ok(first) }
    };
    if value("proxy").is_ok_and(|proxy| proxy.is_some_and(|proxy| !proxy.is_empty())) {
        return Err("it has a proxy of its own");
    }
    let built_in = ["-c", "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"];
    let url = value("index-url")?.or_else(|| ask("python3", &[ISOLATED, built_in[0], built_in[1]]));
    let mut variables = vec![("PIP_INDEX_URL", url.ok_or("it names no index over HTTP")?)];
    variables.extend(value("extra-index-url")?.map(|urls| ("PIP_EXTRA_INDEX_URL", urls)));
    Ok(variables)
}

/// A text as Python prints it.
fn plain(text: &str) -> String {
    text.trim().trim_matches(['\'', '"']).replace("\\n", " ")
}

/// The variables of npm. Its lock file leaves out the URLs of packages, for they would name the mirror.
fn npm_variables(url: &str, list: &str) -> Result<Vec<(&'static str, String)>, &'static str> {
    let host = url.split('/').nth(2).unwrap_or_default();
    let has_login =
        list.lines().any(|line| line.trim_start().trim_start_matches('"').starts_with(&format!("//{host}")));
    if has_login {
        return Err(HAS_LOGIN);
    }
    let lock = ("npm_config_omit_lockfile_registry_resolved", "true".to_owned());
    Ok(vec![("npm_config_registry", url.to_owned()), lock])
}

const HAS_LOGIN: &str = "it has credentials for its index, which would not reach it";

/// Leaves a tool alone that would find the user's login for its index in this text: it finds none for the mirror.
fn without_login(mut index: ToolIndex, netrc: &str) -> ToolIndex {
    let words: HashSet<&str> = netrc.split_whitespace().collect();
    let is_known = |text: &str| {
        let urls = text.split([' ', ',', '|']).filter_map(|url| url.split('/').nth(2));
        urls.filter_map(|authority| authority.split(':').next()).any(|host| words.contains(host))
    };
    if index.urls.as_ref().is_ok_and(|urls| urls.iter().any(|(_, text)| is_known(text))) {
        index.urls = Err(HAS_LOGIN);
    }
    index
}

fn netrc() -> Option<String> {
    let named = variable(&["NETRC"]).map(PathBuf::from);
    std::fs::read_to_string(named.or_else(|| Some(PathBuf::from(variable(&["HOME"])?).join(".netrc")))?).ok()
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
    fn a_tool_is_told_of_the_index_that_it_uses_or_left_alone() {
        let told = |list: &str| match pip(list) {
            Ok(variables) => variables.iter().map(|(name, value)| format!("{name}={value};")).collect(),
            Err(why) => why.to_owned(),
        };
        let global = "global.index-url='https://a.test/simple'\n";
        assert_eq!(told(global), "PIP_INDEX_URL=https://a.test/simple;");
        assert_eq!(told(&format!("{global}install.index-url='https://b.test'")), "its sections name several indexes");
        assert_eq!(told(&format!(":env:.index-url='https://c.test'\n{global}")), "PIP_INDEX_URL=https://c.test;");
        assert_eq!(
            told(&format!("{global}global.extra-index-url='\\nhttps://d.test\\nhttps://e.test'")),
            "PIP_INDEX_URL=https://a.test/simple;PIP_EXTRA_INDEX_URL= https://d.test https://e.test;"
        );
        assert_eq!(told(&format!("{global}global.proxy='http://p.test'")), "it has a proxy of its own");

        let login = "; \"user\" config\n//r.test/:_authToken = (protected)\n";
        assert_eq!(npm_variables("https://r.test/", login), Err(HAS_LOGIN));
        assert_eq!(npm_variables("https://s.test/", login).unwrap()[0].1, "https://s.test/");

        let index = |url: &str| ToolIndex { tool: "t", urls: Ok(vec![("T", url.to_owned())]) };
        let netrc = "machine i.test\n login u password p";
        assert_eq!(without_login(index("https://a.test,https://i.test:81/x,direct"), netrc).urls, Err(HAS_LOGIN));
        assert!(without_login(index("https://a.test,direct"), netrc).urls.is_ok());
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
