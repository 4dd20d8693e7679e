//! A plain list: a URL a line, `#` begins a comment.

use super::{Download, Listed, Tool, Wrong, wrong};
use larder_wire::Url;

pub(super) fn read(text: &str) -> Result<Listed, Wrong> {
    let mut listed = Listed::default();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.split('#').next().unwrap_or_default();
        if Url::parse(line).is_none() {
            return Err(wrong(format_args!("line {}: an absolute http or https URL is needed", number + 1)));
        }
        listed.add(Download::Url(Tool::Plain, line.to_owned()));
    }
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use super::super::{Format, urls_of};

    #[test]
    fn each_line_is_a_url() {
        let listed =
            Format::Urls.read("# a\nhttp://a.example/1\n\n https://a.example/2?x=1#y \nhttp://a.example/1\n").unwrap();
        assert_eq!(urls_of(&listed), ["http://a.example/1", "https://a.example/2?x=1"]);
        let trouble = Format::Urls.read("http://a.example/1\nftp://a.example/2\n").unwrap_err().to_string();
        assert!(trouble.starts_with("line 2:"), "{trouble}");
    }
}
