//! Words of a config and of options, from the names that the servers give them.

use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde::{Deserialize, Deserializer};
use weft_sched::LayerKind;
use weft_serving::{Durability, Engine};

/// An engine, as an option.
pub fn engines() -> impl TypedValueParser<Value = Engine> {
    one_of(Engine::ALL.map(|engine| (engine.name(), engine.about())))
}

/// A durability, as an option.
pub fn durabilities() -> impl TypedValueParser<Value = Durability> {
    one_of(Durability::ALL.map(|durability| (durability.name(), durability.about())))
}

/// A cache layer, as an option.
pub fn layers() -> impl TypedValueParser<Value = LayerKind> {
    one_of(LayerKind::ALL.map(|layer| (layer.name(), layer.about())))
}

/// One of the values with these names and lines for people.
fn one_of<T, const N: usize>(all: [(&'static str, &'static str); N]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = String> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(all.map(|(name, about)| PossibleValue::new(name).help(about))).try_map(|name| name.parse::<T>())
}

/// A value of a config file, by its name.
pub(super) fn by_name<'de, D: Deserializer<'de>, T: FromStr<Err = String>>(input: D) -> Result<Option<T>, D::Error> {
    String::deserialize(input)?.parse().map(Some).map_err(serde::de::Error::custom)
}
