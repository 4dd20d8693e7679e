//! The syntax of nginx: directives with words, blocks, `include`.

use crate::{DEPTH_MAX, DIRECTIVES_MAX, Files, SOURCE_BYTES_MAX};

/// A directive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Directive {
    /// Its file.
    pub file: String,
    /// Its line, from 1.
    pub line: usize,
    /// Its name.
    pub name: String,
    /// Its words.
    pub words: Vec<String>,
    /// The directives of its block, where it has one.
    pub block: Option<Vec<Directive>>,
    /// Why it could not be read.
    pub trouble: Option<String>,
}

impl Directive {
    /// A word, or nothing.
    pub fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }

    /// As it stands in the file, on one line.
    pub fn text(&self) -> String {
        let mut text = self.name.clone();
        for word in &self.words {
            text.push(' ');
            text.push_str(word);
        }
        text
    }
}

/// Reads a source with all that it includes.
pub fn parse(text: &str, name: &str, files: &mut dyn Files) -> Vec<Directive> {
    let mut parser = Parser { files, count: 0, bytes: 0 };
    parser.file(text, name, 0)
}

struct Parser<'a> {
    files: &'a mut dyn Files,
    count: usize,
    bytes: usize,
}

#[derive(Debug, PartialEq)]
enum Token {
    Word(String),
    End,
    Open,
    Close,
}

struct Lexer<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    line: usize,
}

impl Lexer<'_> {
    fn bump(&mut self) -> Option<char> {
        let letter = self.rest.next()?;
        self.line += usize::from(letter == '\n');
        Some(letter)
    }

    fn token(&mut self) -> Option<Token> {
        loop {
            match self.rest.peek()? {
                '#' => while self.bump().is_some_and(|letter| letter != '\n') {},
                letter if letter.is_whitespace() => _ = self.bump(),
                _ => break,
            }
        }
        match self.bump()? {
            ';' => Some(Token::End),
            '{' => Some(Token::Open),
            '}' => Some(Token::Close),
            quote @ ('"' | '\'') => {
                let mut word = String::new();
                while let Some(letter) = self.bump() {
                    match letter {
                        '\\' => match self.bump() {
                            Some(escaped) if escaped == quote || escaped == '\\' => word.push(escaped),
                            Some(other) => word.extend(['\\', other]),
                            None => break,
                        },
                        letter if letter == quote => break,
                        letter => word.push(letter),
                    }
                }
                Some(Token::Word(word))
            }
            first => {
                let mut word = String::from(first);
                // `${name}` has braces, and so has a count in an expression after a backslash.
                while let Some(&letter) = self.rest.peek() {
                    match letter {
                        '{' if word.ends_with('$') => {
                            while let Some(inner) = self.bump() {
                                word.push(inner);
                                if inner == '}' {
                                    break;
                                }
                            }
                        }
                        ';' | '{' => break,
                        letter if letter.is_whitespace() => break,
                        '\\' => {
                            word.extend(self.bump());
                            word.extend(self.bump());
                        }
                        _ => word.extend(self.bump()),
                    }
                }
                Some(Token::Word(word))
            }
        }
    }

    /// Skips the text of a block in another language.
    fn skip_block(&mut self) {
        let mut depth = 1_usize;
        while let Some(letter) = self.bump() {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }
}

impl Parser<'_> {
    fn file(&mut self, text: &str, name: &str, depth: usize) -> Vec<Directive> {
        self.bytes = self.bytes.saturating_add(text.len());
        let mut lexer = Lexer { rest: text.chars().peekable(), line: 1 };
        let mut all = Vec::new();
        // A `}` too many ends no file.
        while self.block(&mut lexer, name, depth, &mut all) {}
        all
    }

    /// Reads up to the end of a block; says whether there was one.
    fn block(&mut self, lexer: &mut Lexer<'_>, file: &str, depth: usize, out: &mut Vec<Directive>) -> bool {
        let mut words: Vec<String> = Vec::new();
        let mut line = lexer.line;
        while let Some(token) = lexer.token() {
            if words.is_empty() {
                line = lexer.line;
            }
            match token {
                Token::Word(word) => words.push(word),
                Token::Close => return true,
                Token::End | Token::Open => {
                    let is_open = token == Token::Open;
                    let mut words = std::mem::take(&mut words).into_iter();
                    let name = words.next().unwrap_or_default();
                    let mut directive =
                        Directive { file: file.to_owned(), line, name, words: words.collect(), ..Directive::default() };
                    if is_open && directive.name.contains("_by_lua") {
                        lexer.skip_block();
                    } else if is_open && depth >= DEPTH_MAX {
                        lexer.skip_block();
                        directive.trouble = Some(format!("blocks are nested deeper than {DEPTH_MAX}"));
                    } else if is_open {
                        let mut inner = Vec::new();
                        self.block(lexer, file, depth + 1, &mut inner);
                        directive.block = Some(inner);
                    }
                    self.count += 1;
                    if self.count > DIRECTIVES_MAX {
                        continue;
                    }
                    match directive.name.as_str() {
                        "" => {}
                        "include" => self.include(directive, depth, out),
                        _ => out.push(directive),
                    }
                }
            }
        }
        false
    }

    fn include(&mut self, directive: Directive, depth: usize, out: &mut Vec<Directive>) {
        let pattern = directive.word(0).to_owned();
        if pattern.ends_with("mime.types") {
            return out.push(directive);
        }
        for path in self.files.matching(&pattern) {
            let trouble = if depth >= DEPTH_MAX {
                format!("files are included deeper than {DEPTH_MAX}")
            } else if self.bytes > SOURCE_BYTES_MAX {
                format!("the source is longer than {SOURCE_BYTES_MAX} bytes")
            } else {
                match self.files.read(&path) {
                    Ok(text) => {
                        let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
                        out.extend(self.file(&text, &name, depth + 1));
                        continue;
                    }
                    Err(error) => format!("{path} can't be read ({error}), so what it says is not here"),
                }
            };
            out.push(Directive { trouble: Some(trouble), ..directive.clone() });
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoFiles;

    #[test]
    fn words_blocks_and_comments() {
        let all = parse("a 'x y' \"q\\\"z\"; # no\nb { c ${d}e; }\n} f ~ ^/a\\{2\\}$ { }", "n", &mut NoFiles);
        let texts: Vec<String> = all.iter().map(Directive::text).collect();
        assert_eq!(texts, ["a x y q\"z", "b", "f ~ ^/a\\{2\\}$"]);
        assert_eq!(all[1].block.as_ref().unwrap()[0].words, ["${d}e"]);
        assert_eq!((all[0].line, all[1].line), (1, 2));
        let lua = parse("content_by_lua_block { if x then { } end }\nz;", "n", &mut NoFiles);
        assert_eq!(lua.len(), 2);
    }

    #[test]
    fn depth_is_bounded() {
        let deep = "a {".repeat(10_000);
        let mut at = parse(&deep, "n", &mut NoFiles);
        let mut depth = 0;
        while let Some(first) = at.first().cloned() {
            depth += 1;
            at = first.block.unwrap_or_default();
        }
        assert_eq!(depth, DEPTH_MAX + 1);
        let troubles = parse("include gone.conf;", "n", &mut crate::nginx::tests::Gone);
        assert!(troubles[0].trouble.as_deref().unwrap().contains("gone.conf"));
    }
}
