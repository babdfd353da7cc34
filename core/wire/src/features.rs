//! Features of the protocol: what two sides agree on in the handshake, a bit for each.

use std::fmt;

use crate::codec::wire_for_newtypes;

/// A set of features. Bits that this program does not know have a number in place of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Features(pub u64);

macro_rules! features {
    ($( $(#[$doc:meta])* $bit:literal $name:ident $word:literal; )*) => {
        impl Features {
            $( $(#[$doc])* pub const $name: Features = Features(1 << $bit); )*
            /// All that this program can use.
            pub const KNOWN: Features = Features($( 1 << $bit )|*);
            const NAMES: &'static [(u32, &'static str)] = &[ $( ($bit, $word), )* ];
        }
    };
}

features! {
    /// Bulk data in memory that client and server share ([`Flags::SHARED`](crate::Flags::SHARED)).
    0 SHARED_MEMORY "shared memory";
    /// Everything after the handshake travels in envelopes ([`Cipher`](crate::Cipher)). Over TCP
    /// only.
    2 ENCRYPTION "encryption";
    /// The client shows tags for handles ([`HandleTags`](crate::HandleTags)), which limited keys
    /// need.
    3 HANDLE_TAGS "handle tags";
}

impl Features {
    /// True if all of `other` are in the set.
    pub fn contains(self, other: Features) -> bool {
        self.0 & other.0 == other.0
    }
    /// With these too.
    pub fn with(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }
    /// What both have.
    pub fn and(self, other: Features) -> Features {
        Features(self.0 & other.0)
    }
    /// What this set has and the other one lacks.
    pub const fn without(self, other: Features) -> Features {
        Features(self.0 & !other.0)
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for bit in (0..u64::BITS).filter(|bit| self.0 >> bit & 1 == 1) {
            match Features::NAMES.iter().find(|(named, _)| *named == bit) {
                Some((_, word)) => write!(f, "{comma}{word}")?,
                None => write!(f, "{comma}number {bit}")?,
            }
            comma = ", ";
        }
        Ok(())
    }
}

wire_for_newtypes! { Features; }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_names() {
        assert_eq!(Features(0b101 | 1 << 40).to_string(), "shared memory, encryption, number 40");
        assert_eq!(Features(0b110).without(Features(0b010)), Features(0b100));
        assert!(Features::KNOWN.contains(Features::SHARED_MEMORY));
    }

    #[test]
    fn wire_md_lists_every_feature() {
        let document = include_str!("../../../docs/wire.md");
        for (bit, word) in Features::NAMES {
            assert!(document.contains(&format!("| {bit} | {word} |")), "docs/wire.md lacks feature {bit} {word}");
        }
    }
}
