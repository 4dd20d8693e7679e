//! The board is the same on every machine, its pages are what the applications make, and its statements are read by SQLite.

use super::page::threads_of;
use super::*;

#[test]
fn a_board_is_the_same_each_time_and_each_user_and_thread_is_one_alone() {
    let (one, other) = (Board::new(), Board::new());
    assert_eq!(one.statements(), other.statements());
    let mut tokens: Vec<&str> = one.users.iter().map(|user| user.token.as_str()).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), USERS as usize);
    for thread in 1..=THREADS {
        let mut page = Vec::new();
        one.thread_page(thread, one.posts(thread), None, &mut page);
        assert_eq!(one.thread_of(&page), Some(thread), "a page names its thread");
    }
    assert_eq!((one.subject(0), one.posts(THREADS + 1)), ("", 0));
}

#[test]
fn a_page_shows_the_last_posts_of_its_time_and_its_reader_and_escapes_all() {
    let mut board = Board::new();
    let before = board.posts(3);
    board.add_post(3, 8, "a < b & c > d".to_owned());
    let (mut old, mut new) = (Vec::new(), Vec::new());
    board.thread_page(3, before, None, &mut old);
    board.thread_page(3, before + 1, Some(8), &mut new);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    assert!(!text(&old).contains("a &lt; b") && text(&new).contains("<p>a &lt; b &amp; c &gt; d</p></div>\n<form"));
    assert_eq!(text(&new).matches("<div>").count(), POSTS_SHOWN);
    assert_eq!((page::reader_of(&old), page::reader_of(&new)), (Some(""), Some(board.user(8).name.as_str())));
    assert_eq!((board.times_on(3, before, &old), board.times_on(3, before, &new)), (0, 1));
    assert!(board.posts_are_of(3, &new) && !board.posts_are_of(4, &new));
    assert_eq!(board.times_on(3, 0, &new), 0, "the oldest one has left the page");
    for nonsense in ["", "<title>", "<title></title></head>\n<body>\n<p>Ada</p>\n<h1>"] {
        assert_eq!(page::reader_of(nonsense.as_bytes()), None, "{nonsense}");
    }
}

#[test]
fn a_page_of_the_list_gives_its_counts_back_only_if_all_else_is_right() {
    let board = Board::new();
    for page in [0, 7, PAGES - 1] {
        let counts: Vec<usize> = threads_of(page).map(|thread| thread as usize % 5).collect();
        let mut bytes = Vec::new();
        board.list_page(page, &counts, &mut bytes);
        assert_eq!(board.counts_on(page, &bytes).as_ref(), Some(&counts));
        assert_eq!(board.counts_on((page + 1) % PAGES, &bytes), None);
        for place in [5, 80, 400, bytes.len() - 2] {
            let mut damaged = bytes.clone();
            damaged[place] = b'~';
            assert_eq!(board.counts_on(page, &damaged), None, "byte {place}");
        }
        assert_eq!(board.counts_on(page, &bytes[..bytes.len() - 1]), None);
    }
    assert_eq!(threads_of(PAGES - 1), 991..=1_000);
}

/// The statements go through the same maker as those of a contest.
#[test]
fn the_statements_make_a_database() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let board = Board::new();
    std::fs::write(path("board.sql"), board.statements()).unwrap();
    std::fs::write(path("make.py"), include_str!("../../entries/applications/make_board.py")).unwrap();
    let count = "import sqlite3; c = sqlite3.connect('board.db'); \
                 print(*[c.execute('SELECT COUNT(*) FROM ' + t).fetchone()[0] for t in ('users', 'threads', 'posts')], \
                 c.execute('SELECT text FROM posts WHERE id = 21').fetchone()[0], c.execute('PRAGMA journal_mode').fetchone()[0])";
    let python = |words: &[&str]| std::process::Command::new("python3").args(words).current_dir(folder.path()).output();
    let Ok(made) = python(&["make.py", "board.db", "board.sql"]) else {
        eprintln!("passed over: no python3 here");
        return;
    };
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let said = String::from_utf8(python(&["-X", "utf8", "-c", count]).unwrap().stdout).unwrap();
    let expected = format!("{USERS} {THREADS} {} {} wal\n", THREADS * POSTS_AT_FIRST, board.threads[1].posts[0].text);
    assert_eq!(said, expected);
}
