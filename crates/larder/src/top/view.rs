//! The drawing of the screen: a function of its state.

use super::{Recent, Screen, Shown, State};
use crate::config::units::rounded_size;
use crate::control::Second;
use crate::latency::BOUNDS_MICROS;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

/// The colours that the page has too: from the store, fetched, failed.
const STORE: Color = Color::Green;
const FETCHED: Color = Color::Yellow;
const FAILED: Color = Color::Red;

/// Eighths of a character cell, for charts.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Below this height the chart is left out.
const CHART_ROWS_MIN: u16 = 18;

pub(super) fn draw(frame: &mut Frame, screen: &Screen) {
    let chart = if frame.area().height >= CHART_ROWS_MIN { 8 } else { 0 };
    let rows = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(3),
        Constraint::Length(chart),
        Constraint::Length(3),
        Constraint::Fill(1),
        Constraint::Length(1),
    ]);
    let area = frame.area();
    let inner = Rect { x: area.x + 1, width: area.width.saturating_sub(2), ..area };
    let [title, figures, traffic, room, below, keys] = rows.areas(inner);
    draw_title(frame, title, screen);
    draw_figures(frame, figures, screen);
    draw_traffic(frame, traffic, screen);
    draw_room(frame, room, screen);
    match screen.shown {
        Shown::Hot => draw_hot(frame, below, screen),
        Shown::Misses => draw_misses(frame, below, screen),
        Shown::Requests => draw_requests(frame, below, screen),
        Shown::Refused => draw_refused(frame, below, screen),
    }
    draw_keys(frame, keys, screen);
}

fn draw_title(frame: &mut Frame, area: Rect, screen: &Screen) {
    let state = match &screen.state {
        State::Live => "● live".fg(STORE),
        State::Paused => "‖ paused".fg(FETCHED),
        State::Lost(_) => "○ no answer".fg(FAILED),
    };
    let about = match &screen.now.behind[..] {
        [] => format!("{}, up for {}", screen.now.version, span(screen.now.uptime_seconds)).dim(),
        behind => behind.join(" ").fg(FAILED),
    };
    frame.render_widget(Line::from(vec!["Larder ".bold(), about]), area);
    frame.render_widget(Line::from(state).right_aligned(), area);
}

fn draw_figures(frame: &mut Frame, area: Rect, screen: &Screen) {
    let (now, window) = (&screen.now, &screen.now.window);
    let second = &now.second;
    let moved = window.bytes_from_store + window.bytes_fetched;
    let figures = [
        ("requests/s", (second.from_store + second.fetched + second.other + second.failed).to_string(), String::new()),
        (
            "from the store",
            percent(window.from_store, window.requests),
            format!("{} of bytes", percent(window.bytes_from_store, moved)),
        ),
        ("saved", rounded_size(now.bytes_from_store), format!("{} fetched", rounded_size(now.bytes_fetched))),
        ("median", within(window.median_micros), format!("99 % {}", within(window.p99_micros))),
        ("failed", window.failed.to_string(), "in five minutes".to_owned()),
    ];
    let columns = Layout::horizontal([Constraint::Fill(1); 5]).spacing(1).split(area);
    for (column, (name, figure, beside)) in columns.iter().zip(figures) {
        let tone = match name {
            "failed" if window.failed > 0 => Style::new().fg(FAILED),
            "from the store" => Style::new().fg(STORE),
            _ => Style::new(),
        };
        let text = Text::from(vec![
            Line::from(name.dim()),
            Line::from(Span::styled(figure, tone.add_modifier(Modifier::BOLD))),
            Line::from(beside.dim()),
        ]);
        frame.render_widget(text, *column);
    }
}

/// Bars of one column a second, the newest at the right; what came from the store below, the rest on it.
fn draw_traffic(frame: &mut Frame, area: Rect, screen: &Screen) {
    if area.height < 3 {
        return;
    }
    let area = Rect { y: area.y + 1, height: area.height - 2, ..area };
    let wide = usize::from(area.width);
    let seconds: Vec<_> = screen.seconds.iter().rev().take(wide).collect();
    let all = |second: &Second| second.from_store + second.fetched + second.other + second.failed;
    let top = seconds.iter().copied().map(all).max().unwrap_or(0).max(1);
    let eighths = |many: u64| (many * u64::from(area.height) * 8).div_ceil(top);
    let buffer = frame.buffer_mut();
    for (at, second) in seconds.into_iter().enumerate() {
        let (stored, whole) = (eighths(second.from_store), eighths(all(second)));
        let x = area.right() - 1 - at as u16;
        for row in 0..area.height {
            let floor = u64::from(row) * 8;
            let y = area.bottom() - 1 - row;
            let tone = if second.failed > 0 && stored <= floor { FAILED } else { FETCHED };
            // A cell has two colours: where both layers meet, the upper one is the ground.
            let (part, style) = match (stored.saturating_sub(floor).min(8), whole.saturating_sub(floor).min(8)) {
                (0, upper) => (upper, Style::new().fg(tone)),
                (lower, 8) if lower < 8 => (lower, Style::new().fg(STORE).bg(tone)),
                (lower, _) => (lower, Style::new().fg(STORE)),
            };
            if let Some(cell) = buffer.cell_mut((x, y)) {
                cell.set_char(EIGHTHS[part as usize]).set_style(style);
            }
        }
    }
    let legend = Line::from(vec![
        format!("up to {top}/s  ").dim(),
        "■".fg(STORE),
        " from the store ".dim(),
        "■".fg(FETCHED),
        " fetched ".dim(),
    ]);
    frame.render_widget(legend, Rect { y: area.bottom(), height: 1, ..area });
}

fn draw_room(frame: &mut Frame, area: Rect, screen: &Screen) {
    let now = &screen.now;
    let lines = [
        gauge("memory", now.memory_bytes, now.memory_bytes_max, now.objects, area.width),
        match now.disk_bytes_max {
            0 => Line::from("disk    none".dim()),
            max => gauge("disk", now.disk_bytes, max, now.disk_objects, area.width),
        },
    ];
    frame.render_widget(Text::from(lines.to_vec()), area);
}

/// The length of a gauge's words.
const GAUGE_WORDS: u16 = 52;

fn gauge(name: &str, held: u64, max: u64, objects: u64, width: u16) -> Line<'static> {
    let long = u64::from(width.saturating_sub(GAUGE_WORDS).clamp(8, 60));
    let full = if max == 0 { 0 } else { (held.min(max) * long).div_ceil(max) };
    let bar = |from, to| (from..to).map(|_| '━').collect::<String>();
    let words = format!("  {} of {}, {objects} objects", rounded_size(held), rounded_size(max));
    Line::from(vec![format!("{name:8}").into(), bar(0, full).fg(STORE), bar(full, long).dark_gray(), words.dim()])
}

fn draw_hot(frame: &mut Frame, area: Rect, screen: &Screen) {
    let rows = screen.hot.urls.iter().map(|row| {
        Row::new([
            number(row.requests),
            Cell::from(Line::from(percent(row.from_store, row.requests)).right_aligned()),
            Cell::from(Line::from(rounded_size(row.bytes)).right_aligned()),
            Cell::from(row.name.clone()),
        ])
    });
    let head = ["requests", "stored", "sent", "what is hot"];
    list(frame, area, head, [8, 8, 10], rows.collect());
}

fn draw_misses(frame: &mut Frame, area: Rect, screen: &Screen) {
    let [left, right] = Layout::horizontal([Constraint::Fill(1); 2]).spacing(2).areas(area);
    let mut causes: Vec<_> = screen.now.window.causes.iter().collect();
    causes.sort_by_key(|(_, many)| std::cmp::Reverse(**many));
    let misses: u64 = causes.iter().map(|(_, many)| **many).sum();
    let rows = causes.iter().map(|(cause, many)| {
        let share = Line::from(percent(**many, misses)).right_aligned();
        Row::new([number(**many), Cell::from(share), Cell::from(cause.as_str())])
    });
    list(frame, left, ["misses", "share", "why, in five minutes"], [8, 8], rows.collect());
    let hosts = screen.hot.hosts.iter().filter(|row| row.misses > 0).map(|row| {
        let of = Line::from(row.requests.to_string()).right_aligned();
        Row::new([number(row.misses), Cell::from(of), Cell::from(row.name.clone())])
    });
    list(frame, right, ["misses", "of", "host"], [8, 8], hosts.collect());
}

fn draw_requests(frame: &mut Frame, area: Rect, screen: &Screen) {
    let rows = screen.recent.iter().take(usize::from(area.height)).map(|recent| {
        Row::new([
            Cell::from(recent.outcome.clone()).style(tone(recent)),
            number(recent.status.into()),
            Cell::from(Line::from(rounded_size(recent.bytes)).right_aligned()),
            Cell::from(Line::from(time(recent.micros)).right_aligned()),
            Cell::from(format!("{} {}", recent.method, recent.url)),
        ])
    });
    list(frame, area, ["outcome", "status", "sent", "time", "request"], [16, 6, 10, 8], rows.collect());
}

fn draw_refused(frame: &mut Frame, area: Rect, screen: &Screen) {
    let rows = screen.refused.iter().take(usize::from(area.height)).map(|refusals| {
        let ago = screen.now.second.at.saturating_sub(refusals.last);
        let ago = Line::from(format!("{} ago", span(ago))).right_aligned();
        Row::new([number(refusals.count), Cell::from(ago), Cell::from(refusals.rule.clone())])
    });
    list(frame, area, ["denied", "the last", "rule"], [8, 14], rows.collect());
}

fn tone(recent: &Recent) -> Style {
    let stored = ["hit", "validated", "collapsed"].iter().any(|word| recent.outcome.starts_with(word));
    match recent.status {
        _ if stored => Style::new().fg(STORE),
        500.. => Style::new().fg(FAILED),
        _ => Style::new().fg(FETCHED),
    }
}

/// A table whose last column takes what is left.
fn list<const N: usize, const M: usize>(
    frame: &mut Frame,
    area: Rect,
    head: [&'static str; N],
    widths: [u16; M],
    rows: Vec<Row>,
) {
    if rows.is_empty() {
        let last = head.last().copied().unwrap_or_default();
        frame.render_widget(Paragraph::new(format!("{last}: nothing yet")).dim(), area);
        return;
    }
    let last = head.len() - 1;
    let head = head.iter().enumerate().map(|(at, title)| {
        let line = Line::from(title.dim());
        Cell::from(if at < last && *title != "outcome" { line.right_aligned() } else { line })
    });
    let widths = widths.into_iter().map(Constraint::Length).chain([Constraint::Fill(1)]);
    frame.render_widget(Table::new(rows, widths).header(Row::new(head)).column_spacing(2), area);
}

fn number(many: u64) -> Cell<'static> {
    Cell::from(Line::from(many.to_string()).right_aligned())
}

fn draw_keys(frame: &mut Frame, area: Rect, screen: &Screen) {
    let chosen = |shown: Shown| if screen.shown == shown { Modifier::UNDERLINED } else { Modifier::empty() };
    let words = [
        ("q", "quit", Modifier::empty()),
        ("h", "hot", chosen(Shown::Hot)),
        ("m", "misses", chosen(Shown::Misses)),
        ("r", "requests", chosen(Shown::Requests)),
        ("d", "denied", chosen(Shown::Refused)),
        ("tab", "next", Modifier::empty()),
        ("p", "pause", Modifier::empty()),
    ];
    let mut spans = Vec::new();
    for (key, word, modifier) in words {
        spans.push(Span::from(key).bold());
        spans.push(Span::from(" "));
        spans.push(Span::from(word).dim().add_modifier(modifier));
        spans.push(Span::from("   "));
    }
    if let State::Lost(why) = &screen.state {
        spans.push(Span::from(why.clone()).fg(FAILED));
    }
    frame.render_widget(Line::from(spans), area);
}

/// A share in percent, and a dash for nothing.
pub(super) fn percent(part: u64, of: u64) -> String {
    if of == 0 { "–".to_owned() } else { format!("{:.1} %", part as f64 * 100.0 / of as f64) }
}

/// A duration in the unit that suits it, and a dash for none.
pub(super) fn time(micros: u64) -> String {
    match micros {
        0 => "–".to_owned(),
        1..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        _ => format!("{:.1} s", micros as f64 / 1e6),
    }
}

/// A duration out of counted ones, which are known by their bucket.
pub(super) fn within(micros: u64) -> String {
    if (1..=BOUNDS_MICROS[0]).contains(&micros) { format!("< {} µs", BOUNDS_MICROS[0]) } else { time(micros) }
}

fn span(seconds: u64) -> String {
    match seconds {
        0..90 => format!("{seconds} s"),
        90..5_400 => format!("{} min", seconds / 60),
        5_400..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}
