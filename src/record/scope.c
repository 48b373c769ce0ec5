/* Scopes and events: the hot path. Begin finds the node, takes the record and stamps it last; end stamps first. No lock is taken
 * and nothing is allocated except where a chunk is full or a name is new. */
#include <string.h>

#include "base/str.h"
#include "record/recorder.h"
#include "record/spot.h"

/* ---- records ---- */

static void side_parent(eni_lane *lane, eni_record *record, uint64_t parent)
{
    uint32_t offset;
    eni_side_block *block = eni_lane_side(lane, sizeof *block + sizeof parent, &offset);
    if (block == NULL) {
        eni_journal_drop(lane->journal);
        return;
    }
    *block = (eni_side_block){.flags = ENI_SIDE_PARENT};
    memcpy(block + 1, &parent, sizeof parent);
    eni_lane_side_publish(lane, sizeof *block + sizeof parent);
    record->side = offset;
    record->flags = ENI_RECORD_FOREIGN_PARENT;
}

eni_record *eni_record_append(eni_lane *lane, uint32_t kind, uint32_t node, uint64_t parent, uint32_t category,
                              uint64_t start_ticks, uint64_t *id)
{
    if (ENI_UNLIKELY(lane->next == lane->end) && !eni_lane_grow(lane)) {
        eni_journal_drop(lane->journal);
        *id = 0;
        return NULL;
    }
    eni_record *record = lane->next++;
    record->end = 0;
    record->node = node;
    record->parent = (uint32_t)parent;
    record->side = 0;
    record->kind = (uint8_t)kind;
    record->category = (uint8_t)category;
    record->flags = 0;
    record->reserved = 0;
    if (ENI_UNLIKELY(parent != 0 && parent >> 32 != lane->owner)) {
        record->parent = 0;
        side_parent(lane, record, parent);
    }
    *id = ENI_RECORD_ID(lane->owner, lane->index);
    lane->index++;
    record->start = start_ticks != 0 ? start_ticks : eni_clock_ticks();
    __atomic_store_n(&lane->chunk->used, lane->chunk->used + sizeof *record, __ATOMIC_RELEASE);
    return record;
}

/* ---- keys, metrics, metadata ---- */

static uint32_t lane_key(void *user, enigma_text key)
{
    eni_lane *lane = user;
    size_t slot = ((uintptr_t)key.data >> 3 ^ (uintptr_t)key.data >> 9) & (ENI_KEY_SIZE - 1);
    if (lane->keys[slot].key == key.data && lane->keys[slot].size == key.size &&
        memcmp(lane->keys[slot].text, key.data, key.size) == 0) {
        return lane->keys[slot].id;
    }
    uint32_t size;
    eni_lock(&lane->journal->lock);
    uint32_t id = eni_journal_name(lane->journal, key);
    const char *text = eni_journal_name_text(lane->journal, id, &size);
    eni_unlock(&lane->journal->lock);
    if (id != 0) {
        lane->keys[slot].key = key.data;
        lane->keys[slot].text = text;
        lane->keys[slot].size = size;
        lane->keys[slot].id = id;
    }
    return id;
}

/* Counts of one block are small; longer lists go into several. */
#define BLOCK_METRICS 1024u
#define BLOCK_FIELDS 128u

static bool annotate_block(eni_lane *lane, eni_record *record, const enigma_metric *metrics, size_t metric_count,
                           const enigma_field *fields, size_t field_count)
{
    size_t size = sizeof(eni_side_block) + metric_count * sizeof(eni_metric_entry) + eni_fields_size(fields, field_count, 0);
    uint32_t offset;
    eni_side_block *block = eni_lane_side(lane, size, &offset);
    if (block == NULL) {
        return false;
    }
    *block = (eni_side_block){record->side, (uint16_t)metric_count, (uint8_t)field_count, 0};
    eni_metric_entry *entry = (eni_metric_entry *)(block + 1);
    for (size_t i = 0; i < metric_count; i++) {
        *entry++ = (eni_metric_entry){lane_key(lane, eni_text_of(metrics[i].key)), 0, metrics[i].value};
    }
    eni_fields_encode((char *)entry, fields, field_count, 0, lane_key, lane);
    eni_lane_side_publish(lane, size);
    __atomic_store_n(&record->side, offset, __ATOMIC_RELEASE);
    return true;
}

void eni_record_annotate(enigma_profiler *profiler, eni_record *record, uint64_t id, const enigma_metric *metrics,
                         size_t metric_count, const enigma_field *fields, size_t field_count)
{
    eni_lane *lane = eni_thread_lane(profiler);
    bool ok = lane != NULL && lane->owner == id >> 32;
    while (ok && metric_count + field_count != 0) {
        size_t some = metric_count < BLOCK_METRICS ? metric_count : BLOCK_METRICS;
        size_t more = field_count < BLOCK_FIELDS ? field_count : BLOCK_FIELDS;
        ok = annotate_block(lane, record, metrics, some, fields, more);
        metrics = some == 0 ? metrics : metrics + some;
        fields = more == 0 ? fields : fields + more;
        metric_count -= some;
        field_count -= more;
    }
    if (!ok) {
        eni_journal_drop(&profiler->journal);
    }
}

/* ---- the thread's own scopes ---- */

static void pop_ended(eni_thread *thread)
{
    while (__atomic_load_n(&thread->top->id, __ATOMIC_RELAXED) == 0) {
        thread->top--;
    }
}

static eni_lane *active_lane(eni_thread *thread)
{
    if (ENI_UNLIKELY(thread->lane == NULL)) {
        thread->lane = eni_thread_lane(thread->profiler);
    }
    return thread->lane;
}

static enigma_scope scope_push(eni_thread *thread, eni_lane *lane, uint32_t node, uint32_t category)
{
    eni_frame frame = {.id = thread->next_id, .node = node};
    if (ENI_UNLIKELY(!eni_frame_push(thread, &frame))) {
        eni_journal_drop(lane->journal);
        return (enigma_scope){0, NULL};
    }
    eni_frame *top = thread->top;
    top->record = eni_record_append(lane, ENI_KIND_SCOPE, node, top[-1].scope, category, 0, &top->scope);
    if (ENI_UNLIKELY(top->record == NULL)) {
        thread->top--;
        return (enigma_scope){0, NULL};
    }
    thread->next_id++;
    if (ENI_UNLIKELY(thread->shared != 0)) {
        eni_spot_share();
    }
    return (enigma_scope){frame.id, NULL};
}

/* The active profiler of the thread with its lane; false: nothing records here. */
static inline bool scope_ready(eni_thread *thread, eni_lane **lane)
{
    if (thread->profiler == NULL || !eni_recording(thread->profiler) || (*lane = active_lane(thread)) == NULL) {
        return false;
    }
    pop_ended(thread);
    return true;
}

static inline size_t memo_slot(uint32_t parent, uintptr_t key)
{
    return (key ^ key >> 8 ^ (uintptr_t)parent * 0x9e3779b1u) & (ENI_MEMO_SIZE - 1);
}

static uint32_t memo_miss(eni_lane *lane, enigma_profiler *profiler, size_t slot, uint32_t parent, const void *key,
                          enigma_text name)
{
    uint32_t node = enigma_path_child(profiler, parent, name);
    if (node != parent) {
        eni_lock(&lane->journal->lock);
        lane->memo[slot].text = eni_journal_name_text(lane->journal, eni_journal_node_at(lane->journal, node)->name,
                                                      &lane->memo[slot].size);
        eni_unlock(&lane->journal->lock);
        lane->memo[slot].key = key;
        lane->memo[slot].parent = parent;
        lane->memo[slot].node = node;
    }
    return node;
}

/* Sites are numbered, since the address of one may be used again after its library was unloaded; odd keys are sites, and texts are
 * compared by content, so that no address of a text can be taken for one. */
static uint32_t site_id(enigma_site *site)
{
    static uint32_t count; /* atomic */
    uint32_t id = __atomic_load_n(&site->id, __ATOMIC_RELAXED);
    if (ENI_UNLIKELY(id == 0)) {
        uint32_t fresh = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
        id = __atomic_compare_exchange_n(&site->id, &id, fresh, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED) ? fresh : id;
    }
    return id;
}

enigma_scope enigma_begin_site_(enigma_site *site)
{
    eni_thread *thread = &eni_thread_current;
    eni_lane *lane = NULL;
    if (!scope_ready(thread, &lane)) {
        return (enigma_scope){0, NULL};
    }
    uint32_t parent = thread->top->node;
    uintptr_t key = (uintptr_t)site_id(site) << 1 | 1;
    size_t slot = memo_slot(parent, key);
    uint32_t node = lane->memo[slot].node;
    if (ENI_UNLIKELY(lane->memo[slot].key != (const void *)key || lane->memo[slot].parent != parent)) {
        node = memo_miss(lane, thread->profiler, slot, parent, (const void *)key,
                         eni_text_of(site->name));
    }
    return scope_push(thread, lane, node, ENIGMA_CATEGORY_SCOPE);
}

/* The node of a name that is any text, its size exact. */
static uint32_t text_node(eni_lane *lane, enigma_profiler *profiler, uint32_t parent, enigma_text name)
{
    size_t slot = memo_slot(parent, (uintptr_t)name.data >> 1);
    if (lane->memo[slot].parent == parent && lane->memo[slot].text != NULL && lane->memo[slot].size == name.size &&
        memcmp(lane->memo[slot].text, name.data, name.size) == 0) {
        return lane->memo[slot].node;
    }
    return memo_miss(lane, profiler, slot, parent, NULL, name);
}

enigma_scope enigma_begin_text_(const char *name)
{
    eni_thread *thread = &eni_thread_current;
    eni_lane *lane = NULL;
    if (!scope_ready(thread, &lane)) {
        return (enigma_scope){0, NULL};
    }
    enigma_text text = eni_text_of(name == NULL ? "" : name);
    uint32_t node = text_node(lane, thread->profiler, thread->top->node, text);
    return scope_push(thread, lane, node, ENIGMA_CATEGORY_SCOPE);
}

enigma_scope enigma_begin_desc_(const enigma_scope_desc *desc)
{
    eni_thread *thread = &eni_thread_current;
    eni_lane *lane = NULL;
    if (!scope_ready(thread, &lane)) {
        return (enigma_scope){0, NULL};
    }
    enigma_profiler *profiler = thread->profiler;
    uint32_t category = desc->category.data == NULL ? ENIGMA_CATEGORY_SCOPE : enigma_category(profiler, desc->category);
    enigma_text name = eni_text_in(desc->name.data == NULL ? eni_text_of("") : desc->name);
    enigma_scope scope = scope_push(thread, lane, text_node(lane, profiler, thread->top->node, name), category);
    if (scope.id != 0 && desc->metric_count + desc->metadata_count != 0) {
        eni_record_annotate(profiler, thread->top->record, thread->top->scope, desc->metrics, desc->metric_count, desc->metadata,
                            desc->metadata_count);
    }
    return scope;
}

/* Not the top: marked as ended where it is in this thread's stack, or in another thread's. */
static void end_deeper(eni_thread *thread, uint64_t id, uint64_t ticks)
{
    if (id >> 40 != thread->key) {
        eni_frame_end_elsewhere(id, ticks);
        return;
    }
    for (eni_frame *frame = thread->top; frame > thread->frames; frame--) {
        if (frame->id == id) {
            eni_record_end(frame->record, ticks);
            __atomic_store_n(&frame->id, 0, __ATOMIC_RELEASE);
            break;
        }
    }
    if (thread->key != 0) {
        pop_ended(thread);
        if (thread->shared != 0) {
            eni_spot_share();
        }
    }
}

void enigma_end_(enigma_scope scope)
{
    uint64_t ticks = eni_clock_ticks();
    eni_thread *thread = &eni_thread_current;
    eni_frame *top = thread->top;
    if (ENI_UNLIKELY(thread->key == 0 || __atomic_load_n(&top->id, __ATOMIC_RELAXED) != scope.id)) {
        end_deeper(thread, scope.id, ticks);
        return;
    }
    eni_record_end(top->record, ticks);
    __atomic_store_n(&top->id, 0, __ATOMIC_RELAXED);
    thread->top = top - 1;
    if (ENI_UNLIKELY(__atomic_load_n(&thread->top->id, __ATOMIC_RELAXED) == 0)) {
        pop_ended(thread);
    }
    if (ENI_UNLIKELY(thread->shared != 0)) {
        eni_spot_share();
    }
}

/* ---- scopes and events at an explicit place ---- */

enigma_scope eni_profiler_begin(enigma_profiler *profiler, uint32_t kind, enigma_path node, uint64_t parent, uint32_t category,
                                uint64_t start_ticks)
{
    eni_lane *lane = eni_recording(profiler) ? eni_thread_lane(profiler) : NULL;
    enigma_scope scope = {0, NULL};
    if (lane != NULL) {
        scope.slot = eni_record_append(lane, kind, node, parent, category, start_ticks, &scope.id);
    }
    return scope;
}

enigma_scope enigma_scope_open(enigma_profiler *profiler, enigma_path path, uint64_t parent, uint32_t category)
{
    return eni_profiler_begin(profiler, ENI_KIND_SCOPE, path, parent, category, 0);
}

void enigma_scope_annotate(enigma_profiler *profiler, enigma_scope scope, const enigma_metric *metrics, size_t metric_count,
                           const enigma_field *metadata, size_t metadata_count)
{
    if (scope.id != 0 && eni_recording(profiler)) {
        eni_record_annotate(profiler, scope.slot, scope.id, metrics, metric_count, metadata, metadata_count);
    }
}

void enigma_scope_close(enigma_profiler *profiler, enigma_scope scope)
{
    uint64_t ticks = eni_clock_ticks();
    if (scope.id != 0 && eni_recording(profiler)) {
        eni_record_end(scope.slot, ticks);
    }
}

void eni_profiler_end(enigma_profiler *profiler, enigma_scope scope, uint64_t end_ticks)
{
    (void)profiler;
    if (scope.id != 0) {
        eni_record_end(scope.slot, end_ticks != 0 ? end_ticks : eni_clock_ticks());
    }
}

eni_gpu_block *eni_profiler_gpu_block(enigma_profiler *profiler, enigma_scope scope, uint32_t launch)
{
    eni_lane *lane = scope.id == 0 ? NULL : eni_thread_lane(profiler);
    eni_record *record = scope.slot;
    uint32_t offset;
    size_t size = sizeof(eni_side_block) + sizeof(eni_gpu_block);
    eni_side_block *block = lane == NULL || lane->owner != scope.id >> 32 ? NULL : eni_lane_side(lane, size, &offset);
    if (block == NULL) {
        if (scope.id != 0) {
            __atomic_store_n(&record->kind, ENI_KIND_EVENT, __ATOMIC_RELAXED);
            eni_journal_drop(&profiler->journal);
        }
        return NULL;
    }
    *block = (eni_side_block){.next = record->side, .flags = ENI_SIDE_GPU};
    eni_gpu_block *gpu = (eni_gpu_block *)(block + 1);
    *gpu = (eni_gpu_block){.launch = launch};
    eni_lane_side_publish(lane, size);
    __atomic_store_n(&record->side, offset, __ATOMIC_RELEASE);
    return gpu;
}

/* ---- work of other threads ---- */

#define FOREIGN_LANE (UINT64_C(1) << 63) /* in the key of a lane: no thread has it */

eni_lane *eni_profiler_foreign_lane(enigma_profiler *profiler, uint64_t thread_id)
{
    eni_lane *lane = eni_journal_lane(&profiler->journal, FOREIGN_LANE | thread_id, thread_id);
    if (lane == NULL) {
        eni_journal_drop(&profiler->journal);
    }
    return lane;
}

/* Parent, GPU block and metrics in one block. False: no memory. */
static bool foreign_side(eni_lane *lane, eni_record *record, const eni_foreign_event *event)
{
    bool parent = event->parent != 0 && event->parent >> 32 != lane->owner;
    bool gpu = event->kind == ENI_KIND_GPU;
    size_t size = sizeof(eni_side_block) + (parent ? 8 : 0) + (gpu ? sizeof(eni_gpu_block) : 0) +
                  event->metric_count * sizeof(eni_metric_entry);
    uint32_t offset;
    if (size == sizeof(eni_side_block)) {
        return true;
    }
    char *at = eni_lane_side(lane, size, &offset);
    if (at == NULL) {
        return false;
    }
    const eni_side_block head = {0, (uint16_t)event->metric_count, 0,
                                 (uint8_t)((parent ? ENI_SIDE_PARENT : 0) | (gpu ? ENI_SIDE_GPU : 0))};
    const eni_gpu_block block = {event->gpu_start_ns, event->gpu_end_ns, event->submit_ns, event->launch, event->status};
    memcpy(at, &head, sizeof head);
    at += sizeof head;
    if (parent) {
        memcpy(at, &event->parent, 8);
        at += 8;
        record->flags = ENI_RECORD_FOREIGN_PARENT;
    }
    if (gpu) {
        memcpy(at, &block, sizeof block);
        at += sizeof block;
    }
    for (size_t i = 0; i < event->metric_count; i++, at += sizeof(eni_metric_entry)) {
        const eni_metric_entry entry = {lane_key(lane, eni_text_of(event->metrics[i].key)), 0, event->metrics[i].value};
        memcpy(at, &entry, sizeof entry);
    }
    eni_lane_side_publish(lane, size);
    record->side = offset;
    return true;
}

uint64_t eni_profiler_add_foreign(eni_lane *lane, const eni_foreign_event *event)
{
    if (ENI_UNLIKELY(lane->next == lane->end) && !eni_lane_grow(lane)) {
        eni_journal_drop(lane->journal);
        return 0;
    }
    eni_record *record = lane->next;
    *record = (eni_record){.start = event->start_ticks,
                           .node = event->node,
                           .parent = event->parent >> 32 == lane->owner ? (uint32_t)event->parent : 0,
                           .kind = (uint8_t)event->kind,
                           .category = (uint8_t)event->category};
    record->end = event->end_ticks;
    if (!foreign_side(lane, record, event)) {
        eni_journal_drop(lane->journal);
        return 0;
    }
    lane->next++;
    __atomic_store_n(&lane->chunk->used, lane->chunk->used + sizeof *record, __ATOMIC_RELEASE);
    return ENI_RECORD_ID(lane->owner, lane->index++);
}

/* ---- events timed elsewhere ---- */

static eni_launch event_launch(const enigma_event *event)
{
    return (eni_launch){.grid = {event->grid.x, event->grid.y, event->grid.z},
                        .threads = {event->threads.x, event->threads.y, event->threads.z},
                        .input_bytes = event->input_bytes,
                        .output_bytes = event->output_bytes,
                        .buffer_count = event->buffer_count,
                        .queue = event->queue_id,
                        .device = ENI_NO_DEVICE,
                        .device_id = event->device_id};
}

static void event_gpu(enigma_profiler *profiler, enigma_scope scope, const enigma_event *event)
{
    const eni_launch launch = event_launch(event);
    eni_gpu_block *block = eni_profiler_gpu_block(profiler, scope, eni_profiler_launch(profiler, &launch, NULL, 0));
    if (block != NULL) {
        __atomic_store_n(&block->start, event->gpu_start_ns, __ATOMIC_RELAXED);
        __atomic_store_n(&block->end, event->gpu_end_ns, __ATOMIC_RELAXED);
        uint32_t status = event->gpu_start_ns == 0 || event->gpu_end_ns == 0  ? ENI_GPU_ZERO
                          : event->gpu_end_ns < event->gpu_start_ns           ? ENI_GPU_REVERSED
                                                                              : ENI_GPU_VALID;
        __atomic_store_n(&block->status, status, __ATOMIC_RELEASE);
    }
}

void enigma_profiler_add_event(enigma_profiler *profiler, const enigma_event *event, uint64_t parent)
{
    if (profiler == NULL || !eni_recording(profiler)) {
        return;
    }
    enigma_text name = event->name.data == NULL ? eni_text_of("") : event->name;
    uint32_t node = eni_profiler_node(profiler, event->path, name, event->kernel_name, ENI_NODE_RUNTIME);
    uint64_t start = eni_clock_ticks_of(event->start_ns);
    uint64_t end = eni_clock_ticks_of(event->end_ns);
    enigma_scope scope = eni_profiler_begin(profiler, event->is_gpu_work ? ENI_KIND_GPU : ENI_KIND_EVENT, node, parent,
                                            enigma_category(profiler, event->category), start == 0 ? 1 : start);
    if (scope.id == 0) {
        return;
    }
    if (event->is_gpu_work) {
        event_gpu(profiler, scope, event);
    }
    if (event->metric_count + event->metadata_count != 0) {
        eni_record_annotate(profiler, scope.slot, scope.id, event->metrics, event->metric_count, event->metadata,
                            event->metadata_count);
    }
    eni_record_end(scope.slot, end == 0 ? 1 : end);
}
