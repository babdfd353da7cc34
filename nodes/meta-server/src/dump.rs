//! The tree as text, as the in-memory module TAS wrote it at its end (Kunkel 2006, section 5.4.1):
//! for people who want to see what was there. Unlike TAS nobody reads it again: the data of the
//! files is gone.
//!
//! ```text
//! h0.1 directory mode 755 owner 0:0 size 0 links 1 changed 1700000000.500
//! h0.1 "name" -> h0.2 file
//! ```

use std::fmt::Write;

use bytes::Bytes;
use weft_base::WallTime;
use weft_namespace::{Change, Record, SnapshotCursor};
use weft_rt::{Disk, DiskError};

/// Name of the file in the folder of the server.
pub const DUMP_NAME: &str = "tree.txt";
/// Changes of the state that are written at once.
const SLICE_CHANGES: usize = 4096;

/// Writes all objects and names that `slice` hands out, from the first cursor on.
///
/// # Errors
/// Of the disk.
pub(crate) async fn write<D: Disk>(
    disk: &D,
    slice: impl Fn(SnapshotCursor, usize) -> (Vec<Bytes>, SnapshotCursor),
) -> Result<(), DiskError> {
    let file = disk.open(DUMP_NAME, true).await?;
    disk.set_len(file, 0).await?;
    let (mut cursor, mut offset) = (SnapshotCursor::Start, 0);
    while cursor != SnapshotCursor::End {
        let (records, next) = slice(cursor, SLICE_CHANGES);
        let changes = records.into_iter().filter_map(|record| Record::decode(record).ok()).flat_map(|record| record.changes);
        let text: String = changes.filter_map(|change| line(&change)).collect();
        let len = text.len() as u64;
        if len > 0 {
            disk.write(file, offset, text.into_bytes().into()).await?;
        }
        offset += len;
        cursor = next;
    }
    disk.sync(file).await?;
    disk.close(file);
    Ok(())
}

/// A line of an object, a name, a target or an extended attribute.
fn line(change: &Change) -> Option<String> {
    let mut out = String::new();
    let text = |bytes: &[u8]| format!("\"{}\"", bytes.escape_ascii());
    match change {
        Change::PutInode { handle, inode } => {
            let WallTime(ns) = inode.ctime;
            let kind = format!("{:?}", inode.kind).to_lowercase();
            let (mode, uid, gid, size, links, seconds) = (inode.mode, inode.uid, inode.gid, inode.size, inode.nlink, ns as f64 / 1e9);
            let project = if inode.project != 0 { format!(" project {}", inode.project) } else { String::new() };
            write!(out, "{handle} {kind} mode {mode:o} owner {uid}:{gid}{project} size {size} links {links} changed {seconds:.3}")
        }
        Change::PutEntry { dir, name, handle, kind } => {
            write!(out, "{dir} {} -> {handle} {}", text(name), format!("{kind:?}").to_lowercase())
        }
        Change::PutTarget { handle, target } => write!(out, "{handle} leads to {}", text(target)),
        Change::PutXattr { handle, name, value } => write!(out, "{handle} attribute {} = {}", text(name), text(value)),
        _ => return None,
    }
    .expect("text grows");
    out.push('\n');
    Some(out)
}

#[cfg(test)]
mod tests {
    use weft_base::{FileKind, Handle, ROOT_HANDLE, ServerId};
    use weft_namespace::{Inode, Settings, State};
    use weft_rt::ServerRuntime;
    use weft_rt_sim::{NodeConfig, Profile, Sim};
    use weft_wire::NameKey;

    use super::*;

    #[test]
    fn the_tree_is_there_in_words() {
        let layout = weft_base::Layout { stripe_bytes: 4096, width: 1, first: 0, generation: 0 };
        let mut state = State::new(Settings { server: ServerId(0), name_key: NameKey([1; 16]), xattr_bytes_max: 1 << 20, inline_limit: 0 });
        state.apply_change(State::format(0o755, (7, 8), layout, WallTime(1_500_000_000)));
        for counter in 2..10_002 {
            let (handle, name) = (Handle::new(ServerId(0), counter), Bytes::from(format!("a \"{counter}\"")));
            let inode = Inode::new(FileKind::File, 0o640, 1, 2, layout, WallTime(0));
            state.apply_change(Change::PutInode { handle, inode });
            state.apply_change(Change::PutEntry { dir: ROOT_HANDLE, name, handle, kind: FileKind::File });
        }
        let sim = Sim::new(1, Profile::instant());
        let node = sim.add_node(NodeConfig::server(ServerId(0)));
        sim.start(node, |_| std::future::pending());
        let written = sim.block_on(node, weft_base::SECOND, |rt| async move {
            write(rt.disk(), |cursor, changes| state.snapshot_from(cursor, changes)).await
        });
        assert_eq!(written.expect("a second is enough"), Ok(()));
        let text = sim.disk_content(node, DUMP_NAME).expect("a file").to_bytes();
        let text = std::str::from_utf8(&text).expect("text");
        assert_eq!(text.lines().next(), Some("h0.1 directory mode 755 owner 7:8 size 0 links 1 changed 1.500"));
        assert_eq!(text.lines().count(), 1 + 2 * 10_000, "over all slices");
        assert!(
            text.contains("h0.1 \"a \\\"77\\\"\" -> h0.77 file\n") && text.contains("h0.77 file mode 640 owner 1:2 "),
            "{}",
            &text[..300]
        );
    }
}
