//! Writing labels. What is not ours is never overwritten unless an operator said so.

use super::state::Errand;
use super::trouble::ours;
use super::worker::Worker;
use super::{family, key, layout, worm};
use tape::{LabelSpec, LabelState, Mounted, Overwrite, TapeError};
use types::*;

/// Labels the mounted volume, or finds out why that must not be.
pub fn label(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    barcode: &Barcode,
    pool: Option<PoolName>,
    errand: Option<Errand>,
) -> Result<u64, TapeError> {
    let ordered = match errand {
        Some(Errand::Reclaim(ticket)) => return super::reclaim::reclaim(worker, mounted, barcode, ticket),
        Some(Errand::Label { request, force, key, .. }) => Some((request, force, key)),
        _ => None,
    };
    let order = ordered.as_ref().map(|(_, force, key)| (*force, key.as_deref()));
    let result = match &ordered {
        Some((request, ..)) if !wanted(worker, barcode, *request)? => {
            Ok(Err(format!("volume {barcode} was not labelled: the request was cancelled")))
        }
        _ => try_label(worker, mounted, barcode, pool.as_ref(), order),
    };
    if let Some((request, ..)) = ordered {
        report(worker, request, barcode, &result);
    }
    match result {
        Ok(Ok(position)) => Ok(position),
        Ok(Err(_refused)) => Ok(0),
        Err(e) => Err(e),
    }
}

/// Whether the request for a label is still open: it may have been cancelled while the volume was fetched.
fn wanted(worker: &Worker, barcode: &Barcode, request: RequestId) -> Result<bool, TapeError> {
    let found =
        worker.node.catalog.request(request).map_err(|e| ours(barcode, "looking up its request", e))?;
    Ok(found.is_some_and(|r| matches!(r.state, RequestState::Queued | RequestState::Active)))
}

/// The volume in the drive, if it is one of those that we know of: a whole label, or what is left of one whose writing
/// was cut short.
pub fn ours_on(label: &LabelState, known: &[Option<String>]) -> Option<String> {
    let is_ours = |uuid: &str| known.iter().flatten().any(|known| known == uuid);
    match label {
        LabelState::Damaged { uuids, .. } if uuids.iter().all(|u| is_ours(u)) => uuids.first().cloned(),
        other => other.uuid().filter(|uuid| is_ours(uuid)).map(str::to_owned),
    }
}

/// The label that was about to be written on a volume, and is not on record: the one on record may be gone. Nobody needs
/// what was on it, so it needs no index, and a label that is not there is no failure of its medium.
pub fn begun(node: &crate::Node, known: &Volume) -> Option<String> {
    let intended = || node.catalog.intended_label(&known.barcode).ok().flatten();
    (known.live_files == 0).then(intended).flatten()
}

/// A volume was mounted: if it carries the label on record, whole, nothing was written of one that was about to be (its drive failed
/// before). Then it is like any other: it gets an index, and another cartridge in its place is an error.
pub fn forget_unwritten(node: &crate::Node, label: &LabelState, barcode: &Barcode) {
    let intended = || node.catalog.intended_label(barcode).ok().flatten();
    let Some(carries) = label.uuid().filter(|carries| intended().is_some_and(|one| one != **carries)) else {
        return;
    };
    match node.catalog.forget_intended_label(barcode, carries) {
        Ok(true) => {
            tracing::info!("volume {barcode} still has its label: nothing of a fresh one was written")
        }
        Ok(false) => {}
        Err(e) => tracing::warn!("volume {barcode}: that it has no fresh label cannot be recorded: {e}"),
    }
}

/// What a fresh label that was cut short has left, as what may be overwritten to carry on. None: the label on record is
/// there, or something that is not ours.
pub fn left_of_one(node: &crate::Node, label: &LabelState, known: &Volume) -> Option<String> {
    let intended = begun(node, known).filter(|_| label.uuid() != Some(&known.uuid))?;
    let recorded = Some(known.uuid.clone()).filter(|uuid| !uuid.is_empty());
    if *label == LabelState::Blank {
        return recorded.or(Some(intended));
    }
    ours_on(label, &[Some(intended), recorded])
}

/// The new append block; inner error: refused, with the reason. `order` is None if no operator asked for it: by
/// force, and with which key.
fn try_label(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    barcode: &Barcode,
    pool: Option<&PoolName>,
    order: Option<(bool, Option<&str>)>,
) -> Result<Result<u64, String>, TapeError> {
    let (force, key) = (order.map(|(force, _)| force), order.and_then(|(_, key)| key));
    let catalog = &worker.node.catalog;
    let known = catalog.volume(barcode).map_err(|e| ours(barcode, "looking it up", e))?;
    if let Some(volume) = &known
        && volume.live_files > 0
    {
        return Ok(Err(format!(
            "volume {barcode} holds what is still needed ({})",
            types::plural(volume.live_files, "file")
        )));
    }
    if let Some(volume) = &known
        && force.is_none()
        && !matches!(volume.state, VolumeState::Blank | VolumeState::Unknown)
    {
        // It became one of ours, or was taken out of use, after the order was given.
        return Ok(Err(format!("volume {barcode} is not blank any more")));
    }
    // Deletions that made it free of files may not be on stable storage yet: after a power failure those files would be
    // back, and their bytes must be too.
    catalog.sync().map_err(|e| ours(barcode, "making sure that nothing on it is needed", e))?;
    if mounted.write_protected() {
        let why = format!("volume {barcode} is write protected; move its tab");
        set_state(worker, barcode, VolumeState::ReadOnly, &why)?;
        return Ok(Err(why));
    }
    let intended = catalog.intended_label(barcode).map_err(|e| ours(barcode, "looking it up", e))?;
    let recorded = known.as_ref().map(|v| v.uuid.clone()).filter(|u| !u.is_empty());
    let ours_on_it = ours_on(mounted.label(), &[intended, recorded]);
    if let Some(why) = worm::refusal(worker, mounted, barcode, pool, ours_on_it.as_deref())? {
        return Ok(Err(why));
    }
    let overwrite = match (mounted.label(), &ours_on_it) {
        (LabelState::Blank, _) => Overwrite::OnlyBlank,
        _ if force == Some(true) => Overwrite::Anything,
        (_, Some(uuid)) => Overwrite::Volume(uuid),
        (other, None) => {
            let what = match other.uuid() {
                Some(_) => format!("it is somebody else's: {}", other.describe()),
                None => format!("it carries {}", other.describe()),
            };
            let advice = "if all on it may be destroyed: `thermo volume label --force`";
            set_state(worker, barcode, VolumeState::Foreign, &format!("{what}; {advice}"))?;
            return Ok(Err(format!("volume {barcode} was not labelled: {what}; {advice}")));
        }
    };
    write_label(worker, mounted, barcode, pool, (overwrite, key)).map(Ok)
}

pub fn write_label(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    barcode: &Barcode,
    pool: Option<&PoolName>,
    (overwrite, key): (Overwrite<'_>, Option<&str>),
) -> Result<u64, TapeError> {
    let (pool, family) = pool.map(family::split).unzip();
    let (pool, family) = (pool.as_ref(), family.flatten().map(str::to_owned));
    let now = crate::now();
    let format = layout::choose(mounted, rule(worker, barcode, pool)?)?;
    let block_size = worker.node.config.tape.block_size.0 as u32;
    let key = key::choose(worker, barcode, pool, key)?;
    // A label that was written, but could not be recorded, must not look like somebody else's. A second attempt has the
    // name of the first: if it is cut short before it has written anything, what is there is still known as ours.
    let catalog = &worker.node.catalog;
    let intended = catalog.intended_label(barcode).map_err(|e| ours(barcode, "looking it up", e))?;
    let uuid = match (overwrite, intended) {
        (Overwrite::Volume(found), Some(intended)) if found == intended => intended,
        _ => uuid::Uuid::new_v4().to_string(),
    };
    catalog.intend_label(barcode, &uuid).map_err(|e| ours(barcode, "preparing its label", e))?;
    let of_pool = Volume { pool: pool.cloned(), family: family.clone(), ..Volume::new(barcode.clone(), now) };
    let origin = super::index::origin(worker, &of_pool).map_err(|e| ours(barcode, "labelling it", e))?;
    let spec = LabelSpec {
        attributes: &origin.attributes(),
        barcode,
        uuid: &uuid,
        block_size,
        pool: pool.map_or("", PoolName::as_str),
        creator: concat!("Thermocline ", env!("CARGO_PKG_VERSION")),
        version: env!("CARGO_PKG_VERSION"),
        now,
        overwrite,
        key: key.as_ref(),
    };
    let before = worm::labelled_before(mounted, &spec)?;
    let key = if before.is_some() { mounted.key() } else { key.as_ref().map(tape::Key::name) };
    let key = key.unwrap_or_default().to_owned();
    let made = match before {
        Some(made) => made,
        None => layout::make(mounted, format, &spec)?,
    };
    let state = if pool.is_some() { VolumeState::Filling } else { VolumeState::Scratch };
    let fresh = Volume { state, pool: pool.cloned(), family, key, ..made };
    catalog.label_volume(barcode, &fresh).map_err(|e| ours(barcode, "recording its label", e))?;
    Ok(fresh.append_block)
}

/// Which format volumes of this pool get.
fn rule(worker: &Worker, barcode: &Barcode, pool: Option<&PoolName>) -> Result<FormatRule, TapeError> {
    let pools = worker.node.catalog.pools().map_err(|e| ours(barcode, "looking up its pool", e))?;
    let of_pool =
        pools.into_iter().find(|known| Some(&known.name) == pool).map_or(FormatRule::Auto, |p| p.format);
    Ok(if of_pool == FormatRule::Auto { worker.node.settings().tape.format } else { of_pool })
}

/// What a volume needs before files of its pool are written to it.
pub enum Fitness {
    /// Nothing.
    Fit,
    /// It was labelled anew, as its pool wants it.
    Labelled,
    /// It holds files in plain, and must not take more.
    Plain,
}

/// A volume that was labelled before anybody knew its pool may lack the pool's encryption, or its format; and one whose fresh
/// label was cut short lacks a label.
pub fn fit(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    volume: &Volume,
    pool: &PoolName,
) -> Result<Fitness, TapeError> {
    if let Some(left) = left_of_one(&worker.node, mounted.label(), volume) {
        let key = Some(volume.key.as_str()).filter(|key| !key.is_empty());
        write_label(worker, mounted, &volume.barcode, Some(pool), (Overwrite::Volume(&left), key))?;
        return Ok(Fitness::Labelled);
    }
    let own = family::pool_of(pool);
    let wanted = layout::choose(mounted, rule(worker, &volume.barcode, Some(&own))?)?;
    let anew = Overwrite::Volume(&volume.uuid);
    if volume.files == 0 && volume.format != wanted {
        let key = mounted.key().map(str::to_owned);
        write_label(worker, mounted, &volume.barcode, Some(pool), (anew, key.as_deref()))?;
        return Ok(Fitness::Labelled);
    }
    if mounted.key().is_some() || !key::encrypts(worker, &volume.barcode, &own)? {
        return Ok(Fitness::Fit);
    }
    if volume.files > 0 || mounted.worm() {
        return Ok(Fitness::Plain);
    }
    write_label(worker, mounted, &volume.barcode, Some(pool), (anew, None))?;
    Ok(Fitness::Labelled)
}

pub fn set_state(worker: &Worker, barcode: &Barcode, state: VolumeState, why: &str) -> Result<(), TapeError> {
    let now = crate::now();
    let done = worker.node.catalog.update_volume(barcode, &mut |v| {
        v.becomes(state, why, now);
    });
    done.map(drop).map_err(|e| ours(barcode, "recording its state", e))
}

fn report(
    worker: &Worker,
    request: RequestId,
    barcode: &Barcode,
    result: &Result<Result<u64, String>, TapeError>,
) {
    let failed = match result {
        Ok(Ok(_)) => None,
        Ok(Err(why)) => Some(why.clone()),
        Err(e) => Some(e.to_string()),
    };
    worker.node.volume_labelled(request, barcode, failed);
}

impl crate::Node {
    /// Tells a label request about one of its volumes.
    pub(super) fn volume_labelled(&self, id: RequestId, barcode: &Barcode, failed: Option<String>) {
        let now = crate::now();
        let told = self.catalog.update_request(id, &mut |r| {
            r.started.get_or_insert(now);
            if r.state == RequestState::Queued {
                r.state = RequestState::Active;
            }
            r.files_done += 1;
            r.files_failed += u64::from(failed.is_some());
            if let Some(why) = &failed {
                r.message = why.clone();
            }
            let over = r.files_done >= r.files_total && r.state != RequestState::Cancelled;
            if over {
                r.finished = Some(now);
                r.state = if r.files_failed > 0 { RequestState::Failed } else { RequestState::Done };
            }
        });
        if let Err(e) = told {
            tracing::error!("request {id} cannot be told about volume {barcode}: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::with_one;
    use super::*;
    use crate::archive::{CheckAsk, Event};
    use crate::{Config, Node};
    use policy::MigrateItem;
    use sched::MaintenanceKind;

    /// The catalogue takes a cartridge for labelled that carries nothing, as its fresh label was cut short.
    #[test]
    fn a_label_that_was_cut_short_is_no_failure_of_the_medium_and_needs_no_index() {
        with_one(|worker, mounted, barcode| {
            let (node, pool) = (&worker.node, PoolName::from("p"));
            node.stop(false);
            node.archive.state.lock().stopping = None;
            let volume = || node.catalog.volume(barcode).unwrap().unwrap();
            let recorded = Volume {
                state: VolumeState::Full,
                uuid: uuid::Uuid::new_v4().to_string(),
                pool: Some(pool.clone()),
                format: VolumeFormat::Ltfs,
                files: 1,
                append_block: 9,
                ..volume()
            };
            let failed = |mounted: &mut Mounted<'_>| {
                node.catalog.put_volume(&recorded).unwrap();
                let e = super::super::write_index(worker, mounted, barcode, tape::Onto::Both).unwrap_err();
                let ended = super::super::worker::Ended::new(DriveNo(0), barcode.clone(), None, Err(e));
                super::super::events::finished(node, ended);
                (volume().state, volume().errors)
            };
            let serious = |mounted: &mut Mounted<'_>| {
                let (answer, answers) = crossbeam_channel::unbounded();
                crate::check::check_volume(worker, mounted, barcode, true, &answer).unwrap();
                let [found] = &answers.recv().unwrap().findings[..] else { panic!("one finding") };
                found.is_serious()
            };
            let indexes = || {
                node.catalog.put_volume(&recorded).unwrap();
                node.archive.state.lock().maintenance.clear();
                super::super::ends::index_what_a_crash_left(node);
                node.archive.state.lock().maintenance.len()
            };
            // Nobody has begun to label it: another cartridge lies in its place.
            assert_eq!((failed(mounted), serious(mounted)), ((VolumeState::Suspect, 1), true));
            assert_eq!(indexes(), 1);
            node.catalog.intend_label(barcode, &uuid::Uuid::new_v4().to_string()).unwrap();
            assert_eq!((failed(mounted), serious(mounted)), ((VolumeState::Suspect, 0), false));
            assert_eq!(indexes(), 0);
            // An operator says that it is good: it gets its label before anything is written to it.
            node.catalog.update_volume(barcode, &mut |v| v.state = VolumeState::Filling).unwrap();
            super::super::migrate::migrate(worker, mounted, barcode, &pool).unwrap();
            assert_eq!(mounted.label().uuid(), Some(volume().uuid.as_str()));
            assert_eq!((volume().state, volume().pool), (VolumeState::Filling, Some(pool.clone())));
            assert_eq!(node.catalog.intended_label(barcode).unwrap(), None);
            // Of the next one nothing was written: when it is mounted again, it has the label on record.
            node.catalog.intend_label(barcode, &uuid::Uuid::new_v4().to_string()).unwrap();
            forget_unwritten(node, &LabelState::Blank, barcode);
            assert!(begun(node, &volume()).is_some());
            forget_unwritten(node, mounted.label(), barcode);
            assert_eq!(begun(node, &volume()), None);
        });
    }

    /// A drive failed before it had written anything of it.
    #[test]
    fn a_label_of_which_nothing_was_written_is_forgotten_when_its_volume_is_mounted() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(Config { state_dir: dir.path().to_owned(), ..Config::default() }).unwrap();
        let barcode = node.catalog.volumes().unwrap()[0].barcode.clone();
        let order = |errand| Event::Errand { kind: MaintenanceKind::Label, volume: barcode.clone(), errand };
        let request =
            Request { files_total: 1, ..Request::new(RequestKind::Label, 0, "v".into(), crate::now()) };
        let request = node.catalog.create_request(&request, &[]).unwrap().id;
        node.archive.send(order(Errand::Label { request, pool: None, force: false, key: None }));
        let until = |what: &str, done: &dyn Fn() -> bool| {
            let begun = std::time::Instant::now();
            while !done() {
                assert!(begun.elapsed() < std::time::Duration::from_secs(120), "{what}");
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        };
        until("it has a label", &|| !node.catalog.volume(&barcode).unwrap().unwrap().uuid.is_empty());
        node.stop(true);
        drop(node);
        let node = Node::start(Config { state_dir: dir.path().to_owned(), ..Config::default() }).unwrap();
        node.catalog.intend_label(&barcode, "fresh").unwrap();
        let (answer, checked) = crossbeam_channel::unbounded();
        node.archive.send(Event::Check(CheckAsk { volumes: vec![barcode.clone()], deep: false, answer }));
        assert_eq!(checked.recv().unwrap().findings, []);
        assert_eq!(node.catalog.intended_label(&barcode).unwrap(), None);
        node.stop(false);
    }

    #[test]
    fn a_volume_that_is_not_blank_any_more_is_labelled_only_by_order() {
        with_one(only_by_order);
    }

    fn only_by_order(worker: &Worker, mounted: &mut Mounted<'_>, barcode: &Barcode) {
        let node = &worker.node;
        let mut labelled = |state| {
            node.catalog.update_volume(barcode, &mut |v| v.state = state).unwrap();
            label(worker, mounted, barcode, Some("p".into()), None).unwrap() > 0
        };
        assert!(!labelled(VolumeState::ReadOnly));
        assert!(labelled(VolumeState::Blank));
        assert!(!labelled(VolumeState::Filling));

        // An order that was cancelled while the volume was fetched is not carried out; one that stands is.
        let request =
            Request { files_total: 2, ..Request::new(RequestKind::Label, 0, "v".into(), crate::now()) };
        let id = node.catalog.create_request(&request, &[]).unwrap().id;
        let uuid = || node.catalog.volume(barcode).unwrap().unwrap().uuid;
        let before = uuid();
        let mut order = |state| {
            node.catalog.update_request(id, &mut |r| r.state = state).unwrap();
            let errand = Errand::Label { request: id, pool: None, force: true, key: None };
            label(worker, mounted, barcode, None, Some(errand)).unwrap();
        };
        order(RequestState::Cancelled);
        assert_eq!(uuid(), before);
        order(RequestState::Active);
        assert_ne!(uuid(), before);

        // Nothing is written to a volume that was taken out of use after the order was given.
        let volume = || node.catalog.volume(barcode).unwrap().unwrap();
        let pool = PoolName::from("primary");
        let item =
            MigrateItem { ino: Ino(77), version: Version(1), copy: CopyNo(1), size: 1, due: Time::default() };
        node.writes.push(&super::super::testing::Rig::batch(&pool, &[item]), false, crate::now());
        use VolumeState as S;
        for state in [S::Exported, S::ReadOnly, S::Broken, S::Filling] {
            // Nor to one that may hold more than the catalogue lists, whatever its state.
            let now = &mut |v: &mut Volume| (v.state, v.holds_more) = (state, state == S::Filling);
            node.catalog.update_volume(barcode, now).unwrap();
            let end = volume().append_block;
            super::super::migrate::migrate(worker, mounted, barcode, &pool).unwrap();
            assert_eq!((volume().append_block, node.writes.queued(&pool)), (end, 1), "{state:?}");
        }
    }
}
