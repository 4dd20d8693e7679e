//! The fault for bad answers: that of the members, or of the request.

/// Whether the bad answers to one request are the request's own fault and not that of the members, once all its tries have ended: so many
/// members gave bad ones, and perhaps another one a good one. An address that answers 500 everywhere takes no member out.
pub fn is_request_to_blame(bad_answers: usize, was_good_elsewhere: bool) -> bool {
    !was_good_elsewhere && bad_answers >= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_to_blame_where_several_fail_and_none_does_well() {
        let cases = [
            (0, false, false),
            (1, false, false),
            (2, false, true),
            (3, false, true),
            (1, true, false),
            (2, true, false),
        ];
        for (bad, was_good, is_to_blame) in cases {
            assert_eq!(is_request_to_blame(bad, was_good), is_to_blame, "{bad} bad, {was_good}");
        }
    }
}
