//! A request through the prefix mirror (decision 041): the request as the forward proxy would get it, and a stream that makes
//! of its answer one for the mirror. Lookup, fetch and delivery are those of every other request; the store has the original.

use super::by_table;
use super::deliver::{self, AnswerSource, Ended, Manner};
use super::hooked::Responded;
use super::learn::Lesson;
use super::links::{LinkFormat, LinkRewriter, References};
use super::lookup;
use super::note;
use super::stream::{AnswerBody, AnswerFields, AnswerHead, BodyEnd, ClientStream};
use crate::config::{Mirror, Mirroring};
use crate::env::{Env, PeerFacts};
use crate::record::Record;
use crate::request_body::{Piece, RequestBody};
use crate::rules::{Ask, Mirrored, REGISTRY, goes_to_origin};
use crate::socket::OtherSide;
use bytes::Bytes;
use larder_cache::cache::Tier;
use larder_wire::target::resolve;
use larder_wire::{Fields, Host, RequestHead, ResponseHead, Target, Url};
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// Fields of an answer that mean the whole host, which is the mirror's to the client.
const KEPT_FROM_CLIENT: &[&str] = &[
    "Set-Cookie",
    "Set-Cookie2",
    "Clear-Site-Data",
    "Strict-Transport-Security",
    "Public-Key-Pins",
    "Alt-Svc",
    "NEL",
    "Report-To",
    "Reporting-Endpoints",
    "Service-Worker-Allowed",
    "Content-Location",
    "Refresh",
];

/// Fields that describe the bytes of a body, which are others once its links are rewritten.
const OF_ORIGINAL_BYTES: &[&str] =
    &["Last-Modified", "Content-MD5", "Digest", "Content-Digest", "Repr-Digest", "Accept-Ranges"];

/// Answers a request through the mirror.
pub(super) async fn answer<S: ClientStream>(
    stream: &mut S,
    request: &Rc<RequestHead>,
    mirrored: Mirrored,
    body: RequestBody,
    record: &mut Record,
) -> Ended {
    note(stream.env(), &mirrored.ask, record);
    let mut lesson = Lesson::of(stream, request, &mirrored.ask);
    // The redirections of a registry are followed here, and lead its clients nowhere.
    let noted =
        (mirrored.ask.registry.is_none() && super::is_noted(stream, &mirrored.ask)).then(|| mirrored.ask.clone());
    let frame = Frame::of(stream, request, &mirrored);
    let (request, has_rewritten) = frame.request(request, &mirrored.ask);
    let changes = mirrored.ask.by_table.as_ref().and_then(|by_table| by_table.answer.clone());
    let limits = mirrored.ask.limits();
    let mut mirror = MirrorStream { inner: stream, frame, has_rewritten, rewriter: None };
    let mut upload = None;
    let request = Rc::new(request);
    let answer = lookup::look_up(&mut mirror, &request, mirrored.ask, None, body, &mut upload, record).await;
    if let (Some(ask), AnswerSource::Entry { stored, .. }) = (noted, &answer) {
        super::note_redirection(&mirror, &request, &ask, &stored.head);
    }
    if let Some(lesson) = &mut lesson {
        lesson.answered_by(&answer);
    }
    let Responded { answer, given } = match changes {
        None => answer.into(),
        Some(changes) => by_table::change(&changes, answer.into()),
    };
    let manner = Manner { given: &given, limits };
    let ended = deliver::deliver(&mut mirror, &request, (answer, manner), &mut upload, record).await;
    if let Some(lesson) = lesson {
        (*lesson).begin(mirror.env(), ended);
    }
    ended
}

/// All that the fields and links of one request and its answer depend on.
struct Frame {
    /// The URL that is asked for.
    url: Url,
    /// The scheme and authority of the mirror as its client wrote them: `http://127.0.0.1:3128`.
    base: String,
    /// How links lead back to the mirror.
    mirrors: Vec<Arc<Mirror>>,
    mirroring: Mirroring,
    /// Credentials of the client go to the origin.
    passes_credentials: bool,
    is_registry: bool,
    /// The beginning of the client's paths of a registry, where a name of the configuration stands in it.
    named_start: Option<String>,
    /// The end of entity tags of rewritten answers: they differ from those of the original, and with the base.
    tag_end: String,
}

impl Frame {
    fn of<S: ClientStream>(stream: &S, request: &RequestHead, mirrored: &Mirrored) -> Frame {
        let (config, peer) = (stream.env().config(), stream.peer());
        let base = format!("{}://{}", peer.scheme.as_str(), request.fields.text("Host").unwrap_or("localhost"));
        let is_registry = mirrored.ask.registry.is_some();
        let named = mirrored.named.as_ref().filter(|_| is_registry).map(|mirror| format!("{REGISTRY}{}/", mirror.name));
        let is_own = |start: &String| match &request.target {
            Target::Origin(path) => path.starts_with(&**start) && !mirrored.ask.url.path.starts_with(&**start),
            _ => false,
        };
        Frame {
            named_start: named.filter(is_own),
            url: mirrored.ask.url.clone(),
            tag_end: format!("~{:08x}", fnv(base.as_bytes())),
            base,
            mirrors: config.mirrors.clone(),
            mirroring: peer.listener.in_force().mirroring.beside(&config.sites),
            passes_credentials: mirrored.passes_credentials(),
            is_registry,
        }
    }

    /// The request as the forward proxy would get it and rules change it, and whether the client has a rewritten answer already.
    fn request(&self, request: &RequestHead, ask: &Ask) -> (RequestHead, bool) {
        let mut fields = request.fields.clone();
        fields.retain(|name, _| goes_to_origin(name, self.passes_credentials));
        ask.change_fields(&mut fields);
        fields.set("Host", self.url.authority());
        let has_rewritten = self.map_tags(&mut fields);
        if self.may_have_links() {
            // A compressed index can't be rewritten, nor can a part of one.
            fields.set("Accept-Encoding", "identity");
            fields.remove("Range");
            fields.remove("If-Range");
        }
        let target = Target::Absolute(self.url.clone());
        (RequestHead::new(request.method.clone(), target, request.version, fields), has_rewritten)
    }

    /// Entity tags of rewritten answers become those of the originals. One of an answer for another name of the mirror is left
    /// out: the links in that answer are others.
    fn map_tags(&self, fields: &mut Fields) -> bool {
        let Some(said) = fields.text("If-None-Match").map(str::to_owned) else { return false };
        if !said.contains('~') {
            return false;
        }
        let end = format!("{}\"", self.tag_end);
        let mut has_rewritten = false;
        let tags = said.split(',').map(str::trim).filter_map(|tag| match tag.strip_suffix(&*end) {
            Some(start) => {
                has_rewritten = true;
                Some(format!("{start}\""))
            }
            None => (!is_rewritten(tag)).then(|| tag.to_owned()),
        });
        let tags: Vec<String> = tags.collect();
        match tags.is_empty() {
            true => _ = fields.remove("If-None-Match"),
            false => fields.set("If-None-Match", tags.join(", ")),
        }
        has_rewritten
    }

    /// Whether the answer may be an index with links, by the path: a file is none.
    fn may_have_links(&self) -> bool {
        const FILES: &[&str] = &[
            "7z", "asc", "apk", "bin", "br", "bz2", "conda", "crate", "dat", "deb", "dmg", "exe", "gem", "gz", "img",
            "info", "iso", "jar", "metadata", "mod", "msi", "nupkg", "pdf", "png", "pom", "rpm", "sha1", "sha256",
            "sha512", "sig", "so", "svg", "tar", "tbz", "tgz", "txz", "wasm", "whl", "woff2", "xz", "zip", "zst",
        ];
        let path = self.url.path.split('?').next().unwrap_or_default();
        let last = path.rsplit('/').next().unwrap_or_default();
        !self.is_registry && !last.rsplit_once('.').is_some_and(|(_, ending)| is_any(ending, FILES))
    }

    /// The format of the links in an answer; `None` where nothing is rewritten.
    fn links_in(&self, status: u16, fields: &Fields) -> Option<LinkFormat> {
        let is_plain = !fields.contains("Content-Encoding") && !fields.contains("Content-Range");
        if status != 200 || !is_plain || self.is_registry {
            return None;
        }
        LinkFormat::of(fields.text("Content-Type").unwrap_or_default(), &self.url.path)
    }

    /// Makes the fields of an answer those of the mirror.
    fn write_fields(&self, status: u16, fields: &mut Fields, is_rewritten: bool, has_rewritten: bool) {
        let is_kept = |name: &str| {
            let is_of_browser = name.get(..15).is_some_and(|start| start.eq_ignore_ascii_case("Access-Control-"));
            let asks_for_credentials = name.eq_ignore_ascii_case("WWW-Authenticate") && !self.passes_credentials;
            !is_of_browser && !asks_for_credentials && !is_any(name, KEPT_FROM_CLIENT)
        };
        fields.retain(|name, _| is_kept(name));
        if let Some(location) = fields.text("Location").and_then(|location| self.location(location)) {
            fields.set("Location", location);
        }
        // The next page of a list is one of the same registry.
        if let (Some(start), Some(link)) = (&self.named_start, fields.text("Link")) {
            let link = link.replace(&format!("<{REGISTRY}"), &format!("<{start}"));
            fields.set("Link", link);
        }
        if is_rewritten || status == 304 && has_rewritten {
            OF_ORIGINAL_BYTES.iter().for_each(|name| _ = fields.remove(name));
            if let Some(tag) = fields.text("ETag").and_then(|tag| self.rewritten_tag(tag)) {
                fields.set("ETag", tag);
            } else {
                fields.remove("ETag");
            }
        }
        if is_rewritten {
            fields.set("Accept-Ranges", "none");
        }
        // No script of one host runs against another: all of them are one origin to a browser.
        fields.set("Content-Security-Policy", "sandbox; frame-ancestors 'none'");
        fields.set("Cross-Origin-Resource-Policy", "same-origin");
        fields.set("X-Content-Type-Options", "nosniff");
    }

    fn rewritten_tag(&self, tag: &str) -> Option<String> {
        let opaque = tag.strip_prefix("W/").unwrap_or(tag).strip_suffix('"')?;
        Some(format!("W/{opaque}{}\"", self.tag_end))
    }

    /// Where a redirect leads, as a URL of the mirror; `None` where it is left as it is.
    fn location(&self, location: &str) -> Option<String> {
        let url = resolve(&self.url, location)?;
        let fragment = location.find('#').map_or("", |at| &location[at..]);
        Some(format!("{}{fragment}", self.references().of_url(&url)?))
    }

    fn references(&self) -> References<'_> {
        References { url: &self.url, base: &self.base, mirrors: &self.mirrors, mirroring: self.mirroring }
    }
}

/// Whether a tag has the form of those that a mirror makes.
fn is_rewritten(tag: &str) -> bool {
    let end = tag.strip_suffix('"').and_then(|tag| tag.rsplit_once('~'));
    end.is_some_and(|(_, end)| end.len() == 8 && end.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_any(name: &str, names: &[&str]) -> bool {
    names.iter().any(|other| name.eq_ignore_ascii_case(other))
}

/// Fowler, Noll and Vo's hash: a short name for a base, the same in each process.
fn fnv(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// The client's stream, on which answers become those of the mirror.
struct MirrorStream<'a, S> {
    inner: &'a mut S,
    frame: Frame,
    has_rewritten: bool,
    rewriter: Option<LinkRewriter>,
}

impl<S: ClientStream> MirrorStream<'_, S> {
    fn begin_with(&mut self, head: &AnswerHead<'_>, fields: &Fields, rest: &ResponseHead) {
        let format = self.frame.links_in(head.status, fields);
        let mut own = ResponseHead { fields: fields.clone(), ..rest.clone() };
        self.frame.write_fields(head.status, &mut own.fields, format.is_some(), self.has_rewritten);
        let body = match (format, head.body) {
            (None, body) => body,
            (Some(_), AnswerBody::None(_)) => AnswerBody::None(None),
            (Some(_), AnswerBody::Known(_) | AnswerBody::Unknown) => AnswerBody::Unknown,
        };
        self.rewriter = format.map(|format| LinkRewriter::new(format, &self.frame.references()));
        let AnswerHead { status, dynamic, is_last, .. } = *head;
        self.inner.begin_answer(&AnswerHead { status, fields: AnswerFields::Response(&own), body, dynamic, is_last });
    }

    fn send_rewritten(&mut self, bytes: &[u8]) {
        let Some(rewriter) = &mut self.rewriter else { return };
        let out = rewriter.feed(bytes);
        if !out.is_empty() {
            self.inner.send(vec![Bytes::from(out)].drain(..));
        }
    }
}

impl<S: ClientStream> ClientStream for MirrorStream<'_, S> {
    fn env(&self) -> &Rc<Env> {
        self.inner.env()
    }

    fn peer(&self) -> &PeerFacts {
        self.inner.peer()
    }

    fn begin_answer(&mut self, head: &AnswerHead<'_>) {
        match head.fields {
            AnswerFields::Page(_) => self.inner.begin_answer(head),
            AnswerFields::Response(response) => self.begin_with(head, &response.fields, response),
            AnswerFields::Own(fields) => self.begin_with(head, fields, &ResponseHead::new(head.status)),
        }
    }

    fn answer_has_begun(&self) -> bool {
        self.inner.answer_has_begun()
    }

    fn refused(&self) -> Option<(u16, &'static str)> {
        self.inner.refused()
    }

    /// Not passed on: hints name URLs and fields of the origin, and no tool behind a mirror reads them.
    fn interim(&mut self, _: &ResponseHead) {}

    fn opens_tunnel(&self, host: &Host) -> bool {
        self.inner.opens_tunnel(host)
    }

    fn open_tunnel(&mut self) {
        self.inner.open_tunnel();
    }

    fn switch_protocols(&mut self, head: &mut ResponseHead) -> u16 {
        self.inner.switch_protocols(head)
    }

    fn may_pass_on(&self, head: &ResponseHead) -> bool {
        self.inner.may_pass_on(head)
    }

    fn send(&mut self, pieces: std::vec::Drain<'_, Bytes>) {
        match self.rewriter {
            None => self.inner.send(pieces),
            Some(_) => pieces.for_each(|piece| self.send_rewritten(&piece)),
        }
    }

    fn send_part(&mut self, piece: &Bytes, part: Range<usize>) {
        match self.rewriter {
            None => self.inner.send_part(piece, part),
            Some(_) => self.send_rewritten(&piece[part]),
        }
    }

    fn send_copied(&mut self, bytes: &[u8]) {
        match self.rewriter {
            None => self.inner.send_copied(bytes),
            Some(_) => self.send_rewritten(bytes),
        }
    }

    fn end_answer(&mut self, trailers: Option<Fields>) {
        let Some(rewriter) = self.rewriter.take() else { return self.inner.end_answer(trailers) };
        let rest = rewriter.finish();
        if !rest.is_empty() {
            self.inner.send(vec![Bytes::from(rest)].drain(..));
        }
        self.inner.end_answer(None);
    }

    fn break_off(&mut self) {
        self.rewriter = None;
        self.inner.break_off();
    }

    fn expect_long_body(&mut self, tier: Tier) {
        self.inner.expect_long_body(tier);
    }

    fn unwritten_bytes(&self) -> usize {
        self.inner.unwritten_bytes()
    }

    async fn flush(&mut self) -> io::Result<usize> {
        self.inner.flush().await
    }

    async fn flush_if_full(&mut self) -> io::Result<()> {
        self.inner.flush_if_full().await
    }

    fn flush_soon(&mut self) {
        self.inner.flush_soon();
    }

    fn lend_buffers(&mut self) {
        self.inner.lend_buffers();
    }

    fn borrow_buffer(&mut self) {
        self.inner.borrow_buffer();
    }

    async fn next_body_piece(&mut self) -> Result<Piece, BodyEnd> {
        self.inner.next_body_piece().await
    }

    fn body_is_over(&mut self) -> bool {
        self.inner.body_is_over()
    }

    fn other_side(&self) -> OtherSide {
        self.inner.other_side()
    }
}
