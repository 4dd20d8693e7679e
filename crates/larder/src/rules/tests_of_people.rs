//! Logins, helpers and the table of rules together: which login a request is asked for, and as whose it goes on.

use super::need::NEEDS_MAX;
use super::{Ask, FoundFacts, Need, PeopleScene, Scene, Verdict};
use crate::config::Loaded;
use crate::people::People;
use crate::rates::Rates;
use crate::reach::OwnAddresses;
use aws_lc_rs::digest::{SHA256, digest};
use larder_wire::parse::{self, HeadLimits, Parsed};
use std::cell::OnceCell;
use std::net::SocketAddr;
use std::sync::Arc;

/// `secret`, by `openssl passwd -apr1`.
const SECRET: &str = "$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/";
const ADA: &str = "Basic YWRhOnNlY3JldA==";
const BOB: &str = "Basic Ym9iOnNlY3JldA==";

/// Settings in force, with people.
struct Stand {
    loaded: Loaded,
    people: People,
    rates: Rates,
    _folder: tempfile::TempDir,
}

impl Stand {
    /// `{office}`, `{managers}` and `{digest}` in the settings are files: the first has ada and bob, the others have ada.
    fn new(settings: &str) -> Stand {
        let folder = tempfile::tempdir().unwrap();
        let sum = hex("ada:office:secret");
        let mut settings = settings.to_owned();
        for (name, text) in [
            ("office", format!("ada:{SECRET}\nbob:{SECRET}\n")),
            ("managers", format!("ada:{SECRET}\n")),
            ("digest", format!("ada:office:{sum}\n")),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            settings = settings.replace(&format!("{{{name}}}"), &path.display().to_string());
        }
        let loaded = Loaded::parse("r.toml", &settings, &[]).unwrap_or_else(|report| panic!("{report}"));
        let people = People::default();
        people.have(people.prepare(&loaded.config).unwrap(), &loaded.config).unwrap();
        Stand { loaded, people, rates: Rates::default(), _folder: folder }
    }

    /// The verdict on a request by the first listener, once all facts are known that it needs. `lines`: what helpers were asked.
    async fn judge(&self, request: &str, lines: &mut Vec<String>) -> Verdict {
        let Ok(Parsed::Complete { head, .. }) = parse::request(request.as_bytes(), &HeadLimits::default()) else {
            panic!("{request}")
        };
        let (config, own) = (&self.loaded.config, OwnAddresses::of(&self.loaded.config));
        let (mut found, connection) = (FoundFacts::default(), OnceCell::new());
        let client = SocketAddr::from(([127, 0, 0, 1], 40_000));
        for _ in 0..=NEEDS_MAX {
            let people = PeopleScene {
                people: &self.people,
                user: None,
                connection: &connection,
                client,
                listener: config.listens[0].address,
                fields: &head.fields,
            };
            let scene = Scene {
                people: Some(people),
                rates: (!found.is_counted.get()).then_some(&self.rates),
                ..Scene::at(&config.listens[0], (config, &own, &found))
            };
            match scene.judge(&head) {
                Verdict::Needs(Need::Login(need), _) => found.ask_login(*need, &self.people.helpers).await,
                Verdict::Needs(Need::Helper(need), _) => {
                    lines.push(String::from_utf8(need.line.clone()).unwrap());
                    found.ask_helper(*need).await;
                }
                verdict => return verdict,
            }
        }
        panic!("{request} is never decided");
    }

    async fn allowed(&self, request: &str) -> Ask {
        match self.judge(request, &mut Vec::new()).await {
            Verdict::Allow(ask) => ask,
            other => panic!("{request}: {other:?}"),
        }
    }

    /// Status, word, and the challenge.
    async fn refused(&self, request: &str) -> String {
        match self.judge(request, &mut Vec::new()).await {
            Verdict::Answer(page) => {
                let is_challenge = |name: &str| name.ends_with("uthenticate");
                let challenge = page.fields.iter().find(|(name, _)| is_challenge(name));
                let challenge = challenge.map(|(name, value)| format!(" {name}: {value}")).unwrap_or_default();
                format!("{} {}{challenge}", page.status, page.word)
            }
            other => format!("{other:?}"),
        }
    }
}

fn login(name: &str) -> String {
    format!("[[login]]\nname = \"{name}\"\nscheme = \"basic\"\nrealm = \"{name}\"\nfile = \"{{{name}}}\"\n")
}

fn get(url: &str, fields: &str) -> String {
    format!("GET {url} HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n")
}

fn hex(text: &str) -> String {
    digest(&SHA256, text.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

const LISTEN: &str = "[[listen]]\naddress = \"127.0.0.1:3128\"\n";
const URL: &str = "http://a.test/x";

#[tokio::test]
async fn an_answer_of_one_login_says_nothing_about_another() {
    let two = format!("{LISTEN}{}{}", login("office"), login("managers"));
    let rule = "[[rule]]\nwhen = { path = \"/x\" }\ndo = { login = \"managers\" }\n";
    let by_user = "[[rule]]\nwhen = { user = \"*\" }\ndo = { mark = \"m\" }\n";
    for rules in [rule.to_owned(), format!("{by_user}{rule}")] {
        let stand = Stand::new(&format!("{two}[access]\nlogin = \"office\"\n{rules}"));
        let with = |credential: &str| get(URL, &format!("Proxy-Authorization: {credential}\r\n"));
        assert_eq!(stand.allowed(&with(ADA)).await.user().map(|user| &*user.login), Some("managers"), "{rules}");
        let refused = stand.refused(&with(BOB)).await;
        let wanted = "407 login-wrong Proxy-Authenticate: Basic realm=\"managers\", charset=\"UTF-8\"";
        assert_eq!(refused, wanted, "{rules}");
    }
}

#[tokio::test]
async fn a_proof_and_a_rate_count_once_for_a_request() {
    let settings = format!(
        "{LISTEN}[[login]]\nname = \"digest\"\nscheme = \"digest\"\nrealm = \"office\"\nfile = \"{{digest}}\"\n\
         [[helper]]\nname = \"h\"\nkind = \"external_acl\"\ncommand = [\"sh\", \"-c\", \"while read -r line; do echo OK; done\"]\n\
         format = \"%LOGIN\"\nttl = \"0s\"\n[access]\nlogin = \"digest\"\nexternal = [\"h\"]\n\
         [[rule]]\nwhen = {{ user = \"ada\" }}\ndo = {{ mark = \"m\" }}\n[[rule]]\ndo = {{ rate = \"2/h\", burst = 2 }}\n"
    );
    let stand = Stand::new(&settings);
    let challenge = stand.refused(&get(URL, "")).await;
    let nonce = challenge.split("nonce=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    let proof = |count: &str| {
        let (ha1, ha2) = (hex("ada:office:secret"), hex(&format!("GET:{URL}")));
        let response = hex(&format!("{ha1}:{nonce}:{count}:c:auth:{ha2}"));
        let field = format!(
            "Proxy-Authorization: Digest username=\"ada\", realm=\"office\", nonce=\"{nonce}\", uri=\"{URL}\", \
             algorithm=SHA-256, response=\"{response}\", qop=auth, nc={count}, cnonce=\"c\"\r\n"
        );
        get(URL, &field)
    };
    for count in ["00000001", "00000002"] {
        let mut lines = Vec::new();
        let verdict = stand.judge(&proof(count), &mut lines).await;
        assert!(matches!(verdict, Verdict::Allow(_)), "{count}: {verdict:?}");
        assert_eq!(lines, ["ada -"], "the helper was asked, so that there was a second judgement");
    }
    assert!(stand.refused(&proof("00000002")).await.starts_with("407 login"), "a proof is good for one request");
    assert_eq!(stand.refused(&proof("00000003")).await, "429 rate");
}

#[tokio::test]
async fn the_side_that_asks_is_that_of_the_request() {
    let rule = "[[rule]]\ndo = { login = \"office\" }\n";
    let (proxy, server) = ("407 login Proxy-Authenticate: ", "401 login WWW-Authenticate: ");
    let site = "[[site]]\nhosts = [\"a.test\"]\norigin = \"http://127.0.0.1:9000\"\n";
    let mirror = "mirror = \"all\"\n";
    for (listen, further, request, wanted) in [
        ("", "", get(URL, ""), proxy),
        ("", "", "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n".to_owned(), proxy),
        ("", site, get("/x", ""), server),
        ("origin = \"http://127.0.0.1:9000\"\n", "", get("/x", ""), server),
        (mirror, "", get("/http://a.test/x", "").replace("Host: a.test", "Host: 127.0.0.1:3128"), server),
    ] {
        let stand = Stand::new(&format!("{LISTEN}{listen}{further}{}{rule}", login("office")));
        let refused = stand.refused(&request).await;
        assert!(refused.starts_with(wanted), "{listen}{further}{request}{refused}");
    }
    // A mirror's client proves nothing to the origin behind it.
    let named = "[[mirror]]\nname = \"m\"\norigin = \"http://a.test\"\n";
    let stand = Stand::new(&format!("{LISTEN}{mirror}{named}{}{rule}", login("office")));
    let request = get("/m/x", &format!("Authorization: {ADA}\r\n")).replace("Host: a.test", "Host: 127.0.0.1:3128");
    match stand.judge(&request, &mut Vec::new()).await {
        Verdict::Mirror(mirrored) => assert!(mirrored.named.is_some() && mirrored.ask.consumes_authorization()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_user_of_a_rule_is_the_user_of_all_that_follows() {
    let site = "[[site]]\nhosts = [\"a.test\"]\norigin = \"http://127.0.0.1:9000\"\n";
    let key = "[[rule]]\ndo = { key = [\"{user}\"], even_if_private = true, lifetime = \"10m\" }\n";
    let required = "[[rule]]\ndo = { login = \"office\" }\n";
    let with = |credential: &str| get("/x", &format!("Authorization: {credential}\r\n"));
    let key_of = |ask: Ask| {
        let mut key = Vec::new();
        ask.key_at_first(&mut key);
        (key, ask.passes())
    };
    let stand = Stand::new(&format!("{LISTEN}{site}{}{key}{required}", login("office")));
    let (ada, bob) = (key_of(stand.allowed(&with(ADA)).await), key_of(stand.allowed(&with(BOB)).await));
    assert!(ada.0 != bob.0 && !ada.1 && !bob.1, "each user has a key");
    assert_eq!(key_of(stand.allowed(&with(ADA)).await), ada);
    // A site's own login is asked for by the text alone.
    let own = Stand::new(&format!("{LISTEN}{site}login = \"office\"\n{}{key}", login("office")));
    assert_eq!(key_of(own.allowed(&with(ADA)).await), ada);
    assert!(own.refused(&get("/x", "")).await.starts_with("401 login "));
    // Where nobody has a name, answers are not shared.
    let nobody = Stand::new(&format!("{LISTEN}{site}{}{key}", login("office")));
    assert!(key_of(nobody.allowed(&with(ADA)).await).1);
    // Helpers are told who it is.
    let helper = "[[helper]]\nname = \"h\"\nkind = \"url_rewrite\"\ncommand = [\"sh\", \"-c\", \"while read -r line; do echo ERR; done\"]\n\
                  [forward]\nurl_rewrite = \"h\"\n";
    let stand = Stand::new(&format!("{LISTEN}{}{helper}{required}", login("office")));
    let connect = "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n";
    for request in [get(URL, "@"), format!("{connect}@\r\n")] {
        let mut lines = Vec::new();
        let request = request.replace('@', &format!("Proxy-Authorization: {ADA}\r\n"));
        let verdict = stand.judge(&request, &mut lines).await;
        assert!(matches!(verdict, Verdict::Allow(_) | Verdict::Tunnel(..)), "{verdict:?}");
        assert!(lines.len() == 1 && lines[0].contains(" ada "), "{lines:?}");
    }
}

/// A process that answers each first token with a challenge, and takes each second one.
const HANDSHAKE: &str =
    "while read -r word token; do case $word in YR) echo TT c;; KK) echo \\\"AF $token\\\";; esac; done";

#[tokio::test]
async fn a_handshake_with_one_login_ends_with_no_other() {
    let settings = |at: &str| {
        format!(
            "{LISTEN}[[helper]]\nname = \"h-{at}\"\nkind = \"ntlm\"\ncommand = [\"sh\", \"-c\", \"{HANDSHAKE}\"]\n\
             [[login]]\nname = \"{at}\"\nscheme = \"ntlm\"\nhelper = \"h-{at}\"\n"
        )
    };
    let stand = Stand::new(&format!("{}{}", settings("one"), settings("two").replace(LISTEN, "")));
    let (one, two) = (stand.people.login("one").unwrap(), stand.people.login("two").unwrap());
    let connection = Arc::new(crate::people::ConnectionLogin::default());
    let ask = async |login: &Arc<crate::people::LoginState>, field: Option<&str>| {
        let attempt = crate::people::Attempt {
            field,
            method: "GET",
            target: "",
            path: "/",
            client: [127, 0, 0, 1].into(),
            connection: Some(&connection),
            edition: stand.people.edition(),
        };
        match login.check(&attempt) {
            crate::people::Checked::Question(question) => question.find_out(&stand.people.helpers).await,
            crate::people::Checked::User(user, until) => Ok((user, until)),
            crate::people::Checked::Refused(refusal) => Err(refusal),
        }
    };
    let goes_on = Err(crate::people::LoginRefusal::Continues("c".into()));
    assert_eq!(ask(&one, Some("NTLM aaa")).await, goes_on);
    // The second token begins anew with the other login, and the first handshake is over.
    assert_eq!(ask(&two, Some("NTLM bbb")).await, goes_on);
    assert_eq!(ask(&one, Some("NTLM ccc")).await, goes_on);
    let user = ask(&one, Some("NTLM ddd")).await.unwrap().0;
    assert_eq!((&*user.name, &*user.login), ("ddd", "one"));
    assert!(ask(&one, None).await.is_ok() && ask(&two, None).await.is_err());
    // Another credential is not one of the connection's user, and none of several is.
    for field in [ADA, "", "NTLM"] {
        assert!(ask(&one, Some(field)).await.is_err(), "{field}");
    }
}

#[tokio::test]
async fn a_login_of_a_connection_is_for_no_other_proxy() {
    let settings = format!(
        "{LISTEN}[[helper]]\nname = \"h\"\nkind = \"ntlm\"\ncommand = [\"sh\", \"-c\", \"{HANDSHAKE}\"]\n\
         [[login]]\nname = \"n\"\nscheme = \"ntlm\"\nhelper = \"h\"\n[access]\nlogin = \"n\"\n"
    );
    let stand = Stand::new(&settings);
    assert_eq!(stand.refused(&get(URL, "")).await, "407 login Proxy-Authenticate: NTLM");
    for field in ["Via: 1.1 other", "Forwarded: for=10.0.0.1", "X-Forwarded-For: 10.0.0.1"] {
        for credential in ["", "Proxy-Authorization: NTLM aaa\r\n"] {
            let refused = stand.refused(&get(URL, &format!("{field}\r\n{credential}"))).await;
            assert_eq!(refused, "403 login-passed-on", "{field}");
        }
    }
}

#[test]
fn more_helpers_than_a_request_may_wait_for_are_refused() {
    let helper = |number: usize| {
        format!("[[helper]]\nname = \"h{number}\"\nkind = \"external_acl\"\ncommand = [\"true\"]\nformat = \"%SRC\"\n")
    };
    let settings = |count: usize| {
        let names: Vec<String> = (0..count).map(|number| format!("\"h{number}\"")).collect();
        let helpers: String = (0..count).map(helper).collect();
        format!("{LISTEN}[access]\nexternal = [{}]\n{helpers}", names.join(", "))
    };
    assert!(Loaded::parse("r.toml", &settings(8), &[]).is_ok());
    let report = Loaded::parse("r.toml", &settings(9), &[]).err().map(|report| report.to_string()).unwrap_or_default();
    assert!(report.contains("at most 8 helpers"), "{report}");
}
