//! Keeps the lists as their sources are: loads what is kept at the start, and looks at each source again on a thread of its own, one after
//! the other.
//!
//! A list is replaced by a new edition of the [`ListSet`]. The list that it replaces is freed on this thread, once no worker holds it: giving back
//! 40 MB takes a millisecond, which no request should wait for.

use super::country_file::CountryFile;
use super::source::{ListFolder, Look, PreparedList, Shrinking};
use super::{ListSet, ListState, Lists, LoadedList};
use crate::background;
use crate::caught;
use crate::clock;
use crate::config::List;
use larder_lists::{Compiled, Countries};
use parking_lot::Mutex;
use rustls::ClientConfig;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Orders that wait for the thread.
const ORDERS_MAX: usize = 64;
/// The first pause after a look that failed; it doubles up to `refresh`.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// How often the file of countries is looked at.
const COUNTRIES_EVERY: Duration = Duration::from_secs(1);
/// How often replaced lists are looked at while there are some.
const FREE_EVERY: Duration = Duration::from_secs(5);
/// How long the end of the thread is waited for.
const STOP_WITHIN: Duration = Duration::from_millis(500);
const IDLE: Duration = Duration::from_secs(3_600);

/// The result of asking for a look at a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefreshAsked {
    /// It begins as soon as the thread is free.
    Begun,
    /// There is no such list.
    Unknown,
}

/// Lists that were read for a configuration that is not in force yet. Where it never is, they leave nothing behind.
#[derive(Default)]
pub struct PreparedLists {
    lists: BTreeMap<String, PreparedList>,
    countries: Option<CountryFile>,
}

/// Keeps lists as their sources are.
pub struct Keeper {
    work: Arc<Work>,
    thread: Mutex<Option<Thread>>,
}

struct Thread {
    orders: SyncSender<Order>,
    handle: JoinHandle<()>,
}

enum Order {
    /// Look at all lists that are due: the configuration has changed, or somebody asks for a look.
    Turn,
    Stop,
}

/// All that the thread and a reload work with.
struct Work {
    lists: Arc<Lists>,
    folder: ListFolder,
    tls: Arc<ClientConfig>,
    /// Never held during a look, which may take as long as a download does.
    kept: Mutex<BTreeMap<String, Kept>>,
    /// Looks that a person asked for.
    asked: Mutex<Vec<(String, Shrinking)>>,
    /// The file of countries in force.
    countries: Mutex<Option<CountryFile>>,
    /// Lists and countries that were replaced.
    replaced: Mutex<Vec<Arc<dyn Send + Sync>>>,
    restarts: AtomicU64,
}

/// A look at the source of a list, of which the second is in force.
type Looking<'l> = dyn Fn(&List, Option<&Compiled>, Shrinking) -> Result<Look, String> + 'l;

/// A configured list.
struct Kept {
    list: Arc<List>,
    compiled: Option<Arc<Compiled>>,
    due: Instant,
    failures: u32,
}

impl Kept {
    /// Whether it is this list, as far as its content goes.
    fn is_of(&self, list: &List) -> bool {
        self.list.compiled_settings() == list.compiled_settings()
    }
}

impl Keeper {
    /// Keeps no list yet. The folder is that of the server.
    pub fn new(lists: Arc<Lists>, store: &Path, tls: Arc<ClientConfig>) -> Keeper {
        let work = Work {
            lists,
            folder: ListFolder::below(store),
            tls,
            kept: Mutex::default(),
            asked: Mutex::default(),
            countries: Mutex::default(),
            replaced: Mutex::default(),
            restarts: AtomicU64::new(0),
        };
        Keeper { work: Arc::new(work), thread: Mutex::default() }
    }

    /// Loads those of these lists that are not in force with the same settings, and reads files that were never read with them. Fails where
    /// one can't be read: a configuration with such a list is not put in force. Downloads are not waited for. Nothing that is in force changes.
    pub fn prepare(&self, lists: &[Arc<List>], country_file: Option<&Path>) -> Result<PreparedLists, String> {
        let mut prepared = PreparedLists::default();
        if let Some(path) = country_file {
            let kept = self.work.countries.lock().clone().filter(|kept| kept.is_of(path));
            prepared.countries = Some(kept.map_or_else(|| CountryFile::read(path), Ok)?);
        }
        if lists.is_empty() {
            return Ok(prepared);
        }
        self.work.folder.make().map_err(|error| format!("the folder of lists cannot be made: {error}"))?;
        for list in lists {
            let is_kept =
                self.work.kept.lock().get(&list.name).is_some_and(|kept| kept.compiled.is_some() && kept.is_of(list));
            if is_kept {
                continue;
            }
            let ready = self.work.folder.prepare(list);
            let ready = ready.map_err(|trouble| format!("list {} ({}): {trouble}", list.name, list.place))?;
            prepared.lists.extend(ready.map(|ready| (list.name.clone(), ready)));
        }
        Ok(prepared)
    }

    /// Keeps exactly these lists from now on, which were prepared, and looks at those that are files. Fails where there is no thread; then
    /// nothing changes.
    pub fn have(&self, lists: &[Arc<List>], prepared: PreparedLists) -> io::Result<()> {
        let mut thread = self.thread.lock();
        if thread.is_none() && lists.is_empty() && prepared.countries.is_none() {
            return Ok(());
        }
        if thread.is_none() {
            *thread = Some(begin(&self.work)?);
        }
        self.work.have(lists, prepared);
        if let Some(thread) = &*thread {
            let _ = thread.orders.try_send(Order::Turn);
        }
        Ok(())
    }

    /// Looks at the source of a list now, or at those of all.
    pub fn refresh(&self, name: Option<&str>, shrinking: Shrinking) -> RefreshAsked {
        let names: Vec<String> = self.work.lists.states().into_iter().map(|state| state.name).collect();
        let wanted: Vec<String> = names.into_iter().filter(|each| name.is_none_or(|name| name == each)).collect();
        let thread = self.thread.lock();
        let (Some(thread), false) = (&*thread, wanted.is_empty()) else { return RefreshAsked::Unknown };
        let mut asked = self.work.asked.lock();
        for name in wanted {
            if !asked.contains(&(name.clone(), shrinking)) {
                asked.push((name, shrinking));
            }
        }
        drop(asked);
        // Where there is no room for another order, one that the thread has not taken yet brings it to these looks too.
        let _ = thread.orders.try_send(Order::Turn);
        RefreshAsked::Begun
    }

    /// How often a look at a list met a broken invariant.
    pub fn restarts(&self) -> u64 {
        self.work.restarts.load(Ordering::Relaxed)
    }

    /// Ends the thread. A download under way is not waited for: what it writes has no name yet.
    pub fn stop(&self) {
        let Some(thread) = self.thread.lock().take() else { return };
        let _ = thread.orders.try_send(Order::Stop);
        drop(thread.orders);
        let end = Instant::now() + STOP_WITHIN;
        while !thread.handle.is_finished() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn begin(work: &Arc<Work>) -> io::Result<Thread> {
    let (orders, ordered) = sync_channel(ORDERS_MAX);
    let work = Arc::downgrade(work);
    let handle = std::thread::Builder::new().name("lists".into()).spawn(move || run(&work, &ordered))?;
    Ok(Thread { orders, handle })
}

fn run(work: &Weak<Work>, ordered: &Receiver<Order>) {
    background::lower_priority();
    loop {
        let Some(work) = work.upgrade() else { return };
        let mut wait = RETRY_AFTER;
        let look = |list: &List, old: Option<&Compiled>, shrinking| work.folder.look(list, old, shrinking, &work.tls);
        caught::call(&work.restarts, || wait = work.turn(&look).min(work.look_at_countries()));
        drop(work);
        match ordered.recv_timeout(wait) {
            Ok(Order::Turn) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

impl Work {
    fn have(&self, lists: &[Arc<List>], prepared: PreparedLists) {
        let PreparedLists { lists: mut prepared, countries } = prepared;
        for (name, list) in &mut prepared {
            if let Err(error) = self.folder.keep(list) {
                tracing::warn!("list {name} is in force, but cannot be kept for the next start: {error}");
            }
        }
        if let Err(error) = self.folder.settle(lists) {
            tracing::warn!("the folder of lists cannot be used: {error}");
        }
        let now = clock::instant();
        let mut kept = self.kept.lock();
        let mut before = std::mem::take(&mut *kept);
        let mut states = BTreeMap::new();
        let mut loaded = Vec::new();
        for list in lists {
            let old = before.remove(&list.name).filter(|old| old.is_of(list));
            let mut state = match &old {
                Some(_) => self.lists.state(&list.name).unwrap_or_else(|| ListState::of(list)),
                None => ListState::of(list),
            };
            state.place = list.place.to_string();
            let (compiled, due) = match old {
                // A reload looks at files, for it is how a person says that they have changed.
                Some(old) if old.compiled.is_some() || !prepared.contains_key(&list.name) => {
                    (old.compiled, if list.is_remote() { old.due.min(now + list.refresh) } else { now })
                }
                _ => ready(prepared.remove(&list.name), list, &mut state, now),
            };
            if let Some(compiled) = &compiled {
                loaded.push((list.name.clone(), LoadedList::new(Arc::clone(compiled), list)));
            }
            state.next_at = Some(clock::wall() + due.saturating_duration_since(now));
            if let Some((_, list)) = loaded.last().filter(|(name, _)| *name == list.name) {
                state.loaded(list);
            }
            states.insert(list.name.clone(), state);
            kept.insert(list.name.clone(), Kept { list: Arc::clone(list), compiled, due, failures: 0 });
        }
        *self.lists.states.lock() = states;
        let lists = loaded.into_iter().map(|(name, list)| (name, Arc::new(list))).collect();
        let of_file = countries.as_ref().map(|file| Arc::clone(file.countries()));
        *self.countries.lock() = countries;
        self.replace(ListSet { lists, countries: of_file });
    }

    /// Takes up the file of countries where it is another one than before, and says when to look again. A file that can't be read leaves the
    /// countries in force that are there.
    fn look_at_countries(&self) -> Duration {
        let Some(old) = self.countries.lock().clone() else { return IDLE };
        if !old.has_changed() {
            return COUNTRIES_EVERY;
        }
        let read = CountryFile::read(old.path());
        // Held as for a list: no other edition is made meanwhile.
        let _kept = self.kept.lock();
        let mut countries = self.countries.lock();
        let Some(file) = countries.as_mut().filter(|file| Arc::ptr_eq(file.countries(), old.countries())) else {
            return COUNTRIES_EVERY;
        };
        match read {
            Ok(new) => {
                tracing::info!(
                    "countries of addresses: {} ranges from {}",
                    new.countries().ranges_len(),
                    new.path().display()
                );
                let set = ListSet {
                    lists: self.lists.live.value().lists.clone(),
                    countries: Some(Arc::clone(new.countries())),
                };
                *file = new;
                self.replace(set);
            }
            Err(trouble) => {
                file.mark_seen();
                tracing::warn!("{trouble}; the countries before stay in force");
            }
        }
        COUNTRIES_EVERY
    }

    /// Looks at the lists that are due, by `look`, and says when the next one is.
    fn turn(&self, look: &Looking<'_>) -> Duration {
        loop {
            let now = clock::instant();
            let asked = self.asked.lock().pop();
            let mut kept = self.kept.lock();
            let due = kept.values().filter(|kept| kept.due <= now).map(|kept| kept.list.name.clone()).next();
            let (name, shrinking) = match (asked, due) {
                (Some(asked), _) => asked,
                (None, Some(due)) => (due, Shrinking::Refused),
                (None, None) => {
                    let next = kept.values().map(|kept| kept.due.saturating_duration_since(now)).min();
                    drop(kept);
                    let wait = next.unwrap_or(IDLE).min(IDLE);
                    return if self.free() { wait } else { wait.min(FREE_EVERY) };
                }
            };
            let wanted = kept.get_mut(&name).map(|kept| {
                // However the look ends, others have their turn before it is begun again.
                kept.due = now + RETRY_AFTER;
                (Arc::clone(&kept.list), kept.compiled.clone())
            });
            drop(kept);
            if let Some((list, compiled)) = wanted {
                let mut looked = Err("this look met a broken invariant of Larder, which its log tells".to_owned());
                caught::call(&self.restarts, || looked = look(&list, compiled.as_deref(), shrinking));
                self.looked(&list, looked);
            }
        }
    }

    /// Puts in force what a look has brought, unless the list was configured otherwise meanwhile.
    fn looked(&self, list: &List, looked: Result<Look, String>) {
        let mut all = self.kept.lock();
        let Some(kept) = all.get_mut(&list.name).filter(|kept| kept.is_of(list)) else { return };
        let list = Arc::clone(&kept.list);
        let mut error = None;
        let mut is_new = false;
        match looked {
            Ok(Look::Same) => kept.failures = 0,
            Ok(Look::New(compiled)) => {
                kept.failures = 0;
                kept.compiled = Some(Arc::from(compiled));
                is_new = true;
            }
            Err(trouble) => {
                // Once for a series of failures.
                if kept.failures == 0 {
                    let what =
                        if kept.compiled.is_some() { "the one before stays in force" } else { "it covers nothing" };
                    tracing::warn!("list {} ({}) could not be read, {what}: {trouble}", list.name, list.source);
                }
                kept.failures = kept.failures.saturating_add(1);
                error = Some(trouble);
            }
        }
        let pause = match kept.failures {
            0 => list.refresh,
            many => RETRY_AFTER.saturating_mul(1 << many.saturating_sub(1).min(16)).min(list.refresh),
        };
        kept.due = clock::instant() + pause;
        let loaded = kept
            .compiled
            .as_ref()
            .filter(|_| is_new)
            .map(|compiled| Arc::new(LoadedList::new(Arc::clone(compiled), &list)));
        let mut states = self.lists.states.lock();
        let state = states.entry(list.name.clone()).or_insert_with(|| ListState::of(&list));
        state.looks += 1;
        state.failures += u64::from(error.is_some());
        state.changes += u64::from(is_new);
        if error.is_none() {
            state.checked_at = Some(clock::wall());
        }
        state.next_at = Some(clock::wall() + pause);
        state.error = error;
        if let Some(loaded) = &loaded {
            state.loaded(loaded);
            tracing::info!("list {}: {} entries from {}", list.name, state.entries, list.source);
        }
        drop(states);
        if let Some(loaded) = loaded {
            let before = self.lists.live.value();
            let mut lists = before.lists.clone();
            lists.insert(list.name.clone(), loaded);
            self.replace(ListSet { lists, countries: before.countries.clone() });
        }
    }

    fn replace(&self, set: ListSet) {
        let before = self.lists.live.value();
        let gone =
            before.lists.iter().filter(|(name, list)| !set.lists.get(*name).is_some_and(|new| Arc::ptr_eq(new, list)));
        let gone = gone.map(|(_, list)| Arc::clone(list) as Arc<dyn Send + Sync>);
        let is_new = |old: &&Arc<Countries>| !set.countries.as_ref().is_some_and(|new| Arc::ptr_eq(new, old));
        let countries = before.countries.iter().filter(is_new).map(|old| Arc::clone(old) as Arc<dyn Send + Sync>);
        self.replaced.lock().extend(gone.chain(countries));
        self.lists.live.replace(set);
    }

    /// Frees what was replaced and nobody else holds; says whether that was all.
    fn free(&self) -> bool {
        let mut replaced = self.replaced.lock();
        replaced.retain(|list| Arc::strong_count(list) > 1);
        replaced.is_empty()
    }
}

/// A list as it was prepared, and when its source is looked at again.
fn ready(
    prepared: Option<PreparedList>,
    list: &List,
    state: &mut ListState,
    now: Instant,
) -> (Option<Arc<Compiled>>, Instant) {
    let Some(PreparedList { compiled, checked_at, .. }) = prepared else { return (None, now) };
    state.checked_at = Some(checked_at);
    let age = clock::wall().saturating_sub(checked_at);
    let due = if list.is_remote() { now + list.refresh.saturating_sub(age) } else { now };
    (Some(Arc::new(compiled)), due)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls;

    #[test]
    fn a_look_that_panics_is_noted_and_others_have_their_turn() {
        let folder = tempfile::tempdir().unwrap();
        let roots = tls::Roots::none().into();
        let lists = Arc::new(Lists::default());
        let keeper = Keeper::new(Arc::clone(&lists), folder.path(), tls::client_config(&roots).unwrap());
        let configured = ["a", "b", "c"].map(|name| Arc::new(List { name: name.into(), ..List::default() }));
        keeper.work.have(&configured, PreparedLists::default());
        let looks = Mutex::new(Vec::new());
        let look = |list: &List, _: Option<&Compiled>, _| {
            looks.lock().push(list.name.clone());
            assert!(list.name != "a", "a test asks for this");
            Ok(Look::Same)
        };
        let wait = keeper.work.turn(&look);
        assert_eq!((&**looks.lock(), keeper.restarts()), (&["a", "b", "c"].map(str::to_owned)[..], 1));
        assert!(wait > RETRY_AFTER / 2 && wait <= RETRY_AFTER, "{wait:?}");
        let state = |name| lists.state(name).unwrap();
        assert!(state("a").error.unwrap().contains("broken invariant"));
        assert_eq!((state("a").failures, state("b").error, state("c").looks), (1, None, 1));
        // Nothing is due, and so nothing is begun again.
        keeper.work.turn(&look);
        assert_eq!(looks.lock().len(), 3);
    }
}
