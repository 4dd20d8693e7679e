//! Values of TOML, written on one line.

use std::fmt::{self, Write};

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A number.
    Number(u64),
    /// `true` or `false`.
    Flag(bool),
    /// An array.
    List(Vec<Value>),
    /// An inline table.
    Table(Table),
}

/// Keys with their values, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table(pub Vec<(String, Value)>);

impl Table {
    /// With one more value.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Table {
        self.0.push((key.to_owned(), value.into()));
        self
    }

    /// Sets a value, in place of one that is there.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        match self.0.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) => *old = value.into(),
            None => self.0.push((key.to_owned(), value.into())),
        }
    }

    /// A value.
    pub fn find(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// Adds texts to a list, which begins empty; those that are there already are left out.
    pub fn add_texts(&mut self, key: &str, texts: impl IntoIterator<Item = String>) {
        let mut list = match self.find(key) {
            Some(Value::List(list)) => list.clone(),
            _ => Vec::new(),
        };
        for text in texts.into_iter().map(Value::Text) {
            if !list.contains(&text) {
                list.push(text);
            }
        }
        self.set(key, Value::List(list));
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Value {
        Value::Flag(flag)
    }
}

impl From<Vec<String>> for Value {
    fn from(texts: Vec<String>) -> Value {
        Value::List(texts.into_iter().map(Value::Text).collect())
    }
}

impl From<Table> for Value {
    fn from(table: Table) -> Value {
        Value::Table(table)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(&quoted(text)),
            Value::Number(number) => write!(f, "{number}"),
            Value::Flag(flag) => write!(f, "{flag}"),
            Value::List(items) => {
                f.write_char('[')?;
                for (number, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if number > 0 { ", " } else { "" })?;
                }
                f.write_char(']')
            }
            Value::Table(Table(entries)) => {
                f.write_char('{')?;
                for (number, (key, value)) in entries.iter().enumerate() {
                    write!(f, "{}{} = {value}", if number > 0 { ", " } else { " " }, key_text(key))?;
                }
                f.write_str(" }")
            }
        }
    }
}

/// A key, in quotation marks where it has to be.
pub fn key_text(key: &str) -> String {
    let is_bare = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if is_bare { key.to_owned() } else { quoted(key) }
}

/// A text as TOML writes it: a literal one where that is easier to read. `${` would be taken for a secret of the environment, which no source
/// means, but no form of TOML escapes it: it is left to the check of the result.
fn quoted(text: &str) -> String {
    let is_plain = |letter: char| !letter.is_control() && letter != '\'';
    if text.contains('\\') && text.chars().all(is_plain) {
        return format!("'{text}'");
    }
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            letter if letter.is_control() => _ = write!(out, "\\u{:04X}", u32::from(letter)),
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_back_as_they_were() {
        for text in ["a", "", "say \"hi\"", "^a\\.b$", "it's \\d", "a\tb\u{1}\u{7f}é", "'''"] {
            let written = format!("{} = {}", key_text(text), Value::from(text));
            let table: toml::Table = written.parse().unwrap_or_else(|error| panic!("{written}: {error}"));
            assert_eq!(table[text].as_str(), Some(text), "{written}");
        }
        let mut table = Table::default().with("a", true).with("b", 7).with("c", vec!["x".to_owned(), "y".to_owned()]);
        table.add_texts("c", ["y".to_owned(), "z".to_owned()]);
        table.set("b", 8);
        assert_eq!(Value::from(table).to_string(), "{ a = true, b = 8, c = [\"x\", \"y\", \"z\"] }");
    }
}
