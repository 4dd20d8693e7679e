//! Authorities that are away, have had enough, or misbehave, and configurations by which no certificate can be had.

use super::ca::{Ca, Mood, Prepared, settings};
use super::{ANY, ask, free, names_of, shown, text};
use crate::seen::reload::Steered;
use crate::seen::stand;
use larder::acme::CertificateState;
use larder::clock;
use larder::config::Loaded;
use larder::server::Server;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;

fn state(server: &Server) -> CertificateState {
    server.shared().acme.states().remove(0)
}

/// A server whose first order has failed.
fn failed(folder: &Path, ca: &Ca) -> (Steered, (SocketAddr, SocketAddr)) {
    let text = text(folder, &ca.settings(), (ANY, ANY), stand::origin(), &[&["a.test"]]);
    let steered = Steered::start(folder, &text);
    let (plain, tls) = (steered.server.addresses()[0], steered.server.addresses()[1]);
    ca.leads_to(plain, tls);
    stand::wait_for("a failed order", || state(&steered.server).trouble.is_some());
    (steered, (plain, tls))
}

#[test]
fn answers_that_are_not_usable_are_told_and_harm_nobody() {
    for (mood, words) in [
        (Mood::Invalid, "could not validate a.test by http-01: the answer was wrong"),
        (Mood::Endless, "longer than 262144 bytes"),
        (Mood::Redirects, "localhost redirects"),
        (Mood::NoJson, "an answer of the authority is not usable"),
        (Mood::OtherJson, "an answer of the authority is not usable"),
        (Mood::OtherName, "the certificate is not for a.test"),
        (Mood::Ended, "has ended already"),
        (Mood::OtherProof, "a proof for other.test"),
        (Mood::ManyProofs, "more proofs than there are names"),
        (Mood::EvilToken, "a challenge of the authority is not usable"),
        (Mood::BadNonces(100), "badNonce"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let ca = Ca::start(folder.path());
        ca.is(mood);
        let (steered, (plain, tls)) = failed(folder.path(), &ca);
        let state = state(&steered.server);
        let trouble = state.trouble.unwrap();
        assert!(trouble.contains(words), "{mood:?}: {trouble}");
        assert!(!trouble.contains('\u{1b}'), "{mood:?}: {trouble:?}");
        let pause = state.due.since(clock::now());
        assert!((50..=80).contains(&pause), "{mood:?}: {pause}");
        assert!(state.served.is_none() && shown(tls, "a.test").is_err(), "{mood:?}");
        assert!(
            stand::exchange(plain, "GET /fresh HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n").contains("200")
        );
        assert_eq!(steered.server.shared().acme.restarts(), 0, "{mood:?}");
    }
}

#[test]
fn moments_beyond_all_clocks_do_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Ca::start(folder.path());
    ca.is(Mood::Never);
    let text = text(folder.path(), &ca.settings(), (ANY, ANY), stand::origin(), &[&["a.test"]]);
    let steered = Steered::start(folder.path(), &text);
    let (plain, tls) = (steered.server.addresses()[0], steered.server.addresses()[1]);
    ca.leads_to(plain, tls);
    stand::wait_for("a certificate", || shown(tls, "a.test").is_ok());
    assert_eq!(steered.server.shared().acme.restarts(), 0);
    assert!(state(&steered.server).trouble.is_none());
}

#[test]
fn a_few_bad_nonces_are_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Ca::start(folder.path());
    ca.is(Mood::BadNonces(2));
    let text = text(folder.path(), &ca.settings(), (ANY, ANY), stand::origin(), &[&["a.test"]]);
    let steered = Steered::start(folder.path(), &text);
    let (plain, tls) = (steered.server.addresses()[0], steered.server.addresses()[1]);
    ca.leads_to(plain, tls);
    stand::wait_for("a certificate", || shown(tls, "a.test").is_ok());
    assert_eq!(steered.server.shared().acme.counts().failed.load(Ordering::Relaxed), 0);
}

#[test]
fn an_authority_that_has_had_enough_is_left_alone_after_a_restart_too() {
    for (says, least) in [(Some(7_200), 7_200), (None, 3_600), (Some(u64::MAX), 6 * 86_400)] {
        let folder = tempfile::tempdir().unwrap();
        let ca = Ca::start(folder.path());
        ca.is(Mood::RateLimited(says));
        let (steered, _) = failed(folder.path(), &ca);
        let pause = state(&steered.server).due.since(clock::now());
        assert!((least - 60..=least + 86_400).contains(&pause), "{says:?}: {pause}");
        let counts = steered.server.shared().acme.counts();
        assert_eq!((counts.limited.load(Ordering::Relaxed), counts.failed.load(Ordering::Relaxed)), (1, 0));
        let asked = ca.asked();
        steered.server.stop();
        let text = text(folder.path(), &ca.settings(), (ANY, ANY), stand::origin(), &[&["a.test"]]);
        let again = Steered::start(folder.path(), &text);
        assert!(state(&again.server).due.since(clock::now()) >= least - 60);
        // A reload is no reason to ask either.
        again.reload(&text).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert_eq!(ca.asked(), asked, "{says:?}");
    }
}

#[test]
fn a_start_waits_for_no_authority_and_a_reload_asks_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let (place, ports) = (free().0, free());
    let prepared = Prepared::new(folder.path());
    let acme = settings(&format!("https://localhost:{}/directory", place.port()), &prepared.root);
    let text = text(folder.path(), &acme, ports, stand::origin(), &[&["a.test"]]);
    let steered = Steered::start(folder.path(), &text);
    let (plain, tls) = ports;
    assert!(stand::exchange(plain, "GET /fresh HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n").contains("200"));
    stand::wait_for("a failed order", || state(&steered.server).trouble.is_some());
    let trouble = state(&steered.server).trouble.unwrap();
    assert!(trouble.contains("cannot connect"), "{trouble}");
    assert!(shown(tls, "a.test").is_err(), "no certificate is made up");
    let ca = prepared.at(place);
    ca.leads_to(plain, tls);
    steered.reload(&text).unwrap();
    stand::wait_for("a certificate", || shown(tls, "a.test").is_ok());
    assert_eq!(names_of(&shown(tls, "a.test").unwrap()), ["a.test"]);
    assert!(ask(tls, "a.test").unwrap().starts_with("HTTP/1.1 200"));
}

#[test]
fn what_the_authority_suggests_is_no_reason_to_ask_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Ca::start(folder.path());
    ca.suggests(-100, -50);
    let text = text(folder.path(), &ca.settings(), (ANY, ANY), stand::origin(), &[&["a.test"]]);
    let steered = Steered::start(folder.path(), &text);
    ca.leads_to(steered.server.addresses()[0], steered.server.addresses()[1]);
    stand::wait_for("a certificate", || state(&steered.server).served.is_some());
    let state = state(&steered.server);
    let days = state.due.since(clock::now()) / 86_400;
    assert!((56..=60).contains(&days), "{days}");
}

#[test]
fn a_renewal_comes_forward_where_the_authority_suggests_it() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Ca::start(folder.path());
    // It would be renewed after 24 seconds, and its authority is asked after three to six.
    ca.issues_for(std::time::Duration::from_secs(36));
    ca.suggests(-100, -50);
    let text = text(folder.path(), &ca.settings(), (ANY, ANY), stand::origin(), &[&["a.test"]]);
    let steered = Steered::start(folder.path(), &text);
    let tls = steered.server.addresses()[1];
    ca.leads_to(steered.server.addresses()[0], tls);
    stand::wait_for("a certificate", || shown(tls, "a.test").is_ok());
    let first = shown(tls, "a.test").unwrap();
    stand::wait_for("a renewal", || shown(tls, "a.test").unwrap() != first);
}

#[test]
fn a_configuration_by_which_none_can_be_had_is_refused_with_the_remedy() {
    let listen =
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[[listen]]\naddress = \"127.0.0.1:1\"\nsite_certificates = true\n";
    let site =
        |hosts: &str| format!("[[site]]\nhosts = [{hosts}]\norigin = \"http://127.0.0.1:9\"\ncertificate = \"acme\"\n");
    let agreed = "[acme]\nterms_agreed = true\n";
    let many: Vec<String> = (0..101).map(|number| format!("\"{number}.test\"")).collect();
    for (text, words) in [
        (format!("{listen}{}", site("\"a.test\"")), vec!["agreement to the terms", "terms_agreed = true"]),
        (format!("{listen}{agreed}{}", site("\"*.a.test\"")), vec!["not for *.a.test", "name each host"]),
        (format!("{listen}{agreed}{}", site("\".a.test\"")), vec!["wildcard"]),
        (format!("{listen}{agreed}{}", site("\"*\"")), vec!["not for *"]),
        (format!("{listen}{agreed}{}", site("\"127.0.0.2\"")), vec!["127.0.0.2 is an address", "tls = "]),
        (format!("{listen}{agreed}{}", site(&many.join(","))), vec!["at most 100 names"]),
        (
            format!("[[listen]]\naddress = \"127.0.0.1:0\"\n{agreed}{}", site("\"a.test\"")),
            vec!["site_certificates = true"],
        ),
        (
            format!(
                "[[listen]]\naddress = \"127.0.0.1:1\"\nsite_certificates = true\n{agreed}challenge = \"http-01\"\n{}",
                site("\"a.test\"")
            ),
            vec!["http-01 needs a listener in clear text", "0.0.0.0:80"],
        ),
        (format!("{listen}[acme]\ndirectory = \"http://ca.test/\"\n"), vec!["a URL with https"]),
        (format!("{listen}[acme]\ncontact = [\"nobody\"]\n"), vec!["nobody"]),
    ] {
        let report = Loaded::parse("test.toml", &text, &[]).unwrap_err().to_string();
        words.iter().for_each(|word| assert!(report.contains(word), "{word} in {report}"));
    }
    let right = format!("{listen}{agreed}{}", site("\"a.test\", \"b.test\""));
    let loaded = Loaded::parse("test.toml", &right, &[]).unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(loaded.config.acme.directory_text(), "letsencrypt");
    let dumped = larder::config::manual::dump(&loaded);
    let again = Loaded::parse("dump.toml", &dumped, &[]).unwrap_or_else(|report| panic!("{report}"));
    let parts =
        |loaded: &Loaded| (loaded.config.acme.clone(), loaded.config.sites.clone(), loaded.config.listens.clone());
    assert_eq!(parts(&again), parts(&loaded));
}

#[test]
fn check_says_which_certificates_are_missing() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Ca::start(folder.path());
    let text = text(folder.path(), &ca.settings(), (ANY, ANY), stand::origin(), &[&["a.test"]]);
    let check = || {
        std::fs::write(folder.path().join("larder.toml"), &text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        let output = command.args(["check"]).current_dir(folder.path()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    assert!(check().contains("there is no certificate for a.test yet"), "{}", check());
    let steered = Steered::start(folder.path(), &text);
    ca.leads_to(steered.server.addresses()[0], steered.server.addresses()[1]);
    stand::wait_for("a certificate", || state(&steered.server).served.is_some());
    assert!(!check().contains("certificate"), "{}", check());
}
