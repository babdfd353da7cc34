//! Values that stand in a config and on command lines.

use weft_layout::INLINE_BYTES_MAX;

use crate::units::ByteSize;

/// Names of file systems and servers go into file names, addresses and tables.
pub fn check_word(word: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if word.is_empty() || word.len() > 64 || !word.chars().all(fits) || word.starts_with(['.', '-']) {
        return Err(format!("`{word}` is not a name: use 1 to 64 letters, digits, `.`, `_` or `-`, beginning with a letter, digit or `_`"));
    }
    Ok(())
}

/// Checks the stripe size of a file system and gives it in bytes.
///
/// # Errors
/// A sentence that says which sizes are possible.
pub fn parse_stripe_size(text: &str) -> Result<u32, String> {
    let bytes = text.parse::<ByteSize>()?.0;
    if !bytes.is_power_of_two() || !(4096..=64 << 20).contains(&bytes) {
        return Err(format!("`{text}` is not possible: give a power of two from 4KiB to 64MiB"));
    }
    Ok(bytes as u32)
}

/// Reads the size up to which files lie beside their inodes.
///
/// # Errors
/// Says which sizes are possible.
pub fn parse_inline_limit(text: &str) -> Result<u32, String> {
    let bytes = text.parse::<ByteSize>()?.0;
    if bytes > INLINE_BYTES_MAX.into() {
        return Err(format!("`{text}` is not possible: give 0 (none) to {}", ByteSize(INLINE_BYTES_MAX.into())));
    }
    Ok(bytes as u32)
}
