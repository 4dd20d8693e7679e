//! Real tools through `larder run`: each downloads once without Larder and several times through it, with empty caches of its own. All
//! must bring the same files, and from the second time on they must come from the store. `--table` repeats the download later, offline
//! and in networks that are gone.

mod jobs;
mod kind;
mod namespace;
mod network;
mod page;
mod plant;
mod saved;

use crate::lab::Lab;
use crate::results;
use crate::shell::{self, Bounded, Trouble};
use crate::tally::{self, Tally};
use kind::{From, MORE_TOOLS, TOOLS, Tool};
use network::Condition;
use page::Row;
use saved::Saved;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which tools.
#[derive(clap::Args, Default)]
pub struct Args {
    /// Only tools whose name contains this, and jobs of a CI ("CI: two jobs").
    #[arg(long)]
    only: Option<String>,
    /// All tools under all conditions: later, offline, and in networks that are gone. Takes some minutes.
    #[arg(long)]
    table: bool,
    /// Write the table to docs/results/tools.md.
    #[arg(long, requires = "table")]
    write: bool,
}

const SECONDS_MAX: u64 = 60;
const SHARE_FROM_STORE_MIN: f64 = 0.95;

/// Plays the tools and prints a row each.
pub fn run(args: &Args) -> Result<(), Trouble> {
    if args.table
        && let Some(within) = namespace::enter()
    {
        return within;
    }
    let tally = play(args)?;
    if tally.failed == 0 { Ok(()) } else { Err(format!("{} tools failed", tally.failed)) }
}

/// Plays the tools; each one counts as a check.
pub fn play(args: &Args) -> Result<Tally, Trouble> {
    let mut lab = Lab::new()?;
    let bench = Bench::set_up(&mut lab, args.table)?;
    let mut tally = Tally::default();
    if args.only.is_none() {
        tally.add(bench.statuses_are_kept());
    }
    tally.add(jobs::play(&bench, args.only.as_deref()));
    let more = if args.table { MORE_TOOLS } else { &[] };
    let (mut rows, mut left_out) = (Vec::new(), Vec::new());
    for tool in
        TOOLS.iter().chain(more).filter(|tool| args.only.as_ref().is_none_or(|only| tool.name.contains(only.as_str())))
    {
        if shell::find_program(tool.program).is_none() {
            left_out.push(format!("{}: {} is not installed on this machine.", tool.name, tool.program));
            tally.add(tally::missing(&format!("{}: {} is not installed", tool.name, tool.program)));
            continue;
        }
        tally.add(bench.judge(tool, args.table, &mut rows, &mut left_out));
    }
    if args.write {
        results::publish(&shell::workspace()?, "tools", &page::page(&rows, &left_out))?;
    }
    Ok(tally)
}

/// The local origin, and how the tools are called.
struct Bench {
    larder: PathBuf,
    folder: PathBuf,
    config: PathBuf,
    /// The ports of the lab's origins.
    ports: Vec<u16>,
    /// For the tools: where the origins are, and whom to trust.
    variables: Vec<(&'static str, String)>,
}

/// One download: what it brought and said.
struct Pass {
    files: BTreeMap<PathBuf, Vec<u8>>,
    saved: Saved,
}

/// The variables of a tool without Larder that point to the lab's authority.
const TRUST: [&str; 7] = [
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "SSL_CERT_FILE",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "npm_config_cafile",
];

impl Bench {
    fn set_up(lab: &mut Lab, all: bool) -> Result<Bench, Trouble> {
        let root = shell::workspace()?;
        shell::build(&root)?;
        let authority = plant::certificates(lab)?;
        let (http, https) = plant::origin(lab)?;
        let trust = authority.display().to_string();
        let config = lab.write("larder.toml", format!("[upstream]\nextra_roots = [{trust:?}]\n"))?;
        let wgetrc = lab.write("wgetrc", format!("ca_certificate = {trust}\n"))?;
        let name = namespace::lab_name();
        let mut variables = vec![
            ("HTTP", format!("http://localhost:{http}")),
            ("HTTPS", format!("https://localhost:{https}")),
            ("NAMED", format!("https://{name}:{https}")),
            ("LAB_TRUST", trust),
            ("LAB_WGETRC", wgetrc.display().to_string()),
        ];
        let mut ports = vec![http, https];
        if all {
            for (variable, port, value) in plant::services(lab, https, &name)? {
                ports.push(port);
                variables.push((variable, value));
            }
        }
        Ok(Bench { larder: shell::built_larder(&root), folder: lab.path().to_owned(), config, ports, variables })
    }

    /// The value of a variable of the tools.
    fn variable(&self, name: &str) -> &str {
        self.variables.iter().find(|(own, _)| *own == name).map_or("", |(_, value)| value)
    }

    /// A command behind `larder run`, with the store of a tool.
    fn through(&self, store: &Path, told: &Path, condition: Condition, from: From, words: &[&str]) -> Command {
        let mut command = condition.command(&self.larder.display().to_string(), self);
        if from == From::Registry {
            command = namespace::outside(command);
        }
        command.args(["run", "--quiet", "--config"]).arg(&self.config).arg("--store").arg(store);
        command.arg("--json").arg(told);
        if condition == Condition::Offline {
            command.arg("--offline");
        }
        command.arg("--").args(words);
        command
    }

    /// A file that names this name server.
    fn resolver(&self, server: &str) -> String {
        let file = self.folder.join(format!("resolv-{server}"));
        // A missing file ends the command that mounts it.
        let _ = std::fs::write(&file, format!("nameserver {server}\noptions timeout:2 attempts:1\n"));
        file.display().to_string()
    }

    fn statuses_are_kept(&self) -> Tally {
        let mut tally = Tally::default();
        let missing = format!("curl -fsS -o /dev/null {}/missing", self.variable("HTTPS"));
        for (script, wanted) in [("exit 7", 7), ("kill -TERM $$", 143), (missing.as_str(), 22), ("true", 0)] {
            let (store, told) = (self.folder.join("statuses"), self.folder.join("told.json"));
            let mut command = self.through(&store, &told, Condition::Usual, From::Lab, &["sh", "-c", script]);
            let ran = shell::bounded(&mut command, SECONDS_MAX);
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

    fn judge(&self, tool: &Tool, table: bool, rows: &mut Vec<Row>, left_out: &mut Vec<String>) -> Tally {
        let alone = match self.pass(tool, "without", None) {
            Ok(pass) => pass,
            Err(trouble) if tool.from == From::Registry => {
                let why = shell::last_lines(&trouble, 2);
                println!("{:26} skipped, its registry is not reached: {why}", tool.name);
                left_out.push(format!("{}: its registry was not reached.", tool.name));
                return Tally::skipped();
            }
            Err(trouble) if table => {
                println!("{:26} skipped, it does not work without Larder: {trouble}", tool.name);
                left_out.push(format!("{}: it did not work in this lab without Larder either.", tool.name));
                return Tally::skipped();
            }
            Err(trouble) => return said_failed(tool, &format!("without Larder: {trouble}")),
        };
        let outcome = self.twice(tool, &alone);
        let enough = match &outcome {
            Ok(second) => second.share_from_store() >= SHARE_FROM_STORE_MIN,
            Err(_) => false,
        };
        if let Ok(second) = &outcome
            && !enough
        {
            eprintln!("{}, the exchanges of the second run:\n{}", tool.name, second.exchanges());
        }
        let reasons = outcome.as_ref().ok().and_then(Saved::reasons).unwrap_or_default();
        let from = if tool.from == From::Lab { "lab" } else { "registry" };
        if table {
            if Condition::Earlier.lacks().is_none()
                && let Err(trouble) = self.pass(tool, "earlier", Some(Condition::Earlier))
            {
                eprintln!("{}, earlier: {trouble}", tool.name);
            }
            let cells = Condition::OF_TABLE.map(|condition| self.cell(tool, &alone, condition)).to_vec();
            println!("{:26} {}", tool.name, cells.join(" | "));
            let second = outcome.as_ref().map(Saved::share_from_store).map_err(|trouble| shell::last_lines(trouble, 1));
            rows.push(Row { tool: tool.name, from, second, cells, note: reasons.clone() });
        }
        match (&outcome, tool.from) {
            (Err(trouble), _) => return said_failed(tool, trouble),
            // A registry may forbid to keep some of its answers: then each miss has its reason. In the table, rows say how it is.
            (Ok(second), from) if !enough && from == From::Lab && !table => {
                return said_failed(tool, &format!("too little from the store: {second}: {reasons}"));
            }
            (Ok(second), _) => println!("{:26} ok      {} files; {second}; {reasons}", tool.name, alone.files.len()),
        }
        if !table && tool.from == From::Lab {
            if Condition::Earlier.lacks().is_none()
                && let Err(trouble) = self.pass(tool, "earlier", Some(Condition::Earlier))
            {
                return said_failed(tool, &format!("with an earlier clock: {trouble}"));
            }
            let cell = self.cell(tool, &alone, Condition::Offline);
            if !cell.starts_with("ok") {
                return said_failed(tool, &format!("offline: {cell}"));
            }
        }
        Tally::of(&Ok(()))
    }

    /// Two runs; gives what the second one told.
    fn twice(&self, tool: &Tool, alone: &Pass) -> Result<Saved, Trouble> {
        let first = self.pass(tool, "first", Some(Condition::Usual))?;
        let second = self.pass(tool, "second", Some(Condition::Usual))?;
        same_files(alone, &first).map_err(|what| format!("the first pass brought {what}"))?;
        same_files(alone, &second).map_err(|what| format!("the second pass brought {what}"))?;
        Ok(second.saved)
    }

    /// One more run; gives what the table says of it.
    fn cell(&self, tool: &Tool, alone: &Pass, condition: Condition) -> String {
        if let Some(lack) = condition.lacks() {
            return format!("not tried: no {lack}");
        }
        let pass = self.pass(tool, &condition.title().replace(' ', "-"), Some(condition));
        let checked = pass.and_then(|pass| same_files(alone, &pass).map(|()| pass));
        match checked {
            Ok(pass) if condition.is_cut_off() => {
                pass.saved.first_answer().map_or("ok".to_owned(), |seconds| format!("ok, {seconds:.2} s"))
            }
            Ok(pass) => format!("ok, {:.0} %", pass.saved.share_from_store() * 100.0),
            Err(trouble) => {
                eprintln!("{}, {}: {trouble}", tool.name, condition.title());
                format!("**no**: {}", trouble.lines().next().unwrap_or_default().split(": ").next().unwrap_or_default())
            }
        }
    }

    fn pass(&self, tool: &Tool, name: &str, through: Option<Condition>) -> Result<Pass, Trouble> {
        let of_tool = self.folder.join(tool.name.replace([' ', '(', ')', ':'], "-"));
        let folder = of_tool.join(name);
        let (out, cache, told) = (folder.join("out"), folder.join("cache"), folder.join("told.json"));
        for path in [&out, &cache] {
            std::fs::create_dir_all(path).map_err(|error| format!("making {}: {error}", path.display()))?;
        }
        let mut command = match through {
            Some(condition) => {
                let words = [condition.before_tool(), &["sh", "-ec", tool.script]].concat();
                self.through(&of_tool.join(condition.store()), &told, condition, tool.from, &words)
            }
            None => {
                let mut command = Command::new("sh");
                command.args(["-ec", tool.script]);
                if tool.from == From::Lab { command } else { namespace::outside(command) }
            }
        };
        command.current_dir(&out).envs(self.variables.iter().map(|(key, value)| (*key, value))).env("CACHE", &cache);
        // A proxy or an exception of the desk must not come between; localhost is asked through Larder too.
        for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "no_proxy", "NO_PROXY"] {
            if through.is_some() || tool.from == From::Lab {
                command.env_remove(name);
            }
        }
        if tool.from == From::Lab && through.is_none() {
            for name in TRUST {
                command.env(name, self.variable("LAB_TRUST"));
            }
            command.env("WGETRC", self.variable("LAB_WGETRC"));
        }
        let ran = shell::bounded(&mut command, SECONDS_MAX)?;
        let _ = std::fs::remove_dir_all(&cache);
        match ran.status {
            Some(0) => {}
            Some(status) => return Err(format!("status {status}: {}", ran.said)),
            None => return Err(format!("not done within {SECONDS_MAX} s: {}", ran.said)),
        }
        if ran.said.to_lowercase().contains("certificate") {
            return Err(format!("a certificate error: {}", ran.said));
        }
        let saved = if through.is_some() { Saved::read(&told)? } else { Saved::default() };
        Ok(Pass { files: read_files(&out)?, saved })
    }
}

fn said_failed(tool: &Tool, trouble: &str) -> Tally {
    println!("{:26} FAILED  {trouble}", tool.name);
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
