//! How fields become bytes: little-endian, in the order of declaration, lengths before variable
//! parts, every length bounded. Behind the fields of a whole message optional ones may follow, as
//! extensions (`docs/formats.md`).

use bytes::{Buf, Bytes};
use weft_base::{ExtensionError, Extensions, Result, Status, extension_header, refuse_unknown};

/// A value with a fixed encoding.
pub trait Wire: Sized {
    /// Appends the encoding.
    fn put(&self, out: &mut Vec<u8>);

    /// Reads a value.
    ///
    /// # Errors
    /// [`Status::BadMessage`] if the bytes are too few or make no sense.
    fn get(from: &mut Reader) -> Result<Self>;

    /// Appends the optional fields that have a value.
    fn put_optional(&self, _: &mut Vec<u8>) {}

    /// Takes an optional field. False if this program does not know the tag.
    ///
    /// # Errors
    /// [`Status::BadMessage`] if its bytes make no sense.
    fn get_optional(&mut self, _tag: u16, _value: Reader) -> Result<bool> {
        Ok(false)
    }

    /// The encoding of a whole message.
    fn to_bytes(&self) -> Bytes {
        let mut out = Vec::with_capacity(256);
        self.put(&mut out);
        self.put_optional(&mut out);
        out.into()
    }

    /// Reads a whole message.
    ///
    /// # Errors
    /// [`Status::BadMessage`]; [`Status::NewerExtension`] if it needs an extension that this
    /// program does not know.
    fn from_bytes(bytes: Bytes) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let value = Self::get(&mut reader)?;
        if reader.remaining() == 0 { Ok(value) } else { with_extensions(value, &reader.0) }
    }
}

/// The value with what follows its fixed fields. By value and aside, so that a message without
/// extensions is read into its place.
#[cold]
#[inline(never)]
fn with_extensions<T: Wire>(mut value: T, list: &Bytes) -> Result<T> {
    get_extensions(&mut value, list)?;
    Ok(value)
}

/// Reads what follows the fixed fields of a message.
fn get_extensions<T: Wire>(value: &mut T, list: &Bytes) -> Result<()> {
    for extension in Extensions::filling(list) {
        let (tag, bytes) = extension.map_err(|_| Status::BadMessage)?;
        if !value.get_optional(tag, Reader::new(list.slice_ref(bytes)))? {
            refuse_unknown(tag).map_err(|_: ExtensionError| Status::NewerExtension)?;
        }
    }
    Ok(())
}

/// Appends an optional field, if it has a value.
pub fn put_optional<T: Wire>(tag: u16, field: &Option<T>, out: &mut Vec<u8>) {
    let Some(value) = field else { return };
    let at = out.len();
    out.extend_from_slice(&extension_header(tag, 0));
    let start = out.len();
    value.put(out);
    let header = extension_header(tag, out.len() - start);
    out[at..start].copy_from_slice(&header);
}

/// Reads an optional field that fills its extension.
///
/// # Errors
/// [`Status::BadMessage`].
pub fn get_optional<T: Wire>(mut value: Reader) -> Result<Option<T>> {
    let field = T::get(&mut value)?;
    value.finish()?;
    Ok(Some(field))
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

    /// The next byte, if there is one.
    pub fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// Takes extensions up to the end, of which only `marks` are known, which have no values. Says
    /// which of them are there.
    ///
    /// # Errors
    /// [`Status::BadMessage`]; [`Status::NewerExtension`] if another must be understood.
    pub fn take_marks<const N: usize>(&mut self, marks: [u16; N]) -> Result<[bool; N]> {
        let list = std::mem::take(&mut self.0);
        let mut are_there = [false; N];
        for extension in Extensions::filling(&list) {
            let (tag, value) = extension.map_err(|_| Status::BadMessage)?;
            match marks.iter().position(|mark| *mark == tag) {
                Some(mark) if value.is_empty() => are_there[mark] = true,
                Some(_) => return Err(Status::BadMessage),
                None => refuse_unknown(tag).map_err(|_: ExtensionError| Status::NewerExtension)?,
            }
        }
        Ok(are_there)
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
    ($( $type:ty )*) => { $(
        // Inlined over crates: a listing has thousands of them, and builds without whole-program
        // optimisation call each.
        impl Wire for $type {
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            #[inline]
            fn get(from: &mut Reader) -> Result<Self> {
                let number = Self::from_le_bytes(*from.0.first_chunk().ok_or(Status::BadMessage)?);
                from.0.advance(size_of::<Self>());
                Ok(number)
            }
        }
    )* };
}

wire_for_numbers! { u8 u16 u32 u64 i64 }

impl Wire for bool {
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    #[inline]
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

/// So many bytes, as they are.
impl<const N: usize> Wire for [u8; N] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn get(from: &mut Reader) -> Result<Self> {
        Ok(from.take(N)?[..].try_into().expect("so many bytes were taken"))
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

/// Lists: u32 count, elements. The count is bounded by the bytes that are left, so a lie cannot
/// make the reader allocate.
impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        let Some((first, others)) = self.split_first() else { return };
        let start = out.len();
        first.put(out);
        // Elements of a list take about as much as its first one, unless that is large: a long list
        // does not grow, and is not copied, again and again.
        out.reserve((others.len() * (out.len() - start)).min(64 << 10));
        others.iter().for_each(|element| element.put(out));
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

/// The extensions of a message as they came. Messages that proofs are made over keep them: also of
/// what is skipped, both sides must have the same bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtensionList(Bytes);

impl ExtensionList {
    /// These extensions, with ascending tags.
    pub fn of(extensions: &[(u16, &[u8])]) -> ExtensionList {
        let mut out = Vec::new();
        for (tag, value) in extensions {
            out.extend_from_slice(&extension_header(*tag, value.len()));
            out.extend_from_slice(value);
        }
        ExtensionList(out.into())
    }

    /// The value of one of them.
    pub fn get(&self, tag: u16) -> Option<&[u8]> {
        Extensions::filling(&self.0).map_while(|extension| extension.ok()).find(|(found, _)| *found == tag).map(|(_, value)| value)
    }

    /// Refuses what must be understood and is not.
    ///
    /// # Errors
    /// [`ExtensionError`].
    pub fn check(&self) -> std::result::Result<(), ExtensionError> {
        Extensions::filling(&self.0).check(&[])
    }
}

impl Wire for ExtensionList {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn get(from: &mut Reader) -> Result<Self> {
        Ok(ExtensionList(std::mem::take(&mut from.0)))
    }
}

/// Types with one field: the encoding of that.
macro_rules! wire_for_newtypes {
    ($( $type:ident; )*) => { $(
        impl $crate::Wire for $type {
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }
            #[inline]
            fn get(from: &mut $crate::Reader) -> weft_base::Result<Self> {
                Ok($type($crate::Wire::get(from)?))
            }
        }
    )* };
}
pub(crate) use wire_for_newtypes;

/// Structs whose encoding is the sequence of their fields; behind `if` what refuses a value that
/// makes no sense.
macro_rules! wire_for_fields {
    ($( $type:ident { $( $field:ident ),* } $( if $check:expr )?; )*) => { $(
        impl $crate::Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $( self.$field.put(out); )*
            }
            fn get(from: &mut $crate::Reader) -> weft_base::Result<Self> {
                let value = $type { $( $field: $crate::Wire::get(from)?, )* };
                $(
                    let check: fn(&$type) -> weft_base::Result<()> = $check;
                    check(&value)?;
                )?
                Ok(value)
            }
        }
    )* };
}
pub(crate) use wire_for_fields;

/// Choices without fields: their number, one byte.
macro_rules! wire_for_choices {
    ($( $type:ident { $($variant:ident),* } )*) => { $(
        impl $crate::Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                (*self as u8).put(out);
            }
            fn get(from: &mut $crate::Reader) -> weft_base::Result<Self> {
                let number = <u8 as $crate::Wire>::get(from)?;
                [$($type::$variant),*].into_iter().find(|choice| *choice as u8 == number).ok_or(weft_base::Status::BadMessage)
            }
        }
    )* };
}
pub(crate) use wire_for_choices;

/// Variants with fields: the number of the variant, one byte, and the sequence of its fields.
#[macro_export]
macro_rules! wire_for_variants {
    ($type:ident { $( $code:literal $variant:ident { $( $field:ident ),* } )* }) => {
        impl $crate::Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $( $type::$variant { $( $field ),* } => {
                        ($code as u8).put(out);
                        $( $field.put(out); )*
                    } )*
                }
            }
            fn get(from: &mut $crate::Reader) -> weft_base::Result<Self> {
                Ok(match <u8 as $crate::Wire>::get(from)? {
                    $( $code => $type::$variant { $( $field: $crate::Wire::get(from)? ),* }, )*
                    _ => return Err(weft_base::Status::BadMessage),
                })
            }
        }
    };
}

/// Declares structs whose encoding is the sequence of their fields. Fields in `optional` are
/// extensions by number: they need a place in a whole message, so a struct that is only part of
/// messages has none.
#[macro_export]
macro_rules! wire_struct {
    ($( $(#[$doc:meta])* pub struct $name:ident {
        $( $(#[$field_doc:meta])* pub $field:ident : $type:ty, )*
        $( optional { $( $(#[$optional_doc:meta])* $tag:literal pub $optional:ident : $optional_type:ty, )* } )?
    } )*) => { $(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$field_doc])* pub $field: $type, )*
            $( $( $(#[$optional_doc])* pub $optional: Option<$optional_type>, )* )?
        }

        impl $crate::Wire for $name {
            #[allow(unused_variables)] // structs without fields
            fn put(&self, out: &mut Vec<u8>) {
                $( $crate::Wire::put(&self.$field, out); )*
            }
            #[allow(unused_variables)] // as above
            fn get(from: &mut $crate::Reader) -> weft_base::Result<Self> {
                Ok($name { $( $field: $crate::Wire::get(from)?, )* $( $( $optional: None, )* )? })
            }
            $(
                fn put_optional(&self, out: &mut Vec<u8>) {
                    $( $crate::codec::put_optional($tag, &self.$optional, out); )*
                }
                fn get_optional(&mut self, tag: u16, value: $crate::Reader) -> weft_base::Result<bool> {
                    match tag {
                        $( $tag => self.$optional = $crate::codec::get_optional(value)?, )*
                        _ => return Ok(false),
                    }
                    Ok(true)
                }
            )?
        }
    )* };
}

#[cfg(test)]
mod tests {
    use super::*;

    wire_struct! {
        /// As version 1 has it.
        pub struct Old {
            /// A fixed field.
            pub a: u32,
        }

        /// The same message later: with an optional field that an old reader may skip, and one that
        /// it must understand.
        pub struct New {
            /// A fixed field.
            pub a: u32,
            optional {
                /// May be skipped.
                2 pub hint: String,
                /// Must be understood.
                5 pub must: u16,
            }
        }
    }

    #[test]
    fn optional_fields_cost_nothing_when_they_are_not_used() {
        let (old, new) = (Old { a: 7 }, New { a: 7, hint: None, must: None });
        assert_eq!(old.to_bytes(), new.to_bytes());
        assert_eq!(New::from_bytes(old.to_bytes()), Ok(new));
    }

    #[test]
    fn an_old_reader_skips_even_fields_and_refuses_odd_ones() {
        let hint = New { a: 7, hint: Some("x".into()), must: None };
        assert_eq!(hint.to_bytes()[..], [7, 0, 0, 0, 2, 0, 5, 0, 0, 0, 1, 0, 0, 0, b'x']);
        assert_eq!(Old::from_bytes(hint.to_bytes()), Ok(Old { a: 7 }));
        assert_eq!(New::from_bytes(hint.to_bytes()), Ok(hint));
        let must = New { a: 7, hint: None, must: Some(3) };
        assert_eq!(Old::from_bytes(must.to_bytes()), Err(Status::NewerExtension));
        assert_eq!(New::from_bytes(must.to_bytes()), Ok(must));
    }

    #[test]
    fn what_is_no_extension_is_refused() {
        for tail in [&[0][..], &[2, 0, 9, 0, 0, 0], &[2, 0, 1, 0, 0, 0, 0], &[0; 6]] {
            let body = [&[7, 0, 0, 0], tail].concat();
            assert_eq!(New::from_bytes(body.into()), Err(Status::BadMessage), "{tail:?}");
        }
    }
}
