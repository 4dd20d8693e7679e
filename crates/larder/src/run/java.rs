//! Programs of the Java runtime: a trust store made for the child, and the variable by which each of them finds it and the proxy.
//!
//! The runtime reads no PEM. The trust store has the format JKS, which every version reads: entries in clear text, behind which
//! stands a digest that is looked at where a password is given; it is that of the password that all programs try. Certificates are
//! public; a password protects nothing here.

use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use rustls::pki_types::CertificateDer;
use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::Path;

const MAGIC: u32 = 0xfeed_feed;
const VERSION: u32 = 2;
/// The tag of an entry that is a trusted certificate.
const TRUSTED: u32 = 2;
/// The password of the runtime's own trust store.
const PASSWORD: &str = "changeit";
/// Behind the password in the digest of a JKS.
const SALT: &[u8] = b"Mighty Aphrodite";

/// The trust store of these certificates.
pub(super) fn trust_store(certificates: &[CertificateDer<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX).to_be_bytes();
    out.extend(MAGIC.to_be_bytes());
    out.extend(VERSION.to_be_bytes());
    out.extend(number(certificates.len()));
    for (place, certificate) in certificates.iter().enumerate() {
        out.extend(TRUSTED.to_be_bytes());
        text(&format!("root-{place}"), &mut out);
        // When it was added; nobody asks.
        out.extend(0_u64.to_be_bytes());
        text("X.509", &mut out);
        out.extend(number(certificate.len()));
        out.extend_from_slice(certificate);
    }
    let mut digest = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    PASSWORD.encode_utf16().for_each(|unit| digest.update(&unit.to_be_bytes()));
    digest.update(SALT);
    digest.update(&out);
    out.extend_from_slice(digest.finish().as_ref());
    out
}

/// Short texts of ASCII alone.
fn text(text: &str, out: &mut Vec<u8>) {
    out.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// The value of `JAVA_TOOL_OPTIONS`: ours, and behind it the user's own, which win. Maven heeds the proxy of the runtime only when
/// told so.
pub(super) fn tool_options(proxy: SocketAddr, trust_store: &Path, of_user: Option<&OsStr>) -> OsString {
    let (host, port) = (proxy.ip(), proxy.port());
    let mut options = OsString::from(format!(
        "-Dhttp.proxyHost={host} -Dhttp.proxyPort={port} -Dhttps.proxyHost={host} -Dhttps.proxyPort={port} \
         -Daether.connector.http.useSystemProperties=true -Djavax.net.ssl.trustStoreType=JKS \
         -Djavax.net.ssl.trustStore=\""
    ));
    // The runtime divides the variable at blanks.
    options.push(trust_store);
    options.push("\"");
    if let Some(of_user) = of_user {
        options.push(" ");
        options.push(of_user);
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trust_store_has_the_layout_of_jks() {
        let store = trust_store(&[CertificateDer::from(vec![7; 3])]);
        let head = [0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 6];
        assert_eq!(store[..18], head);
        assert_eq!(store[18..24], *b"root-0");
        assert_eq!(store[32..39], *b"\0\x05X.509");
        assert_eq!(store[39..46], [0, 0, 0, 3, 7, 7, 7]);
        assert_eq!(store.len(), 46 + 20);
    }

    #[test]
    fn options_of_the_user_come_last() {
        let options = |of_user| tool_options("127.0.0.1:8".parse().unwrap(), Path::new("/t/trust.jks"), of_user);
        let ours = options(None).into_string().unwrap();
        assert!(ours.contains("-Dhttps.proxyPort=8 ") && ours.ends_with("-Djavax.net.ssl.trustStore=\"/t/trust.jks\""));
        assert!(options(Some(OsStr::new("-Xmx1g"))).into_string().unwrap().ends_with("trust.jks\" -Xmx1g"));
    }
}
