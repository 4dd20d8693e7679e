//! HTML by hand: escaping, tables, folded parts.

/// Text that is safe in HTML, attributes too.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A table whose first column names the rows; it scrolls by itself where the screen is narrow.
pub(super) struct Table {
    html: String,
    rows: usize,
}

impl Table {
    /// With headings, as HTML.
    pub(super) fn new(headings: &[String]) -> Self {
        let cells: String = headings.iter().map(|heading| format!("<th scope=\"col\">{heading}</th>")).collect();
        Self { html: format!("<div class=\"scroll\"><table><thead><tr>{cells}</tr></thead><tbody>"), rows: 0 }
    }

    /// With plain headings.
    pub(super) fn plain(headings: &[&str]) -> Self {
        Self::new(&headings.iter().map(|heading| escaped(heading)).collect::<Vec<_>>())
    }

    /// Adds a row of cells, as HTML.
    pub(super) fn row(&mut self, cells: &[String]) {
        self.html.push_str("<tr>");
        for (place, cell) in cells.iter().enumerate() {
            match place {
                0 => self.html.push_str(&format!("<th scope=\"row\">{cell}</th>")),
                _ => self.html.push_str(&format!("<td>{cell}</td>")),
            }
        }
        self.html.push_str("</tr>");
        self.rows += 1;
    }

    /// Adds a heading over the next rows.
    pub(super) fn heading(&mut self, text: &str, columns: usize) {
        self.html.push_str(&format!(
            "<tr class=\"group\"><th colspan=\"{columns}\" scope=\"rowgroup\"><span>{text}</span></th></tr>"
        ));
    }

    /// The table, or nothing if it has no rows.
    pub(super) fn html(self) -> String {
        if self.rows == 0 { String::new() } else { self.html + "</tbody></table></div>" }
    }
}

/// A part that is folded at first. Nothing if it has no content.
pub(super) fn folded(summary: &str, content: &str) -> String {
    if content.is_empty() {
        return String::new();
    }
    format!("<details><summary>{summary}</summary>{content}</details>")
}

/// A text word for word.
pub(super) fn verbatim(text: &str) -> String {
    format!("<pre tabindex=\"0\">{}</pre>", escaped(text))
}
