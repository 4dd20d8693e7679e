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

            /// What it means, in a sentence.
            pub fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence,)+ }
            }
        }
    };
}

words! {
    /// What a request was.
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
    }
}

words! {
    /// What went wrong with one request. The first ones are lies of the cache: it answered, and the answer was not right.
    Trouble {
        FalseHit "false-hit" "A hit on an object that nobody had asked for before.",
        StaleHit "stale-hit" "A hit on a version that the origin had replaced before the answer was dated.",
        WrongBytes "wrong-bytes" "The body is not the one of this object: mixed, shifted or damaged.",
        Truncated "truncated" "A complete answer was promised and fewer bytes came.",
        WrongLength "wrong-length" "The declared length is not the length of the object.",
        WrongRange "wrong-range" "A partial answer is not the part that was asked for.",
        WrongVariant "wrong-variant" "The answer was made for other request fields (Vary).",
        WrongHeader "wrong-header" "A field is missing, changed or impossible (Age, Date, ETag, Last-Modified).",
        WrongStatus "wrong-status" "The status is not the one that the origin gives.",
        ForeignReply "foreign-reply" "The answer belongs to another request.",
        HitOnUncachable "hit-on-uncachable" "A hit on an answer that must not be stored.",
        HitOnReload "hit-on-reload" "A reload was answered from the store.",
        PurgedHit "purged-hit" "A hit on what was invalidated before the request was sent.",
        Refused "refused" "The cache answered with an error of its own (5xx, 403, 407).",
        ConnectRefused "connect-refused" "Nobody listened.",
        ConnectTimeout "connect-timeout" "No connection within the limit.",
        Reset "reset" "The connection was reset or closed before an answer.",
        Timeout "timeout" "No complete answer within the limit.",
        Malformed "malformed" "The answer is not HTTP.",
        Tls "tls" "The TLS handshake failed, or its records were damaged; clear text is never tried instead.",
        NoDescriptors "no-descriptors" "The referee's own limit of open files was reached.",
        NoPorts "no-ports" "The referee had no local port left.",
        GaveUp "gave-up" "A request that was due was not sent before the phase ended.",
        Other "other" "Anything else; the exhibit tells.",
    }
}

impl Trouble {
    /// Whether the cache answered wrongly, in contrast to not at all.
    pub fn is_lie(self) -> bool {
        self < Self::Refused
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
