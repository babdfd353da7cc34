//! Plans and machine profiles that are part of the program, so that they are there wherever it is installed. Their home is `lab/`.

use serde::Serialize;

/// A plan or profile.
pub struct File {
    pub name: &'static str,
    pub what: What,
    pub text: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum What {
    Plan,
    Profile,
}

macro_rules! file {
    ($what:ident, $folder:literal, $name:literal) => {
        File { name: $name, what: What::$what, text: include_str!(concat!("../../../../lab/", $folder, "/", $name, ".toml")) }
    };
}

const FILES: &[File] = &[
    file!(Plan, "plans", "creates"),
    file!(Plan, "plans", "lists-2009"),
    file!(Plan, "plans", "streams"),
    file!(Profile, "profiles", "ethernet-10g"),
    file!(Profile, "profiles", "ethernet-100g"),
    file!(Profile, "profiles", "pvs-2009"),
];

/// A line of `weft sim list`.
#[derive(Serialize)]
pub struct Listed {
    pub name: &'static str,
    pub what: &'static str,
    pub about: String,
}

/// All of them.
pub fn all() -> impl Iterator<Item = &'static File> {
    FILES.iter()
}

/// The one of a kind with this name.
pub fn find(what: What, name: &str) -> Option<&'static File> {
    all().find(|file| file.what == what && file.name == name)
}

/// Names of all of a kind, for error messages.
pub fn names(what: What) -> String {
    all().filter(|file| file.what == what).map(|file| file.name).collect::<Vec<_>>().join(", ")
}

impl File {
    pub fn listed(&self) -> Listed {
        let table: toml::Table = self.text.parse().expect("a test parses every file of the library");
        let about = table.get("about").and_then(|about| about.as_str()).unwrap_or_default().to_string();
        Listed { name: self.name, what: if self.what == What::Plan { "plan" } else { "profile" }, about }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_lab_is_in_the_library_and_sound() {
        for (what, folder) in [(What::Plan, "plans"), (What::Profile, "profiles")] {
            let dir = [env!("CARGO_MANIFEST_DIR"), "../../lab", folder].iter().collect::<std::path::PathBuf>();
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_stem().unwrap().to_str().unwrap();
                let file = find(what, name).unwrap_or_else(|| panic!("{} is not in the library", path.display()));
                assert!(!file.listed().about.is_empty(), "{name} says what it is");
                match what {
                    What::Plan => drop(super::super::plan::Plan::parse(name, file.text, None).unwrap()),
                    What::Profile => drop(super::super::profile::parse(name, file.text).unwrap()),
                }
            }
        }
    }
}
