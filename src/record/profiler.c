/* Profilers: life, what is interned in them, devices and launches, snapshots, and what happens to them around fork. */
#include "record/profiler.h"

#include <string.h>

#include "base/str.h"
#include "record/recorder.h"
#include "record/spot.h"
#include "store/profile.h"

enigma_status (*eni_profiler_drain)(enigma_profiler *profiler, bool wait);
enigma_status (*eni_profiler_capture)(const char *path);
const eni_attach_hooks *eni_profiler_attach;

static eni_mutex registry_lock = ENI_MUTEX_INIT;
static enigma_profiler *registry; /* all profilers that exist */
static uint64_t next_serial = 1;  /* atomic */

static uint64_t new_serial(void) { return __atomic_fetch_add(&next_serial, 1, __ATOMIC_RELAXED); }

/* ---- fork ---- */

static void fork_before(void)
{
    eni_lock(&registry_lock);
    for (enigma_profiler *p = registry; p != NULL; p = p->next) {
        eni_lock(&p->journal.lock);
    }
}

static void fork_parent(void)
{
    for (enigma_profiler *p = registry; p != NULL; p = p->next) {
        eni_unlock(&p->journal.lock);
    }
    eni_unlock(&registry_lock);
}

/* In the child every profiler starts empty; its nodes stay, so that open paths go on. */
static void fork_child(void)
{
    for (enigma_profiler *p = registry; p != NULL; p = p->next) {
        eni_journal_disinherit(&p->journal);
        p->serial = new_serial();
    }
    eni_thread_forget_lanes();
    fork_parent();
}

__attribute__((constructor)) static void fork_register(void)
{
    static const eni_fork_handler handler = {ENI_FORK_RANK_STORE, fork_before, fork_parent, fork_child};
    eni_thread_at_fork(&handler);
}

/* ---- life ---- */

static void registry_add(enigma_profiler *profiler)
{
    eni_lock(&registry_lock);
    profiler->next = registry;
    if (registry != NULL) {
        registry->previous = profiler;
    }
    registry = profiler;
    eni_unlock(&registry_lock);
}

static void registry_remove(enigma_profiler *profiler)
{
    eni_lock(&registry_lock);
    if (profiler->previous != NULL) {
        profiler->previous->next = profiler->next;
    } else {
        registry = profiler->next;
    }
    if (profiler->next != NULL) {
        profiler->next->previous = profiler->previous;
    }
    eni_unlock(&registry_lock);
}

static bool has_suffix(const char *text, const char *suffix)
{
    size_t size = strlen(text);
    size_t suffix_size = strlen(suffix);
    return size >= suffix_size && strcmp(text + size - suffix_size, suffix) == 0;
}

static enigma_status check_options(const enigma_profiler_options *options)
{
    const uint32_t known = ENIGMA_PROFILER_RECORD_SHAPES | ENIGMA_PROFILER_PROFILE_MEMORY;
    if ((options->flags & ~known) != 0) {
        return ENI_FAIL(ENIGMA_E_INVALID, "profiler options: use ENIGMA_PROFILER_OPTIONS_INIT and the documented flags");
    }
    if (options->capture_path != NULL && !has_suffix(options->capture_path, ".gputrace")) {
        return ENI_FAIL(ENIGMA_E_INVALID, "capture path must end in .gputrace: %s", options->capture_path);
    }
    return ENIGMA_OK;
}

/* Takes what a caller gave that may know fewer members. */
static enigma_status take_options(const enigma_profiler_options *given, enigma_profiler_options *out)
{
    *out = (enigma_profiler_options)ENIGMA_PROFILER_OPTIONS_INIT;
    if (given == NULL) {
        return ENIGMA_OK;
    }
    if (given->struct_size < offsetof(enigma_profiler_options, attach)) {
        return ENI_FAIL(ENIGMA_E_INVALID, "profiler options: use ENIGMA_PROFILER_OPTIONS_INIT");
    }
    memcpy(out, given, given->struct_size < sizeof *out ? given->struct_size : sizeof *out);
    return check_options(out);
}

static enigma_status parse_attach(const char *names, uint32_t *out)
{
    *out = 0;
    if (names == NULL) {
        return ENIGMA_OK;
    }
    if (eni_profiler_attach == NULL) {
        return ENI_FAIL(ENIGMA_E_UNAVAILABLE, "this build attaches to nothing: %s", names);
    }
    return eni_profiler_attach->parse(names, out);
}

static void profiler_destroy(enigma_profiler *profiler)
{
    eni_journal_free(&profiler->journal);
    eni_intern_free(&profiler->categories);
    eni_map_free(&profiler->launches);
    eni_free(profiler->devices, profiler->device_capacity * sizeof *profiler->devices);
    eni_strfree(profiler->capture_path);
    eni_strfree(profiler->file_path);
    ENI_DELETE(profiler);
}

/* Copies the paths among the options. */
static bool take_paths(enigma_profiler *profiler, const enigma_profiler_options *options)
{
    profiler->capture_path = options->capture_path == NULL ? NULL : eni_strdup(options->capture_path);
    profiler->file_path = options->file == NULL ? NULL : eni_strdup(options->file);
    return (options->capture_path == NULL || profiler->capture_path != NULL) &&
           (options->file == NULL || profiler->file_path != NULL);
}

enigma_status enigma_profiler_create(const enigma_profiler_options *given, enigma_profiler **out)
{
    enigma_profiler_options taken;
    const enigma_profiler_options *options = &taken;
    uint32_t attach;
    *out = NULL;
    ENI_TRY(take_options(given, &taken));
    ENI_TRY(parse_attach(taken.attach, &attach));
    eni_clock_ready();
    enigma_profiler *profiler = ENI_NEW(enigma_profiler);
    if (profiler == NULL) {
        return ENI_NO_MEMORY();
    }
    enigma_status status = eni_journal_init(&profiler->journal);
    if (status != ENIGMA_OK) {
        ENI_DELETE(profiler);
        return status;
    }
    profiler->references = 1;
    profiler->recording = 1;
    profiler->flags = options->flags;
    profiler->attach = attach;
    profiler->serial = new_serial();
    if (!take_paths(profiler, options) ||
        enigma_category(profiler, eni_text_of("scope")) != ENIGMA_CATEGORY_SCOPE ||
        enigma_category(profiler, eni_text_of("python")) != ENIGMA_CATEGORY_PYTHON) {
        profiler_destroy(profiler);
        return ENI_NO_MEMORY();
    }
    registry_add(profiler);
    *out = profiler;
    return ENIGMA_OK;
}

void eni_profiler_retain(enigma_profiler *profiler) { __atomic_fetch_add(&profiler->references, 1, __ATOMIC_RELAXED); }

void eni_profiler_release(enigma_profiler *profiler)
{
    if (__atomic_sub_fetch(&profiler->references, 1, __ATOMIC_ACQ_REL) == 0) {
        if (profiler->attach != 0) {
            eni_profiler_attach->end(profiler, false); /* a thread may have ended without stopping it */
        }
        registry_remove(profiler);
        eni_journal_finish(&profiler->journal, eni_clock_ticks());
        profiler_destroy(profiler);
    }
}

void enigma_profiler_free(enigma_profiler *profiler)
{
    if (profiler != NULL) {
        __atomic_store_n(&profiler->recording, 0, __ATOMIC_RELAXED);
        eni_profiler_release(profiler);
    }
}

/* ---- opening and sealing ---- */

static uint32_t running_profilers; /* atomic: of all, in this process */

static enigma_status capture_begin(enigma_profiler *profiler)
{
    if (profiler->capture_path == NULL) {
        return ENIGMA_OK;
    }
    if (eni_profiler_capture == NULL) {
        return ENI_FAIL(ENIGMA_E_UNAVAILABLE, "capture to %s needs macOS, MTL_CAPTURE_ENABLED=1 in the environment before the "
                                              "process starts, and an existing MetalRuntime; there is no runtime yet",
                        profiler->capture_path);
    }
    return eni_profiler_capture(profiler->capture_path);
}

static enigma_status capture_end(const enigma_profiler *profiler)
{
    return profiler->capture_path == NULL || eni_profiler_capture == NULL ? ENIGMA_OK : eni_profiler_capture(NULL);
}

/* The file is made by the first start; a later one, or one in a forked child, finds no path any more. */
static enigma_status file_begin(enigma_profiler *profiler)
{
    char *path = profiler->file_path;
    if (path == NULL) {
        return ENIGMA_OK;
    }
    ENI_TRY(eni_journal_back(&profiler->journal, path, eni_process_id()));
    profiler->file_path = NULL;
    eni_strfree(path);
    return ENIGMA_OK;
}

/* What goes with the first start of a profiler and ends with its last stop. */
static enigma_status region_begin(enigma_profiler *profiler)
{
    ENI_TRY(file_begin(profiler));
    if (profiler->attach != 0) {
        ENI_TRY(eni_profiler_attach->begin(profiler, profiler->attach));
    }
    enigma_status status = capture_begin(profiler);
    if (status != ENIGMA_OK && profiler->attach != 0) {
        eni_profiler_attach->end(profiler, false);
    }
    return status;
}

static enigma_status region_end(enigma_profiler *profiler)
{
    enigma_status attached = profiler->attach == 0 ? ENIGMA_OK : eni_profiler_attach->end(profiler, true);
    enigma_status captured = capture_end(profiler);
    return attached == ENIGMA_OK ? captured : attached;
}

enigma_status enigma_profiler_open(enigma_profiler *profiler)
{
    if (profiler == NULL || !eni_recording(profiler)) {
        return ENI_FAIL(ENIGMA_E_STATE, "the profiler is sealed");
    }
    bool first = __atomic_fetch_add(&running_profilers, 1, __ATOMIC_RELAXED) == 0;
    eni_clock_discipline(first);
    enigma_status status = __atomic_fetch_add(&profiler->running, 1, __ATOMIC_RELAXED) == 0 ? region_begin(profiler) : ENIGMA_OK;
    if (status != ENIGMA_OK) {
        __atomic_fetch_sub(&profiler->running, 1, __ATOMIC_RELAXED);
        __atomic_fetch_sub(&running_profilers, 1, __ATOMIC_RELAXED);
    }
    return status;
}

/* The end of what enigma_profiler_open began: waits for asynchronous work. */
enigma_status eni_profiler_close(enigma_profiler *profiler)
{
    enigma_status status = eni_profiler_drain == NULL ? ENIGMA_OK : eni_profiler_drain(profiler, true);
    if (__atomic_sub_fetch(&profiler->running, 1, __ATOMIC_RELAXED) == 0) {
        enigma_status ended = region_end(profiler);
        status = status == ENIGMA_OK ? ended : status;
    }
    eni_clock_discipline(false);
    eni_journal_note_clock(&profiler->journal);
    __atomic_fetch_sub(&running_profilers, 1, __ATOMIC_RELAXED);
    return status;
}

enigma_status enigma_profiler_seal(enigma_profiler *profiler)
{
    if (profiler == NULL || __atomic_exchange_n(&profiler->recording, 0, __ATOMIC_RELAXED) == 0) {
        return ENIGMA_OK;
    }
    __atomic_store_n(&profiler->end_ticks, eni_clock_ticks(), __ATOMIC_RELEASE);
    enigma_status status = __atomic_load_n(&profiler->running, __ATOMIC_RELAXED) == 0 ? ENIGMA_OK : eni_profiler_close(profiler);
    eni_journal_finish(&profiler->journal, profiler->end_ticks);
    return status;
}

enigma_status enigma_profiler_snapshot(enigma_profiler *profiler, enigma_profile **out)
{
    uint8_t *image;
    size_t size;
    *out = NULL;
    if (profiler == NULL) {
        return ENI_FAIL(ENIGMA_E_INVALID, "profiler is NULL");
    }
    if (eni_profiler_drain != NULL) {
        eni_profiler_drain(profiler, false);
    }
    if (profiler->attach != 0) {
        eni_profiler_attach->drain(profiler);
    }
    eni_clock_discipline(false);
    const eni_image_options options = {eni_process_id(), ENI_IMAGE_COMPLETE, __atomic_load_n(&profiler->end_ticks, __ATOMIC_ACQUIRE)};
    ENI_TRY(eni_journal_image(&profiler->journal, &options, &image, &size));
    return eni_profile_from_image(image, size, "the snapshot", out);
}

/* ---- what the GPU side asks ---- */

uint64_t eni_profiler_id(const enigma_profiler *profiler) { return __atomic_load_n(&profiler->serial, __ATOMIC_RELAXED); }
uint32_t eni_profiler_flags(const enigma_profiler *profiler) { return profiler->flags; }
bool eni_profiler_recording(const enigma_profiler *profiler) { return eni_recording(profiler); }
void eni_profiler_count_drop(enigma_profiler *profiler) { eni_journal_drop(&profiler->journal); }

/* ---- nodes and categories ---- */

uint32_t eni_profiler_node(enigma_profiler *profiler, uint32_t parent, enigma_text name, enigma_text kernel, uint32_t flags)
{
    eni_journal *journal = &profiler->journal;
    eni_lock(&journal->lock);
    eni_node node = {parent, eni_journal_name(journal, eni_text_in(name)), eni_journal_name(journal, eni_text_in(kernel)), flags};
    uint32_t found = ENI_NODE_FAILED;
    if (node.name != 0 && (kernel.data == NULL || node.kernel != 0)) {
        found = eni_journal_node(journal, &node);
    }
    eni_unlock(&journal->lock);
    if (found == ENI_NODE_FAILED) {
        eni_journal_drop(journal);
        return parent;
    }
    return found;
}

enigma_path enigma_path_child(enigma_profiler *profiler, enigma_path parent, enigma_text name)
{
    static const enigma_text none = {NULL, 0};
    return eni_profiler_node(profiler, parent, name.data == NULL ? eni_text_of("") : name, none, 0);
}

enigma_path eni_profiler_runtime_path(enigma_profiler *profiler, enigma_path parent, enigma_text name, enigma_text kernel)
{
    return eni_profiler_node(profiler, parent, name, kernel, ENI_NODE_RUNTIME);
}

/* The names of a node, leaf first, copied out so that no two journals are locked at once. */
bool eni_profiler_path_names(enigma_profiler *from, enigma_path path, eni_arena *arena, enigma_text **names, size_t *count)
{
    size_t capacity = 0;
    bool ok = true;
    *names = NULL;
    *count = 0;
    eni_lock(&from->journal.lock);
    while (ok && path != 0) {
        const eni_node *node = eni_journal_node_at(&from->journal, path);
        uint32_t size;
        ok = node != NULL && eni_grow((void **)names, &capacity, *count, sizeof **names);
        if (ok) {
            enigma_text name = {eni_journal_name_text(&from->journal, node->name, &size), 0};
            name.size = size;
            ok = eni_arena_text(arena, name, &(*names)[(*count)++]);
            path = node->parent;
        }
    }
    eni_unlock(&from->journal.lock);
    if (!ok) {
        eni_free(*names, capacity * sizeof **names);
        return false;
    }
    *names = eni_resize(*names, capacity * sizeof **names, (*count + 1) * sizeof **names);
    return *names != NULL;
}

enigma_path enigma_path_import(enigma_profiler *profiler, enigma_profiler *from, enigma_path path)
{
    eni_arena arena = {NULL, NULL, NULL};
    enigma_text *names = NULL;
    size_t count = 0;
    enigma_path node = 0;
    if (profiler == from) {
        return path;
    }
    if (eni_profiler_path_names(from, path, &arena, &names, &count)) {
        for (size_t i = count; i > 0; i--) {
            node = eni_profiler_node(profiler, node, names[i - 1], (enigma_text){NULL, 0}, 0);
        }
        eni_free(names, (count + 1) * sizeof *names);
    } else {
        eni_journal_drop(&profiler->journal);
    }
    eni_arena_free(&arena);
    return node;
}

#define CATEGORY_OTHER 255u

static uint32_t category_add(enigma_profiler *profiler, enigma_text category)
{
    eni_intern *table = &profiler->categories;
    if (table->count >= CATEGORY_OTHER) {
        category = eni_text_of("other");
    }
    uint32_t name = eni_journal_name(&profiler->journal, category);
    void *entry = name == 0 ? NULL : eni_journal_append(&profiler->journal, ENI_STREAM_CATEGORIES, 8);
    uint32_t id = ENI_INTERN_NONE;
    if (entry != NULL) {
        memcpy(entry, &name, sizeof name);
        id = eni_journal_publish(&profiler->journal, ENI_STREAM_CATEGORIES, 8) ? eni_intern_put(table, category) : id;
    }
    if (id == ENI_INTERN_NONE) {
        eni_journal_drop(&profiler->journal);
        return ENIGMA_CATEGORY_SCOPE;
    }
    return id;
}

uint32_t enigma_category(enigma_profiler *profiler, enigma_text category)
{
    category = category.data == NULL ? eni_text_of("scope") : eni_text_in(category);
    eni_lock(&profiler->journal.lock);
    uint32_t id = eni_intern_find(&profiler->categories, category);
    if (id == ENI_INTERN_NONE && profiler->categories.count > CATEGORY_OTHER) {
        id = CATEGORY_OTHER;
    }
    if (id == ENI_INTERN_NONE) {
        id = category_add(profiler, category);
    }
    eni_unlock(&profiler->journal.lock);
    return id;
}

/* ---- devices, launches, clock pairs ---- */

static uint32_t device_add(enigma_profiler *profiler, uint64_t key, const eni_device_entry *device, const enigma_field *facts,
                           size_t fact_count)
{
    eni_journal *journal = &profiler->journal;
    if (!eni_grow((void **)&profiler->devices, &profiler->device_capacity, profiler->device_count, sizeof *profiler->devices)) {
        return ENI_NO_DEVICE;
    }
    uint32_t fields = eni_journal_fields(journal, facts, fact_count);
    eni_device_entry *entry = eni_journal_append(journal, ENI_STREAM_DEVICES, sizeof *entry);
    if (entry == NULL) {
        return ENI_NO_DEVICE;
    }
    *entry = *device;
    entry->fields = fields;
    if (!eni_journal_publish(journal, ENI_STREAM_DEVICES, sizeof *entry)) {
        return ENI_NO_DEVICE;
    }
    uint32_t index = (uint32_t)profiler->device_count++;
    profiler->devices[index].key = key;
    profiler->devices[index].device_id = device->device_id;
    profiler->devices[index].device = index;
    return index;
}

uint32_t eni_profiler_device(enigma_profiler *profiler, uint64_t key, uint32_t device_id, double tick_ns, uint32_t counter_bits,
                             const enigma_field *facts, size_t fact_count)
{
    const eni_device_entry device = {.tick_ns = tick_ns, .counter_bits = counter_bits, .device_id = device_id};
    uint32_t found = ENI_NO_DEVICE;
    eni_lock(&profiler->journal.lock);
    for (size_t i = 0; i < profiler->device_count; i++) {
        if (profiler->devices[i].key == key && profiler->devices[i].device_id == device_id) {
            found = profiler->devices[i].device;
        }
    }
    if (found == ENI_NO_DEVICE) {
        found = device_add(profiler, key, &device, facts, fact_count);
    }
    eni_unlock(&profiler->journal.lock);
    if (found == ENI_NO_DEVICE) {
        eni_journal_drop(&profiler->journal);
    }
    return found;
}

/* Launches are told apart by a 64-bit hash of their sizes and encoded fields: among a million shapes the odds of one clash are
 * 3 in 10^8. */
static uint64_t launch_hash(const eni_launch *launch, const char *fields, size_t size)
{
    uint64_t a = eni_text_hash((enigma_text){(const char *)launch, sizeof *launch});
    return a * 0x9e3779b97f4a7c15u ^ eni_text_hash((enigma_text){fields, size});
}

static uint32_t launch_key(void *user, enigma_text key) { return eni_journal_name(user, key); }

static uint32_t launch_add(eni_journal *journal, const eni_launch *launch, const enigma_field *fields, size_t count)
{
    uint32_t number = (uint32_t)(eni_journal_size(journal, ENI_STREAM_LAUNCHES) / sizeof *launch);
    uint32_t encoded = count == 0 ? 0 : eni_journal_fields(journal, fields, count);
    eni_launch *entry = eni_journal_append(journal, ENI_STREAM_LAUNCHES, sizeof *entry);
    if (entry == NULL) {
        return 0;
    }
    *entry = *launch;
    entry->fields = encoded;
    return eni_journal_publish(journal, ENI_STREAM_LAUNCHES, sizeof *entry) ? number : 0;
}

static uint32_t launch_find(enigma_profiler *profiler, const eni_launch *launch, const enigma_field *fields, size_t count)
{
    size_t size = eni_fields_size(fields, count, 0);
    char *encoded = eni_alloc_zero(size + 1);
    if (encoded == NULL) {
        return 0;
    }
    eni_fields_encode(encoded, fields, count, 0, launch_key, &profiler->journal);
    uint32_t *found = eni_map_put(&profiler->launches, launch_hash(launch, encoded, size), 0);
    if (found != NULL && *found == 0) {
        *found = launch_add(&profiler->journal, launch, fields, count);
    }
    eni_free(encoded, size + 1);
    return found == NULL ? 0 : *found;
}

uint32_t eni_profiler_launch(enigma_profiler *profiler, const eni_launch *launch, const enigma_field *fields, size_t field_count)
{
    eni_launch plain = *launch;
    plain.fields = 0;
    eni_lock(&profiler->journal.lock);
    uint32_t found = launch_find(profiler, &plain, fields, field_count);
    eni_unlock(&profiler->journal.lock);
    if (found == 0) {
        eni_journal_drop(&profiler->journal);
    }
    return found;
}

void eni_profiler_pair(enigma_profiler *profiler, uint32_t device, uint64_t device_ticks, uint64_t host_ticks,
                       uint32_t uncertainty_ns)
{
    eni_journal *journal = &profiler->journal;
    bool kept = false;
    eni_lock(&journal->lock);
    eni_clock_pair_entry *entry = device == ENI_NO_DEVICE ? NULL : eni_journal_append(journal, ENI_STREAM_PAIRS, sizeof *entry);
    if (entry != NULL) {
        *entry = (eni_clock_pair_entry){device, uncertainty_ns, device_ticks, host_ticks, 0};
        kept = eni_journal_publish(journal, ENI_STREAM_PAIRS, sizeof *entry);
    }
    eni_unlock(&journal->lock);
    if (!kept) {
        eni_journal_drop(journal);
    }
}
