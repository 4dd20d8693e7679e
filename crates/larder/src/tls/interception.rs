//! The state of interception: which CONNECT tunnels are intercepted, and with which certificates.

use super::TlsError;
use super::ca::Authority;
use super::pass::PassList;
use crate::clock;
use crate::config::HostPattern;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;

/// The local CA of a server, and the hosts whose tunnels stay unopened.
pub struct Interception {
    /// Hosts whose tunnels stay unopened, for all clients or for some.
    pub pass: PassList,
    authority_folder: PathBuf,
    authority: Mutex<Option<Arc<Authority>>>,
}

impl Interception {
    /// The CA lies, or will be made, in this folder. Tunnels to hosts of the list are never opened.
    pub fn new(authority_folder: PathBuf, pass: Vec<HostPattern>) -> Interception {
        Interception { pass: PassList::new(pass), authority_folder, authority: Mutex::new(None) }
    }

    /// The local CA, made now if it was not needed before.
    pub fn authority(&self) -> Result<Arc<Authority>, TlsError> {
        let mut place = self.authority.lock();
        if let Some(authority) = &*place {
            return Ok(Arc::clone(authority));
        }
        let authority = Arc::new(Authority::open(&self.authority_folder, clock::now())?);
        *place = Some(Arc::clone(&authority));
        Ok(authority)
    }
}
