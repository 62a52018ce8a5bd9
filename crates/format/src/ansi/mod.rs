//! ANSI X3.27 labels (ISO 1001, ECMA-13): how a volume without partitions says whose it is and where its sections begin
//! and end. Every label is one record of 80 ASCII bytes. What lies between them is a tar archive ([`crate::tar`]); see
//! `docs/formats/ansi-tar.md`.

mod card;
pub mod section;
pub mod volume;

pub use section::{Ending, SectionLabel, Trailer};
pub use volume::AnsiLabel;

/// Length of each label (bytes).
pub const LENGTH: usize = 80;
/// Length of a logical record in the data of a section (bytes): a block of tar.
pub const RECORD_LENGTH: u32 = 512;
/// Labels before the data of a section: HDR1, HDR2, UHL1, UHL2.
pub const SECTION_LABELS: usize = 4;

/// Why labels could not be understood or made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnsiError {
    /// Nothing is written there.
    #[error("blank: no label")]
    Blank,
    /// Something that this program did not write.
    #[error("not a volume of ours: it begins with {what}")]
    Foreign {
        /// What was seen.
        what: String,
    },
    /// A label of ours with something wrong in it.
    #[error("label {label} is damaged: {what}")]
    Damaged {
        /// Which label, e.g. `UHL1`.
        label: String,
        /// What is wrong.
        what: String,
    },
    /// A value that does not fit into its field.
    #[error("{field} {value:?} cannot be put into a label: {rule}")]
    Unfit {
        /// The field.
        field: &'static str,
        /// The value refused.
        value: String,
        /// What it must be.
        rule: &'static str,
    },
}
