//! Git over HTTP as far as a cache has to know it: which requests ask `git-upload-pack` something, what they ask, and whether an
//! answer is one that another client may have (decision 043). Values only; requests are carried by `exchange` and `fetch`.

mod answer;
mod gunzip;

pub use answer::{AnswerEnd, GitAnswer};
pub use gunzip::decoded;

use larder_wire::{Fields, Method, RequestHead};

/// The kind of a question to `git-upload-pack`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// For the names of a repository, which change: `info/refs`, and `ls-refs` of protocol 2.
    Refs,
    /// For objects by their ids, the same for ever.
    Pack,
}

/// The longest request body that is kept in memory to look for its answer. A fetch into a repository with many branches sends a few
/// hundred kilobytes of ids.
pub const BODY_BYTES_MAX: u64 = 1024 * 1024;

/// Whether this request is a POST to `git-upload-pack`.
pub fn is_upload_pack(request: &RequestHead, path: &str) -> bool {
    request.method == Method::Post
        && path.ends_with("/git-upload-pack")
        && is_type(&request.fields, "application/x-git-upload-pack-request")
}

/// Whether these are the fields of an answer to such a POST.
pub fn is_upload_pack_answer(fields: &Fields) -> bool {
    is_type(fields, "application/x-git-upload-pack-result")
}

/// The path of the refs of the repository whose `git-upload-pack` this path names.
pub fn refs_path(path: &str) -> Option<String> {
    path.strip_suffix("/git-upload-pack").map(|repository| format!("{repository}{REFS}"))
}

/// Whether this path asks for the refs of a repository.
pub fn is_refs(path: &str) -> bool {
    path.ends_with(REFS)
}

/// Whether these are the fields of an answer to that question.
pub fn is_refs_answer(fields: &Fields) -> bool {
    is_type(fields, "application/x-git-upload-pack-advertisement")
}

const REFS: &str = "/info/refs?service=git-upload-pack";

fn is_type(fields: &Fields, wanted: &str) -> bool {
    fields.text("Content-Type").is_some_and(|said| said.trim().eq_ignore_ascii_case(wanted))
}

/// The question of a request body; `None` where its answer may be another one tomorrow, or where the body is none that is known.
///
/// A fetch names objects by their ids, in what it wants and in what it has, so a pack that answers it once answers it always. Not
/// so one that names refs (`want-ref`, `deepen-not`), counts from a date that may lie in the past of a rewritten history
/// (`deepen-since`), or wants addresses of packs, which expire (`packfile-uris`).
pub fn question(body: &[u8]) -> Option<Question> {
    let mut lines = Lines { rest: body };
    let first = lines.next()?;
    let is_sha256 = |line: &[u8]| line.windows(SHA256.len()).any(|word| word == SHA256);
    let mut is_pack = !is_sha256(first) && (first.starts_with(b"want ") || first.starts_with(b"command=fetch"));
    let is_refs = first.starts_with(b"command=ls-refs");
    for line in lines.by_ref() {
        is_pack &= !is_sha256(line);
        is_pack &= !CHANGING.iter().any(|start| line.starts_with(start.as_bytes()));
    }
    match (lines.rest.is_empty(), is_pack, is_refs) {
        (true, true, _) => Some(Question::Pack),
        (true, _, true) => Some(Question::Refs),
        _ => None,
    }
}

/// Beginnings of lines whose answer may be another one tomorrow.
const CHANGING: [&str; 4] = ["want-ref ", "deepen-not ", "deepen-since ", "packfile-uris "];

/// A repository whose ids and checksums are SHA-256: its packs can't be compared yet, so they are not stored.
const SHA256: &[u8] = b"object-format=sha256";

/// The lines of a body in git's framing (`pkt-line`); it stops before the first bytes that are none.
struct Lines<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (start, _) = self.rest.split_at_checked(4)?;
        let length = line_length(start.try_into().ok()?)?;
        // 0, 1 and 2 end parts of a message, and have no content.
        let (line, rest) = self.rest.split_at_checked(length.max(4))?;
        self.rest = rest;
        Some(&line[4..])
    }
}

/// The length of a line, its own four digits included; `None` for what is none.
fn line_length(digits: [u8; 4]) -> Option<usize> {
    let mut length = 0;
    for digit in digits {
        length = length << 4 | char::from(digit).to_digit(16)? as usize;
    }
    (length != 3 && length <= LINE_BYTES_MAX).then_some(length)
}

/// The longest line of the protocol.
const LINE_BYTES_MAX: usize = 65_520;

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn line(text: &str) -> String {
        format!("{:04x}{text}", text.len() + 4)
    }

    #[test]
    fn questions() {
        let id = "95f60ecc22738faed94b0d6b2995f1cad0b687db";
        let v2 = |lines: &[&str]| {
            let arguments: String = lines.iter().map(|text| line(text)).collect();
            format!("{}{}0001{arguments}0000", line("command=fetch"), line("object-format=sha1"))
        };
        let want = format!("want {id}\n");
        let cases = [
            ("a clone", v2(&["ofs-delta", &want, "done\n"]), Some(Question::Pack)),
            ("a fetch", v2(&[&want, &format!("have {id}\n")]), Some(Question::Pack)),
            ("the newest commit", v2(&[&want, "deepen 1\n", "done\n"]), Some(Question::Pack)),
            ("by the name of a ref", v2(&["want-ref refs/heads/main\n", "done\n"]), None),
            ("not what a ref has", v2(&[&want, "deepen-not v1\n", "done\n"]), None),
            ("since a date", v2(&[&want, "deepen-since 1700000000\n", "done\n"]), None),
            ("addresses of packs", v2(&[&want, "packfile-uris https\n", "done\n"]), None),
            ("other ids", v2(&["object-format=sha256", &want]), None),
            ("refs", format!("{}0001{}0000", line("command=ls-refs\n"), line("peel\n")), Some(Question::Refs)),
            ("sizes of objects", format!("{}0000", line("command=object-info")), None),
            (
                "an older client",
                format!("{}0000{}", line(&format!("want {id} ofs-delta\n")), line("done\n")),
                Some(Question::Pack),
            ),
            ("a line that is cut off", v2(&[&want]).trim_end_matches('0').to_owned() + "00", None),
            ("bytes after it", v2(&[&want]) + "?", None),
            ("nothing", String::new(), None),
            ("no line at all", "want everything".to_owned(), None),
            ("the length 3", "0003".to_owned(), None),
        ];
        for (what, body, expected) in cases {
            assert_eq!(question(body.as_bytes()), expected, "{what}: {body}");
        }
    }

    #[test]
    fn paths() {
        assert_eq!(
            refs_path("/a/b.git/git-upload-pack").as_deref(),
            Some("/a/b.git/info/refs?service=git-upload-pack")
        );
        assert_eq!(refs_path("/a/b.git/git-receive-pack"), None);
        assert!(is_refs("/a/info/refs?service=git-upload-pack"));
        assert!(!is_refs("/a/info/refs?service=git-receive-pack") && !is_refs("/a/info/refs"));
    }
}
