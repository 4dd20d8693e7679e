//! A broken invariant on request, for tests.

use larder_wire::RequestHead;

/// The field by which a test has its request meet a broken invariant.
const BREAK: &str = "X-Test-Break";

/// Breaks an invariant where a test asks for it.
pub fn may_break(place: &str, request: &RequestHead) {
    assert!(request.fields.text(BREAK) != Some(place), "a test asks for this");
}
