//! Parses `[[icap]]`.

use super::Parser;
use crate::config::Icap;
use crate::config::icap::ICAP;
use std::sync::Arc;
use toml::Spanned;
use toml::de::DeValue;

impl Parser {
    pub(super) fn icaps(&mut self, value: &Spanned<DeValue<'_>>) {
        self.said_in_file("icap", value);
        for (span, table) in self.tables("icap", value) {
            let mut icap = Icap::default();
            let missing = self.entry("icap", ICAP, &span, table, &mut icap, &[]);
            icap.place = self.place(&span);
            let is_taken = self.loaded.config.icaps.iter().any(|other| other.name == icap.name);
            if is_taken && !missing {
                self.problem(span.clone(), format!("there is an [[icap]] {} already", icap.name), None);
            }
            if !missing && let Some((message, hint)) = icap.contradiction() {
                self.problem(span, message.to_owned(), Some(hint.to_owned()));
            }
            self.loaded.config.icaps.push(Arc::new(icap));
        }
    }
}
