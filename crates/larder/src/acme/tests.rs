//! The schedule over several certificates, without a thread and an authority.

use super::*;
use crate::config::Loaded;
use rcgen::{CertificateParams, KeyPair};

const DAY: u64 = 86_400;

fn config(folder: &Path, sites: &[&str]) -> Config {
    let mut text = format!(
        "store = {folder:?}\n[acme]\nterms_agreed = true\n[[listen]]\naddress = \"127.0.0.1:1\"\n\
         [[listen]]\naddress = \"127.0.0.1:2\"\nsite_certificates = true\n"
    );
    for host in sites {
        text += &format!("[[site]]\nhosts = [{host:?}]\norigin = \"http://127.0.0.1:9\"\ncertificate = \"acme\"\n");
    }
    Loaded::parse("test", &text, &[]).unwrap_or_else(|report| panic!("{report}")).config
}

/// A keeper without a thread.
fn work(folder: &Path, config: &Config) -> Work {
    let tls = crate::tls::client_config(&crate::tls::Roots::none().into()).unwrap();
    let work = Work::new(Arc::default(), tls, Box::new(|| {}), folder);
    work.have(config, config.acme_certificates());
    work
}

/// A certificate of ninety days that began so many days ago.
fn pem(name: &str, days_ago: u64) -> String {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let begins = clock::now().0 - days_ago * DAY;
    params.not_before = epoch + Duration::from_secs(begins);
    params.not_after = epoch + Duration::from_secs(begins + 90 * DAY);
    key.serialize_pem() + &params.self_signed(&key).unwrap().pem()
}

fn names(name: &str) -> Vec<Arc<str>> {
    vec![name.into()]
}

fn keep(folder: &Path, config: &Config, name: &str, days_ago: u64) -> Issued {
    let pem = pem(name, days_ago);
    let folder = Folder::of(&folder.join("acme"), &config.acme.directory);
    folder.keep_certificate(&names(name), &pem).unwrap();
    Issued::read(pem.as_bytes(), &names(name)).unwrap()
}

/// The turn in words.
fn turn(work: &Work, now: Stamp) -> String {
    match work.turn(now) {
        Turn::Wait(pause) => format!("wait {}", pause.as_secs()),
        Turn::Order(names, challenge) => format!("order {} by {}", names.join(","), challenge.as_str()),
        Turn::Ask(names, _) => format!("ask about {}", names.join(",")),
        Turn::End => "end".to_owned(),
    }
}

#[test]
fn missing_certificates_come_first_and_challenges_take_turns() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), &["late.test", "new.test", "young.test"]);
    keep(folder.path(), &config, "late.test", 80);
    keep(folder.path(), &config, "young.test", 10);
    let work = work(folder.path(), &config);
    let now = clock::now();
    assert!(work.certificates.find(Some("young.test")).is_some() && work.certificates.find(Some("new.test")).is_none());
    assert_eq!(turn(&work, now), "order new.test by http-01");
    let authority = work.begin(&names("new.test")).unwrap();
    assert_eq!(turn(&work, now), "order late.test by http-01");
    let refused = Trouble { text: "no".to_owned(), kind: TroubleKind::Refused };
    work.done(&names("new.test"), &authority.folder, Err(refused.clone()));
    assert_eq!(turn(&work, now.plus(90)), "order new.test by tls-alpn-01");
    let authority = work.begin(&names("late.test")).unwrap();
    work.done(&names("late.test"), &authority.folder, Err(Trouble { kind: TroubleKind::Limited(None), ..refused }));
    // The one that has failed, and the one that the authority has no time for, wait; so the next work is one in an hour, at most ten minutes away.
    assert!(turn(&work, now).starts_with("wait "), "{}", turn(&work, now));
    assert_eq!(turn(&work, now.plus(90)), "order new.test by tls-alpn-01");
    assert_eq!((work.counts.failed.load(Ordering::Relaxed), work.counts.limited.load(Ordering::Relaxed)), (1, 1));
}

#[test]
fn a_restart_knows_of_failures_and_success_forgets_them() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), &["a.test"]);
    let first = work(folder.path(), &config);
    assert_eq!(turn(&first, clock::now()), "order a.test by http-01");
    first.begin(&names("a.test")).unwrap();
    // Killed here.
    let second = work(folder.path(), &config);
    assert!(turn(&second, clock::now()).starts_with("wait "), "{}", turn(&second, clock::now()));
    let later = clock::now().plus(80);
    assert_eq!(turn(&second, later), "order a.test by tls-alpn-01");
    let authority = second.begin(&names("a.test")).unwrap();
    let issued = keep(folder.path(), &config, "a.test", 0);
    second.done(&names("a.test"), &authority.folder, Ok(issued));
    assert_eq!(authority.folder.failures(&names("a.test")), Failures::default());
    assert!(second.certificates.find(Some("a.test")).is_some());
    assert_eq!(turn(&second, clock::now()), "wait 600");
}

#[test]
fn the_word_of_the_authority_brings_a_renewal_forward_and_never_puts_it_off() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), &["a.test"]);
    let issued = keep(folder.path(), &config, "a.test", 10);
    let work = work(folder.path(), &config);
    let now = clock::now();
    let authority = work.authority().unwrap();
    let heard = |issued: &_, said| work.heard(&names("a.test"), &authority.folder, issued, said);
    let due = || work.plan.lock().kept[0].due.since(now) / DAY;
    assert!((46..=50).contains(&due()), "{}", due());
    assert_eq!(turn(&work, now.plus(DAY / 2)), "ask about a.test");
    let at = |days: u64| i64::try_from(now.0 + days * DAY).unwrap();
    heard(&issued, Some(((at(20), at(21)), Duration::ZERO)));
    assert!((20..=21).contains(&due()), "{}", due());
    heard(&issued, Some(((at(300), at(400)), Duration::ZERO)));
    assert!((49..=50).contains(&due()), "{}", due());
    heard(&issued, None);
    assert!(turn(&work, now).starts_with("wait "));
    heard(&issued, Some(((0, 1), Duration::ZERO)));
    assert_eq!(turn(&work, now), "order a.test by http-01");
}

#[test]
fn another_authority_orders_anew_and_shows_the_old_certificate_until_then() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), &["a.test"]);
    keep(folder.path(), &config, "a.test", 10);
    let work = work(folder.path(), &config);
    let authority = work.authority().unwrap();
    config.acme.directory = larder_wire::Url::parse("https://ca.test/directory").unwrap();
    work.have(&config, config.acme_certificates());
    assert!(work.certificates.find(Some("a.test")).is_some());
    assert_eq!(turn(&work, clock::now()), "order a.test by http-01");
    // An order at the old one that ends now changes nothing.
    work.done(&names("a.test"), &authority.folder, Err(Trouble { text: "no".to_owned(), kind: TroubleKind::Refused }));
    assert_eq!(turn(&work, clock::now()), "order a.test by http-01");
    work.have(&config, Vec::new());
    assert!(work.certificates.find(Some("a.test")).is_none());
}
