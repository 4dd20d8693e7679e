//! The board that application servers serve in a contest: its users, threads and posts, the statements that make its
//! database, and its pages to the byte. A page is a function of the number of posts that its thread has, so that every
//! page a server may answer at some moment is known.
//!
//! Applications in several languages serve it (`entries/applications`). The board's own numbers never depend on the seed
//! of a run, which draws the requests alone.

pub mod page;
#[cfg(test)]
mod tests;

use crate::random::Stream;
use std::fmt::Write;

/// Threads, numbered from 1.
pub const THREADS: u32 = 1_000;
/// Users, counted from 0; their number in the database is one more.
pub const USERS: u32 = 200;
/// Threads on a page of the list.
pub const THREADS_A_PAGE: u32 = 30;
/// Pages of the list, counted from 0.
pub const PAGES: u32 = THREADS.div_ceil(THREADS_A_PAGE);
/// Posts that each thread has at first.
const POSTS_AT_FIRST: u32 = 20;
/// The last posts of a thread, which its page shows.
const POSTS_SHOWN: usize = 20;
/// Rows that one statement inserts.
const ROWS_A_STATEMENT: usize = 500;
/// Words of a post: from this many on, and how many more there may be.
const WORDS: (u64, u64) = (12, 36);

/// The board as it is now.
#[derive(Clone, Debug)]
pub struct Board {
    users: Vec<User>,
    threads: Vec<Thread>,
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The value of the cookie `session`.
    pub token: String,
    /// The name that pages show.
    pub name: String,
}

#[derive(Clone, Debug)]
struct Thread {
    subject: String,
    author: u32,
    posts: Vec<Post>,
}

#[derive(Clone, Debug)]
struct Post {
    user: u32,
    text: String,
    /// As it stands on the page.
    html: String,
}

impl Board {
    /// The board as every database of a contest begins.
    #[allow(clippy::new_without_default, reason = "a board of a thousand threads is nothing to make by the way")]
    pub fn new() -> Self {
        let mut stream = Stream::named(1, "board");
        let users = (0..USERS).map(|number| User::drawn(number, &mut stream)).collect();
        let mut board = Self { users, threads: Vec::new() };
        for number in 1..=THREADS {
            let author = stream.below(u64::from(USERS)) as u32;
            let subject = format!("{} <{number}> & {}", capital(word(&mut stream)), word(&mut stream));
            board.threads.push(Thread { subject, author, posts: Vec::new() });
            for _ in 0..POSTS_AT_FIRST {
                let user = stream.below(u64::from(USERS)) as u32;
                let text = words(&mut stream);
                board.add_post(number, user, text);
            }
        }
        board
    }

    /// A user by number; numbers above the last one begin anew.
    pub fn user(&self, number: u32) -> &User {
        &self.users[(number % USERS) as usize]
    }

    /// The subject of a thread; empty if there is no such thread.
    pub fn subject(&self, thread: u32) -> &str {
        self.thread(thread).map_or("", |thread| thread.subject.as_str())
    }

    /// How many posts a thread has.
    pub fn posts(&self, thread: u32) -> usize {
        self.thread(thread).map_or(0, |thread| thread.posts.len())
    }

    /// A user writes a post. Nothing happens where there is no such thread.
    pub fn add_post(&mut self, thread: u32, user: u32, text: String) {
        let html = page::post(&self.user(user).name, &text);
        if let Some(thread) = (thread as usize).checked_sub(1).and_then(|place| self.threads.get_mut(place)) {
            thread.posts.push(Post { user, text, html });
        }
    }

    fn thread(&self, number: u32) -> Option<&Thread> {
        self.threads.get((number as usize).checked_sub(1)?)
    }

    /// The statements that make the database: tables, index, rows.
    pub fn statements(&self) -> String {
        let mut out = SCHEMA.to_owned();
        let users = self.users.iter().map(|user| format!("({}, {})", quoted(&user.token), quoted(&user.name)));
        insert(&mut out, "users (token, name)", users);
        let threads = self.threads.iter().map(|thread| {
            let (subject, author, posts) = (quoted(&thread.subject), thread.author + 1, thread.posts.len());
            format!("({subject}, {author}, {posts})")
        });
        insert(&mut out, "threads (subject, user, posts)", threads);
        let of_thread = |(place, thread): (usize, &Thread)| {
            let row = |post: &Post| format!("({}, {}, {})", place + 1, post.user + 1, quoted(&post.text));
            thread.posts.iter().map(row).collect::<Vec<_>>()
        };
        insert(&mut out, "posts (thread, user, text)", self.threads.iter().enumerate().flat_map(of_thread));
        out
    }
}

/// The tables. Each application has the same statements to read and write them.
const SCHEMA: &str = "\
CREATE TABLE users (id INTEGER PRIMARY KEY, token TEXT NOT NULL UNIQUE, name TEXT NOT NULL);
CREATE TABLE threads (id INTEGER PRIMARY KEY, subject TEXT NOT NULL, user INTEGER NOT NULL, posts INTEGER NOT NULL);
CREATE TABLE posts (id INTEGER PRIMARY KEY, thread INTEGER NOT NULL, user INTEGER NOT NULL, text TEXT NOT NULL);
CREATE INDEX posts_of_thread ON posts (thread, id);
";

impl User {
    fn drawn(number: u32, stream: &mut Stream) -> Self {
        let name = NAMES[stream.below(NAMES.len() as u64) as usize];
        Self { token: format!("{:016x}", stream.next_u64()), name: format!("{name} {number}") }
    }
}

fn insert(out: &mut String, table: &str, rows: impl Iterator<Item = String>) {
    let rows: Vec<String> = rows.collect();
    for some in rows.chunks(ROWS_A_STATEMENT) {
        let _ = writeln!(out, "INSERT INTO {table} VALUES\n{};", some.join(",\n"));
    }
}

/// A text as SQL spells it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A text for a post: words, and marks that a page must escape.
pub fn words(stream: &mut Stream) -> String {
    let count = WORDS.0 + stream.below(WORDS.1);
    let mut text = capital(word(stream));
    for place in 1..count {
        let mark = [" ", " ", " ", " ", ", ", " & ", " <b>", " isn't "][stream.below(8) as usize];
        text.push_str(if place + 1 == count { " " } else { mark });
        text.push_str(word(stream));
    }
    text + "."
}

fn word(stream: &mut Stream) -> &'static str {
    LEXICON[stream.below(LEXICON.len() as u64) as usize]
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

const NAMES: [&str; 12] =
    ["Ada", "Björn", "Chloé", "Dmitri", "Edith", "Femi", "Grace", "Håkon", "Ines", "José", "Kenji", "Zoë"];

const LEXICON: [&str; 48] = [
    "amplifier",
    "answer",
    "bearing",
    "better",
    "bicycle",
    "cable",
    "café",
    "chain",
    "cheap",
    "copper",
    "drawer",
    "engine",
    "façade",
    "filter",
    "garden",
    "gear",
    "hinge",
    "kettle",
    "ladder",
    "lamp",
    "list",
    "map",
    "motor",
    "naïve",
    "needle",
    "old",
    "paint",
    "pump",
    "quiet",
    "radio",
    "relay",
    "repair",
    "rope",
    "rust",
    "saddle",
    "screw",
    "shelf",
    "solder",
    "spare",
    "switch",
    "tap",
    "tube",
    "über",
    "valve",
    "washer",
    "wheel",
    "window",
    "wood",
];
