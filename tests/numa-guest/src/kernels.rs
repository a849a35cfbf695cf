//! Kernel images: taken from the distribution's packages, unpacked without being installed, and kept.
use crate::outcome::Outcome;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A kernel that a boot needs.
pub struct Series {
    /// How its packages' names begin.
    prefix: &'static str,
    /// The one that was tried; without it any of the series will do.
    pinned: &'static str,
}

/// Has the RFC's lists (until 6.18) and UFFDIO_MOVE (from 6.8).
pub const WITH_MOVE: Series = Series {
    prefix: "linux-image-6.12",
    pinned: "linux-image-6.12.107+deb12-cloud-amd64-unsigned",
};
/// Has userfaultfd and no UFFDIO_MOVE.
pub const WITHOUT_MOVE: Series =
    Series { prefix: "linux-image-6.1.", pinned: "linux-image-6.1.0-56-cloud-amd64-unsigned" };
/// The cloud images have NVMe built in and are half as large; the unsigned ones contain the image itself.
const SUFFIX: &str = "-cloud-amd64-unsigned";

/// An unpacked image.
pub struct Image {
    /// The package it came from.
    pub package: String,
    /// The file to boot.
    pub path: PathBuf,
}

/// The image of a series, from `cache` if it is there.
///
/// # Errors
/// The archive has none, or it cannot be reached.
pub fn image(series: &Series, cache: &Path) -> Result<Image, Outcome> {
    let kept = |package: &str| cache.join(package).join("vmlinuz");
    if kept(series.pinned).exists() {
        return Ok(Image { package: series.pinned.into(), path: kept(series.pinned) });
    }
    let package = choose(series, &offered(series)).or_else(|| choose(series, &listed(cache)));
    let Some(package) = package else {
        return Err(Outcome::Unavailable(format!(
            "no package {}…{SUFFIX}: run apt-get update, on Debian 12 or another system that has it",
            series.prefix
        )));
    };
    let path = kept(&package);
    if !path.exists() {
        unpack(&package, &cache.join(&package))?;
    }
    Ok(Image { package, path })
}

/// The pinned package if it is offered, else the newest.
fn choose(series: &Series, names: &[String]) -> Option<String> {
    let usable = |name: &&String| name.starts_with(series.prefix) && name.ends_with(SUFFIX);
    let usable: Vec<&String> = names.iter().filter(usable).collect();
    let pinned = usable.iter().find(|name| **name == series.pinned);
    let newest = || usable.iter().max_by_key(|name| version(name));
    pinned.or_else(newest).map(|name| (*name).clone())
}

/// The numbers in a name, so that 6.12.9 comes before 6.12.107.
fn version(name: &str) -> Vec<u64> {
    name.split(|sign: char| !sign.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

/// Names of packages that apt knows.
fn offered(series: &Series) -> Vec<String> {
    let output = Command::new("apt-cache").args(["pkgnames", series.prefix]).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
}

/// Names of packages that were unpacked before.
fn listed(cache: &Path) -> Vec<String> {
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Downloads a package into an empty directory and leaves only its image there.
fn unpack(package: &str, directory: &Path) -> Result<(), Outcome> {
    let failed = |what: &str| Outcome::Unavailable(format!("{package}: {what}"));
    let io = |error: std::io::Error| Outcome::Unavailable(format!("{package}: {error}"));
    println!("numa-guest: fetching {package}");
    let _ = fs::remove_dir_all(directory);
    fs::create_dir_all(directory).map_err(io)?;
    let fetched = Command::new("apt-get")
        .args(["download", "--quiet", package])
        .current_dir(directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let archive = fs::read_dir(directory).map_err(io)?.flatten().next();
    let (Ok(true), Some(archive)) = (fetched.map(|status| status.success()), archive) else {
        return Err(failed("apt-get download failed: is there a network?"));
    };
    // Complete or not there at all, whatever happens on the way.
    let partial = directory.join("partial");
    let mut files = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(archive.path())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(io)?;
    let image = Command::new("tar")
        .args(["--extract", "--to-stdout", "--wildcards", "./boot/vmlinuz-*"])
        .stdin(files.stdout.take().expect("the output is a pipe"))
        .stdout(File::create(&partial).map_err(io)?)
        .status()
        .map_err(io)?;
    if !files.wait().map_err(io)?.success() || !image.success() {
        return Err(failed("has no kernel image in it"));
    }
    fs::remove_file(archive.path()).map_err(io)?;
    fs::rename(partial, directory.join("vmlinuz")).map_err(io)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(versions: &[&str]) -> Vec<String> {
        versions.iter().map(|version| format!("linux-image-{version}{SUFFIX}")).collect()
    }

    #[test]
    fn the_pinned_image_is_preferred_to_the_newest() {
        let offered = names(&["6.12.9+deb12", "6.12.107+deb12", "6.12.117+deb12"]);
        assert_eq!(choose(&WITH_MOVE, &offered).as_deref(), Some(WITH_MOVE.pinned));
    }

    #[test]
    fn without_the_pinned_image_the_newest_of_the_series_is_taken() {
        let offered = names(&["6.12.9+deb12", "6.12.120+deb12", "6.12.99+deb12", "6.1.0-99"]);
        let expected = format!("linux-image-6.12.120+deb12{SUFFIX}");
        assert_eq!(choose(&WITH_MOVE, &offered), Some(expected));
    }

    #[test]
    fn a_series_does_not_take_the_images_of_another() {
        assert_eq!(choose(&WITHOUT_MOVE, &names(&["6.12.107+deb12"])), None);
        assert_eq!(choose(&WITH_MOVE, &["linux-image-6.12-cloud-amd64".to_owned()]), None);
    }
}
