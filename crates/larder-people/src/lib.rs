//! All that is known of people and of Squid's helpers without a socket, a file or a clock: bytes and values in, values out.
//!
//! [`line`](mod@line) and [`answer`] are the line protocol of helpers, [`format`](mod@format) the fields of an `external_acl` line. [`htpasswd`], [`digest`] and [`token`]
//! check credentials, [`authorization`] reads the fields in which they come. [`form`] reads the form of a login page, [`cookie`] the field of its sessions. [`memo`], [`attempts`] and [`sessions`] are tables with a limit, which
//! their callers ask with the time; [`note`] is what logs have of a helper's answer.

pub mod answer;
pub mod attempts;
pub mod authorization;
pub mod ber;
pub mod cookie;
pub mod digest;
pub mod escape;
pub mod form;
pub mod format;
pub mod groups;
pub mod hash;
pub mod htdigest;
pub mod htpasswd;
pub mod kind;
pub mod ldap;
pub mod ldap_text;
pub mod line;
pub mod memo;
pub mod note;
pub mod sessions;
pub mod token;
