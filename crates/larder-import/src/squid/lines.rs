//! Logical lines of a `squid.conf`: continuations, comments, `include`, `if`, macros.

use crate::{DEPTH_MAX, DIRECTIVES_MAX, Files, SOURCE_BYTES_MAX};

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its file.
    pub file: String,
    /// Its number there, from 1.
    pub number: usize,
    /// Its text without comments.
    pub text: String,
    /// Its words.
    pub words: Vec<Word>,
    /// Why it could not be read, where it is an `include` or an `if`.
    pub trouble: Option<String>,
}

/// A word of a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Word {
    /// The word without quotation marks.
    pub text: String,
    /// It stood in quotation marks: of an ACL, the name of a file with its values.
    pub is_quoted: bool,
}

impl Line {
    /// The directive.
    pub fn name(&self) -> &str {
        self.word(0)
    }

    /// A word, or nothing.
    pub fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", |word| word.text.as_str())
    }

    /// The words behind the first ones.
    pub fn rest(&self, from: usize) -> impl Iterator<Item = &str> {
        self.words.iter().skip(from).map(|word| word.text.as_str())
    }
}

/// All lines of a source, with those of the files that it includes in their place.
pub fn logical(text: &str, name: &str, files: &mut dyn Files) -> Vec<Line> {
    let mut reader = Reader { files, lines: Vec::new(), bytes: 0 };
    reader.file(text, name, 0);
    reader.lines
}

struct Reader<'a> {
    files: &'a mut dyn Files,
    lines: Vec<Line>,
    bytes: usize,
}

impl Reader<'_> {
    fn file(&mut self, text: &str, name: &str, depth: usize) {
        self.bytes = self.bytes.saturating_add(text.len());
        // Branches of `if` that are open here: whether each counts.
        let mut branches: Vec<bool> = Vec::new();
        let mut physical = text.lines().enumerate();
        while let Some((number, first)) = physical.next() {
            let mut whole = first.trim_end_matches('\r').to_owned();
            while let Some(start) = whole.strip_suffix('\\') {
                let Some((_, next)) = physical.next() else { break };
                whole = format!("{start} {}", next.trim_end_matches('\r').trim_start());
            }
            let line = line(&whole, name, number + 1);
            if line.words.is_empty() {
                continue;
            }
            if self.lines.len() >= DIRECTIVES_MAX {
                return;
            }
            match line.name() {
                "if" => {
                    let holds = condition(line.word(1), line.word(2), line.word(3));
                    if holds.is_none() {
                        let trouble = "the condition is taken to hold".to_owned();
                        self.lines.push(Line { trouble: Some(trouble), ..line });
                    }
                    if branches.len() < DEPTH_MAX {
                        branches.push(holds.unwrap_or(true));
                    }
                }
                "else" => branches.last_mut().into_iter().for_each(|branch| *branch = !*branch),
                "endif" => _ = branches.pop(),
                _ if branches.contains(&false) => {}
                "include" => self.include(line, depth),
                _ => self.lines.push(line),
            }
        }
    }

    fn include(&mut self, line: Line, depth: usize) {
        let patterns: Vec<String> = line.rest(1).map(str::to_owned).collect();
        for pattern in patterns {
            for path in self.files.matching(&pattern) {
                let trouble = match self.files.read(&path) {
                    _ if depth >= DEPTH_MAX => Some(format!("files are included deeper than {DEPTH_MAX}")),
                    _ if self.bytes > SOURCE_BYTES_MAX => {
                        Some(format!("the source is longer than {SOURCE_BYTES_MAX} bytes"))
                    }
                    Ok(text) => {
                        let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
                        self.file(&text, &name, depth + 1);
                        None
                    }
                    Err(error) => Some(format!("{path} can't be read ({error}), so what it says is not here")),
                };
                if let Some(trouble) = trouble {
                    self.lines.push(Line { trouble: Some(trouble), ..line.clone() });
                    return;
                }
            }
        }
    }
}

/// Whether a condition of `if` holds, as in the first process of a service; `None` where it can't be told.
fn condition(left: &str, operator: &str, right: &str) -> Option<bool> {
    match (left, operator) {
        ("true", "") => Some(true),
        ("false", "") => Some(false),
        _ => {
            let (left, right): (i64, i64) = (left.parse().ok()?, right.parse().ok()?);
            match operator {
                "=" => Some(left == right),
                "<" => Some(left < right),
                ">" => Some(left > right),
                _ => None,
            }
        }
    }
}

fn line(text: &str, file: &str, number: usize) -> Line {
    let text = text
        .replace("${process_number}", "1")
        .replace("${process_name}", "squid-1")
        .replace("${service_name}", "squid");
    let text = text.trim();
    let mut words = Vec::new();
    let mut rest = if text.starts_with('#') { "" } else { text };
    loop {
        rest = rest.trim_start();
        if rest.is_empty() || rest.starts_with('#') {
            break;
        }
        if let Some((quoted, behind)) = rest.strip_prefix('"').and_then(|inner| inner.split_once('"')) {
            words.push(Word { text: quoted.to_owned(), is_quoted: true });
            rest = behind;
            continue;
        }
        let (word, behind) = rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len()));
        words.push(Word { text: word.to_owned(), is_quoted: false });
        rest = behind;
    }
    Line { file: file.to_owned(), number, text: text.to_owned(), words, trouble: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoFiles;

    struct Self_;

    impl Files for Self_ {
        fn read(&mut self, path: &str) -> Result<String, String> {
            match path {
                "a" => Ok("via off\n".to_owned()),
                "loop" => Ok("include loop\n".to_owned()),
                _ => Err("no such file".to_owned()),
            }
        }

        fn matching(&mut self, pattern: &str) -> Vec<String> {
            if pattern == "*" { vec!["a".to_owned(), "a".to_owned()] } else { vec![pattern.to_owned()] }
        }

        fn is_there(&mut self, _: &str) -> bool {
            false
        }
    }

    fn texts(text: &str) -> Vec<String> {
        logical(text, "s", &mut Self_)
            .into_iter()
            .map(|line| line.words.iter().map(|word| word.text.clone()).collect::<Vec<_>>().join("|"))
            .collect()
    }

    #[test]
    fn lines_comments_and_continuations() {
        assert_eq!(texts("# no\n\nacl a src \\\n  10.0.0.0/8 # why\nvia on\r\n"), ["acl|a|src|10.0.0.0/8", "via|on"]);
        let lines = logical("acl a dstdomain \"/etc/x y\" b\n", "s", &mut NoFiles);
        assert!(lines[0].words[3].is_quoted && lines[0].word(3) == "/etc/x y" && !lines[0].words[4].is_quoted);
        assert_eq!((lines[0].number, lines[0].name()), (1, "acl"));
    }

    #[test]
    fn branches_and_files() {
        assert_eq!(texts("if ${process_number} = 1\na\nelse\nb\nendif\nc\n"), ["a", "c"]);
        assert_eq!(texts("if false\na\nif true\nx\nendif\nendif\nc"), ["c"]);
        assert_eq!(texts("include *\n"), ["via|off", "via|off"]);
        let troubles: Vec<String> = logical("include gone\ninclude loop\nif $x\n", "s", &mut Self_)
            .into_iter()
            .filter_map(|line| line.trouble)
            .collect();
        assert_eq!(troubles.len(), 3, "{troubles:?}");
        assert!(troubles[0].contains("gone") && troubles[1].contains("deeper"), "{troubles:?}");
    }
}
