//! Whether answers of a place are stored, and for how long.

use super::serve::Scope;
use super::{Reader, Ruling, condition, seconds};
use crate::bound::Cond;
use crate::draft::NoteId;
use crate::note::Fate;
use crate::value::Table;
use larder_rules::PathPattern;

impl Reader {
    /// Whether answers are stored, and for how long.
    pub(super) fn cache(&mut self, scope: &Scope<'_>) {
        let zone = scope.find("proxy_cache").first().map(|one| (one.word(0).to_owned(), one.note));
        let Some((_, zone_note)) = zone.filter(|(zone, _)| zone != "off") else {
            let notes = scope.find("proxy_cache").iter().map(|one| one.note).collect::<Vec<_>>();
            notes.iter().for_each(|id| self.draft.translated(*id));
            self.effects.push(Ruling { cond: scope.cond.clone(), does: Table::default().with("never", true), notes });
            return;
        };
        self.draft.translated(zone_note);
        let key = scope.find("proxy_cache_key").first().map(|one| (one.word(0).to_owned(), one.note));
        if let Some((key, note)) = key
            && !self.key(scope, &key, note)
        {
            return;
        }
        for name in ["proxy_cache_bypass", "proxy_no_cache"] {
            for one in scope.find(name) {
                for word in one.words.clone() {
                    self.bypass(scope, &word, one.note);
                }
            }
        }
        self.lifetimes(scope);
    }

    /// The key; says whether answers may be stored under Larder's.
    pub(super) fn key(&mut self, scope: &Scope<'_>, key: &str, note: NoteId) -> bool {
        let known = [
            "$scheme",
            "$request_method",
            "$host",
            "$http_host",
            "$server_name",
            "$proxy_host",
            "$request_uri",
            "$uri",
            "$is_args",
            "$args",
            "$query_string",
            "$server_port",
            "$document_uri",
            "$slice_range",
            "$cacheidentifier",
        ];
        let mut rest = key.replace(['{', '}'], "");
        let mut sorted = known.to_vec();
        sorted.sort_by_key(|name| std::cmp::Reverse(name.len()));
        sorted.iter().for_each(|name| rest = rest.replace(name, ""));
        if rest.contains('$') {
            let text = "a key with other variables can't be said, so nothing is stored here: a hook adds parts to keys (recipe ab_key)";
            self.draft.fate(note, Fate::Missing, text);
            self.effects.push(Ruling {
                cond: scope.cond.clone(),
                does: Table::default().with("never", true),
                notes: vec![note],
            });
            return false;
        }
        let has_query = key.contains("$request_uri") || key.contains("$args") || key.contains("$query_string");
        match has_query {
            true => self.draft.fate(note, Fate::Translated, "the key has the whole URL in any case"),
            false => self.draft.fate(
                note,
                Fate::Different,
                "the query is a part of the key: drop_query of a [[store_rule]] leaves parameters out",
            ),
        }
        true
    }

    /// Requests that are neither answered from the store nor stored.
    pub(super) fn bypass(&mut self, scope: &Scope<'_>, word: &str, note: NoteId) {
        let cond = match word.strip_prefix("$") {
            Some(name) => condition::condition(&[format!("(${name})")]).or_else(|| self.set_by_if(scope, word)),
            None => None,
        };
        match cond {
            Some(cond) => {
                let cond = Cond::all([scope.cond.clone(), cond]);
                self.effects.push(Ruling { cond, does: Table::default().with("never", true), notes: vec![note] });
                self.draft.translated(note);
            }
            None => {
                let text =
                    "its condition can't be said, so nothing is stored here: a hook can decide it (docs/recipes.md)";
                self.draft.fate(note, Fate::Missing, text);
                self.effects.push(Ruling {
                    cond: scope.cond.clone(),
                    does: Table::default().with("never", true),
                    notes: vec![note],
                });
            }
        }
    }

    /// The condition under which an `if` sets a variable to 1.
    pub(super) fn set_by_if(&mut self, scope: &Scope<'_>, variable: &str) -> Option<Cond> {
        let mut any = Vec::new();
        let mut is_set = false;
        for directive in scope.levels.iter().flat_map(|level| level.iter()) {
            if directive.name == "set" && directive.word(0) == variable {
                is_set = true;
                self.draft.translated(directive.note);
                if directive.word(1) != "0" && !directive.word(1).is_empty() {
                    return None;
                }
            }
            if directive.name == "if"
                && let Some(set) = directive.inner().iter().find(|one| one.name == "set" && one.word(0) == variable)
            {
                is_set = true;
                let cond = match (condition::condition(&directive.words), query_is_there(&directive.words)) {
                    (Some(cond), _) => cond,
                    // A query that is there: no rule can ask for that, and its answers have keys of their own.
                    (None, true) => {
                        self.draft.fate(
                            directive.note,
                            Fate::Different,
                            "URLs with a query are stored, each under its own key",
                        );
                        self.draft.translated(set.note);
                        continue;
                    }
                    (None, false) => return None,
                };
                self.draft.translated(directive.note);
                self.draft.translated(set.note);
                any.push(cond);
            }
        }
        is_set.then(|| Cond::any(any))
    }

    pub(super) fn lifetimes(&mut self, scope: &Scope<'_>) {
        let mut best: Option<(u64, NoteId)> = None;
        for one in scope.find("proxy_cache_valid") {
            let time = one.words.last().and_then(|word| seconds(word));
            let codes: Vec<&str> = one.words.iter().rev().skip(1).map(String::as_str).collect();
            let is_of_200 = codes.is_empty() || codes.contains(&"200") || codes.contains(&"any");
            match (time, is_of_200) {
                (Some(time), true) if best.is_none() => best = Some((time, one.note)),
                (None, _) => self.draft.fate(one.note, Fate::Missing, "it is no time"),
                _ => self.draft.fate(
                    one.note,
                    Fate::Different,
                    "other statuses are fresh as their origin says (recipe negative_caching)",
                ),
            }
        }
        let ignored: Vec<(String, NoteId)> = scope
            .find("proxy_ignore_headers")
            .iter()
            .flat_map(|one| one.words.iter().map(|word| (word.to_ascii_lowercase(), one.note)))
            .collect();
        let ignores_time = ignored.iter().any(|(name, _)| ["cache-control", "expires"].contains(&name.as_str()));
        for (name, note) in &ignored {
            let (fate, text) = match name.as_str() {
                "cache-control" | "expires" => (
                    Fate::Different,
                    "`private` and `no-store` count all the same; even_if_private of a [[rule]] goes against these",
                ),
                "set-cookie" => (
                    Fate::Different,
                    "an answer that sets a cookie is not stored; policy.set_cookie = \"strip\" stores the rest",
                ),
                "vary" => (Fate::Different, "Vary counts: another variant would be wrong"),
                _ => (Fate::NotNeeded, "such a field means nothing here"),
            };
            self.draft.fate(*note, fate, text);
        }
        let Some((time, note)) = best.filter(|(time, _)| *time > 0) else { return };
        let time = format!("{}s", time.min(3_650 * 86_400));
        if ignores_time {
            let does = Table::default().with("lifetime", time);
            self.effects.push(Ruling { cond: scope.cond.clone(), does, notes: vec![note] });
            return self.draft.translated(note);
        }
        let mut rule = Table::default().with("hosts", scope.hosts.to_vec());
        let paths: Option<Vec<String>> = match &scope.prefix {
            Some(prefix) if prefix == "/" => Some(Vec::new()),
            Some(prefix) => Some(vec![format!("{}/**", prefix.trim_end_matches('/'))]),
            None => None,
        };
        match paths.filter(|paths| paths.iter().all(|path| PathPattern::parse(path).is_some())) {
            Some(paths) => {
                if !paths.is_empty() {
                    rule.set("paths", paths);
                }
                rule.set("lifetime", time);
                self.stale(scope, &mut rule);
                self.draft.push("store_rule", rule, &[note]);
                self.draft.fate(note, Fate::Translated, "for 200, where the origin says no time");
            }
            None => self.draft.fate(
                note,
                Fate::Different,
                "a [[store_rule]] has no expressions: answers are fresh as their origin says",
            ),
        }
    }

    pub(super) fn stale(&mut self, scope: &Scope<'_>, rule: &mut Table) {
        for one in scope.find("proxy_cache_use_stale") {
            if one.words.iter().any(|word| {
                ["error", "timeout", "http_500", "http_502", "http_503", "http_504"].contains(&word.as_str())
            }) {
                rule.set("stale_if_error", "1d");
                self.draft.fate(one.note, Fate::Different, "for a day");
            }
            if one.words.iter().any(|word| word == "updating") {
                rule.set("stale_while_revalidate", "1d");
                self.draft.fate(one.note, Fate::Different, "for a day");
            }
        }
    }
}

/// Whether a condition asks for a query that is there.
fn query_is_there(words: &[String]) -> bool {
    let text: String = words.concat().replace(['"', '\''], "");
    text == "($query_string!=)"
        || text == "($args!=)"
        || text == "($args)"
        || text == "($query_string)"
        || text == "($is_args)"
}
