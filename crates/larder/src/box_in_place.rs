//! Futures that are constructed directly in their box.

use std::pin::Pin;

/// Boxes a future without a copy. A future that is constructed on the stack and boxed then is copied with all the room
/// of its state: some thousands of bytes for a fetch (decision 022).
#[inline(always)]
pub fn box_in_place<F>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}
