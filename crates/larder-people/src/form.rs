//! Fields of a form, as browsers send them (`application/x-www-form-urlencoded`).

/// A form with more fields is none.
const FIELDS_MAX: usize = 16;

/// The fields of a form with their values, encodings undone; `None` where it is none, or a name comes twice.
pub fn parse(form: &str) -> Option<Vec<(String, String)>> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for field in form.split('&').filter(|field| !field.is_empty()) {
        let (name, value) = field.split_once('=').unwrap_or((field, ""));
        let name = decoded(name)?;
        if fields.len() == FIELDS_MAX || fields.iter().any(|(known, _)| *known == name) {
            return None;
        }
        fields.push((name, decoded(value)?));
    }
    Some(fields)
}

/// The value of a field, empty where there is none.
pub fn value<'f>(fields: &'f [(String, String)], name: &str) -> &'f str {
    fields.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
}

/// A text as a value, in a form or in a query.
pub fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' => out.push(byte.into()),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

/// The text behind a value of a form or a query: `+` is a blank. `None` for a `%` without two digits, and for what is no UTF-8.
pub fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, more)) = rest.split_first() {
        rest = more;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                let (high, low) = (hex(*rest.first()?)?, hex(*rest.get(1)?)?);
                bytes.push(high << 4 | low);
                rest = rest.get(2..)?;
            }
            other => bytes.push(*other),
        }
    }
    String::from_utf8(bytes).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_read_as_browsers_write_them() {
        let fields = parse("user=ada+b&password=%C3%A4%26%3D%2b&empty=&bare").unwrap();
        let values = ["user", "password", "empty", "bare", "none"].map(|name| value(&fields, name));
        assert_eq!(values, ["ada b", "ä&=+", "", "", ""]);
        assert_eq!(parse(""), Some(Vec::new()));
        let text = "http://a.test/ä?b=c&d=e+f%2F'\"";
        assert_eq!(value(&parse(&format!("to={}", encoded(text))).unwrap(), "to"), text);
        for wrong in ["a=%", "a=%4", "a=%zz", "a=%ff", "a=1&a=2", "a=%+1"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        let many: String = (0..17).map(|number| format!("f{number}=1&")).collect();
        assert_eq!(parse(&many), None);
    }
}
