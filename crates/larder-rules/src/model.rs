//! The law of the table, read off rule by rule: what [`Table`](crate::Table) must say for every request. It is slow and plain; tests
//! and chores hold the compiled table against it.

use crate::facts::{Facts, Slot, Stop};
use crate::rule::Rule;
use crate::table::Matched;
use std::collections::BTreeSet;

/// Judges a request by these rules. A rule asks about known facts first, then about others in the order of their cost, and stops at the
/// first matcher that does not hold.
pub fn judge(rules: &[Rule], facts: &impl Facts) -> Result<Matched, Stop> {
    let mut known: BTreeSet<String> = BTreeSet::new();
    let mut matched = Matched::default();
    for (number, rule) in rules.iter().enumerate() {
        if holds(rule, facts, &mut known)? && rule.when.nested_hold(facts)? {
            matched.push(number as u16, rule.does.verdict.is_some());
            if rule.does.verdict.is_some() {
                break;
            }
        }
    }
    Ok(matched)
}

fn holds(rule: &Rule, facts: &impl Facts, known: &mut BTreeSet<String>) -> Result<bool, Stop> {
    let slots: Vec<Slot> = rule.when.slots(0).iter().collect();
    let field = |slot: Slot| usize::from(slot.0.saturating_sub(Slot::FIELDS.0));
    let name = |slot: Slot| match rule.when.fields.get(field(slot)) {
        Some((name, _)) if slot >= Slot::FIELDS && slot < Slot::TARGET_REGEX => name.to_ascii_lowercase(),
        _ => format!("{slot:?}"),
    };
    for slot in slots.iter().filter(|slot| known.contains(&name(**slot)) || slot.0 < 5) {
        if !rule.when.test(*slot, field(*slot), facts)? {
            return Ok(false);
        }
    }
    let unknown: Vec<&Slot> = slots.iter().filter(|slot| !known.contains(&name(**slot)) && slot.0 >= 5).collect();
    for slot in unknown {
        let holds = rule.when.test(*slot, field(*slot), facts)?;
        known.insert(name(*slot));
        if !holds {
            return Ok(false);
        }
    }
    Ok(true)
}
