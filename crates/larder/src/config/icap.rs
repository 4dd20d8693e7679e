//! Services of ICAP (RFC 3507) that look at requests and responses: one `[[icap]]` each.

use super::python::OnFailure;
use super::setting::{Field, Setting, word};
use super::units::{parse_size, show_size};
use super::{HostPattern, SourceLine};
use larder_wire::icap::{Service, Vector};
use larder_wire::{Host, Method};
use std::time::Duration;

/// When a service is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcapStage {
    /// About each request, before it is looked up.
    Reqmod,
    /// About an answer of an origin, before it is stored: once for all clients, and hits cost nothing.
    RespmodStore,
    /// About each answer before it goes to its client, hits too.
    RespmodSend,
}

impl IcapStage {
    /// The words of the configuration.
    pub const ALL: [IcapStage; 3] = [IcapStage::Reqmod, IcapStage::RespmodStore, IcapStage::RespmodSend];

    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            IcapStage::Reqmod => "reqmod",
            IcapStage::RespmodStore => "respmod-store",
            IcapStage::RespmodSend => "respmod-send",
        }
    }

    /// The method of ICAP.
    pub fn vector(self) -> Vector {
        match self {
            IcapStage::Reqmod => Vector::Reqmod,
            IcapStage::RespmodStore | IcapStage::RespmodSend => Vector::Respmod,
        }
    }
}

/// The length of the preview of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreviewSetting {
    /// As the service wishes.
    Auto,
    /// None: the service gets the whole body at once.
    None,
    /// So many bytes, whatever the service says.
    Bytes(u64),
}

/// The fate of stored responses that a service looked at, when its ISTag changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnNewTag {
    /// They are purged: the service looks at what is fetched anew.
    Purge,
    /// They stay as they were judged.
    Keep,
}

impl OnNewTag {
    /// The words of the configuration.
    pub const ALL: [OnNewTag; 2] = [OnNewTag::Purge, OnNewTag::Keep];

    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            OnNewTag::Purge => "purge",
            OnNewTag::Keep => "keep",
        }
    }
}

/// One service, or several alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Icap {
    /// The name in log, metrics and explanations.
    pub name: String,
    /// Its URLs: the next one is asked where one is out of reach.
    pub urls: Vec<Service>,
    /// When it is asked.
    pub stage: IcapStage,
    /// Hosts of the URL; empty: any.
    pub hosts: Vec<HostPattern>,
    /// Hosts that are left out.
    pub except_hosts: Vec<HostPattern>,
    /// Methods of the request; empty: any.
    pub methods: Vec<String>,
    /// Media types of the body; empty: any.
    pub types: Vec<String>,
    /// Media types that are left out.
    pub except_types: Vec<String>,
    /// Longer bodies are not given to the service.
    pub body_bytes_max: Option<u64>,
    /// The fate of a message whose body is longer.
    pub on_longer_body: OnFailure,
    /// The fate of a message that the service could not be asked about.
    pub on_failure: OnFailure,
    /// The length of the preview.
    pub preview: PreviewSetting,
    /// So much of a body is kept while the service looks at it.
    pub kept_bytes_max: u64,
    /// Until a connection to the service is open; also how long a message waits for one of its connections.
    pub connect_timeout: Duration,
    /// From the end of the question to the head of the reply.
    pub answer_timeout: Duration,
    /// Without any progress in the middle of a question or a reply.
    pub silence_timeout: Duration,
    /// Connections to the service, of all workers.
    pub connections_max: usize,
    /// Messages that wait for a connection.
    pub waiting_max: usize,
    /// Whether the service is told the client's address.
    pub send_client: bool,
    /// Whether requests for a tunnel are given to the service.
    pub connect: bool,
    /// The fate of stored responses when the ISTag changes.
    pub on_new_tag: OnNewTag,
    /// Where it stands.
    pub place: SourceLine,
}

impl Default for Icap {
    fn default() -> Icap {
        Icap {
            name: String::new(),
            urls: Vec::new(),
            stage: IcapStage::RespmodStore,
            hosts: Vec::new(),
            except_hosts: Vec::new(),
            methods: Vec::new(),
            types: Vec::new(),
            except_types: Vec::new(),
            body_bytes_max: None,
            on_longer_body: OnFailure::Pass,
            on_failure: OnFailure::Deny,
            preview: PreviewSetting::Auto,
            kept_bytes_max: 256 * 1024,
            connect_timeout: Duration::from_secs(2),
            answer_timeout: Duration::from_secs(30),
            silence_timeout: Duration::from_secs(30),
            connections_max: 100,
            waiting_max: 1024,
            send_client: false,
            connect: false,
            on_new_tag: OnNewTag::Purge,
            place: SourceLine::default(),
        }
    }
}

impl Icap {
    /// Whether the service is for requests of this method to this host. Nothing else of a request counts, so that a judgement by
    /// host and method may be remembered.
    pub fn is_for(&self, method: &Method, host: &Host) -> bool {
        (self.methods.is_empty() || self.methods.iter().any(|named| named == method.as_str()))
            && (self.hosts.is_empty() || self.hosts.iter().any(|pattern| pattern.matches(host)))
            && !self.except_hosts.iter().any(|pattern| pattern.matches(host))
    }

    /// Whether the service is asked about tunnels to this host.
    pub fn is_for_tunnel(&self, host: &Host) -> bool {
        self.connect
            && (self.hosts.is_empty() || self.hosts.iter().any(|pattern| pattern.matches(host)))
            && !self.except_hosts.iter().any(|pattern| pattern.matches(host))
    }

    /// Whether the service is for bodies of this media type, the value of a `Content-Type`.
    pub fn is_for_type(&self, content_type: Option<&[u8]>) -> bool {
        if self.types.is_empty() && self.except_types.is_empty() {
            return true;
        }
        let named = content_type.unwrap_or_default().split(|byte| *byte == b';').next().unwrap_or_default();
        let named = String::from_utf8_lossy(named.trim_ascii()).to_ascii_lowercase();
        let is_in = |list: &[String]| list.iter().any(|pattern| matches_type(pattern, &named));
        (self.types.is_empty() || is_in(&self.types)) && !is_in(&self.except_types)
    }

    /// Whether a body of this length is too long to be given to the service.
    pub fn is_too_long(&self, bytes: u64) -> bool {
        self.body_bytes_max.is_some_and(|max| bytes > max)
    }

    /// The parts of its settings that contradict each other, with a remedy.
    pub fn contradiction(&self) -> Option<(&'static str, &'static str)> {
        match self.stage {
            _ if self.urls.is_empty() => Some(("a service without a URL", "write urls = [\"icap://127.0.0.1/echo\"]")),
            IcapStage::RespmodStore if self.send_client => Some((
                "`send_client` is not for a service that judges responses for all clients, before they are stored",
                "write stage = \"respmod-send\", or leave out `send_client`",
            )),
            IcapStage::RespmodStore | IcapStage::RespmodSend if self.connect => {
                Some(("`connect` is for requests alone", "write stage = \"reqmod\", or leave out `connect`"))
            }
            _ => None,
        }
    }
}

/// `text/html`, or `image/*` for all of a kind.
fn matches_type(pattern: &str, named: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => named.starts_with(start),
        None => named == pattern,
    }
}

/// Whether a text is a media type, or has `*` for all of a kind. Parameters are no part of it.
fn is_type(text: &str) -> bool {
    let is_token = |part: &str| larder_wire::fields::is_token(part.as_bytes());
    text.split_once('/').is_some_and(|(kind, sub)| is_token(kind) && !kind.contains('*') && is_token(sub))
}

fn read_preview(icap: &Icap) -> String {
    match icap.preview {
        PreviewSetting::Auto => "auto".to_owned(),
        PreviewSetting::None => "none".to_owned(),
        PreviewSetting::Bytes(bytes) => show_size(bytes),
    }
}

fn write_preview(icap: &mut Icap, text: &str) -> bool {
    let preview = match text {
        "auto" => Some(PreviewSetting::Auto),
        "none" => Some(PreviewSetting::None),
        size => parse_size(size).filter(|bytes| *bytes <= PREVIEW_BYTES_MAX).map(PreviewSetting::Bytes),
    };
    preview.map(|preview| icap.preview = preview).is_some()
}

/// The longest preview: so much of a body is waited for before a service is asked.
pub const PREVIEW_BYTES_MAX: u64 = 1 << 20;

type OfIcap = Setting<Icap>;

const PB: u64 = 1 << 50;
const HOUR: u64 = 3_600_000;

/// Settings of one `[[icap]]`.
pub static ICAP: &[Setting<Icap>] = &[
    OfIcap::new("icap.name", Field::Name(|i| &mut i.name))
    .required()
    .about("The name in the log, in metrics and in explanations, of letters, digits, `-`, `_` and `.`."),
    OfIcap::new("icap.urls", Field::Texts {
        form: "icap:// URLs",
        read: |i| i.urls.iter().map(ToString::to_string).collect(),
        clear: |i| i.urls.clear(),
        push: |i, text| Service::parse(text).map(|service| i.urls.push(service)).is_some(),
    })
    .required()
    .about("The service, as `icap://127.0.0.1:1344/squidclamav`. Of several, the next one is asked where one is out of reach or fails; their ISTags are told apart."),
    OfIcap::new("icap.stage", Field::Text {
        form: "reqmod, respmod-store or respmod-send",
        read: |i| i.stage.as_str().to_owned(),
        write: |i, text| {
            let stage = word(&IcapStage::ALL, IcapStage::as_str, text);
            stage.map(|stage| i.stage = stage).is_some()
        },
    })
    .about("`reqmod`: about each request, before it is looked up. `respmod-store`: about answers of origins before they are stored, once for all clients; hits cost nothing. `respmod-send`: about each answer before it goes to its client, hits too."),
    OfIcap::new("icap.hosts", Field::Texts {
        form: "host patterns",
        read: |i| i.hosts.iter().map(ToString::to_string).collect(),
        clear: |i| i.hosts.clear(),
        push: |i, text| HostPattern::parse(text).map(|host| i.hosts.push(host)).is_some(),
    })
    .about("Hosts of the URL, as those of a site. Empty: any."),
    OfIcap::new("icap.except_hosts", Field::Texts {
        form: "host patterns",
        read: |i| i.except_hosts.iter().map(ToString::to_string).collect(),
        clear: |i| i.except_hosts.clear(),
        push: |i, text| HostPattern::parse(text).map(|host| i.except_hosts.push(host)).is_some(),
    })
    .about("Hosts about which the service is not asked."),
    OfIcap::new("icap.methods", Field::Texts {
        form: "methods",
        read: |i| i.methods.clone(),
        clear: |i| i.methods.clear(),
        push: |i, text| {
            i.methods.push(text.to_owned());
            larder_wire::fields::is_token(text.as_bytes())
        },
    })
    .about("Methods of the request, as `POST`. Empty: any. `CONNECT` counts with `connect` alone."),
    OfIcap::new("icap.types", Field::Texts {
        form: "media types",
        read: |i| i.types.clone(),
        clear: |i| i.types.clear(),
        push: |i, text| {
            i.types.push(text.to_ascii_lowercase());
            is_type(text)
        },
    })
    .about("Media types of the message (`Content-Type`), as `text/html` or `application/*`. Empty: any. The sender chooses the word, so this is no protection against a sender who lies."),
    OfIcap::new("icap.except_types", Field::Texts {
        form: "media types",
        read: |i| i.except_types.clone(),
        clear: |i| i.except_types.clear(),
        push: |i, text| {
            i.except_types.push(text.to_ascii_lowercase());
            is_type(text)
        },
    })
    .about("Media types that are left out, as `text/event-stream`: a service that wants to see the end of a body holds such a stream back for ever."),
    OfIcap::new("icap.body_bytes_max", Field::SizeOrNone(|i| &mut i.body_bytes_max))
        .between(0, PB)
        .about("Bodies of a longer declared length are not given to the service; `on_longer_body` says what becomes of them. A body of undeclared length that grows longer is denied."),
    OfIcap::new("icap.on_longer_body", Field::Text {
        form: "deny or pass",
        read: |i| i.on_longer_body.as_str().to_owned(),
        write: |i, text| {
            let choice = word(&OnFailure::ALL, OnFailure::as_str, text);
            choice.map(|choice| i.on_longer_body = choice).is_some()
        },
    })
    .about("Whether a message whose body is longer than `body_bytes_max` is denied, or goes on without the service."),
    OfIcap::new("icap.on_failure", Field::Text {
        form: "deny or pass",
        read: |i| i.on_failure.as_str().to_owned(),
        write: |i, text| {
            let choice = word(&OnFailure::ALL, OnFailure::as_str, text);
            choice.map(|choice| i.on_failure = choice).is_some()
        },
    })
    .about("Whether a message that the service could not be asked about is denied, or goes on without the service. An answer that went on so is not stored."),
    OfIcap::new("icap.preview", Field::Text { form: "auto, none or a size", read: read_preview, write: write_preview })
        .about("How much of a body the service sees before it says whether it wants the rest: as the service wishes, no preview, or this size, 1 MiB at most. So much of a body is waited for before the service is asked."),
    OfIcap::new("icap.kept", Field::Size(|i| &mut i.kept_bytes_max))
        .between(0, 1 << 30)
        .about("So much of a body is kept while the service looks at it: the service may then say that all of it stays as it is (204 outside a preview), and the message survives a service that fails in the middle. Each connection may hold so much."),
    OfIcap::new("icap.connect_timeout", Field::Time(|i| &mut i.connect_timeout))
        .between(1, HOUR)
        .about("Until a connection to the service is open; also how long a message waits for one of its connections."),
    OfIcap::new("icap.answer_timeout", Field::Time(|i| &mut i.answer_timeout))
        .between(1, HOUR)
        .about("From the end of the question to the head of the service's reply."),
    OfIcap::new("icap.silence_timeout", Field::Time(|i| &mut i.silence_timeout))
        .between(1, HOUR)
        .about("How long the service may take no byte of a question, or bring none of a reply that has begun."),
    OfIcap::new("icap.connections", Field::Count(|i| &mut i.connections_max))
        .between(1, 65_536)
        .about("Connections to each URL of the service, of all workers, in use or idle; the `Max-Connections` of the service counts where it is fewer."),
    OfIcap::new("icap.waiting", Field::Count(|i| &mut i.waiting_max))
        .between(0, 1_000_000)
        .about("Messages that wait for a connection to the service. For one more the service has failed."),
    OfIcap::new("icap.send_client", Field::Flag(|i| &mut i.send_client))
        .about("Whether the service is told the client's address (`X-Client-IP`). Not with `respmod-store`, where one judgement is for all clients."),
    OfIcap::new("icap.connect", Field::Flag(|i| &mut i.connect))
        .about("Whether `reqmod` is asked about requests for a tunnel (`CONNECT`) too. The service can let such a request pass or answer it, but not change it."),
    OfIcap::new("icap.on_new_tag", Field::Text {
        form: "purge or keep",
        read: |i| i.on_new_tag.as_str().to_owned(),
        write: |i, text| {
            let choice = word(&OnNewTag::ALL, OnNewTag::as_str, text);
            choice.map(|choice| i.on_new_tag = choice).is_some()
        },
    })
    .about("Whether stored responses that this service looked at are purged when its ISTag changes, as when it has new signatures of viruses, or stay as they were judged."),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Loaded;

    #[test]
    fn a_service_is_for_some_hosts_methods_and_types() {
        let pattern = |text| HostPattern::parse(text).unwrap();
        let icap = Icap {
            hosts: vec![pattern("*.example.org")],
            except_hosts: vec![pattern("safe.example.org")],
            methods: vec!["POST".to_owned()],
            types: vec!["application/*".to_owned(), "text/html".to_owned()],
            except_types: vec!["application/json".to_owned()],
            body_bytes_max: Some(10),
            ..Icap::default()
        };
        let host = |text| Host::parse(text).unwrap();
        for (method, name, wanted) in [
            (Method::Post, "a.example.org", true),
            (Method::Get, "a.example.org", false),
            (Method::Post, "safe.example.org", false),
            (Method::Post, "example.net", false),
        ] {
            assert_eq!(icap.is_for(&method, &host(name)), wanted, "{method} {name}");
        }
        for (said, wanted) in [
            (Some("application/zip"), true),
            (Some("Application/ZIP; a=b"), true),
            (Some("application/json"), false),
            (Some("text/html;charset=utf-8"), true),
            (Some("text/plain"), false),
            (None, false),
        ] {
            assert_eq!(icap.is_for_type(said.map(str::as_bytes)), wanted, "{said:?}");
        }
        assert!(Icap::default().is_for_type(None) && Icap::default().is_for(&Method::Get, &host("a.test")));
        assert!(icap.is_too_long(11) && !icap.is_too_long(10));
    }

    #[test]
    fn media_types_and_previews() {
        for text in ["text/html", "image/*", "application/vnd.a+json"] {
            assert!(is_type(text), "{text}");
        }
        for text in ["", "text", "*/*", "text/", "text/html; a=b"] {
            assert!(!is_type(text), "{text}");
        }
        let mut icap = Icap::default();
        for (text, wanted) in [
            ("auto", Some(PreviewSetting::Auto)),
            ("none", Some(PreviewSetting::None)),
            ("4kB", Some(PreviewSetting::Bytes(4_000))),
            ("2MB", None),
            ("some", None),
        ] {
            let taken = write_preview(&mut icap, text);
            assert_eq!(taken.then_some(icap.preview), wanted, "{text}");
        }
    }

    #[test]
    fn a_table_is_read_and_its_mistakes_are_named_with_their_lines() {
        let text = "[[icap]]\nname = \"av\"\nurls = [\"icap://127.0.0.1/avscan\", \"icap://[::1]:1345/avscan\"]\npreview = \"1024\"\n";
        let loaded = Loaded::parse("larder.toml", text, &[]).unwrap_or_else(|report| panic!("{report}"));
        let icap = &loaded.config.icaps[0];
        assert_eq!(
            (icap.urls.len(), icap.preview, icap.stage),
            (2, PreviewSetting::Bytes(1024), IcapStage::RespmodStore)
        );
        let wrong = "[[icap]]\nname = \"av\"\nurls = [\"icap://a/b\"]\nsend_client = true\n\n[[icap]]\nname = \"av\"\nurls = [\"icap://a/b\"]\n\
                     connect = true\n\n[[icap]]\nname = \"c\"\nurls = [\"http://a/b\"]\ntypes = [\"html\"]\non_failure = \"maybe\"\ntimeout = \"1s\"\n\n[[icap]]\nname = \"d\"\n";
        let report =
            Loaded::parse("larder.toml", wrong, &[]).err().map(|report| report.to_string()).unwrap_or_default();
        for part in [
            "`send_client` is not for",
            "there is an [[icap]] av already",
            "`connect` is for requests alone",
            "icap.urls",
            "icap.types",
            "icap.on_failure",
            "there is no setting icap.timeout",
            "`urls` is missing",
            "larder.toml:6",
        ] {
            assert!(report.contains(part), "{part}\n{report}");
        }
    }
}
