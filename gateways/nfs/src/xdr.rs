//! XDR (RFC 4506) as far as NFSv3 needs it: units of four bytes, big endian. Every length is
//! checked against what has arrived before anything is taken; opaque data is shared with the
//! message and not copied.

use bytes::Bytes;

/// A message that does not say what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Garbage;

/// The result of reading.
pub type Result<T> = std::result::Result<T, Garbage>;

/// Reads a message from its start to its end.
#[derive(Clone, Debug)]
pub(crate) struct Reader(Bytes);

impl Reader {
    /// Of these bytes.
    pub fn new(bytes: Bytes) -> Reader {
        Reader(bytes)
    }

    /// A fixed number of bytes, and what fills them up to whole units.
    ///
    /// # Errors
    /// [`Garbage`], as of all methods, if the message is shorter.
    pub fn fixed(&mut self, bytes: usize) -> Result<Bytes> {
        let padding = padding(bytes);
        if self.0.len() < bytes || self.0.len() - bytes < padding {
            return Err(Garbage);
        }
        let taken = self.0.split_to(bytes);
        drop(self.0.split_to(padding));
        Ok(taken)
    }

    /// An array of a known length.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(&self.fixed(N)?);
        Ok(array)
    }

    /// An unsigned number.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// An unsigned hyper.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// True or false, and nothing else.
    pub fn bool(&mut self) -> Result<bool> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Garbage),
        }
    }

    /// Opaque data of at most so many bytes.
    pub fn opaque(&mut self, bytes_max: usize) -> Result<Bytes> {
        let bytes = self.u32()? as usize;
        if bytes > bytes_max {
            return Err(Garbage);
        }
        self.fixed(bytes)
    }

    /// What may be there.
    pub fn option<T>(&mut self, read: impl FnOnce(&mut Reader) -> Result<T>) -> Result<Option<T>> {
        if self.bool()? { read(self).map(Some) } else { Ok(None) }
    }
}

/// Writes a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Writer(pub Vec<u8>);

impl Writer {
    /// An unsigned number.
    pub fn u32(&mut self, value: u32) -> &mut Writer {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// An unsigned hyper.
    pub fn u64(&mut self, value: u64) -> &mut Writer {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// True or false.
    pub fn bool(&mut self, value: bool) -> &mut Writer {
        self.u32(value.into())
    }

    /// Bytes whose number the reader knows.
    pub fn fixed(&mut self, bytes: &[u8]) -> &mut Writer {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len() + padding(bytes.len()), 0);
        self
    }

    /// Opaque data.
    pub fn opaque(&mut self, bytes: &[u8]) -> &mut Writer {
        self.u32(u32::try_from(bytes.len()).expect("no answer has 4 GiB")).fixed(bytes)
    }
}

/// Bytes that fill so many up to whole units.
pub fn padding(bytes: usize) -> usize {
    bytes.wrapping_neg() & 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut writer = Writer::default();
        writer.u32(7).u64(1 << 40).bool(true).opaque(b"abcde").fixed(b"xy").bool(false);
        assert_eq!(writer.0.len() % 4, 0);
        let mut reader = Reader::new(writer.0.into());
        assert_eq!((reader.u32(), reader.u64()), (Ok(7), Ok(1 << 40)));
        assert_eq!(reader.option(|reader| reader.opaque(5)), Ok(Some(Bytes::from_static(b"abcde"))));
        assert_eq!(reader.array::<2>(), Ok(*b"xy"));
        assert_eq!(reader.option(Reader::u32), Ok(None));
        assert_eq!(reader.u32(), Err(Garbage));
    }

    #[test]
    fn lengths_are_checked_before_anything_is_taken() {
        let read = |length: u32, bytes: &[u8], bytes_max: usize| {
            let mut writer = Writer::default();
            writer.u32(length).0.extend_from_slice(bytes);
            Reader::new(writer.0.into()).opaque(bytes_max)
        };
        assert_eq!(read(u32::MAX, b"abcd", usize::MAX), Err(Garbage));
        assert_eq!(read(5, b"abcde", 8), Err(Garbage), "the padding is missing");
        assert_eq!(read(5, b"abcde\0\0\0", 4), Err(Garbage), "longer than allowed");
        assert_eq!(read(5, b"abcde\0\0\0", 5), Ok(Bytes::from_static(b"abcde")));
        assert_eq!(Reader::new(Bytes::from_static(&[0, 0, 0, 2])).bool(), Err(Garbage));
    }
}
