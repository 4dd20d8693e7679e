//! A Larder as a process: the file in its folder, its signals, its end.

use crate::stand;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

struct Running {
    child: Child,
    said: String,
    proxy: std::net::SocketAddr,
}

impl Running {
    /// In a folder, so that its `larder.toml` is found.
    fn start(folder: &Path) -> Running {
        let mut child = Command::new(env!("CARGO_BIN_EXE_larder"))
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        let words = said.strip_prefix("larder listens on ").unwrap_or_else(|| panic!("{said}"));
        let proxy = words.split([',', ';']).next().unwrap().trim().parse().unwrap();
        Running { child, said, proxy }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    fn end(mut self) -> String {
        self.signal("TERM");
        assert!(self.child.wait().unwrap().success());
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }
}

#[test]
fn a_larder_that_runs_is_steered_by_signals_and_by_command() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("larder.toml");
    let text = |idle: u32| {
        format!(
            "store = \"{}\"\nadmin = \"none\"\nmemory = \"16MB\"\ndisk = 0\n[log]\nto = \"access.log\"\n[timeouts]\nidle = \"{idle}s\"\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\n",
            folder.path().join("store").display()
        )
    };
    // Whole or not at all: the server may read at any moment after a signal.
    let put = |text: &str| {
        let new = folder.path().join("new.toml");
        fs::write(&new, text).unwrap();
        fs::rename(&new, &file).unwrap();
    };
    put(&text(50));
    let running = Running::start(folder.path());
    assert!(running.said.contains("configured by ./larder.toml"), "{}", running.said);

    let (log, moved) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let origin = stand::origin();
    stand::get(running.proxy, &format!("http://{origin}/fresh"));
    stand::wait_for("a line", || fs::read_to_string(&log).unwrap_or_default().contains("/fresh"));
    fs::rename(&log, &moved).unwrap();
    running.signal("USR1");
    stand::wait_for("the log is opened anew", || log.exists());

    let reload = || {
        let output =
            Command::new(env!("CARGO_BIN_EXE_larder")).arg("reload").current_dir(folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code().unwrap(), said)
    };
    put(&text(40));
    assert_eq!(reload(), (0, "reloaded: changed timeouts.idle\n".to_owned()));
    put(&text(40).replace("16MB", "32MB"));
    assert!(reload().1.contains("waits for a restart: memory"));
    put("nonsense = 1");
    let (status, said) = reload();
    assert!(status == 2 && said.contains("there is no setting nonsense"), "{said}");
    running.signal("HUP");
    put(&text(30));
    running.signal("HUP");
    stand::wait_for("it still serves", || {
        stand::get(running.proxy, &format!("http://{origin}/fresh")).contains("; hit")
    });
    let said = running.end();
    assert!(said.contains("larder: letting requests end"), "{said}");
    let last = fs::read_to_string(&log).unwrap();
    assert!(last.contains(" hit "), "the last lines are written before the end: {last}");
}
