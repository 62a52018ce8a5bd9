//! Which media a drive reads and writes: as it says itself, else by the name of the product and the rules of LTO.

use crate::head::Head;
use scsi::{Density, SenseKey};
use types::{Generation, Reach};

/// Unit attentions in a row before the drive is not asked any more.
const MAX_ATTENTIONS: u32 = 32;

/// Asks the drive. One that does not know the question, or does not answer it, is taken by its name; one whose name says
/// nothing either for a drive that takes everything.
pub(crate) fn ask(head: &mut Head, product: &str) -> Reach {
    let mut attentions = 0;
    let known = loop {
        match head.ssc.report_density(false) {
            Ok(known) => break known,
            Err(e) => {
                let attention = e.sense().is_some_and(|s| s.key == SenseKey::UnitAttention);
                if !attention || attentions == MAX_ATTENTIONS {
                    break Vec::new();
                }
                attentions += 1;
            }
        }
    };
    let reported = Reach::reported(known.iter().filter_map(|d| Some((medium(d)?, d.writable))));
    reported.or_else(|| named(product).map(Reach::of)).unwrap_or_default()
}

/// Medium of a density: by its description, which names the generation, or by its code.
fn medium(density: &Density) -> Option<Generation> {
    // The description of type M8 is that of its medium or of its drive.
    let m8 = Some(Generation::Lto7M8).filter(|m8| m8.density() == Some(density.code));
    m8.or_else(|| Generation::described(&density.description))
        .or_else(|| Generation::of_density(density.code))
}

/// Generation of a drive by what makers write into INQUIRY data: `ULT3580-TD9`, `ULTRIUM-HH8`, `ULT3580-TDA`,
/// `Ultrium 6-SCSI`, `LTO-5 HH`.
fn named(product: &str) -> Option<Generation> {
    let upper = product.to_ascii_uppercase();
    let (at, head) =
        ["-TD", "-HH", "ULTRIUM ", "LTO-"].iter().find_map(|head| Some((upper.find(head)?, head)))?;
    let rest = upper.get(at + head.len()..)?;
    if rest.starts_with('A') && head.starts_with('-') {
        return Some(Generation::Lto10);
    }
    let digits = rest.find(|c: char| !c.is_ascii_digit()).map_or(rest, |end| &rest[..end]);
    Generation::parse(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_known_by_their_names() {
        let of = |product| named(product).map(Generation::number);
        for (product, number) in [
            ("IBM ULT3580-TD9 S2H0", Some(9)),
            ("IBM ULT3580-TDA S57A", Some(10)),
            ("IBM ULTRIUM-HH8 HB81", Some(8)),
            ("HP Ultrium 6-SCSI J5MW", Some(6)),
            ("TANDBERG LTO-5 HH Y6J2", Some(5)),
            ("TGT VIRTUAL-TAPE 0100", None),
            ("IBM 03592E07 D3I3", None),
        ] {
            assert_eq!(of(product), number, "{product}");
        }
    }

    #[test]
    fn densities_are_told_apart() {
        let density = |code, text: &str| Density {
            code,
            writable: true,
            default: false,
            megabytes: 0,
            name: String::new(),
            description: text.into(),
        };
        assert_eq!(medium(&density(0x60, "Ultrium 9/32T")), Some(Generation::Lto9));
        assert_eq!(medium(&density(0x5D, "Ultrium 7/32T")), Some(Generation::Lto7M8));
        assert_eq!(medium(&density(0x77, "Ultrium 10/32T")), Some(Generation::Lto10));
        assert_eq!(
            (medium(&density(0x5A, "")), medium(&density(0x25, "DDS-3"))),
            (Some(Generation::Lto6), None)
        );
    }
}
