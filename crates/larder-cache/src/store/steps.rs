//! A store without threads: its owner does the work of the writer and of the readers, step by step. A simulation on one thread can be
//! played again because of it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::folder::{Folder, Unthreaded};
use super::medium::Medium;
use super::{OpenFault, Settings, Store};

/// The work of one folder that waits to be done.
pub struct Steps(Unthreaded);

impl Steps {
    /// Does the first read that waits; false where none does.
    pub fn read(&mut self) -> bool {
        self.0.read()
    }

    /// Writes all that waits; false where nothing does.
    pub fn write(&mut self) -> bool {
        self.0.write()
    }

    /// Brings to disk what was written.
    pub fn sync(&mut self) {
        self.0.sync();
    }
}

impl Store {
    /// [`Store::open_media`] without threads. Nothing is read or written but what can be done at once and the steps that the caller
    /// has done.
    #[doc(hidden)]
    pub fn open_stepped(
        media: &[(PathBuf, Arc<dyn Medium>)],
        settings: &Settings,
    ) -> Result<(Arc<Store>, Vec<Steps>), OpenFault> {
        let mut steps = Vec::new();
        let store = Store::open_with(media, settings, |recovery, _, settings, _| {
            let (folder, work) = Folder::unthreaded(recovery, settings);
            steps.push(Steps(work));
            io::Result::Ok(folder)
        })?;
        Ok((store, steps))
    }
}

#[cfg(test)]
mod tests {
    use super::super::sim::SimDevice;
    use super::super::{HeadToStore, Put};
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn nothing_is_written_until_the_step_is_done() {
        let device: Arc<dyn Medium> = Arc::new(SimDevice::new(100_000_000));
        let (store, mut steps) = Store::open_stepped(&[("device".into(), device)], &Settings::small()).unwrap();
        let head = HeadToStore {
            key: "key".into(),
            variant: 0,
            id: store.new_id(),
            epoch: 0,
            length: Some(0),
            tags: Vec::new(),
            meta: "meta".into(),
            body: None,
        };
        let mut putting = pin!(store.put_head(head));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(putting.as_mut().poll(&mut cx).is_pending() && !steps[0].read());
        assert!(steps[0].write() && !steps[0].write());
        assert_eq!(putting.poll(&mut cx), Poll::Ready(Put::Stored));
        assert!(store.may_have(b"key"));
        steps[0].sync();
    }
}
