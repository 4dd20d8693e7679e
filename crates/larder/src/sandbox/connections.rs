//! The TCP ports that a configuration has the server connect to.

use crate::config::{Config, ListSource, MirrorSetting, Mirroring, SiteCertificate};
use std::collections::BTreeSet;
use std::fmt;

/// Name servers are asked by TCP where an answer is too long for a datagram.
const DNS: u16 = 53;

/// The ports that are connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Connections {
    /// These, which the settings name.
    To(BTreeSet<u16>),
    /// Any, for the sake of this part of the configuration: its peers name further ones.
    Anywhere(&'static str),
}

impl Connections {
    /// Whether they lead nowhere where `other` does not.
    pub fn are_within(&self, other: &Connections) -> bool {
        match (self, other) {
            (_, Connections::Anywhere(_)) => true,
            (Connections::Anywhere(_), _) => false,
            (Connections::To(own), Connections::To(others)) => own.is_subset(others),
        }
    }
}

impl fmt::Display for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Connections::To(ports) => f.write_str(&list(ports)),
            Connections::Anywhere(why) => write!(f, "any, for {why}"),
        }
    }
}

/// Ports in a line.
pub(super) fn list(ports: &BTreeSet<u16>) -> String {
    ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}

/// The ports of a configuration.
pub(super) fn of(config: &Config) -> Connections {
    if let Some(why) = leads_anywhere(config) {
        return Connections::Anywhere(why);
    }
    let of_sites =
        config.sites.all().flat_map(|site| site.routes.iter().map(|route| &route.origin).chain([&site.origin]));
    let of_listeners = config.listens.iter().filter_map(|listen| listen.origin.as_ref());
    let of_rules = config.rule_table.routes.iter().flatten();
    let mut ports = BTreeSet::from([DNS]);
    ports.extend(of_sites.chain(of_listeners).chain(of_rules).map(|origin| origin.port));
    ports.extend(config.origins.iter().flat_map(|group| &group.members).map(|member| member.url.port));
    ports.extend(config.parents.iter().map(|parent| parent.url.port));
    ports.extend(config.siblings.iter().map(|sibling| sibling.url.port));
    ports.extend(config.icaps.iter().flat_map(|icap| &icap.urls).map(|service| service.port));
    ports.extend(config.tracing.otlp.iter().map(|url| url.port));
    Connections::To(ports)
}

/// The part of a configuration that connects to ports which others name: clients, and peers of this server.
fn leads_anywhere(config: &Config) -> Option<&'static str> {
    let is_forward = config.listens.iter().any(|listen| listen.forwarding().beside(&config.sites));
    let is_mirror = |setting| !matches!(setting, MirrorSetting::Auto | MirrorSetting::Always(Mirroring::None));
    let parts = [
        (is_forward, "a forward proxy"),
        (config.listens.iter().any(|listen| is_mirror(listen.mirror)) || !config.mirrors.is_empty(), "mirrors"),
        (config.sites.all().any(|site| site.certificate == SiteCertificate::Acme), "an authority of certificates"),
        (config.lists.iter().any(|list| matches!(list.source, ListSource::Url(_))), "lists that are downloaded"),
        (config.cluster.is_on(), "a cluster"),
        (config.logins.iter().any(|login| login.jwks.is_some() || !login.ldap.servers.is_empty()), "logins by servers"),
        (!config.mounts.is_empty() || !config.helpers.is_empty(), "programs"),
    ];
    parts.into_iter().find_map(|(is_there, why)| is_there.then_some(why))
}
