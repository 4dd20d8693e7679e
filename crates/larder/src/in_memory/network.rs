//! The network of a simulated server. While a thread has one, connections to origins and questions for names go there and
//! nowhere else.

use super::MemoryStream;
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;

/// A future of the network.
pub type Soon<T> = Pin<Box<dyn Future<Output = T>>>;

/// The answer of a name server.
#[derive(Clone, Debug)]
pub enum NameAnswer {
    /// These addresses.
    Addresses(Vec<IpAddr>),
    /// There is no such name.
    NotFound,
    /// It says that it failed.
    Failed,
}

/// A simulated network.
pub trait Network {
    /// Connects to an origin.
    fn connect(&self, to: SocketAddr) -> Soon<io::Result<MemoryStream>>;
    /// Asks for the IPv6 or IPv4 addresses of a name.
    fn resolve(&self, name: &str, is_v6: bool) -> Soon<NameAnswer>;
}

thread_local! {
    static NETWORK: RefCell<Option<Rc<dyn Network>>> = const { RefCell::new(None) };
}

/// Puts a network in the place of this thread's sockets, until the guard is dropped.
pub fn install(network: Rc<dyn Network>) -> Installed {
    NETWORK.with(|slot| slot.replace(Some(network)));
    Installed
}

/// A network is installed for as long as this lives.
#[must_use]
pub struct Installed;

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = NETWORK.try_with(|slot| slot.take());
    }
}

/// The network of this thread, if it has one.
pub fn current() -> Option<Rc<dyn Network>> {
    NETWORK.with(|slot| slot.borrow().clone())
}
