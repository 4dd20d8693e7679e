//! The environment of a process: no more of the server's own than an interpreter needs, for the rest may have secrets in it.

use crate::config::Python;
use std::ffi::OsString;

/// Variables of the server that every process has; `*` at the end is any text.
const PASSED_ON: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TMPDIR",
    "VIRTUAL_ENV",
    "PYTHON*",
    "LD_LIBRARY_PATH",
];

/// The variables of the processes of a `[[python]]`, where these are those of the server.
pub(super) fn of_process(
    python: &Python,
    of_server: impl Iterator<Item = (OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    passed_on(&python.inherit, &python.environment, of_server)
}

/// The variables of a helper: those of this server that every process has, those that `inherit` names, and `environment`.
pub fn environment_of(inherit: &[String], environment: &[String]) -> Vec<(OsString, OsString)> {
    passed_on(inherit, environment, std::env::vars_os())
}

fn passed_on(
    inherit: &[String],
    environment: &[String],
    of_server: impl Iterator<Item = (OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    let is_passed_on = |name: &str| {
        let further = inherit.iter().map(String::as_str);
        PASSED_ON.iter().copied().chain(further).any(|pattern| matches(pattern, name))
    };
    let passed_on = of_server.filter(|(name, _)| name.to_str().is_some_and(is_passed_on));
    let own = environment.iter().filter_map(|text| text.split_once('='));
    // Of several with one name the last one counts.
    passed_on.chain(own.map(|(name, value)| (name.into(), value.into()))).collect()
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn names(python: &Python) -> BTreeMap<String, String> {
        let server = [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("PYTHONPATH", "/p"),
            ("LCX", "1"),
            ("AWS_KEY", "secret"),
            ("DB_A", "a"),
            ("TZ", "UTC"),
        ];
        let of_server = server.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let text = |text: OsString| text.into_string().unwrap();
        of_process(python, of_server.into_iter()).into_iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn a_process_has_no_secrets_of_the_server() {
        let of_default = names(&Python::default());
        assert_eq!(of_default.keys().collect::<Vec<_>>(), ["LC_ALL", "PATH", "PYTHONPATH", "TZ"]);
        let inherit = vec!["DB_*".to_owned()];
        let environment = vec!["TZ=Europe/Berlin".to_owned(), "KEY=a=b".to_owned()];
        let more = names(&Python { inherit, environment, ..Python::default() });
        assert_eq!((more["DB_A"].as_str(), more["TZ"].as_str(), more["KEY"].as_str()), ("a", "Europe/Berlin", "a=b"));
        assert!(!more.contains_key("AWS_KEY") && !more.contains_key("LCX"));
        let all = names(&Python { inherit: vec!["*".to_owned()], ..Python::default() });
        assert_eq!(all.len(), 7);
    }
}
