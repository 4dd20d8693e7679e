//! The right to have one request under way in a process of an application.

use super::{MountState, Process, ProcessFault, Spool, Turn};
use crate::client::Client;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Why a request gets no process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountTrouble {
    /// The application can't be loaded; the reason is one for people.
    Failed(String),
    /// No process was ready within the time.
    Starting,
    /// All processes were busy for the whole time.
    Busy,
}

/// The room that a request wants in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// A place: the process has fewer requests than it serves at once.
    Place,
    /// A place or, where no process has one, a turn in a quick process behind the requests that it has. For requests that can be
    /// taken back, and sent to another process.
    PlaceOrTurn,
}

/// A place in a process, or a turn; free again when this is dropped.
pub struct ProcessLease {
    process: Arc<Process>,
    mount: Arc<MountState>,
    /// Its number among the requests of a process that serves one at a time.
    turn: Option<u64>,
    /// Others were sent to the process before, and are not over.
    is_ahead: bool,
    /// A byte of the answer has come.
    is_answered: bool,
}

impl ProcessLease {
    /// The process.
    pub fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// The turn of a request that waits behind others of the process; `None` where it is served at once.
    pub fn turn(&self) -> Option<Turn> {
        let number = self.turn.filter(|_| self.is_ahead)?;
        Some(Turn::of(&self.process, number))
    }

    /// Whether a byte of the answer has come.
    pub(super) fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// A byte of the answer has come.
    pub(super) fn answered(&mut self) {
        self.is_answered = true;
    }

    /// The time from the end of a request to the head of its answer.
    pub fn request_time(&self) -> Duration {
        self.mount.request_time()
    }

    /// The buffer for what its client has not taken yet of the answer; `None` where it may hold the place.
    pub fn answer_spool(&self, client: Option<Client>) -> Option<Spool> {
        self.mount.answer_spool(client)
    }

    /// The request goes on although its time is over: the process is to be ended.
    pub fn hangs(&self) {
        self.process.fails(ProcessFault::Hangs(None));
    }
}

impl Drop for ProcessLease {
    fn drop(&mut self) {
        if let (Some(turns), Some(turn)) = (&self.process.turns, self.turn) {
            turns.lock().leave(turn, Instant::now(), self.is_answered);
        }
        self.process.under_way.fetch_sub(1, Ordering::Relaxed);
        // A turn is of no use to one that waits for a place, and those that wait keep their order.
        if self.process.has_room() || self.mount.waiting_for_place.load(Ordering::Relaxed) == 0 {
            self.mount.changed.notify_one();
        }
    }
}

/// A request that waits, counted for as long as this lives.
struct Waits<'a> {
    mount: &'a MountState,
    room: Room,
    /// Others waited when it came, so that it has not looked for room yet: what has become free is theirs.
    gives_way: bool,
}

impl<'a> Waits<'a> {
    fn at(mount: &'a MountState, room: Room) -> Waits<'a> {
        if room == Room::Place {
            mount.waiting_for_place.fetch_add(1, Ordering::Relaxed);
        }
        // Counted first: whoever of the others leaves behind this sees both.
        mount.giving_way.fetch_add(1, Ordering::AcqRel);
        let is_behind = mount.waiting.fetch_add(1, Ordering::AcqRel) > 0;
        let mut waits = Waits { mount, room, gives_way: true };
        if !is_behind || mount.processes().is_empty() {
            waits.looks();
        }
        waits
    }

    /// It gives way to nobody from here on.
    fn looks(&mut self) {
        if std::mem::take(&mut self.gives_way) {
            self.mount.giving_way.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.looks();
        let turns_count_again =
            self.room == Room::Place && self.mount.waiting_for_place.fetch_sub(1, Ordering::Relaxed) == 1;
        let leaves_others = self.mount.waiting.fetch_sub(1, Ordering::AcqRel) > 1;
        // One that gave way knows nothing of room that was there before it came. The others are told of each place once.
        let is_news = turns_count_again || self.mount.giving_way.load(Ordering::Acquire) > 0;
        if leaves_others && is_news && self.mount.has_room() {
            self.mount.changed.notify_one();
        }
    }
}

impl MountState {
    /// The process with the fewest requests, as soon as one has such room; those that wait come before newcomers.
    /// Waits at most for this time.
    pub async fn lease(self: &Arc<Self>, within: Duration, room: Room) -> Result<ProcessLease, MountTrouble> {
        if self.waiting() == 0
            && let Some(lease) = self.try_lease(room)?
        {
            return Ok(lease);
        }
        let mut waits = Waits::at(self, room);
        let deadline = Instant::now() + within;
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            // The first of those that wait may have been told of the room, and not have run yet.
            if !waits.gives_way
                && let Some(lease) = self.try_lease(room)?
            {
                if lease.is_ahead {
                    // There may be a turn for the next one too.
                    self.changed.notify_one();
                }
                return Ok(lease);
            }
            if timeout_at(deadline, changed).await.is_err() {
                return Err(match self.processes().is_empty() {
                    true => MountTrouble::Starting,
                    false => MountTrouble::Busy,
                });
            }
            waits.looks();
        }
    }

    /// A place in the process with the fewest requests, where one is free and nobody waits.
    pub fn lease_at_once(self: &Arc<Self>) -> Option<ProcessLease> {
        if self.waiting() > 0 {
            return None;
        }
        self.try_lease(Room::Place).ok()?
    }

    /// Waits until there is a process that serves, at most for this time.
    pub async fn ready(&self, within: Duration) -> Result<(), MountTrouble> {
        let deadline = Instant::now() + within;
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if !self.processes().is_empty() {
                return Ok(());
            }
            if let Some(why) = self.trouble() {
                return Err(MountTrouble::Failed(why));
            }
            timeout_at(deadline, changed).await.map_err(|_| MountTrouble::Starting)?;
        }
    }

    /// Whether a process has a place or a turn for one of those that wait.
    fn has_room(&self) -> bool {
        let may_turn = self.waiting_for_place.load(Ordering::Relaxed) == 0;
        let now = Instant::now();
        let processes = &self.serving.lock().processes;
        processes.iter().any(|process| process.has_room() || (may_turn && process.has_turn(now)))
    }

    fn try_lease(self: &Arc<Self>, room: Room) -> Result<Option<ProcessLease>, MountTrouble> {
        let serving = self.serving.lock();
        let free = serving.processes.iter().filter(|process| process.has_room());
        let mut found = free.min_by_key(|process| process.under_way());
        let is_ahead = found.is_none();
        if is_ahead && room == Room::PlaceOrTurn && self.waiting_for_place.load(Ordering::Relaxed) == 0 {
            let now = Instant::now();
            let quick = serving.processes.iter().filter(|process| process.has_turn(now));
            found = quick.min_by_key(|process| process.under_way());
        }
        let Some(process) = found else {
            return match &serving.failed {
                Some(why) if serving.processes.is_empty() => Err(MountTrouble::Failed(why.clone())),
                _ => Ok(None),
            };
        };
        // Under the lock, so that no two requests take the last place.
        process.under_way.fetch_add(1, Ordering::Relaxed);
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        let turn = process.turns.as_ref().map(|turns| turns.lock().join(Instant::now()));
        let (process, mount) = (Arc::clone(process), Arc::clone(self));
        Ok(Some(ProcessLease { process, mount, turn, is_ahead, is_answered: false }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Mounts;
    use super::*;
    use crate::config::application::Application;
    use crate::config::{Mount, Python};
    use larder_wire::Host;
    use std::task::{Context, Poll, Waker};
    use tokio::sync::mpsc;

    fn state() -> Arc<MountState> {
        let name = "wsgi:app:application";
        let application = Application::parse(name).unwrap();
        let mount =
            Mount { host: Host::local(name), application, python: Arc::new(Python::default()), routes: Vec::new() };
        Mounts::default().add(Arc::new(mount))
    }

    fn process(number: u64, requests_max: usize) -> (Arc<Process>, mpsc::Receiver<super::super::Faulty>) {
        let (nursery, told) = mpsc::channel(1);
        (Arc::new(Process::new(number, 4711, "/nowhere".into(), requests_max, nursery)), told)
    }

    const WITHIN: Duration = Duration::from_secs(5);

    /// The output of the future when it runs now, once.
    fn run_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        match std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_process_with_the_fewest_requests_gets_the_next_one() {
        let state = state();
        let ((one, _), (other, _)) = (process(1, 2), process(2, 2));
        state.serve_by(vec![Arc::clone(&one), Arc::clone(&other)]);
        let leases = [state.lease(WITHIN, Room::Place).await.unwrap(), state.lease(WITHIN, Room::Place).await.unwrap()];
        assert_eq!(leases.each_ref().map(|lease| lease.process().number), [1, 2]);
        let full = [state.lease(WITHIN, Room::Place).await.unwrap(), state.lease(WITHIN, Room::Place).await.unwrap()];
        assert!(matches!(state.lease(WITHIN, Room::Place).await, Err(MountTrouble::Busy)), "all places are taken");
        assert_eq!((one.under_way(), other.under_way()), (2, 2));
        let waits = {
            let state = Arc::clone(&state);
            tokio::spawn(async move { state.lease(WITHIN, Room::Place).await.map(|lease| lease.process().number) })
        };
        tokio::task::yield_now().await;
        assert_eq!(state.waiting(), 1);
        drop(full);
        assert_eq!(waits.await.unwrap(), Ok(1));
        drop(leases);
        assert_eq!((one.under_way(), other.under_way(), state.waiting()), (0, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_the_first_process_and_not_for_one_that_failed() {
        let state = state();
        assert!(matches!(state.lease(WITHIN, Room::Place).await, Err(MountTrouble::Starting)));
        let waits = {
            let state = Arc::clone(&state);
            tokio::spawn(async move { state.lease(WITHIN, Room::Place).await.map(|_| ()) })
        };
        tokio::task::yield_now().await;
        state.fail("no module named app".to_owned());
        assert_eq!(waits.await.unwrap(), Err(MountTrouble::Failed("no module named app".to_owned())));
        let (process, _told) = process(1, 1);
        state.serve_by(vec![process]);
        assert!(state.lease(WITHIN, Room::Place).await.is_ok() && state.trouble().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn no_newcomer_takes_the_place_of_one_that_waits() {
        let state = state();
        let (process, _told) = process(1, 1);
        state.serve_by(vec![process]);
        let held = state.lease(WITHIN, Room::Place).await.unwrap();
        let mut waits = Box::pin(state.lease(WITHIN, Room::PlaceOrTurn));
        assert!(run_once(&mut waits).is_none());
        drop(held);
        // It is told, and has not run yet.
        let mut newcomer = Box::pin(state.lease(WITHIN, Room::PlaceOrTurn));
        assert!(run_once(&mut newcomer).is_none(), "the place is not for it");
        let lease = run_once(&mut waits).expect("the place is for the first").unwrap();
        assert!(run_once(&mut newcomer).is_none());
        drop(lease);
        assert!(run_once(&mut newcomer).expect("the next one").is_ok());
        assert_eq!(state.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_leaves_without_its_place_leaves_it_to_the_next() {
        let state = state();
        let ((one, _), (other, _)) = (process(1, 1), process(2, 1));
        state.serve_by(vec![one]);
        let held = state.lease(WITHIN, Room::Place).await.unwrap();
        let mut leaves = Box::pin(state.lease(WITHIN, Room::Place));
        assert!(run_once(&mut leaves).is_none());
        // All are told of a new process at once, the one that comes afterwards is not.
        state.serve_by(vec![other]);
        let mut newcomer = Box::pin(state.lease(WITHIN, Room::Place));
        assert!(run_once(&mut newcomer).is_none());
        drop(leaves);
        assert_eq!(run_once(&mut newcomer).expect("room").map(|lease| lease.process().number), Ok(2));
        drop(held);
    }

    #[tokio::test]
    async fn a_process_that_hangs_is_named_once_and_gets_no_request() {
        let state = state();
        let (process, mut told) = process(7, 2);
        state.serve_by(vec![process]);
        let lease = state.lease(WITHIN, Room::Place).await.unwrap();
        lease.hangs();
        lease.hangs();
        assert_eq!(told.try_recv().map(|hung| hung.number), Ok(7));
        assert!(told.try_recv().is_err());
        assert!(matches!(state.lease(Duration::from_millis(1), Room::Place).await, Err(MountTrouble::Busy)));
    }

    /// A process that has shown that it is quick.
    async fn quick(state: &Arc<MountState>, process: &Arc<Process>) {
        state.serve_by(vec![Arc::clone(process)]);
        for _ in 0..64 {
            state.lease(WITHIN, Room::Place).await.unwrap().answered();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_quick_process_gets_requests_ahead_that_can_be_taken_back() {
        let (state, (process, _told)) = (state(), process(1, 1));
        quick(&state, &process).await;
        let first = state.lease(WITHIN, Room::PlaceOrTurn).await.unwrap();
        let second = state.lease(WITHIN, Room::PlaceOrTurn).await.unwrap();
        assert!(first.turn().is_none() && second.turn().is_some_and(|turn| !turn.has_come()));
        assert!(matches!(state.lease(WITHIN, Room::Place).await, Err(MountTrouble::Busy)), "no place is free");
        let turn = second.turn().unwrap();
        drop(first);
        assert!(turn.has_come());
        drop(second);
        assert_eq!(process.under_way(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_needs_a_place_is_not_passed_over() {
        let (state, (process, _told)) = (state(), process(1, 1));
        quick(&state, &process).await;
        let first = state.lease(WITHIN, Room::PlaceOrTurn).await.unwrap();
        let second = state.lease(WITHIN, Room::PlaceOrTurn).await.unwrap();
        let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let wait = |room, name: &'static str| {
            let (state, order) = (Arc::clone(&state), Arc::clone(&order));
            tokio::spawn(async move {
                let lease = state.lease(WITHIN, room).await.unwrap();
                order.lock().push(name);
                tokio::task::yield_now().await;
                drop(lease);
            })
        };
        let place = wait(Room::Place, "place");
        tokio::task::yield_now().await;
        let turn = wait(Room::PlaceOrTurn, "turn");
        tokio::task::yield_now().await;
        assert_eq!(state.waiting(), 2, "nobody gets a turn while one waits for a place");
        drop(first);
        tokio::task::yield_now().await;
        assert!(order.lock().is_empty(), "the second one has the process");
        drop(second);
        place.await.unwrap();
        turn.await.unwrap();
        assert_eq!(*order.lock(), ["place", "turn"]);
        assert_eq!((process.under_way(), state.waiting()), (0, 0));
    }
}
