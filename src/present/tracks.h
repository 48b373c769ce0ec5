/* The tracks of a timeline: a process for the CPU with a track for each thread, a process for each device with a track for each
 * queue, and more tracks where slices on one would overlap. Numbers are small and positive, as every reader takes them: pid is the
 * real one for the CPU and made up for devices; tids are given in order and differ from the pid. Used by timeline exporters, on
 * one thread. */
#ifndef ENI_PRESENT_TRACKS_H
#define ENI_PRESENT_TRACKS_H

#include "present/lanes.h"

typedef struct eni_track_id {
    uint32_t pid, tid;
} eni_track_id;

typedef struct eni_track_info {
    eni_track_id id;
    uint32_t process; /* 0: the CPU, then the devices */
} eni_track_info;

typedef struct eni_process {
    uint32_t pid;
    uint32_t device; /* index in the profile's devices, ENI_NO_DEVICE: not known */
    uint32_t device_id;
} eni_process;

typedef struct eni_track {
    uint32_t process;
    uint32_t number;    /* index of the thread, or number of the queue */
    uint32_t first_tid; /* of its lanes */
} eni_track;

typedef struct eni_tracks {
    const enigma_profile *profile;
    eni_slice *cpu, *gpu; /* by track and start; ids are indices of events and of the profile's gpu */
    size_t cpu_count, gpu_count;
    eni_place *cpu_places, *gpu_places;
    eni_process *processes;
    size_t process_count, process_capacity;
    eni_track *tracks; /* threads, then queues by device */
    size_t track_count, track_capacity;
    uint32_t *lanes; /* of each track */
    struct eni_track_lane {
        uint32_t track, lane;
    } * rows; /* every lane of every track, in order */
    size_t row_count, row_capacity;
} eni_tracks;

enigma_status eni_tracks_build(const enigma_profile *profile, eni_tracks *out);
/* Where the slice of an event, or of a piece of GPU work with valid stamps, lies. */
eni_track_id eni_tracks_cpu(const eni_tracks *tracks, uint32_t event);
eni_track_id eni_tracks_gpu(const eni_tracks *tracks, uint32_t gpu);
/* The tracks in order, those of one process together; false past the end. */
bool eni_tracks_info(const eni_tracks *tracks, size_t index, eni_track_info *out);
void eni_tracks_name(const eni_tracks *tracks, size_t index, eni_str *out);
enigma_status eni_tracks_process_name(const eni_tracks *tracks, size_t index, eni_arena *arena, eni_str *out);
void eni_tracks_free(eni_tracks *tracks);

#endif
