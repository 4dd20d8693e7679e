//! Downloads of `larder prefetch`: several at a time, indexes before the files that they name.

use super::control::LaterRequest;
use super::download::{self, BodyUse, Codings, Fetched, Kept};
use crate::lockfile::python::{self, Machine};
use crate::lockfile::{self, Download, GoPart, NpmPage, Tool};
use larder_wire::Url;
use larder_wire::target::resolve;
use parking_lot::{Condvar, Mutex};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::net::SocketAddr;

/// Downloads at a time.
const AT_ONCE: usize = 8;
/// The longest index that is read: the largest ones have some 40 MB.
const INDEX_BYTES_MAX: usize = 128 << 20;
/// The longest configuration of an index of crates.
const CONFIG_BYTES_MAX: usize = 64 << 10;
/// Downloads of one call, those that indexes name included.
const DOWNLOADS_MAX: usize = 200_000;

/// Where names are looked up. `None`: nobody said it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes {
    /// The index of Python packages, without its final slash.
    pub python: Option<String>,
    /// The npm registry.
    pub node: Option<String>,
    /// The sparse index of crates.
    pub cargo: Option<String>,
    /// The proxy of Go modules.
    pub go: Option<String>,
}

/// The downloads that came of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Gathered {
    /// Fetched and stored.
    pub fetched: u64,
    /// Stored before.
    pub already: u64,
    /// Bytes of both.
    pub bytes: u64,
    /// Those that are not stored now.
    pub missing: Vec<Missing>,
}

/// A download that is not stored now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// Its URL, or its name.
    pub what: String,
    /// The reason.
    pub why: String,
}

/// How far it is: downloads that are over, of how many.
pub type Progress<'p> = &'p (dyn Fn(u64, u64, u64) + Sync);

/// Sends all of it through a proxy.
pub fn gather(
    proxy: SocketAddr,
    downloads: Vec<Download>,
    indexes: &Indexes,
    machine: &Machine,
    progress: Progress<'_>,
) -> Gathered {
    let work = Work { proxy, indexes, machine, progress, state: Mutex::default(), changed: Condvar::new() };
    {
        let mut state = work.state.lock();
        let mut crates: BTreeMap<Option<String>, Vec<Crate>> = BTreeMap::new();
        for download in downloads {
            match download {
                Download::Crate { name, version, checksum, index } => {
                    crates.entry(index).or_default().push(Crate { name, version, checksum });
                }
                other => state.add_all(work.jobs(other)),
            }
        }
        for (index, crates) in crates {
            match index.or_else(|| indexes.cargo.clone()) {
                Some(index) => state.add(Job::Crates(index, crates)),
                None => crates.into_iter().for_each(|one| state.miss(one.to_string(), NO_INDEX)),
            }
        }
    }
    std::thread::scope(|threads| {
        for _ in 0..AT_ONCE {
            threads.spawn(|| work.run());
        }
    });
    let mut gathered = work.state.into_inner().gathered;
    gathered.missing.sort_by(|a, b| a.what.cmp(&b.what));
    gathered
}

const NO_INDEX: &str = "no index is known: name one with --index URL";

/// A crate of one index.
struct Crate {
    name: String,
    version: String,
    checksum: Option<String>,
}

impl std::fmt::Display for Crate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

/// A step.
enum Job {
    /// One file. A hint is something that a tool does without.
    Get(LaterRequest, Need),
    /// The page of a package in an index, for what it names.
    Python(String, python::Wanted),
    /// The page of a package in a registry, and the tarball of a version.
    Npm(String, String, String),
    /// The configuration of an index, for the files of these crates.
    Crates(String, Vec<Crate>),
    /// The entry of a crate in an index.
    Entry(LaterRequest),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Needed,
    Hint,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    asked: HashSet<String>,
    running: usize,
    /// More downloads than one call takes were asked for.
    is_full: bool,
    all: u64,
    done: u64,
    gathered: Gathered,
}

impl State {
    fn add(&mut self, job: Job) {
        if self.all >= DOWNLOADS_MAX as u64 {
            if !std::mem::replace(&mut self.is_full, true) {
                self.miss("more", format!("more than {DOWNLOADS_MAX} downloads are too many for one call"));
            }
            return;
        }
        let is_new = match &job {
            Job::Get(request, need) => self.asked.insert(format!("{} {:?} {need:?}", request.url, request.fields)),
            Job::Entry(request) => self.asked.insert(format!("{} {:?}", request.url, request.fields)),
            Job::Python(index, wanted) => {
                self.asked.insert(format!("{index} {} {} {:?}", wanted.name, wanted.version, wanted.hashes))
            }
            Job::Npm(registry, name, version) => self.asked.insert(format!("{registry} {name} {version}")),
            Job::Crates(..) => true,
        };
        if is_new {
            self.all += 1;
            self.jobs.push_back(job);
        }
    }

    fn add_all(&mut self, jobs: Result<Vec<Job>, Missing>) {
        match jobs {
            Ok(jobs) => jobs.into_iter().for_each(|job| self.add(job)),
            Err(missing) => self.gathered.missing.push(missing),
        }
    }

    fn miss(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.gathered.missing.push(Missing { what: what.into(), why: why.into() });
    }
}

struct Work<'w> {
    proxy: SocketAddr,
    indexes: &'w Indexes,
    machine: &'w Machine,
    progress: Progress<'w>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Work<'_> {
    /// Takes one job after the other until none is left and none is under way that could bring more.
    fn run(&self) {
        loop {
            let mut state = self.state.lock();
            let job = loop {
                if let Some(job) = state.jobs.pop_front() {
                    break job;
                }
                if state.running == 0 {
                    self.changed.notify_all();
                    return;
                }
                self.changed.wait(&mut state);
            };
            state.running += 1;
            drop(state);
            let more = self.play(job);
            let mut state = self.state.lock();
            state.running -= 1;
            state.done += 1;
            state.add_all(more);
            (self.progress)(state.done, state.all, state.gathered.bytes);
            self.changed.notify_all();
        }
    }

    /// The first steps for a download.
    fn jobs(&self, download: Download) -> Result<Vec<Job>, Missing> {
        let one = |tool, url| Ok(Vec::from([get(tool, url)]));
        let lacks = |what: String| Missing { what, why: NO_INDEX.to_owned() };
        match download {
            Download::Url(tool, url) => one(tool, url),
            Download::Npm { name, version, page } => match &self.indexes.node {
                Some(registry) if page == NpmPage::Read => Ok(Vec::from([Job::Npm(registry.clone(), name, version)])),
                Some(registry) => one(Tool::Node, lockfile::tarball(registry, &name, &version)),
                None => Err(lacks(format!("{name} {version}"))),
            },
            Download::Python(wanted) => match wanted.index.clone().or_else(|| self.indexes.python.clone()) {
                Some(index) => Ok(Vec::from([Job::Python(index.trim_end_matches('/').to_owned(), wanted)])),
                None => Err(lacks(format!("{} {}", wanted.name, wanted.version))),
            },
            Download::Go { path, version, part } => {
                let Some(proxy) = &self.indexes.go else { return Err(lacks(format!("{path} {version}"))) };
                let file = |end: &str| {
                    let (path, version) = (lockfile::escaped(&path), lockfile::escaped(&version));
                    request(Tool::Go, format!("{}/{path}/@v/{version}.{end}", proxy.trim_end_matches('/')))
                };
                Ok(match part {
                    GoPart::Mod => Vec::from([Job::Get(file("mod"), Need::Needed)]),
                    // The time of a version, for which `go mod download` asks and a build does not.
                    GoPart::Zip => Vec::from([
                        Job::Get(file("zip"), Need::Needed),
                        Job::Get(file("mod"), Need::Needed),
                        Job::Get(file("info"), Need::Hint),
                    ]),
                })
            }
            Download::Crate { .. } => Ok(Vec::new()), // by their indexes
        }
    }

    /// Does one step; gives the steps that follow.
    fn play(&self, job: Job) -> Result<Vec<Job>, Missing> {
        match job {
            Job::Get(request, need) => match self.fetch(&request, BodyUse::Counted) {
                Err(missing) if need == Need::Needed => Err(missing),
                _ => Ok(Vec::new()),
            },
            Job::Entry(request) => self.index(request).map(|_| Vec::new()),
            Job::Python(index, wanted) => self.python(&index, &wanted),
            Job::Npm(registry, name, version) => self.npm(&registry, &name, &version),
            Job::Crates(index, crates) => self.crates(&index, crates),
        }
    }

    /// Downloads one thing, and counts it.
    fn fetch(&self, request: &LaterRequest, body_use: BodyUse) -> Result<Fetched, Missing> {
        let shown = without_user(&request.url);
        let has_user = shown != request.url;
        let missing = |why: String| Missing { what: shown.clone(), why };
        if has_user {
            return Err(missing("user names and passwords in URLs are not sent".to_owned()));
        }
        let fetched = download::fetch(self.proxy, request, body_use).map_err(|error| missing(error.to_string()))?;
        if fetched.status >= 400 {
            return Err(missing(match &fetched.kept {
                Kept::No(why) if fetched.status >= 500 => format!("{} ({why})", fetched.status),
                _ => format!("the answer is {}", fetched.status),
            }));
        }
        let state = &mut self.state.lock();
        match &fetched.kept {
            Kept::Already => state.gathered.already += 1,
            Kept::Now => state.gathered.fetched += 1,
            Kept::No(why) => return Err(missing(format!("it came, but can't be kept: {why}"))),
        }
        state.gathered.bytes += fetched.bytes;
        Ok(fetched)
    }

    /// Reads an index, and has the variant stored that the tool asks for.
    fn index(&self, request: LaterRequest) -> Result<Fetched, Missing> {
        let mut plain = request.clone();
        plain.fields.retain(|(name, _)| name != CODINGS);
        let fetched = self.fetch(&plain, BodyUse::Read(INDEX_BYTES_MAX))?;
        if fetched.codings == Codings::Several && plain != request {
            self.fetch(&request, BodyUse::Counted)?;
        }
        Ok(fetched)
    }

    fn python(&self, index: &str, wanted: &python::Wanted) -> Result<Vec<Job>, Missing> {
        let what = || format!("{} {}", wanted.name, wanted.version);
        let fetched = self.index(LaterRequest {
            url: format!("{index}/{}/", wanted.name),
            fields: fields(&[("Accept", PYTHON_INDEX), (CODINGS, "gzip, deflate")]),
            part: None,
        })?;
        let page = Url::parse(&fetched.url);
        let files = python_files(&fetched.body);
        let of_version = |file: &PythonFile| match wanted.hashes.is_empty() {
            true => python::is_of(&file.name, &wanted.name, &wanted.version),
            false => wanted.hashes.contains(&file.hash),
        };
        let files: Vec<PythonFile> = files.into_iter().filter(of_version).collect();
        let chosen = self.machine.choose(&files, |file| &file.name);
        if chosen.is_empty() {
            return Err(Missing { what: what(), why: "the index names no file of it for this machine".to_owned() });
        }
        let mut jobs = Vec::new();
        for file in chosen {
            let url = page.as_ref().and_then(|page| resolve(page, &file.url)).map(|url| url.to_string());
            let Some(url) = url else {
                return Err(Missing { what: what(), why: format!("the index names {}, which is no URL", file.url) });
            };
            if file.has_metadata {
                jobs.push(Job::Get(request(Tool::Python, format!("{url}.metadata")), Need::Hint));
            }
            jobs.push(get(Tool::Python, url));
        }
        Ok(jobs)
    }

    fn npm(&self, registry: &str, name: &str, version: &str) -> Result<Vec<Job>, Missing> {
        let fetched = self.index(LaterRequest {
            url: lockfile::npm_page(registry, name),
            fields: fields(&[("Accept", NPM_INDEX), (CODINGS, "gzip,deflate")]),
            part: None,
        })?;
        let page: Value = serde_json::from_slice(&fetched.body).unwrap_or_default();
        let url = page["versions"][version]["dist"]["tarball"].as_str();
        let url = url.ok_or_else(|| Missing {
            what: format!("{name} {version}"),
            why: "the registry does not name it".to_owned(),
        })?;
        Ok(Vec::from([get(Tool::Node, url.to_owned())]))
    }

    fn crates(&self, index: &str, crates: Vec<Crate>) -> Result<Vec<Job>, Missing> {
        let place = format!("{index}/config.json");
        let config = self.index(request(Tool::Cargo, place)).map(|fetched| {
            let small = fetched.body.len() <= CONFIG_BYTES_MAX;
            let config: Value = small.then(|| serde_json::from_slice(&fetched.body).ok()).flatten().unwrap_or_default();
            config["dl"].as_str().map(str::to_owned)
        });
        let dl = match config {
            Ok(Some(dl)) => dl,
            Ok(None) => return Ok(self.miss_crates(crates, "config.json of its index says no `dl`")),
            Err(missing) => return Ok(self.miss_crates(crates, &format!("{}: {}", missing.what, missing.why))),
        };
        let mut jobs = Vec::new();
        for Crate { name, version, checksum } in crates {
            jobs.push(Job::Entry(request(Tool::Cargo, format!("{index}/{}", lockfile::crate_place(&name)))));
            let url = lockfile::crate_url(&dl, &name, &version, checksum.as_deref().unwrap_or_default());
            jobs.push(get(Tool::Plain, url));
        }
        Ok(jobs)
    }

    /// None of these crates can be had.
    fn miss_crates(&self, crates: Vec<Crate>, why: &str) -> Vec<Job> {
        let state = &mut *self.state.lock();
        crates.into_iter().for_each(|one| state.miss(one.to_string(), why));
        Vec::new()
    }
}

/// Texts without the user names and passwords of the URLs in them: what is printed lands in logs.
pub fn without_user(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, behind) = rest.split_at(at + "://".len());
        let end = behind.find(|c: char| "/?#".contains(c) || c.is_whitespace()).unwrap_or(behind.len());
        let authority = &behind[..end];
        out.push_str(before);
        out.push_str(authority.rsplit_once('@').map_or(authority, |(_, host)| host));
        rest = &behind[end..];
    }
    out + rest
}

/// A file as an index names it.
#[derive(Debug, PartialEq, Eq)]
struct PythonFile {
    name: String,
    url: String,
    hash: String,
    has_metadata: bool,
}

/// The files of a page of an index, in JSON (PEP 691) or HTML (PEP 503).
fn python_files(page: &[u8]) -> Vec<PythonFile> {
    if let Ok(page) = serde_json::from_slice::<Value>(page) {
        let files = page["files"].as_array().into_iter().flatten();
        let is = |value: &Value| value.is_object() || value.as_bool() == Some(true);
        let file = |file: &Value| {
            Some(PythonFile {
                name: file["filename"].as_str()?.to_owned(),
                url: file["url"].as_str()?.to_owned(),
                hash: file["hashes"]["sha256"].as_str().map(|hash| format!("sha256:{hash}")).unwrap_or_default(),
                has_metadata: is(&file["core-metadata"]) || is(&file["data-dist-info-metadata"]),
            })
        };
        return files.filter_map(file).collect();
    }
    let text = String::from_utf8_lossy(page);
    text.split("<a ").skip(1).filter_map(anchor).collect()
}

/// A link in a page: what stands behind `<a `.
fn anchor(text: &str) -> Option<PythonFile> {
    let (attributes, rest) = text.split_once('>')?;
    let name = rest.split('<').next()?.trim().to_owned();
    let at = attributes.find("href=")? + "href=".len();
    let quote = attributes[at..].chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let href = attributes[at + 1..].split(quote).next()?.replace("&amp;", "&");
    let (url, fragment) = href.split_once('#').unwrap_or((&href, ""));
    let hash = fragment.strip_prefix("sha256=").map(|hash| format!("sha256:{hash}")).unwrap_or_default();
    let has_metadata = attributes.contains("data-core-metadata=") || attributes.contains("data-dist-info-metadata=");
    Some(PythonFile { name, url: url.to_owned(), hash, has_metadata })
}

const CODINGS: &str = "Accept-Encoding";
const PYTHON_INDEX: &str =
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html; q=0.1, text/html; q=0.01";

const NPM_INDEX: &str = "application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8, */*";

fn get(tool: Tool, url: String) -> Job {
    Job::Get(request(tool, url), Need::Needed)
}

/// A request with the fields by which responses to this tool may vary.
fn request(tool: Tool, url: String) -> LaterRequest {
    let fields = match tool {
        Tool::Plain => fields(&[("Accept", "*/*")]),
        Tool::Python => fields(&[("Accept", "*/*"), (CODINGS, "identity")]),
        Tool::Node => fields(&[("Accept", "*/*"), (CODINGS, "gzip,deflate")]),
        Tool::Cargo => fields(&[("Accept", "text/plain"), (CODINGS, "deflate, gzip"), ("Cargo-Protocol", "version=1")]),
        Tool::Go => fields(&[(CODINGS, "gzip")]),
    };
    LaterRequest { url, fields, part: None }
}

fn fields(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let agent = ("User-Agent", concat!("larder/", env!("CARGO_PKG_VERSION")));
    pairs.iter().chain([&agent]).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_secret_of_a_url_is_printed() {
        for (text, shown) in [
            ("https://user:token@a.example/simple/six/", "https://a.example/simple/six/"),
            ("git+https://TOKEN@a.example/x.git@v1 and http://b/@x", "git+https://a.example/x.git@v1 and http://b/@x"),
            ("--index https://a@b@c", "--index https://c"),
            ("six 1.0", "six 1.0"),
            ("://", "://"),
        ] {
            assert_eq!(without_user(text), shown);
        }
    }

    #[test]
    fn pages_of_an_index_in_both_forms() {
        let json = br#"{"files": [{"filename": "a-1.whl", "url": "../a-1.whl", "hashes": {"sha256": "ff"}, "core-metadata": {"sha256": "00"}},
            {"filename": "b", "url": "b", "hashes": {}, "core-metadata": false}, {"url": "c"}]}"#;
        let html = b"<!DOCTYPE html><a href=\"../a-1.whl#sha256=ff\" data-core-metadata=\"x\">a-1.whl</a><br/><a\n>no</a><a href='b?x=1&amp;y=2'>b</a>";
        let file = |name: &str, url: &str, hash: &str, has_metadata| PythonFile {
            name: name.to_owned(),
            url: url.to_owned(),
            hash: hash.to_owned(),
            has_metadata,
        };
        assert_eq!(python_files(json), [file("a-1.whl", "../a-1.whl", "sha256:ff", true), file("b", "b", "", false)]);
        assert_eq!(
            python_files(html),
            [file("a-1.whl", "../a-1.whl", "sha256:ff", true), file("b", "b?x=1&y=2", "", false)]
        );
        assert_eq!(python_files(b"<a"), []);
    }
}
