//! The syntax of VCL: declarations with blocks, statements, and expressions as rows of tokens.

use crate::{DEPTH_MAX, DIRECTIVES_MAX};

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    /// A name or a number: `req.http.Host`, `1.5h`.
    Name(String),
    /// A text.
    Text(String),
    /// An operator or a bracket.
    Sign(&'static str),
}

/// A declaration: `backend NAME { … }`, `sub NAME { … }`, `import std;`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Declaration {
    /// Its line, from 1.
    pub line: usize,
    /// Its kind.
    pub kind: String,
    /// The words behind it.
    pub words: Vec<String>,
    /// The statements of its block.
    pub body: Vec<Statement>,
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// Its line, from 1.
    pub line: usize,
    /// The tokens up to `;` or `{`.
    pub tokens: Vec<Token>,
    /// The statements of its block, where it has one.
    pub body: Option<Vec<Statement>>,
}

impl Statement {
    /// The first name.
    pub fn word(&self) -> &str {
        match self.tokens.first() {
            Some(Token::Name(name)) => name,
            _ => "",
        }
    }

    /// As it stands in the file, on one line.
    pub fn text(&self) -> String {
        text_of(&self.tokens)
    }
}

/// Tokens as a text.
pub fn text_of(tokens: &[Token]) -> String {
    let mut out = String::new();
    for token in tokens {
        let (word, is_tight) = match token {
            Token::Name(name) => (name.clone(), false),
            Token::Text(text) => (format!("\"{text}\""), false),
            Token::Sign(sign) => ((*sign).to_owned(), ["(", ")", ",", "!"].contains(sign)),
        };
        if !out.is_empty() && !is_tight && !out.ends_with(['(', '!']) {
            out.push(' ');
        }
        out.push_str(&word);
    }
    out
}

const SIGNS: [&str; 27] = [
    "&&", "||", "==", "!=", "!~", "<=", ">=", "+=", "-=", "*=", "/=", "++", "{", "}", "(", ")", ";", ",", "=", "~",
    "!", "<", ">", "+", "-", "*", "/",
];

/// The tokens of a source with their lines.
fn tokens(text: &str) -> Vec<(usize, Token)> {
    let mut out = Vec::new();
    let (mut rest, mut line) = (text, 1);
    let mut skip = |rest: &mut &str, bytes: usize| {
        let (head, tail) = rest.split_at(bytes.min(rest.len()));
        line += head.matches('\n').count();
        *rest = tail;
        line
    };
    while let Some(first) = rest.chars().next() {
        if out.len() > 8 * DIRECTIVES_MAX {
            break;
        }
        let at = skip(&mut rest, 0);
        let long = |open: &str, close: &str| {
            let inner = rest.strip_prefix(open)?;
            let end = inner.find(close).unwrap_or(inner.len());
            Some((inner.get(..end)?.to_owned(), (open.len() + end + close.len()).min(rest.len())))
        };
        if first.is_whitespace() {
            skip(&mut rest, first.len_utf8());
        } else if first == '#' || rest.starts_with("//") {
            let end = rest.find('\n').unwrap_or(rest.len());
            skip(&mut rest, end);
        } else if let Some((_, bytes)) = long("/*", "*/") {
            skip(&mut rest, bytes);
        } else if let Some((_, bytes)) = long("C{", "}C") {
            out.push((at, Token::Name("C{}C".to_owned())));
            out.push((at, Token::Sign(";")));
            skip(&mut rest, bytes);
        } else if let Some((text, bytes)) =
            long("\"\"\"", "\"\"\"").or_else(|| long("{\"", "\"}")).or_else(|| long("\"", "\""))
        {
            out.push((at, Token::Text(text)));
            skip(&mut rest, bytes);
        } else if first.is_alphanumeric() || first == '_' {
            let is_part = |letter: char| letter.is_alphanumeric() || "_.-:".contains(letter);
            let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
            out.push((at, Token::Name(rest.get(..end).unwrap_or_default().to_owned())));
            skip(&mut rest, end);
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            out.push((at, Token::Sign(sign)));
            skip(&mut rest, sign.len());
        } else {
            // `.host` of a backend begins with a dot.
            let end = rest
                .char_indices()
                .skip(1)
                .find(|(_, letter)| !(letter.is_alphanumeric() || *letter == '_'))
                .map_or(rest.len(), |(at, _)| at);
            out.push((at, Token::Name(rest.get(..end).unwrap_or_default().to_owned())));
            skip(&mut rest, end);
        }
    }
    out
}

/// Reads a source.
pub fn parse(text: &str) -> Vec<Declaration> {
    let tokens = tokens(text);
    let mut parser = Parser { tokens: &tokens, at: 0 };
    let mut all = Vec::new();
    while let Some(statement) = parser.statement(0) {
        let words = statement
            .tokens
            .iter()
            .skip(1)
            .map(|token| text_of(std::slice::from_ref(token)).trim_matches('"').to_owned());
        if statement.tokens.is_empty() && statement.body.is_none() {
            continue;
        }
        all.push(Declaration {
            line: statement.line,
            kind: statement.word().to_owned(),
            words: words.collect(),
            body: statement.body.unwrap_or_default(),
        });
        if all.len() > DIRECTIVES_MAX {
            break;
        }
    }
    all
}

struct Parser<'a> {
    tokens: &'a [(usize, Token)],
    at: usize,
}

impl Parser<'_> {
    fn next(&mut self) -> Option<(usize, Token)> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    /// A statement up to its `;`, or with its block; an empty one for a `}` too many. `None` at the end.
    fn statement(&mut self, depth: usize) -> Option<Statement> {
        let mut statement = Statement { line: self.tokens.get(self.at)?.0, tokens: Vec::new(), body: None };
        while let Some((_, token)) = self.next() {
            match token {
                Token::Sign(";") => return Some(statement),
                Token::Sign("{") => {
                    statement.body = Some(self.block(depth + 1));
                    return Some(statement);
                }
                Token::Sign("}") => return Some(statement),
                token => statement.tokens.push(token),
            }
        }
        Some(statement)
    }

    fn block(&mut self, depth: usize) -> Vec<Statement> {
        let mut all = Vec::new();
        while let Some((_, token)) = self.tokens.get(self.at) {
            if *token == Token::Sign("}") {
                self.at += 1;
                break;
            }
            if depth > DEPTH_MAX {
                self.skip_block();
                break;
            }
            match self.statement(depth) {
                Some(statement) if !statement.tokens.is_empty() || statement.body.is_some() => all.push(statement),
                Some(_) => {}
                None => break,
            }
        }
        all
    }

    fn skip_block(&mut self) {
        let mut depth = 1_usize;
        while let Some((_, token)) = self.next() {
            match token {
                Token::Sign("{") => depth += 1,
                Token::Sign("}") => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_statements_and_texts() {
        let all = parse(
            "vcl 4.1; // no\nimport std;\nbackend a {\n .host = \"h\"; /* x\n */ .port = \"80\"; }\nsub vcl_recv {\n if (req.url ~ {\"a\"b\"} && !x) { return (pass); } else { set req.url = \"/\"; }\n}\n",
        );
        let kinds: Vec<&str> = all.iter().map(|one| one.kind.as_str()).collect();
        assert_eq!(kinds, ["vcl", "import", "backend", "sub"]);
        assert_eq!((all[2].line, all[2].body.len()), (3, 2));
        assert_eq!(all[2].body[0].text(), ".host = \"h\"");
        assert_eq!(all[3].body[0].text(), "if(req.url ~ \"a\"b\" &&!x)");
        assert_eq!(all[3].body[1].word(), "else");
        assert_eq!(all[3].body[0].body.as_ref().unwrap()[0].text(), "return(pass)");
        assert_eq!(all[2].body[1].line, 5);
    }

    #[test]
    fn depth_is_bounded_and_ends_are_forgiven() {
        let deep = format!("sub a {{ {}", "if (x) {".repeat(50_000));
        assert_eq!(parse(&deep).len(), 1);
        assert_eq!(parse("}}} sub a { x; ").last().unwrap().body.len(), 1);
        assert!(parse("\"unfinished").len() <= 1);
    }
}
