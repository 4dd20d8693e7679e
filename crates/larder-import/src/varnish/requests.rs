//! `vcl_recv`: statements one after the other, each under the condition of those that it stands in and of those that returned before.

use super::condition::{Known, condition, field, template};
use super::parse::{Token, text_of};
use super::{CALLS_MAX, Noted, Reader, Ruling};
use crate::bound::Cond;
use crate::note::Fate;
use crate::value::Table;
use larder_rules::template::Template;
use larder_rules::values::{Pattern, may_change};
use std::collections::BTreeMap;

/// Whether rules leave a field alone.
pub fn is_fixed(name: &str) -> bool {
    !may_change(name)
}

/// A condition that could not be read: nothing is known of it.
const UNREAD: &str =
    "its condition is about more than rules see, or can't be said; a hook in Python sees more (docs/recipes.md)";

impl Reader {
    /// Reads statements that are reached under a condition; gives the condition under which their end is reached.
    pub(super) fn request_body(
        &mut self,
        statements: &[Noted],
        reach: Known,
        subs: &BTreeMap<String, Vec<Noted>>,
        depth: usize,
    ) -> Known {
        let mut reach = reach;
        // The conditions of the `if` that an `else` belongs to, all of which did not hold.
        let mut otherwise = Known::exact(Cond::True);
        for one in statements {
            let word = one.word();
            let is_branch = one.body.is_some() && (word == "if" || word.starts_with("els"));
            if !is_branch {
                reach = self.request_statement(one, reach, subs, depth);
                continue;
            }
            let tokens: Vec<Token> = one.statement.tokens.iter().skip_while(|token| matches!(token, Token::Name(name) if name == "else" || name == "if" || name == "elsif" || name == "elseif" || name == "elif")).cloned().collect();
            let cond = if tokens.is_empty() { Some(Known::exact(Cond::True)) } else { condition(&tokens, &self.acls) };
            if word == "if" {
                otherwise = Known::exact(Cond::True);
            }
            let known = cond.is_some();
            let cond = cond.unwrap_or_else(Known::unknown);
            match known {
                true if cond.is_exact() => self.draft.translated(one.note),
                true => self.draft.fate(one.note, Fate::Different, "rules see the path without its query"),
                false => self.say_unread(one),
            }
            let here = Known::all([reach.clone(), otherwise.clone(), cond.clone()]);
            let end = self.request_body(one.inner(), here.clone(), subs, depth);
            // Those that did not return inside, and those that were not inside, go on.
            let outside = Known::all([reach.clone(), Known::all([otherwise.clone(), cond.clone()]).negated()]);
            reach = if end == here { reach } else { Known::any([outside, end]) };
            otherwise = Known::all([otherwise, cond.negated()]);
        }
        reach
    }

    fn say_unread(&mut self, one: &Noted) {
        let is_cosmetic = text_of(&one.statement.tokens).to_ascii_lowercase().contains("accept-encoding");
        let text = if is_cosmetic { "Vary: Accept-Encoding is known" } else { UNREAD };
        self.draft.fate(one.note, if is_cosmetic { Fate::NotNeeded } else { Fate::Missing }, text);
    }

    /// Reads one statement; gives the condition under which the next one is reached.
    fn request_statement(
        &mut self,
        one: &Noted,
        reach: Known,
        subs: &BTreeMap<String, Vec<Noted>>,
        depth: usize,
    ) -> Known {
        let tokens = one.statement.tokens.clone();
        match (one.word(), tokens.get(1)) {
            ("return", _) => {
                self.returned(one, &reach);
                Known::exact(Cond::False)
            }
            // VCL 3: error 404 "text".
            ("error", Some(Token::Name(status))) => {
                let status = status.clone();
                self.synth(one, &reach, &status, tokens.get(2..).unwrap_or_default());
                Known::exact(Cond::False)
            }
            ("call", Some(Token::Name(name))) => {
                self.draft.translated(one.note);
                let body = subs.get(name).cloned().unwrap_or_default();
                match depth < CALLS_MAX {
                    true => self.request_body(&body, reach, subs, depth + 1),
                    false => reach,
                }
            }
            ("unset" | "remove", Some(Token::Name(variable))) => {
                self.unset(one, variable, &reach);
                reach
            }
            ("set", Some(Token::Name(variable))) => {
                self.set_variable(one, variable, tokens.get(3..).unwrap_or_default(), &reach);
                reach
            }
            (word, _) => {
                let (fate, text) = match word {
                    "std.log" | "std.syslog" => (Fate::NotNeeded, "rule.do.mark marks lines of the log"),
                    "std.collect" | "std.querysort" => (Fate::NotNeeded, "fields of one name are read together"),
                    "ban" | "std.ban" | "purge" | "xkey.purge" | "xkey.softpurge" => (
                        Fate::Missing,
                        "`larder purge` takes URLs, prefixes and tags, and PURGE with Surrogate-Key purges by tag",
                    ),
                    _ => (Fate::Missing, "code that rules can't say; a hook in Python may do it (docs/recipes.md)"),
                };
                self.draft.fate(one.note, fate, text);
                reach
            }
        }
    }

    fn returned(&mut self, one: &Noted, reach: &Known) {
        let tokens = &one.statement.tokens;
        let Some(Token::Name(what)) = tokens.get(2) else {
            return self.draft.fate(one.note, Fate::Missing, UNREAD);
        };
        match what.as_str() {
            "pass" => {
                self.effects.push(Ruling {
                    cond: reach.likely.clone(),
                    does: Table::default().with("never", true),
                    notes: vec![one.note],
                });
                let fate = if reach.is_exact() { Fate::Translated } else { Fate::Different };
                self.draft.fate(one.note, fate, if reach.is_exact() { "" } else { "where its condition can be said" });
            }
            "hash" | "lookup" | "deliver" => {
                self.draft.fate(one.note, Fate::Translated, "answers are looked up in any case")
            }
            "pipe" => {
                self.draft.fate(one.note, Fate::NotNeeded, "tunnels and upgrades pass, and so do unusual methods")
            }
            "purge" => {
                self.draft.guards(one.note);
                self.purgers.push(reach.likely.clone());
                self.draft.fate(one.note, Fate::Translated, "access.purge");
            }
            "synth" => {
                let status = match tokens.get(4) {
                    Some(Token::Name(status)) => status.clone(),
                    _ => String::new(),
                };
                let text: Vec<Token> = tokens.get(6..tokens.len().saturating_sub(2)).unwrap_or_default().to_vec();
                self.synth(one, reach, &status, &text);
            }
            "fail" => self.refuse(one, reach, 503),
            "restart" | "vcl" => self.draft.fate(one.note, Fate::Missing, "a request is not begun anew"),
            _ => self.draft.fate(one.note, Fate::Missing, UNREAD),
        }
    }

    fn synth(&mut self, one: &Noted, reach: &Known, status: &str, text: &[Token]) {
        let number: u64 = status.parse().unwrap_or(0);
        let to = template(text).filter(|to| to.contains("://") || to.starts_with('/'));
        match (number, to) {
            (301 | 302 | 303 | 307 | 308 | 700..=999, Some(to)) => {
                let to = if to.starts_with('/') { format!("{{scheme}}://{{host}}{to}") } else { to };
                let status = if (300..400).contains(&number) { number } else { 302 };
                let does = Table::default().with("redirect", to).with("status", status);
                self.verdicts.push(Ruling { cond: reach.likely.clone(), does, notes: vec![one.note] });
                let fate = if number < 400 { Fate::Translated } else { Fate::Different };
                self.draft.fate(one.note, fate, if number < 400 { "" } else { "as a redirection with status 302" });
            }
            (400..=599, _) => self.refuse(one, reach, number),
            _ => self.draft.fate(one.note, Fate::Missing, "rules redirect and refuse; a hook answers with a page of its own (docs/recipes.md): the origin is asked"),
        }
    }

    /// A refusal: where its condition is in doubt, more is refused.
    fn refuse(&mut self, one: &Noted, reach: &Known, status: u64) {
        self.draft.guards(one.note);
        let cond = if reach.bound.may.when().is_some() || reach.bound.may == Cond::False {
            reach.bound.may.clone()
        } else {
            Cond::True
        };
        match reach.is_exact() {
            true => self.draft.translated(one.note),
            false if cond == Cond::True => {
                self.draft.fate(one.note, Fate::Missing, "its condition can't be said, so ALL IS DENIED")
            }
            false => self.draft.fate(
                one.note,
                Fate::Different,
                "its condition can't be said exactly: more is denied than before",
            ),
        }
        let does = Table::default().with("deny", true).with("status", status);
        let does = if reach.is_exact() { does } else { does.with("mark", "import") };
        self.verdicts.push(Ruling { cond, does, notes: vec![one.note] });
    }

    fn unset(&mut self, one: &Noted, variable: &str, reach: &Known) {
        let Some(name) = field(variable) else {
            return self.draft.fate(one.note, Fate::NotNeeded, "it is no field of the request");
        };
        if is_fixed(&name) {
            return self.draft.fate(one.note, Fate::NotNeeded, "Larder sees to this field itself");
        }
        if name.eq_ignore_ascii_case("cookie") {
            self.cookieless.push(reach.likely.clone());
        }
        self.effects.push(Ruling {
            cond: reach.likely.clone(),
            does: Table::default().with("remove", vec![name]),
            notes: vec![one.note],
        });
        self.draft.fate(one.note, if reach.is_exact() { Fate::Translated } else { Fate::Different }, "");
    }

    fn set_variable(&mut self, one: &Noted, variable: &str, value: &[Token], reach: &Known) {
        match variable {
            "req.backend_hint" | "req.backend" => return self.hint(one, value, reach),
            "req.url" => return self.set_url(one, value, reach),
            "req.grace" | "req.ttl" | "req.hash_always_miss" | "req.hash_ignore_busy" | "req.esi" => {
                return self.draft.fate(one.note, Fate::NotNeeded, "Larder decides it by what is stored");
            }
            _ => {}
        }
        let Some(name) = field(variable) else {
            return self.draft.fate(
                one.note,
                Fate::Missing,
                "code that rules can't say; a hook in Python may do it (docs/recipes.md)",
            );
        };
        let lower = name.to_ascii_lowercase();
        let (fate, text) = match lower.as_str() {
            "host" => {
                (Fate::NotNeeded, "hosts are compared without port and in any case; rule.do.host sets another one")
            }
            "x-forwarded-for" | "x-real-ip" | "x-client-ip" => (
                Fate::Missing,
                "a field that differs from client to client would keep their answers apart: origins are not told",
            ),
            "cookie" => (
                Fate::Missing,
                "cookies are kept or taken off as a whole; a hook takes single ones off (docs/recipes.md): answers to requests with a cookie are not stored",
            ),
            "accept-encoding" => (Fate::NotNeeded, "Vary: Accept-Encoding is known"),
            "surrogate-capability" => (Fate::Missing, "there is no ESI"),
            _ if is_fixed(&name) => (Fate::NotNeeded, "Larder sees to this field itself"),
            _ => match template(value).filter(|value| !value.contains("{client}") && !value.contains("{path}")) {
                Some(value) => {
                    let does = Table::default().with("set", format!("{name}: {value}"));
                    self.effects.push(Ruling { cond: reach.likely.clone(), does, notes: vec![one.note] });
                    (if reach.is_exact() { Fate::Translated } else { Fate::Different }, "")
                }
                None => (Fate::Missing, "a value that rules can't say; a hook sets it (docs/recipes.md)"),
            },
        };
        self.draft.fate(one.note, fate, text);
    }

    fn hint(&mut self, one: &Noted, value: &[Token], reach: &Known) {
        let name = match value.first() {
            Some(Token::Name(name)) => name.split(".backend").next().unwrap_or_default().to_owned(),
            _ => String::new(),
        };
        match &reach.likely {
            Cond::True => {
                self.default_backend = Some(name);
                self.draft.translated(one.note);
            }
            Cond::Atom(atom) if atom.key == "host" && reach.is_exact() => {
                self.sites.push((atom.values.clone(), name, one.note));
                self.draft.translated(one.note);
            }
            cond => match self.origin_of(&name) {
                Some(origin) => {
                    self.effects.push(Ruling {
                        cond: cond.clone(),
                        does: Table::default().with("route", origin),
                        notes: vec![one.note],
                    });
                    self.draft.fate(one.note, if reach.is_exact() { Fate::Translated } else { Fate::Different }, "");
                }
                None => self.draft.fate(one.note, Fate::Missing, "there is no such backend"),
            },
        }
    }

    /// `set req.url = regsub(req.url, "^/a", "/b")`.
    fn set_url(&mut self, one: &Noted, value: &[Token], reach: &Known) {
        let whole = text_of(value);
        let hint = "another URL that rules can't say; a hook may do it (recipe strip_parameters)";
        if whole.contains("querysort") {
            return self.draft.fate(
                one.note,
                Fate::Different,
                "parameters are not sorted: each order has its own key (recipe strip_parameters)",
            );
        }
        let parts: Vec<&Token> = value.iter().filter(|token| !matches!(token, Token::Sign(_))).collect();
        let [Token::Name(call), Token::Name(of), Token::Text(regex), Token::Text(to)] = parts.as_slice() else {
            return self.draft.fate(one.note, Fate::Different, hint);
        };
        let is_of_path = call == "regsub"
            && of == "req.url"
            && regex.starts_with("^/")
            && !regex.contains(['?', '|'])
            && !to.contains(['?', '\\']);
        let (regex, to) = match regex.strip_suffix('$') {
            Some(_) => (regex.clone(), to.clone()),
            None => (format!("{regex}(.*)$"), format!("{to}{{1}}")),
        };
        let pattern = Pattern::parse(&regex).ok().filter(|pattern| pattern.groups_len() <= 1);
        if !is_of_path || !to.starts_with('/') || pattern.is_none() || Template::parse(&to).is_err() {
            return self.draft.fate(one.note, Fate::Different, hint);
        }
        let cond = Cond::all([reach.likely.clone(), Cond::atom("path_regex", [regex])]);
        self.effects.push(Ruling { cond, does: Table::default().with("path", to), notes: vec![one.note] });
        self.draft.translated(one.note);
    }

    /// The end of `vcl_recv` that every VCL has: requests with a cookie or a credential are not answered from the store.
    pub(super) fn built_in_recv(&mut self, reach: &Known) {
        let mut without = Cond::any(std::mem::take(&mut self.cookieless)).negated();
        if without.when().is_none() {
            without = if without == Cond::False { Cond::False } else { Cond::True };
        }
        let has_cookie = Cond::all([reach.bound.may.clone(), without, Cond::atom_of("field", "Cookie", ["*"])]);
        let cond = match (&has_cookie, has_cookie.when()) {
            (Cond::False, _) => return,
            (_, Some(_)) => has_cookie,
            (_, None) => Cond::atom_of("field", "Cookie", ["*"]),
        };
        let item = Ruling { cond, does: Table::default().with("never", true), notes: Vec::new() };
        self.effects.push(item);
    }
}
