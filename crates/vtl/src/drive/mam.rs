//! READ ATTRIBUTE and WRITE ATTRIBUTE.

use super::State;
use crate::unit::{BAD_FIELD, BAD_PARAMETER, OK, Outcome, field, give, parameters};
use scsi::mam::{self, Attribute, id};
use scsi::{Data, Sense, SenseKey};
use types::Access;

impl State {
    pub(super) fn read_attribute(&mut self, cdb: &[u8], data: Data<'_>) -> Outcome {
        let (partition, first, alloc) = (cdb[7], field(cdb, 8, 2) as u16, field(cdb, 10, 4));
        let m = self.ready()?;
        if partition >= m.cartridge.partitions() {
            return Err(BAD_FIELD);
        }
        let list = m.cartridge.attributes(partition, m.moved);
        let with_length = |body: Vec<u8>| [&(body.len() as u32).to_be_bytes()[..], &body].concat();
        let raw = match cdb[1] & 0x1F {
            0x00 if first != 0 && !list.iter().any(|a| a.id == first) => return Err(BAD_FIELD),
            0x00 => mam::encode_list(&list.into_iter().filter(|a| a.id >= first).collect::<Vec<_>>()),
            0x01 => {
                with_length(list.iter().filter(|a| a.id >= first).flat_map(|a| a.id.to_be_bytes()).collect())
            }
            0x02 => with_length(vec![0, 1]), // logical volumes: the first, and there is one
            0x03 => with_length(vec![0, m.cartridge.partitions()]),
            _ => return Err(BAD_FIELD),
        };
        give(data, &raw, alloc)
    }

    pub(super) fn write_attribute(&mut self, cdb: &[u8], data: Data<'_>) -> Outcome {
        let list = parameters(&data, field(cdb, 10, 4))?;
        let partition = cdb[7];
        let m = self.ready()?;
        if partition >= m.cartridge.partitions() {
            return Err(BAD_FIELD);
        }
        if m.cartridge.meta.protected {
            return Err(Sense::new(SenseKey::DataProtect, 0x27, 0x00));
        }
        self.suits(Access::Write)?;
        let m = self.ready()?;
        if list.is_empty() {
            return OK;
        }
        let attributes = mam::decode_list(list).map_err(|_| BAD_PARAMETER)?;
        if !attributes.iter().all(writable) {
            return Err(BAD_PARAMETER);
        }
        for attribute in attributes {
            let stored = m.cartridge.store_attribute(partition, attribute);
            if let Err(e) = stored {
                return Err(self.host_failure(&std::io::Error::other(e)));
            }
        }
        OK
    }
}

/// Hosts own 0800h to 0BFFh and vendor-specific 1400h to 17FFh, with the widths that the standard gives.
fn writable(a: &Attribute) -> bool {
    let fits = match a.id {
        id::APPLICATION_VENDOR | id::APPLICATION_VERSION => a.value.len() <= 8,
        id::APPLICATION_NAME | id::BARCODE => a.value.len() <= 32,
        id::TEXT_LABEL | id::MEDIA_POOL => a.value.len() <= 160,
        id::DATE_LAST_WRITTEN => a.value.len() <= 12,
        id::TEXT_LOCALIZATION => a.value.len() <= 1,
        id::OWNING_HOST => a.value.len() <= 80,
        id::FORMAT_VERSION => a.value.len() <= 16,
        _ => a.value.len() <= 1023,
    };
    matches!(a.id, 0x0800..=0x0BFF | 0x1400..=0x17FF) && fits
}
