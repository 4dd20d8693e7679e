//! Runs without interception: tools are told by variables that their index is one of the mirror (decision 041). There is no CA, and
//! no proxy variable.

use serde::Serialize;
use std::ffi::OsString;
use std::net::SocketAddr;

/// Where a tool looks names up, as it says itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolIndex {
    /// Its name.
    pub tool: &'static str,
    /// Its variables and the URLs that they would have without Larder, or why it is left alone.
    pub urls: Result<Vec<(&'static str, String)>, &'static str>,
}

/// The answer to the question whether a tool comes through the mirror.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Told {
    /// Its name.
    pub tool: &'static str,
    /// The variables by which it was told.
    pub variables: Vec<&'static str>,
    /// Why it was not.
    pub why_not: Option<&'static str>,
}

/// Why a URL with a user in it is left alone.
const HAS_CREDENTIALS: &str = "its index has credentials, which would not reach the origin";

/// The variables that tell these tools of the mirror at `proxy`, and what was done with each tool.
pub fn tell(proxy: SocketAddr, indexes: &[ToolIndex]) -> (Vec<(&'static str, OsString)>, Vec<Told>) {
    let mut variables = Vec::new();
    let told = indexes.iter().map(|index| {
        let mirrored = index.urls.clone().and_then(|urls| mirrored(proxy, &urls));
        let (names, why_not) = match mirrored {
            Ok(values) => {
                let names = values.iter().map(|(name, _)| *name).collect();
                variables.extend(values);
                (names, None)
            }
            Err(why) => (Vec::new(), Some(why)),
        };
        Told { tool: index.tool, variables: names, why_not }
    });
    let told = told.collect();
    (variables, told)
}

fn mirrored(proxy: SocketAddr, urls: &[(&'static str, String)]) -> Result<Vec<(&'static str, OsString)>, &'static str> {
    let mut values = Vec::new();
    let mut is_any = false;
    for (name, text) in urls {
        let mut value = String::new();
        // pip's lists have white space between URLs, those of Go a comma or a bar.
        for piece in text.split_inclusive([' ', '\t', '\n', ',', '|']) {
            if piece.starts_with("https://") || piece.starts_with("http://") {
                let authority = piece.split('/').nth(2).unwrap_or_default();
                if authority.contains('@') {
                    return Err(HAS_CREDENTIALS);
                }
                value.push_str(&format!("http://{proxy}/"));
                is_any = true;
            }
            value.push_str(piece);
        }
        values.push((*name, OsString::from(value)));
    }
    if is_any { Ok(values) } else { Err("it names no index over HTTP") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_lead_to_the_mirror_and_all_else_stays() {
        let proxy = "127.0.0.1:8".parse().unwrap();
        let index = |text: &str| ToolIndex { tool: "t", urls: Ok(vec![("T", text.to_owned())]) };
        for (text, wanted) in [
            ("https://i.test/simple", Ok("http://127.0.0.1:8/https://i.test/simple")),
            (
                "https://a.test|http://b.test/x,direct",
                Ok("http://127.0.0.1:8/https://a.test|http://127.0.0.1:8/http://b.test/x,direct"),
            ),
            (
                "https://a.test https://b.test/@x",
                Ok("http://127.0.0.1:8/https://a.test http://127.0.0.1:8/https://b.test/@x"),
            ),
            ("https://user:secret@i.test/simple", Err(HAS_CREDENTIALS)),
            ("https://a.test https://user@b.test", Err(HAS_CREDENTIALS)),
            ("direct", Err("it names no index over HTTP")),
            ("off", Err("it names no index over HTTP")),
            ("", Err("it names no index over HTTP")),
        ] {
            let (variables, told) = tell(proxy, &[index(text)]);
            let got = variables.first().map(|(_, value)| value.to_str().unwrap());
            assert_eq!((got, told[0].why_not), (wanted.ok(), wanted.err()), "{text}");
            assert_eq!(told[0].variables.is_empty(), wanted.is_err());
        }
    }
}
