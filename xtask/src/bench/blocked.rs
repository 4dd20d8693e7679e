//! A million blocked names before a forward proxy: refusals, and hits of 16 KB for which the list was asked in vain. Larder and Squid, each
//! with its own list and with squidGuard, the helper that both start unmodified.
//!
//! The case is one that the makers of a filter published: 9,551 refusals and 4,955 hits of 16 KB a second of Squid with their service.

use super::field::on_core;
use super::report::{figure, machine, median};
use super::table::{Origin, turn};
use super::tool::{Load, Sample, Script, Tool};
use crate::http::Connection;
use crate::lab::{self, Lab};
use crate::shell::{self, Trouble};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Names of the list.
const NAMES: u64 = 1_000_000;
const CONNECTIONS: usize = 64;
/// Processes of squidGuard.
const CHILDREN: usize = 4;

/// The proxy, and what decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    LarderList,
    LarderGuard,
    SquidList,
    SquidGuard,
}

const KINDS: [Kind; 4] = [Kind::LarderList, Kind::LarderGuard, Kind::SquidList, Kind::SquidGuard];

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Kind::LarderList => "Larder, `[[list]]`",
            Kind::LarderGuard => "Larder, squidGuard",
            Kind::SquidList => "Squid, `acl dstdomain`",
            Kind::SquidGuard => "Squid, squidGuard",
        }
    }

    /// squidGuard leads elsewhere, a list refuses.
    fn status(self) -> u16 {
        match self {
            Kind::LarderList | Kind::SquidList => 403,
            Kind::LarderGuard | Kind::SquidGuard => 302,
        }
    }
}

struct Contestant {
    kind: Kind,
    id: u32,
    port: u16,
    refusals: Vec<Sample>,
    hits: Vec<Sample>,
}

/// Plays all and gives the page.
pub fn play(root: &Path, rounds: usize, seconds: u64) -> Result<String, Trouble> {
    ["squid", "squidGuard"].into_iter().try_for_each(|program| shell::need_program(program).map(drop))?;
    shell::build_published(root, "larder", &["larder"])?;
    let (mut lab, origin) = Origin::in_a_new_lab()?;
    write_lists(&lab)?;
    let mut contestants = Vec::new();
    for kind in KINDS {
        let started = start(kind, root, &mut lab)?;
        prove(&started, &origin)?;
        contestants.push(started);
    }
    for round in 0..=rounds {
        let mut order: Vec<usize> = (0..contestants.len()).collect();
        turn(&mut order, round);
        for at in order {
            let contestant = &mut contestants[at];
            let (refusals, hits) = (contestant.refusal_load(), contestant.hit_load(&origin));
            let refusals = refusals.sample(&lab, contestant.id, origin.id, seconds, round as u64)?;
            let hits = hits.sample(&lab, contestant.id, origin.id, seconds, round as u64)?;
            // The first one warms up.
            if round > 0 {
                contestant.refusals.push(refusals);
                contestant.hits.push(hits);
            }
        }
        println!("blocked, round {round} of {rounds}");
    }
    Ok(page(rounds, seconds, &contestants))
}

/// The names as each program reads them, and squidGuard's as its database.
fn write_lists(lab: &Lab) -> Result<(), Trouble> {
    let names = |dot: &str| (0..NAMES).fold(String::new(), |text, at| text + dot + &format!("blocked{at}.example\n"));
    lab.write("names", names(""))?;
    lab.write("dotted", names("."))?;
    lab.folder("guard")?;
    lab.write("guard/names", names(""))?;
    let home = lab.path().join("guard").display().to_string();
    let conf = format!(
        "dbhome {home}\nlogdir {home}\ndest names {{\n domainlist names\n}}\nacl {{\n default {{\n  pass !names all\n  \
         redirect 302:http://127.0.0.1:1/blocked\n }}\n}}\n"
    );
    let conf = lab.write("guard/conf", conf)?;
    shell::ask(Command::new("squidGuard").args(["-C", "names", "-c"]).arg(conf))?;
    // Squid's helpers run as its user.
    shell::ask(Command::new("chmod").args(["-R", "a+rwX"]).arg(&home)).map(drop)
}

fn start(kind: Kind, root: &Path, lab: &mut Lab) -> Result<Contestant, Trouble> {
    let port = lab::free_port()?;
    let name = format!("{kind:?}");
    let folder = lab.folder(&name)?.display().to_string();
    let here = lab.path().display().to_string();
    let (conf, mut command) = match kind {
        Kind::LarderList | Kind::LarderGuard => {
            let filter = if kind == Kind::LarderList {
                format!(
                    "[[list]]\nname = \"names\"\nformat = \"domains\"\nsource = \"{here}/names\"\n[[rule]]\nwhen = {{ list = \"names\" }}\ndo = {{ deny = true }}\n"
                )
            } else {
                format!(
                    "[[helper]]\nname = \"guard\"\nkind = \"url_rewrite\"\ncommand = [\"squidGuard\", \"-c\", \"{here}/guard/conf\"]\nchildren = {CHILDREN}\nstartup = {CHILDREN}\n[forward]\nurl_rewrite = \"guard\"\n"
                )
            };
            let text = format!(
                "store = \"{folder}/store\"\nadmin = \"none\"\nworkers = 1\ndisk = \"0\"\nmemory = \"256MB\"\n[[listen]]\naddress = \"127.0.0.1:{port}\"\nforward = true\n[limits]\nconnections_per_client_max = \"none\"\norigin_share_percent = 100\n[log]\nto = \"none\"\n{filter}"
            );
            let mut command = on_core(0, &shell::published(root, "larder").display().to_string())?;
            command.arg("--config");
            (lab.write(&format!("{name}/larder.toml"), text)?, command)
        }
        Kind::SquidList | Kind::SquidGuard => {
            let filter = if kind == Kind::SquidList {
                format!("acl names dstdomain \"{here}/dotted\"\nhttp_access deny names\n")
            } else {
                format!(
                    "url_rewrite_program /usr/bin/squidGuard -c {here}/guard/conf\nurl_rewrite_children {CHILDREN} startup={CHILDREN} idle=1 concurrency=0\nurl_rewrite_bypass off\n"
                )
            };
            let text = format!(
                "http_port 127.0.0.1:{port}\n{filter}http_access allow all\ncache_mem 256 MB\nmaximum_object_size_in_memory 512 KB\nmemory_pools off\n\
                 collapsed_forwarding on\naccess_log none\ncache_store_log none\ncache_log {folder}/cache.log\ncoredump_dir {folder}\npid_filename {folder}/pid\n\
                 visible_hostname lab\ndns_nameservers 127.0.0.1\npinger_enable off\nicp_port 0\nclient_db off\nshutdown_lifetime 0 seconds\n"
            );
            let mut command = on_core(0, "squid")?;
            // Names of its shared memory hang on the service name.
            command.args(["-n", &format!("lab{port}"), "-N", "-f"]);
            (lab.write(&format!("{name}/squid.conf"), text)?, command)
        }
    };
    let id = lab.start(&name, command.arg(conf), port)?;
    Ok(Contestant { kind, id, port, refusals: Vec::new(), hits: Vec::new() })
}

impl Contestant {
    fn refusal_load(&self) -> Load {
        self.load(Script::Blocked(NAMES), self.kind.status())
    }

    fn hit_load(&self, origin: &Origin) -> Load {
        let authority = format!("127.0.0.1:{}", origin.port);
        self.load(Script::Forward(format!("http://{authority}/16k"), authority), 200)
    }

    fn load(&self, script: Script, status: u16) -> Load {
        let tool = Tool::Wrk { connections: CONNECTIONS, closes: false };
        Load { tool, url: format!("http://127.0.0.1:{}", self.port), script, status }
    }
}

/// Names at both ends of the list are refused, and an object comes from the store the second time.
fn prove(contestant: &Contestant, origin: &Origin) -> Result<(), Trouble> {
    let name = contestant.kind.as_str();
    let ask = |host: &str, path: &str| {
        let request = format!("GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        Connection::open(contestant.port)?.ask(request.as_bytes(), false)
    };
    for number in [0, NAMES / 2, NAMES - 1] {
        let status = ask(&format!("blocked{number}.example"), "/page")?.status;
        if status != contestant.kind.status() {
            return Err(format!("{name}: answers {status} for a blocked name"));
        }
    }
    let authority = format!("127.0.0.1:{}", origin.port);
    ask(&authority, "/16k")?;
    let (first, second) = (ask(&authority, "/16k")?, ask(&authority, "/16k")?);
    if first.status != 200
        || first.field("answer-name").is_none()
        || first.field("answer-name") != second.field("answer-name")
    {
        return Err(format!("{name}: /16k is not a hit"));
    }
    Ok(())
}

fn page(rounds: usize, seconds: u64, contestants: &[Contestant]) -> String {
    let mut text = format!(
        "# A million blocked names\n\n`cargo xtask bench blocked`: forward proxies with one process or worker, without an access log, on core 0 with their helpers; wrk with \
         {CONNECTIONS} kept connections on core 1; a warm-up and {rounds} alternated rounds of {seconds} s, medians; {}. Refusals are of names drawn anew for each request \
         from a list of {NAMES}; hits are of 16 KB, and the list is asked about them too. CPU is that of the proxy and its helpers. squidGuard has {CHILDREN} processes, \
         which answer by a redirection (302); a list refuses (403).\n\n\
         | proxy | refusals/s | CPU µs | p99 ms | hits of 16 KB/s | CPU µs | p99 ms | errors |\n|---|---:|---:|---:|---:|---:|---:|---:|\n",
        machine(),
    );
    for contestant in contestants {
        let figures = |samples: &[Sample]| {
            let of = |pick: fn(&Sample) -> f64| median(samples.iter().map(pick).collect());
            format!("{:.0} | {} | {:.2}", of(|it| it.rate), figure(of(|it| it.cpu_micros)), of(|it| it.p99_millis))
        };
        let errors: u64 = contestant.refusals.iter().chain(&contestant.hits).map(|sample| sample.errors).sum();
        let (refusals, hits) = (figures(&contestant.refusals), figures(&contestant.hits));
        let _ = writeln!(text, "| {} | {refusals} | {hits} | {errors} |", contestant.kind.as_str());
    }
    text += "\nThe makers of a filter for Squid published 9,551 refusals and 4,955 hits of 16 KB a second of it, on another machine: 1.93 refusals for a hit.\n";
    text
}
