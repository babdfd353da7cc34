//! How fields become bytes: little-endian, in the order of declaration, lengths before variable parts, every length bounded.

use bytes::{Buf, Bytes};
use weft_base::{Result, Status};

/// A value with a fixed encoding.
pub trait Wire: Sized {
    /// Appends the encoding.
    fn put(&self, out: &mut Vec<u8>);

    /// Reads a value.
    ///
    /// # Errors
    /// [`Status::BadMessage`] if the bytes are too few or make no sense.
    fn get(from: &mut Reader) -> Result<Self>;

    /// The encoding on its own.
    fn to_bytes(&self) -> Bytes {
        let mut out = Vec::with_capacity(256);
        self.put(&mut out);
        out.into()
    }

    /// Reads a value that must use up all bytes.
    ///
    /// # Errors
    /// [`Status::BadMessage`].
    fn from_bytes(bytes: Bytes) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let value = Self::get(&mut reader)?;
        reader.finish()?;
        Ok(value)
    }
}

/// A cursor over received bytes; variable parts are taken out of it by reference, not copied.
#[derive(Debug)]
pub struct Reader(Bytes);

impl Reader {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: Bytes) -> Reader {
        Reader(bytes)
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.0.len()
    }

    /// Takes `len` bytes out.
    ///
    /// # Errors
    /// [`Status::BadMessage`] if there are fewer.
    pub fn take(&mut self, len: usize) -> Result<Bytes> {
        if self.0.len() < len {
            return Err(Status::BadMessage);
        }
        Ok(self.0.split_to(len))
    }

    /// Says that the value ends here.
    ///
    /// # Errors
    /// [`Status::BadMessage`] if bytes are left over.
    pub fn finish(&self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Status::BadMessage) }
    }
}

macro_rules! wire_for_numbers {
    ($( $type:ty, $get:ident; )*) => { $(
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn get(from: &mut Reader) -> Result<Self> {
                if from.0.len() < size_of::<$type>() {
                    return Err(Status::BadMessage);
                }
                Ok(from.0.$get())
            }
        }
    )* };
}

wire_for_numbers! {
    u16, get_u16_le;
    u32, get_u32_le;
    u64, get_u64_le;
    i64, get_i64_le;
}

impl Wire for u8 {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }
    fn get(from: &mut Reader) -> Result<Self> {
        if from.0.is_empty() {
            return Err(Status::BadMessage);
        }
        Ok(from.0.get_u8())
    }
}

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn get(from: &mut Reader) -> Result<Self> {
        match u8::get(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Status::BadMessage),
        }
    }
}

impl Wire for () {
    fn put(&self, _: &mut Vec<u8>) {}
    fn get(_: &mut Reader) -> Result<Self> {
        Ok(())
    }
}

/// Byte strings: u32 length, bytes. Used for names, targets and values of attributes.
impl Wire for Bytes {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.extend_from_slice(self);
    }
    fn get(from: &mut Reader) -> Result<Self> {
        let len = u32::get(from)? as usize;
        from.take(len)
    }
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.extend_from_slice(self.as_bytes());
    }
    fn get(from: &mut Reader) -> Result<Self> {
        let bytes = Bytes::get(from)?;
        String::from_utf8(bytes.into()).map_err(|_| Status::BadMessage)
    }
}

/// Lists: u32 count, elements. The count is bounded by the bytes that are left, so a lie cannot make the reader allocate.
impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        self.iter().for_each(|element| element.put(out));
    }
    fn get(from: &mut Reader) -> Result<Self> {
        let count = u32::get(from)? as usize;
        if count > from.remaining() {
            return Err(Status::BadMessage);
        }
        let mut list = Vec::with_capacity(count.min(1024));
        for _ in 0..count {
            list.push(T::get(from)?);
        }
        Ok(list)
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn get(from: &mut Reader) -> Result<Self> {
        Ok(if bool::get(from)? { Some(T::get(from)?) } else { None })
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn get(from: &mut Reader) -> Result<Self> {
        Ok((A::get(from)?, B::get(from)?))
    }
}

/// A success or the number of a [`Status`].
impl<T: Wire> Wire for Result<T> {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Ok(value) => {
                0u16.put(out);
                value.put(out);
            }
            Err(status) => status.code().put(out),
        }
    }
    fn get(from: &mut Reader) -> Result<Self> {
        Ok(match u16::get(from)? {
            0 => Ok(T::get(from)?),
            code => Err(Status::from_code(code)),
        })
    }
}

/// Declares structs whose encoding is the sequence of their fields.
#[macro_export]
macro_rules! wire_struct {
    ($( $(#[$doc:meta])* pub struct $name:ident { $( $(#[$field_doc:meta])* pub $field:ident : $type:ty, )* } )*) => { $(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name { $( $(#[$field_doc])* pub $field: $type, )* }

        impl $crate::Wire for $name {
            #[allow(unused_variables)] // structs without fields
            fn put(&self, out: &mut Vec<u8>) {
                $( $crate::Wire::put(&self.$field, out); )*
            }
            #[allow(unused_variables)] // as above
            fn get(from: &mut $crate::Reader) -> weft_base::Result<Self> {
                Ok($name { $( $field: $crate::Wire::get(from)?, )* })
            }
        }
    )* };
}
