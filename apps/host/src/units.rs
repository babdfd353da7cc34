//! Sizes as people write and read them. Units are binary: `64KiB`, `64K` and `65536` are the same.

use std::fmt;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};

/// A number of bytes, as given on the command line or in a config file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

const UNITS: [(&str, u32); 5] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<ByteSize, String> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let shift = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kib" => 10,
            "m" | "mib" => 20,
            "g" | "gib" => 30,
            "t" | "tib" => 40,
            other => return Err(format!("`{other}` is not a unit of size: write for example 65536, 64KiB, 1MiB or 10GiB")),
        };
        let number: u64 = number.parse().map_err(|_| format!("`{text}` is not a size: write for example 65536, 64KiB, 1MiB or 10GiB"))?;
        number.checked_mul(1 << shift).map(ByteSize).ok_or_else(|| format!("`{text}` is too large"))
    }
}

impl fmt::Display for ByteSize {
    /// Exact, in the largest unit that divides it: can be parsed again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, shift) = UNITS.into_iter().find(|(_, shift)| self.0 != 0 && self.0.is_multiple_of(1 << shift)).unwrap_or(("B", 0));
        if shift == 0 { write!(f, "{}", self.0) } else { write!(f, "{}{unit}", self.0 >> shift) }
    }
}

/// A size for people, rounded to one digit after the point: `1.5 MiB`.
pub fn human_bytes(bytes: u64) -> String {
    match UNITS.into_iter().find(|(_, shift)| *shift > 0 && bytes >= 1 << shift) {
        Some((unit, shift)) => format!("{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes} B"),
    }
}

/// An option that takes one of these names.
pub fn one_of<T: Copy + Send + Sync + 'static, const N: usize>(all: [(&'static str, T); N]) -> impl TypedValueParser<Value = T> {
    let named = move |name: String| all.into_iter().find(|(known, _)| *known == name).expect("the parser knows no other names").1;
    PossibleValuesParser::new(all.map(|(name, _)| name)).map(named)
}

/// Hexadecimal digits of bytes.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads seconds, which may have a fraction, from `least` to `most`.
pub fn seconds(least: f64, most: f64) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let seconds = text.parse::<f64>().ok().filter(|seconds| (least..=most).contains(seconds));
        seconds.ok_or_else(|| format!("a number of seconds from {least} to {most} is expected"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_in_every_spelling() {
        for (text, bytes) in
            [("0", 0), ("512", 512), ("64KiB", 65536), ("64k", 65536), (" 1 MiB ", 1 << 20), ("2G", 2 << 30), ("3tib", 3 << 40)]
        {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for bad in ["", "x", "1.5M", "-1", "10 parsecs", "99999999999T"] {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad}");
        }
    }

    #[test]
    fn shown_sizes_parse_again() {
        for bytes in [0, 1, 1000, 4096, 65536, 3 << 20, 5 << 40] {
            assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
        }
        assert_eq!(ByteSize(1 << 20).to_string(), "1MiB");
        assert_eq!(human_bytes(1536 << 10), "1.5 MiB");
        assert_eq!(human_bytes(999), "999 B");
    }
}
