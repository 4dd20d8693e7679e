//! The local certificate authority of interception: made on first need, kept in a folder of its own, and
//! issuing short-lived leaf certificates per host.
//!
//! The folder (mode 0700) has `authority.pem`, certificate and key in one file (0600, so that they can't be
//! mixed up by two processes that begin together), and `certificate.pem`, the public part alone.

use super::bundle::write_file;
use super::recent::Recent;
use super::{ALPN_HTTP_2, TlsError, pem, provider, server_config};
use larder_wire::Host;
use larder_wire::date::Stamp;
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::{Ticketer, cipher_suite::TLS13_AES_128_GCM_SHA256};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{NoServerSessionStorage, ProducesTickets, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SigningKey};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Leaf certificates kept.
pub const LEAVES_MAX: usize = 4_096;

const DAY_SECONDS: u64 = 86_400;
/// Life of the CA's certificate.
const AUTHORITY_SECONDS: u64 = 3_652 * DAY_SECONDS;
/// Life of a leaf from its making; browsers refuse more than 397 days.
const LEAF_SECONDS: u64 = 90 * DAY_SECONDS;
/// A leaf is replaced this long before its end.
const LEAF_MARGIN_SECONDS: u64 = 7 * DAY_SECONDS;
/// Certificates begin this long ago, for clients whose clock is behind.
const BACKDATED_SECONDS: u64 = DAY_SECONDS;

const SECRET_FILE: &str = "authority.pem";
const PUBLIC_FILE: &str = "certificate.pem";
const LOCK_FILE: &str = "lock";

/// The CA, and the leaves it has issued lately.
pub struct Authority {
    folder: PathBuf,
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    /// One key for all leaves: making a key is the costly part, and several keys would be no safer in the memory of one
    /// process.
    leaf_key: KeyPair,
    leaf_signer: Arc<dyn SigningKey>,
    tickets: Arc<dyn ProducesTickets>,
    leaves: Mutex<Recent<Host, Leaf>>,
}

#[derive(Clone)]
struct Leaf {
    key: Arc<CertifiedKey>,
    config: Arc<ServerConfig>,
    /// The configuration that offers HTTP/2 too.
    config_http2: Arc<ServerConfig>,
    fresh_until: Stamp,
}

impl Authority {
    /// Loads the CA of `folder`, or makes it when there is none. Processes that begin together get the same one.
    pub fn open(folder: &Path, now: Stamp) -> Result<Authority, TlsError> {
        make_folder(folder)?;
        // Held until the end of this function.
        let _lock = lock(folder)?;
        let secret = folder.join(SECRET_FILE);
        match check_mode(&secret) {
            Ok(()) => {}
            Err(TlsError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                write_file(&secret, make(now)?.as_bytes(), 0o600)?;
            }
            Err(other) => return Err(other),
        }
        let authority = Authority::read(folder, &secret)?;
        let public = folder.join(PUBLIC_FILE);
        if fs::read(&public).ok().as_deref() != Some(authority.pem().as_bytes()) {
            write_file(&public, authority.pem().as_bytes(), 0o644)?;
        }
        Ok(authority)
    }

    /// Whether `folder` has a CA already.
    pub fn exists(folder: &Path) -> bool {
        folder.join(SECRET_FILE).exists()
    }

    fn read(folder: &Path, secret: &Path) -> Result<Authority, TlsError> {
        let unreadable = |what| move |source| TlsError::Pem { path: secret.to_owned(), what, source };
        let unusable = |source| TlsError::Make { what: format!("anybody with {}", secret.display()), source };
        let text = fs::read(secret).map_err(|source| file_trouble(secret, "read")(source))?;
        let certificate = CertificateDer::from_pem_slice(&text).map_err(unreadable("certificate"))?;
        let key = PrivateKeyDer::from_pem_slice(&text).map_err(unreadable("private key"))?;
        let key = KeyPair::try_from(&key).map_err(unusable)?;
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(unusable)?;
        let leaf_key = new_key()?;
        let leaf_der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(leaf_key.serialize_der()));
        let rustls = |what| move |source| TlsError::Rustls { what, source };
        Ok(Authority {
            folder: folder.to_owned(),
            certificate,
            issuer,
            leaf_signer: provider()
                .key_provider
                .load_private_key(leaf_der)
                .map_err(rustls("cannot use the key of leaf certificates"))?,
            leaf_key,
            tickets: Ticketer::new().map_err(rustls("cannot set up TLS session tickets"))?,
            leaves: Mutex::new(Recent::new(LEAVES_MAX)),
        })
    }

    /// The certificate that clients must trust.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The certificate as PEM.
    pub fn pem(&self) -> String {
        pem::certificate(&self.certificate)
    }

    /// Where the certificate is, for people and tools that take a file.
    pub fn certificate_path(&self) -> PathBuf {
        self.folder.join(PUBLIC_FILE)
    }

    /// SHA-256 of the certificate, as browsers show it.
    pub fn fingerprint(&self) -> String {
        let hash = TLS13_AES_128_GCM_SHA256.tls13().map(|suite| suite.common.hash_provider.hash(&self.certificate));
        let bytes = hash.as_ref().map_or(&[][..], |hash| hash.as_ref());
        bytes.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
    }

    /// A certificate for `host`, from those issued lately or new. The caller has verified the origin's own
    /// certificate before: a client that trusts this CA can't do it any more.
    pub fn mint(&self, host: &Host, now: Stamp) -> Result<Arc<CertifiedKey>, TlsError> {
        self.leaf(host, now).map(|leaf| leaf.key)
    }

    /// The configuration to serve a client that wants `host` with ([`mint`](Authority::mint) for the certificate):
    /// the name in its ClientHello, or what CONNECT asked for. With `http2` it offers HTTP/2 before HTTP/1.1.
    pub fn server_config(&self, host: &Host, http2: bool, now: Stamp) -> Result<Arc<ServerConfig>, TlsError> {
        self.leaf(host, now).map(|leaf| if http2 { leaf.config_http2 } else { leaf.config })
    }

    fn leaf(&self, host: &Host, now: Stamp) -> Result<Leaf, TlsError> {
        if let Some(leaf) = self.leaves.lock().find(host).filter(|leaf| now < leaf.fresh_until).cloned() {
            return Ok(leaf);
        }
        // Signing is done outside of the lock; two that do it at once for a host do no harm.
        let leaf = self.issue(host, now)?;
        self.leaves.lock().insert(host.clone(), leaf.clone());
        Ok(leaf)
    }

    fn issue(&self, host: &Host, now: Stamp) -> Result<Leaf, TlsError> {
        let failed = |source| TlsError::Make { what: host.to_string(), source };
        let certificate =
            leaf_params(host, now).and_then(|params| params.signed_by(&self.leaf_key, &self.issuer)).map_err(failed)?;
        let key = Arc::new(CertifiedKey::new(vec![certificate.der().clone()], self.leaf_signer.clone()));
        let mut config = server_config(Arc::new(Only(key.clone())), None)?;
        config.ticketer = self.tickets.clone();
        // Tickets keep the sessions; a table of them for each of the leaves would take tens of megabytes.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        let fresh_until = now.plus(LEAF_SECONDS - LEAF_MARGIN_SECONDS);
        let mut config_http2 = config.clone();
        config_http2.alpn_protocols.insert(0, ALPN_HTTP_2.to_vec());
        Ok(Leaf { key, config: Arc::new(config), config_http2: Arc::new(config_http2), fresh_until })
    }
}

/// Resolves to one certificate whatever is asked for.
#[derive(Debug)]
struct Only(Arc<CertifiedKey>);

impl ResolvesServerCert for Only {
    fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// Certificate and key of a new CA.
fn make(now: Stamp) -> Result<String, TlsError> {
    let failed = |source| TlsError::Make { what: "the local CA".to_owned(), source };
    let key = new_key()?;
    let mut params = CertificateParams::default();
    let id: String = random::<4>()?.iter().map(|byte| format!("{byte:02x}")).collect();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("Larder local CA {} {id}", machine()));
    params.serial_number = Some(serial()?);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    validity(&mut params, now, AUTHORITY_SECONDS);
    let certificate = params.self_signed(&key).map_err(failed)?;
    Ok(pem::certificate(certificate.der()) + &key.serialize_pem())
}

fn leaf_params(host: &Host, now: Stamp) -> Result<CertificateParams, rcgen::Error> {
    let name = host.as_str().trim_end_matches('.');
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    // A common name has at most 64 letters (RFC 5280 appendix A); clients ignore it.
    params.distinguished_name.push(DnType::CommonName, if name.len() <= 64 { name } else { "Larder" });
    params.subject_alt_names = vec![match host.ip() {
        Some(address) => SanType::IpAddress(address),
        None => SanType::DnsName(name.try_into()?),
    }];
    params.serial_number = Some(serial().map_err(|_| rcgen::Error::RingUnspecified)?);
    // Says "no CA" and adds the subject's key identifier.
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    validity(&mut params, now, LEAF_SECONDS);
    Ok(params)
}

fn validity(params: &mut CertificateParams, now: Stamp, seconds: u64) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(now.0.saturating_sub(BACKDATED_SECONDS));
    params.not_after = epoch + Duration::from_secs(now.0 + seconds);
}

fn new_key() -> Result<KeyPair, TlsError> {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)
        .map_err(|source| TlsError::Make { what: "a new key".to_owned(), source })
}

/// A positive number of 127 random bits. Serials of an issuer must differ (RFC 5280 section 4.1.2.2), and clients
/// refuse a second certificate with the same one.
fn serial() -> Result<SerialNumber, TlsError> {
    let mut bytes = random::<16>()?;
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

fn random<const N: usize>() -> Result<[u8; N], TlsError> {
    let mut bytes = [0; N];
    provider().secure_random.fill(&mut bytes).map_err(|_| TlsError::Rustls {
        what: "cannot draw random bytes",
        source: rustls::Error::FailedToGetRandomBytes,
    })?;
    Ok(bytes)
}

/// The machine's name, to tell CAs apart in a list of trusted ones.
fn machine() -> String {
    let plain: String =
        crate::machine::name().chars().filter(|c| c.is_ascii_alphanumeric() || "-.".contains(*c)).take(24).collect();
    if plain.is_empty() { "localhost".to_owned() } else { plain }
}

fn make_folder(folder: &Path) -> Result<(), TlsError> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(file_trouble(folder, "create the folder"))?;
    let closed = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
    closed.map_err(file_trouble(folder, "close to others the folder"))
}

fn lock(folder: &Path) -> Result<File, TlsError> {
    let path = folder.join(LOCK_FILE);
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    file.and_then(|file| file.lock().map(|()| file)).map_err(file_trouble(&path, "lock"))
}

fn check_mode(secret: &Path) -> Result<(), TlsError> {
    let mode = fs::metadata(secret).map_err(file_trouble(secret, "read"))?.permissions().mode() & 0o7777;
    match mode & 0o077 {
        0 => Ok(()),
        _ => Err(TlsError::KeyIsOpen { path: secret.to_owned(), mode }),
    }
}

fn file_trouble(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> TlsError {
    let path = path.to_owned();
    move |source| TlsError::File { path, what, source }
}
