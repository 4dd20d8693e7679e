//! Reads the tables `[[bandwidth]]`.

use super::Parser;
use crate::config::bandwidth::{BANDWIDTH, BandwidthSettings};
use std::sync::Arc;
use toml::Spanned;
use toml::de::DeValue;

/// Limits of one configuration.
const BANDWIDTHS_MAX: usize = 256;

impl Parser {
    pub(super) fn bandwidths(&mut self, value: &Spanned<DeValue<'_>>) {
        self.said_in_file("bandwidth", value);
        for (span, table) in self.tables("bandwidth", value) {
            let mut bandwidth = BandwidthSettings::default();
            let missing = self.entry("bandwidth", BANDWIDTH, &span, table, &mut bandwidth, &[]);
            bandwidth.place = self.place(&span);
            if missing {
                continue;
            }
            if self.loaded.config.bandwidths.iter().any(|other| other.name == bandwidth.name) {
                self.problem(span.clone(), format!("there is a bandwidth {} already", bandwidth.name), None);
            }
            if self.loaded.config.bandwidths.len() == BANDWIDTHS_MAX {
                self.problem(span, format!("there are more than {BANDWIDTHS_MAX} limits of bandwidth"), None);
            }
            self.loaded.config.bandwidths.push(Arc::new(bandwidth));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Loaded;

    #[test]
    fn limits_are_read_and_wrong_ones_are_named() {
        let read = |text: &str| Loaded::parse("b.toml", text, &[]).map_err(|report| report.to_string());
        let rule = "[[rule]]\ndo = { bandwidth = [\"a\", \"b\"] }\n";
        let text = format!(
            "{rule}[[bandwidth]]\nname = \"a\"\nrate = \"16Mbit/s\"\n\
             [[bandwidth]]\nname = \"b\"\nrate = \"1kB/s\"\nburst = \"1B\"\nby = \"network\"\nhits_are_free = true\n"
        );
        let loaded = read(&text).unwrap();
        let limits = &loaded.config.rule_table.bandwidths[0];
        let told = |at: usize| (limits[at].rate, limits[at].burst, limits[at].by.as_str(), limits[at].hits);
        assert_eq!((told(0), told(1)), ((2_000_000, 2_000_000, "all", true), (1_000, 10, "network", false)));
        for (text, wanted) in [
            ("name = \"a\"", "rate"),
            ("name = \"a\"\nrate = \"1MB\"", "\"1MB\""),
            ("name = \"a\"\nrate = \"0B/s\"", "\"0B/s\""),
            ("name = \"a b\"\nrate = \"1MB/s\"", "\"a b\""),
            ("name = \"a\"\nrate = \"1MB/s\"\nby = \"host\"", "all, network, client or user"),
            (
                "name = \"a\"\nrate = \"1MB/s\"\n[[bandwidth]]\nname = \"a\"\nrate = \"1MB/s\"",
                "there is a bandwidth a already",
            ),
            (
                "name = \"a\"\nrate = \"1MB/s\"\nby = \"user\"\n[[rule]]\ndo = { bandwidth = \"a\" }",
                "a limit by users needs a login",
            ),
        ] {
            let report = read(&format!("[[bandwidth]]\n{text}\n")).unwrap_err();
            assert!(report.contains(wanted) && report.contains("b.toml:"), "{text}:\n{report}");
        }
    }
}
