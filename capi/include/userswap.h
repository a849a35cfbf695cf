// userswap: memory with a RAM budget of its own, and swap devices of its own, for C and C++. See docs/c.md.
// Functions that return int return US_OK (0) or another us_error; those that return a pointer, NULL on failure. us_last_error()
// has one line of text then. Every function may be called by any thread, none by a signal handler. A handle that is closed,
// or NULL, is an error, never a crash.
// Written by `cargo run -p userswap-capi --example header`: change capi/src instead.


#ifndef USERSWAP_H
#define USERSWAP_H

#include <stddef.h>
#include <stdint.h>

// What `scan` returns when nothing can be done now.
#define US_STOP UINT64_MAX

// What a function returns that can fail. Later versions may add more.
typedef enum {
  // It worked.
  US_OK = 0,
  // An argument is NULL, no text, no number, or none of the values that are allowed.
  US_INVALID = 1,
  // A handle was closed before, or never open, or this process was forked without its engine.
  US_CLOSED = 2,
  // Bytes that lie outside the region or block, or are not memory of this engine.
  US_RANGE = 3,
  // No block of this heap that is in use begins there.
  US_NOT_A_BLOCK = 4,
  // No memory, address space or room in the budget.
  US_NO_MEMORY = 5,
  // The budget is too small or too large for what is wanted of it.
  US_BUDGET = 6,
  // This process may not use userfaultfd.
  US_NOT_PERMITTED = 7,
  // This kernel cannot do what was asked for by name.
  US_UNSUPPORTED = 8,
  // A swap device cannot be used, or is not in use.
  US_DEVICE = 9,
  // Another swapon or swapoff is under way.
  US_BUSY = 10,
  // The system refuses a thread, a socket or a copy, or there are too many engines.
  US_SYSTEM = 11,
  // A defect of the library; what has happened is on standard error.
  US_PANIC = 12,
} us_error;

// What is to be done with memory, or how it will be used. None changes what is in it.
typedef enum {
  // Takes back US_SEQUENTIAL and US_RANDOM.
  US_NORMAL = 0,
  // It will be used in order: read ahead in large windows.
  US_SEQUENTIAL = 1,
  // It will be used in no order: read nothing ahead.
  US_RANDOM = 2,
  // It will be needed soon: start to swap it in, and do not wait.
  US_WILL_NEED = 3,
  // It will not be needed soon: reclaim it next.
  US_COLD = 4,
  // Swap it in, as far as the budget goes without reclaiming other pages, and wait.
  US_PREFETCH = 5,
  // Swap it out now.
  US_PAGE_OUT = 6,
  // Swap it in, and keep it in RAM until it is unpinned as often; at most three quarters of the budget.
  US_PIN = 7,
  // Undo one US_PIN of the same bytes.
  US_UNPIN = 8,
} us_advice;

// What an access to memory may do. Any other raises SIGSEGV, and system calls get EFAULT.
typedef enum {
  // Nothing. Such pages cannot be pinned.
  US_NO_ACCESS = 0,
  // Read.
  US_READ = 1,
  // Read and write, as a region begins.
  US_READ_WRITE = 2,
} us_protection;

// Memory of the program's own that counts toward the budget.
typedef struct us_account us_account;

// A RAM budget, swap devices, and the memory that shares them.
typedef struct us_engine us_engine;

// Memory of an engine in blocks of any size.
typedef struct us_heap us_heap;

// What an engine is built from.
typedef struct us_options us_options;

// Memory of an engine, all zero at first.
typedef struct us_region us_region;

// A cache that is asked to become smaller.
typedef struct us_shrinker us_shrinker;

// What the pages of the budget, and the slots of the swap devices, are used for at one moment; a page is 4096 bytes.
typedef struct {
  // The budget.
  uint64_t budget;
  // Mapped in regions and heaps.
  uint64_t resident;
  // Not mapped, but in RAM.
  uint64_t cached;
  // Charged to accounts.
  uint64_t charged;
  // Held by compressed pages.
  uint64_t compressed;
  // Being written to a device.
  uint64_t writing;
  // Allocated from the kernel, and unused.
  uint64_t free;
  // Not yet allocated from the kernel.
  uint64_t spare;
  // In use beyond the budget.
  uint64_t debt;
  // Slots that hold a page.
  uint64_t slots_used;
  // Usable slots.
  uint64_t slots;
} us_usage;

// Nanoseconds from a fault's arrival to its end, below which a share of the faults stayed.
typedef struct {
  // The median.
  uint64_t p50;
  // 95 %.
  uint64_t p95;
  // 99 %.
  uint64_t p99;
  // The slowest fault.
  uint64_t max;
} us_latency;

// A cache, as the engine sees it. A thread of the engine calls both functions, one at a time; they must neither throw nor
// wait for a lock whose holder may touch memory of the engine, which may itself wait for what is freed here.
typedef struct {
  // Objects of a node that could go; approximate, and quick.
  uint64_t (*count)(void *user, uint32_t node);
  // Looks at up to so many objects of a node, and frees those that are not needed: how many, or US_STOP.
  uint64_t (*scan)(void *user, uint32_t node, uint64_t objects);
  // Handed to both.
  void *user;
  // What an object costs to make again, in reads from a disk: 2 if in doubt.
  uint32_t seeks;
} us_cache;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// A code in a few words, which stay valid; never NULL.
const char *us_strerror(int code);

// What went wrong last in this thread: one line that names the value and the remedy, empty if nothing has.
// Valid until the thread's next call that fails.
const char *us_last_error(void);

// The code of what went wrong last in this thread, for functions that return NULL or 0 then.
int us_last_code(void);

// The version of the library, such as "0.1.0".
const char *us_version(void);

// Options for an engine with a RAM budget of so many bytes, at least 16 MiB; NULL on failure.
us_options *us_options_new(uint64_t ram_bytes);

// Chooses something other than the default. Keys and values:
// swap `PATH[:SIZE][,pri=N]` or `mem:SIZE` (again for each device); fault thread|signal; transfer auto|move|copy;
// io auto|uring|threads; on_full exceed|stop; placement near|spread; poll auto|off|idle|MICROSECONDS;
// swap_ra_policy stream|scaling|fixed|vma|off; page_cluster 0-10; vma_ra_enabled true|false;
// compress SIZE|auto (compressed memory in front of the devices, off without); encrypt true|false (all devices);
// ram_max SIZE (what us_set_budget can raise the budget to at least); arena SIZE (address space, 256G);
// ram_of_node NODE:SIZE (again for each node); fake_numa NODES; control on (a socket for `userswap status`).
// All is looked at when the engine is built.
int us_options_set(us_options *options,
                   const char *key,
                   const char *value);

// Forgets options; engines that were built from them go on.
int us_options_free(us_options *options);

// Builds an engine and starts its threads; NULL on failure.
us_engine *us_engine_new(const us_options *options);

// Closes an engine. Its regions, heaps, caches and accounts stay valid; its threads end with the last of them.
int us_engine_close(us_engine *engine);

// Changes the RAM budget, in bytes; a smaller one is reclaimed for in the background.
int us_set_budget(us_engine *engine, uint64_t ram_bytes);

// Changes a setting as `userswap set` does, such as "swap_ra_policy" to "off".
int us_set(us_engine *engine, const char *key, const char *value);

// Swaps everything out and gives the memory back to the kernel; pinned pages stay.
int us_page_out_all(us_engine *engine);

// Swaps in what the budget has room for.
int us_prefetch_all(us_engine *engine);

// Takes one more swap device into use: `PATH[:SIZE][,pri=N]` or `mem:SIZE`.
int us_swapon(us_engine *engine, const char *device);

// Empties a swap device, by its path, and lets go of it; waits for that.
int us_swapoff(us_engine *engine, const char *path);

// How many NUMA nodes the engine has, which count from 0; 0 on failure.
uint32_t us_nodes(const us_engine *engine);

// The node of the CPU that the calling thread runs on; 0 on failure.
uint32_t us_node_here(const us_engine *engine);

// Writes the path of the control socket into `room` bytes, ended by zero. US_INVALID without a socket (the option
// "control"), US_RANGE if there is not room enough.
int us_control_socket(const us_engine *engine,
                      char *path,
                      size_t room);

// Maps a region of so many bytes, which may be more than the budget; NULL on failure.
us_region *us_map(us_engine *engine, size_t bytes);

// Forgets a region and what is in it; its addresses must not be used any more.
int us_unmap(us_region *region);

// Where the region begins, at a multiple of 4096; NULL on failure.
void *us_region_address(const us_region *region);

// Its length in bytes; 0 on failure.
size_t us_region_bytes(const us_region *region);

// Gives a us_advice for the pages that `bytes` bytes from `first` on touch.
int us_region_advise(us_region *region, size_t first, size_t bytes, int advice);

// Forgets the pages that lie within these bytes as a whole: they are zero afterwards, and nothing is written.
int us_region_discard(us_region *region,
                      size_t first,
                      size_t bytes);

// Gives a us_protection to the pages that `bytes` bytes from `first` on touch: as mprotect, which is not to be called for
// them. Their content stays.
int us_region_protect(us_region *region,
                      size_t first,
                      size_t bytes,
                      int protection);

// Gives a us_advice for the pages that a range of addresses touches, in regions or in blocks of heaps (small ones share
// their pages with others).
int us_advise(us_engine *engine,
              const void *address,
              size_t bytes,
              int advice);

// A heap without any block; NULL on failure.
us_heap *us_heap_new(us_engine *engine);

// Forgets a heap with all its blocks.
int us_heap_close(us_heap *heap);

// A block, aligned to 16 bytes, with arbitrary content; NULL on failure. A block of 0 bytes has an address of its own.
void *us_malloc(us_heap *heap,
                size_t bytes);

// A block for `count` things of `each` bytes, all zero; NULL on failure.
void *us_calloc(us_heap *heap, size_t count, size_t each);

// A block at a multiple of `alignment`, a power of two; NULL on failure.
void *us_aligned_alloc(us_heap *heap, size_t alignment, size_t bytes);

// Makes a block larger or smaller, in another place if need be; a block of NULL is a new one. NULL on failure, the
// block is unchanged then. Aligned to 16 bytes afterwards, whatever it was before.
void *us_realloc(us_heap *heap,
                 void *old,
                 size_t bytes);

// Takes a block back; NULL is none. Unlike free it says when that is no block: US_NOT_A_BLOCK.
int us_free(us_heap *heap, void *block);

// Bytes that a block has room for; 0 for NULL and on failure.
size_t us_malloc_usable_size(us_heap *heap, void *block);

// Forgets the pages that lie within these bytes of a block as a whole: they are zero afterwards, and nothing is written.
int us_heap_discard(us_heap *heap,
                    void *block,
                    size_t first,
                    size_t bytes);

// The name of a counter, in the order of their numbers, which begin at 0; NULL beyond the last. Stays valid.
const char *us_counter_name(size_t number);

// A counter by name, such as "pswpin": pages read from swap.
int us_counter(const us_engine *engine, const char *name, uint64_t *value);

// All counters at one moment, by number, as many as there is room for; `count` has how many there are afterwards.
int us_counters(const us_engine *engine,
                uint64_t *values,
                size_t *count);

// What the budget is used for. `bytes` is the size of what the program takes for the struct, sizeof(us_usage): a later
// library may know more members, and fills in only those.
int us_usage_read(const us_engine *engine,
                  us_usage *usage,
                  size_t bytes);

// How long faults took since the start of the engine.
int us_fault_latency(const us_engine *engine, us_latency *latency);

// Asks a cache to become smaller from now on, whenever pages are reclaimed; `name` is what `userswap status` calls it. NULL on
// failure.
us_shrinker *us_shrinker_new(us_engine *engine,
                             const char *name,
                             const us_cache *cache);

// Does not ask the cache any more; waits for a scan that is under way. Not to be called with a lock that a scan waits for.
int us_shrinker_close(us_shrinker *shrinker);

// Objects that the cache was asked to look at, and that it freed.
int us_shrinker_totals(const us_shrinker *shrinker, uint64_t *scanned, uint64_t *freed);

// An account on which nothing is charged; NULL on failure.
us_account *us_account_new(us_engine *engine);

// Closes an account; what is still charged on it is given back.
int us_account_close(us_account *account);

// Takes pages of a node's budget, before the program takes the memory. Waits for reclaim as long as it makes progress;
// US_NO_MEMORY, with nothing charged, after 40 ms without any.
int us_charge(us_account *account,
              uint32_t node,
              uint32_t pages);

// As us_charge, but US_NO_MEMORY at once where that would wait.
int us_try_charge(us_account *account, uint32_t node, uint32_t pages);

// Gives pages back to a node's budget, after the program has freed the memory.
int us_uncharge(us_account *account, uint32_t node, uint32_t pages);

// Pages that are charged to a node; 0 on failure.
uint32_t us_charged(const us_account *account, uint32_t node);

// Before fork: stops all engines of the process, so that the child gets an exact copy of their memory.
// pthread_atfork(us_fork_prepare, us_fork_parent, us_fork_child) sees to all. Without it a child does not have
// the memory: touching it is SIGSEGV, never wrong data, and calls for it fail.
void us_fork_prepare(void);

// After fork, in the parent, also when fork failed: goes on.
void us_fork_parent(void);

// After fork, in the child: goes on with descriptors and threads of its own. Where that cannot be, the child's memory is not
// complete, and it ends with a message (SIGABRT).
void us_fork_child(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* USERSWAP_H */
