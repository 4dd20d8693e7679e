//! One row of the settings table: how a value is read from text or TOML, checked and shown.

use super::application::ORIGIN_FORM;
use super::mirrors;
use super::secret::{self, Secret};
use super::spelling::closest;
use super::units::{parse_duration, parse_size, show_duration, show_size};
use larder_rules::template::Template;
use larder_rules::values::Pattern;
use larder_rules::week::Zone;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;
use toml::de::DeValue;

/// Stands in a report for a value that is not for it.
const SET: &str = "(set)";

/// The shortest secret.
const SECRET_LETTERS_MIN: usize = 12;

/// A setting of a `T`.
pub struct Setting<T> {
    /// The name, with the tables it stands in.
    pub name: &'static str,
    /// One sentence or two, for people.
    pub about: &'static str,
    /// Must it be given?
    pub required: bool,
    /// When a change of it takes effect.
    pub changes_at: ChangesAt,
    default_words: Option<&'static str>,
    field: Field<T>,
    low: u64,
    high: u64,
}

/// When a change of a setting takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangesAt {
    /// At a reload; requests under way end as they began.
    Reload,
    /// When the server is started again.
    Restart,
}

impl ChangesAt {
    /// The word of pages and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            ChangesAt::Reload => "reload",
            ChangesAt::Restart => "restart",
        }
    }
}

/// The kind of value, and where in `T` it is stored.
pub enum Field<T> {
    /// Bytes.
    Size(fn(&mut T) -> &mut u64),
    /// Bytes; nothing said differs from 0.
    SizeIfAny(fn(&mut T) -> &mut Option<u64>),
    /// Bytes, or `none` for no limit.
    SizeOrNone(fn(&mut T) -> &mut Option<u64>),
    /// Bytes that are held in memory at once.
    Buffer(fn(&mut T) -> &mut usize),
    /// A number of things.
    Count(fn(&mut T) -> &mut usize),
    /// A number of things, or `none` for no limit.
    CountOrNone(fn(&mut T) -> &mut Option<usize>),
    /// A share in percent.
    Percent(fn(&mut T) -> &mut u32),
    /// A share, from 0 to 1.
    Share(fn(&mut T) -> &mut f64),
    /// A duration.
    Time(fn(&mut T) -> &mut Duration),
    /// A duration, or `none` for no limit.
    TimeOrNone(fn(&mut T) -> &mut Option<Duration>),
    /// A file or folder.
    Path(fn(&mut T) -> &mut PathBuf),
    /// A file or folder, if any.
    PathIfAny(fn(&mut T) -> &mut Option<PathBuf>),
    /// A name by which others refer to it: letters, digits, `-`, `_` and `.`.
    Name(fn(&mut T) -> &mut String),
    /// A text that is shown nowhere; a file names where it is found.
    Secret(fn(&mut T) -> &mut Option<Secret>),
    /// true or false.
    Flag(fn(&mut T) -> &mut bool),
    /// true or false, or `auto` where other settings decide.
    FlagOrAuto(fn(&mut T) -> &mut Option<bool>),
    /// A text with a form of its own; `write` says whether it had that form.
    Text {
        /// The form in a few words.
        form: &'static str,
        /// Shows it.
        read: fn(&T) -> String,
        /// Takes it.
        write: fn(&mut T, &str) -> bool,
    },
    /// A list of such texts.
    Texts {
        /// The form in a few words.
        form: &'static str,
        /// Shows them.
        read: fn(&T) -> Vec<String>,
        /// Empties the list, before the first of a file is taken.
        clear: fn(&mut T),
        /// Takes one more.
        push: fn(&mut T, &str) -> bool,
    },
}

impl<T: Clone> Setting<T> {
    pub(super) const fn new(name: &'static str, field: Field<T>) -> Setting<T> {
        Setting {
            name,
            about: "",
            required: false,
            changes_at: ChangesAt::Reload,
            default_words: None,
            field,
            low: 0,
            high: u64::MAX,
        }
    }

    pub(super) const fn about(mut self, about: &'static str) -> Setting<T> {
        self.about = about;
        self
    }

    pub(super) const fn between(mut self, low: u64, high: u64) -> Setting<T> {
        self.low = low;
        self.high = high;
        self
    }

    pub(super) const fn required(mut self) -> Setting<T> {
        self.required = true;
        self
    }

    pub(super) const fn at_restart(mut self) -> Setting<T> {
        self.changes_at = ChangesAt::Restart;
        self
    }

    pub(super) const fn default_words(mut self, words: &'static str) -> Setting<T> {
        self.default_words = Some(words);
        self
    }

    /// The last part of the name: the key in its TOML table.
    pub fn key(&self) -> &'static str {
        self.name.rsplit('.').next().unwrap_or(self.name)
    }

    /// The form of its values, in a word or two.
    pub fn form(&self) -> &'static str {
        match &self.field {
            Field::Size(_) | Field::SizeIfAny(_) | Field::Buffer(_) => "size",
            Field::SizeOrNone(_) => "size or none",
            Field::Count(_) => "number",
            Field::CountOrNone(_) => "number or none",
            Field::Percent(_) => "percent",
            Field::Share(_) => "share",
            Field::Time(_) => "duration",
            Field::TimeOrNone(_) => "duration or none",
            Field::Path(_) => "file",
            Field::PathIfAny(_) => "file or folder",
            Field::Name(_) => "name",
            Field::Secret(_) => "secret or none",
            Field::Flag(_) => "true or false",
            Field::FlagOrAuto(_) => "true, false or auto",
            Field::Text { form, .. } | Field::Texts { form, .. } => form,
        }
    }

    /// The least and the greatest value, where it has such.
    pub fn range(&self) -> Option<(String, String)> {
        (self.high != u64::MAX).then(|| (self.show_number(self.low), self.show_number(self.high)))
    }

    /// The default in words: what `like` has, or what was said of it.
    pub fn default(&self, like: &T) -> String {
        match self.default_words {
            Some(words) => words.to_owned(),
            None if self.required => "must be given".to_owned(),
            None => format!("`{}`", self.show(like)),
        }
    }

    /// The value in TOML.
    pub fn show(&self, of: &T) -> String {
        self.show_at(&mut of.clone())
    }

    /// Shows without a copy of the whole; changes nothing.
    fn show_at(&self, of: &mut T) -> String {
        match &self.field {
            Field::Size(slot) => quoted(show_size(*slot(of))),
            Field::SizeIfAny(slot) => slot(of).map_or("0".to_owned(), |bytes| quoted(show_size(bytes))),
            Field::SizeOrNone(slot) => quoted(slot(of).map_or("none".to_owned(), show_size)),
            Field::Buffer(slot) => quoted(show_size(*slot(of) as u64)),
            Field::Count(slot) => slot(of).to_string(),
            Field::CountOrNone(slot) => slot(of).map_or(quoted("none"), |count| count.to_string()),
            Field::Percent(slot) => slot(of).to_string(),
            Field::Share(slot) => slot(of).to_string(),
            Field::Time(slot) => quoted(show_duration(*slot(of))),
            Field::TimeOrNone(slot) => quoted(slot(of).map_or("none".to_owned(), show_duration)),
            Field::Path(slot) => quoted(slot(of).display()),
            Field::PathIfAny(slot) => {
                quoted(slot(of).as_ref().map_or_else(String::new, |path| path.display().to_string()))
            }
            Field::Name(slot) => quoted(slot(of)),
            Field::Secret(slot) => quoted(slot(of).as_ref().map_or("none", |_| "(hidden)")),
            Field::Flag(slot) => slot(of).to_string(),
            Field::FlagOrAuto(slot) => slot(of).map_or(quoted("auto"), |flag| flag.to_string()),
            Field::Text { read, .. } => quoted(read(of)),
            Field::Texts { read, .. } => {
                format!("[{}]", read(of).iter().map(quoted).collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// The value for a report that strangers read: numbers, times, flags, and words of choices that the form names. Of texts that
    /// somebody wrote, of paths and of secrets only that there is one.
    pub fn reported(&self, of: &T) -> String {
        let of = &mut of.clone();
        let texts = match &self.field {
            Field::Path(_) | Field::PathIfAny(_) | Field::Name(_) => {
                vec![self.show_at(of).trim_matches('"').to_owned()]
            }
            Field::Secret(slot) => vec![slot(of).as_ref().map_or("none", |_| SET).to_owned()],
            Field::Text { read, .. } => vec![read(of)],
            Field::Texts { read, .. } => read(of),
            Field::Size(_) | Field::SizeIfAny(_) | Field::SizeOrNone(_) | Field::Buffer(_) => return self.show_at(of),
            Field::Count(_) | Field::CountOrNone(_) | Field::Percent(_) | Field::Share(_) => return self.show_at(of),
            Field::Time(_) | Field::TimeOrNone(_) | Field::Flag(_) | Field::FlagOrAuto(_) => return self.show_at(of),
        };
        let is_list = matches!(self.field, Field::Texts { .. });
        let shown = texts.iter().map(|text| match text.as_str() {
            "" => "none",
            text if self.is_choice(text) => text,
            _ => SET,
        });
        let shown = shown.collect::<Vec<_>>().join(", ");
        if is_list { format!("[{shown}]") } else { shown }
    }

    /// Whether a text is `none`, or a word that stands in the form of this setting.
    fn is_choice(&self, text: &str) -> bool {
        let mut words = self.form().split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '-'));
        text == "none" || words.any(|word| word == text)
    }

    /// Takes a value of a TOML file.
    pub(super) fn take(&self, to: &mut T, value: &DeValue<'_>) -> Result<(), Refusal> {
        match (value, &self.field) {
            (DeValue::Boolean(value), Field::Flag(slot)) => *slot(to) = *value,
            (DeValue::Boolean(value), Field::FlagOrAuto(slot)) => *slot(to) = Some(*value),
            (DeValue::String(text), _) => return self.take_text(to, text),
            (DeValue::Integer(number), _) if self.takes_integers() => {
                let number = number.to_string().replace('_', "");
                return self.take_text(to, &number);
            }
            (DeValue::Integer(number), Field::Texts { .. }) => return self.take_text(to, &number.to_string()),
            (DeValue::Float(number), Field::Share(_)) => return self.take_text(to, number.as_str()),
            (DeValue::Array(items), Field::Texts { clear, push, .. }) => {
                clear(to);
                for item in items.iter() {
                    let text = match item.get_ref() {
                        DeValue::String(text) => text.to_string(),
                        DeValue::Integer(number) => number.to_string(),
                        other => {
                            return Err(Refusal::new(
                                format!("a list of texts is expected, it has {}", kind(other)),
                                None,
                            ));
                        }
                    };
                    if !push(to, &text) {
                        return Err(Refusal { at: Some(item.span()), ..self.refuse(&text) });
                    }
                }
            }
            (DeValue::Integer(number), Field::Time(_) | Field::TimeOrNone(_)) => {
                let hint = format!("say of what: \"{number}s\" or \"{number}m\"");
                return Err(Refusal::new(format!("{number} is no duration"), Some(hint)));
            }
            (other, _) => {
                return Err(Refusal::new(format!("{} is expected, not {}", self.article(), kind(other)), self.hint()));
            }
        }
        Ok(())
    }

    /// Takes a value from a flag of the command line, where a yes or no is a text too.
    pub(super) fn take_flag(&self, to: &mut T, text: &str) -> Result<(), Refusal> {
        match (&self.field, text.parse()) {
            (Field::Flag(slot), Ok(value)) => *slot(to) = value,
            _ => return self.take_text(to, text),
        }
        Ok(())
    }

    /// Takes a value from a flag, or a text from a file.
    pub(super) fn take_text(&self, to: &mut T, text: &str) -> Result<(), Refusal> {
        let number = self.number(text);
        match (&self.field, number) {
            (Field::Text { write, .. }, _) => return if write(to, text) { Ok(()) } else { Err(self.refuse(text)) },
            (Field::Texts { clear, push, .. }, _) => {
                clear(to);
                return if push(to, text) { Ok(()) } else { Err(self.refuse(text)) };
            }
            (Field::Secret(slot), _) => {
                *slot(to) = match text {
                    "none" => None,
                    text => Some(Secret::new(self.resolve(text)?)),
                };
            }
            (Field::Name(slot), _) if mirrors::is_name(text) => text.clone_into(slot(to)),
            (Field::FlagOrAuto(slot), _) if text == "auto" => *slot(to) = None,
            (Field::Share(slot), _) => *slot(to) = share(text).ok_or_else(|| self.refuse(text))?,
            (Field::Path(slot), _) if !text.is_empty() => *slot(to) = PathBuf::from(text),
            (Field::PathIfAny(slot), _) if !text.is_empty() => *slot(to) = Some(PathBuf::from(text)),
            (_, Some(Number::Of(value))) if !(self.low..=self.high).contains(&value) => {
                return Err(self.out_of_range(text));
            }
            (Field::Size(slot), Some(Number::Of(value))) => *slot(to) = value,
            (Field::SizeIfAny(slot), Some(Number::Of(value))) => *slot(to) = Some(value),
            (Field::SizeOrNone(slot), Some(number)) => *slot(to) = number.some(),
            (Field::Buffer(slot) | Field::Count(slot), Some(Number::Of(value))) => *slot(to) = in_words(value),
            (Field::CountOrNone(slot), Some(number)) => *slot(to) = number.some().map(in_words),
            (Field::Percent(slot), Some(Number::Of(value))) => *slot(to) = value as u32,
            (Field::Time(slot), Some(Number::Of(value))) => *slot(to) = Duration::from_millis(value),
            (Field::TimeOrNone(slot), Some(number)) => *slot(to) = number.some().map(Duration::from_millis),
            _ => return Err(self.refuse(text)),
        }
        Ok(())
    }

    /// The value in the unit of the limits: bytes, milliseconds or things.
    fn number(&self, text: &str) -> Option<Number> {
        let value = match &self.field {
            Field::SizeOrNone(_) | Field::CountOrNone(_) | Field::TimeOrNone(_) if text == "none" => {
                return Some(Number::None);
            }
            Field::Size(_) | Field::SizeIfAny(_) | Field::SizeOrNone(_) | Field::Buffer(_) => parse_size(text)?,
            Field::Count(_) | Field::CountOrNone(_) => text.parse().ok()?,
            Field::Percent(_) => text.strip_suffix('%').unwrap_or(text).trim().parse().ok()?,
            Field::Time(_) | Field::TimeOrNone(_) => u64::try_from(parse_duration(text)?.as_millis()).ok()?,
            Field::Path(_) | Field::PathIfAny(_) | Field::Name(_) | Field::Secret(_) => return None,
            Field::Flag(_) | Field::FlagOrAuto(_) | Field::Share(_) => return None,
            Field::Text { .. } | Field::Texts { .. } => return None,
        };
        Some(Number::Of(value))
    }

    /// Long enough that nobody finds it by trying.
    fn resolve(&self, text: &str) -> Result<String, Refusal> {
        let hint = || Some("write \"${ENV:NAME}\" or \"${FILE:/path}\"".to_owned());
        let value = secret::resolve(text).map_err(|trouble| Refusal::new(trouble, hint()))?;
        match value.len() {
            SECRET_LETTERS_MIN.. => Ok(value),
            _ => Err(Refusal::new(format!("a secret has at least {SECRET_LETTERS_MIN} letters"), hint())),
        }
    }

    /// Gives `to` the value that `from` has, which stays as it is.
    pub fn copy(&self, from: &mut T, to: &mut T) {
        match &self.field {
            Field::Size(slot) => *slot(to) = *slot(from),
            Field::SizeIfAny(slot) | Field::SizeOrNone(slot) => *slot(to) = *slot(from),
            Field::Buffer(slot) | Field::Count(slot) => *slot(to) = *slot(from),
            Field::CountOrNone(slot) => *slot(to) = *slot(from),
            Field::Percent(slot) => *slot(to) = *slot(from),
            Field::Share(slot) => *slot(to) = *slot(from),
            Field::Time(slot) => *slot(to) = *slot(from),
            Field::TimeOrNone(slot) => *slot(to) = *slot(from),
            Field::Path(slot) => slot(to).clone_from(slot(from)),
            Field::PathIfAny(slot) => slot(to).clone_from(slot(from)),
            Field::Name(slot) => slot(to).clone_from(slot(from)),
            Field::Secret(slot) => slot(to).clone_from(slot(from)),
            Field::Flag(slot) => *slot(to) = *slot(from),
            Field::FlagOrAuto(slot) => *slot(to) = *slot(from),
            Field::Text { read, write, .. } => {
                write(to, &read(from));
            }
            Field::Texts { read, clear, push, .. } => {
                clear(to);
                read(from).iter().for_each(|text| {
                    push(to, text);
                });
            }
        }
    }

    /// Whether both have the same value.
    pub fn is_equal(&self, one: &T, other: &T) -> bool {
        self.is_equal_at(&mut one.clone(), &mut other.clone())
    }

    /// Those of `settings` whose values differ, by one copy of each side for all of them: a copy of a large one is dear.
    pub fn differing<'s>(settings: &'s [Setting<T>], one: &T, other: &T) -> Vec<&'s Setting<T>> {
        let (mut one, mut other) = (one.clone(), other.clone());
        settings.iter().filter(|setting| !setting.is_equal_at(&mut one, &mut other)).collect()
    }

    fn is_equal_at(&self, one: &mut T, other: &mut T) -> bool {
        match &self.field {
            Field::Secret(slot) => *slot(one) == *slot(other),
            _ => self.show_at(one) == self.show_at(other),
        }
    }

    /// Whether its value is shown nowhere.
    pub fn is_secret(&self) -> bool {
        matches!(self.field, Field::Secret(_))
    }

    fn takes_integers(&self) -> bool {
        matches!(
            self.field,
            Field::Size(_)
                | Field::SizeIfAny(_)
                | Field::SizeOrNone(_)
                | Field::Buffer(_)
                | Field::Count(_)
                | Field::CountOrNone(_)
                | Field::Percent(_)
                | Field::Share(_)
        )
    }

    fn show_number(&self, value: u64) -> String {
        match &self.field {
            Field::Time(_) | Field::TimeOrNone(_) => show_duration(Duration::from_millis(value)),
            Field::Count(_) | Field::CountOrNone(_) | Field::Percent(_) => value.to_string(),
            _ => show_size(value),
        }
    }

    fn refuse(&self, text: &str) -> Refusal {
        // The words of "a, b or c" that may have been meant.
        let words = self.form().split([',', ' ']).filter(|word| word.len() > 2);
        let meant = closest(text, words).map(|word| format!("did you mean {word}?"));
        let meant = meant.or_else(|| trouble_of(self.form(), text));
        Refusal::new(
            format!("\"{}\" is not {}", super::secret::without_login(text), self.article()),
            meant.or_else(|| self.hint()),
        )
    }

    fn out_of_range(&self, text: &str) -> Refusal {
        let (low, high) = (self.show_number(self.low), self.show_number(self.high));
        Refusal::new(format!("{text} is out of range"), Some(format!("between {low} and {high}")))
    }

    fn article(&self) -> String {
        match self.form() {
            "ADDR:PORT" => "an ADDR:PORT".to_owned(),
            "URL" => "an http or https URL".to_owned(),
            ORIGIN_FORM => {
                "an http or https URL, a socket (http+unix:/…) or an application (wsgi:…, asgi:…)".to_owned()
            }
            "URL or none" => "an http or https URL, or none".to_owned(),
            "networks" => "a network".to_owned(),
            "addresses of mail" => "an address of mail".to_owned(),
            "ports" => "a port".to_owned(),
            "files" => "a file".to_owned(),
            "host patterns" => "a host".to_owned(),
            "times of the week" => "a time of the week".to_owned(),
            "path patterns" => "a path pattern".to_owned(),
            "regular expressions" => "a regular expression".to_owned(),
            "fields" => "a field that a rule may change".to_owned(),
            "names of fields" => "the name of a field that a rule may change".to_owned(),
            "addresses of listeners" => "an address of a listener".to_owned(),
            "media types" => "a media type".to_owned(),
            "parameters" => "a parameter".to_owned(),
            "methods" => "a method".to_owned(),
            "tags" => "a tag".to_owned(),
            "file patterns" => "a file".to_owned(),
            form if form.contains(" or ") || form == "percent" => form.to_owned(),
            form => format!("a {form}"),
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self.form() {
            form if form.starts_with("size") => "write it as 400kB, 64MB, 10GB or 64KiB",
            form if form.starts_with("duration") => "write it as 250ms, 30s, 5m or 2h",
            form if form.starts_with("ADDR:PORT") => "write it as 127.0.0.1:3128 or [::1]:3128",
            ORIGIN_FORM => {
                "write it as http://10.0.0.5:9000, http+unix:/run/app.sock or wsgi:package.module:application"
            }
            "URL" => "write it as http://10.0.0.5:9000, without user, query or fragment",
            "URL or none" => "write it as http://127.0.0.1:4318, without user, query or fragment",
            "share" => "write it as 0.01 or 1%, from 0 to 1",
            "file patterns" => "write it as conf.d/*.toml",
            form if form.ends_with("or a format") => "docs/logs.md lists the fields that may stand in braces",
            "networks" => "write it as 192.168.0.0/16 or 10.1.2.3",
            "times of the week" => "write it as Mon-Fri 08:00-17:00, Sat,Sun or 22:00-06:00",
            "path patterns" => "write it as /folder/**, /*.exe or /**/*.iso",
            "rate" => "write it as 10/s, 600/m or 5000/h, which are requests; bytes a second are a [[bandwidth]]",
            "fields" => {
                "write it as Name: value; fields of the connection, of ranges and of conditions stay as they are"
            }
            "addresses of listeners" => "write it as 127.0.0.1:3128 or :3128",
            "media types" => "write it as application/json or image/*",
            "parameters" => "write it as name, name=value or name*",
            "host patterns" => "write it as www.example.org, *.example.org (all names below) or .example.org (both)",
            "name" if self.name.ends_with(".login") => "write login = \"NAME\", the name of a [[login]]",
            "bandwidth" => "write it as 500kB/s or 16Mbit/s, from 8bit/s to 100GB/s; B are bytes",
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

/// Why a text does not have this form, where its own parser says so.
fn trouble_of(form: &str, text: &str) -> Option<String> {
    match form {
        "time zone" => Zone::find(text).err(),
        "regular expressions" => Pattern::parse(text).err(),
        form if form.ends_with("with placeholders") => Template::parse(text).err(),
        _ => None,
    }
}

/// Why a value is not taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) message: String,
    pub(super) hint: Option<String>,
    /// The place of the part that is wrong, when it is not the whole value.
    pub(super) at: Option<std::ops::Range<usize>>,
}

impl Refusal {
    pub(super) fn new(message: String, hint: Option<String>) -> Refusal {
        Refusal { message, hint, at: None }
    }
}

enum Number {
    None,
    Of(u64),
}

impl Number {
    fn some(self) -> Option<u64> {
        match self {
            Number::None => None,
            Number::Of(value) => Some(value),
        }
    }
}

/// A part of the whole: `0.01`, `1` or `1%`.
fn share(text: &str) -> Option<f64> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => text.parse().ok()?,
    };
    (0.0..=1.0).contains(&share).then_some(share)
}

/// The limits of all such settings lie far below what the machine's words hold.
fn in_words(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

fn quoted(text: impl Display) -> String {
    toml::Value::String(text.to_string()).to_string()
}

/// The type of a TOML value, in words for people.
pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// The value whose word is `text`.
pub(super) fn word<V: Copy>(all: &[V], spoken: fn(V) -> &'static str, text: &str) -> Option<V> {
    all.iter().copied().find(|&value| spoken(value) == text)
}
