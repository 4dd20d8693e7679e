//! A byte that was changed on disk: never served, whichever way the digest of the file is named. A body that was compared on the way in holds from
//! then on by checksums; where they do not hold, the origin is asked, and what it sends is compared again.

use super::stand;
use aws_lc_rs::digest::{Algorithm, SHA256, SHA512, digest};
use larder::run::control::{self, Client, Network, Way};
use larder::server::Server;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// The bytes that the origin sends.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Sends {
    Right,
    /// Other bytes of the same length under the same tag.
    Wrong,
}

const SETTINGS: &str = "memory = \"64MB\"\ndisk = \"100MB\"\ndisk_admission = \"all\"\npresets = [\"all\"]\n";

/// Within the head's record on disk, and in blocks of their own.
const LENGTHS: [usize; 2] = [2_000, 300_000];

/// A file of the origin, the fields of its answer, and those of a request for it.
struct File {
    body: Vec<u8>,
    fields: String,
    asked_with: &'static str,
}

/// All files by their paths. Indexes come with the files that they name.
type Files = BTreeMap<String, File>;

/// A way in which a digest is named: the indexes that a client gets before, and the files.
struct Kind {
    name: &'static str,
    indexes: Vec<String>,
    files: Vec<String>,
}

fn hex(algorithm: &'static Algorithm, body: &[u8]) -> String {
    digest(algorithm, body).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let quad = |three: &[u8]| {
        let bits = three.iter().enumerate().fold(0_u32, |bits, (at, byte)| bits | u32::from(*byte) << (16 - 8 * at));
        let letter = move |at: usize| {
            if at <= three.len() { char::from(LETTERS[(bits >> (18 - 6 * at)) as usize & 63]) } else { '=' }
        };
        [0, 1, 2, 3].map(letter)
    };
    bytes.chunks(3).flat_map(quad).collect()
}

/// Bytes that no other file has.
fn body(name: &str, length: usize) -> Vec<u8> {
    let mut state = digest(&SHA256, format!("{name} {length}").as_bytes());
    let mut body = Vec::with_capacity(length + 32);
    while body.len() < length {
        body.extend_from_slice(state.as_ref());
        state = digest(&SHA256, state.as_ref());
    }
    body.truncate(length);
    body
}

/// The files of all kinds, at an origin of this address.
fn plant(origin: SocketAddr) -> (Files, Vec<Kind>) {
    let mut files = Files::new();
    let mut put = |path: String, body: Vec<u8>, fields: &str, asked_with| {
        let fields = format!("{fields}Cache-Control: max-age=600\r\nETag: \"{}\"\r\n", hex(&SHA256, path.as_bytes()));
        files.insert(path.clone(), File { body, fields, asked_with });
        path
    };
    let named_by = |name: &str| LENGTHS.map(|length| body(name, length));
    let mut kinds = Vec::new();
    let mut kind = |name, indexes, files: [String; 2]| kinds.push(Kind { name, indexes, files: files.into() });

    kind("none", vec![], named_by("none").map(|body| put(format!("/plain/{}", body.len()), body, "", "")));
    let blobs = named_by("blob").map(|body| put(format!("/v2/x/blobs/sha256:{}", hex(&SHA256, &body)), body, "", ""));
    kind("OCI blob", vec![], blobs);
    let manifests = named_by("manifest");
    let manifests = manifests.map(|body| put(format!("/v2/x/manifests/sha512:{}", hex(&SHA512, &body)), body, "", ""));
    kind("OCI manifest", vec![], manifests);
    let tags = named_by("tag").map(|body| {
        let field = format!("Docker-Content-Digest: sha256:{}\r\n", hex(&SHA256, &body));
        put(format!("/v2/x/manifests/tag-{}", body.len()), body, &field, "")
    });
    kind("Docker-Content-Digest", vec![], tags);
    let by_hash = named_by("by-hash");
    let by_hash = by_hash.map(|body| put(format!("/dists/x/by-hash/SHA256/{}", hex(&SHA256, &body)), body, "", ""));
    kind("by-hash", vec![], by_hash);
    for (name, field) in [("Repr-Digest", "Repr-Digest: sha-256"), ("Content-Digest", "Content-Digest: sha-256")] {
        let files = named_by(name).map(|body| {
            let field = format!("{field}=:{}:\r\n", base64(digest(&SHA256, &body).as_ref()));
            put(format!("/{name}/{}", body.len()), body, &field, "")
        });
        kind(name, vec![], files);
    }

    let wheels =
        |format: &str| named_by(format).map(|body| (format!("{format}-{}-py3-none-any.whl", body.len()), body));
    let links: String = wheels("html").iter().fold(String::new(), |links, (name, body)| {
        links + &format!("<a href=\"/files/{name}#sha256={}\">{name}</a>", hex(&SHA256, body))
    });
    let page = put(
        "/simple/html/".into(),
        links.into(),
        "Content-Type: text/html\r\n",
        "Accept: application/vnd.pypi.simple.v1+html\r\n",
    );
    kind("Python HTML", vec![page], wheels("html").map(|(name, body)| put(format!("/files/{name}"), body, "", "")));
    let listed = wheels("json").map(|(name, body)| {
        format!(
            "{{\"url\":\"/files/{name}\",\"filename\":\"{name}\",\"hashes\":{{\"sha256\":\"{}\"}}}}",
            hex(&SHA256, &body)
        )
    });
    let page = put(
        "/simple/json/".into(),
        format!("{{\"name\":\"json\",\"files\":[{}]}}", listed.join(",")).into(),
        "Content-Type: application/vnd.pypi.simple.v1+json\r\n",
        "Accept: application/vnd.pypi.simple.v1+json\r\n",
    );
    kind("Python JSON", vec![page], wheels("json").map(|(name, body)| put(format!("/files/{name}"), body, "", "")));

    let versions = named_by("npm").map(|body| {
        let integrity = base64(digest(&SHA512, &body).as_ref());
        let url = format!("http://{origin}/npm/-/npm-{}.0.0.tgz", body.len());
        format!("\"{}.0.0\":{{\"dist\":{{\"tarball\":\"{url}\",\"integrity\":\"sha512-{integrity}\"}}}}", body.len())
    });
    let page = put(
        "/npm".into(),
        format!("{{\"name\":\"npm\",\"versions\":{{{}}}}}", versions.join(",")).into(),
        "Content-Type: application/json\r\n",
        "Accept: application/vnd.npm.install-v1+json\r\n",
    );
    let tarballs = named_by("npm").map(|body| put(format!("/npm/-/npm-{}.0.0.tgz", body.len()), body, "", ""));
    kind("npm", vec![page], tarballs);

    let cargo = "Cargo-Protocol: version=1\r\n";
    let settings = format!("{{\"dl\":\"http://{origin}/crates\"}}");
    let settings = put("/cargo/config.json".into(), settings.into(), "Content-Type: application/json\r\n", cargo);
    let lines = named_by("crate").map(|body| {
        format!(
            "{{\"name\":\"abcd\",\"vers\":\"{}.0.0\",\"deps\":[],\"cksum\":\"{}\"}}\n",
            body.len(),
            hex(&SHA256, &body)
        )
    });
    let page = put("/cargo/ab/cd/abcd".into(), lines.concat().into(), "Content-Type: text/plain\r\n", cargo);
    let crates = named_by("crate").map(|body| put(format!("/crates/abcd/{}.0.0/download", body.len()), body, "", ""));
    kind("cargo", vec![settings, page], crates);

    let apt = "User-Agent: Debian APT-HTTP/1.3 (2.6.1)\r\n";
    let packages = named_by("deb").map(|body| {
        format!("Package: a\nFilename: pool/a_{}_all.deb\nSHA256: {}\n\n", body.len(), hex(&SHA256, &body))
    });
    let page = put("/debian/dists/x/main/binary-all/Packages".into(), packages.concat().into(), "", apt);
    let debs = named_by("deb").map(|body| put(format!("/debian/pool/a_{}_all.deb", body.len()), body, "", ""));
    kind("apt", vec![page], debs);
    (files, kinds)
}

/// The origin: it sends what it is told to, and can go away.
struct Origin {
    address: SocketAddr,
    files: Files,
    sends: AtomicU8,
    answers: AtomicUsize,
}

impl Origin {
    /// Listens until the other half of the pair is dropped.
    fn start() -> (Arc<Origin>, Vec<Kind>, Listening) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (files, kinds) = plant(address);
        let (sends, answers) = (AtomicU8::new(Sends::Right as u8), AtomicUsize::new(0));
        let origin = Arc::new(Origin { address, files, sends, answers });
        let of = Arc::clone(&origin);
        let (gone, is_over) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if is_over.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected) {
                    return;
                }
                let of = Arc::clone(&of);
                std::thread::spawn(move || of.serve(&stream));
            }
        });
        (origin, kinds, Listening { address, gone: Some(gone), thread: Some(thread) })
    }

    /// One answer a connection, so that none is left when the origin goes away.
    fn serve(&self, mut stream: &TcpStream) -> Option<()> {
        let (mut lines, mut head) = (BufReader::new(stream), String::new());
        while !head.ends_with("\r\n\r\n") {
            lines.read_line(&mut head).ok().filter(|&read| read > 0)?;
        }
        let file = self.files.get(head.split(' ').nth(1)?)?;
        self.answers.fetch_add(1, Ordering::SeqCst);
        let mut body = file.body.clone();
        let is_index = !file.asked_with.is_empty();
        if self.sends.load(Ordering::SeqCst) == Sends::Wrong as u8 && !is_index {
            body.iter_mut().step_by(1_000).for_each(|byte| *byte = !*byte);
        }
        let lower = head.to_lowercase();
        let range = lower.lines().find_map(|line| line.strip_prefix("range: bytes="));
        let range = range.and_then(|range| range.split_once('-')).map(|(from, to)| {
            let last = to.parse().map_or(body.len() - 1, |to: usize| to.min(body.len() - 1));
            (from.parse::<usize>().unwrap(), last)
        });
        let (status, part) = match range {
            None => ("200 OK\r\n".to_owned(), 0..body.len()),
            Some((from, last)) => (
                format!("206 Partial Content\r\nContent-Range: bytes {from}-{last}/{}\r\n", body.len()),
                from..last + 1,
            ),
        };
        let fields = &file.fields;
        let head = format!("HTTP/1.1 {status}{fields}Connection: close\r\nContent-Length: {}\r\n\r\n", part.len());
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body[part])).ok()
    }
}

/// An origin is there until this is dropped. Then connections are refused.
struct Listening {
    address: SocketAddr,
    gone: Option<std::sync::mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        drop(self.gone.take());
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// An answer as a client has it.
#[derive(Debug, PartialEq, Eq)]
enum Got {
    /// The right bytes, all of them.
    Right,
    /// An error, or an answer that visibly breaks off.
    Error,
    /// It looks whole, and is not the file.
    Wrong,
}

fn get(proxy: SocketAddr, origin: &Origin, path: &str) -> Got {
    let (file, host) = (&origin.files[path], origin.address);
    let mut stream = TcpStream::connect(proxy).unwrap();
    stream.set_read_timeout(Some(stand::WITHIN)).unwrap();
    let own = if file.asked_with.starts_with("User-Agent") { "" } else { "User-Agent: test\r\n" };
    let fields = format!("{own}{}Connection: close\r\n", file.asked_with);
    write!(stream, "GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let Some(at) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return Got::Error };
    let (head, body) = (String::from_utf8_lossy(&answer[..at]).to_lowercase(), &answer[at + 4..]);
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    match () {
        () if !head.starts_with("http/1.1 200") || length.is_some_and(|length| body.len() < length) => Got::Error,
        () if length == Some(body.len()) && body == file.body => Got::Right,
        () => Got::Wrong,
    }
}

/// Changes a byte in the middle of each of these bodies, where they lie in the folder.
fn damage(folder: &Path, origin: &Origin, paths: &[&String]) {
    let data = fs::read_dir(folder.join("disk")).unwrap().flatten().map(|entry| entry.path());
    let data: Vec<_> = data.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("data-")).collect();
    let mut contents: Vec<Vec<u8>> = data.iter().map(|path| fs::read(path).unwrap()).collect();
    for path in paths {
        let body = &origin.files[*path].body;
        let middle = &body[body.len() / 2..][..64];
        let mut found = 0;
        for bytes in &mut contents {
            let places: Vec<usize> = memchr::memmem::find_iter(bytes, middle).collect();
            found += places.len();
            places.iter().for_each(|&at| bytes[at + 32] = !bytes[at + 32]);
        }
        assert!(found > 0, "{path} is not on disk");
    }
    data.iter().zip(contents).for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => copy(&entry.path(), &to),
            kind if kind.is_file() => _ = fs::copy(entry.path(), &to).unwrap(),
            _ => {}
        }
    }
}

/// A store with the files of all kinds, a byte of each of them changed.
fn damaged_store(origin: &Origin, kinds: &[Kind], folder: &Path) {
    let server = stand::server(folder, SETTINGS);
    let proxy = server.addresses()[0];
    let all = || kinds.iter().flat_map(|kind| kind.indexes.iter().chain(&kind.files));
    for path in all() {
        assert_eq!(get(proxy, origin, path), Got::Right, "{path}");
    }
    // All but those that nobody names a digest for.
    let named = LENGTHS.len() * (kinds.len() - 1);
    let matched = format!("larder_digests_checked_total{{result=\"matched\"}} {named}\n");
    stand::wait_for("all digests to be compared", || {
        stand::ask(server.admin().unwrap(), "/metrics").contains(&matched)
    });
    let asked = origin.answers.load(Ordering::SeqCst);
    for path in all() {
        assert_eq!(get(proxy, origin, path), Got::Right, "{path}");
    }
    assert_eq!(origin.answers.load(Ordering::SeqCst), asked, "all of them are stored");
    server.stop();
    damage(folder, origin, &kinds.iter().flat_map(|kind| &kind.files).collect::<Vec<_>>());
}

/// Asks for all files of a kind until they are right, at most three times each; a wrong one is a failure at once.
fn mended(proxy: SocketAddr, origin: &Origin, kind: &Kind) {
    for path in &kind.files {
        let asked = origin.answers.load(Ordering::SeqCst);
        let tries: Vec<Got> = std::iter::repeat_with(|| get(proxy, origin, path)).take(3).collect();
        assert!(!tries.contains(&Got::Wrong) && tries[2] == Got::Right, "{}, {path}: {tries:?}", kind.name);
        assert!(origin.answers.load(Ordering::SeqCst) > asked, "{}, {path}: the origin was not asked", kind.name);
    }
}

#[test]
fn a_byte_that_was_changed_on_disk_is_never_served() {
    let folder = tempfile::tempdir().unwrap();
    let (origin, kinds, listening) = Origin::start();
    let [there, wrong, gone] = ["there", "wrong", "gone"].map(|name| folder.path().join(name));
    damaged_store(&origin, &kinds, &there);
    [&wrong, &gone].iter().for_each(|to| copy(&there, to));

    let server = stand::server(&there, SETTINGS);
    kinds.iter().for_each(|kind| mended(server.addresses()[0], &origin, kind));
    server.stop();

    // An origin that has other bytes by now, in the place of those that were lost: what is put together has the wrong digest.
    origin.sends.store(Sends::Wrong as u8, Ordering::SeqCst);
    let server = stand::server(&wrong, SETTINGS);
    for kind in kinds.iter().filter(|kind| kind.name != "none") {
        for path in kind.indexes.iter().chain(&kind.files) {
            assert_ne!(get(server.addresses()[0], &origin, path), Got::Wrong, "{}, {path}", kind.name);
        }
    }
    origin.sends.store(Sends::Right as u8, Ordering::SeqCst);
    kinds.iter().filter(|kind| kind.name != "none").for_each(|kind| mended(server.addresses()[0], &origin, kind));
    server.stop();

    drop(listening);
    let server: Server = stand::server(&gone, SETTINGS);
    let client = Client::new(control::socket(&gone));
    let offline = client.start_with(Network::Untouched, Way::Proxy).unwrap();
    let run = client.start().unwrap();
    for proxy in [server.addresses()[0], run.proxy, offline.proxy] {
        for kind in &kinds {
            let indexes = kind.indexes.iter().map(|path| (path, Got::Right));
            let files = kind.files.iter().map(|path| (path, Got::Error));
            for (path, wanted) in indexes.chain(files) {
                assert_eq!(get(proxy, &origin, path), wanted, "{}, {path}", kind.name);
            }
        }
    }
    server.stop();
}
