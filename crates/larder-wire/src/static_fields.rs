//! Look-ups in the static tables of HPACK and QPACK (RFC 7541 appendix A, RFC 9204 appendix A), by the length of the name, so that few names
//! are compared.

/// A static table: names and values.
pub type Table = [(&'static [u8], &'static [u8])];

/// The places of a table's entries by the length of the name, one more than each; 0 behind the last one. `LENGTHS` is one more than the
/// longest name has bytes, `OF_LENGTH` one more than names have the same length.
pub const fn by_length<const OF_LENGTH: usize, const LENGTHS: usize>(table: &Table) -> [[u8; OF_LENGTH]; LENGTHS] {
    let mut by_length = [[0; OF_LENGTH]; LENGTHS];
    let mut at = 0;
    while at < table.len() {
        let of_length = &mut by_length[table[at].0.len()];
        let mut place = 0;
        while of_length[place] > 0 {
            place += 1;
        }
        at += 1;
        of_length[place] = at as u8;
    }
    by_length
}

/// A field, as far as a table has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The entry at this place, from 0, is the field.
    Field(usize),
    /// The entry at this place has its name.
    Name(usize),
    /// No entry has its name.
    Nothing,
}

/// Looks a field up; the case of its name does not count. Of entries with its name alone it is the first one.
pub fn find<const OF_LENGTH: usize>(table: &Table, by_length: &[[u8; OF_LENGTH]], name: &[u8], value: &[u8]) -> Found {
    let mut found = Found::Nothing;
    let of_length = by_length.get(name.len()).map_or(&[][..], |of_length| &of_length[..]);
    for index in of_length.iter().take_while(|index| **index > 0).map(|index| usize::from(*index) - 1) {
        let (its_name, its_value) = table[index];
        if !its_name.eq_ignore_ascii_case(name) {
            continue;
        }
        if its_value == value {
            return Found::Field(index);
        }
        if found == Found::Nothing {
            found = Found::Name(index);
        }
    }
    found
}
