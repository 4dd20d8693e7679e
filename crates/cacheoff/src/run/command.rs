//! `cacheoff run`, and the plays of a contest.

use super::agents::{self, Campaign, Fleet, coordinate};
use super::table::DAY_S;
use super::{Order, Power, Wanted, derive, route, run, table};
use crate::contest::names::hosts;
use crate::contest::{Discipline, Heat};
use crate::engine::Settings;
use crate::ledger::{
    Ideal, Ledger, Listener, Mode, Outcome, PhasePlan, Run, StreamFacts, Target, TlsFacts, WorkloadFacts,
};
use crate::origin::{Hosts, server_address};
use crate::plan::{Asked, Plan, show};
use crate::proc::{Watched, machine, own_command, system_tuning};
use crate::report::{Summary, Threshold, Weight};
use crate::robot::{Route, server_name};
use crate::schedule::{Goal, Phase};
use crate::simulate::Trace;
use crate::simulate::command::read as read_log;
use crate::stop;
use crate::tls::{Authority, Tls, Trust};
use crate::workload::{Builtin, PageWorkload, Protocol, Scaled, Workload, load};
use larder_wire::Url;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Plays a workload against one cache, or against none.
#[derive(clap::Args, Debug)]
pub struct RunArgs {
    /// The workload: a name that `cacheoff list` knows, or a file
    workload: String,
    /// A variant of the workload
    #[arg(long)]
    variant: Option<String>,
    /// The forward proxy to test
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "site")]
    proxy: Option<String>,
    /// The reverse proxy to test
    #[arg(long, value_name = "URL")]
    site: Option<String>,
    /// Requests per second at peak
    #[arg(long)]
    peak: Option<f64>,
    /// Phases are so many times as long: 0.01 plays 14 hours in 8 minutes
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Seed of all that is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the ledger is written
    #[arg(long)]
    ledger: Option<PathBuf>,
    /// Cores of the referee, such as 1 or 0,1: one worker thread on each
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
    /// Port of the origins; 0 lets the system choose
    #[arg(long, default_value_t = 0)]
    origin_port: u16,
    /// Bytes of the cache under test, for workloads that fill it
    #[arg(long)]
    cache_bytes: Option<u64>,
    /// The log that is replayed, for workloads that do
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// The method by which this cache forgets a URL, for workloads that purge
    #[arg(long, value_name = "METHOD", default_value = "PURGE")]
    purge_method: String,
    /// Robots speak TLS: to the reverse proxy, through tunnels of the forward proxy, or to the origins
    #[arg(long)]
    tls: bool,
    /// PEM file of those whose certificates the robots believe
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,
    /// Robots believe every certificate; reports say so
    #[arg(long)]
    insecure: bool,
    /// Where the certificate of the origins' authority is written, for a cache that looks into tunnels
    #[arg(long, value_name = "FILE")]
    ca_out: Option<PathBuf>,
    /// Where the names of the visible servers are written, in the form of /etc/hosts, for a forward proxy that looks them up
    #[arg(long, value_name = "FILE", requires = "proxy")]
    names: Option<PathBuf>,
    /// The agents on other machines that play it, instead of this process
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "cores", "origin_port", "log", "tls", "ca", "insecure", "ca_out", "names", "pid", "cut", "again",
    ])]
    agents: Option<PathBuf>,
    /// Process of the cache under test, whose CPU and memory are sampled
    #[arg(long)]
    pid: Option<u32>,
    /// A command that cuts the power of the cache, for dark phases
    #[arg(long, value_name = "COMMAND", requires = "again")]
    cut: Option<String>,
    /// A command that starts it again; it may stay in the foreground
    #[arg(long, value_name = "COMMAND", requires = "cut")]
    again: Option<String>,
    /// Knobs of the workload to change
    #[arg(long, value_name = "KNOB=VALUE")]
    set: Vec<String>,
    /// Name of the tested cache in reports
    #[arg(long, default_value = "")]
    label: String,
    /// End with 1 unless all conditions hold, such as 'p99<20ms,dhr>0.5'
    #[arg(long, value_name = "CONDITIONS", default_value = "")]
    threshold: String,
}

impl RunArgs {
    /// Plays, and prints what came of it.
    pub fn run(&self) -> Result<ExitCode, String> {
        // A wrong condition is refused now, not when the play is over.
        let thresholds = Threshold::parse_all(&self.threshold)?;
        let (ledger, workload, settings) = self.play(self.peak, self.ledger.as_deref())?;
        eprintln!("seed {}, tag {:x}", self.seed, settings.law.tag);
        println!("{}", crate::report::text(std::slice::from_ref(&ledger)));
        println!("{}", table(&ledger, &workload, &settings));
        let mut reasons = failures(&ledger);
        let (summary, name) = (Summary::of(&ledger), &ledger.run.workload.name);
        let broken = thresholds.iter().filter_map(|threshold| threshold.broken_by(&summary));
        reasons.extend(broken.map(|reason| format!("threshold of {name}: {reason}")));
        reasons.iter().for_each(|reason| eprintln!("failed: {reason}"));
        Ok(if reasons.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Requests per second at peak, if somebody said so.
    pub fn peak(&self) -> Option<f64> {
        self.peak
    }

    /// Plays at another peak.
    pub fn at(&self, peak: f64, ledger: &Path) -> Result<Ledger, String> {
        Ok(self.play(Some(peak), Some(ledger))?.0)
    }

    fn play(&self, peak: Option<f64>, ledger: Option<&Path>) -> Result<(Ledger, Workload, Settings), String> {
        let mut changes = self.changes()?;
        let secure_site = self.site.as_deref().is_some_and(|site| site.starts_with("https://"));
        if self.tls || secure_site {
            changes.push(("robot.tls".to_owned(), "true".to_owned()));
        }
        let (variant, log) = (self.variant.clone(), self.log.clone());
        let discipline = Discipline { variant, log, changes, ..Discipline::of(&self.workload) };
        let scaled = read(&discipline, self.scale)?;
        let fleet = self.agents.as_deref().map(Fleet::read).transpose()?;
        let mut route = self.route()?;
        if let Some(fleet) = &fleet {
            (route.origin_port, route.hosts) = (fleet.origin_port, Hosts::new(&fleet.hosts()));
        }
        let mut target = target(&route);
        let tls = self.secured(scaled.workload.robots.speaks_tls(), secure_site, route.mode)?;
        if tls.is_some() && route.mode == Mode::Reverse {
            target.address = format!("https://{}", target.address);
        }
        let wanted = Wanted {
            peak,
            seed: self.seed,
            epoch: unix_now(),
            workers: fleet.as_ref().map_or(self.cores.len().max(1) as u16, Fleet::robot_workers),
            cache_bytes: self.cache_bytes,
            log: replayed_log(&discipline, &scaled.workload)?,
            tls,
            route,
        };
        let (settings, phases) = derived(&scaled.workload, &wanted)?;
        let facts = workload_facts(&discipline, &scaled, peak, self.scale);
        if let Some(path) = &self.names {
            std::fs::write(path, &facts.names).map_err(|error| format!("--names {}: {error}", path.display()))?;
        }
        let mut head = head(facts, &scaled.workload, &wanted, &settings, &phases, target);
        head.tls = settings.tls.as_ref().map(|_| if self.insecure { TlsFacts::Unverified } else { TlsFacts::Verified });
        head.label = if self.label.is_empty() { head.target.mode.as_str().to_owned() } else { self.label.clone() };
        head.machine = machine(&self.cores.iter().map(usize::to_string).collect::<Vec<_>>().join(","));
        let watched = match (self.pid, head.target.mode, wanted.route.address) {
            (Some(pid), ..) => Watched::Tree(pid),
            (None, Mode::Forward | Mode::Reverse, Some(address)) => Watched::Port(address.port()),
            _ => Watched::Nobody,
        };
        eprintln!("{}", show(&plan(&scaled.workload, &wanted)));
        let stop = stop::flag();
        if let Some(fleet) = fleet {
            let (file, text) = source(&discipline)?;
            let discipline = agents::Discipline::new(&discipline, file, text, self.scale);
            let (cache_bytes, ledger, shows) = (self.cache_bytes, ledger.map(Path::to_path_buf), true);
            let own = settings.clone();
            let campaign =
                Campaign { fleet, discipline, peak, cache_bytes, settings: own, phases, head, ledger, shows, stop };
            return Ok((coordinate(campaign)?, scaled.workload, settings));
        }
        let (cores, shows) = (self.cores.clone(), true);
        let order = Order {
            settings: settings.clone(),
            phases,
            head,
            ledger: ledger.map(Path::to_path_buf),
            watched,
            cores,
            power: self.cut.clone().zip(self.again.clone()).map(|(cut, again)| Power { cut, again }),
            shows,
            stop,
        };
        Ok((run(order)?, scaled.workload, settings))
    }

    /// The knobs that are changed.
    fn changes(&self) -> Result<Vec<(String, String)>, String> {
        let changes = self.set.iter().map(|given| {
            let (knob, value) = given.split_once('=').ok_or_else(|| format!("--set {given}: write KNOB=VALUE"))?;
            Ok((knob.trim().to_owned(), value.trim().to_owned()))
        });
        changes.collect()
    }

    /// How TLS is spoken, if robots speak it.
    fn secured(&self, asked: bool, secure_site: bool, mode: Mode) -> Result<Option<Tls>, String> {
        match asked {
            true if self.site.is_some() && !secure_site => {
                Err("these robots speak TLS: write the --site as https://".to_owned())
            }
            true => self.tls(mode).map(Some),
            false => self.without_tls().map(|()| None),
        }
    }

    /// How robots, and origins that they reach without a cache between, speak TLS.
    fn tls(&self, mode: Mode) -> Result<Tls, String> {
        let origins = (mode != Mode::Reverse).then(Authority::new).transpose()?;
        let trust = match (&self.ca, self.insecure) {
            (_, true) => Trust::Anybody,
            (Some(path), _) => Trust::read(path)?,
            (None, _) if origins.is_none() => {
                return Err("robots speak TLS to this cache: say with --ca FILE whose certificates they believe, or \
                            with --insecure that they believe all"
                    .to_owned());
            }
            (None, _) => Trust::Roots(Vec::new()),
        };
        match (&self.ca_out, &origins) {
            (Some(path), Some(own)) => {
                std::fs::write(path, own.pem()).map_err(|error| format!("--ca-out {}: {error}", path.display()))?
            }
            (Some(_), None) => return Err("--ca-out: the origins of a reverse proxy speak clear text".to_owned()),
            (None, _) => {}
        }
        Tls::new(trust, origins)
    }

    /// Flags of TLS say nothing where robots do not speak it.
    fn without_tls(&self) -> Result<(), String> {
        let given = [(self.ca.is_some(), "--ca"), (self.insecure, "--insecure"), (self.ca_out.is_some(), "--ca-out")];
        match given.iter().find(|(is_given, _)| *is_given) {
            Some((_, flag)) => Err(format!("{flag}: these robots speak clear text; add --tls or write https://")),
            None => Ok(()),
        }
    }

    fn route(&self) -> Result<Route, String> {
        let proxy = self.proxy.as_deref().map(|text| resolve(text, "--proxy")).transpose()?;
        let site = self.site.as_deref().map(|text| {
            let url = Url::parse(text)
                .ok_or_else(|| format!("--site {text}: write http://HOST:PORT or https://HOST:PORT"))?;
            let address = resolve(&format!("{}:{}", url.host.as_str(), url.port), "--site")?;
            Ok::<_, String>((address, url.authority()))
        });
        let (purge, names) = (self.purge_method.clone(), self.names.is_some());
        if !is_token(&purge) {
            return Err(format!("--purge-method {purge}: write one word, such as PURGE"));
        }
        Ok(Route { purge, names, ..route(proxy, site.transpose()?, self.origin_port) })
    }
}

/// Why a run is no success: it could not go on, an answer was wrong in whatever phase, or a rule of the workload was broken,
/// such as the share of requests that may fail.
fn failures(ledger: &Ledger) -> Vec<String> {
    let summary = Summary::of(ledger);
    let broken = summary.findings.iter().filter(|finding| finding.weight == Weight::Failed);
    let mut reasons: Vec<String> = broken.map(|finding| finding.text.clone()).collect();
    let lies: u64 = ledger.intervals.iter().map(|interval| interval.errors.lies()).sum();
    if lies > summary.phase.errors.lies() {
        reasons.push(format!("{lies} answers were wrong in all phases"));
    }
    let (replies, errors) = ledger
        .intervals
        .iter()
        .fold((0, 0), |(replies, errors), interval| (replies + interval.replies(), errors + interval.errors.total()));
    if replies == 0 && errors > 0 {
        reasons.push(format!("no request of {errors} had a reply"));
    }
    if matches!(ledger.end.outcome, Outcome::Unfinished) {
        reasons.push("the ledger has no end".to_owned());
    }
    reasons
}

/// The settings of a workload; a reason against them names it.
fn derived(workload: &Workload, wanted: &Wanted) -> Result<(Settings, Vec<Phase>), String> {
    derive(workload, wanted).map_err(|reason| match reason.contains(&workload.name) {
        true => reason,
        false => format!("workload {}: {reason}", workload.name),
    })
}

/// Whether a discipline of a contest can be played: what can't is said before anything is started.
pub fn check(discipline: &Discipline, peak: Option<f64>, scale: f64) -> Result<(), String> {
    if discipline.kills() {
        return Ok(());
    }
    let (peak, scale) = (discipline.peak.or(peak), discipline.scale.unwrap_or(scale));
    let scaled = read(discipline, scale)?;
    let somewhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let route = match discipline.usual_mode() {
        // Without HTTP/2 nothing depends on how an entry is asked.
        _ if !scaled.workload.robots.protocol.is_http2() => route(None, None, 0),
        "forward" => route(Some(somewhere), None, 0),
        _ => route(None, Some((somewhere, String::new())), 0),
    };
    let route = Route { purge: "PURGE".to_owned(), names: true, ..route };
    let tls = scaled.workload.robots.speaks_tls().then(|| Tls::new(Trust::Anybody, None)).transpose()?;
    let log = replayed_log(discipline, &scaled.workload)?;
    let wanted = Wanted { peak, seed: 1, epoch: 0, workers: 1, cache_bytes: Some(1 << 30), log, tls, route };
    derived(&scaled.workload, &wanted).map(|_| ())
}

/// Plays one heat of a contest.
pub fn heat(heat: &Heat<'_>, peak: Option<f64>, scale: f64, seed: u64, cores: &[usize]) -> Result<Ledger, String> {
    let discipline = heat.discipline;
    let (peak, scale) = (discipline.peak.or(peak), discipline.scale.unwrap_or(scale));
    let scaled = read(discipline, scale)?;
    let route = match heat.target.mode {
        Mode::NoProxy => route(None, None, heat.origin.port()),
        Mode::Forward => route(Some(heat.address), None, heat.origin.port()),
        Mode::Reverse => route(None, Some((heat.address, heat.address.to_string())), heat.origin.port()),
        Mode::Pages => return Err(format!("{} makes pages, and {} asks for objects", heat.label, discipline.title())),
    };
    // An entry that was started here sees the names of the visible servers.
    let route = Route { purge: heat.purge.unwrap_or_default().to_owned(), names: heat.pid.is_some(), ..route };
    let (workers, cache_bytes) = (cores.len().max(1) as u16, heat.cache_bytes);
    let log = replayed_log(discipline, &scaled.workload)?;
    let tls = match heat.authority {
        Some(authority) => Some(Tls::new(Trust::Roots(vec![authority.certificate().clone()]), None)?),
        // Through tunnels robots speak TLS to the origins.
        None if scaled.workload.robots.speaks_tls() => {
            Some(Tls::new(Trust::Roots(Vec::new()), Some(Authority::new()?))?)
        }
        None => None,
    };
    let wanted = Wanted { peak, seed, epoch: unix_now(), workers, cache_bytes, log, tls, route };
    let (settings, phases) = derived(&scaled.workload, &wanted)?;
    let facts = workload_facts(discipline, &scaled, peak, scale);
    let mut target = heat.target.clone();
    if heat.authority.is_some() {
        target.address = format!("https://{}", target.address);
    }
    let mut head = head(facts, &scaled.workload, &wanted, &settings, &phases, target);
    head.tls = settings.tls.as_ref().map(|_| TlsFacts::Verified);
    (head.label, head.round, head.repeats) = (heat.label.to_owned(), heat.round, heat.repeats.clone());
    (head.price, head.watts, head.cache_bytes) = (heat.price.clone(), heat.watts, heat.cache_bytes);
    head.machine = machine(&cores.iter().map(usize::to_string).collect::<Vec<_>>().join(","));
    let watched = heat.pid.map_or(Watched::Port(heat.address.port()), Watched::Tree);
    let (ledger, cores, stop) = (Some(heat.ledger.clone()), cores.to_vec(), stop::flag());
    run(Order { settings, phases, head, ledger, watched, cores, power: None, shows: true, stop })
}

/// The facts of a discipline's workload, without playing it.
pub fn facts(discipline: &Discipline, peak: Option<f64>, scale: f64) -> WorkloadFacts {
    let scale = discipline.scale.unwrap_or(scale);
    match read(discipline, scale) {
        Ok(scaled) => workload_facts(discipline, &scaled, discipline.peak.or(peak), scale),
        Err(_) => WorkloadFacts { name: discipline.title(), scale, ..WorkloadFacts::default() },
    }
}

fn workload_facts(discipline: &Discipline, scaled: &Scaled, peak: Option<f64>, scale: f64) -> WorkloadFacts {
    let workload = &scaled.workload;
    WorkloadFacts {
        name: discipline.title(),
        text: workload.text.clone(),
        peak: peak.or(workload.peak_per_s),
        scale,
        scale_notes: scaled.notes.clone(),
        report_phase: workload.rules.report_phase.clone(),
        errors_max: Some(workload.rules.errors_max),
        dhr_min: workload.rules.dhr_min,
        names: names(workload, peak),
        protocol: workload.robots.protocol.as_str().to_owned(),
        listener: match (workload.robots.protocol, workload.robots.speaks_tls()) {
            (Protocol::H2c, _) => Listener::H2c,
            (Protocol::H2, _) => Listener::H2,
            (_, true) => Listener::Https,
            (_, false) => Listener::Http,
        },
    }
}

/// The names of the visible servers, for caches that have to look them up; empty if URLs have addresses.
fn names(workload: &Workload, peak: Option<f64>) -> String {
    if !workload.servers.names {
        return String::new();
    }
    let servers = Plan::of(workload, &Asked { peak_per_s: peak, cache_bytes: None }).servers.max(1);
    hosts(servers.min(u64::from(SERVERS_MAX)) as u32, |server| (server_address(server), server_name(server)))
}

/// Names of visible servers that are told.
const SERVERS_MAX: u32 = 1_000_000;
/// Requests of a log that are replayed at most.
const LOG_REQUESTS_MAX: usize = 20_000_000;

/// The log of a discipline, if it has one.
fn replayed_log(discipline: &Discipline, workload: &Workload) -> Result<Option<Arc<Trace>>, String> {
    let Some(log) = &discipline.log else { return Ok(None) };
    let name = &workload.name;
    let replay = workload.replay.as_ref().ok_or_else(|| {
        format!("{name} replays no log, so {} is not for it; the workload `replay` does", log.display())
    })?;
    Ok(Some(Arc::new(read_log(log, &replay.form, LOG_REQUESTS_MAX)?)))
}

/// The scores on a log of a cache that forgets nothing and fetches again what has expired. Its working set has each object
/// once.
fn ideal(log: &Trace, settings: &Settings) -> Ideal {
    let fresh_s = |object: u32| settings.law.logged(object).and_then(|content| content.lifetime_s()).map(|(s, _)| s);
    let lives_long = |object: u32| fresh_s(object).is_none_or(|fresh_s| fresh_s >= DAY_S);
    let mut fetched: Vec<Option<Duration>> = vec![None; log.objects as usize];
    let (mut hits, mut hit_bytes) = (0_u64, 0.0);
    for (line, request) in settings.log.iter().zip(&log.requests) {
        let known = &mut fetched[request.object as usize];
        let is_fresh = |at: Duration| {
            lives_long(request.object) || line.at < at + Duration::from_secs(fresh_s(request.object).unwrap_or(0))
        };
        if known.is_some_and(is_fresh) {
            (hits, hit_bytes) = (hits + 1, hit_bytes + request.bytes as f64);
        } else {
            *known = Some(line.at);
        }
    }
    let bytes: f64 = log.requests.iter().map(|request| request.bytes as f64).sum();
    Ideal {
        dhr: Some(hits as f64 / log.requests.len().max(1) as f64),
        bhr: (bytes > 0.0).then(|| hit_bytes / bytes),
        working_set_bytes: Some(log.footprint_bytes() as f64),
        ..Ideal::default()
    }
}

fn plan(workload: &Workload, wanted: &Wanted) -> Plan {
    Plan::of(workload, &Asked { peak_per_s: wanted.peak, cache_bytes: wanted.cache_bytes })
}

/// The workload of a discipline, scaled.
pub fn read(discipline: &Discipline, scale: f64) -> Result<Scaled, String> {
    let (variant, changes) = (discipline.variant.as_deref(), &discipline.changes[..]);
    if !(scale > 0.0 && scale <= 100.0) {
        return Err(format!("--scale {scale}: give a number above 0, such as 0.01"));
    }
    let (file, text) = source(discipline)?;
    let workload = load(&file, &text, variant, changes);
    Ok(workload.map_err(|report| report.to_string())?.scaled(scale))
}

/// The file of a workload and its text.
fn source(discipline: &Discipline) -> Result<(String, String), String> {
    let name = &discipline.workload;
    if PageWorkload::named(name).is_some() {
        return Err(format!(
            "{name} is a workload for application servers: play it with cacheoff contest --workload {name}"
        ));
    }
    match Builtin::named(name) {
        Some(builtin) => Ok((format!("{name}.toml"), builtin.text.to_owned())),
        None => {
            let text = std::fs::read_to_string(name).map_err(|error| {
                format!("{name} is no workload that comes with the program, and cannot be read: {error}")
            })?;
            Ok((name.clone(), text))
        }
    }
}

fn head(
    mut facts: WorkloadFacts,
    workload: &Workload,
    wanted: &Wanted,
    settings: &Settings,
    phases: &[Phase],
    target: Target,
) -> Run {
    // Without a cache there is no hit ratio to ask for.
    facts.dhr_min = facts.dhr_min.filter(|_| target.mode != Mode::NoProxy);
    let rate = workload.robots.pace.rate_per_s().map(|rate| rate * f64::from(settings.robots.count));
    let phases = phases.iter().map(|phase| PhasePlan {
        name: phase.name.clone(),
        length_us: phase.length().map(|length| length.as_micros() as u64),
        logged: phase.logged,
        rate_end: rate.map(|rate| rate * phase.load.to * phase.populus.to),
        goal: goal_in_words(phase),
    });
    let mut run = Run {
        cacheoff: env!("CARGO_PKG_VERSION").to_owned(),
        started_unix: wanted.epoch,
        command: own_command(),
        seed: wanted.seed,
        target,
        protocol: facts.protocol.clone(),
        streams: settings.robots.streams.map(|streams| StreamFacts {
            streams_max: streams.streams_max,
            stream_window_bytes: streams.stream_window_bytes,
            connection_window_bytes: streams.connection_window_bytes,
        }),
        contents: workload.contents.iter().map(|content| content.name.clone()).collect(),
        phases: phases.collect(),
        tuning: system_tuning(),
        workload: facts,
        ..Run::default()
    };
    run.ideal = match wanted.log.as_deref() {
        Some(log) => ideal(log, settings),
        None => plan(workload, wanted).ideal(),
    };
    run
}

fn goal_in_words(phase: &Phase) -> String {
    let goals = phase.goals.iter().map(|goal| match *goal {
        Goal::Time(length) => format!("{} s", length.as_secs_f64()),
        Goal::Replies(count) => format!("{count} replies"),
        Goal::Fill(bytes) => format!("{bytes} bytes of cachable misses"),
    });
    let first = goals.collect::<Vec<_>>().join(" or ");
    match (first.is_empty(), phase.until_frozen) {
        (_, false) => first,
        (true, true) => "a frozen working set".to_owned(),
        (false, true) => format!("{first}, and a frozen working set"),
    }
}

fn target(route: &Route) -> Target {
    let address = route.address.map(|address| address.to_string()).unwrap_or_default();
    Target { mode: route.mode, address, product: String::new(), entry: None }
}

/// Whether a method can stand in a request line (RFC 9110 section 5.6.2).
fn is_token(method: &str) -> bool {
    let permitted = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !method.is_empty() && method.bytes().all(permitted)
}

fn resolve(text: &str, flag: &str) -> Result<SocketAddr, String> {
    let mut found = text.to_socket_addrs().map_err(|error| format!("{flag} {text}: {error}; write ADDR:PORT"))?;
    found.find(SocketAddr::is_ipv4).ok_or_else(|| format!("{flag} {text}: no IPv4 address"))
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
