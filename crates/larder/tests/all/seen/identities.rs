//! Ten identities ask for the same URLs at once, in every way in which origins keep their answers apart and in some in which they forget to:
//! no byte of one reaches another. 10,000 requests in all, through the forward proxy, a `larder run` and a named mirror.

use super::stand;
use larder::run::control::{self, Client};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};

/// The field by which each one says who asks; the last one says nothing.
const IDENTITIES: [&str; 10] = [
    "Cookie: session=u0",
    "Cookie: theme=dark; session=u1",
    "Cookie: session=u2; a=b",
    "Authorization: Bearer u3",
    "Authorization: Bearer u4",
    "Authorization: Basic u5",
    "Authorization: Basic u6",
    "X-Api-Key: u7",
    "Private-Token: u8",
    "",
];

/// The kinds of paths; a number takes the place of `#`. Each has what its origin says of the answer.
const KINDS: [&str; 20] = [
    // For everybody, and said so.
    "/common/#",
    // For one, and said in the ways that RFC 9111 has for it.
    "/private/#",
    "/no-store/#",
    "/vary/#",
    "/validated/#",
    "/set-cookie/#",
    // A lifetime without a word: only what was asked for with `Authorization` is for one (section 3.5).
    "/max-age/#",
    "/s-maxage-no-cache/#",
    // Nothing said at all, of what tools download: presets know such paths. Digests are shorter than theirs, for bodies that differ
    // by user have none in common and would be refused.
    "/simple/#/",
    "/files/six-1.#-py3-none-any.whl",
    "/org/a/1.#/a-1.#.jar",
    "/a/-/a-1.0.#.tgz",
    "/gems/rack-3.0.#.gem",
    "/example.test/mod/@v/v1.2.#.zip",
    "/debian/by-hash/SHA256/abab#",
    "/v2/a/blobs/sha256:abab#",
    "/o/m/resolve/abababababababababababababababababababab/x#.bin",
    // Redirections to signed URLs, as hubs of models send them, at a branch and at a commit.
    "/o/m/resolve/main/x#.bin",
    "/o/n/resolve/abababababababababababababababababababab/x#.bin",
    // Longer than one piece.
    "/large/#",
];

/// Paths of each kind.
const PATHS: u64 = 12;
const RECORD: usize = 32;
const REQUESTS_EACH: u64 = 334;

fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 33
}

/// A body of records, each of which says whose it is.
fn body_of(who: &str, path: &str) -> Vec<u8> {
    let name = path.split(['?', '/']).nth(1).unwrap_or_default();
    let record = format!("{:<width$}\n", format!("for {who} of {name}"), width = RECORD - 1);
    record.repeat(if path.starts_with("/large/") { 8_000 } else { 60 }).into_bytes()
}

/// The one who asks, as the fields of a request say.
fn asker(head: &str) -> &str {
    let at = ["session=", "Bearer ", "Basic ", "X-Api-Key: ", "Private-Token: "]
        .iter()
        .find_map(|before| head.find(before).map(|at| at + before.len()));
    at.map_or("nobody", |at| &head[at..at + 2])
}

fn is_redirected(path: &str) -> bool {
    path.starts_with("/o/m/resolve/main/") || path.starts_with("/o/n/resolve/")
}

/// A query that ends in a signature.
const SIGNED_BY: &str = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=k&X-Amz-Expires=60&X-Amz-Signature=";

/// The origin. Its answers are for the one who asked, apart from those of `/common/`.
fn serve(stream: &TcpStream) -> Option<()> {
    static SIGNATURES: AtomicU64 = AtomicU64::new(0);
    let mut lines = BufReader::new(stream);
    loop {
        let head = stand::read_head(&mut lines)?;
        let path = head.split(' ').nth(1)?;
        let who = match path {
            _ if path.starts_with("/common/") => "all",
            _ if path.starts_with("/max-age/") && !head.contains("Authorization: ") => "nobody",
            // The signature says for whom it was made.
            _ if path.starts_with("/storage/") => &path[path.find("Signature=")? + 10..][..2],
            _ => asker(&head),
        };
        let who = if who == "no" { "nobody" } else { who };
        let tag = format!("\"{who} {path}\"");
        let fields = match path.split(['/', '?']).nth(1)? {
            "common" => "Cache-Control: public, max-age=600\r\n".to_owned(),
            "private" => "Cache-Control: private, max-age=600\r\n".to_owned(),
            "no-store" => "Cache-Control: no-store\r\n".to_owned(),
            "vary" | "large" => {
                "Cache-Control: max-age=600\r\nVary: Cookie, Authorization, X-Api-Key, Private-Token\r\n".to_owned()
            }
            "validated" => format!("Cache-Control: no-cache\r\nETag: {tag}\r\n"),
            "set-cookie" => format!("Cache-Control: max-age=600\r\nSet-Cookie: session={who}\r\n"),
            "max-age" => "Cache-Control: max-age=600\r\n".to_owned(),
            "s-maxage-no-cache" => format!("Cache-Control: s-maxage=600, no-cache\r\nETag: {tag}\r\n"),
            "storage" => format!("ETag: {tag}\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n"),
            "o" if is_redirected(path) => {
                let (number, file) = (SIGNATURES.fetch_add(1, Ordering::Relaxed), path.rsplit('/').next()?);
                format!("Location: /storage/{file}?{SIGNED_BY}{who}-{number}\r\n")
            }
            _ => "Content-Type: application/octet-stream\r\n".to_owned(),
        };
        let is_same = head.contains(&format!("If-None-Match: {tag}"));
        let (status, body) = match path {
            _ if is_same => ("304 Not Modified", Vec::new()),
            _ if is_redirected(path) => ("302 Found", Vec::new()),
            _ => ("200 OK", body_of(who, path)),
        };
        let answer = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
        (&*stream).write_all(answer.as_bytes()).ok()?;
        if !head.starts_with("HEAD") && !is_same {
            (&*stream).write_all(&body).ok()?;
        }
    }
}

/// A way to the origin, with what stands before a path in the target.
#[derive(Clone)]
struct Way {
    name: &'static str,
    proxy: SocketAddr,
    before: String,
    /// It takes cookies off requests, and `Set-Cookie` off answers.
    is_mirror: bool,
}

/// One identity that asks this way again and again.
struct Robot {
    way: Way,
    number: usize,
    stream: BufReader<TcpStream>,
    state: u64,
    hits: u64,
}

struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Robot {
    fn new(way: &Way, number: usize) -> Robot {
        let stream = TcpStream::connect(way.proxy).unwrap();
        stream.set_read_timeout(Some(stand::WITHIN)).unwrap();
        let way = way.clone();
        Robot { way, number, stream: BufReader::new(stream), state: number as u64, hits: 0 }
    }

    /// The one for whom answers have to be.
    fn who(&self) -> &'static str {
        let field = IDENTITIES[self.number];
        if self.way.is_mirror && field.starts_with("Cookie") { "nobody" } else { asker(field) }
    }

    fn ask(&mut self, method: &str, path: &str, fields: &str) -> Answer {
        let Way { before, proxy, .. } = &self.way;
        let identity = IDENTITIES[self.number];
        let end = if identity.is_empty() { "" } else { "\r\n" };
        let request = format!(
            "{method} {before}{path} HTTP/1.1\r\nHost: {proxy}\r\nUser-Agent: test\r\n{identity}{end}{fields}\r\n"
        );
        self.stream.get_mut().write_all(request.as_bytes()).unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(self.stream.read_line(&mut head).unwrap() > 0, "the connection ended behind {request}");
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let has_body = method != "HEAD" && status != 304;
        let length = if has_body { length.unwrap_or("0").parse().unwrap() } else { 0 };
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).unwrap();
        self.hits += u64::from(head.contains("larder; hit"));
        Answer { status, head, body }
    }

    /// One request, and the judgement on its answer.
    fn play(&mut self) {
        let kind = KINDS[draw(&mut self.state) as usize % KINDS.len()];
        let path = kind.replace('#', &(draw(&mut self.state) % PATHS).to_string());
        let (mut method, mut fields) = ("GET", "");
        match draw(&mut self.state) % 10 {
            0 => method = "HEAD",
            1 => fields = "Range: bytes=0-319\r\n",
            2 => fields = "Cache-Control: no-cache, no-store\r\nPragma: no-cache\r\n",
            3 => fields = "Cache-Control: max-age=0\r\n",
            _ => {}
        }
        let answer = self.ask(method, &path, fields);
        self.judge(&path, &answer);
        let location = answer.head.lines().find_map(|line| line.strip_prefix("Location: ")).map(str::to_owned);
        if let Some(at) = location.as_ref().and_then(|location| location.find("/storage/")) {
            let to = &location.unwrap()[at..];
            assert!(to.contains(&format!("Signature={}-", self.who())), "{}: {path}: {to}", self.told());
            let answer = self.ask("GET", to, fields);
            self.judge(to, &answer);
        }
    }

    fn told(&self) -> String {
        format!("{} by {:?}, who is {:?}", self.way.name, IDENTITIES[self.number], self.who())
    }

    fn judge(&self, path: &str, answer: &Answer) {
        let told = || format!("{}: {path}: {}", self.told(), answer.head);
        assert!(matches!(answer.status, 200 | 206 | 302 | 304), "{}", told());
        let whom: &[&str] = match path {
            _ if path.starts_with("/common/") => &["all"],
            _ if path.starts_with("/max-age/") => &[self.who(), "nobody"],
            _ => &[self.who()],
        };
        let whole: Vec<Vec<u8>> = whom.iter().map(|who| body_of(who, path)).collect();
        let is_his = |whole: &Vec<u8>| match answer.status {
            206 => answer.body == whole[..320],
            _ => answer.body == *whole,
        };
        let said = || String::from_utf8_lossy(&answer.body[..answer.body.len().min(RECORD)]).into_owned();
        assert!(answer.body.is_empty() || whole.iter().any(is_his), "{}{}", told(), said());
        for field in ["Set-Cookie: session=", "ETag: \""] {
            if let Some(value) = answer.head.lines().find_map(|line| line.strip_prefix(field)) {
                assert!(whom.iter().any(|who| value.starts_with(who)), "{}", told());
            }
        }
    }
}

#[test]
fn no_byte_of_one_identity_reaches_another() {
    let folder = tempfile::tempdir().unwrap();
    let origin = stand::origin_that(serve);
    let text = format!(
        "presets = [\"all\"]\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[mirror]]\nname = \"up\"\norigin = \"http://{origin}\"\n"
    );
    let server = stand::server(folder.path(), &text);
    let run = Client::new(control::socket(folder.path())).start().unwrap();
    let proxy = server.addresses()[0];
    let ways = [
        Way { name: "forward", proxy, before: format!("http://{origin}"), is_mirror: false },
        Way { name: "run", proxy: run.proxy, before: format!("http://{origin}"), is_mirror: false },
        Way { name: "mirror", proxy, before: "/up".to_owned(), is_mirror: true },
    ];
    // All ways at once: they have one store.
    let robots = ways.iter().flat_map(|way| (0..IDENTITIES.len()).map(move |number| (way.clone(), number)));
    let playing: Vec<_> = robots
        .map(|(way, number)| {
            std::thread::spawn(move || {
                let mut robot = Robot::new(&way, number);
                (0..REQUESTS_EACH).for_each(|_| robot.play());
                robot.hits
            })
        })
        .collect();
    let hits: u64 = playing.into_iter().map(|robot| robot.join().unwrap()).sum();
    // Without hits there would be nothing to mix up.
    assert!(hits > 1_000, "{hits} hits");
}
