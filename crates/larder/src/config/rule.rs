//! One rule of the table of rules, as the configuration says it: its name, its matchers (`when`) and its work (`do`).

use super::next_hop::HopsByRule;
use super::setting::{Field, Setting};
use super::{SiteOrigin, SourceLine};
use larder_lists::countries::{Countries, Country};
use larder_rules::bandwidth::Bandwidth;
use larder_rules::rate::{RateBy, RateLimit};
use larder_rules::rule::Priority;
use larder_rules::template::Template;
use larder_rules::values::{FieldTest, ListenerPattern, MediaPattern, Pattern, PortRange, QueryPattern, may_change};
use larder_rules::week::{Window, Zone};
use larder_rules::{HostPattern, NamePattern, Networks, PathPattern, Table, When, network};
use larder_wire::credential::is_credential;
use larder_wire::{Method, Scheme};
use std::fmt::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Stands for a value that may be a credential.
const HIDDEN: &str = "(hidden)";

/// One `[[rule]]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleSettings {
    /// Its name, if it has one.
    pub name: String,
    /// When it holds; the compiled rule shares it.
    pub when: Arc<When>,
    /// Its work.
    pub does: RuleDo,
    /// Where it stands.
    pub place: SourceLine,
}

/// The rules of all files, compiled, with the origins that they name.
#[derive(Debug, Default, PartialEq)]
pub struct RuleTable {
    /// The table.
    pub table: Table,
    /// The limits of bandwidth that each rule names.
    pub bandwidths: Vec<Box<[Arc<Bandwidth>]>>,
    /// The origin of each rule that has a `route`.
    pub routes: Vec<Option<Arc<SiteOrigin>>>,
    /// Of each rule that names parents, through whom origins are asked.
    pub hops: Vec<Option<Arc<HopsByRule>>>,
    /// Of each rule that denies destinations, which.
    pub closed: Vec<Option<Arc<ClosedDestinations>>>,
    /// A rule denies destinations.
    pub closes_any: bool,
    /// A rule denies destinations by their country.
    pub closes_countries: bool,
}

/// Destinations that a rule denies.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedDestinations {
    /// The networks; empty: any.
    pub networks: Networks,
    /// The countries; empty: any.
    pub countries: Vec<Country>,
    /// The rule, for people.
    pub rule: Box<str>,
}

impl RuleTable {
    /// Whether a rule denies this destination, be it to some clients alone.
    pub fn closes(&self, ip: IpAddr, countries: Option<&Countries>) -> bool {
        self.closes_any && self.closed.iter().flatten().any(|closed| closed.has(ip, countries))
    }
}

impl ClosedDestinations {
    /// Whether an address is one of them. Where no file says in which country it is, it is: nothing is opened by a file that is missing.
    pub fn has(&self, ip: IpAddr, countries: Option<&Countries>) -> bool {
        let is_there = |countries: &Countries| self.countries.contains(&countries.of(ip));
        (self.networks.is_empty() || self.networks.contains(ip))
            && (self.countries.is_empty() || countries.is_none_or(is_there))
    }
}

/// The work of a rule, as it is written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleDo {
    /// The request goes on, and no later rule is tried.
    pub allow: bool,
    /// It is refused.
    pub deny: bool,
    /// The URL that the client is sent to.
    pub redirect: Option<String>,
    /// The login that the client has to pass.
    pub login: Option<String>,
    /// The status of a refusal or a redirection; 0 for the usual one.
    pub status: usize,
    /// A file with the page of a refusal.
    pub page: Option<PathBuf>,
    /// Another path.
    pub path: Option<String>,
    /// Another query.
    pub query: Option<String>,
    /// Another host.
    pub host: Option<String>,
    /// The origin that is asked.
    pub route: Option<String>,
    /// Fields that the request gets in the place of its own.
    pub set: Vec<String>,
    /// Fields that the request gets beside its own.
    pub add: Vec<String>,
    /// Fields that are taken off the request.
    pub remove: Vec<String>,
    /// Fields that the answer gets in the place of its own.
    pub answer_set: Vec<String>,
    /// Fields that the answer gets beside its own.
    pub answer_add: Vec<String>,
    /// Fields that are taken off the answer.
    pub answer_remove: Vec<String>,
    /// Tags that purges may name.
    pub tag: Vec<String>,
    /// Parts that the key gets.
    pub key: Vec<String>,
    /// How long the answer is fresh.
    pub lifetime: Option<Duration>,
    /// How long past that it may be used.
    pub grace: Option<Duration>,
    /// It is not stored.
    pub never: bool,
    /// It is stored although it is private.
    pub even_if_private: bool,
    /// Requests beyond this rate are refused.
    pub rate: Option<RateLimit>,
    /// By what requests are counted.
    pub rate_by: RateBy,
    /// Requests that may come at once.
    pub burst: Option<usize>,
    /// Names of limits of bandwidth under which the answer is sent.
    pub bandwidth: Vec<String>,
    /// Names of the parents through which the origin is asked.
    pub parents: Vec<String>,
    /// Names of parents that are left out.
    pub parents_except: Vec<String>,
    /// The class in which the request waits where something is overloaded.
    pub priority: Option<Priority>,
    /// A word for the log.
    pub mark: Option<String>,
}

impl RuleSettings {
    /// The lines of its table, as TOML, for people: values of fields that may be credentials are hidden.
    pub fn lines(&self) -> String {
        let mut out = String::new();
        for setting in RULE.iter().filter(|setting| !setting.is_equal(self, &RuleSettings::default())) {
            let _ = writeln!(out, "{} = {}", setting.key(), setting.show(self));
        }
        if !self.when.is_empty() {
            let _ = writeln!(out, "when = {}", inline(&self.when));
        }
        let done = RULE_DO.iter().filter(|setting| !setting.is_equal(&self.does, &RuleDo::default()));
        let shown = self.does.without_credentials();
        let done: Vec<String> = done.map(|setting| format!("{} = {}", setting.key(), setting.show(&shown))).collect();
        let _ = writeln!(out, "do = {{ {} }}", done.join(", "));
        out
    }
}

impl RuleDo {
    /// It with `(hidden)` in place of the values of fields that may be credentials.
    fn without_credentials(&self) -> RuleDo {
        let mut shown = self.clone();
        for lines in [&mut shown.set, &mut shown.add, &mut shown.answer_set, &mut shown.answer_add] {
            for line in lines {
                if let Some((name, _)) = line.split_once(':').filter(|(name, _)| is_credential(name.trim())) {
                    *line = format!("{name}: {HIDDEN}");
                }
            }
        }
        shown
    }
}

/// Conditions as an inline table.
fn inline(when: &When) -> String {
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let said = RULE_WHEN.iter().filter(|setting| !setting.is_equal(when, &When::default()));
    let mut parts: Vec<String> = said.map(|setting| format!("{} = {}", setting.key(), setting.show(when))).collect();
    if !when.fields.is_empty() {
        let shown = |name: &str, test: &FieldTest| match test {
            FieldTest::Present => test.to_string(),
            _ if is_credential(name) => HIDDEN.to_owned(),
            _ => test.to_string(),
        };
        let fields = when.fields.iter().map(|(name, of)| {
            let tests: Vec<String> = of.iter().map(|test| quoted(&shown(name, test))).collect();
            format!("{} = [{}]", quoted(name), tests.join(", "))
        });
        parts.push(format!("field = {{ {} }}", fields.collect::<Vec<_>>().join(", ")));
    }
    for (name, nested) in [("not", &when.not), ("any", &when.any)].into_iter().filter(|(_, nested)| !nested.is_empty())
    {
        parts.push(format!("{name} = [{}]", nested.iter().map(inline).collect::<Vec<_>>().join(", ")));
    }
    format!("{{ {} }}", parts.join(", "))
}

type OfRule = Setting<RuleSettings>;
type OfWhen = Setting<When>;
type OfDo = Setting<RuleDo>;

/// Settings of one `[[rule]]`, beside `when` and `do`.
pub static RULE: &[Setting<RuleSettings>] = &[OfRule::new(
    "rule.name",
    Field::Text {
        form: "name",
        read: |r| r.name.clone(),
        write: |r, text| {
            text.clone_into(&mut r.name);
            !text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.contains(|letter: char| letter.is_control())
        },
    },
)
.default_words("none")
.about("A name for people: `larder explain`, the log and the page of a refusal say it beside file and line.")];

/// A longer name is refused: each line of the log may have it.
const NAME_BYTES_MAX: usize = 64;

macro_rules! texts {
    ($name:literal, $field:ident, $form:literal, $parse:expr) => {
        OfWhen::new(
            $name,
            Field::Texts {
                form: $form,
                read: |w| w.$field.iter().map(ToString::to_string).collect(),
                clear: |w| w.$field.clear(),
                push: |w, text| {
                    let parse: fn(&str) -> Option<_> = $parse;
                    parse(text).map(|value| w.$field.push(value)).is_some()
                },
            },
        )
        .default_words("any")
    };
}

fn word(text: &str) -> Option<Box<str>> {
    (!text.is_empty()).then(|| text.into())
}

fn codes(countries: &[Country]) -> Vec<String> {
    countries.iter().map(|code| String::from_utf8_lossy(code).into_owned()).collect()
}

fn country(text: &str) -> Option<[u8; 2]> {
    larder_lists::countries::country(text)
}

fn method(text: &str) -> Option<Method> {
    larder_wire::fields::is_token(text.as_bytes()).then(|| Method::from_token(text))
}

/// Settings of `when` of a `[[rule]]`, and of `not` and `any` in it.
pub static RULE_WHEN: &[Setting<When>] = &[
    texts!("rule.when.method", method, "methods", method)
        .about("Methods: `GET`, `CONNECT`, … A tunnel is asked for by CONNECT; a rule about paths never holds for one."),
    OfWhen::new("rule.when.scheme", Field::Texts {
        form: "http, https, ftp",
        read: |w| w.scheme.iter().map(|scheme| scheme.as_str().to_owned()).collect(),
        clear: |w| w.scheme.clear(),
        push: |w, text| {
            let scheme = Scheme::ALL.into_iter().find(|scheme| scheme.as_str() == text);
            scheme.map(|scheme| w.scheme.push(scheme)).is_some()
        },
    })
    .default_words("any")
    .about("The scheme of the URL."),
    texts!("rule.when.listener", listener, "addresses of listeners", ListenerPattern::parse)
        .about("Listeners, by the address in their `[[listen]]` (`127.0.0.1:3128`) or by the port alone (`:3128`)."),
    texts!("rule.when.port", port, "ports", PortRange::parse).about("Ports of the URL: `443`, `8000-8999`."),
    texts!("rule.when.host", host, "host patterns", HostPattern::parse)
        .about("Hosts of the URL: `www.example.org`, `*.example.org` (all names below), `.example.org` (both, as Squid's `dstdomain`) or `*`. Thousands of names belong into a list."),
    texts!("rule.when.host_regex", host_regex, "regular expressions", |text| Pattern::parse(text).ok())
        .about("Regular expressions that are found in the host, which is in lower case: `^ad[0-9]*[.]`. Prefer `host` and lists where they will do."),
    OfWhen::new("rule.when.destination", Field::Texts {
        form: "networks",
        read: |w| w.destination.iter().map(ToString::to_string).collect(),
        clear: |w| w.destination.clear(),
        push: |w, text| network(text).map(|net| w.destination.push(net)).is_some(),
    })
    .default_words("any")
    .about("Networks of the address that the connection to the origin would lead to, in a rule with `deny` and outside of `not` and `any`. Each address is judged when it is connected to ([rules.md](rules.md#the-facts-that-a-rule-sees))."),
    OfWhen::new("rule.when.destination_country", Field::Texts {
        form: "countries",
        read: |w| codes(&w.destination_country),
        clear: |w| w.destination_country.clear(),
        push: |w, text| country(text).map(|code| w.destination_country.push(code)).is_some(),
    })
    .default_words("any")
    .about("Countries of the address that the connection to the origin would lead to, by `access.country_file`, as `country` has them. It stands where `destination` may stand, and an address has to be one of both where a rule has both."),
    OfWhen::new("rule.when.client", Field::Texts {
        form: "networks",
        read: |w| w.client.iter().map(ToString::to_string).collect(),
        clear: |w| w.client.clear(),
        push: |w, text| network(text).map(|net| w.client.push(net)).is_some(),
    })
    .default_words("any")
    .about("Networks of the client."),
    OfWhen::new("rule.when.country", Field::Texts {
        form: "countries",
        read: |w| codes(&w.country),
        clear: |w| w.country.clear(),
        push: |w, text| country(text).map(|code| w.country.push(code)).is_some(),
    })
    .default_words("any")
    .about("Countries of the client's address by `access.country_file`, each by its two letters (ISO 3166-1): `DE`, `US`; `ZZ` for addresses that the file has no country for, those of private networks among them."),
    texts!("rule.when.sni", sni, "host patterns", HostPattern::parse)
        .about("Names for which the client's TLS asks (SNI), as `host` has them; `*` for any. On a listener with TLS and in an opened tunnel; where Larder reads no TLS, or the client names nothing, the rule does not hold."),
    texts!("rule.when.time", time, "times of the week", Window::parse)
        .about("Times of the week: `Mon-Fri 08:00-17:00`, `Sat,Sun`, `22:00-06:00` (to the next morning)."),
    OfWhen::new("rule.when.zone", Field::Text {
        form: "time zone",
        read: |w| w.zone.name().to_owned(),
        write: |w, text| Zone::find(text).map(|zone| w.zone = zone).is_ok(),
    })
    .about("The time zone of `time`, by its name in the system's time zone data: `Europe/Berlin`."),
    texts!("rule.when.certificate", certificate, "name patterns", NamePattern::parse)
        .about("Names in the certificate that the client has shown to the listener (`client_certificates`): the common name, host names, addresses of mail, URIs. `ada@office.example`, `.office.example` (this name and those below), `*@office.example`, `*` (any certificate)."),
    texts!("rule.when.user_agent", user_agent, "texts", word)
        .about("Texts that the field `User-Agent` has in it, in any case."),
    texts!("rule.when.content_type", content_type, "media types", MediaPattern::parse)
        .about("Media types of the request's body: `application/json`, `video/*`."),
    OfWhen::new("rule.when.size_min", Field::SizeIfAny(|w| &mut w.size_min))
        .default_words("any")
        .about("The least size of the request's body, by its `Content-Length`. A body without one has no size, and the rule does not hold."),
    OfWhen::new("rule.when.size_max", Field::SizeIfAny(|w| &mut w.size_max))
        .default_words("any")
        .about("The greatest size of the request's body, by its `Content-Length`."),
    texts!("rule.when.path", path, "path patterns", PathPattern::parse)
        .about("Forms of the path: `/admin/**` (a folder with all below it), `/*.exe`, `/**/*.iso`. The path is held against it without its query and with all encodings undone; a path that readers disagree about is refused with 400."),
    texts!("rule.when.path_regex", path_regex, "regular expressions", |text| Pattern::parse(text).ok())
        .about("Regular expressions that are found in the path, as `path` sees it. `{1}` to `{9}` in `do` are the groups of the first one that is found."),
    texts!("rule.when.target_regex", target_regex, "regular expressions", |text| Pattern::parse(text).ok())
        .about("Regular expressions that are found in the path with its query as the client sent them, their encodings undone once, as Squid's `urlpath_regex`. `path` is the matcher for folders that are to be closed."),
    texts!("rule.when.url_regex", url_regex, "regular expressions", |text| Pattern::parse(text).ok())
        .about("Regular expressions that are found in the URL, `http://host/path?query`, as the client sent it, with a port that is not the usual one and the encodings of path and query undone once, as Squid's `url_regex`; for a tunnel (CONNECT) in `host:port`."),
    texts!("rule.when.query", query, "parameters", QueryPattern::parse)
        .about("Parameters of the query: `debug`, `id=7`, `utm_*`. Names and values are compared with their encodings undone."),
    texts!("rule.when.list", list, "names of lists", word).about("Lists that cover the host or the URL."),
    texts!("rule.when.user", user, "users", word).about("Users who have logged in; `*` for anybody who has."),
    texts!("rule.when.group", group, "groups", word).about("Groups of the user."),
];

macro_rules! lines {
    ($name:literal, $field:ident, $form:literal, $is_good:expr) => {
        OfDo::new(
            $name,
            Field::Texts {
                form: $form,
                read: |d| d.$field.clone(),
                clear: |d| d.$field.clear(),
                push: |d, text| {
                    d.$field.push(text.to_owned());
                    let is_good: fn(&str) -> bool = $is_good;
                    is_good(text)
                },
            },
        )
        .default_words("none")
    };
}

macro_rules! text {
    ($name:literal, $field:ident, $form:literal) => {
        OfDo::new(
            $name,
            Field::Text {
                form: $form,
                read: |d| d.$field.clone().unwrap_or_default(),
                write: |d, text| {
                    d.$field = Some(text.to_owned());
                    Template::parse(text).is_ok()
                },
            },
        )
        .default_words("none")
    };
}

/// `Name: value` of a field that a rule may change.
pub(super) fn field_line(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once(':')?;
    let is_clean = !value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t');
    (may_change(name) && is_clean && Template::parse(value.trim()).is_ok()).then_some((name, value.trim()))
}

fn is_field_line(text: &str) -> bool {
    field_line(text).is_some()
}

fn is_tag(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
}

fn is_template(text: &str) -> bool {
    Template::parse(text).is_ok()
}

/// Settings of `do` of a `[[rule]]`.
pub static RULE_DO: &[Setting<RuleDo>] = &[
    OfDo::new("rule.do.allow", Field::Flag(|d| &mut d.allow)).about(
        "The request goes on, and no later rule is tried. `access.clients`, `access.connect_ports` and `access.destinations` hold all the same.",
    ),
    OfDo::new("rule.do.deny", Field::Flag(|d| &mut d.deny)).about("The request is refused, with `status` and a page."),
    text!("rule.do.redirect", redirect, "URL with placeholders")
        .about("The client is sent to this URL: `https://{host}{path}{query}`."),
    text!("rule.do.login", login, "name").about("The client has to log in by this login first."),
    OfDo::new("rule.do.status", Field::Count(|d| &mut d.status))
        .between(0, 599)
        .default_words("403 with `deny`, 302 with `redirect`")
        .about("The status of the refusal (400 to 599) or of the redirection (301, 302, 303, 307, 308)."),
    OfDo::new("rule.do.page", Field::PathIfAny(|d| &mut d.page)).about(
        "A file with the page of the refusal, up to 64 KiB of HTML; `{host}`, `{url}`, `{client}`, `{user}`, `{rule}` and `{request}` stand for what they say. Clients that ask for JSON get JSON.",
    ),
    text!("rule.do.path", path, "path with placeholders")
        .about("The URL gets this path: it is asked for, and stored, as if the client had asked so."),
    text!("rule.do.query", query, "query with placeholders").about("The URL gets this query; `\"\"` takes it off."),
    text!("rule.do.host", host, "host with placeholders").about(
        "The URL gets this host, with `:PORT` where it has one. Where the client may get to is judged by the new host. Not in an opened tunnel, whose certificate is for its own host.",
    ),
    text!("rule.do.route", route, "origin").about(
        "The origin that is asked, in place of the site's or the URL's own: an http or https URL, or the name of an `[[origin]]` or a `[[site.route]]`. Its answers are stored apart.",
    ),
    lines!("rule.do.set", set, "fields", is_field_line)
        .about("Fields that the request gets in place of its own, before an origin gets it: `X-Office: 1`. They are a part of the key, as a hash."),
    lines!("rule.do.add", add, "fields", is_field_line).about("Fields that the request gets beside its own."),
    lines!("rule.do.remove", remove, "names of fields", may_change).about("Fields that are taken off the request."),
    lines!("rule.do.answer_set", answer_set, "fields", is_field_line)
        .about("Fields that the answer gets in place of its own, before the client gets it. The stored answer stays as it is."),
    lines!("rule.do.answer_add", answer_add, "fields", is_field_line).about("Fields that the answer gets beside its own."),
    lines!("rule.do.answer_remove", answer_remove, "names of fields", may_change)
        .about("Fields that are taken off the answer."),
    lines!("rule.do.tag", tag, "tags", is_tag).about("Tags that the stored answer gets, for `larder purge --tag`."),
    lines!("rule.do.key", key, "texts with placeholders", is_template)
        .about("Parts that the key gets, so that answers are stored apart: `{user}`, `mobile`."),
    OfDo::new("rule.do.lifetime", Field::TimeOrNone(|d| &mut d.lifetime))
        .default_words("as the origin says")
        .about("How long the answer is fresh, whatever its origin says. An answer that its origin keeps to one client stays with that client, unless `even_if_private`."),
    OfDo::new("rule.do.grace", Field::TimeOrNone(|d| &mut d.grace))
        .default_words("as the origin says")
        .about("How long past that it is used while it is validated, or where the origin is in trouble."),
    OfDo::new("rule.do.never", Field::Flag(|d| &mut d.never)).about("The answer is not stored, and no stored one is used."),
    OfDo::new("rule.do.even_if_private", Field::Flag(|d| &mut d.even_if_private)).about(
        "The answer is stored for everybody although its origin says `private` or `no-store`, sets a cookie (which is taken off) or was asked with `Authorization`: whoever asks next gets it. `larder check` says so each time. Needs `lifetime`.",
    ),
    OfDo::new(
        "rule.do.rate",
        Field::Text {
            form: "rate",
            read: |d| d.rate.map(|rate| rate.to_string()).unwrap_or_default(),
            write: |d, text| {
                d.rate = RateLimit::parse(text);
                d.rate.is_some()
            },
        },
    )
    .default_words("none")
    .about("Requests beyond this rate are answered 429 with `Retry-After`: `10/s`, `600/m`, `5000/h`."),
    OfDo::new(
        "rule.do.rate_by",
        Field::Text {
            form: "client, user, host or all",
            read: |d| d.rate_by.as_str().to_owned(),
            write: |d, text| super::setting::word(&RateBy::ALL, RateBy::as_str, text).map(|by| d.rate_by = by).is_some(),
        },
    )
    .about("By what requests are counted: the client (an IPv4 address, or an IPv6 network of 64 bits), the user, the host of the URL, or all together."),
    OfDo::new("rule.do.burst", Field::CountOrNone(|d| &mut d.burst))
        .between(1, 1_000_000)
        .default_words("those of one second")
        .about("Requests that may come at once before the rate counts."),
    lines!("rule.do.bandwidth", bandwidth, "names of limits", |text| !text.is_empty())
        .about("Limits of bandwidth (`[[bandwidth]]`) under which the answer, or what comes out of the tunnel, is sent to the client. With several, each of them holds."),
    lines!("rule.do.parents", parents, "names", |text| !text.is_empty())
        .about("The `[[parent]]`s through which the origin is asked, tried in this order, in place of those of `forward.parents`; `direct` is the origin itself, as the last or the only name. For requests of the forward proxy; hosts of `forward.direct` are no exception. Stored responses are the same for all ([neighbours.md](neighbours.md#parents-by-rule))."),
    lines!("rule.do.parents_except", parents_except, "names", |text| !text.is_empty())
        .about("`[[parent]]`s through which the origin is not asked; `direct` for no direct request. Where nothing is left, the request is answered 502."),
    OfDo::new(
        "rule.do.priority",
        Field::Text {
            form: "low, normal or high",
            read: |d| d.priority.map(|priority| priority.as_str().to_owned()).unwrap_or_default(),
            write: |d, text| {
                d.priority = super::setting::word(&Priority::ALL, Priority::as_str, text);
                d.priority.is_some()
            },
        },
    )
    .default_words("that of the rule before, else normal")
    .about("The class of the request under overload ([overload.md](overload.md)). Where requests wait for their origin, `high` comes first, then `normal`, then `low`; and while they wait for too long, or the worker is behind, `low` is answered 503 with `Retry-After`. An answer out of memory is never refused."),
    text!("rule.do.mark", mark, "text").about("A word for the field `mark` of the log and for `larder explain`."),
];

#[cfg(test)]
mod tests {
    use crate::config::Loaded;

    #[test]
    fn values_of_credentials_are_hidden() {
        let text = "[[rule]]\nwhen = { field = { X-Api-Key = \"s3cret\", X-Office = \"north\" } }\n\
                    do = { set = [\"Authorization: Bearer s3cret\", \"X-Floor: 2\"], add = \"Cookie: a=s3cret\", answer_set = \"Set-Cookie: s3cret\" }\n";
        let loaded = Loaded::parse("test", text, &[]).unwrap_or_else(|report| panic!("{report}"));
        let shown = loaded.config.rules[0].lines();
        assert!(!shown.contains("s3cret"), "{shown}");
        for part in ["X-Floor: 2", "north", "Authorization: (hidden)", "\"(hidden)\"", "Set-Cookie: (hidden)"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}
