//! An ACL as a condition of rules, with what is not exact about it.

use crate::bound::{Bound, Cond};

/// A translated ACL.
#[derive(Clone, Debug)]
pub struct Translated {
    /// Its condition.
    pub bound: Bound,
    /// Why it is not exact, or what is to be known of it.
    pub why: Option<String>,
}

/// The name that stands for the list of an ACL until it has one.
pub const LIST: &str = "\u{0}list";

impl Translated {
    /// Exactly this condition.
    pub fn exact(cond: Cond) -> Translated {
        Translated { bound: Bound::exact(cond), why: None }
    }

    /// Between two conditions, for this reason.
    pub fn partly(must: Cond, may: Cond, why: &str) -> Translated {
        Translated { bound: Bound { must, may }, why: Some(why.to_owned()) }
    }

    /// Nothing is known of it, for this reason.
    pub fn unknown(why: &str) -> Translated {
        Translated::partly(Cond::False, Cond::True, why)
    }
}
