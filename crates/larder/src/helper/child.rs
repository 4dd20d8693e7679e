//! The processes of one helper: how many there are, and what one of them is asked and answers.

use super::pool::{Conversation, HelperTrouble, Job, Load, Pool};
use crate::children::OwnChild;
use crate::clock;
use crate::config::Helper;
use crate::script::{environment_of, pass_log_on};
use larder_people::answer::{self, ANSWER_BYTES_MAX, Answer, Outcome};
use larder_people::line::with_channel;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeMap;
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

/// A process that ended sooner than this, and has not answered, is not replaced at once.
const QUICK_END: Duration = Duration::from_secs(5);

/// The first pause before such a process is replaced; it doubles each time.
const PAUSE: Duration = Duration::from_millis(200);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// So many processes that end at once, one after the other, say that none will do better.
const QUICK_ENDS_MAX: u32 = 3;

/// A process that is told to end has so long for it.
const END_WITHIN: Duration = Duration::from_secs(1);

/// Why a process ends.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// No question comes any more.
    Stopped,
    /// It ended by itself.
    Ended,
    /// It broke the rules, or was late.
    Trouble(HelperTrouble),
}

/// The history of a process that has ended.
struct Ended {
    lived: Duration,
    has_answered: bool,
    end: End,
}

/// Keeps as many processes as there is work for, until the helper is stopped and all of them have ended.
pub(super) async fn supervise(pool: Arc<Pool>) {
    let config = Arc::clone(pool.config());
    let mut children: JoinSet<io::Result<Ended>> = JoinSet::new();
    let (mut quick_ends, mut start_at) = (0_u32, None::<Instant>);
    loop {
        let load = pool.load();
        if load.is_stopped && children.is_empty() && (load.queued == 0 || start_at.is_some()) {
            return;
        }
        if start_at.is_none_or(|at| at <= clock::instant()) {
            start_at = None;
            for _ in 0..wanted(&load, children.len(), &config) {
                children.spawn_local(run(Arc::clone(&pool)));
            }
        }
        pool.counts.running.store(children.len(), Ordering::Relaxed);
        tokio::select! {
            Some(ended) = children.join_next() => {
                let is_quick = match ended {
                    Ok(Ok(Ended { lived, has_answered, end })) => {
                        if end != End::Stopped {
                            tracing::warn!("helper {}: a process ended ({end:?}); it is replaced", config.name);
                        }
                        !has_answered && lived < QUICK_END && end != End::Stopped
                    }
                    Ok(Err(error)) => {
                        // Its arguments may have a secret.
                        let program = config.command.first().map_or("", String::as_str);
                        tracing::error!("helper {}: cannot start {program}: {error}", config.name);
                        true
                    }
                    Err(_) => true,
                };
                quick_ends = if is_quick { quick_ends + 1 } else { 0 };
                if is_quick {
                    start_at = Some(clock::instant() + PAUSE_MAX.min(PAUSE * 2_u32.saturating_pow(quick_ends.min(10) - 1)));
                }
                pool.set_down(quick_ends >= QUICK_ENDS_MAX && children.is_empty());
            }
            () = pool.grow.notified() => {}
            () = sleep_until(start_at.unwrap_or_else(clock::instant).into()), if start_at.is_some() => {
                // One more is tried, and questions may wait for it.
                pool.set_down(false);
            }
        }
    }
}

/// How many processes to start now.
fn wanted(load: &Load, running: usize, config: &Helper) -> usize {
    if load.is_stopped {
        return usize::from(running == 0 && load.queued > 0);
    }
    let for_queue = load.queued.saturating_sub(load.waiting);
    let for_idle =
        if load.was_asked { config.idle.saturating_sub(load.waiting.saturating_sub(load.queued)) } else { 0 };
    let for_startup = config.startup.saturating_sub(running);
    for_queue.max(for_idle).max(for_startup).min(config.children_max.saturating_sub(running))
}

/// Starts a process and asks it until it ends.
async fn run(pool: Arc<Pool>) -> io::Result<Ended> {
    let config = pool.config();
    let (program, arguments) = config.command.split_first().ok_or(io::ErrorKind::NotFound)?;
    let began = clock::instant();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(environment_of(&config.inherit, &config.environment))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let (mut process, _own) = OwnChild::start(|| command.spawn(), Child::id)?;
    pool.counts.started.fetch_add(1, Ordering::Relaxed);
    let group = Group(process.id());
    if let Some(log) = process.stderr.take() {
        let (name, pool) = (format!("helper {}", config.name), Arc::clone(&pool));
        let label = format!("{name}[{}]", process.id().unwrap_or_default());
        tokio::task::spawn_local(async move { pass_log_on(log, &name, label, &pool.log).await });
    }
    let (Some(stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let mut asked = Asked {
        pool: &pool,
        out: Vec::new(),
        read: Vec::new(),
        pending: BTreeMap::new(),
        next_channel: 0,
        conversation: None,
        is_stopping: false,
        has_answered: false,
    };
    let end = asked.serve(stdin, stdout).await;
    let has_answered = asked.has_answered;
    asked.give_up(&end);
    end_process(&mut process, &end).await;
    drop(group);
    Ok(Ended { lived: clock::instant().saturating_duration_since(began), has_answered, end })
}

/// A process whose channel is closed ends by itself; one that broke the rules is not waited for.
async fn end_process(process: &mut Child, end: &End) {
    if *end == End::Stopped && timeout(END_WITHIN, process.wait()).await.is_ok() {
        return;
    }
    let _ = process.start_kill();
    let _ = timeout(END_WITHIN, process.wait()).await;
}

/// A process and all that it has started, killed when this is dropped.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// The questions to one process.
struct Asked<'a> {
    pool: &'a Pool,
    /// Bytes of questions that were not written yet.
    out: Vec<u8>,
    /// Bytes of answers that are not whole lines yet.
    read: Vec<u8>,
    /// Questions without an answer, by their channels.
    pending: BTreeMap<u32, Job>,
    next_channel: u32,
    /// The handshake for which the process is kept, and until when it is waited for.
    conversation: Option<(mpsc::Receiver<Job>, Instant)>,
    /// No further question comes: it ends with its last answer.
    is_stopping: bool,
    has_answered: bool,
}

impl Asked<'_> {
    async fn serve(&mut self, mut stdin: ChildStdin, mut stdout: ChildStdout) -> End {
        let width = self.pool.config().concurrency.max(1);
        loop {
            if let Err(trouble) = self.take_lines() {
                return End::Trouble(trouble);
            }
            if self.is_stopping && self.pending.is_empty() {
                return End::Stopped;
            }
            let give_up_at = self.pending.values().map(|job| job.give_up_at).min();
            let forget_at = self.conversation.as_ref().filter(|_| self.pending.is_empty()).map(|(_, until)| *until);
            let wake_at = give_up_at.or(forget_at);
            let takes_more = !self.is_stopping && self.pending.len() < width;
            tokio::select! {
                biased;
                read = stdout.read_buf(&mut self.read) => match read {
                    Ok(0) | Err(_) => return End::Ended,
                    Ok(_) => {}
                },
                wrote = stdin.write(&self.out), if !self.out.is_empty() => match wrote {
                    Ok(0) | Err(_) => return End::Ended,
                    Ok(bytes) => drop(self.out.drain(..bytes)),
                },
                // A process that is late with one answer would be late with the next one.
                () = sleep_until(wake_at.unwrap_or_else(clock::instant).into()), if wake_at.is_some() => {
                    match give_up_at {
                        Some(_) => return End::Trouble(HelperTrouble::Late),
                        None => self.conversation = None,
                    }
                }
                job = next(self.pool, &mut self.conversation), if takes_more => match job {
                    Next::Job(job) => self.put(job),
                    Next::ConversationIsOver => self.conversation = None,
                    Next::Stopped => self.is_stopping = true,
                },
            }
        }
    }

    /// The process has its whole time for an answer, however long the question has waited.
    fn put(&mut self, mut job: Job) {
        job.give_up_at = clock::instant() + self.pool.config().timeout;
        let channel = self.next_channel;
        let has_channels = self.pool.config().concurrency > 0;
        self.next_channel = self.next_channel.wrapping_add(1);
        self.out.extend_from_slice(&with_channel(has_channels.then_some(channel), &job.line));
        self.pending.insert(channel, job);
    }

    /// Takes the whole lines of the bytes that were read.
    fn take_lines(&mut self) -> Result<(), HelperTrouble> {
        let mut read = std::mem::take(&mut self.read);
        let mut taken = 0;
        while let Some(length) = read.get(taken..).and_then(|rest| memchr::memchr(b'\n', rest)) {
            if length > ANSWER_BYTES_MAX {
                return Err(HelperTrouble::Flood);
            }
            self.take_line(read.get(taken..taken + length).unwrap_or_default())?;
            taken += length + 1;
        }
        read.drain(..taken);
        let is_too_long = read.len() > ANSWER_BYTES_MAX;
        // Bytes to which no question belongs would be taken for the answer to the next one.
        let is_unasked = !read.is_empty() && self.pending.is_empty();
        self.read = read;
        if is_too_long || is_unasked { Err(HelperTrouble::Flood) } else { Ok(()) }
    }

    fn take_line(&mut self, line: &[u8]) -> Result<(), HelperTrouble> {
        let config = self.pool.config();
        let (channel, answer) =
            answer::parse(line, config.kind, config.concurrency > 0).map_err(HelperTrouble::Answer)?;
        let channel = match channel {
            Some(channel) => channel,
            None => *self.pending.keys().next().ok_or(HelperTrouble::Flood)?,
        };
        let job = self.pending.remove(&channel).ok_or(HelperTrouble::Flood)?;
        self.has_answered = true;
        let conversation = self.conversation_after(&answer);
        let _ = job.reply.send(Ok((answer, conversation)));
        Ok(())
    }

    /// The handshake goes on with this process, or it is free again.
    fn conversation_after(&mut self, answer: &Answer) -> Option<Conversation> {
        self.conversation = None;
        if answer.result != Outcome::Continues {
            return None;
        }
        let (send, receive) = mpsc::channel(1);
        self.conversation = Some((receive, clock::instant() + self.pool.config().timeout));
        Some(Conversation(send))
    }

    /// Questions that the process has not answered go to another one, once. Where it was late with one, that one has failed; where it broke
    /// the rules nobody knows by which question, and all have.
    fn give_up(self, end: &End) {
        let config = self.pool.config();
        let is_conversing = config.kind.is_stateful() && self.conversation.is_some();
        let now = clock::instant();
        for (_, job) in self.pending {
            let trouble = match end {
                End::Trouble(HelperTrouble::Late) if job.give_up_at > now => HelperTrouble::Ended,
                End::Trouble(trouble) => trouble.clone(),
                End::Ended | End::Stopped => HelperTrouble::Ended,
            };
            match trouble {
                HelperTrouble::Ended if !job.is_second && !is_conversing => {
                    self.pool.put_back(Job { is_second: true, give_up_at: now + config.timeout, ..job });
                }
                trouble => drop(job.reply.send(Err(trouble))),
            }
        }
    }
}

/// The next work of a process.
enum Next {
    Job(Job),
    ConversationIsOver,
    Stopped,
}

async fn next(pool: &Pool, conversation: &mut Option<(mpsc::Receiver<Job>, Instant)>) -> Next {
    match conversation {
        Some((jobs, _)) => jobs.recv().await.map_or(Next::ConversationIsOver, Next::Job),
        None => pool.next_job().await.map_or(Next::Stopped, Next::Job),
    }
}
