//! Which module of a crate uses which, as the paths in its code say: `crate::…`, `super::…`, `self::…`, and those that
//! begin with a module declared below. A name that a module exports for one below it stands for the latter.

use super::Tree;
use super::code::Code;
use std::collections::{BTreeMap, BTreeSet};

/// (from, to) → the first file and line where the one uses the other. Modules are named by their path: `a`, `a::b`.
pub type Drawn = BTreeMap<(String, String), (String, usize)>;

/// The modules of one crate and the arrows between them.
pub struct Modules {
    /// Without the root (`lib.rs`, `main.rs`), which holds the crate together.
    pub names: BTreeSet<String>,
    /// Every arrow from a module to another, the root left out.
    pub drawn: Drawn,
}

impl Modules {
    /// Reads those of a crate from the files in its source folder (`crates/a/src/`).
    pub fn read(tree: &Tree, source_folder: &str) -> Modules {
        let files: Vec<File> =
            tree.codes.iter().filter_map(|(name, code)| File::of(name, source_folder, code)).collect();
        let names = files.iter().map(|file| file.module.clone()).filter(|name| !name.is_empty()).collect();
        let mut map = Map { names, exported: BTreeMap::new() };
        map.exported = files.iter().flat_map(|file| file.exports(&map)).collect();
        let mut drawn = Drawn::new();
        for file in files.iter().filter(|file| !file.module.is_empty()) {
            for (line, to) in file.uses(&map).into_iter().filter(|(_, to)| *to != file.module && !to.is_empty()) {
                drawn.entry((file.module.clone(), to)).or_insert_with(|| (file.name.to_owned(), line));
            }
        }
        Modules { names: map.names, drawn }
    }
}

/// Finds the module that a path leads to.
struct Map {
    names: BTreeSet<String>,
    /// `a::Name` → the path for which `a` exports that name.
    exported: BTreeMap<String, Vec<String>>,
}

/// A chain of exports that is longer than this is a circle.
const EXPORTS_MAX: usize = 16;

impl Map {
    /// The last module on a path from the root of the crate.
    fn module_of(&self, path: &[String]) -> String {
        self.follow(path, EXPORTS_MAX)
    }

    fn follow(&self, path: &[String], exports: usize) -> String {
        let mut module = String::new();
        for (at, name) in path.iter().enumerate() {
            let next = below(&module, name);
            if self.names.contains(&next) {
                module = next;
                continue;
            }
            match self.exported.get(&next) {
                Some(target) if exports > 0 => {
                    let whole: Vec<String> = target.iter().chain(&path[at + 1..]).cloned().collect();
                    return self.follow(&whole, exports - 1);
                }
                _ => return module,
            }
        }
        module
    }
}

fn below(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

struct File<'a> {
    name: &'a str,
    code: &'a Code,
    /// Empty for the root.
    module: String,
}

impl<'a> File<'a> {
    /// `None` for a file outside the folder, for a program of its own (`bin/`), and for tests.
    fn of(name: &'a str, source_folder: &str, code: &'a Code) -> Option<File<'a>> {
        let inside = name.strip_prefix(source_folder)?.strip_suffix(".rs")?;
        if inside.starts_with("bin/") || inside.ends_with("tests") || inside.contains("/tests/") {
            return None;
        }
        let inside = inside.strip_suffix("/mod").unwrap_or(inside);
        let module = if ["lib", "main"].contains(&inside) { String::new() } else { inside.replace('/', "::") };
        Some(File { name, code, module })
    }

    /// The names that this module exports for modules below it.
    fn exports(&self, map: &Map) -> Vec<(String, Vec<String>)> {
        let mut exports = Vec::new();
        for path in self.paths(map).into_iter().filter(|path| path.is_export) {
            let Some(name) = path.names.last() else { continue };
            if self.is_below(&map.module_of(&path.names)) {
                exports.push((below(&self.module, name), path.names));
            }
        }
        exports
    }

    /// The modules that this one uses, each with a line; what it only exports for those below it is left out.
    fn uses(&self, map: &Map) -> Vec<(usize, String)> {
        let found = self.paths(map).into_iter().map(|path| (path.is_export, path.line, map.module_of(&path.names)));
        found.filter(|(is_export, _, to)| !(*is_export && self.is_below(to))).map(|(_, line, to)| (line, to)).collect()
    }

    fn is_below(&self, module: &str) -> bool {
        match self.module.as_str() {
            "" => !module.is_empty(),
            own => module.strip_prefix(own).is_some_and(|rest| rest.starts_with("::")),
        }
    }

    /// All paths into this crate, from its root.
    fn paths(&self, map: &Map) -> Vec<Path> {
        let mut text = String::new();
        let mut starts = Vec::new();
        for (number, line) in self.code.plain_lines() {
            starts.push((text.len(), number));
            text.push_str(line);
            text.push('\n');
        }
        let line_of = |at: usize| starts[starts.partition_point(|(start, _)| *start <= at).saturating_sub(1)].1;
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(start) = next_path(&text, at) {
            let mut trees = Vec::new();
            let rest = read_tree(&text[start..], &mut Vec::new(), &mut trees);
            at = text.len() - rest.len();
            let is_export = is_export(&text[..start]);
            let paths = trees.iter().filter_map(|names| self.absolute(names, map));
            found.extend(paths.map(|names| Path { names, is_export, line: line_of(start) }));
        }
        found
    }

    /// A path as the root of the crate would write it; `None` for one that leads out of the crate.
    fn absolute(&self, names: &[String], map: &Map) -> Option<Vec<String>> {
        let mut above: Vec<String> =
            self.module.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let mut rest = names;
        match rest.first()?.as_str() {
            "crate" => above.clear(),
            "self" | "super" => {}
            first if map.names.contains(&below(&self.module, first)) => {
                return Some(above.into_iter().chain(rest.iter().cloned()).collect());
            }
            _ => return None,
        }
        while rest.first().is_some_and(|name| name == "super") {
            above.pop();
            rest = &rest[1..];
        }
        let is_name = |name: &&String| !["crate", "self"].contains(&name.as_str());
        Some(above.into_iter().chain(rest.iter().filter(is_name).cloned()).collect())
    }
}

/// A path and where it stands.
struct Path {
    names: Vec<String>,
    /// It stands in a `pub use`.
    is_export: bool,
    line: usize,
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where the next path of at least two segments begins, at or after `from`.
fn next_path(text: &str, from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        let colons = at + text[at..].find("::")?;
        let start = text[..colons].rfind(|c| !is_name(c)).map_or(0, |before| before + 1);
        let before = text[..start].chars().next_back();
        let is_start = start < colons && start >= from && !matches!(before, Some(':' | '$' | '.' | '\''));
        if is_start {
            return Some(start);
        }
        at = colons + 2;
    }
}

/// Whether what stands before a path makes it an export: `pub use`, `pub(crate) use`, …
fn is_export(before: &str) -> bool {
    let statement = &before[before.rfind([';', '}']).map_or(0, |end| end + 1)..];
    let Some(visible) = statement.trim_end().strip_suffix("use") else { return false };
    let visible = visible.trim_end();
    visible.ends_with("pub") || (visible.ends_with(')') && visible.contains("pub("))
}

/// Reads a path or a tree of `use` at the start of `text` and gives what stands after it.
fn read_tree<'t>(text: &'t str, above: &mut Vec<String>, found: &mut Vec<Vec<String>>) -> &'t str {
    let depth = above.len();
    let mut rest = text.trim_start();
    loop {
        if let Some(group) = rest.strip_prefix('{').filter(|_| !above.is_empty()) {
            rest = read_group(group, above, found);
            break;
        }
        let name: String = rest.chars().take_while(|c| is_name(*c)).collect();
        rest = &rest[name.len()..];
        let is_end = name.is_empty();
        if !is_end {
            above.push(name);
        }
        match rest.strip_prefix("::").filter(|_| !is_end) {
            Some(after) => rest = after,
            None => {
                found.push(above.clone());
                break;
            }
        }
    }
    above.truncate(depth);
    rest
}

/// The branches of a tree after its opening brace.
fn read_group<'t>(text: &'t str, above: &mut Vec<String>, found: &mut Vec<Vec<String>>) -> &'t str {
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('}') {
            return after;
        }
        rest = read_tree(rest, above, found);
        // The text between a name and the next branch is `as Other`.
        rest = &rest[rest.find([',', '}']).unwrap_or(rest.len())..];
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(files: &[(&str, &str)]) -> Vec<String> {
        let modules = Modules::read(&Tree::sample(files), "crates/a/src/");
        modules.drawn.iter().map(|((from, to), (file, line))| format!("{from} -> {to} {file}:{line}")).collect()
    }

    #[test]
    fn arrows_are_read_from_paths() {
        let found = drawn(&[
            ("crates/a/src/lib.rs", "pub mod x; pub mod y; pub mod z; pub use y::{Y, Why};"),
            ("crates/a/src/x.rs", "// crate::z\nuse crate::{\n    Y,\n    z::{self, Z},\n};\n"),
            ("crates/a/src/y.rs", "#[cfg(test)]\nmod tests {\n    use crate::x;\n}\nfn f() { $crate::z::Z; }\n"),
            ("crates/a/src/z/mod.rs", "mod inner;\nmod late;\npub use inner::Inner;\nuse super::y;\n"),
            ("crates/a/src/z/inner.rs", "use super::super::x::X;\nuse super::late::{a as b, c};\n"),
            ("crates/a/src/z/late.rs", "fn f() -> super::Inner { crate::z::Inner::<u8>::new() }\n"),
        ]);
        assert_eq!(
            found,
            [
                "x -> y crates/a/src/x.rs:2",
                "x -> z crates/a/src/x.rs:2",
                "z -> y crates/a/src/z/mod.rs:4",
                "z::inner -> x crates/a/src/z/inner.rs:1",
                "z::inner -> z::late crates/a/src/z/inner.rs:2",
                "z::late -> z::inner crates/a/src/z/late.rs:1",
            ]
        );
    }

    #[test]
    fn a_module_uses_those_below_it_by_their_names_alone() {
        let found = drawn(&[
            ("crates/a/src/lib.rs", "mod x;"),
            ("crates/a/src/x/mod.rs", "mod y;\nfn f() { y::g(); std::y::h(); Self::y(); }\n"),
            ("crates/a/src/x/y.rs", "fn g() { super::f(); other::y::h(); }\n"),
        ]);
        assert_eq!(found, ["x -> x::y crates/a/src/x/mod.rs:2", "x::y -> x crates/a/src/x/y.rs:1"]);
    }
}
