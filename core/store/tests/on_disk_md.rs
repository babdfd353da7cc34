//! `docs/on-disk.md` shows bytes; these tests compare them with what the code writes.

use std::fmt::Write;
use weft_base::{DataTime, FsId, Handle, ServerId, WallTime};
use weft_store::Lsn;
use weft_store::checkpoint::{CheckpointHeader, CheckpointReader, CheckpointWriter};
use weft_store::journal::{EndReason, FrameBuilder, JournalWriter, SegmentHeader, scan};
use weft_store::objects::{ContainerHeader, ExtentPut, ObjectKey, ObjectRecord};

const DOCUMENT: &str = include_str!("../../../docs/on-disk.md");
const FS: FsId = FsId(0x1122_3344_5566_7788);
const SERVER: ServerId = ServerId(32769);
const SEGMENT: SegmentHeader = SegmentHeader { fs_id: FS, server_id: SERVER, salt: 0xa1b2_c3d4, sequence: 5, first_lsn: Lsn(1000) };

/// The block of bytes behind the mark `name` in the document.
fn shown(name: &str) -> &'static str {
    let mark = format!("<!-- golden: {name} -->\n```\n");
    let (_, behind) = DOCUMENT.split_once(&mark).unwrap_or_else(|| panic!("docs/on-disk.md has no bytes named {name}"));
    behind.split_once("```").expect("the block ends").0
}

/// Sixteen bytes a line with their decimal offset; lines of zeros are left out, as in the document.
fn dump(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (i, line) in bytes.chunks(16).enumerate().filter(|(_, line)| line.iter().any(|byte| *byte != 0)) {
        write!(out, "{:04}", i * 16).expect("a string takes everything");
        for (at, byte) in line.iter().enumerate() {
            let gap = if at % 8 == 0 { "  " } else { " " };
            write!(out, "{gap}{byte:02x}").expect("a string takes everything");
        }
        out.push('\n');
    }
    out
}

fn check(name: &str, bytes: &[u8]) {
    let want = dump(bytes);
    assert!(shown(name) == want, "docs/on-disk.md shows other bytes for {name}; the code writes\n{want}");
}

#[test]
fn on_disk_md_segment_header() {
    let block = SEGMENT.encode();
    assert_eq!(block.len(), 4096);
    check("segment-header", &block);
}

#[test]
fn on_disk_md_frame() {
    let mut builder = FrameBuilder::new(SEGMENT.first_lsn, 0);
    builder.push(b"weft");
    builder.push(b"");
    let frame = builder.finish(&SEGMENT, Lsn(900));
    check("frame", &frame);
    let image = [&SEGMENT.encode()[..], &frame].concat();
    assert_eq!(scan(&image).expect("a segment").end, EndReason::Clean);
}

#[test]
fn on_disk_md_mark() {
    let mut writer = JournalWriter::start(SegmentHeader { first_lsn: Lsn(1002), ..SEGMENT }, 1 << 20);
    let (_, mark) = writer.mark(Lsn(1001)).expect("an empty segment has room");
    check("mark", &mark);
    writer.push(b"over it");
    let frame = writer.seal(Lsn(1001)).expect("a record waits");
    assert!(frame.bytes.len() > mark.len() && frame.offset == 4096, "the next frame covers the mark");
}

#[test]
fn on_disk_md_checkpoint() {
    let header = CheckpointHeader { fs_id: FS, server_id: SERVER, generation: 7, start_lsn: Lsn(1000) };
    let mut writer = CheckpointWriter::new(header);
    assert!(writer.push(b"weft").is_none());
    let bytes = writer.finish(Lsn(1200));
    check("checkpoint", &bytes);
    let mut reader = CheckpointReader::new();
    reader.push(&bytes);
    while reader.next_chunk().expect("whole").is_some() {}
    assert_eq!(reader.finish().expect("whole").header, header);
}

#[test]
fn on_disk_md_container_header() {
    check("container-header", &ContainerHeader { fs_id: FS, server_id: SERVER }.encode());
}

#[test]
fn on_disk_md_object_records() {
    let key = ObjectKey { handle: Handle(0x0001_0000_0000_1234), index: 3 };
    let mtime = DataTime { epoch: 4, at: WallTime(0x1799_9999_0000_0001) };
    let extents = vec![
        ExtentPut { local_offset: 5, disk_offset: 9 * 4096 + 5, len: 100 },
        ExtentPut { local_offset: 8192, disk_offset: 300 * 4096, len: 1 << 20 },
    ];
    let records = [
        ObjectRecord::Put { key, size_bytes: 8192 + (1 << 20), mtime, truncate_epoch: 2, extents },
        ObjectRecord::Truncate { key, size_bytes: 77, mtime, truncate_epoch: 3 },
        ObjectRecord::Remove { key },
        ObjectRecord::Punch { key, mtime, local_offset: 4096, len: 8192 },
    ];
    let mut want = String::new();
    for record in &records {
        want.push_str(&dump(&record.to_vec()));
    }
    assert!(shown("object-records") == want, "docs/on-disk.md shows other bytes for object-records; the code writes\n{want}");
}
