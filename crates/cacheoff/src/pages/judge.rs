//! Holds a reply against the pages that the application may answer now. A thread has as many right pages as it may have had
//! posts while the request was under way; nearly always that is one.

use super::ask::Ask;
use super::forum::Forum;
use crate::board::page::{HELLO, list_title, reader_of, threads_of, title_of};
use crate::ledger::Trouble;
use larder_wire::ResponseHead;

/// Something that is wrong with a reply, and how.
pub type Wrong = (Trouble, String);

/// Of an unexpected body, so many bytes are shown.
const SHOWN_BYTES: usize = 60;
/// Posts that a page shows; those before them prove nothing by their absence.
const POSTS_SHOWN: usize = 20;

/// Judges a whole reply; `page` is room for the pages that it is compared with.
pub fn judge(
    forum: Option<&Forum>,
    ask: &Ask,
    head: &ResponseHead,
    body: &[u8],
    page: &mut Vec<u8>,
) -> Result<(), Wrong> {
    let expected = if matches!(ask, Ask::Post { .. }) { 303 } else { 200 };
    match head.status {
        status if status == expected => {}
        status if status >= 500 || status == 403 => return Err((Trouble::Refused, format!("answered by {status}"))),
        status => return Err((Trouble::WrongStatus, format!("{status} instead of {expected}"))),
    }
    fields(ask, head)?;
    let Some(forum) = forum else { return hello(body) };
    match ask {
        Ask::Hello => hello(body),
        Ask::Thread { thread, reader, acknowledged, .. } => {
            of_thread(forum, (*thread, *reader, *acknowledged), body, page)
        }
        Ask::List { page: number, acknowledged } => of_list(forum, *number, acknowledged, body),
        Ask::Post { thread, .. } => of_post(*thread, head, body),
    }
}

/// The fields that every application sends, and none that would make a page another one's.
fn fields(ask: &Ask, head: &ResponseHead) -> Result<(), Wrong> {
    let media = if matches!(ask, Ask::Hello) { "text/plain" } else { "text/html" };
    let found = head.fields.text("Content-Type").unwrap_or_default();
    if !found.to_ascii_lowercase().starts_with(media) {
        return Err((Trouble::WrongHeader, format!("Content-Type is {found:?} instead of {media}")));
    }
    if !head.fields.has_member("Cache-Control", "no-store") {
        let found = head.fields.text("Cache-Control").unwrap_or_default();
        return Err((Trouble::LostField, format!("Cache-Control is {found:?}, and the application says no-store")));
    }
    match head.fields.text("Set-Cookie") {
        Some(cookie) => Err((Trouble::InjectedCookie, format!("Set-Cookie: {cookie}"))),
        None => Ok(()),
    }
}

fn hello(body: &[u8]) -> Result<(), Wrong> {
    if body == HELLO { Ok(()) } else { Err(other_bytes(HELLO, body)) }
}

fn of_thread(
    forum: &Forum,
    (thread, reader, acknowledged): (u32, Option<u32>, usize),
    body: &[u8],
    page: &mut Vec<u8>,
) -> Result<(), Wrong> {
    let board = forum.board();
    for posts in acknowledged..=board.posts(thread) {
        board.thread_page(thread, posts, reader, page);
        if *page == body {
            return Ok(());
        }
    }
    if let Some(other) = board.thread_of(body).filter(|other| *other != thread) {
        return Err((Trouble::ForeignReply, format!("the page of thread {other} came for thread {thread}")));
    }
    of_reader(forum, reader, body)?;
    let all = board.posts(thread);
    let shown = all.saturating_sub(POSTS_SHOWN)..all;
    if let Some(twice) = shown.clone().find(|place| board.times_on(thread, *place, body) > 1) {
        return Err((Trouble::RepeatedPost, format!("post {} of thread {thread} stands there twice", twice + 1)));
    }
    let lost =
        shown.clone().filter(|place| *place < acknowledged).find(|place| board.times_on(thread, *place, body) == 0);
    if let Some(lost) = lost.filter(|_| board.thread_of(body) == Some(thread) && board.posts_are_of(thread, body)) {
        let text = format!("post {} of thread {thread} was acknowledged and is not on its page", lost + 1);
        return Err((Trouble::LostPost, text));
    }
    Err(other_bytes(page, body))
}

/// Whether a page is for the one who asked.
fn of_reader(forum: &Forum, reader: Option<u32>, body: &[u8]) -> Result<(), Wrong> {
    let wanted = reader.map_or("", |user| forum.board().user(user).name.as_str());
    match reader_of(body) {
        Some(found) if found == wanted => Ok(()),
        None => Ok(()),
        Some("") => Err((Trouble::LostCredentials, format!("the page is for nobody, and {wanted} asked"))),
        Some(found) => {
            let asked = if wanted.is_empty() { "nobody who is signed in" } else { wanted };
            Err((Trouble::MixedUsers, format!("the page is for {found}, and {asked} asked")))
        }
    }
}

fn of_list(forum: &Forum, number: u32, acknowledged: &[usize], body: &[u8]) -> Result<(), Wrong> {
    let board = forum.board();
    let Some(counts) = board.counts_on(number, body) else {
        let title = title_of(body).unwrap_or_default();
        if !title.is_empty() && title != list_title(number) {
            return Err((Trouble::ForeignReply, format!("the page {title:?} came for page {number} of the list")));
        }
        of_reader(forum, None, body)?;
        let shown = String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES)]).into_owned();
        return Err((Trouble::WrongBytes, format!("no page of the list to the byte: {} bytes, {shown:?}", body.len())));
    };
    for ((thread, found), acknowledged) in threads_of(number).zip(counts).zip(acknowledged) {
        let text = |more: &str| format!("thread {thread} has {found} posts on the list, and {more}");
        if found < *acknowledged {
            return Err((Trouble::LostPost, text(&format!("{acknowledged} were acknowledged"))));
        }
        let sent = board.posts(thread);
        if found > sent {
            return Err((Trouble::RepeatedPost, text(&format!("{sent} were sent"))));
        }
    }
    Ok(())
}

/// A post leads to the page of its thread.
fn of_post(thread: u32, head: &ResponseHead, body: &[u8]) -> Result<(), Wrong> {
    let (location, path) = (head.fields.text("Location").unwrap_or_default(), format!("/thread/{thread}"));
    let after_authority = location.strip_prefix("http://").and_then(|rest| Some(&rest[rest.find('/')?..]));
    match after_authority.unwrap_or(location) == path {
        false => Err((Trouble::WrongHeader, format!("Location is {location:?} instead of {path}"))),
        true if !body.is_empty() => Err(other_bytes(b"", body)),
        true => Ok(()),
    }
}

fn other_bytes(expected: &[u8], found: &[u8]) -> Wrong {
    let same = expected.iter().zip(found).take_while(|(one, other)| one == other).count();
    let shown = |bytes: &[u8]| {
        let piece = &bytes[same.min(bytes.len())..];
        String::from_utf8_lossy(&piece[..piece.len().min(SHOWN_BYTES)]).into_owned()
    };
    let text = format!("{:?} instead of {:?} at byte {same} of {}", shown(found), shown(expected), expected.len());
    (Trouble::WrongBytes, text)
}
