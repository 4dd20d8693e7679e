//! Every knob of a workload once: its name, what it takes, its limits, its default and a sentence.
//!
//! The parser and `docs/workloads.md` come from these tables. A default is what [`Workload::empty`] has.

use super::draft::{ContentDraft, FactorDraft, PhaseDraft};
use super::knob::{Field, Knob};
use super::units::{Call, Unit, distribution, number, show_distribution, show_share};
use super::{Expires, Pace, Popularity, Protocol, RangeManner, Replay, Thermostat, WorkingSet, Workload};
use std::time::Duration;

type Whole = Knob<Workload>;
type OfContent = Knob<ContentDraft>;
type OfPhase = Knob<PhaseDraft>;

macro_rules! factor {
    ($name:ident) => {
        Field::Word {
            form: "VALUE, FROM -> TO, or -> TO from where the phase before ended",
            read: |p| p.$name.show(),
            write: |p, text| FactorDraft::parse(text).map(|factor| p.$name = factor).is_some(),
        }
    };
}
/// Knobs of the whole workload; a name with a dot stands in the TOML table before the dot.
pub(super) static KNOBS: &[Knob<Workload>] = &[
    Whole::new("name", Field::Text(|w| &mut w.name), "Name of the workload.").required(),
    Whole::new("about", Field::Text(|w| &mut w.about), "The system that it models, in a sentence or two.").required(),
    Whole::new(
        "peak",
        Field::NumberIfAny(|w| &mut w.peak_per_s),
        "Requests per second at peak, if `--peak` says no other. The number of robots follows from it.",
    )
    .between(0.001, 1e8),
    Whole::new(
        "robot.pace",
        Field::Word {
            form: "poisson(RATE), constant(RATE), closed(PAUSE) or best-effort",
            read: |w| show_pace(&w.robots.pace),
            write: |w, text| pace(text).map(|pace| w.robots.pace = pace).is_some(),
        },
        "When a robot sends its next request. RATE is per second and robot and counts what pages embed; the first two go on whatever the replies do. PAUSE is a distribution of times from a reply to the next request; `best-effort` has none.",
    ),
    Whole::new(
        "robot.count",
        Field::Count(|w| &mut w.robots.count),
        "Robots, if no peak says how many. In a closed loop this is the number of clients that wait for replies.",
    )
    .between(1.0, 1e6),
    Whole::new(
        "robot.protocol",
        Field::Word {
            form: "http/1.0, http/1.1, h2c or h2",
            read: |w| w.robots.protocol.as_str().to_owned(),
            write: |w, text| {
                let found = Protocol::ALL.into_iter().find(|each| each.as_str() == text);
                w.robots.protocol = found.unwrap_or(w.robots.protocol);
                found.is_some()
            },
        },
        "Protocol between robots and cache; HTTP/1.0 asks for `keep-alive` if connections serve more than one request. `h2c` is HTTP/2 in the clear by prior knowledge, `h2` is HTTP/2 over TLS by ALPN: requests of a robot to one host go side by side on one connection, until it has served `robot.connection_uses`.",
    ),
    Whole::new("robot.tls", Field::Flag(|w| &mut w.robots.tls), "Robots speak TLS and refuse clear text."),
    Whole::new(
        "robot.connection_uses",
        Field::Drawn(Unit::Count, |w| &mut w.robots.connection_uses),
        "Requests that a connection serves, drawn when it is opened; 1 closes it after each, and is refused over HTTP/2.",
    )
    .between(1.0, f64::MAX),
    Whole::new(
        "robot.connections_max",
        Field::Few(|w| &mut w.robots.connections_max),
        "Connections that a robot holds at once; further requests wait, and the wait counts. 0 is no limit.",
    ),
    Whole::new(
        "robot.pipeline",
        Field::Few(|w| &mut w.robots.pipeline),
        "Requests that are sent on a connection before the first of them is answered (RFC 9112 section 9.3.2); another connection is opened when all have so many. POST, PUT and purges wait for a connection of their own.",
    )
    .between(1.0, 64.0),
    Whole::new(
        "robot.streams_max",
        Field::Few(|w| &mut w.robots.streams_max),
        "Requests under way at once on a connection of HTTP/2, if the cache permits as many (SETTINGS_MAX_CONCURRENT_STREAMS); further ones wait, and the wait counts. 100 is what Chromium assumes.",
    )
    .between(1.0, 10_000.0),
    Whole::new(
        "robot.stream_window",
        Field::Amount(Unit::Size, |w| &mut w.robots.stream_window_bytes),
        "Bytes of one body that may come over HTTP/2 before the robot has read any of it (SETTINGS_INITIAL_WINDOW_SIZE); opened again when half is used. 6 MB is Chromium's.",
    )
    .between(1.0, 2_147_483_647.0),
    Whole::new(
        "robot.connection_window",
        Field::Amount(Unit::Size, |w| &mut w.robots.connection_window_bytes),
        "Bytes of all bodies of a connection of HTTP/2 that may come so; 64 KB at least, as the protocol has it. 15 MB is Chromium's.",
    )
    .between(65_535.0, 2_147_483_647.0),
    Whole::new(
        "robot.embed_recurrence",
        Field::Share(|w| &mut w.robots.embed_recurrence),
        "Share of the objects embedded in a page that are asked for. They have the marks of the page: repeated, `If-Modified-Since`, `If-None-Match`, reload; else they are plain GETs.",
    ),
    Whole::new(
        "robot.embeds_of_304",
        Field::Flag(|w| &mut w.robots.embeds_of_304),
        "The objects of a page are asked for also when the page was answered 304: the robot has the page. Without it nothing is asked for then, as by the robots of Web Polygraph, which read the page as it comes.",
    ),
    Whole::new(
        "robot.abort",
        Field::Share(|w| &mut w.robots.abort),
        "Share of the replies that a robot stops reading at a random place.",
    ),
    Whole::new(
        "robot.read_rate",
        Field::Amount(Unit::Size, |w| &mut w.robots.read_bytes_per_s),
        "Bytes per second at which a robot reads; 0 is as they come.",
    ),
    Whole::new("robot.per_address", Field::Few(|w| &mut w.robots.per_address), "Robots that share a source address.")
        .between(1.0, 1e6),
    Whole::new(
        "robot.proxy_login",
        Field::Flag(|w| &mut w.robots.proxy_login),
        "Robots log in at a forward proxy, each as a user of its own (`Proxy-Authorization: Basic`): the robot with number N as `robotN` with the password `cacheoff-N`. Numbers begin at 0.",
    ),
    Whole::new(
        "robot.together",
        Field::Flag(|w| &mut w.robots.together),
        "All robots begin in the same instant, not spread over their first gap.",
    ),
    Whole::new(
        "requests.ims_200",
        Field::Share(|w| &mut w.requests.ims_200),
        "Requests with `If-Modified-Since` a second before the last change: answered 200.",
    ),
    Whole::new(
        "requests.ims_304",
        Field::Share(|w| &mut w.requests.ims_304),
        "Requests with `If-Modified-Since` a second after the last change: answered 304.",
    ),
    Whole::new(
        "requests.if_none_match",
        Field::Share(|w| &mut w.requests.if_none_match),
        "Requests with `If-None-Match` and the current tag: answered 304.",
    ),
    Whole::new(
        "requests.reload",
        Field::Share(|w| &mut w.requests.reload),
        "Requests with `Cache-Control: no-cache`, which must reach the origin.",
    ),
    Whole::new("requests.range", Field::Share(|w| &mut w.requests.range), "Requests for a part of an object."),
    Whole::new(
        "requests.range_bytes",
        Field::Drawn(Unit::Size, |w| &mut w.requests.range_bytes),
        "Length of such a part.",
    )
    .between(1.0, f64::MAX),
    Whole::new(
        "requests.range_suffix",
        Field::Share(|w| &mut w.requests.range_suffix),
        "Share of the parts that are the end of an object.",
    ),
    Whole::new(
        "requests.range_parts",
        Field::Drawn(Unit::Count, |w| &mut w.requests.range_parts),
        "Parts that one such request asks for; the answer to several is `multipart/byteranges`, or the whole. Objects that are too small are asked for one part.",
    )
    .between(1.0, 8.0),
    Whole::new(
        "requests.parallel_ranges",
        Field::Drawn(Unit::Count, |w| &mut w.requests.parallel_ranges),
        "Parts into which an object is divided that are asked for at the same time; 1 asks for it as a whole.",
    )
    .between(1.0, 64.0),
    Whole::new("requests.post", Field::Share(|w| &mut w.requests.post), "POST requests."),
    Whole::new("requests.put", Field::Share(|w| &mut w.requests.put), "PUT requests."),
    Whole::new(
        "requests.post_bytes",
        Field::Drawn(Unit::Size, |w| &mut w.requests.post_bytes),
        "Length of the bodies of POST and PUT.",
    ),
    Whole::new(
        "requests.expect_continue",
        Field::Share(|w| &mut w.requests.expect_continue),
        "Share of the requests with a body that say `Expect: 100-continue` and send it when `100 Continue` has come, or after a second (RFC 9110 section 10.1.1).",
    ),
    Whole::new("requests.head", Field::Share(|w| &mut w.requests.head), "HEAD requests."),
    Whole::new(
        "requests.cookie",
        Field::Share(|w| &mut w.requests.cookie),
        "Requests that carry a cookie of their robot.",
    ),
    Whole::new("requests.query", Field::Share(|w| &mut w.requests.query), "Objects whose URLs have a query string."),
    Whole::new(
        "requests.accept_gzip",
        Field::Share(|w| &mut w.requests.accept_gzip),
        "Robots that accept gzip and so get another variant, where there are variants.",
    ),
    Whole::new(
        "requests.logged_in",
        Field::Share(|w| &mut w.requests.logged_in),
        "Requests with `Authorization`, which must not be answered from the store.",
    ),
    Whole::new(
        "requests.purges",
        Field::Share(|w| &mut w.requests.purges),
        "Purges of the URL of an object that was asked for before, by the method that the cache knows (`--purge-method`, `purge` in an `entry.toml`). Once it is acknowledged (2xx or 404), a hit on an answer that the origin gave in a second before that of the purge is the error `purged-hit`, also if the fetch was under way. Without a cache none is sent.",
    ),
    Whole::new(
        "requests.expected_status",
        Field::Word {
            form: "HTTP status, or 0 for that of the origin",
            read: |w| w.requests.expected_status.to_string(),
            write: |w, text| {
                let status = text.parse().ok().filter(|status| *status == 0 || (200..600).contains(status));
                status.map(|status| w.requests.expected_status = status).is_some()
            },
        },
        "The status that the cache itself must answer, as 403 when it must refuse.",
    ),
    Whole::new(
        "interest.recurrence",
        Field::Share(|w| &mut w.interest.recurrence),
        "Share of the requests that ask for an object again.",
    ),
    Whole::new(
        "interest.public",
        Field::Share(|w| &mut w.interest.public),
        "Share of the interest that robots have in common; the rest is each robot's own.",
    ),
    Whole::new(
        "interest.popularity",
        Field::Word {
            form: "uniform, recent(SKEW), zipf(ALPHA, CHURN), sequence, tree(LINKS) or live(SEGMENT, WINDOW)",
            read: |w| show_popularity(&w.interest.popularity),
            write: |w, text| popularity(text).map(|popularity| w.interest.popularity = popularity).is_some(),
        },
        "How an object is chosen among those asked for before: all alike; newer ones more often; by a rank kept for life, a share CHURN of which gets other objects each hour; one after the other, by each robot; along the links of pages, breadth first, by each robot; playlists of WINDOW segments at the live edge.",
    ),
    Whole::new(
        "interest.hot_set",
        Field::Share(|w| &mut w.interest.hot_set),
        "Share of the working set that is hot; at least one object.",
    ),
    Whole::new(
        "interest.hot_probability",
        Field::Share(|w| &mut w.interest.hot_probability),
        "Share of the repeats that go to the hot set.",
    ),
    Whole::new(
        "interest.bhr_discrimination",
        Field::Share(|w| &mut w.interest.bhr_discrimination),
        "Share of the repeats that take the smallest of nine neighbours, so that popular objects are small.",
    ),
    Whole::new(
        "interest.working_set",
        Field::Word {
            form: "unlimited, freeze(TIME), cap_per_rate(COUNT), cap(COUNT) or fixed(COUNT)",
            read: |w| show_working_set(&w.interest.working_set),
            write: |w, text| working_set(text).map(|set| w.interest.working_set = set).is_some(),
        },
        "When the working set stops growing and slides: at a time after the start; after so many cachable misses, per request per second of peak or in all; or `fixed`: so many objects from the start and no new ones.",
    ),
    Whole::new("server.count", Field::Count(|w| &mut w.servers.count), "Visible servers without any robots.")
        .between(1.0, 1e6),
    Whole::new(
        "server.per_robot",
        Field::Number(|w| &mut w.servers.per_robot),
        "Visible servers for each robot on top.",
    )
    .between(0.0, 100.0),
    Whole::new(
        "server.think",
        Field::Drawn(Unit::Time, |w| &mut w.servers.think),
        "From a request to its reply; below zero counts as none.",
    ),
    Whole::new(
        "server.connection_uses",
        Field::Drawn(Unit::Count, |w| &mut w.servers.connection_uses),
        "Requests that a connection serves, drawn when it is opened.",
    )
    .between(1.0, f64::MAX),
    Whole::new(
        "server.idle",
        Field::Time(|w| &mut w.servers.idle),
        "A connection without a request for so long is closed.",
    )
    .between(0.001, 86_400.0),
    Whole::new(
        "server.abort",
        Field::Share(|w| &mut w.servers.abort),
        "Share of the replies that the server breaks off at a random place.",
    ),
    Whole::new("server.names", Field::Flag(|w| &mut w.servers.names), "URLs have host names, not addresses."),
    Whole::new(
        "server.chunked",
        Field::Flag(|w| &mut w.servers.chunked),
        "Replies have no `Content-Length`: they are chunked.",
    ),
    Whole::new(
        "server.ranges",
        Field::Word {
            form: "quiet, stated, ignored or refused",
            read: |w| w.servers.ranges.as_str().to_owned(),
            write: |w, text| {
                let found = RangeManner::ALL.into_iter().find(|each| each.as_str() == text);
                w.servers.ranges = found.unwrap_or(w.servers.ranges);
                found.is_some()
            },
        },
        "How a request for a range is answered: by the part; by the part, and each reply says so beforehand (`Accept-Ranges`); by the whole object, or by 403, whatever each reply says.",
    ),
    Whole::new(
        "server.redirect",
        Field::Share(|w| &mut w.servers.redirect),
        "Share of the requests that are redirected to another object first.",
    ),
    Whole::new(
        "fault.truncate",
        Field::Share(|w| &mut w.servers.faults.truncate),
        "Replies whose connection ends before the body does.",
    ),
    Whole::new(
        "fault.stall",
        Field::Share(|w| &mut w.servers.faults.stall),
        "Replies that stop half-way and never go on.",
    ),
    Whole::new("fault.reset", Field::Share(|w| &mut w.servers.faults.reset), "Replies broken off by a reset."),
    Whole::new(
        "fault.wrong_length",
        Field::Share(|w| &mut w.servers.faults.wrong_length),
        "Replies whose `Content-Length` is not the length of what comes.",
    ),
    Whole::new("fault.errors", Field::Share(|w| &mut w.servers.faults.errors), "Replies that are 503."),
    Whole::new(
        "fault.burst",
        Field::Time(|w| &mut w.servers.faults.burst),
        "Faults come in bursts of this length, with the same share over time; 0 spreads them.",
    ),
    Whole::new(
        "client_link.delay",
        Field::Time(|w| &mut w.client_link.delay),
        "Delay each way between robots and cache.",
    )
    .between(0.0, 60.0),
    Whole::new("client_link.jitter", Field::Time(|w| &mut w.client_link.jitter), "Largest addition to the delay.")
        .between(0.0, 60.0),
    Whole::new(
        "client_link.bandwidth",
        Field::Amount(Unit::Rate, |w| &mut w.client_link.bits_per_s),
        "Bandwidth of each connection; 0 is no limit.",
    ),
    Whole::new("client_link.loss", Field::Share(|w| &mut w.client_link.loss), "Share of the packets that are lost."),
    Whole::new(
        "server_link.delay",
        Field::Time(|w| &mut w.server_link.delay),
        "Delay each way between cache and origins.",
    )
    .between(0.0, 60.0),
    Whole::new("server_link.jitter", Field::Time(|w| &mut w.server_link.jitter), "Largest addition to the delay.")
        .between(0.0, 60.0),
    Whole::new(
        "server_link.bandwidth",
        Field::Amount(Unit::Rate, |w| &mut w.server_link.bits_per_s),
        "Bandwidth of each connection; 0 is no limit.",
    ),
    Whole::new("server_link.loss", Field::Share(|w| &mut w.server_link.loss), "Share of the packets that are lost."),
    Whole::new(
        "rules.errors_max",
        Field::Share(|w| &mut w.rules.errors_max),
        "Largest share of errors with which the result counts.",
    ),
    Whole::new(
        "rules.dhr_min",
        Field::ShareIfAny(|w| &mut w.rules.dhr_min),
        "Lowest document hit ratio with which the result counts.",
    ),
    Whole::new(
        "rules.report_phase",
        Field::Text(|w| &mut w.rules.report_phase),
        "The phase whose figures are the result; the busiest logged one if not given.",
    ),
    Whole::new(
        "replay.form",
        Field::Word {
            form: "squid, combined, json, oracle, columns or auto",
            read: |w| w.replay.as_ref().map_or_else(|| "none".to_owned(), |replay| replay.form.clone()),
            write: |w, text| {
                w.replay.get_or_insert(NO_REPLAY).form = text.to_owned();
                ["squid", "combined", "json", "oracle", "columns", "auto"].contains(&text)
            },
        },
        "Robots replay a log of this form instead of drawing objects.",
    ),
    Whole::new(
        "replay.speed",
        Field::Word {
            form: "number above 0",
            read: |w| w.replay.as_ref().map_or_else(|| "none".to_owned(), |replay| replay.speed.to_string()),
            write: |w, text| {
                let speed = number(text).filter(|speed| *speed > 0.0);
                speed.map(|speed| w.replay.get_or_insert(NO_REPLAY).speed = speed).is_some()
            },
        },
        "How many times faster than it was written.",
    ),
];

const NO_REPLAY: Replay = Replay { form: String::new(), speed: 1.0 };

/// Knobs of a `[[content]]`.
pub(super) static CONTENT: &[Knob<ContentDraft>] = &[
    OfContent::new("name", Field::Text(|c| &mut c.content.name), "Name of the content type.").required(),
    OfContent::new("share", Field::Share(|c| &mut c.content.share), "Share of all requests, as declared. Shares add up to 100 %.").required(),
    OfContent::new("direct", Field::ShareIfAny(|c| &mut c.content.direct), "Share of the requests that are not for embedded objects; `share` if no type has one. Types without one are asked for only as parts of pages."),
    OfContent::new("media", Field::Text(|c| &mut c.content.media), "The `Content-Type`."),
    OfContent::new("size", Field::Drawn(Unit::Size, |c| &mut c.content.size), "Body size, drawn for each object and rounded up.").required().between(1.0, 1e15),
    OfContent::new("size_max", Field::Amount(Unit::Size, |c| &mut c.content.size_bytes_max), "No body is larger.").between(1.0, 1e15),
    OfContent::new("cachable", Field::Share(|c| &mut c.content.cachable), "Share of the objects that a store may keep."),
    OfContent::new("endings", Field::Shares(|c| &mut c.content.endings), "Endings of URLs with their shares."),
    OfContent::new("embeds", Field::DrawnIfAny(Unit::Count, |c| &mut c.embeds), "Objects that a page embeds.").between(0.0, 255.0),
    OfContent::new("embeds_of", Field::Shares(|c| &mut c.embeds_of), "Content types of what is embedded, with shares."),
    OfContent::new("cycle", Field::DrawnIfAny(Unit::Time, |c| &mut c.content.life.cycle), "Length of an object's cycle, at whose end it changes. Without it objects never change in a run: modified a year before, they expire a year after.").between(1.0, f64::MAX),
    OfContent::new("variance", Field::Share(|c| &mut c.content.life.variance), "How far a change strays from its place in the cycle, as a share of the cycle."),
    OfContent::new("with_modified", Field::Share(|c| &mut c.content.life.with_modified), "Share of the objects with `Last-Modified`."),
    OfContent::new("expires", Field::Word {
        form: "last change, now or next change",
        read: |c| c.content.life.expires.as_str().to_owned(),
        write: |c, text| {
            let found = Expires::ALL.into_iter().find(|each| each.as_str() == text);
            c.content.life.expires = found.unwrap_or(c.content.life.expires);
            found.is_some()
        },
    }, "From what `Expires` counts."),
    OfContent::new("expires_after", Field::Drawn(Unit::Time, |c| &mut c.content.life.expires_after), "Time from there to the date in `Expires`."),
    OfContent::new("checksum", Field::Share(|c| &mut c.content.checksum), "Share of the replies that carried a digest in Web Polygraph. It is not sent: every byte of every body is verified."),
    OfContent::new("variants", Field::Word {
        form: "whole number from 1 to 16",
        read: |c| c.content.variants.to_string(),
        write: |c, text| {
            let variants = text.parse().ok().filter(|variants| (1..=16).contains(variants));
            variants.map(|variants| c.content.variants = variants).is_some()
        },
    }, "Variants of an object; with more than one, replies say `Vary: Accept-Encoding`."),
    OfContent::new("refused", Field::Word {
        form: "HTTP status from 400 to 599, or 0 for objects that the cache gives",
        read: |c| c.content.refused.status.to_string(),
        write: |c, text| {
            let status = text.parse().ok().filter(|status| *status == 0 || (400..600).contains(status));
            status.map(|status| c.content.refused.status = status).is_some()
        },
    }, "The status with which the cache itself must refuse objects of this type, which its rules know by the endings of their URLs. Any other status is the error `wrong-status`. Such a type is `cachable = \"0%\"`: no hit is offered on what some may not have."),
    OfContent::new("refused_robots", Field::Share(|c| &mut c.content.refused.robots), "Share of the robots to whom they are refused: of each hundred numbers the first so many. The others must get them."),
    OfContent::new("etag", Field::Flag(|c| &mut c.content.etag), "Replies carry a strong `ETag`."),
    OfContent::new("personal", Field::Flag(|c| &mut c.content.personal), "Each client that shows a cookie gets a body of its own: with `Vary: Cookie`, or with `Set-Cookie` where `cache_control` says `private`. No hit is offered on it."),
    OfContent::new("cache_control", Field::Text(|c| &mut c.content.cache_control), "`Cache-Control` of what a store may keep."),
];

/// Knobs of a `[[phase]]`.
pub(super) static PHASE: &[Knob<PhaseDraft>] = &[
    OfPhase::new("name", Field::Text(|p| &mut p.phase.name), "Name of the phase.").required(),
    OfPhase::new(
        "length",
        Field::TimeIfAny(|p| &mut p.phase.length),
        "Goal: time. The first goal that is reached ends the phase.",
    )
    .between(0.001, 1e9),
    OfPhase::new("replies", Field::CountIfAny(|p| &mut p.phase.replies), "Goal: replies.").between(1.0, 1e15),
    OfPhase::new("fill", Field::SizeIfAny(|p| &mut p.phase.fill_bytes), "Goal: bytes of cachable misses.")
        .between(1.0, 1e18),
    OfPhase::new(
        "fill_caches",
        Field::NumberIfAny(|p| &mut p.phase.fill_caches),
        "Goal: cachable misses of so many times the size of the cache (`--cache-bytes`).",
    )
    .between(0.001, 1_000.0),
    OfPhase::new(
        "until_frozen",
        Field::Flag(|p| &mut p.phase.until_frozen),
        "Goal on top of the others: the working set is frozen.",
    ),
    OfPhase::new(
        "errors",
        Field::NumberIfAny(|p| &mut p.phase.errors),
        "Ends the whole run, as failed: so many errors, or, below 1, such a share of the replies once there are 1,000.",
    ),
    OfPhase::new(
        "thermostat",
        Field::Word {
            form: "LOW to HIGH by SHARE, such as 0.5s to 1s by 5%",
            read: |p| p.phase.thermostat.map_or_else(|| "none".to_owned(), |found| show_thermostat(&found)),
            write: |p, text| thermostat(text).map(|found| p.phase.thermostat = Some(found)).is_some(),
        },
        "Each second the load rises by SHARE of itself if the mean response time is below LOW, and falls by as much if it is above HIGH: the rate that a cache sustains within bounds. It rises to four times the load at most, and needs `poisson(RATE)`.",
    ),
    OfPhase::new("logged", Field::Flag(|p| &mut p.phase.logged), "Whether its figures are reported."),
    OfPhase::new("dark", Field::Flag(|p| &mut p.phase.dark), "The cache has no power while it lasts, and nobody asks."),
    OfPhase::new("populus", factor!(populus), "Share of the robots that are alive; `one` is a single robot."),
    OfPhase::new("load", factor!(load), "Multiplier of the rate."),
    OfPhase::new("recurrence", factor!(recurrence), "Multiplier of the recurrence."),
    OfPhase::new("special", factor!(special), "Multiplier of the shares of requests that are not basic."),
    OfPhase::new("hot", factor!(hot), "Multiplier of `interest.hot_probability`."),
];

fn thermostat(text: &str) -> Option<Thermostat> {
    let (bounds, step) = text.split_once(" by ")?;
    let (low, high) = bounds.split_once(" to ")?;
    let found = Thermostat { low_s: Unit::Time.parse(low)?, high_s: Unit::Time.parse(high)?, step: number(step)? };
    (found.low_s >= 0.0 && found.high_s > found.low_s && (0.001..=0.5).contains(&found.step)).then_some(found)
}

fn show_thermostat(found: &Thermostat) -> String {
    let [low, high] = [found.low_s, found.high_s].map(|seconds| Unit::Time.show(seconds));
    format!("{low} to {high} by {}", show_share(found.step))
}

fn pace(text: &str) -> Option<Pace> {
    let call = Call::parse(text)?;
    let rate = |text: &str| number(text).filter(|rate| *rate > 0.0 && *rate <= 1e6);
    match (call.name, &call.arguments[..]) {
        ("poisson", [argument]) => Some(Pace::Poisson { rate_per_s: rate(argument)? }),
        ("constant", [argument]) => Some(Pace::Constant { rate_per_s: rate(argument)? }),
        ("closed", [argument]) => Some(Pace::Closed { pause: distribution(argument, Unit::Time).ok()? }),
        ("best-effort", []) => Some(Pace::BEST_EFFORT),
        _ => None,
    }
}

fn show_pace(pace: &Pace) -> String {
    match *pace {
        Pace::Poisson { rate_per_s } => format!("poisson({rate_per_s})"),
        Pace::Constant { rate_per_s } => format!("constant({rate_per_s})"),
        Pace::Closed { .. } if *pace == Pace::BEST_EFFORT => "best-effort".to_owned(),
        Pace::Closed { pause } => format!("closed({})", show_distribution(&pause, Unit::Time)),
    }
}

fn popularity(text: &str) -> Option<Popularity> {
    let call = Call::parse(text)?;
    let positive = |text: &str| number(text).filter(|value| *value > 0.0 && *value <= 100.0);
    match (call.name, &call.arguments[..]) {
        ("uniform", []) => Some(Popularity::Uniform),
        ("sequence", []) => Some(Popularity::Sequence),
        ("tree", [fan]) => Some(Popularity::Tree { fan: fan.parse().ok().filter(|fan| (1..=10_000).contains(fan))? }),
        ("recent", [skew]) => Some(Popularity::Recent { skew: positive(skew)? }),
        ("zipf", [alpha]) => Some(Popularity::Zipf { alpha: positive(alpha)?, churn_per_hour: 0.0 }),
        ("zipf", [alpha, churn]) => {
            let churn_per_hour = number(churn).filter(|churn| (0.0..=1.0).contains(churn))?;
            Some(Popularity::Zipf { alpha: positive(alpha)?, churn_per_hour })
        }
        ("live", [segment, window]) => {
            let segment_s = Unit::Time.parse(segment).filter(|segment| (0.1..=60.0).contains(segment))?;
            Some(Popularity::Live { segment_s, window: window.parse().ok().filter(|window| *window > 0)? })
        }
        _ => None,
    }
}

fn show_popularity(popularity: &Popularity) -> String {
    match *popularity {
        Popularity::Uniform => "uniform".to_owned(),
        Popularity::Sequence => "sequence".to_owned(),
        Popularity::Tree { fan } => format!("tree({fan})"),
        Popularity::Recent { skew } => format!("recent({skew})"),
        Popularity::Zipf { alpha, churn_per_hour } => format!("zipf({alpha}, {churn_per_hour})"),
        Popularity::Live { segment_s, window } => format!("live({}, {window})", Unit::Time.show(segment_s)),
    }
}

fn working_set(text: &str) -> Option<WorkingSet> {
    let call = Call::parse(text)?;
    let count = |text: &str| number(text).filter(|count| *count >= 1.0 && *count <= 1e15);
    match (call.name, &call.arguments[..]) {
        ("unlimited", []) => Some(WorkingSet::Unlimited),
        ("freeze", [time]) => {
            let seconds = Unit::Time.parse(time).filter(|seconds| (0.001..1e9).contains(seconds))?;
            Some(WorkingSet::FreezeAt(Duration::from_secs_f64(seconds)))
        }
        ("cap_per_rate", [each]) => Some(WorkingSet::CapPerRate(count(each)?)),
        ("cap", [each]) => Some(WorkingSet::Cap(count(each)? as u64)),
        ("fixed", [each]) => Some(WorkingSet::Fixed(count(each)? as u64)),
        _ => None,
    }
}

fn show_working_set(set: &WorkingSet) -> String {
    match *set {
        WorkingSet::Unlimited => "unlimited".to_owned(),
        WorkingSet::FreezeAt(time) => format!("freeze({})", Unit::Time.show(time.as_secs_f64())),
        WorkingSet::CapPerRate(count) => format!("cap_per_rate({count})"),
        WorkingSet::Cap(count) => format!("cap({count})"),
        WorkingSet::Fixed(count) => format!("fixed({count})"),
    }
}
