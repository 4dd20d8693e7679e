//! HTTP/3 with clients: by a client of these tests, frame by frame, and by programs of others.

mod attacks;
mod bodies;
mod client;
mod connections;
mod floods;
mod forger;
mod memory;
mod messages;
mod moves;
mod origins;
mod programs;
mod relay;
mod sessions;
mod windows;

use crate::http2::serve;
use crate::seen::process::Running;
use crate::seen::stand;
use larder::server::Server;
use rcgen::{CertifiedKey, KeyPair};
use rustls::pki_types::CertificateDer;
use std::net::SocketAddr;
use std::path::Path;

/// A server of the sites `site.test` and `other.test` that speaks HTTP/3.
pub struct Site {
    server: Server,
    address: SocketAddr,
    certificate: CertificateDer<'static>,
}

/// Writes a certificate for `site.test`, `other.test` and `localhost`, and its key.
pub fn write_certificate(folder: &Path) -> CertifiedKey<KeyPair> {
    let names = ["site.test", "other.test", "localhost"].map(str::to_owned).to_vec();
    let pair = rcgen::generate_simple_self_signed(names).unwrap();
    std::fs::write(folder.join("chain.pem"), pair.cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), pair.signing_key.serialize_pem()).unwrap();
    pair
}

/// The settings of such a server: these of its listener, and these beside.
fn settings(folder: &Path, of_listener: &str, more: &str) -> String {
    let origin = stand::origin_that(serve);
    format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n{of_listener}\n\
         tls = [{{ chain = \"{0}/chain.pem\", key = \"{0}/key.pem\" }}]\n{more}\n\
         [log]\nto = \"{0}/access.log\"\n\
         [[site]]\nhosts = [\"site.test\", \"other.test\", \"localhost\"]\norigin = \"http://{origin}\"\n",
        folder.display()
    )
}

impl Site {
    /// With these settings of its listener, and these beside.
    fn with(folder: &Path, of_listener: &str, more: &str) -> Site {
        let pair = write_certificate(folder);
        let server = stand::server(folder, &settings(folder, &format!("http3 = true\n{of_listener}"), more));
        let address = server.addresses()[0];
        Site { server, address, certificate: pair.cert.der().clone() }
    }

    fn open(folder: &Path) -> Site {
        Site::with(folder, "", "")
    }

    /// Counts of the server so far, by the name of the counter.
    fn count(&self, name: &str) -> u64 {
        let counters = self.server.shared().common.counters.each();
        counters.iter().find(|(its_name, _, _)| *its_name == name).map_or(0, |(_, _, count)| *count)
    }

    /// The access log, once the server has stopped.
    fn log(self, folder: &Path) -> String {
        self.server.stop();
        std::fs::read_to_string(folder.join("access.log")).unwrap()
    }
}

/// A process with little memory that serves the same sites, with these settings beside. The certificate is there.
fn start(folder: &Path, more: &str) -> Running {
    let text = format!(
        "store = \"{}\"\nadmin = \"127.0.0.1:0\"\nmemory = \"16MB\"\ndisk = 0\nworkers = 2\n{}",
        folder.join("store").display(),
        settings(folder, "http3 = true", more)
    );
    std::fs::write(folder.join("larder.toml"), text).unwrap();
    Running::start(folder)
}
