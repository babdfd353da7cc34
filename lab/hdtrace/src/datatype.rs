//! MPI datatypes as the project file lists them: for each rank and thread, types by number; a type
//! may name others by their numbers.

use crate::error::Error;
use crate::xml::{Element, Lookup};

/// The datatypes that one thread of one rank used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankTypes {
    /// Global rank.
    pub rank: u32,
    /// Thread of the rank, as the topology names it.
    pub thread: String,
    /// Number, name and structure of each type, in the order of the file: a type stands after those
    /// it is made of.
    pub types: Vec<(i64, String, Datatype)>,
}

/// The structure of a datatype. Types inside are named by their numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Datatype {
    /// A type that MPI predefines; its name is that of the entry, such as `MPI_DOUBLE`.
    Named,
    /// `count` elements without gaps.
    Contiguous {
        /// Number of elements.
        count: u64,
        /// Type of an element.
        old: i64,
    },
    /// `count` blocks of `block_length` elements, whose starts are `stride` elements apart.
    Vector {
        /// Number of blocks.
        count: u64,
        /// Elements of a block.
        block_length: u64,
        /// Elements from the start of a block to the start of the next.
        stride: i64,
        /// Type of an element.
        old: i64,
    },
    /// Blocks of different types at given places.
    Struct(Vec<StructPart>),
    /// A part of an array of several dimensions.
    Subarray {
        /// True if the last dimension is contiguous (C), false if the first is (Fortran).
        row_major: bool,
        /// Dimensions, outermost first as C counts them.
        dimensions: Vec<Dimension>,
        /// Type of an element.
        old: i64,
    },
    /// A combiner that this crate does not interpret (HINDEXED, DARRAY, ...), as it stands in the
    /// file.
    Other(Element),
}

/// One block of a structured datatype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StructPart {
    /// Type of an element.
    pub old: i64,
    /// Byte at which the block begins, counted from the start of the type.
    pub displacement: i64,
    /// Elements of the block.
    pub block_length: u64,
}

/// One dimension of a subarray, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimension {
    /// Extent of the whole array.
    pub size: u64,
    /// Extent of the part.
    pub part: u64,
    /// First element of the part.
    pub start: u64,
}

impl RankTypes {
    /// The type of that number; the last one if the file has several.
    pub fn get(&self, id: i64) -> Option<&Datatype> {
        self.entry(id).map(|(_, _, datatype)| datatype)
    }

    /// Name of the type of that number.
    pub fn name(&self, id: i64) -> Option<&str> {
        self.entry(id).map(|(_, name, _)| name.as_str())
    }

    fn entry(&self, id: i64) -> Option<&(i64, String, Datatype)> {
        self.types.iter().rev().find(|(number, _, _)| *number == id)
    }
}

/// Reads `<Rank name= thread=>` with its types; types that are not sound are left out and the first
/// fault is kept in `fault`.
pub(crate) fn read_rank_types(lookup: Lookup<'_>, element: &Element, fault: &mut Option<Error>) -> Result<RankTypes, Error> {
    let rank = lookup.number(element, "name", "the number of a rank")?;
    let thread = element.attribute("thread").unwrap_or("0").to_owned();
    let mut types = Vec::new();
    for child in &element.children {
        match read_type(lookup, child) {
            Ok(entry) => types.push(entry),
            Err(error) => {
                fault.get_or_insert(error);
            }
        }
    }
    Ok(RankTypes { rank, thread, types })
}

fn read_type(lookup: Lookup<'_>, element: &Element) -> Result<(i64, String, Datatype), Error> {
    const TYPE: &str = "the number of a datatype";
    lookup.whole(element)?;
    let id = lookup.number(element, "id", TYPE)?;
    let name = element.attribute("name").unwrap_or("").to_owned();
    let count = |key| lookup.number::<u64>(element, key, "a count");
    let datatype = match element.name.as_str() {
        "NAMED" => Datatype::Named,
        "CONTIGUOUS" => Datatype::Contiguous { count: count("count")?, old: lookup.number(element, "oldType", TYPE)? },
        "VECTOR" => Datatype::Vector {
            count: count("count")?,
            block_length: count("blocklength")?,
            stride: lookup.number(element, "stride", "a number of elements")?,
            old: lookup.number(element, "oldType", TYPE)?,
        },
        "STRUCT" | "STRUCT_INTEGER" => Datatype::Struct(struct_parts(lookup, element)?),
        "SUBARRAY" => Datatype::Subarray {
            row_major: row_major(lookup, element)?,
            dimensions: dimensions(lookup, element)?,
            old: lookup.number(element, "oldType", TYPE)?,
        },
        _ => Datatype::Other(element.clone()),
    };
    Ok((id, name, datatype))
}

fn struct_parts(lookup: Lookup<'_>, element: &Element) -> Result<Vec<StructPart>, Error> {
    let part = |child: &Element| {
        Ok(StructPart {
            old: lookup.number(child, "id", "the number of a datatype")?,
            displacement: lookup.number(child, "displacement", "a number of bytes")?,
            block_length: lookup.number(child, "blocklen", "a count")?,
        })
    };
    element.children_named("Type").map(part).collect()
}

fn dimensions(lookup: Lookup<'_>, element: &Element) -> Result<Vec<Dimension>, Error> {
    let dimension = |child: &Element| {
        let dimension = Dimension {
            size: lookup.number(child, "size", "a count")?,
            part: lookup.number(child, "subsize", "a count")?,
            start: lookup.number(child, "start", "an index")?,
        };
        let fits = dimension.start.checked_add(dimension.part).is_some_and(|end| end <= dimension.size);
        let too_far = || lookup.wrong(child, "attribute subsize", &dimension.part.to_string(), "a part inside the array");
        fits.then_some(dimension).ok_or_else(too_far)
    };
    let dimensions: Vec<Dimension> = element.children_named("Dimension").map(dimension).collect::<Result<_, Error>>()?;
    let said: usize = lookup.number(element, "ndims", "a count")?;
    if said != dimensions.len() {
        return Err(lookup.wrong(element, "attribute ndims", &said.to_string(), "the number of <Dimension> elements"));
    }
    Ok(dimensions)
}

/// The order is a name, or MPICH's number for it.
fn row_major(lookup: Lookup<'_>, element: &Element) -> Result<bool, Error> {
    match lookup.required(element, "order")? {
        "C" | "MPI_ORDER_C" | "56" => Ok(true),
        "FORTRAN" | "MPI_ORDER_FORTRAN" | "57" => Ok(false),
        other => Err(lookup.wrong(element, "attribute order", other, "C or FORTRAN")),
    }
}

/// `<Rank>` with its types.
pub(crate) fn rank_types_element(types: &RankTypes) -> Element {
    let mut rank = Element::new("Rank").with("name", types.rank).with("thread", &types.thread);
    rank.children = types.types.iter().map(|(id, name, datatype)| type_element(*id, name, datatype)).collect();
    rank
}

fn type_element(id: i64, name: &str, datatype: &Datatype) -> Element {
    let start = |combiner| Element::new(combiner).with("id", id).with("name", name);
    match datatype {
        Datatype::Named => start("NAMED"),
        Datatype::Contiguous { count, old } => start("CONTIGUOUS").with("count", count).with("oldType", old),
        Datatype::Vector { count, block_length, stride, old } => {
            let vector = start("VECTOR").with("count", count).with("blocklength", block_length);
            vector.with("stride", stride).with("oldType", old)
        }
        Datatype::Struct(parts) => {
            let mut element = start("STRUCT").with("count", parts.len());
            let part = |part: &StructPart| {
                Element::new("Type").with("id", part.old).with("displacement", part.displacement).with("blocklen", part.block_length)
            };
            element.children = parts.iter().map(part).collect();
            element
        }
        Datatype::Subarray { row_major, dimensions, old } => {
            let order = if *row_major { "C" } else { "FORTRAN" };
            let mut element = start("SUBARRAY").with("ndims", dimensions.len()).with("order", order).with("oldType", old);
            let dimension = |d: &Dimension| Element::new("Dimension").with("size", d.size).with("subsize", d.part).with("start", d.start);
            element.children = dimensions.iter().map(dimension).collect();
            element
        }
        Datatype::Other(element) => element.clone(),
    }
}
