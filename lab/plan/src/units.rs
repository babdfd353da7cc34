//! Values of plans: sizes, rates, times and names.

use toml::de::DeValue;
use weft_host::units::ByteSize;

use crate::document::{integer, show, text};

/// A number of bytes (or bytes a second): `65536` or `"64KiB"`.
pub fn bytes(value: &DeValue<'_>) -> Result<u64, String> {
    match value {
        DeValue::String(text) => text.parse::<ByteSize>().map(|size| size.0),
        other => integer(other),
    }
}

/// What `read` reads, if it is above 0: a bandwidth, a size, a number of revolutions.
pub fn above_zero<T: PartialOrd + Default>(read: impl Fn(&DeValue<'_>) -> Result<T, String>) -> impl Fn(&DeValue<'_>) -> Result<T, String> {
    move |value| read(value).and_then(|number| if number > T::default() { Ok(number) } else { Err("must be above 0".to_string()) })
}

/// A count that fits 32 bits and is not 0.
pub fn count(value: &DeValue<'_>) -> Result<u32, String> {
    let number = integer(value)?;
    u32::try_from(number).ok().filter(|&count| count > 0).ok_or_else(|| format!("{number} is not between 1 and {}", u32::MAX))
}

/// Files or names that one client makes at most: beyond that a plan has a number wrong, and virtual
/// time would fill the memory.
pub const FILES_MAX: u32 = 100_000_000;

/// A count that is not above `most`.
pub fn up_to(value: &DeValue<'_>, most: u32) -> Result<u32, String> {
    count(value).ok().filter(|&count| count <= most).ok_or_else(|| match integer(value) {
        Ok(number) => format!("{number} is not between 1 and {most}"),
        Err(problem) => problem,
    })
}

/// The longest time of a plan, seconds: eleven days. Beyond that virtual time could overflow.
const SECONDS_MAX: f64 = 1e6;

/// Seconds: `"200us"`, `"1.5 ms"`, `"2s"`, or a number of seconds.
pub fn seconds(value: &DeValue<'_>) -> Result<f64, String> {
    let written = show(value);
    let wrong = || format!("`{written}` is not a time: write for example \"200us\", \"10ms\" or 0.5");
    let (number, divisor) = match value {
        DeValue::Integer(_) | DeValue::Float(_) => (written.as_str(), 1.0),
        _ => {
            let units = [("ns", 1e9), ("us", 1e6), ("ms", 1e3), ("s", 1.0)];
            let found = units.into_iter().find_map(|(unit, divisor)| Some((written.strip_suffix(unit)?, divisor)));
            found.ok_or_else(wrong)?
        }
    };
    let number: f64 = number.trim().replace('_', "").parse().map_err(|_| wrong())?;
    // Divided, not multiplied with a rounded fraction: "200us" is the same double as 200e-6.
    let seconds = Some(number / divisor).filter(|seconds| seconds.is_finite() && *seconds >= 0.0).ok_or_else(wrong)?;
    if seconds > SECONDS_MAX { Err(format!("{written} is longer than {SECONDS_MAX} s")) } else { Ok(seconds) }
}

/// A number that may have a fraction.
pub fn number(value: &DeValue<'_>) -> Result<f64, String> {
    let written = show(value);
    match value {
        DeValue::Integer(_) | DeValue::Float(_) => written.replace('_', "").parse().map_err(|_| format!("{written} is not a number")),
        _ => Err(format!("{written} is not a number")),
    }
}

/// Numbers of nodes: `3`, `"0-3"` or `"0-3, 7"`, in the order in which they stand there.
pub fn numbers(value: &DeValue<'_>) -> Result<Vec<u32>, String> {
    const NUMBERS_MAX: u32 = 1_000_000;
    let written = show(value);
    let wrong = || format!("`{written}` is not a list of numbers: write for example 3, \"0-3\" or \"0-3, 7\"");
    let number = |part: &str| part.trim().parse::<u32>().ok().filter(|&number| number < NUMBERS_MAX).ok_or_else(wrong);
    let mut list = Vec::new();
    for part in written.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (number(from)?, number(to)?);
        if from > to {
            return Err(wrong());
        }
        list.extend(from..=to);
    }
    Ok(list)
}

/// One of some names.
pub fn name<T: Copy>(value: &DeValue<'_>, names: &[(&str, T)]) -> Result<T, String> {
    let written = text(value)?;
    let all = || names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let found = names.iter().find(|(name, _)| *name == written).map(|(_, value)| *value);
    found.ok_or_else(|| format!("\"{written}\" is not one of {}", all()))
}

/// A list of some names.
pub fn names<T: Copy>(value: &DeValue<'_>, known: &[(&str, T)]) -> Result<Vec<T>, String> {
    let DeValue::Array(items) = value else { return name(value, known).map(|one| vec![one]) };
    items.iter().map(|item| name(item.get_ref(), known)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_exactly() {
        for (text, expected) in [("\"200us\"", 200e-6), ("\"10 ms\"", 0.01), ("1", 1.0), ("0.5", 0.5), ("\"3ns\"", 3e-9), ("1_0.5", 10.5)] {
            assert_eq!(seconds(DeValue::parse(text).expect("TOML").get_ref()), Ok(expected), "{text}");
        }
        for bad in ["\"fast\"", "\"-1s\"", "true", "inf", "\"1 h\"", "\"1000001s\""] {
            assert!(seconds(DeValue::parse(bad).expect("TOML").get_ref()).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_of_nodes_are_ranges_and_lists() {
        let read = |text: &str| numbers(DeValue::parse(text).expect("TOML").get_ref());
        assert_eq!(read("3"), Ok(vec![3]));
        assert_eq!(read("\"0-2, 7\""), Ok(vec![0, 1, 2, 7]));
        for bad in ["\"\"", "\"2-0\"", "\"a\"", "true", "\"1-\"", "\"0-4000000000\"", "-1"] {
            assert!(read(bad).is_err_and(|problem| problem.contains("write for example")), "{bad}");
        }
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_right_ones() {
        let value = DeValue::parse("\"fast\"").expect("TOML");
        assert_eq!(name(value.get_ref(), &[("slow", 1), ("slower", 2)]), Err("\"fast\" is not one of slow, slower".to_string()));
    }
}
