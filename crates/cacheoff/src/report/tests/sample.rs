//! Ledgers made by a seeded generator: what a run would have written, without a run.

use crate::ledger::*;
use std::time::Duration;

/// The properties of an invented entry.
#[derive(Clone, Copy)]
pub struct Invented {
    pub label: &'static str,
    pub hit_us: f64,
    pub keeps: f64,
    pub cpu_us: f64,
    pub lies: u64,
}

/// 32 bits of a linear congruential generator.
struct Draw(u64);

impl Draw {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as f64 + 0.5) / f64::from(1_u32 << 31)
    }

    fn exp(&mut self, mean: f64) -> f64 {
        -mean * self.unit().ln()
    }

    fn norm(&mut self, mean: f64, deviation: f64) -> f64 {
        mean + deviation * ((0..12).map(|_| self.unit()).sum::<f64>() - 6.0)
    }
}

const PHASES: [(&str, u64, f64, f64); 5] = [
    ("warm", 10, 0.1, 0.1),
    ("inc1", 20, 0.1, 1.0),
    ("top1", 60, 1.0, 1.0),
    ("dec1", 20, 1.0, 0.1),
    ("idle", 10, 0.1, 0.1),
];

pub fn run(entry: Invented, round: u32, peak: f64) -> Ledger {
    let mut draw = Draw(u64::from(round) * 977 + entry.label.len() as u64 * 31 + 5);
    let mut ledger = Ledger { run: head(entry, round, peak), ..Ledger::default() };
    let mut recorder = Recorder::new();
    let mut second = 0;
    for (number, (_, seconds, from, to)) in PHASES.into_iter().enumerate() {
        ledger.phases.push(PhaseStart { phase: number as u16, at_us: second * 1_000_000 });
        for step in 0..seconds {
            let load = from + (to - from) * step as f64 / seconds as f64;
            let requests = draw.norm(peak * load, (peak * load).sqrt()).max(0.0) as u64;
            (0..requests).for_each(|_| request(&mut recorder, entry, &mut draw));
            let mut interval = recorder.take(number as u16, Duration::from_secs(second), Duration::from_secs(1));
            levels(&mut interval, entry, load, peak, second, &mut draw);
            ledger.intervals.push(interval);
            second += 1;
        }
    }
    if let Some(interval) = ledger.intervals.get_mut(50) {
        for _ in 0..entry.lies {
            interval.errors.add(Trouble::StaleHit, || Exhibit {
                trouble: Trouble::StaleHit,
                at_us: 50_200_000,
                url: "http://127.4.0.9:8080/w5b1f.0a/t01/_0000000000000417.html".to_owned(),
                detail: "ETag \"g3\" was expected from 10:22:01 on, \"g2\" came with Date 10:22:09 and Age 31"
                    .to_owned(),
            });
        }
    }
    ledger.end = End { at_us: second * 1_000_000, outcome: Outcome::Complete, invalid: vec![] };
    ledger
}

fn request(recorder: &mut Recorder, entry: Invented, draw: &mut Draw) {
    let repeat = draw.unit() < 0.6875;
    let cachable = draw.unit() < 0.8;
    let offered = repeat && cachable;
    let hit = offered && draw.unit() < entry.keeps;
    let content = [0.656, 0.803, 0.808, 1.0].iter().position(|edge| draw.unit() < *edge).unwrap_or(3) as u8;
    let body_bytes = draw.exp([4_608.0, 8_704.0, 307_200.0, 25_600.0][usize::from(content)]) as u64 + 1;
    let cache = draw.exp(entry.hit_us) + 40.0;
    let think = if hit { 0.0 } else { draw.norm(250_000.0, 100_000.0).max(0.0) + 8_000.0 };
    let service = Duration::from_micros((cache + think + body_bytes as f64 / 900.0) as u64);
    let wait = if draw.unit() < 0.02 { Duration::from_micros(draw.exp(3_000.0) as u64) } else { Duration::ZERO };
    recorder.due();
    recorder.issued();
    recorder.sent(repeat, false, Some(Duration::from_micros(draw.exp(60.0) as u64)));
    let missing = if draw.unit() < 0.5 { MissCause::Evicted } else { MissCause::OnItsWay };
    recorder.reply(&Reply {
        kind: Kind::Basic,
        content,
        status: if draw.unit() < 0.998 { 200 } else { 503 },
        cachable,
        offered,
        served: if hit { Served::Hit } else { Served::Miss },
        aborted: false,
        across: Duration::ZERO,
        behind: false,
        head_bytes: 290,
        body_bytes,
        response: service + wait,
        service,
        first_byte: service / 2,
        wait,
        missing: (offered && !hit).then_some(missing),
        beside: None,
    });
    if !hit {
        recorder.origin().requests += 1;
        recorder.origin().bytes += body_bytes;
        recorder.thought(Duration::from_micros(think as u64));
    }
}

fn levels(interval: &mut Interval, entry: Invented, load: f64, peak: f64, second: u64, draw: &mut Draw) {
    let robots = (peak * load / 0.4) as u64;
    interval.levels = Levels {
        robots,
        under_way: (robots as f64 * 0.11) as u64,
        waiting: (draw.exp(2.0)) as u64,
        working_set: second * 90,
        worlds: 750,
        populus: load as f32,
        load: 1.0,
        recurrence: 1.0,
        special: 1.0,
    };
    let open = |opened, open| Connections { opened, open, idle: open / 3, ..Connections::default() };
    interval.connections.insert(Side::Client, open(robots / 40, robots + robots / 2));
    interval.connections.insert(Side::Server, open(robots / 60, robots / 5));
    interval.load = Some(Load {
        own_cpu: (0.1 + load * 0.2) as f32,
        own_thread_cpu: (0.05 + load * 0.1) as f32,
        cache_cpu: (peak * load * entry.cpu_us / 1e6 + draw.exp(0.01)) as f32,
        cache_kernel: 0.7,
        cache_memory: 20_000_000 + second * 400_000,
        cache_descriptors: 40 + robots,
        cache_threads: 3,
        others_cpu: draw.exp(0.03) as f32,
        steal: if second == 70 { 0.6 } else { draw.exp(0.01) as f32 },
        own_descriptors: robots * 2,
        own_memory: 48_000_000,
        ..Load::default()
    });
}

fn head(entry: Invented, round: u32, peak: f64) -> Run {
    Run {
        agents: Vec::new(),
        by: String::new(),
        cache_bytes: None,
        stage: None,
        repeats: Vec::new(),
        cacheoff: "0.1.0".to_owned(),
        label: entry.label.to_owned(),
        protocol: "http/1.0".to_owned(),
        streams: None,
        tls: None,
        round,
        started_unix: 1_795_246_200 + u64::from(round) * 130,
        command: format!("cacheoff contest --entries larder,squid --workload polymix-2 --peak {peak} --scale 0.002"),
        workload: WorkloadFacts {
            name: "polymix-2".to_owned(),
            text: "# PolyMix-2, January 2000\nname = \"polymix-2\"\nabout = \"Browsers of 1999.\"\n\n[robot]\nreq_rate = \"0.4/s\"\n".to_owned(),
            peak: Some(peak),
            scale: 0.002,
            scale_notes: vec!["The working set is 0.2 % of the standard one; think times are not scaled.".to_owned()],
            report_phase: "top1".to_owned(),
            errors_max: Some(0.03),
            dhr_min: Some(0.25),
            names: String::new(),
            protocol: String::new(),
            listener: crate::ledger::Listener::Http,
        },
        seed: 42,
        target: Target {
            mode: Mode::Forward,
            address: "127.0.0.1:3128".to_owned(),
            product: format!("{} 1.2.3", entry.label),
            entry: Some(Entry {
                tuning: String::new(),
                comments: String::new(),
                honours_reload: true,
                name: entry.label.to_owned(),
                store: "memory".to_owned(),
                store_at: "files in memory (tmpfs)".to_owned(),
                commands: vec![format!("/usr/sbin/{} -N -f {}.conf", entry.label, entry.label)],
                files: vec![(
                    format!("{}.conf", entry.label),
                    "cache_mem 256 MB\nmaximum_object_size 64 MB\n".to_owned(),
                )],
                notes: vec!["Access log off, as in every entry.".to_owned()],
                cores: "0".to_owned(),
            }),
        },
        contents: ["image", "HTML", "download", "other"].map(str::to_owned).to_vec(),
        phases: PHASES
            .map(|(name, seconds, _, to)| PhasePlan {
                name: name.to_owned(),
                length_us: Some(seconds * 1_000_000),
                logged: name != "warm",
                rate_end: Some(peak * to),
                goal: format!("{seconds} s"),
            })
            .to_vec(),
        ideal: Ideal {
            dhr: Some(0.55),
            bhr: Some(0.548),
            response_us: Some(116_000.0),
            fill_bytes_per_s: Some(peak * 2_668.0),
            working_set_bytes: Some(32e6),
            lru_99_bytes: Some(48e6),
        },
        links: vec![Link {
            side: Some(Side::Server),
            model: "user-space".to_owned(),
            delay_us: 40_000,
            loss: 0.0005,
            measured: [80_020, 80_100, 80_090, 80_400].into_iter().collect(),
            ..Link::default()
        }],
        tuning: vec![Tuning {
            whose: "system".to_owned(),
            name: "net.core.somaxconn".to_owned(),
            value: "4096".to_owned(),
        }],
        machine: Machine {
            processor: "AMD EPYC".to_owned(),
            cores: 2,
            own_cores: "1".to_owned(),
            memory: 24 << 30,
            kernel: "Linux 6.18".to_owned(),
            smt: "0".to_owned(),
            system: "Debian GNU/Linux 12 (bookworm)".to_owned(),
            virtual_machine: true,
            power: String::new(),
            energy: String::new(),
        },
        price: None,
        watts: None,
    }
}

/// Five entries, three rounds each: one lies, one fails to start.
pub fn contest() -> Vec<Ledger> {
    let entries = [
        Invented { label: "larder", hit_us: 90.0, keeps: 0.985, cpu_us: 21.0, lies: 0 },
        Invented { label: "squid", hit_us: 420.0, keeps: 0.97, cpu_us: 95.0, lies: 0 },
        Invented { label: "nginx", hit_us: 110.0, keeps: 0.96, cpu_us: 30.0, lies: 0 },
        Invented { label: "varnish", hit_us: 150.0, keeps: 0.98, cpu_us: 70.0, lies: 4 },
    ];
    let mut ledgers: Vec<Ledger> = (1..=3).flat_map(|round| entries.map(|entry| run(entry, round, 40.0))).collect();
    let absent = Invented { label: "trafficserver", ..entries[0] };
    ledgers.push(Ledger {
        run: head(absent, 1, 40.0),
        end: End {
            outcome: Outcome::Failed("traffic_server is not installed: apt-get install trafficserver".to_owned()),
            ..End::default()
        },
        ..Ledger::default()
    });
    ledgers
}
