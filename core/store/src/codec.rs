//! Little-endian and variable-length integers. Reading is total: every function answers `None`
//! instead of panicking.

use bytes::BufMut;

/// Walks over bytes that may be anything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The bytes that are left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Seven bits a byte, lowest first, the high bit says that more follow. At most ten bytes.
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

pub(crate) fn put_varint(out: &mut impl BufMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Splits the next `{len u32, bytes}` record off `reader`; `None` if it does not fit or is larger
/// than a record may be.
pub(crate) fn take_record<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let len = reader.u32()? as usize;
    if len > crate::RECORD_BYTES_MAX {
        return None;
    }
    reader.take(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_and_refuse_overflow() {
        for value in [0, 1, 127, 128, 300, 1 << 32, u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.varint(), Some(value));
            assert!(reader.is_empty());
            assert_eq!(Reader::new(&bytes[..bytes.len() - 1]).varint(), None, "cut short: {value}");
        }
        assert_eq!(Reader::new(&[0xff; 9]).varint(), None);
        assert_eq!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).varint(), None, "65 bits");
        assert_eq!(Reader::new(&[0x80; 11]).varint(), None, "eleven bytes");
    }

    #[test]
    fn a_record_never_exceeds_its_bounds() {
        let mut bytes = (crate::RECORD_BYTES_MAX as u32 + 1).to_le_bytes().to_vec();
        bytes.resize(crate::RECORD_BYTES_MAX + 5, 0);
        assert_eq!(take_record(&mut Reader::new(&bytes)), None);
        assert_eq!(take_record(&mut Reader::new(&[2, 0, 0, 0, 7])), None);
        assert_eq!(take_record(&mut Reader::new(&[1, 0, 0, 0, 7])), Some(&[7][..]));
    }
}
