//! Whole sources, and Squid's own judgement against the rules that come of it.

mod hostile;
mod judged;
mod squid_access;
mod squid_peers;
mod whole_files;
