//! A ratchet on length: what is over the limit today is listed with its number, and the number may only fall.

use super::{Finding, Tree};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The limits and the exceptions, each with the length it has today.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    function_lines_max: usize,
    file_lines_max: usize,
    /// `path::function` → lines.
    #[serde(default)]
    functions: BTreeMap<String, usize>,
    /// `path` → lines.
    #[serde(default)]
    files: BTreeMap<String, usize>,
}

/// Measures Rust files, and functions outside tests.
pub fn check(tree: &Tree, limits: &Limits) -> Vec<Finding> {
    let mut files = Ratchet::new("file", limits.file_lines_max, &limits.files);
    let mut functions = Ratchet::new("function", limits.function_lines_max, &limits.functions);
    for (name, code) in &tree.codes {
        files.measure(name.clone(), name, 1, tree.texts[name].lines().count());
        if name.contains("/tests/") {
            continue;
        }
        for function in code.functions() {
            let key = format!("{name}::{}", function.name);
            functions.measure(key, name, function.first_line, function.line_count);
        }
    }
    files.findings.into_iter().chain(functions.findings).collect()
}

struct Ratchet<'a> {
    what: &'static str,
    limit: usize,
    exceptions: &'a BTreeMap<String, usize>,
    findings: Vec<Finding>,
}

impl<'a> Ratchet<'a> {
    fn new(what: &'static str, limit: usize, exceptions: &'a BTreeMap<String, usize>) -> Ratchet<'a> {
        Ratchet { what, limit, exceptions, findings: Vec::new() }
    }

    fn measure(&mut self, key: String, file: &str, line: usize, lines: usize) {
        let (what, limit) = (self.what, self.limit);
        let said = match self.exceptions.get(&key) {
            None if lines > limit => format!("{what} {key} has {lines} lines, more than {limit}: it has two subjects"),
            Some(allowed) if lines > *allowed => format!("{what} {key} grew from {allowed} to {lines} lines"),
            Some(_) if lines <= limit => format!("{what} {key} is within the limit again: take out its exception"),
            Some(allowed) if lines < *allowed => format!("{what} {key} shrank: lower its number to {lines}"),
            _ => return,
        };
        self.findings.push(Finding::new(file, line, said));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(source: &str, exceptions: &str) -> Vec<String> {
        let table = format!("function_lines_max = 3\nfile_lines_max = 6\n{exceptions}");
        let found = check(&Tree::sample(&[("a.rs", source)]), &toml::from_str(&table).unwrap());
        found.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn long_things_are_found_and_numbers_may_only_fall() {
        let long = "fn f() {\n\n\n\n}\n";
        assert_eq!(said(long, ""), ["function a.rs::f has 5 lines, more than 3: it has two subjects"]);
        assert_eq!(said(long, "functions = { \"a.rs::f\" = 4 }"), ["function a.rs::f grew from 4 to 5 lines"]);
        assert!(said(long, "functions = { \"a.rs::f\" = 5 }").is_empty());
        assert_eq!(said(long, "functions = { \"a.rs::f\" = 6 }"), ["function a.rs::f shrank: lower its number to 5"]);
        let short = "fn f() {\n}\n";
        let again = "function a.rs::f is within the limit again: take out its exception";
        assert_eq!(said(short, "functions = { \"a.rs::f\" = 5 }"), [again]);
        assert_eq!(said("\n\n\n\n\n\n\n", ""), ["file a.rs has 7 lines, more than 6: it has two subjects"]);
    }
}
