/* enigma.h: call-path profiling, kernel hooks, derived throughput and unbiased benchmarking for GPU kernels.
 *
 * This header is the whole public interface and its manual. It is plain C99 (and C++11): one declaration a
 * statement, no tricks, so that it can be read by binding generators too.
 *
 *     1 Version            5 Scopes             9 Rows, table, tree   13 Kernels
 *     2 Status             6 Events            10 Export              14 Dispatch
 *     3 Memory and output  7 Hooks             11 Runtimes            15 Benchmark
 *     4 Profiler           8 Profile           12 Buffers             16 Testing
 *
 * The shape of it. An enigma_profiler records (mutable, any thread); an enigma_profile is what a snapshot of it
 * gives: sealed, immutable, and all that sections 8 to 10 ever read. An enigma_runtime makes buffers, kernels and
 * prepared kernels, and dispatches them; a dispatch made under an active profiler is one event with device time.
 *
 * Errors. A function that can fail returns an enigma_status, 0 or negative, and sets its out parameter to NULL or 0
 * when it fails; enigma_error_message() then has the detail. Recording never fails: what cannot be kept is dropped
 * and counted (enigma_profile_get_counts). The library never exits, aborts or prints on its own.
 *
 * Ownership. create, open, snapshot, load, compile and prepare give the caller an object; the matching free takes
 * NULL. Objects hold what they need alive, so they may be freed in any order. Text and arrays passed in are copied.
 * Text passed out is lent: it lives as long as the object that it came from, unless the function says less.
 *
 * Threads. Profiler: any thread, any time. Profile, result, benchmark: immutable, share freely. Runtime, buffer,
 * kernel, prepared: one thread at a time each. Hooks: called on any thread, with no lock held.
 *
 * Units. *_ns are integer nanoseconds on the monotonic clock (CLOCK_MONOTONIC on Linux, mach time on macOS), *_us are
 * double microseconds, *_bytes are bytes; GFLOP/s and GB/s count in 10^9.
 */
#ifndef ENIGMA_H
#define ENIGMA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define ENIGMA_API
#else
#define ENIGMA_API __attribute__((visibility("default")))
#endif

/* ==== 1 Version ================================================================================================= */

#define ENIGMA_VERSION_MAJOR 0
#define ENIGMA_VERSION_MINOR 1
#define ENIGMA_VERSION_PATCH 0

/* The version of the library that is loaded, as MAJOR * 10000 + MINOR * 100 + PATCH; compare it with the header's.
 * Threads: any.
 * Returns: the number. */
ENIGMA_API uint32_t enigma_version_number(void);

/* The same as text, "0.1.0".
 * Threads: any.
 * Returns: constant text. */
ENIGMA_API const char *enigma_version_string(void);

/* ==== 2 Status ================================================================================================== */

/* Every status in one list: name, value, text, the exception that the Python package raises for it. */
#define ENIGMA_STATUS_MAP(XX)                                                                                          \
    XX(INVALID, -1, "invalid argument", ValueError)                                                                    \
    XX(NOT_FOUND, -2, "not found", KeyError)                                                                           \
    XX(NO_MEMORY, -3, "out of memory", MemoryError)                                                                    \
    XX(UNAVAILABLE, -4, "not available on this machine", RuntimeError)                                                 \
    XX(IO, -5, "input or output failed", OSError)                                                                      \
    XX(COMPILE, -6, "the kernel does not compile", RuntimeError)                                                       \
    XX(DEVICE, -7, "the device or its driver failed", RuntimeError)                                                    \
    XX(FORMAT, -8, "not a readable profile", ValueError)                                                               \
    XX(STATE, -9, "not possible in this state", RuntimeError)                                                          \
    XX(INTERRUPTED, -10, "interrupted", KeyboardInterrupt)

/* What a function that can fail returns: 0 or a negative value of ENIGMA_STATUS_MAP. */
typedef enum enigma_status {
    ENIGMA_OK = 0,
#define ENIGMA_STATUS_ENUM_(name, value, text, exception) ENIGMA_E_##name = value,
    ENIGMA_STATUS_MAP(ENIGMA_STATUS_ENUM_)
#undef ENIGMA_STATUS_ENUM_
        ENIGMA_STATUS_END_ = 1
} enigma_status;

/* The name of a status without its prefix, "NOT_FOUND".
 * Threads: any.
 * Parameters: status: any value.
 * Returns: constant text; "OK" for 0, "UNKNOWN" for a value that is none. */
ENIGMA_API const char *enigma_status_name(enigma_status status);

/* What a status means in general, "not found".
 * Threads: any.
 * Parameters: status: any value.
 * Returns: constant text. */
ENIGMA_API const char *enigma_status_text(enigma_status status);

/* What went wrong last on the calling thread, in one or more lines: the compiler's log for ENIGMA_E_COMPILE, the
 * driver's words for ENIGMA_E_DEVICE, what was looked for and what to install for ENIGMA_E_UNAVAILABLE.
 * Threads: any; each thread has its own.
 * Returns: text that lives until the next failure on this thread; "" when nothing has failed. */
ENIGMA_API const char *enigma_error_message(void);

/* The errno behind the last ENIGMA_E_IO on the calling thread.
 * Threads: any; each thread has its own.
 * Returns: an errno, or 0 when the last failure was of another kind. */
ENIGMA_API int enigma_error_errno(void);

/* The path behind the last ENIGMA_E_IO on the calling thread.
 * Threads: any; each thread has its own.
 * Returns: text that lives until the next failure on this thread; "" when the last failure names no path. */
ENIGMA_API const char *enigma_error_path(void);

/* ==== 3 Memory and output ======================================================================================= */

/* Text with its length, since names may hold any byte. data NULL: absent. As an input, size 0 means that data ends with
 * a NUL; as an output, size is exact and a NUL follows in any case. The bytes are UTF-8 by intent; what is not is kept
 * and shown as U+FFFD. */
typedef struct enigma_text {
    const char *data;
    size_t size;
} enigma_text;

/* realloc with the old size and a user pointer: ptr NULL allocates, new_size 0 frees (and returns NULL). */
typedef void *(*enigma_resize_fn)(void *user, void *ptr, size_t old_size, size_t new_size);

/* Replaces the allocator of everything the library allocates.
 * Threads: call it before any other function of the library, from one thread.
 * Parameters: resize: NULL restores the default (realloc and free); user: passed to resize.
 * Returns: ENIGMA_OK; ENIGMA_E_STATE when memory of the present allocator is still in use. */
ENIGMA_API enigma_status enigma_set_allocator(enigma_resize_fn resize, void *user);

/* Where bytes go. Called with consecutive pieces; a value other than 0 stops the writer, which returns ENIGMA_E_IO. */
typedef int (*enigma_write_fn)(void *user, const void *data, size_t size);

/* Asked about every 50 ms while the library waits for a device; a value other than 0 ends the wait. */
typedef int (*enigma_interrupt_fn)(void *user);

/* Makes long waits interruptible, process-wide: the device waits of enigma_profiler_stop, of dispatches and benchmarks
 * call check about every 50 ms, on the waiting thread and with no lock held.
 * Threads: call it before the waits it is meant for.
 * Parameters: check: NULL removes it; user: passed to check. */
ENIGMA_API void enigma_set_interrupt(enigma_interrupt_fn check, void *user);

/* A setting: an environment variable that the library reads once, at first use. */
typedef struct enigma_setting_info {
    const char *name;     /* "ENIGMA_DEVICE" */
    const char *type;     /* "text", "number" or "flag" */
    const char *fallback; /* what holds when it is not set, as text; NULL: nothing */
    const char *help;     /* one line: what it does */
} enigma_setting_info;

/* The settings.
 * Threads: any.
 * Parameters: index: from 0.
 * Returns: the setting's description, constant, or NULL past the end. */
ENIGMA_API const enigma_setting_info *enigma_setting_at(size_t index);

/* The clock of all CPU stamps: monotonic nanoseconds.
 * Threads: any.
 * Returns: the time now, in ns. */
ENIGMA_API uint64_t enigma_now_ns(void);

/* ==== 4 Profiler ================================================================================================ */

/* Records events. Any thread may use it at any time. Reference-counted inside: runtimes, snapshots and open scopes never
 * outlive what they need of it. */
typedef struct enigma_profiler enigma_profiler;

/* What a profiler records besides times. */
enum enigma_profiler_flags {
    ENIGMA_PROFILER_RECORD_SHAPES = 1 << 0, /* metadata "input_shapes" on dispatches */
    ENIGMA_PROFILER_PROFILE_MEMORY = 1 << 1 /* input_bytes and output_bytes on dispatches */
};

/* How a profiler records. */
typedef struct enigma_profiler_options {
    uint32_t struct_size;
    uint32_t flags;           /* enum enigma_profiler_flags */
    const char *capture_path; /* NULL: none; else a path that ends in .gputrace, written by Metal's capture */
    const char *attach;       /* NULL: none; else whose launches are recorded besides those of our runtimes: names with
                                 commas between. "cuda": what any code in the process launches with CUDA */
    const char *file;         /* NULL: none; else an .enigma file that is recorded into from the first start on, replaced if
                                 it exists: enigma_profile_load reads it at any moment, also after the process was killed.
                                 Where the disk is full, what finds no space is dropped and counted */
} enigma_profiler_options;

#define ENIGMA_PROFILER_OPTIONS_INIT {sizeof(enigma_profiler_options), 0, NULL, NULL, NULL}

/* Makes a profiler, not yet active anywhere.
 * Threads: any.
 * Parameters: options: NULL means ENIGMA_PROFILER_OPTIONS_INIT; out: receives the profiler.
 * Returns: ENIGMA_OK; ENIGMA_E_INVALID for a capture path with another suffix and for a name in attach that is none (the
 * message lists those there are); ENIGMA_E_NO_MEMORY.
 * Free with: enigma_profiler_free. */
ENIGMA_API enigma_status enigma_profiler_create(const enigma_profiler_options *options, enigma_profiler **out);

/* Makes the profiler the active one of the calling thread. Starts nest: the innermost records, and the scopes open
 * under the outer one stay at the front of its paths. May be started on any number of threads.
 *
 * What it attaches to is recorded from its first start to its last stop, under the scopes of the thread that launches; on a
 * thread without an active profiler, under those open at that moment on the thread that started it first, with metadata
 * "path_source". Its last stop waits until that work is complete.
 * Threads: any; start and stop pair on a thread.
 * Parameters: profiler: not NULL.
 * Returns: ENIGMA_OK; ENIGMA_E_UNAVAILABLE when its capture or what it attaches to is not possible (the message names what is
 * missing, or that another tool holds it); ENIGMA_E_IO when its file cannot be made. */
ENIGMA_API enigma_status enigma_profiler_start(enigma_profiler *profiler);

/* Ends what enigma_profiler_start began on this thread: the profiler that was active before is so again, scopes that are
 * still open get the time now and metadata "unfinished", and work that our runtimes launched asynchronously is waited
 * for.
 * Threads: the thread that started it.
 * Parameters: profiler: not NULL.
 * Returns: ENIGMA_OK; ENIGMA_E_STATE when it is not the innermost of this thread; ENIGMA_E_INTERRUPTED when the
 * wait was ended (enigma_set_interrupt): the profiler is stopped all the same. */
ENIGMA_API enigma_status enigma_profiler_stop(enigma_profiler *profiler);

/* The active profiler of the calling thread.
 * Threads: any.
 * Returns: the profiler, lent, or NULL. */
ENIGMA_API enigma_profiler *enigma_profiler_active(void);

/* Frees a profiler. Where it is still active it becomes inactive; profiles taken from it stay valid.
 * Threads: any, while no other thread is inside a call that uses it.
 * Parameters: profiler: NULL does nothing. */
ENIGMA_API void enigma_profiler_free(enigma_profiler *profiler);

/* ==== 5 Scopes ================================================================================================== */

/* Every C user needs only this part: ENIGMA_SCOPE("name"); at the top of a block, or enigma_begin and enigma_end.
 * With no active profiler in the process they cost one load and a branch, and evaluate nothing. */

/* How many profilers are started on some thread. Read by the inline functions below; never write it. */
extern ENIGMA_API uint32_t enigma_gate;

/* An open scope. id 0: it was not begun, and ending it does nothing, so profiling may go on or off in between. */
typedef struct enigma_scope {
    uint64_t id;
    void *slot;
} enigma_scope;

/* A place in the source with a literal name; static, one for each place. */
typedef struct enigma_site {
    const char *name;
    uint32_t id; /* 0 until first used; the library's */
} enigma_site;

/* A semantic work count. "flops" and "bytes" drive GFLOP/s and GB/s; other keys pass through to exports. */
typedef struct enigma_metric {
    const char *key;
    double value;
} enigma_metric;

/* What an enigma_value holds. */
enum enigma_type {
    ENIGMA_NULL = 0,
    ENIGMA_BOOL = 1,   /* as.integer is 0 or 1 */
    ENIGMA_INT = 2,    /* as.integer */
    ENIGMA_DOUBLE = 3, /* as.number */
    ENIGMA_TEXT = 4,   /* as.text */
    ENIGMA_LIST = 5,   /* as.items, keys NULL */
    ENIGMA_TUPLE = 6,  /* as.items, keys NULL */
    ENIGMA_DICT = 7    /* as.items */
};

struct enigma_field;

/* The count fields of an ENIGMA_LIST, ENIGMA_TUPLE or ENIGMA_DICT. */
typedef struct enigma_items {
    const struct enigma_field *data;
    size_t count;
} enigma_items;

/* A metadata value. Containers nest at most 32 deep; what is deeper becomes the text "...". */
typedef struct enigma_value {
    uint32_t type; /* enum enigma_type */
    union {
        int64_t integer;
        double number;
        enigma_text text;
        enigma_items items;
    } as;
} enigma_value;

/* A metadata entry. */
typedef struct enigma_field {
    enigma_text key;
    enigma_value value;
} enigma_field;

/* What a scope may bring besides its name. */
typedef struct enigma_scope_desc {
    uint32_t struct_size;
    enigma_text name;
    enigma_text category; /* absent: "scope" */
    const enigma_metric *metrics;
    size_t metric_count;
    const enigma_field *metadata;
    size_t metadata_count;
} enigma_scope_desc;

/* The slow halves of the inline functions below; call those. Same contracts. */
ENIGMA_API enigma_scope enigma_begin_site_(enigma_site *site);
ENIGMA_API enigma_scope enigma_begin_text_(const char *name);
ENIGMA_API enigma_scope enigma_begin_desc_(const enigma_scope_desc *desc);
ENIGMA_API void enigma_end_(enigma_scope scope);

#if defined(__GNUC__) || defined(__clang__)
#define ENIGMA_ON_() (__builtin_expect(__atomic_load_n(&enigma_gate, __ATOMIC_RELAXED) != 0, 0))
#else
#define ENIGMA_ON_() (*(volatile const uint32_t *)&enigma_gate != 0)
#endif

/* Opens a scope in the calling thread's active profiler, under the scopes open there. The fastest form: the name is the
 * site's literal.
 * Threads: any.
 * Parameters: site: static storage, name set, id 0 at first.
 * Returns: a token for enigma_end; id 0 when no profiler is active or the event was dropped. */
static inline enigma_scope enigma_begin_site(enigma_site *site)
{
    enigma_scope none = {0, NULL};
    return ENIGMA_ON_() ? enigma_begin_site_(site) : none;
}

/* The same for a name that is any text; it is copied.
 * Threads: any.
 * Parameters: name: ends with a NUL; NULL counts as "".
 * Returns: a token for enigma_end; id 0 when no profiler is active or the event was dropped. */
static inline enigma_scope enigma_begin(const char *name)
{
    enigma_scope none = {0, NULL};
    return ENIGMA_ON_() ? enigma_begin_text_(name) : none;
}

/* The same with category, metrics and metadata, all copied.
 * Threads: any.
 * Parameters: desc: not NULL.
 * Returns: a token for enigma_end; id 0 when no profiler is active or the event was dropped. */
static inline enigma_scope enigma_begin_desc(const enigma_scope_desc *desc)
{
    enigma_scope none = {0, NULL};
    return ENIGMA_ON_() ? enigma_begin_desc_(desc) : none;
}

/* Ends a scope. In any order: a scope ended while inner ones are open is marked ended and leaves the path with them.
 * Ending twice does nothing. On another thread than the one that began it, the event keeps the thread that began it.
 * Threads: any.
 * Parameters: scope: what begin returned; id 0 does nothing. */
static inline void enigma_end(enigma_scope scope)
{
    if (scope.id != 0) {
        enigma_end_(scope);
    }
}

#define ENIGMA_JOIN2_(a, b) a##b
#define ENIGMA_JOIN_(a, b) ENIGMA_JOIN2_(a, b)

/* ENIGMA_SCOPE("literal"); profiles the rest of the enclosing block, ending when the block is left in any way: in C++ by a
 * destructor, in C by the cleanup attribute (which runs on unwinding too where C is compiled with -fexceptions). */
#ifdef __cplusplus
#define ENIGMA_SCOPE(literal)                                                                                          \
    static enigma_site ENIGMA_JOIN_(enigma_site_, __LINE__) = {"" literal, 0};                                         \
    const ::enigma_scope_guard ENIGMA_JOIN_(enigma_guard_, __LINE__)(                                                  \
        enigma_begin_site(&ENIGMA_JOIN_(enigma_site_, __LINE__)))
#else
static inline void enigma_scope_cleanup_(const enigma_scope *scope) { enigma_end(*scope); }
#define ENIGMA_SCOPE(literal)                                                                                          \
    static enigma_site ENIGMA_JOIN_(enigma_site_, __LINE__) = {"" literal, 0};                                         \
    const enigma_scope ENIGMA_JOIN_(enigma_guard_, __LINE__)                                                           \
        __attribute__((cleanup(enigma_scope_cleanup_), unused)) =                                                      \
            enigma_begin_site(&ENIGMA_JOIN_(enigma_site_, __LINE__))
#endif

/* The rest of section 5 is for language bindings and task systems, which keep the place in their own contexts. */

/* A call-path node of a profiler; 0 is the root. Nodes are never freed before the profiler, and are valid in its
 * profiles too. */
typedef uint32_t enigma_path;

/* Where things are recorded: under which node of which profiler, inside which open scope. */
typedef struct enigma_context {
    enigma_profiler *profiler; /* NULL: nothing is recorded */
    enigma_path path;
    uint64_t scope; /* id of the innermost open scope of this profiler, 0: none */
} enigma_context;

/* Categories that need no registering. */
enum enigma_category_id { ENIGMA_CATEGORY_SCOPE = 0, ENIGMA_CATEGORY_PYTHON = 1 };

/* The place where the calling thread records now.
 * Threads: any.
 * Returns: the context; its profiler is lent, NULL when none is active. */
ENIGMA_API enigma_context enigma_context_current(void);

/* The node for a scope name under a parent node; the same arguments give the same node.
 * Threads: any; takes a lock, so bindings cache the result.
 * Parameters: profiler: not NULL; parent: a node of it; name: the scope's name.
 * Returns: the node; the parent itself when memory ran out (counted as a drop). */
ENIGMA_API enigma_path enigma_path_child(enigma_profiler *profiler, enigma_path parent, enigma_text name);

/* The node in one profiler that has the names of a node in another: the path to start an inner profiler on.
 * Threads: any; takes locks, one after the other.
 * Parameters: profiler, from: not NULL; path: a node of from.
 * Returns: the node of profiler. */
ENIGMA_API enigma_path enigma_path_import(enigma_profiler *profiler, enigma_profiler *from, enigma_path path);

/* The number of a category in a profiler.
 * Threads: any; takes a lock, so bindings cache the result.
 * Parameters: profiler: not NULL; category: the text; absent means "scope".
 * Returns: 0 to 254; 255 ("other") when 255 categories are taken. */
ENIGMA_API uint32_t enigma_category(enigma_profiler *profiler, enigma_text category);

/* Makes a profiler live in a binding's own contexts, in place of start and stop: it is counted as recording, its capture
 * begins. Pair with enigma_profiler_seal.
 * Threads: any.
 * Parameters: profiler: not NULL.
 * Returns: as enigma_profiler_start. */
ENIGMA_API enigma_status enigma_profiler_open(enigma_profiler *profiler);

/* Ends recording for good: asynchronous work is waited for, open scopes get the time now and metadata "unfinished", and
 * nothing is recorded afterwards.
 * Threads: any.
 * Parameters: profiler: not NULL.
 * Returns: as enigma_profiler_stop. */
ENIGMA_API enigma_status enigma_profiler_seal(enigma_profiler *profiler);

/* Opens a scope at an explicit place. Reads the clock last.
 * Threads: any; the event belongs to the calling thread.
 * Parameters: profiler: not NULL; path: the scope's own node (enigma_path_child); parent: id of the enclosing open scope, 0:
 * none; category: from enigma_category.
 * Returns: a token for enigma_scope_close; id 0 when the profiler is sealed or the event was dropped. */
ENIGMA_API enigma_scope enigma_scope_open(enigma_profiler *profiler, enigma_path path, uint64_t parent, uint32_t category);

/* Adds metrics and metadata to an open scope; may be called several times.
 * Threads: one at a time for each scope.
 * Parameters: profiler: the one it was opened in; scope: id 0 does nothing; metrics, metadata: copied; NULL with count 0. */
ENIGMA_API void enigma_scope_annotate(enigma_profiler *profiler, enigma_scope scope, const enigma_metric *metrics,
                                      size_t metric_count, const enigma_field *metadata, size_t metadata_count);

/* Ends a scope opened by enigma_scope_open. Reads the clock first. Does nothing when the profiler is sealed or the scope was
 * opened before a fork in the parent process.
 * Threads: any; ending twice keeps the first end.
 * Parameters: profiler: the one it was opened in; scope: id 0 does nothing. */
ENIGMA_API void enigma_scope_close(enigma_profiler *profiler, enigma_scope scope);

/* Which of a binding's contexts the calling thread runs in: the same number as long as it does; 0: in none. Called inside of
 * calls of GPU libraries, on any thread; it must not wait for anything, least of all for an interpreter's lock. */
typedef uint64_t (*enigma_context_key_fn)(void);

/* Tells how to find a binding's context, for the launches that attached profilers record (enigma_profiler_options.attach).
 * Threads: call it before the first enigma_context_publish.
 * Parameters: key: NULL: there are no such contexts any more. */
ENIGMA_API void enigma_set_context_key(enigma_context_key_fn key);

/* Notes where a context records from now on, so that launches in it find the place without a lock; needed while an attached
 * profiler is live. The first context that is noted with a profiler is its owner's: what is launched where nothing is
 * active goes under the place last noted for that one. Notes are few (about 1,000 contexts): of those that were lost,
 * launches go there, too.
 * Threads: any; one at a time for each context.
 * Parameters: key: of the context, not 0; context: its place, profiler NULL: nothing is recorded there; NULL: the context is
 * gone.
 * Returns: 1 when nothing was noted of this context before, else 0. */
ENIGMA_API int enigma_context_publish(uint64_t key, const enigma_context *context);

/* ==== 6 Events ================================================================================================== */

/* Sizes of a launch in threads; all 0 means "none". */
typedef struct enigma_size3 {
    uint64_t x, y, z;
} enigma_size3;

/* One timed event: what enigma_profiler_add_event takes and enigma_profile_event gives. */
typedef struct enigma_event {
    uint32_t struct_size;
    enigma_text name;
    enigma_text category;
    enigma_text kernel_name; /* absent: no kernel */
    enigma_path path;        /* given out: the event's own node (its path and label); taken in: the node it is under */
    uint64_t start_ns, end_ns;
    uint64_t gpu_start_ns, gpu_end_ns; /* host clock; 0 when not valid */
    double gpu_time_us;                /* own for GPU work; for scopes the sum over the work launched inside */
    uint64_t gpu_start_raw, gpu_end_raw; /* as the device gave them, in its ticks */
    double self_us;                      /* own duration less its direct children's */
    enigma_size3 grid, threads;          /* all 0: none */
    uint64_t input_bytes, output_bytes;
    uint32_t buffer_count;
    uint32_t is_gpu_work; /* 1: a dispatch, copy or fill, whose gpu_time_us is its own */
    uint64_t thread_id;   /* the system's thread number; not used when taken in */
    uint32_t queue_id, device_id;
    const enigma_metric *metrics;
    size_t metric_count;
    const enigma_field *metadata;
    size_t metadata_count;
} enigma_event;

/* Records a finished event, for interceptors that time things themselves.
 * Threads: any; the event belongs to the calling thread.
 * Parameters: profiler: NULL does nothing; event: copied; start_ns and end_ns on enigma_now_ns's clock; is_gpu_work says
 * whether gpu_start_ns and gpu_end_ns hold; parent: id of the enclosing open scope, 0: none. */
ENIGMA_API void enigma_profiler_add_event(enigma_profiler *profiler, const enigma_event *event, uint64_t parent);

/* ==== 7 Hooks =================================================================================================== */

/* What a hook is told about the dispatch that is being recorded. */
typedef struct enigma_dispatch_info {
    enigma_text kernel_name;
    enigma_size3 grid, threads;
} enigma_dispatch_info;

/* Writes at most capacity metrics to out and returns how many it has (0: none). The keys must live until the hook
 * is called next on this thread or released. Called with no lock held, and never from inside itself. */
typedef size_t (*enigma_hook_fn)(void *user, const enigma_dispatch_info *info, enigma_metric *out, size_t capacity);
/* Told that user is not needed any more. */
typedef void (*enigma_release_fn)(void *user);

/* Attaches metrics to every recorded dispatch of a kernel that has none of its own. Replaces an earlier hook of that name.
 * Threads: any.
 * Parameters: kernel_name: which kernel; hook: not NULL; release: called with user when the hook is replaced or
 * unregistered and no call of it is running; NULL: none; user: passed to hook and release.
 * Returns: ENIGMA_OK; ENIGMA_E_INVALID; ENIGMA_E_NO_MEMORY (release is not called then). */
ENIGMA_API enigma_status enigma_hook_register(enigma_text kernel_name, enigma_hook_fn hook, enigma_release_fn release,
                                              void *user);

/* Removes a hook; where there is none, does nothing.
 * Threads: any.
 * Parameters: kernel_name: which kernel. */
ENIGMA_API void enigma_hook_unregister(enigma_text kernel_name);

/* ==== 8 Profile ================================================================================================= */

/* What was recorded, sealed: immutable, self-contained, outlives its profiler. */
typedef struct enigma_profile enigma_profile;

/* What a profile holds and what it is missing. */
typedef struct enigma_counts {
    uint32_t struct_size;
    uint64_t events;
    uint64_t dropped;        /* could not be kept: out of memory or over a limit */
    uint64_t gpu_events;     /* dispatches, copies and fills */
    uint64_t gpu_invalid;    /* their device stamps cannot be right: gpu_time_us is 0, metadata "gpu_time" says why */
    uint64_t gpu_unfinished; /* not complete when the profile was taken */
    uint64_t gpu_skewed;     /* start before their launch: metadata "gpu_clock" */
    uint64_t open_scopes;    /* begun and not ended when the profile was taken; not among the events */
} enigma_counts;

/* Seals what is recorded so far. Nobody who records is stopped; of each thread the profile holds a prefix.
 * Threads: any.
 * Parameters: profiler: not NULL; out: receives the profile.
 * Returns: ENIGMA_OK; ENIGMA_E_NO_MEMORY.
 * Free with: enigma_profile_free. */
ENIGMA_API enigma_status enigma_profiler_snapshot(enigma_profiler *profiler, enigma_profile **out);

/* Writes a profile as an .enigma file (docs/file-format.md): beside the target, then renamed.
 * Threads: any.
 * Parameters: profile: not NULL; path: the file, replaced if it exists.
 * Returns: ENIGMA_OK; ENIGMA_E_IO with errno and path. */
ENIGMA_API enigma_status enigma_profile_save(const enigma_profile *profile, const char *path);

/* Reads an .enigma file, finished or not: of one that is still recorded into, or whose process was killed, what had ended by then;
 * scopes that are open are counted (enigma_counts.open_scopes).
 * Threads: any.
 * Parameters: path: the file; out: receives the profile.
 * Returns: ENIGMA_OK; ENIGMA_E_IO; ENIGMA_E_FORMAT when it is no profile or damaged (the message says where);
 * ENIGMA_E_NO_MEMORY.
 * Free with: enigma_profile_free. */
ENIGMA_API enigma_status enigma_profile_load(const char *path, enigma_profile **out);

/* The number of events.
 * Threads: any.
 * Parameters: profile: not NULL.
 * Returns: the number. */
ENIGMA_API size_t enigma_profile_event_count(const enigma_profile *profile);

/* One event; they are in order of ending.
 * Threads: any. The texts live as long as the profile; metrics and metadata until this thread reads its next event.
 * Parameters: profile: not NULL; index: below the count; out: struct_size set.
 * Returns: ENIGMA_OK; ENIGMA_E_INVALID for an index out of range; ENIGMA_E_NO_MEMORY. */
ENIGMA_API enigma_status enigma_profile_event(const enigma_profile *profile, size_t index, enigma_event *out);

/* The number of names from the root to a node.
 * Threads: any.
 * Parameters: profile: not NULL; path: a node.
 * Returns: the depth; 0 for the root or a node that is none. */
ENIGMA_API size_t enigma_profile_path_depth(const enigma_profile *profile, enigma_path path);

/* How many of them are the user's scopes (call_path); the rest are the runtime's parents and the event's label.
 * Threads: any.
 * Parameters: profile: not NULL; path: a node.
 * Returns: the depth of the call path, at most enigma_profile_path_depth. */
ENIGMA_API size_t enigma_profile_call_depth(const enigma_profile *profile, enigma_path path);

/* The names from the root to a node: scope names, then labels ("name" or "name:kernel_name").
 * Threads: any; the texts live as long as the profile.
 * Parameters: profile: not NULL; path: a node; out: receives at most capacity names, root first.
 * Returns: the number written. */
ENIGMA_API size_t enigma_profile_path_names(const enigma_profile *profile, enigma_path path, enigma_text *out,
                                            size_t capacity);

/* What a profile holds and what it is missing.
 * Threads: any.
 * Parameters: profile: not NULL; out: struct_size set. */
ENIGMA_API void enigma_profile_get_counts(const enigma_profile *profile, enigma_counts *out);

/* Facts recorded with the profile: "clock", "pid", and one dict for each device that was used.
 * Threads: any. Lives until this thread asks for its next fact or event.
 * Parameters: profile: not NULL; index: from 0; out: receives the fact.
 * Returns: 1, or 0 past the end. */
ENIGMA_API int enigma_profile_fact(const enigma_profile *profile, size_t index, enigma_field *out);

/* Frees a profile.
 * Threads: any, while no other thread reads it.
 * Parameters: profile: NULL does nothing. */
ENIGMA_API void enigma_profile_free(enigma_profile *profile);

/* ==== 9 Rows, table, tree ======================================================================================= */

/* Aggregated rows of a profile. Immutable; keeps the profile alive. */
typedef struct enigma_result enigma_result;

/* What makes two events one row. */
enum enigma_group { ENIGMA_GROUP_NAME = 0, ENIGMA_GROUP_CALL_PATH = 1 };

/* Which time the rates of a row were taken over. */
enum enigma_rate_source { ENIGMA_RATE_NONE = 0, ENIGMA_RATE_GPU = 1, ENIGMA_RATE_CPU = 2 };

/* One row. Totals count an instant once: an event below another of the same row on its call path adds a call, not time.
 * min, median and max are per call: GPU time for rows of GPU work, else CPU time. */
typedef struct enigma_row {
    uint32_t struct_size;
    enigma_text name;        /* the event's name; by call path: its node path joined with "/" */
    enigma_text kernel_name; /* absent: none, or several in a merged row */
    uint64_t calls;
    double cpu_total_us, gpu_total_us, cpu_avg_us, gpu_avg_us;
    double min_us, median_us, max_us;
    double self_total_us; /* CPU time less that of direct children */
    double gpu_busy_us;   /* union of the GPU intervals: at most the time that passed, whatever overlaps */
    uint64_t input_bytes, output_bytes;
    double gflops_per_s, gbytes_per_s; /* 0 when there is no count or no time */
    uint32_t rate_source;              /* enum enigma_rate_source: which time the rates were taken over */
    uint32_t is_gpu_work;
    const enigma_metric *metrics; /* summed over the events */
    size_t metric_count;
    const enigma_text *call_path; /* the node path, root first; count 0 when grouped by name */
    size_t call_path_count;
} enigma_row;

/* What a field of a row holds. */
enum enigma_field_kind { ENIGMA_FIELD_TEXT = 0, ENIGMA_FIELD_UINT = 1, ENIGMA_FIELD_DOUBLE = 2, ENIGMA_FIELD_SOURCE = 3 };

/* A sortable, printable field of a row. */
typedef struct enigma_row_field {
    const char *name; /* "cpu_total_us" */
    uint32_t kind;    /* enum enigma_field_kind; SOURCE is rate_source: "gpu", "cpu" or absent */
    uint32_t offset;  /* in enigma_row */
} enigma_row_field;

/* The fields of a row, the one table behind sorting, CSV and bindings.
 * Threads: any.
 * Parameters: index: from 0.
 * Returns: the field, constant, or NULL past the end. */
ENIGMA_API const enigma_row_field *enigma_row_field_at(size_t index);

/* Aggregates a profile.
 * Threads: any.
 * Parameters: profile: not NULL, kept alive by the result; group: rows by (name, kernel_name) or by (node path,
 * kernel_name); out: receives the result.
 * Returns: ENIGMA_OK; ENIGMA_E_INVALID for another group; ENIGMA_E_NO_MEMORY.
 * Free with: enigma_result_free. */
ENIGMA_API enigma_status enigma_profile_key_averages(const enigma_profile *profile, enum enigma_group group,
                                                     enigma_result **out);

/* The number of rows.
 * Threads: any.
 * Parameters: result: not NULL.
 * Returns: the number. */
ENIGMA_API size_t enigma_result_row_count(const enigma_result *result);

/* The rows in order: numbers descending, text ascending, ties by name, then kernel name.
 * Threads: any; rows live as long as the result.
 * Parameters: result: not NULL; sort_by: a field's name; NULL means "cpu_total_us"; out: receives at most capacity rows;
 * capacity: the room in out.
 * Returns: ENIGMA_OK; ENIGMA_E_INVALID for a name that is no field (the message lists them); ENIGMA_E_NO_MEMORY. */
ENIGMA_API enigma_status enigma_result_rows(const enigma_result *result, const char *sort_by, const enigma_row **out,
                                            size_t capacity);

/* The row of a name; where several rows have it, one made of all their events.
 * Threads: any; the row lives as long as the result.
 * Parameters: result: not NULL; name: the row's name; out: receives the row.
 * Returns: ENIGMA_OK; ENIGMA_E_NOT_FOUND (the message has the name); ENIGMA_E_NO_MEMORY. */
ENIGMA_API enigma_status enigma_result_by_name(const enigma_result *result, enigma_text name, const enigma_row **out);

/* Writes the rows as a text table, with GFLOP/s and GB/s columns when some row has a rate, and lines under it for what
 * was dropped or has no valid device time.
 * Threads: any.
 * Parameters: result: not NULL; sort_by: as in enigma_result_rows; write, user: where to.
 * Returns: ENIGMA_OK; ENIGMA_E_INVALID; ENIGMA_E_IO when write stopped it; ENIGMA_E_NO_MEMORY. */
ENIGMA_API enigma_status enigma_result_write_table(const enigma_result *result, const char *sort_by, enigma_write_fn write,
                                                   void *user);

/* Writes the rows as CSV (RFC 4180), a line of field names first.
 * Threads: any.
 * Parameters: result: not NULL; path: the file, replaced whole.
 * Returns: ENIGMA_OK; ENIGMA_E_IO with errno and path; ENIGMA_E_NO_MEMORY. */
ENIGMA_API enigma_status enigma_result_save_csv(const enigma_result *result, const char *path);

/* Writes the rows as strict JSON: {"rows": [...]}, each with the fields of enigma_row_field_at by name, then "metrics" (an
 * object) and "call_path" (a list; null when grouped by name). Numbers that are not finite are null.
 * Threads: any.
 * Parameters: result: not NULL; sort_by: as in enigma_result_rows; write, user: where to.
 * Returns: ENIGMA_OK; ENIGMA_E_INVALID; ENIGMA_E_IO when write stopped it; ENIGMA_E_NO_MEMORY. */
ENIGMA_API enigma_status enigma_result_write_json(const enigma_result *result, const char *sort_by, enigma_write_fn write,
                                                  void *user);

/* The first rows in an order, as a result of their own.
 * Threads: any.
 * Parameters: result: not NULL, may be freed afterwards; sort_by: as in enigma_result_rows; limit: at most so many rows;
 * out: receives the result.
 * Returns: ENIGMA_OK; ENIGMA_E_INVALID; ENIGMA_E_NO_MEMORY.
 * Free with: enigma_result_free. */
ENIGMA_API enigma_status enigma_result_top(const enigma_result *result, const char *sort_by, size_t limit,
                                           enigma_result **out);

/* Frees a result.
 * Threads: any, while no other thread reads it.
 * Parameters: result: NULL does nothing. */
ENIGMA_API void enigma_result_free(enigma_result *result);

/* Writes the call-path tree with inclusive CPU and GPU times: at most two header lines, then a line for each node, two
 * blanks a level.
 * Threads: any.
 * Parameters: profile: not NULL; write, user: where to.
 * Returns: ENIGMA_OK; ENIGMA_E_IO when write stopped it; ENIGMA_E_NO_MEMORY. */
ENIGMA_API enigma_status enigma_profile_write_tree(const enigma_profile *profile, enigma_write_fn write, void *user);

/* ==== 10 Export ================================================================================================= */

/* An exporter. */
typedef struct enigma_exporter_info {
    const char *name;   /* "hatchet" */
    const char *method; /* the Python method, "export_hatchet" */
    const char *suffix; /* ".hatchet.json", what `enigma export` recognises */
    const char *help;   /* one line: what reads it */
} enigma_exporter_info;

/* The exporters.
 * Threads: any.
 * Parameters: index: from 0.
 * Returns: the exporter's description, constant, or NULL past the end. */
ENIGMA_API const enigma_exporter_info *enigma_exporter_at(size_t index);

/* Exports a profile to a callback.
 * Threads: any.
 * Parameters: profile: not NULL; format: an exporter's name; write, user: where to.
 * Returns: ENIGMA_OK; ENIGMA_E_INVALID for an unknown format (the message lists them); ENIGMA_E_IO; ENIGMA_E_NO_MEMORY. */
ENIGMA_API enigma_status enigma_export(const enigma_profile *profile, const char *format, enigma_write_fn write, void *user);

/* Exports a profile to a file: whole or not at all. Written beside the target and renamed; a symbolic link is followed; a
 * target that exists and is no regular file is written in place.
 * Threads: any.
 * Parameters: profile: not NULL; format: an exporter's name; path: the file.
 * Returns: as enigma_export; ENIGMA_E_IO has errno and path. */
ENIGMA_API enigma_status enigma_export_file(const enigma_profile *profile, const char *format, const char *path);

/* ==== 11 Runtimes =============================================================================================== */

/* A device and its queues. One thread at a time. Buffers, kernels and prepared kernels keep it alive. */
typedef struct enigma_runtime enigma_runtime;

/* A backend. */
typedef struct enigma_backend_info {
    const char *name;   /* "opencl" */
    const char *title;  /* "OpenCL" */
    int built;          /* 0: this build has no code for it */
    const char *needs;  /* what it looks for at run time, and what to install */
} enigma_backend_info;

/* The backends, best first; the order in which enigma_runtime_open(NULL) tries them.
 * Threads: any.
 * Parameters: index: from 0.
 * Returns: the backend's description, constant, or NULL past the end. */
ENIGMA_API const enigma_backend_info *enigma_backend_at(size_t index);

/* The number of devices that a backend has on this machine.
 * Threads: any; the first call loads the vendor's library.
 * Parameters: backend: its name; out: receives the number.
 * Returns: ENIGMA_OK; ENIGMA_E_INVALID for an unknown name; ENIGMA_E_UNAVAILABLE when it is not built or its library or
 * driver is missing (the message says what was looked for). */
ENIGMA_API enigma_status enigma_backend_device_count(const char *backend, uint32_t *out);

#define ENIGMA_DEVICE_DEFAULT UINT32_MAX /* the setting ENIGMA_DEVICE, else 0 */

/* Opens a device.
 * Threads: any.
 * Parameters: backend: its name; NULL: the setting ENIGMA_BACKEND, else the first one that has a device; device: index, or
 * ENIGMA_DEVICE_DEFAULT; out: receives the runtime.
 * Returns: ENIGMA_OK; ENIGMA_E_INVALID for an unknown backend or a device out of range; ENIGMA_E_UNAVAILABLE with what was
 * looked for and what to install; ENIGMA_E_DEVICE.
 * Free with: enigma_runtime_free. */
ENIGMA_API enigma_status enigma_runtime_open(const char *backend, uint32_t device, enigma_runtime **out);

/* A fact about the device: name, backend, driver, version, compute units, clock, memory, cache sizes, limits.
 * Threads: as the runtime; the texts live as long as it.
 * Parameters: runtime: not NULL; index: from 0; out: receives the fact.
 * Returns: 1, or 0 past the end. */
ENIGMA_API int enigma_runtime_fact(const enigma_runtime *runtime, size_t index, enigma_field *out);

/* Waits until everything dispatched on the runtime is complete.
 * Threads: as the runtime.
 * Parameters: runtime: not NULL.
 * Returns: ENIGMA_OK; ENIGMA_E_DEVICE; ENIGMA_E_INTERRUPTED. */
ENIGMA_API enigma_status enigma_runtime_synchronize(enigma_runtime *runtime);

/* Frees a runtime; what was made from it stays valid.
 * Threads: as the runtime.
 * Parameters: runtime: NULL does nothing. */
ENIGMA_API void enigma_runtime_free(enigma_runtime *runtime);

/* ==== 12 Buffers ================================================================================================ */

/* Device memory. One thread at a time. */
typedef struct enigma_buffer enigma_buffer;

/* Allocates device memory.
 * Threads: as the runtime.
 * Parameters: runtime: not NULL; size: bytes, not 0; data: size bytes copied in, or NULL: zeroed; out: receives it.
 * Returns: ENIGMA_OK; ENIGMA_E_INVALID; ENIGMA_E_NO_MEMORY; ENIGMA_E_DEVICE.
 * Free with: enigma_buffer_free. */
ENIGMA_API enigma_status enigma_buffer_create(enigma_runtime *runtime, size_t size, const void *data, enigma_buffer **out);

/* Copies to the device; returns when data may be reused, after all earlier work of the runtime.
 * Threads: as the runtime.
 * Parameters: buffer: not NULL; offset, size: bytes within it; data: size bytes.
 * Returns: ENIGMA_OK; ENIGMA_E_INVALID when the range is outside; ENIGMA_E_DEVICE. */
ENIGMA_API enigma_status enigma_buffer_write(enigma_buffer *buffer, size_t offset, const void *data, size_t size);

/* Copies from the device, after all earlier work of the runtime.
 * Threads: as the runtime.
 * Parameters: buffer: not NULL; offset, size: bytes within it; data: receives size bytes.
 * Returns: ENIGMA_OK; ENIGMA_E_INVALID when the range is outside; ENIGMA_E_DEVICE. */
ENIGMA_API enigma_status enigma_buffer_read(enigma_buffer *buffer, size_t offset, void *data, size_t size);

/* The size in bytes.
 * Threads: as the runtime.
 * Parameters: buffer: not NULL.
 * Returns: the size. */
ENIGMA_API size_t enigma_buffer_size(const enigma_buffer *buffer);

/* Frees a buffer; a prepared kernel that uses it keeps the memory.
 * Threads: as the runtime.
 * Parameters: buffer: NULL does nothing. */
ENIGMA_API void enigma_buffer_free(enigma_buffer *buffer);

/* ==== 13 Kernels ================================================================================================ */

/* A compiled kernel. */
typedef struct enigma_kernel enigma_kernel;

/* A kernel with its arguments bound and its buffers there: what is dispatched. */
typedef struct enigma_prepared enigma_prepared;

/* What to compile. */
typedef struct enigma_kernel_desc {
    uint32_t struct_size;
    const char *name;    /* the kernel function */
    const char *source;  /* text or binary; NULL: read path */
    size_t source_size;  /* 0: source ends with a NUL */
    const char *path;    /* a file (.cl .cu .ptx .cubin .metal .metallib); NULL: source */
    const char *options; /* for the backend's compiler; NULL: none */
} enigma_kernel_desc;

/* Compiles a kernel.
 * Threads: as the runtime.
 * Parameters: runtime: not NULL; desc: name and one of source and path; out: receives the kernel.
 * Returns: ENIGMA_OK; ENIGMA_E_COMPILE with the compiler's log; ENIGMA_E_INVALID; ENIGMA_E_NOT_FOUND when the program has no
 * kernel of that name (the message lists those it has); ENIGMA_E_IO.
 * Free with: enigma_kernel_free. */
ENIGMA_API enigma_status enigma_kernel_compile(enigma_runtime *runtime, const enigma_kernel_desc *desc, enigma_kernel **out);

/* The kernel's name.
 * Threads: any.
 * Parameters: kernel: not NULL.
 * Returns: text that lives as long as the kernel. */
ENIGMA_API enigma_text enigma_kernel_name(const enigma_kernel *kernel);

/* Frees a kernel; prepared kernels made from it stay valid.
 * Threads: as the runtime.
 * Parameters: kernel: NULL does nothing. */
ENIGMA_API void enigma_kernel_free(enigma_kernel *kernel);

/* How an argument reaches the kernel. */
enum enigma_argument_kind {
    ENIGMA_ARGUMENT_DATA = 0,   /* size bytes, copied into a device buffer of the prepared kernel's own */
    ENIGMA_ARGUMENT_SCALAR = 1, /* size bytes, passed by value */
    ENIGMA_ARGUMENT_BUFFER = 2  /* an enigma_buffer of the same runtime */
};

/* An input of a kernel. */
typedef struct enigma_argument {
    uint32_t kind; /* enum enigma_argument_kind */
    const void *data;
    size_t size;
    enigma_buffer *buffer;
    const char *dtype;     /* for RECORD_SHAPES, "float32"; NULL: "bytes" */
    const uint64_t *shape; /* for RECORD_SHAPES; NULL: (size,) */
    size_t rank;
} enigma_argument;

/* Binds arguments: the inputs, then the outputs, checked against the kernel's own list before anything runs.
 * Threads: as the runtime.
 * Parameters: kernel: not NULL; inputs: copied; NULL with count 0; output_sizes: bytes of each output, which starts zeroed;
 * NULL with count 0; out: receives the prepared kernel.
 * Returns: ENIGMA_OK; ENIGMA_E_INVALID when the number, kind or size of the arguments is not what the kernel takes;
 * ENIGMA_E_NO_MEMORY; ENIGMA_E_DEVICE.
 * Free with: enigma_prepared_free. */
ENIGMA_API enigma_status enigma_prepare(enigma_kernel *kernel, const enigma_argument *inputs, size_t input_count,
                                        const size_t *output_sizes, size_t output_count, enigma_prepared **out);

/* The kernel's name.
 * Threads: any.
 * Parameters: prepared: not NULL.
 * Returns: text that lives as long as the prepared kernel. */
ENIGMA_API enigma_text enigma_prepared_name(const enigma_prepared *prepared);

/* The size of an output in bytes.
 * Threads: as the runtime.
 * Parameters: prepared: not NULL; output: index among the outputs.
 * Returns: the size; 0 when there is no such output. */
ENIGMA_API size_t enigma_prepared_output_size(const enigma_prepared *prepared, size_t output);

/* Copies an output back, after all earlier work of the runtime.
 * Threads: as the runtime.
 * Parameters: prepared: not NULL; output: index among the outputs; data: receives size bytes; size: the output's.
 * Returns: ENIGMA_OK; ENIGMA_E_INVALID; ENIGMA_E_STATE in a child process after fork; ENIGMA_E_DEVICE. */
ENIGMA_API enigma_status enigma_prepared_read_output(enigma_prepared *prepared, size_t output, void *data, size_t size);

/* Waits for the asynchronous dispatches of this prepared kernel.
 * Threads: as the runtime.
 * Parameters: prepared: not NULL.
 * Returns: ENIGMA_OK; ENIGMA_E_DEVICE; ENIGMA_E_INTERRUPTED. */
ENIGMA_API enigma_status enigma_prepared_wait(enigma_prepared *prepared);

/* Frees a prepared kernel and its buffers, once its dispatches are complete.
 * Threads: as the runtime.
 * Parameters: prepared: NULL does nothing. */
ENIGMA_API void enigma_prepared_free(enigma_prepared *prepared);

/* ==== 14 Dispatch =============================================================================================== */

/* How a dispatch is made. */
enum enigma_dispatch_flags {
    ENIGMA_DISPATCH_ASYNC = 1 << 0,     /* return once queued */
    ENIGMA_DISPATCH_UNRECORDED = 1 << 1 /* no event, even with an active profiler */
};

/* What a dispatch runs, where, and how it is recorded. */
typedef struct enigma_dispatch_options {
    uint32_t struct_size;
    uint32_t flags;                /* enum enigma_dispatch_flags */
    enigma_size3 grid;             /* threads in all */
    enigma_size3 threads;          /* threads of one group (work-group, block, threadgroup) */
    uint32_t queue;                /* which queue of the runtime */
    uint32_t device;               /* which device of a runtime that has several; 0 elsewhere */
    const enigma_context *context; /* where it is recorded; NULL: the calling thread's context */
    const enigma_metric *metrics;  /* of this dispatch; a hook is not asked then */
    size_t metric_count;
} enigma_dispatch_options;

#define ENIGMA_DISPATCH_OPTIONS_INIT {sizeof(enigma_dispatch_options), 0, {1, 1, 1}, {1, 1, 1}, 0, 0, NULL, NULL, 0}

/* Runs a prepared kernel and, unless ENIGMA_DISPATCH_ASYNC is set, waits for it. With an active profiler it takes the timed
 * path and is one event; without one it takes the untimed fast path.
 * Threads: as the runtime.
 * Parameters: prepared: not NULL; options: not NULL.
 * Returns: ENIGMA_OK; ENIGMA_E_INVALID for sizes that the device or kernel cannot run (before anything runs);
 * ENIGMA_E_STATE in a child process after fork; ENIGMA_E_DEVICE (the event stays, with metadata "error");
 * ENIGMA_E_INTERRUPTED. */
ENIGMA_API enigma_status enigma_dispatch(enigma_prepared *prepared, const enigma_dispatch_options *options);

/* Runs a prepared kernel on the timed path, records no event, and gives its device time.
 * Threads: as the runtime.
 * Parameters: prepared, options: as enigma_dispatch; out_us: receives the device time in us; 0 when the stamps are not
 * valid (the message says why).
 * Returns: as enigma_dispatch. */
ENIGMA_API enigma_status enigma_dispatch_timed(enigma_prepared *prepared, const enigma_dispatch_options *options,
                                               double *out_us);

/* Prepares, dispatches, reads the outputs back and frees in one call, recorded as the parent event execute_total with its
 * steps as children.
 * Threads: as the runtime.
 * Parameters: kernel: not NULL; inputs, output_sizes and their counts: as enigma_prepare; outputs: a destination for each
 * output; options: as enigma_dispatch.
 * Returns: as enigma_prepare and enigma_dispatch. */
ENIGMA_API enigma_status enigma_execute(enigma_kernel *kernel, const enigma_argument *inputs, size_t input_count,
                                        void *const *outputs, const size_t *output_sizes, size_t output_count,
                                        const enigma_dispatch_options *options);

/* ==== 15 Benchmark ============================================================================================== */

/* A finished benchmark. Immutable. */
typedef struct enigma_benchmark enigma_benchmark;

/* What a benchmark runs, and how often. */
typedef struct enigma_benchmark_options {
    uint32_t struct_size;
    uint32_t device, queue;
    enigma_size3 grid, threads;
    uint64_t repeat;    /* timed runs, exact */
    uint64_t warmup;    /* untimed runs before them, exact */
    double flops;       /* per dispatch; negative: not given */
    double bytes_moved; /* per dispatch; negative: not given */
} enigma_benchmark_options;

#define ENIGMA_BENCHMARK_OPTIONS_INIT {sizeof(enigma_benchmark_options), 0, 0, {1, 1, 1}, {1, 1, 1}, 100, 10, -1.0, -1.0}

/* What was measured; times are device times in us. Percentiles are interpolated linearly between order statistics. */
typedef struct enigma_benchmark_info {
    uint32_t struct_size;
    enigma_text kernel_name;
    const double *gpu_times_us; /* calls of them, in run order */
    size_t calls;
    double min_us, median_us, mean_us, p90_us, max_us;
    double flops, bytes_moved;         /* as given; negative: not given */
    double gflops_per_s, gbytes_per_s; /* over the median; 0 when not given or no time */
} enigma_benchmark_info;

/* Times a prepared kernel by device stamps only: warmup runs on the untimed path, then repeat timed runs. Nothing is recorded.
 * Threads: as the runtime.
 * Parameters: prepared: not NULL; options: not NULL; out: receives the benchmark.
 * Returns: ENIGMA_OK; ENIGMA_E_INVALID (repeat 0, sizes, a flops or bytes_moved that is not finite); ENIGMA_E_DEVICE, also when a
 * run has no valid device time; ENIGMA_E_INTERRUPTED; ENIGMA_E_NO_MEMORY.
 * Free with: enigma_benchmark_free. */
ENIGMA_API enigma_status enigma_benchmark_kernel(enigma_prepared *prepared, const enigma_benchmark_options *options,
                                                 enigma_benchmark **out);

/* Makes a benchmark of times measured elsewhere, with the same statistics.
 * Threads: any.
 * Parameters: kernel_name: copied; gpu_times_us: count of them, count not 0; flops, bytes_moved: negative: not given; out:
 * receives the benchmark.
 * Returns: ENIGMA_OK; ENIGMA_E_INVALID; ENIGMA_E_NO_MEMORY.
 * Free with: enigma_benchmark_free. */
ENIGMA_API enigma_status enigma_benchmark_from_times(enigma_text kernel_name, const double *gpu_times_us, size_t count,
                                                     double flops, double bytes_moved, enigma_benchmark **out);

/* The numbers of a benchmark.
 * Threads: any; they live as long as the benchmark.
 * Parameters: benchmark: not NULL; out: struct_size set. */
ENIGMA_API void enigma_benchmark_get(const enigma_benchmark *benchmark, enigma_benchmark_info *out);

/* Writes one line: min, p50, mean, p90, max and, where given, GFLOP/s and GB/s; no newline.
 * Threads: any.
 * Parameters: benchmark: not NULL; write, user: where to.
 * Returns: ENIGMA_OK; ENIGMA_E_IO when write stopped it. */
ENIGMA_API enigma_status enigma_benchmark_write_summary(const enigma_benchmark *benchmark, enigma_write_fn write, void *user);

/* Frees a benchmark.
 * Threads: any, while no other thread reads it.
 * Parameters: benchmark: NULL does nothing. */
ENIGMA_API void enigma_benchmark_free(enigma_benchmark *benchmark);

/* What enigma_profile_kernel runs, and how often. */
typedef struct enigma_profile_kernel_options {
    uint32_t struct_size;
    uint32_t device, queue;
    enigma_size3 grid, threads;
    uint64_t repeat;
    uint64_t warmup;
    int profile_memory; /* record byte counts */
} enigma_profile_kernel_options;

#define ENIGMA_PROFILE_KERNEL_OPTIONS_INIT {sizeof(enigma_profile_kernel_options), 0, 0, {1, 1, 1}, {1, 1, 1}, 50, 5, 1}

/* Dispatches a prepared kernel repeat times under a profiler of its own (after warmup untimed runs) and aggregates.
 * Threads: as the runtime.
 * Parameters: prepared: not NULL; options: not NULL; out: receives the rows, grouped by name.
 * Returns: as enigma_benchmark_kernel; runs without valid device time are kept and flagged.
 * Free with: enigma_result_free. */
ENIGMA_API enigma_status enigma_profile_kernel(enigma_prepared *prepared, const enigma_profile_kernel_options *options,
                                               enigma_result **out);

/* ==== 16 Testing ================================================================================================ */

/* A runtime that runs nothing and reports the device stamps it is told, and a host clock that moves only when told: so that
 * code which profiles can be tested without a GPU, with exact numbers. */

/* A scripted runtime's device and clock. */
typedef struct enigma_scripted_options {
    uint32_t struct_size;
    int64_t clock_offset_ns; /* device clock less host clock */
    double drift_ppm;        /* how much faster the device clock runs */
    double tick_ns;          /* stamps are floored to ticks */
    uint32_t counter_bits;   /* and cut to so many bits, 1 to 64 */
    uint32_t queues, devices;
    uint32_t partial_groups; /* 1: grids need not be multiples of the group */
} enigma_scripted_options;

#define ENIGMA_SCRIPTED_OPTIONS_INIT {sizeof(enigma_scripted_options), 0, 0.0, 1.0, 64, 1, 1, 1}

/* How a scripted dispatch ends. */
enum enigma_script_kind {
    ENIGMA_SCRIPT_TIMES = 0,       /* the dispatch reports start_ns and end_ns (device clock) */
    ENIGMA_SCRIPT_UNAVAILABLE = 1, /* it runs, its stamps are not available */
    ENIGMA_SCRIPT_FAILURE = 2      /* it fails with message */
};

/* What one scripted dispatch reports. */
typedef struct enigma_script {
    uint32_t kind; /* enum enigma_script_kind */
    uint64_t start_ns, end_ns;
    const char *message;
} enigma_script;

/* Opens a scripted runtime. kernel_compile takes any name with any source; every argument list fits.
 * Threads: any.
 * Parameters: options: NULL means ENIGMA_SCRIPTED_OPTIONS_INIT; out: receives the runtime.
 * Returns: ENIGMA_OK; ENIGMA_E_INVALID; ENIGMA_E_NO_MEMORY.
 * Free with: enigma_runtime_free. */
ENIGMA_API enigma_status enigma_scripted_open(const enigma_scripted_options *options, enigma_runtime **out);

/* Queues what the next dispatches on a queue of a device report; each dispatch, untimed too, takes one entry. With nothing
 * queued a dispatch takes 1 us of device time.
 * Threads: as the runtime.
 * Parameters: runtime: a scripted one; device, queue: which; scripts: count of them, copied.
 * Returns: ENIGMA_OK; ENIGMA_E_INVALID; ENIGMA_E_NO_MEMORY. */
ENIGMA_API enigma_status enigma_scripted_push(enigma_runtime *runtime, uint32_t device, uint32_t queue,
                                              const enigma_script *scripts, size_t count);

/* How many dispatches ran.
 * Threads: as the runtime.
 * Parameters: runtime: a scripted one; untimed, timed: receive the counts; NULL: not wanted.
 * Returns: ENIGMA_OK; ENIGMA_E_INVALID for another runtime. */
ENIGMA_API enigma_status enigma_scripted_counts(const enigma_runtime *runtime, uint64_t *untimed, uint64_t *timed);

/* Replaces the host clock of the process by one that moves only by enigma_scripted_clock_advance and, where a scripted
 * dispatch waits, by its device time. Begin and end nest: the outermost end restores the real clock.
 * Threads: any; the clock is the process's.
 * Parameters: start_ns: what the clock shows at first. */
ENIGMA_API void enigma_scripted_clock_begin(uint64_t start_ns);

/* Moves the scripted clock forward; does nothing when the real clock runs.
 * Threads: any.
 * Parameters: ns: by how much. */
ENIGMA_API void enigma_scripted_clock_advance(uint64_t ns);

/* Ends what enigma_scripted_clock_begin began.
 * Threads: any. */
ENIGMA_API void enigma_scripted_clock_end(void);

#ifdef __cplusplus
} /* extern "C" */

/* Ends a scope when the block is left; what ENIGMA_SCOPE declares in C++. */
class enigma_scope_guard {
  public:
    explicit enigma_scope_guard(enigma_scope scope) : scope_(scope) {}
    ~enigma_scope_guard() { enigma_end(scope_); }
    enigma_scope_guard(const enigma_scope_guard &) = delete;
    enigma_scope_guard &operator=(const enigma_scope_guard &) = delete;

  private:
    enigma_scope scope_;
};
#endif

#endif /* ENIGMA_H */
