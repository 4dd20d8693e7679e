//! A way between a client and a server: as slow as a test wants, or with packets that come from elsewhere.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Bytes of packets that wait on a slow way.
const WAITING_BYTES: usize = 16 * 1024;

#[derive(Default)]
struct Course {
    is_over: AtomicBool,
    is_forged: AtomicBool,
    client: Mutex<Option<SocketAddr>>,
}

/// Passes packets on until it is dropped.
pub struct Relay {
    pub address: SocketAddr,
    course: Arc<Course>,
}

fn socket(last: u8) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, last), 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    socket
}

impl Relay {
    /// To this server, which sends at most so many bytes a second through it.
    pub fn to(server: SocketAddr, bytes_per_second: Option<u64>) -> Relay {
        let (front, back, elsewhere) = (socket(1), socket(1), socket(9));
        if bytes_per_second.is_some() {
            socket2::SockRef::from(&back).set_recv_buffer_size(WAITING_BYTES).unwrap();
        }
        let (address, course) = (front.local_addr().unwrap(), Arc::new(Course::default()));
        let (front, back) = (Arc::new(front), Arc::new(back));
        {
            let (front, back, course) = (Arc::clone(&front), Arc::clone(&back), Arc::clone(&course));
            std::thread::spawn(move || {
                let mut room = [0; 2_000];
                while !course.is_over.load(Ordering::SeqCst) {
                    let Ok((length, client)) = front.recv_from(&mut room) else { continue };
                    *course.client.lock().unwrap() = Some(client);
                    let by = if course.is_forged.load(Ordering::SeqCst) { &elsewhere } else { &*back };
                    let _ = by.send_to(&room[..length], server);
                }
            });
        }
        let of_thread = Arc::clone(&course);
        std::thread::spawn(move || {
            let mut room = [0; 2_000];
            while !of_thread.is_over.load(Ordering::SeqCst) {
                let Ok(length) = back.recv(&mut room) else { continue };
                if let Some(rate) = bytes_per_second {
                    std::thread::sleep(Duration::from_micros(length as u64 * 1_000_000 / rate));
                }
                if let Some(client) = *of_thread.client.lock().unwrap() {
                    let _ = front.send_to(&room[..length], client);
                }
            }
        });
        Relay { address, course }
    }

    /// Has the client's packets come from 127.0.0.9, where nobody reads the server's.
    pub fn forge(&self, forges: bool) {
        self.course.is_forged.store(forges, Ordering::SeqCst);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.course.is_over.store(true, Ordering::SeqCst);
    }
}
