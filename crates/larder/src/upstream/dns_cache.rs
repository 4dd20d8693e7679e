//! Answers of name servers, for as long as their time to live permits: one table for all workers, bounded by bytes. An
//! origin chooses how many addresses its name has and how many names there are, so a limit of entries would bound nothing.

use super::fault::DnsTrouble;
use super::unreachable::Addresses;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::time::Instant;

/// Addresses used of one answer; the rest is ignored.
pub(super) const ADDRESSES_PER_ANSWER_MAX: usize = 16;

/// Bytes of an entry besides its name and addresses: its places in both tables, and the rounding of the allocator.
const ENTRY_BYTES: usize = 320;

/// An answer of name servers.
pub(super) type DnsAnswer = Result<Vec<IpAddr>, DnsTrouble>;

/// A name and which of its addresses were asked for.
type Question = (Arc<str>, Addresses);

/// The answers that are known.
pub(super) struct DnsCache {
    bytes_max: usize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    answers: HashMap<Question, Known>,
    /// The questions by the order in which they were answered; the oldest answer makes room first.
    order: BTreeMap<u64, Question>,
    next: u64,
    bytes: usize,
}

struct Known {
    told: DnsAnswer,
    until: Instant,
    number: u64,
}

impl DnsCache {
    pub fn new(bytes_max: usize) -> DnsCache {
        DnsCache { bytes_max, table: Mutex::default() }
    }

    /// The answer to a question, while it holds.
    pub fn find(&self, name: &Arc<str>, which: Addresses, now: Instant) -> Option<DnsAnswer> {
        let question = (Arc::clone(name), which);
        let mut table = self.table.lock();
        let known = table.answers.get(&question)?;
        if now < known.until {
            return Some(known.told.clone());
        }
        table.remove(&question);
        None
    }

    /// Keeps an answer until a moment. The caller has cut it to [`ADDRESSES_PER_ANSWER_MAX`].
    pub fn insert(&self, name: &Arc<str>, which: Addresses, told: &DnsAnswer, until: Instant) {
        let question = (Arc::clone(name), which);
        let bytes = bytes_of(&question, told);
        let mut table = self.table.lock();
        table.remove(&question);
        if bytes > self.bytes_max {
            return;
        }
        while table.bytes + bytes > self.bytes_max && table.remove_oldest() {}
        let number = table.next;
        table.next += 1;
        table.bytes += bytes;
        table.order.insert(number, question.clone());
        table.answers.insert(question, Known { told: told.clone(), until, number });
    }

    /// Forgets all: other name servers are asked from now on.
    pub fn clear(&self) {
        *self.table.lock() = Table::default();
    }

    /// Bytes held.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.table.lock().bytes
    }
}

impl Table {
    fn remove(&mut self, question: &Question) {
        let Some(known) = self.answers.remove(question) else { return };
        self.order.remove(&known.number);
        self.bytes -= bytes_of(question, &known.told);
    }

    fn remove_oldest(&mut self) -> bool {
        let Some((_, question)) = self.order.first_key_value() else { return false };
        let question = question.clone();
        self.remove(&question);
        true
    }
}

fn bytes_of((name, _): &Question, told: &DnsAnswer) -> usize {
    ENTRY_BYTES + name.len() + told.as_ref().map_or(0, |addresses| addresses.capacity() * size_of::<IpAddr>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    fn addresses(many: u32) -> DnsAnswer {
        Ok((0..many).map(|number| IpAddr::V4(Ipv4Addr::from(number))).collect())
    }

    #[test]
    fn bytes_bound_it_whatever_comes() {
        let (known, now) = (DnsCache::new(20_000), Instant::now());
        for number in 0..1_000_u32 {
            let name: Arc<str> = format!("{number}.{}", "a".repeat(number as usize % 200)).into();
            let told = if number % 5 == 0 { Err(DnsTrouble::NotFound) } else { addresses(number % 16) };
            known.insert(&name, Addresses::V4, &told, now + Duration::from_secs(60));
            assert!(known.bytes() <= 20_000, "{}", known.bytes());
            assert_eq!(known.find(&name, Addresses::V4, now), Some(told));
            assert_eq!(known.find(&name, Addresses::V6, now), None);
        }
        let table = known.table.lock();
        assert!(table.answers.len() > 20 && table.answers.len() == table.order.len());
        let counted: usize = table.answers.iter().map(|(question, known)| bytes_of(question, &known.told)).sum();
        assert_eq!(counted, table.bytes);
    }

    #[test]
    fn an_answer_holds_for_its_time_and_gives_way_to_a_newer_one() {
        let (known, now) = (DnsCache::new(10_000), Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        let name: Arc<str> = "a.example".into();
        known.insert(&name, Addresses::All, &addresses(1), after(5));
        known.insert(&name, Addresses::All, &addresses(2), after(2));
        assert_eq!(known.find(&name, Addresses::All, after(1)), Some(addresses(2)));
        assert_eq!(known.find(&name, Addresses::All, after(2)), None);
        assert_eq!(known.bytes(), 0);
        known.insert(&name, Addresses::All, &addresses(3), after(2));
        known.clear();
        assert_eq!((known.find(&name, Addresses::All, now), known.bytes()), (None, 0));
    }
}
