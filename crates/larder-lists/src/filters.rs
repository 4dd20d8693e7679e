//! The engine for filters of web browsers, where the feature `adblock` is on; otherwise a stand-in that takes none.
//!
//! A list does not know which page asks and for what: requests are taken to be from another site, of the type `other`. Filters that are for
//! pages of named sites or for types of resources match none of them.

/// Whether this build has the engine.
pub const HAS_ENGINE: bool = cfg!(feature = "adblock");

/// The opinion of the filters about a URL.
#[cfg_attr(not(feature = "adblock"), expect(dead_code, reason = "without an engine there is no opinion"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opinion {
    /// A filter matches, and no exception.
    Covered,
    /// A filter matches, and an exception too.
    Excepted,
    /// None matches.
    None,
}

#[cfg(feature = "adblock")]
mod engine {
    use super::Opinion;
    use adblock::Engine;
    use adblock::lists::{FilterSet, ParseOptions, RuleTypes};
    use adblock::request::Request;

    /// Filters that are ready to match.
    pub struct Filters(Engine);

    impl Filters {
        /// The filters of these lines.
        pub fn of(text: String) -> Filters {
            let mut set = FilterSet::new(false);
            set.add_filter_list(text, ParseOptions { rule_types: RuleTypes::NetworkOnly, ..ParseOptions::default() });
            Filters(Engine::new_with_filter_set(set))
        }

        /// Their opinion about a URL.
        pub fn judge(&self, url: &str) -> Opinion {
            let Ok(request) = Request::new(url, "", "other", "GET") else { return Opinion::None };
            let result = self.0.check_network_request(&request);
            match (result.should_block(), result.exception) {
                (true, _) => Opinion::Covered,
                (false, Some(_)) => Opinion::Excepted,
                (false, None) => Opinion::None,
            }
        }
    }
}

#[cfg(not(feature = "adblock"))]
mod engine {
    use super::Opinion;

    /// No filters: this build has no engine.
    pub enum Filters {}

    impl Filters {
        /// The opinion of no filter.
        pub fn judge(&self, _url: &str) -> Opinion {
            match *self {}
        }
    }
}

pub use engine::Filters;

impl Filters {
    /// The filters of a list; `None` where it has none, or where this build has no engine.
    pub fn from_text(text: &str) -> Option<Filters> {
        #[cfg(feature = "adblock")]
        if !text.is_empty() {
            return Some(Filters::of(text.to_owned()));
        }
        let _ = text;
        None
    }
}

impl std::fmt::Debug for Filters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Filters")
    }
}

#[cfg(all(test, feature = "adblock"))]
mod tests {
    use super::*;

    #[test]
    fn paths_and_exceptions_are_matched() {
        let text = "||ads.example^\n||shop.example/banner/*\n/adserver/*$image\n/track.js?\n@@||ads.example/ok/\n";
        let filters = Filters::from_text(text).unwrap();
        for (url, wanted) in [
            ("https://www.ads.example/x", Opinion::Covered),
            ("https://ads.example/ok/x", Opinion::Excepted),
            ("http://shop.example/banner/1.png", Opinion::Covered),
            ("http://shop.example/", Opinion::None),
            ("http://any.example/adserver/1", Opinion::None),
            ("http://any.example/track.js?id=1", Opinion::Covered),
            ("no url", Opinion::None),
        ] {
            assert_eq!(filters.judge(url), wanted, "{url}");
        }
        assert!(Filters::from_text("").is_none());
    }
}
