//! The ways of a request that hooks are asked about: it waits without a task, in a task (where `timeouts.request` is set), or its verdict
//! is remembered. Whichever it goes, its client, its log and its origin see the same.

use super::hooks::status;
use super::reload::{Steered, base};
use super::stand::{self, Kept, wait_for};
use std::fs;
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

/// Hooks that do one of many things, drawn by the request.
const RANDOM: &str = r#"
import larder, zlib

@larder.request(REMEMBER)
def anything(req):
    draw = zlib.crc32((req.headers.get("x-draw", "") + req.path).encode())
    user = req.cookies.get("user", "none")
    if draw % 2:
        req.query.drop("a", "b")
    if draw // 2 % 4 == 0:
        req.headers["x-user"] = user
    if draw // 8 % 4 == 0:
        del req.headers["cookie"]
    if draw // 32 % 3 == 0:
        req.key.add(user)
    if draw // 96 % 7 == 0:
        return larder.pass_()
    if draw // 672 % 7 == 0:
        return larder.deny("not for you")
    if draw // 4704 % 5 == 0:
        req.path = "/p%d" % (draw % 7)
    if draw // 23520 % 9 == 0:
        raise ValueError("the draw of the day")

@larder.request(REMEMBER)
def nothing(req):
    pass

@larder.page("/x1", REMEMBER)
def page(req):
    return "a page for " + req.headers.get("x-draw", "")

@larder.found(REMEMBER, path="/x2")
def found(req, found):
    if "x-draw" in req.headers and req.headers["x-draw"].endswith("7"):
        return larder.miss()

@larder.respond(REMEMBER, path="/x3")
def stamp(req, resp):
    resp.headers["x-stamp"] = req.headers.get("x-draw", "")
"#;

/// An origin whose answers depend on their requests alone, and on a field that hooks set.
fn said_back(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let head = stand::read_head(&mut lines)?;
        let user = head.lines().find_map(|line| line.strip_prefix("x-user: ")).unwrap_or_default();
        let text = format!("{} x-user={user}", head.split(' ').nth(1)?);
        let vary = if text.contains("p3") { "Vary: X-User\r\n" } else { "" };
        let length = text.len();
        let head = format!("HTTP/1.1 200 OK\r\n{vary}Cache-Control: max-age=600\r\nContent-Length: {length}\r\n\r\n");
        (&*stream).write_all((head + &text).as_bytes()).ok()?;
    }
}

/// A server whose requests go one of the ways.
struct Way {
    steered: Steered,
    folder: tempfile::TempDir,
    client: Kept,
}

impl Way {
    fn open(origin: SocketAddr, remember: &str, more: &str) -> Way {
        let folder = tempfile::tempdir().unwrap();
        fs::write(
            folder.path().join("policy.py"),
            RANDOM.replace("REMEMBER, ", remember).replace("REMEMBER", remember),
        )
        .unwrap();
        let steered = Steered::start(folder.path(), &settings(folder.path(), origin, more));
        let client = Kept::to(steered.server.addresses()[0]);
        Way { steered, folder, client }
    }

    /// The answer, without what the clock decides or names this server or this request.
    fn ask(&mut self, request: &str) -> String {
        const OF_ONE: [&str; 4] = ["Date: ", "Age: ", "Via: ", "Larder-Request: "];
        let (head, body) = self.client.ask(request);
        let lines = head.lines().filter(|line| !OF_ONE.iter().any(|name| line.starts_with(name)));
        let lines = lines.map(|line| match line.split_once("; ttl=") {
            Some((start, _)) => start.to_owned(),
            None => line.to_owned(),
        });
        lines.collect::<Vec<_>>().join("\n") + "\n\n" + &body
    }

    /// The lines of the log, once all were written.
    fn lines(self, many: usize) -> Vec<String> {
        let log = self.folder.path().join("access.log");
        let read = || fs::read_to_string(&log).unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>();
        wait_for("the log", || read().len() >= many);
        self.steered.server.stop();
        read()
    }
}

fn settings(folder: &Path, origin: SocketAddr, more: &str) -> String {
    format!(
        "{}[[listen]]\naddress = \"127.0.0.1:0\"\n[[site]]\nhosts = [\"shop.example\"]\norigin = \"http://{origin}\"\nhooks = [\"policy.py\"]\n\
         [[python]]\nname = \"policy\"\nfolder = \"{}\"\nprocesses = 1\nhook_time = \"5s\"\n\
         [log]\nto = \"{}\"\nformat = \"{{method}} {{url}} {{status}} {{outcome}} {{bytes}} {{hook}} {{hook_script}} {{hook_line}}\"\n{more}",
        base(folder),
        folder.display(),
        folder.join("access.log").display()
    )
}

#[test]
fn a_hit_is_the_same_whether_it_waited_without_a_task_or_in_one_or_its_verdict_is_remembered() {
    const REQUESTS: u32 = 500;
    let origin = stand::origin_that(said_back);
    let mut ways = [
        Way::open(origin, "", ""),
        Way::open(origin, "", "[timeouts]\nrequest = \"1h\"\n"),
        Way::open(origin, "remember=\"60s\", ", ""),
    ];
    let mut hits = 0;
    for round in 0..REQUESTS {
        let seed = round.wrapping_mul(2_654_435_761) >> 7;
        let (draw, user, path, query) = (seed % 40, seed / 40 % 4, seed / 160 % 5, seed / 800 % 3);
        let query = ["", "?a=1", "?c=2&b=3"][query as usize];
        let more = ["", "", "", "Range: bytes=1-3\r\n", "Cache-Control: no-cache\r\n"][(seed / 2400 % 5) as usize];
        let request = format!(
            "GET /x{path}{query} HTTP/1.1\r\nHost: shop.example\r\nX-Draw: {draw}\r\nCookie: user=u{user}\r\n{more}\r\n"
        );
        // Asked twice, so that the second one may find its verdict remembered.
        for turn in ["first", "second"] {
            let [waits, in_task, remembered] = ways.each_mut().map(|way| way.ask(&request));
            assert_eq!(waits, in_task, "{turn} of {request}");
            assert_eq!(waits, remembered, "{turn} of {request}");
            hits += u32::from(waits.contains("; hit"));
            assert!(["200", "206", "403", "500"].contains(&status(&waits)), "{request}{waits}");
        }
    }
    assert!(hits > REQUESTS / 4, "{hits} hits show nothing");
    let [waits, in_task, remembered] = ways.map(|way| way.lines(2 * REQUESTS as usize));
    assert_eq!(waits, in_task);
    assert_eq!(waits, remembered);
}
