//! MPI datatypes as far as file access needs them: which bytes of a stretch of file are data and
//! which are holes, and file views, which repeat a datatype from a displacement on. (Message
//! Passing Interface 2.2, chapters 4 and 13.3.)

use super::{Extent, push_merged};

/// A layout of bytes in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Datatype {
    /// Elementary type of this many bytes.
    Named {
        /// Bytes.
        bytes: u64,
    },
    /// Copies one after the other.
    Contiguous {
        /// Copies.
        count: u64,
        /// Of what.
        element: Box<Datatype>,
    },
    /// Equal blocks at a regular distance.
    Vector {
        /// Blocks.
        count: u64,
        /// Elements in each block.
        block_length: u64,
        /// Distance between the starts of blocks, in elements.
        stride: u64,
        /// Of what.
        element: Box<Datatype>,
    },
    /// Blocks of different types at given places.
    Struct {
        /// The blocks, in the order of the data.
        fields: Vec<StructField>,
    },
    /// A box out of an array, row by row (the last dimension is contiguous).
    Subarray {
        /// Elements of the array in each dimension.
        sizes: Vec<u64>,
        /// Elements of the box in each dimension.
        subsizes: Vec<u64>,
        /// First element of the box in each dimension.
        starts: Vec<u64>,
        /// Of what.
        element: Box<Datatype>,
    },
}

/// One block of a [`Datatype::Struct`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StructField {
    /// Place of the first element, in bytes from the start of the structure.
    pub displacement: u64,
    /// Elements.
    pub count: u64,
    /// Of what.
    pub element: Datatype,
}

impl Datatype {
    /// Distance in bytes between two copies that follow each other: data and holes from the first
    /// byte to the last.
    pub fn extent_bytes(&self) -> u64 {
        match self {
            Datatype::Named { bytes } => *bytes,
            Datatype::Contiguous { count, element } => count * element.extent_bytes(),
            Datatype::Vector { count: 0, .. } => 0,
            Datatype::Vector { count, block_length, stride, element } => ((count - 1) * stride + block_length) * element.extent_bytes(),
            Datatype::Struct { fields } => {
                fields.iter().map(|field| field.displacement + field.count * field.element.extent_bytes()).max().unwrap_or(0)
            }
            Datatype::Subarray { sizes, element, .. } => sizes.iter().product::<u64>() * element.extent_bytes(),
        }
    }

    /// Bytes of data.
    pub fn data_bytes(&self) -> u64 {
        match self {
            Datatype::Named { bytes } => *bytes,
            Datatype::Contiguous { count, element } => count * element.data_bytes(),
            Datatype::Vector { count, block_length, element, .. } => count * block_length * element.data_bytes(),
            Datatype::Struct { fields } => fields.iter().map(|field| field.count * field.element.data_bytes()).sum(),
            Datatype::Subarray { subsizes, element, .. } => subsizes.iter().product::<u64>() * element.data_bytes(),
        }
    }

    /// The data of one copy as a list of ranges relative to its start, in the order of the data.
    pub fn blocks(&self) -> Vec<Extent> {
        let mut list = Vec::new();
        self.collect(0, &mut list);
        list
    }

    fn collect(&self, base: u64, list: &mut Vec<Extent>) {
        // However many copies there are of nothing, nobody walks over them: below, each step of a
        // loop adds a block.
        if self.data_bytes() == 0 {
            return;
        }
        match self {
            Datatype::Named { bytes } => push_merged(list, Extent { offset: base, bytes: *bytes }),
            Datatype::Contiguous { count, element } => element.collect_copies(base, *count, list),
            Datatype::Vector { count, block_length, stride, element } => {
                let step = stride * element.extent_bytes();
                for block in 0..*count {
                    element.collect_copies(base + block * step, *block_length, list);
                }
            }
            Datatype::Struct { fields } => {
                for field in fields {
                    field.element.collect_copies(base + field.displacement, field.count, list);
                }
            }
            Datatype::Subarray { sizes, subsizes, starts, element } => collect_box(sizes, subsizes, starts, element, base, list),
        }
    }

    fn collect_copies(&self, base: u64, count: u64, list: &mut Vec<Extent>) {
        let step = self.extent_bytes();
        if step == self.data_bytes() {
            // No holes: one range, whatever the count.
            Datatype::Named { bytes: count * step }.collect(base, list);
            return;
        }
        for copy in 0..count {
            self.collect(base + copy * step, list);
        }
    }
}

fn collect_box(sizes: &[u64], subsizes: &[u64], starts: &[u64], element: &Datatype, base: u64, list: &mut Vec<Extent>) {
    let (Some(&count), Some(&start)) = (subsizes.first(), starts.first()) else {
        element.collect(base, list);
        return;
    };
    let row = sizes[1..].iter().product::<u64>() * element.extent_bytes();
    if sizes.len() == 1 {
        element.collect_copies(base + start * row, count, list);
        return;
    }
    for index in start..start + count {
        collect_box(&sizes[1..], &subsizes[1..], &starts[1..], element, base + index * row, list);
    }
}

/// The bytes of a file that a rank sees: copies of a datatype from a displacement on, without end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileView {
    /// Bytes of the file before the first copy.
    pub displacement: u64,
    /// What is repeated.
    pub filetype: Datatype,
}

impl FileView {
    /// The ranges of the file that hold `bytes` bytes of data from `offset` (counted in data) on. A
    /// view without data shows nothing: the list is empty.
    pub fn map(&self, offset: u64, bytes: u64) -> Vec<Extent> {
        let (data, extent) = (self.filetype.data_bytes(), self.filetype.extent_bytes());
        let mut list = Vec::new();
        if data == 0 || bytes == 0 {
            return list;
        }
        if data == extent {
            list.push(Extent { offset: self.displacement + offset, bytes });
            return list;
        }
        let blocks = self.filetype.blocks();
        let (mut copy, mut skip, mut left) = (offset / data, offset % data, bytes);
        while left > 0 {
            for block in &blocks {
                if skip >= block.bytes {
                    skip -= block.bytes;
                    continue;
                }
                let taken = (block.bytes - skip).min(left);
                push_merged(&mut list, Extent { offset: self.displacement + copy * extent + block.offset + skip, bytes: taken });
                skip = 0;
                left -= taken;
                if left == 0 {
                    break;
                }
            }
            copy += 1;
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(bytes: u64) -> Box<Datatype> {
        Box::new(Datatype::Named { bytes })
    }

    fn extents(list: &[(u64, u64)]) -> Vec<Extent> {
        list.iter().map(|&(offset, bytes)| Extent { offset, bytes }).collect()
    }

    #[test]
    fn a_vector_has_holes_between_its_blocks_and_none_at_its_end() {
        let vector = Datatype::Vector { count: 3, block_length: 2, stride: 5, element: named(4) };
        assert_eq!(vector.data_bytes(), 24);
        assert_eq!(vector.extent_bytes(), 48);
        assert_eq!(vector.blocks(), extents(&[(0, 8), (20, 8), (40, 8)]));
    }

    #[test]
    fn a_subarray_is_rows_of_its_array() {
        let array = Datatype::Subarray { sizes: vec![4, 6], subsizes: vec![2, 3], starts: vec![1, 2], element: named(1) };
        assert_eq!(array.extent_bytes(), 24);
        assert_eq!(array.blocks(), extents(&[(8, 3), (14, 3)]));
        let whole_rows = Datatype::Subarray { sizes: vec![4, 6], subsizes: vec![2, 6], starts: vec![1, 0], element: named(2) };
        assert_eq!(whole_rows.blocks(), extents(&[(12, 24)]));
    }

    #[test]
    fn a_struct_keeps_the_order_of_its_data() {
        let fields = vec![
            StructField { displacement: 8, count: 2, element: Datatype::Named { bytes: 4 } },
            StructField { displacement: 0, count: 1, element: Datatype::Named { bytes: 4 } },
        ];
        let structure = Datatype::Struct { fields };
        assert_eq!(structure.extent_bytes(), 16);
        assert_eq!(structure.blocks(), extents(&[(8, 8), (0, 4)]));
    }

    #[test]
    fn a_view_maps_offsets_of_data_through_its_holes() {
        // The view of rank 1 of 3 with interleaved blocks of 10 bytes.
        let filetype = Datatype::Struct {
            fields: vec![
                StructField { displacement: 10, count: 1, element: Datatype::Named { bytes: 10 } },
                StructField { displacement: 30, count: 0, element: Datatype::Named { bytes: 1 } },
            ],
        };
        let view = FileView { displacement: 100, filetype };
        assert_eq!(view.map(0, 25), extents(&[(110, 10), (140, 10), (170, 5)]));
        assert_eq!(view.map(15, 10), extents(&[(145, 5), (170, 5)]));
        assert_eq!(view.map(15, 0), []);
        let plain = FileView { displacement: 7, filetype: Datatype::Named { bytes: 1 } };
        assert_eq!(plain.map(1000, 5000), extents(&[(1007, 5000)]));
    }
}
