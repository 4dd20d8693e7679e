//! Attribution of replies: the class that a reply counts in, and why an offered hit is missing. The answer lies in the
//! verdict of the judge and in what the requests for the object before it came to.

use super::Settings;
use crate::journal::Journal;
use crate::ledger::{Kind, MissCause, Mode, Reply, Served, Trouble};
use crate::robot::{Job, Kindred, Pending, Report, Verdict, Wrong};
use std::time::Duration;

/// The worker at the moment of a reply.
pub(super) struct Moment<'a> {
    /// The run.
    pub settings: &'a Settings,
    /// The journal of the origins.
    pub journal: &'a Journal,
    /// Since the run began.
    pub now: Duration,
    /// In seconds since 1970.
    pub unix: u64,
}

/// A reply as the recorder counts it.
pub(super) struct Attributed<'a> {
    /// Its figures; `None` if it was never whole, so that neither its time nor its size says anything.
    pub reply: Option<Reply>,
    /// The lie or fault that the reply shows, if any.
    pub wrong: Option<&'a Wrong>,
    /// Bytes that the origin sent again although a cache could have kept them.
    pub bytes_again: u64,
    /// Bytes that count for the fill of the cache.
    pub fill_bytes: u64,
}

/// The meaning of a reply for the requests beside it, at its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closed {
    /// Another request may have brought the object in meanwhile.
    others_asked: bool,
    /// Why the hit is missing, if it is and was offered.
    missing: Option<MissCause>,
}

impl Moment<'_> {
    /// Notes what a reply means for those that follow.
    pub fn close(&self, report: &Report, pending: &mut Pending) -> Closed {
        let (job, verdict) = (&*report.job, &report.verdict);
        let others_asked = !pending.is_first(job.wish.name.fingerprint());
        let offered = self.settings.route.mode != Mode::NoProxy && job.wish.offered();
        // Where notes come later, a hit may turn out to be none.
        let may_be_missed = verdict.findings.served == Served::Miss || self.journal.is_linked();
        let missing = (offered && may_be_missed).then(|| self.cause(job, verdict, pending));
        // Only now: the cause lies in what was before this reply.
        close_case(job, verdict, pending);
        self.note_copy(job, verdict, pending);
        Closed { others_asked, missing }
    }

    /// Attributes a reply.
    pub fn attribute<'a>(&self, report: &'a Report, closed: Closed) -> Attributed<'a> {
        let (job, verdict) = (&*report.job, &report.verdict);
        let (wish, served) = (&job.wish, self.served(job, verdict));
        let excused = matches!(verdict.findings.wrong, Some((Trouble::FalseHit, _))) && closed.others_asked;
        let wrong = verdict.findings.wrong.as_ref().filter(|_| !excused);
        let missing = closed.missing.filter(|_| served == Served::Miss);
        let fills = wish.facts.cachable && served == Served::Miss && wish.kind == Kindred::Basic;
        let sent_again = matches!(missing, Some(MissCause::Evicted | MissCause::Unknown));
        Attributed {
            reply: (!verdict.broken_off).then(|| self.figures(report, served, missing)),
            wrong,
            bytes_again: if sent_again { verdict.body_bytes } else { 0 },
            fill_bytes: if fills { verdict.body_bytes } else { 0 },
        }
    }

    /// A hit on an answer that had not all left its origin when the request was sent waited for that fetch.
    fn served(&self, job: &Job, verdict: &Verdict) -> Served {
        let (served, echo) = (verdict.findings.served, verdict.findings.echo);
        let Some(echo) = echo.filter(|_| served == Served::Hit) else { return served };
        let left_later = u128::from(echo.at_us) >= job.sent.as_micros();
        match left_later || self.journal.was_under_way(echo.xact.number, job.sent) {
            true => Served::Collapsed,
            false => Served::Hit,
        }
    }

    fn figures(&self, report: &Report, served: Served, missing: Option<MissCause>) -> Reply {
        let (job, verdict) = (&*report.job, &report.verdict);
        let wish = &job.wish;
        Reply {
            kind: if wish.facts.redirects { Kind::Redirect } else { wish.kind.kind() },
            content: wish.name.content,
            status: verdict.findings.status,
            cachable: wish.facts.cachable,
            offered: wish.offered(),
            served,
            aborted: job.aborted,
            across: job.across(),
            behind: job.company.behind,
            head_bytes: report.head_bytes,
            body_bytes: verdict.body_bytes,
            response: self.now.saturating_sub(wish.intended),
            service: self.now.saturating_sub(job.started),
            first_byte: report.first_byte,
            wait: if wish.waited { job.taken.saturating_sub(wish.intended) } else { Duration::ZERO },
            missing,
            beside: job.beside,
        }
    }

    /// A whole copy that came from the origin is what later requests for the object are held against.
    fn note_copy(&self, job: &Job, verdict: &Verdict, pending: &mut Pending) {
        let wish = &job.wish;
        let whole = matches!(wish.kind, Kindred::Basic | Kindred::Reload) && verdict.whole && !job.aborted;
        if verdict.findings.served != Served::Miss || !whole {
            return;
        }
        let object = wish.name.fingerprint();
        pending.brought(object, job.started);
        if let Some((lifetime, _)) = self.settings.law.content(&wish.name).lifetime_s() {
            // A cache counts the age from when it asked (RFC 9111 section 4.2.3).
            pending.fresh(object, job.asked, lifetime);
        }
    }

    /// Why a hit that was offered is missing.
    fn cause(&self, job: &Job, verdict: &Verdict, pending: &Pending) -> MissCause {
        if matches!(verdict.findings.wrong, Some((Trouble::Refused, _))) {
            return MissCause::Refused;
        }
        if job.company.overlaps {
            return MissCause::OnItsWay;
        }
        let object = job.wish.name.fingerprint();
        if pending.is_void(object) {
            return MissCause::Purged;
        }
        let law = &self.settings.law;
        let expired = pending.is_expired(object, job.asked);
        if expired || law.version(&job.wish.name, &job.wish.facts, self.unix).modified >= law.epoch {
            return MissCause::Expired;
        }
        pending.cause(object)
    }
}

/// Notes what the reply to a request means for those that follow.
fn close_case(job: &Job, verdict: &Verdict, pending: &mut Pending) {
    let object = job.wish.name.fingerprint();
    if job.wish.kind == Kindred::Purge {
        if verdict.findings.wrong.is_none() {
            pending.purged(object, job.asked);
        }
        return pending.leave(object);
    }
    // The first question about an object that does not ask for all of it brings no copy.
    let has_copy = job.wish.kind != Kindred::Head && job.wish.kind.upload_bytes().is_none();
    let asks_all = verdict.findings.status == 200 && has_copy;
    let brings = job.wish.repeat || asks_all && !job.wish.client.logged_in;
    pending.done(object, verdict.whole && brings && !job.aborted, !job.wish.repeat);
}
