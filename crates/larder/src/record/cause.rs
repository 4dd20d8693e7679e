//! The causes of misses. The table is the documentation too; `docs/explain.md` has it in more words.

macro_rules! causes {
    ($($variant:ident $word:literal $forward:literal: $about:literal,)*) => {
        /// Why the origin had to be asked. Each miss has exactly one cause.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Cause {
            $(#[doc = $about] $variant,)*
        }

        impl Cause {
            /// All causes, in the order of their numbers.
            pub const ALL: &[Cause] = &[$(Cause::$variant,)*];

            /// The word of logs and pages.
            pub fn as_str(self) -> &'static str {
                match self { $(Cause::$variant => $word,)* }
            }

            /// The `fwd` parameter of RFC 9211 section 2.2.
            pub fn forward_reason(self) -> &'static str {
                match self { $(Cause::$variant => $forward,)* }
            }

            /// Its meaning, in a sentence.
            pub fn about(self) -> &'static str {
                match self { $(Cause::$variant => $about,)* }
            }
        }
    };
}

causes! {
    Uri "uri-miss" "uri-miss": "Nothing was stored under this URL, as far as is remembered.",
    Vary "vary-miss" "vary-miss": "The stored responses are for requests with other fields (`Vary`).",
    Evicted "evicted" "uri-miss": "It was stored, and made room for others.",
    NotAdmitted "not-admitted" "uri-miss": "It left memory, and the disk had not admitted it: it was asked for only once, or the disk was behind.",
    DiskBehind "disk-behind" "uri-miss": "It was too long for memory, and the disk was behind with its writes.",
    Purged "purged" "uri-miss": "It was stored, and was purged.",
    Invalidated "invalidated" "uri-miss": "It was stored, and a request that changes things (POST, PUT, DELETE …) made it void.",
    Changed "changed" "uri-miss": "It was stored, and the origin said that it has something else now.",
    Lost "lost" "uri-miss": "It was stored, and could not be read or put together any more.",
    NotStored "not-stored" "bypass": "The last answer for this URL could not be stored; the explanation says why.",
    Stale "stale" "stale": "The stored response is too old to be used without asking.",
    NoCache "no-cache" "stale": "The stored response asks to be validated each time.",
    Request "request" "request": "The client wants a newer one than is stored (`no-cache`, `max-age`, `min-fresh`).",
    Apart "apart" "stale": "Purges that were made on other machines of the cluster may not be known here ([cluster.md](cluster.md)).",
    Hook "hook" "bypass": "A hook says that the stored response is not to be used (`larder.miss()`).",
    Method "method" "method": "This method is not answered from a store.",
    Partial "partial" "partial": "Some of it is stored, and some of what was asked for is not.",
    Condition "condition" "bypass": "The request has a condition that only the origin can judge (`If-Match`, `If-Unmodified-Since`).",
    Body "request-body" "bypass": "The request has a body, which no key knows of.",
    Upgrade "upgrade" "bypass": "The request offered to change the protocol, and the origin did not.",
    Destination "destination" "bypass": "The host does not lead to the address that the client had connected to (a transparent listener): that address was asked.",
    NotShared "not-shared" "miss": "It waited for what others had asked for, and that was for them alone.",
}
