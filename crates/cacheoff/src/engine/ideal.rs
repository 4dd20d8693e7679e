//! The copies that an ideal cache would have of objects that live for a short time: no hit is offered on what must have expired.

use crate::object::{Law, Life, Lifetime};
use crate::random::mix;
use crate::robot::{Kindred, Wish};
use std::collections::HashMap;

/// The short-lived objects that an ideal cache would have, of one worker.
#[derive(Debug)]
pub(super) struct IdealAges {
    /// By content type.
    lives: Vec<Lasts>,
    /// By the lifetimes that a log says, as [`Law::life_place`] counts them.
    logged: Vec<Lasts>,
    /// By object and variant: the second since 1970 in which it was fetched, or that in which it expires.
    known: HashMap<u64, u64>,
}

/// How long an answer lasts.
#[derive(Clone, Copy, Debug)]
enum Lasts {
    /// Longer than any run.
    Long,
    /// As long as its `Cache-Control` says.
    For(Lifetime),
    /// To the date in its `Expires`, which its cycle decides.
    Cycle,
}

/// Objects that are remembered; others are taken for fresh.
const OBJECTS_MAX: usize = 1_000_000;
/// A lifetime of so many seconds is longer than a run; nothing is remembered of objects that have it.
const LONG_S: u64 = 86_400;

impl IdealAges {
    /// Nothing fetched yet.
    pub fn of(law: &Law) -> Self {
        let lasts = |content: &crate::object::Content| match (Lifetime::of(&content.cache_control), content.life) {
            (Some(lifetime), _) if lifetime.fresh_s >= LONG_S => Lasts::Long,
            (Some(lifetime), _) => Lasts::For(lifetime),
            (None, Life::Cycle { .. }) => Lasts::Cycle,
            (None, Life::Static) => Lasts::Long,
        };
        let (lives, logged) = (law.contents.iter().map(lasts).collect(), law.lives.iter().map(lasts).collect());
        Self { lives, logged, known: HashMap::new() }
    }

    /// An object is asked for in this second, since 1970. Says whether the copy of an ideal cache has expired, so that it
    /// has to fetch another.
    pub fn ask(&mut self, law: &Law, wish: &Wish, unix: u64) -> bool {
        let lasts = match law.life_place(&wish.name) {
            Some(place) => self.logged[place],
            None => self.lives[usize::from(wish.name.content)],
        };
        let brings = matches!(wish.kind, Kindred::Basic | Kindred::Reload | Kindred::ModifiedBefore);
        if matches!(lasts, Lasts::Long) || !brings || wish.client.logged_in || !wish.facts.cachable {
            return false;
        }
        let variant = if law.content(&wish.name).variants > 1 { mix(u64::from(wish.variant) + 1) } else { 0 };
        let key = wish.name.fingerprint() ^ variant;
        let ends = || law.version(&wish.name, &wish.facts, unix).expires;
        let Some(known) = self.known.get_mut(&key) else {
            if self.known.len() < OBJECTS_MAX {
                self.known.insert(key, if matches!(lasts, Lasts::Cycle) { ends() } else { unix });
            }
            return false;
        };
        match lasts {
            Lasts::Long => false,
            Lasts::For(lifetime) => {
                let age = unix.saturating_sub(*known);
                if age >= lifetime.fresh_s {
                    *known = unix;
                }
                age >= lifetime.fresh_s.saturating_add(lifetime.behind_s)
            }
            Lasts::Cycle => {
                let is_over = unix >= *known;
                if is_over {
                    *known = ends();
                }
                is_over
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::Distribution;
    use crate::object::{Content, Name, World};

    fn law(life: Life, cache_control: &str) -> Law {
        let content = Content {
            life,
            etag: false,
            cache_control: cache_control.into(),
            ..Content::plain("page", "text/html", Distribution::Constant(100.0), 1_000)
        };
        Law { epoch: 1_000, contents: vec![content], ..Law::default() }
    }

    fn expired(law: &Law, seconds: &[u64]) -> Vec<bool> {
        let name = Name { server: 0, content: 0, world: World::Public { worker: 0 }, number: 1, embedded: false };
        let (mut ages, wish) = (IdealAges::of(law), Wish::of(name, law.facts(&name), true));
        seconds.iter().map(|second| ages.ask(law, &wish, 1_000 + second)).collect()
    }

    #[test]
    fn a_copy_lasts_as_long_as_the_origin_says_and_each_fetch_begins_anew() {
        let times = [0, 1, 2, 3, 4, 9, 10];
        let plain = law(Life::Static, "public, max-age=2");
        assert_eq!(expired(&plain, &times), [false, false, true, false, true, true, false]);
        let grace = law(Life::Static, "public, max-age=2, stale-while-revalidate=2");
        assert_eq!(expired(&grace, &times), [false, false, false, false, false, true, false]);
        let long = law(Life::Static, "public");
        assert_eq!(expired(&long, &[0, 86_400]), [false, false]);
    }

    #[test]
    fn a_copy_without_a_lifetime_lasts_until_its_object_changes() {
        let life =
            Life::Cycle { length: Distribution::Constant(10.0), variance: 0.0, with_modified: 1.0, expires_after: 0.0 };
        let seen = expired(&law(life, "public"), &(0..40).collect::<Vec<u64>>());
        assert_eq!(seen.iter().filter(|expired| **expired).count(), 4, "{seen:?}");
    }
}
