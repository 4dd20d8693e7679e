//! Whether a cell measures what it says: each contestant is asked twice, by another client than the load generators,
//! before the rounds and after them. The origin gives every answer a name of its own, so the same name twice is a
//! hit, whatever a cache says of it; the bodies must be those of the origin.

use super::cells::{Ask, BODIES, Body, Cell};
use super::field::{Contestant, Kind};
use super::tool::{Load, Script};
use crate::http::Connection;
use crate::lab::Lab;
use crate::shell::{self, Trouble};
use std::process::Command;

/// Asks a contestant as the cell does; gives what it showed, in a few words.
pub fn prove(cell: &Cell, contestant: &Contestant, lab: &Lab, origin: u16) -> Result<String, Trouble> {
    let load = cell.load(contestant, origin);
    if cell.ask == Ask::Handshake {
        return prove_handshake(&load.url);
    }
    let (first, second) = ask_twice(&load, lab)?;
    for answer in [&first, &second] {
        answer.judge(load.status, cell.body(), contestant.kind)?;
    }
    if load.status != 200 {
        return Ok(format!("refused with {}", load.status));
    }
    if contestant.kind == Kind::Limit {
        return Ok("a fixed reply".into());
    }
    judge_names(&first, &second, matches!(cell.ask, Ask::Miss(_)))
}

/// Asks Larder as a load does; an error unless that is a hit.
pub fn prove_hit(load: &Load, lab: &Lab) -> Result<String, Trouble> {
    let (first, second) = ask_twice(load, lab)?;
    judge_names(&first, &second, false)
}

fn judge_names(first: &Answer, second: &Answer, wants_misses: bool) -> Result<String, Trouble> {
    let is_same = first.name == second.name && !first.name.is_empty();
    let said = second.cache_status.as_ref().map_or(String::new(), |said| format!(", \"{said}\""));
    match (wants_misses, is_same) {
        (true, false) => Ok(format!("two answers of the origin{said}")),
        (true, true) => Err(format!("not a miss: the same answer of the origin twice{said}")),
        (false, true) => Ok(format!("one answer of the origin twice{said}")),
        (false, false) => Err(format!("not a hit: two answers of the origin{said}")),
    }
}

/// The second and the third answer: what a cache does with the first one differs, for it is stored meanwhile.
fn ask_twice(load: &Load, lab: &Lab) -> Result<(Answer, Answer), Trouble> {
    let (mut flags, base) = (Vec::new(), load.url.trim_end_matches('/'));
    let url = match &load.script {
        Script::Forward(url, _) => {
            flags.extend(["-x".to_owned(), base.to_owned()]);
            url.clone()
        }
        Script::Blocked(count) => {
            flags.extend(["-x".to_owned(), base.to_owned()]);
            format!("http://blocked{}.example/page", count / 2)
        }
        Script::Zipf(folder, count, hosts) => {
            let object = count / 2;
            flags.extend(["-H".to_owned(), format!("Host: h{}.test", object % hosts)]);
            format!("{base}{folder}{object}")
        }
        Script::Uniform(folder, count) | Script::Sequence(folder, _, count) => format!("{base}{folder}{}", count / 2),
        Script::Unique => format!("{}?proof", load.url),
        Script::Plain | Script::Pipeline(_) => load.url.clone(),
    };
    ask(lab, &flags, &url)?;
    Ok((ask(lab, &flags, &url)?, ask(lab, &flags, &url)?))
}

struct Answer {
    status: u16,
    name: String,
    cache_status: Option<String>,
    body: Vec<u8>,
}

impl Answer {
    fn judge(&self, status: u16, body: Option<Body>, kind: Kind) -> Result<(), Trouble> {
        if self.status != status {
            return Err(format!("answers {}, not {status}", self.status));
        }
        let Some(body) = body else { return Ok(()) };
        if self.body.len() != body.bytes || (kind != Kind::Limit && self.body != content(body)) {
            return Err(format!("{}: {} bytes, not those of the origin", body.path, self.body.len()));
        }
        Ok(())
    }
}

/// Different bytes at each place, so that a body cut or shifted is not the same.
pub fn content(body: Body) -> Vec<u8> {
    (0..body.bytes).map(|at| b'a' + (at / 7 % 26) as u8).collect()
}

/// Every body of the origin by its path.
pub fn contents() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    BODIES.into_iter().map(|body| (body.path, content(body)))
}

fn ask(lab: &Lab, flags: &[String], url: &str) -> Result<Answer, Trouble> {
    let (head, body) = (lab.path().join("proof.head"), lab.path().join("proof.body"));
    let mut curl = Command::new(shell::need_program("curl")?);
    curl.args(["-s", "-k", "--http1.1", "-m", "20", "--noproxy", ""]).args(flags);
    shell::ask(curl.arg("-D").arg(&head).arg("-o").arg(&body).arg(url))?;
    let read = |path| std::fs::read(path).map_err(|error| format!("reading what curl got: {error}"));
    let text = String::from_utf8_lossy(&read(head)?).into_owned();
    let field = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
    };
    let status = text.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    Ok(Answer {
        status: status.ok_or_else(|| format!("no status from {url}"))?,
        name: field("answer-name").unwrap_or_default(),
        cache_status: field("cache-status"),
        body: read(body)?,
    })
}

/// The protocol and the cipher: two servers that choose otherwise are not comparable.
fn prove_handshake(url: &str) -> Result<String, Trouble> {
    let target = url.trim_start_matches("https://").trim_end_matches('/');
    let mut openssl = Command::new(shell::need_program("openssl")?);
    let said = shell::ask(openssl.args(["s_client", "-connect", target]))?;
    let line = said.lines().find(|line| line.starts_with("New, ") && line.contains("Cipher is"));
    line.map(str::to_owned).ok_or_else(|| "no new session".into())
}

/// Asks for every object once; gives an error where one does not come.
pub fn fill(port: u16, folder: &str, objects: u64, hosts: Option<u64>) -> Result<(), Trouble> {
    std::thread::scope(|scope| {
        let fillers: Vec<_> = (0..FILLERS)
            .map(|first| {
                scope.spawn(move || fill_part(port, folder, (first..objects).step_by(FILLERS as usize), hosts))
            })
            .collect();
        fillers.into_iter().try_for_each(|filler| filler.join().map_err(|_| "a filling thread panicked")?)
    })
}

const FILLERS: u64 = 8;

fn fill_part(port: u16, folder: &str, objects: impl Iterator<Item = u64>, hosts: Option<u64>) -> Result<(), Trouble> {
    let mut connection = Connection::open(port)?;
    for object in objects {
        let host = hosts.map_or_else(|| format!("127.0.0.1:{port}"), |hosts| format!("h{}.test", object % hosts));
        let request = format!("GET {folder}{object} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = connection.ask(request.as_bytes(), false)?;
        if answer.status != 200 {
            return Err(format!("object {folder}{object}: status {}", answer.status));
        }
        if !answer.keeps {
            connection = Connection::open(port)?;
        }
    }
    Ok(())
}
