//! Values that are made where they stay.

use std::pin::Pin;

/// A future in a box. Made first and boxed then it would be copied whole, all that it has room for: some thousands of bytes
/// for a fetch (decision 022).
#[inline(always)]
pub fn box_in_place<F>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}
