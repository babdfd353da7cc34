//! Encodings of the nouns of `weft-base`.

use weft_base::{
    Attr, ClientId, ClusterMap, Credentials, DataTime, FileKind, FsId, Generation, Handle, Layout, RequestId, Result, ServerEntry,
    ServerId, Status, WallTime,
};

use crate::codec::{wire_for_fields, wire_for_newtypes};
use crate::{Reader, Wire};

wire_for_newtypes! { Handle; ServerId; FsId; ClientId; WallTime; }

impl Wire for FileKind {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u8).put(out);
    }
    fn get(from: &mut Reader) -> Result<Self> {
        FileKind::from_code(u8::get(from)?).ok_or(Status::BadMessage)
    }
}

wire_for_fields! {
    RequestId { client, incarnation, sequence };
    DataTime { epoch, at };
    Credentials { uid, gid, groups, checked_by_kernel };
    ServerEntry { id, name, address };
    Generation { id, data };
    ClusterMap { fs_id, fs_name, epoch, meta, data, generations, stripe_bytes, stripe_width } if ClusterMap::check;
    // Arithmetic on layouts divides by both; a peer must not be able to stop us with a zero.
    Layout { stripe_bytes, width, first, generation } if |layout| {
        if layout.width == 0 || layout.stripe_bytes == 0 { Err(Status::BadMessage) } else { Ok(()) }
    };
}

/// What the last byte of attributes says of them: `bare`, and which further fields follow.
mod mark {
    pub(super) const BARE: u8 = 1;
    pub(super) const BORN: u8 = 2;
    pub(super) const HOLES: u8 = 4;
    pub(super) const ALL: u8 = BARE | BORN | HOLES;
}

macro_rules! wire_for_attributes {
    ($( $field:ident )*) => {
        impl Wire for Attr {
            fn put(&self, out: &mut Vec<u8>) {
                $( self.$field.put(out); )*
                let (is_born, has_holes) = (self.born != WallTime(0), self.hole_bytes != 0);
                let marks = [(self.bare, mark::BARE), (is_born, mark::BORN), (has_holes, mark::HOLES)];
                marks.iter().filter(|(is_set, _)| *is_set).fold(0, |marks, (_, mark)| marks | mark).put(out);
                if is_born {
                    self.born.put(out);
                }
                if has_holes {
                    self.hole_bytes.put(out);
                }
            }
            fn get(from: &mut Reader) -> Result<Self> {
                $( let $field = Wire::get(from)?; )*
                let marks = u8::get(from)?;
                if marks & !mark::ALL != 0 {
                    return Err(Status::BadMessage);
                }
                let born = if marks & mark::BORN != 0 { Wire::get(from)? } else { WallTime(0) };
                let hole_bytes = if marks & mark::HOLES != 0 { Wire::get(from)? } else { 0 };
                // Attributes have one encoding.
                if (marks & mark::BORN != 0) != (born != WallTime(0)) || (marks & mark::HOLES != 0) != (hole_bytes != 0) {
                    return Err(Status::BadMessage);
                }
                Ok(Attr { $( $field, )* bare: marks & mark::BARE != 0, born, hole_bytes })
            }
        }
    };
}

wire_for_attributes! { handle kind mode uid gid nlink rdev size atime mtime mtime_epoch ctime version truncate_epoch layout }
