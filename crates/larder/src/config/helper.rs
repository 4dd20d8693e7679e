//! Helpers: programs that speak the line protocols of Squid's helpers, which Larder starts and asks.

use super::SourceLine;
use super::setting::{Field, Setting, word};
use larder_people::format::Format;
use larder_people::kind::Kind;
use std::time::Duration;

/// The fate of a request whose helper fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelperFailure {
    /// It is denied: a rule that can't be asked is not taken to permit.
    Deny,
    /// It goes on as if there were no helper.
    Allow,
}

impl HelperFailure {
    /// The words of the configuration.
    pub const ALL: [HelperFailure; 2] = [HelperFailure::Deny, HelperFailure::Allow];

    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            HelperFailure::Deny => "deny",
            HelperFailure::Allow => "allow",
        }
    }
}

/// Programs that change what is asked for through the forward proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardHelpers {
    /// The helper of `url_rewrite`; empty: none.
    pub url_rewrite: String,
    /// The helper of `store_id`; empty: none.
    pub store_id: String,
}

/// One `[[helper]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Helper {
    /// The name by which settings refer to it.
    pub name: String,
    /// The protocol that it speaks.
    pub kind: Kind,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Processes of it at most.
    pub children_max: usize,
    /// Processes that are started at once.
    pub startup: usize,
    /// Processes that wait for work, once there was any.
    pub idle: usize,
    /// Lines that one process is asked at once, each with the number of its channel; 0: one after the other, without a number.
    pub concurrency: usize,
    /// Questions that wait for a process.
    pub queue_max: usize,
    /// The time that one question may take, its wait for a process included.
    pub timeout: Duration,
    /// How long an answer of `OK` holds.
    pub ttl: Duration,
    /// How long an answer of `ERR` holds.
    pub negative_ttl: Duration,
    /// Bytes of the answers that are remembered.
    pub memo_bytes_max: usize,
    /// The fate of a request whose helper fails.
    pub on_failure: HelperFailure,
    /// The fields of a line of `external_acl`.
    pub format: Option<Format>,
    /// Words for `%DATA` in the format.
    pub arguments: Vec<String>,
    /// Environment variables of the processes, as `NAME=value`.
    pub environment: Vec<String>,
    /// Variables of this server's environment that the processes have too; `*` at the end is any text.
    pub inherit: Vec<String>,
    /// Where it stands.
    pub place: SourceLine,
}

impl Default for Helper {
    fn default() -> Helper {
        Helper {
            name: String::new(),
            kind: Kind::UrlRewrite,
            command: Vec::new(),
            children_max: 5,
            startup: 1,
            idle: 1,
            concurrency: 0,
            queue_max: 64,
            timeout: Duration::from_secs(10),
            ttl: Duration::from_secs(300),
            negative_ttl: Duration::from_secs(10),
            memo_bytes_max: 4 << 20,
            on_failure: HelperFailure::Deny,
            format: None,
            arguments: Vec::new(),
            environment: Vec::new(),
            inherit: Vec::new(),
            place: SourceLine::default(),
        }
    }
}

type OfHelper = Setting<Helper>;

const DAY: u64 = 86_400_000;

/// Settings of one `[[helper]]`.
pub static HELPER: &[Setting<Helper>] = &[
    OfHelper::new(
        "helper.name",
        Field::Name(|h| &mut h.name),
    )
    .required()
    .about("The name by which settings refer to it, of letters, digits, `-`, `_` and `.`."),
    OfHelper::new(
        "helper.kind",
        Field::Text {
            form: "`url_rewrite`, `store_id`, `external_acl`, `basic`, `digest`, `negotiate` or `ntlm`",
            read: |h| h.kind.as_str().to_owned(),
            write: |h, text| {
                let kind = word(&Kind::ALL, Kind::as_str, text);
                kind.map(|kind| h.kind = kind).is_some()
            },
        },
    )
    .required()
    .about("The protocol that it speaks: that of Squid's `url_rewrite_program`, `store_id_program`, `external_acl_type` or `auth_param` ([helpers.md](helpers.md))."),
    OfHelper::new(
        "helper.command",
        Field::Texts {
            form: "program and arguments",
            read: |h| h.command.clone(),
            clear: |h| h.command.clear(),
            push: |h, text| {
                h.command.push(text.to_owned());
                !text.contains('\0') && !h.command.first().is_some_and(String::is_empty)
            },
        },
    )
    .required()
    .about("The program and its arguments. No shell reads them."),
    OfHelper::new("helper.children", Field::Count(|h| &mut h.children_max))
        .between(1, 512)
        .about("Processes of it at most. Further ones start when all are at work."),
    OfHelper::new("helper.startup", Field::Count(|h| &mut h.startup))
        .between(0, 512)
        .about("Processes that are started with the server, no more than `children`."),
    OfHelper::new("helper.idle", Field::Count(|h| &mut h.idle))
        .between(0, 512)
        .about("Processes that wait for work once there was any, within `children`."),
    OfHelper::new("helper.concurrency", Field::Count(|h| &mut h.concurrency))
        .between(0, 4_096)
        .about("Lines that one process is asked at once, each with the number of its channel before it; `0`: one after the other, without a number. Most helpers know no channels. An answer without its number is an error, and the process is replaced. Helpers of `negotiate` and `ntlm` have none."),
    OfHelper::new("helper.queue", Field::Count(|h| &mut h.queue_max))
        .between(1, 100_000)
        .about("Questions that wait for a process. Beyond that the helper has failed (`on_failure`)."),
    OfHelper::new("helper.timeout", Field::Time(|h| &mut h.timeout))
        .between(10, 600_000)
        .about("The time for the answer of a process; a question waits as long at most for a process. After that the helper has failed (`on_failure`), and a process that does not answer is ended and replaced."),
    OfHelper::new("helper.ttl", Field::Time(|h| &mut h.ttl))
        .between(0, 30 * DAY)
        .about("How long an answer of `OK` holds for a line that is the same in all its fields. `0s`: it is asked each time. Answers of `negotiate` and `ntlm` hold for a connection."),
    OfHelper::new("helper.negative_ttl", Field::Time(|h| &mut h.negative_ttl))
        .between(0, 30 * DAY)
        .about("How long an answer of `ERR` holds. A rewriter that leaves a URL as it is says `ERR` too; that holds for `ttl`."),
    OfHelper::new("helper.memo", Field::Buffer(|h| &mut h.memo_bytes_max))
        .between(0, 1 << 30)
        .about("Memory for answers that are remembered. The oldest go first."),
    OfHelper::new(
        "helper.on_failure",
        Field::Text {
            form: "deny or allow",
            read: |h| h.on_failure.as_str().to_owned(),
            write: |h, text| {
                let choice = word(&HelperFailure::ALL, HelperFailure::as_str, text);
                choice.map(|choice| h.on_failure = choice).is_some()
            },
        },
    )
    .about("The fate of a request whose helper fails (no answer in time, a process that ends, a line that is no answer, `BH`): it is denied, or goes on as if there were no helper. A login never goes on."),
    OfHelper::new(
        "helper.format",
        Field::Text {
            form: "codes",
            read: |h| h.format.as_ref().map_or_else(String::new, |format| format.as_str().to_owned()),
            write: |h, text| {
                h.format = Format::parse(text).ok();
                h.format.is_some()
            },
        },
    )
    .default_words("must be given for `external_acl`")
    .about("The fields of a line of `external_acl`: `%SRC`, `%LOGIN`, `%DST`, `%PORT`, `%URI`, `%PATH`, `%PROTO`, `%METHOD`, `%SRCPORT`, `%MYADDR`, `%MYPORT`, `%{Field}`, `%ACL`, `%DATA` and Squid's newer names of these ([helpers.md](helpers.md)). An unknown one is an error."),
    OfHelper::new(
        "helper.arguments",
        Field::Texts {
            form: "words",
            read: |h| h.arguments.clone(),
            clear: |h| h.arguments.clear(),
            push: |h, text| {
                h.arguments.push(text.to_owned());
                !text.is_empty()
            },
        },
    )
    .about("The words of `%DATA`, which stands behind the other fields where the format does not place it; `-` where there are none."),
    OfHelper::new(
        "helper.environment",
        Field::Texts {
            form: "NAME=value",
            // The values may be secrets.
            read: |h| h.environment.iter().map(|text| format!("{}=…", variable_name(text))).collect(),
            clear: |h| h.environment.clear(),
            push: |h, text| {
                h.environment.push(text.to_owned());
                text.contains('=') && super::python::is_variable(variable_name(text)) && !text.contains('\0')
            },
        },
    )
    .about("Environment variables of the processes. Beside these and `inherit` they have `PATH`, `HOME`, `USER`, `LANG`, `LC_*`, `TZ` and `TMPDIR` of the server's environment, and nothing else of it."),
    OfHelper::new(
        "helper.inherit",
        Field::Texts {
            form: "names of environment variables",
            read: |h| h.inherit.clone(),
            clear: |h| h.inherit.clear(),
            push: |h, text| {
                h.inherit.push(text.to_owned());
                text == "*" || super::python::is_variable(text.strip_suffix('*').unwrap_or(text))
            },
        },
    )
    .about("Further variables of the server's environment that the processes have too, as `KRB5_KTNAME` or `KRB5*`."),
];

/// The name in `NAME=value`.
fn variable_name(text: &str) -> &str {
    text.split_once('=').map_or(text, |(name, _)| name)
}
