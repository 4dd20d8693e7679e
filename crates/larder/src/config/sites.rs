//! The sites of a configuration, found by host without a look at each of them.

use super::{HostPattern, Site};
use larder_wire::reading::Reading;
use larder_wire::target::common_spelling;
use larder_wire::{Host, Scheme, Url};
use std::collections::HashMap;
use std::ops::Deref;

/// Sites, those with the longest prefix first, and where each host has its own among them.
#[derive(Clone, Debug, Default)]
pub struct Sites {
    list: Vec<Site>,
    /// Their prefixes, read as [`Reading`] reads a path.
    resolved: Vec<Box<[u8]>>,
    /// By the name itself.
    exact: HashMap<Box<str>, Vec<usize>>,
    /// Sites with a pattern `*.name`, by the name with its leading dot.
    below: HashMap<Box<str>, Vec<usize>>,
    any: Vec<usize>,
    /// Those whose TLS is passed through. No request is one of theirs: they are found by the name in a ClientHello alone.
    passed_through: Option<Box<Sites>>,
}

impl Sites {
    /// Puts sites in order.
    pub fn new(list: Vec<Site>) -> Sites {
        let (passed_through, list): (Vec<Site>, Vec<Site>) = list.into_iter().partition(|site| site.pass_through);
        let passed_through = (!passed_through.is_empty()).then(|| Box::new(Sites::indexed(passed_through)));
        Sites { passed_through, ..Sites::indexed(list) }
    }

    fn indexed(mut list: Vec<Site>) -> Sites {
        list.sort_by_key(|site| std::cmp::Reverse(site.prefix.len()));
        let mut sites = Sites::default();
        for (number, site) in list.iter().enumerate() {
            for pattern in &site.hosts {
                let (exact, below) = match pattern {
                    HostPattern::Exact(host) => (Some(host.as_str()), None),
                    HostPattern::Below(suffix) => (None, Some(suffix)),
                    HostPattern::Tree(suffix) => (suffix.get(1..), Some(suffix)),
                    HostPattern::Any => {
                        sites.any.push(number);
                        continue;
                    }
                };
                exact.into_iter().for_each(|host| sites.exact.entry(host.into()).or_default().push(number));
                below.into_iter().for_each(|suffix| sites.below.entry(suffix.clone()).or_default().push(number));
            }
        }
        let resolved = list.iter().map(|site| resolved(&site.prefix)).collect();
        Sites { list, resolved, ..sites }
    }

    /// Whether there is none at all.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty() && self.passed_through.is_none()
    }

    /// All of them, those whose TLS is passed through behind the others.
    pub fn all(&self) -> impl Iterator<Item = &Site> {
        self.list.iter().chain(self.passed_through.iter().flat_map(|sites| &sites.list))
    }

    /// Whether TLS to any of them is passed through.
    pub fn pass_any_through(&self) -> bool {
        self.passed_through.is_some()
    }

    /// The site of this host whose TLS is passed through, unless one that is served has a more precise host.
    pub fn passed_through(&self, host: &Host) -> Option<&Site> {
        let sites = self.passed_through.as_ref()?;
        if self.precision(host) > sites.precision(host) {
            return None;
        }
        let url =
            Url { scheme: Scheme::Https, host: host.clone(), port: Scheme::Https.default_port(), path: "/".into() };
        sites.find(&url).map(|(_, site)| site)
    }

    /// The site with the most precise host, and of those the one with the longest prefix, by the path as it is written; with
    /// its place in the list.
    pub fn find(&self, url: &Url) -> Option<(usize, &Site)> {
        self.first(url, &|number| under(self.list[number].prefix.as_bytes(), url.path.as_bytes()))
    }

    /// Like [`Sites::find`], but an error unless every reader of the path finds the same site. The path is forwarded as
    /// it is written, and an origin may read it otherwise: what any reading puts below another site's prefix must not
    /// reach this one's origin.
    pub fn find_by_every_reading(&self, url: &Url) -> Result<Option<(usize, &Site)>, Ambiguous> {
        let as_written = self.find(url);
        if !self.look_at_paths() {
            return Ok(as_written);
        }
        let agree = match Reading::of(&url.path) {
            Reading::Path(path) => {
                let resolved = self.first(url, &|number| under(&self.resolved[number], &path));
                resolved.map(|(number, _)| number) == as_written.map(|(number, _)| number)
            }
            // It may be in any.
            Reading::Climbs | Reading::Unreadable => {
                self.first(url, &|number| self.list[number].prefix != "/").is_none()
            }
        };
        if agree { Ok(as_written) } else { Err(Ambiguous) }
    }

    /// Whether paths make a difference to [`Sites::find`].
    pub fn look_at_paths(&self) -> bool {
        // Those with the longest prefix are first.
        self.list.first().is_some_and(|site| site.prefix != "/")
    }

    /// The first site of the most precise host of which one is wanted.
    fn first(&self, url: &Url, is_wanted: &dyn Fn(usize) -> bool) -> Option<(usize, &Site)> {
        if self.list.is_empty() {
            return None;
        }
        let wanted = |numbers: &[usize]| numbers.iter().copied().find(|&number| is_wanted(number));
        // A trailing dot (a name from the root) makes no difference.
        let host = url.host.as_str();
        let host = host.trim_end_matches('.');
        let exact = self.exact.get(host).and_then(|numbers| wanted(numbers));
        let number = exact.or_else(|| self.below(host, &wanted)).or_else(|| wanted(&self.any))?;
        Some((number, &self.list[number]))
    }

    /// How much of a host the most precise pattern names that fits it; `None` where none does.
    fn precision(&self, host: &Host) -> Option<usize> {
        // A trailing dot (a name from the root) makes no difference.
        let host = host.as_str().trim_end_matches('.');
        if self.exact.contains_key(host) {
            return Some(usize::MAX);
        }
        let mut dots = memchr::memchr_iter(b'.', host.as_bytes()).filter(|&at| at > 0);
        let ending = dots.find(|&at| self.below.contains_key(&host[at..])).map(|at| host.len() - at);
        ending.or((!self.any.is_empty()).then_some(0))
    }

    /// From the longest ending to the shortest; an ending alone is no name below it.
    fn below(&self, host: &str, wanted: &dyn Fn(&[usize]) -> Option<usize>) -> Option<usize> {
        if self.below.is_empty() {
            return None;
        }
        let mut dots = memchr::memchr_iter(b'.', host.as_bytes()).filter(|&at| at > 0);
        dots.find_map(|at| wanted(self.below.get(&host[at..])?))
    }
}

/// A path that is in one site for some readers, and in another for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ambiguous;

/// Whether a prefix is one path for every reader: no empty segments, no dot segments, nothing that is read in two ways.
pub fn is_prefix(text: &str) -> bool {
    let segments = || text.split('/').skip(1);
    let trail = segments().last() == Some("");
    let is_name = |segment: &str| !segment.is_empty() && !segment.ends_with('.');
    let names = segments().count() - usize::from(trail);
    text.starts_with('/')
        && !text.contains(['?', '#', ' ', ';', '\\'])
        && segments().take(names).all(is_name)
        && matches!(Reading::of(text), Reading::Path(_))
        && common_spelling(text.as_bytes()).eq_ignore_ascii_case(text.as_bytes())
}

/// The path that all readers agree on for a prefix. A prefix that they disagree on is refused where the settings are
/// read.
pub fn resolved(prefix: &str) -> Box<[u8]> {
    match Reading::of(prefix) {
        Reading::Path(path) => path.into(),
        Reading::Climbs | Reading::Unreadable => prefix.as_bytes().into(),
    }
}

impl Deref for Sites {
    type Target = [Site];

    fn deref(&self) -> &[Site] {
        &self.list
    }
}

/// The index follows from the list.
impl PartialEq for Sites {
    fn eq(&self, other: &Sites) -> bool {
        self.list == other.list && self.passed_through == other.passed_through
    }
}

impl Eq for Sites {}

/// `/a` holds `/a`, `/a/b` and `/a?q`, but not `/ab`.
fn under(prefix: &[u8], path: &[u8]) -> bool {
    match path.strip_prefix(prefix) {
        Some(rest) => prefix.ends_with(b"/") || matches!(rest, [] | [b'/' | b'?', ..]),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::url::SiteOrigin;
    use super::super::{HostHeader, SiteCertificate, SourceLine};
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn site(hosts: &[&str], prefix: &str) -> Site {
        Site {
            hosts: hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect(),
            prefix: prefix.to_owned(),
            origin: Arc::new(SiteOrigin::new(Url::parse("http://origin/").unwrap())),
            host_header: HostHeader::Client,
            certificate: SiteCertificate::None,
            http2: None,
            proxy_protocol: None,
            pass_through: false,
            compression: Arc::default(),
            python: String::new(),
            hooks: Vec::new(),
            hooked_by: None,
            routes: Vec::new(),
            login: String::new(),
            external: Vec::new(),
            url_rewrite: String::new(),
            store_id: String::new(),
            place: SourceLine::default(),
        }
    }

    #[test]
    fn the_most_precise_site_wins() {
        let sites = Sites::new(vec![
            site(&["*.a.example"], "/"),
            site(&["x.a.example"], "/"),
            site(&["x.a.example", "z.example"], "/api"),
            site(&["*.a.example"], "/api/deep"),
            site(&["*.example"], "/all"),
            site(&["*"], "/any"),
        ]);
        for (url, wanted) in [
            ("http://y.a.example/", Some(("*.a.example", "/"))),
            ("http://y.a.example/api/deep/x", Some(("*.a.example", "/api/deep"))),
            ("http://x.a.example/", Some(("x.a.example", "/"))),
            ("http://x.a.example./", Some(("x.a.example", "/"))),
            ("http://x.a.example/api?q", Some(("x.a.example", "/api"))),
            ("http://x.a.example/apis", Some(("x.a.example", "/"))),
            ("http://x.a.example/api/deep", Some(("x.a.example", "/api"))),
            ("http://z.example/api/", Some(("x.a.example", "/api"))),
            ("http://z.example/all", Some(("*.example", "/all"))),
            ("http://z.example/any", Some(("*", "/any"))),
            ("http://a.example/all", Some(("*.example", "/all"))),
            ("http://.a.example/", None),
            ("http://b.example/", None),
            ("http://c/any?", Some(("*", "/any"))),
        ] {
            let found = sites.find(&Url::parse(url).unwrap());
            let found = found.map(|(at, site)| {
                assert_eq!(&sites[at], site);
                (site.hosts[0].to_string(), site.prefix.clone())
            });
            assert_eq!(found, wanted.map(|(host, prefix)| (host.to_owned(), prefix.to_owned())), "{url}");
        }
    }

    #[test]
    fn sites_that_are_passed_through_are_found_by_their_names_alone() {
        let passed = |hosts: &[&str]| Site { pass_through: true, ..site(hosts, "/") };
        let sites = Sites::new(vec![passed(&["a.example", "*.b.example"]), site(&["a.example"], "/")]);
        let name = |host: &str| sites.passed_through(&Host::parse(host).unwrap()).map(|site| site.hosts.len());
        for (host, wanted) in [
            ("a.example", Some(2)),
            ("A.Example.", Some(2)),
            ("x.b.example", Some(2)),
            ("b.example", None),
            ("c", None),
        ] {
            assert_eq!(name(host), wanted, "{host}");
        }
        let found = |url: &str| sites.find(&Url::parse(url).unwrap()).map(|(number, site)| (number, site.pass_through));
        assert_eq!(found("https://a.example/"), Some((0, false)));
        assert_eq!(found("https://x.b.example/"), None, "no request is one of theirs");
        assert!(!Sites::new(vec![passed(&["a.example"])]).is_empty(), "a listener beside them is no proxy by itself");
        assert_eq!((sites.all().count(), sites.len()), (2, 1));
    }

    #[test]
    fn a_site_that_is_served_keeps_its_name_beside_a_pattern_that_is_passed_through() {
        let passed = |hosts: &[&str]| Site { pass_through: true, ..site(hosts, "/") };
        let sites = Sites::new(vec![
            passed(&["*.example", "deep.served.example", "both.example"]),
            site(&["www.example", "*.served.example", "both.example"], "/"),
        ]);
        for (host, is_passed) in [
            ("x.example", true),
            ("www.example", false),
            ("WWW.example.", false),
            ("x.served.example", false),
            ("deep.served.example", true),
            ("both.example", true),
        ] {
            assert_eq!(sites.passed_through(&Host::parse(host).unwrap()).is_some(), is_passed, "{host}");
        }
        let any = Sites::new(vec![passed(&["*"]), site(&["*.example"], "/")]);
        assert!(any.passed_through(&Host::parse("a.test").unwrap()).is_some());
        assert!(any.passed_through(&Host::parse("a.example").unwrap()).is_none());
        let served = Sites::new(vec![passed(&["*.example"]), site(&["*"], "/")]);
        assert!(served.passed_through(&Host::parse("a.example").unwrap()).is_some());
    }

    #[test]
    fn a_prefix_is_one_path_for_every_reader() {
        for good in ["/", "/a", "/a/", "/a/b.c", "/.well-known/", "/~a", "/caf%C3%A9", "/caf%c3%a9/", "/a%2Cb"] {
            assert!(is_prefix(good), "{good}");
        }
        for bad in [
            "", "a", "//", "/a//b", "/a/./b", "/a/../b", "/a/.", "/..", "/%61", "/%2e%2e/", "/a;b", "/a\\b", "/a?b",
            "/a.", "/%zz", "/a%00",
        ] {
            assert!(!is_prefix(bad), "{bad}");
        }
    }

    #[test]
    fn a_path_is_of_the_site_that_every_reader_finds() {
        let sites = Sites::new(vec![
            site(&["a.example"], "/"),
            site(&["a.example"], "/private"),
            site(&["a.example"], "/caf%c3%a9/"),
            site(&["*.b.example"], "/x/"),
            site(&["c.example"], "/"),
        ]);
        let prefix = |url: &str| match sites.find_by_every_reading(&Url::parse(url).unwrap()) {
            Ok(Some((_, site))) => site.prefix.clone(),
            Ok(None) => "none".to_owned(),
            Err(Ambiguous) => "ambiguous".to_owned(),
        };
        for (url, wanted) in [
            ("http://a.example/private/x?/../y", "/private"),
            ("http://a.example/private//x%2Fy;z", "/private"),
            ("http://a.example/%70ublic//x", "/"),
            ("http://a.example/Private", "/"),
            ("http://a.example/%70rivate", "ambiguous"),
            ("http://a.example/private%2fx", "ambiguous"),
            ("http://a.example/caf%c3%a9/x", "/caf%c3%a9/"),
            ("http://a.example/caf%C3%A9/x", "ambiguous"),
            ("http://a.example/x/..", "ambiguous"),
            ("http://a.example/%zz", "ambiguous"),
            ("http://1.b.example/x/y", "/x/"),
            ("http://1.b.example//x/y", "ambiguous"),
            ("http://1.b.example//y", "none"),
            ("http://1.b.example/y/../z", "ambiguous"),
            ("http://c.example/x/../%zz", "/"),
            ("http://d.example/x/../%zz", "none"),
        ] {
            assert_eq!(prefix(url), wanted, "{url}");
        }
    }

    /// How precise a pattern is: among several that match, the greatest wins.
    fn rank(pattern: &HostPattern, host: &larder_wire::Host) -> usize {
        match pattern {
            HostPattern::Exact(_) => usize::MAX,
            HostPattern::Tree(suffix) if suffix.get(1..) == Some(host.as_str()) => usize::MAX,
            HostPattern::Below(suffix) | HostPattern::Tree(suffix) => suffix.len(),
            HostPattern::Any => 0,
        }
    }

    /// As the index does it, with a look at each site.
    fn found_by_hand<'a>(sites: &'a Sites, url: &Url) -> Option<&'a Site> {
        let precision = |site: &Site| {
            let hosts = site.hosts.iter().filter(|pattern| pattern.matches(&url.host));
            hosts.map(|pattern| (rank(pattern, &url.host), site.prefix.len())).max()
        };
        let all = sites.iter().filter(|site| under(site.prefix.as_bytes(), url.path.as_bytes()));
        all.filter_map(|site| Some((precision(site)?, site))).rev().max_by_key(|(rank, _)| *rank).map(|(_, site)| site)
    }

    proptest! {
        #[test]
        fn the_index_finds_what_a_look_at_each_finds(
            list in prop::collection::vec((prop::collection::vec("(\\*\\.)?[ab](\\.[ab]){0,2}|\\*", 1..3), "/([ab]/?){0,2}"), 0..12),
            asked in prop::collection::vec(("[ab](\\.[ab]){0,3}\\.?", "/([ab]/?){0,3}"), 20),
        ) {
            let sites = Sites::new(list.iter().map(|(hosts, prefix)| {
                site(&hosts.iter().map(String::as_str).collect::<Vec<_>>(), prefix)
            }).collect());
            for (host, path) in asked {
                let url = Url::parse(&format!("http://{host}{path}")).unwrap();
                let found = sites.find(&url).map(|(_, site)| site);
                prop_assert_eq!(found, found_by_hand(&sites, &url), "{}", url);
            }
        }
    }
}
