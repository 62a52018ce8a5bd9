//! Where things are on our LTFS volumes (docs/formats/ltfs.md): partitions, and the block of the first index
//! (0 is VOL1, 1 a filemark, 2 the label XML, 3 and 4 filemarks).

/// Partition of the medium that holds the index ("a").
pub(crate) const INDEX_PARTITION: u8 = 0;
/// Partition of the medium that holds the data ("b").
pub(crate) const DATA_PARTITION: u8 = 1;
/// The filemark before the first index of either partition. The index partition is rewritten from here.
pub(crate) const FIRST_INDEX_MARK: u64 = 4;
/// Largest record that is accepted as VOL1 or label XML (bytes): with the sum of logical block protection 1 MiB.
pub(crate) const MAX_LABEL_RECORD: usize = (1 << 20) - 4;
