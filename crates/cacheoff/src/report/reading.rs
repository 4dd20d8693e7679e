//! "How to read this": the definitions that a figure is quoted with, as far as the ledgers of a report have such figures. The
//! page and the Markdown show the same sentences.

use super::markup::escaped;
use super::metric::BEYOND_MIN;
use crate::chart::Unit;
use crate::ledger::{Ledger, Mode};

/// A term and its definition.
type Line = (&'static str, String);

/// The definitions as HTML.
pub(super) fn html(ledgers: &[Ledger]) -> String {
    lines(ledgers).iter().map(|(term, text)| format!("<p><b>{term}.</b> {}</p>", escaped(text))).collect()
}

/// The definitions as a part of a Markdown document.
pub(super) fn markdown(ledgers: &[Ledger]) -> String {
    let items: String = lines(ledgers).iter().map(|(term, text)| format!("- **{term}.** {text}\n")).collect();
    if items.is_empty() { items } else { format!("\n## How to read this\n\n{items}") }
}

fn lines(ledgers: &[Ledger]) -> Vec<Line> {
    let has_load = ledgers.iter().any(|ledger| !ledger.intervals.is_empty() && ledger.downtimes.is_empty());
    let has_hits = has_load && ledgers.iter().any(|ledger| ledger.run.target.mode != Mode::Pages);
    let mut all = Vec::new();
    if has_load {
        all.extend(load());
    }
    if has_hits {
        all.push(("Hits", HITS.to_owned()));
    }
    if !ledgers.is_empty() {
        all.extend(cost());
        all.push(intervals(ledgers));
        all.push(("Struck out", STRUCK_OUT.to_owned()));
    }
    all.extend(outage(ledgers));
    all
}

fn load() -> [Line; 3] {
    [
        (
            "Response time",
            "It starts when a request is due: by the schedule, or, for robots without a rate, as soon as they want to send it. It ends \
             with the last byte of the reply. Waiting for one of the robot's own connections is included, so that means and high \
             percentiles show this queue too; service times start with the first byte sent."
                .to_owned(),
        ),
        (
            "Percentiles",
            format!(
                "They are exact to one part in 1,024 and never understated; \"–\" stands where fewer than {BEYOND_MIN} replies lie beyond one."
            ),
        ),
        (
            "Rates",
            "Figures are those of the phase in the heading; warm-up phases are played and not counted. \"≥\" marks a rate that the \
             referee bounded, because its busiest thread, or all of its threads on their cores, used more than 90 % of a core: the cache \
             can do at least so much (of several rounds, the lower end of the interval is the one to quote), and ranks nowhere; the times of such a play are those of cache and referee together. A calibration \
             is full on purpose and has no such mark. \"Requests due\" has no figure where robots ask as fast as they are answered."
                .to_owned(),
        ),
    ]
}

const HITS: &str = "The document hit ratio is the share of basic replies that no transaction of an origin answered, by the origins' own \
    journal and by an echo that they sign; basic are GETs of whole objects without a condition, which leaves out validations, reloads, \
    parts, HEAD and POST. \"Of those, collapsed\" is a share of all basic replies too. A missing hit is one that was offered and did not \
    come: \"evicted\" says that the object had been answered whole before, \"on-its-way\" that an earlier request for it was not \
    answered yet, \"first-failed\" that the earlier answer was not whole. \"Offered\" is the ratio of a cache that never forgets, with the very requests of the play; \
    \"hits of those offered\" is the one divided by the other, and compares entries whose requests differ by chance. \"Ideal of the \
    full-length workload\" is planned for an ideal cache and the whole length: a short play may offer more or less.";
const STRUCK_OUT: &str = "A figure that does not count is struck out. Noise of the machine spoils times, rates and CPU; numbers of \
    objects and hit ratios of such a play stand. Any other reason, in the list of findings, spoils all figures.";

const ONE_PLAY: &str = "Each entry was played once: no interval can be given, and a difference of two entries is not shown to be more \
    than chance.";
const NOT_AGAIN: &str = "A stage that noise spoilt is not played again by itself, unlike a play of a contest: each stage finds the cache and its \
    store as the stage before left them. Where it was asked for (`--repeats`), an entry whose fill or load was spoilt lived anew from its \
    start, and a remark says so.";

fn cost() -> [Line; 3] {
    [
        (
            "CPU per reply",
            "User and system time of all processes of the cache, of those that ended meanwhile too, divided by the replies. The \
             kernel's work for the network counts as far as it is done in their context; over loopback the sender does most of the \
             receiver's protocol work too, in both directions."
                .to_owned(),
        ),
        (
            "Memory",
            "The largest sum over all processes of the cache in the phase, sampled once a second: proportional set size (PSS), so that \
             shared memory counts once and as far as it is mapped; resident set size (RSS) where the kernel tells no PSS. Files of a store, \
             those in a file system in memory (tmpfs) too, and the page cache are not counted, unless the cache maps its files (Varnish's \
             store \"file\" does): a store inside the processes is in the figure, one in files that are read and written is not. The row \
             \"store\" says where it lies, and the notes on the entries what of memory stands before it."
                .to_owned(),
        ),
        (
            "Errors and remarks",
            "An error is a request without a right answer; a wrong answer is an error that came. A remark (missing-age is one) harms \
             no client or costs the origin needless work, and is no error."
                .to_owned(),
        ),
    ]
}

fn intervals(ledgers: &[Ledger]) -> Line {
    if ledgers.iter().any(|ledger| ledger.run.stage.is_some()) {
        return ("One play", format!("{ONE_PLAY} {NOT_AGAIN}"));
    }
    let rounds = ledgers.iter().map(|ledger| ledger.run.round).max().unwrap_or(0);
    let text = match rounds {
        0 | 1 => ONE_PLAY.to_owned(),
        _ => "A figure is the median of the rounds that count, and beside it stands the interval in which 95 of 100 medians lie when \
              these rounds are drawn anew (bootstrap, 1,000 drawings): with few rounds a crude one. A ratio is the median of the ratios of \
              single rounds, of two plays of the same round and seed, and need not be the ratio of two medians. \"Not distinguished\" says \
              that the interval of the differences holds zero, and does not say that the two are equal. \"≤\" and \"≥\" before a ratio \
              stem from a rate with \"≥\"; the interval beside them is that of the measured ratio, so that the bound to quote is its far end. A play that is not valid, because of noise or because the referee was its limit, is played \
              again, twice at most, whoever played it; the last one counts where it is valid or where cache and referee were both at \
              their limit, as its remark says. Medians of two rows may be those of two rounds: they do not multiply."
            .to_owned(),
    };
    ("Intervals and ratios", text)
}

/// The words about a stop, if one was played.
fn outage(ledgers: &[Ledger]) -> Option<Line> {
    let found = ledgers.iter().find_map(|ledger| ledger.downtimes.first().map(|found| (ledger, found)))?;
    let (ledger, found) = found;
    let survives = match ledger.run.workload.name.as_str() {
        "kill" => " The machine goes on: its page cache survives, so that nothing is lost that the system had taken.",
        _ => "",
    };
    let cut = if found.cut.is_empty() { "not told" } else { &found.cut };
    let text = format!(
        "The stop: {cut}.{survives} The cache stays stopped for {} or a little longer (\"stopped for\"). Times count from the exec of the command that starts it again, and are \
         exact to the row beside them, the gap between two probes. \"Kept of the older objects\" is the share of those that were \
         stored, and were hits when asked for again, before the load that ran until the stop; \"kept of the last 5 s\" that of the \
         objects that came new into this load in its last 5 s. Both count only objects that no probe asked for since the start, and \
         the rows below them say how many these were.",
        Unit::Micros.text(found.dark_us as f64)
    );
    Some((if survives.is_empty() { "Stop" } else { "Kill" }, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Downtime, Interval, Run, Stage};

    #[test]
    fn a_report_defines_the_figures_that_it_has_and_no_others() {
        assert_eq!(markdown(&[]), "");
        let mut ledger = Ledger { intervals: vec![Interval::default()], ..Ledger::default() };
        let once = markdown(std::slice::from_ref(&ledger));
        for part in [
            "## How to read this",
            "**Response time.** It starts when a request is due",
            "Waiting for one of the robot's own connections is included",
            "warm-up phases are played and not counted",
            "User and system time of all processes of the cache",
            "proportional set size (PSS)",
            "(tmpfs) too, and the page cache are not counted",
            "fewer than 10 replies lie beyond",
            "hits of those offered",
            "no interval can be given",
            "is no error",
        ] {
            assert!(once.contains(part), "{part}: {once}");
        }
        assert!(!once.contains("**Kill.**") && !once.contains("bootstrap"), "{once}");
        let staged = Ledger { run: Run { stage: Some(Stage::Kill), ..Run::default() }, ..Ledger::default() };
        assert!(markdown(&[staged]).contains("A stage that noise spoilt is not played again by itself"));
        ledger.run.round = 7;
        let rounds = markdown(std::slice::from_ref(&ledger));
        for part in ["bootstrap, 1,000 drawings", "of two plays of the same round and seed", "they do not multiply"] {
            assert!(rounds.contains(part), "{part}: {rounds}");
        }
        ledger.run.target.mode = Mode::Pages;
        assert!(!markdown(std::slice::from_ref(&ledger)).contains("**Hits.**"));
        ledger.run.workload.name = "kill".to_owned();
        let cut = "SIGKILL to every process of the cache".to_owned();
        ledger.downtimes.push(Downtime { cut, dark_us: 5_000_000, ..Downtime::default() });
        let killed = html(&[ledger]);
        for part in
            ["SIGKILL to every process", "page cache survives", "stopped for 5 s", "from the exec of the command"]
        {
            assert!(killed.contains(part), "{part}: {killed}");
        }
        assert!(!killed.contains("Response time"), "{killed}");
    }
}
