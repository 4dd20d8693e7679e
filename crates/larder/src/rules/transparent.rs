//! Requests on connections that clients have opened to other servers (`listen.transparent`, docs/transparent.md): nothing is asked of them
//! that only a proxy asks, and the host that they name is held against the address that their client has connected to.

use super::facts::Facts;
use super::pages::{denied, out_of_reach};
use super::{Need, Route};
use crate::page::Page;
use larder_wire::{Host, Method, Scheme, Url};
use std::net::IpAddr;
use std::sync::Arc;

/// The page for a request that goes nowhere from such a connection, whatever it asks for.
pub(super) fn refusal(facts: &Facts<'_>) -> Option<Page> {
    let to = facts.destination()?;
    if *facts.method() == Method::Connect && facts.connection_scheme() == Scheme::Http {
        let what = "This connection was opened to another server, and its CONNECT is for a proxy.";
        return Some(denied("connect-transparent", what).closing());
    }
    facts.is_out_of_reach(&Host::from(to.ip()), to.port()).then(|| out_of_reach().closing())
}

/// The page for a request that would need a login: its client knows of no proxy, and would give the password of another server.
pub(super) fn no_login(facts: &Facts<'_>) -> Option<Page> {
    let is_asked = facts.destination().is_some() && !facts.is_of_site();
    let what = "A login is needed here, and clients that know of no proxy can't be asked for one.";
    is_asked.then(|| denied("login-transparent", what).closing())
}

/// Leads a request of the forward proxy to the address that its client has connected to, unless its host leads there too. A URL that
/// rules or hooks have chosen is the operator's word, and not the client's; a purge goes nowhere.
pub(super) fn lead(facts: &Facts<'_>, route: &mut Route) -> Result<(), Need> {
    let (Some(to), Route::Forward(asker)) = (facts.destination(), &*route) else { return Ok(()) };
    if facts.method().as_str() == "PURGE" && facts.config().access.may_purge(facts.client()).is_some() {
        return Ok(());
    }
    let Some(url) = facts.url().filter(|_| facts.asks_for_own_host()) else { return Ok(()) };
    let ip = to.ip().to_canonical();
    let leads_there = url.port == to.port()
        && match url.host.ip() {
            Some(named) => named.to_canonical() == ip,
            None => name_leads_to(facts, &url.host, ip)?,
        };
    if !leads_there {
        let to = Url { scheme: url.scheme, host: Host::from(ip), port: to.port(), path: "/".into() };
        *route = Route::Destination(*asker, Arc::new(to));
    }
    Ok(())
}

fn name_leads_to(facts: &Facts<'_>, host: &Host, ip: IpAddr) -> Result<bool, Need> {
    match &facts.found().destination {
        Some((known, leads_there)) if known == host => Ok(*leads_there),
        _ => Err(Need::Destination(Box::new((host.clone(), ip)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Loaded;
    use crate::reach::OwnAddresses;
    use crate::rehearse::{Form, connect, request};
    use crate::rules::{FoundFacts, Scene, Verdict};
    use larder_wire::RequestHead;

    /// The verdict on a request that was sent to this address, after this was found out of a name.
    fn judge(to: &str, asked: &RequestHead, found: Option<(&str, bool)>) -> Verdict {
        let text = "[[listen]]\naddress = \"0.0.0.0:3129\"\ntransparent = \"redirect\"\n";
        let Loaded { config, .. } = Loaded::parse("test", text, &[]).unwrap();
        let own: OwnAddresses = ["127.0.0.1:3129".parse().unwrap()].into_iter().collect();
        let destination = found.map(|(host, leads_there)| (Host::parse(host).unwrap(), leads_there));
        let mut found = FoundFacts::default();
        found.destination.clone_from(&destination);
        let scene = Scene { destination: to.parse().ok(), ..Scene::at(&config.listens[0], (&config, &own, &found)) };
        scene.judge(asked)
    }

    fn get(url: &str) -> RequestHead {
        request("GET", &Url::parse(url).unwrap(), Form::Origin, &[]).unwrap()
    }

    /// Where such a request goes: by its name, or to this URL.
    fn way(to: &str, asked: &RequestHead, found: Option<(&str, bool)>) -> String {
        match judge(to, asked, found) {
            Verdict::Allow(ask) => {
                assert_eq!(
                    ask.passes(),
                    ask.route.is_to_destination(),
                    "it is stored where its name leads there alone"
                );
                ask.tls_name().map_or("by name".to_owned(), |name| format!("{} as {name}", ask.connects_to()))
            }
            Verdict::Answer(page) => page.word.to_owned(),
            Verdict::Needs(need, _) => format!("{need:?}"),
            verdict => format!("{verdict:?}"),
        }
    }

    #[test]
    fn a_host_that_leads_elsewhere_gets_the_address_that_was_connected_to() {
        for (to, url, found, expected) in [
            ("10.0.0.1:80", "http://10.0.0.1/", None, "by name"),
            ("[2001:db8::1]:80", "http://[2001:db8::1]/", None, "by name"),
            ("10.0.0.1:80", "http://[::ffff:10.0.0.1]/", None, "by name"),
            ("10.0.0.1:80", "http://10.0.0.2/", None, "http://10.0.0.1/ as 10.0.0.2"),
            ("10.0.0.1:80", "http://10.0.0.1:81/", None, "http://10.0.0.1/ as 10.0.0.1"),
            ("10.0.0.1:8080", "http://a.test/", None, "http://10.0.0.1:8080/ as a.test"),
            ("10.0.0.1:80", "http://a.test/", Some(("a.test", true)), "by name"),
            ("10.0.0.1:80", "http://a.test/", Some(("a.test", false)), "http://10.0.0.1/ as a.test"),
            ("10.0.0.1:80", "http://a.test/", Some(("b.test", true)), "Destination((Host(\"a.test\"), 10.0.0.1))"),
            ("10.0.0.1:80", "http://a.test/", None, "Destination((Host(\"a.test\"), 10.0.0.1))"),
            // The address counts, whatever the host.
            ("127.0.0.1:3129", "http://a.test:3129/", Some(("a.test", true)), "out-of-reach"),
            ("169.254.169.254:80", "http://a.test/", Some(("a.test", true)), "out-of-reach"),
            ("10.0.0.1:80", "http://127.0.0.1/", None, "out-of-reach"),
        ] {
            assert_eq!(way(to, &get(url), found), expected, "{url} at {to}");
        }
    }

    #[test]
    fn a_client_that_knows_of_no_proxy_opens_no_tunnel() {
        let asked = connect(&Host::parse("a.test").unwrap(), 443).unwrap();
        assert_eq!(way("10.0.0.1:80", &asked, None), "connect-transparent");
    }
}
