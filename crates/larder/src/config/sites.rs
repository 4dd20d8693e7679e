//! The sites of a configuration, found by host without a look at each of them.

use super::{HostPattern, Site};
use larder_wire::Url;
use std::collections::HashMap;
use std::ops::Deref;

/// Sites, those with the longest prefix first, and where each host has its own among them.
#[derive(Clone, Debug, Default)]
pub struct Sites {
    list: Vec<Site>,
    /// By the name itself.
    exact: HashMap<Box<str>, Vec<usize>>,
    /// By what the names below one end in, with its leading dot.
    below: HashMap<Box<str>, Vec<usize>>,
    any: Vec<usize>,
}

impl Sites {
    /// Puts sites in order.
    pub fn new(mut list: Vec<Site>) -> Sites {
        list.sort_by_key(|site| std::cmp::Reverse(site.prefix.len()));
        let mut sites = Sites::default();
        for (number, site) in list.iter().enumerate() {
            for pattern in &site.hosts {
                let numbers = match pattern {
                    HostPattern::Exact(host) => sites.exact.entry(host.as_str().into()).or_default(),
                    HostPattern::Below(suffix) => sites.below.entry(suffix.clone()).or_default(),
                    HostPattern::Any => &mut sites.any,
                };
                numbers.push(number);
            }
        }
        Sites { list, ..sites }
    }

    /// The site with the most precise host, and of those the one with the longest prefix; with its place in the list.
    pub fn find(&self, url: &Url) -> Option<(usize, &Site)> {
        if self.list.is_empty() {
            return None;
        }
        // A trailing dot (a name from the root) makes no difference.
        let host = url.host.as_str();
        let host = host.strip_suffix('.').unwrap_or(host);
        let exact = self.exact.get(host).and_then(|numbers| self.first_over(numbers, url));
        exact.or_else(|| self.below(host, url)).or_else(|| self.first_over(&self.any, url))
    }

    /// Whether paths make a difference to [`Sites::find`].
    pub fn look_at_paths(&self) -> bool {
        // Those with the longest prefix are first.
        self.list.first().is_some_and(|site| site.prefix != "/")
    }

    /// From the longest ending to the shortest; an ending alone is no name below it.
    fn below(&self, host: &str, url: &Url) -> Option<(usize, &Site)> {
        if self.below.is_empty() {
            return None;
        }
        let mut dots = memchr::memchr_iter(b'.', host.as_bytes()).filter(|&at| at > 0);
        dots.find_map(|at| self.first_over(self.below.get(&host[at..])?, url))
    }

    fn first_over(&self, numbers: &[usize], url: &Url) -> Option<(usize, &Site)> {
        let mut sites = numbers.iter().map(|&number| (number, &self.list[number]));
        sites.find(|(_, site)| under(&site.prefix, &url.path))
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
        self.list == other.list
    }
}

impl Eq for Sites {}

/// `/a` holds `/a`, `/a/b` and `/a?q`, but not `/ab`.
fn under(prefix: &str, path: &str) -> bool {
    match path.strip_prefix(prefix) {
        Some(rest) => prefix.ends_with('/') || rest.is_empty() || rest.starts_with(['/', '?']),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::url::SiteOrigin;
    use super::super::{HostHeader, Place};
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn site(hosts: &[&str], prefix: &str) -> Site {
        Site {
            hosts: hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect(),
            prefix: prefix.to_owned(),
            origin: Arc::new(SiteOrigin::new(Url::parse("http://origin/").unwrap())),
            host_header: HostHeader::Client,
            place: Place::default(),
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
            let said = found.map(|(at, site)| {
                assert_eq!(&sites[at], site);
                (site.hosts[0].to_string(), site.prefix.clone())
            });
            assert_eq!(said, wanted.map(|(host, prefix)| (host.to_owned(), prefix.to_owned())), "{url}");
        }
    }

    /// How much a pattern says: among several that match, the greatest is meant.
    fn rank(pattern: &HostPattern) -> usize {
        match pattern {
            HostPattern::Exact(_) => usize::MAX,
            HostPattern::Below(suffix) => suffix.len(),
            HostPattern::Any => 0,
        }
    }

    /// As the index does it, with a look at each site.
    fn found_by_hand<'a>(sites: &'a Sites, url: &Url) -> Option<&'a Site> {
        let precision = |site: &Site| {
            let hosts = site.hosts.iter().filter(|pattern| pattern.matches(&url.host));
            hosts.map(|pattern| (rank(pattern), site.prefix.len())).max()
        };
        let all = sites.iter().filter(|site| under(&site.prefix, &url.path));
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
