//! Certificates of clients: which are let in, what rules and the log see of them, and what a memo or a resumed session may not mix up.

use super::reload::{Steered, base};
use super::stand;
use larder::config::Loaded;
use larder::explain::{Asking, rehearse};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod, KeyPair,
    KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned, SupportedProtocolVersion};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A folder with an authority of clients (`ca.pem`), another one, a server's certificate, and those of clients.
struct Papers {
    folder: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

fn authority(name: &str) -> (String, Issuer<'static, KeyPair>) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key).unwrap().pem();
    (certificate, Issuer::new(params, key))
}

impl Papers {
    fn new() -> Papers {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, issuer) = authority("Clients of the office");
        fs::write(folder.path().join("ca.pem"), certificate).unwrap();
        let papers = Papers { folder, issuer };
        let (_, foreign) = authority("Clients of another house");
        papers.issue_by(&foreign, ("foreign", 66), |params| named(params, "ada"));
        papers.issue(("server", 1), |params| {
            params.subject_alt_names = vec![
                SanType::DnsName("localhost".try_into().unwrap()),
                SanType::DnsName("other.test".try_into().unwrap()),
                SanType::IpAddress([127, 0, 0, 1].into()),
            ];
        });
        papers.issue(("ada", 7), |params| {
            named(params, "ada");
            params.subject_alt_names = vec![
                SanType::Rfc822Name("ada@office.example".try_into().unwrap()),
                SanType::DnsName("pc7.office.example".try_into().unwrap()),
                SanType::URI("spiffe://office/ada".try_into().unwrap()),
            ];
        });
        papers.issue(("bob", 8), |params| named(params, "bob"));
        papers.issue(("expired", 9), |params| {
            named(params, "ada");
            params.not_after = date_time_ymd(2020, 1, 1);
            params.not_before = date_time_ymd(2019, 1, 1);
        });
        papers.revoke("crl.pem", &[8]);
        papers.revoke("none-revoked.pem", &[]);
        papers
    }

    fn issue(&self, of: (&str, u64), change: impl FnOnce(&mut CertificateParams)) {
        self.issue_by(&self.issuer, of, change);
    }

    fn issue_by(
        &self,
        issuer: &Issuer<'_, KeyPair>,
        (name, serial): (&str, u64),
        change: impl FnOnce(&mut CertificateParams),
    ) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.serial_number = Some(SerialNumber::from(serial));
        params.use_authority_key_identifier_extension = true;
        change(&mut params);
        let certificate = params.signed_by(&key, issuer).unwrap().pem();
        fs::write(self.path(&format!("{name}.pem")), certificate).unwrap();
        fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    fn revoke(&self, file: &str, serials: &[u64]) {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        fs::write(self.path(file), list.signed_by(&self.issuer).unwrap().pem().unwrap()).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn listen(&self, more: &str) -> String {
        format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\nclient_ca = {:?}\n{more}\n[[listen.tls]]\nchain = {:?}\nkey = {:?}\n",
            self.path("ca.pem"),
            self.path("server.pem"),
            self.path("server.key")
        )
    }

    /// The status of curl, and what it has got.
    fn curl(&self, certificate: &str, arguments: &[&str]) -> (i32, String) {
        let mut curl = std::process::Command::new("curl");
        curl.args(["-sS", "-m", "10", "--cacert"]).arg(self.path("ca.pem"));
        if !certificate.is_empty() {
            curl.arg("--cert").arg(self.path(&format!("{certificate}.pem")));
            curl.arg("--key").arg(self.path(&format!("{certificate}.key")));
        }
        let output = curl.args(arguments).output().unwrap();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A client of rustls with this certificate, which resumes sessions.
    fn client(&self, certificate: &str, version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.path("ca.pem")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
        let chain = vec![CertificateDer::from_pem_file(self.path(&format!("{certificate}.pem"))).unwrap()];
        let key = PrivateKeyDer::from_pem_file(self.path(&format!("{certificate}.key"))).unwrap();
        Arc::new(builder.with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap())
    }
}

fn named(params: &mut CertificateParams, name: &str) {
    params.distinguished_name.push(DnType::CommonName, name);
}

/// A connection with TLS on which requests can be sent one after the other.
struct Connected(BufReader<StreamOwned<ClientConnection, TcpStream>>);

impl Connected {
    fn to(address: SocketAddr, config: &Arc<ClientConfig>) -> Connected {
        Connected::asking_for("localhost", address, config)
    }

    /// With a host name as SNI; an address is not sent (RFC 6066 section 3).
    fn asking_for(name: &'static str, address: SocketAddr, config: &Arc<ClientConfig>) -> Connected {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(stand::WITHIN)).unwrap();
        let name = ServerName::try_from(name).unwrap();
        Connected(BufReader::new(StreamOwned::new(ClientConnection::new(Arc::clone(config), name).unwrap(), stream)))
    }

    /// Status and body.
    fn get(&mut self, path: &str) -> (String, String) {
        self.get_with(path, "X-Nothing: 1")
    }

    fn get_with(&mut self, path: &str, fields: &str) -> (String, String) {
        write!(self.0.get_mut(), "GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n").unwrap();
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            assert!(self.0.read_line(&mut head).unwrap() > 0, "{head}");
        }
        for line in head.to_lowercase().lines() {
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        (head[9..12].to_owned(), String::from_utf8(body).unwrap())
    }

    fn kind(&self) -> Option<HandshakeKind> {
        self.0.get_ref().conn.handshake_kind()
    }
}

static ANSWERS: AtomicU64 = AtomicU64::new(0);

/// An origin whose answers may be shared, each with a number of its own and the user that the request names.
fn serve(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let head = stand::read_head(&mut lines)?;
        let number = ANSWERS.fetch_add(1, Ordering::SeqCst);
        let user = head
            .lines()
            .find_map(|line| line.to_lowercase().strip_prefix("x-user: ").map(str::to_owned))
            .unwrap_or("nobody".to_owned());
        let body = format!("{number} for {user}");
        let length = body.len();
        let answer = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {length}\r\n\r\n{body}");
        (&*stream).write_all(answer.as_bytes()).ok()?;
    }
}

fn log_of(folder: &Path) -> String {
    format!(
        "[log]\nto = {:?}\nformat = \"{{certificate}} {{user}} {{status}} {{outcome}}\"\n",
        folder.join("access.log")
    )
}

fn wait_for_line(folder: &Path, line: &str) {
    let log = || fs::read_to_string(folder.join("access.log")).unwrap_or_default();
    stand::wait_for(&format!("{line} in the log"), || log().lines().any(|it| it == line));
}

#[test]
fn curl_is_let_in_by_its_certificate_and_by_no_other() {
    if stand::program("curl").is_none() {
        return;
    }
    let papers = Papers::new();
    let origin = stand::origin_that(serve);
    let listen = |demand: &str| {
        papers.listen(&format!(
            "client_certificates = \"{demand}\"\nclient_crl = {:?}\norigin = \"http://{origin}\"",
            papers.path("crl.pem")
        ))
    };
    let rules = "[[rule]]\nname = \"staff\"\nwhen = { path = \"/staff\", not = { certificate = \".office.example\" } }\n\
                 do = { deny = true }\n";
    let text = format!("{}{}{rules}{}", listen("require"), listen("request"), log_of(papers.folder.path()));
    let server = stand::server(papers.folder.path(), &text);
    let (require, request) = (server.addresses()[0].port(), server.addresses()[1].port());
    let ask = |certificate: &str, port: u16, path: &str| {
        let url = format!("https://localhost:{port}{path}");
        papers.curl(certificate, &["-o", "/dev/null", "-w", "%{http_code}", &url])
    };
    assert_eq!(ask("ada", require, "/staff"), (0, "200".to_owned()));
    assert_eq!(ask("ada", request, "/staff"), (0, "200".to_owned()));
    assert_eq!(ask("", request, "/open"), (0, "200".to_owned()));
    // An answer that was stored for one certificate is for others too, and each request is judged.
    assert_eq!(ask("", request, "/staff"), (0, "403".to_owned()));
    wait_for_line(papers.folder.path(), "ada - 200 uri-miss");
    wait_for_line(papers.folder.path(), "- - 403 rule");
    for (certificate, word) in [
        ("", "client-certificate-missing"),
        ("expired", "client-certificate-expired"),
        ("foreign", "client-certificate-foreign"),
        ("bob", "client-certificate-revoked"),
    ] {
        let (status, _) = ask(certificate, require, "/open");
        assert_ne!(status, 0, "{certificate} is let in");
        wait_for_line(papers.folder.path(), &format!("- - 0 {word}"));
        if !certificate.is_empty() {
            assert_ne!(ask(certificate, request, "/open").0, 0, "{certificate} is let in where none is demanded");
        }
    }
    // A certificate of the server's kind, signed by itself, is no client's of this authority.
    let itself = CertificateParams::new(vec!["ada".to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    fs::write(papers.path("itself.pem"), itself.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(papers.path("itself.key"), key.serialize_pem()).unwrap();
    assert_ne!(ask("itself", require, "/open").0, 0);
    server.stop();
}

#[test]
fn a_resumed_session_keeps_the_name() {
    let papers = Papers::new();
    let more = format!(
        "client_certificates = \"require\"\ncertificate_user = \"email\"\norigin = \"http://{}\"",
        stand::origin_that(serve)
    );
    let rule = "[[rule]]\nwhen = { not = { user = \"ada@office.example\" } }\ndo = { deny = true }\n";
    let text = format!("{}{rule}{}", papers.listen(&more), log_of(papers.folder.path()));
    let server = stand::server(papers.folder.path(), &text);
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let (ada, bob) = (papers.client("ada", version), papers.client("bob", version));
        for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let mut connection = Connected::to(server.addresses()[0], &ada);
            assert_eq!(connection.get("/a").0, "200", "{version:?} {kind:?}");
            assert_eq!(connection.kind(), Some(kind));
            let mut connection = Connected::to(server.addresses()[0], &bob);
            assert_eq!(connection.get("/a").0, "403", "{version:?} {kind:?}");
            assert_eq!(connection.kind(), Some(kind));
        }
    }
    wait_for_line(papers.folder.path(), "ada ada@office.example 200 hit");
    wait_for_line(papers.folder.path(), "bob - 403 rule");
    server.stop();
}

/// One worker, and heads that are the same byte for byte: what is remembered of one connection is found by the other.
#[test]
fn no_memo_of_one_certificate_serves_another() {
    let papers = Papers::new();
    let more = format!(
        "client_certificates = \"request\"\ncertificate_user = \"cn\"\norigin = \"http://{}\"",
        stand::origin_that(serve)
    );
    let rules = "[[rule]]\nwhen = { path = \"/denied/**\", certificate = \"bob\" }\ndo = { deny = true }\n\
                 [[rule]]\nwhen = { path = \"/mine/**\" }\n\
                 do = { set = \"X-User: {user}\", key = [\"{user}\"] }\n";
    let text = format!("{}{rules}", papers.listen(&more));
    let mut config = stand::config(papers.folder.path(), &text);
    config.workers = 1;
    let server = larder::server::Server::start(config).unwrap_or_else(|error| panic!("{error}"));
    let (ada, bob) = (papers.client("ada", &rustls::version::TLS13), papers.client("bob", &rustls::version::TLS13));
    let (mut ada, mut bob) = (Connected::to(server.addresses()[0], &ada), Connected::to(server.addresses()[0], &bob));
    let (mut of_ada, mut of_bob) = (Vec::new(), Vec::new());
    for _ in 0..6 {
        assert_eq!((ada.get("/denied/1").0, bob.get("/denied/1").0), ("200".to_owned(), "403".to_owned()));
        of_ada.push(ada.get("/mine/page").1);
        of_bob.push(bob.get("/mine/page").1);
    }
    assert!(of_ada[0].ends_with(" for ada") && of_bob[0].ends_with(" for bob"), "{of_ada:?} {of_bob:?}");
    assert!(of_ada.iter().all(|it| *it == of_ada[0]) && of_bob.iter().all(|it| *it == of_bob[0]));
    server.stop();
}

#[test]
fn a_certificate_that_was_revoked_ends_an_open_connection_at_the_reload() {
    let papers = Papers::new();
    let folder = papers.folder.path();
    let text = |crl: &str| {
        let more = format!(
            "client_certificates = \"require\"\nclient_crl = {:?}\norigin = \"http://{}\"",
            papers.path(crl),
            "127.0.0.1:9"
        );
        format!("{}{}{}", base(folder), papers.listen(&more), "[[rule]]\ndo = { deny = true, status = 410 }\n")
    };
    let steered = Steered::start(folder, &text("none-revoked.pem"));
    let client = papers.client("bob", &rustls::version::TLS13);
    let mut connection = Connected::to(steered.server.addresses()[0], &client);
    for _ in 0..3 {
        assert_eq!(connection.get("/a").0, "410");
    }
    // A reload with the same files changes nothing for those who are there.
    steered.reload(&text("none-revoked.pem")).unwrap();
    assert_eq!(connection.get("/a").0, "410");
    steered.reload(&text("crl.pem")).unwrap();
    assert_eq!(connection.get("/a").0, "421");
    let mut again = Connected::to(steered.server.addresses()[0], &client);
    let refused = write!(again.0.get_mut(), "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").is_err()
        || again.0.read_line(&mut String::new()).map_or(true, |read| read == 0);
    assert!(refused, "neither the ticket of the session nor the certificate lets it in");
    steered.server.stop();
}

#[test]
fn the_user_of_a_tunnel_is_the_name_of_the_proxys_client() {
    if stand::program("curl").is_none() {
        return;
    }
    let papers = Papers::new();
    let more = "client_certificates = \"require\"\ncertificate_user = \"uri\"\nforward = true";
    let origin = stand::origin();
    let text = format!(
        "{}[access]\nconnect_ports = [{}]\n[[rule]]\nwhen = {{ method = \"CONNECT\", not = {{ user = \"spiffe://office/ada\" }} }}\n\
         do = {{ deny = true }}\n{}",
        papers.listen(more),
        origin.port(),
        log_of(papers.folder.path())
    );
    let server = stand::server(papers.folder.path(), &text);
    let proxy = format!("https://localhost:{}", server.addresses()[0].port());
    let through = |certificate: &str| {
        let (pem, key) = (papers.path(&format!("{certificate}.pem")), papers.path(&format!("{certificate}.key")));
        let (pem, key) = (pem.display().to_string(), key.display().to_string());
        let ca = papers.path("ca.pem").display().to_string();
        let url = format!("http://{origin}/fresh");
        let proxy = ["--proxy-cacert", &ca, "--proxy-cert", &pem, "--proxy-key", &key, "-x", &proxy, "-p"];
        let rest = ["-o", "/dev/null", "-w", "%{http_connect}", &url];
        papers.curl("", &[&proxy[..], &rest[..]].concat()).1
    };
    assert_eq!(through("ada"), "200");
    assert_eq!(through("bob"), "403");
    wait_for_line(papers.folder.path(), "ada spiffe://office/ada 200 tunnel");
    server.stop();
}

#[test]
fn a_certificate_may_be_taken_to_be_shown() {
    let papers = Papers::new();
    let settings = format!(
        "{}[[rule]]\nwhen = {{ certificate = \"*@office.example\" }}\ndo = {{ deny = true, status = 410 }}\n\
         [[rule]]\nwhen = {{ user = \"bob\" }}\ndo = {{ deny = true, status = 451 }}\n",
        papers.listen("client_certificates = \"require\"\ncertificate_user = \"cn\"\norigin = \"http://127.0.0.1:9\"")
    );
    let loaded = Loaded::parse("larder.toml", &settings, &[]).unwrap_or_else(|report| panic!("{report}"));
    let ask = |names: &[&str]| {
        let certificate = names.iter().map(|name| (*name).to_owned()).collect();
        let asking = Asking { url: "https://a.test/".to_owned(), certificate, ..Asking::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(rehearse(&asking, &loaded, None)).unwrap().to_string()
    };
    let said = ask(&["ada", "ada@office.example"]);
    assert!(said.contains("410") && said.contains("certificate of ada, ada@office.example"), "{said}");
    assert!(ask(&["bob"]).contains("451"));
    let said = ask(&["eve"]);
    assert!(!said.contains("451") && said.contains("eve, in no group, by the certificate"), "{said}");
    assert!(ask(&[]).contains("the handshake fails without one"));
}

#[test]
fn what_lets_nobody_in_is_named() {
    for (listen, wanted) in [
        ("client_certificates = \"require\"", "needs `client_ca`"),
        ("client_ca = \"/x\"", "need `client_certificates`"),
        ("certificate_user = \"cn\"", "need `client_certificates`"),
        ("client_certificates = \"maybe\"", "none, request or require"),
        ("client_certificates = \"require\"\nclient_ca = \"/x\"", "needs TLS"),
    ] {
        let text = format!("[[listen]]\naddress = \"127.0.0.1:0\"\n{listen}\n");
        let report = Loaded::parse("larder.toml", &text, &[]).unwrap_err().to_string();
        assert!(report.contains(wanted) && report.contains("larder.toml:"), "{listen}: {report}");
    }
    let papers = Papers::new();
    fs::write(papers.path("empty.pem"), "nothing\n").unwrap();
    let text =
        papers.listen(&format!("client_certificates = \"require\"\nclient_crl = {:?}", papers.path("empty.pem")));
    let error = larder::server::Server::start(stand::config(papers.folder.path(), &text)).err().unwrap();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("empty.pem") && source.contains("revocation list"), "{source}");
}

/// The field `Host` says one thing and the TLS hello another: rules about `sni` see the hello.
#[test]
fn rules_see_the_name_for_which_the_clients_tls_asks() {
    let papers = Papers::new();
    let site = format!("client_certificates = \"request\"\norigin = \"http://{}\"", stand::origin_that(serve));
    let opens = "[[listen]]\naddress = \"127.0.0.1:0\"\nintercept = true\n";
    let rules = "[[rule]]\nwhen = { path = \"/a\", sni = \"*.TEST\" }\ndo = { deny = true, status = 404 }\n\
                 [[rule]]\nwhen = { path = \"/b\", not = { sni = \"*\" } }\ndo = { deny = true, status = 410 }\n";
    let text = format!("{}{opens}{rules}", papers.listen(&site));
    let mut config = stand::config(papers.folder.path(), &text);
    config.workers = 1;
    let server = larder::server::Server::start(config).unwrap_or_else(|error| panic!("{error}"));
    let ada = papers.client("ada", &rustls::version::TLS13);
    let mut connections = ["localhost", "other.test", "127.0.0.1"]
        .map(|name| (name, Connected::asking_for(name, server.addresses()[0], &ada)));
    for _ in 0..4 {
        for (name, connection) in &mut connections {
            let wanted = match *name {
                "localhost" => ["200", "200"],
                "other.test" => ["404", "200"],
                _ => ["200", "410"],
            };
            assert_eq!([connection.get("/a").0, connection.get("/b").0], wanted, "{name}");
        }
    }
    if stand::program("curl").is_some() {
        let proxy = format!("http://{}", server.addresses()[1]);
        let inside = |url: &str| papers.curl("", &["-k", "-x", &proxy, "-o", "/dev/null", "-w", "%{http_code}", url]).1;
        assert_eq!(inside("https://inner.test/a"), "404", "the hello inside an opened tunnel counts");
        assert_eq!(inside("https://127.0.0.9/b"), "410");
    }
    server.stop();
}

/// Names that a certificate may have and that a reader of them could stumble over; of several names each may hold a rule, and the rules decide
/// by their own order.
#[test]
fn names_are_taken_whole_or_not_at_all() {
    let papers = Papers::new();
    let long = "a".repeat(600);
    papers.issue(("nul", 21), |params| named(params, "ada@office.example\0.evil.test"));
    papers.issue(("long", 22), |params| named(params, &format!("{long}@office.example")));
    papers.issue(("umlaut", 23), |params| named(params, "ädä@büro.example"));
    papers.issue(("two", 24), |params| {
        params.subject_alt_names = vec![
            SanType::DnsName("second.rule.example".try_into().unwrap()),
            SanType::DnsName("FIRST.rule.example".try_into().unwrap()),
        ];
    });
    papers.issue(("line", 25), |params| named(params, "ada\r\nX-Admin: yes"));
    let more = format!(
        "client_certificates = \"require\"\ncertificate_user = \"cn\"\norigin = \"http://{}\"",
        stand::origin_that(serve)
    );
    let deny = |name: &str, status: u16| {
        format!(
            "[[rule]]\nwhen = {{ certificate = {name:?}, path = \"/x\" }}\ndo = {{ deny = true, status = {status} }}\n"
        )
    };
    let rules = deny("*@office.example", 410) + &deny("first.rule.example", 451) + &deny("second.rule.example", 404);
    let rules = rules + &deny("*@BÜRO.example", 405) + &deny("*@büro.example", 406);
    let set = "[[rule]]\nwhen = { path = \"/who\" }\ndo = { set = \"X-User: {user}\", key = [\"{user}\"] }\n";
    let text = format!("{}{rules}{set}{}", papers.listen(&more), log_of(papers.folder.path()));
    let server = stand::server(papers.folder.path(), &text);
    for (certificate, status) in [("nul", "200"), ("long", "200"), ("umlaut", "406"), ("two", "451"), ("line", "200")] {
        let client = papers.client(certificate, &rustls::version::TLS13);
        let mut connection = Connected::to(server.addresses()[0], &client);
        for _ in 0..3 {
            assert_eq!(connection.get("/x").0, status, "{certificate}");
        }
    }
    // A certificate whose names are all left out is that of nobody, and has a digest in the log.
    let log = || fs::read_to_string(papers.folder.path().join("access.log")).unwrap_or_default();
    stand::wait_for("a digest", || log().lines().filter(|line| line.starts_with("sha256:")).count() >= 9);
    assert!(!log().contains("evil") && !log().contains(&long) && !log().contains("X-Admin"), "{}", log());
    // No field of the request makes its client somebody else.
    let ada = papers.client("ada", &rustls::version::TLS13);
    let mut connection = Connected::to(server.addresses()[0], &ada);
    for fields in ["Connection: X-User", "X-User: eve", "Connection: X-User\r\nX-User: eve\r\nX-User: bob"] {
        let (status, body) = connection.get_with("/who", fields);
        assert!(status == "200" && body.ends_with(" for ada"), "{fields}: {status} {body}");
    }
    server.stop();
}

/// The authority is taken away by a reload: connections, tickets and the certificate end, in both versions of TLS.
#[test]
fn with_its_authority_a_certificate_ends_everywhere() {
    let papers = Papers::new();
    let (other, _) = authority("Clients of another house");
    fs::write(papers.path("other.pem"), other).unwrap();
    let folder = papers.folder.path();
    let text = |ca: &str| {
        let more = "client_certificates = \"require\"\norigin = \"http://127.0.0.1:9\"";
        let listen = papers.listen(more).replace("ca.pem", ca);
        format!("{}{listen}[[rule]]\ndo = {{ deny = true, status = 410 }}\n", base(folder))
    };
    let steered = Steered::start(folder, &text("ca.pem"));
    let clients = [&rustls::version::TLS13, &rustls::version::TLS12].map(|version| papers.client("ada", version));
    let mut open = clients.each_ref().map(|client| Connected::to(steered.server.addresses()[0], client));
    for connection in &mut open {
        assert_eq!(connection.get("/a").0, "410");
    }
    steered.reload(&text("other.pem")).unwrap();
    for (client, connection) in clients.iter().zip(&mut open) {
        assert_eq!(connection.get("/a").0, "421");
        let mut again = Connected::to(steered.server.addresses()[0], client);
        let refused = write!(again.0.get_mut(), "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").is_err()
            || again.0.read_line(&mut String::new()).map_or(true, |read| read == 0);
        assert!(refused, "a ticket or the certificate lets it in");
    }
    steered.server.stop();
}
