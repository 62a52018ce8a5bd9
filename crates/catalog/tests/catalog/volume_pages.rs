//! Files of a volume page by page.

use crate::common::{memory, record, root, segment, stamp, user, volume};
use catalog::{Catalog, New};
use types::*;

/// Files in directories that lie in each other.
fn filled() -> crate::common::Fixture {
    let f = memory();
    let c = &f.catalog;
    c.setattr(&root(5), Ino::ROOT, &SetAttr { mode: Some(0o777), ..SetAttr::default() }).unwrap();
    let mut dir = Ino::ROOT;
    for level in 0..4 {
        for n in 0..5 {
            let object = ObjectId(c.alloc_objects(1).unwrap().start);
            let name = format!("f{n}");
            let made = c.create(&user(7, 10), dir, name.as_bytes(), &New::file(0o640, object)).unwrap();
            let ino = made.attr.ino;
            c.observe(&root(20), ino, object, &stamp(100, 20), true, kv::Durability::Relaxed).unwrap();
            record(c, "VA0001L9", 30, vec![segment(ino, Version(1), 1, 100, (0, 100), 0)]);
        }
        let name = format!("d{level}");
        dir = c
            .create(&user(7, 10), dir, name.as_bytes(), &New::node(FileKind::Directory, 0o777))
            .unwrap()
            .attr
            .ino;
    }
    f
}

fn pages(c: &Catalog, limit: usize) -> Vec<(String, TapeFile)> {
    let (mut all, mut next) = (Vec::new(), Some(Vec::new()));
    while let Some(from) = next {
        let (page, further) = c.volume_files_from(&"VA0001L9".into(), &from, limit).unwrap();
        assert!(page.len() <= limit && (page.len() == limit || further.is_none()), "{} rows", page.len());
        all.extend(page);
        next = further;
    }
    all
}

#[test]
fn pages_of_any_length_hold_all_files_in_order() {
    let f = filled();
    let all = f.catalog.volume_files(&"VA0001L9".into(), 0, 1000).unwrap();
    assert_eq!(all.len(), 20);
    assert!(all.iter().any(|(path, _)| path == "/d0/d1/d2/f4"));
    for limit in [1, 2, 3, 7, 19, 20, 21, 1000] {
        assert!(pages(&f.catalog, limit) == all, "{limit} rows at a time");
    }
}

#[test]
fn a_page_of_a_list_that_is_no_more_or_never_was_is_refused() {
    let f = filled();
    let name = Barcode::from("VA0001L9");
    let ask = |from: &[u8]| f.catalog.volume_files_from(&name, from, 3);
    let (_, next) = ask(&[]).unwrap();
    let next = next.unwrap();
    // Another table of the catalogue is none of its files.
    let key = next.windows(2).position(|w| w[0] == 17 || w[0] == 18 || w[0] > 17).unwrap();
    for at in key..next.len() {
        let mut bent = next.clone();
        bent[at] ^= 0xff;
        if let Ok((page, _)) = ask(&bent) {
            assert!(page.iter().all(|(_, file)| file.has_data()), "byte {at}");
        }
    }
    for wrong in [&[1][..], &next[..next.len() - 1], &[9, 9, 9]] {
        let refused = ask(wrong).unwrap_err().to_string();
        assert!(refused.contains("from the beginning"), "{refused}");
    }
    for (path, file) in f.catalog.volume_files(&name, 0, 100).unwrap() {
        let name = path.rsplit('/').next().unwrap();
        let dir = file.path.strip_suffix(name.as_bytes()).unwrap();
        let parent = f.catalog.resolve(&root(40), dir, true).unwrap().attr.ino;
        f.catalog.unlink(&root(40), parent, name.as_bytes(), &|_| false).unwrap();
    }
    f.catalog.label_volume(&name, &volume("VA0001L9", "pool-a")).unwrap();
    let refused = ask(&next).unwrap_err().to_string();
    assert!(refused.contains("another label"), "{refused}");
}
