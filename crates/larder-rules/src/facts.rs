//! The questions that rules may ask about a request, and the order in which a rule asks them.

use larder_wire::{Host, Method, Scheme};
use std::net::{IpAddr, SocketAddr};

/// Why a judgement can't go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// The user has to be found out.
    NeedsUser,
    /// The addresses of the destination have to be looked up.
    NeedsDestination,
    /// A rule asks about the path, and readers of it disagree.
    AmbiguousPath,
    /// A rule asks about the path, and it is longer than [`PATH_BYTES_MAX`].
    LongPath,
}

/// A rule that asks about a longer path (without its query) refuses the request, so that the work of patterns has a bound and no padding
/// leads past a rule.
pub const PATH_BYTES_MAX: usize = 2_048;

/// The facts about one request. An implementation notes which were asked for: a memo of a verdict holds for another request only where
/// these are the same.
pub trait Facts {
    /// The method.
    fn method(&self) -> &Method;
    /// The scheme of the URL; https for a CONNECT.
    fn scheme(&self) -> Scheme;
    /// The listener's address, as it stands in the configuration.
    fn listener(&self) -> SocketAddr;
    /// The port of the URL.
    fn port(&self) -> u16;
    /// The host of the URL.
    fn host(&self) -> &Host;
    /// The client's address.
    fn client(&self) -> IpAddr;
    /// Minutes since 1970. A memo holds within one minute.
    fn minute(&self) -> i64;
    /// The server name of the client's TLS handshake.
    fn sni(&self) -> Option<&str>;
    /// Each name in the client's certificate, where the client has shown one that is verified; then there is at least one.
    fn each_certificate_name(&self, each: &mut dyn FnMut(&str));
    /// The value of each line of this field of the request.
    fn each_line(&self, name: &str, each: &mut dyn FnMut(&[u8]));
    /// The path without its query, as the reader sees it who undoes all encodings; `None` for a CONNECT, which has none.
    fn path(&self) -> Result<Option<&[u8]>, Stop>;
    /// The path without its query as it was sent; `None` for a CONNECT. `Err` where it is longer than [`PATH_BYTES_MAX`].
    fn sent_path(&self) -> Result<Option<&str>, Stop>;
    /// The query as it was sent, without its `?`.
    fn query(&self) -> Option<&str>;
    /// Whether the list with this name covers the request's host or URL.
    fn in_list(&self, name: &str) -> bool;
    /// The country of the client's address, by its two letters in capitals.
    fn country(&self) -> Option<[u8; 2]>;
    /// The user that the client logged in as.
    fn user(&self) -> Result<Option<&str>, Stop>;
    /// Each group of the user.
    fn each_group(&self, each: &mut dyn FnMut(&str)) -> Result<(), Stop>;
    /// The country of an address, as [`Facts::country`] has it.
    fn country_of(&self, address: IpAddr) -> Option<[u8; 2]>;
    /// Each address of the destination.
    fn each_destination(&self, each: &mut dyn FnMut(IpAddr)) -> Result<(), Stop>;
    /// The judgement depends on the facts of these slots, or could with another path: a memo compares them.
    fn depends_on(&self, _slots: Slots) {}
}

/// A set of slots. A slot is a matcher of a rule: one fact, and one way to ask about it. A rule asks in the order of their numbers, the
/// cheapest first; a fact that another rule asked for already comes before all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots(pub(crate) u64);

/// One slot, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(pub(crate) u8);

#[allow(missing_docs)]
impl Slot {
    pub const HOST: Slot = Slot(0);
    pub const METHOD: Slot = Slot(1);
    pub const SCHEME: Slot = Slot(2);
    pub const LISTENER: Slot = Slot(3);
    pub const PORT: Slot = Slot(4);
    pub const CLIENT: Slot = Slot(5);
    pub const TIME: Slot = Slot(6);
    pub const SNI: Slot = Slot(7);
    pub const CERTIFICATE: Slot = Slot(8);
    pub const USER_AGENT: Slot = Slot(9);
    pub const CONTENT_TYPE: Slot = Slot(10);
    pub const SIZE: Slot = Slot(11);
    /// The first of the slots of named fields, up to [`Slot::TARGET_REGEX`].
    pub const FIELDS: Slot = Slot(12);
    pub const TARGET_REGEX: Slot = Slot(53);
    pub const URL_REGEX: Slot = Slot(54);
    pub const PATH: Slot = Slot(55);
    pub const PATH_REGEX: Slot = Slot(56);
    pub const QUERY: Slot = Slot(57);
    pub const LIST: Slot = Slot(58);
    pub const COUNTRY: Slot = Slot(59);
    pub const USER: Slot = Slot(60);
    pub const GROUP: Slot = Slot(61);
    pub const DESTINATION: Slot = Slot(62);
    pub const HOST_REGEX: Slot = Slot(63);
}

/// A table that asks about more fields by name is refused.
pub const FIELDS_MAX: usize = (Slot::TARGET_REGEX.0 - Slot::FIELDS.0) as usize;

/// The slot of a named field, by its number.
pub(crate) fn field_slot(number: usize) -> Slot {
    Slot(Slot::FIELDS.0 + u8::try_from(number.min(FIELDS_MAX - 1)).unwrap_or_default())
}

impl Slots {
    /// Those whose facts every memo compares in any case, and which cost next to nothing.
    pub(crate) const FREE: Slots = Slots(0b11111);
    /// Those that read the path or the query.
    pub const OF_PATH: Slots = Slots(
        1 << Slot::TARGET_REGEX.0
            | 1 << Slot::URL_REGEX.0
            | 1 << Slot::PATH.0
            | 1 << Slot::PATH_REGEX.0
            | 1 << Slot::QUERY.0
            | 1 << Slot::LIST.0,
    );

    /// Those that depend on the client's address.
    pub const OF_CLIENT: Slots = Slots(1 << Slot::CLIENT.0 | 1 << Slot::COUNTRY.0);

    /// Those that depend on lists and on the file of countries.
    pub const OF_LISTS: Slots = Slots(1 << Slot::LIST.0 | 1 << Slot::COUNTRY.0);

    /// Those whose facts change without a sign that a memo could compare.
    pub const WITHOUT_MEMO: Slots = Slots(1 << Slot::DESTINATION.0);

    /// These with one more.
    pub fn with(self, slot: Slot) -> Slots {
        Slots(self.0 | 1 << slot.0)
    }

    /// Those of both.
    pub fn and(self, other: Slots) -> Slots {
        Slots(self.0 | other.0)
    }

    /// Those that `other` has not.
    pub fn without(self, other: Slots) -> Slots {
        Slots(self.0 & !other.0)
    }

    /// Whether this one is among them.
    pub fn has(self, slot: Slot) -> bool {
        self.0 & 1 << slot.0 != 0
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether both have one in common.
    pub fn meets(self, other: Slots) -> bool {
        self.0 & other.0 != 0
    }

    /// In the order in which a rule asks.
    pub fn iter(self) -> impl Iterator<Item = Slot> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let slot = (left != 0).then_some(Slot(left.trailing_zeros() as u8))?;
            left &= left - 1;
            Some(slot)
        })
    }
}
