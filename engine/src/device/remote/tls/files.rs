//! Files with certificates, as a user names them: `,cacert=FILE`, `,cert=FILE` and `,key=FILE`, or in the environment.
use std::fmt;
use std::path::{Path, PathBuf};

/// The names of the options.
pub const NAMES: [&str; 3] = ["cacert", "cert", "key"];

/// The variables that say the same where an option does not, in this order.
pub const OF_REDIS: [&str; 3] =
    ["USERSWAP_REDIS_CACERT", "USERSWAP_REDIS_CERT", "USERSWAP_REDIS_KEY"];

/// Those of a store of objects, which knows us by a signature: other programs for such stores read it, too.
#[cfg(feature = "s3")]
pub const OF_STORE: [&str; 1] = ["AWS_CA_BUNDLE"];

/// Files in PEM.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Files {
    /// The authorities that servers' certificates may be of, in the place of the system's.
    pub cacert: Option<PathBuf>,
    /// What servers know us by, and what that is by.
    pub cert: Option<PathBuf>,
    /// The key of the first certificate there.
    pub key: Option<PathBuf>,
}

impl Files {
    fn all(&self) -> [&Option<PathBuf>; 3] {
        [&self.cacert, &self.cert, &self.key]
    }

    fn all_mut(&mut self) -> [&mut Option<PathBuf>; 3] {
        [&mut self.cacert, &mut self.cert, &mut self.key]
    }

    /// The one of an option.
    pub fn named(&mut self, name: &str) -> Option<&mut Option<PathBuf>> {
        let index = NAMES.iter().position(|known| *known == name)?;
        self.all_mut().into_iter().nth(index)
    }

    /// Names them from the root.
    pub fn make_absolute(&mut self, working_directory: &Path) {
        self.all_mut()
            .into_iter()
            .flatten()
            .for_each(|file| *file = working_directory.join(&*file));
    }

    /// Takes what is not said from variables of the environment, as long as that is there.
    ///
    /// # Errors
    /// One depends on a working directory, or cannot be said in a specification.
    pub fn look_in_environment(&mut self, variables: &[&str]) -> Result<(), String> {
        for (file, variable) in self.all_mut().into_iter().zip(variables) {
            let value = std::env::var_os(variable).filter(|value| !value.is_empty());
            let Some(value) = value.filter(|_| file.is_none()) else { continue };
            let path = PathBuf::from(value);
            if !path.is_absolute() {
                let path = path.display();
                return Err(format!(
                    "{variable}={path} depends on a working directory: write it from /"
                ));
            }
            *file = Some(path);
        }
        if self.cert.is_some() != self.key.is_some() {
            let [_, cert, key] = OF_REDIS;
            return Err(format!("{cert} and {key} go together: set both, or none"));
        }
        let has_comma = |file: &&PathBuf| file.to_str().is_none_or(|text| text.contains(','));
        match self.all().into_iter().flatten().find(has_comma) {
            Some(file) => Err(format!(
                "{}: a comma ends the name of a file here: give it another name",
                file.display()
            )),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, file) in NAMES.into_iter().zip(self.all()) {
            if let Some(file) = file {
                write!(f, ",{name}={}", file.display())?;
            }
        }
        Ok(())
    }
}
