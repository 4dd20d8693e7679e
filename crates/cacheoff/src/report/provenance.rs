//! The facts that a figure is quoted with: machine, referee, command, who made it, and over how many plays. They stand at the
//! head of a page, beside its figures.

use super::markup::escaped;
use crate::ledger::Ledger;

/// Machine, referee and maker of some ledgers, as a paragraph.
pub(super) fn paragraph(ledgers: &[Ledger]) -> String {
    // A ledger of an entry that never began knows nothing of the machine.
    let began = ledgers.iter().filter(|ledger| ledger.run.machine.cores > 0);
    let Some(first) = began.min_by_key(|ledger| ledger.run.started_unix) else { return String::new() };
    let machine = &first.run.machine;
    let own = if machine.own_cores.is_empty() { "any core" } else { &format!("core {}", machine.own_cores) };
    let mut parts = vec![format!(
        "Machine: {} cores of {}, {}{}; the referee had {own}.",
        machine.cores,
        machine.processor,
        machine.kernel,
        if machine.virtual_machine { ", virtual" } else { "" },
    )];
    if !first.run.cacheoff.is_empty() {
        parts.push(format!("Referee: Cacheoff {}.", first.run.cacheoff));
    }
    parts.push(maker(ledgers));
    let text = escaped(&parts.join(" "));
    match first.run.command.is_empty() {
        true => format!("<p class=\"sub\">{text}</p>"),
        false => format!("<p class=\"sub\">{text} Command: <code>{}</code></p>", escaped(&command(&first.run.command))),
    }
}

/// The maker, as far as one is named. A page proves nothing of that; the signature of a bundle does.
fn maker(ledgers: &[Ledger]) -> String {
    let mut names: Vec<&str> = ledgers.iter().map(|ledger| ledger.run.by.trim()).filter(|by| !by.is_empty()).collect();
    names.sort_unstable();
    names.dedup();
    match names.is_empty() {
        true => "Nobody is named as its maker (--by).".to_owned(),
        false => format!("Made by {}, as they say themselves; a signed bundle proves it.", names.join(", ")),
    }
}

/// A command line without the place where the program lies.
pub(super) fn command(line: &str) -> String {
    let (program, words) = line.split_once(' ').unwrap_or((line, ""));
    let program = program.rsplit('/').next().unwrap_or(program);
    format!("{program} {words}").trim_end().to_owned()
}

/// The number of rounds and what is shown of them.
pub(super) fn rounds(count: usize) -> String {
    match count {
        0 | 1 => "one play of each entry, so that no interval can be given".to_owned(),
        count => format!(
            "medians of {count} rounds, below each the interval in which 95 of 100 medians lie when the rounds are drawn anew"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_where_by_what_and_by_whom_it_was_made() {
        assert_eq!(paragraph(&[Ledger::default()]), "");
        let mut ledger = Ledger::default();
        let machine = &mut ledger.run.machine;
        (machine.cores, machine.processor, machine.kernel) = (2, "A <chip>".to_owned(), "Linux 6".to_owned());
        (machine.own_cores, machine.virtual_machine) = ("1".to_owned(), true);
        (ledger.run.cacheoff, ledger.run.command) = ("0.1.0".to_owned(), "/a/b/cacheoff run x".to_owned());
        let nobody = paragraph(std::slice::from_ref(&ledger));
        for part in [
            "2 cores of A &lt;chip&gt;, Linux 6, virtual; the referee had core 1",
            "Cacheoff 0.1.0",
            "Nobody is named",
            "<code>cacheoff run x</code>",
        ] {
            assert!(nobody.contains(part), "{part}: {nobody}");
        }
        ledger.run.by = "A. Tester, Example Ltd".to_owned();
        assert!(paragraph(&[ledger]).contains("Made by A. Tester, Example Ltd, as they say themselves"));
        assert!(rounds(1).contains("no interval") && rounds(7).contains("7 rounds"));
    }
}
