//! Datatypes of a traced rank, which name each other by numbers, as trees.

use weft_hdtrace::{Datatype as Listed, Dimension, RankTypes};

use crate::program::{Datatype, StructField};

/// Types nested deeper than this are taken for a circle.
const DEPTH_MAX: u32 = 64;
/// No file is longer, so no type needs to be.
const BYTES_MAX: u128 = 1 << 62;
/// Blocks of data that a type may have: they are listed for every access.
const BLOCKS_MAX: u128 = 1 << 24;

/// The type with that number. The error says in words why it has no counterpart.
pub(super) fn convert(types: &RankTypes, id: i64) -> Result<Datatype, String> {
    tree(types, id, 0).map(|(datatype, _)| datatype)
}

/// What is known of a type without unrolling it.
#[derive(Clone, Copy)]
struct Bounds {
    extent: u128,
    data: u128,
    blocks: u128,
}

impl Bounds {
    /// `count` copies one after the other: without holes they are one block.
    fn copies(self, count: u128) -> Bounds {
        let whole = self.scattered(count);
        if self.extent == self.data { Bounds { blocks: 1, ..whole } } else { whole }
    }

    /// `count` copies with space between them.
    fn scattered(self, count: u128) -> Bounds {
        Bounds {
            extent: self.extent.saturating_mul(count),
            data: self.data.saturating_mul(count),
            blocks: self.blocks.saturating_mul(count),
        }
    }
}

fn tree(types: &RankTypes, id: i64, depth: u32) -> Result<(Datatype, Bounds), String> {
    let Some(listed) = types.get(id) else {
        return Err(format!("the project knows no datatype {id} of rank {}", types.rank));
    };
    if depth > DEPTH_MAX {
        return Err(format!("datatype {id} contains itself"));
    }
    let inner = |old| tree(types, old, depth + 1).map(|(datatype, bounds)| (Box::new(datatype), bounds));
    let (datatype, bounds) = match listed {
        Listed::Named => {
            let bytes = named_bytes(types.name(id).unwrap_or(""))?;
            (Datatype::Named { bytes }, Bounds { extent: u128::from(bytes), data: u128::from(bytes), blocks: 1 })
        }
        Listed::Contiguous { count, old } => {
            let (element, bounds) = inner(*old)?;
            (Datatype::Contiguous { count: *count, element }, bounds.copies(u128::from(*count)))
        }
        Listed::Vector { count, block_length, stride, old } => {
            let stride = u64::try_from(*stride).map_err(|_| format!("datatype {id} runs backwards"))?;
            let (element, bounds) = inner(*old)?;
            let span = small(id, u128::from(*count) * u128::from(stride.max(*block_length)))?;
            let extent = bounds.extent.saturating_mul(span);
            let blocks = bounds.copies(u128::from(*block_length)).scattered(u128::from(*count));
            (Datatype::Vector { count: *count, block_length: *block_length, stride, element }, Bounds { extent, ..blocks })
        }
        Listed::Struct(parts) => {
            let mut fields = Vec::new();
            let mut whole = Bounds { extent: 0, data: 0, blocks: 0 };
            for part in parts {
                let displacement = u64::try_from(part.displacement).map_err(|_| format!("datatype {id} has a part before its start"))?;
                let (element, bounds) = inner(part.old)?;
                let bounds = bounds.copies(u128::from(part.block_length));
                whole.extent = whole.extent.max(bounds.extent.saturating_add(u128::from(displacement)));
                whole.data = whole.data.saturating_add(bounds.data);
                whole.blocks = whole.blocks.saturating_add(bounds.blocks);
                fields.push(StructField { displacement, count: part.block_length, element: *element });
            }
            (Datatype::Struct { fields }, whole)
        }
        Listed::Subarray { row_major, dimensions, old } => {
            let (element, bounds) = inner(*old)?;
            let mut dimensions = dimensions.clone();
            if !row_major {
                dimensions.reverse();
            }
            let product = |of: fn(&Dimension) -> u64, of_these: &[Dimension]| {
                of_these.iter().fold(1, |product: u128, dimension| product.saturating_mul(u128::from(of(dimension))))
            };
            let extent = bounds.extent.saturating_mul(small(id, product(|d| d.size, &dimensions))?);
            let (rows, last) = dimensions.split_at(dimensions.len().saturating_sub(1));
            let blocks = bounds.copies(product(|d| d.part, last)).scattered(product(|d| d.part, rows));
            let list = |of: fn(&Dimension) -> u64| dimensions.iter().map(of).collect();
            let (sizes, subsizes, starts) = (list(|d| d.size), list(|d| d.part), list(|d| d.start));
            (Datatype::Subarray { sizes, subsizes, starts, element }, Bounds { extent, ..blocks })
        }
        Listed::Other(element) => return Err(format!("datatype {id} is made by {}, which is not modelled", element.name)),
    };
    if bounds.extent.max(bounds.data) > BYTES_MAX || bounds.blocks > BLOCKS_MAX {
        return Err(format!("datatype {id} is too large"));
    }
    Ok((datatype, bounds))
}

/// Elements of a type, even of such without bytes: they are multiplied.
fn small(id: i64, elements: u128) -> Result<u128, String> {
    if elements <= BYTES_MAX { Ok(elements) } else { Err(format!("datatype {id} is too large")) }
}

/// Bytes of the types that MPI predefines, as the 32-bit and 64-bit Linux machines of 2009 had them
/// where they agree. The markers LB and UB have no data; a structure reaches as far as its UB.
fn named_bytes(name: &str) -> Result<u64, String> {
    Ok(match name.strip_prefix("MPI_").unwrap_or(name) {
        "LB" | "UB" => 0,
        "CHAR" | "SIGNED_CHAR" | "UNSIGNED_CHAR" | "BYTE" | "PACKED" | "CHARACTER" | "INTEGER1" | "INT8_T" | "UINT8_T" | "C_BOOL" => 1,
        "SHORT" | "UNSIGNED_SHORT" | "INTEGER2" | "INT16_T" | "UINT16_T" => 2,
        "INT" | "UNSIGNED" | "FLOAT" | "INTEGER" | "REAL" | "LOGICAL" | "INTEGER4" | "REAL4" | "WCHAR" | "INT32_T" | "UINT32_T" => 4,
        "DOUBLE" | "LONG_LONG" | "LONG_LONG_INT" | "UNSIGNED_LONG_LONG" | "DOUBLE_PRECISION" | "COMPLEX" | "INTEGER8" | "REAL8"
        | "INT64_T" | "UINT64_T" | "2INT" | "2INTEGER" | "FLOAT_INT" | "2REAL" => 8,
        "DOUBLE_COMPLEX" | "2DOUBLE_PRECISION" => 16,
        _ => return Err(format!("the size of {name:?} is not known")),
    })
}
