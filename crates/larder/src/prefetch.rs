//! Tells the processor what will be read soon.
#![allow(unsafe_code)]

/// Asks for the memory of a value. Nothing waits for it, and nothing is read that the program could see.
#[inline(always)]
pub fn prefetch<T: ?Sized>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = std::ptr::from_ref(value).cast::<i8>();
        let mut at = 0;
        while at < size_of_val(value) {
            // SAFETY: within the value; and a prefetch does nothing that can be seen, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(at)) };
            at += 64;
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It takes any value, of any length, and changes none.
    #[test]
    fn nothing_is_changed() {
        let long = vec![7_u8; 1_000];
        prefetch(&());
        prefetch(&long[..0]);
        prefetch(&long[1..]);
        prefetch("text");
        assert!(long.iter().all(|&byte| byte == 7));
    }
}
