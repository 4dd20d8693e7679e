//! Keys of an issuer at a URL: fetched beside the start, again for a key that is not known, and kept where that fails.

use super::reload::{Steered, base};
use super::stand;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use larder::config::Loaded;
use serde_json::{Value, json};
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

fn base64url(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..=three.len() {
            text.push(char::from(LETTERS[(bits >> (18 - 6 * place) & 63) as usize]));
        }
    }
    text
}

struct Key {
    name: &'static str,
    pair: Ed25519KeyPair,
}

impl Key {
    fn new(name: &'static str) -> Key {
        Key { name, pair: Ed25519KeyPair::generate().unwrap() }
    }

    fn public(&self) -> Value {
        json!({"kty": "OKP", "crv": "Ed25519", "kid": self.name, "x": base64url(self.pair.public_key().as_ref())})
    }

    fn token(&self, user: &str) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let header = json!({"alg": "EdDSA", "kid": self.name});
        let claims = json!({"iss": "https://id.test", "aud": "cache", "sub": user, "exp": now + 600});
        let text = format!("{}.{}", base64url(header.to_string().as_bytes()), base64url(claims.to_string().as_bytes()));
        let signature = base64url(self.pair.sign(text.as_bytes()).as_ref());
        format!("{text}.{signature}")
    }
}

/// An issuer that gives what it is told to, counts, and may be down.
#[derive(Default)]
struct Issuer {
    keys: Mutex<String>,
    is_down: AtomicBool,
    asked: AtomicU64,
}

impl Issuer {
    fn start(keys: &[&Key]) -> (Arc<Issuer>, SocketAddr) {
        let issuer = Arc::new(Issuer::default());
        issuer.give(keys);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serving = Arc::clone(&issuer);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = stand::read_request(&mut BufReader::new(&stream));
                serving.asked.fetch_add(1, Ordering::SeqCst);
                let keys = serving.keys.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let status = if serving.is_down.load(Ordering::SeqCst) { "500 No" } else { "200 OK" };
                let length = keys.len();
                let head = format!(
                    "HTTP/1.1 {status}\r\nCache-Control: max-age=1\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
                );
                let _ = (&stream).write_all((head + &keys).as_bytes());
            }
        });
        (issuer, address)
    }

    fn give(&self, keys: &[&Key]) {
        let keys: Vec<Value> = keys.iter().map(|key| key.public()).collect();
        *self.keys.lock().unwrap() = json!({ "keys": keys }).to_string();
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }
}

fn login(issuer: SocketAddr) -> String {
    format!(
        "[[login]]\nname = \"tokens\"\nscheme = \"bearer\"\nissuer = \"https://id.test\"\naudience = \"cache\"\n\
         jwks = \"http://{issuer}/keys\"\nfailures = 100\n[access]\nlogin = \"tokens\"\n"
    )
}

fn ask(proxy: SocketAddr, origin: SocketAddr, token: &str) -> String {
    let fields = format!("Proxy-Authorization: Bearer {token}\r\nConnection: close\r\n");
    let answer =
        stand::exchange(proxy, &format!("GET http://{origin}/fresh HTTP/1.1\r\nHost: {origin}\r\n{fields}\r\n"));
    answer.get(9..12).unwrap_or(&answer).to_owned()
}

#[test]
fn a_new_key_is_fetched_when_it_is_named_and_at_most_once_a_minute() {
    let (first, second, third) = (Key::new("1"), Key::new("2"), Key::new("3"));
    let (issuer, address) = Issuer::start(&[&first]);
    let (folder, origin) = (tempfile::tempdir().unwrap(), stand::origin());
    let server = stand::server(folder.path(), &login(address));
    let proxy = server.addresses()[0];
    // The first token may come before the keys: it waits for them.
    assert_eq!(ask(proxy, origin, &first.token("ada")), "200");
    assert_eq!(issuer.asked(), 1);
    // A fetch has just been: the next one is a minute away, and nobody waits for it.
    issuer.give(&[&first, &second]);
    for _ in 0..5 {
        assert_eq!(ask(proxy, origin, &second.token("ada")), "407");
    }
    assert_eq!(ask(proxy, origin, &third.token("ada")), "407");
    assert_eq!((ask(proxy, origin, &first.token("bob")), issuer.asked()), ("200".to_owned(), 1));
    server.stop();
}

#[test]
fn a_start_does_not_wait_for_an_issuer_that_is_down_and_a_reload_keeps_its_keys() {
    let key = Key::new("1");
    let (issuer, address) = Issuer::start(&[&key]);
    issuer.is_down.store(true, Ordering::SeqCst);
    let (folder, origin) = (tempfile::tempdir().unwrap(), stand::origin());
    let listen = "[[listen]]\naddress = \"127.0.0.1:0\"\n";
    let text = format!("{}{listen}{}", base(folder.path()), login(address));
    let steered = Steered::start(folder.path(), &text);
    let proxy = steered.server.addresses()[0];
    let ask = || ask(proxy, origin, &key.token("ada"));
    stand::wait_for("the first fetch", || issuer.asked() == 1);
    assert_eq!(ask(), "503");
    issuer.is_down.store(false, Ordering::SeqCst);
    // Each new login fetches at once.
    steered.reload(&text).unwrap();
    stand::wait_for("the keys come", || ask() == "200");
    issuer.is_down.store(true, Ordering::SeqCst);
    let asked = issuer.asked();
    steered.reload(&text).unwrap();
    assert_eq!(ask(), "200");
    stand::wait_for("the fetch after the reload fails", || issuer.asked() > asked);
    assert_eq!(ask(), "200");
    // Another URL is another issuer.
    let (_other, elsewhere) = Issuer::start(&[&Key::new("1")]);
    steered.reload(&text.replace(&address.to_string(), &elsewhere.to_string())).unwrap();
    stand::wait_for("the keys of the other one", || ask() == "407");
    steered.server.stop();
}

#[test]
fn urls_that_are_not_protected_are_refused() {
    for (line, wanted) in [
        ("jwks = \"http://id.example/keys\"", "is not"),
        ("jwks = \"ftp://id.example/keys\"", "is not"),
        ("jwks = \"https://id.example/keys\"\nfile = \"/keys\"", "either `file` or `jwks`"),
        ("", "either `file` or `jwks`"),
    ] {
        let text = format!(
            "[[login]]\nname = \"a\"\nscheme = \"bearer\"\nissuer = \"i\"\naudience = \"b\"\n{line}\n[access]\nlogin = \"a\"\n"
        );
        let report = Loaded::parse("larder.toml", &text, &[]).unwrap_err().to_string();
        assert!(report.contains(wanted), "{line}: {report}");
    }
    let text = "[[login]]\nname = \"a\"\nscheme = \"basic\"\nfile = \"/users\"\njwks = \"https://id.example/keys\"\n";
    let report = Loaded::parse("larder.toml", text, &[]).unwrap_err().to_string();
    assert!(report.contains("`jwks` is for a login of bearer"), "{report}");
}
