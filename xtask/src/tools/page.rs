//! The table of tools as a page of the results.

use super::network::Condition;
use std::fmt::Write;

/// A tool and what came of it.
pub struct Row {
    /// Its name.
    pub tool: &'static str,
    /// Where it downloads from, in a word.
    pub from: &'static str,
    /// Of the second run, or why there is no row.
    pub second: Result<f64, String>,
    /// A cell for each condition of the table.
    pub cells: Vec<String>,
    /// Reasons for what was not from the store.
    pub note: String,
}

/// All rows.
pub fn page(rows: &[Row], left_out: &[String]) -> String {
    let mut page = "# Real tools, again and again\n\n\
        Each tool downloads with empty caches of its own: without Larder, then through `larder run` once (not shown) and a second time. The next four columns\n\
        begin with a store that was filled 20 hours before (lifetimes of 10 minutes are over): with `--offline`, without that flag in a network where connections\n\
        are refused, in one where packets vanish, and with the network as it is. In the last column names can't be resolved, while the lab can be reached. *lab* is a local origin with the lifetimes, validators, redirections and signed URLs that large hubs send; *registry* the one that the tool\n\
        is configured for. The second run gives the share of bytes that came from the store. A cell says `ok` where the exit status was 0 and all files were\n\
        those of the run without Larder, then how long the first answer took.\n\n"
        .to_owned();
    let titles = Condition::OF_TABLE.map(Condition::title).join(" | ");
    let _ = writeln!(
        page,
        "| tool | from | second run | {titles} |\n|---|---|---|{}",
        "---|".repeat(Condition::OF_TABLE.len())
    );
    for row in rows {
        let second = match &row.second {
            Ok(share) => format!("{:.1} %", share * 100.0),
            Err(why) => why.replace('|', "/"),
        };
        let _ = writeln!(page, "| {} | {} | {second} | {} |", row.tool, row.from, row.cells.join(" | "));
    }
    page.push_str(
        "\n## Reasons\n\nWhy origins were asked in the second run, in the words of the log (docs/explain.md).\n\n",
    );
    for row in rows.iter().filter(|row| !row.note.is_empty()) {
        let _ = writeln!(page, "- {}: {}", row.tool, row.note.replace('\n', " "));
    }
    page.push_str(ABOUT_MAVEN);
    page.push_str("\n## Not in the table\n\n");
    for line in left_out.iter().map(String::as_str).chain(NOT_TRIED.iter().copied()) {
        let _ = writeln!(page, "- {line}");
    }
    page.push_str("\nMade by `cargo xtask tools --table --write`.\n");
    page
}

/// The meaning of `request` in the row of Maven.
const ABOUT_MAVEN: &str = "\nMaven says `Cache-Control: no-cache` with each request, from 3.9 on `no-store` too; the preset takes both off requests for \
    files of releases ([presets](../presets.md#maven)).\n";

/// Tools that this chore does not play, and why.
const NOT_TRIED: [&str; 4] = [
    "conda, mamba, micromamba, pixi: none is a package of the registries that were at hand (conda-express on PyPI knows one channel, which was not), so the library of pixi (rattler) reads a channel of the lab.",
    "docker pull: the daemon downloads in another process, which `larder run` does not reach: it takes `registry-mirrors` ([mirror](../mirror.md#container-registries)). podman has no daemon.",
    "Programs with certificates built in, and browsers: their tunnels stay closed.",
    "Tools in Go do not use a proxy for `localhost` or loopback addresses, whatever the variables say; here they ask by a name that only the lab has.",
];
