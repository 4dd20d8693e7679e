//! Real tools through `larder run`: each downloads once without Larder and twice through one Larder, with
//! empty caches of its own. All three must bring the same files, and the third must come from the store.

mod kind;
mod saved;

use crate::lab::{self, Lab};
use crate::shell::{self, Bounded, Trouble};
use crate::tally::{self, Tally};
use kind::{From, TOOLS, Tool};
use saved::Saved;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which tools.
#[derive(clap::Args, Default)]
pub struct Args {
    /// Only tools whose name contains this.
    #[arg(long)]
    only: Option<String>,
}

const SECONDS_MAX: u64 = 60;
const SHARE_FROM_STORE_MIN: f64 = 0.95;
const BIG_BYTES: usize = 20_000_000;

/// Plays the tools and prints a row each.
pub fn run(args: &Args) -> Result<(), Trouble> {
    let tally = play(args)?;
    if tally.failed == 0 { Ok(()) } else { Err(format!("{} tools failed", tally.failed)) }
}

/// Plays the tools; each one counts as a check.
pub fn play(args: &Args) -> Result<Tally, Trouble> {
    let mut lab = Lab::new()?;
    let bench = Bench::set_up(&mut lab)?;
    let mut tally = Tally::default();
    if args.only.is_none() {
        tally.add(bench.statuses_are_kept());
    }
    for tool in TOOLS.iter().filter(|tool| args.only.as_ref().is_none_or(|only| tool.name.contains(only.as_str()))) {
        tally.add(match shell::find_program(tool.program) {
            None => tally::missing(&format!("{}: {} is not installed", tool.name, tool.program)),
            Some(_) => bench.judge(tool),
        });
    }
    Ok(tally)
}

/// The local origin, a running Larder, and how they are called.
struct Bench {
    larder: PathBuf,
    folder: PathBuf,
    store: PathBuf,
    /// For the tools: where the origin is, and whom to trust.
    variables: Vec<(&'static str, String)>,
}

/// One download: what it brought and said.
struct Pass {
    files: BTreeMap<PathBuf, Vec<u8>>,
    said: String,
}

impl Bench {
    fn set_up(lab: &mut Lab) -> Result<Bench, Trouble> {
        let root = shell::workspace()?;
        shell::build(&root)?;
        let authority = make_certificates(lab)?;
        let (http, https) = start_origin(lab)?;
        let list = format!("[upstream]\nextra_roots = [{:?}]\n", authority.display().to_string());
        let config = lab.write("larder.toml", list)?;
        let store = lab.folder("larder-store")?;
        lab::start_larder(lab, &root, "larder", &["--config", &config.display().to_string()])?;
        let trust = authority.display().to_string();
        let wgetrc = lab.write("wgetrc", format!("ca_certificate = {trust}\n"))?;
        let variables = vec![
            ("HTTP", format!("http://localhost:{http}")),
            ("HTTPS", format!("https://localhost:{https}")),
            ("LAB_TRUST", trust),
            ("LAB_WGETRC", wgetrc.display().to_string()),
        ];
        Ok(Bench { larder: shell::built_larder(&root), folder: lab.path().to_owned(), store, variables })
    }

    /// A command behind `larder run`.
    fn through(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.larder);
        command.arg("run").arg("--store").arg(&self.store).arg("--").args(words);
        command
    }

    fn statuses_are_kept(&self) -> Tally {
        let mut tally = Tally::default();
        let missing = format!("curl -fsS -o /dev/null {}/missing", self.variables[1].1);
        for (script, wanted) in [("exit 7", 7), ("kill -TERM $$", 143), (missing.as_str(), 22), ("true", 0)] {
            let ran = shell::bounded(&mut self.through(&["sh", "-c", script]), SECONDS_MAX);
            let outcome = match ran {
                Ok(Bounded { status: Some(status), .. }) if status == wanted => Ok(()),
                Ok(ran) => Err(format!("{script}: status {:?} instead of {wanted}: {}", ran.status, ran.said)),
                Err(trouble) => Err(trouble),
            };
            if let Err(trouble) = &outcome {
                println!("exit status: {trouble}");
            }
            tally.add(Tally::of(&outcome));
        }
        tally
    }

    fn judge(&self, tool: &Tool) -> Tally {
        let alone = match self.pass(tool, "without", false) {
            Ok(pass) => pass,
            Err(trouble) if tool.from == From::Registry => {
                println!("{:17} skipped, its registry is not reached: {}", tool.name, shell::last_lines(&trouble, 2));
                return Tally::skipped();
            }
            Err(trouble) => return said_failed(tool, &format!("without Larder: {trouble}")),
        };
        let outcome = self.compare(tool, &alone);
        match &outcome {
            Ok(row) => println!("{:17} ok      {row}", tool.name),
            Err(trouble) => return said_failed(tool, trouble),
        }
        Tally::of(&outcome.map(|_| ()))
    }

    fn compare(&self, tool: &Tool, alone: &Pass) -> Result<String, Trouble> {
        let first = self.pass(tool, "first", true)?;
        let second = self.pass(tool, "second", true)?;
        same_files(alone, &first).map_err(|what| format!("the first pass brought {what}"))?;
        same_files(alone, &second).map_err(|what| format!("the second pass brought {what}"))?;
        let said = |pass: &Pass| Saved::read(&pass.said).ok_or_else(|| format!("no summary in: {}", pass.said));
        let (first, second) = (said(&first)?, said(&second)?);
        let row = format!("{} files; first {}; second {}", alone.files.len(), first, second);
        let enough = second.share_from_store() >= SHARE_FROM_STORE_MIN;
        // A registry may forbid to keep some of its answers: then each miss has its reason in the summary.
        match (enough, tool.from, &second.misses) {
            (true, ..) => Ok(row),
            (false, From::Registry, Some(misses)) => Ok(format!("{row}; misses: {misses}")),
            (false, _, misses) => Err(format!("too little from the store: {row}; misses: {misses:?}")),
        }
    }

    fn pass(&self, tool: &Tool, name: &str, is_through: bool) -> Result<Pass, Trouble> {
        let folder = self.folder.join(tool.name.replace(' ', "-")).join(name);
        let (out, cache) = (folder.join("out"), folder.join("cache"));
        for path in [&out, &cache] {
            std::fs::create_dir_all(path).map_err(|error| format!("making {}: {error}", path.display()))?;
        }
        let mut command = if is_through { self.through(&["sh", "-ec", tool.script]) } else { Command::new("sh") };
        if !is_through {
            command.args(["-ec", tool.script]);
        }
        command.current_dir(&out).envs(self.variables.iter().map(|(key, value)| (*key, value))).env("CACHE", &cache);
        // A proxy or an exception of the desk must not come between; localhost is asked through Larder too.
        for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "no_proxy", "NO_PROXY"] {
            if is_through || tool.from == From::Lab {
                command.env_remove(name);
            }
        }
        if tool.from == From::Lab && !is_through {
            for name in ["CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "SSL_CERT_FILE"] {
                command.env(name, &self.variables[2].1);
            }
            command.env("WGETRC", &self.variables[3].1);
        }
        let ran = shell::bounded(&mut command, SECONDS_MAX)?;
        match ran.status {
            Some(0) => {}
            Some(status) => return Err(format!("status {status}: {}", ran.said)),
            None => return Err(format!("not done within {SECONDS_MAX} s: {}", ran.said)),
        }
        if ran.said.to_lowercase().contains("certificate") {
            return Err(format!("a certificate error: {}", ran.said));
        }
        Ok(Pass { files: read_files(&out)?, said: ran.said })
    }
}

fn said_failed(tool: &Tool, trouble: &str) -> Tally {
    println!("{:17} FAILED  {trouble}", tool.name);
    Tally { failed: 1, ..Tally::default() }
}

fn same_files(wanted: &Pass, found: &Pass) -> Result<(), String> {
    for (name, bytes) in &wanted.files {
        match found.files.get(name) {
            None => return Err(format!("no {}", name.display())),
            Some(other) if other != bytes => return Err(format!("another {}", name.display())),
            Some(_) => {}
        }
    }
    let extra = found.files.keys().find(|name| !wanted.files.contains_key(*name));
    extra.map_or(Ok(()), |name| Err(format!("{} beyond what came without Larder", name.display())))
}

/// All files below a folder, by path.
fn read_files(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>, Trouble> {
    let trouble = |error| format!("reading {}: {error}", folder.display());
    let (mut files, mut todo) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(next) = todo.pop() {
        for entry in std::fs::read_dir(next).map_err(trouble)? {
            let path = entry.map_err(trouble)?.path();
            if path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                todo.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap_or(&path).to_owned();
            files.insert(name, std::fs::read(&path).map_err(trouble)?);
        }
    }
    if files.is_empty() { Err("it brought no file".into()) } else { Ok(files) }
}

/// A certificate authority of the lab and a certificate for localhost; gives the authority's file.
fn make_certificates(lab: &Lab) -> Result<PathBuf, Trouble> {
    let file = |name: &str| lab.path().join(name).display().to_string();
    let key = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
    let mut authority = Command::new("openssl");
    authority.args(key).args(["-subj", "/CN=Lab", "-keyout", &file("ca.key"), "-out", &file("ca.pem")]);
    authority.args(["-addext", "keyUsage=critical,keyCertSign"]);
    shell::ask(&mut authority)?;
    let mut leaf = Command::new("openssl");
    leaf.args(key).args(["-subj", "/CN=localhost", "-keyout", &file("leaf.key"), "-out", &file("leaf.pem")]);
    leaf.args(["-CA", &file("ca.pem"), "-CAkey", &file("ca.key"), "-addext", "basicConstraints=critical,CA:FALSE"]);
    leaf.args(["-addext", "subjectAltName=DNS:localhost", "-addext", "extendedKeyUsage=serverAuth"]);
    shell::ask(&mut leaf)?;
    Ok(lab.path().join("ca.pem"))
}

/// nginx with a tree of files and a repository; gives its clear and its TLS port.
fn start_origin(lab: &mut Lab) -> Result<(u16, u16), Trouble> {
    plant_tree(lab)?;
    plant_repository(lab)?;
    let (http, https) = (lab::free_port()?, lab::free_port()?);
    let fill = [("http", http.to_string()), ("https", https.to_string()), ("lab", lab.path().display().to_string())];
    let conf = lab::configuration(lab, "origin", include_str!("../../peers/tree.conf"), &fill)?;
    lab.start("origin", Command::new(shell::need_program("nginx")?).arg("-c").arg(conf), http)?;
    Ok((http, https))
}

fn plant_tree(lab: &Lab) -> Result<(), Trouble> {
    let body = |seed: usize, len: usize| -> Vec<u8> { (0..len).map(|at| (at * seed / 251 + at) as u8).collect() };
    lab.write("root/tree/big.bin", body(3, BIG_BYTES))?;
    let mut links = String::new();
    for page in 0..12 {
        let mut images = String::new();
        for image in 0..5 {
            let name = format!("image-{page}-{image}.bin");
            lab.write(&format!("root/tree/images/{name}"), body(page + 2, 3_000 + 17_000 * image))?;
            images.push_str(&format!("<img src=\"images/{name}\">"));
        }
        lab.write(&format!("root/tree/page-{page}.html"), format!("<html><body>{images}</body></html>"))?;
        links.push_str(&format!("<a href=\"page-{page}.html\">{page}</a>\n"));
    }
    lab.write("root/tree/index.html", format!("<html><body>{links}</body></html>"))?;
    Ok(())
}

/// A bare repository that is served as plain files.
fn plant_repository(lab: &Lab) -> Result<(), Trouble> {
    for file in 0..30 {
        lab.write(&format!("work/folder-{}/file-{file}", file % 4), format!("line {file}\n").repeat(200 + file))?;
    }
    let bare = lab.path().join("root/repository.git");
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.current_dir(lab.path().join("work")).args(["-c", "user.name=Lab", "-c", "user.email=lab@localhost"]);
        shell::ask(command.args(arguments)).map(|_| ())
    };
    git(&["init", "-q"])?;
    git(&["add", "."])?;
    git(&["commit", "-q", "-m", "Files"])?;
    git(&["clone", "-q", "--bare", ".", &bare.display().to_string()])?;
    shell::ask(Command::new("git").arg("-C").arg(&bare).arg("update-server-info")).map(|_| ())
}
