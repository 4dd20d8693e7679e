//! `limit_rate` as a `[[bandwidth]]` of each client, and a rule that says where it counts.

use super::serve::Scope;
use super::{Reader, Ruling, bytes};
use crate::note::Fate;
use crate::value::Table;
use larder_rules::bandwidth::{RATE_MAX, show_rate};

/// The largest `burst`, in bytes.
const BURST_MAX: u64 = 1 << 40;

impl Reader {
    /// The rate of answers of a place. nginx counts each answer for itself, so that a client gets more with more connections.
    pub(super) fn bandwidth(&mut self, scope: &Scope<'_>) {
        let Some((rate, note)) = scope.find("limit_rate").first().map(|one| (one.word(0).to_owned(), one.note)) else {
            return;
        };
        let after = scope.find("limit_rate_after").first().map(|one| (one.word(0).to_owned(), one.note));
        let rate = match bytes(&rate) {
            Some(0) => return self.draft.fate(note, Fate::Translated, "there is no limit"),
            Some(rate) => rate.min(RATE_MAX),
            None => {
                let text = "it is no number of bytes: what a variable says is not known, and there is no limit here";
                return self.draft.fate(note, Fate::Missing, text);
            }
        };
        let mut notes = vec![note];
        let mut table = Table::default().with("rate", show_rate(rate));
        if let Some((after, of_after)) = after {
            match bytes(&after) {
                Some(0) => self.draft.fate(of_after, Fate::Translated, ""),
                Some(burst) => {
                    table.set("burst", format!("{}B", burst.min(BURST_MAX)));
                    notes.push(of_after);
                    let text = "so much at once after a pause of the client, and not of each answer";
                    self.draft.fate(of_after, Fate::Different, text);
                }
                None => self.draft.fate(of_after, Fate::Missing, "it is no number of bytes"),
            }
        }
        table.set("by", "client");
        self.draft.fate(note, Fate::Different, "each client has it for all of its answers, and not each answer");
        let known = self.draft.items("bandwidth").iter().find(|item| item.table.0.iter().skip(1).eq(table.0.iter()));
        let name = match known.and_then(|item| item.table.find("name")) {
            Some(name) => name.clone(),
            None => {
                let name = self.draft.free_name("bandwidth", "limit-rate");
                let mut named = Table::default().with("name", name.as_str());
                named.0.extend(table.0);
                self.draft.push("bandwidth", named, &notes);
                name.into()
            }
        };
        let does = Table::default().with("bandwidth", name);
        self.effects.push(Ruling { cond: scope.cond.clone(), does, notes });
    }
}

#[cfg(test)]
mod tests {
    use crate::note::Fate;
    use crate::{Format, NoFiles, Settings, import};

    #[test]
    fn rates_of_places() {
        for (outer, inner, wanted, fates) in [
            ("", "limit_rate 500k;", &["limit-rate 500KiB/s - client"][..], &[Fate::Different][..]),
            (
                "limit_rate_after 10m;",
                "limit_rate 64000;",
                &["limit-rate 64kB/s 10485760B client"],
                &[Fate::Different, Fate::Different],
            ),
            ("limit_rate 1m;", "limit_rate 0;", &[], &[Fate::Missing, Fate::Translated]),
            ("limit_rate 1m;", "", &["limit-rate 1MiB/s - client"], &[Fate::Different]),
            ("", "limit_rate $slow;", &[], &[Fate::Missing]),
            ("", "limit_rate_after 10m;", &[], &[Fate::NotNeeded]),
        ] {
            let text = format!(
                "http {{ server {{ listen 80; server_name a.test; {outer} location / {{ {inner} proxy_pass http://b.test; }} }} }}"
            );
            let settings = Settings { format: Format::Nginx, name: "s".to_owned(), zone: None };
            let imported = import(&text, &settings, &mut NoFiles);
            let config: toml::Table = imported.toml.parse().unwrap();
            let all = |name: &str| config.get(name).and_then(toml::Value::as_array).cloned().unwrap_or_default();
            let limits: Vec<String> = all("bandwidth")
                .iter()
                .map(|table| {
                    let text = |key: &str| table.get(key).and_then(toml::Value::as_str).unwrap_or("-").to_owned();
                    format!("{} {} {} {}", text("name"), text("rate"), text("burst"), text("by"))
                })
                .collect();
            assert_eq!(limits, wanted, "{}", imported.toml);
            let named = all("rule").iter().filter(|rule| rule["do"].get("bandwidth").is_some()).count();
            assert_eq!(named, wanted.len(), "{}", imported.toml);
            let notes = imported.notes.iter().filter(|note| note.directive.starts_with("limit_rate"));
            assert_eq!(notes.map(|note| note.fate).collect::<Vec<_>>(), fates, "{}", imported.toml);
        }
    }

    #[test]
    fn places_with_the_same_rate_share_its_table() {
        let text = "http { limit_rate 1m; server { listen 80; server_name a.test; location / { proxy_pass http://b.test; } location /x/ { proxy_pass http://c.test; } } }";
        let settings = Settings { format: Format::Nginx, name: "s".to_owned(), zone: None };
        let imported = import(text, &settings, &mut NoFiles);
        assert_eq!(imported.toml.matches("[[bandwidth]]").count(), 1, "{}", imported.toml);
        assert_eq!(imported.toml.matches("bandwidth = \"limit-rate\"").count(), 2, "{}", imported.toml);
    }
}
