//! Faults between Larder and an origin, as values: the event, whether asking again is permitted, and what the
//! client is told.

use crate::reach;
use larder_cache::entry::FailureKind;
use larder_wire::Fault;
use std::fmt;
use std::io;

/// Why a name gave no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DnsTrouble {
    /// The name does not exist, or has no address.
    NotFound,
    /// No name server gave a usable answer.
    Failed,
    /// No name server answered in time.
    Timeout,
}

/// The trouble with an origin's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CertificateTrouble {
    /// It is past its last day.
    Expired,
    /// Its first day has not come (or the clock of this machine is behind).
    NotYetValid,
    /// It names other hosts than the one that was asked.
    WrongName,
    /// No authority that is trusted here has issued it.
    UnknownIssuer,
    /// It vouches for itself: an authority's certificate is used as a server's.
    SelfSigned,
    /// The authority that it names has not signed it.
    BadSignature,
    /// Its issuer took it back.
    Revoked,
    /// Anything else: bad encoding, wrong purpose.
    Unusable,
}

impl CertificateTrouble {
    /// The word that logs and pages show.
    pub fn as_str(self) -> &'static str {
        match self {
            CertificateTrouble::Expired => "certificate-expired",
            CertificateTrouble::NotYetValid => "certificate-not-yet-valid",
            CertificateTrouble::WrongName => "certificate-wrong-name",
            CertificateTrouble::UnknownIssuer => "certificate-unknown-issuer",
            CertificateTrouble::SelfSigned => "certificate-self-signed",
            CertificateTrouble::BadSignature => "certificate-bad-signature",
            CertificateTrouble::Revoked => "certificate-revoked",
            CertificateTrouble::Unusable => "certificate-unusable",
        }
    }
}

/// Why there is no TLS session with an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlsTrouble {
    /// The origin could not prove who it is.
    CertificateInvalid {
        /// The trouble with its certificate.
        why: CertificateTrouble,
    },
    /// The handshake broke off: no common version or cipher, an alert, or no TLS at all.
    Handshake,
}

/// The kind of a fault. Each has one word for logs and one status for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamFaultKind {
    /// The origin's name gave no address.
    Dns(DnsTrouble),
    /// No address of the origin is one to which the asker may be led.
    OutOfReach,
    /// No program listens at the origin's port.
    Refused,
    /// No route leads to the origin.
    Unreachable,
    /// No connection came about within `connect_timeout`.
    ConnectTimeout,
    /// No TLS session came about.
    Tls(TlsTrouble),
    /// The request was sent and no answer began within `first_byte_timeout`.
    FirstByteTimeout,
    /// A message began and made no progress for `idle_timeout`.
    IdleTimeout,
    /// The connection broke, or ended before the first byte of an answer.
    Reset,
    /// The answer ended before its framing said so.
    Truncated,
    /// The answer breaks the rules of HTTP.
    Wire(Fault),
    /// More interim (1xx) heads than `interim_heads_max`.
    TooManyInterim,
    /// The client left in the middle of its request.
    ClientGone,
    /// As many requests are under way at the origin as may be, and no place was free to wait or none of them ended in time.
    Busy,
    /// The client has as many requests at the origin as one client may have, or its request gave way to one of another client.
    ClientBusy,
    /// The request is of the lowest class, and was refused because others wait for too long.
    Shed,
    /// No member of a group may be asked.
    NoMember,
    /// Somebody else answers in the origin's place: a captive portal.
    Portal,
    /// The application that this server runs can't be loaded.
    Application,
    /// A parent did not pass the request on.
    Parent,
    /// No connection to a parent came about, for this reason.
    ParentAway(Box<UpstreamFaultKind>),
    /// A service of ICAP gave no usable word about the message.
    Icap,
}

impl UpstreamFaultKind {
    /// The word that logs and pages show.
    pub fn as_str(&self) -> &'static str {
        match self {
            UpstreamFaultKind::Dns(DnsTrouble::NotFound) => "dns-not-found",
            UpstreamFaultKind::Dns(DnsTrouble::Failed) => "dns-failed",
            UpstreamFaultKind::Dns(DnsTrouble::Timeout) => "dns-timeout",
            UpstreamFaultKind::OutOfReach => reach::REFUSED,
            UpstreamFaultKind::Refused => "refused",
            UpstreamFaultKind::Unreachable => "unreachable",
            UpstreamFaultKind::ConnectTimeout => "connect-timeout",
            UpstreamFaultKind::Tls(TlsTrouble::CertificateInvalid { why }) => why.as_str(),
            UpstreamFaultKind::Tls(TlsTrouble::Handshake) => "tls-handshake",
            UpstreamFaultKind::FirstByteTimeout => "first-byte-timeout",
            UpstreamFaultKind::IdleTimeout => "idle-timeout",
            UpstreamFaultKind::Reset => "reset",
            UpstreamFaultKind::Truncated => "truncated",
            UpstreamFaultKind::Wire(_) => "malformed",
            UpstreamFaultKind::TooManyInterim => "too-many-interim",
            UpstreamFaultKind::ClientGone => "client-gone",
            UpstreamFaultKind::Busy => "busy",
            UpstreamFaultKind::ClientBusy => "client-busy",
            UpstreamFaultKind::Shed => "shed",
            UpstreamFaultKind::NoMember => "no-member",
            UpstreamFaultKind::Portal => "portal",
            UpstreamFaultKind::Application => "application-failed",
            UpstreamFaultKind::Parent | UpstreamFaultKind::ParentAway(_) => "parent",
            UpstreamFaultKind::Icap => "icap",
        }
    }

    /// The status to answer: 504 when time ran out, 503 when we are full, 403 when it is not permitted, otherwise 502.
    pub fn status(&self) -> u16 {
        match self {
            UpstreamFaultKind::Dns(DnsTrouble::Timeout)
            | UpstreamFaultKind::ConnectTimeout
            | UpstreamFaultKind::FirstByteTimeout
            | UpstreamFaultKind::IdleTimeout => 504,
            UpstreamFaultKind::Busy
            | UpstreamFaultKind::ClientBusy
            | UpstreamFaultKind::Shed
            | UpstreamFaultKind::NoMember
            | UpstreamFaultKind::Icap => 503,
            UpstreamFaultKind::OutOfReach => 403,
            UpstreamFaultKind::ParentAway(why) => why.status(),
            _ => 502,
        }
    }
}

/// Whether the same request may be sent a second time without a person being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Retry {
    /// A connection that had served before ended without a byte of an answer: the usual race with an origin that closes idle
    /// connections. An idempotent request may be sent once more on a new connection (RFC 9110 section 9.2.2, RFC 9112 section
    /// 9.3.1).
    IfIdempotent,
    /// A process of an application ended and had not read the request: the system says so. It goes to another process, as often as
    /// that happens, within reason.
    Unread,
    /// The origin has said by HTTP/2 that it did not process the request (RFC 9113 section 8.7), or nothing of it was sent: it may be sent
    /// again, whatever its method, if its body is whole.
    Unprocessed,
    /// It may not, or it would fail again.
    No,
}

/// Whether an address of the origin had accepted a connection. Only kinds that can come before and after that look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HasContact {
    Yes,
    No,
}

/// A request to an origin that came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamFault {
    /// The kind of fault.
    pub kind: UpstreamFaultKind,
    /// Whether asking again is permitted; `Upstreams::call` does that by itself.
    pub(super) retry: Retry,
    pub(super) has_contact: HasContact,
    /// One fact for the person who reads the error page or the log, in lower case without a full stop.
    pub detail: String,
}

impl UpstreamFault {
    /// A fault after which the request must not be sent again.
    pub fn new(kind: UpstreamFaultKind, detail: impl Into<String>) -> UpstreamFault {
        UpstreamFault { kind, retry: Retry::No, has_contact: HasContact::No, detail: detail.into() }
    }

    /// The refusal to go there; it does not say where.
    pub fn out_of_reach() -> UpstreamFault {
        let detail = "the proxy does not connect to that address (`access.destinations` opens networks)";
        UpstreamFault::new(UpstreamFaultKind::OutOfReach, detail)
    }

    /// The refusal of a rule to go there; it does not say where.
    pub fn closed_by(rule: &str) -> UpstreamFault {
        UpstreamFault::new(UpstreamFaultKind::OutOfReach, format!("a rule does not permit that destination: {rule}"))
    }

    /// The refusal of a request of the lowest class, with the reason.
    pub fn shed(why: impl fmt::Display) -> UpstreamFault {
        let detail = format!("{why}, and rules give this request a low priority");
        UpstreamFault::new(UpstreamFaultKind::Shed, detail)
    }

    /// The client is gone, and with it the rest of the request.
    pub(super) fn client_left() -> UpstreamFault {
        UpstreamFault::new(UpstreamFaultKind::ClientGone, "the client left before its request was complete")
    }

    /// The word that logs and pages show.
    pub fn as_str(&self) -> &'static str {
        self.kind.as_str()
    }

    /// Whether nothing of the origin's side was heard at all: no name server, no program at its port, no address that accepted a
    /// connection. A handshake that comes to nothing is no such fault: somebody is there.
    pub fn is_out_of_reach(&self) -> bool {
        use UpstreamFaultKind::{ConnectTimeout, Dns, Portal, Refused, Unreachable};
        let kind = match &self.kind {
            UpstreamFaultKind::ParentAway(why) => why,
            kind => kind,
        };
        // A name server that says that there is no such name is heard well.
        let is_silent = matches!(kind, Dns(DnsTrouble::Failed | DnsTrouble::Timeout))
            || matches!(kind, Refused | Unreachable | ConnectTimeout | Portal);
        self.has_contact == HasContact::No && is_silent
    }

    /// Whether an address had accepted the connection.
    pub(super) fn is_after_contact(&self) -> bool {
        self.has_contact == HasContact::Yes || matches!(self.kind, UpstreamFaultKind::Tls(_))
    }

    /// How far the request got. An origin that can't prove who it is, one that answers nonsense, an address that may not be asked and
    /// our own full queue do not disconnect a cache.
    pub fn distance(&self) -> FailureKind {
        use UpstreamFaultKind::{Busy, ClientBusy, Icap, OutOfReach, Shed, Tls, TooManyInterim, Wire};
        match self.kind {
            Tls(TlsTrouble::CertificateInvalid { .. }) => FailureKind::Identity,
            Tls(_) | Wire(_) | TooManyInterim | Busy | ClientBusy | Shed | OutOfReach | Icap => FailureKind::Answer,
            _ if self.is_out_of_reach() => FailureKind::OutOfReach,
            _ => FailureKind::Disconnected,
        }
    }

    /// The same fault, met on a connection that had been accepted.
    pub(super) fn after_contact(self) -> UpstreamFault {
        UpstreamFault { has_contact: HasContact::Yes, ..self }
    }

    /// The status to answer the client with.
    pub fn status(&self) -> u16 {
        self.kind.status()
    }

    pub(super) fn wire(fault: Fault) -> UpstreamFault {
        UpstreamFault::new(UpstreamFaultKind::Wire(fault.clone()), fault.to_string())
    }

    pub(super) fn reset(error: &io::Error, doing: &str) -> UpstreamFault {
        UpstreamFault::new(UpstreamFaultKind::Reset, format!("the connection broke while {doing}: {error}"))
    }

    /// One attempt to connect failed.
    pub(super) fn dial(error: &io::Error, to: std::net::SocketAddr) -> UpstreamFault {
        let kind = match error.kind() {
            io::ErrorKind::ConnectionRefused => UpstreamFaultKind::Refused,
            io::ErrorKind::TimedOut => UpstreamFaultKind::ConnectTimeout,
            io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => UpstreamFaultKind::Reset,
            _ => UpstreamFaultKind::Unreachable,
        };
        UpstreamFault::new(kind, format!("{to}: {error}"))
    }

    /// The TLS handshake with `host` failed.
    pub(super) fn tls(error: &io::Error, host: &str) -> UpstreamFault {
        let certificate = match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(rustls::Error::InvalidCertificate(certificate)) => Some(certificate),
            _ => None,
        };
        let trouble = match certificate {
            Some(certificate) => TlsTrouble::CertificateInvalid { why: certificate_trouble(certificate) },
            None => TlsTrouble::Handshake,
        };
        UpstreamFault::new(UpstreamFaultKind::Tls(trouble), tls_detail(trouble, error, host))
    }
}

impl fmt::Display for UpstreamFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            // The detail names the parent.
            UpstreamFaultKind::Parent | UpstreamFaultKind::ParentAway(_) => f.write_str(&self.detail),
            _ => write!(f, "{}: {}", self.as_str(), self.detail),
        }
    }
}

impl std::error::Error for UpstreamFault {}

fn certificate_trouble(error: &rustls::CertificateError) -> CertificateTrouble {
    use rustls::CertificateError as E;
    match error {
        E::Expired | E::ExpiredContext { .. } => CertificateTrouble::Expired,
        E::NotValidYet | E::NotValidYetContext { .. } => CertificateTrouble::NotYetValid,
        E::NotValidForName | E::NotValidForNameContext { .. } => CertificateTrouble::WrongName,
        E::UnknownIssuer => CertificateTrouble::UnknownIssuer,
        E::BadSignature => CertificateTrouble::BadSignature,
        E::Revoked => CertificateTrouble::Revoked,
        // The verifier knows this case only by its own error, which rustls passes on unnamed.
        E::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => CertificateTrouble::SelfSigned,
        _ => CertificateTrouble::Unusable,
    }
}

fn tls_detail(trouble: TlsTrouble, error: &io::Error, host: &str) -> String {
    let TlsTrouble::CertificateInvalid { why } = trouble else {
        return format!("no tls session with {host}: {error}");
    };
    let sentence = match why {
        CertificateTrouble::Expired => "has expired",
        CertificateTrouble::NotYetValid => "is not valid yet; is this machine's clock right?",
        CertificateTrouble::WrongName => "is for another name",
        CertificateTrouble::UnknownIssuer => "was issued by an authority that is not trusted here, or by itself",
        CertificateTrouble::SelfSigned => "is self-signed and not trusted here",
        CertificateTrouble::BadSignature => "is not signed by the authority that it names",
        CertificateTrouble::Revoked => "was revoked",
        CertificateTrouble::Unusable => "can't be used",
    };
    format!("the certificate of {host} {sentence} ({error})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_status() {
        let table = [
            (UpstreamFaultKind::Dns(DnsTrouble::NotFound), "dns-not-found", 502),
            (UpstreamFaultKind::Dns(DnsTrouble::Timeout), "dns-timeout", 504),
            (UpstreamFaultKind::Refused, "refused", 502),
            (UpstreamFaultKind::ConnectTimeout, "connect-timeout", 504),
            (UpstreamFaultKind::FirstByteTimeout, "first-byte-timeout", 504),
            (UpstreamFaultKind::IdleTimeout, "idle-timeout", 504),
            (UpstreamFaultKind::Busy, "busy", 503),
            (UpstreamFaultKind::ClientBusy, "client-busy", 503),
            (UpstreamFaultKind::Shed, "shed", 503),
            (UpstreamFaultKind::NoMember, "no-member", 503),
            (UpstreamFaultKind::TooManyInterim, "too-many-interim", 502),
            (UpstreamFaultKind::Tls(TlsTrouble::Handshake), "tls-handshake", 502),
        ];
        for (kind, word, status) in table {
            assert_eq!((kind.as_str(), kind.status()), (word, status));
        }
    }

    #[test]
    fn a_failed_dial_is_named_by_its_cause() {
        let to = "127.0.0.1:9".parse().unwrap();
        let kind = |kind: io::ErrorKind| UpstreamFault::dial(&kind.into(), to).kind;
        assert_eq!(kind(io::ErrorKind::ConnectionRefused), UpstreamFaultKind::Refused);
        assert_eq!(kind(io::ErrorKind::HostUnreachable), UpstreamFaultKind::Unreachable);
        assert_eq!(kind(io::ErrorKind::TimedOut), UpstreamFaultKind::ConnectTimeout);
    }

    #[test]
    fn how_far_a_request_got_decides_what_may_stand_in() {
        use UpstreamFaultKind::{
            Busy, ClientBusy, ConnectTimeout, Dns, Portal, Refused, Reset, Shed, Tls, Unreachable,
        };
        let wrong = TlsTrouble::CertificateInvalid { why: CertificateTrouble::WrongName };
        for (kind, distance) in [
            (Tls(wrong), FailureKind::Identity),
            (Tls(TlsTrouble::Handshake), FailureKind::Answer),
            (Busy, FailureKind::Answer),
            (ClientBusy, FailureKind::Answer),
            (Shed, FailureKind::Answer),
            (Reset, FailureKind::Disconnected),
            // The name server is heard well.
            (Dns(DnsTrouble::NotFound), FailureKind::Disconnected),
            (Dns(DnsTrouble::Timeout), FailureKind::OutOfReach),
            (Refused, FailureKind::OutOfReach),
            (Unreachable, FailureKind::OutOfReach),
            (ConnectTimeout, FailureKind::OutOfReach),
            (Portal, FailureKind::OutOfReach),
        ] {
            assert_eq!(UpstreamFault::new(kind.clone(), "x").distance(), distance, "{kind:?}");
        }
        let in_tls = UpstreamFault::new(ConnectTimeout, "x").after_contact();
        assert_eq!((in_tls.distance(), in_tls.is_after_contact()), (FailureKind::Disconnected, true));
    }
}
