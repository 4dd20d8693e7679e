//! The caches that are judged: Larder and packaged ones, as reverse proxies of the chore's origin, each configured so
//! that it caches as its own people would have it, and closest to the RFCs where there is a choice.

use crate::lab::{self, Lab};
use crate::peers::TrafficServer;
use crate::shell::{self, Trouble};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A cache that can be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Ourselves.
    Larder,
    /// nginx with `proxy_cache`.
    Nginx,
    /// Varnish.
    Varnish,
    /// Squid.
    Squid,
    /// Apache Traffic Server.
    #[value(name = "trafficserver")]
    TrafficServer,
    /// Apache httpd with `mod_cache_disk`.
    Apache,
}

impl Kind {
    /// All of them, ourselves first.
    pub const ALL: [Kind; 6] =
        [Kind::Larder, Kind::Nginx, Kind::Varnish, Kind::Squid, Kind::TrafficServer, Kind::Apache];

    /// The name in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Larder => "Larder",
            Kind::Nginx => "nginx",
            Kind::Varnish => "Varnish",
            Kind::Squid => "Squid",
            Kind::TrafficServer => "Traffic Server",
            Kind::Apache => "Apache",
        }
    }

    /// How it is configured, as a sentence for the page.
    pub fn configuration(self) -> &'static str {
        match self {
            Kind::Larder => "its defaults, `--origin` alone, nothing on disk",
            Kind::Nginx => {
                "`proxy_cache` with `proxy_cache_revalidate` and `proxy_cache_background_update`, `proxy_force_ranges`, no lifetime made up (`xtask/peers/conformance-nginx.conf`)"
            }
            Kind::Varnish => "its built-in rules, `default_grace=0`, `default_keep=3600`, `http_gzip_support=off`",
            Kind::Squid => "an accelerator with its own rules, in memory (`xtask/peers/conformance-squid.conf`)",
            Kind::TrafficServer => {
                "the client's `no-cache` and `max-age` count, `Last-Modified` alone lets a response be kept, `normalize_ae` off (`xtask/peers/conformance-trafficserver.config`)"
            }
            Kind::Apache => {
                "`mod_cache_disk` before `mod_proxy`, `ProxyVia On`, `CacheStoreExpired On`, paths untouched (`xtask/peers/conformance-apache.conf`)"
            }
        }
    }

    fn program(self) -> &'static str {
        match self {
            Kind::Larder => "larder",
            Kind::Nginx => "nginx",
            Kind::Varnish => "varnishd",
            Kind::Squid => "squid",
            Kind::TrafficServer => "traffic_server",
            Kind::Apache => "apache2",
        }
    }

    /// Whether it can be started here; Larder is built when it is needed.
    pub fn is_installed(self) -> bool {
        self == Kind::Larder || shell::find_program(self.program()).is_some()
    }

    /// Name and version, as the program says itself.
    pub fn version(self, larder: &Path) -> Result<String, Trouble> {
        let flag = match self {
            Kind::Larder | Kind::TrafficServer => "--version",
            Kind::Varnish => "-V",
            Kind::Nginx | Kind::Squid | Kind::Apache => "-v",
        };
        let program = if self == Kind::Larder { larder.to_owned() } else { shell::need_program(self.program())? };
        let output = Command::new(&program).arg(flag).output();
        let output = output.map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        Ok(read_version(self.as_str(), &text))
    }

    /// Starts it with an empty store in front of the origin; gives its port.
    pub fn start(self, larder: &Path, lab: &mut Lab, origin: u16) -> Result<u16, Trouble> {
        if self == Kind::Larder {
            let upstream = format!("http://127.0.0.1:{origin}");
            return lab::start_larder_program(lab, larder, "larder", &["--origin", &upstream]);
        }
        let port = lab::free_port()?;
        let mut command = Site { lab, port, origin }.command(self)?;
        lab.start(self.program(), &mut command, port)?;
        Ok(port)
    }
}

/// The first number with a dot in what a program says of itself.
fn read_version(name: &str, text: &str) -> String {
    let is_version = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
    let number = text.split([' ', '/', '-', '(', ')', '\n']).find(is_version).unwrap_or("of unknown version");
    format!("{name} {number}")
}

/// The values that the commands need.
struct Site<'a> {
    lab: &'a Lab,
    port: u16,
    origin: u16,
}

impl Site<'_> {
    fn command(&self, kind: Kind) -> Result<Command, Trouble> {
        let mut command = Command::new(shell::need_program(kind.program())?);
        match kind {
            Kind::Larder => return Err("Larder starts by itself".to_owned()),
            Kind::Nginx => {
                command.arg("-c").arg(self.fill("nginx", include_str!("../../peers/conformance-nginx.conf"))?);
            }
            Kind::Varnish => {
                let rules = self.fill("varnish", include_str!("../../peers/conformance-varnish.vcl"))?;
                command.arg("-F").arg("-n").arg(self.lab.folder("varnish-work")?).arg("-f").arg(rules);
                command.args(["-a", &format!("127.0.0.1:{}", self.port), "-s", "malloc,64m", "-T", "none"]);
                command.args(["-p", "default_grace=0", "-p", "default_keep=3600", "-p", "http_gzip_support=off"]);
            }
            Kind::Squid => {
                let conf = self.fill("squid", include_str!("../../peers/conformance-squid.conf"))?;
                // Names of its shared memory hang on the service name.
                command.args(["-n", &format!("lab{}", self.port), "-N", "-f"]).arg(conf);
            }
            Kind::TrafficServer => {
                let records =
                    self.fill("trafficserver", include_str!("../../peers/conformance-trafficserver.config"))?;
                let layout = TrafficServer {
                    records: &records,
                    remap: format!("map / http://127.0.0.1:{}/\n", self.origin),
                    storage: format!("{} 256M\n", self.lab.folder("trafficserver-store")?.display()),
                    certificates: String::new(),
                };
                command.arg(format!("--run-root={}", layout.write(self.lab)?.display()));
            }
            Kind::Apache => {
                let conf = self.fill("apache", include_str!("../../peers/conformance-apache.conf"))?;
                command.arg("-f").arg(conf).arg("-DFOREGROUND");
            }
        }
        Ok(command)
    }

    fn fill(&self, name: &str, template: &str) -> Result<PathBuf, Trouble> {
        // Apache does not serve as root.
        let is_root = rustix::process::geteuid().is_root();
        let account = if is_root { "www-data".to_owned() } else { "#-1".to_owned() };
        let fill = [
            ("port", self.port.to_string()),
            ("origin", self.origin.to_string()),
            ("cache", self.lab.folder(&format!("{name}-store"))?.display().to_string()),
            ("account", account.clone()),
            ("group", account),
        ];
        lab::configuration(self.lab, name, template, &fill)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_programs_say() {
        for (text, number) in [
            ("nginx version: nginx/1.22.1\n", "1.22.1"),
            ("varnishd (varnish-7.1.1 revision 7cee1c581bead20e88d101ab3d72afb29f14d87a)\n", "7.1.1"),
            ("Squid Cache: Version 5.7\nService Name: squid\n", "5.7"),
            ("Traffic Server 9.2.5 May 27 2025 10:00:00 lhr1\n", "9.2.5"),
            ("Server version: Apache/2.4.71 (Debian)\n", "2.4.71"),
            ("nothing", "of unknown version"),
        ] {
            assert_eq!(read_version("x", text), format!("x {number}"));
        }
    }
}
