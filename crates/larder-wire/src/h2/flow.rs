//! Windows of flow control (RFC 9113 section 5.2 and 6.9).

use super::{ErrorCode, H2Fault, Scope};

/// The largest window.
pub const WINDOW_MAX: u32 = (1 << 31) - 1;
/// The window of a stream before anything else is said, and of a connection always at its start.
pub const WINDOW_AT_FIRST: u32 = 65_535;

/// Bytes of DATA that may still be sent, or received. A change of SETTINGS may make it negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window(i64);

impl Window {
    /// A window of so many bytes.
    pub fn of(bytes: u32) -> Window {
        Window(i64::from(bytes.min(WINDOW_MAX)))
    }

    /// The bytes that may still be sent or received.
    pub fn room(self) -> u32 {
        u32::try_from(self.0).unwrap_or(0)
    }

    /// Takes bytes that were sent or received away; a fault of this scope where there are not so many.
    pub fn take(&mut self, bytes: u32, scope: Scope) -> Result<(), H2Fault> {
        if i64::from(bytes) > self.0 {
            return Err(H2Fault { scope, code: ErrorCode::FlowControl, detail: "more DATA than the window permits" });
        }
        self.0 -= i64::from(bytes);
        Ok(())
    }

    /// Adds what a WINDOW_UPDATE says; a fault of this scope where the window becomes larger than any may be.
    pub fn grow(&mut self, bytes: u32, scope: Scope) -> Result<(), H2Fault> {
        self.shift(i64::from(bytes), scope)
    }

    /// Follows a change of SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113 section 6.9.2).
    pub fn shift(&mut self, by: i64, scope: Scope) -> Result<(), H2Fault> {
        let window = self.0 + by;
        if window > i64::from(WINDOW_MAX) {
            return Err(H2Fault { scope, code: ErrorCode::FlowControl, detail: "a window beyond 2^31 - 1 bytes" });
        }
        self.0 = window;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_holds_what_it_says() {
        let mut window = Window::of(10);
        assert!(window.take(10, Scope::Connection).is_ok());
        assert_eq!(window.room(), 0);
        let fault = window.take(1, Scope::Stream(3)).unwrap_err();
        assert_eq!((fault.scope, fault.code), (Scope::Stream(3), ErrorCode::FlowControl));
        assert!(window.grow(WINDOW_MAX, Scope::Connection).is_ok());
        assert!(window.grow(1, Scope::Connection).is_err());
        assert_eq!(window.room(), WINDOW_MAX);
    }

    #[test]
    fn settings_may_make_it_negative() {
        let mut window = Window::of(WINDOW_AT_FIRST);
        window.take(60_000, Scope::Connection).unwrap();
        window.shift(-i64::from(WINDOW_AT_FIRST), Scope::Connection).unwrap();
        assert_eq!(window.room(), 0);
        window.grow(60_001, Scope::Connection).unwrap();
        assert_eq!(window.room(), 1);
    }
}
