//! Signals that `larder run` gets are the child's. In a file of its own, for they reach the whole process.

use larder::clock;
use larder::config::Config;
use larder::run::control::{RunStarted, RunStats};
use larder::run::{Command, Own, run};
use larder::tls::bundle;
use larder::tls::ca::Authority;

#[test]
fn term_and_hup_reach_the_child() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::open(&folder.path().join("ca"), clock::now()).unwrap();
    let ca_bundle = folder.path().join("bundle.pem");
    bundle::write(&ca_bundle, [authority.certificate().clone()], []).unwrap();
    for (signal, status) in [("TERM", 71), ("HUP", 72)] {
        let wait = "n=0; while [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done; exit 1";
        let script = format!("trap 'exit 71' TERM; trap 'exit 72' HUP; kill -{signal} $PPID; {wait}");
        let command = Command {
            words: ["sh", "-c", &script].map(Into::into).into(),
            quiet: true,
            json: None,
            network: Default::default(),
            mirrored: None,
        };
        let config = Config { store: Some(folder.path().to_owned()), ..Config::default() };
        let started = RunStarted {
            id: "r".to_owned(),
            proxy: "127.0.0.1:1".parse().unwrap(),
            ca_bundle: Some(ca_bundle.clone()),
        };
        let start = |_| Ok(Own { started, keeps: true, finish: Box::new(RunStats::default) });
        assert_eq!(run(&command, config, start).unwrap(), status, "{signal}");
    }
}
