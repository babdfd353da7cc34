//! Apache Parquet, written by hand (format description in the repository apache/parquet-format):
//! row groups of [`GROUP_ROWS`] rows, one page for each column in each of them, plain encoding
//! compressed with gzip, every column optional. Metadata is in Thrift's compact protocol. The crate
//! that does it all has 38 others below it; these are the two hundred lines of it that one flat
//! table needs.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::rows::{Cell, Table, Type};
use crate::source::Source;

/// Rows that are held in memory.
const GROUP_ROWS: usize = 65_536;
const MAGIC: &[u8] = b"PAR1";

// Numbers of the format's enumerations.
const INT64: i64 = 2;
const BYTE_ARRAY: i64 = 6;
const UTF8: i64 = 0;
const UINT_64: i64 = 14;
const OPTIONAL: i64 = 1;
const PLAIN: i64 = 0;
const RLE: i64 = 3;
const GZIP: i64 = 2;
const DATA_PAGE: i64 = 0;

/// Writes everything that was chosen; says what it was.
///
/// # Errors
/// Of the writer.
pub fn write(source: &Source, out: &mut dyn Write) -> io::Result<String> {
    let table = Table::new(source);
    let mut file = Counted { out, at: 0 };
    file.put(MAGIC)?;
    let mut groups = Vec::new();
    for chunk in source.chosen.chunks(GROUP_ROWS) {
        let rows: Vec<Vec<Cell>> = chunk.iter().map(|position| table.row(source, source.event(*position))).collect();
        groups.push(row_group(&table, &rows, &mut file)?);
    }
    let footer = footer(&table, source.chosen.len(), &groups);
    file.put(&footer)?;
    file.put(&(footer.len() as u32).to_le_bytes())?;
    file.put(MAGIC)?;
    Ok(format!("{} rows of {} columns", source.chosen.len(), table.columns().len()))
}

struct Counted<'a> {
    out: &'a mut dyn Write,
    at: u64,
}

impl Counted<'_> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}

/// Where a column of a row group is.
struct Chunk {
    offset: u64,
    values: usize,
    plain_bytes: u64,
    stored_bytes: u64,
}

struct Group {
    rows: usize,
    chunks: Vec<Chunk>,
}

fn row_group(table: &Table, rows: &[Vec<Cell>], file: &mut Counted<'_>) -> io::Result<Group> {
    let mut chunks = Vec::new();
    for column in 0..table.columns().len() {
        let plain = page(rows.iter().map(|row| &row[column]));
        let mut compressor = GzEncoder::new(Vec::new(), Compression::default());
        compressor.write_all(&plain)?;
        let stored = compressor.finish()?;
        let header = page_header(plain.len(), stored.len(), rows.len());
        let header_bytes = header.len() as u64;
        chunks.push(Chunk {
            offset: file.at,
            values: rows.len(),
            plain_bytes: plain.len() as u64 + header_bytes,
            stored_bytes: stored.len() as u64 + header_bytes,
        });
        file.put(&header)?;
        file.put(&stored)?;
    }
    Ok(Group { rows: rows.len(), chunks })
}

/// A data page: which values are there (runs of 1 and 0), then those that are.
fn page<'a>(cells: impl Iterator<Item = &'a Cell> + Clone) -> Vec<u8> {
    let mut levels = Vec::new();
    let mut run: (bool, u64) = (false, 0);
    for is_there in cells.clone().map(|cell| *cell != Cell::Empty) {
        if is_there != run.0 {
            push_run(&mut levels, run);
            run = (is_there, 0);
        }
        run.1 += 1;
    }
    push_run(&mut levels, run);
    let mut page = (levels.len() as u32).to_le_bytes().to_vec();
    page.extend_from_slice(&levels);
    for cell in cells {
        match cell {
            Cell::Empty => {}
            Cell::Number(number) => page.extend_from_slice(&number.to_le_bytes()),
            Cell::Text(text) => {
                page.extend_from_slice(&(text.len() as u32).to_le_bytes());
                page.extend_from_slice(text.as_bytes());
            }
        }
    }
    page
}

/// A run of the hybrid encoding: its length shifted by one, and the value in one byte.
fn push_run(levels: &mut Vec<u8>, (is_there, length): (bool, u64)) {
    if length > 0 {
        push_varint(levels, length << 1);
        levels.push(u8::from(is_there));
    }
}

fn page_header(plain_bytes: usize, stored_bytes: usize, values: usize) -> Vec<u8> {
    let mut header = Struct::default();
    header.i32(1, DATA_PAGE);
    header.i32(2, plain_bytes as i64);
    header.i32(3, stored_bytes as i64);
    let mut data = Struct::default();
    data.i32(1, values as i64);
    data.i32(2, PLAIN);
    data.i32(3, RLE);
    data.i32(4, RLE);
    header.structure(5, data);
    header.end()
}

fn footer(table: &Table, rows: usize, groups: &[Group]) -> Vec<u8> {
    let mut schema = Vec::new();
    let mut root = Struct::default();
    root.text(4, "records");
    root.i32(5, table.columns().len() as i64);
    schema.push(root.end());
    for (name, kind) in table.columns() {
        let mut column = Struct::default();
        column.i32(1, physical(*kind));
        column.i32(3, OPTIONAL);
        column.text(4, name);
        column.i32(6, if *kind == Type::Text { UTF8 } else { UINT_64 });
        schema.push(column.end());
    }
    let groups = groups.iter().map(|group| {
        let chunks = group.chunks.iter().zip(table.columns()).map(|(chunk, (name, kind))| {
            let mut meta = Struct::default();
            meta.i32(1, physical(*kind));
            meta.list(2, I32, [PLAIN, RLE].map(zigzag));
            meta.list(3, BINARY, [binary(name)]);
            meta.i32(4, GZIP);
            meta.i64(5, chunk.values as i64);
            meta.i64(6, chunk.plain_bytes as i64);
            meta.i64(7, chunk.stored_bytes as i64);
            meta.i64(9, chunk.offset as i64);
            let mut column = Struct::default();
            column.i64(2, chunk.offset as i64);
            column.structure(3, meta);
            column.end()
        });
        let mut one = Struct::default();
        one.list(1, STRUCT, chunks);
        one.i64(2, group.chunks.iter().map(|chunk| chunk.plain_bytes as i64).sum());
        one.i64(3, group.rows as i64);
        one.end()
    });
    let mut file = Struct::default();
    file.i32(1, 1);
    file.list(2, STRUCT, schema);
    file.i64(3, rows as i64);
    file.list(4, STRUCT, groups);
    file.text(6, concat!("weft ", env!("CARGO_PKG_VERSION")));
    file.end()
}

fn physical(kind: Type) -> i64 {
    if kind == Type::Text { BYTE_ARRAY } else { INT64 }
}

// Thrift's compact protocol.
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// A structure whose fields come in the order of their numbers.
#[derive(Default)]
struct Struct {
    bytes: Vec<u8>,
    last: u8,
}

impl Struct {
    fn i32(&mut self, field: u8, value: i64) {
        self.field(field, I32);
        self.bytes.extend(zigzag(value));
    }
    fn i64(&mut self, field: u8, value: i64) {
        self.field(field, I64);
        self.bytes.extend(zigzag(value));
    }
    fn text(&mut self, field: u8, text: &str) {
        self.field(field, BINARY);
        self.bytes.extend(binary(text));
    }
    fn structure(&mut self, field: u8, inner: Struct) {
        self.field(field, STRUCT);
        self.bytes.extend(inner.end());
    }
    fn list(&mut self, field: u8, kind: u8, elements: impl IntoIterator<Item = Vec<u8>>) {
        let elements: Vec<Vec<u8>> = elements.into_iter().collect();
        self.field(field, LIST);
        match elements.len() {
            few @ 0..15 => self.bytes.push((few as u8) << 4 | kind),
            many => {
                self.bytes.push(0xF0 | kind);
                push_varint(&mut self.bytes, many as u64);
            }
        }
        self.bytes.extend(elements.concat());
    }
    fn field(&mut self, field: u8, kind: u8) {
        self.bytes.push((field - self.last) << 4 | kind);
        self.last = field;
    }
    fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

fn binary(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_varint(&mut bytes, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

fn zigzag(value: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_varint(&mut bytes, ((value << 1) ^ (value >> 63)) as u64);
    bytes
}

fn push_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}
