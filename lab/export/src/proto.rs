//! Protocol buffers, written by hand: a message is a sequence of fields, each a key (number and
//! wire type) with a value ("Encoding", protobuf.dev). Only what the export needs: varints, fixed
//! 64-bit numbers, byte strings, and messages inside messages.

/// The bytes of a message.
#[derive(Clone, Debug, Default)]
pub struct Message(pub Vec<u8>);

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;

impl Message {
    /// A number of variable length.
    pub fn varint(&mut self, field: u32, value: u64) {
        self.key(field, VARINT);
        self.raw_varint(value);
    }

    /// A number of eight bytes.
    pub fn fixed64(&mut self, field: u32, value: u64) {
        self.key(field, FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// A text.
    pub fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    /// A message inside.
    pub fn message(&mut self, field: u32, fill: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.key(field, BYTES);
        self.raw_varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn key(&mut self, field: u32, wire_type: u32) {
        self.raw_varint(u64::from(field << 3 | wire_type));
    }

    fn raw_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// Reading, for tests.
#[cfg(test)]
pub mod read {
    /// A value.
    #[derive(Clone, Debug, PartialEq)]
    pub enum Value {
        Number(u64),
        Bytes(Vec<u8>),
    }

    /// The fields of a message in their order.
    pub fn fields(mut bytes: &[u8]) -> Vec<(u32, Value)> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let value = match key & 7 {
                0 => Value::Number(varint(&mut bytes)),
                1 => Value::Number(u64::from_le_bytes(take(&mut bytes, 8).try_into().expect("eight"))),
                2 => {
                    let length = varint(&mut bytes) as usize;
                    Value::Bytes(take(&mut bytes, length).to_vec())
                }
                other => panic!("wire type {other}"),
            };
            fields.push(((key >> 3) as u32, value));
        }
        fields
    }

    fn take<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
        let (taken, rest) = bytes.split_at(length);
        *bytes = rest;
        taken
    }

    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = take(bytes, 1)[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::read::{Value, fields};
    use super::*;

    #[test]
    fn the_examples_of_the_specification() {
        let mut message = Message::default();
        message.varint(1, 150);
        assert_eq!(message.0, [0x08, 0x96, 0x01]);
        let mut outer = Message::default();
        outer.text(2, "testing");
        assert_eq!(outer.0, b"\x12\x07testing");
        let mut nested = Message::default();
        nested.message(3, |inner| inner.varint(1, 150));
        assert_eq!(nested.0, [0x1a, 0x03, 0x08, 0x96, 0x01]);
        nested.fixed64(47, u64::MAX);
        assert_eq!(fields(&nested.0), [(3, Value::Bytes(vec![8, 0x96, 1])), (47, Value::Number(u64::MAX))]);
    }
}
