//! The names of all settings, for hints and for the manual.

use super::rule::{RULE, RULE_DO, RULE_WHEN};
use super::setting::Setting;
use super::table::{
    BANDWIDTH, HELPER, ICAP, LIST, LISTEN, LISTEN_TLS, LOGIN, MIRROR, ORIGIN, ORIGIN_CHECK, ORIGIN_EJECT, ORIGIN_HEDGE,
    ORIGIN_MEMBER, ORIGIN_RETRY, PARENT, PYTHON, SETTINGS, SIBLING, SITE, SITE_ROUTE, STORE_RULE,
};

/// The arrays of tables.
pub(super) const TABLES: [&str; 14] = [
    "listen",
    "site",
    "store_rule",
    "mirror",
    "bandwidth",
    "parent",
    "sibling",
    "list",
    "python",
    "origin",
    "icap",
    "rule",
    "helper",
    "login",
];

/// The names of all settings, those of the whole server first.
pub(super) fn all() -> impl Iterator<Item = &'static str> + Clone {
    fn of<T>(settings: &'static [Setting<T>]) -> impl Iterator<Item = &'static str> + Clone {
        settings.iter().map(|setting| setting.name)
    }
    let places = of(SETTINGS).chain(of(LISTEN)).chain(of(LISTEN_TLS)).chain(of(SITE)).chain(of(SITE_ROUTE));
    let stored = of(STORE_RULE).chain(of(MIRROR));
    let others = of(PYTHON).chain(of(LIST)).chain(of(BANDWIDTH)).chain(of(PARENT)).chain(of(SIBLING));
    let parts = of(ORIGIN_CHECK).chain(of(ORIGIN_EJECT)).chain(of(ORIGIN_RETRY)).chain(of(ORIGIN_HEDGE));
    let origins = of(ORIGIN).chain(parts).chain(of(ORIGIN_MEMBER));
    let rules = of(RULE).chain(of(RULE_WHEN)).chain(of(RULE_DO));
    let people = of(HELPER).chain(of(LOGIN));
    places.chain(stored).chain(others).chain(origins).chain(of(ICAP)).chain(rules).chain(people)
}

/// A table as it stands in a file.
pub(super) fn in_brackets(table: &str) -> String {
    if TABLES.contains(&table) { format!("[[{table}]]") } else { format!("[{table}]") }
}

/// Words in a row: `a, b or c`.
pub(super) fn in_a_row(words: &[String], last: &str) -> String {
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [some @ .., end] => format!("{} {last} {end}", some.join(", ")),
    }
}
