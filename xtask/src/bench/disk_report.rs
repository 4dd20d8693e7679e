//! The page of the comparison of stores, as Markdown.

use super::disk_results::{CONNECTIONS, MEMORY_BYTES, Row, SET_BYTES, Sample, Size};
use super::report::{machine, median};
use std::fmt::Write;

/// The page: remarks that are true of all tables, then the tables.
pub fn page(rounds: usize, seconds: u64, versions: &[String], tables: &[String]) -> String {
    let about = format!(
        "`cargo xtask bench disk`. Server on core 0; load ({CONNECTIONS} kept connections) and origin together on core 1; {}. \
         Each server has {} MB of memory tier (nginx has none: it relies on the page cache) and 2 GB of disk; the working set is \
         {} MB of bodies. Their files are in the page cache: this measures the servers, not the device. {rounds} alternated rounds, \
         each fills a part of the set; then a warm-up and {rounds} alternated rounds of {seconds} s of uniformly drawn objects. Medians; \
         ratios are CPU time to Larder's, round by round (above 1: Larder needs less). CPU time includes half a second after each load. \
         \"A core\" is 1 s of CPU divided by the CPU of one answer; \"seen\" is what the load saw, which with the origin on the same \
         core is mostly the limit. Where less was written than the bodies are long and no hit asked the origin, the server held the rest in memory. Every length is checked, every byte of one object in 16. Written: `write_bytes` of the server's \
         processes, without what the file system writes for itself. On disk: blocks allocated beyond those of the empty store.",
        machine(),
        MEMORY_BYTES / 1_000_000,
        SET_BYTES / 1_000_000,
    );
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let limit = descriptors.map_or(String::new(), |most| {
        format!(
            "\n\nA process may have {most} open files here, so nginx keeps that many open less some; with more objects than \
             that it opens files for hits, which it would not with a higher limit."
        )
    });
    format!(
        "# Hits and fills of stores on disk\n\n{about}{limit}\n\nServers: {}.\n\n{}",
        versions.join(", "),
        tables.join("\n")
    )
}

/// A row per server, then Larder against the best of the others in each column.
pub fn table(size: Size, rows: &[Row]) -> String {
    let mut text = format!(
        "## {}, {} objects\n\n| server | fill µs CPU | ratio | fills/s a core | seen | hit µs CPU | ratio | hits/s a core | seen | hits that asked \
         the origin | written / bodies | on disk / bodies | empty store MB | wrong | compared |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        size.name,
        size.objects()
    );
    for row in rows {
        let (fill, hit) = (cpu(&row.fills), cpu(&row.hits));
        let both = || row.fills.iter().chain(&row.hits);
        writeln!(
            text,
            "| {} | {fill:.1} | {:.2} | {:.0} | {:.0} | {hit:.1} | {:.2} | {:.0} | {:.0} | {:.2} % | {:.3} | {:.3} | {:.1} | {} | {} |",
            row.kind.as_str(),
            ratio(&row.fills, &rows[0].fills),
            1e6 / fill,
            median(row.fills.iter().map(|sample| sample.rate).collect()),
            ratio(&row.hits, &rows[0].hits),
            1e6 / hit,
            median(row.hits.iter().map(|sample| sample.rate).collect()),
            median(row.hits.iter().map(|sample| sample.origin_share * 100.0).collect()),
            row.written,
            row.space,
            row.space_at_start as f64 / 1e6,
            both().map(|sample| sample.wrong).sum::<u64>(),
            both().map(|sample| sample.compared).sum::<u64>(),
        )
        .ok();
    }
    text.push_str(&against_the_best(rows));
    text
}

/// A column: its name, its value, and the peers' ratio to Larder in it.
type Column = (&'static str, fn(&Row, &Row) -> f64);

const COLUMNS: [Column; 4] = [
    ("fill CPU", |row, first| ratio(&row.fills, &first.fills)),
    ("hit CPU", |row, first| ratio(&row.hits, &first.hits)),
    ("written", |row, first| row.written / first.written),
    ("on disk", |row, first| row.space / first.space),
];

fn against_the_best(rows: &[Row]) -> String {
    let Some((first, peers)) = rows.split_first().filter(|(_, peers)| !peers.is_empty()) else { return String::new() };
    let mut text = String::from("\n| the best peer to Larder | ratio | who | |\n|---|---:|---|---|\n");
    for (name, column) in COLUMNS {
        let best = peers.iter().map(|row| (column(row, first), row.kind.as_str()));
        let Some((ratio, who)) = best.min_by(|a, b| a.0.total_cmp(&b.0)) else { continue };
        writeln!(text, "| {name} | {ratio:.2} | {who} | {} |", verdict(ratio)).ok();
    }
    text
}

fn verdict(ratio: f64) -> &'static str {
    match ratio {
        ratio if ratio.is_nan() => "not known",
        ratio if ratio > 1.02 => "Larder ahead",
        ratio if ratio < 0.98 => "**Larder behind**",
        _ => "level",
    }
}

fn cpu(samples: &[Sample]) -> f64 {
    median(samples.iter().map(|sample| sample.cpu_micros).collect())
}

fn ratio(samples: &[Sample], first: &[Sample]) -> f64 {
    median(samples.iter().zip(first).map(|(sample, first)| sample.cpu_micros / first.cpu_micros).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Kind;

    fn row(kind: Kind, micros: f64) -> Row {
        let sample = Sample { cpu_micros: micros, rate: 1.0, origin_share: 0.0, wrong: 0, compared: 1 };
        Row { kind, fills: vec![sample; 3], hits: vec![sample; 3], written: micros, space: 1.0, space_at_start: 0 }
    }

    #[test]
    fn the_best_peer_is_named_where_larder_is_behind_too() {
        let text = against_the_best(&[row(Kind::Larder, 2.0), row(Kind::Nginx, 4.0), row(Kind::Squid, 1.0)]);
        assert!(text.contains("| hit CPU | 0.50 | squid | **Larder behind** |"), "{text}");
        assert!(text.contains("| on disk | 1.00 | nginx | level |"), "{text}");
    }
}
