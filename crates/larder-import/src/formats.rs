//! The formats of sources, and how they are told apart.

/// The program whose configuration is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `squid.conf`.
    Squid,
    /// `nginx.conf`, or a file of a site.
    Nginx,
    /// A file in VCL 4.0 or 4.1.
    Varnish,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 3] = [Format::Squid, Format::Nginx, Format::Varnish];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Squid => "squid",
            Format::Nginx => "nginx",
            Format::Varnish => "varnish",
        }
    }
}

/// The format of a file, by its name and then by its content; `None` where neither says.
pub fn guess(name: &str, text: &str) -> Option<Format> {
    let lower = name.to_ascii_lowercase();
    if lower.ends_with(".vcl") {
        return Some(Format::Varnish);
    }
    let by_name = [("squid", Format::Squid), ("nginx", Format::Nginx), ("sites-", Format::Nginx)];
    let by_name = by_name.into_iter().find(|(part, _)| lower.contains(part)).map(|(_, format)| format);
    let (mut squid, mut nginx, mut vcl) = (0_usize, 0_usize, 0_usize);
    for line in text.lines().take(5_000) {
        let line = line.trim();
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let word = line.split_whitespace().next().unwrap_or_default();
        vcl += usize::from(["vcl", "sub", "backend", "import", "probe"].contains(&word) && !line.ends_with(':'));
        nginx += usize::from(
            ["server", "location", "upstream", "http", "events", "proxy_pass", "listen", "server_name"].contains(&word)
                && line.ends_with(['{', ';', '}']),
        );
        squid += usize::from(
            ["acl", "http_access", "http_port", "cache_dir", "cache_mem", "refresh_pattern", "cache_peer"]
                .contains(&word)
                && !line.ends_with(['{', ';', '}']),
        );
    }
    let best = [(squid, Format::Squid), (nginx, Format::Nginx), (vcl, Format::Varnish)];
    let best = best.into_iter().filter(|(points, _)| *points > 0).max_by_key(|(points, _)| *points);
    best.map(|(_, format)| format).or(by_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_apart() {
        for (name, text, wanted) in [
            ("squid.conf", "", Some(Format::Squid)),
            ("x", "acl a src 10.0.0.0/8\nhttp_access allow a\n", Some(Format::Squid)),
            ("site.conf", "server {\n listen 80;\n}", Some(Format::Nginx)),
            ("site.conf", "server { listen 80; }", Some(Format::Nginx)),
            ("default.vcl", "", Some(Format::Varnish)),
            ("-", "vcl 4.1;\nbackend default {\n}", Some(Format::Varnish)),
            ("-", "hello", None),
        ] {
            assert_eq!(guess(name, text), wanted, "{name} {text}");
        }
        assert_eq!(Format::ALL.map(Format::as_str), ["squid", "nginx", "varnish"]);
    }
}
