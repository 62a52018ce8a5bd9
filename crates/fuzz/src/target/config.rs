//! The configuration file and its sizes. A configuration that is accepted is written as one that means the same.

use config::{Config, Size};

pub(super) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    size(text);
    if let Ok(config) = Config::parse(text) {
        // TOML has no integers above i64::MAX, so not everything accepted as text can be written
        if let Ok(written) = toml::to_string(&config) {
            assert_eq!(Config::parse(&written).as_ref(), Ok(&config), "{written}");
        }
    }
}

fn size(text: &str) {
    let parsed = text.parse::<Size>();
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    if let (true, Ok(exact)) = (digits, text.parse::<u64>()) {
        assert_eq!(parsed, Ok(Size(exact)), "bytes are taken as written");
    }
    if let Ok(Size(bytes)) = parsed {
        assert_eq!(bytes.to_string().parse(), Ok(Size(bytes)));
        assert_eq!(format!("{bytes} B").parse(), Ok(Size(bytes)));
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let whole = toml::to_string(&Config::default()).expect("the defaults can be written");
    let texts = ["6 GiB", "500MB", "1.5 TiB", "0", "mount = \"/tc\"\n[disk]\ncapacity = \"1 GiB\"\n"];
    texts.iter().map(|text| text.as_bytes().to_vec()).chain([whole.into_bytes()]).collect()
}
