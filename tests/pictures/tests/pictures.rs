//! The pictures in `docs/pictures` equal the simulator's present output, and `docs/choosing.md`
//! shows all of them.
//!
//! Guards: pictures that are older than the code, and figures in the text that were never measured.

use std::fs;
use std::path::{Path, PathBuf};

use tollgate_pictures::{LIMIT, pictures};
use tollgate_report::Theme;
use tollgate_test_support::golden::is_blessing;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

#[test]
fn the_committed_pictures_are_todays() {
    let folder = docs().join("pictures");
    let text = fs::read_to_string(docs().join("choosing.md")).unwrap();
    let mut wrong = Vec::new();
    let mut names = Vec::new();
    for picture in pictures() {
        for (theme, suffix) in [(Theme::Light, "light"), (Theme::Dark, "dark")] {
            let name = format!("{}-{suffix}.svg", picture.name);
            assert!(text.contains(&format!("pictures/{name}")), "choosing.md lacks {name}");
            let file = folder.join(&name);
            let svg = picture.plot.to_svg(theme);
            if is_blessing() {
                fs::create_dir_all(&folder).unwrap();
                fs::write(&file, &svg).unwrap();
            }
            if fs::read_to_string(&file).ok().as_ref() != Some(&svg) {
                wrong.push(name.clone());
            }
            names.push(name);
        }
    }
    assert!(wrong.is_empty(), "draw anew with TOLLGATE_BLESS=1, and look at: {wrong:?}");
    for entry in fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(names.contains(&name), "nothing draws {name}");
    }
}

/// The figures in the text for each picture.
#[test]
fn the_most_in_any_minute_is_as_the_text_says() {
    let text = fs::read_to_string(docs().join("choosing.md")).unwrap();
    for picture in pictures() {
        let said = format!("({} in one minute)", picture.most);
        let after = text.split(&format!("pictures/{}-light.svg", picture.name)).nth(1);
        let after = after.and_then(|text| text.split("<picture>").next()).unwrap_or_default();
        assert!(after.contains(&said), "{}: say {said:?} below its picture", picture.name);
    }
    let most = |name| pictures().into_iter().find(|one| one.name == name).unwrap().most;
    assert_eq!(most("sliding-log"), LIMIT as usize);
}
