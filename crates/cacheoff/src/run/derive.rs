//! A workload with its peak and scale becomes what the engine plays.

use crate::distribution::Distribution;
use crate::engine::{Seal, Settings};
use crate::ledger::Mode;
use crate::link::Link;
use crate::object::{self, Content, Law, Life};
use crate::origin::{Fault, Hosts, OriginSettings};
use crate::robot::{HotSet, Line, Pace, Popularity, Ranges, RobotSettings, Route, Special, StreamSettings};
use crate::schedule::{Goal, Phase, Ramp, Thermostat};
use crate::simulate::Trace;
use crate::tls::Tls;
use crate::workload::{self, Expires, Protocol, WorkingSet, Workload};
use larder_wire::Version;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The user's choices besides the workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Requests per second at peak.
    pub peak: Option<f64>,
    /// Seed.
    pub seed: u64,
    /// Start, in seconds since 1970.
    pub epoch: u64,
    /// Whom the robots speak to.
    pub route: Route,
    /// Worker threads.
    pub workers: u16,
    /// Bytes of the cache under test, for phases that fill it.
    pub cache_bytes: Option<u64>,
    /// The log that is replayed, for workloads that do.
    pub log: Option<Arc<Trace>>,
    /// How TLS is spoken, if somebody said it.
    pub tls: Option<Tls>,
}

/// A reply may take so long.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Longer lifetimes of a log are this one: recipients read no larger number (RFC 9111 section 1.2.2).
const LIFETIME_S_MAX: f64 = (1_u64 << 31) as f64;
/// A request that a log has later than this is made at this time.
const LOG_S_MAX: f64 = 1e9;
const WAITING_MAX: usize = 10_000;
const DRAIN: Duration = Duration::from_secs(5);

/// Robots of a workload at a peak of requests per second. `Err` if they are too many.
pub fn robot_count(workload: &Workload, peak: Option<f64>) -> Result<u32, String> {
    let count = match (peak, workload.robots.pace.rate_per_s()) {
        (Some(peak), Some(rate)) => (peak / rate).ceil().max(1.0) as u64,
        _ => workload.robots.count,
    };
    let count = u32::try_from(count).ok().filter(|count| *count <= 4_000_000);
    count.ok_or_else(|| "more than 4,000,000 robots: lower the peak".to_owned())
}

/// Settings and phases of a workload. `Err` names what the engine cannot play.
pub fn derive(workload: &Workload, wanted: &Wanted) -> Result<(Settings, Vec<Phase>), String> {
    refuse(workload, wanted)?;
    let peak = wanted.peak.or(workload.peak_per_s);
    let count = robot_count(workload, peak)?;
    let servers =
        (workload.servers.count as f64 + workload.servers.per_robot * f64::from(count)).ceil().max(1.0) as u32;
    let (freeze_at, freeze_after, preset) = match workload.interest.working_set {
        WorkingSet::Unlimited => (None, None, None),
        WorkingSet::FreezeAt(time) => (Some(time), None, None),
        WorkingSet::CapPerRate(misses) => (None, Some((misses * peak.unwrap_or(1.0)) as u64), None),
        WorkingSet::Cap(misses) => (None, Some(misses), None),
        WorkingSet::Fixed(objects) => (None, None, Some(objects.max(1))),
    };
    let log = log(workload, wanted)?;
    let (life_of, lives) = match (&workload.replay, wanted.log.as_deref()) {
        (Some(replay), Some(trace)) => lives(trace, replay.speed, &content(&workload.contents[0])),
        _ => Default::default(),
    };
    let law = Law {
        seed: wanted.seed,
        tag: (crate::random::mix(wanted.seed ^ wanted.epoch.rotate_left(32)) >> 32) as u32,
        epoch: wanted.epoch,
        contents: workload.contents.iter().map(content).collect(),
        redirect: workload.servers.redirect,
        query: workload.requests.query,
        sizes: wanted.log.as_deref().filter(|_| !log.is_empty()).map(sizes).unwrap_or_default(),
        life_of,
        lives,
    };
    let settings = Settings {
        law,
        seal: Seal::random(),
        origins: origins(workload, servers, wanted.route.origin_port),
        robots: robots(workload, count, wanted.route.mode),
        route: Route { names: workload.servers.names, tls: workload.robots.speaks_tls(), ..wanted.route.clone() },
        tls: wanted.tls.clone().filter(|_| workload.robots.speaks_tls()),
        freeze_at,
        freeze_after,
        preset,
        log: log.as_slice().into(),
        workers: wanted.workers,
        drain: DRAIN,
    };
    let mut phases = workload.phases.iter().map(|each| phase(each, wanted)).collect::<Result<Vec<_>, _>>()?;
    if let (Some(last), [only]) = (log.last(), &mut phases[..]) {
        let whole = last.at + Duration::from_millis(1);
        only.goals = vec![Goal::Time(only.length().map_or(whole, |length| length.min(whole)))];
    }
    Ok((settings, phases))
}

/// The lines of the log that a workload replays, at its speed; none if it replays none.
fn log(workload: &Workload, wanted: &Wanted) -> Result<Vec<Line>, String> {
    let Some(replay) = &workload.replay else { return Ok(Vec::new()) };
    let name = &workload.name;
    let log = wanted
        .log
        .as_ref()
        .ok_or_else(|| format!("{name} replays a log: say with --log FILE which one, in a contest with :log=FILE"))?;
    if workload.phases.len() != 1 || workload.contents.len() != 1 {
        return Err(format!("{name} replays a log: it needs one [[phase]] and one [[content]]"));
    }
    if log.requests.last().is_none_or(|last| last.at_us == 0) {
        return Err("the log has no times, or one for all its requests: robots cannot follow its pace".to_owned());
    }
    let mut seen = 0;
    let lines = log.requests.iter().map(|request| {
        let repeat = request.object < seen;
        seen = seen.max(request.object + 1);
        let at = Duration::from_secs_f64((request.at_us as f64 / 1e6 / replay.speed).min(LOG_S_MAX));
        Line { at, object: request.object + 1, repeat }
    });
    Ok(lines.collect())
}

/// Sizes of the objects of a log, by their numbers: that of the first request for each.
fn sizes(log: &Trace) -> Arc<[u64]> {
    let mut sizes = Vec::with_capacity(log.objects as usize);
    for request in &log.requests {
        if request.object as usize == sizes.len() {
            sizes.push(request.bytes);
        }
    }
    sizes.into()
}

/// The lifetimes that a log says: for each object the place of its own content type, counted from 1, and these types. A log
/// that is replayed faster has shorter ones; HTTP knows whole seconds, and what lives at all lives for one.
fn lives(log: &Trace, speed: f64, usual: &Content) -> (Arc<[u32]>, Arc<[Content]>) {
    let (mut places, mut lives): (BTreeMap<u64, u32>, Vec<Content>) = (BTreeMap::new(), Vec::new());
    let place = |lifetime: &Option<f64>| {
        let Some(lifetime_s) = *lifetime else { return 0 };
        let played_s = (lifetime_s / speed).clamp(if lifetime_s > 0.0 { 1.0 } else { 0.0 }, LIFETIME_S_MAX) as u64;
        *places.entry(played_s).or_insert_with(|| {
            lives.push(Content { cache_control: with_max_age(&usual.cache_control, played_s), ..usual.clone() });
            lives.len() as u32
        })
    };
    let life_of: Vec<u32> = log.lifetimes_s.iter().map(place).collect();
    (life_of.into(), lives.into())
}

/// A `Cache-Control` with another lifetime; its other directives stay.
fn with_max_age(cache_control: &str, seconds: u64) -> String {
    let is_lifetime = |directive: &str| {
        let name = directive.split('=').next().unwrap_or_default().trim().to_ascii_lowercase();
        name == "max-age" || name == "s-maxage"
    };
    let others = cache_control.split(',').map(str::trim).filter(|each| !each.is_empty() && !is_lifetime(each));
    others.map(str::to_owned).chain([format!("max-age={seconds}")]).collect::<Vec<_>>().join(", ")
}

/// A feature that a workload may have and the engine does not play yet is refused, not left out in silence.
fn refuse(workload: &Workload, wanted: &Wanted) -> Result<(), String> {
    let route = &wanted.route;
    if workload.requests.purges > 0.0 && route.mode != Mode::NoProxy && route.purge.is_empty() {
        let name = &workload.name;
        return Err(format!("{name} purges: say by which method this cache forgets a URL (purge in its entry.toml)"));
    }
    let forward = route.mode == Mode::Forward;
    let (robots, servers) = (&workload.robots, &workload.servers);
    let link = workload.client_link;
    let cannot = [
        (
            robots.pipeline > 1 && link != workload::Link::default(),
            "robot.pipeline over a client_link (requests on their way are not modelled one behind the other)",
        ),
        (
            robots.speaks_tls() && wanted.tls.is_none(),
            "robot.tls, or robot.protocol h2 (nobody has said whose certificates robots believe)",
        ),
        (
            servers.names && forward && !route.names,
            "server.names (a forward proxy has to look them up: --names FILE writes them down for it; or change it with server.names=false)",
        ),
    ];
    let missing: Vec<&str> = cannot
        .iter()
        .chain(&refused_over_http2(workload, wanted))
        .filter(|(asked, _)| *asked)
        .map(|(_, what)| *what)
        .collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(format!("the engine does not play yet what {} asks for: {}", workload.name, missing.join(", "))),
    }
}

/// Those that robots of HTTP/2 do not play.
fn refused_over_http2(workload: &Workload, wanted: &Wanted) -> Vec<(bool, &'static str)> {
    let robots = &workload.robots;
    if !robots.protocol.is_http2() {
        return Vec::new();
    }
    let tunnels = wanted.route.mode == Mode::Forward && robots.speaks_tls();
    vec![
        (
            matches!(wanted.route.mode, Mode::NoProxy | Mode::Pages),
            "robot.protocol h2c or h2 without a cache (the origins speak HTTP/1.1: say a --site or a --proxy, or change it with robot.protocol=http/1.1)",
        ),
        (tunnels, "robot.protocol h2 through tunnels (the origins at their ends speak HTTP/1.1)"),
        (robots.tls && robots.protocol == Protocol::H2c, "robot.protocol h2c over TLS (h2 is HTTP/2 over TLS)"),
        (
            matches!(robots.connection_uses, Distribution::Constant(uses) if uses < 2.0),
            "robot.connection_uses 1 over HTTP/2 (no request would share its connection: say how many one carries, such as robot.connection_uses=1000)",
        ),
        (robots.pipeline > 1, "robot.pipeline over HTTP/2 (robot.streams_max says how many requests go side by side)"),
        (robots.read_bytes_per_s > 0, "robot.read_rate over HTTP/2"),
        (
            workload.client_link != workload::Link::default(),
            "a client_link over HTTP/2 (its windows are not modelled for many streams)",
        ),
    ]
}

fn content(content: &workload::Content) -> Content {
    let life = match content.life.cycle {
        None => Life::Static,
        Some(length) => Life::Cycle {
            length,
            variance: content.life.variance,
            with_modified: content.life.with_modified,
            expires_after: match content.life.expires {
                Expires::NextChange => content.life.expires_after.mean(),
                Expires::Now | Expires::LastChange => content.life.expires_after.mean() - length.mean(),
            },
        },
    };
    Content {
        name: content.name.clone(),
        media: content.media.clone(),
        size: content.size,
        size_bytes_max: content.size_bytes_max,
        cachable: content.cachable,
        refused: content.refused,
        endings: content.endings.clone(),
        embeds: content
            .embeds
            .as_ref()
            .map(|embeds| object::Embeds { count: embeds.count, contents: embeds.contents.clone() }),
        life,
        variants: content.variants,
        etag: content.etag,
        personal: content.personal,
        cache_control: content.cache_control.clone(),
    }
}

fn origins(workload: &Workload, servers: u32, port: u16) -> OriginSettings {
    let given = &workload.servers;
    let faults = [
        (Fault::Truncate, given.faults.truncate),
        (Fault::Stall, given.faults.stall),
        (Fault::Reset, given.faults.reset),
        (Fault::LongLength, given.faults.wrong_length),
        (Fault::Unavailable, given.faults.errors),
        (Fault::Abort, given.abort),
    ];
    OriginSettings {
        servers,
        port,
        are_asked: true,
        listens: Hosts::default(),
        think: (given.think != Distribution::Constant(0.0)).then_some(given.think),
        uses: Some(given.connection_uses),
        idle: given.idle,
        link: link(&workload.server_link),
        faults: faults.into_iter().filter(|(_, share)| *share > 0.0).collect(),
        burst: given.faults.burst,
        chunked: given.chunked,
        ranges: given.ranges,
    }
}

fn robots(workload: &Workload, count: u32, mode: Mode) -> RobotSettings {
    let (given, interest, requests) = (&workload.robots, &workload.interest, &workload.requests);
    let kinds = [
        (Special::ModifiedBefore, requests.ims_200),
        (Special::ModifiedAfter, requests.ims_304),
        (Special::TagMatch, requests.if_none_match),
        (Special::Reload, requests.reload),
        (Special::Head, requests.head),
        (Special::Post, requests.post),
        (Special::Put, requests.put),
        (Special::Part, requests.range),
        // Without a cache there is nothing to purge.
        (Special::Purge, if mode == Mode::NoProxy { 0.0 } else { requests.purges }),
    ];
    let direct = workload.direct_shares().into_iter().enumerate();
    RobotSettings {
        count,
        per_address: given.per_address.max(1),
        pace: match given.pace {
            _ if workload.replay.is_some() => Pace::Log,
            workload::Pace::Poisson { rate_per_s } => Pace::Poisson(rate_per_s),
            workload::Pace::Constant { rate_per_s } => Pace::Constant(Duration::from_secs_f64(1.0 / rate_per_s)),
            workload::Pace::Closed { pause } => Pace::Closed(pause),
        },
        recurrence: interest.recurrence,
        public: interest.public,
        popularity: match interest.popularity {
            workload::Popularity::Recent { skew } => Popularity::Recent(skew),
            workload::Popularity::Zipf { alpha, churn_per_hour } => {
                Popularity::Zipf { exponent: alpha, churn_per_hour }
            }
            workload::Popularity::Sequence => Popularity::Sequence,
            workload::Popularity::Tree { fan } => Popularity::Tree(fan),
            workload::Popularity::Live { segment_s, window } => {
                Popularity::Live { segment: Duration::from_secs_f64(segment_s), window }
            }
            workload::Popularity::Uniform => Popularity::Uniform,
        },
        hot_set: (interest.hot_set > 0.0 || interest.hot_probability > 0.0)
            .then_some(HotSet { share: interest.hot_set, probability: interest.hot_probability }),
        discrimination: interest.bhr_discrimination,
        direct: direct.map(|(number, share)| (number as u8, share)).collect(),
        embed_recurrence: given.embed_recurrence,
        embeds_of_304: given.embeds_of_304,
        kinds: kinds.into_iter().filter(|(_, share)| *share > 0.0).collect(),
        post_bytes: requests.post_bytes,
        expect_continue: requests.expect_continue,
        ranges: ranges(requests),
        together: given.together,
        uses: Some(given.connection_uses),
        connections_max: if given.connections_max == 0 { u32::MAX } else { given.connections_max },
        pipeline: given.pipeline.max(1),
        waiting_max: WAITING_MAX,
        version: if given.protocol == Protocol::Http10 { Version::Http10 } else { Version::Http11 },
        streams: given.protocol.is_http2().then(|| streams(given)),
        abort: given.abort,
        read_bytes_per_s: given.read_bytes_per_s,
        cookie: requests.cookie,
        logged_in: requests.logged_in,
        proxy_login: given.proxy_login,
        expected: (requests.expected_status != 0).then_some(requests.expected_status),
        accepts_gzip: requests.accept_gzip,
        delay_s_max: delay_s_max(workload),
        timeout: TIMEOUT,
        link: link(&workload.client_link),
        ..RobotSettings::default()
    }
}

fn streams(given: &workload::Robots) -> StreamSettings {
    StreamSettings {
        streams_max: given.streams_max,
        stream_window_bytes: u32::try_from(given.stream_window_bytes).unwrap_or(u32::MAX),
        connection_window_bytes: u32::try_from(given.connection_window_bytes).unwrap_or(u32::MAX),
    }
}

fn ranges(requests: &workload::Requests) -> Ranges {
    Ranges {
        bytes: requests.range_bytes,
        suffix: requests.range_suffix,
        parts: requests.range_parts,
        parallel: requests.parallel_ranges,
    }
}

/// Think time that one request in ten million exceeds, and twenty times the way of the link for what is lost or large.
fn delay_s_max(workload: &Workload) -> u64 {
    let way = workload.server_link.delay + workload.server_link.jitter;
    let think = workload.servers.think.quantile(1.0 - 1e-7).clamp(0.0, TIMEOUT.as_secs_f64());
    (think + 20.0 * way.as_secs_f64()).ceil() as u64 + 1
}

fn link(given: &workload::Link) -> Link {
    Link { delay: given.delay, jitter: given.jitter, bits_per_s: given.bits_per_s, loss: given.loss }
}

fn phase(given: &workload::Phase, wanted: &Wanted) -> Result<Phase, String> {
    let fill = given.fill_caches.map(|times| match wanted.cache_bytes {
        Some(bytes) => Ok((bytes as f64 * times) as u64),
        None => Err(format!("phase {} fills the cache {times} times: say its size with --cache-bytes", given.name)),
    });
    let fill = given.fill_bytes.or(fill.transpose()?);
    let goals = [given.length.map(Goal::Time), given.replies.map(Goal::Replies), fill.map(Goal::Fill)];
    let ramp = |factor: workload::Factor| Ramp { from: factor.from, to: factor.to };
    Ok(Phase {
        name: given.name.clone(),
        goals: goals.into_iter().flatten().collect(),
        until_frozen: given.until_frozen,
        errors: given.errors,
        thermostat: given.thermostat.map(|found| Thermostat {
            low: Duration::from_secs_f64(found.low_s),
            high: Duration::from_secs_f64(found.high_s),
            step: found.step,
        }),
        logged: given.logged,
        dark: given.dark,
        populus: ramp(given.populus),
        load: ramp(given.load),
        recurrence: ramp(given.recurrence),
        special: ramp(given.special),
        hot: ramp(given.hot),
    })
}

/// Whom robots speak to when there is a proxy, a site, or neither.
pub fn route(
    proxy: Option<std::net::SocketAddr>,
    site: Option<(std::net::SocketAddr, String)>,
    origin_port: u16,
) -> Route {
    let (mode, address, host) = match (proxy, site) {
        (Some(address), _) => (Mode::Forward, Some(address), String::new()),
        (None, Some((address, host))) => (Mode::Reverse, Some(address), host),
        (None, None) => (Mode::NoProxy, None, String::new()),
    };
    let (names, tls, purge, hosts) = (false, false, String::new(), Hosts::default());
    Route { mode, address, host, origin_port, hosts, names, tls, purge }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lifetime_of_a_log_is_a_content_type_of_its_own() {
        let lifetimes_s = vec![None, Some(60.0), Some(3.0), Some(60.4), Some(0.0), Some(1e30)];
        let log = Trace { lifetimes_s, ..Trace::default() };
        let content = Content {
            etag: false,
            cache_control: "Public, max-age=86400, s-maxage=9, stale-while-revalidate=5".to_owned(),
            ..Content::plain("logged", "text/html", Distribution::Constant(1.0), 1)
        };
        let (life_of, lives) = lives(&log, 10.0, &content);
        assert_eq!(*life_of, [0, 1, 2, 1, 3, 4], "3 s of the log at ten times its speed are one second");
        let said: Vec<&str> = lives.iter().map(|life| life.cache_control.as_str()).collect();
        let of = |seconds: &str| format!("Public, stale-while-revalidate=5, max-age={seconds}");
        assert_eq!(said, ["6", "1", "0", "2147483648"].map(of));
        assert_eq!(lives[0].lifetime_s(), Some((6, 5)));
    }
}
