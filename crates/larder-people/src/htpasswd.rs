//! A file of users and hashes of their passwords: `user:hash`, a line for each, as `htpasswd` writes it.

use crate::groups::{LineFault, lines};
use crate::hash::PasswordHash;
use std::collections::HashMap;

/// The users of a file.
#[derive(Clone, Debug, Default)]
pub struct Htpasswd {
    users: HashMap<String, PasswordHash>,
    /// The hash against which the passwords of unknown users are checked.
    decoy: Option<PasswordHash>,
    /// Users whose hash is of a form that is not known, with their lines: they can't log in.
    passed_over: Vec<(String, LineFault)>,
}

impl Htpasswd {
    /// Reads a file; `Err` has all that is wrong with it. A line whose hash is of a form that is not known is passed over, where another one
    /// has a hash that is. No message has a hash.
    pub fn parse(text: &str, decode: impl Fn(&str) -> Option<Vec<u8>>) -> Result<Htpasswd, Vec<LineFault>> {
        let (mut users, mut faults, mut passed_over) = (HashMap::new(), Vec::new(), Vec::new());
        let mut decoy: Option<PasswordHash> = None;
        for (number, line) in lines(text) {
            let mut fault = |what: String| faults.push(LineFault { line: number, what });
            // Some programs write further fields behind the hash.
            let mut fields = line.split(':');
            let (Some(user), Some(hash)) = (fields.next(), fields.next()) else {
                fault("write it as `user:hash`; `htpasswd -B FILE USER` does".to_owned());
                continue;
            };
            match PasswordHash::parse(hash.trim(), &decode) {
                Err(what) => {
                    let what = format!("user {user:?} has {what}");
                    passed_over.push((user.to_owned(), LineFault { line: number, what }));
                }
                Ok(_) if users.contains_key(user) => fault(format!("user {user:?} is there twice")),
                Ok(hash) => {
                    if decoy.as_ref().is_none_or(|decoy| decoy.effort() < hash.effort()) {
                        decoy = Some(hash.clone());
                    }
                    users.insert(user.to_owned(), hash);
                }
            }
        }
        if users.is_empty() {
            faults.extend(passed_over.drain(..).map(|(_, fault)| fault));
            faults.sort_by_key(|fault| fault.line);
        }
        if faults.is_empty() { Ok(Htpasswd { users, decoy, passed_over }) } else { Err(faults) }
    }

    /// The lines that were passed over.
    pub fn passed_over(&self) -> impl Iterator<Item = &LineFault> {
        self.passed_over.iter().map(|(_, fault)| fault)
    }

    /// The names of all users, those who can't log in too.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.users.keys().chain(self.passed_over.iter().map(|(user, _)| user)).map(String::as_str)
    }

    /// The hash of a user, as text by which a changed password is known; `None` where nobody of that name can log in.
    pub fn hash_text(&self, user: &str) -> Option<String> {
        self.users.get(user).map(PasswordHash::text)
    }

    /// Whether this is the password of the user. To refuse an unknown user takes as long as one whose hash takes longest, and one whose
    /// hash takes little about as long: none of them can be told by the time.
    pub fn is_right(&self, user: &str, password: &[u8]) -> bool {
        let hash = self.users.get(user);
        if hash.is_some_and(|hash| hash.is_of(password)) {
            return true;
        }
        if let Some(decoy) = self.decoy_for(hash) {
            std::hint::black_box(decoy.is_of(password));
        }
        false
    }

    /// The hash that is checked too, where that of the user takes less.
    fn decoy_for(&self, hash: Option<&PasswordHash>) -> Option<&PasswordHash> {
        self.decoy.as_ref().filter(|decoy| hash.is_none_or(|hash| hash.effort() < decoy.effort()))
    }

    /// The number of users.
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_their_passwords() {
        let text = "# people\nada:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n\nbob:$5$abcdefgh$gruCpC7VkOTspMQTTSAR8mtlO9Upms.fwqE5y16JVM.:Bob\n";
        let file = Htpasswd::parse(text, |_| None).unwrap();
        assert!(file.is_right("ada", b"secret") && file.is_right("bob", b"secret") && file.len() == 2);
        assert!(
            !file.is_right("ada", b"wrong") && !file.is_right("eve", b"secret") && !file.is_right("Ada", b"secret")
        );
        assert_eq!(file.decoy.as_ref().map(PasswordHash::algorithm), Some("sha-crypt"));
        assert!(!Htpasswd::default().is_right("ada", b""));
    }

    #[test]
    fn the_decoy_is_the_hash_that_takes_longest() {
        let sum = "gruCpC7VkOTspMQTTSAR8mtlO9Upms.fwqE5y16JVM.";
        let text = format!(
            "few:$5$rounds=5000$abcdefgh${sum}\nmany:$5$rounds=10000$abcdefgh${sum}\nnone:$5$abcdefgh${sum}\nold:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n"
        );
        let file = Htpasswd::parse(&text, |_| None).unwrap();
        let decoy_for = |user: &str| file.decoy_for(file.users.get(user));
        let many = file.users.get("many");
        assert!(many.is_some() && file.decoy.as_ref() == many);
        for user in ["nobody", "few", "none", "old"] {
            assert_eq!(decoy_for(user), many, "{user}");
        }
        assert_eq!(decoy_for("many"), None);
        let cost = |cost: &str| format!("ada:$2y${cost}$87Wi/5ciOjaLkbKKgvV9/uWnhz.ULwUQlhzqw5mbc1/3H3b5jQ9DO\n");
        let of_cost = |text: &str| Htpasswd::parse(&cost(text), |_| None).unwrap().decoy.unwrap().effort();
        assert!(of_cost("04") < of_cost("10"));
    }

    #[test]
    fn all_faults_are_named_and_no_hash_is() {
        let good = "eve:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n";
        let faults = Htpasswd::parse(&format!("broken\n{good}{good}"), |_| None).unwrap_err();
        assert_eq!(faults.iter().map(|fault| fault.line).collect::<Vec<_>>(), [1, 3]);
        // One hash that is not known takes nobody else's login away.
        let old = "ada:rqXexS6ZhobKA\nbob:secret\n";
        let file = Htpasswd::parse(&format!("{old}{good}"), |_| None).unwrap();
        assert!(file.is_right("eve", b"secret") && !file.is_right("bob", b"secret") && file.len() == 1);
        assert_eq!(file.passed_over().map(|fault| fault.line).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(file.names().count(), 3);
        let faults = Htpasswd::parse(&format!("{old}broken\n"), |_| None).unwrap_err();
        assert_eq!(faults.iter().map(|fault| fault.line).collect::<Vec<_>>(), [1, 2, 3]);
        let all: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert!(all[0].contains("line 1: user \"ada\"") && all[0].contains("htpasswd -B"), "{}", all[0]);
        assert!(all.iter().all(|fault| !fault.contains("rqXex") && !fault.contains("secret")), "{all:?}");
    }
}
