//! The settings of an `[[origin]]`, and of the tables in it.

use crate::config::origin::{
    BalanceKey, MemberHost, OriginGroup, OriginHttp2, OriginMember, choose_proxy_protocol, is_token,
    proxy_protocol_word,
};
use crate::config::setting::{Field, Setting, word};
use crate::config::url;
use larder_balance::Balance;
use larder_wire::Host;

type OfGroup = Setting<OriginGroup>;
type OfMember = Setting<OriginMember>;

const DAY: u64 = 86_400_000;
const REQUESTS_MAX: u64 = 1_000_000;

/// Settings of one `[[origin]]`.
pub static ORIGIN: &[Setting<OriginGroup>] = &[
    OfGroup::new(
        "origin.name",
        Field::Text {
            form: "name",
            read: |g| g.name.clone(),
            write: |g, text| {
                text.clone_into(&mut g.name);
                url::is_group_name(text)
            },
        },
    )
    .required()
    .about("The name by which sites refer to it (`origin = \"NAME\"`): letters, digits, `-`, `_` and `.`, a letter first. Responses are stored under this name, so members may come and go."),
    OfGroup::new(
        "origin.balance",
        Field::Text {
            form: "p2c, least-connections, round-robin, ring-hash or sticky",
            read: |g| g.balance.as_str().to_owned(),
            write: |g, text| word(&Balance::ALL, Balance::as_str, text).map(|balance| g.balance = balance).is_some(),
        },
    )
    .about("How a member is chosen. `p2c` draws two by weight and asks the better one by response time and load; `ring-hash` leads each `key` to one member; `sticky` leads a client by a cookie to the member it had before."),
    OfGroup::new(
        "origin.key",
        Field::Text {
            form: "url, client, field:NAME or cookie:NAME",
            read: |g| g.key.show(),
            write: |g, text| BalanceKey::parse(text).map(|key| g.key = key).is_some(),
        },
    )
    .about("The part of a request that `ring-hash` leads to one member: host, path and query, the client's address, or the value of a field or a cookie."),
    OfGroup::new(
        "origin.cookie",
        Field::Text {
            form: "name",
            read: |g| g.cookie.clone(),
            write: |g, text| {
                text.clone_into(&mut g.cookie);
                is_token(text)
            },
        },
    )
    .about("The cookie of `sticky`. Larder sets it with answers that are for one client alone; a stored answer never has it."),
    OfGroup::new("origin.slow_start", Field::Time(|g| &mut g.slow_start))
        .between(0, DAY)
        .about("From its recovery until a member gets its whole share; it begins with a tenth."),
    OfGroup::new("origin.requests", Field::Count(|g| &mut g.requests_max))
        .between(1, REQUESTS_MAX)
        .about("Requests under way at all members together, over all workers. Beyond that a request is answered 503 at once."),
];

/// Settings of one member of an `[[origin]]`.
pub static ORIGIN_MEMBER: &[Setting<OriginMember>] = &[
    OfMember::new(
        "origin.member.url",
        Field::Text {
            form: "URL or http+unix:/SOCKET",
            read: |m| url::show(&m.url),
            write: |m, text| url::parse_member(text).map(|url| m.url = url).is_some(),
        },
    )
    .required()
    .about("Where the member is: scheme, host and port without a path, or a Unix socket."),
    OfMember::new(
        "origin.member.name",
        Field::Name(|m| &mut m.name),
    )
    .default_words("its URL")
    .about("Its name in commands, on pages and in metrics; a member keeps its state over a reload by its name."),
    OfMember::new("origin.member.weight", Field::Count(|m| &mut m.weight))
        .between(1, 1_000)
        .about("Its share of requests, compared with the weights of the others."),
    OfMember::new("origin.member.backup", Field::Flag(|m| &mut m.backup))
        .about("Whether it is asked only where no other member may be."),
    OfMember::new(
        "origin.member.host",
        Field::Text {
            form: "client, origin or HOST",
            read: |m| match &m.host {
                MemberHost::Client => "client".to_owned(),
                MemberHost::Own => "origin".to_owned(),
                MemberHost::Named(name) => name.clone(),
            },
            write: |m, text| {
                m.host = match text {
                    "client" => MemberHost::Client,
                    "origin" => MemberHost::Own,
                    name => MemberHost::Named(name.to_owned()),
                };
                is_authority(text)
            },
        },
    )
    .about("Which `Host` the member gets: the one that the client asked for, that of its own URL, or this name."),
    OfMember::new(
        "origin.member.sni",
        Field::Text {
            form: "host or none",
            read: |m| m.sni.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string),
            write: |m, text| {
                m.sni = Host::parse(text).filter(|_| text != "none");
                m.sni.is_some() || text == "none"
            },
        },
    )
    .default_words("the host of its URL")
    .about("The name that TLS asks for, and that the member's certificate must be for."),
    OfMember::new(
        "origin.member.http2",
        Field::Text {
            form: "off, auto, prior-knowledge or default",
            read: |m| OriginHttp2::choice(m.http2).to_owned(),
            write: |m, text| OriginHttp2::choose(&mut m.http2, text),
        },
    )
    .default_words("`upstream.http2`")
    .about("Whether the member is asked by HTTP/2: where it chooses that in the handshake of TLS (`auto`), or in clear text without asking (`prior-knowledge`, for a URL with http)."),
    OfMember::new(
        "origin.member.proxy_protocol",
        Field::Text {
            form: "off, v1 or v2",
            read: |m| proxy_protocol_word(m.proxy_protocol).to_owned(),
            write: |m, text| choose_proxy_protocol(&mut m.proxy_protocol, text),
        },
    )
    .about("Whether connections to the member begin with a header of the PROXY protocol, of this version, that names the client ([proxy-protocol.md](proxy-protocol.md#to-origins)); those of checks are Larder's own (`LOCAL`)."),
    OfMember::new("origin.member.requests", Field::Count(|m| &mut m.requests_max))
        .between(1, REQUESTS_MAX)
        .about("Requests under way at it, over all workers; those that wait for a connection count. Beyond that it is passed over."),
];

/// Settings of `check` of an `[[origin]]`.
pub static ORIGIN_CHECK: &[Setting<OriginGroup>] = &[
    OfGroup::new(
        "origin.check.path",
        Field::Text {
            form: "path",
            read: |g| g.check.as_ref().map_or_else(|| "/".to_owned(), |check| check.path.clone()),
            write: |g, text| {
                g.check.get_or_insert_default().path = text.to_owned();
                text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
            },
        },
    )
    .default_words("`/`")
    .about("The target that each member is asked for by GET."),
    OfGroup::new("origin.check.every", Field::Time(|g| &mut g.check.get_or_insert_default().every))
        .between(100, DAY)
        .about("How often a member is checked. A check is left out while all connections to the member are in use (`upstream.connections_per_origin_max`)."),
    OfGroup::new("origin.check.timeout", Field::Time(|g| &mut g.check.get_or_insert_default().timeout))
        .between(10, DAY)
        .about("How long a check may take, from the connection to the end of the answer; not longer than `every`."),
    OfGroup::new(
        "origin.check.statuses",
        Field::Texts {
            form: "statuses",
            read: |g| g.check.iter().flat_map(|check| &check.statuses).map(ToString::to_string).collect(),
            clear: |g| g.check.get_or_insert_default().statuses.clear(),
            push: |g, text| push_status(&mut g.check.get_or_insert_default().statuses, text, 200),
        },
    )
    .default_words("`[\"200\", \"204\"]`")
    .about("The statuses of a good answer."),
    OfGroup::new("origin.check.rise", Field::Count(|g| &mut g.check.get_or_insert_default().rise))
        .between(1, 1_000)
        .about("Good checks in a row until a member that was down is up again."),
    OfGroup::new("origin.check.fall", Field::Count(|g| &mut g.check.get_or_insert_default().fall))
        .between(1, 1_000)
        .about("Bad checks in a row until a member counts as down. Members are up until then."),
    OfGroup::new(
        "origin.check.host",
        Field::Text {
            form: "host",
            read: |g| g.check.as_ref().and_then(|check| check.host.clone()).unwrap_or_default(),
            write: |g, text| {
                g.check.get_or_insert_default().host = Some(text.to_owned());
                is_authority(text)
            },
        },
    )
    .default_words("the member's `host`, or that of its URL")
    .about("The `Host` of checks."),
];

/// Settings of `eject` of an `[[origin]]`.
pub static ORIGIN_EJECT: &[Setting<OriginGroup>] = &[
    OfGroup::new("origin.eject.failures", Field::Count(|g| &mut g.eject.failures))
        .between(0, 1_000_000)
        .about("Failures in a row after which a member gets no requests for a while: connections that fail, time limits, connections that close before the head of the answer, and answers with one of `statuses`. `0` ejects none."),
    OfGroup::new(
        "origin.eject.statuses",
        Field::Texts {
            form: "statuses",
            read: |g| g.eject.statuses.iter().map(ToString::to_string).collect(),
            clear: |g| g.eject.statuses.clear(),
            push: |g, text| push_status(&mut g.eject.statuses, text, 400),
        },
    )
    .about("Statuses that count as failures. One that another member gives to the same request too counts against neither."),
    OfGroup::new("origin.eject.time", Field::Time(|g| &mut g.eject.time))
        .between(10, DAY)
        .about("For how long, at first; it doubles with each ejection that follows soon after another. Then one request tries the member, and if that succeeds, the member gets its share little by little (`slow_start`)."),
    OfGroup::new("origin.eject.time_max", Field::Time(|g| &mut g.eject.time_max))
        .between(10, DAY)
        .about("For how long at most."),
    OfGroup::new("origin.eject.out", Field::Percent(|g| &mut g.eject.out_percent_max))
        .between(0, 100)
        .about("The part of the members that is ejected at most; of two or more one always may be. Members that fail beyond that get few requests, and together a tenth at most."),
];

/// Settings of `retry` of an `[[origin]]`.
pub static ORIGIN_RETRY: &[Setting<OriginGroup>] = &[
    OfGroup::new("origin.retry.budget", Field::Percent(|g| &mut g.retry.percent))
        .between(0, 100)
        .about("Further tries and hedges, in percent of requests, and one a second. `0` for none."),
    OfGroup::new("origin.retry.tries", Field::Count(|g| &mut g.retry.tries_max))
        .between(1, 16)
        .about("Tries of one request, the first one included, each at another member. A request that is not idempotent, or has a body that was begun, is sent once; where no connection came about, nothing was sent."),
    OfGroup::new(
        "origin.retry.statuses",
        Field::Texts {
            form: "statuses",
            read: |g| g.retry.statuses.iter().map(ToString::to_string).collect(),
            clear: |g| g.retry.statuses.clear(),
            push: |g, text| push_status(&mut g.retry.statuses, text, 400),
        },
    )
    .about("Statuses after which another member is tried. The client gets the last answer."),
];

/// Settings of `hedge` of an `[[origin]]`.
pub static ORIGIN_HEDGE: &[Setting<OriginGroup>] = &[
    OfGroup::new("origin.hedge.percentile", Field::Percent(|g| &mut g.hedge.get_or_insert_default().percentile))
        .between(50, 99)
        .about("A request that takes longer than so many percent of the others gets a second one beside it, at another member; the first answer counts. Safe requests without a body alone (GET, HEAD), within the budget of `retry`."),
    OfGroup::new("origin.hedge.time_min", Field::Time(|g| &mut g.hedge.get_or_insert_default().time_min))
        .between(1, DAY)
        .about("Never sooner than this."),
];

fn push_status(statuses: &mut Vec<u16>, text: &str, lowest: u16) -> bool {
    let status = text.parse().ok().filter(|status| (lowest..=599).contains(status));
    status.map(|status| statuses.push(status)).is_some()
}

/// Whether a text can stand in a `Host` field: a host, and perhaps a port.
fn is_authority(text: &str) -> bool {
    url::parse(&format!("http://{text}")).is_some_and(|url| &*url.path == "/") && !text.contains('/')
}
