//! Diagrams as SVG text, for the command line, the reports and the page alike: bars ([`Bars`],
//! [`GroupedBars`], [`Rows`], [`SmallRows`]), lines and distribution functions ([`Lines`]), lanes
//! over time ([`Timeline`], and [`Strips`] for many thousands of blocks), and for each the same
//! content as a table ([`Table`]) for those who cannot see it or want to compute with it. Colours
//! are told apart with any colour vision and never carry meaning alone. It never reads or writes a
//! file, and the same data gives the same bytes.

mod axis;
mod bars;
mod calls;
mod frame;
mod grouped;
mod lines;
mod palette;
mod rows;
mod small;
mod stack;
mod strips;
mod svg;
mod table;
mod timeline;
pub mod views;

pub use axis::{Axis, Unit};
pub use bars::{Bars, Overlay, Series};
pub use calls::CallClass;
pub use frame::{Frame, Plot};
pub use grouped::{Bar, BarSeries, GroupedBars};
pub use lines::{Line, Lines, Mark, Style};
pub use palette::{Fill, Pattern, categorical, seek};
pub use rows::Rows;
pub use small::SmallRows;
pub use stack::stacked;
pub use strips::{Panel, Strip, StripLane, Strips};
pub use svg::escape;
pub use table::{Table, csv_line};
pub use timeline::{Arrow, Block, Lane, Timeline};
