//! One test per rule, on real files.

use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};

use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl};
use tempfile::TempDir;

use super::existing::OUR_MARK;
use super::*;

const MIB: u64 = 1 << 20;

/// A directory on a disk: the system's directory for temporary files may be in memory.
fn directory() -> TempDir {
    tempfile::tempdir_in(FALLBACK_DIRECTORY).unwrap()
}

fn spec(path: &Path, rest: &str) -> SwapSpec {
    format!("{}{rest}", path.display()).parse().unwrap()
}

/// The one line with which both `check` and `open` refuse, after which nothing has changed.
fn refusal(path: &Path, rest: &str) -> String {
    let before = fs::read(path).ok();
    let spec = spec(path, rest);
    let checked = check(&spec, MIB).unwrap_err().to_string();
    let opened = open(&spec, MIB).unwrap_err().to_string();
    assert_eq!(checked, opened);
    assert_eq!(fs::read(path).ok(), before, "a refused file is as it was");
    assert!(opened.contains(&path.display().to_string()), "{opened}");
    assert_eq!(opened.lines().count(), 1, "{opened}");
    opened
}

/// A file of `bytes` with `mark` where a swap signature would be.
fn marked(path: &Path, bytes: u64, mark: &[u8; 10]) {
    let file = File::create(path).unwrap();
    file.set_len(bytes).unwrap();
    file.write_all_at(mark, 4086).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn a_directory_gets_an_unlinked_sparse_file_with_direct_io() {
    let directory = directory();
    let device = open(&spec(directory.path(), ":1G,pri=5,node=2"), 0).unwrap();
    let file = device.file.unwrap();
    let metadata = file.metadata().unwrap();
    assert_eq!(device.kind, DeviceKind::Temporary);
    assert_eq!((device.bytes, metadata.len()), (1 << 30, 1 << 30));
    assert_eq!((metadata.nlink(), metadata.mode() & 0o777), (0, 0o600));
    assert!(metadata.blocks() * 512 < MIB, "space is taken by use, not by size");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    assert_eq!(device.direct, Direct::Yes);
    assert!(fcntl_getfl(&file).unwrap().contains(OFlags::DIRECT));
    assert_eq!((device.priority, device.node, device.warning), (Some(5), Some(2), None));
}

#[test]
fn a_link_to_a_directory_is_a_directory() {
    let directory = directory();
    let link = directory.path().join("link");
    symlink(directory.path(), &link).unwrap();
    assert_eq!(open(&spec(&link, ""), MIB).unwrap().kind, DeviceKind::Temporary);
}

#[test]
fn without_a_size_the_default_is_taken_in_whole_pages() {
    let directory = directory();
    assert_eq!(open(&spec(directory.path(), ""), MIB + 5).unwrap().bytes, MIB);
    let all = open(&spec(directory.path(), ""), 1 << 50).unwrap();
    assert!(all.bytes < 1 << 50 && all.bytes > MIB, "limited by free space: {}", all.bytes);
}

#[test]
fn a_file_system_in_memory_works_with_a_warning() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let device = open(&spec(directory.path(), ":1M"), 0).unwrap();
    assert!(matches!(device.direct, Direct::No { .. }));
    assert!(!fcntl_getfl(device.file.unwrap()).unwrap().contains(OFlags::DIRECT));
    let warning = device.warning.unwrap();
    assert!(warning.contains("memory") && warning.contains("disk"), "{warning}");
}

#[test]
fn more_than_is_free_is_refused() {
    let directory = directory();
    let refusal = refusal(directory.path(), ":1024T");
    assert!(refusal.contains("1024T asked for, "), "{refusal}");
    assert!(refusal.contains(" free; name a smaller SIZE or another directory"), "{refusal}");
}

#[test]
fn less_than_ten_pages_is_refused() {
    let directory = directory();
    assert!(refusal(directory.path(), ":36K").contains("at least 40K"));
    assert!(open(&"mem:1K".parse().unwrap(), 0).is_err());
}

#[test]
fn memory_has_a_size_and_no_file() {
    let device = open(&"mem:2M,pri=1".parse().unwrap(), 0).unwrap();
    assert!(device.file.is_none() && device.kind == DeviceKind::Memory);
    assert_eq!((device.bytes, device.priority), (2 * MIB, Some(1)));
}

#[test]
fn a_new_file_is_private_and_marked_and_accepted_again() {
    let directory = directory();
    let path = directory.path().join("new");
    assert_eq!(check(&spec(&path, ":1M"), 0).unwrap(), None);
    assert!(!path.exists(), "checking leaves nothing behind");
    let device = open(&spec(&path, ":1M"), 0).unwrap();
    assert_eq!((device.kind, device.bytes), (DeviceKind::File, MIB));
    assert_eq!(device.direct, Direct::Yes);
    let bytes = fs::read(&path).unwrap();
    assert_eq!((bytes.len() as u64, &bytes[4086..4096]), (MIB, &OUR_MARK[..]));
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    drop(device);
    assert_eq!(open(&spec(&path, ""), 0).unwrap().bytes, MIB);
    assert_eq!(open(&spec(&path, ":64K"), 0).unwrap().bytes, 64 << 10);
    assert_eq!(open(&spec(&path, ":2M"), 0).unwrap().bytes, 2 * MIB);
    assert_eq!(fs::metadata(&path).unwrap().len(), 2 * MIB, "ours may grow");
}

#[test]
fn an_empty_file_is_taken_and_a_check_leaves_it_empty() {
    let directory = directory();
    let path = directory.path().join("empty");
    File::create(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(check(&spec(&path, ":1M"), 0).unwrap(), None);
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    let device = open(&spec(&path, ":1M"), 0).unwrap();
    assert_eq!((device.bytes, device.direct), (MIB, Direct::Yes));
    assert_eq!(fs::metadata(&path).unwrap().len(), MIB);
}

#[test]
fn a_swap_file_of_the_kernels_keeps_its_signature_and_its_size() {
    let directory = directory();
    let path = directory.path().join("swapfile");
    marked(&path, MIB, b"SWAPSPACE2");
    assert_eq!(open(&spec(&path, ""), 0).unwrap().bytes, MIB);
    assert_eq!(&fs::read(&path).unwrap()[4086..4096], b"SWAPSPACE2");
    let refusal = refusal(&path, ":2M");
    assert!(refusal.contains("2M asked for, 1M there"), "{refusal}");
}

#[test]
fn somebodys_data_is_refused_and_left_alone() {
    let directory = directory();
    let (short, long) = (directory.path().join("letter"), directory.path().join("photos"));
    fs::write(&short, "dear diary").unwrap();
    marked(&long, MIB, b"S1SUSPEND\0");
    for path in [short, long] {
        assert!(refusal(&path, ":2M").contains("not swap, left untouched"));
    }
}

#[test]
fn a_file_open_to_others_draws_a_warning() {
    let directory = directory();
    let path = directory.path().join("open");
    marked(&path, MIB, OUR_MARK);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let warning = open(&spec(&path, ""), 0).unwrap().warning.unwrap();
    assert!(warning.contains("0644") && warning.contains("chmod 0600"), "{warning}");
}

#[test]
fn a_device_that_another_engine_uses_is_refused() {
    let directory = directory();
    let path = directory.path().join("shared");
    let first = open(&spec(&path, ":1M"), 0).unwrap();
    assert!(refusal(&path, "").contains("another userswap uses it"));
    drop(first);
    open(&spec(&path, ""), 0).unwrap();
}

/// A process that has just ended may keep its files for a moment.
#[test]
fn a_device_that_becomes_free_in_a_moment_is_waited_for() {
    let directory = directory();
    let path = directory.path().join("shared");
    let first = open(&spec(&path, ":1M"), 0).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            drop(first);
        });
        open(&spec(&path, ""), 0).unwrap();
    });
}

#[test]
fn a_link_to_a_file_is_refused_with_its_target() {
    let directory = directory();
    let (link, target) = (directory.path().join("link"), directory.path().join("target"));
    marked(&target, MIB, OUR_MARK);
    symlink(&target, &link).unwrap();
    let target = fs::canonicalize(target).unwrap().display().to_string();
    assert!(refusal(&link, "").contains(&target));
    fs::remove_file(&target).unwrap();
    assert!(refusal(&link, "").contains(&target), "a dangling link is followed no more");
}

#[test]
fn a_directory_that_does_not_exist_is_refused() {
    let directory = directory();
    for name in ["no/such/place", "no/", "no/../x"] {
        assert!(refusal(&directory.path().join(name), "").contains("no such directory"));
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn what_can_hold_no_slots_is_refused_by_its_type() {
    assert!(check(&"/dev/null".parse().unwrap(), MIB).unwrap_err().to_string().contains("charact"));
    let directory = directory();
    let pipe = directory.path().join("pipe");
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
    let error = check(&spec(&pipe, ""), MIB).unwrap_err().to_string();
    assert!(error.contains("a pipe; name a directory"), "{error}");
    let error = check(&"/etc/passwd/x".parse().unwrap(), MIB).unwrap_err().to_string();
    assert!(error.contains("Not a directory"), "{error}");
}

#[test]
fn a_useless_tmpdir_gives_way_to_var_tmp() {
    let directory = directory();
    let good = directory.path().to_owned();
    assert_eq!(directory_or_fallback(Some(good.clone())), good);
    for useless in ["", "relative", "/no/such", "/etc/passwd", "/dev/shm"] {
        assert_eq!(directory_or_fallback(Some(useless.into())), Path::new(FALLBACK_DIRECTORY));
    }
    assert_eq!(directory_or_fallback(None), Path::new(FALLBACK_DIRECTORY));
}

#[test]
fn of_a_device_too_large_the_first_part_is_used_and_the_user_told() {
    let device = open(&"mem:1T".parse().unwrap(), MIB).unwrap();
    let warning = device.warning.unwrap();
    assert!(warning.contains("first 512G of 1T"), "{warning}");
    let default = open(&SwapSpec::at(directory().path()), 1 << 42);
    assert!(default.is_ok_and(|device| device.warning.is_none()), "a default is just smaller");
}
