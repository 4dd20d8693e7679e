//! Invalidation by rule: what came before a rule and is in its scope is gone, or stale.
//!
//! Rules have ever-growing numbers. Each stored response remembers the number of the last rule there was when its fetch
//! began (its epoch); a rule with a higher number that matches makes it void. So a purge by prefix or tag is one entry here
//! and one on disk, whatever it matches, and nothing is enumerated. While there is no rule newer than what a caller has
//! seen, the whole costs one atomic load.
//!
//! The number of rules is bounded. Beyond [`Rules::new`]'s limit the older half is folded: tags into a table in which
//! several tags share a place, prefixes into the same kind of table by the origin they begin with. A folded rule makes
//! more void than it says (what shares its place), never less.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use larder_wire::target::common_spelling;
use parking_lot::RwLock;
use xxhash_rust::xxh3::xxh3_64;

/// The responses that a rule matches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Everything.
    All,
    /// Keys that begin so.
    Prefix(Box<[u8]>),
    /// Responses with the tag of this hash.
    Tag(u64),
}

/// The effect of a rule on the responses that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Force {
    /// It is stale: validated before it is used again, or served stale where that is permitted.
    Soft,
    /// Its fate is not known, since a part of the purge log is lost: never used before its origin has validated
    /// it. Only for [`Scope::All`]; of any other scope it is taken for hard.
    Validate,
    /// It is gone.
    Hard,
}

impl Force {
    /// The word of commands and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Force::Soft => "soft",
            Force::Validate => "validate",
            Force::Hard => "hard",
        }
    }
}

/// One invalidation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its number; the first is 1.
    pub number: u64,
    /// The responses that it matches.
    pub scope: Scope,
    /// Its effect on them.
    pub force: Force,
}

/// The verdict of the rules on a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Nothing.
    Valid,
    /// A soft rule matches.
    Stale,
    /// A purge of it may be lost: it is not used before its origin has validated it.
    Validate,
    /// A hard rule matches.
    Gone,
}

/// All rules in force.
pub struct Rules {
    newest: AtomicU64,
    rules_max: usize,
    inner: RwLock<Inner>,
}

/// How many rules of a kind are kept apart by default.
pub const RULES_MAX: usize = 65_536;

impl Rules {
    /// No rules; at most `rules_max` of prefixes and as many of tags are kept apart.
    pub fn new(rules_max: usize) -> Rules {
        Rules { newest: AtomicU64::new(0), rules_max: rules_max.max(2), inner: RwLock::default() }
    }

    /// The number of the newest rule, 0 without one: the epoch of a fetch that begins now.
    pub fn current_epoch(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }

    /// The number that the next rule is to have.
    pub fn next_number(&self) -> u64 {
        self.current_epoch() + 1
    }

    /// Puts a rule in force. At a start rules may come in any order; later they come in that of their numbers, or a fetch
    /// that began between two of them would be taken to be younger than both.
    pub fn add(&self, rule: &Rule) {
        self.add_all(std::slice::from_ref(rule));
    }

    /// Puts several rules in force, all at once.
    pub fn add_all(&self, rules: &[Rule]) {
        let mut inner = self.inner.write();
        for rule in rules {
            let mark = Mark::of(rule);
            match &rule.scope {
                Scope::All if rule.force == Force::Validate => inner.validate = inner.validate.max(rule.number),
                Scope::All => inner.all = inner.all.max(mark),
                Scope::Tag(tag) => {
                    let held = inner.tags.entry(*tag).or_default();
                    *held = held.max(mark);
                }
                Scope::Prefix(text) => inner.add_prefix(text, mark),
            }
            inner.fold(self.rules_max);
        }
        // A thread that sees the number sees the rules.
        let newest = rules.iter().map(|rule| rule.number).max().unwrap_or(0);
        self.newest.fetch_max(newest, Ordering::AcqRel);
    }

    /// The verdict on a response with this key and these tags that was fetched at `epoch`.
    pub fn verdict(&self, key: &[u8], tags: &[u64], epoch: u64) -> Verdict {
        if epoch >= self.current_epoch() {
            return Verdict::Valid;
        }
        let inner = self.inner.read();
        let verdict = inner.mark(&subject(key), tags).verdict(epoch);
        if inner.validate > epoch { verdict.max(Verdict::Validate) } else { verdict }
    }

    /// Takes out rules that nothing stored is older than: every stored response has an epoch of at least `epoch`. One
    /// that is stored later and is older all the same (its fetch began long ago) is taken to be gone.
    pub fn retire(&self, epoch: u64) {
        let mut inner = self.inner.write();
        let mut retired = 0;
        let mut keep = |mark: &Mark| {
            let keep = mark.newest() > epoch;
            retired = if keep { retired } else { mark.newest().max(retired) };
            keep
        };
        inner.tags.retain(|_, mark| keep(mark));
        let Inner { prefixes, lengths, widened, .. } = &mut *inner;
        prefixes.retain(|(text, mark)| {
            let keep = keep(mark);
            if !keep {
                forget_length(lengths, text.len());
            }
            keep
        });
        widened.hard = widened.hard.max(retired);
    }

    /// Whether a later rule of the same scope, or one for everything, does what this one does. Of folded rules nobody
    /// knows; that they hit more here than they say does not count.
    pub fn supersede(&self, rule: &Rule) -> bool {
        let inner = self.inner.read();
        let same = match &rule.scope {
            Scope::All => None,
            Scope::Tag(tag) => inner.tags.get(tag),
            Scope::Prefix(text) => inner.prefix(text),
        };
        let mark = same.copied().unwrap_or_default().max(inner.all);
        let by_mark = match rule.force {
            Force::Soft => mark.soft,
            Force::Validate => inner.validate,
            Force::Hard => 0,
        };
        mark.hard > rule.number || by_mark > rule.number
    }

    /// How many rules are kept apart.
    pub fn len(&self) -> usize {
        let inner = self.inner.read();
        let for_all = usize::from(inner.all != Mark::default()) + usize::from(inner.validate > 0);
        inner.tags.len() + inner.prefixes.len() + for_all
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.current_epoch() == 0
    }
}

/// The text that prefixes are compared with: the URL of a key (what stands behind the origin of a site and a space) in the spelling
/// of [`beginning`], with the mark of [`whole`] behind it.
pub fn subject(key: &[u8]) -> Vec<u8> {
    let url = key.iter().rposition(|&byte| byte == b' ').map_or(key, |at| &key[at + 1..]);
    whole(url)
}

/// A prefix that equivalent URLs alone have: the URL with a mark behind it that no URL holds.
pub fn whole(url: &[u8]) -> Vec<u8> {
    [&*common_spelling(url), b"\n"].concat()
}

/// The prefix of all URLs that begin so, however they are spelled: `/%61` begins with `/a`. Each spelling is stored apart,
/// but whoever voids what lies below a URL means all of them.
pub fn beginning(url: &[u8]) -> Box<[u8]> {
    common_spelling(url).into()
}

/// The newest rules of each force for one scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    hard: u64,
    soft: u64,
}

impl Mark {
    fn of(rule: &Rule) -> Mark {
        match rule.force {
            Force::Hard | Force::Validate => Mark { hard: rule.number, soft: 0 },
            Force::Soft => Mark { hard: 0, soft: rule.number },
        }
    }

    fn max(self, other: Mark) -> Mark {
        Mark { hard: self.hard.max(other.hard), soft: self.soft.max(other.soft) }
    }

    fn newest(self) -> u64 {
        self.hard.max(self.soft)
    }

    fn verdict(self, epoch: u64) -> Verdict {
        match (self.hard > epoch, self.soft > epoch) {
            (true, _) => Verdict::Gone,
            (false, true) => Verdict::Stale,
            (false, false) => Verdict::Valid,
        }
    }
}

/// Places of a table of folded rules.
const FOLDED_PLACES: usize = 1 << 14;

#[derive(Default)]
struct Inner {
    /// So that nobody outside can prepare prefixes whose hashes collide.
    seed: Seed,
    all: Mark,
    /// The newest rule that wants everything older validated.
    validate: u64,
    /// The effect of folded and retired rules on everything: no single rule has it.
    widened: Mark,
    tags: HashMap<u64, Mark>,
    prefixes: HashTable<(Box<[u8]>, Mark)>,
    /// How many prefixes have which length.
    lengths: BTreeMap<usize, usize>,
    /// Made when the first tag is folded, and the first prefix.
    folded_tags: Option<Box<[Mark]>>,
    folded_origins: Option<Box<[Mark]>>,
}

impl Inner {
    fn add_prefix(&mut self, text: &[u8], mark: Mark) {
        let same = |held: &(Box<[u8]>, Mark)| *held.0 == *text;
        let seed = self.seed;
        match self.prefixes.entry(seed.hash(text), same, |held| seed.hash(&held.0)) {
            Entry::Occupied(mut held) => held.get_mut().1 = held.get().1.max(mark),
            Entry::Vacant(place) => {
                place.insert((text.into(), mark));
                *self.lengths.entry(text.len()).or_default() += 1;
            }
        }
    }

    fn prefix(&self, text: &[u8]) -> Option<&Mark> {
        self.prefix_hashed(self.seed.hash(text), text)
    }

    fn prefix_hashed(&self, hash: u64, text: &[u8]) -> Option<&Mark> {
        self.prefixes.find(hash, |held| *held.0 == *text).map(|held| &held.1)
    }

    fn mark(&self, key: &[u8], tags: &[u64]) -> Mark {
        let mut mark = self.all.max(self.widened);
        // Each byte of the key is hashed once, however many lengths there are.
        let mut hashes = self.seed.prefixes(key);
        for (length, _) in self.lengths.range(..=key.len()) {
            let hash = hashes.hash(*length);
            if let Some(held) = self.prefix_hashed(hash, &key[..*length]) {
                mark = mark.max(*held);
            }
        }
        if !self.tags.is_empty() {
            tags.iter().filter_map(|tag| self.tags.get(tag)).for_each(|held| mark = mark.max(*held));
        }
        if let Some(folded) = &self.folded_tags {
            tags.iter().for_each(|tag| mark = mark.max(folded[place(*tag)]));
        }
        if let Some(folded) = &self.folded_origins {
            mark = mark.max(folded[place(xxh3_64(origin(key)))]);
        }
        mark
    }

    fn fold(&mut self, rules_max: usize) {
        if self.tags.len() > rules_max {
            let limit = median(self.tags.values());
            let folded = self.folded_tags.get_or_insert_with(|| vec![Mark::default(); FOLDED_PLACES].into());
            self.tags.retain(|tag, mark| {
                let keep = mark.newest() > limit;
                if !keep {
                    folded[place(*tag)] = folded[place(*tag)].max(*mark);
                }
                keep
            });
        }
        if self.prefixes.len() > rules_max {
            self.fold_prefixes();
        }
    }

    /// A prefix that is shorter than an origin can't be folded by origin: it hits everything.
    fn fold_prefixes(&mut self) {
        let limit = median(self.prefixes.iter().map(|held| &held.1));
        let folded = self.folded_origins.get_or_insert_with(|| vec![Mark::default(); FOLDED_PLACES].into());
        let (lengths, widened) = (&mut self.lengths, &mut self.widened);
        self.prefixes.retain(|(text, mark)| {
            let keep = mark.newest() > limit;
            if !keep {
                forget_length(lengths, text.len());
                let origin = origin(text);
                if origin.ends_with(b"/") {
                    let at = place(xxh3_64(origin));
                    folded[at] = folded[at].max(*mark);
                } else {
                    *widened = widened.max(*mark);
                }
            }
            keep
        });
    }
}

/// The seed of the hashes of prefixes.
#[derive(Clone, Copy)]
struct Seed(u64);

impl Default for Seed {
    fn default() -> Seed {
        Seed(RandomState::new().hash_one("prefixes"))
    }
}

impl Seed {
    fn hash(self, text: &[u8]) -> u64 {
        self.prefixes(text).hash(text.len())
    }

    fn prefixes(self, text: &[u8]) -> PrefixHashes<'_> {
        PrefixHashes { text, seed: self.0, state: self.0, words: 0 }
    }
}

/// The hashes of some prefixes of a text, from the shortest to the longest, in one walk over it.
struct PrefixHashes<'t> {
    text: &'t [u8],
    seed: u64,
    /// Of the whole words before `words`.
    state: u64,
    words: usize,
}

const WORD_BYTES: usize = 8;

impl PrefixHashes<'_> {
    /// The hash of the first bytes: no fewer than the time before.
    fn hash(&mut self, length: usize) -> u64 {
        while (self.words + 1) * WORD_BYTES <= length {
            self.state = mixed(self.state, self.word(self.words * WORD_BYTES, WORD_BYTES));
            self.words += 1;
        }
        let at = self.words * WORD_BYTES;
        mixed(mixed(self.state, self.word(at, length - at)), length as u64 ^ self.seed)
    }

    fn word(&self, at: usize, bytes: usize) -> u64 {
        let mut word = [0; WORD_BYTES];
        word[..bytes].copy_from_slice(&self.text[at..at + bytes]);
        u64::from_le_bytes(word)
    }
}

/// A multiplication to 128 bits, folded.
fn mixed(state: u64, word: u64) -> u64 {
    let product = u128::from(state ^ word) * 0x9e37_79b9_7f4a_7c15 + u128::from(state.rotate_left(23));
    product as u64 ^ (product >> 64) as u64
}

fn forget_length(lengths: &mut BTreeMap<usize, usize>, length: usize) {
    if let Some(count) = lengths.get_mut(&length) {
        *count -= 1;
        if *count == 0 {
            lengths.remove(&length);
        }
    }
}

fn place(hash: u64) -> usize {
    (hash >> 32) as usize % FOLDED_PLACES
}

fn median<'a>(marks: impl Iterator<Item = &'a Mark>) -> u64 {
    let mut numbers: Vec<u64> = marks.map(|mark| mark.newest()).collect();
    let middle = numbers.len() / 2;
    *numbers.select_nth_unstable(middle).1
}

/// Scheme, host and port with the slash behind them: the first three slashes of a URL.
fn origin(key: &[u8]) -> &[u8] {
    let third = key.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at).nth(2);
    third.map_or(key, |at| &key[..=at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Scope {
        Scope::Prefix(text.as_bytes().into())
    }

    fn add(rules: &Rules, scope: Scope, force: Force) -> u64 {
        let number = rules.next_number();
        rules.add(&Rule { number, scope, force });
        number
    }

    #[test]
    fn a_rule_is_about_what_came_before_it() {
        let rules = Rules::new(100);
        assert_eq!(rules.verdict(b"http://a/x", &[], 0), Verdict::Valid);
        let one = add(&rules, prefix("http://a/x"), Force::Hard);
        assert_eq!(rules.verdict(b"http://a/x", &[], 0), Verdict::Gone);
        assert_eq!(rules.verdict(b"http://a/xyz?q", &[], 0), Verdict::Gone);
        assert_eq!(rules.verdict(b"http://a/", &[], 0), Verdict::Valid);
        assert_eq!(rules.verdict(b"http://a/x", &[], one), Verdict::Valid, "fetched after it");
        let two = add(&rules, Scope::Tag(7), Force::Soft);
        assert_eq!(rules.verdict(b"http://b/", &[5, 7], one), Verdict::Stale);
        assert_eq!(rules.verdict(b"http://b/", &[5], one), Verdict::Valid);
        assert_eq!(rules.verdict(b"http://a/x", &[7], 0), Verdict::Gone, "hard counts more");
        add(&rules, Scope::All, Force::Soft);
        assert_eq!(rules.verdict(b"http://b/", &[], two), Verdict::Stale);
        assert_eq!((rules.current_epoch(), rules.len()), (3, 3));
        rules.retire(two);
        assert_eq!(rules.len(), 1);
        assert_eq!(
            rules.verdict(b"http://c/", &[], one),
            Verdict::Gone,
            "it may be in the scope of a rule that retired"
        );
        assert_eq!(rules.verdict(b"http://c/", &[], two), Verdict::Stale);
        assert_eq!(rules.verdict(b"http://c/", &[], 3), Verdict::Valid);
    }

    #[test]
    fn a_prefix_is_about_every_spelling() {
        let rules = Rules::new(100);
        add(&rules, Scope::Prefix(beginning(b"http://a/%7Eb/")), Force::Hard);
        add(&rules, Scope::Prefix(whole(b"http://a/%63").into()), Force::Soft);
        for (key, wanted) in [
            ("http://a/~b/x", Verdict::Gone),
            ("http://a/%7eb/x", Verdict::Gone),
            ("http://o:1/ http://a/%7E%62/%zz", Verdict::Gone),
            ("http://a/~b%2Fx", Verdict::Valid),
            ("http://a/c", Verdict::Stale),
            ("http://a/%63", Verdict::Stale),
            ("http://a/cc", Verdict::Valid),
        ] {
            assert_eq!(rules.verdict(key.as_bytes(), &[], 0), wanted, "{key}");
        }
    }

    #[test]
    fn a_later_rule_of_the_same_scope_supersedes() {
        let rules = Rules::new(100);
        let numbered = |number, scope, force| Rule { number, scope, force };
        add(&rules, Scope::Tag(1), Force::Soft);
        add(&rules, Scope::Tag(1), Force::Hard);
        add(&rules, Scope::Tag(1), Force::Soft);
        add(&rules, prefix("http://a/"), Force::Hard);
        let of_tag = [Force::Soft, Force::Hard, Force::Soft].into_iter().zip(1..);
        let superseded: Vec<bool> =
            of_tag.map(|(force, number)| rules.supersede(&numbered(number, Scope::Tag(1), force))).collect();
        assert_eq!(superseded, [true, false, false]);
        assert!(!rules.supersede(&numbered(4, prefix("http://a/"), Force::Hard)));
        add(&rules, Scope::All, Force::Soft);
        assert!(!rules.supersede(&numbered(2, Scope::Tag(1), Force::Hard)), "soft is less than hard");
        add(&rules, Scope::All, Force::Hard);
        assert!((1..5).all(|number| rules.supersede(&numbered(number, Scope::Tag(1), Force::Hard))));
    }

    #[test]
    fn folded_rules_make_more_void_never_less() {
        let rules = Rules::new(16);
        for number in 0..200u64 {
            add(&rules, Scope::Tag(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)), Force::Hard);
            add(&rules, prefix(&format!("http://host{number}.example/a/")), Force::Hard);
        }
        assert!(rules.len() <= 33, "{}", rules.len());
        for number in 0..200u64 {
            let tag = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            assert_eq!(rules.verdict(b"http://other/", &[tag], 0), Verdict::Gone, "{number}");
            let key = format!("http://host{number}.example/a/b");
            assert_eq!(rules.verdict(key.as_bytes(), &[], 0), Verdict::Gone, "{number}");
            assert_eq!(rules.verdict(key.as_bytes(), &[tag], rules.current_epoch()), Verdict::Valid);
        }
        let spared = (0..1000).filter(|number| {
            let key = format!("http://elsewhere{number}.example/");
            rules.verdict(key.as_bytes(), &[], 0) == Verdict::Valid
        });
        assert!(spared.count() > 900);
    }

    #[test]
    fn a_short_prefix_is_folded_into_everything() {
        let rules = Rules::new(2);
        add(&rules, prefix("http://sho"), Force::Hard);
        for number in 0..10 {
            add(&rules, prefix(&format!("http://h/{number}")), Force::Soft);
        }
        assert_eq!(rules.verdict(b"http://short/x", &[], 0), Verdict::Gone);
        let short = Rule { number: 1, scope: prefix("http://sho"), force: Force::Hard };
        let before_it = Rule { number: 0, scope: Scope::Tag(7), force: Force::Hard };
        assert!(!rules.supersede(&before_it) && !rules.supersede(&short), "it still says no more than its prefix");
    }

    #[test]
    fn prefixes_of_all_lengths_cost_one_walk_over_the_key() {
        let rules = Rules::new(10_000);
        let key: Vec<u8> = (0..8_000).map(|at| b'a' + (at * at % 23) as u8).collect();
        for length in (1..=8_000).rev() {
            add(&rules, Scope::Prefix(key[..length].into()), Force::Hard);
        }
        assert_eq!(rules.verdict(&key, &[], 7_999), Verdict::Gone, "the newest is the shortest");
        assert_eq!(rules.verdict(b"b", &[], 0), Verdict::Valid);
        let inner = rules.inner.read();
        let mut hashes = inner.seed.prefixes(&key);
        for length in 1..=key.len() {
            assert_eq!(hashes.hash(length), inner.seed.hash(&key[..length]), "{length}");
        }
        assert_eq!(hashes.words, key.len() / WORD_BYTES, "each byte was hashed once");
        let different: std::collections::HashSet<u64> =
            (0..=8_000).map(|length| inner.seed.hash(&key[..length])).collect();
        assert_eq!(different.len(), 8_001);
    }

    #[test]
    fn a_million_rules_take_bounded_room_and_time() {
        let rules = Rules::new(1_000);
        for number in 0..1_000_000u64 {
            rules.add(&Rule {
                number: number + 1,
                scope: Scope::Tag(number.wrapping_mul(0x9e37_79b9)),
                force: Force::Hard,
            });
        }
        assert!(rules.len() <= 1_001);
        assert_eq!(rules.current_epoch(), 1_000_000);
    }
}
