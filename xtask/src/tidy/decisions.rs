//! Records of decisions: each has a number of its own (one that is being written elsewhere leaves a gap) and answers the
//! same five questions.

use super::{Finding, Tree};

const FOLDER: &str = "docs/decisions/";
const HEADINGS: [&str; 5] = ["## Question", "## Tried", "## Figures", "## Choice", "## When to look again"];

/// Checks names and headings of all records.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let records = tree.texts.iter().filter(|(name, _)| name.starts_with(FOLDER));
    let mut findings = Vec::new();
    let mut last = "";
    for (name, text) in records {
        let number = name[FOLDER.len()..].split('-').next().unwrap_or_default();
        let is_numbered = number.len() == 3 && number.bytes().all(|byte| byte.is_ascii_digit());
        if !is_numbered || !name.ends_with(".md") {
            findings.push(Finding::new(name, 1, "the name of a record is NNN-title.md"));
        }
        if number == last {
            findings.push(Finding::new(name, 1, format!("the number {number} is taken by the record before")));
        }
        last = number;
        let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("## ")).collect();
        if headings != HEADINGS {
            findings.push(Finding::new(name, 1, format!("the headings must be {}", HEADINGS.join(", "))));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_used_twice_and_a_missing_heading_are_found() {
        let whole = HEADINGS.join("\n\ntext\n\n");
        let tree = Tree::sample(&[
            ("docs/decisions/001-a.md", &whole),
            ("docs/decisions/003-b.md", &whole),
            ("docs/decisions/003-c.md", &whole),
            ("docs/decisions/004-d.md", "## Question\n"),
            ("docs/decisions/notes.md", &whole),
        ]);
        let lines: Vec<_> = check(&tree).into_iter().map(|f| (f.file, f.what)).collect();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].0.ends_with("003-c.md") && lines[0].1.contains("003"));
        assert!(lines[1].0.ends_with("004-d.md") && lines[1].1.contains("headings"));
        assert!(lines[2].0.ends_with("notes.md") && lines[2].1.contains("NNN"));
    }
}
