//! Conditions of rules, and what is known of them when not all of a condition can be said.
//!
//! A condition of the source has two translations: one that holds in no more cases (`must`) and one that holds in no fewer (`may`). Where
//! both are the same the translation is exact. A rule that allows takes `must`, a rule that denies takes `may`: in doubt it is denied.

use crate::value::{Table, Value};

/// A condition that `when` of a rule can say.
#[derive(Clone, Debug, PartialEq)]
pub enum Cond {
    /// It holds always.
    True,
    /// It holds never.
    False,
    /// A matcher.
    Atom(Atom),
    /// It holds where the other one does not.
    Not(Box<Cond>),
    /// All of these hold.
    And(Vec<Cond>),
    /// One of these holds.
    Or(Vec<Cond>),
}

/// A matcher: a key of `when` with its values, of which any suffices.
#[derive(Clone, Debug, PartialEq)]
pub struct Atom {
    /// The key, as `host`; `field` has its name in `field`.
    pub key: &'static str,
    /// The name of a field, or the time zone of `time`.
    pub of: String,
    /// The values.
    pub values: Vec<String>,
}

impl Cond {
    /// A matcher with these values; none hold where there are none.
    pub fn atom(key: &'static str, values: impl IntoIterator<Item = impl Into<String>>) -> Cond {
        Cond::atom_of(key, "", values)
    }

    /// A matcher of a field, or of times in a zone.
    pub fn atom_of(key: &'static str, of: &str, values: impl IntoIterator<Item = impl Into<String>>) -> Cond {
        let mut all: Vec<String> = Vec::new();
        for value in values {
            let value = value.into();
            if !all.contains(&value) {
                all.push(value);
            }
        }
        if all.is_empty() { Cond::False } else { Cond::Atom(Atom { key, of: of.to_owned(), values: all }) }
    }

    /// Holds where this one does not.
    #[must_use]
    pub fn negated(self) -> Cond {
        match self {
            Cond::True => Cond::False,
            Cond::False => Cond::True,
            Cond::Not(inner) => *inner,
            other => Cond::Not(Box::new(other)),
        }
    }

    /// Holds where all of these do.
    pub fn all(conds: impl IntoIterator<Item = Cond>) -> Cond {
        let mut all: Vec<Cond> = Vec::new();
        for cond in conds {
            match cond {
                Cond::True => {}
                Cond::False => return Cond::False,
                Cond::And(inner) => inner.into_iter().for_each(|cond| push_new(&mut all, cond)),
                other => push_new(&mut all, other),
            }
        }
        match all.len() {
            0 => Cond::True,
            1 => all.remove(0),
            _ => Cond::And(all),
        }
    }

    /// Holds where one of these does. Matchers of one key become one.
    pub fn any(conds: impl IntoIterator<Item = Cond>) -> Cond {
        let mut any: Vec<Cond> = Vec::new();
        for cond in conds {
            match cond {
                Cond::False => {}
                Cond::True => return Cond::True,
                Cond::Or(inner) => inner.into_iter().for_each(|cond| join(&mut any, cond)),
                other => join(&mut any, other),
            }
        }
        match any.len() {
            0 => Cond::False,
            1 => any.remove(0),
            _ => Cond::Or(any),
        }
    }

    /// Whether a matcher with this key stands in it.
    pub fn has(&self, key: &str) -> bool {
        match self {
            Cond::True | Cond::False => false,
            Cond::Atom(atom) => atom.key == key,
            Cond::Not(inner) => inner.has(key),
            Cond::And(all) | Cond::Or(all) => all.iter().any(|cond| cond.has(key)),
        }
    }

    /// The `when` of a rule; `None` where it never holds or is nested deeper than a rule may be. An empty table holds always.
    pub fn when(&self) -> Option<Table> {
        match self {
            Cond::True => Some(Table::default()),
            Cond::False => None,
            other => table(other, 0),
        }
    }
}

fn push_new(all: &mut Vec<Cond>, cond: Cond) {
    if !all.contains(&cond) {
        all.push(cond);
    }
}

fn join(any: &mut Vec<Cond>, cond: Cond) {
    if let Cond::Atom(atom) = &cond {
        for known in any.iter_mut() {
            if let Cond::Atom(other) = known
                && other.key == atom.key
                && other.of.eq_ignore_ascii_case(&atom.of)
            {
                atom.values.iter().for_each(|value| {
                    if !other.values.contains(value) {
                        other.values.push(value.clone());
                    }
                });
                return;
            }
        }
    }
    push_new(any, cond);
}

/// Conditions of a rule are nested no deeper; Larder's own limit is 8.
const NESTED_MAX: usize = 7;

fn table(cond: &Cond, depth: usize) -> Option<Table> {
    if depth > NESTED_MAX {
        return None;
    }
    let parts: &[Cond] = match cond {
        Cond::And(all) => all,
        other => std::slice::from_ref(other),
    };
    let mut when = Table::default();
    let (mut fields, mut not, mut any): (Table, Vec<Value>, Option<Value>) = (Table::default(), Vec::new(), None);
    for part in parts {
        match part {
            Cond::Atom(atom) if atom.key == "field" => {
                match fields.0.iter().any(|(name, _)| name.eq_ignore_ascii_case(&atom.of)) {
                    false => fields.set(&atom.of, one_or_more(&atom.values)),
                    true => not.push(twice_negated(part, depth)?),
                }
            }
            Cond::Atom(atom) if when.find(atom.key).is_none() => {
                when.set(atom.key, one_or_more(&atom.values));
                if atom.key == "time" && !atom.of.is_empty() {
                    when.set("zone", atom.of.as_str());
                }
            }
            Cond::Atom(_) => not.push(twice_negated(part, depth)?),
            Cond::Not(inner) => match &**inner {
                Cond::Or(each) => {
                    for cond in each {
                        not.push(table(cond, depth + 1)?.into());
                    }
                }
                other => not.push(table(other, depth + 1)?.into()),
            },
            Cond::Or(each) if any.is_none() => {
                let tables: Option<Vec<Value>> =
                    each.iter().map(|cond| table(cond, depth + 1).map(Value::from)).collect();
                any = Some(Value::List(tables?));
            }
            Cond::Or(_) | Cond::And(_) => not.push(twice_negated(part, depth)?),
            // The constructors leave none of these inside others.
            Cond::True => {}
            Cond::False => return None,
        }
    }
    if !fields.0.is_empty() {
        when.set("field", fields);
    }
    if !not.is_empty() {
        when.set("not", if not.len() == 1 { not.remove(0) } else { Value::List(not) });
    }
    if let Some(any) = any {
        when.set("any", any);
    }
    Some(when)
}

/// A second matcher of the same key stands in a `not` of a `not`.
fn twice_negated(cond: &Cond, depth: usize) -> Option<Value> {
    let inner = match cond {
        Cond::Or(each) => {
            let tables: Option<Vec<Value>> = each.iter().map(|cond| table(cond, depth + 2).map(Value::from)).collect();
            Value::List(tables?)
        }
        other => table(other, depth + 2)?.into(),
    };
    Some(Table::default().with("not", inner).into())
}

fn one_or_more(values: &[String]) -> Value {
    match values {
        [one] => Value::Text(one.clone()),
        many => Value::from(many.to_vec()),
    }
}

/// A condition of the source between two conditions of Larder.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// Holds in no more cases than the source's.
    pub must: Cond,
    /// Holds in no fewer cases.
    pub may: Cond,
}

impl Bound {
    /// Both the same.
    pub fn exact(cond: Cond) -> Bound {
        Bound { must: cond.clone(), may: cond }
    }

    /// Nothing is known of it.
    pub fn unknown() -> Bound {
        Bound { must: Cond::False, may: Cond::True }
    }

    /// Whether the translation says the same as the source.
    pub fn is_exact(&self) -> bool {
        self.must == self.may
    }

    /// Holds where the source's condition does not.
    #[must_use]
    pub fn negated(self) -> Bound {
        Bound { must: self.may.negated(), may: self.must.negated() }
    }

    /// All of these.
    pub fn all(bounds: impl IntoIterator<Item = Bound>) -> Bound {
        let (must, may): (Vec<Cond>, Vec<Cond>) = bounds.into_iter().map(|bound| (bound.must, bound.may)).unzip();
        Bound { must: Cond::all(must), may: Cond::all(may) }
    }

    /// One of these.
    pub fn any(bounds: impl IntoIterator<Item = Bound>) -> Bound {
        let (must, may): (Vec<Cond>, Vec<Cond>) = bounds.into_iter().map(|bound| (bound.must, bound.may)).unzip();
        Bound { must: Cond::any(must), may: Cond::any(may) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> Cond {
        Cond::atom("host", [name])
    }

    fn text(cond: &Cond) -> String {
        cond.when().map_or("never".to_owned(), |table| Value::from(table).to_string())
    }

    #[test]
    fn conditions_become_matchers() {
        let method = Cond::atom("method", ["CONNECT"]);
        for (cond, wanted) in [
            (Cond::all([host("a"), method.clone()]), "{ host = \"a\", method = \"CONNECT\" }"),
            (Cond::any([host("a"), host("b")]), "{ host = [\"a\", \"b\"] }"),
            (Cond::all([host("a"), host("b")]), "{ host = \"a\", not = { not = { host = \"b\" } } }"),
            (Cond::all([method.clone(), host("a").negated()]), "{ method = \"CONNECT\", not = { host = \"a\" } }"),
            (Cond::any([method.clone(), host("a")]), "{ any = [{ method = \"CONNECT\" }, { host = \"a\" }] }"),
            (
                Cond::any([method.clone(), host("a")]).negated(),
                "{ not = [{ method = \"CONNECT\" }, { host = \"a\" }] }",
            ),
            (Cond::all([Cond::True, host("a")]), "{ host = \"a\" }"),
            (Cond::all([Cond::False, host("a")]), "never"),
            (Cond::any([]), "never"),
            (
                Cond::all([Cond::atom_of("field", "Via", ["*"]), Cond::atom_of("field", "via", ["x"])]),
                "{ field = { Via = \"*\" }, not = { not = { field = { via = \"x\" } } } }",
            ),
            (Cond::atom_of("time", "UTC", ["Mon"]), "{ time = \"Mon\", zone = \"UTC\" }"),
        ] {
            assert_eq!(text(&cond), wanted, "{cond:?}");
        }
        assert_eq!(text(&host("a").negated().negated()), "{ host = \"a\" }");
    }

    #[test]
    fn what_is_nested_too_deep_is_no_rule() {
        let mut cond = host("a");
        for step in 0..12 {
            cond = Cond::any([Cond::all([cond, Cond::atom("port", [step.to_string()])]), host("b")]);
        }
        assert_eq!(cond.when(), None);
    }

    #[test]
    fn doubt_is_turned_round_by_a_negation() {
        let bound = Bound { must: Cond::False, may: host("a") };
        let turned = bound.clone().negated();
        assert_eq!((turned.must, turned.may), (host("a").negated(), Cond::True));
        assert!(!Bound::all([bound.clone(), Bound::exact(host("b"))]).is_exact());
        assert_eq!(Bound::any([bound, Bound::unknown()]), Bound::unknown());
    }
}
