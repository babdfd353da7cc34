//! Arguments of calls, and attributes in answers.

use crate::types::read_time;
use crate::xdr::{Reader, Writer};

/// Arguments of a call.
pub(crate) fn args(write: impl for<'w> FnOnce(&'w mut Writer) -> &'w mut Writer) -> Writer {
    let mut writer = Writer::default();
    write(&mut writer);
    writer
}

/// `sattr3` with a mode only.
pub(crate) fn mode(writer: &mut Writer, mode: u32) -> &mut Writer {
    writer.bool(true).u32(mode).bool(false).bool(false).bool(false).u32(0).u32(0)
}

/// `sattr3` with a size only.
pub(crate) fn size(writer: &mut Writer, bytes: u64) -> &mut Writer {
    writer.bool(false).bool(false).bool(false).bool(true).u64(bytes).u32(0).u32(0)
}

/// Attributes as a client reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeenByNfs {
    pub kind: u32,
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub device: (u32, u32),
    pub number: u64,
    pub mtime: i64,
    pub ctime: i64,
}

fn time(reader: &mut Reader) -> i64 {
    read_time(reader).expect("a time").0
}

pub(crate) fn read_attr(reader: &mut Reader) -> SeenByNfs {
    let mut word = || reader.u32().expect("attributes");
    let (kind, mode, links, uid, gid) = (word(), word(), word(), word(), word());
    let (size, _used) = (reader.u64().unwrap(), reader.u64().unwrap());
    let device = (reader.u32().unwrap(), reader.u32().unwrap());
    assert_eq!(reader.u64(), Ok(7), "the file system");
    let number = reader.u64().unwrap();
    time(reader);
    SeenByNfs { kind, mode, links, uid, gid, size, device, number, mtime: time(reader), ctime: time(reader) }
}

/// `post_op_attr`.
pub(crate) fn read_after(reader: &mut Reader) -> Option<SeenByNfs> {
    reader.bool().expect("a flag").then(|| read_attr(reader))
}

/// `wcc_data`: true if it says what was before.
pub(crate) fn read_change(reader: &mut Reader) -> (bool, Option<SeenByNfs>) {
    let before = reader.bool().expect("a flag");
    if before {
        reader.u64().expect("a size");
        time(reader);
        time(reader);
    }
    (before, read_after(reader))
}
