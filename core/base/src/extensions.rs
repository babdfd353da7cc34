//! The optional end of every record and message: a list of `{tag u16, bytes u32, value}` behind the
//! fixed fields. One rule for all formats (`docs/formats.md`):
//!
//! - A format grows by extensions. An extension that is not used takes no byte.
//! - A reader skips an unknown **even** tag. It refuses a record or message with an unknown **odd**
//!   tag, by the number of the tag.
//! - Tags of a list ascend, so that a list has one encoding. Tag 0 names nothing: in a block of
//!   fixed size it ends the list.

use std::fmt;

/// Bytes before the value of an extension.
pub const EXTENSION_HEADER_BYTES: usize = 6;

/// Why a list of extensions cannot be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtensionError {
    /// It is no list of extensions.
    Malformed,
    /// It holds an extension that must be understood, and this program does not know it.
    Unknown(u16),
}

impl fmt::Display for ExtensionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExtensionError::Malformed => f.write_str("malformed extensions"),
            ExtensionError::Unknown(tag) => write!(f, "made by a newer weft: needs extension {tag}, which this one does not know"),
        }
    }
}

impl std::error::Error for ExtensionError {}

/// Walks over a list, which may be any bytes. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Extensions<'a> {
    rest: &'a [u8],
    /// The lowest tag that may follow.
    tag_min: u32,
}

impl<'a> Extensions<'a> {
    /// A list that fills `bytes`.
    pub fn filling(bytes: &'a [u8]) -> Extensions<'a> {
        Extensions { rest: bytes, tag_min: 1 }
    }

    /// A list in a block of fixed size: it ends where the rest is zero.
    ///
    /// # Errors
    /// [`ExtensionError::Malformed`] if something follows the end.
    pub fn in_block(block: &'a [u8]) -> Result<Extensions<'a>, ExtensionError> {
        let used = block.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let mut walk = Extensions::filling(block);
        // A value may end in zeros, so the list is as long as its elements say.
        while block.len() - walk.rest.len() < used {
            walk.next().expect("bytes are left")?;
        }
        let bytes = block.len() - walk.rest.len();
        Ok(Extensions::filling(&block[..bytes]))
    }

    /// Refuses what must be understood and is not in `known`.
    ///
    /// # Errors
    /// [`ExtensionError`].
    pub fn check(self, known: &[u16]) -> Result<(), ExtensionError> {
        for extension in self {
            let (tag, _) = extension?;
            if !known.contains(&tag) {
                refuse_unknown(tag)?;
            }
        }
        Ok(())
    }

    fn split(&mut self) -> Option<(u16, &'a [u8])> {
        let (header, rest) = self.rest.split_first_chunk::<EXTENSION_HEADER_BYTES>()?;
        let tag = u16::from_le_bytes([header[0], header[1]]);
        let len = u32::from_le_bytes([header[2], header[3], header[4], header[5]]);
        let (value, rest) = rest.split_at_checked(len as usize)?;
        if u32::from(tag) < self.tag_min {
            return None;
        }
        (self.rest, self.tag_min) = (rest, u32::from(tag) + 1);
        Some((tag, value))
    }
}

impl<'a> Iterator for Extensions<'a> {
    type Item = Result<(u16, &'a [u8]), ExtensionError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let found = self.split().ok_or(ExtensionError::Malformed);
        if found.is_err() {
            self.rest = &[];
        }
        Some(found)
    }
}

/// The rule for a tag that a reader does not know.
///
/// # Errors
/// [`ExtensionError::Unknown`] for an odd one.
pub fn refuse_unknown(tag: u16) -> Result<(), ExtensionError> {
    if tag % 2 == 1 { Err(ExtensionError::Unknown(tag)) } else { Ok(()) }
}

/// The bytes before a value of `len` bytes.
pub fn extension_header(tag: u16, len: usize) -> [u8; EXTENSION_HEADER_BYTES] {
    debug_assert!(tag != 0, "tag 0 ends a list");
    let ([t0, t1], [l0, l1, l2, l3]) = (tag.to_le_bytes(), (len as u32).to_le_bytes());
    [t0, t1, l0, l1, l2, l3]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(extensions: &[(u16, &[u8])]) -> Vec<u8> {
        let put = |(tag, value): &(u16, &[u8])| [&extension_header(*tag, value.len()), *value].concat();
        extensions.iter().flat_map(put).collect()
    }

    #[test]
    fn even_tags_are_skipped_and_odd_ones_are_refused_by_number() {
        let bytes = list(&[(2, b"two"), (4, b""), (7, b"seven")]);
        assert_eq!(Extensions::filling(&bytes).check(&[]), Err(ExtensionError::Unknown(7)));
        assert_eq!(Extensions::filling(&bytes).check(&[7]), Ok(()));
        assert_eq!(Extensions::filling(&[]).check(&[]), Ok(()));
        let found: Vec<_> = Extensions::filling(&bytes).collect();
        assert_eq!(found, [Ok((2, &b"two"[..])), Ok((4, &b""[..])), Ok((7, &b"seven"[..]))]);
        assert!(ExtensionError::Unknown(7).to_string().contains("newer weft: needs extension 7"));
    }

    #[test]
    fn a_list_has_one_encoding() {
        let malformed = Err(ExtensionError::Malformed);
        for bytes in [list(&[(4, b""), (2, b"")]), list(&[(2, b""), (2, b"")]), vec![0; 6], vec![2, 0, 1, 0, 0, 0], vec![2]] {
            assert_eq!(Extensions::filling(&bytes).check(&[]), malformed, "{bytes:?}");
        }
    }

    #[test]
    fn a_block_of_fixed_size_ends_in_zeros() {
        let mut block = list(&[(2, b"\0a\0\0"), (4, b"x")]);
        let bytes = block.len();
        block.resize(100, 0);
        let walk = Extensions::in_block(&block).unwrap();
        assert_eq!(walk.collect::<Vec<_>>(), [Ok((2, &b"\0a\0\0"[..])), Ok((4, &b"x"[..]))]);
        assert_eq!(Extensions::in_block(&[0; 40]).unwrap().count(), 0);
        block[bytes + 8] = 1;
        assert_eq!(Extensions::in_block(&block).unwrap_err(), ExtensionError::Malformed);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Extensions::filling(&bytes).check(&[2]);
            let _ = Extensions::in_block(&bytes).map(|walk| walk.check(&[]));
        }
    }
}
