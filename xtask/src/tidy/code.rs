//! Rust source with comments and literals blanked out, line for line: enough of a lexer that a brace in
//! a string or a word in a comment is never taken for code. It parses nothing further.

/// The code of a file; line numbers are those of the source.
pub struct Code {
    /// Lines in which only code is left.
    pub lines: Vec<String>,
    /// Whether the line belongs to an item under `#[cfg(test)]`.
    pub is_test: Vec<bool>,
}

/// A named function and the lines it takes, its attributes and comments left out.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    /// Counted from 1.
    pub first_line: usize,
    pub line_count: usize,
}

impl Code {
    /// Blanks out what is not code.
    pub fn of(source: &str) -> Code {
        let blank = blank_literals(source);
        let lines: Vec<String> = blank.split('\n').map(str::to_owned).collect();
        let is_test = test_lines(&lines);
        Code { lines, is_test }
    }

    /// Lines outside tests, with their number from 1.
    pub fn plain_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let numbered = self.lines.iter().enumerate().filter(|(at, _)| !self.is_test[*at]);
        numbered.map(|(at, line)| (at + 1, line.as_str()))
    }

    /// The functions outside tests that have a body.
    pub fn functions(&self) -> Vec<Function> {
        let mut functions = Vec::new();
        for (number, line) in self.plain_lines() {
            let Some(name) = function_name(line) else { continue };
            let Some(last) = self.end_of_item(number - 1) else { continue };
            functions.push(Function { name, first_line: number, line_count: last + 2 - number });
        }
        functions
    }

    /// The line on which the braces that open at or after line `first` close; none for an item that ends in `;`.
    fn end_of_item(&self, first: usize) -> Option<usize> {
        end_of_item(&self.lines, first)
    }
}

/// The places where `word` stands alone, not as part of a longer name.
pub fn has_word(line: &str, word: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].chars().next_back().is_some_and(is_name)
            && !line[at + word.len()..].chars().next().is_some_and(is_name)
    })
}

fn function_name(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    words.find(|word| *word == "fn")?;
    let name: String = words.next()?.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    // `fn(` is a type.
    (!name.is_empty()).then_some(name)
}

fn end_of_item(lines: &[String], first: usize) -> Option<usize> {
    let (mut braces, mut brackets) = (0_usize, 0_usize);
    for (at, line) in lines.iter().enumerate().skip(first) {
        for c in line.chars() {
            match c {
                '{' => braces += 1,
                '}' if braces <= 1 => return Some(at),
                '}' => braces -= 1,
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets = brackets.saturating_sub(1),
                ';' if braces == 0 && brackets == 0 => return None,
                _ => {}
            }
        }
    }
    None
}

fn test_lines(lines: &[String]) -> Vec<bool> {
    if lines.iter().any(|line| line.starts_with("#![cfg(test)]")) {
        return vec![true; lines.len()];
    }
    let mut is_test = vec![false; lines.len()];
    let mut at = 0;
    while at < lines.len() {
        if !lines[at].contains("#[cfg(test)]") && !lines[at].contains("#[cfg(all(test") {
            at += 1;
            continue;
        }
        let after = if lines[at].trim().ends_with(']') { at + 1 } else { at };
        let last = end_of_item(lines, after).unwrap_or(after).min(lines.len() - 1);
        is_test[at..=last].fill(true);
        at = last + 1;
    }
    is_test
}

fn blank_literals(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        let len = literal_len(rest, out.chars().next_back()).unwrap_or(0);
        if len == 0 {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        }
        // A literal stays recognisable as a value: `""` in place of the text.
        let keep = if rest.starts_with('/') { ' ' } else { '"' };
        out.push(keep);
        out.extend(rest[..len].chars().filter(|c| *c == '\n'));
        out.push(keep);
        rest = &rest[len..];
    }
    out
}

/// The length of the comment or literal at the start of `rest`, when there is one.
fn literal_len(rest: &str, before: Option<char>) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(block_comment_len(rest));
    }
    let in_name = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let prefix = ["br", "cr", "b", "c", "r"].into_iter().find(|prefix| !in_name && is_prefixed(rest, prefix));
    let prefix = prefix.unwrap_or("");
    let body = &rest[prefix.len()..];
    if prefix.ends_with('r') {
        return raw_len(body).map(|len| prefix.len() + len);
    }
    match body.chars().next()? {
        '"' => Some(prefix.len() + quoted_len(body, '"')),
        '\'' if is_character(body) => Some(prefix.len() + quoted_len(body, '\'')),
        _ => None,
    }
}

fn is_prefixed(rest: &str, prefix: &str) -> bool {
    let Some(after) = rest.strip_prefix(prefix) else { return false };
    if prefix.ends_with('r') {
        return after.trim_start_matches('#').starts_with('"');
    }
    after.starts_with('"') || (prefix == "b" && after.starts_with('\''))
}

fn block_comment_len(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        let tail = &rest.as_bytes()[at..];
        if tail.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if tail.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn raw_len(body: &str) -> Option<usize> {
    let hashes = body.bytes().take_while(|byte| *byte == b'#').count();
    let inside = body[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(hashes + 1 + inside.find(&end).map_or(inside.len(), |at| at + end.len()))
}

fn quoted_len(body: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in body.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    body.len()
}

/// A character literal and not a lifetime.
fn is_character(body: &str) -> bool {
    let mut chars = body.chars().skip(1);
    matches!((chars.next(), chars.next()), (Some('\\'), _) | (Some(_), Some('\'')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_comments_are_no_code() {
        let table = [
            ("let a = \"{ fn b() }\"; // fn c", "let a = \"\";   "),
            ("let a = '{'; let b: &'static str = x;", "let a = \"\"; let b: &'static str = x;"),
            ("r#\"a \" { \"# + b\"}\" + br\"\\\" + b'\\'' ", "\"\" + \"\" + \"\" + \"\" "),
            ("/* a /* { */ } */ x", "   x"),
            ("bar\"x\"", "bar\"\""),
        ];
        for (source, code) in table {
            assert_eq!(blank_literals(source), code, "{source}");
        }
    }

    #[test]
    fn lines_keep_their_numbers() {
        let code = Code::of("/*\n\n*/ a\n\"x\ny\" b\n");
        assert_eq!(code.lines[2].trim(), "a");
        assert!(code.lines[4].ends_with(" b"));
    }

    #[test]
    fn functions_are_measured_without_tests() {
        let source = "pub fn a(x: [u8; 2]) -> u8 {\n    x[0]\n}\n\ntrait T {\n    fn b();\n    fn c() {\n    }\n}\n\
                      #[cfg(test)]\nmod tests {\n    fn d() {\n    }\n}\nfn e() {}\n";
        let found: Vec<_> = Code::of(source).functions().into_iter().map(|f| (f.name, f.line_count)).collect();
        assert_eq!(found, [("a".into(), 3), ("c".into(), 2), ("e".into(), 1)]);
    }

    #[test]
    fn a_word_is_not_a_part_of_a_name() {
        assert!(has_word("x unsafe {", "unsafe"));
        assert!(!has_word("deny(unsafe_code)", "unsafe"));
    }
}
