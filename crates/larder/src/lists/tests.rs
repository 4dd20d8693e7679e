//! Lists of a running keeper, over files and over a server that plays what servers of lists do.

use super::*;
use crate::config::{List, ListSource, url};
use crate::tls;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A keeper over a folder of its own.
struct Stage {
    folder: tempfile::TempDir,
    lists: Arc<Lists>,
    keeper: Keeper,
}

impl Stage {
    fn new() -> Stage {
        Stage::over(tempfile::tempdir().unwrap())
    }

    fn over(folder: tempfile::TempDir) -> Stage {
        let roots = tls::Roots::none().into();
        let lists = Arc::new(Lists::default());
        let keeper = Keeper::new(Arc::clone(&lists), folder.path(), tls::client_config(&roots).unwrap());
        Stage { folder, lists, keeper }
    }

    /// As a server that is stopped and started again.
    fn restarted(self) -> Stage {
        self.keeper.stop();
        Stage::over(self.folder)
    }

    fn have(&self, lists: &[List]) -> Result<(), String> {
        let lists: Vec<Arc<List>> = lists.iter().cloned().map(Arc::new).collect();
        let prepared = self.keeper.prepare(&lists, None)?;
        self.keeper.have(&lists, prepared).map_err(|error| error.to_string())
    }

    fn covers(&self, host: &str) -> bool {
        self.lists.covers("ads", Subject::Host(host))
    }

    fn state(&self) -> ListState {
        self.lists.state("ads").unwrap()
    }

    /// Waits until the source was looked at so often.
    fn looked(&self, looks: u64) -> ListState {
        let end = Instant::now() + Duration::from_secs(30);
        while self.state().looks < looks {
            assert!(Instant::now() < end, "{:?}", self.state());
            std::thread::sleep(Duration::from_millis(2));
        }
        self.state()
    }

    fn refresh(&self, shrinking: Shrinking) -> ListState {
        let looks = self.state().looks;
        assert_eq!(self.keeper.refresh(Some("ads"), shrinking), RefreshAsked::Begun);
        self.looked(looks + 1)
    }
}

fn of_file(path: &Path) -> List {
    List { name: "ads".into(), source: ListSource::Path(path.to_owned()), ..List::default() }
}

fn of_url(origin: &Origin) -> List {
    let source = ListSource::Url(url::parse(&format!("http://{}/ads.txt", origin.address)).unwrap());
    List { name: "ads".into(), source, ..List::default() }
}

/// A server that gives one answer after the other, the last one again and again, and keeps the requests.
struct Origin {
    address: std::net::SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Origin {
    fn new(answers: Vec<String>) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&requests);
        let given = AtomicUsize::new(0);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = Vec::new();
                let mut some = [0; 1_024];
                while !request.windows(4).any(|four| four == b"\r\n\r\n") {
                    match stream.read(&mut some) {
                        Ok(length) if length > 0 => request.extend_from_slice(&some[..length]),
                        _ => break,
                    }
                }
                kept.lock().push(String::from_utf8_lossy(&request).into_owned());
                let number = given.fetch_add(1, Ordering::Relaxed).min(answers.len() - 1);
                let _ = stream.write_all(answers[number].as_bytes());
            }
        });
        Origin { address, requests }
    }
}

fn ok(fields: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{fields}\r\n{body}", body.len())
}

fn names(many: usize) -> String {
    (0..many).map(|number| format!("ads{number}.example\n")).collect()
}

#[test]
fn a_file_is_read_before_anything_is_served_and_read_again_at_a_reload() {
    let stage = Stage::new();
    let path = stage.folder.path().join("ads.txt");
    fs::write(&path, "ads.example\n.tree.example\n").unwrap();
    stage.have(&[of_file(&path)]).unwrap();
    assert!(stage.covers("ads.example") && stage.covers("a.tree.example") && !stage.covers("other.example"));
    assert_eq!((stage.state().as_str(), stage.state().entries), ("good", 2));
    let edition = stage.lists.live().edition();
    let looks = stage.looked(1).looks;
    fs::write(&path, "other.example\n").unwrap();
    stage.have(&[of_file(&path)]).unwrap();
    stage.looked(looks + 1);
    assert!(stage.covers("other.example") && !stage.covers("ads.example"));
    assert!(stage.lists.live().edition() > edition, "a memo of the old entries would go on");
    stage.have(&[]).unwrap();
    assert!(!stage.covers("other.example") && stage.lists.states().is_empty());
    assert!(fs::read_dir(stage.folder.path().join("lists")).unwrap().next().is_none());
}

#[test]
fn a_file_that_cannot_be_read_refuses_the_configuration() {
    let stage = Stage::new();
    let path = stage.folder.path().join("none.txt");
    let trouble = stage.have(&[of_file(&path)]).unwrap_err();
    assert!(trouble.contains("list ads (default): ") && trouble.contains("none.txt: No such file"), "{trouble}");
    fs::write(&path, "<!DOCTYPE html>").unwrap();
    assert!(stage.have(&[of_file(&path)]).unwrap_err().contains("web page"));
    // One that was read before is in force all the same.
    fs::write(&path, "ads.example\n").unwrap();
    stage.have(&[of_file(&path)]).unwrap();
    let stage = stage.restarted();
    fs::remove_file(&path).unwrap();
    stage.have(&[of_file(&path)]).unwrap();
    assert!(stage.covers("ads.example"));
    assert_eq!(stage.looked(1).as_str(), "stale");
}

/// Something else may be wrong with a configuration whose lists were read.
#[test]
fn lists_of_a_configuration_that_is_refused_leave_those_in_force_as_they_were() {
    let stage = Stage::new();
    let [path, other, none] = ["ads.txt", "other.txt", "none.txt"].map(|name| stage.folder.path().join(name));
    fs::write(&path, "ads.example\n").unwrap();
    fs::write(&other, "other.example\n").unwrap();
    stage.have(&[of_file(&path)]).unwrap();
    stage.looked(1);
    let kept = || {
        let folder = fs::read_dir(stage.folder.path().join("lists")).unwrap();
        let mut files: Vec<_> = folder.map(|entry| entry.unwrap().path()).map(|path| (fs::read(&path), path)).collect();
        files.sort_by(|one, other| one.1.cmp(&other.1));
        files.into_iter().map(|(bytes, path)| (path, bytes.unwrap())).collect::<Vec<_>>()
    };
    let before = kept();
    let wanted = Arc::new(of_file(&other));
    let prepared = stage.keeper.prepare(&[Arc::clone(&wanted)], None).unwrap();
    assert_eq!(kept().len(), 2, "it is written beside the one in force");
    drop(prepared);
    assert!(kept() == before, "a file has changed");
    let broken = Arc::new(List { name: "more".into(), ..of_file(&none) });
    assert!(stage.keeper.prepare(&[Arc::clone(&wanted), broken], None).is_err());
    assert!(kept() == before && stage.covers("ads.example"));
    // After a restart it is there without its source.
    let stage = stage.restarted();
    fs::remove_file(&path).unwrap();
    stage.have(&[of_file(&path)]).unwrap();
    assert!(stage.covers("ads.example"));
    // One that is put in force takes the place of the other, here and for the next start.
    stage.have(&[List::clone(&wanted)]).unwrap();
    assert!(stage.covers("other.example") && !stage.covers("ads.example"));
    let stage = stage.restarted();
    fs::remove_file(&other).unwrap();
    stage.have(&[List::clone(&wanted)]).unwrap();
    assert!(stage.covers("other.example"));
}

/// A FIFO has its content once, as a file has that is replaced between two reads.
#[test]
fn a_sum_pins_what_is_compiled() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ads.txt");
    let good = "ads.example\n";
    let mut sha256 = [0; 32];
    sha256.copy_from_slice(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, good.as_bytes()).as_ref());
    let of = |path: &Path| List { sha256: Some(sha256), ..of_file(path) };
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let (list, writes) = (of(&path), path.clone());
    let (says, said) = std::sync::mpsc::channel();
    std::thread::spawn(move || fs::write(&writes, good).unwrap());
    std::thread::spawn(move || says.send(examine(&list)).unwrap());
    assert_eq!(said.recv_timeout(Duration::from_secs(30)), Ok((None, Vec::new())), "it is read twice");
    let file = folder.path().join("file.txt");
    for (text, wanted) in
        [(good, None), ("ads.example\nb.example\n", Some("its SHA-256 is ")), ("<html>", Some("SHA-256"))]
    {
        fs::write(&file, text).unwrap();
        let fault = examine(&of(&file)).0;
        assert_eq!(fault.is_some(), wanted.is_some(), "{fault:?}");
        assert!(fault.is_none_or(|fault| wanted.is_some_and(|wanted| fault.contains(wanted))), "{text}");
    }
}

#[test]
fn allow_takes_out_and_a_sum_pins() {
    let stage = Stage::new();
    let path = stage.folder.path().join("ads.txt");
    fs::write(&path, ".example.com\n192.0.2.0/24\n").unwrap();
    let allow = vec![".good.example.com".to_owned(), "192.0.2.7".to_owned(), "shared.example.com/free".to_owned()];
    stage.have(&[List { allow, ..of_file(&path) }]).unwrap();
    assert!(stage.covers("bad.example.com") && !stage.covers("a.good.example.com") && !stage.covers("192.0.2.7"));
    let url = |path| Subject::Url { scheme: "http", host: "shared.example.com", path };
    assert!(stage.lists.covers("ads", url("/paid")) && !stage.lists.covers("ads", url("/free/x")));
    let set = stage.lists.live().value();
    let (covered, why) = set.find("ads").unwrap().judge(Subject::Host("a.good.example.com"));
    assert_eq!((covered, &*why), (false, "not covered: `allow` has the name above it `good.example.com`"));
    let trouble = stage.have(&[List { sha256: Some([7; 32]), ..of_file(&path) }]).unwrap_err();
    assert!(trouble.contains("its SHA-256 is ") && trouble.contains(&"07".repeat(32)), "{trouble}");
}

#[test]
fn a_download_is_conditional_and_survives_a_restart() {
    let first = ok("ETag: \"1\"\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n", "0.0.0.0 ads.example\n");
    let not_modified = "HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n".to_owned();
    let origin = Origin::new(vec![first, not_modified, ok("", "0.0.0.0 new.example\n")]);
    let stage = Stage::new();
    stage.have(&[of_url(&origin)]).unwrap();
    assert_eq!(stage.looked(1).as_str(), "good");
    assert!(stage.covers("ads.example") && stage.state().format == "hosts");
    let state = stage.refresh(Shrinking::Refused);
    assert_eq!((state.changes, state.failures, state.as_str()), (1, 0, "good"));
    let second = origin.requests.lock()[1].clone();
    assert!(
        second.contains("If-None-Match: \"1\"\r\nIf-Modified-Since: Mon, 01 Jan 2024 00:00:00 GMT\r\n"),
        "{second}"
    );
    // After a restart it is there at once, and is not asked for before its time.
    let stage = stage.restarted();
    stage.have(&[of_url(&origin)]).unwrap();
    assert!(stage.covers("ads.example") && stage.state().checked_at.is_some());
    assert!(stage.state().next_at.unwrap() > crate::clock::wall() + Duration::from_secs(80_000));
    assert_eq!((stage.state().looks, origin.requests.lock().len()), (0, 2));
    assert_eq!(stage.refresh(Shrinking::Refused).changes, 1);
    assert!(stage.covers("new.example") && !stage.covers("ads.example"));
}

#[test]
fn a_look_that_fails_leaves_the_list_before_in_force() {
    let good = names(1_000);
    let answers = vec![
        ok("", &good),
        "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n".to_owned(),
        ok("Content-Type: text/html\r\n", "<html><title>Log in</title></html>"),
        format!("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{}", names(900)),
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nads1.example\nads"),
        ok("", &names(99)),
        ok("", ""),
        ok("Content-Encoding: gzip\r\n", &good),
        "HTTP/1.1 302 Found\r\nLocation: /ads.txt\r\n\r\n".to_owned(),
    ];
    let origin = Origin::new(answers);
    let stage = Stage::new();
    stage.have(&[of_url(&origin)]).unwrap();
    assert_eq!(stage.looked(1).entries, 1_000);
    for (number, wanted) in [
        "127.0.0.1 answered 500",
        "it is a web page, not a list",
        "closed inside the body",
        "closed inside the body",
        "it has 99 entries, and 1000 before: it is kept back",
        "there is no entry in its 0 lines",
        "a coding that was not asked for",
        "redirected more than 5 times",
    ]
    .into_iter()
    .enumerate()
    {
        let state = stage.refresh(Shrinking::Refused);
        let error = state.error.clone().unwrap_or_default();
        assert!(error.contains(wanted), "{wanted}: {error}");
        assert_eq!((state.as_str(), state.failures, state.entries), ("stale", number as u64 + 1, 1_000));
        assert!(stage.covers("ads999.example"), "{wanted}");
    }
    // A source that failed is tried again after a minute, then after two.
    let next = stage.state().next_at.unwrap().saturating_sub(crate::clock::wall());
    assert!(next > Duration::from_secs(3_600) && next <= Duration::from_secs(86_400), "{next:?}");
}

#[test]
fn a_list_that_has_become_short_is_taken_where_a_person_says_so() {
    let origin = Origin::new(vec![ok("ETag: \"1\"\r\n", &names(1_000)), ok("ETag: \"2\"\r\n", &names(10))]);
    let stage = Stage::new();
    stage.have(&[of_url(&origin)]).unwrap();
    stage.looked(1);
    assert_eq!(stage.refresh(Shrinking::Refused).as_str(), "stale");
    let state = stage.refresh(Shrinking::Accepted);
    assert_eq!((state.as_str(), state.entries, state.error), ("good", 10, None));
    assert!(!stage.covers("ads999.example") && stage.covers("ads9.example"));
}

#[test]
fn the_first_download_that_fails_leaves_a_list_that_covers_nothing() {
    let origin =
        Origin::new(vec!["HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(), ok("", "ads.example\n")]);
    let stage = Stage::new();
    stage.have(&[of_url(&origin)]).unwrap();
    assert_eq!((stage.looked(1).as_str(), stage.covers("ads.example")), ("failed", false));
    assert_eq!((stage.refresh(Shrinking::Refused).as_str(), stage.covers("ads.example")), ("good", true));
    assert_eq!(stage.keeper.refresh(Some("none"), Shrinking::Refused), RefreshAsked::Unknown);
}

#[test]
fn a_damaged_file_is_read_again_from_its_source() {
    let stage = Stage::new();
    let path = stage.folder.path().join("ads.txt");
    fs::write(&path, "ads.example\n").unwrap();
    stage.have(&[of_file(&path)]).unwrap();
    let stage = stage.restarted();
    let compiled = stage.folder.path().join("lists/ads.list");
    let mut bytes = fs::read(&compiled).unwrap();
    bytes[70] ^= 1;
    fs::write(&compiled, bytes).unwrap();
    fs::write(compiled.with_extension("new"), "half a list").unwrap();
    stage.have(&[of_file(&path)]).unwrap();
    assert!(stage.covers("ads.example") && !compiled.with_extension("new").exists());
}

#[test]
fn a_replaced_list_is_freed_by_its_keeper() {
    let stage = Stage::new();
    let path = stage.folder.path().join("ads.txt");
    fs::write(&path, "ads.example\n").unwrap();
    stage.have(&[of_file(&path)]).unwrap();
    stage.looked(1);
    let worker = crate::live::Copy::default();
    let held = Arc::downgrade(worker.of(stage.lists.live()).lists.get("ads").unwrap());
    fs::write(&path, "other.example\n").unwrap();
    stage.refresh(Shrinking::Refused);
    assert!(held.upgrade().is_some(), "the worker has the old edition");
    assert!(worker.of(stage.lists.live()).covers("ads", Subject::Host("other.example")));
    assert!(held.upgrade().is_some(), "the worker that takes up the new edition does not free the old one");
    stage.refresh(Shrinking::Refused);
    let end = Instant::now() + Duration::from_secs(30);
    while held.upgrade().is_some() {
        assert!(Instant::now() < end, "the old list is never freed");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// However many looks are asked for, each of them waits in one place.
#[test]
fn a_look_is_taken_while_the_thread_is_busy() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let source = ListSource::Url(url::parse(&format!("http://{}/", silent.local_addr().unwrap())).unwrap());
    let stage = Stage::new();
    stage.have(&[List { name: "ads".into(), source, ..List::default() }]).unwrap();
    for _ in 0..1_000 {
        assert_eq!(stage.keeper.refresh(Some("ads"), Shrinking::Refused), RefreshAsked::Begun);
    }
}

/// A server that sends `first`, and `again` a thousand times a second for as long as somebody reads it.
fn endless_origin(first: &'static [u8], again: &'static [u8]) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let _ = stream.set_nodelay(true);
                let mut piece = first;
                while stream.write_all(piece).is_ok() {
                    piece = again;
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
    });
    address
}

/// Each of these would be read for hours otherwise, and no other list looked at meanwhile.
#[test]
fn a_download_that_does_not_end_is_given_up() {
    let too_long = "it took too long altogether";
    // The head of a record of TLS that is 16 KB long.
    let record: &[u8] = &[0x16, 3, 3, 0x40, 0];
    for (scheme, first, again, wanted) in [
        ("http", &b"HTTP/1.1 200 OK\r\nA: "[..], &b"a"[..], too_long),
        ("http", b"HTTP/1.1 200 OK\r\n\r\n", b"a", too_long),
        ("http", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n", too_long),
        ("https", record, b"\0", too_long),
        ("http", b"", b"HTTP/1.1 100 Continue\r\n\r\n", "more than 32 interim responses"),
        ("http", b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", "more than 32 interim responses"),
    ] {
        let source = url::parse(&format!("{scheme}://{}/", endless_origin(first, again))).unwrap();
        let tls = tls::client_config(&tls::Roots::none().into()).unwrap();
        let within = Duration::from_millis(if wanted == too_long { 300 } else { 60_000 });
        let none = download::Validators::default();
        let fetched = download::fetch(within, &source, &none, &tls, 1 << 30, &mut std::io::sink());
        let trouble = fetched.unwrap_err().to_string();
        assert!(trouble.contains(wanted), "{scheme} {}: {trouble}", String::from_utf8_lossy(first));
    }
}

/// An answer over TLS, and whether the connection is closed in order behind it.
type TlsAnswer = (String, bool);

/// A server over TLS for 127.0.0.1, and the roots by which it is believed.
fn tls_origin(answers: Vec<TlsAnswer>) -> (std::net::SocketAddr, tls::Roots) {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let root = params.self_signed(&key).unwrap().der().clone();
    let issuer = Issuer::new(params, key);
    let leaf_key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&leaf_key, &issuer).unwrap();
    let leaf_key = rustls::pki_types::PrivateKeyDer::try_from(leaf_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], leaf_key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream.unwrap());
            let (answer, closes) = &answers[number.min(answers.len() - 1)];
            if stream.read(&mut [0; 1_024]).is_ok_and(|length| length > 0) {
                let _ = stream.write_all(answer.as_bytes());
                if *closes {
                    stream.conn.send_close_notify();
                }
                let _ = stream.flush();
            }
        }
    });
    (address, tls::Roots { certificates: vec![root], troubles: Vec::new() })
}

#[test]
fn a_download_over_tls_is_verified_and_whole() {
    let until_close = "HTTP/1.1 200 OK\r\n\r\nads.example\n".to_owned();
    let to_clear_text = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n".to_owned();
    let (address, roots) = tls_origin(vec![(until_close.clone(), true), (until_close, false), (to_clear_text, true)]);
    let source = url::parse(&format!("https://{address}/ads.txt")).unwrap();
    let fetch = |roots: &tls::Roots| {
        let mut body = Vec::new();
        let tls = tls::client_config(&roots.clone().into()).unwrap();
        let fetched = download::fetch(
            download::DOWNLOAD_WITHIN,
            &source,
            &download::Validators::default(),
            &tls,
            1_000,
            &mut body,
        );
        fetched.map(|_| body).map_err(|error| error.to_string())
    };
    assert_eq!(fetch(&roots).unwrap(), b"ads.example\n");
    let cut = fetch(&roots).unwrap_err();
    assert!(cut.contains("close_notify"), "{cut}");
    let redirected = fetch(&roots).unwrap_err();
    assert!(redirected.contains("from https to http://127.0.0.1:9/"), "{redirected}");
    let strange = fetch(&tls::Roots { certificates: Vec::new(), troubles: Vec::new() }).unwrap_err();
    assert!(strange.contains("certificate"), "{strange}");
}

#[test]
fn a_rehearsal_has_files_as_they_are_and_downloads_as_they_were_kept() {
    let origin = Origin::new(vec![ok("", "ads.example\n")]);
    let stage = Stage::new();
    stage.have(&[of_url(&origin)]).unwrap();
    stage.looked(1);
    let path = stage.folder.path().join("more.txt");
    let more = |name: &str| List { name: name.into(), ..of_file(&path) };
    let never = List { name: "never".into(), ..of_url(&origin) };
    let lists = [of_url(&origin), more("more"), never];
    let store = Some(stage.folder.path().to_owned());
    let config =
        config::Config { lists: lists.into_iter().map(Arc::new).collect(), store, ..config::Config::default() };
    for (text, name) in [("one.example\n", "one.example"), ("two.example\n", "two.example")] {
        fs::write(&path, text).unwrap();
        let (set, notes) = for_rehearsal(&config);
        assert!(set.covers("ads", Subject::Host("ads.example")) && set.covers("more", Subject::Host(name)), "{name}");
        assert_eq!(notes, ["list never (default) covers nothing: no server has downloaded it"]);
    }
    assert_eq!(origin.requests.lock().len(), 1);
}
