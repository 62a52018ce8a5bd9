//! The robot: an SMC-3 device server.

use crate::cartridge::Cartridge;
use crate::elements::Elements;
use crate::identity::{self, Identity, ModeHead, report_luns};
use crate::library::Library;
use crate::unit::{self, BAD_FIELD, Host, Hosts, OK, Outcome, RESERVATION_CONFLICT, field, give};
use scsi::{Data, ElementType, Reply, Sense, SenseKey, opcode as op};

/// State of the robot.
pub(crate) struct Robot {
    pub(crate) identity: Identity,
    pub(crate) hosts: Hosts,
    pub(crate) elements: Elements,
    pub(crate) host_error: Option<String>,
}

const NO_ELEMENT: Sense = unit::illegal(0x21, 0x01);
const DESTINATION_FULL: Sense = unit::illegal(0x3B, 0x0D);
const SOURCE_EMPTY: Sense = unit::illegal(0x3B, 0x0E);

impl Library {
    /// Carries out one command of the changer.
    pub(crate) fn execute_changer(&self, host: Host, cdb: &[u8], data: Data<'_>) -> Reply {
        let mut padded = [0u8; 16];
        let n = cdb.len().min(16);
        padded[..n].copy_from_slice(&cdb[..n]);
        let conflict = Reply { status: RESERVATION_CONFLICT, ..Reply::default() };
        let mut robot = self.robot.lock();
        if robot.hosts.conflict(host, &padded) {
            return conflict;
        }
        if padded[0] == op::PERSISTENT_RESERVE_OUT {
            return robot.hosts.persistent_out(host, &padded, &data).map_or(conflict, unit::reply);
        }
        unit::reply(self.run_changer(&mut robot, host, &padded, data))
    }

    fn run_changer(&self, robot: &mut Robot, host: Host, cdb: &[u8; 16], data: Data<'_>) -> Outcome {
        match cdb[0] {
            op::INQUIRY => return robot.identity.inquiry(cdb, data),
            op::REPORT_LUNS => return report_luns(cdb, data),
            op::REQUEST_SENSE => {
                let none = Sense::new(SenseKey::NoSense, 0, 0);
                let sense = robot.hosts.take_attention(host).unwrap_or(none);
                return give(data, &sense.encode(), field(cdb, 4, 1));
            }
            _ => {}
        }
        if let Some(sense) = robot.hosts.take_attention(host) {
            return Err(sense);
        }
        match cdb[0] {
            op::TEST_UNIT_READY | op::SEND_DIAGNOSTIC => OK,
            op::INITIALIZE_ELEMENT_STATUS | op::INITIALIZE_ELEMENT_STATUS_RANGE => OK,
            op::RESERVE_6 | op::RESERVE_10 => robot.hosts.reserve(host, true),
            op::RELEASE_6 | op::RELEASE_10 => robot.hosts.reserve(host, false),
            op::PERSISTENT_RESERVE_IN => robot.hosts.persistent_in(cdb, data),
            op::PREVENT_ALLOW => robot.hosts.prevent(host, cdb),
            op::MODE_SENSE_6 | op::MODE_SENSE_10 => mode_sense(robot, cdb, data),
            op::LOG_SENSE => log_sense(cdb, data),
            op::READ_ELEMENT_STATUS => self.read_element_status(robot, cdb, data),
            op::POSITION_TO_ELEMENT => self.position(robot, field(cdb, 4, 2) as u16),
            op::MOVE_MEDIUM => self.move_medium(robot, field(cdb, 4, 2) as u16, field(cdb, 6, 2) as u16),
            op::EXCHANGE_MEDIUM => self.exchange(robot, cdb),
            _ => Err(unit::illegal(0x20, 0x00)),
        }
    }

    // ---- motion ----

    fn position(&self, robot: &mut Robot, to: u16) -> Outcome {
        robot.elements.kind(to).ok_or(NO_ELEMENT)?;
        self.swing()
    }

    /// One motion of the robot.
    fn swing(&self) -> Outcome {
        if self.faults.robot_stuck() {
            return Err(Sense::new(SenseKey::HardwareError, 0x15, 0x01));
        }
        self.clock.sleep_until(self.clock.now() + self.config.mechanics.robot_move);
        OK
    }

    fn move_medium(&self, robot: &mut Robot, from: u16, to: u16) -> Outcome {
        let kind = |a| robot.elements.kind(a).filter(|k| *k != ElementType::Transport).ok_or(NO_ELEMENT);
        kind(from)?;
        kind(to)?;
        if !robot.elements.full.contains_key(&from) {
            return Err(SOURCE_EMPTY);
        }
        if from == to {
            return OK;
        }
        if robot.elements.full.contains_key(&to) {
            return Err(DESTINATION_FULL);
        }
        if robot.elements.kind(to) == Some(ElementType::ImportExport) && robot.hosts.removal_prevented() {
            return Err(unit::illegal(0x53, 0x02));
        }
        self.carry(robot, from, to)
    }

    /// Takes a cartridge from a full to an empty element. Only when the new table is durable is it in its new place; a
    /// drive that is too late to give it back gets it again.
    fn carry(&self, robot: &mut Robot, from: u16, to: u16) -> Outcome {
        let barcode = robot.elements.full.get(&from).ok_or(SOURCE_EMPTY)?.barcode.clone();
        let (source, target) = (robot.elements.drive(from), robot.elements.drive(to));
        if target.is_some_and(|n| self.faults.drive_dead(n as u16).is_some()) {
            return Err(Sense::new(SenseKey::HardwareError, 0x53, 0x00));
        }
        if let Some(n) = source {
            self.drives[n].take()?;
        }
        let result = self.swing().and_then(|_| self.put(robot, &barcode, from, to, target));
        if let (Err(_), Some(n)) = (&result, source) {
            // The robot did not move it: it lies unloaded in the drive as before.
            match self.open_cartridge(&barcode) {
                Ok(cartridge) => self.drives[n].put_back(cartridge),
                Err(e) => robot.host_error = Some(e.to_string()),
            }
        }
        result
    }

    fn put(&self, robot: &mut Robot, barcode: &str, from: u16, to: u16, target: Option<usize>) -> Outcome {
        let failed = |robot: &mut Robot, e: crate::VtlError, sense| {
            robot.host_error = Some(e.to_string());
            Err(sense)
        };
        let opened: Option<Cartridge> = match target.map(|_| self.open_cartridge(barcode)).transpose() {
            Ok(opened) => opened,
            Err(e) => return failed(robot, e, Sense::new(SenseKey::HardwareError, 0x53, 0x00)),
        };
        let next = robot.elements.moved(from, to);
        if let Err(e) = next.store() {
            return failed(robot, e, Sense::new(SenseKey::HardwareError, 0x44, 0x00));
        }
        robot.elements = next;
        if let (Some(n), Some(cartridge)) = (target, opened) {
            self.drives[n].insert(cartridge);
        }
        OK
    }

    fn exchange(&self, robot: &mut Robot, cdb: &[u8]) -> Outcome {
        let [from, to, second] = [4, 6, 8].map(|at| field(cdb, at, 2) as u16);
        for address in [from, to, second] {
            robot.elements.kind(address).filter(|k| *k != ElementType::Transport).ok_or(NO_ELEMENT)?;
        }
        if !robot.elements.full.contains_key(&from) || !robot.elements.full.contains_key(&to) {
            return Err(SOURCE_EMPTY);
        }
        if second == from {
            // One hand: the first cartridge waits in a free slot meanwhile.
            let free = robot.elements.empty(ElementType::Storage).ok_or(DESTINATION_FULL)?;
            self.move_medium(robot, to, free)?;
            self.move_medium(robot, from, to)?;
            return self.move_medium(robot, free, from);
        }
        self.move_medium(robot, to, second)?;
        self.move_medium(robot, from, to)
    }

    // ---- status ----

    fn read_element_status(&self, robot: &Robot, cdb: &[u8], data: Data<'_>) -> Outcome {
        let (tags, wanted) = (cdb[1] & 0x10 != 0, cdb[1] & 0x0F);
        let (first, limit) = (field(cdb, 2, 2) as u16, field(cdb, 4, 2) as usize);
        let (devices, alloc) = (cdb[6] & 1 != 0, field(cdb, 7, 3));
        if wanted > 4 {
            return Err(BAD_FIELD);
        }
        let mut kinds = ElementType::ALL.map(|k| (k, robot.elements.addresses.range(k)));
        kinds.sort_by_key(|(_, range)| range.first);
        let mut found: Vec<(ElementType, u16)> = kinds
            .iter()
            .filter(|(k, _)| wanted == 0 || *k as u8 == wanted)
            .flat_map(|(k, r)| (r.first..r.first + r.count).map(|a| (*k, a)))
            .filter(|(_, a)| *a >= first)
            .collect();
        found.truncate(limit);
        let mut pages = Vec::new();
        for group in found.chunk_by(|a, b| a.0 == b.0) {
            let kind = group[0].0;
            let with_device = devices && kind == ElementType::DataTransfer;
            let descriptors: Vec<Vec<u8>> =
                group.iter().map(|(_, a)| self.descriptor(robot, kind, *a, tags, with_device)).collect();
            let bytes: usize = descriptors.iter().map(Vec::len).sum();
            pages.extend([kind as u8, if tags { 0x80 } else { 0 }]);
            pages.extend((descriptors[0].len() as u16).to_be_bytes());
            pages.extend((bytes as u32).to_be_bytes());
            pages.extend(descriptors.concat());
        }
        let mut raw = found.first().map_or(0, |f| f.1).to_be_bytes().to_vec();
        raw.extend((found.len() as u16).to_be_bytes());
        raw.extend((pages.len() as u32).to_be_bytes());
        raw.extend(pages);
        give(data, &raw, alloc)
    }

    fn descriptor(
        &self,
        robot: &Robot,
        kind: ElementType,
        address: u16,
        tags: bool,
        device: bool,
    ) -> Vec<u8> {
        let occupant = robot.elements.full.get(&address);
        let accessible = match (kind, robot.elements.drive(address)) {
            (ElementType::DataTransfer, Some(n)) => occupant.is_none() || self.drives[n].ejected(),
            _ => true,
        };
        let mut flags = u8::from(occupant.is_some());
        if kind != ElementType::Transport {
            flags |= u8::from(accessible) << 3;
        }
        if kind == ElementType::ImportExport {
            flags |= 0x30 | (u8::from(occupant.is_some_and(|o| o.by_operator)) << 1);
        }
        let mut raw = address.to_be_bytes().to_vec();
        raw.extend([flags, 0, 0, 0, 0, 0, 0]);
        let source = occupant.and_then(|o| o.source);
        raw.push(u8::from(source.is_some()) << 7);
        raw.extend(source.unwrap_or(0).to_be_bytes());
        if tags {
            let barcode = occupant.map(|o| o.barcode.as_str()).filter(|b| !self.faults.unreadable(b));
            raw.extend(format!("{:32}", barcode.unwrap_or("")).bytes().map(|b| match barcode {
                Some(_) => b,
                None => 0,
            }));
            raw.extend([0; 4]);
        }
        match (device, robot.elements.drive(address)) {
            (true, Some(n)) => raw.extend(&self.designators[n]),
            _ => raw.extend([0; 4]),
        }
        raw
    }
}

fn mode_sense(robot: &Robot, cdb: &[u8], data: Data<'_>) -> Outcome {
    let a = &robot.elements.addresses;
    let mut assignment = vec![0x1D, 0x12];
    for range in [a.transport, a.storage, a.import_export, a.data_transfer] {
        assignment.extend(range.first.to_be_bytes());
        assignment.extend(range.count.to_be_bytes());
    }
    assignment.extend([0, 0]);
    let geometry = vec![0x1E, 2, 0, 0];
    // All but the hand store cartridges and exchange them with each other.
    let mut capabilities = vec![0x1F, 0x12, 0x0E, 0x00, 0x00, 0x0E, 0x0E, 0x0E, 0, 0, 0, 0];
    capabilities.extend([0x00, 0x0E, 0x0E, 0x0E, 0, 0, 0, 0]);
    let head = ModeHead { medium_type: 0, device_specific: 0, block_descriptor: None };
    identity::mode_sense(cdb, data, &head, &[assignment, geometry, capabilities])
}

/// The list of pages, and TapeAlert without any flag set.
fn log_sense(cdb: &[u8], data: Data<'_>) -> Outcome {
    let page = cdb[2] & 0x3F;
    let body = match page {
        0x00 => vec![0x00, 0x2E],
        0x2E => (1..=64u8).flat_map(|n| [0, n, 0x03, 1, 0]).collect(),
        _ => return Err(BAD_FIELD),
    };
    let mut raw = vec![page, 0];
    raw.extend((body.len() as u16).to_be_bytes());
    raw.extend(body);
    give(data, &raw, field(cdb, 7, 2))
}
