//! The kinds of helpers.

/// The protocol that a helper speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Another URL for a request, or a redirection (Squid's `url_rewrite_program`).
    UrlRewrite,
    /// Another key for a request (`store_id_program`).
    StoreId,
    /// Whether a request is permitted (`external_acl_type`).
    ExternalAcl,
    /// A user and a password (`auth_param basic`).
    Basic,
    /// The hash of a user's password (`auth_param digest`).
    Digest,
    /// A handshake of SPNEGO: Kerberos or NTLM (`auth_param negotiate`).
    Negotiate,
    /// A handshake of NTLM (`auth_param ntlm`).
    Ntlm,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 7] =
        [Kind::UrlRewrite, Kind::StoreId, Kind::ExternalAcl, Kind::Basic, Kind::Digest, Kind::Negotiate, Kind::Ntlm];

    /// The word of the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::UrlRewrite => "url_rewrite",
            Kind::StoreId => "store_id",
            Kind::ExternalAcl => "external_acl",
            Kind::Basic => "basic",
            Kind::Digest => "digest",
            Kind::Negotiate => "negotiate",
            Kind::Ntlm => "ntlm",
        }
    }

    /// Whether several lines make one question, all of them to the same child.
    pub fn is_stateful(self) -> bool {
        matches!(self, Kind::Negotiate | Kind::Ntlm)
    }
}
