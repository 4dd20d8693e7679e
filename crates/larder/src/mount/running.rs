//! The call that a process of hooks runs, as the process notes it in memory that it shares with this server. A process runs one call at
//! a time, of whichever connection: by the note a call that hangs is told from those that only wait behind it.

use crate::clock;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// When the call began (u64, nanoseconds), its number (u32), the hook that runs (u16) and 0 (u16), little-endian.
const NOTE_BYTES: usize = 16;

/// How often a note is read that changes meanwhile.
const READS_MAX: usize = 4;

/// A call that a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningCall {
    /// Its number, which no other call of the process has.
    pub number: u32,
    /// The place of the hook that runs.
    pub hook: u16,
    /// When the first hook of the call began, by the clock that all processes of the machine share.
    began: Duration,
}

impl RunningCall {
    /// How long it has run.
    pub fn time(&self) -> Duration {
        clock::shared().saturating_sub(self.began)
    }

    /// Whether the note can be true, where calls have the numbers up to this one.
    pub(super) fn is_credible(&self, last: u32) -> bool {
        // Numbers begin anew one day.
        last.wrapping_sub(self.number) <= u32::MAX / 2 && self.began <= clock::shared()
    }

    /// Whether this is the same call, in whichever of its hooks.
    pub fn is_same(&self, other: &RunningCall) -> bool {
        (self.number, self.began) == (other.number, other.began)
    }
}

/// A note that can't be true, because something else than the runtime wrote into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UntrueNote;

/// The memory of one process.
#[derive(Debug)]
pub struct RunningNote(File);

impl RunningNote {
    /// Memory for a process that is about to be started, and the descriptor that this one inherits.
    pub fn make() -> io::Result<(RunningNote, OwnedFd)> {
        // Without CLOEXEC: the process finds it by its number. Of another child that inherits it by chance it says nothing.
        let inherited = memfd_create("larder-running", MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&inherited, NOTE_BYTES as u64)?;
        // The process adds the last seals, when it has mapped the memory: from then on nobody writes by a descriptor.
        fcntl_add_seals(&inherited, SealFlags::SHRINK | SealFlags::GROW)?;
        Ok((RunningNote(File::from(inherited.try_clone()?)), inherited))
    }

    /// The call that runs; `None` while none does. A process may write into its note at any time: it counts where two reads agree.
    pub fn read(&self) -> Option<RunningCall> {
        let mut before = self.bytes()?;
        for _ in 0..READS_MAX {
            let now = self.bytes()?;
            if now == before {
                return parse(&now);
            }
            before = now;
        }
        None
    }

    fn bytes(&self) -> Option<[u8; NOTE_BYTES]> {
        let mut bytes = [0; NOTE_BYTES];
        self.0.read_exact_at(&mut bytes, 0).ok()?;
        Some(bytes)
    }
}

fn parse(bytes: &[u8; NOTE_BYTES]) -> Option<RunningCall> {
    let (began, rest) = bytes.split_first_chunk::<8>()?;
    let (number, rest) = rest.split_first_chunk::<4>()?;
    let (hook, _) = rest.split_first_chunk::<2>()?;
    let number = u32::from_le_bytes(*number);
    let began = Duration::from_nanos(u64::from_le_bytes(*began));
    (number != 0).then(|| RunningCall { number, hook: u16::from_le_bytes(*hook), began })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_what_the_process_wrote_last() {
        let (note, inherited) = RunningNote::make().unwrap();
        assert_eq!(note.read(), None, "nothing runs yet");
        let process = File::from(inherited);
        let write = |began: u64, number: u32, hook: u16| {
            let bytes = [&began.to_le_bytes()[..], &number.to_le_bytes(), &hook.to_le_bytes(), &[0, 0]].concat();
            process.write_all_at(&bytes, 0).unwrap();
        };
        let began = clock::shared().saturating_sub(Duration::from_secs(3));
        write(began.as_nanos() as u64, 7, 2);
        let call = note.read().unwrap();
        assert_eq!((call.number, call.hook), (7, 2));
        assert!(call.time() >= Duration::from_secs(3) && call.time() < Duration::from_secs(600));
        write(began.as_nanos() as u64, 7, 3);
        assert!(note.read().unwrap().is_same(&call), "another hook of the same call");
        write(u64::MAX, 8, 0);
        assert_eq!(note.read().unwrap().time(), Duration::ZERO, "a time that has not come is none");
        assert!(!note.read().unwrap().is_credible(8) && call.is_credible(7) && call.is_credible(9));
        assert!(!call.is_credible(6) && call.is_credible(7_u32.wrapping_add(u32::MAX / 2)));
        assert!(!note.read().unwrap().is_same(&call));
        write(0, 0, 0);
        assert_eq!(note.read(), None);
        assert!(process.set_len(0).is_err() && process.set_len(1 << 20).is_err());
    }
}
