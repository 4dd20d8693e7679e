//! The published figures of old as a part of the page.

use super::markup::{Table, escaped};
use crate::history::{Published, cache_off, records};

/// Both tables with their sources.
pub(super) fn section() -> String {
    format!(
        "<p>Published figures, to stand beside a new run. Machines, networks, rules and workloads differed: nothing here is \
         ranked with a measurement of this report.</p><h3>The cache-off of January 2000</h3>{}<h3>Figures of single products, \
         2009 to 2015</h3>{}",
        html(&cache_off(), "dense"),
        html(&records(), "dense text")
    )
}

fn html(published: &Published, class: &str) -> String {
    let mut table = Table::new(&published.columns.iter().map(|name| column(name)).collect::<Vec<_>>());
    for row in &published.rows {
        table.row(&row.iter().map(|cell| escaped(cell)).collect::<Vec<_>>());
    }
    let line = |line: &String| format!("<p class=\"sub\">{}</p>", escaped(line));
    let class = format!("<table class=\"{class}\">");
    published.sources.iter().map(line).collect::<String>() + &table.html().replace("<table>", &class)
}

/// A heading that a person reads instead of the column's name in the file.
fn column(name: &str) -> String {
    let heading = match name {
        "price_usd" => "price, $",
        "peak_req_s" => "peak, req/s",
        "hit_s" => "hit, s",
        "all_s" => "all, s",
        "miss_s" => "miss, s",
        "dhr_pct" => "DHR, %",
        "bhr_pct" => "BHR, %",
        "req_s_per_1000usd" => "req/s per $1,000",
        "hit_s_per_1000usd" => "hit/s per $1,000",
        "first_miss_min" => "first miss, min",
        "first_hit_min" => "first hit, min",
        "cache_age_h" => "cache age, h",
        "req_s" => "requests/s",
        "hit_ratio" => "hit ratio",
        other => other,
    };
    escaped(heading)
}
