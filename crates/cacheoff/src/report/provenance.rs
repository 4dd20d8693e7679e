//! The facts that a figure is quoted with: machine, referee, command, who made it and when, and over how many plays. They stand
//! at the head of a page and of a Markdown document, beside the figures.

use super::markup::escaped;
use crate::chart::Unit;
use crate::ledger::{Ledger, Machine};
use std::collections::BTreeSet;

/// Maker, time, referee, products, machine and stores of some ledgers: a heading and a sentence each.
pub(super) fn facts(ledgers: &[Ledger]) -> Vec<(&'static str, String)> {
    // A ledger of an entry that never began knows nothing of the machine.
    let began = || ledgers.iter().filter(|ledger| ledger.run.machine.cores > 0);
    let Some(first) = began().min_by_key(|ledger| ledger.run.started_unix) else { return Vec::new() };
    let mut all = vec![("Made by", maker(ledgers)), ("Played", played(ledgers)), ("Referee", referee(first))];
    all.extend([("Machine", machine(&first.run.machine)), ("Cores and network", cores(ledgers, &first.run.machine))]);
    all.extend([("Entries", products(ledgers)), ("Stores", stores(ledgers))]);
    all.retain(|(_, text)| !text.is_empty());
    all
}

/// The facts as HTML, and the command.
pub(super) fn paragraph(ledgers: &[Ledger]) -> String {
    let mut text: String =
        facts(ledgers).iter().map(|(name, text)| format!("<dt>{name}</dt><dd>{}</dd>", escaped(text))).collect();
    if let Some(line) = command_of(ledgers) {
        text += &format!("<dt>Command</dt><dd><code>{}</code></dd>", escaped(&line));
    }
    if text.is_empty() { text } else { format!("<dl class=\"sub\">{text}</dl>") }
}

/// The facts as Markdown, and the command.
pub(super) fn list(ledgers: &[Ledger]) -> String {
    let mut text: String = facts(ledgers).iter().map(|(name, text)| format!("- {name}: {text}\n")).collect();
    if let Some(line) = command_of(ledgers) {
        text += &format!("- Command: `{line}`\n");
    }
    text
}

/// The command of the first run that has one.
fn command_of(ledgers: &[Ledger]) -> Option<String> {
    let known = ledgers.iter().filter(|ledger| !ledger.run.command.is_empty());
    known.min_by_key(|ledger| ledger.run.started_unix).map(|ledger| command(&ledger.run.command))
}

/// The maker, as far as one is named. A page proves nothing of that; the signature of a bundle does.
fn maker(ledgers: &[Ledger]) -> String {
    let mut names: Vec<&str> = ledgers.iter().map(|ledger| ledger.run.by.trim()).filter(|by| !by.is_empty()).collect();
    names.sort_unstable();
    names.dedup();
    let mut text = match names.is_empty() {
        true => "nobody is named (--by)".to_owned(),
        false => {
            format!("{}, as they say themselves: only a signed bundle of the results would prove it", names.join(", "))
        }
    };
    if ledgers.iter().any(|ledger| ledger.run.target.product.starts_with("Larder")) {
        text.push_str(". The referee, Cacheoff, is made by Larder's authors");
    }
    text
}

/// Date and hour, and the seeds.
fn played(ledgers: &[Ledger]) -> String {
    let starts = || ledgers.iter().map(|ledger| ledger.run.started_unix).filter(|at| *at > 0);
    let ends = ledgers.iter().filter(|ledger| ledger.run.started_unix > 0);
    let last = ends.map(|ledger| ledger.run.started_unix + ledger.end.at_us / 1_000_000).max();
    let mut parts = Vec::new();
    if let (Some(first), Some(last)) = (starts().min(), last) {
        parts.push(format!("{} to {}", date(first), date(last)));
    }
    let seeds: BTreeSet<u64> = ledgers.iter().map(|ledger| ledger.run.seed).filter(|seed| *seed > 0).collect();
    match (seeds.first(), seeds.last()) {
        (Some(one), Some(last)) if one == last => parts.push(format!("seed {one}")),
        (Some(first), Some(last)) if last - first == seeds.len() as u64 - 1 => {
            parts.push(format!("seeds {first} to {last}, one for each round"));
        }
        (Some(_), _) => {
            let all: Vec<String> = seeds.iter().map(u64::to_string).collect();
            parts.push(format!("seeds {}", all.join(", ")));
        }
        _ => {}
    }
    parts.join("; ")
}

fn referee(first: &Ledger) -> String {
    let commit = first.run.tuning.iter().find(|each| each.whose == "referee" && each.name == "commit");
    match (first.run.cacheoff.as_str(), commit) {
        ("", _) => String::new(),
        (version, Some(commit)) => format!("Cacheoff {version}, commit {}", commit.value),
        (version, None) => format!("Cacheoff {version}"),
    }
}

fn machine(machine: &Machine) -> String {
    let mut parts = vec![format!("{} cores of {}", machine.cores, machine.processor)];
    match machine.smt.as_str() {
        "" => {}
        "1" => parts.push("SMT on".to_owned()),
        _ => parts.push("SMT off, or not shown to a guest".to_owned()),
    }
    if machine.memory > 0 {
        parts.push(format!("{} of memory", Unit::Bytes.text(machine.memory as f64)));
    }
    parts.push(machine.kernel.clone());
    parts.extend(Some(machine.system.clone()).filter(|system| !system.is_empty()));
    parts.extend(machine.virtual_machine.then(|| "a virtual machine".to_owned()));
    parts.join(", ")
}

fn cores(ledgers: &[Ledger], machine: &Machine) -> String {
    let own = if machine.own_cores.is_empty() { "any core" } else { &format!("core {}", machine.own_cores) };
    let of_caches: BTreeSet<&str> = ledgers
        .iter()
        .filter_map(|ledger| ledger.run.target.entry.as_ref())
        .map(|entry| entry.cores.as_str())
        .filter(|cores| !cores.is_empty())
        .collect();
    let mut text = match of_caches.is_empty() {
        true => format!("the referee had {own}"),
        false => {
            let all: Vec<&str> = of_caches.into_iter().collect();
            format!("the caches had core {}, the referee had {own}", all.join(" or "))
        }
    };
    let addresses = || ledgers.iter().map(|ledger| ledger.run.target.address.as_str()).filter(|at| !at.is_empty());
    if addresses().next().is_some() && addresses().all(|address| address.starts_with("127.")) {
        text.push_str("; robots, caches and origins spoke over loopback");
    }
    text
}

fn products(ledgers: &[Ledger]) -> String {
    let of = |ledger: &Ledger| (!ledger.run.target.product.is_empty()).then(|| ledger.run.target.product.clone());
    let list = by_label(ledgers, of);
    let packages = match list.contains(", package ") {
        true => " A distribution's package may be of an older branch than the newest release.",
        false => "",
    };
    if list.is_empty() { list } else { format!("{list}.{packages} Configurations: crates/cacheoff/entries/") }
}

/// A product and its version as a column has room for them: the package stands at the head of the page.
pub(super) fn product(ledger: &Ledger) -> &str {
    let whole = ledger.run.target.product.as_str();
    whole.split_once(" (").map_or(whole, |(product, _)| product)
}

/// Where each entry keeps its objects, and the budget.
fn stores(ledgers: &[Ledger]) -> String {
    by_label(ledgers, |ledger| Some(store(ledger)).filter(|text| !text.is_empty()))
}

/// Where an entry keeps its objects, and the budget; empty if that is not known.
pub(super) fn store(ledger: &Ledger) -> String {
    let Some(entry) = ledger.run.target.entry.as_ref() else { return String::new() };
    let place = if entry.store_at.is_empty() { &entry.store } else { &entry.store_at };
    match ledger.run.cache_bytes {
        _ if place.is_empty() => String::new(),
        Some(bytes) => format!("{place}, {}", Unit::Bytes.text(bytes as f64)),
        None => place.clone(),
    }
}

/// A text of each entry, each different one once.
fn by_label(ledgers: &[Ledger], of: impl Fn(&Ledger) -> Option<String>) -> String {
    let mut seen: Vec<(&str, String)> = Vec::new();
    for ledger in ledgers {
        let Some(text) = of(ledger) else { continue };
        let one = (ledger.run.label.as_str(), text);
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    let list: Vec<String> = seen.iter().map(|(label, text)| format!("{label}: {text}")).collect();
    list.join("; ")
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
            "medians of {count} rounds, with the interval in which 95 of 100 medians lie when the rounds are drawn anew"
        ),
    }
}

/// Seconds since 1970 as a date and time in UTC.
pub fn date(unix: u64) -> String {
    let (days, rest) = ((unix / 86_400) as i64, unix % 86_400);
    // Days to a civil date: eras of 400 years that begin on 1 March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", rest / 3_600, rest % 3_600 / 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Entry, Tuning};

    #[test]
    fn a_report_says_where_by_what_when_and_by_whom_it_was_made() {
        assert_eq!((paragraph(&[Ledger::default()]), list(&[Ledger::default()])), (String::new(), String::new()));
        let mut ledger = Ledger::default();
        let machine = &mut ledger.run.machine;
        (machine.cores, machine.processor, machine.kernel) = (2, "A <chip>".to_owned(), "Linux 6".to_owned());
        (machine.own_cores, machine.virtual_machine, machine.memory) = ("1".to_owned(), true, 8_000_000_000);
        (machine.smt, machine.system) = ("0".to_owned(), "Debian GNU/Linux 12".to_owned());
        (ledger.run.cacheoff, ledger.run.command) = ("0.1.0".to_owned(), "/a/b/cacheoff run x".to_owned());
        let commit = Tuning { whose: "referee".to_owned(), name: "commit".to_owned(), value: "1d787a9f".to_owned() };
        ledger.run.tuning.push(commit);
        (ledger.run.started_unix, ledger.run.seed, ledger.end.at_us) = (1_795_246_200, 7, 60_000_000);
        ledger.run.label = "larder".to_owned();
        ledger.run.target.product = "Larder 0.1.0 (program of 2026-11-27)".to_owned();
        ledger.run.target.address = "127.0.0.1:3128".to_owned();
        let (cores, store_at) = ("0".to_owned(), "files on ext4".to_owned());
        ledger.run.target.entry = Some(Entry { cores, store_at, ..Entry::default() });
        ledger.run.cache_bytes = Some(256_000_000);
        let nobody = paragraph(std::slice::from_ref(&ledger));
        for part in [
            "2 cores of A &lt;chip&gt;, SMT off, or not shown to a guest, 8 GB of memory, Linux 6, Debian GNU/Linux 12, a virtual machine",
            "the caches had core 0, the referee had core 1; robots, caches and origins spoke over loopback",
            "Cacheoff 0.1.0, commit 1d787a9f",
            "nobody is named (--by). The referee, Cacheoff, is made by Larder&#x27;s authors",
            "2026-11-21 07:30 UTC to 2026-11-21 07:31 UTC; seed 7",
            "larder: Larder 0.1.0 (program of 2026-11-27)",
            "larder: files on ext4, 256 MB",
            "<code>cacheoff run x</code>",
        ] {
            let part = part.replace("&#x27;", "'");
            assert!(nobody.contains(&part), "{part}: {nobody}");
        }
        assert_eq!(product(&ledger), "Larder 0.1.0");
        ledger.run.by = "A. Tester, Example Ltd".to_owned();
        let mut second = ledger.clone();
        second.run.seed = 8;
        let text = list(&[ledger, second]);
        assert!(text.contains("- Made by: A. Tester, Example Ltd, as they say themselves"), "{text}");
        assert!(text.contains("seeds 7 to 8") && text.contains("- Command: `cacheoff run x`"), "{text}");
        assert!(rounds(1).contains("no interval") && rounds(7).contains("7 rounds"));
    }
}
