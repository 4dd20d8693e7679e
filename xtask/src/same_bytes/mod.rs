//! Random requests with and without Larder must bring the same bytes: sizes from 0 to 5 MB, framed by
//! length, by chunks and by the end of the connection, HTTP/1.0 and 1.1, connections kept and not, gzip;
//! through the forward and the reverse proxy, with nginx behind, and with Squid before and behind.

mod draw;
mod origin;

use crate::http::{Answer, Connection};
use crate::lab::{self, Lab};
use crate::shell::{self, Trouble};
use crate::tally::{self, Tally};
use draw::{Draw, Request, Way};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// How much is played.
#[derive(clap::Args)]
pub struct Args {
    /// Requests in all.
    #[arg(long, default_value_t = 10_000)]
    pub requests: u64,
    /// Draws requests and objects; without it, one is taken from the clock and printed.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Clients at a time.
    #[arg(long, default_value_t = 4)]
    pub clients: u64,
}

impl Args {
    /// As many as a run of all tests has time for.
    pub fn brief() -> Args {
        Args { requests: 600, seed: Some(1), clients: 4 }
    }
}

const FILES: u64 = 40;
const SHOWN_MAX: usize = 5;

/// Plays them and prints a row per way.
pub fn run(args: &Args) -> Result<(), Trouble> {
    let tally = play(args)?;
    if tally.failed == 0 { Ok(()) } else { Err(format!("{} ways brought other bytes", tally.failed)) }
}

/// Plays them; each way counts as one check.
pub fn play(args: &Args) -> Result<Tally, Trouble> {
    let seed = args.seed.unwrap_or_else(seed_of_the_day);
    println!("{} requests, seed {seed}", args.requests);
    let mut lab = Lab::new()?;
    let (ground, mut tally) = Ground::lay(&mut lab, seed)?;
    let objects = (args.requests / 4).max(20);
    let clients: Vec<Client> = std::thread::scope(|scope| {
        let spawn = |number| {
            let mut client = Client::new(&ground, seed ^ (number << 40), objects, args.requests / args.clients);
            scope.spawn(move || {
                client.play();
                client
            })
        };
        let threads: Vec<_> = (1..=args.clients).map(spawn).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    if clients.len() as u64 != args.clients {
        return Err(format!("a client of ours broke (seed {seed})"));
    }
    tally.add(report(&ground, &clients, seed));
    Ok(tally)
}

fn report(ground: &Ground, clients: &[Client], seed: u64) -> Tally {
    let mut tally = Tally::default();
    let mut shown = 0;
    for way in ground.ways() {
        let rows: Vec<&Row> = clients.iter().filter_map(|client| client.rows.get(&way)).collect();
        let (same, bytes) = rows.iter().fold((0, 0), |(same, bytes), row| (same + row.same, bytes + row.bytes));
        let other: Vec<&String> = rows.iter().flat_map(|row| &row.other).collect();
        println!("{:13} {same:6} the same ({:.1} MB), {} not", way.as_str(), bytes as f64 / 1e6, other.len());
        for what in other.iter().take(SHOWN_MAX - shown.min(SHOWN_MAX)) {
            println!("    {what} (seed {seed})");
            shown += 1;
        }
        tally.add(Tally { passed: usize::from(other.is_empty()), failed: usize::from(!other.is_empty()), skipped: 0 });
    }
    tally
}

/// The servers of an experiment.
struct Ground {
    /// The ports where the origins are asked without Larder.
    drawn: u16,
    files: Option<u16>,
    /// Where each way begins.
    entries: BTreeMap<Way, u16>,
}

impl Ground {
    fn lay(lab: &mut Lab, seed: u64) -> Result<(Ground, Tally), Trouble> {
        let root = shell::workspace()?;
        shell::build(&root)?;
        let mut tally = Tally::default();
        let drawn = origin::serve(seed)?;
        let forward = lab::start_larder(lab, &root, "forward", &[])?;
        let reverse = lab::start_larder(lab, &root, "reverse", &["--origin", &format!("http://127.0.0.1:{drawn}")])?;
        let mut entries = BTreeMap::from([(Way::Forward, forward), (Way::Reverse, reverse)]);
        let mut files = None;
        match shell::find_program("nginx") {
            None => tally.add(tally::missing("nginx is not installed")),
            Some(program) => {
                files = Some(start_nginx(lab, &program, seed)?);
                entries.insert(Way::Nginx, forward);
            }
        }
        match shell::find_program("squid") {
            None => tally.add(tally::missing("squid is not installed")),
            Some(program) => {
                let before = start_squid(lab, &program, SquidRole::Child { parent: forward })?;
                let accelerator = start_squid(lab, &program, SquidRole::Accelerator { origin: drawn })?;
                let url = format!("http://127.0.0.1:{accelerator}");
                let behind = lab::start_larder(lab, &root, "before-squid", &["--origin", &url])?;
                entries.extend([(Way::SquidBefore, before), (Way::SquidBehind, behind)]);
            }
        }
        Ok((Ground { drawn, files, entries }, tally))
    }

    fn ways(&self) -> Vec<Way> {
        Way::ALL.into_iter().filter(|way| self.entries.contains_key(way)).collect()
    }

    fn origin(&self, way: Way) -> u16 {
        if way == Way::Nginx { self.files.unwrap_or(self.drawn) } else { self.drawn }
    }
}

#[derive(Default)]
struct Row {
    same: u64,
    bytes: u64,
    other: Vec<String>,
}

struct Client<'a> {
    ground: &'a Ground,
    draw: Draw,
    ways: Vec<Way>,
    objects: u64,
    requests: u64,
    open: BTreeMap<u16, Connection>,
    rows: BTreeMap<Way, Row>,
}

impl<'a> Client<'a> {
    fn new(ground: &'a Ground, seed: u64, objects: u64, requests: u64) -> Client<'a> {
        let (open, rows) = (BTreeMap::new(), BTreeMap::new());
        Client { ground, draw: Draw::new(seed), ways: ground.ways(), objects, requests, open, rows }
    }

    fn play(&mut self) {
        for number in 0..self.requests {
            let request = Request::draw(&mut self.draw, &self.ways, self.objects, FILES);
            let compared = self.compare(&request);
            let row = self.rows.entry(request.way).or_default();
            match compared {
                Ok(bytes) => {
                    row.same += 1;
                    row.bytes += bytes;
                }
                Err(what) => row.other.push(format!("request {number}: {}: {what}", describe(&request))),
            }
        }
    }

    /// Plays a request both ways; gives the bytes compared.
    fn compare(&mut self, request: &Request) -> Result<u64, String> {
        let (origin, entry) = (self.ground.origin(request.way), self.ground.entries[&request.way]);
        let is_absolute = request.way.is_forward();
        let without = self.ask(origin, request, &request.bytes(&format!("127.0.0.1:{origin}"), false));
        let without = without.map_err(|trouble| format!("without Larder: {trouble}"))?;
        let authority = format!("127.0.0.1:{}", if is_absolute { origin } else { entry });
        let with = self.ask(entry, request, &request.bytes(&authority, is_absolute))?;
        if with.status != without.status {
            return Err(format!("status {} instead of {}", with.status, without.status));
        }
        if with.body != without.body {
            let at = with.body.iter().zip(&without.body).take_while(|(a, b)| a == b).count();
            let (with, without) = (with.body.len(), without.body.len());
            return Err(format!("{with} bytes instead of {without}, the first {at} the same"));
        }
        same_fields(request.way, &with, &without)?;
        Ok(with.body.len() as u64)
    }

    fn ask(&mut self, port: u16, request: &Request, bytes: &[u8]) -> Result<Answer, Trouble> {
        let is_head = request.method == "HEAD";
        let mut kept = self.open.remove(&port);
        // A server may close an idle connection at any time; then a request is sent again on a new one, unless
        // it is one that must not be played twice.
        let used_again = kept.as_mut().filter(|_| request.method != "POST");
        if let Some(Ok(answer)) = used_again.map(|connection| connection.ask(bytes, is_head)) {
            return Ok(self.keep(port, kept, answer));
        }
        let mut fresh = Connection::open(port)?;
        let answer = fresh.ask(bytes, is_head)?;
        Ok(self.keep(port, Some(fresh), answer))
    }

    fn keep(&mut self, port: u16, connection: Option<Connection>, answer: Answer) -> Answer {
        if let Some(connection) = connection.filter(|_| answer.keeps) {
            self.open.insert(port, connection);
        }
        answer
    }
}

/// Fields that belong to the object and not to the way it took.
const FIELDS_OF_THE_OBJECT: [&str; 8] =
    ["content-type", "content-encoding", "cache-control", "etag", "last-modified", "location", "vary", "x-object"];

fn same_fields(way: Way, with: &Answer, without: &Answer) -> Result<(), String> {
    // Squid has its own opinion of fields; what it brings is judged by the bytes.
    if matches!(way, Way::SquidBefore | Way::SquidBehind) {
        return Ok(());
    }
    for name in FIELDS_OF_THE_OBJECT {
        // nginx names a coded body by a weak tag and confirms it by a strong one: a 304 may turn one into the other.
        let value = |answer: &Answer| answer.field(name).map(|value| value.trim_start_matches("W/").to_owned());
        let (with, without) = (value(with), value(without));
        if with != without {
            return Err(format!("field {name}: {with:?} instead of {without:?}"));
        }
    }
    Ok(())
}

fn describe(request: &Request) -> String {
    let version = if request.is_http11 { "1.1" } else { "1.0" };
    let keeps = if request.keeps { "kept" } else { "closed" };
    let accepts = request.accepts.unwrap_or("no coding");
    format!("{} {} {} HTTP/{version} {keeps} {accepts}", request.way.as_str(), request.method, request.path)
}

fn seed_of_the_day() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(1, |since| since.as_secs())
}

fn start_nginx(lab: &mut Lab, program: &Path, seed: u64) -> Result<u16, Trouble> {
    let mut draw = Draw::new(seed ^ 0x6e67_696e_7800);
    for number in 0..FILES {
        for kind in ["txt", "bin"] {
            let len = draw.size(draw::BODY_BYTES_MAX);
            lab.write(&format!("nginx/tree/{number}.{kind}"), draw.bytes(len))?;
        }
    }
    let port = lab::free_port()?;
    let root = lab.path().join("nginx/tree");
    let fill = [("port", port.to_string()), ("root", root.display().to_string())];
    let conf = lab::configuration(lab, "nginx", include_str!("../../peers/files.conf"), &fill)?;
    lab.start("nginx", Command::new(program).arg("-c").arg(conf), port)?;
    Ok(port)
}

enum SquidRole {
    /// A forward proxy whose parent is Larder.
    Child { parent: u16 },
    /// A reverse proxy that Larder takes for the origin.
    Accelerator { origin: u16 },
}

fn start_squid(lab: &mut Lab, program: &Path, role: SquidRole) -> Result<u16, Trouble> {
    let port = lab::free_port()?;
    let (name, listen, peer) = match role {
        SquidRole::Child { parent } => {
            ("squid-child", format!("http_port 127.0.0.1:{port}"), format!("{parent} 0 no-query no-digest default"))
        }
        SquidRole::Accelerator { origin } => (
            "squid-accelerator",
            format!("http_port 127.0.0.1:{port} accel defaultsite=127.0.0.1:{origin} no-vhost"),
            format!("{origin} 0 no-query no-digest originserver"),
        ),
    };
    let fill = [("listen", listen), ("peer", peer), ("name", format!("{name}-{port}"))];
    let conf = lab::configuration(lab, name, include_str!("../../peers/squid.conf"), &fill)?;
    let service = name.replace('-', "");
    lab.start(name, Command::new(program).arg("-N").arg("-f").arg(conf).args(["-n", &service]), port)?;
    Ok(port)
}
