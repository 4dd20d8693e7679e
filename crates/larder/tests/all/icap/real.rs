//! c-icap, where it is installed: its echo service, and ClamAV behind its virus scanner, with a list of signatures that has one
//! line: that of the EICAR test file.

use super::{Stage, body_of};
use crate::seen::stand::{self, program, wait_for};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const MODULES: &str = "/usr/lib/x86_64-linux-gnu/c_icap";

/// The digest, the length and the name of the test file, as ClamAV's lists have them.
const SIGNATURE: &str = "44d88612fea8a8f36de82e1278abb02f:68:Eicar-Test-Signature\n";

struct Real {
    port: u16,
    children: Vec<Child>,
    folder: TempDir,
}

impl Drop for Real {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Real {
    /// c-icap with its echo; with `clamd`, with a scanner too. `None` where that is not installed.
    fn start(clamd: bool) -> Option<Real> {
        program("c-icap")?;
        if clamd && (!Path::new(MODULES).join("virus_scan.so").exists() || program("clamd").is_none()) {
            println!("skipped: clamav-daemon and libc-icap-mod-virus-scan are not installed");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let here = folder.path().display();
        let mut conf = format!(
            "PidFile {here}/c-icap.pid\nCommandsSocket {here}/c-icap.ctl\nTimeout 30\nMaxKeepAliveRequests 1000\nKeepAliveTimeout 600\n\
             StartServers 1\nMaxServers 2\nMinSpareThreads 10\nMaxSpareThreads 20\nThreadsPerChild 20\nPort 127.0.0.1:{port}\n\
             TmpDir {here}\nModulesDir {MODULES}\nServicesDir {MODULES}\nTemplateDir /usr/share/c_icap/templates/\n\
             LoadMagicFile /etc/c-icap/c-icap.magic\nServerLog {here}/server.log\nAccessLog {here}/access.log\nService echo srv_echo.so\n"
        );
        let mut children = Vec::new();
        if clamd {
            fs::create_dir(folder.path().join("db")).unwrap();
            fs::write(folder.path().join("db/eicar.hdb"), SIGNATURE).unwrap();
            let text = format!(
                "LocalSocket {here}/clamd.ctl\nDatabaseDirectory {here}/db\nForeground yes\nLogFile {here}/clamd.log\n"
            );
            fs::write(folder.path().join("clamd.conf"), text).unwrap();
            children.push(run("clamd", &["-c", "clamd.conf"], folder.path()));
            let socket = folder.path().join("clamd.ctl");
            wait_for("clamd", || socket.exists());
            conf += &format!(
                "Service avscan virus_scan.so\nvirus_scan.ScanFileTypes TEXT DATA EXECUTABLE ARCHIVE\nvirus_scan.SendPercentData 0\n\
                 virus_scan.MaxObjectSize 5M\nvirus_scan.DefaultEngine clamd\nModule common clamd_mod.so\nclamd_mod.ClamdSocket {here}/clamd.ctl\n"
            );
        }
        fs::write(folder.path().join("c-icap.conf"), conf).unwrap();
        let conf = folder.path().join("c-icap.conf").display().to_string();
        children.push(run("c-icap", &["-N", "-f", &conf], folder.path()));
        let real = Real { port, children, folder };
        wait_for("c-icap", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(real)
    }

    fn url(&self, service: &str) -> String {
        format!("icap://127.0.0.1:{}/{service}", self.port)
    }
}

fn run(program: &str, args: &[&str], folder: &Path) -> Child {
    let mut command = Command::new(program);
    command.args(args).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

#[test]
fn c_icap_gives_all_back() {
    let Some(real) = Real::start(false) else { return };
    for preview in ["auto", "none", "0", "100"] {
        for stage in ["respmod-store", "respmod-send", "reqmod"] {
            let icap = format!("stage = \"{stage}\"\npreview = \"{preview}\"\n");
            let at = Stage::with(&[(&real.url("echo"), &icap)], "");
            for path in ["/0", "/1", "/100", "/101", "/1024", "/1025", "/1000000", "/chunked-300000"] {
                let bytes = path.trim_start_matches(|letter: char| !letter.is_ascii_digit()).parse().unwrap();
                for _ in 0..2 {
                    let answer = at.get(path);
                    assert_eq!(answer.status, 200, "{stage} {preview} {path}: {}", answer.body);
                    assert!(answer.body == body_of(bytes), "{stage} {preview} {path}: {}", answer.head);
                }
            }
            let body = body_of(300_000);
            let answer = at.ask("POST", "/20", "", &body);
            assert_eq!(answer.status, 200, "{stage} {preview}: {}", answer.body);
            assert!(stand::body(&at.origin.last()) == body, "{stage} {preview}");
            assert_eq!(at.counted("failed"), 0, "{stage} {preview}");
        }
    }
}

#[test]
fn a_virus_is_stopped_by_clamav_behind_c_icap() {
    let Some(real) = Real::start(true) else { return };
    for stage in ["respmod-store", "respmod-send"] {
        let at = Stage::with(&[(&real.url("avscan"), &format!("stage = \"{stage}\"\n"))], "");
        for _ in 0..2 {
            let answer = at.get("/eicar");
            assert!(!answer.body.contains("STANDARD-ANTIVIRUS"), "{stage}: {}\n{}", answer.head, answer.body);
            assert!(
                answer.status == 403 && answer.body.contains("Eicar-Test-Signature"),
                "{stage}: {}\n{}",
                answer.head,
                answer.body
            );
        }
        let clean = at.get("/50000");
        assert_eq!((clean.status, clean.body), (200, body_of(50_000)), "{stage}");
        assert!(at.get("/50000").is_hit());
        assert_eq!(at.counted("failed"), 0, "{stage}: {:?}", real.folder.path());
    }
    let at = Stage::with(&[(&real.url("avscan"), "stage = \"reqmod\"\n")], "");
    let refused = at.ask("POST", "/20", "", &super::eicar());
    assert_eq!((refused.status, at.origin.asked()), (403, 0), "{}", refused.body);
    assert_eq!(at.ask("POST", "/20", "", "nothing bad").status, 200);
}
