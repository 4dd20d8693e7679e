//! c-icap with its echo service, as the package has them: a service that changes nothing.

use crate::lab::{self, Lab};
use crate::shell::{self, Trouble};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const MODULES: &str = "/usr/lib/x86_64-linux-gnu/c_icap";

/// The longest that a port is waited for.
const AGAIN_WITHIN: Duration = Duration::from_secs(90);

/// Whether it is installed.
pub fn is_installed() -> bool {
    shell::find_program("c-icap").is_some() && Path::new(MODULES).join("srv_echo.so").exists()
}

/// One that runs.
#[derive(Clone, Copy, Debug)]
pub struct Echo {
    /// Where it listens on 127.0.0.1.
    pub port: u16,
    /// Its first process.
    pub id: u32,
}

impl Echo {
    /// Starts it on a free port.
    pub fn start(lab: &mut Lab) -> Result<Echo, Trouble> {
        Echo::start_at(lab, lab::free_port()?)
    }

    fn start_at(lab: &mut Lab, port: u16) -> Result<Echo, Trouble> {
        let here = lab.path().display().to_string();
        let conf = format!(
            "PidFile {here}/c-icap.pid\nCommandsSocket {here}/c-icap.ctl\nTimeout 30\nMaxKeepAliveRequests 100000\nKeepAliveTimeout 600\n\
             StartServers 1\nMaxServers 2\nMinSpareThreads 10\nMaxSpareThreads 40\nThreadsPerChild 40\nPort 127.0.0.1:{port}\n\
             TmpDir {here}\nModulesDir {MODULES}\nServicesDir {MODULES}\nTemplateDir /usr/share/c_icap/templates/\n\
             LoadMagicFile /etc/c-icap/c-icap.magic\nServerLog {here}/icap-server.log\nAccessLog {here}/icap-access.log\nService echo srv_echo.so\n"
        );
        let conf = lab.write("c-icap.conf", conf)?;
        let log = lab.path().join("icap-server.log");
        let id = lab.start("c-icap", Command::new("c-icap").args(["-N", "-f"]).arg(conf), port).map_err(|trouble| {
            let said = std::fs::read_to_string(log).unwrap_or_default();
            format!("{trouble}{}", shell::last_lines(&said, 5))
        })?;
        Ok(Echo { port, id })
    }

    /// Starts it again where it was killed, as often as it takes: its port may be held for a while by connections that were open.
    pub fn start_again(self, lab: &mut Lab) -> Result<Echo, Trouble> {
        let began = Instant::now();
        // The file of a process that was killed: c-icap takes it for one that runs.
        std::fs::remove_file(lab.path().join("c-icap.pid")).ok();
        loop {
            match Echo::start_at(lab, self.port) {
                Err(_) if began.elapsed() < AGAIN_WITHIN => std::thread::sleep(Duration::from_millis(200)),
                ended => return ended,
            }
        }
    }

    /// Where it is asked.
    pub fn url(self) -> String {
        format!("icap://127.0.0.1:{}/echo", self.port)
    }
}
