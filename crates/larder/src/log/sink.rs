//! Where log lines end up.

use crate::config::LogTo;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An open sink.
#[derive(Debug)]
pub enum Sink {
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
    /// A file, opened anew when another is at its place.
    File(PathBuf, File),
    /// The system's log, a datagram for each line.
    Syslog(PathBuf, Option<UnixDatagram>),
}

/// Facility `local0`, severity `info` (RFC 3164 section 4.1.1).
const PRIORITY: u8 = 16 * 8 + 6;

/// How long the system's log may hold up a line.
const SYSLOG_WITHIN: Duration = Duration::from_secs(1);

impl Sink {
    /// Opens it; a file is appended to.
    pub fn open(to: &LogTo) -> io::Result<Sink> {
        Ok(match to {
            LogTo::Stderr => Sink::Stderr,
            LogTo::Stdout => Sink::Stdout,
            LogTo::File(path) => Sink::File(path.clone(), append(path)?),
            LogTo::Syslog(path) => Sink::Syslog(path.clone(), Some(connect(path)?)),
        })
    }

    /// Writes whole lines.
    pub(super) fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Sink::Stderr => io::stderr().write_all(lines),
            Sink::Stdout => io::stdout().write_all(lines).and_then(|()| io::stdout().flush()),
            Sink::File(path, file) => {
                if was_moved(path, file) {
                    *file = append(path)?;
                }
                file.write_all(lines)
            }
            Sink::Syslog(path, socket) => {
                let connected = match socket.take() {
                    Some(connected) => connected,
                    None => connect(path)?,
                };
                send(&connected, lines)?;
                *socket = Some(connected);
                Ok(())
            }
        }
    }

    /// Opens a file anew.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        if let Sink::File(path, file) = self {
            *file = append(path)?;
        }
        Ok(())
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Whether another file, or none, is at the path now.
fn was_moved(path: &Path, file: &File) -> bool {
    let which = |metadata: Metadata| (metadata.dev(), metadata.ino());
    match (std::fs::metadata(path), file.metadata()) {
        (Ok(at_path), Ok(open)) => which(at_path) != which(open),
        (Err(error), _) => error.kind() == io::ErrorKind::NotFound,
        _ => false,
    }
}

fn connect(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    socket.set_write_timeout(Some(SYSLOG_WITHIN))?;
    Ok(socket)
}

fn send(socket: &UnixDatagram, lines: &[u8]) -> io::Result<()> {
    let mut datagram = Vec::with_capacity(512);
    for line in lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        datagram.clear();
        let _ = write!(datagram, "<{PRIORITY}>larder[{}]: ", std::process::id());
        datagram.extend_from_slice(line);
        socket.send(&datagram)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_s_log_gets_a_datagram_for_each_line_and_may_be_restarted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let daemon = UnixDatagram::bind(&path).unwrap();
        let mut sink = Sink::open(&LogTo::Syslog(path.clone())).unwrap();
        sink.write(b"one\ntwo\n").unwrap();
        let mut buffer = [0; 256];
        for word in ["one", "two"] {
            let length = daemon.recv(&mut buffer).unwrap();
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            assert_eq!(text, format!("<134>larder[{}]: {word}", std::process::id()));
        }
        drop(daemon);
        std::fs::remove_file(&path).unwrap();
        assert!(sink.write(b"lost\n").is_err());
        let daemon = UnixDatagram::bind(&path).unwrap();
        sink.write(b"three\n").unwrap();
        let length = daemon.recv(&mut buffer).unwrap();
        assert!(buffer[..length].ends_with(b"three"));
    }
}
