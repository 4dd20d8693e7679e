//! Every setting once: its name, what it takes, its limits, its default and a sentence.
//!
//! The parser, the command-line flags, `larder config` and `docs/settings.md` all come from these tables, so
//! that no setting exists without its documentation. The default is what [`Config::default`] has.

mod cluster;
mod compression;
mod mirror;
mod origin;
mod site;
mod store_rule;

pub use super::bandwidth::BANDWIDTH;
use super::forward::{ParentsBy, is_file_of_hooks};
pub use super::helper::HELPER;
pub use super::icap::ICAP;
pub use super::list::LIST;
pub use super::listen::LISTEN;
pub use super::login::LOGIN;
pub use super::parent::{PARENT, SIBLING};
pub use super::python::PYTHON;
use super::setting::{Field, Setting, word};
pub use super::site_route::SITE_ROUTE;
use super::{
    AcmeChallenge, Apart, CacheMode, CertificateFiles, Config, DiskAdmission, HostPattern, Log, LogFormat, LogTo,
    OriginHttp2, PRESETS, ResolverKind, set_cookie_word, units, url,
};
use super::{is_reachable, is_subject_word};
use larder_cache::policy::SetCookie;
use larder_rules::network;
pub use mirror::MIRROR;
pub use origin::{ORIGIN, ORIGIN_CHECK, ORIGIN_EJECT, ORIGIN_HEDGE, ORIGIN_MEMBER, ORIGIN_RETRY};
pub use site::SITE;
use std::path::PathBuf;
pub use store_rule::STORE_RULE;

type Whole = Setting<Config>;
type OfTls = Setting<CertificateFiles>;

const KB: u64 = 1 << 10;
const MB: u64 = 1 << 20;
const PB: u64 = 1 << 50;
const SECOND: u64 = 1_000;
const DAY: u64 = 86_400_000;

/// The word for the ports of CONNECT that nobody said.
const BY_LISTENER: &str = "by-listener";

/// Settings of the whole server; a name with a dot stands in the TOML table before the dot.
pub static SETTINGS: &[Setting<Config>] = &[
    Whole::new("memory", Field::Size(|c| &mut c.memory_bytes))
        .between(100 * KB, PB)
        .at_restart()
    .about("Budget of the memory store, its bookkeeping included."),
    Whole::new("disk", Field::SizeIfAny(|c| &mut c.disk_bytes))
        .between(0, PB)
        .default_words("`20GB`, at most half of what is free or held by the store; none below 16 MB")
        .at_restart()
        .about("Budget of the disk store, all folders together; `0` keeps everything in memory."),
    Whole::new("disk_folders", Field::Texts {
        form: "folders",
        read: |c| c.disk.folders.iter().map(|folder| folder.display().to_string()).collect(),
        clear: |c| c.disk.folders.clear(),
        push: |c, text| {
            c.disk.folders.push(text.into());
            !text.is_empty()
        },
    })
    .default_words("`disk` below `store`")
    .at_restart()
    .about("Folders of the disk store, best each on a disk of its own: an object lies on one of them, `disk` is divided evenly, and one that fails is left out."),
    Whole::new("disk_free_min", Field::Size(|c| &mut c.disk.free_bytes_min))
        .between(0, PB)
        .default_words("`1GB`, at most a quarter of what is free or held by the store")
        .at_restart()
        .about("The space that stays free on the file system of the disk store: its files stop growing there."),
    Whole::new("disk_sync", Field::Time(|c| &mut c.disk.sync))
        .between(SECOND, 3_600 * SECOND)
        .at_restart()
        .about("How much of what was stored last a power cut may lose. (A kill of the process loses only what was not yet handed to the system.)"),
    Whole::new("disk_admission", Field::Text {
        form: "all, seen-twice or auto",
        read: |c| c.disk.admission.as_str().to_owned(),
        write: |c, text| {
            let found = DiskAdmission::ALL.into_iter().find(|each| each.as_str() == text);
            c.disk.admission = found.unwrap_or(c.disk.admission);
            found.is_some()
        },
    })
    .at_restart()
    .about("Which objects go to disk: `all`, those asked for a second time of late (`seen-twice`), or `auto`: all while there is free room, then those seen twice. A `larder run` keeps all."),
    Whole::new("store", Field::PathIfAny(|c| &mut c.store))
        .default_words("`larder` in the user's cache folder")
        .at_restart()
        .about("Folder for the control socket, the local CA (in `ca/`) and what the disk store keeps. Without it the CA lies in the user's data folder."),
    Whole::new("memory_object_bytes_max", Field::Size(|c| &mut c.memory_object_bytes_max))
        .between(0, PB)
        .default_words("a quarter of `memory`")
        .at_restart()
        .about("Largest object that is kept in memory; longer ones are read from disk block by block."),
    Whole::new("object_bytes_max", Field::Size(|c| &mut c.object_bytes_max))
        .between(0, PB)
        .default_words("a quarter of `disk`; without a disk all that memory takes")
        .at_restart()
        .about("Largest object that is kept at all."),
    Whole::new("workers", Field::Count(|c| &mut c.workers))
        .between(1, 1_024)
        .default_words("one per core")
        .at_restart()
    .about("Worker threads."),
    Whole::new("sandbox", Field::Flag(|c| &mut c.sandbox))
        .at_restart()
        .about("Whether the process gives up files, ports, programs and system calls that its settings do not name, as far as the kernel can (docs/sandbox.md)."),
    Whole::new("admin", Field::Text {
        form: "ADDR:PORT or none",
        read: |c| c.admin.map_or("none".to_owned(), |address| address.to_string()),
        write: |c, text| {
            c.admin = if text == "none" { None } else { text.parse().ok() };
            text == "none" || c.admin.is_some()
        },
    })
    .at_restart()
    .about("Where the page, the metrics and the API are served."),
    Whole::new("admin_token", Field::Secret(|c| &mut c.admin_token))
        .about("The token that clients of `admin` must send (`Authorization: Bearer …`, or as the password of a browser's question); required unless `admin` and all listeners are of this machine alone; where `admin` is its default the page then answers nobody but probes. Write `${ENV:NAME}` or `${FILE:PATH}`."),
    Whole::new("include", Field::Texts {
        form: "file patterns",
        read: |c| c.include.clone(),
        clear: |c| c.include.clear(),
        push: |c, text| {
            c.include.push(text.to_owned());
            !text.is_empty()
        },
    })
    .about("Further files, in the order of their names, from the folder of this file: `conf.d/*.toml`. Listeners and sites add up; a setting that two files say is a mistake."),
    Whole::new("presets", Field::Texts {
        form: "names of presets, or all",
        read: |c| c.presets.clone(),
        clear: |c| c.presets.clear(),
        push: |c, text| {
            let found = PRESETS.iter().map(|(name, _)| *name).filter(|name| text == "all" || text == *name);
            let before = c.presets.len();
            c.presets.extend(found.map(str::to_owned));
            c.presets.len() > before
        },
    })
    .about("Presets of store rules for what comes through the forward proxy: `python`, `npm`, `oci`, …, or `all` ([presets.md](presets.md)). A `larder run` has all of them; sites have none."),
    Whole::new("limits.head_bytes_max", Field::Buffer(|c| &mut c.limits.head_bytes_max))
        .between(KB, 16 * MB)
        .at_restart()
    .about("Start line and fields of a message, also trailers. More is answered 431; from an origin it is a 502."),
    Whole::new("limits.target_bytes_max", Field::Buffer(|c| &mut c.limits.target_bytes_max))
        .between(256, 16 * MB)
        .at_restart()
    .about("Length of a request line, of which nearly all is the target. More is answered 414."),
    Whole::new("limits.fields_max", Field::Count(|c| &mut c.limits.fields_max))
        .between(1, 10_000)
        .at_restart()
    .about("Fields in a head. More is answered 431; from an origin it is a 502."),
    Whole::new("limits.body_bytes_max", Field::SizeOrNone(|c| &mut c.limits.body_bytes_max))
        .between(0, PB)
        .about("Length of a request body. More is answered 413."),
    Whole::new("limits.connections_max", Field::Count(|c| &mut c.limits.connections_max))
        .between(1, 10_000_000)
        .about("Open client connections. Further ones are answered 503 and closed."),
    Whole::new("limits.connections_per_client_max", Field::CountOrNone(|c| &mut c.limits.connections_per_client_max))
        .between(1, 10_000_000)
        .at_restart()
    .about("Open connections of one client: an IPv4 address, or an IPv6 network of 64 bits. Further ones are answered 503 and closed. `none` where all clients come through one proxy."),
    Whole::new("limits.heads_bytes_max", Field::Buffer(|c| &mut c.limits.heads_bytes_max))
        .between(64 * KB, PB)
        .at_restart()
    .about("Bytes that the partial heads of requests hold together, taken out of `memory`. From half of it on only heads of up to 8 KiB may still come in pieces, from three quarters on of 4 KiB, then none: 503. A head that comes in one piece holds nothing."),
    Whole::new("limits.unsent_bytes_max", Field::Text {
        form: "size",
        read: |c| units::show_size(c.limits.unsent_bytes_max.into()),
        write: |c, text| {
            let bytes = units::parse_size(text).and_then(|bytes| u32::try_from(bytes).ok());
            c.limits.unsent_bytes_max = bytes.unwrap_or(c.limits.unsent_bytes_max);
            bytes.is_some_and(|bytes| bytes >= 32 * 1024)
        },
    })
    .about("How much of an answer from disk longer than 256 KiB may wait in the kernel for its turn on one connection, beyond what is on its way to the client (`TCP_NOTSENT_LOWAT`): what a client that reads nothing pins. Half of it for an answer from memory or from an origin. At least 32 KiB."),
    Whole::new("limits.waiting_per_origin_max", Field::Count(|c| &mut c.limits.waiting_per_origin_max))
        .between(0, 10_000_000)
        .at_restart()
    .about("Requests that wait until one of those under way at their origin ends. Further ones are answered 503."),
    Whole::new("limits.origin_share_percent", Field::Percent(|c| &mut c.limits.origin_share_percent))
        .between(1, 100)
        .at_restart()
    .about("The part of the requests under way at an origin (`upstream.connections_per_origin_max`) and of its waiting places (`waiting_per_origin_max`) that one client may have: an IPv4 address, or an IPv6 network of 64 bits. Its further requests wait, then are answered 503. `100` where all requests come from one proxy."),
    Whole::new("limits.upload_bytes_per_second_min", Field::Size(|c| &mut c.limits.upload_bytes_per_second_min))
        .between(0, PB)
        .about("How fast a request body must come: each so many bytes earn a second of silence beyond `timeouts.upload_silence`; then 408. Only waits for the client count. `0` is no minimum."),
    Whole::new("limits.download_bytes_per_second_min", Field::Size(|c| &mut c.limits.download_bytes_per_second_min))
        .between(0, PB)
        .about("How fast an answer must be taken: each so many bytes that a slow client takes make up for a second in which it took nothing; more than `timeouts.download_stall` of these must not come together, then the connection is closed. Only waits for the client count, so events and long polls may be as slow as they like. `0` is no minimum."),
    Whole::new("limits.codings_max", Field::Count(|c| &mut c.limits.codings_max))
        .between(0, 10_000)
        .about("Bodies that `site.compression` codes at once; further ones are stored and sent as they are. Each takes up to 3.5 MB of memory at the levels that are taken if none is said, up to 12 MB at the highest."),
    Whole::new("timeouts.head", Field::Time(|c| &mut c.timeouts.head))
        .between(100, DAY)
        .about("From a request's first byte (on a new connection from its opening, TLS included) to the end of its head; then 408."),
    Whole::new("timeouts.idle", Field::Time(|c| &mut c.timeouts.idle))
        .between(0, DAY)
        .about("Between two requests of a client connection; then it is closed."),
    Whole::new("timeouts.body", Field::Time(|c| &mut c.timeouts.body))
        .between(100, DAY)
        .about("Without a further byte of a request body; then 408."),
    Whole::new("timeouts.upload_silence", Field::Time(|c| &mut c.timeouts.upload_silence))
        .between(100, DAY)
        .about("The silence of a client during a whole request body, its pauses taken together, beyond what `limits.upload_bytes_per_second_min` grants; then 408."),
    Whole::new("timeouts.write", Field::Time(|c| &mut c.timeouts.write))
        .between(100, DAY)
        .about("Without progress in writing to a client; then the connection is closed."),
    Whole::new("timeouts.download_stall", Field::Time(|c| &mut c.timeouts.download_stall))
        .between(100, DAY)
        .about("The time that a client may take nothing of a whole answer, its pauses taken together, less what it makes up for by `limits.download_bytes_per_second_min`; then the connection is closed."),
    Whole::new("timeouts.half_closed", Field::Time(|c| &mut c.timeouts.half_closed))
        .between(0, DAY)
        .about("For how long a client that has ended its direction of the connection is still taken to wait for an answer that has to be fetched: programs that leave look the same. A client that reset the connection is not waited for at all. Both are looked for once a second."),
    Whole::new("timeouts.connect", Field::Time(|c| &mut c.timeouts.connect))
        .between(10, DAY)
        .at_restart()
    .about("To resolve an origin's name, connect to it and finish the TLS handshake; then 504."),
    Whole::new("timeouts.before_stale", Field::Time(|c| &mut c.timeouts.before_stale))
        .between(0, DAY)
    .about("For an origin that is out of reach, and within `stale-if-error` for any origin, where a stale stored response may stand in for its answer; then that one is sent, and the fetch goes on behind it."),
    Whole::new("timeouts.first_byte", Field::Time(|c| &mut c.timeouts.first_byte))
        .between(10, DAY)
        .at_restart()
    .about("From the end of a request to the head of the origin's answer; then 504."),
    Whole::new("timeouts.origin_idle", Field::Time(|c| &mut c.timeouts.origin_idle))
        .between(10, DAY)
        .at_restart()
    .about("Without a further byte of an origin's body, or without progress in writing to an origin; then the answer is broken off."),
    Whole::new("timeouts.request", Field::TimeOrNone(|c| &mut c.timeouts.request))
        .between(SECOND, 365 * DAY)
        .about("For a request as a whole, from its first byte to the last one of the answer; then 504, or 408 while the client still sends, and an answer that was begun is cut."),
    Whole::new("timeouts.tunnel_idle", Field::Time(|c| &mut c.timeouts.tunnel_idle))
        .between(SECOND, 30 * DAY)
        .about("Without a byte in either direction of a tunnel (CONNECT, WebSocket); then it is closed."),
    Whole::new("timeouts.drain", Field::Time(|c| &mut c.timeouts.drain))
        .between(0, DAY)
        .about("After SIGTERM, for the requests under way to end; then 503, and an answer that was begun is cut."),
    Whole::new("access.clients", Field::Texts {
        form: "networks",
        read: |c| c.access.clients.iter().map(ToString::to_string).collect(),
        clear: |c| c.access.clients.clear(),
        push: |c, text| network(text).map(|net| c.access.clients.push(net)).is_some(),
    })
    .about("Client addresses that may use the forward proxy; others are answered 403. Sites are open to everybody. `unix` (`::/128`) stands for clients at Unix sockets ([unix-sockets.md](unix-sockets.md))."),
    Whole::new("access.connect_ports", Field::Texts {
        form: "ports",
        read: |c| match &c.access.connect_ports {
            None => vec![BY_LISTENER.to_owned()],
            Some(ports) => ports.iter().map(ToString::to_string).collect(),
        },
        clear: |c| c.access.connect_ports = Some(Vec::new()),
        push: |c, text| {
            if text == BY_LISTENER {
                c.access.connect_ports = None;
                return true;
            }
            text.parse().map(|port| c.access.connect_ports.get_or_insert_default().push(port)).is_ok()
        },
    })
    .default_words("`443`, and any at a listener of `127.0.0.1`")
    .about("Ports that CONNECT may reach; an empty list means any. A `larder run` may reach any unless this is set."),
    Whole::new("access.country_file", Field::PathIfAny(|c| &mut c.access.country_file))
        .default_words("none")
        .about("The file by which `country` and `destination_country` of rules know the countries of addresses: an MMDB of countries or cities, as MaxMind (GeoLite2), DB-IP and IP2Location publish them. It is read at the start and at a reload, and again within seconds when it has changed ([rules.md](rules.md#countries))."),
    Whole::new("access.destinations", Field::Texts {
        form: "networks",
        read: |c| c.access.destinations.iter().map(ToString::to_string).collect(),
        clear: |c| c.access.destinations.clear(),
        push: |c, text| network(text).map(|net| c.access.destinations.push(net)).is_some(),
    })
    .about("Networks that clients of other machines may reach through the forward proxy although they are closed: loopback, link-local (where clouds have their metadata), multicast, reserved. Addresses are judged as they are connected to, whatever name led there. Clients of a listener of `127.0.0.1` and origins of sites need no such permission; Larder's own listeners and `admin` are out of reach for all."),
    Whole::new("access.external", Field::Texts {
        form: "names",
        read: |c| c.access.external.clone(),
        clear: |c| c.access.external.clear(),
        push: |c, text| {
            c.access.external.push(text.to_owned());
            !text.is_empty()
        },
    })
    .about("Helpers of `external_acl`, all of which have to permit a request through the forward proxy ([helpers.md](helpers.md))."),
    Whole::new("access.login", Field::Text {
            form: "name",
            read: |c| c.access.login.clone(),
            write: |c, text| {
                text.clone_into(&mut c.access.login);
                true
            },
        })
    .default_words("none")
    .about("The `[[login]]` that clients of the forward proxy and of a mirror need ([people.md](people.md)); they are answered 407 without it. A `larder run` needs none."),
    Whole::new("access.purge", Field::Texts {
        form: "networks",
        read: |c| c.access.purge.iter().map(ToString::to_string).collect(),
        clear: |c| c.access.purge.clear(),
        push: |c, text| network(text).map(|net| c.access.purge.push(net)).is_some(),
    })
    .about("Client addresses that may use the method PURGE, on the URL of the request or, with `Surrogate-Key`, on tags; others are answered 403. An empty list leaves PURGE to the origins."),
    Whole::new("acme.directory", Field::Text {
        form: "letsencrypt, letsencrypt-staging or a URL with https",
        read: |c| c.acme.directory_text(),
        write: |c, text| c.acme.take_directory(text),
    })
    .about("The authority that issues the certificates of sites with `certificate = \"acme\"` ([acme.md](acme.md)): the URL of its directory (RFC 8555), or a known name. `upstream.extra_roots` are trusted beside the system's."),
    Whole::new("acme.contact", Field::Texts {
        form: "addresses of mail",
        read: |c| c.acme.contact.clone(),
        clear: |c| c.acme.contact.clear(),
        push: |c, text| {
            c.acme.contact.push(text.to_owned());
            is_mail(text)
        },
    })
    .about("Where the authority may write about the account."),
    Whole::new("acme.terms_agreed", Field::Flag(|c| &mut c.acme.terms_agreed))
        .about("Whether the operator agrees to the terms of service of the authority. Without it nothing is asked of the authority, and `certificate = \"acme\"` is refused."),
    Whole::new("acme.challenge", Field::Text {
        form: "auto, http-01 or tls-alpn-01",
        read: |c| c.acme.challenge.as_str().to_owned(),
        write: |c, text| {
            let choice = word(&AcmeChallenge::ALL, AcmeChallenge::as_str, text);
            choice.map(|choice| c.acme.challenge = choice).is_some()
        },
    })
    .about("How the authority is shown that a name leads here: by a file at port 80 (`http-01`), or in the handshake at port 443 (`tls-alpn-01`, RFC 8737). `auto` begins with the first that the listeners permit, and takes the other one after a failure."),
    Whole::new("neighbours.icp", Field::Text {
        form: "ADDR:PORT or none",
        read: |c| c.neighbours.icp.map_or("none".to_owned(), |address| address.to_string()),
        write: |c, text| {
            c.neighbours.icp = text.parse().ok();
            text == "none" || c.neighbours.icp.is_some()
        },
    })
    .at_restart()
    .about("Where neighbouring caches may ask by ICP (RFC 2186; UDP, mostly port 3130) what is stored here: docs/neighbours.md."),
    Whole::new("neighbours.htcp", Field::Text {
        form: "ADDR:PORT or none",
        read: |c| c.neighbours.htcp.map_or("none".to_owned(), |address| address.to_string()),
        write: |c, text| {
            c.neighbours.htcp = text.parse().ok();
            text == "none" || c.neighbours.htcp.is_some()
        },
    })
    .at_restart()
    .about("As `neighbours.icp`, by HTCP (RFC 2756; UDP, mostly port 4827), which knows fields of requests and may purge (for addresses of `access.purge`)."),
    Whole::new("neighbours.from", Field::Texts {
        form: "networks",
        read: |c| c.neighbours.from.iter().map(ToString::to_string).collect(),
        clear: |c| c.neighbours.from.clear(),
        push: |c, text| network(text).map(|net| c.neighbours.from.push(net)).is_some(),
    })
    .about("The neighbours. Datagrams from elsewhere get no answer. A hit is an offer: the request that follows it is judged as any other, so the neighbours have to be among `access.clients` too."),
    Whole::new("neighbours.wait_max", Field::Time(|c| &mut c.neighbours.wait_max))
        .between(1, 10 * SECOND)
        .about("A miss waits no longer for the answers of `[[sibling]]`s and `[[parent]]`s that are asked by ICP or HTCP. Mostly it waits twice as long as they have taken so far."),
    Whole::new("overload.origin_delay", Field::Time(|c| &mut c.overload.origin_delay))
        .between(10, DAY)
        .at_restart()
        .about("How long the oldest request may wait for its turn at an origin. Once requests have waited for longer throughout a time of this length, the origin is behind: requests of low priority (`rule.do.priority`) are answered 503, and others wait for no longer than this. It is so until the oldest one waits for half of it ([overload.md](overload.md))."),
    Whole::new("overload.worker_delay", Field::Time(|c| &mut c.overload.worker_delay))
        .between(10, DAY)
        .about("How late a worker may come to its work. Once it has been later throughout a second, requests of low priority that need their origin are answered 503 by this worker, until it is half as late."),
    Whole::new("overload.pass_by_disk", Field::Flag(|c| &mut c.overload.pass_by_disk))
        .at_restart()
        .about("Whether answers pass by a disk that is slower than they come: clients get them at the pace of the origin, and some are in memory only. With `false` they wait for the disk, so that all are stored; a `larder run` with a server of its own does so."),
    Whole::new("cluster.nats", Field::Texts {
        form: "nats://HOST:PORT or tls://HOST:PORT",
        read: |c| c.cluster.nats.clone(),
        clear: |c| c.cluster.nats.clear(),
        push: |c, text| c.cluster.push_server(text),
    })
    .at_restart()
    .about("Servers of NATS (with JetStream) by which this server and others are one cluster: each purge is made on all of them ([cluster.md](cluster.md)). None: no cluster."),
    Whole::new("cluster.name", Field::Text {
        form: "letters, digits, - and _",
        read: |c| c.cluster.name.clone(),
        write: |c, text| {
            c.cluster.name = text.to_owned();
            is_subject_word(text)
        },
    })
    .default_words("the name of the machine")
    .at_restart()
    .about("The name of this node, which no other node may have."),
    Whole::new("cluster.zone", Field::Text {
        form: "letters, digits, - and _",
        read: |c| c.cluster.zone.clone(),
        write: |c, text| {
            c.cluster.zone = text.to_owned();
            is_subject_word(text)
        },
    })
    .default_words("none")
    .at_restart()
    .about("The zone that this node stands in. `larder cluster status` shows it. Each zone has homes of its own for the keys."),
    Whole::new("cluster.address", Field::Text {
        form: "HOST:PORT",
        read: |c| c.cluster.address.clone(),
        write: |c, text| {
            c.cluster.address = text.to_owned();
            is_reachable(text)
        },
    })
    .default_words("the first listener")
    .at_restart()
    .about("Where other nodes reach this one by HTTP. `larder cluster status` shows it."),
    cluster::LISTEN,
    cluster::ADVERTISE,
    cluster::SECRET_FILE,
    cluster::HOME_WAIT,
    Whole::new("cluster.apart", Field::Text {
        form: "validate, serve or refuse",
        read: |c| c.cluster.apart.as_str().to_owned(),
        write: |c, text| {
            let found = Apart::ALL.into_iter().find(|each| each.as_str() == text);
            c.cluster.apart = found.unwrap_or(c.cluster.apart);
            found.is_some()
        },
    })
    .about("The use of stored responses while this node may not have heard of purges that others made: ask the origin before each use (`validate`), use them as ever (`serve`: a purge may be passed over; not with `cluster.listen`), or answer 503 (`refuse`)."),
    Whole::new("cluster.subjects", Field::Text {
        form: "letters, digits, - and _",
        read: |c| c.cluster.subjects.clone(),
        write: |c, text| {
            c.cluster.subjects = text.to_owned();
            is_subject_word(text)
        },
    })
    .at_restart()
    .about("The first word of all subjects, and of the name of the stream. Clusters that share servers of NATS have words of their own."),
    Whole::new("cluster.purges_max", Field::Count(|c| &mut c.cluster.purges_max))
        .between(1_000, 10_000_000)
        .at_restart()
        .about("Purges that the stream holds, each scope once; further ones are refused until `larder purge --all`. It counts for the node that makes the stream."),
    Whole::new("cluster.credentials", Field::PathIfAny(|c| &mut c.cluster.credentials))
        .default_words("none")
        .at_restart()
        .about("A file of credentials for NATS (`.creds`: a JWT and its seed)."),
    Whole::new("cluster.nkey", Field::PathIfAny(|c| &mut c.cluster.nkey))
        .default_words("none")
        .at_restart()
        .about("A file with the seed of an nkey for NATS."),
    Whole::new("cluster.ca", Field::PathIfAny(|c| &mut c.cluster.ca))
        .default_words("none")
        .at_restart()
        .about("A file of certificates (PEM) that servers of NATS may be certified by, beside those of the system."),
    Whole::new("cluster.certificate", Field::PathIfAny(|c| &mut c.cluster.certificate))
        .default_words("none")
        .at_restart()
        .about("The certificate (PEM) that this node presents to servers of NATS."),
    Whole::new("cluster.key", Field::PathIfAny(|c| &mut c.cluster.key))
        .default_words("none")
        .at_restart()
        .about("The key (PEM) of `cluster.certificate`."),
    Whole::new("log.to", Field::Text {
        form: "stdout, stderr, syslog, none or a file",
        read: |c| c.log.as_ref().map_or("none".to_owned(), |log| log_to(&log.to)),
        write: write_log_to,
    })
    .about("Where the access log goes. A file is appended to, and opened anew on SIGUSR1 or when it was moved away; `syslog` is `/dev/log`, `syslog:/path` another datagram socket."),
    Whole::new("log.format", Field::Text {
        form: "combined, squid, json or a format",
        read: |c| c.log.as_ref().map_or(LogFormat::Combined, |log| log.format.clone()).to_string(),
        write: |c, text| {
            let format = LogFormat::parse(text);
            format.map(|format| c.log.get_or_insert_with(Log::to_stdout).format = format).is_some()
        },
    })
    .about("The format of a line of the access log: a known format, or a text like `{client} {method} {url} {status}` ([docs/logs.md](logs.md) has the fields). Given alone it logs to standard output."),
    Whole::new("log.queue_bytes_max", Field::Text {
        form: "size",
        read: |c| units::show_size(c.log.as_ref().map_or(Log::to_stdout().queue_bytes_max, |log| log.queue_bytes_max) as u64),
        write: |c, text| {
            let bytes = units::parse_size(text).and_then(|bytes| usize::try_from(bytes).ok());
            match (&mut c.log, bytes) {
                (Some(log), Some(bytes)) => log.queue_bytes_max = bytes,
                (None, Some(bytes)) => c.log = Some(Log { queue_bytes_max: bytes, ..Log::to_stdout() }),
                (_, None) => return false,
            }
            true
        },
    })
    .about("Lines that may wait for a slow sink; what comes beyond is dropped and counted, for no request waits for its log."),
    Whole::new("log.hide_query", Field::Flag(|c| &mut c.log_hides_query))
        .about("Whether the values of queries are left out of the access log: `?q=…`, in `{url}` and `{referer}`. `records.hide_query` does it for what is kept."),
    Whole::new("records.requests_max", Field::Count(|c| &mut c.records.requests_max))
        .between(0, 1_000_000)
        .at_restart()
        .about("How many of the last requests are kept to be explained (`larder explain`, the page), in memory, a few hundred bytes each and never more than 9 kB; all together never more than 1500 bytes for each that may be kept: of longer ones fewer are. With a `memory` of less than 80 MB one for each 20 kB of it; `0` keeps none. No field of a request or an answer is kept that may hold a secret."),
    Whole::new("records.hide_query", Field::Flag(|c| &mut c.records.hide_query))
        .at_restart()
        .about("Whether the values of queries are left out of what is kept: `?q=…`. The access log has a setting of its own, `log.hide_query`."),
    Whole::new("records.name_answers", Field::Flag(|c| &mut c.records.name_answers))
        .about("Whether each answer says the name of its request in the field `Larder-Request`, for `larder explain`. Answers of Larder's own making always do."),
    Whole::new("tracing.otlp", Field::Text {
        form: "URL or none",
        read: |c| c.tracing.otlp.as_ref().map_or("none".to_owned(), url::show),
        write: |c, text| {
            c.tracing.otlp = if text == "none" { None } else { url::parse(text) };
            text == "none" || c.tracing.otlp.is_some()
        },
    })
    .at_restart()
    .about("Where spans of traces go: the base URL of an OpenTelemetry collector that takes OTLP over HTTP in JSON, as `http://127.0.0.1:4318`; `/v1/traces` is added ([docs/traces.md](traces.md))."),
    Whole::new("tracing.sample", Field::Share(|c| &mut c.tracing.sample))
    .about("The share of requests of which spans are sent, as `0.01` or `1%`. A request with a `traceparent` is sampled exactly when that says so."),
    Whole::new("tracing.service", Field::Text {
        form: "name",
        read: |c| c.tracing.service.clone(),
        write: |c, text| {
            text.clone_into(&mut c.tracing.service);
            !text.is_empty()
        },
    })
    .at_restart()
    .about("The `service.name` under which the collector files the spans."),
    Whole::new("tracing.queue_spans_max", Field::Count(|c| &mut c.tracing.queue_spans_max))
        .between(1, 1_000_000)
        .at_restart()
    .about("Spans that may wait for a slow collector, about 1 kB each; what comes beyond is dropped and counted, for no request waits for its trace."),
    Whole::new("intercept.pass", Field::Texts {
        form: "host patterns",
        read: |c| c.intercept.pass.iter().map(ToString::to_string).collect(),
        clear: |c| c.intercept.pass.clear(),
        push: |c, text| HostPattern::parse(text).map(|host| c.intercept.pass.push(host)).is_some(),
    })
    .about("Hosts whose tunnels an intercepting listener never opens: `www.example.org`, `*.example.org` (all names below)."),
    Whole::new("forward.direct", Field::Texts {
        form: "host patterns and networks",
        read: |c| c.forward_parents.direct.texts(),
        clear: |c| c.forward_parents.direct.clear(),
        push: |c, text| c.forward_parents.direct.push(text),
    })
    .about("Hosts that are asked without a parent: `*.corp.example`, `10.0.0.0/8`. Networks are for URLs with an address; names are not looked up. `localhost` and loopback addresses are always direct."),
    Whole::new("forward.ftp", Field::Flag(|c| &mut c.forward_ftp))
        .about("Whether clients of the forward proxy may ask for files and folders of FTP servers by `ftp://` URLs ([ftp.md](ftp.md))."),
    Whole::new("forward.hooks", Field::Texts {
        form: "files",
        read: |c| c.forward.hooks.clone(),
        clear: |c| c.forward.hooks.clear(),
        push: |c, text| {
            c.forward.hooks.push(text.to_owned());
            is_file_of_hooks(text)
        },
    })
    .about("Files in Python with hooks for requests of the forward proxy, those inside opened tunnels and of each `larder run` included (docs/python.md). They are imported in this order from the folder of the `[[python]]`."),
    Whole::new("forward.parents", Field::Texts {
        form: "names",
        read: |c| c.forward_parents.names.clone(),
        clear: |c| c.forward_parents.names.clear(),
        push: |c, text| {
            c.forward_parents.names.push(text.to_owned());
            !text.is_empty()
        },
    })
    .about("The `[[parent]]`s through which requests of the forward proxy go, tried in this order; nothing goes past them but to hosts of `forward.direct`, unless the last name is `direct`, for the origin itself. `environment` stands for those of the variables `http_proxy`, `https_proxy` and `all_proxy`, with `no_proxy`, which `larder run` takes where nothing is said here ([neighbours.md](neighbours.md#parents))."),
    Whole::new("forward.parents_by", Field::Text {
        form: "order or carp",
        read: |c| c.forward_parents.by.as_str().to_owned(),
        write: |c, text| {
            let found = ParentsBy::ALL.into_iter().find(|by| by.as_str() == text);
            c.forward_parents.by = found.unwrap_or_default();
            found.is_some()
        },
    })
    .about("How the parent is chosen that is tried first: the first of `forward.parents`, or the one that a URL has by CARP, so that each object is stored at one of them. Squids with the same parents, by the same names and in the same order, choose the same."),
    Whole::new("forward.python", Field::Text {
        form: "name",
        read: |c| c.forward.python.clone(),
        write: |c, text| {
            text.clone_into(&mut c.forward.python);
            true
        },
    })
    .default_words("the only `[[python]]`, or its defaults")
    .about("The `[[python]]` that runs these hooks."),
    Whole::new("forward.store_id", Field::Text {
            form: "name",
            read: |c| c.forward_helpers.store_id.clone(),
            write: |c, text| {
                text.clone_into(&mut c.forward_helpers.store_id);
                true
            },
        })
    .default_words("none")
    .about("The helper of `store_id` that says under which key answers to requests through the forward proxy are stored ([helpers.md](helpers.md))."),
    Whole::new("forward.url_rewrite", Field::Text {
            form: "name",
            read: |c| c.forward_helpers.url_rewrite.clone(),
            write: |c, text| {
                text.clone_into(&mut c.forward_helpers.url_rewrite);
                true
            },
        })
    .default_words("none")
    .about("The helper of `url_rewrite` that says which URL is asked for, or redirected to, in place of the one that a client of the forward proxy asked for ([helpers.md](helpers.md))."),
    Whole::new("upstream.connections_per_origin_max", Field::Count(|c| &mut c.upstream.connections_per_origin_max))
        .between(1, 1_000_000)
        .at_restart()
    .about("Requests under way at one origin, each on a connection of its own, tunnels by `Upgrade` included; further ones wait, up to `limits.waiting_per_origin_max`. Where an idle connection would be one too many, it is closed."),
    Whole::new("upstream.idle_per_origin_max", Field::Count(|c| &mut c.upstream.idle_per_origin_max))
        .between(0, 1_000_000)
        .at_restart()
    .about("Unused connections kept open to one origin; further ones stay for a second, because requests that are under way at once need as many again."),
    Whole::new("upstream.idle_max", Field::Count(|c| &mut c.upstream.idle_max))
        .between(0, 1_000_000)
        .at_restart()
    .about("Unused connections kept open to all origins together; the oldest make room. At most one for each 16 KiB of `memory` where that is more than 64, and a quarter of the file descriptors."),
    Whole::new("upstream.unread_fetches_per_origin_max", Field::Count(|c| &mut c.upstream.unread_fetches_per_origin_max))
        .between(0, 1_000_000)
        .at_restart()
    .about("Fetches from one origin that go on for the store although all their clients have left (at most 16 MB missing, or less than half), or that refresh behind a stale answer. Further ones end."),
    Whole::new("upstream.unread_fetches_max", Field::Count(|c| &mut c.upstream.unread_fetches_max))
        .between(0, 1_000_000)
        .at_restart()
    .about("As `unread_fetches_per_origin_max`, for all origins together."),
    Whole::new("upstream.parallel_ranges", Field::Count(|c| &mut c.upstream.parallel_ranges))
        .between(1, 6)
    .about("How many requests may bring one large download at once, where the first one alone is slow: further ones ask for ranges ahead of it while each brings a tenth more bytes a second. Only with a strong validator, a known length and an origin that takes ranges; one that does not, or that answers 429 or 503, is left alone. `1` is never more than one. At most so many less one for all downloads of an origin together."),
    Whole::new("upstream.parallel_for_sites", Field::Flag(|c| &mut c.upstream.parallel_for_sites))
        .about("Whether `parallel_ranges` is for the origins of sites too. A site's origin is mostly near, and its own: several requests for one answer are load there, and no gain."),
    Whole::new("upstream.idle", Field::Time(|c| &mut c.upstream.idle))
        .between(0, DAY)
        .at_restart()
    .about("How long an unused connection to an origin is kept."),
    Whole::new("upstream.resolver", Field::Text {
        form: "dns or system",
        read: |c| c.upstream.resolver.as_str().to_owned(),
        write: |c, text| {
            let kind = word(&[ResolverKind::Dns, ResolverKind::System], ResolverKind::as_str, text);
            kind.map(|kind| c.upstream.resolver = kind).is_some()
        },
    })
    .at_restart()
    .about("The resolver of host names: `dns` asks the servers of resolv.conf and honours the TTL, `system` asks the C library."),
    Whole::new("upstream.dns_bytes_max", Field::Buffer(|c| &mut c.upstream.dns_bytes_max))
        .between(4 * KB, 1024 * MB)
        .at_restart()
    .about("Memory for what name servers said, all workers together; the oldest answer makes room. Of one answer 16 addresses are used."),
    Whole::new("upstream.extra_roots", Field::Texts {
        form: "files",
        read: |c| c.upstream.extra_roots.iter().map(|path| path.display().to_string()).collect(),
        clear: |c| c.upstream.extra_roots.clear(),
        push: |c, text| {
            c.upstream.extra_roots.push(PathBuf::from(text));
            !text.is_empty()
        },
    })
    .at_restart()
    .about("PEM files with certificates to trust besides those of the system. Origins are always verified."),
    Whole::new("upstream.http2", Field::Text {
        form: "off or auto",
        read: |c| c.upstream.http2.as_str().to_owned(),
        write: |c, text| {
            let http2 = word(&[OriginHttp2::Off, OriginHttp2::Auto], OriginHttp2::as_str, text);
            http2.map(|http2| c.upstream.http2 = http2).is_some()
        },
    })
    .about("Whether origins with https are asked by HTTP/2 where they choose it in the handshake ([http2.md](http2.md#origins)). `site.http2` and `origin.member.http2` say otherwise of one origin."),
    Whole::new("policy.mode", Field::Text {
        form: "shared or private",
        read: |c| c.policy.mode.as_str().to_owned(),
        write: |c, text| {
            let mode = word(&[CacheMode::Shared, CacheMode::Private], CacheMode::as_str, text);
            mode.map(|mode| c.policy.mode = mode).is_some()
        },
    })
    .at_restart()
    .about("Whom the cache serves: `shared` keeps nothing private, `private` is for one user (RFC 9111 section 1)."),
    Whole::new("policy.set_cookie", Field::Text {
        form: "pass, strip or keep",
        read: |c| set_cookie_word(c.policy.set_cookie).to_owned(),
        write: |c, text| {
            let choice = word(&[SetCookie::Pass, SetCookie::Strip, SetCookie::Keep], set_cookie_word, text);
            choice.map(|choice| c.policy.set_cookie = choice).is_some()
        },
    })
        .at_restart()
    .about(
        "The handling of an answer with Set-Cookie that may be stored otherwise. `pass`: it is for the one who asked, unless \
         its Cache-Control says `public` or `no-cache=\"Set-Cookie\"`; then the rest is stored. `strip`: the rest is always \
         stored. `keep`: all is stored, and everybody gets that cookie. A private cache stores the rest.",
    ),
    Whole::new("policy.heuristic_percent", Field::Percent(|c| &mut c.policy.heuristic_percent))
        .between(0, 100)
        .at_restart()
    .about("Share of the time since Last-Modified that an answer without a lifetime stays fresh (RFC 9111 section 4.2.2)."),
    Whole::new("policy.heuristic_max", Field::Time(|c| &mut c.policy.heuristic_max))
        .between(0, 365 * DAY)
        .at_restart()
    .about("The longest such lifetime."),
    Whole::new("policy.unlabelled", Field::Time(|c| &mut c.policy.unlabelled))
        .between(0, 365 * DAY)
        .at_restart()
    .about(
        "How long an answer stays fresh that says nothing at all: no Cache-Control, Expires, Last-Modified or ETag. `0s` does not \
         keep it. Only for requests none of whose fields may say who asks (decision 008).",
    ),
    Whole::new("policy.unlabelled_run", Field::Time(|c| &mut c.policy.unlabelled_run))
        .between(0, 365 * DAY)
        .at_restart()
    .about(
        "As `unlabelled`, for files that a `larder run` fetches: packages, archives, images, indexes of packages; never for JSON, text or \
         pages of any other kind, nor for answers to a query. Package mirrors often leave these fields out, and public indexes \
         name ten minutes.",
    ),
    Whole::new("policy.unlabelled_run_named", Field::Time(|c| &mut c.policy.unlabelled_run_named))
        .between(0, 365 * DAY)
        .at_restart()
    .about("As `unlabelled_run`, for files whose name has a version or a digest: other content would have another name."),
    Whole::new("policy.git", Field::Flag(|c| &mut c.policy.git))
        .at_restart()
    .about(
        "Store what git downloads over HTTP: packs by the ids that they are asked for, used while the refs of their repository are \
         asked for too, and refs for those who can't reach the origin. Never for requests that may say who asks. A `larder run` \
         always does.",
    ),
];

/// Settings of one entry of `listen.tls`.
pub static LISTEN_TLS: &[Setting<CertificateFiles>] = &[
    OfTls::new("listen.tls.chain", Field::Path(|t| &mut t.chain))
        .required()
        .about("PEM file with the certificate and those above it. With several entries the client's SNI chooses, the first is for the rest. All files of certificates are read again within seconds after one of them has changed; where they can't be used then, the old ones count on, and the log says why. `larder check` and the log warn two weeks before a certificate ends."),
    OfTls::new("listen.tls.key", Field::Path(|t| &mut t.key)).required().about("PEM file with the private key."),
];

/// Whether a text looks like an address of mail that may stand in a URL (`mailto:`, RFC 6068).
fn is_mail(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"?&,;:<>\"\\%".contains(&byte);
    text.len() <= 254
        && text.bytes().all(is_plain)
        && text
            .split_once('@')
            .is_some_and(|(name, host)| !name.is_empty() && host.contains('.') && !host.contains('@'))
}

const SYSLOG: &str = "/dev/log";

fn log_to(to: &LogTo) -> String {
    match to {
        LogTo::Stderr => "stderr".to_owned(),
        LogTo::Stdout => "stdout".to_owned(),
        LogTo::File(file) => file.display().to_string(),
        LogTo::Syslog(socket) if socket.as_os_str() == SYSLOG => "syslog".to_owned(),
        LogTo::Syslog(socket) => format!("syslog:{}", socket.display()),
    }
}

fn write_log_to(config: &mut Config, text: &str) -> bool {
    let to = match text {
        "" => return false,
        "none" => {
            config.log = None;
            return true;
        }
        "stderr" => LogTo::Stderr,
        "stdout" => LogTo::Stdout,
        "syslog" => LogTo::Syslog(PathBuf::from(SYSLOG)),
        other => match other.strip_prefix("syslog:") {
            Some(socket) => LogTo::Syslog(PathBuf::from(socket)),
            None => LogTo::File(PathBuf::from(other)),
        },
    };
    config.log.get_or_insert_with(Log::to_stdout).to = to;
    true
}
