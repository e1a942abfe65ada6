/*
 * engine.h - what runs a plan: the state that workers share, and the room that they need.
 *
 * units.c gives out the work, engine_room.c the buffers.
 */
#ifndef QP_RUN_ENGINE_H
#define QP_RUN_ENGINE_H

#include "unit.h"

/* Where the next unit comes from. */
struct qp_cursor {
    size_t tensor; /* in order[] */
    bool inside;   /* what follows belongs to that tensor */
    uint64_t copied, band, col;
    struct qp_strip strip;
    enum qp_unit_kind kind;
    unsigned pass;
    uint64_t piece;
    uint64_t number;
    unsigned n_slots_used;
    struct qp_slot *slot;
};

struct qp_engine {
    struct qp_job job; /* first: a step gets the job and means the engine */
    struct qp_unit_context context;
    const struct qp_plan_tensor **order; /* tensors with bytes, in file order */
    size_t n_order;
    struct qp_sets sets; /* of the cursor's tensor */
    uint64_t grain;      /* of its codes */
    struct qp_limits limits;
    uint64_t hold_rows;  /* of it that may be held; 0 = none are */
    bool holds;          /* some tensor has turned codes */
    bool decodes_turned; /* and some of the source, from which values are decoded */
    struct qp_cursor cursor;
    size_t state_bytes, known_bytes; /* of a set: what any calibrator of the plan needs */
    size_t large_states;             /* bytes of all that a strip has where they are large */
    uint64_t claimed_bytes;          /* of the source */
    struct qp_slot slots[2];         /* one being finished while the next begins */
};

/* Of a band that is too large for a tile, a tile holds so many bytes: some columns. */
#define QP_APART_BYTES ((size_t)1 << 20)

/* The sets that a tile has room for. */
size_t qp_sets_of_tile(size_t tile_bytes);

/* Rows that are written together, if anything is. */
uint64_t qp_engine_tall_rows(const struct qp_engine *engine, const struct qp_plan_tensor *t);

/* Sets that a strip in pieces has at the most where the states of its calibrator are large. */
uint64_t qp_engine_large_sets(const struct qp_engine *engine, const struct qp_plan_tensor *t);

/* Whether values lie in columns of the source, or codes that they are decoded from do. */
bool qp_is_read_turned(const struct qp_plan_tensor *t);

/* Makes room for what a tensor needs: states of its calibrator, and turned parts. */
void qp_engine_want(struct qp_engine *engine, const struct qp_plan_tensor *t);

/* How the job of an engine, whose order is complete, takes buffers; all but its step. */
struct qp_job_ops qp_engine_room(const struct qp_engine *engine);

#endif
