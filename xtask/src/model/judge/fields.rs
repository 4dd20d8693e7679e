//! The origin's answers that the fields of an answer come from, and fields that are missing.

use super::verdict::Verdict;
use super::{Finding, mark, wrong};
use crate::model::head::Fields;
use crate::model::origin::Exchange;
use crate::model::rules::CacheControl;

impl Verdict<'_> {
    /// Checks which of the origin's answers the fields come from.
    pub(super) fn of_fields(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (name, value) in &self.fields.0 {
            if name == "x-hop" {
                findings.push(wrong(
                    "RFC 9110 section 7.6.1",
                    "a field of one connection was forwarded",
                    value.clone(),
                ));
            }
            let source = mark(value).and_then(|serial| self.case.exchanges.iter().find(|one| one.serial == serial));
            if let Some(source) = source {
                findings.extend(self.of_field(name, value, source));
            }
        }
        findings.extend(self.lost());
        findings
    }

    fn of_field(&self, name: &str, value: &str, source: &Exchange) -> Vec<Finding> {
        let case = self.case;
        let mut findings = Vec::new();
        let what = format!("{name}: {value}");
        if let Err((section, why)) = case.shareable(source) {
            findings.push(wrong(section, "a field of an answer that is not to be shared", format!("{what}; {why}")));
        }
        if case.is_own(source) {
            return findings;
        }
        let said = CacheControl::of(&source.fields, case.at_site);
        if name == "set-cookie" {
            findings.push(wrong(
                "Larder's policy; RFC 9111 section 7.3",
                "a cookie that was set for another request",
                what.clone(),
            ));
        }
        if said.names_field("private", name) {
            findings.push(wrong("RFC 9111 section 5.2.2.7", "a field that is private was stored", what.clone()));
        }
        let rep = &self.head.rep;
        let is_confirmed = case.exchanges.iter().any(|one| case.is_during(one) && case.confirms(one, rep));
        if said.names_field("no-cache", name) && !is_confirmed {
            findings.push(wrong(
                "RFC 9111 section 5.2.2.4",
                "a field that needs validation was served without",
                what.clone(),
            ));
        }
        let is_newer = source.serial != self.head.serial && self.head.fields.get(name).is_some();
        let is_other = ["content-type", "set-cookie"].contains(&name) || is_left_out(&self.head.fields, name);
        if is_newer && !is_other && self.answer.status != 304 {
            let what = format!("{what}, though answer {} has {:?}", self.head.serial, self.head.fields.get(name));
            findings.push(wrong("RFC 9111 section 3.2", "an old field beside a newer head", what));
        }
        findings
    }

    /// Fields that the origin sent and the client did not get.
    fn lost(&self) -> Option<Finding> {
        let is_named = |name: &str| is_left_out(&self.fields, name) || is_left_out(&self.head.fields, name);
        let is_kept = |name: &&str| match *name {
            "set-cookie" | "x-user" => self.is_fresh_from_origin(),
            // Fields that describe the stored bytes need not follow a validation (RFC 9111 section 3.2).
            "content-type" => self.answer.status != 206 && self.head.status == 200 && self.head.method == "GET",
            _ => true,
        };
        let mut names = ["x-a", "x-b", "x-user", "set-cookie", "content-type", "etag"].into_iter().filter(is_kept);
        let name = names
            .find(|name| self.head.fields.get(name).is_some() && self.fields.get(name).is_none() && !is_named(name))?;
        (self.answer.status != 304)
            .then(|| wrong("RFC 9110 section 5.1", "a field of the origin got lost", name.to_owned()))
    }
}

/// Whether a directive names a field that is not to be kept, by either field that may have directives.
fn is_left_out(fields: &Fields, name: &str) -> bool {
    [true, false].iter().any(|at_site| {
        let said = CacheControl::of(fields, *at_site);
        said.names_field("private", name) || said.names_field("no-cache", name)
    })
}
