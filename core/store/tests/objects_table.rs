//! The object table by example: where bytes go, what is reserved, what a record costs.

use weft_base::{DataTime, Handle, WallTime};
use weft_store::objects::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const NOW: DataTime = DataTime { epoch: 2, at: WallTime(1_700_000_000_000_000_000) };

fn key(handle: u64) -> ObjectKey {
    ObjectKey { handle: Handle(handle), index: 0 }
}

/// Plans, "writes" and applies; returns the pieces and the record.
fn write(table: &mut ObjectTable, key: ObjectKey, offset: u64, len: u64) -> (Vec<DiskPiece>, Option<ObjectRecord>) {
    let plan = table.plan_write(key, offset, len).expect("space");
    let record = table.record_for(&plan, NOW).expect("nothing came between");
    record.iter().for_each(|record| table.apply(record));
    (plan.pieces, record)
}

fn data(disk_offset: u64, len: u64) -> ReadPiece {
    ReadPiece::Data { disk_offset, len }
}

#[test]
fn a_small_object_takes_one_block() {
    let mut table = ObjectTable::new(MIB);
    let (pieces, record) = write(&mut table, key(1), 0, 3901);
    assert_eq!(pieces, [DiskPiece { disk_offset: 4096, len: 3901 }]);
    assert!(record.expect("a new object").to_vec().len() <= 32);
    assert_eq!(table.usage().mapped_bytes, 4096);
    assert_eq!(table.usage().reserved_bytes, 0);
    let stat = table.stat(key(1)).expect("it exists");
    assert_eq!((stat.size_bytes, stat.allocated_bytes, stat.extent_count, stat.mtime), (3901, 4096, 1, NOW));
    assert_eq!(table.plan_read(key(1), 0, MIB), [data(4096, 3901)]);
    assert_eq!(table.plan_read(key(1), 3901, 1), []);
}

#[test]
fn a_mebibyte_into_a_fresh_object_is_one_extent_and_one_small_record() {
    let mut table = ObjectTable::new(64 * MIB);
    for object in 1..4 {
        let (pieces, record) = write(&mut table, key(object), 0, MIB);
        assert_eq!(pieces.len(), 1);
        let record = record.expect("the object grows");
        assert!(record.to_vec().len() <= 60);
        assert_eq!(table.stat(key(object)).expect("it exists").extent_count, 1);
    }
    assert_eq!(table.usage().reserved_bytes, 0, "a full piece reserves nothing more");
}

#[test]
fn a_stream_of_small_writes_takes_mebibyte_pieces() {
    let mut table = ObjectTable::new(64 * MIB);
    // Two streams at once, in writes that are no multiple of a block.
    for i in 0..400 {
        for object in [1, 2] {
            write(&mut table, key(object), i * 47008, 47008);
        }
    }
    for object in [1, 2] {
        let stat = table.stat(key(object)).expect("it exists");
        assert_eq!(stat.size_bytes, 400 * 47008);
        let pieces = 400 * 47008 / MIB + 10;
        assert!(stat.extent_count as u64 <= pieces, "{} extents", stat.extent_count);
    }
    assert!(table.usage().reserved_bytes < 2 * MIB);
    table.release_idle_reservations(table.plan_count());
    assert_eq!(table.usage().reserved_bytes, 0);
}

#[test]
fn one_stream_alone_is_one_extent() {
    let mut table = ObjectTable::new(64 * MIB);
    (0..500).for_each(|i| drop(write(&mut table, key(1), i * 64 * KIB, 64 * KIB)));
    assert_eq!(table.stat(key(1)).expect("it exists").extent_count, 1);
}

#[test]
fn overwriting_in_place_needs_no_record() {
    let mut table = ObjectTable::new(MIB);
    let (first, _) = write(&mut table, key(1), 0, 10000);
    let (again, record) = write(&mut table, key(1), 5000, 5000);
    assert_eq!(record, None);
    assert_eq!(again, [DiskPiece { disk_offset: first[0].disk_offset + 5000, len: 5000 }]);
    let (_, record) = write(&mut table, key(1), 9000, 1001);
    let Some(ObjectRecord::Put { size_bytes, extents, .. }) = record else { panic!("it grew") };
    assert_eq!(size_bytes, 10001);
    assert_eq!(extents, [ExtentPut { local_offset: 10000, disk_offset: first[0].disk_offset + 10000, len: 1 }], "only what is new");
    table.note_mtime(key(1), DataTime { at: WallTime(NOW.at.0 + 5), ..NOW });
    table.note_mtime(key(1), NOW);
    assert_eq!(table.stat(key(1)).expect("it exists").mtime, DataTime { at: WallTime(NOW.at.0 + 5), ..NOW });
}

#[test]
fn the_first_write_in_place_after_a_time_was_set_has_a_record() {
    let mut table = ObjectTable::new(MIB);
    write(&mut table, key(1), 0, 10000);
    let epoch = table.plan_epoch(key(1), 4).expect("a later epoch");
    table.apply(&epoch);
    let plan = table.plan_write(key(1), 100, 10).expect("space");
    let mtime = DataTime { epoch: 4, ..NOW };
    let record = table.record_for(&plan, mtime).expect("nothing came between").expect("the time must be kept");
    table.apply(&record);
    assert_eq!(table.stat(key(1)).expect("it exists").mtime, mtime);
    assert_eq!(table.record_for(&plan, mtime), Ok(None), "the next one is like any write in place");
}

#[test]
fn holes_share_blocks_with_what_is_written_later() {
    let mut table = ObjectTable::new(MIB);
    write(&mut table, key(1), 5000, 10);
    assert_eq!(table.plan_read(key(1), 0, 100), [ReadPiece::Hole { len: 100 }]);
    assert_eq!(table.plan_read(key(1), 4990, 100), [ReadPiece::Hole { len: 10 }, data(4096 + 904, 10)]);
    write(&mut table, key(1), 4096, 904);
    assert_eq!(table.plan_read(key(1), 4096, 2000), [data(4096, 914)]);
    assert_eq!(table.used_bytes(), 4096, "both lie in one block");
    write(&mut table, key(1), 0, 4096);
    assert_eq!(table.used_bytes(), 8192);
}

#[test]
fn truncation_frees_whole_blocks_and_hides_the_rest() {
    let mut table = ObjectTable::new(MIB);
    write(&mut table, key(1), 0, 20000);
    let cut = table.plan_truncate(key(1), 5000, NOW, 1).expect("small enough").expect("a change");
    table.apply(&cut);
    assert_eq!(table.used_bytes(), 8192);
    assert_eq!(table.usage().quarantined_bytes, 32768 - 8192, "with the reservation");
    let up = table.plan_truncate(key(1), 9000, NOW, 2).expect("small enough").expect("a change");
    table.apply(&up);
    assert_eq!(table.plan_read(key(1), 0, 9999), [data(4096, 5000), ReadPiece::Hole { len: 4000 }]);
    assert_eq!(table.plan_truncate(key(1), 9000, NOW, 2), Ok(None));
    assert_eq!(table.plan_truncate(key(2), 0, NOW, 0), Ok(None));
    assert_eq!(table.plan_truncate(key(2), OBJECT_BYTES_MAX + 1, NOW, 0), Err(ObjectError::TooLarge));
    assert_eq!(table.stat(key(1)).expect("it exists").truncate_epoch, 2);
}

#[test]
fn removed_space_returns_after_its_sync_only() {
    let mut table = ObjectTable::new(MIB);
    write(&mut table, key(1), 0, MIB - 4096);
    let needed_bytes = 4096;
    let full = |table: &mut ObjectTable| table.plan_write(key(2), 0, 1).expect_err("full");
    assert_eq!(full(&mut table), ObjectError::NoSpace { needed_bytes, recoverable_bytes: 0 });
    let reading = table.begin_io();
    let remove = table.plan_remove(key(1)).expect("it exists");
    table.apply(&remove);
    assert_eq!((table.object_count(), table.used_bytes(), table.plan_remove(key(1))), (0, 0, None));
    let recoverable_bytes = MIB - 4096;
    assert_eq!(full(&mut table), ObjectError::NoSpace { needed_bytes, recoverable_bytes });
    let mark = table.quarantine_mark();
    assert_eq!(table.release_quarantine(mark), 0, "a read that began before may still look there");
    table.end_io(reading);
    assert_eq!(table.usage().free_bytes, MIB - 4096);
    write(&mut table, key(2), 0, MIB - 4096);
}

#[test]
fn a_plan_that_lost_its_place_is_stale() {
    let mut table = ObjectTable::new(MIB);
    write(&mut table, key(1), 0, 8192);
    let ticket = table.begin_io();
    let over = table.plan_write(key(1), 4000, 8000).expect("space");
    let remove = table.plan_remove(key(1)).expect("it exists");
    table.apply(&remove);
    assert_eq!(table.record_for(&over, NOW), Err(StalePlan));
    let again = table.plan_write(key(1), 4000, 8000).expect("space");
    assert_ne!(again.pieces, over.pieces, "the old place is in quarantine");
    assert!(table.record_for(&again, NOW).is_ok());
    table.end_io(ticket);
}

#[test]
fn concurrent_writes_of_one_hole_share_its_place() {
    let mut table = ObjectTable::new(MIB);
    let one = table.plan_write(key(1), 0, 5000).expect("space");
    let two = table.plan_write(key(1), 3000, 5000).expect("space");
    // They finish in the other order; together they are one extent of two blocks.
    for plan in [two, one] {
        let record = table.record_for(&plan, NOW).expect("current").expect("new bytes");
        table.apply(&record);
    }
    assert_eq!(table.extents(key(1)), [ExtentPut { local_offset: 0, disk_offset: 4096, len: 8000 }]);
    assert_eq!(table.used_bytes(), 8192);
}

#[test]
fn fragments_are_used_when_nothing_else_is_left() {
    let mut table = ObjectTable::new(17 * 4096);
    (0..16).for_each(|i| drop(write(&mut table, key(i), 0, 4096)));
    for i in (0..16).step_by(2) {
        let record = table.plan_remove(key(i)).expect("it exists");
        table.apply(&record);
    }
    table.release_quarantine(table.quarantine_mark());
    let (pieces, _) = write(&mut table, key(99), 0, 8 * 4096);
    assert_eq!(pieces.len(), 8);
    assert_eq!(table.usage().free_bytes, 0);
}

#[test]
fn checkpoint_slices_hold_everything_in_bounded_pieces() {
    let mut table = ObjectTable::new(64 * MIB);
    // One object of 3000 extents (every second block) among small ones and one without any byte.
    (0..3000).for_each(|i| drop(write(&mut table, key(5), i * 8192, 1)));
    (10..200).for_each(|i| drop(write(&mut table, key(i), 7, 100)));
    let empty = table.plan_truncate(key(3), 12345, NOW, 4).expect("small enough").expect("a change");
    table.apply(&empty);
    for bytes_max in [1, 1000, 10000, usize::MAX] {
        let mut replay = ObjectReplay::new();
        let (mut cursor, mut slices) = (None, 0);
        loop {
            let mut bytes = 0;
            cursor = table.encode_from(cursor, bytes_max, |record| {
                assert!(bytes < bytes_max, "the slice was full");
                assert!(record.len() < 20 << 10);
                bytes += record.len();
                replay.apply(&ObjectRecord::decode(record).expect("just encoded"));
            });
            slices += 1;
            if cursor.is_none() {
                break;
            }
        }
        assert!(slices > 1 || bytes_max == usize::MAX);
        let copy = replay.finish(64 * MIB).expect("consistent");
        assert!(copy.iter().eq(table.iter()));
        for (key, _) in table.iter() {
            assert_eq!(copy.extents(key), table.extents(key));
        }
        assert_eq!(copy.used_bytes(), table.used_bytes());
    }
}

/// Ten writers share an object block by block; within each group of ten the blocks come in some
/// order.
fn interleaved(table: &mut ObjectTable, key: ObjectKey, block: u64, groups: u64) {
    for group in 0..groups {
        (0..10).for_each(|n| drop(write(table, key, (group * 10 + n * 7 % 10) * block, block)));
    }
}

#[test]
fn blocks_in_any_order_lie_in_the_order_of_the_object() {
    let mut table = ObjectTable::new(1 << 40);
    for (object, block) in [(1, 5 * KIB), (2, 50 * KIB), (3, 512 * KIB), (4, 3901)] {
        interleaved(&mut table, key(object), block, 20);
        assert_eq!(table.stat(key(object)).expect("it exists").extent_count, 1, "blocks of {block}");
    }
    // The last block first.
    (0..100u64).rev().for_each(|n| drop(write(&mut table, key(5), n * 5 * KIB, 5 * KIB)));
    assert_eq!(table.stat(key(5)).expect("it exists").extent_count, 1, "backwards within a window");
    // All blocks of one writer, then all of the next.
    (0..10).for_each(|writer| (0..400).for_each(|n| drop(write(&mut table, key(6), (n * 10 + writer) * 5 * KIB, 5 * KIB))));
    assert_eq!(table.stat(key(6)).expect("it exists").extent_count, 1, "writer by writer");
}

#[test]
fn two_objects_that_are_written_out_of_order_at_the_same_time_take_turns_by_windows() {
    let mut table = ObjectTable::new(1 << 40);
    for n in 0..2000u64 {
        let block = n / 10 * 10 + n * 7 % 10;
        [1, 2].into_iter().for_each(|object| drop(write(&mut table, key(object), block * 5 * KIB, 5 * KIB)));
    }
    for object in [1, 2] {
        let stat = table.stat(key(object)).expect("it exists");
        assert_eq!(stat.size_bytes, 2000 * 5 * KIB);
        assert!(stat.extent_count <= 14, "{} extents of {} MiB", stat.extent_count, stat.size_bytes / MIB);
    }
}

#[test]
fn a_window_that_is_given_up_is_found_again_if_nobody_took_it() {
    let mut table = ObjectTable::new(1 << 40);
    (0..100).filter(|n| n % 2 == 0).for_each(|n| drop(write(&mut table, key(1), n * 8 * KIB, 8 * KIB)));
    let mapped = table.usage().mapped_bytes;
    table.release_idle_reservations(table.plan_count());
    let mark = table.quarantine_mark();
    table.release_quarantine(mark);
    assert_eq!((table.usage().reserved_bytes, table.usage().mapped_bytes), (0, mapped));
    (0..99).filter(|n| n % 2 == 1).for_each(|n| drop(write(&mut table, key(1), n * 8 * KIB, 8 * KIB)));
    assert_eq!(table.stat(key(1)).expect("it exists").extent_count, 1);
}

#[test]
fn windows_keep_to_their_limits() {
    let limits = WindowLimits { window_bytes: MIB, object_bytes_max: 8 * MIB, total_bytes_max: 12 * MIB, keep_bytes: 4 * MIB };
    let mut table = ObjectTable::new(64 * MIB);
    table.set_window_limits(limits);
    // Sparse: never filled.
    (1..100).for_each(|n| drop(write(&mut table, key(1), n * 4 * MIB + 12 * KIB, 4 * KIB)));
    assert!(table.usage().reserved_bytes <= 8 * MIB && table.usage().reserved_bytes > 4 * MIB, "{:?}", table.usage());
    assert_eq!(table.usage().mapped_bytes, 99 * 4 * KIB);
    (1..100).for_each(|n| drop(write(&mut table, key(2), n * 4 * MIB, 4 * KIB)));
    assert!(table.usage().reserved_bytes <= 12 * MIB && table.usage().reserved_bytes > 9 * MIB, "{:?}", table.usage());
    // What is kept free is there for those who need it.
    let mut nearly_full = ObjectTable::new(16 * MIB);
    nearly_full.set_window_limits(limits);
    write(&mut nearly_full, key(1), 0, 11 * MIB);
    write(&mut nearly_full, key(2), 12 * KIB, 4 * KIB);
    assert_eq!(nearly_full.usage().reserved_bytes, 0, "no window: {:?}", nearly_full.usage());
    assert!(nearly_full.plan_write(key(3), 0, nearly_full.usage().free_bytes).is_ok());
}

#[test]
fn files_that_grow_at_their_end_take_no_windows() {
    let mut table = ObjectTable::new(1 << 40);
    (0..1000).for_each(|object| drop(write(&mut table, key(object), 0, 3901)));
    assert_eq!(table.usage().reserved_bytes, 0);
    assert_eq!(table.usage().mapped_bytes, 1000 * 4096);
    assert_eq!(table.usage().high_water_bytes, 1001 * 4096);
}
