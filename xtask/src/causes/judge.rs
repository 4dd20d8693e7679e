//! The records of clients, log and metrics of a run, compared with each other and with `docs/explain.md`.

use super::draw::{KINDS, is_allowed};
use crate::shell::Trouble;
use std::collections::{BTreeMap, HashMap};
use std::io::BufRead;

/// The name of a request.
pub type Id = [u8; 13];

/// A client's view of one answer.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The name that the answer had.
    pub id: Id,
    /// The number of its kind.
    pub kind: u8,
    /// `fwd` of `Cache-Status`, by its number in [`Causes::forwards`]; `None` where an origin was not asked.
    pub forward: Option<u8>,
}

/// The causes that are documented.
#[derive(Debug, Default)]
pub struct Causes {
    /// Each cause, with the number of its `fwd`.
    pub forward_of: BTreeMap<String, u8>,
    /// The words that `fwd` may have.
    pub forwards: Vec<String>,
}

impl Causes {
    /// Reads the table of `docs/explain.md`: `| cause | fwd=… | meaning |`.
    pub fn of_manual(text: &str) -> Result<Causes, Trouble> {
        let mut causes = Causes::default();
        for line in text.lines().filter(|line| line.contains("| `fwd=")) {
            let mut cells = line.split('|').map(|cell| cell.trim().trim_matches('`'));
            let (cause, forward) = (cells.nth(1).unwrap_or_default(), cells.next().unwrap_or_default());
            let forward = forward.trim_start_matches("fwd=").to_owned();
            let number = causes.forwards.iter().position(|known| *known == forward).unwrap_or_else(|| {
                causes.forwards.push(forward);
                causes.forwards.len() - 1
            });
            causes.forward_of.insert(cause.to_owned(), number as u8);
        }
        if causes.forward_of.is_empty() { Err("docs/explain.md has no table of causes".to_owned()) } else { Ok(causes) }
    }

    /// The number of a `fwd`.
    pub fn forward(&self, word: &str) -> Option<u8> {
        self.forwards.iter().position(|known| known == word).map(|at| at as u8)
    }
}

/// The log of a run: what came of each request. Lines are `ID OUTCOME`.
pub struct LoggedOutcomes {
    words: Vec<String>,
    outcome_of: HashMap<Id, u8>,
}

impl LoggedOutcomes {
    /// Reads a log.
    pub fn of_log(log: impl BufRead) -> Result<LoggedOutcomes, Trouble> {
        let mut logged = LoggedOutcomes { words: Vec::new(), outcome_of: HashMap::new() };
        for line in log.lines() {
            let line = line.map_err(|error| format!("reading the log: {error}"))?;
            let (id, outcome) = line.split_once(' ').ok_or_else(|| format!("a strange line: {line:?}"))?;
            let id = Id::try_from(id.as_bytes()).map_err(|_| format!("no name of a request: {line:?}"))?;
            let number = logged.words.iter().position(|known| known == outcome).unwrap_or_else(|| {
                logged.words.push(outcome.to_owned());
                logged.words.len() - 1
            });
            let number = u8::try_from(number).map_err(|_| "more than 256 outcomes".to_owned())?;
            if logged.outcome_of.insert(id, number).is_some() {
                return Err(format!("two lines of one request: {line}"));
            }
        }
        Ok(logged)
    }

    /// How many requests it has.
    pub fn len(&self) -> usize {
        self.outcome_of.len()
    }

    fn outcome(&self, id: &Id) -> Option<&str> {
        self.outcome_of.get(id).map(|&number| self.words[usize::from(number)].as_str())
    }
}

/// The findings of a run.
#[derive(Debug, Default, PartialEq)]
pub struct Verdict {
    /// Requests by outcome.
    pub by_outcome: BTreeMap<String, u64>,
    /// Faults, each sort once with how often it came.
    pub wrong: BTreeMap<String, u64>,
}

/// Holds what clients saw against the log.
pub fn judge(seen: &[Seen], logged: &LoggedOutcomes, causes: &Causes) -> Verdict {
    let mut verdict = Verdict::default();
    if logged.len() != seen.len() {
        let what = format!("{} answers, {} lines in the log", seen.len(), logged.len());
        verdict.wrong.insert(what, 1);
    }
    for seen in seen {
        let kind = &KINDS[usize::from(seen.kind)];
        let outcome = logged.outcome(&seen.id).unwrap_or("(no line)");
        *verdict.by_outcome.entry(outcome.to_owned()).or_default() += 1;
        let mut wrong = |what: String| *verdict.wrong.entry(what).or_default() += 1;
        if !is_allowed(kind, outcome) {
            wrong(format!("{} /{} {:?} ended as {outcome}", kind.method, kind.path, kind.fields));
        }
        let said = seen.forward.map_or("none", |number| &causes.forwards[usize::from(number)]);
        let documented = causes.forward_of.get(outcome).map(|&number| &*causes.forwards[usize::from(number)]);
        match documented {
            Some(forward) if forward != said => wrong(format!("{outcome} in the log, fwd={said} in Cache-Status")),
            None if ["hit", "hit-revalidating"].contains(&outcome) && seen.forward.is_some() => {
                wrong(format!("{outcome} in the log, fwd={said} in Cache-Status"));
            }
            _ => {}
        }
    }
    verdict
}

/// Holds the sums of the log against `/metrics`: misses by cause, and all misses.
pub fn judge_metrics(verdict: &mut Verdict, causes: &Causes, metrics: &str) {
    let value = |name: &str| -> u64 {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or(u64::MAX)
    };
    let mut misses = 0;
    for cause in causes.forward_of.keys() {
        let logged = verdict.by_outcome.get(cause).copied().unwrap_or(0);
        let counted = value(&format!("larder_misses_total{{cause=\"{cause}\"}}"));
        misses += logged;
        if counted != logged {
            verdict.wrong.insert(format!("{cause}: {logged} in the log, {counted} in the metrics"), 1);
        }
    }
    let counted = value("larder_requests_total{outcome=\"miss\"}");
    if counted != misses {
        verdict.wrong.insert(format!("{misses} misses have a cause, {counted} were counted"), 1);
    }
    let known = metrics.lines().filter(|line| line.starts_with("larder_misses_total{")).count();
    if known != causes.forward_of.len() {
        verdict.wrong.insert(format!("{known} causes in the metrics, {} documented", causes.forward_of.len()), 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANUAL: &str = "| cause | `Cache-Status` | meaning |\n|---|---|---|\n| `uri-miss` | `fwd=uri-miss` | a |\n\
                          | `evicted` | `fwd=uri-miss` | b |\n| `stale` | `fwd=stale` | c |\n";

    fn seen(id: u8, forward: Option<u8>) -> Seen {
        Seen { id: [id; 13], kind: 0, forward }
    }

    #[test]
    fn what_does_not_agree_is_said() {
        let causes = Causes::of_manual(MANUAL).unwrap();
        assert_eq!((causes.forwards.len(), causes.forward_of.len()), (2, 3));
        let log = "aaaaaaaaaaaaa uri-miss\nbbbbbbbbbbbbb hit\nccccccccccccc evicted\n";
        let logged = LoggedOutcomes::of_log(log.as_bytes()).unwrap();
        let right = [seen(b'a', Some(0)), seen(b'b', None), seen(b'c', Some(0))];
        let mut verdict = judge(&right, &logged, &causes);
        let metrics = "larder_misses_total{cause=\"uri-miss\"} 1\nlarder_misses_total{cause=\"evicted\"} 1\n\
                       larder_misses_total{cause=\"stale\"} 0\nlarder_requests_total{outcome=\"miss\"} 2\n";
        judge_metrics(&mut verdict, &causes, metrics);
        assert_eq!(verdict.wrong, BTreeMap::new());
        judge_metrics(&mut verdict, &causes, &metrics.replace("} 2", "} 3"));
        assert_eq!(verdict.wrong.len(), 1);
        for (wrong, what) in [
            ([seen(b'a', Some(1)), right[1], right[2]], "fwd=stale"),
            ([seen(b'a', None), right[1], right[2]], "fwd=none"),
            ([right[0], seen(b'b', Some(0)), right[2]], "hit in the log"),
            ([right[0], right[1], seen(b'd', Some(0))], "(no line)"),
        ] {
            let verdict = judge(&wrong, &logged, &causes);
            assert!(verdict.wrong.keys().any(|said| said.contains(what)), "{what}: {verdict:?}");
        }
        let unknown = LoggedOutcomes::of_log("aaaaaaaaaaaaa unknown\n".as_bytes()).unwrap();
        assert!(judge(&right[..1], &unknown, &causes).wrong.keys().any(|said| said.contains("unknown")));
        assert!(LoggedOutcomes::of_log("aaaaaaaaaaaaa hit\naaaaaaaaaaaaa hit\n".as_bytes()).is_err());
    }
}
