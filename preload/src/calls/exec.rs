//! execve and its relatives; what becomes of the program is for `children`.
//!
//! Nothing may be left pinned in a parent that lent its memory by vfork, so the strings are only touched, and
//! the call is repeated if one of them has left again meanwhile. The entry points are as safe as the
//! functions that they stand in for.
use super::children::Finds::{self, At, ByPath, InSearchPath};
use super::children::environment_for;
use super::held::{Held, is_needed, text, values};
use super::reading::{self, Texts, strings};
use super::robust;
use crate::abi::next::next_functions;
use crate::abi::raw::{self, Span};
use crate::state::owner;
use crate::state::process::{self, Process};
use libc::{c_char, c_int, c_void};
use userswap::internals::{PAGE_BYTES, Table};

/// How often a call is repeated whose strings have left again.
const REPEATS_MAX: u32 = 100;

/// What is started is a descriptor.
const NO_PATH: *const c_char = c"".as_ptr();

/// What a call reads.
#[derive(Clone, Copy)]
struct Strings {
    path: *const c_char,
    /// The arguments and the environment.
    lists: [Texts; 2],
}

fn touch_all(Strings { path, lists }: Strings) {
    let path = Some(path).filter(|path| !path.is_null());
    for text in path.into_iter().chain(lists.into_iter().flat_map(strings)) {
        // A length that is not used would not be measured.
        // SAFETY: the program passes C strings.
        std::hint::black_box(unsafe { libc::strlen(text) });
    }
}

/// The one that there is.
pub fn environment() -> Texts {
    unsafe extern "C" {
        static environ: Texts;
    }
    // SAFETY: the C library's variable; programs change it before they start another.
    unsafe { environ }
}

/// Calls until the kernel could read everything; a spawn returns its error, the others set it.
fn repeat(strings: Strings, call: impl Fn() -> c_int) -> c_int {
    // The kernel looks at them where nobody serves faults any more. A child that borrows this memory has none.
    let _kept = owner::is_here().then(robust::keep);
    if !is_needed() {
        return call();
    }
    let is_fault =
        |result: c_int| result == libc::EFAULT || result == -1 && raw::errno() == libc::EFAULT;
    let mut result = -1;
    for _ in 0..REPEATS_MAX {
        touch_all(strings);
        result = call();
        if !is_fault(result) {
            break;
        }
    }
    result
}

/// The C library's list of what the child of a spawn does first (posix_spawn_file_actions_t).
#[repr(C)]
struct FileActions {
    allocated: c_int,
    used: c_int,
    actions: *const FileAction,
    reserved: [c_int; 16],
}

/// One of them: a number for what it is, and what that needs, among it the path of a file.
#[repr(C)]
struct FileAction {
    kind: c_int,
    words: [*const c_char; 3],
}

/// Bytes of the C library's posix_spawnattr_t.
const ATTRIBUTES_BYTES: usize = size_of::<libc::posix_spawnattr_t>();

/// Keeps what the child of a spawn reads itself of its parent's memory: it has all signals blocked and no handlers, so that a
/// page which has left would be its end by signal.
fn for_child(
    path: *const c_char,
    actions: *const FileActions,
    attributes: *const c_void,
) -> Option<Held> {
    if !is_needed() {
        return None;
    }
    let on_stack = 0u8;
    let attributes = Span::of(attributes, ATTRIBUTES_BYTES);
    let mut held = Held::new(&[Span::of(&raw const on_stack, 1), attributes, text(path)]);
    // SAFETY: null, or what the C library has made.
    if let Some(list) = unsafe { actions.as_ref() } {
        let used = list.used.max(0) as usize;
        held.add(values(actions, 1));
        held.add(values(list.actions, used));
        for action in (0..used).map(|action| list.actions.wrapping_add(action)) {
            // SAFETY: the list has that many.
            let words = unsafe { (*action).words };
            // Whatever is no path is no address of a managed string.
            words.into_iter().for_each(|word| held.add(text(word)));
        }
    }
    keep_search_path(&mut held);
    Some(held)
}

/// Keeps what a shell is given that the C library starts by itself.
pub fn keep_environment(held: &mut Held) {
    let (list, mut count, mut kept) = (environment(), 0, usize::MAX);
    for variable in strings(list) {
        count += 1;
        // Those of one page are kept together.
        let span = text(variable);
        let [first, last] =
            [span.address, span.address + span.bytes.saturating_sub(1)].map(|at| at / PAGE_BYTES);
        if [first, last] != [kept; 2] {
            kept = last;
            held.add(span);
        }
    }
    held.add(values(list, count + 1));
}

/// The variables up to PATH, which the C library looks for: of the others their first two letters.
fn keep_search_path(held: &mut Held) {
    let (list, mut count, mut kept) = (environment(), 0, usize::MAX);
    for variable in strings(list) {
        count += 1;
        // SAFETY: a variable is a C string.
        if unsafe { libc::strncmp(variable, c"PATH=".as_ptr(), 5) } == 0 {
            held.add(values(list, count));
            return held.add(text(variable));
        }
        // Those of one page are kept together.
        let page = variable.addr() / PAGE_BYTES;
        if page != kept {
            kept = page;
            held.add(values(variable, 2));
        }
    }
    held.add(values(list, count + 1));
}

/// Whether the program that is executed takes the place of this one.
enum Place {
    Same,
    Other,
}

/// What says that the C library has no such function: it came with a later one.
fn missing(place: Place) -> c_int {
    match place {
        Place::Same => {
            raw::set_errno(libc::ENOSYS);
            -1
        }
        Place::Other => libc::ENOSYS,
    }
}

/// Has the program that is executed inherit the job's ledger, where it could not open that.
pub fn hand_on() {
    let table = if owner::is_here() { Table::Own } else { Table::OfChild };
    let member = process::current().and_then(|process| process.member.as_ref());
    member.into_iter().for_each(|member| member.hand_on(table));
}

/// Makes a call that executes a program; a record says so where this process becomes it.
fn execute(strings: Strings, finds: Finds, place: Place, call: impl Fn() -> c_int) -> c_int {
    hand_on();
    let engine = process::current().and_then(Process::engine);
    let _executing = match place {
        Place::Same => engine.map(|engine| engine.before_exec(|| finds.name(strings.path))),
        Place::Other => None,
    };
    repeat(strings, call)
}

/// Declares entry points that repeat the real function; those that start a child, and tell its number or a descriptor of it, take
/// the same arguments.
macro_rules! repeating {
    (spawns { $($name:ident $finds:ident,)+ } $($others:tt)+) => {
        repeating! {
            $(
                fn $name(
                    child: *mut c_int, path: *const c_char, actions: *const c_void,
                    attributes: *const c_void, arguments: Texts, environment: Texts,
                ) reads path, arguments, environment, $finds, Other
                    keeping for_child(path, actions.cast(), attributes);
            )+
            $($others)+
        }
    };
    ($(
        fn $name:ident($($argument:ident: $type:ty),* $(,)?)
            reads $path:ident, $arguments:ident, $environment:ident, $finds:expr, $place:ident
            $(keeping $kept:expr)?;
    )+) => {
        next_functions! { $( fn $name($($argument: $type),*) -> c_int; )+ }
        mod exported {
            use super::*;
            $(
                #[unsafe(no_mangle)]
                pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                    if super::$name::NEXT.address().is_null() {
                        return missing(Place::$place);
                    }
                    let given = [$arguments, $environment];
                    if process::current().is_none() || !reading::can_execute($path, given) {
                        return super::$name($($argument),*);
                    }
                    environment_for($path, given, $finds).call($environment, |$environment| {
                        let strings = Strings { path: $path, lists: [$arguments, $environment] };
                        execute(strings, $finds, Place::$place, || {
                            $(let _kept = $kept;)?
                            super::$name($($argument),*)
                        })
                    })
                }
            )+
        }
    };
}

repeating! {
    spawns {
        posix_spawn ByPath, posix_spawnp InSearchPath, pidfd_spawn ByPath, pidfd_spawnp InSearchPath,
    }
    fn execve(path: *const c_char, arguments: Texts, environment: Texts)
        reads path, arguments, environment, ByPath, Same;
    fn execvpe(path: *const c_char, arguments: Texts, environment: Texts)
        reads path, arguments, environment, InSearchPath, Same;
    fn execveat(fd: c_int, path: *const c_char, arguments: Texts, environment: Texts, flags: c_int)
        reads path, arguments, environment, At(fd), Same;
    fn fexecve(fd: c_int, arguments: Texts, environment: Texts)
        reads NO_PATH, arguments, environment, At(fd), Same;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execv(path: *const c_char, arguments: Texts) -> c_int {
    // SAFETY: the same, with the environment that there is.
    unsafe { exported::execve(path, arguments, environment()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(path: *const c_char, arguments: Texts) -> c_int {
    // SAFETY: the same, with the environment that there is.
    unsafe { exported::execvpe(path, arguments, environment()) }
}

/// The environment comes after the null pointer that ends the arguments.
unsafe extern "C" fn with_environment(path: *const c_char, arguments: Texts) -> c_int {
    let mut last = arguments;
    // SAFETY: the list ends with a null pointer, which has not been met yet.
    while !unsafe { last.read() }.is_null() {
        // SAFETY: this was not the last entry.
        last = unsafe { last.add(1) };
    }
    // SAFETY: the program passes it there.
    let environment = unsafe { last.wrapping_add(1).cast::<Texts>().read() };
    // SAFETY: the same, as two lists.
    unsafe { exported::execve(path, arguments, environment) }
}

/// Declares entry points whose arguments come one by one, five of them in registers and the others on the stack. These
/// registers are put below the others, where the address to return to was, and all are a list as it is.
macro_rules! one_by_one {
    ($($name:ident by $function:ident;)+) => { $(
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "push rax",
                "lea rsi, [rsp + 8]",
                "call {function}",
                "pop rcx",
                "add rsp, 40",
                "push rcx",
                "ret",
                function = sym $function,
            );
        }
    )+ };
}

one_by_one! {
    execl by execv;
    execlp by execvp;
    execle by with_environment;
}
