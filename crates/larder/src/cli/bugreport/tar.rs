//! The simplest archive of tar (POSIX ustar): files that their owner alone may read, with short names.

/// An archive of these files. Names are shorter than 100 bytes.
pub(super) fn archive<'a>(files: impl Iterator<Item = (&'a str, &'a [u8])>, seconds: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, bytes) in files {
        out.extend(header(name, bytes.len(), seconds));
        out.extend_from_slice(bytes);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1_024, 0);
    out
}

fn header(name: &str, size: usize, seconds: u64) -> [u8; 512] {
    let mut header = [0; 512];
    let fields = [
        (0, name.to_owned()),
        (100, "0000600".to_owned()),
        (108, "0000000".to_owned()),
        (116, "0000000".to_owned()),
        (124, format!("{size:011o}")),
        (136, format!("{seconds:011o}")),
        // The sum is of a header whose own field of the sum is spaces.
        (148, " ".repeat(8)),
        (156, "0".to_owned()),
        (257, "ustar\x0000".to_owned()),
    ];
    for (at, text) in fields {
        for (slot, byte) in header[at..].iter_mut().zip(text.bytes()) {
            *slot = byte;
        }
    }
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    for (slot, byte) in header[148..].iter_mut().zip(format!("{sum:06o}\0 ").bytes()) {
        *slot = byte;
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn tar_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let long = "x".repeat(1_025);
        let files = [("a.txt", "one\n".as_bytes()), ("b.txt", long.as_bytes()), ("empty.txt", b"")];
        let path = folder.path().join("a.tar");
        std::fs::write(&path, archive(files.into_iter(), 1_700_000_000)).unwrap();
        let done = Command::new("tar").arg("-xf").arg(&path).arg("-C").arg(folder.path()).output().unwrap();
        assert!(done.status.success() && done.stderr.is_empty(), "{}", String::from_utf8_lossy(&done.stderr));
        for (name, bytes) in files {
            assert_eq!(std::fs::read(folder.path().join(name)).unwrap(), bytes, "{name}");
        }
    }
}
