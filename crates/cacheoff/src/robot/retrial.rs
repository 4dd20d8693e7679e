//! Replies that are judged a second time. On one machine the journal knows of an answer before any byte of it arrives. The
//! notes of origins on other machines come a moment after the reply, so that its head is judged again when they are here;
//! the bytes of the body are judged as they arrive and never again.

use super::case::Turn;
use super::judge::Judge;
use super::{RobotSettings, Route};
use crate::journal::Journal;
use crate::object::Law;
use larder_wire::ResponseHead;

/// The facts that a second judgement needs of the first one.
#[derive(Debug)]
pub struct Retrial {
    pub(super) head: ResponseHead,
    pub(super) turns: Vec<Turn>,
    /// When the head was here, in seconds since 1970.
    pub(super) unix: u64,
    /// The judge after the last byte, where the body began, and whether the message was whole.
    pub(super) judge: Option<(Judge, u64, bool)>,
}

/// The rules and the journal of the run.
pub struct Bench<'a> {
    /// The object law.
    pub law: &'a Law,
    /// The robots.
    pub settings: &'a RobotSettings,
    /// Whom they speak to.
    pub route: &'a Route,
    /// The journal, with the notes of all machines.
    pub journal: &'a Journal,
}

impl Retrial {
    pub(super) fn of(head: &ResponseHead, turns: &[Turn], unix: u64) -> Box<Self> {
        Box::new(Self { head: head.clone(), turns: turns.to_vec(), unix, judge: None })
    }

    pub(super) fn keep(&mut self, judge: &Judge, began: u64, complete: bool) {
        let mut judge = judge.clone();
        judge.rest();
        self.judge = Some((judge, began, complete));
    }
}
