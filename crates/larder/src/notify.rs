//! States of the service that its manager is told (`sd_notify` of systemd, docs/installing.md): a datagram of text to
//! the socket that `NOTIFY_SOCKET` names. A unit of `Type=notify` counts as started when its sockets are open.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A state of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceState {
    /// Listening sockets are open and answered.
    Ready,
    /// Requests under way end, and no new ones are taken.
    Stopping,
}

impl ServiceState {
    fn assignment(self) -> &'static [u8] {
        match self {
            ServiceState::Ready => b"READY=1",
            ServiceState::Stopping => b"STOPPING=1",
        }
    }
}

/// Tells the service manager, where there is one that wants to know. The server goes on where the message is lost: the
/// manager ends it then when its patience is over, and the log says why.
pub fn tell(state: ServiceState) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&socket, state) {
        tracing::warn!(%error, "the service manager is not told that the server is {state:?}: NOTIFY_SOCKET leads nowhere");
    }
}

/// The name of a socket begins with `@` where it is an abstract one, which no file stands for.
fn send(socket: &OsStr, state: ServiceState) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let sender = UnixDatagram::unbound()?;
    // A manager that does not read holds up nobody.
    sender.set_nonblocking(true)?;
    sender.send_to_addr(state.assignment(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(receiver: &UnixDatagram) -> Vec<u8> {
        let mut text = [0; 64];
        let length = receiver.recv(&mut text).unwrap();
        text[..length].to_vec()
    }

    #[test]
    fn states_go_to_a_file_and_to_an_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let receiver = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), ServiceState::Ready).unwrap();
        assert_eq!(received(&receiver), b"READY=1");

        let name = format!("larder-notify-{}", std::process::id());
        let receiver = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        send(OsStr::new(&format!("@{name}")), ServiceState::Stopping).unwrap();
        assert_eq!(received(&receiver), b"STOPPING=1");
    }

    #[test]
    fn a_socket_that_is_not_there_is_an_error_and_no_panic() {
        assert!(send(OsStr::new("/nowhere/notify"), ServiceState::Ready).is_err());
        assert!(send(OsStr::new(&"x".repeat(300)), ServiceState::Ready).is_err());
        assert!(send(OsStr::new(""), ServiceState::Ready).is_err());
    }
}
