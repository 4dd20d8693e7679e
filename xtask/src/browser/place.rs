//! The surroundings of the page: an origin, a Larder with a token, and traffic of visitors.

use crate::http::Connection;
use crate::lab::{self, Lab};
use crate::shell::{self, Trouble};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The token that the page must ask for.
pub const TOKEN: &str = "a-token-for-this-test";

/// The servers, and who asks them.
pub struct Place {
    lab: Lab,
    root: PathBuf,
    config: PathBuf,
    origin: u16,
    proxy: u16,
    admin: u16,
    has_application: bool,
    stop: Arc<AtomicBool>,
}

/// The paths that visitors request, and how often of a thousand.
const PATHS: [(&str, u64); 9] = [
    ("/", 220),
    ("/assets/app.css", 150),
    ("/assets/app.js", 150),
    ("/api/prices", 90),
    ("/api/me", 60),
    ("/lang/strings.json", 50),
    ("/pkg/react-18.3.1.tgz", 40),
    ("/docs/guide/installation/", 40),
    ("/img/", 200),
];

/// Requests a second that are asked for, and how many pictures there are.
const PER_SECOND: u64 = 120;
const PICTURES: u64 = 120;

impl Place {
    /// Starts everything; the traffic ends with this.
    pub fn set_up(root: &Path) -> Result<Place, Trouble> {
        let lab = Lab::new()?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|error| format!("no free port: {error}"))?;
        let origin = listener.local_addr().map_err(|error| error.to_string())?.port();
        std::thread::spawn(move || serve(&listener));
        let (proxy, admin) = (lab::free_port()?, lab::free_port()?);
        let has_application = shell::find_program("python3").is_some();
        let application = if has_application { application(&lab)? } else { String::new() };
        let text = format!(
            "memory = \"16MB\"\ndisk = \"100MB\"\nstore = {:?}\nadmin = \"127.0.0.1:{admin}\"\nadmin_token = \"{TOKEN}\"\n\
             [[listen]]\naddress = \"127.0.0.1:{proxy}\"\nforward = true\n{application}",
            lab.path().join("store").display().to_string()
        );
        let config = lab.write("larder.toml", text)?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut place = Place { lab, root: root.to_owned(), config, origin, proxy, admin, has_application, stop };
        place.start()?;
        let (stop, proxy) = (Arc::clone(&place.stop), place.proxy);
        std::thread::spawn(move || visit(&stop, proxy, origin));
        Ok(place)
    }

    fn start(&mut self) -> Result<(), Trouble> {
        let mut command = Command::new(shell::built_larder(&self.root));
        command.arg("--config").arg(&self.config);
        self.lab.start("larder", &mut command, self.proxy).map(|_| ())
    }

    /// Ends the Larder and starts it again.
    pub fn restart(&mut self) -> Result<(), Trouble> {
        self.lab.end_last();
        self.start()
    }

    /// A folder that goes with this.
    pub fn folder(&self) -> &Path {
        self.lab.path()
    }

    /// Where the page is.
    pub fn page(&self) -> String {
        format!("http://127.0.0.1:{}/", self.admin)
    }

    /// The origin, as URLs name it.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.origin)
    }

    /// One request through the proxy.
    pub fn ask(&self, path: &str) -> Result<(), Trouble> {
        let mut connection = Connection::open(self.proxy)?;
        connection.ask(request(self.origin, path, "").as_bytes(), false).map(|_| ())
    }

    /// Whether there is an application in Python.
    pub fn has_application(&self) -> bool {
        self.has_application
    }

    /// One request to the application.
    pub fn ask_application(&self, path: &str) -> Result<(), Trouble> {
        let mut connection = Connection::open(self.proxy)?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: app.example\r\n\r\n");
        connection.ask(request.as_bytes(), false).map(|_| ())
    }

    /// The text of axe-core from npm, kept beside what is built; `None` when it cannot be had.
    pub fn axe(&self) -> Result<Option<String>, Trouble> {
        let folder = shell::target_folder(&self.root).join("axe-core");
        let file = folder.join("package/axe.min.js");
        if !file.is_file() {
            std::fs::create_dir_all(&folder).map_err(|error| format!("making {}: {error}", folder.display()))?;
            let script = "npm pack --silent axe-core@4 && tar -xzf axe-core-4.*.tgz package/axe.min.js";
            let fetched = shell::bounded(Command::new("sh").current_dir(&folder).args(["-c", script]), 60)?;
            if fetched.status != Some(0) {
                return Ok(None);
            }
        }
        std::fs::read_to_string(&file).map(Some).map_err(|error| format!("reading {}: {error}", file.display()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Writes an application whose exceptions are markup and commands to a terminal; gives its part of the configuration.
fn application(lab: &Lab) -> Result<String, Trouble> {
    let module = "def application(environ, start_response):\n    if environ['PATH_INFO'] == '/raise':\n        \
                  raise ValueError('<script>alert(1)</script><img src=x>' + chr(27) + '[2J' + 'x' * 60000)\n    \
                  start_response('200 OK', [('Content-Type', 'text/plain')])\n    return [b'hello']\n";
    lab.write("application/app.py", module)?;
    let folder = lab.path().join("application").display().to_string();
    Ok(format!(
        "[[python]]\nname = \"app\"\nfolder = {folder:?}\n[[site]]\nhosts = [\"app.example\"]\norigin = \"wsgi:app:application\"\n"
    ))
}

fn request(origin: u16, path: &str, fields: &str) -> String {
    format!("GET http://127.0.0.1:{origin}{path} HTTP/1.1\r\nHost: 127.0.0.1:{origin}\r\n{fields}\r\n")
}

/// Asks for this and that until told to stop; trouble of one request is the page's business.
fn visit(stop: &AtomicBool, proxy: u16, origin: u16) {
    let mut connection = None;
    let mut number: u64 = 1;
    while !stop.load(Ordering::Relaxed) {
        // Numbers that jump about and yet are the same in every run.
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let draw = (number >> 33) % 1000;
        let mut left = draw;
        let path = PATHS.iter().find(|(_, share)| {
            let found = left < *share;
            left = left.saturating_sub(*share);
            found
        });
        let picture = (number >> 45) % PICTURES * ((number >> 52) % 8) / 7;
        let path = match path {
            Some(("/img/", _)) | None => format!("/img/{picture:04}.webp"),
            Some((path, _)) => (*path).to_owned(),
        };
        let fields = if draw % 50 == 7 { "Cache-Control: no-cache\r\n" } else { "" };
        connection = connection.or_else(|| Connection::open(proxy).ok());
        let answer = connection.as_mut().map(|open| open.ask(request(origin, &path, fields).as_bytes(), false));
        if !matches!(answer, Some(Ok(answer)) if answer.keeps) {
            connection = None;
        }
        std::thread::sleep(Duration::from_micros(1_000_000 / PER_SECOND));
    }
}

/// An origin: the path says how long the body is and whether it may be kept.
fn serve(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || answer(&stream));
    }
}

fn answer(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let mut first = String::new();
        lines.read_line(&mut first).ok().filter(|&read| read > 0)?;
        let mut line = String::new();
        while lines.read_line(&mut line).ok().filter(|&read| read > 0)? > 2 {
            line.clear();
        }
        let path = first.split(' ').nth(1)?;
        let (kind, control) = match path {
            "/api/me" => ("application/json", "no-store"),
            path if path.starts_with("/api") => ("application/json", "max-age=2"),
            path if path.starts_with("/img") => ("image/webp", "public, max-age=600"),
            path if path.ends_with(".tgz") => ("application/gzip", "public, max-age=600"),
            path if path.ends_with(".css") => ("text/css", "public, max-age=600"),
            path if path.ends_with(".js") => ("text/javascript", "public, max-age=600"),
            _ => ("text/html; charset=utf-8", "public, max-age=600"),
        };
        let seed: usize = path.bytes().fold(7, |sum, byte| sum * 31 % 9973 + usize::from(byte));
        let body = vec![b'x'; 300 + seed * 7];
        let length = body.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nCache-Control: {control}\r\nETag: \"{seed}\"\r\nContent-Length: {length}\r\n\r\n"
        );
        (&*stream).write_all(head.as_bytes()).and_then(|()| (&*stream).write_all(&body)).ok()?;
    }
}
