//! The answer to OPTIONS: the abilities and wishes of a service (RFC 3507 section 4.10.2).

use super::{Reply, Vector};
use crate::fields::trim;
use std::time::Duration;

/// The abilities and wishes of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether it may be asked about requests.
    pub reqmod: bool,
    /// Whether it may be asked about responses.
    pub respmod: bool,
    /// The tag of what it answers by: answers under another tag are not to be reused (section 4.7).
    pub istag: Option<Box<str>>,
    /// The bytes of a body that it wants to see first. 0 means the heads alone.
    pub preview: Option<u64>,
    /// Whether it answers 204 to a question without a preview.
    pub allows_204: bool,
    /// How many connections at once are welcome.
    pub connections_max: Option<u64>,
    /// For how long this answer holds; `None` where it does not say.
    pub ttl: Option<Duration>,
    ignore: Box<[Box<str>]>,
    preview_first: Box<[Box<str>]>,
    complete: Box<[Box<str>]>,
    usual: Transfer,
}

/// The way in which a body is given to a service, by the extension of the URL's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// The service does not want to be asked.
    Ignore,
    /// A preview first.
    Preview,
    /// The whole body at once.
    Complete,
}

/// Lists of extensions are no longer than this; more entries are passed over.
const EXTENSIONS_MAX: usize = 1024;

impl Capabilities {
    /// Reads the fields of an answer with status 200.
    pub fn of(reply: &Reply) -> Capabilities {
        let fields = &reply.fields;
        let number = |name| {
            let text = fields.text(name).map(str::trim).filter(|text| text.len() <= 18)?;
            text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok())?
        };
        let preview = number("Preview");
        let lists = ["Transfer-Ignore", "Transfer-Preview", "Transfer-Complete"].map(|name| {
            let members = fields.members(name).filter_map(|member| std::str::from_utf8(trim(member)).ok());
            members.take(EXTENSIONS_MAX).map(|member| member.to_ascii_lowercase().into()).collect::<Box<[Box<str>]>>()
        });
        let has_all = |list: &[Box<str>]| list.iter().any(|entry| &**entry == "*");
        let [ignore, preview_first, complete] = lists;
        let usual = match preview {
            _ if has_all(&complete) => Transfer::Complete,
            _ if has_all(&ignore) => Transfer::Ignore,
            Some(_) => Transfer::Preview,
            None => Transfer::Complete,
        };
        let has_method = |vector: Vector| fields.has_member("Methods", vector.as_str());
        Capabilities {
            reqmod: has_method(Vector::Reqmod),
            respmod: has_method(Vector::Respmod),
            istag: fields.text("ISTag").map(|tag| tag.trim().trim_matches('"').into()),
            preview,
            allows_204: fields.has_member("Allow", "204"),
            connections_max: number("Max-Connections"),
            ttl: number("Options-TTL").map(Duration::from_secs),
            ignore,
            preview_first,
            complete,
            usual,
        }
    }

    /// Whether the service is for this.
    pub fn serves(&self, vector: Vector) -> bool {
        match vector {
            Vector::Reqmod => self.reqmod,
            Vector::Respmod => self.respmod,
        }
    }

    /// How the body of a message for this path (with its query) is given to the service.
    pub fn transfer(&self, path: &str) -> Transfer {
        let path = path.split('?').next().unwrap_or_default();
        let name = path.rsplit('/').next().unwrap_or_default();
        let Some((_, extension)) = name.rsplit_once('.') else { return self.usual };
        let is_in = |list: &[Box<str>]| list.iter().any(|entry| entry.eq_ignore_ascii_case(extension));
        match () {
            () if is_in(&self.complete) => Transfer::Complete,
            () if is_in(&self.preview_first) && self.preview.is_some() => Transfer::Preview,
            () if is_in(&self.ignore) => Transfer::Ignore,
            () => self.usual,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icap::reply;
    use crate::parse::{HeadLimits, Parsed};

    fn capabilities(fields: &str) -> Capabilities {
        let text = format!("ICAP/1.0 200 OK\r\n{fields}Encapsulated: null-body=0\r\n\r\n");
        let Ok(Parsed::Complete { head, .. }) = reply(text.as_bytes(), &HeadLimits::default()) else {
            panic!("no reply: {text}")
        };
        Capabilities::of(&head)
    }

    #[test]
    fn a_service_says_its_wishes() {
        let it = capabilities(
            "Methods: RESPMOD, REQMOD\r\nISTag: \"5BDEEEA9\"\r\nMax-Connections: 600\r\nOptions-TTL: 3600\r\nAllow: 204, 206\r\n\
             Preview: 1024\r\nTransfer-Preview: *\r\nTransfer-Ignore: jpg, GIF\r\nTransfer-Complete: exe\r\n",
        );
        assert!(it.serves(Vector::Reqmod) && it.serves(Vector::Respmod) && it.allows_204);
        assert_eq!((it.istag.as_deref(), it.preview), (Some("5BDEEEA9"), Some(1024)));
        assert_eq!((it.connections_max, it.ttl), (Some(600), Some(Duration::from_secs(3600))));
        for (path, wanted) in [
            ("/a.JPG", Transfer::Ignore),
            ("/a.gif?x=.exe", Transfer::Ignore),
            ("/a.exe", Transfer::Complete),
            ("/a.jpg/b", Transfer::Preview),
            ("/", Transfer::Preview),
        ] {
            assert_eq!(it.transfer(path), wanted, "{path}");
        }
    }

    #[test]
    fn a_service_that_says_little_gets_all() {
        let it = capabilities("Methods: RESPMOD\r\nISTag: x\r\nPreview: -1\r\nOptions-TTL: soon\r\n");
        assert!(!it.serves(Vector::Reqmod) && it.serves(Vector::Respmod) && !it.allows_204);
        assert_eq!((it.preview, it.connections_max, it.ttl), (None, None, None));
        assert_eq!(it.transfer("/a.jpg"), Transfer::Complete);
        let all = capabilities("Methods: RESPMOD\r\nPreview: 0\r\nTransfer-Ignore: *\r\nTransfer-Preview: html\r\n");
        assert_eq!((all.transfer("/a.jpg"), all.transfer("/a.html")), (Transfer::Ignore, Transfer::Preview));
    }
}
