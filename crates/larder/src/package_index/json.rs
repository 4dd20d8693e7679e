//! Reads members of JSON one by one: an index may be long, and none of it is held.

use super::{Body, Unread};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::io::BufReader;
use std::marker::PhantomData;

/// Gives each value of the list or object that is the member `key` of the whole to `take`, until that fails.
pub(super) fn each_in<T: for<'de> Deserialize<'de>>(
    body: Body,
    key: &str,
    mut take: impl FnMut(T) -> Result<(), Unread>,
) -> Result<(), Unread> {
    let mut end = Ok(());
    let mut give = |value: T| {
        end = take(value);
        end.is_ok()
    };
    let mut json = serde_json::Deserializer::from_reader(BufReader::new(body));
    let read = Member { key, of: Values { give: &mut give, values: PhantomData } }.deserialize(&mut json);
    let read = read.and_then(|()| json.end());
    end.and(read.map_err(Unread::from))
}

/// An object of which one member counts.
struct Member<'k, 'f, T> {
    key: &'k str,
    of: Values<'f, T>,
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Member<'_, '_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Member<'_, '_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            match name == self.key {
                true => map.next_value_seed(&mut self.of)?,
                false => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
}

/// The values of a list or an object.
struct Values<'f, T> {
    give: &'f mut dyn FnMut(T) -> bool,
    values: PhantomData<T>,
}

impl<T> Values<'_, T> {
    fn take<E: Error>(&mut self, value: T) -> Result<(), E> {
        if (self.give)(value) { Ok(()) } else { Err(E::custom("not taken")) }
    }
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for &mut Values<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for &mut Values<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list or an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_key::<IgnoredAny>()?.is_some() {
            let value = map.next_value()?;
            self.take(value)?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(value) = list.next_element()? {
            self.take(value)?;
        }
        Ok(())
    }
}
