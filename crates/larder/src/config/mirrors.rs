//! The prefix mirror: which listeners are one, and the upstreams that have a short name.

use super::{Secret, SiteOrigin, Sites, SourceLine, url};
use larder_wire::{Host, Url};
use std::sync::Arc;

/// The URLs that clients of a listener may ask for in a path: `/https://host/path`, `/NAME/path`, `/v2/…`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mirroring {
    /// Nothing.
    #[default]
    None,
    /// The upstreams of `[[mirror]]`.
    Named,
    /// Each URL that the forward proxy would fetch.
    All,
}

/// The setting `mirror` of a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MirrorSetting {
    /// All for clients of this machine on a forward proxy without sites, else nothing.
    #[default]
    Auto,
    /// This, sites or not.
    Always(Mirroring),
}

impl MirrorSetting {
    /// The words of the setting.
    pub const ALL: [MirrorSetting; 4] = [
        MirrorSetting::Auto,
        MirrorSetting::Always(Mirroring::All),
        MirrorSetting::Always(Mirroring::Named),
        MirrorSetting::Always(Mirroring::None),
    ];

    /// The word of the setting.
    pub fn as_str(self) -> &'static str {
        match self {
            MirrorSetting::Auto => "auto",
            MirrorSetting::Always(Mirroring::All) => "all",
            MirrorSetting::Always(Mirroring::Named) => "named",
            MirrorSetting::Always(Mirroring::None) => "none",
        }
    }
}

/// How a listener decides about mirrored URLs, from its own table; the sites of the moment decide the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorRule {
    /// With this setting.
    pub setting: MirrorSetting,
    /// Only programs of this machine can connect, and the listener is a forward proxy.
    pub is_plain_proxy: bool,
    /// The listener has an origin of its own.
    pub has_origin: bool,
    /// Further names of this server that a client may use in `Host`.
    pub names: Arc<[Host]>,
}

impl MirrorRule {
    /// The URLs that clients may ask for while these sites are configured.
    pub fn beside(&self, sites: &Sites) -> Mirroring {
        match self.setting {
            _ if self.has_origin => Mirroring::None,
            MirrorSetting::Always(mirroring) => mirroring,
            MirrorSetting::Auto if self.is_plain_proxy && sites.is_empty() => Mirroring::All,
            MirrorSetting::Auto => Mirroring::None,
        }
    }
}

/// An upstream with a short name.
#[derive(Clone, Debug, PartialEq)]
pub struct Mirror {
    /// The first segment of the paths that lead there.
    pub name: String,
    /// Where they lead: a path in it is put before the rest of the path.
    pub origin: Arc<SiteOrigin>,
    /// It is a container registry: Larder itself gets tokens and follows redirects.
    pub registry: bool,
    /// `user:password` for the registry.
    pub credentials: Option<Secret>,
    /// Where it stands.
    pub place: SourceLine,
}

impl Mirror {
    /// A mirror of an upstream.
    pub fn of(name: String, origin: Url) -> Mirror {
        let origin = Arc::new(SiteOrigin::new(origin));
        Mirror { name, origin, registry: false, credentials: None, place: SourceLine::default() }
    }

    /// A container registry under the name of its host.
    pub fn registry(origin: Url) -> Mirror {
        Mirror { registry: true, ..Mirror::of(origin.authority(), origin) }
    }

    /// The URL that a path behind the name means.
    pub fn url(&self, rest: &str) -> Url {
        let base = self.origin.path.trim_end_matches('/');
        Url { path: format!("{base}{rest}").into(), ..Url::clone(&self.origin) }
    }

    /// The path of a URL behind this mirror's name, begun with `/`; `None` where the URL does not lie below its origin.
    pub fn path_of<'a>(&self, url: &'a Url) -> Option<&'a str> {
        let same = url.scheme == self.origin.scheme && url.host == self.origin.host && url.port == self.origin.port;
        let rest = url.path.strip_prefix(self.origin.path.trim_end_matches('/')).filter(|_| same)?;
        rest.starts_with('/').then_some(rest)
    }

    /// The beginning of the keys of answers that were fetched with credentials: they are for clients of this mirror, not for
    /// those that ask for the URL itself.
    pub fn key_start(&self) -> Option<String> {
        let user = self.credentials.as_ref()?.reveal().split(':').next().unwrap_or_default();
        let user: String = user.bytes().map(|byte| format!("{byte:02x}")).collect();
        let origin = &self.origin;
        Some(format!("{}://{user}@{}{} ", origin.scheme.as_str(), origin.authority(), origin.path))
    }
}

/// Whether a text can be the first segment of a path without a second meaning.
pub(super) fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_taken = ["v2", "http", "https", "squid-internal-mgr"].contains(&text);
    !text.is_empty() && text.len() <= 64 && !text.starts_with('.') && text.bytes().all(plain) && !is_taken
}

/// A mirror that has all defaults. Such a configuration is never handed out.
pub(super) fn any_mirror() -> Mirror {
    let origin = url::parse("http://origin.invalid").expect("a valid URL");
    Mirror::of(String::new(), origin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_and_its_path_behind_a_name() {
        let mirror = |origin: &str| Mirror::of("m".to_owned(), url::parse(origin).unwrap());
        for (origin, path, url) in [
            ("https://a.test", "/x?y", "https://a.test/x?y"),
            ("https://a.test/base/", "/x", "https://a.test/base/x"),
            ("https://a.test:81/base", "/", "https://a.test:81/base/"),
        ] {
            let mirror = mirror(origin);
            let at_origin = mirror.url(path);
            assert_eq!(at_origin.to_string(), url);
            assert_eq!(mirror.path_of(&at_origin), Some(path));
        }
        for other in
            ["https://a.test/basement/x", "http://a.test/base/x", "https://a.test:8443/base/x", "https://a.test/"]
        {
            assert_eq!(mirror("https://a.test/base").path_of(&Url::parse(other).unwrap()), None, "{other}");
        }
    }

    #[test]
    fn names_have_one_meaning() {
        for name in ["pypi", "npm-1", "docker.io", "registry.example"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "v2", "https", "http", "a/b", "a:b", "..", ".x", "a?b", "a%62"] {
            assert!(!is_name(name), "{name}");
        }
    }
}
