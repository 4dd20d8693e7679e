//! Listeners that accept a connection once its first bytes are here (`TCP_DEFER_ACCEPT`): the kernel holds a silent
//! connection in less memory, and the server is woken once for connection and request instead of twice. The saving is
//! measured in docs/decisions/017. No crate here has a safe function for the option.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// After this many seconds the connection of a silent client is accepted all the same, so that limits and pages know of
/// it.
const SILENCE_SECONDS: c_int = 1;

/// `IPPROTO_TCP` and `TCP_DEFER_ACCEPT` of Linux, the same on every processor.
const TCP: c_int = 6;
const DEFER_ACCEPT: c_int = 9;

// SAFETY: the signature of `setsockopt` in POSIX, where `socklen_t` is 32 bits wide on Linux.
unsafe extern "C" {
    fn setsockopt(socket: c_int, level: c_int, name: c_int, value: *const c_void, len: u32) -> c_int;
}

/// Has connections to a socket that is going to listen wait for their first bytes.
///
/// # Errors
///
/// The kernel's error, for a socket that is not one of TCP.
pub fn until_spoken(listener: &impl AsFd) -> io::Result<()> {
    let seconds = SILENCE_SECONDS;
    // SAFETY: the descriptor is open for as long as it is borrowed; the kernel reads `len` bytes from `value`, which is
    // one `c_int` that lives until the call returns, and keeps no pointer to it.
    let result = unsafe {
        setsockopt(
            listener.as_fd().as_raw_fd(),
            TCP,
            DEFER_ACCEPT,
            (&raw const seconds).cast(),
            size_of::<c_int>() as u32,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    /// Looks until somebody is there.
    fn comes_within(listener: &TcpListener, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        while Instant::now() < end {
            if listener.accept().is_ok() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    #[test]
    fn who_speaks_is_heard_and_who_is_silent_is_let_in_later() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        until_spoken(&listener).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(listener.accept().is_err(), "nothing was said yet");
        client.write_all(b"GET").unwrap();
        assert!(comes_within(&listener, Duration::from_secs(10)));
        let _silent = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(comes_within(&listener, Duration::from_secs(30)));
    }

    #[test]
    fn another_kind_of_socket_is_refused() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(until_spoken(&one).is_err());
    }
}
