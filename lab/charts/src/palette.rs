//! Colours. The qualitative set is that of Okabe and Ito (Color Universal Design, 2008); its
//! smallest distance stays above 16 (CIE76) under protanopia, deuteranopia and tritanopia. A
//! pattern or a label always says the same, so no meaning hangs on a colour.

/// Lines over a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Pattern {
    /// Plain.
    #[default]
    None,
    /// Dots.
    Dots,
    /// Diagonal lines.
    Hatch,
}

/// How an area is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fill {
    /// `0xRRGGBB`.
    pub color: u32,
    /// On top of it.
    pub pattern: Pattern,
}

impl Fill {
    /// A plain colour, `0xRRGGBB`.
    pub const fn plain(color: u32) -> Fill {
        Fill { color, pattern: Pattern::None }
    }
}

/// Blue, orange, sky, pink, green, yellow, vermilion, grey.
const QUALITATIVE: [u32; 8] = [0x0072B2, 0xE69F00, 0x56B4E9, 0xCC79A7, 0x009E73, 0xF0E442, 0xD55E00, 0x666666];
/// Viridis-like: dark is little, and lightness alone tells the order.
const SEQUENTIAL: [u32; 8] = [0x2A1E50, 0x39407E, 0x34618D, 0x2A7F8E, 0x2B9D86, 0x51B973, 0x9FD04F, 0xF3E51E];

/// The fill of series number `index`: eight colours, then the same with dots, then hatched.
pub fn categorical(index: usize) -> Fill {
    let pattern = [Pattern::None, Pattern::Dots, Pattern::Hatch][index / QUALITATIVE.len() % 3];
    Fill { color: QUALITATIVE[index % QUALITATIVE.len()], pattern }
}

/// The fill of a disk access by the class of a trace record: 1 no seek (green), 2 near seek
/// (yellow, dots), 3 far seek (red, hatched), grey if it is not known. As in Kuhn's thesis (2009,
/// section 7.1.2), with shades that stay apart without red and green.
pub fn seek(class: u8) -> Fill {
    match class {
        1 => Fill::plain(0x009E73),
        2 => Fill { color: 0xF0E442, pattern: Pattern::Dots },
        3 => Fill { color: 0xD55E00, pattern: Pattern::Hatch },
        _ => Fill::plain(0x666666),
    }
}

/// A shade for `share` of the range, 0 to 1.
pub fn sequential(share: f64) -> u32 {
    between(&SEQUENTIAL, share)
}

/// A shade between blue (-1), light grey (0) and orange (1).
pub fn diverging(share: f64) -> u32 {
    between(&[0x0072B2, 0xE8E8E8, 0xD55E00], (share + 1.0) / 2.0)
}

/// Straight lines in RGB between the colours of a table.
fn between(table: &[u32], share: f64) -> u32 {
    let place = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 } * (table.len() - 1) as f64;
    let index = (place as usize).min(table.len() - 2);
    let part = place - index as f64;
    [16, 8, 0].into_iter().fold(0, |color, shift| {
        let channel = |color: u32| f64::from(color >> shift & 255);
        let mixed = channel(table[index]) + (channel(table[index + 1]) - channel(table[index])) * part;
        color | (mixed.round() as u32) << shift
    })
}

/// Black or white, whichever is read better on this colour (relative luminance, WCAG 2.2).
pub(crate) fn text_on(color: u32) -> u32 {
    let linear = |shift: u32| {
        let channel = f64::from(color >> shift & 255) / 255.0;
        if channel <= 0.040_45 { channel / 12.92 } else { ((channel + 0.055) / 1.055).powf(2.4) }
    };
    let luminance = 0.2126 * linear(16) + 0.7152 * linear(8) + 0.0722 * linear(0);
    // Where the contrasts to black and to white are equal.
    if luminance > 0.179 { 0x000000 } else { 0xFFFFFF }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn twenty_four_series_look_different() {
        assert_eq!((0..24).map(categorical).collect::<BTreeSet<_>>().len(), 24);
    }

    #[test]
    fn shades_rise_in_lightness() {
        let lightness = |color: u32| 2126 * (color >> 16 & 255) + 7152 * (color >> 8 & 255) + 722 * (color & 255);
        let shades: Vec<u32> = (0..=20).map(|step| lightness(sequential(f64::from(step) / 20.0))).collect();
        assert!(shades.is_sorted(), "{shades:?}");
        assert_eq!((sequential(0.0), sequential(1.0), sequential(f64::NAN)), (0x2A1E50, 0xF3E51E, 0x2A1E50));
        assert_eq!((diverging(-1.0), diverging(0.0), diverging(7.0)), (0x0072B2, 0xE8E8E8, 0xD55E00));
    }

    #[test]
    fn text_is_readable_on_every_colour() {
        assert_eq!((text_on(0x0072B2), text_on(0xF0E442), text_on(0x000000)), (0xFFFFFF, 0x000000, 0xFFFFFF));
    }
}
