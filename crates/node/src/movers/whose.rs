//! Whose a target is. In a cluster several namespaces may live, and each target belongs to one of them, which its disk names: a host that reports its targets
//! to another one (its `cluster.namespace` is lost, or names the wrong addresses) is refused, as objects of the same number would be taken for each other.

use super::DOWN_AFTER;
use crate::Node;
use crate::clock::Moment;
use crate::error::{failure, refused};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use types::{ErrorClass, NodeId, Target, TargetId};
use wire::{Failure, TargetGrant, TargetReport};

/// The namespace to which targets are reported.
pub(super) struct Namespace {
    /// What tells it from every other one; empty: nothing yet.
    site: String,
    /// What targets are told to note: nothing while it may still become another one.
    notes: String,
    /// For people.
    shown: String,
    /// Targets that it knows, as their disks call themselves.
    known: BTreeSet<String>,
    /// Those that an operator took out of the list.
    removed: BTreeMap<String, TargetId>,
    /// Subsystems of which this node has heard, by their sites.
    subsystems: BTreeMap<String, String>,
}

impl Namespace {
    /// Why a target is not this one's, if so.
    fn refuses(&self, said: &TargetReport) -> Option<String> {
        let Self { site, shown, .. } = self;
        let lost = "If its host has lost the line `cluster.namespace` of its configuration, give it that back and start it again.";
        let file = mover::SITE_FILE;
        if !said.site.is_empty() && said.site != *site {
            let of = match self.subsystems.get(&said.site) {
                Some(name) => format!("that of subsystem {name} (site {})", said.site),
                None => format!("site {}", said.site),
            };
            return Some(format!(
                "it belongs to another namespace, {of}, and not to {shown}; nothing is read or changed there. {lost} If it is to become a target of {shown}, and \
                 nothing that lies there is needed any more, write {site} into the file `{file}` of its directory"
            ));
        }
        if let Some(id) = self.removed.get(&said.uuid) {
            return Some(format!(
                "it was target {id} of {shown}, and was taken out of the list; nothing is read or changed there. Take its [[targets]] lines out of the \
                 configuration of its host, and start that again. If new files are to lie on this disk, and nothing that lies there is needed any more, \
                 empty its directory, and take its line out of `<state_dir>/targets` of its host: it is a target with a number of its own then"
            ));
        }
        (said.unclaimed && !self.known.contains(&said.uuid)).then(|| {
            format!(
                "it has objects, its disk does not say of which namespace, and {shown} does not know it; nothing is read or changed there. {lost} If it was a target \
                 of {shown} (whose catalogue was lost, or is from a backup), or nothing that lies there is needed any more, write {site} into the file `{file}` of its directory"
            )
        })
    }

    /// What the host of a target is told that this one does not take.
    fn refusal(&self, said: &TargetReport, why: &str) -> TargetGrant {
        TargetGrant { refused: Some(why.to_owned()), ..self.grant(said, TargetId(0)) }
    }

    /// What the host of a target is told, but for secrets.
    pub(super) fn grant(&self, said: &TargetReport, id: TargetId) -> TargetGrant {
        let (uuid, site) = (said.uuid.clone(), self.notes.clone());
        TargetGrant { uuid, id, turn: 0, keys: Vec::new(), site, refused: None }
    }
}

/// Targets that were reported and refused lately, here or by whom this node asked, with what operators are told.
#[derive(Default)]
pub(super) struct Strangers(Mutex<BTreeMap<String, (Moment, String)>>);

impl Strangers {
    /// A target was refused, or (None) it was not.
    fn note(&self, uuid: &str, told: Option<String>) {
        let mut all = self.0.lock();
        all.retain(|_, (at, _)| at.elapsed() < DOWN_AFTER);
        match told {
            Some(told) => drop(all.insert(uuid.to_owned(), (Moment::now(), told))),
            None => drop(all.remove(uuid)),
        }
    }

    /// What operators are told.
    fn told(&self) -> Vec<String> {
        let all = self.0.lock();
        all.values().filter(|(at, _)| at.elapsed() < DOWN_AFTER).map(|(_, told)| told.clone()).collect()
    }
}

impl Node {
    /// The namespace of this node, to which targets are reported.
    pub(super) fn reported_to(&self) -> Result<Namespace, Failure> {
        let fail = |e| refused("the targets", &e);
        let notes = self.catalog.give_site().map_err(fail)?.unwrap_or_default();
        let site = self.catalog.site().map_err(fail)?.unwrap_or_default();
        let known = self.catalog.targets().map_err(fail)?.into_iter().map(|target| target.uuid).collect();
        let number = |target: Target| (target.uuid, target.id);
        let removed = self.catalog.removed_targets().map_err(fail)?.into_iter().map(number).collect();
        let name = match &self.config.cluster.subsystem {
            Some(name) => format!("subsystem {name}"),
            None => "the first node".to_owned(),
        };
        let shown = format!("the namespace of {name} (site {site})");
        Ok(Namespace { site, notes, shown, known, removed, subsystems: self.known_sites() })
    }

    /// Tells those targets apart that belong here from what others are told.
    pub(super) fn strangers_among<'a>(
        &self,
        who: NodeId,
        reports: &'a [TargetReport],
        here: &Namespace,
    ) -> (Vec<&'a TargetReport>, Vec<TargetGrant>) {
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for said in reports {
            let why = here.refuses(said);
            let told =
                why.as_ref().map(|why| format!("target {} of node {who} is refused: {why}", said.uuid));
            self.movers.strangers.note(&said.uuid, told);
            match why {
                Some(why) => others.push(here.refusal(said, &why)),
                None => own.push(said),
            }
        }
        (own, others)
    }

    /// Which targets were refused lately, here or where this node reports its own.
    pub(crate) fn refused_targets(&self) -> Vec<String> {
        self.movers.strangers.told()
    }

    /// Takes out what this host was not granted; why.
    pub(super) fn without_refused<'a>(
        &self,
        grants: &mut Vec<TargetGrant>,
        found: impl Iterator<Item = (&'a str, &'a Path)>,
    ) -> Option<Failure> {
        let paths: BTreeMap<&str, &Path> = found.collect();
        let mut last = None;
        grants.retain(|grant| {
            let told = grant.refused.as_ref().map(|why| {
                let path = paths
                    .get(grant.uuid.as_str())
                    .map_or_else(String::new, |path| path.display().to_string());
                format!("target {} in {path} is refused: {why}", grant.uuid)
            });
            self.movers.strangers.note(&grant.uuid, told.clone());
            last = told.map(|told| failure(ErrorClass::Invalid, told)).or(last.take());
            grant.refused.is_none()
        });
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(site: &str, unclaimed: bool) -> TargetReport {
        let (uuid, domain, site) = ("u".to_owned(), String::new(), site.to_owned());
        TargetReport { uuid, domain, capacity: 2, free: 1, turn: 0, site, unclaimed }
    }

    fn namespace(site: &str, known: &[&str]) -> Namespace {
        Namespace {
            site: site.into(),
            notes: site.into(),
            shown: format!("the namespace of the first node (site {site})"),
            known: known.iter().map(|uuid| (*uuid).to_owned()).collect(),
            removed: BTreeMap::new(),
            subsystems: [("s".to_owned(), "scratch".to_owned())].into(),
        }
    }

    #[test]
    fn a_target_is_taken_by_its_namespace_and_one_of_nobody_only_where_it_is_known_or_empty() {
        let (new, knows) = (namespace("h", &[]), namespace("h", &["u"]));
        for (site, unclaimed, by_new, by_old) in [
            ("h", false, true, true), // after a rebuild, which took the name back from the tapes
            ("", false, true, true),
            ("", true, false, true), // from a release before this one
            ("s", false, false, false),
            ("other", false, false, false),
        ] {
            let said = said(site, unclaimed);
            let taken = [&new, &knows].map(|namespace| namespace.refuses(&said).is_none());
            assert_eq!(taken, [by_new, by_old], "{said:?}");
        }
        assert!(namespace("", &["u"]).refuses(&said("s", false)).is_some(), "one without a name has none");
    }

    #[test]
    fn who_is_refused_is_told_whose_it_is_and_what_to_do() {
        let why = namespace("h", &[]).refuses(&said("s", false)).unwrap();
        let all = [
            "subsystem scratch (site s)",
            "first node (site h)",
            "cluster.namespace",
            "write h into the file `site`",
        ];
        assert!(all.iter().all(|part| why.contains(part)), "{why}");
        let why = namespace("h", &[]).refuses(&said("x", false)).unwrap();
        assert!(why.contains("another namespace, site x"), "{why}");
    }

    /// It is neither entered, nor does what it says of a turn count; others of the same report are taken.
    #[test]
    fn a_target_of_another_namespace_is_not_entered_and_changes_nothing_here() {
        let dir = tempfile::tempdir().unwrap();
        let config = crate::Config { state_dir: dir.path().to_owned(), ..crate::Config::default() };
        let node = Node::start(config).unwrap();
        node.cluster_init("first").unwrap();
        let (own, turn) = (node.site().unwrap(), node.movers.turn());
        let report = |targets| {
            let order = wire::TargetOrder { data: vec!["a:1".into()], targets };
            node.report_targets(NodeId(1), &order).unwrap()
        };
        let other = TargetReport { uuid: "v".into(), turn: turn + 7, ..said("other", false) };
        let grants = report(vec![other.clone(), said("", false)]);
        let of = |uuid: &str| grants.iter().find(|grant| grant.uuid == uuid).unwrap();
        let refused = of("v");
        assert!(refused.refused.as_ref().is_some_and(|why| why.contains(&own)), "{refused:?}");
        assert!(refused.keys.is_empty() && refused.turn == 0, "it gets no secrets");
        let taken = of("u");
        assert_eq!(
            (taken.refused.as_ref(), taken.turn, taken.site.as_str()),
            (None, turn, ""),
            "its name may change"
        );
        assert_eq!(node.movers.turn(), turn);
        let known = node.catalog.targets().unwrap();
        assert_eq!(known.iter().map(|target| target.uuid.as_str()).collect::<Vec<_>>(), ["u"]);
        let warnings = node.target_warnings().unwrap();
        assert!(warnings.iter().any(|told| told.contains("target v of node 1 is refused")), "{warnings:?}");
        // Once it holds something its name stays, and targets are to note it.
        let made = types::api::FileApi::mkdir(
            &*node,
            &types::Cx::admin(crate::now()),
            types::Ino::ROOT,
            b"d",
            0o755,
        );
        made.unwrap();
        assert_eq!(report(vec![said("", true)])[0].site, own, "it is known");
        report(vec![TargetReport { site: own.clone(), ..other }]);
        assert!(node.refused_targets().is_empty());
        node.stop(true);
    }
}
