//! `requirements.txt` of pip: `name==version`, with `--hash`, `--index-url` and URLs. Other options and files that are named are not
//! followed.

use super::python::{Wanted, normal};
use super::{Download, FROM_GIT, Listed, NO_VERSION, Tool, Wrong};

pub(super) fn read(text: &str) -> Result<Listed, Wrong> {
    let mut listed = Listed::default();
    let joined = text.replace("\\\r\n", " ").replace("\\\n", " ");
    for line in joined.lines() {
        // A comment begins the line or stands behind a blank; a digest behind a URL does not.
        let line = line.split(" #").next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.starts_with('-') {
            option(&mut listed, line);
        } else {
            requirement(&mut listed, line);
        }
    }
    Ok(listed)
}

fn option(listed: &mut Listed, line: &str) {
    let (name, value) = line.split_once([' ', '=']).unwrap_or((line, ""));
    match name {
        "-i" | "--index-url" => listed.index = Some(value.trim().to_owned()),
        "-r" | "--requirement" => listed.leave_out(line, "name that file on the command line too"),
        "-e" | "--editable" if value.contains("git+") => listed.leave_out(value.trim(), FROM_GIT),
        "--extra-index-url" => listed.leave_out(line, "one index at a time is asked: name it with --index"),
        _ => {}
    }
}

fn requirement(listed: &mut Listed, line: &str) {
    let hashes = line.split_whitespace().filter_map(|word| word.strip_prefix("--hash=")).map(str::to_owned).collect();
    let line = line.split(" --").next().unwrap_or_default();
    let line = line.split(';').next().unwrap_or_default().trim();
    // A URL, alone or behind `name @`.
    let place = line.split_once('@').filter(|(name, _)| !name.contains('/')).map_or(line, |(_, url)| url.trim());
    if place.starts_with("git+") {
        return listed.leave_out(line, FROM_GIT);
    }
    if place.starts_with("http://") || place.starts_with("https://") {
        return listed.add(Download::Url(Tool::Python, place.split('#').next().unwrap_or_default().to_owned()));
    }
    let pinned = line.split_once("===").or_else(|| line.split_once("=="));
    let Some((name, version)) = pinned.filter(|(_, version)| !version.contains([',', '*'])) else {
        let is_here = line.starts_with(['.', '/']);
        return if is_here {
        } else {
            listed.leave_out(line, NO_VERSION)
        };
    };
    let name = normal(name.split('[').next().unwrap_or_default());
    listed.add(Download::Python(Wanted { name, version: version.trim().to_owned(), hashes, index: None }));
}

#[cfg(test)]
mod tests {
    use super::super::python::Wanted;
    use super::super::{Download, Format, urls_of};

    #[test]
    fn pins_hashes_urls_and_the_index() {
        let file = "# made by hand\n--index-url https://i.example/simple\nSix==1.16.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n\
            zope.interface[test] == 5.0 ; python_version > '3'  # why\nx @ https://f.example/x-1.zip#sha256=ff\n./here\ny>=1\nz==1.*\ng @ git+https://h.example/g\n-r other.txt\n";
        let listed = Format::Requirements.read(file).unwrap();
        let python = |name: &str, version: &str, hashes: &[&str]| {
            let hashes = hashes.iter().map(|&hash| hash.to_owned()).collect();
            Download::Python(Wanted { name: name.to_owned(), version: version.to_owned(), hashes, index: None })
        };
        assert_eq!(
            listed.downloads[..2],
            [python("six", "1.16.0", &["sha256:aa", "sha256:bb"]), python("zope-interface", "5.0", &[])]
        );
        assert_eq!(urls_of(&listed), ["https://f.example/x-1.zip"]);
        assert_eq!(listed.index.as_deref(), Some("https://i.example/simple"));
        let left_out: Vec<&str> = listed.left_out.iter().map(|left| &*left.what).collect();
        assert_eq!(left_out, ["y>=1", "z==1.*", "g @ git+https://h.example/g", "-r other.txt"]);
    }
}
