//! One entry of a list.

use crate::name::Name;
use crate::network::AddressRange;

/// The names that an entry with a name covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameReach {
    /// The name alone.
    Exact,
    /// All names below it, not the name itself (`*.example.com` of a zone).
    Below,
    /// The name and all below it (`.example.com`).
    Tree,
}

impl NameReach {
    /// All of them, in the order of the tables of a compiled list.
    pub const ALL: [NameReach; 3] = [NameReach::Exact, NameReach::Below, NameReach::Tree];
}

/// Whether an entry covers, or takes what it names out of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It covers.
    Covers,
    /// It is an exception (`@@` of Adblock, `rpz-passthru`).
    Excepts,
}

impl Side {
    /// Both, in the order of a compiled list.
    pub const ALL: [Side; 2] = [Side::Covers, Side::Excepts];
}

/// One entry of a list.
#[expect(clippy::large_enum_variant, reason = "most entries are names, and a box for each of millions costs more")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A name.
    Name(Name, NameReach),
    /// Addresses.
    Addresses(AddressRange),
    /// The normal form of a URL (see `url`): it covers this URL and all that lie below its path.
    Url(Vec<u8>),
    /// A filter for web browsers, for the engine; the second value is whether a name says as much.
    Filter(String, bool),
    /// A regular expression over whole URLs in lower case.
    Expression(String),
}
