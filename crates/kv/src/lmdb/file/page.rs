//! One page of an LMDB data file (data version 1, 64 bit), read without trusting a byte of it.

/// Bytes of a page's header.
pub(super) const HEADER: usize = 16;
/// Bytes of a node's header.
const NODE: usize = 8;

const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
const OVERFLOW: u16 = 0x04;
pub(super) const META: u16 = 0x08;
/// The node's data is the number of an overflow page.
const BIG: u16 = 0x01;

/// Why a page is damaged.
pub(super) type Fault = String;

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// What a page of a tree must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Branch,
    Leaf,
}

/// Where a node's data is.
pub(super) enum Data<'a> {
    Here(&'a [u8]),
    /// In overflow pages from this one on, so many bytes.
    Overflow(u64, usize),
}

/// A page of a tree. Its bounds have been checked: every pointer and length lies inside.
pub(super) struct TreePage<'a> {
    bytes: &'a [u8],
    kind: Kind,
    len: usize,
}

impl<'a> TreePage<'a> {
    /// Looks at page `number`, which must be of `kind`. Its nodes must be inside and fill its upper part exactly.
    pub(super) fn new(bytes: &'a [u8], number: u64, kind: Kind) -> Result<Self, Fault> {
        check_number(bytes, number)?;
        let flags = u16_at(bytes, 10);
        let want = if kind == Kind::Branch { BRANCH } else { LEAF };
        if flags != want || u16_at(bytes, 8) != 0 {
            return Err(format!("its flags are {flags:#x}, those of a {kind:?} are {want:#x}"));
        }
        let (lower, upper) = (usize::from(u16_at(bytes, 12)), usize::from(u16_at(bytes, 14)));
        if lower < HEADER || !lower.is_multiple_of(2) || lower > upper || upper > bytes.len() {
            return Err(format!("its bounds {lower} and {upper} are impossible"));
        }
        let page = Self { bytes, kind, len: (lower - HEADER) / 2 };
        let mut filled = 0;
        for n in 0..page.len {
            let at = page.offset(n);
            if at < upper || at + NODE > bytes.len() || at + page.node_len(at) > bytes.len() {
                return Err(format!("node {n} lies outside"));
            }
            filled += page.node_len(at).next_multiple_of(2);
        }
        if filled != bytes.len() - upper {
            return Err(format!("its nodes fill {filled} bytes of {}", bytes.len() - upper));
        }
        Ok(page)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn offset(&self, n: usize) -> usize {
        usize::from(u16_at(self.bytes, HEADER + 2 * n))
    }

    /// Length of the node at offset `at`, whose header lies inside.
    fn node_len(&self, at: usize) -> usize {
        let key = usize::from(u16_at(self.bytes, at + 6));
        let data = match self.kind {
            Kind::Branch => 0,
            Kind::Leaf if u16_at(self.bytes, at + 4) & BIG != 0 => 8,
            Kind::Leaf => u32_at(self.bytes, at) as usize,
        };
        NODE + key + data
    }

    /// Key of node `n`; of the first one of a branch without meaning.
    pub(super) fn key(&self, n: usize) -> &'a [u8] {
        let at = self.offset(n);
        &self.bytes[at + NODE..][..usize::from(u16_at(self.bytes, at + 6))]
    }

    /// Page below node `n` of a branch.
    pub(super) fn child(&self, n: usize) -> u64 {
        let at = self.offset(n);
        u64::from(u32_at(self.bytes, at)) | u64::from(u16_at(self.bytes, at + 4)) << 32
    }

    /// Data of node `n` of a leaf.
    pub(super) fn data(&self, n: usize) -> Result<Data<'a>, Fault> {
        let at = self.offset(n);
        let (len, flags) = (u32_at(self.bytes, at) as usize, u16_at(self.bytes, at + 4));
        let from = at + NODE + self.key(n).len();
        match flags {
            0 => Ok(Data::Here(&self.bytes[from..from + len])),
            BIG => Ok(Data::Overflow(u64_at(self.bytes, from), len)),
            _ => Err(format!("node {n} has unknown flags {flags:#x}")),
        }
    }
}

fn check_number(bytes: &[u8], number: u64) -> Result<(), Fault> {
    match u64_at(bytes, 0) {
        found if found == number => Ok(()),
        found => Err(format!("it says that it is page {found}")),
    }
}

/// Number of overflow pages for `len` bytes of data.
pub(super) fn overflow_pages(len: usize, page_size: usize) -> u64 {
    (HEADER + len).div_ceil(page_size) as u64
}

/// The data in the overflow pages `bytes`, which begin with page `number`.
pub(super) fn overflow_data(bytes: &[u8], number: u64, len: usize, page_size: usize) -> Result<&[u8], Fault> {
    check_number(bytes, number)?;
    let (flags, pages) = (u16_at(bytes, 10), u32_at(bytes, 12));
    if flags != OVERFLOW || u64::from(pages) != overflow_pages(len, page_size) {
        return Err(format!("flags {flags:#x} and {pages} pages are not those of a value of {len} bytes"));
    }
    Ok(&bytes[HEADER..HEADER + len])
}
