//! The proxy under test, by its address and the way in which it is used.

use std::net::SocketAddr;

/// The proxy under test and how it is used.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// How clients talk to it.
    pub way: Way,
    /// Where it listens. Not used for [`Way::Direct`].
    pub proxy: SocketAddr,
}

/// How the proxy under test is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// As a forward proxy: requests in absolute form, origins named by address.
    Forward,
    /// As a reverse proxy: requests in origin form, host `NAME.test` stands for origin `NAME`.
    Reverse,
    /// Without a proxy: clients talk to the origins. For trying a script that is about no proxy's doing.
    Direct,
}

impl Way {
    /// The word that scripts and reports use.
    pub fn as_str(self) -> &'static str {
        match self {
            Way::Forward => "forward",
            Way::Reverse => "reverse",
            Way::Direct => "direct",
        }
    }
}
