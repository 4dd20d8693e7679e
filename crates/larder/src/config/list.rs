//! Lists of hosts, URLs and networks: one `[[list]]`.

use super::SourceLine;
use super::setting::{Field, Setting, word};
use larder_lists::Format;
use larder_wire::Url;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Where a list comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListSource {
    /// A file, or a folder of files.
    Path(PathBuf),
    /// A URL.
    Url(Url),
}

impl fmt::Display for ListSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListSource::Path(path) => write!(f, "{}", path.display()),
            ListSource::Url(url) => write!(f, "{url}"),
        }
    }
}

/// A SHA-256 of a source.
pub type Sha256 = [u8; 32];

/// A list of hosts, URLs or networks.
#[derive(Clone, Debug, PartialEq)]
pub struct List {
    /// The name by which rules refer to it.
    pub name: String,
    /// Where it comes from.
    pub source: ListSource,
    /// Its format.
    pub format: Format,
    /// Whether names that do not say it cover the names below them too.
    pub subdomains: bool,
    /// How often the source is looked at again.
    pub refresh: Duration,
    /// The only content that is taken.
    pub sha256: Option<Sha256>,
    /// Names, URLs and networks that it does not cover, whatever it says.
    pub allow: Vec<String>,
    /// Where it stands.
    pub place: SourceLine,
}

impl Default for List {
    fn default() -> List {
        List {
            name: String::new(),
            source: ListSource::Path(PathBuf::new()),
            format: Format::Auto,
            subdomains: false,
            refresh: Duration::from_secs(86_400),
            sha256: None,
            allow: Vec::new(),
            place: SourceLine::default(),
        }
    }
}

impl List {
    /// The settings that decide what is compiled, as a text: a compiled list with another one is of no use.
    pub fn compiled_settings(&self) -> String {
        let List { source, format, subdomains, sha256, .. } = self;
        let engine = if larder_lists::HAS_ENGINE { " with the engine for filters" } else { "" };
        format!("{source} {} {subdomains} {}{engine}", format.as_str(), show_sha256(sha256.as_ref()))
    }

    /// Whether it comes from a network.
    pub fn is_remote(&self) -> bool {
        matches!(self.source, ListSource::Url(_))
    }
}

/// A source that is meant as a URL, or a path.
fn source_of(text: &str) -> Option<ListSource> {
    match text.contains("://") {
        true => Url::parse(text).map(ListSource::Url),
        false if text.is_empty() => None,
        false => Some(ListSource::Path(text.into())),
    }
}

fn show_sha256(sum: Option<&Sha256>) -> String {
    sum.map_or_else(String::new, |sum| sum.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// 64 hexadecimal digits.
fn sha256_of(text: &str) -> Option<Sha256> {
    let mut sum = [0; 32];
    if text.len() != 2 * sum.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, digits) in sum.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(sum)
}

type OfList = Setting<List>;

const MINUTE: u64 = 60_000;
const YEAR: u64 = 365 * 86_400_000;

/// Settings of one `[[list]]`.
pub static LIST: &[Setting<List>] = &[
    OfList::new(
        "list.name",
        Field::Name(|l| &mut l.name),
    )
    .required()
    .about("The name by which rules and commands refer to it, of letters, digits, `-`, `_` and `.`."),
    OfList::new(
        "list.source",
        Field::Text {
            form: "file, folder or URL",
            read: |l| l.source.to_string(),
            write: |l, text| source_of(text).map(|source| l.source = source).is_some(),
        },
    )
    .required()
    .about("A file, a folder (squidGuard's, or one whose files are read one after the other), or an http or https URL. Text, gzip and tar archives are read."),
    OfList::new(
        "list.format",
        Field::Text {
            form: "auto, hosts, domains, urls, networks, adblock, squidguard or rpz",
            read: |l| l.format.as_str().to_owned(),
            write: |l, text| {
                let format = word(&Format::ALL, Format::as_str, text);
                format.map(|format| l.format = format).is_some()
            },
        },
    )
    .about("The format of the source ([lists](lists.md)); `auto` finds it out from the first lines."),
    OfList::new("list.subdomains", Field::Flag(|l| &mut l.subdomains))
        .about("Whether a name of a `hosts` or `domains` list covers all names below it too. A name with a dot or `*.` in front does in any case, and so do those of `squidguard` and `adblock`."),
    OfList::new("list.refresh", Field::Time(|l| &mut l.refresh))
        .between(MINUTE, YEAR)
        .about("How often the source is looked at again: a URL with `If-None-Match` and `If-Modified-Since`, a file by its time and length. A list that can't be had, or that has become a tenth of what it was, leaves the one before in force. `larder reload` looks at files at once."),
    OfList::new(
        "list.sha256",
        Field::Text {
            form: "64 hexadecimal digits",
            read: |l| show_sha256(l.sha256.as_ref()),
            write: |l, text| {
                l.sha256 = sha256_of(text);
                l.sha256.is_some() || text.is_empty()
            },
        },
    )
    .about("The SHA-256 of the file or download; another content is not taken."),
    OfList::new(
        "list.allow",
        Field::Texts {
            form: "names, URLs and networks",
            read: |l| l.allow.clone(),
            clear: |l| l.allow.clear(),
            push: |l, text| {
                l.allow.push(text.to_owned());
                crate::config::list::is_exception(text)
            },
        },
    )
    .about("Names, URLs and networks that the list does not cover, whatever it says: `www.example.com`, `.example.com` with all below, `example.com/path`, `192.0.2.0/24`."),
];

/// Whether a text can be an exception.
pub fn is_exception(text: &str) -> bool {
    exceptions(std::slice::from_ref(&text.to_owned())).is_some()
}

/// A list that covers these exceptions; `None` where one is no name, URL or network.
pub fn exceptions(texts: &[String]) -> Option<larder_lists::Compiled> {
    let mut key = [0; 16];
    aws_lc_rs::rand::fill(&mut key).ok()?;
    let mut builder = larder_lists::Builder::new(larder_lists::Options::default(), larder_lists::HashKey::of(key));
    for text in texts {
        builder.read_exception(text).ok()?;
    }
    builder.finish().ok().map(larder_lists::Draft::compile)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_lists::Subject;

    #[test]
    fn exceptions_are_names_urls_or_networks() {
        let texts = [
            "www.example.com",
            ".tree.example",
            "example.com/path",
            "192.0.2.0/24",
            "https://files.example/x",
            "https://www.shop.example/",
        ];
        for text in texts {
            assert!(is_exception(text), "{text}");
        }
        for text in ["", "two words", "# comment", "http://", "/path", "a..b"] {
            assert!(!is_exception(text), "{text}");
        }
        let list = exceptions(&texts.map(str::to_owned)).unwrap();
        let url = |host, path| Subject::Url { scheme: "http", host, path };
        assert!(list.covers(Subject::Host("a.tree.example")) && list.covers(url("example.com", "/path/x")));
        assert!(list.covers(Subject::Host("www.shop.example")) && list.covers(Subject::Host("shop.example")));
        assert!(!list.covers(url("example.com", "/")) && !list.covers(Subject::Host("a.www.example.com")));
    }

    #[test]
    fn sources_and_sums() {
        assert_eq!(source_of("/etc/larder/ads.txt"), Some(ListSource::Path("/etc/larder/ads.txt".into())));
        assert!(matches!(source_of("https://lists.example/ads.txt"), Some(ListSource::Url(_))));
        assert_eq!((source_of("ftp://lists.example/x"), source_of("")), (None, None));
        let digits = "00ff".repeat(16);
        assert_eq!(show_sha256(sha256_of(&digits).as_ref()), digits);
        assert_eq!(
            (sha256_of(&digits[1..]), sha256_of(&"zz".repeat(32)), sha256_of(&"ü".repeat(32))),
            (None, None, None)
        );
    }
}
