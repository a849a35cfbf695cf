//! What runs as long as an engine or one of its regions exists: the core, and the threads that serve it.
use crate::api::heap::Heaps;
use crate::base::error::Error;
use crate::control::Control;
use crate::device::record::Device;
use crate::fault::sigbus;
use crate::process::balance;
use crate::state::core::Core;
use crate::sys::signal::Blocked;
use crate::sys::thread::Thread;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// A core with the threads that serve it.
pub(crate) struct Running {
    pub(crate) core: Arc<Core>,
    /// All but the servers.
    pub(crate) threads: Mutex<Vec<Thread>>,
    pub(crate) servers: Mutex<Vec<Thread>>,
    pub(crate) control: Control,
    pub(crate) heaps: Heaps,
}

impl Running {
    /// Starts the threads of a node each, and the server; after an error, dropping this joins those that run.
    pub(crate) fn start_threads(&self) -> Result<(), Error> {
        // The threads inherit this: a handler of the program must not run on them, it might touch memory that only
        // they can swap in.
        let _blocked = Blocked::new();
        let keep = |thread| self.threads.lock().expect("no thread panics with it").push(thread);
        let keep_server =
            |thread| self.servers.lock().expect("no thread panics with it").push(thread);
        for node in &self.core.nodes {
            keep(crate::reclaim::kswapd::start(self.core.clone(), node.id)?);
        }
        keep_server(crate::fault::server::start(self.core.clone())?);
        if let Some(member) = self.core.member.get() {
            keep(balance::start(self.core.clone(), member.clone())?);
        }
        keep(crate::fault::watchdog::start(self.core.clone())?);
        keep(crate::demotion::start(self.core.clone())?);
        self.core.start_trace()?.into_iter().for_each(keep);
        if self.core.shrinkers.has_thread() {
            keep(crate::reclaim::shrink::start(self.core.clone())?);
        }
        crate::fault::helper::start(&self.core).into_iter().for_each(keep_server);
        self.core.start_talkers(self.core.rings_for_servers());
        self.core.devices.start_keepers().map_err(Error::Thread)
    }

    /// Starts the thread that asks shrinkers, unless it runs.
    pub(crate) fn start_shrinking(&self) -> Result<(), Error> {
        let mut threads = self.threads.lock().expect("no thread panics with it");
        if !self.core.shrinkers.has_thread() {
            threads.push(crate::reclaim::shrink::start(self.core.clone())?);
        }
        Ok(())
    }

    /// Listens on a control socket in the first of `candidates` that will do.
    ///
    /// # Errors
    /// None will do, or no thread is to be had.
    pub(crate) fn start_control(&self, candidates: &[PathBuf]) -> Result<(), Error> {
        self.control.start(&self.core, candidates)
    }

    /// Whether its threads can end and begin again while the engine goes on: a trace ends with its thread, and servers are spoken to
    /// by more threads than these.
    pub(crate) fn can_pause(&self) -> bool {
        !self.core.trace.is_wanted() && !self.core.devices.list().any(Device::is_remote)
    }

    /// Ends all threads, in order: what they had begun is done. The servers last, as what ends may touch memory.
    pub(crate) fn pause(&self) {
        let join_all = |threads: &Mutex<Vec<Thread>>| {
            threads.lock().expect("no thread panics with it").drain(..).for_each(Thread::join);
        };
        self.control.pause();
        self.core.pause();
        join_all(&self.threads);
        self.core.end_servers();
        join_all(&self.servers);
    }

    /// Starts them again.
    ///
    /// # Errors
    /// No thread is to be had: nobody serves the memory.
    pub(crate) fn resume(&self) -> Result<(), Error> {
        self.core.resume();
        self.start_threads()?;
        if let Err(error) = self.control.resume() {
            // The memory is served without it.
            crate::base::log::no_control(&error.to_string());
        }
        Ok(())
    }

    /// In a forked child, where the handles are of threads that exist in the parent only.
    pub(crate) fn renew_threads(&self) -> Result<(), Error> {
        for threads in [&self.threads, &self.servers] {
            threads.lock().expect("the lock was free at fork").clear();
        }
        self.start_threads()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.core.own_process.is_here() {
            // The threads are the parent's, which the descriptors would wake; and so is what the devices would delete.
            std::mem::forget(self.core.clone());
            return;
        }
        // First: what it was asked to do needs the other threads.
        self.control.stop();
        self.core.trace.end();
        self.core.stop();
        sigbus::strike(&self.core);
        let [threads, servers] = [&mut self.threads, &mut self.servers]
            .map(|threads| threads.get_mut().expect("no thread panics with it"));
        for thread in threads.drain(..).chain(servers.drain(..)) {
            // A cache that a scan dropped may have been the last to hold the engine.
            if thread.is_current() {
                continue;
            }
            thread.join();
        }
        self.core.devices.end_remote();
    }
}
