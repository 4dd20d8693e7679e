//! The fate of each directive of a source.

use std::fmt::{self, Write};

/// The fate of a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// Larder does the same without it.
    NotNeeded,
    /// A setting does the same.
    Translated,
    /// A setting does something that is close; the note says how it differs.
    Different,
    /// Larder can't; the note says what happens instead.
    Missing,
}

impl Fate {
    /// All of them.
    pub const ALL: [Fate; 4] = [Fate::Translated, Fate::Different, Fate::NotNeeded, Fate::Missing];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Fate::NotNeeded => "not needed",
            Fate::Translated => "translated",
            Fate::Different => "different",
            Fate::Missing => "missing",
        }
    }
}

/// One directive of the source, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The file.
    pub file: String,
    /// Its line, from 1.
    pub line: usize,
    /// The directive as it stands there, on one line, without secrets.
    pub source: String,
    /// Its name: the first word.
    pub directive: String,
    /// Its fate.
    pub fate: Fate,
    /// How it differs, why it is not needed, or what happens instead.
    pub text: String,
    /// Whether it decides who may do what.
    pub is_guard: bool,
}

/// Longer directives are cut in comments and tables.
const SHOWN_CHARS_MAX: usize = 160;

impl Note {
    /// A directive whose fate is not known yet.
    pub fn new(file: &str, line: usize, source: &str) -> Note {
        let source = shown(source);
        let directive = source.split([' ', '{', ';']).next().unwrap_or_default().to_owned();
        Note {
            file: file.to_owned(),
            line,
            source,
            directive,
            fate: Fate::NotNeeded,
            text: String::new(),
            is_guard: false,
        }
    }

    /// Whether it decides who may do what, and Larder does not do it as the source did.
    pub fn is_open_question(&self) -> bool {
        self.is_guard && self.fate >= Fate::Different
    }

    /// `squid.conf:12  acl localnet src 10.0.0.0/8`, and what is to be said of it.
    pub fn comment(&self) -> String {
        let mut comment = format!("{}:{}  {}", self.file, self.line, self.source);
        match (self.fate, self.text.as_str()) {
            (Fate::Translated, "") => {}
            (Fate::Translated, text) => _ = write!(comment, ": {text}"),
            (fate, "") => _ = write!(comment, ": {}", fate.as_str()),
            (fate, text) => _ = write!(comment, ": {}: {text}", fate.as_str()),
        }
        comment
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.comment())
    }
}

/// A directive on one line, without control characters and without words that are secrets.
fn shown(source: &str) -> String {
    let mut out = String::new();
    let mut words = source.split(|letter: char| letter.is_whitespace() || letter.is_control());
    let first = words.find(|word| !word.is_empty()).unwrap_or_default();
    out.push_str(first);
    let has_command = ["auth_param", "external_acl_type"].contains(&first);
    let mut is_password = false;
    for (number, word) in words.filter(|word| !word.is_empty()).enumerate() {
        out.push(' ');
        let is_secret =
            (first == "cachemgr_passwd" && number == 0) || first == "adaptation_masterx_shared_names" || is_password;
        // Squid's programs for LDAP and databases have their password behind one of these.
        is_password = has_command && ["-w", "--password"].contains(&word);
        match word.split_once('=') {
            Some((key, _)) if ["login", "password", "sslpassword", "pass"].contains(&key) => {
                _ = write!(out, "{key}=…");
            }
            _ if is_secret => out.push('…'),
            _ => out.push_str(word),
        }
    }
    if out.chars().count() > SHOWN_CHARS_MAX {
        out = out.chars().take(SHOWN_CHARS_MAX - 1).collect();
        out.push('…');
    }
    out
}

/// How many directives had which fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// [`Fate::Translated`].
    pub translated: usize,
    /// [`Fate::Different`].
    pub different: usize,
    /// [`Fate::NotNeeded`].
    pub not_needed: usize,
    /// [`Fate::Missing`].
    pub missing: usize,
}

impl Counts {
    /// Counts them.
    pub fn of(notes: &[Note]) -> Counts {
        let mut counts = Counts::default();
        for note in notes {
            *match note.fate {
                Fate::Translated => &mut counts.translated,
                Fate::Different => &mut counts.different,
                Fate::NotNeeded => &mut counts.not_needed,
                Fate::Missing => &mut counts.missing,
            } += 1;
        }
        counts
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { translated, different, not_needed, missing } = self;
        write!(f, "{translated} translated, {different} different, {not_needed} not needed, {missing} missing")
    }
}

/// All that is not the same, as a table in Markdown.
pub(crate) fn report(notes: &[Note]) -> String {
    let mut out = "| line | directive | fate | |\n|---|---|---|---|\n".to_owned();
    for fate in [Fate::Missing, Fate::Different, Fate::NotNeeded] {
        for note in notes.iter().filter(|note| note.fate == fate) {
            let cell = |text: &str| text.replace('|', "\\|");
            let loud = if note.is_open_question() { "**who may do what:** " } else { "" };
            let (file, line, text) = (&note.file, note.line, cell(&note.text));
            _ = writeln!(out, "| {file}:{line} | `{}` | {} | {loud}{text} |", cell(&note.source), fate.as_str());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_control_characters_stay_out_of_comments() {
        let note = |source: &str| Note::new("squid.conf", 3, source).source;
        assert_eq!(note("cache_peer p parent 3128 0 login=ada:secret"), "cache_peer p parent 3128 0 login=…");
        assert_eq!(note("cachemgr_passwd secret all"), "cachemgr_passwd … all");
        assert_eq!(note("auth_param basic program /l -w secret -h x"), "auth_param basic program /l -w … -h x");
        assert_eq!(note("via\ton\r\n"), "via on");
        assert_eq!(note(&"a".repeat(500)).chars().count(), SHOWN_CHARS_MAX);
        assert!(!note("x\u{7}\ny").contains(['\n', '\u{7}']));
    }

    #[test]
    fn a_report_has_what_is_not_the_same() {
        let note = |fate, text: &str| Note { fate, text: text.to_owned(), ..Note::new("a", 1, "via off") };
        let notes = [
            note(Fate::Translated, ""),
            Note { is_guard: true, ..note(Fate::Missing, "none") },
            note(Fate::NotNeeded, ""),
        ];
        let report = report(&notes);
        assert_eq!(report.lines().count(), 4, "{report}");
        assert!(report.contains("| a:1 | `via off` | missing | **who may do what:** none |"), "{report}");
        assert_eq!(Counts::of(&notes).to_string(), "1 translated, 0 different, 1 not needed, 1 missing");
        assert_eq!(Fate::ALL.len(), 4);
        assert_eq!(note(Fate::Missing, "none").to_string(), "a:1  via off: missing: none");
    }
}
