//! The pages of the board, to the byte.

use super::{Board, PAGES, POSTS_SHOWN, Post, THREADS, THREADS_A_PAGE};
use std::ops::RangeInclusive;

/// The hello page.
pub const HELLO: &[u8] = b"Hello, World!\n";
/// Before the line that says whose page it is.
const BEFORE_READER: &str = "</title></head>\n<body>\n<p>";
/// The first part of that line for a user.
const SIGNED_IN: &str = "Signed in as ";
/// That line for everybody else.
const NOT_SIGNED_IN: &str = "Not signed in";
const AFTER_READER: &str = "</p>\n<h1>";
const END: &str = "</body></html>\n";

/// A post as it stands on the page of its thread.
pub(super) fn post(name: &str, text: &str) -> String {
    format!("<div><b>{}</b><p>{}</p></div>\n", escaped(name), escaped(text))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl Board {
    /// The page of a thread at the time when it had so many posts, for a user or for nobody.
    pub fn thread_page(&self, thread: u32, posts: usize, reader: Option<u32>, out: &mut Vec<u8>) {
        out.clear();
        self.begin(self.subject(thread), reader, out);
        let all: &[Post] = self.thread(thread).map_or(&[], |thread| &thread.posts);
        let until = posts.min(all.len());
        for post in &all[until.saturating_sub(POSTS_SHOWN)..until] {
            out.extend_from_slice(post.html.as_bytes());
        }
        let form = format!(
            "<form method=\"post\" action=\"/thread/{thread}\"><textarea name=\"text\"></textarea><button>Post</button></form>\n{END}"
        );
        out.extend_from_slice(form.as_bytes());
    }

    /// All of a page before its own content: title, reader, heading.
    pub(super) fn begin(&self, title: &str, reader: Option<u32>, out: &mut Vec<u8>) {
        let title = escaped(title);
        let head = ["<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>", &title, BEFORE_READER];
        head.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
        let name = reader.map(|user| escaped(&self.user(user).name));
        let line = name.map_or_else(|| NOT_SIGNED_IN.to_owned(), |name| format!("{SIGNED_IN}{name}"));
        [&line, AFTER_READER, &title, "</h1>\n"].iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
    }

    /// A page of the list for nobody, where thread N has `posts[N - first]` posts.
    pub fn list_page(&self, page: u32, posts: &[usize], out: &mut Vec<u8>) {
        out.clear();
        self.begin(&list_title(page), None, out);
        out.extend_from_slice(b"<ul>\n");
        for (thread, posts) in threads_of(page).zip(posts) {
            let before = self.before_count(thread);
            out.extend_from_slice(format!("{before}{posts}{AFTER_COUNT}").as_bytes());
        }
        out.extend_from_slice(format!("</ul>\n{END}").as_bytes());
    }

    /// The numbers of posts that a page of the list shows, if all else on it is right.
    pub fn counts_on(&self, page: u32, bytes: &[u8]) -> Option<Vec<usize>> {
        let mut begin = Vec::new();
        self.begin(&list_title(page), None, &mut begin);
        let mut rest = bytes.strip_prefix(&begin[..])?.strip_prefix(b"<ul>\n")?;
        let mut found = Vec::with_capacity(THREADS_A_PAGE as usize);
        for thread in threads_of(page) {
            rest = rest.strip_prefix(self.before_count(thread).as_bytes())?;
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            found.push(std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?);
            rest = rest[digits..].strip_prefix(AFTER_COUNT.as_bytes())?;
        }
        (rest == format!("</ul>\n{END}").as_bytes()).then_some(found)
    }

    fn before_count(&self, thread: u32) -> String {
        let author = self.thread(thread).map_or(0, |thread| thread.author);
        let (subject, name) = (escaped(self.subject(thread)), escaped(&self.user(author).name));
        format!("<li><a href=\"/thread/{thread}\">{subject}</a> by {name}, ")
    }

    /// The thread that a page is of by its title.
    pub fn thread_of(&self, bytes: &[u8]) -> Option<u32> {
        let title = title_of(bytes)?;
        // A subject has its thread's number in it.
        let number = title.split_once("&lt;")?.1.split_once("&gt;")?.0.parse().ok()?;
        (escaped(self.subject(number)) == title && !title.is_empty()).then_some(number)
    }

    /// Whether all posts on a page are those of a thread, whole.
    pub fn posts_are_of(&self, thread: u32, bytes: &[u8]) -> bool {
        let all: &[Post] = self.thread(thread).map_or(&[], |thread| &thread.posts);
        let mut shown = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.starts_with(b"<div"));
        shown.all(|line| all.iter().any(|post| post.html.as_bytes() == line))
    }

    /// How often a post stands on a page.
    pub fn times_on(&self, thread: u32, place: usize, bytes: &[u8]) -> usize {
        let post = self.thread(thread).and_then(|thread| thread.posts.get(place));
        let html = post.map_or(&b""[..], |post| post.html.as_bytes());
        if html.is_empty() { 0 } else { bytes.windows(html.len()).filter(|window| *window == html).count() }
    }
}

const AFTER_COUNT: &str = " posts</li>\n";

/// The title of a page of the list.
pub fn list_title(page: u32) -> String {
    format!("Board, page {page}")
}

/// The threads on a page of the list.
pub fn threads_of(page: u32) -> RangeInclusive<u32> {
    let first = page.min(PAGES - 1) * THREADS_A_PAGE + 1;
    first..=(first + THREADS_A_PAGE - 1).min(THREADS)
}

/// The title of a page, as it is escaped there.
pub fn title_of(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    Some(text.split_once("<title>")?.1.split_once("</title>")?.0)
}

/// For whom a page says that it is: the name of a user, or an empty one for nobody. `None`: it does not say.
pub fn reader_of(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    let line = text.split_once(BEFORE_READER)?.1.split_once(AFTER_READER)?.0;
    if line == NOT_SIGNED_IN { Some("") } else { line.strip_prefix(SIGNED_IN) }
}
