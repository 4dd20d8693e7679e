//! `vcl_backend_response`, `vcl_deliver` and `vcl_hash`: lifetimes, fields of answers, parts of keys.

use super::condition::{condition, field, template};
use super::parse::{Token, text_of};
use super::requests::is_fixed;
use super::{CALLS_MAX, Noted, Reader, Ruling, seconds};
use crate::bound::Cond;
use crate::note::Fate;
use crate::value::Table;
use larder_rules::values::is_field_name;
use std::collections::BTreeMap;

/// The reason where rules can't say it of answers.
const OF_ANSWER: &str = "its condition is about the answer, or can't be said: Larder stores what RFC 9111 permits; a hook of answers decides more (recipe negative_caching)";

impl Reader {
    /// `cond` is the condition under which the statements are reached; `None` where rules can't say it.
    pub(super) fn answer_body(
        &mut self,
        statements: &[Noted],
        cond: Option<Cond>,
        subs: &BTreeMap<String, Vec<Noted>>,
        depth: usize,
    ) {
        for one in statements {
            let tokens = &one.statement.tokens;
            match (one.word(), tokens.get(1)) {
                (word, _) if one.body.is_some() => {
                    let inner = (word == "if").then(|| condition(&tokens[1..], &self.acls)).flatten();
                    let inner = inner.zip(cond.clone()).map(|(inner, outer)| Cond::all([outer, inner.likely]));
                    match &inner {
                        Some(_) => self.draft.translated(one.note),
                        None => self.draft.fate(one.note, Fate::Missing, OF_ANSWER),
                    }
                    self.answer_body(one.inner(), inner, subs, depth);
                }
                ("set", Some(Token::Name(variable))) => {
                    let value = tokens.get(3..).unwrap_or_default().to_vec();
                    self.set_of_answer(one, &variable.clone(), &value, cond.as_ref());
                }
                ("unset" | "remove", Some(Token::Name(variable))) => {
                    self.unset_of_answer(one, &variable.clone(), cond.as_ref())
                }
                ("call", Some(Token::Name(name))) if depth < CALLS_MAX => {
                    self.draft.translated(one.note);
                    let body = subs.get(name).cloned().unwrap_or_default();
                    self.answer_body(&body, cond.clone(), subs, depth + 1);
                }
                ("return", _) => match text_of(tokens).contains("pass")
                    || text_of(tokens).contains("abandon")
                    || text_of(tokens).contains("retry")
                {
                    true => self.never(one, cond.as_ref()),
                    false => self.draft.translated(one.note),
                },
                _ => self.draft.fate(
                    one.note,
                    Fate::Missing,
                    "code that rules can't say; a hook in Python may do it (docs/recipes.md)",
                ),
            }
        }
    }

    fn never(&mut self, one: &Noted, cond: Option<&Cond>) {
        match cond {
            Some(cond) => {
                self.effects.push(Ruling {
                    cond: cond.clone(),
                    does: Table::default().with("never", true),
                    notes: vec![one.note],
                });
                self.draft.translated(one.note);
            }
            None => self.draft.fate(one.note, Fate::Missing, OF_ANSWER),
        }
    }

    fn set_of_answer(&mut self, one: &Noted, variable: &str, value: &[Token], cond: Option<&Cond>) {
        let time = match value {
            [Token::Name(text)] => seconds(text),
            _ => None,
        };
        let (key, text) = match variable {
            "beresp.ttl" => ("lifetime", "not against private, no-store, no-cache or a cookie"),
            "beresp.grace" => ("grace", ""),
            "beresp.uncacheable" => return self.never(one, cond),
            "beresp.keep" => {
                return self.draft.fate(
                    one.note,
                    Fate::NotNeeded,
                    "what is stale is kept while there is room, and validated",
                );
            }
            "beresp.do_esi" => {
                return self.draft.fate(one.note, Fate::Missing, "there is no ESI: tags go to clients as they are");
            }
            "beresp.do_gzip" | "beresp.do_gunzip" => {
                return self.draft.fate(
                    one.note,
                    Fate::Missing,
                    "`compression` of a [[site]] compresses what is stored (docs/compression.md)",
                );
            }
            "beresp.do_stream" => return self.draft.fate(one.note, Fate::NotNeeded, "answers stream in any case"),
            "beresp.storage_hint" | "beresp.storage" => {
                return self.draft.fate(one.note, Fate::NotNeeded, "memory and disk share what is stored");
            }
            _ => {
                let name = variable.strip_prefix("beresp.http.").or_else(|| variable.strip_prefix("resp.http."));
                return self.answer_field(one, name, value, cond);
            }
        };
        match (time, cond) {
            (Some(0), Some(_)) if key == "lifetime" => self.never(one, cond),
            (Some(time), Some(cond)) => {
                let does = Table::default().with(key, format!("{time}s"));
                self.effects.push(Ruling { cond: cond.clone(), does, notes: vec![one.note] });
                self.draft.fate(one.note, if text.is_empty() { Fate::Translated } else { Fate::Different }, text);
            }
            (_, None) => self.draft.fate(one.note, Fate::Missing, OF_ANSWER),
            (None, _) => self.draft.fate(one.note, Fate::Missing, "it is no time that is written out"),
        }
    }

    fn answer_field(&mut self, one: &Noted, name: Option<&str>, value: &[Token], cond: Option<&Cond>) {
        let name = name.filter(|name| is_field_name(name) && !is_fixed(name));
        let Some(name) = name else {
            return self.draft.fate(
                one.note,
                Fate::Missing,
                "code that rules can't say; a hook in Python may do it (docs/recipes.md)",
            );
        };
        if name.to_ascii_lowercase().starts_with("x-cache") || text_of(value).contains("obj.hits") {
            return self.draft.fate(
                one.note,
                Fate::NotNeeded,
                "Cache-Status says how each answer came about (RFC 9211)",
            );
        }
        match (template(value), cond) {
            (Some(value), Some(cond)) => {
                let does = Table::default().with("answer_set", format!("{name}: {value}"));
                self.effects.push(Ruling { cond: cond.clone(), does, notes: vec![one.note] });
                self.draft.fate(one.note, Fate::Translated, "in the answer that clients get");
            }
            (None, Some(_)) => self.draft.fate(one.note, Fate::Missing, "a value that rules can't say; a hook sets it"),
            (_, None) => self.draft.fate(one.note, Fate::Missing, OF_ANSWER),
        }
    }

    fn unset_of_answer(&mut self, one: &Noted, variable: &str, cond: Option<&Cond>) {
        let name = variable.strip_prefix("beresp.http.").or_else(|| variable.strip_prefix("resp.http."));
        let Some(name) = name.filter(|name| is_field_name(name)) else {
            return self.draft.fate(one.note, Fate::NotNeeded, "it is no field of the answer");
        };
        if name.eq_ignore_ascii_case("set-cookie") && variable.starts_with("beresp.") {
            match cond {
                Some(Cond::True) => {
                    self.draft.set("policy.set_cookie", "strip", &[one.note]);
                    self.draft.translated(one.note);
                }
                _ => self.draft.fate(one.note, Fate::Missing, "policy.set_cookie = \"strip\" is for all answers; without it one that sets a cookie is not stored for others"),
            }
            return;
        }
        match cond {
            _ if is_fixed(name) => self.draft.fate(one.note, Fate::NotNeeded, "Larder sees to this field itself"),
            Some(cond) => {
                let does = Table::default().with("answer_remove", vec![name.to_owned()]);
                self.effects.push(Ruling { cond: cond.clone(), does, notes: vec![one.note] });
                self.draft.translated(one.note);
            }
            None => self.draft.fate(one.note, Fate::Missing, OF_ANSWER),
        }
    }

    pub(super) fn deliver_body(&mut self, statements: &[Noted], cond: Option<Cond>) {
        for one in statements {
            let tokens = &one.statement.tokens;
            match (one.word(), tokens.get(1)) {
                (word, _) if one.body.is_some() => {
                    let whole = text_of(tokens);
                    if whole.contains("obj.hits") || whole.contains("X-Cache") || whole.contains("Debug") {
                        self.draft.fate(
                            one.note,
                            Fate::NotNeeded,
                            "Cache-Status says how each answer came about (RFC 9211)",
                        );
                        self.say_all(
                            one.inner(),
                            Fate::NotNeeded,
                            "Cache-Status says how each answer came about (RFC 9211)",
                        );
                        continue;
                    }
                    let inner = (word == "if").then(|| condition(&tokens[1..], &self.acls)).flatten();
                    let inner = inner.zip(cond.clone()).map(|(inner, outer)| Cond::all([outer, inner.likely]));
                    match &inner {
                        Some(_) => self.draft.translated(one.note),
                        None if word.starts_with("els") => self.draft.fate(
                            one.note,
                            Fate::NotNeeded,
                            "Cache-Status says how each answer came about (RFC 9211)",
                        ),
                        None => self.draft.fate(one.note, Fate::Missing, OF_ANSWER),
                    }
                    self.deliver_body(one.inner(), inner);
                }
                ("set", Some(Token::Name(variable))) => {
                    let value = tokens.get(3..).unwrap_or_default().to_vec();
                    let name = variable.clone();
                    self.answer_field(one, name.strip_prefix("resp.http."), &value, cond.as_ref());
                }
                ("unset" | "remove", Some(Token::Name(variable))) => {
                    self.unset_of_answer(one, &variable.clone(), cond.as_ref())
                }
                ("return", _) => self.draft.translated(one.note),
                _ => self.draft.fate(
                    one.note,
                    Fate::Missing,
                    "code that rules can't say; a hook in Python may do it (docs/recipes.md)",
                ),
            }
        }
    }

    /// Parts of the key: a field that the key has not may not decide about what is stored, so what has it is not stored.
    pub(super) fn hash_body(&mut self, statements: &[Noted]) {
        for one in statements {
            if one.body.is_some() {
                let whole = text_of(&one.statement.tokens);
                let is_usual = whole.contains("host") || whole.contains("else");
                self.draft.fate(one.note, if is_usual { Fate::NotNeeded } else { Fate::Translated }, "");
                self.hash_body(one.inner());
                continue;
            }
            match (one.word(), one.statement.tokens.get(2)) {
                ("hash_data", Some(Token::Name(of))) => match (of.as_str(), field(of)) {
                    ("req.url" | "req.http.host" | "req.http.Host" | "server.ip", _) => {
                        self.draft.fate(one.note, Fate::Translated, "the key has the whole URL in any case")
                    }
                    (_, Some(name)) => {
                        let cond = Cond::atom_of("field", &name, ["*"]);
                        self.effects.push(Ruling {
                            cond,
                            does: Table::default().with("never", true),
                            notes: vec![one.note],
                        });
                        self.draft.fate(one.note, Fate::Different, "keys have no part for a field, so requests that have it are not answered from the store: a hook adds such a part (recipe ab_key), and Vary of the origin does");
                    }
                    _ => self.draft.fate(one.note, Fate::Missing, "a part of the key that can't be said"),
                },
                ("hash_data", _) => self.draft.fate(one.note, Fate::Translated, "a constant part tells nothing apart"),
                ("return", _) => self.draft.translated(one.note),
                _ => self.draft.fate(one.note, Fate::Missing, "a part of the key that can't be said"),
            }
        }
    }
}
