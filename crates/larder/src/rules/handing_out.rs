//! Store rules and requests that are allowed: which rules count on a route, and the URLs that redirections hand out.

use super::{Ask, Route, credential};
use crate::config::{Config, Presets, StoreRules};
use crate::handed_out::HandedOut;
use larder_cache::policy::{self, Asked};
use larder_wire::{RequestHead, ResponseHead, Url, target};
use std::time::Instant;

/// The store rules for requests that go this way.
pub fn store_rules<'a>(config: &'a Config, route: &Route, for_run: bool) -> StoreRules<'a> {
    let presets = match route {
        Route::Site { .. } => Presets::None,
        Route::Forward(_) if for_run => Presets::All,
        Route::Forward(_) | Route::Destination(..) => Presets::Named(&config.presets),
    };
    StoreRules::of(&config.store_rules, presets)
}

impl Ask {
    /// The request's cache directives, as far as the store rules let them count.
    pub fn weigh(&self, asked: Asked) -> Asked {
        match &self.by_rule {
            Some(by_rule) if by_rule.any_age.is_some() => Asked { max_age: None, min_fresh: None, ..asked },
            _ => asked,
        }
    }

    /// The request as look-up and policy see it, where something is taken off it: a credential that was for Larder or makes the key, or `no-cache`.
    pub fn as_looked_up(&self, request: &RequestHead) -> Option<RequestHead> {
        if self.consumes_authorization() && request.fields.contains("Authorization") {
            let bare = credential::without(request);
            return Some(self.without_no_cache(&bare).unwrap_or(bare));
        }
        match self.credential() {
            None => self.without_no_cache(request),
            Some(_) => {
                let bare = credential::without(request);
                Some(self.without_no_cache(&bare).unwrap_or(bare))
            }
        }
    }

    /// The request without `no-cache`, `no-store` and `Pragma`, where a store rule takes them off it.
    fn without_no_cache(&self, request: &RequestHead) -> Option<RequestHead> {
        self.by_rule.as_ref()?.drops_no_cache.as_ref()?;
        let mut request = request.clone();
        let is_dropped =
            |member: &[u8]| ["no-cache", "no-store"].iter().any(|it| member.eq_ignore_ascii_case(it.as_bytes()));
        let left: Vec<&[u8]> = request.fields.members("Cache-Control").filter(|member| !is_dropped(member)).collect();
        let left = left.join(&b", "[..]);
        request.fields.remove("Cache-Control");
        request.fields.remove("Pragma");
        if !left.is_empty() {
            request.fields.push("Cache-Control", left);
        }
        Some(request)
    }

    /// Whether the key lacks a signature, which not every answer under it has been asked for with.
    pub fn key_is_without_signature(&self) -> bool {
        self.key_by_rule().is_some_and(|key| key.handed_out_by.is_some())
    }

    /// Remembers the URL that a redirection hands out, if a rule knows the signature in it. The answer is to everybody who asks so:
    /// the request says nothing of who asks, or its URL names the content.
    pub fn note_redirection(
        &self,
        rules: StoreRules<'_>,
        request: &RequestHead,
        answer: &ResponseHead,
        table: &HandedOut,
        now: Instant,
    ) {
        let is_for_one = answer.fields.contains("Set-Cookie") || self.credential().is_some();
        if !matches!(self.route, Route::Forward(_)) || is_for_one {
            return;
        }
        let Some(to) = leads_to(&self.url, answer) else { return };
        let is_for_all = || !policy::may_say_who_asks(&request.fields) || rules.names_content(&self.url, request);
        if rules.is_signed(&to) && is_for_all() {
            table.note(&self.url.to_string(), &to.to_string(), now);
        }
    }
}

/// The URL that a redirection leads to.
pub fn leads_to(from: &Url, answer: &ResponseHead) -> Option<Url> {
    let location = answer.fields.text("Location").filter(|_| answer.fields.count("Location") == 1)?;
    target::resolve(from, location)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Loaded;
    use crate::reach::Asker;
    use crate::record::Rule;
    use crate::rules::ByRule;
    use larder_cache::cache::Cache;
    use larder_wire::{Fields, Method, Target, Url, Version};

    const SIGNATURE: &str = "X-Amz-Algorithm=A&X-Amz-Credential=K&X-Amz-Date=D&X-Amz-Signature=";

    fn request(fields: &[(&str, &str)]) -> RequestHead {
        let mut all = Fields::new();
        fields.iter().for_each(|(name, value)| all.push(name, *value));
        RequestHead::new(Method::Get, Target::Origin("/".into()), Version::Http11, all)
    }

    fn key(rules: StoreRules<'_>, url: &str, fields: &[(&str, &str)], table: &HandedOut, now: Instant) -> String {
        let url = Url::parse(url).unwrap();
        let by_rule = ByRule::of(rules, &url, &request(fields), Some((table, now)), None);
        let ask = Ask {
            url,
            route: Route::Forward(Asker::ThisMachine),
            rule: Rule::Question,
            by_rule,
            by_table: None,
            by_hook: None,
            hook_note: None,
            hooked_by: None,
            registry: None,
            people: None,
        };
        let mut key = Vec::new();
        ask.key(&Cache::new(larder_cache::cache::Settings::default()), &mut key);
        String::from_utf8(key).unwrap()
    }

    /// A redirection from one URL to another, to a request with these fields.
    fn redirect(rules: StoreRules<'_>, from: &str, fields: &[(&str, &str)], to: &str, table: &HandedOut, now: Instant) {
        let route = Route::Forward(Asker::ThisMachine);
        let ask = Ask {
            url: Url::parse(from).unwrap(),
            route,
            rule: Rule::Question,
            by_rule: None,
            by_table: None,
            by_hook: None,
            hook_note: None,
            hooked_by: None,
            registry: None,
            people: None,
        };
        let mut answer = ResponseHead::new(302);
        answer.fields.push("Location", to);
        ask.note_redirection(rules, &request(fields), &answer, table, now);
    }

    #[test]
    fn a_signature_is_left_out_only_where_its_origin_handed_the_url_out() {
        let rules = StoreRules::of(&[], Presets::All);
        let (table, now) = (HandedOut::default(), Instant::now());
        let signed = |path: &str, signature: &str| format!("https://cdn.test{path}?{SIGNATURE}{signature}");
        let key = |url: &str, fields: &[(&str, &str)]| key(rules, url, fields, &table, now);
        let whole = signed("/x", "1");
        assert_eq!(key(&whole, &[]), whole);
        redirect(rules, "https://hub.test/a?rev=1", &[], &whole, &table, now);
        assert_eq!(key(&whole, &[]), "https://hub.test/a rev=1 => https://cdn.test/x");
        // Another signature of the same object: the second download.
        redirect(rules, "https://hub.test/a?rev=1", &[], &signed("/x", "2"), &table, now);
        assert_eq!(key(&signed("/x", "2"), &[]), key(&whole, &[]));
        // A signature that nobody handed out, another object, no signature at all.
        for url in [signed("/x", "3"), signed("/y", "1"), "https://cdn.test/x".to_owned()] {
            assert_eq!(key(&url, &[]), url);
        }
        // One who says who he is asks for himself.
        for name in ["Authorization", "Cookie", "X-Api-Key"] {
            assert_eq!(key(&whole, &[(name, "x")]), whole);
        }
        // Another origin that hands the URL out, or its like, leads to nothing that the first one handed out.
        redirect(rules, "https://evil.test/a", &[], &signed("/x", "forged"), &table, now);
        assert_eq!(key(&signed("/x", "forged"), &[]), "https://evil.test/a => https://cdn.test/x");
        // A URL that somebody was given because of who he is.
        redirect(rules, "https://hub.test/private", &[("Authorization", "Bearer a")], &signed("/p", "1"), &table, now);
        redirect(rules, "https://hub.test/private", &[("Cookie", "a=b")], &signed("/p", "1"), &table, now);
        assert_eq!(key(&signed("/p", "1"), &[]), signed("/p", "1"));
        // A URL that names its content: the origin decides who is sent on, and all get the same.
        let blob = format!("https://registry.test/v2/a/blobs/sha256:{}", "ab".repeat(32));
        redirect(rules, &blob, &[("Authorization", "Bearer a")], &signed("/b", "1"), &table, now);
        assert_eq!(key(&signed("/b", "1"), &[]), format!("{blob} => https://cdn.test/b"));
        // Parameters that change the answer stay.
        let named = format!("{}&response-content-disposition=x", signed("/x", "4"));
        redirect(rules, "https://hub.test/a", &[], &named, &table, now);
        assert_eq!(key(&named, &[]), "https://hub.test/a => https://cdn.test/x?response-content-disposition=x");
        // Half a signature is none.
        let half = "https://cdn.test/x?X-Amz-Signature=1";
        redirect(rules, "https://hub.test/a", &[], half, &table, now);
        assert_eq!(key(half, &[]), half);
    }

    #[test]
    fn an_operator_s_word_leaves_parameters_out_at_his_hosts() {
        let text = "[[store_rule]]\nhosts = [\"a.test\"]\ndrop_query = [\"token\"]\n";
        let loaded = Loaded::parse("test", text, &[]).unwrap_or_else(|report| panic!("{report}"));
        let rules = StoreRules::of(&loaded.config.store_rules, Presets::None);
        let (table, now) = (HandedOut::default(), Instant::now());
        assert_eq!(key(rules, "http://a.test/x?token=1&y=2", &[], &table, now), "http://a.test/x?y=2");
        assert_eq!(key(rules, "http://b.test/x?token=1", &[], &table, now), "http://b.test/x?token=1");
        for (wrong, says) in [
            ("[[store_rule]]\ndrop_query = [\"token\"]\n", "`drop_query` needs `hosts`"),
            ("[[store_rule]]\nhosts = [\"a.test\"]\n", "says nothing"),
            (
                "[[store_rule]]\nhosts = [\"a.test\"]\ndrop_query = [\"a\"]\nsigned_query = [\"b\"]\n",
                "not for the same rule",
            ),
            ("[[store_rule]]\npaths = [\"x\"]\nany_age = true\n", "store_rule.paths"),
            ("presets = [\"pip\"]\n", "presets"),
        ] {
            let report = Loaded::parse("test", wrong, &[]).unwrap_err().to_string();
            assert!(report.contains(says), "{report}");
        }
    }

    #[test]
    fn ages_do_not_count_for_an_index_and_do_elsewhere() {
        let rules = StoreRules::of(&[], Presets::All);
        let pip = [("Accept", "application/vnd.pypi.simple.v1+json"), ("Cache-Control", "max-age=0")];
        let weighed = |url: &str, fields: &[(&str, &str)]| {
            let (url, request) = (Url::parse(url).unwrap(), request(fields));
            let by_rule = ByRule::of(rules, &url, &request, None, None);
            let ask = Ask {
                url,
                route: Route::Forward(Asker::ThisMachine),
                rule: Rule::Question,
                by_rule,
                by_table: None,
                by_hook: None,
                hook_note: None,
                hooked_by: None,
                registry: None,
                people: None,
            };
            ask.weigh(Asked::of(&request))
        };
        assert_eq!(weighed("http://a.test/simple/six/", &pip).max_age, None);
        assert_eq!(weighed("http://a.test/simple/six/", &pip[1..]).max_age, Some(0));
        assert_eq!(weighed("http://a.test/dists/stable/InRelease", &pip[1..]).max_age, Some(0));
        assert!(weighed("http://a.test/simple/six/", &[pip[0], ("Cache-Control", "no-cache")]).no_cache);
    }
}
