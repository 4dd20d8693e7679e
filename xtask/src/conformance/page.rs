//! The page of results: docs/results/conformance.md.

use super::cases::{Case, Level, Set};
use super::judge::Outcome;
use super::{Kind, Results};
use std::fmt::Write;

/// The word for an outcome.
pub fn word(level: Level, outcome: &Outcome) -> &'static str {
    match (outcome, level) {
        (Outcome::Passed, _) => "ok",
        (Outcome::Failed(_), _) => "**failed**",
        (Outcome::Yes, _) => "yes",
        (Outcome::No(_), _) => "no",
        (Outcome::NoPremise(_), Level::Must) => "untested",
        (Outcome::NoPremise(_), _) => "not offered",
    }
}

/// The whole page.
pub fn write(sets: &[Set], all: &[Results]) -> String {
    let mut page = String::new();
    head(&mut page, sets, all);
    for set in sets {
        of_set(&mut page, set, all);
    }
    reasons(&mut page, sets, all);
    page
}

fn head(page: &mut String, sets: &[Set], all: &[Results]) {
    let count: usize = sets.iter().map(|set| set.cases.len()).sum();
    let binding = sets.iter().flat_map(|set| &set.cases).filter(|case| case.level.binds()).count();
    line(page, "# Conformance\n");
    line(
        page,
        "Made by `cargo xtask conformance --peers`; not edited by hand. The cases are in `conformance/`, their language in [docs/conformance.md](../conformance.md).\n",
    );
    line(
        page,
        &format!(
            "{count} cases, {binding} of them with a MUST or a SHOULD. Every cache is a reverse proxy of the same origin, starts empty, and is configured to cache as the RFCs have it, where it has the choice:\n"
        ),
    );
    for results in all {
        line(page, &format!("- **{}**: {}.", results.version, results.kind.configuration()));
    }
    line(page, "\n| word | meaning |\n|---|---|");
    line(page, "| ok, **failed** | a MUST or SHOULD holds or not; the end of the page says what was seen instead |");
    line(
        page,
        "| untested | a MUST about a situation that the cache does not let come about (nothing was stored, no range was served): neither held nor broken |",
    );
    line(page, "| not offered | a SHOULD, MAY or behaviour that rests on something the cache does not do |");
    line(page, "| yes, no | a MAY, or a behaviour that the RFC leaves open: neither is better |\n");
    line(page, "## Summary\n");
    line(page, "MUST and SHOULD: held / failed / untested or not offered. Optional: done / all.\n");
    summary(page, sets, all);
}

fn summary(page: &mut String, sets: &[Set], all: &[Results]) {
    columns(page, &["RFC", "of"], all);
    let titled = sets.iter().map(|set| (number(set), std::slice::from_ref(set)));
    for (title, sets) in titled.chain([("all", sets)]) {
        for name in ["MUST", "SHOULD", "optional"] {
            let cases: Vec<&Case> =
                sets.iter().flat_map(|set| &set.cases).filter(|case| case.level.summary_row() == name).collect();
            if cases.is_empty() {
                continue;
            }
            let cells = all.iter().map(|results| tally(&cases, results)).collect::<Vec<_>>().join(" | ");
            line(page, &format!("| {title} | {name} | {cells} |"));
        }
    }
    line(page, "");
}

fn tally(cases: &[&Case], results: &Results) -> String {
    let count = |wanted: fn(&Outcome) -> bool| {
        cases.iter().filter(|case| results.outcomes.get(&case.id).is_some_and(wanted)).count()
    };
    let binds = cases.iter().any(|case| case.level.binds());
    if binds {
        let (held, failed) = (count(|one| *one == Outcome::Passed), count(|one| matches!(one, Outcome::Failed(_))));
        format!("{held} / {failed} / {}", count(|one| matches!(one, Outcome::NoPremise(_))))
    } else {
        format!("{} / {}", count(|one| *one == Outcome::Yes), cases.len())
    }
}

fn of_set(page: &mut String, set: &Set, all: &[Results]) {
    line(page, &format!("## {}\n", set.title));
    for (number, title) in &set.sections {
        line(page, &format!("### {number} {title}\n"));
        columns(page, &["case", "level", "what must hold"], all);
        for case in set.cases.iter().filter(|case| case.section == *number) {
            let cell = |results: &Results| match results.outcomes.get(&case.id) {
                Some(Outcome::Failed(_)) if results.kind == Kind::Larder && case.choice.is_some() => "choice",
                Some(outcome) => word(case.level, outcome),
                None => "",
            };
            let cells = all.iter().map(cell).collect::<Vec<_>>().join(" | ");
            line(page, &format!("| `{}` | {} | {} | {cells} |", case.id, case.level.as_str(), case.says));
        }
        line(page, "");
    }
}

/// The observations of failed cases, cache by cache.
fn reasons(page: &mut String, sets: &[Set], all: &[Results]) {
    line(page, "## Observations of failed cases\n");
    for results in all {
        line(page, &format!("### {}\n", results.version));
        let mut is_clean = true;
        for case in sets.iter().flat_map(|set| &set.cases) {
            let Some(Outcome::Failed(reason)) = results.outcomes.get(&case.id) else { continue };
            is_clean = false;
            let choice = case.choice.as_ref().filter(|_| results.kind == Kind::Larder);
            let choice = choice.map(|place| format!(" (a choice: {place})")).unwrap_or_default();
            line(page, &format!("- `{}` ({}): {}{choice}", case.id, case.level.as_str(), printable(reason)));
        }
        if is_clean {
            line(page, "Nothing failed.");
        }
        line(page, "");
    }
}

fn columns(page: &mut String, first: &[&str], all: &[Results]) {
    let names: Vec<&str> = first.iter().copied().chain(all.iter().map(|results| results.kind.as_str())).collect();
    line(page, &format!("| {} |\n|{}", names.join(" | "), "---|".repeat(names.len())));
}

/// `RFC 9111: HTTP Caching` → `RFC 9111`
fn number(set: &Set) -> &str {
    set.title.split(':').next().unwrap_or(&set.title)
}

/// Text that came over the wire must not become markup.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect::<String>()
        .replace('<', "&lt;")
        .replace('|', "\\|")
}

fn line(page: &mut String, text: &str) {
    writeln!(page, "{text}").ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_page_has_counts_words_and_reasons() {
        let case = |id: &str, level| Case {
            id: id.to_owned(),
            section: "4".to_owned(),
            level,
            says: "It holds.".to_owned(),
            choice: None,
            steps: Vec::new(),
        };
        let cases =
            vec![case("a", Level::Must), case("b", Level::Must), case("c", Level::Should), case("d", Level::May)];
        let sections = vec![("4".to_owned(), "Reuse".to_owned())];
        let set = Set { title: "RFC 1: One".to_owned(), sections, cases };
        let outcomes = BTreeMap::from([
            ("a".to_owned(), Outcome::Passed),
            ("b".to_owned(), Outcome::Failed("step 2: a|b <c>".to_owned())),
            ("c".to_owned(), Outcome::NoPremise("x".to_owned())),
            ("d".to_owned(), Outcome::Yes),
        ]);
        let results = Results { kind: Kind::Nginx, version: "nginx 1.2".to_owned(), outcomes, seconds: 1.0 };
        let page = write(&[set], &[results]);
        for wanted in [
            "4 cases, 3 of them",
            "| RFC 1 | MUST | 1 / 1 / 0 |",
            "| RFC 1 | SHOULD | 0 / 0 / 1 |",
            "| all | optional | 1 / 1 |",
            "### 4 Reuse",
            "| `b` | MUST | It holds. | **failed** |",
            "| `c` | SHOULD | It holds. | not offered |",
            "- `b` (MUST): step 2: a\\|b &lt;c>",
        ] {
            assert!(page.contains(wanted), "{wanted}\n{page}");
        }
    }
}
