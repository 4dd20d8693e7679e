//! Records of decisions: numbered without gaps, and each answers the same five questions.

use super::{Finding, Tree};

const FOLDER: &str = "docs/decisions/";
const HEADINGS: [&str; 5] = ["## Question", "## Tried", "## Figures", "## Choice", "## When to look again"];

/// Checks names and headings of all records.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let records = tree.texts.iter().filter(|(name, _)| name.starts_with(FOLDER));
    let mut findings = Vec::new();
    for (at, (name, text)) in records.enumerate() {
        let wanted = format!("{FOLDER}{:03}-", at + 1);
        if !name.starts_with(&wanted) || !name.ends_with(".md") {
            findings.push(Finding::new(name, 1, format!("records are numbered without gaps: expected {wanted}….md")));
        }
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
    fn a_gap_and_a_missing_heading_are_found() {
        let whole = HEADINGS.join("\n\ntext\n\n");
        let tree = Tree::sample(&[
            ("docs/decisions/001-a.md", &whole),
            ("docs/decisions/003-b.md", &whole),
            ("docs/decisions/004-c.md", "## Question\n"),
        ]);
        let lines: Vec<_> = check(&tree).into_iter().map(|f| (f.file, f.what)).collect();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].0.ends_with("003-b.md") && lines[0].1.contains("002-"));
        assert!(lines[2].1.contains("headings"));
    }
}
