//! The digests that indexes name, for as long as they count, and the clients that got these indexes.

use super::found::DIGESTS_MAX;
use super::{IndexContent, IndexFormat, StoredIndex, Unread, hash_of};
use crate::digest::ExpectedDigest;
use larder_wire::Url;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Indexes that are remembered; those that no client got for longest go first.
const INDEXES_MAX: usize = 1_024;

/// Digests of all of them: about 20 MB.
const ALL_DIGESTS_MAX: usize = 2 * DIGESTS_MAX;

/// Clients that are remembered for one index.
const CLIENTS_MAX: usize = 1_024;

/// Redirections from files that are remembered.
const REDIRECTED_MAX: usize = 1_024;

/// Indexes that are being read, those included that wait for their turn.
const LEARNING_MAX: usize = 64;

/// Bytes of them that are held at once. Most of them are those of the store in memory.
const HELD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Indexes that are understood at once, each on a thread.
const TURNS: usize = 2;

/// The indexes that clients got of late.
#[derive(Default)]
pub struct IndexDigests {
    table: Mutex<Table>,
    hasher: RandomState,
    /// Indexes and redirections in the table; looked at without its lock.
    known: AtomicUsize,
    learning: Arc<BeingRead>,
}

#[derive(Default)]
struct Table {
    indexes: Vec<Index>,
    digests: usize,
    /// Files that a redirection led a client to.
    redirected: VecDeque<(u64, IpAddr, ExpectedDigest, Instant)>,
}

struct Index {
    id: IndexId,
    content: IndexContent,
    age_max: Duration,
    /// When each client got it.
    got: HashMap<IpAddr, Instant>,
    /// When any client got it last.
    last_got: Instant,
}

/// The name of one state of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexId {
    url: u64,
    state: u64,
}

/// Indexes that are being read, by the client that asked for them.
struct BeingRead {
    /// Those of each client.
    by_client: Mutex<HashMap<IpAddr, Vec<(IndexFormat, Url)>>>,
    /// These of all clients.
    all: AtomicUsize,
    /// Bytes that are held of them.
    held: AtomicUsize,
    turns: Arc<Semaphore>,
    over: Notify,
}

impl Default for BeingRead {
    fn default() -> BeingRead {
        BeingRead {
            by_client: Mutex::default(),
            all: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            turns: Arc::new(Semaphore::new(TURNS)),
            over: Notify::new(),
        }
    }
}

/// An index that is being read. Dropping it says that this is over.
pub struct Learning {
    of: Arc<BeingRead>,
    client: IpAddr,
    url: Url,
    held: usize,
}

impl Learning {
    /// Counts further bytes that are held; false where there are too many of all indexes.
    pub fn holds(&mut self, bytes: usize) -> bool {
        self.held += bytes;
        self.of.held.fetch_add(bytes, Ordering::Relaxed) + bytes <= HELD_BYTES_MAX
    }

    /// Waits until a thread may be used.
    pub async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.of.turns).acquire_owned().await.ok()
    }
}

impl Drop for Learning {
    fn drop(&mut self) {
        let mut by_client = self.of.by_client.lock();
        if let Some(urls) = by_client.get_mut(&self.client) {
            if let Some(at) = urls.iter().position(|(_, url)| *url == self.url) {
                urls.swap_remove(at);
            }
            if urls.is_empty() {
                by_client.remove(&self.client);
            }
        }
        drop(by_client);
        self.of.held.fetch_sub(self.held, Ordering::Relaxed);
        self.of.all.fetch_sub(1, Ordering::Relaxed);
        self.of.over.notify_waiters();
    }
}

/// One address for all programs of this machine.
fn client_of(address: IpAddr) -> IpAddr {
    let address = address.to_canonical();
    if address.is_loopback() { Ipv4Addr::LOCALHOST.into() } else { address }
}

impl IndexDigests {
    /// The name of a state of an index: `state` must differ where its bytes may.
    pub fn id(&self, url: &Url, state: impl std::hash::Hash) -> IndexId {
        IndexId { url: hash_of(&self.hasher, url), state: self.hasher.hash_one(state) }
    }

    /// A client has got this index. `Some`: it has to be read, and does not count until [`IndexDigests::learn`].
    pub fn begin(
        &self,
        (id, url): (IndexId, &Url),
        (format, client): (IndexFormat, IpAddr),
        now: Instant,
    ) -> Option<Learning> {
        let client = client_of(client);
        if self.table.lock().is_got(id, client, now) {
            return None;
        }
        let of = Arc::clone(&self.learning);
        if of.all.fetch_add(1, Ordering::Relaxed) >= LEARNING_MAX {
            of.all.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        of.by_client.lock().entry(client).or_default().push((format, url.clone()));
        Some(Learning { of, client, url: url.clone(), held: 0 })
    }

    /// Reads the index and remembers what it says. It takes time: see [`StoredIndex::read`].
    pub fn learn(&self, id: IndexId, index: StoredIndex, learning: Learning, now: Instant) -> Result<(), Unread> {
        let age_max = index.format.age_max(&index.url);
        let read = index.read(&self.hasher);
        let (content, result) =
            read.map_or_else(|why| (IndexContent::default(), Err(why)), |content| (content, Ok(())));
        let got = HashMap::from([(learning.client, now)]);
        let mut table = self.table.lock();
        table.forget_old(now);
        // One that can't be read is remembered too, and not read again with each request for it.
        table.add(Index { id, content, age_max, got, last_got: now });
        self.known.store(table.len(), Ordering::Relaxed);
        result
    }

    /// Where the files of a registry of cargo's lie, as its settings say that this client got. Waits for them while they are being read.
    pub async fn template(&self, config: &Url, client: IpAddr, now: Instant) -> Option<String> {
        loop {
            let over = self.learning.over.notified();
            let is_read = |read: &Vec<(IndexFormat, Url)>| read.iter().any(|(_, url)| url == config);
            if !self.learning.by_client.lock().get(&client_of(client)).is_some_and(is_read) {
                return self.known_template(config, client, now);
            }
            over.await;
        }
    }

    fn known_template(&self, config: &Url, client: IpAddr, now: Instant) -> Option<String> {
        let (url, client) = (hash_of(&self.hasher, config), client_of(client));
        let table = self.table.lock();
        let indexes = table.indexes.iter().filter(|index| index.id.url == url && index.counts_for(client, now));
        let last = indexes.max_by_key(|index| index.got.get(&client).copied());
        last.and_then(|index| index.content.template.as_deref().map(str::to_owned))
    }

    /// The digest that the index which this client got last names for this file.
    pub fn digest_of(&self, file: &Url, client: IpAddr, now: Instant) -> Option<ExpectedDigest> {
        if self.known.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let (file, client) = (hash_of(&self.hasher, file), client_of(client));
        let mut table = self.table.lock();
        table.forget_old(now);
        self.known.store(table.len(), Ordering::Relaxed);
        table.digest_of(file, client, now)
    }

    /// A redirection sends this client on from a file: what it comes to has the digest of the file, as an index names it, or else the URL of the
    /// file itself (`by_url`).
    pub fn redirected(&self, from: &Url, to: &Url, client: IpAddr, by_url: Option<ExpectedDigest>, now: Instant) {
        let Some(digest) = self.digest_of(from, client, now).or(by_url) else { return };
        let mut table = self.table.lock();
        if table.redirected.len() >= REDIRECTED_MAX {
            table.redirected.pop_front();
        }
        let to = hash_of(&self.hasher, to);
        table.redirected.push_back((to, client_of(client), digest.behind_redirection(), now));
        self.known.store(table.len(), Ordering::Relaxed);
    }

    /// Waits until those indexes are read that this client got and that may name this file.
    pub async fn settled(&self, client: IpAddr, file: &Url) {
        let client = client_of(client);
        loop {
            let over = self.learning.over.notified();
            let may_name = |(format, url): &(IndexFormat, Url)| format.may_name(url, file);
            if !self.learning.by_client.lock().get(&client).is_some_and(|read| read.iter().any(may_name)) {
                return;
            }
            over.await;
        }
    }

    /// Whether [`IndexDigests::settled`] would wait for any client.
    pub fn is_learning(&self) -> bool {
        self.learning.all.load(Ordering::Relaxed) > 0
    }
}

impl Index {
    fn counts_for(&self, client: IpAddr, now: Instant) -> bool {
        self.got.get(&client).is_some_and(|got| now.saturating_duration_since(*got) <= self.age_max)
    }

    fn is_old(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last_got) > self.age_max
    }
}

impl Table {
    /// Notes that a client gets an index that was read before.
    fn is_got(&mut self, id: IndexId, client: IpAddr, now: Instant) -> bool {
        let Some(index) = self.indexes.iter_mut().find(|index| index.id == id) else { return false };
        if index.got.len() >= CLIENTS_MAX && !index.got.contains_key(&client) {
            let age_max = index.age_max;
            index.got.retain(|_, got| now.saturating_duration_since(*got) <= age_max);
            if index.got.len() >= CLIENTS_MAX {
                return true;
            }
        }
        index.got.insert(client, now);
        index.last_got = index.last_got.max(now);
        true
    }

    fn add(&mut self, index: Index) {
        // Two clients may have it read at once.
        if let Some(known) = self.indexes.iter_mut().find(|known| known.id == index.id) {
            known.last_got = known.last_got.max(index.last_got);
            return known.got.extend(index.got);
        }
        self.digests += index.content.digests.len();
        self.indexes.push(index);
        while self.indexes.len() > INDEXES_MAX || self.digests > ALL_DIGESTS_MAX {
            self.forget_one();
        }
    }

    /// Indexes and redirections.
    fn len(&self) -> usize {
        self.indexes.len() + self.redirected.len()
    }

    fn forget_old(&mut self, now: Instant) {
        let is_old = |at: Instant| now.saturating_duration_since(at) > REDIRECTED_AGE_MAX;
        while self.redirected.front().is_some_and(|(.., at)| is_old(*at)) {
            self.redirected.pop_front();
        }
        let digests = &mut self.digests;
        self.indexes.retain(|index| {
            let is_old = index.is_old(now);
            *digests -= if is_old { index.content.digests.len() } else { 0 };
            !is_old
        });
    }

    fn forget_one(&mut self) {
        let indexes = self.indexes.iter().enumerate();
        if let Some((at, _)) = indexes.min_by_key(|(_, index)| index.last_got) {
            self.digests -= self.indexes.remove(at).content.digests.len();
        }
    }

    /// Of one index the state counts that the client got last. Where two indexes disagree, one of them is wrong, and nobody here knows which.
    fn digest_of(&self, file: u64, client: IpAddr, now: Instant) -> Option<ExpectedDigest> {
        let mut last: HashMap<u64, (Instant, &Index)> = HashMap::new();
        for index in self.indexes.iter().filter(|index| index.counts_for(client, now)) {
            let got = *index.got.get(&client)?;
            let known = last.entry(index.id.url).or_insert((got, index));
            if known.0 <= got {
                *known = (got, index);
            }
        }
        let is_for_it = |at: &Instant| now.saturating_duration_since(*at) <= REDIRECTED_AGE_MAX;
        let redirections = self.redirected.iter().rev();
        let redirection =
            redirections.filter(|(url, of, _, at)| *url == file && *of == client && is_for_it(at)).take(1);
        let naming = last.into_values().filter_map(|(_, index)| index.content.digests.get(&file));
        let mut all = naming.chain(redirection.map(|(_, _, digest, _)| digest));
        let first = all.next()?;
        all.all(|other| other == first).then(|| first.clone())
    }
}

/// How long after its redirection a URL counts as that of a file.
const REDIRECTED_AGE_MAX: Duration = Duration::from_secs(15 * 60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::{Algorithm, DigestSource};
    use bytes::Bytes;

    const A: [u8; 4] = [10, 0, 0, 1];
    const B: [u8; 4] = [10, 0, 0, 2];

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn page(digit: char) -> StoredIndex {
        let body = format!("<a href=\"https://f.test/a.whl#sha256={}\">", digit.to_string().repeat(64));
        StoredIndex {
            format: IndexFormat::Python,
            url: url("https://i.test/simple/a/"),
            media_type: Some(b"text/html".to_vec()),
            coding: None,
            body: vec![Bytes::from(body)],
            template: None,
        }
    }

    struct Scene {
        table: IndexDigests,
        begin: Instant,
    }

    impl Scene {
        fn new() -> Scene {
            Scene { table: IndexDigests::default(), begin: Instant::now() }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.begin + Duration::from_secs(seconds)
        }

        /// A client gets the index in a state; true when it had to be read.
        fn get(&self, state: char, client: [u8; 4], seconds: u64) -> bool {
            let id = self.table.id(&url("https://i.test/simple/a/"), state);
            let learning = self.table.begin(
                (id, &url("https://i.test/simple/a/")),
                (IndexFormat::Apt, client.into()),
                self.at(seconds),
            );
            learning.map(|learning| self.table.learn(id, page(state), learning, self.at(seconds)).unwrap()).is_some()
        }

        fn named(&self, file: &str, client: [u8; 4], seconds: u64) -> Option<char> {
            let digest = self.table.digest_of(&url(file), client.into(), self.at(seconds))?;
            digest.to_string().chars().last()
        }
    }

    const FILE: &str = "https://f.test/a.whl";

    #[test]
    fn a_digest_counts_for_the_clients_that_got_its_index() {
        let scene = Scene::new();
        assert!(scene.get('1', A, 0));
        assert_eq!((scene.named(FILE, A, 0), scene.named(FILE, B, 0)), (Some('1'), None));
        // Another client gets the same state: it is not read again.
        assert!(!scene.get('1', B, 600));
        assert_eq!((scene.named(FILE, A, 900), scene.named(FILE, A, 901)), (Some('1'), None));
        assert_eq!(scene.named(FILE, B, 1500), Some('1'));
        assert_eq!(scene.named("https://f.test/b.whl", B, 600), None);
        // The index that a client got last is the one that counts for it.
        assert!(scene.get('2', B, 700));
        assert_eq!(scene.named(FILE, B, 700), Some('2'));
        assert!(!scene.get('1', B, 701));
        assert_eq!(scene.named(FILE, B, 701), Some('1'));
        assert!(!scene.table.is_learning());
        // Both are forgotten when another one is read after their time.
        scene.get('3', A, 9_000);
        assert_eq!(scene.table.table.lock().indexes.len(), 1);
    }

    #[test]
    fn indexes_that_disagree_say_nothing() {
        let scene = Scene::new();
        scene.get('1', A, 0);
        let other = url("https://other.test/simple/a/");
        let get = |digit: char, client: [u8; 4]| {
            let id = scene.table.id(&other, digit);
            let Some(learning) = scene.table.begin((id, &other), (IndexFormat::Apt, client.into()), scene.begin) else {
                return;
            };
            let index = StoredIndex { url: other.clone(), ..page(digit) };
            scene.table.learn(id, index, learning, scene.begin).unwrap();
        };
        get('1', A);
        assert_eq!(scene.named(FILE, A, 0), Some('1'));
        scene.get('1', B, 0);
        get('2', A);
        get('2', B);
        assert_eq!((scene.named(FILE, A, 0), scene.named(FILE, B, 0)), (None, None));
    }

    #[test]
    fn a_file_that_an_index_names_no_more_has_no_digest() {
        let scene = Scene::new();
        scene.get('1', A, 0);
        let index = url("https://i.test/simple/a/");
        let learning = scene
            .table
            .begin((scene.table.id(&index, 'x'), &index), (IndexFormat::Apt, A.into()), scene.at(1))
            .unwrap();
        let empty = StoredIndex { body: vec![Bytes::from("<html>")], ..page('1') };
        scene.table.learn(scene.table.id(&index, 'x'), empty, learning, scene.at(1)).unwrap();
        assert_eq!(scene.named(FILE, A, 2), None);
    }

    #[test]
    fn programs_of_this_machine_are_one_client() {
        let scene = Scene::new();
        scene.get('1', [127, 0, 0, 1], 0);
        assert_eq!(scene.named(FILE, [127, 0, 0, 9], 0), Some('1'));
        let of_v6 = |text: &str| scene.table.digest_of(&url(FILE), text.parse().unwrap(), scene.at(0)).is_some();
        assert!(of_v6("::1") && of_v6("::ffff:127.0.0.1") && !of_v6("::2"));
    }

    #[test]
    fn a_redirection_takes_the_digest_along() {
        let scene = Scene::new();
        scene.get('1', A, 0);
        let go = |from: &str, to: &str, client: [u8; 4], seconds| {
            scene.table.redirected(&url(from), &url(to), client.into(), None, scene.at(seconds));
        };
        go(FILE, "https://cdn.test/x", A, 1);
        go(FILE, "https://cdn.test/y", B, 1);
        go("https://cdn.test/x", "https://cdn.test/z", A, 2);
        assert_eq!(scene.named("https://cdn.test/z", A, 3), Some('1'));
        assert_eq!((scene.named("https://cdn.test/z", B, 3), scene.named("https://cdn.test/y", B, 3)), (None, None));
        (0..2 * REDIRECTED_MAX).for_each(|_| go(FILE, "https://cdn.test/x", A, 1));
        assert_eq!(scene.table.table.lock().redirected.len(), REDIRECTED_MAX);
        assert_eq!(scene.named("https://cdn.test/z", A, 903), None);
    }

    #[test]
    fn a_redirection_takes_the_digest_of_its_url_along() {
        let scene = Scene::new();
        let by_url = || ExpectedDigest::of_hex(Algorithm::Sha256, &[b'7'; 64], DigestSource::Url);
        let blob = url("https://r.test/v2/x/blobs/sha256:7");
        let go = |from: &Url, to: &str, by_url, seconds| {
            scene.table.redirected(from, &url(to), A.into(), by_url, scene.at(seconds));
        };
        go(&blob, "https://cdn.test/x", by_url(), 0);
        go(&url("https://cdn.test/x"), "https://cdn.test/y", None, 10);
        assert_eq!(scene.named("https://cdn.test/x", A, 900), Some('7'));
        assert_eq!((scene.named("https://cdn.test/x", B, 1), scene.named("https://r.test/", A, 1)), (None, None));
        let named = scene.table.digest_of(&url("https://cdn.test/y"), A.into(), scene.at(900)).unwrap();
        assert_eq!(named.source(), DigestSource::Redirection);
        // When both are over, nothing is looked up any more.
        assert_eq!(scene.named("https://cdn.test/y", A, 911), None);
        assert_eq!(scene.table.known.load(Ordering::Relaxed), 0);
        // The index knows better what its files are.
        scene.get('1', A, 2_000);
        go(&url(FILE), "https://cdn.test/z", by_url(), 2_000);
        assert_eq!(scene.named("https://cdn.test/z", A, 2_001), Some('1'));
    }

    #[test]
    fn the_table_has_limits() {
        let scene = Scene::new();
        for number in 0..INDEXES_MAX + 5 {
            let id = scene.table.id(&url("https://i.test/"), number);
            let learning =
                scene.table.begin((id, &url("https://i.test/")), (IndexFormat::Apt, A.into()), scene.begin).unwrap();
            scene.table.learn(id, page('1'), learning, scene.begin).unwrap();
        }
        assert_eq!(scene.table.table.lock().indexes.len(), INDEXES_MAX);
        assert_eq!(scene.table.table.lock().digests, INDEXES_MAX);
        let id = scene.table.id(&url("https://i.test/"), 77_usize);
        for client in 0..2_000_u32 {
            assert!(
                scene
                    .table
                    .begin(
                        (id, &url("https://i.test/")),
                        (IndexFormat::Apt, Ipv4Addr::from(client).into()),
                        scene.begin
                    )
                    .is_none()
            );
        }
        assert!(scene.table.table.lock().indexes.iter().all(|index| index.got.len() <= CLIENTS_MAX));
        let all: Vec<_> = (0..LEARNING_MAX + 3)
            .filter_map(|number| {
                scene.table.begin(
                    (scene.table.id(&url("https://o.test/"), number), &url("https://o.test/")),
                    (IndexFormat::Apt, A.into()),
                    scene.begin,
                )
            })
            .collect();
        assert_eq!(all.len(), LEARNING_MAX);
        assert!(scene.table.is_learning());
        drop(all);
        assert!(!scene.table.is_learning() && scene.table.learning.by_client.lock().is_empty());
        let id = scene.table.id(&url("https://o.test/"), 1);
        let (mut one, mut two) = (
            scene.table.begin((id, &url("https://i.test/")), (IndexFormat::Apt, A.into()), scene.begin),
            scene.table.begin((id, &url("https://i.test/")), (IndexFormat::Apt, A.into()), scene.begin),
        );
        let (one, two) = (one.as_mut().unwrap(), two.as_mut().unwrap());
        assert!(one.holds(HELD_BYTES_MAX) && !two.holds(1));
    }

    #[tokio::test]
    async fn who_asks_for_a_file_waits_for_the_indexes_of_its_client() {
        let scene = Scene::new();
        let id = scene.table.id(&url("https://i.test/"), 1);
        let packages = url("http://d.test/debian/dists/x/main/binary-all/Packages.xz");
        let learning = scene.table.begin((id, &packages), (IndexFormat::Apt, A.into()), scene.begin).unwrap();
        let (package, index) =
            (url("http://d.test/debian/pool/a.deb"), url("http://d.test/debian/dists/x/main/i18n/y"));
        scene.table.settled(B.into(), &package).await;
        scene.table.settled(A.into(), &index).await;
        let mut waits = std::pin::pin!(scene.table.settled(A.into(), &package));
        assert!(tokio::time::timeout(Duration::from_millis(1), &mut waits).await.is_err());
        drop(learning);
        waits.await;
    }
}
