//! The words of the referee: kinds of requests, errors, causes of missing hits. Code, ledgers, reports and
//! documentation use the same ones.

use serde::{Deserialize, Serialize};

/// An enum whose variants have a word each and a sentence that explains it.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($variant:ident $word:literal $sentence:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $(#[doc = $sentence] #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// Every one of them, in the order of reports.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word that ledgers and reports print.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            /// Its meaning, in a sentence.
            pub fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence,)+ }
            }
        }
    };
}

words! {
    /// The kind of a request.
    Kind {
        Basic "basic" "A plain GET: the only kind that counts for DHR and BHR.",
        Validation "validation" "A conditional request of a client that holds a copy.",
        Reload "reload" "A GET with no-cache: the cache must ask the origin.",
        Range "range" "A request for a part of an object.",
        Upload "upload" "POST, PUT or another request with a body.",
        Head "head" "A HEAD request.",
        Redirect "redirect" "A GET that was answered by a redirection.",
        Purge "purge" "An invalidation sent by the referee.",
        Tunnel "tunnel" "A CONNECT.",
        Page "page" "A GET of a page that an application makes: it is neither a hit nor a miss.",
    }
}

words! {
    /// Trouble with one request. The first ones are lies of the cache: it answered, and the answer was not right. The
    /// last ones are remarks.
    Trouble {
        FalseHit "false-hit" "A hit on an object that nobody had asked for before.",
        StaleHit "stale-hit" "A hit on a version that the origin had replaced before the answer was dated.",
        WrongBytes "wrong-bytes" "The body is not the one of this object: mixed, shifted or damaged.",
        Truncated "truncated" "A complete answer was promised and fewer bytes came.",
        WrongLength "wrong-length" "The declared length is not the length of the object.",
        WrongRange "wrong-range" "A partial answer is not the part that was asked for.",
        WrongVariant "wrong-variant" "The answer was made for other request fields (Vary).",
        WrongHeader "wrong-header" "The head is not one that the origin sends: the cache itself answered, or leads elsewhere.",
        LostField "lost-field" "A field that the origin sent did not come (Content-Type, ETag, Last-Modified, Expires, Cache-Control, Vary, Date).",
        ChangedField "changed-field" "A field does not say what the origin said.",
        ExtendedLifetime "extended-lifetime" "The answer may be kept for longer, or by more caches, than the origin said.",
        WrongAge "wrong-age" "Age does not fit the time at which the origin spoke.",
        WrongDate "wrong-date" "Date is not when the origin spoke, and nothing else tells it.",
        InjectedCookie "injected-cookie" "Set-Cookie came, and not from the origin to this client.",
        WrongStatus "wrong-status" "The status is not the one that the origin gives.",
        ForeignReply "foreign-reply" "The answer belongs to another request.",
        ReorderedReplies "reordered-replies" "The answer to another request of the connection: replies came in another order, or on another stream.",
        ForgedEcho "forged-echo" "No origin signed the echo, or it was put on the answer of another transaction.",
        ForgedFault "forged-fault" "A mark says that the origin spoilt the answer, and the origin did not.",
        HeadBody "head-body" "A body came with the answer to a HEAD.",
        SurplusBytes "surplus-bytes" "Bytes came after the end of an answer.",
        UnaskedReply "unasked-reply" "A second answer came, and nobody had asked for it.",
        HitOnUncachable "hit-on-uncachable" "A hit on an answer that must not be stored.",
        HitOnPrivate "hit-on-private" "A hit on an answer that is for one client alone (Cache-Control: private).",
        MixedUsers "mixed-users" "The answer is that of another client (Vary: Cookie, or private).",
        LostCredentials "lost-credentials" "A request reached the origin without the Cookie or Authorization of its client.",
        MixedCredentials "mixed-credentials" "A request reached the origin with a Cookie or Authorization that its client did not send.",
        AlteredBody "altered-body" "The body of a POST reached the origin changed, or not whole.",
        RepeatedPost "repeated-post" "A POST that was sent once reached the origin twice.",
        PurgedHit "purged-hit" "A hit on what was invalidated before the request was sent.",
        ConnectionField "connection-field" "A field that only a connection of HTTP/1.1 has came over HTTP/2 (Connection, Keep-Alive, Proxy-Connection, Transfer-Encoding, Upgrade).",
        LostPost "lost-post" "A post that the application had acknowledged is not on the page that was asked for afterwards.",
        Refused "refused" "The cache answered with an error of its own (5xx, 403, 407).",
        ConnectRefused "connect-refused" "Nobody listened.",
        ConnectTimeout "connect-timeout" "No connection within the limit.",
        Reset "reset" "The connection was reset or closed before an answer.",
        StreamReset "stream-reset" "The cache reset the stream before the answer was whole (RST_STREAM).",
        StreamRefused "stream-refused" "The cache did not begin with a request however often it was sent (REFUSED_STREAM, or a GOAWAY that leaves it out).",
        StreamError "stream-error" "Frames of a stream broke a rule of HTTP/2 that ends the stream.",
        ConnectionError "connection-error" "Frames broke a rule of HTTP/2 that ends the connection, with all requests on it.",
        PushedPromise "pushed-promise" "A promise was pushed, though the robot had said that it takes none.",
        GoAway "go-away" "The cache left (GOAWAY) and did not answer a request that it had taken.",
        WindowClosed "window-closed" "The cache did not open the window for the body of a request within the limit.",
        Timeout "timeout" "No complete answer within the limit.",
        Malformed "malformed" "The answer is not HTTP.",
        Tls "tls" "The TLS handshake failed, or its records were damaged; clear text is never tried instead.",
        NoDescriptors "no-descriptors" "The referee's own limit of open files was reached.",
        NoPorts "no-ports" "The referee had no local port left.",
        GaveUp "gave-up" "A request that was due was not sent before the phase ended.",
        Other "other" "Anything else; the exhibit tells.",
        MissingAge "missing-age" "A stored answer says no Age, which RFC 9111 section 4 asks for; Date and Expires still tell how old it is.",
        DoubledFetch "doubled-fetch" "The cache fetched the same object twice for one request.",
        HitOnReload "hit-on-reload" "A reload was answered from the store. Request directives are advisory, so this is held only against an entry that says it honours them.",
        NeedlessValidation "needless-validation" "The cache asked the origin whether an answer is right that is surely fresh, and no client wanted that.",
    }
}

impl Trouble {
    /// Whether the cache answered wrongly, in contrast to not at all.
    pub fn is_lie(self) -> bool {
        self < Self::Refused
    }

    /// Whether nothing wrong came of it: a rule of the RFC is broken without harm to this client, or the origin did work that
    /// it need not have done. It is told and not counted as an error.
    pub fn is_remark(self) -> bool {
        self > Self::Other
    }

    /// The rule that a wrong answer breaks; what an RFC permits is no trouble. Empty where it is not an answer that is wrong.
    pub fn rule(self) -> &'static str {
        match self {
            Self::FalseHit | Self::ForgedEcho => "RFC 9111 section 4: a stored answer is one that an origin gave",
            Self::StaleHit => "RFC 9111 section 4.2.4, with the grace of RFC 5861 where the origin gives it",
            Self::WrongBytes | Self::WrongRange => {
                "RFC 9110 sections 6.4 and 14.4; RFC 9111 section 3.4 for parts put together"
            }
            Self::Truncated => "RFC 9112 section 8; RFC 9111 section 3.3 for what is stored",
            Self::WrongLength => "RFC 9110 section 8.6",
            Self::WrongVariant => "RFC 9111 section 4.1",
            Self::WrongHeader | Self::LostField | Self::ChangedField => {
                "RFC 9110 sections 5.1 and 7.7; RFC 9111 section 3.1. A gateway may shorten lifetimes (RFC 9110 section 3.7)"
            }
            Self::ExtendedLifetime => "RFC 9111 sections 4.2.1, 4.2.3 and 5.2",
            Self::WrongAge | Self::MissingAge => "RFC 9111 sections 4, 4.2.3 and 5.1",
            Self::WrongDate => "RFC 9110 section 6.6.1. A new Date beside an Age that tells the truth is taken",
            Self::InjectedCookie => "RFC 6265 section 3; RFC 9111 section 7.3",
            Self::WrongStatus => "RFC 9110 section 15; RFC 9111 section 4.3.2 for validations",
            Self::ForeignReply | Self::UnaskedReply => "RFC 9112 section 9.2; over HTTP/2, RFC 9113 section 5.1",
            Self::ReorderedReplies => "RFC 9112 section 9.3.2; over HTTP/2, RFC 9113 section 8.1",
            Self::ForgedFault => "RFC 9110 section 5.1",
            Self::HeadBody => "RFC 9110 section 9.3.2",
            Self::SurplusBytes => "RFC 9112 section 6.3; over HTTP/2, RFC 9113 sections 5.1 and 8.1.1",
            Self::HitOnPrivate => "RFC 9111 section 5.2.2.7",
            Self::MixedUsers => "RFC 9111 sections 4.1 and 5.2.2.7",
            Self::HitOnUncachable => "RFC 9111 sections 3 and 5.2.2",
            Self::HitOnReload => {
                "none: RFC 9111 section 5.2.1 leaves it to the cache whether it heeds a request's no-cache"
            }
            Self::LostCredentials | Self::MixedCredentials => "RFC 9110 section 11.6.2; RFC 6265 section 5.4",
            Self::AlteredBody => "RFC 9110 section 7.7",
            Self::RepeatedPost => "RFC 9110 section 9.2.2",
            Self::PurgedHit => "none: what the method promises that the cache declares",
            Self::ConnectionField => "RFC 9113 section 8.2.2",
            Self::LostPost => {
                "RFC 9110 section 15.4.4: the answer to the POST led to a page that shows what came of it"
            }
            Self::DoubledFetch => "none: it costs the origin",
            Self::NeedlessValidation => "none (RFC 9111 section 4 permits it): it costs the origin",
            _ => "",
        }
    }

    /// Whether it is the referee's own fault, so that the run cannot be trusted.
    pub fn is_own(self) -> bool {
        matches!(self, Self::NoDescriptors | Self::NoPorts)
    }
}

words! {
    /// Why a hit that was offered was not given.
    MissCause {
        OnItsWay "on-its-way" "Asked again while the first copy was still on its way from the origin.",
        Expired "expired" "The stored version had expired or had been replaced at the origin.",
        Reloaded "reloaded" "Invalidated by a reload or another unsafe request shortly before.",
        Purged "purged" "Invalidated by the workload.",
        Refused "refused" "The cache refused or failed.",
        FirstFailed "first-failed" "The earlier copy failed or was aborted, so nothing could be stored.",
        Restarted "restarted" "The cache was restarted in between.",
        TooLarge "too-large" "Larger than the largest object that the entry declares to store.",
        Evicted "evicted" "A complete copy had passed through and was no longer there: evicted, or never admitted.",
        Unknown "unknown" "None of these could be shown.",
    }
}

words! {
    /// Which side of the cache something was observed on.
    Side {
        Client "client" "Between robots and the cache.",
        Server "server" "Between the cache and the origins.",
    }
}
