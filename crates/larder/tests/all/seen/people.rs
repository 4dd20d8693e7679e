//! Logins of the forward proxy and of sites: challenges, wrong passwords, the log, the origin's view, and the store's.

use super::stand;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// `ada:secret` and `bob:secret`, by `openssl passwd -apr1`.
const USERS: &str = "ada:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\nbob:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n";
const ADA: &str = "Basic YWRhOnNlY3JldA==";
const BOB: &str = "Basic Ym9iOnNlY3JldA==";
const WRONG: &str = "Basic YWRhOndyb25n";

static ANSWERS: AtomicU64 = AtomicU64::new(0);

/// An origin that says how many-th its answer is and which credentials it got.
fn serve(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let head = stand::read_head(&mut lines)?;
        let number = ANSWERS.fetch_add(1, Ordering::SeqCst);
        let seen: Vec<&str> = head.lines().filter(|line| line.to_lowercase().contains("authorization:")).collect();
        let body = format!("answer {number} path {} [{}]", head.split(' ').nth(1)?, seen.join("|"));
        let length = body.len();
        let answer = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {length}\r\n\r\n{body}");
        (&*stream).write_all(answer.as_bytes()).ok()?;
    }
}

fn users(folder: &Path) -> String {
    let path = folder.join("users");
    std::fs::write(&path, USERS).unwrap();
    path.display().to_string()
}

fn get(to: SocketAddr, target: &str, fields: &str) -> String {
    stand::exchange(to, &format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n{fields}Connection: close\r\n\r\n"))
}

fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or(answer)
}

#[test]
fn a_forward_proxy_asks_for_a_login_and_shares_what_it_stores() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let settings = format!(
        "[[login]]\nname = \"office\"\nscheme = \"basic\"\nrealm = \"the office\"\nfile = {:?}\n\
         [access]\nlogin = \"office\"\n[log]\nto = {:?}\nformat = \"{{user}} {{status}} {{outcome}} {{url}}\"\n",
        users(folder.path()),
        log.display().to_string()
    );
    let server = stand::server(folder.path(), &settings);
    let (proxy, origin) = (server.addresses()[0], stand::origin_that(serve));
    let url = format!("http://{origin}/a");
    let with = |credential: &str| get(proxy, &url, &format!("Proxy-Authorization: {credential}\r\n"));
    let refused = get(proxy, &url, "");
    assert_eq!(status(&refused), "407", "{refused}");
    assert!(refused.contains("Proxy-Authenticate: Basic realm=\"the office\", charset=\"UTF-8\"\r\n"), "{refused}");
    for wrong in [WRONG, "Basic", "Basic !!", "Bearer x", "Basic YWRh"] {
        assert_eq!(status(&with(wrong)), "407", "{wrong}");
    }
    let first = with(ADA);
    assert!(status(&first) == "200" && first.ends_with(" []"), "the origin sees no credential: {first}");
    // The answer has nothing to do with the login: it is shared, and each request is judged.
    let second = with(BOB);
    assert_eq!(stand::body(&second), stand::body(&first));
    assert!(second.contains("; hit"), "{second}");
    assert_eq!(status(&with(WRONG)), "407");
    assert_eq!(status(&get(proxy, &url, "")), "407");
    // Of two credentials none counts.
    let both = format!("Proxy-Authorization: {ADA}\r\nProxy-Authorization: {BOB}\r\n");
    assert_eq!(status(&get(proxy, &url, &both)), "407");
    // A credential of the origin passes through untouched.
    let own = get(
        proxy,
        &format!("http://{origin}/own"),
        &format!("Proxy-Authorization: {ADA}\r\nAuthorization: Bearer own\r\n"),
    );
    assert!(own.ends_with("[Authorization: Bearer own]"), "{own}");
    server.stop();
    let log = std::fs::read_to_string(&log).unwrap();
    for line in [
        format!("ada 200 uri-miss {url}"),
        format!("bob 200 hit {url}"),
        format!("- 407 login {url}"),
        format!("- 407 login-wrong {url}"),
    ] {
        assert!(log.lines().any(|it| it == line), "{line} in\n{log}");
    }
    assert!(!log.contains("secret") && !log.contains("YWRh"), "{log}");
}

/// The same connection asks again and again, as browsers do: the verdict is remembered, and ends with the credential.
#[test]
fn a_remembered_verdict_ends_when_the_file_changes() {
    let folder = tempfile::tempdir().unwrap();
    let file = users(folder.path());
    let settings =
        format!("[[login]]\nname = \"office\"\nscheme = \"basic\"\nfile = {file:?}\n[access]\nlogin = \"office\"\n");
    let server = stand::server(folder.path(), &settings);
    let (proxy, origin) = (server.addresses()[0], stand::origin_that(serve));
    let mut stream = TcpStream::connect(proxy).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut ask = |credential: &str| {
        let request =
            format!("GET http://{origin}/memo HTTP/1.1\r\nHost: {origin}\r\nProxy-Authorization: {credential}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut lines = BufReader::new(&stream);
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            assert!(lines.read_line(&mut head).unwrap() > 0);
        }
        for line in head.lines() {
            if let Some(value) = line.to_lowercase().strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
        }
        lines.read_exact(&mut vec![0; length]).unwrap();
        status(&head).to_owned()
    };
    for _ in 0..6 {
        assert_eq!(ask(ADA), "200");
    }
    assert_eq!((ask(WRONG), ask(ADA), ask(BOB)), ("407".into(), "200".into(), "200".into()));
    std::fs::write(&file, "bob:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n").unwrap();
    stand::wait_for("the file is taken up", || ask(ADA) == "407");
    assert_eq!(ask(BOB), "200");
    // A hash that is not known takes nobody else's login away, and a file without one that is changes nothing.
    std::fs::write(&file, "eve:rqXexS6ZhobKA\nada:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n").unwrap();
    stand::wait_for("the other lines count", || ask(ADA) == "200");
    assert_eq!(ask(BOB), "407");
    std::fs::write(&file, "bob:cleartext\n").unwrap();
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(ask(ADA), "200");
}

/// A rule about a user whom nobody can be holds for nobody, and its author hears of it.
#[test]
fn misspelt_users_and_groups_of_rules_are_noted() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let hash = "$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/";
    let users = file("users", &format!("ada:{hash}\nold:rqXexS6ZhobKA\n"));
    let groups = file("groups", "staff: ada\n");
    let config = |more: &str| {
        format!(
            "{more}[[login]]\nname = \"office\"\nscheme = \"basic\"\nfile = {users:?}\ngroups = {groups:?}\n[access]\nlogin = \"office\"\n\
             [[rule]]\nwhen = {{ user = [\"adda\", \"*\", \"old\"], not = {{ group = [\"stuf\", \"staff\"] }} }}\ndo = {{ deny = true }}\n"
        )
    };
    let check = |text: &str| {
        let path = file("larder.toml", text);
        let told = std::process::Command::new(env!("CARGO_BIN_EXE_larder")).args(["check", "--config", &path]).output();
        String::from_utf8_lossy(&told.unwrap().stdout).into_owned()
    };
    let told = check(&config(""));
    for part in ["has the user \"adda\"", "did you mean \"ada\"?", "has the group \"stuf\"", "users:2: user \"old\""] {
        assert!(told.contains(part), "{part} in {told}");
    }
    assert!(
        told.matches("note: ").count() >= 3 && !told.contains("\"*\"") && !told.contains("user \"old\","),
        "{told}"
    );
    // A helper may name users that no file has.
    let helper = "[[helper]]\nname = \"h\"\nkind = \"external_acl\"\ncommand = [\"sh\"]\nformat = \"%SRC\"\n";
    assert!(!check(&config(helper)).contains("adda"));
}

#[test]
fn a_site_consumes_the_credential_and_shares_its_answers() {
    let folder = tempfile::tempdir().unwrap();
    let origin = stand::origin_that(serve);
    let settings = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[login]]\nname = \"office\"\nscheme = \"basic\"\nfile = {file:?}\n\
         [[login]]\nname = \"passing\"\nscheme = \"basic\"\nforward = true\nfile = {file:?}\n\
         [[site]]\nhosts = [\"a.test\"]\norigin = \"http://{origin}\"\nlogin = \"office\"\n\
         [[site]]\nhosts = [\"a.test\"]\nprefix = \"/passing\"\norigin = \"http://{origin}\"\nlogin = \"passing\"\n",
        file = users(folder.path())
    );
    let server = stand::server(folder.path(), &settings);
    let site = server.addresses()[0];
    let with = |path: &str, credential: &str| get(site, path, &format!("Authorization: {credential}\r\n"));
    let refused = get(site, "/x", "");
    assert!(status(&refused) == "401" && refused.contains("WWW-Authenticate: Basic realm="), "{refused}");
    let first = with("/x", ADA);
    assert!(status(&first) == "200" && first.ends_with(" []"), "{first}");
    let second = with("/x", BOB);
    assert!(second.contains("; hit") && stand::body(&second) == stand::body(&first), "{second}");
    assert_eq!((status(&with("/x", WRONG)), status(&get(site, "/x", ""))), ("401", "401"));
    // A credential for the proxy is nothing to a site.
    assert_eq!(status(&get(site, "/x", &format!("Proxy-Authorization: {ADA}\r\n"))), "401");
    // With `forward` the origin gets the credential, and RFC 9111 section 3.5 counts: nothing is shared.
    let (first, second) = (with("/passing", ADA), with("/passing", ADA));
    assert!(first.ends_with(&format!("[Authorization: {ADA}]")), "{first}");
    assert_ne!(stand::body(&first), stand::body(&second));
}

#[test]
fn failed_logins_are_limited_for_their_client() {
    let folder = tempfile::tempdir().unwrap();
    let settings = format!(
        "[[login]]\nname = \"office\"\nscheme = \"basic\"\nfile = {:?}\nfailures = 3\nfailure_period = \"1h\"\n[access]\nlogin = \"office\"\n",
        users(folder.path())
    );
    let server = stand::server(folder.path(), &settings);
    let (proxy, origin) = (server.addresses()[0], stand::origin_that(serve));
    let with = |credential: &str| {
        get(proxy, &format!("http://{origin}/limited"), &format!("Proxy-Authorization: {credential}\r\n"))
    };
    assert_eq!(status(&with(ADA)), "200");
    for _ in 0..3 {
        assert_eq!(status(&with(WRONG)), "407");
    }
    let limited = with(WRONG);
    assert!(status(&limited) == "429" && limited.contains("Retry-After: 3600"), "{limited}");
    // A right one that is not known yet is not even looked at; one that is known counts on.
    assert_eq!((status(&with(BOB)), status(&with(ADA))), ("429", "200"));
}

/// `curl` answers challenges of Basic and of both algorithms of Digest, also for a CONNECT.
#[test]
fn curl_logs_in() {
    let Some(_) = stand::program("curl") else { return };
    let folder = tempfile::tempdir().unwrap();
    // MD5 and SHA-256 of `ada:office:secret`.
    let digests = folder.path().join("digests");
    let hash = |algorithm: larder_people::digest::Algorithm| algorithm.hash(&["ada:office:secret"]);
    let [sha, md5] = larder_people::digest::Algorithm::ALL.map(hash);
    for (name, lines) in [
        ("basic", None),
        ("md5", Some(format!("ada:office:{md5}\n"))),
        ("sha-256", Some(format!("ada:office:{sha}\n"))),
        ("both", Some(format!("ada:office:{md5}\nada:office:{sha}\n"))),
    ] {
        let (scheme, file) = match &lines {
            None => ("basic", users(folder.path())),
            Some(lines) => {
                std::fs::write(&digests, lines).unwrap();
                ("digest", digests.display().to_string())
            }
        };
        let settings = format!(
            "[[login]]\nname = \"office\"\nscheme = \"{scheme}\"\nrealm = \"office\"\nfile = {file:?}\n[access]\nlogin = \"office\"\nconnect_ports = []\n"
        );
        let server = stand::server(folder.path(), &settings);
        let (proxy, origin) = (server.addresses()[0].to_string(), stand::origin_that(serve));
        let curl = |password: &str, further: &[&str]| {
            let output = std::process::Command::new("curl")
                .args([
                    "-sS",
                    "--noproxy",
                    "",
                    "-x",
                    &format!("http://{proxy}"),
                    "--proxy-user",
                    &format!("ada:{password}"),
                ])
                .args(["-o", "/dev/null", "-w", "%{http_code} %{http_connect}", &format!("--proxy-{scheme}")])
                .args(further)
                .arg(format!("http://{origin}/curl?a=b"))
                .output()
                .unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        assert_eq!(curl("secret", &[]), "200 000", "{name}");
        assert_eq!(curl("wrong", &[]), "407 000", "{name}");
        assert_eq!(curl("secret", &["-p"]), "200 200", "{name} through a tunnel");
        assert!(curl("wrong", &["-p"]).ends_with("407"), "{name} through a tunnel");
        server.stop();
    }
}

/// An answer to a challenge counts once: one that was overheard is worth nothing.
#[test]
fn a_digest_is_not_taken_twice() {
    let Some(_) = stand::program("curl") else { return };
    use larder_people::digest::Algorithm;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("digests");
    let ha1 = Algorithm::Sha256.hash(&["ada:office:secret"]);
    std::fs::write(&file, format!("ada:office:{ha1}\n")).unwrap();
    let settings = format!(
        "[[login]]\nname = \"office\"\nscheme = \"digest\"\nrealm = \"office\"\nfile = {:?}\n[access]\nlogin = \"office\"\n",
        file.display().to_string()
    );
    let server = stand::server(folder.path(), &settings);
    let (proxy, origin) = (server.addresses()[0], stand::origin_that(serve));
    let url = format!("http://{origin}/once");
    let challenge = get(proxy, &url, "");
    assert!(
        challenge.contains("algorithm=SHA-256") && challenge.contains("qop=\"auth\"") && !challenge.contains("stale")
    );
    let nonce = challenge.split("nonce=\"").nth(1).unwrap().split('"').next().unwrap();
    let proof = |uri: &str, count: &str, user: &str, more: &str| {
        let ha2 = Algorithm::Sha256.hash(&["GET:", uri]);
        let response = Algorithm::Sha256.hash(&[&ha1, ":", nonce, ":", count, ":c:auth:", &ha2]);
        format!(
            "Proxy-Authorization: Digest username=\"{user}\", realm=\"office\", nonce=\"{nonce}\", uri=\"{uri}\", algorithm=SHA-256, qop=auth, nc={count}, cnonce=\"c\", response=\"{response}\"{more}\r\n"
        )
    };
    let first = proof(&url, "00000001", "ada", "");
    assert_eq!(status(&get(proxy, &url, &first)), "200");
    let again = get(proxy, &url, &first);
    assert!(status(&again) == "407" && again.contains("stale=true"), "{again}");
    let hashed = Algorithm::Sha256.hash(&["ada:office"]);
    assert_eq!(status(&get(proxy, &url, &proof(&url, "00000002", &hashed, ", userhash=true"))), "200");
    // A proof is for one URL.
    let other = get(proxy, &format!("http://{origin}/other"), &proof(&url, "00000003", "ada", ""));
    assert_eq!(status(&other), "407");
    assert_eq!(status(&get(proxy, &url, &proof(&url, "00000004", "eve", ""))), "407");
}

/// A first judgement that needs a helper counts the request, and the one that follows it does not.
#[test]
fn a_proof_and_a_rate_count_once_where_a_helper_is_asked() {
    use larder_people::digest::Algorithm;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("digests");
    let ha1 = Algorithm::Sha256.hash(&["ada:office:secret"]);
    std::fs::write(&file, format!("ada:office:{ha1}\n")).unwrap();
    let settings = format!(
        "[[login]]\nname = \"office\"\nscheme = \"digest\"\nrealm = \"office\"\nfile = {:?}\n\
         [[helper]]\nname = \"h\"\nkind = \"external_acl\"\ncommand = [\"sh\", \"-c\", \"while read -r line; do echo OK; done\"]\n\
         format = \"%LOGIN\"\nttl = \"0s\"\n[access]\nlogin = \"office\"\nexternal = [\"h\"]\n\
         [[rule]]\nwhen = {{ user = \"ada\" }}\ndo = {{ rate = \"2/h\", burst = 2 }}\n",
        file.display().to_string()
    );
    let server = stand::server(folder.path(), &settings);
    let (proxy, origin) = (server.addresses()[0], stand::origin_that(serve));
    let url = format!("http://{origin}/counted");
    let challenge = get(proxy, &url, "");
    let nonce = challenge.split("nonce=\"").nth(1).unwrap().split('"').next().unwrap();
    let answers = ["00000001", "00000002", "00000003"].map(|count| {
        let ha2 = Algorithm::Sha256.hash(&["GET:", &url]);
        let response = Algorithm::Sha256.hash(&[&ha1, ":", nonce, ":", count, ":c:auth:", &ha2]);
        let field = format!(
            "Proxy-Authorization: Digest username=\"ada\", realm=\"office\", nonce=\"{nonce}\", uri=\"{url}\", algorithm=SHA-256, qop=auth, nc={count}, cnonce=\"c\", response=\"{response}\"\r\n"
        );
        status(&get(proxy, &url, &field)).to_owned()
    });
    assert_eq!(answers, ["200", "200", "429"]);
}

#[test]
fn a_connect_stays_open_for_its_login_and_a_request_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let settings = format!(
        "[[login]]\nname = \"office\"\nscheme = \"basic\"\nfile = {:?}\n[access]\nlogin = \"office\"\nconnect_ports = []\n[records]\nname_answers = true\n",
        users(folder.path())
    );
    let server = stand::server(folder.path(), &settings);
    let (proxy, origin) = (server.addresses()[0], stand::origin_that(serve));
    let mut stream = TcpStream::connect(proxy).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // The connection stays: the client answers the challenge on it.
    for (fields, wanted) in [("", "407"), (&*format!("Proxy-Authorization: {ADA}\r\n"), "200")] {
        stream.write_all(format!("CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\n{fields}\r\n").as_bytes()).unwrap();
        let mut lines = BufReader::new(&stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(lines.read_line(&mut head).unwrap() > 0, "{head}");
        }
        assert_eq!(status(&head), wanted, "{head}");
        let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        lines.read_exact(&mut vec![0; length.unwrap_or(0)]).unwrap();
    }
    drop(stream);
    let url = format!("http://{origin}/explained");
    let answer = get(proxy, &url, &format!("Proxy-Authorization: {ADA}\r\n"));
    let name = answer
        .lines()
        .find_map(|line| line.strip_prefix("Larder-Request: "))
        .unwrap_or_else(|| panic!("{answer}"))
        .trim();
    let admin = server.admin().unwrap();
    let explained = stand::ask(admin, &format!("/requests/{name}"));
    assert!(explained.contains("ada, who has logged in"), "{explained}");
}

#[test]
fn a_login_that_cannot_work_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    std::fs::write(&file, "ada:rqXexS6ZhobKA\nbob\n").unwrap();
    let settings = format!(
        "[[login]]\nname = \"office\"\nscheme = \"basic\"\nfile = {:?}\n[access]\nlogin = \"office\"\n",
        file.display().to_string()
    );
    let refused = larder::server::Server::start(stand::config(folder.path(), &settings)).err().unwrap().to_string();
    for part in ["test:1", "users:1: user \"ada\"", "DES", "users:2: ", "htpasswd -B"] {
        assert!(refused.contains(part), "{part} in {refused}");
    }
    assert!(!refused.contains("rqXex"));
    let wrong = "[[login]]\nname = \"a\"\nscheme = \"basic\"\n[[login]]\nname = \"b\"\nscheme = \"bearer\"\nfile = \"keys\"\n[[login]]\nname = \"c\"\nscheme = \"ntlm\"\n[[helper]]\nname = \"h\"\nkind = \"external_acl\"\ncommand = [\"/x\"]\nformat = \"%IDENT\"\n[access]\nlogin = \"nobody\"\nexternal = [\"h\", \"g\"]\n[forward]\nurl_rewrite = \"h\"\n";
    let report = larder::config::Loaded::parse("test", wrong, &[]).unwrap_err().to_string();
    for part in [
        "a login needs either `file`, `helper` or `ldap`",
        "needs `issuer` and `audience`",
        "a login of ntlm needs `helper`",
        "no code %IDENT",
        "there is no [[login]] nobody",
        "there is no [[helper]] g",
        "is one of external_acl, not of url_rewrite",
    ] {
        assert!(report.contains(part), "{part} in\n{report}");
    }
}
