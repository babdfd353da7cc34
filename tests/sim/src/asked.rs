//! Which operations histories ask for: an operation that no history asks for is tested by less.

use weft_wire::Op;

/// These; `tests/operations.rs` looks at what servers have counted.
pub const ASKED: &[Op] = &[
    Op::Ping,
    Op::Meet,
    Op::Lookup,
    Op::Create,
    Op::Mkdir,
    Op::Unlink,
    Op::Rmdir,
    Op::Rename,
    Op::Link,
    Op::ReadDir,
    Op::GetAttr,
    Op::GetAttrMany,
    Op::SetAttr,
    Op::Open,
    Op::Close,
    Op::Readlink,
    Op::GetXattr,
    Op::SetXattr,
    Op::RemoveXattr,
    Op::SyncMeta,
    Op::Reclaim,
    Op::CloseMany,
    Op::TxPrepare,
    Op::TxDecide,
    Op::Parent,
    Op::Write,
    Op::Read,
    Op::ObjectStat,
    Op::ObjectTruncate,
    Op::ObjectSync,
    Op::ObjectRemove,
    Op::ObjectEpoch,
];

/// The others, and why.
pub const NOT_ASKED: &[(Op, &str)] = &[
    (Op::GetMap, "clients have the map from their configuration"),
    (Op::Trace, "virtual time records in another way"),
    (Op::TraceRead, "virtual time records in another way"),
    (Op::Live, "only after a history, to learn what it has asked for"),
    (Op::ClassicDirectory, "a yardstick of measurements: `nodes/virtual-cluster/tests/classic.rs`"),
    (Op::ClassicReserve, "the same"),
    (Op::ClassicMakeMetafile, "the same"),
    (Op::ClassicSetMetafile, "the same"),
    (Op::ClassicInsertEntry, "the same"),
    (Op::ClassicRemoveEntry, "the same"),
    (Op::ClassicRemoveMetafile, "the same"),
    (Op::ListXattr, "they have one attribute, and ask for its value"),
    (Op::TxStatus, "only after a crash between the phases of a transaction: in some seeds"),
];
