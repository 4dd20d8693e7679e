//! Listening sockets that the program was started with, by systemd or another that does as it does (`LISTEN_FDS`, `LISTEN_FDNAMES`;
//! docs/activation.md). Connections that come while Larder restarts wait in them.

use crate::deferred;
use listenfd::ListenFd;
use socket2::SockRef;
use std::io;
use std::net::TcpListener;

/// The sockets that were passed and that no listener has taken yet, with their names.
#[derive(Default)]
pub struct PassedSockets(Vec<(String, TcpListener)>);

impl PassedSockets {
    /// Takes the sockets of this process out of its environment; none where it was started without any.
    ///
    /// # Errors
    ///
    /// One of them is no socket of TCP that listens.
    pub fn take() -> io::Result<PassedSockets> {
        // The crate takes the variables away, so that no child takes the sockets for its own.
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut descriptors = ListenFd::from_env();
        let mut names = names.split(':');
        let mut sockets = Vec::new();
        for number in 0..descriptors.len() {
            let name = names.next().filter(|name| !name.is_empty()).unwrap_or("unknown");
            let socket = descriptors.take_tcp_listener(number).and_then(|socket| {
                let socket = socket.ok_or(io::ErrorKind::NotFound)?;
                match SockRef::from(&socket).is_listener()? {
                    true => Ok(socket),
                    false => Err(io::Error::other("it does not listen: leave out Accept=yes")),
                }
            });
            let is_none = |error: io::Error| {
                io::Error::new(
                    error.kind(),
                    format!("the socket {name:?} that was passed is no listener of TCP ({error})"),
                )
            };
            sockets.push((name.to_owned(), socket.map_err(is_none)?));
        }
        Ok(PassedSockets(sockets))
    }

    /// The next socket of this name, once for each worker: they share what waits in it.
    ///
    /// # Errors
    ///
    /// None of that name is left, or the kernel's error.
    pub fn for_listener(&mut self, name: &str, workers: usize) -> io::Result<Vec<TcpListener>> {
        let Some(found) = self.0.iter().position(|(passed, _)| passed == name) else {
            let text = format!(
                "no socket {name:?} was passed: `FileDescriptorName={name}` in the socket unit names it, and larder is started by that unit"
            );
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        };
        let (_, socket) = self.0.remove(found);
        socket.set_nonblocking(true)?;
        // An optimisation, as in `bind`.
        let _ = deferred::until_spoken(&socket);
        let mut sockets = Vec::new();
        for _ in 1..workers {
            sockets.push(socket.try_clone()?);
        }
        sockets.push(socket);
        Ok(sockets)
    }

    /// The names of those that no listener has taken.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| &**name)
    }
}
