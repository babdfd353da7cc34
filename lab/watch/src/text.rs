//! Text for a terminal: nothing that a name holds may move its cursor, change its colours or turn
//! its direction, and columns stay columns.

/// True if a terminal shows this character as itself and in order.
fn is_plain(c: char) -> bool {
    let code = c as u32;
    let formats = matches!(code,
        0xad | 0x300..=0x36f | 0x600..=0x605 | 0x61c | 0x180e | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0x20d0..=0x20ff
        | 0xe000..=0xf8ff | 0xfe00..=0xfe0f | 0xfeff | 0xfff9..=0xfffb | 0xe0000..=0x10ffff);
    !c.is_control() && !formats
}

/// The same text with everything escaped that is not [`is_plain`].
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_plain(c) {
            out.push(c);
        } else {
            out.extend(c.escape_unicode());
        }
    }
    out
}

/// Columns of a character: East Asian wide characters and pictures take two.
fn columns_of(c: char) -> usize {
    let wide = matches!(c as u32,
        0x1100..=0x115f | 0x2e80..=0x303e | 0x3041..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff | 0xfe30..=0xfe6f | 0xff00..=0xff60
        | 0xffe0..=0xffe6 | 0x1f300..=0x1faff | 0x20000..=0x3fffd);
    if wide { 2 } else { 1 }
}

/// Columns of a text without escapes.
pub fn columns(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

/// Exactly so many columns: longer text loses its end, paths lose their beginning, since their end
/// says more.
pub fn fitted(text: &str, width: usize) -> String {
    let text = plain(text);
    let have = columns(&text);
    if have <= width {
        return text + &" ".repeat(width - have);
    }
    if width == 0 {
        return String::new();
    }
    let is_path = text.starts_with('/');
    let mut kept: Vec<char> = Vec::new();
    let mut room = width - 1;
    let mut take = |c: char| {
        let fits = columns_of(c) <= room;
        room = if fits { room - columns_of(c) } else { 0 };
        if fits {
            kept.push(c);
        }
        fits
    };
    if is_path {
        text.chars().rev().all(&mut take);
        kept.push('…');
        kept.reverse();
    } else {
        text.chars().all(&mut take);
        kept.push('…');
    }
    let mut out: String = kept.into_iter().collect();
    out.push_str(&" ".repeat(width - columns(&out)));
    out
}

/// A number at the right end of so many columns.
pub fn right(text: &str, width: usize) -> String {
    let have = columns(text);
    if have > width { fitted(text, width) } else { " ".repeat(width - have) + text }
}

/// A number per second in at most six columns: `0`, `12.5`, `950`, `12.3k`, `4.1M`.
pub fn rate(value: f64) -> String {
    scaled(value, &["", "k", "M", "G", "T", "P"], 1000.0)
}

/// Bytes in at most six columns: `0`, `512`, `1.5K`, `12.3M`. Units are binary.
pub fn size(value: f64) -> String {
    scaled(value, &["", "K", "M", "G", "T", "P", "E"], 1024.0)
}

fn scaled(value: f64, units: &[&str], step: f64) -> String {
    if !value.is_finite() || value < 0.05 {
        return "0".into();
    }
    let (mut value, mut unit) = (value, 0);
    while value >= 999.5 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    // Whole numbers of things have no digits behind the point.
    let is_whole = unit == 0 && (value * 10.0).round() % 10.0 == 0.0;
    let digits = if is_whole || value >= 99.95 { 0 } else { 1 };
    format!("{value:.digits$}{}", units[unit])
}

/// A time in at most six columns: `12us`, `3.5ms`, `2.0s`, `17m`, `3h`, `12d`.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 0.9995e-3 => format!("{:.0}us", s * 1e6),
        s if s < 0.09995 => format!("{:.1}ms", s * 1e3),
        s if s < 0.9995 => format!("{:.0}ms", s * 1e3),
        s if s < 9.95 => format!("{s:.1}s"),
        s if s < 120.0 => format!("{s:.0}s"),
        s if s < 7200.0 => format!("{:.0}m", s / 60.0),
        s if s < 172_800.0 => format!("{:.0}h", s / 3600.0),
        s => format!("{:.0}d", s / 86_400.0),
    }
}

/// A bar of so many columns, in eighths.
pub fn bar(share: f64, width: usize) -> String {
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let mut out = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        out.push([' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'][eighths % 8]);
    }
    let have = columns(&out);
    out + &" ".repeat(width.saturating_sub(have))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hostile_names_cannot_steer_a_terminal() {
        for hostile in ["\u{1b}[2J", "a\rb", "\u{9b}31m", "x\u{202e}gpj.exe", "\u{7}", "two\nlines", "\u{200b}", "é\u{301}", "\u{e0041}"] {
            let shown = plain(hostile);
            assert!(shown.chars().all(is_plain), "{shown:?}");
            assert!(shown.contains("\\u{"), "what was removed can be seen: {shown}");
        }
        assert_eq!(plain("größe 名前.txt"), "größe 名前.txt");
    }

    #[test]
    fn texts_lose_their_end_and_paths_their_beginning() {
        assert_eq!(fitted("abc", 5), "abc  ");
        assert_eq!(fitted("abcdef", 4), "abc…");
        assert_eq!(fitted("/home/user/file", 7), "…r/file");
        assert_eq!(fitted("名前名前", 4), "名… ");
        assert_eq!((fitted("x", 0), right("42", 5), right("123456", 3)), (String::new(), "   42".into(), "12…".into()));
    }

    #[test]
    fn numbers_are_short() {
        let rates: Vec<String> = [0.0, 0.04, 1.0, 27.97, 12.5, 999.0, 1000.0, 12_345.0, 4_100_000.0].map(rate).into();
        assert_eq!(rates, ["0", "0", "1", "28", "12.5", "999", "1.0k", "12.3k", "4.1M"]);
        assert_eq!([512.0, 1536.0, 1048576.0, 2.5e9].map(size), ["512", "1.5K", "1.0M", "2.3G"]);
        assert_eq!(
            [12e-6, 3.5e-3, 0.25, 2.0, 61.0, 1000.0, 10_000.0, 1e6].map(duration),
            ["12us", "3.5ms", "250ms", "2.0s", "61s", "17m", "3h", "12d"]
        );
        assert_eq!((bar(0.5, 4), bar(0.53, 4), bar(2.0, 3), bar(0.0, 2)), ("██  ".into(), "██▏ ".into(), "███".into(), "  ".into()));
    }

    proptest! {
        #[test]
        fn any_text_fits_exactly_and_is_plain(text in any::<String>(), width in 0usize..60) {
            let shown = fitted(&text, width);
            prop_assert_eq!(columns(&shown), width);
            prop_assert!(shown.chars().all(is_plain));
        }

        #[test]
        fn any_number_is_short(value in 0.0f64..1e15) {
            prop_assert!(rate(value).len() <= 6 && size(value).len() <= 6, "{} {}", rate(value), size(value));
            prop_assert!(duration(value / 1e6).len() <= 6 || value > 8.64e15, "{}", duration(value / 1e6));
        }
    }
}
