//! The surroundings of the applications: a virtual environment with the frameworks, and a Larder that runs them.

use crate::http::{Answer, Connection};
use crate::lab::{self, Lab};
use crate::shell::{self, Trouble};
use std::cell::OnceCell;
use std::fmt::Write;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The password of Django's administrator.
pub const PASSWORD: &str = "swordfish-1999";

/// Seconds that a large body may take.
const LARGE_SECONDS_MAX: u64 = 300;

/// Site, and its origin.
const SITES: [(&str, &str); 3] = [
    ("flask", "wsgi:flask_app:app"),
    ("fastapi", "asgi:fastapi_app:app"),
    ("django", "wsgi:django_site.wsgi:application"),
];

/// A Larder that runs the applications.
pub struct Place {
    lab: Lab,
    port: u16,
    larder: u32,
    python: PathBuf,
    large: OnceCell<(PathBuf, String)>,
}

impl Place {
    /// Makes the virtual environment, kept beside what is built, and starts Larder.
    pub fn set_up(root: &Path) -> Result<Place, Trouble> {
        let sources = root.join("xtask/applications");
        let python = environment(&shell::target_folder(root).join("applications"), &sources.join("requirements.txt"))?;
        let mut lab = Lab::new()?;
        let (port, admin) = (lab::free_port()?, lab::free_port()?);
        let mut text = format!(
            "memory = \"64MB\"\ndisk = \"0\"\nadmin = \"127.0.0.1:{admin}\"\n[[listen]]\naddress = \"127.0.0.1:{port}\"\n"
        );
        for (site, origin) in SITES {
            let folder = lab.folder(site)?;
            shell::call(Command::new("cp").arg("-r").arg(sources.join(".")).arg(&folder))?;
            let _ = write!(
                text,
                "[[python]]\nname = \"{site}\"\nfolder = {folder:?}\ninterpreter = {python:?}\n\
                 [[site]]\nhosts = [\"{site}.localhost\"]\norigin = \"{origin}\"\npython = \"{site}\"\n"
            );
        }
        let django = |arguments: &[&str]| {
            let mut command = Command::new(&python);
            command.current_dir(lab.path().join("django")).args(["-m", "django"]).args(arguments);
            let settings =
                [("DJANGO_SETTINGS_MODULE", "django_site.settings"), ("DJANGO_SUPERUSER_PASSWORD", PASSWORD)];
            shell::ask(command.envs(settings).env("PYTHONPATH", "."))
        };
        django(&["migrate", "--run-syncdb"])?;
        django(&["createsuperuser", "--noinput", "--username", "admin", "--email", "admin@example.org"])?;
        let config = lab.write("larder.toml", text)?;
        let mut command = Command::new(shell::built_larder(root));
        let larder = lab.start("larder", command.arg("--config").arg(config), port)?;
        Ok(Place { lab, port, larder, python, large: OnceCell::new() })
    }

    /// A folder that goes with this.
    pub fn folder(&self) -> &Path {
        self.lab.path()
    }

    /// The address of a page.
    pub fn page(&self, site: &str, path: &str) -> String {
        format!("http://{site}.localhost:{}{path}", self.port)
    }

    /// One request of a stranger, with these further fields.
    pub fn ask(&self, site: &str, path: &str, fields: &str) -> Result<Answer, Trouble> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {site}.localhost\r\n{fields}\r\n");
        Connection::open(self.port)?.ask(request.as_bytes(), false)
    }

    /// A file of this length, as `/download` sends it, and its digest (SHA-256, hexadecimal).
    pub fn large_file(&self, length: u64) -> Result<(PathBuf, String), Trouble> {
        if let Some(made) = self.large.get() {
            return Ok(made.clone());
        }
        let path = self.lab.path().join("large");
        let trouble = |error: std::io::Error| format!("writing {}: {error}", path.display());
        let piece: Vec<u8> = (0..=255).cycle().take(64 << 10).collect();
        let mut file = File::create(&path).map_err(trouble)?;
        let mut left = length;
        while left > 0 {
            let now = left.min(piece.len() as u64);
            file.write_all(&piece[..usize::try_from(now).unwrap_or(piece.len())]).map_err(trouble)?;
            left -= now;
        }
        let digest = first_word(&shell::ask(Command::new("sha256sum").arg(&path))?);
        Ok(self.large.get_or_init(|| (path, digest)).clone())
    }

    /// Sends a file as the body of a PUT; gives the answer's body.
    pub fn send_file(&self, site: &str, path: &str, file: &Path) -> Result<String, Trouble> {
        let mut command = self.curl(site, path);
        command.arg("--upload-file").arg(file);
        shell::ask(&mut command)
    }

    /// The digest of an answer's body (SHA-256, hexadecimal).
    pub fn digest_of(&self, site: &str, path: &str) -> Result<String, Trouble> {
        let curl = self.curl(site, path);
        let mut command = Command::new("sh");
        command.args(["-c", "\"$@\" | sha256sum", "sh"]).arg(curl.get_program()).args(curl.get_args());
        shell::ask(&mut command).map(|said| first_word(&said))
    }

    fn curl(&self, site: &str, path: &str) -> Command {
        let mut command = Command::new("curl");
        command.args(["-sSf", "--max-time", &LARGE_SECONDS_MAX.to_string(), "-H", "Expect:"]);
        command.args(["--resolve", &format!("{site}.localhost:{}:127.0.0.1", self.port), &self.page(site, path)]);
        command
    }

    /// The most memory of the server process so far, in kB, as the system counts it; without its applications.
    pub fn resident_max(&self) -> Result<u64, Trouble> {
        let path = format!("/proc/{}/status", self.larder);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("reading {path}: {error}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).ok_or_else(|| format!("{path} has no VmHWM"))
    }

    /// The interpreter and the frameworks, in words.
    pub fn versions(&self) -> Result<String, Trouble> {
        let script = "import platform; from importlib.metadata import version\n\
                      print(f'Python {platform.python_version()}', *(f'{name} {version(name)}' for name in ('flask', 'fastapi', 'django')), sep=', ')";
        shell::ask(Command::new(&self.python).args(["-c", script])).map(|said| said.trim().to_owned())
    }
}

fn first_word(text: &str) -> String {
    text.split_whitespace().next().unwrap_or_default().to_owned()
}

/// A virtual environment with what a file of requirements names; gives its interpreter.
fn environment(folder: &Path, requirements: &Path) -> Result<PathBuf, Trouble> {
    let (python, done) = (folder.join("bin/python"), folder.join("requirements.txt"));
    let wanted = std::fs::read(requirements).map_err(|error| format!("reading {}: {error}", requirements.display()))?;
    if std::fs::read(&done).is_ok_and(|had| had == wanted) {
        return Ok(python);
    }
    shell::call(Command::new(shell::need_program("python3")?).args(["-m", "venv", "--clear"]).arg(folder))?;
    shell::call(Command::new(&python).args(["-m", "pip", "install", "--quiet", "-r"]).arg(requirements))?;
    std::fs::write(&done, wanted).map_err(|error| format!("writing {}: {error}", done.display()))?;
    Ok(python)
}
