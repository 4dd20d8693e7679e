//! Fetches the keys of issuers: a thread for each login that has them from a URL, which no request and no start waits for. Where a fetch
//! fails the keys that are there count on.

use super::issuer::{FETCH_EVERY, fetch};
use super::login::LoginState;
use crate::caught;
use crate::lists::download::Validators;
use larder_people::token::Keys;
use rustls::ClientConfig;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The first pause after a fetch that failed before there were any keys: all tokens are refused until then.
const FIRST_EVERY: Duration = Duration::from_secs(5);

/// Fetches the keys of a login for as long as it is in force. Keys that are there already, from before a reload, are fetched again all the same.
pub(super) fn begin(login: &Arc<LoginState>, tls: Arc<ClientConfig>, edition: Arc<AtomicU64>) -> std::io::Result<()> {
    let (weak, issuer, config) = (Arc::downgrade(login), Arc::clone(login.issuer()), Arc::clone(login.config()));
    let Some(url) = config.jwks.clone() else { return Ok(()) };
    let work = move || {
        let (mut pause, mut failures, mut validators) = (Duration::ZERO, 0u32, Validators::default());
        let mut usual = config.jwks_refresh;
        while issuer.next(pause) {
            let mut fetched = Err("a broken invariant was met".to_owned());
            caught::call(&AtomicU64::new(0), || fetched = fetch(&url, &validators, &tls));
            match fetched {
                Ok(new) => {
                    failures = 0;
                    validators = new.validators;
                    if new.keys.is_some() {
                        usual = new.fresh_for.unwrap_or(config.jwks_refresh);
                    }
                    pause = usual.clamp(FETCH_EVERY, config.jwks_refresh);
                    take(&weak, new.keys, &edition);
                }
                Err(trouble) => {
                    let least = if has_keys(&weak) { FETCH_EVERY } else { FIRST_EVERY };
                    pause = least.saturating_mul(1 << failures.min(10)).min(config.jwks_refresh);
                    failures = failures.saturating_add(1);
                    tracing::warn!("login {}: the keys at {url} can't be had: {trouble}", config.name);
                }
            }
            issuer.done();
        }
    };
    std::thread::Builder::new().name("issuer-keys".into()).spawn(work).map(drop)
}

/// Puts new keys in force, where the login still is.
fn take(login: &Weak<LoginState>, keys: Option<Keys>, edition: &AtomicU64) {
    if let (Some(login), Some(keys)) = (login.upgrade(), keys)
        && login.take_keys(keys)
    {
        edition.fetch_add(1, Ordering::Release);
    }
}

fn has_keys(login: &Weak<LoginState>) -> bool {
    login.upgrade().is_some_and(|login| login.keys().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Loaded;
    use crate::people::People;
    use crate::tls;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    /// An issuer whose keys are named by the number of the answer.
    fn issuer() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().flatten().enumerate() {
                let mut line = String::new();
                let mut lines = BufReader::new(&stream);
                while line != "\r\n" {
                    line.clear();
                    lines.read_line(&mut line).unwrap();
                }
                let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
                let keys = format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"{number}","x":"{x}"}}]}}"#);
                let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", keys.len());
                (&stream).write_all((head + &keys).as_bytes()).unwrap();
            }
        });
        format!("http://{address}/keys")
    }

    #[tokio::test]
    async fn a_missing_key_has_the_keys_fetched_once_the_last_fetch_is_a_minute_ago() {
        let url = issuer();
        let text = format!(
            "[[login]]\nname = \"a\"\nscheme = \"bearer\"\nissuer = \"i\"\naudience = \"b\"\njwks = \"{url}\"\n"
        );
        let loaded = Loaded::parse("test", &text, &[]).unwrap_or_else(|report| panic!("{report}"));
        let people = People::default();
        let roots = tls::Roots::none().into();
        people.fetch_with(tls::client_config(&roots).unwrap());
        people.have(people.prepare(&loaded.config).unwrap(), &loaded.config).unwrap();
        let login = people.login("a").unwrap();
        while login.keys().is_none() {
            login.issuer().fetch_again().await;
        }
        let (first, edition) = (login.keys().unwrap(), people.edition());
        assert!(!login.issuer().fetch_again().await, "the last fetch has just been");
        assert!(Arc::ptr_eq(&first, &login.keys().unwrap()));
        login.issuer().forget_last();
        assert!(login.issuer().fetch_again().await);
        assert!(*first != *login.keys().unwrap() && people.edition() > edition);
        people.stop();
    }
}
