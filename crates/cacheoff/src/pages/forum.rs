//! The board as it must be: what was posted, and what of it the application has acknowledged. It draws requests.

use super::ask::Ask;
use crate::board::page::threads_of;
use crate::board::{Board, PAGES, THREADS, USERS, words};
use crate::random::Stream;

/// The mix of requests: threads, and from here on lists, posts, threads for a user who is signed in.
const LISTS_FROM: f64 = 0.70;
const POSTS_FROM: f64 = 0.90;
const READERS_FROM: f64 = 0.95;
/// A thread for a post is drawn so often before the draw becomes a page of the thread.
const DRAWS_MAX: usize = 20;

/// The board and the state of its posts.
#[derive(Debug)]
pub struct Forum {
    board: Board,
    states: Vec<State>,
}

/// Of a thread.
#[derive(Clone, Copy, Debug)]
struct State {
    /// Posts that were acknowledged; those of the database's beginning are.
    acknowledged: usize,
    /// Whether all that was posted is acknowledged. There is never more than one post on its way to a thread, so that their
    /// order is known; one whose fate is not known is the thread's last one.
    settled: bool,
}

impl Forum {
    /// The board at the start.
    pub fn new(board: Board) -> Self {
        let states = (1..=THREADS).map(|thread| State { acknowledged: board.posts(thread), settled: true });
        Self { states: states.collect(), board }
    }

    /// The board with all that was posted, acknowledged or not.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Posts of a thread that were acknowledged.
    pub fn acknowledged(&self, thread: u32) -> usize {
        self.states[place(thread)].acknowledged
    }

    /// The next request of a client. A post that is drawn is on its way.
    pub fn draw(&mut self, draws: &mut Stream) -> Ask {
        let kind = draws.unit();
        let thread = 1 + draws.below(u64::from(THREADS)) as u32;
        if (LISTS_FROM..POSTS_FROM).contains(&kind) {
            return self.list(draws.below(u64::from(PAGES)) as u32);
        }
        let user = draws.below(u64::from(USERS)) as u32;
        match kind {
            _ if kind < LISTS_FROM => self.thread(thread, None, false),
            _ if kind >= READERS_FROM => self.thread(thread, Some(user), false),
            _ => self.post(thread, user, draws),
        }
    }

    /// The page of a thread, asked for now.
    pub fn thread(&self, thread: u32, reader: Option<u32>, follows_post: bool) -> Ask {
        Ask::Thread { thread, reader, acknowledged: self.acknowledged(thread), follows_post }
    }

    /// A page of the list, asked for now.
    pub fn list(&self, page: u32) -> Ask {
        Ask::List { page, acknowledged: threads_of(page).map(|thread| self.acknowledged(thread)).collect() }
    }

    /// A post to a thread, or to another one where one is on its way to it.
    pub fn post(&mut self, thread: u32, user: u32, draws: &mut Stream) -> Ask {
        let others = (0..DRAWS_MAX).map(|_| 1 + draws.below(u64::from(THREADS)) as u32);
        let Some(thread) = std::iter::once(thread).chain(others).find(|thread| self.states[place(*thread)].settled)
        else {
            return self.thread(thread, None, false);
        };
        let text = words(draws);
        self.board.add_post(thread, user, text.clone());
        self.states[place(thread)].settled = false;
        Ask::Post { thread, user, text }
    }

    /// The application has acknowledged the post that was on its way to a thread.
    pub fn acknowledge(&mut self, thread: u32) {
        self.states[place(thread)] = State { acknowledged: self.board.posts(thread), settled: true };
    }
}

fn place(thread: u32) -> usize {
    (thread.clamp(1, THREADS) - 1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_mix() {
        let drawn = |seed| {
            let (mut forum, mut draws) = (Forum::new(Board::new()), Stream::new(seed, 3));
            (0..4_000)
                .map(|_| {
                    let ask = forum.draw(&mut draws);
                    if let Ask::Post { thread, .. } = ask {
                        forum.acknowledge(thread);
                    }
                    ask
                })
                .collect::<Vec<_>>()
        };
        let (one, other) = (drawn(7), drawn(8));
        assert!(one == drawn(7) && one != other);
        let share = |content: u8| one.iter().filter(|ask| ask.content() == content).count() as f64 / one.len() as f64;
        for (content, expected) in [(1, 0.70), (2, 0.20), (3, 0.05), (5, 0.05)] {
            let found = share(content);
            assert!((found - expected).abs() < 0.02, "{}: {found}", Ask::CONTENTS[usize::from(content)]);
        }
    }

    #[test]
    fn no_second_post_goes_to_a_thread_before_the_first_one_is_acknowledged() {
        let (mut forum, mut draws) = (Forum::new(Board::new()), Stream::new(1, 1));
        let before = forum.acknowledged(5);
        assert!(matches!(forum.post(5, 1, &mut draws), Ask::Post { thread: 5, .. }));
        assert!(matches!(forum.post(5, 2, &mut draws), Ask::Post { thread, .. } if thread != 5));
        assert_eq!((forum.acknowledged(5), forum.board().posts(5)), (before, before + 1));
        forum.acknowledge(5);
        assert_eq!(forum.acknowledged(5), before + 1);
        // Where the fate of every thread's last post is unknown, pages are asked for.
        let mut stuck = Forum::new(Board::new());
        stuck.states.iter_mut().for_each(|state| state.settled = false);
        assert!(matches!(stuck.post(5, 1, &mut draws), Ask::Thread { thread: 5, reader: None, .. }));
    }
}
