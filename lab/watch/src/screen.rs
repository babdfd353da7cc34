//! What `weft top` shows: a pure function from what is known to lines of a terminal of any size.

use crate::snapshot::{Busy, Server, Snapshot};
use crate::space::Space;
use crate::text::{bar, columns, duration, fitted, plain, rate, right, size};

/// What the person has chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Order of the servers.
    pub sort: Sort,
    /// The busiest by bytes, not by requests.
    pub by_bytes: bool,
    /// The first server that is shown.
    pub first: usize,
    /// The numbers stand still.
    pub paused: bool,
}

/// Orders of the servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// As in the map.
    #[default]
    Name,
    Read,
    Write,
    Meta,
    Queue,
    Busy,
}

impl Sort {
    /// The key, the order and its name.
    pub const ALL: [(char, Sort, &'static str); 6] = [
        ('n', Sort::Name, "name"),
        ('r', Sort::Read, "read"),
        ('w', Sort::Write, "write"),
        ('m', Sort::Meta, "meta"),
        ('u', Sort::Queue, "queue"),
        ('b', Sort::Busy, "busy"),
    ];

    fn value(self, server: &Server) -> f64 {
        let rates = server.rates.unwrap_or_default();
        match self {
            Sort::Name => 0.0,
            Sort::Read => rates.read_bytes_s,
            Sort::Write => rates.written_bytes_s,
            Sort::Meta => rates.meta_reads_s + rates.meta_changes_s,
            Sort::Queue => rates.queue_mean,
            Sort::Busy => rates.cpus,
        }
    }
}

/// How a part of a line looks. Nothing is said by colour alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    Bold,
    Dim,
    Green,
    Yellow,
    Red,
    Head,
}

/// A line: parts side by side.
pub type Line = Vec<(Style, String)>;

/// The smallest terminal with everything.
pub const WIDTH_MIN: usize = 80;
const NAME_MIN: usize = 9;

/// The lines of a terminal of this size, each exactly as wide.
pub fn draw(now: &Snapshot, view: View, width: usize, height: usize) -> Vec<Line> {
    let mut lines = vec![title(now, view, width)];
    // Half of what is left, or what all servers need, goes to them.
    let rest = height.saturating_sub(4);
    let rows = now.servers.len().min((rest / 2).max(3)).min(rest);
    lines.extend(server_lines(now, view, width, rows));
    let rest = height.saturating_sub(lines.len() + 1);
    if rest >= 4 {
        let (upper, lower) = (rest.div_ceil(2), rest / 2);
        let left = (width - 1) / 2;
        let right_width = width - 1 - left;
        let by = if view.by_bytes { "bytes" } else { "requests" };
        let clients = busy_lines(&now.clients, view, &format!("CLIENTS by {by}"), left, upper);
        let objects = busy_lines(&now.objects, view, &format!("FILES, DIRECTORIES by {by}"), right_width, upper);
        lines.extend(beside(clients, objects, left));
        lines.extend(beside(operation_lines(now, left, lower), waiting_lines(now, right_width, lower), left));
    }
    lines.truncate(height.saturating_sub(1));
    while lines.len() + 1 < height {
        lines.push(Vec::new());
    }
    lines.push(keys(view));
    lines.into_iter().map(|line| cut(line, width)).collect()
}

fn title(now: &Snapshot, view: View, width: usize) -> Line {
    let silent = now.servers.iter().filter(|server| !server.answers).count();
    let state = if silent == 0 { "all answer".to_string() } else { format!("{silent} SILENT") };
    let sums = now.sums;
    let text = format!(
        " weft top{}  {}  {} servers, {state}  read {} write {} B/s  looks {} changes {} /s",
        if view.paused { " PAUSED" } else { "" },
        fitted(&now.fs, columns(&plain(&now.fs)).min(12)),
        now.servers.len(),
        size(sums.read_bytes_s),
        size(sums.written_bytes_s),
        rate(sums.meta_reads_s),
        rate(sums.meta_changes_s),
    );
    vec![(Style::Head, fitted(&text, width))]
}

fn server_lines(now: &Snapshot, view: View, width: usize, rows: usize) -> Vec<Line> {
    let mut servers: Vec<&Server> = now.servers.iter().collect();
    // A stable sort: equal ones stay in the order of the map.
    servers.sort_by(|a, b| view.sort.value(b).total_cmp(&view.sort.value(a)));
    let name = NAME_MIN + width.saturating_sub(WIDTH_MIN).min(16);
    let mark = |sort: Sort, word: &str| if view.sort == sort { format!("{word}*") } else { word.to_string() };
    let head = format!(
        "{} {} {} {} {} {} {} {} {} {}",
        fitted(&mark(Sort::Name, "SERVER"), name),
        fitted(&mark(Sort::Busy, "BUSY"), 8),
        right(&mark(Sort::Read, "READ/s"), 7),
        right(&mark(Sort::Write, "WRITE/s"), 8),
        right("LOOKS/s", 7),
        right(&mark(Sort::Meta, "CHANGES"), 8),
        right(&mark(Sort::Queue, "QUEUE"), 6),
        right("CACHE", 6),
        fitted("FREE", 9),
        right("AGE", 6)
    );
    let hidden = servers.len().saturating_sub(rows);
    let first = view.first.min(hidden);
    let mut lines = vec![vec![(Style::Bold, head)]];
    lines.extend(servers.iter().skip(first).take(rows).map(|server| server_line(server, name)));
    if hidden > 0 {
        let above = if first > 0 { format!("{first} above, ") } else { String::new() };
        lines.push(vec![(Style::Dim, format!("{above}{} more below (arrow keys)", hidden - first))]);
    }
    lines
}

fn server_line(server: &Server, name: usize) -> Line {
    let mut line = vec![(Style::Plain, format!("{} ", fitted(&server.name, name)))];
    let age = server.age_s.map_or("never".to_string(), duration);
    if !server.answers {
        let words = match (&server.age_s, &server.problem) {
            (Some(age), _) => format!("no data for {}", duration(*age)),
            (None, Some(problem)) => format!("no answer: {problem}"),
            (None, None) => "asked".to_string(),
        };
        line.push((Style::Red, words));
        return line;
    }
    let Some(rates) = server.rates else {
        line.push((Style::Dim, format!("{}, waiting for a second answer", server.state.as_deref().unwrap_or("answers"))));
        return line;
    };
    let busy = if rates.cpus >= 0.9 { Style::Yellow } else { Style::Green };
    line.push((busy, bar(rates.cpus, 8)));
    line.push((
        Style::Plain,
        format!(
            " {} {} {} {} {} {} ",
            right(&size(rates.read_bytes_s), 7),
            right(&size(rates.written_bytes_s), 8),
            right(&rate(rates.meta_reads_s), 7),
            right(&rate(rates.meta_changes_s), 8),
            right(&rate(rates.queue_mean), 6),
            right(&size(server.cache_bytes.unwrap_or(0) as f64), 6)
        ),
    ));
    // A word, too: nothing is said by colour alone. A sign before the number would be read as one.
    let (style, word) = match server.space {
        Some(Space::Red) => (Style::Red, "full"),
        Some(Space::Yellow) => (Style::Yellow, "low"),
        _ => (Style::Green, ""),
    };
    let free = server.free_share.unwrap_or(0.0);
    line.push((style, format!("{} {}", right(&format!("{:.0}%", free * 100.0), 4), fitted(word, 4))));
    line.push((Style::Plain, format!(" {}", right(&age, 6))));
    if server.state.as_deref() != Some("serving") {
        line.push((Style::Red, format!("  {}", plain(server.state.as_deref().unwrap_or("")))));
    }
    line
}

fn busy_lines(rows: &[Busy], view: View, title: &str, width: usize, height: usize) -> Vec<Line> {
    let mut rows: Vec<&Busy> = rows.iter().filter(|row| !view.by_bytes || row.bytes_s > 0.0).collect();
    if view.by_bytes {
        rows.sort_by(|a, b| b.bytes_s.total_cmp(&a.bytes_s));
    }
    let name = width.saturating_sub(16);
    let head = format!("{} {} {}", fitted(title, name), right("REQ/s", 7), right("B/s", 7));
    let line = |row: &&Busy| {
        let shown = row.name.as_deref().unwrap_or(&row.id);
        vec![(Style::Plain, format!("{} {} {}", fitted(shown, name), right(&rate(row.requests_s), 7), right(&size(row.bytes_s), 7)))]
    };
    block(head, rows.iter().map(line).collect(), height)
}

fn operation_lines(now: &Snapshot, width: usize, height: usize) -> Vec<Line> {
    let name = width.saturating_sub(23);
    let head = format!("{} {} {} {}", fitted("OPERATIONS", name), right("/s", 6), right("MEAN", 7), right("P99 <", 7));
    let rows = now.operations.iter().filter(|row| row.per_s > 0.0).map(|row| {
        let (mean, p99) = (duration(row.mean_us / 1e6), duration(row.p99_us / 1e6));
        vec![(Style::Plain, format!("{} {} {} {}", fitted(row.name, name), right(&rate(row.per_s), 6), right(&mean, 7), right(&p99, 7)))]
    });
    block(head, rows.collect(), height)
}

fn waiting_lines(now: &Snapshot, width: usize, height: usize) -> Vec<Line> {
    let object = width.saturating_sub(30);
    let head = format!("{} {} {} {}", fitted("OLDEST WAITING", 14), fitted("AT", 7), fitted("ABOUT", object), right("AGE", 6));
    let rows = now.oldest.iter().map(|row| {
        let about = row.name.as_deref().or(row.object.as_deref()).unwrap_or("");
        let style = if row.age_s >= 1.0 { Style::Red } else { Style::Plain };
        let text = format!("{} {} {} ", fitted(row.operation, 14), fitted(&row.server, 7), fitted(about, object));
        vec![(Style::Plain, text), (style, right(&duration(row.age_s), 6))]
    });
    block(head, rows.collect(), height)
}

fn block(head: String, rows: Vec<Line>, height: usize) -> Vec<Line> {
    let mut lines = vec![vec![(Style::Bold, head)]];
    lines.extend(rows);
    lines.truncate(height);
    lines.resize(height, Vec::new());
    lines
}

fn beside(left: Vec<Line>, right: Vec<Line>, width: usize) -> Vec<Line> {
    let rows = left.into_iter().zip(right);
    rows.map(|(left, right)| {
        let mut line = padded(left, width);
        line.push((Style::Plain, " ".into()));
        line.extend(right);
        line
    })
    .collect()
}

fn padded(mut line: Line, width: usize) -> Line {
    let have: usize = line.iter().map(|(_, text)| columns(text)).sum();
    line.push((Style::Plain, " ".repeat(width.saturating_sub(have))));
    line
}

/// A line of exactly this width.
fn cut(line: Line, width: usize) -> Line {
    let mut room = width;
    let mut out = Line::new();
    for (style, text) in line {
        // Here everything passes that is shown, so nothing that was forgotten above reaches the
        // terminal.
        let text = plain(&text);
        let have = columns(&text);
        let text = if have > room { fitted(&text, room) } else { text };
        room -= have.min(room);
        out.push((style, text));
        if room == 0 {
            return out;
        }
    }
    out.push((Style::Plain, " ".repeat(room)));
    out
}

fn keys(view: View) -> Line {
    let mut text = " q quit  p pause  t by bytes  sort:".to_string();
    for (key, sort, word) in Sort::ALL {
        let chosen = if sort == view.sort { "*" } else { "" };
        text += &format!(" {key} {word}{chosen}");
    }
    vec![(Style::Dim, text)]
}

/// The same as text, for a file or a pipe: everything that is known, one table after the other.
pub fn tables(now: &Snapshot) -> String {
    let lines = draw(now, View::default(), 100, 4 + 2 * now.servers.len().max(12) + 24);
    let mut text = String::new();
    // The last line is about keys.
    for line in &lines[..lines.len() - 1] {
        let line: String = line.iter().map(|(_, text)| text.as_str()).collect();
        if !line.trim().is_empty() {
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::snapshot;
    use crate::snapshot::tests::{reply, seen};
    use weft_base::ServerId;

    fn now(servers: u16, hostile: &str) -> Snapshot {
        let mut all: Vec<_> = (0..servers)
            .map(|number| {
                let id = if number < 2 { ServerId(number) } else { ServerId::data(number - 2) };
                let after = reply(id, 1, 1000 * u64::from(number), 1 << 20);
                seen(id, Some((10.0, after)), Some((9.0, reply(id, 1, 0, 0))))
            })
            .collect();
        all.push(seen(ServerId::data(90), None, None));
        all.push(seen(ServerId::data(91), Some((3.0, reply(ServerId::data(91), 1, 5, 5))), None));
        all[0].entry.name = format!("meta0{hostile}");
        all.iter_mut().filter(|seen| seen.problem.is_some()).for_each(|seen| seen.problem = Some(format!("refused {hostile}")));
        snapshot((format!("demo{hostile}"), "7".into()), &all, (10.1, 1.0, 3.0), |key| (key == 1).then(|| format!("/d{hostile}/f")))
    }

    fn texts(lines: &[Line]) -> Vec<String> {
        lines.iter().map(|line| line.iter().map(|(_, text)| text.as_str()).collect()).collect()
    }

    #[test]
    fn every_size_is_filled_exactly_and_hostile_names_stay_harmless() {
        for hostile in ["", "\u{1b}[2J\r\n\u{9b}31m\u{202e}", "名前名前名前名前"] {
            let now = now(6, hostile);
            for (width, height) in [(80, 24), (40, 10), (200, 60), (79, 5), (1, 1), (20, 2)] {
                for by_bytes in [false, true] {
                    let lines = texts(&draw(&now, View { by_bytes, ..View::default() }, width, height));
                    assert_eq!(lines.len(), height, "{width}x{height}");
                    for line in &lines {
                        assert_eq!(columns(line), width, "{width}x{height}: {line:?}");
                        assert!(!line.chars().any(char::is_control) && !line.contains('\u{202e}'), "{line:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_usual_terminal_shows_servers_rates_tops_operations_and_what_waits() {
        let text = texts(&draw(&now(6, ""), View::default(), 80, 24)).join("\n");
        for wanted in ["demo", "2 SILENT", "meta0", "data3", "no answer: refused", "no data for 7.1s", "1.0M", "5.0k", "CLIENTS", "pid 77"]
        {
            assert!(text.contains(wanted), "{wanted}:\n{text}");
        }
        for wanted in ["/d/f", "Create", "Rmdir", "2.5s", "25% low", "4us", "q quit"] {
            assert!(text.contains(wanted), "{wanted}:\n{text}");
        }
    }

    #[test]
    fn servers_are_sorted_and_scrolled() {
        let first = |view| {
            let lines = texts(&draw(&now(20, ""), view, 80, 24));
            lines[2].split_whitespace().next().map(str::to_string)
        };
        assert_eq!(first(View::default()).as_deref(), Some("meta0"));
        assert_eq!(first(View { sort: Sort::Meta, ..View::default() }).as_deref(), Some("data17"));
        assert_eq!(first(View { first: 3, ..View::default() }).as_deref(), Some("data1"));
        let last = texts(&draw(&now(20, ""), View { first: 99, ..View::default() }, 80, 24)).join("\n");
        assert!(last.contains("data91"), "the end is not scrolled past:\n{last}");
    }

    #[test]
    fn without_a_terminal_every_server_is_there() {
        let text = tables(&now(30, "\u{1b}"));
        assert!((0..28).all(|number| text.contains(&format!("data{number} "))), "{text}");
        assert!(text.contains("OPERATIONS") && !text.contains('\u{1b}') && !text.contains("q quit"));
    }
}
