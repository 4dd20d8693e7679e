//! The published results: the newest page of each measurement, `docs/results/NAME.md`. Earlier ones are in the history.

use crate::shell::{self, Trouble};
use std::path::Path;
use std::process::Command;

/// Writes a page in place of the last one of that name, with the date below its title.
pub fn publish(root: &Path, name: &str, page: &str) -> Result<(), Trouble> {
    let date = shell::ask(Command::new("date").arg("+%F"))?;
    write(root, &format!("{name}.md"), &dated(page, date.trim()))
}

/// Writes the picture that a page of that name shows.
pub fn publish_picture(root: &Path, name: &str, svg: &str) -> Result<(), Trouble> {
    write(root, &format!("{name}.svg"), svg)
}

fn write(root: &Path, name: &str, text: &str) -> Result<(), Trouble> {
    let file = root.join("docs/results").join(name);
    std::fs::write(&file, text).map_err(|error| format!("writing {}: {error}", file.display()))?;
    println!("written to {}", file.display());
    Ok(())
}

fn dated(page: &str, date: &str) -> String {
    let (title, rest) = page.split_once('\n').unwrap_or((page, ""));
    format!("{title}\n\nMeasured on {date}.\n{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_stands_below_the_title() {
        assert_eq!(dated("# A\n\ntext\n", "2026-01-02"), "# A\n\nMeasured on 2026-01-02.\n\ntext\n");
        assert_eq!(dated("# A", "2026-01-02"), "# A\n\nMeasured on 2026-01-02.\n");
    }
}
