use super::*;
use crate::config::Loaded;
use crate::rates::Rates;
use crate::reach::{Asker, OwnAddresses};
use crate::rules::by_hook::ByHook;
use crate::rules::{Ask, FoundFacts, Scene, Verdict};
use larder_wire::RequestHead;
use larder_wire::parse::{self, HeadLimits, Parsed};

fn head(request: &str) -> Box<RequestHead> {
    match parse::request(request.as_bytes(), &HeadLimits::default()) {
        Ok(Parsed::Complete { head, .. }) => head.into(),
        _ => panic!("{request}"),
    }
}

/// The verdict on a request to a forward proxy with these settings.
fn verdict(settings: &str, rates: &Rates, request: &RequestHead) -> Verdict {
    let settings = format!("[[listen]]\naddress = \"127.0.0.1:3128\"\n{settings}");
    let loaded = Loaded::parse("r.toml", &settings, &[]).unwrap_or_else(|report| panic!("{report}"));
    let (config, own) = (&loaded.config, OwnAddresses::of(&loaded.config));
    let found = FoundFacts::default();
    let scene = Scene {
        mirroring: crate::config::Mirroring::None,
        asker: Asker::Elsewhere,
        client: IpAddr::from([10, 0, 0, 1]),
        rates: Some(rates),
        ..Scene::at(&config.listens[0], (config, &own, &found))
    };
    scene.judge(request)
}

fn allowed(settings: &str, request: &RequestHead) -> Ask {
    match verdict(settings, &Rates::default(), request) {
        Verdict::Allow(ask) => ask,
        other => panic!("{settings}: {other:?}"),
    }
}

/// The verdict in words.
fn judged(rules: &str, rates: &Rates, request: &str) -> String {
    match verdict(rules, rates, &head(request)) {
        Verdict::Allow(ask) => {
            let by_table = ask.by_table.as_ref();
            let note = by_table.map(|by_table| by_table.note.words.join("; ")).unwrap_or_default();
            format!("{} for {} [{note}]", ask.url_at_origin(), ask.client_url())
        }
        Verdict::Answer(page) => {
            let location = page.fields.iter().map(|(name, value)| format!(" {name}: {value}")).collect::<String>();
            format!("{} {}{location}", page.status, page.word)
        }
        Verdict::Tunnel(host, port, _) => format!("tunnel {host}:{port}"),
        other => format!("{other:?}"),
    }
}

#[test]
fn rules_decide_before_access_and_never_beyond_it() {
    let get = "GET http://a.test/x/y?q=1 HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let inner = "GET http://127.0.0.1/x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    let connect = "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n";
    let rule = |when: &str, work: &str| format!("[[rule]]\nwhen = {{ {when} }}\ndo = {{ {work} }}\n");
    let rates = Rates::default();
    for (rules, request, wanted) in [
        (rule("host = \"b.test\"", "deny = true"), get, "http://a.test/x/y?q=1 for http://a.test/x/y?q=1 []"),
        (rule("host = \"*.test\"", "deny = true"), get, "403 rule"),
        (rule("host = \"*\"", "allow = true"), inner, "403 out-of-reach"),
        (rule("method = \"CONNECT\"", "deny = true"), connect, "403 rule"),
        (rule("path = \"/**\"", "deny = true"), connect, "tunnel a.test:443"),
        (
            rule("path_regex = \"^/x/(.)\"", "redirect = \"https://{host}/{1}{query}\", status = 301"),
            get,
            "301 rule Location: https://a.test/y?q=1",
        ),
        (
            rule("path_regex = \"^/x/(.)\"", "path = \"/{1}\", query = \"\", mark = \"m\""),
            get,
            "http://a.test/y for http://a.test/x/y?q=1 [rule (r.toml:3): changes the path, changes the query, mark m]",
        ),
        // Where a rule leads is judged as if the client had asked so.
        (rule("host = \"a.test\"", "host = \"127.0.0.1\""), get, "403 out-of-reach"),
        (
            rule("host = \"a.test\"", "host = \"b.test:81\""),
            get,
            "http://b.test:81/x/y?q=1 for http://a.test/x/y?q=1 [rule (r.toml:3): changes the host]",
        ),
        (rule("host = \"a.test\"", "path = \"no path\""), get, "500 rule-text"),
        (rule("host = \"a.test\"", "redirect = \"//{host}\""), get, "500 rule-text"),
        (
            rule("host = \"a.test\"", "route = \"http://10.0.0.9:81\""),
            get,
            "http://10.0.0.9:81/x/y?q=1 for http://a.test/x/y?q=1 [rule (r.toml:3): route http://10.0.0.9:81]",
        ),
        (
            rule("client = \"10.0.0.0/8\", port = 80, listener = \":3128\"", "deny = true, status = 404"),
            get,
            "404 rule",
        ),
    ] {
        let given = judged(&rules, &rates, request);
        assert_eq!(given, wanted, "{rules}");
    }
}

#[test]
fn a_rate_counts_each_request_once() {
    let rates = Rates::default();
    let rules = "[[rule]]\ndo = { rate = \"3/h\", burst = 3 }\n";
    let get = "GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let verdicts: Vec<bool> = (0..5).map(|_| judged(rules, &rates, get).starts_with("429 rate")).collect();
    assert_eq!(verdicts, [false, false, false, true, true]);
}

#[test]
fn a_redirection_stays_where_the_rule_leads() {
    let rule = |regex: &str, to: &str| {
        format!("[[rule]]\nwhen = {{ path_regex = '{regex}' }}\ndo = {{ redirect = \"{to}\" }}\n")
    };
    for (to, path, wanted) in [
        ("/{1}", "/x/y", "302 rule Location: /y"),
        // Browsers would go to `//evil.test`.
        ("/{1}", "/x/\\evil.test", "500 rule-text"),
        ("/{1}", "/%78/\\evil.test", "302 rule Location: /evil.test"),
        ("/{1}", "/x/%5Cevil.test", "302 rule Location: /%5Cevil.test"),
        ("/{1}", "/x//evil.test", "500 rule-text"),
        ("{path}", "/\\evil.test/x/", "500 rule-text"),
        ("https://b.test{path}", "/x/\\y", "500 rule-text"),
        // A group is one of the path that the rule was held against, in the client's spelling where that means the same.
        ("/{1}", "/%78/%79", "302 rule Location: /y"),
        ("/{1}", "/%78/a%40%0d%0ab%23", "302 rule Location: /a%40%0D%0Ab"),
        ("/{1}", "/x/caf%C3%A9", "302 rule Location: /caf%C3%A9"),
        ("/{1}", "/x/a%0d%0ab%23", "302 rule Location: /a%0d%0ab%23"),
        ("/{1}", "/x/@s%2fp/100%2525;v=1/", "302 rule Location: /@s%2fp/100%2525;v=1/"),
        ("/{1}", "/x/", "302 rule Location: /"),
        ("/{1}", "/x/a@b:c", "302 rule Location: /a@b:c"),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n");
        let site = "[[site]]\nhosts = [\"a.test\"]\norigin = \"http://127.0.0.1:9000\"\n";
        let rules = rule("(?s)/x/(.*)$", to) + site;
        assert_eq!(judged(&rules, &Rates::default(), &request), wanted, "{to} {path}");
    }
}

#[test]
fn another_origin_gets_no_credentials_of_the_client() {
    let site = |host: &str| format!("[[site]]\nhosts = [\"{host}\"]\norigin = \"http://127.0.0.1:9000\"\n");
    let sites = |hosts: &[&str]| format!("forward = true\n{}", hosts.iter().map(|host| site(host)).collect::<String>());
    let rule = |work: &str| format!("[[rule]]\nwhen = {{ host = \"a.test\" }}\ndo = {{ {work} }}\n");
    let (authorization, cookie) = (Some("Bearer mine"), Some("id=1"));
    for (settings, wanted) in [
        (rule("host = \"b.test\""), (None, None)),
        (rule("host = \"a.test:81\""), (None, None)),
        (rule("host = \"b.test\", set = \"Authorization: Basic YTpi\""), (Some("Basic YTpi"), None)),
        (rule("path = \"/y\""), (authorization, cookie)),
        (sites(&["a.test", "b.test"]) + &rule("host = \"b.test\""), (authorization, cookie)),
        (sites(&["a.test"]) + &rule("host = \"b.test\""), (None, None)),
        (sites(&["b.test"]) + &rule("host = \"b.test\""), (None, None)),
    ] {
        let request =
            "GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\nAuthorization: Bearer mine\r\nCookie: id=1\r\n\r\n";
        let request = head(request);
        let ask = allowed(&settings, &request);
        let fields = ask.changed_by_hook(&request).map_or_else(|| request.fields.clone(), |changed| changed.fields);
        assert_eq!((fields.text("Authorization"), fields.text("Cookie")), wanted, "{settings}");
    }
}

#[test]
fn a_login_of_the_cache_takes_no_credential_that_a_rule_sets() {
    let request = head("GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\nAuthorization: Basic mine\r\n\r\n");
    for (work, consumes) in [("set = \"authorization: Basic YTpi\"", false), ("set = \"X-A: 1\"", true)] {
        let mut ask = allowed(&format!("[[rule]]\ndo = {{ {work} }}\n"), &request);
        ask.people = Some(Box::new(ByPeople { consumes_authorization: true, ..ByPeople::default() }));
        assert_eq!(ask.consumes_authorization(), consumes, "{work}");
    }
}

#[test]
fn parts_of_keys_by_rules_and_by_hooks_stay_apart() {
    let request = head("GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let key = |by_rules: &str, by_hooks: &[&str]| {
        let mut ask = allowed(&format!("[[rule]]\ndo = {{ mark = \"m\", key = {by_rules} }}\n"), &request);
        let parts = by_hooks.iter().map(|part| (*part).to_owned()).collect();
        let effects = RequestEffects { key: parts, ..RequestEffects::default() };
        let key = effects.key(|_| None).unwrap().into();
        ask.by_hook = Some(Box::new(ByHook { effects: Rc::new(effects), key, client_url: None, unrouted: None }));
        let mut key = Vec::new();
        ask.key_at_first(&mut key);
        String::from_utf8(key).unwrap()
    };
    let keys = [key("[\"a\", \"b\"]", &[]), key("[\"a\"]", &["b"]), key("[]", &["a", "b"]), key("[\"b\", \"a\"]", &[])];
    for (number, one) in keys.iter().enumerate() {
        assert!(!keys[..number].contains(one), "{keys:?}");
    }
}

#[test]
fn a_tunnel_has_the_rules_that_let_it_pass() {
    let request = head("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n");
    let rules = "[[rule]]\nwhen = { port = 443 }\ndo = { mark = \"m\" }\n";
    let Verdict::Tunnel(_, 443, tunnel) = verdict(rules, &Rates::default(), &request) else { panic!() };
    assert_eq!(tunnel.rules.unwrap().mark.as_deref(), Some("m"));
}

/// The body of the page by which a rule refuses the request.
fn body(rules: &str, request: &str) -> String {
    match verdict(rules, &Rates::default(), &head(request)) {
        Verdict::Answer(Page { script: Some(page), .. }) => String::from_utf8(page.body).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_clients_send_is_escaped_on_pages() {
    let page = std::env::temp_dir().join(format!("larder-rule-page-{}.html", std::process::id()));
    std::fs::write(&page, "<p>{host} {url} {path} {client} {rule} {request}</p>").unwrap();
    let rules =
        format!("[[rule]]\nwhen = {{ host = \"a.test\" }}\ndo = {{ deny = true, page = \"{}\" }}\n", page.display());
    let target = "http://a.test/<b>?'&\"";
    let request = |accept: &str| format!("GET {target} HTTP/1.1\r\nHost: a.test\r\nAccept: {accept}\r\n\r\n");
    let (html, json) = (body(&rules, &request("text/html")), body(&rules, &request("application/json")));
    std::fs::remove_file(&page).unwrap();
    let wanted = "<p>a.test http://a.test/&lt;b&gt;?&#39;&amp;&quot; /&lt;b&gt; 10.0.0.1 rule (r.toml:3) {request}</p>";
    assert_eq!(html, wanted);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"));
    assert_eq!((&json["url"], &json["rule"]), (&target.into(), &"rule (r.toml:3)".into()));
}
