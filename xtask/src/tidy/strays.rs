//! Rust files that no `mod` declares: the compiler never reads them, so a test in one never runs.

use super::code::has_word;
use super::{Finding, Tree};

/// Looks at the sources and tests of all crates.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let is_stray = |file: &&String| parents(file).is_some_and(|parents| !is_declared(tree, file, &parents));
    let strays = tree.codes.keys().filter(is_stray);
    strays.map(|file| Finding::new(file, 1, "no `mod` declares this file: it is not compiled")).collect()
}

/// The files that may declare this one; `None` for the root of a program or library, and for other folders.
fn parents(file: &str) -> Option<Vec<String>> {
    let inside = ["/src/", "/tests/"].iter().find_map(|part| Some(file.split_once(part)?.1))?;
    let is_program = !inside.contains('/') && file.contains("/tests/");
    if is_program || inside.starts_with("bin/") || ["lib.rs", "main.rs"].iter().any(|root| inside.ends_with(root)) {
        return None;
    }
    let (folder, _) = module(file)?;
    let here = ["mod.rs", "lib.rs", "main.rs"].iter().map(|name| format!("{folder}/{name}"));
    Some(here.chain([format!("{folder}.rs")]).collect())
}

/// The folder whose module declares a file, and the name under which it does.
fn module(file: &str) -> Option<(&str, &str)> {
    let path = file.strip_suffix("/mod.rs").or_else(|| file.strip_suffix(".rs"))?;
    path.rsplit_once('/')
}

fn is_declared(tree: &Tree, file: &str, parents: &[String]) -> bool {
    let Some((_, name)) = module(file) else { return false };
    let declaration = format!("mod {name}");
    // `#[path = "name_tests.rs"] mod tests;` beside it.
    let folder = &file[..file.rfind('/').map_or(0, |slash| slash + 1)];
    let by_path = format!("#[path = \"{}\"]", &file[folder.len()..]);
    let beside = tree.texts.range(folder.to_owned()..).take_while(|(name, _)| name.starts_with(folder));
    parents
        .iter()
        .filter_map(|parent| tree.codes.get(parent))
        .any(|code| code.lines.iter().any(|line| has_word(line, &declaration)))
        || beside.map(|(_, text)| text).any(|text| text.contains(&by_path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_nobody_declares_is_found() {
        let tree = Tree::sample(&[
            ("a/src/lib.rs", "mod x;\npub mod y;\n// mod gone;\n"),
            ("a/src/x.rs", "mod inner;\n#[path = \"x_tests.rs\"]\nmod tests;"),
            ("a/src/x/inner.rs", ""),
            ("a/src/y/mod.rs", ""),
            ("a/src/y/lost.rs", ""),
            ("a/src/gone.rs", ""),
            ("a/src/x_tests.rs", "mod a;"),
            ("a/src/bin/p.rs", ""),
            ("a/tests/alone.rs", ""),
            ("a/tests/all/main.rs", "mod one;"),
            ("a/tests/all/one.rs", ""),
            ("a/tests/all/two.rs", ""),
            ("a/benches/b.rs", ""),
        ]);
        let found: Vec<String> = check(&tree).into_iter().map(|finding| finding.file).collect();
        assert_eq!(found, ["a/src/gone.rs", "a/src/y/lost.rs", "a/tests/all/two.rs"]);
    }
}
