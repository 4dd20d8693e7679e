//! The settings of a group and of its members.

use std::time::Duration;

/// How a member is chosen among those that may be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Two are drawn by weight, and the second one is asked where its response time and its load are clearly less (Mitzenmacher:
    /// The power of two choices in randomized load balancing, 2001).
    #[default]
    P2c,
    /// The one with the fewest requests under way for its weight.
    LeastConnections,
    /// In turn, each as often as its weight says.
    RoundRobin,
    /// By a key, which leads to the same member for as long as that one may be asked (Karger and others: Consistent hashing and random
    /// trees, 1997).
    RingHash,
    /// The one that served the client before, by a cookie; as [`Balance::P2c`] where there is none.
    Sticky,
}

impl Balance {
    /// All of them.
    pub const ALL: [Balance; 5] =
        [Balance::P2c, Balance::LeastConnections, Balance::RoundRobin, Balance::RingHash, Balance::Sticky];

    /// The word of settings and pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Balance::P2c => "p2c",
            Balance::LeastConnections => "least-connections",
            Balance::RoundRobin => "round-robin",
            Balance::RingHash => "ring-hash",
            Balance::Sticky => "sticky",
        }
    }
}

/// When a member whose requests fail gets none for a while.
#[derive(Clone, Debug, PartialEq)]
pub struct Eject {
    /// Failures in a row after which it is ejected; 0 for never.
    pub failures: u32,
    /// For how long, at first.
    pub time: Duration,
    /// For how long at most: the time doubles with each ejection that follows soon after another.
    pub time_max: Duration,
    /// The most of the members, in percent, that are ejected at once; of two or more members one may always be. A member that fails
    /// beyond that gets a tenth of its requests.
    pub out_percent_max: u32,
}

impl Default for Eject {
    fn default() -> Eject {
        Eject { failures: 5, time: Duration::from_secs(10), time_max: Duration::from_secs(300), out_percent_max: 50 }
    }
}

/// How often a request that failed is sent to another member.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// Further tries and hedges, in percent of requests.
    pub percent: u32,
    /// Tries of one request, the first one included.
    pub tries_max: u32,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry { percent: 20, tries_max: 3 }
    }
}

/// When a second request is sent beside one whose answer is late.
#[derive(Clone, Debug, PartialEq)]
pub struct Hedge {
    /// Once it has taken longer than so many percent of all requests.
    pub percentile: u32,
    /// Never sooner than this.
    pub time_min: Duration,
}

impl Default for Hedge {
    fn default() -> Hedge {
        Hedge { percentile: 95, time_min: Duration::from_millis(10) }
    }
}

/// How many checks in a row change whether a member counts as up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Good ones, until it is up again.
    pub rise: u32,
    /// Bad ones, until it is down.
    pub fall: u32,
}

impl Default for Checks {
    fn default() -> Checks {
        Checks { rise: 2, fall: 3 }
    }
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name, the only one of this name in its group.
    pub name: String,
    /// Its share of requests, compared with the weights of the others.
    pub weight: u32,
    /// It is asked only where no other one may be.
    pub is_backup: bool,
    /// Requests that may be under way at it; those that wait for a connection count too.
    pub requests_max: usize,
}

/// A group.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How a member is chosen.
    pub balance: Balance,
    /// When a member is ejected.
    pub eject: Eject,
    /// How often a request is sent again.
    pub retry: Retry,
    /// When a second one is sent beside a request; `None` for never.
    pub hedge: Option<Hedge>,
    /// How checks are counted; `None` where there are none.
    pub checks: Option<Checks>,
    /// From its recovery until a member gets its whole share.
    pub slow_start: Duration,
    /// Requests that may be under way at all members together.
    pub requests_max: usize,
    /// The members.
    pub members: Vec<Member>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            balance: Balance::default(),
            eject: Eject::default(),
            retry: Retry::default(),
            hedge: None,
            checks: None,
            slow_start: Duration::from_secs(10),
            requests_max: usize::MAX,
            members: Vec::new(),
        }
    }
}

/// The decision of an administrator about a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admin {
    /// Nothing: it serves as its health permits.
    #[default]
    InUse,
    /// It gets no new requests but those of clients whose cookie names it.
    Draining,
    /// It gets no new requests at all.
    Maintenance,
}

impl Admin {
    /// All of them.
    pub const ALL: [Admin; 3] = [Admin::InUse, Admin::Draining, Admin::Maintenance];

    /// The word of the API and pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Admin::InUse => "in-use",
            Admin::Draining => "draining",
            Admin::Maintenance => "maintenance",
        }
    }
}
