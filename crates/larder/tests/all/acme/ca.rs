//! An authority that speaks ACME (RFC 8555) as a test wants it: it holds each message against the rules, looks at the challenges that it
//! gives, and misbehaves where a test says so.

use super::base64url;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::{CertificateSigningRequestDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// How an authority misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// It does not.
    Well,
    /// It has had enough, for this many seconds where it says so.
    RateLimited(Option<u64>),
    /// It takes no nonce the first this many times.
    BadNonces(usize),
    /// It finds every challenge wrong.
    Invalid,
    /// It answers orders with a body that never ends.
    Endless,
    /// It sends orders elsewhere.
    Redirects,
    /// It answers orders with something that is no JSON.
    NoJson,
    /// It answers orders with JSON of another form.
    OtherJson,
    /// It issues certificates for another name.
    OtherName,
    /// It issues certificates that have ended.
    Ended,
    /// It wants a proof for a name that nobody asked for.
    OtherProof,
    /// It wants far more proofs than there are names.
    ManyProofs,
    /// Its tokens lead out of the path of challenges.
    EvilToken,
    /// It wants an answer to be asked for in more seconds than there are.
    Never,
}

struct Order {
    names: Vec<String>,
    tokens: Vec<String>,
    /// `pending`, `valid` or `invalid`, by name.
    proofs: Vec<&'static str>,
    chain: Option<String>,
}

struct State {
    base: String,
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    mood: Mutex<Mood>,
    nonces: Mutex<HashSet<String>>,
    /// The keys of accounts, as points.
    accounts: Mutex<Vec<Vec<u8>>>,
    contacts: Mutex<Vec<Value>>,
    orders: Mutex<Vec<Order>>,
    /// The listeners in clear text and with TLS to which all names lead.
    leads_to: Mutex<Option<(SocketAddr, SocketAddr)>>,
    life: Mutex<Duration>,
    /// The window that it suggests for renewals, from now on.
    window: Mutex<Option<(i64, i64)>>,
    asked: AtomicUsize,
    numbers: AtomicUsize,
    is_gone: AtomicBool,
}

/// An authority.
pub struct Ca {
    pub address: SocketAddr,
    /// The file with its root.
    pub root: PathBuf,
    state: Arc<State>,
}

/// An authority that has not begun.
pub struct Prepared {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    /// The file with its root.
    pub root: PathBuf,
}

impl Prepared {
    pub fn new(folder: &Path) -> Prepared {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "An authority for tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let root = folder.join("root.pem");
        fs::write(&root, &certificate).unwrap();
        Prepared { issuer, certificate, root }
    }

    pub fn at(self, address: SocketAddr) -> Ca {
        let Prepared { issuer, certificate, root } = self;
        let tls = Arc::new(tls_of(&issuer));
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            base: format!("https://localhost:{}", address.port()),
            issuer,
            certificate,
            mood: Mutex::new(Mood::Well),
            nonces: Mutex::default(),
            accounts: Mutex::default(),
            contacts: Mutex::default(),
            orders: Mutex::default(),
            leads_to: Mutex::default(),
            life: Mutex::new(Duration::from_secs(90 * 86_400)),
            window: Mutex::default(),
            asked: AtomicUsize::new(0),
            numbers: AtomicUsize::new(0),
            is_gone: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if shared.is_gone.load(Ordering::Relaxed) {
                    return;
                }
                let (shared, tls) = (Arc::clone(&shared), Arc::clone(&tls));
                std::thread::spawn(move || serve(&shared, tls, stream));
            }
        });
        Ca { address, root, state }
    }
}

impl Ca {
    pub fn start(folder: &Path) -> Ca {
        Prepared::new(folder).at(([127, 0, 0, 1], 0).into())
    }

    /// The settings of a Larder that asks it.
    pub fn settings(&self) -> String {
        settings(&format!("{}/directory", self.state.base), &self.root)
    }

    pub fn is(&self, mood: Mood) {
        *self.state.mood.lock().unwrap() = mood;
    }

    /// All names lead to these listeners.
    pub fn leads_to(&self, plain: SocketAddr, tls: SocketAddr) {
        *self.state.leads_to.lock().unwrap() = Some((plain, tls));
    }

    pub fn issues_for(&self, life: Duration) {
        *self.state.life.lock().unwrap() = life;
    }

    pub fn suggests(&self, from: i64, to: i64) {
        *self.state.window.lock().unwrap() = Some((from, to));
    }

    /// Orders that were made.
    pub fn orders(&self) -> usize {
        self.state.orders.lock().unwrap().len()
    }

    /// Requests that were made.
    pub fn asked(&self) -> usize {
        self.state.asked.load(Ordering::Relaxed)
    }

    pub fn contacts(&self) -> Vec<Value> {
        self.state.contacts.lock().unwrap().clone()
    }

    /// It knows no account any more.
    pub fn forgets_accounts(&self) {
        self.state.accounts.lock().unwrap().iter_mut().for_each(Vec::clear);
    }
}

impl Drop for Ca {
    fn drop(&mut self) {
        self.state.is_gone.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

/// The settings of a Larder that asks the authority with this directory.
pub fn settings(directory: &str, root: &Path) -> String {
    format!(
        "[acme]\ndirectory = {directory:?}\nterms_agreed = true\ncontact = [\"ops@a.test\"]\n[upstream]\nextra_roots = [{root:?}]\n"
    )
}

fn tls_of(issuer: &Issuer<'static, KeyPair>) -> ServerConfig {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::DnsName("localhost".try_into().unwrap())];
    let certificate = params.signed_by(&key, issuer).unwrap().der().clone();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap()
}

fn serve(state: &State, tls: Arc<ServerConfig>, stream: TcpStream) -> Option<()> {
    let mut stream = BufReader::new(StreamOwned::new(ServerConnection::new(tls).ok()?, stream));
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        stream.read_line(&mut head).ok().filter(|&read| read > 0)?;
    }
    let mut words = head.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    state.asked.fetch_add(1, Ordering::Relaxed);
    let answer = state.answer(&method, &path, &body);
    let stream = stream.get_mut();
    if state.is_mood(Mood::Endless) && path == "/new-order" {
        let _ = stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n\r\n\"");
        // The client hangs up.
        while stream.write_all(&[b'x'; 4096]).is_ok() {}
        return None;
    }
    let nonce = state.number("nonce");
    state.nonces.lock().unwrap().insert(nonce.clone());
    let mut text = format!(
        "HTTP/1.1 {} X\r\nReplay-Nonce: {nonce}\r\nConnection: close\r\nContent-Length: {}\r\n",
        answer.status,
        answer.body.len()
    );
    answer.fields.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
    text += "\r\n";
    if method != "HEAD" {
        text += &answer.body;
    }
    stream.write_all(text.as_bytes()).ok()?;
    stream.conn.send_close_notify();
    stream.flush().ok()
}

struct Answer {
    status: u16,
    fields: Vec<(&'static str, String)>,
    body: String,
}

impl Answer {
    fn json(status: u16, value: &Value) -> Answer {
        Answer { status, fields: vec![("Content-Type", "application/json".to_owned())], body: value.to_string() }
    }

    fn problem(status: u16, kind: &str, detail: &str) -> Answer {
        Answer::json(status, &json!({ "type": format!("urn:ietf:params:acme:error:{kind}"), "detail": detail }))
    }

    fn with(mut self, name: &'static str, value: String) -> Answer {
        self.fields.push((name, value));
        self
    }
}

impl State {
    fn is_mood(&self, mood: Mood) -> bool {
        *self.mood.lock().unwrap() == mood
    }

    fn number(&self, kind: &str) -> String {
        format!("{kind}-{:x}", self.numbers.fetch_add(1, Ordering::Relaxed))
    }

    fn answer(&self, method: &str, path: &str, body: &[u8]) -> Answer {
        let base = &self.base;
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        match (method, parts.as_slice()) {
            ("GET", ["directory"]) => {
                return Answer::json(
                    200,
                    &json!({
                        "newNonce": format!("{base}/new-nonce"), "newAccount": format!("{base}/new-account"),
                        "newOrder": format!("{base}/new-order"), "renewalInfo": format!("{base}/renewal"),
                    }),
                );
            }
            ("HEAD", ["new-nonce"]) => return Answer { status: 200, fields: Vec::new(), body: String::new() },
            ("GET", ["renewal", _]) => return self.renewal(),
            _ => {}
        }
        let (account, payload) = match self.verified(path, body) {
            Ok(verified) => verified,
            Err(refusal) => return refusal,
        };
        let number = |at: usize| parts.get(at).and_then(|part| part.parse::<usize>().ok()).unwrap_or(usize::MAX);
        match parts.as_slice() {
            ["new-account"] => {
                self.contacts.lock().unwrap().push(payload["contact"].clone());
                assert_eq!(payload["termsOfServiceAgreed"], true);
                Answer::json(201, &json!({ "status": "valid" })).with("Location", format!("{base}/account/{account}"))
            }
            ["account", _] => {
                self.contacts.lock().unwrap().push(payload["contact"].clone());
                Answer::json(200, &json!({ "status": "valid" }))
            }
            ["new-order"] => self.new_order(&payload),
            ["order", _] => self.order(number(1), 200),
            ["proof", ..] => self.proof(number(1), number(2)),
            ["challenge", _, _, kind] => self.challenge(number(1), number(2), kind, account),
            ["finalize", _] => self.finalize(number(1), &payload),
            ["certificate", _] => {
                let chain = self.orders.lock().unwrap()[number(1)].chain.clone().unwrap();
                Answer {
                    status: 200,
                    fields: vec![("Content-Type", "application/pem-certificate-chain".to_owned())],
                    body: chain,
                }
            }
            _ => Answer::problem(404, "malformed", "there is no such resource"),
        }
    }

    /// The number of the account that has signed a message, and its payload (RFC 8555 section 6.2).
    fn verified(&self, path: &str, body: &[u8]) -> Result<(usize, Value), Answer> {
        let message: Value = serde_json::from_slice(body).unwrap();
        let text = |name: &str| message[name].as_str().unwrap().to_owned();
        let protected: Value = serde_json::from_slice(&base64url::decode(&text("protected"))).unwrap();
        assert_eq!(protected["url"], format!("{}{path}", self.base), "the URL is signed");
        assert_eq!(protected["alg"], "ES256");
        let (account, key) = match &protected["jwk"] {
            Value::Null => {
                let id = protected["kid"].as_str().unwrap().rsplit('/').next().unwrap().parse::<usize>().unwrap();
                let known = self.accounts.lock().unwrap().get(id).cloned().filter(|key| !key.is_empty());
                (id, known.ok_or_else(|| Answer::problem(400, "accountDoesNotExist", "there is no such account"))?)
            }
            jwk => {
                let part = |name: &str| base64url::decode(jwk[name].as_str().unwrap());
                let key = [vec![4], part("x"), part("y")].concat();
                let mut accounts = self.accounts.lock().unwrap();
                accounts.push(key.clone());
                (accounts.len() - 1, key)
            }
        };
        let signed = format!("{}.{}", text("protected"), text("payload"));
        let signature = base64url::decode(&text("signature"));
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &key)
            .verify(signed.as_bytes(), &signature)
            .expect("a signature");
        let is_known = self.nonces.lock().unwrap().remove(protected["nonce"].as_str().unwrap());
        let mut mood = self.mood.lock().unwrap();
        match *mood {
            _ if !is_known => return Err(Answer::problem(400, "badNonce", "this nonce is not known")),
            Mood::BadNonces(more) if more > 0 => {
                *mood = Mood::BadNonces(more - 1);
                return Err(Answer::problem(400, "badNonce", "this nonce is not liked"));
            }
            _ => {}
        }
        let payload = base64url::decode(&text("payload"));
        Ok((account, serde_json::from_slice(&payload).unwrap_or(Value::Null)))
    }

    fn new_order(&self, payload: &Value) -> Answer {
        let named = payload["identifiers"].as_array().unwrap().iter();
        let names: Vec<String> = named.map(|each| each["value"].as_str().unwrap().to_owned()).collect();
        let mood = *self.mood.lock().unwrap();
        let mut orders = self.orders.lock().unwrap();
        let evil = |token: String| if mood == Mood::EvilToken { format!("../../{token}") } else { token };
        let tokens = names.iter().map(|_| evil(self.number("token"))).collect();
        orders.push(Order { proofs: vec!["pending"; names.len()], names, tokens, chain: None });
        let number = orders.len() - 1;
        drop(orders);
        match mood {
            Mood::RateLimited(pause) => {
                let answer = Answer::problem(429, "rateLimited", "too many certificates of late");
                pause.into_iter().fold(answer, |answer, pause| answer.with("Retry-After", pause.to_string()))
            }
            Mood::Redirects => Answer::json(307, &Value::Null).with("Location", format!("{}/elsewhere", self.base)),
            Mood::NoJson => Answer { status: 201, fields: Vec::new(), body: "<html>\u{1b}[31m</html>".to_owned() },
            Mood::OtherJson => Answer::json(201, &json!({ "status": ["pending"], "authorizations": 7 })),
            Mood::ManyProofs => {
                let many: Vec<String> = (0..1_000).map(|at| format!("{}/proof/{number}/{at}", self.base)).collect();
                let order = json!({ "status": "pending", "authorizations": many, "finalize": "https://localhost/" });
                Answer::json(201, &order).with("Location", format!("{}/order/{number}", self.base))
            }
            _ => self.order(number, 201).with("Location", format!("{}/order/{number}", self.base)),
        }
    }

    fn order(&self, number: usize, status: u16) -> Answer {
        let (base, mood) = (&self.base, *self.mood.lock().unwrap());
        let orders = self.orders.lock().unwrap();
        let order = &orders[number];
        let word = match order {
            Order { chain: Some(_), .. } => "valid",
            Order { proofs, .. } if proofs.contains(&"invalid") => "invalid",
            Order { proofs, .. } if proofs.iter().all(|proof| *proof == "valid") => "ready",
            _ => "pending",
        };
        let proofs: Vec<String> = (0..order.names.len()).map(|at| format!("{base}/proof/{number}/{at}")).collect();
        let mut answer =
            json!({ "status": word, "authorizations": proofs, "finalize": format!("{base}/finalize/{number}") });
        if order.chain.is_some() {
            answer["certificate"] = format!("{base}/certificate/{number}").into();
        }
        let answer = Answer::json(status, &answer);
        if mood == Mood::Never { answer.with("Retry-After", u64::MAX.to_string()) } else { answer }
    }

    fn proof(&self, number: usize, at: usize) -> Answer {
        let (base, mood) = (&self.base, *self.mood.lock().unwrap());
        let orders = self.orders.lock().unwrap();
        let order = &orders[number];
        let name = if mood == Mood::OtherProof { "other.test" } else { &order.names[at] };
        let error = (order.proofs[at] == "invalid").then(
            || json!({ "type": "urn:ietf:params:acme:error:unauthorized", "detail": "the answer was wrong\u{1b}[31m" }),
        );
        let challenge = |kind: &str| {
            let mut challenge = json!({
                "type": kind, "url": format!("{base}/challenge/{number}/{at}/{kind}"), "status": order.proofs[at], "token": order.tokens[at],
            });
            if let Some(error) = &error {
                challenge["error"] = error.clone();
            }
            challenge
        };
        Answer::json(
            200,
            &json!({
                "identifier": { "type": "dns", "value": name }, "status": order.proofs[at],
                "challenges": [challenge("dns-01"), challenge("http-01"), challenge("tls-alpn-01")],
            }),
        )
    }

    fn challenge(&self, number: usize, at: usize, kind: &str, account: usize) -> Answer {
        let (name, token) = {
            let orders = self.orders.lock().unwrap();
            (orders[number].names[at].clone(), orders[number].tokens[at].clone())
        };
        let key = self.accounts.lock().unwrap()[account].clone();
        let (x, y) = (base64url::encode(&key[1..33]), base64url::encode(&key[33..]));
        let jwk = format!("{{\"crv\":\"P-256\",\"kty\":\"EC\",\"x\":\"{x}\",\"y\":\"{y}\"}}");
        let wanted = format!("{token}.{}", base64url::encode(digest(&SHA256, jwk.as_bytes()).as_ref()));
        let leads_to = (0..100).find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            *self.leads_to.lock().unwrap()
        });
        let is_right = match (leads_to, kind) {
            _ if self.is_mood(Mood::Invalid) => false,
            (Some((plain, _)), "http-01") => super::file_of(plain, &name, &token) == Some(wanted),
            (Some((_, tls)), "tls-alpn-01") => {
                super::proof_of(tls, &name) == Some(digest(&SHA256, wanted.as_bytes()).as_ref().to_vec())
            }
            _ => false,
        };
        self.orders.lock().unwrap()[number].proofs[at] = if is_right { "valid" } else { "invalid" };
        let answer = json!({ "type": kind, "url": format!("{}/challenge/{number}/{at}/{kind}", self.base), "status": "processing", "token": token });
        Answer::json(200, &answer)
    }

    fn finalize(&self, number: usize, payload: &Value) -> Answer {
        let request = CertificateSigningRequestDer::from(base64url::decode(payload["csr"].as_str().unwrap()));
        let mut request = CertificateSigningRequestParams::from_der(&request).unwrap();
        let name = |name: &SanType| match name {
            SanType::DnsName(name) => name.as_str().to_owned(),
            other => panic!("{other:?}"),
        };
        let names: Vec<String> = request.params.subject_alt_names.iter().map(name).collect();
        assert_eq!(names, self.orders.lock().unwrap()[number].names);
        if self.is_mood(Mood::OtherName) {
            request.params.subject_alt_names = vec![SanType::DnsName("other.test".try_into().unwrap())];
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        request.params.not_before = epoch + now;
        request.params.not_after = epoch + now + *self.life.lock().unwrap();
        if self.is_mood(Mood::Ended) {
            request.params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            request.params.not_after = rcgen::date_time_ymd(2020, 4, 1);
        }
        let chain = request.signed_by(&self.issuer).unwrap().pem() + &self.certificate;
        self.orders.lock().unwrap()[number].chain = Some(chain);
        self.order(number, 200)
    }

    fn renewal(&self) -> Answer {
        let Some((from, to)) = *self.window.lock().unwrap() else {
            return Answer::problem(404, "malformed", "nothing is known of it");
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
        let day = |at: i64| {
            let text = larder_wire::date::format_date(larder_wire::date::Stamp((now + at) as u64));
            let text = String::from_utf8(text.to_vec()).unwrap();
            let parts: Vec<&str> = text.split([' ', ',']).filter(|part| !part.is_empty()).collect();
            let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
            let month = months.iter().position(|month| *month == parts[2]).unwrap() + 1;
            format!("{}-{month:02}-{}T{}Z", parts[3], parts[1], parts[4])
        };
        let info = json!({ "suggestedWindow": { "start": day(from), "end": day(to) } });
        Answer::json(200, &info).with("Retry-After", "21600".to_owned())
    }
}
