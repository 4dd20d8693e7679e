//! The reference of all knobs, as it stands in `docs/workloads.md`.

use super::builtin::BUILTIN;
use super::draft::{ContentDraft, PhaseDraft};
use super::knob::{Knob, section_of};
use super::table::{CONTENT, KNOBS, PHASE};
use super::{PAGE_WORKLOADS, Workload, variants};
use std::fmt::Write;

const INTRODUCTION: &str = "# Workloads

This page is made from the table that the parser uses; `cacheoff check --markdown` prints it.

A workload is one TOML file. Those below come with the program: `cacheoff run NAME`, or `cacheoff run NAME --variant VARIANT`. Your
own is a file: `cacheoff run ./mine.toml`, best begun as a copy (`cacheoff list NAME` prints one). `cacheoff check` explains
a workload in English, says what an ideal cache would do with it, and shows everything that is wrong with it.
`--set KNOB=VALUE` changes a knob for one run: `--set robot.protocol=http/1.1`, `--set content.html.cachable=50%`.

Shares: `55%`, `0.55`, or a quotient such as `55% / 80%`. Times: `us`, `ms`, `s`, `min`, `h`, `d`, `y`. Sizes: `B`, `KB`, `MB`, `GB`, `TB`,
where KB is 1,024 bytes, as in all workloads of Web Polygraph. Bandwidth: `bps`, `kbps`, `Mbps`, `Gbps`.

Distributions: `x` or `const(x)`, `unif(low, high)`, `exp(mean)`, `norm(mean, deviation)` (the sum of twelve uniforms),
`logn(mean, deviation)` (of the result), `zipf(n)` = floor((n+1)^U), as Web Polygraph defines them; and `zipf(n, alpha)` (ranks with
weights rank^-alpha), `pareto(low, high, alpha)`, `quantiles(0%: x, 50%: y, 100%: z)` (up to eight points).

A workload with `replay` asks what a log asked, in its order and at its times: `cacheoff run replay --log FILE`. Bodies have the size of
the first request for their URL in the log; `--scale 0.1` plays the first six minutes. `cacheoff simulate` does it without a network.
In a contest it is `--workload replay:log=FILE`, and `replay:log=FILE:content.logged.cache_control=max-age=60` gives all objects that lifetime.

A log of JSON lines or of columns may say how long each object stays fresh, in seconds of the log: by the key, or the named column, `ttl` or `lifetime`. The first line of columns names
them then (`time,object,size,ttl`, in any order, with others beside them; a `#` may stand before it). The first request for an object whose cell is not empty decides; the other objects have the workload's lifetime. `replay.speed` divides the lifetime, in whole
seconds of at least one, and 0 stays 0. A cell that is no number of seconds makes its line one that is passed over. Offered and ideal hits count what has expired as fetched again. Records of oracleGeneral have no lifetimes.

A `[[variant]]` changes knobs: `set = { \"content.page.size\" = \"1MB\" }`. `content.NAME.KNOB` and `phase.NAME.KNOB` name those of lists.

Robots speak TLS where `robot.tls` says so, or `--tls`, or `--site https://…`; TLS 1.3 or 1.2, what the other end prefers. To a reverse proxy they
speak it themselves, and its origins speak clear text: `--ca FILE` says whose certificates they believe, `--insecure` that they believe all, which
reports repeat. Without a proxy, and through CONNECT tunnels of a forward proxy, the origins speak it, with certificates of an authority that is made
for the run: robots know it, `--ca-out FILE` writes its certificate for a cache that looks into tunnels, and `--ca FILE` has that cache's own. A
tunnel that is not looked into has no hits. Each robot keeps its own sessions and resumes them. Response times have the handshake in them; a modelled
link delays it by its round trips. A connection that cannot be verified is the error `tls`, never clear text.

In a contest the referee makes an authority for each play, and the entry gets a certificate of it (`[listener.https]` and `[listener.h2]` of its `entry.toml`).

Robots speak HTTP/2 where `robot.protocol` says `h2c` (in the clear, by prior knowledge) or `h2` (over TLS, by ALPN), to a reverse proxy, and `h2c` to a forward proxy. A robot
has one connection to a host, as browsers have, and on it up to `robot.streams_max` requests side by side; the objects of a page are asked for at once. A connection takes as many requests as
`robot.connection_uses` drew for it: the next one begins a new connection, where `robot.connections_max` permits one more, while those under way end on the old one. 1, the default, is refused: nothing would go side by side. Windows are those of
`robot.stream_window` and `robot.connection_window`. Origins speak HTTP/1.1, so that HTTP/2 without a cache is refused, as it is through tunnels, over a `client_link`, and with
`robot.read_rate` or `robot.pipeline`; agents play `h2c` alone, as they speak no TLS. HTTP/3 is out of reach: Cacheoff has no QUIC.

Features that the engine does not play are refused, never left out: HTTP/2 where it says so above, several requests at once on connections with a
`client_link`. A dark phase wants `--cut` and `--again`. Where URLs have names (`server.names`), a forward proxy looks them up: those that a contest starts
see an `/etc/hosts` with them (in a mount namespace); for others `--names FILE` writes it.
";

const APPLICATION_SERVERS: &str = "
## Those for application servers

Two workloads ask servers that make pages, not caches: `cacheoff contest --workload page,board`, with the entries that are named in
[entries/README.md](../crates/cacheoff/entries/README.md). They are no files. In a contest some knobs are changed as those of other workloads:
`robot.count` (connections at a time), `robot.connection_uses` (requests of a connection, `none` for no limit), `phase.warm.length` and
`phase.measure.length`, as in `board:robot.count=50:phase.measure.length=30s`. `peak` makes them an open loop: so many requests per second are due at
times that are drawn, and each waits for a free connection; the wait counts. [referee.md](referee.md) says how replies are checked.

| name | what it models |
|---|---|
";

/// The whole page.
pub fn markdown() -> String {
    let mut out = INTRODUCTION.to_owned();
    out.push_str("\n## Those that come with the program\n\n| name | what it models |\n|---|---|\n");
    for builtin in BUILTIN {
        let Ok(workload) = builtin.workload(None) else { continue };
        let _ = writeln!(out, "| `{}` | {} |", builtin.name, workload.about);
        for (name, about) in variants(builtin.text) {
            let _ = writeln!(out, "| `{} --variant {name}` | {about} |", builtin.name);
        }
    }
    out.push_str(APPLICATION_SERVERS);
    for workload in PAGE_WORKLOADS {
        let _ = writeln!(out, "| `{}` | {} |", workload.name, workload.about);
        for variant in workload.variants {
            let _ = writeln!(out, "| `{}:variant={}` | {} |", workload.name, variant.name, variant.about);
        }
    }
    let empty = Workload::empty();
    let mut sections: Vec<&str> = Vec::new();
    for knob in KNOBS {
        let section = section_of(knob.name);
        if !sections.contains(&section) {
            sections.push(section);
        }
    }
    for section in sections {
        let title = if section.is_empty() { "Top of the file".to_owned() } else { format!("`[{section}]`") };
        table(&mut out, &title, KNOBS.iter().filter(|knob| section_of(knob.name) == section), &empty);
    }
    table(&mut out, "`[[content]]`, at least one", CONTENT.iter(), &ContentDraft::empty());
    table(&mut out, "`[[phase]]`, at least one", PHASE.iter(), &PhaseDraft::empty());
    out
}

fn table<T: Clone + 'static>(out: &mut String, title: &str, knobs: impl Iterator<Item = &'static Knob<T>>, empty: &T) {
    let _ = write!(out, "\n## {title}\n\n| knob | takes | default | |\n|---|---|---|---|\n");
    for knob in knobs {
        let key = knob.name.rsplit('.').next().unwrap_or(knob.name);
        let limits = knob.limits().map_or_else(String::new, |limits| format!(" {limits}"));
        let default = match (knob.required, knob.show(empty)) {
            (true, _) => "required".to_owned(),
            (false, default) if default.is_empty() => "none".to_owned(),
            (false, default) => format!("`{default}`"),
        };
        let _ = writeln!(out, "| `{key}` | {}{limits} | {default} | {} |", knob.form(), knob.about);
    }
}
