use super::*;

#[test]
fn an_unknown_key_is_named_with_its_nearest_neighbour() {
    let e = Config::parse("[disk]\nhigh_watermrk = 80\n").unwrap_err();
    assert!(e.contains("high_watermrk") && e.contains("did you mean `high_watermark`?"), "{e}");
}

#[test]
fn sizes_take_units() {
    let c = Config::parse("[library]\ncartridge_capacity = \"1.5 GiB\"\n[disk]\ncapacity = 1000\n").unwrap();
    assert_eq!(c.library.cartridge_capacity, Size(3 << 29));
    assert_eq!(c.disk.capacity, Some(Size(1000)));
    assert_eq!("18014398509481985".parse(), Ok(Size((1 << 54) + 1)), "no byte is lost");
    assert!("16777216 TiB".parse::<Size>().is_err());
    assert!(Config::parse("[disk]\ncapacity = \"3 parsec\"\n").unwrap_err().contains("parsec"));
}

#[test]
fn no_record_size_is_accepted_with_which_nothing_can_be_labelled() {
    for (size, good) in [("4 KiB", true), ("1 MiB", true), ("2 MiB", false), ("4 MiB", false), ("512", false)]
    {
        let parsed = Config::parse(&format!("[tape]\nblock_size = \"{size}\"\n"));
        assert_eq!(parsed.is_ok(), good, "{size}: {parsed:?}");
    }
}

#[test]
fn a_file_that_does_not_say_where_the_state_is_leaves_that_to_the_caller() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("thermo.toml");
    for (text, at) in [
        ("[disk]\ncapacity = 1000\n", "/elsewhere"),
        ("state_dir = \"/var/lib/thermo\"\n", "/var/lib/thermo"),
    ] {
        std::fs::write(&file, text).unwrap();
        let config = Config::load_for(&file, Path::new("/elsewhere")).unwrap();
        assert_eq!(config.state_dir, Path::new(at), "{text}");
    }
}

#[test]
fn a_generation_is_named_as_people_name_it() {
    let read = ["LTO6", "lto-6", "6", "L6", "LTO10"].map(lto_generation);
    assert_eq!(read, [Some(6), Some(6), Some(6), Some(6), Some(10)]);
    assert!(Config::parse("[reclaim]\ngeneration = \"DLT\"\n").unwrap_err().contains("LTO6"));
    assert!(Config::parse("[reclaim]\ndead_percent = 101\n").is_err());
}

#[test]
fn a_class_must_name_known_distinct_pools() {
    let bad = "[[pools]]\nname = \"a\"\n[[classes]]\nname = \"default\"\ncopies = [\"b\"]\n";
    assert!(Config::parse(bad).unwrap_err().contains("did you mean `a`?"));
    let twice = "[[pools]]\nname = \"a\"\n[[classes]]\nname = \"default\"\ncopies = [\"a\", \"a\"]\n";
    assert!(Config::parse(twice).unwrap_err().contains("twice"));
}

#[test]
fn the_default_configuration_is_valid_and_survives_a_round_trip() {
    let text = toml::to_string(&Config::default()).unwrap();
    assert_eq!(Config::parse(&text).unwrap(), Config::default());
}
