//! Certificates of sites, ordered from an authority by ACME (RFC 8555), kept and renewed (docs/acme.md).
//!
//! One thread, which no request and no start waits for, orders one certificate after the other. Certificates that are on disk are shown from
//! the start on, without a question to the authority.

mod client;
mod folder;
mod issued;
mod order;
mod schedule;
#[cfg(test)]
mod tests;

use crate::background;
use crate::caught;
use crate::clock;
use crate::config::{Acme, AcmeChallenge, Config};
use crate::tls::served::ServedCertificate;
use crate::tls::site_certificates::SiteCertificates;
use client::Heard;
use folder::Folder;
use issued::Issued;
use larder_wire::date::{self, Stamp};
use order::{Authority, Trouble, TroubleKind};
use parking_lot::Mutex;
use rustls::ClientConfig;
use schedule::Failures;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The schedule is looked at again at least so often, for the wall clock may step.
const LOOK_EVERY: Duration = Duration::from_secs(600);
/// How long the end of the thread is waited for.
const STOP_WITHIN: Duration = Duration::from_millis(500);

/// Keeps certificates of sites as the configuration wants them.
pub struct Keeper {
    work: Arc<Work>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Orders since the start, by their results.
#[derive(Debug, Default)]
pub struct OrderCounts {
    /// A certificate was issued.
    pub issued: AtomicU64,
    /// There was none.
    pub failed: AtomicU64,
    /// There was none, for the authority has had enough for now.
    pub limited: AtomicU64,
}

/// A certificate of sites, as operators are told of it.
#[derive(Clone, Debug)]
pub struct CertificateState {
    /// Its names.
    pub names: Vec<Arc<str>>,
    /// The certificate that is shown; `None` where none has been issued yet.
    pub served: Option<ServedCertificate>,
    /// When the next order is made.
    pub due: Stamp,
    /// Orders that have failed since the last one that did not.
    pub failures: u32,
    /// Why the last one failed.
    pub trouble: Option<String>,
}

struct Work {
    certificates: Arc<SiteCertificates>,
    tls: Arc<ClientConfig>,
    opened: Box<dyn Fn() + Send + Sync>,
    /// Where there is none of the configuration.
    folder: PathBuf,
    plan: Mutex<Plan>,
    /// The plan has changed.
    changed: Notify,
    /// The thread is to end.
    ends: Notify,
    counts: OrderCounts,
    restarts: AtomicU64,
}

/// All that is wanted.
#[derive(Default)]
struct Plan {
    has_ended: bool,
    acme: Acme,
    challenges: Vec<AcmeChallenge>,
    folder: Option<Folder>,
    kept: Vec<Kept>,
}

/// A certificate that is wanted.
struct Kept {
    names: Vec<Arc<str>>,
    issued: Option<Issued>,
    /// When it is ordered, if nothing fails.
    due: Stamp,
    failures: Failures,
    trouble: Option<Trouble>,
    /// When the authority is asked for its word about the renewal.
    asks_at: Stamp,
}

impl Kept {
    /// When the next order is made.
    fn next(&self) -> Stamp {
        self.due.max(Stamp(self.failures.until))
    }
}

/// The next work of the thread.
enum Turn {
    /// Nothing before that much time has passed.
    Wait(Duration),
    /// An order for these names, by this challenge.
    Order(Vec<Arc<str>>, AcmeChallenge),
    /// A question about the renewal of this certificate.
    Ask(Vec<Arc<str>>, Box<Issued>),
    End,
}

impl Keeper {
    /// Keeps none yet. `tls` verifies the authority, `opened` is called when a challenge that requests ask for was opened, and `folder` holds
    /// all of it where the configuration names no place.
    pub fn new(
        certificates: Arc<SiteCertificates>,
        tls: Arc<ClientConfig>,
        opened: impl Fn() + Send + Sync + 'static,
        folder: &Path,
    ) -> Keeper {
        let work = Work::new(certificates, tls, Box::new(opened), folder);
        Keeper { work: Arc::new(work), thread: Mutex::default() }
    }

    /// Keeps exactly the certificates that this configuration wants from now on. Those that are on disk are shown at once. Fails where there
    /// is no thread; then none is ordered.
    pub fn have(&self, config: &Config) -> io::Result<()> {
        let wanted = config.acme_certificates();
        let mut thread = self.thread.lock();
        if wanted.is_empty() && thread.is_none() {
            return Ok(());
        }
        self.work.have(config, wanted);
        if thread.is_none() {
            let work = Arc::clone(&self.work);
            *thread = Some(std::thread::Builder::new().name("acme".into()).spawn(move || run(&work))?);
        }
        self.work.changed.notify_one();
        Ok(())
    }

    /// How each certificate is.
    pub fn states(&self) -> Vec<CertificateState> {
        let plan = self.work.plan.lock();
        let file = |names: &[Arc<str>]| plan.folder.as_ref().map(|folder| folder.file(names)).unwrap_or_default();
        let state = |kept: &Kept| CertificateState {
            names: kept.names.clone(),
            served: kept.issued.as_ref().map(|issued| issued.served(file(&kept.names), &kept.names)),
            due: kept.next(),
            failures: kept.failures.count,
            trouble: kept.trouble.as_ref().map(|trouble| trouble.text.clone()),
        };
        plan.kept.iter().map(state).collect()
    }

    /// Orders since the start.
    pub fn counts(&self) -> &OrderCounts {
        &self.work.counts
    }

    /// How often an order met a broken invariant.
    pub fn restarts(&self) -> u64 {
        self.work.restarts.load(Ordering::Relaxed)
    }

    /// Ends the thread. An answer of the authority that is under way is not waited for for long.
    pub fn stop(&self) {
        self.work.plan.lock().has_ended = true;
        self.work.ends.notify_one();
        self.work.changed.notify_one();
        let Some(thread) = self.thread.lock().take() else { return };
        let end = Instant::now() + STOP_WITHIN;
        while !thread.is_finished() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A dropped server stops its thread too.
impl Drop for Keeper {
    fn drop(&mut self) {
        self.work.plan.lock().has_ended = true;
        self.work.ends.notify_one();
        self.work.changed.notify_one();
    }
}

/// A word to the operator about each certificate of the configuration that is not there, or was not renewed in time; no authority is asked.
pub fn notes(config: &Config) -> Vec<String> {
    let Some(all) = config.acme_folder() else { return Vec::new() };
    let folder = Folder::of(&all, &config.acme.directory);
    let note = |names: Vec<Arc<str>>| match folder.certificate(&names) {
        Err(trouble) => Some(format!("{trouble}; another one is ordered")),
        Ok(Some(issued)) if issued.is_late(clock::now()) => Some(format!(
            "the certificate for {} ends on {} and was not renewed: the log says why",
            names.join(", "),
            String::from_utf8_lossy(&date::format_date(issued.not_after))
        )),
        Ok(Some(_)) => None,
        Ok(None) => Some(format!(
            "there is no certificate for {} yet: Larder orders it from {} once it runs, and refuses TLS for it until then",
            names.join(", "),
            config.acme.directory_text()
        )),
    };
    config.acme_certificates().into_iter().filter_map(note).collect()
}

fn run(work: &Work) {
    background::lower_priority();
    match tokio::runtime::Builder::new_current_thread().enable_time().build() {
        Ok(runtime) => runtime.block_on(caught::again(&work.restarts, || work.keep())),
        Err(error) => tracing::error!("acme: no certificate is ordered, for there is no runtime: {error}"),
    }
}

impl Work {
    /// Nothing is wanted yet.
    fn new(
        certificates: Arc<SiteCertificates>,
        tls: Arc<ClientConfig>,
        opened: Box<dyn Fn() + Send + Sync>,
        folder: &Path,
    ) -> Work {
        Work {
            certificates,
            tls,
            opened,
            folder: folder.to_owned(),
            plan: Mutex::default(),
            changed: Notify::new(),
            ends: Notify::new(),
            counts: OrderCounts::default(),
            restarts: AtomicU64::new(0),
        }
    }

    fn have(&self, config: &Config, wanted: Vec<Vec<Arc<str>>>) {
        let folder = Folder::of(&config.acme_folder().unwrap_or_else(|| self.folder.clone()), &config.acme.directory);
        let now = clock::now();
        let mut plan = self.plan.lock();
        let mut old = std::mem::take(&mut plan.kept);
        let is_same = plan.folder.as_ref() == Some(&folder);
        for names in wanted {
            let known = old.iter().position(|kept| kept.names == names).map(|at| old.swap_remove(at));
            let kept = match known {
                Some(mut kept) if is_same => {
                    // A reload is a moment to try again where the authority has not been asked at all.
                    if kept.trouble.as_ref().is_some_and(|trouble| trouble.kind == TroubleKind::Unreachable) {
                        kept.failures.until = 0;
                    }
                    kept
                }
                // The certificate of another authority is shown until there is one of this.
                known => load(&folder, names, known.and_then(|kept| kept.issued), now),
            };
            plan.kept.push(kept);
        }
        plan.acme = config.acme.clone();
        plan.challenges = config.acme_challenges();
        plan.folder = Some(folder);
        self.show(&plan);
    }

    fn show(&self, plan: &Plan) {
        let key = |kept: &Kept| kept.issued.as_ref().map(|issued| Arc::clone(&issued.key));
        let all: Vec<_> = plan.kept.iter().map(|kept| (kept.names.clone(), key(kept))).collect();
        self.certificates.replace(&all);
    }

    /// Orders certificates until the end.
    async fn keep(&self) {
        loop {
            let turn = self.turn(clock::now());
            match turn {
                Turn::End => return,
                Turn::Wait(pause) => {
                    let _ = tokio::time::timeout(pause, self.changed.notified()).await;
                }
                Turn::Order(names, challenge) => {
                    let Some(authority) = self.begin(&names) else { continue };
                    tokio::select! {
                        result = caught::caught(authority.issue(&names, challenge)) => {
                            let broken = || Trouble { text: "a broken invariant was met".to_owned(), kind: TroubleKind::Refused };
                            self.done(&names, &authority.folder, result.unwrap_or_else(|| Err(broken())));
                        }
                        () = self.ends.notified() => return,
                    }
                }
                Turn::Ask(names, issued) => {
                    let Some(authority) = self.authority() else { continue };
                    tokio::select! {
                        suggested = caught::caught(authority.suggested(&issued)) => {
                            self.heard(&names, &authority.folder, &issued, suggested.flatten());
                        }
                        () = self.ends.notified() => return,
                    }
                }
            }
        }
    }

    /// The next work at this time. Sites without a certificate come first, then those that have waited for the longest time.
    fn turn(&self, now: Stamp) -> Turn {
        let plan = self.plan.lock();
        if plan.has_ended {
            return Turn::End;
        }
        let due = plan.kept.iter().filter(|kept| kept.next() <= now);
        if let Some(kept) = due.min_by_key(|kept| (kept.issued.is_some(), kept.next())) {
            // Where one challenge has failed the other one may not.
            let at = kept.failures.count as usize % plan.challenges.len().max(1);
            let challenge = plan.challenges.get(at).copied().unwrap_or(AcmeChallenge::Http01);
            return Turn::Order(kept.names.clone(), challenge);
        }
        let asks =
            plan.kept.iter().find_map(|kept| Some((kept, kept.issued.as_ref().filter(|_| kept.asks_at <= now)?)));
        if let Some((kept, issued)) = asks {
            return Turn::Ask(kept.names.clone(), Box::new(issued.clone()));
        }
        let moments = plan.kept.iter().flat_map(|kept| [Some(kept.next()), kept.issued.as_ref().map(|_| kept.asks_at)]);
        let first =
            moments.flatten().min().map_or(LOOK_EVERY, |first| Duration::from_secs(first.0.saturating_sub(now.0)));
        Turn::Wait(first.min(LOOK_EVERY))
    }

    fn authority(&self) -> Option<Authority<'_>> {
        let plan = self.plan.lock();
        Some(Authority {
            acme: plan.acme.clone(),
            folder: plan.folder.clone()?,
            tls: Arc::clone(&self.tls),
            certificates: Arc::clone(&self.certificates),
            opened: &*self.opened,
            heard: Arc::new(Heard::default()),
        })
    }

    /// Notes that an order begins. It counts as failed until it has not: a server that is killed again and again asks no more often than one
    /// whose orders fail.
    fn begin(&self, names: &[Arc<str>]) -> Option<Authority<'_>> {
        let authority = self.authority()?;
        let mut plan = self.plan.lock();
        let kept = plan.kept.iter_mut().find(|kept| kept.names == names)?;
        kept.failures = kept.failures.and_one(clock::now(), draw());
        authority.folder.keep_failures(names, kept.failures);
        Some(authority)
    }

    /// Takes the result of an order, unless a reload has named another authority since.
    fn done(&self, names: &[Arc<str>], folder: &Folder, result: Result<Issued, Trouble>) {
        let now = clock::now();
        let mut plan = self.plan.lock();
        if plan.folder.as_ref() != Some(folder) {
            return;
        }
        let Some(kept) = plan.kept.iter_mut().find(|kept| kept.names == names) else { return };
        let of = names.join(", ");
        match result {
            Ok(issued) => {
                self.counts.issued.fetch_add(1, Ordering::Relaxed);
                let end = String::from_utf8_lossy(&date::format_date(issued.not_after)).into_owned();
                tracing::info!("acme: there is a certificate for {of}, which ends on {end}");
                let soonest = schedule::soonest_after(now, issued.not_after);
                *kept = Kept::of(names.to_vec(), issued, now);
                kept.due = kept.due.max(soonest);
                self.show(&plan);
            }
            Err(trouble) => {
                let count = match trouble.kind {
                    TroubleKind::Limited(pause) => {
                        kept.failures = kept.failures.limited(now, pause);
                        &self.counts.limited
                    }
                    _ => &self.counts.failed,
                };
                count.fetch_add(1, Ordering::Relaxed);
                let pause = kept.next().0.saturating_sub(now.0);
                let until = match kept.issued {
                    Some(_) => "the one that is there counts on",
                    None => "TLS is refused for it until then",
                };
                tracing::warn!(
                    "acme: no certificate for {of}: {}; the next order is in {pause} s, {until}",
                    trouble.text
                );
                kept.trouble = Some(trouble);
            }
        }
        if let Some(kept) = plan.kept.iter().find(|kept| kept.names == names) {
            folder.keep_failures(names, kept.failures);
        }
    }

    /// Takes the word of the authority about a renewal, unless a reload has named another authority since.
    fn heard(&self, names: &[Arc<str>], folder: &Folder, issued: &Issued, suggested: Option<((i64, i64), Duration)>) {
        let now = clock::now();
        let mut plan = self.plan.lock();
        if plan.folder.as_ref() != Some(folder) {
            return;
        }
        let Some(kept) = plan.kept.iter_mut().find(|kept| kept.names == names) else { return };
        let said = suggested.map_or(Duration::ZERO, |(_, said)| said);
        kept.asks_at = schedule::question((issued.not_before, issued.not_after), now, Some(said), issued.draw);
        if let Some((window, _)) = suggested {
            // Its word may bring a renewal forward. It must not put one off until the certificate has ended.
            kept.due =
                schedule::in_window(window, issued.draw).min(schedule::renewal(issued.not_before, issued.not_after, 0));
        }
    }
}

impl Kept {
    /// A certificate that is there.
    fn of(names: Vec<Arc<str>>, issued: Issued, now: Stamp) -> Kept {
        Kept {
            due: schedule::renewal(issued.not_before, issued.not_after, issued.draw),
            asks_at: schedule::question((issued.not_before, issued.not_after), now, None, issued.draw),
            names,
            issued: Some(issued),
            failures: Failures::default(),
            trouble: None,
        }
    }
}

/// A certificate as it is on disk; `until_then` is shown until it is there.
fn load(folder: &Folder, names: Vec<Arc<str>>, until_then: Option<Issued>, now: Stamp) -> Kept {
    let failures = folder.failures(&names);
    match folder.certificate(&names) {
        Ok(Some(issued)) => Kept { failures, ..Kept::of(names, issued, now) },
        Ok(None) => {
            Kept { names, issued: until_then, due: Stamp(0), failures, trouble: None, asks_at: Stamp(u64::MAX) }
        }
        Err(trouble) => {
            tracing::warn!("acme: {trouble}; another certificate is ordered");
            let trouble = Some(Trouble { text: trouble, kind: TroubleKind::Refused });
            Kept { names, issued: until_then, due: Stamp(0), failures, trouble, asks_at: Stamp(u64::MAX) }
        }
    }
}

fn draw() -> u64 {
    RandomState::new().hash_one("acme")
}
