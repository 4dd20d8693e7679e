//! Sinks of log lines. Only the log's own thread writes to them, so a slow sink holds up no other thread.

use crate::config::LogTo;
use crate::diagnostics::Unlocked;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

/// An open sink.
#[derive(Debug)]
pub enum Sink {
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
    /// A file or a FIFO, opened anew when another is at its place, or its reader was gone.
    File(LogFile),
    /// The system's log, a datagram for each line.
    Syslog(PathBuf, Option<UnixDatagram>),
}

/// A file that lines are appended to.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    open: Option<File>,
    /// It ends in the middle of a line, because there was no room for the rest.
    is_torn: bool,
}

/// Lines that were not written.
#[derive(Debug)]
pub(super) struct Lost {
    /// How many.
    pub lines: u64,
    /// Why.
    pub why: io::Error,
}

/// Facility `local0`, severity `info` (RFC 3164 section 4.1.1).
const PRIORITY: u8 = 16 * 8 + 6;

/// How long a reader that is slow (the system's log, that of a FIFO) may hold up lines.
const READER_WITHIN: Duration = Duration::from_secs(1);

/// How often a full FIFO is checked for room.
const LOOK_FOR_ROOM: Duration = Duration::from_millis(5);

/// How long a file system may take to open a file.
const OPEN_WITHIN: Duration = Duration::from_secs(5);

impl Sink {
    /// Opens it; a file is appended to. A file system that does not answer within `OPEN_WITHIN` is an error of the
    /// start or of the reload.
    pub fn open(to: &LogTo) -> io::Result<Sink> {
        let (tell, opened) = sync_channel(1);
        let to = to.clone();
        std::thread::Builder::new().name("log-open".into()).spawn(move || {
            let _ = tell.send(Sink::open_now(&to));
        })?;
        opened.recv_timeout(OPEN_WITHIN).unwrap_or_else(|_| {
            let why = "its file system does not answer: choose another place for the log";
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        })
    }

    fn open_now(to: &LogTo) -> io::Result<Sink> {
        Ok(match to {
            LogTo::Stderr => Sink::Stderr,
            LogTo::Stdout => Sink::Stdout,
            LogTo::File(path) => Sink::File(LogFile { path: path.clone(), open: Some(append(path)?), is_torn: false }),
            LogTo::Syslog(path) => Sink::Syslog(path.clone(), Some(connect(path)?)),
        })
    }

    /// Writes whole lines.
    pub(super) fn write(&mut self, lines: &[u8]) -> Result<(), Lost> {
        match self {
            Sink::Stderr => write_whole(&mut Unlocked(io::stderr().as_fd()), lines).map_err(|broke| broke.lost(lines)),
            Sink::Stdout => write_whole(&mut Unlocked(io::stdout().as_fd()), lines).map_err(|broke| broke.lost(lines)),
            Sink::File(file) => file.write(lines),
            Sink::Syslog(path, socket) => {
                let connected = match socket.take().map_or_else(|| connect(path), Ok) {
                    Ok(connected) => connected,
                    Err(why) => return Err(Broke { written: 0, why }.lost(lines)),
                };
                send(&connected, lines).map_err(|broke| broke.lost(lines))?;
                *socket = Some(connected);
                Ok(())
            }
        }
    }

    /// Opens a file anew.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        if let Sink::File(file) = self {
            file.replace(append(&file.path)?);
        }
        Ok(())
    }
}

impl LogFile {
    fn write(&mut self, lines: &[u8]) -> Result<(), Lost> {
        self.write_or_break(lines).map_err(|broke| broke.lost(lines))
    }

    fn write_or_break(&mut self, lines: &[u8]) -> Result<(), Broke> {
        let none_written = |why| Broke { written: 0, why };
        match &self.open {
            Some(file) if !was_moved(&self.path, file) => {}
            _ => self.replace(append(&self.path).map_err(none_written)?),
        }
        let Some(file) = &mut self.open else { return Ok(()) };
        if self.is_torn {
            // The newline ends the torn line, so that the next batch begins on a line of its own.
            write_whole(file, b"\n").map_err(|broke| none_written(broke.why))?;
            self.is_torn = false;
        }
        let result = write_whole(file, lines);
        if let Err(broke) = &result {
            self.is_torn = broke.written > 0 && lines[broke.written - 1] != b'\n';
            if broke.why.kind() == io::ErrorKind::BrokenPipe {
                // Nobody reads this FIFO any more; the next lines look for a new reader.
                (self.open, self.is_torn) = (None, false);
            }
        }
        result
    }

    fn replace(&mut self, file: File) {
        (self.open, self.is_torn) = (Some(file), false);
    }
}

/// A write that was not finished.
struct Broke {
    /// Bytes that were written before.
    written: usize,
    why: io::Error,
}

impl Broke {
    /// The lines of which not all was written.
    fn lost(self, lines: &[u8]) -> Lost {
        Lost { lines: super::line_count(&lines[self.written..]), why: self.why }
    }
}

/// Writes all of it. A sink without room, such as the pipe of a slow reader, is waited for a moment.
fn write_whole(to: &mut impl Write, bytes: &[u8]) -> Result<(), Broke> {
    let (mut written, mut full_since) = (0, None);
    while written < bytes.len() {
        let why = match to.write(&bytes[written..]) {
            Ok(0) => io::ErrorKind::WriteZero.into(),
            Ok(more) => {
                (written, full_since) = (written + more, None);
                continue;
            }
            Err(error) => error,
        };
        match why.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock if full_since.get_or_insert_with(Instant::now).elapsed() < READER_WITHIN => {
                std::thread::sleep(LOOK_FOR_ROOM);
            }
            _ => return Err(Broke { written, why }),
        }
    }
    Ok(())
}

/// The mode of a new file: requests of clients are not for all users of this machine. The umask may take more away.
const MODE: u32 = 0o640;

/// Opens a file without waiting for anybody, such as the reader of a FIFO.
fn append(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    let opened = OpenOptions::new().create(true).append(true).mode(MODE).custom_flags(flags).open(path);
    let kind = || std::fs::metadata(path).map(|metadata| metadata.file_type());
    let refused = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why);
    match opened {
        Ok(file) if file.metadata()?.file_type().is_block_device() => {
            Err(refused("it is a block device: name a file, a FIFO or a terminal"))
        }
        Err(_) if kind().is_ok_and(|kind| kind.is_dir()) => Err(refused("it is a folder: name a file in it")),
        Err(_) if kind().is_ok_and(|kind| kind.is_socket()) => {
            Err(refused("it is a socket: write syslog: before its path"))
        }
        Err(error) if kind().is_ok_and(|kind| kind.is_fifo()) && error.kind() != io::ErrorKind::PermissionDenied => {
            Err(refused("nobody reads this FIFO: start its reader first"))
        }
        opened => opened,
    }
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
    socket.set_write_timeout(Some(READER_WITHIN))?;
    Ok(socket)
}

fn send(socket: &UnixDatagram, lines: &[u8]) -> Result<(), Broke> {
    let mut datagram = Vec::with_capacity(512);
    let mut written = 0;
    for line in lines.split_inclusive(|&byte| byte == b'\n') {
        datagram.clear();
        let _ = write!(datagram, "<{PRIORITY}>larder[{}]: ", std::process::id());
        datagram.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
        socket.send(&datagram).map_err(|why| Broke { written, why })?;
        written += line.len();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &Path) -> io::Result<Sink> {
        Sink::open(&LogTo::File(path.to_owned()))
    }

    #[test]
    fn a_fifo_is_never_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        assert!(file(&path).unwrap_err().to_string().contains("nobody reads this FIFO"));
        let reader = || {
            let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap();
            OpenOptions::new().read(true).custom_flags(flags).open(&path).unwrap()
        };
        let read = |mut from: &File| {
            let mut text = vec![0; 1 << 20];
            let length = io::Read::read(&mut from, &mut text).unwrap();
            text.truncate(length);
            String::from_utf8(text).unwrap()
        };
        let first = reader();
        let mut sink = file(&path).unwrap();
        sink.write(b"one\n").unwrap();
        assert_eq!(read(&first), "one\n");
        // It holds some of this, and whoever reads it then finds whole lines behind it.
        let many = b"two\n".repeat(100_000);
        let lost = sink.write(&many).unwrap_err().lines;
        assert!(lost > 0 && lost < 100_000, "{lost}");
        drop(first);
        assert_eq!(sink.write(b"three\nfour\n").unwrap_err().lines, 2);
        assert_eq!(sink.write(b"five\n").unwrap_err().lines, 1, "nobody is there yet");
        let second = reader();
        sink.write(b"six\n").unwrap();
        assert_eq!(read(&second), "six\n");
    }

    #[test]
    fn what_is_no_file_is_refused_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let why = |path: &Path| file(path).unwrap_err().to_string();
        assert!(why(folder.path()).contains("folder"), "{}", why(folder.path()));
        let socket = folder.path().join("socket");
        let _daemon = UnixDatagram::bind(&socket).unwrap();
        assert!(why(&socket).contains("syslog:"), "{}", why(&socket));
    }

    #[test]
    fn a_full_disk_costs_its_lines_and_no_more() {
        let mut sink = file(Path::new("/dev/full")).unwrap();
        assert_eq!(sink.write(b"one\ntwo\n").unwrap_err().lines, 2);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut sink = file(&path).unwrap();
        sink.write(b"one\ntw").unwrap();
        let Sink::File(torn) = &mut sink else { unreachable!("it is a file") };
        torn.is_torn = true;
        sink.write(b"three\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntw\nthree\n");
    }

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
