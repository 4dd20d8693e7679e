//! `larder import`: a configuration of Squid, nginx or Varnish as a `larder.toml`.

use super::{TROUBLE, WRONG};
use crate::config::Loaded;
use crate::diagnostics;
use crate::lines;
use clap::{Args, ValueEnum};
use larder_import::{Files, Format, Imported, SOURCE_BYTES_MAX, Settings, guess, import};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Exit status where something that decides who may do what is not as it was.
const OPEN: u8 = 3;
/// Open questions that are shown on standard error; all stand in the file.
const SHOWN_MAX: usize = 10;
/// Files that a pattern means, at most.
const MATCHES_MAX: usize = 1_000;

#[derive(Args)]
#[command(after_help = "\
Examples:
  larder import /etc/squid/squid.conf --out larder.toml    Squid: rules, lists, helpers, logins
  larder import /etc/nginx/nginx.conf                      nginx: sites with proxy_cache, with all that it includes
  larder import --from varnish - < default.vcl             Varnish: the usual shapes of a VCL
  larder import squid.conf --report                        only what is not the same, as a table

Every line of the source stands in the result, with what became of it: translated, different, not needed or missing. An access
rule that Larder can't express denies what it would have allowed. Then `larder check --config larder.toml`.
Exit status: 0 all was translated or is not needed, or differs in nothing that decides who may do what; 1 trouble; 2 a wrong
command line; 3 a line that decides who may do what is not the same: look at it. docs/coming-from-squid.md, -nginx.md and
-varnish.md say what is called otherwise.")]
pub(super) struct ImportFlags {
    /// The configuration; - is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The program that the configuration is for; guessed from its name and content where it is left out
    #[arg(long, value_name = "squid|nginx|varnish")]
    from: Option<From>,
    /// Write the result to this file, which must not be there yet; one that may have passwords in it is for its owner alone
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print only what is not the same, as a table
    #[arg(long, conflicts_with = "out")]
    report: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum From {
    Squid,
    Nginx,
    Varnish,
}

pub(super) fn run(flags: &ImportFlags) -> u8 {
    let text = match source(&flags.file) {
        Ok(text) => text,
        Err(error) => {
            diagnostics::say(format_args!("error: cannot read {}: {error}", flags.file.display()));
            return TROUBLE;
        }
    };
    let name = flags.file.file_name().map_or("-".to_owned(), |name| name.to_string_lossy().into_owned());
    let named = flags.from.map(|from| match from {
        From::Squid => Format::Squid,
        From::Nginx => Format::Nginx,
        From::Varnish => Format::Varnish,
    });
    let Some(format) = named.or_else(|| guess(&flags.file.display().to_string(), &text)) else {
        diagnostics::say(format_args!(
            "error: {}: whose configuration it is can't be guessed: give --from squid, --from nginx or --from varnish",
            flags.file.display()
        ));
        return WRONG;
    };
    let settings = Settings { format, name, zone: zone() };
    let folder = flags.file.parent().unwrap_or(Path::new("")).to_owned();
    let imported = import(&text, &settings, &mut Disk { folder });
    if flags.report {
        return super::print(imported.report()).max(said(&imported));
    }
    if let Err(report) = Loaded::parse("larder.toml", &imported.toml, &[]) {
        diagnostics::say_text(format_args!(
            "{report}\nerror: Larder would not take the translation of {}; that is a fault of `larder import`, please report it with the line",
            flags.file.display()
        ));
        return TROUBLE;
    }
    let written = match &flags.out {
        Some(out) => write(out, &imported),
        None => match super::print(&imported.toml) {
            0 => {
                if imported.has_secrets {
                    diagnostics::say(format_args!(
                        "the result may have passwords in it: `--out FILE` writes it so that nobody but you can read it"
                    ));
                }
                Ok(())
            }
            status => return status,
        },
    };
    if let Err(trouble) = written {
        diagnostics::say(format_args!("error: {trouble}"));
        return TROUBLE;
    }
    said(&imported)
}

/// Says the counts on standard error, and gives the exit status.
fn said(imported: &Imported) -> u8 {
    let open: Vec<String> = imported.guards_to_look_at().map(ToString::to_string).collect();
    open.iter().take(SHOWN_MAX).for_each(|note| diagnostics::say(format_args!("look at {note}")));
    if open.len() > SHOWN_MAX {
        diagnostics::say(format_args!(
            "and at {} further lines, which stand first in the result",
            open.len() - SHOWN_MAX
        ));
    }
    diagnostics::say(format_args!("{} directives: {}", imported.notes.len(), imported.counts()));
    if open.is_empty() { 0 } else { OPEN }
}

fn source(file: &Path) -> io::Result<String> {
    if file.as_os_str() != "-" {
        return text_of(file);
    }
    let mut bytes = Vec::new();
    io::stdin().lock().take(SOURCE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    checked(bytes)
}

/// The text of a file. Old configurations have comments in other encodings than UTF-8.
fn text_of(file: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    fs::File::open(file)?.take(SOURCE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    checked(bytes)
}

fn checked(bytes: Vec<u8>) -> io::Result<String> {
    if bytes.len() > SOURCE_BYTES_MAX {
        let message = format!("it is longer than {SOURCE_BYTES_MAX} bytes: is it the right file?");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// Writes the configuration to a file that is not there yet. One that may have passwords in it is for its owner alone from its beginning.
fn write(out: &Path, imported: &Imported) -> Result<(), String> {
    let mode = if imported.has_secrets { 0o600 } else { 0o666 };
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(out);
    let written = file.and_then(|mut file| file.write_all(imported.toml.as_bytes()));
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            format!("there is a {} already, which stays as it is: give another name", out.display())
        }
        _ => format!("cannot write {}: {error}", out.display()),
    })?;
    if imported.has_secrets {
        diagnostics::say(format_args!(
            "{} may have passwords in it, so that nobody but its owner can read it (mode 0600): give it to the user that Larder runs as, or put them into files (\"${{FILE:/path}}\")",
            out.display()
        ));
    }
    Ok(())
}

/// The time zone of this machine, by the file that tells it to the C library.
fn zone() -> Option<String> {
    let of_environment = std::env::var("TZ").ok().map(|zone| zone.trim_start_matches(':').to_owned());
    let linked = || {
        let target = fs::canonicalize("/etc/localtime").ok()?;
        Some(target.to_str()?.split_once("/zoneinfo/")?.1.to_owned())
    };
    let written = || Some(fs::read_to_string("/etc/timezone").ok()?.trim().to_owned());
    let zone = of_environment.filter(|zone| !zone.is_empty()).or_else(linked).or_else(written)?;
    let zone = if zone == "Etc/UTC" { "UTC".to_owned() } else { zone };
    larder_rules::week::Zone::find(&zone).ok().map(|_| zone)
}

/// Files as they lie on this machine; a relative path begins at the folder of the source.
struct Disk {
    folder: PathBuf,
}

impl Files for Disk {
    fn read(&mut self, path: &str) -> Result<String, String> {
        text_of(&self.folder.join(path)).map_err(|error| error.to_string())
    }

    fn matching(&mut self, pattern: &str) -> Vec<String> {
        let (parent, last) = pattern.rsplit_once('/').map_or(("", pattern), |(parent, last)| (parent, last));
        if !last.contains(['*', '?', '[']) {
            return vec![pattern.to_owned()];
        }
        let folder = if pattern.starts_with('/') && parent.is_empty() { Path::new("/") } else { Path::new(parent) };
        let Ok(entries) = fs::read_dir(self.folder.join(folder)) else { return Vec::new() };
        let mut paths: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| !name.starts_with('.') && fits(last.as_bytes(), name.as_bytes()))
            .map(|name| folder.join(name).display().to_string())
            .collect();
        paths.sort();
        paths.truncate(MATCHES_MAX);
        paths
    }

    fn is_there(&mut self, path: &str) -> bool {
        lines::text_of(&self.folder.join(path), u64::from(u32::MAX)).is_ok()
    }
}

/// Whether a name fits a pattern with `*` and `?`.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut seen, mut star) = (0, 0, None);
    while seen < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, seen));
                at += 1;
            }
            Some(byte) if *byte == b'?' || Some(byte) == name.get(seen) => (at, seen) = (at + 1, seen + 1),
            _ => match star {
                Some((star_at, taken)) => {
                    star = Some((star_at, taken + 1));
                    (at, seen) = (star_at + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_names() {
        for (pattern, name, wanted) in [
            ("*.conf", "a.conf", true),
            ("*.conf", "a.conf.bak", false),
            ("a?c*", "abc", true),
            ("a?c*", "ac", false),
            ("*a*b", "xaxxab", true),
        ] {
            assert_eq!(fits(pattern.as_bytes(), name.as_bytes()), wanted, "{pattern} {name}");
        }
    }
}
