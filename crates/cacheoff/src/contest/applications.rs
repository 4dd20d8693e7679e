//! The applications that come with the program, for servers that make pages.

/// The applications that come with the program.
const APPLICATIONS: &[(&str, &str)] = &[
    ("board.py", include_str!("../../entries/applications/board.py")),
    ("board.php", include_str!("../../entries/applications/board.php")),
    ("board.pm", include_str!("../../entries/applications/board.pm")),
    ("board.ru", include_str!("../../entries/applications/board.ru")),
    ("hello.py", include_str!("../../entries/applications/hello.py")),
];

/// The text of an application that comes with the program.
pub(super) fn application(name: &str) -> Result<&'static str, String> {
    let known = || APPLICATIONS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let found = APPLICATIONS.iter().find(|(each, _)| *each == name);
    found.map(|(_, text)| *text).ok_or_else(|| format!("there is no application {name:?}, only {}", known()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_is_found_by_its_name() {
        assert!(application("board.py").unwrap().contains("def application"));
        assert!(application("forum.py").unwrap_err().contains("no application \"forum.py\", only board.py"));
    }
}
