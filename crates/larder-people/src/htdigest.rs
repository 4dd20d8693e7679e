//! A file of users for Digest: `user:realm:hash`, a line for each, as `htdigest` writes it. The hash is MD5 or SHA-256 of
//! `user:realm:password`, in hexadecimal digits.

use crate::digest::{Algorithm, Ha1};
use crate::groups::{LineFault, lines};
use std::collections::{HashMap, HashSet};

/// The users of one realm.
#[derive(Clone, Debug, Default)]
pub struct Htdigest {
    hashes: HashMap<(String, Algorithm), Ha1>,
    /// Users by the hash that stands for their names (`userhash=true`).
    hashed_names: HashMap<String, String>,
    algorithms: Vec<Algorithm>,
}

impl Htdigest {
    /// Reads the lines of a realm; `Err` has all that is wrong with the file.
    pub fn parse(text: &str, realm: &str) -> Result<Htdigest, Vec<LineFault>> {
        let (mut file, mut faults) = (Htdigest::default(), Vec::new());
        for (number, line) in lines(text) {
            let fields: Vec<&str> = line.split(':').collect();
            let ([user, of_realm, hash], Some(found)) = (&fields[..], fields.last().and_then(|text| Ha1::parse(text)))
            else {
                let what = "write it as `user:realm:hash`; `htdigest FILE REALM USER` does".to_owned();
                faults.push(LineFault { line: number, what });
                continue;
            };
            let _ = hash;
            if *of_realm != realm {
                continue;
            }
            for algorithm in Algorithm::ALL {
                file.hashed_names.insert(algorithm.hash(&[user, ":", realm]), (*user).to_owned());
            }
            file.hashes.insert(((*user).to_owned(), found.0), found.1);
        }
        let users: HashSet<&String> = file.hashes.keys().map(|(user, _)| user).collect();
        let count = |of: Algorithm| file.hashes.keys().filter(|(_, algorithm)| *algorithm == of).count();
        let mut offered: Vec<Algorithm> = Algorithm::ALL.into_iter().filter(|of| count(*of) == users.len()).collect();
        if offered.is_empty() {
            // Users of both kinds: each finds a challenge that it can answer.
            offered = Algorithm::ALL.to_vec();
        }
        file.algorithms = offered;
        if faults.is_empty() { Ok(file) } else { Err(faults) }
    }

    /// The hash of a user's password.
    pub fn hash(&self, user: &str, algorithm: Algorithm) -> Option<&Ha1> {
        self.hashes.get(&(user.to_owned(), algorithm))
    }

    /// The user for whose name a hash stands.
    pub fn user_of_hash(&self, hash: &str) -> Option<&str> {
        self.hashed_names.get(hash).map(String::as_str)
    }

    /// The names of all users.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.hashes.keys().map(|(user, _)| user.as_str())
    }

    /// The algorithms that are offered, the better one first: those that all users can use, or both where none is such.
    pub fn algorithms(&self) -> &[Algorithm] {
        &self.algorithms
    }

    /// Whether there is no user of the realm.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_a_realm() {
        let text = "# people\nada:office:0123456789abcdef0123456789abcdef\nbob:home:0123456789abcdef0123456789abcdef\n";
        let file = Htdigest::parse(text, "office").unwrap();
        assert!(file.hash("ada", Algorithm::Md5).is_some() && file.hash("ada", Algorithm::Sha256).is_none());
        assert!(file.hash("bob", Algorithm::Md5).is_none());
        assert_eq!(file.algorithms(), [Algorithm::Md5]);
        let both = format!("{text}ada:office:{}\n", "0".repeat(64));
        assert_eq!(Htdigest::parse(&both, "office").unwrap().algorithms(), Algorithm::ALL);
        let each = format!("{text}eve:office:{}\n", "0".repeat(64));
        assert_eq!(Htdigest::parse(&each, "office").unwrap().algorithms(), Algorithm::ALL);
        assert_eq!(file.user_of_hash(&Algorithm::Sha256.hash(&["ada:office"])), Some("ada"));
        assert_eq!(Htdigest::parse("ada:office:xyz\nada:0\n", "office").unwrap_err().len(), 2);
    }
}
