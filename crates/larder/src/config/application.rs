//! The names of applications in Python, and of other origins on this machine.

use larder_wire::Host;

/// The forms of an origin, for people.
pub const ORIGIN_FORM: &str = "URL, NAME of an [[origin]], http+unix:/SOCKET, wsgi:MODULE:NAME or asgi:MODULE:NAME";

/// The beginning of the name of an origin behind a Unix socket.
pub(super) const SOCKET: &str = "unix:";

/// The beginning of the name of a group of origins. A letter follows, so that no key of a group is one of a URL.
pub(super) const ORIGIN_GROUP: &str = "origin:";

/// The interface between a server and an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// One request a thread (PEP 3333).
    Wsgi,
    /// Many requests in one event loop (ASGI 3).
    Asgi,
    /// Hooks of a site: they are called for requests and serve none.
    Hooks,
}

impl Interface {
    /// The word before the colon in `origin`.
    pub fn as_str(self) -> &'static str {
        match self {
            Interface::Wsgi => "wsgi",
            Interface::Asgi => "asgi",
            Interface::Hooks => "hooks",
        }
    }
}

/// The name of an application: `wsgi:package.module:name`. A name with `()` behind it is called to make the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    /// How it is called.
    pub interface: Interface,
    /// The whole name.
    pub name: String,
}

impl Application {
    /// Reads such a name; `None` for anything else.
    pub fn parse(text: &str) -> Option<Application> {
        let (word, rest) = text.split_once(':')?;
        let interface = [Interface::Wsgi, Interface::Asgi].into_iter().find(|each| each.as_str() == word)?;
        let (module, object) = rest.split_once(':').map_or((rest, None), |(module, object)| (module, Some(object)));
        let is_named = object.is_none_or(|object| is_dotted(object.strip_suffix("()").unwrap_or(object)));
        (is_dotted(module) && is_named).then(|| Application { interface, name: text.to_owned() })
    }

    /// The hooks in these files.
    pub fn hooks(files: &[String]) -> Application {
        let interface = Interface::Hooks;
        Application { interface, name: format!("{}:{}", interface.as_str(), files.join(",")) }
    }

    /// Whether the origin of this name is an application, and no socket or group.
    pub fn is_origin(host: &Host) -> bool {
        host.is_local() && !host.as_str().starts_with(SOCKET) && !host.as_str().starts_with(ORIGIN_GROUP)
    }
}

/// Names with dots between them, each a word of letters, digits and `_` that begins with no digit.
fn is_dotted(text: &str) -> bool {
    let is_word = |word: &str| {
        let mut letters = word.chars();
        letters.next().is_some_and(|first| first.is_alphabetic() || first == '_')
            && letters.all(|letter| letter.is_alphanumeric() || letter == '_')
    };
    text.len() <= 200 && text.split('.').all(is_word)
}
