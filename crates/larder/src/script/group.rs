//! The processes of one application, in generations: a new one begins where settings or files have changed, and takes the place of
//! the old one when it is ready. One that can't load the application leaves the old one in its place.

mod faults;
mod member;

use super::cgroups::{ControlGroup, ControlGroups, GroupLimits};
use super::control::{LoadFailure, Message, Ready};
use super::descendants;
use super::files::ScriptFolder;
use super::kept::KeptVersion;
use super::process::{self, ChildGuard, Event, Happened, Started};
use super::watched::Watched;
use crate::clock;
use crate::config::Mount;
use crate::config::application::Interface;
use crate::config::python::ReloadAt;
use crate::mount::{Declared, FailedLoad, Faulty, Hooks, MountState, Process, Version};
use member::{Member, Phase};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Time for an application to be imported.
const LOAD_WITHIN: Duration = Duration::from_secs(120);

/// A process that ended sooner than this is not replaced at once a second time.
const QUICK_END: Duration = Duration::from_secs(5);

/// The first pause before such a process is replaced; it doubles each time.
const PAUSE: Duration = Duration::from_millis(200);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Files of one application that are watched.
const FILES_MAX: usize = 4_096;

/// The means that groups share.
pub(super) struct Means {
    pub folder: ScriptFolder,
    pub events: mpsc::Sender<Event>,
    pub faulty: mpsc::Sender<Faulty>,
    /// The numbers of processes that were given out.
    pub numbers: std::cell::Cell<u64>,
    /// The control groups of processes, or why there are none.
    pub control_groups: Result<ControlGroups, String>,
}

impl Means {
    /// The guard that bounds the children of a process that starts now.
    fn child_guard(&self) -> ChildGuard {
        match &self.control_groups {
            Ok(groups) if groups.bounds_children() => ChildGuard::ControlGroup,
            _ => ChildGuard::Keeper,
        }
    }
}

/// The processes of one application.
pub(super) struct Group {
    means: Rc<Means>,
    pub mount: Arc<Mount>,
    pub state: Arc<MountState>,
    generation: u64,
    members: Vec<Member>,
    /// How many processes ended quickly, one after the other.
    quick_ends: u32,
    /// When the next one may start.
    start_at: Option<Instant>,
    /// The files of the generation that serves, and when each was changed.
    files: BTreeMap<PathBuf, Option<SystemTime>>,
    /// The generation that these files are those of.
    files_of: u64,
    /// Further files, as they were before the newest generation began.
    watched: Watched,
    /// The hooks of the newest generation that was ready, with their declarations.
    hooks: Option<(u64, Vec<Declared>, Arc<Hooks>)>,
    /// The files of that generation as it has loaded them; `None` where they have changed meanwhile, and for applications.
    kept: Option<KeptVersion>,
    is_stopping: bool,
}

impl Group {
    /// Starts the processes of an application.
    pub fn start(means: Rc<Means>, mount: Arc<Mount>, state: Arc<MountState>) -> Group {
        let mut group = Group {
            means,
            mount,
            state,
            generation: 1,
            members: Vec::new(),
            quick_ends: 0,
            start_at: None,
            files: BTreeMap::new(),
            files_of: 0,
            watched: Watched::default(),
            hooks: None,
            kept: None,
            is_stopping: false,
        };
        group.state.note(|report| report.generation = 1);
        group.watch();
        group.fill();
        group
    }

    /// Whether this process is one of the application's.
    pub fn has(&self, number: u64) -> bool {
        self.members.iter().any(|member| member.number == number)
    }

    /// Whether all of its processes have ended.
    pub fn is_over(&self) -> bool {
        self.members.is_empty()
    }

    /// Takes an event of one of its processes.
    pub fn take(&mut self, event: Event) {
        match event.what {
            Happened::Said(Message::Ready(ready)) => self.ready(event.number, ready),
            Happened::Said(Message::Files(files)) => self.imported(event.number, files.files),
            Happened::Said(Message::Failed(failure)) => self.failed_to_load(event.number, failure),
            Happened::Said(Message::Error(failure)) => {
                let request = [&failure.method, &failure.target, &failure.request].map(String::as_str).join(" ");
                let (name, traceback) = (&self.mount.application.name, failure.traceback.trim_end());
                match self.state.log.take((request.len() + traceback.len()) as u64, Instant::now()) {
                    true => tracing::error!("{name}: {request}\n{traceback}"),
                    false => self.state.log.leave_out((request.len() + traceback.len()) as u64),
                }
                match self.mount.application.interface {
                    // The worker that called them counts it.
                    Interface::Hooks => self.state.note_failure(failure),
                    Interface::Wsgi | Interface::Asgi => self.state.failed(failure),
                }
            }
            Happened::WasAt(frames) => self.was_at(event.number, &frames),
            Happened::Ended(ended) => {
                let status = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
                self.ended(event.number, &status);
            }
        }
    }

    /// Puts other settings in force.
    pub fn configure(&mut self, mount: Arc<Mount>) {
        if *self.mount == *mount {
            return;
        }
        self.mount = Arc::clone(&mount);
        self.state.configure(mount);
        self.begin_anew();
    }

    /// Begins a new generation if a file has changed, or if the application could not be loaded.
    pub fn reload(&mut self) {
        if self.state.has_load_failure() || self.has_changed() {
            self.begin_anew();
        }
    }

    /// Lets all processes end the requests that they have.
    pub fn stop(&mut self) {
        self.is_stopping = true;
        self.state.serve_by(Vec::new());
        let until = Instant::now() + self.mount.python.request_time;
        self.members.iter_mut().for_each(|member| member.drain(until));
    }

    /// Kills all processes.
    pub fn kill(&mut self) {
        self.is_stopping = true;
        self.members.iter_mut().for_each(Member::kill);
    }

    /// Does what is due at this time.
    pub fn tick(&mut self) {
        let now = Instant::now();
        let mut slow = None;
        for member in &mut self.members {
            match member.phase {
                Phase::Draining(until) if now >= until => member.kill(),
                Phase::Loading if now >= member.began + LOAD_WITHIN => slow = Some(member.number),
                _ => {}
            }
        }
        if let Some(number) = slow {
            let hint = format!("the application was not imported within {} s", LOAD_WITHIN.as_secs());
            self.failed_to_load(number, LoadFailure::of(hint));
        }
        self.tell_late_loads();
        if let Some(bytes) = self.state.log.to_tell(now) {
            process::tell_left_out(&self.mount.application.name, bytes);
        }
        // Where nothing serves, the next try reads the files as they are in any case: but not that of a version that is kept.
        let is_kept = self.kept.as_ref().is_some_and(|kept| kept.generation == self.generation);
        let waits_to_try = !is_kept && self.start_at.is_some() && !self.is_serving(self.generation);
        let is_at_change = self.mount.python.reload == ReloadAt::Change || waits_to_try;
        if is_at_change && !self.is_stopping && self.has_changed() {
            tracing::info!("{}: a file has changed, the processes begin anew", self.mount.application.name);
            self.begin_anew();
        }
        self.fill();
    }

    /// Looks for the processes that each process has started, and ends one that has too many.
    pub fn count_descendants(&mut self) {
        let max = self.mount.python.children_max;
        let beside = usize::from(self.means.child_guard() == ChildGuard::Keeper);
        let mut crowded = Vec::new();
        for member in self.members.iter_mut().filter(|member| !matches!(member.phase, Phase::Killed)) {
            member.descendants = descendants::below([member.pid], max + beside + 1);
            if member.descendants.len() > max + beside {
                crowded.push(member.number);
            }
        }
        crowded.into_iter().for_each(|number| self.end_crowded(number));
    }

    /// A process has started too many others: all of them are ended.
    fn end_crowded(&mut self, number: u64) {
        let Some(member) = self.members.iter_mut().find(|member| member.number == number) else { return };
        let (name, max) = (&self.mount.application.name, self.mount.python.children_max);
        let why = format!("it started more than {max} processes (`children`), and was ended with them");
        tracing::error!("{name}[{}]: {why}", member.pid);
        if matches!(member.phase, Phase::Loading) {
            return self.failed_to_load(number, LoadFailure::of(why));
        }
        member.kill();
        self.state.counts.ended.fetch_add(1, Ordering::Relaxed);
        self.pause();
        self.publish();
    }

    fn has_changed(&mut self) -> bool {
        let python = &self.mount.python;
        self.files.iter().any(|(path, before)| process::changed_at(path) != *before)
            || self.watched.has_changed(&python.folder, &python.watch)
    }

    /// Notes the files that are watched, as they are now.
    fn watch(&mut self) {
        let (name, python) = (&self.mount.application.name, &self.mount.python);
        let before = self.watched.is_cut();
        self.watched = Watched::look(&python.folder, &python.watch);
        if self.watched.is_cut() && !before {
            let folder = python.folder.display();
            tracing::warn!("{name}: `watch` matches more below {folder} than can be watched: name fewer folders");
        }
    }

    fn begin_anew(&mut self) {
        let older = self.generation;
        // Of a generation that has not begun to serve nothing is needed any more.
        if !self.is_serving(older) {
            self.of(older).for_each(Member::kill);
        }
        self.generation = self.state.report().generation + 1;
        let generation = self.generation;
        self.state.note(|report| report.generation = generation);
        (self.quick_ends, self.start_at) = (0, None);
        // Until the new generation is ready, only a further change begins a third one.
        for (path, at) in &mut self.files {
            *at = process::changed_at(path);
        }
        self.watch();
        self.fill();
    }

    fn of(&mut self, generation: u64) -> impl Iterator<Item = &mut Member> {
        self.members.iter_mut().filter(move |member| member.generation == generation)
    }

    fn is_serving(&self, generation: u64) -> bool {
        self.members.iter().any(|member| member.generation == generation && matches!(member.phase, Phase::Ready(_)))
    }

    /// Starts processes until there are as many as are configured.
    fn fill(&mut self) {
        if self.is_stopping || self.start_at.is_some_and(|at| Instant::now() < at) {
            return;
        }
        self.start_at = None;
        self.leave_lost_version();
        let wanted = self.mount.python.processes + self.mount.python.standby;
        let generation = self.generation;
        let kept = self.kept.as_ref().filter(|kept| kept.generation == generation);
        let kept = kept.map(|kept| kept.folder().to_owned());
        let here = self.of(generation).filter(|member| member.is_of_use()).count();
        for _ in here..wanted {
            let number = self.means.numbers.get() + 1;
            self.means.numbers.set(number);
            let guard = self.means.child_guard();
            let source = process::Source { folder: &self.means.folder, kept: kept.as_deref() };
            match process::start(&self.state, (number, guard), &source, self.means.events.clone()) {
                Ok(started) => self.started(started, kept.is_some()),
                Err(error) => {
                    let program = process::interpreter(&self.mount);
                    let why = format!("{} in {}: {error}", program.display(), self.mount.python.folder.display());
                    let hint = "set `interpreter` and `folder` of its [[python]]".to_owned();
                    return self.cannot_load(LoadFailure { hint, ..LoadFailure::of(format!("cannot start {why}")) });
                }
            }
        }
    }

    /// A version before the newest goes on for as long as it can: where none of its processes is left and its files are not kept, all
    /// that can be tried is the newest.
    fn leave_lost_version(&mut self) {
        let (generation, newest) = (self.generation, self.state.newest());
        let is_kept = self.kept.as_ref().is_some_and(|kept| kept.generation == generation);
        if generation < newest && !is_kept && !self.of(generation).any(|member| member.is_of_use()) {
            self.generation = newest;
        }
    }

    fn started(&mut self, started: Started, is_of_copy: bool) {
        let Started { number, pid, socket, running } = started;
        self.state.counts.started.fetch_add(1, Ordering::Relaxed);
        let (generation, began, began_at) = (self.generation, Instant::now(), wall_time());
        let control_group = self.control_group(number, pid);
        let (phase, descendants) = (Phase::Loading, Vec::new());
        let member = Member {
            number,
            pid,
            socket,
            generation,
            began,
            began_at,
            is_of_copy,
            running: running.map(Arc::new),
            phase,
            late: None,
            faulty: None,
            closed: None,
            descendants,
            control_group,
            to_be_told: None,
        };
        self.members.push(member);
    }

    fn control_group(&self, number: u64, pid: u32) -> Option<ControlGroup> {
        let groups = self.means.control_groups.as_ref().ok()?;
        let python = &self.mount.python;
        let limits = GroupLimits {
            children_max: python.children_max,
            threads: python.threads,
            memory_bytes_max: python.memory_bytes_max,
        };
        let group = groups.take(number, pid, &limits);
        let name = &self.mount.application.name;
        group.inspect_err(|error| tracing::warn!("{name}[{pid}]: no control group: {error}")).ok()
    }

    /// A process has imported further files of its application.
    fn imported(&mut self, number: u64, files: Vec<PathBuf>) {
        let of_those_that_serve = self.files_of;
        let by = |member: &&Member| member.number == number && member.generation == of_those_that_serve;
        let Some(began) = self.members.iter().find(by).map(|member| member.began_at) else { return };
        for path in files.into_iter().take(FILES_MAX.saturating_sub(self.files.len())) {
            self.files.entry(path).or_insert_with_key(|path| as_imported(path, began));
        }
    }

    /// Notes the bounds of a process, and says what the system lacks of them, once.
    fn confined(&mut self, number: u64, mut ready: (Vec<String>, Vec<String>)) {
        let (holds, lacks) = &mut ready;
        let member = self.members.iter().find(|member| member.number == number);
        match (member.and_then(|member| member.control_group.as_ref()), &self.means.control_groups) {
            (Some(group), _) => holds.extend(group.holds.iter().cloned()),
            (None, Err(why)) => lacks.push(format!("a bound of a process with all its children together: {why}")),
            (None, Ok(_)) => {}
        }
        if self.state.report().lacks != *lacks && !lacks.is_empty() {
            tracing::warn!("{}: its processes run without {}", self.mount.application.name, lacks.join("; "));
        }
        self.state.confined(ready.0, ready.1);
    }

    fn ready(&mut self, number: u64, ready: Ready) {
        let requests_max = process::requests_max(&self.mount);
        let faulty = self.means.faulty.clone();
        let generation = self.generation;
        let (is_first, is_new) = (!self.is_serving(generation), self.files_of != generation);
        // One that is ready too late, because another generation has begun, says nothing of that one.
        let is_loading = |member: &mut Member| member.number == number && matches!(member.phase, Phase::Loading);
        if !self.of(generation).any(is_loading) {
            return;
        }
        let hooks = match self.hooks_of(&ready) {
            Ok(hooks) => hooks,
            Err(what) => {
                return self.failed_to_load(number, LoadFailure { files: ready.files, ..LoadFailure::of(what) });
            }
        };
        if !is_first && self.has_read_others(number, &ready.files) {
            // One version is one code: another process takes its place, with the files of the first one.
            self.of(generation).filter(|member| member.number == number).for_each(Member::kill);
            return;
        }
        let Some(member) = self.of(generation).find(|member| member.number == number) else { return };
        let mut process = Process::new(number, member.pid, member.socket.clone(), requests_max, faulty);
        process.hooks.clone_from(&hooks);
        process.running.clone_from(&member.running);
        member.phase = Phase::Ready(Arc::new(process));
        let began = member.began_at;
        if let Some(hooks) = &hooks {
            self.state.have_hooks(hooks);
        }
        if self.files_of != generation {
            (self.files_of, self.files) = (generation, BTreeMap::new());
        }
        self.keep(number, &ready.files, began);
        for path in ready.files {
            // Of several processes the first one to be ready counts: the others may have read a later version of the file.
            self.files.entry(path).or_insert_with_key(|path| as_imported(path, began));
        }
        self.confined(number, (ready.confined, ready.lacks));
        let version = if generation == self.state.newest() { Version::Newest } else { Version::LastGood };
        if is_new && version == Version::Newest && generation > 1 {
            tracing::info!("{}: its newest version serves", self.mount.application.name);
        }
        self.state.loaded(ready.python, version, is_new);
        self.publish();
    }

    /// Whether a process may have read other files than those that are kept of its version, because one has changed since.
    fn has_read_others(&self, number: u64, files: &[PathBuf]) -> bool {
        let is_kept = self.kept.as_ref().is_some_and(|kept| kept.generation == self.generation);
        let Some(member) = self.members.iter().find(|member| member.number == number) else { return false };
        let is_known = |path: &PathBuf| match self.files.get(path) {
            Some(first) => first.is_some() && as_imported(path, member.began_at) == *first,
            None => true,
        };
        is_kept && !member.is_of_copy && !files.iter().all(is_known)
    }

    /// Keeps the files that a process of hooks has loaded, for those that take its place: where none of them has changed since it
    /// began, they are as it has read them.
    fn keep(&mut self, number: u64, files: &[PathBuf], began: SystemTime) {
        let generation = self.generation;
        if self.mount.application.interface != Interface::Hooks
            || self.kept.as_ref().is_some_and(|kept| kept.generation == generation)
        {
            return;
        }
        let is_known = |path: &PathBuf| {
            as_imported(path, began).is_some_and(|at| {
                // Of several processes the first one to be ready counts.
                self.files.get(path).is_none_or(|before| *before == Some(at))
            })
        };
        let is_as_loaded = files.iter().all(is_known);
        // Two versions ago is no good version any more.
        self.kept = None;
        if !is_as_loaded {
            return;
        }
        match KeptVersion::of(generation, files, &self.means.folder, number) {
            Ok(kept) => self.kept = Some(kept),
            Err(error) => {
                let name = &self.mount.application.name;
                tracing::warn!("{name}: its files can't be kept for processes that begin later: {error}");
            }
        }
    }

    /// The hooks that a process declares: one value for all processes of a generation.
    fn hooks_of(&mut self, ready: &Ready) -> Result<Option<Arc<Hooks>>, String> {
        if self.mount.application.interface != Interface::Hooks {
            return Ok(None);
        }
        match &self.hooks {
            Some((generation, declared, hooks)) if *generation == self.generation => match *declared == ready.hooks {
                true => Ok(Some(Arc::clone(hooks))),
                false => {
                    Err("a file has changed while the processes began, or its hooks are not the same in each process"
                        .to_owned())
                }
            },
            _ => {
                Hooks::check_routes(&ready.routes, &self.mount.routes)?;
                let hooks = Arc::new(Hooks::of(&ready.hooks, &self.state.hook_book)?);
                self.hooks = Some((self.generation, ready.hooks.clone(), Arc::clone(&hooks)));
                Ok(Some(hooks))
            }
        }
    }

    /// The processes that can serve now: those of this generation, and those of the one before as long as they are needed.
    fn publish(&mut self) {
        let (generation, wanted) = (self.generation, self.mount.python.processes);
        let ready = |member: &Member| match &member.phase {
            Phase::Ready(process) => Some(Arc::clone(process)),
            _ => None,
        };
        let own = self.members.iter().filter(|member| member.generation == generation);
        let mut serving: Vec<Arc<Process>> = own.filter_map(ready).collect();
        // Hooks have places in the list of their generation: there is one list at a time.
        let is_enough = serving.len() >= wanted || (!serving.is_empty() && self.hooks.is_some());
        if !is_enough {
            let older = self.members.iter().filter(|member| member.generation != generation);
            serving.extend(older.filter_map(ready));
        }
        serving.truncate(wanted);
        self.state.serve_by(serving);
        if is_enough {
            // From here on no request gets a place in these.
            let until = Instant::now() + self.mount.python.request_time;
            let older = self.members.iter_mut().filter(|member| member.generation != generation);
            older.for_each(|member| member.drain(until));
        }
    }

    /// Tells processes that are to end, once the requests that they have are over.
    pub fn tell_those_that_end(&mut self) {
        self.members.iter_mut().for_each(Member::tell_to_end);
    }

    fn failed_to_load(&mut self, number: u64, failure: LoadFailure) {
        let Some(member) = self.members.iter_mut().find(|member| member.number == number) else { return };
        let is_newest = member.generation == self.generation;
        match member.phase {
            Phase::Ready(_) => return self.end_forger(number),
            Phase::Loading => member.kill(),
            // It may have been importing still when it was told to end.
            Phase::Draining(_) | Phase::Killed => return member.kill(),
        }
        if is_newest {
            self.cannot_load(failure);
        }
    }

    /// The application can't be loaded by this generation: the one before it goes on, or requests fail until a later try.
    fn cannot_load(&mut self, failure: LoadFailure) {
        let (name, generation) = (&self.mount.application.name, self.generation);
        let LoadFailure { traceback, hint, files } = failure;
        let failure = FailedLoad { traceback, hint, ..FailedLoad::default() };
        let line = failure.in_one_line(&self.mount.python.folder);
        match failure.traceback.trim_end() {
            trace if trace.contains('\n') => tracing::error!("{name} can't be loaded: {line}\n{trace}"),
            _ => tracing::error!("{name} can't be loaded: {line}"),
        }
        // A process that could not take the place of another one says nothing of the newest version, whose trouble is known.
        if generation == self.state.newest() || !self.state.has_load_failure() {
            self.state.load_failed(failure);
        }
        for path in files.into_iter().take(FILES_MAX.saturating_sub(self.files.len())) {
            self.files.entry(path).or_insert_with_key(|path| process::changed_at(path));
        }
        let older = self.members.iter().filter(|member| member.generation < generation);
        let serving = older.filter(|member| matches!(member.phase, Phase::Ready(_))).map(|member| member.generation);
        // Where the last good version is kept, its processes may all have ended.
        let kept = self.kept.as_ref().map(|kept| kept.generation).filter(|kept| *kept < generation);
        match serving.max().max(kept) {
            Some(older) if !self.is_serving(generation) => {
                tracing::error!("{}: the version before goes on", self.mount.application.name);
                self.of(generation).for_each(Member::kill);
                self.generation = older;
                self.publish();
                self.fill();
            }
            _ => {
                if !self.is_serving(generation) {
                    self.of(generation).for_each(Member::kill);
                    self.state.fail(line);
                }
                self.pause();
            }
        }
    }

    fn pause(&mut self) {
        let pause = PAUSE * 2_u32.pow(self.quick_ends.min(10));
        self.quick_ends += 1;
        self.start_at = Some(Instant::now() + pause.min(PAUSE_MAX));
    }

    fn ended(&mut self, number: u64, status: &str) {
        let Some(at) = self.members.iter().position(|member| member.number == number) else { return };
        let member = self.members.swap_remove(at);
        if member.control_group.is_none() && !member.descendants.is_empty() {
            tokio::task::spawn_blocking(move || descendants::kill(None, &member.descendants));
        }
        let name = &self.mount.application.name;
        match member.phase {
            Phase::Loading if member.generation == self.generation => {
                let traceback = format!("the process ended before it was ready ({status}); its log has the reason");
                self.cannot_load(LoadFailure::of(traceback));
            }
            Phase::Ready(_) => {
                self.state.counts.ended.fetch_add(1, Ordering::Relaxed);
                tracing::error!("{name}[{}]: the process ended ({status}), another one takes its place", member.pid);
                match member.began.elapsed() < QUICK_END {
                    true if self.quick_ends > 0 => self.pause(),
                    true => self.quick_ends = 1,
                    false => self.quick_ends = 0,
                }
                self.publish();
            }
            _ => {}
        }
        self.fill();
        if self.is_stopping
            && self.is_over()
            && let Some(bytes) = self.state.log.rest_to_tell()
        {
            process::tell_left_out(&self.mount.application.name, bytes);
        }
    }
}

/// The time by the wall, as files have it.
fn wall_time() -> SystemTime {
    SystemTime::UNIX_EPOCH + clock::wall()
}

/// When a file was changed that a process has read since it began; `None`, which no later look equals, where that was after the
/// process began: it may have read the version before.
fn as_imported(path: &Path, began: SystemTime) -> Option<SystemTime> {
    process::changed_at(path).filter(|at| *at < began || *at > wall_time())
}
