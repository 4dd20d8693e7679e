//! A listener as its connections and their requests see it: its settings, and the listener that replaced it after a reload.

use crate::clock;
use crate::config::{Forwarding, Listen, MirrorRule, MirrorSetting, Mirroring, Networks, SiteOrigin, Transparent};
use crate::reach::Asker;
use crate::record::{Network, Run, Way};
use crate::tls::clients::ClientTrust;
use crate::tls::served::ServedCertificate;
use crate::tls::server::Certificates;
use quinn::crypto::rustls::QuicServerConfig;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// One listener; all workers share it.
#[derive(Default)]
pub struct Listener {
    /// The address in the configuration.
    pub address: Option<SocketAddr>,
    /// Whether its clients come by a Unix socket, and have no address.
    pub is_unix: bool,
    /// The address of its sockets, with the port that was free; known once they are open.
    bound: OnceLock<SocketAddr>,
    /// Serves TLS with these certificates.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// These certificates, as operators are told of them.
    pub served: Vec<ServedCertificate>,
    /// The certificates of clients that it asks for, where it does.
    pub clients: Option<Arc<ClientTrust>>,
    /// Whether TLS in CONNECT tunnels is intercepted with certificates of the local CA.
    pub intercept: bool,
    /// Whether clients may speak HTTP/2.
    pub http2: bool,
    /// TLS within QUIC, where clients may speak HTTP/3.
    pub quic: Option<Arc<QuicServerConfig>>,
    alt_svc: OnceLock<String>,
    /// The certificates of `tls`, which say what hosts a connection of HTTP/2 may ask for.
    pub certificates: Option<Arc<Certificates>>,
    /// Whether clients may use it as a forward proxy.
    pub forwarding: Forwarding,
    /// Which URLs clients may ask for in the path.
    pub mirroring: MirrorRule,
    /// Networks of balancers whose connections begin with a header of the PROXY protocol.
    pub proxy_protocol: Networks,
    /// How the kernel brings connections here that clients have opened to other servers.
    pub transparent: Transparent,
    /// Whether clients speak SOCKS.
    pub socks: bool,
    /// Whether TLS to sites that say so goes to their origins unopened.
    pub pass_through: bool,
    /// Whether it serves other nodes of the cluster, and nobody else.
    pub serves_nodes: bool,
    /// Which clients can connect to the listener.
    pub asker: Asker,
    /// The origin of all requests on this listener, where it serves one site.
    pub origin: Option<Arc<SiteOrigin>>,
    /// The `larder run` that this listener belongs to.
    pub run: Option<Arc<Run>>,
    closed: AtomicBool,
    changing: Notify,
    successor: OnceLock<Arc<Listener>>,
}

/// For so long a client may go on to HTTP/3 at once, in seconds (RFC 7838 section 3.1).
const ALT_SVC_SECONDS: u32 = 86_400;

/// How a listener serves TLS.
pub struct TlsOfListener {
    /// TLS over TCP.
    pub tls: Arc<rustls::ServerConfig>,
    /// TLS within QUIC, where it is served.
    pub quic: Option<Arc<QuicServerConfig>>,
    /// The certificates of both.
    pub certificates: Arc<Certificates>,
}

impl Listener {
    /// A listener of the configuration, with these certificates.
    pub fn of(listen: &Listen, tls: Option<TlsOfListener>, clients: Option<Arc<ClientTrust>>) -> Listener {
        let (quic, certificates, tls) = match tls {
            Some(served) => (served.quic, Some(served.certificates), Some(served.tls)),
            None => (None, None, None),
        };
        Listener {
            address: Some(listen.address),
            is_unix: listen.socket.is_some(),
            certificates,
            tls,
            quic,
            clients,
            intercept: listen.intercept,
            http2: listen.http2,
            forwarding: listen.forwarding(),
            mirroring: listen.mirroring(),
            proxy_protocol: listen.proxy_protocol.clone(),
            transparent: listen.transparent,
            socks: listen.socks,
            pass_through: listen.pass_through,
            asker: Asker::at(listen),
            origin: listen.origin.clone(),
            ..Listener::default()
        }
    }

    /// Tells the operator of certificates that have ended, or soon will.
    pub fn tell_ends(&self) {
        let now = clock::now();
        self.served.iter().filter_map(|served| served.trouble(now)).for_each(|trouble| tracing::warn!("{trouble}"));
    }

    /// The listener of one `larder run`, on which clients may speak HTTP/2 or not.
    pub fn of_run(run: Arc<Run>, way: Way, http2: bool) -> Listener {
        let asker = match run.network {
            Network::Used => Asker::ThisMachine,
            Network::Untouched => Asker::OfflineRun,
        };
        let setting = MirrorSetting::Always(Mirroring::All);
        let mirroring = MirrorRule { setting, ..MirrorRule::default() };
        Listener {
            intercept: way == Way::Proxy,
            http2,
            forwarding: Forwarding::On,
            mirroring,
            asker,
            run: Some(run),
            ..Listener::default()
        }
    }

    /// The listener for other nodes of the cluster at this address. It forwards where any of these does: a node asks for what one of
    /// its clients may have.
    pub fn of_nodes(address: SocketAddr, listens: &[Listen]) -> Listener {
        let all = || listens.iter().map(Listen::forwarding);
        let forwarding =
            [Forwarding::On, Forwarding::WithoutSites].into_iter().find(|each| all().any(|it| it == *each));
        Listener {
            address: Some(address),
            forwarding: forwarding.unwrap_or(Forwarding::Off),
            mirroring: MirrorRule { setting: MirrorSetting::Always(Mirroring::None), ..MirrorRule::default() },
            serves_nodes: true,
            asker: Asker::at(&Listen::at(address)),
            ..Listener::default()
        }
    }

    /// Whether its clients are answered without the network.
    pub fn is_offline(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.network == Network::Untouched)
    }

    /// The `larder run` that this listener belongs to, if the run uses the network.
    pub fn online_run(&self) -> Option<&Run> {
        self.run.as_deref().filter(|run| run.network == Network::Used)
    }

    /// Notes the address of its sockets, and whether an earlier listener has one of UDP there. Where that served HTTP/3 and this one
    /// does not, clients are told to forget it (RFC 7838 section 3).
    pub fn note_bound(&self, address: SocketAddr, has_quic_socket: bool) {
        let _ = self.bound.set(address);
        let line = match self.quic {
            Some(_) => format!("Alt-Svc: h3=\":{}\"; ma={ALT_SVC_SECONDS}\r\n", address.port()),
            None if has_quic_socket => "Alt-Svc: clear\r\n".to_owned(),
            None => return,
        };
        let _ = self.alt_svc.set(line);
    }

    /// The line by which answers over TLS tell clients that HTTP/3 is served at the same port (RFC 9114 section 3.1.1), or no more.
    pub fn alt_svc(&self) -> Option<&str> {
        self.tls.as_ref()?;
        self.in_force().alt_svc.get().map(String::as_str)
    }

    /// The address of its sockets, where they have one.
    pub fn bound(&self) -> Option<SocketAddr> {
        if self.is_unix {
            return None;
        }
        self.bound.get().or(self.address.as_ref()).copied()
    }

    /// The port of its sockets.
    pub fn port(&self) -> Option<u16> {
        self.bound().map(|address| address.port())
    }

    /// Accepts no more connections, on any worker.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.changing.notify_waiters();
    }

    /// Connections that are accepted from now on belong to the other listener; the sockets stay.
    pub fn replace_by(&self, other: Arc<Listener>) {
        let _ = self.successor.set(other);
        self.changing.notify_waiters();
    }

    /// This listener, or the last one that replaced it, so that a reload that forbids something applies to open connections too.
    pub fn in_force(&self) -> &Listener {
        let mut listener = self;
        while let Some(successor) = listener.successor.get() {
            listener = successor;
        }
        listener
    }

    /// Whether a connection that was accepted here was asked for another certificate than those that are accepted now.
    pub fn asks_for_other_certificates(&self) -> bool {
        match (&self.clients, &self.in_force().clients) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(then), Some(now)) => !then.is_same(now),
        }
    }

    /// Waits until this listener closes (`None`) or is replaced.
    pub async fn changed(&self) -> Option<Arc<Listener>> {
        let changing = self.changing.notified();
        tokio::pin!(changing);
        changing.as_mut().enable();
        if !self.closed.load(Ordering::Acquire) && self.successor.get().is_none() {
            changing.await;
        }
        self.successor.get().cloned()
    }
}
