//! Sources that are none: nothing panics, and time and length stay within bounds.

use larder_import::{Files, Format, NoFiles, Settings, import};
use proptest::prelude::*;

fn settings(format: Format) -> Settings {
    Settings { format, name: "source".to_owned(), zone: None }
}

fn format() -> impl Strategy<Value = Format> {
    prop::sample::select(Format::ALL.to_vec())
}

/// Lines made of the words of all three languages.
fn words() -> impl Strategy<Value = String> {
    let words = [
        "acl",
        "http_access",
        "allow",
        "deny",
        "src",
        "dstdomain",
        "url_regex",
        "10.0.0.0/8",
        "!",
        "all",
        "include",
        "if",
        "else",
        "endif",
        "cache_peer",
        "auth_param",
        "basic",
        "program",
        "external_acl_type",
        "%SRC",
        "refresh_pattern",
        "cache_dir",
        "http_port",
        "3128",
        "time",
        "MTW",
        "08:00-17:00",
        "server",
        "location",
        "proxy_pass",
        "http://a.test/x",
        "upstream",
        "listen",
        "80",
        "return",
        "301",
        "rewrite",
        "^/a(.*)$",
        "$1",
        "map",
        "limit_req",
        "zone=a",
        "sub",
        "vcl_recv",
        "req.url",
        "req.http.Cookie",
        "~",
        "==",
        "&&",
        "(",
        ")",
        "backend",
        ".host",
        "=",
        "set",
        "unset",
        "pass",
        "synth",
        "beresp.ttl",
        "1h",
        "new",
        "directors.round_robin",
        "{",
        "}",
        ";",
        "\"",
        "'",
        "\\",
        "\n",
        "\n",
        "\n",
        "#",
        "a",
        "-i",
        "0",
        "99999999999999999999",
        "é",
        "\u{0}",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()), 0..120).prop_map(|words| words.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn any_text_becomes_toml(text in "\\PC{0,400}", format in format()) {
        let imported = import(&text, &settings(format), &mut NoFiles);
        prop_assert!(imported.toml.parse::<toml::Table>().is_ok(), "{}", imported.toml);
    }

    #[test]
    fn any_words_become_toml(text in words(), format in format()) {
        let imported = import(&text, &settings(format), &mut NoFiles);
        prop_assert!(imported.toml.parse::<toml::Table>().is_ok(), "{}", imported.toml);
        prop_assert!(!imported.report().is_empty());
    }
}

/// Files that all include one another.
struct Circle;

impl Files for Circle {
    fn read(&mut self, _: &str) -> Result<String, String> {
        Ok("include a;\ninclude b\nvia on\n".to_owned())
    }

    fn matching(&mut self, pattern: &str) -> Vec<String> {
        vec![pattern.to_owned()]
    }

    fn is_there(&mut self, _: &str) -> bool {
        true
    }
}

#[test]
fn circles_of_files_and_deep_blocks_end() {
    for (format, text) in [
        (Format::Squid, "include a\n".to_owned()),
        (Format::Nginx, "include a;\n".to_owned()),
        (Format::Nginx, "a { ".repeat(100_000)),
        (Format::Varnish, format!("sub vcl_recv {{ {}", "if (req.url) { ".repeat(100_000))),
        (Format::Varnish, format!("sub vcl_recv {{ if {}", "(".repeat(100_000))),
        (Format::Squid, "if true\n".repeat(10_000)),
        (Format::Squid, "acl a any-of a\nhttp_access allow a\n".to_owned()),
        (Format::Varnish, "sub vcl_recv { call vcl_recv; }".to_owned()),
    ] {
        let imported = import(&text, &settings(format), &mut Circle);
        assert!(imported.toml.len() < 64 << 20, "{} bytes", imported.toml.len());
    }
}
