//! Clients that send the first packet of a handshake, and no more.

use super::client::{WITHIN, tls};
use quinn::Endpoint;
use rustls::pki_types::CertificateDer;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

/// First packets of clients that send no further ones.
pub struct Forger {
    socket: UdpSocket,
    packets: Vec<Vec<u8>>,
    pub sent_bytes: usize,
}

impl Forger {
    /// Packets of so many clients, which were told to ask at another address.
    pub fn of(clients: usize, certificate: &CertificateDer<'static>) -> Forger {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let packets = runtime.block_on(async {
            let catcher = tokio::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
            let (mut packets, mut connecting) = (HashMap::new(), Vec::new());
            while packets.len() < clients {
                if connecting.len() == packets.len() {
                    let to = catcher.local_addr().unwrap();
                    connecting.push(endpoint.connect_with(tls(certificate, None), to, "site.test").unwrap());
                }
                let mut packet = vec![0; 2_000];
                let length = tokio::time::timeout(WITHIN, catcher.recv(&mut packet)).await.unwrap().unwrap();
                packet.truncate(length);
                // The client's number for the connection: behind the first byte, the version and its own length (RFC 9000 section 17.2).
                let number = packet[6..6 + usize::from(packet[5])].to_vec();
                // A handshake has more packets than one, and they are sent again.
                packets.entry(number).or_insert(packet);
            }
            packets.into_values().collect()
        });
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        Forger { socket, packets, sent_bytes: 0 }
    }

    /// Sends each packet once. The server's socket has room for few, so this waits now and then.
    pub fn send(&mut self, to: SocketAddr) {
        for packets in self.packets.chunks(16) {
            for packet in packets {
                self.socket.send_to(packet, to).unwrap();
                self.sent_bytes += packet.len();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The bytes that came.
    pub fn came_bytes(&self) -> usize {
        let mut room = [0; 2_000];
        std::iter::from_fn(|| self.socket.recv(&mut room).ok()).sum()
    }
}
