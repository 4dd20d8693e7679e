//! Settings that a listener on a Unix socket can't have.

use super::Parser;
use crate::client::NO_ADDRESS;
use crate::config::Listen;
use std::ops::Range;

impl Parser {
    /// A Unix socket is reached by no packet, is no socket of systemd's, and its clients are in one network alone.
    pub(super) fn check_unix_socket(&mut self, span: &Range<usize>, listen: &Listen) {
        let (message, hint) = match &listen.socket {
            None => return,
            Some(_) if listen.transparent.is_on() => {
                ("no rule of the kernel brings connections to a Unix socket", "leave out `transparent`")
            }
            Some(_) if listen.activation.is_some() => {
                ("`activation` is for sockets of TCP", "leave out `activation`: Larder opens the socket itself")
            }
            Some(_) if !listen.proxy_protocol.is_empty() && !listen.proxy_protocol.contains(NO_ADDRESS.ip()) => {
                ("connections to a Unix socket come from none of these networks", "write proxy_protocol = \"unix\"")
            }
            Some(_) => return,
        };
        self.problem(span.clone(), message.to_owned(), Some(hint.to_owned()));
    }
}
