//! `yarn.lock` of Yarn 1, which has URLs, and of later versions, which have names.

use super::npm::{Source, source};
use super::{Download, FROM_GIT, LeftOut, Listed, NO_VERSION, NpmPage, Tool, Wrong};

pub(super) fn read(text: &str) -> Result<Listed, Wrong> {
    let mut listed = Listed::default();
    let mut name = String::new();
    for line in text.lines() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let is_inside = line.starts_with([' ', '\t']);
        if !is_inside {
            name = line.trim_end_matches(':').to_owned();
            continue;
        }
        let line = line.trim();
        if let Some(resolved) = line.strip_prefix("resolved ") {
            first(&mut listed, &name, resolved.trim_matches('"'));
        } else if let Some(resolution) = line.strip_prefix("resolution: ") {
            later(&mut listed, resolution.trim_matches('"'));
        }
    }
    Ok(listed)
}

/// Yarn 1: the URL, with the digest behind it.
fn first(listed: &mut Listed, name: &str, resolved: &str) {
    match source(resolved, "") {
        Source::Url(url) => listed.add(Download::Url(Tool::Node, url)),
        Source::Git => listed.left_out.push(LeftOut { what: name.to_owned(), why: FROM_GIT }),
        Source::Registry | Source::Here => {}
    }
}

/// Later versions: `name@npm:version`, or another source behind the name.
fn later(listed: &mut Listed, resolution: &str) {
    let Some((name, source)) =
        resolution.char_indices().skip(1).find(|(_, letter)| *letter == '@').map(|(at, _)| resolution.split_at(at))
    else {
        return;
    };
    let source = &source[1..];
    let Some(version) = source.strip_prefix("npm:") else {
        if source.contains(".git") || source.starts_with("git") {
            listed.leave_out(resolution, FROM_GIT);
        } else if source.starts_with("http") {
            listed.add(Download::Url(Tool::Node, source.split('#').next().unwrap_or(source).to_owned()));
        }
        return;
    };
    // An alias names the real package too.
    let (name, version) = match version.rsplit_once('@') {
        Some((real, version)) if !real.is_empty() => (real, version),
        _ => (name, version),
    };
    let version = version.split("::").next().unwrap_or(version);
    if version.starts_with(|first: char| first.is_ascii_digit()) {
        listed.add(Download::Npm { name: name.to_owned(), version: version.to_owned(), page: NpmPage::Unread });
    } else {
        listed.leave_out(resolution, NO_VERSION);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Download, Format, NpmPage, urls_of};

    #[test]
    fn the_first_version_has_urls() {
        let file = "# yarn lockfile v1\n\n\"@s/a@^1.0.0\":\n  version \"1.0.1\"\n  resolved \"https://r.example/@s/a/-/a-1.0.1.tgz#abc\"\n  integrity sha512-x\n  dependencies:\n    b \"^2\"\n\n\
            g@git+https://h.example/g.git:\n  version \"0.0.0\"\n  resolved \"git+https://h.example/g.git#0123\"\n";
        let listed = Format::Yarn.read(file).unwrap();
        assert_eq!(urls_of(&listed), ["https://r.example/@s/a/-/a-1.0.1.tgz"]);
        assert_eq!(listed.left_out.len(), 1);
    }

    #[test]
    fn later_versions_have_names() {
        let file = "__metadata:\n  version: 8\n\n\"@s/a@npm:^1.0.0\":\n  version: 1.0.1\n  resolution: \"@s/a@npm:1.0.1\"\n  checksum: 10c0/ff\n\n\
            \"x@npm:y@^1\":\n  resolution: \"x@npm:y@1.2.3\"\n\n\"mine@workspace:.\":\n  resolution: \"mine@workspace:.\"\n\n\
            \"t@https://r.example/t.tgz\":\n  resolution: \"t@https://r.example/t.tgz\"\n";
        let listed = Format::Yarn.read(file).unwrap();
        let npm = |name: &str, version: &str| Download::Npm {
            name: name.to_owned(),
            version: version.to_owned(),
            page: NpmPage::Unread,
        };
        assert_eq!(listed.downloads[..2], [npm("@s/a", "1.0.1"), npm("y", "1.2.3")]);
        assert_eq!((urls_of(&listed), listed.left_out.len()), (Vec::from(["https://r.example/t.tgz"]), 0));
    }
}
