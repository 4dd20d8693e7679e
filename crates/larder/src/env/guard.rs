//! The record of a request that is under way.

use super::Env;
use crate::record::{Record, Run};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::sync::Arc;

/// Owns the record of a request until the request is over. Dropped before that (the client left, a time limit, the server
/// stops, a broken invariant unwound the task), the guard finishes the record as it stands: each request has one record,
/// however it ends.
///
/// A hit on the quick path has no guard: its record is begun and finished in one call, with no wait between.
pub struct RecordGuard {
    /// `None` once the record is finished.
    record: Option<Box<Record>>,
    env: Rc<Env>,
    run: Option<Arc<Run>>,
}

impl RecordGuard {
    /// Takes charge of a record.
    pub fn new(env: &Rc<Env>, run: Option<&Arc<Run>>, record: Box<Record>) -> RecordGuard {
        RecordGuard { record: Some(record), env: Rc::clone(env), run: run.cloned() }
    }

    /// Hands the record to a request that goes on without a wait, and so without a guard.
    pub fn into_record(mut self) -> Box<Record> {
        self.record.take().expect("the record is there until the guard is consumed")
    }

    /// The request is over: its record goes to its readers.
    pub fn finish(mut self) {
        self.finish_now();
    }

    fn finish_now(&mut self) {
        if let Some(record) = self.record.take() {
            self.env.finish(self.run.as_deref(), record);
        }
    }
}

impl Deref for RecordGuard {
    type Target = Record;

    fn deref(&self) -> &Record {
        self.record.as_ref().expect("the record is there until `finish`, which consumes the guard")
    }
}

impl DerefMut for RecordGuard {
    fn deref_mut(&mut self) -> &mut Record {
        self.record.as_mut().expect("the record is there until `finish`, which consumes the guard")
    }
}

impl Drop for RecordGuard {
    fn drop(&mut self) {
        if let Some(record) = &mut self.record {
            record.breaks_off("aborted", "the request was given up before its end");
        }
        self.finish_now();
    }
}
