//! Mode pages of a drive (SPC-4 section 7.5, SSC-4 section 8.3).

use super::State;
use crate::identity::{self, ModeHead};
use crate::unit::{BAD_FIELD, BAD_LENGTH, BAD_PARAMETER, Host, OK, Outcome, field, parameters};
use scsi::mode::{DataProtection, PartitionPage};
use scsi::{Data, Sense, opcode as op};

/// What MODE SELECT changes.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// 0: variable.
    pub(super) block_length: u32,
    pub(super) buffered: bool,
    pub(super) compression: bool,
    /// Nothing on the medium is overwritten but what ALLOW OVERWRITE named.
    pub(super) append_only: bool,
    /// Programmable early warning zone (10^6 bytes; 0: off).
    pub(super) early_warning_mb: u64,
    /// Logical block protection.
    pub(super) protection: DataProtection,
    /// Partitions for the next FORMAT MEDIUM, as asked for.
    partitions: Option<PartitionPage>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            block_length: 0,
            buffered: true,
            compression: true,
            append_only: false,
            early_warning_mb: 0,
            protection: DataProtection::OFF,
            partitions: None,
        }
    }
}

impl Settings {
    /// Capacities that FORMAT MEDIUM makes of the partition page. A size of FFFFh, or more than there is, means the whole
    /// capacity: the index partition of a small virtual cartridge is not taken from its data partition.
    pub(super) fn partition_capacities(&self, capacity: u64) -> Vec<u64> {
        let Some(page) = &self.partitions else { return vec![capacity] };
        let unit = match (page.flags >> 3) & 3 {
            0 => 1,
            1 => 1_000,
            2 => 1_000_000,
            _ => 10u64.saturating_pow(page.units.into()),
        };
        let size = |n: usize| match page.sizes.get(n) {
            None | Some(0 | 0xFFFF) => capacity,
            Some(size) => unit.saturating_mul(u64::from(*size)).min(capacity),
        };
        (0..=usize::from(page.additional)).map(size).collect()
    }
}

impl State {
    pub(super) fn mode_sense(&mut self, cdb: &[u8], data: Data<'_>) -> Outcome {
        let worm = self.worm();
        let protected = self.ready().map(|m| m.cartridge.meta.protected).unwrap_or(false);
        let length = self.settings.block_length.to_be_bytes();
        let head = ModeHead {
            // LTO-9: data cartridge, WORM cartridge
            medium_type: if worm { 0x9C } else { u8::from(self.ready().is_ok()) * 0x98 },
            device_specific: (u8::from(protected) << 7) | (u8::from(self.settings.buffered) << 4),
            block_descriptor: Some([self.density(), 0, 0, 0, 0, length[1], length[2], length[3]]),
        };
        identity::mode_sense(cdb, data, &head, &self.mode_pages())
    }

    /// The loaded medium can be written once only.
    fn worm(&mut self) -> bool {
        self.ready().is_ok_and(|m| m.cartridge.meta.worm)
    }

    fn mode_pages(&mut self) -> Vec<Vec<u8>> {
        let page = |code: u8, body: &[u8]| [&[code, body.len() as u8], body].concat();
        let mut medium = [0; 30];
        // WORM mode; no label is overwritten; of the filemarks at the end all but the first may be
        (medium[0], medium[3]) = (u8::from(self.worm()), 2);
        let compression = 0x40 | (u8::from(self.settings.compression) << 7);
        let write_mode = u8::from(self.settings.append_only) << 4;
        let megabytes = (self.settings.early_warning_mb.min(0xFFFF) as u16).to_be_bytes();
        vec![
            page(0x01, &[0; 10]),
            page(0x02, &[0; 14]),
            page(0x0A, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            self.settings.protection.encode(),
            // compression is switched but changes nothing: capacity is counted in host bytes
            page(0x0F, &[compression, 0x80, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]),
            page(0x10, &[0, 0, 0, 0, 0, 0, 0x40, 0, 0x18, 0, 0, 0, 1, 0]),
            [&[0x50, 0x01, 0, 0x1C, 0, write_mode, megabytes[0], megabytes[1]], &[0u8; 24][..]].concat(),
            self.partition_page(),
            page(0x1C, &[0x08, 0x03, 0, 0, 0, 0, 0, 0, 0, 0]),
            page(0x1D, &medium),
        ]
    }

    /// Page 11h with the partitions that the medium has, in units of 10^units bytes.
    fn partition_page(&mut self) -> Vec<u8> {
        let (sizes, max_additional): (Vec<u64>, u8) = match self.ready() {
            Ok(m) => {
                let sizes = (0..m.cartridge.partitions()).map(|p| m.cartridge.capacity(p)).collect();
                (sizes, u8::from(m.cartridge.takes_partitions()))
            }
            Err(_) => (vec![0], 1),
        };
        let largest = sizes.iter().copied().max().unwrap_or(0);
        let units = (0..=15u8).find(|u| largest / 10u64.pow((*u).into()) < 0xFFFF).unwrap_or(15);
        let scale = 10u64.pow(units.into());
        let page = PartitionPage {
            max_additional,
            additional: (sizes.len() - 1) as u8,
            flags: PartitionPage::IDP | PartitionPage::PSUM_POWER | PartitionPage::POFM,
            recognition: 3, // format and partitions are recognised
            units,
            sizes: sizes.iter().map(|s| s.div_ceil(scale).min(0xFFFE) as u16).collect(),
        };
        page.encode()
    }

    pub(super) fn mode_select(&mut self, host: Host, cdb: &[u8], data: Data<'_>) -> Outcome {
        let ten = cdb[0] == op::MODE_SELECT_10;
        if cdb[1] & 0x01 != 0 {
            return Err(crate::unit::illegal(0x39, 0x00));
        }
        let list = parameters(&data, if ten { field(cdb, 7, 2) } else { field(cdb, 4, 1) })?;
        if list.is_empty() {
            return OK;
        }
        let head = if ten { 8 } else { 4 };
        if list.len() < head {
            return Err(BAD_LENGTH);
        }
        let specific = if ten { list[3] } else { list[2] };
        let block = if ten { field(list, 6, 2) } else { field(list, 3, 1) } as usize;
        if !matches!(block, 0 | 8) || list.len() < head + block {
            return Err(BAD_LENGTH);
        }
        let mut new = self.settings.clone();
        new.buffered = (specific >> 4) & 7 != 0;
        if block == 8 {
            if !matches!(list[head], 0 | 0x7F) && list[head] != self.density() {
                return Err(BAD_PARAMETER);
            }
            new.block_length = field(list, head + 5, 3) as u32;
        }
        let mut rest = &list[head + block..];
        while !rest.is_empty() {
            rest = select_page(&mut new, rest)?;
        }
        let asked = new.partitions.as_ref().filter(|asked| self.settings.partitions.as_ref() != Some(asked));
        if asked.is_some_and(|asked| asked.additional > 0)
            && self.ready().is_ok_and(|m| !m.cartridge.takes_partitions())
        {
            return Err(BAD_PARAMETER);
        }
        self.may_switch_append_only(new.append_only)?;
        self.settings = new;
        self.hosts.tell_others(host, 0x2A, 0x01);
        OK
    }
}

/// Applies one page; returns what follows it.
fn select_page<'a>(new: &mut Settings, raw: &'a [u8]) -> Result<&'a [u8], Sense> {
    let subpage = raw[0] & 0x40 != 0;
    let (start, length) = match subpage {
        true => (4, field(raw, 2, 2) as usize),
        false => (2, field(raw, 1, 1) as usize),
    };
    let page = raw.get(..start + length).ok_or(BAD_LENGTH)?;
    match (raw[0] & 0x3F, if subpage { raw[1] } else { 0 }) {
        (0x0F, 0) if length >= 14 => new.compression = page[2] & 0x80 != 0,
        (0x0A, 0xF0) => new.protection = super::protect::selected(page)?,
        (0x10, 1) if length >= 4 && page[5] >> 4 <= 1 => {
            (new.append_only, new.early_warning_mb) = (page[5] >> 4 == 1, field(page, 6, 2));
        }
        (0x11, 0) => {
            let asked = PartitionPage::decode(page).map_err(|_| BAD_PARAMETER)?;
            if asked.additional > 1 || asked.flags & PartitionPage::IDP == 0 {
                return Err(BAD_PARAMETER);
            }
            new.partitions = Some(asked);
        }
        (0x01 | 0x02 | 0x0A | 0x10 | 0x1C | 0x1D, 0) => {} // nothing of these can be changed
        _ => return Err(if length == 0 { BAD_FIELD } else { BAD_PARAMETER }),
    }
    Ok(&raw[start + length..])
}
