//! Rules that can never hold, as far as their conditions tell without a request: for notes to whoever wrote them. All that is said is
//! so; that nothing is said of a rule means nothing.

use crate::rule::{Rule, When};
use larder_wire::Method;

/// Why a rule never holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Never<'r> {
    /// This earlier rule holds whenever it does, and ends the table.
    Behind(&'r Rule),
    /// A condition of `not` holds whenever the rest does.
    Contradicts,
    /// It is for CONNECT alone, which has neither a path nor a query, and asks about one.
    NoPath,
}

/// The rules that never hold, in their order.
pub fn never(rules: &[Rule]) -> Vec<(&Rule, Never<'_>)> {
    let mut found = Vec::new();
    let mut ends: Vec<&Rule> = Vec::new();
    for rule in rules {
        let behind = || ends.iter().find(|earlier| covers(&earlier.when, &rule.when)).copied();
        match alone(&rule.when).or_else(|| behind().map(Never::Behind)) {
            Some(why) => found.push((rule, why)),
            // One that never holds ends nothing, and a later one is not behind it.
            None if rule.does.verdict.is_some() => ends.push(rule),
            None => {}
        }
    }
    found
}

/// Why a condition never holds whatever stands before it.
fn alone(when: &When) -> Option<Never<'static>> {
    if when.not.iter().any(|not| covers(not, when)) {
        return Some(Never::Contradicts);
    }
    let asks_path =
        !(when.path.is_empty() && when.path_regex.is_empty() && when.target_regex.is_empty() && when.query.is_empty());
    let is_of_tunnels = !when.method.is_empty() && when.method.iter().all(|method| *method == Method::Connect);
    (is_of_tunnels && asks_path).then_some(Never::NoPath)
}

/// Whether the first condition holds whenever the second one does: each of its matchers stands in that too, with all of its values.
fn covers(wide: &When, narrow: &When) -> bool {
    let is_size_within = wide.size_min.is_none_or(|min| narrow.size_min.is_some_and(|other| other >= min))
        && wide.size_max.is_none_or(|max| narrow.size_max.is_some_and(|other| other <= max));
    has_all(&wide.method, &narrow.method)
        && has_all(&wide.scheme, &narrow.scheme)
        && has_all(&wide.listener, &narrow.listener)
        && has_all(&wide.port, &narrow.port)
        && has_all(&wide.host, &narrow.host)
        && has_all(&wide.host_regex, &narrow.host_regex)
        && (wide.client.is_empty() || wide.client == narrow.client)
        && (wide.time.is_empty() || (has_all(&wide.time, &narrow.time) && wide.zone == narrow.zone))
        && has_all(&wide.sni, &narrow.sni)
        && has_all(&wide.certificate, &narrow.certificate)
        && has_all(&wide.user_agent, &narrow.user_agent)
        && has_all(&wide.content_type, &narrow.content_type)
        && is_size_within
        && wide.fields.iter().all(|field| narrow.fields.contains(field))
        && has_all(&wide.path, &narrow.path)
        && has_all(&wide.path_regex, &narrow.path_regex)
        && has_all(&wide.target_regex, &narrow.target_regex)
        && has_all(&wide.url_regex, &narrow.url_regex)
        && has_all(&wide.query, &narrow.query)
        && has_all(&wide.list, &narrow.list)
        && has_all(&wide.country, &narrow.country)
        && has_all(&wide.user, &narrow.user)
        && has_all(&wide.group, &narrow.group)
        && has_all(&wide.destination_country, &narrow.destination_country)
        && (wide.destination.is_empty() || wide.destination == narrow.destination)
        && wide.not.iter().all(|not| narrow.not.contains(not))
        && (wide.any.is_empty() || wide.any == narrow.any)
}

/// Whether a matcher with some values holds whenever one with others does; one without values holds always.
fn has_all<T: PartialEq>(wide: &[T], narrow: &[T]) -> bool {
    wide.is_empty() || (!narrow.is_empty() && narrow.iter().all(|value| wide.contains(value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::{Do, Place, Verdict};
    use crate::{HostPattern, PathPattern};

    fn rule(place: &str, when: When, ends: bool) -> Rule {
        let verdict = ends.then_some(Verdict::Allow);
        let does = Do { verdict, never: !ends, ..Do::default() };
        Rule { name: "".into(), place: Place(place.into()), when: when.into(), does }
    }

    fn host(names: &[&str]) -> When {
        let host = names.iter().map(|name| HostPattern::parse(name).unwrap()).collect();
        When { host, ..When::default() }
    }

    fn told(rules: &[Rule]) -> Vec<String> {
        let words = never(rules).into_iter().map(|(rule, why)| match why {
            Never::Behind(earlier) => format!("{} behind {}", rule.place.0, earlier.place.0),
            Never::Contradicts => format!("{} contradicts", rule.place.0),
            Never::NoPath => format!("{} no path", rule.place.0),
        });
        words.collect()
    }

    #[test]
    fn rules_that_never_hold_are_found_and_no_others() {
        let connect = vec![Method::Connect];
        let get = vec![Method::Get];
        let all = When::default;
        let with = |when: When, size_min| When { size_min, ..when };
        for (rules, wanted) in [
            // Effects end no table.
            (vec![rule("1", all(), false), rule("2", all(), true)], &[][..]),
            (
                vec![rule("1", all(), true), rule("2", host(&["a"]), true), rule("3", all(), false)],
                &["2 behind 1", "3 behind 1"],
            ),
            (vec![rule("1", host(&["a", "b"]), true), rule("2", host(&["b"]), false)], &["2 behind 1"]),
            (vec![rule("1", host(&["b"]), true), rule("2", host(&["a", "b"]), false)], &[]),
            (vec![rule("1", host(&["a"]), true), rule("2", all(), true)], &[]),
            (
                vec![rule("1", host(&["a"]), true), rule("2", When { method: get.clone(), ..host(&["a"]) }, true)],
                &["2 behind 1"],
            ),
            (vec![rule("1", When { method: get, ..host(&["a"]) }, true), rule("2", host(&["a"]), true)], &[]),
            (vec![rule("1", with(all(), Some(5)), true), rule("2", with(all(), Some(9)), true)], &["2 behind 1"]),
            (vec![rule("1", with(all(), Some(9)), true), rule("2", with(all(), Some(5)), true)], &[]),
            (
                vec![rule("1", When { not: vec![host(&["a"])], ..host(&["a"]) }, true), rule("2", host(&["a"]), true)],
                &["1 contradicts"],
            ),
            (vec![rule("1", When { not: vec![host(&["a"])], ..host(&["a", "b"]) }, true)], &[]),
            (vec![rule("1", When { not: vec![host(&["a"])], ..all() }, true), rule("2", host(&["a"]), true)], &[]),
            (vec![rule("1", When { any: vec![host(&["a"])], ..all() }, true), rule("2", host(&["a"]), true)], &[]),
            (
                vec![rule("1", When { method: connect, path: vec![PathPattern::parse("/x").unwrap()], ..all() }, true)],
                &["1 no path"],
            ),
        ] {
            assert_eq!(told(&rules), wanted, "{rules:?}");
        }
    }
}
