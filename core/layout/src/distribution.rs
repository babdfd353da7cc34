//! How the bytes of a file are distributed over its datafiles: by equal stripes, or by a list of
//! strips.

use std::sync::Arc;

use weft_base::Layout;

use crate::Strips;

/// How the bytes of a file are distributed. `basic` is `simple_stripe` with one datafile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// `simple_stripe`: stripes of equal size go round the datafiles.
    Stripes {
        /// Bytes in one stripe.
        stripe_bytes: u32,
        /// Number of datafiles, at least 1.
        width: u16,
    },
    /// `varstrip`: a list of strips is repeated over the file.
    Strips(Arc<Strips>),
}

impl Distribution {
    /// That of a layout; `None` if the layout alone does not say it.
    #[inline]
    pub fn of(layout: &Layout) -> Option<Distribution> {
        let Layout { stripe_bytes, width, .. } = *layout;
        (!layout.is_varstrip()).then_some(Distribution::Stripes { stripe_bytes, width })
    }

    /// Number of datafiles.
    #[inline]
    pub fn width(&self) -> u16 {
        match self {
            Distribution::Stripes { width, .. } => *width,
            Distribution::Strips(strips) => strips.width(),
        }
    }
}
