//! The record of a request that is under way, in the hands of whoever serves it.

use super::Worker;
use crate::record::{Record, Run};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::sync::Arc;

/// Owns the record of a request until it is told. Dropped before that (the client left, the time was up, the server went
/// down, a broken invariant unwound the task), the request is told as it stands: however it ends, it has one record.
///
/// A hit on the fast path does without: its record is begun and told in one call, with no wait between.
pub struct RecordGuard {
    /// `None` once it was told.
    record: Option<Box<Record>>,
    worker: Rc<Worker>,
    run: Option<Arc<Run>>,
}

impl RecordGuard {
    /// Takes charge of a record.
    pub fn new(worker: &Rc<Worker>, run: Option<&Arc<Run>>, record: Box<Record>) -> RecordGuard {
        RecordGuard { record: Some(record), worker: Rc::clone(worker), run: run.cloned() }
    }

    /// The request is over: its record goes where its readers look.
    pub fn tell(mut self) {
        self.tell_now();
    }

    fn tell_now(&mut self) {
        if let Some(record) = self.record.take() {
            self.worker.tell(self.run.as_deref(), record);
        }
    }
}

impl Deref for RecordGuard {
    type Target = Record;

    fn deref(&self) -> &Record {
        self.record.as_ref().expect("it is there until it is told, and telling it consumes the guard")
    }
}

impl DerefMut for RecordGuard {
    fn deref_mut(&mut self) -> &mut Record {
        self.record.as_mut().expect("it is there until it is told, and telling it consumes the guard")
    }
}

impl Drop for RecordGuard {
    fn drop(&mut self) {
        if let Some(record) = &mut self.record {
            record.breaks_off("aborted", "the request was given up before its end");
        }
        self.tell_now();
    }
}
