//! A network switch in user space, for kernels that cannot shape links: each namespace has a TAP device whose frames socat
//! carries over a socket of the file system, and the switch holds each frame for the delay of the link, or loses it.

use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use crate::shell::Trouble;

/// Each end of a link holds what it sends for so long.
const DELAY: Duration = Duration::from_millis(20);
/// One frame of so many is lost.
const LOST_ONE_OF: u64 = 1_000;
/// Larger than any frame of a device with an MTU of 1,500.
const FRAME_BYTES_MAX: usize = 2_048;
/// How often a thread looks whether it is to end.
const LOOK: Duration = Duration::from_millis(200);

type Frame = (Instant, Vec<u8>);

/// The switch; its threads end with it.
pub struct Switch {
    folder: PathBuf,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    ends: AtomicBool,
    carried: AtomicU64,
    lost: AtomicU64,
    /// The ways out, by port.
    ports: Mutex<BTreeMap<u8, Sender<Frame>>>,
    /// The port behind which an address was seen.
    learned: Mutex<BTreeMap<[u8; 6], u8>>,
}

impl Switch {
    /// One whose sockets are in this folder.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), shared: Arc::default() }
    }

    /// Opens a port; gives the arguments with which socat, in the namespace of the port, joins a device eth0 to it.
    pub fn open(&self, port: u8) -> Result<Vec<String>, Trouble> {
        let (near, far) = (self.folder.join(format!("switch-{port}")), self.folder.join(format!("port-{port}")));
        let socket = UnixDatagram::bind(&near).map_err(|error| format!("{}: {error}", near.display()))?;
        socket.set_read_timeout(Some(LOOK)).map_err(|error| error.to_string())?;
        let out = socket.try_clone().map_err(|error| error.to_string())?;
        let (sender, receiver) = mpsc::channel();
        lock(&self.shared.ports).insert(port, sender);
        let device = "TUN,tun-type=tap,tun-name=eth0,iff-no-pi,iff-up".to_owned();
        let joint = format!("UNIX-SENDTO:{},bind={}", near.display(), far.display());
        let shared = self.shared.clone();
        spawn(move || shared.read(port, &socket));
        spawn(move || write(&receiver, &out, &far));
        Ok(vec![device, joint])
    }

    /// Frames that were carried, and those that were lost.
    pub fn counts(&self) -> (u64, u64) {
        (self.shared.carried.load(Relaxed), self.shared.lost.load(Relaxed))
    }

    /// Whether the program that it needs is here.
    pub fn is_possible() -> bool {
        let found = Command::new("socat").arg("-V").output().is_ok_and(|output| output.status.success());
        found && Path::new("/dev/net/tun").exists()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.shared.ends.store(true, Relaxed);
        lock(&self.shared.ports).clear();
    }
}

impl Shared {
    fn read(&self, port: u8, socket: &UnixDatagram) {
        let (mut buffer, mut draw) = ([0; FRAME_BYTES_MAX], u64::from(port) + 1);
        while !self.ends.load(Relaxed) {
            let Ok(len) = socket.recv(&mut buffer) else { continue };
            let frame = &buffer[..len];
            let (Some(to), Some(from)) = (frame.first_chunk::<6>(), frame.get(6..12)) else { continue };
            // The constants of Knuth's MMIX; the upper bits are the random ones.
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if (draw >> 33) % LOST_ONE_OF == 0 {
                self.lost.fetch_add(1, Relaxed);
                continue;
            }
            self.carried.fetch_add(1, Relaxed);
            let known = {
                let mut learned = lock(&self.learned);
                learned.insert([from[0], from[1], from[2], from[3], from[4], from[5]], port);
                learned.get(to).copied()
            };
            let due = Instant::now() + DELAY;
            for (place, way) in &*lock(&self.ports) {
                if *place != port && known.is_none_or(|known| known == *place) {
                    let _ = way.send((due, frame.to_vec()));
                }
            }
        }
    }
}

fn write(frames: &Receiver<Frame>, socket: &UnixDatagram, to: &Path) {
    for (due, frame) in frames {
        sleep(due.saturating_duration_since(Instant::now()));
        // The other end may not be there yet, or not any more: the frame is lost, as on a wire.
        let _ = socket.send_to(&frame, to);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
