//! The error pages of the rules.

use super::facts::Asks;
use crate::page::Page;
use crate::people::{LoginRefusal, LoginState};
use crate::reach;
use larder_wire::FaultKind;

pub(super) fn forward_off() -> Page {
    let what = "This address serves sites and is no forward proxy.";
    let remedy = "The administrator of this cache can change that: `forward = true` in its [[listen]].";
    Page::new(403, "forward-off", what, remedy)
}

pub(super) fn no_ftp() -> Page {
    let what = match cfg!(feature = "ftp") {
        true => "This cache asks no FTP servers.",
        false => "This cache asks no FTP servers: its program was built without FTP.",
    };
    let remedy =
        "Ask for the file at an https:// address; the administrator of this cache can set `forward.ftp = true`.";
    Page::new(403, "no-ftp", what, remedy)
}

pub(super) fn ambiguous() -> Page {
    let what = "The path can be read in several ways, and they lead to different places.";
    Page::new(
        400,
        "ambiguous-path",
        what,
        "Ask without dot segments, empty segments, `;`, `\\` and needless encodings.",
    )
}

pub(super) fn ambiguous_cookie(name: &str) -> Page {
    let what = format!(
        "The request has two cookies {name:?} with different values, and readers disagree about which one counts."
    );
    Page::new(400, "ambiguous-cookie", what, "Delete the cookies of this site, and ask again.")
}

/// The page for an address that the client may not reach. It does not tell to which address the host resolves, because that
/// would disclose the network to clients that cannot reach it.
pub fn out_of_reach() -> Page {
    let what = "This proxy does not connect to that address.";
    let remedy = "The administrator of this cache can open its network: `access.destinations` in the settings.";
    Page::new(403, reach::REFUSED, what, remedy)
}

pub(super) fn connect_port() -> Page {
    let what = "Tunnels to this port are not permitted.";
    let remedy = "The administrator of this cache can permit it: `access.connect_ports` in the settings.";
    Page::new(403, "connect-port", what, remedy)
}

/// The page for a connection that was opened before the listener's demands of certificates changed. A client may ask again on a new
/// connection (RFC 9110 section 15.5.20).
pub(super) fn other_certificates() -> Page {
    let what = "This address asks for other certificates of its clients since this connection was opened.";
    Page::new(421, "other-certificates", what, "Ask again on a new connection.").closing()
}

pub(super) fn denied(word: &'static str, what: &str) -> Page {
    Page::new(403, word, what, "Ask the administrator of this cache; the settings are in [access].")
}

/// The page for a login that is gone with a reload, for a moment.
pub(super) fn login_gone() -> Page {
    let what = "Whether the login is right can't be found out.";
    Page::new(503, "login-gone", what, "Try again.").with("Retry-After", "1")
}

/// The page for a client that a login does not let in.
pub(super) fn refusal_page(login: &LoginState, refusal: &LoginRefusal, asks: Asks) -> Page {
    match refusal {
        LoginRefusal::Limited(wait) => {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            let what = "Too many wrong passwords came from this address.";
            let page = Page::new(429, "login-limited", what, "Wait a moment, and try again.");
            return page.with("Retry-After", seconds.max(1).to_string());
        }
        LoginRefusal::Trouble(word) => {
            let what = "Whether the login is right can't be found out now.";
            let remedy = "Try again in a moment; the log of this cache says more to its administrator.";
            return Page::new(503, word, what, remedy).with("Retry-After", "5");
        }
        LoginRefusal::PassedOn => {
            let what = "This login is bound to a connection, and the connection is that of another proxy, which may share it among users.";
            return Page::new(403, "login-passed-on", what, "Ask this cache without a proxy before it.");
        }
        LoginRefusal::Missing | LoginRefusal::Wrong | LoginRefusal::Stale | LoginRefusal::Continues(_) => {}
    }
    let (status, field) = match asks {
        Asks::Proxy => (407, "Proxy-Authenticate"),
        Asks::Server => (401, "WWW-Authenticate"),
    };
    let (word, what) = match refusal {
        LoginRefusal::Wrong => ("login-wrong", "The user or the password is wrong."),
        _ => ("login", "A login is needed here."),
    };
    let page = Page::new(status, word, what, "Log in; the administrator of this cache knows the users.");
    login.challenges(refusal).into_iter().fold(page, |page, challenge| page.with(field, challenge))
}

/// The page for a message that is malformed or exceeds a limit.
pub fn fault_page(kind: FaultKind, detail: &str) -> Page {
    Page::new(
        kind.client_status(),
        kind.as_str(),
        format!("The request cannot be accepted: {detail}."),
        "If a program of yours sent it, its HTTP library is at fault.",
    )
    .closing()
}

/// The page for a request that the rules could not decide about although all facts were found that they asked for.
pub(super) fn undecided() -> Page {
    let what = "The rules asked for more facts about this request than one verdict may need.";
    Page::new(500, "undecided", what, "Tell the administrator: a rule asks again for what it was told.")
}
