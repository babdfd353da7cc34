//! What kind of work an operation is, for dashboards that show four numbers instead of forty.

use weft_wire::Op;

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Looks at names or inodes; an open too, which changes only the table of open files.
    MetaRead,
    /// Changes names or inodes.
    MetaChange,
    /// Gives bytes of a file.
    DataRead,
    /// Takes bytes of a file.
    DataWrite,
    /// Everything else: closes (what they change belongs to the writes before), flushes, transactions between servers, questions of
    /// dashboards.
    Other,
}

impl Class {
    /// The class of the operation with this number on the wire.
    pub fn of(op: u16) -> Class {
        let Some(op) = Op::from_code(op) else { return Class::Other };
        match op {
            Op::Lookup
            | Op::ReadDir
            | Op::GetAttr
            | Op::GetAttrMany
            | Op::Open
            | Op::Readlink
            | Op::GetXattr
            | Op::ListXattr
            | Op::Parent => Class::MetaRead,
            Op::Create | Op::Mkdir | Op::Unlink | Op::Rmdir | Op::Rename | Op::Link | Op::SetAttr | Op::SetXattr | Op::RemoveXattr => {
                Class::MetaChange
            }
            Op::Read => Class::DataRead,
            Op::Write => Class::DataWrite,
            _ => Class::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_that_changes_names_or_inodes_is_a_change() {
        // Those that are executed exactly once and are no change for a person: opens, closes and parts of transactions.
        let not_a_change = [Op::Open, Op::Close, Op::CloseMany, Op::TxPrepare, Op::TxDecide];
        for op in Op::ALL {
            let expected = op.changes() && !not_a_change.contains(op);
            assert_eq!(Class::of(op.code()) == Class::MetaChange, expected, "{}", op.name());
        }
        assert_eq!(Class::of(9999), Class::Other);
    }
}
