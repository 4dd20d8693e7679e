//! Hooks: a little logic of the operator's in Python, called for the requests of a site that their filters let through. They
//! run in processes of their own (`script`, `mount`); a worker has one connection to each process, on which many calls are
//! under way. A hook can change what is asked for and add to the key; it can take nothing out of the key that keeps
//! clients apart (decision 053).

pub mod decision;
pub mod frame;
mod known;
mod line;
mod memo;
mod note;
mod trouble;
mod verdict;

pub use crate::mount::Stage;
pub use decision::{
    FetchedEffects, FoundEffects, RequestEffects, RespondEffects, ScriptAnswer, ScriptFailure, change_fields,
};
pub use frame::{CallFacts, HitFacts};
pub use note::{HookNote, place_words};
pub use trouble::{CallTrouble, FailedCall, report};
pub use verdict::{HookContext, HookedVerdict, HooksRead, VERDICT_KEY_BYTES_MAX};

use crate::mount::{Asked, Hooks, MountState, ProcessLease, Room};
use decision::Failed;
use frame::{Reply, ReplyBody};
use known::KnownReplies;
use larder_wire::reading::Reading;
use larder_wire::{Fields, RequestHead, Url};
use line::{Answer, Asker, Line, NoReply};
use memo::Memo;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// How often a call may be made, when processes end because of other calls. Hooks are asked before anything of the request goes to an
/// origin, and before anything of an answer goes to its client or into the store, so that another process may be asked at every stage.
const TRIES_MAX: usize = 3;

/// How often hooks are looked up anew when their processes are replaced meanwhile.
const LOOKS_MAX: usize = 3;

/// How long a call may take with all that it waits for: the calls before it may each take their time.
fn patience(call_time: Duration) -> Duration {
    (call_time * 20).max(Duration::from_secs(1))
}

/// How long a request or an answer waits for hooks that are being loaded.
pub const LOAD_WAIT: Duration = Duration::from_secs(10);

/// The connections of one worker to processes of hooks, and the decisions that it remembers.
#[derive(Default)]
pub struct HookLines {
    lines: RefCell<HashMap<u64, Rc<Line>>>,
    requests: RefCell<Memo<Decided<RequestEffects>>>,
    found: RefCell<Memo<Decided<FoundEffects>>>,
    fetched: RefCell<Memo<Decided<FetchedEffects>>>,
    answers: RefCell<Memo<Decided<RespondEffects>>>,
    known: Known,
}

/// The replies that a worker has read before.
#[derive(Default)]
struct Known {
    requests: RefCell<KnownReplies<RequestEffects>>,
    found: RefCell<KnownReplies<FoundEffects>>,
    fetched: RefCell<KnownReplies<FetchedEffects>>,
    answers: RefCell<KnownReplies<RespondEffects>>,
}

/// The decisions of hooks at one stage.
pub trait Effects: Sized {
    /// When these hooks are called.
    const STAGE: Stage;

    /// Reads a decision, and the facts that the hooks looked at.
    fn read(json: &[u8]) -> Result<(Self, Vec<String>), ScriptFailure>;

    /// The decisions that a worker remembers.
    fn memo(lines: &HookLines) -> &RefCell<Memo<Decided<Self>>>;

    /// The replies that a worker knows.
    fn known(lines: &HookLines) -> &RefCell<KnownReplies<Self>>;

    /// The hook that decided or changed last, and its line.
    fn by(&self) -> Option<(u16, u32)>;

    /// Their work, in words.
    fn words(&self) -> Vec<String>;

    /// Bytes that they hold, about.
    fn bytes(&self) -> usize;
}

macro_rules! effects {
    ($($kind:ident $stage:ident $read:ident $memo:ident,)*) => {$(
        impl Effects for $kind {
            const STAGE: Stage = Stage::$stage;

            fn read(json: &[u8]) -> Result<($kind, Vec<String>), ScriptFailure> {
                decision::$read(json)
            }

            fn memo(lines: &HookLines) -> &RefCell<Memo<Decided<$kind>>> {
                &lines.$memo
            }

            fn known(lines: &HookLines) -> &RefCell<KnownReplies<$kind>> {
                &lines.known.$memo
            }

            fn by(&self) -> Option<(u16, u32)> {
                self.by
            }

            fn words(&self) -> Vec<String> {
                self.words()
            }

            fn bytes(&self) -> usize {
                self.bytes()
            }
        }
    )*};
}

effects! {
    RequestEffects Request of_request requests,
    FoundEffects Found of_found found,
    FetchedEffects Fetched of_fetched fetched,
    RespondEffects Respond of_respond answers,
}

/// A decision of hooks, and how it came about.
#[derive(Debug)]
pub struct Decided<E> {
    /// The decision.
    pub effects: Rc<E>,
    /// A note of it for the log and for explanations.
    pub note: HookNote,
    /// Until when it is remembered; `None` where processes were asked for this request.
    pub until: Option<Instant>,
}

impl<E> Clone for Decided<E> {
    fn clone(&self) -> Decided<E> {
        Decided { effects: Rc::clone(&self.effects), note: self.note.clone(), until: self.until }
    }
}

/// An answer about which hooks are asked.
pub struct AnswerFacts<'a> {
    /// The request, as `request` hooks have left it.
    pub request: &'a RequestHead,
    /// Its URL, as they have left it.
    pub url: &'a Url,
    /// The client.
    pub client: IpAddr,
    /// The name of the request.
    pub name: &'a str,
    /// The status and the fields of the answer.
    pub answer: (u16, &'a Fields),
    /// The facts about the stored response, at the stage `found`.
    pub hit: Option<&'a HitFacts>,
}

/// The path of a URL as an origin may read it; `None` where readers disagree.
pub fn read_path(path: &str) -> Option<String> {
    match Reading::of(path) {
        Reading::Path(read) => Some(String::from_utf8_lossy(&read).into_owned()),
        Reading::Climbs | Reading::Unreadable => None,
    }
}

/// A path as an origin may read it, where it is another one than the path as it was received: filters need not look at one path twice.
pub fn other_path<'a>(received: &str, read: Option<&'a str>) -> Option<&'a str> {
    read.filter(|read| *read != received)
}

impl HookLines {
    /// A remembered decision.
    pub fn remembered<E: Effects>(&self, hooks: &Arc<Hooks>, facts: &CallFacts<'_>) -> Option<Decided<E>> {
        hooks.remember(facts.hooks)?;
        let (decided, until) = E::memo(self).borrow().find(hooks, facts, Instant::now)?;
        Some(Decided { until: Some(until), ..decided })
    }

    /// Asks hooks about a request or an answer, after these tries. `hooks` are those whose places the facts name; `None` where another
    /// generation serves by now, so that the filters have to be asked anew.
    pub async fn ask<E: Effects>(
        &self,
        (mount, hooks): (&Arc<MountState>, &Arc<Hooks>),
        facts: &CallFacts<'_>,
        tries: Tries,
    ) -> Option<Result<Decided<E>, FailedCall>> {
        let began = tries.began.unwrap_or_else(Instant::now);
        let json = self.call(mount, hooks, facts, (tries.made, began)).await?;
        Some(self.decide((mount, hooks), facts, (json, began)))
    }

    /// Makes a call whose request goes on without a task; `None` where no process has room at once, or another generation serves by now.
    pub fn call_at_once(
        &self,
        (mount, hooks): (&Arc<MountState>, &Arc<Hooks>),
        facts: &CallFacts<'_>,
    ) -> Option<MadeCall> {
        let lease = mount.lease_at_once().filter(|lease| runs(lease, hooks))?;
        let call_time = mount.mount().python.hook_time;
        let line = self.line_to(&lease, call_time);
        let number = line.push(facts)?;
        let began = Instant::now();
        Some(MadeCall { line, call: (number, only_of(facts.hooks)), lease, began, until: began + patience(call_time) })
    }

    /// The decision of a call that has ended; `Err` where another process has to be asked, after these tries.
    pub fn decided<E: Effects>(
        &self,
        (mount, hooks): (&Arc<MountState>, &Arc<Hooks>),
        facts: &CallFacts<'_>,
        CallEnd { process, began, answer }: CallEnd,
    ) -> Result<Result<Decided<E>, FailedCall>, Tries> {
        match read_answer((mount, hooks, facts.hooks), process, answer) {
            Some(json) => Ok(self.decide((mount, hooks), facts, (json, began))),
            None => Err(Tries { made: 1, began: Some(began) }),
        }
    }

    /// Gives up the calls of requests without a task: the time to drain is over, and each of them gets one, to say so.
    pub fn give_up_requests(&self) {
        let lines: Vec<Rc<Line>> = self.lines.borrow().values().map(Rc::clone).collect();
        lines.iter().for_each(|line| line.give_up_requests());
    }

    /// Reads a decision, and remembers it where the hooks say so.
    fn decide<E: Effects>(
        &self,
        (mount, hooks): (&Arc<MountState>, &Arc<Hooks>),
        facts: &CallFacts<'_>,
        (json, began): (Result<Vec<u8>, CallTrouble>, Instant),
    ) -> Result<Decided<E>, FailedCall> {
        let failed = |trouble: CallTrouble| {
            report(mount, (hooks, facts), &trouble);
            FailedCall::of(trouble, E::STAGE, (hooks, facts.hooks)).took(began.elapsed())
        };
        let json = json.map_err(failed)?;
        let of_call = (hooks, facts.hooks);
        let remember = hooks.remember(facts.hooks);
        // A decision that is remembered is not made often, and needs the facts that were looked at.
        if remember.is_none()
            && let Some(decided) = E::known(self).borrow().find(of_call, &json)
        {
            return Ok(Decided { note: decided.note.took(began.elapsed()), ..decided });
        }
        let (effects, read) = E::read(&json).map_err(CallTrouble::Failed).map_err(failed)?;
        let note = HookNote::begin(E::STAGE, hooks, facts.hooks).by(hooks, effects.by(), &effects.words());
        let (bytes, now) = (effects.bytes(), Instant::now());
        let decided = Decided { effects: Rc::new(effects), note, until: None };
        if let Some(time) = remember {
            let note = HookNote { remembered: true, ..decided.note.clone() };
            let kept = Decided { effects: Rc::clone(&decided.effects), note, until: None };
            E::memo(self).borrow_mut().keep((hooks, facts), &read, (&kept, bytes), (now, time));
        } else {
            E::known(self).borrow_mut().keep(of_call, &json, &decided);
        }
        Ok(Decided { note: decided.note.took(now - began), ..decided })
    }

    /// Asks the hooks of a stage about an answer; `None` where no filter lets it through.
    pub async fn ask_about<E: Effects>(
        &self,
        mount: &Arc<MountState>,
        about: &AnswerFacts<'_>,
    ) -> Result<Option<Decided<E>>, FailedCall> {
        let began = Instant::now();
        let AnswerFacts { request, url, client, name, answer, hit } = *about;
        let path = url.path.split('?').next().unwrap_or_default();
        let read = read_path(path);
        let method = request.method.as_str();
        for _ in 0..LOOKS_MAX {
            let Some(hooks) = mount.hooks() else {
                if let Err(trouble) = mount.ready(LOAD_WAIT).await {
                    let trouble = CallTrouble::of_load(trouble);
                    return Err(FailedCall::without_hooks(trouble, E::STAGE, mount).took(began.elapsed()));
                }
                continue;
            };
            let called = hooks.called_for(&Asked {
                stage: E::STAGE,
                method,
                host: &url.host,
                paths: [Some(path), other_path(path, read.as_deref())],
                fields: &request.fields,
                status: Some(answer.0),
            });
            if called.is_empty() {
                return Ok(None);
            }
            let of_request = CallFacts::of(E::STAGE, (request, url, client), (&called, name));
            let facts = CallFacts { answer: Some(answer), hit, ..of_request };
            if let Some(decided) = self.remembered(&hooks, &facts) {
                return Ok(Some(decided));
            }
            if let Some(decided) = self.ask((mount, &hooks), &facts, Tries::default()).await {
                return decided.map(Some);
            }
        }
        Err(FailedCall::without_hooks(CallTrouble::Busy, E::STAGE, mount).took(began.elapsed()))
    }

    /// The JSON of the decision. A process that ends before it has begun with the call leaves it to another one.
    async fn call(
        &self,
        mount: &Arc<MountState>,
        hooks: &Arc<Hooks>,
        facts: &CallFacts<'_>,
        (made, began): (usize, Instant),
    ) -> Option<Result<Vec<u8>, CallTrouble>> {
        // The filters are known while no process serves, and those that let the request through make it wait.
        if !mount.serves()
            && let Err(trouble) = mount.ready(LOAD_WAIT).await
        {
            return Some(Err(CallTrouble::of_load(trouble)));
        }
        let call_time = mount.mount().python.hook_time;
        let until = (if made == 0 { Instant::now() } else { began }) + patience(call_time);
        for _ in made..TRIES_MAX {
            let lease = match mount.lease(until.saturating_duration_since(Instant::now()), Room::Place).await {
                Ok(lease) => lease,
                Err(trouble) => return Some(Err(CallTrouble::of_load(trouble))),
            };
            if !runs(&lease, hooks) {
                return None;
            }
            let process = ProcessName::of(&lease);
            let line = self.line_to(&lease, call_time);
            let Some(number) = line.push(facts) else { return Some(Err(CallTrouble::TooLarge)) };
            let (asker, answer) = oneshot::channel();
            line.answer_to((number, only_of(facts.hooks)), lease, until, Asker::Waits(asker));
            let Ok(answer) = answer.await else { continue };
            if let Some(json) = read_answer((mount, hooks, facts.hooks), process, answer) {
                return Some(json);
            }
        }
        Some(Err(CallTrouble::Busy))
    }

    fn line_to(&self, lease: &ProcessLease, call_time: Duration) -> Rc<Line> {
        let process = lease.process();
        let mut lines = self.lines.borrow_mut();
        if let Some(line) = lines.get(&process.number).filter(|line| line.is_open()) {
            return Rc::clone(line);
        }
        lines.retain(|_, line| line.is_open());
        let line = Line::open(process, call_time);
        lines.insert(process.number, Rc::clone(&line));
        line
    }
}

/// Calls that were made for a request before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tries {
    made: usize,
    /// When the first one began.
    began: Option<Instant>,
}

/// A call that was made, for a request without a task.
#[must_use]
pub struct MadeCall {
    line: Rc<Line>,
    /// Its number, and the hook where it is only one.
    call: (u32, Option<u16>),
    lease: ProcessLease,
    began: Instant,
    until: Instant,
}

impl MadeCall {
    /// Has the request go on by this function when the call has ended. Where the worker ends before, the function is dropped.
    pub fn then(self, go_on: impl FnOnce(CallEnd) + 'static) {
        let MadeCall { line, call, lease, began, until } = self;
        let process = ProcessName::of(&lease);
        let go_on = move |answer| go_on(CallEnd { process, began, answer });
        line.answer_to(call, lease, until, Asker::GoesOn(Box::new(go_on)));
    }
}

/// The end of a call.
pub struct CallEnd {
    process: ProcessName,
    began: Instant,
    answer: Answer,
}

/// A process after its place was given back.
#[derive(Clone, Copy)]
struct ProcessName {
    number: u64,
    pid: u32,
}

impl ProcessName {
    fn of(lease: &ProcessLease) -> ProcessName {
        ProcessName { number: lease.process().number, pid: lease.process().pid }
    }
}

/// The JSON in an answer to a call of these hooks; `None` where another process is to be asked.
fn read_answer(
    (mount, hooks, called): (&MountState, &Hooks, &[u16]),
    process: ProcessName,
    answer: Answer,
) -> Option<Result<Vec<u8>, CallTrouble>> {
    Some(match answer {
        Ok(Reply { nanos, body }) => {
            hooks.took(called, &nanos);
            match body {
                ReplyBody::GoOn(json) | ReplyBody::Decision(json) => Ok(json),
                ReplyBody::Failed(json) => Err(match decision::of_failure(&json) {
                    Failed::Raised(failure, exception) => CallTrouble::Raised(failure, exception),
                    Failed::Ambiguous(cookie) => CallTrouble::Ambiguous(cookie),
                    Failed::Unread(failure) => CallTrouble::Failed(failure),
                }),
            }
        }
        Err(NoReply::NotBegun | NoReply::Unconnected) => return None,
        Err(NoReply::Late(hook)) => Err(CallTrouble::Late { pid: process.pid, hook }),
        // A process whose place another generation has taken closes its connections when it has answered. A call that is known to have run
        // when its process ended would end the next one too.
        Err(NoReply::Ended(None)) if !mount.processes().iter().any(|one| one.number == process.number) => return None,
        Err(NoReply::Ended(hook)) => Err(CallTrouble::Ended(hook)),
        Err(NoReply::Busy) => Err(CallTrouble::Busy),
    })
}

/// Whether the process of a lease runs this version of hooks.
fn runs(lease: &ProcessLease, hooks: &Arc<Hooks>) -> bool {
    lease.process().hooks.as_ref().is_some_and(|own| Arc::ptr_eq(own, hooks))
}

fn only_of(called: &[u16]) -> Option<u16> {
    if let [only] = called { Some(*only) } else { None }
}
