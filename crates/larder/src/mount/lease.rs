//! The right to have one request under way in a process of an application.

use super::{MountState, Process, Spool};
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

/// A place in a process, free again when this is dropped.
pub struct ProcessLease {
    process: Arc<Process>,
    mount: Arc<MountState>,
}

impl ProcessLease {
    /// The process.
    pub fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// The time from the end of a request to the head of its answer.
    pub fn request_time(&self) -> Duration {
        self.mount.request_time()
    }

    /// The buffer for what its client has not taken yet of the answer; `None` where it may hold the place.
    pub fn answer_spool(&self, client: Option<Client>) -> Option<Spool> {
        self.mount.answer_spool(client)
    }

    /// The process has ended, or closed its connections: it gets no further request.
    pub fn is_gone(&self) {
        self.process.is_hung.store(true, Ordering::Relaxed);
    }

    /// The request goes on although its time is over: the process is to be ended.
    pub fn hangs(&self) {
        self.process.hangs();
    }
}

impl Drop for ProcessLease {
    fn drop(&mut self) {
        self.process.under_way.fetch_sub(1, Ordering::Relaxed);
        self.mount.changed.notify_one();
    }
}

/// A request that waits, counted for as long as this lives.
struct Waits<'a>(&'a MountState);

impl<'a> Waits<'a> {
    fn at(mount: &'a MountState) -> Waits<'a> {
        mount.waiting.fetch_add(1, Ordering::Relaxed);
        Waits(mount)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl MountState {
    /// The process with the fewest requests, as soon as one has room; those that wait come before newcomers.
    /// Waits at most for this time.
    pub async fn lease(self: &Arc<Self>, within: Duration) -> Result<ProcessLease, MountTrouble> {
        if self.waiting() == 0
            && let Some(lease) = self.try_lease()?
        {
            return Ok(lease);
        }
        let _waits = Waits::at(self);
        let deadline = Instant::now() + within;
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            if let Some(lease) = self.try_lease()? {
                return Ok(lease);
            }
            if timeout_at(deadline, changed).await.is_err() {
                return Err(match self.processes().is_empty() {
                    true => MountTrouble::Starting,
                    false => MountTrouble::Busy,
                });
            }
        }
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

    fn try_lease(self: &Arc<Self>) -> Result<Option<ProcessLease>, MountTrouble> {
        let serving = self.serving.lock();
        let free = serving.processes.iter().filter(|process| process.has_room());
        let Some(process) = free.min_by_key(|process| process.under_way()) else {
            return match &serving.failed {
                Some(why) if serving.processes.is_empty() => Err(MountTrouble::Failed(why.clone())),
                _ => Ok(None),
            };
        };
        // Under the lock, so that no two requests take the last place.
        process.under_way.fetch_add(1, Ordering::Relaxed);
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        Ok(Some(ProcessLease { process: Arc::clone(process), mount: Arc::clone(self) }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Mounts;
    use super::*;
    use crate::config::application::Application;
    use crate::config::{Mount, Python};
    use larder_wire::Host;
    use tokio::sync::mpsc;

    fn state() -> Arc<MountState> {
        let name = "wsgi:app:application";
        let application = Application::parse(name).unwrap();
        let mount =
            Mount { host: Host::local(name), application, python: Arc::new(Python::default()), routes: Vec::new() };
        Mounts::default().add(Arc::new(mount))
    }

    fn process(number: u64, requests_max: usize) -> (Arc<Process>, mpsc::Receiver<super::super::Hung>) {
        let (nursery, told) = mpsc::channel(1);
        (Arc::new(Process::new(number, 4711, "/nowhere".into(), requests_max, nursery)), told)
    }

    const WITHIN: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn the_process_with_the_fewest_requests_gets_the_next_one() {
        let state = state();
        let ((one, _), (other, _)) = (process(1, 2), process(2, 2));
        state.serve_by(vec![Arc::clone(&one), Arc::clone(&other)]);
        let leases = [state.lease(WITHIN).await.unwrap(), state.lease(WITHIN).await.unwrap()];
        assert_eq!(leases.each_ref().map(|lease| lease.process().number), [1, 2]);
        let full = [state.lease(WITHIN).await.unwrap(), state.lease(WITHIN).await.unwrap()];
        assert!(matches!(state.lease(WITHIN).await, Err(MountTrouble::Busy)), "all places are taken");
        assert_eq!((one.under_way(), other.under_way()), (2, 2));
        let waits = {
            let state = Arc::clone(&state);
            tokio::spawn(async move { state.lease(WITHIN).await.map(|lease| lease.process().number) })
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
        assert!(matches!(state.lease(WITHIN).await, Err(MountTrouble::Starting)));
        let waits = {
            let state = Arc::clone(&state);
            tokio::spawn(async move { state.lease(WITHIN).await.map(|_| ()) })
        };
        tokio::task::yield_now().await;
        state.fail("no module named app".to_owned());
        assert_eq!(waits.await.unwrap(), Err(MountTrouble::Failed("no module named app".to_owned())));
        let (process, _told) = process(1, 1);
        state.serve_by(vec![process]);
        assert!(state.lease(WITHIN).await.is_ok() && state.trouble().is_none());
    }

    #[tokio::test]
    async fn a_process_that_hangs_is_named_once_and_gets_no_request() {
        let state = state();
        let (process, mut told) = process(7, 2);
        state.serve_by(vec![process]);
        let lease = state.lease(WITHIN).await.unwrap();
        lease.hangs();
        lease.hangs();
        assert_eq!(told.try_recv().map(|hung| hung.number), Ok(7));
        assert!(told.try_recv().is_err());
        assert!(matches!(state.lease(Duration::from_millis(1)).await, Err(MountTrouble::Busy)));
    }
}
