//! Which connections to an origin a request may have.

use crate::reach::Reach;
use larder_wire::proxy_protocol::SentHeader;

/// The connections that a request may have.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// How far they may lead.
    pub reach: &'a Reach,
    /// The header with which they have begun.
    pub header: Option<&'a SentHeader>,
}
