//! The screen of `weft top`: draws, waits for keys, and leaves the terminal as it was, whatever
//! happens.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers, poll, read};
use crossterm::style::{Attribute, Color, Print, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{cursor, execute, queue};

use crate::screen::{Line, Sort, Style, View, draw};
use crate::snapshot::Snapshot;

/// Shows what `now` gives, anew each `interval` and after every key, until the person leaves.
///
/// # Errors
/// Of the terminal.
pub fn show(interval: Duration, now: impl Fn() -> Snapshot) -> io::Result<()> {
    let _screen = Screen::open()?;
    let mut out = io::stdout().lock();
    let mut view = View::default();
    let mut snapshot = now();
    loop {
        let (width, height) = size().map_or((80, 24), |(width, height)| (usize::from(width), usize::from(height)));
        paint(&mut out, &draw(&snapshot, view, width, height))?;
        let next = Instant::now() + interval;
        loop {
            let left = next.saturating_duration_since(Instant::now());
            if !poll(left)? {
                break;
            }
            match read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    let is_interrupt = key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
                    if is_interrupt || !press(&mut view, key.code) {
                        return Ok(());
                    }
                    break;
                }
                Event::Resize(..) => break,
                _ => {}
            }
        }
        if !view.paused {
            snapshot = now();
        }
    }
}

/// What a key does. False: leave.
fn press(view: &mut View, key: KeyCode) -> bool {
    match key {
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('p' | ' ') => view.paused = !view.paused,
        KeyCode::Char('t') => view.by_bytes = !view.by_bytes,
        KeyCode::Down => view.first += 1,
        KeyCode::Up => view.first = view.first.saturating_sub(1),
        KeyCode::Home => view.first = 0,
        KeyCode::Char(key) => {
            if let Some((_, sort, _)) = Sort::ALL.iter().find(|(there, _, _)| *there == key) {
                view.sort = *sort;
            }
        }
        _ => {}
    }
    true
}

fn paint(out: &mut impl Write, lines: &[Line]) -> io::Result<()> {
    queue!(out, BeginSynchronizedUpdate)?;
    for (row, line) in lines.iter().enumerate() {
        queue!(out, cursor::MoveTo(0, row as u16))?;
        for (style, text) in line {
            match style {
                Style::Plain => {}
                Style::Bold => queue!(out, SetAttribute(Attribute::Bold))?,
                Style::Dim => queue!(out, SetAttribute(Attribute::Dim))?,
                Style::Head => queue!(out, SetAttribute(Attribute::Reverse))?,
                Style::Green => queue!(out, SetForegroundColor(Color::Green))?,
                Style::Yellow => queue!(out, SetForegroundColor(Color::Yellow))?,
                Style::Red => queue!(out, SetForegroundColor(Color::Red), SetAttribute(Attribute::Bold))?,
            }
            queue!(out, Print(text), ResetColor, SetAttribute(Attribute::Reset))?;
        }
    }
    queue!(out, EndSynchronizedUpdate)?;
    out.flush()
}

/// The other screen of the terminal; the usual one comes back when this is dropped.
struct Screen;

impl Screen {
    fn open() -> io::Result<Screen> {
        enable_raw_mode()?;
        let screen = Screen;
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // There is nobody left to tell that this failed.
        let _ = execute!(io::stdout(), cursor::Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_change_the_view() {
        let mut view = View::default();
        for key in [KeyCode::Char('w'), KeyCode::Char('t'), KeyCode::Down, KeyCode::Down, KeyCode::Up, KeyCode::Char('?'), KeyCode::F(1)] {
            assert!(press(&mut view, key));
        }
        assert_eq!(view, View { sort: Sort::Write, by_bytes: true, first: 1, paused: false });
        assert!(press(&mut view, KeyCode::Char('p')) && view.paused);
        assert!(!press(&mut view, KeyCode::Char('q')) && !press(&mut view, KeyCode::Esc));
    }

    #[test]
    fn what_is_painted_holds_no_control_character_of_a_name() {
        let mut out = Vec::new();
        paint(&mut out, &[vec![(Style::Red, "meta0".into()), (Style::Plain, " x".into())]]).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("meta0") && text.contains(" x") && text.ends_with("\u{1b}[?2026l"));
    }
}
