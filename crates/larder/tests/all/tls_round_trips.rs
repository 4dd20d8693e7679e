//! TLS over loopback with real clients: rustls, and openssl and curl where they are installed.

use larder::clock;
use larder::config::CertificateFiles;
use larder::tls::ca::Authority;
use larder::tls::server::Certificates;
use larder::tls::{HandshakeTrouble, Roots, bundle, client_config, server_name};
use larder_wire::Host;
use larder_wire::date::Stamp;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

fn host(name: &str) -> Host {
    Host::parse(name).unwrap()
}

fn trusting(certificate: &CertificateDer<'static>) -> Roots {
    Roots { certificates: vec![certificate.clone()], troubles: Vec::new() }
}

fn authority() -> (TempDir, Authority) {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::open(&folder.path().join("ca"), clock::now()).unwrap();
    (folder, authority)
}

/// A client that trusts `roots` and wants `name`, against a server with `config`: what each of them got.
async fn handshake(config: Arc<ServerConfig>, roots: &Roots, name: &str) -> (io::Result<String>, io::Result<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = TlsAcceptor::from(config).accept(stream).await?;
        stream.write_all(b"hello").await?;
        stream.shutdown().await
    };
    let connector = TlsConnector::from(client_config(&roots.clone().into()).unwrap());
    let client = async {
        let stream = TcpStream::connect(address).await.unwrap();
        let mut stream = connector.connect(server_name(&host(name)).unwrap(), stream).await?;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        // A recording of today is not opened by a quantum computer of tomorrow.
        let group = stream.get_ref().1.negotiated_key_exchange_group().map(|group| group.name());
        assert_eq!(group, Some(rustls::NamedGroup::X25519MLKEM768));
        let mut text = String::new();
        stream.read_to_string(&mut text).await.map(|_| text)
    };
    tokio::time::timeout(Duration::from_secs(10), async { tokio::join!(client, server) }).await.unwrap()
}

#[tokio::test]
async fn a_client_that_trusts_the_ca_takes_minted_certificates() {
    let (_folder, authority) = authority();
    for name in ["www.example.org", "UPPER.example", "127.0.0.1", "[::1]", "a_b.example"] {
        let config = authority.server_config(&host(name), false, clock::now()).unwrap();
        let (client, server) = handshake(config, &trusting(authority.certificate()), name).await;
        assert_eq!(client.unwrap(), "hello", "{name}");
        server.unwrap();
    }
}

#[tokio::test]
async fn a_client_with_other_roots_says_so() {
    let (_folder, ours) = authority();
    let (_other_folder, other) = authority();
    let config = ours.server_config(&host("www.example.org"), false, clock::now()).unwrap();
    let (client, server) = handshake(config, &trusting(other.certificate()), "www.example.org").await;
    assert_eq!(HandshakeTrouble::of(&server.unwrap_err()), HandshakeTrouble::ClientRejectsCa);
    assert_eq!(HandshakeTrouble::of(&client.unwrap_err()).as_str(), "origin-not-trusted");
}

#[tokio::test]
async fn a_certificate_for_another_host_is_not_taken() {
    let (_folder, authority) = authority();
    let config = authority.server_config(&host("www.example.org"), false, clock::now()).unwrap();
    let (client, _) = handshake(config, &trusting(authority.certificate()), "www.example.com").await;
    let HandshakeTrouble::OriginNotTrusted(why) = HandshakeTrouble::of(&client.unwrap_err()) else {
        panic!("taken");
    };
    assert!(why.contains("www.example.com"), "{why}");
}

#[tokio::test]
async fn listeners_choose_by_sni() {
    let folder = tempfile::tempdir().unwrap();
    let first = write_pair(folder.path(), "first", &["first.example"]);
    let wild = write_pair(folder.path(), "wild", &["*.wild.example", "exact.example"]);
    let roots = larder::tls::roots(&[first.chain.clone(), wild.chain.clone()]).unwrap();
    let config = Arc::new(Certificates::load(&[first, wild]).unwrap()).config(None, false).unwrap();
    for (name, taken) in
        [("first.example", true), ("a.wild.example", true), ("exact.example", true), ("a.b.wild.example", false)]
    {
        let (client, _) = handshake(config.clone(), &roots, name).await;
        assert_eq!(client.is_ok(), taken, "{name}: {client:?}");
    }
}

#[test]
fn pairs_that_do_not_belong_together_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let one = write_pair(folder.path(), "one", &["one.example"]);
    let two = write_pair(folder.path(), "two", &["two.example"]);
    let mixed = CertificateFiles { chain: one.chain.clone(), key: two.key.clone() };
    let error = Certificates::load(&[mixed]).unwrap_err().to_string();
    assert!(error.contains("one.chain.pem and its key are not usable"), "{error}");
    let swapped = CertificateFiles { chain: one.key.clone(), key: one.chain.clone() };
    let error = Certificates::load(&[swapped]).unwrap_err().to_string();
    assert!(error.starts_with("cannot read a certificate from"), "{error}");
}

#[test]
fn the_ca_is_kept_and_closed_to_others() {
    let (folder, first) = authority();
    let mode = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("ca"), mode("ca/authority.pem"), mode("ca/certificate.pem")), (0o700, 0o600, 0o644));
    let again = Authority::open(&folder.path().join("ca"), clock::now()).unwrap();
    assert_eq!(first.certificate(), again.certificate());
    assert_eq!(first.fingerprint().len(), 32 * 3 - 1);
    assert_eq!(std::fs::read_to_string(again.certificate_path()).unwrap(), again.pem());
    assert!(!again.pem().contains("PRIVATE"));

    let key = folder.path().join("ca/authority.pem");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = Authority::open(&folder.path().join("ca"), clock::now()).err().unwrap().to_string();
    assert!(error.contains("chmod 600"), "{error}");
}

#[test]
fn those_that_begin_together_get_one_ca() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca");
    let open = || Authority::open(&path, clock::now()).unwrap().fingerprint();
    let fingerprints: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(fingerprints.iter().all(|fingerprint| *fingerprint == fingerprints[0]));
}

#[test]
fn leaves_are_kept_until_they_near_their_end() {
    let (_folder, authority) = authority();
    let www = host("www.example.org");
    let now = clock::now();
    let days = |n: u64| now.plus(n * 86_400);
    let first = authority.mint(&www, now).unwrap();
    assert!(Arc::ptr_eq(&first, &authority.mint(&www, days(80)).unwrap()));
    let second = authority.mint(&www, days(84)).unwrap();
    assert!(!Arc::ptr_eq(&first, &second));
    assert!(Arc::ptr_eq(&second, &authority.mint(&www, days(84)).unwrap()));
    assert!(!Arc::ptr_eq(&first, &authority.mint(&host("other.example"), now).unwrap()));
}

#[test]
fn a_clock_at_the_epoch_makes_certificates_too() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::open(&folder.path().join("ca"), Stamp(0)).unwrap();
    authority.mint(&host("www.example.org"), Stamp(0)).unwrap();
}

#[test]
fn openssl_finds_nothing_to_blame() {
    if !installed("openssl") {
        return;
    }
    let (folder, authority) = authority();
    let leaf = folder.path().join("leaf.pem");
    let minted = authority.mint(&host("www.example.org"), clock::now()).unwrap();
    let der = minted.end_entity_cert().unwrap().clone().into_owned();
    bundle::write(&leaf, [der], []).unwrap();
    let output = Command::new("openssl")
        .args(["verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", "www.example.org", "-CAfile"])
        .arg(authority.certificate_path())
        .arg(&leaf)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = openssl_text(&leaf);
    for expected in [
        "CA:FALSE",
        "Subject Key Identifier",
        "Authority Key Identifier",
        "TLS Web Server Authentication",
        "prime256v1",
        "DNS:www.example.org",
    ] {
        assert!(text.contains(expected), "{expected} is missing in {text}");
    }
    let text = openssl_text(&authority.certificate_path());
    assert!(text.contains("CA:TRUE, pathlen:0") && text.contains("Certificate Sign"), "{text}");
    assert!(text.contains(&authority.fingerprint()), "{text}");
}

fn openssl_text(certificate: &Path) -> String {
    let mut command = Command::new("openssl");
    let output = command.args(["x509", "-noout", "-text", "-fingerprint", "-sha256", "-in"]).arg(certificate).output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

#[tokio::test]
async fn curl_trusts_a_bundle_with_the_ca() {
    if !installed("curl") {
        return;
    }
    let (folder, authority) = authority();
    let roots = larder::tls::roots(&[]).unwrap();
    let bundle = folder.path().join("bundle.pem");
    let missing = PathBuf::from("/nonexistent/roots.pem");
    let certificates = roots.certificates.into_iter().chain([authority.certificate().clone()]);
    let skipped = bundle::write(&bundle, certificates, [missing.as_path()]).unwrap();
    assert_eq!(skipped, [missing]);
    assert_eq!(std::fs::metadata(&bundle).unwrap().permissions().mode() & 0o777, 0o644);

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let config = authority.server_config(&host("www.example.org"), false, clock::now()).unwrap();
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await?;
        let mut stream = TlsAcceptor::from(config).accept(stream).await?;
        let mut head = [0; 4096];
        let _ = stream.read(&mut head).await?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello").await?;
        stream.shutdown().await
    });
    let url = format!("https://www.example.org:{port}/");
    let resolve = format!("www.example.org:{port}:127.0.0.1");
    let output = tokio::process::Command::new("curl")
        .args(["-sS", "--noproxy", "*", "--max-time", "10", "--resolve", &resolve, "--cacert"])
        .arg(&bundle)
        .arg(url)
        .output()
        .await
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello", "{}", String::from_utf8_lossy(&output.stderr));
    server.await.unwrap().unwrap();
}

fn installed(tool: &str) -> bool {
    Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// A self-signed certificate for `names` in files.
fn write_pair(folder: &Path, name: &str, names: &[&str]) -> CertificateFiles {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let pair = rcgen::generate_simple_self_signed(names).unwrap();
    let chain = folder.join(format!("{name}.chain.pem"));
    let key = folder.join(format!("{name}.key.pem"));
    std::fs::write(&chain, pair.cert.pem()).unwrap();
    std::fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
    CertificateFiles { chain, key }
}
