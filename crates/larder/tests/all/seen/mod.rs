//! Tests of what people see of a running Larder, and of what they steer it by.

mod admin;
mod api_random;
mod check;
mod credentials;
mod explain;
mod git;
mod identities;
mod logs;
mod metrics;
mod mirror;
mod papers;
mod portal;
mod prefetch;
mod process;
mod reach;
mod reload;
mod runs;
mod said_again;
mod schemes;
mod scripts;
mod squid;
mod stand;
mod store_rules;
mod stored;
mod traces;
mod upgrades;
