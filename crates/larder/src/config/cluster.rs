//! Settings of a cluster: the NATS servers by which several machines hear of one another's purges, and where they ask one another.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Servers of NATS that may be named; a client tries them in turns.
const SERVERS_MAX: usize = 16;

/// The longest name of a node, a zone or a space of subjects: they stand in subjects of NATS.
pub const CLUSTER_NAME_BYTES_MAX: usize = 64;

/// The cluster that this server is a node of, if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// Servers of NATS as `nats://host:port` or `tls://host:port`; without one there is no cluster.
    pub nats: Vec<String>,
    /// The name of this node; empty: that of the machine.
    pub name: String,
    /// The zone of this node; empty where there is one zone.
    pub zone: String,
    /// HOST:PORT at which other nodes reach this one; empty: the first listener.
    pub address: String,
    /// Where other nodes ask this one for responses; without it keys have no homes here.
    pub listen: Option<SocketAddr>,
    /// HOST:PORT by which other nodes come to `listen`; empty: that address itself.
    pub advertise: String,
    /// A file with the secret by which nodes know one another.
    pub secret_file: Option<PathBuf>,
    /// How long the home of a key may take for the head of its answer before the origin is asked beside it.
    pub home_wait: Duration,
    /// The use of stored responses while purges of other nodes may not be known.
    pub apart: Apart,
    /// The first word of all subjects, and of the stream's name.
    pub subjects: String,
    /// Purges that the stream holds at most, each scope once.
    pub purges_max: usize,
    /// A file of credentials of NATS (a JWT and its seed).
    pub credentials: Option<PathBuf>,
    /// A file with the seed of an nkey.
    pub nkey: Option<PathBuf>,
    /// A file of certificates that are trusted beside those of the system.
    pub ca: Option<PathBuf>,
    /// The certificate that this node presents.
    pub certificate: Option<PathBuf>,
    /// The key of that certificate.
    pub key: Option<PathBuf>,
}

impl Default for ClusterSettings {
    fn default() -> ClusterSettings {
        ClusterSettings {
            nats: Vec::new(),
            name: String::new(),
            zone: String::new(),
            address: String::new(),
            listen: None,
            advertise: String::new(),
            secret_file: None,
            home_wait: Duration::from_secs(2),
            apart: Apart::Validate,
            subjects: "larder".to_owned(),
            purges_max: 1_000_000,
            credentials: None,
            nkey: None,
            ca: None,
            certificate: None,
            key: None,
        }
    }
}

impl ClusterSettings {
    /// Whether this server is a node of a cluster.
    pub fn is_on(&self) -> bool {
        !self.nats.is_empty()
    }

    /// Where other nodes come to `cluster.listen`, which is bound to this address; `None` where they can't be told.
    pub fn advertised(&self, bound: SocketAddr) -> Option<String> {
        match self.advertise.is_empty() {
            false => Some(self.advertise.clone()),
            true => (!bound.ip().is_unspecified()).then(|| bound.to_string()),
        }
    }

    /// The files that it names, with their settings.
    pub fn files(&self) -> impl Iterator<Item = (&'static str, &PathBuf)> {
        let files = [
            ("cluster.secret_file", &self.secret_file),
            ("cluster.credentials", &self.credentials),
            ("cluster.nkey", &self.nkey),
            ("cluster.ca", &self.ca),
            ("cluster.certificate", &self.certificate),
            ("cluster.key", &self.key),
        ];
        files.into_iter().filter_map(|(name, file)| Some((name, file.as_ref()?)))
    }

    /// Takes a server of NATS; gives whether it had the form of one.
    pub(super) fn push_server(&mut self, text: &str) -> bool {
        let is_server = self.nats.len() < SERVERS_MAX && is_server(text);
        if is_server {
            self.nats.push(text.to_owned());
        }
        is_server
    }
}

/// The shortest secret of a cluster, in bytes.
pub const CLUSTER_SECRET_BYTES_MIN: usize = 32;

/// The secret in a file, without space around it; an error says what is wrong with it.
pub fn read_cluster_secret(file: &Path) -> Result<Vec<u8>, String> {
    let shown = file.display();
    let bytes = std::fs::read(file).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let secret = bytes.trim_ascii();
    match secret.len() {
        len if len < CLUSTER_SECRET_BYTES_MIN => {
            Err(format!("the secret in {shown} has {len} bytes, fewer than {CLUSTER_SECRET_BYTES_MIN}"))
        }
        _ => Ok(secret.to_vec()),
    }
}

/// The use of stored responses while this node may not have heard of purges that others made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apart {
    /// The origin is asked before each use.
    Validate,
    /// They are used as ever: a purge of another node may be passed over.
    Serve,
    /// Requests that stored responses could answer get 503.
    Refuse,
}

impl Apart {
    /// All of them.
    pub const ALL: [Apart; 3] = [Apart::Validate, Apart::Serve, Apart::Refuse];

    /// The word of the setting.
    pub fn as_str(self) -> &'static str {
        match self {
            Apart::Validate => "validate",
            Apart::Serve => "serve",
            Apart::Refuse => "refuse",
        }
    }
}

/// Whether a text may stand in a subject of NATS as one word: letters, digits, `-` and `_`.
pub fn is_subject_word(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !text.is_empty() && text.len() <= CLUSTER_NAME_BYTES_MAX && text.bytes().all(is_plain)
}

/// HOST:PORT, where the host is a name or an address.
pub fn is_reachable(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match bare {
        Some(bare) => bare.parse::<std::net::Ipv6Addr>().is_ok(),
        None => larder_wire::Host::parse(host).is_some(),
    };
    is_host && port.parse::<u16>().is_ok_and(|port| port != 0) && text.len() <= 255
}

/// A password in the URL would be shown wherever settings are, so there is none.
fn is_server(text: &str) -> bool {
    let rest = text.strip_prefix("nats://").or_else(|| text.strip_prefix("tls://"));
    rest.is_some_and(|rest| match rest.contains(':') {
        true => is_reachable(rest),
        false => larder_wire::Host::parse(rest).is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_no_passwords() {
        for right in ["nats://127.0.0.1:4222", "tls://nats.example:4443", "nats://nats.example", "nats://[::1]:4222"] {
            assert!(is_server(right), "{right}");
        }
        for wrong in [
            "127.0.0.1:4222",
            "http://a.example:1",
            "nats://",
            "nats://user:secret@a.example:4222",
            "nats://a:0",
            "tls://a:b",
        ] {
            assert!(!is_server(wrong), "{wrong}");
        }
    }

    #[test]
    fn names_are_words_of_subjects() {
        assert!(is_subject_word("cache-1_a"));
        for wrong in ["", "a.b", "a b", "*", ">", "ä", &"a".repeat(65)] {
            assert!(!is_subject_word(wrong), "{wrong}");
        }
    }
}
