//! The authority of the origins: made at the start of a run, and signing a certificate for each visible server when it
//! is first spoken to. Its key never leaves the process.

use super::{INSIDE, provider};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::ProducesTickets;
use rustls::{ServerConfig, SupportedProtocolVersion};
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Certificates begin this long ago, for a cache whose clock is behind, and end this long after the start.
const MARGIN: Duration = Duration::from_secs(86_400);
const LIFE: Duration = Duration::from_secs(30 * 86_400);

/// An authority and what it has signed.
pub struct Authority {
    certificate: CertificateDer<'static>,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
    /// One key for all servers: making a key is what costs.
    key: KeyPair,
    tickets: Arc<dyn ProducesTickets>,
    servers: Mutex<HashMap<IpAddr, Arc<ServerConfig>>>,
}

impl Authority {
    /// A new one.
    pub fn new() -> Result<Self, String> {
        let failed = |error: rcgen::Error| format!("the authority of the origins cannot be made: {error}");
        let new_key = || KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(failed);
        let mut params = params("Cacheoff origins");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = new_key()?;
        let certificate = params.self_signed(&key).map_err(failed)?;
        Ok(Self {
            certificate: certificate.der().clone(),
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
            key: new_key()?,
            tickets: Ticketer::new().map_err(|error| format!("TLS session tickets cannot be made: {error}"))?,
            servers: Mutex::default(),
        })
    }

    /// Its certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Its certificate as PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// How the visible server of an address speaks TLS; `name` is its other name.
    pub fn server(&self, address: IpAddr, name: &str) -> Result<Arc<ServerConfig>, String> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = servers.get(&address) {
            return Ok(known.clone());
        }
        let made = Arc::new(self.sign(address, name, rustls::DEFAULT_VERSIONS)?);
        servers.insert(address, made.clone());
        Ok(made)
    }

    /// A certificate for a server, and what speaks with it in these versions.
    pub(crate) fn sign(
        &self,
        address: IpAddr,
        name: &str,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Result<ServerConfig, String> {
        let failed = |error: &dyn fmt::Display| format!("no certificate for the origin {address}: {error}");
        let certificate = self.certify(address, name).map_err(|error| failed(&error))?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(versions);
        let mut config = builder
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key))
            .map_err(|error| failed(&error))?;
        config.alpn_protocols = vec![INSIDE.to_vec()];
        config.ticketer = self.tickets.clone();
        Ok(config)
    }

    /// A certificate for a server and its key, as PEM, for a program that speaks TLS itself.
    pub fn pair(&self, address: IpAddr, name: &str) -> Result<(String, String), String> {
        let certificate = self.certify(address, name).map_err(|error| error.to_string())?;
        Ok((certificate.pem(), self.key.serialize_pem()))
    }

    fn certify(&self, address: IpAddr, name: &str) -> Result<Certificate, rcgen::Error> {
        let mut params = params(name);
        let name = name.try_into()?;
        params.subject_alt_names = vec![SanType::IpAddress(address), SanType::DnsName(name)];
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.signed_by(&self.key, &self.issuer)
    }
}

impl fmt::Debug for Authority {
    /// Without its keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(MARGIN);
    params.not_after = epoch + now + LIFE;
    params
}
