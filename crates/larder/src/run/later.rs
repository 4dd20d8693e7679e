//! The requests that runs without a network could not answer: a file in the store folder. Several processes may use it at a time:
//! each change is made under a lock, for which a file of its own stands beside the list, since the list is replaced.

use super::control::LaterRequest;
use super::locked::locked;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Requests that the list holds; more are not noted.
const LISTED_MAX: usize = 10_000;
/// A longer list is not read: several runs may each add 4 MB.
const LIST_BYTES_MAX: u64 = 64 << 20;
/// The list: a line of JSON for each request, in a file that its owner alone can read.
pub struct Later(PathBuf);

impl Later {
    /// The one of a store folder.
    pub fn of(folder: &Path) -> Later {
        Later(folder.join("fetch-later.jsonl"))
    }

    /// The requests, in the order in which they were missed. Lines that are none are left out.
    pub fn read(&self) -> io::Result<Vec<LaterRequest>> {
        let file = match fs::File::open(&self.0) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(LIST_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LIST_BYTES_MAX {
            return Err(invalid("it is too long"));
        }
        let text = String::from_utf8_lossy(&bytes);
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// Adds requests that are not in it yet.
    pub fn add(&self, missing: &[LaterRequest]) -> io::Result<()> {
        if missing.is_empty() {
            return Ok(());
        }
        let _lock = self.lock()?;
        let mut all = self.read()?;
        for request in missing {
            if all.len() < LISTED_MAX && !all.iter().any(|listed| listed.is_same(request)) {
                all.push(request.clone());
            }
        }
        self.write(&all)
    }

    /// Takes requests out of it that were sent. Those that came in meanwhile stay.
    pub fn remove(&self, sent: &[LaterRequest]) -> io::Result<()> {
        let _lock = self.lock()?;
        let mut all = self.read()?;
        all.retain(|request| !sent.iter().any(|sent| sent.is_same(request)));
        self.write(&all)
    }

    /// Takes everything out of it.
    pub fn clear(&self) -> io::Result<()> {
        let _lock = self.lock()?;
        self.write(&[])
    }

    /// Waits until no other process changes the list; it is unlocked when the file is dropped.
    fn lock(&self) -> io::Result<File> {
        let place = self.0.with_extension("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(place)?;
        locked(file)
    }

    /// Writes the whole list anew; an empty one is no file. A power cut leaves the old or the new one.
    fn write(&self, all: &[LaterRequest]) -> io::Result<()> {
        if all.is_empty() {
            return match fs::remove_file(&self.0) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let new = self.0.with_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        for request in all {
            let line = serde_json::to_string(request).map_err(io::Error::other)?;
            writeln!(file, "{line}")?;
        }
        file.sync_all()?;
        fs::rename(new, &self.0)
    }
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(url: &str) -> LaterRequest {
        LaterRequest { url: url.to_owned(), fields: Vec::from([("Accept".to_owned(), "*/*".to_owned())]), part: None }
    }

    #[test]
    fn the_list_has_each_request_once_and_belongs_to_its_owner() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let later = Later::of(folder.path());
        assert_eq!(later.read().unwrap(), []);
        later.add(&[request("http://a.example/1"), request("http://a.example/2")]).unwrap();
        later.add(&[request("http://a.example/2"), request("http://a.example/3")]).unwrap();
        let urls: Vec<String> = later.read().unwrap().into_iter().map(|request| request.url).collect();
        assert_eq!(urls, ["http://a.example/1", "http://a.example/2", "http://a.example/3"]);
        assert_eq!(fs::metadata(&later.0).unwrap().permissions().mode() & 0o777, 0o600);
        // A line that somebody broke costs that line.
        let text = fs::read_to_string(&later.0).unwrap().replacen("{\"url\"", "{url", 1);
        fs::write(&later.0, text).unwrap();
        assert_eq!(later.read().unwrap().len(), 2);
        later.clear().unwrap();
        assert!(!later.0.exists());
        later.clear().unwrap();
    }

    #[test]
    fn a_part_and_the_whole_are_one_request() {
        let folder = tempfile::tempdir().unwrap();
        let later = Later::of(folder.path());
        let part = LaterRequest { part: Some("bytes=0-1".to_owned()), ..request("http://a.example/1") };
        later.add(&[part.clone(), request("http://a.example/1")]).unwrap();
        assert_eq!(later.read().unwrap(), [part]);
        later.remove(&[request("http://a.example/1")]).unwrap();
        assert_eq!(later.read().unwrap(), []);
    }

    /// Two runs that end at the same time.
    #[test]
    fn nothing_is_lost_where_several_write() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|threads| {
            for writer in 0..4 {
                let later = Later::of(folder.path());
                threads.spawn(move || {
                    for number in 0..25 {
                        later.add(&[request(&format!("http://a.example/{writer}/{number}"))]).unwrap();
                    }
                });
            }
        });
        assert_eq!(Later::of(folder.path()).read().unwrap().len(), 100);
    }
}
