//! A run as data: settings, origins, clients and events, all drawn from one seed before the run begins, so that parts can be
//! taken away while the run stays red.

use super::draw::Draw;
use crate::in_memory::StreamSettings;

/// All that is drawn for a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// No fault is drawn and every limit is roomy, so that each request must get its answer.
    pub is_calm: bool,
    /// All clients read at once, so that an answer must come as soon as the origin has sent it.
    pub is_prompt: bool,
    /// Lines of the configuration.
    pub settings: Vec<String>,
    /// Workers of the server.
    pub workers: usize,
    /// The hosts of the origins.
    pub hosts: Vec<Host>,
    /// The objects of the origins.
    pub objects: Vec<Object>,
    /// Connections of clients.
    pub connections: Vec<ConnectionPlan>,
    /// Events beside them, with their times.
    pub events: Vec<(u64, Event)>,
    /// The disk of the store; none: everything is in memory.
    pub disk: Option<DiskPlan>,
}

/// The disk of a store.
#[derive(Clone, Copy, Debug)]
pub struct DiskPlan {
    /// The size of the store.
    pub bytes: u64,
    /// Bytes that may wait to be written.
    pub queue_bytes_max: u64,
    /// The longest time between two steps of its work.
    pub step_millis_max: u64,
    /// So many operations go well before some fail.
    pub fails_after: Option<u64>,
}

/// A host of origins.
#[derive(Clone, Debug)]
pub struct Host {
    /// The behaviour of one connection after the other; none: all are accepted.
    pub connects: Vec<Connect>,
    /// The behaviour of one question for its name after the other.
    pub names: Vec<Name>,
    /// How its streams behave.
    pub stream: StreamSettings,
}

/// The end of an attempt to connect.
#[derive(Clone, Copy, Debug)]
pub enum Connect {
    /// Accepted after so many milliseconds.
    Accept(u64),
    /// Refused.
    Refuse,
    /// No answer.
    Hang,
}

/// The end of a question for a name.
#[derive(Clone, Copy, Debug)]
pub enum Name {
    /// An address after so many milliseconds.
    Address(u64),
    /// There is no such name.
    NotFound,
    /// The name server fails.
    Fail,
    /// No answer.
    Hang,
}

/// An object of an origin.
#[derive(Clone, Debug)]
pub struct Object {
    /// The number of its host.
    pub host: usize,
    /// The length of its first version.
    pub length: u64,
    /// The value of `Cache-Control`.
    pub life: &'static str,
    /// Whether it has a variant for each value of `X-Want`.
    pub varies: bool,
    /// Whether it has an entity tag.
    pub has_tag: bool,
    /// Whether its origin knows ranges.
    pub knows_ranges: bool,
    /// Whether its origin says so, which it may do without.
    pub says_ranges: bool,
    /// Its origin gives each connection so many bytes at once, some milliseconds apart.
    pub thin: Option<(usize, u64)>,
    /// How its body is framed.
    pub framing: BodyFraming,
    /// The behaviour of the origin, one answer after the other; behind them it answers plainly.
    pub turns: Vec<Turn>,
}

impl Object {
    /// Whether its responses may be stored.
    pub fn may_be_stored(&self) -> bool {
        !self.life.contains("no-store") && !self.life.contains("private")
    }
}

/// The framing of an origin's bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// `Content-Length`.
    Length,
    /// Chunks.
    Chunked,
    /// The end of the connection.
    UntilClose,
}

/// The behaviour of an origin in one answer.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// How long it thinks.
    pub think_millis: u64,
    /// The object changes before it answers.
    pub changes: bool,
    /// It sends an interim head first.
    pub interim: bool,
    /// It sends so many bytes of a body at once.
    pub piece_bytes: usize,
    /// It rests between them.
    pub piece_millis: u64,
    /// It closes the connection so long after the answer.
    pub closes_after: Option<u64>,
    /// The trouble in it.
    pub trouble: Trouble,
}

/// The turn of an origin that has no trouble.
pub const PLAIN: Turn = Turn {
    think_millis: 3,
    changes: false,
    interim: false,
    piece_bytes: usize::MAX,
    piece_millis: 0,
    closes_after: None,
    trouble: Trouble::None,
};

/// Trouble in an answer. Places are bytes of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing.
    None,
    /// It answers with this status.
    Status(u16),
    /// A reset in place of a head.
    ResetBeforeHead,
    /// A reset within the body.
    Reset(u64),
    /// Silence in place of a head.
    SilentBeforeHead,
    /// Silence within the body.
    Silent(u64),
    /// An orderly end within the body.
    Truncates(u64),
    /// Bytes that are no HTTP.
    Garbage,
    /// A head that is too long.
    LongHead,
    /// Bytes behind the end of the body.
    Surplus,
}

/// A connection of a client.
#[derive(Clone, Debug)]
pub struct ConnectionPlan {
    /// The number of its client.
    pub client: u8,
    /// The worker that accepts it.
    pub worker: usize,
    /// When it is opened.
    pub at_millis: u64,
    /// How the stream to the server behaves.
    pub sends: StreamSettings,
    /// How the stream from the server behaves.
    pub gets: StreamSettings,
    /// It rests so long between two reads.
    pub read_pause_millis: u64,
    /// It leaves before its end.
    pub leaves: Option<Leave>,
    /// Its requests.
    pub steps: Vec<Step>,
}

/// How a client leaves.
#[derive(Clone, Copy, Debug)]
pub struct Leave {
    /// After so many bytes of its requests, or of its answers.
    pub after: LeaveAfter,
    /// In which way.
    pub how: LeaveHow,
}

/// When a client leaves.
#[derive(Clone, Copy, Debug)]
pub enum LeaveAfter {
    /// After it has sent so many bytes.
    Sent(usize),
    /// After it has got so many bytes.
    Got(usize),
}

/// In which way a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveHow {
    /// It closes.
    Closes,
    /// It resets.
    Resets,
    /// It sends no more, and goes on reading.
    HalfCloses,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Step {
    /// The object.
    pub object: usize,
    /// The kind of request.
    pub action: Action,
    /// How long the client waits before it.
    pub pause_millis: u64,
    /// It does not wait for the answers to the requests before.
    pub is_pipelined: bool,
    /// It is sent in pieces of so many bytes.
    pub piece_bytes: usize,
    /// It rests between pieces.
    pub piece_millis: u64,
    /// The variant, `a` or `b`.
    pub variant: char,
    /// A field of the request beside the usual ones.
    pub field: Option<&'static str>,
    /// It asks whether the object is still the version it knows.
    pub has_condition: bool,
    /// The ranges.
    pub ranges: Vec<(u64, u64)>,
    /// It is sent as HTTP/1.0.
    pub is_http_1_0: bool,
}

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// GET.
    Get,
    /// HEAD.
    Head,
    /// POST of so many bytes.
    Post(u64, UploadFraming),
    /// PURGE.
    Purge,
    /// CONNECT, and a GET inside.
    Connect,
    /// An upgrade to a protocol that sends back what it gets.
    Upgrade,
    /// Bytes that are no request.
    Garbage,
}

/// The framing of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadFraming {
    /// `Content-Length`.
    Length,
    /// Chunks.
    Chunked,
    /// `Content-Length`, with `Expect: 100-continue`.
    Expects,
}

/// An event beside clients and origins.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// An object changes.
    Change(usize),
    /// All of an origin's objects are purged by their prefix.
    PurgeAll,
    /// Other time limits come into force.
    Reload,
    /// The wall clock and the monotonic one jump forward by so many seconds.
    Jump(u64),
    /// The server stops.
    Drain,
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Plan {
        Drawn { draw: Draw::new(seed), is_calm: seed.is_multiple_of(4), is_prompt: seed.is_multiple_of(2) }.plan(seed)
    }

    /// The plan as text, a line for each host, object, connection, request and event.
    pub fn described(&self) -> String {
        let mut lines = vec![
            format!("{} workers, calm: {}, prompt: {}", self.workers, self.is_calm, self.is_prompt),
            self.settings.join("; "),
            format!("disk: {:?}", self.disk),
        ];
        lines.extend(self.hosts.iter().enumerate().map(|(at, host)| format!("host {at}: {host:?}")));
        lines.extend(self.objects.iter().enumerate().map(|(at, object)| format!("object {at}: {object:?}")));
        for (at, connection) in self.connections.iter().enumerate() {
            let shown = ConnectionPlan { steps: Vec::new(), ..connection.clone() };
            lines.push(format!("client {at}: {shown:?}"));
            lines.extend(connection.steps.iter().map(|step| format!("    {step:?}")));
        }
        lines.extend(self.events.iter().map(|event| format!("event: {event:?}")));
        lines.join("\n")
    }

    /// Requests of all clients.
    pub fn requests(&self) -> usize {
        self.connections.iter().map(|connection| connection.steps.len()).sum()
    }
}

struct Drawn {
    draw: Draw,
    is_calm: bool,
    is_prompt: bool,
}

impl Drawn {
    fn plan(&mut self, seed: u64) -> Plan {
        let (is_calm, is_prompt) = (self.is_calm, self.is_prompt);
        let workers = self.draw.between(1, 2) as usize;
        let hosts: Vec<Host> = (0..self.draw.between(1, 3)).map(|_| self.host()).collect();
        let objects: Vec<Object> = (0..self.draw.between(1, 6)).map(|_| self.object(hosts.len())).collect();
        let many = self.draw.pick(&[2, 4, 8, 16]);
        let connections = (0..many).map(|_| self.connection(workers, &objects)).collect();
        let events = (0..self.draw.below(4)).map(|_| (self.draw.below(8_000), self.event(objects.len()))).collect();
        let objects = Drawn::thin_pipes(seed, objects);
        let settings = self.settings();
        let disk = self.draw.chance(40).then(|| DiskPlan {
            bytes: self.draw.pick(&[2_000_000, 8_000_000]),
            queue_bytes_max: self.draw.pick(&[300_000, 4_000_000]),
            step_millis_max: self.draw.pick(&[1, 20, 200]),
            fails_after: self.trouble(30).then(|| self.draw.between(1, 60)),
        });
        Plan { seed, is_calm, is_prompt, settings, workers, hosts, objects, connections, events, disk }
    }

    /// Some origins are slow for each connection, so that several requests at once bring a download sooner. Drawn by itself: what the
    /// other draws of a seed give stays as it was.
    fn thin_pipes(seed: u64, mut objects: Vec<Object>) -> Vec<Object> {
        let mut draw = Draw::new(seed ^ 0x7468_696e);
        for object in &mut objects {
            object.says_ranges = if object.knows_ranges { draw.chance(70) } else { draw.chance(30) };
            object.thin = draw.chance(50).then(|| (draw.pick(&[500, 2_000, 5_000]), draw.pick(&[10, 20])));
        }
        objects
    }

    fn trouble(&mut self, percent: u64) -> bool {
        !self.is_calm && self.draw.chance(percent)
    }

    fn stream(&mut self, is_slow: bool) -> StreamSettings {
        match is_slow {
            false => StreamSettings { room_bytes: 1 << 20, read_bytes_max: self.draw.pick(&[100, 4_000, 1 << 20]) },
            true => StreamSettings {
                room_bytes: self.draw.pick(&[50, 1_000, 70_000]),
                read_bytes_max: self.draw.pick(&[10, 1_000, 1 << 20]),
            },
        }
    }

    fn host(&mut self) -> Host {
        let connects = (0..self.draw.below(5)).map(|_| match self.draw.below(6) {
            0 if !self.is_calm => Connect::Refuse,
            1 if !self.is_calm => Connect::Hang,
            _ => Connect::Accept(self.draw.pick(&[0, 1, 30])),
        });
        let connects = connects.collect();
        let names = (0..self.draw.below(5)).map(|_| match self.draw.below(9) {
            0 if !self.is_calm => Name::NotFound,
            1 if !self.is_calm => Name::Fail,
            2 if !self.is_calm => Name::Hang,
            _ => Name::Address(self.draw.pick(&[0, 1, 80])),
        });
        let names = names.collect();
        let is_slow = !self.is_prompt && self.draw.chance(30);
        Host { connects, names, stream: self.stream(is_slow) }
    }

    fn object(&mut self, hosts: usize) -> Object {
        let host = self.draw.below(hosts as u64) as usize;
        let length = self.draw.pick(&[0, 1, 40, 700, 3_000, 20_000, 70_000, 200_000, 400_000]);
        let life = self.draw.pick(&[
            "max-age=600",
            "max-age=600",
            "max-age=2",
            "max-age=1, stale-while-revalidate=5",
            "max-age=1, stale-if-error=60",
            "no-cache",
            "no-store",
            "private",
        ]);
        let turns = (0..self.draw.below(6)).map(|_| self.turn(length)).collect();
        let mut framing =
            self.draw.pick(&[BodyFraming::Length, BodyFraming::Length, BodyFraming::Chunked, BodyFraming::UntilClose]);
        if length == 0 {
            framing = BodyFraming::Length;
        }
        Object {
            host,
            length,
            life,
            varies: self.draw.chance(20),
            has_tag: self.draw.chance(80),
            knows_ranges: self.draw.chance(70),
            says_ranges: false,
            thin: None,
            framing,
            turns,
        }
    }

    fn turn(&mut self, length: u64) -> Turn {
        let at = self.draw.below(length.max(1));
        let trouble = match self.trouble(35) {
            false => Trouble::None,
            true => self.draw.pick(&[
                Trouble::Status(500),
                Trouble::Status(503),
                Trouble::Status(404),
                Trouble::ResetBeforeHead,
                Trouble::Reset(at),
                Trouble::SilentBeforeHead,
                Trouble::Silent(at),
                Trouble::Truncates(at),
                Trouble::Garbage,
                Trouble::LongHead,
                Trouble::Surplus,
            ]),
        };
        let pieces = self.draw.pick(&[1, 2, 5]);
        Turn {
            think_millis: self.draw.pick(&[0, 1, 20, 500, 1_500]),
            changes: self.draw.chance(20),
            interim: self.draw.chance(10),
            piece_bytes: (length as usize / pieces).max(1),
            piece_millis: self.draw.pick(&[0, 1, 100]),
            closes_after: self.draw.chance(30).then(|| self.draw.pick(&[0, 5, 300])),
            trouble,
        }
    }

    fn connection(&mut self, workers: usize, objects: &[Object]) -> ConnectionPlan {
        let is_slow = !self.is_prompt && self.draw.chance(30);
        let mut steps: Vec<Step> = (0..self.draw.between(1, 5)).map(|at| self.step(at, objects)).collect();
        for at in 1..steps.len() {
            // Bytes behind a request that leaves HTTP belong to the other protocol, and nothing follows a last request.
            let before = &steps[at - 1];
            let is_last = before.is_http_1_0 || before.field == Some("Connection: close");
            let leaves = matches!(before.action, Action::Connect | Action::Upgrade);
            steps[at].is_pipelined &= !is_last && !leaves;
        }
        let after = match self.draw.chance(50) {
            true => LeaveAfter::Sent(self.draw.between(1, 200 * steps.len() as u64) as usize),
            false => LeaveAfter::Got(self.draw.pick(&[1, 100, 500, 5_000, 100_000])),
        };
        let how = self.draw.pick(&[LeaveHow::Closes, LeaveHow::Resets, LeaveHow::HalfCloses]);
        let (client, worker) = (self.draw.below(4) as u8, self.draw.below(workers as u64) as usize);
        let at_millis = self.draw.pick(&[0, 0, 1, 10, 400, 2_500, 5_000]);
        let (sends, gets) = (self.stream(is_slow), self.stream(is_slow));
        let takes_little = gets.room_bytes.min(gets.read_bytes_max) < 1_000;
        let pauses: [u64; 4] = if takes_little { [0, 0, 1, 1] } else { [0, 1, 100, 700] };
        ConnectionPlan {
            client,
            worker,
            at_millis,
            sends,
            gets,
            read_pause_millis: if is_slow { self.draw.pick(&pauses) } else { 0 },
            leaves: self.trouble(25).then_some(Leave { after, how }),
            steps,
        }
    }

    fn step(&mut self, at: u64, objects: &[Object]) -> Step {
        let object = self.draw.below(objects.len() as u64) as usize;
        let action = match self.draw.below(100) {
            0..8 => Action::Head,
            8..16 => {
                let framing = self.draw.pick(&[UploadFraming::Length, UploadFraming::Chunked, UploadFraming::Expects]);
                Action::Post(self.draw.pick(&[0, 1, 3_000, 100_000]), framing)
            }
            16..20 => Action::Purge,
            20..22 => Action::Connect,
            22..24 => Action::Upgrade,
            24 if !self.is_calm => Action::Garbage,
            _ => Action::Get,
        };
        let slow = self.draw.chance(15);
        let length = objects[object].length.max(1);
        let ranges = match action == Action::Get && objects[object].length > 0 && self.draw.chance(20) {
            true => (0..self.draw.pick(&[1, 1, 2])).map(|_| self.range(length)).collect(),
            false => Vec::new(),
        };
        Step {
            object,
            action,
            pause_millis: self.draw.pick(&[0, 0, 0, 1, 5, 700, 2_000]),
            is_pipelined: at > 0 && self.draw.chance(40),
            piece_bytes: if slow { self.draw.pick(&[1, 17, 60]) } else { usize::MAX },
            piece_millis: self.draw.pick(&[0, 0, 1, 5]),
            variant: self.draw.pick(&['a', 'b']),
            field: self.draw.chance(15).then(|| {
                self.draw.pick(&[
                    "Cache-Control: no-cache",
                    "Cache-Control: max-stale=100",
                    "Cache-Control: no-store",
                    "Authorization: Basic Zm9vOmJhcg==",
                    "Connection: close",
                ])
            }),
            has_condition: self.draw.chance(15),
            ranges,
            is_http_1_0: self.draw.chance(7),
        }
    }

    fn range(&mut self, length: u64) -> (u64, u64) {
        let first = self.draw.below(length);
        (first, first + self.draw.pick(&[0, 9, 5_000, 100_000]))
    }

    fn event(&mut self, objects: usize) -> Event {
        match self.draw.below(10) {
            0 | 1 => Event::PurgeAll,
            2 | 3 => Event::Reload,
            4 | 5 => Event::Jump(self.draw.pick(&[1, 30, 700])),
            6 if !self.is_calm => Event::Drain,
            _ => Event::Change(self.draw.below(objects as u64) as usize),
        }
    }

    /// Time limits are short, so that they run out within a run.
    fn settings(&mut self) -> Vec<String> {
        let mut lines = vec![
            "[limits]".to_owned(),
            format!("origin_share_percent = {}", if self.trouble(30) { 50 } else { 100 }),
            format!("waiting_per_origin_max = {}", if self.trouble(30) { self.draw.below(3) } else { 1024 }),
            format!("connections_max = {}", if self.trouble(15) { self.draw.between(1, 5) } else { 10_000 }),
            "[timeouts]".to_owned(),
        ];
        for (name, seconds) in [
            ("head", 6),
            ("idle", 3),
            ("body", 6),
            ("upload_silence", 8),
            ("write", 6),
            ("download_stall", 8),
            ("half_closed", 1),
            ("connect", 2),
            ("first_byte", 3),
            ("origin_idle", 3),
            ("tunnel_idle", 5),
            ("drain", 2),
        ] {
            lines.push(format!("{name} = \"{seconds}s\""));
        }
        if self.trouble(10) {
            lines.push("request = \"4s\"".to_owned());
        }
        let many = if self.trouble(40) { self.draw.between(1, 3) } else { 512 };
        let unread = if self.trouble(30) { self.draw.below(2) } else { 64 };
        lines.extend([
            "[upstream]".to_owned(),
            format!("connections_per_origin_max = {many}"),
            format!("unread_fetches_per_origin_max = {unread}"),
            format!("idle = \"{}s\"", self.draw.pick(&[1, 4])),
            "[access]".to_owned(),
            "purge = [\"10.0.0.0/8\"]".to_owned(),
            "connect_ports = [80]".to_owned(),
            "[[listen]]".to_owned(),
            "address = \"0.0.0.0:3128\"".to_owned(),
            "forward = true".to_owned(),
        ]);
        let memory = if self.draw.chance(25) { "200KiB" } else { "64MB" };
        lines.insert(0, format!("memory = \"{memory}\""));
        lines
    }
}
