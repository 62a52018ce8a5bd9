//! A mounted volume in either format: LTFS, or sections between ANSI labels. What differs is said here, and in how they are
//! written ([`super::migrate`], [`super::sections`]); everything else is the same for both.

use format::ltfs::index::{IndexEvent, IndexHeader};
use format::tar::index::SectionHead;
use std::ops::ControlFlow;
use tape::{
    AppendPoint, Contents, Fault, Fill, FoundIndex, IndexSpec, Indexed, LabelSpec, LabelState, Mounted, Onto,
    SectionPoint, TapeError, Told, VolumeEnd,
};
use types::*;

/// The format of new volumes for a medium.
///
/// # Errors
/// The drive does not say what the medium is.
pub fn choose(mounted: &mut Mounted<'_>, rule: FormatRule) -> Result<VolumeFormat, TapeError> {
    Ok(match rule {
        // Their index could not be replaced.
        _ if mounted.worm() => VolumeFormat::AnsiTar,
        FormatRule::Ltfs => VolumeFormat::Ltfs,
        FormatRule::AnsiTar => VolumeFormat::AnsiTar,
        FormatRule::Auto if mounted.takes_partitions()? => VolumeFormat::Ltfs,
        FormatRule::Auto => VolumeFormat::AnsiTar,
    })
}

/// Makes a volume; its record without pool and state.
///
/// # Errors
/// As [`Mounted::format`].
pub fn make(
    mounted: &mut Mounted<'_>,
    format: VolumeFormat,
    spec: &LabelSpec<'_>,
) -> Result<Volume, TapeError> {
    if format == VolumeFormat::Ltfs {
        let made = mounted.format(spec)?;
        return Ok(Volume {
            capacity: made.capacity.unwrap_or(0),
            append_block: made.append_block,
            generation: made.generation,
            index_block: made.index_block,
            indexed_to: made.append_block,
            vcr: made.vcr,
            ..fresh(mounted, format, spec)
        });
    }
    let point = mounted.format_ansi(spec)?;
    Ok(fresh_sections(mounted, spec, point.block))
}

/// The record of a volume that has its ANSI label and nothing else.
pub fn fresh_sections(mounted: &Mounted<'_>, spec: &LabelSpec<'_>, append_block: u64) -> Volume {
    let capacity = mounted.capacity().map_or(0, |c| c.maximum);
    // An index follows when it is unloaded, and says whose volume it is.
    let fresh = fresh(mounted, VolumeFormat::AnsiTar, spec);
    Volume { capacity, append_block, indexed_to: append_block - 1, ..fresh }
}

fn fresh(mounted: &Mounted<'_>, format: VolumeFormat, spec: &LabelSpec<'_>) -> Volume {
    Volume {
        uuid: spec.uuid.to_owned(),
        labelled: Some(spec.now),
        block_size: spec.block_size,
        mounts: 1,
        format,
        worm: mounted.worm(),
        ..Volume::new(spec.barcode.clone(), spec.now)
    }
}

/// An index to be written.
pub struct Index<'a> {
    /// As recorded.
    pub volume: &'a Volume,
    /// Program that writes it.
    pub creator: &'a str,
    /// Highest uid ever used on the volume.
    pub highest_uid: u64,
    /// Time now.
    pub now: Time,
    /// Which partitions it goes to, where there are two.
    pub onto: Onto,
}

/// Writes an index of the whole volume.
///
/// # Errors
/// As [`Mounted::write_index`].
pub fn write_index(
    mounted: &mut Mounted<'_>,
    index: &Index<'_>,
    fill: &mut Fill<'_>,
) -> Result<Indexed, TapeError> {
    let Index { volume, creator, highest_uid, now, onto } = *index;
    if !matches!(mounted.label(), LabelState::Sections(_)) {
        let point = &AppendPoint::from(volume);
        return mounted.write_index(&IndexSpec { point, creator, highest_uid, now, onto }, fill);
    }
    let point = SectionPoint::from(volume);
    let indexed = |end: &SectionPoint, index_block, data_partition_full| Indexed {
        generation: end.section,
        index_block,
        append_block: end.block,
        vcr: 0,
        data_partition_full,
        on_both: true,
    };
    match mounted.write_section_index(&point, (creator, highest_uid, now), fill) {
        Ok((begins, end)) => Ok(indexed(&end, begins, false)),
        // The lists of the sections tell of all files.
        Err(e) if e.fault == Fault::Full => Ok(indexed(&point, volume.index_block, true)),
        Err(e) => Err(e),
    }
}

/// What a volume tells of its files.
pub enum Tells<'e> {
    /// Next in its newest index.
    Event(IndexEvent<'e>),
    /// A file that was written behind that.
    File(&'e SectionHead, &'e TapeFile),
}

/// Where a volume ends, and how new what it tells is.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Generation of the newest index, or number of the last section.
    pub generation: u64,
    /// When that was written; unknown on a volume without any.
    pub written: Option<Time>,
    /// Sections that no index tells of.
    pub behind: u64,
    ltfs: Option<FoundIndex>,
    /// Of LTFS: where it ends, if that is known already.
    end: Option<VolumeEnd>,
    index_block: u64,
    append_block: u64,
}

/// The end of a volume, from the medium alone.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// See [`tape::VolumeEnd`].
    pub index_block: u64,
    /// Where the next record goes; 0: it cannot be appended to.
    pub append_block: u64,
    /// Records between the two are listed nowhere.
    pub end_of_data: u64,
    /// Volume change reference.
    pub vcr: u64,
    /// An index is to be written at the next occasion.
    pub stale: bool,
}

/// Reads what the volume tells of its files. `visit` learns the generation with each part, and may stop with `Break`.
///
/// # Errors
/// As [`Mounted::read_index`] and [`Mounted::contents`].
pub fn read(
    mounted: &mut Mounted<'_>,
    visit: &mut dyn FnMut(u64, Tells<'_>) -> ControlFlow<()>,
) -> Result<Found, TapeError> {
    if !matches!(mounted.label(), LabelState::Sections(_)) {
        let mut generation = 0;
        let found = mounted.read_index(&mut |event| {
            if let IndexEvent::Header(header) = &event {
                generation = header.generation;
            }
            visit(generation, Tells::Event(event))
        })?;
        let IndexHeader { generation, update_time, .. } = found.header;
        return Ok(Found { generation, written: Some(update_time), ltfs: Some(found), ..Found::default() });
    }
    sections(visit, |told| mounted.contents(told))
}

/// The same on the shortest way, for whoever has no record of the volume and has to know its end in any case. None, with nothing
/// handed out, if there is no such way: then [`read`] it.
///
/// # Errors
/// As [`Mounted::scan_index`] and [`Mounted::scan_contents`]: [`read`] may still find all.
pub fn scan(
    mounted: &mut Mounted<'_>,
    visit: &mut dyn FnMut(u64, Tells<'_>) -> ControlFlow<()>,
) -> Result<Option<Found>, TapeError> {
    if matches!(mounted.label(), LabelState::Sections(_)) {
        let mut nothing = false;
        let found = sections(visit, |told| {
            let scanned = mounted.scan_contents(told)?;
            nothing = scanned.is_none();
            let end = || SectionPoint { uuid: String::new(), block: 0, section: 0 };
            Ok(scanned.unwrap_or_else(|| Contents { end: end(), index: None, behind: 0 }))
        })?;
        return Ok(Some(found).filter(|_| !nothing));
    }
    let mut generation = 0;
    let scanned = mounted.scan_index(&mut |event| {
        if let IndexEvent::Header(header) = &event {
            generation = header.generation;
        }
        visit(generation, Tells::Event(event))
    })?;
    Ok(scanned.map(|(found, end)| {
        let IndexHeader { generation, update_time, .. } = found.header;
        Found { generation, written: Some(update_time), ltfs: Some(found), end, ..Found::default() }
    }))
}

/// What a volume without partitions tells, in the words of both formats.
fn sections(
    visit: &mut dyn FnMut(u64, Tells<'_>) -> ControlFlow<()>,
    read: impl FnOnce(&mut dyn FnMut(Told<'_>) -> ControlFlow<()>) -> Result<Contents, TapeError>,
) -> Result<Found, TapeError> {
    let (mut section, mut written) = (0, None);
    let contents = read(&mut |told| match told {
        Told::End(end) => {
            section = end.section;
            ControlFlow::Continue(())
        }
        Told::Event(event) => {
            if let IndexEvent::Header(header) = &event {
                written = Some(header.update_time);
            }
            visit(section, Tells::Event(event))
        }
        Told::File(head, file) => {
            written = Some(head.begun);
            visit(section, Tells::File(head, file))
        }
    })?;
    let index_block = contents.index.as_ref().map_or(0, |header| header.location.block);
    let (generation, append_block, behind) = (contents.end.section, contents.end.block, contents.behind);
    Ok(Found { generation, written, behind, index_block, append_block, ..Found::default() })
}

/// Where the volume ends as far as it tells itself.
///
/// # Errors
/// The drive or the medium failed.
pub fn survey(mounted: &mut Mounted<'_>, found: &Found) -> Result<End, TapeError> {
    let Some(ltfs) = &found.ltfs else {
        return Ok(End {
            index_block: found.index_block,
            append_block: found.append_block,
            end_of_data: found.append_block,
            vcr: 0,
            stale: found.behind > 0,
        });
    };
    let end = match found.end {
        Some(end) => end,
        None => mounted.survey(ltfs)?,
    };
    Ok(End {
        index_block: end.index_block,
        append_block: end.append_block,
        end_of_data: end.end_of_data,
        vcr: end.vcr,
        stale: ltfs.index_partition_stale,
    })
}
