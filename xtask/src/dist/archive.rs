//! Formats of archives, byte for byte the same for the same content: names sorted, one time for all, no word of the
//! machine or the user that wrote them.

use crate::shell::Trouble;
use flate2::write::{DeflateEncoder, GzEncoder};
use flate2::{Compression, Crc};
use larder_wire::date::{Stamp, civil, format_date};
use std::collections::BTreeMap;
use std::io::Write;

/// A file or a folder of an archive.
pub struct Entry {
    /// Relative, without `./`.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// The number of its user and of its group.
    pub owner: u32,
    /// `None` for a folder.
    pub bytes: Option<Vec<u8>>,
}

impl Entry {
    /// A file that everybody may read.
    pub fn file(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Entry {
        Entry { path: path.into(), mode: 0o644, owner: 0, bytes: Some(bytes.into()) }
    }

    /// A file that everybody may run.
    pub fn program(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Entry {
        Entry { mode: 0o755, ..Entry::file(path, bytes) }
    }

    /// A folder of a user.
    pub fn folder(path: impl Into<String>, mode: u32, owner: u32) -> Entry {
        Entry { path: path.into(), mode, owner, bytes: None }
    }
}

/// Sorted by name, each folder once and before its files; folders that nobody named are those of root.
pub fn complete(entries: Vec<Entry>) -> Vec<Entry> {
    let mut all: BTreeMap<String, Entry> = BTreeMap::new();
    for entry in entries {
        for (end, _) in entry.path.match_indices('/') {
            let above = &entry.path[..end];
            all.entry(above.to_owned()).or_insert_with(|| Entry::folder(above, 0o755, 0));
        }
        all.insert(entry.path.clone(), entry);
    }
    all.into_values().collect()
}

/// A tar archive (POSIX ustar) of complete entries. `prefix` stands before each name (`./` in Debian's packages).
pub fn tar(entries: &[Entry], prefix: &str, seconds: u64) -> Result<Vec<u8>, Trouble> {
    let mut archive = Vec::new();
    for entry in entries {
        let bytes = entry.bytes.as_deref().unwrap_or_default();
        archive.extend(tar_header(entry, prefix, seconds)?);
        archive.extend_from_slice(bytes);
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.resize((archive.len() + 1_024).next_multiple_of(10_240), 0);
    Ok(archive)
}

fn tar_header(entry: &Entry, prefix: &str, seconds: u64) -> Result<[u8; 512], Trouble> {
    // The folder that all is in has no name but the prefix, which ends with a slash.
    let slash = if entry.bytes.is_none() && !entry.path.is_empty() { "/" } else { "" };
    let name = format!("{prefix}{}{slash}", entry.path);
    if name.len() > 100 {
        return Err(format!("{name} is too long a name for an archive: at most 100 bytes"));
    }
    let mut header = [0; 512];
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    let size = entry.bytes.as_ref().map_or(0, Vec::len);
    put(0, &name);
    put(100, &format!("{:07o}", entry.mode));
    put(108, &format!("{:07o}", entry.owner));
    put(116, &format!("{:07o}", entry.owner));
    put(124, &format!("{size:011o}"));
    put(136, &format!("{seconds:011o}"));
    put(148, "        ");
    put(156, if entry.bytes.is_none() { "5" } else { "0" });
    put(257, "ustar\x0000");
    // The sum is of a header whose own field of the sum is spaces.
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(header)
}

/// An archive of `ar`, the outer form of Debian's packages.
pub fn ar(members: &[(&str, Vec<u8>)], seconds: u64) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        let size = bytes.len();
        archive.extend(format!("{name:<16}{seconds:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 100_644).bytes());
        archive.extend_from_slice(bytes);
        archive.resize(archive.len().next_multiple_of(2), b'\n');
    }
    archive
}

/// gzip without a name and a time.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // A vector takes everything.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// A ZIP archive of the files among the entries. Its times have no zone and are those of UTC.
pub fn zip(entries: &[Entry], seconds: u64) -> Result<Vec<u8>, Trouble> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    let files: Vec<&Entry> = entries.iter().filter(|entry| entry.bytes.is_some()).collect();
    for entry in &files {
        let bytes = entry.bytes.as_deref().unwrap_or_default();
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        let packed = encoder.write_all(bytes).and_then(|()| encoder.finish());
        let packed = packed.map_err(|error| format!("compressing {}: {error}", entry.path))?;
        let mut sum = Crc::new();
        sum.update(bytes);
        let at = size_of(archive.len())?;
        // Version 2.0, names in UTF-8, deflated; then time, sum and sizes (APPNOTE 4.3.7).
        let mut common: Vec<u8> = [20u16, 1 << 11, 8].iter().flat_map(|number| number.to_le_bytes()).collect();
        common.extend(dos_time(seconds).to_le_bytes());
        for number in [sum.sum(), size_of(packed.len())?, size_of(bytes.len())?] {
            common.extend(number.to_le_bytes());
        }
        common.extend(u16::try_from(entry.path.len()).map_err(|_| "a name is too long")?.to_le_bytes());
        common.extend([0; 2]);
        archive.extend(b"PK\x03\x04");
        archive.extend(&common);
        archive.extend(entry.path.bytes());
        archive.extend(packed);
        // Made by Unix, whose modes of files stand in the upper half of the attributes.
        directory.extend(b"PK\x01\x02\x14\x03");
        directory.extend(&common);
        directory.extend([0; 6]);
        directory.extend(((0o100_000 | entry.mode) << 16).to_le_bytes());
        directory.extend(at.to_le_bytes());
        directory.extend(entry.path.bytes());
    }
    let (begins, length) = (size_of(archive.len())?, size_of(directory.len())?);
    let many = u16::try_from(files.len()).map_err(|_| "too many files for a ZIP archive")?.to_le_bytes();
    archive.extend(directory);
    archive.extend(b"PK\x05\x06\0\0\0\0");
    archive.extend([many, many].concat());
    archive.extend([length.to_le_bytes(), begins.to_le_bytes()].concat());
    archive.extend([0; 2]);
    Ok(archive)
}

fn size_of(length: usize) -> Result<u32, Trouble> {
    u32::try_from(length).map_err(|_| "more than 4 GiB in a ZIP archive".to_owned())
}

/// Two seconds are the unit of these times, which begin in 1980.
fn dos_time(seconds: u64) -> u32 {
    let (year, month, day) = civil(seconds / 86_400);
    let of_day = seconds % 86_400;
    let time = (of_day / 3_600) << 11 | (of_day / 60 % 60) << 5 | (of_day % 60 / 2);
    let day = year.saturating_sub(1980) << 9 | month << 5 | day;
    u32::try_from(day << 16 | time).unwrap_or_default()
}

/// As `Sat, 28 Nov 2026 16:48:00 +0000` (RFC 5322).
pub fn mail_date(seconds: u64) -> String {
    String::from_utf8_lossy(&format_date(Stamp(seconds))).replace("GMT", "+0000")
}

/// SHA-256 in hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hex(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes).as_ref())
}

/// In hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_seconds() {
        assert_eq!(mail_date(1_795_884_480), "Sat, 28 Nov 2026 16:48:00 +0000");
    }

    #[test]
    fn folders_come_before_their_files_and_once() {
        let entries = vec![Entry::file("a/b/c", "1"), Entry::folder("a/b", 0o700, 7), Entry::file("a-b", "2")];
        let all = complete(entries);
        let paths: Vec<(&str, u32)> = all.iter().map(|entry| (&*entry.path, entry.owner)).collect();
        assert_eq!(paths, [("a", 0), ("a-b", 0), ("a/b", 7), ("a/b/c", 0)]);
    }

    #[test]
    fn a_name_that_does_not_fit_is_an_error() {
        let long = Entry::file("x".repeat(101), "");
        assert!(tar(&[long], "", 0).unwrap_err().contains("too long a name"));
    }
}
