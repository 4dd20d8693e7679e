//! Tar files (ustar, POSIX.1-1988) of plain files: written, and read as what a stranger may have made. Nothing is unpacked
//! to a disk, and everything that is not a plain file under a plain path is refused.

use std::collections::BTreeMap;

const BLOCK: usize = 512;
/// Bytes of a path that the header's field takes.
const PATH_BYTES_MAX: usize = 100;
/// A bundle of a long contest has some hundreds of files.
const FILES_MAX: usize = 4_096;

/// Files by their paths.
pub type Files = BTreeMap<String, Vec<u8>>;

/// The files as a tar file, in the order of their paths; the same files give the same bytes.
pub fn write(files: &Files) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    for (path, bytes) in files {
        plain(path)?;
        out.extend_from_slice(&header(path, bytes.len()));
        out.extend_from_slice(bytes);
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
    out.resize(out.len() + 2 * BLOCK, 0);
    Ok(out)
}

fn header(path: &str, size: usize) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, path);
    put(100, "0000644\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{size:011o}\0"));
    put(136, "00000000000\0");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum = checksum(&header);
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

/// The sum of a header's bytes, with blanks for the sum itself.
fn checksum(header: &[u8; BLOCK]) -> u64 {
    let outside = |at: usize| !(148..156).contains(&at);
    header.iter().enumerate().map(|(at, byte)| if outside(at) { u64::from(*byte) } else { 32 }).sum()
}

/// The files of a tar file. A fault says where it is.
pub fn read(bytes: &[u8]) -> Result<Files, String> {
    let mut files = Files::new();
    let mut at = 0;
    loop {
        let place = format!("at byte {at}");
        let Some(header) = bytes.get(at..at + BLOCK).and_then(|block| <&[u8; BLOCK]>::try_from(block).ok()) else {
            return Err(format!("{place}: the file ends where a header or the end mark must be; fetch it again"));
        };
        if header.iter().all(|byte| *byte == 0) {
            return match bytes[at..].iter().all(|byte| *byte == 0) {
                true => Ok(files),
                false => Err(format!("{place}: something follows the end mark; nothing may")),
            };
        }
        if number(&header[148..156]) != Some(checksum(header)) {
            return Err(format!("{place}: no header of a tar file; a bundle is not compressed"));
        }
        let path = text(&header[..PATH_BYTES_MAX]).ok_or_else(|| format!("{place}: the path is not UTF-8"))?;
        if header[345..500].iter().any(|byte| *byte != 0) {
            return Err(format!("{place}: {path:?} has a prefix; a path here has {PATH_BYTES_MAX} bytes at most"));
        }
        if !matches!(header[156], b'0' | 0) {
            let kind = char::from(header[156]).escape_default().to_string();
            return Err(format!("{place}: {path:?} is no plain file (type {kind}); links and devices are refused"));
        }
        plain(path).map_err(|reason| format!("{place}: {reason}"))?;
        let size = number(&header[124..136]).ok_or_else(|| format!("{place}: the size of {path:?} is no number"))?;
        let from = at + BLOCK;
        let body = usize::try_from(size).ok().and_then(|size| bytes.get(from..from.checked_add(size)?));
        let Some(body) = body else {
            return Err(format!("{place}: {path:?} says {size} bytes, and {} are left", bytes.len() - from));
        };
        if files.len() >= FILES_MAX {
            return Err(format!("{place}: more than {FILES_MAX} files; make a bundle for each contest"));
        }
        if files.insert(path.to_owned(), body.to_vec()).is_some() {
            return Err(format!("{place}: {path:?} is there twice"));
        }
        at = from + body.len().next_multiple_of(BLOCK);
    }
}

/// Refuses a path that would lead out of a folder, or that two systems read in two ways.
fn plain(path: &str) -> Result<(), String> {
    let is_fine = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    match path.len() <= PATH_BYTES_MAX && path.split('/').all(is_fine) {
        true => Ok(()),
        false => Err(format!(
            "{path:?} is refused: a path has at most {PATH_BYTES_MAX} letters, digits, dots, dashes and underlines, is relative, and no part of it begins with a dot"
        )),
    }
}

fn text(field: &[u8]) -> Option<&str> {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    std::str::from_utf8(&field[..end]).ok()
}

/// An octal number, as the fields of a header have it.
fn number(field: &[u8]) -> Option<u64> {
    let digits = text(field)?.trim();
    if digits.is_empty() || digits.starts_with('+') { None } else { u64::from_str_radix(digits, 8).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Files {
        Files::from([("a/b.txt".to_owned(), b"hello".to_vec()), ("c".to_owned(), vec![7; 1_024])])
    }

    #[test]
    fn files_are_written_and_read_alike_and_by_others() {
        let bytes = write(&files()).unwrap();
        assert_eq!(read(&bytes).unwrap(), files());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.tar");
        std::fs::write(&file, bytes).unwrap();
        let Ok(listed) = std::process::Command::new("tar").arg("tf").arg(&file).output() else { return };
        assert!(listed.status.success(), "{listed:?}");
        assert_eq!(String::from_utf8_lossy(&listed.stdout), "a/b.txt\nc\n");
    }

    /// A header with another path, kind or size, and its right sum.
    fn forged(path: &str, kind: u8, size: &str) -> Vec<u8> {
        let mut header = header("x", 0);
        header[..100].fill(0);
        header[..path.len()].copy_from_slice(path.as_bytes());
        header[156] = kind;
        header[124..124 + size.len()].copy_from_slice(size.as_bytes());
        let sum = checksum(&header);
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        [&header[..], &[0; 2 * BLOCK]].concat()
    }

    #[test]
    fn hostile_files_are_refused_with_their_place() {
        let twice = [&header("x", 0)[..], &header("x", 0)[..], &[0; 2 * BLOCK]].concat();
        let behind = [&write(&files()).unwrap()[..], b"more"].concat();
        for (bytes, reason) in [
            (forged("../x", b'0', "0"), "\"../x\" is refused"),
            (forged("a/../../x", b'0', "0"), "is refused"),
            (forged("/etc/passwd", b'0', "0"), "is refused"),
            (forged("a//b", b'0', "0"), "is refused"),
            (forged("a\nb", b'0', "0"), "is refused"),
            (forged("x", b'2', "0"), "no plain file (type 2)"),
            (forged("x", b'1', "0"), "no plain file"),
            (forged("x", b'x', "0"), "no plain file"),
            (forged("x", b'0', "77777777777"), "says 8589934591 bytes"),
            (forged("x", b'0', "-1234567890"), "no number"),
            (forged("x", b'0', "+1234567012"), "no number"),
            (twice, "at byte 512: \"x\" is there twice"),
            (behind, "follows the end mark"),
            (b"\x1f\x8b\x08".repeat(300), "not compressed"),
            (write(&files()).unwrap()[..1_600].to_vec(), "says 1024 bytes"),
            (Vec::new(), "at byte 0: the file ends"),
        ] {
            let error = read(&bytes).unwrap_err();
            assert!(error.contains(reason) && error.starts_with("at byte "), "{reason}: {error}");
        }
        let many: Files = (0..=FILES_MAX).map(|number| (format!("f{number}"), Vec::new())).collect();
        assert!(read(&write(&many).unwrap()).unwrap_err().contains("more than 4096 files"));
        assert!(write(&Files::from([("../x".to_owned(), Vec::new())])).is_err());
    }
}
