//! A login at an FTP server, and how requests are answered by it.

use super::answer::{Answer, AnswerHead, Refusal, dated};
use super::listing::{self, Listing};
use super::path::{FtpPath, bytes_of, encode, latin1};
use super::{Afterwards, Broken, FINISH_WITHIN, READ_BYTES};
use crate::base64;
use larder_wire::date::{Stamp, parse_date};
use larder_wire::range::{ContentRange, parse_range};
use larder_wire::{Fields, Method, RequestHead};
use std::io;
use std::ops::Range;
use suppaftp::tokio::{AsyncFtpStream, AsyncNoTlsStream, TransferStream};
use suppaftp::types::FileType;
use suppaftp::{Mode, Status};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A user with a password.
#[derive(PartialEq, Eq)]
pub(super) struct Login {
    user: String,
    password: String,
}

/// The name by which everybody may log in (RFC 1635).
const ANONYMOUS: &str = "anonymous";

impl Login {
    /// The login of a request: that of `Authorization: Basic`, else the one for everybody. An error says what is wrong with it.
    pub fn of(fields: &Fields) -> Result<Login, &'static str> {
        let Some(value) = fields.text("Authorization") else {
            return Ok(Login { user: ANONYMOUS.to_owned(), password: "anonymous@".to_owned() });
        };
        let encoded = value
            .split_once(' ')
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("basic"))
            .ok_or("an FTP server takes a login by `Authorization: Basic` alone")?;
        let pair = base64::decode(encoded.1.trim()).ok_or("the login is no base64")?;
        let pair = latin1(&pair);
        let (user, password) = pair.split_once(':').ok_or("the login has no password")?;
        if pair.chars().any(|letter| letter.is_control()) {
            return Err("the login has a control character in it, which would end the command to the server");
        }
        Ok(Login { user: user.to_owned(), password: password.to_owned() })
    }

    fn is_anonymous(&self) -> bool {
        self.user == ANONYMOUS
    }

    /// The fields that say for whom an answer is: paths begin in the folder of the login, so each has other files under one URL. No age is
    /// named, so the heuristic of the store counts.
    fn for_whom(&self) -> &'static str {
        if self.is_anonymous() { "Vary: Authorization\r\n" } else { "Cache-Control: private\r\n" }
    }
}

/// Names of files are bytes: one character each.
#[derive(Debug)]
struct Latin1;

impl suppaftp::Encoding for Latin1 {
    fn decode(&self, bytes: &[u8]) -> String {
        latin1(bytes)
    }

    fn encode(&self, text: &str) -> io::Result<Vec<u8>> {
        bytes_of(text).ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}

/// A control connection that is logged in.
pub(super) struct Session {
    ftp: AsyncFtpStream,
    login: Login,
}

/// The facts about a file that the server tells before it sends it.
struct FileFacts {
    bytes: Option<u64>,
    changed: Option<Stamp>,
}

/// The part of a file that is sent.
struct Part {
    range: Range<u64>,
    /// Whether it is asked for as a part.
    is_partial: bool,
}

impl Session {
    /// Logs in by a connection on which nothing was said yet.
    pub async fn begin(stream: TcpStream, login: Login) -> Result<Session, Refusal> {
        let is_v6 = stream.peer_addr().is_ok_and(|peer| peer.ip().to_canonical().is_ipv6());
        let mut ftp = AsyncFtpStream::connect_with_stream(stream).await?;
        ftp.set_mode(if is_v6 { Mode::ExtendedPassive } else { Mode::Passive });
        // The data connection leads to the server that was judged, whichever address it names.
        ftp.set_passive_nat_workaround(true);
        ftp.set_encoding(Latin1).await;
        ftp.login(&login.user, &login.password).await?;
        ftp.transfer_type(FileType::Binary).await?;
        Ok(Session { ftp, login })
    }

    /// Whether it is logged in so.
    pub fn is_of(&self, login: &Login) -> bool {
        self.login == *login
    }

    /// Says good-bye.
    pub async fn quit(mut self) {
        let _ = self.ftp.quit().await;
    }

    /// Answers a request.
    pub async fn serve(
        &mut self,
        path: &FtpPath,
        request: &RequestHead,
        answer: &mut Answer<'_>,
    ) -> Result<Afterwards, Broken> {
        let served = match path.is_folder {
            true => self.folder(path, answer).await,
            false => self.file(path, request, answer).await,
        };
        match served {
            Ok(afterwards) => afterwards,
            Err(Refusal::Broken) => Err(Broken),
            Err(refusal) => answer.refuse(&refusal).await,
        }
    }

    /// The contents of a folder as a page.
    async fn folder(&mut self, path: &FtpPath, answer: &mut Answer<'_>) -> Result<Result<Afterwards, Broken>, Refusal> {
        if !path.name.is_empty() {
            self.ftp.cwd(&path.name).await?;
        }
        let listing = self.list().await?;
        let page = listing.page(path);
        let age = if self.login.is_anonymous() { "Cache-Control: max-age=60\r\n" } else { "" };
        let fields = format!("{}{age}{}", listing::FIELDS, self.login.for_whom());
        // The folder in which this login began may not be found again, so its connection ends here.
        let head = AnswerHead { status: "200 OK", fields: &fields, length: None, afterwards: Afterwards::Close };
        Ok(answer.whole(&head, page.as_bytes()).await)
    }

    /// The lines about the present folder, in the form that is meant for programs where the server knows it.
    async fn list(&mut self) -> Result<Listing, Refusal> {
        let expected = [Status::AboutToSend, Status::AlreadyOpen];
        let (is_for_programs, stream) =
            match self.ftp.custom_data_command("MLSD", &expected).await.map_err(Refusal::from) {
                Ok((_, stream)) => (true, stream),
                Err(refusal) if refusal.is_unknown_command() => {
                    (false, self.ftp.custom_data_command("LIST", &expected).await?.1)
                }
                Err(refusal) => return Err(refusal),
            };
        let mut text = Vec::new();
        let mut limited = stream.take(listing::BYTES_MAX as u64 + 1);
        limited.read_to_end(&mut text).await.map_err(|_| Refusal::Broken)?;
        if text.len() <= listing::BYTES_MAX {
            limited.into_inner().finish().await?;
        }
        Ok(Listing::of(&text, is_for_programs))
    }

    async fn file(
        &mut self,
        path: &FtpPath,
        request: &RequestHead,
        answer: &mut Answer<'_>,
    ) -> Result<Result<Afterwards, Broken>, Refusal> {
        let facts = match self.facts(path).await {
            Ok(facts) => facts,
            Err(refusal) if refusal.is_absent() => return self.absent(path, refusal, answer).await,
            Err(refusal) => return Err(refusal),
        };
        let mut fields = format!("Content-Type: {}\r\n{}", media_type(&path.name), self.login.for_whom());
        if let Some(changed) = facts.changed {
            fields.push_str(&dated("Last-Modified", changed));
        }
        if facts.changed.is_some_and(|changed| is_not_changed(request, changed)) {
            return Ok(answer.not_changed(&fields).await);
        }
        let part = match part_of(request, &facts) {
            Ok(part) => part,
            Err(bytes) => {
                let fields = format!("Content-Range: {}\r\n", ContentRange::unsatisfied(bytes));
                let status = "416 Range Not Satisfiable";
                let head = AnswerHead { status, fields: &fields, length: None, afterwards: Afterwards::Open };
                return Ok(answer.whole(&head, b"").await);
            }
        };
        if let Some(bytes) = facts.bytes {
            fields.push_str("Accept-Ranges: bytes\r\n");
            if let Some(part) = part.as_ref().filter(|part| part.is_partial) {
                let range = ContentRange::of(&part.range, Some(bytes));
                fields.push_str(&format!("Content-Range: {range}\r\n"));
            }
        }
        if answer.is_head() {
            let length = part.map(|part| part.range.end - part.range.start);
            let head = AnswerHead { status: "200 OK", fields: &fields, length, afterwards: Afterwards::Open };
            return Ok(answer.begin(&head).await.map(|()| Afterwards::Open));
        }
        let start = part.as_ref().map_or(0, |part| part.range.start);
        self.ftp.resume_transfer(usize::try_from(start).map_err(|_| Refusal::Unreadable)?).await?;
        let stream = match self.ftp.retr_as_stream(&path.name).await.map_err(Refusal::from) {
            Ok(stream) => stream,
            Err(refusal) if refusal.is_absent() => return self.absent(path, refusal, answer).await,
            Err(refusal) => return Err(refusal),
        };
        Ok(match part {
            Some(part) => send_part(stream, (&part, facts.bytes), &fields, answer).await,
            None => send_all(stream, &fields, answer).await,
        })
    }

    async fn facts(&mut self, path: &FtpPath) -> Result<FileFacts, Refusal> {
        let bytes = match self.ftp.size(&path.name).await.map_err(Refusal::from) {
            Ok(bytes) => u64::try_from(bytes).ok(),
            Err(Refusal::Unreadable) => None,
            Err(refusal) if refusal.is_unknown_command() => None,
            Err(refusal) => return Err(refusal),
        };
        let changed = match self.ftp.mdtm(&path.name).await.map_err(Refusal::from) {
            Ok(at) => u64::try_from(at.and_utc().timestamp()).ok().map(Stamp),
            Err(Refusal::Server(_) | Refusal::Unreadable) => None,
            Err(refusal) => return Err(refusal),
        };
        Ok(FileFacts { bytes, changed })
    }

    /// There is no such file: a folder of that name is where its contents are.
    async fn absent(
        &mut self,
        path: &FtpPath,
        refusal: Refusal,
        answer: &mut Answer<'_>,
    ) -> Result<Result<Afterwards, Broken>, Refusal> {
        if self.ftp.cwd(&path.name).await.map_err(Refusal::from).is_err() {
            return Err(refusal);
        }
        let last = path.name.rsplit('/').next().unwrap_or_default();
        let mut fields = String::from("Location: ");
        encode(&bytes_of(last).unwrap_or_default(), &mut fields);
        fields.push_str("/\r\n");
        let head = AnswerHead {
            status: "301 Moved Permanently",
            fields: &fields,
            length: None,
            // The login stands in that folder now.
            afterwards: Afterwards::Close,
        };
        Ok(answer.whole(&head, b"").await)
    }
}

/// Whether a conditional request is answered by 304 (RFC 9110 section 13.1.3).
fn is_not_changed(request: &RequestHead, changed: Stamp) -> bool {
    !request.fields.contains("If-None-Match")
        && request.fields.get("If-Modified-Since").and_then(parse_date).is_some_and(|since| changed <= since)
}

/// The part of a file that a request asks for; nothing where its length is not known, and the length where the range is beyond it. Of
/// several ranges none counts, as a server may do (RFC 9110 section 14.2).
fn part_of(request: &RequestHead, facts: &FileFacts) -> Result<Option<Part>, u64> {
    let Some(bytes) = facts.bytes else { return Ok(None) };
    let whole = Part { range: 0..bytes, is_partial: false };
    let is_meant = match request.fields.get("If-Range") {
        Some(condition) => facts.changed.is_some() && parse_date(condition) == facts.changed,
        None => true,
    };
    // A range means nothing to HEAD (RFC 9110 section 14.2).
    let is_meant = is_meant && request.method == Method::Get;
    let asked = request.fields.get("Range").filter(|_| is_meant).and_then(parse_range);
    match asked.as_deref() {
        Some([one]) => match one.within(bytes) {
            Some(range) => Ok(Some(Part { range, is_partial: true })),
            None => Err(bytes),
        },
        _ => Ok(Some(whole)),
    }
}

type Transfer = TransferStream<AsyncNoTlsStream>;

/// Sends a part of known length. One that ends before the file does leaves the transfer unfinished, so the connection ends with it.
async fn send_part(
    mut stream: Transfer,
    (part, bytes): (&Part, Option<u64>),
    fields: &str,
    answer: &mut Answer<'_>,
) -> Result<Afterwards, Broken> {
    let mut left = part.range.end - part.range.start;
    let is_to_the_end = bytes == Some(part.range.end);
    let afterwards = if is_to_the_end { Afterwards::Open } else { Afterwards::Close };
    let status = if part.is_partial { "206 Partial Content" } else { "200 OK" };
    answer.begin(&AnswerHead { status, fields, length: Some(left), afterwards }).await?;
    let mut buffer = vec![0; READ_BYTES];
    while left > 0 {
        let room = usize::try_from(left).unwrap_or(READ_BYTES).min(READ_BYTES);
        let read = stream.read(&mut buffer[..room]).await?;
        if read == 0 {
            return Err(Broken);
        }
        answer.piece(&buffer[..read]).await?;
        left -= read as u64;
    }
    if is_to_the_end && !matches!(timeout(FINISH_WITHIN, stream.finish()).await, Ok(Ok(()))) {
        return Ok(Afterwards::Close);
    }
    Ok(afterwards)
}

/// Sends a file of unknown length. Only the server's last word says whether it was all.
async fn send_all(mut stream: Transfer, fields: &str, answer: &mut Answer<'_>) -> Result<Afterwards, Broken> {
    let head = AnswerHead { status: "200 OK", fields, length: None, afterwards: Afterwards::Open };
    answer.begin(&head).await?;
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            break;
        }
        answer.chunk(&buffer[..read]).await?;
    }
    stream.finish().await.map_err(|_| Broken)?;
    answer.chunk(b"").await?;
    Ok(Afterwards::Open)
}

fn media_type(name: &str) -> &'static str {
    mime_guess::from_path(name).first_raw().unwrap_or("application/octet-stream")
}
