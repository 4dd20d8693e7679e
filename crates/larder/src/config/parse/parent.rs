//! Reads the tables `[[parent]]`, and finds those that the forward proxy names.

use super::Parser;
use crate::config::forward::ParentsBy;
use crate::config::parent::{PARENT, Parent, SIBLING, Sibling};
use larder_balance::Carp;
use std::sync::Arc;
use toml::Spanned;
use toml::de::DeValue;

/// Parents of one configuration.
const PARENTS_MAX: usize = 64;
/// Siblings of one configuration: each is asked about each miss.
const SIBLINGS_MAX: usize = 32;

impl Parser {
    pub(super) fn parents(&mut self, value: &Spanned<DeValue<'_>>) {
        self.said_in_file("parent", value);
        for (span, table) in self.tables("parent", value) {
            let mut parent = Parent::default();
            let missing = self.entry("parent", PARENT, &span, table, &mut parent, &[]);
            parent.place = self.place(&span);
            if missing {
                continue;
            }
            if parent.user.is_empty() != parent.password.is_none() {
                let hint = Some("write `user` and `password`, or neither".to_owned());
                self.problem(span.clone(), format!("the parent {} has half a login", parent.name), hint);
            }
            if self.loaded.config.parents.iter().any(|other| other.name == parent.name) {
                self.problem(span.clone(), format!("there is a parent {} already", parent.name), None);
            }
            if self.loaded.config.parents.len() == PARENTS_MAX {
                self.problem(span, format!("there are more than {PARENTS_MAX} parents"), None);
            }
            self.loaded.config.parents.push(Arc::new(parent));
        }
    }

    pub(super) fn siblings(&mut self, value: &Spanned<DeValue<'_>>) {
        self.said_in_file("sibling", value);
        for (span, table) in self.tables("sibling", value) {
            let mut sibling = Sibling::default();
            let missing = self.entry("sibling", SIBLING, &span, table, &mut sibling, &[]);
            sibling.place = self.place(&span);
            if missing {
                continue;
            }
            if !sibling.questions.is_any() {
                let hint = Some("write `icp_port = 3130` or `htcp_port = 4827`, as it has them".to_owned());
                self.problem(span.clone(), format!("the sibling {} can't be asked", sibling.name), hint);
            }
            if self.loaded.config.siblings.iter().any(|other| other.name == sibling.name) {
                self.problem(span.clone(), format!("there is a sibling {} already", sibling.name), None);
            }
            if self.loaded.config.siblings.len() == SIBLINGS_MAX {
                self.problem(span, format!("there are more than {SIBLINGS_MAX} siblings"), None);
            }
            self.loaded.config.siblings.push(Arc::new(sibling));
        }
    }

    /// Finds the parents that `forward.parents` names.
    pub(super) fn forward_parents(&mut self) {
        let config = &self.loaded.config;
        let found = |name: &String| config.parents.iter().find(|parent| parent.name == *name).cloned();
        let (known, unknown): (Vec<_>, Vec<_>) = config
            .forward_parents
            .names
            .iter()
            .map(|name| (name.clone(), found(name)))
            .partition(|(_, found)| found.is_some());
        let forward = &mut self.loaded.config.forward_parents;
        forward.parents = known.into_iter().filter_map(|(_, found)| found).collect();
        forward.are_asked = forward.parents.iter().any(|parent| parent.questions.is_any());
        let array = || Carp::new(&forward.parents.iter().map(|parent| (&*parent.name, 1)).collect::<Vec<_>>());
        forward.carp = (forward.by == ParentsBy::Carp).then(array);
        for (name, _) in unknown {
            if self.is_faulty("parent", &name) {
                continue;
            }
            let hint = format!("write a [[parent]] with `name = \"{name}\"`");
            self.conflict("forward.parents", &format!("there is no parent {name}"), Some(&hint));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Loaded;

    #[test]
    fn parents_are_read_and_wrong_ones_are_named() {
        let read = |text: &str| Loaded::parse("p.toml", text, &[]).map_err(|report| report.to_string());
        let one = "[[parent]]\nname = \"a\"\nurl = \"http://proxy.example:8080\"\n";
        let loaded = read(&format!("{one}user = \"u\"\npassword = \"p\"\n[forward]\nparents = [\"a\"]\n")).unwrap();
        let parent = &loaded.config.forward_parents.parents[0];
        assert_eq!((parent.url.host.as_str(), parent.url.port, parent.user.as_str()), ("proxy.example", 8080, "u"));
        let ports = format!("{one}icp_port = 3130\n{}htcp_port = 4827\n", one.replace("parent", "sibling"));
        let loaded = read(&ports).unwrap();
        let (parent, sibling) = (&loaded.config.parents[0], &loaded.config.siblings[0]);
        assert_eq!((parent.questions.icp, parent.questions.htcp), (Some(3130), None));
        assert_eq!((sibling.questions.icp, sibling.questions.htcp), (None, Some(4827)));
        for (text, wanted) in [
            (format!("{one}{one}"), "there is a parent a already"),
            (format!("{one}user = \"u\"\n"), "half a login"),
            (format!("{one}user = \"u:v\"\npassword = \"p\"\n"), "u:v"),
            (one.replace("http:", "https:"), "http://HOST:PORT"),
            (one.replace("8080", "8080/x"), "http://HOST:PORT"),
            (format!("{one}icp_port = 0\n"), "between 1 and 65535"),
            (one.replace("parent", "sibling"), "the sibling a can't be asked"),
            (one.replace("parent", "sibling").replace("8080\"", "8080\"\nhtcp_port = 70000"), "70000 is out of range"),
            ("[[parent]]\nname = \"a\"\n".to_owned(), "url"),
            ("[forward]\nparents = [\"b\"]\n".to_owned(), "there is no parent b"),
            ("[forward]\ndirect = [\"a b\"]\n".to_owned(), "a b"),
        ] {
            let report = read(&text).unwrap_err();
            assert!(report.contains(wanted) && report.contains("p.toml"), "{text}:\n{report}");
        }
    }
}
