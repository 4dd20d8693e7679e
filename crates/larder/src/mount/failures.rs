//! The last things that went wrong in an application, as people are told of them.

use crate::clock;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

/// Failures of requests that are remembered of one application.
const FAILURES_MAX: usize = 16;

/// Places at which processes hung whose requests are not known yet.
const PLACES_MAX: usize = 16;

/// The most of a traceback that is remembered; the log has all of it.
pub(super) const TRACEBACK_BYTES_MAX: usize = 16 << 10;

/// The most that is remembered of a target, as of the URL of a record.
pub(super) const TARGET_BYTES_MAX: usize = 2 << 10;

/// The most that is remembered of a name, a method or a version.
pub(super) const WORD_BYTES_MAX: usize = 64;

/// A request that raised an exception, was late, or ended its process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Failure {
    /// The name of the request.
    #[serde(default)]
    pub request: String,
    /// Its method.
    #[serde(default)]
    pub method: String,
    /// Its target.
    #[serde(default)]
    pub target: String,
    /// The traceback, or what was wrong.
    pub traceback: String,
    /// When it became known.
    #[serde(skip)]
    pub at: Duration,
    /// The system's number of the process that was ended because of it: where that hung is known a moment later.
    #[serde(skip)]
    pub ended: Option<u32>,
}

/// A version of an application that could not be loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailedLoad {
    /// The traceback.
    pub traceback: String,
    /// The probable remedy; empty where none is known.
    pub hint: String,
    /// When it became known.
    pub at: Duration,
}

impl FailedLoad {
    /// One line: the place in the application's folder, the last line of the traceback, and the hint where it says more.
    pub fn in_one_line(&self, folder: &Path) -> String {
        let lines = || self.traceback.lines().rev().filter(|line| !line.trim().is_empty());
        let last = lines().next().map(str::trim);
        let place = lines().find_map(|line| place_below(folder, line));
        // Some texts begin with their place.
        let place = place.filter(|(path, line)| !last.is_some_and(|last| last.contains(&format!("{path}:{line}"))));
        let place = place.map_or(String::new(), |(path, line)| format!("{path}:{line}: "));
        let hint = Some(self.hint.trim()).filter(|hint| !hint.is_empty());
        match (last, hint) {
            (None, None) => "no traceback".to_owned(),
            (None, Some(hint)) => hint.to_owned(),
            (Some(last), Some(hint)) if !hint.ends_with("see the last lines of the traceback") => {
                format!("{place}{last} ({hint})")
            }
            (Some(last), _) => format!("{place}{last}"),
        }
    }
}

/// The path below the folder and the line of a frame in a traceback, `  File "/srv/policy.py", line 2`.
fn place_below<'t>(folder: &Path, line: &'t str) -> Option<(&'t str, u32)> {
    let folder = std::path::absolute(folder).ok()?;
    let (path, rest) = line.trim_start().strip_prefix("File \"")?.split_once("\", line ")?;
    // A store in the folder has the runtime in it.
    if path.contains("/python/lib/larder/") {
        return None;
    }
    let number = rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()?;
    Some((Path::new(path).strip_prefix(folder).ok()?.to_str()?, number))
}

/// The last failures of an application.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    /// The newest last.
    list: VecDeque<Failure>,
    /// Where processes hung whose failures are not noted yet, by the numbers of the processes.
    places: VecDeque<(u32, String)>,
}

impl Failures {
    /// Notes one.
    pub(super) fn push(&mut self, mut failure: Failure) {
        failure.at = clock::wall();
        let place = failure.ended.and_then(|pid| self.places.iter().position(|(of, _)| *of == pid));
        if let Some((_, place)) = place.and_then(|at| self.places.remove(at)) {
            failure.was_at(&place);
        }
        cut(&mut failure.request, WORD_BYTES_MAX);
        cut(&mut failure.method, WORD_BYTES_MAX);
        cut(&mut failure.target, TARGET_BYTES_MAX);
        cut(&mut failure.traceback, TRACEBACK_BYTES_MAX);
        if self.list.len() == FAILURES_MAX {
            self.list.pop_front();
        }
        self.list.push_back(failure);
    }

    /// Notes where the process of this number hung that was ended.
    pub(super) fn was_at(&mut self, pid: u32, place: &str) {
        match self.list.iter_mut().rev().find(|failure| failure.ended == Some(pid)) {
            Some(failure) => failure.was_at(place),
            None => {
                if self.places.len() == PLACES_MAX {
                    self.places.pop_front();
                }
                self.places.push_back((pid, place.to_owned()));
            }
        }
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// All of them, the newest last.
    pub fn iter(&self) -> impl Iterator<Item = &Failure> {
        self.list.iter()
    }
}

impl IntoIterator for Failures {
    type Item = Failure;
    type IntoIter = std::collections::vec_deque::IntoIter<Failure>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

impl Failure {
    fn was_at(&mut self, place: &str) {
        self.traceback = format!("{}\n{place}", self.traceback.trim_end());
        cut(&mut self.traceback, TRACEBACK_BYTES_MAX);
        // A number may be that of another process one day.
        self.ended = None;
    }
}

/// Cuts a text that is too long: what stays is its beginning and its end, which says most in a traceback.
pub(super) fn cut(text: &mut String, bytes_max: usize) {
    if text.len() <= bytes_max {
        return;
    }
    let head = text.floor_char_boundary(bytes_max / 4);
    let tail = text.ceil_char_boundary(text.len() - (bytes_max - bytes_max / 4));
    *text = format!("{}\n… ({} bytes left out) …\n{}", &text[..head], tail - head, &text[tail..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_keep_their_beginning_and_their_end() {
        let mut short = "é".repeat(8);
        cut(&mut short, 16);
        assert_eq!(short, "éééééééé");
        let mut long = "Traceback:\n".to_owned() + &"é".repeat(100) + "\nValueError: x";
        cut(&mut long, 40);
        assert_eq!(long, "Traceback:\n… (185 bytes left out) …\néééééééé\nValueError: x");
    }

    #[test]
    fn a_version_that_can_not_be_loaded_in_one_line() {
        let line = |traceback: &str, hint: &str| {
            let (traceback, hint) = (traceback.to_owned(), hint.to_owned());
            FailedLoad { traceback, hint, ..FailedLoad::default() }.in_one_line(Path::new("/srv/shop"))
        };
        let syntax =
            "  File \"/srv/shop/policy.py\", line 2\n    def broken(:\n               ^\nSyntaxError: invalid syntax\n";
        let seen = "importing policy.py failed: see the last lines of the traceback";
        assert_eq!(line(syntax, seen), "policy.py:2: SyntaxError: invalid syntax");
        let import = "Traceback (most recent call last):\n  File \"/srv/shop/policy.py\", line 1, in <module>\n    import nothing\n\
                      ModuleNotFoundError: No module named 'nothing'\n\n";
        assert_eq!(
            line(import, "install it"),
            "policy.py:1: ModuleNotFoundError: No module named 'nothing' (install it)"
        );
        let placed =
            "  File \"/srv/shop/policy.py\", line 3, in <module>\nTypeError: /srv/shop/policy.py:3: no filter 'pth'\n";
        assert_eq!(line(placed, seen), "TypeError: /srv/shop/policy.py:3: no filter 'pth'");
        assert_eq!(line("  File \"/usr/lib/x.py\", line 9\nValueError\n", ""), "ValueError");
        assert_eq!((line("", "no such file").as_str(), line("", "").as_str()), ("no such file", "no traceback"));
    }

    #[test]
    fn a_failure_gets_the_place_of_its_process_whichever_is_known_first() {
        let late = |pid| Failure { traceback: "late".to_owned(), ended: Some(pid), ..Failure::default() };
        let mut failures = Failures::default();
        failures.push(late(7));
        failures.was_at(7, "at a.py:1");
        failures.was_at(8, "at b.py:2");
        failures.push(late(8));
        // The system gives a number again.
        failures.push(late(7));
        failures.was_at(7, "at c.py:3");
        let shown: Vec<&str> = failures.iter().map(|failure| failure.traceback.as_str()).collect();
        assert_eq!(shown, ["late\nat a.py:1", "late\nat b.py:2", "late\nat c.py:3"]);
        (0..100).for_each(|pid| failures.was_at(1_000 + pid, "nowhere"));
        (0..100).for_each(|_| failures.push(Failure::default()));
        assert!(failures.places.len() <= PLACES_MAX && failures.len() == FAILURES_MAX);
    }
}
