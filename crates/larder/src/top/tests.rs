//! Tests of the screen, drawn to a buffer.

use super::*;
use crate::control::Row;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn screen() -> Screen {
    let second = |at, from_store, fetched| Second { at, from_store, fetched, ..Second::default() };
    let window = Window {
        seconds: 300,
        requests: 1000,
        from_store: 934,
        bytes_from_store: 9,
        bytes_fetched: 1,
        median_micros: 65,
        p99_micros: 47_100,
        failed: 2,
        causes: [("uri-miss".to_owned(), 50), ("stale".to_owned(), 14)].into(),
        ..Window::default()
    };
    let now = Now {
        version: "0.1.0".to_owned(),
        uptime_seconds: 7_300,
        second: second(1, 120, 22),
        window,
        bytes_from_store: 12_400_000_000,
        memory_bytes: 12_000_000,
        memory_bytes_max: 24_000_000,
        objects: 408,
        disk_bytes: 50_000_000,
        disk_bytes_max: 200_000_000,
        disk_objects: 1041,
        ..Now::default()
    };
    let row =
        Row { name: "http://www.example.org/".to_owned(), requests: 812, from_store: 809, misses: 3, bytes: 12_345 };
    let hot = Hot {
        requests: 1000,
        since_millis: 1,
        urls: vec![row.clone()],
        hosts: vec![Row { name: "www.example.org".to_owned(), ..row }],
    };
    let recent = Recent {
        method: "GET".to_owned(),
        url: "http://www.example.org/a".to_owned(),
        status: 200,
        outcome: "hit".to_owned(),
        bytes: 800,
        micros: 70,
    };
    let seconds = (0..100).map(|at| second(at, at, 10)).collect();
    Screen { now, seconds, hot, recent: [recent].into(), ..Screen::default() }
}

fn drawn(screen: &Screen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(frame, screen)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

#[test]
fn a_screen_of_usual_size() {
    let shown = drawn(&screen(), 80, 24);
    let wanted = [
        " Larder 0.1.0, up for 2 h                                                ● live",
        "",
        " requests/s      from the store  saved          median          failed",
        " 142             93.4 %          12.4 GB        65 µs           2",
        "                 90.0 % of bytes 0 B fetched    99 % 47.1 ms    in five minutes",
    ];
    assert_eq!(shown[..5], wanted);
    // The newest second is the highest, at the right edge; the layers meet inside a cell.
    assert_eq!(
        shown[6].find('▁'),
        Some(60),
        "{}",
        shown.join(
            "
"
        )
    );
    assert!(shown[6].ends_with('▄') && shown[11].starts_with(" ███"));
    assert_eq!(shown[12], " up to 109/s  ■ from the store ■ fetched");
    let wanted = [
        " memory  ━━━━━━━━━━━━━━━━━━━━━━━━━━  12.0 MB of 24.0 MB, 408 objects",
        " disk    ━━━━━━━━━━━━━━━━━━━━━━━━━━  50.0 MB of 200.0 MB, 1041 objects",
        "",
        " requests    stored        sent  what is hot",
        "      812    99.6 %     12.3 kB  http://www.example.org/",
    ];
    assert_eq!(shown[13..18], wanted);
    assert_eq!(shown[23], " q quit   h hot   m misses   r requests   d denied   tab next   p pause");
}

#[test]
fn the_lower_half_has_four_faces() {
    let mut screen = screen();
    assert!(screen.press(KeyCode::Char('m'), KeyModifiers::NONE));
    let shown = drawn(&screen, 80, 24).join("\n");
    assert!(shown.contains("50    78.1 %  uri-miss") && shown.contains("3       812  www.example.org"), "{shown}");
    assert!(screen.press(KeyCode::Tab, KeyModifiers::NONE));
    let shown = drawn(&screen, 80, 24).join("\n");
    assert!(shown.contains("hit                  200       800 B     70 µs  GET http://www.example.org/a"), "{shown}");
    assert!(screen.press(KeyCode::Tab, KeyModifiers::NONE));
    screen.take(Event::Refused(vec![Refusals { rule: "ads (larder.toml:7)".to_owned(), count: 12, last: 0 }]));
    let shown = drawn(&screen, 80, 24).join("\n");
    assert!(shown.contains("12") && shown.contains("ago  ads (larder.toml:7)"), "{shown}");
    assert!(screen.press(KeyCode::Tab, KeyModifiers::NONE));
    assert_eq!(screen.shown, Shown::Hot);
}

#[test]
fn any_size_is_drawn() {
    for (width, height) in [(1, 1), (20, 5), (40, 12), (390, 100)] {
        for screen in [Screen::default(), screen()] {
            for shown in [Shown::Hot, Shown::Misses, Shown::Requests, Shown::Refused] {
                drawn(
                    &Screen { shown, now: screen.now.clone(), seconds: screen.seconds.clone(), ..Screen::default() },
                    width,
                    height,
                );
            }
        }
    }
}

#[test]
fn keys_pause_and_end() {
    let mut screen = screen();
    assert!(screen.press(KeyCode::Char('p'), KeyModifiers::NONE));
    screen.take(Event::Now(Box::default()));
    assert_eq!((screen.now.objects, screen.seconds.len()), (408, 100), "nothing moves while it is read");
    assert!(drawn(&screen, 80, 24)[0].ends_with("‖ paused"));
    assert!(screen.press(KeyCode::Char(' '), KeyModifiers::NONE));
    screen.take(Event::Lost("connection refused".to_owned()));
    assert!(drawn(&screen, 100, 24)[23].ends_with("connection refused"));
    for (key, modifiers) in [
        (KeyCode::Char('q'), KeyModifiers::NONE),
        (KeyCode::Esc, KeyModifiers::NONE),
        (KeyCode::Char('c'), KeyModifiers::CONTROL),
    ] {
        assert!(!screen.press(key, modifiers), "{key:?}");
    }
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut screen = Screen::default();
    for _ in 0..1_000 {
        screen.take(Event::Now(Box::default()));
        screen.take(Event::Request(Box::default()));
    }
    assert_eq!((screen.seconds.len(), screen.recent.len()), (SECONDS_MAX, RECENT_MAX));
}

#[test]
fn without_a_terminal_there_is_a_line_a_second() {
    let (tell, told) = std::sync::mpsc::channel();
    for _ in 0..3 {
        tell.send(Event::Now(Box::new(screen().now))).unwrap();
        tell.send(Event::Request(Box::default())).unwrap();
    }
    let mut out = Vec::new();
    lines(&told, &mut out, Some(2)).unwrap();
    let line = "142 req/s  from the store 93.4 %  saved 12.4 GB  median 65 µs  99 % 47.1 ms  failed 0/s  memory 12.0 MB of 24.0 MB\n";
    assert_eq!(String::from_utf8(out).unwrap(), line.repeat(2));
}
