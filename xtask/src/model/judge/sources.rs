//! Of which answers of the origin an answer may be made.

use super::verdict::Verdict;
use super::{Finding, wrong};
use crate::model::head::{Asked, ranges};
use crate::model::origin::{Exchange, Rep};
use crate::model::rules;
use std::ops::Range;

impl Verdict<'_> {
    /// Checks whose bytes they are, whether they may be here, and how old they are.
    pub(super) fn of_bytes(&self, places: &[(Range<u64>, Rep)]) -> Vec<Finding> {
        let mut findings = Vec::new();
        let rep = match places.first() {
            Some((_, rep)) => rep.clone(),
            None => self.unseen(),
        };
        if places.iter().any(|(_, other)| *other != rep) {
            findings.push(wrong("RFC 9110 section 15.3.7.3", "parts of two versions in one answer", ""));
        }
        if !self.case.confirms(self.head, &rep) {
            let what = format!("the head is of answer {}, the bytes of {rep:?}", self.head.serial);
            findings.push(wrong("RFC 9111 section 4.3.4", "the head of one version with the bytes of another", what));
            return findings;
        }
        findings.extend(self.asked_part(places, &rep));
        findings.extend(self.length(&rep));
        let sources = match self.sources(places, &rep) {
            Ok(sources) => sources,
            Err(finding) => {
                findings.push(finding);
                return findings;
            }
        };
        findings.extend(self.of_age(&sources, &rep));
        findings
    }

    /// The representation of an answer without content: the one that its head confirms, if anybody ever sent that.
    fn unseen(&self) -> Rep {
        let is_sent = |rep: &Rep| {
            let has_content = |exchange: &&Exchange| exchange.method == "GET" && !matches!(exchange.status, 0 | 304);
            let mut sent = self.case.exchanges.iter().filter(has_content);
            sent.any(|exchange| exchange.rep == *rep)
        };
        let confirmed = self.case.exchanges.iter().map(|exchange| &exchange.rep);
        let mut confirmed = confirmed.filter(|rep| self.case.confirms(self.head, rep) && is_sent(rep));
        let own = &self.head.rep;
        // A HEAD that is passed on is of what nobody has seen yet.
        if self.is_fresh_from_origin() || is_sent(own) { own.clone() } else { confirmed.next().unwrap_or(own).clone() }
    }

    /// The length that is said of what is not sent.
    fn length(&self, rep: &Rep) -> Option<Finding> {
        let told = self.fields.get("content-length")?;
        let is_whole = self.case.now.method == "HEAD" && self.answer.status != 206 || self.answer.status == 304;
        let is_right = told.parse() == Ok(rep.length);
        let what = || format!("{told}, and it has {}", rep.length);
        (is_whole && !is_right).then(|| wrong("RFC 9110 section 8.6", "another length than GET would have", what()))
    }

    /// A range from the store is the one that was asked for.
    fn asked_part(&self, places: &[(Range<u64>, Rep)], rep: &Rep) -> Option<Finding> {
        if self.answer.status != 206 || self.is_fresh_from_origin() {
            return None;
        }
        let is_right = match ranges(self.case.now.ask.get("range"), rep.length) {
            Asked::Parts(parts) => parts
                .iter()
                .all(|part| places.iter().any(|(place, _)| place.start <= part.start && part.end <= place.end)),
            _ => false,
        };
        let what =
            || format!("{:?} of {}", places.iter().map(|(place, _)| place.clone()).collect::<Vec<_>>(), rep.length);
        (!is_right).then(|| wrong("RFC 9110 section 15.3.7", "another range than was asked for", what()))
    }

    /// For each stretch of the answer, the answers of the origin that it may be taken from.
    fn sources(&self, places: &[(Range<u64>, Rep)], rep: &Rep) -> Result<Vec<Vec<&Exchange>>, Finding> {
        let case = self.case;
        let is_validated = case.own().any(|exchange| exchange.status == 304 && case.confirms(exchange, rep));
        let is_usable = |exchange: &Exchange| match case.usable(exchange) {
            // A validation selects (RFC 9111 section 4.3.3), and may change what is varied by.
            Err(("RFC 9111 section 4.1", _)) if is_validated => Ok(()),
            Err(("RFC 9111 section 4.1", what)) => {
                let vary = self.fields.joined("vary");
                let alike = |one: &Exchange| rules::varies_alike(vary.as_deref(), one, &case.now.ask).is_ok();
                let is_renewed = self.head.serial != exchange.serial && (alike(exchange) || alike(self.head));
                if is_renewed { Ok(()) } else { Err(("RFC 9111 section 4.1", what)) }
            }
            other => other,
        };
        let of_rep: Vec<&Exchange> = case
            .exchanges
            .iter()
            .filter(|exchange| exchange.rep == *rep && !matches!(exchange.status, 0 | 304))
            .collect();
        let usable: Vec<&Exchange> = of_rep.iter().copied().filter(|exchange| is_usable(exchange).is_ok()).collect();
        let refused = || {
            let reasons = of_rep.iter().rev().filter_map(|exchange| is_usable(exchange).err());
            let (section, what) =
                reasons.into_iter().next().unwrap_or(("RFC 9111 section 3", "nobody sent it".to_owned()));
            wrong(section, "bytes that may not be used for this request", what)
        };
        if places.is_empty() || rep.length == 0 {
            let is_forwarded = self.is_fresh_from_origin();
            return if usable.is_empty() && !is_forwarded { Err(refused()) } else { Ok(vec![usable]) };
        }
        let mut cuts: Vec<u64> = places.iter().flat_map(|(place, _)| [place.start, place.end]).collect();
        cuts.extend(usable.iter().flat_map(|exchange| [exchange.range.start, exchange.range.end]));
        cuts.sort_unstable();
        cuts.dedup();
        let mut sources = Vec::new();
        for pair in cuts.windows(2) {
            let stretch = pair[0]..pair[1];
            if !places.iter().any(|(place, _)| place.start <= stretch.start && stretch.end <= place.end) {
                continue;
            }
            let holds =
                |exchange: &&&Exchange| exchange.range.start <= stretch.start && stretch.end <= exchange.range.end;
            let holding: Vec<&Exchange> = usable.iter().filter(holds).copied().collect();
            if holding.is_empty() {
                return Err(refused());
            }
            sources.push(holding);
        }
        let alone = |exchange: &&Exchange| {
            sources.iter().all(|holding| holding.iter().any(|one| one.serial == exchange.serial))
        };
        let is_combined = !usable.iter().any(alone);
        let is_weak = |holding: &Vec<&Exchange>| !holding.iter().any(|exchange| rules::has_strong_validator(exchange));
        if is_combined && sources.iter().any(is_weak) {
            let what = "parts were put together without a strong validator";
            return Err(wrong("RFC 9111 section 3.4", "parts put together that may not be", what));
        }
        Ok(sources)
    }
}
