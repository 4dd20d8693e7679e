//! Tables for a terminal.

use crate::explain::Harmless;
use std::fmt::Write;

/// A table whose first columns are words, and the others numbers.
pub(super) fn columns<const N: usize>(heads: &[&str; N], rows: &[[String; N]], words: usize) -> String {
    let shown = |cell: &String| Harmless(cell).to_string();
    let rows: Vec<[String; N]> = rows.iter().map(|row| row.each_ref().map(shown)).collect();
    let width = |at: usize| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells.chain([heads[at].chars().count()]).max().unwrap_or_default()
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let mut out = String::new();
    for row in [heads.map(str::to_owned)].iter().chain(&rows) {
        for (at, cell) in row.iter().enumerate() {
            let width = widths[at];
            let _ = match at {
                at if at < words => write!(out, "{cell:width$}  "),
                _ => write!(out, "{cell:>width$}  "),
            };
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_their_heads() {
        let rows = [["a:b", "serving", "10"], ["long:name", "failed", "2"]].map(|row| row.map(str::to_owned));
        let expected = "name       state    many\na:b        serving    10\nlong:name  failed      2\n";
        assert_eq!(columns(&["name", "state", "many"], &rows, 2), expected);
    }
}
