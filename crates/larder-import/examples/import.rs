//! `cargo run -p larder-import --example import -- squid FILE`: the translation on standard output, counts on standard error,
//! without a check by Larder. `larder import` is the command for users.

use larder_import::{Files, Format, Settings, import};
use std::io::Write;
use std::path::{Path, PathBuf};

struct Disk(PathBuf);

impl Files for Disk {
    fn read(&mut self, path: &str) -> Result<String, String> {
        let bytes = std::fs::read(self.0.join(path)).map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn matching(&mut self, pattern: &str) -> Vec<String> {
        if pattern.contains('*') { Vec::new() } else { vec![pattern.to_owned()] }
    }

    fn is_there(&mut self, path: &str) -> bool {
        self.0.join(path).is_file()
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let [_, format, file] = words.as_slice() else { return };
    let Some(format) = Format::ALL.into_iter().find(|known| known.as_str() == format) else { return };
    let path = Path::new(file);
    let mut disk = Disk(path.parent().unwrap_or(Path::new("")).to_owned());
    let Ok(text) = disk.read(path.file_name().and_then(|name| name.to_str()).unwrap_or_default()) else { return };
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let settings = Settings { format, name, zone: Some("UTC".to_owned()) };
    let imported = import(&text, &settings, &mut disk);
    let mut out = std::io::stdout().lock();
    let mut say = std::io::stderr().lock();
    let written = write!(out, "{}", imported.toml).and_then(|()| writeln!(say, "{}", imported.counts()));
    if written.is_err() {
        return;
    }
    for note in &imported.notes {
        if writeln!(say, "{}\t{}\t{}", note.fate.as_str(), note.directive, note.is_open_question()).is_err() {
            return;
        }
    }
}
