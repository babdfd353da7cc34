//! The profile of one machine: what the models of the simulator need to know of it, each value with
//! where it comes from.

use std::fmt::Write;

/// What a value of a profile stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A time, in nanoseconds.
    Ns,
    /// A rate, in bytes a second.
    BytesPerS,
    /// A number.
    Count,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Measured by itself.
    Measured,
    /// Varied until simulated probes took as long as real ones.
    Fitted,
    /// Neither: common hardware.
    Assumed,
}

/// One value of a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileValue {
    /// Section and key, as a plan has them.
    pub key: &'static str,
    /// In the unit.
    pub value: f64,
    /// What it is.
    pub unit: Unit,
    /// Where it comes from.
    pub origin: Origin,
}

/// A machine on which clients and servers share processors and the disk.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineProfile {
    /// What a person calls it.
    pub description: String,
    /// All values; those of a section stand together.
    pub values: Vec<ProfileValue>,
}

impl ProfileValue {
    /// As a plan has it, without quotes.
    fn text(&self) -> String {
        match self.unit {
            Unit::Ns => format!("{}ns", self.value.round()),
            Unit::BytesPerS | Unit::Count => format!("{}", self.value.round()),
        }
    }
}

impl MachineProfile {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<f64> {
        self.values.iter().find(|value| value.key == key).map(|value| value.value)
    }

    /// Puts another value under a key that is there.
    pub fn put(&mut self, key: &str, value: f64) {
        let found = self.values.iter_mut().find(|known| known.key == key);
        found.unwrap_or_else(|| unreachable!("{key} is a key of every machine")).value = value;
    }

    /// The values as the option `--set` takes them.
    pub fn settings(&self) -> Vec<String> {
        let constants = CONSTANTS.iter().map(|(section, key, value)| format!("{section}.{key}={value}"));
        constants.chain(self.values.iter().map(|value| format!("{}={}", value.key, value.text()))).collect()
    }

    /// A profile for plans.
    pub fn profile(&self) -> String {
        let mut text = format!(
            "# Made by `weft predict calibrate`. {}: messages between processes of this machine pass no card, and all share its\n\
             # processors and its disk. A plan that sets weft.shared_cores = \"none\" gives each process a machine of its own.\n\
             description = {:?}\n",
            self.description, self.description
        );
        let mut section = "";
        for value in &self.values {
            let (of, key) = value.key.split_once('.').unwrap_or(("", value.key));
            if of != section {
                section = of;
                let _ = writeln!(text, "\n[{section}]");
                for (_, key, value) in CONSTANTS.iter().filter(|(of, ..)| *of == section) {
                    let _ = writeln!(text, "{key} = {value}");
                }
            }
            let origin = match value.origin {
                Origin::Measured => "measured",
                Origin::Fitted => "fitted to probes",
                Origin::Assumed => "assumed",
            };
            let written = if value.unit == Unit::Ns { format!("{:?}", value.text()) } else { value.text() };
            let _ = writeln!(text, "{:<40}# {origin}", format!("{key} = {written}"));
        }
        text
    }
}

/// What no machine has otherwise: section, key and value.
const CONSTANTS: [(&str, &str, &str); 4] = [
    ("node", "instructions_per_second", "1_000_000_000"),
    ("disk", "model", "\"simple\""),
    ("server", "granularity", "\"10MiB\""),
    ("weft", "reads_cached", "\"yes\""),
];

#[cfg(test)]
mod tests {
    use weft_plan::files::Lab;

    #[test]
    fn a_profile_runs_a_plan_as_its_settings_do() {
        let machine = crate::calibrate::start(&crate::calibrate::Primitives::usual(2));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("machine.toml");
        std::fs::write(&path, machine.profile()).expect("a file");
        let lab = Lab::built_in();
        let few = ["workload.files=50".to_string(), "workload.window=4".into()];
        let by_file = [&few[..], &[format!("profile={}", path.display())]].concat();
        let by_settings = [&few[..], &machine.settings()].concat();
        let rates = |set: &[String]| {
            let rows = weft_lab_sim::virtual_phases(&lab, "probes", set).expect("the plan runs");
            rows.iter().map(|row| row.results["operations_per_second"].as_f64().expect("a rate")).collect::<Vec<f64>>()
        };
        let rates_by_file = rates(&by_file);
        assert_eq!(rates_by_file, rates(&by_settings), "{}", machine.profile());
        assert_eq!(rates_by_file.len(), 3, "create, stat and remove");
        let apart = [&by_file[..], &["weft.shared_cores=none".to_string()]].concat();
        assert_ne!(rates_by_file, rates(&apart), "machines of their own");
    }
}
