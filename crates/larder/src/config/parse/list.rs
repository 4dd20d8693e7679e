//! Reads the tables `[[list]]`.

use super::Parser;
use crate::config::list::{LIST, List, ListSource};
use std::sync::Arc;
use toml::Spanned;
use toml::de::DeValue;

/// Lists of one configuration: each is a block of memory and a file.
const LISTS_MAX: usize = 256;

impl Parser {
    pub(super) fn lists(&mut self, value: &Spanned<DeValue<'_>>) {
        self.said_in_file("list", value);
        for (span, table) in self.tables("list", value) {
            let mut list = List::default();
            let missing = self.entry("list", LIST, &span, table, &mut list, &[]);
            list.place = self.place(&span);
            if missing {
                continue;
            }
            if self.loaded.config.lists.iter().any(|other| other.name == list.name) {
                self.problem(span.clone(), format!("there is a list {} already", list.name), None);
            }
            if self.loaded.config.lists.len() == LISTS_MAX {
                self.problem(span.clone(), format!("there are more than {LISTS_MAX} lists"), None);
            }
            if let (Some(_), ListSource::Path(path)) = (&list.sha256, &list.source)
                && path.is_dir()
            {
                let hint = "name one file, or leave `sha256` out".to_owned();
                self.problem(span, "`sha256` is for a file or a URL, not for a folder".to_owned(), Some(hint));
            }
            self.loaded.config.lists.push(Arc::new(list));
        }
    }
}
