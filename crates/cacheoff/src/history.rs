//! Figures that were published from 2000 to 2015, with their sources. They stand beside new ones for the reader's memory
//! and are never ranked with them: machines, rules and workloads differed.

const CACHE_OFF: &str = include_str!("../data/cacheoff-2000.csv");
const RECORDS: &str = include_str!("../data/http-records.csv");

/// A published table.
#[derive(Debug, PartialEq, Eq)]
pub struct Published {
    /// Where it comes from and what it is, line by line.
    pub sources: Vec<String>,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows as published, in the order of the source.
    pub rows: Vec<Vec<String>>,
}

/// The Second IRCache Web Cache Cache-off, January 2000.
pub fn cache_off() -> Published {
    Published::read(CACHE_OFF)
}

/// Figures of single products that people quote, 2009 to 2015.
pub fn records() -> Published {
    Published::read(RECORDS)
}

impl Published {
    fn read(text: &str) -> Self {
        let (comments, rows): (Vec<&str>, Vec<&str>) =
            text.lines().filter(|line| !line.is_empty()).partition(|line| line.starts_with('#'));
        let mut rows = rows.into_iter().map(fields);
        Self {
            sources: comments.into_iter().map(|line| line.trim_start_matches(['#', ' ']).to_owned()).collect(),
            columns: rows.next().unwrap_or_default(),
            rows: rows.collect(),
        }
    }
}

/// Fields of a CSV line; quoted ones may hold commas.
fn fields(line: &str) -> Vec<String> {
    let (mut all, mut field, mut quoted) = (Vec::new(), String::new(), false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => all.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    all.push(field);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_cell_for_each_column_and_a_source() {
        for (table, rows) in [(cache_off(), 20), (records(), 20)] {
            assert!(table.sources.iter().any(|line| line.contains("ource")), "{:?}", table.sources);
            assert!(table.rows.len() >= rows, "{}", table.rows.len());
            for row in &table.rows {
                assert_eq!(row.len(), table.columns.len(), "{row:?}");
            }
        }
        assert_eq!(cache_off().rows[0][..3], ["Cisco CE-590", "44470", "951"]);
    }
}
