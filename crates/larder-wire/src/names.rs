//! A set of field names that is asked often: made once, sorted, so that a list of thousands of names costs a message of
//! many fields no comparison of each with each.

/// Field names without case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameSet {
    /// In lower case, sorted, each once.
    names: Vec<Box<[u8]>>,
}

impl NameSet {
    /// True when no name is in it.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// How many names are in it.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// True when this name is in it, whatever its case.
    pub fn contains(&self, name: &str) -> bool {
        let order = |held: &[u8]| held.iter().copied().cmp(name.bytes().map(|byte| byte.to_ascii_lowercase()));
        self.names.binary_search_by(|held| order(held)).is_ok()
    }
}

impl<'a> FromIterator<&'a [u8]> for NameSet {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(names: I) -> NameSet {
        let mut names: Vec<Box<[u8]>> = names.into_iter().map(|name| name.to_ascii_lowercase().into()).collect();
        names.sort_unstable();
        names.dedup();
        NameSet { names }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_held_once_and_found_in_any_case() {
        let set: NameSet = ["X-B", "a", "x-b", "A", "c"].iter().map(|name| name.as_bytes()).collect();
        assert_eq!(set.len(), 3);
        for (name, held) in [("a", true), ("A", true), ("X-b", true), ("C", true), ("x", false), ("", false)] {
            assert_eq!(set.contains(name), held, "{name}");
        }
        assert!(NameSet::default().is_empty() && !NameSet::default().contains("a"));
    }
}
