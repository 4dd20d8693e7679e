//! The judgement of a request holds for the next one with the same fields only as far as nothing else differs: the
//! listener, the client, the host of an absolute target, the settings, the kind of path.

use super::reload::{Steered, base};
use super::stand;
use larder_wire::reading::Reading;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// An origin's part: it answers with its own address and the path.
fn tells(stream: &TcpStream) -> Option<()> {
    let here = stream.local_addr().ok()?;
    let mut lines = BufReader::new(stream);
    loop {
        let first = stand::read_request(&mut lines)?;
        let body = format!("{here} {}", first.split(' ').nth(1)?);
        let head = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {}\r\n\r\n", body.len());
        (&*stream).write_all((head + &body).as_bytes()).ok()?;
    }
}

/// A connection that stays.
struct Client(BufReader<TcpStream>);

impl Client {
    fn of(address: [u8; 4], to: SocketAddr) -> Client {
        Client(BufReader::new(stand::connect_from(address, to)))
    }

    fn ask(&mut self, target: &str) -> String {
        self.ask_with("same.example", "", target).0
    }

    /// The body of an answer with status 200, or else the status; and whether it was a hit.
    fn ask_with(&mut self, host: &str, more: &str, target: &str) -> (String, bool) {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n");
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        let (mut status, mut length, mut line, mut hit) = (String::new(), 0, String::new(), false);
        while line != "\r\n" {
            line.clear();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the connection ended");
            match line.split_once(": ") {
                None if status.is_empty() => status = line.split(' ').nth(1).unwrap().to_owned(),
                Some((name, value)) if name.eq_ignore_ascii_case("Content-Length") => {
                    length = value.trim().parse().unwrap()
                }
                Some(("Cache-Status", value)) => hit = value.contains("; hit"),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        (if status == "200" { String::from_utf8(body).unwrap() } else { status }, hit)
    }
}

/// As many as there are places for heads, and some more: so some share a place with one at another listener.
const CLIENTS: usize = 20;

/// A request, and the answer that is expected.
struct Asked {
    door: SocketAddr,
    client: [u8; 4],
    target: String,
    wanted: String,
}

fn clients_of(asked: &[Asked]) -> Vec<Client> {
    (0..CLIENTS).flat_map(|_| asked.iter().map(|asked| Client::of(asked.client, asked.door))).collect()
}

/// Each client asks several times in a row; the fields are the same everywhere.
fn each_gets_its_own(what: &str, clients: &mut [Client], asked: &[Asked]) {
    let mut wrong = String::new();
    for round in 0..2 {
        for (client, Asked { target, wanted, .. }) in clients.iter_mut().zip(asked.iter().cycle()) {
            for time in 0..3 {
                let got = client.ask(target);
                if got != *wanted {
                    writeln!(wrong, "{what}, round {round}, time {time}: {target} got {got}, not {wanted}").unwrap();
                }
            }
        }
    }
    assert_eq!(wrong, "");
}

const HERE: [u8; 4] = [127, 0, 0, 1];
const THERE: [u8; 4] = [127, 0, 0, 2];

#[test]
fn the_same_fields_mean_what_they_mean_here_and_now() {
    let folder = tempfile::tempdir().unwrap();
    // Two hosts with one port.
    let x = stand::origin_at((HERE, 0).into(), tells);
    let y = stand::origin_at((THERE, x.port()).into(), tells);
    let base = base(folder.path()).replace("workers = 2", "workers = 1");
    let free: Vec<_> = (0..3).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let doors: Vec<_> = free.iter().map(|listener| listener.local_addr().unwrap()).collect();
    drop(free);
    let settings = |of_site: SocketAddr, other: &str, client: &str| {
        format!(
            "{base}[[listen]]\naddress = \"{}\"\norigin = \"http://{x}\"\n[[listen]]\naddress = \"{}\"\norigin = \"http://{y}\"\n\
             [[listen]]\naddress = \"{}\"\nforward = true\n[access]\nclients = [\"{client}\"]\n[[site]]\nhosts = [\"same.example\"]\norigin = \"http://{of_site}\"\n{other}",
            doors[0], doors[1], doors[2]
        )
    };
    let origin = |of: SocketAddr, path: &str| format!("{of} {path}");
    let at_sites = |of_site: SocketAddr, other: SocketAddr| {
        let mut asked = Vec::new();
        // The same in other spellings: each is asked for as it is spelled.
        for path in ["/a", "/b?c", "/~d", "/%7Ed", "/%7ed", "//a", "/x/../a", "/squid-internal-mgr", "/other/e"] {
            asked.push(Asked { door: doors[0], client: HERE, target: path.to_owned(), wanted: origin(x, path) });
            asked.push(Asked { door: doors[1], client: THERE, target: path.to_owned(), wanted: origin(y, path) });
            let of = if path.starts_with("/other") { other } else { of_site };
            // Where two sites share the host, what may be in either is in none.
            let refused = of_site != other && path == "/x/../a";
            let wanted = if refused { "400".to_owned() } else { origin(of, path) };
            asked.push(Asked { door: doors[2], client: THERE, target: path.to_owned(), wanted });
        }
        asked
    };
    let forward = |client: [u8; 4], wanted: Option<&str>| {
        let all = [(x, "/a"), (y, "/a"), (x, "/b")];
        let each = |(of, path): (SocketAddr, &str)| {
            let wanted = wanted.map_or_else(|| origin(of, path), str::to_owned);
            Asked { door: doors[2], client, target: format!("http://{of}{path}"), wanted }
        };
        all.map(each)
    };
    let together = |sites: Vec<Asked>, here, there| -> Vec<Asked> {
        sites.into_iter().chain(forward(HERE, here)).chain(forward(THERE, there)).collect()
    };
    let steered = Steered::start(folder.path(), &settings(y, "", "127.0.0.1"));
    let mut alone = Client::of(HERE, doors[2]);
    (0..3).for_each(|_| assert_eq!(alone.ask("/a"), origin(y, "/a")));
    steered.reload(&settings(x, "", "127.0.0.1")).unwrap();
    assert_eq!(alone.ask("/a"), origin(x, "/a"), "the settings of now hold for a connection of before");
    let asked = together(at_sites(x, x), None, Some("403"));
    let mut clients = clients_of(&asked);
    each_gets_its_own("at first", &mut clients, &asked);
    steered.reload(&settings(y, "", "127.0.0.2")).unwrap();
    let asked = together(at_sites(y, y), Some("403"), None);
    each_gets_its_own("after a reload", &mut clients, &asked);
    each_gets_its_own("new clients", &mut clients_of(&asked), &asked);
    let other = format!("[[site]]\nhosts = [\"same.example\"]\nprefix = \"/other\"\norigin = \"http://{x}\"\n");
    steered.reload(&settings(y, &other, "127.0.0.0/8")).unwrap();
    let asked = together(at_sites(y, x), None, None);
    each_gets_its_own("with two sites of one host", &mut clients, &asked);
}

/// One client alone, whose head is always the one that is remembered: what came before must not make a difference.
#[test]
fn other_fields_are_judged_by_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let origin = stand::origin_at((HERE, 0).into(), tells);
    let site = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[[site]]\nhosts = [\"same.example\"]\norigin = \"http://{origin}\"\n"
    );
    let steered = Steered::start(folder.path(), &(base(folder.path()).replace("workers = 2", "workers = 1") + &site));
    let mut client = Client::of(HERE, steered.server.addresses()[0]);
    let looped = format!("Via: 1.1 {}\r\n", steered.server.shared().common.via_name);
    let (no_cache, cached) = ("Cache-Control: no-cache\r\n", "Cache-Control: only-if-cached\r\n");
    let (same, other) = ("same.example", "other.example");
    let steps = [
        (3, same, "", "/a", "200"),
        (2, same, "X-Number: 1\r\n", "/a", "200 hit"),
        (1, same, "X-Number: 2\r\n", "/a", "200 hit"),
        (2, same, "", "/a", "200 hit"),
        // A host of which nothing is known, and one that is.
        (2, other, "", "/a", "404"),
        (1, same, "", "/a", "200 hit"),
        (2, other, "X-Number: 1\r\n", "/a", "404"),
        (2, same, "", "/a", "200 hit"),
        // The request has been here before: its `Via` names this proxy.
        (2, same, &looped, "/a", "508"),
        (2, same, "Via: 1.1 elsewhere\r\n", "/a", "200 hit"),
        (2, same, &looped, "/a", "508"),
        (2, same, "", "/a", "200 hit"),
        // Directives hold for who says them.
        (2, same, no_cache, "/a", "200"),
        (3, same, cached, "/a", "200 hit"),
        (2, same, "", "/a", "200 hit"),
        (1, same, "", "/b", "200"),
        (3, same, "", "/b", "200 hit"),
        (1, same, cached, "/c", "504"),
        (3, same, "", "/b", "200 hit"),
        (2, same, no_cache, "/b", "200"),
    ];
    for (number, (times, host, more, path, wanted)) in steps.into_iter().enumerate() {
        for time in 0..times {
            let (got, hit) = client.ask_with(host, more, path);
            let status = if got.len() == 3 { got.as_str() } else { "200" };
            let wanted = if number == 0 && time > 0 { "200 hit" } else { wanted };
            let got = if hit { format!("{status} hit") } else { status.to_owned() };
            assert_eq!(got, wanted, "step {number}, time {time}: {host} {more:?} {path}");
        }
    }
}

/// One connection asks for many paths, most of which can be read in several ways: what was found out about one path does
/// not let another through, and each is answered in its own spelling.
#[test]
fn each_path_is_judged_by_itself_where_paths_are_judged() {
    let folder = tempfile::tempdir().unwrap();
    let origin = stand::origin_at((HERE, 0).into(), tells);
    let listens = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\norigin = \"http://{origin}/base\"\n\
         [[listen]]\naddress = \"127.0.0.1:0\"\norigin = \"http://{origin}\"\n\
         [[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[site]]\nhosts = [\"same.example\"]\norigin = \"http://{origin}/all\"\n\
         [[site]]\nhosts = [\"same.example\"]\nprefix = \"/a\"\norigin = \"http://{origin}/a-only\"\n"
    );
    let text = base(folder.path()).replace("workers = 2", "workers = 1") + &listens;
    let steered = Steered::start(folder.path(), &text);
    let mut clients: Vec<Client> = steered.server.addresses().iter().map(|door| Client::of(HERE, *door)).collect();
    let parts = ["/", "a", "b", "%61", "%2f", ".", "..", "/..", "/.", "%2e", "\\", ";", "?", "%zz", "/a/", "/b/"];
    let mut seed = 0x5eed_u64;
    let mut draw = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for round in 0..1_500 {
        let drawn: String = (0..draw(6)).map(|_| parts[draw(parts.len())]).collect();
        // Between them one that all agree on, so that there is something to go by.
        let path = if round % 3 == 0 { format!("/b{}", round % 7) } else { format!("/{drawn}") };
        let reading = Reading::of(&path);
        let climbs = reading == Reading::Climbs;
        let said = |before: &str| format!("{origin} {before}{path}");
        let wanted = |refused: bool, before: &str| if refused { "400".to_owned() } else { said(before) };
        assert_eq!(clients[0].ask(&path), wanted(climbs, "/base"), "round {round}: {path}");
        assert_eq!(clients[1].ask(&path), said(""), "round {round}: {path}");
        // As it is written, and as all of it undone.
        let below = |path: &[u8]| path.strip_prefix(b"/a").is_some_and(|rest| matches!(rest, [] | [b'/' | b'?', ..]));
        let written = below(path.as_bytes());
        let refused = !matches!(&reading, Reading::Path(resolved) if below(resolved) == written);
        let before = if written { "/a-only" } else { "/all" };
        assert_eq!(clients[2].ask(&path), wanted(refused, before), "round {round}: {path}");
    }
}
