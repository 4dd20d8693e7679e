//! The login page: an address is a user for a time. Other addresses, forged forms and URLs that lead astray get nothing.

use super::reload::{Steered, base};
use super::stand::{self, Kept};
use larder_people::form::encoded;
use std::net::SocketAddr;
use std::path::Path;

/// `ada:secret` and `bob:secret`.
const USERS: &str = "ada:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\nbob:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n";
const PAGE: &str = "http://login.test/.larder/login";

fn settings(folder: &Path, of_page: &str, more: &str) -> String {
    format!(
        "{}[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[login]]\nname = \"office\"\nscheme = \"basic\"\nfile = {:?}\nfailures = 4\nfailure_period = \"1h\"\n\
         [[login]]\nname = \"hall\"\nscheme = \"page\"\nrealm = \"The <hall>\"\nusers = \"office\"\nurl = \"http://login.test\"\n{of_page}\
         [access]\nlogin = \"hall\"\n[log]\nto = {:?}\nformat = \"{{client}} {{user}} {{status}} {{outcome}} {{url}}\"\n{more}",
        base(folder),
        folder.join("users"),
        folder.join("access.log")
    )
}

/// A client at 127.0.0.N.
struct Client {
    proxy: SocketAddr,
    source: SocketAddr,
}

impl Client {
    fn at(number: u8, proxy: SocketAddr) -> Client {
        Client { proxy, source: ([127, 0, 0, number], 0).into() }
    }

    fn get(&self, url: &str, fields: &str) -> (String, String) {
        let host = url.split('/').nth(2).unwrap();
        Kept::from(self.source, self.proxy).ask(&format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"))
    }

    fn status(&self, url: &str) -> String {
        self.get(url, "").0[9..12].to_owned()
    }

    fn post(&self, url: &str, form: &str, fields: &str) -> (String, String) {
        let host = url.split('/').nth(2).unwrap();
        let length = form.len();
        Kept::from(self.source, self.proxy)
            .ask(&format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n{fields}\r\n{form}"))
    }

    /// The seal of a form that this client gets.
    fn seal(&self) -> String {
        hidden(&self.get(PAGE, "").1, "form")
    }

    fn log_in(&self, user: &str, password: &str) -> (String, String) {
        self.post(PAGE, &format!("form={}&user={user}&password={password}", self.seal()), "")
    }
}

fn unescaped(html: &str) -> String {
    html.replace("&#39;", "'").replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

/// The value of a hidden field.
fn hidden(page: &str, name: &str) -> String {
    let start = format!("name=\"{name}\" value=\"");
    let at = page.find(&start).unwrap_or_else(|| panic!("{name}: {page}")) + start.len();
    page[at..].split('"').next().unwrap().to_owned()
}

#[test]
fn an_address_is_the_user_who_has_logged_in_from_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("users"), USERS).unwrap();
    let rule = "[[rule]]\nwhen = { user = \"bob\", path = \"/ada/**\" }\ndo = { deny = true, status = 410 }\n";
    let steered = Steered::start(folder.path(), &settings(folder.path(), "", rule));
    let (proxy, origin) = (steered.server.addresses()[0], stand::origin());
    let [one, two, three] = [1, 2, 3].map(|number| Client::at(number, proxy));
    let url = format!("http://{origin}/ada/fresh'x?a=%22&b=c");
    let (head, body) = one.get(&url, "");
    assert!(head.starts_with("HTTP/1.1 511"), "{head}");
    let link = body.split("href=\"").nth(1).unwrap().split('"').next().unwrap();
    let link = unescaped(link);
    assert!(link.starts_with(&format!("{PAGE}?to=http://127.0.0.1:")), "{body}");
    assert!(!body.contains("fresh'x"), "what came from outside is encoded: {body}");
    let tunnel = Kept::from(one.source, proxy).ask("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n");
    assert!(tunnel.0.starts_with("HTTP/1.1 403") && tunnel.1.contains("http://login.test/.larder/login"), "{tunnel:?}");
    // The page, by its link.
    let (head, body) = one.get(&link, "");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("frame-ancestors 'none'"), "{head}");
    assert!(body.contains("The &lt;hall&gt;") && !body.contains("<hall>"), "{body}");
    let fields = ["form", "to", "seal"].map(|name| (name, encoded(&unescaped(&hidden(&body, name)))));
    let form: String = fields.iter().map(|(name, value)| format!("{name}={value}&")).collect();
    let (head, body) = one.post(PAGE, &(form + "user=ada&password=secret"), "Origin: http://login.test\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && body.contains("you are ada"), "{head}{body}");
    assert!(unescaped(&body).contains(&format!("url='{}'", url.replace('\'', "%27"))), "{body}");
    // This address and no other one, whatever a request says of where it comes from.
    assert_eq!([&one, &two].map(|client| client.status(&url)), ["200", "511"]);
    for forwarded in ["X-Forwarded-For: 127.0.0.1\r\n", "Forwarded: for=127.0.0.1\r\n", "Via: 1.1 a\r\n"] {
        for client in [&one, &two] {
            assert_eq!(&client.get(&url, forwarded).0[9..12], "403", "{forwarded}");
        }
    }
    // Stored responses are for all who are let in.
    assert!(two.log_in("bob", "secret").0.starts_with("HTTP/1.1 200"));
    let stored = format!("http://{origin}/fresh");
    assert_eq!([one.status(&stored), two.status(&stored), three.status(&stored)], ["200", "200", "511"]);
    assert_eq!(two.status(&format!("http://{origin}/ada/fresh")), "410", "rules see the user");
    let mut kept = Kept::from(two.source, proxy);
    let mut ask = || kept.ask(&format!("GET {stored} HTTP/1.1\r\nHost: {origin}\r\n\r\n")).0[9..12].to_owned();
    for _ in 0..4 {
        assert_eq!(ask(), "200");
    }
    // A verdict that is remembered ends with the session.
    let (_, body) =
        two.post("http://login.test/.larder/logout", &format!("form={}", hidden(&two.get(PAGE, "").1, "form")), "");
    assert!(body.contains("Nobody is logged in"), "{body}");
    assert_eq!((ask().as_str(), one.status(&stored).as_str()), ("511", "200"));
    let log = || std::fs::read_to_string(folder.path().join("access.log")).unwrap_or_default();
    stand::wait_for("the user in the log", || log().contains("127.0.0.2 bob 200 hit"));
    assert!(!log().contains("secret"), "{}", log());
    // A reload that changes nothing of the login lets sessions go on; another configuration and other users end them.
    steered.reload(&settings(folder.path(), "", "")).unwrap();
    assert_eq!(one.status(&stored), "200");
    steered.reload(&settings(folder.path(), "session = \"2h\"\n", "")).unwrap();
    assert_eq!(one.status(&stored), "511");
    assert!(one.log_in("ada", "secret").0.starts_with("HTTP/1.1 200"));
    assert_eq!(one.status(&stored), "200");
    std::fs::write(folder.path().join("users"), USERS.replace("ada", "eve")).unwrap();
    stand::wait_for("the file is taken up", || one.status(&stored) == "511");
    steered.server.stop();
}

#[test]
fn forged_forms_and_guesses_get_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("users"), USERS).unwrap();
    let steered = Steered::start(folder.path(), &settings(folder.path(), "", ""));
    let (proxy, origin) = (steered.server.addresses()[0], stand::origin());
    let [one, two, three] = [1, 2, 3].map(|number| Client::at(number, proxy));
    let stored = format!("http://{origin}/fresh");
    let right = "user=ada&password=secret";
    let (own, of_two) = (one.seal(), two.seal());
    for (form, fields, status) in [
        (right.to_owned(), "", "403"),
        (format!("form=&{right}"), "", "403"),
        (format!("form={of_two}&{right}"), "", "403"),
        (format!("form={own}&{right}"), "Origin: http://evil.test\r\n", "403"),
        (format!("form={own}&{right}"), "Origin: null\r\n", "403"),
        (format!("form={own}&{right}"), "Sec-Fetch-Site: cross-site\r\n", "403"),
        (format!("form={own}&{right}&user=bob"), "", "400"),
        (format!("form={own}&user=%ff&password=secret"), "", "400"),
        (format!("form={own}&{right}&more={}", "x".repeat(20_000)), "", "400"),
    ] {
        let (head, body) = one.post(PAGE, &form, fields);
        assert_eq!(&head[9..12], status, "{form:.120} {fields}: {body}");
        assert_eq!(one.status(&stored), "511", "{form:.120} {fields}");
    }
    // Nobody is led anywhere but to what this address has asked for.
    for to in ["javascript:alert(1)", "http://evil.test/", "//evil.test", "data:text/html,x"] {
        let link = format!("{PAGE}?to={to}&seal={own}");
        assert!(!one.get(&link, "").1.contains("evil") && !one.get(&link, "").1.contains("alert"), "{to}");
        let form = format!("form={}&{right}&to={to}&seal={own}", three.seal());
        let (_, body) = three.post(PAGE, &form, "");
        assert!(body.contains("you are ada") && !body.contains("evil") && !body.contains("refresh"), "{to}: {body}");
    }
    // Failed logins of an address are limited, those of others are not touched.
    let statuses: Vec<String> =
        (0..6).map(|guess| one.log_in("ada", &format!("guess{guess}")).0[9..12].to_owned()).collect();
    assert_eq!(statuses, ["403", "403", "403", "403", "429", "429"]);
    assert_eq!(&one.log_in("ada", "guess").0[9..12], "429");
    assert!(two.log_in("ada", "secret").0.starts_with("HTTP/1.1 200"));
    assert_eq!([one.status(&stored), two.status(&stored)], ["511", "200"]);
    // A client that may not use the proxy has no page either.
    let closed =
        settings(folder.path(), "", "").replace("login = \"hall\"\n", "login = \"hall\"\nclients = [\"127.0.0.2\"]\n");
    steered.reload(&closed).unwrap();
    assert_eq!(one.status(PAGE), "403");
    steered.server.stop();
}

#[test]
fn a_page_that_lets_nobody_in_is_named() {
    let users = "[[login]]\nname = \"office\"\nscheme = \"basic\"\nfile = \"/etc/users\"\n";
    let page = "[[login]]\nname = \"hall\"\nscheme = \"page\"\nusers = \"office\"\nurl = \"http://login.test\"\n";
    for (text, wanted) in [
        (page.to_owned(), "users: there is no [[login]] office"),
        (format!("{users}{}", page.replace("users = \"office\"\n", "")), "needs `users` and `url`"),
        (format!("{users}{}", page.replace("login.test", "login.test/x")), "login.url"),
        (format!("{users}{page}file = \"/etc/users\"\n"), "are those of the login that `users` names"),
        (format!("{users}{}", page.replace("users = \"office\"", "users = \"hall\"")), "is one of page, not of basic"),
        (format!("{users}session = \"1h\"\n{page}"), "are for a login of page"),
        (format!("{users}{page}{}", page.replace("hall", "yard")), "another login has its page at this `url`"),
        (
            format!("{users}{page}[[site]]\nhosts = [\"login.test\"]\norigin = \"http://a.test\"\n"),
            "the page is at the host of a [[site]]",
        ),
        (format!("{users}{page}idle = \"1s\"\n"), "login.idle"),
        (
            format!("{users}{page}[[site]]\nhosts = [\"a.test\"]\norigin = \"http://127.0.0.1:9\"\nlogin = \"hall\"\n"),
            "a login of page is for the forward proxy",
        ),
    ] {
        let report = larder::config::Loaded::parse("p.toml", &text, &[]).unwrap_err().to_string();
        assert!(report.contains(wanted) && report.contains("p.toml"), "{text}\n{report}");
    }
    larder::config::Loaded::parse("p.toml", &format!("{page}{users}"), &[]).unwrap_or_else(|report| panic!("{report}"));
}
