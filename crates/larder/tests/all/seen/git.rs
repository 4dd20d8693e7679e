//! Git over HTTP through a `larder run`, with the real program on both sides: `git http-backend` behind a small server.

use super::stand;
use larder::run::control::{self, Client};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};

static ROOT: OnceLock<PathBuf> = OnceLock::new();

/// A POST that the origin got.
#[derive(Clone)]
struct Seen {
    path: String,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

static POSTS: Mutex<Vec<Seen>> = Mutex::new(Vec::new());

/// POSTs to a repository that asked for objects; those that git compresses are longer than any for refs.
fn fetches(repository: &str) -> Vec<Seen> {
    let posts = POSTS.lock().unwrap();
    let is_fetch = |seen: &&Seen| {
        let text = String::from_utf8_lossy(&seen.body).into_owned();
        seen.path.starts_with(repository) && !text.contains("command=ls-refs")
    };
    posts.iter().filter(is_fetch).cloned().collect()
}

fn body_of(lines: &mut BufReader<&TcpStream>, fields: &[(String, String)]) -> Option<Vec<u8>> {
    let value =
        |name: &str| fields.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone());
    let mut body = Vec::new();
    if let Some(length) = value("Content-Length") {
        body.resize(length.parse().ok()?, 0);
        lines.read_exact(&mut body).ok()?;
    }
    if value("Transfer-Encoding").is_some() {
        loop {
            let mut line = String::new();
            lines.read_line(&mut line).ok()?;
            let mut chunk = vec![0; usize::from_str_radix(line.trim(), 16).ok()? + 2];
            lines.read_exact(&mut chunk).ok()?;
            if chunk.len() == 2 {
                break;
            }
            body.extend_from_slice(&chunk[..chunk.len() - 2]);
        }
    }
    Some(body)
}

/// One request by `git http-backend`. Paths below `/private` are for two users.
fn serve(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    let (mut first, mut fields) = (String::new(), Vec::new());
    lines.read_line(&mut first).ok().filter(|&read| read > 0)?;
    loop {
        let mut line = String::new();
        lines.read_line(&mut line).ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        fields.push((name.to_owned(), value.trim().to_owned()));
    }
    let value = |name: &str| {
        let own = fields.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        own.map(|(_, value)| value.as_str()).unwrap_or_default()
    };
    let body = body_of(&mut lines, &fields)?;
    let mut words = first.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if method == "POST" {
        let seen = Seen { path: path.to_owned(), fields: fields.clone(), body: body.clone() };
        POSTS.lock().unwrap().push(seen);
    }
    if method == "PUT" {
        (&*stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").ok()?;
        return None;
    }
    // alice:a and bob:b
    if path.starts_with("/private") && !["Basic YWxpY2U6YQ==", "Basic Ym9iOmI="].contains(&value("Authorization")) {
        let head = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"git\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        (&*stream).write_all(head.as_bytes()).ok()?;
        return None;
    }
    let mut backend = Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", ROOT.get()?)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", method)
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("CONTENT_TYPE", value("Content-Type"))
        .env("HTTP_CONTENT_ENCODING", value("Content-Encoding"))
        .env("GIT_PROTOCOL", value("Git-Protocol"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let mut stdin = backend.stdin.take()?;
    std::thread::spawn(move || stdin.write_all(&body));
    let answer = backend.wait_with_output().ok()?.stdout;
    let at = answer.windows(4).position(|end| end == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&answer[..at]).into_owned();
    let status = head.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK").to_owned();
    let head: String =
        head.lines().filter(|line| !line.starts_with("Status:")).map(|line| format!("{line}\r\n")).collect();
    let head = format!("HTTP/1.1 {status}\r\n{head}Connection: close\r\n\r\n");
    (&*stream).write_all(&[head.as_bytes(), &answer[at + 4..]].concat()).ok()
}

fn git(folder: &Path, words: &[&str]) -> (bool, String) {
    let mut command = Command::new("git");
    for variable in ["http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "NO_PROXY"] {
        command.env_remove(variable);
    }
    command.current_dir(folder).env("HOME", folder).env("GIT_TERMINAL_PROMPT", "0").env("GIT_CONFIG_NOSYSTEM", "1");
    command.args(["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]);
    let output = command.args(words).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).trim().to_owned())
}

fn must(folder: &Path, words: &[&str]) -> String {
    let (is_good, text) = git(folder, words);
    assert!(is_good, "git {words:?}: {text}");
    text
}

/// A repository with so many branches, each with a commit, that a clone's request is compressed.
fn repository(folder: &Path) {
    must(folder, &["init", "-q", "work"]);
    let work = folder.join("work");
    for number in 0..30 {
        std::fs::write(work.join("file"), format!("{number}\n").repeat(1000)).unwrap();
        must(&work, &["add", "."]);
        must(&work, &["commit", "-q", "-m", "a commit"]);
        must(&work, &["branch", &format!("b{number}")]);
    }
    for name in ["public.git", "private.git"] {
        must(folder, &["clone", "-q", "--bare", "work", name]);
    }
}

#[test]
fn git_clones_from_the_store() {
    if stand::program("git").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    repository(home);
    ROOT.set(home.to_owned()).unwrap();
    let store = tempfile::tempdir().unwrap();
    let _server = stand::server(store.path(), "");
    let client = Client::new(control::socket(store.path()));
    let run = client.start().unwrap();
    let origin = stand::origin_that(serve);
    let proxy = |run: &control::RunStarted| format!("http.proxy=http://{}", run.proxy);
    let through = proxy(&run);
    let public = format!("http://{origin}/public.git");
    let clone = |words: &[&str]| {
        let own = tempfile::tempdir_in(home).unwrap().keep();
        must(home, &[&["-c", &through, "clone", "-q"], words, &[&public, own.to_str().unwrap()]].concat());
        must(&own, &["fsck", "--strict"]);
        own
    };
    let head = |own: &Path| must(own, &["rev-parse", "HEAD"]);

    let first = clone(&[]);
    assert_eq!(fetches("/public").len(), 1);
    let second = clone(&[]);
    assert_eq!(fetches("/public").len(), 1, "the second clone comes from the store");
    assert_eq!(head(&first), head(&second));
    for _ in 0..2 {
        let shallow = clone(&["--depth", "1"]);
        assert_eq!(must(&shallow, &["rev-list", "--count", "HEAD"]), "1");
    }
    assert_eq!(fetches("/public").len(), 2, "nor is the newest commit fetched twice");
    for _ in 0..2 {
        clone(&["-c", "protocol.version=0"]);
    }
    assert_eq!(fetches("/public").len(), 3, "an older protocol has answers of its own");

    // A commit that is pushed is seen at once: the refs are asked for each time.
    let work = home.join("work");
    std::fs::write(work.join("file"), "new").unwrap();
    must(&work, &["commit", "-q", "-a", "-m", "another commit"]);
    must(&work, &["push", "-q", "../public.git", "main"]);
    must(&first, &["-c", &through, "pull", "-q"]);
    assert_eq!(std::fs::read_to_string(first.join("file")).unwrap(), "new");
    must(&second, &["-c", &through, "pull", "-q"]);
    assert_eq!(head(&second), head(&work));
    assert_eq!(head(&clone(&[])), head(&work));

    replay(&run, origin);
    private(&through, origin, home);
    // The refs were made void above.
    clone(&[]);

    client.finish(&run.id).unwrap();
    let asked = POSTS.lock().unwrap().len();
    let offline = client.start_with(control::Network::Untouched, control::Way::Proxy).unwrap();
    let own = home.join("offline");
    must(home, &["-c", &proxy(&offline), "clone", "-q", &public, own.to_str().unwrap()]);
    assert_eq!(head(&own), head(&work));
    assert_eq!(POSTS.lock().unwrap().len(), asked, "an offline clone asks nobody");
    let never = git(home, &["-c", &proxy(&offline), "clone", "-q", &format!("http://{origin}/private.git"), "never"]);
    assert!(!never.0, "{}", never.1);
}

/// The body of a fetch is sent once more by hand.
fn replay(run: &control::RunStarted, origin: SocketAddr) {
    let Seen { path, fields, body } = fetches("/public").pop().unwrap();
    let send_as = |body: &[u8], extra: &str, names: &[&str]| {
        let mut request =
            format!("POST http://{origin}{path} HTTP/1.1\r\nHost: {origin}\r\n{extra}Connection: close\r\n");
        for (name, value) in &fields {
            if names.contains(&name.to_ascii_lowercase().as_str()) {
                request.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        request.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        let mut stream = TcpStream::connect(run.proxy).unwrap();
        stream.set_read_timeout(Some(stand::WITHIN)).unwrap();
        stream.write_all(&[request.as_bytes(), body].concat()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    };
    let send = |body: &[u8], extra: &str| {
        send_as(body, extra, &["content-type", "content-encoding", "accept", "accept-encoding", "git-protocol"])
    };
    let count = || fetches("/public").len();
    let before = count();
    assert!(send(&body, "").contains("larder; hit"));
    assert_eq!(count(), before, "while the refs are known, the store answers");
    for credentials in ["Authorization: Bearer x\r\n", "Cookie: id=1\r\n", "X-Api-Key: x\r\n"] {
        let before = count();
        assert!(!send(&body, credentials).contains("larder; hit"), "{credentials}");
        assert_eq!(count(), before + 1, "{credentials}");
    }
    assert!(send(&body, "").contains("larder; hit"));
    // A GET of this URL is another thing.
    let get = stand::exchange(
        run.proxy,
        &format!("GET http://{origin}{path} HTTP/1.1\r\nHost: {origin}\r\nConnection: close\r\n\r\n"),
    );
    assert!(!get.contains("larder; hit"), "{get}");
    // The refs are made void: until they are asked for again, the origin has to say whether it still gives the objects away.
    let refs = "/public.git/info/refs?service=git-upload-pack";
    let put = format!(
        "PUT http://{origin}{refs} HTTP/1.1\r\nHost: {origin}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    assert!(stand::exchange(run.proxy, &put).starts_with("HTTP/1.1 200"));
    let before = count();
    assert!(!send(&body, "").contains("larder; hit"));
    assert_eq!(count(), before + 1);
    // An error that git says in the body is not stored.
    let wants = format!("0011command=fetch00010032want {}\n0009done\n0000", "1".repeat(40));
    for _ in 0..2 {
        let before = count();
        let answer = send_as(wants.as_bytes(), "", &["content-type", "accept", "accept-encoding", "git-protocol"]);
        assert!(answer.contains("not our ref") && !answer.contains("larder; hit"), "{answer}");
        assert_eq!(count(), before + 1);
    }
}

/// An answer for one user is nobody else's.
fn private(through: &str, origin: SocketAddr, home: &Path) {
    let clone = |user: &str, name: &str| {
        git(home, &["-c", through, "clone", "-q", &format!("http://{user}{origin}/private.git"), name])
    };
    for (times, user) in ["alice:a@", "bob:b@", "alice:a@"].into_iter().enumerate() {
        let (is_good, text) = clone(user, &format!("private{times}"));
        assert!(is_good, "{text}");
        assert_eq!(fetches("/private").len(), times + 1, "each asks the origin");
        assert!(!clone("", &format!("anonymous{times}")).0);
        assert!(!clone("eve:e@", &format!("eve{times}")).0);
    }
    assert_eq!(fetches("/private").len(), 3);
}
