//! What becomes of a program that is about to be executed: managed like this one, or not, and then the user is told.
//!
//! The dynamic linker puts this library into a program if the environment says so, the program is one that it
//! loads, and the file can be read. An environment that was cleared (env -i, su) is given back what it needs,
//! unless USERSWAP_OPTIONS is there and empty: that is how one asks for a child without. A child of vfork
//! runs all this: memory is the parent's, and what is allocated is freed before exec.
use super::reading::{Texts, strings};
use crate::abi::raw;
use crate::abi::symbols::{self, Object};
use crate::state::notices;
use libc::{c_char, c_int};
use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use userswap::internals::OPTIONS_VARIABLE;
use userswap::internals::elf::{self, Linkage};
use userswap::internals::sanitizer::has_sanitizer;
use userswap::internals::script::{self, Reader};

const PRELOAD_VARIABLE: &str = "LD_PRELOAD";
/// Larger environments are not given back what they lack.
const ENTRIES_MAX: usize = 1024;
const TEXT_BYTES: usize = 4096;
/// Asks for a program without userswap.
const NO_OPTIONS: &[u8] = b"USERSWAP_OPTIONS=\0";
/// As many scripts reading scripts as the kernel follows.
const SCRIPT_DEPTH_MAX: u32 = 5;
/// Tells this matter from others in what the job has told.
const MATTER: u64 = 1;

/// What a managed program has in its environment.
pub struct Ours {
    /// `LD_PRELOAD=…`, this library alone.
    preload: Vec<u8>,
    /// The path of this library.
    injected: PathBuf,
    /// `USERSWAP_OPTIONS=…`
    options: Vec<u8>,
}

static OURS: OnceLock<Ours> = OnceLock::new();

/// In the constructor: programs write over the environment that they start with. Others may come before this library in
/// LD_PRELOAD (fakeroot, heaptrack): the dynamic linker knows what it was called there.
pub fn start(options: &CStr) {
    let own = |object: &Object| object.is_ours().then(|| object.path().to_vec());
    let Some(library) = symbols::each_object(own) else { return };
    let entry = |name: &str, value: &[u8]| [name.as_bytes(), b"=", value, b"\0"].concat();
    let _ = OURS.set(Ours {
        preload: entry(PRELOAD_VARIABLE, &library),
        injected: OsString::from_vec(library).into(),
        options: entry(OPTIONS_VARIABLE, options.to_bytes()),
    });
}

/// Room for an environment on the stack of the caller.
struct Room {
    entries: [MaybeUninit<*const c_char>; ENTRIES_MAX],
    text: [u8; TEXT_BYTES],
}

impl Room {
    /// Adds a part of the text; None if there is no room.
    fn add(&mut self, end: &mut usize, part: &[u8]) -> Option<()> {
        self.text.get_mut(*end..*end + part.len())?.copy_from_slice(part);
        *end += part.len();
        Some(())
    }
}

/// What becomes of the environment of a program that is executed.
#[derive(Clone, Copy)]
pub enum Environment {
    /// It stays.
    AsItIs,
    /// It is given back what it lacks, with these options.
    Completed(&'static Ours, &'static [u8]),
    /// This library is taken out of it.
    Without(&'static Ours),
}

/// What the environment of a program that is executed lacks; tells of one that will not be managed. `finds` says how the program
/// was named.
pub fn environment_for(
    path: *const c_char,
    [arguments, environment]: [Texts; 2],
    finds: Finds,
) -> Environment {
    let Some(ours) = OURS.get().filter(|_| !path.is_null()) else { return Environment::AsItIs };
    // SAFETY: the program passes a C string.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
    let given = Given::of(environment);
    if given.options.is_some_and(<[u8]>::is_empty) {
        return Environment::AsItIs;
    }
    let Some(program) = finds.find(path) else { return Environment::AsItIs };
    let obstacle = match is_zygote(arguments) {
        true => Some(Obstacle::Zygote),
        false => obstacle(&program, ours, SCRIPT_DEPTH_MAX),
    };
    match obstacle {
        None if given.is_complete(ours) => Environment::AsItIs,
        None if given.fits(ours) => Environment::Completed(ours, &ours.options),
        _ => {
            tell(&program, obstacle.unwrap_or(Obstacle::Environment));
            match obstacle {
                Some(Obstacle::Zygote) if given.fits(ours) => {
                    Environment::Completed(ours, NO_OPTIONS)
                }
                Some(Obstacle::Sanitizer) => Environment::Without(ours),
                _ => Environment::AsItIs,
            }
        }
    }
}

/// Tells of what a shell of the C library's will start, if that inherits an environment that lacks something.
pub fn tell_of_shell(environment: Texts) {
    let given = Given::of(environment);
    let is_wanted = !given.options.is_some_and(<[u8]>::is_empty);
    if OURS.get().is_some_and(|ours| is_wanted && !given.is_complete(ours)) {
        tell(Path::new("/bin/sh"), Obstacle::Inherited);
    }
}

impl Environment {
    /// Calls with the environment as it is to be.
    #[inline]
    pub fn call<R>(self, environment: Texts, call: impl FnOnce(Texts) -> R) -> R {
        match self {
            Self::AsItIs => call(environment),
            Self::Completed(ours, options) => {
                let change = |given: &Given, room: &mut Room| given.with(ours, options, room);
                changed(environment, change, call)
            }
            Self::Without(ours) => {
                let change = |given: &Given, room: &mut Room| given.without(ours, room);
                changed(environment, change, call)
            }
        }
    }
}

/// The room that this takes of the stack is taken nowhere else: a handler of signals may execute a program, on a small stack.
#[inline(never)]
fn changed<R>(
    environment: Texts,
    change: impl FnOnce(&Given, &mut Room) -> Option<Texts>,
    call: impl FnOnce(Texts) -> R,
) -> R {
    let mut room = Room { entries: [MaybeUninit::uninit(); ENTRIES_MAX], text: [0; TEXT_BYTES] };
    call(change(&Given::of(environment), &mut room).unwrap_or(environment))
}

/// How a program is named.
#[derive(Clone, Copy)]
pub enum Finds {
    /// By its path.
    ByPath,
    /// As a shell does.
    InSearchPath,
    /// By its path from a directory that is open, or without a path by its own descriptor.
    At(c_int),
}

impl Finds {
    fn find(self, name: &Path) -> Option<PathBuf> {
        let has_directory = name.as_os_str().as_bytes().contains(&b'/');
        match self {
            Self::InSearchPath if !has_directory => search(name),
            Self::At(fd) if fd != libc::AT_FDCWD && !name.is_absolute() => {
                let directory = PathBuf::from(format!("/proc/self/fd/{fd}"));
                Some(if name.as_os_str().is_empty() { directory } else { directory.join(name) })
            }
            _ => Some(name.to_owned()),
        }
    }
}

impl Finds {
    /// What the program is called where it is found; as it was given, if it is not.
    pub fn name(self, path: *const c_char) -> Vec<u8> {
        if path.is_null() {
            return Vec::new();
        }
        // SAFETY: the program passes a C string.
        let given = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
        let found = self.find(given).unwrap_or_else(|| given.to_owned());
        let is_descriptor = found.starts_with("/proc/self/fd");
        let link = is_descriptor.then(|| std::fs::canonicalize(&found).ok()).flatten();
        link.unwrap_or(found).into_os_string().into_encoded_bytes()
    }
}

fn search(name: &Path) -> Option<PathBuf> {
    // SAFETY: the name is a C string, and the value stays while nothing changes it.
    let value = unsafe { libc::getenv(c"PATH".as_ptr()) };
    // SAFETY: as above.
    let value = (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_bytes());
    let directories = value.unwrap_or(b"/bin:/usr/bin").split(|byte| *byte == b':');
    let paths = directories.map(|directory| Path::new(OsStr::from_bytes(directory)).join(name));
    paths.into_iter().find(|path| File::open(path).is_ok())
}

/// Why a program will not be managed.
#[derive(Clone, Copy)]
enum Obstacle {
    Static,
    Narrow,
    Foreign,
    Musl,
    Sanitizer,
    Privileged,
    Unreachable,
    Environment,
    Inherited,
    Zygote,
}

impl Obstacle {
    const fn reason_and_remedy(self) -> &'static str {
        match self {
            Self::Static => "it is statically linked; link it dynamically",
            Self::Narrow => "it is a 32-bit program; use a 64-bit build",
            Self::Foreign => "it is for another processor; use a build for this one",
            Self::Musl => "it is linked to musl; use a build for glibc",
            Self::Sanitizer => {
                "it is built with a sanitizer, which has the address space to itself; use a build without"
            }
            Self::Privileged => {
                "the dynamic linker ignores userswap where privileges change; start it as the user it becomes"
            }
            Self::Unreachable => {
                "it cannot read the library that userswap injects; bind-mount /run/userswap-0-lib into its root \
                 directory"
            }
            Self::Environment => {
                "its environment has no LD_PRELOAD, and is too large to be given it; keep LD_PRELOAD and \
                 USERSWAP_OPTIONS"
            }
            Self::Inherited => {
                "system() and popen() give it an environment without LD_PRELOAD; keep LD_PRELOAD and USERSWAP_OPTIONS"
            }
            Self::Zygote => "its sandbox lets no engine work; start it with --no-sandbox",
        }
    }
}

fn tell(program: &Path, obstacle: Obstacle) {
    notices::count_child();
    let name = program.as_os_str().as_bytes();
    notices::tell_once(
        MATTER,
        name,
        format_args!(
            "{} runs outside the budget: {}",
            program.display(),
            obstacle.reason_and_remedy()
        ),
    );
}

/// What will keep the library out of a program. A file that cannot be read, or is none, is the kernel's to refuse.
fn obstacle(path: &Path, ours: &Ours, depth: u32) -> Option<Obstacle> {
    let file = File::open(path).ok()?;
    let mut start = [0; script::LINE_BYTES_MAX];
    let bytes = file.read_at(&mut start, 0).ok()?;
    if elf::is_elf(&start[..bytes]) {
        return match elf::linkage(&file).ok()? {
            Linkage::Static => Some(Obstacle::Static),
            Linkage::Narrow => Some(Obstacle::Narrow),
            Linkage::Foreign { .. } => Some(Obstacle::Foreign),
            Linkage::Dynamic(interpreter) if interpreter.is_musl() => Some(Obstacle::Musl),
            Linkage::Dynamic(_) if changes_privileges(&file) => Some(Obstacle::Privileged),
            Linkage::Dynamic(_) if has_sanitizer(&file) => Some(Obstacle::Sanitizer),
            Linkage::Dynamic(_) => {
                File::open(&ours.injected).is_err().then_some(Obstacle::Unreachable)
            }
        };
    }
    let reader = script::reader(&start[..bytes]).filter(|_| depth > 0)?;
    let reader = match reader {
        Reader::Path(path) => PathBuf::from(path),
        Reader::Searched(name) => search(Path::new(&name))?,
    };
    obstacle(&reader, ours, depth - 1)
}

/// Whether the kernel tells the dynamic linker to trust nothing in the environment.
fn changes_privileges(file: &File) -> bool {
    let (users, groups) = (raw::users(), raw::groups());
    if users.real != users.effective || groups.real != groups.effective {
        return true;
    }
    let (user, group) = (users.effective, groups.effective);
    // SAFETY: asks for a flag.
    let gains_none = unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) } == 1;
    let Ok(found) = file.metadata() else { return false };
    let is_setuid = found.mode() & 0o4000 != 0 && found.uid() != user;
    let is_setgid = found.mode() & 0o2010 == 0o2010 && found.gid() != group;
    !gains_none && (is_setuid || is_setgid || user != 0 && has_capabilities(file))
}

fn has_capabilities(file: &File) -> bool {
    let (name, nowhere) = (c"security.capability".as_ptr(), std::ptr::null_mut());
    // SAFETY: asks for a size.
    unsafe { libc::fgetxattr(file.as_raw_fd(), name, nowhere, 0) > 0 }
}

/// Whether a program is started as what Chromium and Electron fork their processes from, with their sandbox: it ends if it finds
/// directories open, and the filters of those processes (seccomp) let none of the engine's calls pass.
fn is_zygote(arguments: Texts) -> bool {
    let has = |wanted: &[u8]| texts(arguments).any(|argument| argument == wanted);
    has(b"--type=zygote") && !has(b"--no-sandbox")
}

/// The strings of a list, which stay during the call; none of no list.
fn texts(list: Texts) -> impl Iterator<Item = &'static [u8]> {
    // SAFETY: an entry is a C string.
    strings(list).map(|text| unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// The value that an entry of an environment gives a variable, if it is that variable's.
fn value<'a>(entry: &'a [u8], name: &str) -> Option<&'a [u8]> {
    entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

/// What an environment has of what a managed program needs.
struct Given {
    environment: Texts,
    options: Option<&'static [u8]>,
    preload: Option<&'static [u8]>,
}

impl Given {
    fn of(environment: Texts) -> Self {
        let mut given = Self { environment, options: None, preload: None };
        for text in texts(environment) {
            given.options = given.options.or_else(|| value(text, OPTIONS_VARIABLE));
            given.preload = given.preload.or_else(|| value(text, PRELOAD_VARIABLE));
        }
        given
    }

    fn names(&self, library: &Path) -> bool {
        let library = library.as_os_str().as_bytes();
        self.preloaded().any(|name| name == library)
    }

    /// The libraries that are to be preloaded.
    fn preloaded(&self) -> impl Iterator<Item = &'static [u8]> {
        self.preload.unwrap_or_default().split(|byte| matches!(byte, b':' | b' '))
    }

    fn is_complete(&self, ours: &Ours) -> bool {
        self.options.is_some() && self.names(&ours.injected)
    }

    /// Whether there is room for it, with what it lacks and the null pointer at its end.
    fn fits(&self, ours: &Ours) -> bool {
        let others = self.preload.map_or(0, <[u8]>::len);
        texts(self.environment).count() + 3 <= ENTRIES_MAX
            && ours.preload.len() + 1 + others <= TEXT_BYTES
    }

    /// The same with this library and these options; None if there is no room.
    fn with(&self, ours: &Ours, options: &[u8], room: &mut Room) -> Option<Texts> {
        let preload = match self.preload.filter(|others| !others.is_empty()) {
            None => ours.preload.as_ptr(),
            Some(others) => {
                let mut end = 0;
                let all = [ours.preload.strip_suffix(b"\0")?, b":", others, b"\0"];
                all.iter().try_for_each(|part| room.add(&mut end, part))?;
                room.text.as_ptr()
            }
        };
        self.others_and(&[preload, options.as_ptr()], room)
    }

    /// The same without this library; None if there is no room.
    fn without(&self, ours: &Ours, room: &mut Room) -> Option<Texts> {
        let own = ours.injected.as_os_str().as_bytes();
        let (mut end, mut count) = (0, 0);
        room.add(&mut end, PRELOAD_VARIABLE.as_bytes())?;
        for name in self.preloaded() {
            if name != own && !name.is_empty() {
                room.add(&mut end, if count == 0 { b"=" } else { b":" })?;
                room.add(&mut end, name)?;
                count += 1;
            }
        }
        room.add(&mut end, b"\0")?;
        let preload = [room.text.as_ptr()];
        self.others_and(if count == 0 { &[] } else { &preload }, room)
    }

    /// All entries but our two, and then these.
    fn others_and(&self, last: &[*const u8], room: &mut Room) -> Option<Texts> {
        let is_other = |text: &&[u8]| {
            [OPTIONS_VARIABLE, PRELOAD_VARIABLE].iter().all(|name| value(text, name).is_none())
        };
        let others = texts(self.environment).filter(is_other).map(<[u8]>::as_ptr);
        let ends = last.iter().copied().chain([std::ptr::null()]);
        for (index, entry) in others.chain(ends).enumerate() {
            room.entries.get_mut(index)?.write(entry.cast());
        }
        Some(room.entries.as_ptr().cast())
    }
}
