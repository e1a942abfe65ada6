/*
 * measure.c - comparing a file with its source, in flat order.
 *
 * A unit is a fixed number of elements, a multiple of QP_BLOCK. Workers compute units in any order;
 * their results wait in a ring and are taken in ascending order: so the sums, and which offender is
 * the first, are the same for any number of workers and any tile size, and no worker waits for a
 * slower one unless the ring is full.
 */
#include "decode.h"
#include "execute_flat.h"
#include "plan.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/dtype.h"
#include "job.h"
#include "transfer.h"

#include <math.h>
#include <string.h>

/* Results that may wait for that of a unit before them. */
#define RING 32

struct engine {
    struct qp_job job; /* first: a step gets the job and means the engine */
    struct qp_pair *pairs;
    const struct qp_st *file, *source;
    struct qplan_device *device; /* NULL = the CPU */
    struct qp_flat flat;
    struct slot *ring; /* the result of unit u is in slot u % RING */
    uint64_t turn;     /* the unit whose result is taken next */
};

/* What a worker does at a time: elements of a quantized tensor, bytes of a kept one. */
struct unit {
    uint64_t number;
    struct qp_pair *pair;
    uint64_t elem, n;
    double largest; /* error of the pair that has been handed in already */
};

struct buffers {
    void *source; /* room for elements of the source, or bytes of a kept tensor in both files */
    void *block;  /* decoded values in working precision */
    uint8_t *codes;
    struct qp_param_window window;
    double *bound;
    struct qp_sums *sums;
    struct qp_flat_buffers flat; /* in the place of all but source and sums, on a device */
};

/* What a unit found; .sums of the buffers belongs to it. */
struct finding {
    struct qp_measure part; /* counts and the first offender */
    size_t n_blocks;
};

struct slot {
    bool taken;
    struct unit unit;
    struct finding found;
    struct qp_sums *sums;
};

/* ---- Memory ------------------------------------------------------------------------------------
 */

/* Elements of a unit: 8 bytes each at the most, and on the CPU no more than its cache keeps. */
#define UNIT_MOST ((size_t)16 * QP_BLOCK)

static size_t device_elems(size_t tile_bytes)
{
    const size_t n = tile_bytes / sizeof(double);
    return n - n % QP_BLOCK;
}

static size_t cpu_elems(size_t tile_bytes)
{
    return tile_bytes / sizeof(double) < UNIT_MOST ? device_elems(tile_bytes) : UNIT_MOST;
}

static size_t unit_elems(const struct engine *e, size_t tile_bytes)
{
    return e->device ? device_elems(tile_bytes) : cpu_elems(tile_bytes);
}

/* Bytes of a kept tensor: as many again come from the other file. */
static size_t kept_bytes(size_t tile_bytes)
{
    return tile_bytes / 4;
}

static size_t window_sets(size_t tile_bytes)
{
    return tile_bytes / 64;
}

_Static_assert(sizeof(struct buffers) <= sizeof(union qp_any_buffers), "the buffers fit");

static void carve_buffers(struct qp_carve *carve, size_t tile_bytes, void *buffers)
{
    struct buffers *b = buffers;
    size_t n = cpu_elems(tile_bytes), n_sets = window_sets(tile_bytes);
    b->source = qp_take(carve, tile_bytes + QP_IO_SPARE);
    b->block = qp_take(carve, QP_BLOCK * sizeof(double));
    b->codes = qp_take(carve, QP_CODE_ROOM(n) + 1);
    b->window.scale = qp_take(carve, n_sets * sizeof(double));
    b->window.zero = qp_take(carve, n_sets * sizeof(int32_t));
    b->window.stored = qp_take(carve, n_sets * sizeof(float));
    b->bound = qp_take(carve, n_sets * sizeof(double));
    b->sums = qp_take(carve, n / QP_BLOCK * sizeof *b->sums);
}

static void carve_device_buffers(struct qp_carve *carve, size_t tile_bytes, void *buffers)
{
    struct buffers *b = buffers;
    b->source = qp_take(carve, tile_bytes + QP_IO_SPARE);
    b->sums = qp_take(carve, device_elems(tile_bytes) / QP_BLOCK * sizeof *b->sums);
    qp_flat_carve(carve, tile_bytes, &b->flat);
}

static void attach_lane(void *buffers, struct qp_lane *lane)
{
    ((struct buffers *)buffers)->flat.lane = lane;
}

static void carve_ring(struct qp_carve *carve, size_t tile_bytes, struct qp_job *job)
{
    struct engine *e = (struct engine *)job;
    const size_t n_blocks = unit_elems(e, tile_bytes) / QP_BLOCK;
    struct slot *ring = qp_take(carve, RING * sizeof *ring);
    struct qp_sums *sums = qp_take(carve, RING * n_blocks * sizeof *sums);
    for (size_t i = 0; ring && i < RING; i++)
        ring[i] = (struct slot){.sums = sums + i * n_blocks};
    e->ring = ring;
}

/* In what the units of a pair count: elements, or bytes of a kept tensor. */
static uint64_t pair_length(const void *ctx, size_t i, uint64_t *unit_length)
{
    const struct engine *e = ctx;
    const struct qp_pair *pair = &e->pairs[i];
    *unit_length =
        pair->file.native ? unit_elems(e, e->job.tile_bytes) : kept_bytes(e->job.tile_bytes);
    return pair->file.native ? qp_entry_elements(pair->source)
                             : pair->source->end - pair->source->begin;
}

/* ---- Kept tensors ------------------------------------------------------------------------------
 */

static enum qplan_status compare_bytes(const struct engine *e, const struct unit *unit,
                                       const struct buffers *b, struct finding *found,
                                       struct qplan_error *err)
{
    const struct qp_pair *pair = unit->pair;
    size_t n = (size_t)unit->n;
    unsigned char *x = b->source, *y = x + n;
    QP_TRY(qp_file_read(&e->source->file,
                        e->source->header_bytes + pair->source->begin + unit->elem, x, n, err));
    QP_TRY(qp_file_read(&e->file->file,
                        e->file->header_bytes + pair->file.entry->begin + unit->elem, y, n, err));
    if (memcmp(x, y, n) == 0)
        return QPLAN_OK;
    for (size_t i = 0; i < n; i++) {
        if (x[i] != y[i] && found->part.offences++ == 0) {
            found->part.first = unit->elem + i;
            found->part.x = x[i];
            found->part.y = y[i];
        }
    }
    return QPLAN_OK;
}

/* ---- Quantized tensors -------------------------------------------------------------------------
 */

struct task {
    const struct unit *unit;
    const struct buffers *b;
    void *source; /* elements of the unit */
    const struct qp_source_kernels *kernels;
    struct qp_decoder decoder;
    struct qp_code_rule rule;
    unsigned bits; /* of a code */
    bool can_clip;
    double largest; /* error so far: only where a larger one is matters */
    struct finding *found;
};

/* Of the runs of a block, all of one width; 0 = none. */
struct block_limits {
    double square[QP_BLOCK / 16];
    size_t width;
};

static double value_at(enum qplan_dtype dtype, const void *values, size_t i)
{
    double x;
    const struct qp_work_kernels *f64 = qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work;
    f64->load(dtype, 1, (const char *)values + i * qp_float_bytes(dtype), &x);
    return x;
}

/* The bound of an element of a tile, found by its coordinates. */
static double bound_at(const struct task *task, const struct qp_decoded *part, size_t i)
{
    const struct qp_tile *tile = &part->tile;
    size_t row = i / tile->cols, col = i % tile->cols;
    size_t set =
        row / tile->band_rows * qp_tile_cols(tile) + (tile->col_skip + col) / tile->col_width;
    return task->b->bound[part->set + set];
}

/* What a check found, and where; returns whether its first offence is the first of the unit. */
static bool add_check(struct task *task, const struct qp_check *check, size_t *first)
{
    struct qp_measure *part = &task->found->part;
    uint64_t offences = check->offences;
    *first = check->first_offence;
    if (!task->can_clip && check->clipped) { /* then a clipped value is an offence too */
        if (offences == 0 || check->first_clipped < *first)
            *first = check->first_clipped;
        offences += check->clipped;
    }
    const bool is_first = part->offences == 0 && offences > 0;
    part->offences += offences;
    part->clipped += check->clipped;
    part->nonfinite += check->nonfinite;
    part->max_clip = check->max_clip > part->max_clip ? check->max_clip : part->max_clip;
    return is_first;
}

/* The first offence of the unit: the at-th of its elements. */
static void set_first(struct task *task, size_t at, double y, double bound)
{
    struct qp_measure *part = &task->found->part;
    part->first = task->unit->elem + at;
    part->x = value_at(task->kernels->dtype, task->source, at);
    part->y = y;
    part->bound = bound;
}

static void check_part(struct task *task, const struct qp_decoded *part)
{
    const struct qp_source_kernels *k = task->kernels;
    const struct qp_param_window *window = &task->decoder.window;
    struct qp_check check;
    k->check(&part->tile, (const char *)task->source + part->at * k->elem_bytes, part->y,
             &task->rule, (const char *)window->scale + part->set * k->work_bytes,
             window->zero + part->set, task->b->bound + part->set, &check);
    size_t first;
    if (add_check(task, &check, &first))
        set_first(task, (size_t)part->at + first, value_at(k->work->work, part->y, first),
                  bound_at(task, part, first));
}

/*
 * A limit that the square of an error above the bound is above too: a little less than the bound's
 * own square, so that roundings do not matter. Where there is no bound, or its square is too near
 * an end of the range to say, it is what nothing keeps, not even the -1 that kernels begin with: a
 * scale that is NaN gives errors that are no numbers, and the largest of none is that.
 */
static double sure_square(double bound)
{
    const double square = bound * bound;
    return bound > 0 && square > 0x1p-900 && square < 0x1p1000 ? square * (1 - 0x1p-50) : -INFINITY;
}

/*
 * Limits for the sums of a block that is one part: then these find out on their way whether any
 * element needs to be judged. false where runs of sets do not go with the lanes of the sums.
 */
static bool limit_block(const struct task *task, const struct qp_decoded *part,
                        struct block_limits *limits)
{
    const struct qp_tile *tile = &part->tile;
    const size_t width = tile->col_width < tile->cols ? tile->col_width : tile->cols;
    const double *bound = task->b->bound + part->set;
    size_t n = 0;
    if (part->at % QP_BLOCK || !part->ends_block || tile->col_skip || width % 16 ||
        tile->cols % width)
        return false;
    for (size_t row = 0; row < tile->rows; row++) {
        const size_t first = row / tile->band_rows * qp_tile_cols(tile);
        for (size_t i = 0; i < tile->cols / width; i++)
            limits->square[n++] = sure_square(bound[first + i]);
    }
    limits->width = width;
    return true;
}

/* The block that has just been decoded to its end; whether all of it is surely within limits. */
static bool add_block(struct task *task, const struct block_limits *limits)
{
    const struct qp_source_kernels *k = task->kernels;
    const uint64_t end = task->decoder.at, at = (end - 1) / QP_BLOCK * QP_BLOCK;
    const struct qp_sums_wish wish = {task->largest, limits->square, limits->width};
    struct qp_sums *sums = &task->b->sums[task->found->n_blocks++];
    k->sums((const char *)task->source + at * k->elem_bytes, task->b->block, (size_t)(end - at),
            &wish, sums);
    task->largest = sums->max_abs > task->largest ? sums->max_abs : task->largest;
    return limits->width && sums->within;
}

static void measure_part(struct task *task, const struct qp_decoded *part)
{
    const struct qp_source_kernels *k = task->kernels;
    struct block_limits limits = {.width = 0};
    if (part->new_sets)
        k->work->bounds(part->new_sets, task->decoder.window.scale, task->bits, task->b->bound);
    const bool limited = limit_block(task, part, &limits);
    if (!limited)
        check_part(task, part);
    if (part->ends_block && !add_block(task, &limits) && limited)
        check_part(task, part);
}

static enum qplan_status read_source(const struct engine *e, struct task *task,
                                     struct qplan_error *err)
{
    const struct unit *unit = task->unit;
    const size_t size = task->kernels->elem_bytes;
    const uint64_t off = e->source->header_bytes + unit->pair->source->begin + unit->elem * size;
    task->source = qp_io_room(task->b->source, off, off);
    return qp_file_read(&e->source->file, off, task->source, (size_t)unit->n * size, err);
}

static enum qplan_status read_codes(const struct engine *e, struct task *task,
                                    struct qplan_error *err)
{
    const struct unit *unit = task->unit;
    const struct qp_native_tensor *tensor = task->decoder.tensor;
    const struct qp_code_form form = qp_code_form(&tensor->scheme, e->job.run->isa);
    return qp_read_codes(e->file, tensor->part[QP_CODES], &task->decoder.sets, &form, unit->elem,
                         (size_t)unit->n, task->b->codes, &task->decoder.codes,
                         &task->found->part.bad_pads, err);
}

static enum qplan_status compare_codes(const struct engine *e, struct task *task,
                                       struct qplan_error *err)
{
    struct qp_decoded part;
    bool found;
    QP_TRY(read_source(e, task, err));
    QP_TRY(read_codes(e, task, err));
    QP_TRY(qp_decode_next(&task->decoder, &part, &found, err));
    while (found) {
        measure_part(task, &part);
        QP_TRY(qp_decode_next(&task->decoder, &part, &found, err));
    }
    return QPLAN_OK;
}

/* The blocks of a part that a device has measured. */
static void add_found(struct task *task, const struct qp_flat_walk *walk)
{
    for (uint64_t i = 0; i < walk->work.n; i += QP_BLOCK) {
        const struct qp_flat_found found =
            qp_flat_found_at(&walk->work, walk->b->found, (size_t)(i / QP_BLOCK));
        size_t first;
        double bound;
        task->b->sums[task->found->n_blocks++] = found.sums;
        task->found->part.bad_pads += found.bad_pads;
        if (add_check(task, &found.check, &first)) {
            const double y = qp_flat_value_at(walk, i + first, &bound);
            set_first(task, (size_t)(walk->at + i) + first, y, bound);
        }
    }
}

static enum qplan_status compare_on_device(const struct engine *e, struct task *task,
                                           struct qplan_error *err)
{
    struct qp_flat_walk walk = {.device = e->device,
                                .b = &task->b->flat,
                                .st = e->file,
                                .tensor = task->decoder.tensor,
                                .elem = task->unit->elem,
                                .n = task->unit->n};
    bool found;
    qp_flat_begin(&walk, task->kernels->dtype);
    QP_TRY(read_source(e, task, err));
    const char *source = task->source;
    QP_TRY(qp_flat_next(&walk, &found, err));
    while (found) {
        QP_TRY(qp_flat_measure(&walk, source + walk.at * task->kernels->elem_bytes, err));
        add_found(task, &walk);
        QP_TRY(qp_flat_next(&walk, &found, err));
    }
    return QPLAN_OK;
}

static void prepare(const struct engine *e, struct task *task)
{
    const struct qp_native_tensor *tensor = task->unit->pair->file.native;
    task->kernels = qp_source_kernels(qp_storage_row(tensor->source)->dtype, e->job.run->isa);
    task->rule = qp_code_rule(&tensor->scheme);
    task->bits = qplan_dtype_bits(tensor->scheme.dtype);
    task->can_clip = qp_calibrator_can_clip(tensor->calibrate);
    task->decoder = (struct qp_decoder){.st = e->file,
                                        .tensor = tensor,
                                        .work = task->kernels->work,
                                        .elem = task->unit->elem,
                                        .n = task->unit->n,
                                        .y = task->b->block,
                                        .window = task->b->window,
                                        .window_sets = window_sets(e->job.tile_bytes)};
    qp_sets_make(&task->decoder.sets, &tensor->scheme, tensor->shape, tensor->rank);
}

static enum qplan_status do_unit(struct engine *e, const struct unit *unit, const struct buffers *b,
                                 struct finding *found, struct qplan_error *err)
{
    *found = (struct finding){.part.max_abs = -1};
    if (!unit->pair->file.native)
        return compare_bytes(e, unit, b, found, err);
    struct task task = {.unit = unit, .b = b, .largest = unit->largest, .found = found};
    prepare(e, &task);
    return e->device ? compare_on_device(e, &task, err) : compare_codes(e, &task, err);
}

/* ---- Results in order --------------------------------------------------------------------------
 */

static void add_sums(struct qp_measure *total, const struct qp_sums *sums, uint64_t elem)
{
    total->e2 += sums->e2;
    total->x2 += sums->x2;
    total->y2 += sums->y2;
    total->xy += sums->xy;
    if (sums->max_abs > total->max_abs) {
        total->max_abs = sums->max_abs;
        total->max_at = elem + sums->max_at;
    }
}

static void add_finding(const struct unit *unit, const struct finding *found,
                        const struct qp_sums *sums)
{
    struct qp_measure *total = &unit->pair->result;
    const struct qp_measure *part = &found->part;
    for (size_t i = 0; i < found->n_blocks; i++)
        add_sums(total, &sums[i], unit->elem + i * QP_BLOCK);
    if (total->offences == 0 && part->offences) {
        total->first = part->first;
        total->x = part->x;
        total->y = part->y;
        total->bound = part->bound;
    }
    total->offences += part->offences;
    total->clipped += part->clipped;
    total->nonfinite += part->nonfinite;
    total->bad_pads += part->bad_pads;
    total->max_clip = part->max_clip > total->max_clip ? part->max_clip : total->max_clip;
}

/* Takes the results whose turn it is; says whether there were any. */
static bool take_results(struct engine *e)
{
    const uint64_t before = e->turn;
    struct slot *slot = &e->ring[e->turn % RING];
    while (slot->taken) {
        add_finding(&slot->unit, &slot->found, slot->sums);
        slot->taken = false;
        slot = &e->ring[++e->turn % RING];
    }
    return e->turn != before;
}

/* Waits while the ring has no room, unless the job stops. */
static void hand_in(struct engine *e, const struct unit *unit, const struct finding *found,
                    const struct qp_sums *sums)
{
    (void)pthread_mutex_lock(&e->job.lock);
    while (unit->number - e->turn >= RING && !qp_job_stopping(&e->job))
        (void)pthread_cond_wait(&e->job.changed, &e->job.lock);
    if (unit->number - e->turn < RING) {
        struct slot *slot = &e->ring[unit->number % RING];
        *slot = (struct slot){true, *unit, *found, slot->sums};
        memcpy(slot->sums, sums, found->n_blocks * sizeof *sums);
        if (take_results(e))
            (void)pthread_cond_broadcast(&e->job.changed);
    }
    (void)pthread_mutex_unlock(&e->job.lock);
}

static bool step(struct qp_job *job, void *buffers, struct qplan_error *err)
{
    struct engine *e = (struct engine *)job;
    const struct buffers *b = buffers;
    struct qp_flat_unit claimed;
    struct finding found;
    if (!qp_flat_claim(job, &e->flat, &claimed))
        return false;
    struct unit unit = {.number = claimed.number,
                        .pair = &e->pairs[claimed.item],
                        .elem = claimed.pos,
                        .n = claimed.n};
    (void)pthread_mutex_lock(&job->lock);
    unit.largest = unit.pair->result.max_abs;
    (void)pthread_mutex_unlock(&job->lock);
    if (do_unit(e, &unit, b, &found, err) != QPLAN_OK) {
        qp_job_fail(job, unit.number, err);
        return true;
    }
    hand_in(e, &unit, &found, b->sums);
    uint64_t bits = unit.pair->file.native
                        ? qplan_storage_bits((enum qplan_storage)unit.pair->source->storage)
                        : 8;
    qp_job_advance(job, unit.n * bits / 8);
    return true;
}

static uint64_t total_bytes(const struct qp_pair *pairs, size_t n)
{
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += pairs[i].source->end - pairs[i].source->begin;
    return total;
}

static enum qplan_status take_device(struct engine *e, size_t n, const struct qplan_run *run,
                                     struct qplan_error *err)
{
    struct qp_device_need need = {.n_rows = 0};
    qp_need_pairs(&need, e->pairs, n);
    if (run)
        QP_TRY(qp_device_take(run->device, &need, run->threads, err));
    e->device = qp_device_of(run);
    return QPLAN_OK;
}

enum qplan_status qp_measure_pairs(struct qp_pair *pairs, size_t n, const struct qp_st *file,
                                   const struct qp_st *source, const struct qplan_run *run,
                                   struct qplan_error *err)
{
    static const struct qp_job_ops on_cpu = {.buffers_size = sizeof(struct buffers),
                                             .carve = carve_buffers,
                                             .carve_shared = carve_ring,
                                             .step = step};
    static const struct qp_job_ops on_device = {.buffers_size = sizeof(struct buffers),
                                                .carve = carve_device_buffers,
                                                .carve_shared = carve_ring,
                                                .device_bytes = qp_flat_block_bytes,
                                                .attach = attach_lane,
                                                .step = step};
    struct engine *e = qp_alloc(1, sizeof *e);
    if (!e)
        return qp_fail_memory(err, "job", sizeof *e);
    e->pairs = pairs;
    e->file = file;
    e->source = source;
    e->flat = (struct qp_flat){.ctx = e, .n_items = n, .length = pair_length};
    for (size_t i = 0; i < n; i++)
        pairs[i].result = (struct qp_measure){.max_abs = -1};
    enum qplan_status status = take_device(e, n, run, err);
    if (status == QPLAN_OK)
        status =
            qp_job_run(&e->job, e->device ? &on_device : &on_cpu, run, total_bytes(pairs, n), err);
    qp_free(e);
    return status;
}
