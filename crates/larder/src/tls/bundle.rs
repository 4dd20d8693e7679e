//! One PEM file with everything that is to be trusted: for tools that take a file of roots.

use super::{TlsError, certificates_of, pem};
use crate::whole_file::{self, Durability};
use rustls::pki_types::CertificateDer;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Writes `certificates` (those of the system and the local CA's, say) and those of the files `extra` to `path`, each
/// once; mode 0644, for they are public. Files of `extra` that cannot be read are left out and returned: they did
/// not work for the user before either.
pub fn write<'a>(
    path: &Path,
    certificates: impl IntoIterator<Item = CertificateDer<'static>>,
    extra: impl IntoIterator<Item = &'a Path>,
) -> Result<Vec<PathBuf>, TlsError> {
    let mut all: Vec<CertificateDer<'static>> = certificates.into_iter().collect();
    let mut unreadable = Vec::new();
    for file in extra {
        match certificates_of(file) {
            Ok(more) => all.extend(more),
            Err(_) => unreadable.push(file.to_owned()),
        }
    }
    let mut seen = HashSet::new();
    all.retain(|certificate| seen.insert(certificate.clone()));
    let text: String = all.iter().map(|certificate| pem::certificate(certificate)).collect();
    write_file(path, text.as_bytes(), 0o644)?;
    Ok(unreadable)
}

/// The certificates of a PEM file; at least one.
pub fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    certificates_of(path)
}

/// Writes a whole file and puts it in place at once; the mode does not depend on the umask.
pub(crate) fn write_file(path: &Path, content: &[u8], mode: u32) -> Result<(), TlsError> {
    let written = whole_file::replace(path, content, mode, Durability::Content);
    written.map_err(|source| TlsError::File { path: path.to_owned(), what: "write", source })
}
