//! A file of groups, as web servers read it: `group: user user …`, a line for each; several lines may add to one group.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The groups of users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    by_user: BTreeMap<String, BTreeSet<String>>,
}

/// A line that cannot be read, with its number from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineFault {
    /// The number of the line.
    pub line: usize,
    /// The fault, and its remedy.
    pub what: String,
}

impl fmt::Display for LineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl Groups {
    /// Reads a file; `Err` has all that is wrong with it.
    pub fn parse(text: &str) -> Result<Groups, Vec<LineFault>> {
        let (mut groups, mut faults) = (Groups::default(), Vec::new());
        for (number, line) in lines(text) {
            let Some((group, users)) = line.split_once(':') else {
                faults.push(LineFault { line: number, what: "write it as `group: user user`".to_owned() });
                continue;
            };
            for user in users.split_ascii_whitespace() {
                groups.by_user.entry(user.to_owned()).or_default().insert(group.trim().to_owned());
            }
        }
        if faults.is_empty() { Ok(groups) } else { Err(faults) }
    }

    /// The names of all groups that have a user.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_user.values().flatten().map(String::as_str)
    }

    /// The groups of a user, in the order of the alphabet.
    pub fn of(&self, user: &str) -> impl Iterator<Item = &str> {
        self.by_user.get(user).into_iter().flatten().map(String::as_str)
    }
}

/// The lines that say something, with their numbers.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
    numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_their_users() {
        let groups = Groups::parse("# people\nstaff: ada bob\n\nadmins:ada\nstaff: eve\n").unwrap();
        let of = |user| groups.of(user).collect::<Vec<_>>();
        assert_eq!((of("ada"), of("eve"), of("nobody")), (vec!["admins", "staff"], vec!["staff"], vec![]));
        let faults = Groups::parse("staff: ada\nbroken\n\nagain").unwrap_err();
        assert_eq!(faults.iter().map(|fault| fault.line).collect::<Vec<_>>(), [2, 4]);
    }
}
