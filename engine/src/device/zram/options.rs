//! What a SPEC says about how a compressed device compresses: `algo=`, `level=` and `recompress=` of `zram:`.
use crate::device::spec::{SpecError, set_once};
use crate::device::spec_parts::digits;
use std::fmt;
use std::str::FromStr;
use userswap_policy::named_choice;

/// Levels of zstd, from the fastest to one that takes hundreds of microseconds for a page.
const LEVEL_MIN: i32 = -7;
const LEVEL_MAX: i32 = 12;
const LEVEL_WORDS: &str = "a level of zstd is -7 (fastest) to 12, or auto, and lz4 has none";
const AUTO: &str = "auto";
const AGAIN: &str = "use recompress=LEVEL or recompress=LEVEL:SECONDS, a level of zstd, -7 (fastest) to 12, and at least 1 s";

/// Pages have been there for so many seconds when they are compressed once more.
const COLD_SECONDS: u32 = 30;

const ALGORITHMS: &str = "use algo=lz4 or algo=zstd";

named_choice! {
    /// An algorithm.
    #[derive(Default)]
    pub enum Algorithm, "algorithm" {
        /// Fast.
        #[default]
        Lz4 = "lz4",
        /// Smaller.
        Zstd = "zstd",
    }
}

/// How pages are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Compression {
    /// With which algorithm.
    pub algorithm: Algorithm,
    /// Of zstd; left out, the fixed default.
    pub level: Option<Level>,
    /// How what stays is compressed once more.
    pub again: Option<Again>,
}

/// How hard zstd tries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Level {
    /// At a level of its own.
    Fixed(i32),
    /// At 1, or at -1 or by lz4 where that makes pages hardly larger (`policy::effort`).
    Auto,
}

impl Default for Level {
    /// Half the time of level 1, for a twentieth more memory (docs/tiers.md).
    fn default() -> Self {
        Self::Fixed(-1)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(level) => level.fmt(f),
            Self::Auto => f.write_str(AUTO),
        }
    }
}

impl FromStr for Level {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            AUTO => Ok(Self::Auto),
            _ => level_of(text).map(Self::Fixed).ok_or(()),
        }
    }
}

/// Compressing once more by zstd what stays.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Again {
    /// A level of zstd.
    pub level: i32,
    /// For how long a page must have been there.
    pub seconds: u32,
}

impl fmt::Display for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.level)?;
        if self.seconds != COLD_SECONDS {
            write!(f, ":{}", self.seconds)?;
        }
        Ok(())
    }
}

impl FromStr for Again {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (level, seconds) =
            text.split_once(':').map_or((text, None), |(level, seconds)| (level, Some(seconds)));
        let seconds = seconds.map_or(Some(COLD_SECONDS), digits).filter(|seconds| *seconds > 0);
        Ok(Self { level: level_of(level).ok_or(())?, seconds: seconds.ok_or(())? })
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.algorithm != Algorithm::default() {
            write!(f, ",algo={}", self.algorithm)?;
        }
        self.level.map_or(Ok(()), |level| write!(f, ",level={level}"))?;
        self.again.map_or(Ok(()), |again| write!(f, ",recompress={again}"))
    }
}

/// What the options of `zram:` say, as far as they are read.
#[derive(Clone, Copy, Default)]
pub struct Options {
    algorithm: Option<Algorithm>,
    level: Option<Level>,
    again: Option<Again>,
}

impl Options {
    /// Takes one option; None when it is none of them.
    ///
    /// # Errors
    /// Its value cannot be read, or it is given twice.
    pub fn read(&mut self, spec: &str, option: &str) -> Option<Result<(), SpecError>> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let refused = |allowed| refused(spec, option, allowed);
        let twice = |option| SpecError::OptionTwice { spec: spec.to_owned(), option };
        Some(match name {
            "algo" => value
                .parse()
                .map_err(|_| refused(ALGORITHMS))
                .and_then(|algorithm| set_once(&mut self.algorithm, algorithm, || twice("algo"))),
            "level" => value
                .parse()
                .map_err(|()| refused(LEVEL_WORDS))
                .and_then(|level| set_once(&mut self.level, level, || twice("level"))),
            "recompress" => value
                .parse()
                .map_err(|()| refused(AGAIN))
                .and_then(|again| set_once(&mut self.again, again, || twice("recompress"))),
            _ => return None,
        })
    }

    /// All of them, once the text is read.
    ///
    /// # Errors
    /// A level for an algorithm that has none.
    pub fn done(self, spec: &str) -> Result<Compression, SpecError> {
        let algorithm = self.algorithm.unwrap_or_default();
        match (algorithm, self.level) {
            (Algorithm::Lz4, Some(level)) => Err(SpecError::OptionNeeds {
                spec: spec.to_owned(),
                option: format!("level={level}"),
                other: "algo=zstd",
            }),
            (_, level) => Ok(Compression { algorithm, level, again: self.again }),
        }
    }
}

fn level_of(text: &str) -> Option<i32> {
    text.parse().ok().filter(|level| (LEVEL_MIN..=LEVEL_MAX).contains(level))
}

fn refused(spec: &str, option: &str, allowed: &'static str) -> SpecError {
    SpecError::OptionValue { spec: spec.to_owned(), option: option.to_owned(), allowed }
}
