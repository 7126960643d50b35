//! What bears on the rows of a comparison.

use crate::rows::Value;

/// What bears on some rows.
#[derive(Debug, Clone, PartialEq)]
pub enum Note {
    /// A circumstance that differs.
    Differs {
        /// Its name, as in the file.
        name: String,
        /// In A; missing where A does not tell.
        a: Option<Value>,
        /// In B, likewise.
        b: Option<Value>,
    },
    /// A sentence.
    Says(String),
}
