//! The requests that wait for a permit of one origin: which of them is next, and which gives way where no more may wait.
//!
//! Higher classes come first. Within a class clients take turns, however many requests each of them has waiting; the requests of one
//! client keep their order (decision 069).

use crate::client::Client;
use larder_rules::rule::Priority;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// Names a waiting request. Later ones have higher numbers.
pub(super) type Ticket = u64;

/// A waiting request, with what it gets when it is its turn.
pub(super) struct Waiting<T> {
    pub client: Option<Client>,
    pub priority: Priority,
    pub since: Instant,
    pub grant: T,
}

/// The waiting requests of one origin.
pub(super) struct WaitingRequests<T> {
    all: BTreeMap<Ticket, Waiting<T>>,
    classes: [Class; Priority::ALL.len()],
    next_ticket: Ticket,
}

/// The waiting requests of one class.
#[derive(Default)]
struct Class {
    /// The clients that have some, the next one first. Requests of nobody in particular count as one client.
    turns: VecDeque<Option<Client>>,
    tickets: HashMap<Option<Client>, VecDeque<Ticket>>,
}

impl<T> Default for WaitingRequests<T> {
    fn default() -> WaitingRequests<T> {
        WaitingRequests { all: BTreeMap::new(), classes: Default::default(), next_ticket: 0 }
    }
}

impl<T> WaitingRequests<T> {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many requests of a client wait.
    pub fn of_client(&self, client: Option<Client>) -> usize {
        self.classes.iter().filter_map(|class| class.tickets.get(&client)).map(VecDeque::len).sum()
    }

    /// Adds one.
    pub fn push(&mut self, waiting: Waiting<T>) -> Ticket {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let class = &mut self.classes[waiting.priority as usize];
        let tickets = class.tickets.entry(waiting.client).or_default();
        if tickets.is_empty() {
            class.turns.push_back(waiting.client);
        }
        tickets.push_back(ticket);
        self.all.insert(ticket, waiting);
        ticket
    }

    /// Takes one out of the queue; `None` where it waits no more.
    pub fn remove(&mut self, ticket: Ticket) -> Option<Waiting<T>> {
        let waiting = self.all.remove(&ticket)?;
        let class = &mut self.classes[waiting.priority as usize];
        if let Some(tickets) = class.tickets.get_mut(&waiting.client) {
            if let Ok(at) = tickets.binary_search(&ticket) {
                tickets.remove(at);
            }
            if tickets.is_empty() {
                class.tickets.remove(&waiting.client);
                class.turns.retain(|client| *client != waiting.client);
            }
        }
        Some(waiting)
    }

    /// Takes the next one whose client may have a permit.
    pub fn next(&mut self, may_have: impl Fn(Option<Client>) -> bool) -> Option<Waiting<T>> {
        for class in self.classes.iter_mut().rev() {
            let Some(at) = class.turns.iter().position(|client| may_have(*client)) else { continue };
            let client = class.turns.remove(at)?;
            let tickets = class.tickets.get_mut(&client)?;
            let ticket = tickets.pop_front()?;
            match tickets.is_empty() {
                true => drop(class.tickets.remove(&client)),
                false => class.turns.push_back(client),
            }
            return self.all.remove(&ticket);
        }
        None
    }

    /// The one that makes room for a request of this client and class: the youngest of the client with the most in the lowest class, if that
    /// class is lower, or that client would still have as many as the newcomer's. `None` where the newcomer gives way.
    pub fn gives_way_to(&self, client: Option<Client>, priority: Priority) -> Option<Ticket> {
        let (number, class) = self.classes.iter().enumerate().find(|(_, class)| !class.turns.is_empty())?;
        let (_, most) = class.tickets.iter().max_by_key(|(_, tickets)| (tickets.len(), tickets.back().copied()))?;
        let is_lower = number < priority as usize;
        let own = class.tickets.get(&client).map_or(0, VecDeque::len);
        let is_fairer = number == priority as usize && most.len() > own + 1;
        if is_lower || is_fairer { most.back().copied() } else { None }
    }

    /// How long the oldest one has waited.
    pub fn oldest_for(&self, now: Instant) -> Option<Duration> {
        self.all.first_key_value().map(|(_, oldest)| now.saturating_duration_since(oldest.since))
    }

    /// Takes the oldest one out of the queue, if it has waited for longer than this.
    pub fn take_overdue(&mut self, limit: Duration, now: Instant) -> Option<Waiting<T>> {
        let (ticket, _) = self.all.first_key_value().filter(|_| self.oldest_for(now) > Some(limit))?;
        self.remove(*ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Priority::{High, Low, Normal};

    /// The client of each request, and its class.
    type Requests<'a> = &'a [(u8, Priority)];

    fn client(number: u8) -> Option<Client> {
        Some(Client::at([10, 0, 0, number].into()))
    }

    fn queue(requests: Requests<'_>) -> WaitingRequests<usize> {
        let mut queue = WaitingRequests::default();
        for (number, (name, priority)) in requests.iter().enumerate() {
            let since = Instant::now();
            queue.push(Waiting { client: client(*name), priority: *priority, since, grant: number });
        }
        queue
    }

    fn order(mut queue: WaitingRequests<usize>) -> Vec<usize> {
        std::iter::from_fn(|| queue.next(|_| true)).map(|waiting| waiting.grant).collect()
    }

    #[test]
    fn clients_take_turns_and_higher_classes_come_first() {
        let cases: [(Requests<'_>, &[usize]); 5] = [
            (&[(1, Normal), (1, Normal), (1, Normal), (2, Normal)], &[0, 3, 1, 2]),
            (&[(1, Normal), (1, Normal), (2, Normal), (2, Normal), (3, Normal)], &[0, 2, 4, 1, 3]),
            (&[(1, Low), (1, Normal), (2, High)], &[2, 1, 0]),
            (&[(1, High), (1, High), (2, High), (1, Low)], &[0, 2, 1, 3]),
            (&[], &[]),
        ];
        for (requests, expected) in cases {
            assert_eq!(order(queue(requests)), expected, "{requests:?}");
        }
    }

    #[test]
    fn a_client_that_has_its_share_is_passed_over_and_keeps_its_turn() {
        let mut queue = queue(&[(1, Normal), (2, Normal), (2, Normal), (3, Normal)]);
        assert_eq!(queue.next(|of| of != client(1)).unwrap().grant, 1);
        assert_eq!(queue.next(|_| true).unwrap().grant, 0);
        assert!(queue.next(|of| of == client(1)).is_none());
        assert_eq!(order(queue), [3, 2]);
    }

    #[test]
    fn those_who_leave_leave_nothing_behind() {
        let mut queue = queue(&[(1, Normal), (1, Normal), (2, Low)]);
        assert_eq!(queue.remove(0).unwrap().grant, 0);
        assert!(queue.remove(0).is_none());
        assert_eq!((queue.len(), queue.of_client(client(1)), queue.of_client(client(2))), (2, 1, 1));
        assert!(queue.remove(1).is_some() && queue.remove(2).is_some());
        assert!(
            queue.is_empty() && queue.classes.iter().all(|class| class.turns.is_empty() && class.tickets.is_empty())
        );
    }

    #[test]
    fn the_one_who_has_the_most_gives_way() {
        let full = [(1, Normal), (1, Normal), (1, Normal), (2, Normal)];
        let cases = [
            (3, Normal, Some(2), "the youngest of the longest queue"),
            (2, Normal, Some(2), "one more is fair"),
            (1, Normal, None, "not its own"),
            (1, High, Some(2), "a lower class, though it is its own"),
            (3, Low, None, "a lower class takes nothing"),
        ];
        for (name, priority, expected, why) in cases {
            assert_eq!(queue(&full).gives_way_to(client(name), priority), expected, "{why}");
        }
        let even = [(1, Normal), (2, Normal)];
        assert_eq!(queue(&even).gives_way_to(client(3), Normal), None, "all have one");
        let classes = [(1, High), (2, Low), (3, Low)];
        assert_eq!(queue(&classes).gives_way_to(client(9), Normal), Some(2));
        assert_eq!(queue(&[]).gives_way_to(client(9), High), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_is_overdue_first() {
        let mut queue = queue(&[(1, Normal)]);
        tokio::time::advance(Duration::from_secs(2)).await;
        queue.push(Waiting { client: client(2), priority: High, since: Instant::now(), grant: 1 });
        tokio::time::advance(Duration::from_secs(1)).await;
        let now = Instant::now();
        assert_eq!(queue.oldest_for(now), Some(Duration::from_secs(3)));
        assert_eq!(queue.take_overdue(Duration::from_secs(2), now).map(|waiting| waiting.grant), Some(0));
        assert!(queue.take_overdue(Duration::from_secs(2), now).is_none());
        assert_eq!(queue.len(), 1);
    }
}
