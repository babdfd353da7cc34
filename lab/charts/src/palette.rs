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
    fn text_is_readable_on_every_colour() {
        assert_eq!((text_on(0x0072B2), text_on(0xF0E442), text_on(0x000000)), (0xFFFFFF, 0x000000, 0xFFFFFF));
    }
}
