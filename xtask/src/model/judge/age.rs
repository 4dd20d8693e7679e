//! How old an answer is, what it says of its age, and whether it may be given out so.

use super::verdict::Verdict;
use super::{Finding, wrong};
use crate::model::date::{self, Read};
use crate::model::origin::{Exchange, Rep};
use crate::model::rules::{self, CacheControl, Named, Span};

impl Verdict<'_> {
    /// How old it may be said to be, and whether it may be given out at that age.
    pub(super) fn of_age(&self, sources: &[Vec<&Exchange>], rep: &Rep) -> Vec<Finding> {
        let case = self.case;
        let (from, until) = (case.now.began, case.now.ended);
        let age = |exchange: &Exchange| rules::age(exchange, case.came_by(exchange), (from, until));
        let confirming: Vec<&Exchange> = case
            .exchanges
            .iter()
            .filter(|exchange| case.confirms(exchange, rep) && case.shareable(exchange).is_ok())
            .collect();
        // Each stretch is as young as the youngest that holds it, or that confirmed it later; the answer is as old as
        // its oldest stretch.
        // With others about, parts may come that are older than the head, which was sent before.
        let stretches = if case.alone { sources } else { &[] };
        let mut low = if case.alone { 0 } else { age(self.head).low };
        for holding in stretches.iter().filter(|holding| !holding.is_empty()) {
            let first = holding.iter().map(|exchange| exchange.at).fold(f64::MAX, f64::min);
            let later = confirming.iter().filter(|exchange| exchange.at >= first);
            let young = holding.iter().chain(later).map(|exchange| age(exchange).low).min();
            low = low.max(young.unwrap_or(0));
        }
        let mut findings = Vec::new();
        let told = self.fields.get("age").map(|text| text.trim().parse::<i64>().ok());
        let high = sources.iter().flatten().chain(&confirming).map(|exchange| age(exchange).high).max();
        let head = age(self.head);
        let is_confirmed = case.exchanges.iter().filter(|exchange| case.is_during(exchange)).any(|exchange| {
            case.confirms(exchange, rep) && (case.is_own(exchange) || case.shareable(exchange).is_ok())
        });
        let is_stored = !is_confirmed && !self.is_fresh_from_origin();
        findings.extend(self.told_age(told, low, high.unwrap_or(head.high).max(head.high), is_stored));
        if is_stored {
            findings.extend(self.unvalidated(low.max(head.low), rep));
        }
        findings
    }

    fn told_age(&self, told: Option<Option<i64>>, low: i64, high: i64, is_stored: bool) -> Option<Finding> {
        // The next recipient counts from its Date too (RFC 9111 section 4.2.3).
        let at = self.case.now.ended as i64;
        let apparent = match self.fields.get("date").map(|text| date::read(text, at)) {
            Some(Read::Valid(when)) if !is_stored => at - when,
            _ => 0,
        };
        let low = if apparent >= low - 1 { 0 } else { low };
        match told {
            None if is_stored && self.answer.status != 304 => {
                Some(wrong("RFC 9111 section 5.1", "an answer from the store without Age", ""))
            }
            None if low > 1 => {
                Some(wrong("RFC 9111 section 5.1", "Age got lost", format!("it is at least {low} s old")))
            }
            Some(Some(told)) if told < low - 1 => {
                let what = format!("Age: {told}, it is at least {low} s old");
                Some(wrong("RFC 9111 section 4.2.3", "said to be younger than it is", what))
            }
            Some(Some(told)) if told > high + 1 => {
                let what = format!("Age: {told}, it is at most {high} s old");
                Some(wrong("RFC 9111 section 4.2.3", "said to be older than it is", what))
            }
            _ => None,
        }
    }

    /// An answer that was not validated for this request: it must be fresh, or be permitted to be stale.
    fn unvalidated(&self, age: i64, rep: &Rep) -> Vec<Finding> {
        let case = self.case;
        let mut findings = Vec::new();
        let said = CacheControl::of(&self.fields, case.at_site);
        if said.names("no-cache") == Some(Named::All) {
            findings.push(wrong("RFC 9111 section 5.2.2.4", "no-cache was not validated", ""));
        }
        if let Some(changed) = case.is_void(self.head, rep) {
            let what = format!("{} of step {} made it void", changed.method, changed.step);
            findings.push(wrong("RFC 9111 section 4.4", "served though a change made it void", what));
        }
        let at = self.head.at as i64;
        let lifetime = rules::lifetime(&self.fields, self.head.rep.status, case.at_site, at);
        let trouble = case.has_trouble();
        if case.asks("no-cache") && !trouble {
            findings.push(wrong("RFC 9111 section 5.2.1.4", "no-cache of a request was not obeyed", ""));
        }
        let overdue = age - lifetime.high;
        let (max_age, min_fresh) = (case.asked("max-age"), case.asked("min-fresh"));
        let takes_stale = |overdue: i64| case.asked("max-stale").is_some_and(|most| most < 0 || overdue <= most);
        if let Some(most) = max_age.filter(|most| *most >= 0 && age > *most) {
            let is_immutable = said.has("immutable") && overdue < 0;
            if !takes_stale(age - most) && !is_immutable && !trouble {
                let what = format!("{age} s old, max-age={most}");
                findings.push(wrong("RFC 9111 section 5.2.1.1", "older than the request takes", what));
            }
        }
        if let Some(least) = min_fresh.filter(|least| *least >= 0 && lifetime.high - age < *least && !trouble) {
            let what = format!("{} s are left, min-fresh={least}", lifetime.high - age);
            findings.push(wrong("RFC 9111 section 5.2.1.3", "not fresh for as long as the request wants", what));
        }
        if overdue >= 0 {
            findings.extend(self.stale(&said, Span { low: overdue, high: age }, trouble, takes_stale(overdue)));
        }
        findings
    }

    fn stale(&self, said: &CacheControl, overdue: Span, trouble: bool, takes_stale: bool) -> Option<Finding> {
        let what = format!("{} s old, {} s past its lifetime", overdue.high, overdue.low);
        if let Some(why) = said.forbids_stale() {
            let what = format!("{what}, and {why} forbids it");
            return Some(wrong("RFC 9111 section 4.2.4", "stale though that is forbidden", what));
        }
        let is_open = |name: &str| overdue.low < said.window(name).max(self.case.asked(name).unwrap_or(0));
        let is_permitted = takes_stale || trouble || is_open("stale-while-revalidate");
        (!is_permitted).then(|| wrong("RFC 9111 section 4.2.4", "stale without permission", what))
    }
}
