//! A request for a page, and its bytes.

use crate::board::Board;
use crate::ledger::Kind;
use larder_wire::Method;
use std::fmt::Write;
use std::net::SocketAddr;

/// A request, with what was known when it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The hello page.
    Hello,
    /// The page of a thread.
    Thread {
        /// The thread.
        thread: u32,
        /// The user who is signed in, if one is.
        reader: Option<u32>,
        /// Posts that the application had acknowledged.
        acknowledged: usize,
        /// Whether it is the page to which a post led.
        follows_post: bool,
    },
    /// A page of the list of threads.
    List {
        /// The page, counted from 0.
        page: u32,
        /// Posts of each of its threads that the application had acknowledged.
        acknowledged: Vec<usize>,
    },
    /// A post.
    Post {
        /// The thread.
        thread: u32,
        /// The user who writes it.
        user: u32,
        /// Its text.
        text: String,
    },
}

impl Ask {
    /// Names of the kinds of pages, in the order of their numbers.
    pub const CONTENTS: [&str; 6] = ["hello", "thread", "list", "post", "thread after a post", "thread for a user"];

    /// Its place in [`Self::CONTENTS`].
    pub fn content(&self) -> u8 {
        match self {
            Self::Hello => 0,
            Self::List { .. } => 2,
            Self::Post { .. } => 3,
            Self::Thread { follows_post: true, .. } => 4,
            Self::Thread { reader: Some(_), .. } => 5,
            Self::Thread { .. } => 1,
        }
    }

    /// The kind of request that ledgers know.
    pub fn kind(&self) -> Kind {
        if matches!(self, Self::Post { .. }) { Kind::Upload } else { Kind::Page }
    }

    /// Its method.
    pub fn method(&self) -> Method {
        if matches!(self, Self::Post { .. }) { Method::Post } else { Method::Get }
    }

    /// Its target.
    pub fn path(&self) -> String {
        match self {
            Self::Hello => "/hello".to_owned(),
            Self::Thread { thread, .. } | Self::Post { thread, .. } => format!("/thread/{thread}"),
            Self::List { page, .. } => format!("/list/{page}"),
        }
    }

    /// Its bytes, head and body.
    pub fn bytes(&self, board: Option<&Board>, host: SocketAddr, closes: bool) -> Vec<u8> {
        let mut out = String::with_capacity(256);
        let _ = write!(out, "{} {} HTTP/1.1\r\nHost: {host}\r\n", self.method().as_str(), self.path());
        out.push_str("User-Agent: cacheoff\r\nAccept: */*\r\n");
        let user = match self {
            Self::Thread { reader, .. } => *reader,
            Self::Post { user, .. } => Some(*user),
            Self::Hello | Self::List { .. } => None,
        };
        if let Some((user, board)) = user.zip(board) {
            let _ = write!(out, "Cookie: session={}\r\n", board.user(user).token);
        }
        if closes {
            out.push_str("Connection: close\r\n");
        }
        if let Self::Post { text, .. } = self {
            let form = format!("text={}", form_encoded(text));
            let _ = write!(
                out,
                "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
                form.len()
            );
        } else {
            out.push_str("\r\n");
        }
        out.into_bytes()
    }
}

/// A text as a browser sends it in a form.
fn form_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        match byte {
            b' ' => out.push('+'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'*' | b'-' | b'.' | b'_' => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_who_asks_and_whether_it_is_the_last_one() {
        let board = Board::new();
        let bytes = |ask: &Ask, closes| {
            String::from_utf8(ask.bytes(Some(&board), "127.0.0.1:80".parse().unwrap(), closes)).unwrap()
        };
        let hello = "GET /hello HTTP/1.1\r\nHost: 127.0.0.1:80\r\nUser-Agent: cacheoff\r\nAccept: */*\r\n";
        assert_eq!(bytes(&Ask::Hello, false), format!("{hello}\r\n"));
        assert_eq!(bytes(&Ask::Hello, true), format!("{hello}Connection: close\r\n\r\n"));
        let post = Ask::Post { thread: 7, user: 3, text: "a & b=c\u{fc}".to_owned() };
        let text = bytes(&post, false);
        let cookie = format!("Cookie: session={}\r\n", board.user(3).token);
        assert!(text.starts_with("POST /thread/7 HTTP/1.1\r\n") && text.contains(&cookie), "{text}");
        assert!(text.ends_with("Content-Length: 22\r\n\r\ntext=a+%26+b%3Dc%C3%BC"), "{text}");
    }

    #[test]
    fn each_kind_of_page_has_a_name() {
        let thread = |reader, follows_post| Ask::Thread { thread: 1, reader, acknowledged: 0, follows_post };
        let names = [
            (Ask::Hello, "hello"),
            (thread(None, false), "thread"),
            (thread(Some(1), true), "thread after a post"),
            (thread(Some(1), false), "thread for a user"),
            (Ask::List { page: 0, acknowledged: Vec::new() }, "list"),
        ];
        for (ask, name) in names {
            assert_eq!(Ask::CONTENTS[usize::from(ask.content())], name);
        }
    }
}
