//! Sentences that do not name their subject: beginnings that comments and documents must not have (docs/style.md, "Words").

use super::{Finding, Tree};
use serde::Deserialize;

/// Beginnings of sentences that hide the subject.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sentences {
    /// Whole words, in the spelling of the beginning of a sentence.
    beginnings: Vec<String>,
}

/// Looks through comments of Rust files, scenarios and tables, and through documents.
pub fn check(tree: &Tree, rule: &Sentences) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, text) in &tree.texts {
        let mut ended = true;
        for (number, line) in prose(tree, name, text) {
            let Some(line) = line else {
                ended = true;
                continue;
            };
            let found = rule.beginnings.iter().find(|beginning| begins(line, ended, beginning));
            findings.extend(found.map(|beginning| Finding::new(name, number, remedy(beginning))));
            ended = is_item(line) || ENDS.iter().any(|end| line.trim_end().ends_with(end.trim_end()));
        }
    }
    findings
}

fn remedy(beginning: &str) -> String {
    format!(
        "a sentence begins with \"{beginning}\": name the subject, as in \"The bytes that were read …\", \"Requests that \
         wait …\" or \"Like [`new`], for a worker: …\""
    )
}

/// The ends of sentences within a line, and the border of a table's cell.
const ENDS: [&str; 5] = [". ", "? ", "! ", ".) ", "| "];

/// Whether a sentence in this line begins so; `ended`: the line before ended one.
fn begins(line: &str, ended: bool, beginning: &str) -> bool {
    let is_here = |text: &str| {
        let rest = text.trim_start_matches(['#', '-', '*', '>', '|', ' ']).strip_prefix(beginning);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '\''))
    };
    let later = ENDS.iter().flat_map(|end| line.match_indices(end).map(|(at, end)| &line[at + end.len()..]));
    ((ended || is_item(line)) && is_here(line)) || later.into_iter().any(is_here)
}

/// Whether the line is a heading, a row of a table or the beginning of a list's item.
fn is_item(line: &str) -> bool {
    ["#", "|", "- ", "* "].iter().any(|mark| line.starts_with(mark))
}

/// The lines of a file that are read as prose, with their numbers from 1; `None` stands for a line between two paragraphs.
fn prose<'t>(tree: &'t Tree, name: &str, text: &'t str) -> Vec<(usize, Option<&'t str>)> {
    let numbered = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    let shown = |line: &'t str| Some(line.trim()).filter(|line| !line.is_empty());
    if let Some(code) = tree.codes.get(name) {
        // A line of a literal that looks like a comment leaves nothing behind either: such literals are rare.
        let is_blank = |number: usize| code.lines.get(number - 1).is_none_or(|line| line.trim().is_empty());
        let comment = |number: usize, line: &'t str| match line.strip_prefix("//") {
            Some(rest) if is_blank(number) => shown(rest.trim_start_matches(['/', '!'])),
            _ => line.rsplit_once(" // ").filter(|(_, rest)| !rest.contains('"')).and_then(|(_, rest)| shown(rest)),
        };
        return numbered.map(|(number, line)| (number, comment(number, line))).collect();
    }
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    match ending {
        "scn" | "toml" => numbered.map(|(number, line)| (number, line.strip_prefix('#').and_then(shown))).collect(),
        "md" => {
            let mut is_fenced = false;
            let mut paragraph = |line: &'t str| {
                is_fenced ^= line.starts_with("```");
                shown(line).filter(|line| !is_fenced && !line.starts_with("```"))
            };
            numbered.map(|(number, line)| (number, paragraph(line))).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let rule: Sentences = toml::from_str("beginnings = [\"Thus\", \"Likewise for\"]\n").unwrap();
        check(&Tree::sample(files), &rule).into_iter().map(|finding| (finding.file, finding.line)).collect()
    }

    #[test]
    fn a_sentence_without_a_subject_is_found_with_its_remedy() {
        let tree = Tree::sample(&[("a.rs", "fn a() {}\n/// Thus is read.\nfn b() {}\n")]);
        let rule = Sentences { beginnings: vec!["Thus".to_owned()] };
        let findings = check(&tree, &rule);
        assert_eq!(findings, [Finding::new("a.rs", 2, remedy("Thus"))]);
        assert!(findings[0].what.contains("name the subject"));
    }

    #[test]
    fn beginnings_are_found_wherever_a_sentence_begins() {
        let table = [
            ("a.rs", "//! A room. Thus is in it.\n", 1),
            ("a.rs", "// One sentence.\n// Thus comes next.\n", 2),
            ("a.rs", "let a = 1; // Thus it is\n", 1),
            ("a.md", "# Thus it costs\n", 1),
            ("a.md", "text\n\nLikewise for others.\n", 3),
            ("a.md", "| a | Thus it is. |\n", 1),
            ("a.md", "- Thus is first\n- second\n", 1),
            ("a.scn", "# Fine.\nget /\n# Thus is fresh is served.\n", 3),
            ("a.toml", "# Thus counts.\n", 1),
        ];
        for (name, text, line) in table {
            assert_eq!(found(&[(name, text)]), [(name.to_owned(), line)], "{text}");
        }
    }

    #[test]
    fn other_places_of_the_words_are_fine() {
        let table = [
            ("a.rs", "// It says\n// Thus it wants.\n"),
            ("a.rs", "// Thusly. `Thus` is a type. \"Thus is this?\"\n"),
            ("a.rs", "let a = \"// Thus\";\n"),
            ("a.rs", "enum Thus {}\n"),
            ("a.md", "```\nThus is code\n```\n"),
            ("a.scn", "get /Thus\n"),
        ];
        for (name, text) in table {
            assert_eq!(found(&[(name, text)]), [], "{text}");
        }
    }
}
