//! Answers of the gateway: heads and bodies of HTTP/1.1, and refusals in words of the server.

use super::{Afterwards, Broken};
use larder_wire::date::{Stamp, format_date};
use larder_wire::{Method, RequestHead};
use std::fmt::Write;
use suppaftp::types::Response;
use suppaftp::{FtpError, Status};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;

/// Why a request gets another answer than it asks for.
pub(super) enum Refusal {
    /// The connection to the server broke: there is no answer at all.
    Broken,
    /// Another method than GET and HEAD.
    Method,
    /// The request means nothing to an FTP server, and why.
    Request(&'static str),
    /// The server wants another login.
    Login(Response),
    /// The server refused a command.
    Server(Response),
    /// The server's reply breaks the rules of FTP.
    Unreadable,
}

impl From<FtpError> for Refusal {
    fn from(error: FtpError) -> Refusal {
        match error {
            FtpError::UnexpectedResponse(reply) => match reply.status {
                Status::NotLoggedIn | Status::InvalidCredentials | Status::LoginNeedAccount => Refusal::Login(reply),
                _ => Refusal::Server(reply),
            },
            FtpError::ConnectionError(error) if error.kind() != std::io::ErrorKind::InvalidData => Refusal::Broken,
            _ => Refusal::Unreadable,
        }
    }
}

impl Refusal {
    /// Whether the server says that it has no such file, or none for this login.
    pub fn is_absent(&self) -> bool {
        matches!(self, Refusal::Server(reply) if reply.status == Status::FileUnavailable)
    }

    /// Whether the server does not know the command.
    pub fn is_unknown_command(&self) -> bool {
        let unknown =
            [Status::BadCommand, Status::BadArguments, Status::NotImplemented, Status::NotImplementedParameter];
        matches!(self, Refusal::Server(reply) if unknown.contains(&reply.status))
    }

    fn status(&self) -> &'static str {
        match self {
            Refusal::Method => "405 Method Not Allowed",
            Refusal::Request(_) => "400 Bad Request",
            Refusal::Login(_) => "401 Unauthorized",
            Refusal::Server(reply) if reply.status == Status::FileUnavailable => match is_denial(reply) {
                true => "403 Forbidden",
                false => "404 Not Found",
            },
            Refusal::Server(reply) if (400..500).contains(&reply.status.code()) => "503 Service Unavailable",
            Refusal::Server(_) | Refusal::Unreadable | Refusal::Broken => "502 Bad Gateway",
        }
    }

    fn text(&self) -> String {
        match self {
            Refusal::Method => "Files of FTP servers can be read here, not changed.\n".to_owned(),
            Refusal::Request(why) => format!("The request can't be put to an FTP server: {why}.\n"),
            Refusal::Login(reply) | Refusal::Server(reply) => format!("The FTP server says:\n\n{}\n", words(reply)),
            Refusal::Unreadable => "The reply of the FTP server can't be read.\n".to_owned(),
            Refusal::Broken => "The connection to the FTP server broke.\n".to_owned(),
        }
    }

    fn fields(&self) -> &'static str {
        match self {
            Refusal::Method => "Allow: GET, HEAD\r\n",
            Refusal::Login(_) => "WWW-Authenticate: Basic realm=\"FTP\"\r\n",
            _ => "",
        }
    }
}

fn is_denial(reply: &Response) -> bool {
    words(reply).to_ascii_lowercase().contains("denied")
}

/// The words of a reply without its control characters.
fn words(reply: &Response) -> String {
    let text = String::from_utf8_lossy(&reply.body);
    text.chars().filter(|letter| !letter.is_control() || *letter == '\n').take(WORDS_MAX).collect()
}

/// Characters of a server's reply that are shown.
const WORDS_MAX: usize = 2_000;

/// The answer to one request on its way.
pub(super) struct Answer<'a> {
    is_head: bool,
    to: &'a mut OwnedWriteHalf,
}

/// The beginning of an answer that has a body.
pub(super) struct AnswerHead<'a> {
    /// Status and reason.
    pub status: &'a str,
    /// Fields besides those of the framing; each line ends with CR LF.
    pub fields: &'a str,
    /// The length of the body, where it is known; a body without one is sent in chunks.
    pub length: Option<u64>,
    /// Whether the connection takes another request afterwards.
    pub afterwards: Afterwards,
}

impl<'a> Answer<'a> {
    /// The answer to this request.
    pub fn to(head: &RequestHead, to: &'a mut OwnedWriteHalf) -> Answer<'a> {
        Answer { is_head: head.method == Method::Head, to }
    }

    /// Whether the answer has a head alone.
    pub fn is_head(&self) -> bool {
        self.is_head
    }

    /// Sends the head.
    pub async fn begin(&mut self, head: &AnswerHead<'_>) -> Result<(), Broken> {
        let mut text = format!("HTTP/1.1 {}\r\n{}", head.status, head.fields);
        match head.length {
            Some(length) => drop(write!(text, "Content-Length: {length}\r\n")),
            None => text.push_str("Transfer-Encoding: chunked\r\n"),
        }
        if head.afterwards == Afterwards::Close {
            text.push_str("Connection: close\r\n");
        }
        text.push_str("\r\n");
        Ok(self.to.write_all(text.as_bytes()).await?)
    }

    /// Sends a piece of a body of known length.
    pub async fn piece(&mut self, piece: &[u8]) -> Result<(), Broken> {
        Ok(self.to.write_all(piece).await?)
    }

    /// Sends a piece of a body in chunks; an empty one ends it.
    pub async fn chunk(&mut self, piece: &[u8]) -> Result<(), Broken> {
        self.to.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).await?;
        self.to.write_all(piece).await?;
        Ok(self.to.write_all(b"\r\n").await?)
    }

    /// Sends a whole answer.
    pub async fn whole(&mut self, head: &AnswerHead<'_>, body: &[u8]) -> Result<Afterwards, Broken> {
        let length = Some(body.len() as u64);
        self.begin(&AnswerHead { length, ..*head }).await?;
        if !self.is_head {
            self.piece(body).await?;
        }
        Ok(head.afterwards)
    }

    /// Says 304: the file has not changed.
    pub async fn not_changed(&mut self, fields: &str) -> Result<Afterwards, Broken> {
        self.to.write_all(format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n").as_bytes()).await?;
        Ok(Afterwards::Open)
    }

    /// Answers with a refusal; the connection ends with it, since nothing is known of the server's state after one.
    pub async fn refuse(&mut self, refusal: &Refusal) -> Result<Afterwards, Broken> {
        let fields = format!(
            "Content-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n{}",
            refusal.fields()
        );
        let head =
            AnswerHead { status: refusal.status(), fields: &fields, length: None, afterwards: Afterwards::Close };
        self.whole(&head, refusal.text().as_bytes()).await
    }
}

/// A field with a date.
pub(super) fn dated(name: &str, at: Stamp) -> String {
    format!("{name}: {}\r\n", String::from_utf8_lossy(&format_date(at)))
}
