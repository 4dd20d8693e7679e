//! Conditions of `if`, hosts of a server, paths of a location, variables in texts.

use crate::bound::Cond;
use larder_rules::values::{FieldTest, Pattern, is_field_name};
use larder_rules::{HostPattern, PathPattern};

/// The hosts of `server_name`; the words that are none.
pub fn hosts<'a>(names: impl Iterator<Item = &'a str>) -> (Vec<String>, Vec<String>) {
    let (mut hosts, mut wrong) = (Vec::new(), Vec::new());
    for name in names {
        let name = name.to_ascii_lowercase();
        match name.strip_prefix('.') {
            _ if name == "_" || name.is_empty() => {}
            Some(rest) if HostPattern::parse(rest).is_some() => hosts.extend([rest.to_owned(), format!("*.{rest}")]),
            None if name != "*" && !name.contains('$') && HostPattern::parse(&name).is_some() => hosts.push(name),
            _ => wrong.push(name),
        }
    }
    hosts.sort();
    hosts.dedup();
    (hosts, wrong)
}

/// The condition of a path of a location: `words` are those behind `location`.
pub fn location(words: &[String]) -> Option<Cond> {
    let words: Vec<&str> = match words {
        // The operator may stand without a blank before its value.
        [only] => {
            let operator = ["~*", "^~", "~", "="]
                .into_iter()
                .find(|operator| only.starts_with(operator) && only.len() > operator.len());
            operator.map_or(vec![only.as_str()], |operator| vec![operator, &only[operator.len()..]])
        }
        words => words.iter().map(String::as_str).collect(),
    };
    match words.as_slice() {
        ["=", path] => pattern(path).map(|path| Cond::atom("path", [path])),
        ["~", regex] => Pattern::parse(regex).ok().map(|_| Cond::atom("path_regex", [(*regex).to_owned()])),
        ["~*", regex] => {
            let regex = format!("(?i){regex}");
            Pattern::parse(&regex).ok().map(|_| Cond::atom("path_regex", [regex]))
        }
        ["^~", path] | [path] if path.starts_with('/') => below(path),
        _ => None,
    }
}

/// A path, and all that begins so.
fn below(path: &str) -> Option<Cond> {
    match path {
        "/" => Some(Cond::True),
        path => {
            let begin = path.trim_end_matches('/');
            let literal = pattern(path)?;
            let mut patterns = vec![format!("{}/**", pattern(begin)?)];
            if !path.ends_with('/') {
                // `/api` is `/api`, `/apis` and all below either.
                patterns.extend([literal.clone(), format!("{literal}*"), format!("{literal}*/**")]);
            }
            patterns.iter().all(|one| PathPattern::parse(one).is_some()).then(|| Cond::atom("path", patterns))
        }
    }
}

fn pattern(path: &str) -> Option<String> {
    (!path.contains(['*', '{', '}', '$']) && PathPattern::parse(path).is_some()).then(|| path.to_owned())
}

/// The condition in the brackets of an `if`; `None` where rules can't say it.
pub fn condition(words: &[String]) -> Option<Cond> {
    let text = words.join(" ");
    let inner = text.trim().strip_prefix('(')?.strip_suffix(')')?.trim();
    let mut parts = inner.splitn(3, char::is_whitespace);
    let (variable, operator, value) =
        (parts.next()?, parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let (is_negated, operator) = operator.strip_prefix('!').map_or((false, operator), |rest| (true, rest));
    let value = value.trim().trim_matches('"');
    let cond = compared(variable, operator, value)?;
    Some(if is_negated { cond.negated() } else { cond })
}

fn compared(variable: &str, operator: &str, value: &str) -> Option<Cond> {
    let regex = match operator {
        "~" => Some(value.to_owned()),
        "~*" => Some(format!("(?i){value}")),
        _ => None,
    };
    if let Some(regex) = &regex {
        Pattern::parse(regex).ok()?;
    }
    match (variable, operator) {
        ("$request_method", "=") => Some(Cond::atom("method", [value])),
        ("$request_method", _) => methods(value).map(|methods| Cond::atom("method", methods)),
        ("$scheme", "=") if ["http", "https"].contains(&value) => Some(Cond::atom("scheme", [value])),
        ("$https", "=") if value == "on" => Some(Cond::atom("scheme", ["https"])),
        ("$https", "=") if value.is_empty() => Some(Cond::atom("scheme", ["http"])),
        ("$host" | "$http_host" | "$server_name", "=") => {
            (HostPattern::parse(value).is_some() && !value.contains('*')).then(|| Cond::atom("host", [value]))
        }
        ("$uri" | "$document_uri", "~" | "~*") => regex.map(|regex| Cond::atom("path_regex", [regex])),
        ("$uri" | "$document_uri", "=") => pattern(value).map(|path| Cond::atom("path", [path])),
        ("$query_string" | "$args", "=") if value.is_empty() => None,
        _ => {
            let name = variable.strip_prefix("$http_").map(|name| name.replace('_', "-"));
            if let Some(name) = name.filter(|name| is_field_name(name)) {
                return field(&capitals(&name), operator, value, regex);
            }
            if let Some(name) = variable.strip_prefix("$cookie_") {
                return cookie(name, operator, value);
            }
            let name = variable.strip_prefix("$arg_")?;
            match operator {
                "" => Some(Cond::atom("query", [name])),
                "=" if !value.is_empty() => Some(Cond::atom("query", [format!("{name}={value}")])),
                _ => None,
            }
        }
    }
}

fn field(name: &str, operator: &str, value: &str, regex: Option<String>) -> Option<Cond> {
    let test = match (operator, regex) {
        ("", _) => "*".to_owned(),
        ("=", _) if value.is_empty() => return Some(Cond::atom_of("field", name, ["*"]).negated()),
        ("=", _) => value.to_owned(),
        (_, regex) => format!("~{}", regex?),
    };
    FieldTest::parse(&test).ok().map(|_| Cond::atom_of("field", name, [test]))
}

/// A cookie that is there, or has a value.
pub fn cookie(name: &str, operator: &str, value: &str) -> Option<Cond> {
    let is_plain = |text: &str| text.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter));
    let test = match operator {
        "" if is_plain(name) => format!("~(^|; *){name}="),
        "=" if is_plain(name) && is_plain(value) && !value.is_empty() => format!("~(^|; *){name}={value}(;|$)"),
        _ => return None,
    };
    Some(Cond::atom_of("field", "Cookie", [test]))
}

/// `^(GET|HEAD)$`, `POST|PUT`.
fn methods(regex: &str) -> Option<Vec<String>> {
    let inner = regex.trim_start_matches('^').trim_end_matches('$').trim_start_matches('(').trim_end_matches(')');
    let methods: Vec<String> = inner.split('|').map(str::to_owned).collect();
    let is_method = |text: &String| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase());
    methods.iter().all(is_method).then_some(methods)
}

/// `x-real-ip` as people write it.
pub fn capitals(name: &str) -> String {
    let mut begins = true;
    name.chars()
        .map(|letter| {
            let out = if begins { letter.to_ascii_uppercase() } else { letter };
            begins = letter == '-';
            out
        })
        .collect()
}

/// A text with variables as one with placeholders; `None` where it has others.
pub fn template(text: &str) -> Option<String> {
    const VARIABLES: [(&str, &str); 15] = [
        ("$request_uri", "{path}{query}"),
        ("$is_args$args", "{query}"),
        ("$document_uri", "{path}"),
        ("$server_name", "{host}"),
        ("$server_port", "{port}"),
        ("$http_host", "{host}"),
        ("$remote_addr", "{client}"),
        ("$proxy_add_x_forwarded_for", "{client}"),
        ("$remote_user", "{user}"),
        ("$scheme", "{scheme}"),
        ("$host:$server_port", "{host}:{port}"),
        ("$host", "{host}"),
        ("$uri", "{path}"),
        ("$realip_remote_addr", "{client}"),
        ("$request_id", "{request}"),
    ];
    let mut out = text.replace('{', "\u{1}").replace('}', "\u{2}");
    for (variable, placeholder) in VARIABLES {
        let braces = format!("$\u{1}{}\u{2}", variable.trim_start_matches('$'));
        out = out.replace(&braces, placeholder).replace(variable, placeholder);
    }
    for group in 1..=9 {
        out = out.replace(&format!("${group}"), &format!("{{{group}}}"));
    }
    let out = out.replace('\u{1}', "{{").replace('\u{2}', "}}");
    (!out.contains('$') && larder_rules::template::Template::parse(&out).is_ok()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

    fn shown(cond: Option<Cond>) -> String {
        cond.and_then(|cond| cond.when()).map_or("none".to_owned(), |when| Value::from(when).to_string())
    }

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn locations() {
        for (text, wanted) in [
            ("/", "{ }"),
            ("/api/", "{ path = \"/api/**\" }"),
            ("/api", "{ path = [\"/api/**\", \"/api\", \"/api*\", \"/api*/**\"] }"),
            ("= /x", "{ path = \"/x\" }"),
            ("~ \\.php$", "{ path_regex = '\\.php$' }"),
            ("~* \\.GIF$", "{ path_regex = '(?i)\\.GIF$' }"),
            ("~.*\\.gif$", "{ path_regex = '.*\\.gif$' }"),
            ("=/x", "{ path = \"/x\" }"),
            ("@named", "none"),
            ("~ (", "none"),
        ] {
            assert_eq!(shown(location(&words(text))), wanted, "{text}");
        }
    }

    #[test]
    fn conditions() {
        for (text, wanted) in [
            ("($request_method = POST)", "{ method = \"POST\" }"),
            ("($request_method !~ ^(GET|HEAD)$ )", "{ not = { method = [\"GET\", \"HEAD\"] } }"),
            ("($http_user_agent ~* \"(bot|spider)\")", "{ field = { User-Agent = \"~(?i)(bot|spider)\" } }"),
            ("($scheme = http)", "{ scheme = \"http\" }"),
            ("($host = a.test)", "{ host = \"a.test\" }"),
            ("($cookie_session)", "{ field = { Cookie = \"~(^|; *)session=\" } }"),
            ("($arg_nocache)", "{ query = \"nocache\" }"),
            ("($http_x_a = \"\")", "{ not = { field = { X-A = \"*\" } } }"),
            ("($unknown = 1)", "none"),
            ("(-f $request_filename)", "none"),
        ] {
            assert_eq!(shown(condition(&words(text))), wanted, "{text}");
        }
    }

    #[test]
    fn texts_with_variables() {
        for (text, wanted) in [
            ("https://$host$request_uri", Some("https://{host}{path}{query}")),
            ("https://${host}/a{b}", Some("https://{host}/a{{b}}")),
            ("/b/$1", Some("/b/{1}")),
            ("$unknown", None),
        ] {
            assert_eq!(template(text).as_deref(), wanted, "{text}");
        }
        assert_eq!(capitals("x-real-ip"), "X-Real-Ip");
        let (names, wrong) = hosts("A.test .b.test *.c.test _ ~^x$ www.*".split(' '));
        assert_eq!(names, ["*.b.test", "*.c.test", "a.test", "b.test"]);
        assert_eq!(wrong, ["~^x$", "www.*"]);
    }
}
