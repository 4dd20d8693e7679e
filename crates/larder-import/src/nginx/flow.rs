//! `return`, `rewrite` and `if`.

use super::condition::{self, template};
use super::serve::Scope;
use super::{Noted, Reader, Ruling};
use crate::bound::Cond;
use crate::note::Fate;
use crate::value::Table;

impl Reader {
    /// `return`, `rewrite` and `if` of a level; says whether it answers each request.
    pub(super) fn flow(&mut self, scope: &Scope<'_>) -> bool {
        let mut answers = false;
        for one in scope.own() {
            match one.name.as_str() {
                "return" => {
                    answers = true;
                    self.answer(&scope.cond, one);
                }
                "rewrite" => self.rewrite(&scope.cond, one),
                "if" => {
                    let acts: Vec<&Noted> = one
                        .inner()
                        .iter()
                        .filter(|inner| ["return", "rewrite", "deny"].contains(&inner.name.as_str()))
                        .collect();
                    if acts.is_empty() || self.draft.is_decided(one.note) {
                        continue;
                    }
                    let denies = acts.iter().any(|act| act.name == "return" && act.word(0).starts_with('4'));
                    let cond = match condition::condition(&one.words) {
                        Some(cond) => Some(cond),
                        None if denies => {
                            self.draft.guards(one.note);
                            self.draft.fate(
                                one.note,
                                Fate::Missing,
                                "its condition can't be said, so ALL IS DENIED here",
                            );
                            Some(Cond::True)
                        }
                        None => None,
                    };
                    let Some(cond) = cond else {
                        self.draft.fate(
                            one.note,
                            Fate::Missing,
                            "its condition can't be said; a hook in Python can (docs/recipes.md)",
                        );
                        acts.iter()
                            .for_each(|act| self.draft.fate(act.note, Fate::Missing, "as the condition around it"));
                        continue;
                    };
                    self.draft.translated(one.note);
                    let cond = Cond::all([scope.cond.clone(), cond]);
                    for act in acts {
                        match act.name.as_str() {
                            "return" => self.answer(&cond, act),
                            _ => self.rewrite(&cond, act),
                        }
                    }
                }
                _ => {}
            }
        }
        answers
    }

    pub(super) fn answer(&mut self, cond: &Cond, one: &Noted) {
        let status = one.word(0).parse::<u64>().unwrap_or(302);
        let to = if one.words.len() == 1 && one.word(0).contains("://") { one.word(0) } else { one.word(1) };
        let does = match status {
            301 | 302 | 303 | 307 | 308 if !to.is_empty() => {
                let to = if to.starts_with('/') { format!("$scheme://$host{to}") } else { to.to_owned() };
                template(&to).map(|to| Table::default().with("redirect", to).with("status", status))
            }
            444 => Some(Table::default().with("deny", true).with("status", 403)),
            400..=599 => Some(Table::default().with("deny", true).with("status", status)),
            _ => None,
        };
        match does {
            Some(does) => {
                self.draft.translated(one.note);
                self.verdicts.push(Ruling { cond: cond.clone(), does, notes: vec![one.note] });
            }
            None => {
                self.draft.fate(
                    one.note,
                    Fate::Missing,
                    "rules redirect and refuse; a hook answers with a text of its own: 404 here",
                );
                let does = Table::default().with("deny", true).with("status", 404);
                self.verdicts.push(Ruling { cond: cond.clone(), does, notes: vec![one.note] });
            }
        }
    }

    pub(super) fn rewrite(&mut self, cond: &Cond, one: &Noted) {
        let (regex, to, how) = (one.word(0), one.word(1), one.word(2));
        let is_redirect = to.contains("://") || ["redirect", "permanent"].contains(&how);
        let (path, query) = to.split_once('?').map_or((to, None), |(path, query)| (path, Some(query)));
        let groups = larder_rules::values::Pattern::parse(regex).map(|pattern| pattern.groups_len()).ok();
        let target = if is_redirect {
            let query = if query.is_some() { "" } else { "$is_args$args" };
            let to = if to.starts_with('/') { format!("$scheme://$host{to}{query}") } else { format!("{to}{query}") };
            template(to.trim_end_matches('?'))
        } else {
            template(path).filter(|path| path.starts_with('/'))
        };
        let known = target.as_deref().and_then(|target| larder_rules::template::Template::parse(target).ok());
        let fits = known.zip(groups).is_some_and(|(target, groups)| target.groups_len() <= groups);
        let (Some(target), true) = (target, fits) else {
            return self.draft.fate(
                one.note,
                Fate::Missing,
                "this rewrite can't be said; a hook in Python can (docs/recipes.md)",
            );
        };
        let cond = Cond::all([cond.clone(), Cond::atom("path_regex", [regex])]);
        self.draft.translated(one.note);
        if is_redirect {
            let status = if how == "permanent" { 301 } else { 302 };
            let does = Table::default().with("redirect", target).with("status", status);
            return self.verdicts.push(Ruling { cond, does, notes: vec![one.note] });
        }
        let mut does = Table::default().with("path", target);
        if let Some(query) = query.filter(|query| !query.is_empty()).and_then(template) {
            does.set("query", query);
        }
        self.draft.fate(one.note, Fate::Different, "the new path is not looked for among the locations again");
        self.effects.push(Ruling { cond, does, notes: vec![one.note] });
    }
}
